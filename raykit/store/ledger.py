"""The ledger of one account: the log that is the only way to move money.

A decision is made on the book as the log stands and appended; whoever loses the race for the next number reads
what the other wrote and decides again. So two writers are as safe as one, and nothing has to be locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from raykit.budget.book import Book, read_book
from raykit.errors import CorruptError, RaykitError
from raykit.records import AccountEntry, Record
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import MAX_ENTRY_BYTES, Log, uncollected

BATCH_BYTES = MAX_ENTRY_BYTES // 2
"""A batch of decisions goes on in another entry from here: the last decision of one has the other half to itself."""

Ask = Callable[[Book], Record | Sequence[Record] | None]
"""One decision: reads a book, and gives the events to write, none if there are none, or raises what refuses it."""

Answer = tuple[Record, ...] | RaykitError
"""The events that a decision has led to, or why it was refused."""


class Ledger(Log[AccountEntry]):
    """One account's log that keeps the book it leads to. Safe to share between threads and processes."""

    def __init__(self, store: ObjectStore, account: str, *, by: str) -> None:
        super().__init__(store, layout.account_log(account), AccountEntry, by=by)
        self.account = account
        self._book = Book()
        self._folded = 0

    @property
    def book(self) -> Book:
        """What the entries read so far come to. Inside a decision it is as new as the log itself. Not to be changed.

        Raises:
            CorruptError: an entry speaks of what no entry before it has begun.
        """
        with self._lock:
            new = self.entries[self._folded :]
            if new:
                self._fold(new)
            return self._book

    def decide(self, ask: Ask, *, at: float) -> tuple[Record, ...]:
        """Make one decision and append what it leads to.

        Raises:
            RaykitError: what refuses it; then nothing is written.
            CorruptError: the ledger itself is damaged.
            UnknownOutcomeError: the reply was lost. Ask again: the same lease finds the same answer.
            StoreUnavailableError: the store did not answer.
        """
        (answer,) = self.decide_all([ask], at=at)
        if isinstance(answer, RaykitError):
            raise answer
        return answer

    def decide_all(self, asks: Iterable[Ask], *, at: float) -> list[Answer]:
        """Make many decisions in turn, each on what those before it have led to, and append them: as one entry,
        or as several if they are too long for one.

        A refusal is an answer like another: it stops no one else.

        Raises:
            CorruptError: the ledger itself is damaged.
            UnknownOutcomeError: a reply was lost. Ask all of them again.
            StoreUnavailableError: the store did not answer.
        """
        waiting = list(asks)
        answers: list[Answer] = []
        while len(answers) < len(waiting):
            answers += self._decide_some(waiting[len(answers) :], at)
        return answers

    def _decide_some(self, waiting: Sequence[Ask], at: float) -> list[Answer]:
        """The answers to the first of `waiting`: as many as one entry holds, at least one."""
        answers: list[Answer] = []

        def decide(entries: Sequence[AccountEntry]) -> list[Record]:
            answers.clear()
            draft = self.book.draft()
            events: list[Record] = []
            size_bytes = 0
            for ask in waiting:
                answer = _answer(draft, ask, at)
                answers.append(answer)
                if isinstance(answer, tuple):
                    events += answer
                    size_bytes += sum(len(event.to_bytes()) for event in answer)
                if size_bytes >= BATCH_BYTES:
                    break
            return events

        self.append(decide, at=at)
        return answers

    def _fold(self, new: Sequence[AccountEntry]) -> None:
        try:
            with uncollected():
                read_book(new, self._book)
        except KeyError as missing:
            self._book, self._folded = Book(), 0  # half folded; the next look finds the same again
            raise CorruptError(
                f"the ledger of account {self.account} speaks of {missing} before it begins",
                rule="every event follows what it is about",
                remedy="raykit check",
            ) from missing
        self._folded += len(new)


def _answer(draft: Book, ask: Ask, at: float) -> Answer:
    try:
        made = ask(draft)
    except RaykitError as refusal:
        return refusal
    events = () if made is None else (made,) if isinstance(made, Record) else tuple(made)
    for event in events:
        draft.apply(event, at)
    return events
