"""Finding the account that a command is about; whoever names one that is not there is told what is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raykit.errors import NotFoundError

if TYPE_CHECKING:
    from raykit.budget.book import Allocation, Book
    from raykit.plan import Plan
    from raykit.store.base import ObjectStore
    from raykit.store.ledger import Ledger


def account_names(store: ObjectStore) -> list[str]:
    """The accounts of a store, for messages.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    from raykit.store.accounts import accounts

    return accounts(store)


def ledger_of(store: ObjectStore, account: str, *, by: str, field: str = "ACCOUNT") -> Ledger:
    """The ledger of an account that exists, read to its end.

    Raises:
        NotFoundError: there is no such account.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.ids import safe_name
    from raykit.store.ledger import Ledger

    known = account_names(store)
    if safe_name(account) not in known:
        raise NotFoundError(
            f"there is no account {account} in {store.url}",
            field=field,
            value=account,
            rule=", ".join(known[:10]) or "an account; the first launch of a plan opens one",
            remedy="raykit budget show",
        )
    ledger = Ledger(store, account, by=by)
    ledger.refresh()
    return ledger


def experiment_ledger(store: ObjectStore, name: str, *, by: str) -> tuple[Ledger, Allocation]:
    """The ledger that an experiment spends from, and its part of it.

    Raises:
        NotFoundError: it has no budget here; the message says what has.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.acts import allocation_of
    from raykit.ids import safe_name
    from raykit.store.accounts import account_of

    account = account_of(store, safe_name(name))
    if account is None:
        raise no_budget(store, name)
    ledger = ledger_of(store, account, by=by)
    return ledger, allocation_of(ledger.book, name)


def no_budget(store: ObjectStore, name: str) -> NotFoundError:
    """That an experiment has none, and which have."""
    known = sorted(
        {
            experiment
            for account in account_names(store)
            for experiment in ledger_of(store, account, by="reader").book.allocations
        }
    )
    return NotFoundError(
        f"{name} has no budget in {store.url}: it was never launched here",
        field="NAME",
        value=name,
        rule=", ".join(known[:10]) or "a plan that was launched",
        remedy="raykit budget show",
    )


def known_plan(store: ObjectStore, name: str) -> Plan:
    """The newest plan that was locked for an experiment.

    Raises:
        UnsafeNameError: `name` cannot be a name.
        NotFoundError: there is no such experiment; the message says what there is.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    import raykit
    from raykit.store.plans import newest_lock, stored_plan

    if newest_lock(store, name) is None:
        raise NotFoundError(
            f"there is no experiment {name} in {store.url}",
            field="NAME",
            value=name,
            rule=", ".join(raykit.open(store).experiments()[:10]) or "an experiment that was launched",
            remedy="raykit ls",
        )
    return stored_plan(store, name)


def projection_now(store: ObjectStore, name: str) -> Callable[[Book], str]:
    """What an approval of a locked plan has to name, with the ceiling as a book has it.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: what is stored does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.budget.acts import allocation_of
    from raykit.plan import projection
    from raykit.store.plans import newest_stored_lock

    plan, lock = known_plan(store, name), newest_stored_lock(store, name)
    base = None if lock is None else lock.base
    return lambda book: projection(plan, ceiling=allocation_of(book, name).ceiling, base=base)
