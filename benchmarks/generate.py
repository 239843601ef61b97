"""What raykit adds to making a synthetic set: two workers, units that only wait, and every one of them durable.

    python -m benchmarks.generate

The same units are made by a plain loop in two processes, which keeps nothing, and by Ray Data with a pool of two
actors. raykit and the loop are held against each other while both of their workers are up and have made one unit: from
one claim of a worker to its next, on the average, and of the slower worker. Ray Data tells nothing of when it began, so
that its figure is the whole job, the start of its actors included; beside it stands raykit's whole job, from its first
claim to its manifest. Then: how long 10,000 units that do nothing take, the status of 100,000 units, and what a million
planned ones cost.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.figures import Figure, main
from raykit.records import Column, GenerationContract, Rows, UnitReceipt
from raykit.shards.contract import Probed
from raykit.shards.units import Unit, unit_of, units_of
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.generation import Shards
from raykit.store.local import LocalStore
from raykit.store.log import seal
from raykit.store.parquet import parquet_bytes
from raykit.work.generated import Made, Make

DIGITS = Path(__file__).parents[1] / "jobs" / "digits"
WORKERS = 2
UNIT_ROWS = 10
ROUNDS = 3
SLOW, QUICK, NOTHING = (1.0, 30), (0.05, 400), (0.0, 10_000)
"""Seconds that a unit takes, and how many there are."""
MILLION = 1_000_000
STATUS_UNITS = 100_000


def measure() -> Iterator[Figure]:
    assert len(os.sched_getaffinity(0)) >= WORKERS
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        plan = _approved(Path(folder))
        for (unit_s, units), bar in ((SLOW, 1.02), (QUICK, 1.15)):
            yield from _against_a_loop(plan, unit_s, units, bar)
        nothing = [_raykit(plan, *NOTHING, round).whole_s for round in range(ROUNDS)]
        yield Figure(what="10,000 units that do nothing, all durable", unit="s", values=nothing, at_most=120)
        yield from _status(plan)
    yield from _planning()


def _against_a_loop(plan: Path, unit_s: float, units: int, bar: float) -> list[Figure]:
    ideal_s = unit_s * units / WORKERS
    loop, ours = [], []
    for round in range(ROUNDS):
        loop.append(_loop(unit_s, units))
        ours.append(_raykit(plan, unit_s, units, round))
    data = [_ray_data(unit_s, units) for _ in range(ROUNDS)]
    name = f"{unit_s * 1000:,.0f} ms units"
    return [
        Figure(what=f"{name}: a plain loop, a unit", unit="ms", values=[1000 * each for each in loop]),
        Figure(
            what=f"{name}: raykit / loop, both workers up",
            unit="x",
            values=[one.unit_s / other for one, other in zip(ours, loop, strict=True)],
            at_most=bar,
        ),
        Figure(
            what=f"{name}: raykit / ideal, first claim to manifest",
            unit="x",
            values=[each.whole_s / ideal_s for each in ours],
        ),
        Figure(
            what=f"{name}: Ray Data / ideal, the whole job, nothing kept",
            unit="x",
            values=[each / ideal_s for each in data],
        ),
    ]


# --- raykit -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waiting:
    """Makes what makes units that only wait."""

    unit_s: float

    @property
    def probed(self) -> Probed:
        return Probed(
            columns=(Column(name="row", type="int64"), Column(name="value", type="int64")),
            normalization={},
            facts={"producer": "waits"},
        )

    def __call__(self, store: ObjectStore, contract: GenerationContract, teacher: str, folder: Path) -> Make:
        return Waits(contract, self.unit_s)


class Waits:
    """Rows that are their own numbers, after a while."""

    def __init__(self, contract: GenerationContract, unit_s: float) -> None:
        self._contract, self._digest, self._unit_s = contract, contract.digest, unit_s

    def __call__(self, unit: Unit) -> Made:
        if self._unit_s:
            time.sleep(self._unit_s)
        numbers = pa.array(range(unit.first, unit.first + unit.rows), pa.int64())
        data = parquet_bytes(pa.table({"row": numbers, "value": numbers}))
        return Made(receipt=_receipt(self._digest, unit, data), data=data)


def _receipt(contract: str, unit: Unit, data: bytes) -> UnitReceipt:
    from raykit.ids import sha256

    return UnitReceipt(
        contract=contract,
        unit=unit.number,
        rows=Rows(requested=unit.rows, produced=unit.rows, filtered=0, failed=0),
        sha256=sha256(data),
        size_bytes=len(data),
    )


@dataclass(frozen=True)
class Took:
    """How long a set took, as its store tells it."""

    unit_s: float
    """Of the slower worker, once both have made one."""
    whole_s: float
    """From the first claim to the manifest."""


def _raykit(plan: Path, unit_s: float, units: int, round: int) -> Took:
    name = f"wait-{int(unit_s * 1000)}-{round}"
    _add_set(plan, name, units)
    _in_a_process("make", str(plan), name, str(unit_s))
    return _took(plan.parent / "store", name)


def make(plan: Path, name: str, unit_s: float) -> None:
    """One set, in a process of its own."""
    from raykit.fleet.generate.run import generate

    outcome = generate(
        plan,
        str(plan.parent / "store"),
        only=name,
        workers=WORKERS,
        maker=Waiting(unit_s),
        say=lambda line: print(f"  {line}", file=sys.stderr),
    )
    assert outcome.exit_code == 0, outcome.why


def _took(root: Path, name: str) -> Took:
    folder = root / "experiments" / "digits-vae" / "generation" / name
    (contract,) = (each for each in folder.iterdir() if each.name != "pictures")
    claims = [json.loads(path.read_bytes().splitlines()[0]) for path in (contract / "claims").rglob("*.json")]
    at = defaultdict(list)
    for claim in claims:
        at[claim["worker"]].append(claim["at"])
    both = max(sorted(each)[1] for each in at.values())
    closed = (contract / "manifest.json").stat().st_mtime
    return Took(
        unit_s=max(_spacing([each for each in own if each >= both]) for own in at.values()),
        whole_s=closed - min(min(own) for own in at.values()),
    )


def _spacing(claims: Sequence[float]) -> float:
    """Seconds from one claim of a worker to its next: a unit, and all that belongs to it."""
    return (max(claims) - min(claims)) / (len(claims) - 1)


# --- what it is held against --------------------------------------------------------------------------------


def _loop(unit_s: float, units: int) -> float:
    """Seconds of a unit of the plain loop."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(WORKERS) as pool:
        return max(pool.starmap(_wait, [(unit_s, units // WORKERS)] * WORKERS))


def _wait(unit_s: float, units: int) -> float:
    began = time.perf_counter()
    for _ in range(units):
        time.sleep(unit_s)
    return (time.perf_counter() - began) / units


def _ray_data(unit_s: float, units: int) -> float:
    return float(_in_a_process("data", str(unit_s), str(units)))


def data(unit_s: float, units: int) -> None:
    """The same with Ray Data, in a process of its own; prints the seconds."""
    import ray

    class Wait:
        def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
            time.sleep(unit_s)
            return batch

    ray.init(num_cpus=WORKERS + 1, include_dashboard=False, logging_level="error", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    began = time.perf_counter()
    rows = ray.data.range(units * UNIT_ROWS, override_num_blocks=units)
    made = rows.map_batches(Wait, batch_size=UNIT_ROWS, concurrency=WORKERS).materialize()
    assert made.count() == units * UNIT_ROWS
    print(time.perf_counter() - began)
    ray.shutdown()


# --- many units ---------------------------------------------------------------------------------------------


def _status(plan: Path) -> list[Figure]:
    root = plan.parent / "store"
    _add_set(plan, "many", STATUS_UNITS)
    _in_a_process("many", str(plan))
    command = [
        str(Path(sys.executable).with_name("raykit")), "generate", "status", "digits-vae/many", "--root", str(root)
    ]  # fmt: skip
    took = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        took.append(time.perf_counter() - began)
        assert f"{STATUS_UNITS:,}" in told, told
    return [Figure(what="status of 100,000 published units", unit="s", values=took[1:], at_most=2)]


def many(plan: Path) -> None:
    """A set with very many published units, written without asking the disk to keep them."""
    from raykit.fleet.site import site_of
    from raykit.read.teachers import teacher_of
    from raykit.records import Contracted
    from raykit.shards.contract import draft_of, make_contract
    from raykit.store.people import say
    from raykit.store.progress import read_progress, write_snapshot

    site = site_of(plan, str(plan.parent / "store"))
    teacher = teacher_of(site.store, site.plan, "many", time.time())
    code = "0" * 64
    drafted = draft_of(site.plan, "many", teacher=teacher.manifest, code=code, inputs=None)
    contract = make_contract(drafted, Waiting(0.0).probed)
    shards = Shards(site.store, contract)
    shards.freeze()
    event = Contracted(
        name="many",
        contract=contract.digest,
        candidate=teacher.candidate,
        update=teacher.update,
        key=teacher.key,
        scripted=True,
        person="benchmark",
    )
    say(site.store, site.name, event, person="benchmark", at=time.time())
    waits, root = Waits(contract, 0.0), plan.parent / "store"
    for number in range(units_of(contract)):
        made = waits(unit_of(contract, number))
        for key, bytes_ in (
            (
                layout.generation_data(site.name, "many", contract.digest, number, made.receipt.sha256),
                made.data,
            ),
            (
                layout.generation_receipt(site.name, "many", contract.digest, number),
                seal(made.receipt.to_bytes()),
            ),
        ):
            path = root / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_)
    write_snapshot(shards, read_progress(shards))


def _planning() -> list[Figure]:
    told = [json.loads(_in_a_process("planned")) for _ in range(ROUNDS)]
    return [
        Figure(
            what="planning 1,000,000 units: a board, and the first free one of each of eight workers",
            unit="s",
            values=[each["s"] for each in told],
            at_most=10,
        ),
        Figure(
            what="planning 1,000,000 units: the whole process at its largest",
            unit="MB",
            values=[each["mb"] for each in told],
            at_most=1000,
        ),
    ]


def planned() -> None:
    """What a worker does before its first unit of a million; prints seconds and megabytes."""
    from raykit.shards.standing import Board, Heard, start_of

    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        began = time.perf_counter()
        contract = _contract(MILLION)
        shards = Shards(LocalStore(Path(folder)), contract)
        shards.freeze()
        listing = shards.listing()
        for worker in map(str, range(8)):
            board = Board(
                contract,
                listing.published,
                {},
                tries=3,
                canary_units=2,
                heard=Heard(canary_passed=True),
                now=time.time(),
            )
            next(board.takable(start_of(worker, 1, MILLION), name=worker))
        took_s = time.perf_counter() - began
    print(json.dumps({"s": took_s, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}))


def _contract(units: int) -> GenerationContract:
    return GenerationContract(
        experiment="digits-vae",
        name="million",
        teacher="1" * 64,
        recipe="recipe:DigitsVae",
        params={},
        code="2" * 64,
        decode={},
        seed=0,
        revision=1,
        dtype="float32",
        autocast="none",
        deterministic=True,
        threads=1,
        batch_rows=UNIT_ROWS,
        samples=1,
        rows=units * UNIT_ROWS,
        unit_rows=UNIT_ROWS,
        columns=Waiting(0.0).probed.columns,
        bounds={"failed": 0.0},
    )


# --- what there is before -----------------------------------------------------------------------------------


def _approved(folder: Path) -> Path:
    """A plan whose run is trained, examined, and approved for generation by a script."""
    (folder / "recipe.py").write_bytes((DIGITS / "recipe.py").read_bytes())
    plan = folder / "plan.toml"
    text = (DIGITS / "plan.toml").read_text()
    start, end = text.index("[generate.digits]"), text.index("[budget]")
    plan.write_text((text[:start] + text[end:]).replace("updates          = 2000", "updates          = 200"))
    _add_set(plan, "first", 2)
    scripted = ["--by", "benchmark", "--scripted"]
    for command in (
        ["launch", str(plan)],
        ["qc", "review", "digits-vae", "--note", "not looked at", *scripted],
        ["candidates", "register", "best", "digits-vae", "--role", "production-candidate", "--by", "benchmark"],
        ["candidates", "approve", "best", "--use", "generation", "--reason", "to measure", *scripted],
    ):  # fmt: skip
        raykit = str(Path(sys.executable).with_name("raykit"))
        subprocess.run([raykit, *command, "--root", str(folder / "store")], check=True, stdout=sys.stderr)
    return plan


def _add_set(plan: Path, name: str, units: int) -> None:
    """One more set of the plan: of another seed, since equal sets would be one."""
    seed = plan.read_text().count("[generate.")
    table = (
        f"[generate.{name}]\nrows = {units * UNIT_ROWS}\nunit_rows = {UNIT_ROWS}\nseed = {seed}\n"
        "bounds = { failed = 0.0 }\ndecode = { temperature = 1.0 }\n\n"
    )
    plan.write_text(plan.read_text().replace("[budget]", table + "[budget]"))


def _in_a_process(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks.generate", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    return done.stdout.strip().rpartition("\n")[2]


PARTS: Mapping[str, Callable[..., None]] = {
    "make": lambda plan, name, unit_s: make(Path(plan), name, float(unit_s)),
    "data": lambda unit_s, units: data(float(unit_s), int(units)),
    "many": lambda plan: many(Path(plan)),
    "planned": planned,
}

if __name__ == "__main__":
    if sys.argv[1:]:
        PARTS[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main(measure))
