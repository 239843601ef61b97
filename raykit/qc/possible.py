"""What a number of a recipe cannot be, whoever asks: training before its first update, an evaluation, an examination.

Pure. A number that cannot be is no score: it is refused by its name, and never set beside a threshold.
"""

from __future__ import annotations

import math

from raykit.errors import GateError

NATS = "sum of -log p over the whole text, at least 0"


def require_term(name: str, value: float, mean_square: float | None) -> None:
    """Let only a loss term pass that can be; `mean_square` is that of its target, None of any but a squared error.

    Raises:
        GateError: a squared error is below zero, or the mean square of a target is more than its numbers hold.
    """
    if mean_square is None:
        return
    if value < 0.0:
        raise GateError(
            f"the recipe's losses() gives {name} = {value:.4g}, and a squared error is never below zero",
            field=f"recipe.losses.{name}",
            value=value,
            rule="the mean of (prediction - target)^2: target= is for squared errors",
            remedy="turn its sign, or say reference= or no_reference= if it is no squared error",
        )
    if math.isinf(mean_square):
        raise GateError(
            f"the mean square of the target of {name} is more than single precision holds",
            field="LossTerm.target",
            value=mean_square,
            rule="a finite mean square: it is what predicting zero scores",
            remedy="give the target in a larger unit, or say reference=",
        )
