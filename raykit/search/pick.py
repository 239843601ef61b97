"""What was observed to be best: by value, over rows that were completed, and over seeds where settings were repeated.

It is only observed. Nothing here says that the difference matters, and whoever reads it is told how many were tried and
what became of those that do not count.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from raykit.records import End, Excluded, Picked
from raykit.search.table import RowState, SearchState, run_of

MAX_WHY = 200
"""Characters: a table may have very many rows, and all of it is one entry of a log."""

_WHY: dict[End, str] = {
    "failed": "it failed",
    "stopped-by-scheduler": "the scheduler stopped it",
    "censored-by-budget": "its budget ended it",
    "refused-by-budget": "its worst case was not admitted",
    "never-started": "it was never started",
}


def rank(state: SearchState) -> tuple[int, ...]:
    """The trials that were completed with a finite value, best first; of equal ones, the first in the table."""
    valued = [(each.value, each.n) for each in state.trials if each.value is not None]
    return tuple(n for _, n in sorted(valued, key=lambda pair: (_order(state, pair[0]), pair[1])))


def pick(state: SearchState, *, candidate: str | None = None) -> Picked | None:
    """The best setting that was observed; None if no row has its say, or as long as a row is open.

    Where the table has repeats, only a setting that was repeated in full can be picked, by its mean over seeds.
    """
    if not state.closed:
        return None
    groups = [(_mean(rows), rows) for rows in _considered(state)]
    if not groups:
        return None
    groups.sort(key=lambda group: (_order(state, group[0]), group[1][0].n))
    value, rows = groups[0]
    return Picked(
        row=rows[0].n,
        value=value,
        values=tuple(each.value for each in rows if each.value is not None),
        tried=len(state.rows),
        ranked=tuple(rows[0].n for _, rows in groups),
        excluded=excluded(state),
        candidate=candidate,
    )


def excluded(state: SearchState) -> tuple[Excluded, ...]:
    """Every row that a pick does not consider, and why."""
    considered = {each.n for rows in _considered(state) for each in rows}
    again, alone = _repeats(state), _never_repeated(state)
    return tuple(
        Excluded(row=each.n, why=_why(state, each, again, alone))
        for each in state.rows
        if each.n not in considered
    )


def _order(state: SearchState, value: float) -> float:
    return value if state.registration.mode == "min" else -value


def _mean(rows: Sequence[RowState]) -> float:
    # exact, then rounded once: neither the sum of two large values nor a share of a tiny one is a float
    return statistics.mean(each.value for each in rows if each.value is not None)


def _considered(state: SearchState) -> Iterator[tuple[RowState, ...]]:
    """The settings that can be picked, each as its rows: the trial, then its repeats."""
    again = _repeats(state)
    repeated = bool(state.repeats)
    for n in rank(state):
        repeats = again.get(n, ())
        if bool(repeats) == repeated and all(each.value is not None for each in repeats):
            yield (state.rows[n - 1], *repeats)


def _repeats(state: SearchState) -> Mapping[int, Sequence[RowState]]:
    """By trial: the rows of the rank that repeats it, those included that nobody came to draw."""
    trials = {each.row.rank: each.repeats for each in state.repeats if each.repeats is not None}
    found: dict[int, list[RowState]] = defaultdict(list)
    for each in state.repeats:
        if (trial := trials.get(each.row.rank)) is not None:
            found[trial].append(each)
    return found


def _never_repeated(state: SearchState) -> frozenset[int]:
    """Trials among the best of whose rank no repeat was drawn: what was to repeat them never began."""
    ranked, drawn = rank(state), {each.row.rank for each in state.repeats if each.repeats is not None}
    ranks = {each.row.rank for each in state.repeats if each.row.rank is not None} - drawn
    return frozenset(ranked[each - 1] for each in ranks if each <= len(ranked))


def _why(
    state: SearchState, row: RowState, again: Mapping[int, Sequence[RowState]], alone: frozenset[int]
) -> str:
    if row.ended is None:
        return "it has not ended"
    if row.ended.end != "completed":
        detail = "" if row.ended.detail is None else f": {row.ended.detail}"
        return (_WHY[row.ended.end] + detail)[:MAX_WHY]
    if row.value is None:
        return f"{state.registration.metric} is not finite"
    repeats = again.get(row.repeats or row.n, ())
    if row.n in alone:
        return "it is among the best, and was not repeated"
    if not repeats:
        return "it is not among the best, which were repeated"
    return "its setting is incomplete: " + next(_said(state, each) for each in repeats if each.value is None)


def _said(state: SearchState, row: RowState) -> str:
    if row.ended is not None and row.ended.end == "completed":
        return f"{state.registration.metric} of {run_of(row.n)} is not finite"
    return f"{run_of(row.n)} is {row.status}"
