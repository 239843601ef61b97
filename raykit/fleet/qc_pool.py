"""The QC workers of one launch, or of one `raykit qc run`: a pool whose units are required checkpoints.

pool = QcPool(root, "digits", "main", launch, settings=..., door=teller, folder=ray.folder, say=say)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raykit.fleet.pool.lease import PoolDoor
from raykit.fleet.pool.pool import Pool
from raykit.fleet.pool.settings import Hiring, PoolSettings, RayLost, not_watched
from raykit.fleet.qc_desk import QcDesk
from raykit.fleet.qc_task import QC, Maker


class QcPool(Pool):
    """The QC workers of one launch. Its glance counts as `QcRead.counts` does, and names failed updates."""

    def __init__(
        self,
        root: str,
        experiment: str,
        run: str,
        launch: str,
        *,
        settings: PoolSettings,
        door: PoolDoor,
        folder: Path,
        say: Callable[[str], None],
        bench: Maker | None = None,
        ray_lost: RayLost = not_watched,
    ) -> None:
        """`bench` makes that which examines; None where it is raykit's own. For the rest see `Hiring`."""
        hiring = Hiring(
            kind=QC,
            root=root,
            experiment=experiment,
            run=run,
            launch=launch,
            settings=settings,
            door=door,
            folder=folder,
            say=say,
            ray_lost=ray_lost,
        )
        super().__init__(hiring, lambda store: QcDesk(store, experiment, run, launch, bench=bench))
