"""The charts of a search from its table alone: values in order of start, value against cost, value against parameters.

Every row that reported a value is drawn, whatever became of it; only completed rows, drawn full, can be picked. What
has no value has a cross at the foot of the picture: a row that failed is not one that was never tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from raykit.read.search import RowRead, RowStatus, SearchRead
from raykit.report import drawing
from raykit.report.drawing import BAD, INK, MUTED, PALETTE, SMALL_PT, TEXT_PT
from raykit.store import layout
from raykit.store.base import ObjectStore

TRIALS, COST, PARAMETERS = "trials.png", "cost.png", "parameters.png"

MOST_LABELS = 40
"""So many rows have their number below them."""
MOST_NAME = 60
MOST_PANELS = 6
"""So many parameters have a panel."""
MOST_FAR = 6
"""So many values beyond the picture are written beside their arrows."""
MOST_LINES = 3
LINE_PT, CHARACTER_PT = 1.2 * SMALL_PT, 0.65 * SMALL_PT
"""Room of a small label: from one line to the next, and a character of it."""
MICRO = 1_000_000
MINUTE_MS = 60_000
LEGEND_SHARE = 0.1
"""Of the legend's row, where a row of panels has 1."""
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
    figure = drawing.new_figure(_title(read, "trials in order of start"))
    begun = sorted(
        (row for row in read.rows if row.begun_at is not None), key=lambda row: (row.begun_at, row.row)
    )
    if not any(row.value is not None for row in begun):
        return drawing.blank(figure, "no row has reported a value yet")
    axes = figure.subplots()
    places = {row.row: n for n, row in enumerate(begun, start=1)}
    _value_axis(axes, read, begun)
    axes.set_xlim(0.4, len(begun) + 0.6)
    _best_so_far(axes, read, begun)
    _draw_rows(axes, read, begun, lambda row: float(places[row.row]))
    _references(axes, read)
    _frame(axes)
    axes.set_xlabel(
        f"row of the table, in order of start ({len(begun):,} of {len(read.rows):,} have begun)",
        fontsize=TEXT_PT,
    )
    _row_labels(axes, begun)
    drawing.legend(axes)
    drawing.notes(figure, list(_notes(read, begun)))
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
    figure = drawing.new_figure(_title(read, "value against cost"))
    billed = bool(read.registration.total_worst)

    def took(row: RowRead) -> float:
        return row.spent / MICRO if billed else row.accelerator_ms / MINUTE_MS

    rows = [row for row in read.rows if row.attempts]
    if not any(row.value is not None for row in rows):
        return drawing.blank(figure, "no row has reported a value yet")
    axes = figure.subplots()
    _value_axis(axes, read, rows)
    most = max(map(took, rows), default=0.0)
    axes.set_xlim(0, most * 1.06 if most else 1.0)
    front = pareto(read, [row for row in rows if row.counts], took)
    if len(front) > 1:
        style = {"color": DONE, "linewidth": 1.8, "alpha": 0.6, "zorder": 2}
        values = [row.value for row in front]
        axes.step(list(map(took, front)), values, where="post", label="none is better and cheaper", **style)
    _draw_rows(axes, read, rows, took)
    _references(axes, read)
    _frame(axes)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    unit = {"usd": "US dollars", "accelerator-hours": "accelerator-hours"}.get(read.unit, read.unit)
    what = unit if billed else "accelerator-minutes, not billed"
    axes.set_xlabel(f"cost of all attempts of a row: {what}", fontsize=TEXT_PT)
    for row in rows:
        if row.value is not None and (row in front or _is_picked(read, row)):
            away = (0, 15) if _is_picked(read, row) else (0, -19)  # outside of the ring
            place = {"xytext": away, "textcoords": "offset points", "ha": "center", "zorder": 6}
            axes.annotate(f"{row.row}", (took(row), row.value), fontsize=SMALL_PT, color=INK, **place)
    drawing.legend(axes)
    drawing.notes(figure, list(_notes(read, rows)))
    return figure


def pareto(read: SearchRead, rows: Sequence[RowRead], took: Callable[[RowRead], float]) -> list[RowRead]:
    """The rows than which none is both better and cheaper, the cheapest first."""
    front: list[RowRead] = []
    for row in sorted(rows, key=lambda row: (took(row), read.order(row.value), row.row)):
        if not front or read.order(row.value) < read.order(front[-1].value):
            front.append(row)
    return front


# --- against parameters -------------------------------------------------------------------------------------


def parameters_figure(read: SearchRead) -> Figure:
    """One panel for each searched parameter: what rows came to, by what they had of it."""
    names = list(read.registration.space)
    shown = names[:MOST_PANELS]
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = drawing.new_figure(
        _title(read, "value against parameters"), height_px=drawing.HEIGHT_PX if lines == 1 else 1100
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
    drawing.notes(figure, [*_notes(read, rows), *more])
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
    _value_axis(axes, read, [row for row in read.rows if row.attempts])
    _parameter_axis(axes, span, choices)

    def at(row: RowRead) -> float:
        value = (row.params or {})[name]
        return float(choices.index(value)) if choices else float(value)

    known = [row for row in rows if not choices or (row.params or {})[name] in choices]
    _draw_rows(axes, read, known, at)
    _references(axes, read, named=first)
    _frame(axes)
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


# --- what they share ----------------------------------------------------------------------------------------


def _title(read: SearchRead, what: str) -> str:
    name = read.experiment
    return f"{name if len(name) <= MOST_NAME else f'{name[: MOST_NAME - 2]}..'}: {what}"


def _draw_rows(axes: Any, read: SearchRead, rows: Sequence[RowRead], at: Callable[[RowRead], float]) -> None:
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
    picked = [row for row in rows if _is_picked(read, row) and row.value is not None]
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
    colours = {status: mark.colour for mark in MARKS for status in mark.statuses}
    across = axes.get_xaxis_transform()
    places = _apart(axes, {row.row: at(row) for row in far}, {row.row: f"{row.value:.3g}" for row in far})
    for n, row in enumerate(far):
        label = f"beyond the picture ({len(far):,})" if n == 0 else None
        style = {"linestyle": "none", "marker": marker, "markersize": size + 2, "zorder": 5}
        axes.plot(
            [at(row)], [edge], label=label, color=colours.get(row.status, INK), transform=across, **style
        )
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


def _is_picked(read: SearchRead, row: RowRead) -> bool:
    return read.picked is not None and row.row == read.picked.row


def _value_axis(axes: Any, read: SearchRead, rows: Sequence[RowRead]) -> None:
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


def _references(axes: Any, read: SearchRead, *, named: bool = True) -> None:
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


def _frame(axes: Any) -> None:
    axes.grid(color=drawing.RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=TEXT_PT, color=drawing.RULE, labelcolor=INK)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set(visible=side in ("left", "bottom"), color=MUTED)


def _notes(read: SearchRead, rows: Sequence[RowRead]) -> Iterator[str]:
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
