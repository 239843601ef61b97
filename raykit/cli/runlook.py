"""One run as text: its facts, gates, attempts, checkpoints and pauses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from raykit.cli import look, output, setlines
from raykit.cli import money as show_money
from raykit.exactness import words_of

if TYPE_CHECKING:
    from raykit.read import PauseView, RunView
    from raykit.records import Commit


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
    for n, line in enumerate(look.wants(view, now, at)):
        yield from ("", line) if n == 0 else (line,)


def _pause_row(past: PauseView, now: float) -> tuple[str, ...]:
    resumed = past.resumed
    return (
        look.moment(past.at),
        look.NONE if past.resumed_at is None else look.moment(past.resumed_at),
        output.duration(max(0.0, (now if past.resumed_at is None else past.resumed_at) - past.at)),
        past.pause.scope,
        f"{past.pause.person}: {past.pause.reason}",
        look.NONE if resumed is None else f"{resumed.person}: {resumed.cleared}",
    )


def _run_facts(view: RunView, now: float) -> Iterator[tuple[str, str]]:
    yield "state", look.word(view) + (f": {view.detail}" if view.detail else "")
    detail = view.figures.health_detail
    yield "health", view.health + (f": {detail}" if detail else "")
    if view.exactness is not None:
        why = view.not_replayed if view.exactness.basis == "declared" else None
        yield "class", view.exactness.words + (f": {why}" if why else "")
    for fall in view.falls:
        yield "fell", f"to {fall.to} at update {output.count(fall.update)}: {fall.words}"
    for event in view.compared:
        if event.lowers is None:
            yield "compared", words_of(event)
    planned = f" of {output.count(view.updates)}" if view.updates else ""
    yield "update", f"{output.count(view.update)}{planned}"
    if view.ratio is not None:
        yield "ratio", f"{look.number(view.ratio)} (no skill 1.000)"
    development = view.figures.development
    if development is not None:
        at = f"at update {output.count(development.update)}"
        of = "" if development.count is None else f", over {look.of_rows(development.count)}"
        yield "development", f"{development.metric} {look.number(development.value)} {at}{of}"
    if view.qc is not None:
        yield "qc", f"{look.qc_cell(view.qc)}, {output.count(len(view.qc.backlog.unreviewed))} to review"
    for each in view.sets:
        yield "set", setlines.line(each)
    if view.superseded:
        were = "was" if view.superseded == 1 else "were"
        yield "cost", f"{look.many(view.superseded, 'update')} {were} trained and superseded"
    for said in view.fleet.harmless:
        yield "harmless", f"{', '.join(said.names)} ({said.person}: {said.reason})"
    if view.heard_at is not None:
        yield "last heard", f"{look.ago(view.heard_at, now)} ({look.moment(view.heard_at)})"
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
        end = look.NONE
        if ended is not None:
            end = f"{view.end_word(ended)} at {output.count(ended.update)}" + (
                f": {ended.detail}" if ended.detail else ""
            )
        yield (
            str(attempt.attempt),
            look.moment(attempt.started_at),
            attempt.place.host,
            f"update {output.count(resume.update)}" if resume else origin(view),
            attempt.exactness.words,
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
                item.exactness.words,
                commit.reason,
                look.number(scores.get(commit.update)),
                output.short(commit.sha256),
                ", ".join(notes),
            )
        )
    headers = ("UPDATE", "ATTEMPT", "SIZE", "CLASS", "REASON", "DEV", "MANIFEST", "")
    return output.table(headers, rows, right=("UPDATE", "SIZE"))
