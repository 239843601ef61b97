"""A search in the store: the table that is registered once, the log of its rows, and what they came to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from raykit import history
from raykit.budget.book import Book
from raykit.errors import ConflictError, CorruptError, GateError, NotFoundError
from raykit.ids import DIGEST, canonical
from raykit.plan import Selection
from raykit.plan import differences as plan_fields
from raykit.reconcile import RunState
from raykit.records import EvaluationRow, Record, RowEnded, SearchEntry, SearchRegistration
from raykit.search import SEARCH, RowState, SearchState, Worth, fold, worth_of
from raykit.store import layout
from raykit.store.attempts import read_sealed, sealed
from raykit.store.base import ObjectStore, Put
from raykit.store.log import Log, RunLog, uncollected
from raykit.store.plans import read_plan
from raykit.store.segments import read_segment

MAX_SHOWN = 120
MAX_DETAIL = 200
SHORT = 8
"""Of a digest: so much tells two apart."""
PRICE = re.compile(r"pools\.([a-z]+)\.usd_per_hour\.rate")


def register(store: ObjectStore, registration: SearchRegistration, *, plan: Sequence[str] = ()) -> bool:
    """Write down what a search is, before its first trial; False if exactly this was there already.

    `plan` are the fields in which its plan differs from that of the search that is there, each as `field: old -> new`.

    Raises:
        GateError: another search is registered under this name; it says in which fields.
        CorruptError: what is registered there cannot be read.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not take it.
    """
    key = layout.search_registration(registration.experiment, registration.search)
    try:
        return store.put_new(key, sealed(registration)).outcome is Put.WRITTEN
    except ConflictError as error:
        there = read_registration(store, registration.experiment, registration.search)
        if there is None:
            raise CorruptError(f"{key} was there, and is missing now", field=key) from error
        differs = [*plan, *_beside(plan, differences(there, registration))]
        name = registration.experiment
        raise GateError(
            f"{name} has registered another search: {'; '.join(differs)}",
            field=differs[0].partition(":")[0],
            rule="a search is registered once, before its first trial, and stays what it was",
            remedy=_other_way(name, differs),
        ) from error


def _beside(plan: Sequence[str], differs: Sequence[str]) -> list[str]:
    """What differs beside the plan; where its fields are known, everything else follows from them."""
    return [each for each in differs if not plan or each.startswith(("code:", "data:"))]


def _other_way(name: str, differs: Sequence[str]) -> str:
    """What to do with another search: also repaired code makes one, since its rows would be held against the others."""
    if any(each.startswith("code:") for each in differs):
        return (
            "changed code is another search: give the plan a name of its own; or go on with the code that is "
            f"kept in the store: raykit resume {name}"
        )
    moves = [_money_move(name, each) for each in differs]
    if all(moves):
        return f"go on with the plan as it was; money is moved in the ledger: {'   and   '.join(moves)}"
    return "give the changed plan a name of its own, or go on with the plan as it was"


def _money_move(name: str, differs: str) -> str:
    """The command that says the same of a search's money as this change of its plan; empty for anything else."""
    field, _, values = differs.partition(": ")
    _, _, amount = values.rpartition(" -> ")
    if field in ("budget.ceiling_usd", "budget.accelerator_hours"):
        return f"raykit budget replan {name} --ceiling {amount} --reason ... --by NAME"
    price = PRICE.fullmatch(field)
    return "" if price is None else f"raykit budget rate {price[1]} {amount} {name} --source ... --by NAME"


def differences(old: SearchRegistration, new: SearchRegistration) -> list[str]:
    """The fields in which two searches differ, each as `field: old -> new`; of rows the first that does."""
    before, after = old.plain(), new.plain()
    return list(_differing("", before, after))


def plan_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The fields in which the settings of two plans differ, each as `search.trials: 8 -> 9`."""
    return [f"{field}: {_shown(was)} -> {_shown(now)}" for field, was, now in plan_fields(old, new)]


def _differing(at: str, old: Mapping[str, object], new: Mapping[str, object]) -> Sequence[str]:
    found: list[str] = []
    for name in [*new, *(name for name in old if name not in new)]:
        was, now, path = old.get(name), new.get(name), f"{at}{name}"
        if was == now:
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            found += _differing(f"{path}.", was, now)
        elif name == "rows" and not at and isinstance(was, Sequence) and isinstance(now, Sequence):
            found.append(_differing_rows(was, now))
        else:
            found.append(f"{path}: {_shown(was)} -> {_shown(now)}")
    return found


def _differing_rows(was: Sequence[object], now: Sequence[object]) -> str:
    if len(was) != len(now):
        return f"rows: {len(was)} -> {len(now)}"
    n = next(n for n, (one, other) in enumerate(zip(was, now, strict=True)) if one != other)
    return f"rows: row {n + 1} is {_shown(was[n])} -> {_shown(now[n])}"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else canonical(value).decode()
    if DIGEST.fullmatch(text):
        return text[:SHORT]
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def read_registration(store: ObjectStore, experiment: str, search: str = SEARCH) -> SearchRegistration | None:
    """What a search was registered as; None if there is none.

    Raises:
        CorruptError: it is damaged, or is of another search.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.search_registration(experiment, search)
    try:
        data = store.get(key, max_bytes=SearchRegistration.max_bytes)
    except NotFoundError:
        return None
    return registration_from(data, key, experiment, search)


def registration_from(data: bytes, key: str, experiment: str, search: str) -> SearchRegistration:
    """A registration, from the bytes at its key.

    Raises:
        CorruptError: they are none, or are of another search.
    """
    read = read_sealed(data, SearchRegistration, key)
    if (read.experiment, read.search) != (experiment, search):
        raise CorruptError(f"{key} is of {read.experiment}/{read.search}", field=key, rule="I2")
    return read


# --- its log ------------------------------------------------------------------------------------------------


class SearchLog(Log[SearchEntry]):
    """A search's log that keeps the state it leads to, so that nobody folds the whole of it again."""

    def __init__(self, store: ObjectStore, registration: SearchRegistration, *, by: str) -> None:
        prefix = layout.search_log(registration.experiment, registration.search)
        super().__init__(store, prefix, SearchEntry, by=by)
        self.registration = registration
        self._state = fold(registration, ())

    @property
    def state(self) -> SearchState:
        """What the entries read so far say. Inside `decide` it is as new as what `decide` is given.

        Raises:
            CorruptError: an entry contradicts the table, or one before it.
        """
        with self._lock:
            new = self.entries[self._state.entries :]
            if new:
                self._state = fold(self.registration, new, self._state)
            return self._state

    def append(
        self, decide: Callable[[Sequence[SearchEntry]], Sequence[Record]], *, at: float
    ) -> SearchEntry | None:
        """As every log does; what contradicts the table is not written. Once every row has its end, a snapshot is left.

        Raises:
            InvalidInput: the events are too long for one entry.
            CorruptError: an event contradicts the table or one before it, or the log itself is damaged.
            DeadlineError: other writers were faster a thousand times in a row.
            UnknownOutcomeError: the reply was lost and the entry could not be read back.
            StoreUnavailableError: the store did not answer.
        """

        def decided(entries: Sequence[SearchEntry]) -> Sequence[Record]:
            events = decide(entries)
            if events:
                fold(self.registration, [self._next(events, at)], self.state)
            return events

        with self._lock:
            entry = super().append(decided, at=at)
            ends = entry is not None and any(isinstance(event, RowEnded) for event in entry.events)
            if ends and self.state.closed:
                self.snapshot()
            return entry


def read_search(store: ObjectStore, experiment: str, search: str = SEARCH) -> SearchState | None:
    """A search as its log tells it; None if none is registered.

    Raises:
        CorruptError: its registration or its log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    registration = read_registration(store, experiment, search)
    if registration is None:
        return None
    with uncollected():
        log = SearchLog(store, registration, by="reader")
        log.refresh()
        return log.state


# --- what its rows came to ------------------------------------------------------------------------------------


class Report(NamedTuple):
    """One evaluation of a row on the development split."""

    update: int
    value: float | None
    """None where the metric was not finite."""


class Reached(NamedTuple):
    """How far a row has come, as its run's own log and history tell."""

    update: int
    """The last one whose row is durable."""
    worth: Worth
    attempts: int


def read_reports(store: ObjectStore, state: RunState, metric: str) -> list[Report]:
    """What a run's own history has of a development metric: every evaluation that counts, in order.

    Raises:
        CorruptError: a segment is missing or damaged.
        StoreUnavailableError: the store did not answer.
    """
    name = metric.removeprefix("development.")
    return [Report(row.update, row.metrics.get(name)) for row in _evaluations(store, state)]


def _evaluations(store: ObjectStore, state: RunState) -> Iterator[EvaluationRow]:
    for span in history.lineage(state.events, "development"):
        for row in read_segment(store, span.segment):
            if isinstance(row, EvaluationRow) and span.first <= row.update <= span.last:
                yield row


def reached(store: ObjectStore, state: RunState, metric: str, selection: Selection | None) -> Reached:
    """How far a run has come, and what it is worth.

    Raises:
        CorruptError: its history is damaged.
        StoreUnavailableError: the store did not answer.
    """
    worth = worth_of(selection, metric, list(_evaluations(store, state)), state.commits)
    return Reached(state.recorded(), worth, len(state.attempts))


def row_costs(book: Book, experiment: str) -> Counter[str]:
    """By run: what the trials of an experiment are charged with, over all of their attempts."""
    costs: Counter[str] = Counter()
    for lease in book.leases.values():
        if lease.reserved.run is not None and lease.reserved.experiment == experiment:
            costs[lease.reserved.run] += lease.charged
    return costs


def close_rows(
    store: ObjectStore, log: SearchLog, *, why: str, costs: Mapping[str, int], at: float
) -> tuple[RowEnded, ...]:
    """End every row that has no end, in one entry: a cancelled search is over. Done again, it does nothing.

    Rows that were begun end as censored by their budget, with what they had come to; the others were never started.

    Raises:
        NotFoundError: the plan of the search is not in the store.
        CorruptError: its log, its plan, or the history of a row is damaged.
        UnknownOutcomeError: the reply was lost; do it again.
        StoreUnavailableError: the store did not answer.
    """
    registration = log.registration
    selection = read_plan(store, registration.experiment, registration.plan).run.selection
    came: dict[int, Reached] = {}

    def decide(entries: Sequence[SearchEntry]) -> list[Record]:
        events: list[Record] = []
        for row in log.state.open:
            if row.launches and row.n not in came:
                run = RunLog(store, registration.experiment, row.run, by="reader")
                run.refresh()
                came[row.n] = reached(store, run.state, registration.metric, selection)
            events.append(_closed(row, came.get(row.n), costs.get(row.run, 0), why[:MAX_DETAIL]))
        return events

    entry = log.append(decide, at=at)
    return () if entry is None else tuple(event for event in entry.events if isinstance(event, RowEnded))


def _closed(row: RowState, came: Reached | None, cost: int, why: str) -> RowEnded:
    if came is None:
        return RowEnded(row=row.n, end="never-started", update=0, cost=cost, attempts=0, detail=why)
    return RowEnded(
        row=row.n,
        end="censored-by-budget",
        update=came.update,
        value=came.worth.value,
        at=came.worth.at,
        checkpoint=came.worth.checkpoint,
        cost=cost,
        attempts=came.attempts,
        detail=why,
    )
