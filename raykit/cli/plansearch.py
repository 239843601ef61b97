"""The search of a plan as people read it before anything starts: what is registered, what a row may cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raykit.cli import look, output, searchlook
from raykit.plan.tables import as_value

if TYPE_CHECKING:
    from raykit.plan import Plan
    from raykit.plan.tables import Search
    from raykit.review import Money

LINE = "train"
"""Of the budget: what pays for the rows."""


def block(plan: Plan, money: Money) -> Iterator[str]:
    """What `[search]` registers; nothing for a plan without it."""
    if plan.search is None:
        return
    yield ""
    yield "  SEARCH"
    facts = list(_facts(plan, plan.search, money))
    width = max(len(label) for label, _ in facts)
    for label, text in facts:
        yield from output.wrapped(f"{label:<{width}}  {text}", output.width(), hang=width + 2)


def record(plan: Plan, money: Money) -> dict[str, Any] | None:
    """The same for programs."""
    search = plan.search
    if search is None:
        return None
    return {
        **search.plain(),
        "rows": search.rows,
        "replaced": _replaced(plan, search) or None,
        "row_worst": row_worst(search, money),
        "total_worst": _planned(search, money),
    }


def row_worst(search: Search, money: Money) -> int | None:
    """What one row may cost, over all of its attempts; None where nothing is billed."""
    planned = _planned(search, money)
    return None if planned is None else planned // search.rows


def _planned(search: Search, money: Money) -> int | None:
    """What all rows may cost: as the lines have it, or as they would if they did fit."""
    if not money.billed:
        return None
    would = None if money.run_worst is None else search.rows * money.run_worst
    return next((line.planned for line in money.lines if line.line == LINE), would)


def _facts(plan: Plan, search: Search, money: Money) -> Iterator[tuple[str, str]]:
    yield "believes", _one_line(search.hypothesis)
    yield "predicts", _one_line(search.predicts)
    best = "least" if search.mode == "min" else "most"
    yield "metric", f"{search.metric}, the {best} is best; {_from(plan)}"
    yield "space", searchlook.space_words({name: span.plain() for name, span in search.space.items()})
    yield "rows", _rows(search)
    yield "settings", _settings(search)
    if replaced := _replaced(plan, search):
        yield "params", replaced
    yield "at once", _at_once(search)
    yield "worst", _worst(search, money)
    if search.transfer is not None:
        yield "transfer", _one_line(search.transfer)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _from(plan: Plan) -> str:
    chosen = plan.run.selection
    if chosen is None:
        return "of a row, that of its last evaluation"
    most = "least" if chosen.mode == "min" else "most"
    return f"of a row, that of the checkpoint with the {most} {chosen.metric}"


def _rows(search: Search) -> str:
    again = search.repeats
    trials = look.many(search.trials, "trial")
    if again is None:
        return f"{trials}, registered before the first begins; never one more"
    repeats = search.rows - search.trials
    top = "the best" if again.top == 1 else f"the best {again.top}"
    seeds = f"seed{'' if len(again.seeds) == 1 else 's'} {', '.join(map(str, again.seeds))}"
    whole = f"{output.count(search.rows)} rows, registered before the first begins; never one more"
    return f"{whole}: {trials}, then {look.many(repeats, 'repeat')} of {top} with {seeds}"


def _settings(search: Search) -> str:
    sampler, first = search.sampler, len(search.first)
    given = ""
    if first:
        said = "; ".join(
            ", ".join(f"{name} = {searchlook.value_text(value)}" for name, value in each.items())
            for each in search.first
        )
        rows = "row 1" if first == 1 else f"rows 1 to {first}"
        given = f"{rows} as the plan says ({said}); "
    left = search.trials - first
    if not left:
        return given.removesuffix("; ")
    others = "the others" if first else "all"
    when = "drawn when their turn comes, from what ended rows came to" if _learns(search) else "drawn now"
    return f"{given}{others} {when} ({sampler.name}, seed {sampler.seed})"


def _replaced(plan: Plan, search: Search) -> str:
    """Which of run.params no row has, since they are searched, and no setting of search.first holds them either."""
    names = [
        name
        for name, value in plan.run.params.items()
        if name in search.space
        and not any(name in first and as_value(first[name]) == as_value(value) for first in search.first)
    ]
    said = ", ".join(f"run.params.{name} = {searchlook.value_text(plan.run.params[name])}" for name in names)
    return f"{said} {'is' if len(names) == 1 else 'are'} replaced in every row: searched" if names else ""


def _learns(search: Search) -> bool:
    return search.sampler.name == "optuna.tpe"


def _at_once(search: Search) -> str:
    scheduler = None if search.scheduler is None else search.scheduler.plain()
    stops = searchlook.stops_words(scheduler)
    waves = look.many(search.waves, "wave")
    return f"{look.many(min(search.concurrent, search.rows), 'row')}, {waves} at least; {stops}"


def _worst(search: Search, money: Money) -> str:
    if not money.billed:
        return "not billed"
    row, planned = row_worst(search, money), _planned(search, money)
    if row is None or planned is None:
        return "not known"
    whole, each = output.amount(planned, money.unit), output.amount(row, money.unit)
    said = f"{each} a row, over all of its attempts; {whole} for {look.many(search.rows, 'row')}"
    if not money.starts_worst or row < money.starts_worst:
        return said
    work, starts = (
        output.amount(part, money.unit) for part in (row - money.starts_worst, money.starts_worst)
    )
    return f"{said}; of a row {work} is work, and {starts} set-up, lost work and drain of its attempts"
