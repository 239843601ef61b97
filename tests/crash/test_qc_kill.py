"""Workers that are killed, stopped, doubled and woken up too late: one receipt for each request, and the same bytes."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from qchooks import AT, Examine, Made, at, backlog, eventually, start, work, worker

from raykit.qc.backlog import Said
from raykit.records import Receipt
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.check import check
from raykit.store.local import LocalStore
from raykit.store.people import read_acts
from raykit.store.qc import Examinations
from raykit.testing import MemoryStore
from raykit.testing.invariants import check_invariants

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]


def receipts(store: ObjectStore) -> dict[str, bytes]:
    """The bytes of all receipts and pictures: what decides, and what no crash may change."""
    prefix = layout.qc("digits")
    kinds = ("receipts", "artifacts")
    return {each.key: store.get(each.key) for kind in kinds for each in store.list(f"{prefix}/{kind}")}


@functools.cache
def undisturbed(updates: int) -> dict[str, bytes]:
    """What one worker publishes that nobody disturbs."""
    made = backlog(MemoryStore(), updates=updates)
    work(worker(made))
    return receipts(made.store)


def said(made: Made) -> dict[int, Said]:
    """What is written of each request, by update."""
    examinations = Examinations(made.store, made.experiment)
    return {examinations.request(request).update: found for request, found in examinations.said().items()}


def paused(made: Made) -> str | None:
    held = read_acts(made.store, made.experiment).pauses.get(f"contract:{made.suite.digest}")
    return None if held is None else held.pause.reason


def require_exactly_one_each(made: Made, updates: int) -> None:
    assert receipts(made.store) == undisturbed(updates)
    for update, found in said(made).items():
        assert found.conflicts == (), update
        assert found.disputed == (), update
        assert len(found.claims) >= 1, update
        assert len(found.failures) == len(found.claims) - 1, update
    check_invariants(made.store)


# --- SIGKILL ----------------------------------------------------------------------------------------------------


def kill_at_random(root: Path, *, updates: int, kills: int, seed: int, sleep_s: float) -> Made:
    """Start one process after the other and kill each at a random moment; the last one may finish."""
    made = backlog(LocalStore(root), updates=updates)
    rng = random.Random(seed)
    print("seed", seed)
    mid_unit = 0
    for n in range(kills):
        with start(root, f"w{n}", tries=10_000, sleep_s=sleep_s) as started:
            threading.Event().wait(rng.uniform(0.0, 1.2 * sleep_s))
            started.kill()
        claimed = sum(len(found.claims) for found in said(made).values())
        ended = sum(len(found.failures) + (found.receipt is not None) for found in said(made).values())
        mid_unit += claimed > ended
    with start(root, "last", tries=10_000) as started:
        assert {line.split()[0] for line in started.rest()} <= {"published", "already"}
    print(mid_unit, "of", kills, "kills in the middle of a unit")
    assert mid_unit >= kills // 2
    return made


def test_a_few_kills_at_random_moments(tmp_path: Path) -> None:
    # covers F14, I3, QC-22, GOLD-29
    made = kill_at_random(tmp_path, updates=40, kills=4, seed=20261130, sleep_s=0.1)
    require_exactly_one_each(made, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_thirty_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    # covers F14, I2, I3, QC-22, GOLD-29
    made = kill_at_random(tmp_path, updates=110, kills=30, seed=seed, sleep_s=0.2)
    require_exactly_one_each(made, 110)
    assert len(receipts(made.store)) == 2 * 12


# One interpreter forks a child per k, so that trying all k costs one start. A story is what the child does.
ALL_K = """
import itertools, json, os, shutil, sys
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/crash"]
import test_qc_kill as stories
from raykit.store.local import LocalStore
from raykit.testing import Fault, FaultStore, kill

root, story = sys.argv[1], getattr(stories, sys.argv[3])
for k in itertools.count(1):
    shutil.copytree(f"{root}/made", f"{root}/{k}")
    child = os.fork()
    if child == 0:
        story(f"{root}/{k}", FaultStore(LocalStore(f"{root}/{k}"), Fault(kill, at=k)))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([k, status]), flush=True)
    if status == 0:
        break
"""


def kill_at_all_k(root: Path, story: str) -> Iterator[Made]:
    """Try every store operation of a story; what each kill has left."""
    done = subprocess.run(
        [sys.executable, "-c", ALL_K, str(root), str(TESTS), story],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    tried = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for _, status in tried] == [-9] * (len(tried) - 1) + [0], "every fault but the last fired"
    print(len(tried) - 1, "operations")
    for k, _ in tried:
        made = at(root / str(k))
        report = check(made.store, read_data=True)
        assert report.findings == (), k
        assert {orphan.key.split("/")[3] for orphan in report.orphans} <= {"took", "artifacts"}, k
        yield made


def examine_all(root: str, store: ObjectStore) -> None:
    """Examine all that is open."""
    work(worker(at(Path(root)), "doomed", store=store))


def test_a_kill_at_any_operation_of_examining(tmp_path: Path) -> None:
    # covers F2, I1, I2, I3, QC-22, GOLD-29
    backlog(LocalStore(tmp_path / "made"), updates=10)
    whole = undisturbed(10)
    progress = []
    for made in kill_at_all_k(tmp_path, "examine_all"):
        before = receipts(made.store)
        assert before.items() <= whole.items(), "what is written of an answer is that answer"
        progress.append(len(before))
        examine = Examine(made.suite)
        turns = work(worker(made, "next", examine=examine))
        assert {turn.kind for turn in turns} <= {"published", "nothing"}
        done = len([key for key in before if "/receipts/" in key])
        assert examine.seen == [0, 10][done:], "an answer that is there is not asked for again"
        require_exactly_one_each(made, 10)
        assert all(failure.kind == "lost" for found in said(made).values() for failure in found.failures)
    assert progress == sorted(progress)
    assert set(progress) == set(range(5)), "each picture and each receipt was cut off before and after"


def defect(request: object) -> None:
    raise ZeroDivisionError("division by zero")


def meet_a_defect(root: str, store: ObjectStore) -> None:
    """Two processes meet the same defect, one after the other."""
    made = at(Path(root))
    for name in ("one", "two"):
        worker(made, name, store=store, examine=Examine(made.suite, before=defect)).turn()


def test_a_kill_at_any_operation_of_failing(tmp_path: Path) -> None:
    # covers F2
    backlog(LocalStore(tmp_path / "made"), updates=10)
    pauses = []
    for made in kill_at_all_k(tmp_path, "meet_a_defect"):
        known = len({failure.worker for found in said(made).values() for failure in found.failures})
        pauses.append((known, paused(made) is not None))
        for n in range(4):
            failing = worker(made, f"next{n}", tries=9, examine=Examine(made.suite, before=defect))
            if failing.turn().kind == "paused":
                break
        assert paused(made) is not None, "a defect that two have met stops everyone, whoever was killed"
        assert receipts(made.store) == {}
        check_invariants(made.store)
    assert sorted(set(pauses)) == [(0, False), (1, False), (2, False), (2, True)]


def answer_late(root: str, store: ObjectStore) -> None:
    """A process comes to another answer, after one that was faster."""
    made = at(Path(root))
    salted = Examine(made.suite, salt="x", before=lambda request: overtake(made))
    worker(made, "slow", store=store, examine=salted).turn()


def overtake(made: Made) -> None:
    worker(made, "fast", clock=lambda: AT + 601.0).turn()


def test_a_kill_at_any_operation_of_a_conflict(tmp_path: Path) -> None:
    # covers F2, F16, I2, I3
    backlog(LocalStore(tmp_path / "made"), updates=10)
    first = undisturbed(10)
    seen = set()
    for made in kill_at_all_k(tmp_path, "answer_late"):
        found = said(made).get(0, Said())
        seen.add(
            (found.receipt is not None, bool(found.disputed), bool(found.conflicts), paused(made) is not None)
        )
        if found.receipt is not None:
            assert found.receipt.to_bytes() in first.values(), "what decided stays"
        turns = work(worker(made, "next", clock=lambda: AT + 700.0))
        if found.disputed:
            assert turns[-1].kind == "paused"
            assert paused(made) is not None
        else:
            assert turns[-1].kind == "nothing"
            assert receipts(made.store) == first
        check_invariants(made.store)
    print(sorted(seen))
    assert {(True, True, True, True), (True, True, False, False), (True, True, True, False)} <= seen


# --- more than one --------------------------------------------------------------------------------------------------


def share(root: Path, *, updates: int) -> list[int]:
    """Let two launches of two workers each work on one backlog at once; how many checkpoints each has examined."""
    made = backlog(LocalStore(root / "store"), updates=updates)
    gate = root / "gate"
    with contextlib.ExitStack() as stack:
        names = [f"launch-{launch}-{n}" for launch in (1, 2) for n in (1, 2)]
        started = [
            stack.enter_context(start(root / "store", name, sleep_s=0.02, gate=gate)) for name in names
        ]
        gate.touch()
        told = [each.rest() for each in started]
    require_exactly_one_each(made, updates)
    assert all(len(found.claims) == 1 for found in said(made).values()), "nobody did what another one did"
    assert {line.split()[0] for lines in told for line in lines} == {"published"}
    return [len(lines) for lines in told]


def test_two_launches_on_one_backlog_share_it(tmp_path: Path) -> None:
    # covers F24, I3, QC-27
    shares = share(tmp_path, updates=110)
    print("shares", shares)
    assert sum(shares) == 12
    assert sum(share > 0 for share in shares) > 1, "more than one was at it"


@pytest.mark.slow
@pytest.mark.parametrize("n", range(20))
def test_twenty_of_twenty_launches_share_it(tmp_path: Path, n: int) -> None:
    # covers F24, I3
    assert sum(share(tmp_path, updates=30)) == 4


# --- SIGSTOP --------------------------------------------------------------------------------------------------------


def wake_up_late(root: Path, *, salt: str) -> tuple[Made, str]:
    """Stop a process in the middle of update 0 past its deadline, let another one do all, and wake it up again."""
    made = backlog(LocalStore(root / "store"), updates=20)
    gate = root / "gate"
    with start(root / "store", "zombie", gate=gate, deadline_s=0.4, salt=salt) as zombie:
        eventually(lambda: any(found.claims for found in said(made).values()), "a claim")
        zombie.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        with start(root / "store", "other", deadline_s=60.0) as other:
            assert other.rest() == ["published 0", "published 10", "published 20"]
        assert time.monotonic() - begin < 0.4 + 5.0
        gate.touch()
        zombie.process.send_signal(signal.SIGCONT)
        return made, zombie.rest()[0]


def test_a_process_that_wakes_up_past_its_deadline_changes_nothing(tmp_path: Path) -> None:
    # covers F16, I2, I3
    made, told = wake_up_late(tmp_path, salt="")
    assert told == "already 0"
    require_exactly_one_each(made, 20)
    found = said(made)[0]
    assert [(failure.kind, failure.worker, failure.said_by) for failure in found.failures] == [
        ("deadline", "zombie", "other")
    ]
    assert sorted(took.worker for took in found.took) == ["other", "zombie"]
    assert paused(made) is None


def test_a_process_that_wakes_up_with_other_bytes_stops_everyone(tmp_path: Path) -> None:
    # covers F16, I2, I3
    made, told = wake_up_late(tmp_path, salt="another machine")
    assert told == "conflict 0"
    assert receipts(made.store).items() >= undisturbed(20).items(), "what decided stays"
    found = said(made)[0]
    (conflict,) = found.conflicts
    assert conflict.worker == "zombie"
    assert conflict.differs == ("metrics",)
    assert conflict.other["metrics"] != conflict_free(made)["metrics"]
    assert (
        Receipt.model_validate_json(json.dumps(conflict.other), by_alias=True).digest == found.took[0].receipt
    )
    reason = paused(made)
    assert reason is not None
    assert "of update 0 has two answers, which differ in metrics" in reason
    check_invariants(made.store)
    with start(tmp_path / "store", "later") as later:
        assert later.rest() == ["paused None"]


def conflict_free(made: Made) -> dict[str, object]:
    receipt = said(made)[0].receipt
    assert receipt is not None
    return receipt.plain()


@pytest.mark.slow
@pytest.mark.parametrize("n", range(10))
def test_ten_of_ten_wake_up_late(tmp_path: Path, n: int) -> None:
    # covers F16
    made, told = wake_up_late(tmp_path, salt="")
    assert told == "already 0"
    require_exactly_one_each(made, 20)
