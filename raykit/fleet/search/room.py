"""The room that the rows of a search take: how many train at once, on how many CPUs and accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from raykit.fleet.accelerators import held_by_training, there_are
from raykit.plan import Plan

SPARE_CPUS: Final = 1
"""Beside what rows hold, on a private Ray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the rows take that train at once."""

    rows: int
    bundle: Mapping[str, float]
    """What the process of one trial asks Ray for."""
    cpus: int
    gpus: int
    """Of each row."""
    spare: int = SPARE_CPUS

    def within(self, gpus: int) -> int:
        """How many rows there may be at once where there are so many accelerators."""
        return self.rows if self.gpus == 0 else max(1, min(self.rows, gpus // self.gpus))


def room_of(plan: Plan, rows: int) -> Room:
    """The room for so many rows at once.

    One worker is the trial's own process. More of them are a gang that asks for itself, beside the process that has
    started it.
    """
    workers = plan.run.workers
    gpus = 1 if held_by_training(plan, there_are()) else 0
    if workers == 1:
        bundle = {"CPU": 1.0, **({"GPU": 1.0} if gpus else {})}
        return Room(rows=rows, bundle=bundle, cpus=rows, gpus=gpus)
    return Room(rows=rows, bundle={"CPU": 1.0}, cpus=rows * (workers + 1), gpus=gpus * workers)
