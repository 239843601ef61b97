"""What dead processes have left open in the ledger: the leases whose end is known by now, and what they have cost.

A lease is charged at its worst until its end is known. The log of a run says which launch had its attempts; the lease
of a worker beside it says itself which process would have ended it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from raykit.budget.admit import settle_at_most
from raykit.budget.book import Book, Lease
from raykit.fleet.door import elapsed_ms, launch_of
from raykit.records import Launched, Place, Released, Settled
from raykit.store.accounts import account_of
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.store.log import RunLog
from raykit.store.place import gone, this_place

KILLED: Final = "its launch was killed; charged until that was seen"
OVER: Final = "its time is over, and nobody has said how it ended: charged in full"
SLACK_S: Final = 60.0
"""So long after the end of what was paid for, a worker of which nothing is known is over for certain."""


def ends_of_dead(book: Book, experiment: str, log: RunLog, now: float) -> list[Settled]:
    """The ends of leases that are known to be over: of the run of the log, and of all workers beside runs."""
    ended = ends_of_attempts(book, experiment, log, now)
    told = {event.lease for event in ended}
    return [*ended, *(event for event in _ends_of_workers(book, experiment, now) if event.lease not in told)]


def ends_of_attempts(book: Book, experiment: str, log: RunLog, now: float) -> list[Settled]:
    """The ends of what the launches of a run had, attempts and workers, as far as they are known to be over."""
    ends = _ends_of_launches(log)
    known = ((lease, ends.get(launch_of(lease.reserved.lease))) for lease in book.open_leases(experiment))
    return _settled(book, known, now)


def settle_workers(store: ObjectStore, experiment: str) -> None:
    """Settle what dead workers have left open, where no launch begins that would; writes nothing if there is nothing.

    Raises:
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; settle them again.
    """
    account, now = account_of(store, experiment), time.time()
    if account is not None:
        ledger = Ledger(store, account, by="launch")
        ledger.decide(lambda book: _ends_of_workers(book, experiment, now), at=now)


_End = tuple[float | None, str]
"""When something was over, None for not later than now, and how that is known."""


def _settled(book: Book, ends: Iterable[tuple[Lease, _End | None]], now: float) -> list[Settled]:
    found = []
    for lease, end in ends:
        if end is None:
            continue
        ended_at, how = end
        time_ms = elapsed_ms(lease, now if ended_at is None else ended_at)
        found.append(settle_at_most(book, lease.reserved.lease, time_ms=time_ms, reason="killed", how=how))
    return [event for event in found if event is not None]


def _ends_of_workers(book: Book, experiment: str, now: float) -> list[Settled]:
    return _settled(
        book, ((lease, _end_of_worker(lease, now)) for lease in book.open_leases(experiment)), now
    )


def _end_of_worker(lease: Lease, now: float) -> _End | None:
    """A worker ends with the process that started it; one that cannot be seen from here, once its time is over."""
    holder = lease.reserved.holder
    if holder is None or (seen := gone(holder)) is False:
        return None
    if seen:
        return None, KILLED
    return (None, OVER) if now >= lease.at + lease.time_ms / 1000 + SLACK_S else None


def _ends_of_launches(log: RunLog) -> dict[str, _End]:
    """By launch of a run: its end."""
    ends: dict[str, _End] = {}
    places: dict[str, Place] = {}
    for entry in log.entries:
        for event in entry.events:
            if isinstance(event, Launched):
                places[event.launch] = event.place
                if gone(event.place):
                    ends[event.launch] = (None, KILLED)
            elif isinstance(event, Released) and not _still_there(places.get(event.launch)):
                ends[event.launch] = (
                    entry.at,
                    "its launch had let go, and was killed before it could settle",
                )
    return ends


def _still_there(place: Place | None) -> bool:
    """Whether a launch that has let go of its run may still be giving back what it held: it measures that itself."""
    return place is not None and place != this_place() and gone(place) is False
