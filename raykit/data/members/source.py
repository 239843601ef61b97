"""What is in a dataset, as one row of identity per item.

Three keys are kept apart (DATA-13): `id` names the observation, `sha256` is what the model is shown, `group`
is the entity whose rows must stay together. None of them is derived from another unless a policy says so.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from raykit.errors import PlanError, RaykitError
from raykit.ids import DIGEST

COLUMNS = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("group", pa.string(), nullable=True),
        pa.field("stratum", pa.string(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
    ]
)
ONE_STRATUM = "all"
"""The stratum of every row of a dataset that names none."""


@dataclass(frozen=True, slots=True)
class Source:
    """A described dataset. `table` has `COLUMNS`, in dataset order; `group` is null where it names none."""

    table: pa.Table

    @property
    def rows(self) -> int:
        """How many items the dataset has, exactly."""
        return int(self.table.num_rows)


def describe(
    rows: int,
    ids: Iterable[object] | None,
    groups: Iterable[object] | None,
    strata: Iterable[object] | None,
    content: Callable[[int], str],
) -> Source:
    """Describe a dataset of `rows` items; `content(index)` is the sha256 of one (`content_digest`).

    Without `ids` an item's id is its index; then a reordered dataset is another dataset.

    Raises:
        PlanError: no rows, a column of another length, an id that is there twice, a value that names nothing, or a
            row that cannot be read.
    """
    names = names_of(rows, ids)
    columns = [
        np.arange(rows, dtype=np.int64),
        names,
        [None] * rows if groups is None else _texts("groups", groups, rows),
        [ONE_STRATUM] * rows if strata is None else _texts("strata", strata, rows),
        [_read(content, index, name) for index, name in enumerate(names)],
    ]
    return Source(pa.table(columns, schema=COLUMNS))


def names_of(rows: int, ids: Iterable[object] | None) -> list[str]:
    """The id of each of `rows` items.

    Raises:
        PlanError: no rows, ids of another number, one that is there twice, or a value that names nothing.
    """
    if rows < 1:
        raise PlanError("the dataset is empty", field="dataset", value=rows, rule="at least one row")
    names = [str(index) for index in range(rows)] if ids is None else _texts("ids", ids, rows)
    _refuse_duplicates(names)
    return names


def families(links: Iterable[Sequence[str]]) -> list[str]:
    """A group per row, for rows that name several entities each: rows that share one, directly or through
    other rows, are one family. It is named by the smallest entity in it.

    Raises:
        PlanError: a row names no entity.
    """
    parent: dict[str, str] = {}

    def root(entity: str) -> str:
        while (above := parent.setdefault(entity, entity)) != entity:
            parent[entity] = parent[above]
            entity = above
        return entity

    rows = [list(entities) for entities in links]
    for row, entities in enumerate(rows):
        if not entities:
            raise _unusable("groups", row, None)
        for entity in entities[1:]:
            low, high = sorted((root(entities[0]), root(entity)))
            parent[high] = low
    return [root(entities[0]) for entities in rows]


def _texts(column: str, values: Iterable[object], rows: int) -> list[str]:
    plain = _plain(values)
    if len(plain) != rows:
        raise PlanError(
            f"the dataset has {rows} rows but {len(plain)} {column}",
            field=f"dataset.{column}",
            value=len(plain),
            rule=f"one of the {column} per row",
        )
    return [_text(column, row, value) for row, value in enumerate(plain)]


def _plain(values: Any) -> list[Any]:
    for method in ("tolist", "to_pylist"):  # arrays, tensors and series; Arrow columns
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def _text(column: str, row: int, value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, str | int) or value == "":
        raise _unusable(column, row, value)
    try:
        str(value).encode()
    except UnicodeEncodeError as error:  # file names that are not UTF-8 come in as lone surrogates
        raise _unusable(column, row, value) from error
    return str(value)


def _unusable(column: str, row: int, value: object) -> PlanError:
    return PlanError(
        f"row {row} has {value!r} in {column}",
        field=f"dataset.{column}",
        value=value,
        rule="text that is not empty, or a whole number",
        remedy="name the row's own; a row whose group is not known is a group of its own",
    )


def _refuse_duplicates(ids: list[str]) -> None:
    twice = [name for name, times in Counter(ids).items() if times > 1]
    if twice:
        where = "; ".join(f"{name!r} at rows {_rows_of(name, ids)}" for name in twice[:3])
        raise PlanError(
            f"{len(twice)} ids are there more than once: {where}",
            field="dataset.ids",
            value=twice[:3],
            rule="each row has an id of its own",
            remedy="rows that repeat an observation keep one id each; give them one group instead",
        )


def _rows_of(name: str, ids: list[str]) -> str:
    rows = [str(row) for row, other in enumerate(ids) if other == name]
    return " and ".join(rows[:3]) + (" and more" if len(rows) > 3 else "")


def _read(content: Callable[[int], str], index: int, name: str) -> str:
    """The content of one row; what it raises is told with its name.

    What may pass by itself goes through as it is: a disk, a network.
    """
    try:
        return _digest(content(index), index)
    except PlanError as error:
        if error.field == "dataset":
            error.message = f"row {index} ({name!r}): {error.message}"
        raise
    except (RaykitError, MemoryError, ConnectionError, TimeoutError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise PlanError(
            f"row {index} ({name!r}) cannot be read: {type(error).__name__}: {str(error)[:300]}",
            field="dataset",
            value=name,
            rule=f"see {Path(frame.filename).name}, line {frame.lineno}: {frame.line or ''}".strip(),
            remedy="mend the row, or leave it out of the data",
        ) from error


def _digest(value: object, index: int) -> str:
    if not isinstance(value, str) or not DIGEST.fullmatch(value):
        raise PlanError(
            f"the content of row {index} is {value!r}",
            field="dataset.content",
            value=value,
            rule="a sha256 as 64 lower-case hexadecimal digits",
            remedy="wrap it: raykit.data.content.content_digest(...)",
        )
    return value
