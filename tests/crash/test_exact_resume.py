"""Killed anywhere, resumed, and the same to the bit: plain processes, real SIGKILL.

covers I1 I4 I5 I10, CKPT-01 CKPT-04..07, HIST-02 HIST-15 HIST-16, CONTRACT-12, F12
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

PLANS: dict[str, dict[str, str]] = {
    "fp32": {},
    "accumulate": {"accumulate": "3", "clip": "0.5"},
    "bf16": {"dtype": '{ autocast = "bfloat16" }'},
    "fp16-scaler": {"dtype": '{ autocast = "float16" }'},
    "two-loaders": {"loader_workers": "2"},
    "early-stop": {
        "updates": "40",
        "stop": '{ metric = "development.ratio", patience = 3, min_delta = 0.2 }',
        "evaluate_every": "3",
    },
    "two-ranks": {"workers": "2", "accumulate": "2"},
    "three-ranks": {"workers": "3"},
    "two-ranks-two-loaders": {"workers": "2", "loader_workers": "2"},
    "four-ranks": {"workers": "4"},
}

DEATHS: dict[str, dict[str, object]] = {
    "before the first commit": {"put": "update-00000000/", "when": "before"},
    "in a save": {"put": "update-00000005/1/optimizer", "when": "after"},
    "between the manifest and the commit": {"put": "update-00000010/1/manifest", "when": "after"},
    "before a commit event": {"put": '"event":"commit"', "when": "before", "nth": 3},
    "right after a commit event": {"put": '"event":"commit"', "when": "after", "nth": 2},
    "after a segment, before its event": {"put": "/history/1/", "when": "after", "nth": 2},
    "right after a segment event": {"put": '"event":"segment"', "when": "after", "nth": 1},
}

GATE_PASSES = (3 + 2) + (3 + 2) + (1 + 2)
"""Forward passes of training that the launch gates do before the first update, at one micro-batch each: in each run its
updates, and those that are asked for again."""

Undisturbed = Callable[[str], tuple[str, list[bytes]]]


def launches(nursery: Nursery, folder: Path, plan: str) -> Launches:
    task = freeze_job(folder / "store", write_job(folder / "job", PLANS[plan]))
    return Launches(nursery, task, int(PLANS[plan].get("workers", "1")))


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The final digest and the rows of each plan's run that nobody interrupts, made once."""
    made: dict[str, tuple[str, list[bytes]]] = {}

    def get(plan: str) -> tuple[str, list[bytes]]:
        if plan not in made:
            run = launches(nursery, tmp_path_factory.mktemp("undisturbed"), plan)
            ends = run.run()
            assert [code for code, _ in ends] == [0] * run.world, ends
            made[plan] = final_digest(run.task), rows_bits(run.task)
        return made[plan]

    return get


def ends_the_same(run: Launches, undisturbed: tuple[str, list[bytes]]) -> None:
    """The run is complete, equal to the undisturbed one to the bit, and its store is in order."""
    ends = run.run()
    assert [code for code, _ in ends] == [0] * run.world, ends
    assert final_digest(run.task) == undisturbed[0]
    assert rows_bits(run.task) == undisturbed[1]
    check_invariants(LocalStore(run.task.root))


@pytest.mark.parametrize("death", DEATHS)
def test_a_kill_at_a_chosen_moment(
    death: str, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, "fp32")
    run.killed(DEATHS[death])
    ends_the_same(run, undisturbed("fp32"))


@pytest.mark.parametrize("plan", ["fp32", "early-stop"])
def test_a_kill_after_the_last_commit(
    plan: str, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    """The run is at its end and could not say so. It does not train on."""
    run = launches(nursery, tmp_path, plan)
    run.killed({"put": '"event":"attempt_ended"', "when": "before"})
    last = state_of(run.task).commits[-1]
    assert last.reason == "final"
    ends_the_same(run, undisturbed(plan))
    assert state_of(run.task).commits[-1] == last


@pytest.mark.parametrize(
    ("plan", "passes"),
    [
        ("fp32", GATE_PASSES + 12 + 1),  # across the end of an epoch: 48 rows are 4 updates
        ("accumulate", 3 * (GATE_PASSES + 11) + 2),  # between two micro-batches of one update
        (
            "two-ranks",
            2 * (GATE_PASSES + 8 + 11) + 2,
        ),  # gangs warm up twice, before the run and each run of a gate
    ],
)
def test_a_kill_inside_an_update(
    plan: str, passes: int, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, plan)
    run.killed({"loss": passes})
    assert state_of(run.task).commits, "the kill was meant to come after the first commit"
    ends_the_same(run, undisturbed(plan))


LATER = {
    "four-ranks": pytest.mark.slow,
    "two-ranks-two-loaders": pytest.mark.slow,
    "early-stop": pytest.mark.long,
    "fp16-scaler": pytest.mark.long,
    "two-loaders": pytest.mark.long,
}
"""Left to slower tiers: three ranks are what differs in kind, and what is long here is killed at one moment above."""


@pytest.mark.parametrize("plan", [pytest.param(plan, marks=LATER.get(plan, ())) for plan in PLANS])
def test_kills_at_random_moments(
    plan: str, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    run = launches(nursery, tmp_path, plan)
    random_kills(run, undisturbed(plan), kills=1 if run.world > 1 else 2, seed=f"{plan}-1")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.timeout(600)
def test_many_kills_at_random_moments(
    plan: str, seed: int, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    random_kills(launches(nursery, tmp_path, plan), undisturbed(plan), kills=5, seed=f"{plan}-{seed}")


def random_kills(run: Launches, undisturbed: tuple[str, list[bytes]], *, kills: int, seed: str) -> None:
    """Kill a random rank at a random update, `kills` times; the rest of the gang goes with it."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    last = len(undisturbed[1])
    for _ in range(kills):
        ranks = run.start()
        wanted = rng.randrange(last)
        delay_s = rng.random() * 0.05
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            state = state_of(run.task)
            if (
                state.attempt is not None
                and state.attempt.launch == state.launched.launch
                and state.rows >= wanted
            ):
                break
            if state.completed:
                break
            time.sleep(0.01)
        time.sleep(delay_s)  # the fault's own randomness, not a wait for anything
        rng.choice(ranks).signal(signal.SIGKILL)
        for rank in ranks:
            rank.signal(signal.SIGKILL)
        for rank in ranks:
            rank.wait()
        if state_of(run.task).completed:
            break
    if state_of(run.task).completed:
        assert final_digest(run.task) == undisturbed[0]
        assert rows_bits(run.task) == undisturbed[1]
    else:
        ends_the_same(run, undisturbed)
