"""The synthetic sets of an experiment as people look at them: how far each is, what it is made of, who is waited for.

No Ray is needed. Only rows that are persisted count: what a worker has in hand is nothing yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from raykit.budget.book import Lease
from raykit.candidates import Registry
from raykit.candidates.rules import usable_for
from raykit.errors import CorruptError, GateError, NotFoundError
from raykit.pauses import Acts, InForce, pause_of, way_on
from raykit.plan import Lock
from raykit.read.money import Ledgers
from raykit.read.setmoney import LINE, shortage_of
from raykit.read.setview import Attempts, Bounded, Made, Reasons, SetRead, SetState
from raykit.records import (
    Contracted,
    Rows,
    SetManifest,
)
from raykit.shards.bounded import bounded
from raykit.shards.closing import Account
from raykit.shards.standing import STATUSES, Board, heard_of
from raykit.shards.units import units_of
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidate_registry
from raykit.store.generation import Listing, Shards, read_contract
from raykit.store.people import read_acts
from raykit.store.place import alive, this_place
from raykit.store.plans import read_lock
from raykit.store.progress import Progress, extended, read_progress

GENERATE = "raykit generate PLAN"
LAUNCHED = "a launch of its plan is at it, with no unit of the set in hand just now"
REPLACED_S = 60.0
"""So long after a worker has ended another one may be on its way."""
DEFAULT_TRIES, DEFAULT_CANARY_UNITS = 3, 2
NEWEST_FAILURES = 5
MOST_RECEIPTS = 500
"""So many receipts are read for the reasons of rows that were filtered or failed, while a set is not complete."""

NO_ROWS = Rows(requested=0, produced=0, filtered=0, failed=0)


# --- reading ------------------------------------------------------------------------------------------------


class GenerationReader:
    """The synthetic sets of one experiment, looked at again and again: what was read once and never changes is kept."""

    def __init__(self, store: ObjectStore, experiment: str, *, ledgers: Ledgers | None = None) -> None:
        self._store = store
        self._ledgers = ledgers or Ledgers(store)
        self.experiment = experiment
        self._locks: dict[str, Lock] = {}
        self._contracts: dict[str, _Contract] = {}

    def look(self, *, now: float, acts: Acts | None = None, whole: bool = False) -> tuple[SetRead, ...]:
        """Every set of the newest plan, and every one that has a contract. `acts` saves reading what people have said.

        With `whole`, the reasons of rows and attempts at complete sets are read as well.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        acts = acts or read_acts(self._store, self.experiment)
        planned = self._planned(acts)
        names = dict.fromkeys([*planned, *acts.contracted])
        if not names:
            return ()
        waiting = [name for name in names if name not in acts.contracted]
        registry = read_candidate_registry(self._store) if waiting else Registry()
        found = [
            self._frozen(name, planned.get(name, {}), acts, now, whole=whole)
            if name in acts.contracted
            else self._unfrozen(name, planned[name], acts, registry, now)
            for name in names
        ]
        return tuple(self._for_money(read, now) for read in found)

    def _planned(self, acts: Acts) -> Mapping[str, Mapping[str, Any]]:
        """The tables `[generate.NAME]` of the newest plan."""
        if not acts.locked:
            return {}
        digest = acts.locked[-1].plan
        if digest not in self._locks:
            try:
                self._locks[digest] = read_lock(self._store, self.experiment, digest)
            except NotFoundError as error:
                raise CorruptError(f"the lock that says what is generated is gone: {error}") from error
        tables: Mapping[str, Mapping[str, Any]] = self._locks[digest].settings.get("generate", {})
        return tables

    def _unfrozen(
        self, name: str, settings: Mapping[str, Any], acts: Acts, registry: Registry, now: float
    ) -> SetRead:
        """A set without a contract: what keeps it from being begun."""
        teacher, rows = str(settings.get("teacher", "selected")), settings.get("rows")
        pause = pause_of(acts, self.experiment, "generate")
        missing = missing_approval(registry, self.experiment, teacher)
        state: SetState = "not started" if missing is None else "waiting"
        command: str | None = GENERATE if missing is None else missing
        detail: str | None = None
        if acts.cancelled is not None:
            state, command = "cancelled", None
        elif pause is not None:
            state, command = "paused", way_on(pause)
        elif missing is None and self._launched(now):
            state, detail, command = "running", LAUNCHED, None
        return SetRead(
            experiment=self.experiment,
            name=name,
            state=state,
            detail=detail,
            command=command,
            teacher=teacher,
            rows=rows,
            pause=pause,
        )

    def _launched(self, now: float) -> bool:
        """Whether a launch of the plan is known to live although no unit of the set is in hand.

        A lease names the process that ends its worker. Where that cannot be seen from here, a lease that is paid for
        says that it lives; and a worker that has just ended is being replaced, unless by who asks, which is leaving.
        """
        ledger = self._ledgers.of(self.experiment)
        leases = () if ledger is None else ledger.book.leases.values()
        return any(
            _is_held(lease, now)
            for lease in leases
            if lease.reserved.line == LINE and lease.reserved.experiment == self.experiment
        )

    def _for_money(self, read: SetRead, now: float) -> SetRead:
        """The same, unless the money for a launch is not there."""
        ledger = self._ledgers.of(self.experiment) if read.command == GENERATE else None
        short = None if ledger is None else shortage_of(ledger.book, self.experiment, read.made, now)
        if short is None:
            return read
        return replace(read, state="out of budget", detail=short.words, command=short.command)

    def _frozen(
        self, name: str, settings: Mapping[str, Any], acts: Acts, now: float, *, whole: bool
    ) -> SetRead:
        """A set with a contract."""
        said = acts.contracted[name][-1]
        if said.contract not in self._contracts:
            self._contracts[said.contract] = _Contract(self._store, self.experiment, said)
        contract = self._contracts[said.contract]
        pause = pause_of(acts, self.experiment, "generate", said.contract)
        made, board = contract.look(settings, acts, now, whole=whole)
        launched = board is not None and not board.in_hand and self._launched(now)
        state, detail, command = _state(made, board, acts, pause, launched)
        return SetRead(
            experiment=self.experiment,
            name=name,
            state=state,
            detail=detail,
            command=command,
            teacher=str(settings.get("teacher", said.candidate)),
            rows=made.contract.rows,
            made=made,
            contracts=len(acts.contracted[name]),
            pause=None if state in ("complete", "cancelled") else pause,
        )


def read_sets(
    store: ObjectStore, experiment: str, *, now: float, acts: Acts | None = None, whole: bool = True
) -> tuple[SetRead, ...]:
    """The synthetic sets of an experiment, once.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return GenerationReader(store, experiment).look(now=now, acts=acts, whole=whole)


def missing_approval(registry: Registry, experiment: str, teacher: str) -> str | None:
    """The next act that lets a checkpoint make a set; None if one may. Whether its QC holds is judged at the launch.

    Registered without an update, it is the checkpoint that the plan's rule selects, or else the newest.
    """
    own = [each for each in registry.candidates.values() if each.said.experiment == experiment]
    meant = own if teacher == "selected" else [each for each in own if each.name == teacher]
    if any(usable_for(each, "generation") is not None for each in meant):
        return None
    standing = [each for each in meant if each.rejected is None]
    if standing:
        name = standing[-1].name
        return f"raykit candidates approve {name} --use generation --reason ... --by NAME"
    name = f"{experiment}-teacher" if teacher == "selected" else teacher
    return f"raykit candidates register {name} {experiment} --role production-candidate --by NAME"


# --- one contract -------------------------------------------------------------------------------------------


class _Contract:
    """What is under one contract. Its receipts are read once each, its manifest as well."""

    def __init__(self, store: ObjectStore, experiment: str, said: Contracted) -> None:
        self._shards = Shards(store, read_contract(store, experiment, said.name, said.contract))
        self._said = said
        self._progress: Progress | None = None
        self._manifest: SetManifest | None = None
        self._manifest_digest: str | None = None

    def look(
        self, settings: Mapping[str, Any], acts: Acts, now: float, *, whole: bool
    ) -> tuple[Made, Board | None]:
        """How far it is; with its board, unless it is closed."""
        if self._manifest is None:
            self._manifest = self._shards.manifest()
            self._manifest_digest = None if self._manifest is None else self._manifest.digest
        if self._manifest is not None:
            return self._closed(self._manifest, acts, whole=whole), None
        return self._open(settings, acts, now, whole=whole)

    def _closed(self, manifest: SetManifest, acts: Acts, *, whole: bool) -> Made:
        units = units_of(self._shards.contract)
        counts = {status: units if status == "published" else 0 for status in STATUSES}
        return self._made(
            acts,
            rows=manifest.rows,
            size_bytes=manifest.size_bytes,
            units=counts,
            reasons=Reasons(filtered=manifest.filtered, failed=manifest.failed, receipts=units, of=units),
            bounded=Bounded(
                counts=bounded(self._shards.contract.bounds, manifest.rows, manifest.failed, manifest.counts),
                receipts=units,
                of=units,
            ),
            attempts=_attempts(self._shards.listing()) if whole else Attempts(),
        )

    def _open(
        self, settings: Mapping[str, Any], acts: Acts, now: float, *, whole: bool
    ) -> tuple[Made, Board]:
        listing = self._shards.listing()
        published = listing.published
        progress = (
            read_progress(self._shards, published)
            if self._progress is None
            else extended(self._shards, self._progress, published)
        )
        self._progress = progress
        board = Board(
            self._shards.contract,
            progress.units,
            listing.said(),
            tries=int(settings.get("tries", DEFAULT_TRIES)),
            canary_units=int(settings.get("canary_units", DEFAULT_CANARY_UNITS)),
            heard=heard_of(acts, self._shards.digest),
            over=listing.over(),
            now=now,
        )
        made = self._made(
            acts,
            rows=progress.rows,
            size_bytes=progress.size_bytes,
            units=board.counts,
            parked={unit: board.standing(unit).next_n - 1 for unit in board.parked},
            defect=board.defect,
            reasons=_reasons(self._shards, progress) if whole else Reasons(),
            bounded=_bounded(self._shards, progress) if whole else Bounded(),
            attempts=_attempts(listing),
        )
        return made, board

    def _made(self, acts: Acts, **found: Any) -> Made:
        return Made(
            contract=self._shards.contract,
            digest=self._shards.digest,
            said=self._said,
            canary=acts.canaries.get(self._shards.digest),
            manifest=self._manifest,
            manifest_digest=self._manifest_digest,
            given_up=frozenset(acts.given_up.get(self._shards.digest, {})),
            **found,
        )


def _is_held(lease: Lease, now: float) -> bool:
    """Whether the process is there that has a worker under this lease, or had one a moment ago."""
    holder = lease.reserved.holder
    if holder is None:
        return False
    if lease.open:
        return alive(holder) is not False and now < lease.at + lease.time_ms / 1000
    recent = now - (lease.at + (lease.held_ms or 0) / 1000) < REPLACED_S
    return recent and holder != this_place() and alive(holder) is True


def _state(
    made: Made, board: Board | None, acts: Acts, pause: InForce | None, launched: bool
) -> tuple[SetState, str | None, str | None]:
    """Its state, why, and what goes on with it. `launched`: a launch is known to live, whatever is in hand."""
    if board is None:
        return "complete", None, None
    if acts.cancelled is not None:
        return "cancelled", None, None
    if pause is not None:
        return "paused", None, way_on(pause)
    if board.in_hand:
        return "running" if made.canary is not None else "canary", None, None
    if board.parked and not board.open_count:
        name = f"{made.contract.experiment}/{made.contract.name}"
        return "parked", None, f"raykit generate retry {name} --reason ... --by NAME"
    if not board.published_count and not made.attempts.failed and not launched:
        return "not started", None, GENERATE
    if board.defect is not None:
        return "stopped", board.defect.words, GENERATE
    if board.complete and not launched:
        return "stopped", "every unit is published, and it is not closed yet", GENERATE
    if launched:
        return "running", LAUNCHED, None
    return "stopped", "nobody is at it", GENERATE


def _attempts(listing: Listing) -> Attempts:
    failures = [(unit, failure) for unit, each in listing.failures.items() for failure in each]
    newest = sorted(failures, key=lambda each: (each[1].at, each[0], each[1].n), reverse=True)
    return Attempts(
        failed=dict(Counter(failure.kind for _, failure in failures).most_common()),
        newest=tuple(newest[:NEWEST_FAILURES]),
        disputed=tuple(sorted(listing.conflicts)),
    )


def _bounded(shards: Shards, progress: Progress) -> Bounded:
    """How many rows of each bounded kind there are; of many units, as far as the newest ones tell."""
    units = progress.units[-MOST_RECEIPTS:]
    account = Account(shards.contract)
    try:
        for receipt in shards.receipts(units.tolist()):
            account.add(receipt)
    except GateError as error:
        raise CorruptError(error.message, field=error.field) from error
    found = account.tally()
    counts = bounded(shards.contract.bounds, found.rows, found.failed, found.counts)
    return Bounded(counts=counts if found.units else (), receipts=found.units, of=len(progress.units))


def _reasons(shards: Shards, progress: Progress) -> Reasons:
    """Why rows were filtered and failed; of many units, as far as the newest ones tell."""
    telling = progress.accounts[(progress.accounts[:, 2] + progress.accounts[:, 3]) > 0][:, 0]
    read: Sequence[int] = telling[-MOST_RECEIPTS:].tolist()
    filtered: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for receipt in shards.receipts(read):
        filtered.update(receipt.filtered)
        failed.update(receipt.failed)
    return Reasons(
        filtered=dict(filtered.most_common()),
        failed=dict(failed.most_common()),
        receipts=len(read),
        of=len(telling),
    )
