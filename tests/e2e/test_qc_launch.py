"""QC beside a real launch: what happens to its workers changes nothing of training, and what fails is heeded.

covers QC-14 QC-15 QC-17 QC-21 QC-27, F14 F16 F28 F29, I3, RAY-02
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from plainrun import final_digest, rows_bits, write_job
from raylaunch import Store, kill, raykit

from raykit.read.qc import QcRead, read_qc
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

EDITS = {"updates": "80", "params": "{ width = 16, dropout = 0.3 }"}
QC = """
[qc]
owner      = "ada"
every      = {every}
roster     = {{ stratum = "third", units = 2 }}
fail       = {{ {fail} }}
on_failure = "{on_failure}"
shares     = "this test has no other machine"
"""
SLOW = {"TINY_SLOW_S": "0.1"}
NEVER = 'ratio = "> 1000"'
ALWAYS = 'ratio = "> 0.0001"'


def with_qc(
    folder: Path, *, fail: str = NEVER, on_failure: str = "continue", every: int = 20, more: str = ""
) -> Path:
    """The undisturbed run's plan, with QC."""
    plan = write_job(folder, EDITS)
    plan.write_text(plan.read_text() + QC.format(every=every, fail=fail, on_failure=on_failure) + more)
    return plan


def read(store: Store) -> QcRead:
    found = read_qc(LocalStore(store.root), "tiny", now=time.time())
    assert found is not None
    return found


def wait_for(store: Store, process, what: str, holds) -> QcRead:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        try:
            found = read_qc(LocalStore(store.root), "tiny", now=time.time())
        except FileNotFoundError:
            found = None
        if found is not None and holds(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited for {what}")


def same_as_without(store: Store, undisturbed) -> None:
    """Weights, rows and steps are those of the run that had no QC, to the bit."""
    assert store.state().completed
    assert final_digest(store.task) == undisturbed.digest
    assert rows_bits(store.task) == undisturbed.rows
    check_invariants(LocalStore(store.root))


@pytest.mark.long
def test_a_killed_qc_worker_changes_nothing_but_the_count_of_attempts(tmp_path: Path, undisturbed) -> None:
    store = Store(tmp_path / "store")
    plan = with_qc(tmp_path / "job", fail=ALWAYS)
    launch = raykit("launch", str(plan), root=store.root, environment={**SLOW, "TINY_QC": "slow"})
    busy = wait_for(
        store,
        launch.process,
        "a check under way",
        lambda found: any(each.status == "claimed" for each in found.backlog.standings),
    )
    (hand,) = [each for each in busy.backlog.standings if each.status == "claimed"]
    kill(hand.claim.place.pid)
    code, out, err = launch.end()
    assert code == 0, (out, err)
    same_as_without(store, undisturbed)
    found = read(store).backlog
    assert [each.update for each in found.standings] == [0, 20, 40, 60, 80]
    assert not found.open and all(each.receipt is not None for each in found.standings)
    again = found.at(hand.update)
    assert [failure.kind for failure in again.said.failures] == ["lost"] and len(again.said.claims) == 2
    # what failed its threshold is said, and the plan goes on; update 0 has learned nothing yet
    assert [each.update for each in found.failed] == [20, 40, 60, 80]
    assert "update 20 failed its QC" in err and "ratio" in found.at(0).receipt.unjudged


@pytest.mark.slow
def test_a_failed_check_pauses_the_run_until_somebody_has_answered(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = with_qc(tmp_path / "job", fail=ALWAYS, on_failure="pause")
    code, out, err = raykit("launch", str(plan), root=store.root, environment={"TINY_SLOW_S": "0.5"}).end()
    assert code == 4, (out, err)
    assert not store.state().completed and store.state().ended.cause == "qc"
    assert store.state().ended.update == store.state().committed  # nothing is lost
    first = read(store).backlog.failed[0].update

    code, out, err = raykit("resume", "tiny", root=store.root).end()
    assert code == 4 and f"update {first}" in err and "--repair" in err
    code, out, err = raykit("launch", str(plan), root=store.root).end()
    assert code == 4 and "paused" in err

    said = ("--verdict", "failed", "--note", "as expected", "--by", "mira")
    code, out, err = raykit("qc", "review", "tiny", "--update", str(first), *said, root=store.root).end()
    assert code == 0, (out, err)
    listed = json.loads(raykit("status", "--json", root=store.root).end()[1])
    assert listed["runs"][0]["fleet"]["pause"]["cause"] == "qc"


@pytest.mark.slow
def test_a_failure_that_was_reviewed_is_answered_and_the_run_goes_on(tmp_path: Path, undisturbed) -> None:
    """Each failed checkpoint pauses it once; reviewed as failed, it goes on to the same end as without QC."""
    store = Store(tmp_path / "store")
    plan = with_qc(tmp_path / "job", fail=ALWAYS, on_failure="pause", every=40)
    code, out, err = raykit("launch", str(plan), root=store.root, environment=SLOW).end()
    for _ in range(3):
        if store.state().completed:
            break
        assert code == 4, (out, err)
        said = ("--verdict", "failed", "--note", "as expected", "--by", "mira")
        for each in read(store).backlog.unreviewed:
            if each.red:
                update = str(each.update)
                assert (
                    raykit("qc", "review", "tiny", "--update", update, *said, root=store.root).end()[0] == 0
                )
        code, out, err = raykit("resume", "tiny", root=store.root, environment=SLOW).end()
    same_as_without(store, undisturbed)


@pytest.mark.slow
def test_a_failed_check_ends_the_run_until_a_repair_is_recorded(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = with_qc(tmp_path / "job", fail=ALWAYS, on_failure="stop")
    code, out, err = raykit("launch", str(plan), root=store.root, environment={"TINY_SLOW_S": "0.5"}).end()
    assert code == 3, (out, err)
    state = store.state()
    assert (state.ended.reason, state.ended.cause) == ("failed", "qc") and "qc" in state.failed
    code, out, err = raykit("launch", str(plan), root=store.root).end()
    assert code == 3 and "failed its QC" in err
    check_invariants(LocalStore(store.root))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kinds"), [("raise", {"recipe"}), ("loop", {"deadline"}), ("hog", {"memory", "lost"})]
)
def test_a_worker_that_never_comes_to_an_end_is_replaced_and_then_parked(
    tmp_path: Path, undisturbed, fault: str, kinds: set[str]
) -> None:
    store = Store(tmp_path / "store")
    limits = "deadline_s = 8\nmemory_gb = 3\ntries = 2\ndrain_s = 60\n"
    plan = with_qc(tmp_path / "job", more=limits)
    launch = raykit("launch", str(plan), root=store.root, environment={**SLOW, "TINY_QC": fault})
    code, out, err = launch.end()
    assert code == 0, (out, err)
    same_as_without(store, undisturbed)
    first = read(store).backlog.at(0)
    assert first.status == "parked" and len(first.said.claims) == 2
    assert {failure.kind for failure in first.said.failures} <= kinds


@pytest.mark.slow
def test_a_stopped_worker_is_replaced_by_its_deadline_and_may_wake_up_late(
    tmp_path: Path, undisturbed
) -> None:
    store = Store(tmp_path / "store")
    plan = with_qc(tmp_path / "job", more="deadline_s = 8\n")
    launch = raykit("launch", str(plan), root=store.root, environment={**SLOW, "TINY_QC": "slow"})
    busy = wait_for(
        store,
        launch.process,
        "a check under way",
        lambda found: any(each.status == "claimed" for each in found.backlog.standings),
    )
    (hand,) = [each for each in busy.backlog.standings if each.status == "claimed"]
    os.kill(hand.claim.place.pid, signal.SIGSTOP)
    stopped = time.monotonic()
    wait_for(
        store,
        launch.process,
        "a second attempt",
        lambda found: len(found.backlog.at(hand.update).said.claims) > 1,
    )
    assert time.monotonic() - stopped <= 8 + 5 + 15  # a fresh process has to come up, too
    code, out, err = launch.end()
    assert code == 0, (out, err)
    same_as_without(store, undisturbed)
    assert not read(store).backlog.open
