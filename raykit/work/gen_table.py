"""The table that a recipe makes of some rows: in the order asked for, of the types that are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raykit.errors import GateError
from raykit.records import Column
from raykit.shards.bounds import OWN_COLUMNS
from raykit.store.contents import is_list, is_text
from raykit.store.parquet import as_stored, columns_of

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

INDEX = re.compile(r"__index_level_\d+__")
"""What pandas calls an index that has no name."""

KEPT = "numbers, booleans, text, bytes, dates and times, and lists and structs of those"


# --- the order ----------------------------------------------------------------------------------------------


def in_order(given: Any, rows: Rows) -> tuple[pa.Table, Mask]:
    """The recipe's own columns in the order of `rows`, and which of those are there.

    Raises:
        GateError: it is no table, has another number of rows, rows that nobody asked for, or a row twice; or columns
            whose names are raykit's.
    """
    if not isinstance(given, pa.Table):
        raise _wrong(f"a {type(given).__name__}", "a pyarrow Table")
    _require_names(given)
    if "row" not in given.column_names:
        if given.num_rows != len(rows):
            raise _wrong(
                f"{given.num_rows} rows where {len(rows)} were asked for",
                "as many rows as asked, in the same order; or a column `row` that says which ones",
            )
        return given, np.ones(len(rows), np.bool_)
    places = _places(given.column("row"), rows)
    order = np.argsort(places, kind="stable")
    there = np.zeros(len(rows), np.bool_)
    there[places] = True
    own = given.drop_columns(["row"])
    return (own if (order == np.arange(len(order))).all() else own.take(pa.array(order))), there


def _require_names(given: pa.Table) -> None:
    names = given.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(f"two columns {twice!r}", "each column once")
    taken = next((name for name in names if name in OWN_COLUMNS and name != "row"), None)
    if taken is not None:
        raise _wrong(f"a column {taken!r}, which raykit adds", "any other name")


def refuse_index(given: pa.Table) -> None:
    """Let only a table pass without the index of a frame that it was made from: nobody has asked for that column.

    Raises:
        GateError: pandas has left one; the message names it.
    """
    left = [name for name in _indices(given.schema) if name in given.column_names]
    if left:
        raise _wrong(
            f"a column {left[0]!r}, the index of a pandas frame",
            "the columns of the rows alone",
            remedy="pa.Table.from_pandas(frame, preserve_index=False); an index that is data: frame.reset_index()",
        )


def _indices(schema: pa.Schema) -> Iterator[str]:
    """The columns that pandas names as an index, by name, and as it notes them beside the schema."""
    yield from (name for name in schema.names if INDEX.fullmatch(name))
    try:
        noted = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):  # somebody else's note
        return
    yield from (name for name in noted if isinstance(name, str))


def _places(column: pa.ChunkedArray, rows: Rows) -> Rows:
    """For each row of the table, its place among those that were asked for."""
    if not pa.types.is_integer(column.type) or column.null_count:
        raise _wrong(f"a column `row` of type {column.type}", "the numbers of the rows, as integers")
    found = column.to_numpy().astype(np.int64)
    places = np.searchsorted(rows, found)
    foreign = found[rows[np.minimum(places, len(rows) - 1)] != found]
    if foreign.size:
        raise _wrong(f"row {foreign[0]}", f"the rows that were asked for: {rows[0]} to {rows[-1]}")
    if len(np.unique(found)) != len(found):
        values, counts = np.unique(found, return_counts=True)
        raise _wrong(f"row {values[counts > 1][0]} twice", "each row at most once")
    return np.asarray(places, dtype=np.int64)


# --- the types ----------------------------------------------------------------------------------------------


def kept_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns as a reader of the Parquet file meets them.

    Raises:
        GateError: there are none, or one of a type that no file keeps as it is.
    """
    if OWN_COLUMNS.issuperset(schema.names):
        raise _wrong("no column", "at least one column beside `row`")
    for field in schema:
        if not _is_kept(field.type):
            raise _wrong(f"the column {field.name} as {field.type}", KEPT)
    return columns_of(as_stored(schema))


def _is_kept(type_: pa.DataType) -> bool:
    if is_list(type_):
        return _is_kept(type_.value_type)
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(_is_kept(field.type) for field in type_)
    types = pa.types
    plain = types.is_primitive(type_) and not (types.is_interval(type_) or types.is_duration(type_))
    return plain or bool(types.is_decimal(type_)) or is_text(type_)


def require_columns(found: Sequence[Column], wanted: Sequence[Column]) -> None:
    """Let only a table pass that has the columns of the contract, in their order.

    Raises:
        GateError: a column differs; the message names it.
    """
    if tuple(found) == tuple(wanted):
        return
    is_, was = ([f"{column.name}: {column.type}" for column in columns] for columns in (found, wanted))
    differs = next((a for a, b in zip(is_, was, strict=False) if a != b), None)
    extra = [name for name in is_ if name not in was]
    missing = [name for name in was if name not in is_]
    what = f"{differs} in another place" if differs is not None else "other columns"
    if missing:
        what = f"no column {missing[0]}"
    if extra:
        what = f"a column {extra[0]}" + (f", and none {missing[0]}" if missing else "")
    raise _wrong(what, ", ".join(was), field="columns")


def _wrong(what: str, rule: str, *, field: str = "recipe.generate", remedy: str | None = None) -> GateError:
    return GateError(f"the recipe's generate() gives {what}", field=field, rule=rule, remedy=remedy)
