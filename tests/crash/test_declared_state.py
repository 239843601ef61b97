"""Recipes with every kind of declared state, killed at a random moment by SIGKILL: the same bits, and it is said so.

Fifty kills: five in `make test`, the others in `make chaos`. The moment is drawn from a seed that is printed.

covers I1 I4 I5 CKPT-04 CKPT-07; FAULT-A18
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, rows_bits, state_of
from recipes.declared import KINDS, UPDATES
from recipes.trained import accused, classes, frozen_run, said_exact

from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

RUN = {"updates": str(UPDATES), "checkpoint_every": "5", "evaluate_every": "5"}
LAST_KILL = 30
"""The last update that a kill comes after; those that are left take longer than `MOST_S`."""
MOST_S = 0.015

QUICK = (
    "a counter",
    "an average of the weights in the state",
    "a generator of torch",
    "buffers that count",
    "schedulers in a row",
)

Undisturbed = Callable[[str], tuple[str, list[bytes]]]


def launches(nursery: Nursery, folder: Path, kind: str) -> Launches:
    return Launches(nursery, frozen_run(folder, KINDS[kind], RUN).task)


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The final digest and the rows of each kind's run that nobody interrupts, made once."""
    made: dict[str, tuple[str, list[bytes]]] = {}

    def get(kind: str) -> tuple[str, list[bytes]]:
        if kind not in made:
            run = launches(nursery, tmp_path_factory.mktemp("undisturbed"), kind)
            ((code, out),) = run.run()
            assert code == 0, out
            made[kind] = final_digest(run.task), rows_bits(run.task)
        return made[kind]

    return get


def marked(kind: str, seed: int, *marks: pytest.MarkDecorator) -> object:
    return pytest.param(kind, seed, id=f"{kind}-{seed}", marks=marks)


CASES = [
    *(marked(kind, 0) for kind in QUICK),
    *(marked(kind, seed, pytest.mark.slow) for kind in KINDS for seed in (1, 2, 3)),
]


def test_there_are_fifty() -> None:
    assert len(CASES) >= 50 and len(QUICK) == 5


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_kill_at_a_random_moment(
    kind: str, seed: int, nursery: Nursery, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    moment = random.Random(f"{kind} {seed}")
    at = {"update": moment.randint(1, LAST_KILL), "after_s": moment.uniform(0.0, MOST_S)}
    print(f"seed {kind} {seed}: killed {at['after_s']:.4f} s after update {at['update']} has begun")
    run = launches(nursery, tmp_path, kind)
    ((code, out),) = replace(run, hooks={"kill": at}).run()
    assert code == -signal.SIGKILL, f"the fault did not fire: {code} {out}"
    ((code, out),) = run.run()
    assert code == 0, out

    digest, rows = undisturbed(kind)
    assert final_digest(run.task) == digest
    assert rows_bits(run.task) == rows
    assert [attempt.attempt for attempt in state_of(run.task).attempts] == [1, 2]
    assert said_exact(run.task) and classes(run.task) == {"exact"}
    assert accused(run.task) == []
    check_invariants(LocalStore(run.task.root))
