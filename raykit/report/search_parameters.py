"""The values of a search against its parameters: a panel for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from raykit.read.search import RowRead, SearchRead
from raykit.report import drawing
from raykit.report.drawing import INK, TEXT_PT
from raykit.report.search_rows import (
    draw_rows,
    frame,
    notes,
    references,
    title_of,
    value_axis,
)

MOST_PANELS = 6
"""So many parameters have a panel."""
LEGEND_SHARE = 0.1
"""Of the legend's row, where a row of panels has 1."""


def parameters_figure(read: SearchRead) -> Figure:
    """One panel for each searched parameter: what rows came to, by what they had of it."""
    names = list(read.registration.space)
    shown = names[:MOST_PANELS]
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = drawing.new_figure(
        title_of(read, "value against parameters"), height_px=drawing.HEIGHT_PX if lines == 1 else 1100
    )
    rows = [row for row in read.rows if row.params is not None and row.attempts]
    if not any(row.value is not None for row in rows):
        return drawing.blank(figure, "no row has reported a value yet")
    grid = figure.add_gridspec(lines + 1, columns, height_ratios=[LEGEND_SHARE] + [1.0] * lines)
    panels: list[Any] = []
    for n, name in enumerate(shown):
        place, left = grid[n // columns + 1, n % columns], panels[n // columns * columns :][:1]
        axes = figure.add_subplot(place, sharey=left[0] if left else None)
        panels.append(axes)
        _panel(axes, read, name, [row for row in rows if name in (row.params or {})], first=not left)
    _legend_above(figure.add_subplot(grid[0, :]), panels[0])
    more = (
        [f"not drawn: {', '.join(map(drawing.label_of, names[len(shown) :]))}"] if names[len(shown) :] else []
    )
    drawing.notes(figure, [*notes(read, rows), *more])
    return figure


def _legend_above(room: Any, axes: Any) -> None:
    """One legend for all panels, in a row of its own."""
    room.set_axis_off()
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "upper left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.0}
    made = room.legend(handles, labels, ncols=4, frameon=False, fontsize=TEXT_PT, labelcolor=INK, **place)
    for text in made.get_texts():
        text.set_parse_math(False)


def _panel(axes: Any, read: SearchRead, name: str, rows: Sequence[RowRead], *, first: bool) -> None:
    span = {form: each for form, each in read.registration.space[name].items() if each is not None}
    choices = list(span.get("choice", ()))
    value_axis(axes, read, [row for row in read.rows if row.attempts])
    _parameter_axis(axes, span, choices)

    def at(row: RowRead) -> float:
        value = (row.params or {})[name]
        return float(choices.index(value)) if choices else float(value)

    known = [row for row in rows if not choices or (row.params or {})[name] in choices]
    draw_rows(axes, read, known, at)
    references(axes, read, named=first)
    frame(axes)
    axes.set_xlabel(drawing.label_of(name), fontsize=TEXT_PT, parse_math=False)
    if not first:
        axes.set_ylabel("")
        axes.tick_params(labelleft=False)


def _parameter_axis(axes: Any, span: Mapping[str, Any], choices: Sequence[object]) -> None:
    """The axis of a parameter: its choices, or all of its span."""
    if choices:
        axes.set_xlim(-0.5, len(choices) - 0.5)
        axes.xaxis.set_major_locator(FixedLocator(list(range(len(choices)))))
        axes.set_xticklabels([drawing.label_of(f"{each}") for each in choices], parse_math=False)
        return
    low, high = next(iter(span.values()))
    _span_axis(axes, float(low), float(high), log="loguniform" in span)


def _span_axis(axes: Any, low: float, high: float, *, log: bool) -> None:
    """All of what may be tried, so that what was not is seen."""
    if not log:
        room = (high - low) * 0.04 or 1.0
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        return
    axes.set_xscale("log")
    room = (high / low) ** 0.04
    axes.set_xlim(low / room, high * room)
    axes.xaxis.set_major_locator(FixedLocator(_log_ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _log_ticks(low: float, high: float) -> list[float]:
    """Few enough to be read: decades, with halves of them where the range is short."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        ticks = [step * 10.0**d for d in decades for step in steps if low <= step * 10.0**d <= high]
        if len(ticks) <= 5:
            return ticks or [low, high]
    return ticks[:: -(-len(ticks) // 5)]
