"""What the QC commands print: text made from the examinations of a run. Pure; nothing is read here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raykit.cli import look, output
from raykit.read.qc import QcRead
from raykit.read.qc_runs import RunsRead

if TYPE_CHECKING:
    from raykit.qc.backlog import Standing
    from raykit.records import Receipt, Reviewed

MOST_METRICS = 5
"""Columns of figures that a table has, those with a threshold first."""
NOT_JUDGED = "not judged"
"""Of a checkpoint without a fault that no threshold of quality was held against: update 0."""
MOST_LISTED = 8


# --- one experiment -----------------------------------------------------------------------------------------


Looked = QcRead | RunsRead


def whole(found: RunsRead, columns: int | None, at: str) -> Iterator[str]:
    """Everything about the examinations of one run."""
    (read,) = found.reads
    yield from _head(read)
    yield from _table(read, columns).split("\n")
    if any(each.receipt is not None and each.receipt.unjudged for each in read.backlog.standings):
        yield "  * thresholds of quality do not apply before anything was learned"
    yield f"  {counted(read)}"
    yield from _failed(read)
    yield from notes(read)
    yield from _tries(read)
    yield from _way_on(read, at)


def search(read: RunsRead, columns: int | None, at: str) -> Iterator[str]:
    """Everything about the examinations of a search: one line for each trial that has begun."""
    yield from _head(read)
    rows = [
        (
            each.run,
            output.count(each.backlog.standings[-1].update) if each.backlog.standings else look.NONE,
            look.qc_cell(each),
            output.duration(each.oldest_s) if each.oldest_s is not None else look.NONE,
            output.count(len(each.backlog.unreviewed)),
        )
        for each in read.reads
    ]
    headers = ("TRIAL", "NEWEST", "QC", "OLDEST", "TO REVIEW")
    if rows:
        right = ("NEWEST", "TO REVIEW")
        yield from output.fitting(headers, rows, right=right, drop=("NEWEST",), columns=columns).split("\n")
    else:
        yield "  no trial has begun"
    yield f"  {counted(read)}"
    yield from _failed(read)
    yield from _tries(read)
    yield from _way_on(read, at)


def _head(read: Looked) -> Iterator[str]:
    suite = read.suite
    yield (
        f"{_name(read)} · QC by {suite.owner}, every {output.count(suite.every)} updates · "
        f"on failure: {read.on_failure} · suite {output.short(suite.digest)}"
    )
    yield f"  fails if  {_thresholds(read)}"


def _name(read: Looked) -> str:
    if isinstance(read, RunsRead) and not read.trials:
        (read,) = read.reads
    run = read.run if isinstance(read, QcRead) else "main"
    return read.experiment if run == "main" else f"{read.experiment}/{run}"


def _what(read: Looked, each: Standing, words: str) -> str:
    """Of a search, what is said of a checkpoint begins with its trial."""
    several = isinstance(read, RunsRead) and read.trials
    return f"{each.request.run}: {words}" if several else words


def _thresholds(read: Looked) -> str:
    fields = [
        f"{name} below {rule.collapse:g} of its spread at update 0"
        for name, rule in read.suite.fields.items()
    ]
    return "; ".join([*(f"{name} {rule}" for name, rule in read.suite.fail.items()), *fields])


def _table(read: QcRead, columns: int | None) -> str:
    metrics = _metrics(read)
    headers = (
        "UPDATE",
        "STATE",
        "TRIES",
        "WAITED",
        "VERDICT",
        *(name.upper() for name in metrics),
        "REVIEWED",
    )
    rows = [
        (
            output.count(each.update),
            each.status,
            output.count(len(each.said.claims)),
            output.duration(max(0.0, read.now - each.wanted.since)) if each.open else look.NONE,
            _verdict(each),
            *(_figure(each.receipt, name) for name in metrics),
            _reviewed(each),
        )
        for each in read.backlog.standings
    ]
    right = ("UPDATE", "TRIES", *(name.upper() for name in metrics))
    drop = tuple(name.upper() for name in reversed(metrics))
    return output.fitting(headers, rows, right=right, drop=drop, columns=columns)


def _metrics(read: QcRead) -> list[str]:
    """The figures that a table shows: what has a threshold, and then the ratio."""
    seen = {name for each in read.backlog.standings if each.receipt for name in each.receipt.metrics}
    wanted = dict.fromkeys([*read.suite.fail, "ratio", *read.suite.metrics])
    return [name for name in wanted if name in seen][:MOST_METRICS]


def _verdict(each: Standing) -> str:
    if each.said.forged:
        return "changed"
    if each.said.disputed:
        return "two answers"
    if each.receipt is None:
        return look.NONE
    verdict = f"{NOT_JUDGED} *" if each.unjudged else each.receipt.verdict
    return f"{verdict} !" if each.notes else verdict


def _figure(receipt: Receipt | None, name: str) -> str:
    score = None if receipt is None else receipt.metrics.get(name)
    return look.number(None if score is None else score.value)


def _reviewed(each: Standing) -> str:
    if each.review is None:
        return look.NONE
    event = each.review.event
    return f"{event.verdict} by {event.person}{', scripted' if event.scripted else ''}"


def counted(read: Looked) -> str:
    """`11 required: 9 passed, 1 failed, 1 pending (oldest waits 12 s); 10 not reviewed`."""
    counts = {**read.counts(), NOT_JUDGED: read.unjudged}
    counts["passed"] -= read.unjudged
    states = ("passed", "failed", NOT_JUDGED, "claimed", "pending", "missing", "retrying", "parked")
    parts = [f"{output.count(counts[state])} {state}" for state in states if counts[state]]
    waits = "" if read.oldest_s is None else f" (oldest waits {output.duration(read.oldest_s)})"
    unreviewed = f"; {output.count(counts['unreviewed'])} not reviewed" if counts["unreviewed"] else ""
    return f"{output.count(counts['required'])} required: {', '.join(parts) or 'none yet'}{waits}{unreviewed}"


def notes(read: Looked) -> Iterator[str]:
    """What stands beside the verdicts: nothing fails by it, and whoever reviews has to look."""
    from raykit.qc.backlog import noted

    found = noted(read.backlog)
    for words in found[:MOST_LISTED]:
        yield f"  look !    {output.clean(words)}"
    if len(found) > MOST_LISTED:
        yield f"  and {len(found) - MOST_LISTED} more (--json has all)"


def _failed(read: Looked) -> Iterator[str]:
    from raykit.qc.backlog import told

    failed = read.backlog.failed
    for each in failed[:MOST_LISTED]:
        words = told(each) if each.red else f"update {output.count(each.update)}: {each.why_not}"
        yield f"  failed    {_what(read, each, words)}"
    if len(failed) > MOST_LISTED:
        yield f"  and {len(failed) - MOST_LISTED} more (--json has all)"


def _tries(read: Looked) -> Iterator[str]:
    """Attempts that came to nothing, by class, and the newest of each open request."""
    failures = [failure for each in read.backlog.standings for failure in each.said.failures]
    if failures:
        classes = Counter(failure.kind for failure in failures)
        told = ", ".join(f"{count} {kind}" for kind, count in classes.most_common())
        yield f"  tries     {look.many(len(failures), 'attempt')} came to nothing: {told}"
    for each in read.backlog.open[:MOST_LISTED]:
        for failure in each.said.failures[-1:]:
            words = f"update {output.count(each.update)}, try {failure.n}: {failure.kind}: {failure.message}"
            yield f"    {_what(read, each, words)}"


def _way_on(read: Looked, at: str) -> Iterator[str]:
    from raykit.pauses import way_on as ends
    from raykit.qc.backlog import way_on

    if read.pause is not None:
        yield f"  paused    {read.pause.words}"
        yield f"  -> {ends(read.pause)}{at}"
        if read.pause.pause.scope == f"contract:{read.suite.digest}":
            yield "  or, if the recipe's own QC code was wrong and is mended:"
            yield f'  -> raykit qc relock PLAN --deviation "what you changed" --by NAME{at}'
        return
    command = way_on(read.backlog, _name(read))
    if command is not None:
        yield f"  -> {command}{at}"
    elif read.backlog.complete:
        yield "  complete: every required checkpoint is examined and reviewed"


# --- several ------------------------------------------------------------------------------------------------


def all_of_them(reads: Sequence[RunsRead], at: str) -> Iterator[str]:
    """One line for each experiment."""
    if not reads:
        yield "no experiment here has [qc] in its plan"
        return
    rows = [
        (
            _name(read),
            output.count(read.suite.every),
            look.qc_cell(read),
            output.duration(read.oldest_s) if read.oldest_s is not None else look.NONE,
            output.count(len(read.backlog.unreviewed)),
            read.suite.owner,
        )
        for read in reads
    ]
    headers = ("NAME", "EVERY", "QC", "OLDEST", "TO REVIEW", "OWNER")
    yield from output.table(headers, rows, right=("EVERY", "TO REVIEW")).split("\n")
    for read in reads:
        if not read.complete:
            yield f"  {_name(read)}: {counted(read)}"
            yield from _way_on(read, at)


# --- what an act has led to ---------------------------------------------------------------------------------


def after_run(read: RunsRead, why: str | None, at: str) -> Iterator[str]:
    """How far the backlog is after it was worked."""
    yield f"{_name(read)}: {counted(read)}"
    if why is not None:
        yield f"  stopped   {why}"
    yield from _failed(read)
    yield from _tries(read)
    yield from _way_on(read, at)


def retried(read: RunsRead, again: Sequence[Standing], asked: int | None, at: str) -> Iterator[str]:
    """What may be tried again, or why nothing has to be."""
    if again:
        updates = ", ".join(
            f"{output.count(each.update)} of {each.request.run}" if read.trials else output.count(each.update)
            for each in again
        )
        yield f"{_name(read)}: update {updates} may be tried again."
    elif asked is not None:
        standing = read.backlog.at(asked)
        state = "has its receipt" if standing is not None and standing.receipt else "is tried anyway"
        yield f"{_name(read)}: update {output.count(asked)} {state}; nothing was written."
    else:
        yield f"{_name(read)}: nothing is parked; nothing was written."
    if read.backlog.open:
        yield f"  -> raykit qc run {_name(read)}{at}"


def reviewed(read: RunsRead, event: Reviewed | None, at: str) -> Iterator[str]:
    """What was reviewed, and what is left."""
    if event is None:
        yield f"{_name(read)}: nothing new to review; nothing was written."
    else:
        label = ", scripted" if event.scripted else ""
        yield (
            f"{_name(read)}: {look.many(len(event.receipts), 'receipt')} reviewed as {event.verdict} "
            f"by {event.person}{label}."
        )
    yield f"  {counted(read)}"
    yield from _way_on(read, at)
