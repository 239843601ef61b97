"""Schedules, stepped through before anything is trained: on objects of their own, as far as the run goes.

A schedule that ends before its run would otherwise end the run, after all the updates that it has lasted for.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from raykit.errors import GateError, RaykitError
from raykit.train.build import Built
from raykit.train.state import Live

STEPS_FOR_S = 2.0

_IN_PLACE_OF_A_METRIC = (
    "a schedule of the update alone, such as CosineAnnealingLR; run.stop ends a run by a metric"
)
_IN_PLACE_OF_A_CLOSURE = "an optimizer that steps on the gradients that are there: AdamW, SGD, Adam"


def step_schedule(scheduler: Any, update: int) -> None:
    """One step, after this update.

    Raises:
        GateError: it has none.
    """
    try:
        scheduler.step()
    except RaykitError:
        raise
    except Exception as error:
        raise GateError(
            f"the schedule raised {type(error).__name__} after update {update}: {str(error)[:300]}",
            field="recipe.scheduler",
            value=type(scheduler).__name__,
            rule="one step after each update, to the last",
            remedy="give it the length of the run: run.updates as one of run.params",
        ) from error


def require_steppable(live: Live) -> None:
    """Let only an optimizer and a schedule pass that are stepped with nothing, at a rate that is one.

    Raises:
        GateError: one needs a closure or a metric, or a learning rate is none.
    """
    _require_no_closure(live.optimizer)
    _require_rates(live.optimizer, 0)
    if live.scheduler is not None:
        _require_no_metric(live.scheduler)


def step_through(built: Built, updates: int, *, clock: Callable[[], float] = time.perf_counter) -> str | None:
    """Step a schedule through what is left of its run, or for two seconds; what is given is used up.

    Returns how far it came; None where there is no schedule.

    Raises:
        GateError: it cannot be stepped after each update, raises, or gives a learning rate that is none; or the
            optimizer cannot step without a closure.
    """
    live, until = built.live, clock() + STEPS_FOR_S
    require_steppable(live)
    if live.scheduler is None:
        return None
    done = live.progress.update
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer was not stepped first
        while done < updates and clock() < until:
            done += 1
            step_schedule(live.scheduler, done)
            _require_rates(live.optimizer, done)
    return f"schedule stepped through {'all ' if done == updates else ''}{done:,} of {updates:,} updates"


def _require_rates(optimizer: torch.optim.Optimizer, update: int) -> None:
    for n, group in enumerate(optimizer.param_groups):
        rate = float(group.get("lr", math.nan))
        if not math.isfinite(rate) or rate < 0:
            raise GateError(
                f"the learning rate of group {n} is {rate} after update {update}",
                field="recipe.scheduler" if update else "recipe.optimizer",
                value=str(rate),
                rule="a finite number, at least 0",
                remedy="look at how run.params make it",
            )


def _require_no_metric(scheduler: Any) -> None:
    step = getattr(scheduler, "step", None)
    needed = _needed(step)
    if needed:
        raise GateError(
            f"{type(scheduler).__name__}.step() needs {needed}, and a schedule is stepped with nothing",
            field="recipe.scheduler",
            value=type(scheduler).__name__,
            rule="step()",
            remedy=_IN_PLACE_OF_A_METRIC,
        )


def _require_no_closure(optimizer: torch.optim.Optimizer) -> None:
    needed = _needed(getattr(type(optimizer), "step", None), skip=1)
    if needed:
        raise GateError(
            f"{type(optimizer).__name__}.step() needs {needed}, and an optimizer is stepped with nothing",
            field="recipe.optimizer",
            value=type(optimizer).__name__,
            rule="step()",
            remedy=_IN_PLACE_OF_A_CLOSURE,
        )


def _needed(step: Any, *, skip: int = 0) -> str:
    """The arguments that a function cannot be called without."""
    try:
        parameters = [*inspect.signature(step).parameters.values()][skip:]
    except (TypeError, ValueError):  # made of something that has none; calling it will show
        return ""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return ", ".join(
        each.name for each in parameters if each.default is each.empty and each.kind not in kinds
    )
