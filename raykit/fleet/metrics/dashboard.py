"""What one process says to Ray's dashboard, through `ray.util.metrics`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from raykit.fleet.metrics.catalog import Metric
from raykit.fleet.metrics.facts import Facts, Sample

EVERY_S: Final = 2.0
"""Between two times that the same is said: Ray forgets after about 19 s what is not said again."""

Instrument = Callable[[float, dict[str, str]], None]
"""Takes a value and its labels."""


class Said(Protocol):
    """Makes the instrument of a metric."""

    def __call__(self, metric: Metric) -> Instrument: ...


class Dashboard:
    """Says facts, again and again while they hold. Used by one thread.

    Nothing here waits, and nothing raises: a dashboard that does not work is said once, and never again tried.
    """

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: None,
        *,
        instrument: Said | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` hears why nothing more is said, if that happens."""
        self._say = say
        self._instrument = instrument or ray_instrument
        self._clock = clock
        self._instruments: dict[str, Instrument] = {}
        self._due = -float("inf")
        self._broken = False

    def tell(self, make: Callable[[], Iterable[Facts | None]]) -> None:
        """Say what holds, if it is time to: to be called at every turn of a loop. The facts are made only then."""
        now = self._clock()
        if now >= self._due:
            self._due = now + EVERY_S
            self._guarded(lambda: self._publish(make()))

    def publish(self, facts: Facts) -> None:
        """Say facts now: those that hold what was gained since the last time must not be left out."""
        self._guarded(lambda: self._publish([facts]))

    def _publish(self, facts: Iterable[Facts | None]) -> None:
        for each in facts:
            for sample in () if each is None else each.samples():
                self._put(sample)

    def _put(self, sample: Sample) -> None:
        metric = sample.metric
        if metric.kind == "counter" and sample.value <= 0:
            return  # nothing was gained
        instrument = self._instruments.get(metric.name)
        if instrument is None:
            instrument = self._instruments[metric.name] = self._instrument(metric)
        instrument(sample.value, dict(sample.labels))

    def _guarded(self, act: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is, work must not notice that nobody hears of it
            self._broken = True
            self._say(f"the dashboard hears nothing more of this process: {type(error).__name__}: {error}")


def ray_instrument(metric: Metric) -> Instrument:
    """The metric as Ray has it."""
    from ray.util.metrics import Counter, Gauge, Histogram

    made: Any
    match metric.kind:
        case "gauge":
            made = Gauge(metric.name, metric.says, tag_keys=metric.labels).set
        case "counter":
            made = Counter(metric.name, metric.says, tag_keys=metric.labels).inc
        case "histogram":
            made = Histogram(
                metric.name, metric.says, boundaries=list(metric.boundaries), tag_keys=metric.labels
            ).observe
    instrument: Instrument = made
    return instrument
