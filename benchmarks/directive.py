"""What the one question at every update costs, as a share of a step of 10 ms.

    python -m benchmarks.directive

A run's log and an account in the temporary folder, with a lease; the directive listens to both as it does in training:
the log every half second, the door every two. Threads that wake up take time from the step too, so a step is a plain
loop of Python that lasts about 10 ms, timed with and without the directive, in turn. What is left is the difference
of the medians; below the noise it is the cost of the call alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, main
from raykit.budget.worst import Sizing
from raykit.fleet.door import Attempts, StoreDoor, lease_of
from raykit.ids import digest_of
from raykit.records import (
    AccountOpened,
    AttemptStarted,
    Launched,
    Line,
    Planned,
)
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.place import this_place
from raykit.train.directive import Directive
from raykit.train.rows import Stamp

STEP_S = 0.010
ROUNDS = 5
STEPS = 200
CALLS = 200_000
LAUNCH = "benchmark"


def measure() -> Sequence[Figure]:
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        directive = _listening(LocalStore(Path(folder)))
        try:
            calls = [_call_us(directive) for _ in range(ROUNDS)]
            step = _step_of(STEP_S)
            shares = [_share(step, directive) for _ in range(ROUNDS)]
        finally:
            directive.close()
    return [
        Figure(what="the directive: one ask (0.5 % of 10 ms)", unit="us", values=calls, at_most=50.0),
        Figure(what="the directive: a 10 ms step with it / without", unit="x", values=shares),
    ]


def _listening(store: LocalStore) -> Directive:
    """A directive that listens to a run's log and keeps a lease, as rank 0 has one."""
    digest, place = digest_of("benchmark"), this_place()
    sizing = Sizing(
        accelerators=1,
        rate=0,
        source="none",
        wall_ms=3_600_000,
        attempts=1,
        setup_ms=0,
        window_ms=0,
        drain_ms=0,
    )
    ledger = Ledger(store, LAUNCH, by="benchmark")
    lines = (Line(line="train", purpose="target", planned=0),)
    planned = Planned(experiment=LAUNCH, plan=digest, decision=digest, ceiling=0, lines=lines, expected=0)
    ledger.decide(
        lambda book: [AccountOpened(account=LAUNCH, unit="usd", why="a benchmark"), planned], at=time.time()
    )
    attempts = Attempts(experiment=LAUNCH, projection=None, sizing=sizing)
    door = StoreDoor(store, LAUNCH, attempts, by="benchmark")
    grant = door.begin(LAUNCH, 1)
    log = RunLog(store, LAUNCH, "main", by="benchmark")
    began = AttemptStarted(
        attempt=1,
        launch=LAUNCH,
        place=place,
        world_size=1,
        facts={},
        plan=digest,
        code=digest,
        data=digest,
        lease=lease_of(LAUNCH, 1),
    )
    log.append(
        lambda entries: [Launched(launch=LAUNCH, place=place, lease_s=60.0, raykit="0"), began],
        at=time.time(),
    )
    directive = Directive()
    directive.listen(log, Stamp(experiment=LAUNCH, run="main", launch=LAUNCH, attempt=1))
    directive.keep(door, grant, granted_at=time.monotonic(), hold_s=300.0)
    directive.working()
    return directive


def _call_us(directive: Directive) -> float:
    ask = directive.ask
    start = time.perf_counter()
    for _ in range(CALLS):
        ask()
    return (time.perf_counter() - start) / CALLS * 1e6


def _step_of(seconds: float) -> Callable[[], None]:
    """A plain loop that lasts about so long here."""

    def loop(count: int) -> None:
        total = 0
        for i in range(count):
            total += i * i

    start = time.perf_counter()
    loop(1_000_000)
    count = int(1_000_000 * seconds / (time.perf_counter() - start))
    return lambda: loop(count)


def _share(step: Callable[[], None], directive: Directive) -> float:
    """The median step with an ask over the median step without one, taken in turn."""
    plain, asking = [], []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        middle = time.perf_counter()
        step()
        directive.ask()
        plain.append(middle - start)
        asking.append(time.perf_counter() - middle)
    return median(asking) / median(plain)


if __name__ == "__main__":
    sys.exit(main(measure))
