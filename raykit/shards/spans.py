"""Runs of unit numbers: `0-57,60` as people write it, spans as records hold it, numbers as arithmetic needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from raykit.errors import InvalidInput

Numbers = NDArray[np.int64]
Spans = tuple[tuple[int, int], ...]
"""First and last included, in order and apart."""

SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
SHOWN = 6
"""So many spans are shown of more."""


def numbers_of(units: Iterable[int]) -> Numbers:
    """Unit numbers in order, each once."""
    if not isinstance(units, np.ndarray):
        units = np.fromiter(units, dtype=np.int64)
    return np.unique(units.astype(np.int64, copy=False))


def spans_of(units: Iterable[int]) -> Spans:
    """The spans that hold exactly these units."""
    numbers = numbers_of(units)
    if not numbers.size:
        return ()
    breaks = np.flatnonzero(np.diff(numbers) > 1)
    firsts = numbers[np.concatenate(([0], breaks + 1))]
    lasts = numbers[np.concatenate((breaks, [numbers.size - 1]))]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def units_in(spans: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Every unit of the spans, one after the other."""
    for first, last in spans:
        yield from range(first, last + 1)


def count_in(spans: Sequence[tuple[int, int]]) -> int:
    """How many units the spans have."""
    return sum(last - first + 1 for first, last in spans)


def parse_spans(text: str, *, units: int, field: str = "units") -> Spans:
    """Read `0-57,60`; spans that touch or overlap become one.

    Raises:
        InvalidInput: it is no list of units, or a set of so many units does not have one of them.
    """
    found = [_span(part.strip(), units, field) for part in text.split(",")]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _span(part: str, units: int, field: str) -> tuple[int, int]:
    match = SPAN.fullmatch(part)
    rule = f"units from 0 to {units - 1}, such as 0-57,60"
    if match is None:
        raise InvalidInput(f"{part[:40]!r} is no span of units", field=field, value=part[:40], rule=rule)
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InvalidInput(f"{part} ends before it begins", field=field, value=part, rule=rule)
    if last >= units:
        raise InvalidInput(f"there is no unit {last:,}", field=field, value=part, rule=rule)
    return first, last


def shown(units: Iterable[int]) -> str:
    """Unit numbers in words: `unit 7`, `units 0-57, 60`; of many spans the first ones, and how many units follow."""
    spans = spans_of(units)
    texts = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in spans[:SHOWN]]
    rest = count_in(spans[SHOWN:])
    more = f" and {rest:,} more" if rest else ""
    return f"{'unit' if count_in(spans) == 1 else 'units'} {', '.join(texts)}{more}"
