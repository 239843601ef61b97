"""The contact sheet: the roster's shown units over updates, each as its panels at true aspect.

A receipt's `panels.png` is what `raykit.work.panels` makes: one row for each shown unit, from the top in the roster's
order, each as high as its tallest panel, with bars of one grey between rows and around. A row is cut out whole, with
all its panels beside each other, and is never stretched: every cell of the sheet has one scale.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from raykit.records import Roster
from raykit.report.drawing import BAD, INK, MUTED, RULE

PANELS = "panels.png"
"""What a receipt calls the picture of its panels."""

NAMES = "panels"
"""Under that it says what they are called."""

BAR_PX, GROUND = 4, (112, 112, 112)
"""The bars in it."""

State = Literal["passed", "failed", "waiting"]

MAX_COLUMNS, MAX_ROWS = 12, 30
MAX_WIDTH_PX, MAX_HEIGHT_PX = 3000, 4000
MAX_PANELS_PX = 60_000_000
"""More pixels than that are not decoded."""
LEAST_ROW_PX = 40
"""Where every row is smaller, all are enlarged by a whole factor, so that their pixels stay pixels."""
GAP_PX, MARGIN_PX, FRAME_PX, HEADER_PX, LINE_PX = 12, 20, 4, 64, 22
LABEL_PX, SMALL_PX = 18, 15
LEAST_STEP_PX = 78
MAX_LABEL, MAX_TITLE = 18, 90

Font = ImageFont.FreeTypeFont


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One checkpoint on the sheet."""

    update: int
    state: State
    panels: bytes | None
    """The bytes of its `panels.png`; None if it has none."""


def draw_sheet(roster: Roster, columns: Sequence[Column], *, title: str) -> bytes:
    """A PNG of the shown units (rows) at every checkpoint (columns), the first at update 0.

    Of many checkpoints, the first, the last and those that failed are there, and the others evenly thinned.

    A picture that cannot be cut into the roster's rows is said to be unreadable, and hides no other.

    Raises:
        ValueError: no checkpoint has panels.
    """
    shown = thinned(columns)
    strata = {unit.id: unit.stratum for unit in roster.units}
    labels = [strata.get(id, id) for id in roster.shown]
    strips = [_strips(each, len(labels)) for each in shown]
    if not any(strips):
        raise ValueError("no checkpoint has panels")
    names = next((found for each in shown if (found := names_of(each.panels))), [])
    left_out = [f"{len(shown):,} of {len(columns):,} checkpoints"] if len(shown) < len(columns) else []
    if len(labels) > MAX_ROWS:
        left_out.append(f"{MAX_ROWS} of {len(labels):,} units")
    cut = [each[:MAX_ROWS] for each in strips]
    beside = [f"side by side: {clipped(', '.join(names), MAX_TITLE)}"] if len(names) > 1 else []
    return png_of(_Sheet(labels[:MAX_ROWS], shown, cut).draw(title, roster.stratum, [*beside, *left_out]))


def thinned(columns: Sequence[Column]) -> list[Column]:
    """At most `MAX_COLUMNS`: the first, the last, those that failed as far as there is room, and some between."""
    ordered = sorted(columns, key=lambda column: column.update)
    if len(ordered) <= MAX_COLUMNS:
        return ordered
    ends = {0, len(ordered) - 1}
    failed = [n for n, column in enumerate(ordered) if column.state == "failed" and n not in ends]
    kept = ends | _evenly(failed, MAX_COLUMNS - len(ends))
    others = [n for n in range(len(ordered)) if n not in kept]
    kept |= _evenly(others, MAX_COLUMNS - len(kept))
    return [ordered[n] for n in sorted(kept)]


def _evenly(among: Sequence[int], most: int) -> set[int]:
    """At most so many of them, evenly spread; none of them twice."""
    if len(among) <= most:
        return set(among)
    return {among[(2 * n + 1) * len(among) // (2 * most)] for n in range(most)}


def _strips(column: Column, rows: int) -> list[Image.Image]:
    """One picture for each shown unit; none where the checkpoint has no panels, or none that can be cut."""
    whole = None if column.panels is None else _decoded(column.panels)
    if whole is None:
        return []
    spans = row_spans(np.asarray(whole), rows)
    return [whole.crop((BAR_PX, top, whole.width - BAR_PX, bottom)) for top, bottom in spans]


def row_spans(pixels: NDArray[np.uint8], rows: int) -> list[tuple[int, int]]:
    """Where each of so many rows begins and ends, between bars; nothing if the picture has other rows.

    Rows that are equally high are where they must be. Others are what lies between bars right across.
    """
    bar = (pixels == np.array(GROUND, dtype=np.uint8)).all(axis=(1, 2))
    high, left = divmod(len(pixels) - BAR_PX * (rows + 1), max(rows, 1))
    if rows < 1 or high < 1 or pixels.shape[1] <= 2 * BAR_PX:
        return []
    tops = [BAR_PX + n * (high + BAR_PX) for n in range(rows)]
    if left == 0 and all(bar[top - BAR_PX : top].all() for top in [*tops, len(pixels)]):
        return [(top, top + high) for top in tops]
    edges = np.flatnonzero(np.diff(np.concatenate([[True], bar, [True]]).astype(np.int8)))
    spans = [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return spans if len(spans) == rows else []


def _decoded(data: bytes) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as opened:
            if opened.width * opened.height > MAX_PANELS_PX:
                return None
            return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError):  # what pillow says of bytes that are no picture
        return None


def names_of(panels: bytes | None) -> list[str]:
    """What the panels of a row are called, from left to right; nothing where the picture does not say it."""
    if panels is None:
        return []
    try:
        with Image.open(io.BytesIO(panels), formats=("PNG",)) as opened:
            names = json.loads(opened.info.get(NAMES, "[]"))
    except (OSError, ValueError, SyntaxError, TypeError, RecursionError):  # of no picture, or no JSON
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


# --- the sheet ----------------------------------------------------------------------------------------------


class _Sheet:
    """The places of everything on it. A pixel of a panel is `factor` pixels of the sheet, both ways."""

    def __init__(
        self, labels: Sequence[str], columns: Sequence[Column], strips: Sequence[Sequence[Image.Image]]
    ) -> None:
        self.labels = [clipped(label) for label in labels]
        self.columns = columns
        self.font, self.small, self.bold = font(LABEL_PX), font(SMALL_PX), font(LABEL_PX, bold=True)
        self.left = MARGIN_PX + 14 + math.ceil(max(self.font.getlength(label) for label in self.labels))
        self.top = MARGIN_PX + LINE_PX + HEADER_PX
        self.factor = self._factor(strips)
        self.cells = [[self._scaled(strip) for strip in each] for each in strips]
        self.width = max(cell.width for each in self.cells for cell in each)
        self.heights = [max(each[n].height for each in self.cells if each) for n in range(len(self.labels))]
        self.step = max(self.width + GAP_PX, LEAST_STEP_PX)
        self.tops = [self.top + sum(self.heights[:n]) + n * GAP_PX for n in range(len(self.labels))]

    def _factor(self, strips: Sequence[Sequence[Image.Image]]) -> float:
        width = max(strip.width for each in strips for strip in each)
        heights = [max(each[n].height for each in strips if each) for n in range(len(self.labels))]
        across = ((MAX_WIDTH_PX - self.left - MARGIN_PX) / len(self.columns) - GAP_PX) / width
        down = (MAX_HEIGHT_PX - self.top - 2 * MARGIN_PX - GAP_PX * len(heights)) / sum(heights)
        most = min(across, down)
        wanted = float(max(1, math.ceil(LEAST_ROW_PX / max(heights))))
        return min(wanted, math.floor(most) if most >= 1 else most)

    def _scaled(self, strip: Image.Image) -> Image.Image:
        """At the scale of the sheet: a whole factor keeps pixels, a smaller one averages them."""
        size = max(1, round(strip.width * self.factor)), max(1, round(strip.height * self.factor))
        how = Image.Resampling.NEAREST if self.factor >= 1 else Image.Resampling.BOX
        return strip if size == strip.size else strip.resize(size, how)

    def draw(self, title: str, stratum: str, more: Sequence[str]) -> Image.Image:
        title, notes = clipped(title, MAX_TITLE), "; ".join([f"rows: {clipped(stratum)}", *more])
        least = math.ceil(max(self.bold.getlength(title), self.small.getlength(notes)))
        bottom = self.tops[-1] + self.heights[-1]
        width = max(self.left + self.step * len(self.columns) + MARGIN_PX, least + 2 * MARGIN_PX)
        page = Image.new("RGB", (width, bottom + LINE_PX + 2 * MARGIN_PX), "white")
        pen = ImageDraw.Draw(page)
        pen.text((MARGIN_PX, MARGIN_PX), title, font=self.bold, fill=INK)
        pen.text((MARGIN_PX, bottom + MARGIN_PX), notes, font=self.small, fill=MUTED)
        for label, top, height in zip(self.labels, self.tops, self.heights, strict=True):
            pen.text((self.left - 14, top + height / 2), label, font=self.font, fill=INK, anchor="rm")
        for n in range(len(self.columns)):
            self._column(page, pen, n)
        return page

    def _column(self, page: Image.Image, pen: ImageDraw.ImageDraw, n: int) -> None:
        column, cells, left = self.columns[n], self.cells[n], self.left + n * self.step
        failed = column.state == "failed"
        pen.text((left, self.top - 48), f"{column.update:,}", font=self.font, fill=BAD if failed else INK)
        pen.text(
            (left, self.top - 26), _word(column, bool(cells)), font=self.small, fill=BAD if failed else MUTED
        )
        for row, (top, height) in enumerate(zip(self.tops, self.heights, strict=True)):
            if cells:
                page.paste(cells[row], (left, top))
            else:
                pen.rectangle((left, top, left + self.width - 1, top + height - 1), outline=RULE)
        if failed:
            edge = FRAME_PX + 1
            right, bottom = left + self.width + FRAME_PX, self.tops[-1] + self.heights[-1] + FRAME_PX
            pen.rectangle((left - edge, self.top - edge, right, bottom), outline=BAD, width=FRAME_PX)


def _word(column: Column, readable: bool) -> str:
    """What is said of a checkpoint below its number."""
    if column.state == "failed":
        return "FAILED"
    if column.state == "waiting":
        return "not yet"
    return "" if readable else "no panels" if column.panels is None else "unreadable"


def clipped(text: str, most: int = MAX_LABEL) -> str:
    """A recipe's words as a label: on one line, and not too long."""
    plain = "".join(c if c.isprintable() else " " for c in text).strip()
    return plain if len(plain) <= most else f"{plain[: most - 2]}.."


def font(size_px: int, *, bold: bool = False) -> Font:
    """The font that matplotlib's pictures have."""
    file = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/{file}", size_px)


def png_of(page: Image.Image) -> bytes:
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
