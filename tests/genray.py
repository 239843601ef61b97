"""Synthetic sets made by real workers on a local Ray, by a recipe that does what the test says.

root = trained(folder, nursery)                 # a run with an approved checkpoint, and the plan beside it
behave(root, fail_from=12)                      # from now on, in every producer that starts
launch(root)                                    # `raykit generate` as a process of its own

Beside the root lies a file of rules, which the recipe reads: how long a unit takes, which ones raise, which one hangs.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gentoys import Toys, rules_of
from makegen import ToyMake, contract_at, toy_set
from makeset import SetMaker
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job
from qcray import FakeDoor
from raylaunch import Launching, raykit

from raykit.budget import acts
from raykit.fleet.generate.desk import Means
from raykit.fleet.generate.outcome import Making
from raykit.fleet.generate.pool import End, SetPool
from raykit.fleet.generate.task import Terms
from raykit.fleet.pool.lease import PoolDoor, Price
from raykit.fleet.pool.settings import PoolSettings
from raykit.fleet.session import start_local
from raykit.ids import sha256
from raykit.read.bases import resolve_base
from raykit.read.candidates import registration
from raykit.read.qc import read_qc
from raykit.records import (
    CandidateApproved,
    Claim,
    Failure,
    GenerationContract,
    Line,
    Planned,
    Reserved,
    Reviewed,
    Settled,
)
from raykit.shards.closing import close
from raykit.shards.units import unit_id, unit_of, units_of
from raykit.store import open_store
from raykit.store.accounts import Identity, join_account
from raykit.store.base import ObjectStore
from raykit.store.candidates import act, register
from raykit.store.generation import Shards, read_contract
from raykit.store.ledger import Ledger
from raykit.store.parquet import read_parquet
from raykit.store.people import read_acts, say
from raykit.store.place import gone
from raykit.store.qc import Examinations
from raykit.work.puller import ENDS

EXPERIMENT, SET = "tiny", "points"
CANDIDATE = "tiny-teacher"

RECIPE = """
import json
import os
from pathlib import Path

import pyarrow as pa


class Variant(Tiny):
    def generate(self, model, inputs, rng, temperature=1.0):
        rows = inputs["row"].to_numpy()
        self.behave(int(rows[0]))
        noise = torch.from_numpy(rng.normal(4)) * temperature
        if "at" in inputs.column_names:
            noise = noise + torch.tensor(inputs["at"].to_pylist()).unsqueeze(1)
        return pa.table({"point": pa.array(model(noise).tolist(), pa.list_(pa.float32()))})

    def behave(self, row):
        path = os.environ.get("GEN_RULES", "")
        rules = json.loads(Path(path).read_text()) if os.path.exists(path) else {}
        time.sleep(rules.get("sleep_s", 0.0))
        if row >= rules.get("fail_from", 1 << 60) or row in rules.get("fail_at", ()):
            raise RuntimeError("the decoder has a defect")
        if random.SystemRandom().random() < rules.get("flaky", 0.0) and row >= rules.get("flaky_from", 0):
            raise OSError("once in a while")
        while row == rules.get("hang_at"):
            time.sleep(0.1)
"""

PLAN = """
[qc]
owner      = "ada"
every      = 20
roster     = { stratum = "third", units = 1 }
fail       = { ratio = "> 1000" }
on_failure = "continue"
shares     = "this test has no other machine"

[generate.points]
rows      = 60
unit_rows = 2
decode    = { temperature = 0.5 }
bounds    = { failed = 0.0, nonfinite = 0.0 }
"""


# --- a run with an approved checkpoint ----------------------------------------------------------------------------


def trained(folder: Path, nursery: Nursery) -> Path:
    """The root of a run that has trained, and whose last checkpoint is examined, reviewed and approved. Beside it lies
    its plan: see `plan_of`."""
    plan = write_job(folder / "job", {"updates": "20"}, variant=RECIPE)
    plan.write_text(plan.read_text() + PLAN)
    root = folder / "store"
    ends = Launches(nursery, task := freeze_job(root, plan)).run()
    assert {code for code, _ in ends} == {0}, ends
    subprocess.run([sys.executable, __file__, "examine", str(root)], check=True)
    store, commit = open_store(str(root)), state_of(task).commits[-1]
    read = read_qc(store, EXPERIMENT, now=time.time())
    assert read is not None
    receipts = tuple(each.receipt.digest for each in read.backlog.standings if each.receipt)
    said = Reviewed(receipts=receipts, verdict="passed", note="looked at the sheet", person="mira")
    say(store, EXPERIMENT, said, person="mira", at=time.time())
    base = resolve_base(store, f"{EXPERIMENT}@{commit.update}")
    event = registration(
        store, base, name=CANDIDATE, role="production-candidate", surfaces=(), person="mira", corrects=False
    )
    register(store, event, at=time.time())
    own = read.backlog.of(commit.sha256)
    assert own is not None and own.receipt is not None
    approve(store, commit.sha256, [own.receipt.digest])
    return root


def approve(store: ObjectStore, manifest: str, receipts: Sequence[str], **traits: Any) -> None:
    """A person lets the checkpoint make rows."""
    event = CandidateApproved(
        **{
            "candidate": CANDIDATE,
            "manifest": manifest,
            "use": "generation",
            "receipts": tuple(receipts),
            "reason": "its rows are wanted",
            "person": "mira",
            **traits,
        }
    )
    act(store, lambda registry: event, by="mira", at=time.time())


def examine(root: str) -> None:
    """Examine every checkpoint that has to be, in this process."""
    from raykit.work.qc_unit import Bench
    from raykit.work.qc_worker import Rules, Worker

    store = open_store(root)
    read = read_qc(store, EXPERIMENT, now=time.time())
    assert read is not None
    folder = Path(f"{root}.code")
    folder.mkdir(mode=0o700)
    roster = Examinations(store, EXPERIMENT).roster(read.suite.roster)
    bench = Bench(store, EXPERIMENT, read.suite, roster, folder)
    rules = Rules(tries=3, deadline_s=600.0)
    worker = Worker(store, EXPERIMENT, "main", read.suite, rules, worker="qc-test-1", examine=bench)
    while (turn := worker.turn()).kind not in ENDS:
        assert turn.kind == "published", turn


def plan_of(root: Path) -> Path:
    """The plan of the run at a root."""
    return root.parent / "job" / "plan.toml"


def edit(root: Path, **keys: str) -> None:
    """Say something else in the plan's set: `edit(root, rows="40")`."""
    text = plan_of(root).read_text()
    for key, value in keys.items():
        line = re.compile(rf"(?m)^{key} *=.*$")
        before, head, table = text.partition("[generate.points]\n")
        table = line.sub(f"{key} = {value}", table) if line.search(table) else f"{key} = {value}\n{table}"
        text = before + head + table
    plan_of(root).write_text(text)


def behave(root: Path, **rules: Any) -> None:
    """Say what the recipe does from now on: `sleep_s=0.2`, `fail_from=40`, `hang_at=20`."""
    path = rules_of(root)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(rules))
    new.replace(path)


# --- launches --------------------------------------------------------------------------------------------------------


def launch(root: Path, *more: str, environment: Mapping[str, str] | None = None) -> Launching:
    """Start `raykit generate`."""
    told = {"GEN_RULES": str(rules_of(root)), **(environment or {})}
    return raykit("generate", str(plan_of(root)), *more, root=root, environment=told)


# --- what is there ---------------------------------------------------------------------------------------------------


def contract_of(root: Path, name: str = SET) -> GenerationContract | None:
    """The newest contract of a set."""
    store = open_store(str(root))
    known = read_acts(store, EXPERIMENT).contracted.get(name)
    return None if not known else read_contract(store, EXPERIMENT, name, known[-1].contract)


def shards_of(root: Path, name: str = SET) -> Shards:
    contract = contract_of(root, name)
    assert contract is not None
    return Shards(open_store(str(root)), contract, threads=1)


def published(root: Path, name: str = SET) -> list[int]:
    """The units that are published; none as long as there is no contract."""
    contract = contract_of(root, name)
    return [] if contract is None else shards_of(root, name).published().tolist()


def manifest_bytes(root: Path, name: str = SET) -> bytes:
    manifest = shards_of(root, name).manifest()
    assert manifest is not None
    return manifest.to_bytes()


def in_hand(root: Path, name: str = SET) -> list[Claim]:
    """The newest claims of units without a receipt."""
    if contract_of(root, name) is None:
        return []
    listing = shards_of(root, name).listing()
    return [
        claims[-1]
        for unit, claims in listing.claims.items()
        if not any(failure.n == claims[-1].n for failure in listing.failures.get(unit, ()))
    ]


def failures(root: Path, name: str = SET) -> dict[int, tuple[Failure, ...]]:
    return dict(shards_of(root, name).listing().failures)


def listing(root: Path) -> dict[str, int]:
    """Every object of the store, with its size."""
    return {each.key: each.size_bytes for each in open_store(str(root)).list("")}


def bytes_of(root: Path) -> dict[str, bytes]:
    """Every object of the store, but for what is derived."""
    store = open_store(str(root))
    kept = (
        each.key for each in store.list("") if not each.key.endswith(("snapshot.jsonl", "published.parquet"))
    )
    return {key: store.get(key) for key in kept}


def rows_of(root: Path, name: str = SET) -> list[dict[str, Any]]:
    """Every row of a set, in the order of its units."""
    shards = shards_of(root, name)
    tables = [read_parquet(shards.data(receipt), "a unit") for receipt in shards.receipts()]
    return [row for table in tables for row in table.to_pylist()]


def leases(root: Path) -> tuple[set[str], dict[str, int]]:
    """(reserved, settled with their cost) on the line of generation."""
    ledger = Ledger(open_store(str(root)), EXPERIMENT, by="test")
    ledger.refresh()
    events = [event for entry in ledger.entries for event in entry.events]
    reserved = {event.lease for event in events if isinstance(event, Reserved) and event.line == "generate"}
    settled = {event.lease: event.cost for event in events if isinstance(event, Settled)}
    return reserved, {lease: cost for lease, cost in settled.items() if lease in reserved}


# --- pools without a plan ---------------------------------------------------------------------------------------------


FREE = Price()


@dataclass
class ToySet:
    """A set whose contract is frozen, and pools of real workers that make it with toy producers."""

    maker: SetMaker
    root: Path
    contract: GenerationContract
    door: FakeDoor = field(default_factory=lambda: FakeDoor(role="generate"))
    lines: list[str] = field(default_factory=list)
    made: list[Making] = field(default_factory=list)
    stopped: str | None = None
    """Say why a pool has to leave."""

    @property
    def shards(self) -> Shards:
        return Shards(open_store(str(self.root)), self.contract, threads=1)

    @property
    def published(self) -> list[int]:
        return self.shards.published().tolist()

    def pool(
        self,
        launch: str = "f00d",
        *,
        tries: int = 3,
        price: Price = FREE,
        door: PoolDoor | None = None,
        **settings: Any,
    ) -> SetPool:
        """A pool that has not begun."""
        contract = self.contract
        terms = Terms(contract=contract, teacher="", tries=tries, canary_units=2, maker=Toys(str(self.root)))
        told = PoolSettings(**{"slots": 2, "price": price, **settings})
        return SetPool(
            str(self.root),
            terms,
            Means(slots=told.slots, price=price, setup_ms=1000),
            told,
            run="main",
            launch=launch,
            door=door or self.door,
            folder=self.root.parent,
            afford=lambda canary, left_permille: None,
            say=self.lines.append,
        )

    def work(self, pool: SetPool) -> End:
        """Let a pool work until it comes to its end."""
        return pool.work(lambda: self.stopped, self.made.append)

    def closed(self) -> bytes:
        """What the set comes to."""
        return close(self.contract, self.shards.receipts(), scripted=False).to_bytes()

    def alive(self) -> list[Claim]:
        """The newest claims of units without a receipt, of processes that are there."""
        listing = self.shards.listing()
        found = [
            claims[-1]
            for unit, claims in listing.claims.items()
            if not any(failure.n == claims[-1].n for failure in listing.failures.get(unit, ()))
        ]
        return [claim for claim in found if gone(claim.place) is False]


def toys(folder: Path, *, canary: bool = True, **traits: Any) -> ToySet:
    """A set in a store of its own; see `makegen.toy_set`."""
    root = folder / "store"
    maker = toy_set(open_store(str(root)), canary=canary, **traits)
    return ToySet(maker, root, maker.generation_contract)


def beside(work: ToySet, name: str) -> ToySet:
    """Another set of the same experiment. Its canary is still to be made."""
    contract = work.maker.contract_of(name=name, seed=1)
    Shards(work.shards.store, contract).freeze()
    said = read_acts(work.shards.store, "digits").contracted[work.contract.name][-1]
    work.maker.tell(said.model_copy(update={"name": name, "contract": contract.digest}))
    return replace(work, contract=contract, door=FakeDoor(role="generate"), lines=[], made=[])


def claims_of(work: ToySet) -> dict[int, list[Claim]]:
    """Every claim there ever was, by unit."""
    units = {unit_id(work.shards.digest, unit): unit for unit in range(units_of(work.contract))}
    found: dict[int, list[Claim]] = {}
    for claim in work.shards.claims():
        found.setdefault(units[claim.request], []).append(claim)
    return found


USD = 1_000_000
HOUR_USD = 3_600_000
"""A price at which a second of one worker costs a thousandth of a dollar."""


def open_line(work: ToySet, planned: int) -> Ledger:
    """A ledger in which so much is set aside for synthetic sets, and much is kept back."""
    who = Identity(
        experiment="digits", decision=sha256(b"decision"), lineage=None, parent=None, data=sha256(b"data")
    )
    ledger = join_account(work.shards.store, who, "digits", unit="usd", by="test", at=time.time())
    lines = (
        Line(line="train", purpose="target", planned=0),
        Line(line="generate", purpose="target", planned=planned),
        Line(line="recovery", purpose="recovery", planned=USD - planned),
    )
    event = Planned(
        experiment="digits",
        plan=sha256(b"plan"),
        decision=sha256(b"decision"),
        ceiling=USD,
        lines=lines,
        rates={"generate": HOUR_USD},
        margin_permille=1000,
        expected=0,
        expected_ms=0,
    )
    ledger.decide(lambda book: [event], at=time.time())
    return ledger


def move(ledger: Ledger, amount: int) -> None:
    """A person moves money to synthetic sets."""
    ledger.refresh()
    lines = acts.moved(ledger.book.allocations["digits"], [("recovery", "generate", amount)])
    ledger.decide(
        lambda book: acts.replan(book, "digits", lines, ceiling=USD, reason="worth it", person="mira"),
        at=time.time(),
    )


def undisturbed(work: ToySet) -> bytes:
    """What the same set comes to in one process that nobody disturbs."""
    with tempfile.TemporaryDirectory() as folder:
        contract, store = work.contract, open_store(str(Path(folder) / "store"))
        make, shards = ToyMake(contract), Shards(store, contract, threads=1)
        for number in range(units_of(contract)):
            made = make(unit_of(contract, number))
            shards.publish(made.receipt, made.data, n=1, worker="alone")
        return close(contract, shards.receipts(), scripted=False).to_bytes()


def remake(root: Path) -> bytes:
    """What a set comes to in one process with the real producer, under the very contract that is frozen: for `main`."""
    from raykit.work.gen_unit import Producer

    store, contract = open_store(str(root)), contract_of(root)
    assert contract is not None
    key = read_acts(store, EXPERIMENT).contracted[SET][-1].key
    with tempfile.TemporaryDirectory() as folder:
        code, own = Path(folder) / "code", open_store(str(Path(folder) / "store"))
        code.mkdir()
        make, shards = Producer(store, contract, key, code), Shards(own, contract, threads=1)
        for number in range(units_of(contract)):
            made = make(unit_of(contract, number))
            shards.publish(made.receipt, made.data, n=1, worker="alone")
        return close(contract, shards.receipts(), scripted=False).to_bytes()


def alone(root: Path) -> bytes:
    """The same in a process of its own: the producer fixes what bits depend on."""
    done = subprocess.run([sys.executable, __file__, "remake", str(root)], check=True, capture_output=True)
    return done.stdout


def finish(root: Path) -> None:
    """Make what is left of a set in this process, under the contract that it has."""
    from raykit.work.gen_unit import Producer
    from raykit.work.gen_worker import Rules, UnitWorker

    store, contract = open_store(str(root)), contract_of(root)
    assert contract is not None
    code = Path(f"{root}.code")
    code.mkdir(mode=0o700)
    make = Producer(store, contract, read_acts(store, EXPERIMENT).contracted[SET][-1].key, code)
    rules = Rules(tries=3, deadline_s=1.0, canary_units=2)
    tomorrow = time.time() + 86_400.0  # whatever was in hand is past its deadline
    worker = UnitWorker(store, contract, rules, worker="gen-test-1", make=make, clock=lambda: tomorrow)
    while (turn := worker.turn()).kind not in ENDS:
        assert turn.kind in ("published", "failed"), turn


def work_at(root: Path, slots: int) -> None:
    """Make the set at a root on a Ray of this process's own, and say what came of it."""
    maker = SetMaker(open_store(str(root)))
    work = ToySet(maker, root, contract_at(root))
    with start_local(cpus=slots + 2, resources={"generate": float(slots)}):
        end = work.work(work.pool(slots=slots))
    print(json.dumps({"waits": end.waits, "published": len(work.published), "lines": work.lines}))


if __name__ == "__main__":
    what, where = sys.argv[1:]
    match what:
        case "examine":
            examine(where)
        case "remake":
            sys.stdout.buffer.write(remake(Path(where)))
        case "finish":
            finish(Path(where))
        case "work":
            work_at(Path(where), 2)
