"""What people do with money: approve, replan, settle what is unknown, correct, part accounts. Refusals included.

As at the door, each function reads a book and returns the event to write; it writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raykit.budget.amounts import affordable_ms, as_input, plain, shown
from raykit.budget.book import RESERVES, Allocation, Book, allocation_of, running
from raykit.budget.lines import RECOVERY, resized
from raykit.errors import ApprovalError, InvalidInput, NotFoundError, ReplanError
from raykit.records import (
    Approved,
    Closed,
    Corrected,
    Freed,
    Held,
    Line,
    Planned,
    Purpose,
    Replanned,
    Settled,
)

MAY_OPEN: Mapping[str, Purpose] = {"generate": "target"}
"""Lines that a move may open: of work that the plan had not said, or that nothing was known of, when it was locked."""


def require_lines(lines: Sequence[Line], ceiling: int, book: Book) -> None:
    """Let only lines pass that can be a plan's.

    Raises:
        InvalidInput: a line is there twice, or they do not sum to exactly the ceiling, or arms of a comparison differ.
        ReplanError: nothing is set aside for confirmation.
    """
    unit = book.unit
    names = [line.line for line in lines]
    if len(set(names)) != len(names):
        raise InvalidInput("a line is there twice", field="lines", value=names, rule="each line once")
    total = sum(line.planned for line in lines)
    if total != ceiling:
        raise InvalidInput(
            f"the lines sum to {shown(total, unit)}, and the allocation is {shown(ceiling, unit)}",
            field="lines",
            value=shown(total, unit),
            rule=f"exactly {shown(ceiling, unit)}",
        )
    for line in lines:
        if line.arms is not None and len(set(line.arms.values())) > 1:
            arms = ", ".join(f"{arm} {shown(amount, unit)}" for arm, amount in line.arms.items())
            raise InvalidInput(
                f"{line.line} compares at equal budget, and its arms differ: {arms}",
                field=line.line,
                rule="the same for each arm, or no claim of equal budgets",
            )
    if ceiling > 0 and not any(line.purpose in RESERVES and line.planned > 0 for line in lines):
        raise ReplanError(
            "nothing is kept to reproduce the final result",
            field="lines",
            rule="a reserve for confirmation or recovery above 0",
        )


def plan(book: Book, planned: Planned) -> Planned | None:
    """Set an experiment's lines aside; None if that was done before: only a replan changes them.

    Raises:
        InvalidInput: the lines do not sum to the ceiling, or are otherwise no plan.
        ReplanError: nothing is set aside for confirmation.
    """
    if planned.experiment in book.allocations:
        return None
    require_lines(planned.lines, planned.ceiling, book)
    return planned


def replan(
    book: Book,
    experiment: str,
    lines: Sequence[Line],
    *,
    ceiling: int,
    rates: Mapping[str, int] | None = None,
    reason: str,
    person: str,
    scripted: bool = False,
) -> Replanned | None:
    """Move the ceiling, or money between lines; None if that is how it stands already.

    Everything that was attempted counts: no purpose may be planned below what it has settled and reserved.

    Raises:
        NotFoundError: the experiment has no budget here.
        CancelledError: the experiment was ended for good.
        InvalidInput: the lines do not sum to the ceiling, arms of a comparison differ, or a value is none that can be.
        ReplanError: a line lies below what is spent, or nothing is left for confirmation.
    """
    allocation = running(book, experiment)
    seen = {**allocation.rates, **(rates or {})}
    as_it_is = (allocation.ceiling, allocation.rates, tuple(allocation.lines.values()))
    if as_it_is == (ceiling, seen, tuple(lines)):
        return None
    require_lines(lines, ceiling, book)
    trial = allocation.copy()
    trial.ceiling, trial.lines = ceiling, {line.line: line for line in lines}
    if trial.needs_replan:
        raise ReplanError(
            f"these lines leave {shown(trial.overrun(), book.unit)} uncovered that is spent or reserved already",
            field="lines",
            rule="every attempt counts: no purpose is planned below its settled and reserved",
            remedy=f"raykit budget show {experiment}",
        )
    with as_input():
        return Replanned(
            experiment=experiment,
            ceiling=ceiling,
            lines=tuple(lines),
            rates=seen,
            reason=reason,
            person=person,
            scripted=scripted,
        )


def moved(
    allocation: Allocation, moves: Iterable[tuple[str, str, int]], *, ceiling: int | None = None
) -> list[Line]:
    """The lines after money was moved `(from, to, amount)`; a change of the ceiling is taken by `recovery`.

    Money for work that has no line yet opens one, if it is of a kind that may come later: `MAY_OPEN`.

    Raises:
        InvalidInput: there is no such line, a line would fall below 0, or arms of a comparison would differ.
    """
    moves = tuple(moves)
    lines = with_lines(allocation, [target for _, target, _ in moves])
    amounts = {name: line.planned for name, line in lines.items()}
    changes = [
        (name, each)
        for source, target, amount in moves
        for name, each in ((source, -amount), (target, amount))
    ]
    if ceiling is not None and ceiling != allocation.ceiling:
        changes.append((RECOVERY, ceiling - allocation.ceiling))
    for name, change in changes:
        if name not in amounts:
            raise InvalidInput(
                f"there is no line {name}", field="line", value=name, rule=", ".join(sorted(amounts))
            )
        amounts[name] += change
    short = [name for name, amount in amounts.items() if amount < 0]
    if short:
        raise InvalidInput(
            f"{', '.join(short)} would fall below 0",
            field="line",
            value=", ".join(short),
            rule="a line holds at least what is taken",
        )
    return [resized(line, amounts[name]) for name, line in lines.items()]


def with_lines(allocation: Allocation, wanted: Iterable[str]) -> dict[str, Line]:
    """The lines of a budget, with one of 0 for each wanted kind of work that may come later and has none."""
    new = {name for name in wanted if name in MAY_OPEN and name not in allocation.lines}
    if not new:
        return dict(allocation.lines)
    opened = {name: Line(line=name, purpose=MAY_OPEN[name], planned=0) for name in sorted(new)}
    kept = {name: line for name, line in allocation.lines.items() if line.purpose in RESERVES}
    work = {name: line for name, line in allocation.lines.items() if name not in kept}
    return {**work, **opened, **kept}


def approve_plan(
    book: Book,
    experiment: str,
    *,
    covers: int,
    projection: str,
    person: str,
    reason: str | None = None,
    scripted: bool = False,
) -> Approved | None:
    """Let one plan come to `covers`; None if it may already.

    Raises:
        NotFoundError: the experiment has no budget here.
        CancelledError: the experiment was ended for good.
        ApprovalError: the amount is above the plan's own ceiling.
        InvalidInput: the amount is negative, or nobody is named.
    """
    allocation = running(book, experiment)
    if covers > allocation.ceiling:
        raise ApprovalError(
            f"{experiment} asks for {shown(allocation.ceiling, book.unit)}, not {shown(covers, book.unit)}",
            field="AMOUNT",
            rule=f"at most {shown(allocation.ceiling, book.unit)}",
            remedy=f"raykit budget replan {experiment} --ceiling {plain(covers)} --reason ... --by NAME",
        )
    known = book.approvals.get((experiment, projection))
    if known is not None and known.covers == covers:
        return None
    with as_input():
        return Approved(
            scope="plan",
            covers=covers,
            experiment=experiment,
            projection=projection,
            person=person,
            reason=reason,
            scripted=scripted,
        )


def approve_account(
    book: Book, *, covers: int, person: str, reason: str | None = None, scripted: bool = False
) -> Approved | None:
    """Let the account come to `covers`; None if that is its figure already.

    Raises:
        ApprovalError: more than everything that is planned; alternatives for one decision share, they never add.
        InvalidInput: the amount is negative, or nobody is named.
    """
    if book.figure == covers:
        return None
    largest = most_planned(book)
    if covers > largest:
        raise ApprovalError(
            f"nothing that is planned comes to {shown(covers, book.unit)}: plans for one decision are alternatives, "
            f"and all decisions together come to {shown(largest, book.unit)}",
            field="AMOUNT",
            rule=f"at most {shown(largest, book.unit)}",
        )
    with as_input():
        return Approved(scope="account", covers=covers, person=person, reason=reason, scripted=scripted)


def most_planned(book: Book) -> int:
    """What all plans together may come to: the largest of each decision's, since alternatives never add."""
    by_decision: dict[str, int] = {}
    for allocation in book.allocations.values():
        decision = allocation.planned.decision
        most = allocation.charged if allocation.closed else allocation.ceiling
        by_decision[decision] = max(by_decision.get(decision, 0), most)
    return max(sum(by_decision.values()), book.charged)


def settle_by_hand(book: Book, lease: str, *, cost: int, how: str, person: str) -> Settled | Corrected | None:
    """What a lease really cost, in the words of a person; None if that is what it costs already.

    Raises:
        NotFoundError: there is no such lease.
        InvalidInput: the cost is negative or huge, or nobody says how it is known.
    """
    held = book.leases.get(lease)
    if held is None:
        known = ", ".join(each.reserved.lease for each in book.open_leases()) or "none is open"
        raise NotFoundError(f"there is no lease {lease}", field="LEASE", value=lease, rule=known)
    if held.cost == cost:
        return None
    with as_input():
        if not held.open:
            return Corrected(lease=lease, cost=cost, reason=how, person=person)
        terms = held.reserved.terms
        paid_ms = affordable_ms(cost - terms.fixed, terms.accelerators, terms.rate)
        time_ms = held.time_ms if paid_ms is None else min(held.time_ms, paid_ms)
        return Settled(lease=lease, cost=cost, time_ms=time_ms, reason="killed", how=how, person=person)


# --- ends, and machines that nobody works on ----------------------------------------------------------------


def close(book: Book, experiment: str, *, reason: str, person: str) -> Closed | None:
    """End an experiment's part of the account for good; None if it has ended. What it has spent stays spent.

    Raises:
        NotFoundError: the experiment has no budget here.
        InvalidInput: the reason is empty.
    """
    if allocation_of(book, experiment).closed:
        return None
    with as_input():
        return Closed(experiment=experiment, reason=reason, person=person)


def hold(book: Book, experiment: str, pool: str, *, accelerators: int, rate: int) -> Held | None:
    """Machines of a pool are billed from now on though nobody works on them; None if that is known.

    Raises:
        NotFoundError: the experiment has no budget here.
        InvalidInput: an amount is negative or huge.
    """
    allocation_of(book, experiment)
    if (experiment, pool) in book.held:
        return None
    with as_input():
        return Held(experiment=experiment, pool=pool, accelerators=accelerators, rate=rate)


def free(book: Book, experiment: str, pool: str, *, how: str, now: float) -> Freed | None:
    """Machines that nobody worked on are given back, or work again; None if none were held.

    Raises:
        InvalidInput: the words are empty.
    """
    if (experiment, pool) not in book.held:
        return None
    with as_input():
        return Freed(experiment=experiment, pool=pool, cost=book.idle_cost(now, experiment, pool), how=how)


__all__ = [
    "allocation_of",
    "approve_account",
    "approve_plan",
    "close",
    "free",
    "hold",
    "most_planned",
    "moved",
    "plan",
    "replan",
    "require_lines",
    "settle_by_hand",
    "with_lines",
]
