"""What the process that runs a search does next: a pure function of the table and of the rows that it has in hand.

Rows that were begun and have no end come first, then trials in their order; repeats take their settings only once every
trial has its end. A row whose setting is drawn waits for nobody: it is drawn from what had ended by then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from raykit.search.pick import rank
from raykit.search.table import RowState, SearchState


@dataclass(frozen=True, slots=True)
class Start:
    """Begin this row, or go on with it."""

    row: int


@dataclass(frozen=True, slots=True)
class Draw:
    """The setting of this row is drawn first: by the sampler, or that of the trial which it repeats."""

    row: int
    repeats: int | None = None


@dataclass(frozen=True, slots=True)
class EndRow:
    """This row ends without having begun: nobody needs it any more."""

    row: int
    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be begun until a row in hand has ended."""


@dataclass(frozen=True, slots=True)
class Done:
    """Every row has its end."""


Turn = Start | Draw | EndRow | Wait | Done


def next_turn(state: SearchState, live: Collection[int]) -> Turn:
    """What comes next, with the rows `live` in hand."""
    waiting = [each for each in state.open if each.n not in live]
    if not waiting:
        return Wait() if live else Done()
    if len(live) >= state.registration.concurrent:
        return Wait()
    if begun := next((each for each in waiting if each.launches), None):
        return Start(begun.n)
    first = waiting[0]
    if first.params is not None:
        return Start(first.n)
    return Draw(first.n) if first.row.kind == "trial" else _repeat(state, first)


def _repeat(state: SearchState, row: RowState) -> Draw | EndRow | Wait:
    if any(each.ended is None for each in state.trials):
        return Wait()
    trial = repeated(state, row.row.rank or 1)
    if trial is not None:
        return Draw(row.n, repeats=trial)
    reached = len(rank(state))
    return EndRow(row.n, f"no trial has come to rank {row.row.rank}: {reached} were completed with a value")


def repeated(state: SearchState, place: int) -> int | None:
    """The trial that repeats of a rank repeat; None if no trial has come to it.

    Repeats of one rank repeat one trial, and those of two ranks never the same, even where a trial that was opened
    again has changed the order meanwhile.
    """
    held = {each.row.rank: each.repeats for each in state.repeats if each.repeats is not None}
    if place in held:
        return held[place]
    free = [n for n in rank(state) if n not in held.values()]
    position = sum(1 for other in range(1, place) if other not in held)
    return free[position] if position < len(free) else None
