"""One update: micro-batches forward and backward, one small all-reduce, clip, step.

The all-reduce carries the figures of every loss term and, beside them, what the ranks have to agree on: to stop
or to save after this update.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, get_total_norm

from raykit.data import randomness
from raykit.errors import GateError
from raykit.plan import Plan
from raykit.train import rng
from raykit.train.build import Built
from raykit.train.gang import Gang
from raykit.train.loader import to_device
from raykit.train.recipe import LossTerm, Recipe
from raykit.train.rows import Figures


@dataclass(frozen=True, slots=True)
class Asked:
    """What rank 0 wants after this update; every rank gets the same answer."""

    stop: bool = False
    save: bool = False


@dataclass(slots=True)
class _Tally:
    """One term's sums over the micro-batches of this rank."""

    weight: float
    elements: int
    reference: float | None
    no_reference: str | None
    has_target: bool
    values: list[Any]
    scales: list[Any]


class Stepper:
    """Runs updates on built objects. `micro_batches` come in order, `accumulate` of them an update."""

    def __init__(self, plan: Plan, recipe: Recipe, built: Built, gang: Gang) -> None:
        self._run = plan.run
        self._recipe = recipe
        self._built = built
        self._gang = gang
        self._parameters = [p for p in built.live.model.parameters() if p.requires_grad]
        self._names: tuple[str, ...] = ()

    def update(
        self, update: int, micro_batches: Iterator[Any], asked: Asked, elapsed_s: float
    ) -> tuple[Figures, Asked]:
        """Do update `update` (from 1). A loss or gradient that is not finite is told, and not stepped on.

        Raises:
            GateError: the recipe's terms are not what they were, or cannot be averaged.
        """
        live = self._built.live
        live.optimizer.zero_grad(set_to_none=True)
        tallies = self.accumulate(update, micro_batches)
        terms, asked = self._agree(tallies, asked)
        clipped, norm, scale, skipped = False, math.nan, None, None
        lr = tuple(float(group["lr"]) for group in live.optimizer.param_groups)
        if all(math.isfinite(value) for _, value, *_ in terms):
            norm, clipped, scale, skipped = self._step()
            if live.scheduler is not None:
                live.scheduler.step()
        figures = Figures(update, terms, lr, norm, clipped, elapsed_s, scale, skipped)
        progress = live.progress
        progress.update = update
        progress.samples = update * self._run.batch
        progress.skipped += bool(skipped)
        return figures, asked

    def accumulate(self, update: int, micro_batches: Iterator[Any]) -> dict[str, _Tally]:
        """Forward and backward of every micro-batch: gradients are left in place, nothing is stepped."""
        tallies: dict[str, _Tally] = {}
        for micro in range(self._run.accumulate):
            batch = to_device(next(micro_batches), self._gang.device)
            rng.seed(randomness.update(self._run.seed, update, self._gang.rank, micro))
            last = micro == self._run.accumulate - 1
            wrapped = self._built.wrapped
            syncs = last or not isinstance(wrapped, DistributedDataParallel)
            with nullcontext() if syncs else wrapped.no_sync():  # type: ignore[operator]
                with self._built.autocast():
                    terms = self._recipe.losses(wrapped, batch)
                    self._check_names(terms)
                    loss = sum(term.value * term.weight for term in terms.values()) / self._run.accumulate
                scaler = self._built.live.scaler
                (loss if scaler is None else scaler.scale(loss)).backward()  # type: ignore[union-attr]
            _count(tallies, terms)
        return tallies

    def _check_names(self, terms: Any) -> None:
        names = tuple(terms)
        if not self._names:
            if not names:
                raise GateError("the recipe's losses() returned no term", field="recipe.losses")
            self._names = names
        elif names != self._names:
            raise GateError(
                "the recipe's losses() returned other terms than before",
                field="recipe.losses",
                value=", ".join(names),
                rule=", ".join(self._names),
            )

    def _agree(self, tallies: dict[str, _Tally], asked: Asked) -> tuple[list[Any], Asked]:
        """Sum over ranks: the figures of each term, and what was asked."""
        micros, world = self._run.accumulate, self._gang.world
        numbers = [number for tally in tallies.values() for number in (*tally.values, *tally.scales)]
        floats = _floats(numbers)
        packed = [float(asked.stop), float(asked.save)]
        for i, tally in enumerate(tallies.values()):
            mine = floats[2 * i * micros : 2 * (i + 1) * micros]
            packed += [
                sum(mine[:micros]) / micros,
                sum(mine[micros:]) / micros,
                tally.elements,
                float(tally.elements) ** 2,
            ]
        packed = self._gang.sum(packed)
        terms = []
        for i, (name, tally) in enumerate(tallies.items()):
            value, scale, elements, squares = packed[2 + 4 * i : 6 + 4 * i]
            if world > 1 and squares * world != elements**2:
                raise _uneven(name)
            terms.append(
                (
                    name,
                    value / world,
                    tally.weight,
                    int(elements),
                    scale / world if tally.has_target else None,
                    tally.reference,
                    tally.no_reference,
                )
            )
        return terms, Asked(stop=packed[0] > 0, save=packed[1] > 0)

    def _step(self) -> tuple[float, bool, float | None, bool | None]:
        """Clip and step; returns (gradient norm before clipping, clipped, loss scale, skipped)."""
        live = self._built.live
        if live.scaler is not None:
            live.scaler.unscale_(live.optimizer)
        if self._run.clip is not None:
            norm = float(clip_grad_norm_(self._parameters, self._run.clip))
        else:
            norm = float(get_total_norm([p.grad for p in self._parameters if p.grad is not None]))
        clipped = self._run.clip is not None and norm > self._run.clip
        if live.scaler is not None:
            scale = float(live.scaler.get_scale())
            live.scaler.step(live.optimizer)
            live.scaler.update()
            return norm, clipped, scale, not math.isfinite(norm)
        if math.isfinite(norm):
            live.optimizer.step()
        return norm, clipped, None, None


def _count(tallies: dict[str, _Tally], terms: Any) -> None:
    for name, term in terms.items():
        assert isinstance(term, LossTerm)
        elements = term.count()
        tally = tallies.get(name)
        if tally is None:
            tally = tallies[name] = _Tally(
                term.weight, 0, term.reference, term.no_reference, term.target is not None, [], []
            )
        elif tally.elements != elements * len(tally.values):
            raise _uneven(name)
        tally.elements += elements
        tally.values.append(term.value.detach())
        tally.scales.append(term.scale())


def _uneven(name: str) -> GateError:
    """Means over different numbers of elements cannot be averaged without changing the objective."""
    return GateError(
        f"term {name} has different numbers of elements in the micro-batches of one update",
        field="LossTerm.elements",
        rule="the same number in every micro-batch and rank of an update",
        remedy="pad to one length and divide by the padded count, or set run.accumulate = 1 and run.workers = 1",
    )


def _floats(numbers: list[Any]) -> list[float]:
    """Python floats of 0-dimensional tensors and numbers, with one transfer if they are on an accelerator."""
    tensors = [number for number in numbers if isinstance(number, torch.Tensor)]
    if not tensors or tensors[0].device.type == "cpu":
        return [float(number) for number in numbers]
    moved = iter(torch.stack([tensor.double() for tensor in tensors]).tolist())
    return [next(moved) if isinstance(number, torch.Tensor) else float(number) for number in numbers]


def nonfinite(figures: Figures) -> tuple[str, ...]:
    """Names of what is not finite in an update: terms, `grad_norm` (unless a loss scaler dealt with it)."""
    bad = [name for name, value, *_ in figures.terms if not math.isfinite(value)]
    if not bad and figures.skipped is None and not math.isfinite(figures.grad_norm):
        bad = ["grad_norm"]
    return tuple(bad)
