"""A picture of rows of a synthetic set, where the recipe says how one looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from raykit.errors import GateError
from raykit.train.recipe import Image
from raykit.work.answers import to_array
from raykit.work.panels import Picture, sheet

SHOWN = 40
"""Rows that are shown, the first ones."""
ACROSS = 10


def picture_of(recipe: Any, table: pa.Table) -> bytes | None:
    """A PNG of the first rows; None if the recipe draws none.

    Raises:
        GateError: it gives something else than an `Image` for each row.
    """
    draw = getattr(recipe, "picture", None)
    shown = table.slice(0, SHOWN)
    if draw is None or not shown.num_rows:
        return None
    given = draw(shown)
    fits = isinstance(given, Sequence) and len(given) == shown.num_rows
    if not fits or not all(isinstance(image, Image) for image in given):
        raise GateError(
            "the recipe's picture() gives something else",
            field="recipe.picture",
            rule="a list with an Image for each row",
        )
    cells: list[Picture | None] = [
        Picture(values=to_array(image.pixels()), low=float(image.low), high=float(image.high))
        for image in given
    ]
    across = min(ACROSS, len(cells))
    return sheet([cells[at : at + across] for at in range(0, len(cells) - across + 1, across)])
