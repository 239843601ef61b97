"""Trials of a search in plain processes, without Ray and without money: ranks that train, and QC workers beside them.

    search = freeze_search(root, plan_path, settings)       # the plan locked, the table registered, every row begun
    ranks = [start(nursery, task) for task in search.tasks]
    with beside(root, "qc-1", TINY_QC="slow") as worker: ...   # python -m plaintrials ROOT NAME

A worker examines with the real bench; it ends once every trial is trained and nothing is left for it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import workerprocess
from nursery import Nursery, Rank
from plainrun import freeze_job, take
from workerprocess import Started

from raykit.fleet.site import site_of
from raykit.ids import digest_of
from raykit.plan import contract
from raykit.read.qc_runs import BegunTrials
from raykit.records import Begun, RunRecord, SearchEntry, SearchRegistration, Setting, TableRow
from raykit.search import SEARCH, run_of
from raykit.store import layout, open_store
from raykit.store.base import ObjectStore
from raykit.store.log import Log, RunLog
from raykit.store.place import this_place
from raykit.store.plans import newest_lock, newest_stored_lock
from raykit.store.qc import Examinations
from raykit.store.search import register
from raykit.train.inputs import Task

EXPERIMENT = "tiny"

QC = """
[qc]
owner      = "ada"
every      = 10
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 1000" }
on_failure = "continue"
tries      = 9
shares     = "this test has no other machine"
"""


@dataclass(frozen=True)
class Frozen:
    """A search whose rows have all begun, and what each of them trains."""

    store: ObjectStore
    tasks: Sequence[Task]


def freeze_search(root: Path, plan_path: Path, settings: Sequence[Setting]) -> Frozen:
    """Lock a plan, register a search with these settings, and begin every row."""
    whole = freeze_job(root, plan_path)
    site, store = site_of(plan_path, str(root)), open_store(str(root))
    locked = newest_lock(store, EXPERIMENT)
    assert locked is not None
    tasks = []
    for row, setting in enumerate(settings, 1):
        own = digest_of(contract(site.of_trial(run_of(row), setting).plan))
        task = replace(whole, run=run_of(row), contract=own, launch=secrets.token_hex(6))
        record = RunRecord(
            experiment=EXPERIMENT,
            run=task.run,
            setting=setting,
            **{**locked.model_dump(exclude={"event"}), "contract": own},
        )
        store.put_new(layout.run_record(EXPERIMENT, task.run), record.to_bytes())
        tasks.append(task)
    _register(store, whole, settings)
    log = Log(store, layout.search_log(EXPERIMENT, SEARCH), SearchEntry, by="test")
    begun = [Begun(row=n, launch=task.launch, place=this_place()) for n, task in enumerate(tasks, 1)]
    log.append(lambda entries: begun, at=time.time())
    return Frozen(store, tasks)


def _register(store: ObjectStore, task: Task, settings: Sequence[Setting]) -> None:
    registration = SearchRegistration(
        experiment=EXPERIMENT,
        search=SEARCH,
        plan=task.plan,
        contract=task.contract,
        code=task.code,
        data=task.data,
        hypothesis="a test",
        predicts="that it passes",
        metric="development.ratio",
        mode="min",
        sampler={"name": "grid"},
        space={"width": {"choice": sorted({each.params["width"] for each in settings})}},
        concurrent=len(settings),
        updates=40,
        attempts=3,
        unit="usd",
        row_worst=0,
        total_worst=0,
        rows=tuple(TableRow(row=n, seed=each.seed, params=each.params) for n, each in enumerate(settings, 1)),
    )
    register(store, registration)


def start(nursery: Nursery, task: Task, env: Mapping[str, str] | None = None) -> tuple[Task, Rank]:
    """Take a trial for the launch that its search has said, and train it with one rank."""
    taken = take(task, task.launch)
    rendezvous = f"file://{taken.root}-{taken.launch}.rendezvous"
    return taken, nursery.rank(taken.plain(), rendezvous=rendezvous, env=env or {})


@contextlib.contextmanager
def beside(root: Path, name: str, *, memory_gb: float = 0.0, **env: str) -> Iterator[Started]:
    """A QC worker in a process of its own."""
    with (
        mock.patch.dict(os.environ, env),
        workerprocess.start("plaintrials", root, name, memory_gb=memory_gb) as at,
    ):
        yield at


def main() -> None:
    """Examine until every trial is trained and nothing is left to take."""
    parse = argparse.ArgumentParser()
    parse.add_argument("root", type=Path)
    parse.add_argument("name")
    parse.add_argument("--memory-gb", type=float, default=0.0)
    args = parse.parse_args()
    from raykit.fleet.pool.process import hold_at_most
    from raykit.work.qc_trials import TrialsBench
    from raykit.work.qc_worker import Rules, Worker

    store = open_store(str(args.root))
    lock = newest_stored_lock(store, EXPERIMENT)
    assert lock is not None and lock.suite is not None
    asked = Examinations(store, EXPERIMENT)
    suite = asked.suite(lock.suite)
    logs = [RunLog(store, EXPERIMENT, run, by="test") for run in BegunTrials(store, EXPERIMENT)()]
    with tempfile.TemporaryDirectory() as folder:
        bench = TrialsBench(store, EXPERIMENT, suite, asked.roster(suite.roster), Path(folder))
        if args.memory_gb:
            hold_at_most(int(args.memory_gb * 1e9))
        rules = Rules(tries=9, deadline_s=8.0)
        worker = Worker(store, EXPERIMENT, BegunTrials, suite, rules, worker=args.name, examine=bench)
        print("ready", flush=True)
        while True:
            turn = worker.turn()
            for log in logs:
                log.refresh()
            if turn.kind in ("nothing", "waiting"):
                if turn.kind == "nothing" and all(log.state.completed for log in logs):
                    return
                threading.Event().wait(0.1)
                continue
            print(turn.kind, turn.failed or "-", turn.what, flush=True)
            if turn.spent or turn.kind == "paused":
                return


if __name__ == "__main__":
    main()
