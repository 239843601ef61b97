"""State that no checkpoint holds, of every kind that is known: found before the launch or by the first comparison, and
never called exact afterwards.

Every case fails in update 14 with all rows through 13 and the checkpoint of update 10 durable, and is gone on with. In
`make test` both attempts are of this process, with modules and objects of their own; in `make chaos` each is a process,
and the first one is killed.

covers I5 I14 CONTRACT-07; FAULT-A04 FAULT-A05 FAULT-A06 FAULT-A07 FAULT-A08 FAULT-A09 FAULT-A12 FAULT-A15
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, state_of
from recipes.planted import BEFORE, BEGIN, PLANTED, RUN, Planted
from recipes.trained import Run, frozen_run, said_exact

from raykit.errors import RaykitError

SAVE_OF_15 = {"put": '"event":"commit"', "when": "before", "nth": 4}


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What recipes bring into this process goes with the test."""
    monkeypatch.setenv("CORPUS_FILE", str(tmp_path / "beside"))
    path = list(sys.path)
    with warnings.catch_warnings():
        for category in (UserWarning, DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield
    for name in {"recipe", "base"} & set(sys.modules):
        del sys.modules[name]
    sys.path[:] = path


def cases(*marks: pytest.MarkDecorator) -> list[object]:
    return [pytest.param(planted, id=name, marks=marks) for name, planted in PLANTED.items()]


def frozen(planted: Planted, folder: Path) -> Run | str:
    """The run of a case, or why its plan was refused."""
    try:
        return frozen_run(folder, BEGIN + planted.code, {**RUN, **planted.run})
    except RaykitError as error:
        return str(error)


def found(planted: Planted, run: Run, said: str) -> None:
    """Either nothing was trained, and what was said names what has a name; or nobody is told that the run is exact."""
    if not state_of(run.task).commits:
        assert "gate: " in said and planted.named in said
        return
    assert not said_exact(run.task), said


@pytest.mark.parametrize("planted", cases())
def test_it_is_found(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = frozen(planted, tmp_path)
    if isinstance(run, str):
        assert planted.named in run
        return
    said = run.attempt(fails_in=14)
    if state_of(run.task).commits:
        for name, value in planted.second.items():
            monkeypatch.setenv(name, value)
        said = run.attempt()
    found(planted, run, said)


@pytest.mark.parametrize("planted", cases(pytest.mark.slow))
def test_it_is_found_after_a_kill(planted: Planted, nursery: Nursery, tmp_path: Path) -> None:
    run = frozen(planted, tmp_path)
    if isinstance(run, str):
        assert planted.named in run
        return
    env = {"CORPUS_FILE": str(tmp_path / "beside")}
    launches = Launches(nursery, run.task, env=env)
    (rank,) = launches.start(SAVE_OF_15)
    code, said = rank.wait()
    if state_of(run.task).commits:
        assert code == -signal.SIGKILL or said, "it was to be killed, or to stop by itself"
        ((_, said),) = replace(launches, env={**env, **planted.second}).run()
    found(planted, run, said)


def test_whatever_is_to_be_found_before_the_launch_has_a_name() -> None:
    assert [name for name, each in PLANTED.items() if each.found == BEFORE and not each.named] == []
