"""What a run's cost is worked out from: rates as they are known now, and times as they were measured.

Where a run of this experiment has been measured, set-up, update, save and loss window are its own; where none has,
they are guesses, and the sizing says that it is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from raykit.budget.amounts import HOUR_MS, micros
from raykit.budget.book import Book
from raykit.budget.lines import FOREVER_MS, guessed_wall_ms
from raykit.budget.worst import Sizing
from raykit.plan import Plan
from raykit.read.rows import RowTable
from raykit.records import MICRO, AttemptStarted, Commit, Launched, Row, RunEntry, Segment, Unit
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog

GUESSED_SETUP_MS = 60_000
GUESSED_WINDOW_MS = 60_000
GUESSED_DRAIN_MS = 30_000
LEAST_SETUP_MS = 10_000
"""What any start takes: where only the money bounds a run, nothing more is asked of it."""
LEAST_DRAIN_MS = 8_000
"""What ends beside the save: the gang, and the launch's last words."""

HEADROOM_PERCENT = 50
"""How much longer than measured a set-up may take, and a run without a wall cap of its own."""

RECENT_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the log and the rows of a run say of its times."""

    setup_ms: int
    update_ms: float
    save_ms: int
    update: int


def sizing_of(
    store: ObjectStore, plan: Plan, *, book: Book | None, run: str = "main", ceiling: int | None = None
) -> Sizing:
    """What a run of this plan costs to size, for the whole of it: what it has spent is for the ledger to say.

    `ceiling` is one that is only thought of; otherwise it is the ledger's, or the plan's.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
        CorruptError: the run's log or rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    return sized(plan, measure(store, plan.name, run), book, ceiling=ceiling)


def sized(plan: Plan, found: Measured | None, book: Book | None, *, ceiling: int | None = None) -> Sizing:
    """What a run of this plan costs to size, given what was measured of it, if anything was.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
    """
    run_plan = plan.run
    setup_ms, window_ms, drain_ms = GUESSED_SETUP_MS, GUESSED_WINDOW_MS, GUESSED_DRAIN_MS
    if found is None and run_plan.wall_h is None:
        setup_ms, drain_ms = LEAST_SETUP_MS, LEAST_DRAIN_MS
    if found is not None:
        setup_ms = found.setup_ms * (100 + HEADROOM_PERCENT) // 100
        window_ms = int(run_plan.checkpoint_every * found.update_ms) + found.save_ms
        drain_ms = LEAST_DRAIN_MS + 2 * found.save_ms + int(2 * found.update_ms)
    if run_plan.loss_window_min is not None:
        window_ms = int(run_plan.loss_window_min * 60_000)
    rate, source = rate_of(plan, book)
    known = None if book is None else book.allocations.get(plan.name)
    if ceiling is None:
        ceiling = ceiling_of(plan) if known is None else known.ceiling
    sizing = Sizing(
        accelerators=accelerators_of(plan),
        rate=rate,
        source=source,
        margin_permille=1000 if plan.budget is None else round(plan.budget.margin * 1000),
        wall_ms=0,
        attempts=run_plan.attempts,
        setup_ms=setup_ms,
        window_ms=window_ms,
        drain_ms=drain_ms,
        capped=run_plan.wall_h is not None,
        uncertain=found is None,
    )
    return replace(sizing, wall_ms=_wall_ms(plan, sizing, found, ceiling))


def expected_wall_ms(plan: Plan, found: Measured | None) -> int | None:
    """How long the updates of the whole run are expected to take; None if nothing is known."""
    return None if found is None else int(plan.run.updates * found.update_ms)


def _wall_ms(plan: Plan, sizing: Sizing, found: Measured | None, ceiling: int) -> int:
    if plan.run.wall_h is not None:
        return int(plan.run.wall_h * HOUR_MS)
    if sizing.rate == 0 or plan.budget is None:
        return FOREVER_MS
    expected_ms = expected_wall_ms(plan, found)
    if expected_ms is not None:
        return expected_ms * (100 + HEADROOM_PERCENT) // 100
    return guessed_wall_ms(ceiling=ceiling, train=sizing, set_aside=set_aside(plan))


# --- what a plan says of money ------------------------------------------------------------------------------


def unit_of(plan: Plan) -> Unit:
    """The unit that the plan's budget is in."""
    budget = plan.budget
    return "accelerator-hours" if budget is not None and budget.accelerator_hours is not None else "usd"


def ceiling_of(plan: Plan) -> int:
    """The plan's ceiling in micro-units; 0 if it has none, which is enough for work that costs nothing."""
    return 0 if plan.budget is None else micros(plan.budget.ceiling, field="budget")


def fixed_of(plan: Plan) -> dict[str, int]:
    """The plan's fixed costs in micro-units, by line."""
    if plan.budget is None:
        return {}
    return {
        name: micros(amount, field=f"budget.fixed_usd.{name}")
        for name, amount in plan.budget.fixed_usd.items()
    }


def scratch_of(plan: Plan) -> int:
    """The plan's allowance for debugging, in micro-units."""
    scratch = None if plan.budget is None else plan.budget.scratch_usd
    return 0 if scratch is None else micros(scratch, field="budget.scratch_usd")


def set_aside(plan: Plan) -> int:
    """What of the ceiling is not for the run: fixed costs and scratch."""
    return sum(fixed_of(plan).values()) + scratch_of(plan)


def accelerators_of(plan: Plan) -> int:
    """How many accelerators the training gang holds; on this machine's own CPUs, each rank counts as one."""
    pool = plan.pools.get("train")
    return plan.run.workers if pool is None or pool.gpus == 0 else pool.gpus


def rate_of(plan: Plan, book: Book | None) -> tuple[int, str]:
    """Micro-units for an accelerator-hour of training, and where that comes from: the newest that was recorded."""
    pool = plan.pools.get("train")
    if pool is None:
        return 0, "this machine's own CPUs: not billed"
    if plan.budget is not None and plan.budget.accelerator_hours is not None:
        return MICRO, "accelerator-hours"
    known = None if book is None else book.rates.get("train")
    if known is not None:
        return known.rate, f"{known.source}, {known.on}"
    price = pool.usd_per_hour
    assert price is not None
    return micros(price.rate, field="pools.train.usd_per_hour"), price.source


# --- what was measured --------------------------------------------------------------------------------------


def measure(store: ObjectStore, experiment: str, run: str = "main") -> Measured | None:
    """The times of the newest attempt that has trained and saved; None if none has.

    Raises:
        CorruptError: the run's log or rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    log = RunLog(store, experiment, run, by="reader")
    log.refresh()
    state = log.state
    rows = RowTable(store, state.events, "train", Row).tail(RECENT_ROWS)
    if len(rows) < 2:
        return None
    attempt = rows[-1].attempt
    own = [row for row in rows if row.attempt == attempt]
    saves = [int(commit.save_s * 1000) for commit in state.commits]
    if len(own) < 2 or not saves:
        return None
    return Measured(
        setup_ms=_setup_ms(log.entries, attempt, own),
        update_ms=(own[-1].elapsed_s - own[0].elapsed_s) * 1000 / (own[-1].update - own[0].update),
        save_ms=int(median(saves)),
        update=own[-1].update,
    )


def _setup_ms(entries: Sequence[RunEntry], attempt: int, rows: Sequence[Row]) -> int:
    """From the launch to the first update, as far as the log can tell: its first rows arrive a flush later."""
    launched_at, begun, first_at = 0.0, False, None
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Launched) and not begun:
                launched_at = entry.at
            elif isinstance(event, AttemptStarted) and event.attempt == attempt:
                begun = True
            elif begun and first_at is None and _is_first(event, attempt):
                first_at = entry.at
    if first_at is None:
        return GUESSED_SETUP_MS
    return max(1000, int((first_at - launched_at) * 1000))


def _is_first(event: object, attempt: int) -> bool:
    return isinstance(event, Segment | Commit) and event.attempt == attempt
