"""Samples of a synthetic set as one picture: rows that are published, evenly over the set, at their true aspect.

Which columns are pictures is what the contract's normalization says, since the recipe's own code is not run here:

    normalization = {"image": {"low": 0.0, "high": 16.0, "shape": [8, 8]}}     # [height, width], or [height, width, 3]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from raykit.read.setview import SetRead
from raykit.records import GenerationContract
from raykit.report.drawing import INK, MUTED, RULE
from raykit.report.sheet import clipped, font, png_of
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.generation import Shards
from raykit.store.parquet import read_parquet

SAMPLES = "samples.png"

COLUMNS, ROWS = 12, 5
"""So many pictures beside each other, and below."""
MAX_SIDE = 1024
"""A larger picture is not drawn."""
CELL_PX, MOST_CELL_PX = 72, 220
"""A smaller picture is enlarged by a whole factor; a larger one is reduced."""
GAP_PX, MARGIN_PX, LABEL_PX, TITLE_PX, LINE_PX = 10, 20, 12, 18, 26
MAX_TITLE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictured:
    """A column whose lists of numbers are pictures."""

    column: str
    shape: tuple[int, ...]
    """[height, width], or [height, width, 3]."""
    low: float
    """Drawn black."""
    high: float
    """Drawn white."""

    def pixels(self, values: Any) -> Image.Image | None:
        """The picture of one row; None if the row has no such picture."""
        if values is None or len(values) != math.prod(self.shape):
            return None
        numbers = np.asarray(values, dtype=np.float64).reshape(self.shape)
        if not np.isfinite(numbers).all():
            return None
        scaled = (numbers - self.low) / (self.high - self.low)
        grey: NDArray[np.uint8] = np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Some rows of a set."""

    of: SetRead
    pictured: Pictured
    labels: tuple[str, ...]
    """Their numbers, or the ids of their inputs."""
    values: tuple[Any, ...]
    published: int
    """Rows that there are so far."""


# --- which rows ---------------------------------------------------------------------------------------------


def pictured(contract: GenerationContract) -> Pictured | None:
    """The first column that the contract says is a picture; None if there is none."""
    names = [column.name for column in contract.columns]
    found = (_pictured(name, contract.normalization.get(name)) for name in names)
    return next((each for each in found if each is not None), None)


def _pictured(name: str, said: Any) -> Pictured | None:
    if not isinstance(said, Mapping):
        return None
    shape, low, high = said.get("shape"), said.get("low", 0.0), said.get("high", 1.0)
    if not isinstance(shape, Sequence) or not all(_is_side(side) for side in shape):
        return None
    if len(shape) != 2 and (len(shape) != 3 or shape[2] != 3):
        return None
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in (low, high)) or low >= high:
        return None
    return Pictured(column=name, shape=tuple(shape), low=float(low), high=float(high))


def _is_side(side: Any) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and 1 <= side <= MAX_SIDE


def samples_of(store: ObjectStore, read: SetRead, *, most: int = COLUMNS * ROWS) -> Samples | None:
    """Rows of the units that are published, evenly over them; None if there are none, or they are no pictures.

    Raises:
        CorruptError: a receipt or the rows of a unit are damaged.
        StoreUnavailableError: the store did not answer.
    """
    contract = None if read.made is None else read.made.contract
    which = None if contract is None else pictured(contract)
    if read.made is None or contract is None or which is None or not read.made.rows.produced:
        return None
    shards = Shards(store, contract)
    published = shards.published()
    units = published[np.linspace(0, len(published) - 1, min(ROWS, len(published))).astype(int)]
    parts = [_rows(shards, int(unit), math.ceil(most / len(units)), which) for unit in units]
    labels = [label for part in parts for label, _ in part][:most]
    values = [value for part in parts for _, value in part][:most]
    if not values:
        return None
    return Samples(
        of=read,
        pictured=which,
        labels=tuple(labels),
        values=tuple(values),
        published=read.made.rows.produced,
    )


def _rows(shards: Shards, unit: int, most: int, which: Pictured) -> list[tuple[str, Any]]:
    """The first rows of a unit, each with what it is called."""
    receipt = shards.receipt(unit)
    if receipt is None:
        return []
    table = read_parquet(shards.data(receipt), shards.data_key(receipt)).slice(0, most)
    return list(zip(_labels(table, shards.contract), table[which.column].to_pylist(), strict=True))


def _labels(table: pa.Table, contract: GenerationContract) -> list[str]:
    if contract.inputs is None:
        return [f"{row:,}" for row in table["row"].to_pylist()]
    ids = [str(id) for id in table["id"].to_pylist()]
    if contract.samples == 1:
        return ids
    return [f"{id} #{n}" for id, n in zip(ids, table["sample"].to_pylist(), strict=True)]


# --- the picture ----------------------------------------------------------------------------------------------


def draw_samples(samples: Samples) -> bytes:
    """A PNG of the rows in a grid, each with its number below it. A row without a picture is an empty frame."""
    cells = [samples.pictured.pixels(values) for values in samples.values]
    width, height = _size(samples.pictured.shape)
    columns = min(COLUMNS, len(cells))
    rows = -(-len(cells) // columns)
    step_x, step_y = width + GAP_PX, height + LABEL_PX + GAP_PX + 4
    top = MARGIN_PX + LINE_PX
    title, small, tiny = font(TITLE_PX, bold=True), font(LABEL_PX + 2), font(LABEL_PX)
    head, foot = clipped(_title(samples), MAX_TITLE), _foot(samples)
    across = max(columns * step_x, math.ceil(title.getlength(head)), math.ceil(small.getlength(foot)))
    page = Image.new("RGB", (across + 2 * MARGIN_PX, top + rows * step_y + LINE_PX + MARGIN_PX), "white")
    pen = ImageDraw.Draw(page)
    pen.text((MARGIN_PX, MARGIN_PX - 6), head, font=title, fill=INK)
    for n, (cell, label) in enumerate(zip(cells, samples.labels, strict=True)):
        left, up = MARGIN_PX + n % columns * step_x, top + n // columns * step_y
        if cell is None:
            pen.rectangle((left, up, left + width - 1, up + height - 1), outline=RULE)
        else:
            page.paste(cell.resize((width, height), _how(cell.width, width)), (left, up))
            pen.rectangle((left - 1, up - 1, left + width, up + height), outline=RULE)
        fits = clipped(label, max(4, width // 7))
        pen.text((left + width / 2, up + height + 3), fits, font=tiny, fill=MUTED, anchor="ma")
    pen.text((MARGIN_PX, top + rows * step_y), foot, font=small, fill=MUTED)
    return png_of(page)


def _size(shape: Sequence[int]) -> tuple[int, int]:
    """Width and height of a cell: pixels stay pixels where they are few, and the aspect is the true one."""
    high, wide = shape[0], shape[1]
    factor = float(max(1, CELL_PX // max(high, wide)))
    factor = min(factor, MOST_CELL_PX / max(high, wide))
    return max(1, round(wide * factor)), max(1, round(high * factor))


def _how(before: int, after: int) -> Image.Resampling:
    return Image.Resampling.NEAREST if after >= before else Image.Resampling.BOX


def _title(samples: Samples) -> str:
    made = samples.of.made
    digest = None if made is None else made.manifest_digest
    of = f"manifest {digest[:8]}" if digest is not None else "not complete"
    return f"{samples.of.id}: {len(samples.values):,} of {samples.published:,} rows, {of}"


def _foot(samples: Samples) -> str:
    scripted = "; scripted" if samples.of.made is not None and samples.of.made.scripted else ""
    which = samples.pictured
    return f"synthetic; column {clipped(which.column)}, {which.low:g} black to {which.high:g} white{scripted}"


# --- in the store ---------------------------------------------------------------------------------------------


def picture_key(experiment: str, name: str) -> str:
    """Where the samples of a set lie."""
    return layout.generation_picture(experiment, name, SAMPLES)


def put_samples(
    store: ObjectStore, reads: Sequence[SetRead], *, say: Callable[[str], None] = lambda _: None
) -> dict[str, bytes]:
    """Draw the samples of each set anew and keep them; by name of the set, the picture.

    Derived: what cannot be drawn or kept is said, and stops nothing.
    """
    drawn: dict[str, bytes] = {}
    for read in reads:
        try:
            samples = samples_of(store, read)
            if samples is not None:
                drawn[read.name] = draw_samples(samples)
                store.put_derived(picture_key(read.experiment, read.name), drawn[read.name])
        except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn is no reason to stop anything
            say(f"the samples of {read.id} could not be drawn or kept: {error}")
    return drawn
