"""The door: whether work may start, and how a lease goes on and ends.

Each function reads a book and returns the event to write, or None where the same was written before, or raises
what refuses it. Nothing here writes: a batch of decisions is made on a draft and appended as one entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from raykit.budget.amounts import PERMILLE, affordable_ms, as_input, measured, shown, worst_of
from raykit.budget.book import IDLE, Allocation, Book, Lease, running
from raykit.budget.rates import Quote, newest
from raykit.budget.room import Asked, bound, require_room, room_left
from raykit.errors import (
    BudgetError,
    ConflictError,
    FleetPaused,
    GateError,
    LeaseLostError,
    NotFoundError,
    ReplanError,
)
from raykit.records import (
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
            remedy='raykit launch PLAN --repair "what you changed" --by NAME, with the mended recipe or plan; '
            f'with what is frozen: raykit resume {request.experiment} --repair "what you changed" --by NAME',
        )
    terms = _at_newest_rate(book, allocation, request)
    room = room_left(book, allocation, request.line, request.projection, now=now)
    request = replace(request, terms=_within(terms, room // request.share, request.least_ms))
    worst = worst_of(request.terms)
    if worst > 0:
        require_planned(book, allocation)
        _require_rate(book, allocation, request.line, request.terms.rate, request.terms.source)
        asked = Asked(allocation, request.line, request.projection, worst)
        costs = f"{request.line} of {request.experiment} may cost {shown(worst, book.unit)}"
        require_room(book, asked, costs, now)
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
        require_room(book, Asked(allocation, reserved.line, reserved.projection, more), costs, now)
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
    "Request",
    "Standing",
    "accrue",
    "admit",
    "require_planned",
    "settle",
    "settle_at_most",
    "void",
]
