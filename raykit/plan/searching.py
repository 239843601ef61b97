"""Rules of `[search]`: a table of trials that can be filled, run and judged as it says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from raykit.ids import canonical
from raykit.plan.finding import Finding, Loc
from raykit.plan.model import Run
from raykit.plan.tables import Budget, Pool, Range, Repeats, Scheduler, Search, as_value

AT: Loc = ("search",)
WHOLE = 2**53
"""The largest whole number up to which a sampler can tell every one from the next."""
MOST_ROWS = 100_000
"""A table is one object that every reader of a search reads whole."""


def broken_search(
    search: Search, run: Run | None, pools: Mapping[str, Pool], budget: Budget | None
) -> Iterator[Finding]:
    """Every rule that a search breaks; what is not valid by itself is None."""
    sound = True
    for name, values in search.space.items():
        for finding in _range((*AT, "space", name), values):
            sound = False
            yield finding
    if sound:
        yield from _settings(search)
        yield from _first(search)
    if search.trials == 1:
        yield Finding(
            (*AT, "trials"),
            "is 1: one setting says nothing of any other",
            "at least 2; or no [search], and the setting in run.params",
        )
    if search.rows > MOST_ROWS:
        yield Finding(
            (*AT, "trials"),
            f"is {search.trials:,}, and with its repeats the table has {search.rows:,} rows",
            f"at most {MOST_ROWS:,} rows: search.trials and its repeats",
        )
    if search.concurrent > search.rows:
        yield Finding(
            (*AT, "concurrent"),
            f"is {search.concurrent}, more than the {search.rows} rows of the table",
            f"at most {search.rows}: search.trials and its repeats",
        )
    if search.repeats is not None:
        yield from _repeats(search, search.repeats, run)
    if search.scheduler is not None:
        yield from _scheduler(search.scheduler, run)
    if run is not None:
        yield from _direction(search, run)
    if run is not None and run.wall_h is None and _billed(pools, budget):
        yield Finding(
            ("run", "wall_h"),
            "missing, and every row of the search may cost money for as long as it trains",
            "the most hours that one row may train, such as 0.5",
        )


# --- the space --------------------------------------------------------------------------------------------------


def _range(loc: Loc, values: Range) -> Iterator[Finding]:
    given = values.plain()
    if len(given) != 1:
        yield Finding(loc, f"has {len(given)} forms", "exactly one of uniform, loguniform, integer, choice")
        return
    ((form, span),) = given.items()
    if form == "choice":
        yield from _choice((*loc, form), span)
    elif not span[0] < span[1]:
        yield Finding((*loc, form), f"goes from {span[0]} to {span[1]}", "low below high")
    elif form == "loguniform" and span[0] <= 0:
        yield Finding((*loc, form), f"starts at {span[0]}", "above 0")
    elif form == "integer" and max(map(abs, span)) > WHOLE:
        yield Finding((*loc, form), f"goes from {span[0]} to {span[1]}", f"whole numbers up to {WHOLE}")


def _choice(loc: Loc, values: list[Any]) -> Iterator[Finding]:
    if len(values) == 1:
        rule = "at least two values; one that is fixed stands in run.params"
        yield Finding(loc, "has one value, so nothing is searched", rule)
    seen: set[bytes] = set()
    for index, value in enumerate(values):
        if as_value(value) in seen:
            yield Finding(
                (*loc, index), "is there twice: it would be tried twice as often", "each value once"
            )
        seen.add(as_value(value))


def _settings(search: Search) -> Iterator[Finding]:
    """There are as many settings as trials: each is tried once."""
    endless = [name for name, values in search.space.items() if values.size is None]
    at = (*AT, "trials")
    if search.sampler.name == "grid" and endless:
        yield Finding(
            (*AT, "space", endless[0]),
            "has no grid: it is continuous",
            "choice or integer, or another sampler",
        )
    if endless:
        return
    size = math.prod(values.size or 1 for values in search.space.values())
    if search.sampler.name == "grid" and size != search.trials:
        yield Finding(
            at,
            f"is {search.trials}, and the grid has {size} settings",
            f"{size}: every setting of the grid once, those of search.first before the others",
        )
    elif size < search.trials:
        yield Finding(
            at,
            f"is {search.trials}, and the space has {size} settings",
            f"at most {size}: the same setting and seed again is the same run",
        )


def _first(search: Search) -> Iterator[Finding]:
    at = (*AT, "first")
    if len(search.first) > search.trials:
        yield Finding(
            at,
            f"has {len(search.first)} settings, more than the {search.trials} trials",
            f"at most {search.trials}",
        )
    seen: dict[bytes, int] = {}
    for index, params in enumerate(search.first):
        before = len(seen)
        yield from _setting((*at, index), params, search.space)
        same = seen.setdefault(
            canonical({name: as_value(value).decode() for name, value in params.items()}), index
        )
        if len(seen) == before:
            yield Finding((*at, index), f"is the same as search.first[{same}]", "each setting once")


def _setting(loc: Loc, params: Mapping[str, Any], space: Mapping[str, Range]) -> Iterator[Finding]:
    names = ", ".join(space)
    for name, value in params.items():
        if name not in space:
            yield Finding(
                (*loc, name), "is not searched", f"one of {names}; what is fixed stands in run.params"
            )
        elif not space[name].holds(value):
            ((form, span),) = space[name].plain().items()
            yield Finding(
                (*loc, name), "is outside its space", f"a value of {form} = {canonical(span).decode()}"
            )
    if missing := [name for name in space if name not in params]:
        yield Finding(loc, f"leaves out {', '.join(missing)}", f"a value of each of {names}")


# --- how it goes on ---------------------------------------------------------------------------------------------


def _repeats(search: Search, repeats: Repeats, run: Run | None) -> Iterator[Finding]:
    if repeats.top > search.trials:
        yield Finding(
            (*AT, "repeats", "top"),
            f"is {repeats.top}, more than the {search.trials} trials",
            f"at most {search.trials}: search.trials",
        )
    for index, seed in enumerate(repeats.seeds):
        loc = (*AT, "repeats", "seeds", index)
        if run is not None and seed == run.seed:
            yield Finding(loc, "is run.seed, which the trial itself had", "another seed")
        elif seed in repeats.seeds[:index]:
            yield Finding(loc, "is there twice", "each seed once: the same setting and seed is the same run")


def _scheduler(scheduler: Scheduler, run: Run | None) -> Iterator[Finding]:
    at = (*AT, "scheduler")
    if scheduler.name == "asha" and scheduler.reduction is None:
        yield Finding((*at, "reduction"), "missing", Scheduler.model_fields["reduction"].description)
    if scheduler.name == "median" and scheduler.reduction is not None:
        yield Finding((*at, "reduction"), "is of asha, and the scheduler is median", "leave it out")
    if scheduler.name == "asha" and scheduler.least is not None:
        yield Finding((*at, "least"), "is of median, and the scheduler is asha", "leave it out")
    if run is None:
        return
    grace = scheduler.grace_updates
    heard = -(-grace // run.evaluate_every) * run.evaluate_every
    if grace >= run.updates:
        yield Finding(
            (*at, "grace_updates"),
            f"is {grace}, and a trial has {run.updates} updates: none is ever stopped",
            f"below run.updates ({run.updates})",
        )
    elif heard >= run.updates:
        yield Finding(
            (*at, "grace_updates"),
            f"is {grace}, and from there on no evaluation comes before the last update ({run.updates})",
            f"an evaluation between them: run.evaluate_every is {run.evaluate_every}",
        )


def _direction(search: Search, run: Run) -> Iterator[Finding]:
    """A metric is better one way, whoever asks: which row is best, which checkpoint is, when a row stops."""
    chosen, stopping = run.selection, run.stopping
    name = search.metric.removeprefix("development.")
    if chosen is not None and chosen.metric == name and chosen.mode != search.mode:
        yield Finding(
            (*AT, "mode"),
            f'is "{search.mode}", and run.select takes the checkpoint with the {chosen.mode} of the same metric',
            f'one direction: search.mode = "{chosen.mode}", or run.select = "{search.mode} {search.metric}"',
        )
    elif stopping is not None and stopping.metric == name and stopping.mode != search.mode:
        yield Finding(
            (*AT, "mode"),
            f'is "{search.mode}", and run.stop has "{stopping.mode}" of the same metric',
            f'one direction: search.mode = "{stopping.mode}", or run.stop.mode = "{search.mode}"',
        )


def _billed(pools: Mapping[str, Pool], budget: Budget | None) -> bool:
    """Whether the accelerators that rows train on cost money, or count against hours that were granted."""
    pool = pools.get("train")
    if pool is None:
        return False
    granted = budget is not None and budget.accelerator_hours is not None
    return granted or (pool.usd_per_hour is not None and pool.usd_per_hour.rate > 0)
