"""What is made from a trial's checkpoint is made with the setting of its row, and not with what its plan says.

covers TUNE-09 TUNE-12 GEN-01
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from makesearch import SearchMaker, make_search

from raykit.cli.newplan import _as_trained
from raykit.fleet.evidence import weights
from raykit.plan import LockedBase
from raykit.records import Commit
from raykit.store.plans import newest_stored_lock, read_run_plan
from raykit.testing import MemoryStore

ROW = 4


@pytest.fixture(scope="module")
def search() -> SearchMaker:
    return make_search(MemoryStore(), at=time.time() - 7200)


def base_of(search: SearchMaker, row: int) -> LockedBase:
    """The last checkpoint of a row, as a plan is locked with it."""
    commit: Commit = search.runs[row].log.state.commits[-1]
    return LockedBase(
        candidate="pick",
        origin="run",
        experiment=search.experiment,
        update=commit.update,
        attempt=commit.attempt,
        manifest=commit.sha256,
        key=commit.key,
    )


def test_a_plan_that_goes_on_from_a_trial_has_its_setting_and_no_search(search: SearchMaker) -> None:
    lock = newest_stored_lock(search.store, search.experiment)
    assert lock is not None
    setting = search.settings[ROW]
    written = _as_trained(search.store, lock, base_of(search, ROW))
    assert "search" not in written
    assert written["run"]["seed"] == setting.seed
    assert {name: written["run"]["params"][name] for name in setting.params} == dict(setting.params)


def test_the_plan_that_trained_a_base_is_that_of_its_trial(search: SearchMaker) -> None:
    base: Any = SimpleNamespace(locked=base_of(search, ROW))
    found = weights.plan_of(search.store, base)
    assert found is not None
    setting = search.settings[ROW]
    assert (found.run.seed, found.search) == (setting.seed, None)
    assert {name: found.run.params[name] for name in setting.params} == dict(setting.params)
    lock = newest_stored_lock(search.store, search.experiment)
    assert lock is not None
    other = read_run_plan(search.store, search.experiment, "trial-001", lock.digest)
    assert other.run.params != found.run.params
