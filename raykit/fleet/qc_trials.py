"""QC beside a search: one pool for every trial, under one suite, the oldest open check of all of them first.

The plan says what a failed check does. `continue` says it once and goes on; `pause` pauses the experiment, as a person
would; `stop` ends the trial whose check it is, as failed, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from raykit.errors import RaykitError
from raykit.fleet.budget_actor import Seat
from raykit.fleet.pool.pool import Glance
from raykit.fleet.pool.settings import RayLost, Wants, not_watched
from raykit.fleet.qc_beside import (
    DRAIN_S,
    counted,
    heed,
    pool_beside,
    unheeded_failures,
)
from raykit.fleet.qc_pictures import draw_runs
from raykit.fleet.site import Site
from raykit.fleet.spending import Spending
from raykit.plan.tables import Qc
from raykit.qc.backlog import told, workable
from raykit.read.qc import QcReader
from raykit.read.qc_runs import BegunTrials, RunsRead, RunsReader, Trials

PICTURES_EVERY_S: Final = 10.0


class TrialsQc:
    """The QC of one search, from the start of its Ray to the end of what is open."""

    def __init__(
        self,
        site: Site,
        qc: Qc,
        launch: str,
        spending: Spending,
        seat: Seat,
        *,
        folder: Path,
        gpus: float,
        say: Callable[[str], None],
        ray_lost: RayLost = not_watched,
        wants: Wants | None = None,
        trials: Trials = BegunTrials,
    ) -> None:
        """`trials` names the runs to look at; those that begin meanwhile are looked at, too."""
        self._site = site
        self._qc = qc
        self._launch = launch
        self._say = say
        self._reader = RunsReader(site.store, site.name, trials)
        self._pool = pool_beside(
            site,
            qc,
            trials,
            launch,
            spending,
            seat,
            folder=folder,
            gpus=gpus,
            wants=wants,
            say=say,
            ray_lost=ray_lost,
        )
        self._failed: tuple[int, ...] = ()
        """Of the newest glance that was heeded."""
        self._told: set[tuple[str, str]] = set()
        """Failed checks that were said, by run and checkpoint."""
        self._ends: dict[str, str] = {}
        self._drawn: dict[str, int] = {}
        """By run: how many receipts its pictures show."""
        self._drawn_at = 0.0
        self.pictures: dict[str, str] = {}
        """By file: its key in the store."""
        self.suite: str | None = None
        """The suite of the newest failure."""

    def turn(self) -> Glance:
        """One look at the pool; heeds what has failed since the one before. Never raises, and never waits for long."""
        glance = self._pool.turn()
        self._see(glance)
        return glance

    def ends_row(self, run: str) -> str | None:
        """Why a trial has to end as failed: a check of it has failed, and the plan says so. None if nothing ends it."""
        return self._ends.get(run)

    def words(self, run: str) -> str | None:
        """How far the checks of a trial are: `5 of 11, 1 failed`; None before anything is known of it."""
        read = self._pool.read
        of = None if read is None else read.of(run)
        return None if of is None else counted(of.counts())

    def open_of(self, run: str) -> int:
        """How many checks of a trial somebody could take now, or is at. Reads the store; one that is parked waits for a
        person, and is not among them.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        read = QcReader(self._site.store, self._site.name, run).look(now=time.time())
        return 0 if read is None else workable(read.backlog)

    def draw(self, *, last: bool = False) -> None:
        """Draw charts and contact sheet of a trial with new receipts anew, if the last drawing is a while ago.

        One trial at a time, since trials that train wait meanwhile; at the end all that are left.
        """
        if not last and time.monotonic() - self._drawn_at < PICTURES_EVERY_S:
            return
        most = None if last else 1
        self.pictures |= draw_runs(
            self._site.store, self._reader, drawn=self._drawn, most=most, say=self._say
        )
        self._drawn_at = time.monotonic()

    def drain(self, stop: Callable[[], str | None], tell: Callable[[Glance], None]) -> Glance:
        """Once every row has its end: go on until nothing is open, for as long as the plan waits."""

        def seen(glance: Glance) -> None:
            self._see(glance)
            tell(glance)

        return self._pool.drain(self._qc.drain_s or DRAIN_S, stop, seen)

    def close(self, *, grace_s: float) -> Glance:
        """End the workers; what is in hand may be finished for so long. Twice is fine."""
        glance = self._pool.close(grace_s=grace_s)
        self.draw(last=True)
        return glance

    def read(self) -> RunsRead | None:
        """How far everything is now; None if that cannot be read."""
        try:
            return self._reader.look(now=time.time())
        except RaykitError as error:
            self._say(f"how far the QC is could not be read: {error}")
            return None

    def _see(self, glance: Glance) -> None:
        if glance.failed == self._failed:
            return
        try:
            self._heed()
        except RaykitError as error:
            self._say(f"what a failed check means could not be read ({error}); it is looked at again")
        else:
            self._failed = glance.failed

    def _heed(self) -> None:
        """Say what has failed, and do what the plan says about it."""
        found = self._reader.look(now=time.time())
        for read in () if found is None else found.reads:
            for each in read.backlog.failed:
                key = (read.run, each.wanted.checkpoint)
                if key not in self._told:
                    self._say(f"! {read.run}: {told(each)}")
                    self._told.add(key)
            if unheeded_failures(read):
                self.suite = read.suite.digest
                why = heed(self._site.store, read, launch=self._launch)
                if why is not None:
                    self._ends.setdefault(read.run, why)
