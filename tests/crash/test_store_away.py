"""A store that stays away for a while: training holds, and goes on as if nothing had been.

covers F7, I9 I10 I13
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.store import open_store
from raykit.testing.invariants import check_invariants


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[bytes]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job")))
    assert [code for code, _ in run.run()] == [0]
    return final_digest(run.task), rows_bits(run.task)


# Writes 1 to 4 are the attempt's start and its gates, which nothing holds: there is nothing to lose yet.
@pytest.mark.parametrize("nth", [5, 7, 12, 20, 30])
def test_a_store_that_comes_back(
    nth: int, nursery: Nursery, tmp_path: Path, undisturbed: tuple[str, list[bytes]]
) -> None:
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    (rank,) = run.start({"away": nth, "for_s": 1.0})
    code, out = rank.wait()
    assert code == 0, out
    assert len(state_of(run.task).attempts) == 1
    assert (final_digest(run.task), rows_bits(run.task)) == undisturbed
    check_invariants(open_store(run.task.root))


def test_a_store_that_stays_away_longer_than_training_holds(
    nursery: Nursery, tmp_path: Path, undisturbed: tuple[str, list[bytes]]
) -> None:
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    short = replace(run, task=replace(run.task, hold_s=0.2))
    (rank,) = short.start({"away": 12, "for_s": 60.0})
    code, out = rank.wait()
    assert code == 6, out
    assert [code for code, _ in run.run()] == [0]
    assert (final_digest(run.task), rows_bits(run.task)) == undisturbed
    check_invariants(open_store(run.task.root))
