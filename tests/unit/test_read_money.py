"""Money and pauses of a run, as Python programs read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from makebudget import PaidByNode, usd
from makeqc import make_trained
from makerun import RunMaker, make_run
from makeset import SetMaker

import raykit
from raykit.budget.acts import replan, settle_by_hand
from raykit.errors import NotFoundError
from raykit.read import Money, Root, RunView
from raykit.records import Closed, Corrected, Freed, Line, Rated
from raykit.store import layout, people
from raykit.testing import MemoryStore

HOUR_S = 3600.0


def root_of(maker: RunMaker, *, later_s: float = 1.0) -> Root:
    return raykit.open(maker.store, clock=lambda: maker.at + later_s)


def money(maker: RunMaker, *, later_s: float = 1.0) -> Money:
    return root_of(maker, later_s=later_s).money(maker.experiment)


def view(maker: RunMaker, *, later_s: float = 1.0) -> RunView:
    return root_of(maker, later_s=later_s).run(maker.experiment)


def paid(**options: Any) -> PaidByNode:
    """A run of 1,430 updates that has begun."""
    maker = PaidByNode(MemoryStore(), updates=1430, **options)
    maker.freeze()
    maker.approve()
    maker.launch()
    maker.begin()
    return maker


def line(found: Money, name: str) -> tuple[int, int, int, int]:
    one = next(line for line in found.lines if line.line == name)
    return one.planned, one.actual, one.reserved, one.remaining


# --- what it may cost, has cost, will cost ------------------------------------------------------------------


def test_a_run_without_a_budget_has_no_money() -> None:
    maker = make_run(MemoryStore())
    assert view(maker).money is None
    with pytest.raises(NotFoundError, match="digits has no budget"):
        root_of(maker).money("digits")


def test_what_runs_is_charged_at_its_worst_case_and_shown_as_it_comes() -> None:
    # covers BUD-23, BUD-36
    maker = paid()
    began = maker.ledger.book.leases["digits-launch-1-1"].at
    maker.at = began + HOUR_S - 2.0
    maker.beat()
    found = money(maker)
    worst = maker.ledger.book.leases["digits-launch-1-1"].worst
    assert line(found, "train") == (usd("307.67"), usd("23.92"), worst - usd("23.92"), usd("307.67") - worst)
    assert found.actual + found.reserved == found.account_charged == worst
    assert found.actual + found.reserved + found.remaining == found.ceiling == usd("900")
    assert found.planned == usd("900"), "lines sum to the allocation: covers BUD-32"
    (lease,) = found.leases
    assert (lease.running, lease.accelerators, lease.rate) == (True, 8, usd("2.99"))
    assert found.unknown == ()
    assert money(maker, later_s=1000 * HOUR_S).actual == 0, "its launch has long been silent: nobody knows"


def test_a_lease_of_a_dead_launch_is_unknown_and_charged_in_full() -> None:
    # covers BUD-03
    maker = paid()
    found = money(maker, later_s=1000.0)
    (lease,) = found.unknown
    assert (found.actual, found.reserved) == (0, lease.worst)
    assert found.projected >= lease.worst
    maker.decide(
        lambda book: settle_by_hand(book, lease.lease, cost=usd("12"), how="the console", person="mira")
    )
    found = money(maker, later_s=1000.0)
    assert (found.unknown, found.actual, found.reserved) == ((), usd("12"), 0)


def test_projected_beside_planned_and_actual() -> None:
    # covers BUD-16
    maker = paid()
    assert money(maker).projected == usd("354"), "nothing measured: what was planned"
    maker.seconds_per_update = 2.0
    maker.rows(10)
    maker.commit("stop")
    maker.end("paused", hours=1.0)
    maker.release("paused")
    found = money(maker)
    left_s = (1430 - 10) * 2.0
    assert found.actual == usd("23.92")
    assert found.projected == pytest.approx(usd("23.92") + left_s / 3600 * 8 * 2.99 * 1e6, abs=1)
    assert found.expected == usd("354")
    assert (found.expected_ms, found.held_ms, found.accelerator_ms) == (31_320_000, 3_600_000, 28_800_000)
    assert found.attempts == 1


class PaidSet(SetMaker, PaidByNode):
    """A run that is paid for, with a synthetic set."""


def test_of_a_billed_set_what_is_left_is_projected_once_its_canary_tells() -> None:
    maker = PaidSet(MemoryStore())
    make_trained(maker)

    def rest() -> tuple[int, tuple[str, ...]]:
        found = money(maker)
        assert view(maker).money == found
        return found.projected - found.actual, found.unprojected

    assert rest() == (0, ()), "it costs nothing"
    maker.decide(lambda book: Rated(pool="generate", rate=usd("36"), source="t", on="2026-10-01", person="m"))
    assert rest() == (0, ("digits",))
    assert money(maker).leaves_out == ", without the set digits, whose canary has not passed"
    maker.contract_now()
    maker.publish(0, 1)
    assert rest() == (0, ("digits",))
    maker.canary()
    assert rest() == (usd("0.032"), ()), "four seconds for all of it, and eight of ten units are left"
    maker.publish(2)
    assert rest() == (usd("0.028"), ())
    maker.finish()
    assert rest() == (0, ()) and not money(maker).leaves_out


def test_a_finished_run_costs_what_it_has_cost() -> None:
    # covers BUD-17
    maker = paid()
    maker.rows(10)
    maker.commit("final")
    maker.end("completed", hours=0.5)
    maker.release("completed")
    found = money(maker)
    assert found.projected == found.actual == usd("11.96")
    assert found.accelerator_ms == 8 * 1_800_000
    assert not found.approval_due


def test_every_attempt_counts() -> None:
    # covers BUD-03, BUD-04, BUD-29
    maker = paid()
    maker.rows(5)
    maker.commit()
    maker.end("failed", hours=0.5)
    maker.release("failed")
    maker.launch()
    maker.begin()
    maker.end("killed", hours=1.5)
    found = money(maker)
    assert (found.attempts, found.actual) == (2, usd("47.84"))


def test_a_correction_is_what_counts() -> None:
    maker = paid()
    maker.end("paused", hours=1.0)
    maker.decide(lambda book: Corrected(lease=maker.lease, cost=usd("25"), reason="invoice", person="mira"))
    assert money(maker).actual == usd("25")


def test_not_billed() -> None:
    maker = PaidByNode(MemoryStore())
    maker.rate = "0"
    maker.freeze()
    maker.launch()
    maker.begin()
    found = money(maker)
    assert (found.billed, found.actual, found.approval_due) == (False, 0, False)


# --- machines that are held ---------------------------------------------------------------------------------


def test_held_machines_are_billed_and_shown_apart_from_work() -> None:
    # covers RAY-09
    maker = paid()
    maker.rows(5)
    maker.commit("stop")
    maker.end("paused", hours=1.0)
    maker.release("paused")
    released = money(maker, later_s=10 * HOUR_S)
    assert (released.idle, released.actual) == (0, usd("23.92")), (
        "released resources cost nothing while paused"
    )
    maker.hold()
    found = money(maker, later_s=2 * HOUR_S)
    (machines,) = found.held
    assert (machines.cost, machines.an_hour, machines.release) == (
        usd("47.84"),
        usd("23.92"),
        "lambda-stop i-0a1b",
    )
    assert (found.idle, found.actual) == (usd("47.84"), usd("23.92"))
    maker.decide(lambda book: Freed(experiment="digits", pool="train", cost=usd("47.84"), how="stopped"))
    found = money(maker, later_s=20 * HOUR_S)
    assert (found.held, found.idle) == ((), usd("47.84"))
    assert line(found, "idle") == (0, usd("47.84"), 0, -usd("47.84"))
    assert found.overrun == 0, "recovery pays for it: covers BUD-27"


# --- approvals, rates, rules --------------------------------------------------------------------------------


def test_an_approval_covers_the_plan_as_it_was() -> None:
    # covers APPR-16
    maker = PaidByNode(MemoryStore(), updates=1430)
    maker.freeze()
    found = money(maker)
    assert (found.approval_due, found.approvals, found.autonomous) == (True, (), usd("5"))
    maker.approve()
    found = money(maker)
    (approval,) = found.approvals
    assert not found.approval_due
    assert (approval.person, approval.covers, approval.current) == ("mira", usd("900"), True)
    lines = [
        line if line.line != "recovery" else line.model_copy(update={"planned": line.planned + usd("100")})
        for line in maker.ledger.book.allocations["digits"].lines.values()
    ]
    maker.decide(
        lambda book: replan(book, "digits", lines, ceiling=usd("1000"), reason="more", person="mira")
    )
    found = money(maker)
    assert (found.ceiling, found.approvals[0].current, found.approval_due) == (usd("1000"), False, True)


def test_rates_have_a_source_and_a_date() -> None:
    maker = paid()
    (rate,) = money(maker).rates
    assert (rate.pool, rate.rate, rate.source, rate.on) == ("train", usd("2.99"), "invoice 2026-10", None)
    rated = Rated(pool="train", rate=usd("3.29"), source="invoice", on="2026-11-30", person="mira")
    maker.decide(lambda book: rated)
    (rate,) = money(maker).rates
    assert (rate.rate, rate.planned, rate.on) == (usd("3.29"), usd("2.99"), "2026-11-30")


def test_the_stop_rule_is_the_plans() -> None:
    # covers BUD-36
    rule = money(paid()).stop_rule
    assert "after 4 evaluations without 0.001 better in development.ratio" in rule
    assert "at 10 h of work" in rule
    assert "pause before the ceiling" in rule


def test_cancelled() -> None:
    maker = paid()
    maker.decide(lambda book: Closed(experiment="digits", reason="flat", person="mira"))
    found = money(maker)
    assert found.closed
    assert found.projected == found.actual + sum(lease.worst for lease in found.unknown)


# --- accounts -----------------------------------------------------------------------------------------------


def test_an_account_with_two_experiments() -> None:
    # covers BUD-09
    store = MemoryStore()
    one = PaidByNode(store, experiment="one", updates=1430)
    one.freeze()
    two = PaidByNode(store, experiment="two", updates=1430)
    two.freeze()
    one.approve()
    one.launch()
    one.begin()
    one.end("paused", hours=1.0)
    (account,) = root_of(two, later_s=100.0).accounts()
    assert (account.account, account.figure, account.settled) == ("corp-lm", usd("900"), usd("23.92"))
    assert [each.experiment for each in account.experiments] == ["one", "two"]
    assert account.experiments[1].account_charged == usd("23.92")
    assert account.experiments[1].approval_due, "an approval of one plan is none of another"
    json.dumps(account.plain(), allow_nan=False)


def test_money_as_json() -> None:
    maker = paid()
    plain = json.loads(json.dumps(view(maker).plain(), allow_nan=False))["money"]
    assert plain["micros_per_unit"] == 1_000_000
    assert plain["totals"]["planned"] == plain["ceiling"] == 900_000_000
    assert plain["lines"][0].keys() >= {"line", "planned", "actual", "reserved", "remaining"}
    assert [
        Line(line=each["line"], purpose=each["purpose"], planned=each["planned"]) for each in plain["lines"]
    ]


def test_a_damaged_ledger_leaves_the_run_to_be_seen() -> None:
    maker = paid()
    maker.rows(5)
    maker.flush()
    maker.store.delete(layout.log_snapshot(layout.account_log("corp-lm")))
    maker.store.delete(layout.log_entry(layout.account_log("corp-lm"), 2))
    found = view(maker)
    assert (found.state, found.update, found.health) == ("running", 5, "corrupt")
    assert "accounts/corp-lm" in (found.figures.health_detail or "")
    assert found.money is None


# --- fleet states -------------------------------------------------------------------------------------------


def pause(maker: RunMaker, scope: str = "experiment:digits", reason: str = "inference") -> None:
    people.pause(maker.store, scope, reason=reason, person="mira", at=maker._tick())


def test_from_running_to_paused_and_on() -> None:
    # covers RAY-08
    maker = paid()
    maker.rows(5)
    maker.flush()
    assert view(maker).fleet.state == "running"
    pause(maker)
    found = view(maker)
    assert (found.state, found.fleet.state) == ("running", "pausing")
    assert found.fleet.pause is not None
    assert found.fleet.pause.words == "paused by mira: inference"
    maker.ask_to_stop("pause")
    maker.commit("stop")
    maker.end("paused", hours=0.1)
    maker.release("paused")
    found = view(maker)
    assert (found.fleet.state, found.committed and found.committed.update) == ("paused", 5)
    people.resume(maker.store, "experiment:digits", cleared="it is 18:00", person="ada", at=maker._tick())
    assert view(maker).fleet.state is None, "nothing keeps it, and nothing runs"
    maker.launch()
    assert view(maker).fleet.state == "resuming"
    maker.begin()
    found = view(maker)
    assert found.fleet.state == "running"
    (past,) = found.fleet.pauses
    assert past.resumed is not None
    assert (past.pause.person, past.resumed.person, past.resumed.cleared) == ("mira", "ada", "it is 18:00")


def test_a_run_that_misses_its_boundary_is_overdue_not_paused() -> None:
    # covers RAY-08
    maker = paid()
    maker.rows(5)
    maker.flush()
    pause(maker)
    for _ in range(3):
        maker.at += 30.0
        maker.beat()
    assert view(maker).fleet.state == "overdue"
    slow = paid()
    slow.seconds_per_update = 60.0
    slow.rows(5)
    slow.flush()
    pause(slow)
    slow.at += 90.0
    slow.beat()
    assert view(slow).fleet.state == "pausing", "ten of its own updates are ten minutes"


@pytest.mark.parametrize("scope", ["all", "role:train", "contract"])
def test_a_wider_pause_is_a_pause(scope: str) -> None:
    maker = paid()
    if scope == "contract":
        scope = f"contract:{maker.locked.contract}"
    pause(maker, scope)
    assert view(maker).fleet.state == "pausing"
    assert [past.pause.scope for past in view(maker).fleet.pauses] == [scope]


def test_another_role_or_contract_is_not_concerned() -> None:
    maker = paid()
    pause(maker, "role:qc")
    pause(maker, "contract:" + "0" * 64)
    assert view(maker).fleet.state == "running"
    assert view(maker).fleet.pauses == ()


def test_what_is_complete_is_not_paused() -> None:
    maker = make_run(MemoryStore())
    pause(maker, "all")
    assert view(maker).fleet.state is None
