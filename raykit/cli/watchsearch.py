"""`raykit watch` of a search: state, money, the bar of its trials, what is at work, the best so far, the last events.

As of a run: read from the store alone, once a second, only what is new; it may pause the search, and never stops it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raykit.cli import look, output, searchlook
from raykit.cli.screen import EVENTS, Screen, last_lines, money_band
from raykit.errors import NotFoundError

if TYPE_CHECKING:
    from raykit.read.search import RowRead, SearchRead, SearchReader
    from raykit.records import SearchEntry

MOST_LIVE = 8
"""So many rows at work have a line each."""
BEST = 5


@dataclass(slots=True)
class SearchScreen(Screen):
    """What is on the screen of a search."""

    read: SearchRead | None = None
    _search: SearchReader | None = None

    def refresh(self, now: float) -> None:
        """Look again.

        Raises:
            NotFoundError: there is no such search.
            CorruptError: the search cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        from raykit.read.search import SearchReader

        self._search = self._search or SearchReader(self.found.store, self.experiment)
        self.read = self._search.look(now=now)
        if self.read is None:
            raise NotFoundError(f"there is no search {self.experiment}", field="RUN", value=self.experiment)
        if self.show_log:
            self.rank_log = self._last_lines(self.read)
        self.seen_at, self.trouble = now, None

    def _last_lines(self, read: SearchRead) -> Sequence[str]:
        """Of the log of the row at work that was begun first."""
        if not read.at_work:
            return ("no row is at work now",)
        run = read.at_work[0].run
        return [f"{run}  {line}" for line in last_lines(self.found, self.experiment, run)]

    def bands(self, columns: int, now: float) -> Iterator[Sequence[str]]:
        """What is shown, group by group; nothing before the first look."""
        read = self.read
        if read is None:
            return
        entries: Sequence[SearchEntry] = ()
        if self._search is not None and self._search.log is not None:
            entries = self._search.log.entries
        yield state_band(read, now)
        yield money_band(read.money, columns)
        yield searchlook.band(read, columns)
        yield rows_band(read, columns)
        yield best_band(read, columns)
        yield self.rank_log if self.show_log else events_band(entries)

    def wants(self, now: float) -> Iterator[str]:
        """What somebody has to do; nothing while it is driven."""
        if self.read is not None and not self.read.live:
            yield from searchlook.wants(self.read, now, self.at)


def state_band(read: SearchRead, now: float) -> list[str]:
    """Who it is, how it is, how far it is."""
    parts = [read.experiment, read.state.upper(), f"health {read.health}"]
    heard = [row.heard_at for row in read.at_work if row.heard_at is not None]
    if heard:
        parts.append(f"heard {look.ago(max(heard), now)}")
    facts = [read.progress, f"{read.registration.metric}, the {_best(read)} is best"]
    if read.qc is not None:
        facts.append(f"qc {searchlook.qc_cell(read)}")
    dot = f" {output.DOT} "
    return [dot.join(parts), f"  {dot.join(facts)}"]


def _best(read: SearchRead) -> str:
    return "least" if read.registration.mode == "min" else "most"


def rows_band(read: SearchRead, columns: int) -> list[str]:
    """The rows at work: how far each is, and its last evaluation with the update that it is from."""
    width = max(10, min(24, columns // 5))
    lines = [f"  {_row_line(read, row, width)}" for row in read.at_work[:MOST_LIVE]]
    more = len(read.at_work) - MOST_LIVE
    return [*lines, *([f"  and {more} more rows at work"] if more > 0 else [])]


def _row_line(read: SearchRead, row: RowRead, width: int) -> str:
    whole = read.registration.updates
    done = width * min(row.update, whole) // whole
    bar = searchlook.FULL * done + searchlook.EMPTY * (width - done)
    value = "" if row.value is None else f"  {read.metric} {searchlook.reported(row)}"
    stopping = f"  {row.status}" if row.status != "running" else ""
    update = f"{output.count(row.update)}/{output.count(whole)}"
    return f"ROW {row.row:<4} {bar}  {update}{value}{stopping}  {searchlook.setting_text(row)}"


def best_band(read: SearchRead, columns: int) -> list[str]:
    """The best completed rows so far; once there is a pick, that."""
    if read.picked is not None:
        words = [read.pick_words or "", *([] if read.verdict is None else [read.verdict.words])]
        lines = [line for text in words for line in output.wrapped(text, columns, indent=" " * 10)]
        return [f"  PICKED  {lines[0].strip()}", *lines[1:]]
    rows = sorted((row for row in read.rows if row.counts), key=lambda row: (read.order(row.value), row.row))
    lines = [
        f"row {row.row:<4} {read.metric} {searchlook.reported(row)}  {searchlook.setting_text(row)}"
        for row in rows[:BEST]
    ]
    return [f"  {'BEST' if n == 0 else '':<6}  {line}" for n, line in enumerate(lines)]


def events_band(entries: Sequence[SearchEntry]) -> list[str]:
    """The last events of the search's own log."""
    lines: list[str] = []
    for entry in reversed(entries):
        for event in reversed(entry.events):
            text = _event(event)
            if text is not None:
                lines.append(f"  {output.clock(entry.at)}  {text}")
        if len(lines) >= EVENTS:
            break
    return lines[:EVENTS][::-1]


def _event(event: object) -> str | None:
    from raykit import records as r

    match event:
        case r.Driven():
            return f"driver {event.driver} on {event.place.host}, process {event.place.pid}"
        case r.LetGo():
            return f"driver {event.driver} let go"
        case r.Drawn():
            again = "" if event.repeats is None else f", row {event.repeats} again"
            return f"row {event.row} drawn by {event.by}{again}"
        case r.Begun():
            return f"row {event.row} begins, launch {event.launch}"
        case r.Ruled():
            return f"row {event.row} is to stop at update {output.count(event.update)}: {event.why}"
        case r.RowEnded():
            value = "" if event.value is None else f", {event.value:.4g}"
            detail = f": {event.detail}" if event.detail else ""
            return f"row {event.row} {event.end} at {output.count(event.update)}{value}{detail}"
        case r.Reopened():
            return f"{look.many(len(event.rows), 'row')} opened again by {event.person}: {event.reason}"
        case r.Picked():
            return f"row {event.row} is picked, of {output.count(event.tried)} registered"
    return None
