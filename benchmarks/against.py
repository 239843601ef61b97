"""Two checkouts in one run: the time of an update, and how long a launch takes until it trains.

    python -m benchmarks.against BEFORE AFTER [--rounds 7] [--only step|start]

BEFORE and AFTER are folders, each a checkout of raykit; both use this interpreter and what is installed beside it. They
take turns, the one that comes first changing from round to round, and a ratio compares the two runs of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from benchmarks.figures import Figure, main
from benchmarks.job import Job
from benchmarks.step_time import JOBS, run_contender

STEP_BAR = 1.02
START_SHARE, START_S = 0.10, 3.0
"""What a launch may take longer to begin: the larger of the two."""

SHORT = Job(params=JOBS["10 ms"][0].params, batch=8, updates=4, checkpoint_every=4)
"""What the launches train."""

Taken = TypeVar("Taken")


def measure(before: Path, after: Path, rounds: int, only: str | None) -> Iterator[Figure]:
    """Each figure as it is there."""
    for checkout in (before, after):
        require_its_own_code(checkout)
    if only != "start":
        for name, (job, _) in JOBS.items():
            yield from steps(name, job, before, after, rounds)
    if only != "step":
        yield from starts(before, after, rounds)


def steps(name: str, job: Job, before: Path, after: Path, rounds: int) -> Iterator[Figure]:
    """An update of a raykit run: its median over the middle, and its mean with every save and flush."""
    taken = in_turns(
        before,
        after,
        rounds,
        lambda checkout: run_contender("raykit", job, env=its_own(checkout), cwd=checkout),
    )
    yield Figure(what=f"{name}: before, step", unit="ms", values=[one.step_ms for one, _ in taken])
    ratios = [other.step_ms / one.step_ms for one, other in taken]
    yield Figure(what=f"{name}: after / before, step", unit="x", values=ratios, at_most=STEP_BAR)
    wholes = [other.whole_ms / one.whole_ms for one, other in taken]
    yield Figure(what=f"{name}: after / before, whole run", unit="x", values=wholes)


def starts(before: Path, after: Path, rounds: int) -> Iterator[Figure]:
    """From the command to the commit of update 0: Ray, the workers, every gate."""
    taken = in_turns(before, after, rounds, start_s)
    usual = statistics.median(one for one, _ in taken)
    yield Figure(what="start of a launch: before", unit="s", values=[one for one, _ in taken])
    yield Figure(
        what="start of a launch: after / before", unit="x", values=[other / one for one, other in taken]
    )
    yield Figure(
        what="start of a launch: after - before",
        unit="s",
        values=[other - one for one, other in taken],
        at_most=round(max(START_S, START_SHARE * usual), 2),
    )


def in_turns(
    before: Path, after: Path, rounds: int, run: Callable[[Path], Taken]
) -> list[tuple[Taken, Taken]]:
    """What both took, round by round. The first round warms caches and files up, and is not counted."""
    found = []
    for number in range(rounds + 1):
        order = (before, after) if number % 2 else (after, before)
        taken = [run(checkout) for checkout in order]
        found.append((taken[0], taken[1]) if number % 2 else (taken[1], taken[0]))
    return found[1:]


def start_s(checkout: Path) -> float:
    """Seconds from `raykit launch` to the commit of update 0."""
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as name:
        folder = Path(name)
        plan, root = SHORT.write(folder / "job"), folder / "store"
        command = [sys.executable, "-W", "ignore", "-m", "raykit", "launch", str(plan), "--root", str(root)]
        began = time.time()
        subprocess.run(command, check=True, stdout=sys.stderr, cwd=checkout, env=its_own(checkout))
        return first_commit_at(root) - began


def first_commit_at(root: Path) -> float:
    """When the run's first checkpoint was recorded. Read as JSON: the two checkouts may know other records."""
    for path in sorted(root.glob("experiments/*/runs/main/log/*.json")):
        entry = json.loads(path.read_bytes())
        if any(event["event"] == "commit" for event in entry["events"]):
            return float(entry["at"])
    raise RuntimeError(f"no commit in the log of the run in {root}")


def its_own(checkout: Path) -> Mapping[str, str]:
    """An environment in which Python imports that checkout, in every process."""
    return {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}


def require_its_own_code(checkout: Path) -> None:
    """Stop where an installed raykit would be measured instead of the checkout's."""
    told = [sys.executable, "-c", "import raykit; print(raykit.__file__)"]
    done = subprocess.run(
        told, check=True, capture_output=True, text=True, cwd=checkout, env=its_own(checkout)
    )
    if checkout not in Path(done.stdout.strip()).parents:
        raise SystemExit(f"{checkout} is no checkout of raykit: its Python imports {done.stdout.strip()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("step", "start"))
    options = parser.parse_args()
    folders = options.before.resolve(), options.after.resolve()
    sys.exit(main(lambda: measure(*folders, options.rounds, options.only)))
