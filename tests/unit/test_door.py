"""The door to spending without Ray: what an attempt is granted, and how one desk serves many.

covers BUD-12 BUD-20 RAY-08, I6 I7 I13, F7 F8 F20
"""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from makeledger import AT, a_plan, ask_plan, ask_settle, digest, events, identity, kinds, usd

from raykit.budget.admit import Request
from raykit.budget.audit import audit
from raykit.budget.book import Book
from raykit.budget.worst import Sizing
from raykit.errors import (
    CancelledError,
    CorruptError,
    FleetPaused,
    GateError,
    LeaseLostError,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.fleet import desk
from raykit.fleet.desk import Desk, Wanted
from raykit.fleet.door import Attempts, StoreDoor, begin, require_open, reserve
from raykit.pauses import Acts
from raykit.records import ExperimentEntry, Locked, Reserved, Settled, Terms
from raykit.store import layout, people
from raykit.store.accounts import join_account
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.testing import FakeClock, Fault, FaultStore, MemoryStore, reply_lost, unavailable

MS_RATE = 3_600_000
"""The rate at which an accelerator costs one micro-unit a millisecond."""

SIZING = Sizing(
    accelerators=2,
    rate=MS_RATE,
    source="a test",
    wall_ms=600_000,
    attempts=4,
    setup_ms=10_000,
    window_ms=20_000,
    drain_ms=5_000,
    capped=True,
)
OVERHEAD_MS = 35_000
DIGITS = Attempts(experiment="digits", projection=None, sizing=SIZING)


def an_account(store: ObjectStore) -> Ledger:
    """A ledger that may pay for `digits`, which has been launched before."""
    ledger = join_account(store, identity(), None, unit="usd", by="test", at=AT)
    ledger.decide(ask_plan(a_plan()), at=AT)
    locked = Locked(
        plan=digest("plan"),
        contract=digest("contract"),
        code=digest("code"),
        environment=digest("environment"),
        data=digest("data"),
    )
    log = Log(store, layout.experiment_log("digits"), ExperimentEntry, by="test")
    log.append(lambda entries: [] if entries else [locked], at=AT)
    return ledger


def a_door(
    store: ObjectStore, clock: Callable[[], float], *, hold_s: float = 0.0, attempts: Attempts = DIGITS
) -> StoreDoor:
    return StoreDoor(store, "digits", attempts, by="test", hold_s=hold_s, clock=clock)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def ledger(store: MemoryStore) -> Ledger:
    return an_account(store)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(AT + 100)


# --- what an attempt is granted -----------------------------------------------------------------------------


def test_an_attempt_reserves_its_worst_case_before_anything_starts(store, ledger, clock) -> None:
    grant = a_door(store, clock).begin("launch", 1)
    (reserved,) = [event for event in events(ledger) if isinstance(event, Reserved)]
    assert (grant.lease, reserved.lease, reserved.line) == ("launch-1", "launch-1", "train")
    assert grant.left_ms == reserved.terms.time_ms == 600_000 + OVERHEAD_MS
    assert reserved.worst == 2 * grant.left_ms
    assert (grant.wall_ms, grant.drain_ms, grant.accelerators, grant.invested_ms) == (600_000, 5_000, 2, 0)


def test_asking_twice_finds_the_same_lease_and_writes_nothing(store, ledger, clock) -> None:
    first = a_door(store, clock).begin("launch", 1)
    count = len(ledger.refresh())
    clock.advance(60)
    again = a_door(store, clock).begin("launch", 1)
    assert (again.lease, again.left_ms) == (first.lease, first.left_ms - 60_000)
    assert (count, ledger.refresh()) == (1, [])


def test_a_restart_ends_the_lost_attempt_in_the_same_entry(store, ledger, clock) -> None:
    door = a_door(store, clock)
    door.begin("launch", 1)
    ledger.refresh()
    clock.advance(100)
    grant = door.begin("launch", 2)
    (entry,) = ledger.refresh()
    settled, reserved = entry.events
    assert isinstance(settled, Settled) and isinstance(reserved, Reserved)
    assert (settled.lease, settled.cost, settled.time_ms, settled.reason) == (
        "launch-1",
        200_000,
        100_000,
        "killed",
    )
    # 65 s of the first attempt count as productive: its overhead was paid for beside the wall cap.
    assert grant.wall_ms == 600_000 - (100_000 - OVERHEAD_MS)
    assert grant.invested_ms == 200_000
    assert list(audit(ledger.entries)) == []


def test_an_attempt_that_never_began_leaves_nothing_to_end(store, ledger, clock) -> None:
    door = a_door(store, clock)
    door.begin("launch", 1)
    door.begin("launch", 3)
    assert kinds(ledger)[-3:] == ["reserved", "settled", "reserved"]


@pytest.mark.parametrize(("moved_s", "charged_ms"), [(-3600, 615_000), (3600, 615_000), (7, 7_000)])
def test_a_clock_that_is_moved_never_makes_a_lost_attempt_cheap(
    store, ledger, clock, moved_s: int, charged_ms: int
) -> None:
    over_again = Attempts(experiment="digits", projection=None, sizing=replace(SIZING, proven=False))
    door = a_door(store, clock, attempts=over_again)
    door.begin("launch", 1)
    clock.advance(moved_s)
    door.begin("launch", 2)
    (settled,) = [event for event in events(ledger) if isinstance(event, Settled)]
    assert (settled.time_ms, settled.cost) == (charged_ms, 2 * charged_ms)


def test_a_clock_that_is_set_back_never_makes_a_grant_longer(store, ledger, clock) -> None:
    door = a_door(store, clock)
    paid_ms = door.begin("launch", 1).left_ms
    clock.advance(-3600)
    assert door.begin("launch", 1).left_ms == paid_ms
    clock.advance(7200)
    assert door.begin("launch", 1).left_ms == 0


@pytest.mark.parametrize("begun", [[1, 2], [1, 3], [3]])
def test_a_gang_that_wakes_up_late_is_not_let_in(store, ledger, clock, begun: Sequence[int]) -> None:
    door = a_door(store, clock)
    for ordinal in begun:
        door.begin("launch", ordinal)
    before = kinds(ledger)
    for late in range(1, begun[-1]):
        with pytest.raises(LeaseLostError):
            door.begin("launch", late)
    assert kinds(ledger) == before


def test_a_pause_keeps_new_attempts_out_and_leaves_granted_ones_to_the_directive(
    store, ledger, clock
) -> None:
    door = a_door(store, clock)
    door.begin("launch", 1)
    people.pause(store, "role:train", reason="cards promised to inference", person="mira", at=AT)
    assert door.begin("launch", 1).lease == "launch-1"
    with pytest.raises(FleetPaused, match="paused by mira: cards promised to inference"):
        door.begin("launch", 2)
    assert kinds(ledger)[-1] == "reserved"
    people.resume(store, "role:train", cleared="they are back", person="mira", at=AT)
    assert door.begin("launch", 2).lease == "launch-2"


def test_a_cancelled_experiment_starts_nothing(store, ledger, clock) -> None:
    people.cancel(store, "digits", reason="superseded", person="mira", at=AT)
    with pytest.raises(CancelledError):
        a_door(store, clock).begin("launch", 1)


def test_a_failed_necessary_check_blocks_the_full_run(store, ledger, clock) -> None:
    failed = Attempts(experiment="digits", projection=None, sizing=SIZING, failed=("first",))
    with pytest.raises(GateError, match="first"):
        a_door(store, clock, attempts=failed).begin("launch", 1)
    assert "reserved" not in kinds(ledger)


def test_an_experiment_without_a_budget_is_refused(store, ledger, clock) -> None:
    other = Attempts(experiment="letters", projection=None, sizing=SIZING)
    with pytest.raises(NotFoundError, match="letters"):
        a_door(store, clock, attempts=other).begin("launch", 1)


def test_beats_on_the_ledger_itself(store, ledger, clock) -> None:
    door = a_door(store, clock)
    lease = door.begin("launch", 1).lease
    door.beat(lease)
    with pytest.raises(LeaseLostError, match="no lease launch-9"):
        door.beat("launch-9")
    ledger.decide(ask_settle(lease), at=AT)
    with pytest.raises(LeaseLostError, match="completed"):
        door.beat(lease)


def test_a_lost_reply_is_asked_again_and_reserved_once(ledger, store, clock) -> None:
    fault = Fault(reply_lost, at=next_put(store), when="after")
    grant = a_door(FaultStore(store, fault), clock, hold_s=5.0).begin("launch", 1)
    assert fault.fired
    assert grant.lease == "launch-1"
    assert kinds(ledger).count("reserved") == 1


def test_a_store_that_stays_away_is_told_once_holding_is_over(ledger, store, clock) -> None:
    fault = Fault(unavailable(), at=1, forever=True)
    since = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        a_door(FaultStore(store, fault), clock, hold_s=0.3).begin("launch", 1)
    assert 0.3 < time.monotonic() - since < 5


def next_put(store: MemoryStore) -> int:
    """The number of the operation in which a door that begins afresh writes its reservation."""
    counting = FaultStore(MemoryStore(dict(store.objects)))
    a_door(counting, FakeClock(AT)).begin("launch", 1)
    return next(i for i, name in enumerate(counting.fault.operations, 1) if name.startswith("put_new"))


# --- one desk for many --------------------------------------------------------------------------------------


def wanted(lease: str, cost: str = "0.001", *, experiment: str = "digits") -> Wanted[Any]:
    terms = Terms(accelerators=1, rate=0, source="a test", time_ms=1000, fixed=usd(cost))
    request = Request(lease=lease, experiment=experiment, line="train", terms=terms)

    def ask(acts: Acts, now: float) -> Any:
        return lambda book: reserve(book, request, role="train", acts=acts, now=now)

    return Wanted(ask=ask, read=lambda book, now: require_open(book, lease), experiment=experiment)


def served(store: ObjectStore, work: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    """Run `work` with a desk that serves the account `digits`."""

    async def run() -> None:
        serving = Desk(store, "digits", by="desk")
        serving.start()
        try:
            await asyncio.wait_for(work(serving), 30)
        finally:
            await serving.close()

    asyncio.run(run())


async def until(holds: Callable[[], bool], limit_s: float = 10.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


class Gate:
    """Holds the writes to a ledger while it is shut."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(20)


class GatedStore(FaultStore):
    """A store whose creates wait at a gate."""

    def __init__(self, inner: ObjectStore, gate: Gate) -> None:
        super().__init__(inner)
        self._gate = gate

    def put_new(self, key: str, data: Any) -> Any:
        self._gate()
        return super().put_new(key, data)


def test_what_arrives_during_an_append_is_decided_together_and_beats_do_not_wait(store, ledger) -> None:
    a_door(store, FakeClock(AT)).begin("launch", 1)
    before = len(ledger.refresh()) + len(ledger.entries) - 1
    gate = Gate()

    async def work(serving: Desk) -> None:
        first = asyncio.create_task(serving.decide(wanted("one")))
        await until(gate.reached.is_set)
        others = [asyncio.create_task(serving.decide(wanted(f"many-{i}"))) for i in range(50)]
        await asyncio.sleep(0)
        since = time.monotonic()
        assert await serving.beat("launch-1") is None
        assert time.monotonic() - since < 0.1
        assert not first.done() and not any(other.done() for other in others)
        gate.open.set()
        answers = [await first, *[await other for other in others]]
        assert [answer.reserved.lease for answer in answers] == ["one", *(f"many-{i}" for i in range(50))]

    served(GatedStore(store, gate), work)
    ledger.refresh()
    assert [len(entry.events) for entry in ledger.entries[before:]] == [1, 50]
    assert list(audit(ledger.entries)) == []


def test_a_refusal_in_a_batch_stops_nobody_else(store, ledger) -> None:
    async def work(serving: Desk) -> None:
        answers = await asyncio.gather(
            serving.decide(wanted("a", "2")),
            serving.decide(wanted("too-much", "4")),
            serving.decide(wanted("other", experiment="letters")),
            serving.decide(wanted("b", "2")),
        )
        assert [getattr(answer, "kind", "granted") for answer in answers] == [
            "granted",
            "approval",
            "not-found",
            "granted",
        ]

    served(store, work)


def test_a_damaged_log_of_one_experiment_refuses_only_that_one(store, ledger) -> None:
    ledger.decide(ask_plan(a_plan("letters", train="20")), at=AT)
    store.objects[layout.log_entry(layout.experiment_log("letters"), 1)] = b"{}"

    async def work(serving: Desk) -> None:
        bad, good = await asyncio.gather(
            serving.decide(wanted("a", experiment="letters")), serving.decide(wanted("b"))
        )
        assert isinstance(bad, CorruptError)
        assert good.reserved.lease == "b"

    served(store, work)


def test_a_mistake_in_one_decision_is_heard_and_the_desk_goes_on(store, ledger) -> None:
    def ask(acts: Acts, now: float) -> Any:
        def decide(book: Book) -> None:
            raise ZeroDivisionError("a mistake")

        return decide

    async def work(serving: Desk) -> None:
        answer = await serving.decide(Wanted(ask=ask, read=lambda book, now: 0))
        assert isinstance(answer, RaykitError) and "a mistake" in str(answer)
        assert (await serving.decide(wanted("a"))).reserved.lease == "a"

    served(store, work)


def test_a_lease_that_another_writer_granted_is_known_at_the_first_beat(store, ledger) -> None:
    async def work(serving: Desk) -> None:
        await serving.decide(wanted("mine"))
        a_door(store, FakeClock(AT)).begin("launch", 1)
        assert await serving.beat("launch-1") is None
        assert isinstance(await serving.beat("launch-2"), LeaseLostError)

    served(store, work)


def test_an_end_that_another_writer_wrote_is_heard_within_a_probe(store, ledger, monkeypatch) -> None:
    monkeypatch.setattr(desk, "PROBE_EVERY_S", 0.05)

    async def work(serving: Desk) -> None:
        await serving.decide(wanted("mine"))
        assert await serving.beat("mine") is None
        assert [lease.lease for lease in serving.state().leases] == ["mine"]
        ledger.decide(ask_settle("mine"), at=AT)
        await until(lambda: serving.state().leases == ())
        lost = await serving.beat("mine")
        assert isinstance(lost, LeaseLostError) and "completed" in str(lost)

    served(store, work)


def test_a_desk_that_is_made_again_knows_what_the_ledger_knows(store, ledger) -> None:
    async def before(serving: Desk) -> None:
        await serving.decide(wanted("mine"))

    async def after(serving: Desk) -> None:
        assert await serving.beat("mine") is None
        await serving.decide(wanted("mine"))

    served(store, before)
    served(store, after)
    assert kinds(ledger).count("reserved") == 1


def test_beats_say_that_the_store_is_away_and_when_it_is_back(store, ledger, monkeypatch) -> None:
    monkeypatch.setattr(desk, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(desk, "AWAY_S", 0.3)
    away = threading.Event()

    def act() -> None:
        if away.is_set():
            unavailable()()

    async def work(serving: Desk) -> None:
        await serving.decide(wanted("mine"))
        assert await serving.beat("mine") is None
        away.set()
        assert await serving.beat("mine") is None, "it was there a moment ago"
        end = time.monotonic() + 10
        while (answer := await serving.beat("mine")) is None:
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        assert isinstance(answer, StoreUnavailableError) and "has not been reached" in str(answer)
        assert isinstance(await serving.decide(wanted("more")), StoreUnavailableError)
        away.clear()
        assert (await serving.decide(wanted("more"))).reserved.lease == "more"
        assert await serving.beat("mine") is None

    served(FaultStore(store, Fault(act, at=1, forever=True)), work)


def test_a_store_that_hangs_is_told_by_beats_of_unknown_leases_too(store, ledger, monkeypatch) -> None:
    monkeypatch.setattr(desk, "LOOK_S", 0.2)
    gate = Gate()

    async def work(serving: Desk) -> None:
        hanging = asyncio.create_task(serving.decide(wanted("mine")))
        await until(gate.reached.is_set)
        since = time.monotonic()
        assert isinstance(await serving.beat("unknown"), StoreUnavailableError)
        assert time.monotonic() - since < 2
        gate.open.set()
        assert (await hanging).reserved.lease == "mine"

    served(GatedStore(store, gate), work)


def test_a_ledger_whose_disk_went_away_is_not_begun_again_elsewhere(tmp_path: Path) -> None:
    """What is written into an empty mount point would fork the ledger once the disk is back."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    ledger = an_account(LocalStore(root))

    async def work(serving: Desk) -> None:
        await serving.decide(wanted("a"))
        root.rename(elsewhere)
        for _ in range(3):
            assert isinstance(await serving.decide(wanted("b")), StoreUnavailableError)
        assert not root.exists()
        elsewhere.rename(root)
        assert (await serving.decide(wanted("b"))).reserved.lease == "b"

    served(LocalStore(root), work)
    assert kinds(ledger).count("reserved") == 2
    shutil.rmtree(root)


def test_a_damaged_ledger_is_told_at_once(store, ledger) -> None:
    async def work(serving: Desk) -> None:
        await serving.decide(wanted("a"))
        number = serving.state().entries + 1
        store.objects[layout.log_entry(layout.account_log("digits"), number)] = b"{}"
        assert isinstance(await serving.decide(wanted("b")), CorruptError)
        assert isinstance(await serving.beat("a"), CorruptError)

    served(store, work)


def test_a_lost_reply_is_unknown_for_all_of_a_batch_and_found_when_asked_again(store, ledger) -> None:
    puts = 0

    class LosesOneReply(FaultStore):
        def put_new(self, key: str, data: Any) -> Any:
            nonlocal puts
            puts += 1
            stored = super().put_new(key, data)
            if puts == 1:
                reply_lost()
            return stored

    async def work(serving: Desk) -> None:
        first = await asyncio.gather(*[serving.decide(wanted(f"w{i}")) for i in range(5)])
        assert all(isinstance(answer, UnknownOutcomeError) for answer in first)
        again = await asyncio.gather(*[serving.decide(wanted(f"w{i}")) for i in range(5)])
        assert [answer.reserved.lease for answer in again] == [f"w{i}" for i in range(5)]

    served(LosesOneReply(store), work)
    assert kinds(ledger).count("reserved") == 5


def test_two_desks_on_one_ledger_stay_below_an_exclusive_ceiling(store, ledger) -> None:
    """covers GOLD-17, without Ray: 1,000 requests of 0.10 below 5.00 are 49."""

    async def run() -> None:
        desks = [Desk(store, "digits", by=f"desk-{i}") for i in range(2)]
        for each in desks:
            each.start()
        answers = await asyncio.gather(
            *[desks[i % 2].decide(wanted(f"request-{i}", "0.10")) for i in range(1000)]
        )
        for each in desks:
            await each.close()
        assert sum(not isinstance(answer, RaykitError) for answer in answers) == 49

    asyncio.run(run())
    ledger.refresh()
    assert ledger.book.charged == usd("4.90")
    assert list(audit(ledger.entries)) == []


def test_the_decision_can_be_tried_on_a_draft(ledger) -> None:
    made = begin(DIGITS, "launch", 1, acts=Acts(), now=AT)(ledger.book.draft())
    assert [type(event) for event in made] == [Reserved]
    assert "launch-1" not in ledger.book.leases
