"""The one question at every update: go on, save, or save and stop.

Rank 0 listens in a background thread: to the run's log (a stop that the launch has asked for, a newer attempt), to
notices that the caller passes in (preemption), and to signals of this process. The answer reaches the other
ranks in the all-reduce of the update.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from raykit.errors import FencedError, StoreUnavailableError
from raykit.reconcile import require_attempt
from raykit.records import EndReason
from raykit.store.log import RunLog
from raykit.train.rows import Stamp
from raykit.train.step import Asked

POLL_S = 0.5


class Directive:
    """What this rank has heard. `ask` is read at every update and costs two attribute reads."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.reason: EndReason = "paused"
        self._fenced: BaseException | None = None
        self.loss_window_s: float | None = None
        """Most seconds of work that a crash may cost; set once the plan is known."""
        self._saved_at = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def stop(self, why: str, reason: EndReason = "paused") -> None:
        """Commit after the update in hand, then end. Safe to call from a signal handler."""
        if self.why is None:
            self.reason = reason
            self.why = why

    def saved(self) -> None:
        """A save has begun: the loss window starts anew."""
        self._saved_at = time.monotonic()

    def ask(self) -> Asked:
        """What this rank wants after the update in hand.

        Raises:
            FencedError: a newer attempt owns the run.
        """
        if self._fenced is not None:
            raise self._fenced
        save = self.loss_window_s is not None and time.monotonic() - self._saved_at > self.loss_window_s
        return Asked(stop=self.why is not None, save=save)

    def listen(self, log: RunLog, stamp: Stamp, notice: Callable[[], str | None] | None = None) -> None:
        """Start listening to the log and, every poll, to `notice`, which says why to stop."""

        def work() -> None:
            while not self._ended.wait(POLL_S):
                try:
                    if notice is not None and (why := notice()) is not None:
                        self.stop(why, "preempted")
                    # What is new may have been read by a writer that shares the log, so all of it is heeded.
                    log.refresh()
                    self._heed(log, stamp)
                except StoreUnavailableError:
                    continue  # the writers know how long to wait for a store, and say so
                except BaseException as error:  # noqa: BLE001 - training raises it: it must not go on unheard
                    self._fenced = error
                    return

        self._thread = threading.Thread(target=work, name="raykit-directive", daemon=True)
        self._thread.start()

    def _heed(self, log: RunLog, stamp: Stamp) -> None:
        state = log.state
        try:
            require_attempt(state, stamp.launch, stamp.attempt)
        except FencedError as error:
            if stamp.attempt not in state.ends:
                self._fenced = error
        if state.stop is not None and state.stop.launch == stamp.launch:
            self.stop(state.stop.why)

    def close(self) -> None:
        """Stop listening."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
