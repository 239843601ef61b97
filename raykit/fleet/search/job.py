"""What goes to the process of a trial, and what comes back from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One evaluation of one row, as the scheduler hears it: its value is finite."""

    run: str
    update: int
    value: float


class Job(Protocol):
    """What a trial does in its own process. Travels there pickled."""

    def __call__(self, report: Callable[[Report], None]) -> None:
        """Work to the end, and report every evaluation once.

        Raises:
            RaykitError: something was refused on purpose: to try again would be refused again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """One start of one row, as Tune gets it."""

    run: str
    serial: int
    """From 1, over all starts of this driver."""
    title: str
    """What the dashboard calls it."""
    job: Job

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """How one start came back."""

    refused: str | None = None
    """What was refused on purpose, as `kind: message`."""
    failed: str | None = None
    """What its own code raised, as `type: message`."""
    lost: str | None = None
    """Why nobody knows: its process died, or Tune did."""
