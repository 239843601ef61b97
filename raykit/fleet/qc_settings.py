"""What holds for the workers of one QC pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from raykit.fleet.qc_actor import Maker
from raykit.fleet.qc_lease import Price

RESOURCE: Final = "qc"
"""The Ray resource of which each worker takes one: training never holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QcSettings:
    """What a plan says of its QC workers, and what there is for them."""

    deadline_s: float | None = None
    """What one check may take; worked out from the first one if not said."""
    memory_bytes: int | None = None
    """What one worker may hold; a share of what is free if not said."""
    slots: int = 1
    """How many workers there may be at once."""
    gpus: float = 0.0
    """Of each worker. With one, the machine's memory says little about it, and bounds nothing."""
    price: Price = field(default_factory=Price)
    bench: Maker | None = None
    """What makes that which examines; None where it is raykit's own."""
