"""The pool that makes the units of one set, from its start to the point where nothing is left that it could do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raykit.errors import RaykitError, StoreUnavailableError
from raykit.fleet.door import HOLD_S
from raykit.fleet.generate.desk import Afford, GenerateDesk, Means
from raykit.fleet.generate.outcome import Making
from raykit.fleet.generate.task import GENERATE, Terms
from raykit.fleet.pool.lease import PoolDoor
from raykit.fleet.pool.pool import Glance, Pool
from raykit.fleet.pool.settings import Hiring, PoolSettings, RayLost, not_watched
from raykit.store.base import ObjectStore

POLL_S: Final = 0.5
"""Between two looks at the pool: while units are short, this process is one more that wants a core."""
GRACE_S: Final = 60.0
"""What a worker may take to finish what it has in hand, once everyone leaves."""

Tell = Callable[[Making], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Why a pool came to its end."""

    desk: GenerateDesk | None
    waits: str | None = None
    """Why nobody works, though something is open."""
    refused: RaykitError | None = None
    """What refuses it, if something does."""


class SetPool:
    """The workers of one set. Used by one thread."""

    def __init__(
        self,
        root: str,
        terms: Terms,
        means: Means,
        settings: PoolSettings,
        *,
        run: str,
        launch: str,
        door: PoolDoor,
        folder: Path,
        afford: Afford,
        say: Callable[[str], None],
        ray_lost: RayLost = not_watched,
    ) -> None:
        self._terms = terms
        self._desk: GenerateDesk | None = None
        hiring = Hiring(
            kind=GENERATE,
            root=root,
            experiment=terms.contract.experiment,
            run=run,
            launch=launch,
            settings=settings,
            door=door,
            folder=folder,
            say=say,
            ray_lost=ray_lost,
        )

        def open_desk(store: ObjectStore) -> GenerateDesk:
            self._desk = GenerateDesk(store, terms, means, launch, afford=afford)
            return self._desk

        self._pool = Pool(hiring, open_desk)

    def work(self, stop: Callable[[], str | None], tell: Tell) -> End:
        """Make units until nothing is open, nobody may go on, or `stop` gives a reason.

        Raises:
            Broken: stored bytes disagree.
            Refused: what a worker met that no worker could work with.
            StoreUnavailableError: the store stayed away.
            Unknown: Ray has died.
            RaykitError: no worker could make anything.
        """
        grace_s = 0.0
        try:
            end = self._follow(stop, tell)
            grace_s = GRACE_S
        finally:
            self._pool.close(grace_s=grace_s)  # whoever is interrupted twice does not wait
        return end

    def _follow(self, stop: Callable[[], str | None], tell: Tell) -> End:
        began, away_since = time.time(), None
        while stop() is None:
            glance = self._pool.turn()
            if glance.looked_at:
                tell(self._making(glance))  # nothing is known before the first look
            if self._pool.broken is not None:
                raise self._pool.broken
            end = self._end(glance) if glance.looked_at >= began and not glance.busy else None
            if end is not None:
                return end
            away_since = _away(glance, away_since)
            time.sleep(POLL_S)
        return End(desk=self._desk, waits=stop())

    def _end(self, glance: Glance) -> End | None:
        """Whether there is nothing left to wait for."""
        refused = None if self._desk is None else self._desk.refused
        if not glance.open and not glance.counts.get("given-up"):
            return End(desk=self._desk)
        if refused is not None or (glance.refusal is not None and not glance.workers):
            return End(desk=self._desk, refused=refused or glance.refusal)
        return None if glance.waits is None else End(desk=self._desk, waits=glance.waits)

    def _making(self, glance: Glance) -> Making:
        desk, contract = self._desk, self._terms.contract
        units = sum(glance.counts.values()) or -(-contract.rows // contract.unit_rows)
        published = 0 if desk is None else desk.published
        rows = min(contract.rows, published * contract.unit_rows)
        made = sum(glance.tally.get(name, 0.0) for name in ("produced", "filtered", "failed"))
        worked_s = glance.tally.get("all_s", 0.0)
        pace = made / worked_s * max(1, glance.workers) if made and worked_s else None
        return Making(
            name=contract.name,
            published=published,
            units=units,
            rows=rows,
            rows_requested=contract.rows,
            rows_per_s=pace,
            workers=glance.workers,
            canary=desk is None or not desk.passed,
            eta_s=(contract.rows - rows) / pace if pace else None,
        )


def _away(glance: Glance, since: float | None) -> float | None:
    """Since when the store has not answered; None while it does."""
    if glance.away is None:
        return None
    now = time.monotonic()
    if since is not None and now - since > HOLD_S:
        raise StoreUnavailableError(f"the store stayed away for {HOLD_S:.0f} s: {glance.away}")
    return now if since is None else since
