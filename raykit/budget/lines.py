"""How a plan's ceiling is set aside: what its work may cost, one run kept for confirmation, the rest for recovery.

Where a run of the same contract has been measured, or the plan caps its wall time, the lines are worst cases. Where
neither is known they are guesses, and the record says so: most of the ceiling for the run, as much for its
confirmation, and a tenth kept back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raykit.budget.amounts import HOUR_MS, affordable_ms, shown, time_cost
from raykit.budget.book import Allocation
from raykit.budget.worst import Sizing, wall_used_ms, worst_case
from raykit.errors import BudgetError, ReplanError
from raykit.records import Line, Unit

TRAIN, CONFIRMATION, RECOVERY, SCRATCH = "train", "confirmation", "recovery", "scratch"

FOREVER_MS = 24 * 365 * HOUR_MS
"""The wall cap of work that costs nothing and has no cap of its own."""

KEPT_PERMILLE = 100
"""What is kept back for recovery where the cost of the run is only guessed."""


def plan_lines(
    *, ceiling: int, train: Sizing, fixed: Mapping[str, int], scratch: int, unit: Unit = "usd"
) -> tuple[Line, ...]:
    """The lines of a plan with one training run; they sum to the ceiling exactly.

    Raises:
        BudgetError: the run, its confirmation and what is fixed do not fit under the ceiling.
    """
    lines = [Line(line=name, purpose="overhead", planned=amount) for name, amount in sorted(fixed.items())]
    if scratch:
        lines.append(Line(line=SCRATCH, purpose="scratch", planned=scratch))
    run = worst_case(train)
    rest = ceiling - sum(line.planned for line in lines) - 2 * run
    if rest < 0:
        taken = shown(ceiling - rest, unit)
        raise BudgetError(
            f"this plan may cost {taken}: {shown(run, unit)} for the run, as much kept to confirm it, and the rest "
            f"is fixed; its ceiling is {shown(ceiling, unit)}",
            field="budget",
            value=shown(ceiling, unit),
            rule="the lines sum to the ceiling, with one run kept for confirmation",
            remedy="raise the ceiling, or shorten the run (run.wall_h, run.updates, run.attempts)",
        )
    return (
        *(line for line in [Line(line=TRAIN, purpose="target", planned=run)]),
        *lines,
        Line(line=CONFIRMATION, purpose="confirmation", planned=run),
        Line(line=RECOVERY, purpose="recovery", planned=rest),
    )


def guessed_wall_ms(*, ceiling: int, train: Sizing, set_aside: int) -> int:
    """The wall cap that a ceiling can pay for, where nothing is known of the run: a guess.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
    """
    for_work = (ceiling - set_aside) * (1000 - KEPT_PERMILLE) // 2000
    time_ms = affordable_ms(
        for_work - train.fixed, train.accelerators, train.rate, margin_permille=train.margin_permille
    )
    if time_ms is None:
        return FOREVER_MS
    wall_ms = time_ms - train.attempts * train.overhead_ms
    if wall_ms <= 0:
        least = worst_case(replace(train, wall_ms=0))
        raise BudgetError(
            f"the ceiling leaves {shown(for_work)} for the run, and {train.attempts} attempts may cost "
            f"{shown(least)} for set-up, lost work and drain alone",
            field="budget",
            rule="a ceiling that pays for work",
            remedy="raise the ceiling, or lower run.attempts",
        )
    return wall_ms


def expected_cost(train: Sizing, expected_ms: int) -> int:
    """What the run is expected to cost without any reserve: one set-up and the work itself."""
    return time_cost(train.setup_ms + expected_ms, train.accelerators, train.rate) + train.fixed


def proposal(allocation: Allocation, train: Sizing, *, ceiling: int, unit: Unit = "usd") -> list[Line]:
    """The lines that pay for the rest of the run as it is known now; recovery gives or takes the difference.

    Raises:
        ReplanError: the ceiling does not reach; the message says what would.
    """
    past = allocation.past.get(TRAIN, [])
    left = replace(
        train,
        wall_ms=max(0, train.wall_ms - wall_used_ms(train, past)),
        attempts=max(1, train.attempts - len(past)),
        fixed=0 if past else train.fixed,
    )
    used = allocation.used(TRAIN)
    wanted = {TRAIN: used + worst_case(left), CONFIRMATION: worst_case(train)}
    kept = {
        name: max(line.planned, allocation.used(name))
        for name, line in allocation.lines.items()
        if name not in wanted and name != RECOVERY
    }
    idle = sum(amount for name, amount in allocation.spent.items() if name not in allocation.lines)
    needed = sum(wanted.values()) + sum(kept.values()) + idle + allocation.used(RECOVERY)
    if needed > ceiling:
        name, all_in_all = allocation.experiment, shown(needed, unit)
        raise ReplanError(
            f"the rest of {name} may cost {shown(wanted[TRAIN] - used, unit)} and its confirmation "
            f"{shown(wanted[CONFIRMATION], unit)}: {all_in_all} in all, and the ceiling is {shown(ceiling, unit)}",
            field="ceiling",
            value=shown(ceiling, unit),
            rule=f"at least {all_in_all}",
            remedy=f"raykit budget replan {name} --ceiling {all_in_all.replace(',', '')} --reason ...",
        )
    amounts = {**kept, **wanted, RECOVERY: ceiling - needed + allocation.used(RECOVERY)}
    lines = [
        line.model_copy(update={"planned": amounts[name]}) if line.planned != amounts[name] else line
        for name, line in allocation.lines.items()
    ]
    if idle:
        lines.append(Line(line="idle", purpose="overhead", planned=idle))
    return lines
