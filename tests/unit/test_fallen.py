"""A run that turns out to be less exact than it was to be: said, paused by the plan, lifted by a fitting word only.

covers FAULT-A15
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from called import calls
from plainrun import freeze_job, run_log, take, write_job

from raykit.fleet.fallen import Fallen
from raykit.fleet.site import site_of
from raykit.reconcile import RunState, fold
from raykit.records import AttemptStarted, Compared, FirstDifference, Record, Undeclared
from raykit.store import open_store
from raykit.store.people import read_acts
from raykit.store.place import this_place
from raykit.train.inputs import Task

DIFFERENCE = FirstDifference(update=12, what="terms.fit.value", was="0.25", now="0.5")
OVERLAP = Compared(
    how="overlap", attempt=1, against=1, first=11, last=12, rows=2, difference=DIFFERENCE, lowers="inexact"
)
UNDECLARED = Undeclared(attempt=1, update=15, names=("recipe.calls",), lowers="inexact")


class Run:
    """A run that a launch holds, whose log is written by hand."""

    def __init__(self, folder: Path, **edits: str) -> None:
        self.plan = write_job(folder / "job", edits)
        self.root = str(folder / "store")
        self.task: Task = take(freeze_job(self.root, self.plan))
        task = self.task
        start = AttemptStarted(
            attempt=1,
            launch=task.launch,
            place=this_place(),
            world_size=1,
            facts={},
            plan=task.plan,
            code=task.code,
            data=task.data,
        )
        self.say(start)
        self.told: list[str] = []
        self.fallen = Fallen(site_of(self.plan, self.root), task.launch, self.told.append)

    def say(self, *events: Record) -> None:
        run_log(open_store(self.root), self.task).append(lambda entries: events, at=1.0)

    def state(self) -> RunState:
        return fold(run_log(open_store(self.root), self.task).refresh())

    def heed(self) -> None:
        self.fallen.heed(self.state(), read_acts(open_store(self.root), "tiny"))

    def pauses(self) -> Sequence[str]:
        acts = read_acts(open_store(self.root), "tiny")
        return [f"{held.pause.cause}: {held.pause.reason}" for held in acts.pauses.values()]


def test_a_difference_is_told_once_and_pauses(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.heed()
    assert run.told == []
    run.say(OVERLAP)
    run.heed()
    run.heed()
    (line,) = run.told
    assert line.startswith("no longer exact: ") and "update 12, terms.fit.value: 0.25 -> 0.5" in line
    (reason,) = run.pauses()
    assert reason.startswith("exactness: attempt 1 trained what attempt 1 had recorded to other bits")


def test_the_plan_may_say_that_it_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path, on_inexact='"continue"')
    run.say(OVERLAP)
    run.heed()
    assert len(run.told) == 1 and run.pauses() == []


def test_what_the_plan_calls_harmless_is_no_fall(tmp_path: Path) -> None:
    run = Run(tmp_path, harmless='["recipe.calls"]')
    run.say(UNDECLARED)
    run.heed()
    assert run.told == [] and run.pauses() == []


def test_a_lower_class_that_differs_pauses_nobody(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.say(OVERLAP.model_copy(update={"lowers": None}))
    run.heed()
    (line,) = run.told
    assert line.startswith("updates 11 to 12, trained again: not equal, as its class allows")
    assert run.pauses() == []


def test_only_a_word_that_fits_ends_the_pause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path)
    run.say(UNDECLARED)
    run.heed()
    said = calls(capsys)("resume", "tiny", "--root", run.root, "--repair", "I looked", "--by", "mira")
    assert said.code != 0 and '--as inexact --reason "why that is good enough" --by NAME' in said.err
    assert len(run.pauses()) == 1
