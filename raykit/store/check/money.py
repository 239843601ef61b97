"""Accounts: every ledger, which work belongs to which, and that nothing has started without a reservation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from raykit.budget.audit import audit
from raykit.errors import CorruptError
from raykit.ids import digest_of
from raykit.plan.lock import digest_of_decision
from raykit.records import (
    AccountEntry,
    AccountOf,
    AccountOpened,
    Accrued,
    Corrected,
    Locked,
    Parted,
    Planned,
    Record,
    Reserved,
    Settled,
    Voided,
)
from raykit.store import layout
from raykit.store.accounts import data_identity
from raykit.store.check.contents import read_lock
from raykit.store.check.logs import read_log
from raykit.store.check.runs import Started
from raykit.store.check.view import View


@dataclass(slots=True, kw_only=True)
class _Account:
    """What a ledger says about who spends from it."""

    name: str
    whole: bool
    planned: dict[str, str] = field(default_factory=dict)
    """By experiment: its decision."""
    parted: set[tuple[str, str]] = field(default_factory=set)
    """Experiments, and the other accounts that they may have."""
    reserved: dict[str, str] = field(default_factory=dict)
    """By lease: the experiment that it was reserved for."""
    trials: dict[tuple[str, str], Charged] = field(default_factory=dict)
    """By experiment and run: what the trials of searches are charged with."""


class Charged:
    """What one run is charged with, over all of its leases: now, and at every moment before."""

    def __init__(self, key: str) -> None:
        self.key = key
        """Of the ledger's entry that first says so."""
        self.total = 0
        self.totals = {0}
        self.learned = False
        """A person has said later what a lease cost."""
        self._leases: dict[str, int] = {}

    def take(self, lease: str, amount: int) -> None:
        """A lease is charged with so much from here on."""
        self.total += amount - self._leases.get(lease, 0)
        self._leases[lease] = amount
        self.totals.add(self.total)


def check_money(
    view: View, locked: Mapping[str, Sequence[Locked] | None], started: Iterable[Started]
) -> dict[tuple[str, str], Charged]:
    """Look at all accounts; `started` are the attempts of all runs.

    Returns what the trials of searches are charged with, by experiment and run.
    """
    money = _Money(view, locked)
    for account in money.accounts.values():
        for experiment, decision in account.planned.items():
            money.belongs(account.name, experiment, "experiment", digest_of(experiment))
            money.belongs(account.name, experiment, "decision", decision)
            money.name_plans(experiment)
    money.name_lineages()
    leases: Counter[str] = Counter()
    for each in started:
        if each.attempt.lease is not None:
            leases[each.attempt.lease] += 1
            money.reserved(each, again=leases[each.attempt.lease] > 1)
    return {of: charged for account in money.accounts.values() for of, charged in account.trials.items()}


def _charge(leases: Mapping[str, Charged], event: Record) -> None:
    """Count an event to the trial whose lease it is about; `leases` are those of trials."""
    match event:
        case Reserved(lease=lease) | Accrued(lease=lease) if lease in leases:
            leases[lease].take(lease, event.worst)
        case Settled(lease=lease) | Corrected(lease=lease) if lease in leases:
            leases[lease].take(lease, event.cost)
            leases[lease].learned |= event.person is not None
        case Voided(lease=lease) if lease in leases:
            leases[lease].take(lease, 0)


class _Money:
    def __init__(self, view: View, locked: Mapping[str, Sequence[Locked] | None]) -> None:
        self._view = view
        self._locked = locked
        self._records: dict[str, AccountOf | None] = {}
        for key, known in view.known.items():
            if known.kind == "account-of":
                self._record(key)
        named = {record.account for record in self._records.values() if record is not None}
        found = named | {name for (name,) in view.parts("account")}
        self.accounts = {name: self._account(name) for name in sorted(found)}

    # --- what is there --------------------------------------------------------------------------------------

    def _record(self, key: str) -> AccountOf | None:
        """The record at a key of an identity; None if there is none that can be read. What is wrong is found once."""
        if key not in self._records:
            self._records[key] = None if self._view.size(key) is None else self._read(key)
        return self._records[key]

    def _read(self, key: str) -> AccountOf | None:
        data = self._view.get(key)
        try:
            record = AccountOf.from_bytes(data, key)
            if record.to_bytes() != data:
                raise CorruptError(f"{key} is not written as raykit writes it")
        except CorruptError as error:
            self._view.find(key, "a record of an identity", error.message, "I2")
            return None
        known = layout.known(key)
        own = layout.account_of("experiment", digest_of(record.experiment))
        if known is not None and known.parts["identity"] == "experiment" and key != own:
            self._view.find(key, "an experiment's record is its own", f"it is of {record.experiment}", "I2")
            return None
        return record

    def _account(self, name: str) -> _Account:
        prefix = layout.account_log(name)
        log = read_log(self._view, prefix, AccountEntry)
        self._view.counts["accounts"] += bool(log.entries)
        account = _Account(name=name, whole=log.whole)
        if not log.whole:
            return account
        for finding in audit([entry for _, entry in log.entries]):
            key = layout.log_entry(prefix, finding.n)
            self._view.find(key, finding.rule, finding.found, finding.invariant)
        leases: dict[str, Charged] = {}
        for key, event in log.events():
            match event:
                case AccountOpened() if event.account != name:
                    self._view.find(key, "a ledger is its own", f"it is of account {event.account}", "I2")
                case Planned():
                    account.planned[event.experiment] = event.decision
                case Parted():
                    account.parted.add((event.experiment, event.account))
                case Reserved():
                    account.reserved[event.lease] = event.experiment
                    if event.run is not None:
                        of = event.experiment, event.run
                        leases[event.lease] = account.trials.setdefault(of, Charged(key))
            _charge(leases, event)
        return account

    # --- who belongs where ----------------------------------------------------------------------------------

    def belongs(self, account: str, experiment: str, kind: str, digest: str) -> None:
        """Work that spends from an account has claimed its identity for it, or a person has parted them."""
        key = layout.account_of(kind, digest)
        rule = "what spends from an account belongs to it"
        if self._view.missing(key, rule, "I6"):
            return
        record = self._record(key)
        if record is None or record.account == account:
            return
        other = self.accounts.get(record.account)
        if kind != "experiment" and (
            other is None or not other.whole or (experiment, account) in other.parted
        ):
            return
        found = f"{experiment} spends from {account}, and its {kind} belongs to {record.account}"
        self._view.find(key, rule, found, "I6")

    def name_plans(self, experiment: str) -> None:
        """What an experiment that has an account has claimed for plans that it locked later is no orphan."""
        for lock in self._locked.get(experiment) or ():
            self._view.name([layout.account_of("data", data_identity(lock.data, lock.contract))])
            plan = read_lock(self._view, experiment, lock.plan)
            decision = None if plan is None else plan.settings.get("decision")
            if isinstance(decision, str):
                self._view.name([layout.account_of("decision", digest_of_decision(decision))])

    def name_lineages(self) -> None:
        """Nor is the weights' identity, if whoever came first spends where it says."""
        for key, record in self._records.items():
            known = layout.known(key)
            if record is None or known is None or known.parts["identity"] != "lineage":
                continue
            if record.experiment in self.accounts[record.account].planned:
                self._view.name([key])

    # --- what has started -----------------------------------------------------------------------------------

    def reserved(self, started: Started, *, again: bool) -> None:
        """An attempt that names a lease has it from the ledger of its experiment's account."""
        experiment, attempt = started.experiment, started.attempt
        what = f"attempt {attempt.attempt} of {experiment}"
        rule = "nothing starts without a durable reservation"
        if again:
            self._view.find(
                started.key, rule, f"{what} has lease {attempt.lease}, and is not the first", "I6"
            )
        key = layout.account_of("experiment", digest_of(experiment))
        if self._view.missing(key, "what spends from an account belongs to it", "I6"):
            return
        record = self._record(key)
        account = None if record is None else self.accounts.get(record.account)
        if account is None or not account.whole:
            return  # told where it was found
        of = account.reserved.get(attempt.lease or "")
        if of != experiment:
            found = "is not reserved" if of is None else f"is reserved for {of}"
            self._view.find(
                started.key, rule, f"{what}: lease {attempt.lease} {found} in {account.name}", "I6"
            )
        for lock in self._locked.get(experiment) or ():
            if lock.plan == attempt.plan:
                self.belongs(account.name, experiment, "data", data_identity(lock.data, lock.contract))
