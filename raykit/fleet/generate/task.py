"""What one generation worker does, as its pool tells it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from raykit.errors import RaykitError
from raykit.fleet.pool.actor import Orders
from raykit.fleet.pool.process import hold_at_most
from raykit.fleet.pool.settings import Kind
from raykit.ids import Digest
from raykit.records import GenerationContract
from raykit.shards.contract import Probed
from raykit.shards.units import Unit
from raykit.store.base import ObjectStore
from raykit.work.again import MakeElsewhere
from raykit.work.gen_worker import Rules, UnitWorker
from raykit.work.generated import Made, Make

GENERATE: Final = Kind(role="generate", word="generation")


class Maker(Protocol):
    """Makes what makes units, in the worker's own process. It travels there as it is: a module has it by name."""

    @property
    def probed(self) -> Probed:
        """What its producer says of itself: nobody has to ask it in a process of its own."""
        ...

    def __call__(self, store: ObjectStore, contract: GenerationContract, teacher: str, folder: Path) -> Make:
        """`teacher` is the key of its manifest; `folder` is private and empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for every worker on one set."""

    contract: GenerationContract
    teacher: str
    """The key of its manifest."""
    tries: int
    canary_units: int
    maker: Maker | None = None
    """None where it is raykit's own producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateTask:
    """Makes units of one contract."""

    terms: Terms
    deadline_s: float
    lease: str | None

    @property
    def contract(self) -> Digest:
        return self.terms.contract.digest

    def make(self, store: ObjectStore, orders: Orders) -> UnitWorker:
        """Load the frozen code, the recipe and the teacher's verified weights.

        What is refused here, no process could begin with: it is no unit's failure, and nothing is claimed.

        Raises:
            CorruptError: stored bytes do not match their digests.
            GateError: what is in effect here is not what the contract was frozen with.
            PlanError: the recipe or its params cannot be opened.
            StoreUnavailableError: the store did not answer.
        """
        terms = self.terms
        rules = Rules(
            tries=terms.tries,
            deadline_s=self.deadline_s,
            canary_units=terms.canary_units,
            lease=self.lease,
        )
        make = self._make(store, orders)
        again = (
            None
            if terms.maker is not None
            else MakeElsewhere(store.url, terms.contract, terms.teacher, Path(orders.folder) / "code")
        )
        return UnitWorker(store, terms.contract, rules, worker=orders.worker, make=make, again=again)

    def _make(self, store: ObjectStore, orders: Orders) -> Make:
        """What makes units. Where the recipe's own code fails already now, the first unit says so."""
        terms, folder = self.terms, Path(orders.folder) / "code"
        try:
            maker = terms.maker or _own_producer
            if orders.memory_bytes is not None:
                hold_at_most(orders.memory_bytes, gpus=orders.gpus)
            folder.mkdir(mode=0o700, exist_ok=True)
            return maker(store, terms.contract, terms.teacher, folder)
        except RaykitError:
            raise
        except Exception as error:  # noqa: BLE001 - a recipe may raise anything
            return _Cannot(error)


@dataclass(frozen=True, slots=True)
class _Cannot:
    """A producer that cannot begin."""

    error: Exception

    def __call__(self, unit: Unit) -> Made:
        raise self.error


def _own_producer(store: ObjectStore, contract: GenerationContract, teacher: str, folder: Path) -> Make:
    # imported here, and not above: it brings torch, which a pool does without
    from raykit.work.gen_unit import Producer

    return Producer(store, contract, teacher, folder)
