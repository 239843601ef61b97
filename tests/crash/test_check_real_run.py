"""A run that was really trained and really killed, held against every invariant, and read back."""

from __future__ import annotations

from pathlib import Path

from nursery import Nursery
from plainrun import Launches, freeze_job, write_job

import raykit
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants


def test_a_run_killed_at_its_start_and_in_its_middle_keeps_every_promise(
    nursery: Nursery, tmp_path: Path
) -> None:
    # covers I1, I4, I12, HIST-15, HIST-16
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job"))
    store = LocalStore(tmp_path / "store")
    launches = Launches(nursery, task)
    launches.killed({"put": "commit", "when": "after", "nth": 1})
    check_invariants(store)
    launches.killed({"loss": 9})
    check_invariants(store)
    ((code, out),) = launches.run()
    assert code == 0, out
    report = check_invariants(store)
    assert not report.unknown
    root = raykit.open(store)
    view = root.run("tiny")
    assert (view.state, view.health, view.update, view.updates) == ("completed", "ok", 20, 20)
    assert [attempt.ended and attempt.ended.reason for attempt in view.attempts] == [
        "killed",
        "killed",
        "completed",
    ]
    table = root.history(view)
    assert [row.update for row in table] == list(range(1, 21))
    assert sum(table.coverage().values()) == 20 * 12
    evaluated = [row.update for row in root.history(view, "development")]
    assert evaluated == sorted(set(evaluated)), "a resume from update 0 does not evaluate it again"
    assert evaluated[0] == 0
    assert [item.commit.update for item in view.commits if item.counts] == [0, 5, 10, 15, 20]
    assert root.selected(view) is not None
