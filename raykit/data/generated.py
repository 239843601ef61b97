"""A synthetic set as data to train on: any map-style loader takes it, torch's among them; torch itself is not needed.

    rows = raykit.generated("./store", "digits-vae/digits", manifest="6c1e52ab90f3")
    rows[0]["image"]            # lists are arrays, scalars are numpy's, text is text
    rows.table                  # all of it as Arrow

A set is opened by the digest of its manifest, so that whoever trains on it says which rows. It is read unit by unit,
each only once its sha256 was compared; what was read stays in memory as far as it fits.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raykit.data.sets import ClosedSet, closed_set
from raykit.shards.bounds import OWN_COLUMNS
from raykit.shards.population import Facts, population
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.parquet import schema_of

MEMORY_MB = 512.0
"""What was read of a set stays in memory up to this: a small set is read once."""

BYTES_PER_MB = 1_000_000


def generated(
    root: str | ObjectStore,
    name: str,
    *,
    manifest: str | None = None,
    despite: str | None = None,
    memory_mb: float = MEMORY_MB,
) -> GeneratedSet:
    """Open the synthetic set `EXPERIMENT/SET` of a store.

    `manifest` is the digest of its manifest, or the beginning of it; without one, the newest set of that name is meant,
    which may be another one tomorrow. `despite` says why a set with findings is used all the same.

    Raises:
        UnusableRootError: `root` is neither a path nor an S3 URL.
        NotFoundError: there is no such set.
        InvalidInput: the experiment has several sets, or `manifest` is no beginning of a digest.
        GateError: the set is not complete, it is another one than `manifest` says, or it has findings and `despite`
            does not say why it is used.
        CorruptError: what the store has of it is damaged.
        StoreUnavailableError: the store did not answer.
    """
    store = open_store(root) if isinstance(root, str) else root
    return GeneratedSet(closed_set(store, name, manifest=manifest, despite=despite), memory_mb=memory_mb)


class GeneratedSet:
    """The produced rows of a closed set, in their order, as a map-style dataset of mappings of columns."""

    deterministic = True
    """`__getitem__` draws nothing at random."""

    def __init__(self, of: ClosedSet, *, memory_mb: float = MEMORY_MB) -> None:
        self.set = of
        self._ends = np.cumsum(np.array(of.manifest.units.produced, dtype=np.int64))
        self._kept = _Kept(self._read, memory_mb)

    def __len__(self) -> int:
        return self.set.manifest.rows.produced

    def __repr__(self) -> str:
        scripted = ", scripted" if self.scripted else ""
        return f"<{self.set.name}: {len(self):,} rows, manifest {self.manifest[:12]}{scripted}>"

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row.

        Raises:
            IndexError: there is no such row.
            CorruptError: its unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        unit, at = self._place(index)
        return {name: column[at] for name, column in self._kept.get(unit).columns.items()}

    def content(self, index: int) -> dict[str, Any]:
        """What a model is shown of a row: all columns but raykit's own. Rows that are equal have equal content.

        Raises:
            IndexError: there is no such row.
            CorruptError: its unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        return {name: value for name, value in self[index].items() if name not in OWN_COLUMNS}

    @property
    def ids(self) -> list[str]:
        """One for each row: its input's id, with the number of the sample where an input has several; `row-00000012`
        where there are no inputs.

        Raises:
            CorruptError: a unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        return [id for each in self._parts() for id in self._ids(each)]

    @property
    def groups(self) -> list[str] | None:
        """The input that each row was made from: rows of one input belong on one side of a split. None without inputs.

        Raises:
            CorruptError: a unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        if self.set.contract.inputs is None:
            return None
        return [str(id) for each in self._parts() for id in each["id"].to_pylist()]

    @property
    def table(self) -> pa.Table:
        """All rows.

        Raises:
            CorruptError: a unit is missing or damaged.
            StoreUnavailableError: the store did not answer.
        """
        parts = list(self._parts())
        return pa.concat_tables(parts) if parts else schema_of(self.set.contract.columns).empty_table()

    @property
    def manifest(self) -> str:
        """The digest of the set's manifest."""
        return self.set.digest

    @property
    def scripted(self) -> bool:
        """Only a script has approved what made it: nothing that is trained on it alone belongs into production."""
        return self.set.manifest.scripted

    @property
    def population(self) -> Facts:
        """How the rows were made, name by name: part of what the population is that they stand for."""
        return population(self.set.contract, self.set.said)

    def __getstate__(self) -> dict[str, Any]:
        return {"of": self.set, "memory_mb": self._kept.most_bytes / BYTES_PER_MB}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["of"], memory_mb=state["memory_mb"])  # type: ignore[misc]

    # --- inside ---------------------------------------------------------------------------------------------

    def _place(self, index: int) -> tuple[int, int]:
        """The unit of a row, and its place in that."""
        rows = len(self)
        at = index + rows if index < 0 else index
        if not 0 <= at < rows:
            raise IndexError(f"row {index} of {rows}")
        unit = int(np.searchsorted(self._ends, at, side="right"))
        return unit, at - int(self._ends[unit - 1] if unit else 0)

    def _read(self, unit: int) -> _Unit:
        table = self.set.table(unit)
        chunks = {name: table.column(name).combine_chunks() for name in table.column_names}
        columns = {name: values_of(each) for name, each in chunks.items()}
        return _Unit(table=table, columns=columns)

    def _parts(self) -> Iterator[pa.Table]:
        """The rows of one unit after the other; units without any are left out."""
        produced = self.set.manifest.units.produced
        return (self._kept.get(unit).table for unit, rows in enumerate(produced) if rows)

    def _ids(self, part: pa.Table) -> Iterator[str]:
        if self.set.contract.inputs is None:
            return (f"row-{row:08d}" for row in part["row"].to_pylist())
        ids = part["id"].to_pylist()
        if self.set.contract.samples == 1:
            return (str(id) for id in ids)
        samples = part["sample"].to_pylist()
        return (f"{id}#{sample}" for id, sample in zip(ids, samples, strict=True))


# --- what was read ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """The rows of one unit, as a table and column by column."""

    table: pa.Table
    columns: Mapping[str, Values]


class _Kept:
    """Units that were read, those that were used last, as far as they fit; always at least the newest."""

    def __init__(self, read: Callable[[int], _Unit], memory_mb: float) -> None:
        self.most_bytes = memory_mb * BYTES_PER_MB
        self._read = read
        self._units: OrderedDict[int, _Unit] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    def get(self, number: int) -> _Unit:
        with self._lock:
            unit = self._units.get(number)
            if unit is None:
                unit = self._units[number] = self._read(number)
                self._size_bytes += unit.table.nbytes
                while self._size_bytes > self.most_bytes and len(self._units) > 1:
                    _, gone = self._units.popitem(last=False)
                    self._size_bytes -= gone.table.nbytes
            self._units.move_to_end(number)
            return unit


# --- values -------------------------------------------------------------------------------------------------


Values = Sequence[Any] | NDArray[Any]
"""Of one column, by row."""


def values_of(array: pa.Array) -> Values:
    """The values of a column, by row: numpy's scalars, arrays for lists of numbers, Python's own for everything else.

    What is handed out is the caller's: writing to it changes nothing here.
    """
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _Lists(values_of(array.values), array.offsets.to_numpy(), null)
    if not _is_number(array.type):
        others: list[Any] = array.to_pylist()
        return others
    zero = False if pa.types.is_boolean(array.type) else 0
    filled = array if null is None else array.fill_null(zero)
    numbers: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return numbers if null is None else [None if n else x for x, n in zip(numbers, null, strict=True)]


def _is_number(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(is_one(type_) for is_one in kinds)


class _Lists(Sequence[Any]):
    """Lists, each with a length of its own. Those of numbers are arrays, as are lists of arrays of one shape."""

    def __init__(
        self, values: Values, offsets: NDArray[np.integer[Any]], null: NDArray[np.bool_] | None
    ) -> None:
        self._values = values
        self._offsets = offsets
        self._null = null

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, at: Any) -> Any:
        if self._null is not None and self._null[at]:
            return None
        first, end = int(self._offsets[at]), int(self._offsets[at + 1])
        if isinstance(self._values, np.ndarray):
            return self._values[first:end].copy()
        parts = [self._values[n] for n in range(first, end)]
        shapes = {part.shape if isinstance(part, np.ndarray) else None for part in parts}
        return np.stack(parts) if len(shapes) == 1 and None not in shapes else parts
