"""SIGKILL before every disk operation of a whole attempt: its start, its segments, its commit, its end.

The store is then as before the operation or as after it, never between; what is not decided is an orphan at most;
and the next attempt ends as the undisturbed run did.

covers F1 F2 F13, I1 I2 I4 I10, CKPT-01, must-hold: every store operation of a commit, a segment, a log append
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, state_of, write_job

from raykit.store.check import check
from raykit.store.commit import newest_good
from raykit.store.local import LocalStore

SHORT = {"updates": "2", "checkpoint_every": "2", "curves": '{ every = 2, smooth = "ema 0.9" }'}
FINISH_EVERY = 4
"""Every so many kills, the run is also finished and compared; each kill is checked."""


def at_root(run: Launches, root: Path) -> Launches:
    """The same launches on a copy of the store."""
    return replace(run, task=replace(run.task, root=str(root)))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(11, id="every eleventh"),
        pytest.param(5, id="every fifth", marks=pytest.mark.long),
        pytest.param(1, id="every", marks=pytest.mark.slow),
    ],
)
def test_a_kill_before_every_disk_operation(nursery: Nursery, tmp_path: Path, step: int) -> None:
    run = Launches(nursery, freeze_job(tmp_path / "template", write_job(tmp_path / "job", SHORT)))
    run.killed({"put": '"event":"commit"', "when": "after"})
    undisturbed = at_root(run, shutil.copytree(tmp_path / "template", tmp_path / "undisturbed"))
    assert [code for code, _ in undisturbed.run()] == [0]
    digest = final_digest(undisturbed.task)

    commits_seen = set()
    for k in range(1, 10_000, step):
        root = shutil.copytree(tmp_path / "template", tmp_path / "killed")
        victim = at_root(run, root)
        (rank,) = victim.start({"disk": k})
        code, out = rank.wait()
        if code == 0:
            break
        assert code == -signal.SIGKILL, out
        commits_seen.add(in_order(victim, k))
        if k // step % FINISH_EVERY == 0:
            if not state_of(victim.task).completed:
                assert [code for code, _ in victim.run()] == [0]
            assert final_digest(victim.task) == digest, f"k = {k}"
            in_order(victim, k)
        shutil.rmtree(root)
    assert k > 60, "the faults were meant to cover a whole attempt"
    assert commits_seen == {1, 2}, "kills were meant to fall before and after the commit"


def in_order(run: Launches, k: int) -> int:
    """Nothing that is decided is missing or changed, and the newest commit is whole; how many commits there are."""
    store = LocalStore(run.task.root)
    report = check(store, read_data=True)
    assert report.ok, f"k = {k}: {report.findings}"
    commits = state_of(run.task).commits
    good = newest_good(store, commits)
    assert good is not None and not good.passed_over, f"k = {k}"
    return len(commits)
