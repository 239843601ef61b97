"""A ledger held against what it promises, event by event. Pure.

The door (`admit`) and the people's acts (`acts`) keep these rules by deciding against the book before each append.
Here they are told once more, from the events alone and with sums of its own, so that a mistake there shows here.

Only a reservation, or a lease that is renewed for longer, spends: it must lie within every bound that was in force at
that moment. What is learned later (a settlement above its worst case, a correction, idle machines) is a fact and may
pass a bound; then nothing more may be reserved until a person has moved money.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raykit.records import (
    MICRO,
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
    Rated,
    Record,
    Replanned,
    Reserved,
    Settled,
    Terms,
    Unit,
    Voided,
)

HOUR_MS = 3_600_000
WITHOUT_A_PERSON = {"usd": 5 * MICRO, "accelerator-hours": 0}


class Finding(NamedTuple):
    """One broken promise: the invariant, what should hold, what is there, and the number of the entry."""

    invariant: str
    rule: str
    found: str
    n: int


class _Said(NamedTuple):
    rule: str
    found: str


@dataclass(slots=True)
class _Plan:
    decision: str
    ceiling: int
    lines: dict[str, Line]
    used: dict[str, int] = field(default_factory=dict)
    """By line: what is settled or reserved."""
    closed: bool = False

    @property
    def total(self) -> int:
        return sum(self.used.values())

    def by_purpose(self) -> dict[str, tuple[int, int]]:
        """What each purpose may cost, and what it has used. Idle machines have no line of their own: recovery pays."""
        sums: dict[str, tuple[int, int]] = {}
        for name in self.lines.keys() | self.used.keys():
            line = self.lines.get(name)
            purpose = line.purpose if line is not None else "recovery"
            planned, used = sums.get(purpose, (0, 0))
            sums[purpose] = planned + (line.planned if line else 0), used + self.used.get(name, 0)
        return sums

    def overrun(self) -> list[str]:
        return [name for name, (planned, used) in self.by_purpose().items() if used > planned]


@dataclass(slots=True)
class _Lease:
    experiment: str
    line: str
    projection: str | None
    terms: Terms
    time_ms: int
    charged: int
    open: bool = True


def audit(entries: Sequence[AccountEntry]) -> Iterator[Finding]:
    """Everything in a ledger that breaks a promise, in the order of the ledger; nothing if all is well."""
    ledger = _Ledger()
    for entry in entries:
        for event in entry.events:
            for said in ledger.take(event):
                yield Finding("I6", said.rule, said.found, entry.n)


class _Ledger:
    """What the events so far come to."""

    def __init__(self) -> None:
        self.unit: Unit | None = None
        self.figure: int | None = None
        self.figure_stated = False
        self.covers: dict[tuple[str, str], int] = {}
        self.plans: dict[str, _Plan] = {}
        self.leases: dict[str, _Lease] = {}
        self.held: set[tuple[str, str]] = set()
        self.total = 0

    def take(self, event: Record) -> Iterator[_Said]:
        """Hold one event against those before it, and count it in."""
        if self.unit is None and not isinstance(event, AccountOpened):
            yield _Said("an account is opened before anything else", f"{_name(event)} comes first")
            self.unit = "usd"
        match event:
            case AccountOpened():
                yield from self._opened(event)
            case Planned():
                yield from self._planned(event)
            case Replanned():
                yield from self._replanned(event)
            case Approved():
                yield from self._approved(event)
            case Reserved():
                yield from self._reserved(event)
            case Accrued():
                yield from self._accrued(event)
            case Settled():
                yield from self._ended(event.lease, event.cost, "settled")
            case Voided():
                yield from self._ended(event.lease, 0, "voided")
            case Corrected():
                yield from self._corrected(event)
            case Held() | Freed():
                yield from self._idle(event)
            case Closed():
                yield from self._closed(event)
            case Parted() | Rated():
                pass

    # --- what people do -------------------------------------------------------------------------------------

    def _opened(self, event: AccountOpened) -> Iterator[_Said]:
        if self.unit is not None:
            yield _Said("an account is opened once", f"{event.account} is opened again")
        else:
            self.unit = event.unit

    def _planned(self, event: Planned) -> Iterator[_Said]:
        if event.experiment in self.plans:
            yield _Said("a plan's lines are set aside once", f"{event.experiment} is planned again")
            return
        yield from _lines(event.experiment, event.lines, event.ceiling)
        lines = {line.line: line for line in event.lines}
        self.plans[event.experiment] = _Plan(event.decision, event.ceiling, lines)

    def _replanned(self, event: Replanned) -> Iterator[_Said]:
        plan = self.plans.get(event.experiment)
        if plan is None:
            yield _Said("only a plan can be replanned", f"{event.experiment} has none")
            return
        yield from _lines(event.experiment, event.lines, event.ceiling)
        plan.ceiling, plan.lines = event.ceiling, {line.line: line for line in event.lines}
        if plan.overrun():
            short = ", ".join(plan.overrun())
            yield _Said(
                "a replan covers what is settled and reserved already", f"{event.experiment}: not {short}"
            )

    def _approved(self, event: Approved) -> Iterator[_Said]:
        if event.experiment is None or event.projection is None:
            self.figure, self.figure_stated = event.covers, True
            return
        plan = self.plans.get(event.experiment)
        if plan is None or event.covers > plan.ceiling:
            ceiling = "no plan" if plan is None else f"a ceiling of {plan.ceiling}"
            yield _Said(
                "an approval covers at most the plan's ceiling",
                f"{event.experiment}: {event.covers}, with {ceiling}",
            )
        self.covers[event.experiment, event.projection] = event.covers
        if not self.figure_stated:
            self.figure = max(self.figure or 0, event.covers)

    def _closed(self, event: Closed) -> Iterator[_Said]:
        plan = self.plans.get(event.experiment)
        if plan is None or plan.closed:
            yield _Said("a plan is closed once", f"{event.experiment} has none that is open")
        else:
            plan.closed = True

    def _idle(self, event: Held | Freed) -> Iterator[_Said]:
        key = event.experiment, event.pool
        what = f"{event.pool} of {event.experiment}"
        if isinstance(event, Held):
            if key in self.held:
                yield _Said("machines are held once, then freed", f"{what} are held again")
            self.held.add(key)
            return
        if key not in self.held or event.experiment not in self.plans:
            yield _Said("only machines that are held are freed", f"{what} are not")
        self.held.discard(key)
        self._charge(event.experiment, "idle", event.cost)

    # --- leases ---------------------------------------------------------------------------------------------

    def _reserved(self, event: Reserved) -> Iterator[_Said]:
        if event.lease in self.leases:
            yield _Said("a lease is reserved once", f"{event.lease} is reserved again")
            return
        plan = self.plans.get(event.experiment)
        if plan is None or plan.closed or event.line not in plan.lines:
            yield _Said(
                "work is reserved on a line of an open plan",
                f"{event.lease} on {event.line} of {event.experiment}",
            )
        if event.worst != _worst(event.terms, event.terms.time_ms):
            yield _Said("a reservation is the worst case of its terms", f"{event.lease} is {event.worst}")
        if event.charged < self.total or (event.charged > self.total and not self.held):
            yield _Said(
                "an admission sees all that is charged", f"{event.charged} of {self.total} for {event.lease}"
            )
        due = plan.overrun() if plan is not None else []
        self.leases[event.lease] = _Lease(
            event.experiment, event.line, event.projection, event.terms, event.terms.time_ms, event.worst
        )
        self._charge(event.experiment, event.line, event.worst)
        if event.worst > 0:
            yield from self._within(event.lease, due)

    def _accrued(self, event: Accrued) -> Iterator[_Said]:
        lease = self.leases.get(event.lease)
        if lease is None or not lease.open:
            yield _Said("only an open lease is renewed", f"{event.lease} is not open")
            return
        if event.worst != _worst(lease.terms, event.time_ms) or event.time_ms < lease.time_ms:
            yield _Said(
                "a lease is renewed for longer, at its own terms",
                f"{event.lease}: {event.worst} for {event.time_ms} ms",
            )
        plan = self.plans.get(lease.experiment)
        due = plan.overrun() if plan is not None else []
        more = event.worst - lease.charged
        lease.charged, lease.time_ms = event.worst, event.time_ms
        self._charge(lease.experiment, lease.line, more)
        if more > 0:
            yield from self._within(event.lease, due)

    def _ended(self, name: str, cost: int, how: str) -> Iterator[_Said]:
        lease = self.leases.get(name)
        if lease is None or not lease.open:
            yield _Said("a lease that was reserved ends once", f"{name} is {how}, and is not open")
            return
        self._charge(lease.experiment, lease.line, cost - lease.charged)
        lease.charged, lease.open = cost, False

    def _corrected(self, event: Corrected) -> Iterator[_Said]:
        lease = self.leases.get(event.lease)
        if lease is None or lease.open:
            yield _Said("only a lease that has ended is corrected", f"{event.lease} has not")
            return
        self._charge(lease.experiment, lease.line, event.cost - lease.charged)
        lease.charged = event.cost

    def _charge(self, experiment: str, line: str, amount: int) -> None:
        self.total += amount
        plan = self.plans.get(experiment)
        if plan is not None:
            plan.used[line] = plan.used.get(line, 0) + amount

    def _within(self, name: str, due: list[str]) -> Iterator[_Said]:
        """Hold what was just reserved against every bound; `due` are the purposes that were overrun before it."""
        lease = self.leases[name]
        plan = self.plans.get(lease.experiment)
        if plan is None:
            return
        if due:
            yield _Said("nothing is reserved while a replan is due", f"{name}, with {', '.join(due)} overrun")
        covers = self.covers.get((lease.experiment, lease.projection or ""))
        alike = [other for other in self.plans.values() if other.decision == plan.decision]
        for what, total, limit in [
            ("the account", self.total, self._account_limit(approved=covers is not None)),
            ("its plan", plan.total, plan.ceiling if covers is None else min(plan.ceiling, covers)),
            ("its decision", sum(other.total for other in alike), max(other.ceiling for other in alike)),
        ]:
            if not (total < limit or (total == limit and self.unit == "accelerator-hours")):
                yield _Said(
                    "settled + reserved stays within the ceiling",
                    f"{name} takes {what} to {total}, and {limit} is the bound",
                )
        line = plan.lines.get(lease.line)
        if line is not None and plan.used[lease.line] > line.planned:
            yield _Said("a line pays for what is reserved on it", f"{name} takes {lease.line} past its plan")
        if plan.overrun() != due:
            yield _Said("no purpose takes from another", f"{name} takes {lease.line} past its purpose's plan")

    def _account_limit(self, *, approved: bool) -> int:
        if approved and self.figure is not None:
            return self.figure
        alone = WITHOUT_A_PERSON[self.unit or "usd"]
        return alone if self.figure is None else min(alone, self.figure)


def _lines(experiment: str, lines: Sequence[Line], ceiling: int) -> Iterator[_Said]:
    total = sum(line.planned for line in lines)
    if total != ceiling or len({line.line for line in lines}) != len(lines):
        yield _Said(
            "the lines of a plan sum to its ceiling",
            f"{experiment}: {len(lines)} lines sum to {total}, not {ceiling}",
        )
    if ceiling > 0 and not any(
        line.purpose in ("confirmation", "recovery") and line.planned for line in lines
    ):
        yield _Said("something is kept to reproduce the final result", f"{experiment} keeps nothing")
    for line in lines:
        if line.arms and len(set(line.arms.values())) > 1:
            yield _Said("arms that are compared at equal budget are equal", f"{experiment}: {line.line}")


def _worst(terms: Terms, time_ms: int) -> int:
    cost = time_ms * terms.accelerators * terms.rate * terms.margin_permille
    whole, part = divmod(cost, HOUR_MS * 1000)
    return whole + (part > 0) + terms.fixed


def _name(event: Record) -> str:
    return type(event).__name__.lower()
