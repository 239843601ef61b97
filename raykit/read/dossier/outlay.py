"""What an experiment was projected to take when it was planned, beside what it has taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raykit.plan import Lock
from raykit.read.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Money in micro-units of the account's unit, times in milliseconds."""

    cost: int
    wall_ms: int | None
    """None if nobody knows how long it was to take."""
    accelerator_ms: int | None
    """None if nobody knows that, or how many accelerators it was to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """The projection is that of the first launch, as its account keeps it."""

    projected: Took
    actual: Took
    uncertain: bool
    """The projection was a guess: nothing compatible had been measured."""


def outlay_of(money: Money, lock: Lock | None) -> Outlay:
    """Projected and actual, of the whole experiment."""
    held, expected_ms = accelerators_in(lock), money.expected_ms or None
    return Outlay(
        projected=Took(
            cost=money.expected,
            wall_ms=expected_ms,
            accelerator_ms=None if held is None or expected_ms is None else expected_ms * held,
        ),
        actual=Took(cost=money.actual, wall_ms=money.held_ms, accelerator_ms=money.accelerator_ms),
        uncertain=money.uncertain,
    )


def accelerators_in(lock: Lock | None) -> int | None:
    """The accelerators that the plan's training gang holds; each rank counts as one where no pool has any."""
    if lock is None:
        return None
    pools, run = lock.settings.get("pools"), lock.settings.get("run")
    train = pools.get("train") if isinstance(pools, Mapping) else None
    gpus = train.get("gpus") if isinstance(train, Mapping) else None
    workers = run.get("workers") if isinstance(run, Mapping) else None
    return gpus or workers


__all__ = ["Outlay", "Took", "outlay_of"]
