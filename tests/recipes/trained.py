"""Recipes trained in this process: frozen, gated and trained by the very code that a launch runs, on a store of files.

    run = frozen_run(folder, code)
    run.fail(5)                 # an attempt that fails in update 5
    run.train()                 # another one, to the end: it goes on with it as another launch would

Only the process is the same for both attempts: the recipe, its modules and everything that is built of it are made
anew, from the frozen copy.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from plainrun import freeze_job, state_of, take

import raykit
from raykit.errors import RaykitError, StoreUnavailableError
from raykit.records import Exactness
from raykit.train.directive import Directive
from raykit.train.gang import alone
from raykit.train.inputs import Task
from raykit.train.loop import Ending
from raykit.train.step import Asked
from raykit.train.worker import work

HERE = Path(__file__).parent

PLAN = """
schema   = 1
name     = "{name}"
recipe   = "recipe:Variant"
decision = "Is this recipe taken as it is?"
category = "model-selection"
if_no    = "Look at what was refused."

[claim]
unit       = "one row"
target     = "what belongs to it"
population = "forty rows"
metric     = "ratio"
worthwhile = 0.01
success    = "it trains"
compare    = ["zero"]

[value]
justifies = "A ratio below 0.5 lets 900 other tests rest on it."
matters   = "3 of its 40 rows were placed wrongly before."
first     = "It is a run of a few updates."

[splits]
group       = "none"
train       = 0.8
development = 0.2

[run]
{run}

[budget]
ceiling_usd = 1.0
confirm     = "one-run"
"""

RUN = {
    "updates": "6",
    "batch": "8",
    "seed": "3",
    "checkpoint_every": "2",
    "evaluate_every": "3",
    "select": '"min development.ratio"',
    "stop": '"never"',
    "curves": '{ every = 2, smooth = "ema 0.9" }',
    "flush_s": "0.05",
}


def write(folder: Path, code: str, edits: Mapping[str, str] | None = None, *, name: str = "recipe") -> Path:
    """The job of a recipe: its code beside the module that all of them begin with, and its plan."""
    folder.mkdir(parents=True)
    (folder / "base.py").write_text((HERE / "base.py").read_text())
    (folder / "recipe.py").write_text(f"from base import *\n\n{code}")
    run = "\n".join(f"{key} = {value}" for key, value in {**RUN, **(edits or {})}.items())
    path = folder / "plan.toml"
    path.write_text(PLAN.format(name=name, run=run))
    return path


class _Failing(Directive):
    """A directive under which training fails in an update, once every save that has begun is durable."""

    def __init__(self, update: int) -> None:
        super().__init__()
        self._updates = update
        self._saves = 0
        self._durable = threading.Semaphore(0)

    def saved(self) -> None:
        super().saved()
        self._saves += 1

    def save_took(self, seconds: float) -> None:
        super().save_took(seconds)
        self._durable.release()

    def ask(self) -> Asked:
        self._updates -= 1
        if self._updates == 0:
            assert all(self._durable.acquire(timeout=30) for _ in range(self._saves))
            raise StoreUnavailableError("the store is away for good", remedy="wait")
        return super().ask()


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a recipe in a store of its own."""

    task: Task

    def train(self) -> Ending:
        """One attempt, to its end."""
        return self._attempt(Directive())

    def fail(self, update: int) -> None:
        """One attempt fails in that update of its own. The rows before it are durable, its checkpoint may not be."""
        with pytest.raises(StoreUnavailableError, match="away for good"):
            self._attempt(_Failing(update))

    def attempt(self, *, fails_in: int | None = None) -> str:
        """One attempt, whatever comes of it: how it ended, or why it was refused."""
        try:
            return self._attempt(Directive() if fails_in is None else _Failing(fails_in)).reason
        except RaykitError as error:
            return f"{error.kind}: {error}"

    def _attempt(self, directive: Directive) -> Ending:
        with own_process():
            return work(take(self.task, secrets.token_hex(6)), alone(), directive)


def frozen_run(folder: Path, code: str, edits: Mapping[str, str] | None = None) -> Run:
    """A run of a recipe of the corpus."""
    return frozen_plan(folder / "store", write(folder / "job", code, edits))


def frozen_plan(root: Path, plan: Path) -> Run:
    """What a launch of a plan has before it starts anything."""
    with own_process():
        return Run(freeze_job(root, plan))


@contextmanager
def own_process() -> Iterator[None]:
    """Threads, determinism and generators of this process are put back."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


# --- what is said of it -------------------------------------------------------------------------------------


def classes(task: Task) -> set[Exactness]:
    """Every class in the run's log: of its gates, checkpoints and resumes, and of what was found or compared."""
    state = state_of(task)
    given = {commit.exactness for commit in state.commits}
    given |= {attempt.resume.exactness for attempt in state.attempts if attempt.resume is not None}
    later = (getattr(event, name, None) for event in state.events for name in ("lowers", "exactness"))
    return given | {each for each in later if each is not None}


def said_exact(task: Task) -> bool:
    """Whether whoever asks is told that this run is exact: the one place that knows where it is said."""
    shown = getattr(raykit.open(task.root).run(task.experiment), "exactness", None)
    return classes(task) <= {"exact"} if shown is None else bool(shown.exactness == "exact")


def accused(task: Task) -> list[str]:
    """What was found against a run: state that no checkpoint holds, and differences between what was trained twice."""
    events = state_of(task).events
    names = [name for event in events for name in getattr(event, "names", ())]
    return names + [
        str(event.difference) for event in events if getattr(event, "difference", None) is not None
    ]
