"""The units of one contract of a synthetic set: attempts, receipts, rows, and the manifest that closes it.

What cannot be seen: that the newest word on a unit is gone. A claim or failure that nothing follows, a conflict, or a
receipt that no manifest, canary or conflict refers to, looks as if its writer had been killed a moment before; the same
unit then gets the same answer again. Which attempt has made a receipt nobody says: it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raykit.errors import CorruptError, GateError
from raykit.ids import sha256
from raykit.records import (
    CanaryPassed,
    Contracted,
    Generated,
    GenerationContract,
    SetManifest,
    UnitReceipt,
)
from raykit.shards import closing
from raykit.shards.units import canary_of, unit_id, unit_of, units_of
from raykit.store import layout
from raykit.store.attempts import differing, read_sealed
from raykit.store.check.attempts import Attempts, File
from raykit.store.check.view import View

_KINDS = {
    "generation-claim": "claims",
    "generation-failure": "failures",
    "generation-conflict": "conflicts",
    "generation-took": "took",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the log of the experiment says of a contract."""

    whole: bool
    """Nothing of it is missing, as far as can be told."""
    contracted: Contracted | None = None
    canary: CanaryPassed | None = None
    given_up: frozenset[int] = frozenset()
    generated: Generated | None = None


class Units:
    """All units of one contract. `keys` is what there is of it, by kind."""

    def __init__(
        self, view: View, contract: GenerationContract, told: Told, keys: Mapping[str, Sequence[str]]
    ) -> None:
        self.receipts: dict[int, UnitReceipt] = {}
        """By unit: those that can be believed."""
        self._view = view
        self.contract = contract
        self._digest = contract.digest
        self._where = (contract.experiment, contract.name, self._digest)
        self._units = units_of(contract)
        self._told = told
        self._keys = keys
        self._damaged = False
        """A receipt cannot be believed: it was said of it."""

    def check(self) -> None:
        """Look at everything but what comes from other contracts."""
        self._read_receipts()
        attempts = Attempts(self._view, self._attempt_files(), self._attempt_key)
        attempts.check_order()
        tried = attempts.units
        for unit, receipt in self.receipts.items():
            self._receipt(unit, receipt, claimed=_name(unit) in tried)
            self._data(receipt)
        for name, conflicts in attempts.conflicts.items():
            for conflict in conflicts.values():
                other = attempts.other(name, conflict, self.receipts.get(int(name)), UnitReceipt)
                if other is not None:
                    self._view.name([self._data_key(other)])
        self._made_again(attempts)
        if self._told.canary is not None:
            for unit in canary_of(self.contract, self._told.canary.units):
                self._view.missing(self._receipt_key(unit), "the units of a canary are published", "I3")
        self._manifest()
        self._strays()
        self._view.counts["conflicts"] += sum(map(len, attempts.conflicts.values()))

    def check_reused(self, old: Units | None) -> None:
        """Hold the units that were copied against those of the contract that made them, or copied them itself."""
        for unit, receipt in self.receipts.items():
            before = None if old is None else old.receipts.get(unit)
            if receipt.reused is None or before is None or old is None:
                continue
            copied = before.model_copy(
                update={"contract": receipt.contract, "reused": before.reused or before.contract}
            )
            if copied != receipt:
                found = f"it differs in {', '.join(differing(copied, receipt))}"
                self._view.find(
                    self._receipt_key(unit), "a reused unit is what it was when it was made", found, "I3"
                )

    # --- receipts -------------------------------------------------------------------------------------------

    def _read_receipts(self) -> None:
        for key in self._keys.get("generation-receipt", ()):
            unit = int(self._view.known[key].parts["unit"])
            self._view.name([key])
            self._view.counts["units"] += 1
            try:
                receipt = read_sealed(self._view.get(key), UnitReceipt, key)
                if (receipt.contract, receipt.unit) != (self._digest, unit):
                    raise CorruptError(f"{key} is of another unit")
                if unit >= self._units:
                    raise CorruptError(f"{key} is of none of {self._units:,} units")
                closing.contents_of(receipt)
            except CorruptError as error:
                self._view.find(key, "what came of a unit", error.message, "I2")
                self._damaged = True
            else:
                self.receipts[unit] = receipt

    def _made_again(self, attempts: Attempts) -> None:
        """What two processes have made alike is what was published, unless a conflict says otherwise."""
        for name, tooks in attempts.took.items():
            self._view.name(self._attempt_key("took", name, n) for n in tooks)
            receipt = self.receipts.get(int(name))
            own = receipt is not None and receipt.reused is None and receipt.given_up is None
            for n, took in tooks.items() if own and name not in attempts.conflicts else ():
                if receipt is not None and took.receipt != receipt.digest:
                    key = self._attempt_key("took", name, n)
                    self._view.find(key, "what two processes made alike is published", "it is another", "I3")

    def _receipt(self, unit: int, receipt: UnitReceipt, *, claimed: bool) -> None:
        view, key, there = self._view, self._receipt_key(unit), unit_of(self.contract, unit)
        if receipt.rows.requested != there.rows:
            found = f"it accounts for {receipt.rows.requested:,} rows of {there.rows:,}"
            view.find(key, "a receipt accounts for every row of its unit", found, "I3")
        failed = receipt.failed_rows
        strange = [row for row in failed if not there.first <= row < there.first + there.rows]
        if strange or len(set(failed)) != len(failed) or len(failed) > receipt.rows.failed:
            found = f"{len(failed)} rows of it have failed, row {failed[0]:,} first; it counts {receipt.rows.failed:,}"
            view.find(key, "the rows that failed are of the unit, each once", found, "I3")
        if receipt.reused is not None:
            self._reused(key, unit)
        elif receipt.given_up is not None:
            if self._told.whole and unit not in self._told.given_up:
                found = "the log says of nobody who gave it up"
                view.find(key, "the rows of a unit are given up by a person", found, "I8")
        elif not claimed:
            claim = self._attempt_key("claims", _name(unit), 1)
            view.missing(claim, "a unit is claimed before it is made", "I3")

    def _reused(self, key: str, unit: int) -> None:
        spans = () if self.contract.reuses is None else self.contract.reuses.units
        if not any(first <= unit <= last for first, last in spans):
            found = "its contract does not say so"
            self._view.find(key, "a unit is reused where its contract says so", found, "I3")

    # --- rows -----------------------------------------------------------------------------------------------

    def _data(self, receipt: UnitReceipt) -> None:
        view, key = self._view, self._data_key(receipt)
        if view.missing(key, "the rows that a receipt counts are kept", "I1"):
            return
        if view.size(key) != receipt.size_bytes:
            found = f"{key} is {view.size(key)} bytes long, not {receipt.size_bytes}"
            view.find(key, "the rows of a unit have the size that its receipt says", found, "I1")
        elif view.read_data and key in view.sizes:  # else it is newer than the listing
            data = view.get(key, receipt.size_bytes)
            if view.matches(key, receipt.sha256, data):
                for found in self._wrong_rows(receipt, data, key):
                    view.find(key, "the rows of a unit are those that its receipt counts", found, "I1")

    def _wrong_rows(self, receipt: UnitReceipt, data: bytes, key: str) -> Iterator[str]:
        """What is wrong with the rows in the file of a unit."""
        # Here, because a store without synthetic sets has no need of pyarrow.
        from raykit.store.contents import contents_of, own_columns
        from raykit.store.parquet import columns_of, read_parquet

        try:
            table = read_parquet(data, key)
        except CorruptError as error:
            yield error.message
            return
        if columns_of(table.schema) != self.contract.columns:
            names = ", ".join(f"{column.name}: {column.type}" for column in columns_of(table.schema))
            yield f"its columns are {names}"
            return
        if table.num_rows != receipt.rows.produced:
            yield f"it has {table.num_rows:,} rows, and {receipt.rows.produced:,} were produced"
            return
        if "row" not in table.column_names or self._misnumbered(np.asarray(table.column("row")), receipt):
            yield "its rows are not those of the unit, each once and in order, without those that failed"
        told = closing.contents_of(receipt)
        if told and told != contents_of(own_columns(table)):
            yield "its rows hold something else than the receipt tells"

    def _misnumbered(self, rows: np.ndarray, receipt: UnitReceipt) -> bool:
        there = unit_of(self.contract, receipt.unit)
        if not rows.size:
            return False
        inside = there.first <= rows[0] and rows[-1] < there.first + there.rows
        return bool(not inside or (np.diff(rows) <= 0).any() or np.isin(receipt.failed_rows, rows).any())

    def _strays(self) -> None:
        """Files that no receipt names, of attempts that were interrupted: each is what its name says all the same."""
        named = {self._data_key(receipt) for receipt in self.receipts.values()}
        for key in self._keys.get("generation-data", ()):
            if key not in named:
                self._view.data(key, self._view.known[key].parts["digest"])

    # --- the end --------------------------------------------------------------------------------------------

    def _manifest(self) -> None:
        view, key, generated = self._view, layout.generation_manifest(*self._where), self._told.generated
        if generated is not None:
            if view.missing(key, "a set that was closed keeps its manifest", "I1"):
                return
        elif view.absent(key):
            return
        data = view.get(key, SetManifest.max_bytes)
        if generated is not None and sha256(data) != generated.manifest:
            view.find(key, "a set is closed by the manifest that the log names", "it is another one", "I2")
            return
        try:
            manifest = SetManifest.from_bytes(data, key)
            if manifest.to_bytes() != data:
                raise CorruptError(f"{key} is not written as raykit writes it")
        except CorruptError as error:
            view.find(key, "the manifest of a set", error.message, "I2")
            return
        if generated is not None and generated.rows != manifest.rows:
            view.find(key, "the log counts the rows of a set as its manifest does", "it does not", "I3")
        if key in view.sizes and not self._damaged:  # else its receipts may be newer than the listing
            self._adds_up(key, manifest)

    def _adds_up(self, key: str, manifest: SetManifest) -> None:
        scripted = manifest.scripted if self._told.contracted is None else self._told.contracted.scripted
        try:
            added = closing.close(self.contract, self.receipts.values(), scripted=scripted)
        except GateError as error:
            rule = "a set is closed once every requested row is accounted for"
            self._view.find(key, rule, error.message, "I3")
            return
        if added != manifest:
            found = f"it differs in {', '.join(differing(added, manifest))}"
            self._view.find(key, "a manifest is what its receipts add up to", found, "I3")

    # --- keys -----------------------------------------------------------------------------------------------

    def _attempt_files(self) -> Iterator[File]:
        for kind, folder in _KINDS.items():
            for key in self._keys.get(kind, ()):
                parts = self._view.known[key].parts
                request = unit_id(self._digest, int(parts["unit"]))
                yield File(key, folder, parts["unit"], int(parts["try"]), request)

    def _attempt_key(self, kind: str, unit: str, n: int) -> str:
        return layout.generation_attempt(*self._where, kind, int(unit), n)

    def _receipt_key(self, unit: int) -> str:
        return layout.generation_receipt(*self._where, unit)

    def _data_key(self, receipt: UnitReceipt) -> str:
        return layout.generation_data(*self._where, receipt.unit, receipt.sha256)


def _name(unit: int) -> str:
    """A unit as it is named in keys."""
    return f"{unit:08d}"
