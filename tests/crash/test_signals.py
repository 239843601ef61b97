"""Asked to stop, or stopped and forgotten: SIGTERM ends a run between two updates, SIGSTOP makes a zombie of it.

covers CKPT-08, I1 I2 I4 I5 I9, F16 F23 F24
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nursery import Nursery, Rank
from plainrun import Launches, claim_job, final_digest, freeze_job, rows_bits, run_log, state_of, write_job

from raykit.errors import HeldError
from raykit.records import Commit, Segment
from raykit.store import layout
from raykit.store.commit import folder_of, read_manifest
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants
from raykit.train.inputs import Task

PLANS: dict[str, dict[str, str]] = {
    "one rank": {},
    "micro-batches": {"accumulate": "3", "clip": "0.5"},
    "loader processes": {"loader_workers": "2"},
    "two ranks": {"workers": "2"},
}

Undisturbed = Callable[[str], Launches]


def launches(nursery: Nursery, folder: Path, plan: str) -> Launches:
    """Ranks that do not wait long for each other once one of them has ended."""
    task = freeze_job(folder / "store", write_job(folder / "job", PLANS[plan]))
    soon = {"patch": {"raykit.train.worker.LEAVE_S": 0.2}}
    return Launches(nursery, task, int(PLANS[plan].get("workers", "1")), hooks=soon)


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Each plan's run that nobody interrupts, made once."""
    made: dict[str, Launches] = {}

    def get(plan: str) -> Launches:
        if plan not in made:
            run = made[plan] = launches(nursery, tmp_path_factory.mktemp("undisturbed"), plan)
            assert [code for code, _ in run.run()] == [0] * run.world
        return made[plan]

    return get


def same_as(run: Launches, undisturbed: Launches) -> bool:
    return (final_digest(run.task), rows_bits(run.task)) == (
        final_digest(undisturbed.task),
        rows_bits(undisturbed.task),
    )


# --- asked to stop ------------------------------------------------------------------------------------------

ASKED = {
    "in the gates": ("one rank", {"put": '"event":"gate"', "nth": 1}),
    "after the first commit": ("one rank", {"put": '"event":"commit"', "nth": 1}),
    "in a save": ("one rank", {"put": "update-00000005/1/optimizer"}),
    "while history is written": ("one rank", {"put": "/history/1/", "nth": 2}),
    "between micro-batches": ("micro-batches", {"put": "update-00000005/1/manifest"}),
    "with loader processes": ("loader processes", {"put": "update-00000005/1/manifest"}),
    "all ranks' first": ("two ranks", {"put": "update-00000005/1/manifest"}),
}


@pytest.mark.parametrize("moment", ASKED)
def test_sigterm_commits_at_the_next_update_and_ends(
    moment: str, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    plan, at = ASKED[moment]
    run = launches(nursery, tmp_path, plan)
    ends = [rank.wait() for rank in run.start({**at, "when": "after", "signal": signal.SIGTERM})]
    paused(run, ends, why="SIGTERM")
    assert [code for code, _ in run.run()] == [0] * run.world
    assert same_as(run, undisturbed(plan))
    check_invariants(LocalStore(run.task.root))


def test_sigterm_to_any_one_rank_stops_all_at_the_same_update(
    nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, "two ranks")
    at = {"put": "update-00000005/1/rng-00001", "when": "after", "signal": signal.SIGTERM}
    ends = [rank.wait() for rank in run.start(at, dying_rank=1)]
    paused(run, ends, why="another rank was told to stop")
    assert [code for code, _ in run.run()] == [0, 0]
    assert same_as(run, undisturbed("two ranks"))


def paused(run: Launches, ends: list[tuple[int, str]], *, why: str) -> None:
    """Every rank ended with exit code 4 at one update, which is committed; nothing after it is."""
    state = state_of(run.task)
    ended, commit = state.ended, state.commits[-1]
    assert ended is not None
    assert [code for code, _ in ends] == [4] * run.world, ends
    assert {out.split(":")[0] for _, out in ends} == {f"paused at update {ended.update}"}
    assert (ended.reason, ended.detail) == ("paused", why)
    assert 0 < ended.update < 20
    assert commit.update == ended.update == state.recorded()
    assert commit.reason == "stop"


def test_sigterm_at_the_last_update_changes_nothing(
    nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, "one rank")
    at = {"put": "update-00000020/1/model", "when": "after", "signal": signal.SIGTERM}
    assert [rank.wait()[0] for rank in run.start(at)] == [0]
    assert state_of(run.task).completed
    assert same_as(run, undisturbed("one rank"))


# --- stopped and forgotten ----------------------------------------------------------------------------------

STOPPED = {
    "before its first event": {"put": '"event":"attempt_started"', "when": "before"},
    "before a commit event": {"put": '"event":"commit"', "when": "before", "nth": 2},
    "right after a commit event": {"put": '"event":"commit"', "when": "after", "nth": 2},
    "in a save": {"put": "update-00000005/1/optimizer", "when": "before"},
    "before a manifest": {"put": "update-00000010/1/manifest", "when": "before"},
    "before a segment": {"put": "/history/1/", "when": "before", "nth": 2},
    "before a segment event": {"put": '"event":"segment"', "when": "before", "nth": 2},
    "before it could say that it is complete": {"put": '"event":"attempt_ended"', "when": "before"},
}


@pytest.mark.parametrize("moment", STOPPED)
def test_a_zombie_changes_nothing(
    moment: str, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, "one rank")
    (zombie,) = stopped(run, moment)
    assert [code for code, _ in run.run()] == [0]
    truth = named(run.task)
    everything = files(run.task)

    zombie.signal(signal.SIGCONT)
    code, out = zombie.wait()
    assert code == 5, out
    assert out.startswith("fenced: "), out
    unchanged(run, truth, everything)
    assert same_as(run, undisturbed("one rank"))


def test_a_gang_of_zombies_changes_nothing(
    nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """Only rank 0 hears that it is fenced. It waits for nobody, and rank 1 does not wait for it."""
    run = launches(nursery, tmp_path, "two ranks")
    zombies = stopped(run, "before a commit event")
    assert [code for code, _ in run.run()] == [0, 0]
    truth = named(run.task)
    everything = files(run.task)

    for zombie in zombies:
        zombie.signal(signal.SIGCONT)
    ends = [zombie.wait() for zombie in zombies]
    assert [code for code, _ in ends] == [70, 70], ends
    assert "RankAloneError: rank 0 ends alone: launch " in ends[0][1]
    unchanged(run, truth, everything)
    assert same_as(run, undisturbed("two ranks"))


def test_a_launch_does_not_take_the_run_from_one_that_only_hangs(nursery: Nursery, tmp_path: Path) -> None:
    """On this machine a stopped process is seen to be there. Whoever wants the run has to end it first."""
    run = launches(nursery, tmp_path, "one rank")
    (zombie,) = stopped(run, "in a save")
    before = files(run.task)
    with pytest.raises(HeldError, match=r"tiny is running: launch [0-9a-f]{12}, process") as refusal:
        claim_job(Path(run.task.root), tmp_path / "job" / "plan.toml")
    assert refusal.value.exit_code == 3
    assert files(run.task) == before
    zombie.signal(signal.SIGKILL)
    zombie.wait()


def stopped(run: Launches, moment: str) -> list[Rank]:
    """A gang whose rank 0 stops itself at a moment; the others are then stopped from outside."""
    ranks = run.start({**STOPPED[moment], "signal": signal.SIGSTOP})
    deadline = time.monotonic() + 60
    while ranks[0].state() != "T":
        assert time.monotonic() < deadline and ranks[0].running(), "the fault did not fire"
        time.sleep(0.005)
    for rank in ranks[1:]:
        rank.signal(signal.SIGSTOP)
    return ranks


def files(task: Task) -> dict[str, bytes]:
    """Every object of the store."""
    store = LocalStore(task.root)
    return {listed.key: store.get(listed.key) for listed in store.list("")}


def named(task: Task) -> dict[str, bytes]:
    """Every object that the run's log names, itself included, with its bytes."""
    store = LocalStore(task.root)
    entries = run_log(store, task).refresh()
    keys = [layout.log_entry(layout.run_log(task.experiment, task.run), entry.n) for entry in entries]
    for event in state_of(task).events:
        match event:
            case Segment():
                keys.append(event.key)
            case Commit():
                names = [file.name for file in read_manifest(store, event).files]
                keys += [event.key, *(f"{folder_of(event)}/{name}" for name in names)]
    return {key: store.get(key) for key in keys}


def unchanged(run: Launches, truth: dict[str, bytes], everything: dict[str, bytes]) -> None:
    """What was true is true; the zombie has at most touched what it has beside, and nobody reads."""
    assert named(run.task) == truth
    now = files(run.task)
    touched = {key for key in now.keys() | everything.keys() if now.get(key) != everything.get(key)}
    assert all(_of_attempt_1(key) for key in touched), touched
    check_invariants(LocalStore(run.task.root))


def _of_attempt_1(key: str) -> bool:
    known = layout.known(key)
    return known is not None and known.parts.get("attempt") == "1"
