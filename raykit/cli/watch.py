"""`raykit watch`: one run live, read from the store alone. Nothing here can hurt a run: it only reads, and may pause.

Seven bands: the state; money; the ratio against no skill; QC; synthetic sets; attempts and pauses; the last events.
The store is asked once a second and only for what is new.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from raykit.cli import look, output, setlines
from raykit.cli import money as show_money
from raykit.cli.options import DEFAULT_ROOT, By, Root, Trial, at_root, person_of, run_named
from raykit.errors import InvalidInput, NotFoundError, RaykitError
from raykit.records import Segment

if TYPE_CHECKING:
    from rich.text import Text

    from raykit.history import Span
    from raykit.read import Root as ReadRoot
    from raykit.read import RunReader, RunView
    from raykit.read.money import Money
    from raykit.records import RunEntry
    from raykit.store.base import ObjectStore

EVERY_S = 1.0
WHOLE_EVERY_S = 5.0
"""While a run says nothing new, pauses and money are looked at so often."""
KEYS_EVERY_S = 0.1
EVENTS = 10
MOST_SEGMENTS = 128
"""So many segments are read for the whole curve, evenly spread; each of them once."""

FULL, KEPT_BACK, PART, EMPTY = "\u2588", "\u2592", "\u2593", "\u2591"
ENTER, ESCAPE, BACKSPACE, CTRL_C = ("\r", "\n"), "\x1b", ("\x7f", "\b"), "\x03"
LONGEST_REASON = 200


def watch(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="experiment, or experiment/run; the one that runs.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One look, and end.")] = False,
    trial: Trial = None,
    by: By = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """A run live: state, money, ratio, attempts and pauses, the last events. No Ray needed; a run is never stopped.

    Keys: p pauses it (and asks for the reason), l shows the last lines of rank 0's log, q leaves. Off a terminal:
    one look.

    Raises:
        NotFoundError: there is no such run.
        InvalidInput: several runs are there, and none was named.
        CorruptError: its log or its history cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    import raykit

    found = raykit.open(root)
    screen = _screen(found, run_named(found, name or _only(found), trial), by, at_root(root))
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        screen.refresh(time.time())
        output.print_lines(line for line in screen.lines(output.width() or 100))
        return
    _live(screen)


def _screen(found: ReadRoot, name: str, person: str | None, at: str) -> Screen:
    """The screen of a run, or of a search."""
    if "/" not in name and found.has_search(name):
        from raykit.cli.watchsearch import SearchScreen

        return SearchScreen(found, name, "", person=person, at=at)
    experiment, run = found.resolve(name)
    return Screen(found, experiment, run, person=person, at=at)


def _only(found: ReadRoot) -> str:
    """The run or search that is meant if nobody says so: the only one that is at work, or else the only one."""
    runs = [(look.short_name(view), view.holder is not None) for view in found.runs(trials=False)]
    views = [*runs, *((read.experiment, read.driven) for read in found.searches())]
    live = [name for name, at_work in views if at_work]
    for some in (live, [name for name, _ in views]):
        if len(some) == 1:
            return some[0]
    if not views:
        raise NotFoundError(
            f"there are no runs in {found.store.url}", field="RUN", remedy="raykit launch PLAN"
        )
    raise InvalidInput(
        f"there are {len(views)} runs, {len(live)} of them live",
        field="RUN",
        rule="one of " + ", ".join((live or [name for name, _ in views])[:10]),
    )


# --- what is read -------------------------------------------------------------------------------------------


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
class Screen:
    """What is on the screen, and the one line that a person may be typing."""

    found: ReadRoot
    experiment: str
    run: str
    person: str | None = None
    at: str = ""
    view: RunView | None = None
    seen_at: float = 0.0
    whole_at: float = 0.0
    """When pauses and money were looked at."""
    ratios: list[float | None] = field(default_factory=list)
    trouble: str | None = None
    """Why the newest look failed; what is shown is then the one before it."""
    typing: str | None = None
    """The reason of a pause, as far as it was typed."""
    said: str = ""
    show_log: bool = False
    rank_log: Sequence[str] = ()
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
            self.rank_log = self._last_lines()
        self.seen_at, self.trouble = now, None

    def look_now(self) -> None:
        """Let the next look come at once, and be a whole one."""
        self.seen_at = self.whole_at = 0.0

    def patiently(self, now: float) -> None:
        """Look again; a store that does not answer is said, and asked again the next time."""
        try:
            self.refresh(now)
        except RaykitError as error:
            self.trouble = error.message

    def _last_lines(self) -> Sequence[str]:
        from raykit.store import layout

        assert self.view is not None
        attempt = self.view.attempts[-1].attempt if self.view.attempts else 0
        key = layout.worker_log(self.experiment, self.run, attempt, 0)
        try:
            text = self.found.store.get(key).decode("utf-8", "replace")
        except NotFoundError:
            return (f"no log of attempt {attempt} yet",)
        return [output.clean(line) for line in text.splitlines()[-EVENTS:]]

    # --- keys -----------------------------------------------------------------------------------------------

    def press(self, key: str) -> bool:
        """Take one key; False if it leaves."""
        if key == CTRL_C:
            return False
        if self.typing is not None:
            self._type(key)
            return True
        self.said = ""
        match key.lower():
            case "q":
                return False
            case "p":
                self.typing = ""
            case "l":
                self.show_log = not self.show_log
                self.look_now()
        return True

    def _type(self, key: str) -> None:
        assert self.typing is not None
        if key == ESCAPE:
            self.typing, self.said = None, "not paused"
        elif key in ENTER:
            reason, self.typing = self.typing.strip(), None
            self.said = self._pause(reason) if reason else "not paused: a pause needs a reason"
            self.look_now()
        elif key in BACKSPACE:
            self.typing = self.typing[:-1]
        elif key.isprintable() and len(self.typing) < LONGEST_REASON:
            self.typing += key

    def _pause(self, reason: str) -> str:
        from raykit.store import people

        try:
            person = person_of(self.person, needed=False)
            scope = f"experiment:{self.experiment}"
            said = people.pause(self.found.store, scope, reason=reason, person=person, at=time.time())
        except RaykitError as error:
            return f"not paused: {error.message}"
        if said.new or said.holds is None:
            return f"pause requested by {person}"
        return f"already {said.holds.words}"

    # --- bands ----------------------------------------------------------------------------------------------

    def lines(self, columns: int) -> Iterator[str]:
        """The bands, as text that fits into `columns`."""
        view, now = self.view, self.seen_at or time.time()
        if view is None:
            yield output.clean(f"{self.experiment}: {self.trouble or 'nothing read yet'}")
            return
        bands = [
            state_band(view, now),
            money_band(view.money, columns),
            learning_band(self.ratios, view, columns),
            qc_band(view, columns),
            setlines.band(view, columns),
        ]
        bands += [timeline_band(view, now)]
        entries = self._reader.log.entries if self._reader is not None else []
        bands += [list(self.rank_log) if self.show_log else events_band(entries)]
        for n, band in enumerate(bands):
            if n and band:
                yield ""
            yield from (cut(output.clean(line), columns) for line in band)
        notes = [*look.wants(view, now, self.at)] if view.holder is None or view.health != "ok" else []
        if notes:
            yield ""
        for note in notes:
            whole = note.startswith("  -> ")
            yield from [note] if whole else output.wrapped(note.strip(), columns)

    def foot(self) -> str:
        """The last line: what is being typed, what was said, or the keys."""
        if self.typing is not None:
            return f"pause, because: {self.typing}_   (Enter pauses, Esc leaves it)"
        keys = f"p pause   l {'events' if self.show_log else 'log of rank 0'}   q leave (the run goes on)"
        note = self.said or (f"the store: {self.trouble}" if self.trouble else "")
        return output.clean(f"{keys}   {note}").rstrip()


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


def cut(line: str, columns: int) -> str:
    """A line as far as it fits."""
    return line if len(line) <= columns else line[: columns - 1] + "\u2026"


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
    if figures.development is not None:
        facts.append(f"{figures.development.metric} {look.number(figures.development.value)} (development)")
    dot = f" {output.DOT} "
    return [dot.join(parts), f"  {dot.join(facts)}"]


def money_band(money: Money | None, columns: int) -> list[str]:
    """Spent, reserved, kept and free of the ceiling, as one bar."""
    if money is None:
        return []
    if not money.billed:
        return ["  MONEY  not billed"]
    kept = sum(max(0, line.remaining) for line in money.lines if line.purpose in ("confirmation", "recovery"))
    free = max(0, money.remaining - kept)
    parts = [(money.actual, FULL), (money.reserved, PART), (kept, KEPT_BACK), (free, EMPTY)]
    ceiling = show_money.limit(money.ceiling, money.unit)
    width = max(10, min(50, columns - len(ceiling) - 12))
    names = ("spent", "reserved", "kept", "free")
    legend = "   ".join(
        f"{mark} {name} {output.money(amount, money.unit)}"
        for (amount, mark), name in zip(parts, names, strict=True)
    )
    return [f"  MONEY  {_bar(parts, width)}  {ceiling}", f"         {legend}"]


def _bar(parts: Sequence[tuple[int, str]], width: int) -> str:
    """Shares of a whole in characters; what is there at all has one."""
    whole = sum(amount for amount, _ in parts) or 1
    cells = [max(1, round(width * amount / whole)) if amount else 0 for amount, _ in parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    return "".join(mark * count for (_, mark), count in zip(parts, cells, strict=True))


def learning_band(ratios: Sequence[float | None], view: RunView, columns: int) -> list[str]:
    """The ratio of the main term: a full bar is 1.0, no skill."""
    if not ratios:
        return []
    width = max(10, min(look.SPARK_WIDTH, columns - 12))
    now = f"ratio {look.number(view.ratio)} now; a full bar is 1.000, no skill"
    return [f"  RATIO  {look.sparkline(ratios, width)}", f"         {now}"]


def timeline_band(view: RunView, now: float) -> list[str]:
    """Attempts and pauses in the order in which they began; of each, from when until when."""
    marks: list[tuple[float, str]] = []
    for attempt in view.attempts:
        end = attempt.ended
        came = (
            f"to {output.count(end.update)}, {end.reason}"
            if end is not None
            else "and goes on"
            if view.holder is not None
            else "and no end is known"
        )
        start = (
            f"from {output.count(attempt.resume.update)} ({attempt.resume.exactness})"
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


def events_band(entries: Sequence[RunEntry]) -> list[str]:
    """The last events of the log; rows that follow rows are one of them."""
    lines: list[str] = []
    rows: tuple[float, int, int] | None = None
    for entry in reversed(entries):
        for event in reversed(entry.events):
            if isinstance(event, Segment) and event.series == "train":
                at, _, last = rows or (entry.at, 0, event.last)
                rows = (at, event.first, last)
                continue
            if (text := _event(event)) is not None:
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


def _event(event: object) -> str | None:
    from raykit import records as r

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
        case r.Superseded():
            return f"{look.span(event)} superseded: {event.why}"
        case r.StopRequested():
            return f"asked to stop: {event.why}"
        case r.AttemptEnded():
            detail = f": {event.detail}" if event.detail else ""
            return f"attempt {event.attempt} {event.reason} at {output.count(event.update)}{detail}"
        case r.Released():
            return f"launch {event.launch} let go: {event.reason}"
    return None


# --- the terminal -------------------------------------------------------------------------------------------


def _live(screen: Screen) -> None:
    from rich.live import Live

    console = output.console()
    with (
        suppress(KeyboardInterrupt),
        _keys() as key,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        due = 0.0
        while True:
            if time.monotonic() >= due or screen.seen_at == 0.0:
                screen.patiently(time.time())
                due = time.monotonic() + EVERY_S
            live.update(_text(screen, console.width, console.height), refresh=True)
            pressed = key(max(KEYS_EVERY_S, due - time.monotonic()))
            if not all(screen.press(each) for each in pressed):
                return


def _text(screen: Screen, columns: int, height: int) -> Text:
    from rich.text import Text

    lines = [*screen.lines(columns)][: max(1, height - 2)]
    text = Text("\n".join([*lines, "", cut(screen.foot(), columns)]), no_wrap=True, overflow="ellipsis")
    text.stylize("bold", 0, len(lines[0]))
    return text


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Keys as they are pressed, without Enter and without being shown; the terminal is left as it was."""
    import termios
    import tty

    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def read(wait_s: float) -> str:
        ready, _, _ = select.select([stdin], [], [], wait_s)
        return os.read(stdin, 1024).decode("utf-8", "ignore") if ready else ""

    try:
        tty.setcbreak(stdin)
        yield read
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
