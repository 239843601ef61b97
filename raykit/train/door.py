"""The door to spending, as training sees it: nothing starts without a grant, and a grant is kept alive by beats.

Only the protocol: whoever answers, a ledger or an actor in front of it, is in `raykit.fleet.door`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one attempt may use."""

    lease: str
    left_ms: int
    """How much is left, at the moment of the answer, of the time that is paid for."""
    wall_ms: int | None
    """How much of it may be productive, counted from the first update; None if the plan has no cap."""
    drain_ms: int
    """The part of it in which work ends and is made durable."""
    accelerators: int
    invested_ms: int
    """Accelerator-milliseconds that this experiment's training has held until now, over all attempts."""


class Door(Protocol):
    """Where an attempt asks. Every call returns or raises within a deadline of its own."""

    def begin(self, launch: str, ordinal: int) -> Grant:
        """Reserve attempt `ordinal` (from 1) of this launch at its worst case, unless it is reserved already.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            LeaseLostError: this attempt has ended, or a later one has begun.
            StoreUnavailableError: the store did not answer.
            UnknownOutcomeError: the reply was lost. Asking again is safe.
            DeadlineError: nobody answered for so long that it is time to stop.
        """
        ...

    def beat(self, lease: str) -> None:
        """Say that the work under this lease goes on, and learn whether it may.

        Raises:
            LeaseLostError: the lease has ended.
            StoreUnavailableError: whoever answers has not reached the store for a while.
            DeadlineError: nobody answered.
        """
        ...


__all__ = ["Door", "Grant"]
