"""The one brain: what a run's log says, and what its launch does next.

Pure and small enough to simulate: `fold` turns events into a `RunState`; `reconcile` turns a state and what
the launch sees around it into actions. Nothing here reads a clock or a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raykit import history
from raykit.errors import CorruptError, FencedError
from raykit.records import (
    EXACTNESS,
    AttemptEnded,
    AttemptStarted,
    Beat,
    Cause,
    Commit,
    Compared,
    Difference,
    EndReason,
    Exactness,
    GateResult,
    Launched,
    Place,
    Released,
    Replaying,
    RunEntry,
    Segment,
    StopRequested,
    Superseded,
    Undeclared,
    Unreplayed,
)

# --- what the log says --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as its log tells it."""

    events: Sequence[object] = ()
    launched: Launched | None = None
    """The launch that owns the run, unless `released`."""
    launched_at: float = 0.0
    released: EndReason | None = None
    heard_at: float = 0.0
    """When the owning launch, or one of its attempts, last wrote to the log."""
    attempts: Sequence[AttemptStarted] = ()
    ends: Mapping[int, AttemptEnded] = field(default_factory=dict)
    commits: Sequence[Commit] = ()
    gates: Mapping[str, GateResult] = field(default_factory=dict)
    """The newest result of each gate."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """By gate that has failed and has not passed since: the attempt that it failed in."""
    compared: Sequence[Compared] = ()
    """What was trained twice and held against each other."""
    replaying: Sequence[Replaying] = ()
    """Replays that workers beside the run have taken."""
    unreplayed: Sequence[Unreplayed] = ()
    """Replays that were due and not made, and why."""
    undeclared: Sequence[Undeclared] = ()
    """State that training changed and no checkpoint holds."""
    stop: StopRequested | None = None
    """A stop that the owning launch has asked for."""
    rows: int = 0
    """The last update whose row is durable, if the history is not `broken`; see `recorded`."""
    broken: str | None = None
    """The first gap or overlap of the history."""

    @property
    def attempt(self) -> AttemptStarted | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def ended(self) -> AttemptEnded | None:
        """How the newest attempt ended; None while it runs, or if nobody has said so."""
        return self.ends.get(self.attempts[-1].attempt) if self.attempts else None

    @property
    def completed(self) -> bool:
        return self.ended is not None and self.ended.reason == "completed"

    @property
    def committed(self) -> int | None:
        """The update of the newest commit."""
        return self.commits[-1].update if self.commits else None

    def recorded(self) -> int:
        """The last update whose row is durable.

        Raises:
            CorruptError: the history has a gap or an overlap.
        """
        if self.broken is not None:
            raise CorruptError(self.broken)
        return self.rows


def fold(entries: Iterable[RunEntry], onto: RunState | None = None) -> RunState:
    """Read a run's log into its state; `onto` is the state that earlier entries have led to."""
    state = onto or RunState()
    events, attempts, commits = list(state.events), list(state.attempts), list(state.commits)
    ends, gates, failed = dict(state.ends), dict(state.gates), dict(state.failed)
    compared, undeclared = list(state.compared), list(state.undeclared)
    replaying, unreplayed = list(state.replaying), list(state.unreplayed)
    launched, launched_at, released = state.launched, state.launched_at, state.released
    heard_at, stop, rows, broken = state.heard_at, state.stop, state.rows, state.broken
    for entry in entries:
        if not all(isinstance(event, Replaying | Compared | Unreplayed) for event in entry.events):
            heard_at = entry.at  # those may be of a worker beside the run
        for event in entry.events:
            events.append(event)
            match event:
                case Launched():
                    launched, launched_at, released, stop = event, entry.at, None, None
                case Released() if launched is not None and event.launch == launched.launch:
                    released = event.reason
                case AttemptStarted():
                    attempts.append(event)
                case AttemptEnded():
                    ends[event.attempt] = event
                case GateResult():
                    gates[event.gate] = event
                    failed.pop(event.gate, None)
                    if not event.passed:
                        failed[event.gate] = attempts[-1].attempt if attempts else 0
                case StopRequested():
                    stop = event
                case Compared():
                    compared.append(event)
                case Replaying():
                    replaying.append(event)
                case Unreplayed():
                    unreplayed.append(event)
                case Undeclared():
                    undeclared.append(event)
                case Commit():
                    commits.append(event)
                case Segment(series="train"):
                    broken = broken or history.out_of_place(rows, event)
                    rows = event.last
                case Superseded():
                    broken = broken or history.not_a_tail(rows, event)
                    rows = min(rows, max(event.from_ - 1, 0))  # from 0 when no checkpoint was there yet
                    commits = history.surviving(commits, event)
                case Beat() | Segment() | Released():
                    pass
    return RunState(
        events=tuple(events),
        launched=launched,
        launched_at=launched_at,
        released=released,
        heard_at=heard_at,
        attempts=tuple(attempts),
        ends=ends,
        commits=tuple(commits),
        gates=gates,
        failed=failed,
        compared=tuple(compared),
        replaying=tuple(replaying),
        unreplayed=tuple(unreplayed),
        undeclared=tuple(undeclared),
        stop=stop,
        rows=rows,
        broken=broken,
    )


def lowest(differences: Iterable[Difference]) -> Exactness:
    """The exactness class that all differences together leave."""
    worst = max((EXACTNESS.index(difference.allows) for difference in differences), default=0)
    return EXACTNESS[worst]


def falls_short(exactness: Exactness, needed: Exactness) -> bool:
    """Is `exactness` less than `needed`?"""
    return EXACTNESS.index(exactness) > EXACTNESS.index(needed)


# --- fencing ------------------------------------------------------------------------------------------------


def require_launch(state: RunState, launch: str) -> None:
    """Let only the launch that owns the run go on.

    Raises:
        FencedError: another launch has taken the run, or this one has let go of it.
    """
    if state.launched is None or state.launched.launch != launch:
        owner = "nobody" if state.launched is None else state.launched.launch
        raise FencedError(f"launch {launch} no longer owns this run; {owner} does")
    if state.released is not None:
        raise FencedError(f"launch {launch} has already let go of this run ({state.released})")


def require_attempt(state: RunState, launch: str, attempt: int) -> None:
    """Let only the newest attempt of the owning launch go on.

    Raises:
        FencedError: a newer attempt or another launch has taken the run, or this attempt or launch has ended.
    """
    require_launch(state, launch)
    newest = state.attempt
    if newest is None or newest.attempt != attempt:
        raise FencedError(
            f"attempt {attempt} is superseded by attempt {newest.attempt if newest else 'none'}"
        )
    if attempt in state.ends:
        raise FencedError(f"attempt {attempt} has already ended")


# --- what a launch does next --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a launch sees around the log."""

    launch: str
    place: Place
    holder_alive: bool | None = None
    """Whether the process of the owning launch is alive; None if it is on another machine."""
    training: str = "not-started"
    """`not-started`, `running`, or `returned`."""
    starts: int = 0
    """How often this launch has started its gang, also those that never came to an attempt."""
    refused: bool = False
    """Training returned because something was refused on purpose: trying again would be refused again."""
    signal: str | None = None
    """Why this launch was asked to stop."""
    pause: str | None = None
    """The pause in force, or the cancellation, in words."""
    cause: Cause | None = None
    """The cause of that pause."""
    failed_qc: str | None = None
    """The failed check that ends the run, in words, where the plan says so."""
    curves_update: int = 0
    """The update up to which curves have been drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The parts of a plan that the launch loop acts on."""

    curves_every: int
    attempts: int = 1
    """How often one launch may start its gang, restarts of Ray Train included."""
    beat_s: float = 20.0
    lease_s: float = 60.0


@dataclass(frozen=True, slots=True)
class AlreadyComplete:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class RefuseHeld:
    """Another launch that is alive has the run."""

    holder: Launched
    heard_at: float


@dataclass(frozen=True, slots=True)
class TakeRun:
    """Write `launched`; the attempts that nobody ended were killed."""

    unended: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartTraining:
    """Start the gang of workers."""


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Write `stop_requested`."""

    why: str
    cause: Cause | None = None
    reason: EndReason = "paused"
    """How the attempt ends by it."""


@dataclass(frozen=True, slots=True)
class SendBeat:
    """Write `beat`."""


@dataclass(frozen=True, slots=True)
class DrawCurves:
    """Draw the curves through `update`."""

    update: int


@dataclass(frozen=True, slots=True)
class Leave:
    """Write `released` and end."""


Action = AlreadyComplete | RefuseHeld | TakeRun | StartTraining | RequestStop | SendBeat | DrawCurves | Leave


def reconcile(policy: Policy, state: RunState, seen: Seen, now: float) -> tuple[Action, ...]:
    """What the launch does next, in order. The same inputs always give the same actions.

    Raises:
        FencedError: this launch had the run and another one has taken it, or it has let go of it.
        CorruptError: the history has a gap or an overlap.
    """
    mine = state.launched is not None and state.launched.launch == seen.launch
    if not mine or state.released is not None:
        if seen.training != "not-started":
            require_launch(state, seen.launch)
        return (_before_start(state, seen, now),)
    actions: list[Action] = []
    why = seen.signal or seen.pause or seen.failed_qc
    if why and state.stop is None and seen.training == "running":
        actions.append(_stop(seen, why))
    recorded = state.recorded()
    due = recorded - recorded % policy.curves_every if seen.training == "running" else recorded
    if due > seen.curves_update:
        actions.append(DrawCurves(due))
    if seen.training == "not-started":
        actions.append(Leave() if why else StartTraining())
    elif seen.training == "returned":
        actions.append(StartTraining() if _goes_on(policy, state, seen) else Leave())
    elif now - state.heard_at >= policy.beat_s:
        actions.append(SendBeat())
    return tuple(actions)


def _stop(seen: Seen, why: str) -> RequestStop:
    if seen.signal:
        return RequestStop(why)
    return RequestStop(why, seen.cause) if seen.pause else RequestStop(why, "qc", "failed")


def _goes_on(policy: Policy, state: RunState, seen: Seen) -> bool:
    """Did training return without an end of its own (its controller died, say), with attempts left?"""
    newest = state.attempt
    if (
        seen.signal
        or seen.pause
        or seen.failed_qc
        or newest is None
        or newest.launch != seen.launch
        or newest.attempt in state.ends
    ):
        return False
    begun = sum(attempt.launch == seen.launch for attempt in state.attempts)
    return max(begun, seen.starts) < policy.attempts


def _before_start(state: RunState, seen: Seen, now: float) -> Action:
    if state.completed:
        return AlreadyComplete()
    held = held_by(state, seen, now)
    if held is not None:
        return held
    return TakeRun(tuple(a.attempt for a in state.attempts if a.attempt not in state.ends))


def held_by(state: RunState, seen: Seen, now: float) -> RefuseHeld | None:
    """The launch that has the run and is alive, whether it trains or waits for the last checks; None if none has it."""
    holder = state.launched
    if holder is None or state.released is not None:
        return None
    alive = seen.holder_alive
    if alive is None:
        alive = now - state.heard_at < holder.lease_s
    return RefuseHeld(holder, state.heard_at) if alive else None
