"""What every bound leaves: a line, a plan's ceiling, the plans for one decision, and the account.

Asked for more than one of them has room for, the refusal names the bound, and the command that helps.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from raykit.budget.amounts import measured, plain, shown
from raykit.budget.book import Allocation, Book
from raykit.budget.lines import RECOVERY
from raykit.errors import ApprovalError, BudgetError
from raykit.records import AUTONOMOUS

COMES_UP_S: Final = 30.0
"""What a worker is paid for to come up with."""
UNIT_S: Final = 30.0
"""What a unit is taken to need as long as none has been seen."""
ENDING_MS: Final = 10_000
"""What a worker takes to end and to be settled, once it is to."""


def least_ms(unit_s: float = UNIT_S) -> int:
    """The shortest time that a worker is paid for, where the money is short: it comes up, and does a unit."""
    return int((COMES_UP_S + unit_s) * 1000)


# --- the bounds ---------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """What an account must stay below; a granted number of hours may be used to the last one."""

    amount: int
    inclusive: bool
    approved: bool
    """A person has approved this very plan."""

    def allows(self, total: int) -> bool:
        return total <= self.amount if self.inclusive else total < self.amount

    def left(self, total: int) -> int:
        """How much more it allows beyond a total."""
        return self.amount - total - (0 if self.inclusive else 1)

    @property
    def words(self) -> str:
        return "at most" if self.inclusive else "below"


def bound(book: Book, experiment: str, projection: str | None) -> Bound:
    """What the account must stay below for this plan: the approved figure, or the little that needs no approval."""
    inclusive = book.unit == "accelerator-hours"
    autonomous = AUTONOMOUS if book.unit == "usd" else 0
    if (experiment, projection or "") in book.approvals and book.figure is not None:
        return Bound(book.figure, inclusive, approved=True)
    figure = autonomous if book.figure is None else min(book.figure, autonomous)
    return Bound(figure, inclusive, approved=False)


def plan_bound(book: Book, allocation: Allocation, projection: str | None) -> Bound:
    """What this plan must stay below: its own ceiling, or less where a person has approved less."""
    approval = book.approvals.get((allocation.experiment, projection or ""))
    amount = allocation.ceiling if approval is None else min(allocation.ceiling, approval.covers)
    return Bound(amount, book.unit == "accelerator-hours", approved=approval is not None)


def decision_bound(book: Book, decision: str) -> Bound:
    """What all plans for one decision must stay below together: they are alternatives, so the largest ceiling."""
    largest = max(allocation.ceiling for allocation in book.alternatives(decision))
    return Bound(largest, book.unit == "accelerator-hours", approved=False)


# --- what they leave ------------------------------------------------------------------------------------------


def room_left(book: Book, allocation: Allocation, line: str, projection: str | None, *, now: float) -> int:
    """What may be reserved on a line now: the least that any of the bounds leaves."""
    name, alike = allocation.experiment, book.alternatives(allocation.planned.decision)
    return min(
        allocation.remaining(line),
        plan_bound(book, allocation, projection).left(allocation.charged + book.idle_cost(now, name)),
        decision_bound(book, allocation.planned.decision).left(sum(each.charged for each in alike)),
        bound(book, name, projection).left(book.charged + book.idle_cost(now)),
    )


def given_back(book: Book, experiment: str, line: str, *, now: float) -> int:
    """What the open leases of a line would give back if their workers ended soon: within `ENDING_MS`."""
    return sum(
        max(0, lease.worst - measured(lease.reserved.terms, int(max(0.0, now - lease.at) * 1000) + ENDING_MS))
        for lease in book.open_leases(experiment)
        if lease.reserved.line == line
    )


# --- what they refuse -----------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """Who wants how much more to be reserved, on which line."""

    allocation: Allocation
    line: str
    projection: str | None
    more: int


def require_room(book: Book, asked: Asked, costs: str, now: float) -> None:
    """Let only an amount pass that every bound has room for; `costs` says in words what it is for.

    Raises:
        ApprovalError: a person has to approve this plan first.
        BudgetError: the line, the plan's ceiling, the decision or the account cannot pay.
    """
    _require_plan_room(book, asked, costs, now)
    _require_decision_room(book, asked, costs)
    _require_account_room(book, asked, costs, now)
    left = max(0, asked.allocation.remaining(asked.line))
    if asked.more > left:
        raise BudgetError(
            f"{costs}, and the line has {shown(left, book.unit)} left",
            field=asked.line,
            value=shown(asked.more, book.unit),
            rule="no line takes from another; recovery and confirmation stay reserved",
            remedy=way_to_pay(asked.allocation, asked.line, asked.more - left),
        )


def way_to_pay(allocation: Allocation, line: str, short: int, *, under: int = 0) -> str:
    """The command that gives a line so much more, out of recovery; the ceiling rises by `under`, or by what recovery
    lacks."""
    command = f"raykit budget replan {allocation.experiment}"
    spare = max(0, allocation.remaining(RECOVERY)) if RECOVERY in allocation.lines else 0
    higher = max(under, short - spare)
    if short > 0:
        command += f" --move {RECOVERY}:{line}={plain(short)}"
    if higher > 0:
        command += f" --ceiling {plain(allocation.ceiling + higher)}"
    return f"{command} --reason ... --by NAME"


def _require_plan_room(book: Book, asked: Asked, costs: str, now: float) -> None:
    unit, name = book.unit, asked.allocation.experiment
    limit = plan_bound(book, asked.allocation, asked.projection)
    charged = asked.allocation.charged + book.idle_cost(now, name)
    if limit.allows(charged + asked.more):
        return
    remedy = f"raykit budget show {name}   or   raykit budget replan {name} --ceiling AMOUNT --reason ... --by NAME"
    if limit.amount < asked.allocation.ceiling:
        remedy = _approve_plan(asked.allocation)
    raise BudgetError(
        f"{costs}; with {shown(charged, unit)} settled and reserved that is {shown(charged + asked.more, unit)}, "
        f"and this plan stays {limit.words} {shown(limit.amount, unit)}",
        field="ceiling",
        value=shown(charged + asked.more, unit),
        rule=f"settled + reserved + worst case {limit.words} the ceiling",
        remedy=remedy,
    )


def _require_decision_room(book: Book, asked: Asked, costs: str) -> None:
    unit, decision = book.unit, asked.allocation.planned.decision
    limit = decision_bound(book, decision)
    alike = book.alternatives(decision)
    total = sum(allocation.charged for allocation in alike) + asked.more
    if not limit.allows(total):
        raise BudgetError(
            f"{costs}; with {', '.join(allocation.experiment for allocation in alike)}, plans for the same decision, "
            f"that is {shown(total, unit)}, and together they stay {limit.words} {shown(limit.amount, unit)}",
            field="decision",
            value=shown(total, unit),
            rule="plans for one decision are alternatives: they share, they never add",
            remedy=f"raykit budget replan {asked.allocation.experiment} --ceiling AMOUNT --reason ... --by NAME",
        )


def _require_account_room(book: Book, asked: Asked, costs: str, now: float) -> None:
    unit, name = book.unit, asked.allocation.experiment
    limit = bound(book, name, asked.projection)
    charged = book.charged + book.idle_cost(now)
    total = charged + asked.more
    if limit.allows(total):
        return
    account = book.opened.account if book.opened else name
    said = f"{costs}; with {shown(charged, unit)} settled and reserved account {account} would come to "
    if limit.approved:
        raise BudgetError(
            f"{said}{shown(total, unit)}, and it stays {limit.words} {shown(limit.amount, unit)}",
            field="account",
            value=shown(total, unit),
            rule="the figure that a person approved for the account",
            remedy=f"raykit approve account {account} AMOUNT --by NAME",
        )
    raise ApprovalError(
        f"{said}{shown(total, unit)}; from {shown(limit.amount, unit)} on, a person has to approve this very plan",
        field="account",
        value=shown(total, unit),
        rule=f"{limit.words} {shown(limit.amount, unit)} over the life of the account, or an approval",
        remedy=_approve_plan(asked.allocation),
    )


def _approve_plan(allocation: Allocation) -> str:
    amount = plain(allocation.ceiling)
    return (
        f"raykit launch PLAN --approve {amount} --by NAME   or, once it was launched,   "
        f"raykit approve plan {allocation.experiment} {amount} --by NAME"
    )
