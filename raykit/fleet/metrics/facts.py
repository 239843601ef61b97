"""What there is to say, as plain facts, and the samples that each comes to. Pure: no Ray, no store, no clock.

A fact that is not known is None, and comes to no sample: what is absent on the dashboard is unknown. A count that is
known to be nothing is 0, and is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, get_args

from raykit.budget.book import Allocation, Book, Lease
from raykit.fleet.follow import Followed, Glimpse
from raykit.fleet.metrics import catalog
from raykit.fleet.metrics.catalog import Metric
from raykit.pauses import OVERDUE_S, FleetState, InForce, Role
from raykit.reconcile import RunState
from raykit.records import MICRO, Cause, Commit, Unit
from raykit.records.search import End
from raykit.shards.standing import STATUSES

FLEET_STATES: Final[tuple[FleetState, ...]] = get_args(FleetState)
CAUSES: Final[tuple[Cause, ...]] = get_args(Cause)
PHASES: Final = (
    "starting",
    "gates",
    "training",
    "stopping",
    "completed",
    "paused",
    "killed",
    "failed",
    "preempted",
)
QC_STATES: Final = (
    "missing",
    "pending",
    "claimed",
    "retrying",
    "parked",
    "passed",
    "failed",
    "unreviewed",
)
ROW_KINDS: Final = ("produced", "filtered", "failed")
TRIAL_STATES: Final[tuple[str, ...]] = ("waiting", "running", *get_args(End))
QUIET_UPDATES: Final = 10
"""A run that takes its time over an update is not overdue before so many of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: what a gauge is set to, a counter grows by, or a histogram has seen."""

    metric: Metric
    value: float
    labels: Mapping[str, str]


class Facts(Protocol):
    """Something that is known now."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        ...


def _known(metric: Metric, value: float | None, **labels: str) -> Iterator[Sample]:
    """A sample of what is known and is a number."""
    if value is not None and math.isfinite(value):
        yield Sample(metric, float(value), labels)


# --- money --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFacts:
    """One line of a plan, in micro-units."""

    line: str
    purpose: str
    planned: int
    settled: int
    reserved: int
    remaining: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoneyFacts:
    """What one experiment has of its account, in micro-units."""

    experiment: str
    unit: Unit
    lines: tuple[LineFacts, ...]
    ceiling: int
    reserve_left: int
    per_hour: int
    """What is held now, workers and idle machines, costs in an hour."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        for line in self.lines:
            for state in ("planned", "settled", "reserved", "remaining"):
                yield Sample(
                    catalog.BUDGET[self.unit],
                    getattr(line, state) / MICRO,
                    {"experiment": self.experiment, "line": line.line, "kind": line.purpose, "state": state},
                )
        for metric, amount in (
            (catalog.CEILING, self.ceiling),
            (catalog.RESERVE_LEFT, self.reserve_left),
            (catalog.SPEND, self.per_hour),
        ):
            yield from _known(metric[self.unit], amount / MICRO, experiment=self.experiment)


def money_of(book: Book, experiment: str, leases: Iterable[Lease]) -> MoneyFacts | None:
    """What a book says of an experiment, whose open `leases` these are; None if it has nothing there."""
    allocation = book.allocations.get(experiment)
    if allocation is None:
        return None
    idle = [(held.accelerators, held.rate) for held, _ in book.held.values() if held.experiment == experiment]
    terms = (lease.reserved.terms for lease in leases if lease.open)
    works = [(each.accelerators, each.rate) for each in terms]
    return MoneyFacts(
        experiment=experiment,
        unit=book.unit,
        lines=tuple(_line(allocation, name) for name in _lines(allocation)),
        ceiling=allocation.ceiling,
        reserve_left=allocation.reserve_left(),
        per_hour=sum(accelerators * rate for accelerators, rate in (*idle, *works)),
    )


def _lines(allocation: Allocation) -> Sequence[str]:
    """Those of the plan, and those that something was charged on all the same."""
    return sorted(allocation.lines.keys() | allocation.spent.keys() | allocation.reserved.keys())


def _line(allocation: Allocation, name: str) -> LineFacts:
    planned = allocation.lines.get(name)
    return LineFacts(
        line=name,
        purpose="recovery" if planned is None else planned.purpose,  # as the book charges it
        planned=0 if planned is None else planned.planned,
        settled=allocation.spent.get(name, 0),
        reserved=allocation.reserved.get(name, 0),
        remaining=allocation.remaining(name),
    )


# --- who works, and who is paused ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """The workers of one role, and the pause that holds for it."""

    experiment: str
    role: Role
    workers: Mapping[FleetState, int]
    """By state; what is not named is none."""
    pause: Cause | None = None
    """The cause of the pause in force; None if there is none."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        of = {"experiment": self.experiment, "role": self.role}
        for state in FLEET_STATES:
            yield Sample(catalog.FLEET, float(self.workers.get(state, 0)), {**of, "state": state})
        for cause in CAUSES:
            yield Sample(catalog.PAUSED, float(cause == self.pause), {**of, "kind": cause})


def asked_of(
    pause: InForce | None, *, stopping: bool, now: float, update_s: float | None = None
) -> FleetState:
    """What is asked of workers that are there: `stopping` if they were told to stop for another reason."""
    if pause is not None and now - pause.at > max(OVERDUE_S, QUIET_UPDATES * (update_s or 0.0)):
        return "overdue"
    return "running" if pause is None and not stopping else "pausing"


def trainers_of(
    experiment: str,
    role: Role,
    glimpses: Iterable[Glimpse],
    *,
    workers: int,
    pause: InForce | None,
    now: float,
) -> FleetFacts:
    """The ranks of runs under way, so many `workers` each. Before they work nobody is there: a setup is no work."""
    asked = [state for each in glimpses if (state := _asked_of_ranks(each, pause, now)) is not None]
    return FleetFacts(
        experiment=experiment,
        role=role,
        workers={state: workers * asked.count(state) for state in FLEET_STATES},
        pause=None if pause is None else pause.pause.cause,
    )


def _asked_of_ranks(glimpse: Glimpse, pause: InForce | None, now: float) -> FleetState | None:
    match glimpse.phase:
        case "gates" | "training" | "stopping":
            update_s = None if not glimpse.updates_per_s else 1 / glimpse.updates_per_s
            return asked_of(pause, stopping=glimpse.phase == "stopping", now=now, update_s=update_s)
        case "paused":
            return "paused"
        case "starting" if glimpse.again:
            return "resuming"
        case _:
            return None


# --- a run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """How far a run is."""

    experiment: str
    phase: str
    planned: int
    recorded: int | None
    """The last update whose row is durable."""
    committed: int | None
    """The update of the newest checkpoint."""
    attempts: int
    updates_per_s: float | None = None
    ratio: float | None = None
    terms: Mapping[str, float | None] = field(default_factory=dict)
    """By loss term: its ratio."""
    development: Mapping[str, float | None] = field(default_factory=dict)
    """By metric: the newest evaluation."""
    commit: Commit | None = None
    """The newest one."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        of = self.experiment
        for phase in PHASES:
            yield from _known(catalog.RUN, float(phase == self.phase), experiment=of, state=phase)
        for state in ("planned", "recorded", "committed"):
            yield from _known(catalog.UPDATES, getattr(self, state), experiment=of, state=state)
        yield from _known(catalog.ATTEMPTS, self.attempts, experiment=of)
        yield from _known(catalog.UPDATES_PER_SECOND, self.updates_per_s, experiment=of)
        yield from _known(catalog.RATIO, self.ratio, experiment=of)
        for name, value in self.terms.items():
            yield from _known(catalog.TERM_RATIO, value, experiment=of, term=name)
        for name, value in self.development.items():
            yield from _known(catalog.DEVELOPMENT, value, experiment=of, term=name)
        if self.commit is not None:
            yield from _known(catalog.SAVE_SECONDS, self.commit.save_s, experiment=of)
            yield from _known(catalog.SAVE_BLOCKED_SECONDS, self.commit.blocked_s, experiment=of)
            yield from _known(catalog.CHECKPOINT_BYTES, self.commit.size_bytes, experiment=of)


def run_of(experiment: str, state: RunState, followed: Followed, glimpse: Glimpse) -> RunFacts:
    """What a launch knows of its run after one look."""
    rows, evaluations = followed.rows, followed.evaluations
    return RunFacts(
        experiment=experiment,
        phase=glimpse.phase,
        planned=glimpse.updates,
        recorded=state.rows if state.broken is None else None,
        committed=state.committed,
        attempts=len(state.attempts),
        updates_per_s=glimpse.updates_per_s,
        ratio=glimpse.ratio,
        terms={name: term.ratio for name, term in rows[-1].terms.items()} if rows else {},
        development=evaluations[-1].metrics if evaluations else {},
        commit=state.commits[-1] if state.commits else None,
    )


# --- QC -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QcFacts:
    """How far the examinations of an experiment are, as they were read just now."""

    experiment: str
    counts: Mapping[str, int]
    oldest_s: float | None
    """None if nothing is open."""
    took_s: Sequence[float] = ()
    """What each check took that came to its receipt since the last time."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        of = self.experiment
        for state in QC_STATES:
            yield from _known(catalog.QC_REQUESTS, self.counts.get(state, 0), experiment=of, state=state)
        yield from _known(catalog.QC_OLDEST, self.oldest_s or 0.0, experiment=of)
        for each in self.took_s:
            yield from _known(catalog.QC_UNITS, 1.0, experiment=of)
            yield from _known(catalog.QC_UNIT_SECONDS, each, experiment=of)


# --- synthetic sets -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFacts:
    """What a synthetic set has gained since the last time, and how far it is, where that was read just now."""

    experiment: str
    name: str
    counts: Mapping[str, int] | None = None
    rows: Mapping[str, float] = field(default_factory=dict)
    units: float = 0.0
    seconds: float = 0.0

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        of = {"experiment": self.experiment, "set": self.name}
        for status in STATUSES if self.counts is not None else ():
            yield from _known(catalog.SET_UNITS, (self.counts or {}).get(status, 0), **of, state=status)
        for kind in ROW_KINDS:
            yield from _known(catalog.SET_ROWS, self.rows.get(kind, 0.0), **of, kind=kind)
        yield from _known(catalog.SET_UNITS_MADE, self.units, **of)
        yield from _known(catalog.SET_UNIT_SECONDS, self.seconds, **of)


# --- a search -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFacts:
    """How far a search is. `trials` and `repeats` are rows by state: waiting, running, or one of the six ends."""

    experiment: str
    trials: Mapping[str, int]
    repeats: Mapping[str, int] = field(default_factory=dict)
    best: float | None = None
    """The best value of a completed row so far."""
    reports: int = 0
    """Development evaluations that the scheduler has heard since the last time."""

    def samples(self) -> Iterator[Sample]:
        """Every value that it comes to."""
        of = self.experiment
        for kind, rows in (("trial", self.trials), ("repeat", self.repeats)):
            for state in TRIAL_STATES:
                yield from _known(catalog.TRIALS, rows.get(state, 0), experiment=of, kind=kind, state=state)
        yield from _known(catalog.SEARCH_BEST, self.best, experiment=of)
        yield from _known(catalog.SEARCH_REPORTS, float(self.reports), experiment=of)
