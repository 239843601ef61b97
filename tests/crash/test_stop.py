"""A stop is asked for through the run's log, and heeded whoever reads the entry first.

covers I9, RAY-07
"""

from __future__ import annotations

import time
from pathlib import Path

from nursery import Nursery
from plainrun import freeze_job, run_log, state_of, take, write_job

from raykit.records import StopRequested
from raykit.store import open_store


def test_a_stop_that_was_asked_for_before_the_worker_listened(nursery: Nursery, tmp_path: Path) -> None:
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"updates": "2000"}))
    asked = take(task)
    log = run_log(open_store(task.root), task)
    log.append(lambda _: [StopRequested(launch=asked.launch, why="SIGTERM")], at=time.time())
    code, out = nursery.rank(asked.plain()).wait()
    assert code == 4, out
    assert "SIGTERM" in out
    assert not state_of(task).attempts, "what was asked to stop before it began does not begin"  # covers I7
