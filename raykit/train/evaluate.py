"""The development split scored, and the cheap monitors: what is looked at between updates.

Both run in evaluation mode on generators of their own, and ask the recipe as `looking` gives it, so that looking
changes no later bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from raykit import history
from raykit.data import randomness
from raykit.errors import GateError
from raykit.plan import Plan
from raykit.records import FieldStats
from raykit.train import rng
from raykit.train.asked import metrics_of, require_per_example, terms_of
from raykit.train.build import Built
from raykit.train.gang import Gang
from raykit.train.loader import Keyed, naming, scan_loader, to_device
from raykit.train.recipe import LossTerm, Recipe
from raykit.train.together import ROWS, require_means


class Evaluated(NamedTuple):
    """What a split scored."""

    metrics: dict[str, float | None]
    counts: dict[str, int]
    """By metric that not every row gave a number for: how many did."""


def evaluate(plan: Plan, recipe: Recipe, built: Built, gang: Gang, keyed: Keyed, update: int) -> Evaluated:
    """Score all members of a split: means over examples, and pooled ratios of the loss terms. In a block of `looking`,
    which gives the recipe.

    `ratio` is the ratio of the main term (the first with a scale), `loss` the weighted sum of all terms,
    `ratio.<term>` the others, and every name of the recipe's `evaluate` the mean over the examples that have it.
    Undefined or not finite is None.

    Raises:
        GateError: the recipe gives something that is not one number per example, or that cannot be.
    """
    size = plan.run.batch // (plan.run.workers * plan.run.accumulate)
    collate = getattr(recipe, "collate", None)
    loader = scan_loader(keyed, batch=size, world=gang.world, rank=gang.rank, collate=collate)
    sums = _Sums()

    def scan() -> None:
        if update == 0 and plan.qc is not None:
            _require_means(plan, recipe, built, gang, keyed, size)
        batches = iter(loader)
        for number, batch in enumerate(batches):
            rng.seed(randomness.key("evaluate", plan.run.seed, update, gang.rank, number))
            first = (number * gang.world + gang.rank) * size
            rows = min(size, len(keyed) - first)
            with built.autocast(), naming(batches, "evaluate"):
                sums.add(recipe, built.live.model, to_device(batch, gang.device), rows)

    with rng.aside(randomness.evaluate(plan.run.seed, update)):
        gang.all_agree(scan)
    return sums.means(gang)


def _require_means(plan: Plan, recipe: Recipe, built: Built, gang: Gang, keyed: Keyed, size: int) -> None:
    """Look at a few rows at once, beside each by itself: so an examination, which goes row by row, will see them.

    Raises:
        GateError: a term relates them, and does not say so.
    """
    collate = getattr(recipe, "collate", None) or default_collate

    def ask(rows: Sequence[int], key: int) -> Mapping[str, LossTerm]:
        batch = to_device(collate([keyed[0, row] for row in rows]), gang.device)
        rng.seed(randomness.key("together", plan.run.seed, key))
        with built.autocast():
            return terms_of(recipe.losses(built.live.model, batch))

    dtype = plan.run.dtype
    rounded = dtype.params != "float32" or dtype.autocast != "none"
    require_means(ask, range(min(ROWS, size, len(keyed))), rounded=rounded)


class _Sums:
    """Sums over examples and elements. Names are the union of what any batch of any rank has given."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._terms: list[str] = []
        self._main: str | None = None

    def add(self, recipe: Recipe, model: torch.nn.Module, batch: Any, rows: int) -> None:
        """Score one batch of so many rows."""
        given = terms_of(recipe.losses(model, batch))
        self._learn(given)
        for name, term in given.items():
            value, count, scale = term.numbers(name)
            self._tally(f"term.{name}", value * count, count)
            if term.no_reference is None:
                self._tally(f"scale.{name}", scale * count, count)
            self._tally(f"weight.{name}", term.weight, 1)
        per_example = getattr(recipe, "evaluate", None)
        if per_example is not None:
            for name, values in metrics_of(recipe, per_example(model, batch), rows).items():
                self._tally(f"metric.{name}", float(values.double().sum()), values.numel())
                self._tally(f"alone.{name}", float(values.numel() == 1), rows > 1)
        self._tally("rows", rows, 1)

    def _learn(self, given: Mapping[str, LossTerm]) -> None:
        names = list(given)
        if self._terms and names != self._terms:
            raise GateError(
                "the recipe's losses() gives other terms for one batch than for another",
                field="recipe.losses",
                value=", ".join(names),
                rule=", ".join(self._terms),
                remedy="give each term for every batch, with elements=0 where it has nothing to score",
            )
        self._terms = names
        self._main = self._main or next((n for n in names if given[n].no_reference is None), None)

    def _tally(self, name: str, value: float, count: float) -> None:
        pair = self._sums.setdefault(name, [0.0, 0.0])
        pair[0] += value
        pair[1] += count

    def means(self, gang: Gang) -> Evaluated:
        """Pool the ranks, each with the names that it has met: one may have had no batch of a tiny split."""
        told = [
            gang.share({"names": list(self._sums), "terms": self._terms, "main": self._main}, by=rank)
            for rank in range(gang.world)
        ]
        names = list(dict.fromkeys(name for each in told for name in each["names"]))
        flat = gang.sum([number for name in names for number in self._sums.get(name, [0.0, 0.0])])
        pairs = {name: (flat[2 * i], flat[2 * i + 1]) for i, name in enumerate(names)}
        mean = {name: total / count if count else None for name, (total, count) in pairs.items()}
        found = _of_terms(mean, list(dict.fromkeys(name for each in told for name in each["terms"])))
        main = next((each["main"] for each in told if each["main"] is not None), None)
        if main is not None:
            found["ratio"] = found[f"ratio.{main}"]
        counts = {}
        rows = int(pairs["rows"][0]) if "rows" in pairs else 0
        for name in names:
            if name.startswith("metric."):
                short, value = name.removeprefix("metric."), mean[name]
                found[short] = None if value is None else history.finite(value)
                if pairs[name][1] < rows:
                    counts[short] = int(pairs[name][1])
                    require_per_example(short, *pairs[f"alone.{short}"], given=counts[short], rows=rows)
        return Evaluated(found, counts)


def _of_terms(mean: Mapping[str, float | None], terms: Sequence[str]) -> dict[str, float | None]:
    """The ratios and the loss; a term that had nothing to score anywhere adds nothing."""
    found: dict[str, float | None] = {}
    loss: float | None = None
    for name in terms:
        value, weight, scale = mean[f"term.{name}"], mean[f"weight.{name}"], mean.get(f"scale.{name}")
        if value is not None and weight is not None:
            loss = (loss or 0.0) + value * weight
        if f"scale.{name}" in mean:
            found[f"ratio.{name}"] = None if value is None or scale is None else history.ratio(value, scale)
    found["loss"] = None if loss is None else history.finite(loss)
    return found


def monitor(
    plan: Plan, recipe: Recipe, built: Built, gang: Gang, batch: Callable[[], Any], update: int
) -> dict[str, FieldStats]:
    """The declared fields over one batch of this rank, each in its own space, against its first spread. In a block of
    `looking`, which gives the recipe.

    `batch` makes the batch: here, since to make one draws from the generators.

    Raises:
        GateError: a declared field is not among those that the recipe gives.
    """
    declared = plan.qc.fields if plan.qc is not None else {}
    give = getattr(recipe, "fields", None)
    if give is None or not declared:
        return {}
    with rng.aside(randomness.evaluate(plan.run.seed, update)), built.autocast():
        fields = give(built.live.model, to_device(batch(), gang.device))
    found: dict[str, FieldStats] = {}
    for name, rule in declared.items():
        if name not in fields:
            raise GateError(
                f"the recipe gives no field {name}",
                field=f"qc.fields.{name}",
                rule=", ".join(fields) or "none",
            )
        values = fields[name].value.detach().double().flatten()
        if rule.space == "log":
            values = values.log()
        found[name] = history.field_stats(
            values.tolist(),
            space=rule.space,
            low=rule.low,
            high=rule.high,
            collapse=rule.collapse,
            reference_spread=built.live.progress.reference_spreads.get(name),
        )
        spread = found[name].spread
        if name not in built.live.progress.reference_spreads and spread is not None:
            built.live.progress.reference_spreads[name] = spread
    return found


def metric_of(metrics: Mapping[str, float | None], name: str) -> float | None:
    """The value of `development.<metric>` among the metrics of an evaluation.

    Raises:
        GateError: the recipe does not report that metric.
    """
    short = name.removeprefix("development.")
    if short not in metrics:
        raise GateError(
            f"nothing reports the metric {short}",
            field="run.select",
            value=name,
            rule="one of " + ", ".join(sorted(metrics)),
        )
    value = metrics[short]
    return None if value is None or math.isnan(value) else value


def since(start: float) -> float:
    """Seconds since `start` on the monotonic clock, to the millisecond."""
    return round(time.perf_counter() - start, 3)
