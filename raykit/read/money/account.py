"""The ledgers of a store, and what a whole account comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raykit.read.money.view import AccountMoney, ApprovalMoney, Money, RateMoney
from raykit.records import Approved, Rated
from raykit.store.accounts import account_of
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger


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
        approvals=tuple(approvals_of(ledger, None, None)),
        rates=tuple(rate_of_pool(rated, None) for rated in book.rates.values()),
    )


def approvals_of(ledger: Ledger, experiment: str | None, digest: str | None) -> Iterator[ApprovalMoney]:
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


def rate_of_pool(rated: Rated, planned: int | None) -> RateMoney:
    return RateMoney(pool=rated.pool, rate=rated.rate, planned=planned, source=rated.source, on=rated.on)
