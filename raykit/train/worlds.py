"""Worlds beside a run's own: where its gates train and its ranks warm up, everything of the recipe's own is made anew.

What is made in a world shares no module, recipe, dataset or live object with the run, and is gone afterwards: nothing
that happens there is left on what will be trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import nn

from raykit.plan import Plan
from raykit.train import rng
from raykit.train.build import Built, build, left_alone, make_model
from raykit.train.effect import require_effect
from raykit.train.find_recipe import apart, own_modules
from raykit.train.hanging import require_all_saved
from raykit.train.hidden.undo import put_back
from raykit.train.hidden.walk import Roots
from raykit.train.inputs import Inputs
from raykit.train.params import check_params
from raykit.train.parts import Parts
from raykit.train.probes import World
from raykit.train.step import Stepper

WarmUp = Callable[[Built], None]


@dataclass(frozen=True, slots=True)
class Worlds:
    """The worlds beside what one rank trains with."""

    parts: Parts

    @contextmanager
    def fresh(self) -> Iterator[Inputs]:
        """In the block, the recipe's modules, the recipe and the dataset, made anew."""
        with apart(self.parts.inputs.folder), put_back():
            yield self.parts.inputs.made_again()

    @contextmanager
    def warming(self) -> Iterator[WarmUp]:
        """Gives what does two throwaway forwards and backwards of live objects, before state is restored.

        DDP rebuilds its buckets after the first backward; without this, three and more ranks would sum gradients
        in another order after a resume than in the run that was never interrupted. The losses are asked of a recipe
        that is there for nothing else, so that nothing is left on that of the run.
        """
        plan, gang = self.parts.inputs.plan, self.parts.gang
        if gang.world == 1:
            yield lambda built: None
            return
        with self.fresh() as inputs:
            build(plan, inputs.recipe, inputs.params, replace(gang, rank=0, world=1))
        parts = Parts.of(self.parts.store, inputs, gang)

        def warm_up(built: Built) -> None:
            with put_back(), left_alone(built.live.model):
                stepper = Stepper(plan, inputs.recipe, built, gang)
                for _ in range(2):  # the rebuilt buckets come into use with the second
                    stepper.accumulate(1, parts.micro_batches(0, last=1, loader_workers=0))
            stepper.clear()

        yield warm_up

    @contextmanager
    def world(self, warm_up: WarmUp) -> Iterator[World]:
        """For one run of a gate: live objects, batches, a few rows to score."""
        with self.fresh() as inputs:
            parts = Parts.of(self.parts.store, inputs, self.parts.gang)
            built = parts.build(inputs.recipe)
            warm_up(built)
            few = inputs.plan.run.micro_batch * self.parts.gang.world
            yield World(
                built=built,
                micro_batches=lambda after, last: parts.micro_batches(after, last=last, loader_workers=0),
                few=inputs.keyed("development", few) if "development" in inputs.roles() else None,
                roots=roots_of(built, inputs),
            )

    def require_all_saved(self, built: Built, before: set[int]) -> None:
        """Refuse what was made with the model, and what no checkpoint will hold; `before` is what was there already.

        Raises:
            GateError: the recipe keeps a network or tensor for itself that is not the same in each process.
        """
        run, live = self.parts.inputs.plan.run, built.live

        def remake() -> tuple[Any, nn.Module]:
            with self.fresh() as inputs, rng.aside(run.seed):
                model = make_model(
                    inputs.recipe,
                    inputs.params,
                    seed=run.seed + 1,
                    device=self.parts.gang.device,
                    dtype=run.dtype.params,
                )
                optimizer = inputs.recipe.optimizer(model, inputs.params)
                if live.scheduler is not None:
                    cast(Any, inputs.recipe).scheduler(optimizer, inputs.params)
            return inputs.recipe, model

        trained = [each for group in live.optimizer.param_groups for each in group["params"]]
        require_all_saved(live.recipe, live.model, before, remake, trained=trained)

    def require_effect(self, built: Built, was: Plan) -> None:
        """Let no param that is another one than in the plan of the checkpoint be one that the checkpoint takes back.

        Raises:
            GateError: one is.
        """
        if was.run.params == self.parts.inputs.plan.run.params:
            return
        with self.fresh() as inputs:
            params = check_params(inputs.recipe, was.run.params)
            before = build(was, inputs.recipe, params, self.parts.gang)
        self.parts.gang.all_agree(lambda: require_effect(before.live, built.live))


def roots_of(built: Built, inputs: Inputs) -> Roots:
    """What state can hang on, of live objects that were built from these inputs."""
    live = built.live
    return Roots(
        recipe=live.recipe,
        model=live.model,
        optimizer=live.optimizer,
        scheduler=live.scheduler,
        dataset=inputs.dataset,
        modules=own_modules(inputs.folder),
    )
