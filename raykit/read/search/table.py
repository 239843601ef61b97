"""The table of trials as an Arrow table: one row each, a column for every parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = (
    "row",
    "rank",
    "repeats",
    "seed",
    "update",
    "at",
    "cost",
    "so_far",
    "accelerator_ms",
    "held_ms",
    "attempts",
)
_FLOATS = ("value", "begun_at", "ended_at", "heard_at")
PARAMS = "params"


def arrow_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as a table; a parameter is the column `params.<name>`, null where a row has not drawn it yet."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in (row[PARAMS] or {}))
    own = [name for name in (rows[0] if rows else {}) if name != PARAMS]
    columns = {name: pa.array([row[name] for row in rows], _type(name)) for name in own}
    for name in names:
        columns[f"{PARAMS}.{name}"] = _values([(row[PARAMS] or {}).get(name) for row in rows])
    return pa.table(columns)


def _values(values: Sequence[Any]) -> pa.Array:
    """A parameter's column: as its values are, or as JSON where they are of several types."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


def _type(name: str) -> pa.DataType:
    import pyarrow as pa

    if name in _INTEGERS:
        return pa.int64()
    return pa.float64() if name in _FLOATS else pa.string()
