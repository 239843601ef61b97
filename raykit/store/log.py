"""An append-only log: numbered objects, created once each.

`<log>/000000000001.json` holds a batch of events and the digest of the entry before it. To append is to
create the next number; whoever loses that race reads on and decides again. That race is the only lock in
raykit: a writer that was stopped for an hour wakes up, tries a number that is taken, reads why, and finds that
it is fenced.

Now and then the writer leaves a derived snapshot (all entries so far in one file). A reader may start from it,
because the chain makes it as good as the files: it is believed only if its last entry equals the stored one.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from raykit.errors import ConflictError, CorruptError, DeadlineError, NotFoundError, StoreUnavailableError
from raykit.ids import sha256
from raykit.records import Entry, Record
from raykit.store import layout
from raykit.store.base import ObjectStore

E = TypeVar("E", bound=Entry)

SNAPSHOT_EVERY = 128
MAX_RACES = 1000
MAX_ENTRY_BYTES = 4 * 1024 * 1024


class Log(Generic[E]):
    """One log of one store. Safe to share between threads.

    `entries` holds what has been read so far; `refresh` reads on; `append` decides and writes.
    """

    def __init__(self, store: ObjectStore, prefix: str, entry: type[E], *, by: str) -> None:
        self._store = store
        self._prefix = prefix
        self._entry = entry
        self._by = by
        self._nonce = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._tail_sha256: str | None = None
        self._raw: list[bytes] = []
        self.entries: list[E] = []

    def refresh(self) -> list[E]:
        """Read every entry that is new since the last call, and return those.

        Raises:
            CorruptError: an entry does not parse, is out of place, or does not chain to the one before it.
            StoreUnavailableError: the store did not answer.
        """
        with self._lock:
            before = len(self.entries)
            if not self.entries:
                self._read_snapshot()
            while (data := self._get(len(self.entries) + 1)) is not None:
                self._take(self._parse(data, len(self.entries) + 1, self._tail_sha256), data)
            return self.entries[before:]

    def append(self, decide: Callable[[Sequence[E]], Sequence[Record]], *, at: float) -> E | None:
        """Append the events that `decide` makes of all entries so far; None if it makes none.

        `decide` is called again, with more entries, each time another writer was faster. It may raise to
        refuse: then nothing is written.

        Raises:
            CorruptError: the log itself is damaged.
            DeadlineError: other writers were faster a thousand times in a row.
            UnknownOutcomeError: the reply was lost and the entry could not be read back.
            StoreUnavailableError: the store did not answer.
        """
        with self._lock:
            for _ in range(MAX_RACES):
                self.refresh()
                events = decide(self.entries)
                if not events:
                    return None
                n = len(self.entries) + 1
                entry = self._entry(
                    n=n, prev=self._tail_sha256, at=at, by=self._by, nonce=self._nonce, events=tuple(events)
                )
                data = entry.to_bytes()
                try:
                    self._store.put_new(layout.log_entry(self._prefix, n), data)
                except ConflictError:
                    continue
                self._take(entry, data)
                if n % SNAPSHOT_EVERY == 0:
                    self._write_snapshot()
                return entry
            raise DeadlineError(f"{self._prefix}: other writers were faster {MAX_RACES} times in a row")

    def _get(self, n: int) -> bytes | None:
        try:
            return self._store.get(layout.log_entry(self._prefix, n), max_bytes=MAX_ENTRY_BYTES)
        except NotFoundError:
            return None

    def _parse(self, data: bytes, n: int, prev: str | None) -> E:
        what = layout.log_entry(self._prefix, n)
        entry = self._entry.from_bytes(data, what)
        if entry.n != n:
            raise CorruptError(f"{what} says that it is entry {entry.n}")
        if entry.prev != prev:
            raise CorruptError(f"{what} does not follow the entry before it", rule="prev is that entry's sha256")
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
        if not lines or self._get(len(lines)) != lines[-1]:
            return
        read: list[tuple[E, bytes]] = []
        prev = None
        try:
            for n, data in enumerate(lines, start=1):
                read.append((self._parse(data, n, prev), data))
                prev = sha256(data)
        except CorruptError:
            return  # derived, so not evidence of anything: the entries themselves are read instead
        for entry, data in read:
            self._take(entry, data)

    def _write_snapshot(self) -> None:
        try:
            self._store.put_derived(layout.log_snapshot(self._prefix), b"\n".join(self._raw))
        except StoreUnavailableError:
            pass  # the next snapshot will do
