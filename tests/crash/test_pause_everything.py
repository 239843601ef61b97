"""Everyone at one store, paused at once from a terminal that sees nothing but the store.

A launch loop with a rank that trains, a worker that examines, and one that generates are processes and threads of their
own; nobody tells any of them anything but the store.

covers RAY-07 RAY-08 RAY-10 FLEET-03 FLEET-06 FLEET-07, F17, I3 I4
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import makegen
import pytest
import qchooks
from nursery import Nursery, Rank
from plainrun import write_job

from raykit.fleet.claim import Claimed, claim
from raykit.fleet.run_loop import RunLoop
from raykit.fleet.site import site_of
from raykit.reconcile import RunState
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.people import People
from raykit.store.qc import Examinations
from raykit.testing.invariants import check_invariants
from raykit.train.door import Door

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

CHECKED = "checked"
EDITS = {
    "updates": "4000",
    "checkpoint_every": "500",
    "curves": '{ every = 1000, smooth = "ema 0.9" }',
}
DEADLINE_S = 200.0
UNIT_S = 0.4


@dataclass
class PlainTraining:
    """One rank in a process of its own, as a run loop starts and watches it."""

    nursery: Nursery
    claimed: Claimed
    starts: int = 0
    error: BaseException | None = None
    failed: bool = False
    why: str | None = None
    rank: Rank | None = None

    @property
    def word(self) -> str:
        if self.rank is None:
            return "not-started"
        return "running" if self.rank.running() else "returned"

    def start(self, *, storage: Path, door: Door, used: int) -> None:
        self.starts += 1
        task = self.claimed.task
        where = f"file://{task.root}-{task.launch}.rendezvous"
        self.rank = self.nursery.rank(task.plain(), rendezvous=where, env={"TINY_SLOW_S": "0.1"})

    def wait(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)


@dataclass
class Nothing:
    """Nothing ends a run but people and its own plan."""

    stopped: str | None = None
    failed: str | None = None
    suite: str | None = None
    qc: str | None = None


@dataclass
class Launch:
    """A run loop in a thread, without any Ray."""

    nursery: Nursery
    root: Path
    plan: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        site = site_of(self.plan, str(self.root))
        log, people = site.run_log("launch"), People(site.store, site.name)
        claimed = claim(site, log, people)
        self.loop = RunLoop(
            site,
            claimed,
            log,
            people,
            training=PlainTraining(self.nursery, claimed),
            ended=Nothing(),
            tell=lambda glimpse: None,
            say=self.lines.append,
        )
        self.loop.reserve()
        unasked: Any = object()  # a rank without a door asks nobody about money
        self.loop.open(storage=self.root, door=unasked)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self.loop.turn():
                self.loop.wait()
            self.loop.settle()
        except Exception as error:  # the test that waits for it says so
            self.lines.append(f"{type(error).__name__}: {error}")

    def end(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), self.lines

    def trains(self, after: int = 5) -> bool:
        """Whether it has come so far."""
        assert self._thread.is_alive(), self.lines
        return self.state().rows > after

    def state(self) -> RunState:
        log = RunLog(LocalStore(self.root), "tiny", "main", by="test")
        log.refresh()
        return log.state


def raykit(root: Path, *arguments: str) -> tuple[int, Any]:
    """A `raykit` command in a process that knows the root and nothing else; its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "raykit", *arguments, "--json"],
        env={**os.environ, "RAYKIT_ROOT": str(root)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


def eventually(what: str, holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def beside(root: Path) -> Iterator[tuple[Any, Any]]:
    """One process that examines, and one that generates; both have published something."""
    name = secrets.token_hex(2)
    with (
        qchooks.start(root, f"qc-{name}", sleep_s=UNIT_S, experiment=CHECKED) as checks,
        makegen.start(root, f"gen-{name}", sleep_s=UNIT_S) as makes,
    ):
        assert checks.line().startswith("published") and makes.line().startswith("published")
        yield checks, makes


def published(root: Path) -> tuple[int, int]:
    """How many checks and units have their receipts."""
    store = LocalStore(root)
    receipts = [key for key in store.list("experiments") if "/receipts/" in key.key]
    checks = sum(f"/{CHECKED}/qc/" in key.key for key in receipts)
    return checks, sum("/generation/" in key.key for key in receipts)


def test_training_checks_and_generation_are_paused_together_from_outside(
    nursery: Nursery, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    makegen.toy_set(LocalStore(root), rows_asked=4000, unit_rows=4).publish(0, 1)
    qchooks.backlog(LocalStore(root), updates=2000, experiment=CHECKED)
    plan = write_job(tmp_path / "job", EDITS)

    launch = Launch(nursery, root, plan)
    with beside(root) as (checks, makes):
        eventually("rows", launch.trains)
        code, said = raykit(root, "pause", "all", "--reason", "maintenance", "--by", "mira")
        assert code == 0, said
        checks_said, makes_said = checks.rest(), makes.rest()
    launch.end()
    state = launch.state()
    assert checks_said[-1].startswith("paused") and makes_said[-1].startswith("ended paused")
    (run,) = [each for each in said["runs"] if each["id"] == "tiny/main"]
    assert (run["state"], run["lost_updates"]) == ("paused", 0)
    assert {each["role"] for each in said["workers"]} == {"qc", "generate"}
    assert all(each["state"] == "paused" and "published" in each["boundary"] for each in said["workers"])
    assert state.ended is not None and state.ended.reason == "paused"
    assert state.recorded() == state.committed == state.ended.update
    took = {run["id"]: run["after_s"]} | {each["worker"]: each["after_s"] for each in said["workers"]}
    print("seconds from the request to the boundary, with that of one unit or update:", took)
    assert all(after_s < 60 for after_s in took.values())

    # it holds for everyone who comes later, in whatever process, and is said once
    before = published(root)
    with contextlib.ExitStack() as stack:
        late = stack.enter_context(qchooks.start(root, "qc-late", experiment=CHECKED))
        later = stack.enter_context(makegen.start(root, "gen-late"))
        assert late.rest()[-1:] == ["paused None"]
        assert later.rest()[-1].startswith("ended paused")
    code, again = raykit(root, "pause", "all", "--reason", "again", "--by", "ada")
    assert (code, again["new"], again["person"], again["paused"]) == (0, False, "mira", True)
    assert published(root) == before

    # one role goes on by itself once the wide pause is over; what was published is not made again
    assert raykit(root, "pause", "role:generate", "--reason", "later", "--by", "mira")[0] == 0
    assert raykit(root, "resume", "all", "--by", "mira")[0] == 0
    with contextlib.ExitStack() as stack:
        goes = stack.enter_context(qchooks.start(root, "qc-again", sleep_s=UNIT_S, experiment=CHECKED))
        held = stack.enter_context(makegen.start(root, "gen-again"))
        assert goes.line().startswith("published")
        assert held.rest()[-1].startswith("ended paused")
    said_of = Examinations(LocalStore(root), CHECKED).said().values()
    assert all(len(each.claims) == 1 for each in said_of if each.receipt is not None)

    again_launch = Launch(nursery, root, plan)
    eventually("rows", lambda: again_launch.trains(state.recorded() + 3))
    code, said = raykit(root, "pause", "role:train", "--reason", "enough", "--by", "mira")
    assert (code, [each["state"] for each in said["runs"]]) == (0, ["paused"]), said
    again_launch.end()
    newest = again_launch.state()
    assert newest.attempt is not None and newest.attempt.resume is not None
    assert newest.attempt.resume.update == state.committed, "it went on from where it was paused"
    check_invariants(LocalStore(root))
