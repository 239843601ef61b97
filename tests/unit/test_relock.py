"""A check that cannot be answered as it was asked is asked anew, without training; what was answered before is kept.

covers QC-14, PLAN-73, I3, I8
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from called import Called, Raykit, calls
from nursery import Nursery
from plainrun import Launches, claim_job, freeze_job, run_log, state_of, take, write_job

from raykit.errors import ExactnessError, HeldError
from raykit.fleet.claim import claim
from raykit.fleet.site import stored_site
from raykit.pauses import fold_acts
from raykit.read.qc import QcRead, read_qc
from raykit.records import ExperimentEntry, Locked, Receipt, Released
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.store.people import People
from raykit.store.qc import Examinations
from raykit.testing.invariants import check_invariants
from raykit.train.inputs import Task
from raykit.work.puller import Turn
from raykit.work.qc_unit import Bench
from raykit.work.qc_worker import Rules, Worker

QC = """
[qc]
owner      = "ada"
every      = 10
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 9" }
on_failure = "continue"
shares     = "a test"
"""
BROKEN = """
class Variant(Tiny):
    def panels(self, model, batch):
        raise ZeroDivisionError("no panels today")
"""
WHOLE = """
class Variant(Tiny):
    pass
"""
OTHER_TRAINING = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        return {**terms, "decay": replace(terms["decay"], weight=0.5)}
"""
WORDS = ("--deviation", "panels divided by zero", "--by", "ada")


def job(folder: Path, code: str, *changes: tuple[str, str], **edits: str) -> Path:
    """The tiny job with `[qc]`; `changes` are of what `[qc]` says, `edits` of lines of the plan."""
    plan = write_job(folder, {"updates": "12", **edits}, variant=code)
    qc = QC
    for old, new in changes:
        assert old in qc
        qc = qc.replace(old, new)
    plan.write_text(plan.read_text() + qc)
    return plan


def let_go(task: Task) -> None:
    """The launch ends: this process, which lives on, does not hold the run any more."""
    state = state_of(task)
    assert state.launched is not None and state.ended is not None
    released = Released(launch=state.launched.launch, reason=state.ended.reason)
    run_log(LocalStore(Path(task.root)), task).append(lambda _: [released], at=time.time())


def trained(nursery: Nursery, folder: Path, plan: Path) -> Path:
    task = freeze_job(folder / "store", plan)
    ((code, out),) = Launches(nursery, task).run()
    assert code == 0, out
    let_go(task)
    return folder / "store"


@pytest.fixture(scope="module")
def broken(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a complete run whose recipe cannot draw its panels."""
    folder = tmp_path_factory.mktemp("broken")
    return trained(nursery, folder, job(folder / "job", BROKEN))


@pytest.fixture(scope="module")
def mistyped(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a complete run with a threshold on a metric that nobody reports."""
    folder = tmp_path_factory.mktemp("mistyped")
    return trained(nursery, folder, job(folder / "job", WHOLE, ("ratio", "raito")))


@pytest.fixture(scope="module")
def unfinished(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a run that was killed after its checkpoint at update 5."""
    folder = tmp_path_factory.mktemp("unfinished")
    task = freeze_job(folder / "store", job(folder / "job", BROKEN))
    Launches(nursery, task).killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    take(task)
    released = Released(launch=state_of(task).launched.launch, reason="killed")  # type: ignore[union-attr]
    run_log(LocalStore(folder / "store"), task).append(lambda _: [released], at=time.time())
    return folder / "store"


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str]) -> Raykit:
    return calls(capsys)


def copied(store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(store, tmp_path / "store"))


def read(root: Path) -> QcRead:
    found = read_qc(LocalStore(root), "tiny", now=time.time())
    assert found is not None
    return found


def locks(root: Path) -> list[Locked]:
    log = Log(LocalStore(root), layout.experiment_log("tiny"), ExperimentEntry, by="test")
    return list(fold_acts(log.refresh()).locked)


def work(root: Path, folder: Path, *names: str) -> list[Turn]:
    """Workers, one after the other, on what the newest lock asks, each until there is nothing for it."""
    return [turn for name in names for turn in _turns(root, folder / f"bench-{name}", name)]


def _turns(root: Path, folder: Path, name: str) -> Iterator[Turn]:
    store, now = LocalStore(root), read(root)
    folder.mkdir()
    kept = Examinations(store, "tiny")
    bench = Bench(store, "tiny", now.suite, kept.roster(now.suite.roster), folder)
    rules = Rules(tries=now.tries, deadline_s=60.0)
    worker = Worker(store, "tiny", "main", now.suite, rules, worker=name, examine=bench)
    while (turn := worker.turn()).kind != "nothing":
        yield turn
        if turn.kind in ("paused", "waiting") or turn.spent:
            return


def relocked(raykit: Raykit, root: Path, plan: Path, *more: str) -> Called:
    return raykit("qc", "relock", str(plan), "--root", str(root), *more)


def objects(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def receipts(root: Path) -> dict[int, Receipt]:
    """The receipts that count now, by update."""
    return {each.update: each.receipt for each in read(root).backlog.standings if each.receipt is not None}


# --- a recipe whose QC part is wrong ---------------------------------------------------------------------------


def test_a_recipe_that_could_not_be_examined_is_examined_with_its_repair(
    raykit: Raykit, broken: Path, tmp_path: Path
) -> None:
    root = copied(broken, tmp_path)
    before = work(root, tmp_path, "qc-1", "qc-2")
    assert [turn.kind for turn in before] == ["failed", "failed"]
    old = read(root)
    assert old.pause is not None and old.pause.pause.cause == "defect" and receipts(root) == {}

    done = relocked(raykit, root, job(tmp_path / "job", WHOLE), *WORDS)
    assert done.code == 0, done.err
    now = read(root)
    assert now.suite.digest != old.suite.digest and now.pause is None
    assert now.suite.config == old.suite.config and now.suite.roster == old.suite.roster
    assert f"suite {now.suite.digest[:12]}, no longer {old.suite.digest[:12]}" in done.out
    assert "recipe.py is not what was trained with" in done.out
    assert "it is paused by qc worker qc-2: update 0 failed alike in 2 processes" in done.out
    assert f"raykit qc run tiny --root {root}" in done.out.splitlines()[-1]
    locked = locks(root)[-1]
    assert (locked.seen_update, locked.deviation) == (12, "panels divided by zero (ada)")

    after = work(root, tmp_path, "qc-3")
    assert [(turn.kind, turn.what) for turn in after] == [("published", f"update {n}") for n in (0, 10, 12)]
    assert {receipt.suite for receipt in receipts(root).values()} == {now.suite.digest}
    assert {receipt.verdict for receipt in receipts(root).values()} == {"passed"}
    check_invariants(LocalStore(root))
    assert raykit("check", "--root", str(root)).code == 0


def test_a_complete_run_that_was_asked_anew_is_complete_for_launch_and_resume(
    raykit: Raykit, broken: Path, tmp_path: Path
) -> None:
    root, plan = copied(broken, tmp_path), job(tmp_path / "job", WHOLE)
    refused = raykit("launch", str(plan), "--root", str(root))
    assert (refused.code, "code file recipe.py" in refused.err) == (3, True)
    assert "raykit qc relock " in refused.err
    assert relocked(raykit, root, plan, *WORDS).code == 0
    kept = objects(root)
    for command in (["launch", str(plan)], ["resume", "tiny"]):
        called = raykit(*command, "--root", str(root))
        assert called.code == 0 and "already trained, at update 12; nothing was written" in called.out
    assert objects(root) == kept


def test_asking_the_same_writes_nothing(raykit: Raykit, broken: Path, tmp_path: Path) -> None:
    root, plan = copied(broken, tmp_path), job(tmp_path / "job", BROKEN)
    kept = objects(root)
    same = relocked(raykit, root, plan, "--by", "ada")
    assert same.code == 0 and "asks the same of every checkpoint already" in same.out
    assert objects(root) == kept
    assert relocked(raykit, root, job(tmp_path / "job", WHOLE), *WORDS, "--json").json["new"] is True
    kept = objects(root)
    again = relocked(raykit, root, tmp_path / "job" / "plan.toml", *WORDS, "--json")
    assert (again.code, again.json["new"], again.json["next"]) == (0, False, "raykit qc run tiny")
    assert objects(root) == kept


def test_limits_of_workers_reach_a_complete_run(raykit: Raykit, broken: Path, tmp_path: Path) -> None:
    root = copied(broken, tmp_path)
    plan = job(tmp_path / "job", BROKEN, ('"continue"', '"continue"\ntries = 7'))
    done = relocked(raykit, root, plan, *WORDS)
    assert done.code == 0 and "with other limits; the suite is the same" in done.out
    assert read(root).tries == 7


# --- a threshold on a metric that nobody reports ----------------------------------------------------------------


def test_a_mistyped_threshold_is_moved_as_it_is_and_old_receipts_decide_nothing(
    raykit: Raykit, mistyped: Path, tmp_path: Path
) -> None:
    root = copied(mistyped, tmp_path)
    work(root, tmp_path, "qc-1")
    old = receipts(root)
    assert {receipt.verdict for receipt in old.values()} == {"failed"} and sorted(old) == [0, 10, 12]
    assert [finding.kind for finding in old[0].findings] == ["undefined"]  # not only once it is trained
    plan = job(tmp_path / "job", WHOLE)
    asked = relocked(raykit, root, plan, "--by", "ada")
    assert (asked.code, "--deviation" in asked.err) == (3, True)
    done = relocked(raykit, root, plan, *WORDS)
    assert done.code == 0, done.err
    assert "qc.fail.raito: > 9 -> None" in done.out and "3 receipts of it stay in the store" in done.out
    assert receipts(root) == {}
    work(root, tmp_path, "qc-2")
    new = receipts(root)
    assert {receipt.verdict for receipt in new.values()} == {"passed"} and sorted(new) == [0, 10, 12]
    kept = Examinations(LocalStore(root), "tiny")
    assert [kept.receipt(receipt.request) for receipt in old.values()] == list(old.values())
    assert raykit("check", "--root", str(root)).code == 0


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('raito = "> 9"', 'ratio = "> 99"', "qc.fail.raito"),  # another rule
        ('raito = "> 9"', 'ratio = "> 9", loss = "> 99"', "qc.fail.loss"),  # one more
    ],
)
def test_a_rule_that_decides_stays_as_it_was(
    raykit: Raykit, mistyped: Path, tmp_path: Path, old: str, new: str, names: str
) -> None:
    root = copied(mistyped, tmp_path)
    work(root, tmp_path, "qc-1")
    kept = objects(root)
    plan = job(tmp_path / "job", WHOLE, ("ratio", "raito"), (old, new))
    refused = relocked(raykit, root, plan, *WORDS)
    assert refused.code == 3 and names in refused.err and "was seen" not in refused.out
    assert objects(root) == kept


def test_before_any_receipt_nobody_knows_that_nothing_reports_a_metric(
    raykit: Raykit, mistyped: Path, tmp_path: Path
) -> None:
    refused = relocked(raykit, copied(mistyped, tmp_path), job(tmp_path / "job", WHOLE), *WORDS)
    assert refused.code == 3 and "qc.fail.raito" in refused.err


def test_a_threshold_on_what_is_reported_is_never_moved(raykit: Raykit, broken: Path, tmp_path: Path) -> None:
    root = copied(broken, tmp_path)
    assert relocked(raykit, root, job(tmp_path / "job", WHOLE), *WORDS).code == 0
    work(root, tmp_path, "qc-1")
    refused = relocked(raykit, root, job(tmp_path / "other", WHOLE, ("ratio", "loss")), *WORDS)
    assert refused.code == 3 and "qc.fail.ratio" in refused.err


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "names"),
    [
        ({"seed": "4"}, "run.seed: 3 -> 4"),
        ({"train": "0.7", "development": "0.3"}, "splits.development: 0.2 -> 0.3"),
    ],
)
def test_what_was_trained_stays_what_it_was(
    raykit: Raykit, broken: Path, tmp_path: Path, edits: dict[str, str], names: str
) -> None:
    root = copied(broken, tmp_path)
    kept = objects(root)
    refused = relocked(raykit, root, job(tmp_path / "job", WHOLE, **edits), *WORDS)
    assert refused.code == 3 and names in refused.err
    assert objects(root) == kept


def test_nothing_is_asked_anew_without_a_run_without_qc_or_without_a_person(
    raykit: Raykit, broken: Path, tmp_path: Path
) -> None:
    root, plan = copied(broken, tmp_path), job(tmp_path / "job", WHOLE)
    kept = objects(root)
    nobody = relocked(raykit, root, plan, "--deviation", "panels divided by zero")
    assert (nobody.code, "a person has to say so" in nobody.err) == (2, True)
    plan.write_text(plan.read_text().replace(QC, ""))
    without = relocked(raykit, root, plan, *WORDS)
    assert (without.code, "has no [qc]" in without.err) == (3, True)
    never = relocked(raykit, root, job(tmp_path / "new", WHOLE, name='"fresh"'), *WORDS)
    assert (never.code, "nothing of fresh was trained yet" in never.err) == (3, True)
    assert "pass   raykit launch " in never.err and str(tmp_path / "new" / "plan.toml") in never.err
    assert objects(root) == kept


def test_a_run_that_somebody_holds_is_left_alone(raykit: Raykit, unfinished: Path, tmp_path: Path) -> None:
    root = copied(unfinished, tmp_path)
    claim_job(root, job(tmp_path / "same", BROKEN))
    kept = objects(root)
    held = relocked(raykit, root, job(tmp_path / "job", WHOLE), *WORDS, "--json")
    assert (held.code, held.error["kind"]) == (HeldError("").exit_code, HeldError.kind)
    assert f"process {os.getpid()}" in held.error["message"]
    assert objects(root) == kept


def test_a_launch_that_waits_for_its_last_checks_holds_the_run(
    raykit: Raykit, broken: Path, tmp_path: Path
) -> None:
    root, plan = copied(broken, tmp_path), job(tmp_path / "job", WHOLE)
    take(replace(freeze_job(root, job(tmp_path / "same", BROKEN)), root=str(root)))
    held = relocked(raykit, root, plan, *WORDS, "--json")
    assert held.error["kind"] == HeldError.kind and len(locks(root)) == 1
    let_go(replace(freeze_job(root, tmp_path / "same" / "plan.toml"), root=str(root)))
    assert relocked(raykit, root, plan, *WORDS).code == 0


# --- a run that goes on -----------------------------------------------------------------------------------------


def resumed(root: Path) -> None:
    """What `raykit resume tiny` decides before it starts anything."""
    with stored_site("tiny", str(root)) as site:
        claim(site, site.run_log("launch"), People(site.store, "tiny"))


def test_a_resume_compares_the_new_code_with_what_was_trained_with(
    raykit: Raykit, unfinished: Path, tmp_path: Path
) -> None:
    """Neither by name nor by file does other code go on with a run in silence."""
    root = copied(unfinished, tmp_path)
    plan = job(tmp_path / "job", OTHER_TRAINING)
    with pytest.raises(ExactnessError, match=r"code file recipe\.py"):
        claim_job(root, plan, deviation="as a changed checkout")
    done = relocked(raykit, root, plan, *WORDS)
    assert done.code == 0 and "a resume of it compares code, as with a changed checkout" in done.out
    with pytest.raises(ExactnessError, match=r"code file recipe\.py: .* leaves inexact"):
        resumed(root)
    with pytest.raises(ExactnessError, match=r"code file recipe\.py: .* leaves inexact"):
        claim_job(root, plan)
    claim_job(root, job(tmp_path / "trained", BROKEN), deviation="as it was trained")


def test_no_decision_rests_on_a_receipt_of_a_suite_before(
    raykit: Raykit, broken: Path, tmp_path: Path
) -> None:
    root = copied(broken, tmp_path)
    assert relocked(raykit, root, job(tmp_path / "job", WHOLE), *WORDS).code == 0
    work(root, tmp_path, "qc-1")
    reviewed = raykit("qc", "review", "tiny", "--note", "fine", "--by", "mira", "--root", str(root))
    assert reviewed.code == 0 and read(root).backlog.complete
    plan = job(tmp_path / "other", WHOLE, ("units = 2", "units = 1"))
    assert relocked(raykit, root, plan, *WORDS).code == 0
    now = read(root)
    assert [each.status for each in now.backlog.standings] == ["missing"] * 3
    assert not now.backlog.complete and not any(each.usable for each in now.backlog.standings)
