"""How far a synthetic set is, told quickly: a listing, and a table of what the receipts say.

The table is derived. It holds what receipts said when it was written and saves reading them; it is never believed over
the listing: a unit counts if its receipt is there, and then as its receipt says. One that is damaged, or of another
contract, is as good as none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.records import Column, Rows, UnitReceipt
from raykit.shards.spans import Numbers
from raykit.store import layout
from raykit.store.generation import Shards

COLUMNS = ("unit", "produced", "filtered", "failed", "size_bytes")

SEAL = "seal"
"""In every row the same: the digest of all of it, and of the contract."""

STORED = (*(Column(name=name, type="int64") for name in COLUMNS), Column(name=SEAL, type="string"))

Accounts = NDArray[np.int64]
"""A row for each published unit, in order, with `COLUMNS`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Progress:
    """What is published of a set. Only rows that are persisted count."""

    accounts: Accounts

    @property
    def units(self) -> Numbers:
        """The units that are published, in order."""
        return self.accounts[:, 0]

    @property
    def rows(self) -> Rows:
        """Of these units."""
        _, produced, filtered, failed, _ = (int(total) for total in self.accounts.sum(axis=0))
        return Rows(
            requested=produced + filtered + failed, produced=produced, filtered=filtered, failed=failed
        )

    @property
    def size_bytes(self) -> int:
        """Of their files."""
        return int(self.accounts[:, 4].sum())


def read_progress(shards: Shards, published: Numbers | None = None) -> Progress:
    """What is published now: reads a listing, the snapshot, and the receipts that are not in it.

    `published` are the units that a listing has shown just now: it is then not made again.

    Raises:
        CorruptError: a receipt is damaged, or of another unit.
        StoreUnavailableError: the store did not answer.
    """
    return extended(shards, _snapshot(shards), published)


def extended(shards: Shards, before: Progress, published: Numbers | None = None) -> Progress:
    """The same some time later: reads a listing, if none is given, and the receipts that are new.

    Raises:
        CorruptError: a receipt is damaged, or of another unit.
        StoreUnavailableError: the store did not answer.
    """
    published = shards.published() if published is None else published
    kept = before.accounts[np.isin(before.units, published)]
    new = np.setdiff1d(published, kept[:, 0], assume_unique=True)
    accounts = np.concatenate([kept, _accounts(shards.receipts(new))])
    return Progress(accounts=accounts[np.argsort(accounts[:, 0])])


def write_snapshot(shards: Shards, progress: Progress) -> None:
    """Keep what was read, for whoever reads next.

    Raises:
        StoreUnavailableError: the store did not take it.
    """
    import pyarrow as pa

    from raykit.store.parquet import parquet_bytes

    table = pa.table({name: progress.accounts[:, at] for at, name in enumerate(COLUMNS)})
    seal = pa.repeat(_seal(shards, progress.accounts), table.num_rows)
    shards.store.put_derived(_key(shards), parquet_bytes(table.append_column(SEAL, seal)))


def _seal(shards: Shards, accounts: Accounts) -> str:
    """Says of which contract the table is, and that it is as it was written."""
    return sha256(shards.digest.encode() + np.ascontiguousarray(accounts, dtype="<i8").tobytes())


def _snapshot(shards: Shards) -> Progress:
    """The snapshot, if it is there and whole; else as if nothing were published."""
    try:
        data = shards.store.get(_key(shards))
        return _believed(shards, data)
    except (NotFoundError, CorruptError):
        return Progress(accounts=_accounts([]))


def _believed(shards: Shards, data: bytes) -> Progress:
    # Here, because a set that has no snapshot yet has no need of pyarrow.
    from raykit.store.parquet import columns_of, read_parquet

    table = read_parquet(data, "the snapshot")
    if columns_of(table.schema) != STORED:
        raise CorruptError("the snapshot has other columns")
    accounts = np.stack([np.asarray(table.column(name)) for name in COLUMNS], axis=1)
    if table.column(SEAL).unique().to_pylist() != [_seal(shards, accounts)]:
        raise CorruptError("the snapshot is of other receipts")
    return Progress(accounts=accounts)


def _key(shards: Shards) -> str:
    contract = shards.contract
    return layout.generation_snapshot(contract.experiment, contract.name, shards.digest)


def _accounts(receipts: Iterable[UnitReceipt]) -> Accounts:
    rows = [
        (each.unit, each.rows.produced, each.rows.filtered, each.rows.failed, each.size_bytes)
        for each in receipts
    ]
    return np.array(rows, dtype=np.int64).reshape(-1, len(COLUMNS))
