"""Runs in plain processes, without Ray: the same loop, store and log, quick enough to kill by the dozen."""

from __future__ import annotations

import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nursery import Nursery, Rank

from raykit.fleet.claim import claim, lock
from raykit.fleet.site import make_ready, site_of, task_of
from raykit.history import same_bits
from raykit.reconcile import RunState, fold
from raykit.records import AttemptEnded, Launched, RunEntry
from raykit.store import layout, open_store
from raykit.store.base import ObjectStore
from raykit.store.log import Log
from raykit.store.people import People
from raykit.store.place import this_place
from raykit.train.inputs import Task
from raykit.train.resume import Start

TINY = Path(__file__).parent / "tiny"
RUN = "main"


def write_job(folder: Path, edits: Mapping[str, str] | None = None, *, variant: str | None = None) -> Path:
    """A copy of the tiny job with lines of its plan replaced: `{"updates": "30"}`.

    `variant` is the code of a class `Variant(Tiny)`, which is then the recipe.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(TINY / "recipe.py", folder / "recipe.py")
    if variant is not None:
        with (folder / "recipe.py").open("a") as recipe:
            recipe.write(f"\n\nfrom dataclasses import replace\n\n{variant}")
        edits = {"recipe": '"recipe:Variant"', **(edits or {})}
    lines = (TINY / "plan.toml").read_text().splitlines()
    for key, value in (edits or {}).items():
        at = next((i for i, line in enumerate(lines) if line.split("=")[0].strip() == key), None)
        if at is None:
            at = lines.index("[run]")
            lines.insert(at + 1, f"{key} = {value}")
        else:
            lines[at] = f"{key} = {value}"
    (folder / "plan.toml").write_text("\n".join(lines) + "\n")
    return folder / "plan.toml"


def freeze_job(root: Path | str, plan_path: Path) -> Task:
    """What a launch does before it starts anything; returns its task. `take` gives it a launch id."""
    site = site_of(plan_path, str(root))
    ready = make_ready(site)
    lock(site, ready, site.run_log("launch"))
    return task_of(site, ready)


def claim_job(root: Path, plan_path: Path, deviation: str | None = None) -> tuple[Task, Start]:
    """Decide and take as `raykit launch` does, up to where it would start Ray."""
    site = site_of(plan_path, str(root))
    claimed = claim(site, site.run_log("launch"), People(site.store, site.name), deviation=deviation)
    return claimed.task, claimed.start


def run_log(store: ObjectStore, task: Task) -> Log[RunEntry]:
    return Log(store, layout.run_log(task.experiment, task.run), RunEntry, by="test")


def state_of(task: Task) -> RunState:
    return fold(run_log(open_store(task.root), task).refresh())


def take(task: Task, launch: str | None = None) -> Task:
    """Take the run for a new launch, as `raykit launch` does once the old one is dead; `launch` is its name."""
    task = replace(task, launch=launch or secrets.token_hex(6))

    def decide(entries: Any) -> list[Any]:
        state = fold(entries)
        if state.launched is not None and state.launched.launch == task.launch:
            return []
        ends = [
            AttemptEnded(attempt=a.attempt, reason="killed", update=state.recorded())
            for a in state.attempts
            if a.attempt not in state.ends
        ]
        return [*ends, Launched(launch=task.launch, place=this_place(), lease_s=60.0, raykit="0")]

    run_log(open_store(task.root), task).append(decide, at=time.time())
    return task


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of one task, one after another, each with `world` ranks."""

    nursery: Nursery
    task: Task
    world: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, Any] = field(default_factory=dict)
    door: Mapping[str, Any] | None = None
    away: str | None = None

    def start(self, die: Mapping[str, Any] | None = None, dying_rank: int = 0) -> list[Rank]:
        """Take the run and start every rank; `dying_rank` dies where `die` says."""
        return self.ranks(take(self.task), die, dying_rank)

    def ranks(self, task: Task, die: Mapping[str, Any] | None = None, dying_rank: int = 0) -> list[Rank]:
        """Start every rank of a launch that has taken the run."""
        rendezvous = f"file://{task.root}-{task.launch}.rendezvous"
        return [
            self.nursery.rank(
                task.plain(),
                rank=rank,
                world=self.world,
                rendezvous=rendezvous,
                die=die if rank == dying_rank else None,
                env=self.env,
                hooks=self.hooks,
                door=self.door,
                away=self.away,
            )
            for rank in range(self.world)
        ]

    def run(self) -> list[tuple[int, str]]:
        """One undisturbed launch: (exit code, output) of each rank."""
        return [rank.wait() for rank in self.start()]

    def killed(self, die: Mapping[str, Any], dying_rank: int = 0) -> None:
        """A launch in which one rank kills itself, and the rest of the gang is then killed as Ray would."""
        ranks = self.start(die, dying_rank)
        code, out = ranks[dying_rank].wait()
        for rank in ranks:
            rank.signal(signal.SIGKILL)
        for rank in ranks:
            rank.wait()
        assert code == -signal.SIGKILL, f"the fault did not fire: {code} {out}"


def final_digest(task: Task) -> str:
    """The digest of the newest commit's manifest: equal exactly when the final states are equal to the bit."""
    return state_of(task).commits[-1].sha256


def rows_bits(task: Task) -> list[bytes]:
    """What two runs must agree on, row by row."""
    from raykit.fleet.follow import Followed

    followed = Followed()
    followed.follow(open_store(task.root), state_of(task).events)
    assert [row.update for row in followed.rows] == list(range(1, len(followed.rows) + 1))
    return [same_bits(row) for row in followed.rows]
