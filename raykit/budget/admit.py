"""The door: whether work may start, and how a lease goes on and ends.

Each function reads a book and returns the event to write, or None where the same was written before, or raises
what refuses it. Nothing here writes: a batch of decisions is made on a draft and appended as one entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from raykit.budget.amounts import PERMILLE, affordable_ms, as_input, measured, plain, shown, worst_of
from raykit.budget.book import IDLE, Allocation, Book, Lease, running
from raykit.budget.lines import RECOVERY
from raykit.budget.rates import Quote, newest
from raykit.errors import (
    ApprovalError,
    BudgetError,
    ConflictError,
    FleetPaused,
    GateError,
    LeaseLostError,
    NotFoundError,
    ReplanError,
)
from raykit.records import (
    AUTONOMOUS,
    Accrued,
    EndReason,
    Line,
    Place,
    Purpose,
    Reserved,
    Settled,
    Terms,
    Voided,
)

FULL: frozenset[Purpose] = frozenset({"target", "comparison", "confirmation"})
"""Purposes whose work is full-quality: blocked while a necessary check has failed. A check itself is not."""


NEXT_STEPS = "next: finite inputs, loss terms and gradients on a tiny batch, then the first update"
"""What may be done while a necessary check has failed."""


ENDING_MS = 10_000
"""What a worker takes to end and to be settled, once it is to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What wants to start. `lease` is the caller's own name for it: asking twice finds the same answer."""

    lease: str
    experiment: str
    line: str
    terms: Terms
    projection: str | None = None
    """Digest of the consequential part of the plan's lock: what an approval has to name."""
    run: str | None = None
    """The trial of a search that it is for."""
    least_ms: int | None = None
    """The shortest time that is worth starting with, where less than all of the terms' may be granted."""
    share: int = 1
    """So many workers are to be paid from what is left: where that is short, this one takes only its part."""
    holder: Place | None = None
    """The process that ends the worker; without it, nothing but its time says that the worker is over."""


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


# --- starting -----------------------------------------------------------------------------------------------


def admit(
    book: Book, request: Request, standing: Standing = Standing(), *, now: float = 0.0
) -> Reserved | None:
    """Reserve the worst case of what wants to start; None if this lease was granted before.

    Raises:
        ConflictError: the lease is of something else, or of less.
        LeaseLostError: the lease has ended.
        NotFoundError: the experiment has no budget here, or no such line.
        InvalidInput: a name or an amount is none that a record may hold.
        CancelledError: the experiment was ended for good.
        FleetPaused: a pause is in force.
        GateError: a necessary check has failed, and no repair is recorded.
        ReplanError: an overrun has eaten into a reserve, or the rate has risen beyond the margin.
        ApprovalError: a person has to approve this plan first.
        BudgetError: the line, the plan's ceiling or the account cannot pay.
    """
    known = book.leases.get(request.lease)
    if known is not None:
        _require_same(book, known, request)
        return None
    allocation = running(book, request.experiment)
    line = _line(allocation, request.line)
    if standing.paused is not None:
        raise FleetPaused(standing.paused, remedy=f"raykit resume {request.experiment}")
    if standing.failed and line.purpose in FULL:
        failed = ", ".join(standing.failed)
        raise GateError(
            f"{request.experiment}: the {failed} gate has failed, and no repair is recorded",
            rule=f"{NEXT_STEPS}; full runs wait for a recorded repair and a check that passes again",
            remedy=f'raykit resume {request.experiment} --repair "what you changed"',
        )
    terms = _at_newest_rate(book, allocation, request)
    room = room_left(book, allocation, request.line, request.projection, now=now)
    request = replace(request, terms=_within(terms, room // request.share, request.least_ms))
    worst = worst_of(request.terms)
    if worst > 0:
        require_planned(book, allocation)
        _require_rate(book, allocation, request.line, request.terms.rate, request.terms.source)
        asked = _Asked(allocation, request.line, request.projection, worst)
        costs = f"{request.line} of {request.experiment} may cost {shown(worst, book.unit)}"
        _require_room(book, asked, costs, now)
    with as_input():
        return Reserved(
            lease=request.lease,
            experiment=request.experiment,
            line=request.line,
            worst=worst,
            terms=request.terms,
            charged=book.charged + book.idle_cost(now),
            below=bound(book, request.experiment, request.projection).amount,
            projection=request.projection,
            run=request.run,
            holder=request.holder,
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
        remedy=f"raykit budget show {name}   then   raykit budget replan {name} --reason ... --by NAME",
    )


def _at_newest_rate(book: Book, allocation: Allocation, request: Request) -> Terms:
    """Nobody is granted anything at a rate that is out of date, however long ago the asker has looked it up."""
    terms = request.terms
    quote = newest(book, allocation, request.line, Quote(terms.rate, terms.source, terms.margin_permille))
    return terms.model_copy(update=quote._asdict())


def _within(terms: Terms, room: int, least_ms: int | None) -> Terms:
    """The terms, or as much of their time as there is room for; the least that is asked for where that is not there."""
    if least_ms is None or worst_of(terms) <= max(room, 0):
        return terms
    paid_ms = affordable_ms(
        room - terms.fixed, terms.accelerators, terms.rate, margin_permille=terms.margin_permille
    )
    assert paid_ms is not None, "what costs nothing fits"
    return terms.model_copy(update={"time_ms": min(terms.time_ms, max(least_ms, paid_ms))})


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


def _require_rate(book: Book, allocation: Allocation, line: str, rate: int, source: str) -> None:
    """A rise within the margin is paid for by the margin; one beyond it is news that a person has to see."""
    seen = allocation.rates.get(line)
    if seen is not None and rate * PERMILLE > seen * allocation.margin_permille:
        margin = f"{(allocation.margin_permille - PERMILLE) / 10:g} %"
        raise ReplanError(
            f"an accelerator-hour of {line} costs {shown(rate, book.unit)} now ({source}), "
            f"not {shown(seen, book.unit)}: more than the margin of {margin} covers",
            field="rate",
            value=shown(rate, book.unit),
            rule="new cost information needs a new decision before more is spent",
            remedy=f"raykit budget replan {allocation.experiment} --reason ... --by NAME",
        )


def _require_rate_kept(book: Book, allocation: Allocation, lease: Reserved) -> None:
    """A lease keeps the rate that it was reserved at; once an hour costs more, it is not made any longer."""
    held = lease.terms
    now = newest(book, allocation, lease.line, Quote(held.rate, held.source, held.margin_permille))
    if now.rate <= held.rate:
        return
    _require_rate(book, allocation, lease.line, now.rate, now.source)
    raise BudgetError(
        f"lease {lease.lease} of {lease.line} is at {shown(held.rate, book.unit)} for an accelerator-hour, which "
        f"costs {shown(now.rate, book.unit)} now ({now.source})",
        field="rate",
        value=shown(held.rate, book.unit),
        rule="a lease keeps its rate; what goes on is paid from a new one",
    )


class _Asked(NamedTuple):
    """Who wants how much more to be reserved, on which line."""

    allocation: Allocation
    line: str
    projection: str | None
    more: int


def _require_room(book: Book, asked: _Asked, costs: str, now: float) -> None:
    """Let only an amount pass that every bound has room for; `costs` says in words what it is for."""
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


def _require_plan_room(book: Book, asked: _Asked, costs: str, now: float) -> None:
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


def _require_decision_room(book: Book, asked: _Asked, costs: str) -> None:
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


def _require_account_room(book: Book, asked: _Asked, costs: str, now: float) -> None:
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


# --- going on and ending ------------------------------------------------------------------------------------


def accrue(
    book: Book, lease: str, *, cost: int, time_ms: int, least_ms: int | None = None, now: float
) -> Accrued | None:
    """Renew a lease: it may go on until `time_ms` after its start. None if it is that long already.

    With `least_ms` it may be less, down to that, where the money is short.

    Raises:
        LeaseLostError: there is no such lease, or it has ended.
        CancelledError: its experiment was ended for good.
        ReplanError: an overrun has eaten into a reserve, or the rate has risen beyond the margin.
        ApprovalError: a person has to approve this plan first.
        BudgetError: its line, the plan's ceiling or the account cannot pay for that, or the rate has risen.
        InvalidInput: a value is negative or huge.
    """
    held = _open(book, lease)
    if time_ms <= held.time_ms:
        return None
    allocation, reserved = running(book, held.reserved.experiment), held.reserved
    terms = reserved.terms.model_copy(update={"time_ms": time_ms})
    room = room_left(book, allocation, reserved.line, reserved.projection, now=now)
    least_ms = None if least_ms is None else max(least_ms, held.time_ms + 1)
    terms = _within(terms, held.worst + room, least_ms)
    worst = worst_of(terms)
    more = worst - held.worst
    if more > 0:
        require_planned(book, allocation)
        _require_rate_kept(book, allocation, reserved)
        costs = f"lease {lease} of {reserved.line} needs {shown(more, book.unit)} more"
        _require_room(book, _Asked(allocation, reserved.line, reserved.projection, more), costs, now)
    with as_input():
        return Accrued(lease=lease, cost=cost, worst=worst, time_ms=terms.time_ms)


def settle(
    book: Book, lease: str, *, time_ms: int, reason: EndReason, how: str, wall_ms: int | None = None
) -> Settled | None:
    """End a lease whose accelerators were held for `time_ms`; None if its end is known already.

    Raises:
        LeaseLostError: there is no such lease.
        InvalidInput: the time is negative, or comes to more than a billion.
    """
    held = _known(book, lease)
    if not held.open:
        return None
    cost = measured(held.reserved.terms, time_ms)
    with as_input():
        return Settled(lease=lease, cost=cost, time_ms=time_ms, wall_ms=wall_ms, reason=reason, how=how)


def settle_at_most(book: Book, lease: str, *, time_ms: int, reason: EndReason, how: str) -> Settled | None:
    """End a lease of which is known only that it had ended `time_ms` after its start: never above its worst case.

    Raises:
        LeaseLostError: there is no such lease.
        InvalidInput: the time is negative, or comes to more than a billion.
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
        InvalidInput: the proof is empty.
    """
    held = _known(book, lease)
    if held.void:
        return None
    _open(book, lease)
    with as_input():
        return Voided(lease=lease, proof=proof)


# --- finding ------------------------------------------------------------------------------------------------


def _line(allocation: Allocation, name: str) -> Line:
    line = allocation.lines.get(name)
    if line is None:
        raise NotFoundError(
            f"the plan of {allocation.experiment} has no line {name}",
            field="line",
            value=name,
            rule=", ".join(sorted(allocation.lines)),
        )
    return line


def _require_same(book: Book, known: Lease, request: Request) -> None:
    """Asking again finds the same answer; asking for something else, or for more, is not asking again."""
    held, terms = known.reserved, request.terms
    if request.line in book.rates:  # the door says at which rate, and it may have said another one since
        kept = {"rate": held.terms.rate, "margin_permille": held.terms.margin_permille}
        terms = terms.model_copy(update=kept)
    if (held.experiment, held.line) != (request.experiment, request.line):
        raise ConflictError(
            f"lease {held.lease} is of {held.line} of {held.experiment}",
            field="lease",
            value=f"{request.line} of {request.experiment}",
            rule="one name, one lease",
        )
    if not known.open:
        raise LeaseLostError(f"lease {held.lease} has ended: {known.reason}", field="lease", value=held.lease)
    granted = (held.terms.accelerators, known.time_ms, known.worst)
    if request.least_ms is not None:
        terms = terms.model_copy(update={"time_ms": min(terms.time_ms, request.least_ms)})
    wanted = (terms.accelerators, terms.time_ms, worst_of(terms))
    if any(want > grant for want, grant in zip(wanted, granted, strict=True)):
        raise ConflictError(
            f"lease {held.lease} is of {granted[0]} accelerators for {granted[1]} ms, not {wanted[0]} for {wanted[1]}",
            field="terms",
            value=request.lease,
            rule="a lease grows when it is renewed, never by asking for it again",
        )


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
    "decision_bound",
    "plan_bound",
    "require_planned",
    "settle",
    "settle_at_most",
    "void",
]
