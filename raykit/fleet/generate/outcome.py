"""How the sets of a plan stand: while they are made, and at the end of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raykit.ids import Digest
from raykit.records import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How far one set is, while it is made."""

    name: str
    published: int
    units: int
    rows: int
    """Of the units that are published."""
    rows_requested: int
    rows_per_s: float | None
    """As the workers that are there make them."""
    workers: int
    canary: bool
    """Only the first units are made, and judged before any other."""
    eta_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOutcome:
    """How far one set is at the end of a launch."""

    manifest: Digest | None = None
    """None if it is not closed."""
    rows: Rows | None = None
    """Of the closed set."""
    new: bool = False
    """It was closed by this launch."""
    why: str | None = None
    """Why it is not closed."""
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far the sets of a plan are, and why no further."""

    experiment: str
    sets: Mapping[str, SetOutcome] = field(default_factory=dict)
    cost: int | None = None
    """What this launch has cost, in micro-units; None where nothing is billed, or nobody knows yet."""

    @property
    def exit_code(self) -> int:
        """0: every set is closed. 3: a person is needed, or it is cancelled. 4: paused, or out of money."""
        return min((each.exit_code for each in self.sets.values() if each.exit_code), default=0)

    @property
    def why(self) -> str | None:
        """Why it is not 0."""
        code = self.exit_code
        return next((each.why for each in self.sets.values() if code and each.exit_code == code), None)
