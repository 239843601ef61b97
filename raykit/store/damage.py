"""Which rows of a table are damaged, at whatever depth: a number that is not finite, a null, a blank, a flag."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raykit.shards.bounds import NOT_IN_FILE
from raykit.store.contents import CONTENT_BYTES, is_list, is_text, own_columns, whole

Mask = NDArray[np.bool_]


def bad_rows(
    table: pa.Table, contents: bytes, bounds: Mapping[str, float], *, rules: int | None
) -> dict[str, int]:
    """By kind that is bounded, and that produced rows show: how many there are, by the rules of their contract."""
    found: dict[str, int] = {}
    for kind in bounds:
        if kind == "duplicates":
            found[kind] = table.num_rows - distinct(contents)
        elif kind == "empty":
            empty = empty_or_null if rules is None else blank
            found[kind] = int(empty(own_columns(table)).sum())
        elif kind == "nulls" and rules is not None:
            found[kind] = int(nulls(own_columns(table)).sum())
        elif kind not in NOT_IN_FILE:
            found[kind] = flagged(table.column(kind))
    return found


# --- numbers ------------------------------------------------------------------------------------------------


def nonfinite(table: pa.Table) -> Mask:
    """Which rows hold a float that is not finite. A null is none."""
    return _any(table, lambda array: _within(array, _is_nonfinite) if _has_floats(array.type) else None)


def _has_floats(type_: pa.DataType) -> bool:
    if is_list(type_):
        return _has_floats(type_.value_type)
    if pa.types.is_struct(type_):
        return any(_has_floats(field.type) for field in type_)
    return bool(pa.types.is_floating(type_))


def _is_nonfinite(array: pa.Array) -> Mask:
    if not pa.types.is_floating(array.type):
        return np.zeros(len(array), np.bool_)
    values = array.fill_null(0.0) if array.null_count else array
    return np.asarray(~np.isfinite(values.to_numpy(zero_copy_only=False)), np.bool_)


# --- what is not there --------------------------------------------------------------------------------------


def nulls(table: pa.Table) -> Mask:
    """Which rows hold a null."""
    return _any(table, lambda array: _within(array, _is_null))


def _is_null(array: pa.Array) -> Mask:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def blank(table: pa.Table) -> Mask:
    """Which rows have a text of nothing but white space, or bytes or a list of length 0. A null is none."""
    return _any(table, _is_blank)


def _is_blank(array: pa.Array) -> Mask | None:
    if pa.types.is_struct(array.type):
        return _together([_is_blank(part) for part in array.flatten()], len(array))
    return _has_no_length(pc.utf8_trim_whitespace(array) if _is_string(array.type) else array)


def _is_string(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def empty_or_null(table: pa.Table) -> Mask:
    """Which rows have a text, bytes or list that is null or of length 0: what was empty under the first rules."""
    return _any(table, lambda array: _has_no_length(array, unless_there=True))


def _has_no_length(array: pa.Array, *, unless_there: bool = False) -> Mask | None:
    """Which values have length 0; of a null, whether what is not there counts. None for what has no length."""
    if is_text(array.type):
        lengths = pc.binary_length(array)
    elif is_list(array.type):
        lengths = pc.list_value_length(array)
    else:
        return None
    none = array.is_null().to_numpy(zero_copy_only=False)
    zero = lengths.fill_null(0).to_numpy(zero_copy_only=False) == 0
    return np.asarray(zero if unless_there else zero & ~none, np.bool_)


# --- flags, and rows that are equal -------------------------------------------------------------------------


def flagged(column: pa.ChunkedArray) -> int:
    """How many values of a column of flags are true."""
    return int(pc.sum(column, min_count=0).as_py())


def unsaid(table: pa.Table, flags: frozenset[str]) -> Mask:
    """Which rows have a null in a column of flags: nobody knows whether they are bad."""
    named = [name for name in table.column_names if name in flags and pa.types.is_boolean(table[name].type)]
    return _any(table.select(named), _is_null) if named else np.zeros(table.num_rows, np.bool_)


def distinct(hashes: bytes) -> int:
    """How many different contents there are."""
    return len(np.unique(np.frombuffer(hashes, dtype=f"<u{CONTENT_BYTES}")))


# --- at whatever depth --------------------------------------------------------------------------------------


def _any(table: pa.Table, of: Callable[[pa.Array], Mask | None]) -> Mask:
    """Which rows are bad in some column."""
    return _together([of(whole(column)) for column in table.columns], table.num_rows)


def _together(masks: list[Mask | None], rows: int) -> Mask:
    bad = np.zeros(rows, np.bool_)
    for mask in masks:
        if mask is not None:
            bad |= mask
    return bad


def _within(array: pa.Array, of: Callable[[pa.Array], Mask]) -> Mask:
    """Which values are bad, or hold one that is."""
    bad = of(array)
    if is_list(array.type):
        inner = _within(array.flatten(), of)
        if inner.any():
            bad = bad.copy()
            bad[pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[inner]] = True
    elif pa.types.is_struct(array.type):
        bad = _together([bad, *(_within(part, of) for part in array.flatten())], len(array))
    return bad
