"""What one QC worker does, as its pool tells it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from raykit.errors import Unknown
from raykit.fleet.pool.actor import Orders
from raykit.fleet.pool.process import hold_at_most
from raykit.fleet.pool.settings import Kind
from raykit.read.qc_runs import Whose
from raykit.records import Receipt, Request, Suite
from raykit.store.base import ObjectStore
from raykit.store.qc import Examinations
from raykit.work.again import Elsewhere
from raykit.work.examined import Examine, Examined
from raykit.work.puller import Puller
from raykit.work.qc_worker import Rules, Worker

QC: Final = Kind(role="qc", word="QC")

Maker = Callable[..., Examine]
"""Makes what examines: `(store, experiment, suite, roster, folder)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QcTask:
    """Examines the checkpoints of one run, or of every trial of a search, under one suite."""

    contract: str
    """Digest of the suite."""
    rules: Rules
    whose: Whose
    bench: Maker | None = None
    """None where it is raykit's own."""

    def make(self, store: ObjectStore, orders: Orders) -> Puller:
        """Load the suite, the frozen code, the recipe and its data. Of one run, it may be replayed between checks.

        Raises:
            NotFoundError: there is no such suite.
            CorruptError: it does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
        replaying = self._replaying(store, orders)  # before the recipe has changed anything of this process
        suite, elsewhere = Examinations(store, orders.experiment).suite(self.contract), Elsewhere()
        worker = Worker(
            store,
            orders.experiment,
            self.whose,
            suite,
            self.rules,
            worker=orders.worker,
            examine=self._examine(store, suite, orders, elsewhere),
            elsewhere=elsewhere if self.bench is None else None,
        )
        elsewhere.starts = worker.asks_elsewhere
        return worker if replaying is None else replaying(worker)

    def _replaying(self, store: ObjectStore, orders: Orders) -> Callable[[Puller], Puller] | None:
        """What lets a worker replay its run between checks; None where it examines those of many."""
        if not isinstance(self.whose, str) or self.bench is not None:
            return None
        from raykit.train.replaying import Surroundings
        from raykit.work.replay_beside import Beside

        return partial(
            Beside,
            store=store,
            experiment=orders.experiment,
            run=self.whose,
            root=orders.root,
            name=orders.worker,
            lease=self.rules.lease,
            surroundings=Surroundings.here(),
        )

    def _examine(self, store: ObjectStore, suite: Suite, orders: Orders, elsewhere: Elsewhere) -> Examine:
        """What examines. Where it cannot be had, the first unit says so: that is recorded, and counts as a try."""
        code = Path(orders.folder) / "code"
        try:
            make = self.bench or _own_bench(self.whose, elsewhere)
            if orders.memory_bytes is not None:
                hold_at_most(orders.memory_bytes, gpus=orders.gpus)
            code.mkdir(mode=0o700, exist_ok=True)
            roster = Examinations(store, orders.experiment).roster(suite.roster)
            return make(store, orders.experiment, suite, roster, code)
        except Unknown:
            raise  # the store is away: the start is tried again
        except Exception as error:  # noqa: BLE001 - a recipe or its data may raise anything
            return _Cannot(error)


@dataclass(frozen=True, slots=True)
class _Cannot:
    """An examination that cannot begin."""

    error: Exception

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        raise self.error


def _own_bench(whose: Whose, elsewhere: Elsewhere) -> Maker:
    """Imported here, and not above: it brings torch, which a pool does without."""
    from raykit.work.qc_trials import TrialsBench
    from raykit.work.qc_unit import Bench

    return partial(Bench if isinstance(whose, str) else TrialsBench, elsewhere=elsewhere)
