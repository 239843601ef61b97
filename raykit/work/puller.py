"""One process that takes units of a backlog, one after the other, as whoever runs it sees it.

    while (turn := puller.turn()).kind not in ENDS:
        ...

What a unit is, is the puller's own matter: a checkpoint to examine, or rows to generate. All that it knows is in the
store, so any number of them may share a backlog, and each may be killed at any instant. No Ray and no torch here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeVar

from raykit.errors import StoreUnavailableError, UnknownOutcomeError
from raykit.records import FailureKind

WAITS_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Between two tries at a write that the store did not take or did not answer."""

INSISTS_S: Final = 60.0
"""After so long there is no other try: a store may take its own time for each of them."""

T = TypeVar("T")

TurnKind = Literal["published", "already", "conflict", "failed", "nothing", "waiting", "paused"]
"""What came of a turn. `already`: another attempt had published the same bytes; `conflict`: other bytes, which pauses
everyone on the contract; `nothing`: no open unit that nobody is at; `waiting`: there are some, and another process has
to come first."""

ENDS: Final = frozenset({"nothing", "waiting", "paused"})
"""Turns that took nothing: there is no use in another one right away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """The attempt that a puller is at."""

    unit: str
    """Its key among all units of the contract."""
    what: str
    """In words: `update 200`, `unit 17`."""
    n: int
    """Which attempt at it, from 1."""
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What came of one turn."""

    kind: TurnKind
    what: str | None = None
    """The unit, in words."""
    took_ms: int = 0
    detail: str | None = None
    failed: FailureKind | None = None
    """As what the attempt failed, if it did."""
    spent: bool = False
    """A fresh process has to go on: this one may itself be what fails."""


class Puller(Protocol):
    """Takes one unit at a time."""

    @property
    def hand(self) -> Hand | None:
        """What it is at. May be read from another thread."""
        ...

    @property
    def tally(self) -> Mapping[str, float]:
        """What it has come to since its start, by name; each only grows. May be read from another thread."""
        ...

    def turn(self) -> Turn:
        """Take at most one unit, and say what came of it.

        Raises:
            CorruptError: a log or a record is damaged.
            UnknownOutcomeError: a write was not answered, and nothing is in hand: take another turn.
            StoreUnavailableError: the store did not answer, and nothing is in hand.
        """
        ...


def surely(act: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Repeat a write that the store did not take or did not answer, with the same bytes.

    Raises:
        UnknownOutcomeError: it was not answered, however often it was tried.
        StoreUnavailableError: the store stayed away.
    """
    until_s = time.monotonic() + INSISTS_S
    for wait_s in WAITS_S:
        try:
            return act()
        except (UnknownOutcomeError, StoreUnavailableError):
            if time.monotonic() > until_s:
                raise
            sleep(wait_s)
    return act()
