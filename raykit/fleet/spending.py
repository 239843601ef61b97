"""The money of one launch: the account that it belongs to, what its plan sets aside, and what its attempts ask with.

Refusals come before anything starts and write nothing: a launch is tried on a draft of the book first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from raykit.budget import acts as money
from raykit.budget.amounts import plain, shown
from raykit.budget.book import Allocation, Book
from raykit.budget.lines import TRAIN, expected_cost
from raykit.budget.worst import Sizing, at_rate
from raykit.errors import BudgetError, ReplanError
from raykit.fleet.door import Attempts, at_newest_rate, begin
from raykit.fleet.leftopen import KILLED, ends_of_dead
from raykit.fleet.site import Site
from raykit.ids import digest_of
from raykit.pauses import Acts
from raykit.plan import Lock, contract, decision_digest, projection
from raykit.read.sizing import (
    base_experiment,
    ceiling_key,
    ceiling_of,
    expected_wall_ms,
    known_of,
    lines_of,
    sized,
    sizing_of,
    unit_of,
    waves_of,
    work_around,
)
from raykit.reconcile import RunState
from raykit.records import AccountOpened, Freed, Planned, Record
from raykit.store.accounts import Identity, choose_account, data_identity, join_account
from raykit.store.ledger import Ledger
from raykit.store.log import RunLog

PREVIEW = "preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a launch spends from, and what its attempts ask with."""

    ledger: Ledger
    attempts: Attempts

    @property
    def sizing(self) -> Sizing:
        """What attempts are sized with, at the rate that the ledger has now."""
        book, sizing = self.ledger.book, self.attempts.sizing
        known = book.allocations.get(self.attempts.experiment)
        return sizing if known is None else at_newest_rate(book, known, sizing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Approving:
    """What a person says about this plan's money as it is launched."""

    amount: int
    person: str
    scripted: bool


def identity_of(site: Site, lock: Lock) -> Identity:
    """What this plan's work is, as far as its account is concerned."""
    return Identity(
        experiment=site.name,
        decision=decision_digest(site.plan),
        lineage=site.base.manifest if site.base is not None and site.base.origin == "adopted" else None,
        parent=base_experiment(site.base),
        data=data_identity(lock.data, digest_of(contract(site.plan))),
    )


def failed_gates(state: RunState, acts: Acts) -> tuple[str, ...]:
    """Necessary checks that have failed, without a repair recorded since."""
    return tuple(gate for gate, attempt in sorted(state.failed.items()) if attempt > acts.repaired)


def draft_of(site: Site, lock: Lock, log: RunLog) -> Book:
    """The book of this plan's account as a launch would begin with it. Writes nothing.

    Raises:
        ApprovalError: the work is related to another account.
        BudgetError: the plan does not fit under its own ceiling.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    now = time.time()
    draft = account_now(site, lock)
    for event in _at_a_start(draft, site, lock, log, now):
        draft.apply(event, now)
    return draft


def account_now(site: Site, lock: Lock) -> Book:
    """The book of the account that this plan would spend from, before the plan is in it. Writes nothing.

    Raises:
        ApprovalError: the work is related to another account.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    account = choose_account(site.store, identity_of(site, lock), _named(site))
    ledger = Ledger(site.store, account, by="reader")
    ledger.refresh()
    book = ledger.book.draft()
    if book.opened is None:
        book.apply(AccountOpened(account=account, unit=unit_of(site.plan), why="preview"), time.time())
    return book


def require_spendable(
    site: Site, lock: Lock, log: RunLog, acts: Acts, approved: Approving | None = None
) -> None:
    """Try on a draft whether a launch would be let through the door, once `approved` is said. Writes nothing.

    Raises:
        ApprovalError: a person has to approve this plan first, or to part it from an account.
        BudgetError: the ceiling, the line or the account cannot pay.
        ReplanError: money has to be moved first.
        GateError: a necessary check has failed, and no repair is recorded.
        FleetPaused: a pause is in force.
        CancelledError: the experiment was ended for good.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    draft = draft_of(site, lock, log)
    require_same_ceiling(site, draft)
    approval = None if approved is None else approval_of(site, draft, approved)
    if approval is not None:
        draft.apply(approval, time.time())
    asked = attempts_of(site, log, acts, draft)
    try:
        begin(asked, PREVIEW, 1, acts=acts, now=time.time())(draft)
    except BudgetError as error:
        raise _with_the_dead(error, draft, site) from error


def _with_the_dead(error: BudgetError, draft: Book, site: Site) -> BudgetError:
    """The same refusal; it names a killed launch that is charged in full, because nobody knows when it died."""
    full = [
        lease.reserved.lease
        for lease in draft.leases.values()
        if lease.reserved.experiment == site.name and lease.how == KILLED and lease.cost == lease.worst > 0
    ]
    if not full:
        return error
    return error.with_more(
        f"a killed launch is charged in full for {full[-1]}, until somebody knows better",
        remedy=f"raykit budget settle {full[-1]} --cost AMOUNT --how ... --by NAME",
    )


def require_same_ceiling(site: Site, book: Book) -> None:
    """A ceiling that was edited in the plan moves no money by itself.

    Raises:
        ReplanError: the ledger has another one.
    """
    known, ceiling = book.allocations[site.name], ceiling_of(site.plan)
    if ceiling in (known.ceiling, known.planned.ceiling):
        return
    unit = book.unit
    raise ReplanError(
        f"the plan says {shown(ceiling, unit)} and the ledger {shown(known.ceiling, unit)}: "
        "an edited ceiling moves no money by itself",
        field=ceiling_key(site.plan),
        value=shown(ceiling, unit),
        rule=shown(known.ceiling, unit),
        remedy=f"raykit budget replan {site.name} --ceiling {plain(ceiling)} --reason ... --by NAME",
    )


def open_spending(site: Site, lock: Lock, log: RunLog, acts: Acts) -> Spending:
    """Join the account, set the plan's lines aside, and settle what dead launches have left open.

    Raises:
        ApprovalError: the work is related to another account.
        InvalidInput: the account is kept in another unit.
        BudgetError: the plan does not fit under its own ceiling.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: what was written last is not known.
    """
    now = time.time()
    ledger = join_account(
        site.store, identity_of(site, lock), _named(site), unit=unit_of(site.plan), by="launch", at=now
    )
    ledger.decide(lambda book: _at_a_start(book, site, lock, log, now), at=now)
    return Spending(ledger=ledger, attempts=attempts_of(site, log, acts, ledger.book))


def attempts_of(site: Site, log: RunLog, acts: Acts, book: Book) -> Attempts:
    """What the attempts of this plan ask with, as things stand."""
    return Attempts(
        experiment=site.name,
        projection=projection_of(site, book),
        sizing=_at_seen_rate(
            sizing_of(site.store, site.plan, book=book, base=site.base), book.allocations.get(site.name)
        ),
        failed=failed_gates(log.state, acts),
    )


def _at_seen_rate(sizing: Sizing, known: Allocation | None) -> Sizing:
    """What the plan's line pays for at the rate of today: a rise within the margin is taken from the margin."""
    seen = None if known is None else known.rates.get(TRAIN)
    return sizing if seen is None else at_rate(replace(sizing, rate=seen), sizing.rate, sizing.source)


def projection_of(site: Site, book: Book) -> str:
    """What an approval of this plan has to name, with the ceiling as the ledger has it."""
    known = book.allocations.get(site.name)
    ceiling = ceiling_of(site.plan) if known is None else known.ceiling
    return projection(site.plan, ceiling=ceiling, base=site.base)


def approve(site: Site, spending: Spending, approved: Approving) -> None:
    """Record what a person lets this plan come to; said twice, it is recorded once.

    Raises:
        ApprovalError: the amount is above the plan's ceiling.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: the reply was lost; say it again.
    """
    spending.ledger.decide(lambda book: approval_of(site, book, approved), at=time.time())


def approval_of(site: Site, book: Book, approved: Approving) -> Record | None:
    """What is recorded of it; None if it was said before.

    Raises:
        ApprovalError: the amount is above the plan's ceiling.
    """
    return money.approve_plan(
        book,
        site.name,
        covers=approved.amount,
        projection=projection_of(site, book),
        person=approved.person,
        scripted=approved.scripted,
    )


# --- what is written at a start -----------------------------------------------------------------------------


def _at_a_start(book: Book, site: Site, lock: Lock, log: RunLog, now: float) -> list[Record]:
    """What a launch writes before it asks for anything."""
    return [
        *ends_of_dead(book, site.name, log, now),
        *_planned(site, lock, book),
        *_frees(book, site, now),
    ]


def _named(site: Site) -> str | None:
    return None if site.plan.budget is None else site.plan.budget.account


def _planned(site: Site, lock: Lock, book: Book) -> list[Planned]:
    """The plan's lines, where the ledger does not have them yet: afterwards only a replan changes them."""
    if site.name in book.allocations:
        return []
    plan, known = site.plan, known_of(site.store, site.plan, base=base_experiment(lock.base))
    sizing, wall_ms = sized(plan, known, book), expected_wall_ms(plan, known)
    around = work_around(plan, known, book, sizing)
    expected = expected_cost(sizing, sizing.wall_ms if wall_ms is None else wall_ms)
    planned = Planned(
        experiment=site.name,
        plan=lock.digest,
        decision=decision_digest(plan),
        ceiling=ceiling_of(plan),
        lines=lines_of(plan, known, book, sizing),
        rates={"train": sizing.rate, **{each.line: each.rate for each in around}},
        margin_permille=sizing.margin_permille,
        expected=expected + sum(each.expected for each in around),
        expected_ms=0 if wall_ms is None else waves_of(plan) * wall_ms,
        uncertain=sizing.uncertain or any(each.uncertain for each in around),
    )
    made = money.plan(book, planned)
    return [] if made is None else [made]


def _frees(book: Book, site: Site, now: float) -> list[Freed]:
    """Machines that were held while nobody worked work again: what they cost meanwhile is known."""
    return [
        Freed(experiment=name, pool=pool, cost=book.idle_cost(now, name, pool), how="works again")
        for name, pool in book.held
        if name == site.name
    ]


__all__ = [
    "Approving",
    "Spending",
    "account_now",
    "approval_of",
    "approve",
    "attempts_of",
    "draft_of",
    "failed_gates",
    "identity_of",
    "open_spending",
    "projection_of",
    "require_same_ceiling",
    "require_spendable",
]
