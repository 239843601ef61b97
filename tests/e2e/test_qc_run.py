"""`raykit qc run`: working off a backlog without training, on the store of a run that has ended.

covers QC-19 QC-22 QC-23 QC-27 BUD-12, F17 F24, I3 I6 I8
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, write_job
from raylaunch import Launching, kill, raykit

from raykit.errors import FleetPaused, GateError
from raykit.fleet.qc.run import run_backlog
from raykit.read.qc import QcRead, read_qc
from raykit.records import Reserved, Settled
from raykit.store import open_store
from raykit.store.ledger import Ledger
from raykit.store.people import cancel, pause, read_acts, resume
from raykit.store.place import gone
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

QC = """
[qc]
owner      = "ada"
every      = 5
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 1000" }
on_failure = "continue"
tries      = 2
deadline_s = 4
shares     = "this test has no other machine"
"""
ALL = {"required": 5, "passed": 5, "unreviewed": 5}
DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def trained(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a run that has trained to its end, with five checkpoints to examine."""
    folder = tmp_path_factory.mktemp("trained")
    plan = write_job(folder / "job", {"updates": "20"})
    plan.write_text(plan.read_text() + QC)
    ends = Launches(nursery, freeze_job(folder / "store", plan)).run()
    assert {code for code, _ in ends} == {0}, ends
    return folder / "store"


@pytest.fixture
def root(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "store"))


Start = Callable[..., Launching]


@pytest.fixture
def started(root: Path) -> Iterator[Start]:
    """Starts `raykit qc run tiny`; none of them outlives the test."""
    there: list[Launching] = []

    def start(*more: str, qc: str = "") -> Launching:
        there.append(raykit("qc", "run", "tiny", *more, root=root, environment={"TINY_QC": qc}))
        return there[-1]

    yield start
    for each in there:
        if each.process.poll() is None:
            each.signal(signal.SIGTERM)
        each.end()


def read(root: Path) -> QcRead:
    found = read_qc(open_store(str(root)), "tiny", now=time.time())
    assert found is not None
    return found


def counts(root: Path) -> dict[str, int]:
    return {state: count for state, count in read(root).counts().items() if count}


def wait_for_work(root: Path, running: Launching) -> int:
    """The process that examines something now."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        claimed = [each.claim for each in read(root).backlog.standings if each.status == "claimed"]
        for claim in claimed:
            if claim is not None and gone(claim.place) is False:
                return claim.place.pid
        assert running.process.poll() is None, running.end()
        time.sleep(0.05)
    raise AssertionError(f"nobody at work: {counts(root)}")


def leases(root: Path) -> tuple[set[str], set[str]]:
    """(reserved, settled) on the line of QC."""
    ledger = Ledger(open_store(str(root)), "tiny", by="test")
    ledger.refresh()
    events = [event for entry in ledger.entries for event in entry.events]
    reserved = {event.lease for event in events if isinstance(event, Reserved) and event.line == "qc"}
    return reserved, {event.lease for event in events if isinstance(event, Settled)} & reserved


def test_a_backlog_is_worked_off_and_what_it_cost_is_settled(root: Path, started: Start) -> None:
    code, out, err = started("--json").end()
    assert code == 0, err
    assert json.loads(out)["exit_code"] == 0  # nothing else is on stdout
    assert counts(root) == ALL
    reserved, settled = leases(root)
    assert reserved == settled
    assert {claim.lease for each in read(root).backlog.standings for claim in each.said.claims} == reserved
    (measured,) = read_acts(open_store(str(root)), "tiny").learned
    assert measured.memory_bytes["one check"] > 50_000_000
    check_invariants(open_store(str(root)))
    # asked again, it answers from the store: no Ray is started
    outcome = run_backlog("tiny", str(root), say=_never)
    assert (outcome.exit_code, outcome.why) == (0, None)


def _never(line: str) -> None:
    raise AssertionError(line)


@pytest.mark.slow
def test_two_at_once_share_the_backlog_of_a_run_that_has_ended(root: Path, started: Start) -> None:
    for each in (started("--json"), started("--json")):
        code, _, err = each.end()
        assert code == 0, err
    assert counts(root) == ALL
    assert all(each.said.disputed == () for each in read(root).backlog.standings)
    reserved, settled = leases(root)
    assert reserved == settled
    check_invariants(open_store(str(root)))


def test_what_is_paused_is_not_worked_at(root: Path) -> None:
    store = open_store(str(root))
    pause(store, "role:qc", reason="H100s promised", person="mira", at=time.time())
    with pytest.raises(FleetPaused, match="promised"):
        run_backlog("tiny", str(root), say=_never)
    assert counts(root) == {"required": 5, "missing": 5}
    resume(store, "role:qc", cleared="done", person="mira", at=time.time())


def test_a_plan_without_qc_has_nothing_to_run(nursery: Nursery, tmp_path: Path) -> None:
    freeze_job(tmp_path / "store", write_job(tmp_path / "job"))
    with pytest.raises(GateError, match="has no"):
        run_backlog("tiny", str(tmp_path / "store"), say=_never)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_says_nothing_on_stdout(root: Path, started: Start) -> None:
    running = started("--json", qc="slow")
    kill(wait_for_work(root, running))
    code, out, err = running.end()
    assert code == 0, err
    assert json.loads(out)["counts"]["passed"] == 5
    assert counts(root) == ALL
    assert sum(len(each.said.failures) for each in read(root).backlog.standings) == 1


@pytest.mark.slow
def test_a_signal_ends_it_with_what_is_done_and_the_next_one_goes_on(root: Path, started: Start) -> None:
    running = started(qc="slow")
    pid = wait_for_work(root, running)
    running.signal(signal.SIGTERM)
    code, _, err = running.end()
    assert code == 4, err
    assert "SIGTERM: finishing what is in hand" in err
    assert not Path(f"/proc/{pid}").exists()
    standings = read(root).backlog.standings
    assert [failure for each in standings for failure in each.said.failures] == []  # nothing was dropped
    reserved, settled = leases(root)
    assert reserved == settled
    code, _, err = started().end()
    assert code == 0, err
    assert counts(root) == ALL


@pytest.mark.slow
def test_killed_outright_it_leaves_nothing_that_the_next_one_does_not_see_to(
    root: Path, started: Start
) -> None:
    running = started(qc="slow")
    pid = wait_for_work(root, running)
    kill(running.process.pid)
    running.end()
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    code, _, err = started().end()
    assert code == 0, err
    assert counts(root) == ALL
    reserved, settled = leases(root)
    assert reserved == settled  # the dead one's, too: its claim says who held it
    check_invariants(open_store(str(root)))


@pytest.mark.long
def test_a_cancel_ends_it_for_good(root: Path, started: Start) -> None:
    """What is in hand is finished and paid for, and nothing goes on."""
    running = started(qc="slow")
    wait_for_work(root, running)
    cancel(open_store(str(root)), "tiny", reason="the data was wrong", person="mira", at=time.time())
    code, out, err = running.end()
    assert code == 3, err
    assert "cancelled by mira" in out + err
    reserved, settled = leases(root)
    assert reserved == settled
    code, _, err = started().end()
    assert code == 3 and "cancelled by mira: the data was wrong" in err
    check_invariants(open_store(str(root)))


@pytest.mark.long
def test_it_leaves_once_its_ray_has_died_and_the_next_one_goes_on(root: Path, started: Start) -> None:
    """F20: whoever asks a dead Ray waits for ever, so nobody does."""
    running = started(qc="slow")
    pid = wait_for_work(root, running)
    kill(running.descendant("/raylet"))
    killed = time.monotonic()
    code, _, err = running.end(timeout_s=90)
    assert code == 6, err
    assert "the local Ray has died: raylet of it is gone" in err
    assert time.monotonic() - killed < 15
    assert not Path(f"/proc/{pid}").exists()
    code, _, err = started().end()
    assert code == 0, err
    assert counts(root) == ALL
    check_invariants(open_store(str(root)))


@pytest.mark.slow
def test_what_never_comes_to_an_end_is_parked_and_a_person_is_needed(root: Path, started: Start) -> None:
    running = started("--json", qc="loop")
    code, out, err = running.end()
    assert code == 3, err
    said = json.loads(out)
    assert said["counts"]["parked"] == 1
    assert "a person is needed" in said["why"]


@pytest.mark.slow
def test_a_defect_that_all_would_meet_pauses_it(root: Path, started: Start) -> None:
    running = started("--json", qc="raise")
    code, out, err = running.end()
    assert code == 4, err
    assert "cannot be drawn" in json.loads(out)["why"]
    held = read(root).pause
    assert held is not None
    assert held.pause.cause == "defect"
