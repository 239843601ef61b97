"""What making one unit of a synthetic set gives, and who does it: the seam between the worker and what it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raykit.records import UnitReceipt
from raykit.shards.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A receipt, and the bytes of the Parquet file that it names."""

    receipt: UnitReceipt
    data: bytes
    peak_bytes: int = 0
    """The most memory that was held; on an accelerator, of that."""
    picture: bytes | None = None
    """A PNG of its first rows, where the recipe draws them: of the first unit only."""


class Make(Protocol):
    """Makes one unit. Under an exact contract the same unit always gives the same bytes."""

    def __call__(self, unit: Unit) -> Made:
        """Make all rows of a unit.

        Raises:
            GateError: more of its rows are bad than the contract allows (`bounds...`), or the recipe gives something of
                another shape.
            CorruptError: stored bytes do not match their digests.
            StoreUnavailableError: the store did not answer.
            Exception: whatever the recipe's own code raises, where no row of the unit was made.
        """
        ...
