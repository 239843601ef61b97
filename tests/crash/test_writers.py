"""What writes beside training, when it is slow or dies: nothing is lost unheard.

covers CKPT-05 HIST-16, I4 I9
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants


def launches(nursery: Nursery, folder: Path, params: str = "{ width = 16 }") -> Launches:
    plan = write_job(folder / "job", {"updates": "12", "params": params})
    return Launches(nursery, freeze_job(folder / "store", plan))


@pytest.mark.parametrize("key", ["update-00000005/1/model", "update-00000012/1/state", "/history/1/"])
def test_what_kills_a_writer_ends_the_run(key: str, nursery: Nursery, tmp_path: Path) -> None:
    """Not only what raykit raises itself: a run must not go on without its history or its checkpoints."""
    run = launches(nursery, tmp_path)
    dying = Launches(nursery, run.task, hooks={"put": {"key": key, "error": "the disk is on fire"}})
    ((code, out),) = dying.run()
    assert code == 70
    assert "RuntimeError: the disk is on fire" in out
    assert not state_of(run.task).completed

    undisturbed = launches(nursery, tmp_path / "undisturbed")
    assert [code for code, _ in (*run.run(), *undisturbed.run())] == [0, 0]
    assert final_digest(run.task) == final_digest(undisturbed.task)
    assert rows_bits(run.task) == rows_bits(undisturbed.task)
    check_invariants(LocalStore(run.task.root))


def test_a_save_that_is_under_way_outlives_a_loss_that_is_not_finite(
    nursery: Nursery, tmp_path: Path
) -> None:
    run = launches(nursery, tmp_path, "{ width = 16, poison_at = 6 }")
    slow = Launches(nursery, run.task, hooks={"put": {"key": "update-00000005/1/model", "seconds": 0.5}})
    ((code, out),) = slow.run()
    assert (code, out) == (3, "gate: update 6: fit is not finite\n")
    assert state_of(run.task).committed == 5
    check_invariants(LocalStore(run.task.root))
