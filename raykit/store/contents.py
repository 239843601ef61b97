"""What the rows of a table hold, in eight bytes each: what makes a row of a synthetic set equal to another one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from raykit.shards.bounds import OWN_COLUMNS

CONTENT_BYTES = 8
"""Of the sha256 of a row's content."""


def own_columns(table: pa.Table) -> pa.Table:
    """The recipe's own columns: what makes a row equal to another one."""
    return table.drop_columns([name for name in table.column_names if name in OWN_COLUMNS])


def contents_of(table: pa.Table) -> bytes:
    """Eight bytes for each row: equal exactly for rows with equal values, in whatever unit they are."""
    pieces = [list(_pieces(whole(column))) for column in table.columns]
    return b"".join(
        hashlib.sha256(b"".join(parts)).digest()[:CONTENT_BYTES] for parts in zip(*pieces, strict=True)
    )


def _pieces(array: pa.Array) -> Iterator[bytes]:
    """Each value as bytes that no other value, and no run of other values, has. They depend on that value alone: not on
    whether others of its column are null."""
    if is_list(array.type) and _is_number(array.type.value_type):
        yield from _runs(array)
    elif _is_number(array.type):
        raw, width, there = _raw(array)
        for at, is_there in enumerate(there):
            yield b"\1" + raw[at * width : (at + 1) * width] if is_there else b"\0"
    elif is_text(array.type):
        for value in array.to_pylist():
            data = value.encode() if isinstance(value, str) else value
            yield b"\0" if data is None else b"\1" + len(data).to_bytes(8, "little") + data
    else:
        for value in array.to_pylist():
            data = repr(value).encode()
            yield b"\2" + len(data).to_bytes(8, "little") + data


def _runs(array: pa.Array) -> Iterator[bytes]:
    """The lists of numbers, each with its length in front; if it holds nulls, which of its values are not is behind."""
    raw, width, there = _raw(array.flatten())
    at = 0
    for length in pc.list_value_length(array).to_pylist():
        end = at + (length or 0)
        mark, holes = (b"\3", there[at:end]) if 0 in there[at:end] else (b"\1", b"")
        values = raw[at * width : end * width]
        yield b"\0" if length is None else mark + length.to_bytes(8, "little") + values + holes
        at = end


def _raw(array: pa.Array) -> tuple[bytes, int, bytes]:
    """The values of numbers one after the other, how many bytes each has, and a byte for each that says whether it is
    there; zero has no sign."""
    there = array.is_valid().to_numpy(zero_copy_only=False).tobytes()
    nothing = pa.scalar(False if pa.types.is_boolean(array.type) else 0, array.type)
    filled = array.fill_null(nothing) if array.null_count else array
    values = filled.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = values + values.dtype.type(0)
    return values.tobytes(), values.dtype.itemsize, there


def is_list(type_: pa.DataType) -> bool:
    """Whether each value is a list."""
    types = pa.types
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def is_text(type_: pa.DataType) -> bool:
    """Whether each value is text or bytes."""
    types = pa.types
    text = types.is_string(type_) or types.is_large_string(type_)
    return bool(text or types.is_binary(type_) or types.is_large_binary(type_))


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column
