"""The QC workers of one launch, search, or `raykit qc run`: a pool whose units are required checkpoints.

pool = QcPool(root, "digits", "main", launch, settings=..., door=teller, folder=ray.folder, say=say)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from raykit.fleet.pool.lease import PoolDoor
from raykit.fleet.pool.pool import Pool
from raykit.fleet.pool.settings import Hiring, PoolSettings, RayLost, not_watched
from raykit.fleet.qc.desk import QcDesk
from raykit.fleet.qc.task import QC, Maker
from raykit.read.qc_runs import RunsRead, Whose
from raykit.store.base import ObjectStore

TRIALS: Final = "trials"
"""What stands in the orders of a worker for the name of one run."""


class QcPool(Pool):
    """The QC workers of one launch. Its glance counts as `QcRead.counts` does, and names failed updates."""

    def __init__(
        self,
        root: str,
        experiment: str,
        whose: Whose,
        launch: str,
        *,
        settings: PoolSettings,
        door: PoolDoor,
        folder: Path,
        say: Callable[[str], None],
        bench: Maker | None = None,
        ray_lost: RayLost = not_watched,
    ) -> None:
        """`bench` makes that which examines; None where it is raykit's own. For the rest see `Hiring`.

        Of trials, one pool and one suite serve all of them, those that begin meanwhile included.
        """
        hiring = Hiring(
            kind=QC,
            root=root,
            experiment=experiment,
            run=whose if isinstance(whose, str) else TRIALS,
            launch=launch,
            settings=settings,
            door=door,
            folder=folder,
            say=say,
            ray_lost=ray_lost,
        )
        self._qc: QcDesk | None = None

        def open_desk(store: ObjectStore) -> QcDesk:
            self._qc = QcDesk(store, experiment, whose, launch, bench=bench)
            return self._qc

        super().__init__(hiring, open_desk)

    @property
    def read(self) -> RunsRead | None:
        """As of the newest look; None before the first one. May be read from another thread."""
        return None if self._qc is None else self._qc.read
