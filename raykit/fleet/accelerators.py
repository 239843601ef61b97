"""How the accelerators that there are divide between training and the checks beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raykit.errors import GateError
from raykit.fleet.session import gpus_of_cluster
from raykit.plan import Plan
from raykit.read.sizing import pool_of

SHARE: Final = 0.5
"""Of an accelerator that is shared with checks: what a rank asks Ray for. A figure for Ray, which bounds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """What one launch holds."""

    there: int
    held: int
    """By training; 0 if that runs on CPUs."""
    rank: float
    """What each rank asks for."""
    check: float
    """What each worker of its checks asks for; with 0 they run on CPUs."""


def there_are() -> int:
    """The accelerators for work that this process starts: of its cluster inside a Ray job, else of this machine.

    Raises:
        RaykitError: the cluster could not be joined.
    """
    from raykit.train.facts import accelerators_here

    found = gpus_of_cluster()
    return accelerators_here() if found is None else found


def divide(plan: Plan, *, slots: int, there: int | None = None) -> Division:
    """Who gets how much, with so many workers for checks; of all that are `there` if that is not said.

    Checks have accelerators of their own, where training leaves enough; they share those of training only with a
    written reason and a bound on their memory, and run on CPUs otherwise.
    """
    there = there_are() if there is None else there
    held = held_by_training(plan, there)
    free = there - held
    if slots and 0 < slots <= free:
        return Division(there=there, held=held, rank=float(held > 0), check=1.0)
    if not held or not _may_share(plan) or not slots:
        return Division(there=there, held=held, rank=float(held > 0), check=0.0)
    on_each = -(-slots // held)
    return Division(there=there, held=held, rank=SHARE, check=1000 * (1 - SHARE) // on_each / 1000)


def held_by_training(plan: Plan, there: int) -> int:
    """The accelerators that ranks hold at once; 0 if they run on CPUs."""
    from raykit.train.facts import local_device

    rows = 1 if plan.search is None else plan.search.concurrent
    workers = plan.run.workers
    if local_device(plan, there) != "cuda":
        return 0
    return workers * max(1, min(rows, there // workers))


def _may_share(plan: Plan) -> bool:
    qc = plan.qc
    return plan.search is None and qc is not None and qc.shares is not None and qc.memory_gb is not None


def require_divisible(plan: Plan, *, slots: int) -> None:
    """Let only a plan start that has accelerators for its ranks, and for the checks that it wants on their own.

    Raises:
        GateError: it has not; or checks would share those of training without a reason, or without a bound.
        RaykitError: the cluster could not be joined.
    """
    there = there_are()
    if plan.run.device == "cuda" and there < plan.run.workers:
        raise GateError(
            f"training needs {plan.run.workers} accelerators, and {there} can be had here",
            field="run.device",
            value="cuda",
            rule="one accelerator for each rank",
            remedy='fewer run.workers, or run.device = "auto", which takes CPUs where there are too few',
        )
    held, pool = held_by_training(plan, there), pool_of(plan, "qc")
    wanted = min(slots, pool.gpus) if pool is not None else 0
    if plan.qc is None or not held or not wanted or there - held >= wanted:
        return
    if plan.qc.shares is None:
        raise GateError(
            f"training takes {held} of the {there} accelerators, and checks want {wanted} of their own",
            field="qc.shares",
            rule="checks run beside training, on accelerators of their own",
            remedy='pools.qc.gpus = 0 for checks on CPUs, or a written reason: qc.shares = "..."',
        )
    if plan.qc.memory_gb is None:
        raise GateError(
            f"checks share the {held} accelerators that training takes, and nothing bounds what they hold there",
            field="qc.memory_gb",
            rule="whoever shares an accelerator with training has a bound on its memory",
            remedy="qc.memory_gb = ..., and let training leave as much",
        )
