"""Hold while the store does not answer: the same bytes again, for so long, then say so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from raykit.errors import StoreUnavailableError, UnknownOutcomeError

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


def patiently(action: Callable[[], T], *, hold_s: float) -> T:
    """The action's answer, however often it takes. It must be one that may be repeated: its own bytes are success.

    Raises:
        StoreUnavailableError: the store stayed away for longer than `hold_s`.
        UnknownOutcomeError: the same, and what was written last is not known.
    """
    since = time.monotonic()
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return action()
        except (StoreUnavailableError, UnknownOutcomeError):
            if time.monotonic() - since > hold_s:
                raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
