"""The logs of a store, read for what is wrong with them: entries, chain, holes, and what a snapshot has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.records import Entry, Record
from raykit.store import layout
from raykit.store.check.view import View
from raykit.store.log import MAX_ENTRY_BYTES, parse_entry, require_chained

E = TypeVar("E", bound=Entry)


@dataclass(frozen=True, slots=True)
class ReadLog(Generic[E]):
    """What could be read of a log. What its events say counts only if it is whole: one fault is told once."""

    entries: Sequence[tuple[str, E]]
    """With their keys."""
    whole: bool

    def events(self) -> Iterator[tuple[str, Record]]:
        """Every event, with the key of its entry."""
        for key, entry in self.entries:
            for event in entry.events:
                yield key, event


def read_log(view: View, prefix: str, entry: type[E]) -> ReadLog[E]:
    """Read a log from its first entry; what is wrong with it is found."""
    before = len(view.findings)
    entries: list[tuple[str, E]] = []
    raw: dict[int, bytes] = {}
    newest: tuple[int, str | None] = (0, None)
    for n in _present(view, prefix):
        key = layout.log_entry(prefix, n)
        data = raw[n] = view.get(key, MAX_ENTRY_BYTES)
        try:
            found = parse_entry(data, entry, key, n=n)
            entries.append((key, found))
            # A file that comes after a hole or a damaged one cannot be asked what it follows.
            (last, digest), newest = newest, (n, sha256(data))
            if last == n - 1:
                require_chained(found, digest, key)
        except CorruptError as error:
            view.find(key, error.rule or "a whole entry of this log", error.message, "I2")
    if len(view.findings) == before:
        _snapshot(view, prefix, entry, raw)
    view.counts["entries"] += len(entries)
    return ReadLog(entries, len(view.findings) == before)


def _present(view: View, prefix: str) -> Iterator[int]:
    """The numbers of a log's files; holes are findings. Entries newer than the listing belong to it."""
    highest = max(view.numbers[prefix], default=0)
    for n in range(1, highest + 1):
        if not view.missing(layout.log_entry(prefix, n), "a log has no holes", "I2"):
            yield n
    while not view.absent(layout.log_entry(prefix, highest + 1)):
        highest += 1
        yield highest


def _snapshot(view: View, prefix: str, entry: type[E], raw: Mapping[int, bytes]) -> None:
    """A snapshot that is whole shows what has been deleted from the end, or written anew."""
    if layout.log_snapshot(prefix) not in view.sizes:
        return
    lines = view.store.get(layout.log_snapshot(prefix)).split(b"\n")
    prev = None
    try:
        for n, line in enumerate(lines, start=1):
            require_chained(parse_entry(line, entry, prefix, n=n), prev, prefix)
            prev = sha256(line)
    except CorruptError:
        return  # a derived file, which may be drawn anew at any time, and has been damaged itself
    for n, line in enumerate(lines, start=1):
        key = layout.log_entry(prefix, n)
        if n not in raw:
            view.find(key, "what a snapshot has seen stays in the log", f"{key} is missing", "I10")
        elif raw[n] != line:
            view.find(key, "what a snapshot has seen stays in the log", f"{key} was written anew", "I2")
