"""Recipes in which nothing is wrong are taken as they are, and go on to the bit after an attempt that failed.

A quarter of them is asked in `make test`: those whose caches, counters, clocks and files are most easily mistaken for
state, and one of each kind of the rest. All others are asked in `make chaos`.

covers CKPT-04 CONTRACT-07, I5
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from plainrun import final_digest, rows_bits, state_of
from recipes.clean import CLEAN, Clean
from recipes.trained import Run, accused, classes, frozen_plan, frozen_run, said_exact

TOP = Path(__file__).parents[2]

QUICK = (
    "an lru_cache on a method of the recipe",
    "an lru_cache on a method of the model",
    "a cached property of the model",
    "a cache of the module, by length",
    "rotary angles made at the first pass",
    "a mask that is not persistent and grows",
    "a compiled model",
    "a tokenizer that remembers words",
    "rows that are remembered",
    "a file that is opened at the first row",
    "a memory map of NumPy's",
    "a lock around reading",
    "a progress bar",
    "a counter of calls",
    "a counter of calls of the module",
    "a list of the losses so far",
    "a clock",
    "counts of the labels that were read",
    "the last activation, kept by a hook",
    "an average of the weights as a part of the model",
    "tied weights",
    "batch statistics that stay as they are",
    "weights that decay and weights that do not",
    "an average of the weights in the state",
    "SGD with momentum, a function",
)


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What recipes bring into this process goes with the test, and what they merely warn of is theirs."""
    modules, path = set(sys.modules), list(sys.path)
    with warnings.catch_warnings():
        for category in (UserWarning, DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield
    for name in set(sys.modules) & {"recipe", "base"} - modules:
        del sys.modules[name]
    sys.path[:] = path


def test_there_are_a_hundred_and_a_quarter_of_them_is_quick() -> None:
    assert len(CLEAN) >= 100
    assert len(set(QUICK)) == 25
    assert set(QUICK) <= set(CLEAN)


MARKED = [
    pytest.param(clean, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for name, clean in CLEAN.items()
]


@pytest.mark.parametrize("clean", MARKED)
def test_a_clean_recipe_is_not_refused_and_resumes_to_the_bit(clean: Clean, tmp_path: Path) -> None:
    undisturbed = frozen_run(tmp_path / "undisturbed", clean.code, clean.run)
    failed = frozen_run(tmp_path / "failed", clean.code, clean.run)
    taken_as_it_is(undisturbed, failed)


def taken_as_it_is(undisturbed: Run, failed: Run) -> None:
    """Neither of two runs of a recipe is refused or accused, and the one that fails on its way ends as the other."""
    assert undisturbed.train().reason == "completed"
    failed.fail(6)
    assert failed.train().reason == "completed"

    state = state_of(failed.task)
    assert [attempt.attempt for attempt in state.attempts] == [1, 2]
    resume = state.attempts[-1].resume
    assert resume is not None and resume.update == 4, "it was meant to go on in its middle"
    assert [gate for gate, result in state.gates.items() if not result.passed] == []
    assert final_digest(failed.task) == final_digest(undisturbed.task)
    assert rows_bits(failed.task) == rows_bits(undisturbed.task)
    for run in (undisturbed, failed):
        assert said_exact(run.task) and classes(run.task) == {"exact"}
        assert accused(run.task) == []


# --- what ships ---------------------------------------------------------------------------------------------


def documented() -> str:
    """The complete recipe of the documentation."""
    text = (TOP / "docs" / "RECIPES.md").read_text()
    return text.split("```python\n")[1].split("```")[0] + "\n\nVariant = Lines\n"


def test_the_recipe_in_the_documentation(tmp_path: Path) -> None:
    taken_as_it_is(*(frozen_run(tmp_path / name, documented()) for name in ("undisturbed", "failed")))


@pytest.mark.long
@pytest.mark.parametrize("job", sorted(path.parent.name for path in TOP.glob("jobs/*/plan.toml")))
def test_a_job_that_ships(job: str, tmp_path: Path) -> None:
    """As it is, but for its length."""

    def made(name: str) -> Run:
        folder = shutil.copytree(TOP / "jobs" / job, tmp_path / name / "job")
        plan = folder / "plan.toml"
        text = re.sub(r"(?m)^(updates +)= \d+", r"\1= 6", plan.read_text())
        plan.write_text(re.sub(r"(every *)= \d+", r"\1= 2", text))
        return frozen_plan(tmp_path / name / "store", plan)

    taken_as_it_is(made("undisturbed"), made("failed"))
