"""The examinations of a suite over updates: one picture per metric and field, made from receipts alone.

The pooled score is bold and the strata are faint; no skill and the declared threshold are lines with their names, and
the side that fails is shaded. A checkpoint that failed has a cross. One that has no receipt yet has an open circle on
the axis: it is never left out, and never drawn as if it had passed.

`*_figure` makes the figure, `draw_qc` the PNG of every one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from raykit.qc.backlog import Standing
from raykit.records import Suite
from raykit.report import drawing
from raykit.report.curves import BAND, CROSS, TREND
from raykit.report.drawing import BAD, HEIGHT_PX, INK, MUTED, PALETTE, TEXT_PT, Floats
from raykit.report.qc_series import (
    MAX_CHARTS,
    MAX_STRATA,
    FieldSeries,
    MetricSeries,
    Waiting,
    drawn_of,
    examined,
    field_series,
    fields_of,
    metric_series,
    picture_file,
)

STRATUM: dict[str, Any] = {"linewidth": 1.2, "alpha": 0.8}
FAINT: dict[str, Any] = {"color": MUTED, "linewidth": 0.9, "alpha": 0.6, "zorder": 1}
POOLED: dict[str, Any] = {"color": INK, "linewidth": 3.0, "zorder": 3}
FAILED_ELSE: dict[str, Any] = {**CROSS, "color": MUTED, "markersize": 8}
WAITING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 10,
    "markerfacecolor": "white",
    "markeredgecolor": MUTED,
    "markeredgewidth": 1.8,
    "zorder": 6,
    "clip_on": False,
}
STRATA_COLOURS = (*PALETTE, "#999999", "#882255", "#44AA99", "#117733")
"""As many as there may be lines: Okabe and Ito's, then Tol's."""


def draw_qc(standings: Sequence[Standing], suite: Suite, *, title: str) -> dict[str, bytes]:
    """By file: the PNG of every chart."""
    return {file: drawing.png(figure()) for file, figure in qc_figures(standings, suite, title=title)}


def qc_figures(
    standings: Sequence[Standing], suite: Suite, *, title: str
) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """By file, what makes its figure: metrics that tell something, then fields; at most `MAX_CHARTS` of each."""
    found = examined(standings)
    if not found.receipts:
        return
    for metric in drawn_of(found, suite)[:MAX_CHARTS]:
        series = metric_series(found, suite, metric)
        yield picture_file("metric", metric), _maker(metric_figure, series, title)
    for field in fields_of(found, suite)[:MAX_CHARTS]:
        seen = field_series(found, suite, field)
        yield picture_file("field", field), _maker(field_figure, seen, title)


def _maker(figure: Callable[..., Figure], series: object, title: str) -> Callable[[], Figure]:
    return lambda: figure(series, title=title)


# --- a metric -----------------------------------------------------------------------------------------------


def metric_figure(series: MetricSeries, *, title: str) -> Figure:
    """One metric at every examined checkpoint: pooled, by stratum, against no skill and its threshold."""
    figure = drawing.new_figure(title)
    if np.isnan(series.pooled).all() and all(np.isnan(line).all() for line in series.strata.values()):
        return drawing.blank(figure, f"{drawing.label_of(series.metric)} is undefined at every checkpoint")
    axes = figure.subplots()
    _draw_strata(axes, series)
    label = f"all: last {drawing.last(series.pooled)}"
    drawing.dotted_line(axes, series.updates, series.pooled, label=label, **POOLED)
    low, high = _extent(series)
    _value_axis(axes, low, high)
    _draw_no_skill(axes, series)
    _draw_limit(axes, series)
    heights = np.where(np.isnan(series.pooled), axes.get_ylim()[0], series.pooled)
    _draw_failed(axes, series.updates, heights, series.failed, series.failed_else)
    _draw_waiting(axes, series.waiting)
    axes.set_ylabel(drawing.label_of(series.metric), fontsize=TEXT_PT, parse_math=False)
    drawing.update_axis(axes, series.last_update)
    drawing.legend(axes, columns=3 if len(series.strata) < 4 else 5)
    drawing.notes(figure, list(_metric_notes(series)))
    return figure


def _draw_strata(axes: Any, series: MetricSeries) -> None:
    if len(series.strata) < 2:
        return  # one stratum is all there is, and the pooled line is its line
    if len(series.strata) <= MAX_STRATA:
        for (name, line), colour in zip(series.strata.items(), STRATA_COLOURS, strict=False):
            drawing.dotted_line(
                axes, series.updates, line, color=colour, label=drawing.label_of(name), **STRATUM
            )
        return
    low, high = series.band
    label = f"least to greatest of {len(series.strata):,} strata"
    axes.fill_between(series.updates, low, high, color=PALETTE[0], label=label, **BAND)
    for edge in (low, high):
        drawing.line(axes, series.updates, edge, color=PALETTE[0], linewidth=0.8)
    if series.worst is not None:
        worst = series.strata[series.worst]
        label = f"worst now, {drawing.label_of(series.worst)}: {drawing.last(worst)}"
        drawing.dotted_line(axes, series.updates, worst, color=PALETTE[1], label=label, linewidth=1.6)


def _extent(series: MetricSeries) -> tuple[float, float]:
    lines = [series.pooled, series.no_skill, *series.strata.values()]
    if series.limit is not None and series.limit.value is not None:
        lines.append(np.array([series.limit.value]))
    return drawing.least(lines), drawing.greatest(lines)


def _value_axis(axes: Any, low: float, high: float) -> None:
    """From 0 where that is near, logarithmic where the range needs it, and else just what there is."""
    if low > 0 and high / low >= drawing.LOG_FROM:
        drawing.log_axis(axes, low / 1.25, high * 1.25)
        return
    margin = 0.08 * (high - low) or 0.08 * abs(high) or 0.08
    from_zero = 0 <= low <= high / 2
    axes.set_ylim(0.0 if from_zero else low - margin, high + margin)


def _draw_no_skill(axes: Any, series: MetricSeries) -> None:
    """The line of what knowing nothing scores, and its name beside the axes where no curve can cover it."""
    known = series.no_skill[~np.isnan(series.no_skill)]
    if not known.size:
        return
    axes.axhline(known[-1], color=INK, linewidth=1.6, linestyle="--", zorder=2)
    style = {"va": "center", "fontsize": TEXT_PT, "color": INK, "annotation_clip": False}
    place = {"xycoords": axes.get_yaxis_transform(), "xytext": (7, 0), "textcoords": "offset points"}
    axes.annotate(f"no skill: {known[-1]:.3g}", (1.0, known[-1]), **place, **style)


def _draw_limit(axes: Any, series: MetricSeries) -> None:
    limit = series.limit
    if limit is None or limit.value is None:
        return
    label = f"fails if {limit.words}"
    axes.axhline(limit.value, color=BAD, linewidth=1.6, linestyle=(0, (6, 3)), zorder=2, label=label)
    low, high = axes.get_ylim()
    edge = high if limit.fails_above else low
    axes.axhspan(limit.value, edge, color=BAD, alpha=0.07, linewidth=0)
    axes.set_ylim(low, high)


def _draw_failed(
    axes: Any, updates: Floats, heights: Floats, by_it: drawing.Flags, otherwise: drawing.Flags
) -> None:
    marks = ((by_it, "failed", CROSS), (otherwise, "failed otherwise", FAILED_ELSE))
    for which, label, style in marks:
        if which.any():
            axes.plot(updates[which], heights[which], label=f"{label}: {which.sum():,}", **style)


def _draw_waiting(axes: Any, waiting: Sequence[Waiting]) -> None:
    """What has no receipt, on the axis."""
    if waiting:
        at = drawing.floats(float(each.update) for each in waiting)
        place = {"transform": axes.get_xaxis_transform()}
        axes.plot(at, np.zeros_like(at), label=f"not examined: {len(at):,}", **place, **WAITING)


def _metric_notes(series: MetricSeries) -> Iterator[str]:
    undefined = int(np.isnan(series.pooled).sum())
    if undefined:
        yield f"{series.metric} is undefined at {undefined:,} of {len(series.pooled):,} checkpoints"
    if series.limit is not None and series.limit.value is None:
        yield f"its threshold, {series.limit.words}, has no base yet: update 0 is not examined"
    if series.unjudged.any():
        yield "not judged at update 0: the model had learned nothing yet"
    if series.limit is None:
        yield "no threshold is declared for it"


# --- a field ------------------------------------------------------------------------------------------------


def field_figure(series: FieldSeries, *, title: str) -> Figure:
    """Two panels: median and percentiles in the field's own space; below, its spread against update 0."""
    figure = drawing.new_figure(title, height_px=HEIGHT_PX * 9 // 8)
    values, spreads = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _draw_field(values, series)
    _draw_shares(spreads, series)
    values.set_ylabel(
        f"{drawing.label_of(series.field)}, {series.space} space", fontsize=TEXT_PT, parse_math=False
    )
    spreads.set_ylabel("spread / spread at update 0", fontsize=TEXT_PT)
    for axes in (values, spreads):
        _draw_waiting(axes, series.waiting)
        drawing.update_axis(axes, series.last_update)
        axes.label_outer()
        drawing.legend(axes, columns=5)
    drawing.notes(figure, list(_field_notes(series)))
    return figure


def _draw_field(axes: Any, series: FieldSeries) -> None:
    rule = series.rule
    band = "low to high percentile" if rule is None else f"{rule.low:g}th to {rule.high:g}th percentile"
    if 2 <= len(series.strata) <= MAX_STRATA:
        for n, line in enumerate(series.strata.values()):
            label = "each stratum's median" if n == 0 else None
            drawing.line(axes, series.updates, line, label=label, **FAINT)
    axes.fill_between(series.updates, series.low, series.high, color=PALETTE[0], label=band, **BAND)
    for edge in (series.low, series.high):
        drawing.line(axes, series.updates, edge, color=PALETTE[0], linewidth=1)
    drawing.dotted_line(axes, series.updates, series.median, color=PALETTE[0], label="median", **TREND)
    lines = [series.low, series.median, series.high]
    low, high = drawing.least(lines), drawing.greatest(lines)
    if series.space == "log" and low > 0:
        margin = max((high / low) ** 0.06, 1.01)
        drawing.log_axis(axes, low / margin, high * margin)


def _draw_shares(axes: Any, series: FieldSeries) -> None:
    drawing.dotted_line(axes, series.updates, series.shares, label="all", **POOLED)
    if 2 <= len(series.strata_shares) <= MAX_STRATA:
        for n, line in enumerate(series.strata_shares.values()):
            label = "each stratum, against its own" if n == 0 else None
            drawing.line(axes, series.updates, line, label=label, **FAINT)
    low, high = drawing.least([series.shares]), drawing.greatest([series.shares])
    if series.rule is not None:
        collapse = series.rule.collapse
        low = min(low, collapse)
        axes.axhline(collapse, color=BAD, linewidth=1.6, linestyle="--", label=f"collapse: {collapse:g}")
        axes.axhspan(0, collapse, color=BAD, alpha=0.07, linewidth=0)
    drawing.value_axis(axes, low, max(high, 1.0))
    heights = np.where(np.isnan(series.shares), axes.get_ylim()[0], series.shares)
    _draw_failed(axes, series.updates, heights, series.failed, series.failed_else)


def _field_notes(series: FieldSeries) -> Iterator[str]:
    if series.collapsed.any():
        yield f"collapsed at {_at(series.updates[series.collapsed])}"
    if series.dead:
        update, dead = series.dead[-1]
        shown = ", ".join(str(each) for each in dead[:12]) + (", ..." if len(dead) > 12 else "")
        dimensions = "dimension" if len(dead) == 1 else "dimensions"
        yield f"dead at update {update:,}: {dimensions} {shown}"
    yield from _last_note(series.at_ends, "{:.1%} of its values at one end of its range, last")
    rise = "permuted over units, it raises the ratio by {:.3g}, last"
    if series.rule is not None and series.rule.used is not None:
        rise += f" (at least {series.rule.used:g} wanted)"
    yield from _last_note(series.rise, rise)
    broken = series.finite < 1
    if broken.any():
        yield f"values that are not finite at {_at(series.updates[broken])}"


def _last_note(values: Floats, text: str) -> Iterator[str]:
    known = values[~np.isnan(values)]
    if known.size and math.isfinite(known[-1]):
        yield text.format(known[-1])


def _at(updates: Floats) -> str:
    """`update 400`, `updates 400, 600 and 3 more`."""
    shown = ", ".join(f"{update:,.0f}" for update in updates[:3])
    more = f" and {len(updates) - 3:,} more" if len(updates) > 3 else ""
    return f"update{'' if len(updates) == 1 else 's'} {shown}{more}"
