"""`raykit watch` of a run: state, money, ratio, QC, synthetic sets, attempts and pauses, the last events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raykit.cli import historylook, look, output, setlines
from raykit.cli.screen import EVENTS, Screen, last_lines, money_band
from raykit.records import Segment

if TYPE_CHECKING:
    from raykit.history import Span
    from raykit.read import RunReader, RunView
    from raykit.records import RunEntry
    from raykit.store.base import ObjectStore

WHOLE_EVERY_S = 5.0
"""While a run says nothing new, pauses and money are looked at so often."""
MOST_SEGMENTS = 128
"""So many segments are read for the whole curve, evenly spread; each of them once."""


@dataclass(slots=True)
class Curve:
    """The ratio over the whole run, from a bounded number of its segments, each read once."""

    store: ObjectStore
    means: dict[str, float | None] = field(default_factory=dict)

    def points(self, spans: Sequence[Span]) -> list[float | None]:
        """The mean ratio of evenly spread segments, in the order of updates; the newest is among them.

        Raises:
            CorruptError: a segment is missing or changed.
            StoreUnavailableError: the store did not answer.
        """
        stride = 1
        while len(spans) > MOST_SEGMENTS * stride:
            stride *= 2  # what was read before is read again by no one
        chosen = [*spans[::stride], *(spans[-1:] if (len(spans) - 1) % stride else [])]
        return [self._mean(span) for span in chosen]

    def _mean(self, span: Span) -> float | None:
        from raykit.records import Row
        from raykit.store.segments import read_segment

        key = f"{span.segment.key} {span.last}"
        if key not in self.means:
            rows = read_segment(self.store, span.segment)
            ratios = [row.ratio for row in rows if isinstance(row, Row) and row.update <= span.last]
            known = [ratio for ratio in ratios if ratio is not None]
            self.means[key] = sum(known) / len(known) if known else None
        return self.means[key]


@dataclass(slots=True)
class RunScreen(Screen):
    """What is on the screen of a run."""

    run: str = "main"
    view: RunView | None = None
    whole_at: float = 0.0
    """When pauses and money were looked at."""
    ratios: list[float | None] = field(default_factory=list)
    _reader: RunReader | None = None
    _curve: Curve | None = None

    def refresh(self, now: float) -> None:
        """Look again.

        Raises:
            CorruptError: the run cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        from raykit import history

        if self._reader is None or self._curve is None:
            self._reader = self.found.reader(f"{self.experiment}/{self.run}")
            self._curve = Curve(self.found.store)
        new = self._reader.log.refresh()
        if new or self.view is None or now - self.whole_at >= WHOLE_EVERY_S:
            self.view, self.whole_at = self._reader.look(), now
        if new:
            self.ratios = self._curve.points(history.lineage(self._reader.log.state.events, "train"))
        if self.show_log:
            self.rank_log = last_lines(self.found, self.experiment, self.run)
        self.seen_at, self.trouble = now, None

    def look_now(self) -> None:
        """Let the next look come at once, and be a whole one."""
        self.seen_at = self.whole_at = 0.0

    def bands(self, columns: int, now: float) -> Iterator[Sequence[str]]:
        """What is shown, group by group; nothing before the first look."""
        view = self.view
        if view is None:
            return
        yield state_band(view, now)
        yield money_band(view.money, columns)
        yield learning_band(self.ratios, view, columns)
        yield qc_band(view, columns)
        yield setlines.band(view, columns)
        yield timeline_band(view, now)
        entries = self._reader.log.entries if self._reader is not None else []
        yield self.rank_log if self.show_log else events_band(entries, view)

    def wants(self, now: float) -> Iterator[str]:
        """What somebody has to do; nothing while it is at work and well."""
        if self.view is not None and (self.view.holder is None or self.view.health != "ok"):
            yield from look.wants(self.view, now, self.at)


# --- bands --------------------------------------------------------------------------------------------------


def state_band(view: RunView, now: float) -> list[str]:
    """Who it is, how it is, how far it is."""
    parts = [look.short_name(view), look.word(view).upper(), f"health {view.health}"]
    if view.heard_at is not None:
        parts.append(f"heard {look.ago(view.heard_at, now)}")
    progress = f"{output.count(view.update)}" + (f"/{output.count(view.updates)}" if view.updates else "")
    figures = view.figures
    facts = [f"update {progress}"]
    if figures.update_s:
        facts.append(output.pace(figures.update_s))
        if view.updates and view.state == "running":
            facts.append(f"{output.duration((view.updates - view.update) * figures.update_s)} left")
    development = figures.development
    if development is not None:
        value = f"{development.metric} {look.number(development.value)}"
        facts.append(f"{value} (development, @{output.count(development.update)})")
    dot = f" {output.DOT} "
    return [dot.join(parts), f"  {dot.join(facts)}"]


def learning_band(ratios: Sequence[float | None], view: RunView, columns: int) -> list[str]:
    """The ratio of the main term: a full bar is 1.0, no skill."""
    if not ratios:
        return []
    width = max(10, min(historylook.SPARK_WIDTH, columns - 12))
    now = f"ratio {look.number(view.ratio)} now; a full bar is 1.000, no skill"
    return [f"  RATIO  {historylook.sparkline(ratios, width)}", f"         {now}"]


QC_SIGNS = {
    "missing": "\u00b7",
    "pending": "\u00b7",
    "claimed": "\u25cc",
    "retrying": "\u25cc",
    "parked": "!",
}
"""How an examination without a receipt is drawn; one with a receipt passed or failed."""
PASSED, FAILED = "\u25a0", "\u2717"


def qc_band(view: RunView, columns: int) -> list[str]:
    """One sign for each required checkpoint: passed, failed, under way, waiting, parked."""
    read = view.qc
    if read is None or not read.backlog.standings:
        return []
    signs = [
        QC_SIGNS[each.status] if each.receipt is None else FAILED if each.red else PASSED
        for each in read.backlog.standings
    ]
    last = read.backlog.standings[-1].update
    counts = read.counts()
    words = f"{look.qc_cell(read)}, {output.count(counts['unreviewed'])} to review"
    return [
        f"QC  0 {' '.join(signs[-max(1, columns // 2 - 20) :])} {output.count(last)}   {words}",
        f"    {PASSED} passed  {FAILED} failed  \u25cc under way  \u00b7 waiting  ! parked",
    ]


def timeline_band(view: RunView, now: float) -> list[str]:
    """Attempts and pauses in the order in which they began; of each, from when until when."""
    marks: list[tuple[float, str]] = []
    for attempt in view.attempts:
        end = attempt.ended
        came = (
            f"to {output.count(end.update)}, {view.end_word(end)}"
            if end is not None
            else "and goes on"
            if view.holder is not None
            else "and no end is known"
        )
        start = (
            f"from {output.count(attempt.resume.update)}, {attempt.exactness.words}"
            if attempt.resume
            else "from 0"
        )
        marks.append((attempt.started_at, f"attempt {attempt.attempt}  {start} {came}"))
    for past in view.fleet.pauses:
        length = output.duration((past.resumed_at or now) - past.at)
        until = f"for {length}" if past.resumed_at is not None else f"since {length}"
        marks.append((past.at, f"pause {until}: {past.pause.person}: {past.pause.reason}"))
    marks.sort()
    shown = marks[-5:]
    before = [f"  {len(marks) - len(shown)} attempts and pauses before"] if len(marks) > len(shown) else []
    return before + [f"  {time.strftime('%m-%d %H:%M', time.localtime(at))}  {text}" for at, text in shown]


def events_band(entries: Sequence[RunEntry], view: RunView) -> list[str]:
    """The last events of the log; rows that follow rows are one of them."""
    lines: list[str] = []
    rows: tuple[float, int, int] | None = None
    for entry in reversed(entries):
        for event in reversed(entry.events):
            if isinstance(event, Segment) and event.series == "train":
                at, _, last = rows or (entry.at, 0, event.last)
                rows = (at, event.first, last)
                continue
            if (text := _event(event, view)) is not None:
                lines += [*_rows_line(rows), f"  {output.clock(entry.at)}  {text}"]
                rows = None
        if len(lines) >= EVENTS:
            break
    return [*lines, *_rows_line(rows)][:EVENTS][::-1]


def _rows_line(rows: tuple[float, int, int] | None) -> list[str]:
    if rows is None:
        return []
    at, first, last = rows
    return [f"  {output.clock(at)}  rows {output.count(first)} to {output.count(last)}"]


def _event(event: object, view: RunView) -> str | None:
    from raykit import records as r
    from raykit.exactness import words_of
    from raykit.read.view import ended_word

    match event:
        case r.Launched():
            return f"launch {event.launch} on {event.place.host}, process {event.place.pid}"
        case r.AttemptStarted():
            return f"attempt {event.attempt} starts, {look.many(event.world_size, 'worker')}"
        case r.GateResult():
            return f"gate {event.gate} {'passed' if event.passed else 'FAILED'}: {event.found}"
        case r.Commit():
            return (
                f"checkpoint {output.count(event.update)} ({event.reason}, {output.size(event.size_bytes)})"
            )
        case r.Compared():
            return words_of(event)
        case r.Unreplayed():
            return f"not replayed: {event.why}"
        case r.Superseded():
            return f"{look.span(event)} superseded: {event.why}"
        case r.StopRequested():
            return f"asked to stop: {event.why}"
        case r.AttemptEnded():
            detail = f": {event.detail}" if event.detail else ""
            return f"attempt {event.attempt} {view.end_word(event)} at {output.count(event.update)}{detail}"
        case r.Released():
            reason = ended_word(event.reason, view.row_end, last=event.launch == view.launch)
            return f"launch {event.launch} let go: {reason}"
    return None
