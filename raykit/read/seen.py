"""From the log of a run to the view of it: attempts, checkpoints, figures, health, and what people want of it.

Pure, but for the last rows that health and ratio are read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

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
from raykit.store.base import ObjectStore

RECENT_ROWS = 8
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
        superseded=RowTable(store, found.events, "train", Row).superseded,
        lock=lock,
    )


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
    try:
        rows = RowTable(store, found.events, "train", Row).tail(RECENT_ROWS)
        evaluations = RowTable(store, found.events, "development", EvaluationRow).tail(1)
        monitors = RowTable(store, found.events, "monitor", MonitorRow).tail(1)
    except CorruptError as error:
        return Figures(health="corrupt", health_detail=error.message)
    update_s = _update_s(rows)
    health, detail = _health(rows, monitors)
    if quiet_s is not None and found.launched is not None:
        patience_s = max(found.launched.lease_s, QUIET_UPDATES * (update_s or 0.0))
        if quiet_s >= patience_s and health in ("ok", "unknown"):
            health, detail = "silent", f"for {quiet_s:.0f} s"
    return Figures(
        ratio=rows[-1].ratio if rows else None,
        update_s=update_s,
        development=_development(evaluations, lock),
        health=health,
        health_detail=detail,
    )


def _health(rows: Sequence[Row], monitors: Sequence[MonitorRow]) -> tuple[Health, str | None]:
    for row in reversed(rows):
        # A scaler that skips a step has seen an infinite gradient and has dealt with it.
        if row.nonfinite and not row.skipped:
            return "nonfinite", f"{', '.join(row.nonfinite)} at update {row.update:,}"
    for monitor in monitors:
        collapsed = sorted(name for name, stats in monitor.fields.items() if stats.collapsed)
        if collapsed:
            return "collapsed", f"{', '.join(collapsed)} at update {monitor.update:,}"
    return ("ok", None) if rows else ("unknown", None)


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


def _development(evaluations: Sequence[EvaluationRow], lock: Lock | None) -> Development | None:
    if not evaluations:
        return None
    newest = evaluations[-1]
    chosen = selection(lock)
    metric = chosen[1] if chosen else next(iter(sorted(newest.metrics)), None)
    if metric is None:
        return None
    return Development(
        metric=metric, value=newest.metrics.get(metric), update=newest.update, best=newest.best
    )
