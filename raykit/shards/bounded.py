"""Bounds and what came of them side by side: how many rows of each kind there are, and how many there may be."""

from __future__ import annotations

from collections.abc import Mapping

from raykit.records import Rows, SetFinding
from raykit.shards.bounds import found_in
from raykit.shards.closing import percent


def bounded(
    bounds: Mapping[str, float], rows: Rows, failed: Mapping[str, int], counts: Mapping[str, int]
) -> tuple[SetFinding, ...]:
    """Every bound with its count, kept or not, by kind."""
    each = {kind: found_in(kind, rows, failed, counts) for kind in sorted(bounds)}
    return tuple(
        SetFinding(kind=kind, found=found, of=of, bound=bounds[kind]) for kind, (found, of) in each.items()
    )


def against(count: SetFinding) -> str:
    """`truncated 26 of 238 (10.9 %), at most 50 %`."""
    most = "none may be" if not count.bound else f"at most {100 * count.bound:.3g} %"
    return f"{count.kind} {count.found:,} of {count.of:,} ({percent(count.found, count.of)}), {most}"
