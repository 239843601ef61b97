"""How the page says numbers, times and names. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from raykit.records import MICRO, Unit

NONE = "\u2013"
"""Where there is nothing to say."""

MAX_TEXT = 2000
MAX_NAME = 60
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_JOINER = "\u200d"
"""Joins emoji, and turns nothing around."""


def clean(text: str, most: int = MAX_TEXT) -> str:
    """`text` without control and direction characters, and not longer than anybody reads."""
    plain = "".join(_shown(c) for c in text[: most + 1])
    return plain if len(text) <= most else f"{plain[:most]}\u2026"


def _shown(c: str) -> str:
    if c == _JOINER or unicodedata.category(c) not in _UNSEEN:
        return c
    return " " if c in "\n\t\r" else ""


def name(text: str) -> str:
    """A recipe's or person's word, short enough for a cell."""
    return clean(text, MAX_NAME)


def short(digest: str) -> str:
    """Enough of a digest to tell two apart by eye."""
    return digest[:8]


def number(value: float | None) -> str:
    """A figure with four digits that count, or a dash."""
    return NONE if value is None or value != value else f"{value:.4g}"


def percent(part: float, whole: float) -> float:
    """The share of a whole, for a place on the page."""
    return round(100 * part / whole, 3) if whole else 0.0


def moment(at: float) -> str:
    """A time, in UTC so that it is the same for whoever looks."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: float) -> str:
    """`0.42 s`, `38 s`, `4 min 2 s`, `5 h 21 min`, `2 d 3 h`."""
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    for size, big, less, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {big}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def size(size_bytes: int) -> str:
    """`13200000000` as `13.2 GB`."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if round(value, 1) < 1000 or unit == "PB":
            break
        value /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def amount(micros: int, unit: Unit) -> str:
    """Micro-units in a sentence: `$59.72`, `$0.0021`, `12.50 h`."""
    value = micros / MICRO
    text = f"{value:,.2f}" if abs(value) >= 1 or micros == 0 else f"{value:,.4f}"
    return f"${text}" if unit == "usd" else f"{text} h"


def many(count: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def evenly(count: int, most: int, keep: Sequence[int] = ()) -> list[int]:
    """At most `most` of the indices below `count`: the ends, those to `keep` as far as there is room, some between."""
    if count <= most:
        return list(range(count))
    chosen = [0, count - 1, *keep][:most]
    left = sorted(set(range(count)) - set(chosen))
    room = most - len(set(chosen))
    between = [left[(2 * n + 1) * len(left) // (2 * room)] for n in range(room)] if room > 0 else []
    return sorted({*chosen, *between})
