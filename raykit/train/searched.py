"""The settings of a search, held against the recipe before any of them is registered or paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raykit.errors import PlanError
from raykit.plan import Plan
from raykit.plan.tables import Range, Search
from raykit.search import rows_of, run_of
from raykit.train.params import check_params, named
from raykit.train.recipe import Recipe


def check_settings(recipe: Recipe, plan: Plan) -> None:
    """Let only a search pass whose every setting the recipe takes; of what is drawn later, each parameter's ends.

    Raises:
        PlanError: the recipe has no such parameter, takes another type, or refuses a setting; all in `findings`.
    """
    search = plan.search
    if search is None:
        return
    findings: dict[str, PlanError] = {}
    for where, params in _settings(plan, search):
        try:
            check_params(recipe, {**plan.run.params, **params})
        except PlanError as error:
            for each in error.findings or (error,):
                finding = _of_search(each, search, where, params)
                findings.setdefault(finding.field or "", finding)
    if findings:
        found = tuple(findings.values())
        raise PlanError(f"the recipe does not take what is searched: {named(found)}", findings=found)


def _settings(plan: Plan, search: Search) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every setting that is known now, with where it is from; of a sampler that learns, what stands for the others."""
    later = False
    for row in rows_of(search, plan.run.seed):
        if row.params is not None:
            yield f"of {run_of(row.row)}", row.params
        else:
            later = later or row.kind == "trial"
    if not later:
        return
    start = search.first[0] if search.first else {name: _ends(span)[0] for name, span in search.space.items()}
    for name, span in search.space.items():
        for value in _ends(span):
            yield "that may be drawn", {**start, name: value}


def _ends(span: Range) -> tuple[Any, ...]:
    """The ends of a range, or every value of a choice."""
    return span.choice or span.integer or span.loguniform or span.uniform or ()


def _of_search(found: PlanError, search: Search, where: str, params: Mapping[str, Any]) -> PlanError:
    """A finding where the plan says the value: in the space, or in [run] if it is not searched."""
    name = (found.field or "").removeprefix("run.params.")
    if name in search.space:
        return PlanError(found.message, field=f"search.space.{name}", value=params.get(name), rule=found.rule)
    if found.field == "run.params":
        return PlanError(
            f"{found.message} (the setting {where})",
            field="search.space",
            value=dict(params),
            rule=found.rule,
        )
    return found
