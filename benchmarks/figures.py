"""What a benchmark found, and the table that it prints."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata

import psutil

PACKAGES = ("torch", "lightning", "pydantic", "safetensors")
HEAD = "| | median | min to max | bar |\n|---|---|---|---|"
DIGITS = {"x": 3, "s": 3, "ms": 2, "us": 1, "MB": 0}
"""By unit: so many digits say more than chance does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: the same thing measured a few times, and the bar it is held against, if any."""

    what: str
    unit: str
    values: Sequence[float]
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def missed(self) -> bool:
        return self.at_most is not None and self.median > self.at_most


def main(measure: Callable[[], Iterable[Figure]]) -> int:
    """Measure, print each figure as it comes, and return the exit code: 1 if a bar was missed."""
    print(f"{machine()}\n\n{HEAD}", flush=True)
    before_s, start, missed = _others_s(), time.perf_counter(), False
    for figure in measure():
        print(line(figure), flush=True)
        missed |= figure.missed
    available_s = (time.perf_counter() - start) * (os.cpu_count() or 1)
    others = (_others_s() - before_s) / available_s
    print(f"\nOther processes took {others:.0%} of the processors meanwhile.")
    return int(missed)


def _others_s() -> float:
    """Processor seconds since boot of all but this process and its children that have ended."""
    every, mine = psutil.cpu_times(), os.times()
    busy_s = sum(every) - every.idle - getattr(every, "iowait", 0.0) - getattr(every, "guest", 0.0)
    return float(busy_s - (mine.user + mine.system + mine.children_user + mine.children_system))


def machine() -> str:
    """Where and when, on what."""
    installed = {found.metadata["Name"]: found.version for found in metadata.distributions()}
    versions = ", ".join(f"{name} {installed[name]}" for name in PACKAGES if name in installed)
    return (
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"Python {platform.python_version()}, {versions}"
    )


def line(figure: Figure) -> str:
    """Markdown: median, smallest and largest, and whether the bar was met."""
    low, high = (_number(pick(figure.values), figure.unit) for pick in (min, max))
    return f"| {figure.what} | {_number(figure.median, figure.unit)} | {low} to {high} | {_bar(figure)} |"


def _bar(figure: Figure) -> str:
    if figure.at_most is None:
        return ""
    return f"at most {figure.at_most:g}: {'missed' if figure.missed else 'met'}"


def _number(value: float, unit: str) -> str:
    return f"{value:.{DIGITS[unit]}f} {unit}"
