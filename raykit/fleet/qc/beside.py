"""QC beside a launch or a search: its workers on what training does not hold, one pool for every run of it.

The oldest open check of all runs comes first. What a failed one means, `qc_heed` says: of a search it ends the trial
whose check it is, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from raykit.errors import RaykitError
from raykit.fleet.budget_actor import Seat, Teller
from raykit.fleet.pool.pool import Glance
from raykit.fleet.pool.settings import RayLost, Wants, not_watched
from raykit.fleet.qc.heed import counted, heed, unheeded_failures
from raykit.fleet.qc.pictures import draw_lagging
from raykit.fleet.qc.pool import QcPool
from raykit.fleet.qc.room import price_of, settings_of, slots_of
from raykit.fleet.site import Site
from raykit.fleet.spending import Spending
from raykit.plan.tables import Qc
from raykit.qc.backlog import told, workable
from raykit.read.qc import QcReader
from raykit.read.qc_runs import RunsRead, RunsReader, Whose, whose_of

DRAIN_S: Final = 600.0
"""How long the end of the work waits for open checks, unless the plan says so."""
ANSWER_S: Final = 30.0
"""How long a worker's lease waits for its answer: QC has time, and a launch that ends has not."""
PICTURES_EVERY_S: Final = 15.0


class QcBeside:
    """The QC of one launch or search, from the start of its Ray to the end of what is open."""

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
        wants: Wants | None = None,
        say: Callable[[str], None],
        ray_lost: RayLost = not_watched,
    ) -> None:
        """Those of the plan's run are examined, or of every trial, those that begin meanwhile included."""
        whose = whose_of(site.plan)
        self._site = site
        self._qc = qc
        self._launch = launch
        self._say = say
        self._reader = RunsReader(site.store, site.name, whose)
        self._pool = pool_beside(
            site,
            qc,
            whose,
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

    def ends(self, run: str) -> str | None:
        """Why a run has to end as failed: a check of it has failed, and the plan says so. None if nothing ends it."""
        return self._ends.get(run)

    def words(self, run: str) -> str | None:
        """How far the checks of a run are: `5 of 11, 1 failed`; None before anything is known of it."""
        read = self._pool.read
        of = None if read is None else read.of(run)
        return None if of is None else counted(of.counts())

    def open_of(self, run: str) -> int:
        """How many checks of a run somebody could take now, or is at. Reads the store; one that is parked waits for a
        person, and is not among them.

        Raises:
            CorruptError: a log or a record is damaged.
            StoreUnavailableError: the store did not answer.
        """
        read = QcReader(self._site.store, self._site.name, run).look(now=time.time())
        return 0 if read is None else workable(read.backlog)

    def draw(self, *, last: bool = False) -> None:
        """Draw charts and contact sheet of a run with new receipts anew, if the last drawing is a while ago.

        One run at a time, since those that train wait meanwhile; at the end all that are left.
        """
        if not last and time.monotonic() - self._drawn_at < PICTURES_EVERY_S:
            return
        most = None if last else 1
        self.pictures |= draw_lagging(
            self._site.store, self._reader, drawn=self._drawn, most=most, say=self._say
        )
        self._drawn_at = time.monotonic()

    def drain(self, stop: Callable[[], str | None], tell: Callable[[Glance], None]) -> Glance:
        """Once nothing trains any more: go on until nothing is open, for as long as the plan waits."""

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
            whose = "" if found is None or not found.trials else f"{read.run}: "
            for each in read.backlog.failed:
                key = (read.run, each.wanted.checkpoint)
                if key not in self._told:
                    self._say(f"! {whose}{told(each)}")
                    self._told.add(key)
            if unheeded_failures(read):
                self.suite = read.suite.digest
                why = heed(self._site.store, read, launch=self._launch)
                if why is not None:
                    self._ends.setdefault(read.run, why)


def pool_beside(
    site: Site,
    qc: Qc,
    whose: Whose,
    launch: str,
    spending: Spending,
    seat: Seat,
    *,
    folder: Path,
    gpus: float,
    say: Callable[[str], None],
    ray_lost: RayLost,
    wants: Wants | None = None,
) -> QcPool:
    """The QC workers beside training, on what that does not hold."""
    plan, price = site.plan, price_of(site.plan, spending)
    return QcPool(
        site.root if "://" in site.root else str(Path(site.root).resolve()),
        site.name,
        whose,
        launch,
        settings=settings_of(plan, qc, price, slots=slots_of(plan), gpus=gpus, wants=wants),
        door=Teller(seat, hold_s=ANSWER_S),
        folder=folder,
        say=say,
        ray_lost=ray_lost,
    )
