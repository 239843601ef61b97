"""What it costs to examine checkpoints beside examining them: claims, receipts, and the search for the next request.

    python -m benchmarks.qc

The workers are raykit's own, in processes of their own on one local store; only the examination is a made one. It gives
a receipt at once, or after a second of sleep with a picture of 100 kB. Ray has no part in this: a QC actor is such a
worker in an actor's process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.figures import Figure, main
from raykit.ids import digest_of, sha256
from raykit.records import (
    Artifact,
    Commit,
    Receipt,
    Request,
    Roster,
    RosterUnit,
    Score,
    Suite,
    Tally,
)
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.qc import Examinations
from raykit.work.examined import Examined
from raykit.work.qc_worker import Rules, Worker

EXPERIMENT, RUN = "benchmark", "main"
ROUNDS = 3
REQUESTS = 1000
WORKERS = 2
UNITS = 10
UNIT_S = 1.0
PICTURE_BYTES = 100_000
STRATA = tuple(f"stratum-{n}" for n in range(10))


def measure() -> Sequence[Figure]:
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        no_op_s = [_no_op_s(Path(folder, f"no-op-{n}")) for n in range(ROUNDS)]
        ratios = [_unit_ratio(Path(folder, f"unit-{n}")) for n in range(ROUNDS)]
    return [
        Figure(
            what=f"QC: {REQUESTS:,} no-op requests, {WORKERS} workers", unit="s", values=no_op_s, at_most=60.0
        ),
        Figure(
            what=f"QC: a unit of {UNIT_S:g} s with all around it / alone",
            unit="x",
            values=ratios,
            at_most=1.02,
        ),
    ]


def _no_op_s(root: Path) -> float:
    """How long workers take together, from the moment at which all of them are ready."""
    store = LocalStore(root)
    _backlog(store, REQUESTS)
    with ExitStack() as stack:
        workers = [stack.enter_context(_started(root, f"w{n}", "0")) for n in range(WORKERS)]
        start = time.perf_counter()
        for worker in workers:
            _say(worker, "go")
        for worker in workers:
            _hear(worker)
        elapsed_s = time.perf_counter() - start
    found = Examinations(store, EXPERIMENT).said().values()
    assert len(found) == REQUESTS and all(each.receipt and len(each.claims) == 1 for each in found)
    return elapsed_s


def _unit_ratio(root: Path) -> float:
    """How long a worker takes, for each second that it spends on examining."""
    _backlog(LocalStore(root), UNITS)
    with _started(root, "w0", str(UNIT_S)) as worker:
        start = time.perf_counter()
        _say(worker, "go")
        examining_s = float(_hear(worker))
        return (time.perf_counter() - start) / examining_s


# --- what is asked ------------------------------------------------------------------------------------------


def _suite() -> tuple[Suite, Roster]:
    units = tuple(RosterUnit(id=name, stratum=name, sha256=sha256(name.encode())) for name in STRATA)
    roster = Roster(
        role="development",
        data=digest_of("data"),
        stratum="source",
        quotas=dict.fromkeys(STRATA, 1),
        units=units,
        shown=STRATA,
    )
    suite = Suite(
        experiment=EXPERIMENT,
        owner="benchmark",
        every=10,
        root=layout.qc(EXPERIMENT),
        roster=roster.digest,
        code=digest_of("code"),
        config=digest_of("config"),
        revision=1,
        recipe="recipe:Recipe",
        params={},
        seed=0,
        threads=1,
        deterministic=True,
        dtype="float32",
        autocast="none",
        fail={"ratio": "> 0.5"},
    )
    return suite, roster


def _backlog(store: ObjectStore, count: int) -> None:
    """A run with so many checkpoints, of which none is examined and all are asked for."""
    suite, roster = _suite()
    commits = [_commit(10 * n) for n in range(count)]
    log = RunLog(store, EXPERIMENT, RUN, by="benchmark")
    log.append(lambda entries: commits, at=time.time())
    examinations = Examinations(store, EXPERIMENT)
    examinations.freeze(suite, roster)
    for commit in commits:
        examinations.ask(
            Request(
                experiment=EXPERIMENT,
                run=RUN,
                update=commit.update,
                checkpoint=commit.sha256,
                suite=suite.digest,
            )
        )


def _commit(update: int) -> Commit:
    return Commit(
        update=update,
        attempt=1,
        key=layout.checkpoint(EXPERIMENT, RUN, update, 1, "manifest.json"),
        sha256=digest_of(update),
        size_bytes=1,
        exactness="exact",
        reason="cadence",
        save_s=0.1,
        blocked_s=0.01,
    )


# --- a worker -----------------------------------------------------------------------------------------------


class Made:
    """Takes so long for each checkpoint, and finds the same of all."""

    def __init__(self, suite: Suite, unit_s: float) -> None:
        self._suite = suite
        self._unit_s = unit_s
        self.took_s = 0.0

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        start = time.perf_counter()
        time.sleep(self._unit_s)
        picture = request.id.encode() * (PICTURE_BYTES // 64) if self._unit_s else b""
        self.took_s += time.perf_counter() - start
        return Examined(
            receipt=_receipt(self._suite, request, reference, picture),
            pictures={"panels.png": picture} if picture else {},
        )


def _receipt(suite: Suite, request: Request, reference: Receipt | None, picture: bytes) -> Receipt:
    artifact = Artifact(name="panels.png", sha256=sha256(picture), size_bytes=max(1, len(picture)))
    return Receipt(
        request=request.id,
        experiment=request.experiment,
        run=request.run,
        update=request.update,
        checkpoint=request.checkpoint,
        suite=request.suite,
        roster=suite.roster,
        code=suite.code,
        config=suite.config,
        revision=suite.revision,
        reference=None if reference is None else reference.digest,
        facts={"torch": "none"},
        units=_tally(len(STRATA)),
        strata={name: _tally(1) for name in STRATA},
        metrics={"ratio": Score(value=0.25, strata=dict.fromkeys(STRATA, 0.25), no_skill=1.0, better="less")},
        artifacts=(artifact,) if picture else (),
        verdict="passed",
    )


def _tally(units: int) -> Tally:
    return Tally(requested=units, scored=units, failed=0, missing=0)


def work(root: Path, name: str, unit_s: float) -> None:
    """Once it is told to, examine all that is open; then say how long the examinations took."""
    suite, _ = _suite()
    made = Made(suite, unit_s)
    rules = Rules(tries=3, deadline_s=600.0)
    worker = Worker(LocalStore(root), EXPERIMENT, RUN, suite, rules, worker=name, examine=made)
    print("ready", flush=True)
    sys.stdin.readline()
    while (turn := worker.turn()).kind != "nothing":
        assert turn.kind in ("published", "waiting"), turn
        if turn.kind == "waiting":
            time.sleep(0.005)  # for update 0, which the other one examines
    print(made.took_s, flush=True)


@contextmanager
def _started(root: Path, name: str, unit_s: str) -> Iterator[subprocess.Popen[str]]:
    """A worker's process that is ready."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.qc", "work", str(root), name, unit_s],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert _hear(process) == "ready"
        yield process
    finally:
        process.kill()
        process.communicate()


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


def _hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", root, name, unit_s]:
            work(Path(root), name, float(unit_s))
        case _:
            sys.exit(main(measure))
