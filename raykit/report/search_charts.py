"""The charts of a search from its table alone: values in order of start, against cost, and against parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from raykit.read.search import RowRead, SearchRead
from raykit.report import drawing
from raykit.report.drawing import INK, SMALL_PT, TEXT_PT
from raykit.report.search_parameters import parameters_figure
from raykit.report.search_rows import (
    DONE,
    draw_rows,
    frame,
    is_picked,
    notes,
    references,
    title_of,
    value_axis,
)
from raykit.store import layout
from raykit.store.base import ObjectStore

TRIALS, COST, PARAMETERS = "trials.png", "cost.png", "parameters.png"

MOST_LABELS = 40
"""So many rows have their number below them."""
MICRO = 1_000_000
MINUTE_MS = 60_000


def put_search_pictures(
    store: ObjectStore, read: SearchRead, *, say: Callable[[str], None] = lambda _: None
) -> dict[str, bytes]:
    """Draw the charts of a search anew and keep them; by key, the picture. `say` hears of what fails.

    Derived: nothing is raised, no picture is worth a search.
    """
    drawn: dict[str, bytes] = {}
    for file, figure in search_figures(read):
        key = layout.search_picture(read.experiment, read.registration.search, file)
        try:
            picture = drawing.png(figure())
            drawn[key] = picture
            store.put_derived(key, picture)
        except Exception as error:  # noqa: BLE001 - a picture that cannot be drawn is no reason to stop anything
            say(f"{file} could not be drawn or kept: {error}")
    return drawn


def search_figures(read: SearchRead) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """By file, what draws it; nothing before a row has begun."""
    if not any(row.begun_at is not None for row in read.rows):
        return
    yield TRIALS, lambda: trials_figure(read)
    yield COST, lambda: cost_figure(read)
    yield PARAMETERS, lambda: parameters_figure(read)


# --- in order of start --------------------------------------------------------------------------------------


def trials_figure(read: SearchRead) -> Figure:
    """Every row that began, in the order in which they did; the best so far, the incumbent, and no skill."""
    figure = drawing.new_figure(title_of(read, "trials in order of start"))
    begun = sorted(
        (row for row in read.rows if row.begun_at is not None), key=lambda row: (row.begun_at, row.row)
    )
    if not any(row.value is not None for row in begun):
        return drawing.blank(figure, "no row has reported a value yet")
    axes = figure.subplots()
    places = {row.row: n for n, row in enumerate(begun, start=1)}
    value_axis(axes, read, begun)
    axes.set_xlim(0.4, len(begun) + 0.6)
    _best_so_far(axes, read, begun)
    draw_rows(axes, read, begun, lambda row: float(places[row.row]))
    references(axes, read)
    frame(axes)
    axes.set_xlabel(
        f"row of the table, in order of start ({len(begun):,} of {len(read.rows):,} have begun)",
        fontsize=TEXT_PT,
    )
    _row_labels(axes, begun)
    drawing.legend(axes)
    drawing.notes(figure, list(notes(read, begun)))
    return figure


def _best_so_far(axes: Any, read: SearchRead, begun: Sequence[RowRead]) -> None:
    """The best value of all completed rows up to here: a step where one was better."""
    at, values = [], []
    best: float | None = None
    for place, row in enumerate(begun, start=1):
        if row.counts and (best is None or read.order(row.value) < read.order(best)):
            best = row.value
        if best is not None:
            at.append(float(place))
            values.append(best)
    if len(at) > 1:
        style = {"color": DONE, "linewidth": 1.8, "alpha": 0.6, "zorder": 2}
        axes.step(at, values, where="post", label="best so far", **style)


def _row_labels(axes: Any, begun: Sequence[RowRead]) -> None:
    step = 1 if len(begun) <= MOST_LABELS else -(-len(begun) // (MOST_LABELS // 2))
    shown = list(range(0, len(begun), step))
    axes.xaxis.set_major_locator(FixedLocator([n + 1 for n in shown]))
    axes.set_xticklabels([_label(begun[n]) for n in shown], fontsize=TEXT_PT if step == 1 else SMALL_PT)


def _label(row: RowRead) -> str:
    """Its number; below that of a repeat, the row that it repeats."""
    return str(row.row) if row.repeats is None else f"{row.row}\n= {row.repeats}"


# --- against cost -------------------------------------------------------------------------------------------


def cost_figure(read: SearchRead) -> Figure:
    """Each row's value against what it took, and the rows than which none is both better and cheaper."""
    figure = drawing.new_figure(title_of(read, "value against cost"))
    billed = bool(read.registration.total_worst)

    def took(row: RowRead) -> float:
        return row.spent / MICRO if billed else row.accelerator_ms / MINUTE_MS

    rows = [row for row in read.rows if row.attempts]
    if not any(row.value is not None for row in rows):
        return drawing.blank(figure, "no row has reported a value yet")
    axes = figure.subplots()
    value_axis(axes, read, rows)
    most = max(map(took, rows), default=0.0)
    axes.set_xlim(0, most * 1.06 if most else 1.0)
    front = pareto(read, [row for row in rows if row.counts], took)
    if len(front) > 1:
        style = {"color": DONE, "linewidth": 1.8, "alpha": 0.6, "zorder": 2}
        values = [row.value for row in front]
        axes.step(list(map(took, front)), values, where="post", label="none is better and cheaper", **style)
    draw_rows(axes, read, rows, took)
    references(axes, read)
    frame(axes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    unit = {"usd": "US dollars", "accelerator-hours": "accelerator-hours"}.get(read.unit, read.unit)
    what = unit if billed else "accelerator-minutes, not billed"
    axes.set_xlabel(f"cost of all attempts of a row: {what}", fontsize=TEXT_PT)
    for row in rows:
        if row.value is not None and (row in front or is_picked(read, row)):
            away = (0, 15) if is_picked(read, row) else (0, -19)  # outside of the ring
            place = {"xytext": away, "textcoords": "offset points", "ha": "center", "zorder": 6}
            axes.annotate(f"{row.row}", (took(row), row.value), fontsize=SMALL_PT, color=INK, **place)
    drawing.legend(axes)
    drawing.notes(figure, list(notes(read, rows)))
    return figure


def pareto(read: SearchRead, rows: Sequence[RowRead], took: Callable[[RowRead], float]) -> list[RowRead]:
    """The rows than which none is both better and cheaper, the cheapest first."""
    front: list[RowRead] = []
    for row in sorted(rows, key=lambda row: (took(row), read.order(row.value), row.row)):
        if not front or read.order(row.value) < read.order(front[-1].value):
            front.append(row)
    return front
