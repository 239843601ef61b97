"""What a recipe may answer when it is asked to score: one rule for training and for examinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from raykit.errors import GateError
from raykit.qc.known import is_taken
from raykit.train.recipe import LossTerm

_ASKED = ("classify", "text", "embed")


def terms_of(given: Any, method: str = "losses") -> Mapping[str, LossTerm]:
    """The terms that `losses`, or a method like it, has given; of `losses` at least one.

    Raises:
        GateError: they are not a dict of `LossTerm`, or there is none.
    """
    found = named(given, method)
    for name, term in found.items():
        if not isinstance(term, LossTerm):
            raise wrong(method, f"{name}, which is no loss term", "a LossTerm for each name")
    if not found and method == "losses":
        raise wrong(method, "no term", "at least one LossTerm, for every batch")
    return found


def metrics_of(recipe: object, given: Any, rows: int) -> dict[str, torch.Tensor]:
    """The metrics that `evaluate` has given for a batch of so many rows: a number for each row that has one.

    Raises:
        GateError: a name is raykit's own, or something is not one real number per example.
    """
    methods = [method for method in _ASKED if callable(getattr(recipe, method, None))]
    found = {}
    for name, values in named(given, "evaluate").items():
        if is_taken(name, methods):
            raise wrong("evaluate", f"{name}, which raykit works out itself", "any other name")
        if not isinstance(values, torch.Tensor) or values.dim() != 1 or len(values) > rows:
            shape = f"{name} in another shape ({_shape(values)} for {rows} rows)"
            raise wrong("evaluate", shape, "a tensor with one number per example")
        if values.is_complex():
            raise wrong("evaluate", f"{name} with an imaginary part", "real numbers")
        found[name] = values.detach()
    return found


def require_per_example(name: str, alone: float, batches: float, *, given: int, rows: int) -> None:
    """Refuse a metric that had exactly one number in every batch of several rows: a mean of means is no mean.

    Raises:
        GateError: it is so, and there were two such batches at least.
    """
    if batches >= 2 and alone >= batches:
        what = f"{name} once for each batch: {given} numbers for {rows} rows"
        raise wrong("evaluate", what, "one number per example: leave out the mean over the batch")


def named(given: Any, method: str) -> Mapping[str, Any]:
    """An answer that is a dict by name.

    Raises:
        GateError: it is something else.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise wrong(method, f"{type(given).__name__} in place of a dict", "a dict by name")
    return given


def wrong(method: str, what: str, rule: str) -> GateError:
    """The refusal of an answer."""
    return GateError(f"the recipe's {method}() gives {what}", field=f"recipe.{method}", rule=rule)


def _shape(values: Any) -> str:
    return str(list(values.shape)) if isinstance(values, torch.Tensor) else type(values).__name__
