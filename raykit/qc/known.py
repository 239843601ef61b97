"""The metrics that raykit works out itself: their names, what they mean, and between which numbers they lie. Pure.

No recipe may give one of these names a meaning of its own, in training or in an examination.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from raykit.qc.strata import Better

WORST = "worst."
"""Before the name of a metric: its value in the stratum that does worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One metric. A `name` that ends in a dot stands for all that begin so."""

    name: str
    says: str
    better: Better | None = None
    low: float = -math.inf
    high: float = math.inf
    asks: str = "losses"
    """The method of a recipe that it is worked out from; empty where nothing is asked."""
    strata: bool = True
    """Whether it has a value for each stratum, and so a worst one."""


KNOWN = (
    Known(name="loss", says="the weighted sum of all terms", better="less"),
    Known(
        name="ratio",
        says="loss over that of no skill; 1 is no skill",
        better="less",
        low=0.0,
    ),
    Known(name="ratio.", says="the same of one term", better="less", low=0.0),
    Known(
        name="ratio_median",
        says="the median of the examples' own ratios",
        better="less",
        low=0.0,
    ),
    Known(
        name="no_skill_share",
        says="share of examples that do no better than no skill",
        better="less",
        low=0.0,
        high=1.0,
    ),
    Known(
        name="nonfinite",
        says="share of examples with a number that is not finite",
        better="less",
        low=0.0,
        high=1.0,
        asks="",
    ),
    Known(
        name="failed",
        says="share of examples that were not scored",
        better="less",
        low=0.0,
        high=1.0,
        asks="",
    ),
    Known(name="missing", says="share of examples that are gone", better="less", low=0.0, high=1.0, asks=""),
    Known(
        name="accuracy",
        says="share of examples that are classified right",
        better="more",
        low=0.0,
        high=1.0,
        asks="classify",
    ),
    Known(
        name="calibration_error",
        says="how far confidence lies from accuracy",
        strata=False,
        better="less",
        low=0.0,
        high=1.0,
        asks="classify",
    ),
    Known(name="brier", says="mean squared error of probabilities", better="less", low=0.0, asks="classify"),
    Known(
        name="brier_skill",
        says="1 is perfect, 0 is the shares of the classes",
        better="more",
        high=1.0,
        asks="classify",
    ),
    Known(
        name="recall.",
        says="share of one class that is found",
        strata=False,
        better="more",
        low=0.0,
        high=1.0,
        asks="classify",
    ),
    Known(name="support.", says="examples of one class", low=0.0, asks="classify", strata=False),
    Known(name="bits_per_byte", says="bits for each byte of text", better="less", low=0.0, asks="text"),
    Known(
        name="effective_rank",
        says="directions that the embeddings span",
        strata=False,
        better="more",
        low=0.0,
        asks="embed",
    ),
    Known(
        name="embedding_spread",
        says="how far the embeddings lie apart",
        better="more",
        low=0.0,
        asks="embed",
    ),
)


def known(name: str) -> Known | None:
    """The metric of that name, or the one whose worst stratum it is; None if raykit has none."""
    plain = name.removeprefix(WORST)
    for each in KNOWN:
        if plain == each.name or (each.name.endswith(".") and plain.startswith(each.name)):
            return each
    return None


def is_taken(name: str, methods: Collection[str]) -> bool:
    """Whether a recipe with these methods may not call a metric of its own so.

    Names of classifiers, texts and embeddings are free as long as the recipe has no such method.
    """
    found = known(name)
    if name.startswith(WORST):
        return True
    return found is not None and (
        found.asks in ("", "losses", *methods) or found.name in ("recall.", "support.")
    )
