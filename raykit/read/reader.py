"""One run of a store, looked at again and again: its own log, what people want of it, its money, its sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from raykit.errors import CorruptError, NotFoundError
from raykit.pauses import Acts, fold_acts
from raykit.plan import Lock
from raykit.read.money import Ledgers, Money, Progress, money_of
from raykit.read.qc import QcReader
from raykit.read.seen import classed, fleet_of, view_run
from raykit.read.view import LIVE, RunView, State
from raykit.records import ExperimentEntry, FleetEntry, Launched, RunRecord
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log, RunLog
from raykit.store.place import alive, gone

if TYPE_CHECKING:
    from raykit.read.generation import GenerationReader
    from raykit.read.search import SearchRead, SearchReader
    from raykit.read.setview import SetRead

SEARCH = "main"
"""The name of an experiment's search: a plan has one."""


class Around:
    """What several runs of a store have in common, read once for all of them."""

    def __init__(self, store: ObjectStore, now: Callable[[], float]) -> None:
        self.store = store
        self.now = now
        """The time by which views are made."""
        self.ledgers = Ledgers(store)
        self.fleet = Log(store, layout.fleet_log(), FleetEntry, by="reader")
        self._searches: dict[str, SearchReader] = {}

    def search(self, experiment: str) -> SearchRead | None:
        """The search of an experiment, with its logs read on from where they were left; None if it has none.

        Raises:
            UnsafeNameError: it cannot be a name.
            CorruptError: a log, a record or the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if experiment not in self._searches:
            if not has_search(self.store, experiment):
                return None
            # Here, because it needs numpy: who searches nothing does without.
            from raykit.read.search import SearchReader

            self._searches[experiment] = SearchReader(self.store, experiment, ledgers=self.ledgers)
        return self._searches[experiment].look(now=self.now())


def has_search(store: ObjectStore, experiment: str) -> bool:
    """Whether the runs of an experiment are the trials of a search.

    Raises:
        UnsafeNameError: it cannot be a name.
        StoreUnavailableError: the store did not answer.
    """
    return store.head(layout.search_registration(experiment, SEARCH)) is not None


class RunReader:
    """One run, with what people want of it and its money. Each look reads only what is new in its logs."""

    def __init__(self, around: Around, experiment: str, run: str) -> None:
        store = around.store
        self._around = around
        self._own = Log(store, layout.experiment_log(experiment), ExperimentEntry, by="reader")
        self.log = RunLog(store, experiment, run, by="reader")
        self._qc = QcReader(store, experiment, run, log=self.log)
        self._sets: GenerationReader | None = None
        self.experiment = experiment
        self.run = run

    def look(self) -> RunView:
        """The run as it is now. If people's acts or the money are damaged, the run itself is still seen.

        Raises:
            CorruptError: the run's log or history cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        self.log.refresh()
        seen = seen_in(self.log, self._around.store, self.experiment, self.run, self._around.now())
        try:
            return self._with_people(seen)
        except CorruptError as error:
            broken = replace(seen.figures, health="corrupt", health_detail=error.message)
            return replace(seen, figures=broken)

    def _with_people(self, seen: RunView) -> RunView:
        now = self._around.now()
        self._own.refresh()
        self._around.fleet.refresh()
        entries: list[ExperimentEntry | FleetEntry] = [*self._own.entries, *self._around.fleet.entries]
        acts = fold_acts(entries)
        seen = classed(seen, self.log.state, acts.harmless)
        search = None if seen.row is None else self._around.search(self.experiment)
        seen = _as_row(seen, search)
        seen = _readable(seen, lambda: replace(seen, sets=self._generated(seen, acts, now)))
        money = self._money(seen, acts, now) if search is None else search.money
        seen = replace(seen, fleet=fleet_of(seen, acts, entries, now), money=money)
        return _readable(seen, lambda: replace(seen, qc=self._qc.look(now=now, acts=acts)))

    def _money(self, seen: RunView, acts: Acts, now: float) -> Money | None:
        """The money of its experiment, where that is no search."""
        return money_of(
            self._around.store,
            self.experiment,
            now,
            progress=progress_of(seen, self.log, now),
            locked=acts.locked[-1] if acts.locked else None,
            ledgers=self._around.ledgers,
        )

    def _generated(self, seen: RunView, acts: Acts, now: float) -> Sequence[SetRead]:
        """The synthetic sets of its experiment."""
        if not has_sets(seen, acts):
            return ()
        # Here, because it needs numpy: who generates nothing does without.
        from raykit.read.generation import GenerationReader

        self._sets = self._sets or GenerationReader(
            self._around.store, self.experiment, ledgers=self._around.ledgers
        )
        return self._sets.look(now=now, acts=acts)


def has_sets(seen: RunView, acts: Acts) -> bool:
    """Whether a run has synthetic sets: its plan asks for some, or some have a contract."""
    return bool(acts.contracted or (seen.lock is not None and seen.lock.settings.get("generate")))


def _as_row(seen: RunView, search: SearchRead | None) -> RunView:
    """A trial in the state of its row: its own log says of a stop only that it was let go of."""
    if search is None or seen.row is None or seen.row > len(search.rows):
        return seen
    row = search.rows[seen.row - 1]
    if row.status == "waiting" or (not row.ended and seen.state in LIVE):
        return seen
    holder = None if row.ended else seen.holder
    state: State = "stopping" if row.status == "ending" else row.status
    return replace(seen, state=state, detail=row.detail or seen.detail, holder=holder)


def _readable(seen: RunView, more: Callable[[], RunView]) -> RunView:
    """A run with more of it; if that is damaged, the run as it was seen, and what is damaged."""
    try:
        return more()
    except CorruptError as error:
        return replace(seen, figures=replace(seen.figures, health="corrupt", health_detail=error.message))


# --- from its own log alone ---------------------------------------------------------------------------------


def seen_in(log: RunLog, store: ObjectStore, experiment: str, run: str, now: float) -> RunView:
    """A run as its own log has it, as far as that was read.

    Raises:
        CorruptError: its history cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    found = log.state
    owner = found.launched if found.released is None else None
    plan = found.attempt.plan if found.attempt else _planned(store, experiment, run)
    seen = view_run(
        store,
        experiment,
        run,
        log.entries,
        found,
        lock=_lock(store, experiment, plan),
        now=now,
        alive=alive(owner.place) if owner else None,
    )
    return classed(seen, found, frozenset())


def _planned(store: ObjectStore, experiment: str, run: str) -> str | None:
    key = layout.run_record(experiment, run)
    try:
        return RunRecord.from_bytes(store.get(key), key).plan
    except NotFoundError:
        return None


def _lock(store: ObjectStore, experiment: str, plan: str | None) -> Lock | None:
    """The lock of a plan, for figures; a run whose lock is gone can still be looked at."""
    if plan is None:
        return None
    key = layout.plan(experiment, plan, "plan.lock")
    try:
        lock = Lock.from_bytes(store.get(key), key)
    except (NotFoundError, CorruptError):
        return None
    return lock if lock.digest == plan else None


# --- for its money ------------------------------------------------------------------------------------------

LET_GO = frozenset({"completed", "paused", "failed"})
"""States of a run whose launch has ended in good order."""

SETTLING_S = 60.0
"""A launch that has let go ends its Ray and settles; so long, what it was granted is still its own."""


def progress_of(view: RunView, log: RunLog, now: float) -> Progress:
    at_work = view.holder is not None
    settling = view.state in LET_GO and view.heard_at is not None and now - view.heard_at < SETTLING_S
    return Progress(
        launches=(view.launch,) if view.launch is not None and (at_work or settling) else (),
        gone=_gone(log),
        complete=view.state == "completed",
        update=view.update,
        updates=view.updates,
        update_s=view.figures.update_s,
        sets_left_ms=sum(read.left_ms or 0 for read in view.sets),
        sets_unknown=tuple(read.name for read in view.sets if read.left_ms is None),
    )


def _gone(log: RunLog) -> tuple[str, ...]:
    """The launches of a run whose processes have ended, as is seen from here."""
    launched = (event for entry in log.entries for event in entry.events if isinstance(event, Launched))
    return tuple(event.launch for event in launched if gone(event.place))
