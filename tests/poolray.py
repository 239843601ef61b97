"""A backlog of the plainest kind, for a pool that knows nothing of what its units are: files in a folder.

`Count` is the task, `FolderDesk` the desk. A unit is taken by creating `claim-N`, and done once there is `done-N`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raykit.fleet.metrics import Dashboard
from raykit.fleet.pool.actor import Orders
from raykit.fleet.pool.desk import Found, Lost
from raykit.ids import sha256
from raykit.steer import Unit
from raykit.store.base import ObjectStore
from raykit.work.puller import Hand, Turn

CONTRACT = sha256(b"a contract")
ROWS = 10.0
"""What each unit comes to."""


class Counter:
    """A puller: ten rows for each unit, but for the one that its process dies of once."""

    def __init__(self, folder: Path, worker: str, *, units: int, deadly: int | None) -> None:
        self.hand: Hand | None = None
        self.tally: Mapping[str, float] = {}
        self._folder = folder
        self._worker = worker
        self._units = units
        self._deadly = deadly

    def turn(self) -> Turn:
        for n in range(self._units):
            if (self._folder / f"done-{n}").exists() or not self._take(n):
                continue
            self.hand = Hand(unit=str(n), what=f"unit {n}", n=1, since=time.time())
            time.sleep(0.05)
            if n == self._deadly and not (self._folder / "died").exists():
                (self._folder / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (self._folder / f"done-{n}").touch()
            self.tally = {"rows": self.tally.get("rows", 0.0) + ROWS}
            self.hand = None
            return Turn(kind="published", what=f"unit {n}")
        return Turn(kind="nothing")

    def _take(self, n: int) -> bool:
        try:
            with (self._folder / f"claim-{n}").open("x") as file:
                file.write(self._worker)
        except FileExistsError:
            return False
        return True


@dataclass(frozen=True, kw_only=True)
class Count:
    """What a worker is told."""

    folder: str
    units: int
    deadly: int | None = None
    contract: str = CONTRACT

    def make(self, store: ObjectStore, orders: Orders) -> Counter:
        return Counter(Path(self.folder), orders.worker, units=self.units, deadly=self.deadly)


@dataclass
class FolderDesk:
    """The desk of such a folder. No more than one worker until a unit is done."""

    task_of_all: Count
    found: Found | None = None
    gained: dict[str, float] = field(default_factory=dict)
    """What it was told that workers have come to, added up."""
    started: list[tuple[float, str]] = field(default_factory=list)
    buried: dict[str, Lost] = field(default_factory=dict)
    written: bool = False

    def look(self) -> None:
        done, claims = self._numbers("done"), self._numbers("claim")
        self.found = Found(
            contract=self.task_of_all.contract,
            looked_at=time.time(),
            takable=self.task_of_all.units - len(done | claims),
            open=self.task_of_all.units - len(done),
            most=None if done else 1,
            unit=Unit(took_s=0.05, peak_bytes=1000) if done else None,
            counts={"done": len(done)},
        )

    def follow(self) -> bool:
        return False

    def bury(self, lost: Mapping[str, Lost], working: Collection[str]) -> tuple[str, ...]:
        """Give back what those had in hand that are lost."""
        said = []
        for n in sorted(self._numbers("claim") - self._numbers("done")):
            worker = self._claim(n).read_text()
            if worker in lost and worker not in working:
                self.buried[worker] = lost[worker]
                self._claim(n).unlink()
                said.append(f"unit {n}, attempt 1: {lost[worker].why}")
        return tuple(said)

    def claimants(self) -> Collection[str]:
        return {self._claim(n).read_text() for n in self._numbers("claim")} | self.buried.keys()

    def write(self) -> Iterator[str]:
        if not self.written and self._numbers("done"):
            self.written = True
            yield "counting: the first one is done"

    def task(self, *, limit_s: float, lease: str) -> Count:
        self.started.append((limit_s, lease))
        return self.task_of_all

    def publish(self, dashboard: Dashboard, gained: Mapping[str, float], *, fresh: bool) -> None:
        assert fresh
        for name, count in gained.items():
            assert count >= 0
            self.gained[name] = self.gained.get(name, 0.0) + count

    def _claim(self, n: int) -> Path:
        return Path(self.task_of_all.folder) / f"claim-{n}"

    def _numbers(self, what: str) -> set[int]:
        found = Path(self.task_of_all.folder).glob(f"{what}-*")
        return {int(path.name.removeprefix(f"{what}-")) for path in found}
