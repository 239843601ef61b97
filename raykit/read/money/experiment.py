"""The money of one experiment, from its ledger, its lock and how far its run is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from raykit.budget.amounts import measured, time_cost
from raykit.budget.book import IDLE, Allocation, Book, Lease
from raykit.budget.room import bound
from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.ids import sha256
from raykit.plan import Lock, projection
from raykit.read.money.account import Ledgers, approvals_of, rate_of_pool
from raykit.read.money.view import HeldMoney, LeaseMoney, LineMoney, Money, Progress, RateMoney
from raykit.records import Approved, Locked, Place, Replanned, Reserved
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.store.place import alive, gone
from raykit.store.plans import newest_lock, read_plan

TRAIN, SETS = "train", "generate"
BESIDE = {"qc": "raykit qc run {}", "generate": "raykit generate PLAN"}
"""By line: what goes on with work that needs no run."""


def money_of(
    store: ObjectStore,
    experiment: str,
    now: float,
    *,
    progress: Progress | None = None,
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
    return _money(ledger, allocation, lock, digest, progress or Progress(), now)


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
        projected=_projected(book, allocation, lines, leases, progress, ended),
        unprojected=progress.sets_unknown
        if _rate_of_sets(book, allocation) and not allocation.closed
        else (),
        expected_ms=allocation.planned.expected_ms,
        held_ms=sum(lease.held_ms or 0 for lease in ended) + sum(_running_ms(leases, now)),
        accelerator_ms=sum((lease.held_ms or 0) * lease.reserved.terms.accelerators for lease in ended)
        + sum(ms * lease.accelerators for ms, lease in zip(_running_ms(leases, now), leases, strict=True)),
        attempts=sum(lease.reserved.line == TRAIN and lease.works and not lease.void for lease in ended)
        + sum(lease.line == TRAIN for lease in leases),
        uncertain=allocation.planned.uncertain,
        overrun=allocation.overrun(),
        closed=allocation.closed,
        billed=billed,
        approval_due=_approval_due(book, allocation, digest, progress),
        autonomous=limit.amount if not limit.approved else bound(Book(), name, None).amount,
        leases=leases,
        held=held,
        approvals=tuple(approvals_of(ledger, name, digest)),
        rates=tuple(_rates(book, allocation, lock)),
        stop_rule=stop_rule(lock),
        moved_at=_moved_at(ledger, name),
    )


def _moved_at(ledger: Ledger, experiment: str) -> float | None:
    moves = (
        entry.at
        for entry in reversed(ledger.entries)
        for event in entry.events
        if isinstance(event, Replanned | Approved) and event.experiment in (None, experiment)
    )
    return next(moves, None)


def _leases(
    book: Book, experiment: str, progress: Progress, now: float, *, goes_on: bool
) -> Iterator[LeaseMoney]:
    for lease in book.open_leases(experiment):
        reserved = lease.reserved
        running = _is_of(reserved.lease, progress.launches) or _at_work(reserved.holder)
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
            settled_by=None if running else _settled_by(reserved, progress, goes_on=goes_on),
        )


def _at_work(holder: Place | None) -> bool:
    return holder is not None and alive(holder) is True


def _settled_by(reserved: Reserved, progress: Progress, *, goes_on: bool) -> str | None:
    """What settles a lease whose worker is gone: whoever goes on with the run, or with the work beside it."""
    gone_with = reserved.holder is not None and gone(reserved.holder)
    if not (gone_with or _is_of(reserved.lease, progress.gone)):
        return None
    if goes_on:
        return f"raykit resume {reserved.experiment}"
    return (
        BESIDE[reserved.line].format(reserved.experiment) if gone_with and reserved.line in BESIDE else None
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
    book: Book,
    allocation: Allocation,
    lines: Sequence[LineMoney],
    leases: Sequence[LeaseMoney],
    progress: Progress,
    ended: Sequence[Lease],
) -> int:
    spent = sum(line.actual for line in lines) + sum(lease.worst for lease in leases if not lease.running)
    if allocation.closed:
        return spent
    sets = time_cost(progress.sets_left_ms, 1, _rate_of_sets(book, allocation))
    if progress.complete:
        return spent + sets
    if progress.left is not None:
        return spent + progress.left
    terms = [lease.reserved.terms for lease in ended if lease.reserved.line == TRAIN and lease.works]
    newest = next(
        ((lease.accelerators, lease.rate) for lease in reversed(leases) if lease.line == TRAIN),
        (terms[-1].accelerators, terms[-1].rate) if terms else None,
    )
    if newest is None or progress.update_s is None or not progress.updates:
        return max(spent, allocation.planned.expected)
    left_ms = int((progress.updates - progress.update) * progress.update_s * 1000)
    return spent + time_cost(max(0, left_ms), *newest) + sets


def _rate_of_sets(book: Book, allocation: Allocation) -> int:
    """What an accelerator-hour of synthetic sets costs now; 0 where they are not billed."""
    rated = book.rates.get(SETS)
    return allocation.rates.get(SETS, 0) if rated is None else rated.rate


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


def _rates(book: Book, allocation: Allocation, lock: Lock | None) -> Iterator[RateMoney]:
    for pool, planned in allocation.rates.items():
        rated = book.rates.get(pool)
        if rated is not None:
            yield rate_of_pool(rated, planned)
            continue
        price = _pool(lock, pool).get("usd_per_hour")
        source = price.get("source") if isinstance(price, Mapping) else None
        yield RateMoney(pool=pool, rate=planned, planned=planned, source=source, on=None)


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
