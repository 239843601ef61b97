"""The book of one account: what its ledger comes to.

`Book.apply` takes the events of the log one by one, in order; that is the only way in which a book changes. A
`draft` is a cheap copy in which a batch of decisions is tried before it is written.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, overload

from raykit.budget.amounts import time_cost
from raykit.budget.worst import Past
from raykit.errors import CancelledError, NotFoundError
from raykit.records import (
    AccountEntry,
    AccountOpened,
    Accrued,
    Approved,
    Closed,
    Corrected,
    Freed,
    Held,
    Line,
    Parted,
    Planned,
    Purpose,
    Rated,
    Record,
    Replanned,
    Reserved,
    Settled,
    Unit,
    Voided,
)

RESERVES: frozenset[Purpose] = frozenset({"confirmation", "recovery"})
"""Purposes that are kept for later: what other work overruns is taken from nothing else."""

IDLE = "idle"
"""The line on which machines are charged while nobody works on them. No plan has it: recovery pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One reservation and what has become of it."""

    reserved: Reserved
    at: float
    worst: int
    time_ms: int
    """The time that is paid for."""
    cost: int | None = None
    """What it cost, once that is known."""
    held_ms: int | None = None
    reason: str | None = None
    how: str | None = None
    """How its cost is known."""
    void: bool = False
    accrued: int = 0

    @property
    def charged(self) -> int:
        """Its share of the account: the cost where that is known, else the worst case."""
        return self.worst if self.cost is None else self.cost

    @property
    def open(self) -> bool:
        return self.cost is None

    @property
    def works(self) -> bool:
        """Something could work under it. Of a fixed cost that a person has charged only the amount is known."""
        return self.reserved.terms.time_ms > 0


class Share(NamedTuple):
    """What is set aside for one purpose, and what of it is settled or reserved."""

    planned: int
    used: int


class Ended(Sequence[Past]):
    """Attempts that have ended, in order. A draft adds to what was `before` it, and copies nothing of that.

    Kept as plain numbers: a ledger has very many, and each object costs the garbage collector.
    """

    __slots__ = ("_before", "_held_ms", "_wall_ms")

    def __init__(self, before: Sequence[Past] = ()) -> None:
        self._before = before
        self._held_ms: list[int] = []
        self._wall_ms: list[int | None] = []

    def add(self, held_ms: int, wall_ms: int | None) -> None:
        """One more has ended."""
        self._held_ms.append(held_ms)
        self._wall_ms.append(wall_ms)

    def __len__(self) -> int:
        return len(self._before) + len(self._held_ms)

    def __iter__(self) -> Iterator[Past]:
        yield from self._before
        yield from map(Past, self._held_ms, self._wall_ms)

    @overload
    def __getitem__(self, at: int) -> Past: ...
    @overload
    def __getitem__(self, at: slice) -> list[Past]: ...
    def __getitem__(self, at: int | slice) -> Past | list[Past]:
        return list(self)[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


@dataclass(slots=True, kw_only=True)
class Allocation:
    """One experiment's part of the account."""

    planned: Planned
    ceiling: int
    lines: dict[str, Line]
    rates: Mapping[str, int]
    """By line: the rate that a person has seen."""
    margin_permille: int = 1000
    replans: int = 0
    closed: bool = False
    spent: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    past: dict[str, Ended] = field(default_factory=dict)
    """By line: the attempts that have ended."""
    trials: dict[tuple[str, str], Ended] = field(default_factory=dict)
    """By line and trial of a search: those of its attempts that have ended."""

    @property
    def experiment(self) -> str:
        return self.planned.experiment

    def copy(self) -> Allocation:
        past = {line: Ended(attempts) for line, attempts in self.past.items()}
        trials = {trial: Ended(attempts) for trial, attempts in self.trials.items()}
        return replace(self, spent=dict(self.spent), reserved=dict(self.reserved), past=past, trials=trials)

    def used(self, line: str) -> int:
        return self.spent.get(line, 0) + self.reserved.get(line, 0)

    def ended(self, line: str, trial: str | None = None) -> Sequence[Past]:
        """The attempts on a line that have ended, in order; of one `trial` of a search, or all."""
        return self.past.get(line, ()) if trial is None else self.trials.get((line, trial), ())

    @property
    def actual(self) -> int:
        return sum(self.spent.values())

    @property
    def charged(self) -> int:
        """Settled and reserved, over all lines."""
        return self.actual + sum(self.reserved.values())

    def by_purpose(self) -> dict[Purpose, Share]:
        """What is set aside for each purpose, and what of it is used."""
        shares: dict[Purpose, Share] = {}
        for name in self.lines.keys() | self.spent.keys() | self.reserved.keys():
            line = self.lines.get(name)
            purpose: Purpose = "recovery" if line is None else line.purpose
            share = shares.get(purpose, Share(0, 0))
            planned = share.planned + (0 if line is None else line.planned)
            shares[purpose] = Share(planned, share.used + self.used(name))
        return shares

    def remaining(self, line: str) -> int:
        """What a line can still pay: what it has left, and no more than its purpose has left."""
        given = self.lines.get(line)
        if given is None:
            return 0
        share = self.by_purpose()[given.purpose]
        return min(given.planned - self.used(line), share.planned - share.used)

    def overrun(self) -> int:
        """By how much purposes are past what was set aside for them: what eats into the reserves."""
        return sum(max(0, share.used - share.planned) for share in self.by_purpose().values())

    @property
    def needs_replan(self) -> bool:
        return self.overrun() > 0

    def reserve_left(self) -> int:
        """What is left for confirmation and recovery once everything else is paid as planned, or as it came."""
        taken = sum(
            share.used if purpose in RESERVES else max(share.planned, share.used)
            for purpose, share in self.by_purpose().items()
        )
        return max(0, self.ceiling - taken)


class Book:
    """One account at one moment."""

    def __init__(self) -> None:
        self.opened: AccountOpened | None = None
        self.figure: int | None = None
        """What a person has let the account come to."""
        self.figure_stated = False
        """A person has stated that figure for the account itself: no approval of a plan raises it."""
        self.approvals: dict[tuple[str, str], Approved] = {}
        """By experiment and projection: the newest approval of a plan."""
        self.parted: dict[tuple[str, str], Parted] = {}
        self.rates: dict[str, Rated] = {}
        self.allocations: MutableMapping[str, Allocation] = {}
        self.leases: MutableMapping[str, Lease] = {}
        self.held: dict[tuple[str, str], tuple[Held, float]] = {}
        self.settled = 0
        self.reserved = 0

    @property
    def unit(self) -> Unit:
        return self.opened.unit if self.opened is not None else "usd"

    @property
    def charged(self) -> int:
        """Settled and reserved, of all experiments."""
        return self.settled + self.reserved

    def idle_cost(self, now: float, experiment: str | None = None, pool: str | None = None) -> int:
        """What machines that nobody works on have cost since they were left: of all, of one experiment, or one pool."""
        return sum(
            time_cost(int(max(0.0, now - since) * 1000), held.accelerators, held.rate)
            for (name, where), (held, since) in self.held.items()
            if experiment in (None, name) and pool in (None, where)
        )

    def draft(self) -> Book:
        """A copy to try decisions in: the book itself does not change with it. What is large is copied on change."""
        draft = Book()
        draft.__dict__.update(self.__dict__)
        draft.leases = ChainMap({}, self.leases)
        draft.allocations = ChainMap({}, self.allocations)
        draft.approvals, draft.parted = dict(self.approvals), dict(self.parted)
        draft.rates, draft.held = dict(self.rates), dict(self.held)
        return draft

    def alternatives(self, decision: str) -> list[Allocation]:
        """The plans for one decision."""
        return [each for each in self.allocations.values() if each.planned.decision == decision]

    def open_leases(self, experiment: str | None = None) -> list[Lease]:
        """The leases whose end is not known, oldest first."""
        return [
            lease
            for lease in self.leases.values()
            if lease.open and (experiment is None or lease.reserved.experiment == experiment)
        ]

    # --- events ---------------------------------------------------------------------------------------------

    def apply(self, event: Record, at: float) -> None:
        """Take one event of the log, written at `at`. Facts are taken as they are; nothing is refused here.

        Raises:
            KeyError: it is about a lease or an experiment that no event before it has begun.
        """
        match event:  # what is frequent comes first
            case Reserved():
                self._take(Lease(reserved=event, at=at, worst=event.worst, time_ms=event.terms.time_ms))
            case Settled():
                self._settle(event)
            case Accrued():
                lease = self.leases[event.lease]
                self._take(replace(lease, worst=event.worst, time_ms=event.time_ms, accrued=event.cost))
            case Voided():
                lease = self.leases[event.lease]
                self._take(replace(lease, cost=0, held_ms=0, reason="never started", void=True))
            case Corrected():
                self._take(replace(self.leases[event.lease], cost=event.cost))
            case AccountOpened():
                self.opened = self.opened or event
            case Parted():
                self.parted[event.experiment, event.account] = event
            case Planned():
                self._plan(event)
            case Replanned():
                allocation = self._changing(event.experiment)
                allocation.ceiling, allocation.lines = event.ceiling, {x.line: x for x in event.lines}
                allocation.rates = {**allocation.rates, **event.rates}
                allocation.replans += 1
            case Approved(scope="account"):
                self.figure, self.figure_stated = event.covers, True
            case Approved(experiment=str() as name, projection=str() as projection):
                self.approvals[name, projection] = event
                if not self.figure_stated:
                    self.figure = max(self.figure or 0, event.covers)
            case Rated():
                self.rates[event.pool] = event
            case Held():
                self.held.setdefault((event.experiment, event.pool), (event, at))
            case Freed():
                self.held.pop((event.experiment, event.pool), None)
                spent = self._changing(event.experiment).spent
                spent[IDLE] = spent.get(IDLE, 0) + event.cost
                self.settled += event.cost
            case Closed():
                self._changing(event.experiment).closed = True

    def _changing(self, experiment: str) -> Allocation:
        """The allocation of an experiment, for a change; in a draft, its own copy."""
        held = self.allocations
        if isinstance(held, ChainMap) and experiment not in held.maps[0]:
            held[experiment] = held[experiment].copy()
        return held[experiment]

    def _plan(self, event: Planned) -> None:
        lines = {line.line: line for line in event.lines}
        self.allocations[event.experiment] = Allocation(
            planned=event,
            ceiling=event.ceiling,
            lines=lines,
            rates=event.rates,
            margin_permille=event.margin_permille,
        )

    def _settle(self, event: Settled) -> None:
        lease = self.leases[event.lease]
        allocation, line, trial = (
            self._changing(lease.reserved.experiment),
            lease.reserved.line,
            lease.reserved.run,
        )
        if lease.works:
            allocation.past.setdefault(line, Ended()).add(event.time_ms, event.wall_ms)
        if trial is not None:
            allocation.trials.setdefault((line, trial), Ended()).add(event.time_ms, event.wall_ms)
        self._take(replace(lease, cost=event.cost, held_ms=event.time_ms, reason=event.reason, how=event.how))

    def _take(self, lease: Lease) -> None:
        """Put a lease in the place of what it was, totals included."""
        name = lease.reserved.lease
        allocation = self._changing(lease.reserved.experiment)
        was = self.leases.get(name)
        if was is not None:
            self._count(allocation, was, -was.charged)
        self._count(allocation, lease, lease.charged)
        self.leases[name] = lease

    def _count(self, allocation: Allocation, lease: Lease, amount: int) -> None:
        line = lease.reserved.line
        totals = allocation.reserved if lease.open else allocation.spent
        totals[line] = totals.get(line, 0) + amount
        if lease.open:
            self.reserved += amount
        else:
            self.settled += amount


def allocation_of(book: Book, experiment: str) -> Allocation:
    """An experiment's part of the account.

    Raises:
        NotFoundError: it has none.
    """
    allocation = book.allocations.get(experiment)
    if allocation is None:
        raise NotFoundError(
            f"{experiment} has no budget here",
            field="NAME",
            value=experiment,
            rule=", ".join(sorted(book.allocations)) or "a plan that was launched",
        )
    return allocation


def running(book: Book, experiment: str) -> Allocation:
    """An experiment's part of the account, for more to be spent from it.

    Raises:
        NotFoundError: it has none.
        CancelledError: the experiment was ended for good.
    """
    allocation = allocation_of(book, experiment)
    if allocation.closed:
        raise CancelledError(
            f"{experiment} was cancelled: nothing more is spent on it",
            rule="a cancelled experiment is never started again",
            remedy="give the plan a new name",
        )
    return allocation


def read_book(entries: Iterable[AccountEntry], onto: Book | None = None) -> Book:
    """The book that a ledger comes to; `onto` is what earlier entries came to, and is changed."""
    book = onto or Book()
    for entry in entries:
        for event in entry.events:
            book.apply(event, entry.at)
    return book
