"""Money at speed: durable decisions through the budget actor, heartbeats beside them, and the replay of a long ledger.

    python -m benchmarks.ledger

A private Ray on this machine, a store in the temporary folder. A decision is a reservation that the ledger holds,
synced, before anyone is told. The bare actor does the least that could be called durable: it appends a line of about
the same length to one file and syncs it, one call after another. Both get their calls from this process, the same
number in flight. Heartbeats come from two processes that simulate 2,000 workers, each at its own moment, while
a few decisions a second go on.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from benchmarks.figures import Figure, main
from raykit.budget.admit import Request, admit, settle
from raykit.budget.book import Book
from raykit.fleet.budget_actor import Seat, open_seat
from raykit.fleet.session import start_local
from raykit.ids import digest_of
from raykit.records import AccountOpened, Line, Planned, Record, Terms
from raykit.store.base import ObjectStore
from raykit.store.disk import Disk
from raykit.store.ledger import Ask, Ledger
from raykit.store.local import LocalStore
from raykit.train.directive import BEAT_S

ACCOUNT = "benchmark"
ROUNDS = 5
DECISIONS = 2000
IN_FLIGHT = 256
WORKERS = 2000
BEATING_S = 10.0
DECISIONS_A_SECOND = 20
"""While workers beat."""
EVENTS = 100_000
EVENTS_AN_ENTRY = 10


def measure() -> Sequence[Figure]:
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        with start_local(cpus=2, resources={}):
            figures = [*_decisions(Path(folder)), _heartbeats(Path(folder, "beats"))]
        return [*figures, _replay(Path(folder, "long"))]


# --- decisions ----------------------------------------------------------------------------------------------


def _decisions(folder: Path) -> list[Figure]:
    bare = Bare.remote(str(folder / "bare"))
    budget = _budget(folder / "store")
    line = b"x" * 420 + b"\n"
    bare_us, budget_us = [], []
    for each in range(ROUNDS):
        bare_us.append(_each_us([lambda: bare.decide.remote(line)] * DECISIONS))
        leases = [f"lease-{each}-{i}" for i in range(DECISIONS)]
        budget_us.append(
            _each_us(
                [lambda lease=lease: budget.reserve.remote(_request(lease), "qc", None) for lease in leases]
            )
        )
    ratios = [budget / bare for budget, bare in zip(budget_us, bare_us, strict=True)]
    return [
        Figure(what="a decision: bare actor, one fsync each", unit="us", values=bare_us),
        Figure(what="a decision: budget actor, in the ledger", unit="us", values=budget_us, at_most=1000.0),
        Figure(what="a decision: budget actor / bare actor", unit="x", values=ratios),
    ]


@ray.remote(num_cpus=0)
class Bare:
    """A counter of nothing that is durable all the same."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def decide(self, line: bytes) -> None:
        os.write(self._file, line)
        os.fsync(self._file)


def _each_us(calls: Sequence[Any]) -> float:
    """Microseconds for each call, a few hundred in flight, all of them answered."""
    start, flying = time.perf_counter(), []
    for call in calls:
        flying.append(call())
        if len(flying) >= IN_FLIGHT:
            done, flying = ray.wait(flying, num_returns=IN_FLIGHT // 2, timeout=60)
            _require_granted(ray.get(done, timeout=60))
    _require_granted(ray.get(flying, timeout=60))
    return 1e6 * (time.perf_counter() - start) / len(calls)


def _require_granted(answers: Sequence[object]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


# --- heartbeats ---------------------------------------------------------------------------------------------


def _heartbeats(root: Path) -> Figure:
    budget = _budget(root)
    leases = [f"worker-{i}" for i in range(WORKERS)]
    _each_us([lambda lease=lease: budget.reserve.remote(_request(lease), "qc", None) for lease in leases])
    p99_ms = []
    for each in range(ROUNDS):
        halves = [Workers.remote(budget, leases[half::2]) for half in range(2)]
        beating = [half.beat_for.remote(BEATING_S) for half in halves]
        count = 0
        while ray.wait(beating, num_returns=2, timeout=1 / DECISIONS_A_SECOND)[1]:
            _require_granted([ray.get(budget.reserve.remote(_request(f"more-{each}-{count}"), "qc", None))])
            count += 1
        taken_s = sorted(second for half in beating for second in ray.get(half, timeout=60))
        p99_ms.append(1000 * taken_s[len(taken_s) * 99 // 100])
    what = f"a heartbeat, p99: {WORKERS:,} workers, every {BEAT_S:g} s"
    return Figure(what=what, unit="ms", values=p99_ms, at_most=100.0)


@ray.remote(num_cpus=0)
class Workers:
    """Many workers in one process; each beats at its own moment."""

    def __init__(self, budget: Any, leases: Sequence[str]) -> None:
        self._budget = budget
        self._leases = leases

    async def beat_for(self, seconds: float) -> list[float]:
        """How long each heartbeat took, in seconds."""
        each = [self._work(lease, i / len(self._leases), seconds) for i, lease in enumerate(self._leases)]
        return [taken_s for worker in await asyncio.gather(*each) for taken_s in worker]

    async def _work(self, lease: str, phase: float, seconds: float) -> list[float]:
        begin = time.perf_counter() + phase * BEAT_S
        taken_s = []
        for due in range(int(seconds / BEAT_S)):
            await asyncio.sleep(max(0.0, begin + due * BEAT_S - time.perf_counter()))
            start = time.perf_counter()
            _require_granted([await self._budget.beat.remote(lease)])
            taken_s.append(time.perf_counter() - start)
        return taken_s


# --- replay -------------------------------------------------------------------------------------------------


class Unsynced(Disk):
    """Nothing has to survive: the bytes are the same, and are there sooner."""

    def sync(self, file: int) -> None:
        pass

    def sync_folder(self, folder: int) -> None:
        pass


def _replay(root: Path) -> Figure:
    _write_long(LocalStore(root, disk=Unsynced()))
    taken_s = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ledger = Ledger(LocalStore(root), ACCOUNT, by="benchmark")
        ledger.refresh()
        assert ledger.book.charged
        taken_s.append(time.perf_counter() - start)
        assert sum(len(entry.events) for entry in ledger.entries) >= EVENTS
    what = f"replay of {EVENTS:,} events, {EVENTS_AN_ENTRY} an entry, into a book"
    return Figure(what=what, unit="s", values=taken_s, at_most=2.0)


def _write_long(store: ObjectStore) -> None:
    """A ledger as a desk writes it: batches of decisions, half of them reservations and half of them their ends."""
    ledger = _account(store)
    for first in range(0, EVENTS // 2, EVENTS_AN_ENTRY // 2):
        leases = [f"lease-{i}" for i in range(first, first + EVENTS_AN_ENTRY // 2)]
        ledger.decide_all([ask for lease in leases for ask in (_ask(lease), _ask_end(lease))], at=time.time())


def _ask(lease: str) -> Ask:
    return lambda book: admit(book, _request(lease))


def _ask_end(lease: str) -> Ask:
    return lambda book: settle(book, lease, time_ms=900, reason="completed", how="measured")


# --- an account ---------------------------------------------------------------------------------------------


def _budget(root: Path) -> Any:
    _account(LocalStore(root))
    seat = Seat(root=str(root), account=ACCOUNT)
    return open_seat(seat, name=f"{seat.name}-{root.name}")


def _account(store: ObjectStore) -> Ledger:
    """An account with one experiment that may spend a little less than needs an approval."""
    ledger = Ledger(store, ACCOUNT, by="benchmark")
    line = Line(line="work", purpose="target", planned=4_000_000)
    kept = Line(line="recovery", purpose="recovery", planned=900_000)
    planned = Planned(
        experiment=ACCOUNT,
        plan=digest_of("plan"),
        decision=digest_of("decision"),
        ceiling=4_900_000,
        lines=(line, kept),
        expected=1_000_000,
    )

    def open_account(book: Book) -> list[Record]:
        return [AccountOpened(account=ACCOUNT, unit="usd", why="a benchmark"), planned]

    ledger.decide(open_account, at=time.time())
    return ledger


def _request(lease: str) -> Request:
    terms = Terms(
        accelerators=1, rate=36_000, source="a price list of 2026-11-29", time_ms=1000, drain_ms=100
    )
    return Request(lease=lease, experiment=ACCOUNT, line="work", terms=terms)


if __name__ == "__main__":
    sys.exit(main(measure))
