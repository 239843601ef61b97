"""What the reading commands print: text made from views, rows and reports. Pure; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from raykit.cli import money as show_money
from raykit.cli import output, setlines

if TYPE_CHECKING:
    from raykit.pauses import InForce
    from raykit.read import PauseView, RunView
    from raykit.read.qc import QcRead
    from raykit.read.qc_runs import RunsRead
    from raykit.read.searchview import SearchRead
    from raykit.records import Commit, EvaluationRow, MonitorRow, Row, Superseded
    from raykit.store.check import Report

BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
UNSKILLED = "\u2592"
"""Drawn where the ratio is above 1.0: worse than no skill."""
SPARK_WIDTH = 60
TABLE_ROWS = 12
LISTED = 20
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


def _status_row(view: RunView) -> tuple[str, ...]:
    figures, development = view.figures, view.figures.development
    progress = output.count(view.update) + (f"/{output.count(view.updates)}" if view.updates else "")
    left_s = (view.updates - view.update) * figures.update_s if view.updates and figures.update_s else None
    dev = NONE
    if development is not None:
        dev = f"{development.metric} {number(development.value)}{' best' if development.best else ''}"
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
        view.health,
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
        yield f"  {name} was cancelled by {view.fleet.cancelled.person}: {view.fleet.cancelled.reason}"
    elif paused is not None and not view.over:
        yield from _waits_for_people(view, paused, name, now, at)
    elif view.row is not None and view.state != "corrupt":
        yield from _trial_waits(view, name, when, why, at)
    else:
        yield from _waits(view, name, when, why, at)
    if view.health in ("nonfinite", "collapsed", "silent", "corrupt") and view.state != "corrupt":
        yield f"  {name}: {view.health}, {view.figures.health_detail}"
        yield f"  -> {_look_closer(view.health, name)}{at}"
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

    if read.pause is not None and read.pause.pause.scope.startswith("contract:"):
        yield f"  {short_name(view)}: its QC is {read.pause.words}"
        yield f"  -> {ends(read.pause)}{at}"
        return
    parked = any(each.status == "parked" for each in read.backlog.standings)
    left = parked or (view.holder is None and (read.backlog.open or read.backlog.unreviewed))
    command = way_on(read.backlog, short_name(view)) if left else None
    if command is not None:
        yield f"  {short_name(view)}: QC {qc_cell(read)}, {output.count(len(read.backlog.unreviewed))} to review"
        yield f"  -> {command}{at}"


def qc_cell(read: QcRead | RunsRead) -> str:
    """How far the examinations are, for one cell of a table: `5 ok · 1 fail · 1 open`."""
    counts = read.counts()
    waiting = counts["required"] - counts["passed"] - counts["failed"]
    parts = [
        f"{output.count(counts['passed'])} ok",
        *([f"{output.count(counts['failed'])} fail"] if counts["failed"] else []),
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
    if pause.cause in ("ceiling", "replan"):
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


# --- one run ------------------------------------------------------------------------------------------------


def run_lines(
    view: RunView, selected: Commit | None, scores: Mapping[int, float | None], now: float, at: str = ""
) -> Iterator[str]:
    """One run, whole."""
    yield f"{view.id}"
    yield output.facts(list(_run_facts(view, now)))
    if view.gates:
        yield ""
        rows = [
            (
                gate.gate,
                "passed" if gate.passed else "FAILED",
                gate.scope,
                output.duration(gate.took_s),
                gate.found,
            )
            for gate in view.gates
        ]
        yield output.table(("GATE", "", "ON", "TOOK", "FOUND"), rows)
    if view.attempts:
        yield ""
        yield output.table(("ATTEMPT", "STARTED", "ON", "FROM", "CLASS", "END"), list(_attempt_rows(view)))
    if view.commits:
        yield ""
        yield commits_table(view, selected, scores)
    if view.fleet.pauses:
        yield ""
        headers = ("PAUSED", "UNTIL", "FOR", "SCOPE", "WHY", "CLEARED")
        yield output.table(headers, [_pause_row(past, now) for past in view.fleet.pauses])
    if view.money is not None and view.row is None:
        yield ""
        money = show_money.budget_lines(view.money, updates=(view.update, view.updates), waiting=False)
        yield from map(output.clean, money)
    for n, line in enumerate(wants(view, now, at)):
        yield from ("", line) if n == 0 else (line,)


def _pause_row(past: PauseView, now: float) -> tuple[str, ...]:
    resumed = past.resumed
    return (
        moment(past.at),
        NONE if past.resumed_at is None else moment(past.resumed_at),
        output.duration(max(0.0, (now if past.resumed_at is None else past.resumed_at) - past.at)),
        past.pause.scope,
        f"{past.pause.person}: {past.pause.reason}",
        NONE if resumed is None else f"{resumed.person}: {resumed.cleared}",
    )


def _run_facts(view: RunView, now: float) -> Iterator[tuple[str, str]]:
    yield "state", word(view) + (f": {view.detail}" if view.detail else "")
    detail = view.figures.health_detail
    yield "health", view.health + (f": {detail}" if detail else "")
    planned = f" of {output.count(view.updates)}" if view.updates else ""
    yield "update", f"{output.count(view.update)}{planned}"
    if view.ratio is not None:
        yield "ratio", f"{number(view.ratio)} (no skill 1.000)"
    development = view.figures.development
    if development is not None:
        at = f"at update {output.count(development.update)}"
        yield "development", f"{development.metric} {number(development.value)} {at}"
    if view.qc is not None:
        yield "qc", f"{qc_cell(view.qc)}, {output.count(len(view.qc.backlog.unreviewed))} to review"
    for each in view.sets:
        yield "set", setlines.line(each)
    if view.superseded:
        were = "was" if view.superseded == 1 else "were"
        yield "cost", f"{many(view.superseded, 'update')} {were} trained and superseded"
    if view.heard_at is not None:
        yield "last heard", f"{ago(view.heard_at, now)} ({moment(view.heard_at)})"
    if view.lock is not None:
        yield "plan", f"{view.lock.name}, lock {output.short(view.lock.digest)}"
        yield "code", output.short(view.lock.code)
        yield "members", output.short(view.lock.data)


def origin(view: RunView) -> str:
    """What a first attempt started from."""
    from raykit.read.bases import trained_from

    base = None if view.lock is None else trained_from(view.lock)
    if base is None:
        return "the start"
    return f"{base.candidate} at {output.count(base.update)}"


def _attempt_rows(view: RunView) -> Iterator[tuple[str, ...]]:
    for attempt in view.attempts:
        resume, ended = attempt.resume, attempt.ended
        end = NONE
        if ended is not None:
            # The last one of a trial that has ended: nobody goes on with it.
            last = view.row is not None and view.over and attempt is view.attempts[-1]
            reason = "stopped" if last and ended.reason == "paused" else ended.reason
            end = f"{reason} at {output.count(ended.update)}" + (f": {ended.detail}" if ended.detail else "")
        yield (
            str(attempt.attempt),
            moment(attempt.started_at),
            attempt.place.host,
            f"update {output.count(resume.update)}" if resume else origin(view),
            resume.exactness if resume else "exact",
            end,
        )


def commits_table(
    view: RunView,
    selected: Commit | None,
    scores: Mapping[int, float | None],
    kept: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Every checkpoint, which one the plan's rule selects so far, and by manifest who keeps it."""
    rows = []
    for item in view.commits:
        commit = item.commit
        notes = [] if item.counts else ["superseded"]
        if commit == selected:
            notes = ["selected"]
        notes += (kept or {}).get(commit.sha256, ())
        rows.append(
            (
                output.count(commit.update),
                str(commit.attempt),
                output.size(commit.size_bytes),
                commit.exactness,
                commit.reason,
                number(scores.get(commit.update)),
                output.short(commit.sha256),
                ", ".join(notes),
            )
        )
    headers = ("UPDATE", "ATTEMPT", "SIZE", "CLASS", "REASON", "DEV", "MANIFEST", "")
    return output.table(headers, rows, right=("UPDATE", "SIZE"))


# --- history ------------------------------------------------------------------------------------------------


def some(count: int, most: int) -> list[int]:
    """At most `most` of the indices 0 to count - 1, the first and the last among them, evenly spread."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def train_table(rows: Sequence[Row]) -> str:
    """Training rows with the ratio of each term."""
    terms = list(dict.fromkeys(name for row in rows for name in row.terms))
    headers = ("UPDATE", "ATTEMPT", "LOSS", "RATIO", *terms, "GRAD", "LR")
    cells = [
        (
            output.count(row.update),
            str(row.attempt),
            number(row.loss, 5),
            number(row.ratio),
            *(number(row.terms[name].ratio) if name in row.terms else NONE for name in terms),
            number(row.grad_norm),
            " ".join(f"{rate:.3g}" for rate in row.lr),
        )
        for row in rows
    ]
    return output.table(headers, cells, right=headers[:-1])


def development_table(rows: Sequence[EvaluationRow]) -> str:
    """Evaluations of the development split."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    headers = ("UPDATE", "ATTEMPT", "ROWS", *metrics, "")
    cells = [
        (
            output.count(row.update),
            str(row.attempt),
            output.count(row.rows),
            *(number(row.metrics.get(name), 5) for name in metrics),
            "best" if row.best else "",
        )
        for row in rows
    ]
    return output.table(headers, cells, right=headers[:-1])


def monitor_table(rows: Sequence[MonitorRow]) -> str:
    """Fields in their own space."""
    headers = ("UPDATE", "FIELD", "SPACE", "LOW", "MEDIAN", "HIGH", "SPREAD", "AT FIRST", "")
    cells = [
        (
            output.count(row.update),
            name,
            stats.space,
            *(number(value) for value in (stats.low, stats.median, stats.high, stats.spread)),
            number(stats.reference_spread),
            "COLLAPSED" if stats.collapsed else "",
        )
        for row in rows
        for name, stats in row.fields.items()
    ]
    return output.table(headers, cells, right=("UPDATE", *headers[3:-1]))


def sparkline(ratios: Sequence[float | None], width: int = SPARK_WIDTH) -> str:
    """The trend of the ratio in means of neighbours: a full bar is 1.0, no skill; what is worse is hatched."""
    each = -(-len(ratios) // width) if ratios else 1
    return "".join(_bar(ratios[i : i + each]) for i in range(0, len(ratios), each))


def _bar(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return " "
    mean = sum(known) / len(known)
    return UNSKILLED if mean > 1.0 else BARS[min(len(BARS) - 1, int(mean * len(BARS)))]


def summary(rows: Sequence[Row], superseded: int) -> Iterator[str]:
    """The whole training history in a few lines."""
    ratios = [row.ratio for row in rows]
    known = [ratio for ratio in ratios if ratio is not None]
    attempts = len({row.attempt for row in rows})
    cost = f", {output.count(superseded)} superseded (kept as cost)" if superseded else ""
    yield f"  {many(len(rows), 'update')} without a gap, of {many(attempts, 'attempt')}{cost}"
    if known:
        yield f"  ratio  {number(known[0])} -> {number(known[-1])}, least {number(min(known))}; no skill is 1.000"
        yield f"  trend  {sparkline(ratios)}  a full bar is no skill"
    undefined = len(ratios) - len(known)
    if undefined:
        yield f"  {output.count(undefined)} updates have no ratio: not finite, or without a scale"
    coverage: dict[str, int] = {}
    for row in rows:
        for source, count in row.sources.items():
            coverage[source] = coverage.get(source, 0) + count
    shares = ", ".join(f"{source}: {output.count(count)}" for source, count in sorted(coverage.items()))
    yield f"  examples by source  {shares}"


# --- check --------------------------------------------------------------------------------------------------


def report_lines(report: Report) -> Iterator[str]:
    """What a check found."""
    counts = report.counts
    looked = f"{output.count(counts.get('objects', 0))} objects, {output.size(counts.get('bytes', 0))}"
    depth = (
        "every byte read" if report.read_data else "records read, data by size only (--read-data reads all)"
    )
    yield f"{report.url}: {looked}; {depth}"
    parts = ["experiments", "accounts", "runs", "entries", "segments", "rows", "commits"]
    parts += [part for part in ("candidates", "sets", "units") if counts.get(part)]
    yield "  " + ", ".join(f"{output.count(counts.get(part, 0))} {part}" for part in parts)
    for n, finding in enumerate(report.findings[:LISTED], start=1):
        yield f"{n:>2}  {finding.invariant}  {finding.found}"
        yield f"    at     {finding.key}"
        yield f"    rule   {finding.rule}"
    yield from _more(len(report.findings))
    orphans = "named by nothing, left by a writer that was killed; harmless"
    yield from _listed("orphan", orphans, report.orphans)
    stranded = "part of something that is damaged or gone, as said above: keep it until that is restored"
    yield from _listed("stranded object", stranded, report.stranded)
    yield from _listed("unknown file", "not raykit's", report.unknown)
    yield many(len(report.findings), "broken promise") if report.findings else "whole: no promise is broken"


def _listed(what: str, why: str, items: Sequence[tuple[str, int]]) -> Iterator[str]:
    if items:
        yield f"  {many(len(items), what)}: {why}"
        yield from (f"    {key}  {output.size(size_bytes)}" for key, size_bytes in items[:LISTED])
        yield from _more(len(items))


def _more(count: int) -> Iterator[str]:
    if count > LISTED:
        yield f"    and {output.count(count - LISTED)} more (--json lists all)"
