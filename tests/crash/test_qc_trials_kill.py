"""Whatever becomes of QC workers, no trial of a search differs by a bit from one that nobody examined.

covers QC-14 QC-16 QC-17, F14 F16, I8, RAY-02
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import final_digest, rows_bits, state_of, write_job
from plaintrials import EXPERIMENT, QC, Frozen, beside, freeze_search, start

from raykit.read.qc_runs import BegunTrials, RunsRead, read_qc_of
from raykit.records import Claim, Setting
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

EDITS = {"updates": "40", "checkpoint_every": "10", "params": "{ width = 16, dropout = 0.3 }"}
SETTINGS = (Setting(params={"width": 8}, seed=3), Setting(params={"width": 24}, seed=4))


def frozen(folder: Path) -> Frozen:
    plan = write_job(folder / "job", EDITS)
    plan.write_text(plan.read_text() + QC)
    return freeze_search(folder / "store", plan, SETTINGS)


def train(search: Frozen, nursery: Nursery, **env: str) -> list[str]:
    """Train every trial at once; what its weights and its rows came to."""
    begun = [start(nursery, task, env) for task in search.tasks]
    for task, rank in begun:
        code, out = rank.wait()
        assert code == 0, out
        assert state_of(task).completed
    return [f"{final_digest(task)} {rows_bits(task)}" for task in search.tasks]


def read(search: Frozen) -> RunsRead:
    found = read_qc_of(search.store, EXPERIMENT, BegunTrials, now=time.time())
    assert found is not None
    return found


def claimed_by(search: Frozen, name: str) -> Callable[[], Claim | None]:
    """The newest attempt of a worker that nobody has ended."""

    def look() -> Claim | None:
        for each in read(search).standings:
            claim = each.claim
            ended = {failure.n for failure in each.said.failures}
            if each.open and claim is not None and claim.worker == name and claim.n not in ended:
                return claim
        return None

    return look


def eventually(what: str, holds: Callable[[], Claim | None]) -> Claim:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited for {what}")


def test_killed_hung_and_greedy_workers_change_no_trial_by_a_bit(nursery: Nursery, tmp_path: Path) -> None:
    undisturbed = train(frozen(tmp_path / "alone"), nursery)
    search = frozen(tmp_path / "examined")
    root = tmp_path / "examined" / "store"
    begun = [start(nursery, task, {"TINY_SLOW_S": "0.15"}) for task in search.tasks]
    with beside(root, "qc-killed", TINY_QC="slow") as worker:
        eventually("a check in hand", claimed_by(search, "qc-killed"))
        worker.kill()
    with beside(root, "qc-hung", TINY_QC="loop") as worker:
        claim = eventually("a check in hand", claimed_by(search, "qc-hung"))
        os.kill(claim.place.pid, signal.SIGSTOP)
        with beside(root, "qc-greedy", memory_gb=3.0, TINY_QC="hog") as greedy:
            told = [line for line in iter(greedy.line, "") if line.startswith("failed")]
        assert told and all(line.split()[1] == "memory" for line in told), told
    for _, rank in begun:
        code, out = rank.wait()
        assert code == 0, out
    with beside(root, "qc-last") as worker:
        worker.rest()
    assert [f"{final_digest(task)} {rows_bits(task)}" for task in search.tasks] == undisturbed
    found = read(search)
    assert found.counts()["passed"] == found.counts()["required"] == 10
    kinds = {failure.kind for each in found.standings for failure in each.said.failures}
    assert {"lost", "memory"} <= kinds, kinds
    # each trial was examined as what it is: the receipts of the two are of models of two widths
    assert {each.receipt and each.receipt.run for each in found.standings} == {"trial-001", "trial-002"}
    check_invariants(search.store)
