"""The door: what may start, how a lease goes on and ends, and what is refused with nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from money import ADA, Account, amount, digest, line, planned, projection_of, terms

from raykit.budget import acts
from raykit.budget.admit import Request, Standing, accrue, admit, settle, settle_at_most, void
from raykit.budget.amounts import HOUR_MS
from raykit.budget.book import Book, read_book
from raykit.budget.room import bound, plan_bound
from raykit.errors import (
    ApprovalError,
    BudgetError,
    CancelledError,
    ConflictError,
    FleetPaused,
    InvalidInput,
    LeaseLostError,
    NotFoundError,
    RaykitError,
    ReplanError,
)
from raykit.records import MICRO, Accrued, Planned, Rated, Reserved, Settled, Terms, Voided


def a_plan(name: str = "a", **more: Any) -> Planned:
    lines = [
        line("train", "target", 6),
        line("overhead", "overhead", 1),
        line("debug", "scratch", 1),
        line("confirmation", "confirmation", 6),
        line("recovery", "recovery", 2),
    ]
    return planned(name, 16, lines, **more)


@pytest.fixture
def account() -> Account:
    made = Account()
    made.plan(a_plan(rates={"train": MICRO}, margin_permille=1050), approve=True)
    return made


def request(lease: str = "one", cost: str | float = 1, **more: Any) -> Request:
    asked = Request(
        lease=lease,
        experiment="a",
        line="train",
        terms=terms(amount(cost)),
        projection=projection_of("a"),
    )
    return replace(asked, **more)


def refused(
    account: Account, error: type[RaykitError], ask: Callable[[Book], Any], match: str | None = None
) -> RaykitError:
    """What refuses this; nothing is written by it."""
    before = account.raw()
    with pytest.raises(error, match=match) as caught:
        account.ask(ask)
    assert type(caught.value) is error
    assert account.raw() == before
    return caught.value


# --- what is admitted ---------------------------------------------------------------------------------------


def test_a_reservation_says_what_it_was_worked_out_from(account: Account) -> None:
    (made,) = account.ask(lambda book: admit(book, request(), now=0.0))
    assert isinstance(made, Reserved)
    assert (made.worst, made.charged, made.below) == (amount(1), 0, amount(16))
    assert made.terms == request().terms
    assert made.projection == projection_of("a")


def test_asking_again_finds_the_same_answer(account: Account) -> None:
    account.ask(lambda book: admit(book, request(), now=0.0))
    before = account.raw()
    for again in (request(), request(cost=0.5)):
        assert account.ask(lambda book, again=again: admit(book, again, now=0.0)) == ()
    pause = Standing(paused="paused by mira")
    assert account.ask(lambda book: admit(book, request(), pause, now=0.0)) == ()
    assert account.raw() == before


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"terms": terms(amount(2))}, "terms"),
        ({"terms": terms(amount(1)).model_copy(update={"accelerators": 2})}, "terms"),
        ({"terms": terms(amount(1)).model_copy(update={"rate": 2 * MICRO})}, "terms"),
        ({"line": "recovery"}, "lease"),
        ({"experiment": "b"}, "lease"),
    ],
)
def test_a_lease_is_one_thing(account: Account, other: dict[str, Any], field: str) -> None:
    account.ask(lambda book: admit(book, request(), now=0.0))
    found = refused(account, ConflictError, lambda book: admit(book, request(**other), now=0.0))
    assert found.field == field
    assert found.rule


def test_a_lease_that_has_ended_is_not_granted_again(account: Account) -> None:
    account.spend("one", "a", "train", 1, 1)
    refused(account, LeaseLostError, lambda book: admit(book, request(), now=0.0), "has ended: completed")


def test_work_that_costs_nothing_always_fits_and_is_still_reserved() -> None:
    account = Account()
    account.plan(planned("a", 0, [line("train", "target", 0)]))
    free = request(terms=Terms(accelerators=2, rate=0, source="not billed", time_ms=HOUR_MS), projection=None)
    (made,) = account.ask(lambda book: admit(book, free, now=0.0))
    assert isinstance(made, Reserved)
    assert made.worst == 0
    assert list(account.book.leases) == ["one"]
    assert account.sound()


@pytest.mark.parametrize(
    ("asked_h", "least_h", "granted_h"),
    [(3, 0.1, 2), (1.5, 0.1, 1.5), (3, 2, 2), (3, None, None), (3, 2.1, None)],
)
def test_what_is_left_is_granted_down_to_the_least_that_is_worth_it(
    account: Account, asked_h: float, least_h: float | None, granted_h: float | None
) -> None:
    """covers BUD-12: 2 of the line are left, and 1 an hour."""
    account.reserve("first", "a", "train", 4)
    least_ms = None if least_h is None else int(least_h * HOUR_MS)
    wanted = request("two", asked_h, least_ms=least_ms)
    if granted_h is None:
        found = refused(account, BudgetError, lambda book: admit(book, wanted), "the line has 2.00 left")
        short = asked_h if least_h is None else least_h
        assert f"--move recovery:train={short - 2:g}" in (found.remedy or "")
        return
    (made,) = account.ask(lambda book: admit(book, wanted, now=0.0))
    assert isinstance(made, Reserved)
    assert (made.worst, made.terms.time_ms) == (amount(granted_h), granted_h * HOUR_MS)
    before = account.raw()
    assert account.ask(lambda book: admit(book, wanted, now=0.0)) == (), "asked again it is the same lease"
    assert account.raw() == before and account.sound()


@pytest.mark.parametrize(("share", "granted_h"), [(1, 2), (2, 1), (20, 0.5)])
def test_one_of_several_takes_its_part_of_what_is_short(
    account: Account, share: int, granted_h: float
) -> None:
    """2 are left; nobody takes less than the least that is worth it."""
    account.reserve("first", "a", "train", 4)
    wanted = request("two", 3, least_ms=HOUR_MS // 2, share=share)
    (made,) = account.ask(lambda book: admit(book, wanted, now=0.0))
    assert isinstance(made, Reserved) and made.terms.time_ms == granted_h * HOUR_MS
    assert account.sound()


def test_what_is_there_is_granted_whole_to_each_of_several(account: Account) -> None:
    (made,) = account.ask(lambda book: admit(book, request("one", 3, least_ms=1, share=2), now=0.0))
    assert isinstance(made, Reserved) and made.worst == amount(3)


def test_the_ceiling_has_to_rise_by_what_recovery_lacks(account: Account) -> None:
    account.reserve("first", "a", "train", 6)
    found = refused(
        account, BudgetError, lambda book: admit(book, request("two", 3)), "the line has 0.00 left"
    )
    assert (found.remedy or "").startswith(
        "raykit budget replan a --move recovery:train=3.00 --ceiling 17.00 "
    )


# covers BUD-25
def test_scratch_is_an_allowance_of_its_own(account: Account) -> None:
    account.reserve("debug-1", "a", "debug", 1)
    refused(
        account,
        BudgetError,
        lambda book: admit(book, request("d2", 0.1, line="debug")),
        "the line has 0.00 left",
    )
    failed = Standing(failed=("first",))
    assert account.ask(lambda book: void(book, "debug-1", proof="never started"))
    assert account.reserve("debug-2", "a", "debug", 0.5, standing=failed) is not None, (
        "debugging a failed check"
    )
    assert account.sound()


# covers BUD-24
def test_no_line_takes_from_another(account: Account) -> None:
    account.reserve("one", "a", "train", 6)
    found = refused(
        account, BudgetError, lambda book: admit(book, request("two", 0.1)), "the line has 0.00 left"
    )
    assert found.field == "train"
    assert account.allocation("a").remaining("confirmation") == amount(6)


def test_paused_cancelled_or_unknown_work_does_not_start(account: Account) -> None:
    paused = Standing(paused="a is paused by mira: H100s promised")
    found = refused(account, FleetPaused, lambda book: admit(book, request(), paused), "promised")
    assert found.remedy == "raykit resume a"
    found = refused(account, NotFoundError, lambda book: admit(book, request(line="qc")), "no line qc")
    assert found.rule == "confirmation, debug, overhead, recovery, train"
    refused(account, NotFoundError, lambda book: admit(book, request(experiment="b")), "b has no budget here")
    account.ask(lambda book: acts.close(book, "a", reason="given up", person=ADA))
    refused(account, CancelledError, lambda book: admit(book, request()), "was cancelled")


@pytest.mark.parametrize(
    ("bad", "field"),
    [({"lease": "Not A Name"}, "lease"), ({"lease": ""}, "lease"), ({"projection": "short"}, "projection")],
)
def test_a_name_that_no_record_can_hold_is_refused(account: Account, bad: dict[str, Any], field: str) -> None:
    found = refused(account, InvalidInput, lambda book: admit(book, request(cost=0.1, **bad)))
    assert found.field == field
    assert found.rule


def test_terms_that_come_to_more_than_anything_are_a_budget_s_refusal(account: Account) -> None:
    huge = Terms(accelerators=10**9, rate=MICRO, source="x", time_ms=10**12)
    refused(
        account, BudgetError, lambda book: admit(book, request(terms=huge)), "this plan stays below 16.00"
    )


# --- bounds -------------------------------------------------------------------------------------------------


# covers BUD-08, APPR
def test_an_approval_is_of_one_projection() -> None:
    account = Account()
    account.plan(a_plan())
    found = refused(
        account, ApprovalError, lambda book: admit(book, request(cost=5)), "approve this very plan"
    )
    assert (found.remedy or "").endswith("raykit approve plan a 16.00 --by NAME")
    account.approve("a", amount(16))
    other = request(cost=5, projection=digest("the same plan with another metric"))
    refused(account, ApprovalError, lambda book: admit(book, other), "would come to 5.00")
    refused(account, ApprovalError, lambda book: admit(book, request(cost=5, projection=None)))
    assert account.ask(lambda book: admit(book, replace(other, terms=terms(amount(4.99)))))
    assert account.sound()


def test_an_approval_of_less_bounds_the_plan() -> None:
    account = Account()
    account.plan(a_plan())
    account.approve("a", amount(3))
    found = refused(
        account, BudgetError, lambda book: admit(book, request(cost=3)), "this plan stays below 3.00"
    )
    assert (found.remedy or "").endswith("raykit approve plan a 16.00 --by NAME"), "a person can approve more"
    assert account.reserve("one", "a", "train", 2.99) is not None
    assert plan_bound(account.book, account.allocation("a"), projection_of("a")).amount == amount(3)
    assert account.sound()


def test_the_account_s_figure_bounds_all_plans_together() -> None:
    account = Account()
    for name in ("a", "b"):
        account.plan(a_plan(name), approve=True)
    account.reserve("one", "a", "train", 6)
    account.reserve("two", "b", "train", 6)
    more = request("three", 4, line="confirmation", experiment="b", projection=projection_of("b"))
    found = refused(account, BudgetError, lambda book: admit(book, more), "it stays below 16.00")
    assert found.remedy == "raykit approve account acc AMOUNT --by NAME"
    account.ask(lambda book: acts.approve_account(book, covers=amount(17), person=ADA))
    assert account.ask(lambda book: admit(book, more))
    assert account.sound()


def test_a_lower_figure_than_is_spent_stops_everything() -> None:
    account = Account()
    account.plan(a_plan(), approve=True)
    account.reserve("one", "a", "train", 4)
    account.ask(lambda book: acts.approve_account(book, covers=amount(3), person=ADA))
    refused(account, BudgetError, lambda book: admit(book, request("two", 0.01)))
    assert account.sound()


def test_granted_hours_are_used_to_the_last_and_none_without_a_grant() -> None:
    account = Account("accelerator-hours")
    account.plan(a_plan())
    refused(
        account,
        ApprovalError,
        lambda book: admit(book, request(cost=0.01)),
        "account acc would come to 0.01 h",
    )
    account.approve("a", amount(6))
    assert account.reserve("one", "a", "train", 6) is not None
    assert bound(account.book, "a", projection_of("a")).words == "at most"
    assert account.sound()


# covers BUD-31
def test_alternatives_share_what_the_largest_of_them_may_cost() -> None:
    account = Account()
    account.plan(a_plan("a", decision="which?"), approve=True)
    account.plan(a_plan("b", decision="which?"), approve=True)
    account.plan(a_plan("c"), approve=True)
    account.ask(lambda book: acts.approve_account(book, covers=amount(32), person=ADA))
    account.reserve("a-1", "a", "train", 6)
    account.reserve("a-2", "a", "confirmation", 6)
    more = request("b-1", 4, experiment="b", projection=projection_of("b"))
    found = refused(account, BudgetError, lambda book: admit(book, more), "together they stay below 16.00")
    assert found.rule is not None
    assert "alternatives" in found.rule
    assert account.reserve("b-1", "b", "train", 3.99) is not None
    assert account.reserve("c-1", "c", "train", 6) is not None
    assert account.sound()


def test_a_rate_that_rises_beyond_the_margin_is_news(account: Account) -> None:
    within = Terms(accelerators=1, rate=MICRO * 105 // 100, source="invoice 2026-12", time_ms=HOUR_MS)
    assert account.ask(lambda book: admit(book, request(terms=within)))
    beyond = within.model_copy(update={"rate": MICRO * 105 // 100 + 1})
    found = refused(
        account,
        ReplanError,
        lambda book: admit(book, request("two", terms=beyond)),
        r"costs 1\.050001 now \(invoice 2026-12\), not 1\.00: more than the margin of 5 % covers",
    )
    assert found.field == "rate"
    lines = list(account.allocation("a").lines.values())
    account.ask(
        lambda book: acts.replan(
            book, "a", lines, ceiling=amount(16), rates={"train": beyond.rate}, reason="dearer", person=ADA
        )
    )
    assert account.ask(lambda book: admit(book, request("two", terms=beyond)))
    assert account.sound()


def rated(account: Account, rate: float, pool: str = "train") -> None:
    event = Rated(pool=pool, rate=amount(rate), source="a new invoice", on="2026-12-01", person=ADA)
    account.ask(lambda book: event)


def seen(account: Account, rate: float) -> None:
    """A person has seen a rate."""
    lines = list(account.allocation("a").lines.values())
    rates = {"train": amount(rate)}
    account.ask(
        lambda book: acts.replan(
            book, "a", lines, ceiling=amount(16), rates=rates, reason="dearer", person=ADA
        )
    )


@pytest.mark.parametrize(("rate", "worst"), [(0.5, "0.50"), (1.02, "1.02"), (1.05, "1.05")])
def test_a_reservation_is_made_at_the_newest_rate_whatever_who_asks_has_known(
    account: Account, rate: float, worst: str
) -> None:
    rated(account, rate)
    (made,) = account.ask(lambda book: admit(book, request(), now=0.0))
    assert isinstance(made, Reserved)
    assert made.terms.rate == amount(rate) and made.terms.source == "a new invoice, 2026-12-01"
    assert made.worst >= amount(worst)
    rated(account, 0.25)
    assert account.ask(lambda book: admit(book, request(), now=0.0)) == (), (
        "asked again: it is granted already"
    )
    assert account.sound()


def test_a_rate_beyond_the_margin_refuses_who_asks_with_an_old_one(account: Account) -> None:
    rated(account, 1.06)

    def ask(book: Book) -> Reserved | None:
        return admit(book, request(), now=0.0)

    refused(account, ReplanError, ask, r"costs 1\.06 now \(a new invoice, 2026-12-01\), not 1\.00")
    seen(account, 1.06)
    (made,) = account.ask(ask)
    assert isinstance(made, Reserved) and made.terms.rate == amount(1.06) and made.worst >= amount(1.06)
    assert account.sound()


def test_machines_that_nobody_bills_stay_free_whatever_a_pool_of_that_name_costs() -> None:
    account = Account()
    account.plan(a_plan(rates={"train": 0}))
    rated(account, 90)
    free = terms(amount(1)).model_copy(update={"rate": 0})
    (made,) = account.ask(lambda book: admit(book, request(terms=free), now=0.0))
    assert isinstance(made, Reserved) and made.worst == 0
    assert account.sound()


# --- how a lease goes on ------------------------------------------------------------------------------------


def renew(lease: str, hours: float, cost: int = 0) -> Callable[[Book], Accrued | None]:
    return lambda book: accrue(book, lease, cost=cost, time_ms=int(hours * HOUR_MS), now=0.0)


def test_a_lease_is_renewed_for_longer(account: Account) -> None:
    account.reserve("one", "a", "train", 1)
    assert account.ask(renew("one", 1)) == ()
    (made,) = account.ask(renew("one", 2.5, cost=amount(0.9)))
    assert isinstance(made, Accrued)
    assert account.book.reserved == amount(2.5)
    assert account.book.leases["one"].time_ms == 2.5 * HOUR_MS
    assert account.ask(renew("one", 2.5)) == ()
    account.settle("one", 2)
    assert account.book.charged == amount(2)
    refused(account, LeaseLostError, renew("one", 3), "has ended")
    refused(account, LeaseLostError, renew("never", 3), "there is no lease never")
    assert account.sound()


def test_a_renewal_meets_every_bound_that_a_start_meets() -> None:
    account = Account()
    account.plan(a_plan("a"))
    account.plan(a_plan("b", decision="a"))
    account.reserve("one", "a", "train", 2)
    account.reserve("two", "b", "train", 2)
    refused(account, ApprovalError, renew("one", 3), "would come to 5.00")
    account.approve("a", amount(4))
    refused(account, BudgetError, renew("one", 2.5), "stays below 4.00")  # of the account, as approved
    account.ask(lambda book: acts.approve_account(book, covers=amount(16), person=ADA))
    refused(account, BudgetError, renew("one", 4), "this plan stays below 4.00")
    account.approve("a", amount(16))
    refused(account, BudgetError, renew("one", 6.5), "the line has 4.00 left")
    assert account.ask(renew("one", 6))
    assert account.sound()


def test_a_renewal_takes_what_is_left(account: Account) -> None:
    account.reserve("one", "a", "train", 1)
    account.reserve("two", "a", "train", 4)

    def longer(least_h: float) -> Callable[[Book], Accrued | None]:
        times = {"time_ms": 3 * HOUR_MS, "least_ms": int(least_h * HOUR_MS)}
        return lambda book: accrue(book, "one", cost=0, now=0.0, **times)

    refused(account, BudgetError, longer(2.5), "the line has 1.00 left")
    (made,) = account.ask(longer(0))
    assert isinstance(made, Accrued) and (made.worst, made.time_ms) == (amount(2), 2 * HOUR_MS)
    refused(account, BudgetError, longer(0), "the line has 0.00 left")
    assert account.sound()


def test_a_renewal_waits_for_a_replan_and_ends_with_its_experiment(account: Account) -> None:
    account.reserve("one", "a", "train", 1)
    account.reserve("two", "a", "train", 1)
    account.settle("two", 5.5)
    refused(account, ReplanError, renew("one", 2), "overrun by 0.50")
    account.ask(lambda book: acts.close(book, "a", reason="given up", person=ADA))
    refused(account, CancelledError, renew("one", 2))


def test_a_lease_is_not_renewed_at_a_rate_that_is_out_of_date(account: Account) -> None:
    account.reserve("one", "a", "train", 1)
    rated(account, 0.5)
    assert account.ask(renew("one", 1.5)), "a fall is no reason to end what goes on"
    rated(account, 2)
    refused(account, ReplanError, renew("one", 2), r"costs 2\.00 now")
    seen(account, 2)
    refused(
        account, BudgetError, renew("one", 2), r"is at 1\.00 for an accelerator-hour, which costs 2\.00 now"
    )
    assert account.sound()


def test_a_renewal_of_nonsense_is_refused(account: Account) -> None:
    account.reserve("one", "a", "train", 1)
    assert refused(account, InvalidInput, renew("one", 2, cost=-1)).field == "cost"
    refused(account, BudgetError, lambda book: accrue(book, "one", cost=0, time_ms=10**15, now=0.0))


# --- how a lease ends ---------------------------------------------------------------------------------------


def end(lease: str, hours: float, **more: Any) -> Callable[[Book], Settled | None]:
    return lambda book: settle(
        book, lease, time_ms=int(hours * HOUR_MS), reason="completed", how="measured", **more
    )


def test_an_end_is_known_once(account: Account) -> None:
    account.reserve("one", "a", "train", 3)
    (made,) = account.ask(end("one", 2, wall_ms=HOUR_MS))
    assert isinstance(made, Settled)
    assert (made.cost, made.wall_ms) == (amount(2), HOUR_MS)
    assert account.ask(end("one", 3)) == ()
    refused(account, LeaseLostError, end("never", 1), "there is no lease never")
    assert (account.book.settled, account.book.reserved) == (amount(2), 0)
    (past,) = account.allocation("a").past["train"]
    assert (past.held_ms, past.wall_ms) == (2 * HOUR_MS, HOUR_MS)


@pytest.mark.parametrize("hours", [-1, 10**9])
def test_a_time_that_cannot_be_is_refused(account: Account, hours: float) -> None:
    account.reserve("one", "a", "train", 3)
    found = refused(account, InvalidInput, end("one", hours))
    assert found.field in ("time_ms", "cost")
    assert account.book.reserved == amount(3), "still charged in full"


# covers BUD-07, BUD-27
def test_what_cost_more_than_its_worst_case_is_a_fact_and_an_overrun(account: Account) -> None:
    account.reserve("one", "a", "train", 5)
    account.settle("one", 7.5)
    allocation = account.allocation("a")
    assert allocation.actual == amount(7.5)
    assert allocation.overrun() == amount(1.5)
    assert allocation.reserve_left() == amount(8 - 1.5)
    assert allocation.needs_replan
    refused(account, ReplanError, lambda book: admit(book, request("two", 0.1, line="recovery")))
    assert account.sound()


def test_an_end_that_was_not_seen_costs_at_most_what_was_reserved(account: Account) -> None:
    account.reserve("one", "a", "train", 3)
    account.reserve("two", "a", "train", 3)

    def at_most(lease: str, hours: float) -> Callable[[Book], Settled | None]:
        time_ms = int(hours * HOUR_MS)
        return lambda book: settle_at_most(book, lease, time_ms=time_ms, reason="killed", how="lost")

    (one,), (two,) = account.ask(at_most("one", 50)), account.ask(at_most("two", 1))
    assert isinstance(one, Settled)
    assert isinstance(two, Settled)
    assert (one.cost, one.time_ms) == (amount(3), 3 * HOUR_MS)
    assert two.cost == amount(1)
    assert account.ask(at_most("one", 1)) == ()


def test_what_never_started_is_taken_back(account: Account) -> None:
    account.reserve("one", "a", "train", 3)
    (made,) = account.ask(lambda book: void(book, "one", proof="its process never began"))
    assert isinstance(made, Voided)
    assert account.book.charged == 0
    assert account.ask(lambda book: void(book, "one", proof="again")) == ()
    assert account.allocation("a").past == {}, "an attempt that never was uses none of the wall cap"
    account.spend("two", "a", "train", 1, 1)
    refused(account, LeaseLostError, lambda book: void(book, "two", proof="no"), "has ended: completed")
    refused(account, LeaseLostError, lambda book: void(book, "never", proof="no"))
    account.reserve("three", "a", "train", 1)
    assert refused(account, InvalidInput, lambda book: void(book, "three", proof=" ")).field == "proof"
    assert account.sound()


# --- machines that nobody works on --------------------------------------------------------------------------


def test_held_machines_cost_while_they_stand(account: Account) -> None:
    account.ask(lambda book: acts.hold(book, "a", "train", accelerators=8, rate=MICRO))
    assert account.ask(lambda book: acts.hold(book, "a", "train", accelerators=8, rate=MICRO)) == ()
    account.clock.advance(3600)
    now = account.clock()
    assert account.book.idle_cost(now) == account.book.idle_cost(now, "a", "train") == amount(8)
    assert account.book.idle_cost(now, "b") == account.book.idle_cost(now, "a", "qc") == 0
    assert account.book.idle_cost(now - 7200) == 0, "a clock that was set back earns nothing"
    full = request(cost=6)
    assert account.ask(lambda book: admit(book, full, now=now))
    later = now + 900
    recover = request("two", 1, line="recovery")
    refused(account, BudgetError, lambda book: admit(book, recover, now=later), "this plan stays below 16.00")

    account.ask(lambda book: acts.free(book, "a", "train", how="given back", now=now))
    assert account.ask(lambda book: acts.free(book, "a", "train", how="given back", now=now)) == ()
    assert account.book.settled == amount(8)
    assert account.allocation("a").spent["idle"] == amount(8)
    refused(account, ReplanError, lambda book: admit(book, recover, now=now), "overrun by 6.00")
    assert account.sound()


def test_idle_machines_are_paid_by_recovery(account: Account) -> None:
    """A plan that was paused on rented machines goes on without a replan, as long as recovery pays for them."""
    account.ask(lambda book: acts.hold(book, "a", "train", accelerators=1, rate=MICRO))
    account.clock.advance(1800)
    account.ask(lambda book: acts.free(book, "a", "train", how="given back", now=account.clock()))
    assert not account.allocation("a").needs_replan
    assert account.allocation("a").remaining("overhead") == amount(1)
    assert account.allocation("a").remaining("recovery") == amount(1.5)
    assert account.allocation("a").reserve_left() == amount(7.5)
    assert account.reserve("one", "a", "train", 6) is not None
    assert account.sound()


@pytest.mark.parametrize(("what", "field"), [({"accelerators": -1}, "accelerators"), ({"rate": -1}, "rate")])
def test_machines_that_cannot_be_are_refused(account: Account, what: dict[str, int], field: str) -> None:
    given = {"accelerators": 1, "rate": MICRO, **what}
    assert refused(account, InvalidInput, lambda book: acts.hold(book, "a", "train", **given)).field == field
    refused(account, NotFoundError, lambda book: acts.hold(book, "b", "train", accelerators=1, rate=1))


# --- the book -----------------------------------------------------------------------------------------------


def test_a_draft_changes_nothing_of_the_book(account: Account) -> None:
    account.reserve("one", "a", "train", 3)
    account.spend("two", "a", "train", 1, 1)
    account.ask(lambda book: acts.hold(book, "a", "qc", accelerators=1, rate=1))
    book = account.book
    as_it_was = read_book(account.ledger.entries)
    draft = book.draft()
    inner = draft.draft()
    for trial in (draft, inner):
        for made in (
            settle(trial, "one", time_ms=1, reason="failed", how="x"),
            acts.close(trial, "a", reason="x", person=ADA),
            acts.free(trial, "a", "qc", how="x", now=9e9),
            acts.plan(trial, a_plan("b")),
        ):
            if made is not None:
                trial.apply(made, 0.0)
        assert trial.allocations["a"].closed
        assert trial.leases["one"].cost == 0
    assert book.allocations == as_it_was.allocations
    assert book.leases == as_it_was.leases
    assert (book.held, book.settled, book.reserved) == (as_it_was.held, as_it_was.settled, as_it_was.reserved)


def test_an_event_about_what_has_not_begun_is_not_taken() -> None:
    book = Book()
    with pytest.raises(KeyError):
        book.apply(Voided(lease="one", proof="x"), 0.0)
