"""What every chart of a search draws alike: a mark for each row by its end, the axis of values, and what is noted.

Every row that reported a value is drawn, whatever became of it; only completed rows, drawn full, can be picked. What
has no value has a cross at the foot of the picture: a row that failed is not one that was never tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import MaxNLocator

from raykit.read.search import RowRead, RowStatus, SearchRead
from raykit.report import drawing
from raykit.report.drawing import BAD, INK, MUTED, PALETTE, SMALL_PT, TEXT_PT

MOST_NAME = 60
MOST_FAR = 6
"""So many values beyond the picture are written beside their arrows."""
MOST_LINES = 3
LINE_PT, CHARACTER_PT = 1.2 * SMALL_PT, 0.65 * SMALL_PT
"""Room of a small label: from one line to the next, and a character of it."""
ROOM = 0.08
"""What is left free above and below the values, as a share of their range."""
FAR = 6.0
"""What is so many times as far from the best as three in four are lies beyond the picture, and has an arrow."""

DONE, STOPPED, CENSORED, LIVE = PALETTE[0], PALETTE[1], PALETTE[4], PALETTE[2]


@dataclass(frozen=True, slots=True)
class Mark:
    """How rows of some statuses are drawn."""

    name: str
    statuses: tuple[RowStatus, ...]
    marker: str
    colour: str
    full: bool = False

    def style(self, size: float) -> dict[str, Any]:
        """As matplotlib wants it."""
        return {
            "linestyle": "none",
            "marker": self.marker,
            "markersize": size,
            "markeredgewidth": size / 5,
            "markeredgecolor": self.colour,
            "markerfacecolor": self.colour if self.full else "white",
            "zorder": 4,
        }


MARKS = (
    Mark("completed", ("completed",), "o", DONE, full=True),
    Mark("stopped by the scheduler", ("stopped-by-scheduler",), "v", STOPPED),
    Mark("ended by a budget", ("censored-by-budget",), "s", CENSORED),
    Mark("failed", ("failed",), "D", BAD),
    Mark("not at its end", ("running", "stopping", "ending", "stopped"), "o", LIVE),
)
OTHER = Mark("without an end", (), "o", INK)
CROSS = {"linestyle": "none", "marker": "X", "color": BAD, "clip_on": False, "zorder": 5}
RING = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 20,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.8,
    "zorder": 5,
}


def title_of(read: SearchRead, what: str) -> str:
    name = read.experiment
    return f"{name if len(name) <= MOST_NAME else f'{name[: MOST_NAME - 2]}..'}: {what}"


def draw_rows(axes: Any, read: SearchRead, rows: Sequence[RowRead], at: Callable[[RowRead], float]) -> None:
    """A mark for each row by its end; the picked one in a ring, one without a value as a cross at the foot."""
    size = _size(len(rows))
    far = [row for row in rows if not _in_view(axes, row)]
    for mark in MARKS:
        found = [row for row in rows if row.status in mark.statuses and row.value is not None]
        if found:
            places, values = [at(row) for row in found], [row.value for row in found]
            axes.plot(places, values, label=f"{mark.name} ({len(found):,})", **mark.style(size))
    _draw_far(axes, read, far, at, size)
    none = [row for row in rows if row.value is None and (row.ended or row.begun_at is not None)]
    if none:
        foot = [0.025] * len(none)
        axes.plot(
            [at(row) for row in none],
            foot,
            label=f"without a value ({len(none):,})",
            transform=axes.get_xaxis_transform(),
            markersize=size,
            **CROSS,
        )
    picked = [row for row in rows if is_picked(read, row) and row.value is not None]
    if picked:
        axes.plot([at(row) for row in picked], [row.value for row in picked], label="picked", **RING)


def _in_view(axes: Any, row: RowRead) -> bool:
    low, high = axes.get_ylim()
    return row.value is None or low <= row.value <= high


def _draw_far(
    axes: Any, read: SearchRead, far: Sequence[RowRead], at: Callable[[RowRead], float], size: float
) -> None:
    """An arrow at the edge for what lies beyond it, with its value where there are few."""
    if not far:
        return
    up = read.registration.mode == "min"
    edge, marker = (0.975, "^") if up else (0.025, "v")
    marks = {status: mark for mark in MARKS for status in mark.statuses}
    across = axes.get_xaxis_transform()
    places = _apart(axes, {row.row: at(row) for row in far}, {row.row: f"{row.value:.3g}" for row in far})
    for n, row in enumerate(far):
        label = f"beyond the picture ({len(far):,})" if n == 0 else None
        style = {**marks.get(row.status, OTHER).style(size + 2), "marker": marker, "zorder": 5}
        axes.plot([at(row)], [edge], label=label, transform=across, **style)
        if len(far) <= MOST_FAR and row.row in places:
            side, line = places[row.row]
            away = (9 * side, -4 - (1 if up else -1) * line * LINE_PT)
            place = {"xytext": away, "textcoords": "offset points", "xycoords": across, "zorder": 6}
            style = {"ha": "right" if side < 0 else "left", "fontsize": SMALL_PT, "color": INK}
            axes.annotate(f"{row.value:.3g}", (at(row), edge), **place, **style)


def _apart(axes: Any, at: Mapping[int, float], labels: Mapping[int, str]) -> dict[int, tuple[int, int]]:
    """By row: on which side of its arrow a label stands, and on which line, so that none lies on another.

    A label for which there is no room is not there; its arrow is.
    """
    width_pt = axes.get_window_extent().width * 72 / axes.figure.dpi
    into = axes.get_xaxis_transform() + axes.transAxes.inverted()
    across_pt = {row: width_pt * float(into.transform((x, 0.0))[0]) for row, x in at.items()}
    taken = [(0, x - 7, x + 7) for x in across_pt.values()]
    found: dict[int, tuple[int, int]] = {}
    for row, x in sorted(across_pt.items(), key=lambda each: each[1]):
        size, first = 9 + CHARACTER_PT * len(labels[row]), -1 if x > width_pt / 2 else 1
        for side, line in ((side, line) for line in range(MOST_LINES) for side in (first, -first)):
            low, high = sorted((x + 8 * side, x + size * side))
            free = all(each != line or high <= left or right <= low for each, left, right in taken)
            if free and low >= 0 and high <= width_pt:
                found[row] = side, line
                taken.append((line, low, high))
                break
    return found


def _size(count: int) -> float:
    """Of a mark: so that many of them can still be told apart."""
    return 10.0 if count <= 60 else max(3.0, 10.0 * math.sqrt(60 / count))


def is_picked(read: SearchRead, row: RowRead) -> bool:
    return read.picked is not None and row.row == read.picked.row


def value_axis(axes: Any, read: SearchRead, rows: Sequence[RowRead]) -> None:
    """The axis of the metric: over all that was reported, but for a few that lie far from the rest.

    It is logarithmic where all of it is far apart.
    """
    values = [row.value for row in rows if row.value is not None]
    low, high = min(values), max(values)
    cut = _cut(read, values)
    if cut is not None:
        low, high = (low, cut) if read.registration.mode == "min" else (cut, high)
        room = (high - low) * ROOM
        axes.set_ylim(low - room, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7))
    elif low > 0 and high / low >= drawing.LOG_FROM:
        drawing.log_axis(axes, low / 1.15, high * 1.15)
    else:
        room = (high - low) * ROOM or abs(high) * ROOM or 1.0
        axes.set_ylim(low - room, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7))
    better = "less" if read.registration.mode == "min" else "more"
    label = f"{drawing.label_of(read.registration.metric)} ({better} is better)"
    axes.set_ylabel(label, fontsize=TEXT_PT, parse_math=False)


def _cut(read: SearchRead, values: Sequence[float]) -> float | None:
    """Where the axis ends, if what is worse would press the rest together; None if all of it has room.

    The setting of today, which the others are held against, is always in the picture.
    """
    ranked = sorted(values, key=read.order)
    best, most = ranked[0], ranked[3 * (len(ranked) - 1) // 4]
    reach = FAR * abs(most - best)
    held = None if read.incumbent is None else read.rows[read.incumbent - 1].value
    if held is not None:
        reach = max(reach, abs(held - best))
    near = [value for value in values if abs(value - best) <= reach]
    if not reach or len(near) == len(values):
        return None
    if abs(ranked[-1] - best) < 2 * abs(_furthest(near, best) - best):
        return None
    return _furthest(near, best)


def _furthest(values: Sequence[float], best: float) -> float:
    return max(values, key=lambda value: abs(value - best))


def references(axes: Any, read: SearchRead, *, named: bool = True) -> None:
    """The incumbent, the differences from it that do not matter, and no skill, as far as they are in view."""
    low, high = axes.get_ylim()
    held = None if read.incumbent is None else read.rows[read.incumbent - 1].value
    if held is not None:
        axes.axhline(
            held,
            color=INK,
            linewidth=1.4,
            linestyle=":",
            zorder=1,
            label=f"incumbent, row {read.incumbent}" if named else None,
        )
        if read.worthwhile:
            style = {"color": INK, "alpha": 0.07, "linewidth": 0, "zorder": 0}
            label = "less than worthwhile" if named else None
            axes.axhspan(held - read.worthwhile, held + read.worthwhile, label=label, **style)
            axes.set_ylim(low, high)
    if _has_no_skill(read) and low < 1.0 < high:
        axes.axhline(
            1.0, color=INK, linewidth=1.6, linestyle="--", zorder=1, label="no skill: 1.0" if named else None
        )


def _has_no_skill(read: SearchRead) -> bool:
    """1.0 is what knowing nothing scores: of a ratio, that is so."""
    return read.metric == "ratio" or read.metric.startswith("ratio.")


def frame(axes: Any) -> None:
    axes.grid(color=drawing.RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=TEXT_PT, color=drawing.RULE, labelcolor=INK)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set(visible=side in ("left", "bottom"), color=MUTED)


def notes(read: SearchRead, rows: Sequence[RowRead]) -> Iterator[str]:
    """What the picture cannot show by itself."""
    if read.verdict is not None and read.verdict.inside_noise:
        yield f"INSIDE THE NOISE: {read.verdict.words}"
    values = [row.value for row in rows if row.value is not None]
    top = (_cut(read, values) or max(values)) if values else 1.0
    if _has_no_skill(read) and top < 0.9:
        yield "no skill is 1.0, above this picture"
    yield "only completed rows, drawn full, can be picked"
    idle = [row for row in read.rows if row.ended and not row.attempts]
    if idle:
        yield f"{len(idle):,} row{'' if len(idle) == 1 else 's'} never began"
