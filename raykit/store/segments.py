"""Segments of the history, read back: digest first, then a parser, then the rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.records import EvaluationRow, MonitorRow, Row, Segment, Series
from raykit.store.base import ObjectStore

AnyRow = Row | EvaluationRow | MonitorRow

ROWS: dict[Series, type[Row] | type[EvaluationRow] | type[MonitorRow]] = {
    "train": Row,
    "development": EvaluationRow,
    "monitor": MonitorRow,
}


def read_segment(store: ObjectStore, segment: Segment) -> list[AnyRow]:
    """All rows of a segment, those that were superseded later included.

    Raises:
        CorruptError: it is missing or changed, or does not hold the rows that the log says.
        StoreUnavailableError: the store did not answer.
    """
    try:
        data = store.get(segment.key, max_bytes=segment.size_bytes)
    except NotFoundError as error:
        raise CorruptError(f"{segment.key} is missing", field=segment.key) from error
    if len(data) != segment.size_bytes or sha256(data) != segment.sha256:
        raise CorruptError(f"{segment.key} does not match its sha256", field=segment.key)
    lines = data.split(b"\n")
    if lines.pop() != b"":
        raise CorruptError(f"{segment.key} does not end with a whole line", field=segment.key)
    kind = ROWS[segment.series]
    rows = [kind.from_bytes(line, f"{segment.key} line {n}") for n, line in enumerate(lines, start=1)]
    wrong = _not_as_named(segment, rows)
    if wrong is not None:
        raise CorruptError(f"{segment.key} {wrong}", field=segment.key)
    return rows


def _not_as_named(segment: Segment, rows: Sequence[AnyRow]) -> str | None:
    updates = [row.update for row in rows]
    if not rows or (updates[0], updates[-1]) != (segment.first, segment.last):
        return f"does not hold updates {segment.first} to {segment.last}"
    if segment.series == "train" and updates != list(range(segment.first, segment.last + 1)):
        return "has a row missing or twice"
    if any(b <= a for a, b in pairwise(updates)):
        return "has rows out of order or twice"
    if any(row.attempt != segment.attempt for row in rows):
        return f"holds a row of another attempt than {segment.attempt}"
    return None
