"""Schedules are stepped through before anything is trained, as far as the run goes, and it is said how far.

FAULT-A16
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest
import torch
from smallrun import Run, Small
from torch import nn
from torch.optim import lr_scheduler

from raykit.errors import GateError
from raykit.train.schedule import STEPS_FOR_S, step_through


def scheduled(make: Any) -> type[Small]:
    class Scheduled(Small):
        def scheduler(self, optimizer: Any, params: Any) -> Any:
            return make(optimizer)

    return Scheduled


def optimized(make: Any) -> type[Small]:
    class Optimized(Small):
        def optimizer(self, model: nn.Module, params: Any) -> Any:
            return make(model.parameters())

    return Optimized


class EveryFourth:
    """A wrapper that steps a schedule every four updates."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0

    def step(self) -> None:
        self.calls += 1
        if self.calls % 4 == 0:
            self.inner.step()


GOOD = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=40),
    "one cycle of the run's length": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    "a warm-up, then a decay": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=5), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[5]
    ),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, milestones=[3, 3, 9]),
    "a wrapper": lambda o: EveryFourth(lr_scheduler.StepLR(o, 2)),
    "a rate that is 0": lambda o: lr_scheduler.LambdaLR(o, lambda n: 0.0),
}


@pytest.mark.parametrize("what", GOOD)
def test_a_schedule_that_lasts_is_stepped_through_to_the_last_update(what: str) -> None:
    run = Run(scheduled(GOOD[what])())
    assert step_through(run.built, 20) == "schedule stepped through all 20 of 20 updates"


def test_without_a_schedule_there_is_nothing_to_say() -> None:
    assert step_through(Run().built, 20) is None


def test_a_long_schedule_is_stepped_through_for_two_seconds_and_it_says_how_far() -> None:
    ticks = count()
    run = Run(scheduled(GOOD["cosine"])())
    said = step_through(run.built, 5_000_000, clock=lambda: next(ticks) * STEPS_FOR_S / 1001)
    assert said == "schedule stepped through 1,000 of 5,000,000 updates"


REFUSED = {
    "a schedule for nine updates": (
        scheduled(lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=9)),
        "the schedule raised ValueError after update 10: Tried to step 10 times",
        "give it the length of the run",
    ),
    "a schedule that wants a metric": (
        scheduled(lr_scheduler.ReduceLROnPlateau),
        r"ReduceLROnPlateau.step\(\) needs metrics",
        "a schedule of the update alone",
    ),
    "an optimizer that wants a closure": (
        optimized(lambda p: torch.optim.LBFGS(p, lr=0.1)),
        r"LBFGS.step\(\) needs closure",
        "an optimizer that steps on the gradients that are there",
    ),
    "a rate that is no number": (
        scheduled(lambda o: lr_scheduler.LambdaLR(o, lambda n: math.nan if n == 7 else 1.0)),
        "the learning rate of group 0 is nan after update 7",
        "look at how run.params make it",
    ),
    "an infinite rate from the start": (
        optimized(lambda p: torch.optim.SGD(p, lr=math.inf)),
        "the learning rate of group 0 is inf after update 0",
        "look at how run.params make it",
    ),
    "a rate below zero": (
        scheduled(lambda o: lr_scheduler.LambdaLR(o, lambda n: 1.0 - n / 12)),
        "the learning rate of group 0 is -0.00083",
        "look at how run.params make it",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_schedule_that_does_not_last_is_refused_before_anything_is_trained(what: str) -> None:
    recipe, says, remedy = REFUSED[what]
    run = Run(recipe())
    with pytest.raises(GateError, match=says) as refusal:
        step_through(run.built, 20)
    assert remedy in (refusal.value.remedy or "") and refusal.value.field
    assert run.live.progress.update == 0


def test_one_that_raises_later_than_anybody_looked_names_its_update() -> None:
    run = Run(scheduled(lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=9))())
    assert len(run.to(9)) == 9
    with pytest.raises(GateError, match="raised ValueError after update 10"):
        run.to(10)
