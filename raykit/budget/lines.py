"""How a plan's ceiling is set aside: what its work may cost, one run kept for confirmation, the rest for recovery.

Where a run of the same contract has been measured, or the plan caps its wall time, the lines are worst cases. Where
neither is known they are guesses, and the record says so: most of the ceiling for the run, as much for its
confirmation, and a tenth kept back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from raykit.budget.amounts import HOUR_MS, affordable_ms, as_input, plain, shown, time_cost
from raykit.budget.book import IDLE, Allocation
from raykit.budget.worst import (
    Past,
    Sizing,
    attempt_terms,
    wall_used_ms,
    worst_case,
    worst_ms,
    worst_of_rows,
    worst_of_starts,
)
from raykit.errors import BudgetError, InvalidInput, ReplanError
from raykit.records import Line, Terms, Unit

TRAIN, CONFIRMATION, RECOVERY, SCRATCH = "train", "confirmation", "recovery", "scratch"

FOREVER_MS = 24 * 365 * HOUR_MS
"""The wall cap of work that costs nothing and has no cap of its own."""

KEPT_PERMILLE = 100
"""What is kept back for recovery where the cost of the run is only guessed."""


def plan_lines(
    *,
    ceiling: int,
    train: Sizing,
    fixed: Mapping[str, int],
    scratch: int,
    work: Sequence[Line] = (),
    unit: Unit = "usd",
) -> tuple[Line, ...]:
    """The lines of a plan with its training and the `work` around it; they sum to the ceiling exactly.

    Of a search, every row of its table is trained, and one of them is kept for confirmation.

    Raises:
        BudgetError: the run, the work around it, its confirmation and what is fixed do not fit under the ceiling.
    """
    lines = [
        *work,
        *(Line(line=name, purpose="overhead", planned=amount) for name, amount in sorted(fixed.items())),
    ]
    if scratch:
        lines.append(Line(line=SCRATCH, purpose="scratch", planned=scratch))
    run, again = worst_of_rows(train), worst_case(train)
    rest = ceiling - sum(line.planned for line in lines) - run - again
    if rest < 0:
        raise _no_room(ceiling, train, lines, unit)
    return (
        Line(line=TRAIN, purpose="target", planned=run),
        *lines,
        Line(line=CONFIRMATION, purpose="confirmation", planned=again),
        Line(line=RECOVERY, purpose="recovery", planned=rest),
    )


def _no_room(ceiling: int, train: Sizing, lines: Sequence[Line], unit: Unit) -> BudgetError:
    """Why a plan does not fit under its ceiling, and what its sum is made of."""
    run, again, around = worst_of_rows(train), worst_case(train), sum(line.planned for line in lines)
    if train.open_ended and train.rate:
        return _no_room_beside(ceiling, run + again, lines, unit)
    rows = "the run" if train.rows == 1 else f"its {train.rows} rows"
    parts = f"{shown(run, unit)} for {rows}{_made_of(train, unit)}"
    if lines:
        names = ", ".join(f"{line.line} {shown(line.planned, unit)}" for line in lines)
        parts += f", {shown(around, unit)} for what is around it ({names})"
    whole = run + around
    before = f"this plan may cost {shown(whole, unit)} before anything is kept to confirm it"
    if whole <= ceiling:
        before = f"this plan may cost {shown(whole + again, unit)}"
        parts += f", and no room for the confirmation run, {shown(again, unit)}"
    return BudgetError(
        f"{before}, and its ceiling is {shown(ceiling, unit)}: {parts}",
        field="budget",
        value=shown(ceiling, unit),
        rule="the lines sum to the ceiling, with one run kept for confirmation",
        remedy="raise the ceiling, or shorten the run (run.wall_h, run.updates, run.attempts)"
        if train.rows == 1
        else "raise the ceiling, or search less (search.trials, search.repeats, run.wall_h, run.attempts)",
    )


def _no_room_beside(ceiling: int, runs: int, lines: Sequence[Line], unit: Unit) -> BudgetError:
    """Why what is around a run does not fit beside one that only the money bounds."""
    around = ", ".join(f"{line.line} {shown(line.planned, unit)}" for line in lines)
    return BudgetError(
        f"nothing says how long the run takes, so it and its confirmation may have {shown(runs, unit)} of the "
        f"{shown(ceiling, unit)}: {shown(ceiling - runs, unit)} is left for what is around it ({around})",
        field="budget",
        value=shown(ceiling, unit),
        rule="the lines sum to the ceiling, with one run kept for confirmation",
        remedy="raise the ceiling, or shorten what is around the run",
    )


def _made_of(train: Sizing, unit: Unit) -> str:
    """What the worst case of one run is made of, in words."""
    starts = worst_of_starts(train)
    if not starts:
        return ""
    each, work = "" if train.rows == 1 else "each ", shown(worst_case(train) - starts, unit)
    of = "1 attempt" if train.attempts == 1 else f"{train.attempts} attempts"
    parts = "set-up, lost work, replay and drain" if train.replay_ms else "set-up, lost work and drain"
    return f" ({each}{work} of work and {shown(starts, unit)} for {parts} of {of})"


def guessed_wall_ms(*, ceiling: int, train: Sizing, set_aside: int) -> int:
    """How long a ceiling can pay for a run of which nothing is known: a guess.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
    """
    for_work = _a_share(ceiling - set_aside, train)
    time_ms = affordable_ms(
        for_work - train.fixed, train.accelerators, train.rate, margin_permille=train.margin_permille
    )
    if time_ms is None:
        return FOREVER_MS
    _require_work(time_ms, train, for_work)
    return time_ms


def _a_share(money: int, train: Sizing) -> int:
    """What one run may take of money that has to pay for all rows and a confirmation."""
    return money * (1000 - KEPT_PERMILLE) // (1000 * (train.rows + 1))


def next_attempt(allocation: Allocation, train: Sizing, trial: str | None = None) -> Terms:
    """The terms of the next attempt. Without a wall cap it may use what its line has, and is paused there.

    Each `trial` of a search has a wall cap of its own.

    Raises:
        BudgetError: what is left does not pay for set-up and drain, or the wall cap is used up.
    """
    terms = attempt_terms(train, allocation.ended(TRAIN, trial))
    if train.capped and terms.wall_ms == 0:
        name = allocation.experiment if trial is None else f"{allocation.experiment}/{trial}"
        raise BudgetError(
            f"{name} has used its {train.wall_ms / HOUR_MS:g} h of productive time",
            field="run.wall_h",
            rule="counted over all attempts",
            remedy="raise run.wall_h in the plan, launch it, and replan what it costs",
        )
    if train.capped or train.rate == 0:
        return terms
    left = allocation.remaining(TRAIN)
    paid_ms = affordable_ms(
        left - terms.fixed, train.accelerators, train.rate, margin_permille=train.margin_permille
    )
    assert paid_ms is not None
    _require_work(paid_ms, train, left, name=allocation.experiment)
    return terms.model_copy(update={"time_ms": paid_ms})


def _worst_of_rest(train: Sizing, past: Sequence[Past]) -> int:
    """What a run with this `past` may still cost."""
    left = replace(
        train,
        wall_ms=max(0, train.wall_ms - wall_used_ms(train, past)),
        attempts=max(1, train.attempts - len(past)),
        fixed=0 if past else train.fixed,
    )
    return worst_case(left)


def _require_worth(allocation: Allocation, train: Sizing, run: int, ceiling: int, *, taken: int) -> None:
    """A replan that pays for no work is none. `taken` is what of the ceiling is not for the rest of the run."""
    least = time_cost(
        train.setup_ms + train.drain_ms,
        train.accelerators,
        train.rate,
        margin_permille=train.margin_permille,
    )
    if run > least or train.rate == 0:
        return
    name = allocation.experiment
    wanted = taken + -(-least * 1000 * (train.rows + 1) // (1000 - KEPT_PERMILLE))
    raise ReplanError(
        f"a ceiling of {shown(ceiling)} leaves {shown(run)} for the rest of {name}, "
        f"and set-up and drain alone may cost {shown(least)}",
        field="ceiling",
        value=shown(ceiling),
        rule=f"above {shown(wanted)}: nothing of this run has been measured yet",
        remedy=f"raykit budget replan {name} --ceiling {plain(2 * wanted)} --reason ... --by NAME",
    )


def _require_work(time_ms: int, train: Sizing, money: int, *, name: str | None = None) -> None:
    least_ms = train.setup_ms + train.drain_ms
    if time_ms >= least_ms:
        return
    of = "the ceiling leaves the run" if name is None else f"line {TRAIN} of {name} has"
    raise BudgetError(
        f"{of} {shown(money)}: that pays for {time_ms / 1000:g} s, "
        f"and set-up and drain alone take {least_ms / 1000:g} s",
        field="budget",
        rule="money that pays for work",
        remedy="raise the ceiling" if name is None else f"raykit budget replan {name} --reason ... --by NAME",
    )


def resized(line: Line, planned: int) -> Line:
    """The line with another amount. Arms that are compared at equal budget change alike, or the claim would be gone.

    Raises:
        InvalidInput: the amount does not divide among the arms.
    """
    if planned == line.planned:
        return line
    arms = None
    if line.arms is not None:
        each, rest = divmod(planned, len(line.arms))
        if rest:
            raise InvalidInput(
                f"{line.line} compares {len(line.arms)} arms at equal budget, and {shown(planned)} does not divide",
                field=line.line,
                value=shown(planned),
                rule="the same for each arm",
            )
        arms = dict.fromkeys(line.arms, each)
    with as_input():
        return Line(line=line.line, purpose=line.purpose, planned=planned, arms=arms)


def expected_cost(train: Sizing, expected_ms: int) -> int:
    """What the rows are expected to cost without any reserve: of each, one set-up, the work itself, and its replay.

    A run is not expected to go on after what caps it: its wall cap, or the money, which its set-up is paid from too.
    """
    held_ms = train.setup_ms + min(expected_ms, train.wall_ms) + train.replay_ms
    time_ms = min(held_ms, worst_ms(train))
    return train.rows * (time_cost(time_ms, train.accelerators, train.rate) + train.fixed)


def proposal(allocation: Allocation, train: Sizing, *, ceiling: int, unit: Unit = "usd") -> list[Line]:
    """The lines that pay for the rest of the run as it is known now; recovery gives or takes the difference.

    Raises:
        ReplanError: the ceiling does not reach; the message says what would.
    """
    trials: list[Sequence[Past]] = [past for (line, _), past in allocation.trials.items() if line == TRAIN]
    begun = trials or [allocation.ended(TRAIN)]
    used = allocation.used(TRAIN)
    kept = {
        name: max(line.planned, allocation.used(name))
        for name, line in allocation.lines.items()
        if name not in (TRAIN, CONFIRMATION, RECOVERY)
    }
    recovered = allocation.used(RECOVERY) + allocation.spent.get(IDLE, 0)
    again = worst_case(train)
    run = sum(_worst_of_rest(train, past) for past in begun) + (train.rows - len(begun)) * again
    if train.open_ended:
        free = ceiling - sum(kept.values()) - used - recovered
        again = _a_share(max(0, free), train)
        run = train.rows * again
        _require_worth(allocation, train, again, ceiling, taken=ceiling - free)
    wanted = {TRAIN: used + run, CONFIRMATION: again}
    needed = sum(wanted.values()) + sum(kept.values()) + recovered
    if needed > ceiling:
        name, all_in_all = allocation.experiment, shown(needed, unit)
        raise ReplanError(
            f"the rest of {name} may cost {shown(wanted[TRAIN] - used, unit)} and its confirmation "
            f"{shown(wanted[CONFIRMATION], unit)}: {all_in_all} in all, and the ceiling is {shown(ceiling, unit)}",
            field="ceiling",
            value=shown(ceiling, unit),
            rule=f"at least {all_in_all}",
            remedy=f"raykit budget replan {name} --ceiling {plain(needed)} --reason ... --by NAME",
        )
    amounts = {**kept, **wanted, RECOVERY: ceiling - needed + recovered}
    return [resized(line, amounts[name]) for name, line in allocation.lines.items()]
