"""Workers on a synthetic set that are killed, stopped, doubled and woken up too late: no row is lost, none is there
twice, and the manifest is that of a run which nobody disturbed."""

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
from typing import Any

import pytest
from makegen import (
    Started,
    ToyMake,
    contract_at,
    eventually,
    manifest_of,
    run_processes,
    start,
    toy_set,
    work,
)
from makeset import SetMaker

from raykit.records import GenerationContract
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.check import check
from raykit.store.generation import Listing, Shards
from raykit.store.local import LocalStore
from raykit.store.parquet import read_parquet
from raykit.store.people import read_acts
from raykit.testing import MemoryStore
from raykit.work import gen_worker
from raykit.work.gen_worker import Rules, UnitWorker
from raykit.work.puller import ENDS

pytestmark = pytest.mark.long

TESTS = Path(__file__).parents[1]
SAMPLES = 3
"""Rows of each input."""


def made(store: ObjectStore, units: int, **traits: Any) -> SetMaker:
    """A set of so many units of four rows, several samples of each input; its canary is made, and has passed."""
    inputs = -(-4 * units // SAMPLES)
    maker = toy_set(store, canary=False, rows_asked=4 * units, samples=SAMPLES, texts=inputs, **traits)
    work(a_worker(store, maker.generation_contract, "canary"))
    maker.canary()
    return maker


@functools.cache
def undisturbed(units: int) -> bytes:
    """The manifest of a set that one worker makes and nobody disturbs."""
    maker = made(MemoryStore(), units)
    work(a_worker(maker.store, maker.generation_contract))
    return manifest_of(maker.store, maker.generation_contract).to_bytes()


def a_worker(store: ObjectStore, contract: GenerationContract, name: str = "w", **how: Any) -> UnitWorker:
    make = ToyMake(contract, **how)
    return UnitWorker(
        store, contract, Rules(tries=3, deadline_s=600.0, canary_units=2), worker=name, make=make
    )


def listed(root: Path) -> Listing:
    return Shards(LocalStore(root), contract_at(root)).listing()


def decided(store: ObjectStore) -> dict[str, bytes]:
    """What readers go by, and no crash may change."""
    prefix = layout.experiment("digits") + "/generation"
    return {each.key: store.get(each.key) for each in store.list(prefix) if "/receipts/" in each.key}


def require_exactly_one_each(root: Path, units: int) -> None:
    """The set is the one that nobody disturbed: every row once."""
    store, contract = LocalStore(root), contract_at(root)
    assert manifest_of(store, contract).to_bytes() == undisturbed(units)
    shards, found = Shards(store, contract), listed(root)
    assert found.conflicts == {}
    rows: list[int] = []
    pairs: list[tuple[str, int]] = []
    for receipt in shards.receipts():
        table = read_parquet(shards.data(receipt), "a unit")
        rows += table.column("row").to_pylist()
        pairs += zip(table.column("id").to_pylist(), table.column("sample").to_pylist(), strict=True)
    assert rows == list(range(4 * units)), "no row is lost, and none is there twice"
    assert len(set(pairs)) == 4 * units
    assert check(store, read_data=True).findings == ()


# --- SIGKILL ------------------------------------------------------------------------------------------------


def kill_at_random(root: Path, *, units: int, kills: int, seed: int, sleep_s: float) -> None:
    """Two processes at a time; one of them is killed at a random moment, and another one takes its place."""
    made(LocalStore(root), units)
    draws = random.Random(seed)
    print("seed", seed)
    mid_unit = 0
    with contextlib.ExitStack() as stack:
        crew = [stack.enter_context(start(root, f"w{n}", sleep_s=sleep_s)) for n in range(2)]
        for n in range(kills):
            threading.Event().wait(draws.uniform(0.0, 2 * sleep_s))
            victim = crew.pop(draws.randrange(2))
            before = set(listed(root).claims)
            victim.kill()
            mid_unit += bool(before & set(listed(root).claims))
            crew.append(
                stack.enter_context(start(root, f"w{n + 2}", sleep_s=0 if n > kills - 3 else sleep_s))
            )
        for each in crew:
            assert each.rest()[-1].startswith("ended nothing")
    lost = [each.kind for found in listed(root).failures.values() for each in found]
    print(len(lost), "attempts were lost in", kills, "kills")
    assert set(lost) <= {"lost"} and len(lost) <= kills
    assert lost and mid_unit, "kills in the middle of a unit"


def test_a_few_kills_at_random_moments(tmp_path: Path) -> None:
    # covers F15, I3, I10, GEN-12
    kill_at_random(tmp_path / "s", units=200, kills=4, seed=20261130, sleep_s=0.05)
    require_exactly_one_each(tmp_path / "s", 200)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_fifty_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    # covers F15, I3, I10, GEN-12
    kill_at_random(tmp_path / "s", units=2000, kills=50, seed=seed, sleep_s=0.05)
    require_exactly_one_each(tmp_path / "s", 2000)


# One interpreter forks a child per k, so that trying all k costs one start. A story is what the child does.
ALL_K = """
import itertools, json, os, shutil, sys
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/crash"]
import test_gen_kill as stories
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


def kill_at_all_k(root: Path, story: str) -> Iterator[Path]:
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
        assert check(LocalStore(root / str(k)), read_data=True).findings == (), k
        yield root / str(k)


def make_all(root: str, store: ObjectStore) -> None:
    """Make every unit. How often it listens and lists does not depend on the clock: each kill has the same operations
    before it."""
    gen_worker.LISTEN_S = gen_worker.HEED_S = gen_worker.LOOK_AGAIN_S = 1000.0
    work(a_worker(store, contract_at(Path(root)), "doomed"))


def test_a_kill_at_any_operation_of_making_a_set(tmp_path: Path) -> None:
    # covers F2, I1, I2, I3, GEN-12
    made(LocalStore(tmp_path / "made"), 5)
    progress = []
    for root in kill_at_all_k(tmp_path, "make_all"):
        store, contract = LocalStore(root), contract_at(root)
        before = decided(store)
        progress.append(len(before))
        make = ToyMake(contract)
        rules = Rules(tries=3, deadline_s=600.0, canary_units=2)
        turns = work(UnitWorker(store, contract, rules, worker="next", make=make))
        assert {turn.kind for turn in turns} <= {"published", "nothing"}
        assert len(make.seen) == 5 - len(before), "a unit that is there is not made again"
        assert decided(store).items() >= before.items()
        require_exactly_one_each(root, 5)
        assert {each.kind for found in listed(root).failures.values() for each in found} <= {"lost"}
    assert progress == sorted(progress) and set(progress) == {2, 3, 4, 5}


def fail_all(root: str, store: ObjectStore) -> None:
    """Three processes meet a defect that all units share, one after the other."""
    contract = contract_at(Path(root))
    for name in ("one", "two", "three"):
        a_worker(store, contract, name, fail_from=0).turn()


def test_a_kill_at_any_operation_of_failing(tmp_path: Path) -> None:
    # covers F2, F25
    made(LocalStore(tmp_path / "made"), 12)
    for root in kill_at_all_k(tmp_path, "fail_all"):
        store, contract = LocalStore(root), contract_at(root)
        detail = ""
        for n in range(60):
            turn = a_worker(store, contract, f"next{n}", fail_from=0).turn()
            if turn.kind in ENDS:
                detail = turn.detail or ""
                break
        assert "failed alike" in detail and "cannot be made" in detail, (
            "what is wrong is said, whoever was killed"
        )
        assert len(decided(store)) == 2


# --- SIGSTOP ------------------------------------------------------------------------------------------------


def wake_up_late(root: Path, *, salt: str) -> list[str]:
    """Stop a process in the middle of a unit past its deadline, let another one do all, and wake it up again."""
    made(LocalStore(root), 6)
    gate = root.parent / f"{root.name}.gate"
    with start(root, "zombie", gate=gate, deadline_s=0.4, salt=salt) as zombie:
        eventually(lambda: bool(listed(root).claims), "a claim of a unit that is not made")
        zombie.process.send_signal(signal.SIGSTOP)
        begin_s = time.monotonic()
        with start(root, "other") as other:
            assert other.rest()[-1].startswith("ended nothing")
        assert time.monotonic() - begin_s < 30.0
        before = decided(LocalStore(root))
        assert len(before) == 6
        gate.touch()
        zombie.process.send_signal(signal.SIGCONT)
        told = zombie.rest()
    assert decided(LocalStore(root)) == before, "no readable byte changes"
    return told


def test_a_process_that_wakes_up_past_its_deadline_changes_nothing(tmp_path: Path) -> None:
    # covers F16, I2, I3
    told = wake_up_late(tmp_path / "s", salt="")
    assert [line.split()[0] for line in told] == ["already", "ended"]
    require_exactly_one_each(tmp_path / "s", 6)
    (found,) = listed(tmp_path / "s").failures.values()
    assert [(each.kind, each.worker, each.said_by) for each in found] == [("deadline", "zombie", "other")]
    assert read_acts(LocalStore(tmp_path / "s"), "digits").pauses == {}


def test_a_process_that_wakes_up_with_other_bytes_stops_everyone(tmp_path: Path) -> None:
    # covers F16, I2, I3
    root = tmp_path / "s"
    told = wake_up_late(root, salt="another machine")
    assert [line.split()[0] for line in told] == ["conflict", "ended"]
    store, contract = LocalStore(root), contract_at(root)
    assert manifest_of(store, contract).to_bytes() == undisturbed(6), "what decided stays"
    (conflicts,) = listed(root).conflicts.values()
    assert [each.worker for each in conflicts] == ["zombie"]
    assert {"contents", "sha256"} <= set(conflicts[0].differs)
    (held,) = read_acts(store, "digits").pauses.values()
    assert "has two answers" in held.pause.reason


@pytest.mark.slow
@pytest.mark.parametrize("n", range(10))
def test_ten_of_ten_wake_up_late(tmp_path: Path, n: int) -> None:
    # covers F16
    assert wake_up_late(tmp_path / "s", salt="")[0].startswith("already")
    require_exactly_one_each(tmp_path / "s", 6)


def test_a_unit_that_hangs_is_taken_over_past_its_deadline(tmp_path: Path) -> None:
    # covers F28
    root = tmp_path / "s"
    made(LocalStore(root), 6)
    with start(root, "hangs", hang_at=3, deadline_s=0.5):
        with start(root, "other") as other:
            assert other.rest()[-1].startswith("ended nothing")
        require_exactly_one_each(root, 6)
    (found,) = listed(root).failures.values()
    assert [(each.kind, each.worker) for each in found] == [("deadline", "hangs")]


# --- defects ------------------------------------------------------------------------------------------------


def run_crew(root: Path, size: int, **options: Any) -> tuple[list[str], int]:
    """So many processes; one that may itself be what fails is replaced. Why they stopped, and how many there were."""
    ends: list[str] = []
    with contextlib.ExitStack() as stack:
        crew: list[Started] = []
        hired = 0
        while len(crew) + len(ends) < size:
            crew.append(stack.enter_context(start(root, f"w{hired}", spends=1, seed=hired, **options)))
            hired += 1
            assert hired < 60, "endless"
            while crew and len(crew) + len(ends) == size:
                eventually(lambda: any(each.process.poll() is not None for each in crew), "an end")
                for each in [each for each in crew if each.process.poll() is not None]:
                    crew.remove(each)
                    last = each.rest()[-1]
                    if not last.startswith("ended failed"):
                        ends.append(last)
    return ends, hired


def test_a_defect_that_all_units_share_stops_four_workers(tmp_path: Path) -> None:
    # covers F25, FLEET-01, FLEET-02
    root = tmp_path / "s"
    made(LocalStore(root), 400)
    ends, hired = run_crew(root, 4, nonfinite_from=200, sleep_s=0.01)
    failures = listed(root).failures
    print(sorted(failures), hired, ends)
    assert len(failures) <= 4, "at most one unit for each worker is wasted"
    assert {each.kind for found in failures.values() for each in found} == {"bounds"}
    assert all("failed alike" in end and "are nonfinite" in end for end in ends), "the cause is named"
    assert set(failures) <= set(range(200, 400))
    made_s = a_worker(LocalStore(root), contract_at(root), "later").turn()
    assert made_s.kind == "waiting", "nothing new is started"


def test_a_defect_that_comes_and_goes_is_tried_again_and_then_parked(tmp_path: Path) -> None:
    # covers F26
    root = tmp_path / "s"
    made(LocalStore(root), 120)
    ends, hired = run_crew(root, 2, flaky=0.3)
    found = listed(root)
    assert max(len(each) for each in found.failures.values()) <= 3
    parked = {unit for unit, each in found.failures.items() if len(each) == 3}
    assert set(found.published.tolist()) | parked == set(range(120))
    assert not set(found.published.tolist()) & parked
    assert read_acts(LocalStore(root), "digits").pauses == {}
    print(len(parked), "parked", hired, "processes", ends)


def test_a_poison_row_sinks_no_unit_of_any_process(tmp_path: Path) -> None:
    root = tmp_path / "s"
    maker = made(LocalStore(root), 40)
    contract = maker.generation_contract
    for n in range(2):
        worker = a_worker(LocalStore(root), contract, f"w{n}", poison_rows=(17, 100))
        for _ in range(19):
            assert worker.turn().kind == "published"
    manifest = manifest_of(LocalStore(root), contract)
    assert (manifest.rows.requested, manifest.rows.produced, manifest.failed) == (160, 158, {"ValueError": 2})


def test_processes_share_a_set_and_a_complete_one_is_left_alone(tmp_path: Path) -> None:
    # covers F24, I11, GEN-12, GEN-15
    root = tmp_path / "s"
    made(LocalStore(root), 200)
    told = run_processes(root, 2)
    require_exactly_one_each(root, 200)
    made_by = [{int(line.split()[1]) for line in lines if line.startswith("published")} for lines in told]
    assert not made_by[0] & made_by[1] and made_by[0] | made_by[1] == set(range(2, 200))
    assert all(made_by), "both were at it"
    assert all(len(claims) == 1 for claims in listed(root).claims.values())
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    (again,) = run_processes(root, 1)
    assert again[-1].startswith("ended nothing") and len(again) == 1
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
