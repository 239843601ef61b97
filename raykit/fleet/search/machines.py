"""What a search runs on: a Ray, Ray Tune in it, the actor that answers for the money, and the checks beside rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import ray

from raykit.fleet.budget_actor import Seat, open_seat
from raykit.fleet.pool.pool import Glance
from raykit.fleet.purse import Purse
from raykit.fleet.qc.beside import QcBeside
from raykit.fleet.qc.room import slots_of
from raykit.fleet.search.exchange import Exchange
from raykit.fleet.search.opening import Opened
from raykit.fleet.search.room import room_of
from raykit.fleet.search.training import lost_tune
from raykit.fleet.search.tuning import Tuning
from raykit.fleet.session import RayHere, open_ray
from raykit.fleet.shown import shown_of
from raykit.read.qc_runs import RunsRead
from raykit.train.door import Door

LEAVE_S: Final = 5.0
UNIT_S: Final = 60.0
"""How long a check in hand may still take when the search is told to leave, and when it is over or paused."""
TUNE_CLOSE_S: Final = 20.0

Say = Callable[[str], None]


class Checks(Protocol):
    """The QC beside a search, as its rows ask it."""

    @property
    def suite(self) -> str | None:
        """The suite of the newest failure."""
        ...

    def ends(self, run: str) -> str | None:
        """Why a row has to end as failed; None if nothing ends it."""
        ...

    def words(self, run: str) -> str | None:
        """How far the checks of a row are."""
        ...

    def open_of(self, run: str) -> int:
        """How many checks of a row somebody could take now, or is at."""
        ...


class Machines(Protocol):
    """What a search runs on."""

    def open(self, opened: Opened, exchange: Exchange) -> None:
        """Start it. Whatever the exchange hands out from then on is run."""
        ...

    @property
    def most(self) -> int:
        """How many rows may train at once."""
        ...

    @property
    def storage(self) -> Path:
        """A private folder for what nobody reads again."""
        ...

    def door(self, purse: Purse) -> Door:
        """The door of one row, as it travels to its trial."""
        ...

    @property
    def checks(self) -> Checks | None:
        """The QC beside the rows; None if the plan has none."""
        ...

    def turn(self) -> Glance | None:
        """One look at what runs beside the rows.

        Raises:
            Unknown: the Ray, or Tune, has died: the same command goes on.
        """
        ...

    def drain(self, stop: Callable[[], str | None], tell: Callable[[Glance], None]) -> None:
        """Go on until no check is open, for as long as the plan waits."""
        ...

    def close(self, *, leaving: bool, abandoned: bool) -> None:
        """End all of it, whether it was started or not. `leaving` is in haste; with `abandoned` rows are cut off."""
        ...

    def read(self) -> RunsRead | None:
        """How far all checks are; None if there are none, or that cannot be read."""
        ...

    @property
    def pictures(self) -> Sequence[str]:
        """Keys of what was drawn of them."""
        ...


class RayMachines:
    """A private Ray, or the cluster of this Ray job."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._ray: RayHere | None = None
        self._tuning: Tuning | None = None
        self._checks: QcBeside | None = None
        self._served: Any = None
        """The budget actor lives as long as this handle."""
        self.most = 0

    def open(self, opened: Opened, exchange: Exchange) -> None:
        """Start Ray, Tune in it, and the checks.

        Raises:
            GateError: the cluster that runs this job can never give so much.
            InsecureClusterError: the Ray would listen beyond loopback, or serve without a token.
            RaykitError: Ray did not start, or could not be joined.
        """
        site, plan = opened.site, opened.site.plan
        slots = 0 if plan.qc is None else slots_of(plan)
        room = room_of(plan, opened.registration.concurrent)
        self._ray = here = open_ray(
            cpus=room.cpus + slots,
            gpus=room.gpus,
            spare=room.spare,
            resources={"qc": float(slots)} if slots else {},
            shown=shown_of(site, "search", opened.task, launch=opened.driver),
            say=self._say,
        )
        gpus = int(ray.cluster_resources().get("GPU", 0))
        self.most = room.within(gpus)
        account = opened.spending.ledger.account
        seat = Seat(root=opened.task.root, account=account, idle_s=here.idle_s)
        self._served = open_seat(seat)
        self._tuning = Tuning(
            exchange, folder=here.folder / "tune", name=site.name, bundle=room.bundle, concurrent=self.most
        )
        self._tuning.start()
        if plan.qc is not None:
            self._checks = QcBeside(
                site,
                plan.qc,
                opened.driver,
                opened.spending,
                seat,
                folder=here.folder,
                gpus=1.0 if gpus - room.gpus * self.most >= slots else 0.0,
                wants=here.wants("qc"),
                say=self._say,
                ray_lost=here.lost,
            )

    @property
    def storage(self) -> Path:
        """Where Ray Train keeps its own notes."""
        return self._here.folder / "train"

    def door(self, purse: Purse) -> Door:
        """Through the budget actor, which serves every row."""
        purse.idle_s = self._here.idle_s
        return purse.door()

    @property
    def checks(self) -> QcBeside | None:
        """The pool that serves every row."""
        return self._checks

    def turn(self) -> Glance | None:
        """See that Ray and Tune are alive, and let the checks take their turn.

        Raises:
            Unknown: one of them is not: the same command goes on.
        """
        lost = self._here.lost()
        if lost is not None:
            raise lost
        if self._tuning is None or not self._tuning.running:
            raise lost_tune(None if self._tuning is None else self._tuning.error)
        if self._checks is None:
            return None
        glance = self._checks.turn()
        self._checks.draw()
        return glance

    def drain(self, stop: Callable[[], str | None], tell: Callable[[Glance], None]) -> None:
        """Examine what is still open, within the plan's bound."""
        if self._checks is not None:
            self._say("every row has its end; what is open of their QC is examined now")
            self._checks.drain(stop, tell)

    def close(self, *, leaving: bool, abandoned: bool) -> None:
        """End the checks, Tune, and the Ray that they run in. Twice is fine.

        Raises:
            DeadlineError: a process of the Ray still runs after SIGKILL.
        """
        try:
            if self._checks is not None:
                self._checks.close(grace_s=LEAVE_S if leaving else UNIT_S)
        finally:
            if self._tuning is not None:
                self._tuning.close(0.0 if abandoned else TUNE_CLOSE_S)
            if self._ray is not None:
                self._ray.close()

    def read(self) -> RunsRead | None:
        """How far the checks are."""
        return None if self._checks is None else self._checks.read()

    @property
    def pictures(self) -> Sequence[str]:
        """Charts and contact sheets."""
        return () if self._checks is None else tuple(self._checks.pictures.values())

    @property
    def _here(self) -> RayHere:
        assert self._ray is not None, "not open"
        return self._ray
