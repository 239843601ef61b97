"""What people do with money, and what they are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from money import ADA, Account, amount, digest, line, planned, projection_of

from raykit.budget import acts
from raykit.budget.book import Book
from raykit.errors import ApprovalError, CancelledError, InvalidInput, NotFoundError, RaykitError, ReplanError
from raykit.records import LARGEST, Approved, Corrected, Line, Planned, Replanned, Settled


def a_plan(name: str = "a", ceiling: float = 10, **more: Any) -> Planned:
    lines = [
        line("train", "target", 4),
        line("compare", "comparison", 2, one=1, two=1),
        line("confirmation", "confirmation", 3),
        line("recovery", "recovery", ceiling - 9),
    ]
    return planned(name, ceiling, lines, **more)


@pytest.fixture
def account() -> Account:
    made = Account()
    made.plan(a_plan(), approve=True)
    return made


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


def replan(lines: list[Line], ceiling: float = 10, **more: Any) -> Callable[[Book], Replanned | None]:
    given = {"reason": "as it is now", "person": ADA, **more}
    return lambda book: acts.replan(book, "a", lines, ceiling=amount(ceiling), **given)


# --- plans --------------------------------------------------------------------------------------------------


def test_a_plan_is_set_aside_once(account: Account) -> None:
    assert account.ask(lambda book: acts.plan(book, a_plan())) == ()
    assert account.ask(lambda book: acts.plan(book, a_plan(ceiling=20))) == (), "only a replan changes it"
    assert account.allocation("a").ceiling == amount(10)


@pytest.mark.parametrize(
    ("lines", "error", "rule"),
    [
        ([line("train", "target", 4), line("kept", "recovery", 5)], InvalidInput, "exactly 10.00"),
        ([line("train", "target", 4), line("kept", "recovery", 7)], InvalidInput, "exactly 10.00"),
        ([line("x", "target", 5), line("x", "recovery", 5)], InvalidInput, "each line once"),
        ([], InvalidInput, "exactly 10.00"),
        ([line("train", "target", 10)], ReplanError, "a reserve for confirmation or recovery above 0"),
        (
            [line("train", "target", 10), line("kept", "recovery", 0)],
            ReplanError,
            "a reserve for confirmation or recovery above 0",
        ),
        (
            [line("x", "comparison", 9, one=4, two=5), line("kept", "recovery", 1)],
            InvalidInput,
            "the same for each arm, or no claim of equal budgets",
        ),
    ],
)
def test_lines_that_are_no_plan_are_refused(lines: list[Line], error: type[RaykitError], rule: str) -> None:
    account = Account()
    found = refused(account, error, lambda book: acts.plan(book, planned("a", 10, lines)))
    assert found.rule == rule
    assert found.field
    account.plan(a_plan(), approve=True)
    assert refused(account, error, replan(lines)).rule == rule


def test_a_line_that_is_not_what_its_arms_are_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="the arms do not sum to the line"):
        line("x", "comparison", 9, one=4, two=4)


# --- replans ------------------------------------------------------------------------------------------------


def test_a_replan_that_changes_nothing_is_none(account: Account) -> None:
    lines = list(account.allocation("a").lines.values())
    assert account.ask(replan(lines)) == ()
    assert account.ask(replan(lines, rates={"train": 5}))
    assert account.ask(replan(lines, rates={"train": 5})) == ()
    assert account.allocation("a").rates == {"train": 5}


def test_money_moves_between_lines_and_the_ceiling_is_taken_by_recovery(account: Account) -> None:
    allocation = account.allocation("a")
    lines = acts.moved(allocation, [("confirmation", "train", amount(1))], ceiling=amount(12))
    assert [each.planned for each in lines] == [amount(each) for each in (5, 2, 2, 3)]
    assert account.ask(replan(lines, ceiling=12))
    assert account.sound()


def test_money_for_a_synthetic_set_opens_its_line_before_what_is_kept_back(account: Account) -> None:
    allocation = account.allocation("a")
    lines = acts.moved(allocation, [("recovery", "generate", amount(0.5))])
    names = [each.line for each in lines]
    kept_back = ("confirmation", "recovery")
    before = [name for name in allocation.lines if name not in kept_back]
    assert names == [*before, "generate", *kept_back]
    assert (lines[names.index("generate")].purpose, lines[names.index("generate")].planned) == (
        "target",
        amount(0.5),
    )
    assert account.ask(replan(lines))
    assert account.sound()


@pytest.mark.parametrize(
    ("moves", "ceiling", "match"),
    [
        ([("nowhere", "train", 1)], None, "there is no line nowhere"),
        ([("train", "nowhere", 1)], None, "there is no line nowhere"),
        ([("the ceiling", "train", 1)], None, "there is no line the ceiling"),
        ([("train", "recovery", amount(5))], None, "train would fall below 0"),
        ([("recovery", "train", -amount(5))], None, "train would fall below 0"),
        ([], amount(8), "recovery would fall below 0"),
        ([("compare", "train", 1)], None, "does not divide"),
    ],
)
def test_money_that_is_not_there_cannot_be_moved(
    account: Account, moves: list[tuple[str, str, int]], ceiling: int | None, match: str
) -> None:
    with pytest.raises(InvalidInput, match=match) as found:
        acts.moved(account.allocation("a"), moves, ceiling=ceiling)
    assert found.value.field
    assert found.value.rule


def test_nothing_is_planned_below_what_it_has_used(account: Account) -> None:
    account.spend("one", "a", "train", 2, 2)
    account.reserve("two", "a", "train", 1)
    lines = acts.moved(account.allocation("a"), [("train", "recovery", amount(1.5))])
    found = refused(account, ReplanError, replan(lines), r"leave 0\.50 uncovered")
    assert found.remedy == "raykit budget show a"
    lines = acts.moved(account.allocation("a"), [("train", "recovery", amount(1))])
    assert account.ask(replan(lines))
    assert account.sound()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"reason": ""}, "reason"),
        ({"reason": " \n"}, "reason"),
        ({"person": ""}, "person"),
        ({"person": "x" * 2001}, "person"),
        ({"rates": {"train": -1}}, "rates.train"),
        ({"rates": {"train": LARGEST + 1}}, "rates.train"),
    ],
)
def test_an_act_of_nobody_or_for_no_reason_is_refused(
    account: Account, words: dict[str, Any], field: str
) -> None:
    lines = acts.moved(account.allocation("a"), [("train", "recovery", amount(1))])
    found = refused(account, InvalidInput, replan(lines, **words))
    assert found.field == field
    assert found.rule


def test_who_has_no_budget_or_has_ended_cannot_be_replanned_or_approved(account: Account) -> None:
    lines = list(a_plan().lines)

    def replan_of(name: str) -> Callable[[Book], Replanned | None]:
        return lambda book: acts.replan(book, name, lines, ceiling=amount(10), reason="x", person=ADA)

    def approve(name: str, covers: int) -> Callable[[Book], Approved | None]:
        return lambda book: acts.approve_plan(book, name, covers=covers, projection=digest("p"), person=ADA)

    found = refused(account, NotFoundError, replan_of("b"), "b has no budget here")
    assert (found.field, found.rule) == ("NAME", "a")
    refused(account, NotFoundError, approve("b", 1))
    refused(account, NotFoundError, lambda book: acts.close(book, "b", reason="x", person=ADA))
    account.ask(lambda book: acts.close(book, "a", reason="given up", person=ADA))
    assert account.ask(lambda book: acts.close(book, "a", reason="given up", person=ADA)) == ()
    refused(account, CancelledError, replan_of("a"), "a was cancelled")
    refused(account, CancelledError, approve("a", 1), "a was cancelled")


# --- approvals ----------------------------------------------------------------------------------------------


def test_an_approval_covers_at_most_what_is_asked(account: Account) -> None:
    def approve(covers: int, **more: Any) -> Callable[[Book], Approved | None]:
        given = {"projection": projection_of("a"), "person": ADA, **more}
        return lambda book: acts.approve_plan(book, "a", covers=covers, **given)

    found = refused(account, ApprovalError, approve(amount(1234)), "asks for 10.00, not 1,234.00")
    assert found.remedy == "raykit budget replan a --ceiling 1234.00 --reason ... --by NAME"
    assert account.ask(approve(amount(10))) == (), "it covers that already"
    assert refused(account, InvalidInput, approve(-1)).field == "covers"
    assert refused(account, InvalidInput, approve(1, person="")).field == "person"
    assert refused(account, InvalidInput, approve(1, projection="p")).field == "projection"
    (made,) = account.ask(approve(amount(5), scripted=True))
    assert isinstance(made, Approved)
    assert made.scripted
    assert account.book.figure == amount(10), "the account's figure is not lowered by an approval of one plan"


def test_a_stated_figure_of_the_account_is_not_raised_by_an_approval_of_a_plan(account: Account) -> None:
    """covers APPR-15: no approval is implied by another one."""
    account.ask(lambda book: acts.approve_account(book, covers=amount(3), person=ADA))
    projection = digest("p")
    account.ask(
        lambda book: acts.approve_plan(book, "a", covers=amount(9), projection=projection, person="intern")
    )
    assert account.book.figure == amount(3)


def test_an_approval_of_the_account_is_at_most_what_is_planned(account: Account) -> None:
    def approve(covers: int) -> Callable[[Book], Approved | None]:
        return lambda book: acts.approve_account(book, covers=covers, person=ADA)

    account.plan(a_plan("b"))
    account.plan(a_plan("c", ceiling=12, decision="a"))
    assert acts.most_planned(account.book) == amount(22)
    found = refused(account, ApprovalError, approve(amount(22) + 1))
    assert (found.field, found.rule) == ("AMOUNT", "at most 22.00")
    assert refused(account, InvalidInput, approve(-1)).field == "covers"
    assert account.ask(approve(amount(22)))
    assert account.ask(approve(amount(22))) == ()
    assert account.book.figure == amount(22)


def test_what_is_cancelled_is_free_again_and_what_it_spent_stays_spent(account: Account) -> None:
    account.plan(a_plan("b"))
    account.spend("one", "a", "train", 2, 1.5)
    account.ask(lambda book: acts.close(book, "a", reason="given up", person=ADA))
    assert acts.most_planned(account.book) == amount(11.5)
    assert account.book.settled == amount(1.5)
    assert account.sound()


# --- costs that a person knows ------------------------------------------------------------------------------


def by_hand(lease: str, cost: int, **more: Any) -> Callable[[Book], Settled | Corrected | None]:
    given = {"how": "the invoice of November", "person": ADA, **more}
    return lambda book: acts.settle_by_hand(book, lease, cost=cost, **given)


def test_an_unknown_end_stays_charged_until_a_person_settles_it(account: Account) -> None:
    account.reserve("one", "a", "train", 4)
    assert account.book.charged == amount(4)
    (made,) = account.ask(by_hand("one", amount(2.5)))
    assert isinstance(made, Settled)
    assert made.person == ADA
    assert made.time_ms == 2.5 * 3_600_000
    assert account.ask(by_hand("one", amount(2.5))) == ()
    assert account.book.charged == amount(2.5)
    assert account.sound()


def test_a_correction_moves_the_total_either_way(account: Account) -> None:
    account.spend("one", "a", "train", 4, 3)
    (made,) = account.ask(by_hand("one", amount(1)))
    assert isinstance(made, Corrected)
    assert account.book.charged == account.allocation("a").actual == amount(1)
    account.ask(by_hand("one", amount(6)))
    assert account.book.charged == amount(6)
    assert account.allocation("a").needs_replan, "upward, past its line: a fact, and a replan is due"
    account.ask(by_hand("one", amount(2)))
    assert not account.allocation("a").needs_replan
    assert account.sound()


def test_what_cannot_be_settled_is_refused(account: Account) -> None:
    account.reserve("one", "a", "train", 4)
    found = refused(account, NotFoundError, by_hand("nine", 1), "there is no lease nine")
    assert (found.field, found.value, found.rule) == ("LEASE", "nine", "one")
    for cost in (-1, LARGEST + 1):
        assert refused(account, InvalidInput, by_hand("one", cost)).field == "cost"
    assert refused(account, InvalidInput, by_hand("one", 1, person="")).field == "person"
    account.settle("one", 1)
    assert refused(account, InvalidInput, by_hand("one", 2, how=" ")).field == "reason"
    assert account.book.charged == amount(1)
