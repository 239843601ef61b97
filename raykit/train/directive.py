"""The one question at every update: go on, save, or save and stop.

Rank 0 listens in background threads: to the run's log (a stop that the launch has asked for, a newer attempt), to
notices that the caller passes in (preemption), to the door to spending, and to signals of this process. The answer
reaches the other ranks in the all-reduce of the update.

While the door does not answer, training holds at its boundary, in memory, and goes on when it answers again. After
`hold_s` it stops with what is committed. What a grant pays for is kept here too, by this process's own clock: it
stops while the drain still fits, whether or not anyone can be asked.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from raykit.errors import (
    DeadlineError,
    FencedError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.reconcile import require_attempt
from raykit.records import Cause, EndReason
from raykit.store.log import RunLog
from raykit.train.door import Door, Grant
from raykit.train.rows import Stamp
from raykit.train.step import Asked

POLL_S = 0.5
BEAT_S = 2.0
QUIET_S = 10.0
"""So long after its last answer the door counts as silent."""
HOLD_POLL_S = 0.05
LEAST_DRAIN_S = 8.0
"""What ends beside the last save: the gang, and what its launch still has to say."""


class Directive:
    """What this rank has heard. `ask` is read at every update and costs a few attribute reads."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.reason: EndReason = "paused"
        self.cause: Cause | None = None
        self._fenced: BaseException | None = None
        self.loss_window_s: float | None = None
        """Most seconds of work that a crash may cost; set once the plan is known."""
        self._saved_at = time.monotonic()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._answered_at: float | None = None
        """When the door last answered; None if nobody has to be asked."""
        self._silence = ""
        self._hold_s = 0.0
        self._lease_end = math.inf
        self._drain_s = 0.0
        self._wall_s = math.inf
        self._work_end = math.inf
        self._asked_at: float | None = None
        self._longest_s = (0.0, 0.0)
        """The second longest update of this attempt, and the longest."""

    def stop(self, why: str, reason: EndReason = "paused", cause: Cause | None = None) -> None:
        """Commit after the update in hand, then end. Safe to call from a signal handler."""
        if self.why is None:
            self.reason, self.cause = reason, cause
            self.why = why

    def saved(self) -> None:
        """A save has begun: the loss window starts anew."""
        self._saved_at = time.monotonic()

    def save_took(self, seconds: float) -> None:
        """A save is durable after so long: what the drain was guessed to take is measured now."""
        self._drain_s = LEAST_DRAIN_S + 2 * seconds

    def working(self) -> None:
        """Productive time begins: set-up and gates are over."""
        self._work_end = time.monotonic() + self._wall_s

    def ask(self) -> Asked:
        """What this rank wants after the update in hand. Holds while the door is silent.

        Raises:
            FencedError: a newer attempt owns the run.
            LeaseLostError: the lease that this attempt works under has ended.
        """
        if self._fenced is not None:
            raise self._fenced
        if self._silent_s() > QUIET_S:
            self._hold()
        elif self._asked_at is not None:
            _, second, longest = sorted((*self._longest_s, time.monotonic() - self._asked_at))
            self._longest_s = (second, longest)
        now = self._asked_at = time.monotonic()
        self._stop_at_the_end(now)
        save = self.loss_window_s is not None and now - self._saved_at > self.loss_window_s
        return Asked(stop=self.why is not None, save=save)

    def heard(self) -> str | None:
        """Why what comes after the last update has to end; None while it may go on. Asked as often as one likes.

        Raises:
            FencedError: a newer attempt owns the run.
            LeaseLostError: the lease that this attempt works under has ended.
        """
        if self._fenced is not None:
            raise self._fenced
        if self.why is None and self._silent_s() > QUIET_S:
            return f"nobody answers about money ({self._silence})"
        if self.why is None and time.monotonic() > self._lease_end - self._drain_s:
            return "what is reserved for this attempt is at its end"
        return self.why

    def _stop_at_the_end(self, now: float) -> None:
        """Stop while what is left still pays for one more update and the drain.

        What has taken long once may have been bad luck; what has twice, as an evaluation does, may be the next one.
        """
        after = now + self._longest_s[0]
        if after > self._lease_end - self._drain_s:
            self.stop("what is reserved for this attempt is at its end", cause="ceiling")
        elif after > self._work_end:
            self.stop("the plan's cap on productive time is reached", cause="ceiling")

    def _silent_s(self) -> float:
        return 0.0 if self._answered_at is None else time.monotonic() - self._answered_at

    def _hold(self) -> None:
        """Wait, in memory, until the door answers again, or it is time to stop: what is held costs money, too."""
        print(f"holding: {self._silence or 'the budget does not answer'}", flush=True)
        while (silent_s := self._silent_s()) > QUIET_S and self.why is None:
            if self._fenced is not None:
                raise self._fenced
            if silent_s > self._hold_s:
                self.stop(f"deadline: no answer about money for {silent_s:.0f} s ({self._silence})", "failed")
            self._stop_at_the_end(time.monotonic())
            if self.why is None:
                time.sleep(HOLD_POLL_S)
        print("going on" if self.why is None else f"not held any longer: {self.why}", flush=True)

    # --- listening ------------------------------------------------------------------------------------------

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

        self._start("raykit-directive", work)

    def _heed(self, log: RunLog, stamp: Stamp) -> None:
        state = log.state
        try:
            require_attempt(state, stamp.launch, stamp.attempt)
        except FencedError as error:
            if stamp.attempt not in state.ends:
                self._fenced = error
        if state.stop is not None and state.stop.launch == stamp.launch:
            self.stop(state.stop.why, state.stop.reason, state.stop.cause)

    def keep(self, door: Door, grant: Grant, *, granted_at: float, hold_s: float) -> None:
        """Keep within a grant that was answered at `granted_at` on the monotonic clock, and its lease alive."""
        self._hold_s = hold_s
        self._lease_end = granted_at + grant.left_ms / 1000
        self._drain_s = grant.drain_ms / 1000
        self._wall_s = math.inf if grant.wall_ms is None else grant.wall_ms / 1000
        self._answered_at = time.monotonic()

        def work() -> None:
            while not self._ended.wait(BEAT_S):
                try:
                    door.beat(grant.lease)
                    self._answered_at = time.monotonic()
                except (DeadlineError, StoreUnavailableError, UnknownOutcomeError) as error:
                    self._silence = str(error)
                except BaseException as error:  # noqa: BLE001 - training raises it: it must not go on unheard
                    self._fenced = error
                    return

        self._start("raykit-beat", work)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
