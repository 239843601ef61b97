"""Screening or confirmation: computed from the plan, never declared in it."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.plan import Plan, Stage
from raykit.plan.tables import Search


def stage_of(plan: Plan) -> tuple[Stage, str]:
    """Which of the two a run of this plan is, and why.

    It confirms only at the conditions that its decision is about: as long, as large, with the same params and rows.
    """
    short = list(_short_of(plan))
    if short:
        return "screening", "; ".join(short)
    if plan.protocol is None:
        return "confirmation", "the plan names no other protocol: its own run is the target"
    return "confirmation", "length, batch, params and rows are those of [protocol]"


def _short_of(plan: Plan) -> Iterator[str]:
    """Everything in which a run of this plan falls short of the target."""
    if plan.search is not None:
        yield f"a search ranks settings ({_table(plan.search)})"
    if plan.diagnosis is not None:
        yield "a diagnosis removes hypotheses"
    if plan.base is not None and plan.base.start == "pilot":
        yield "a pilot is shorter than what it is for"
    target, run = plan.protocol, plan.run
    if target is None:
        return
    if target.updates is not None and run.updates < target.updates:
        yield f"{run.updates:,} updates, and the protocol has {target.updates:,}"
    if target.batch is not None and run.batch != target.batch:
        yield f"a batch of {run.batch:,}, and the protocol has {target.batch:,}"
    for name, wanted in target.params.items():
        if run.params.get(name) != wanted:
            yield f"{name} is {run.params.get(name, 'not set')}, and the protocol has {wanted}"
    if target.train is not None and _sources(plan) != set(target.train):
        yield f"it trains on {', '.join(sorted(_sources(plan)))}, and the protocol on {', '.join(target.train)}"


def _table(search: Search) -> str:
    """`12 rows: 8 trials and 2 x 2 repeats`: all that it can ever train."""
    repeats = search.repeats
    again = "" if repeats is None else f" and {repeats.top} x {len(repeats.seeds)} repeats"
    return f"{search.rows} rows: {search.trials} trials{again}"


def _sources(plan: Plan) -> set[str]:
    return {"the recipe's own rows"} if plan.data is None else set(plan.data.train)
