"""A trial that trains: what its process does, and how the loop of its run watches it through Ray Tune."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from raykit.errors import RaykitError, StoreUnavailableError, Unknown, by_kind
from raykit.fleet.follow import Followed
from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.job import Back, Job, Report
from raykit.plan import Plan
from raykit.store import open_store
from raykit.store.log import RunLog
from raykit.train.door import Door
from raykit.train.hold import patiently

POLL_S: Final = 0.5


class Reports:
    """The evaluations of one run, read from the store and passed on once each."""

    def __init__(
        self,
        root: str,
        *,
        experiment: str,
        run: str,
        metric: str,
        after: int | None,
        report: Callable[[Report], None],
    ) -> None:
        """Those up to update `after` are known."""
        self._store = open_store(root)
        self._log = RunLog(self._store, experiment, run, by="reader")
        self._run = run
        self._metric = metric.removeprefix("development.")
        self._newest = -1 if after is None else after
        self._report = report
        self._followed = Followed()

    def pass_on(self) -> None:
        """Pass on what is new.

        Raises:
            CorruptError: the run's log or its rows are damaged.
            StoreUnavailableError: the store did not answer.
        """
        self._log.refresh()
        self._followed.follow(self._store, self._log.state.events)
        for row in self._followed.evaluations:
            value = row.metrics.get(self._metric)
            if row.update > self._newest:
                self._newest = row.update
                if value is not None:
                    self._report(Report(run=self._run, update=row.update, value=value))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Trains one run: one worker in the trial's own process, more of them as a gang that this process starts."""

    task: Any
    """A `raykit.train.inputs.Task`; read where it trains, so that nothing else needs PyTorch."""
    plan: Plan
    metric: str
    after: int | None
    """The update of the last report that is known; None if none is."""
    storage: str
    name: str
    restarts: int
    door: Door
    gpus: float
    """What each rank asks Ray for."""

    def __call__(self, report: Callable[[Report], None]) -> None:
        """Train to the end of this start, and report the evaluations as they become durable.

        Raises:
            RaykitError: what was refused before the attempt had a number; later refusals are in the run's log.
        """
        from raykit.train.runner import fit

        reports = Reports(
            self.task.root,
            experiment=self.task.experiment,
            run=self.task.run,
            metric=self.metric,
            after=self.after,
            report=report,
        )
        ended = threading.Event()
        follower = threading.Thread(target=_follow, args=(reports, ended), name="raykit-reports", daemon=True)
        follower.start()
        try:
            fit(
                self.task,
                self.plan,
                storage=Path(self.storage),
                name=self.name,
                restarts=self.restarts,
                door=self.door,
                gpus=self.gpus,
                here=self.plan.run.workers == 1,
            )
        finally:
            ended.set()
            follower.join()
        patiently(reports.pass_on, hold_s=self.task.hold_s)


def _follow(reports: Reports, ended: threading.Event) -> None:
    while not ended.wait(POLL_S):
        try:
            reports.pass_on()
        except StoreUnavailableError:
            continue  # who trains knows how long to wait for a store, and says so


class MakeJob(Protocol):
    """Makes the job of one start of one row."""

    def __call__(self, *, serial: int, used: int, after: int | None, storage: Path, door: Door) -> Job:
        """`serial` counts the starts of this launch, from 1; `used` of its attempts have begun before."""
        ...


class TrialTraining:
    """One row in Ray Tune's hands, as the loop of its run sees it. Starting it again is for when its process died."""

    def __init__(self, exchange: Exchange, *, run: str, title: str, make: MakeJob) -> None:
        self._exchange = exchange
        self._run = run
        self._title = title
        self._make = make
        self._serial: int | None = None
        self.starts = 0
        """How often it was started."""

    @property
    def word(self) -> str:
        """`not-started`, `running` or `returned`."""
        if self._serial is None:
            return "not-started"
        return "running" if self._back is None else "returned"

    def start(self, *, storage: Path, door: Door, used: int) -> None:
        """Put it where Tune takes it."""
        self.starts += 1
        known = self._exchange.newest(self._run)
        after = None if known is None else known.update
        job = self._make(serial=self.starts, used=used, after=after, storage=storage, door=door)
        self._serial = self._exchange.hand(self._run, self._title, job)

    def wait(self, timeout_s: float) -> None:
        """Until it returns, or so long."""
        if self._serial is not None:
            self._exchange.wait(timeout_s, self._serial)

    @property
    def error(self) -> BaseException | None:
        """What the newest start came back with."""
        back = self._back
        if back is None:
            return None
        if back.refused is not None:
            kind, _, message = back.refused.partition(": ")
            return by_kind(kind)(message)
        if back.failed is not None:
            return RuntimeError(back.failed)
        return None if back.lost is None else ChildProcessError(back.lost)

    @property
    def failed(self) -> bool:
        """Its recipe failed: the trial itself raised."""
        return self._back is not None and self._back.failed is not None

    @property
    def why(self) -> str | None:
        """Why it came back, as `kind: message`; None if nothing was raised."""
        error, back = self.error, self._back
        if error is None or back is None:
            return None
        return f"{error.kind}: {error}" if isinstance(error, RaykitError) else back.failed or back.lost

    @property
    def _back(self) -> Back | None:
        return None if self._serial is None else self._exchange.back(self._serial)


def lost_tune(error: BaseException | None) -> Unknown:
    """Tune itself has ended while rows were out."""
    said = "" if error is None else f": {type(error).__name__}: {error}"
    return Unknown(f"Ray Tune has ended{said[:400]}", remedy="the same command goes on")
