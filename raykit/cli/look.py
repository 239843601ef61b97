"""What the reading commands print of runs: shared words, and the table of all of them. Pure; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from raykit.cli import money as show_money
from raykit.cli import output, setlines

if TYPE_CHECKING:
    from raykit.pauses import InForce
    from raykit.read import RunView
    from raykit.read.qc import QcRead
    from raykit.read.qc_runs import RunsRead
    from raykit.read.search import SearchRead
    from raykit.records import Superseded

NONE = "-"


def short_name(view: RunView) -> str:
    """`experiment` for its main run, `experiment/run` for others."""
    return view.experiment if view.run == "main" else view.id


def number(value: float | None, digits: int = 3) -> str:
    """A figure with three decimals, or `-`."""
    return NONE if value is None else f"{value:.{digits}f}"


def ago(at: float | None, now: float) -> str:
    """`41 min ago`, in the way of `output.duration`."""
    return NONE if at is None else f"{output.duration(max(0.0, now - at))} ago"


def moment(at: float) -> str:
    """A time, in UTC so that it is the same for whoever looks."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def many(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{output.count(count)} {what}{'' if count == 1 else 's'}"


def span(gone: Superseded) -> str:
    """`updates 11 to 15`. At update 0 nothing is trained: what is there is what a launch looked at before."""
    first = max(1, gone.from_)
    if gone.to == 0:
        return "update 0, before any training"
    return f"update {first:,}" if first == gone.to else f"updates {first:,} to {gone.to:,}"


# --- status -------------------------------------------------------------------------------------------------

STATUS = ("NAME", "STATE", "UPDATE", "RATE", "ETA", "RATIO", "DEV", "QC", "SPENT", "HEALTH")
LEAST = ("DEV", "RATE", "RATIO", "ETA")
"""What a narrow terminal does without, the first first."""


def status_table(
    views: Sequence[RunView], columns: int | None = None, others: Sequence[Sequence[tuple[str, ...]]] = ()
) -> str:
    """One line per run, and the lines of `others` among them, by name."""
    blocks = [[_status_row(view)] for view in views] + [list(block) for block in others]
    rows = [row for block in sorted(blocks, key=lambda block: block[0][0]) for row in block]
    return output.fitting(STATUS, rows, right=("UPDATE", "RATIO", "SPENT"), drop=LEAST, columns=columns)


def word(view: RunView) -> str:
    """The one word for a run: what people want of it where that says more than its own state.

    One that has trained to its end is not complete before its QC is: it is called trained until then.
    """
    fleet = view.fleet
    if view.state == "completed" and not view.complete:
        return "trained"
    if view.over or view.state == "failed":
        return view.state
    if fleet.cancelled is not None and view.holder is None:
        return "cancelled"
    return view.state if fleet.state is None or fleet.state == "running" else fleet.state


def of_rows(count: tuple[int, int]) -> str:
    """`12 of 30 rows`."""
    return f"{output.count(count[0])} of {output.count(count[1])} rows"


def _status_row(view: RunView) -> tuple[str, ...]:
    figures, development = view.figures, view.figures.development
    progress = output.count(view.update) + (f"/{output.count(view.updates)}" if view.updates else "")
    left_s = (view.updates - view.update) * figures.update_s if view.updates and figures.update_s else None
    dev = NONE
    if development is not None:
        of = "" if development.count is None else f" of {output.count(development.count[0])} rows"
        best = " best" if development.best else ""
        dev = f"{development.metric} {number(development.value)}{of}{best}"
    return (
        short_name(view),
        word(view),
        progress,
        output.pace(figures.update_s).removesuffix("pdate") if figures.update_s else NONE,
        output.duration(left_s) if left_s and view.state == "running" else NONE,
        number(view.ratio),
        dev,
        NONE if view.qc is None else qc_cell(view.qc),
        show_money.spent(view.money),
        view.exactness.exactness if view.falls and view.exactness and view.health == "ok" else view.health,
    )


def wants(view: RunView, now: float, at: str = "") -> Iterator[str]:
    """Who or what a run waits for, and the command that goes on; nothing if it waits for nobody.

    `at` is what a command needs to find the store.
    """
    yield from map(output.clean, _wants(view, now, at))


def _wants(view: RunView, now: float, at: str) -> Iterator[str]:
    name, why = short_name(view), f": {view.detail}" if view.detail else ""
    when = ago(view.heard_at, now)
    paused = view.fleet.pause
    if view.fleet.cancelled is not None and not view.over:
        yield f"  {name} was {view.fleet.cancelled.words}"
    elif paused is not None and not view.over:
        yield from _waits_for_people(view, paused, name, now, at)
    elif view.row is not None and view.state != "corrupt":
        yield from _trial_waits(view, name, when, why, at)
    else:
        yield from _waits(view, name, when, why, at)
    if (
        view.health in ("nonfinite", "undefined", "collapsed", "silent", "corrupt")
        and view.state != "corrupt"
    ):
        yield f"  {name}: {view.health}, {view.figures.health_detail}"
        yield f"  -> {_look_closer(view.health, name)}{at}"
    for fall in view.falls[:1]:
        now_is = fall.to if view.exactness is None else view.exactness.words
        yield f"  {name}: {now_is} since update {output.count(fall.update)}: {fall.words}"
        yield f"  -> raykit show {name}{at}"
    declared = view.exactness is not None and view.exactness.basis == "declared"
    if declared and (view.not_replayed or "").startswith("not replay"):
        yield f"  {name}: exact (declared), {view.not_replayed}"
    if view.qc is not None:
        yield from _qc_waits(view, view.qc, at)
    if view.sets:
        yield from setlines.wants(view, at)
    if view.money is not None:
        yield from show_money.pending(view.money, at)


def _qc_waits(view: RunView, read: QcRead, at: str) -> Iterator[str]:
    """What the examinations wait for; while the run goes on, its own workers see to what is open."""
    from raykit.pauses import way_on as ends
    from raykit.qc.backlog import way_on

    held = read.pause
    if held is not None and (held.pause.scope.startswith("contract:") or (view.over and read.backlog.open)):
        yield f"  {short_name(view)}: its QC is {held.words}"
        yield f"  -> {ends(held)}{at}"
        return
    if held is not None and read.backlog.open:
        return  # the pause of the run holds its QC too, and what ends it is said there
    parked = any(each.status == "parked" for each in read.backlog.standings)
    left = parked or (view.holder is None and (read.backlog.open or read.backlog.unreviewed))
    command = way_on(read.backlog, short_name(view)) if left else None
    if command is not None:
        yield f"  {short_name(view)}: QC {qc_cell(read)}, {output.count(len(read.backlog.unreviewed))} to review"
        yield f"  -> {command}{at}"


def qc_cell(read: QcRead | RunsRead) -> str:
    """How far the examinations are, for one cell of a table: `5 ok · 1 fail · 1 not judged · 1 open`."""
    counts = read.counts()
    waiting = counts["required"] - counts["passed"] - counts["failed"]
    parts = [
        f"{output.count(counts['passed'] - read.unjudged)} ok",
        *([f"{output.count(counts['failed'])} fail"] if counts["failed"] else []),
        *([f"{output.count(read.unjudged)} not judged"] if read.unjudged else []),
        *([f"{output.count(waiting)} open"] if waiting else []),
    ]
    return f" {output.DOT} ".join(parts) if counts["required"] else NONE


def _waits(view: RunView, name: str, when: str, why: str, at: str) -> Iterator[str]:
    """What a run that nobody has paused waits for."""
    match view.state:
        case "corrupt":
            yield f"  {name} cannot be read{why}"
            yield f"  -> raykit check --read-data{at}"
        case "not started":
            yield f"  {name} is locked and has not begun"
            yield f"  -> raykit resume {name}{at}"
        case "paused":
            yield f"  {name} paused {when} at update {output.count(view.update)}{why}"
            yield f"  -> raykit resume {name}{at}"
        case "stopped":
            yield f"  {name} stopped: last heard {when}, at update {output.count(view.update)}{_committed(view)}"
            yield f"  -> raykit resume {name}{at}"
        case "failed":
            yield f"  {name} failed {when}{why}"
            repair = (
                "" if all(gate.passed for gate in view.gates) else ' --repair "what you changed" --by NAME'
            )
            yield f"  -> raykit logs {name}{at}      then      raykit resume {name}{repair}{at}"
        case "starting" | "running" | "stopping" if view.holder is not None:
            place = f"process {view.holder.pid} on {view.holder.host}"
            yield f"  {name} is held by {place}, last heard {when}{why}"


def _trial_waits(view: RunView, name: str, when: str, why: str, at: str) -> Iterator[str]:
    """What a trial waits for: it goes on with its search, and once it has an end nothing of it goes on."""
    if view.over:
        if view.state == "failed":
            yield f"  {name} failed {when}{why}"
            yield f"  -> raykit logs {name}{at}"
    elif view.holder is not None:
        yield f"  {name} is held by process {view.holder.pid} on {view.holder.host}, last heard {when}{why}"
    else:
        yield f"  {name} goes on with its search: last heard {when}, at update {output.count(view.update)}"
        yield f"  -> raykit resume {view.experiment}{at}"


def _waits_for_people(view: RunView, paused: InForce, name: str, now: float, at: str) -> Iterator[str]:
    """A pause is in force: who asked, whether the run is that far, and what ends it."""
    from raykit.pauses import MONEY_CAUSES
    from raykit.pauses import way_on as ends

    pause = paused.pause
    scope = pause.scope.removeprefix("experiment:")
    whole = "" if scope == view.experiment else f" ({scope})"
    by = f"by {pause.person}{whole}: {pause.reason}"
    match view.fleet.state:
        case "pausing":
            yield f"  {name} is pausing, asked {ago(paused.at, now)} {by}"
            return
        case "overdue":
            yield f"  {name} is overdue: asked to pause {ago(paused.at, now)} {by}"
            yield f"  -> raykit logs {name}{at}"
            return
    yield f"  {name} paused {ago(paused.at, now)}, at update {output.count(view.update)}, {by}"
    command = f"{ends(paused)}{at}"
    moved_at = None if view.money is None else view.money.moved_at
    if pause.cause in MONEY_CAUSES and (moved_at is None or moved_at < paused.at):
        yield f"  -> raykit budget replan {view.experiment}{at} --reason ... --by NAME      then      {command}"
        yield f"     why: raykit budget show {view.experiment}{at}"
        return
    yield f"  -> {command}"


def wide_pauses(
    pauses: Mapping[str, InForce], now: float, at: str, views: Sequence[RunView] = ()
) -> Iterator[str]:
    """Pauses that hold for more than one experiment: nothing in them starts, also what is not there yet.

    That of a suite, or of a synthetic set, is said with its run, where that is among `views`.
    """
    from raykit.pauses import way_on as ends

    suites = {f"contract:{view.qc.suite.digest}" for view in views if view.qc is not None}
    sets = {f"contract:{each.made.digest}" for view in views for each in view.sets if each.made is not None}
    for scope, found in pauses.items():
        if scope not in suites | sets:
            yield output.clean(
                f"  {scope} paused {ago(found.at, now)}, by {found.pause.person}: {found.pause.reason}"
            )
            yield f"  -> {ends(found)}{at}"


def _committed(view: RunView) -> str:
    commit = view.committed
    return f"; it goes on from update {output.count(commit.update)}" if commit else ""


def _look_closer(health: str, name: str) -> str:
    return {
        "nonfinite": f"raykit history {name} --last 20",
        "undefined": f"raykit history {name} --series development",
        "collapsed": f"raykit history {name} --series monitor",
        "silent": f"raykit logs {name}",
        "corrupt": "raykit check --read-data",
    }[health]


def status_foot(views: Sequence[RunView], url: str, searches: Sequence[SearchRead] = ()) -> str:
    """The line under the table."""
    live = sum(view.holder is not None for view in views) + sum(read.live for read in searches)
    purses = [*(view.money for view in views), *(read.money for read in searches)]
    leases = [lease for money in purses if money is not None for lease in money.leases]
    held = sum(lease.accelerators for lease in leases if lease.running and lease.rate)
    an_hour = sum(lease.accelerators * lease.rate for lease in leases if lease.running)
    machines = f", {many(held, 'accelerator')} held ({output.money(an_hour)}/h)" if held else ""
    counted = [many(len(views), "run")] if views or not searches else []
    if searches:
        counted.append(f"{len(searches):,} search{'' if len(searches) == 1 else 'es'}")
    return f"{', '.join(counted)}, {live} live{machines}. Store {url}. No Ray needed for this view."
