"""The ledger of an experiment as `raykit show` prints it below the run: source to comparison. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from raykit.budget.amounts import shown
from raykit.cli import look, output, runlook
from raykit.cli.dossier_facts import LISTED, UNKNOWN, Facts, came_to, made_of, unit_of
from raykit.read.view import ended_word

if TYPE_CHECKING:
    from raykit.read.dossier import Act, Charge, Dossier, Job, Revision
    from raykit.records import Unit

NONE = look.NONE
CHANGES = 6


def dossier_lines(dossier: Dossier) -> Iterator[str]:
    """The ledger of an experiment in compact sections; `--json` has all of it."""
    yield f"ledger of {dossier.experiment}, source to comparison"
    yield from _facts(made_of(dossier))
    yield from _table("LOCK LOCKED BY CONTRACT CODE MEMBERS ENVIRONMENT WHAT", _revision_rows(dossier))
    yield from _jobs(dossier)
    yield from _charges(dossier)
    yield from _table("WHEN WHO ACT WHAT", [_act_row(act, unit_of(dossier)) for act in dossier.acts])
    yield ""
    yield from _facts(came_to(dossier))
    yield ""
    yield "not known here, which does not show that it is nowhere"
    yield from (f"  {output.clean(what)}" for what in dossier.unknown)


def _facts(pairs: Facts) -> Iterator[str]:
    """One line for each thing that is said; a name that comes again is not repeated."""
    before = ""
    for name, text in pairs:
        yield f"  {'' if name == before else name:<11}  {output.clean(text)}".rstrip()
        before = name


def _table(
    headers: str, rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]], **how: Any
) -> Iterator[str]:
    found = list(rows)
    if found:
        yield ""
        yield output.table(headers.split(), found[-LISTED:], **how)
        if len(found) > LISTED:
            yield f"  and {output.count(len(found) - LISTED)} before them (--json lists all)"


# --- what was locked, what ran, what it cost, who said so ---------------------------------------------------


def _revision_rows(dossier: Dossier) -> Iterator[tuple[str, ...]]:
    for revision in dossier.frozen.revisions:
        locked = revision.locked
        digests = (locked.contract, locked.code, locked.data, locked.environment)
        yield (
            output.short(locked.plan),
            look.moment(revision.at),
            output.clean(revision.by),
            *(output.short(digest) for digest in digests),
            _what(revision),
        )


def _what(revision: Revision) -> str:
    seen = revision.locked.seen_update
    words = {
        "first": "first",
        "same plan": "the same plan",
        "amendment": "amendment, nothing seen",
        "deviation": f"deviation, update {seen:,} seen" if seen is not None else "deviation",
        "unknown": f"what was seen is {UNKNOWN}",
    }[revision.kind]
    changes = [f"{each.field}: {_value(each.was)} -> {_value(each.now)}" for each in revision.changes]
    more = f"; {len(changes) - CHANGES} more (--json)" if len(changes) > CHANGES else ""
    said = f" (said: {output.clean(revision.locked.deviation)})" if revision.locked.deviation else ""
    return f"{words}: {'; '.join(changes[:CHANGES])}{more}{said}" if changes else words


def _value(value: object) -> str:
    text = output.clean(NONE if value is None else str(value))
    return output.short(text) if len(text) == 64 else text[:40]


def _jobs(dossier: Dossier) -> Iterator[str]:
    """The newest launches, each with its attempts; of a search also which trial each is of."""
    found = list(_newest(dossier.jobs))
    if not found:
        return
    headers = ["LAUNCH", "RUN", "ATTEMPT", "STARTED", "HOST", "PID", "FROM", "END"]
    rows = [row for job in found for row in _job_rows(dossier, job)]
    yield ""
    yield output.table(*_with_runs(headers, rows, shown=dossier.of_search), right=("PID",))
    left = len(dossier.jobs) - len(found)
    if left:
        launches = f"{output.count(left)} launch{'' if left == 1 else 'es'}"
        yield f"  and {launches} before them (--json lists all)"


def _newest(jobs: Sequence[Job]) -> Sequence[Job]:
    """As many of the last launches as there are lines for: none is cut off from its attempts."""
    lines = 0
    for n, job in enumerate(reversed(jobs)):
        lines += 1 + len(job.attempts)
        if n and lines > LISTED:
            return jobs[len(jobs) - n :]
    return jobs


def _with_runs(
    headers: list[str], rows: Sequence[tuple[str, ...]], *, shown: bool
) -> tuple[list[str], list[tuple[str, ...]]]:
    """A table with its column of runs, or without it where all are of one run."""
    if shown:
        return headers, list(rows)
    at = headers.index("RUN")
    return headers[:at] + headers[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]


def _job_rows(dossier: Dossier, job: Job) -> Iterator[tuple[str, ...]]:
    start = "the start" if dossier.view is None else runlook.origin(dossier.view)
    place = job.place
    yield job.launch, job.run, "", look.moment(job.at), place.host, str(place.pid), "", _job_end(job)
    for attempt in job.attempts:
        came_from = start
        if attempt.resumed_from is not None:
            came_from = f"update {output.count(attempt.resumed_from)}, {attempt.exactness.words}"
        end, ended = NONE, attempt.ended
        if ended is not None:
            why = f": {output.clean(ended.detail)}" if ended.detail else ""
            word = ended_word(ended.reason, job.row_end, last=attempt is job.attempts[-1])
            end = f"{word} at {output.count(ended.update)}{why}"
        place = attempt.place
        yield (
            "",
            "",
            str(attempt.attempt),
            look.moment(attempt.at),
            place.host,
            str(place.pid),
            came_from,
            end,
        )


def _job_end(job: Job) -> str:
    if job.end is not None:
        return f"let go: {ended_word(job.end, job.row_end, last=True)}"
    return NONE if job.taken_over_by is None else f"never said; {job.taken_over_by} took over"


def _charges(dossier: Dossier) -> Iterator[str]:
    """What was reserved and has cost; of a search also for which trial."""
    headers = ["LEASE", "RUN", "LINE", "ATTEMPT", "LOCK", "WORST", "COST", "HELD", "END"]
    rows = list(_charge_rows(dossier.charges, unit_of(dossier)))
    names, cells = _with_runs(headers, rows, shown=dossier.of_search)
    yield from _table(" ".join(names), cells, right=("WORST", "COST", "HELD"))


def _charge_rows(charges: Sequence[Charge], unit: Unit) -> Iterator[tuple[str, ...]]:
    for charge in charges:
        end = charge.state
        if charge.reason is not None:
            end += f": {ended_word(charge.reason, charge.row_end, last=True)}"
        yield (
            charge.lease,
            charge.run or NONE,
            charge.line,
            NONE if charge.attempt is None else str(charge.attempt),
            NONE if charge.plan is None else output.short(charge.plan),
            shown(charge.worst, unit),
            UNKNOWN if charge.cost is None else shown(charge.cost, unit),
            NONE if charge.held_ms is None else output.duration(charge.held_ms / 1000),
            end + (f" ({output.clean(charge.how)})" if charge.how else ""),
        )


def _act_row(act: Act, unit: Unit) -> tuple[str, ...]:
    scripted = " (scripted)" if act.scripted else ""
    covers = "" if act.covers is None else f", up to {shown(act.covers, unit)}"
    still = {True: ", covers the plan as it is", False: ", no longer covers the plan", None: ""}[act.current]
    what = f"{output.clean(act.what)}{covers}{still}"
    return look.moment(act.at), f"{output.clean(act.person)}{scripted}", act.kind, what
