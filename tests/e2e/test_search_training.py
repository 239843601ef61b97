"""A search whose rows train: each is the run that its setting would have been by itself, whatever was killed.

covers TUNE-12 RAY-01 RAY-07 FLEET-05 FLEET-06, I1 I4
"""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, write_job
from raylaunch import DEADLINE_S, Store, raykit
from searchtoys import write_search

from raykit.records import Setting
from raykit.search import SearchState
from raykit.store.local import LocalStore
from raykit.store.search import read_search
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(900)]

SLOW = {"TINY_SLOW_S": "0.4"}


def state_of_search(store: Store) -> SearchState:
    found = read_search(LocalStore(store.root), store.experiment)
    assert found is not None
    return found


def trial(store: Store, n: int) -> Store:
    """The store as one row of the search sees it."""
    return Trial(root=store.root, experiment=store.experiment, run=f"trial-{n:03d}")


class Trial(Store):
    """One row of a search."""

    def __init__(self, *, root: Path, experiment: str, run: str) -> None:
        super().__init__(root, experiment)
        self.run = run

    @property
    def task(self):  # type: ignore[no-untyped-def]
        return replace(Store(self.root, self.experiment).task, run=self.run)


def plain(nursery: Nursery, folder: Path, setting: Setting) -> tuple[str, list[bytes]]:
    """What a run with this setting comes to that is no trial, and that nobody disturbs."""
    params = f"{{ width = 16, lr = {setting.params['lr']!r} }}"
    plan = write_job(folder / "job", {"params": params, "seed": str(setting.seed)})
    run = Launches(nursery, freeze_job(folder / "store", plan))
    ends = run.run()
    assert {code for code, _ in ends} == {0}, ends
    return final_digest(run.task), rows_bits(run.task)


def test_rows_are_the_runs_that_they_would_have_been_alone(tmp_path: Path, nursery: Nursery) -> None:
    """Killed once in the middle and started again by the same command: equal to the bit."""
    plan = write_search(tmp_path / "job", trials=2, concurrent=2, select=True)
    store = Store(tmp_path / "store")
    first = raykit("search", str(plan), root=store.root, environment=SLOW)
    for n in (1, 2):
        trial(store, n).wait(f"a commit of row {n}", lambda state: len(state.commits) > 1, first.process)
    first.signal(signal.SIGKILL)
    first.end()
    code, out, err = raykit("search", str(plan), "--json", root=store.root).end(DEADLINE_S)
    assert code == 0, (out, err)
    said = json.loads(out)
    assert said["counts"] == {"completed": 2} and said["exit_code"] == 0
    state = state_of_search(store)
    for row in state.rows:
        assert row.setting is not None and row.ended is not None
        of = trial(store, row.n)
        assert len(row.launches) == 2 and row.ended.attempts == 2
        digest, bits = plain(nursery, tmp_path / row.run, row.setting)
        assert final_digest(of.task) == digest
        assert rows_bits(of.task) == bits
    assert state.picked is not None and state.picked.candidate is not None
    check_invariants(LocalStore(store.root))
