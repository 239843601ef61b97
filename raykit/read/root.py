"""The root of a store, as Python programs read it."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, overload

from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import safe_name
from raykit.read.money import AccountMoney, Ledgers, Money, Progress, account_money, money_of
from raykit.read.reader import Around, RunReader, has_search, has_sets, progress_of, seen_in
from raykit.read.rows import RowTable
from raykit.read.seen import selection
from raykit.read.view import Figures, RunView, trial_row
from raykit.records import (
    Commit,
    EvaluationRow,
    MonitorRow,
    Row,
    Series,
)
from raykit.store import layout, open_store
from raykit.store.accounts import accounts as account_names
from raykit.store.base import ObjectStore
from raykit.store.folders import folders
from raykit.store.log import RunLog
from raykit.store.people import read_acts

if TYPE_CHECKING:
    from raykit.read.search import SearchRead

AnyTable = RowTable[Row] | RowTable[EvaluationRow] | RowTable[MonitorRow]


def open(root: str | ObjectStore, *, clock: Callable[[], float] = time.time) -> Root:
    """Open the store at a path or `s3://bucket/prefix` for reading. Nothing is read yet.

    Raises:
        UnusableRootError: `root` is neither a path nor an S3 URL.
    """
    return Root(open_store(root) if isinstance(root, str) else root, clock)


PARTS = frozenset(
    ("log", "plans", "code", "env", "data", "runs", "qc", "generation", "inputs", "searches", "report")
)
"""Folders of an experiment: where none of them is, somebody else's files lie."""


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
        return RunReader(self._around(), *self.resolve(name))

    def searches(self, *, broken: Callable[[str, str], None] | None = None) -> list[SearchRead]:
        """Every search. `broken` is told the name of one that cannot be read, and why, instead of raising.

        Raises:
            CorruptError: a log, a record or a ledger is damaged, and nobody is told.
            StoreUnavailableError: the store did not answer.
        """
        around = self._around()
        found: list[SearchRead] = []
        for name in self.experiments():
            try:
                read = around.search(name)
            except CorruptError as error:
                if broken is None:
                    raise
                broken(name, error.message)
            else:
                found += [] if read is None else [read]
        return found

    def search(self, name: str) -> SearchRead:
        """The search of an experiment: its table of trials, the pick, who is waited for.

        Raises:
            UnsafeNameError: it cannot be a name.
            NotFoundError: there is no such search.
            CorruptError: a log, a record or the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        return self._searched(name, self._around())

    def has_search(self, experiment: str) -> bool:
        """Whether the runs of an experiment are the trials of a search.

        Raises:
            UnsafeNameError: it cannot be a name.
            StoreUnavailableError: the store did not answer.
        """
        return has_search(self.store, experiment)

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
        search = around.search(name)
        if search is not None:
            money = search.money
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

    def _searched(self, experiment: str, around: Around) -> SearchRead:
        read = around.search(experiment)
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

    def _around(self) -> Around:
        return Around(self.store, self._clock)

    def _view(self, experiment: str, run: str, around: Around) -> RunView:
        return RunReader(around, experiment, run).look()

    def _progress(self, experiment: str, run: str) -> Progress:
        """How far a run is, for its money."""
        log = self._log(experiment, run)
        now, acts = self._clock(), read_acts(self.store, experiment)
        seen = seen_in(log, self.store, experiment, run, now)
        if has_sets(seen, acts):
            # Here, because it needs numpy: who generates nothing does without.
            from raykit.read.generation import read_sets

            seen = replace(seen, sets=read_sets(self.store, experiment, now=now, acts=acts, whole=False))
        return progress_of(seen, log, now)

    def _view_or_corrupt(self, experiment: str, run: str, around: Around) -> RunView:
        try:
            return self._view(experiment, run, around)
        except CorruptError as error:
            broken = Figures(health="corrupt", health_detail=error.message)
            return RunView(
                experiment=experiment, run=run, state="corrupt", detail=error.message, figures=broken
            )
