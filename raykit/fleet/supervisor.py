"""The launch process: one loop that observes, asks `reconcile`, and acts.

What is decided before anything is written or started: the plan, the recipe, the data, the store, who holds the
run, and how exact a resume would be. From then on the run's log says everything, and this process may die at any
instant: the next launch reads the log and goes on.
"""

from __future__ import annotations

import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import FrameType

from ray._private import worker as ray_worker

from raykit import reconcile as brain
from raykit.data.members import Membership, compare
from raykit.data.members import load as load_members
from raykit.errors import (
    CorruptError,
    GateError,
    HeldError,
    NotFoundError,
    PlanError,
    RaykitError,
    by_kind,
)
from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.session import LocalRay, end_leftovers, start_local
from raykit.ids import digest_of
from raykit.plan import Plan, contract, differences, load_plan, require_supported
from raykit.records import (
    Amended,
    AttemptEnded,
    Beat,
    Difference,
    EndReason,
    Exactness,
    ExperimentEntry,
    Launched,
    Locked,
    Record,
    Released,
    RunEntry,
    RunRecord,
    StopRequested,
)
from raykit.report.curves import draw_development, draw_fields, draw_ratio
from raykit.store import layout, open_store
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.place import alive, this_place
from raykit.store.probe import probe
from raykit.train import facts, frozen
from raykit.train.inputs import Task, read_plan
from raykit.train.prepare import Prepared, freeze, prepare
from raykit.train.recipe import recipe_folder
from raykit.train.resume import decide_start, difference_digest
from raykit.train.resume import differences as resume_differences

RUN = "main"
"""The run of a plan that is not a search."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A plan where it lies, and the store it runs in."""

    root: str
    store: ObjectStore
    plan: Plan
    plan_bytes: bytes
    folder: Path
    """The folder that the recipe's module is in."""

    @property
    def name(self) -> str:
        return self.plan.name


def site_of(plan_path: Path, root: str) -> Site:
    """Read a plan file.

    Raises:
        PlanError: it cannot be read, or its fields are wrong, or it needs what this version does not have.
        UnusableRootError: the root is not a path or an s3 URL.
    """
    try:
        data = plan_path.read_bytes()
    except OSError as error:
        raise PlanError(
            f"{plan_path} cannot be read: {error.strerror}",
            field="PLAN",
            value=str(plan_path),
            rule="a plan file",
        ) from error
    plan = load_plan(data, where=str(plan_path))
    require_supported(plan)
    folder = recipe_folder(plan.recipe, plan_path)
    return Site(root=root, store=open_store(root), plan=plan, plan_bytes=data, folder=folder)


@contextmanager
def stored_site(name: str, root: str) -> Iterator[Site]:
    """The newest locked plan of an experiment with its frozen code, unpacked for the time of the block.

    Raises:
        NotFoundError: no such experiment.
        CorruptError: what was frozen does not match its digests.
    """
    store = open_store(root)
    locked = newest_lock(store, name)
    if locked is None:
        raise NotFoundError(f"there is no experiment {name} in {store.url}", field="NAME", value=name)
    plan = read_plan(store, name, locked.plan)
    data = store.get(layout.plan(name, locked.plan, "plan.toml"))
    with tempfile.TemporaryDirectory(prefix="raykit-resume-") as folder:
        frozen.unpack(frozen.read_code(store, name, locked.code), Path(folder))
        yield Site(root=root, store=store, plan=plan, plan_bytes=data, folder=Path(folder))


def newest_lock(store: ObjectStore, name: str) -> Locked | None:
    """The newest plan that was locked for an experiment."""
    found = None
    for entry in Log(store, layout.experiment_log(name), ExperimentEntry, by="reader").refresh():
        for event in entry.events:
            if isinstance(event, Locked):
                found = event
    return found


# --- the launch ---------------------------------------------------------------------------------------------


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
        InsecureClusterError: the local Ray would listen beyond loopback, or without a token.
    """
    log = Log(site.store, layout.run_log(site.name, RUN), RunEntry, by=f"launch on {this_place().host}")
    log.refresh()
    done = already_complete(site, brain.fold(log.entries))
    if done is not None:
        return done
    ready = make_ready(site)
    task = task_of(site, ready)
    state = brain.fold(log.entries)
    _refuse_held(state, task)
    changed = changed_members(site, ready)
    start = decide_start(
        site.store,
        task,
        site.plan,
        state,
        facts.expected(site.plan),
        changed,
        code=frozen.folder_files(site.folder),
    )
    probe(site.store)
    _freeze(site, ready)
    take_run(log, task)
    if start.receipt is not None:
        say(f"resume from update {start.receipt.update:,} · {start.receipt.exactness}")
    for passed in start.receipt.passed_over if start.receipt is not None else ():
        say(f"passed over update {passed.update:,}: {passed.why}")
    return _Launch(site, task, log, tell, say).run()


def already_complete(site: Site, state: brain.RunState) -> Outcome | None:
    """The outcome of a run that is complete under this very plan.

    Raises:
        GateError: it is complete, under a plan that would train something else.
    """
    if not state.completed:
        return None
    ended, attempt = state.ended, state.attempt
    assert ended is not None and attempt is not None
    was = contract(read_plan(site.store, site.name, attempt.plan))
    changed = differences(was, contract(site.plan))
    if changed:
        named = "; ".join(f"{field}: {before} -> {after}" for field, before, after in changed[:5])
        raise GateError(
            f"{site.name} is complete, under another plan: {named}",
            field="name",
            value=site.name,
            rule="one name, one trained result",
            remedy="give the new plan a name of its own",
        )
    return Outcome(experiment=site.name, run=RUN, reason="completed", update=ended.update, already=True)


def make_ready(site: Site) -> Prepared:
    """Prepare with the members that the experiment already has."""
    return prepare(site.plan, site.plan_bytes, site.folder, kept=kept_members(site))


def kept_members(site: Site) -> Membership | None:
    """The members of the experiment's newest lock."""
    locked = newest_lock(site.store, site.name)
    return None if locked is None else load_members(site.store, site.name, locked.data)


def changed_members(site: Site, ready: Prepared) -> Difference | None:
    """How the data of today differ from the members that are kept, member by member."""
    kept = kept_members(site)
    if kept is None or kept.digest != ready.data_sha256:
        return None
    found = compare(kept, ready.source)
    return (
        None
        if found is None
        else Difference(what="split members", was="as stored", now=str(found), allows="inexact")
    )


def task_of(site: Site, ready: Prepared) -> Task:
    """What the workers of a new launch are told."""
    return Task(
        root=site.root if "://" in site.root else str(Path(site.root).resolve()),
        experiment=site.name,
        run=RUN,
        launch=secrets.token_hex(6),
        plan=ready.lock_sha256,
        contract=digest_of(contract(site.plan)),
        code=ready.code_sha256,
        data=ready.data_sha256,
    )


def _seen(state: brain.RunState, task: Task) -> brain.Seen:
    holder = state.launched
    return brain.Seen(
        launch=task.launch,
        place=this_place(),
        holder_alive=None if holder is None else alive(holder.place),
    )


def _policy(plan: Plan) -> brain.Policy:
    return brain.Policy(curves_every=plan.run.curves.every, attempts=plan.run.attempts)


def _refuse_held(state: brain.RunState, task: Task) -> brain.TakeRun:
    """The action that takes the run.

    Raises:
        HeldError: somebody alive has it.
    """
    (action,) = brain.reconcile(brain.Policy(curves_every=1), state, _seen(state, task), time.time())
    if isinstance(action, brain.RefuseHeld):
        place = action.holder.place
        raise HeldError(
            f"{task.experiment} is running: launch {action.holder.launch}, process {place.pid} on {place.host}, "
            f"last heard {time.time() - action.heard_at:.0f} s ago",
            remedy=f"raykit status; or end that launch: kill -TERM {place.pid}",
        )
    assert isinstance(action, brain.TakeRun)
    return action


def _freeze(site: Site, ready: Prepared) -> None:
    """Store what the lock binds, and say in the experiment's log that it is locked."""
    environment = freeze(site.store, ready)
    locked = Locked(
        plan=ready.lock_sha256,
        contract=digest_of(contract(site.plan)),
        code=ready.code_sha256,
        environment=environment,
        data=ready.data_sha256,
    )
    log = Log(site.store, layout.experiment_log(site.name), ExperimentEntry, by="launch")

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        locks = [event for entry in entries for event in entry.events if isinstance(event, Locked)]
        return [] if locks and locks[-1] == locked else [locked]

    log.append(decide, at=time.time())
    record = RunRecord(experiment=site.name, run=RUN, **locked.model_dump(exclude={"event"}))
    key = layout.run_record(site.name, RUN)
    if site.store.head(key) is None:
        site.store.put_new(key, record.to_bytes())


def take_run(log: Log[RunEntry], task: Task) -> None:
    """Write `launched`, after the ends of attempts that nobody ended.

    Raises:
        HeldError: another launch was faster, or holds the run.
    """

    def decide(entries: Sequence[RunEntry]) -> list[Record]:
        state = brain.fold(entries)
        if state.launched is not None and state.launched.launch == task.launch:
            return []
        action = _refuse_held(state, task)
        ends = [AttemptEnded(attempt=a, reason="killed", update=state.recorded()) for a in action.unended]
        claim = Launched(
            launch=task.launch, place=this_place(), lease_s=task.lease_s, raykit=metadata.version("raykit")
        )
        return [*ends, claim]

    log.append(decide, at=time.time())


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

    def __init__(self, site: Site, task: Task, log: Log[RunEntry], tell: Tell, say: Say) -> None:
        self._site = site
        self._task = task
        self._log = log
        self._tell = tell
        self._say = say
        self._signal: str | None = None
        self._training = _Training()
        self._followed = Followed()
        self._drawn = 0
        self._ray: LocalRay | None = None
        self._curves: dict[str, str] = {}

    def run(self) -> Outcome:
        with self._handling_signals() as handle:
            try:
                self._start_ray()
                handle()  # Ray has put its own handlers there
                while not self._turn():
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
        thread = self._training.thread
        if thread is not None:
            thread.join(LOOP_S)

    def _turn(self) -> bool:
        """Observe, reconcile, act; True when this launch has let go."""
        self._log.refresh()
        state = brain.fold(self._log.entries)
        self._followed.follow(self._site.store, state.events)
        self._tell(self._followed.glimpse(state, self._site.plan.run.updates))
        seen = brain.Seen(
            launch=self._task.launch,
            place=this_place(),
            training=self._training.word,
            signal=self._signal,
            curves_update=self._drawn,
        )
        actions = brain.reconcile(_policy(self._site.plan), state, seen, time.time())
        return any(self._act(action) for action in actions)

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
        used = sum(attempt.launch == launch for attempt in brain.fold(self._log.entries).attempts)
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
            brain.require_launch(brain.fold(entries), self._task.launch)
            return [event]

        self._log.append(decide, at=time.time())

    def _leave(self) -> None:
        """Say how the attempt ended if it could not, and let go of the run."""

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = brain.fold(entries)
            brain.require_launch(state, self._task.launch)
            events: list[Record] = []
            newest = state.attempt
            reason: EndReason = "paused" if self._signal else "failed"
            if newest is not None and newest.launch == self._task.launch:
                ended = state.ends.get(newest.attempt)
                if ended is None:
                    ended = AttemptEnded(
                        attempt=newest.attempt, reason="killed", update=state.recorded(), detail=self._why()
                    )
                    events.append(ended)
                reason = ended.reason
            return [*events, Released(launch=self._task.launch, reason=reason)]

        self._log.append(decide, at=time.time())

    def _why(self) -> str | None:
        error = self._training.error
        return (
            None if error is None else f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"
        )

    # --- curves ---------------------------------------------------------------------------------------------

    def _draw(self, update: int) -> None:
        """Draw the curves from durable rows. Derived files: the last drawing wins."""
        name, plan = self._site.name, self._site.plan
        decay = float(plan.run.curves.smooth.split()[1])
        pictures: dict[str, bytes] = {}
        if self._followed.rows:
            pictures["ratio.png"] = draw_ratio(
                self._followed.rows,
                self._followed.evaluations,
                title=f"{name}: {plan.decision}",
                smooth_decay=decay,
            )
        if self._followed.evaluations:
            pictures["development.png"] = draw_development(self._followed.evaluations, title=name)
        if self._followed.monitors:
            pictures["fields.png"] = draw_fields(
                self._followed.monitors, title=name, declared=plan.qc.fields if plan.qc is not None else {}
            )
        for file, data in pictures.items():
            key = layout.curve(name, RUN, file)
            self._site.store.put_derived(key, data)
            self._curves[file] = key
        self._drawn = update

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
        state = brain.fold(self._log.entries)
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


# --- amendments ---------------------------------------------------------------------------------------------


def amend(site: Site, *, allows: Exactness, reason: str, person: str) -> list[Difference]:
    """Record that a person lets this run go on with exactly the differences there are now.

    Raises:
        GateError: there is nothing to resume, no difference, or the differences leave less than `allows`.
    """
    log = Log(site.store, layout.run_log(site.name, RUN), RunEntry, by="reader")
    log.refresh()
    state = brain.fold(log.entries)
    if not state.commits:
        raise GateError(f"{site.name} has no checkpoint to resume from", remedy="raykit launch PLAN")
    ready = make_ready(site)
    task = task_of(site, ready)
    made_by = next(a for a in state.attempts if a.attempt == state.commits[-1].attempt)
    found = resume_differences(
        site.store, task, site.plan, made_by, facts.expected(site.plan), frozen.folder_files(site.folder)
    )
    changed = changed_members(site, ready)
    if changed is not None:
        found.append(changed)
    left = brain.lowest(found)
    if brain.falls_short(left, allows):
        raise GateError(
            f"what differs leaves {left}, which is less than {allows}",
            field="--as",
            value=allows,
            rule="; ".join(f"{d.what} leaves {d.allows}" for d in found),
            remedy=f"--as {left}, or put back what differs",
        )
    amendment = Amended(run=RUN, allows=allows, reason=reason, differences=difference_digest(tuple(found)))
    people = Log(site.store, layout.experiment_log(site.name), ExperimentEntry, by=person)
    people.append(lambda entries: [amendment], at=time.time())
    return found
