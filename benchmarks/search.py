"""What a search costs beside Ray Tune alone: eight trials of five seconds, two at a time; and what a long table takes.

    python -m benchmarks.search

Both run the same objective, which sleeps and reports five times, in trials of their own processes on a Ray of their
own; the start of that Ray is left out, and so is its end. raykit's rows are registered, reserved, claimed, reported
into the store and ended there; Tune alone keeps its own notes. Each of the two is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, main
from benchmarks.job import Job
from raykit.ids import sha256
from raykit.records import Begun, RowEnded, SearchRegistration, Setting, TableRow
from raykit.search import run_of
from raykit.store.local import LocalStore
from raykit.store.place import this_place
from raykit.store.search import SearchLog, register

ROUNDS = 2
TRIALS = 8
AT_ONCE = 2
REPORTS = 5
REPORT_S = 1.0
ROWS = 10_000
ENTRY_ROWS = 2_000

TABLE = f"""
[search]
hypothesis = "It sleeps as long whatever its rate is."
predicts   = "If true, every trial takes as long; if false some do not."
sampler    = {{ name = "random", seed = 7 }}
trials     = {TRIALS}
concurrent = {AT_ONCE}
metric     = "development.ratio"
mode       = "min"

[search.space]
lr = {{ loguniform = [1e-4, 1e-2] }}
"""


def measure() -> Sequence[Figure]:
    tune_s, raykit_s, list_s = [], [], []
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        for n in range(ROUNDS):
            tune_s.append(_alone(_tune_s, Path(folder, f"tune-{n}")))
            raykit_s.append(_alone(_raykit_s, Path(folder, f"raykit-{n}")))
        root = Path(folder, "table")
        _table(root)
        list_s += [_list_s(root) for _ in range(3)]
    what = f"{TRIALS} trials of {REPORTS * REPORT_S:g} s, {AT_ONCE} at a time"
    return [
        Figure(what=f"search: {what}: Ray Tune alone", unit="s", values=tune_s),
        Figure(
            what=f"search: {what}: raykit / Tune alone",
            unit="x",
            values=[ours / theirs for ours, theirs in zip(raykit_s, tune_s, strict=True)],
            at_most=1.5,
        ),
        Figure(what=f"search: {ROWS:,} registered rows, listed", unit="s", values=list_s, at_most=1.0),
    ]


# --- the same objective, twice ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sleeps:
    """Reports the same value a few times, after a second each."""

    def __call__(self, setting: Setting, after: int, report: Callable[[int, float], None]) -> None:
        for update in range(after + 1, REPORTS + 1):
            time.sleep(REPORT_S)
            report(update, 1.0)


def _sleeps(config: dict[str, Any]) -> None:
    from ray import tune

    for update in range(1, REPORTS + 1):
        time.sleep(REPORT_S)
        tune.report({"update": update, "value": 1.0})


def _tune_s(folder: Path) -> float:
    """How long Tune takes from its first step until the last trial has ended."""
    from ray import tune

    from raykit.fleet.session import start_local

    class Clock(tune.Callback):  # type: ignore[misc] # Ray is not typed here
        ended = 0.0

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self.ended = time.perf_counter()

    clock = Clock()
    with start_local(cpus=AT_ONCE + 1, resources={}):
        tuner = tune.Tuner(
            tune.with_resources(_sleeps, {"CPU": 1}),
            param_space={"lr": tune.grid_search([10.0**-n for n in range(TRIALS)])},
            tune_config=tune.TuneConfig(max_concurrent_trials=AT_ONCE),
            run_config=tune.RunConfig(storage_path=str(folder), verbose=0, callbacks=[clock]),
        )
        began = time.perf_counter()
        found = tuner.fit()
    assert len(found) == TRIALS and not found.errors, found.errors
    return clock.ended - began


def _raykit_s(folder: Path) -> float:
    """How long a search takes from the moment at which its Ray is there until the last row has its end."""
    from raykit.fleet.search.driver import search
    from raykit.fleet.site import site_of

    times: dict[str, float] = {}

    def say(line: str) -> None:
        times["began" if line.startswith("dashboard") else line] = time.perf_counter()

    outcome = search(
        site_of(_plan(folder), str(folder / "store")), tell=lambda seen: None, say=say, objective=Sleeps()
    )
    assert outcome.counts["completed"] == TRIALS, outcome
    ended = [at for line, at in times.items() if " completed at update " in line]
    assert len(ended) == TRIALS
    return max(ended) - times["began"]


def _plan(folder: Path) -> Path:
    folder.mkdir(parents=True)
    job = Job(
        params={"context": 8, "width": 8, "layers": 1, "heads": 1},
        batch=4,
        updates=REPORTS,
        checkpoint_every=REPORTS,
    )
    path = job.write(folder / "job")
    head, budget, tail = path.read_text().partition("[budget]")
    path.write_text(f"{head}{TABLE}\n{budget}{tail}")
    return path


def _alone(take: Callable[[Path], float], folder: Path) -> float:
    """The figure that a process of its own comes to."""
    command = [sys.executable, "-m", "benchmarks.search", take.__name__, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


# --- a long table -------------------------------------------------------------------------------------------


def _table(root: Path) -> None:
    """A registered table whose every other row has ended."""
    store, digest = LocalStore(root), sha256(b"a benchmark")
    rows = tuple(TableRow(row=n, seed=1, params={"lr": 1 / n, "width": n % 64}) for n in range(1, ROWS + 1))
    registration = SearchRegistration(
        experiment="benchmark",
        search="main",
        plan=digest,
        contract=digest,
        code=digest,
        data=digest,
        hypothesis="It is long.",
        predicts="It takes a second.",
        metric="development.ratio",
        mode="min",
        sampler={"name": "random", "seed": 7},
        space={"lr": {"loguniform": [1e-5, 1.0]}, "width": {"integer": [0, 63]}},
        concurrent=4,
        updates=100,
        attempts=2,
        unit="usd",
        row_worst=1_000_000,
        total_worst=ROWS * 1_000_000,
        rows=rows,
    )
    register(store, registration)
    log, place = SearchLog(store, registration, by="benchmark"), this_place()
    for first in range(1, ROWS + 1, ENTRY_ROWS):
        some = range(first, first + ENTRY_ROWS, 2)
        begun = [Begun(row=n, launch=f"l{n}", place=place) for n in some]
        ended = [
            RowEnded(row=n, end="completed", update=100, value=1 / n, at=100, cost=n, attempts=1)
            for n in some
        ]
        log.append(lambda entries, events=[*begun, *ended]: events, at=time.time())  # type: ignore[misc]
    assert run_of(ROWS) == "trial-10000"


def _list_s(root: Path) -> float:
    """How long it takes to read the table and to print every row of it."""
    import raykit
    from raykit.cli import searchlook

    began = time.perf_counter()
    read = raykit.open(str(root)).search("benchmark")
    lines = list(searchlook.whole(read, most=None, columns=None, at=""))
    taken_s = time.perf_counter() - began
    assert len(lines) > ROWS
    return taken_s


if __name__ == "__main__":
    if len(sys.argv) > 1:
        take = {each.__name__: each for each in (_tune_s, _raykit_s)}[sys.argv[1]]
        print(json.dumps(take(Path(sys.argv[2]))))
        sys.exit(0)
    sys.exit(main(measure))
