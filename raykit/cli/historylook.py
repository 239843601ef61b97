"""The history of a run as text: rows that say most of it, and the whole of it in a few lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from raykit.cli import look, output

if TYPE_CHECKING:
    from raykit.records import EvaluationRow, MonitorRow, Row

BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
UNSKILLED = "\u2592"
"""Drawn where the ratio is above 1.0: worse than no skill."""
SPARK_WIDTH = 60
TABLE_ROWS = 12


def some(count: int, most: int) -> list[int]:
    """At most `most` of the indices 0 to count - 1, the first and the last among them, evenly spread."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def train_table(rows: Sequence[Row]) -> str:
    """Training rows with the ratio of each term."""
    terms = list(dict.fromkeys(name for row in rows for name in row.terms))
    headers = ("UPDATE", "ATTEMPT", "LOSS", "RATIO", *terms, "GRAD", "LR")
    cells = [
        (
            output.count(row.update),
            str(row.attempt),
            look.number(row.loss, 5),
            look.number(row.ratio),
            *(look.number(row.terms[name].ratio) if name in row.terms else look.NONE for name in terms),
            look.number(row.grad_norm),
            " ".join(f"{rate:.3g}" for rate in row.lr),
        )
        for row in rows
    ]
    return output.table(headers, cells, right=headers[:-1])


def development_table(rows: Sequence[EvaluationRow]) -> str:
    """Evaluations of the development split."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
    headers = ("UPDATE", "ATTEMPT", "ROWS", *metrics, "")
    cells = [
        (
            output.count(row.update),
            str(row.attempt),
            output.count(row.rows),
            *(_metric(row, name) for name in metrics),
            "best" if row.best else "",
        )
        for row in rows
    ]
    return output.table(headers, cells, right=headers[:-1])


def _metric(row: EvaluationRow, name: str) -> str:
    """A value, and how many rows it is of where not all have it."""
    value, count = look.number(row.metrics.get(name), 5), (row.counts or {}).get(name)
    return value if count is None else f"{value} of {output.count(count)}"


def monitor_table(rows: Sequence[MonitorRow]) -> str:
    """Fields in their own space."""
    headers = ("UPDATE", "FIELD", "SPACE", "LOW", "MEDIAN", "HIGH", "SPREAD", "AT FIRST", "")
    cells = [
        (
            output.count(row.update),
            name,
            stats.space,
            *(look.number(value) for value in (stats.low, stats.median, stats.high, stats.spread)),
            look.number(stats.reference_spread),
            "COLLAPSED" if stats.collapsed else "",
        )
        for row in rows
        for name, stats in row.fields.items()
    ]
    return output.table(headers, cells, right=("UPDATE", *headers[3:-1]))


def sparkline(ratios: Sequence[float | None], width: int = SPARK_WIDTH) -> str:
    """The trend of the ratio in means of neighbours: a full bar is 1.0, no skill; what is worse is hatched."""
    each = -(-len(ratios) // width) if ratios else 1
    return "".join(_bar(ratios[i : i + each]) for i in range(0, len(ratios), each))


def _bar(ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return " "
    mean = sum(known) / len(known)
    return UNSKILLED if mean > 1.0 else BARS[min(len(BARS) - 1, int(mean * len(BARS)))]


def summary(rows: Sequence[Row], superseded: int) -> Iterator[str]:
    """The whole training history in a few lines."""
    ratios = [row.ratio for row in rows]
    known = [ratio for ratio in ratios if ratio is not None]
    attempts = len({row.attempt for row in rows})
    cost = f", {output.count(superseded)} superseded (kept as cost)" if superseded else ""
    yield f"  {look.many(len(rows), 'update')} without a gap, of {look.many(attempts, 'attempt')}{cost}"
    if known:
        first, last, least = (look.number(ratio) for ratio in (known[0], known[-1], min(known)))
        yield f"  ratio  {first} -> {last}, least {least}; no skill is 1.000"
        yield f"  trend  {sparkline(ratios)}  a full bar is no skill"
    undefined = len(ratios) - len(known)
    if undefined:
        yield f"  {output.count(undefined)} updates have no ratio: not finite, or without a scale"
    coverage: dict[str, int] = {}
    for row in rows:
        for source, count in row.sources.items():
            coverage[source] = coverage.get(source, 0) + count
    shares = ", ".join(f"{source}: {output.count(count)}" for source, count in sorted(coverage.items()))
    yield f"  examples by source  {shares}"
