"""A run's log that an attempt may write to, without the launch that usually makes one."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

from raykit.ids import digest_of
from raykit.plan import contract, load_plan
from raykit.records import AttemptStarted, Launched, Record
from raykit.store.base import ObjectStore
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.place import this_place
from raykit.train.inputs import Task
from raykit.train.prepare import freeze, prepare
from raykit.train.revision import git_of
from raykit.train.rows import Stamp

LAUNCH = secrets.token_hex(6)
DIGEST = "0" * 64


def frozen_task(root: Path, plan_path: Path) -> Task:
    """Freeze the plan beside its recipe, and take the run, as `raykit launch` does before it starts workers."""
    data = plan_path.read_bytes()
    plan = load_plan(data, where=str(plan_path))
    store = LocalStore(root)
    ready = prepare(plan, data, plan_path.parent)
    freeze(store, ready, git_of(plan_path.parent, ready.files))
    task = Task(
        root=str(root),
        experiment=plan.name,
        run="main",
        launch=LAUNCH,
        plan=ready.lock_sha256,
        contract=digest_of(contract(plan)),
        code=ready.code_sha256,
        data=ready.data_sha256,
    )
    _append(run_log(store, task.experiment, task.run), [_launched()])
    return task


def opened_attempt(store: ObjectStore, experiment: str, run: str) -> tuple[RunLog, Stamp]:
    """A run without a plan, whose attempt 1 has started: enough for history and checkpoints."""
    log = run_log(store, experiment, run)
    started = AttemptStarted(
        attempt=1,
        launch=LAUNCH,
        place=this_place(),
        world_size=1,
        facts={},
        plan=DIGEST,
        code=DIGEST,
        data=DIGEST,
    )
    _append(log, [_launched(), started])
    return log, Stamp(experiment=experiment, run=run, launch=LAUNCH, attempt=1)


def _launched() -> Launched:
    return Launched(launch=LAUNCH, place=this_place(), lease_s=60.0, raykit="0")


def _append(log: RunLog, events: list[Record]) -> None:
    log.append(lambda entries: events, at=time.time())


def run_log(store: ObjectStore, experiment: str, run: str) -> RunLog:
    """The log of a run, as this process writes and reads it."""
    return RunLog(store, experiment, run, by="benchmark")
