"""The development split scored, and the cheap monitors: what is looked at between updates.

Both run in evaluation mode on generators of their own, and ask the recipe as `looking` gives it, so that looking
changes no later bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from raykit import history
from raykit.data import randomness
from raykit.errors import GateError
from raykit.plan import Plan
from raykit.records import FieldStats
from raykit.train import rng
from raykit.train.build import Built
from raykit.train.gang import Gang
from raykit.train.loader import Keyed, naming, scan_loader, to_device
from raykit.train.recipe import Recipe


def evaluate(
    plan: Plan, recipe: Recipe, built: Built, gang: Gang, keyed: Keyed, update: int
) -> dict[str, float | None]:
    """Score all members of a split: means over examples, and pooled ratios of the loss terms. In a block of `looking`,
    which gives the recipe.

    `ratio` is the ratio of the main term (the first with a scale), `loss` the weighted sum of all terms,
    `ratio.<term>` the others, and every name of the recipe's `evaluate` the mean over examples. Undefined or
    not finite is None.

    Raises:
        GateError: the recipe's `evaluate` returns something that is not one number per example.
    """
    size = plan.run.batch // (plan.run.workers * plan.run.accumulate)
    collate = getattr(recipe, "collate", None)
    loader = scan_loader(keyed, batch=size, world=gang.world, rank=gang.rank, collate=collate)
    sums = _Sums()
    with rng.aside(randomness.evaluate(plan.run.seed, update)):
        batches = iter(loader)
        for number, batch in enumerate(batches):
            rng.seed(randomness.key("evaluate", plan.run.seed, update, gang.rank, number))
            with built.autocast(), naming(batches, "evaluate"):
                sums.add(recipe, built.live.model, to_device(batch, gang.device))
    return sums.means(gang)


class _Sums:
    """Sums over examples and elements; names are the same on every rank that saw a batch."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = {}
        self._terms: list[str] = []
        self._main: str | None = None

    def add(self, recipe: Recipe, model: torch.nn.Module, batch: Any) -> None:
        loss_weight: dict[str, float] = {}
        for name, term in recipe.losses(model, batch).items():
            count = term.count()
            scale = float(term.scale())
            self._tally(f"term.{name}", float(term.value) * count, count)
            loss_weight[name] = term.weight
            if term.no_reference is None:
                self._main = self._main or name
                self._tally(f"scale.{name}", scale * count, count)
            self._tally(f"weight.{name}", term.weight, 1)
            if name not in self._terms:
                self._terms.append(name)
        per_example = getattr(recipe, "evaluate", None)
        if per_example is not None:
            for name, values in per_example(model, batch).items():
                if name in ("loss", "ratio") or name.startswith("ratio."):
                    raise GateError(
                        f"the recipe's evaluate() gives {name}, which raykit works out itself",
                        field="recipe.evaluate",
                        rule="any other name than loss, ratio and ratio.*",
                    )
                if not isinstance(values, torch.Tensor) or values.dim() != 1:
                    raise GateError(
                        f"the recipe's evaluate() gives {name} in another shape",
                        field="recipe.evaluate",
                        rule="a tensor with one number per example",
                    )
                self._tally(f"metric.{name}", float(values.double().sum()), values.numel())

    def _tally(self, name: str, value: float, count: float) -> None:
        pair = self._sums.setdefault(name, [0.0, 0.0])
        pair[0] += value
        pair[1] += count

    def means(self, gang: Gang) -> dict[str, float | None]:
        """Pool the ranks. A rank without a batch (a tiny split) learns the names from rank 0, which has one."""
        shape = gang.share({"names": list(self._sums), "terms": self._terms, "main": self._main})
        flat = [number for name in shape["names"] for number in self._sums.get(name, [0.0, 0.0])]
        flat = gang.sum(flat)
        mean = {name: flat[2 * i] / flat[2 * i + 1] for i, name in enumerate(shape["names"])}
        found: dict[str, float | None] = {}
        loss = 0.0
        for name in shape["terms"]:
            value = mean[f"term.{name}"]
            loss += value * mean[f"weight.{name}"]
            if f"scale.{name}" in mean:
                found[f"ratio.{name}"] = history.ratio(value, mean[f"scale.{name}"])
        found["loss"] = history.finite(loss)
        if shape["main"] is not None:
            found["ratio"] = found[f"ratio.{shape['main']}"]
        for name in shape["names"]:
            if name.startswith("metric."):
                found[name.removeprefix("metric.")] = history.finite(mean[name])
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
