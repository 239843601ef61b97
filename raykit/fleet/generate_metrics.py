"""What a pool that makes synthetic rows says to the dashboard: set again at each turn, nothing where nothing is known.

Ray adds `ray_` to every name, and forgets a value that is not set again: what is absent is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ray.util.metrics import Counter, Gauge

from raykit.shards.standing import STATUSES

OUTCOMES: Final = ("produced", "filtered", "failed")


class GenerateMetrics:
    """The metrics of one pool. Tags are the experiment, the set, and what the value is by."""

    def __init__(self, experiment: str, name: str) -> None:
        self._tags = {"experiment": experiment, "set": name}
        keys = tuple(self._tags)
        self._units = Gauge(
            "raykit_generate_units", "Units of a synthetic set by state.", tag_keys=(*keys, "state")
        )
        self._workers = Gauge("raykit_generate_workers", "Generation workers of this launch.", tag_keys=keys)
        self._rows = Counter(
            "raykit_generate_rows_total", "Rows that were published, by outcome.", tag_keys=(*keys, "outcome")
        )
        self._made = Counter(
            "raykit_generate_units_total", "Units that this launch has published.", tag_keys=keys
        )
        self._seconds = Counter(
            "raykit_generate_unit_seconds_total", "What the units of this launch took.", tag_keys=keys
        )

    def units(self, counts: Mapping[str, int]) -> None:
        """How far everything is, as it was read just now."""
        for state in STATUSES:
            self._units.set(counts.get(state, 0), tags={**self._tags, "state": state})

    def workers(self, count: int) -> None:
        """How many workers there are."""
        self._workers.set(count, tags=self._tags)

    def gained(self, rows: Mapping[str, float], units: float, seconds: float) -> None:
        """What the workers of this launch have come to since the last time."""
        for outcome in OUTCOMES:
            _inc(self._rows, rows.get(outcome, 0.0), {**self._tags, "outcome": outcome})
        _inc(self._made, units, self._tags)
        _inc(self._seconds, seconds, self._tags)


def _inc(counter: Counter, by: float, tags: Mapping[str, str]) -> None:
    if by > 0:
        counter.inc(by, tags=dict(tags))
