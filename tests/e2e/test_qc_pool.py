"""A QC pool on a real local Ray: workers that are killed, stopped, loop, eat memory, raise, and are refused.

covers QC-14 QC-15 QC-16 QC-19 QC-21 QC-22 QC-27 FLEET-01 FLEET-02 FLEET-06 RAY-02 RAY-08, F14 F16 F17 F24, I3 I8 I9
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import pytest
import qcray
from maketrials import TrialsMaker
from qcray import LAUNCH, Backlog, FakeDoor, backlog, behave, lock_anew
from qcray import QcMaker as Maker

from raykit.errors import BudgetError, StoreUnavailableError
from raykit.fleet.pool import pool as pools
from raykit.fleet.pool.settings import PoolSettings
from raykit.fleet.qc.pool import QcPool
from raykit.fleet.session import LocalRay, start_local
from raykit.read.qc import read_qc
from raykit.read.qc_runs import BegunTrials
from raykit.records import Claim, Measured
from raykit.store import open_store
from raykit.store.people import pause, read_acts, resume
from raykit.store.place import gone
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

ALL = {"required": 5, "passed": 5, "unreviewed": 5}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalRay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(qcray.__file__).parent))
        with start_local(cpus=6, resources={"qc": 4}) as local:
            yield local


@pytest.fixture
def work(local: LocalRay, tmp_path: Path) -> Iterator[Backlog]:
    """A run with five checkpoints to examine. Afterwards nobody is there any more, and nothing lies about."""
    made = backlog(tmp_path / "store")
    yield made
    made.close()
    assert [claim for claim in claims(made) if gone(claim.place) is not True] == []
    assert list(tmp_path.glob("*/qc-*")) == []
    assert sorted(made.door.reserved) == sorted(made.door.settled)
    check_invariants(open_store(str(made.root)))


def claims(work: Backlog) -> list[Claim]:
    return [claim for each in work.read().backlog.standings for claim in each.said.claims]


def in_hand(work: Backlog, update: int) -> Callable[[], Claim | None]:
    """The claim of whoever is at an update now."""

    def look() -> Claim | None:
        standing = work.read().backlog.at(update)
        return None if standing is None or standing.status != "claimed" else standing.claim

    return look


# --- what a pool is for -------------------------------------------------------------------------------------


def test_every_checkpoint_is_examined_once_and_one_check_is_measured(work: Backlog) -> None:
    pool = work.pool(slots=3)
    glance = work.drain(pool)
    assert work.counts() == ALL
    assert (glance.open, glance.waits, glance.failed) == (0, None, ())
    assert [len(each.said.claims) for each in work.read().backlog.standings] == [1] * 5
    assert work.door.contracts == {work.made.suite.digest}
    assert all(lease.startswith(f"{LAUNCH}-qc-") for lease in work.door.reserved)
    assert {claim.lease for claim in claims(work)} <= set(work.door.reserved)
    pool.close()
    assert {reason for _, reason in work.door.settled.values()} == {"completed"}
    # a second pool finds nothing to do, and measures nothing anew
    glance = work.drain(work.pool("beef", slots=3))
    assert (glance.workers, len(work.door.reserved)) == (0, len(work.door.settled))
    (measured,) = [
        each
        for each in read_acts(work.made.store, work.made.experiment).learned
        if isinstance(each, Measured)
    ]
    assert (measured.what, measured.pool, measured.units) == ("qc-unit", "qc", 1)
    assert measured.memory_bytes == {"one check": 1000}
    assert f"qc-{LAUNCH}-1" in measured.how


def test_a_commit_is_asked_about_within_two_seconds(local: LocalRay, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    maker = Maker(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.commit()
    pool = QcPool(
        str(tmp_path / "store"),
        maker.experiment,
        maker.run,
        LAUNCH,
        settings=PoolSettings(),
        door=FakeDoor(),
        folder=tmp_path,
        say=lambda line: None,
    )
    try:
        for _ in range(3):
            maker.rows(10)
            maker.commit()
            asked, end = maker.request(maker.update).id, time.monotonic() + 2.0
            while not maker.examinations.said().get(asked, None):
                assert time.monotonic() < end, "not asked within two seconds"
                pool.turn()
                time.sleep(0.1)
    finally:
        pool.close(grace_s=0.0)


def test_two_pools_share_a_backlog(work: Backlog) -> None:
    behave(work.root, sleep_s=0.1)
    pools = [work.pool("one", slots=2), work.pool("two", slots=2)]
    work.wait("all of it", lambda: work.counts() == ALL, *pools)
    assert [each.said.disputed for each in work.read().backlog.standings] == [()] * 5


def test_one_pool_serves_every_trial_of_a_search_and_those_that_begin_meanwhile(
    local: LocalRay, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path / "store"))
    maker = TrialsMaker(store)
    for row in (1, 2):
        maker.trained(row)
    door, lines = FakeDoor(), []
    pool = QcPool(
        str(tmp_path / "store"),
        maker.experiment,
        BegunTrials,
        LAUNCH,
        settings=PoolSettings(slots=2),
        bench=qcray.Bench,
        door=door,
        folder=tmp_path,
        say=lines.append,
    )
    try:
        assert pool.drain(60.0).counts["passed"] == 10, lines
        maker.trained(3)
        assert pool.drain(60.0).counts["passed"] == 15, lines
        assert pool.read is not None and [read.run for read in pool.read.reads][-1] == "trial-003"
    finally:
        pool.close()
    assert sorted(door.reserved) == sorted(door.settled)
    check_invariants(store)


# --- what goes wrong with a worker --------------------------------------------------------------------------


def test_a_killed_worker_is_replaced_and_its_unit_examined_once(work: Backlog) -> None:
    behave(work.root, at={20: "30"}, times=1)
    pool = work.pool()
    claim = work.wait("update 20 in hand", in_hand(work, 20))
    process = Path(f"/proc/{claim.place.pid}")
    # the kernel ends it before training, which also comes first for the processor; and it may hold only so much
    assert (process / "oom_score_adj").read_text() == "1000\n"
    assert os.getpriority(os.PRIO_PROCESS, claim.place.pid) >= 5
    (limit,) = [x for x in (process / "limits").read_text().splitlines() if x.startswith("Max data size")]
    assert limit.split()[3].isdecimal()
    os.kill(claim.place.pid, signal.SIGKILL)
    work.drain(pool)
    assert work.counts() == ALL
    assert work.attempts(20) == [(1, "lost"), (2, "-")]
    assert work.door.settled[f"{LAUNCH}-qc-1"][1] == "killed"


def test_a_stopped_worker_is_replaced_by_its_deadline(work: Backlog) -> None:
    behave(work.root, at={10: "stop"}, times=1)
    pool = work.pool(deadline_s=2.0)
    claim = work.wait("update 10 in hand", in_hand(work, 10))
    started = time.monotonic()
    work.drain(pool)
    assert time.monotonic() - started < 15
    assert work.counts() == ALL
    assert work.attempts(10) == [(1, "deadline"), (2, "-")]
    assert gone(claim.place) is True


@pytest.mark.slow
def test_one_that_loops_for_ever_is_parked_after_its_tries(work: Backlog) -> None:
    behave(work.root, at={20: "loop"})
    glance = work.drain(work.pool(deadline_s=2.0))
    assert work.counts() == {"required": 5, "passed": 4, "parked": 1, "unreviewed": 4}
    assert work.attempts(20) == [(1, "deadline"), (2, "deadline"), (3, "deadline")]
    assert glance.open == 0


def test_one_that_eats_memory_fails_of_that_and_is_parked(work: Backlog) -> None:
    behave(work.root, at={30: "hog"})
    work.drain(work.pool(memory_bytes=2**30))
    assert work.counts() == {"required": 5, "passed": 4, "parked": 1, "unreviewed": 4}
    assert work.attempts(30) == [(1, "memory"), (2, "memory"), (3, "memory")]


def test_what_two_workers_meet_alike_pauses_everyone_on_the_suite(work: Backlog) -> None:
    behave(work.root, at={10: "raise"})
    glance = work.drain(work.pool())
    assert work.attempts(10) == [(1, "recipe"), (2, "recipe")]
    assert len({claim.worker for claim in claims(work) if claim.request == request_of(work, 10)}) == 2
    held = work.read().pause
    assert held is not None
    assert (held.pause.scope, held.pause.cause) == (f"contract:{work.made.suite.digest}", "defect")
    assert glance.waits is not None
    assert glance.workers == 0 or work.drain(work.pools[0]).busy == 0


def request_of(work: Backlog, update: int) -> str:
    standing = work.read().backlog.at(update)
    assert standing is not None
    return standing.request.id


@pytest.mark.slow
def test_workers_that_die_at_their_start_are_not_started_for_ever(work: Backlog) -> None:
    behave(work.root, start="kill")
    pool = work.pool()
    glance = work.drain(pool)
    assert glance.ended is not None
    assert "3 workers in a row" in glance.ended
    assert len(work.door.reserved) == 3
    assert pool.turn().workers == 0


@pytest.mark.slow
def test_a_bench_that_cannot_be_made_is_a_failed_unit(work: Backlog) -> None:
    """Two processes that cannot even begin: recorded as what it is, with everyone on the suite paused."""
    behave(work.root, start="raise")
    work.drain(work.pool())
    assert work.attempts(0) == [(1, "recipe"), (2, "recipe")]
    failures = work.read().backlog.standings[0].said.failures
    assert "no such data" in failures[-1].message
    assert work.read().pause is not None


# --- people and money ---------------------------------------------------------------------------------------


def test_a_pause_lets_the_unit_in_hand_be_finished(work: Backlog) -> None:
    behave(work.root, at={20: "1.5"})
    pool, store = work.pool(), work.made.store
    work.wait("update 20 in hand", in_hand(work, 20))
    scope = f"experiment:{work.made.experiment}"
    pause(store, scope, reason="promised to others", person="mira", at=time.time())
    work.wait("nobody there", lambda: pool.turn().workers == 0)
    assert work.attempts(20) == [(1, "-")]
    assert work.attempts(30) == []
    assert pool.turn().waits == "paused by mira: promised to others"
    resume(store, scope, cleared="done", person="mira", at=time.time())
    work.wait("all of it", lambda: work.counts() == ALL)
    assert {reason for _, reason in work.door.settled.values()} <= {"completed"}


def test_a_plan_that_is_locked_anew_is_asked_by_other_workers(work: Backlog) -> None:
    pool = work.pool()
    work.drain(pool)
    suite = lock_anew(work, fail={"ratio": "> 0.99"})
    assert suite != work.made.suite.digest
    work.drain(pool)
    assert work.read().suite.digest == suite
    assert work.counts() == ALL
    assert {claim.worker for claim in claims(work)} == {f"qc-{LAUNCH}-2"}
    assert [lease for lease, _ in work.door.settled.items()] == [f"{LAUNCH}-qc-1"]


def test_a_launch_that_ends_lets_the_unit_in_hand_be_finished_and_takes_no_other(work: Backlog) -> None:
    behave(work.root, sleep_s=0.7)
    pool = work.pool()
    work.wait("update 10 in hand", in_hand(work, 10))
    pool.close(grace_s=10.0)
    assert work.counts() == {"required": 5, "passed": 2, "pending": 3, "unreviewed": 2}
    assert [work.attempts(update) for update in (10, 20)] == [[(1, "-")], []]
    assert work.door.settled[f"{LAUNCH}-qc-1"][1] == "completed"


def test_a_refused_lease_starts_nobody_and_is_said_once(
    work: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raykit.fleet.pool.crew.REFUSED_S", 0.2)
    work.door.refuses = BudgetError("the line has 0.00 left")
    pool = work.pool()
    glance = work.drain(pool, 3.0)
    assert (glance.workers, glance.open, glance.waits) == (0, 1, "the line has 0.00 left")
    work.wait("several refusals", lambda: len(work.lines) > 0)
    assert work.counts() == {"required": 5, "pending": 5}
    work.door.refuses = None
    work.drain(pool)
    work.wait("all of it", lambda: work.counts() == ALL)
    assert len([line for line in work.lines if "0.00 left" in line]) == 1


@pytest.mark.slow
def test_a_lease_is_renewed_and_without_a_renewal_nobody_goes_on(
    work: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raykit.fleet.pool.lease.LEASE_S", 8.0)
    monkeypatch.setattr("raykit.fleet.pool.lease.RENEW_S", 7.5)
    monkeypatch.setattr("raykit.fleet.pool.lease.BACKSTOP_S", 5.0)
    monkeypatch.setattr("raykit.fleet.pool.crew.REFUSED_S", 0.2)
    behave(work.root, at={10: "30"}, times=1)
    pool = work.pool()
    work.wait("update 10 in hand", in_hand(work, 10))
    work.wait("a renewal", lambda: work.door.renewed)
    work.door.refuses = BudgetError("the line is used up")
    work.wait("the end of its lease", lambda: work.attempts(10) == [(1, "infrastructure")])
    assert work.door.settled[f"{LAUNCH}-qc-1"][0] < 11_000
    work.door.refuses = None
    monkeypatch.setattr("raykit.fleet.pool.lease.LEASE_S", 600.0)
    work.wait("all of it", lambda: work.counts() == ALL, pool)


# --- training does not notice -------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_is_said_once_and_no_turn_waits(
    work: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, away = pools.open_store, threading.Event()
    away.set()

    class Slow:
        def __getattr__(self, name: str) -> object:
            verb = getattr(true(str(work.root)), name)

            def slowly(*arguments: object, **named: object) -> object:
                if away.is_set():
                    time.sleep(1.0)
                    raise StoreUnavailableError("no route to host")
                return verb(*arguments, **named)

            return slowly if callable(verb) else verb

    monkeypatch.setattr(pools, "open_store", lambda root: Slow())
    pool, took_s, end = work.pool(), [], time.monotonic() + 3.0
    while time.monotonic() < end:
        began = time.monotonic()
        glance = pool.turn()
        took_s.append(time.monotonic() - began)
        time.sleep(0.02)
    assert median(took_s) < 0.05
    assert max(took_s) < 0.9  # the store takes a second for each answer; a busy machine takes what it takes
    assert glance.away == "no route to host"
    assert [line for line in work.lines if "does not answer" in line] == work.lines
    assert len(work.lines) == 1
    away.clear()
    work.drain(pool)
    assert work.counts() == ALL


def test_whatever_goes_wrong_in_a_pool_ends_only_the_pool(
    work: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    behave(work.root, at={0: "30"})
    pool = work.pool()
    claim = work.wait("update 0 in hand", in_hand(work, 0))
    monkeypatch.setattr(pools, "steer", lambda policy, seen, now: 1 // 0)
    glance = work.wait("its end", lambda: (glance := pool.turn()).ended and glance)
    assert "ZeroDivisionError" in glance.ended
    pool.close(grace_s=0.0)
    assert gone(claim.place) is True


def test_what_it_does_is_on_the_dashboard(work: Backlog, local: LocalRay) -> None:
    pool = work.pool()
    work.drain(pool)
    url = f"http://127.0.0.1:{local.ports.of('metrics_export')}/metrics"

    def scraped() -> dict[str, float]:
        with urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith("ray_raykit_") and 'experiment="digits"' in line:
                name, _, value = line.rpartition(" ")
                state = name.partition('state="')[2].partition('"')[0]
                found[f"{name.partition('{')[0][4:]}{state and '.' + state}"] = float(value)
        return found

    def told() -> dict[str, float] | None:
        pool.turn()  # what nobody says again goes away: that is what absence means
        found = scraped()  # those of a while ago
        there = found.get("raykit_qc_requests.passed") == 5 and found.get("raykit_qc_units_total", 0) >= 5
        there = there and found.get("raykit_fleet_workers.running") == 1
        return found if there else None

    seen = work.wait("all metrics", told)
    assert seen["raykit_qc_requests.pending"] == 0
    assert seen["raykit_fleet_workers.running"] == 1
    assert seen["raykit_fleet_workers.overdue"] == seen["raykit_paused"] == 0
    assert seen["raykit_qc_oldest_pending_seconds"] == 0
    assert seen["raykit_qc_units_total"] >= 5
    assert seen["raykit_qc_unit_seconds_count"] >= 5
    assert read_qc(work.made.store, "digits", now=time.time()) is not None


# --- many, and all at once ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_thousand_requests_through_two_workers(local: LocalRay, tmp_path: Path) -> None:
    work = backlog(tmp_path / "store", updates=10_000)
    began = time.monotonic()
    work.drain(work.pool(slots=2), 100.0)
    assert time.monotonic() - began < 60
    assert work.counts() == {"required": 1001, "passed": 1001, "unreviewed": 1001}
    work.close()


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_thirty_kills_and_two_pools_and_one_receipt_each(local: LocalRay, tmp_path: Path) -> None:
    """F14 F17: whoever is killed whenever, every question has one answer, and no attempt is without an end."""
    seed = 5
    print(f"seed {seed}")
    chance, killed = random.Random(seed), 0
    work = backlog(tmp_path / "store", updates=400)
    behave(work.root, sleep_s=0.4)
    pools = [work.pool("one", slots=2), work.pool("two", slots=2)]
    while killed < 30:
        there = work.wait("somebody at work", lambda: alive(work), *pools)
        time.sleep(chance.uniform(0.0, 0.5))
        claim = chance.choice(there)
        if gone(claim.place) is False:
            os.kill(claim.place.pid, signal.SIGKILL)
            killed += 1
    work.wait(
        "all of it",
        lambda: work.counts() == {"required": 41, "passed": 41, "unreviewed": 41},
        *pools,
        deadline_s=120.0,
    )
    for each in work.read().backlog.standings:
        assert each.said.disputed == ()
        assert [claim.n for claim in each.said.claims] == list(range(1, len(each.said.claims) + 1))
        ended = {failure.n for failure in each.said.failures} | {took.n for took in each.said.took}
        assert ended == {claim.n for claim in each.said.claims}
    work.close()
    check_invariants(work.made.store)


def alive(work: Backlog) -> list[Claim]:
    """The claims of processes that are there."""
    claimed = [each.claim for each in work.read().backlog.standings if each.status == "claimed"]
    return [claim for claim in claimed if claim is not None and gone(claim.place) is False]


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_calls_that_are_lost_change_nothing(tmp_path: Path) -> None:
    """F21: every fifth call to a worker, or its answer, gets lost."""
    work = backlog(tmp_path / "store", updates=200)
    lost = {"num_failures": 100_000, "req_failure_prob": 20, "resp_failure_prob": 20}
    done = subprocess.run(
        [sys.executable, str(Path(qcray.__file__)), str(work.root), "2"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(qcray.__file__).parent),
            "RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": lost}),
            "RAY_testing_rpc_failure_avoid_intra_node_failures": "0",
        },
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert work.counts() == {"required": 21, "passed": 21, "unreviewed": 21}, said
    assert [each.said.disputed for each in work.read().backlog.standings] == [()] * 21
    check_invariants(work.made.store)
