"""The table that a recipe makes of some rows: in the order asked for, of the types that are kept, judged row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raykit.errors import GateError
from raykit.records import Column
from raykit.shards.bounds import OWN_COLUMNS
from raykit.store.contents import CONTENT_BYTES, is_list, is_text, whole
from raykit.store.parquet import as_stored, columns_of

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]

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


# --- the rows -----------------------------------------------------------------------------------------------


def nonfinite(table: pa.Table) -> Mask:
    """Which rows hold a float that is not finite, at whatever depth. A null is none."""
    bad = np.zeros(table.num_rows, np.bool_)
    for column in table.columns:
        if _has_floats(column.type):
            bad |= _nonfinite(whole(column))
    return bad


def _has_floats(type_: pa.DataType) -> bool:
    if is_list(type_):
        return _has_floats(type_.value_type)
    if pa.types.is_struct(type_):
        return any(_has_floats(field.type) for field in type_)
    return bool(pa.types.is_floating(type_))


def _nonfinite(array: pa.Array) -> Mask:
    bad = np.zeros(len(array), np.bool_)
    if is_list(array.type):
        inner = _nonfinite(array.flatten())
        if inner.any():
            bad[pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[inner]] = True
    elif pa.types.is_struct(array.type):
        for part in array.flatten():
            bad |= _nonfinite(part)
    elif pa.types.is_floating(array.type):
        values = array.fill_null(0.0) if array.null_count else array
        bad = ~np.isfinite(values.to_numpy(zero_copy_only=False))
    return bad


def empty(table: pa.Table) -> Mask:
    """Which rows have a text, bytes or list that is null or of length 0."""
    bad = np.zeros(table.num_rows, np.bool_)
    for column in table.columns:
        array = whole(column)
        if is_text(array.type):
            lengths = pc.binary_length(array)
        elif is_list(array.type):
            lengths = pc.list_value_length(array)
        else:
            continue
        none = array.is_null().to_numpy(zero_copy_only=False)
        bad |= none | (lengths.fill_null(0).to_numpy(zero_copy_only=False) == 0)
    return bad


def flagged(column: pa.ChunkedArray) -> int:
    """How many values of a column of flags are true."""
    return int(pc.sum(column, min_count=0).as_py())


def distinct(hashes: bytes) -> int:
    """How many different contents there are."""
    return len(np.unique(np.frombuffer(hashes, dtype=f"<u{CONTENT_BYTES}")))


def _wrong(what: str, rule: str, *, field: str = "recipe.generate") -> GateError:
    return GateError(f"the recipe's generate() gives {what}", field=field, rule=rule)
