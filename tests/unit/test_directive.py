"""The one question at every update, on a clock that tests move: what money, people and silence make of it.

covers I7 I9, BUD-07, DESIGN section 6 "no answer"
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from raykit.errors import (
    CorruptError,
    DeadlineError,
    LeaseLostError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
    by_kind,
)
from raykit.train import directive as module
from raykit.train.directive import BEAT_S, LEAST_DRAIN_S, QUIET_S, Directive
from raykit.train.door import Grant

HOLD_S = 100.0
WAIT_S = 10.0
"""For a thread of this test to take its turn, in real time."""


class Clock:
    """`time` as the directive sees it. Only `sleep` lets it go on, and what is due then happens on the way."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.go(seconds)

    def go(self, seconds: float) -> None:
        self.now += seconds
        due = [action for at, action in self._due if at <= self.now]
        self._due = [(at, action) for at, action in self._due if at > self.now]
        for action in due:
            action()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._due.append((self.now + seconds, action))


class FakeDoor:
    """A door that answers, or raises, what it is told to; beats come when the test lets them."""

    def __init__(self) -> None:
        self.trouble: RaykitError | None = None
        self.beats = 0

    def begin(self, launch: str, ordinal: int) -> Grant:
        raise AssertionError("the directive never begins an attempt")

    def beat(self, lease: str) -> None:
        assert lease == "launch-1"
        self.beats += 1
        if self.trouble is not None:
            raise self.trouble


class Turns:
    """In the place of the directive's `Event`: the beat thread waits for the test instead of for the clock."""

    def __init__(self) -> None:
        self._turn, self._done, self._ended = threading.Semaphore(0), threading.Semaphore(0), False
        self._begun = False

    def wait(self, timeout: float) -> bool:
        assert timeout == BEAT_S
        if self._begun:
            self._done.release()
        self._begun = True
        assert self._turn.acquire(timeout=WAIT_S)
        return self._ended

    def set(self) -> None:
        self._ended = True
        self._turn.release()

    def take(self, *, last: bool = False) -> None:
        """Let one beat happen, and wait until it is over; the `last` one ends the thread."""
        self._turn.release()
        if not last:
            assert self._done.acquire(timeout=WAIT_S)


class Training:
    """A directive that keeps within a grant, and the updates that ask it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.door = FakeDoor()
        self.turns = Turns()
        self.directive = Directive()
        self.directive._ended = self.turns  # type: ignore[assignment]
        self.kept = False

    def keep(self, *, left_s: float = 3600.0, wall_s: float | None = None, drain_s: float = 30.0) -> Training:
        grant = Grant(
            lease="launch-1",
            left_ms=int(left_s * 1000),
            wall_ms=None if wall_s is None else int(wall_s * 1000),
            drain_ms=int(drain_s * 1000),
            accelerators=1,
            invested_ms=0,
        )
        self.directive.keep(self.door, grant, granted_at=self.clock.now, hold_s=HOLD_S)
        self.kept = True
        return self

    def beat(self) -> None:
        """The door answers, or does not, once."""
        self.turns.take()

    def update(self, seconds: float) -> bool:
        """An update that took so long, heard of by the door; whether it is the last."""
        self.clock.go(seconds)
        self.beat()
        return self.directive.ask().stop

    def last_start(self, seconds: float, *, at_most: int = 10_000) -> float:
        """Updates of `seconds` until one is told to be the last: when that one began."""
        for _ in range(at_most):
            if self.update(seconds):
                return self.clock.now
        raise AssertionError("nothing has stopped it")

    def close(self) -> None:
        if self.kept:
            self.directive.close()


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    made = Training(clock)
    yield made
    made.close()


# --- silence ------------------------------------------------------------------------------------------------

SILENT = [
    StoreUnavailableError("the ledger has not been reached for 12 s"),
    DeadlineError("the budget did not answer within 5 s"),
    UnknownOutcomeError("nobody knows"),
]


@pytest.mark.parametrize("trouble", SILENT, ids=lambda trouble: trouble.kind)
def test_it_holds_while_nobody_answers_and_goes_on_when_somebody_does(
    training: Training, trouble: RaykitError, capsys: pytest.CaptureFixture[str]
) -> None:
    training.keep()
    assert not training.update(1.0)
    training.door.trouble = trouble
    for _ in range(9):
        assert not training.update(1.0), "a short silence stops nobody"
    assert training.clock.slept_s == 0.0

    def answer() -> None:
        training.door.trouble = None
        training.beat()

    training.clock.after(60.0, answer)
    assert not training.update(2.0)
    assert training.clock.slept_s == pytest.approx(58.0, abs=0.1), "held until the very moment of the answer"
    said = capsys.readouterr().out
    assert str(trouble) in said and "going on" in said
    assert not training.update(1.0)
    assert training.clock.slept_s == pytest.approx(58.0, abs=0.1), "and is not held a second time"


def test_a_silence_is_noticed_after_ten_seconds(training: Training) -> None:
    training.keep()
    training.clock.go(QUIET_S)
    training.directive.ask()
    assert training.clock.slept_s == 0.0
    training.clock.after(5.0, training.beat)
    training.clock.go(0.01)
    training.directive.ask()
    assert training.clock.slept_s > 4.0


def test_a_silence_that_lasts_ends_it_as_a_deadline(training: Training) -> None:
    training.keep()
    training.door.trouble = StoreUnavailableError("no route to the store")
    began = training.clock.now
    assert training.update(QUIET_S + 1.0)
    assert training.clock.now - began == pytest.approx(HOLD_S, abs=0.2), "counted from the last answer"
    assert training.directive.reason == "failed"
    detail = training.directive.why or ""
    assert detail.startswith("deadline:") and "no route to the store" in detail
    assert by_kind(detail.split(":", 1)[0]).exit_code == 6


@pytest.mark.parametrize("lost", [LeaseLostError("it has ended"), CorruptError("bytes differ")], ids=str)
def test_an_answer_that_the_lease_is_gone_ends_work(training: Training, lost: RaykitError) -> None:
    training.keep()
    training.door.trouble = lost
    training.turns.take(last=True)
    _join(training)
    with pytest.raises(type(lost)):
        training.directive.ask()


def test_a_lease_that_is_lost_during_a_hold_ends_it(training: Training) -> None:
    training.keep()

    def lose() -> None:
        training.door.trouble = LeaseLostError("launch-2 has begun")
        training.turns.take(last=True)
        _join(training)

    training.clock.after(30.0, lose)
    training.clock.go(QUIET_S + 1.0)
    with pytest.raises(LeaseLostError, match="launch-2 has begun"):
        training.directive.ask()
    assert training.clock.slept_s < 20.0


def _join(training: Training) -> None:
    for thread in training.directive._threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_stop_that_is_asked_for_ends_a_hold(training: Training, capsys: pytest.CaptureFixture[str]) -> None:
    training.keep()
    training.clock.after(30.0, lambda: training.directive.stop("paused by ada", cause="person"))
    training.clock.go(QUIET_S + 1.0)
    assert training.directive.ask().stop
    assert training.clock.slept_s == pytest.approx(19.0, abs=0.2)
    assert (training.directive.why, training.directive.reason, training.directive.cause) == (
        "paused by ada",
        "paused",
        "person",
    )
    assert "going on" not in capsys.readouterr().out


def test_a_hold_ends_where_what_is_paid_for_does(training: Training) -> None:
    """Silence costs money too: it is never held past the time that the lease pays for, drain included."""
    training.keep(left_s=60.0, drain_s=10.0)
    end = training.clock.now + 60.0
    training.door.trouble = DeadlineError("silent")
    assert training.update(QUIET_S + 1.0)
    assert training.clock.now == pytest.approx(end - 10.0, abs=0.2)
    assert (training.directive.reason, training.directive.cause) == ("paused", "ceiling")


def test_a_hold_ends_at_the_cap_on_productive_time(training: Training) -> None:
    training.keep(wall_s=40.0)
    training.directive.working()
    end = training.clock.now + 40.0
    training.door.trouble = DeadlineError("silent")
    assert training.update(QUIET_S + 1.0)
    assert training.clock.now == pytest.approx(end, abs=0.2)
    assert training.directive.cause == "ceiling"


# --- what is paid for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("update_s", [0.01, 0.5, 2.0, 7.0])
def test_it_stops_so_that_the_drain_still_fits(training: Training, update_s: float) -> None:
    training.keep(left_s=120.0, drain_s=30.0)
    end = training.clock.now + 120.0
    last = training.last_start(update_s, at_most=20_000)
    assert last + update_s + 30.0 <= end + update_s * 1.01, "the update in hand and the drain are paid for"
    assert last > end - 30.0 - 2 * update_s - 0.01, "and no sooner than it has to"
    assert training.directive.cause == "ceiling" and training.directive.reason == "paused"


def test_the_drain_that_counts_is_the_one_that_was_measured(training: Training) -> None:
    training.keep(left_s=300.0, drain_s=200.0)
    end = training.clock.now + 300.0
    training.directive.save_took(4.0)
    last = training.last_start(1.0)
    assert last == pytest.approx(end - LEAST_DRAIN_S - 2 * 4.0, abs=2.0)


def test_a_drain_that_turns_out_longer_stops_it_sooner(training: Training) -> None:
    training.keep(left_s=300.0, drain_s=10.0)
    end = training.clock.now + 300.0
    training.directive.save_took(60.0)
    assert training.last_start(1.0) <= end - LEAST_DRAIN_S - 2 * 60.0


def test_slow_updates_that_come_again_are_reckoned_with(training: Training) -> None:
    """An evaluation every few updates takes as long as ten of them: it may be the next one."""
    training.keep(left_s=300.0, drain_s=10.0)
    end, n = training.clock.now + 300.0, 0
    while not training.update(10.0 if n % 20 == 0 else 1.0):
        n += 1
    assert training.clock.now + 10.0 <= end - 10.0 + 1.01, "room for one that may come"


def test_one_stall_does_not_end_work_sooner(training: Training) -> None:
    training.keep(left_s=300.0, drain_s=10.0)
    end = training.clock.now + 300.0
    for _ in range(3):
        assert not training.update(1.0)
    assert not training.update(100.0)
    assert training.last_start(1.0) == pytest.approx(end - 10.0, abs=2.0)


def test_time_in_a_hold_is_no_update(training: Training) -> None:
    training.keep(left_s=1000.0, drain_s=10.0)
    assert not training.update(1.0)
    assert not training.update(1.0)

    def answer() -> None:
        training.door.trouble = None
        training.beat()

    training.door.trouble = DeadlineError("silent")
    training.clock.after(80.0, answer)
    assert not training.update(QUIET_S + 1.0)
    assert not training.update(1.0)
    assert max(training.directive._longest_s) < 2.0


def test_the_wall_cap_counts_from_the_first_update(training: Training) -> None:
    training.keep(left_s=3600.0, wall_s=50.0)
    training.clock.go(9.0)  # set-up, which is not productive
    training.beat()
    training.directive.working()
    began = training.clock.now
    assert training.last_start(1.0) - began == pytest.approx(50.0, abs=1.5)
    assert "cap on productive time" in (training.directive.why or "")


def test_without_a_grant_nothing_is_asked_and_nothing_ends(training: Training) -> None:
    training.directive.working()
    for _ in range(3):
        training.clock.go(10_000.0)
        assert not training.directive.ask().stop
    assert training.clock.slept_s == 0.0


def test_the_first_reason_stays(training: Training) -> None:
    training.keep(left_s=20.0, drain_s=10.0)
    training.directive.stop("SIGTERM")
    assert training.update(15.0)
    assert (training.directive.why, training.directive.cause) == ("SIGTERM", None)


def test_the_loss_window_asks_for_a_save(training: Training) -> None:
    training.directive.loss_window_s = 30.0
    training.directive.saved()
    training.clock.go(29.0)
    assert not training.directive.ask().save
    training.clock.go(2.0)
    assert training.directive.ask().save
    training.directive.saved()
    assert not training.directive.ask().save
