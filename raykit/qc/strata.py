"""One number over all scored units, and over those of each stratum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raykit.records import Score

Array = np.ndarray[Any, Any]

Better = Literal["less", "more"]

Value = Callable[[Array], float | None]
"""A number over the units of these places, of which there is at least one; None where it is undefined."""


@dataclass(frozen=True, slots=True)
class Strata:
    """The places of the scored units among themselves, all of them and by stratum."""

    all: Array
    by_name: Mapping[str, Array]

    @classmethod
    def of(cls, strata: Sequence[str], names: Sequence[str]) -> Strata:
        """`strata` has one name for each scored unit, `names` has all strata of the roster."""
        found: dict[str, list[int]] = {name: [] for name in sorted(names)}
        for place, name in enumerate(strata):
            found[name].append(place)
        return cls(np.arange(len(strata)), {name: np.array(places, int) for name, places in found.items()})

    def score(self, value: Value, *, better: Better | None = None, no_skill: float | None = None) -> Score:
        """`value` pooled and in each stratum; None where there is no unit, or it is undefined or not finite."""
        return Score(
            value=_number(value, self.all),
            strata={name: _number(value, places) for name, places in self.by_name.items()},
            no_skill=no_skill,
            better=better,
        )

    def pooled(self, value: Value, *, better: Better | None = None, no_skill: float | None = None) -> Score:
        """`value` over all units alone, where it means nothing over the few of one stratum."""
        return Score(value=_number(value, self.all), strata={}, no_skill=no_skill, better=better)


def _number(value: Value, places: Array) -> float | None:
    try:
        found = value(places) if len(places) else None
    except OverflowError:  # a sum beyond double precision
        return None
    return None if found is None or not math.isfinite(found) else float(found)
