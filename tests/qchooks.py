"""A deterministic examination in plain Python, and workers on it: in this process, or in one of their own.

`backlog(store)` is a run that has trained to its end and that nobody has examined; `worker(made)` examines it here, and
`start(root, "qc-1")` in a process of its own, as `python -m qchooks` does.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import workerprocess
from makeqc import FACTS, STRATA, UNITS, QcMaker, make_trained
from workerprocess import Started

from raykit.ids import sha256
from raykit.records import (
    Artifact,
    FieldScore,
    FieldSpread,
    Receipt,
    Request,
    Roster,
    Score,
    Suite,
    Tally,
)
from raykit.store.base import ObjectStore
from raykit.store.local import LocalStore
from raykit.store.plans import newest_stored_lock
from raykit.store.qc import Examinations
from raykit.work.examined import Examined
from raykit.work.puller import Turn
from raykit.work.qc_worker import Rules, Worker

AT = 1_800_100_000.0
"""After everything that a made run says of itself."""


def picture(request: Request) -> bytes:
    """The bytes of a panel: the same for the same weights."""
    return b"PNG of " + request.checkpoint.encode() * 20


@dataclass
class Examine:
    """Scores a checkpoint by its digest alone. `salt` makes it answer otherwise, as another machine might."""

    suite: Suite
    salt: str = ""
    sleep_s: float = 0.0
    before: Callable[[Request], None] = lambda request: None
    seen: list[int] = field(default_factory=list)
    """The updates that it was asked about, in order."""

    def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
        self.seen.append(request.update)
        time.sleep(self.sleep_s / 2)
        self.before(request)
        time.sleep(self.sleep_s / 2)
        data = picture(request)
        return Examined(
            receipt=self.receipt(request, reference, {"panels.png": data}),
            pictures={"panels.png": data},
            peak_bytes=1000,
        )

    def receipt(self, request: Request, reference: Receipt | None, pictures: Mapping[str, bytes]) -> Receipt:
        digit = int(sha256((request.checkpoint + self.salt).encode())[:8], 16) / 16**8
        value = round(0.1 + 0.2 * digit, 9)
        spread = FieldSpread(median=0.1, low=-1.0, high=1.2, spread=2.2)
        tally = Tally(requested=UNITS, scored=UNITS, failed=0, missing=0)
        whole = UNITS * len(STRATA)
        return Receipt(
            request=request.id,
            experiment=request.experiment,
            run=request.run,
            update=request.update,
            checkpoint=request.checkpoint,
            suite=self.suite.digest,
            roster=self.suite.roster,
            code=self.suite.code,
            config=self.suite.config,
            revision=self.suite.revision,
            reference=None if reference is None else reference.digest,
            facts=FACTS,
            units=Tally(requested=whole, scored=whole, failed=0, missing=0),
            strata=dict.fromkeys(STRATA, tally),
            metrics={
                "ratio": Score(value=value, strata=dict.fromkeys(STRATA, value), no_skill=1.0, better="less")
            },
            fields={
                "latent": FieldScore(
                    space="log",
                    pooled=spread,
                    strata=dict.fromkeys(STRATA, spread),
                    reference_spread=None if reference is None else 2.2,
                    between=1.0,
                    within=0.5,
                    finite=1.0,
                    dimensions=8,
                )
            },
            artifacts=tuple(
                Artifact(name=name, sha256=sha256(data), size_bytes=len(data))
                for name, data in pictures.items()
            ),
            unjudged=() if request.update else ("ratio",),
            verdict="passed",
        )


@dataclass(frozen=True)
class Made:
    """A trained run, and what it is asked."""

    store: ObjectStore
    experiment: str
    run: str
    suite: Suite
    roster: Roster


def backlog(store: ObjectStore, *, updates: int = 40, experiment: str = "digits") -> Made:
    """A run that has trained to its end, with a checkpoint every 10 updates; nothing is asked of it yet."""
    maker = make_trained(QcMaker(store, experiment=experiment, updates=updates))
    return Made(store, experiment, maker.run, maker.suite, maker.roster)


def worker(
    made: Made,
    name: str = "qc-1",
    *,
    store: ObjectStore | None = None,
    examine: Examine | None = None,
    tries: int = 3,
    deadline_s: float = 600.0,
    clock: Callable[[], float] = lambda: AT,
) -> Worker:
    """A worker of this process."""
    return Worker(
        store or made.store,
        made.experiment,
        made.run,
        made.suite,
        Rules(tries=tries, deadline_s=deadline_s),
        worker=name,
        examine=examine or Examine(made.suite),
        clock=clock,
        sleep=lambda wait_s: None,
    )


def work(at: Worker, *, turns: int = 100) -> list[Turn]:
    """Take turns until there is nothing left to take."""
    done = []
    for _ in range(turns):
        done.append(at.turn())
        if done[-1].kind in ("nothing", "waiting", "paused"):
            return done
    raise AssertionError(f"still at it after {turns} turns: {done[-1]}")


def update_of(turn: Turn) -> int | None:
    """The update that a turn was about."""
    return None if turn.what is None else int(turn.what.removeprefix("update ").replace(",", ""))


# --- a process of its own -------------------------------------------------------------------------------------


def start(root: Path, name: str, **options: object) -> AbstractContextManager[Started]:
    """Start a worker on a store; it is ready once it has said so. Whatever becomes of it, it is gone at the end."""
    return workerprocess.start("qchooks", root, name, **options)


def eventually(true: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end, what
        pause.wait(0.005)


def at(root: Path, experiment: str = "digits") -> Made:
    """A run that was made before."""
    store = LocalStore(root)
    lock = newest_stored_lock(store, experiment)
    assert lock is not None
    assert lock.suite is not None
    examinations = Examinations(store, experiment)
    suite = examinations.suite(lock.suite)
    return Made(store, experiment, "main", suite, examinations.roster(suite.roster))


def main() -> None:
    """Work until nothing is left to take."""
    parse = argparse.ArgumentParser()
    parse.add_argument("root", type=Path)
    parse.add_argument("name")
    parse.add_argument("--sleep-s", type=float, default=0.0)
    parse.add_argument("--salt", default="")
    parse.add_argument("--experiment", default="digits")
    parse.add_argument("--tries", type=int, default=3)
    parse.add_argument("--deadline-s", type=float, default=600.0)
    parse.add_argument("--gate", type=Path, help="each unit waits until this file is there")
    args = parse.parse_args()
    made = at(args.root, args.experiment)

    def wait(request: Request) -> None:
        if args.gate is not None:
            eventually(args.gate.exists, "the gate")

    examine = Examine(made.suite, salt=args.salt, sleep_s=args.sleep_s, before=wait)
    process = worker(
        made, args.name, examine=examine, tries=args.tries, deadline_s=args.deadline_s, clock=time.time
    )
    print("ready", flush=True)
    turn = process.turn()
    while turn.kind != "nothing":
        if turn.kind == "waiting":
            threading.Event().wait(0.01)
        else:
            print(turn.kind, update_of(turn), flush=True)
        if turn.kind in ("paused", "conflict"):
            return
        turn = process.turn()


if __name__ == "__main__":
    main()
