"""How a search ended, and how far one is that goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from raykit.errors import CancelledError
from raykit.fleet.follow import Glimpse
from raykit.fleet.metrics import SearchFacts
from raykit.fleet.pool.pool import Glance
from raykit.fleet.qc.heed import words
from raykit.fleet.search.job import Report
from raykit.read.qc_runs import RunsRead
from raykit.records import BY_BUDGET, Picked, RowEnded, SearchRegistration, Unit
from raykit.search import RowState, SearchState, Status, excluded, pick, rank, run_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One row that is under way."""

    run: str
    glimpse: Glimpse | None
    newest: Report | None
    """What it has reported last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGlimpse:
    """One look at a search, for a progress display."""

    experiment: str
    rows: int
    ended: int
    metric: str
    live: Sequence[Live]
    waiting: int
    best: tuple[str, float] | None
    """The best completed trial so far, and its value."""
    qc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOutcome:
    """How a search ended, or how it stands now that its process lets go of it."""

    experiment: str
    registration: SearchRegistration
    counts: Mapping[Status, int]
    """Rows by status: the six ends, `begun` and `waiting`."""
    already: bool = False
    """It was over before, and nothing was written."""
    stopped: str | None = None
    """Why it is not over: a signal, a pause, or that money is short."""
    cancelled: bool = False
    """A person ended it for good: that is why it has stopped."""
    short: bool = False
    """A budget has ended rows: they go on once a person has moved money."""
    picked: Picked | None = None
    unpicked: str | None = None
    """Why nothing is picked, though every row has its end."""
    ends: Sequence[RowEnded] = ()
    """Of the rows that have ended, in the order of the table."""
    cost: int = 0
    """Of all rows so far, in micro-units of its account."""
    qc: RunsRead | None = None
    pictures: Sequence[str] = ()

    @property
    def unit(self) -> Unit:
        return self.registration.unit

    @property
    def exit_code(self) -> int:
        """0 once it is picked from; 3 if it was cancelled, or nothing can be picked; 4 where it goes on later."""
        if self.cancelled:
            return CancelledError.exit_code
        if self.stopped is not None or self.short:
            return 4
        return 0 if self.unpicked is None else 3


def outcome_of(
    state: SearchState,
    *,
    already: bool = False,
    stopped: str | None = None,
    cancelled: bool = False,
    qc: RunsRead | None = None,
    pictures: Sequence[str] = (),
) -> SearchOutcome:
    """How a search stands by its log."""
    return SearchOutcome(
        experiment=state.registration.experiment,
        registration=state.registration,
        counts=state.counts,
        already=already,
        stopped=stopped,
        cancelled=cancelled,
        short=not cancelled and any(state.counts[end] for end in BY_BUDGET),
        picked=state.picked,
        unpicked=None if cancelled else unpicked(state),
        ends=[row.ended for row in state.rows if row.ended is not None],
        cost=state.cost,
        qc=qc,
        pictures=pictures,
    )


def unpicked(state: SearchState) -> str | None:
    """Why nothing can be picked, though every row has its end, by the best or first that was tried; None if it can."""
    if not state.closed or pick(state) is not None:
        return None
    counts = ", ".join(f"{many} {status}" for status, many in state.counts.items() if many)
    if any(state.counts[end] for end in BY_BUDGET):
        return f"nothing is picked of {len(state.rows):,} rows ({counts}) while rows wait for money"
    best = next(iter(rank(state)), None)
    first = min(
        excluded(state), key=lambda each: (each.row != best, not state.row(each.row).launches, each.row)
    )
    return f"nothing can be picked of {len(state.rows):,} rows ({counts}): {run_of(first.row)}: {first.why}"


def glimpse_of(state: SearchState, live: Sequence[Live], glance: Glance | None) -> SearchGlimpse:
    """One look at a search whose rows `live` are under way."""
    return SearchGlimpse(
        experiment=state.registration.experiment,
        rows=len(state.rows),
        ended=len(state.rows) - len(state.open),
        metric=state.registration.metric.removeprefix("development."),
        live=live,
        waiting=len(state.open) - len(live),
        best=best_so_far(state),
        qc=None if glance is None else words(glance),
    )


def best_so_far(state: SearchState) -> tuple[str, float] | None:
    """The best completed trial, and its value."""
    best = next(iter(rank(state)), None)
    row = None if best is None else state.row(best)
    return None if row is None or row.value is None else (row.run, row.value)


def facts_of(state: SearchState, in_hand: Collection[int], reports: int) -> SearchFacts:
    """How far a search is, as a dashboard is told."""
    best = best_so_far(state)
    return SearchFacts(
        experiment=state.registration.experiment,
        trials=Counter(_word(row, in_hand) for row in state.trials),
        repeats=Counter(_word(row, in_hand) for row in state.repeats),
        best=None if best is None else best[1],
        reports=reports,
    )


def _word(row: RowState, in_hand: Collection[int]) -> str:
    if row.ended is not None:
        return row.ended.end
    return "running" if row.n in in_hand else "waiting"
