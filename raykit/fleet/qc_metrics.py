"""What a QC pool says to the dashboard: set again at each turn, and nothing where nothing is known.

Ray adds `ray_` to every name, and forgets a value that is not set again: what is absent is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ray.util.metrics import Counter, Gauge, Histogram

STATES: Final = (
    "missing",
    "pending",
    "claimed",
    "retrying",
    "parked",
    "passed",
    "failed",
    "unreviewed",
)
BOUNDARIES_S: Final = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0]


class QcMetrics:
    """The metrics of one pool. `experiment` is their only tag beside the state of requests."""

    def __init__(self, experiment: str) -> None:
        self._tags = {"experiment": experiment}
        keys = ("experiment",)
        self._requests = Gauge(
            "raykit_qc_requests", "Required QC requests by state.", tag_keys=("experiment", "state")
        )
        self._oldest = Gauge(
            "raykit_qc_oldest_pending_seconds", "How long the oldest open request has waited.", tag_keys=keys
        )
        self._workers = Gauge("raykit_qc_workers", "QC workers of this launch.", tag_keys=keys)
        self._units = Counter("raykit_qc_units_total", "Checks that came to a receipt.", tag_keys=keys)
        self._seconds = Histogram(
            "raykit_qc_unit_seconds", "What one check took.", boundaries=BOUNDARIES_S, tag_keys=keys
        )

    def backlog(self, counts: Mapping[str, int], oldest_s: float | None) -> None:
        """How far everything is, as it was read just now."""
        for state in STATES:
            self._requests.set(counts[state], tags={**self._tags, "state": state})
        self._oldest.set(0.0 if oldest_s is None else oldest_s, tags=self._tags)

    def workers(self, count: int) -> None:
        """How many workers there are."""
        self._workers.set(count, tags=self._tags)

    def units(self, seconds: Iterable[float]) -> None:
        """What each new check of this launch took."""
        for each in seconds:
            self._units.inc(1.0, tags=self._tags)
            self._seconds.observe(each, tags=self._tags)
