"""What the pictures share: the figure, its axes and legend, gaps, and the thinning of long histories.

Only matplotlib's objects are used, never its global state: pictures may be drawn in any thread. matplotlib
comes without types, so that its axes and lines are `Any` here.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WIDTH_PX, HEIGHT_PX, DPI = 1400, 800, 100
TITLE_PT, TEXT_PT, SMALL_PT = 17, 13, 11.5
INK, MUTED, RULE, BAD = "#222222", "#666666", "#DDDDDD", "#B00020"
# Okabe and Ito's colours: told apart with every kind of colour vision.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

MAX_POINTS = 2000
"""Values up to here are drawn one by one; it is more than a picture has columns."""
BINS = 600
MAX_MARKERS = 100
LOG_FROM = 5.0
"""The greatest over the least value from which on an axis is logarithmic."""
MAX_NAME = 24
NOTE_COLUMNS = 180


# --- values -------------------------------------------------------------------------------------------------


def floats(values: Iterable[float | None]) -> Floats:
    """The values with NaN for None: matplotlib leaves a gap there."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def last(values: Floats) -> str:
    """The last value that is defined, for a legend."""
    defined = values[~np.isnan(values)]
    return f"{defined[-1]:.3g}" if defined.size else "undefined"


def least(lines: Sequence[Floats]) -> float:
    """The least value of all lines; 1.0 if none is defined."""
    return min((float(np.nanmin(line)) for line in lines if np.isfinite(line).any()), default=1.0)


def greatest(lines: Sequence[Floats]) -> float:
    """The greatest value of all lines; 1.0 if none is defined."""
    return max((float(np.nanmax(line)) for line in lines if np.isfinite(line).any()), default=1.0)


class Bins(NamedTuple):
    """Neighbouring values put together. NaN means that none of a bin is defined."""

    at: Floats
    mean: Floats
    low: Floats
    high: Floats
    size: int
    """How many values make one bin; 1 if they were left as they are."""


def thin(at: Floats, values: Floats, *, most: int = MAX_POINTS, bins: int = BINS) -> Bins:
    """Few enough points to draw: one each up to `most`, else about `bins` bins with their extremes."""
    if len(values) <= most:
        return Bins(at, values, values, values, 1)
    size = math.ceil(len(values) / bins)
    starts = np.arange(0, len(values), size)
    defined = np.add.reduceat((~np.isnan(values)).astype(np.float64), starts)
    defined[defined == 0] = np.nan
    return Bins(
        np.add.reduceat(at, starts) / np.diff([*starts, len(values)]),
        np.add.reduceat(np.where(np.isnan(values), 0.0, values), starts) / defined,
        np.fmin.reduceat(values, starts),
        np.fmax.reduceat(values, starts),
        size,
    )


# --- figure -------------------------------------------------------------------------------------------------


def new_figure(title: str, *, height_px: int = HEIGHT_PX) -> Figure:
    """An empty picture with its title."""
    size = (WIDTH_PX / DPI, height_px / DPI)
    figure = Figure(figsize=size, dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12, hspace=0.06)
    style = {"fontsize": TITLE_PT, "fontweight": "bold", "color": INK}
    figure.suptitle(title, x=0.012, ha="left", parse_math=False, **style)
    return figure


def blank(figure: Figure, text: str) -> Figure:
    """The picture of nothing yet: one sentence."""
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=TITLE_PT, color=MUTED)
    return figure


def notes(figure: Figure, texts: Sequence[str]) -> None:
    """What the picture leaves out, in small print below it."""
    if texts:
        text = textwrap.fill("; ".join(texts), NOTE_COLUMNS)
        figure.supxlabel(text, x=0.012, ha="left", fontsize=SMALL_PT, color=MUTED, parse_math=False)


def png(figure: Figure) -> bytes:
    """The picture as PNG; equal figures give equal bytes under one version of matplotlib."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from font"
        )  # drawn as a box, and that is all
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


# --- axes ---------------------------------------------------------------------------------------------------


def line(axes: Any, at: Floats, values: Floats, **style: Any) -> Any:
    """A line with gaps, and dots for the points between two gaps: a line shows nothing of those."""
    (drawn,) = axes.plot(at, values, **style)
    gap = np.isnan(np.concatenate([[np.nan], values, [np.nan]]))
    alone = ~gap[1:-1] & gap[:-2] & gap[2:]
    if alone.any():
        dots = {"marker": "o", "markersize": 1.5 + 2 * style["linewidth"], "markeredgewidth": 0}
        axes.plot(at[alone], values[alone], **{**style, **dots, "label": None, "linestyle": "none"})
    return drawn


def dotted_line(axes: Any, at: Floats, values: Floats, **style: Any) -> Any:
    """A line through points that are marked as long as they are few."""
    marks = {"marker": "o", "markersize": 5} if len(values) <= MAX_MARKERS else {}
    return line(axes, at, values, **style, **marks)


def ratio_axis(axes: Any, lines: Sequence[Floats]) -> None:
    """The axis of ratios, with no skill in view and its name where no curve can cover it."""
    axes.axhline(1.0, color=INK, linewidth=1.6, linestyle="--", zorder=2)
    style = {"va": "center", "fontsize": TEXT_PT, "color": INK, "annotation_clip": False}
    place = {"xycoords": axes.get_yaxis_transform(), "xytext": (7, 0), "textcoords": "offset points"}
    axes.annotate("no skill: 1.0", (1.0, 1.0), **place, **style)
    value_axis(axes, min(least(lines), 1.0), max(greatest(lines), 1.0))
    axes.set_ylabel("ratio to predicting zero", fontsize=TEXT_PT)


def value_axis(axes: Any, low: float, high: float) -> None:
    """An axis from 0, or a logarithmic one where the range needs it."""
    if low > 0 and high / low >= LOG_FROM:
        log_axis(axes, low / 1.25, high * 1.25)
    else:
        axes.set_ylim(min(0.0, low * 1.08), high * 1.08)


def log_axis(axes: Any, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers, and enough of them whatever the range."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    decades = math.log10(high / low)
    if decades < 1:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    else:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 4 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def update_axis(axes: Any, last_update: float, *, ticks: int = 10) -> None:
    """The axis of updates, from the first checkpoint at 0; and a quiet frame around everything."""
    axes.set_xlim(0, max(last_update, 1.0) * 1.01)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=ticks, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("update", fontsize=TEXT_PT)
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=TEXT_PT, color=RULE, labelcolor=INK)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set(visible=side in ("left", "bottom"), color=MUTED)


def legend(axes: Any, *, above: float = 1.0, columns: int = 3) -> None:
    """The legend over the axes, where it can cover nothing."""
    place = {"loc": "lower left", "bbox_to_anchor": (0, above), "borderaxespad": 0.2}
    made = axes.legend(ncols=columns, frameon=False, fontsize=TEXT_PT, labelcolor=INK, **place)
    for text in made.get_texts():
        text.set_parse_math(False)


def label_of(name: str) -> str:
    """A recipe's name as a label. matplotlib hides labels that begin with an underscore."""
    text = name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 2]}.."
    return f" {text}" if text.startswith("_") else text
