"""Pictures of a run from its rows alone: scale-free ratios, the development split, and the declared fields.

A loss in physical units never shows that a model fits, so no picture has one: what is drawn is value over
what predicting zero scores, and 1.0, no skill, is always in view. What is undefined leaves a gap. Long
histories are drawn as the mean of each bin inside its least and greatest value, so that no spike is lost.

`*_figure` makes the figure, `draw_*` its PNG.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from raykit import history
from raykit.plan.tables import FieldBounds
from raykit.records import EvaluationRow, FieldStats, MonitorRow, Row
from raykit.report import drawing
from raykit.report.drawing import BAD, HEIGHT_PX, INK, MUTED, PALETTE, SMALL_PT, TEXT_PT, Floats

MIN_LABEL_GAP = 0.03
"""Attempts whose numbers would lie closer than this share of the axis stay without one."""

EACH: dict[str, Any] = {"linewidth": 0.8, "alpha": 0.45}
BAND: dict[str, Any] = {"linewidth": 0, "alpha": 0.18}
TREND: dict[str, Any] = {"linewidth": 2.6}
POINTS: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 8,
    "markerfacecolor": "white",
    "markeredgewidth": 2,
    "zorder": 4,
}
RING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 17,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.8,
    "zorder": 5,
    "clip_on": False,
}
CROSS: dict[str, Any] = {
    "linestyle": "none",
    "marker": "X",
    "markersize": 10,
    "color": BAD,
    "zorder": 5,
    "clip_on": False,
}


def draw_ratio(
    rows: Sequence[Row], evaluations: Sequence[EvaluationRow], *, title: str, smooth_decay: float
) -> bytes:
    """A PNG of the ratio of every scaled term, its trend, and its development ratio."""
    return drawing.png(ratio_figure(rows, evaluations, title=title, smooth_decay=smooth_decay))


def draw_development(evaluations: Sequence[EvaluationRow], *, title: str, metric: str = "ratio") -> bytes:
    """A PNG of the development split alone; `metric` is the one that selects."""
    return drawing.png(development_figure(evaluations, title=title, metric=metric))


def draw_fields(monitors: Sequence[MonitorRow], *, title: str, declared: Mapping[str, FieldBounds]) -> bytes:
    """A PNG of the declared fields: each in its own space, and its spread against its collapse threshold."""
    return drawing.png(fields_figure(monitors, title=title, declared=declared))


# --- training -----------------------------------------------------------------------------------------------


def ratio_figure(
    rows: Sequence[Row], evaluations: Sequence[EvaluationRow], *, title: str, smooth_decay: float
) -> Figure:
    """The ratio of every scaled term: each update faint, the trend bold, the development split as points.

    Terms without a scale are named below the picture, and so is how many ratios are undefined.
    """
    figure = drawing.new_figure(title)
    scaled, unscaled = _terms(rows)
    if not scaled:
        text = "no term of this run has a scale" if rows else "no update is recorded yet"
        return drawing.blank(figure, text)
    axes = figure.subplots()
    updates = drawing.floats(row.update for row in rows)
    notes = [f"without such a scale and not drawn: {', '.join(unscaled)}"] if unscaled else []
    lines = []
    for name, colour in zip(scaled, itertools.cycle(PALETTE), strict=False):
        ratios = drawing.floats(row.terms[name].ratio if name in row.terms else None for row in rows)
        scores = drawing.floats(row.metrics.get(f"ratio.{name}") for row in evaluations)
        trend = _draw_updates(axes, colour, updates, ratios, smooth_decay)
        trend.set_label(_summary(name, trend.get_ydata(), scores))
        _draw_scores(axes, colour, evaluations, scores)
        lines += [ratios, scores]
        notes += _undefined(name, ratios, "updates")
    _explain(axes, drawing.thin(updates, updates).size, evaluations, smooth_decay)
    drawing.ratio_axis(axes, lines)
    drawing.update_axis(axes, updates[-1])
    _mark_attempts(axes, rows)
    drawing.legend(axes, above=1.04)
    drawing.notes(figure, notes)
    return figure


def _terms(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """The terms that have a scale in some row, and those that never have one."""
    has_scale: dict[str, bool] = {}
    for row in rows:
        for name, term in row.terms.items():
            if not has_scale.get(name):
                has_scale[name] = term.target_ms is not None or term.reference is not None
    scaled = [name for name, yes in has_scale.items() if yes]
    return scaled, [name for name in has_scale if name not in scaled]


def _draw_updates(axes: Any, colour: str, updates: Floats, ratios: Floats, decay: float) -> Any:
    """Every update and the trend of one term; returns the trend's line."""
    bins = drawing.thin(updates, ratios)
    if bins.size > 1:
        axes.fill_between(bins.at, bins.low, bins.high, color=colour, **BAND)
    drawing.line(axes, bins.at, bins.mean, color=colour, **EACH)
    trend = drawing.thin(updates, _trend(ratios, decay))
    return drawing.line(axes, trend.at, trend.mean, color=colour, **TREND)


def _draw_scores(axes: Any, colour: str, evaluations: Sequence[EvaluationRow], scores: Floats) -> None:
    defined = ~np.isnan(scores)
    if defined.any():  # the layout makes room for what is not clipped, and does not know that it is empty
        at = drawing.floats(row.update for row in evaluations)
        axes.plot(at[defined], scores[defined], color=colour, clip_on=False, **POINTS)


def _trend(values: Floats, decay: float) -> Floats:
    """The exponential mean, with a gap wherever the values have one."""
    smooth = history.ema((None if math.isnan(value) else value for value in values.tolist()), decay)
    return np.where(np.isnan(values), np.nan, drawing.floats(smooth))


def _summary(name: str, trend: Floats, scores: Floats) -> str:
    text = f"{drawing.label_of(name)}: trend {drawing.last(trend)}"
    return f"{text}, development {drawing.last(scores)}" if scores.size else text


def _undefined(name: str, values: Floats, what: str) -> list[str]:
    count = int(np.isnan(values).sum())
    return [f"{name} is undefined at {count:,} of {len(values):,} {what}"] if count else []


def _explain(axes: Any, size: int, evaluations: Sequence[EvaluationRow], decay: float) -> None:
    """What the kinds of line mean, in the legend once and not once per term."""
    axes.plot([], [], color=MUTED, label="each update" if size == 1 else f"mean of {size:,} updates", **EACH)
    if size > 1:
        axes.fill_between([], [], color=MUTED, label="their least to greatest", **BAND)
    lag = history.ema_lag(decay)
    behind = f"{lag:,} update{'' if lag == 1 else 's'}"
    axes.plot([], [], color=MUTED, label=f"trend: ema {decay:g}, {behind} behind", **TREND)
    if evaluations:
        axes.plot([], [], color=MUTED, label=f"development: {evaluations[-1].rows:,} rows", **POINTS)


def _mark_attempts(axes: Any, rows: Sequence[Row]) -> None:
    """A line where another attempt took over, and its number above as far as there is room."""
    starts = [row for before, row in itertools.pairwise(rows) if row.attempt != before.attempt]
    style = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (1, 2)), "zorder": 1}
    above = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    numbered = -1.0
    for row in starts:
        at = row.update - 0.5
        axes.axvline(at, label="resumed: attempt's number above" if row is starts[0] else None, **style)
        place = at / axes.get_xlim()[1]
        if place - numbered >= MIN_LABEL_GAP:
            axes.text(at, 1.006, f"{row.attempt}", fontsize=SMALL_PT, color=MUTED, **above)
            numbered = place


# --- development --------------------------------------------------------------------------------------------


def development_figure(evaluations: Sequence[EvaluationRow], *, title: str, metric: str = "ratio") -> Figure:
    """The development ratio of every term and, where another metric selects, that one in a panel of its own.

    The evaluation that is best by `metric` is ringed.
    """
    figure = drawing.new_figure(title)
    recorded = list(dict.fromkeys(name for row in evaluations for name in row.metrics))
    ratios = [name for name in recorded if name.startswith("ratio.")]
    others = [name for name in recorded if name == metric and name not in ("ratio", *ratios)]
    panels = [names for names in (ratios, others) if names]
    if not panels:
        text = "neither a ratio nor what selects is recorded" if evaluations else "nothing is evaluated yet"
        return drawing.blank(figure, text)
    grid = np.ravel(figure.subplots(len(panels), sharex=True))
    notes = [f"{evaluations[-1].rows:,} rows of the development split"]
    for axes, names in zip(grid, panels, strict=True):
        notes += _draw_metrics(axes, names, evaluations)
    _ring_best(grid[-1], evaluations, metric)
    for axes in grid:
        drawing.update_axis(axes, evaluations[-1].update)
        axes.label_outer()
        drawing.legend(axes)
    drawing.notes(figure, notes)
    return figure


def _draw_metrics(axes: Any, names: Sequence[str], evaluations: Sequence[EvaluationRow]) -> list[str]:
    """One panel; returns what there is to say of undefined values."""
    updates = drawing.floats(row.update for row in evaluations)
    lines = [drawing.floats(row.metrics.get(name) for row in evaluations) for name in names]
    for name, colour, values in zip(names, itertools.cycle(PALETTE), lines, strict=False):
        label = f"{drawing.label_of(name.removeprefix('ratio.'))}: last {drawing.last(values)}"
        drawing.dotted_line(axes, updates, values, color=colour, linewidth=2, label=label)
    if names[0].startswith("ratio."):
        drawing.ratio_axis(axes, lines)
    else:
        axes.set_ylabel(names[0], fontsize=TEXT_PT, parse_math=False)
    found = zip(names, lines, strict=True)
    return [note for name, values in found for note in _undefined(name, values, "evaluations")]


def _ring_best(axes: Any, evaluations: Sequence[EvaluationRow], metric: str) -> None:
    best = next((row for row in reversed(evaluations) if row.best), None)
    value = None if best is None else best.metrics.get(metric)
    if best is not None and value is not None:
        label = f"best so far: {value:.4g} at update {best.update:,}"
        axes.plot([best.update], [value], label=label, **RING)


# --- fields -------------------------------------------------------------------------------------------------


def fields_figure(
    monitors: Sequence[MonitorRow], *, title: str, declared: Mapping[str, FieldBounds]
) -> Figure:
    """Two panels per field: median and percentiles in its own space; its spread against the first."""
    names = [name for name in declared if any(name in row.fields for row in monitors)]
    figure = drawing.new_figure(title, height_px=max(HEIGHT_PX * 3 // 4, HEIGHT_PX * len(names) // 2))
    if not names:
        return drawing.blank(figure, "no field is monitored yet")
    grid = figure.subplots(len(names), 2, squeeze=False, width_ratios=(3, 2))
    for (values, spreads), name in zip(grid, names, strict=True):
        seen = [(row.update, row.fields[name]) for row in monitors if name in row.fields]
        updates = drawing.floats(update for update, _ in seen)
        stats = [stat for _, stat in seen]
        _draw_values(values, declared[name], updates, stats)
        _draw_spread(spreads, declared[name], updates, stats)
        values.set_ylabel(f"{name}, {declared[name].space} space", fontsize=TEXT_PT, parse_math=False)
        spreads.set_ylabel(f"spread of {name} / first spread", fontsize=TEXT_PT, parse_math=False)
        for axes in (values, spreads):
            drawing.update_axis(axes, updates[-1], ticks=5)
            drawing.legend(axes)
    return figure


def _draw_values(axes: Any, bounds: FieldBounds, updates: Floats, stats: Sequence[FieldStats]) -> None:
    low = _natural([stat.low for stat in stats], bounds)
    median = _natural([stat.median for stat in stats], bounds)
    high = _natural([stat.high for stat in stats], bounds)
    band = f"{bounds.low:g}th to {bounds.high:g}th percentile"
    axes.fill_between(updates, low, high, color=PALETTE[0], label=band, **BAND)
    for edge in (low, high):
        drawing.line(axes, updates, edge, color=PALETTE[0], linewidth=1)
    drawing.dotted_line(axes, updates, median, color=PALETTE[0], label="median", **TREND)
    if bounds.space == "log":
        bottom, top = drawing.least([low]), drawing.greatest([high])
        margin = max((top / bottom) ** 0.06, 1.01)
        drawing.log_axis(axes, bottom / margin, top * margin)


def _natural(values: Sequence[float | None], bounds: FieldBounds) -> Floats:
    """The field itself: statistics of a log field are of its natural logarithms."""
    found = drawing.floats(values)
    return np.exp(np.clip(found, -300, 300)) if bounds.space == "log" else found


def _draw_spread(axes: Any, bounds: FieldBounds, updates: Floats, stats: Sequence[FieldStats]) -> None:
    shares = drawing.floats(
        stat.spread / stat.reference_spread if stat.spread is not None and stat.reference_spread else None
        for stat in stats
    )
    drawing.dotted_line(axes, updates, shares, color=PALETTE[0], linewidth=2)
    limit = f"collapse: {bounds.collapse:g}"
    axes.axhline(bounds.collapse, color=BAD, linewidth=1.6, linestyle="--", label=limit)
    axes.axhspan(0, bounds.collapse, color=BAD, alpha=0.07, linewidth=0)
    collapsed = np.array([stat.collapsed for stat in stats])
    if collapsed.any():
        heights = np.where(np.isnan(shares), bounds.collapse, shares)[collapsed]
        label = f"collapsed at {collapsed.sum():,} of {len(stats):,}"
        axes.plot(updates[collapsed], heights, label=label, **CROSS)
    low, high = drawing.least([shares]), drawing.greatest([shares])
    drawing.value_axis(axes, min(low, bounds.collapse), max(high, 1.0))
