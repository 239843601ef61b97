"""What people's logs may say, in which order: of one experiment, or of the fleet. Pure.

Whoever writes there decides against the log first (`raykit.store.people`); here the rules are told once more, from
the events alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from raykit.records import Cancelled, Locked, Paused, Record, Resumed
from raykit.store.check.rules import Broken


class ActRules:
    """Takes the events of one log in their order and tells what each of them breaks.

    `own` is the scope of the experiment whose log it is; None for the fleet's.
    """

    def __init__(self, own: str | None) -> None:
        self._own = own
        self._paused: set[str] = set()
        self._cancelled = False

    def take(self, event: Record) -> Iterator[Broken]:
        """What `event` breaks, given all that were taken before it."""
        match event:
            case Paused():
                yield from self._in_place(event.scope)
                if event.scope in self._paused:
                    yield Broken("I7", "a scope is paused once, until it is resumed", f"{event.scope} again")
                self._paused.add(event.scope)
            case Resumed():
                yield from self._in_place(event.scope)
                if event.scope not in self._paused:
                    yield Broken("I7", "only a scope that is paused is resumed", f"{event.scope} is not")
                self._paused.discard(event.scope)
            case Cancelled():
                if self._cancelled:
                    yield Broken("I7", "an experiment is cancelled once", f"{self._own} again")
                self._cancelled = True
            case Locked():
                if self._cancelled:
                    found = f"plan {event.plan[:12]} is locked after that"
                    yield Broken("I7", "nothing starts once an experiment is cancelled", found)

    def _in_place(self, scope: str) -> Iterator[Broken]:
        of_experiment = scope.startswith("experiment:")
        if scope != self._own if of_experiment else self._own is not None:
            where = "the fleet" if self._own is None else self._own
            yield Broken("I7", "a scope has one log", f"{scope} in the log of {where}")
