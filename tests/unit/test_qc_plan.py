"""What `[qc]` of a plan has to say, and what refuses a launch by name before anything is started or written.

covers QC-01 QC-02 QC-10 QC-11 QC-12 QC-13 QC-28 QC-29
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from called import Called, Raykit, calls
from plainrun import freeze_job, write_job

from raykit.errors import PlanError
from raykit.plan import load_plan
from raykit.qc.roster import draw
from raykit.records import RosterUnit
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.plans import newest_stored_lock
from raykit.store.qc import Examinations

QC = """
[qc]
owner      = "ada"
every      = 10
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 0.35" }
on_failure = "continue"
shares     = "a test"
"""


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str]) -> Raykit:
    return calls(capsys)


def job(folder: Path, *changes: tuple[str, str], qc: str = QC) -> Path:
    """The tiny job with `[qc]`, some of its lines changed."""
    plan = write_job(folder / "job")
    for old, new in changes:
        assert old in qc
        qc = qc.replace(old, new)
    plan.write_text(plan.read_text() + qc)
    return plan


def launched(raykit: Raykit, plan: Path, folder: Path) -> Called:
    """A launch that is refused: nothing was written by it."""
    found = raykit("launch", str(plan), "--root", str(folder / "store"))
    assert not (folder / "store" / "experiments").exists()
    return found


def test_the_suite_and_its_roster_are_frozen_with_the_plan(tmp_path: Path) -> None:
    root = tmp_path / "store"
    freeze_job(root, job(tmp_path))
    store = LocalStore(root)
    lock = newest_stored_lock(store, "tiny")
    assert lock is not None and lock.suite is not None
    kept = Examinations(store, "tiny")
    suite = kept.suite(lock.suite)
    roster = kept.roster(suite.roster)
    assert (suite.owner, suite.every, suite.fail) == ("ada", 10, {"ratio": "> 0.35"})
    assert suite.root == layout.qc("tiny") and (suite.code, suite.config) == (lock.code, lock.contract)
    assert roster.quotas == {"0": 2, "1": 2, "2": 2} and len(roster.units) == 6
    assert roster.data == lock.data and roster.role == "development"
    assert len({unit.id for unit in roster.units}) == 6
    assert [unit.stratum for unit in roster.units] == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('owner      = "ada"\n', "", "qc.owner"),  # QC-10
        ('owner      = "ada"\n', 'owner      = "  "\n', "qc.owner"),
        ('roster     = { stratum = "third", units = 2 }\n', "", "qc.roster"),  # QC-11
        ("units = 2", "units = 0", "qc.roster.units"),
        ("units = 2", "units = {}", "qc.roster.units"),
        ("every      = 10\n", "", "qc.every"),  # QC-12
        ("every      = 10", "every      = 0", "qc.every"),
        ("every      = 10", "every      = 7", "qc.every"),
        ('fail       = { ratio = "> 0.35" }\n', "", "qc.fail"),
        ('{ ratio = "> 0.35" }', "{}", "qc.fail"),
        ('"> 0.35"', '"> base + 0.1"', "qc.fail.ratio"),
        ('on_failure = "continue"\n', "", "qc.on_failure"),
        ('shares     = "a test"', "blocking   = true", "qc.blocking"),  # QC-29: nothing makes training wait
        (
            'shares     = "a test"',
            'root       = "/tmp/elsewhere"',
            "qc.root",
        ),  # QC-13: it is bound, not chosen
    ],
)
def test_what_is_missing_or_wrong_is_named(
    raykit: Raykit, tmp_path: Path, old: str, new: str, field: str
) -> None:
    found = launched(raykit, job(tmp_path, (old, new)), tmp_path)
    assert found.code == 2 and field in found.err, found.err


@pytest.mark.parametrize(
    ("units", "says"),
    [
        ("units = 50", "have fewer members"),
        ('units = { "0" = 1, "9" = 1 }', "stratum 9 of third has no members"),
    ],
)
def test_a_stratum_without_enough_members_is_named(
    raykit: Raykit, tmp_path: Path, units: str, says: str
) -> None:
    found = launched(raykit, job(tmp_path, ("units = 2", units)), tmp_path)
    assert found.code == 2 and says in found.err and "qc.roster.units" in found.err


def test_a_root_that_cannot_be_written_refuses(raykit: Raykit, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")  # QC-13
    found = raykit("launch", str(job(tmp_path)), "--root", str(tmp_path / "store"))
    assert found.code == 2 and (tmp_path / "store").read_text() == "a file"


def test_sharing_what_training_holds_needs_a_written_reason(
    raykit: Raykit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})  # QC-28: one CPU, and training holds it
    plan = job(tmp_path, ('shares     = "a test"\n', ""))
    found = launched(raykit, plan, tmp_path)
    assert found.code == 3 and "qc.shares" in found.err
    text = plan.read_text()
    plan.write_text(text + 'shares = "the only machine we have"\n')
    assert raykit("plan", "check", str(plan), "--root", str(tmp_path / "store")).code == 0


def test_a_roster_is_drawn_from_its_members_alone() -> None:
    """QC-02: whatever the order of the data, and nothing that was seen."""
    plan = load_plan((Path(__file__).parents[1] / "tiny" / "plan.toml").read_bytes() + QC.encode(), where="p")
    assert plan.qc is not None
    members = [RosterUnit(id=f"u{i}", stratum=str(i % 3), sha256=f"{i:064x}") for i in range(30)]
    one = draw(plan.qc, members, data="0" * 64)
    other = draw(plan.qc, reversed(members), data="0" * 64)
    assert one == other and one.digest == other.digest
    assert one.shown == tuple(next(u.id for u in one.units if u.stratum == name) for name in ("0", "1", "2"))
    moved = [*members[:-1], RosterUnit(id="u29", stratum="2", sha256="f" * 64)]
    assert draw(plan.qc, moved, data="1" * 64).digest != one.digest
    with pytest.raises(PlanError, match="no members"):
        draw(plan.qc, [], data="0" * 64)
