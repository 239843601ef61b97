"""A worker makes its first unit twice; no network beside the teacher makes rows; names of decode that change nothing.

covers FAULT-B02 FAULT-B03 FAULT-C03 FAULT-C04
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from makejob import NAME, GenJob

from raykit.errors import GateError
from raykit.records import Took
from raykit.shards.options import idle_words
from raykit.shards.units import Unit, unit_id
from raykit.store import layout
from raykit.store.attempts import read_sealed
from raykit.store.generation import Shards
from raykit.train.looking import VoidError
from raykit.work.again import MakeElsewhere
from raykit.work.gen_worker import Rules, UnitWorker
from raykit.work.generated import Made, Make

ROWS = """
    def generate(self, model, inputs, rng, scale=1.0):
        return pa.table({"x": rng.normal() * np.float32(scale)})
"""

HASHES = """
    def generate(self, model, inputs, rng):
        words = ["ab" if row % 2 else str(row) for row in inputs.column("row").to_pylist()]
        return pa.table({"x": np.float32([1.0 if row % 4 else hash(w) % 1000 for row, w in enumerate(words)])})
"""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    exact, path = torch.are_deterministic_algorithms_enabled(), list(sys.path)
    filled = torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(exact)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    sys.modules.pop("recipe", None)
    sys.path[:] = path


@dataclass
class Again:
    """Stands for another process."""

    make: Make
    asked: list[int] = field(default_factory=list)
    starts: Callable[[], None] = lambda: None

    def __call__(self, unit: Unit) -> Made:
        self.asked.append(unit.number)
        self.starts()
        return self.make(unit)


def worker(job: GenJob, again: Any, **differs: Any) -> UnitWorker:
    contract = job.contract.model_copy(update=differs)
    return UnitWorker(
        job.store,
        contract,
        Rules(tries=3, deadline_s=600.0, canary_units=2),
        worker="gen-1",
        make=job.producer(**differs),
        again=cast(MakeElsewhere, again),
    )


def test_the_first_unit_of_a_worker_is_made_twice_and_a_record_says_so(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=40, unit_rows=10)
    again = Again(job.producer())
    hands: list[str] = []
    at = worker(job, again)
    real = at._asks_elsewhere
    at._asks_elsewhere = lambda: (real(), hands.append(at.hand.what if at.hand else ""))[0]  # type: ignore[method-assign]
    assert [at.turn().kind for _ in range(2)] == ["published", "published"]
    (unit,) = again.asked
    assert hands == [f"unit {unit}, once more in another process"]
    assert at.tally["again"] == 1
    shards = Shards(job.store, job.contract)
    receipt = shards.receipt(unit)
    assert receipt is not None
    key = layout.generation_attempt(NAME, job.contract.name, job.contract.digest, "took", unit, 1)
    took = read_sealed(job.store.get(key), Took, key)
    assert (took.receipt, took.worker) == (receipt.digest, "gen-1")
    assert took.request == unit_id(job.contract.digest, unit)
    assert {claim.n: claim.deadline_s for claim in shards.claims() if claim.request == took.request} == {
        1: 1380.0
    }


def test_what_is_not_exact_is_made_once(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=40, unit_rows=10)
    again = Again(job.producer())
    at = worker(job, again, exact=False, facts={})
    assert at.turn().kind == "published" and again.asked == []


def test_rows_that_depend_on_the_process_are_named_and_never_published(tmp_path: Path) -> None:
    job = GenJob(tmp_path, HASHES, rows=40, unit_rows=10)
    (tmp_path / "away").mkdir()
    again = MakeElsewhere(job.store.url, job.contract, job.key, tmp_path / "away" / "code")
    turn = worker(job, again).turn()
    assert turn.kind == "failed" and turn.failed == "recipe"
    wrong = re.search(
        r"unit (\d) of s, made by two processes, differs in rows (\d+), (\d+), (\d+)", turn.detail or ""
    )
    assert wrong is not None, turn.detail
    unit, *rows = map(int, wrong.groups())
    assert rows == [10 * unit, 10 * unit + 4, 10 * unit + 8]
    assert Shards(job.store, job.contract).published().size == 0


def test_a_clean_unit_is_the_same_in_another_process(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=40, unit_rows=10)
    (tmp_path / "away").mkdir()
    made = MakeElsewhere(job.store.url, job.contract, job.key, tmp_path / "away" / "code")(
        Unit(number=3, first=30, rows=10)
    )
    assert made.data == job.make(3).data and made.receipt == job.make(3).receipt
    assert list((tmp_path / "away").iterdir()) == [], "nothing is left behind"


EMA = """
    def model(self, params):
        import copy
        model = nn.Linear(4, 1)
        self.ema = copy.deepcopy(model)
        return model

    def generate(self, model, inputs, rng):
        with torch.no_grad():
            return pa.table({"x": self.ema(torch.from_numpy(rng.normal(4)))[:, 0].numpy()})
"""


def test_a_set_is_drawn_from_no_network_that_no_checkpoint_holds(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="a network that no checkpoint holds") as raised:
        GenJob(tmp_path, EMA, rows=40, unit_rows=10)
    assert raised.value.field == "recipe.ema"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("model.weight.data.add_(1)", "writes to weight past its version counter"),
        ("model.weight.requires_grad_(False)", "freezes weight"),
        ("torch.set_default_dtype(torch.float64)", "sets the default dtype"),
    ],
)
def test_generate_changes_nothing_of_the_teacher(act: str, said: str, tmp_path: Path) -> None:
    changes = ROWS.replace("        return pa", f"        {act}\n        return pa")
    with pytest.raises(VoidError, match=said) as raised:
        GenJob(tmp_path, changes, rows=40, unit_rows=10)
    assert raised.value.field == "recipe.generate" and torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("method", ["keep", "picture"])
def test_what_judges_rows_changes_nothing_either(method: str, tmp_path: Path) -> None:
    code = (
        ROWS
        + f"""
    def model(self, params):
        self.net = nn.Linear(4, 1)
        return self.net

    def {method}(self, table):
        self.net.train()
        return [None] * table.num_rows
"""
    )
    with pytest.raises(VoidError) as raised:
        GenJob(tmp_path, code, rows=40, unit_rows=10)
    assert raised.value.field == f"recipe.{method}"


SWALLOWS = """
    def generate(self, model, inputs, rng, scale=1.0, shift=0.0, **more):
        return pa.table({"x": rng.normal() * np.float32(scale) + np.float32(shift * 0)})
"""


def test_a_name_of_decode_that_changes_no_byte_is_said(tmp_path: Path) -> None:
    decode = {"scale": 2.0, "shift": 1.0, "temperatur": 0.7}
    options = {"louder": {**decode, "scale": 3.0}, "colder": {**decode, "temperature": 0.1}}
    job = GenJob(tmp_path, SWALLOWS, rows=40, unit_rows=10, decode=decode, options=options)
    idle = {each.name: each.idle for each in job.probe.measured}
    assert idle == {"decode": ("shift", "temperatur"), "louder": (), "colder": ("temperature",)}
    lines = idle_words([cast(Any, each) for each in job.probe.measured])
    assert lines == [
        "decode: shift, temperatur change no byte of the first rows",
        "colder: temperature changes no byte of the first rows",
    ]


def test_the_default_of_a_name_is_nothing_to_say(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=40, unit_rows=10, decode={"scale": 1.0})
    assert [each.idle for each in job.probe.measured] == [()]
