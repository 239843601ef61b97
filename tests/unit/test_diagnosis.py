"""Hypotheses and their tests: what decides nothing, which test is first, what an observation removes, and no more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from makebudget import PLAN
from makereview import refresh
from money import ADA, Account, amount, line, planned
from pydantic import ValidationError

from raykit.budget import acts
from raykit.budget.admit import Standing
from raykit.errors import GateError, InvalidInput, NotFoundError, PlanError, ReplanError, ReviewError
from raykit.ids import sha256
from raykit.plan import Diagnosis, load_plan
from raykit.records import Observed
from raykit.review import review
from raykit.review.claims import confirmed, overclaimed, require_source
from raykit.review.diagnosis import (
    UNPREDICTED,
    ended,
    flaws,
    next_test,
    observe,
    outcome,
    rank,
    rewritten,
    standing,
)

DIGEST = sha256(b"plan")


def diagnosis(hypotheses: Mapping[str, Any], tests: Mapping[str, Mapping[str, Any]]) -> Diagnosis:
    """A diagnosis as a plan file would say it; a hypothesis may be given as its `stop_after`."""
    said = {
        name: {"says": f"{name} is at fault", **({"stop_after": h} if isinstance(h, int) else {})}
        for name, h in hypotheses.items()
    }
    whole = {
        name: {"does": name, "cost_usd": 1.0, "covers": {"length": "1..64"}, **test}
        for name, test in tests.items()
    }
    return Diagnosis.model_validate({"hypotheses": said, "tests": whole})


def seen(
    of: Diagnosis,
    test: str,
    hypothesis: str | None,
    earlier: Sequence[Observed] = (),
    *,
    saw: str = "as written down",
    note: str | None = None,
) -> Observed:
    return observe(
        of,
        earlier,
        plan=DIGEST,
        test=test,
        hypothesis=hypothesis,
        saw=saw,
        note=note,
        person=ADA,
        scripted=False,
    )


def items(of: Diagnosis, **options: Any) -> list[tuple[str, str]]:
    return [(each.item, each.field) for each in flaws(of, **options)]


# --- the sources' own table: training fails on padded sequences only ---------------------------------------

PADDED: Mapping[str, Mapping[str, Any]] = {
    "fixture": {
        "does": "a reference fixture with unequal valid lengths",
        "cost_usd": 0.5,
        "covers": {"length": "1..64", "padding": "0..0.9", "rows": 128},
        "predicts": {"mask": "the error scales with the padding", "otherwise": "the reference's error"},
        "next": {"mask": "repair the objective before any full run", "otherwise": "vary the rate"},
        "note": "a correct fixture does not show that every production mask is valid",
    },
    "rates": {
        "does": "a small range of rates on the correct fixture",
        "cost_usd": 1.0,
        "predicts": {
            "rate": "finite first, then worse with the rate",
            "mask": "finite first, then worse with the rate",
            "otherwise": "no change with the rate",
        },
        "next": {
            "rate": "bound a stability screen",
            "mask": "bound a stability screen",
            "otherwise": "look at the batch",
        },
        "note": "a lower rate may hide a wrong denominator, and does not repair it",
    },
    "batch": {
        "does": "inspect the failing batch for values that are not finite",
        "cost_usd": 0.1,
        "predicts": {"row": "one record holds invalid values", "otherwise": "all values are finite"},
        "next": {"row": "repair the data contract", "otherwise": "run the fixture"},
        "note": "finite inputs leave the other three",
    },
    "small": {
        "does": "fit a clean small task with correct mechanics",
        "cost_usd": 2.0,
        "predicts": {"capacity": "it does not fit at this size", "otherwise": "it fits"},
        "next": {"capacity": "look into the representation", "otherwise": "go on with the fixture"},
        "note": "that it fits leaves the other three",
    },
}


def padded(**tests: Mapping[str, Any]) -> Diagnosis:
    names = {"mask": "", "rate": "", "row": "", "capacity": ""}
    return diagnosis(names, {**PADDED, **tests})


# covers GOLD-11, PLAN-45, PLAN-47
@pytest.mark.parametrize(
    ("test", "hypothesis", "following"),
    [
        ("fixture", "mask", "repair the objective before any full run"),
        ("rates", "rate", "bound a stability screen"),
        ("batch", "row", "repair the data contract"),
        ("small", "capacity", "look into the representation"),
    ],
)
def test_gold_11_each_observation_maps_to_its_next_decision(
    test: str, hypothesis: str, following: str
) -> None:
    of = padded()
    assert items(of) == []
    found = seen(of, test, hypothesis)
    assert found.next == following
    assert hypothesis in found.supports
    assert set(found.supports) | set(found.removed) == set(of.hypotheses)
    for name, each in of.tests.items():
        row = {h: (each.prediction(h), each.branch(h)) for h in of.hypotheses}
        assert all(prediction and branch for prediction, branch in row.values()), name


PADDED_TOML = """
[diagnosis.hypotheses]
mask = { says = "the mask's denominator is wrong" }
rate = { says = "the rate is too high" }

[diagnosis.tests.fixture]
does     = "a reference fixture"
cost_usd = 0.5
covers   = { length = "1..64" }
predicts = { mask = "scales with the padding", rate = "does not" }
next     = { mask = "repair it", rate = "vary the rate" }
"""


def plan_of(tables: str) -> Any:
    text = PLAN.format(name="padded", updates=40, rate="2.99", account="corp", ceiling="900") + tables
    return load_plan(text.encode(), where="padded.toml")


# covers GOLD-11, PLAN-45, PLAN-47, PLAN-48, PLAN-49
@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (', rate = "vary the rate" }', " }", "diagnosis.tests.fixture.next.rate"),
        (', rate = "does not" }', " }", "diagnosis.tests.fixture.predicts.rate"),
        ('next     = { mask = "repair it", rate = "vary the rate" }', "", "diagnosis.tests.fixture.next"),
        ("cost_usd = 0.5\n", "", "diagnosis.tests.fixture.cost_usd"),
        ('covers   = { length = "1..64" }\n', "", "diagnosis.tests.fixture.covers"),
    ],
)
def test_a_row_without_its_prediction_branch_or_cost_is_refused(old: str, new: str, field: str) -> None:
    assert plan_of(PADDED_TOML).diagnosis.tests["fixture"].branch("rate") == "vary the rate"
    with pytest.raises(PlanError) as refused:
        plan_of(PADDED_TOML.replace(old, new))
    assert [finding.field for finding in refused.value.findings] == [field]


# covers PLAN-45
def test_one_explanation_alone_competes_with_nothing() -> None:
    of = diagnosis(
        {"mask": ""}, {"fixture": {"predicts": {"mask": "it scales"}, "next": {"mask": "repair it"}}}
    )
    assert items(of) == [("PLAN-45", "diagnosis.hypotheses")]


# --- two tests at one price: where does a factor of two in the gradients come from? ------------------------

AGAIN = {
    "does": "another epoch at the same batch size",
    "predicts": {"reduction": "The loss falls as before", "accumulation": "the loss  falls as BEFORE"},
    "next": {"reduction": "measure gradients", "accumulation": "measure gradients"},
}
GRADIENTS = {
    "does": "gradients of one and of two examples, cleared, then repeated without clearing",
    "predicts": {
        "reduction": "1 and 4 cleared; the second pass adds the same again",
        "accumulation": "1 and 2 cleared; the first pass is doubled already",
    },
    "next": {"reduction": "inspect the reduction", "accumulation": "inspect what clears the gradients"},
}
FACTOR = {"reduction": "", "accumulation": ""}


# covers GOLD-12, PLAN-46, PLAN-58, PLAN-59
@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_gold_12_the_test_that_tells_them_apart_is_first(order: tuple[str, str]) -> None:
    tests = {"a": AGAIN, "b": GRADIENTS}
    of = diagnosis(FACTOR, {name: tests[name] for name in order})
    first, second = rank(of)
    assert (first.name, first.flag) == ("b", None)
    assert second.name == "a"
    assert second.flag == "low diagnostic value: the same under every hypothesis"
    (flaw,) = flaws(of)
    assert (flaw.item, flaw.field) == ("PLAN-46", "diagnosis.tests.a.predicts")
    assert flaw.title == "low diagnostic value"
    following = next_test(of, [])
    assert following is not None
    assert following.name == "b"


# covers PLAN-46, PLAN-59
def test_the_cheapest_test_is_not_the_discriminating_one_even_with_an_override() -> None:
    cheap = {**AGAIN, "cost_usd": 0.01}
    (flaw,) = flaws(diagnosis(FACTOR, {"a": cheap, "b": GRADIENTS}))
    assert flaw.item == "PLAN-46"
    assert "cheapest" in flaw.problem

    overridden = {**cheap, "override": "the curve is wanted for the report"}
    of = diagnosis(FACTOR, {"a": overridden, "b": GRADIENTS})
    assert items(of) == []
    assert [each.name for each in rank(of)] == ["b", "a"]
    after = seen(of, "b", "reduction")
    assert next_test(of, [after]) is None, "what cannot change the decision is not run because it is cheap"

    alone = diagnosis(FACTOR, {"a": overridden})
    assert items(alone) == [("PLAN-59", "diagnosis.tests")]
    assert next_test(alone, []) is None
    assert ended(alone, []) == "nothing tells them apart"


# covers PLAN-58, PLAN-49
def test_tests_are_ranked_by_what_they_tell_apart_then_cost_then_pairs() -> None:
    names = {"x": "", "y": "", "z": ""}

    def test(cost: float, **predicts: str) -> dict[str, Any]:
        follow = {name: f"after {text}" for name, text in predicts.items()}
        return {"cost_usd": cost, "predicts": predicts, "next": follow, "note": "which of them is open"}

    of = diagnosis(
        names,
        {
            "useless": test(0.1, otherwise="the same"),
            "dear": test(3.0, x="1", y="2", z="3"),
            "one": test(1.0, x="1", otherwise="2"),
            "all": test(1.0, x="1", y="2", z="3"),
        },
    )
    assert [(each.name, each.pairs, each.test.cost_usd) for each in rank(of)] == [
        ("all", 3, 1.0),
        ("one", 2, 1.0),
        ("dear", 3, 3.0),
        ("useless", 0, 0.1),
    ]
    left = rank(of, among=["y", "z"])
    assert [each.name for each in left] == ["all", "dear", "useless", "one"], "x is gone: `one` says nothing"


# covers PLAN-48
def test_a_test_that_does_the_same_whatever_is_seen_is_refused() -> None:
    blind = {**GRADIENTS, "next": {"otherwise": "run the whole thing"}}
    assert items(diagnosis(FACTOR, {"b": blind})) == [("PLAN-48", "diagnosis.tests.b.next")]


# covers PLAN-55
def test_several_hypotheses_with_one_prediction_need_a_note() -> None:
    bare = {key: value for key, value in PADDED["rates"].items() if key != "note"}
    of = padded(rates=bare)
    assert items(of) == [("PLAN-55", "diagnosis.tests.rates.note")]
    (flaw,) = flaws(of)
    assert flaw.asks
    assert "mask and rate both predict" in flaw.problem
    assert "row and capacity both predict" in flaw.problem

    with pytest.raises(InvalidInput, match="does not tell them apart") as refused:
        seen(of, "rates", "rate")
    assert refused.value.field == "--note"
    noted = seen(of, "rates", "rate", note="the denominator may be wrong all the same")
    assert noted.supports == ("mask", "rate"), "all that predicted it are listed"
    assert noted.note == "the denominator may be wrong all the same"
    with pytest.raises(ValidationError, match="needs a note"):
        Observed.model_validate({**noted.model_dump(), "note": None})


# covers PLAN-61
@pytest.mark.parametrize(
    "covers",
    [
        {"sealed": "all rows"},
        {"split": "report_only"},
        {"split": "Report-only rows"},
        {"rows": "the final hold-out"},
        {"rows": ["train", "sealed"]},
        {"source": "s3://corp/test@v1"},
        {"search": "a wider final test"},
    ],
)
def test_screening_does_not_read_the_final_holdout(covers: Mapping[str, Any]) -> None:
    of = diagnosis(FACTOR, {"b": {**GRADIENTS, "covers": covers, "override": "it is there anyway"}})
    (key,) = covers
    assert items(of, holdouts=["s3://corp/test@v1"]) == [("PLAN-61", f"diagnosis.tests.b.covers.{key}")]


# covers PLAN-61
def test_what_selects_may_be_read() -> None:
    of = diagnosis(FACTOR, {"b": {**GRADIENTS, "covers": {"split": "development", "label": "unsealed bag"}}})
    assert items(of, holdouts=["s3://corp/test@v1"]) == []


# --- what an observation does -------------------------------------------------------------------------------


# covers PLAN-54, PLAN-56
def test_an_observation_removes_and_says_at_which_inputs() -> None:
    found = seen(padded(), "fixture", "rate", saw="the reference's error at every length")
    assert found.removed == ("mask",)
    assert found.covers == {"length": "1..64", "padding": "0..0.9", "rows": "128"}
    assert outcome(found) == "hypotheses removed: mask (at length = 1..64, padding = 0..0.9, rows = 128)"
    assert standing(padded(), [found]) == ("rate", "row", "capacity")


# covers PLAN-53
def test_a_hypothesis_is_dropped_after_as_many_failures_as_it_said() -> None:
    tests = {name: {**GRADIENTS, "does": name} for name in ("first", "second")}
    of = diagnosis({"reduction": "", "accumulation": 2}, tests)
    one = seen(of, "first", "reduction")
    assert (one.removed, one.failed) == ((), ("accumulation",))
    assert standing(of, [one]) == ("reduction", "accumulation")
    assert outcome(one).startswith("no hypothesis removed")
    two = seen(of, "second", "reduction", [one])
    assert (two.removed, two.failed) == (("accumulation",), ())
    assert standing(of, [one, two]) == ("reduction",)
    assert ended(of, [one, two]) == "one left"

    alone = diagnosis({"reduction": "", "accumulation": 2}, {"first": tests["first"]})
    again = next_test(alone, [one])
    assert again is not None, "one more failure of the same test drops it"
    assert again.name == "first"
    assert next_test(alone, [one, seen(alone, "first", "reduction", [one], saw="again")]) is None


SWAPPED = {
    "mask": PADDED["fixture"]["predicts"]["otherwise"],
    "otherwise": PADDED["fixture"]["predicts"]["mask"],
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"predicts": SWAPPED}, "diagnosis.tests.fixture.predicts.mask"),
        ({"next": {"mask": "vary the rate", "otherwise": "go on"}}, "diagnosis.tests.fixture.next.mask"),
        (None, "diagnosis.tests.fixture"),
    ],
)
def test_what_was_predicted_predates_what_was_seen(change: Mapping[str, Any] | None, field: str) -> None:
    """covers PLAN-73: an observed test is neither reworded nor taken out, and nothing more is observed until then"""
    first = seen(padded(), "fixture", "rate")
    assert first.predicts["row"] == "the reference's error", "what stands for all others is kept by name"
    assert first.next_by["mask"] == "repair the objective before any full run"
    if change is None:
        now = diagnosis(
            dict.fromkeys(padded().hypotheses, ""), {k: v for k, v in PADDED.items() if k != "fixture"}
        )
    else:
        now = padded(fixture={**PADDED["fixture"], **change})
    found = next(rewritten(now, [first]))
    assert (found.item, found.field) == ("PLAN-73", field)
    with pytest.raises(ReviewError, match="what was predicted predates what was seen"):
        seen(now, "batch", "row", [first])


# covers PLAN-73
def test_a_hypothesis_means_what_it_meant_and_others_may_come() -> None:
    first = seen(padded(), "fixture", "rate")
    given = padded().model_dump(mode="json")
    reworded = {**given["hypotheses"], "rate": {"says": "mask is at fault"}}
    (found,) = rewritten(Diagnosis.model_validate({**given, "hypotheses": reworded}), [first])
    assert found.field == "diagnosis.hypotheses.rate"
    without = {name: h for name, h in given["hypotheses"].items() if name != "row"}
    left_out = rewritten(Diagnosis.model_validate({**given, "hypotheses": without}), [first])
    assert [each.field for each in left_out] == ["diagnosis.hypotheses.row"]

    more = {**given["hypotheses"], "order": {"says": "the rows come in another order"}}
    tests = {**given["tests"], "sorted": {**given["tests"]["small"], "does": "the same rows in one order"}}
    more_of_it = Diagnosis.model_validate({"hypotheses": more, "tests": tests})
    assert list(rewritten(more_of_it, [first])) == [], "new ones may come"
    blank = given["tests"]["fixture"] | {
        "predicts": {"mask": "The error  scales with the padding", "otherwise": "the reference's error"}
    }
    assert list(rewritten(padded(fixture=blank), [first])) == [], "case and blanks say nothing"


# covers PLAN-73
def test_an_observation_that_kept_no_predictions_is_held_against_none() -> None:
    old = seen(padded(), "fixture", "rate").model_copy(
        update={"predicts": {}, "next_by": {}, "hypotheses": {}}
    )
    swapped = padded(fixture={**PADDED["fixture"], "predicts": SWAPPED})
    assert list(rewritten(swapped, [old])) == []
    assert seen(swapped, "batch", "row", [old]).removed == ("mask", "rate", "capacity")


# covers PLAN-73
def test_the_review_of_a_plan_says_it_too() -> None:
    first = seen(padded(), "fixture", "rate")
    plan = refresh().plan.model_copy(
        update={"diagnosis": padded(fixture={**PADDED["fixture"], "predicts": SWAPPED})}
    )
    before = {finding.field for finding in review(replace(refresh(), plan=plan)).findings}
    found = review(replace(refresh(), plan=plan, observed=(first,))).findings
    new = {(finding.item, finding.field) for finding in found if finding.field not in before}
    assert new == {("PLAN-73", f"diagnosis.tests.fixture.predicts.{name}") for name in padded().hypotheses}


# covers PLAN-56
def test_what_nobody_predicted_removes_nothing() -> None:
    of = padded()
    found = seen(of, "fixture", None, saw="the loss is 0 from the first update")
    assert (found.supports, found.removed, found.failed) == ((), (), ())
    assert found.next == UNPREDICTED
    assert standing(of, [found]) == tuple(of.hypotheses)


def test_observations_only_remove() -> None:
    of = padded()
    gone = seen(of, "fixture", "rate")
    back = seen(of, "rates", "mask", [gone])
    assert "mask" in back.supports
    assert "mask" not in standing(of, [gone, back]), "nothing brings a hypothesis back"


@pytest.mark.parametrize(
    ("test", "hypothesis", "field"), [("nowhere", "mask", "TEST"), ("fixture", "x", "--as")]
)
def test_what_the_plan_does_not_have_is_refused(test: str, hypothesis: str, field: str) -> None:
    with pytest.raises(NotFoundError) as refused:
        seen(padded(), test, hypothesis)
    assert refused.value.field == field
    assert refused.value.rule is not None


# covers PLAN-65
def test_the_tree_ends_without_any_full_run() -> None:
    of = padded()
    first = seen(of, "batch", "row")
    assert standing(of, [first]) == ("row",)
    assert next_test(of, [first]) is None
    assert ended(of, [first]) == "one left"
    rest = [
        first,
        Observed.model_validate({**seen(of, "small", "capacity").model_dump(), "removed": ("row",)}),
    ]
    assert ended(of, rest) == "none left"


# --- nothing is called proved -------------------------------------------------------------------------------


# covers PLAN-56
@pytest.mark.parametrize(
    "text",
    [
        "stable",
        "is stable",
        "training is now stable at every length",
        "finite and stable",
        "stability proved",
        "this proves the mask right",
        "the screen is proof of the method",
        "shows stability",
        "stability is established",
        "not enough rows, and yet it proves the point",
    ],
)
def test_a_claim_of_proof_is_refused_in_what_was_seen_and_in_its_note(text: str) -> None:
    assert overclaimed(text) is not None
    for field, words in (("--saw", {"saw": text}), ("--note", {"note": text})):
        with pytest.raises(InvalidInput, match="proves nothing else") as refused:
            seen(padded(), "fixture", "rate", **words)
        assert refused.value.field == field
        assert refused.value.rule is not None, "it says what can be said"


@pytest.mark.parametrize(
    "text",
    [
        "unstable from update 30 on",
        "it is not stable",
        "finite for 200 updates at length 64",
        "this does not prove that every mask is valid",
        "nothing is proved by it",
        "a proof-of-concept run of 2026-10-02",
        "instability grows with the rate",
    ],
)
def test_what_was_seen_can_be_said(text: str) -> None:
    assert overclaimed(text) is None


def test_words_that_confirm() -> None:
    assert confirmed("this confirms the pilot") == "confirms"
    assert confirmed("a confirmation at full length") == "confirmation"
    assert confirmed("not confirmed yet") is None


# covers DISP-11
@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("measured", "names nothing that can be looked up"),
        ("we know it", "names nothing that can be looked up"),
        ("estimated from 3 runs", "an assertion"),
        ("assumed to be 2 s", "an assertion"),
        ("standard practice, 2026", "an assertion"),
        ("run <name>, gate 1", "a blank"),
        ("invoice TBD 2026", "a blank"),
        ("invoice ...", "a blank"),
    ],
)
def test_a_figure_without_a_source_is_no_evidence(how: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as refused:
        require_source(how, field="--how")
    assert refused.value.rule == "the run, gate, bill or file that it is from, with its id or date"


# covers DISP-11
@pytest.mark.parametrize(
    "how", ["invoice 2026-10", "gate of run lm1b-07", "docs/bills/october.pdf", "wc -l of docs@v7"]
)
def test_a_source_that_can_be_looked_up_passes(how: str) -> None:
    assert require_source(how, field="--how") == how


# --- golden: the screen that does not transfer --------------------------------------------------------------

TRACE = "a trace at the target shape, and a controlled test there"
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "short": {
        "does": "200 updates at length 64",
        "covers": {"length": "64"},
        "predicts": {
            "kernel": "it diverges at length 64",
            "init": "it diverges at length 64",
            "shape": "it is finite at length 64",
        },
        "next": {"kernel": "repair the kernel", "init": "repair the kernel", "shape": TRACE},
        "note": "a divergence leaves both local defects",
    },
    "long": {
        "does": "a trace at length 2,000",
        "cost_usd": 4.0,
        "covers": {"length": "2000"},
        "predicts": {"shape": "it diverges as the length grows", "otherwise": "the length changes nothing"},
        "next": {"shape": "look at what the length changes", "otherwise": "look at the rows"},
        "note": "no change leaves the local defects",
    },
}


# covers GOLD-10, PLAN-56, PLAN-54
def test_gold_10_a_screen_at_length_64_removes_hypotheses_there_and_nothing_else() -> None:
    of = diagnosis({"kernel": "", "init": "", "shape": ""}, SHAPES)
    assert items(of) == []
    screen = seen(of, "short", "shape", saw="finite for 200 updates at length 64")
    assert outcome(screen) == "hypotheses removed: kernel, init (at length = 64)"
    assert screen.next == TRACE
    for claim in ("stable", "stability proved at length 64"):
        with pytest.raises(InvalidInput, match="proves nothing else"):
            seen(of, "short", "shape", saw=claim)
    assert set(Observed.model_fields).isdisjoint({"proved", "stable", "verdict", "passed"})
    assert standing(of, [screen]) == ("shape",), "and that one is left alone does not make it true"
    diverged = seen(of, "long", "shape", [screen], saw="diverges from length 900 on")
    assert diverged.covers == {"length": "2000"}
    assert screen.covers == {"length": "64"}, "what was removed stays removed at the length that was tried"


# --- golden: the five questions of the lesson ---------------------------------------------------------------

NAN: Mapping[str, Mapping[str, Any]] = {
    "local": {
        "does": "inputs, loss terms and gradients of a tiny batch",
        "cost_usd": 0.1,
        "predicts": {
            "input": "an input is not finite",
            "loss": "a loss term is not finite",
            "gradient": "only a gradient is not finite",
        },
        "next": {
            "input": "repair the data",
            "loss": "repair the objective",
            "gradient": "test the first update",
        },
    }
}
CAUSES = {"input": "", "loss": "", "gradient": ""}


def same(does: str, **more: Any) -> dict[str, Any]:
    """A test that shows the same whatever is the case."""
    return {
        "does": does,
        "predicts": {"otherwise": "not finite again"},
        "next": {"otherwise": "try more"},
        **more,
    }


# covers GOLD-33, PLAN-46, PLAN-61
def test_gold_33_question_1_a_failed_first_step_asks_for_a_local_look() -> None:
    of = diagnosis(CAUSES, NAN)
    following = next_test(of, [])
    assert following is not None
    assert following.name == "local"  # C

    account = Account("accelerator-hours")
    lines = [line("comparison", "comparison", 12, a=6, b=6), line("confirmation", "confirmation", 8)]
    account.plan(planned("nan", 20, lines), approve=True)
    failed = Standing(failed=("first",))
    before = account.raw()
    for lease in ("more-seeds", "longer"):  # A, D: full runs behind a prerequisite that failed
        with pytest.raises(GateError, match="first"):
            account.reserve(lease, "nan", "comparison", 6, standing=failed)
    assert account.raw() == before
    wrong = {
        "seeds": same("more seeds at full scale"),
        "longer": same("a longer schedule, to average the failures away"),
        "search": {**NAN["local"], "covers": {"rows": "a wider final-test search"}},  # B
    }
    found = items(diagnosis(CAUSES, {**NAN, **wrong}))
    assert found == [
        ("PLAN-46", "diagnosis.tests.seeds.predicts"),
        ("PLAN-46", "diagnosis.tests.longer.predicts"),
        ("PLAN-61", "diagnosis.tests.search.covers.rows"),
    ]


# covers GOLD-33, PLAN-55, PLAN-56
def test_gold_33_question_2_a_lower_rate_hides_a_denominator_and_repairs_none() -> None:
    of = padded()
    lower = seen(of, "rates", "rate", saw="worse above a rate of 1e-3, finite below")
    assert "mask" in standing(of, [lower]), "A: the objective may still weigh its terms wrongly"
    assert lower.note == "a lower rate may hide a wrong denominator, and does not repair it"
    for claim in (
        "a stable curve proves that the denominator is the one that was meant",  # B
        "the rate proved to restore the weight of every example",  # C
        "shown: the rate is proof enough of the global count of valid tokens",  # D
    ):
        with pytest.raises(InvalidInput, match="proves nothing else"):
            seen(of, "rates", "rate", saw=claim)
    # C, D: that only the denominator would make the rate matter cannot be recorded: both had predicted it
    assert lower.supports == ("mask", "rate")


# covers GOLD-33, PLAN-56, PLAN-45
def test_gold_33_question_3_a_short_screen_leaves_the_target_shape_open() -> None:
    of = diagnosis({"kernel": "", "init": "", "shape": ""}, SHAPES)
    screen = seen(of, "short", "shape", saw="finite for 200 updates at length 64")
    assert (screen.removed, screen.next) == (("kernel", "init"), TRACE)  # D
    with pytest.raises(InvalidInput):  # A
        seen(of, "short", "shape", saw="passing it proves the whole method; long failures are left out")
    one_cause = diagnosis({"seeds": ""}, {"seeds": same("more seeds")})
    assert items(one_cause) == [("PLAN-45", "diagnosis.hypotheses")]  # B
    one_length = same("length 64 again, as all lengths are alike")
    assert ("PLAN-46", "diagnosis.tests.again.predicts") in items(  # C
        diagnosis({"kernel": "", "init": "", "shape": ""}, {**SHAPES, "again": one_length})
    )


# covers GOLD-33, GOLD-12, PLAN-58
def test_gold_33_question_4_gradients_of_one_and_two_examples_tell_them_apart() -> None:
    wrong = {
        "epoch": same("another full epoch at the same batch size"),  # A
        "accuracy": same("only the final accuracy after a new seed"),  # C
        "larger": same("only a larger model under the same bug"),  # D
    }
    of = diagnosis(FACTOR, {**wrong, "gradients": GRADIENTS})
    assert rank(of)[0].name == "gradients"  # B
    assert items(of) == [("PLAN-46", f"diagnosis.tests.{name}.predicts") for name in wrong]


# covers GOLD-33, GOLD-04, GOLD-05, GOLD-06, GOLD-07
def test_gold_33_question_5_an_overrun_is_replanned_in_the_open() -> None:
    def lines(audit: float, screen: float, confirm: float, *, baseline: float = 6) -> list[Any]:
        return [
            line("audit", "screening", audit),
            line("screen", "screening", screen),
            line("comparison", "comparison", 6 + baseline, baseline=baseline, candidate=6),
            line("confirmation", "confirmation", confirm),
        ]

    account = Account("accelerator-hours")
    account.plan(planned("teaching", 20, lines(2, 2, 4)), approve=True)
    account.spend("audit-1", "teaching", "audit", 2, 1.5)
    account.spend("screen-1", "teaching", "screen", 2, 4.5)
    allocation = account.allocation("teaching")
    assert allocation.actual == amount(6)
    assert allocation.reserve_left() == amount(2)
    with pytest.raises(ReplanError):
        account.reserve("baseline", "teaching", "comparison", 6)

    def replan(to: list[Any]) -> None:
        account.ask(
            lambda book: acts.replan(
                book, "teaching", to, ceiling=amount(20), reason="screening took 6", person=ADA
            )
        )

    before = account.raw()
    with pytest.raises(InvalidInput, match="sum to 22"):  # A
        replan(lines(1.5, 4.5, 4))
    with pytest.raises(ReplanError, match="uncovered"):  # B
        replan(lines(1.5, 2.5, 4))
    with pytest.raises(InvalidInput, match="arms differ"):  # D
        replan(lines(1.5, 4.5, 4, baseline=4))
    assert account.raw() == before
    replan(lines(1.5, 4.5, 2))  # C
    assert account.allocation("teaching").replans == 1
    assert account.reserve("baseline", "teaching", "comparison", 6) is not None
    assert account.sound()
