"""What the real producer says before a contract is frozen, and what is refused before anything is paid for.

covers GEN-02, GEN-07, DISP-01
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from makejob import GenJob

from raykit.data.inputs import cut_inputs
from raykit.errors import GateError, PlanError
from raykit.shards.contract import require_same

ROWS = """
    normalization = {"x": {"low": -1, "high": 1.0}}

    def generate(self, model, inputs, rng, scale=1.0):
        return pa.table({"x": rng.normal() * np.float32(scale)})

    def quality(self, table, real):
        assert all(isinstance(each, torch.Tensor) for each in real)
        return {"spread": float(np.std(table["x"].to_numpy())), "real": len(real), "undefined": float("nan")}
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


def test_the_producer_says_what_its_rows_are(tmp_path: Path) -> None:
    job = GenJob(tmp_path, ROWS, rows=40, unit_rows=10)
    probed = job.probe.probed
    assert [(column.name, column.type) for column in probed.columns] == [("row", "int64"), ("x", "float")]
    assert probed.normalization == {"x": {"low": -1, "high": 1.0}}
    assert {"torch", "pyarrow", "threads", "device_model"} <= probed.facts.keys()
    (measured,) = job.probe.measured
    assert (measured.name, measured.rows.requested, measured.quality) == ("decode", 10, {})
    assert job.probe.peak_bytes > 0


def test_the_same_producer_says_the_same(tmp_path: Path) -> None:
    # covers GEN-06, GEN-16
    job = GenJob(tmp_path / "one", ROWS, rows=40, unit_rows=10)
    again = GenJob(tmp_path / "two", ROWS, rows=40, unit_rows=10)
    require_same(job.contract, again.draft, again.probe.probed)
    assert again.contract.digest == job.contract.digest


def test_every_option_is_measured_on_the_split_that_selects(tmp_path: Path) -> None:
    # covers GEN-02, GEN-07
    options = {"cool": {"scale": 0.1}, "hot": {"scale": 3.0}}
    job = GenJob(tmp_path, ROWS, rows=400, unit_rows=200, options=options, quality=True)
    measured = {each.name: each for each in job.probe.measured}
    assert list(measured) == ["decode", "cool", "hot"]
    assert measured["hot"].decode == {"scale": 3.0}
    spreads = [measured[name].quality["spread"] for name in ("cool", "decode", "hot")]
    assert spreads == pytest.approx([0.1, 1.0, 3.0], rel=0.2)
    assert {each.quality["real"] for each in measured.values()} == {6}, "15 % of 40 are development"
    assert {each.quality["undefined"] for each in measured.values()} == {None}
    assert all(each.rows.produced == 200 for each in measured.values())


@pytest.mark.parametrize("role", ["report_only", "sealed", "benchmark", "train"])
def test_quality_on_a_split_that_may_not_select_is_refused(role: str, tmp_path: Path) -> None:
    # covers GEN-02
    with pytest.raises(GateError) as raised:
        GenJob(tmp_path, ROWS, rows=40, unit_rows=10, quality=True, role=role)
    assert (raised.value.field, raised.value.rule) == ("generate.s.quality", "development")


def test_quality_that_a_recipe_cannot_tell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="has no quality"):
        GenJob(tmp_path, ROWS.partition("    def quality")[0], rows=4, unit_rows=4, quality=True)
    with pytest.raises(GateError) as raised:
        bad = ROWS.replace('"undefined": float("nan")', '"undefined": "none"')
        GenJob(tmp_path / "bad", bad, rows=4, unit_rows=4, quality=True)
    assert raised.value.field == "recipe.quality"


def test_an_option_that_generate_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        GenJob(tmp_path, ROWS, rows=4, unit_rows=4, options={"cool": {"temperature": 0.1}})
    assert (raised.value.field, raised.value.rule) == ("generate.s.options.cool.temperature", "one of scale")


def test_a_recipe_whose_rows_differ_from_call_to_call_is_no_exact_one(tmp_path: Path) -> None:
    code = """
    def generate(self, model, inputs, rng):
        type(self).calls = getattr(type(self), "calls", 0) + 1
        return pa.table({"x": rng.normal() + np.float32(self.calls)})
"""
    with pytest.raises(GateError) as raised:
        GenJob(tmp_path / "exact", code, rows=4, unit_rows=4)
    assert raised.value.field == "generate.s.exact"
    loose = GenJob(tmp_path / "loose", code, rows=4, unit_rows=4, exact=False)
    assert loose.contract.facts == {}
    assert loose.make(0).receipt.rows.produced == 4


def test_what_comes_to_no_row_at_all_is_refused(tmp_path: Path) -> None:
    code = '    def generate(self, model, inputs, rng):\n        raise KeyError("no such layer")\n'
    with pytest.raises(KeyError, match="no such layer"):
        GenJob(tmp_path / "raises", code, rows=4, unit_rows=4)
    nan = (
        '    def generate(self, model, inputs, rng):\n        return pa.table({"x": rng.normal() * np.nan})\n'
    )
    with pytest.raises(GateError, match="no row came of it: 4 nonfinite"):
        GenJob(tmp_path / "nan", nan, rows=4, unit_rows=4)
    large = cut_inputs(pa.table({"id": ["a"], "text": ["y" * 9000]}), "a.csv", input_bytes=100, at="inputs")
    with pytest.raises(GateError, match="no input of the first unit can be used"):
        GenJob(tmp_path / "large", ROWS, rows=1, unit_rows=1, inputs=large)


def test_a_normalization_that_no_record_holds_is_refused(tmp_path: Path) -> None:
    code = ROWS.replace('{"x": {"low": -1, "high": 1.0}}', '{"x": float("inf")}')
    with pytest.raises(GateError) as raised:
        GenJob(tmp_path, code, rows=4, unit_rows=4)
    assert raised.value.field == "recipe.normalization"
    method = ROWS.replace(
        'normalization = {"x": {"low": -1, "high": 1.0}}',
        "def normalization(self, params):\n        return dict(of=2)",
    )
    assert GenJob(tmp_path / "method", method, rows=4, unit_rows=4).contract.normalization == {"of": 2}


def test_a_buffer_that_no_checkpoint_holds_is_refused(tmp_path: Path) -> None:
    code = (
        ROWS
        + """
    def model(self, params):
        layer = nn.Linear(4, 1)
        layer.register_buffer("table", torch.FILL(3), persistent=False)
        return layer
"""
    )
    with pytest.raises(GateError, match="the buffer table is another one in each model") as raised:
        GenJob(tmp_path / "random", code.replace("FILL", "randn"), rows=4, unit_rows=4)
    assert raised.value.field == "recipe.model"
    assert GenJob(tmp_path / "fixed", code.replace("FILL", "ones"), rows=4, unit_rows=4).make(0)


def test_a_picture_that_cannot_be_drawn_is_known_before(tmp_path: Path) -> None:
    code = ROWS + "\n    def picture(self, table):\n        return [None] * table.num_rows\n"
    with pytest.raises(GateError) as raised:
        GenJob(tmp_path, code, rows=4, unit_rows=4)
    assert raised.value.field == "recipe.picture"
