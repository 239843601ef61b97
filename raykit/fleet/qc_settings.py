"""What a plan says of its QC workers, and what there is for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from raykit.budget.book import Book
from raykit.fleet.qc_actor import BENCH
from raykit.fleet.qc_lease import Price
from raykit.plan import Plan
from raykit.read.sizing import accelerators_of, pool_of, rate_of
from raykit.train.facts import local_device

RESOURCE: Final = "qc"
"""The Ray resource of which each worker takes one: training never holds it."""
GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class QcSettings:
    """What holds for the workers of one pool."""

    deadline_s: float | None = None
    """What one check may take; worked out from the first one if not said."""
    memory_bytes: int | None = None
    """What one worker may hold; a share of what is free if not said."""
    slots: int = 1
    """How many workers there may be at once."""
    gpus: float = 0.0
    """Of each worker."""
    shares: bool = False
    """They use the accelerators that training holds."""
    price: Price = field(default_factory=Price)
    bench: str = BENCH
    """What examines, as `module:Class`."""

    @property
    def on_gpu(self) -> bool:
        """They hold their weights on an accelerator: the machine's memory says little about them."""
        return self.gpus > 0 or self.shares

    @property
    def resources(self) -> dict[str, float]:
        """What a local Ray is started with, beside one CPU for each worker."""
        return {RESOURCE: float(self.slots)}


def settings_of(
    plan: Plan, book: Book | None, *, projection: str | None, workers: int | None = None
) -> QcSettings:
    """The settings of a plan with `[qc]`; `workers` is how many a person wants at once."""
    qc = plan.qc
    assert qc is not None
    rate, source = rate_of(plan, book, "qc")
    pool, cuda = pool_of(plan, "qc"), local_device(plan) == "cuda"
    shares = qc.shares is not None and (pool is None or not pool.gpus)
    return QcSettings(
        deadline_s=qc.deadline_s,
        memory_bytes=None if qc.memory_gb is None else int(qc.memory_gb * GB),
        slots=workers or accelerators_of(plan, "qc"),
        gpus=1.0 if cuda and not shares else 0.0,
        shares=cuda and shares,
        price=Price(
            rate=rate,
            source=source,
            margin_permille=1000 if plan.budget is None else round(plan.budget.margin * 1000),
            projection=projection,
        ),
    )
