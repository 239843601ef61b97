"""The launch process: one loop that observes, asks `reconcile`, and acts.

The run's log says everything, and this process may die at any instant: the next launch reads the log and goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import ray
from ray._private import worker as ray_worker

from raykit import reconcile as brain
from raykit.errors import (
    BudgetError,
    CorruptError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.fleet.claim import Claimed, claim, completed_at
from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.outcome import Outcome
from raykit.fleet.pictures import Pictures
from raykit.fleet.pool.pool import Glance
from raykit.fleet.purse import Purse
from raykit.fleet.qc_beside import QC_GATE, QcBeside, slots_of, words
from raykit.fleet.session import LocalRay, end_leftovers, start_local
from raykit.fleet.signals import Signals
from raykit.fleet.site import RUN, Site
from raykit.fleet.spending import Approving
from raykit.fleet.training import Training
from raykit.pauses import InForce, in_force, scopes_of
from raykit.plan import Plan
from raykit.read.qc import read_qc
from raykit.records import (
    AttemptEnded,
    Beat,
    EndReason,
    GateResult,
    Record,
    Released,
    RunEntry,
    StopRequested,
)
from raykit.store.log import RunLog
from raykit.store.people import People, pause
from raykit.store.place import this_place
from raykit.train.door import Door

LOOP_S = 0.5
BACKSTOP_S = 5.0
"""So long before the end of what is paid for, a launch ends whether or not its workers have reached a boundary."""
SPARE_CPUS = 1
"""Beside one CPU per rank: for the train controller."""

LEAVE_S, UNIT_S = 5.0, 60.0
"""How long a check in hand may still take when the launch is told to leave, and when it is paused."""

OVERDRAWN = "what is reserved for this attempt was used up before it reached a boundary"

Tell = Callable[[Glimpse], None]
Say = Callable[[str], None]


def launch(
    site: Site, *, tell: Tell, say: Say, approved: Approving | None = None, deviation: str | None = None
) -> Outcome:
    """Run a plan to its end, or go on with it; a finished plan is left alone.

    `tell` gets a glimpse every half second, `say` a line at every stage; `approved` is what a person lets it cost, and
    `deviation` what one says of a plan that changed after results were seen.

    Raises:
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay.
        ReplanError: money has to be moved first.
        PlanError: the recipe, its params, data or splits are not usable, or the plan leaves something unsaid.
        ReviewError: the plan needs revision.
        UnusableRootError: the store cannot be written or trusted.
        GateError: the experiment is complete under another plan, or a check has failed without a repair.
        HeldError: another launch that is alive holds the run.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests.
        FencedError: another launch has taken the run meanwhile.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
    """
    log = site.run_log(f"launch on {this_place().host}")
    ended_at = completed_at(site, log.state)
    if ended_at is not None:
        qc = read_qc(site.store, site.name, RUN, now=time.time())
        return Outcome(
            experiment=site.name, run=RUN, reason="completed", update=ended_at, already=True, qc=qc
        )
    people = People(site.store, site.name)
    claimed = claim(site, log, people, approved, deviation, say)
    start = claimed.start
    if start.receipt is not None:
        say(f"resume from update {start.receipt.update:,} · {start.receipt.exactness}")
        for passed in start.receipt.passed_over:
            say(f"passed over update {passed.update:,}: {passed.why}")
    return _Launch(site, claimed, log, people, tell, say).run()


def _policy(plan: Plan) -> brain.Policy:
    return brain.Policy(curves_every=plan.run.curves.every, attempts=plan.run.attempts)


# --- the loop -----------------------------------------------------------------------------------------------


class _Launch:
    """One launch that owns its run."""

    def __init__(
        self, site: Site, claimed: Claimed, log: RunLog, people: People, tell: Tell, say: Say
    ) -> None:
        self._site = site
        self._task = claimed.task
        self._purse = Purse(site, claimed.task, claimed.spending)
        self._log = log
        self._people = people
        self._tell = tell
        self._say = say
        self._signals = Signals(say)
        self._paused: str | None = None
        self._overdrawn = False
        """What was reserved is used up, and no boundary came before."""
        self._training = Training(claimed.task, site.plan)
        self._followed = Followed()
        self._drawn = 0
        self._told = 0
        self._away_since: float | None = None
        self._ray: LocalRay | None = None
        self._door: Door | None = None
        self._pictures = Pictures(site, say)
        self._qc: QcBeside | None = None
        self._glance: Glance | None = None

    def run(self) -> Outcome:
        with self._signals.handled() as handle:
            self._reserve()
            try:
                self._start_ray()
                handle()  # Ray has put its own handlers there
                while not self._patient_turn():
                    self._wait()
                self._drain_qc()
            finally:
                self._close()
                cost = self._settle()
                self._let_go()
        qc, pictures = (None, ()) if self._qc is None else (self._qc.read(), self._qc.pictures.values())
        return replace(self._outcome(), cost=cost, qc=qc, pictures=tuple(pictures))

    def _reserve(self) -> None:
        """Nothing starts before its worst case is reserved; a refusal lets go of the run again."""
        try:
            self._purse.reserve()
        except RaykitError:
            self._leave()
            raise

    def _settle(self) -> int | None:
        """Say what the launch has cost, now that it holds nothing any more; None if that cannot be written now."""
        state = self._log.state
        mine = [attempt for attempt in state.attempts if attempt.launch == self._task.launch]
        rows = [row for row in self._followed.rows if mine and row.attempt == mine[-1].attempt]
        ended = None if not mine else state.ends.get(mine[-1].attempt)
        try:
            cost = self._purse.settle(
                reason="killed" if ended is None else ended.reason,
                attempts=len(mine),
                wall_ms=int(rows[-1].elapsed_s * 1000) if rows else 0,
            )
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            self._say(f"what this launch has cost could not be written ({error}); the next launch settles it")
            return None
        return cost

    def _let_go(self) -> None:
        """See to machines that are billed whether or not anyone works on them."""
        try:
            self._purse.let_go(self._say)
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            self._say(f"what is still held could not be written ({error}); the next launch does")

    def _close(self) -> None:
        """End the checks, and then the Ray that they run in."""
        try:
            if self._qc is not None:
                self._glance = self._qc.close(grace_s=LEAVE_S if self._signals.come else UNIT_S)
        finally:
            if self._ray is not None:
                self._ray.close()

    def _start_ray(self) -> None:
        for ended in end_leftovers():
            self._say(f"ended a leftover of a killed launch: {ended.name}, process {ended.pid}")
        self._say("starting a private Ray on this machine")
        plan = self._site.plan
        slots = 0 if plan.qc is None else slots_of(plan)
        self._ray = start_local(
            cpus=plan.run.workers + SPARE_CPUS + slots, resources={"qc": float(slots)} if slots else {}
        )
        # Ray prints what happens to its workers on this process's stdout, where the result belongs.
        ray_worker._worker_logs_enabled = False
        self._say(f"dashboard {self._ray.dashboard_url}")
        self._door = self._purse.door()
        if plan.qc is not None:
            free = int(ray.cluster_resources().get("GPU", 0)) - plan.run.workers
            self._qc = QcBeside(
                self._site,
                plan.qc,
                self._task.launch,
                self._purse.spending,
                self._purse.seat,
                folder=self._ray.folder,
                gpus=1.0 if free >= slots else 0.0,
                say=self._say,
                ray_lost=self._ray.lost,
            )

    def _wait(self) -> None:
        """Until the next turn: half a second, or less if training returns."""
        if self._training.word == "running":
            self._training.wait(LOOP_S)
        elif self._away_since is not None:
            time.sleep(LOOP_S)

    def _patient_turn(self) -> bool:
        """One turn; while the store does not answer, hold as long as the workers do, and what is paid for lasts.

        Raises:
            StoreUnavailableError: it stayed away longer than that.
        """
        try:
            done = self._turn()
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._say(f"the store does not answer ({error}); holding for up to {self._task.hold_s:.0f} s")
            if now - self._away_since > self._task.hold_s or self._purse.known_left_s < BACKSTOP_S:
                raise
            return False
        self._away_since = None
        return done

    def _turn(self) -> bool:
        """Observe, reconcile, act; True when this launch has let go."""
        self._log.refresh()
        state = self._log.state
        if self._has_let_go(state):
            self._pause_at_the_ceiling()
            return True
        pause = self._heed_people()
        self._look_at_qc()
        self._followed.follow(self._site.store, state.events)
        self._tell_glimpse(state)
        self._tell_restarts(state)
        if self._purse.left_s(self._told) < BACKSTOP_S:
            self._overdrawn = True
            self._leave()
            return True
        seen = brain.Seen(
            launch=self._task.launch,
            place=this_place(),
            training=self._training.word,
            starts=self._training.starts,
            refused=isinstance(self._training.error, RaykitError),
            signal=self._signals.come,
            pause=self._paused,
            cause=None if pause is None else pause.pause.cause,
            failed_qc=self._failed_qc(state),
            curves_update=self._drawn,
        )
        actions = brain.reconcile(_policy(self._site.plan), state, seen, time.time())
        return any(self._act(action) for action in actions)

    def _tell_glimpse(self, state: brain.RunState) -> None:
        glimpse = self._followed.glimpse(state, self._site.plan.run.updates)
        self._tell(replace(glimpse, qc=None if self._glance is None else words(self._glance)))

    # --- QC beside it ---------------------------------------------------------------------------------------

    def _look_at_qc(self) -> None:
        if self._qc is not None:
            self._glance = self._qc.turn()
            self._qc.draw()

    def _failed_qc(self, state: brain.RunState) -> str | None:
        """The failed check that ends the attempt that is under way, where the plan says so."""
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        return self._qc.ends_run if self._qc is not None and mine and state.ended is None else None

    def _drain_qc(self) -> None:
        """Once training is complete, what is still open is examined before the launch ends, within the plan's bound."""
        if self._qc is None or not self._log.state.completed:
            return

        def stop() -> str | None:
            self._heed_people()
            return self._signals.come or self._paused

        def tell(glance: Glance) -> None:
            self._glance = glance
            self._tell_glimpse(self._log.state)

        self._settle()  # training holds nothing any more; checks are paid by leases of their own
        read = self._qc.read()
        if read is not None and read.pause is not None:
            self._say(f"its QC is {read.pause.words}: what is open of it stays open")
            return
        self._say("training is complete; what is open of its QC is examined now")
        self._qc.drain(stop, tell)

    # --- people ---------------------------------------------------------------------------------------------

    def _has_let_go(self, state: brain.RunState) -> bool:
        """Whether this launch's last word is in the log, though the reply to it was lost."""
        launched = state.launched
        return launched is not None and launched.launch == self._task.launch and state.released is not None

    def _heed_people(self) -> InForce | None:
        """The pause in force, if there is one; what is said once stays said for this launch."""
        acts = self._people.refresh()
        found = in_force(acts, scopes_of(self._site.name, "train", self._task.contract))
        words = None if found is None else found.words
        if acts.cancelled is not None:
            words = f"cancelled by {acts.cancelled.person}: {acts.cancelled.reason}"
        if words is not None and self._paused is None:
            self._paused = words
            self._say(f"{words}; committing at the next update, then leaving")
        return found

    def _tell_restarts(self, state: brain.RunState) -> None:
        """Say that Ray started the gang again: nobody would see it in the bar."""
        mine = [attempt for attempt in state.attempts if attempt.launch == self._task.launch]
        for attempt in mine[max(1, self._told) :]:
            start = "the start" if attempt.resume is None else f"update {attempt.resume.update:,}"
            self._say(f"the gang was lost and is there again: attempt {attempt.attempt}, from {start}")
        self._told = len(mine)

    def _act(self, action: brain.Action) -> bool:
        match action:
            case brain.StartTraining():
                self._start_training()
            case brain.RequestStop(why, cause, reason):
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
        ray, door, training = self._ray, self._door, self._training
        assert ray is not None and door is not None
        used = sum(attempt.launch == self._task.launch for attempt in self._log.state.attempts)
        if used:
            self._say(
                f"training came back without an end ({training.why}); starting attempt {used + 1} of this launch"
            )
        training.start(storage=ray.folder / "train", door=door, used=used)

    def _failed_gate(self, reason: EndReason, why: str) -> list[Record]:
        """What keeps full runs from starting again before a repair is recorded, where a failed check ends this one."""
        suite = None if self._qc is None else self._qc.suite
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
        return self._signals.come is not None or self._paused is not None or self._overdrawn

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
                        cause="ceiling" if self._overdrawn else None,
                    )
                    events.append(ended)
                reason = ended.reason
            return [*events, Released(launch=self._task.launch, reason=reason)]

        self._log.append(decide, at=time.time())
        self._pause_at_the_ceiling()

    def _pause_at_the_ceiling(self) -> None:
        """Work that ended because its money did stays paused until a person has moved some."""
        state, error = self._log.state, self._training.error
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        ended = state.ended if mine else None
        at_end = self._overdrawn or (ended is not None and ended.cause == "ceiling")
        if not at_end and not isinstance(error, BudgetError):
            return
        pause(
            self._site.store,
            f"experiment:{self._site.name}",
            cause="ceiling",
            reason=str(error) if isinstance(error, BudgetError) else (ended and ended.detail) or OVERDRAWN,
            person=f"launch {self._task.launch}",
            at=time.time(),
        )

    def _how(self) -> EndReason:
        """How an attempt ended that could not say so: its recipe failed, its money did, or it was killed."""
        if self._overdrawn:
            return "paused"
        return "failed" if self._training.failed else "killed"

    # --- the end --------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        state = self._log.state
        ended = state.ended
        mine = state.attempt is not None and state.attempt.launch == self._task.launch
        rows = self._followed.rows
        if ended is None or not mine:
            return Outcome(
                experiment=self._site.name,
                run=RUN,
                reason="paused" if self._told_to_stop else "failed",
                update=state.recorded(),
                detail=OVERDRAWN if self._overdrawn else self._paused or self._training.why,
                cause="ceiling" if self._overdrawn else None,
            )
        return Outcome(
            experiment=self._site.name,
            run=RUN,
            reason=ended.reason,
            update=ended.update,
            detail=ended.detail,
            cause=ended.cause,
            ratio=rows[-1].ratio if rows else None,
            curves=tuple(self._pictures.drawn.values()),
        )
