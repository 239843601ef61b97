"""What a launch does when its run turns out to be less exact than it was to be: it says so, and pauses by the plan.

A run that has ended keeps the class that it fell to; there is nothing left to pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from raykit.exactness import Fall, falls, words_of
from raykit.fleet.site import Site
from raykit.pauses import Acts
from raykit.reconcile import RunState, falls_short
from raykit.records import Compared, Undeclared
from raykit.store.people import pause


class Fallen:
    """The falls of one launch's own attempts, each heeded once."""

    def __init__(self, site: Site, launch: str, say: Callable[[str], None]) -> None:
        self._site = site
        self._launch = launch
        self._say = say
        self.harmless = frozenset(site.plan.run.harmless)
        """What lowers nothing, as the plan says, and people as far as they were heard."""
        self._told: set[str] = set()
        self._compared = 0

    def heed(self, state: RunState, acts: Acts) -> None:
        """Tell what is new, and pause the experiment where the plan says that a person decides.

        Raises:
            CorruptError: the experiment's log is damaged.
            UnknownOutcomeError: the reply was lost; heed it again.
            StoreUnavailableError: the store did not answer.
        """
        self._tell_comparisons(state)
        for fall in self._own(state, acts):
            if fall.words in self._told:
                continue
            self._say(f"no longer {_before(state)}: {fall.words}")
            run = self._site.plan.run
            if run.on_inexact == "pause" and state.ended is None and falls_short(fall.to, run.needed):
                self._pause(fall)
            self._told.add(fall.words)

    def _tell_comparisons(self, state: RunState) -> None:
        """What was compared without a fall: equal, or how much a resume of a lower class differs."""
        new = state.compared[self._compared :]
        self._compared = len(state.compared)
        for event in new:
            if event.lowers is None and self._is_own(event, state):
                self._say(words_of(event))

    def _own(self, state: RunState, acts: Acts) -> Iterator[Fall]:
        """What lowered the run in attempts of this launch: a person has answered what came before it."""
        before = RunState(
            compared=[event for event in state.compared if not self._is_own(event, state)],
            undeclared=[event for event in state.undeclared if not self._is_own(event, state)],
        )
        self.harmless |= acts.harmless
        harmless = self.harmless
        answered = {fall.words for fall in falls(before, harmless)}
        yield from (fall for fall in falls(state, harmless) if fall.words not in answered)

    def _is_own(self, event: Compared | Undeclared, state: RunState) -> bool:
        return any(a.attempt == event.attempt and a.launch == self._launch for a in state.attempts)

    def _pause(self, fall: Fall) -> None:
        scope, person = f"experiment:{self._site.name}", f"launch {self._launch}"
        pause(self._site.store, scope, cause="exactness", reason=fall.words, person=person, at=time.time())


def _before(state: RunState) -> str:
    return "state-exact" if any(g.exactness == "state-exact" for g in state.gates.values()) else "exact"
