"""The door: whether work may start, and how a lease goes on and ends.

Each function reads a book and returns the event to write, or None where the same was written before, or raises
what refuses it. Nothing here writes: a batch of decisions is made on a draft and appended as one entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raykit.budget.amounts import measured, shown, worst_of
from raykit.budget.book import AUTONOMOUS, IDLE, Allocation, Book, Lease
from raykit.errors import (
    ApprovalError,
    BudgetError,
    CancelledError,
    ConflictError,
    FleetPaused,
    GateError,
    LeaseLostError,
    NotFoundError,
    ReplanError,
)
from raykit.records import Accrued, EndReason, Purpose, Reserved, Settled, Terms, Voided

FULL: frozenset[Purpose] = frozenset({"target", "comparison", "confirmation"})
"""Purposes whose work is full-quality: blocked while a necessary check has failed. A check itself is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What wants to start. `lease` is the caller's own name for it: asking twice finds the same answer."""

    lease: str
    experiment: str
    line: str
    terms: Terms
    projection: str | None = None
    """Digest of the consequential part of the plan's lock: what an approval has to name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands in the way beside money."""

    paused: str | None = None
    """The pause in force, in words."""
    failed: tuple[str, ...] = ()
    """Necessary checks that have failed, without a repair recorded since."""


class Bound(NamedTuple):
    """What an account must stay below; a granted number of hours may be used to the last one."""

    amount: int
    inclusive: bool
    approved: bool
    """A person has approved this very plan."""

    def allows(self, total: int) -> bool:
        return total <= self.amount if self.inclusive else total < self.amount

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


def admit(
    book: Book, request: Request, standing: Standing = Standing(), *, now: float = 0.0
) -> Reserved | None:
    """Reserve the worst case of what wants to start; None if this lease was granted before.

    Raises:
        ConflictError: the lease is of something else.
        LeaseLostError: the lease has ended.
        NotFoundError: the experiment has no such line.
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        GateError: a necessary check has failed, and no repair is recorded.
        ReplanError: an overrun has eaten into a reserve.
        ApprovalError: a person has to approve this plan first.
        BudgetError: the line, the plan's ceiling or the account cannot pay.
    """
    known = book.leases.get(request.lease)
    if known is not None:
        _require_same(known, request)
        return None
    allocation = _allocation(book, request.experiment)
    line = allocation.lines.get(request.line)
    if line is None:
        raise NotFoundError(
            f"the plan of {request.experiment} has no line {request.line}",
            field="line",
            value=request.line,
            rule=", ".join(sorted(allocation.lines)),
        )
    if standing.paused is not None:
        raise FleetPaused(standing.paused, remedy=f"raykit resume {request.experiment}")
    if standing.failed and line.purpose in FULL:
        failed = ", ".join(standing.failed)
        raise GateError(
            f"{request.experiment}: the {failed} gate has failed, and no repair is recorded",
            rule="full runs wait for a recorded repair and a check that passes again",
            remedy=f'raykit resume {request.experiment} --repair "what you changed"',
        )
    worst = worst_of(request.terms)
    if worst > 0:
        require_planned(book, allocation)
        _require_rate(book, allocation, request)
        _require_room(book, allocation, request, worst, now)
    return Reserved(
        lease=request.lease,
        experiment=request.experiment,
        line=request.line,
        worst=worst,
        terms=request.terms,
        charged=book.charged + book.idle_cost(now),
        below=bound(book, request.experiment, request.projection).amount,
        projection=request.projection,
    )


def require_planned(book: Book, allocation: Allocation) -> None:
    """Let only an experiment go on whose reserves are whole.

    Raises:
        ReplanError: they are not.
    """
    if not allocation.needs_replan:
        return
    unit, name = book.unit, allocation.experiment
    raise ReplanError(
        f"{name} has overrun by {shown(allocation.overrun(), unit)}: "
        f"{shown(allocation.reserve_left(), unit)} of its reserves is left",
        rule="an overrun into a reserve needs a new decision before more is spent",
        remedy=f"raykit budget show {name}   then   raykit budget replan {name}",
    )


def _require_rate(book: Book, allocation: Allocation, request: Request) -> None:
    """A rise within the margin is paid for by the margin; one beyond it is news that a person has to see."""
    seen, terms = allocation.rates.get(request.line), request.terms
    if seen is None or terms.rate <= seen:
        return
    if terms.rate * terms.margin_permille > seen * allocation.margin_permille:
        raise ReplanError(
            f"an accelerator-hour of {request.line} costs {shown(terms.rate, book.unit)} now ({terms.source}), "
            f"not {shown(seen, book.unit)}: more than the margin of {allocation.margin_permille / 10 - 100:g} % covers",
            rule="new cost information needs a new decision before more is spent",
            remedy=f"raykit budget replan {allocation.experiment}",
        )


def _require_room(book: Book, allocation: Allocation, request: Request, worst: int, now: float) -> None:
    unit, name = book.unit, allocation.experiment
    idle = book.idle_cost(now)
    account, plan = bound(book, name, request.projection), plan_bound(book, allocation, request.projection)
    total = book.charged + idle + worst
    own = allocation.charged + book.idle_cost(now, name) + worst
    costs = f"{request.line} of {name} may cost {shown(worst, unit)}"
    if not plan.allows(own):
        raise BudgetError(
            f"{costs}; with {shown(own - worst, unit)} settled and reserved that is {shown(own, unit)}, "
            f"and this plan stays {plan.words} {shown(plan.amount, unit)}",
            rule=f"settled + reserved + worst case {plan.words} the ceiling",
            remedy=f"raykit budget show {name}   or   raykit budget replan {name} --ceiling AMOUNT",
        )
    if not account.allows(total):
        said = (
            f"{costs}; with {shown(total - worst, unit)} settled and reserved account "
            f"{book.opened.account if book.opened else name} would come to {shown(total, unit)}"
        )
        if account.approved:
            raise BudgetError(
                f"{said}, and it stays {account.words} {shown(account.amount, unit)}",
                rule="the figure that a person approved for the account",
                remedy="raykit approve account NAME AMOUNT",
            )
        raise ApprovalError(
            f"{said}; from {shown(account.amount, unit)} on, a person has to approve this very plan",
            rule=f"{account.words} {shown(account.amount, unit)} over the life of the account, or an approval",
            remedy=f"raykit approve plan {name} {shown(allocation.ceiling).replace(',', '')} --by NAME",
        )
    if worst > allocation.remaining(request.line):
        raise BudgetError(
            f"{costs}, and the line has {shown(max(0, allocation.remaining(request.line)), unit)} left",
            rule="no line takes from another; recovery and confirmation stay reserved",
            remedy=f"raykit budget replan {name}",
        )


def accrue(book: Book, lease: str, *, cost: int, time_ms: int) -> Accrued | None:
    """Renew a lease: it may go on until `time_ms` after its start. None if it is that long already.

    Raises:
        LeaseLostError: there is no such lease, or it has ended.
        BudgetError: its line cannot pay for that.
    """
    held = _open(book, lease)
    if time_ms <= held.time_ms:
        return None
    allocation = _allocation(book, held.reserved.experiment)
    worst = worst_of(held.reserved.terms.model_copy(update={"time_ms": time_ms}))
    more = worst - held.worst
    if more > 0:
        require_planned(book, allocation)
        if more > allocation.remaining(held.reserved.line) or allocation.charged + more >= allocation.ceiling:
            left = shown(allocation.remaining(held.reserved.line), book.unit)
            raise BudgetError(
                f"lease {lease} needs {shown(more, book.unit)} more, and {held.reserved.line} has {left} left",
                remedy=f"raykit budget replan {allocation.experiment}",
            )
    return Accrued(lease=lease, cost=cost, worst=worst, time_ms=time_ms)


def settle(
    book: Book, lease: str, *, time_ms: int, reason: EndReason, how: str, wall_ms: int | None = None
) -> Settled | None:
    """End a lease whose accelerators were held for `time_ms`; None if its end is known already.

    Raises:
        LeaseLostError: there is no such lease.
    """
    held = _known(book, lease)
    if not held.open:
        return None
    cost = measured(held.reserved.terms, time_ms)
    return Settled(lease=lease, cost=cost, time_ms=time_ms, wall_ms=wall_ms, reason=reason, how=how)


def settle_at_most(book: Book, lease: str, *, time_ms: int, reason: EndReason, how: str) -> Settled | None:
    """End a lease of which is known only that it had ended `time_ms` after its start: never above its worst case.

    Raises:
        LeaseLostError: there is no such lease.
    """
    event = settle(book, lease, time_ms=time_ms, reason=reason, how=how)
    if event is None:
        return None
    held = book.leases[lease]
    return event.model_copy(
        update={"cost": min(event.cost, held.worst), "time_ms": min(time_ms, held.time_ms)}
    )


def void(book: Book, lease: str, *, proof: str) -> Voided | None:
    """Take back a lease whose work never started; None if it was taken back before.

    Raises:
        LeaseLostError: there is no such lease, or it has ended otherwise.
    """
    held = _known(book, lease)
    if held.void:
        return None
    _open(book, lease)
    return Voided(lease=lease, proof=proof)


# --- finding ------------------------------------------------------------------------------------------------


def _allocation(book: Book, experiment: str) -> Allocation:
    allocation = book.allocations.get(experiment)
    if allocation is None:
        raise NotFoundError(
            f"{experiment} has no budget in this account", field="experiment", value=experiment
        )
    if allocation.closed:
        raise CancelledError(f"{experiment} was cancelled: nothing more is spent on it")
    return allocation


def _require_same(known: Lease, request: Request) -> None:
    if (known.reserved.experiment, known.reserved.line) != (request.experiment, request.line):
        raise ConflictError(
            f"lease {request.lease} is of {known.reserved.line} of {known.reserved.experiment}"
        )
    if not known.open:
        raise LeaseLostError(f"lease {request.lease} has ended: {known.reason}")


def _known(book: Book, lease: str) -> Lease:
    held = book.leases.get(lease)
    if held is None:
        raise LeaseLostError(f"there is no lease {lease}", field="lease", value=lease)
    return held


def _open(book: Book, lease: str) -> Lease:
    held = _known(book, lease)
    if not held.open:
        raise LeaseLostError(f"lease {lease} has ended: {held.reason}", field="lease", value=lease)
    return held


__all__ = [
    "IDLE",
    "Bound",
    "Request",
    "Standing",
    "accrue",
    "admit",
    "bound",
    "plan_bound",
    "require_planned",
    "settle",
    "settle_at_most",
    "void",
]
