"""The settings that a search may try: every one of a grid, or one drawn at random for a row.

A draw is a pure function of the space, the sampler's seed and the row: no row depends on what another came to, and a
killed process draws nothing twice. Parameters go by name, never by their order in a file. Floats are rounded to
`DIGITS`, so that two machines whose logarithms differ in the last bit draw the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from raykit.ids import canonical, digest_of
from raykit.plan.tables import Range
from raykit.records import SearchRegistration

DIGITS = 10
TRIES = 64

Space = Mapping[str, Range]
Params = Mapping[str, Any]


def space_of(registration: SearchRegistration) -> Space:
    """The space of a registered search."""
    return {name: Range.model_validate_json(canonical(span)) for name, span in registration.space.items()}


def grid(space: Space) -> Iterator[dict[str, Any]]:
    """Every setting of a space without continuous parameters; the last parameter by name changes fastest."""
    names = sorted(space)
    for values in itertools.product(*(space[name].values() for name in names)):
        yield dict(zip(names, values, strict=True))


def drawn(space: Space, seed: int, row: int, again: int = 0) -> dict[str, Any]:
    """The setting of a row, drawn at random; `again` counts the draws that were not taken."""
    return {name: _value(space[name], _bits([seed, row, again, name])) for name in sorted(space)}


def _bits(key: list[int | str]) -> int:
    """64 random bits of a key: of its digest, which is the same with every version of everything."""
    return int(digest_of(key)[:16], 16)


def distinct(draw: Callable[[int], dict[str, Any]], space: Space, taken: Collection[bytes]) -> dict[str, Any]:
    """The first of `draw(0)`, `draw(1)`, ... that is none of `taken`: the same setting and seed again is the same run.

    `taken` are settings as canonical JSON. Only a space with few settings is drawn from in vain; then the first of its
    grid that is not taken is. Where all are, so is one again.
    """
    for again in range(TRIES):
        params = draw(again)
        if canonical(params) not in taken:
            return params
    return next((params for params in grid(space) if canonical(params) not in taken), draw(0))


def rounded(value: float, low: float, high: float) -> float:
    """A float of a range, to `DIGITS` significant digits, never outside."""
    return min(max(float(f"{value:.{DIGITS}g}"), low), high)


def _value(span: Range, raw: int) -> Any:
    """The value that 64 random bits stand for."""
    if (size := span.size) is not None:
        return span.value(raw * size >> 64)
    share = (raw >> 11) * 2.0**-53
    if span.loguniform is not None:
        low, high = span.loguniform
        return rounded(math.exp(math.log(low) * (1 - share) + math.log(high) * share), low, high)
    assert span.uniform is not None
    low, high = span.uniform
    return rounded(low * (1 - share) + high * share, low, high)
