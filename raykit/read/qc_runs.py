"""The examinations of one run, or of every trial of a search: one backlog under one suite, whoever asks.

Each trial is a run of its own, with a setting of its own; what it is asked is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raykit.pauses import Acts, InForce, pause_of
from raykit.plan import Plan
from raykit.qc.backlog import Backlog, Standing, backlog, workable
from raykit.read.qc import COUNTED, Kept, OnFailure, QcRead, QcReader
from raykit.records import Roster, Suite
from raykit.store.base import ObjectStore
from raykit.store.people import read_acts
from raykit.store.qc import Examinations
from raykit.store.search import SearchLog, read_registration

MAIN = "main"
"""The run of a plan that is not a search."""

Names = Callable[[], Sequence[str]]
"""The runs that are examined, as things stand; asked anew at every look."""

Trials = Callable[[ObjectStore, str], Names]
"""Opens the names of the trials of an experiment. It travels to workers: a class, or a function of a module."""

Whose = str | Trials
"""Whose checkpoints are examined: those of one run, or of every trial of a search."""


class BegunTrials:
    """The trials of a search that have begun, in the order of its table. It is `Trials`, and what that opens."""

    def __init__(self, store: ObjectStore, experiment: str) -> None:
        self._store = store
        self._experiment = experiment
        self._log: SearchLog | None = None

    def __call__(self) -> tuple[str, ...]:
        """Their runs, by name; none before the search is registered.

        Raises:
            CorruptError: the search's registration or log is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if self._log is None:
            registration = read_registration(self._store, self._experiment)
            if registration is None:
                return ()
            self._log = SearchLog(self._store, registration, by="reader")
        self._log.refresh()
        return tuple(row.run for row in self._log.state.rows if row.launches)


def whose_of(plan: Plan) -> Whose:
    """Whose checkpoints the QC of a plan examines."""
    return MAIN if plan.search is None else BegunTrials


def names_of(whose: Whose, store: ObjectStore, experiment: str) -> Names:
    """Tells the runs that are examined, as often as it is asked."""
    if isinstance(whose, str):
        only = (whose,)
        return lambda: only
    return whose(store, experiment)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRead:
    """The examinations of one run, or of every trial of a search, under the one suite of their experiment."""

    experiment: str
    suite: Suite
    on_failure: OnFailure
    tries: int
    acts: Acts
    now: float
    whose: Whose
    reads: tuple[QcRead, ...]

    @property
    def trials(self) -> bool:
        """They are those of a search, each with a setting of its own."""
        return not isinstance(self.whose, str)

    @property
    def pause(self) -> InForce | None:
        """The pause that keeps workers from examining, the narrowest first."""
        return pause_of(self.acts, self.experiment, "qc", self.suite.digest)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Every required checkpoint, run by run."""
        return tuple(each for read in self.reads for each in read.backlog.standings)

    @property
    def backlog(self) -> Backlog:
        """All of them as one."""
        others = [each for read in self.reads for each in read.backlog.others]
        return backlog(self.suite.digest, self.standings, others)

    @property
    def workable(self) -> int:
        """How many somebody could take now, or is at: as long as there are some, there is something to wait for."""
        return sum(workable(read.backlog) for read in self.reads)

    @property
    def oldest_s(self) -> float | None:
        """How long the oldest open request has waited since its checkpoint was committed."""
        return max((read.oldest_s for read in self.reads if read.oldest_s is not None), default=None)

    @property
    def complete(self) -> bool:
        """Every required checkpoint is examined, and a person has looked at every receipt."""
        return bool(self.reads) and all(read.backlog.complete for read in self.reads)

    def of(self, run: str) -> QcRead | None:
        """The examinations of one of the runs."""
        return next((read for read in self.reads if read.run == run), None)

    def counts(self) -> dict[str, int]:
        """How many required checkpoints of all runs are in each state, as `QcRead.counts` has them."""
        found = dict.fromkeys(COUNTED, 0)
        for read in self.reads:
            for state, count in read.counts().items():
                found[state] += count
        return found

    @property
    def unjudged(self) -> int:
        """The same over all runs."""
        return sum(read.unjudged for read in self.reads)

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "experiment": self.experiment,
            "suite": self.suite.digest,
            "owner": self.suite.owner,
            "every": self.suite.every,
            "on_failure": self.on_failure,
            "counts": self.counts(),
            "unjudged": self.unjudged,
            "oldest_s": self.oldest_s,
            "complete": self.complete,
            "paused": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "runs": [read.plain() for read in self.reads],
        }


class RunsReader:
    """The examinations of one run or of every trial, looked at again and again."""

    def __init__(self, store: ObjectStore, experiment: str, whose: Whose) -> None:
        self.experiment = experiment
        self.whose = whose
        self._store = store
        self._kept = Kept(store, experiment)
        self._names = names_of(whose, store, experiment)
        self._readers: dict[str, QcReader] = {}

    @property
    def examinations(self) -> Examinations:
        return self._kept.examinations

    @property
    def readers(self) -> Mapping[str, QcReader]:
        """By run, as of the newest look."""
        return self._readers

    def look(self, *, now: float, acts: Acts | None = None) -> RunsRead | None:
        """How far everything is; None if the plan has no `[qc]`.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        acts = acts or read_acts(self._store, self.experiment)
        asked = self._kept.asked(acts)
        if asked is None:
            return None
        self.follow()
        said = self.examinations.said(known=self._kept.receipts)
        found = (reader.look(now=now, acts=acts, said=said) for reader in self._readers.values())
        return RunsRead(
            experiment=self.experiment,
            suite=asked.suite,
            on_failure=asked.on_failure,
            tries=asked.tries,
            acts=acts,
            now=now,
            whose=self.whose,
            reads=tuple(read for read in found if read is not None),
        )

    def follow(self) -> bool:
        """Learn of runs that have begun since; whether there are any.

        Raises:
            CorruptError: a log is damaged.
            StoreUnavailableError: the store did not answer.
        """
        new = [name for name in self._names() if name not in self._readers]
        for name in new:
            self._readers[name] = QcReader(self._store, self.experiment, name, kept=self._kept)
        return bool(new)

    def roster(self, suite: Suite) -> Roster:
        """The roster of a suite.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        return self._kept.roster(suite)


def read_qc_of(store: ObjectStore, experiment: str, whose: Whose, *, now: float) -> RunsRead | None:
    """The examinations of one run or of every trial, once; None if the plan has no `[qc]`.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return RunsReader(store, experiment, whose).look(now=now)
