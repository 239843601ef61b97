"""What is seen of rows as they are read before a launch: values that are no numbers, and rows that do not go together.

A NaN may be how data say that a value is missing: it is counted and named, and refuses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch.utils.data import default_collate

from raykit.errors import PlanError
from raykit.train import blame

NAMED = 5
"""So many rows are named."""

MOST_KINDS = 16
"""So many rows that differ in shape are held against the first."""


class Glance:
    """What has been seen of a dataset's rows so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.nonfinite: list[int] = []
        """Places in the dataset of rows that hold a value that is not finite."""
        self.kinds: dict[Hashable, tuple[int, Any]] = {}
        """The first row of each kind: its place, and itself."""

    def see(self, index: int, item: Any) -> None:
        """Look at one row."""
        self.rows += 1
        if nonfinite(item):
            self.nonfinite.append(index)
        kind = _kind(item)
        if kind not in self.kinds and len(self.kinds) < MOST_KINDS:
            self.kinds[kind] = (index, item)


def require_together(
    glance: Glance, ids: pa.ChunkedArray, collate: Callable[..., Any] | None, batch: int
) -> None:
    """Let only rows pass that torch can put into one batch, where the recipe has no `collate` of its own.

    `batch` is how many meet in one.

    Raises:
        PlanError: they cannot be; the message names two of them.
    """
    if collate is not None or not glance.kinds:
        return
    (first, one), *others = glance.kinds.values()
    for index, item in others if others and batch > 1 else [(first, one)]:
        try:
            default_collate([one, item] if batch > 1 else [item])
        except Exception as error:
            if not blame.is_of_rows(error):
                raise
            apart = f"{_id(ids, first)!r} ({signature(one)}) and {_id(ids, index)!r} ({signature(item)})"
            raise PlanError(
                f"rows {apart} cannot be put into one batch: {blame.words(error)}",
                field="recipe.collate",
                value=_id(ids, index),
                rule="rows of one shape, or a collate() of the recipe's own",
                remedy="give the recipe a collate(items), such as one that pads",
            ) from error


def _id(ids: Any, index: int) -> str:
    return str(ids[index].as_py())


def _kind(item: Any) -> Hashable:
    """What tells rows apart that may not go together: dtypes, shapes and names, at whatever depth."""
    match item:
        case torch.Tensor() | np.ndarray():
            return (item.dtype, item.shape)
        case Mapping():
            return tuple((key, _kind(value)) for key, value in item.items())
        case list() | tuple():
            return (len(item), *(_kind(value) for value in item[:MOST_KINDS]))
    return type(item).__qualname__


def signature(item: Any) -> str:
    """What a row is made of: `float32 [1, 8, 8]`, or `{text: str, tokens: int64 [17]}`."""
    match item:
        case torch.Tensor():
            return f"{str(item.dtype).removeprefix('torch.')} {list(item.shape)}"
        case np.ndarray():
            return f"{item.dtype} {list(item.shape)}"
        case Mapping():
            return f"{{{', '.join(f'{key}: {signature(value)}' for key, value in item.items())}}}"
        case list() | tuple():
            more = f", {len(item)} in all" if len(item) > MOST_KINDS else ""
            return f"({', '.join(signature(value) for value in item[:MOST_KINDS])}{more})"
    return type(item).__name__


def nonfinite(item: Any) -> bool:
    """Whether a row holds a float that is not finite, at whatever depth."""
    match item:
        case torch.Tensor():
            floats = item.is_floating_point() or item.is_complex()
            return floats and item.layout == torch.strided and not bool(torch.isfinite(item).all())
        case np.ndarray() | np.floating():
            return np.asarray(item).dtype.kind in "fc" and not bool(np.isfinite(item).all())
        case float():
            return not math.isfinite(item)
        case Mapping():
            return any(nonfinite(value) for value in item.values())
        case list() | tuple():
            return any(nonfinite(value) for value in item)
    return False
