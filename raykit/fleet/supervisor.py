"""The launch process: one loop that observes, asks `reconcile`, and acts.

The run's log says everything, and this process may die at any instant: the next launch reads the log and goes on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from ray._private import worker as ray_worker
from ray.train import WorkerGroupError

from raykit import reconcile as brain
from raykit.errors import CorruptError, RaykitError, StoreUnavailableError, UnknownOutcomeError, by_kind
from raykit.fleet.claim import claim, completed_at
from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.session import LocalRay, end_leftovers, start_local
from raykit.fleet.site import RUN, Site
from raykit.plan import Plan
from raykit.records import AttemptEnded, Beat, EndReason, Record, Released, RunEntry, StopRequested
from raykit.report.curves import draw_development, draw_fields, draw_ratio
from raykit.store import layout
from raykit.store.log import RunLog
from raykit.store.place import this_place
from raykit.train.inputs import Task

LOOP_S = 0.5
SPARE_CPUS = 1
"""Beside one CPU per rank: for the train controller."""

Tell = Callable[[Glimpse], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended."""

    experiment: str
    run: str
    reason: EndReason
    update: int
    already: bool = False
    detail: str | None = None
    ratio: float | None = None
    curves: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 completed; 4 paused; otherwise the code of the error that ended it."""
        if self.reason == "completed":
            return 0
        if self.reason in ("paused", "preempted"):
            return 4
        return by_kind((self.detail or "").split(":", 1)[0]).exit_code


def launch(site: Site, *, tell: Tell, say: Say) -> Outcome:
    """Run a plan to its end, or go on with it; a finished plan is left alone.

    `tell` gets a glimpse every half second, `say` a line at every stage.

    Raises:
        PlanError: the recipe, its params, data or splits are not usable.
        UnusableRootError: the store cannot be written or trusted.
        GateError: the experiment is complete under another plan.
        HeldError: another launch that is alive holds the run.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests.
        FencedError: another launch has taken the run meanwhile.
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
    """
    log = site.run_log(f"launch on {this_place().host}")
    ended_at = completed_at(site, log.state)
    if ended_at is not None:
        return Outcome(experiment=site.name, run=RUN, reason="completed", update=ended_at, already=True)
    task, start = claim(site, log)
    if start.receipt is not None:
        say(f"resume from update {start.receipt.update:,} · {start.receipt.exactness}")
        for passed in start.receipt.passed_over:
            say(f"passed over update {passed.update:,}: {passed.why}")
    return _Launch(site, task, log, tell, say).run()


def _policy(plan: Plan) -> brain.Policy:
    return brain.Policy(curves_every=plan.run.curves.every, attempts=plan.run.attempts)


# --- the loop -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Training:
    """Ray Train's `fit` in a thread of its own."""

    thread: threading.Thread | None = None
    error: BaseException | None = None

    @property
    def word(self) -> str:
        if self.thread is None:
            return "not-started"
        return "running" if self.thread.is_alive() else "returned"


class _Launch:
    """One launch that owns its run."""

    def __init__(self, site: Site, task: Task, log: RunLog, tell: Tell, say: Say) -> None:
        self._site = site
        self._task = task
        self._log = log
        self._tell = tell
        self._say = say
        self._signal: str | None = None
        self._training = _Training()
        self._followed = Followed()
        self._drawn = 0
        self._told = 0
        self._away_since: float | None = None
        self._ray: LocalRay | None = None
        self._curves: dict[str, str] = {}

    def run(self) -> Outcome:
        with self._handling_signals() as handle:
            try:
                self._start_ray()
                handle()  # Ray has put its own handlers there
                while not self._patient_turn():
                    self._pause()
            finally:
                if self._ray is not None:
                    self._ray.close()
        return self._outcome()

    def _start_ray(self) -> None:
        for ended in end_leftovers():
            self._say(f"ended a leftover of a killed launch: {ended.name}, process {ended.pid}")
        self._say("starting a private Ray on this machine")
        self._ray = start_local(cpus=self._site.plan.run.workers + SPARE_CPUS, resources={})
        # Ray prints what happens to its workers on this process's stdout, where the result belongs.
        ray_worker._worker_logs_enabled = False
        self._say(f"dashboard {self._ray.dashboard_url}")

    def _pause(self) -> None:
        """Until the next turn: half a second, or less if training returns."""
        if self._training.word == "running" and self._training.thread is not None:
            self._training.thread.join(LOOP_S)
        elif self._away_since is not None:
            time.sleep(LOOP_S)

    def _patient_turn(self) -> bool:
        """One turn; while the store does not answer, hold as long as the workers do.

        Raises:
            StoreUnavailableError: it stayed away longer than `hold_s`.
        """
        try:
            done = self._turn()
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            now = time.monotonic()
            if self._away_since is None:
                self._away_since = now
                self._say(f"the store does not answer ({error}); holding for up to {self._task.hold_s:.0f} s")
            if now - self._away_since > self._task.hold_s:
                raise
            return False
        self._away_since = None
        return done

    def _turn(self) -> bool:
        """Observe, reconcile, act; True when this launch has let go."""
        self._log.refresh()
        state = self._log.state
        self._followed.follow(self._site.store, state.events)
        self._tell(self._followed.glimpse(state, self._site.plan.run.updates))
        self._tell_restarts(state)
        seen = brain.Seen(
            launch=self._task.launch,
            place=this_place(),
            training=self._training.word,
            signal=self._signal,
            curves_update=self._drawn,
        )
        actions = brain.reconcile(_policy(self._site.plan), state, seen, time.time())
        return any(self._act(action) for action in actions)

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
            case brain.RequestStop(why):
                self._append(StopRequested(launch=self._task.launch, why=why))
            case brain.SendBeat():
                self._append(Beat(launch=self._task.launch))
            case brain.DrawCurves(update):
                self._draw(update)
            case brain.Leave():
                self._leave()
                return True
            case _:
                raise CorruptError(f"a launch that owns its run was told to {type(action).__name__}")
        return False

    def _start_training(self) -> None:
        """Start the gang; again, with what is left of the attempts, if its controller died."""
        from raykit.train.runner import fit

        ray, plan, launch = self._ray, self._site.plan, self._task.launch
        assert ray is not None
        used = sum(attempt.launch == launch for attempt in self._log.state.attempts)
        if used:
            self._say(
                f"training came back without an end ({self._why()}); starting attempt {used + 1} of this launch"
            )
        training = self._training = _Training()

        def work() -> None:
            try:
                fit(
                    self._task,
                    plan,
                    storage=ray.folder / "train",
                    name=f"{launch}-{used}",
                    restarts=plan.run.attempts - used - 1,
                )
            except BaseException as error:  # noqa: BLE001 - it belongs to the loop, which records it
                training.error = error

        training.thread = threading.Thread(target=work, name="raykit-fit", daemon=True)
        training.thread.start()

    def _append(self, event: Record) -> None:
        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            brain.require_launch(self._log.state, self._task.launch)
            return [event]

        self._log.append(decide, at=time.time())

    def _leave(self) -> None:
        """Say how the attempt ended if it could not, and let go of the run."""

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            brain.require_launch(state, self._task.launch)
            events: list[Record] = []
            newest = state.attempt
            reason: EndReason = "paused" if self._signal else "failed"
            if newest is not None and newest.launch == self._task.launch:
                ended = state.ends.get(newest.attempt)
                if ended is None:
                    ended = AttemptEnded(
                        attempt=newest.attempt,
                        reason=self._how(),
                        update=state.recorded(),
                        detail=self._why(),
                    )
                    events.append(ended)
                reason = ended.reason
            return [*events, Released(launch=self._task.launch, reason=reason)]

        self._log.append(decide, at=time.time())

    def _how(self) -> EndReason:
        """How an attempt ended that could not say so: its recipe failed, or it was killed."""
        error = self._training.error
        return "failed" if isinstance(error, WorkerGroupError) else "killed"

    def _why(self) -> str | None:
        """Why training came back, as `kind: message`."""
        error = self._training.error
        if error is None:
            return None
        if isinstance(error, RaykitError):
            return f"{error.kind}: {error}"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
        said = lines[0] if len(lines) == 1 or not lines[0].endswith(":") else f"{lines[0]} {lines[-1]}"
        return f"{type(error).__name__}: {said[:400]}"

    # --- curves ---------------------------------------------------------------------------------------------

    def _draw(self, update: int) -> None:
        """Draw the curves from durable rows. Derived files: the last drawing wins, and none ends a run."""
        self._drawn = update
        for file, draw in self._pictures():
            key = layout.curve(self._site.name, RUN, file)
            try:
                self._site.store.put_derived(key, draw())
                self._curves[file] = key
            except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn is no reason to stop a run
                self._say(f"{file} could not be drawn: {error}")

    def _pictures(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """The pictures that there are rows for, each with what draws it."""
        name, plan, seen = self._site.name, self._site.plan, self._followed
        if seen.rows:
            title, decay = f"{name}: {plan.decision}", float(plan.run.curves.smooth.split()[1])
            yield (
                "ratio.png",
                lambda: draw_ratio(seen.rows, seen.evaluations, title=title, smooth_decay=decay),
            )
        if seen.evaluations:
            yield "development.png", lambda: draw_development(seen.evaluations, title=name)
        if seen.monitors:
            declared = plan.qc.fields if plan.qc is not None else {}
            yield "fields.png", lambda: draw_fields(seen.monitors, title=name, declared=declared)

    # --- signals --------------------------------------------------------------------------------------------

    @contextmanager
    def _handling_signals(self) -> Iterator[Callable[[], None]]:
        """SIGTERM and Ctrl-C ask for a commit and an end; a second Ctrl-C does not wait for it.

        Gives what puts the handlers there again, for after Ray has put its own.
        """

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._signal is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._signal = signal.Signals(number).name
            self._say(f"{self._signal}: committing at the next update, then leaving (Ctrl-C again: at once)")

        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def handle() -> None:
            for number in before:
                signal.signal(number, on_signal)

        handle()
        try:
            yield handle
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

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
                reason="paused" if self._signal else "failed",
                update=state.recorded(),
                detail=self._why(),
            )
        return Outcome(
            experiment=self._site.name,
            run=RUN,
            reason=ended.reason,
            update=ended.update,
            detail=ended.detail,
            ratio=rows[-1].ratio if rows else None,
            curves=tuple(self._curves.values()),
        )
