"""How a launch ended."""

from __future__ import annotations

from dataclasses import dataclass

from raykit.errors import CancelledError, by_kind
from raykit.read.qc import QcRead
from raykit.records import Cause, EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a launch ended."""

    experiment: str
    run: str
    reason: EndReason
    update: int
    already: bool = False
    detail: str | None = None
    remedy: str | None = None
    """What would pass, where something was refused."""
    cause: Cause | None = None
    cancelled: bool = False
    """A person ended its experiment for good while it ran."""
    exactness: str | None = None
    """Its class in words, such as `exact (replayed)`; None if it has not begun."""
    ratio: float | None = None
    curves: tuple[str, ...] = ()
    qc: QcRead | None = None
    """How far its examinations are; None if its plan has no `[qc]`, or if that could not be read."""
    pictures: tuple[str, ...] = ()
    """Keys of the charts and the contact sheet of its examinations."""
    cost: int | None = None
    """What this launch has cost, in micro-units of its account; None if nobody knows yet."""

    @property
    def exit_code(self) -> int:
        """0 completed; 3 cancelled; 4 paused; otherwise the code of the error that ended it."""
        if self.reason == "completed":
            return 0
        if self.reason in ("paused", "preempted"):
            return CancelledError.exit_code if self.cancelled else 4
        return by_kind((self.detail or "").split(":", 1)[0]).exit_code
