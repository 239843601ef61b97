"""What a busy QC worker beside training does to the time of an update.

    python -m benchmarks.qc_beside

Training and the worker are processes with one thread and one core each. The worker examines a checkpoint of the digits
again and again, as a QC actor does. Runs with and without it take turns; a ratio compares two runs of one round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, main
from benchmarks.job import Job

ROUNDS = 5
READY_S = 60.0
JOB = Job(
    params={"width": 80, "layers": 2, "heads": 2, "context": 64}, batch=8, updates=400, checkpoint_every=200
)
DIGITS = Path(__file__).parents[1] / "jobs" / "digits" / "plan.toml"


def measure() -> Sequence[Figure]:
    cores = sorted(os.sched_getaffinity(0))
    assert len(cores) > 1, "training and the worker need a core each"
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        root, ready = Path(folder, "store"), Path(folder, "ready")
        trained = _python("benchmarks.qc_beside", "train", str(root))
        assert trained.wait() == 0
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(_step_ms(cores[0]))
            with _busy(root, ready, cores[1]):
                beside.append(_step_ms(cores[0]))
    return [
        Figure(what="10 ms: raykit step, nothing beside it", unit="ms", values=alone),
        Figure(
            what="10 ms: with a busy QC worker / without, step",
            unit="x",
            values=[with_ / without for with_, without in zip(beside, alone, strict=True)],
            at_most=1.05,
        ),
    ]


def _python(*arguments: str, core: int | None = None) -> subprocess.Popen[bytes]:
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    return subprocess.Popen(
        [*pinned, sys.executable, "-W", "ignore", "-m", *arguments],
        stdout=sys.stderr,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )


def _step_ms(core: int) -> float:
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        spec, ticks = Path(folder, "job.json"), Path(folder, "ticks.json")
        spec.write_text(json.dumps(asdict(JOB)))
        done = _python("benchmarks.contender", "raykit", str(spec), str(ticks), core=core)
        assert done.wait() == 0
        began = json.loads(ticks.read_text())
    steps = [after - before for before, after in pairwise(began)]
    return 1e3 * statistics.median(steps[len(steps) // 5 : -(len(steps) // 10)])


@contextmanager
def _busy(root: Path, ready: Path, core: int) -> Iterator[None]:
    """A worker that is at it, from its second check on."""
    worker = _python("benchmarks.qc_beside", "work", str(root), str(ready), core=core)
    try:
        deadline = time.monotonic() + READY_S
        while not ready.exists():
            assert worker.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield
        assert worker.poll() is None, "it was busy to the end"
    finally:
        worker.kill()
        worker.wait()
        ready.unlink(missing_ok=True)


# --- in processes of their own ------------------------------------------------------------------------------


def train(root: Path) -> None:
    """A short run of the digits, to be examined."""
    from raykit.fleet.claim import claim
    from raykit.fleet.site import site_of
    from raykit.store.people import People
    from raykit.train.directive import Directive
    from raykit.train.gang import alone
    from raykit.train.worker import work

    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        job = Path(folder)
        (job / "recipe.py").write_bytes(DIGITS.with_name("recipe.py").read_bytes())
        plan = job / "plan.toml"
        plan.write_text(DIGITS.read_text().replace("updates          = 2000", "updates          = 200"))
        site = site_of(plan, str(root))
        claimed = claim(site, site.run_log("benchmark"), People(site.store, site.name))
        work(claimed.task, alone(), Directive())


def examine(root: Path, ready: Path) -> None:
    """Examine its last checkpoint until killed."""
    from raykit.read.qc import QcReader
    from raykit.store.local import LocalStore
    from raykit.work.qc_unit import Bench

    store = LocalStore(root)
    reader = QcReader(store, "digits-vae")
    read = reader.look(now=time.time())
    assert read is not None
    first, last = read.backlog.standings[0], read.backlog.standings[-1]
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        bench = Bench(store, "digits-vae", read.suite, reader.roster(read.suite), Path(folder))
        reference = bench(first.request, first.wanted.key, None).receipt
        ready.touch()
        while True:
            bench(last.request, last.wanted.key, reference)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["train", root]:
            train(Path(root))
        case ["work", root, ready]:
            examine(Path(root), Path(ready))
        case _:
            sys.exit(main(measure))
