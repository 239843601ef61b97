"""One row in hand: its run, claimed and reserved under a launch of its own, and the loop that it turns."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from raykit.errors import CorruptError
from raykit.fleet.accelerators import divide
from raykit.fleet.claim import claim_trial
from raykit.fleet.follow import Glimpse
from raykit.fleet.run_loop import RunLoop
from raykit.fleet.search.ending import Came, came_to
from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.job import Job
from raykit.fleet.search.machines import Checks
from raykit.fleet.search.objective import Objective, ObjectiveJob, ObjectiveTask
from raykit.fleet.search.opening import Opened
from raykit.fleet.search.outcome import Live
from raykit.fleet.search.training import TrainingJob, TrialTraining
from raykit.plan import Plan
from raykit.read.rows import RowTable
from raykit.reconcile import RunState
from raykit.records import EvaluationRow, Setting
from raykit.search import RowState
from raykit.search.worth import Worth, unreported, worth_of
from raykit.store.base import ObjectStore
from raykit.store.place import this_place
from raykit.train.door import Door
from raykit.train.inputs import Task

Say = Callable[[str], None]


@dataclass(slots=True)
class Heard:
    """What ends a row beside people and its own plan; the loop of its run asks at every turn."""

    run: str
    told: Callable[[], str | None]
    """Why the whole search stops, if it does."""
    checks: Checks | None
    ruled: str | None = None
    """Why the scheduler stops this row."""
    unreported: str | None = None
    """Why it can never be worth anything: what decides is not among its metrics."""

    @property
    def stopped(self) -> str | None:
        """A signal or a pause for all of the search, or the scheduler for this row."""
        return self.ruled or self.told()

    @property
    def failed(self) -> str | None:
        """The failed check of this row that ends it, or that it has not the metric that decides."""
        return self.unreported or self._failed_check

    @property
    def _failed_check(self) -> str | None:
        return None if self.checks is None else self.checks.ends(self.run)

    @property
    def suite(self) -> str | None:
        """Of that check; None if it is no check that ends the row."""
        return None if self.checks is None or self.unreported else self.checks.suite

    @property
    def qc(self) -> str | None:
        """How far the checks of this row are."""
        return None if self.checks is None else self.checks.words(self.run)


class LiveRow:
    """A row that this process has begun, until its loop has let go of it."""

    def __init__(
        self,
        opened: Opened,
        row: RowState,
        exchange: Exchange,
        heard: Heard,
        *,
        objective: Objective | None,
        say: Say,
    ) -> None:
        """Claim its run for a launch of its own.

        Raises:
            HeldError: another launch that is alive holds the run.
            ExactnessError: the resume would be less exact than the plan needs.
            ConflictError: the run is recorded with another setting.
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
        """
        setting = row.setting
        if setting is None:
            raise CorruptError(f"{row.run} is begun without a setting")
        self.n = row.n
        self.run = row.run
        self.launch = secrets.token_hex(6)
        self.heard = heard
        self.done = False
        """Its loop has let go of its run."""
        self.glimpse: Glimpse | None = None
        self._metric = opened.registration.metric
        self._site = opened.site.of_trial(row.run, setting)
        self._log = self._site.run_log(f"search on {this_place().host}")
        claimed = claim_trial(
            self._site,
            self._log,
            opened.people.acts,
            replace(opened.task, launch=self.launch),
            opened.spending,
            setting=setting,
            locked=opened.locked,
            code=opened.code,
            outside=opened.outside,
        )
        make = _Jobs(claimed.task, self._site.plan, opened.registration.metric, setting, objective)
        title = f"{opened.site.name} {row.run}"
        self.training = TrialTraining(exchange, run=row.run, title=title, make=make)
        self.loop = RunLoop(
            self._site,
            claimed,
            self._log,
            opened.people,
            training=self.training,
            ended=heard,
            tell=self._tell,
            say=say,
            role="search",
        )

    def _tell(self, glimpse: Glimpse) -> None:
        self.glimpse = glimpse
        self.heard.unreported = unreported(self._metric, self.loop.evaluations)

    def seen(self, exchange: Exchange) -> Live:
        """One look at it."""
        return Live(run=self.run, glimpse=self.glimpse, newest=exchange.newest(self.run))

    def came(self, row: RowState, *, cancelled: str | None) -> Came | None:
        """What it came to, now that its loop has let go; None if it goes on another time."""
        came = came_to(row, self._log.state, cancelled=cancelled)
        if came is not None:
            return came
        if self.loop.money_cause == "replan":
            return None  # it waits with those that nobody has begun, until a person has decided
        if (why := self.loop.at_ceiling) is not None:
            return Came(end="censored-by-budget", detail=why)
        outcome = self.loop.outcome()
        if outcome.reason in ("failed", "killed"):
            return Came(end="failed", detail=outcome.detail or outcome.reason)
        return None


def evaluations_of(store: ObjectStore, run: RunState) -> list[EvaluationRow]:
    """The evaluations of a run that count.

    Raises:
        CorruptError: its rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    return list(RowTable(store, run.events, "development", EvaluationRow))


def worth(store: ObjectStore, plan: Plan, metric: str, run: RunState) -> Worth:
    """What the history and the checkpoints of a run are worth.

    Raises:
        CorruptError: its rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    return worth_of(plan.run.selection, metric, evaluations_of(store, run), run.commits)


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Makes the job of each start: it trains the run, or runs an objective as one."""

    task: Task
    plan: Plan
    metric: str
    setting: Setting
    objective: Objective | None

    def __call__(self, *, serial: int, used: int, after: int | None, storage: Path, door: Door) -> Job:
        task, run = self.task, self.plan.run
        if self.objective is None:
            return TrainingJob(
                task=task,
                plan=self.plan,
                metric=self.metric,
                after=after,
                storage=str(storage),
                name=f"{task.launch}-{serial}",
                restarts=max(0, run.attempts - used - 1),
                door=door,
                gpus=divide(self.plan, slots=0).rank,
            )
        told = ObjectiveTask(
            root=task.root,
            experiment=task.experiment,
            run=task.run,
            launch=task.launch,
            plan=task.plan,
            code=task.code,
            data=task.data,
            hold_s=task.hold_s,
            batch=run.batch,
            metric=self.metric,
            setting=self.setting,
        )
        return ObjectiveJob(task=told, objective=self.objective, after=after, door=door)
