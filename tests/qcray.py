"""Real QC workers on a local Ray, with an examination that does what the test says.

backlog(tmp_path)                          # a trained run with 5 checkpoints to examine, and its pool
behave(root, at={20: "loop"})              # from now on, in every worker process that starts

Beside the root lies a file of rules: what an examination does at an update, how often, and how long each takes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from makeqc import QcMaker, make_trained
from qchooks import Examine, Made

from raykit.budget.admit import Request as Wanted
from raykit.budget.book import Lease
from raykit.errors import ConflictError, RaykitError
from raykit.fleet.pool.pool import Glance
from raykit.fleet.pool.settings import PoolSettings
from raykit.fleet.qc.pool import QcPool
from raykit.fleet.session import start_local
from raykit.ids import Digest
from raykit.read.qc import QcRead, read_qc
from raykit.records import EndReason, ExperimentEntry, Place, Receipt, Request, Reserved, Roster, Suite, Terms
from raykit.store import layout, open_store
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.qc import Examinations
from raykit.work.examined import Examined

DEADLINE_S = 100.0
LAUNCH = "f00d"


def behave(root: Path, **rules: Any) -> None:
    """Say what examinations do: `at={20: "loop"}`, `sleep_s=0.2`, `times=1` for the first attempts only."""
    _rules(str(root)).write_text(json.dumps(rules))


def _rules(root: str) -> Path:
    return Path(f"{root}.rules.json")


class Bench:
    """The stand-in for an examination, as the worker's process makes it."""

    def __init__(
        self, store: ObjectStore, experiment: str, suite: Suite, roster: Roster, folder: Path
    ) -> None:
        self._root = store.url
        self._folder = folder
        path = _rules(self._root)
        self._rules: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        self._examine = Examine(suite, sleep_s=self._rules.get("sleep_s", 0.0), before=self._before)
        (folder / "code.py").write_text("# what a recipe would be\n")
        time.sleep(self._rules.get("start_s", 0.0))
        if self._rules.get("start") == "raise":
            raise RuntimeError("no such data")
        if self._rules.get("start") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        return self._examine(request, key, reference)

    def _before(self, request: Request) -> None:
        what = self._rules.get("at", {}).get(str(request.update))
        if what is None or not self._again(request.update):
            return
        match what:
            case "raise":
                raise RuntimeError("the recipe has a defect")
            case "loop":
                while True:
                    pass
            case "hog":
                bytearray(1 << 40)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case _:
                time.sleep(float(what))

    def _again(self, update: int) -> bool:
        """Whether it happens at this attempt, too."""
        times = self._rules.get("times")
        for n in range(times or 0):
            try:
                Path(f"{self._root}.{update}.{n}").touch(exist_ok=False)
                return True
            except FileExistsError:
                continue
        return times is None


# --- who pays -----------------------------------------------------------------------------------------------


@dataclass
class FakeDoor:
    """Grants whatever is asked, unless it is told to refuse, and keeps what it was asked."""

    refuses: RaykitError | None = None
    role: str = "qc"
    reserved: list[str] = field(default_factory=list)
    renewed: list[tuple[str, int]] = field(default_factory=list)
    settled: dict[str, tuple[int, EndReason]] = field(default_factory=dict)
    contracts: set[Digest | None] = field(default_factory=set)
    holders: set[Place | None] = field(default_factory=set)
    granted_ms: int | None = None
    """What is granted instead of all that is asked for."""
    least_ms: int | None = None
    """The least that was asked for."""

    def reserve(self, request: Wanted, *, role: str, contract: str | None = None) -> Lease:
        if self.refuses is not None:
            raise self.refuses
        assert role == request.line == self.role
        self.contracts.add(contract)
        self.holders.add(request.holder)
        self.least_ms = request.least_ms
        self.reserved.append(request.lease)
        return self._lease(request.lease, self.granted_ms or request.terms.time_ms)

    def _lease(self, name: str, time_ms: int) -> Lease:
        terms = Terms(accelerators=1, rate=0, source="a test", time_ms=time_ms)
        event = Reserved(
            lease=name, experiment="tiny", line=self.role, worst=0, terms=terms, charged=0, below=0
        )
        return Lease(reserved=event, at=0.0, worst=0, time_ms=time_ms)

    def renew(self, lease: str, *, time_ms: int, least_ms: int | None = None) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.renewed.append((lease, time_ms))
        return self._lease(lease, time_ms)

    def settle(self, lease: str, *, time_ms: int, reason: EndReason, how: str, at_most: bool = False) -> Any:
        self.settled[lease] = (time_ms, reason)


# --- a backlog and its pool ---------------------------------------------------------------------------------


@dataclass
class Backlog:
    """A trained run whose checkpoints are examined by real workers."""

    root: Path
    made: Made
    door: FakeDoor = field(default_factory=FakeDoor)
    lines: list[str] = field(default_factory=list)
    pools: list[QcPool] = field(default_factory=list)

    def pool(self, launch: str = LAUNCH, **settings: Any) -> QcPool:
        """A pool that has not begun."""
        pool = QcPool(
            str(self.root),
            self.made.experiment,
            self.made.run,
            launch,
            settings=PoolSettings(**settings),
            bench=Bench,
            door=self.door,
            folder=Path(f"{self.root}.{launch}"),
            say=self.lines.append,
        )
        self.pools.append(pool)
        return pool

    def read(self) -> QcRead:
        found = read_qc(open_store(str(self.root)), self.made.experiment, self.made.run, now=time.time())
        assert found is not None
        return found

    def counts(self) -> dict[str, int]:
        """How many are in each state; states that nobody is in are left out."""
        return {state: count for state, count in self.read().counts().items() if count}

    def attempts(self, update: int) -> list[tuple[int, str]]:
        """(attempt, what became of it) of a checkpoint."""
        standing = self.read().backlog.at(update)
        assert standing is not None
        failed = {failure.n: failure.kind for failure in standing.said.failures}
        return [(claim.n, failed.get(claim.n, "-")) for claim in standing.said.claims]

    def wait(
        self, what: str, holds: Callable[[], Any], *pools: QcPool, deadline_s: float = DEADLINE_S
    ) -> Any:
        """Turn the pools until something holds, and return it."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for pool in pools or self.pools:
                pool.turn()
            if found := holds():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited {deadline_s:.0f} s for {what}: {self.counts()}, {self.lines}")

    def drain(self, pool: QcPool, deadline_s: float = DEADLINE_S) -> Glance:
        return pool.drain(deadline_s)

    def close(self) -> None:
        for pool in self.pools:
            pool.close(grace_s=1.0)


class Tried(QcMaker):
    """A run whose checks may fail ten times each."""

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        settings["qc"]["tries"] = 10
        return settings


def backlog(root: Path, *, updates: int = 40) -> Backlog:
    """A run that has trained to its end, with a checkpoint every 10 updates."""
    store = open_store(str(root))
    maker = make_trained(Tried(store, updates=updates) if updates > 40 else QcMaker(store, updates=updates))
    return Backlog(root, Made(store, maker.experiment, maker.run, maker.suite, maker.roster))


def lock_anew(work: Backlog, *, fail: Mapping[str, str]) -> str:
    """Lock the plan with other thresholds; the digest of its suite."""
    maker = QcMaker(work.made.store)
    maker.fail = fail
    with contextlib.suppress(ConflictError):  # the record of the run stays as it is
        maker.freeze()
    log = Log(work.made.store, layout.experiment_log(work.made.experiment), ExperimentEntry, by="maker")
    log.append(lambda entries: [maker.locked], at=time.time())
    return maker.suite.digest


def made_at(root: Path) -> Made:
    """A run that was made before, by another process."""
    store = open_store(str(root))
    read = read_qc(store, "digits", now=time.time())
    assert read is not None
    roster = Examinations(store, "digits").roster(read.suite.roster)
    return Made(store, "digits", "main", read.suite, roster)


def main(root: str, slots: str) -> None:
    """Examine what there is on a Ray of this process's own, and say what came of it: `qcray.py ROOT SLOTS`."""
    work = Backlog(Path(root), made_at(Path(root)))
    with start_local(cpus=int(slots) + 2, resources={"qc": float(slots)}):
        work.drain(work.pool(slots=int(slots)), 200.0)
        work.close()
    print(json.dumps({"counts": work.counts(), "lines": work.lines}))


if __name__ == "__main__":
    main(*sys.argv[1:])
