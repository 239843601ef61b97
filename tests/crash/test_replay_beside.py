"""A worker beside the run makes its replay between other units: taken once, by whoever is like the process that trains.

FAULT-A15
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit import exactness
from raykit.fleet.pool.actor import Orders
from raykit.fleet.qc.task import QcTask
from raykit.read.sizing import Times
from raykit.store import open_store
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants
from raykit.train import facts
from raykit.train.replaying import Surroundings
from raykit.work import replay_beside
from raykit.work.puller import Turn
from raykit.work.qc_worker import Rules
from raykit.work.replay_beside import Beside

QC = """
[qc]
owner      = "ada"
every      = 10
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 1000" }
on_failure = "continue"
"""
"""Where there is one, and one rank, an early replay is for its workers."""

QUICK = Times(setup_ms=0, update_ms=100.0, save_ms=10, update=17)
"""A process that begins at once: its updates alone are what a replay costs."""


class Idle:
    """A worker that has nothing to do."""

    hand = None
    tally: dict[str, float] = {}

    def turn(self) -> Turn:
        return Turn(kind="nothing")


@pytest.fixture(scope="module")
def running(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Launches:
    """A run under way, as its log says: behind its checkpoint at update 15."""
    folder = tmp_path_factory.mktemp("running")
    plan = write_job(folder / "job", {"replay_share": "1.0"})
    plan.write_text(plan.read_text() + QC)
    launches = Launches(nursery, freeze_job(folder / "store", plan))
    launches.killed({"put": '"event":"commit"', "when": "after", "nth": 4})
    return launches


def copy_of(launches: Launches, folder: Path) -> Launches:
    shutil.copytree(launches.task.root, folder / "store")
    return replace(launches, task=replace(launches.task, root=str(folder / "store")))


def beside(launches: Launches) -> Beside:
    task = launches.task
    return Beside(
        Idle(),
        open_store(task.root),
        task.experiment,
        task.run,
        root=task.root,
        name="qc-1",
        lease="a-lease",
        surroundings=Surroundings.here(),
    )


def test_an_early_replay_is_taken_once_and_made_beside_the_run(
    running: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_beside, "measure", lambda *_: QUICK)
    launches = copy_of(running, tmp_path)
    worker = beside(launches)
    turn = worker.turn()
    assert turn.kind == "already" and turn.what is not None and worker.hand is None
    assert turn.what.startswith("the replay of 10 to 1")
    state = state_of(launches.task)
    (taken,), (found,) = state.replaying, state.compared
    assert (taken.worker, taken.lease, taken.first, taken.last) == ("qc-1", "a-lease", 11, found.last)
    assert (found.how, found.against, found.first, found.manifests) == ("replay", 1, 11, 1)
    assert found.last in (15, 16, 17), "it was killed while it saved"
    assert found.difference is None and found.took_s
    assert exactness.of_run(state).words == "exact (replayed)"
    assert worker.turn().kind == beside(launches).turn().kind == "nothing"
    assert [code for code, _ in launches.run()] == [0], "the gang has nothing left to replay"
    assert [event.how for event in state_of(launches.task).compared].count("replay") == 1
    check_invariants(LocalStore(launches.task.root))


@pytest.mark.parametrize("why", ["costs too much", "other facts", "taken", "nothing measured"])
def test_a_replay_is_left_alone(
    why: str, running: Launches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches, times = copy_of(running, tmp_path), QUICK
    match why:
        case "costs too much":
            times = replace(QUICK, setup_ms=1600)
        case "other facts":
            here = facts.here
            monkeypatch.setattr(facts, "here", lambda *given: {**here(*given), "device_model": "abacus"})
        case "taken":
            monkeypatch.setattr(Beside, "_made", lambda *_: "its worker fell ill")
            monkeypatch.setattr(replay_beside, "measure", lambda *_: times)
            beside(launches).turn()
            assert [missed.why for missed in state_of(launches.task).unreplayed] == ["its worker fell ill"]
    monkeypatch.setattr(replay_beside, "measure", lambda *_: None if why == "nothing measured" else times)
    before = state_of(launches.task)
    assert beside(launches).turn().kind == "nothing"
    assert state_of(launches.task) == before


@pytest.mark.long
def test_what_the_gang_could_not_make_is_made_by_whoever_examines_next(
    nursery: Nursery, tmp_path: Path
) -> None:
    plan = write_job(tmp_path / "job", {"replay": '"end"'})
    launches = Launches(nursery, freeze_job(tmp_path / "store", plan))
    short = {"patch": {"raykit.replays.SPARE_S": 0.1, "raykit.replays.SLOWER": 0}}
    assert [code for code, _ in replace(launches, hooks=short).run()] == [0]
    assert state_of(launches.task).unreplayed and not state_of(launches.task).compared
    assert beside(launches).turn().kind == "already"
    assert exactness.of_run(state_of(launches.task)).words == "exact (replayed)"


def test_a_worker_of_one_run_is_told_to(running: Launches, tmp_path: Path) -> None:
    orders = Orders(root="r", experiment="tiny", run="main", worker="qc-1", folder=str(tmp_path), task=None)  # type: ignore[arg-type]
    rules = Rules(tries=3, deadline_s=60.0, lease="a-lease")
    store = open_store(running.task.root)
    one = QcTask(contract="0" * 64, rules=rules, whose="main")._replaying(store, orders)
    assert one is not None and isinstance(one(Idle()), Beside)
