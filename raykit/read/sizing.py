"""What a run's cost is worked out from: rates as they are known now, and times as they were measured.

Where a run of this experiment has been measured, set-up, update, save and loss window are its own; where none has,
they are guesses, and the sizing says that it is uncertain. What people have measured elsewhere and told goes before
what the log shows, and is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from raykit.budget.amounts import HOUR_MS, micros, shown, time_cost
from raykit.budget.book import Book
from raykit.budget.lines import FOREVER_MS, guessed_wall_ms, plan_lines
from raykit.budget.worst import Sizing, worst_ms
from raykit.errors import BudgetError, InvalidInput, PlanError
from raykit.plan import LockedBase, Plan, Pool
from raykit.read.rows import RowTable
from raykit.records import (
    LARGEST,
    MICRO,
    AttemptStarted,
    Commit,
    Launched,
    Line,
    Measured,
    Purpose,
    Row,
    RunEntry,
    Segment,
    Unit,
)
from raykit.replays import BEYOND
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import read_acts

GUESSED_SETUP_MS = 60_000
GUESSED_WINDOW_MS = 60_000
GUESSED_DRAIN_MS = 30_000
GUESSED_SAVE_MS = 30_000
LEAST_SETUP_MS = 10_000
"""What any start takes: where only the money bounds a run, nothing more is asked of it."""
LEAST_DRAIN_MS = 8_000
"""What ends beside the save: the gang, and the launch's last words."""

HEADROOM_PERCENT = 50
"""How much longer than measured a set-up may take, and a run without a wall cap of its own."""

RECENT_ROWS = 200
CENT = MICRO // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What the log and the rows of a run say of its times."""

    setup_ms: int
    update_ms: float
    save_ms: int
    update: int


Told = Mapping[str, Measured]
"""By what was measured: what people have told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """All that is known of the times of a plan's work."""

    run: Times | None = None
    """Of its own run, or else of the one that trained its base."""
    told: Told = field(default_factory=dict)

    @property
    def update_ms(self) -> float | None:
        """How long one update takes."""
        if "update" in self.told:
            return self.told["update"].time_ms / self.told["update"].units
        return None if self.run is None else self.run.update_ms

    @property
    def save_ms(self) -> int | None:
        """How long a save takes."""
        if "save" in self.told:
            return self.told["save"].time_ms // self.told["save"].units
        return None if self.run is None else self.run.save_ms

    @property
    def nothing(self) -> bool:
        """Nothing was measured that says how long the run takes."""
        return self.run is None and "update" not in self.told


def sizing_of(
    store: ObjectStore,
    plan: Plan,
    *,
    book: Book | None,
    base: LockedBase | None = None,
    run: str = "main",
    ceiling: int | None = None,
) -> Sizing:
    """What a run of this plan costs to size, for the whole of it: what it has spent is for the ledger to say.

    `ceiling` is one that is only thought of; otherwise it is the ledger's, or the plan's.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
        CorruptError: the run's log or rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    return sized(plan, known_of(store, plan, base=base_experiment(base), run=run), book, ceiling=ceiling)


def known_of(store: ObjectStore, plan: Plan, *, base: str | None = None, run: str = "main") -> Known:
    """What is known of the times of a plan: of its own run, else of `base`, the experiment that trained its base.

    Raises:
        CorruptError: a log or rows are damaged.
        StoreUnavailableError: the store did not answer.
    """
    told: dict[str, Measured] = {}
    for name in (base, plan.name):
        if name is not None:
            found = (event for event in read_acts(store, name).learned if isinstance(event, Measured))
            told |= {event.what: event for event in found}
    times = measure(store, plan.name, run)
    return Known(run=times or (measure(store, base) if base is not None else None), told=told)


def sized(plan: Plan, known: Known, book: Book | None, *, ceiling: int | None = None) -> Sizing:
    """What a run of this plan costs to size, given what is known of its times.

    Raises:
        BudgetError: the ceiling does not even pay for set-up and drain.
    """
    allocation = None if book is None else book.allocations.get(plan.name)
    if ceiling is None:
        ceiling = ceiling_of(plan) if allocation is None else allocation.ceiling
    try:
        return _sized(plan, known, book, ceiling)
    except BudgetError as error:
        if allocation is not None:
            raise
        raise _at_least(error, plan, known, book) from error


def _sized(plan: Plan, known: Known, book: Book | None, ceiling: int) -> Sizing:
    run_plan, found, update_ms, save_ms = plan.run, known.run, known.update_ms, known.save_ms
    setup_ms, window_ms, drain_ms = GUESSED_SETUP_MS, GUESSED_WINDOW_MS, GUESSED_DRAIN_MS
    if found is None and run_plan.wall_h is None:
        setup_ms, drain_ms = LEAST_SETUP_MS, LEAST_DRAIN_MS
    if found is not None:
        setup_ms = found.setup_ms * (100 + HEADROOM_PERCENT) // 100
    if update_ms is not None:
        each_ms = GUESSED_SAVE_MS if save_ms is None else save_ms
        window_ms = int(run_plan.checkpoint_every * update_ms) + each_ms
        drain_ms = LEAST_DRAIN_MS + 2 * each_ms + int(2 * update_ms)
    setup_ms = known.told["setup"].time_ms if "setup" in known.told else setup_ms
    drain_ms = known.told["drain"].time_ms if "drain" in known.told else drain_ms
    if run_plan.loss_window_min is not None:
        window_ms = int(run_plan.loss_window_min * 60_000)
    rate, source = rate_of(plan, book)
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
        replay_ms=_replay_ms(plan, setup_ms=setup_ms, window_ms=window_ms, update_ms=update_ms),
        capped=run_plan.wall_h is not None,
        uncertain=known.nothing,
        rows=1 if plan.search is None else plan.search.rows,
    )
    return replace(sizing, wall_ms=_wall_ms(plan, sizing, known, book, ceiling))


def _replay_ms(plan: Plan, *, setup_ms: int, window_ms: int, update_ms: float | None) -> int:
    """How long the gang may be at the replay that it makes at the end: from one checkpoint to the next, once set up."""
    run = plan.run
    if run.replay != "end" or run.needed != "exact" or plan.search is not None:
        return 0
    if update_ms is None:
        return 0 if run.wall_h is None else setup_ms + window_ms  # uncapped, only the money bounds it
    updates = min(run.updates, run.checkpoint_every + BEYOND)
    return setup_ms + int(updates * update_ms) * (100 + HEADROOM_PERCENT) // 100


def base_experiment(base: LockedBase | None) -> str | None:
    """The experiment whose times say something about a plan that starts from `base`."""
    return None if base is None or base.origin == "adopted" else base.experiment


def expected_wall_ms(plan: Plan, known: Known) -> int | None:
    """How long the updates of the whole run, or of one row, are expected to take; None if nothing is known."""
    return None if known.update_ms is None else int(plan.run.updates * known.update_ms)


def _wall_ms(plan: Plan, sizing: Sizing, known: Known, book: Book | None, ceiling: int) -> int:
    if plan.run.wall_h is not None:
        return int(plan.run.wall_h * HOUR_MS)
    if sizing.rate == 0 or plan.budget is None:
        return FOREVER_MS
    expected_ms = expected_wall_ms(plan, known)
    if expected_ms is not None:
        return expected_ms * (100 + HEADROOM_PERCENT) // 100
    aside = set_aside(plan)
    return guessed_wall_ms(
        ceiling=ceiling, train=sizing, set_aside=aside + _beside(plan, sizing, book, ceiling - aside)
    )


def _beside(plan: Plan, train: Sizing, book: Book | None, money: int) -> int:
    """What of the money for a run and its confirmation goes to the QC pool that stays as long as the run."""
    if plan.qc is None or "qc" not in plan.pools:
        return 0
    per_hour, _ = rate_of(plan, book, "qc")
    beside = waves_of(plan) * per_hour * accelerators_of(plan, "qc")
    gangs = (train.rows + 1) * train.rate * train.accelerators
    return max(0, money) * beside // (gangs + beside)


# --- the work around the run --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """One kind of work around the run: gates, QC, a synthetic set, a comparison."""

    line: str
    pool: str
    purpose: Purpose
    time_ms: int
    accelerators: int
    rate: int
    margin_permille: int
    uncertain: bool

    @property
    def worst(self) -> int:
        """What it may cost, at the margin."""
        return time_cost(self.time_ms, self.accelerators, self.rate, margin_permille=self.margin_permille)

    @property
    def expected(self) -> int:
        """What it is expected to cost."""
        return time_cost(self.time_ms, self.accelerators, self.rate)


def work_around(plan: Plan, known: Known, book: Book | None, train: Sizing) -> tuple[Around, ...]:
    """The work around the run that is paid for, as far as its time is known or can be bounded.

    QC and synthetic sets have a line even where their pool is not billed: no worker starts without a lease on one. A QC
    pool stays as long as the run may; a synthetic set takes what its plan caps it at. What was measured goes before
    both. A billed set that is neither capped nor measured has no line: the review asks for one.
    """
    told = known.told
    found: list[Around] = []

    def add(
        line: str, pool: str, purpose: Purpose, time_ms: int, *, uncertain: bool, free: bool = False
    ) -> None:
        rate, _ = rate_of(plan, book, pool)
        accelerators = accelerators_of(plan, pool)
        if accelerators and (free or (rate and time_ms)):
            found.append(
                Around(
                    line=line,
                    pool=pool,
                    purpose=purpose,
                    time_ms=time_ms,
                    accelerators=accelerators,
                    rate=rate,
                    margin_permille=train.margin_permille,
                    uncertain=uncertain,
                )
            )

    if "gates" in told:
        add("gates", told["gates"].pool, "overhead", told["gates"].time_ms, uncertain=False)
    if plan.qc is not None:
        measured = told.get("qc")
        held_ms = waves_of(plan) * worst_ms(train) if measured is None else measured.time_ms
        billed = "qc" in plan.pools
        add("qc", "qc", "overhead", held_ms, uncertain=billed and measured is None, free=not billed)
    if plan.generate:
        measured, billed = told.get("generate"), "generate" in plan.pools
        capped = [target.wall_h for target in plan.generate.values() if target.wall_h is not None]
        held_ms = sum(int(wall_h * HOUR_MS) + train.setup_ms for wall_h in capped)
        held_ms = held_ms if measured is None else measured.time_ms
        unknown = billed and measured is None
        add("generate", "generate", "target", held_ms, uncertain=unknown, free=not billed)
    if "compare" in told:
        add("compare", told["compare"].pool, "comparison", told["compare"].time_ms, uncertain=False)
    return tuple(found)


def lines_of(plan: Plan, known: Known, book: Book | None, train: Sizing) -> tuple[Line, ...]:
    """The lines that the plan's ceiling is set aside in.

    Raises:
        BudgetError: they do not fit under it; the message says what would do.
    """
    try:
        return _lines(plan, known, book, train, ceiling_of(plan))
    except BudgetError as error:
        raise _at_least(error, plan, known, book) from error


def least_ceiling(plan: Plan, known: Known, book: Book | None) -> int | None:
    """The lowest ceiling that the plan's lines fit under; None if no record holds it.

    Where nothing says how long the run takes, what it is given grows with the ceiling, and so does the sum of the
    lines: so this is looked for, and what is found has been tried. It is whole cents then, since it is a guess.
    """
    step = CENT if known.nothing and plan.run.wall_h is None else 1
    low, high, most = 0, 1, LARGEST // step
    while not _fits(plan, known, book, high * step):
        if high == most:
            return None
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(plan, known, book, middle * step) else (middle, high)
    return high * step


def _fits(plan: Plan, known: Known, book: Book | None, ceiling: int) -> bool:
    try:
        train = _sized(plan, known, book, ceiling)
        if any(each.worst > LARGEST for each in work_around(plan, known, book, train)):
            return False
        _lines(plan, known, book, train, ceiling)
    except BudgetError:
        return False
    return True


def _at_least(error: BudgetError, plan: Plan, known: Known, book: Book | None) -> BudgetError:
    """The same refusal; it names the ceiling that would do."""
    least = least_ceiling(plan, known, book)
    rule = error.rule if least is None else f"{error.rule}: at least {shown(least, unit_of(plan))}"
    return BudgetError(error.message, field=error.field, value=error.value, rule=rule, remedy=error.remedy)


def _lines(plan: Plan, known: Known, book: Book | None, train: Sizing, ceiling: int) -> tuple[Line, ...]:
    around = work_around(plan, known, book, train)
    return plan_lines(
        ceiling=ceiling,
        train=train,
        fixed=fixed_of(plan),
        scratch=scratch_of(plan),
        work=[Line(line=each.line, purpose=each.purpose, planned=each.worst) for each in around],
        unit=unit_of(plan),
    )


# --- what a plan says of money ------------------------------------------------------------------------------


def unit_of(plan: Plan) -> Unit:
    """The unit that the plan's budget is in."""
    budget = plan.budget
    return "accelerator-hours" if budget is not None and budget.accelerator_hours is not None else "usd"


def ceiling_of(plan: Plan) -> int:
    """The plan's ceiling in micro-units; 0 if it has none, which is enough for work that costs nothing."""
    return 0 if plan.budget is None else _amount(plan.budget.ceiling, field=ceiling_key(plan))


def ceiling_key(plan: Plan) -> str:
    """Where the plan says its ceiling."""
    hours = plan.budget is not None and plan.budget.ceiling_usd is None
    return "budget.accelerator_hours" if hours else "budget.ceiling_usd"


def fixed_of(plan: Plan) -> dict[str, int]:
    """The plan's fixed costs in micro-units, by line."""
    if plan.budget is None:
        return {}
    return {
        name: _amount(amount, field=f"budget.fixed_usd.{name}")
        for name, amount in plan.budget.fixed_usd.items()
    }


def scratch_of(plan: Plan) -> int:
    """The plan's allowance for debugging, in micro-units."""
    scratch = None if plan.budget is None else plan.budget.scratch_usd
    return 0 if scratch is None else _amount(scratch, field="budget.scratch_usd")


def _amount(value: float | int, *, field: str) -> int:
    """An amount of the plan in micro-units; one that no record holds is a finding about the plan."""
    try:
        return micros(value, field=field)
    except InvalidInput as error:
        raise PlanError(
            error.message, field=field, value=error.value, rule=error.rule, remedy=error.remedy
        ) from error


def set_aside(plan: Plan) -> int:
    """What of the ceiling is not for the run: fixed costs and scratch."""
    return sum(fixed_of(plan).values()) + scratch_of(plan)


def accelerators_of(plan: Plan, pool: str = "train") -> int:
    """How many accelerators a pool holds; on this machine's own CPUs, each rank counts as one.

    The rows of a search share the training pool: these are the accelerators of one of them.
    """
    found = pool_of(plan, pool)
    if found is not None and found.gpus > 0:
        shared = 1 if pool != "train" or plan.search is None else plan.search.concurrent
        return max(1, found.gpus // shared)
    return plan.run.workers if pool == "train" else 1


def waves_of(plan: Plan) -> int:
    """How often the training pool is filled: once, and in a search once for so many rows as fit at once."""
    return 1 if plan.search is None else plan.search.waves


def rate_of(plan: Plan, book: Book | None, pool: str = "train") -> tuple[int, str]:
    """Micro-units for an accelerator-hour of a pool, and where that comes from: the newest that was recorded."""
    found = pool_of(plan, pool)
    if found is None:
        return 0, "this machine's own CPUs: not billed"
    if plan.budget is not None and plan.budget.accelerator_hours is not None:
        return MICRO, "accelerator-hours"
    known = None if book is None else book.rates.get(pool)
    if known is not None:
        return known.rate, f"{known.source}, {known.on}"
    price = found.usd_per_hour
    assert price is not None
    return _amount(price.rate, field=f"pools.{pool}.usd_per_hour"), price.source


def pool_of(plan: Plan, name: str) -> Pool | None:
    """The pool of that name; None if the plan has none."""
    return next((pool for known, pool in plan.pools.items() if known == name), None)


# --- what was measured --------------------------------------------------------------------------------------


def measure(store: ObjectStore, experiment: str, run: str = "main") -> Times | None:
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
    return Times(
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
