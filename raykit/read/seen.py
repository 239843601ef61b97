"""From the log of a run to the view of it: attempts, checkpoints, figures, health, and what people want of it.

Pure, but for the last rows that health and ratio are read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Literal

from raykit import exactness
from raykit.errors import CorruptError
from raykit.pauses import OVERDUE_S, Acts, FleetState, InForce, in_force, scopes_of
from raykit.plan import Lock
from raykit.read.rows import RowTable
from raykit.read.view import (
    LIVE,
    AttemptView,
    CommitView,
    Development,
    Figures,
    FleetView,
    Health,
    PauseView,
    RunView,
    State,
)
from raykit.reconcile import RunState
from raykit.records import (
    AttemptStarted,
    Commit,
    EvaluationRow,
    ExperimentEntry,
    FleetEntry,
    Harmless,
    MonitorRow,
    Paused,
    Resumed,
    Row,
    RunEntry,
    Segment,
)
from raykit.replays import why_not_replayed
from raykit.store.base import ObjectStore

RECENT_ROWS = 8
LEAST_SKIPPED = 4
"""Of the newest rows: so many that are all skipped are no scaler that looks for its scale any more."""
QUIET_UPDATES = 10
"""A running attempt that is silent for so many of its own updates, and for a lease, is called silent."""


def view_run(
    store: ObjectStore,
    experiment: str,
    run: str,
    entries: Sequence[RunEntry],
    found: RunState,
    *,
    lock: Lock | None,
    now: float,
    alive: bool | None,
) -> RunView:
    """A run from the entries of its log and the state they lead to.

    `alive` says whether the process that has the run is, if that can be seen.

    Raises:
        CorruptError: the history has a gap or an overlap.
        StoreUnavailableError: the store did not answer.
    """
    state = state_of(found, now=now, alive=alive)
    return RunView(
        experiment=experiment,
        run=run,
        state=state,
        detail=_detail(found),
        holder=found.launched.place if found.launched and state in LIVE else None,
        launch=found.launched.launch if found.launched else None,
        workers=found.attempt.world_size if found.attempt else 0,
        update=found.recorded(),
        updates=lock.updates if lock else None,
        figures=_figures(store, found, entries, lock, quiet_s=_quiet_s(found, entries, state, now)),
        heard_at=found.heard_at if entries else None,
        attempts=_attempts(entries, found),
        commits=_commits(entries, found),
        gates=tuple(found.gates.values()),
        compared=found.compared,
        superseded=RowTable(store, found.events, "train", Row).superseded,
        lock=lock,
    )


def classed(view: RunView, found: RunState, harmless: Set[str]) -> RunView:
    """The same, with the class of the run, of its attempts and its checkpoints; what is `harmless` lowers nothing."""
    harmless = harmless | set(_harmless(view.lock))
    starts = {event.attempt: event for event in found.attempts}
    return replace(
        view,
        exactness=exactness.of_run(found, harmless) if found.attempts else None,
        falls=exactness.falls(found, harmless),
        not_replayed=_not_replayed(view.lock, found, harmless),
        attempts=[
            replace(each, exactness=exactness.of_attempt(found, starts[each.attempt], harmless))
            for each in view.attempts
        ],
        commits=[
            replace(each, exactness=exactness.of_commit(found, each.commit, harmless))
            for each in view.commits
        ],
    )


def _harmless(lock: Lock | None) -> Sequence[str]:
    """What the plan says does not matter."""
    found: Sequence[str] = _run_of(lock).get("harmless", ())
    return found


def _not_replayed(lock: Lock | None, found: RunState, harmless: Set[str]) -> str | None:
    """Why no other process has trained a part of the run again."""
    run = _run_of(lock)
    asked, needed = run.get("replay", "never"), run.get("resume", "exact")
    return why_not_replayed(found, asked=asked, needed=needed, harmless=harmless)


def _run_of(lock: Lock | None) -> Mapping[str, Any]:
    """The table `[run]` of a lock."""
    run = lock.settings.get("run") if lock else None
    return run if isinstance(run, Mapping) else {}


def state_of(found: RunState, *, now: float, alive: bool | None) -> State:
    """The one word for what the log says, and for whether its owner is still there."""
    if found.completed:
        return "completed"
    if found.launched is None:
        return "not started"
    if found.released is not None:
        return found.released if found.released in ("paused", "failed") else "stopped"
    if alive is None:
        alive = now - found.heard_at < found.launched.lease_s
    if not alive:
        return "stopped"
    if found.attempt is None or found.attempt.launch != found.launched.launch:
        return "starting"
    return "stopping" if found.stop is not None or found.ended is not None else "running"


def _detail(found: RunState) -> str | None:
    if found.ended is not None and found.ended.detail:
        return found.ended.detail
    failed = next((gate for gate in found.gates.values() if not gate.passed), None)
    if failed is not None:
        return f"gate {failed.gate}: {failed.found}"
    return found.stop.why if found.stop is not None else None


def _attempts(entries: Sequence[RunEntry], found: RunState) -> tuple[AttemptView, ...]:
    return tuple(
        AttemptView(
            attempt=event.attempt,
            launch=event.launch,
            place=event.place,
            started_at=entry.at,
            ended=found.ends.get(event.attempt),
            resume=event.resume,
        )
        for entry in entries
        for event in entry.events
        if isinstance(event, AttemptStarted)
    )


def _commits(entries: Sequence[RunEntry], found: RunState) -> tuple[CommitView, ...]:
    counting = {id(commit) for commit in found.commits}
    return tuple(
        CommitView(commit=event, at=entry.at, counts=id(event) in counting)
        for entry in entries
        for event in entry.events
        if isinstance(event, Commit)
    )


# --- what people want of it ---------------------------------------------------------------------------------


def fleet_of(
    view: RunView, acts: Acts, entries: Sequence[ExperimentEntry | FleetEntry], now: float
) -> FleetView:
    """What people want of a run: `acts` is what all `entries` of its experiment and of the fleet come to."""
    scopes = scopes_of(view.experiment, view.role, view.lock.contract if view.lock else None)
    pause = in_force(acts, scopes)
    return FleetView(
        state=_fleet_state(view, acts, pause, now),
        pause=pause,
        cancelled=acts.cancelled,
        pauses=tuple(_pauses(entries, scopes)),
        harmless=tuple(event for entry in entries for event in entry.events if isinstance(event, Harmless)),
    )


def patience_s(view: RunView) -> float:
    """How long after a pause a run that has not reached its boundary is overdue."""
    return max(OVERDUE_S, QUIET_UPDATES * (view.figures.update_s or 0.0))


def _fleet_state(view: RunView, acts: Acts, pause: InForce | None, now: float) -> FleetState | None:
    if view.over:
        return None
    if pause is None:
        return "resuming" if _resuming(view, acts) else "running" if view.state in LIVE else None
    if view.state not in LIVE:
        return "paused"
    return "overdue" if now - pause.at > patience_s(view) else "pausing"


def _resuming(view: RunView, acts: Acts) -> bool:
    """Has a launch taken the run again after a resume, and does nothing train yet?"""
    if view.state != "starting" or acts.resumed_at is None or not view.attempts:
        return False
    return acts.resumed_at > view.attempts[-1].started_at


def _pauses(entries: Sequence[ExperimentEntry | FleetEntry], scopes: Sequence[str]) -> Sequence[PauseView]:
    past: list[PauseView] = []
    open_: dict[str, int] = {}
    for entry in sorted(entries, key=lambda entry: entry.at):
        for event in entry.events:
            if isinstance(event, Paused) and event.scope in scopes and event.scope not in open_:
                open_[event.scope] = len(past)
                past.append(PauseView(pause=event, at=entry.at))
            elif isinstance(event, Resumed) and event.scope in open_:
                n = open_.pop(event.scope)
                past[n] = replace(past[n], resumed=event, resumed_at=entry.at)
    return past


# --- figures ------------------------------------------------------------------------------------------------


def _quiet_s(found: RunState, entries: Sequence[RunEntry], state: State, now: float) -> float | None:
    """For how long a live run has been quiet; None if it is not live, or nothing can be said."""
    if state not in LIVE or found.launched is None:
        return None
    if now - found.heard_at >= found.launched.lease_s:
        return now - found.heard_at
    if state != "running" or found.attempt is None:
        return None
    # Its launch still speaks; do its workers? Before the first rows nobody knows how long they may take.
    number = found.attempt.attempt
    spoke = [entry.at for entry in entries if any(_by_worker(event, number) for event in entry.events)]
    trained = any(
        isinstance(e, Segment) and e.series == "train" and e.attempt == number for e in found.events
    )
    return now - spoke[-1] if spoke and trained else None


def _by_worker(event: object, attempt: int) -> bool:
    return isinstance(event, Segment | Commit) and event.attempt == attempt


def _figures(
    store: ObjectStore,
    found: RunState,
    entries: Sequence[RunEntry],
    lock: Lock | None,
    *,
    quiet_s: float | None,
) -> Figures:
    scored = RowTable(store, found.events, "development", EvaluationRow)
    try:
        rows = RowTable(store, found.events, "train", Row).tail(RECENT_ROWS)
        evaluations = scored.tail(1)
        development = _development(evaluations, scored, lock)
        monitors = RowTable(store, found.events, "monitor", MonitorRow).tail(1)
    except CorruptError as error:
        return Figures(health="corrupt", health_detail=error.message)
    update_s = _update_s(rows)
    health, detail = _health(rows, monitors, found.commits)
    if health == "ok" and development is not None and development.value is None:
        says = f"{development.metric} has no value at update {development.update:,}"
        health, detail = "undefined", f"{says}: nothing can be selected by it"
    if quiet_s is not None and found.launched is not None:
        patience_s = max(found.launched.lease_s, QUIET_UPDATES * (update_s or 0.0))
        if quiet_s >= patience_s and health in ("ok", "unknown"):
            health, detail = "silent", f"for {quiet_s:.0f} s"
    return Figures(
        ratio=rows[-1].ratio if rows else None,
        update_s=update_s,
        development=development,
        health=health,
        health_detail=detail,
    )


def _health(
    rows: Sequence[Row], monitors: Sequence[MonitorRow], commits: Sequence[Commit]
) -> tuple[Health, str | None]:
    broken = _broken(commits)
    if broken is not None:
        return "nonfinite", broken
    for row in reversed(rows):
        # A scaler that skips a step has seen an infinite gradient and has dealt with it.
        if row.nonfinite and not row.skipped:
            return "nonfinite", f"{', '.join(row.nonfinite)} at update {row.update:,}"
    if len(rows) >= LEAST_SKIPPED and all(row.skipped for row in rows):
        return "nonfinite", f"the steps of updates {rows[0].update:,} to {rows[-1].update:,} were all skipped"
    for monitor in monitors:
        collapsed = sorted(name for name, stats in monitor.fields.items() if stats.collapsed)
        if collapsed:
            return "collapsed", f"{', '.join(collapsed)} at update {monitor.update:,}"
    return ("ok", None) if rows else ("unknown", None)


def _broken(commits: Sequence[Commit]) -> str | None:
    """What of the newest checkpoint is not finite, beside what was not when the run began: a mark for "not yet"."""
    if not commits or not commits[-1].nonfinite:
        return None
    first = (commits[0].nonfinite or ()) if len(commits) > 1 else ()
    named = [name for name in commits[-1].nonfinite if name not in first]
    return f"{', '.join(named)} in the checkpoint of update {commits[-1].update:,}" if named else None


def _update_s(rows: Sequence[Row]) -> float | None:
    """Seconds per update over the newest rows of one attempt."""
    same = [row for row in rows if row.attempt == rows[-1].attempt]
    if len(same) < 2:
        return None
    return (same[-1].elapsed_s - same[0].elapsed_s) / (len(same) - 1)


def selection(lock: Lock | None) -> tuple[Literal["min", "max"], str] | None:
    """(`min` or `max`, the development metric) by which the plan selects a checkpoint."""
    run = lock.settings.get("run") if lock else None
    chosen = run.get("select") if isinstance(run, Mapping) else None
    if not isinstance(chosen, str):
        return None
    mode, _, metric = chosen.partition(" ")
    return ("max" if mode == "max" else "min"), metric.removeprefix("development.")


def _development(
    evaluations: Sequence[EvaluationRow], scored: RowTable[EvaluationRow], lock: Lock | None
) -> Development | None:
    if not evaluations:
        return None
    newest = evaluations[-1]
    chosen = selection(lock)
    metric = chosen[1] if chosen else next(iter(sorted(newest.metrics)), None)
    if metric is None:
        return None
    value = newest.metrics.get(metric)
    given = (newest.counts or {}).get(metric)
    return Development(
        metric=metric,
        value=value,
        update=newest.update,
        best=newest.best if chosen is None or not _stops(lock) else _is_best(value, scored, *chosen),
        count=None if given is None else (given, newest.rows),
    )


def _stops(lock: Lock | None) -> bool:
    """Whether a rule stops the run: then it is the rule that a row's `best` speaks of."""
    return isinstance(_run_of(lock).get("stop"), Mapping)


def _is_best(
    value: float | None, scored: RowTable[EvaluationRow], mode: Literal["min", "max"], metric: str
) -> bool:
    """Whether no evaluation was better than the newest, nor as good before it."""
    if value is None:
        return False
    *before, _ = [each.metrics.get(metric) for each in scored]
    sign = 1.0 if mode == "min" else -1.0
    return all(sign * value < sign * other for other in before if other is not None)
