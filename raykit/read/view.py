"""One run as people look at it: a state, a health that is told apart from it, and figures.

Pure, but for the last rows that health and ratio are read from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from raykit.errors import CorruptError
from raykit.pauses import OVERDUE_S, Acts, FleetState, InForce, Role, in_force, scopes_of
from raykit.plan import Lock
from raykit.read.money import Money
from raykit.read.qc import QcRead
from raykit.read.rows import RowTable
from raykit.reconcile import RunState
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Cancelled,
    Commit,
    End,
    EvaluationRow,
    ExperimentEntry,
    FleetEntry,
    GateResult,
    MonitorRow,
    Paused,
    Place,
    Resumed,
    ResumeReceipt,
    Row,
    RunEntry,
    Segment,
)
from raykit.store.base import ObjectStore

if TYPE_CHECKING:
    from raykit.read.setview import SetRead

State = (
    Literal["not started", "starting", "running", "stopping", "stopped", "paused", "failed", "completed"]
    | Literal["corrupt"]
    | End
)
"""What the log says of a run. `stopped`: its launch ended, or was last heard too long ago, without a word. A trial's
is that of its row: once it has an end, that."""

Health = Literal["ok", "nonfinite", "collapsed", "silent", "corrupt", "unknown"]
"""What its rows say, whatever the state: a completed run is healthy only if its rows are."""

OVER: frozenset[State] = frozenset(
    {"completed", "corrupt", *(end for end in get_args(End) if end != "failed")}
)
"""Of runs that nobody can go on with. One that failed may be repaired, unless it is a trial."""

LIVE: frozenset[State] = frozenset({"starting", "running", "stopping"})
MAIN = "main"
"""The run of a plan that is not a search."""

RECENT_ROWS = 8
QUIET_UPDATES = 10
"""A running attempt that is silent for so many of its own updates, and for a lease, is called silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One gang of workers, from its start to its end."""

    attempt: int
    launch: str
    place: Place
    started_at: float
    ended: AttemptEnded | None
    resume: ResumeReceipt | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """One checkpoint; `counts` is False once a resume has started before it."""

    commit: Commit
    at: float
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Development:
    """The newest evaluation: the metric that selects, or else the first one."""

    metric: str
    value: float | None
    update: int
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the newest rows say."""

    ratio: float | None = None
    update_s: float | None = None
    """Seconds per update, of late."""
    development: Development | None = None
    health: Health = "unknown"
    health_detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView:
    """One pause that concerned a run, from the request to its end."""

    pause: Paused
    at: float
    resumed: Resumed | None = None
    resumed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What people want of a run, and whether it is that far."""

    state: FleetState | None = None
    """None if nothing runs, and nothing keeps it from running."""
    pause: InForce | None = None
    """The pause in force, the narrowest first."""
    cancelled: Cancelled | None = None
    pauses: Sequence[PauseView] = ()
    """All pauses so far, oldest first."""

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "state": self.state,
            "pause": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "cancelled": self.cancelled and self.cancelled.plain(),
            "pauses": [
                {
                    **past.pause.plain(),
                    "at": past.at,
                    "resumed_at": past.resumed_at,
                    "resumed_by": past.resumed and past.resumed.person,
                    "cleared": past.resumed and past.resumed.cleared,
                }
                for past in self.pauses
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run at one moment."""

    experiment: str
    run: str
    state: State
    detail: str | None = None
    """Why it is in that state, where somebody has said so."""
    holder: Place | None = None
    """The process that has the run, while one has it."""
    launch: str | None = None
    """The newest launch, whether or not it still has the run."""
    workers: int = 0
    """The ranks of the newest attempt."""
    update: int = 0
    """The last update whose row is durable."""
    updates: int | None = None
    """The updates that the plan asks for."""
    figures: Figures = field(default_factory=Figures)
    heard_at: float | None = None
    """When something was last written to its log."""
    attempts: Sequence[AttemptView] = ()
    commits: Sequence[CommitView] = ()
    gates: Sequence[GateResult] = ()
    superseded: int = 0
    """Updates that were recorded and later superseded."""
    lock: Lock | None = None
    """The lock of the plan that it runs, or is to run."""
    fleet: FleetView = field(default_factory=FleetView)
    money: Money | None = None
    """None if it has no budget yet."""
    qc: QcRead | None = None
    """How far its examinations are; None if its plan has no `[qc]`."""
    sets: Sequence[SetRead] = ()
    """The synthetic sets of its plan, and all that have a contract."""

    @property
    def id(self) -> str:
        """`experiment/run`."""
        return f"{self.experiment}/{self.run}"

    @property
    def row(self) -> int | None:
        """The row of its search's table, of a trial."""
        return trial_row(self.run)

    @property
    def role(self) -> Role:
        """By which pauses reach it."""
        return "train" if self.row is None else "search"

    @property
    def over(self) -> bool:
        """Nobody can go on with it: it has trained to its end, cannot be read, or is a trial whose row has ended."""
        return self.state in OVER or (self.state == "failed" and self.row is not None)

    @property
    def complete(self) -> bool:
        """It has trained to its end, and all that had to be examined was examined and reviewed by a person."""
        return self.state == "completed" and (self.qc is None or self.qc.backlog.complete)

    @property
    def health(self) -> Health:
        return self.figures.health

    @property
    def ratio(self) -> float | None:
        """The ratio of the main term at `update`: 1.0 is no skill."""
        return self.figures.ratio

    @property
    def committed(self) -> Commit | None:
        """The newest checkpoint that counts."""
        return next((view.commit for view in reversed(self.commits) if view.counts), None)

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        figures, development = self.figures, self.figures.development
        return {
            "id": self.id,
            "experiment": self.experiment,
            "run": self.run,
            "state": self.state,
            "complete": self.complete,
            "detail": self.detail,
            "health": figures.health,
            "health_detail": figures.health_detail,
            "holder": self.holder and self.holder.plain(),
            "update": self.update,
            "updates": self.updates,
            "update_s": figures.update_s,
            "ratio": figures.ratio,
            "development": development
            and {
                "metric": development.metric,
                "value": development.value,
                "update": development.update,
                "best": development.best,
            },
            "heard_at": self.heard_at,
            "attempts": [_plain_attempt(attempt) for attempt in self.attempts],
            "commits": [
                {**view.commit.plain(), "at": view.at, "counts": view.counts} for view in self.commits
            ],
            "gates": [gate.plain() for gate in self.gates],
            "superseded": self.superseded,
            "plan": self.lock and self.lock.digest,
            "fleet": self.fleet.plain(),
            "money": self.money and self.money.plain(),
            "qc": self.qc
            and {**self.qc.counts(), "oldest_s": self.qc.oldest_s, "complete": self.qc.backlog.complete},
            "sets": [each.brief() for each in self.sets],
        }


def trial_row(run: str) -> int | None:
    """The row that a run is of its search's table; None if it is no trial."""
    if run == MAIN:
        return None
    # Here, because it needs numpy: who searches nothing does without.
    from raykit.search.table import row_of

    return row_of(run)


def _plain_attempt(view: AttemptView) -> dict[str, Any]:
    return {
        "attempt": view.attempt,
        "launch": view.launch,
        "place": view.place.plain(),
        "started_at": view.started_at,
        "ended": view.ended and view.ended.plain(),
        "resume": view.resume and view.resume.plain(),
    }


# --- making one ---------------------------------------------------------------------------------------------


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
