"""One process that examines checkpoints, as a Ray actor.

It works in one concurrency group and answers in another, so that its pool hears of it while it is busy. It is made to
lose: the kernel ends it before anything else when memory runs out, it may hold only so much, and it gives way to
training on a shared core. It is never restarted in place: whatever happened to it, a fresh process goes on.
"""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import ray

from raykit.errors import RaykitError, Unknown
from raykit.records import Place, Receipt, Request, Suite
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.place import this_place
from raykit.store.qc import Examinations
from raykit.work.examined import Examine, Examined
from raykit.work.qc_worker import Hand, Rules, Turn, TurnKind, Worker

Maker = Callable[..., Examine]
"""Makes what examines: `(store, experiment, suite, roster, folder)`."""

PLACE: Final = "place.json"
"""In a worker's folder: which process it is, from before it can answer."""

NICE: Final = 5
OOM_SCORE: Final = 1000
"""Of all processes of the machine, this one is ended first."""

Came = TurnKind | Literal["left", "error"]
"""Why a worker stopped working: as its last turn said; because it was asked to leave; or something outside a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What one worker is told. It travels to its process as it is."""

    root: str
    experiment: str
    run: str
    suite: str
    """Digest of the suite."""
    worker: str
    rules: Rules
    folder: str
    """Its own, for the code that it imports; nobody else's, and gone at its end."""
    memory_bytes: int | None = None
    """What it may hold; None where nothing bounds it."""
    bench: Maker | None = None
    """None where it is raykit's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameBack:
    """How working came to an end."""

    n: int
    """Which call it was, from 1."""
    how: Came
    turns: int
    """Turns of this process that have come to something so far: units published, failed, or in conflict."""
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
    came: CameBack | None = None
    """What the newest call to work came to."""
    peak_bytes: int = 0
    """The most memory that its process has held."""


class QcActor:
    """Examines checkpoints until there are none, whenever it is told to."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._place = this_place()
        _lose_first()
        folder = Path(orders.folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / PLACE).write_bytes(self._place.to_bytes())
        self._worker: Worker | None = None
        self._busy = False
        self._calls = 0
        self._turns = 0
        self._came: CameBack | None = None
        self._leave = threading.Event()

    def __repr__(self) -> str:
        return f"QcActor({self._orders.worker})"

    @ray.method(concurrency_group="ctl")  # type: ignore[untyped-decorator]
    def state(self) -> ActorState:
        """What it is at. Answered while it works."""
        worker = self._worker
        return ActorState(
            place=self._place,
            ready=worker is not None,
            busy=self._busy,
            hand=None if worker is None else worker.hand,
            turns=self._turns,
            came=self._came,
            peak_bytes=_peak_bytes(),
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
            self._worker = self._worker or self._make()
        except RaykitError as error:
            return error
        finally:
            self._busy = False
        return None

    @ray.method(concurrency_group="work")  # type: ignore[untyped-decorator]
    def work(self) -> CameBack:
        """Examine one checkpoint after the other, until there are none that it could take."""
        self._busy = True
        self._calls += 1
        try:
            self._came = self._until_done()
        finally:
            self._busy = False
        return self._came

    def _until_done(self) -> CameBack:
        worker = self._worker
        assert worker is not None
        try:
            while not self._leave.is_set():
                turn = worker.turn()
                ends = turn.kind in ("nothing", "waiting", "paused")
                self._turns += not ends
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
        return CameBack(n=self._calls, how=how, turns=self._turns, detail=detail, turn=turn, error=error)

    def _make(self) -> Worker:
        orders = self._orders
        store = open_store(orders.root)
        suite = Examinations(store, orders.experiment).suite(orders.suite)
        return Worker(
            store,
            orders.experiment,
            orders.run,
            suite,
            orders.rules,
            worker=orders.worker,
            examine=self._examine(store, suite),
        )

    def _examine(self, store: ObjectStore, suite: Suite) -> Examine:
        """What examines. Where it cannot be had, the first unit says so: that is recorded, and counts as a try."""
        orders, code = self._orders, Path(self._orders.folder) / "code"
        try:
            make = orders.bench or _own_bench()
            if orders.memory_bytes is not None:
                _hold_at_most(orders.memory_bytes)
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


def hire(orders: Orders, options: Mapping[str, Any]) -> Any:
    """Start the actor; does not wait for it. It ends with the process that started it."""
    cls = ray.remote(concurrency_groups={"ctl": 1, "work": 1})(QcActor)
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


# --- what a process does to itself ----------------------------------------------------------------------------


def _lose_first() -> None:
    """Come last for the processor, and first for the kernel that is out of memory."""
    os.nice(NICE)
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    except OSError:
        pass  # a machine without it has its own ways


def _hold_at_most(memory_bytes: int) -> None:
    """Let every allocation fail that would make this process hold more."""
    data, held = _status_bytes("VmData"), _status_bytes("RssAnon")
    # what is set aside and not used, stacks of threads above all, is not what is meant
    limit = memory_bytes + max(0, data - held)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )


def _peak_bytes() -> int:
    # what `getrusage` tells may be the peak of the process that this one was forked from
    return _status_bytes("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status_bytes(field: str) -> int:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = next((line for line in text.splitlines() if line.startswith(f"{field}:")), "")
    words = found.split()
    return int(words[1]) * 1024 if len(words) > 1 else 0


def _own_bench() -> Maker:
    """Imported here, and not above: it brings torch, which a pool does without."""
    from raykit.work.qc_unit import Bench

    return Bench
