"""The contact sheet: the roster's shown units over updates, each as its panels at true aspect.

A receipt's `panels.png` has one row for each shown unit, all equally high, from the top in the roster's order. A row
is cut out whole, with all its panels beside each other, and is never stretched: every cell of the sheet has one scale.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from raykit.records import Roster
from raykit.report.drawing import BAD, INK, MUTED, RULE

PANELS = "panels.png"
"""What a receipt calls the picture of its panels."""

State = Literal["passed", "failed", "waiting"]

MAX_COLUMNS, MAX_ROWS = 12, 30
MAX_WIDTH_PX, MAX_HEIGHT_PX = 3000, 4000
MAX_PANELS_PX = 60_000_000
"""More pixels than that are not decoded."""
LEAST_ROW_PX = 44
"""Smaller pictures are enlarged by a whole factor, so that their pixels stay pixels."""
GAP_PX, MARGIN_PX, FRAME_PX, HEADER_PX, LINE_PX = 12, 20, 4, 64, 22
LABEL_PX, SMALL_PX = 18, 15
MAX_LABEL = 18

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
    rows = [unit for unit in roster.units if unit.id in roster.shown]
    rows.sort(key=lambda unit: roster.shown.index(unit.id))
    labels = [unit.stratum for unit in rows][:MAX_ROWS]
    strips = [_strips(each, len(roster.shown))[:MAX_ROWS] for each in shown]
    size = max((strip.size for each in strips for strip in each), default=None)
    if size is None or not labels:
        raise ValueError("no checkpoint has panels")
    left_out = [f"{len(shown):,} of {len(columns):,} checkpoints"] if len(shown) < len(columns) else []
    if len(rows) > MAX_ROWS:
        left_out.append(f"{MAX_ROWS} of {len(rows):,} units")
    return _png(_Sheet(labels, shown, size).draw(strips, title, roster.stratum, left_out))


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
    if whole is None or rows == 0 or whole.height % rows:
        return []
    height = whole.height // rows
    return [whole.crop((0, n * height, whole.width, (n + 1) * height)) for n in range(rows)]


def _decoded(data: bytes) -> Image.Image | None:
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as opened:
            if opened.width * opened.height > MAX_PANELS_PX:
                return None
            return opened.convert("RGB")
    except (OSError, ValueError, SyntaxError):  # what pillow says of bytes that are no picture
        return None


# --- the sheet ----------------------------------------------------------------------------------------------


class _Sheet:
    """The places of everything on it. A pixel of a panel is `factor` pixels of the sheet, both ways."""

    def __init__(self, labels: Sequence[str], columns: Sequence[Column], size: tuple[int, int]) -> None:
        self.labels = [clipped(label) for label in labels]
        self.columns = columns
        self.font, self.small, self.bold = _font(LABEL_PX), _font(SMALL_PX), _font(LABEL_PX, bold=True)
        self.left = MARGIN_PX + 14 + math.ceil(max(self.font.getlength(label) for label in self.labels))
        self.factor = self._factor(size)
        self.cell = (max(1, round(size[0] * self.factor)), max(1, round(size[1] * self.factor)))
        self.step = max(self.cell[0] + GAP_PX, 78), self.cell[1] + GAP_PX
        self.top = MARGIN_PX + LINE_PX + HEADER_PX

    def _factor(self, size: tuple[int, int]) -> float:
        width = (MAX_WIDTH_PX - self.left - MARGIN_PX) / len(self.columns) - GAP_PX
        height = (MAX_HEIGHT_PX - 2 * HEADER_PX - MARGIN_PX) / len(self.labels) - GAP_PX
        most = min(width / size[0], height / size[1])
        wanted = float(max(1, math.ceil(LEAST_ROW_PX / size[1])))
        return min(wanted, math.floor(most) if most >= 1 else most)

    def draw(
        self, strips: Sequence[Sequence[Image.Image]], title: str, stratum: str, left_out: Sequence[str]
    ) -> Image.Image:
        notes = [f"rows: {clipped(stratum)}", *left_out]
        least = math.ceil(
            max(self.bold.getlength(clipped(title, 90)), self.small.getlength("; ".join(notes)))
        )
        width = max(self.left + self.step[0] * len(self.columns) + MARGIN_PX, least + 2 * MARGIN_PX)
        height = self.top + self.step[1] * len(self.labels) + LINE_PX + MARGIN_PX
        page = Image.new("RGB", (width, height), "white")
        pen = ImageDraw.Draw(page)
        pen.text((MARGIN_PX, MARGIN_PX), clipped(title, 90), font=self.bold, fill=INK)
        pen.text((MARGIN_PX, height - MARGIN_PX - SMALL_PX), "; ".join(notes), font=self.small, fill=MUTED)
        for n, label in enumerate(self.labels):
            middle = self.top + n * self.step[1] + self.cell[1] / 2
            pen.text((self.left - 14, middle), label, font=self.font, fill=INK, anchor="rm")
        for n, (column, cells) in enumerate(zip(self.columns, strips, strict=True)):
            self._column(page, pen, self.left + n * self.step[0], column, cells)
        return page

    def _column(
        self,
        page: Image.Image,
        pen: ImageDraw.ImageDraw,
        left: int,
        column: Column,
        cells: Sequence[Image.Image],
    ) -> None:
        failed = column.state == "failed"
        ink = BAD if failed else INK
        pen.text((left, self.top - 44), f"{column.update:,}", font=self.font, fill=ink)
        words = {"passed": "", "failed": "FAILED", "waiting": "not yet"}[column.state]
        if column.state == "passed" and not cells:
            words = "no panels" if column.panels is None else "unreadable"
        pen.text((left, self.top - 22), words, font=self.small, fill=ink if failed else MUTED)
        for n in range(len(self.labels)):
            place = left, self.top + n * self.step[1]
            if n < len(cells):
                page.paste(self._scaled(cells[n]), place)
            else:
                box = (*place, place[0] + self.cell[0] - 1, place[1] + self.cell[1] - 1)
                pen.rectangle(box, outline=RULE)
        if failed:
            frame = FRAME_PX + 1
            edge = (
                left - frame,
                self.top - frame,
                left + self.cell[0] + FRAME_PX,
                self.top + self.step[1] * len(self.labels) - GAP_PX + FRAME_PX,
            )
            pen.rectangle(edge, outline=BAD, width=FRAME_PX)

    def _scaled(self, strip: Image.Image) -> Image.Image:
        """At the scale of the sheet: a whole factor keeps pixels, a smaller one averages them."""
        size = round(strip.width * self.factor), round(strip.height * self.factor)
        size = max(1, size[0]), max(1, size[1])
        how = Image.Resampling.NEAREST if self.factor >= 1 else Image.Resampling.BOX
        return strip if size == strip.size else strip.resize(size, how)


def clipped(text: str, most: int = MAX_LABEL) -> str:
    """A recipe's words as a label: on one line, and not too long."""
    plain = "".join(c if c.isprintable() else " " for c in text).strip()
    return plain if len(plain) <= most else f"{plain[: most - 2]}.."


def _font(size_px: int, *, bold: bool = False) -> Font:
    """The font that matplotlib's pictures have."""
    file = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/{file}", size_px)


def _png(page: Image.Image) -> bytes:
    buffer = io.BytesIO()
    page.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
