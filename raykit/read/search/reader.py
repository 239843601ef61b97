"""Reads a search from its store: the registered table, its log, the ledger, and the runs of rows that are at work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from raykit.budget.amounts import measured
from raykit.budget.book import Lease
from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.pauses import Acts, InForce, in_force, scopes_of
from raykit.plan import Lock
from raykit.qc.backlog import way_on
from raykit.read.money import TRAIN, Ledgers, Progress, money_of
from raykit.read.qc_runs import BegunTrials, RunsRead, RunsReader
from raykit.read.rows import RowTable
from raykit.read.search.row import AT_WORK, Live, RowRead, left_cost, short_of_money
from raykit.read.search.verdict import verdict_of
from raykit.read.search.view import PickDue, SearchRead, SearchState
from raykit.read.seen import view_run
from raykit.read.view import LIVE, RunView
from raykit.records import BY_BUDGET, Begun, Driven, EvaluationRow, RowEnded, SearchEntry
from raykit.search import RowState, pick
from raykit.search import SearchState as Folded
from raykit.store.attempts import sealed
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.place import alive, gone
from raykit.store.plans import read_lock
from raykit.store.search import SearchLog, read_registration

DRIVER_HEARD_S = 60.0
"""A driver that cannot be seen from here counts as alive for so long after its last word, and while its rows speak."""

MOST_EXAMINED = 200
"""Of so many begun rows the examinations are counted beside the search; of more, `raykit qc status` counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Live:
    """A row that was begun and has no end, as its own run has it."""

    view: RunView
    status: Live
    value: float | None
    """The metric, as it was last reported."""
    at: int | None


class _Spent(NamedTuple):
    """What the leases of a row have come to."""

    cost: int = 0
    so_far: int = 0
    """The same, but of an attempt whose end is not written what it has come to by now."""
    accelerator_ms: int = 0
    held_ms: int = 0
    """How long its attempts held their leases; of what lies between two of them, nothing."""
    open_ms: int = 0
    """For how long an attempt whose end is not written has its lease."""
    attempts: int = 0
    """Those that had a lease, also if nothing was trained under it."""

    def plus(self, lease: Lease, now: float) -> _Spent:
        """The same with one lease more."""
        open_ms = 0 if lease.held_ms is not None else min(lease.time_ms, int(1000 * max(0.0, now - lease.at)))
        held_ms = lease.held_ms or 0
        trains = lease.reserved.line == TRAIN and not lease.void
        return _Spent(
            cost=self.cost + lease.charged,
            so_far=self.so_far + min(lease.charged, measured(lease.reserved.terms, open_ms))
            if lease.open
            else self.so_far + lease.charged,
            accelerator_ms=self.accelerator_ms + (held_ms + open_ms) * lease.reserved.terms.accelerators,
            held_ms=self.held_ms + held_ms * trains,
            open_ms=self.open_ms + open_ms * trains,
            attempts=self.attempts + trains,
        )


class SearchReader:
    """One search, looked at again and again. Each look reads only what is new in its logs."""

    def __init__(self, store: ObjectStore, experiment: str, *, ledgers: Ledgers | None = None) -> None:
        self._store = store
        self._ledgers = ledgers or Ledgers(store)
        self._runs: dict[str, RunLog] = {}
        self._qc: RunsReader | None = None
        self._locks: dict[str, Lock | None] = {}
        self.experiment = experiment
        self.registration = read_registration(store, experiment)
        self.log = None if self.registration is None else SearchLog(store, self.registration, by="reader")

    def look(self, *, now: float, acts: Acts | None = None) -> SearchRead | None:
        """The search as it is now; None if the experiment has none. `acts` saves reading what people have said.

        Raises:
            CorruptError: a log, a record or the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if self.log is None or self.registration is None:
            return None
        acts = acts or read_acts(self._store, self.experiment)
        self.log.refresh()
        found, said = self.log.state, self.registration
        spent = self._spent(now)
        driver = found.driver if _lives(found, now) else None
        begun = [row for row in found.rows if row.status == "begun"]
        live = {row.n: self._live(row, now, driven=driver is not None) for row in begun}
        rows = tuple(_row(row, live.get(row.n), spent.get(row.run)) for row in found.rows)
        pause = in_force(acts, scopes_of(self.experiment, "search", said.contract))
        lock, examined = self._lock(said.plan), self._examined(found, now, acts)
        state = _state(found, rows, pause, acts, driven=driver is not None)
        at_work = [row for row in found.rows if row.n in live and live[row.n].status in AT_WORK]
        incumbent, worthwhile = _incumbent(lock), _worthwhile(lock, said.metric)
        launches = tuple(row.launches[-1].launch for row in at_work)
        launches += () if driver is None else (driver.driver,)  # its own, for what it does beside the rows
        return SearchRead(
            registration=said,
            digest=sha256(sealed(said)),
            decision=None if lock is None else lock.settings.get("decision"),
            state=state,
            rows=rows,
            picked=found.picked,
            verdict=verdict_of(
                rows, found.picked, mode=said.mode, incumbent=incumbent, worthwhile=worthwhile
            ),
            incumbent=incumbent,
            worthwhile=worthwhile,
            cost=sum(row.cost for row in rows),
            place=None if driver is None else driver.place,
            launches=launches,
            money=money_of(
                self._store,
                self.experiment,
                now,
                progress=Progress(
                    launches=launches,
                    gone=_gone(self.log.entries),
                    complete=state == "complete",
                    left=left_cost(rows),
                ),
                locked=acts.locked[-1] if acts.locked else None,
                ledgers=self._ledgers,
            ),
            pause=pause,
            cancelled=acts.cancelled,
            qc=None if examined is None else _counts(examined),
            pick_due=_pick_due(found, examined) if state == "complete" else None,
            shortfall=short_of_money(rows),
            now=now,
        )

    def examinations(self, *, now: float, acts: Acts) -> RunsRead | None:
        """The examinations of all begun rows; None if its plan has no `[qc]`.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self._qc = self._qc or RunsReader(self._store, self.experiment, BegunTrials)
        return self._qc.look(now=now, acts=acts)

    # --- inside ---------------------------------------------------------------------------------------------

    def _examined(self, found: Folded, now: float, acts: Acts) -> RunsRead | None:
        begun = sum(bool(row.launches) for row in found.rows)
        return self.examinations(now=now, acts=acts) if 0 < begun <= MOST_EXAMINED else None

    def _spent(self, now: float) -> Mapping[str, _Spent]:
        """By run of a row: what all of its leases have come to."""
        ledger = self._ledgers.of(self.experiment)
        found: dict[str, _Spent] = {}
        for lease in () if ledger is None else ledger.book.leases.values():
            run = lease.reserved.run
            if run is not None and lease.reserved.experiment == self.experiment:
                found[run] = found.get(run, _Spent()).plus(lease, now)
        return found

    def _lock(self, digest: str) -> Lock | None:
        """The lock of its plan; a search whose lock is gone can still be looked at."""
        if digest not in self._locks:
            try:
                self._locks[digest] = read_lock(self._store, self.experiment, digest)
            except (NotFoundError, CorruptError):
                self._locks[digest] = None
        return self._locks[digest]

    def _live(self, row: RowState, now: float, *, driven: bool) -> _Live:
        """How far a begun row is, from its own run; `driven`: a process is there that writes its end."""
        assert self.registration is not None
        log = self._runs.setdefault(row.run, RunLog(self._store, self.experiment, row.run, by="reader"))
        log.refresh()
        found = log.state
        owner = found.launched if found.released is None else None
        view = view_run(
            self._store,
            self.experiment,
            row.run,
            log.entries,
            found,
            lock=self._lock(self.registration.plan),
            now=now,
            alive=alive(owner.place) if owner else None,
        )
        reports = RowTable(self._store, found.events, "development", EvaluationRow).tail(1)
        metric = self.registration.metric.removeprefix("development.")
        return _Live(
            view=view,
            status=_at_work(row, view, driven=driven),
            value=reports[-1].metrics.get(metric) if reports else None,
            at=reports[-1].update if reports else None,
        )


# --- rows ---------------------------------------------------------------------------------------------------


def _at_work(row: RowState, view: RunView, *, driven: bool) -> Live:
    """Whether a begun row trains. Between its begin and its launch only the search's own process is there to ask."""
    if driven and (
        view.state in ("completed", "failed") or (row.ruled is not None and view.state == "paused")
    ):
        return "ending"
    before = view.launch != row.launches[-1].launch
    live = alive(row.launches[-1].place) is True if before else view.state in LIVE
    if not live:
        return "stopped"
    return "stopping" if row.ruled is not None or view.state == "stopping" else "running"


def _row(row: RowState, live: _Live | None, spent: _Spent | None) -> RowRead:
    spent = spent or _Spent()
    at_work = live is not None and live.status in AT_WORK
    found = RowRead(
        row=row.n,
        run=row.run,
        kind=row.row.kind,
        seed=row.row.seed,
        params=row.params,
        rank=row.row.rank,
        repeats=row.repeats,
        status="waiting",
        cost=spent.cost,
        so_far=spent.so_far if at_work else None,
        accelerator_ms=spent.accelerator_ms,
        held_ms=spent.held_ms + (spent.open_ms if at_work else 0),
        attempts=spent.attempts,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
    )
    if live is not None:
        return _of_live(found, row, live)
    return found if row.ended is None else _of_ended(found, row.ended)


def _of_live(found: RowRead, row: RowState, live: _Live) -> RowRead:
    view, stopped = live.view, row.ruled
    return replace(
        found,
        status=live.status,
        update=view.update,
        value=live.value,
        at=live.at,
        attempts=max(len(view.attempts), found.attempts),
        heard_at=view.heard_at,
        health=view.health,
        detail=view.detail if stopped is None else f"the scheduler stops it: {stopped.why}",
    )


def _of_ended(found: RowRead, ended: RowEnded) -> RowRead:
    value = ended.value
    return replace(
        found,
        status=ended.end,
        update=ended.update,
        value=value if value is not None and math.isfinite(value) else None,
        at=ended.at,
        cost=found.cost or ended.cost,
        attempts=max(ended.attempts, found.attempts),
        checkpoint=ended.checkpoint,
        detail=ended.detail,
    )


# --- the whole ----------------------------------------------------------------------------------------------


def _state(
    found: Folded, rows: Sequence[RowRead], pause: InForce | None, acts: Acts, *, driven: bool
) -> SearchState:
    at_work = driven or any(row.status in AT_WORK for row in rows)
    if acts.cancelled is not None:
        return "cancelled"
    if found.closed:
        if any(row.status in BY_BUDGET for row in rows):
            return "out of budget"
        if found.picked is not None or pick(found) is None:
            return "complete"
        return "running" if driven else "stopped"
    if pause is not None:
        return "pausing" if at_work else "paused"
    if at_work:
        return "running"
    begun = any(row.launches for row in found.rows)
    return "stopped" if begun else "registered"


def _lives(found: Folded, now: float) -> bool:
    """Whether the process that has the search is alive; of one that cannot be seen from here, its last word counts."""
    if found.driver is None:
        return False
    lives = alive(found.driver.place)
    return now - found.heard_at < DRIVER_HEARD_S if lives is None else lives


def _counts(examined: RunsRead) -> Mapping[str, int]:
    counts = examined.counts()
    open_ = counts["required"] - counts["passed"] - counts["failed"]
    return {"passed": counts["passed"], "failed": counts["failed"], "open": open_} | {
        "unjudged": examined.unjudged,
        "unreviewed": counts["unreviewed"],
        "parked": counts["parked"],
    }


def _pick_due(found: Folded, examined: RunsRead | None) -> PickDue | None:
    """What the QC of the picked trial waits for: a decision about its weights rests on it, and on no other row's."""
    if found.picked is None or examined is None:
        return None
    run = found.row(found.picked.row).run
    own = examined.of(run)
    command = None if own is None else way_on(own.backlog, f"{found.registration.experiment}/{run}")
    if own is None or command is None:
        return None
    unreviewed = len(own.backlog.unreviewed)
    others = len(examined.backlog.unreviewed) - unreviewed
    return PickDue(run=run, unreviewed=unreviewed, others=others, command=command)


def _gone(entries: Sequence[SearchEntry]) -> tuple[str, ...]:
    """What its drivers, and the launches of its rows, are called whose processes have ended, as is seen from here."""
    places = {
        event.driver if isinstance(event, Driven) else event.launch: event.place
        for entry in entries
        for event in entry.events
        if isinstance(event, Driven | Begun)
    }
    return tuple(name for name, place in places.items() if gone(place))


def _incumbent(lock: Lock | None) -> int | None:
    """The row of the setting that is used today: the first of those that the plan names, if it names any."""
    search = _table(lock, "search")
    return 1 if search.get("first") else None


def _worthwhile(lock: Lock | None, metric: str) -> float | None:
    """The difference that would change what is done, if the plan says it of this very metric."""
    claim = _table(lock, "claim")
    if claim.get("metric") != metric.removeprefix("development."):
        return None
    worthwhile = claim.get("worthwhile")
    return float(worthwhile) if isinstance(worthwhile, int | float) else None


def _table(lock: Lock | None, name: str) -> Mapping[str, Any]:
    found = None if lock is None else lock.settings.get(name)
    return found if isinstance(found, Mapping) else {}


def read_search(
    store: ObjectStore, experiment: str, *, now: float, ledgers: Ledgers | None = None
) -> SearchRead | None:
    """The search of an experiment, once; None if it has none.

    Raises:
        CorruptError: a log, a record or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return SearchReader(store, experiment, ledgers=ledgers).look(now=now)
