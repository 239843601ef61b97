"""One update: micro-batches forward and backward, one small all-reduce, clip, step.

The all-reduce carries the figures of every loss term and, beside them, what the ranks have to agree on: to stop
or to save after this update.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
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
from raykit.train.learning import require_attached
from raykit.train.loader import naming, to_device
from raykit.train.recipe import LossTerm, Recipe
from raykit.train.rows import Figures
from raykit.train.schedule import step_schedule
from raykit.train.structure import Structure


@dataclass(frozen=True, slots=True)
class Asked:
    """What rank 0 wants after this update; every rank gets the same answer."""

    stop: bool = False
    save: bool = False


Told = tuple[str, Any, float, int, Any, float | None, str | None]
"""One term as in `Figures.terms`; its value and scale may still be tensors on an accelerator."""


class Stepper:
    """Runs updates on built objects. `micro_batches` come in order, `accumulate` of them an update."""

    def __init__(self, plan: Plan, recipe: Recipe, built: Built, gang: Gang) -> None:
        self._run = plan.run
        self._recipe = recipe
        self._built = built
        self._gang = gang
        live = built.live
        self._structure = Structure(live.model, live.optimizer, built.modes, world=gang.world)
        self._names: tuple[str, ...] | None = None
        self._on_cpu = gang.device.type == "cpu"

    def update(
        self, update: int, micro_batches: Iterator[Any], asked: Asked, elapsed_s: float
    ) -> tuple[Figures, Asked]:
        """Do update `update` (from 1). A loss or gradient that is not finite is told, and not stepped on.

        Raises:
            GateError: the recipe's terms are not what they were, or cannot be averaged; the model is not in its mode,
                or has become one that no resume builds; or the schedule ends before the run.
        """
        live = self._built.live
        self.clear()
        told = self.accumulate(update, micro_batches)
        self._structure.require(update)  # before a step that would fail on it, without a name
        terms, asked = self._agree(told, asked)
        clipped, norm, scale, skipped = False, math.nan, None, None
        lr = tuple([float(group["lr"]) for group in live.optimizer.param_groups])
        bad = [term[0] for term in terms if not math.isfinite(term[1])]
        if not bad:
            norm, clipped, scale, skipped = self._step()
            if skipped is None and not math.isfinite(norm):
                bad = ["grad_norm"]
            if live.scheduler is not None:
                step_schedule(live.scheduler, update)
        self._structure.require_groups(update)
        figures = Figures(update, terms, lr, norm, clipped, elapsed_s, scale, skipped, bad)
        progress = live.progress
        progress.update = update
        progress.samples = update * self._run.batch
        progress.skipped += bool(skipped)
        return figures, asked

    def clear(self) -> None:
        """Every gradient of the model, also of what no optimizer holds."""
        self._built.live.optimizer.zero_grad(set_to_none=True)
        for parameter in self._structure.unheld:
            parameter.grad = None

    def look_closer(self) -> None:
        """See that what is about to be saved is what a resume builds.

        Raises:
            GateError: it is not.
        """
        self._structure.require_closely(self._built.live.progress.update)

    def accumulate(self, update: int, micro_batches: Iterator[Any]) -> list[list[Told]]:
        """Forward and backward of every micro-batch: gradients are left in place, nothing is stepped.

        Returns the terms of each micro-batch.

        Raises:
            GateError: the model is not in the mode that it was built in.
        """
        told: list[list[Told]] = []
        self._structure.require_modes(update, "before the forward pass")
        wrapped = self._built.wrapped
        for micro in range(self._run.accumulate):
            batch = to_device(next(micro_batches), self._gang.device)
            rng.seed(randomness.update(self._run.seed, update, self._gang.rank, micro))
            last = micro == self._run.accumulate - 1
            with naming(micro_batches, "losses"):
                if last or not isinstance(wrapped, DistributedDataParallel):
                    told.append(self._forward_backward(batch))
                else:
                    with wrapped.no_sync():
                        told.append(self._forward_backward(batch))
        self._structure.require_modes(update, "after losses()")
        return told

    def _forward_backward(self, batch: Any) -> list[Told]:
        with self._built.autocast():
            terms = self._recipe.losses(self._built.wrapped, batch)
            if tuple(terms) != self._names:
                self._learn_names(terms)
            loss = _total(terms.values())
            if self._run.accumulate > 1:
                loss = loss / self._run.accumulate
        scaler = self._built.live.scaler
        (loss if scaler is None else scaler.scale(loss)).backward()
        return _tell(terms, wait=self._on_cpu)

    def _learn_names(self, terms: Mapping[str, LossTerm]) -> None:
        names = tuple(terms)
        if not names:
            raise GateError("the recipe's losses() returned no term", field="recipe.losses")
        if self._names is not None:
            raise GateError(
                "the recipe's losses() returned other terms than before",
                field="recipe.losses",
                value=", ".join(names),
                rule=", ".join(self._names),
            )
        require_attached(terms)
        self._names = names

    def _agree(self, told: list[list[Told]], asked: Asked) -> tuple[list[Told], Asked]:
        """The mean over micro-batches and ranks of the figures of each term, and what was asked."""
        micros, world = len(told), self._gang.world
        found = told if self._on_cpu else _on_host(told, self._gang.device)
        if micros == world == 1:
            return found[0], asked
        packed = [float(asked.stop), float(asked.save)]
        for parts in zip(*found, strict=True):
            elements = sum(part[3] for part in parts)
            if any(part[3] * micros != elements for part in parts):
                raise _uneven(parts[0][0])
            packed += [
                sum(part[1] for part in parts) / micros,
                sum(part[4] or 0.0 for part in parts) / micros,
                elements,
                float(elements) ** 2,
            ]
        packed = self._gang.sum(packed)
        terms: list[Told] = []
        for i, (name, _, weight, _, mean_square, reference, no_reference) in enumerate(found[0]):
            value, scale, total, squares = packed[2 + 4 * i : 6 + 4 * i]
            if world > 1 and squares * world != total**2:
                raise _uneven(name)
            scale_or_none = None if mean_square is None else scale / world
            terms.append((name, value / world, weight, int(total), scale_or_none, reference, no_reference))
        return terms, Asked(stop=packed[0] > 0, save=packed[1] > 0)

    def _step(self) -> tuple[float, bool, float | None, bool | None]:
        """Clip and step; returns (gradient norm before clipping, clipped, loss scale, skipped)."""
        live = self._built.live
        if live.scaler is not None:
            live.scaler.unscale_(live.optimizer)
        trained = self._structure.trained
        if self._run.clip is not None:
            norm = float(clip_grad_norm_(trained, self._run.clip))
        else:
            norm = float(get_total_norm([p.grad for p in trained if p.grad is not None]))
        clipped = self._run.clip is not None and norm > self._run.clip
        if live.scaler is not None:
            scale = float(live.scaler.get_scale())
            live.scaler.step(live.optimizer)
            live.scaler.update()
            return norm, clipped, scale, not math.isfinite(norm)
        if math.isfinite(norm):
            self._step_optimizer()
        return norm, clipped, None, None

    def _step_optimizer(self) -> None:
        try:
            self._built.live.optimizer.step()
        except RuntimeError:  # another structure may be why, and has a name
            self._structure.require_closely(self._built.live.progress.update + 1)
            raise


def _total(terms: Iterable[LossTerm]) -> torch.Tensor:
    """The weighted sum, without the additions of 0 and multiplications by 1 that autograd would carry along."""
    return reduce(add, [term.value if term.weight == 1.0 else term.value * term.weight for term in terms])


def _tell(terms: Mapping[str, LossTerm], *, wait: bool) -> list[Told]:
    """The figures of one micro-batch. Without `wait`, what is still being computed stays a tensor."""
    return [
        (
            name,
            term.value.item() if wait else term.value.detach(),
            term.weight,
            term.count() or _nothing(name),
            None if term.target is None else float(term.scale()) if wait else term.scale(),
            term.reference,
            term.no_reference,
        )
        for name, term in terms.items()
    ]


def _nothing(name: str) -> int:
    """A mean over nothing is no number, and 0 in its place would change the objective.

    Raises:
        GateError: always.
    """
    raise GateError(
        f"term {name} has nothing to score in a micro-batch that trains: it has 0 elements",
        field="LossTerm.elements",
        rule="at least 1 in every micro-batch of an update; an evaluation may have rows with nothing to score",
        remedy="leave such rows out of the training split, or give each micro-batch one that has something to score",
    )


def _on_host(told: list[list[Told]], device: torch.device) -> list[list[Told]]:
    """Numbers in place of the tensors on an accelerator, with one transfer for all of them."""
    tensors = [
        number
        for terms in told
        for _, value, _, _, scale, *_ in terms
        for number in (value, scale)
        if isinstance(number, torch.Tensor)
    ]
    moved = iter(torch.stack([tensor.to(device, torch.float64) for tensor in tensors]).tolist())

    def here(number: Any) -> Any:
        return next(moved) if isinstance(number, torch.Tensor) else number

    return [
        [
            (name, here(value), weight, elements, here(scale), reference, no_reference)
            for name, value, weight, elements, scale, reference, no_reference in terms
        ]
        for terms in told
    ]


def _uneven(name: str) -> GateError:
    """Means over different numbers of elements cannot be averaged without changing the objective."""
    return GateError(
        f"term {name} has different numbers of elements in the micro-batches of one update",
        field="LossTerm.elements",
        rule="the same number in every micro-batch and rank of an update",
        remedy="pad to one length and divide by the padded count, or set run.accumulate = 1 and run.workers = 1",
    )
