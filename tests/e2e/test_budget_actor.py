"""The budget actor on a real local Ray: killed, stopped, doubled, cut off from its store.

covers GOLD-17, BUD-12 BUD-20 RAY-08 RAY-10, I6 I7 I13, F7 F8 F20
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import ray
from makeledger import a_plan, ask_plan, ask_settle, identity, usd
from servers import BUCKET, Fault, Proxy, Request, credentials, moto

from raykit.budget.admit import Request as Wanted
from raykit.budget.audit import audit
from raykit.budget.book import Lease
from raykit.budget.worst import Sizing
from raykit.errors import (
    ApprovalError,
    ConflictError,
    DeadlineError,
    LeaseLostError,
    RaykitError,
    StoreUnavailableError,
)
from raykit.fleet.budget_actor import NAMESPACE, ActorDoor, Seat, Teller, open_seat
from raykit.fleet.door import Attempts
from raykit.fleet.session import start_local
from raykit.records import Reserved, Terms
from raykit.store import open_store
from raykit.store.accounts import join_account
from raykit.store.ledger import Ledger

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

DEADLINE_S = 60.0

SIZING = Sizing(
    accelerators=1,
    rate=3_600_000,
    source="a test",
    wall_ms=600_000,
    attempts=4,
    setup_ms=10_000,
    window_ms=20_000,
    drain_ms=5_000,
)
DIGITS = Attempts(experiment="digits", projection=None, sizing=SIZING)


@dataclass
class Storm:
    """An object server whose replies stop when the test says so."""

    raging: bool = False

    def __call__(self, request: Request) -> Fault | None:
        return Fault("answer", status=503) if self.raging else None


@pytest.fixture(scope="module")
def storm() -> Storm:
    return Storm()


@pytest.fixture(scope="module")
def cluster(storm: Storm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One local Ray, whose actors reach an object server through a proxy."""
    patched = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("moto")
    with moto(folder) as server, Proxy(server.endpoint, storm) as proxy:
        for name, value in {**credentials(), "AWS_ENDPOINT_URL": proxy.endpoint}.items():
            patched.setenv(name, value)
        with start_local(cpus=2, resources={}):
            yield
    patched.undo()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@dataclass
class Account:
    """An account with a plan for `digits`, and those who ask its actor."""

    ledger: Ledger
    seat: Seat
    teller: Teller
    """The actor lives as long as this one that made it."""

    def check(self) -> None:
        """No fork, no hole, and no more than was allowed at any prefix."""
        fresh = Ledger(open_store(self.seat.root), self.seat.account, by="test")
        fresh.refresh()
        assert list(audit(fresh.entries)) == []
        assert [entry.n for entry in fresh.entries] == list(range(1, len(fresh.entries) + 1))

    def reserved(self) -> list[str]:
        self.ledger.refresh()
        return [
            event.lease
            for entry in self.ledger.entries
            for event in entry.events
            if isinstance(event, Reserved)
        ]


def an_account(root: str, name: str) -> Account:
    """Each test has an account of its own, since an actor is found by its account's name."""
    ledger = join_account(open_store(root), identity(), name, unit="usd", by="test", at=time.time())
    ledger.decide(ask_plan(a_plan()), at=time.time())
    seat = Seat(root=root, account=name)
    return Account(ledger, seat, Teller(seat, hold_s=DEADLINE_S))


@pytest.fixture
def account(cluster: None, root: str, request: pytest.FixtureRequest) -> Account:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower()).strip("-")
    return an_account(root, name[-60:].strip("-"))


def wanted(lease: str, cost: str = "0.10") -> Wanted:
    terms = Terms(accelerators=1, rate=0, source="a test", time_ms=1000, fixed=usd(cost))
    return Wanted(lease=lease, experiment="digits", line="train", terms=terms)


def until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, f"waited {DEADLINE_S:.0f} s for {what}"
        time.sleep(0.01)


def try_to_reserve(teller: Teller, request: Wanted) -> Lease | RaykitError:
    try:
        return teller.reserve(request, role="train")
    except RaykitError as error:
        return error


class Second:
    """A second actor for the account, under another name, asked as `Teller` asks the first."""

    def __init__(self, seat: Seat) -> None:
        self.name = f"{seat.name}-by-hand"
        self.teller = Teller(seat, hold_s=DEADLINE_S)
        self.teller._actor = open_seat(seat, name=self.name)

    def end(self) -> None:
        ray.kill(ray.get_actor(self.name, namespace=NAMESPACE))


class Assassin:
    """Kills the processes of actors at random moments, `most` times at most."""

    def __init__(self, tellers: list[Teller], rng: random.Random, *, most: int, longest_s: float) -> None:
        self._tellers = tellers
        self._rng = rng
        self._most = most
        self._longest_s = longest_s
        self._done = threading.Event()
        self.killed = 0
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while self.killed < self._most and not self._done.wait(self._rng.uniform(0, self._longest_s)):
            victim = self._rng.choice(self._tellers)
            try:
                pid = ray.get(victim._actor.whoami.remote(), timeout=1).pid
                os.kill(pid, signal.SIGKILL)
            except (ray.exceptions.RayError, ProcessLookupError):
                continue  # it is only just coming back
            self.killed += 1

    def __enter__(self) -> Assassin:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()


# --- killed -------------------------------------------------------------------------------------------------


def a_thousand_requests(account: Account, seed: int, *, kills: int) -> None:
    """1,000 requests of 0.10 below 5.00, from many threads, by way of two actors that are killed."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    first, second = account.teller, Second(account.seat)
    first.whoami()
    requests = [(wanted(f"request-{i}"), rng.choice([first, second.teller])) for i in range(1000)]
    # Twelve at a time: were all asked at once, one entry would decide them, and nothing could be cut in two.
    assassin = Assassin([first, second.teller], rng, most=kills, longest_s=0.05)
    with assassin, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda each: try_to_reserve(each[1], each[0]), requests))
    second.end()
    granted = sorted(answer.reserved.lease for answer in answers if isinstance(answer, Lease))
    refused = Counter(type(answer) for answer in answers if not isinstance(answer, Lease))
    reserved = sorted(account.reserved())
    print(
        f"{assassin.killed} kills, {len(account.ledger.entries)} entries, {len(reserved)} reserved, {refused}"
    )
    print("told but not reserved", set(granted) - set(reserved), "not told", set(reserved) - set(granted))
    assert assassin.killed >= 1
    assert granted == reserved
    assert len(granted) == 49
    assert refused == {ApprovalError: 951}
    assert account.ledger.book.charged == usd("4.90")
    account.check()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_thousand_requests_below_five_dollars_are_forty_nine(account: Account, seed: int) -> None:
    """covers GOLD-17"""
    a_thousand_requests(account, seed, kills=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 23))
def test_a_thousand_requests_twenty_times(account: Account, seed: int) -> None:
    """covers GOLD-17"""
    a_thousand_requests(account, seed, kills=20)


def test_an_admission_that_is_cut_in_two_is_whole_when_asked_again(account: Account) -> None:
    """Every request fits, so that appends never cease, and kills fall into them. covers F8"""
    teller = account.teller
    teller.whoami()
    assassin = Assassin([teller], random.Random(8), most=3, longest_s=0.3)
    with assassin, ThreadPoolExecutor(8) as pool:
        leases = [f"lease-{i}" for i in range(1500)]
        answers = list(pool.map(lambda name: try_to_reserve(teller, wanted(name, "0.001")), leases))
    print(f"{assassin.killed} kills, {len(account.ledger.refresh())} entries")
    assert assassin.killed >= 1
    assert all(isinstance(answer, Lease) for answer in answers), Counter(map(type, answers))
    assert sorted(account.reserved()) == sorted(leases)
    account.check()


def test_an_actor_that_was_killed_knows_its_leases(account: Account) -> None:
    teller = account.teller
    teller.reserve(wanted("mine"), role="train")
    before = teller.whoami().pid
    os.kill(before, signal.SIGKILL)
    assert teller.whoami().pid != before
    teller.beat("mine")
    assert account.reserved() == ["mine"]


def test_a_door_travels_to_a_worker_and_the_attempts_follow_each_other(account: Account) -> None:
    door = ActorDoor(account.teller, DIGITS)
    assert door.begin("launch", 1).left_ms == 635_000

    @ray.remote(num_cpus=0, max_retries=0)
    def in_a_worker(door: ActorDoor) -> tuple[str, int]:
        again = door.begin("launch", 1)
        grant = door.begin("launch", 2)
        door.beat(grant.lease)
        return again.lease, grant.wall_ms

    again, wall_ms = ray.get(in_a_worker.remote(door), timeout=DEADLINE_S)
    assert again == "launch-1" and wall_ms <= 600_000
    assert account.reserved() == ["launch-1", "launch-2"]
    with pytest.raises(LeaseLostError, match="killed"):
        door.beat("launch-1")
    with pytest.raises(LeaseLostError):
        pickle.loads(pickle.dumps(door)).begin("launch", 1)
    account.check()


def test_a_lease_is_renewed_settled_and_taken_back(account: Account) -> None:
    teller = account.teller
    paid = Terms(accelerators=1, rate=3_600_000, source="a test", time_ms=1000)
    for name in ("works", "never-starts", "unknown"):
        teller.reserve(Wanted(lease=name, experiment="digits", line="train", terms=paid), role="qc")
    assert teller.renew("works", time_ms=5000).worst == 5000
    assert teller.renew("works", time_ms=5000).time_ms == 5000
    ended = teller.settle("works", time_ms=3000, reason="completed", how="measured")
    assert (ended.cost, ended.open) == (3000, False)
    assert teller.settle("works", time_ms=9000, reason="completed", how="again").cost == 3000
    assert teller.void("never-starts", proof="its node never came up").void
    most = teller.settle("unknown", time_ms=10**6, reason="killed", how="not heard again", at_most=True)
    assert most.cost == 1000
    for call in (
        lambda: teller.renew("works", time_ms=9000),
        lambda: teller.settle("nobody", time_ms=1, reason="killed", how="?"),
        lambda: teller.void("works", proof="?"),
        lambda: teller.reserve(
            Wanted(lease="works", experiment="digits", line="train", terms=paid), role="qc"
        ),
    ):
        with pytest.raises(LeaseLostError):
            call()
    account.check()


# --- stopped ------------------------------------------------------------------------------------------------


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the actor to stop")


def test_an_actor_that_hangs_is_told_by_beats_and_decisions_wait_for_it(account: Account) -> None:
    """covers I13"""
    teller = account.teller
    teller.reserve(wanted("mine"), role="train")
    pid = teller.whoami().pid
    stop(pid)
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(teller.reserve, wanted("patient"), role="train")
            since = time.monotonic()
            with pytest.raises(DeadlineError, match="within 1 s"):
                Teller(account.seat, hold_s=1.0).reserve(wanted("impatient"), role="train")
            assert time.monotonic() - since < 3
            since = time.monotonic()
            with pytest.raises(DeadlineError, match="within 5 s"):
                teller.beat("mine")
            assert time.monotonic() - since < 7
            assert not waiting.done()
            os.kill(pid, signal.SIGCONT)
            assert waiting.result(timeout=DEADLINE_S).reserved.lease == "patient"
    finally:
        os.kill(pid, signal.SIGCONT)
    teller.beat("mine")
    assert set(account.reserved()) >= {"mine", "patient"}
    account.check()


# --- two, or another one -------------------------------------------------------------------------------------


def test_many_who_come_at_once_share_one_actor(account: Account) -> None:
    tellers = [Teller(account.seat) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        pids = set(pool.map(lambda teller: teller.whoami().pid, tellers))
    assert len(pids) == 1


def test_an_actor_of_the_same_name_that_serves_another_store_is_refused(
    account: Account, tmp_path: Path
) -> None:
    account.teller.whoami()
    elsewhere = Teller(Seat(root=str(tmp_path / "elsewhere"), account=account.seat.account))
    with pytest.raises(ConflictError, match="serves the budget of"):
        elsewhere.reserve(wanted("mine"), role="train")
    with pytest.raises(ConflictError):
        elsewhere.beat("mine")
    assert not (tmp_path / "elsewhere").exists()


def test_what_the_launch_settles_itself_the_actor_hears_of(account: Account) -> None:
    teller = account.teller
    teller.reserve(wanted("mine"), role="train")
    teller.beat("mine")
    account.ledger.decide(ask_settle("mine"), at=time.time())

    def lost() -> bool:
        try:
            teller.beat("mine")
        except LeaseLostError:
            return True
        return False

    until(lost, "the actor to read on")


def test_a_detached_actor_says_so_and_ends_itself_when_nobody_asks(account: Account) -> None:
    seat = Seat(root=account.seat.root, account=account.seat.account, idle_s=1.0)
    teller = Teller(seat)
    teller.reserve(wanted("mine"), role="train")
    pid = teller.whoami().pid
    assert "detached, ends after 1 s without a call" in str(teller.whoami().seat)
    named = ray.util.list_named_actors(all_namespaces=True)
    assert {"name": seat.name, "namespace": NAMESPACE} in named
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        teller.beat("mine")
    assert teller.whoami().pid == pid, "beats keep it"
    until(lambda: not psutil.pid_exists(pid), "the actor to end itself")
    until(
        lambda: (
            {"name": seat.name, "namespace": NAMESPACE} not in ray.util.list_named_actors(all_namespaces=True)
        ),
        "its name to be free",
    )
    teller.beat("mine")
    assert teller.whoami().pid != pid


# --- the store away -----------------------------------------------------------------------------------------


def test_a_disk_that_goes_away_is_told_by_beats(account: Account, tmp_path: Path) -> None:
    """covers F7"""
    teller = Teller(account.seat, hold_s=3.0)
    teller.reserve(wanted("mine"), role="train")
    root, elsewhere = Path(account.seat.root), tmp_path / "elsewhere"
    root.rename(elsewhere)
    try:
        until(lambda: away(teller, "mine"), "the beat to tell of the store")
        with pytest.raises(StoreUnavailableError):
            teller.reserve(wanted("more"), role="train")
        assert not root.exists()
    finally:
        elsewhere.rename(root)
    assert teller.reserve(wanted("more"), role="train").reserved.lease == "more"
    teller.beat("mine")
    account.check()


def test_an_object_server_that_does_not_answer_is_told_by_beats(cluster: None, storm: Storm) -> None:
    """covers F7"""
    account = an_account(f"s3://{BUCKET}/budget", "in-the-storm")
    teller = account.teller
    teller.reserve(wanted("mine"), role="train")
    teller.beat("mine")
    with ThreadPoolExecutor(1) as pool:
        storm.raging = True
        try:
            waiting = pool.submit(teller.reserve, wanted("patient"), role="train")
            until(lambda: away(teller, "mine"), "the beat to tell of the store")
            assert not waiting.done()
        finally:
            storm.raging = False
        assert waiting.result(timeout=DEADLINE_S).reserved.lease == "patient"
    teller.beat("mine")
    assert account.reserved() == ["mine", "patient"]
    account.check()


def away(teller: Teller, lease: str) -> bool:
    """Whether a beat says that the store is away. It answers at once in any case."""
    since = time.monotonic()
    try:
        teller.beat(lease)
    except StoreUnavailableError:
        return True
    finally:
        assert time.monotonic() - since < 2
    return False
