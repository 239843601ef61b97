"""What a plan may cost, by its lines, and what each alternative would take, at the pace that is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from raykit.budget.amounts import HOUR_MS, shown, time_cost
from raykit.budget.book import Book
from raykit.budget.lines import CONFIRMATION, RECOVERY, SCRATCH, expected_cost
from raykit.budget.room import bound
from raykit.budget.worst import Sizing, worst_case, worst_ms, worst_of_rows, worst_of_starts
from raykit.errors import BudgetError, PlanError
from raykit.fleet.site import Site
from raykit.fleet.spending import account_now, draft_of
from raykit.plan import STARTS, Lock, Plan, RowChange, Start
from raykit.read.sizing import (
    Around,
    Known,
    accelerators_of,
    ceiling_of,
    expected_wall_ms,
    fixed_of,
    least_ceiling,
    pool_of,
    rate_of,
    sized,
    unit_of,
    waves_of,
    work_around,
)
from raykit.records import LARGEST, LONGEST_MS, Line
from raykit.review import Base, Measurement, Money, OptionCost
from raykit.store.log import RunLog

# --- what no record could hold ------------------------------------------------------------------------------


def require_sizes(plan: Plan, known: Known) -> None:
    """Let only a plan go on whose times and costs can be written down, before anything is worked out from them.

    Raises:
        PlanError: the updates at their pace, the wall cap with its attempts, or what they cost is beyond any record.
    """
    waves = waves_of(plan)
    updates_ms = waves * (expected_wall_ms(plan, known) or 0)
    if updates_ms > LONGEST_MS:
        pace = known.update_ms or 0
        raise _beyond(
            "run.updates",
            plan.run.updates,
            f"would take {_years(updates_ms)} years at {_seconds(pace)} s for each",
            f"at most {int(LONGEST_MS / (waves * pace)):,} at that pace",
            "raykit measured PLAN --what update --time-s T --units N --how ... --by NAME, if the pace is wrong",
        )
    wall_h = plan.run.wall_h
    if wall_h is not None and waves * wall_h * HOUR_MS > LONGEST_MS:
        most = f"at most {int(LONGEST_MS / HOUR_MS / waves):,} h"
        raise _beyond("run.wall_h", wall_h, "is longer than anything here may take", most)
    try:
        train = sized(plan, known, None)
    except BudgetError as error:
        most = f"at most {shown(LARGEST)} in all"
        if least_ceiling(plan, known, None) is None:
            raise _beyond("budget", shown(ceiling_of(plan)), f"has no room: {error.message}", most) from error
        return  # the ceiling bounds it, and is what is refused
    if train.rate and waves * worst_ms(train) > LONGEST_MS:
        most = f"{_years(LONGEST_MS)} years over all attempts"
        raise _beyond(
            "run.attempts", plan.run.attempts, f"may take {_years(waves * worst_ms(train))} years", most
        )
    for each in work_around(plan, known, None, train):
        if each.worst > LARGEST:
            raise _too_dear(f"pools.{each.pool}.usd_per_hour", each.rate, each.worst)
    if worst_of_rows(train) > LARGEST:
        raise _too_dear("pools.train.usd_per_hour", train.rate, worst_of_rows(train))


def require_options(plan: Plan, change: RowChange | None, options: Mapping[Start, OptionCost]) -> None:
    """The same for what each alternative would take: the whole run anew may be longer than the plan itself.

    Raises:
        PlanError: one of them is beyond any record.
    """
    for start, option in options.items():
        if (option.time_ms or 0) <= LONGEST_MS and (option.cost or 0) <= LARGEST:
            continue
        rows = "" if change is None else f" on {change.after:,} rows, after {change.before:,} before"
        raise _beyond(
            "data" if plan.data is not None else "run.updates",
            option.updates,
            f"{start}: {option.updates:,} updates{rows} would take {_years(option.time_ms or 0)} years",
            "rows and a pace that can be worked with",
            "raykit counted PLAN --source SOURCE --rows N --how ... --by NAME, if a count is wrong",
        )


def _years(time_ms: int) -> str:
    return f"{time_ms / (365 * 24 * HOUR_MS):,.0f}"


def _seconds(time_ms: float) -> str:
    return f"{time_ms / 1000:,.6f}".rstrip("0").rstrip(".")


def _too_dear(field: str, rate: int, worst: int) -> PlanError:
    problem = f"comes to {shown(worst)} at worst, at {shown(rate)} for an accelerator-hour"
    return _beyond(field, shown(rate), problem, f"at most {shown(LARGEST)} in all")


def _beyond(field: str, value: object, problem: str, rule: str, remedy: str | None = None) -> PlanError:
    return PlanError(f"{field} {problem}", field=field, value=value, rule=rule, remedy=remedy)


# --- what it may cost ---------------------------------------------------------------------------------------


def money_of(site: Site, lock: Lock, log: RunLog, known: Known) -> tuple[Book | None, Money]:
    """The plan's lines in the book of its account, and everything that they are worked out from.

    Without a book the plan does not fit under its ceiling, and the money says why, and what it comes to under the
    lowest ceiling that it would fit under.

    Raises:
        ApprovalError: the work is related to another account.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    plan = site.plan
    book: Book | None = None
    refusal: BudgetError | None = None
    planned: list[Line] = []
    try:
        book = draft_of(site, lock, log)
        train = sized(plan, known, book)
        planned = list(book.allocations[site.name].lines.values())
    except BudgetError as error:
        refusal = error
    account = book or account_now(site, lock)
    if refusal is not None:
        train = sized(plan, known, account, ceiling=least_ceiling(plan, known, account) or LARGEST)
    around = work_around(plan, known, account, train)
    wall_ms = expected_wall_ms(plan, known)
    work_ms = (0 if train.rate == 0 else train.wall_ms) if wall_ms is None else wall_ms
    unit, priced = unit_of(plan), frozenset(_priced(plan, account, train, around))
    kept = (CONFIRMATION, RECOVERY, SCRATCH)
    worst = sum(line.planned for line in planned if line.line not in kept)
    if refusal is not None:
        worst = worst_of_rows(train) + sum(each.worst for each in around) + sum(fixed_of(plan).values())
    return book, Money(
        unit=unit,
        ceiling=ceiling_of(plan) if book is None else book.allocations[site.name].ceiling,
        lines=tuple(planned),
        worst=worst,
        expected=expected_cost(train, work_ms) + sum(each.expected for each in around),
        expected_ms=0 if wall_ms is None else waves_of(plan) * wall_ms,
        uncertain=train.uncertain or any(each.uncertain for each in around),
        charged=account.charged + account.idle_cost(time.time()),
        account=site.name if account.opened is None else account.opened.account,
        account_ceiling=account.figure,
        rates=_rates(plan, account, unit),
        billed=bool(priced),
        priced=priced,
        run_worst=worst_case(train),
        starts_worst=worst_of_starts(train),
        refusal=None if refusal is None else refusal.message,
        refusal_rule=None if refusal is None else refusal.rule,
        refusal_remedy=None if refusal is None else refusal.remedy,
    )


def _priced(plan: Plan, book: Book | None, train: Sizing, around: Sequence[Around]) -> Iterator[str]:
    """The pools whose work is paid for, that of sets included whose time nobody knows yet."""
    if train.rate:
        yield "train"
    yield from (each.pool for each in around if each.rate)
    if plan.generate and rate_of(plan, book, "generate")[0]:
        yield "generate"


def _rates(plan: Plan, book: Book | None, unit: str) -> dict[str, str]:
    found = {}
    for pool in ("train", "qc", "generate", "search"):
        declared = pool_of(plan, pool)
        if pool == "train" or declared is not None:
            rate, source = rate_of(plan, book, pool)
            price = None if declared is None else declared.usd_per_hour
            billed = f", billed by the {price.billed}" if price is not None else ""
            found[pool] = source if rate == 0 else f"{shown(rate)} ({source}{billed})"
    return found


def costs_of(
    site: Site, known: Known, base: Base | None, change: RowChange | None
) -> dict[Start, OptionCost]:
    """What each option would take: updates at the pace that is known, without set-up, margin or reserve."""
    plan = site.plan
    if base is None:
        return {"fresh": _cost_of(plan, known, plan.run.updates)}
    growth = change.after / change.before if change is not None and change.before else 1.0
    whole = max(plan.run.updates, round(base.updates * growth))
    pilot = plan.run.updates if plan.base is not None and plan.base.start == "pilot" else _pilot_updates(plan)
    updates: dict[Start, int] = {
        "use": 0,
        "continue": plan.run.updates,
        "replay": plan.run.updates,
        "pilot": pilot,
        "fresh": whole,
    }
    return {start: _cost_of(plan, known, updates[start]) for start in STARTS}


def _pilot_updates(plan: Plan) -> int:
    """A pilot is a tenth of the run, and no shorter than one checkpoint."""
    return min(plan.run.updates, max(plan.run.checkpoint_every, plan.run.updates // 10))


def _cost_of(plan: Plan, known: Known, updates: int) -> OptionCost:
    if updates == 0:
        return OptionCost(updates=0, time_ms=0, accelerator_ms=0, cost=0)
    rate, _ = rate_of(plan, None)
    if known.update_ms is None:
        return OptionCost(updates=updates, time_ms=None, accelerator_ms=None, cost=None if rate else 0)
    time_ms, gang = int(updates * known.update_ms), accelerators_of(plan)
    rows = 1 if plan.search is None else plan.search.rows
    return OptionCost(
        updates=updates,
        time_ms=waves_of(plan) * time_ms,
        accelerator_ms=rows * time_ms * gang,
        cost=rows * time_cost(time_ms, gang, rate),
    )


def measurements(known: Known) -> Iterator[Measurement]:
    """What people have told of speeds."""
    for what, event in known.told.items():
        yield Measurement(what=what, time_ms=event.time_ms, units=event.units, how=event.how)


def promoted(site: Site, book: Book | None, projection: str | None) -> tuple[str, ...]:
    """Promotion thresholds are part of what an approval of this plan names."""
    if site.plan.comparison is None or book is None or projection is None:
        return ()
    if not bound(book, site.name, projection).approved:
        return ()
    return tuple(site.plan.comparison.promote)
