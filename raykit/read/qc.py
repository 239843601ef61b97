"""The examinations of a run as people look at them: what is required, how far it is, what came of it.

No Ray is needed: everything is read from the store, with the suite of the newest lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raykit.errors import CorruptError, NotFoundError
from raykit.pauses import Acts, InForce, pause_of
from raykit.plan import Lock
from raykit.qc.backlog import Backlog, Said, Standing, Status, Wanted, all_of, required
from raykit.reconcile import RunState
from raykit.records import Commit, Receipt, Roster, RunEntry, Suite
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.plans import read_lock
from raykit.store.qc import Examinations, read_backlog

DEFAULT_TRIES = 3

OPEN_STATES: tuple[Status, ...] = ("missing", "pending", "claimed", "retrying", "parked")
COUNTED = ("required", *OPEN_STATES, "passed", "failed", "unreviewed")
"""What `QcRead.counts` counts, in its order."""

OnFailure = Literal["continue", "pause", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QcRead:
    """The examinations of one run under the suite that its experiment has now."""

    experiment: str
    run: str
    suite: Suite
    on_failure: OnFailure
    tries: int
    backlog: Backlog
    acts: Acts
    complete: bool
    """The run has trained to its end."""
    now: float

    @property
    def pause(self) -> InForce | None:
        """The pause that keeps workers from examining, the narrowest first."""
        return pause_of(self.acts, self.experiment, "qc", self.suite.digest)

    @property
    def oldest_s(self) -> float | None:
        """How long the oldest open request has waited since its checkpoint was committed."""
        waiting = [each.wanted.since for each in self.backlog.open]
        return max(0.0, self.now - min(waiting)) if waiting else None

    def counts(self) -> dict[str, int]:
        """How many required checkpoints are in each state; `passed` and `failed` are those with a receipt."""
        found: dict[str, int] = {status: self.backlog.counts.get(status, 0) for status in OPEN_STATES}
        failed = len(self.backlog.failed)
        return {
            "required": len(self.backlog.standings),
            **found,
            "passed": self.backlog.counts.get("done", 0) - failed,
            "failed": failed,
            "unreviewed": len(self.backlog.unreviewed),
        }

    @property
    def unjudged(self) -> int:
        """Of those counted as passed: how many no threshold of quality was held against."""
        return sum(each.unjudged and not each.turned_down for each in self.backlog.standings)

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "experiment": self.experiment,
            "run": self.run,
            "suite": self.suite.digest,
            "owner": self.suite.owner,
            "every": self.suite.every,
            "on_failure": self.on_failure,
            "counts": self.counts(),
            "unjudged": self.unjudged,
            "oldest_s": self.oldest_s,
            "complete": self.backlog.complete,
            "paused": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "requests": [plain_standing(each) for each in self.backlog.standings],
            "superseded": [plain_standing(each) for each in self.backlog.others],
        }


def plain_standing(found: Standing) -> dict[str, Any]:
    """One required checkpoint as JSON values."""
    return {
        "update": found.update,
        "checkpoint": found.wanted.checkpoint,
        "request": found.request.id,
        "status": found.status,
        "since": found.wanted.since,
        "tries": len(found.said.claims),
        "claim": found.claim and found.claim.plain(),
        "failures": [failure.plain() for failure in found.said.failures],
        "conflicts": len(found.said.conflicts),
        "took": [took.plain() for took in found.said.took],
        "receipt": found.receipt and {**found.receipt.plain(), "digest": found.receipt.digest},
        "review": found.review and {**found.review.event.plain(), "at": found.review.at},
        "usable": found.usable,
        "why_not": found.why_not,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the newest lock of an experiment asks of every checkpoint, and what it does about failures."""

    suite: Suite
    on_failure: OnFailure
    tries: int


class Kept:
    """What readers of one experiment's examinations have read, and need not read again."""

    def __init__(self, store: ObjectStore, experiment: str) -> None:
        self.examinations = Examinations(store, experiment)
        self.receipts: dict[str, Receipt] = {}
        """By request."""
        self._store = store
        self._experiment = experiment
        self._locks: dict[str, Lock] = {}
        self._suites: dict[str, Suite] = {}
        self._rosters: dict[str, Roster] = {}

    def asked(self, acts: Acts) -> Asked | None:
        """What is asked as things stand; None if the plan has no `[qc]`.

        Raises:
            CorruptError: a record is gone or damaged.
            StoreUnavailableError: the store did not answer.
        """
        lock = self._lock(acts)
        if lock is None or lock.suite is None:
            return None
        suite = self._suites.get(lock.suite) or self.examinations.suite(lock.suite)
        self._suites[lock.suite] = suite
        settings: Mapping[str, Any] = lock.settings.get("qc", {})
        return Asked(
            suite=suite,
            on_failure=settings.get("on_failure", "continue"),
            tries=int(settings.get("tries", DEFAULT_TRIES)),
        )

    def _lock(self, acts: Acts) -> Lock | None:
        """The newest lock of the experiment."""
        if not acts.locked:
            return None
        digest = acts.locked[-1].plan
        if digest not in self._locks:
            try:
                self._locks[digest] = read_lock(self._store, self._experiment, digest)
            except NotFoundError as error:
                raise CorruptError(f"the lock that says what is examined is gone: {error}") from error
        return self._locks[digest]

    def roster(self, suite: Suite) -> Roster:
        """The roster of a suite.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        if suite.roster not in self._rosters:
            self._rosters[suite.roster] = self.examinations.roster(suite.roster)
        return self._rosters[suite.roster]


class QcReader:
    """The examinations of one run, looked at again and again. What never changes is read once."""

    def __init__(
        self,
        store: ObjectStore,
        experiment: str,
        run: str = "main",
        *,
        log: RunLog | None = None,
        kept: Kept | None = None,
    ) -> None:
        """`kept` is what several readers of one experiment have read already."""
        self._store = store
        self._kept = kept or Kept(store, experiment)
        self.experiment = experiment
        self.run = run
        self.examinations = self._kept.examinations
        self.log = log or RunLog(store, experiment, run, by="reader")

    def look(
        self, *, now: float, acts: Acts | None = None, said: Mapping[str, Said] | None = None
    ) -> QcRead | None:
        """How far everything is; None if the plan has no `[qc]`. `acts` saves reading what people have said, and `said`
        listing what is written.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        acts = acts or read_acts(self._store, self.experiment)
        asked = self._kept.asked(acts)
        if asked is None:
            return None
        self.log.refresh()
        commits = commits_of(self.log.entries, self.log.state)
        wanted = required(commits, every=asked.suite.every, complete=self.log.state.completed)
        found = read_backlog(
            self.examinations,
            asked.suite.digest,
            wanted,
            also=[each for each in all_of(commits) if each not in wanted],
            run=self.run,
            acts=acts,
            tries=asked.tries,
            now=now,
            known=self._kept.receipts,
            said=said,
        )
        self._kept.receipts |= {
            each.request.id: each.receipt for each in found.standings if each.receipt is not None
        }
        return QcRead(
            experiment=self.experiment,
            run=self.run,
            suite=asked.suite,
            on_failure=asked.on_failure,
            tries=asked.tries,
            backlog=found,
            acts=acts,
            complete=self.log.state.completed,
            now=now,
        )

    def roster(self, suite: Suite) -> Roster:
        """The roster of a suite.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        return self._kept.roster(suite)


def read_qc(store: ObjectStore, experiment: str, run: str = "main", *, now: float) -> QcRead | None:
    """The examinations of one run, once; None if its plan has no `[qc]`.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return QcReader(store, experiment, run).look(now=now)


def wanted_of(entries: Sequence[RunEntry], state: RunState, every: int) -> tuple[Wanted, ...]:
    """The checkpoints of a run that the cadence asks for, with the times of their commits."""
    return required(commits_of(entries, state), every=every, complete=state.completed)


def commits_of(entries: Sequence[RunEntry], state: RunState) -> list[tuple[Commit, float]]:
    """The commits of a run that count, each with the time of its entry."""
    counting = {id(commit) for commit in state.commits}
    return [
        (event, entry.at)
        for entry in entries
        for event in entry.events
        if isinstance(event, Commit) and id(event) in counting
    ]
