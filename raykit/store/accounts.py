"""Which account a piece of work belongs to: a new name does not buy a new ceiling.

Work is related if it has the same experiment, decision or lineage, or the same data and contract. Who comes first
decides: for each identity one record is created, once, that names the account. The experiment's own record is
written last: an experiment that has one has claimed all its other identities before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raykit.errors import ApprovalError, ConflictError, InvalidInput, NotFoundError
from raykit.ids import Digest, digest_of
from raykit.records import AccountOf, AccountOpened, Unit
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger

IDENTITIES = ("decision", "lineage", "data", "experiment")
"""In the order in which they are claimed."""


def data_identity(data: Digest, contract: Digest) -> Digest:
    """What work with these split members and this training contract has in common."""
    return digest_of([data, contract])


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a piece of work is, as far as its account is concerned. Digests, or None where it has no such thing."""

    experiment: str
    decision: str
    lineage: str | None = None
    """Of the weights that it starts from, where they were made elsewhere."""
    parent: str | None = None
    """The experiment that trained the weights that it starts from: whose account pays for them pays for this."""
    data: str | None = None
    """Of the split members and the training contract, together: `data_identity`."""

    def keys(self) -> Mapping[str, str]:
        """The store's key for each identity, in the order in which they are claimed."""
        digests = (self.decision, self.lineage, self.data, digest_of(self.experiment))
        keys = {
            kind: layout.account_of(kind, digest)
            for kind, digest in zip(IDENTITIES, digests, strict=True)
            if digest is not None
        }
        if self.parent is not None:
            keys["parent"] = layout.account_of("experiment", digest_of(self.parent))
        return keys


def account_of(store: ObjectStore, experiment: str) -> str | None:
    """The account of an experiment that was launched; None if it has none yet.

    Raises:
        CorruptError: the record does not parse.
        StoreUnavailableError: the store did not answer.
    """
    found = _read(store, layout.account_of("experiment", digest_of(experiment)))
    return None if found is None else found.account


def related(store: ObjectStore, identity: Identity) -> dict[str, AccountOf]:
    """By identity: the accounts that this work is related to already.

    Raises:
        CorruptError: a record does not parse.
        StoreUnavailableError: the store did not answer.
    """
    found = {kind: _read(store, key) for kind, key in identity.keys().items()}
    return {kind: record for kind, record in found.items() if record is not None}


def choose_account(store: ObjectStore, identity: Identity, named: str | None) -> str:
    """The account that this work belongs to. Writes nothing.

    Raises:
        ApprovalError: it is related to an account, and the plan names another, or it is related to several; a person
            has to decide, and none has.
        CorruptError: a record or a ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return _choose(store, identity, named, related(store, identity))


def _choose(store: ObjectStore, identity: Identity, named: str | None, found: Mapping[str, AccountOf]) -> str:
    own = found.get("experiment")
    if own is not None and named not in (None, own.account):
        raise ApprovalError(
            f"{identity.experiment} has spent from account {own.account}, and stays with it",
            field="budget.account",
            value=named,
            rule=own.account,
            remedy="leave budget.account as it was",
        )
    account = own.account if own is not None else named or _first(found) or identity.experiment
    for kind, record in found.items():
        if record.account != account and not _parted(store, record.account, identity.experiment, account):
            raise _elsewhere(identity.experiment, kind, record, account)
    return account


def join_account(
    store: ObjectStore, identity: Identity, named: str | None, *, unit: Unit, by: str, at: float
) -> Ledger:
    """The ledger of the account that this work belongs to, opened if there is none.

    After a crash, or an unknown outcome, the same call goes on from what is there.

    Raises:
        ApprovalError: as for `choose_account`.
        InvalidInput: the account is kept in another unit.
        CorruptError: a record or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
        UnknownOutcomeError: what was written last is not known.
    """
    found = related(store, identity)
    account = _choose(store, identity, named, found)
    ledger = Ledger(store, account, by=by)
    ledger.refresh()
    _require_unit(ledger, unit)  # before anything is written
    if not _claim(store, identity, account, found):
        # Somebody related was faster: theirs is the account, or a person has to decide.
        return join_account(store, identity, named, unit=unit, by=by, at=at)
    opened = AccountOpened(account=account, unit=unit, why=f"first used by {identity.experiment}")
    ledger.decide(lambda book: opened if book.opened is None else None, at=at)
    _require_unit(ledger, unit)
    return ledger


def open_ledger(store: ObjectStore, experiment: str, *, by: str) -> Ledger:
    """The ledger that an experiment spends from, read to its end.

    Raises:
        NotFoundError: it was never launched.
        CorruptError: the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    account = account_of(store, experiment)
    if account is None:
        raise NotFoundError(
            f"{experiment} has no account: it was never launched here", field="NAME", value=experiment
        )
    ledger = Ledger(store, account, by=by)
    ledger.refresh()
    return ledger


def accounts(store: ObjectStore) -> list[str]:
    """The names of all accounts.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    known = (layout.known(listed.key) for listed in store.list(layout.accounts()))
    return sorted(
        {found.parts["account"] for found in known if found is not None and "account" in found.parts}
    )


def _first(found: Mapping[str, AccountOf]) -> str | None:
    return next((record.account for record in found.values()), None)


def _elsewhere(experiment: str, kind: str, record: AccountOf, account: str) -> ApprovalError:
    return ApprovalError(
        f"the {kind} of {experiment} belongs to account {record.account}, where {record.experiment} came first; "
        f"account {account} cannot pay for it",
        field="budget.account",
        value=account,
        rule="related work is one account: a new name does not buy a new ceiling",
        remedy=f'budget.account = "{record.account}", or, as a person: '
        f"raykit budget part {experiment} --from {record.account} --to {account} --reason ...",
    )


def _require_unit(ledger: Ledger, unit: Unit) -> None:
    if ledger.book.opened is not None and ledger.book.unit != unit:
        raise InvalidInput(
            f"account {ledger.account} is kept in {ledger.book.unit}, and the plan in {unit}",
            field="budget",
            value=unit,
            rule=ledger.book.unit,
        )


def _claim(store: ObjectStore, identity: Identity, account: str, found: Mapping[str, AccountOf]) -> bool:
    """Say of all identities but those `found` that their account is this one; False if somebody was faster.

    `found` is what the choice was made by: to look again here would pass over what has been claimed since.
    """
    record = AccountOf(account=account, experiment=identity.experiment).to_bytes()
    try:
        for kind, key in identity.keys().items():
            if kind not in found and kind != "parent":  # a parent without an account was never paid for
                store.put_new(key, record)
    except ConflictError:
        return False
    return True


def _parted(store: ObjectStore, account: str, experiment: str, wanted: str) -> bool:
    ledger = Ledger(store, account, by="reader")
    ledger.refresh()
    return (experiment, wanted) in ledger.book.parted


def _read(store: ObjectStore, key: str) -> AccountOf | None:
    try:
        return AccountOf.from_bytes(store.get(key), key)
    except NotFoundError:
        return None


__all__ = [
    "IDENTITIES",
    "Identity",
    "account_of",
    "accounts",
    "choose_account",
    "data_identity",
    "join_account",
    "open_ledger",
    "related",
]
