"""One sheet of pictures: a row for each unit that is shown, a column for each panel. Pixels alone, no text: what
the panels are called is beside them in the file.

Every picture keeps its aspect and its full extent. Small ones are drawn larger by a whole number, so that each of
their values is one square; large ones are averaged down. The same values give the same bytes.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL.PngImagePlugin import PngInfo

Array = np.ndarray[Any, Any]

SEEN_PX = 48
"""A picture is drawn with at least so many pixels on its longer side."""
CELL_PX = 512
"""And with at most so many."""
SHEET_PX = 8192
"""The longest side of a sheet; with many rows or columns the cells are smaller."""
GAP_PX = 4
NAMES = "panels"
"""Under that the file says what its panels are called, from left to right, as JSON."""

GROUND = (112, 112, 112)
CROSS = (176, 176, 176)
NOT_FINITE = (255, 0, 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Values [height, width] or [height, width, 3]; `low` is drawn black and `high` white."""

    values: Array
    low: float
    high: float


def sheet(rows: Sequence[Sequence[Picture | None]], names: Sequence[str] = ()) -> bytes:
    """A PNG of all rows, as long as each other; a cell without a picture is crossed out.

    `names` are those of the panels.
    """
    columns = len(rows[0])
    limit = max(1, min(CELL_PX, (SHEET_PX - GAP_PX) // max(len(rows), columns) - GAP_PX))
    cells = [[_crossed(limit) if each is None else _drawn(each, limit) for each in row] for row in rows]
    heights = [max(cell.shape[0] for cell in row) for row in cells]
    widths = [max(row[column].shape[1] for row in cells) for column in range(columns)]
    size = (sum(heights) + GAP_PX * (len(heights) + 1), sum(widths) + GAP_PX * (len(widths) + 1), 3)
    canvas = np.full(size, GROUND, dtype=np.uint8)
    top = GAP_PX
    for row, height in zip(cells, heights, strict=True):
        left = GAP_PX
        for cell, width in zip(row, widths, strict=True):
            canvas[top : top + cell.shape[0], left : left + cell.shape[1]] = cell
            left += width + GAP_PX
        top += height + GAP_PX
    out = io.BytesIO()
    said = PngInfo()
    if names:
        said.add_itxt(NAMES, json.dumps(list(names)))
    Pillow.fromarray(canvas).save(out, format="PNG", pnginfo=said)
    return out.getvalue()


def _drawn(picture: Picture, limit: int) -> Array:
    pixels = _colours(picture)
    longer = max(pixels.shape[:2])
    if longer > limit:
        height, width = (max(1, round(side * limit / longer)) for side in pixels.shape[:2])
        return np.asarray(Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling.BOX))
    times = max(1, min(math.ceil(SEEN_PX / longer), limit // longer))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)


def _colours(picture: Picture) -> Array:
    """Values as bytes [height, width, 3]; one that is not finite stands out."""
    values = np.asarray(picture.values, dtype=np.float64)
    if values.ndim == 2:
        values = np.repeat(values[:, :, None], 3, axis=2)
    finite: Array = np.asarray(np.isfinite(values).all(axis=2))
    share = (np.where(finite[:, :, None], values, picture.low) - picture.low) / (picture.high - picture.low)
    pixels = np.rint(np.clip(share, 0.0, 1.0) * 255.0).astype(np.uint8)
    pixels[~finite] = NOT_FINITE
    return pixels


def _crossed(limit: int) -> Array:
    side = min(SEEN_PX, limit)
    cell = np.full((side, side, 3), GROUND, dtype=np.uint8)
    places = np.arange(side)
    cell[places, places] = cell[places, side - 1 - places] = CROSS
    return cell
