"""Between the driver's loop and Tune's own thread: rows to be started, and what Tune has to say of them.

Neither waits for the other. What is kept here is speed, not truth: rows, reports and rulings are in the store.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from raykit.fleet.search.job import Back, Handed, Job, Report
from raykit.fleet.search.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The scheduler's rule stops a row."""

    report: Report
    why: str


class Exchange:
    """Shared by the driver and Tune's thread. Every call returns at once, but for those that say how long they wait."""

    def __init__(self, rule: Rule | None) -> None:
        self._rule = rule
        self._changed = threading.Condition()
        self._serial = 0
        self._waiting: deque[Handed] = deque()
        self._back: dict[int, Back] = {}
        self._rulings: list[Ruling] = []
        self._newest: dict[str, Report] = {}
        self._heard = 0
        self._closed = False
        self._news = False
        """Something has been said since the driver last waited."""

    # --- the driver -----------------------------------------------------------------------------------------

    def hand(self, run: str, title: str, job: Job) -> int:
        """Put one start of a row where Tune takes it; the number by which it is known from then on."""
        with self._changed:
            self._serial += 1
            self._waiting.append(Handed(run=run, serial=self._serial, title=title, job=job))
            self._changed.notify_all()
            return self._serial

    def back(self, serial: int) -> Back | None:
        """How a start came back; None while it is under way."""
        with self._changed:
            return self._back.get(serial)

    def wait(self, timeout_s: float, serial: int | None = None) -> None:
        """Until that start has come back, or any has since the last such call; or so long."""
        with self._changed:
            if serial is None:
                self._changed.wait_for(lambda: self._news, timeout_s)
                self._news = False
            else:
                self._changed.wait_for(lambda: serial in self._back, timeout_s)

    def learn(self, report: Report) -> None:
        """Tell the rule of a report that is known from the store: it is not judged, and not heard again."""
        with self._changed:
            if self._is_new(report) and self._rule is not None:
                self._rule.learn(report)

    def newest(self, run: str) -> Report | None:
        """The newest report of a row that has been heard; None if none was."""
        with self._changed:
            return self._newest.get(run)

    def take_heard(self) -> int:
        """How many reports were heard since the last call; those that were learned are not among them."""
        with self._changed:
            taken, self._heard = self._heard, 0
            return taken

    def take_rulings(self) -> list[Ruling]:
        """The rulings since the last call."""
        with self._changed:
            taken, self._rulings = self._rulings, []
            return taken

    def close(self) -> None:
        """Nothing more will be handed out: Tune ends once what it has has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- Tune -----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Nothing is there, and nothing will come."""
        with self._changed:
            return self._closed and not self._waiting

    def take(self, wait_s: float) -> Handed | None:
        """What is to be started next; None if nothing comes within so long."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._closed, wait_s)
            return self._waiting.popleft() if self._waiting else None

    def heard(self, report: Report) -> None:
        """A trial has reported."""
        with self._changed:
            if not self._is_new(report):
                return
            self._heard += 1
            why = None if self._rule is None else self._rule.judge(report)
            if why is not None:
                self._rulings.append(Ruling(report=report, why=why))
                self._tell()

    def came_back(self, serial: int, back: Back) -> None:
        """A start has ended; what is said of it first stays."""
        with self._changed:
            self._back.setdefault(serial, back)
            self._tell()

    def lose_all(self, why: str) -> None:
        """Tune itself has ended: nobody will hear of what is still out."""
        with self._changed:
            for serial in range(1, self._serial + 1):
                self._back.setdefault(serial, Back(lost=why))
            self._waiting.clear()
            self._tell()

    def _tell(self) -> None:
        self._news = True
        self._changed.notify_all()

    def _is_new(self, report: Report) -> bool:
        known = self._newest.get(report.run)
        if known is not None and report.update <= known.update:
            return False
        self._newest[report.run] = report
        return True
