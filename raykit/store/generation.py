"""Synthetic sets in the store: each unit of a contract has at most one receipt, however often it was tried.

Everything is created once and never replaced. To claim attempt n at a unit is to create `claims/<unit>-<n>.json`:
whoever loses that race looks for other work. To publish is to write the rows under their sha256 and then to create
`receipts/<unit>.json`, which decides: equal bytes are success, other bytes are kept whole beside it, as a conflict.
Receipts and what is said of attempts are sealed: a changed byte shows before any parser sees it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raykit.errors import ConflictError, CorruptError, InvalidInput, NotFoundError
from raykit.ids import MAX_JSON_BYTES, Digest, sha256
from raykit.records import (
    Claim,
    Conflict,
    Failure,
    GenerationContract,
    Place,
    Rows,
    SetManifest,
    Took,
    UnitReceipt,
)
from raykit.shards.spans import Numbers, numbers_of
from raykit.shards.standing import Said
from raykit.shards.units import unit_id, unit_of, units_of
from raykit.store import layout
from raykit.store.attempts import (
    MAX_RECORD_BYTES,
    Attempt,
    damaged,
    differing,
    parsed,
    read_attempt,
    read_exactly,
    read_frozen,
    read_sealed,
    say_once,
    sealed,
)
from raykit.store.base import ObjectStore, Put
from raykit.store.place import gone
from raykit.store.side_by_side import side_by_side, threads_for

Published = Literal["written", "already", "conflict", "late"]
"""What came of a receipt: it decided; its very bytes were there; other bytes were there first, which under an exact
contract must not be; the same where it may."""

GIVEN_UP = "given up"
"""The reason for which the rows of a unit failed that a person gave up."""

SHOWN_ROWS = 100
"""So many numbers of failed rows are in a receipt."""

_FILE = re.compile(r"(\d{8}|[1-9]\d{8,})(?:-([1-9]\d*))?\.json")
"""A file that is named for a unit, or for an attempt at one."""

SAME_FOR_REUSE = ("columns", "inputs", "samples", "unit_rows")
"""What two contracts must have in common, if a unit of one is to be the same rows in the other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Listing:
    """How far the units of a contract are, as far as a listing and a few records tell."""

    published: Numbers
    """Units that have a receipt, in order."""
    attempts: Mapping[int, int]
    """By unit without a receipt that somebody has been at: the number of its newest attempt."""
    claims: Mapping[int, tuple[Claim, ...]]
    """Of units without a receipt."""
    failures: Mapping[int, tuple[Failure, ...]]
    """Of all units."""
    conflicts: Mapping[int, tuple[Conflict, ...]]
    """Of all units."""

    def said(self) -> dict[int, Said]:
        """By unit, all that is written of the attempts at it."""
        return {
            unit: Said(
                claims=self.claims.get(unit, ()),
                failures=self.failures.get(unit, ()),
                conflicts=self.conflicts.get(unit, ()),
            )
            for unit in {*self.claims, *self.failures, *self.conflicts}
        }

    def over(self) -> list[tuple[int, int]]:
        """Attempts that nobody will end any more: unit and number of those whose process is known to be gone."""
        return [
            (unit, claims[-1].n) for unit, claims in self.claims.items() if claims and gone(claims[-1].place)
        ]


def read_contract(store: ObjectStore, experiment: str, name: str, digest: Digest) -> GenerationContract:
    """A contract as it was frozen.

    Raises:
        CorruptError: it is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.generation_contract(experiment, name, digest)
    contract = read_frozen(store, key, digest, GenerationContract)
    if (contract.experiment, contract.name) != (experiment, name):
        raise damaged(key, "is of another set", "I3")
    return contract


class Shards:
    """The units of one contract."""

    def __init__(
        self, store: ObjectStore, contract: GenerationContract, *, threads: int | None = None
    ) -> None:
        """`threads` is how many objects are asked for at once, where there are many; as many as help if not said."""
        self.store = store
        self.contract = contract
        self.digest: Digest = contract.digest
        self._where = (contract.experiment, contract.name, self.digest)
        self._threads = threads or threads_for(store)
        self._attempts: dict[str, Claim | Failure | Took | Conflict] = {}
        """By key, what has been read of attempts: it never changes."""

    def freeze(self) -> None:
        """Keep the contract. Safe to repeat.

        Raises:
            ConflictError: its key holds other bytes.
            UnknownOutcomeError: the reply was lost and could not be read back.
            StoreUnavailableError: the store did not take it.
        """
        self.store.put_new(layout.generation_contract(*self._where), self.contract.to_bytes())

    # --- who is at it ---------------------------------------------------------------------------------------

    def claim(
        self,
        unit: int,
        n: int,
        *,
        worker: str,
        place: Place,
        at: float,
        deadline_s: float,
        lease: str | None = None,
    ) -> Claim | None:
        """Take attempt `n` at a unit, one more than there were; None if another worker was faster.

        Raises:
            UnknownOutcomeError: the reply was lost and could not be read back: look again before working.
            StoreUnavailableError: the store did not take it.
        """
        claim = Claim(
            request=unit_id(self.digest, unit),
            n=n,
            worker=worker,
            place=place,
            at=at,
            deadline_s=deadline_s,
            lease=lease,
        )
        return claim if say_once(self.store, self._attempt_key("claims", unit, n), claim) else None

    def fail(self, unit: int, failure: Failure) -> bool:
        """Say that an attempt came to nothing; False if somebody else has said something of it before.

        Raises:
            UnknownOutcomeError: the reply was lost and could not be read back; say it again.
            StoreUnavailableError: the store did not take it.
        """
        assert failure.request == unit_id(self.digest, unit), "a failure is of its unit"
        return say_once(self.store, self._attempt_key("failures", unit, failure.n), failure)

    def made_again(self, unit: int, took: Took) -> bool:
        """Say that another process has made a unit as well, and come to the same; False if that was said before.

        Raises:
            UnknownOutcomeError: the reply was lost and could not be read back; say it again.
            StoreUnavailableError: the store did not take it.
        """
        assert took.request == unit_id(self.digest, unit), "it is of its unit"
        return say_once(self.store, self._attempt_key("took", unit, took.n), took)

    # --- what came of it ------------------------------------------------------------------------------------

    def publish(self, receipt: UnitReceipt, data: bytes, *, n: int, worker: str) -> Published:
        """Publish what attempt `n` at a unit came to: its rows first, then the receipt, which decides.

        Safe to repeat with the same bytes. Where a person has given the unit up, or it was reused, that stays: what is
        published later is dropped.

        Raises:
            CorruptError: the data are not what the receipt says, or the receipt that was there first is damaged.
            ConflictError: the key of the data holds other bytes.
            UnknownOutcomeError: a reply was lost and could not be read back; publish again.
            StoreUnavailableError: the store did not take it.
        """
        self._require_own(receipt, data)
        self.store.put_new(self.data_key(receipt), data)
        try:
            stored = self.store.put_new(self._receipt_key(receipt.unit), sealed(receipt))
        except ConflictError:
            return self._beside(receipt, n=n, worker=worker)
        return "written" if stored.outcome is Put.WRITTEN else "already"

    def receipt(self, unit: int) -> UnitReceipt | None:
        """The receipt that decided; None if there is none yet.

        Raises:
            CorruptError: it is damaged, or of another unit.
            StoreUnavailableError: the store did not answer.
        """
        try:
            return self._receipt(unit)
        except NotFoundError:
            return None

    def receipts(self, units: Iterable[int] | None = None) -> Iterator[UnitReceipt]:
        """The receipts of these units, which are published, in their order; of all that are, if not said.

        Raises:
            NotFoundError: a unit has none.
            CorruptError: one is damaged, or of another unit.
            StoreUnavailableError: the store did not answer.
        """
        numbers = self.published() if units is None else numbers_of(units)
        return side_by_side(self._receipt, numbers.tolist(), threads=self._threads)

    def data(self, receipt: UnitReceipt) -> bytes:
        """The Parquet file of a unit; that of a reused one was copied, and lies under this contract as well.

        Raises:
            CorruptError: it is missing, or does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        key = self.data_key(receipt)
        return read_exactly(self.store, key, receipt.sha256, max_bytes=receipt.size_bytes)

    def data_key(self, receipt: UnitReceipt) -> str:
        """Where the rows of a unit lie."""
        return layout.generation_data(*self._where, receipt.unit, receipt.sha256)

    # --- how far everything is ------------------------------------------------------------------------------

    def published(self) -> Numbers:
        """The units that have a receipt, in order. Reads no file.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        found = (number for number, n in self._listed("receipts") if not n)
        return numbers_of(np.fromiter(found, dtype=np.int64))

    def listing(self) -> Listing:
        """How far all units are. Of those that have a receipt no file is read, but for their failures and conflicts;
        what was read of an attempt before is not read again.

        Raises:
            CorruptError: a record is damaged, or is of another unit or attempt than its key says.
            StoreUnavailableError: the store did not answer.
        """
        # An attempt's claim comes before whatever ends it: one that is seen unended was so when claims were listed.
        claims = self._numbers("claims")
        failures, conflicts = self._numbers("failures"), self._numbers("conflicts")
        published = self.published()
        open_claims = claims[~np.isin(claims[:, 0], published)]
        newest: dict[int, int] = {}
        for unit, n in [*open_claims.tolist(), *failures[~np.isin(failures[:, 0], published)].tolist()]:
            newest[unit] = max(n, newest.get(unit, 0))
        return Listing(
            published=published,
            attempts=newest,
            claims=self._said("claims", open_claims, Claim),
            failures=self._said("failures", failures, Failure),
            conflicts=self._said("conflicts", conflicts, Conflict),
        )

    def claims(self) -> Iterator[Claim]:
        """Every claim that there ever was, of published units as well. They are read as they are asked for.

        Raises:
            CorruptError: one is damaged, or is of another unit or attempt than its key says.
            StoreUnavailableError: the store did not answer.
        """
        pairs: list[tuple[int, int]] = [(unit, n) for unit, n in self._numbers("claims").tolist()]
        return side_by_side(
            lambda pair: self._attempt("claims", pair[0], pair[1], Claim), pairs, threads=self._threads
        )

    # --- the end --------------------------------------------------------------------------------------------

    def close(self, manifest: SetManifest) -> bool:
        """Keep the manifest of the complete set; False if it was there. Safe to repeat.

        Raises:
            ConflictError: another manifest is there.
            UnknownOutcomeError: the reply was lost and could not be read back; close again.
            StoreUnavailableError: the store did not take it.
        """
        assert manifest.contract == self.digest, "a manifest is of its contract"
        stored = self.store.put_new(layout.generation_manifest(*self._where), manifest.to_bytes())
        return stored.outcome is Put.WRITTEN

    def manifest(self) -> SetManifest | None:
        """The manifest of the complete set; None as long as it is not.

        Raises:
            CorruptError: it is damaged, or of another contract.
            StoreUnavailableError: the store did not answer.
        """
        key = layout.generation_manifest(*self._where)
        try:
            manifest = parsed(SetManifest, self.store.get(key, max_bytes=SetManifest.max_bytes), key)
        except NotFoundError:
            return None
        if manifest.contract != self.digest:
            raise damaged(key, "is of another contract", "I3")
        return manifest

    # --- without being made ---------------------------------------------------------------------------------

    def reuse(self, old: Shards, units: Iterable[int]) -> int:
        """Let units that `old` has published count here as they are; how many did not yet.

        Their rows are copied. Safe to repeat, and to go on with after any end.

        Raises:
            InvalidInput: a unit would be other rows here, or `old` has not published it.
            CorruptError: a receipt or the rows of a unit are damaged.
            UnknownOutcomeError: a reply was lost and could not be read back; reuse again.
            StoreUnavailableError: the store did not answer.
        """
        for name in SAME_FOR_REUSE:
            if getattr(self.contract, name) != getattr(old.contract, name):
                raise InvalidInput(
                    f"units of {old.digest[:12]} are other rows here",
                    field=name,
                    value=_shown(getattr(self.contract, name)),
                    rule=_shown(getattr(old.contract, name)),
                )
        missing = np.setdiff1d(numbers_of(units), self.published())
        return sum(side_by_side(lambda unit: self._reuse(old, unit), missing.tolist(), threads=self._threads))

    def give_up(self, units: Iterable[int], reason: str) -> int:
        """Let all rows of these units count as failed, so that the set can be closed; how many were undecided.

        Raises:
            InvalidInput: the set has columns of a type that raykit cannot write.
            UnknownOutcomeError: a reply was lost and could not be read back; give up again.
            StoreUnavailableError: the store did not take it.
        """
        # Here, because whoever only reads or claims has no need of pyarrow.
        from raykit.store.parquet import parquet_bytes, schema_of

        empty = parquet_bytes(schema_of(self.contract.columns).empty_table())
        missing = np.setdiff1d(numbers_of(units), self.published()).tolist()
        given_up = side_by_side(
            lambda unit: self._put(self._given_up(unit, reason, empty), empty),
            missing,
            threads=self._threads,
        )
        return sum(given_up)

    # --- plumbing -------------------------------------------------------------------------------------------

    def _attempt_key(self, kind: str, unit: int, n: int) -> str:
        return layout.generation_attempt(*self._where, kind, unit, n)

    def _receipt_key(self, unit: int) -> str:
        return layout.generation_receipt(*self._where, unit)

    def _receipt(self, unit: int) -> UnitReceipt:
        key = self._receipt_key(unit)
        receipt = read_sealed(self.store.get(key, max_bytes=MAX_JSON_BYTES), UnitReceipt, key)
        if (receipt.contract, receipt.unit) != (self.digest, unit):
            raise damaged(key, "is of another unit", "I3")
        return receipt

    def _require_own(self, receipt: UnitReceipt, data: bytes) -> None:
        """Let only a receipt pass that is of this contract, and of these data."""
        assert receipt.contract == self.digest, "a receipt is of its contract"
        assert receipt.rows.requested == unit_of(self.contract, receipt.unit).rows, "it accounts for its rows"
        if (sha256(data), len(data)) != (receipt.sha256, receipt.size_bytes):
            raise CorruptError(f"the rows of unit {receipt.unit} are not what its receipt says", rule="I1")

    def _beside(self, receipt: UnitReceipt, *, n: int, worker: str) -> Published:
        """Keep a receipt that came second beside the first."""
        first = self._receipt(receipt.unit)
        if first.given_up is not None or first.reused is not None:
            return "late"
        conflict = Conflict(
            request=unit_id(self.digest, receipt.unit),
            n=n,
            worker=worker,
            receipt=first.digest,
            differs=differing(first, receipt),
            other=receipt.plain(),
        )
        say_once(self.store, self._attempt_key("conflicts", receipt.unit, n), conflict)
        return "conflict" if self.contract.exact else "late"

    def _put(self, receipt: UnitReceipt, data: bytes) -> bool:
        """Write what nobody made here; False if the unit was decided by then."""
        self.store.put_new(self.data_key(receipt), data)
        try:
            return self.store.put_new(self._receipt_key(receipt.unit), sealed(receipt)).outcome is Put.WRITTEN
        except ConflictError:
            return False

    def _reuse(self, old: Shards, unit: int) -> bool:
        receipt = old.receipt(unit)
        if receipt is None:
            raise InvalidInput(f"{old.digest[:12]} has not published unit {unit}", field="units", value=unit)
        if receipt.rows.requested != unit_of(self.contract, unit).rows:
            raise InvalidInput(
                f"unit {unit} has other rows here",
                field="units",
                value=receipt.rows.requested,
                rule=f"{unit_of(self.contract, unit).rows} rows",
            )
        made_under = receipt.reused or old.digest
        data = old.data(receipt)
        differs: dict[str, Any] = {"contract": self.digest, "reused": made_under}
        if self._counts(old):
            differs["counts"] = self._counted(receipt, data)
        return self._put(receipt.model_copy(update=differs), data)

    def _counts(self, old: Shards) -> bool:
        """Whether other kinds of bad rows are counted here than there."""
        mine, theirs = self.contract, old.contract
        return mine.rules != theirs.rules or mine.bounds.keys() != theirs.bounds.keys()

    def _counted(self, receipt: UnitReceipt, data: bytes) -> dict[str, int]:
        """How many bad rows a unit of an earlier contract has by the rules of this one."""
        from raykit.store.contents import contents_of, own_columns
        from raykit.store.damage import bad_rows
        from raykit.store.parquet import read_parquet

        table = read_parquet(data, f"unit {receipt.unit}")
        contents = contents_of(own_columns(table))
        return bad_rows(table, contents, self.contract.bounds, rules=self.contract.rules)

    def _given_up(self, unit: int, reason: str, empty: bytes) -> UnitReceipt:
        there = unit_of(self.contract, unit)
        return UnitReceipt(
            contract=self.digest,
            unit=unit,
            rows=Rows(requested=there.rows, produced=0, filtered=0, failed=there.rows),
            failed={GIVEN_UP: there.rows},
            failed_rows=tuple(range(there.first, there.first + min(there.rows, SHOWN_ROWS))),
            sha256=sha256(empty),
            size_bytes=len(empty),
            given_up=reason,
        )

    def _listed(self, kind: str) -> Iterator[tuple[int, int]]:
        """The unit and attempt in every key of a kind; 0 for the attempt where the key has none."""
        folder = f"{layout.generation(*self._where)}/{kind}"
        units = units_of(self.contract)
        for listed in self.store.list(folder):
            found = _FILE.fullmatch(listed.key, len(folder) + 1)
            if found is not None and int(found[1]) < units:
                yield int(found[1]), int(found[2] or 0)

    def _numbers(self, kind: str) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """The same as an array, [keys, 2]."""
        flat = (number for pair in self._listed(kind) if pair[1] for number in pair)
        return np.fromiter(flat, dtype=np.int64).reshape(-1, 2)

    def _said(
        self, kind: str, numbers: np.ndarray[tuple[int, int], np.dtype[np.int64]], record: type[Attempt]
    ) -> dict[int, tuple[Attempt, ...]]:
        """By unit, what is said of these attempts, in their order."""
        pairs: Sequence[tuple[int, int]] = sorted((unit, n) for unit, n in numbers.tolist())
        read = side_by_side(
            lambda pair: self._attempt(kind, pair[0], pair[1], record), pairs, threads=self._threads
        )
        found: dict[int, list[Attempt]] = defaultdict(list)
        for (unit, _), each in zip(pairs, read, strict=True):
            found[unit].append(each)
        return {unit: tuple(records) for unit, records in found.items()}

    def _attempt(self, kind: str, unit: int, n: int, record: type[Attempt]) -> Attempt:
        key = self._attempt_key(kind, unit, n)
        kept = self._attempts.get(key)
        if isinstance(kept, record):
            return kept
        data = self.store.get(key, max_bytes=MAX_RECORD_BYTES)
        read = read_attempt(data, record, key, request=unit_id(self.digest, unit), n=n)
        self._attempts[key] = read
        return read


def _shown(value: object) -> str:
    """A field of a contract in a refusal."""
    return ", ".join(column.name for column in value) if isinstance(value, tuple) else str(value)
