"""One run under way: what its launch does every half second, from the first reservation to the last settlement.

A launch has one such loop, a search has one for each trial that is live. The loop observes, asks `reconcile`, and acts;
whoever has it starts and ends Ray, hears signals, and says with what the run is trained. The run's log says everything,
and this process may die at any instant: the next launch reads the log and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from raykit import reconcile as brain
from raykit.errors import (
    ApprovalError,
    BudgetError,
    CorruptError,
    RaykitError,
    ReplanError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.exactness import of_run
from raykit.fleet.claim import Claimed
from raykit.fleet.fallen import Fallen
from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.metrics import Dashboard, Facts, run_of, trainers_of
from raykit.fleet.outcome import Outcome
from raykit.fleet.pictures import Pictures
from raykit.fleet.purse import Purse
from raykit.fleet.qc.heed import QC_GATE
from raykit.fleet.site import Site
from raykit.pauses import InForce, Role, in_force, scopes_of
from raykit.plan import Plan
from raykit.records import (
    AttemptEnded,
    Beat,
    Cause,
    EndReason,
    EvaluationRow,
    GateResult,
    Record,
    Released,
    RunEntry,
    StopRequested,
)
from raykit.store.log import RunLog
from raykit.store.people import People
from raykit.store.place import this_place
from raykit.train.door import Door

LOOP_S = 0.5
BACKSTOP_S = 5.0
"""So long before the end of what is paid for, a launch ends whether or not its workers have reached a boundary."""

OVERDRAWN = "what is reserved for this attempt was used up before it reached a boundary"

Tell = Callable[[Glimpse], None]
Say = Callable[[str], None]


class Trains(Protocol):
    """What trains a run: `raykit.fleet.training.Training`, or a trial in Ray Tune's hands."""

    starts: int
    """How often it was started."""

    @property
    def error(self) -> BaseException | None:
        """What the newest start came back with."""
        ...

    @property
    def word(self) -> str:
        """`not-started`, `running` or `returned`."""
        ...

    def start(self, *, storage: Path, door: Door, used: int) -> None:
        """Start it; it may restart itself as often as attempts are left after the `used` ones."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Until it returns, or so long."""
        ...

    @property
    def failed(self) -> bool:
        """Its recipe failed: the workers themselves raised."""
        ...

    @property
    def why(self) -> str | None:
        """Why it came back, as `kind: message`; None if nothing was raised."""
        ...


class Ended(Protocol):
    """What ends a run beside people and its own plan. Each is None, or why, in words."""

    @property
    def stopped(self) -> str | None:
        """A signal, or a scheduler: it commits and is paused."""
        ...

    @property
    def failed(self) -> str | None:
        """What ends the run as failed: a failed check, where its plan says so."""
        ...

    @property
    def suite(self) -> str | None:
        """Of that check; None if it is no check."""
        ...

    @property
    def qc(self) -> str | None:
        """How far the run's QC is, for a progress line."""
        ...


class RunLoop:
    """The loop of one run that its launch has claimed."""

    def __init__(
        self,
        site: Site,
        claimed: Claimed,
        log: RunLog,
        people: People,
        *,
        training: Trains,
        ended: Ended,
        tell: Tell,
        say: Say,
        role: Role = "train",
        dashboard: Dashboard | None = None,
    ) -> None:
        """`dashboard` hears of the run at every turn; None where whoever has several of these says it for all."""
        self.purse = Purse(site, claimed.task, claimed.spending)
        self._site = site
        self._task = claimed.task
        self._log = log
        self._people = people
        self._training = training
        self._ended = ended
        self._tell = tell
        self._say = say
        self._role = role
        self._dashboard = dashboard
        self._paused: str | None = None
        self._cancelled = False
        self._in_force: InForce | None = None
        """The pause of the newest look."""
        self._fallen = Fallen(site, claimed.task.launch, say)
        self._overdrawn = False
        """What was reserved is used up, and no boundary came before."""
        self._followed = Followed()
        self._pictures = Pictures(site, say)
        self._drawn = 0
        self._told = 0
        self._replays_told: set[str] = set()
        self._away_since: float | None = None
        self._storage: Path | None = None
        self._door: Door | None = None

    # --- from the first reservation to the last settlement --------------------------------------------------

    def reserve(self) -> None:
        """Nothing starts before its worst case is reserved; a refusal lets go of the run again.

        Raises:
            Refused: a person has to act first.
            Stopped: a pause is in force, or the budget does not allow it.
            Unknown: the store did not answer for longer than the task holds.
        """
        try:
            self.purse.reserve()
        except RaykitError:
            self._leave()
            raise

    def open(self, *, storage: Path, door: Door) -> None:
        """Say where and through which door it is trained, once there is a Ray. Before the first turn."""
        self._storage, self._door = storage, door

    def settle(self) -> int | None:
        """Say what the launch has cost, now that it holds nothing any more; None if that cannot be written now."""
        state = self._log.state
        mine = [attempt for attempt in state.attempts if attempt.launch == self._task.launch]
        rows = [row for row in self._followed.rows if mine and row.attempt == mine[-1].attempt]
        ended = None if not mine else state.ends.get(mine[-1].attempt)
        try:
            cost = self.purse.settle(
                reason="killed" if ended is None else ended.reason,
                attempts=len(mine),
                wall_ms=int(rows[-1].elapsed_s * 1000) if rows else 0,
            )
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            self._say(f"what this launch has cost could not be written ({error}); the next launch settles it")
            return None
        return cost

    def let_go(self) -> None:
        """See to machines that are billed whether or not anyone works on them."""
        try:
            self.purse.let_go(self._say)
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            self._say(f"what is still held could not be written ({error}); the next launch does")

    # --- turns ----------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until the next turn: half a second, or less if training returns."""
        if self._training.word == "running":
            self._training.wait(LOOP_S)
        elif self._away_since is not None:
            time.sleep(LOOP_S)

    def turn(self) -> bool:
        """Observe, reconcile, act; True when this launch has let go of the run.

        While the store does not answer, it holds as long as the workers do, and what is paid for lasts.

        Raises:
            StoreUnavailableError: it stayed away longer than that.
            FencedError: another launch has taken the run meanwhile.
            CorruptError: the run's log or its rows are damaged.
        """
        try:
            done = self._turn()
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._say(f"the store does not answer ({error}); holding for up to {self._task.hold_s:.0f} s")
            if now - self._away_since > self._task.hold_s or self.purse.known_left_s < BACKSTOP_S:
                raise
            return False
        self._away_since = None
        return done

    def _turn(self) -> bool:
        # before the log is read: whoever has returned by now has said everything, and it is not started again
        training = self._training.word
        self._log.refresh()
        state = self._log.state
        if self._has_let_go(state):
            return True
        self._fallen.heed(state, self._people.refresh())
        pause = self.heed_people()
        self._followed.follow(self._site.store, state.events)
        self.tell_glimpse()
        self._tell_restarts(state)
        self._tell_replays(state)
        if self.purse.left_s(self._told) < BACKSTOP_S:
            self._overdrawn = True
            self._leave()
            return True
        seen = brain.Seen(
            launch=self._task.launch,
            place=this_place(),
            training=training,
            starts=self._training.starts,
            refused=isinstance(self._training.error, RaykitError),
            signal=self._ended.stopped,
            pause=self._paused,
            cause=None if pause is None else pause.pause.cause,
            failed_qc=self._failed_qc(state),
            curves_update=self._drawn,
        )
        actions = brain.reconcile(_policy(self._site.plan), state, seen, time.time())
        return any(self._act(action) for action in actions)

    def tell_glimpse(self) -> None:
        """Tell what the newest rows say."""
        glimpse = self._followed.glimpse(self._log.state, self._site.plan.run.updates)
        self._tell(replace(glimpse, qc=self._ended.qc))
        if self._dashboard is not None:
            self._dashboard.tell(lambda: self._facts(glimpse))

    def _facts(self, glimpse: Glimpse) -> list[Facts]:
        name, plan, pause = self._site.name, self._site.plan, self._in_force
        workers = trainers_of(
            name, self._role, [glimpse], workers=plan.run.workers, pause=pause, now=time.time()
        )
        return [run_of(name, self._log.state, self._followed, glimpse), workers]

    def _failed_qc(self, state: brain.RunState) -> str | None:
        """The failed check that ends the attempt that is under way, where the plan says so."""
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        return self._ended.failed if mine and state.ended is None else None

    @property
    def evaluations(self) -> Sequence[EvaluationRow]:
        """The evaluations of the run that count, as far as they have been followed."""
        return self._followed.evaluations

    # --- people ---------------------------------------------------------------------------------------------

    @property
    def paused(self) -> str | None:
        """The pause, or the cancellation, that this launch has heard of, in words."""
        return self._paused

    def heed_people(self) -> InForce | None:
        """The pause in force, if there is one; what is said once stays said for this launch.

        Raises:
            CorruptError: a log of people's acts is damaged.
            StoreUnavailableError: the store did not answer.
        """
        acts = self._people.refresh()
        found = in_force(acts, scopes_of(self._site.name, self._role, self._task.contract))
        self._in_force = found
        words = None if found is None else found.words
        if acts.cancelled is not None:
            words = acts.cancelled.words
            self._cancelled = True
        if words is not None and self._paused is None:
            self._paused = words
            self._say(f"{words}; committing at the next update, then leaving")
        return found

    def _has_let_go(self, state: brain.RunState) -> bool:
        """Whether this launch's last word is in the log, though the reply to it was lost."""
        launched = state.launched
        return launched is not None and launched.launch == self._task.launch and state.released is not None

    def _tell_restarts(self, state: brain.RunState) -> None:
        """Say that Ray started the gang again: nobody would see it in the bar."""
        mine = [attempt for attempt in state.attempts if attempt.launch == self._task.launch]
        for attempt in mine[max(1, self._told) :]:
            start = "the start" if attempt.resume is None else f"update {attempt.resume.update:,}"
            self._say(f"the gang was lost and is there again: attempt {attempt.attempt}, from {start}")
        self._told = len(mine)

    def _tell_replays(self, state: brain.RunState) -> None:
        """Say why a replay of this launch was not made; what came of others is told as all comparisons are."""
        mine = {attempt.attempt for attempt in state.attempts if attempt.launch == self._task.launch}
        for event in state.unreplayed:
            if event.attempt in mine and event.why not in self._replays_told:
                self._replays_told.add(event.why)
                self._say(f"not replayed: {event.why}")

    # --- acting ---------------------------------------------------------------------------------------------

    def _act(self, action: brain.Action) -> bool:
        match action:
            case brain.StartTraining():
                self._start_training()
            case brain.RequestStop(why, cause, reason):
                if reason == "failed" and self._ended.suite is None:
                    cause = None  # it is no check that ends it
                stop = StopRequested(launch=self._task.launch, why=why, cause=cause, reason=reason)
                self._append(*self._failed_gate(reason, why), stop)
            case brain.SendBeat():
                self._append(Beat(launch=self._task.launch))
            case brain.DrawCurves(update):
                self._drawn = update
                self._pictures.draw(self._followed)
            case brain.Leave():
                self._leave()
                return True
            case _:
                raise CorruptError(f"a launch that owns its run was told to {type(action).__name__}")
        return False

    def _start_training(self) -> None:
        """Start the gang; again, with what is left of the attempts, if its controller died."""
        storage, door, training = self._storage, self._door, self._training
        assert storage is not None and door is not None
        used = sum(attempt.launch == self._task.launch for attempt in self._log.state.attempts)
        if used:
            self._say(
                f"training came back without an end ({training.why}); starting attempt {used + 1} of this launch"
            )
        training.start(storage=storage, door=door, used=used)

    def _failed_gate(self, reason: EndReason, why: str) -> list[Record]:
        """What keeps full runs from starting again before a repair is recorded, where a failed check ends this one."""
        suite = self._ended.suite
        if reason != "failed" or suite is None:
            return []
        self._say(f"{why.partition(': ')[2]}; the plan says that this ends the run")
        scope = "the roster, at one checkpoint"
        return [GateResult(gate=QC_GATE, key=suite, passed=False, scope=scope, found=why, took_s=0.0)]

    def _append(self, *events: Record) -> None:
        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            brain.require_launch(self._log.state, self._task.launch)
            return list(events)

        self._log.append(decide, at=time.time())

    @property
    def _told_to_stop(self) -> bool:
        return self._ended.stopped is not None or self._paused is not None or self.money_cause is not None

    def _leave(self) -> None:
        """Say how the attempt ended if it could not, and let go of the run."""

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            brain.require_launch(state, self._task.launch)
            events: list[Record] = []
            newest = state.attempt
            reason: EndReason = "paused" if self._told_to_stop else "failed"
            if newest is not None and newest.launch == self._task.launch:
                ended = state.ends.get(newest.attempt)
                if ended is None:
                    ended = AttemptEnded(
                        attempt=newest.attempt,
                        reason=self._how(),
                        update=state.recorded(),
                        detail=OVERDRAWN if self._overdrawn else self._training.why,
                        cause=self.money_cause,
                    )
                    events.append(ended)
                reason = ended.reason
            return [*events, Released(launch=self._task.launch, reason=reason)]

        self._log.append(decide, at=time.time())

    def _how(self) -> EndReason:
        """How an attempt ended that could not say so: its recipe failed, its money did, or it was killed."""
        if self.money_cause is not None:
            return "paused"
        return "failed" if self._training.failed else "killed"

    @property
    def money_cause(self) -> Cause | None:
        """What its money ended it for, or keeps it from starting again; None if that was something else."""
        if self._overdrawn:
            return "ceiling"
        match self._training.error:
            case ReplanError():
                return "replan"
            case BudgetError() | ApprovalError():
                return "ceiling"
        return None

    @property
    def at_ceiling(self) -> str | None:
        """Why its money was at its end, where that is what ended it."""
        state, error = self._log.state, self._training.error
        if isinstance(error, (BudgetError, ReplanError, ApprovalError)):
            return str(error)
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        ended = state.ended if mine else None
        if self._overdrawn or (ended is not None and ended.cause == "ceiling"):
            return (ended and ended.detail) or OVERDRAWN
        return None

    # --- the end --------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """How the run stands, now that this launch has let go."""
        state = self._log.state
        ended = state.ended
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        rows = self._followed.rows
        if ended is None or not mine:
            return Outcome(
                experiment=self._site.name,
                run=self._site.run,
                reason="paused" if self._told_to_stop else "failed",
                update=state.recorded(),
                detail=OVERDRAWN if self._overdrawn else self._paused or self._training.why,
                cause="ceiling" if self._overdrawn else None,
                cancelled=self._cancelled,
            )
        return Outcome(
            experiment=self._site.name,
            run=self._site.run,
            reason=ended.reason,
            update=ended.update,
            detail=ended.detail,
            remedy=ended.remedy,
            cause=ended.cause,
            cancelled=self._cancelled,
            exactness=of_run(state, self._fallen.harmless).words,
            ratio=rows[-1].ratio if rows else None,
            curves=tuple(self._pictures.drawn.values()),
        )


def _policy(plan: Plan) -> brain.Policy:
    return brain.Policy(curves_every=plan.run.curves.every, attempts=plan.run.attempts)
