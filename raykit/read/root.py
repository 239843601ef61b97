"""The root of a store, as Python programs read it."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, overload

from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import safe_name
from raykit.pauses import Acts, fold_acts
from raykit.plan import Lock
from raykit.read.money import AccountMoney, Ledgers, Money, Progress, account_money, money_of
from raykit.read.qc import QcReader
from raykit.read.rows import RowTable
from raykit.read.view import LIVE, Figures, RunView, fleet_of, selection, trial_row, view_run
from raykit.records import (
    Commit,
    EvaluationRow,
    ExperimentEntry,
    FleetEntry,
    Launched,
    MonitorRow,
    Row,
    RunRecord,
    Series,
)
from raykit.store import layout, open_store
from raykit.store.accounts import accounts as account_names
from raykit.store.base import ObjectStore
from raykit.store.folders import folders
from raykit.store.log import Log, RunLog
from raykit.store.place import alive, gone

if TYPE_CHECKING:
    from raykit.read.generation import GenerationReader
    from raykit.read.search import SearchReader
    from raykit.read.searchview import SearchRead
    from raykit.read.setview import SetRead

AnyTable = RowTable[Row] | RowTable[EvaluationRow] | RowTable[MonitorRow]


def open(root: str | ObjectStore, *, clock: Callable[[], float] = time.time) -> Root:
    """Open the store at a path or `s3://bucket/prefix` for reading. Nothing is read yet.

    Raises:
        UnusableRootError: `root` is neither a path nor an S3 URL.
    """
    return Root(open_store(root) if isinstance(root, str) else root, clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What several runs have in common, read once for all of them."""

    ledgers: Ledgers
    fleet: Log[FleetEntry]
    searches: dict[str, SearchReader] = field(default_factory=dict)
    """By experiment."""


PARTS = frozenset(
    ("log", "plans", "code", "env", "data", "runs", "qc", "generation", "inputs", "searches", "report")
)
"""Folders of an experiment: where none of them is, somebody else's files lie."""

SEARCH = "main"
"""The name of an experiment's search: a plan has one."""

LET_GO = frozenset({"completed", "paused", "failed"})
"""States of a run whose launch has ended in good order."""

SETTLING_S = 60.0
"""A launch that has let go ends its Ray and settles; so long, what it was granted is still its own."""


def _progress(view: RunView, log: RunLog, now: float) -> Progress:
    at_work = view.holder is not None
    settling = view.state in LET_GO and view.heard_at is not None and now - view.heard_at < SETTLING_S
    return Progress(
        launches=(view.launch,) if view.launch is not None and (at_work or settling) else (),
        gone=_gone(log),
        complete=view.state == "completed",
        update=view.update,
        updates=view.updates,
        update_s=view.figures.update_s,
    )


def _gone(log: RunLog) -> tuple[str, ...]:
    """The launches of a run whose processes have ended, as is seen from here."""
    launched = (event for entry in log.entries for event in entry.events if isinstance(event, Launched))
    return tuple(event.launch for event in launched if gone(event.place))


class Root:
    """Everything under one root. Each call reads the store anew."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self.store = store
        self._clock = clock

    def __repr__(self) -> str:
        return f"raykit.open({self.store.url!r})"

    def experiments(self) -> list[str]:
        """The names of all experiments.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        names = folders(self.store, layout.experiments())
        return [name for name in names if not PARTS.isdisjoint(folders(self.store, layout.experiment(name)))]

    def runs(self, experiment: str | None = None, *, trials: bool = True) -> list[RunView]:
        """Every run, or those of one experiment; without `trials`, none of a search: `searches` has those.

        A run that cannot be read is there too, as `corrupt`.

        Raises:
            NotFoundError: there is no such experiment.
            StoreUnavailableError: the store did not answer.
        """
        names = self._run_names(experiment, trials=trials)
        if experiment is not None and not names:
            raise self._unknown(experiment)
        around = self._around()
        return [self._view_or_corrupt(*name, around) for name in names]

    def run(self, name: str) -> RunView:
        """One run, by `experiment/run`, or by `experiment` where it has only one.

        Raises:
            NotFoundError: there is no such run.
            InvalidInput: the experiment has several runs.
            CorruptError: its log or its history cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        return self._view(*self.resolve(name), self._around())

    def reader(self, name: str) -> RunReader:
        """One run, to be looked at again and again.

        Raises:
            UnsafeNameError: it cannot be a name.
            NotFoundError: there is no such run.
            InvalidInput: the experiment has several runs.
            StoreUnavailableError: the store did not answer.
        """
        return RunReader(self, *self.resolve(name), self._around())

    def searches(self, *, broken: Callable[[str, str], None] | None = None) -> list[SearchRead]:
        """Every search. `broken` is told the name of one that cannot be read, and why, instead of raising.

        Raises:
            CorruptError: a log, a record or a ledger is damaged, and nobody is told.
            StoreUnavailableError: the store did not answer.
        """
        around, found = self._around(), []
        for name in self.experiments():
            if not self.has_search(name):
                continue
            try:
                found.append(self.search_beside(name, around))
            except CorruptError as error:
                if broken is None:
                    raise
                broken(name, error.message)
        return found

    def search(self, name: str) -> SearchRead:
        """The search of an experiment: its table of trials, the pick, who is waited for.

        Raises:
            UnsafeNameError: it cannot be a name.
            NotFoundError: there is no such search.
            CorruptError: a log, a record or the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if not self.has_search(name):
            raise self._no_search(name)
        return self.search_beside(name, self._around())

    def has_search(self, experiment: str) -> bool:
        """Whether the runs of an experiment are the trials of a search.

        Raises:
            UnsafeNameError: it cannot be a name.
            StoreUnavailableError: the store did not answer.
        """
        return self.store.head(layout.search_registration(experiment, SEARCH)) is not None

    def now(self) -> float:
        """The time by which views are made."""
        return self._clock()

    def money(self, name: str) -> Money:
        """What an experiment may cost, has cost and is going to cost.

        Raises:
            NotFoundError: it has no budget here.
            CorruptError: its ledger, its log or its history is damaged.
            StoreUnavailableError: the store did not answer.
        """
        around = self._around()
        if self.has_search(name):
            money = self.search_beside(name, around).money
        else:
            found = [run for _, run in self._run_names(safe_name(name))]
            progress = self._progress(name, found[0]) if len(found) == 1 else Progress()
            money = money_of(self.store, name, self._clock(), progress=progress, ledgers=around.ledgers)
        if money is None:
            raise NotFoundError(
                f"{name} has no budget in {self.store.url}",
                field="NAME",
                value=name,
                rule="an experiment that was launched, or an account: raykit budget show lists them",
            )
        return money

    def accounts(self) -> list[AccountMoney]:
        """Every account, with the money of its experiments.

        Raises:
            CorruptError: a ledger, a log or a history is damaged.
            StoreUnavailableError: the store did not answer.
        """
        ledgers = Ledgers(self.store)
        return [self._account(ledgers, name) for name in account_names(self.store)]

    def _account(self, ledgers: Ledgers, account: str) -> AccountMoney:
        ledger, now = ledgers.named(account), self._clock()
        found = [self.money(name) for name in sorted(ledger.book.allocations)]
        return account_money(ledger, found, now)

    @overload
    def history(self, run: str | RunView, series: Literal["train"] = "train") -> RowTable[Row]: ...
    @overload
    def history(self, run: str | RunView, series: Literal["development"]) -> RowTable[EvaluationRow]: ...
    @overload
    def history(self, run: str | RunView, series: Literal["monitor"]) -> RowTable[MonitorRow]: ...
    @overload
    def history(self, run: str | RunView, series: Series) -> AnyTable: ...

    def history(self, run: str | RunView, series: Series = "train") -> AnyTable:
        """The rows of one series of a run: `train`, `development` or `monitor`.

        Raises:
            NotFoundError: there is no such run.
            InvalidInput: the experiment has several runs, or there is no such series.
            CorruptError: the log cannot be read, or the history has a gap or an overlap.
            StoreUnavailableError: the store did not answer.
        """
        experiment, name = self.resolve(run) if isinstance(run, str) else (run.experiment, run.run)
        events = self._log(experiment, name).state.events
        match series:
            case "train":
                return RowTable(self.store, events, "train", Row)
            case "development":
                return RowTable(self.store, events, "development", EvaluationRow)
            case "monitor":
                return RowTable(self.store, events, "monitor", MonitorRow)
        raise InvalidInput(
            f"there is no series {series!r}", field="series", rule="train, development or monitor"
        )

    def selected(self, run: RunView) -> Commit | None:
        """The checkpoint that the plan's rule selects so far; None without a rule or an evaluated checkpoint.

        Raises:
            CorruptError: the development history cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        chosen = selection(run.lock)
        if chosen is None:
            return None
        mode, metric = chosen
        values = {row.update: row.metrics.get(metric) for row in self.history(run, "development")}
        commits = [view.commit for view in run.commits if view.counts]
        scored = [(value, commit) for commit in commits if (value := values.get(commit.update)) is not None]
        if not scored:
            return None
        best = (min if mode == "min" else max)(value for value, _ in scored)
        return next(commit for value, commit in scored if value == best)

    def resolve(self, name: str) -> tuple[str, str]:
        """The experiment and the run that `name` means.

        Raises:
            UnsafeNameError: it cannot be a name.
            NotFoundError: there is no such run.
            InvalidInput: the experiment has several runs, or is a search.
            StoreUnavailableError: the store did not answer.
        """
        experiment, slash, run = name.partition("/")
        found = [found for _, found in self._run_names(safe_name(experiment))]
        if slash and run in found:
            return experiment, run
        if self.has_search(experiment):
            raise self._no_trial(name, found) if slash else self._is_search(experiment, found)
        if slash or not found:
            raise self._unknown(name)
        if len(found) > 1:
            raise InvalidInput(
                f"{experiment} has {len(found)} runs",
                field="RUN",
                value=name,
                rule="one of " + ", ".join(f"{experiment}/{run}" for run in found[:10]),
            )
        return experiment, found[0]

    # --- inside ---------------------------------------------------------------------------------------------

    def _run_names(self, experiment: str | None, *, trials: bool = True) -> list[tuple[str, str]]:
        names = self.experiments() if experiment is None else [experiment]
        return [
            (name, run)
            for name in names
            for run in folders(self.store, layout.runs(name))
            if trials or trial_row(run) is None
        ]

    def search_beside(self, experiment: str, around: _Around) -> SearchRead:
        """A search, with its logs read on from where they were left.

        Raises:
            NotFoundError: the experiment has none.
            CorruptError: a log, a record or the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if experiment not in around.searches:
            # Here, because it needs numpy: who searches nothing does without.
            from raykit.read.search import SearchReader

            around.searches[experiment] = SearchReader(self.store, experiment, ledgers=around.ledgers)
        read = around.searches[experiment].look(now=self._clock())
        if read is None:
            raise self._no_search(experiment)
        return read

    def _no_search(self, name: str) -> NotFoundError:
        there = [each for each in self.experiments() if self.has_search(each)]
        close = difflib.get_close_matches(name, there, n=1)
        return NotFoundError(
            f"there is no search {name} in {self.store.url}",
            field="NAME",
            value=name,
            rule=f"did you mean {close[0]}?" if close else ", ".join(there[:10]) or "a plan with [search]",
            remedy="raykit search status" if there else "raykit search PLAN",
        )

    def _is_search(self, experiment: str, begun: Sequence[str]) -> InvalidInput:
        """Why a search is no run."""
        return InvalidInput(
            f"{experiment} is a search, and its trials are its runs",
            field="RUN",
            value=experiment,
            rule=f"one of its trials: {experiment}/{begun[0]} to {begun[-1]}" if begun else "none has begun",
            remedy=f"raykit search status {experiment}",
        )

    def _no_trial(self, name: str, begun: Sequence[str]) -> NotFoundError:
        """Why a row of a search has no run, or there is no such row."""
        experiment, _, run = name.partition("/")
        return NotFoundError(
            f"{experiment} has no trial {run} that has begun",
            field="RUN",
            value=name,
            rule=f"one of {experiment}/{begun[0]} to {begun[-1]}" if begun else "none has begun",
            remedy=f"raykit search status {experiment}",
        )

    def _unknown(self, name: str) -> NotFoundError:
        names = [f"{experiment}/{run}" for experiment, run in self._run_names(None)]
        known = sorted({*names, *(name.partition("/")[0] for name in names)})
        close = difflib.get_close_matches(name, known, n=1)
        return NotFoundError(
            f"there is no run {name} in {self.store.url}",
            field="RUN",
            value=name,
            rule=f"did you mean {close[0]}?" if close else None,
            remedy="raykit ls" if names else "raykit launch PLAN",
        )

    def _log(self, experiment: str, run: str) -> RunLog:
        log = RunLog(self.store, experiment, run, by="reader")
        log.refresh()
        return log

    def _around(self) -> _Around:
        fleet = Log(self.store, layout.fleet_log(), FleetEntry, by="reader")
        return _Around(ledgers=Ledgers(self.store), fleet=fleet)

    def _view(self, experiment: str, run: str, around: _Around) -> RunView:
        return RunReader(self, experiment, run, around).look()

    def _progress(self, experiment: str, run: str) -> Progress:
        """How far a run is, for its money."""
        log = self._log(experiment, run)
        return _progress(self.seen(log, experiment, run), log, self._clock())

    def seen(self, log: RunLog, experiment: str, run: str) -> RunView:
        """A run as its own log has it, as far as that was read.

        Raises:
            CorruptError: its history cannot be read.
            StoreUnavailableError: the store did not answer.
        """
        found = log.state
        owner = found.launched if found.released is None else None
        return view_run(
            self.store,
            experiment,
            run,
            log.entries,
            found,
            lock=self._lock(
                experiment, found.attempt.plan if found.attempt else self._planned(experiment, run)
            ),
            now=self._clock(),
            alive=alive(owner.place) if owner else None,
        )

    def _view_or_corrupt(self, experiment: str, run: str, around: _Around) -> RunView:
        try:
            return self._view(experiment, run, around)
        except CorruptError as error:
            broken = Figures(health="corrupt", health_detail=error.message)
            return RunView(
                experiment=experiment, run=run, state="corrupt", detail=error.message, figures=broken
            )

    def _planned(self, experiment: str, run: str) -> str | None:
        key = layout.run_record(experiment, run)
        try:
            return RunRecord.from_bytes(self.store.get(key), key).plan
        except NotFoundError:
            return None

    def _lock(self, experiment: str, plan: str | None) -> Lock | None:
        """The lock of a plan, for figures; a run whose lock is gone can still be looked at."""
        if plan is None:
            return None
        key = layout.plan(experiment, plan, "plan.lock")
        try:
            lock = Lock.from_bytes(self.store.get(key), key)
        except (NotFoundError, CorruptError):
            return None
        return lock if lock.digest == plan else None


class RunReader:
    """One run, with what people want of it and its money. Each look reads only what is new in its logs."""

    def __init__(self, root: Root, experiment: str, run: str, around: _Around) -> None:
        self._root = root
        self._around = around
        self._own = Log(root.store, layout.experiment_log(experiment), ExperimentEntry, by="reader")
        self.log = RunLog(root.store, experiment, run, by="reader")
        self._qc = QcReader(root.store, experiment, run, log=self.log)
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
        seen = self._root.seen(self.log, self.experiment, self.run)
        try:
            return self._with_people(seen)
        except CorruptError as error:
            broken = replace(seen.figures, health="corrupt", health_detail=error.message)
            return replace(seen, figures=broken)

    def _with_people(self, seen: RunView) -> RunView:
        now = self._root.now()
        self._own.refresh()
        self._around.fleet.refresh()
        entries: list[ExperimentEntry | FleetEntry] = [*self._own.entries, *self._around.fleet.entries]
        acts = fold_acts(entries)
        seen = self._as_row(seen)
        money = self._money(seen, acts, now)
        seen = replace(seen, fleet=fleet_of(seen, acts, entries, now), money=money)
        seen = _readable(seen, lambda: replace(seen, qc=self._qc.look(now=now, acts=acts)))
        return _readable(seen, lambda: replace(seen, sets=self._generated(seen, acts, now)))

    def _search(self, seen: RunView) -> SearchRead | None:
        """The search that it is a trial of."""
        if seen.row is None or not self._root.has_search(self.experiment):
            return None
        return self._root.search_beside(self.experiment, self._around)

    def _as_row(self, seen: RunView) -> RunView:
        """A trial in the state of its row: its own log says of a stop only that it was let go of."""
        search = self._search(seen)
        if search is None or seen.row is None or seen.row > len(search.rows):
            return seen
        row = search.rows[seen.row - 1]
        if row.status == "waiting" or (not row.ended and seen.state in LIVE):
            return seen
        holder = None if row.ended else seen.holder
        return replace(seen, state=row.status, detail=row.detail or seen.detail, holder=holder)

    def _money(self, seen: RunView, acts: Acts, now: float) -> Money | None:
        """The money of its experiment: of a trial, that of the whole search."""
        search = self._search(seen)
        if search is not None:
            return search.money
        return money_of(
            self._root.store,
            self.experiment,
            now,
            progress=_progress(seen, self.log, now),
            locked=acts.locked[-1] if acts.locked else None,
            ledgers=self._around.ledgers,
        )

    def _generated(self, seen: RunView, acts: Acts, now: float) -> Sequence[SetRead]:
        """The synthetic sets of its experiment."""
        planned = seen.lock is not None and seen.lock.settings.get("generate")
        if not planned and not acts.contracted:
            return ()
        # Here, because it needs numpy: who generates nothing does without.
        from raykit.read.generation import GenerationReader

        self._sets = self._sets or GenerationReader(
            self._root.store, self.experiment, ledgers=self._around.ledgers
        )
        return self._sets.look(now=now, acts=acts)


def _readable(seen: RunView, more: Callable[[], RunView]) -> RunView:
    """A run with more of it; if that is damaged, the run as it was seen, and what is damaged."""
    try:
        return more()
    except CorruptError as error:
        return replace(seen, figures=replace(seen.figures, health="corrupt", health_detail=error.message))
