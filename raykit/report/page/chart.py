"""A chart as shapes in percent of its box, so that it fits every screen while its words keep their size. Pure.

The lines are one SVG that is stretched to the box, with strokes that are not; ticks, names and marks are text beside
it. Colours are classes: the page has them for light and for dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.ticker import MaxNLocator

from raykit.report.drawing import LOG_FROM, Floats, greatest, least

WIDTH, HEIGHT = 1000, 400
"""Of the drawing, before it is stretched."""

Sign = Literal["cross", "cross-else", "ring"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From values to percent of the box."""

    low: float
    high: float
    log: bool = False

    def percent(self, value: float) -> float:
        """0 at the low end, 100 at the high one."""
        if self.log:
            return 100 * (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return 100 * (value - self.low) / (self.high - self.low)

    def percents(self, values: Floats) -> Floats:
        """The same of many; NaN where a value has no place."""
        if self.log:
            whole = math.log(self.high) - math.log(self.low)
            with np.errstate(divide="ignore", invalid="ignore"):
                found = 100 * (np.log(values) - math.log(self.low)) / whole
            return np.where(np.isfinite(found), found, np.nan)
        return 100 * (values - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """A few round values."""
        decades = math.log10(self.high) - math.log10(self.low) if self.log else 0.0
        if decades < 1:
            found = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
            return [float(value) for value in found if self.low <= value <= self.high]
        steps = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil(decades / 6))
        powers = range(first, last + 1, every)
        return [s * 10.0**p for p in powers for s in steps if self.low <= s * 10.0**p <= self.high]


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One line, band or set of dots."""

    d: str
    css: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A value that is drawn right across, with its name."""

    top: float
    text: str
    css: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A sign at one place, with what it means."""

    left: float
    top: float
    sign: Sign
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upright:
    """A line at one update."""

    left: float
    text: str
    says: str
    css: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What a line or sign means, for the legend."""

    css: str
    text: str
    sign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that is drawn."""

    name: str
    says: str
    """In words, for whoever does not see it."""
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    paths: tuple[Path, ...]
    rules: tuple[Rule, ...] = ()
    shade: tuple[float, float] | None = None
    """Top and height of the side that fails."""
    uprights: tuple[Upright, ...] = ()
    marks: tuple[Mark, ...] = ()
    keys: tuple[Key, ...] = ()
    notes: tuple[str, ...] = ()


# --- scales -------------------------------------------------------------------------------------------------


def value_scale(lines: Sequence[Floats]) -> Scale:
    """From 0 where that is near, logarithmic where the range needs it, and else just what there is."""
    low, high = least(lines), greatest(lines)
    if low > 0 and high / low >= LOG_FROM:
        return Scale(low=low / 1.25, high=high * 1.25, log=True)
    margin = 0.08 * (high - low) or 0.08 * abs(high) or 0.08
    return Scale(low=0.0 if 0 <= low <= high / 2 else low - margin, high=high + margin)


def update_scale(last: float) -> Scale:
    """From the checkpoint at update 0."""
    return Scale(low=0.0, high=max(last, 1.0) * 1.01)


def x_ticks(scale: Scale) -> tuple[Tick, ...]:
    """Whole updates."""
    whole = [value for value in scale.ticks() if value == round(value)]
    return tuple(Tick(at=round(scale.percent(value), 3), text=f"{value:,.0f}") for value in whole)


def y_ticks(scale: Scale) -> tuple[Tick, ...]:
    """From the top."""
    return tuple(Tick(at=top(scale, value), text=f"{value:,.4g}") for value in scale.ticks())


def top(scale: Scale, value: float) -> float:
    """Where a value is, in percent from the top; at an end if it is beyond it."""
    return round(100 - min(100.0, max(0.0, scale.percent(value))), 3)


# --- paths --------------------------------------------------------------------------------------------------


def line(x: Scale, y: Scale, at: Floats, values: Floats) -> str:
    """A line with gaps where values are undefined; a point between two gaps is a dot."""
    return "".join(_pieces(x.percents(at) * WIDTH / 100, (100 - y.percents(values)) * HEIGHT / 100))


def _pieces(xs: Floats, ys: Floats) -> Iterator[str]:
    down, alone = False, False
    for px, py in zip(xs.tolist(), ys.tolist(), strict=True):
        if math.isnan(py):
            if alone:
                yield "h0"
            down = alone = False
            continue
        yield f"{'L' if down else 'M'}{px:.1f} {py:.1f}"
        alone = not down
        down = True
    if alone:
        yield "h0"


def dots(x: Scale, y: Scale, at: Floats, values: Floats) -> str:
    """A dot at every defined value: a line of no length with round ends."""
    xs, ys = x.percents(at) * WIDTH / 100, (100 - y.percents(values)) * HEIGHT / 100
    points = zip(xs.tolist(), ys.tolist(), strict=True)
    return "".join(f"M{px:.1f} {py:.1f}h0" for px, py in points if not math.isnan(py))


def band(x: Scale, y: Scale, at: Floats, low: Floats, high: Floats) -> str:
    """The area between two lines, in as many parts as the gaps leave."""
    xs = x.percents(at) * WIDTH / 100
    lows, highs = (np.clip((100 - y.percents(v)) * HEIGHT / 100, 0, HEIGHT) for v in (low, high))
    defined = ~(np.isnan(lows) | np.isnan(highs))
    parts = []
    for run in _runs(defined):
        there = [f"{xs[i]:.1f} {highs[i]:.1f}" for i in run]
        back = [f"{xs[i]:.1f} {lows[i]:.1f}" for i in reversed(run)]
        parts.append("M" + "L".join([*there, *back]) + "Z")
    return "".join(parts)


def _runs(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[list[int]]:
    found: list[int] = []
    for n, flag in enumerate(flags.tolist()):
        if flag:
            found.append(n)
        elif found:
            yield found
            found = []
    if found:
        yield found
