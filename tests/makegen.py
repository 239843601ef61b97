"""A toy producer without torch that can misbehave, and workers of real processes that make a set with it.

    maker = toy_set(store, rows_asked=400, unit_rows=4)      # a frozen contract; its canary counts as passed
    drive(maker, 2)                                          # two workers, in this process, until nothing is left
    with start(root, "w1", sleep_s=0.1) as started:          # one in a process of its own
        started.kill()

`make_teacher(store)` is the checkpoint of an examined run that a person has registered and approved for generation.
What a worker's process does is said in words: `start(root, name, fail_from=7, flaky=0.3, seed=1, ...)`, see `ToyMake`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import workerprocess
from makeqc import QcMaker, make_examined
from makeset import SetMaker, make_set
from workerprocess import Started

from raykit.data.inputs import cut_inputs
from raykit.errors import GateError
from raykit.ids import sha256
from raykit.records import (
    CandidateApproved,
    GenerationContract,
    Registered,
    Rows,
    SetManifest,
    Surface,
    UnitReceipt,
)
from raykit.shards.bounds import require_unit
from raykit.shards.closing import close
from raykit.shards.units import Unit
from raykit.store.base import ObjectStore
from raykit.store.candidates import act, register
from raykit.store.contents import contents_of, own_columns
from raykit.store.generation import Shards, read_contract
from raykit.store.inputs import freeze_inputs
from raykit.store.local import LocalStore
from raykit.store.parquet import parquet_bytes
from raykit.store.people import read_acts
from raykit.work.gen_worker import Rules, UnitWorker
from raykit.work.generated import Made
from raykit.work.puller import ENDS, Turn

AT = 1_800_100_000.0
"""After everything that a made run says of itself."""

WAIT_S = 0.01


# --- what is there before ---------------------------------------------------------------------------------------


def make_teacher(
    store: ObjectStore, *, name: str = "digits-best", scripted: bool = False, **traits: Any
) -> QcMaker:
    """An examined run whose last checkpoint a person has named and approved for generation."""
    maker = make_examined(store, **traits)
    commit = maker.commit_at(maker.updates)
    said = Registered(
        candidate=name,
        role="production-candidate",
        origin="run",
        manifest=commit.sha256,
        key=commit.key,
        experiment=maker.experiment,
        update=commit.update,
        surfaces=(Surface(name="development.ratio", may_select=True),),
        person="mira",
    )
    register(store, said, at=AT)
    receipt = maker.examinations.receipt(maker.request(maker.updates).id)
    assert receipt is not None
    approve(store, said, scripted=scripted, receipts=(receipt.digest,))
    return maker


def approve(store: ObjectStore, said: Registered, *, receipts: Sequence[str], scripted: bool = False) -> None:
    """A person lets a candidate make synthetic rows."""
    event = CandidateApproved(
        candidate=said.candidate,
        manifest=said.manifest,
        use="generation",
        receipts=tuple(receipts),
        reason="looked at its panels",
        person="mira",
        scripted=scripted,
    )
    act(store, lambda registry: event, by="mira", at=AT)


def toy_set(store: ObjectStore, *, canary: bool = True, texts: int | None = None, **traits: Any) -> SetMaker:
    """A trained run with a set whose contract is frozen, and whose canary has passed, if not said otherwise.

    `traits` are attributes of the maker: `rows_asked`, `unit_rows`, `samples`, `bounds`, `exact`. With `texts`, its
    rows are made from so many inputs.
    """
    maker = make_set(store, contract=False, **traits, **({} if texts is None else {"inputs": "texts"}))
    differs: dict[str, Any] = {}
    if texts is not None:
        table = pa.table({"id": [f"input-{n}" for n in range(texts)], "text": ["word"] * texts})
        cut = cut_inputs(table, "texts.jsonl", input_bytes=1000, at="inputs")
        freeze_inputs(store, maker.experiment, cut.manifest, cut.chunks)
        differs["inputs"] = cut.manifest.digest
    maker.contract_now(**differs)
    if canary:
        maker.canary()
    return maker


def contract_at(root: Path, name: str = "digits", experiment: str = "digits") -> GenerationContract:
    """The newest contract of a set that was made before."""
    store = LocalStore(root)
    digest = read_acts(store, experiment).contracted[name][-1].contract
    return read_contract(store, experiment, name, digest)


# --- the producer -------------------------------------------------------------------------------------------------


class Flaky(Exception):
    """What fails now and then."""


class Defect(Exception):
    """What fails whoever tries."""


@dataclass
class ToyMake:
    """Makes rows of numbers that depend on the contract and the row alone. All else is how it misbehaves."""

    contract: GenerationContract
    sleep_s: float = 0.0
    spin_s: float = 0.0
    """So long it computes, instead of waiting."""
    fail_from: int | None = None
    """Units from here on raise."""
    fail_at: tuple[int, ...] = ()
    nonfinite_from: int | None = None
    """From this unit on the rows are NaN: they fail, and the contract's bound says that the unit does."""
    flaky: float = 0.0
    """With this probability an attempt raises: which ones is drawn from `seed`."""
    seed: int = 0
    hang_at: int | None = None
    poison_rows: tuple[int, ...] = ()
    """Rows that cannot be made; their units are, without them."""
    filtered_rows: tuple[int, ...] = ()
    salt: str = ""
    """Other words, other rows: what a machine makes that differs."""
    gate: Path | None = None
    """Each unit waits until this file is there."""
    before: Callable[[Unit], None] = lambda unit: None
    seen: list[int] = field(default_factory=list)
    """The units that it was asked for, in order."""

    def __post_init__(self) -> None:
        self._draws = random.Random(self.seed)
        self._digest = self.contract.digest

    def __call__(self, unit: Unit) -> Made:
        self.seen.append(unit.number)
        self.before(unit)
        time.sleep(self.sleep_s)
        spin_until_s = time.perf_counter() + self.spin_s
        while time.perf_counter() < spin_until_s:
            pass
        if self.gate is not None:
            eventually(self.gate.exists, "the gate")
        while unit.number == self.hang_at:
            time.sleep(1)
        if self.flaky and self._draws.random() < self.flaky:
            raise Flaky(f"once in a while, and now at unit {unit.number}")
        if unit.number in self.fail_at or (self.fail_from is not None and unit.number >= self.fail_from):
            raise Defect(f"unit {unit.number} cannot be made")
        return self._made(unit)

    def _made(self, unit: Unit) -> Made:
        rows = range(unit.first, unit.first + unit.rows)
        bad = self.nonfinite_from is not None and unit.number >= self.nonfinite_from
        failed = {row: "nonfinite" if bad else "ValueError" for row in rows if bad or row in self.poison_rows}
        filtered = [row for row in rows if row in self.filtered_rows and row not in failed]
        kept = [row for row in rows if row not in failed and row not in filtered]
        table = rows_of(self.contract, kept, salt=self.salt)
        data = parquet_bytes(table)
        contents = contents_of(own_columns(table))
        receipt = UnitReceipt(
            contract=self._digest,
            unit=unit.number,
            rows=Rows(requested=unit.rows, produced=len(kept), filtered=len(filtered), failed=len(failed)),
            filtered={"blank": len(filtered)} if filtered else {},
            failed=dict(Counter(failed.values())),
            failed_rows=tuple(sorted(failed))[:100],
            counts={"duplicates": 0},
            contents=base64.b64encode(contents).decode(),
            sha256=sha256(data),
            size_bytes=len(data),
        )
        require_unit(self.contract.bounds, receipt.rows, receipt.failed, receipt.counts)
        if not kept and not filtered:
            raise GateError("no row came of it", field="recipe.generate")
        return Made(receipt=receipt, data=data, peak_bytes=1000)


def rows_of(contract: GenerationContract, rows: Sequence[int], *, salt: str = "") -> pa.Table:
    """Rows with the columns of a made contract: what each holds depends on its number and the salt alone."""
    places = [row // contract.samples for row in rows]
    own: dict[str, list[Any]] = {"row": list(rows)}
    if contract.inputs is not None:
        own |= {
            "id": [f"input-{place}" for place in places],
            "sample": [row % contract.samples for row in rows],
        }
    images = [list(sha256(f"{salt} {row}".encode())[:16].encode()) for row in rows]
    types = {"row": pa.int64(), "id": pa.string(), "sample": pa.int32()}
    arrays = [pa.array(values, types[name]) for name, values in own.items()]
    arrays += [pa.array(images, pa.list_(pa.float32())), pa.array([row % 10 for row in rows], pa.int64())]
    return pa.table(arrays, names=[*own, "image", "label"])


# --- workers --------------------------------------------------------------------------------------------------------


def worker(
    maker: SetMaker,
    name: str = "gen-1",
    *,
    store: ObjectStore | None = None,
    make: ToyMake | None = None,
    tries: int = 3,
    deadline_s: float = 600.0,
    clock: Callable[[], float] = lambda: AT,
) -> UnitWorker:
    """A worker of this process."""
    contract = maker.generation_contract
    return UnitWorker(
        store or maker.store,
        contract,
        Rules(tries=tries, deadline_s=deadline_s, canary_units=2),
        worker=name,
        make=make or ToyMake(contract),
        clock=clock,
        sleep=lambda wait_s: None,
    )


def work(at: UnitWorker, *, turns: int = 10_000) -> list[Turn]:
    """Take turns until there is nothing left to take."""
    done = []
    for _ in range(turns):
        done.append(at.turn())
        if done[-1].kind in ENDS:
            return done
    raise AssertionError(f"still at it after {turns} turns: {done[-1]}")


def drive(maker: SetMaker, workers: int = 1, **how: Any) -> list[list[Turn]]:
    """Let workers of this process take turns, one after the other, until all of them find nothing any more."""
    crew = [worker(maker, f"gen-{n}", **how) for n in range(workers)]
    told: list[list[Turn]] = [[] for _ in crew]
    while True:
        for each, turns in zip(crew, told, strict=True):
            turns.append(each.turn())
        if all(turns[-1].kind in ENDS for turns in told):
            return told


def manifest_of(store: ObjectStore, contract: GenerationContract) -> SetManifest:
    """What the set comes to, once every unit has its receipt."""
    return close(contract, Shards(store, contract, threads=1).receipts(), scripted=False)


def eventually(true: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while not true():
        assert time.monotonic() < end, what
        pause.wait(0.005)


# --- a process of its own ---------------------------------------------------------------------------------------------


def start(root: Path, name: str, **options: object) -> AbstractContextManager[Started]:
    """Start a worker on a store; it is ready once it has said so. Whatever becomes of it, it is gone at the end.

    It prints `published 7` and the like for every turn, and ends once the set is complete, once everyone has to stop,
    or, with `spends`, after a failure that another process has to confirm.
    """
    return workerprocess.start("makegen", root, name, **options)


def run_processes(root: Path, workers: int, **options: object) -> list[list[str]]:
    """Let worker processes make a set until nothing is left that they could; what each has said."""
    gate = root.parent / f"{root.name}.start"
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(start(root, f"w{n}", go=gate, seed=n, **options)) for n in range(workers)
        ]
        gate.touch()
        return [each.rest() for each in started]


def main() -> None:
    """Work until nothing is left to take."""
    parse = argparse.ArgumentParser()
    parse.add_argument("root", type=Path)
    parse.add_argument("name")
    parse.add_argument("--tries", type=int, default=3)
    parse.add_argument("--deadline-s", type=float, default=600.0)
    parse.add_argument("--go", type=Path, help="it begins once this file is there")
    parse.add_argument(
        "--spends", type=int, default=0, help="it ends after a failure that others have to confirm"
    )
    parse.add_argument("--quiet", type=int, default=0)
    for name, kind in (("sleep_s", float), ("spin_s", float), ("flaky", float), ("seed", int), ("salt", str)):
        parse.add_argument(f"--{name.replace('_', '-')}", type=kind, default=kind())
    for name in ("fail_from", "nonfinite_from", "hang_at"):
        parse.add_argument(f"--{name.replace('_', '-')}", type=int)
    parse.add_argument("--gate", type=Path)
    args = parse.parse_args()
    contract = contract_at(args.root)
    known = {each.name for each in dataclasses.fields(ToyMake)}
    make = ToyMake(contract, **{name: value for name, value in vars(args).items() if name in known})
    rules = Rules(tries=args.tries, deadline_s=args.deadline_s, canary_units=2)
    process = UnitWorker(LocalStore(args.root), contract, rules, worker=args.name, make=make)
    print("ready", flush=True)
    if args.go is not None:
        eventually(args.go.exists, "the start")
    begin_s = time.monotonic()
    last = _until_done(process, spends=args.spends, told=not args.quiet)
    print(f"ended {last.kind} {time.monotonic() - begin_s:.3f} {last.detail or ''}", flush=True)


def _until_done(process: UnitWorker, *, spends: bool, told: bool) -> Turn:
    idle = threading.Event()
    while True:
        turn = process.turn()
        if told and turn.what is not None:
            print(turn.kind, turn.what.removeprefix("unit ").replace(",", ""), flush=True)
        if turn.kind in ("paused", "conflict") or (spends and turn.spent):
            return turn
        if turn.kind == "nothing" and turn.detail is None:
            return turn
        if turn.kind in ENDS:
            board = process.board
            if board is not None and (board.defect is not None or not board.open_count):
                return turn
            idle.wait(WAIT_S)


if __name__ == "__main__":
    main()
