"""How a row ends: what its run came to, and what that is worth."""

from __future__ import annotations

from dataclasses import dataclass

from raykit.reconcile import RunState
from raykit.records import End, RowEnded
from raykit.search import RowState
from raykit.search.worth import Worth


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What a row came to, in one of the six words."""

    end: End
    detail: str | None = None


def came_to(row: RowState, run: RunState, *, cancelled: str | None = None) -> Came | None:
    """What a row that is not under way came to, by the log of its run; None if it goes on."""
    ended = run.ended
    if run.completed:
        return Came(end="completed", detail=None if ended is None else ended.detail)
    if row.ruled is not None:
        return Came(end="stopped-by-scheduler", detail=row.ruled.why)
    if cancelled is not None:
        return Came(end="censored-by-budget", detail=cancelled)
    newest, launched = run.attempt, run.launched
    own = newest is not None and launched is not None and newest.launch == launched.launch
    if own and run.released is not None and ended is not None and ended.reason in ("failed", "killed"):
        return Came(end="failed", detail=ended.detail or ended.reason)
    return None


def row_ended(row: RowState, came: Came, worth: Worth, run: RunState, *, cost: int) -> RowEnded:
    """The event that ends a row."""
    return RowEnded(
        row=row.n,
        end=came.end,
        update=run.recorded(),
        value=worth.value,
        at=worth.at,
        checkpoint=worth.checkpoint,
        cost=cost,
        attempts=len(run.attempts),
        detail=None if came.detail is None else came.detail[:2000],
    )
