"""A trial that trains nothing: any function of a setting, under the same table, money, log, pause and ends.

For a benchmark, a test, or a search over something that is no recipe. What it reports is durable before it goes on, and
that is its boundary: it resumes after the last report, and keeps nothing else.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raykit.errors import FencedError, FleetPaused, RaykitError
from raykit.fleet.search.job import Report
from raykit.fleet.search.training import Reports
from raykit.ids import sha256
from raykit.reconcile import require_attempt, require_launch
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Cause,
    EndReason,
    EvaluationRow,
    Record,
    Row,
    RunEntry,
    Segment,
    Series,
    Setting,
)
from raykit.store import layout, open_store
from raykit.store.log import RunLog
from raykit.store.place import this_place
from raykit.train.door import Door
from raykit.train.hold import patiently


class Objective(Protocol):
    """What a search may optimise without training. Travels pickled: a function of a module, or an object of one."""

    def __call__(self, setting: Setting, after: int, report: Callable[[int, float], None]) -> None:
        """Work on from update `after`, and `report` every update with its value, the last of the plan included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTask:
    """The run of one start of one row: what a trial's process needs to know, without PyTorch."""

    root: str
    experiment: str
    run: str
    launch: str
    plan: str
    code: str
    data: str
    hold_s: float
    batch: int
    metric: str
    setting: Setting


class _Stop(BaseException):
    """Leave the objective at a report. Not an `Exception`: the objective's own handlers must not keep it."""

    def __init__(self, why: str, cause: Cause | None, reason: EndReason = "paused") -> None:
        super().__init__(why)
        self.why = why
        self.cause = cause
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveJob:
    """Runs an objective as one attempt of a run."""

    task: ObjectiveTask
    objective: Objective
    after: int | None
    """The update of the last report that is known; None if none is."""
    door: Door

    def __call__(self, report: Callable[[Report], None]) -> None:
        """Run it to its end, or to the report at which it was told to stop.

        Raises:
            RaykitError: what was refused before the attempt had a number.
        """
        _Attempt(self.task, self.door, self.after, report).run(self.objective)


class _Attempt:
    """One attempt, from its lease to its end."""

    def __init__(
        self, task: ObjectiveTask, door: Door, known: int | None, report: Callable[[Report], None]
    ) -> None:
        self._task = task
        self._door = door
        self._store = open_store(task.root)
        self._log = RunLog(self._store, task.experiment, task.run, by=f"{task.launch}/rank-0")
        self._reports = Reports(
            task.root,
            experiment=task.experiment,
            run=task.run,
            metric=task.metric,
            after=known,
            report=report,
        )
        self._attempt = 0
        self._began = self._ends = time.monotonic()

    def run(self, objective: Objective) -> None:
        self._begin()
        self._pass_on()  # what one that was killed had written, and could not report
        try:
            objective(self._task.setting, self._recorded, self._add)
        except _Stop as stop:
            self._end(stop.reason, detail=stop.why, cause=stop.cause)
        except RaykitError as error:
            self._end("failed", detail=f"{error.kind}: {error}")
            raise
        else:
            self._end("completed")

    @property
    def _recorded(self) -> int:
        return self._log.state.recorded()

    # --- the start ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Have the attempt reserved, and say that it begins.

        Raises:
            FleetPaused: it was asked to stop before it began: it does not begin.
            FencedError: another launch has taken the run.
            RaykitError: the door does not let it begin.
        """
        launch, hold_s = self._task.launch, self._task.hold_s
        patiently(self._log.refresh, hold_s=hold_s)
        state = self._log.state
        require_launch(state, launch)
        if state.stop is not None:
            raise FleetPaused(state.stop.why)
        asked_at = time.monotonic()
        grant = self._door.begin(launch, 1 + sum(each.launch == launch for each in state.attempts))
        self._ends = asked_at + (grant.left_ms - grant.drain_ms) / 1000
        patiently(
            lambda: self._log.append(lambda entries: self._started(grant.lease), at=time.time()),
            hold_s=hold_s,
        )
        self._began = time.monotonic()

    def _started(self, lease: str) -> list[Record]:
        state, task = self._log.state, self._task
        require_launch(state, task.launch)
        before = state.attempt
        if before is not None and before.lease == lease:
            return []  # its reply was lost: it is there already
        if before is not None and before.launch == task.launch and before.attempt in state.ends:
            raise FencedError(f"attempt {before.attempt} of this launch has ended; another launch may go on")
        self._attempt = 1 if before is None else before.attempt + 1
        killed: list[Record] = []
        if before is not None and before.attempt not in state.ends:
            killed = [AttemptEnded(attempt=before.attempt, reason="killed", update=state.recorded())]
        started = AttemptStarted(
            attempt=self._attempt,
            launch=task.launch,
            place=this_place(),
            world_size=1,
            facts={"python": platform.python_version()},
            plan=task.plan,
            code=task.code,
            data=task.data,
            lease=lease,
        )
        return [*killed, started]

    # --- its reports ----------------------------------------------------------------------------------------

    def _add(self, update: int, value: float) -> None:
        """Make one report durable, pass it on, and go on or leave."""
        patiently(lambda: self._write(update, value), hold_s=self._task.hold_s)
        self._pass_on()
        stop = self._log.state.stop
        if stop is not None:
            raise _Stop(stop.why, stop.cause, stop.reason)
        if time.monotonic() > self._ends:
            raise _Stop("what is reserved for this attempt is at its end", "ceiling")

    def _pass_on(self) -> None:
        patiently(self._reports.pass_on, hold_s=self._task.hold_s)

    def _write(self, update: int, value: float) -> None:
        first, elapsed_s = self._recorded + 1, round(time.monotonic() - self._began, 3)
        if update < first:
            return  # its reply was lost: it is there already
        rows = [self._row(each, elapsed_s) for each in range(first, update + 1)]
        events = [
            self._segment("train", rows),
            self._segment("development", [self._evaluation(update, value, elapsed_s)]),
        ]

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            require_attempt(self._log.state, self._task.launch, self._attempt)
            return [] if events[0] in self._log.state.events else events

        self._log.append(decide, at=time.time())

    def _segment(self, series: Series, rows: Sequence[Row] | Sequence[EvaluationRow]) -> Record:
        data = b"".join(row.to_bytes() + b"\n" for row in rows)
        first, last = rows[0].update, rows[-1].update
        key = layout.segment(self._task.experiment, self._task.run, self._attempt, series, first, last)
        self._store.put_new(key, data)
        return Segment(
            series=series,
            attempt=self._attempt,
            first=first,
            last=last,
            key=key,
            sha256=sha256(data),
            size_bytes=len(data),
        )

    def _row(self, update: int, elapsed_s: float) -> Row:
        batch = self._task.batch
        return Row(
            attempt=self._attempt,
            update=update,
            epoch=0,
            samples=((update - 1) * batch, update * batch),
            sources={},
            loss=None,
            terms={},
            lr=(),
            grad_norm=None,
            clipped=False,
            elapsed_s=elapsed_s,
        )

    def _evaluation(self, update: int, value: float, elapsed_s: float) -> EvaluationRow:
        metric = self._task.metric.removeprefix("development.")
        return EvaluationRow(
            attempt=self._attempt,
            update=update,
            rows=1,
            metrics={metric: value if math.isfinite(value) else None},
            elapsed_s=elapsed_s,
            best=False,
        )

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self, reason: EndReason, *, detail: str | None = None, cause: Cause | None = None) -> None:
        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            require_launch(state, self._task.launch)
            if self._attempt in state.ends:
                return []  # its reply was lost: it is there already
            return [
                AttemptEnded(
                    attempt=self._attempt,
                    reason=reason,
                    update=state.recorded(),
                    detail=detail,
                    cause=cause,
                )
            ]

        patiently(lambda: self._log.append(decide, at=time.time()), hold_s=self._task.hold_s)
