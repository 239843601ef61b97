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

    def make(self, store: ObjectStore, orders: Orders) -> Worker:
        """Load the suite, the frozen code, the recipe and its data.

        Raises:
            NotFoundError: there is no such suite.
            CorruptError: it does not match its digest.
            StoreUnavailableError: the store did not answer.
        """
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
        return worker

    def _examine(self, store: ObjectStore, suite: Suite, orders: Orders, elsewhere: Elsewhere) -> Examine:
        """What examines. Where it cannot be had, the first unit says so: that is recorded, and counts as a try."""
        code = Path(orders.folder) / "code"
        try:
            make = self.bench or _own_bench(self.whose, elsewhere)
            if orders.memory_bytes is not None:
                hold_at_most(orders.memory_bytes)
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
    from raykit.work.qc_unit import Bench, TrialsBench

    return partial(Bench if isinstance(whose, str) else TrialsBench, elsewhere=elsewhere)
