"""What an experiment may cost, has cost and is going to cost, as people look at it. Reads only.

Amounts are whole micro-units, as in the ledger. What runs now is charged at its worst case; of that, what it has
come to so far is shown as `actual` and the rest as `reserved`, so that their sum is always what is charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raykit.budget.admit import bound
from raykit.budget.amounts import measured, time_cost
from raykit.budget.book import IDLE, Allocation, Book, Lease
from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.ids import sha256
from raykit.plan import Lock, projection
from raykit.records import MICRO, Approved, Locked, Rated, Unit
from raykit.store import layout
from raykit.store.accounts import account_of
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.store.plans import newest_lock, read_plan

TRAIN = "train"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the run is: what is left of the work is expected at this pace."""

    launches: tuple[str, ...] = ()
    """Those that are at work: the launch that has the run, or those of the trials that are trained."""
    gone: tuple[str, ...] = ()
    """Those whose process has ended, as is seen from here: whoever goes on settles what they have left open."""
    complete: bool = False
    update: int = 0
    updates: int | None = None
    update_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineMoney:
    """One line of a budget."""

    line: str
    purpose: str
    planned: int
    actual: int
    reserved: int

    @property
    def remaining(self) -> int:
        return self.planned - self.actual - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMoney:
    """A reservation whose end is not known."""

    lease: str
    line: str
    worst: int
    so_far: int
    since: float
    time_ms: int
    accelerators: int
    rate: int
    running: bool
    """The launch that it was granted to has the run. Otherwise nobody knows what became of it."""
    settles: bool = False
    """Its launch is known to be gone, and whoever goes on with the experiment settles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMoney:
    """Machines that nobody works on and that are billed."""

    pool: str
    accelerators: int
    rate: int
    since: float
    cost: int
    release: str | None
    """The plan's command that gives them back."""

    @property
    def an_hour(self) -> int:
        return self.accelerators * self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalMoney:
    """What a person has approved; `number` is that of its ledger entry."""

    number: int
    at: float
    scope: str
    covers: int
    experiment: str | None
    person: str
    scripted: bool
    current: bool | None
    """Whether it covers the plan as it is locked now; None if that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateMoney:
    """What an accelerator-hour costs, and who says so."""

    pool: str
    rate: int
    planned: int | None
    """What it was when a person last decided about this budget."""
    source: str | None
    on: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The money of one experiment at one moment."""

    experiment: str
    account: str
    unit: Unit
    ceiling: int
    figure: int | None
    """What a person has let the whole account come to."""
    account_charged: int
    """Settled and reserved, of all experiments of the account."""
    lines: tuple[LineMoney, ...]
    idle: int
    """What machines have cost while nobody worked."""
    expected: int
    """What the whole was expected to cost when it was planned, without any reserve."""
    projected: int
    """What it comes to in the end, as far as can be told now."""
    expected_ms: int
    held_ms: int
    """How long accelerators were held."""
    accelerator_ms: int
    """The same, times the accelerators: the time invested."""
    attempts: int
    uncertain: bool
    overrun: int
    """By how much reserves are eaten into: above 0, everything waits for a replan."""
    closed: bool
    billed: bool
    approval_due: bool
    """A person has to approve this plan before its next attempt."""
    autonomous: int
    """What the account stays below without an approval of this plan."""
    leases: tuple[LeaseMoney, ...]
    held: tuple[HeldMoney, ...]
    approvals: tuple[ApprovalMoney, ...]
    rates: tuple[RateMoney, ...]
    stop_rule: str

    @property
    def planned(self) -> int:
        return sum(line.planned for line in self.lines)

    @property
    def actual(self) -> int:
        return sum(line.actual for line in self.lines)

    @property
    def reserved(self) -> int:
        return sum(line.reserved for line in self.lines)

    @property
    def remaining(self) -> int:
        return self.ceiling - self.actual - self.reserved

    @property
    def unknown(self) -> tuple[LeaseMoney, ...]:
        """The leases that nobody is known to work under, and that cost something as long as that is so."""
        return tuple(lease for lease in self.leases if not lease.running and lease.worst)

    def plain(self) -> dict[str, Any]:
        """All of it as JSON values; amounts are whole numbers, `micros_per_unit` of them to the unit."""
        plain = {key: value for key, value in asdict(self).items() if not isinstance(value, tuple)}
        totals = {name: getattr(self, name) for name in ("planned", "actual", "reserved", "remaining")}
        return {
            **plain,
            "micros_per_unit": MICRO,
            "totals": totals,
            "lines": [{**asdict(line), "remaining": line.remaining} for line in self.lines],
            **{
                name: [asdict(item) for item in getattr(self, name)]
                for name in ("leases", "held", "approvals", "rates")
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMoney:
    """A whole account at one moment."""

    account: str
    unit: Unit
    figure: int | None
    settled: int
    reserved: int
    idle: int
    """What held machines have cost so far and nobody has settled."""
    experiments: tuple[Money, ...]
    approvals: tuple[ApprovalMoney, ...]
    rates: tuple[RateMoney, ...]

    def plain(self) -> dict[str, Any]:
        """All of it as JSON values; amounts are whole numbers, `micros_per_unit` of them to the unit."""
        return {
            "account": self.account,
            "unit": self.unit,
            "micros_per_unit": MICRO,
            "figure": self.figure,
            "settled": self.settled,
            "reserved": self.reserved,
            "idle": self.idle,
            "experiments": [money.plain() for money in self.experiments],
            "approvals": [asdict(approval) for approval in self.approvals],
            "rates": [asdict(rate) for rate in self.rates],
        }


class Ledgers:
    """The ledgers of a store; of each, only what is new is read again."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[str, Ledger] = {}

    def named(self, account: str) -> Ledger:
        """The ledger of an account, read to its end.

        Raises:
            CorruptError: it is damaged.
            StoreUnavailableError: the store did not answer.
        """
        ledger = self._read.setdefault(account, Ledger(self._store, account, by="reader"))
        ledger.refresh()
        return ledger

    def of(self, experiment: str) -> Ledger | None:
        """The ledger that an experiment spends from; None if it has none yet.

        Raises:
            CorruptError: it is damaged.
            StoreUnavailableError: the store did not answer.
        """
        account = account_of(self._store, experiment)
        return None if account is None else self.named(account)


# --- one experiment -----------------------------------------------------------------------------------------


def money_of(
    store: ObjectStore,
    experiment: str,
    now: float,
    *,
    progress: Progress = Progress(),
    locked: Locked | None = None,
    ledgers: Ledgers | None = None,
) -> Money | None:
    """The money of an experiment; None if it has no budget yet. `locked` is its newest plan, read if not given.

    Raises:
        CorruptError: its ledger, its plan or its log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    ledger = (ledgers or Ledgers(store)).of(experiment)
    if ledger is None:
        return None
    allocation = ledger.book.allocations.get(experiment)
    if allocation is None:
        return None
    lock = _lock(store, experiment, locked or newest_lock(store, experiment))
    digest = _projection(store, experiment, lock, allocation.ceiling)
    return _money(ledger, allocation, lock, digest, progress, now)


def _lock(store: ObjectStore, experiment: str, locked: Locked | None) -> Lock | None:
    if locked is None:
        return None
    key = layout.plan(experiment, locked.plan, "plan.lock")
    try:
        data = store.get(key)
    except NotFoundError:
        return None
    if sha256(data) != locked.plan:
        raise CorruptError(f"{key} does not match its sha256", field=key)
    return Lock.from_bytes(data, key)


def _projection(store: ObjectStore, experiment: str, lock: Lock | None, ceiling: int) -> str | None:
    """What an approval of the plan would have to name now; None if the plan cannot be read."""
    if lock is None:
        return None
    try:
        return projection(read_plan(store, experiment, lock.digest), ceiling=ceiling, base=lock.base)
    except (NotFoundError, PlanError):
        return None


def _money(
    ledger: Ledger,
    allocation: Allocation,
    lock: Lock | None,
    digest: str | None,
    progress: Progress,
    now: float,
) -> Money:
    book, name = ledger.book, allocation.experiment
    leases = tuple(_leases(book, name, progress, now, goes_on=not (progress.complete or allocation.closed)))
    held = tuple(_held(book, name, lock, now))
    lines = tuple(_lines(allocation, leases))
    limit = bound(book, name, digest)
    ended = [lease for lease in book.leases.values() if lease.reserved.experiment == name and not lease.open]
    billed = allocation.charged > 0 or any(allocation.rates.values()) or bool(held)
    return Money(
        experiment=name,
        account=ledger.account,
        unit=book.unit,
        ceiling=allocation.ceiling,
        figure=book.figure,
        account_charged=book.charged,
        lines=lines,
        idle=allocation.spent.get(IDLE, 0) + sum(machines.cost for machines in held),
        expected=allocation.planned.expected,
        projected=_projected(allocation, lines, leases, progress, ended),
        expected_ms=allocation.planned.expected_ms,
        held_ms=sum(lease.held_ms or 0 for lease in ended) + sum(_running_ms(leases, now)),
        accelerator_ms=sum((lease.held_ms or 0) * lease.reserved.terms.accelerators for lease in ended)
        + sum(ms * lease.accelerators for ms, lease in zip(_running_ms(leases, now), leases, strict=True)),
        attempts=sum(lease.reserved.line == TRAIN and not lease.void for lease in ended)
        + sum(lease.line == TRAIN for lease in leases),
        uncertain=allocation.planned.uncertain,
        overrun=allocation.overrun(),
        closed=allocation.closed,
        billed=billed,
        approval_due=_approval_due(book, allocation, digest, progress),
        autonomous=limit.amount if not limit.approved else bound(Book(), name, None).amount,
        leases=leases,
        held=held,
        approvals=tuple(_approvals(ledger, name, digest)),
        rates=tuple(_rates(book, allocation, lock)),
        stop_rule=stop_rule(lock),
    )


def _leases(
    book: Book, experiment: str, progress: Progress, now: float, *, goes_on: bool
) -> Iterator[LeaseMoney]:
    for lease in book.open_leases(experiment):
        reserved = lease.reserved
        running = _is_of(reserved.lease, progress.launches)
        so_far = min(lease.worst, measured(reserved.terms, _elapsed_ms(lease, now))) if running else 0
        yield LeaseMoney(
            lease=reserved.lease,
            line=reserved.line,
            worst=lease.worst,
            so_far=so_far,
            since=lease.at,
            time_ms=lease.time_ms,
            accelerators=reserved.terms.accelerators,
            rate=reserved.terms.rate,
            running=running,
            settles=goes_on and not running and _is_of(reserved.lease, progress.gone),
        )


def _is_of(lease: str, launches: Sequence[str]) -> bool:
    """Whether a lease was granted to one of these launches."""
    return any(lease.startswith(f"{launch}-") for launch in launches)


def _elapsed_ms(lease: Lease, now: float) -> int:
    return min(lease.time_ms, int(max(0.0, now - lease.at) * 1000))


def _running_ms(leases: Sequence[LeaseMoney], now: float) -> list[int]:
    """By lease: how long it has been worked under, 0 where nobody knows."""
    return [
        min(lease.time_ms, int(max(0.0, now - lease.since) * 1000)) if lease.running else 0
        for lease in leases
    ]


def _lines(allocation: Allocation, leases: Sequence[LeaseMoney]) -> Iterator[LineMoney]:
    """The plan's lines, then those that money went to without one."""
    others = (name for name in (*allocation.spent, *allocation.reserved) if name not in allocation.lines)
    for name in dict.fromkeys([*allocation.lines, *others]):
        line = allocation.lines.get(name)
        so_far = sum(lease.so_far for lease in leases if lease.line == name)
        actual, reserved = allocation.spent.get(name, 0) + so_far, allocation.reserved.get(name, 0) - so_far
        if line is None and actual == reserved == 0:
            continue
        yield LineMoney(
            line=name,
            purpose="overhead" if line is None else line.purpose,
            planned=0 if line is None else line.planned,
            actual=actual,
            reserved=reserved,
        )


def _projected(
    allocation: Allocation,
    lines: Sequence[LineMoney],
    leases: Sequence[LeaseMoney],
    progress: Progress,
    ended: Sequence[Lease],
) -> int:
    spent = sum(line.actual for line in lines) + sum(lease.worst for lease in leases if not lease.running)
    if progress.complete or allocation.closed:
        return spent
    terms = [lease.reserved.terms for lease in ended if lease.reserved.line == TRAIN]
    newest = next(
        ((lease.accelerators, lease.rate) for lease in reversed(leases) if lease.line == TRAIN),
        (terms[-1].accelerators, terms[-1].rate) if terms else None,
    )
    if newest is None or progress.update_s is None or not progress.updates:
        return max(spent, allocation.planned.expected)
    left_ms = int((progress.updates - progress.update) * progress.update_s * 1000)
    return spent + time_cost(max(0, left_ms), *newest)


def _approval_due(book: Book, allocation: Allocation, digest: str | None, progress: Progress) -> bool:
    """Would the next attempt be refused for want of an approval? It reserves at most what its line has left."""
    if progress.complete or progress.launches or allocation.closed or digest is None:
        return False
    limit = bound(book, allocation.experiment, digest)
    left = max(0, allocation.remaining(TRAIN))
    return left > 0 and not limit.approved and not limit.allows(book.charged + left)


def _held(book: Book, experiment: str, lock: Lock | None, now: float) -> Iterator[HeldMoney]:
    for (name, pool), (held, since) in book.held.items():
        if name == experiment:
            yield HeldMoney(
                pool=pool,
                accelerators=held.accelerators,
                rate=held.rate,
                since=since,
                cost=time_cost(int(max(0.0, now - since) * 1000), held.accelerators, held.rate),
                release=_pool(lock, pool).get("release"),
            )


def _pool(lock: Lock | None, pool: str) -> Mapping[str, Any]:
    pools = lock.settings.get("pools") if lock is not None else None
    found = pools.get(pool) if isinstance(pools, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _approvals(ledger: Ledger, experiment: str | None, digest: str | None) -> Iterator[ApprovalMoney]:
    """Approvals of one experiment and of its account, or all; oldest first."""
    for entry in ledger.entries:
        for event in entry.events:
            if isinstance(event, Approved) and experiment in (None, event.experiment or experiment):
                current = None if digest is None or event.scope == "account" else event.projection == digest
                yield ApprovalMoney(
                    number=entry.n,
                    at=entry.at,
                    scope=event.scope,
                    covers=event.covers,
                    experiment=event.experiment,
                    person=event.person,
                    scripted=event.scripted,
                    current=current,
                )


def _rates(book: Book, allocation: Allocation, lock: Lock | None) -> Iterator[RateMoney]:
    for pool, planned in allocation.rates.items():
        rated = book.rates.get(pool)
        if rated is not None:
            yield _rated(rated, planned)
            continue
        price = _pool(lock, pool).get("usd_per_hour")
        source = price.get("source") if isinstance(price, Mapping) else None
        yield RateMoney(pool=pool, rate=planned, planned=planned, source=source, on=None)


def _rated(rated: Rated, planned: int | None) -> RateMoney:
    return RateMoney(pool=rated.pool, rate=rated.rate, planned=planned, source=rated.source, on=rated.on)


def stop_rule(lock: Lock | None) -> str:
    """When the run stops, as its plan says and as the door has it for every run."""
    settings = lock.settings if lock is not None else {}
    run, qc = settings.get("run"), settings.get("qc")
    words = []
    rule = run.get("stop") if isinstance(run, Mapping) else None
    if isinstance(rule, Mapping):
        words.append(
            f"after {rule['patience']} evaluations without {rule['min_delta']:g} better in {rule['metric']}"
        )
    if isinstance(run, Mapping) and run.get("wall_h"):
        words.append(f"at {run['wall_h']:g} h of work")
    if isinstance(qc, Mapping) and qc.get("on_failure"):
        words.append(f"QC failure: {qc['on_failure']}")
    return ", ".join([*words, "a failed check blocks", "pause before the ceiling"])


# --- whole accounts -----------------------------------------------------------------------------------------


def account_money(ledger: Ledger, experiments: Sequence[Money], now: float) -> AccountMoney:
    """An account, with the money of its experiments."""
    book = ledger.book
    return AccountMoney(
        account=ledger.account,
        unit=book.unit,
        figure=book.figure,
        settled=book.settled,
        reserved=book.reserved,
        idle=book.idle_cost(now),
        experiments=tuple(experiments),
        approvals=tuple(_approvals(ledger, None, None)),
        rates=tuple(_rated(rated, None) for rated in book.rates.values()),
    )


__all__ = [
    "AccountMoney",
    "ApprovalMoney",
    "HeldMoney",
    "LeaseMoney",
    "Ledgers",
    "LineMoney",
    "Money",
    "Progress",
    "RateMoney",
    "account_money",
    "money_of",
    "stop_rule",
]
