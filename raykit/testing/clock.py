"""A clock that stands still until a test moves it."""

from __future__ import annotations


class FakeClock:
    """Calling it gives the time in seconds since 1970, as `time.time` does; `sleep` only moves it."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock; a negative number is a clock that was set back."""
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        """Stand in for `time.sleep`: note it in `slept`, and let the time pass."""
        self.slept.append(seconds)
        self.advance(seconds)
