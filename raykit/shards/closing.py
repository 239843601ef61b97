"""The accounts of a set: what its receipts add up to, and the manifest that closes it. Counts are exact.

A set is closed once, when every requested row is accounted for: produced, filtered or failed. Nothing adds a row to a
closed set: one that fell short stays so, and says by how much.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np

from raykit.errors import CorruptError, GateError
from raykit.records import GenerationContract, Rows, SetManifest, SetUnits, UnitReceipt
from raykit.shards.bounds import findings_of, found_in
from raykit.shards.spans import shown
from raykit.shards.units import unit_of, units_of

CONTENT_BYTES = 8
"""Of the digest of each row's content, in a receipt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What the receipts that are there add up to."""

    units: int
    rows: Rows
    filtered: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """By kind that the contract bounds, and duplicates wherever they are known: rows of all these units."""
    size_bytes: int = 0
    given_up: int = 0
    """Units whose rows a person has let count as failed."""
    reused: int = 0
    """Units that were made under an earlier contract."""


class Account:
    """The running account of one contract: receipts in any order, each unit once."""

    def __init__(self, contract: GenerationContract) -> None:
        self.contract = contract
        self.units = units_of(contract)
        self._digest = contract.digest
        self._seen = np.zeros(self.units, dtype=bool)
        self._sums: Counter[str] = Counter()
        self._filtered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._contents: list[bytes] = []
        self._untold = 0
        """Produced rows whose contents no receipt tells."""

    def add(self, receipt: UnitReceipt) -> None:
        """Count one receipt.

        Raises:
            GateError: it is of another contract, of a unit that is counted already or that the set does not have, or of
                another number of rows.
            CorruptError: its contents are not those of the rows that it counts.
        """
        self._require_own(receipt)
        contents = contents_of(receipt)
        self._seen[receipt.unit] = True
        rows = receipt.rows
        self._sums.update(
            units=1,
            requested=rows.requested,
            produced=rows.produced,
            filtered=rows.filtered,
            failed=rows.failed,
            size_bytes=receipt.size_bytes,
            given_up=receipt.given_up is not None,
            reused=receipt.reused is not None,
        )
        self._filtered.update(receipt.filtered)
        self._failed.update(receipt.failed)
        self._counts.update(receipt.counts)
        if contents:
            self._contents.append(contents)
        else:
            self._untold += rows.produced

    def _require_own(self, receipt: UnitReceipt) -> None:
        what, wrong = f"the receipt of unit {receipt.unit:,} of {self._name}", None
        if receipt.contract != self._digest:
            wrong = f"is of contract {receipt.contract[:12]}, not {self._digest[:12]}"
        elif receipt.unit >= self.units:
            wrong = f"is of none of its {self.units:,} units"
        elif self._seen[receipt.unit]:
            wrong = "is not the first one of that unit"
        elif receipt.rows.requested != (rows := unit_of(self.contract, receipt.unit).rows):
            wrong = f"accounts for {receipt.rows.requested:,} rows, and the unit has {rows:,}"
        if wrong is not None:
            raise GateError(
                f"{what} {wrong}", field="units", value=receipt.unit, rule="one receipt for each unit"
            )

    def tally(self) -> Tally:
        """All that was added, together. Duplicates are those among all of it, each row that equals an earlier one."""
        sums = self._sums
        rows = Rows(
            requested=sums["requested"],
            produced=sums["produced"],
            filtered=sums["filtered"],
            failed=sums["failed"],
        )
        return Tally(
            units=sums["units"],
            rows=rows,
            filtered=dict(sorted(self._filtered.items())),
            failed=dict(sorted(self._failed.items())),
            counts=self._bounded(rows),
            size_bytes=sums["size_bytes"],
            given_up=sums["given_up"],
            reused=sums["reused"],
        )

    def _bounded(self, rows: Rows) -> dict[str, int]:
        kinds = set(self.contract.bounds) - {"duplicates"}
        found = {kind: found_in(kind, rows, self._failed, self._counts)[0] for kind in kinds}
        if not self._untold:
            found["duplicates"] = duplicates(self._contents)
        elif "duplicates" in self.contract.bounds:
            found["duplicates"] = self._counts["duplicates"]  # as far as the units themselves show them
        return dict(sorted(found.items()))

    @property
    def missing(self) -> np.ndarray:
        """The numbers of the units that have no receipt."""
        return np.flatnonzero(~self._seen)

    @property
    def _name(self) -> str:
        return f"{self.contract.experiment}/{self.contract.name}"

    def require_all(self) -> None:
        """Let only a set be closed whose every requested row is accounted for.

        Raises:
            GateError: some are not; the message says how many, and of which units.
        """
        missing = self.missing
        if not missing.size:
            return
        rows = self.contract.rows - self._sums["requested"]
        raise GateError(
            f"{rows:,} of {self.contract.rows:,} rows of {self._name} are not accounted for: "
            f"{shown(missing)} of {self.units:,}",
            field="units",
            value=int(missing.size),
            rule="every requested row produced, filtered or failed, by one receipt for each unit",
            remedy="raykit generate PLAN",
        )


def contents_of(receipt: UnitReceipt) -> bytes:
    """Eight bytes for each produced row; none if the receipt does not tell them.

    Raises:
        CorruptError: they are not those of the rows that it counts.
    """
    try:
        contents = base64.b64decode(receipt.contents, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptError(
            f"the contents of unit {receipt.unit:,} are not base 64", field="contents"
        ) from error
    if contents and len(contents) != CONTENT_BYTES * receipt.rows.produced:
        raise CorruptError(
            f"unit {receipt.unit:,} tells the contents of {len(contents) / CONTENT_BYTES:g} rows, "
            f"and counts {receipt.rows.produced:,}",
            field="contents",
        )
    return contents


def duplicates(contents: Iterable[bytes]) -> int:
    """How many rows equal an earlier one, from eight bytes of each row's content."""
    rows = np.sort(np.frombuffer(b"".join(contents), dtype="<u8"))
    return int(np.count_nonzero(rows[1:] == rows[:-1]))


# --- closing ------------------------------------------------------------------------------------------------


def close(contract: GenerationContract, receipts: Iterable[UnitReceipt], *, scripted: bool) -> SetManifest:
    """The manifest of a set that is complete. The same receipts, in any order, always give the same bytes.

    Raises:
        GateError: a unit has no receipt, or more than one; or a receipt is of something else.
        CorruptError: the contents that a receipt tells are not those of the rows that it counts.
    """
    account = Account(contract)
    digests, files = [""] * account.units, [""] * account.units
    sizes, produced = [0] * account.units, [0] * account.units
    for receipt in receipts:
        account.add(receipt)
        digests[receipt.unit], files[receipt.unit] = receipt.digest, receipt.sha256
        sizes[receipt.unit], produced[receipt.unit] = receipt.size_bytes, receipt.rows.produced
    account.require_all()
    found = account.tally()
    return SetManifest(
        experiment=contract.experiment,
        name=contract.name,
        contract=contract.digest,
        teacher=contract.teacher,
        rows=found.rows,
        filtered=found.filtered,
        failed=found.failed,
        counts=found.counts,
        findings=findings_of(contract.bounds, found.rows, found.failed, found.counts),
        columns=contract.columns,
        scripted=scripted,
        size_bytes=found.size_bytes,
        units=SetUnits(
            receipts=tuple(digests), sha256=tuple(files), size_bytes=tuple(sizes), produced=tuple(produced)
        ),
    )


# --- in words -----------------------------------------------------------------------------------------------


def percent(part: int, of: int) -> str:
    """`4.2 %`; what would round to nothing keeps three digits: `0.00445 %`. Only nothing is `0 %`, only all `100 %`."""
    if not of or not part:
        return "0 %"
    if part == of:
        return "100 %"
    share = Decimal(100 * part) / Decimal(of)
    rest = min(share, 100 - share)
    if rest >= Decimal("0.1"):
        return f"{share:.1f} %"
    return f"{share:.{2 - rest.adjusted()}f}".rstrip("0") + " %"


def shortfall(rows: Rows) -> str:
    """`445 of 10,000,000 rows fell short (0.00445 %)`: how many of those that were requested were not produced."""
    short = rows.requested - rows.produced
    if not short:
        return f"all {rows.requested:,} rows were produced"
    many = f"{short:,} of {rows.requested:,} row{'' if rows.requested == 1 else 's'}"
    return f"{many} fell short ({percent(short, rows.requested)})"
