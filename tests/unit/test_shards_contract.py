"""What a contract is made of, what differs between two, what may be reused; units, spans, and ways of decoding."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raykit.errors import GateError, InvalidInput, PlanError
from raykit.plan import Plan, load_plan
from raykit.records import Column, GenerationContract, InputChunk, InputsManifest, Option
from raykit.shards import options
from raykit.shards.contract import (
    Draft,
    Probed,
    changes,
    draft_of,
    make_contract,
    require_reusable,
    require_same,
    reusable,
)
from raykit.shards.spans import count_in, numbers_of, parse_spans, shown, spans_of, units_in
from raykit.shards.units import input_of, unit_id, unit_of, units_of

GOOD = (Path(__file__).parents[1] / "corpus" / "good_plan.toml").read_text("utf-8")
GENERATE = """
[generate.digits]
rows      = 2000
unit_rows = 100
decode    = { temperature = 1.0, top = { p = 0.9 } }
bounds    = { duplicates = 0.01, nonfinite = 0.0 }
"""
FROM_INPUTS = GENERATE.replace("rows      = 2000", 'inputs = "prompts.jsonl"\nsamples = 2')
TEACHER, CODE = "1" * 64, "2" * 64
COLUMNS = (Column(name="row", type="int64"), Column(name="image", type="binary"))
FACTS = {"torch": "2.12.0", "device": "cpu"}
INPUTS = InputsManifest(
    source="prompts.jsonl",
    rows=30,
    columns=(Column(name="id", type="string"),),
    chunks=(InputChunk(rows=30, sha256="5" * 64, size_bytes=100),),
)


def plan(*edits: tuple[str, str], generate: str = GENERATE) -> Plan:
    text = (GOOD if "[generate" not in GOOD else GOOD[: GOOD.index("[generate")]) + generate
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return load_plan(text.encode(), where="plan.toml")


def draft(*edits: tuple[str, str], generate: str = GENERATE, inputs: InputsManifest | None = None) -> Draft:
    made = plan(*edits, generate=generate)
    return draft_of(made, "digits", teacher=TEACHER, code=CODE, inputs=inputs)


def probed(**other: Any) -> Probed:
    return Probed(**{"columns": COLUMNS, "normalization": {"scale": 16}, "facts": FACTS, **other})


def frozen(*edits: tuple[str, str], **other: Any) -> GenerationContract:
    return make_contract(draft(*edits), probed(), **other)


# --- making one ---------------------------------------------------------------------------------------------


def test_a_contract_holds_what_the_bytes_depend_on() -> None:
    # covers GEN-04, GEN-05, GEN-06
    made = frozen()
    assert (made.experiment, made.name, made.teacher, made.code) == (plan().name, "digits", TEACHER, CODE)
    assert (made.rows, made.unit_rows, made.batch_rows, made.samples) == (2000, 100, 100, 1)
    assert (made.dtype, made.autocast, made.deterministic, made.threads) == ("float32", "none", True, 1)
    assert made.decode == {"temperature": 1.0, "top": {"p": 0.9}}
    assert made.normalization == {"scale": 16}
    assert made.facts == FACTS
    assert frozen().digest == made.digest
    assert GenerationContract.from_bytes(made.to_bytes(), "it") == made
    numbered = {
        frozen(("temperature = 1.0", "temperature = 0.8")).digest,
        make_contract(draft(), probed(facts={})).digest,
        make_contract(draft(), probed(normalization={})).digest,
        frozen(follows="3" * 64).digest,
        made.digest,
    }
    assert len(numbered) == 5


def test_what_is_not_exact_binds_no_facts() -> None:
    inexact = draft(("unit_rows = 100", "unit_rows = 100\nexact = false"))
    assert make_contract(inexact, probed()).facts == {}
    assert changes(make_contract(inexact, probed()), inexact, probed(facts={"torch": "3"})) == ()


def test_inputs_give_the_rows_unless_fewer_are_asked_for() -> None:
    assert draft(generate=FROM_INPUTS, inputs=INPUTS).rows == 60
    assert draft(generate=FROM_INPUTS, inputs=INPUTS).inputs == INPUTS.digest
    fewer = ("samples = 2", "samples = 2\nrows = 59")
    assert draft(fewer, generate=FROM_INPUTS, inputs=INPUTS).rows == 59
    more = ("samples = 2", "samples = 2\nrows = 61")
    with pytest.raises(PlanError, match=r"61 rows of 30 inputs with 2 samples each") as caught:
        draft(more, generate=FROM_INPUTS, inputs=INPUTS)
    assert caught.value.field == "generate.digits.rows"
    assert caught.value.rule == "at most 60; or none, which is all of them"


def test_a_draft_needs_its_set_and_its_inputs() -> None:
    with pytest.raises(PlanError) as caught:
        draft_of(plan(), "letters", teacher=TEACHER, code=CODE, inputs=None)
    assert (caught.value.field, caught.value.rule) == ("generate.letters", "digits")
    with pytest.raises(PlanError, match="not read") as caught:
        draft(generate=FROM_INPUTS)
    assert caught.value.field == "generate.digits.inputs"


def test_a_batch_is_never_larger_than_a_unit() -> None:
    assert draft(("unit_rows = 100", "unit_rows = 100\nbatch_rows = 7")).batch_rows == 7
    assert draft(("unit_rows = 100", "unit_rows = 100\nbatch_rows = 100")).batch_rows == 100


@pytest.mark.parametrize(
    ("bound", "columns", "problem"),
    [
        ("truncated = 0.1", COLUMNS, "no column of flags named truncated"),
        (
            "blurred = 0.1",
            (*COLUMNS, Column(name="blurred", type="int8")),
            "no column of flags named blurred",
        ),
        ("empty = 0.1", (Column(name="row", type="int64"), Column(name="id", type="string")), "can be empty"),
        ("empty = 0.1", (Column(name="x", type="fixed_size_binary[8]"),), "can be empty"),
    ],
)
def test_a_bound_that_nothing_can_break_is_refused(
    bound: str, columns: tuple[Column, ...], problem: str
) -> None:
    # covers DISP-01
    made = draft(("duplicates = 0.01", bound))
    with pytest.raises(GateError, match=problem) as caught:
        make_contract(made, probed(columns=columns))
    assert caught.value.field == f"generate.digits.bounds.{bound.split()[0]}"


@pytest.mark.parametrize(
    ("bound", "column"),
    [
        ("truncated = 0.1", Column(name="truncated", type="bool")),
        ("blurred = 0.1", Column(name="blurred", type="bool")),
        ("empty = 0.1", Column(name="text", type="string")),
        ("empty = 0.1", Column(name="points", type="list<item: float>")),
        ("failed = 0.1", Column(name="x", type="float")),
        ("filtered = 0.1", Column(name="x", type="float")),
    ],
)
def test_a_bound_that_the_rows_can_break_is_kept(bound: str, column: Column) -> None:
    made = make_contract(draft(("duplicates = 0.01", bound)), probed(columns=(*COLUMNS[:1], column)))
    assert set(made.bounds) >= {bound.split()[0], "nonfinite"}


# --- what differs -------------------------------------------------------------------------------------------


def test_the_same_plan_goes_on() -> None:
    require_same(frozen(), draft())
    require_same(frozen(), draft(), probed())
    require_same(frozen(follows="3" * 64), draft(), probed())


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (("temperature = 1.0", "temperature = 0.8"), "generate.digits.decode.temperature"),
        (("p = 0.9", "p = 0.8"), "generate.digits.decode.top.p"),
        (("temperature = 1.0", "temperature = 1"), "generate.digits.decode.temperature"),
        (
            ("{ temperature = 1.0, top = { p = 0.9 } }", "{}"),
            "generate.digits.decode.temperature, generate.digits.decode.top.p",
        ),
        (("duplicates = 0.01", "duplicates = 0.02"), "generate.digits.bounds.duplicates"),
        (("rows      = 2000", "rows = 2100"), "generate.digits.rows"),
        (("unit_rows = 100", "unit_rows = 50"), "generate.digits.unit_rows, generate.digits.batch_rows"),
        (("unit_rows = 100", "unit_rows = 100\nbatch_rows = 10"), "generate.digits.batch_rows"),
        (("unit_rows = 100", "unit_rows = 100\nseed = 7"), "generate.digits.seed"),
        (("unit_rows = 100", "unit_rows = 100\nexact = false"), "generate.digits.exact"),
        (("seed             = 1", "seed = 1\nthreads = 2"), "run.threads"),
        (("seed             = 1", "seed = 1\ndeterministic = false"), "run.deterministic"),
        (("seed             = 1", 'seed = 1\ndtype = { autocast = "bfloat16" }'), "run.dtype.autocast"),
    ],
)
def test_a_change_is_refused_in_the_words_of_the_plan(edit: tuple[str, str], field: str) -> None:
    # covers GEN-16, I14, F30
    with pytest.raises(GateError) as caught:
        require_same(frozen(), draft(edit), probed())
    assert caught.value.field == field
    assert caught.value.rule == "one contract from the first unit to the last"
    assert 'raykit generate PLAN --changed "why" --by NAME' in (caught.value.remedy or "")


def test_a_refusal_has_what_was_frozen_and_what_is_now() -> None:
    # covers GEN-16
    now = draft_of(
        plan(("temperature = 1.0", "temperature = 0.8")), "digits", teacher="7" * 64, code=CODE, inputs=None
    )
    with pytest.raises(GateError) as caught:
        require_same(frozen(), now, probed(facts={**FACTS, "torch": "2.13.0"}, normalization={}))
    assert caught.value.message == (
        f"{plan().name}/digits was frozen otherwise: teacher was 111111111111, is 777777777777; "
        "generate.digits.decode.temperature was 1.0, is 0.8; normalization.scale was 16, is not there; "
        "facts.torch was '2.12.0', is '2.13.0'"
    )
    found = changes(frozen(), now)
    assert [change.field for change in found] == ["teacher", "generate.digits.decode.temperature"]


def test_what_the_producer_says_is_compared_once_it_was_asked() -> None:
    assert changes(frozen(), draft()) == ()
    other = probed(columns=(*COLUMNS, Column(name="label", type="int8")))
    [change] = changes(frozen(), draft(), other)
    assert change.field == "columns"
    assert change.now == ["row: int64", "image: binary", "label: int8"]


# --- what may be reused -------------------------------------------------------------------------------------


def test_units_count_for_another_contract_where_their_rows_are_the_same() -> None:
    old = frozen(("rows      = 2000", "rows = 1950"))
    new = frozen(("temperature = 1.0", "temperature = 0.8"), follows=old.digest)
    assert (units_of(old), units_of(new)) == (20, 20)
    found = reusable(old, new, [0, 1, 2, 5, 19])
    assert found is not None
    assert found.contract == old.digest
    assert found.units == ((0, 2), (5, 5)), "the last unit of the old one is shorter"
    assert reusable(old, new, []) is None
    assert reusable(old, new, [19]) is None
    less = frozen(("rows      = 2000", "rows = 250"))
    cut = reusable(old, less, range(20))
    assert cut is not None
    assert cut.units == ((0, 1),)


def test_wanted_units_are_reused_or_refused_by_name() -> None:
    old, new = frozen(("rows      = 2000", "rows = 1950")), frozen()
    assert require_reusable(old, new, range(20), [3, 1, 2]).units == ((1, 3),)
    for wanted, field, match in (
        ([3, 18], "reuse", r"unit 18 of contract [0-9a-f]{12} came to no receipt"),
        ([17, 19], "generate.digits.rows", r"unit 19 would have other rows: 1,950 rows .* now 2,000"),
        ([], "reuse", "no unit is named"),
    ):
        with pytest.raises(GateError, match=match) as caught:
            require_reusable(old, new, [*range(18), 19], wanted)
        assert caught.value.field == field


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (frozen(("unit_rows = 100", "unit_rows = 50")), "generate.digits.unit_rows"),
        (make_contract(draft(), probed(columns=COLUMNS[:1])), "columns"),
        (
            make_contract(draft(generate=FROM_INPUTS, inputs=INPUTS), probed()),
            "generate.digits.inputs",
        ),
    ],
)
def test_units_of_another_kind_are_not_reused(other: GenerationContract, field: str) -> None:
    for act in (lambda: reusable(other, frozen(), [0]), lambda: require_reusable(other, frozen(), [0], [0])):
        with pytest.raises(GateError, match="can be reused") as caught:
            act()
        assert caught.value.field == field


# --- units and spans ----------------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 60), st.integers(1, 7))
def test_units_divide_the_rows(rows: int, unit_rows: int, samples: int) -> None:
    # covers GEN-09, I3
    made = frozen().model_copy(update={"rows": rows, "unit_rows": unit_rows, "samples": samples})
    units = [unit_of(made, number) for number in range(units_of(made))]
    assert [row for unit in units for row in range(unit.first, unit.first + unit.rows)] == list(range(rows))
    assert len({unit_id(made.digest, unit.number) for unit in units}) == len(units)
    assert [input_of(made, row) for row in range(rows)] == [
        (row // samples, row % samples) for row in range(rows)
    ]
    for outside in (-1, len(units)):
        with pytest.raises(IndexError):
            unit_of(made, outside)


@given(st.sets(st.integers(0, 400)))
def test_spans_hold_exactly_their_units(units: set[int]) -> None:
    spans = spans_of(units)
    assert set(units_in(spans)) == units
    assert count_in(spans) == len(units)
    assert all(b[0] - a[1] > 1 for a, b in itertools.pairwise(spans)), "in order and apart"
    assert spans_of(np.array(sorted(units), dtype=np.int64)) == spans
    text = ",".join(f"{a}-{b}" if a != b else str(a) for a, b in spans)
    assert not units or parse_spans(text, units=401) == spans


def test_spans_are_read_as_people_write_them() -> None:
    assert parse_spans("0-57,60", units=61) == ((0, 57), (60, 60))
    assert parse_spans(" 60 , 3-5, 4-8,9 ", units=61) == ((3, 9), (60, 60))


@pytest.mark.parametrize(
    "text", ["", "a", "1-", "-1", "5-3", "61", "0-61", "1,,2", "1.5", "\u0663", "9" * 40]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_spans(text, units=61, field="--units")
    assert caught.value.field == "--units"
    assert caught.value.rule == "units from 0 to 60, such as 0-57,60"


def test_units_in_words() -> None:
    assert shown([7]) == "unit 7"
    assert shown([1, 0, 2, 5000]) == "units 0-2, 5,000"
    assert shown(range(0, 40, 2)) == "units 0, 2, 4, 6, 8, 10 and 14 more"
    assert numbers_of([3, 1, 3]).tolist() == [1, 3]
    assert spans_of(range(1_000_000)) == ((0, 999_999),)


# --- ways of decoding ---------------------------------------------------------------------------------------

LEAST = options.rule_of("min distance", field="generate.digits.quality")


def option(name: str, distance: float | None, whole_h: float, **other: Any) -> Option:
    whole_ms = round(3_600_000 * whole_h)
    return Option(
        **{
            "name": name,
            "decode": {"beams": 4},
            "rows": 100,
            "produced": 100,
            "took_ms": 1000,
            "quality": {"distance": distance},
            "whole_ms": whole_ms,
            "whole_cost": whole_ms,
            **other,
        }
    )


def test_a_rule_of_quality_is_read() -> None:
    assert (LEAST.mode, LEAST.metric) == ("min", "distance")
    assert options.rule_of("max coverage", field="x").mode == "max"
    for wrong in ("distance", "least distance", "min", "min  distance", "min a b", ""):
        with pytest.raises(PlanError) as caught:
            options.rule_of(wrong, field="generate.digits.quality")
        assert caught.value.field == "generate.digits.quality"


@pytest.mark.parametrize(
    ("own", "other", "dominates"),
    [
        ((0.20, 10.0), (0.20, 9.0), True),
        ((0.20, 10.0), (0.19, 9.0), True),
        ((0.20, 10.0), (0.20, 9.5), True),
        ((0.20, 10.0), (0.20, 9.6), False),  # less than 5 % cheaper
        ((0.20, 10.0), (0.21, 1.0), False),  # worse
        ((0.20, 10.0), (0.10, 11.0), False),  # better, and dearer
        ((0.20, 10.0), (None, 1.0), False),
        ((None, 10.0), (0.20, 9.0), True),
        ((None, 10.0), (None, 9.0), True),
        ((0.20, 0.0), (0.20, 0.0), False),
    ],
)
def test_which_option_dominates(
    own: tuple[float | None, float], other: tuple[float | None, float], dominates: bool
) -> None:
    # covers GEN-02
    found = options.dominating([option("decode", *own), option("greedy", *other)], LEAST)
    assert (found is not None) == dominates


def test_the_cheapest_of_those_that_dominate_is_named() -> None:
    made = [
        option("decode", 0.2, 10),
        option("greedy", 0.2, 8),
        option("fast", 0.2, 5),
        option("poor", 0.9, 1),
    ]
    found = options.dominating(made, LEAST)
    assert found is not None
    assert found.name == "fast"
    most = options.rule_of("max distance", field="x")
    found = options.dominating(made, most)
    assert found is not None
    assert found.name == "poor"
    assert options.dominating(made[:1], LEAST) is None


def test_a_small_gain_does_not_pay_for_a_large_loss_of_pace() -> None:
    # covers GEN-03
    made = [option("decode", 0.200, 10), option("greedy", 0.201, 5)]
    assert options.dominating(made, LEAST) is None
    found = options.dominating(made, LEAST, worthwhile=0.002)
    assert found is not None
    assert found.name == "greedy"


def test_a_dearer_way_needs_a_reason_and_nothing_is_switched() -> None:
    # covers GEN-02, GEN-03, GEN-01
    made = [option("decode", 0.2, 10), option("greedy", 0.19, 5)]
    with pytest.raises(GateError) as caught:
        options.require_undominated(made, LEAST, None, at="generate.digits")
    assert caught.value.field == "generate.digits.decode"
    assert caught.value.message == (
        "options.greedy is no worse than decode and takes 50.0 % less: "
        "decode: distance 0.2, 100 rows/s, 10 h for the whole set, 36.00; "
        "greedy: distance 0.19, 100 rows/s, 5 h for the whole set, 18.00"
    )
    options.require_undominated(made, LEAST, "the buyer asks for beams", at="generate.digits")
    options.require_undominated(made[:1], LEAST, None, at="generate.digits")
    assert options.facts(made, LEAST)[1] == ("greedy", "0.19", "100", "5", "18.00")


def test_a_metric_that_no_option_has_is_refused() -> None:
    made = [option("decode", None, 1, quality={"coverage": 0.5})]
    with pytest.raises(GateError) as caught:
        options.require_measured(made, LEAST, at="generate.digits")
    assert (caught.value.field, caught.value.rule) == ("generate.digits.quality", "one of coverage")
    options.require_measured([option("decode", None, 1)], LEAST, at="generate.digits")
