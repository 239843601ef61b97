"""SIGTERM and Ctrl-C as a wish: commit at the next update, then leave."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from raykit.fleet.session import in_ray_job


class Signals:
    """Which signal has come, if one has."""

    def __init__(
        self, say: Callable[[str], None], then: str = "committing at the next update, then leaving"
    ) -> None:
        """`then` is what follows a signal, in words."""
        self._say = say
        self._then = then
        self.come: str | None = None

    @contextmanager
    def handled(self) -> Iterator[Callable[[], None]]:
        """Handle both for the time of the block; a second Ctrl-C does not wait for a commit.

        Gives what puts the handlers there again, for after Ray has put its own.
        """
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def handle() -> None:
            for number in before:
                signal.signal(number, self._on_signal)

        handle()
        try:
            yield handle
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.come is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.come = signal.Signals(number).name
        again = "" if in_ray_job() else " (Ctrl-C again: at once)"  # nobody has a terminal there
        self._say(f"{self.come}: {self._then}{again}")
