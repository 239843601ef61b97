"""Loss terms that relate the rows of a batch, such as negatives within it: found where they do not say so.

An examination scores rows one by one. The value of such a term is then that of a batch of one, which nothing
contrasts with: perfect, whatever the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from raykit.errors import GateError
from raykit.train.recipe import LossTerm

ROWS = 4
"""How many rows are asked about, each by itself and all at once."""

EXACT, ROUNDED = 1e-3, 5e-2
"""How far the value of a batch may lie from that of its rows, as a share of it: in single precision, and below it."""

Ask = Callable[[Sequence[int], int], Mapping[str, LossTerm]]
"""The terms of these rows as one batch, drawn by this key."""


def require_means(ask: Ask, rows: Sequence[int], *, rounded: bool) -> None:
    """Refuse a term whose value for several rows is not the mean of theirs, and that does not say so.

    Of a recipe that draws numbers while it scores nothing can be told: two rows draw others than one does.

    Raises:
        GateError: there is such a term.
    """
    if len(rows) < 2:
        return
    alone = [ask([row], 0) for row in rows]
    told = [_numbers(terms) for terms in alone]
    if any(term.relates_rows for terms in alone for term in terms.values()):
        return
    if _numbers(ask(rows[:1], 1)) != told[0]:
        return
    for name, (value, elements) in _numbers(ask(rows, 0)).items():
        there = [each[name] for each in told if name in each]
        if not _same(value, elements, there, ROUNDED if rounded else EXACT):
            raise _relates(name, value, there)


def _numbers(terms: Mapping[str, LossTerm]) -> dict[str, tuple[float, int]]:
    return {name: term.numbers(name)[:2] for name, term in terms.items()}


def _same(value: float, elements: int, there: Sequence[tuple[float, int]], tolerance: float) -> bool:
    """Equal means, or equal sums: padding counts as elements in a batch, and is not there in a single row."""
    total, count = math.fsum(v * n for v, n in there), sum(n for _, n in there)
    if not count or not elements or not math.isfinite(value) or not math.isfinite(total):
        return True
    return any(
        math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-6)
        for one, other in ((value, total / count), (value * elements, total))
    )


def _relates(name: str, value: float, there: Sequence[tuple[float, int]]) -> GateError:
    mean = math.fsum(v * n for v, n in there) / sum(n for _, n in there)
    return GateError(
        f"term {name} is {value:.4g} for {len(there)} rows at once, and {mean:.4g} for them one by one",
        field=f"recipe.losses.{name}",
        value=value,
        rule="the mean over its elements, whichever rows meet in a batch: rows are examined one by one",
        remedy="LossTerm(..., relates_rows=True) where it compares rows: it is then examined in batches; "
        "else divide by the number of elements",
    )
