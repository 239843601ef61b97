"""One process that takes units of a backlog, as a Ray actor.

It works in one concurrency group and answers in another, so that its pool hears of it while it is busy. It is made to
lose: the kernel ends it before anything else when memory runs out, it may hold only so much, and it gives way to
training on a shared core. It is never restarted in place: whatever happened to it, a fresh process goes on.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import ray

from raykit.errors import RaykitError
from raykit.fleet.pool import process
from raykit.records import Place
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.place import this_place
from raykit.train.granted import keep_to_granted
from raykit.train.surroundings import stay_inside
from raykit.work.puller import ENDS, Hand, Puller, Turn, TurnKind

PLACE: Final = "place.json"
"""In a worker's folder: which process it is, from before it can answer."""

Came = TurnKind | Literal["left", "error"]
"""Why a worker stopped working: as its last turn said; because it was asked to leave; or something outside a unit."""


class Task(Protocol):
    """What a worker does. It travels to the worker's process as it is."""

    @property
    def contract(self) -> str:
        """Digest of what everyone works under."""
        ...

    def make(self, store: ObjectStore, orders: Orders) -> Puller:
        """Load everything that a unit needs, once, in the worker's own process.

        What no other process could load either is the first unit's failure, so that it is recorded and counts as a try.

        Raises:
            RaykitError: the worker cannot begin. If it is `Unknown`, the start is tried again.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What one worker is told. It travels to its process as it is."""

    root: str
    experiment: str
    run: str
    worker: str
    """Its name: no other process ever has it."""
    folder: str
    """Its own, for the code that it imports; nobody else's, and gone at its end."""
    task: Task
    memory_bytes: int | None = None
    """What it may hold; None where nothing bounds it. The task sees to that, once its code is imported."""
    gpus: float = 0.0
    """What it has of an accelerator. With some of one, the bound is on the memory of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBack:
    """How working came to an end."""

    n: int
    """Which call it was, from 1."""
    how: Came
    turns: int
    """Turns of this process that have come to something so far: units published, failed, or in conflict."""
    tally: Mapping[str, float]
    """What its puller has come to so far."""
    detail: str | None = None
    turn: Turn | None = None
    error: RaykitError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorState:
    """What a worker says of itself. An answer of its that was lost is in here, too."""

    place: Place
    ready: bool = False
    """It has set itself up."""
    busy: bool = False
    """It sets itself up, or works."""
    hand: Hand | None = None
    turns: int = 0
    tally: Mapping[str, float] = field(default_factory=dict)
    came: CameBack | None = None
    """What the newest call to work came to."""
    peak_bytes: int = 0
    """The most memory that its process has held."""


class UnitActor:
    """Takes units until there are none, whenever it is told to."""

    def __init__(self, orders: Orders) -> None:
        self._granted = keep_to_granted()
        self._orders = orders
        self._place = this_place()
        process.lose_first()
        folder = Path(orders.folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / PLACE).write_bytes(self._place.to_bytes())
        self._puller: Puller | None = None
        self._busy = False
        self._calls = 0
        self._turns = 0
        self._came: CameBack | None = None
        self._leave = threading.Event()

    def __repr__(self) -> str:
        return f"{self._orders.worker} of {self._orders.experiment}"

    @ray.method(concurrency_group="ctl")  # type: ignore[untyped-decorator]
    def state(self) -> ActorState:
        """What it is at. Answered while it works."""
        puller = self._puller
        return ActorState(
            place=self._place,
            ready=puller is not None,
            busy=self._busy,
            hand=None if puller is None else puller.hand,
            turns=self._turns,
            tally={} if puller is None else dict(puller.tally),
            came=self._came,
            peak_bytes=process.peak_bytes(),
        )

    @ray.method(concurrency_group="ctl")  # type: ignore[untyped-decorator]
    def leave(self) -> None:
        """Take nothing further; what is in hand may be finished."""
        self._leave.set()

    @ray.method(concurrency_group="work")  # type: ignore[untyped-decorator]
    def set_up(self) -> RaykitError | None:
        """Load everything that a unit needs, once; what refuses that, if something does."""
        self._busy = True
        try:
            self._puller = self._puller or self._make()
        except RaykitError as error:
            return error
        finally:
            self._busy = False
        return None

    @ray.method(concurrency_group="work")  # type: ignore[untyped-decorator]
    def work(self) -> CameBack:
        """Take one unit after the other, until there are none that it could take."""
        self._busy = True
        self._calls += 1
        try:
            self._came = self._until_done()
        finally:
            self._busy = False
        return self._came

    def _until_done(self) -> CameBack:
        puller = self._puller
        assert puller is not None
        try:
            while not self._leave.is_set():
                turn = puller.turn()
                self._turns += turn.kind not in ENDS
                if turn.kind not in ("published", "already"):
                    return self._back(turn.kind, detail=turn.detail, turn=turn)
        except RaykitError as error:
            return self._back("error", detail=str(error), error=error)
        return self._back("left")

    def _back(
        self,
        how: Came,
        *,
        detail: str | None = None,
        turn: Turn | None = None,
        error: RaykitError | None = None,
    ) -> CameBack:
        tally = {} if self._puller is None else dict(self._puller.tally)
        return CameBack(
            n=self._calls, how=how, turns=self._turns, tally=tally, detail=detail, turn=turn, error=error
        )

    def _make(self) -> Puller:
        stay_inside()
        puller = self._orders.task.make(open_store(self._orders.root), self._orders)
        self._granted.require()
        return puller


def hire(orders: Orders, options: Mapping[str, Any]) -> Any:
    """Start the actor; does not wait for it. It ends with the process that started it."""
    cls = ray.remote(concurrency_groups={"ctl": 1, "work": 1})(UnitActor)
    return cls.options(**options).remote(orders)


def place_in(folder: Path) -> Place | None:
    """Which process wrote its place into that folder; None if it has not, or not on this machine."""
    try:
        data = (folder / PLACE).read_bytes()
        return Place.from_bytes(data, PLACE)
    except (OSError, RaykitError):
        return None


def clear(folder: Path) -> None:
    """Remove a worker's folder, if it is on this machine."""
    shutil.rmtree(folder, ignore_errors=True)
