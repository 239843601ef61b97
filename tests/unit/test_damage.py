"""What counts as a bad row, what holds where a plan says nothing, and that a contract of before keeps its own rules.

FAULT-C01, FAULT-C02, FAULT-C05
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from makegen import drive, toy_set
from makejob import GenJob
from test_gen_unit import _as_it_was  # noqa: F401 - the fixture is used by every test

from raykit.errors import GateError
from raykit.records import Column, GenerationContract
from raykit.shards.bounds import RULES, UNSAID, completed, flags_of
from raykit.shards.contract import changes
from raykit.store import damage, open_store
from raykit.store.generation import Shards
from raykit.store.parquet import read_parquet

LIST, STRUCT = pa.list_(pa.float32()), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])

# --- the rows themselves ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "bad"),
    [
        (pa.array([1, None, 3]), [1]),
        (pa.array([True, None, False]), [1]),
        (pa.array(["a", None, ""]), [1]),
        (pa.array([None, 1.0, float("nan")]), [0]),
        (pa.array([float("nan"), 1.0, 2.0], from_pandas=True), [0]),
        (pa.array([[1.0], [None, 2.0], None], LIST), [1, 2]),
        (pa.array([[1.0, 2.0], None, [None, 1.0]], pa.list_(pa.float32(), 2)), [1, 2]),
        (pa.array([[[1.0], [None]], [[]], []], pa.list_(LIST)), [0]),
        (pa.array([{"a": 1, "b": ["x"]}, {"a": None, "b": []}, {"a": 2, "b": ["x", None]}], STRUCT), [1, 2]),
        (pa.array([None, {"a": 1, "b": []}, {"a": 1, "b": None}], STRUCT), [0, 2]),
        (pa.array([[{"a": 1}], [{"a": None}], [None]], pa.list_(pa.struct([("a", pa.int8())]))), [1, 2]),
    ],
    ids=str,
)
def test_nulls_are_found_at_any_depth(array: pa.Array, bad: list[int]) -> None:
    assert np.flatnonzero(damage.nulls(pa.table({"x": array, "y": range(3)}))).tolist() == bad
    padded = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    assert np.flatnonzero(damage.nulls(pa.table({"x": padded}))).tolist() == bad


@pytest.mark.parametrize(
    ("array", "bad"),
    [
        (pa.array([" \n\t", "x", ""]), [0, 2]),
        (pa.array(["\u00a0\u2003", " x ", None], pa.large_string()), [0]),
        (pa.array([b"", b"  ", None]), [0]),
        (pa.array([[], [""], None], pa.list_(pa.string())), [0]),
        (pa.array([{"text": " "}, {"text": "x"}, None]), [0]),
        (pa.array([0, 1, 2]), []),
    ],
    ids=str,
)
def test_what_is_blank_is_empty_and_a_null_is_a_null(array: pa.Array, bad: list[int]) -> None:
    assert np.flatnonzero(damage.blank(pa.table({"x": array}))).tolist() == bad


def test_under_the_first_rules_a_null_text_is_empty_and_a_blank_is_not() -> None:
    table = pa.table({"x": pa.array(["", " ", None, "x"]), "nulls": [True, False, True, False]})
    bounds = {"empty": 1.0, "nulls": 1.0}  # then a column of flags like any other
    assert damage.bad_rows(table, b"", bounds, rules=None) == {"empty": 2, "nulls": 2}
    assert damage.bad_rows(table, b"", bounds, rules=RULES) == {"empty": 2, "nulls": 1}


# --- bounds that hold unsaid --------------------------------------------------------------------------------

OF_TEXT = (Column(name="row", type="int64"), Column(name="answer", type="string"))


def test_every_kind_of_damage_has_a_bound() -> None:
    found = completed({"duplicates": 0.0}, OF_TEXT, rules=RULES, from_inputs=False)
    assert found == {
        **{kind: UNSAID[kind] for kind in ("nulls", "nonfinite", "failed", "empty")},
        "duplicates": 0,
    }
    assert completed(found, OF_TEXT, rules=RULES, from_inputs=False) == found
    assert completed({"duplicates": 0.0}, OF_TEXT, rules=None, from_inputs=False) == {"duplicates": 0.0}


def test_only_what_rows_can_be_is_bounded() -> None:
    numbers = (OF_TEXT[0], Column(name="x", type="float"))
    assert "empty" not in completed({}, numbers, rules=RULES, from_inputs=False)
    assert completed({}, numbers, rules=RULES, from_inputs=False)["duplicates"] == 0.5
    assert "duplicates" not in completed({}, numbers, rules=RULES, from_inputs=True), "labels are one of few"
    cut = (*numbers, Column(name="truncated", type="bool"))
    assert completed({}, cut, rules=RULES, from_inputs=True)["truncated"] == UNSAID["truncated"]
    nested = (OF_TEXT[0], Column(name="x", type="struct<a: int64, b: string>"))
    assert "empty" in completed({}, nested, rules=RULES, from_inputs=True)


def test_what_may_be_nonfinite_may_fail() -> None:
    assert completed({"nonfinite": 0.5}, OF_TEXT, rules=RULES, from_inputs=True)["failed"] == 0.5
    assert (
        completed({"nonfinite": 0.5, "failed": 0.1}, OF_TEXT, rules=RULES, from_inputs=True)["failed"] == 0.1
    )


def test_columns_of_flags_are_those_that_are_bounded() -> None:
    assert flags_of({"rude": 0.1, "failed": 0.1, "nulls": 0.0}) == {"rude", "truncated"}


# --- through the producer -----------------------------------------------------------------------------------


def recipe(columns: str) -> str:
    return f"""
    def generate(self, model, inputs, rng):
        rows = inputs["row"].to_pylist()
        return pa.table({{"x": rng.normal(), {columns}}})
"""


def refused(job: GenJob) -> GateError:
    with pytest.raises(GateError) as caught:
        job.make(0)
    return caught.value


@pytest.mark.parametrize(
    "column",
    [
        '"n": pa.array([None if row == 3 else row for row in rows], pa.int64())',
        '"n": pa.array([[1.0, None if row == 3 else 2.0] for row in rows], pa.list_(pa.float64()))',
        '"n": pa.array([{"a": None if row == 3 else row} for row in rows], pa.struct([("a", pa.int64())]))',
        '"n": pa.array(np.where(np.array(rows) == 3, np.nan, 1.0), from_pandas=True)',
        '"n": pa.array([None if row == 3 else row > 1 for row in rows], pa.bool_())',
    ],
)
def test_one_null_row_is_not_published_unless_the_plan_says_so(column: str, tmp_path: Path) -> None:
    job = GenJob(tmp_path, recipe(column), rows=8, unit_rows=8)
    error = refused(job)
    assert (error.field, error.value) == ("bounds.nulls", 1)
    assert error.message == "1 of 8 rows hold nulls (12.5 %), and 0 % may"
    said = GenJob(tmp_path / "said", recipe(column), rows=8, unit_rows=8, bounds={"nulls": 0.5})
    assert said.make(0).receipt.counts["nulls"] == 1


def test_a_frame_of_pandas_with_nan_has_nulls_and_its_index_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    code = """
    def generate(self, model, inputs, rng):
        import pandas as pd
        frame = pd.DataFrame({{"x": rng.normal()}}, index=pd.Index(inputs["row"].to_pylist(), name={name!r}))
        frame.loc[frame.index == 2, "x"] = np.nan
        return pa.Table.from_pandas(frame{options})
"""
    kept = GenJob(
        tmp_path / "a", code.format(name=None, options=", preserve_index=False"), rows=4, unit_rows=4
    )
    assert refused(kept).field == "bounds.nulls"
    for n, (name, called) in enumerate([(None, "__index_level_0__"), ("number", "number")]):
        with pytest.raises(GateError, match=f"a column '{called}', the index of a pandas frame") as caught:
            GenJob(tmp_path / f"b{n}", code.format(name=name, options=""), rows=4, unit_rows=4)
        assert caught.value.remedy is not None and "preserve_index=False" in caught.value.remedy
    own = GenJob(
        tmp_path / "c", code.format(name="row", options=""), rows=4, unit_rows=4, bounds={"nulls": 1}
    )
    assert own.make(0).receipt.rows.produced == 4, "the column `row` is what raykit asks for"


def test_a_flag_that_says_nothing_is_a_failed_row(tmp_path: Path) -> None:
    columns = '"truncated": pa.array([None if row in (1, 5) else row == 2 for row in rows], pa.bool_())'
    bounds = {"truncated": 0.9, "failed": 0.9}
    made = GenJob(tmp_path, recipe(columns), rows=8, unit_rows=8, bounds=bounds).make(0)
    assert made.receipt.failed == {"flag-is-null": 2} and made.receipt.failed_rows == (1, 5)
    assert made.receipt.counts["truncated"] == 1 and made.receipt.counts["nulls"] == 0
    assert read_parquet(made.data, "unit").column("truncated").null_count == 0


def test_nine_of_ten_rows_that_are_no_numbers_are_not_published(tmp_path: Path) -> None:
    columns = '"n": pa.array([float("nan") if row % 10 else 1.0 for row in rows])'
    job = GenJob(tmp_path, recipe(columns), rows=40, unit_rows=40, bounds={"duplicates": 0.0})
    assert refused(job).field in ("bounds.nonfinite", "bounds.failed")
    assert job.contract.bounds["nonfinite"] == UNSAID["nonfinite"]


def test_blank_answers_are_empty(tmp_path: Path) -> None:
    columns = '"answer": [" \\n" if row < 7 else "word" for row in rows]'
    assert refused(GenJob(tmp_path, recipe(columns), rows=8, unit_rows=8)).field == "bounds.empty"


# --- a contract of before -----------------------------------------------------------------------------------

BAD = '"n": pa.array([None if row % 2 else row for row in rows], pa.int64()), "__index_level_0__": rows'


def test_a_set_under_way_goes_on_with_the_rules_of_its_contract(tmp_path: Path) -> None:
    """The contract as the version before wrote it: without a word of rules, and with no bound that nobody said."""
    bounds: dict[str, float] = {"duplicates": 0.0}
    job = GenJob(tmp_path, recipe(BAD), rows=8, unit_rows=4, bounds=bounds, rules=None)
    assert "rules" not in job.contract.plain() and job.contract.bounds == bounds
    again = GenerationContract.from_bytes(job.contract.to_bytes(), "it")
    assert again.digest == job.contract.digest and again.rules is None
    assert changes(job.contract, job.draft) == ()
    made = job.make(1)
    assert made.receipt.counts == {"duplicates": 0} and made.receipt.rows.produced == 4
    assert read_parquet(made.data, "unit").column("n").null_count == 2


def test_the_rules_change_no_seed_and_no_row(tmp_path: Path) -> None:
    columns = '"n": pa.array(rows)'
    old = GenJob(tmp_path / "old", recipe(columns), rows=8, unit_rows=8, bounds={"failed": 0.0}, rules=None)
    new = GenJob(tmp_path / "new", recipe(columns), rows=8, unit_rows=8, bounds={"failed": 0.0})
    assert old.contract.production == new.contract.production
    assert old.make(0).data == new.make(0).data
    assert [change.field for change in changes(old.contract, new.draft)] == [
        "rules of bad rows",
        "generate.s.bounds.nulls",
        "generate.s.bounds.nonfinite",
        "generate.s.bounds.duplicates",
    ]


def test_units_of_an_earlier_contract_are_counted_by_the_rules_of_the_new_one(tmp_path: Path) -> None:
    maker = toy_set(open_store(str(tmp_path / "store")), rows_asked=8, unit_rows=4, bounds={"failed": 0.1})
    drive(maker)
    old = Shards(maker.store, maker.generation_contract)
    bounds: dict[str, Any] = {"failed": 0.1, "nulls": 0.0, "empty": 0.01}
    contract = maker.generation_contract.model_copy(
        update={"rules": RULES, "bounds": bounds, "follows": old.digest}
    )
    new = Shards(maker.store, contract)
    new.freeze()
    assert new.reuse(old, [0, 1]) == 2
    receipt = new.receipt(0)
    assert receipt is not None and receipt.counts == {"nulls": 0, "empty": 0}
    assert receipt.reused == old.digest
