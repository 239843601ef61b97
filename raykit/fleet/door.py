"""The door to spending: what an attempt of a training run asks, and what it is granted.

`begin` is the one decision behind it, made on the book of an account. `StoreDoor` makes it on the ledger itself;
`raykit.fleet.budget_actor` makes it in an actor that serves many workers. Both write the same entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from raykit.budget.acts import allocation_of
from raykit.budget.admit import Request, Standing, admit, settle_at_most
from raykit.budget.book import Allocation, Book, Lease
from raykit.budget.lines import TRAIN, next_attempt
from raykit.budget.rates import Quote, newest
from raykit.budget.worst import Sizing
from raykit.errors import CancelledError, LeaseLostError
from raykit.pauses import Acts, Role, pause_of
from raykit.records import Record, Reserved, Settled, Terms
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ask, Ledger
from raykit.store.people import People
from raykit.train.door import Door, Grant
from raykit.train.hold import patiently

HOLD_S = 300.0
"""How long who asks waits for a store or an actor that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """What all attempts of one training run ask with."""

    experiment: str
    projection: str | None
    sizing: Sizing
    trial: str | None = None
    """The run of a search that they are of."""
    failed: tuple[str, ...] = ()
    """Necessary checks that have failed, without a repair recorded since."""


def lease_of(launch: str, ordinal: int) -> str:
    """The lease of attempt `ordinal`, from 1, of a launch."""
    return f"{launch}-{ordinal}"


def launch_of(lease: str) -> str:
    """The launch that a lease belongs to: `abc` of `abc-1`, of `abc-qc-1` and of `abc-generate-1`."""
    launch = lease.rpartition("-")[0]
    for role in BESIDE:
        launch = launch.removesuffix(role)
    return launch


BESIDE = ("-qc", "-generate")
"""What the leases of workers beside the run have after the name of their launch."""


# --- the decision -------------------------------------------------------------------------------------------


def begin(attempts: Attempts, launch: str, ordinal: int, *, acts: Acts, now: float) -> Ask:
    """The decision that starts attempt `ordinal` of a launch: earlier ones are settled, this one is reserved.

    Ray starts a gang only after the one before it has ended, so what is still open of this launch was killed. An
    attempt that is reserved already stays as it is, whatever `acts` say: it hears of a pause as all work does.
    """
    lease = lease_of(launch, ordinal)

    def ask(book: Book) -> list[Record]:
        _require_newest(book, attempts, launch, ordinal)
        ended = _end_earlier(book, launch, ordinal, now)
        draft = book.draft()
        for event in ended:
            draft.apply(event, now)
        allocation = allocation_of(draft, attempts.experiment)
        request = Request(
            lease=lease,
            experiment=attempts.experiment,
            line=TRAIN,
            terms=_terms(draft, allocation, lease, attempts),
            projection=attempts.projection,
            run=attempts.trial,
        )
        role: Role = "train" if attempts.trial is None else "search"
        reserved = reserve(draft, request, role=role, acts=acts, failed=attempts.failed, now=now)
        return [*ended, *([reserved] if reserved is not None else [])]

    return ask


def _terms(book: Book, allocation: Allocation, lease: str, attempts: Attempts) -> Terms:
    known = book.leases.get(lease)
    if known is not None:
        return known.reserved.terms
    return next_attempt(allocation, at_newest_rate(book, allocation, attempts.sizing), attempts.trial)


def at_newest_rate(book: Book, allocation: Allocation, sizing: Sizing) -> Sizing:
    """What attempts are sized with, at the rate that the book has now."""
    known = Quote(sizing.rate, sizing.source, sizing.margin_permille)
    return replace(sizing, **newest(book, allocation, TRAIN, known)._asdict())


def reserve(
    book: Book,
    request: Request,
    *,
    role: Role,
    acts: Acts,
    contract: str | None = None,
    failed: tuple[str, ...] = (),
    now: float,
) -> Reserved | None:
    """Reserve for work that people may have paused or cancelled; None if this lease was granted before.

    Raises:
        CancelledError: its experiment was ended for good.
        Refused: as for `admit`: a person has to act first.
        Stopped: as for `admit`: a pause is in force, or the budget does not allow it.
        LeaseLostError: the lease has ended.
        ConflictError: the lease is of something else.
        NotFoundError: the experiment has no such line.
    """
    if acts.cancelled is not None and request.lease not in book.leases:
        raise CancelledError(
            f"{request.experiment} was {acts.cancelled.words}",
            rule="a cancelled experiment is never started again; nothing of it was deleted",
        )
    pause = pause_of(acts, request.experiment, role, contract)
    paused = None if pause is None else f"{request.experiment} is {pause.words}"
    return admit(book, request, Standing(paused=paused, failed=failed), now=now)


def _require_newest(book: Book, attempts: Attempts, launch: str, ordinal: int) -> None:
    later = range(ordinal + 1, attempts.sizing.attempts + 1)
    begun = [lease for each in later if (lease := lease_of(launch, each)) in book.leases]
    if begun:
        raise LeaseLostError(f"{begun[-1]} has begun: what comes before it has ended", field="lease")


def _end_earlier(book: Book, launch: str, ordinal: int, now: float) -> list[Settled]:
    leases = [book.leases.get(lease_of(launch, each)) for each in range(1, ordinal)]
    ended = [
        settle_at_most(
            book,
            lease.reserved.lease,
            time_ms=elapsed_ms(lease, now),
            reason="killed",
            how="its gang was lost and started again",
        )
        for lease in leases
        if lease is not None
    ]
    return [event for event in ended if event is not None]


def elapsed_ms(lease: Lease, now: float) -> int:
    """The longest that a lease can have been held: all of its time if the clock stands before its start."""
    passed_ms = int((now - lease.at) * 1000)
    return passed_ms if passed_ms >= 0 else lease.time_ms


# --- what is answered ---------------------------------------------------------------------------------------


def grant_of(book: Book, lease: str, *, now: float) -> Grant:
    """What an attempt may use, as the book stands.

    Raises:
        LeaseLostError: there is no such lease, or it has ended.
    """
    held = require_open(book, lease)
    passed_ms = max(0, int((now - held.at) * 1000))  # a clock set back never makes a lease longer than it was
    return Grant(
        lease=lease,
        left_ms=max(0, held.time_ms - passed_ms),
        wall_ms=held.reserved.terms.wall_ms,
        drain_ms=held.reserved.terms.drain_ms,
        accelerators=held.reserved.terms.accelerators,
        invested_ms=_invested_ms(book, held) + passed_ms * held.reserved.terms.accelerators,
    )


def _invested_ms(book: Book, held: Lease) -> int:
    want = _of(held)
    return sum(
        (lease.held_ms or 0) * lease.reserved.terms.accelerators
        for lease in book.leases.values()
        if _of(lease) == want
    )


def _of(lease: Lease) -> tuple[str, str, str | None]:
    return lease.reserved.experiment, lease.reserved.line, lease.reserved.run


def require_open(book: Book, lease: str) -> Lease:
    """The lease, if it goes on.

    Raises:
        LeaseLostError: there is no such lease, or it has ended.
    """
    held = book.leases.get(lease)
    if held is None:
        raise LeaseLostError(f"there is no lease {lease}", field="lease", value=lease)
    if not held.open:
        raise LeaseLostError(f"lease {lease} has ended: {held.reason}", field="lease", value=lease)
    return held


# --- without an actor ---------------------------------------------------------------------------------------


class StoreDoor(Door):
    """The door on the ledger itself, for a process that is alone with its store."""

    def __init__(
        self,
        store: ObjectStore,
        account: str,
        attempts: Attempts,
        *,
        by: str,
        hold_s: float = HOLD_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = Ledger(store, account, by=by)
        self._people = People(store, attempts.experiment)
        self._attempts = attempts
        self._hold_s = hold_s
        self._clock = clock

    def begin(self, launch: str, ordinal: int) -> Grant:
        """Reserve an attempt, unless it is reserved; held for a while if the store does not answer.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            LeaseLostError: this attempt has ended, or a later one has begun.
            NotFoundError: the experiment has no budget in this account.
            CorruptError: the ledger or a log of people's acts is damaged.
            StoreUnavailableError: the store stayed away.
            UnknownOutcomeError: the same, and what was written last is not known.
        """
        return patiently(lambda: self._begin(launch, ordinal), hold_s=self._hold_s)

    def _begin(self, launch: str, ordinal: int) -> Grant:
        acts, now = self._people.refresh(), self._clock()
        self._ledger.decide(begin(self._attempts, launch, ordinal, acts=acts, now=now), at=now)
        return grant_of(self._ledger.book, lease_of(launch, ordinal), now=now)

    def beat(self, lease: str) -> None:
        """Learn from the ledger whether the lease goes on.

        Raises:
            LeaseLostError: there is no such lease, or it has ended.
            CorruptError: the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self._ledger.refresh()
        require_open(self._ledger.book, lease)


__all__ = [
    "HOLD_S",
    "Attempts",
    "StoreDoor",
    "at_newest_rate",
    "begin",
    "elapsed_ms",
    "grant_of",
    "launch_of",
    "lease_of",
    "require_open",
    "reserve",
]
