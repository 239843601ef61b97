"""The money of a search: is its whole table paid for, may one more row start, and what has a row cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from raykit.budget.admit import settle_at_most
from raykit.budget.book import Book, Lease
from raykit.fleet.door import Attempts, begin, elapsed_ms, launch_of
from raykit.fleet.leftopen import ends_of_attempts
from raykit.fleet.site import Site
from raykit.fleet.spending import (
    PREVIEW,
    Approving,
    Spending,
    approval_of,
    attempts_of,
    draft_of,
    require_same_ceiling,
)
from raykit.pauses import Acts
from raykit.plan import Lock
from raykit.records import Driven, Record, Settled
from raykit.search import run_of
from raykit.store.log import RunLog
from raykit.store.place import gone

KILLED: Final = "its search was killed; charged until that was seen"


def require_table_paid(
    site: Site, lock: Lock, log: RunLog, acts: Acts, approved: Approving | None, rows: int
) -> Attempts:
    """Try on a draft whether every row of the table could start at once, once `approved` is said. Writes nothing.

    What every row's attempts ask with.

    Raises:
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay for the whole table.
        ReplanError: money has to be moved first.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    now, draft = time.time(), _draft(site, lock, log, approved)
    asked = attempts_of(site, log, acts, draft)
    for row in range(1, rows + 1):
        for event in _asked(asked, draft, run_of(row), f"{PREVIEW}-{row}", acts):
            draft.apply(event, now)
    return asked


def _draft(site: Site, lock: Lock, log: RunLog, approved: Approving | None) -> Book:
    """The book as a search would begin with it, with what a person says of it."""
    draft = draft_of(site, lock, log)
    require_same_ceiling(site, draft)
    approval = None if approved is None else approval_of(site, draft, approved)
    if approval is not None:
        draft.apply(approval, time.time())
    return draft


def require_row_paid(spending: Spending, run: str, acts: Acts) -> None:
    """Try on a draft whether the next attempt of a row would be let through the door. Writes nothing.

    Raises:
        Refused: a person has to act first: approve, replan, repair.
        Stopped: a pause is in force, or the budget does not allow it.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    spending.ledger.refresh()
    _asked(spending.attempts, spending.ledger.book, run, PREVIEW, acts)


def _asked(attempts: Attempts, book: Book, run: str, launch: str, acts: Acts) -> Sequence[Record]:
    made = begin(replace(attempts, trial=run), launch, 1, acts=acts, now=time.time())(book)
    return () if made is None else (made,) if isinstance(made, Record) else made


def cost_of_row(book: Book, experiment: str, run: str) -> int:
    """What all attempts of a row have cost, as the ledger has it; of what is open, its worst case."""
    return sum(lease.charged for lease in _leases(book, experiment) if lease.reserved.run == run)


def _leases(book: Book, experiment: str) -> list[Lease]:
    return [lease for lease in book.leases.values() if lease.reserved.experiment == experiment]


# --- what dead drivers have left open -----------------------------------------------------------------------


def settle_dead(site: Site, spending: Spending, drivers: Collection[Driven]) -> None:
    """Settle the leases of rows, and of checks beside them, whose process is gone.

    Raises:
        CorruptError: a log or the ledger is damaged.
        UnknownOutcomeError: the reply was lost; settle them again.
        StoreUnavailableError: the store did not answer.
    """
    now, ledger = time.time(), spending.ledger
    ledger.refresh()
    dead = {each.driver for each in drivers if gone(each.place)}

    def ends(book: Book) -> list[Settled]:
        found = [
            event
            for run in sorted(_open_runs(book, site.name))
            for event in ends_of_attempts(book, site.name, site_log(site, run), now)
        ]
        told = {event.lease for event in found}
        beside = [
            settle_at_most(book, name, time_ms=elapsed_ms(lease, now), reason="killed", how=KILLED)
            for lease in book.open_leases(site.name)
            if launch_of(name := lease.reserved.lease) in dead and name not in told
        ]
        return [*found, *(event for event in beside if event is not None)]

    ledger.decide(ends, at=now)


def _open_runs(book: Book, experiment: str) -> set[str]:
    return {lease.reserved.run for lease in book.open_leases(experiment) if lease.reserved.run is not None}


def site_log(site: Site, run: str) -> RunLog:
    """The log of one row's run, read to its end.

    Raises:
        CorruptError: the log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return replace(site, run=run).run_log("reader")
