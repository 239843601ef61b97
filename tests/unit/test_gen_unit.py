"""Units of a synthetic set with a real recipe and real weights: every row accounted for, and the same bytes always.

covers GEN-04, GEN-05, GEN-06, GEN-09, GEN-10, DISP-01, F26
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from makejob import GenJob

from raykit.data.inputs import cut_inputs
from raykit.errors import CorruptError, GateError, PlanError
from raykit.shards.units import unit_of, units_of
from raykit.store.contents import contents_of
from raykit.store.parquet import read_parquet
from raykit.work.draws import Draws
from raykit.work.failing import cause_of, kind_of
from raykit.work.gen_rows import TRIES_ALONE
from raykit.work.gen_unit import MAX_REASONS, OTHERS
from raykit.work.generated import Made

DIGITS = Path(__file__).parents[2] / "jobs" / "digits"

ROWS = """
    def generate(self, model, inputs, rng, scale=1.0):
        drawn = rng.normal(3) * np.float32(scale) + model.weight[0, 0].item()
        return pa.table({"x": list(drawn), "token": pa.array([f"t{n}" for n in rng.integers(0, 99)])})
"""


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """What a producer fixes in its process goes with the test."""
    threads, exact = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled, path = torch.utils.deterministic.fill_uninitialized_memory, list(sys.path)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(exact)
    torch.utils.deterministic.fill_uninitialized_memory = filled
    sys.modules.pop("recipe", None)
    sys.path[:] = path


def table(made: Made) -> pa.Table:
    return read_parquet(made.data, "a unit")


def values(made: Made) -> dict[int, tuple[Any, ...]]:
    """By number of the row: what it holds."""
    read = table(made)
    columns = [read.column(name).to_pylist() for name in read.column_names if name != "row"]
    return dict(zip(read.column("row").to_pylist(), zip(*map(_plain, columns), strict=True), strict=True))


def _plain(column: list[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in column]


def all_rows(job: GenJob) -> dict[int, tuple[Any, ...]]:
    producer = job.producer()
    found: dict[int, tuple[Any, ...]] = {}
    for number in range(units_of(job.contract)):
        found |= values(producer(unit_of(job.contract, number)))
    return found


# --- the same rows ------------------------------------------------------------------------------------------


def test_a_row_does_not_depend_on_its_batch_or_unit(tmp_path: Path) -> None:
    # covers GEN-09
    sizes = [(40, 40), (40, 7), (10, 10), (8, 3), (1, 1)]
    found = [
        all_rows(GenJob(tmp_path / f"{u}-{b}", ROWS, rows=40, unit_rows=u, batch_rows=b)) for u, b in sizes
    ]
    assert set(found[0]) == set(range(40))
    assert len(set(found[0].values())) == 40
    for (unit_rows, batch_rows), rows in zip(sizes, found, strict=True):
        assert rows == found[0], (unit_rows, batch_rows)


def test_other_contracts_have_other_rows(tmp_path: Path) -> None:
    one = all_rows(GenJob(tmp_path / "a", ROWS, rows=8, unit_rows=8))
    for n, traits in enumerate([{"seed": 1}, {"decode": {"scale": 1.0}}, {"name": "other"}]):
        other = all_rows(GenJob(tmp_path / f"b{n}", ROWS, rows=8, unit_rows=8, **traits))
        assert not set(one.values()) & set(other.values()), traits


def test_the_same_unit_is_the_same_bytes_whatever_was_made_before(tmp_path: Path) -> None:
    # covers GEN-10, I8
    draws = """
    def generate(self, model, inputs, rng):
        import random
        model.train().eval()
        with torch.no_grad():
            x = model(torch.randn(len(rng), 4)) + random.random() + float(np.random.rand())
        return pa.table({"x": list(x.numpy())})
"""
    job = GenJob(tmp_path, draws, rows=30, unit_rows=10, batch_rows=4)
    first = job.producer()
    made = {n: first(unit_of(job.contract, n)) for n in (0, 1, 2)}
    torch.manual_seed(99)
    second = job.producer()
    for n in (2, 0, 1, 2):
        again = second(unit_of(job.contract, n))
        assert again.data == made[n].data
        assert again.receipt.to_bytes() == made[n].receipt.to_bytes()
    assert len({each.receipt.sha256 for each in made.values()}) == 3
    receipt = made[1].receipt
    assert (receipt.contract, receipt.unit) == (job.contract.digest, 1)
    assert (receipt.rows.requested, receipt.rows.produced) == (10, 10)


def test_a_file_carries_no_schema_of_its_own_and_the_columns_of_the_contract(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=4, unit_rows=4)
    made = job.make(0)
    assert b"ARROW" not in made.data
    assert [(c.name, c.type) for c in job.contract.columns] == [
        ("row", "int64"),
        ("x", "list<element: float>"),
        ("token", "string"),
    ]
    assert [(field.name, str(field.type)) for field in table(made).schema] == [
        (c.name, c.type) for c in job.contract.columns
    ]


# --- rows that cannot be made -------------------------------------------------------------------------------

POISON = """
    def generate(self, model, inputs, rng):
        type(self).asked = getattr(type(self), "asked", []) + [inputs["row"].to_pylist()]
        for row in inputs["row"].to_pylist():
            if row in POISONED:
                raise ValueError(f"row {row} cannot be made")
        return pa.table({"x": rng.normal()})
"""


def poisoned(*rows: int) -> str:
    return POISON.replace("POISONED", repr(rows))


def test_a_poison_row_costs_itself(tmp_path: Path) -> None:
    job = GenJob(tmp_path / "one", poisoned(17), rows=30, unit_rows=30, batch_rows=10)
    made = job.make(0)
    assert made.receipt.rows.plain() == {"requested": 30, "produced": 29, "filtered": 0, "failed": 1}
    assert made.receipt.failed == {"ValueError": 1}
    assert made.receipt.failed_rows == (17,)
    whole = values(GenJob(tmp_path / "none", poisoned(99), rows=30, unit_rows=30, batch_rows=10).make(0))
    streams = [Draws(job.keys(range(30))).normal()[n] for n in range(30)]
    assert [row[0] for row in values(made).values()] == [x for n, x in enumerate(streams) if n != 17]
    assert set(whole) - set(values(made)) == {17}


def test_a_unit_of_which_every_row_raises_raises_what_they_do(tmp_path: Path) -> None:
    signatures = set()
    for name in ("one", "two"):
        job = GenJob(tmp_path / name, poisoned(*range(10, 30)), rows=40, unit_rows=10, batch_rows=5)
        for unit in (1, 2):
            with pytest.raises(ValueError, match=f"row {unit}0 cannot be made") as raised:
                job.make(unit)
            assert kind_of(raised.value) == "recipe"
            signatures.add(cause_of(raised.value).signature)
        assert job.make(3).receipt.rows.produced == 10
    assert len(signatures) == 1, "in whichever process, and at whichever unit"


FLAKY = """
    def generate(self, model, inputs, rng):
        cls = type(self)
        cls.calls = getattr(cls, "calls", 0) + 1
        if cls.calls in RAISES:
            raise RuntimeError("the library has its moods")
        return pa.table({"x": rng.normal()})
"""


MOODY = """
    def generate(self, model, inputs, rng):
        import random
        cls = type(self)
        cls.draws = getattr(cls, "draws", None) or random.Random(SEED)
        cls.asked = getattr(cls, "asked", []) + inputs["row"].to_pylist()
        if 17 in inputs["row"].to_pylist():
            raise ValueError("row 17 cannot be made")
        if cls.draws.random() < 0.3:
            raise RuntimeError("the library has its moods")
        return pa.table({"x": rng.normal()})
"""


@pytest.mark.parametrize("batch_rows", [1, 2])
def test_a_recipe_that_fails_three_times_in_ten_loses_no_healthy_row(batch_rows: int, tmp_path: Path) -> None:
    """F26: a set never depends on luck, and a poison row still costs itself alone."""
    seed, units = 20, 200
    print(f"seed {seed}")
    recipe = MOODY.replace("SEED", str(seed))
    job = GenJob(tmp_path, recipe, rows=2 * units, unit_rows=2, batch_rows=batch_rows, probe_first=False)
    producer, failed, signatures = job.producer(), {}, set()
    for number in range(units):
        for _ in range(100):
            try:
                made = producer(unit_of(job.contract, number))
            except RuntimeError as error:
                signatures.add(cause_of(error).signature)
                continue
            break
        failed |= dict.fromkeys(made.receipt.failed_rows, made.receipt.failed)
    assert failed == {17: {"ValueError": 1}}
    assert job.recipe_class().asked.count(17) > TRIES_ALONE
    assert len(signatures) == 1, "one cause, on whichever way the error came"


@pytest.mark.parametrize("calls", [(1,), (1, 2), (1, 2, 3, 5)], ids=["a batch", "a row once", "more of them"])
def test_what_fails_now_and_then_loses_no_row(calls: tuple[int, ...], tmp_path: Path) -> None:
    # covers F26
    job = GenJob(tmp_path, FLAKY.replace("RAISES", repr(calls)), rows=8, unit_rows=4, probe_first=False)
    producer = job.producer()
    with pytest.raises(RuntimeError, match="moods"):
        producer(unit_of(job.contract, 0))
    made = producer(unit_of(job.contract, 0))
    assert made.receipt.rows.produced == 4


def test_memory_that_runs_out_is_no_fault_of_a_row(tmp_path: Path) -> None:
    job = GenJob(tmp_path, poisoned(7).replace("ValueError", "MemoryError"), rows=8, unit_rows=4)
    with pytest.raises(MemoryError) as raised:
        job.make(1)
    assert kind_of(raised.value) == "memory"
    assert job.recipe_class().asked == [[4, 5, 6, 7]], "nothing is asked for again"


# --- rows that are not finite, or filtered ------------------------------------------------------------------


NONFINITE = """
    def generate(self, model, inputs, rng):
        rows = inputs["row"].to_pylist()
        value = lambda row: {3: float("nan"), 5: float("inf")}.get(row, 1.0 * row)
        return pa.table({
            "x": pa.array([value(row) if row != 5 else 0.0 for row in rows], pa.float64()),
            "deep": [{"a": [value(row), 0.0]} for row in rows],
        })
"""


def test_rows_that_are_not_finite_are_failed_and_never_written(tmp_path: Path) -> None:
    job = GenJob(tmp_path, NONFINITE, rows=8, unit_rows=8, bounds={"nonfinite": 0.5})
    made = job.make(0)
    assert made.receipt.failed == {"nonfinite": 2}
    assert made.receipt.failed_rows == (3, 5)
    assert set(values(made)) == {0, 1, 2, 4, 6, 7}


def test_more_bad_rows_than_the_contract_allows_fail_the_unit(tmp_path: Path) -> None:
    # covers F25
    job = GenJob(tmp_path, NONFINITE, rows=8, unit_rows=8, bounds={"nonfinite": 0.0})
    with pytest.raises(GateError) as raised:
        job.make(0)
    assert raised.value.field == "bounds.nonfinite"
    assert kind_of(raised.value) == "bounds"


def test_a_unit_of_nothing_but_nan_is_none(tmp_path: Path) -> None:
    nan = NONFINITE.replace("1.0 * row", "(float('nan') if row >= 4 else 0.0)")
    job = GenJob(tmp_path, nan, rows=8, unit_rows=4, bounds={"nonfinite": 1.0})
    with pytest.raises(GateError, match="no row came of it: 4 nonfinite") as raised:
        job.make(1)
    assert kind_of(raised.value) == "recipe"


KEEP = """
    def generate(self, model, inputs, rng):
        return pa.table({"n": inputs["row"], "x": rng.uniform()})

    def keep(self, table):
        return KEEPS
"""


def test_filtered_rows_are_counted_with_their_reasons(tmp_path: Path) -> None:
    reasons = "[{1: 'blank', 6: 'blank', 7: 'too dark'}.get(n) for n in table['n'].to_pylist()]"
    job = GenJob(tmp_path, KEEP.replace("KEEPS", reasons), rows=8, unit_rows=8, batch_rows=3)
    receipt = job.make(0).receipt
    assert receipt.rows.plain() == {"requested": 8, "produced": 5, "filtered": 3, "failed": 0}
    assert receipt.filtered == {"blank": 2, "too dark": 1}


def test_a_receipt_names_so_many_reasons_and_counts_the_others_together(tmp_path: Path) -> None:
    keeps = """
    def keep(self, table):
        return [("dull" if row < 3 else f"row {row:03} is dull") for row in table["row"].to_pylist()]
"""
    job = GenJob(tmp_path, ROWS + keeps, rows=300, unit_rows=300, batch_rows=100)
    found = job.make(0).receipt.filtered
    assert len(found) == MAX_REASONS + 1
    assert found["dull"] == 3
    assert found["row 003 is dull"] == 1
    assert found[OTHERS] == 300 - 3 - (MAX_REASONS - 1)


def test_a_picture_that_cannot_be_drawn_costs_no_row_and_is_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draws = """
    def generate(self, model, inputs, rng):
        return pa.table({"x": rng.normal()})

    def picture(self, table):
        raise RuntimeError("no font")
"""
    job = GenJob(tmp_path, draws, rows=8, unit_rows=8, probe_first=False)
    made = job.make(0)
    assert (made.receipt.rows.produced, made.picture) == (8, None)
    assert "RuntimeError: no font" in capfd.readouterr().err


def test_a_unit_may_be_filtered_as_a_whole(tmp_path: Path) -> None:
    reasons = "['blank' if n >= 4 else None for n in table['n'].to_pylist()]"
    job = GenJob(tmp_path, KEEP.replace("KEEPS", reasons), rows=8, unit_rows=4)
    made = job.make(1)
    assert made.receipt.rows.filtered == 4
    assert table(made).schema.equals(table(job.make(0)).schema)


@pytest.mark.parametrize("keeps", ["[None]", "['']*table.num_rows", "[True]*table.num_rows", "None"])
def test_a_filter_that_says_something_else_is_refused(keeps: str, tmp_path: Path) -> None:
    with pytest.raises(GateError) as raised:
        GenJob(tmp_path, KEEP.replace("KEEPS", keeps), rows=8, unit_rows=8)
    assert raised.value.field == "recipe.keep"


def test_bad_rows_of_a_variable_length_are_counted_where_they_are_bounded(tmp_path: Path) -> None:
    words = """
    def generate(self, model, inputs, rng):
        rows = inputs["row"].to_pylist()
        return pa.table({
            "tokens": pa.array([[7] * (row % 4) for row in rows], pa.list_(pa.int32())),
            "text": pa.array(["" if row == 2 else None if row == 5 else "word" for row in rows]),
            "truncated": [row == 1 for row in rows],
            "rude": [row in (3, 6) for row in rows],
        })
"""
    bounds = {"empty": 0.9, "truncated": 0.9, "rude": 0.9, "duplicates": 0.9, "nulls": 0.9}
    job = GenJob(tmp_path, words, rows=8, unit_rows=8, bounds=bounds)
    made = job.make(0)
    assert made.receipt.counts == {"empty": 3, "nulls": 1, "truncated": 1, "rude": 2, "duplicates": 1}
    assert values(made)[3] == ((7, 7, 7), "word", False, True)
    unbound = GenJob(tmp_path / "unbound", words, rows=8, unit_rows=8, bounds={"failed": 0.0}, rules=None)
    assert unbound.make(0).receipt.counts == {}


def test_the_contents_of_rows_are_in_their_receipt(tmp_path: Path) -> None:
    import base64

    job = GenJob(tmp_path, ROWS, rows=6, unit_rows=3)
    for number in (0, 1):
        made = job.make(number)
        own = table(made).drop_columns(["row"])
        assert base64.b64decode(made.receipt.contents) == contents_of(own)
        assert len(base64.b64decode(made.receipt.contents)) == 8 * 3


# --- batch engines: a column `row` --------------------------------------------------------------------------


ENGINE = """
    def generate(self, model, inputs, rng):
        rows = inputs["row"].to_pylist()
        answered = ANSWERED
        return pa.table({"x": pa.array([10.0 * row for row in answered]), "row": pa.array(answered, pa.int64())})
"""


def test_rows_in_another_order_are_put_in_theirs(tmp_path: Path) -> None:
    made = GenJob(tmp_path, ENGINE.replace("ANSWERED", "rows[::-1]"), rows=6, unit_rows=6).make(0)
    assert list(values(made).items()) == [(row, (10.0 * row,)) for row in range(6)]


def test_rows_that_do_not_come_back_are_failed(tmp_path: Path) -> None:
    left_out = ENGINE.replace("ANSWERED", "[row for row in rows[::-1] if row not in (1, 4)]")
    made = GenJob(tmp_path, left_out, rows=6, unit_rows=6).make(0)
    assert made.receipt.failed == {"not returned": 2}
    assert made.receipt.failed_rows == (1, 4)
    assert set(values(made)) == {0, 2, 3, 5}


WRONG: dict[str, tuple[str, str]] = {
    "twice": (ENGINE.replace("ANSWERED", "rows + rows[:1]"), "row 0 twice"),
    "foreign": (ENGINE.replace("ANSWERED", "[*rows[1:], 77]"), "row 77"),
    "no numbers": (
        ENGINE.replace("pa.int64()", "pa.float64()").replace("ANSWERED", "rows"),
        "of type double",
    ),
    "no table": (ROWS.replace("return pa.table(", "return dict("), "a dict"),
    "too few": (
        ROWS.replace("list(drawn)", "list(drawn)[1:]").replace("rng.integers(0, 99)", "range(3)"),
        "3 rows",
    ),
    "raykit's name": (ROWS.replace('"token"', '"id"'), "column 'id'"),
    "another name of raykit's": (ROWS.replace('"token"', '"sample"'), "column 'sample'"),
    "no type": (ROWS.replace('[f"t{n}" for n in rng.integers(0, 99)]', "[None] * len(rng)"), "token as null"),
    "no plain type": (
        ROWS.replace("for n in rng.integers(0, 99)])", "for n in range(len(rng))]).dictionary_encode()"),
        "dictionary",
    ),
    "no column": (
        ENGINE.replace('"x": pa.array([10.0 * row for row in answered]), ', "").replace("ANSWERED", "rows"),
        "no column",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_has_another_shape_is_refused_before_anything_is_paid_for(wrong: str, tmp_path: Path) -> None:
    code, told = WRONG[wrong]
    with pytest.raises(GateError, match="the recipe's generate\\(\\) gives") as raised:
        GenJob(tmp_path, code, rows=4, unit_rows=4)
    assert told in raised.value.message, raised.value.message
    assert raised.value.rule


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ('{"x": rng.normal().astype(np.float64)}', "a column x: double, and none x: float"),
        ('{"x": rng.normal(), "y": rng.normal()}', "a column y: float"),
        ('{"y": rng.normal()}', "a column y: float, and none x: float"),
    ],
)
def test_columns_that_are_not_the_contracts_are_refused_by_name(
    later: str, told: str, tmp_path: Path
) -> None:
    code = f"""
    def generate(self, model, inputs, rng):
        first = inputs["row"][0].as_py() < 4
        return pa.table({{"x": rng.normal()}} if first else {later})
"""
    job = GenJob(tmp_path, code, rows=8, unit_rows=4)
    with pytest.raises(GateError) as raised:
        job.make(1)
    assert raised.value.field == "columns"
    assert told in raised.value.message


# --- what is refused before ---------------------------------------------------------------------------------


def test_a_recipe_without_generate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="has no generate"):
        GenJob(tmp_path, "", rows=4, unit_rows=4)


@pytest.mark.parametrize(
    ("signature", "decode", "field"),
    [
        ("rng, scale=1.0", {"temperature": 1.0}, "generate.s.decode.temperature"),
        ("rng, scale", {}, "generate.s.decode.scale"),
        ("rng, *, scale", {"scale": 1.0, "top_k": 5}, "generate.s.decode.top_k"),
        ("*, rng", {}, "recipe.generate"),
    ],
)
def test_names_that_generate_does_not_take_are_refused(
    signature: str, decode: Mapping[str, Any], field: str, tmp_path: Path
) -> None:
    code = (
        f'    def generate(self, model, inputs, {signature}):\n        raise AssertionError("never asked")\n'
    )
    with pytest.raises(PlanError) as raised:
        GenJob(tmp_path, code, rows=4, unit_rows=4, decode=decode)
    assert raised.value.field == field


def test_whatever_a_recipe_takes_by_name_is_given(tmp_path: Path) -> None:
    code = """
    def generate(self, model, inputs, rng, **decode):
        return pa.table({"x": [decode["top_k"]] * len(rng)})
"""
    assert values(GenJob(tmp_path, code, rows=2, unit_rows=2, decode={"top_k": 5}).make(0))[1] == (5,)


# --- what is in effect --------------------------------------------------------------------------------------


def test_what_is_not_in_effect_here_is_refused_by_name(tmp_path: Path) -> None:
    # covers DISP-01, GEN-06
    job = GenJob(tmp_path, ROWS, rows=4, unit_rows=4)
    facts = {**job.contract.facts, "torch": "1.0"}
    with pytest.raises(GateError) as raised:
        job.producer(facts=facts)
    assert (raised.value.field, raised.value.rule) == ("facts.torch", "1.0")
    with pytest.raises(GateError) as raised:
        job.producer(revision=99)
    assert raised.value.field == "revision"
    job.producer(exact=False, facts={})


def test_weights_have_the_dtype_of_the_contract(tmp_path: Path) -> None:
    # covers GEN-05
    code = """
    def generate(self, model, inputs, rng):
        return pa.table({"kind": [str(model.weight.dtype)] * len(rng), "threads": [torch.get_num_threads()] * len(rng)})
"""
    job = GenJob(tmp_path, code, rows=2, unit_rows=2, dtype="bfloat16", threads=2)
    assert values(job.make(0))[0] == ("torch.bfloat16", 2)
    with pytest.raises(CorruptError, match=r"has dtype torch\.bfloat16 in the checkpoint"):
        job.producer(dtype="float32")


def test_a_teacher_that_changed_on_disk_is_refused(tmp_path: Path) -> None:
    # covers GEN-04, I1
    job = GenJob(tmp_path, ROWS, rows=4, unit_rows=4)
    (path,) = Path(tmp_path / "store").rglob("model.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="does not match its sha256"):
        job.producer()


# --- inputs -------------------------------------------------------------------------------------------------


ANSWERS = """
    def generate(self, model, inputs, rng):
        words = zip(inputs["id"].to_pylist(), inputs["text"].to_pylist(), inputs["sample"].to_pylist())
        return pa.table({"answer": [f"{id}:{text}:{sample}" for id, text, sample in words], "x": rng.normal()})
"""


def with_inputs(folder: Path, **traits: Any) -> GenJob:
    table = pa.table({"id": ["a", "b", "c"], "text": ["x", "y" * 2000, "z"]})
    cut = cut_inputs(table, "inputs.jsonl", input_bytes=1000, at="inputs")
    return GenJob(folder, ANSWERS, rows=6, samples=2, inputs=cut, **traits)


def test_samples_of_one_input_are_rows_of_their_own_and_a_large_input_is_a_failed_one(tmp_path: Path) -> None:
    # covers GEN-09
    job = with_inputs(tmp_path, unit_rows=3)
    made = [job.make(0), job.make(1)]
    assert [table(each).column_names for each in made] == [["row", "id", "sample", "answer", "x"]] * 2
    rows = values(made[0]) | values(made[1])
    assert {row: found[:3] for row, found in rows.items()} == {
        0: ("a", 0, "a:x:0"),
        1: ("a", 1, "a:x:1"),
        4: ("c", 0, "c:z:0"),
        5: ("c", 1, "c:z:1"),
    }
    assert len({found[3] for found in rows.values()}) == 4
    assert [each.receipt.failed for each in made] == [{"input-too-large": 1}, {"input-too-large": 1}]
    assert [each.receipt.failed_rows for each in made] == [(2,), (3,)]


def test_a_unit_of_nothing_but_large_inputs_is_empty(tmp_path: Path) -> None:
    job = with_inputs(tmp_path, unit_rows=2)
    made = job.make(1)
    assert made.receipt.rows.plain() == {"requested": 2, "produced": 0, "filtered": 0, "failed": 2}
    assert table(made).schema.equals(table(job.make(0)).schema)
    assert job.make(2).receipt.rows.produced == 2


# --- random numbers -----------------------------------------------------------------------------------------


def test_the_numbers_of_a_row_depend_on_its_key_alone() -> None:
    keys = [11, 22, 33, 2**63 - 1]
    every, some = Draws(keys), Draws([33, 2**63 - 1])
    for draw in (
        lambda d: d.normal(5),
        lambda d: d.uniform(),
        lambda d: d.integers(-3, 9, 2, 2),
        lambda d: d.normal(2, 3),
    ):
        np.testing.assert_array_equal(draw(every)[2:], draw(some))
    assert list(every.seeds) == keys and len(every) == 4
    assert every.normal(2, 3).shape == (4, 2, 3) and every.normal().dtype == np.float32
    longer = Draws(keys).normal(50)
    np.testing.assert_array_equal(longer[:, :5], Draws(keys).normal(5))


def test_calls_continue_and_are_distributed_as_they_should_be() -> None:
    draws = Draws(range(400))
    first, second = draws.normal(100), draws.normal(100)
    assert abs(first.mean()) < 0.02 and abs(first.std() - 1) < 0.02
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(first[:-1].ravel(), first[1:].ravel())[0, 1]) < 0.02
    uniform, whole = draws.uniform(100), draws.integers(0, 10, 100)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.01
    assert set(np.unique(whole)) == set(range(10))


# --- the digits ---------------------------------------------------------------------------------------------


def test_the_digits_are_drawn_and_pictured(tmp_path: Path) -> None:
    code = (DIGITS / "recipe.py").read_text()
    job = GenJob(
        tmp_path,
        code,
        spec="recipe:DigitsVae",
        rows=60,
        unit_rows=40,
        decode={"temperature": 1.0},
        bounds={"duplicates": 0.01, "nonfinite": 0.0},
        quality=True,
    )
    made = job.make(0)
    images = np.array(table(made).column("image").to_pylist())
    assert images.shape == (40, 64)
    assert images.min() >= 0 and images.max() <= 16 and (images == images.round()).all()
    assert job.contract.normalization == {"image": {"low": 0.0, "high": 16.0, "shape": [8, 8]}}
    (measured,) = job.probe.measured
    assert set(measured.quality) == {"distance", "coverage"}
    assert 0 < measured.quality["distance"] < 16 and 0 < measured.quality["coverage"] <= 40 / 270
    assert made.picture is not None and made.picture.startswith(b"\x89PNG")
    assert job.make(1).picture is None
