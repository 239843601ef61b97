"""One row of a search's table as people look at it: its setting, its end, what it came to and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from raykit.read.view import Health
from raykit.records import BY_BUDGET, End

ENDS: tuple[End, ...] = get_args(End)

Live = Literal["running", "stopping", "ending", "stopped"]
"""Of a row that was begun and has no end: its trial trains, is asked to stop at its next update, is over and its driver
has yet to write how it ended, or is not at work."""

RowStatus = Literal["waiting"] | Live | End

SearchHealth = Literal[Health, "needs you"]

AT_WORK: frozenset[RowStatus] = frozenset({"running", "stopping", "ending"})

THROUGH: frozenset[RowStatus] = frozenset({"completed", "stopped-by-scheduler"})
"""Ends of rows that say what a row costs."""

UNBEGUN: frozenset[RowStatus] = frozenset({"refused-by-budget", "never-started"})
"""Ends of rows that were never begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """One row of the table at one moment."""

    row: int
    run: str
    """Its run: `trial-007`."""
    kind: Literal["trial", "repeat"]
    seed: int
    params: Mapping[str, Any] | None
    """None until they are drawn."""
    rank: int | None = None
    """Of a repeat: which of the best it repeats."""
    repeats: int | None = None
    """Of a repeat: the trial that it repeats, once that is known."""
    status: RowStatus
    update: int = 0
    """The last update that is durable."""
    value: float | None = None
    """The metric: of a row at work, as it was last reported."""
    at: int | None = None
    """The update that the value is from."""
    cost: int = 0
    """Micro-units, of all attempts; of one that goes on, its worst case."""
    so_far: int | None = None
    """Of a row at work: the same, but of the attempt that goes on what it has come to by now."""
    accelerator_ms: int = 0
    """How long accelerators were held for it, times how many."""
    held_ms: int = 0
    """How long its attempts held what they run on: what lies between two of them is nobody's."""
    attempts: int = 0
    begun_at: float | None = None
    ended_at: float | None = None
    heard_at: float | None = None
    """Of a row at work: when something was last written of it."""
    checkpoint: str | None = None
    """The checkpoint that its value is from, by the digest of its manifest."""
    detail: str | None = None
    health: SearchHealth = "ok"
    """Of a row that was begun and has no end: what its rows of history say."""

    @property
    def ended(self) -> bool:
        return self.status in ENDS

    @property
    def counts(self) -> bool:
        """Whether its value may be picked."""
        return self.status == "completed" and self.value is not None

    @property
    def spent(self) -> int:
        """Micro-units, of all attempts, as far as they have come: what people look at."""
        return self.cost if self.so_far is None else self.so_far

    @property
    def took_s(self) -> float | None:
        """How long its attempts took together; None where there was none."""
        return self.held_ms / 1000 if self.attempts else None

    def plain(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "row": self.row,
            "run": self.run,
            "kind": self.kind,
            "rank": self.rank,
            "repeats": self.repeats,
            "seed": self.seed,
            "params": None if self.params is None else dict(self.params),
            "status": self.status,
            "update": self.update,
            "value": self.value,
            "at": self.at,
            "cost": self.cost,
            "so_far": self.spent,
            "accelerator_ms": self.accelerator_ms,
            "held_ms": self.held_ms,
            "attempts": self.attempts,
            "begun_at": self.begun_at,
            "ended_at": self.ended_at,
            "heard_at": self.heard_at,
            "checkpoint": self.checkpoint,
            "health": self.health,
            "detail": self.detail,
        }


def short_of_money(rows: Sequence[RowRead]) -> str | None:
    """Which rows a budget has ended, in words; None if it has ended none."""
    parts = [
        f"{many:,} {end}" for end in ENDS if end in BY_BUDGET and (many := sum(r.status == end for r in rows))
    ]
    return ", ".join(parts) or None


def left_cost(rows: Sequence[RowRead]) -> int | None:
    """What the rows without an end are expected to cost yet: each as much as one that came through, on the average.

    None as long as none has.
    """
    through = [row.spent for row in rows if row.status in THROUGH]
    if not through:
        return None
    mean = sum(through) // len(through)
    return sum(max(0, mean - row.spent) for row in rows if not row.ended)
