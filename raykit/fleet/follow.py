"""A run followed while it goes on: new rows as they become durable, and what people want to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from raykit.reconcile import RunState
from raykit.records import AttemptStarted, EvaluationRow, MonitorRow, Row, Segment, Superseded
from raykit.store.base import ObjectStore
from raykit.store.segments import read_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """One look at a run, for a progress line."""

    phase: str
    update: int
    updates: int
    updates_per_s: float | None
    ratio: float | None
    committed: int | None
    attempt: int
    again: bool = False
    """An earlier launch has trained it before."""
    qc: str | None = None
    """How far its QC is, in a few words."""

    @property
    def left_s(self) -> float | None:
        """Seconds to go at the present rate."""
        return None if not self.updates_per_s else (self.updates - self.update) / self.updates_per_s


@dataclass(slots=True)
class Followed:
    """The rows of a run so far, superseded ones cut away."""

    rows: list[Row] = field(default_factory=list)
    evaluations: list[EvaluationRow] = field(default_factory=list)
    monitors: list[MonitorRow] = field(default_factory=list)
    read: int = 0
    """How many of the log's events have been followed."""

    def follow(self, store: ObjectStore, events: Sequence[object]) -> None:
        """Read the segments of events that are new.

        Raises:
            CorruptError: a segment is missing, changed, or does not parse.
            StoreUnavailableError: the store did not answer.
        """
        for event in events[self.read :]:
            if isinstance(event, Superseded):
                self._cut(event.from_)
            elif isinstance(event, Segment):
                self._read(store, event)
        self.read = len(events)

    def _cut(self, first: int) -> None:
        for series in (self.rows, self.evaluations, self.monitors):
            while series and series[-1].update >= first:
                series.pop()

    def _read(self, store: ObjectStore, segment: Segment) -> None:
        for row in read_segment(store, segment):
            match row:
                case Row():
                    self.rows.append(row)
                case EvaluationRow():
                    self.evaluations.append(row)
                case MonitorRow():
                    self.monitors.append(row)

    def glimpse(self, state: RunState, updates: int) -> Glimpse:
        """What the newest rows say, at the rate of the last few hundred."""
        attempt = state.attempt
        launch = None if state.launched is None else state.launched.launch
        if attempt is not None and launch is not None and attempt.launch != launch:
            attempt = None  # of an earlier launch; this one's has not started yet
        number = attempt.attempt if attempt else 0
        recent = [row for row in self.rows[-300:] if row.attempt == number]
        last = self.rows[-1] if self.rows else None
        rate = None
        if len(recent) > 1 and recent[-1].elapsed_s > recent[0].elapsed_s:
            rate = (len(recent) - 1) / (recent[-1].elapsed_s - recent[0].elapsed_s)
        return Glimpse(
            phase=_phase(state, attempt),
            update=last.update if last else 0,
            updates=updates,
            updates_per_s=rate,
            ratio=last.ratio if last else None,
            committed=state.committed,
            attempt=number,
            again=any(each.launch != launch for each in state.attempts),
        )


def _phase(state: RunState, attempt: AttemptStarted | None) -> str:
    if state.stop is not None and state.ended is None:
        return "stopping"
    if attempt is None:
        return "starting"
    if state.ended is not None:
        return state.ended.reason
    if state.commits:
        return "training"
    return "gates"
