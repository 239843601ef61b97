"""Undeclared state that is found at a save goes into the run's log: once by each name, and in nobody's way.

What is made of it, a pause or a note, is for whoever reads the log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from raykit.errors import RaykitError
from raykit.reconcile import require_attempt
from raykit.records import Exactness, Record, RunEntry, Undeclared
from raykit.store.log import RunLog
from raykit.train.hidden.walk import Roots
from raykit.train.hidden.watch import Watch
from raykit.train.rows import Stamp
from raykit.train.state import Live


class Watching:
    """Looks at each save of rank 0 and writes down what is new."""

    def __init__(
        self,
        log: RunLog,
        stamp: Stamp,
        live: Live,
        roots: Callable[[], Roots],
        *,
        cleared: Collection[str],
        harmless: Collection[str],
        since: float,
    ) -> None:
        self._log = log
        self._stamp = stamp
        self._live = live
        self._begun = live.progress.update
        self._watch = Watch(roots, self._saved, cleared=cleared, harmless=harmless, since=since)
        self._waiting: tuple[str, ...] = ()

    def at_save(self) -> None:
        """Look, and write down what is found; what cannot be written now is written at a later save."""
        if self._live.progress.update > self._begun:
            self._waiting += self._watch.look()
        if not self._waiting:
            return
        try:
            self._log.append(self._told, at=time.time())
        except (
            RaykitError
        ) as error:  # whoever has the run now, or a store that is away: the save itself will say
            print(f"undeclared state could not be noted: {error.kind}: {error}", file=sys.stderr)
        else:
            self._waiting = ()

    def _told(self, entries: Sequence[RunEntry]) -> list[Record]:
        require_attempt(self._log.state, self._stamp.launch, self._stamp.attempt)
        before = {name for event in self._log.state.undeclared for name in event.names}
        names = tuple(name for name in self._waiting if name not in before)
        if not names:
            return []
        update, attempt = self._live.progress.update, self._stamp.attempt
        return [Undeclared(attempt=attempt, update=update, names=names, lowers=_lowers(names))]

    def _saved(self) -> Any:
        """The trees of a checkpoint, but the moments, which nobody else holds."""
        live = self._live
        optimizer = {key: value for key, value in live.optimizer.state_dict().items() if key != "state"}
        return {
            "optimizer": optimizer,
            "scheduler": None if live.scheduler is None else live.scheduler.state_dict(),
            "recipe": live.recipe.state_dict() if hasattr(live.recipe, "state_dict") else None,
        }


def _lowers(names: Collection[str]) -> Exactness:
    """The class that a run falls to that has undeclared state: without it, the same rows come in the same order,
    unless it is the dataset's."""
    return "inexact" if any(name.startswith("dataset") for name in names) else "order-exact"
