"""The table of a search: its rows as they are registered, and what its log makes of them.

Trials come first, from 1: those that the plan names, then those of its grid or drawn at random, or by a sampler that
learns (they have no setting until their turn comes). The repeats of the best follow, by rank, then by seed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal

from raykit.errors import CorruptError
from raykit.ids import canonical
from raykit.plan.tables import Search
from raykit.records import (
    BY_BUDGET,
    Begun,
    Drawn,
    Driven,
    End,
    LetGo,
    Picked,
    Record,
    Reopened,
    RowEnded,
    Ruled,
    SearchEntry,
    SearchRegistration,
    Setting,
    TableRow,
)
from raykit.search.space import Params, distinct, drawn, grid

SEARCH = "main"
"""The name of an experiment's search: a plan has one."""

Status = Literal["waiting", "begun"] | End

_RUN = re.compile(r"trial-(\d{3}|[1-9]\d{3,})")


def run_of(row: int) -> str:
    """The run of a row, such as `trial-007`."""
    return f"trial-{row:03d}"


def row_of(run: str) -> int | None:
    """The row of a run; None if it is no row's."""
    found = _RUN.fullmatch(run)
    return int(found[1]) or None if found else None


# --- as it is registered --------------------------------------------------------------------------------------


def rows_of(search: Search, run_seed: int) -> tuple[TableRow, ...]:
    """The table that a plan asks for: a pure function of it. Settings that a sampler learns are not there yet."""
    trials = [
        TableRow(row=row, seed=run_seed, params=params)
        for row, params in enumerate(islice(_settings(search), search.trials), start=1)
    ]
    repeats = search.repeats
    again = (
        [] if repeats is None else [(n, seed) for n in range(1, repeats.top + 1) for seed in repeats.seeds]
    )
    return (
        *trials,
        *(
            TableRow(row=row, kind="repeat", seed=seed, rank=rank)
            for row, (rank, seed) in enumerate(again, start=len(trials) + 1)
        ),
    )


def _settings(search: Search) -> Iterator[Params | None]:
    """The settings of the trials, in order; None where one is drawn later."""
    space = search.space
    first = [{name: space[name].cast(value) for name, value in params.items()} for params in search.first]
    taken = {canonical(params) for params in first}
    yield from first
    match search.sampler.name:
        case "grid":
            yield from (params for params in grid(space) if canonical(params) not in taken)
        case "random":
            for row in range(len(first) + 1, search.trials + 1):
                params = distinct(partial(drawn, space, search.sampler.seed, row), space, taken)
                taken.add(canonical(params))
                yield params
        case "optuna.tpe":
            yield from (None for _ in range(len(first), search.trials))


def spared_rows(registration: SearchRegistration, *, first: int) -> tuple[int, ...]:
    """The rows that no scheduler stops: the `first` ones, which others are held against, and all repeats.

    A repeat is there for what its seed does to the value at the end, and only a whole run has that.
    """
    return tuple(each.row for each in registration.rows if each.kind == "repeat" or each.row <= first)


# --- as its log has it ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RowState:
    """One row: what it is, and what has become of it."""

    row: TableRow
    params: Mapping[str, Any] | None
    """None until they are drawn."""
    repeats: int | None = None
    """Of a repeat: the trial that it has the setting of, once that is known."""
    launches: tuple[Begun, ...] = ()
    ruled: Ruled | None = None
    """The scheduler stops it, or has."""
    ended: RowEnded | None = None
    begun_at: float | None = None
    """When it was begun first."""
    ended_at: float | None = None

    @property
    def n(self) -> int:
        """Its number, from 1."""
        return self.row.row

    @property
    def run(self) -> str:
        """The run that it is."""
        return run_of(self.row.row)

    @property
    def setting(self) -> Setting | None:
        """What it trains with; None until that is drawn."""
        return None if self.params is None else Setting(params=self.params, seed=self.row.seed)

    @property
    def status(self) -> Status:
        """What it waits for, or the end that it came to."""
        if self.ended is not None:
            return self.ended.end
        return "begun" if self.launches else "waiting"

    @property
    def value(self) -> float | None:
        """The metric of a row that was completed; None without one that is finite."""
        if self.ended is None or self.ended.end != "completed" or self.ended.value is None:
            return None
        return self.ended.value if math.isfinite(self.ended.value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """A search as its log tells it."""

    registration: SearchRegistration
    rows: tuple[RowState, ...]
    """By number: row 1 is the first."""
    picked: Picked | None = None
    reopened: tuple[Reopened, ...] = ()
    driver: Driven | None = None
    """The process that has the search, unless it has let go of it; nothing here says whether it is alive."""
    heard_at: float = 0.0
    """When something was last written."""
    entries: int = 0
    """How many entries of the log it is from."""

    def row(self, n: int) -> RowState:
        """Row `n` of the table.

        Raises:
            CorruptError: there is none.
        """
        if not 1 <= n <= len(self.rows):
            raise CorruptError(f"the search names row {n}, and its table has {len(self.rows)}")
        return self.rows[n - 1]

    @property
    def trials(self) -> tuple[RowState, ...]:
        """Its rows, but for repeats."""
        return tuple(each for each in self.rows if each.row.kind == "trial")

    @property
    def repeats(self) -> tuple[RowState, ...]:
        """Its rows that repeat a trial."""
        return tuple(each for each in self.rows if each.row.kind == "repeat")

    @property
    def open(self) -> tuple[RowState, ...]:
        """The rows without an end."""
        return tuple(each for each in self.rows if each.ended is None)

    @property
    def closed(self) -> bool:
        """Whether every row has its end."""
        return all(each.ended is not None for each in self.rows)

    @property
    def counts(self) -> Counter[Status]:
        """How many rows there are of each status."""
        return Counter(each.status for each in self.rows)

    @property
    def cost(self) -> int:
        """What the rows have cost that have ended, over all of their attempts."""
        return sum(each.ended.cost for each in self.rows if each.ended is not None)


def fold(
    registration: SearchRegistration, entries: Iterable[SearchEntry], onto: SearchState | None = None
) -> SearchState:
    """Read a search's log into its state; `onto` is the state that earlier entries have led to.

    Raises:
        CorruptError: an event contradicts the table, or one before it.
    """
    folding = _Folding(onto or _registered(registration))
    for entry in entries:
        folding.entries += 1
        folding.heard_at = entry.at
        for event in entry.events:
            try:
                folding.take(event, entry.at)
            except CorruptError as error:
                raise CorruptError(f"entry {entry.n} of the search: {error.message}", value=entry.n) from None
    return folding.state()


def _registered(registration: SearchRegistration) -> SearchState:
    rows = tuple(RowState(row=row, params=row.params) for row in registration.rows)
    return SearchState(registration=registration, rows=rows)


class _Folding:
    """A state in the making."""

    def __init__(self, before: SearchState) -> None:
        self._before = before
        self._rows = list(before.rows)
        self._picked = before.picked
        self._reopened = before.reopened
        self._driver = before.driver
        self.heard_at = before.heard_at
        self.entries = before.entries

    def state(self) -> SearchState:
        return replace(
            self._before,
            rows=tuple(self._rows),
            picked=self._picked,
            reopened=self._reopened,
            driver=self._driver,
            heard_at=self.heard_at,
            entries=self.entries,
        )

    def take(self, event: Record, at: float) -> None:
        match event:
            case Driven():
                self._driver = event
            case LetGo():
                if self._driver is not None and self._driver.driver == event.driver:
                    self._driver = None
            case Drawn():
                self._set(self._drawn(self._open(event.row, "drawn"), event))
            case Begun():
                self._set(_begun(self._open(event.row, "begun"), event, at))
            case Ruled():
                self._set(_ruled(self._open(event.row, "ruled upon"), event))
            case RowEnded():
                self._set(_ended(self._open(event.row, "ended"), event, at, self._before.registration))
            case Reopened():
                self._reopen(event)
            case Picked():
                self._pick(event)

    def _set(self, row: RowState) -> None:
        self._rows[row.n - 1] = row

    def _row(self, n: int) -> RowState:
        if not 1 <= n <= len(self._rows):
            raise CorruptError(f"there is no row {n}: the table has {len(self._rows)}")
        return self._rows[n - 1]

    def _open(self, n: int, what: str) -> RowState:
        row = self._row(n)
        if row.ended is not None:
            raise CorruptError(f"row {n} is {what} after its end ({row.ended.end})")
        return row

    def _drawn(self, row: RowState, event: Drawn) -> RowState:
        if row.params is not None and (row.params, row.repeats) != (event.params, event.repeats):
            raise CorruptError(f"row {row.n} is drawn a second time, with another setting")
        if (event.repeats is not None) != (row.row.kind == "repeat"):
            raise CorruptError(f"row {row.n} is a {row.row.kind}, and {event.by} draws it as no such row")
        if event.repeats is not None and self._repeated(event.repeats).params != event.params:
            raise CorruptError(f"row {row.n} repeats row {event.repeats} with another setting")
        return replace(row, params=event.params, repeats=event.repeats)

    def _repeated(self, n: int) -> RowState:
        row = self._row(n)
        if row.row.kind != "trial" or row.value is None:
            raise CorruptError(f"row {n} is repeated, which is no trial that was completed with a value")
        return row

    def _reopen(self, event: Reopened) -> None:
        for n in event.rows:
            row = self._row(n)
            if row.ended is None or row.ended.end not in BY_BUDGET:
                raise CorruptError(f"row {n} is opened again, which no budget has ended ({row.status})")
            self._set(replace(row, ended=None, ended_at=None))
        self._reopened += (event,)
        self._picked = None

    def _pick(self, event: Picked) -> None:
        if self._picked is not None:
            raise CorruptError("it is picked from twice")
        if any(row.ended is None for row in self._rows):
            raise CorruptError("it is picked from before every row has its end")
        self._row(event.row)
        self._picked = event


def _begun(row: RowState, event: Begun, at: float) -> RowState:
    if row.params is None:
        raise CorruptError(f"row {row.n} is begun without a setting")
    if event.launch in (launch.launch for launch in row.launches):
        raise CorruptError(f"row {row.n} is begun twice by launch {event.launch}")
    first = at if row.begun_at is None else row.begun_at
    return replace(row, launches=(*row.launches, event), begun_at=first)


def _ruled(row: RowState, event: Ruled) -> RowState:
    if not row.launches:
        raise CorruptError(f"row {row.n} is stopped by the scheduler before it is begun")
    if row.ruled is not None:
        raise CorruptError(f"row {row.n} is stopped by the scheduler twice")
    return replace(row, ruled=event)


_UNBEGUN: frozenset[End] = frozenset({"refused-by-budget", "never-started"})


def _ended(row: RowState, event: RowEnded, at: float, registration: SearchRegistration) -> RowState:
    if (event.end in _UNBEGUN) == bool(row.launches):
        raise CorruptError(f"row {row.n} is {event.end}, and was {'' if row.launches else 'never '}begun")
    if event.end == "stopped-by-scheduler" and row.ruled is None:
        raise CorruptError(f"row {row.n} is stopped by the scheduler, which has not ruled so")
    if event.update > registration.updates:
        raise CorruptError(f"row {row.n} ends at update {event.update} of {registration.updates}")
    return replace(row, ended=event, ended_at=at)
