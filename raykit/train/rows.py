"""The history writer: rows from the training thread to durable segments, on a thread of its own.

The training thread hands over a few numbers and goes on (`Rows.add`); the writer makes lines of them, writes a
segment every `flush_s` and at commits, and names each segment in the run's log. `through` waits until a given
row is durable: a commit waits for that. Nothing is ever dropped: while the store does not answer, rows wait
in memory, and after `hold_s` of that the training thread is told.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from raykit.errors import DeadlineError
from raykit.ids import sha256
from raykit.reconcile import require_attempt
from raykit.records import EvaluationRow, MonitorRow, Record, Row, RunEntry, Segment, Series, TermRow
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.train.hold import patiently
from raykit.train.overlap import Overlap


class Figures(NamedTuple):
    """What the training thread knows of one update. Made into a `Row` elsewhere."""

    update: int
    terms: Sequence[tuple[str, float, float, int, float | None, float | None, str | None]]
    """(name, value, weight, elements, target_ms, reference, no_reference) of each term."""
    lr: tuple[float, ...]
    grad_norm: float
    clipped: bool
    elapsed_s: float
    scale: float | None
    skipped: bool | None
    nonfinite: Sequence[str]
    """The terms that are not finite; `grad_norm`, unless a loss scaler has dealt with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The run, attempt and launch that rows are written for."""

    experiment: str
    run: str
    launch: str
    attempt: int


@dataclass(slots=True)
class _Pending:
    """Rows of one series that are not yet durable, in update order."""

    lines: list[bytes] = field(default_factory=list)
    first: int = 0
    last: int = 0


class Rows:
    """Writes one attempt's history. One per run, on rank 0.

    `make_row` turns figures into a row on the writer's thread; `overlap` holds each row against what an earlier attempt
    had recorded of the same update.
    """

    def __init__(
        self,
        store: ObjectStore,
        log: RunLog,
        stamp: Stamp,
        make_row: Callable[[Figures], Row],
        *,
        flush_s: float,
        hold_s: float,
        overlap: Overlap | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._overlap = overlap
        self._store = store
        self._log = log
        self._stamp = stamp
        self._make_row = make_row
        self._flush_s = flush_s
        self._hold_s = hold_s
        self._clock = clock
        self._queue: deque[Figures | EvaluationRow | MonitorRow] = deque()
        self._wake = threading.Condition()
        self._added = 0
        self._asked = 0
        self._durable = 0
        self._closing = False
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="raykit-rows", daemon=True)
        self._thread.start()

    # --- the training thread's side -------------------------------------------------------------------------

    def add(self, figures: Figures) -> None:
        """Hand over one update's figures. Costs an append; never blocks."""
        self._queue.append(figures)
        self._added += 1

    def add_row(self, row: EvaluationRow | MonitorRow) -> None:
        """Hand over a row of another series."""
        self._queue.append(row)
        self._added += 1

    def ticket(self) -> int:
        """How many rows have been handed over so far; `through` waits for as many."""
        return self._added

    def check(self) -> None:
        """Raise what stopped the writer, if something did: a fence, a store that stays away, a conflict."""
        if self._failed is not None:
            raise self._failed

    def through(self, ticket: int, *, timeout_s: float) -> None:
        """Wait until the first `ticket` rows handed over are durable and named in the log.

        Raises:
            DeadlineError: it took longer than `timeout_s`.
            FencedError: a newer attempt owns the run.
        """
        with self._wake:
            self._asked = max(self._asked, ticket)
            self._wake.notify_all()
            done = self._wake.wait_for(
                lambda: self._durable >= ticket or self._failed is not None, timeout=timeout_s
            )
        self.check()
        if not done:
            raise DeadlineError(f"the history is not durable after {timeout_s:.0f} s")

    def close(self, *, timeout_s: float) -> None:
        """Write what is left and end the thread. Does not raise: `check` tells how it went."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout_s)

    # --- the writer's side ----------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while True:
                with self._wake:
                    self._wake.wait_for(
                        lambda: self._closing or self._asked > self._durable, timeout=self._flush_s
                    )
                    closing = self._closing
                self._flush()
                if closing and not self._queue:
                    self._say([] if self._overlap is None else self._overlap.close())
                    return
        except BaseException as error:  # noqa: BLE001 - it belongs to the training thread, which raises it
            self._failed = error
        finally:
            with self._wake:
                self._wake.notify_all()

    def _flush(self) -> None:
        pending: dict[Series, _Pending] = {}
        compared: list[Record] = []
        taken = 0
        while self._queue:
            item = self._queue.popleft()
            taken += 1
            series, row = self._row(item)
            group = pending.setdefault(series, _Pending(first=row.update))
            group.lines.append(row.to_bytes())
            group.last = row.update
            compared += [] if self._overlap is None else self._overlap.rows(row)
        if pending:
            self._publish(pending, compared)
        with self._wake:
            self._durable += taken
            self._wake.notify_all()

    def _row(
        self, item: Figures | EvaluationRow | MonitorRow
    ) -> tuple[Series, Row | EvaluationRow | MonitorRow]:
        if isinstance(item, Figures):
            return "train", self._make_row(item)
        return ("development" if isinstance(item, EvaluationRow) else "monitor"), item

    def _publish(self, pending: dict[Series, _Pending], compared: list[Record]) -> None:
        events: list[Record] = []
        for series, group in pending.items():
            data = b"\n".join(group.lines) + b"\n"
            key = layout.segment(
                self._stamp.experiment, self._stamp.run, self._stamp.attempt, series, group.first, group.last
            )
            patiently(partial(self._store.put_new, key, data), hold_s=self._hold_s)
            events.append(
                Segment(
                    series=series,
                    attempt=self._stamp.attempt,
                    first=group.first,
                    last=group.last,
                    key=key,
                    sha256=sha256(data),
                    size_bytes=len(data),
                )
            )
        self._say([*events, *compared])

    def _say(self, events: Sequence[Record]) -> None:
        if events:
            patiently(
                lambda: self._log.append(lambda entries: self._once(entries, events), at=self._clock()),
                hold_s=self._hold_s,
            )

    def _once(self, entries: Sequence[RunEntry], events: Sequence[Record]) -> Sequence[Record]:
        """The events, unless an append whose reply was lost has put them there already."""
        state = self._log.state
        require_attempt(state, self._stamp.launch, self._stamp.attempt)
        return [] if events[0] in state.events else events


def term_rows(figures: Figures, term_row: Callable[..., TermRow]) -> dict[str, TermRow]:
    """The terms of one update as records, in their declared order."""
    return {
        name: term_row(
            value=value,
            weight=weight,
            elements=elements,
            target_ms=target_ms,
            reference=reference,
            no_reference=no_reference,
        )
        for name, value, weight, elements, target_ms, reference, no_reference in figures.terms
    }
