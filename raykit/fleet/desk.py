"""One ledger served to many who ask at once: group commit, and heartbeats that never wait for the store.

Decisions that arrive while an append is under way are made together in the next one, on a thread of its own. Beats are
answered from memory meanwhile, and say so when the store has not been reached for a while. Everything here is a cache:
a desk that is killed and made again knows what the ledger knows, and two desks on one ledger are as safe as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from raykit.budget.book import Book
from raykit.errors import Broken, LeaseLostError, RaykitError, StoreUnavailableError
from raykit.pauses import Acts
from raykit.records import Record, Reserved, Settled, Voided
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ask, Ledger
from raykit.store.people import People

T = TypeVar("T")

PROBE_EVERY_S = 1.0
"""How often the ledger is read on while nobody asks for anything."""
AWAY_S = 3.0
"""So long after the last answer of the store, beats say that it is away."""
LOOK_S = 2.0
"""How long a beat waits to learn of a lease that is not known here yet."""
MAX_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(Generic[T]):
    """One decision that somebody waits for."""

    ask: Callable[[Acts, float], Ask]
    """The decision, given what people have said and the time."""
    read: Callable[[Book, float], T]
    """The answer, from the book as it is after the decision."""
    experiment: str | None = None
    """Whose people's acts matter; None if nobody's do."""


class OpenLease(NamedTuple):
    """A lease that goes on, and how long ago its worker was heard; None if it was not heard here."""

    lease: str
    quiet_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskState:
    """What a desk knows, for people."""

    leases: tuple[OpenLease, ...]
    entries: int
    """Entries of the ledger that have been read."""
    contact_s: float | None
    """How long ago the store last answered; None if it never has."""


class Desk:
    """Serves one account within one event loop. `start` it once the loop runs."""

    def __init__(
        self,
        store: ObjectStore,
        account: str,
        *,
        by: str,
        clock: Callable[[], float] = time.time,
        tell: Callable[[Book, Collection[str]], None] = lambda book, leases: None,
    ) -> None:
        """`tell` hears, on the ledger's thread, of the book and the names of its open leases after every round that the
        store has answered."""
        self._store = store
        self._tell = tell
        self._ledger = Ledger(store, account, by=by)
        self._people: dict[str, People] = {}
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raykit-ledger")
        self._task: asyncio.Task[None] | None = None
        self._arrived = asyncio.Event()
        self._waiting: list[tuple[Wanted[Any], asyncio.Future[Any]]] = []
        self._open: set[str] = set()
        self._ended: dict[str, str] = {}
        self._noted = 0
        self._heard: dict[str, float] = {}
        self._contact: float | None = None
        self._trouble: RaykitError | None = None

    def start(self) -> None:
        """Begin to serve; a second call changes nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Stop serving. Who still waits gets no answer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._thread.shutdown()

    async def decide(self, wanted: Wanted[T]) -> T | RaykitError:
        """Make a decision together with those that arrive meanwhile. A refusal is returned, not raised."""
        future: asyncio.Future[T | RaykitError] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        self._arrived.set()
        return await future

    async def beat(self, lease: str) -> RaykitError | None:
        """Whether a lease goes on, from memory; None if it does, else why not."""
        if lease not in self._open and lease not in self._ended:
            unread = await self._look()
            if unread is not None:
                return unread
        away = self._away()
        if away is not None:
            return away
        if lease in self._open:
            self._heard[lease] = time.monotonic()
            return None
        why = f"has ended: {self._ended[lease]}" if lease in self._ended else "is not in the ledger"
        return LeaseLostError(f"lease {lease} {why}", field="lease", value=lease)

    def state(self) -> DeskState:
        """What is known here, for people."""
        now = time.monotonic()
        leases = [
            OpenLease(name, None if name not in self._heard else now - self._heard[name])
            for name in sorted(self._open)
        ]
        contact_s = None if self._contact is None else now - self._contact
        return DeskState(leases=tuple(leases), entries=self._noted, contact_s=contact_s)

    # --- in the event loop ----------------------------------------------------------------------------------

    async def _look(self) -> RaykitError | None:
        """Read on once: another writer may have granted a lease a moment ago. Returns why that was not possible."""
        looked = Wanted(ask=lambda acts, now: lambda book: None, read=lambda book, now: book.charged)
        looking = self.decide(looked)
        try:
            answer = await asyncio.wait_for(looking, LOOK_S)
        except TimeoutError:
            return self._away() or StoreUnavailableError(f"the ledger could not be read within {LOOK_S:g} s")
        return answer if isinstance(answer, RaykitError) else None

    def _away(self) -> RaykitError | None:
        if isinstance(self._trouble, Broken):
            return self._trouble
        if self._contact is not None and time.monotonic() - self._contact <= AWAY_S:
            return None
        said = "" if self._trouble is None else f": {self._trouble}"
        if self._contact is None:
            return StoreUnavailableError(f"the ledger has not been read yet{said}")
        return StoreUnavailableError(
            f"the ledger has not been reached for {time.monotonic() - self._contact:.0f} s{said}"
        )

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.wait_for(self._arrived.wait(), PROBE_EVERY_S)
            except TimeoutError:
                pass  # nobody asked: the round only reads on, so that the age of the last contact is true
            self._arrived.clear()
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if self._waiting:
                self._arrived.set()
            answers = await loop.run_in_executor(self._thread, self._round, [wanted for wanted, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():  # who asked may have gone
                    future.set_result(answer)

    # --- on the ledger's thread -----------------------------------------------------------------------------

    def _round(self, batch: Sequence[Wanted[Any]]) -> list[Any]:
        try:
            answers = self._decide(batch)
        except RaykitError as error:
            self._trouble = error
            return [error] * len(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
            self._trouble = RaykitError(f"the ledger could not be served: {type(error).__name__}: {error}")
            return [self._trouble] * len(batch)
        self._trouble = None
        return answers

    def _decide(self, batch: Sequence[Wanted[Any]]) -> list[Any]:
        now = self._clock()
        self._require_ledger()
        self._ledger.refresh()
        self._heed()
        acts = {name: self._acts(name) for name in {wanted.experiment for wanted in batch}}
        asks = [_ask(wanted, acts[wanted.experiment], now) for wanted in batch]
        answers = self._ledger.decide_all(asks, at=now)
        self._heed()
        book = self._ledger.book
        self._tell(book, self._open)
        return [
            answer if isinstance(answer, RaykitError) else _read(wanted, book, now)
            for wanted, answer in zip(batch, answers, strict=True)
        ]

    def _require_ledger(self) -> None:
        """A ledger whose newest entry is gone is a disk that went away: what is written now would fork it."""
        newest = len(self._ledger.entries)
        if (
            newest
            and self._store.head(layout.log_entry(layout.account_log(self._ledger.account), newest)) is None
        ):
            raise StoreUnavailableError(
                f"entry {newest} of the ledger of account {self._ledger.account} is not there any more",
                rule="the store that the ledger was read from",
            )

    def _acts(self, experiment: str | None) -> Acts | RaykitError:
        if experiment is None:
            return Acts()
        people = self._people.setdefault(experiment, People(self._store, experiment))
        try:
            return people.refresh()
        except RaykitError as error:
            return error

    def _heed(self) -> None:
        """Keep what beats are answered from: the ledger itself is locked while an append is under way."""
        new = self._ledger.entries[self._noted :]
        for entry in new:
            for event in entry.events:
                self._note(event)
        self._noted += len(new)
        self._contact = time.monotonic()

    def _note(self, event: Record) -> None:
        match event:
            case Reserved():
                self._open.add(event.lease)
            case Settled() | Voided():
                # Into the one set before out of the other: a beat looks from another thread.
                self._ended[event.lease] = event.reason if isinstance(event, Settled) else "never started"
                self._open.discard(event.lease)
                self._heard.pop(event.lease, None)


def _ask(wanted: Wanted[Any], acts: Acts | RaykitError, now: float) -> Ask:
    if isinstance(acts, RaykitError):
        refusal = acts

        def refuse(book: Book) -> None:
            raise refusal

        return refuse
    return wanted.ask(acts, now)


def _read(wanted: Wanted[T], book: Book, now: float) -> T | RaykitError:
    try:
        return wanted.read(book, now)
    except RaykitError as error:
        return error


__all__ = ["AWAY_S", "PROBE_EVERY_S", "Desk", "DeskState", "OpenLease", "Wanted"]
