"""The parts of a QC pool that need no Ray: leases, the desk that reads and writes, and the memory there is.

covers QC-16 QC-19 QC-22 FLEET-06 BUD-12, F14 F17, I3 I6 I8
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from makeqc import QcMaker, make_trained
from qcray import FakeDoor

from raykit.budget.room import COMES_UP_S
from raykit.errors import BudgetError, CancelledError, DeadlineError, ReplanError
from raykit.fleet.pool import crew
from raykit.fleet.pool.desk import Lost
from raykit.fleet.pool.lease import AGAIN_S, BACKSTOP_S, LEASE_S, RENEW_S, Price, WorkerLease
from raykit.fleet.qc.desk import QcDesk
from raykit.read.qc import read_qc
from raykit.records import Claim, Measured, Place
from raykit.store.people import read_acts
from raykit.store.place import this_place
from raykit.testing import MemoryStore


def gone_place() -> Place:
    """A process of this machine that is no more: the number is this one's, the start is not."""
    here = this_place()
    return here.model_copy(update={"started": here.started + 1})


# --- leases -------------------------------------------------------------------------------------------------


def lease(door: FakeDoor) -> WorkerLease:
    made = WorkerLease(door, "f00d-qc-1", experiment="digits", role="qc", contract="s" * 64, price=Price())
    made.reserve(100.0)
    return made


def test_a_lease_is_renewed_before_it_ends_and_never_earlier() -> None:
    door = FakeDoor()
    held = lease(door)
    assert held.paid_until == 100.0 + LEASE_S - BACKSTOP_S
    held.keep(100.0 + LEASE_S - RENEW_S - 1)
    assert door.renewed == []
    held.keep(100.0 + LEASE_S - RENEW_S)
    assert door.renewed == [("f00d-qc-1", int((2 * LEASE_S - RENEW_S) * 1000))]
    assert held.paid_until == 100.0 + 2 * LEASE_S - RENEW_S - BACKSTOP_S
    held.settle(1000.0, reason="completed")
    assert door.settled == {"f00d-qc-1": (900_000, "completed")}


def test_a_renewal_that_is_not_answered_is_asked_for_again() -> None:
    door = FakeDoor()
    held = lease(door)
    due, until = 100.0 + LEASE_S - RENEW_S, held.paid_until
    door.refuses = DeadlineError("nobody answered")
    held.keep(due)
    assert (held.refused, held.paid_until) == (None, until)  # what is paid for does not move
    door.refuses = None
    held.keep(due + AGAIN_S - 1)
    assert door.renewed == []
    held.keep(due + AGAIN_S)
    assert len(door.renewed) == 1


def test_what_is_paid_for_is_used_though_nobody_pays_for_more() -> None:
    door = FakeDoor()
    held = lease(door)
    door.refuses = BudgetError("the line is used up")
    until = held.paid_until
    held.keep(until - 200)
    held.keep(until - 20.5, unit_s=20.0)
    assert (held.refused, held.paid_until) == (None, until)
    held.keep(until - 20, unit_s=20.0)  # not enough for another unit
    door.refuses = None
    held.keep(until - 0.5)
    assert (held.refused, held.paid_until, door.renewed) == ("the line is used up", until, [])


def test_money_that_comes_in_time_renews_it() -> None:
    door = FakeDoor()
    held = lease(door)
    door.refuses = ReplanError("an hour costs more now")
    until = held.paid_until
    held.keep(until - 200)
    door.refuses = None
    held.keep(until - 200 + AGAIN_S)
    held.keep(until)
    assert held.refused is None and held.paid_until > until


def test_a_lease_that_has_ended_is_left_at_once() -> None:
    door = FakeDoor()
    held = lease(door)
    door.refuses = CancelledError("cancelled by ada")
    held.keep(held.paid_until - 200)
    assert held.refused == "cancelled by ada"


@pytest.mark.parametrize("granted_s", [LEASE_S, 90.0])
def test_a_lease_is_as_long_as_it_was_granted(granted_s: float) -> None:
    """Where the money is short, less than usual; but enough for a unit."""
    door = FakeDoor(granted_ms=int(granted_s * 1000))
    held = WorkerLease(door, "f00d-qc-1", experiment="digits", role="qc", contract="s" * 64, price=Price())
    held.reserve(100.0, unit_s=45.0)
    assert door.least_ms == int((COMES_UP_S + 45.0) * 1000)
    assert held.paid_until == 100.0 + granted_s - BACKSTOP_S


def test_a_lease_names_the_process_that_ends_its_worker() -> None:
    door = FakeDoor()
    lease(door)
    assert door.holders == {this_place()}


# --- the desk -----------------------------------------------------------------------------------------------


@pytest.fixture
def maker() -> QcMaker:
    return make_trained(QcMaker(MemoryStore()))


def desk_of(maker: QcMaker) -> QcDesk:
    desk = QcDesk(maker.store, maker.experiment, maker.run, "f00d")
    desk.look()
    return desk


def take(maker: QcMaker, update: int, worker: str, place: Place, *, at: float | None = None) -> Claim:
    asked = maker.ask(update)
    claim = maker.examinations.claim(
        asked.id,
        1,
        worker=worker,
        place=place,
        at=time.time() if at is None else at,
        deadline_s=60.0,
    )
    assert claim is not None
    return claim


def failures(maker: QcMaker) -> list[tuple[int, str]]:
    read = read_qc(maker.store, maker.experiment, now=time.time())
    assert read is not None
    return [(each.update, f.kind) for each in read.backlog.standings for f in each.said.failures]


def test_what_is_required_is_asked_for_once(maker: QcMaker) -> None:
    desk = desk_of(maker)
    assert desk.read is not None
    assert desk.read.counts()["missing"] == 5
    desk.look()
    assert desk.read.counts()["pending"] == 5
    assert desk.follow() is False


def test_only_attempts_that_nobody_is_at_any_more_have_failed(maker: QcMaker) -> None:
    elsewhere = this_place().model_copy(update={"host": "n9"})
    take(maker, 0, "qc-f00d-1", this_place())  # this pool's, lost
    take(maker, 10, "qc-f00d-2", gone_place())  # this pool's, not yet seen to be gone
    take(maker, 20, "qc-beef-1", gone_place())  # of a launch that was killed
    take(maker, 30, "qc-beef-2", elsewhere)  # of another machine, and within its time
    take(maker, 40, "qc-beef-3", elsewhere, at=time.time() - 66.0)  # and past it
    desk = desk_of(maker)
    lost = {"qc-f00d-1": Lost(kind="memory", why="too much", at=time.time())}
    said = desk.bury(lost, {"qc-f00d-2"})
    assert len(said) == 3
    assert failures(maker) == [(0, "memory"), (20, "lost"), (40, "deadline")]
    desk.look()
    assert desk.bury(lost, {"qc-f00d-2"}) == ()
    assert desk.claimants() >= {"qc-f00d-1", "qc-beef-3"}


def test_a_receipt_that_came_after_all_is_no_failure(maker: QcMaker) -> None:
    take(maker, 0, "qc-f00d-1", gone_place())
    desk = desk_of(maker)
    maker.examine(0)  # published between the look and the word on it
    assert desk.bury({}, ()) == ()
    assert failures(maker) == []


def test_one_check_is_measured_once_for_each_suite(maker: QcMaker) -> None:
    desk = desk_of(maker)
    assert desk.unit is None
    assert desk.record_unit() is False
    maker.examine(0)
    for each in (desk, desk_of(maker)):
        each.look()
        each.record_unit()
        assert each.unit is not None
        assert (each.unit.took_s, each.unit.peak_bytes) == (1.2, 300_000_000)
    (measured,) = read_acts(maker.store, maker.experiment).learned
    assert isinstance(measured, Measured)
    assert (measured.what, measured.time_ms) == ("qc-unit", 1200)
    assert measured.memory_bytes == {"one check": 300_000_000}


# --- memory -------------------------------------------------------------------------------------------------


def test_the_memory_of_a_container_bounds_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "CGROUP", tmp_path)
    machine = crew.free_bytes()
    assert machine > 0
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert crew.free_bytes() > 1000
    (tmp_path / "memory.max").write_text("4000\n")
    assert crew.free_bytes() == 3000
    (tmp_path / "memory.current").write_text("5000\n")
    assert crew.free_bytes() == 0
