"""The money of making synthetic sets: the line that pays for it, whether it would, and what it comes to.

Refusals come before anything starts and write nothing: the first worker is tried on a draft of the book.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from raykit.budget import acts as money
from raykit.budget.admit import Request
from raykit.budget.amounts import shown
from raykit.budget.book import Book
from raykit.budget.room import given_back, least_ms, plan_bound, way_to_pay
from raykit.errors import BudgetError, ReplanError
from raykit.fleet.door import launch_of, reserve
from raykit.fleet.pool.lease import Price, lease_terms
from raykit.fleet.site import Site
from raykit.fleet.spending import (
    Approving,
    Spending,
    approval_of,
    approve,
    attempts_of,
    draft_of,
    open_spending,
    require_same_ceiling,
)
from raykit.pauses import Acts
from raykit.read.sizing import rate_of
from raykit.records import CanaryPassed, Record
from raykit.store.place import alive

LINE: Final = "generate"


def price_of(site: Site, spending: Spending) -> Price:
    """What an hour of one worker costs."""
    rate, source = rate_of(site.plan, spending.ledger.book, LINE)
    return Price(
        rate=rate,
        source=source,
        margin_permille=spending.sizing.margin_permille,
        projection=spending.attempts.projection,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The book as a launch would begin with it, and what its leases would name."""

    book: Book
    projection: str | None


def require_payable(site: Site, acts: Acts, approved: Approving | None = None) -> Tried:
    """Try on a draft whether the first worker would be paid for, once `approved` is said. Writes nothing.

    Raises:
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay.
        ReplanError: money has to be moved first; also where the budget has no line for it, and it is billed.
        GateError: a necessary check has failed, and no repair is recorded.
        FleetPaused: a pause is in force.
        CancelledError: the experiment was ended for good.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    assert site.locked is not None
    now, log = time.time(), site.run_log("generate")
    draft = draft_of(site, site.locked, log)
    require_same_ceiling(site, draft)
    events = [_line_of(site, draft), None if approved is None else approval_of(site, draft, approved)]
    for event in events:
        if event is not None:
            draft.apply(event, now)
    attempts = attempts_of(site, log, acts, draft)
    rate, source = rate_of(site.plan, draft, LINE)
    price = Price(
        rate=rate,
        source=source,
        margin_permille=attempts.sizing.margin_permille,
        projection=attempts.projection,
    )
    request = Request(
        lease="preview-generate-1",
        experiment=site.name,
        line=LINE,
        terms=lease_terms(price),
        projection=attempts.projection,
        least_ms=least_ms(),
    )
    try:
        reserve(draft, request, role="generate", acts=acts, failed=attempts.failed, now=now)
    except BudgetError as error:
        raise _with_who_is_at_it(error, draft, site.name) from error
    return Tried(book=draft, projection=attempts.projection)


def _with_who_is_at_it(error: BudgetError, book: Book, experiment: str) -> BudgetError:
    """The same refusal; it names another launch that has the money, if there is one."""
    held = [
        (lease, lease.reserved.holder)
        for lease in book.open_leases(experiment)
        if lease.reserved.line == LINE and lease.reserved.holder is not None and alive(lease.reserved.holder)
    ]
    if not held:
        return error
    amount, place = shown(sum(lease.worst for lease, _ in held), book.unit), held[0][1]
    return error.with_more(
        f"{amount} of it is reserved by a launch that is at it, process {place.pid} on {place.host}",
        remedy=f"raykit generate status {experiment}",
    )


def open_money(site: Site, acts: Acts, approved: Approving | None) -> Spending:
    """Join the account, settle what dead workers have left open, and see to the line.

    Raises:
        ApprovalError: the work is related to another account, or the amount is above the plan's ceiling.
        InvalidInput: the account is kept in another unit.
        ReplanError: the budget has no line for synthetic sets, and they are billed.
        BudgetError: the plan does not fit under its own ceiling.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: what was written last is not known.
    """
    assert site.locked is not None
    spending = open_spending(site, site.locked, site.run_log("generate"), acts)
    if approved is not None:
        approve(site, spending, approved)
    spending.ledger.decide(lambda book: _line_of(site, book), at=time.time())
    return spending


def _line_of(site: Site, book: Book) -> Record | None:
    """A line of 0 for work that costs nothing, where the budget was locked without one."""
    allocation = money.allocation_of(book, site.name)
    if LINE in allocation.lines:
        return None
    rate, _ = rate_of(site.plan, book, LINE)
    if rate:
        raise ReplanError(
            f"the budget of {site.name} has no line for synthetic sets",
            field=LINE,
            rule="money that a person has set aside for them",
            remedy=f"raykit budget replan {site.name} --move recovery:{LINE}=AMOUNT --reason ... --by NAME",
        )
    lines = money.with_lines(allocation, [LINE])
    return money.replan(
        book,
        site.name,
        list(lines.values()),
        ceiling=allocation.ceiling,
        reason="a synthetic set of this machine's own CPUs costs nothing, and needs a line all the same",
        person="raykit generate",
    )


# --- what it comes to -------------------------------------------------------------------------------------------


def cost_of(spending: Spending, launches: Iterable[str]) -> int | None:
    """What these launches have cost, in micro-units; None where nothing is billed, or one of them is not settled."""
    wanted = frozenset(launches)
    leases = [
        lease
        for lease in spending.ledger.book.leases.values()
        if lease.reserved.line == LINE and launch_of(lease.reserved.lease) in wanted
    ]
    if not any(lease.reserved.terms.rate for lease in leases) or any(lease.open for lease in leases):
        return None
    return sum(lease.charged for lease in leases)


# --- what is projected ------------------------------------------------------------------------------------------


def require_affordable(
    book: Book, experiment: str, projection: str | None, canary: CanaryPassed, *, left_permille: int
) -> None:
    """Let only a set go on of which the rest fits what is left for it; `left_permille` of it is not made yet.

    Raises:
        BudgetError: the line or the ceiling would not pay for it; the message says what would.
    """
    worst = canary.worst_cost * left_permille // 1000
    if worst == 0:
        return
    allocation = money.allocation_of(book, experiment)
    back = given_back(book, experiment, LINE, now=time.time())
    line = max(0, allocation.remaining(LINE) + back)
    under = max(0, plan_bound(book, allocation, projection).amount - allocation.charged + back)
    if worst <= min(line, under):
        return
    unit = book.unit
    raise BudgetError(
        f"the rest of {experiment}/{canary.name} is projected at {shown(worst, unit)} at worst, and its line has "
        f"{shown(line, unit)} left"
        if worst > line
        else f"the rest of {experiment}/{canary.name} is projected at {shown(worst, unit)} at worst, and the ceiling "
        f"of {experiment} leaves {shown(under, unit)}",
        field=LINE,
        value=shown(worst, unit),
        rule="what is projected at worst is set aside before the fan-out",
        remedy=way_to_pay(allocation, LINE, worst - line, under=max(0, worst - under)),
    )
