"""An append-only log: numbered objects, created once each.

`<log>/000000000001.json` holds a batch of events, the digest of the entry before it, and last a digest of all
its own other bytes. To append is to create the next number; whoever loses that race reads on and decides
again. That race is the only lock in raykit: a writer that was stopped for an hour wakes up, tries a number
that is taken, reads why, and finds that it is fenced.

Now and then, and when the log comes to rest, the writer leaves a derived snapshot (all entries so far in one
file). A reader may start from it, because the chain makes it as good as the files: it is believed only if its
last entry equals the stored one. It is also what shows that the newest entries of a log were deleted.
"""

from __future__ import annotations

import gc
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from raykit.errors import (
    ConflictError,
    CorruptError,
    DeadlineError,
    InvalidInput,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
)
from raykit.ids import sha256
from raykit.reconcile import RunState, fold
from raykit.records import Entry, Record, RunEntry
from raykit.store import layout
from raykit.store.base import ObjectStore

E = TypeVar("E", bound=Entry)

SNAPSHOT_EVERY = 128
MAX_RACES = 1000
MAX_ENTRY_BYTES = 4 * 1024 * 1024

SEAL = re.compile(rb',"self_sha256":"([0-9a-f]{64})"\}')
SEAL_BYTES = len(',"self_sha256":""}') + 64


def seal(body: bytes) -> bytes:
    """The bytes of an entry's file: its canonical JSON and, as the last field, the digest of that JSON."""
    return body[:-1] + f',"self_sha256":"{sha256(body)}"}}'.encode()


def unseal(data: bytes, what: str) -> bytes:
    """The canonical JSON of an entry, from the bytes of its file.

    The chain tells of a changed entry only once another one follows; this tells at once, before any parser
    sees a byte.

    Raises:
        CorruptError: the bytes are not those that were written.
    """
    found = SEAL.fullmatch(data[-SEAL_BYTES:])
    body = data[:-SEAL_BYTES] + b"}"
    if found is None or found[1].decode() != sha256(body):
        raise CorruptError(
            f"{what} has changed since it was written", field=what, rule="its own digest holds"
        )
    return body


def parse_entry(data: bytes, entry: type[E], what: str, *, n: int) -> E:
    """Entry `n` of a log, from the bytes of its file.

    Raises:
        CorruptError: it has changed, is not an entry, or is out of place.
    """
    parsed = entry.from_bytes(unseal(data, what), what)
    if parsed.n != n:
        raise CorruptError(f"{what} says that it is entry {parsed.n}", field=what, rule=f"entry {n}")
    return parsed


def require_chained(entry: Entry, prev: str | None, what: str) -> None:
    """Let only an entry pass that was written after the one with the digest `prev`.

    Raises:
        CorruptError: it was written after another one.
    """
    if entry.prev != prev:
        raise CorruptError(
            f"{what} does not follow the entry before it", field=what, rule="prev is that entry's sha256"
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking over a whole log again and again while it is read: half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Log(Generic[E]):
    """One log of one store. Safe to share between threads.

    `entries` holds what has been read so far; `refresh` reads on; `append` decides and writes.
    """

    def __init__(self, store: ObjectStore, prefix: str, entry: type[E], *, by: str) -> None:
        self._store = store
        self._prefix = prefix
        self._entry = entry
        self._by = by
        self._lock = threading.RLock()
        self._tail_sha256: str | None = None
        self._raw: list[bytes] = []
        self._whole = False
        self._snapshot_entries = 0
        self.entries: list[E] = []

    def refresh(self) -> list[E]:
        """Read every entry that is new since the last call, and return those.

        Raises:
            CorruptError: an entry has changed, does not parse, is missing, is out of place, or does not chain
                to the one before it.
            StoreUnavailableError: the store did not answer.
        """
        with self._lock:
            before = len(self.entries)
            if not self._whole:
                with uncollected():
                    self._read_whole()
            else:
                self._read_on()
            return self.entries[before:]

    def append(self, decide: Callable[[Sequence[E]], Sequence[Record]], *, at: float) -> E | None:
        """Append the events that `decide` makes of all entries so far; None if it makes none.

        `decide` is called again, with more entries, each time another writer was faster. It may raise to
        refuse: then nothing is written.

        Raises:
            InvalidInput: the events are too long for one entry.
            CorruptError: the log itself is damaged.
            DeadlineError: other writers were faster a thousand times in a row.
            UnknownOutcomeError: the reply was lost and the entry could not be read back. The next call reads
                on and shows `decide` whether it is there.
            StoreUnavailableError: the store did not answer.
        """
        with self._lock:
            for _ in range(MAX_RACES):
                self.refresh()
                events = decide(self.entries)
                if not events:
                    return None
                entry = self._next(events, at)
                data = seal(entry.to_bytes())
                if len(data) > MAX_ENTRY_BYTES:
                    raise InvalidInput(
                        f"{self._prefix}: the entry is {len(data)} bytes long",
                        rule=f"at most {MAX_ENTRY_BYTES}",
                    )
                try:
                    self._store.put_new(layout.log_entry(self._prefix, entry.n), data)
                except ConflictError:
                    continue
                self._take(entry, data)
                if entry.n % SNAPSHOT_EVERY == 0 or any(event.closes for event in events):
                    self.snapshot()
                return entry
            raise DeadlineError(f"{self._prefix}: other writers were faster {MAX_RACES} times in a row")

    def snapshot(self) -> None:
        """Leave a derived snapshot of all entries so far."""
        with self._lock:
            try:
                self._store.put_derived(layout.log_snapshot(self._prefix), b"\n".join(self._raw))
            except RaykitError:
                pass  # derived: whatever is wrong with it must not hide that the entries are written

    def _next(self, events: Sequence[Record], at: float) -> E:
        # The nonce is new each time, so not even a forked copy of this writer makes the same bytes.
        return self._entry(
            n=len(self.entries) + 1,
            prev=self._tail_sha256,
            at=at,
            by=self._by,
            nonce=secrets.token_hex(8),
            events=tuple(events),
        )

    def _read_whole(self) -> None:
        if not self.entries:
            self._read_snapshot()
        listed = self._listed()
        self._read_on()
        self._refuse_holes(listed)
        self._whole = True

    def _listed(self) -> set[int]:
        """The numbers of the entries that are there."""
        names = (listed.key.rpartition("/")[2] for listed in self._store.list(self._prefix))
        return {int(name[:12]) for name in names if layout.ENTRY.fullmatch(name)}

    def _refuse_holes(self, listed: set[int]) -> None:
        """An entry is missing if a later one is there, or if the snapshot has it."""
        last = max(max(listed, default=0), self._snapshot_entries)
        for n in range(1, last + 1):
            if n > len(self.entries) or (n not in listed and n <= max(listed, default=0)):
                missing = layout.log_entry(self._prefix, n)
                raise CorruptError(
                    f"{missing} is missing, though there were {last} entries",
                    field=missing,
                    rule="no holes",
                    remedy="restore it from a copy of the store; raykit check says what else is gone",
                )

    def _read_on(self) -> None:
        while (data := self._get(len(self.entries) + 1)) is not None:
            self._take(self._parse(data, len(self.entries) + 1, self._tail_sha256), data)

    def _get(self, n: int) -> bytes | None:
        try:
            return self._store.get(layout.log_entry(self._prefix, n), max_bytes=MAX_ENTRY_BYTES)
        except NotFoundError:
            return None

    def _parse(self, data: bytes, n: int, prev: str | None) -> E:
        what = layout.log_entry(self._prefix, n)
        entry = parse_entry(data, self._entry, what, n=n)
        require_chained(entry, prev, what)
        return entry

    def _take(self, entry: E, data: bytes) -> None:
        self.entries.append(entry)
        self._raw.append(data)
        self._tail_sha256 = sha256(data)

    def _read_snapshot(self) -> None:
        try:
            lines = self._store.get(layout.log_snapshot(self._prefix)).split(b"\n")
        except (NotFoundError, StoreUnavailableError):
            return
        read: list[tuple[E, bytes]] = []
        prev = None
        try:
            for n, data in enumerate(lines, start=1):
                read.append((self._parse(data, n, prev), data))
                prev = sha256(data)
        except CorruptError:
            return  # derived, so not evidence of anything: the entries themselves are read instead
        self._snapshot_entries = len(lines)
        if self._get(len(lines)) == lines[-1]:
            for entry, data in read:
                self._take(entry, data)


class RunLog(Log[RunEntry]):
    """A run's log that keeps the state it leads to, so that nobody folds the whole of it again."""

    def __init__(self, store: ObjectStore, experiment: str, run: str, *, by: str) -> None:
        super().__init__(store, layout.run_log(experiment, run), RunEntry, by=by)
        self._state = RunState()
        self._folded = 0

    @property
    def state(self) -> RunState:
        """What the entries read so far say. Inside `decide` it is as new as what `decide` is given."""
        with self._lock:
            new = self.entries[self._folded :]
            if new:
                self._state = fold(new, self._state)
                self._folded += len(new)
            return self._state
