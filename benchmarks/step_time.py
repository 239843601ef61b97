"""The time of an update: raykit with full history and checkpoints, a plain loop, and Lightning with a CSV logger.

    python -m benchmarks.step_time

Each contender runs in a process of its own, in turn, several rounds; a ratio compares two runs of one round. The
step is the median over the middle of a run; the whole is its mean, with every save and flush that fell into it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, main
from benchmarks.job import Job

ROUNDS = 5
CONTENDERS = ("plain", "raykit", "lightning")

JOBS = {
    "10 ms": (
        Job(
            params={"width": 80, "layers": 2, "heads": 2, "context": 64},
            batch=8,
            updates=600,
            checkpoint_every=200,
        ),
        1.05,
    ),
    "100 ms": (
        Job(
            params={"width": 160, "layers": 2, "heads": 4, "context": 128},
            batch=16,
            updates=100,
            checkpoint_every=50,
        ),
        1.02,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Of one run, in milliseconds."""

    step_ms: float
    whole_ms: float


def measure() -> Sequence[Figure]:
    return [figure for name, (job, bar) in JOBS.items() for figure in _compare(name, job, bar)]


def _compare(name: str, job: Job, bar: float) -> Sequence[Figure]:
    rounds = [{contender: run_contender(contender, job) for contender in CONTENDERS} for _ in range(ROUNDS)]
    figures = [
        Figure(what=f"{name}: plain step", unit="ms", values=[times["plain"].step_ms for times in rounds])
    ]
    for contender in CONTENDERS[1:]:
        steps = [times[contender].step_ms / times["plain"].step_ms for times in rounds]
        wholes = [times[contender].whole_ms / times["plain"].whole_ms for times in rounds]
        at_most = bar if contender == "raykit" else None
        figures += [
            Figure(what=f"{name}: {contender} / plain, step", unit="x", values=steps, at_most=at_most),
            Figure(what=f"{name}: {contender} / plain, whole run", unit="x", values=wholes),
        ]
    return figures


def run_contender(
    contender: str, job: Job, *, env: Mapping[str, str] = os.environ, cwd: Path | None = None
) -> Times:
    """One run in a process of its own, in that environment and folder."""
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        spec, ticks = Path(folder, "job.json"), Path(folder, "ticks.json")
        spec.write_text(json.dumps(asdict(job)))
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.contender", contender, str(spec), str(ticks)],
            check=True,
            stdout=sys.stderr,
            cwd=cwd,
            env={**env, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )
        began = json.loads(ticks.read_text())
    assert len(began) == job.updates
    steps = [after - before for before, after in pairwise(began)]
    middle = steps[len(steps) // 5 : -(len(steps) // 10)]
    return Times(step_ms=1e3 * statistics.median(middle), whole_ms=1e3 * statistics.mean(steps))


if __name__ == "__main__":
    sys.exit(main(measure))
