"""Rules around the twenty items: screening or confirmation, reasons, categories, and what earlier results mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from makereview import (
    USD,
    based,
    comparing,
    digits,
    fresh,
    fresh_with_reasons,
    negative,
    paid,
    planned,
    refresh,
    search,
)

from raykit.errors import PlanError, ReviewError
from raykit.plan import RowChange
from raykit.review import Evidence, Seen, judged, require_passed, review, stage_of, words
from raykit.review.afterwards import amendments, deviations

SAME = RowChange(before=100, after=100, added=0, removed=0, relabelled=0)


def broken(evidence: Evidence) -> list[str]:
    return [finding.item for finding in review(evidence).findings]


def problem(evidence: Evidence, item: str) -> str:
    return "; ".join(finding.problem for finding in review(evidence).findings if finding.item == item)


# --- screening or confirmation ------------------------------------------------------------------------------

PROTOCOL = {
    "updates": 14_300,
    "batch": 512,
    "params": {"context": 2048},
    "train": list(refresh().plan.data.train),
}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"run.updates": 20_000}, None),
        ({"run.updates": 14_299}, "14,299 updates, and the protocol has 14,300"),
        ({"run.batch": 256}, "a batch of 256, and the protocol has 512"),
        ({"run.params.context": 64}, "context is 64, and the protocol has 2048"),
        ({"run.params.context": None}, "context is not set"),
        ({"data.train": ["s3://corp/docs@v7"]}, "it trains on s3://corp/docs@v7, and the protocol on"),
        ({"base.start": "pilot"}, "a pilot"),
        ({"base.start": "use"}, None),
    ],
)
def test_it_confirms_only_at_the_target(changes: Mapping[str, Any], says: str | None) -> None:
    """covers PLAN-50, PLAN-57: as long, as large, with the same params and rows"""
    stage, why = stage_of(planned(refresh(), {"protocol": PROTOCOL, **changes}).plan)
    assert stage == ("confirmation" if says is None else "screening")
    assert says is None or says in why


def test_a_short_context_does_not_cover_a_long_one() -> None:
    """covers GOLD-10, PLAN-57"""
    plan = planned(digits(), protocol={"params": {"context": 2000}}, run__params={"context": 64}).plan
    assert stage_of(plan) == ("screening", "context is 64, and the protocol has 2000")
    assert stage_of(
        planned(digits(), protocol={"params": {"context": 2000}}, run__params={"context": 2000}).plan
    )[0] == ("confirmation")


def test_a_search_and_a_diagnosis_only_screen() -> None:
    """covers PLAN-50, PLAN-51"""
    assert stage_of(search().plan) == (
        "screening",
        "a search ranks settings (12 rows: 8 trials and 2 x 2 repeats)",
    )
    assert stage_of(digits().plan)[0] == "confirmation"
    assert "diagnosis" in stage_of(planned(digits(), diagnosis=DIAGNOSIS).plan)[1]


def test_a_screen_is_kept_as_a_screen() -> None:
    """covers PLAN-50: nothing in a plan can call it a confirmation"""
    assert judged(search(), review(search())).stage == "screening"
    with pytest.raises(ValueError, match="stage"):
        planned(search(), stage="confirmation")


def test_a_screen_promotes_nothing() -> None:
    """covers PLAN-51"""
    promoting = replace(
        planned(comparing(), comparison__promote={"ratio": "< 0.3"}), promote_approved=("ratio",)
    )
    assert broken(promoting) == []
    assert broken(planned(promoting, protocol={"updates": 20_000})) == ["PLAN-51"]


# --- how strict it is ---------------------------------------------------------------------------------------


def first_big_run() -> Evidence:
    """A first paid run above $5, with nothing said about what it is worth."""
    return paid(capped(), billed=True, worst=40 * USD)


def capped() -> Evidence:
    return planned(digits(), generate__digits__wall_h=1.0)


def test_the_five_questions_are_asked_where_the_store_cannot_answer() -> None:
    """covers PLAN-29, PLAN-30, PLAN-31, PLAN-32, PLAN-33"""
    bare = {"base.against_as_is": None, "base.against_pilot": None, "if_no": None}
    evidence = replace(planned(refresh(), bare), pilot=None, change=SAME, settings=())
    asked = {finding.item: finding for finding in review(evidence).findings}
    for item, field in (
        ("PLAN-29", "value.remains"),
        ("PLAN-30", "value.changes"),
        ("PLAN-31", "value.matters"),
        ("PLAN-32", "value.justifies"),
        ("PLAN-33", "value.first"),
    ):
        assert asked[item].field == field and asked[item].asks
    with pytest.raises(PlanError):
        require_passed(evidence, review(evidence))


ANSWERS: dict[str, list[Callable[[Evidence], Evidence]]] = {
    "PLAN-29": [
        lambda e: planned(e, base__against_as_is="It has seen 0 of the new sources."),
        lambda e: planned(e, value={"remains": "Whether code improves by 0.004."}),
    ],
    "PLAN-30": [
        lambda e: planned(e, if_no="Keep it."),
        lambda e: planned(e, value={"changes": "A drop of 0.004 keeps lm1b-prod."}),
    ],
    "PLAN-31": [
        lambda e: replace(e, change=refresh().change),
        lambda e: replace(e, settings=("run.params.lr: 1 -> 2",)),
        lambda e: planned(e, value={"matters": "The order of rows differs: 2 seeds."}),
    ],
    "PLAN-32": [
        lambda e: replace(e, pilot=refresh().pilot),
        lambda e: planned(e, base__against_pilot="Done: 0.004 +/- 0.002."),
        lambda e: planned(e, value={"justifies": "0.004 for $208."}),
    ],
    "PLAN-33": [
        lambda e: replace(e, pilot=refresh().pilot),
        lambda e: planned(e, base__against_pilot="Done: 0.004 +/- 0.002."),
        lambda e: planned(e, base__start="pilot"),
        lambda e: planned(e, value={"first": "Below 10,000 updates nothing is seen."}),
        lambda e: planned(e, diagnosis=DIAGNOSIS),
    ],
}


@pytest.mark.parametrize(
    ("item", "number"), [(item, n) for item, all_ in ANSWERS.items() for n in range(len(all_))]
)
def test_each_question_is_answered_by_the_store_or_in_words(item: str, number: int) -> None:
    """covers PLAN-29, PLAN-30, PLAN-31, PLAN-32, PLAN-33"""
    bare = {"base.against_as_is": None, "base.against_pilot": None, "if_no": None}
    evidence = replace(planned(refresh(), bare), pilot=None, change=SAME, settings=())
    assert item in broken(evidence) and item not in broken(ANSWERS[item][number](evidence))


def test_a_first_run_answers_most_by_itself() -> None:
    """covers PLAN-29, PLAN-31: without weights for the decision nothing has answered it"""
    assert broken(first_big_run()) == ["PLAN-32", "PLAN-33"]
    said = {
        "justifies": "0.05 below pca-8 is worth $40.",
        "first": "Below 1,000 updates every latent is empty.",
    }
    assert broken(planned(first_big_run(), value=said)) == []


def test_no_pilot_is_demanded_for_a_full_run() -> None:
    """covers PLAN-71: a reason is enough"""
    evidence = planned(first_big_run(), value={"justifies": "0.05.", "first": "Nothing shorter shows 0.05."})
    assert evidence.pilot is None and broken(evidence) == []


def test_only_paid_work_above_five_dollars_or_a_restart_is_asked() -> None:
    """covers PLAN-32: below, nothing but the plan itself is judged"""
    assert broken(paid(capped(), billed=True, worst=4_999_999)) == []
    assert broken(paid(capped(), billed=True, worst=5 * USD)) == ["PLAN-32", "PLAN-33"]
    assert broken(paid(capped(), billed=True, ceiling=5 * USD, lines=())) == ["PLAN-32", "PLAN-33"]
    assert broken(paid(capped(), billed=False, worst=5 * USD)) == []
    assert broken(paid(capped(), billed=True, unit="accelerator-hours")) == ["PLAN-32", "PLAN-33"]
    cheap = paid(fresh(), worst=4 * USD, ceiling=4_500_000, charged=0, lines=())
    assert cheap.strict and "PLAN-16" in broken(cheap) and "REVIEW-10" not in broken(cheap)


def test_no_finding_asks_for_rows_that_were_held_out() -> None:
    """covers PLAN-20: a development slice outside the final weights is an outcome like any other"""
    evidence = planned(refresh(), base__start="use")
    assert evidence.rows["development"] == 20_000 and broken(evidence) == []
    assert broken(digits()) == [] and digits().rows["development"] > 0


# --- a fresh start ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "item"),
    [("reason", "PLAN-16"), ("because", "PLAN-17"), ("invalid_without", "PLAN-18")],
)
def test_a_fresh_start_says_why(key: str, item: str) -> None:
    """covers PLAN-16, PLAN-17, PLAN-18"""
    evidence = planned(fresh_with_reasons(), {f"base.{key}": None})
    assert broken(evidence) == [item]
    with pytest.raises(PlanError) as asked:
        require_passed(evidence, review(evidence))
    assert asked.value.findings[0].field == f"base.{key}"


def test_the_store_goes_before_the_reason_that_is_named() -> None:
    """covers PLAN-17: a data set that did not change is no materially changed one"""
    evidence = replace(fresh_with_reasons(), change=SAME)
    assert broken(evidence) == ["PLAN-17"] and "0 of 100 (0.0%)" in problem(evidence, "PLAN-17")


def test_replay_has_its_weights() -> None:
    """covers PLAN-15"""
    evidence = planned(refresh(), base__start="replay", base__against_continue="1 % off.")
    assert broken(evidence) == []
    assert broken(planned(evidence, data__mix=None)) == ["PLAN-15"]
    rows = planned(evidence, {"data": None, "splits": {"group": "doc", "train": 0.8, "development": 0.2}})
    (found,) = [each for each in review(rows).findings if each.item == "PLAN-15"]
    assert (found.field, found.asks, found.remedy) == ("base.start", False, 'start = "continue"')


def test_replay_is_possible_where_shares_are_said() -> None:
    """covers PLAN-15: rows that the recipe brings as one are not mixed, and no reason is asked against it"""
    reasons = {"base.against_continue": "1 % off.", "base.against_replay": None}
    asked = planned(fresh_with_reasons(), reasons)
    assert "base.against_replay" in {each.field for each in review(asked).findings}
    for edit, why in (({"data.mix": None}, "no mix"), ({"data": None}, "as one")):
        left = planned(asked, edit)
        replay = next(each for each in review(left).options if each.option == "replay")
        assert not replay.possible and why in (replay.against or "")
        assert "base.against_replay" not in {each.field for each in review(left).findings}


def test_a_result_that_is_there_is_not_paid_for_again() -> None:
    """covers PLAN-37"""
    again = replace(fresh_with_reasons(), same_bits=True)
    assert "PLAN-37" in broken(again) and "nothing differs" in problem(again, "PLAN-37")
    assert "PLAN-37" not in broken(replace(refresh(), same_bits=True)), "a continuation goes on"
    assert "PLAN-37" not in broken(paid(again, billed=False))


# --- reasons that are none ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("It is standard practice.", "PLAN-36"),
        ("Best practice in the field", "PLAN-36"),
        ("A refit is conventional.", "PLAN-36"),
        ("A fresh run is safer.", "PLAN-19"),
        ("Cleaner.", "PLAN-19"),
        ("easier to describe", "PLAN-19"),
        ("The plan is frozen.", "APPR-15"),
        ("It was already approved", "APPR-15"),
        ("tbd", "PLAN-40"),
        ("-", "PLAN-40"),
        ("???", "PLAN-40"),
        ("N/A", "PLAN-40"),
        ("<why>", "PLAN-40"),
        ("Cleaner, because the old rows leak into the test split.", None),
        ("Standard practice gains 0.02 here.", None),
        ("Safer: otherwise the moments of the old rows bias the first epoch.", None),
        ("Support asks for the new sources weekly.", None),
        ("No row of the base is licensed any more.", None),
    ],
)
def test_a_phrase_is_no_reason(text: str, rule: str | None) -> None:
    """covers PLAN-19, PLAN-36, PLAN-40, APPR-15"""
    found = words.weak(text)
    assert (None if found is None else found.rule) == rule
    evidence = planned(fresh_with_reasons(), base__reason=text)
    assert broken(evidence) == ([] if rule is None else [rule])
    if rule is not None:
        with pytest.raises(ReviewError, match=rule):
            require_passed(evidence, review(evidence))


@pytest.mark.parametrize(
    "field",
    ["base.against_as_is", "base.against_pilot", "base.invalid_without", "value.justifies", "value.first"],
)
def test_every_reason_is_read(field: str) -> None:
    """covers PLAN-36: at whatever cost"""
    evidence = planned(paid(fresh_with_reasons(), billed=False), {field: "Standard practice."})
    (finding,) = review(evidence).findings
    assert (finding.item, finding.field) == ("PLAN-36", field) and "estimate" in finding.rule


# --- categories ---------------------------------------------------------------------------------------------

ARMS = {"arms": {"base": {}, "wide": {"params.size": "2b"}}, "varies": "params.size", "detectable": 0.004}


@pytest.mark.parametrize(
    ("changes", "items"),
    [
        ({"base.because": "initialization"}, ["PLAN-02"]),
        ({"base.because": "initialization", "research": True}, []),
        ({"comparison": ARMS}, ["PLAN-02"]),
        ({"comparison": ARMS, "research": True}, []),
        ({"base.because": "identical-arms"}, ["PLAN-26"]),
        ({"base.because": "identical-arms", "research": True}, ["PLAN-26"]),
        ({"base.because": "base-invalid"}, []),
    ],
)
def test_production_is_no_clean_room(changes: Mapping[str, Any], items: list[str]) -> None:
    """covers PLAN-02, PLAN-26"""
    assert broken(planned(fresh_with_reasons(), changes)) == items


def test_arms_that_continue_are_no_clean_room() -> None:
    assert broken(planned(refresh(), comparison=ARMS)) == []


def test_a_rule_of_another_category_needs_an_explanation() -> None:
    """covers PLAN-22, PLAN-21"""
    named = {"base.because": "identical-arms", "category": "model-selection"}
    evidence = planned(fresh_with_reasons(), named)
    assert broken(evidence) == []
    assert broken(planned(evidence, {"base.invalid_without": None})) == ["PLAN-18", "PLAN-22"]
    assert broken(planned(evidence, category="causal-comparison", comparison=ARMS)) == []
    with pytest.raises(ValueError, match="category"):
        planned(evidence, category=None)


def test_arms_start_alike() -> None:
    """covers PLAN-24"""
    assert broken(comparing()) == []
    rows = {
        "arms": {"old": {}, "new": {"data.train": ["s3://corp/docs-new@2026-11"]}},
        "varies": "data.train",
    }
    evidence = planned(
        refresh(), {"category": "causal-comparison", "comparison": {**rows, "detectable": 0.004}}
    )
    assert broken(evidence) == ["PLAN-24"] and "inherit" in problem(evidence, "PLAN-24")
    started = {"arms": {"a": {}, "b": {"base.start": "fresh"}}, "varies": "base.start", "detectable": 0.004}
    assert "PLAN-24" in broken(planned(comparing(), comparison=started))
    assert broken(planned(first_big_run(), category="causal-comparison", value=VALUE)) == ["PLAN-24"]
    assert broken(planned(digits(), category="causal-comparison")) == []


VALUE = {"justifies": "0.05 for $40.", "first": "Nothing shorter shows 0.05."}


def test_a_selection_may_end_with_what_is_there() -> None:
    """covers PLAN-25"""
    evidence = planned(refresh(), base__start="use", category="model-selection")
    require_passed(evidence, review(evidence))


@pytest.mark.parametrize(
    ("evidence", "field"),
    [
        (lambda: planned(refresh(), category="final-audit"), "base.start"),
        (lambda: planned(search(), category="final-audit"), "search"),
        (lambda: planned(digits(), category="final-audit"), "base.start"),
        (lambda: planned(refresh(), category="final-audit", base__start="use"), "run"),
    ],
)
def test_an_audit_changes_no_choice(evidence: Callable[[], Evidence], field: str) -> None:
    """covers PLAN-27"""
    found = [finding.field for finding in review(evidence()).findings if finding.item == "PLAN-27"]
    assert field in found
    clean = replace(planned(refresh(), category="final-audit", base__start="use"), settings=())
    assert broken(clean) == []


def test_the_final_comparison_is_bound_before_the_run() -> None:
    """covers PLAN-75: the unchanged base, held-out inputs, and how inference differs"""
    challenger = replace(based(refresh(), production=False, role="refit"), incumbent=None)
    assert broken(challenger) == []
    assert broken(planned(challenger, claim__compare=["unigram"])) == ["PLAN-75"]
    assert broken(planned(challenger, claim__compare=["lm1b-07"])) == []
    assert broken(planned(comparing(), comparison__inputs="train")) == ["PLAN-75"]
    assert broken(planned(comparing(), comparison__inference="tbd")) == ["PLAN-75"]
    assert broken(planned(comparing(), comparison__inference="none")) == []
    assert broken(planned(comparing(), comparison__inference="base at float32, wide at bfloat16")) == []


def test_what_was_chosen_on_development_is_measured_elsewhere() -> None:
    """covers PLAN-62"""
    searched = based(refresh(), role="search-checkpoint")
    assert broken(searched) == []
    assert broken(replace(searched, rows={"train": 10, "development": 5})) == ["PLAN-62"]


# --- nothing of its own -------------------------------------------------------------------------------------


def test_the_plan_is_judged_and_never_changed() -> None:
    """covers PLAN-70: a recommendation is a word beside the plan"""
    evidence = fresh_with_reasons()
    before = evidence.plan.plain()
    found = review(evidence)
    assert next(each for each in found.options if each.recommended).option == "continue"
    assert judged(evidence, found).options == found.options and evidence.plan.plain() == before
    assert next(each for each in judged(evidence, found).options if each.chosen).option == "fresh"


@pytest.mark.parametrize("train", [0.2, 0.5, 0.98])
def test_no_share_and_no_threshold_is_demanded(train: float) -> None:
    """covers PLAN-74: split ratios, thresholds, models and pilots are the plan's own"""
    shares = {"group": "content", "train": train, "development": 1 - train}
    for limit in ("> 0.01", "> 1000"):
        evidence = planned(digits(), splits=shares, qc__fail={"ratio": limit}, claim__worthwhile=1e-9)
        assert broken(evidence) == []


def test_spending_less_than_the_budget_is_no_error() -> None:
    """covers PLAN-66"""
    assert broken(paid(refresh(), expected=0, worst=USD, charged=0)) == []


# --- what earlier results mean ------------------------------------------------------------------------------


def seen(update: int | None, **changed: tuple[object, object]) -> Seen:
    return Seen(update=update, changed={key.replace("__", "."): pair for key, pair in changed.items()})


@pytest.mark.parametrize(
    "key",
    [
        "claim.success",
        "claim.worthwhile",
        "claim.metric",
        "claim.compare",
        "run.select",
        "run.stop.patience",
        "run.stop",
        "qc.fail.ratio",
        "comparison.detectable",
        "comparison.tie",
        "search.metric",
    ],
)
def test_a_deciding_rule_predates_what_it_judges(key: str) -> None:
    """covers PLAN-73, PLAN-28"""
    late = Seen(update=400, changed={key: (0.35, 0.4)})
    evidence = replace(digits(), seen=late, deviation="The old one was 0.1 off.")
    (finding,) = review(evidence).findings
    assert (finding.item, finding.field, finding.asks) == ("PLAN-73", key, False)
    assert "update 400" in finding.problem and "another plan" in finding.rule
    early = replace(digits(), seen=Seen(update=None, changed={key: (0.35, 0.4)}))
    assert broken(early) == [] and amendments(early.seen) == (key,) and deviations(early.seen) == ()


def test_a_threshold_that_decided_nothing_is_moved_as_it_is_by_a_person() -> None:
    """covers PLAN-73: what nobody reports has judged nothing, and another number is another rule"""
    moved = {"qc.fail.raito": ("> 0.35", None), "qc.fail.ratio": (None, "> 0.35")}
    late = Seen(update=400, changed=moved, unreported=frozenset({"raito"}))
    assert set(deviations(late)) == set(moved)
    assert broken(replace(digits(), seen=late)) == ["PLAN-73"]
    assert broken(replace(digits(), seen=late, deviation="It was mistyped.")) == []
    for unreported, changed in (
        (set(), moved),
        ({"raito"}, {**moved, "qc.fail.ratio": (None, "> 0.5")}),
        ({"raito"}, {"qc.fail.raito": ("> 0.35", None)}),
        ({"raito"}, {"qc.fail.raito": ("> 0.35", "> 0.5")}),
        ({"raito"}, {**moved, "qc.fail.loss": (None, "> 0.35")}),
    ):
        seen = Seen(update=400, changed=changed, unreported=frozenset(unreported))
        assert "PLAN-73" in broken(replace(digits(), seen=seen, deviation="It was mistyped.")), changed


def test_other_changes_after_results_are_deviations() -> None:
    """covers PLAN-73: told apart by what had been seen, and owned by a person"""
    late = replace(digits(), seen=seen(0, run__params__lr=(0.001, 0.002), tags=((), ("a",))))
    assert deviations(late.seen) == ("run.params.lr",) and broken(late) == ["PLAN-73"]
    with pytest.raises(PlanError) as asked:
        require_passed(late, review(late))
    assert "--deviation" in (asked.value.findings[0].remedy or "")
    owned = replace(late, deviation="The old rate diverged: loss 7 at update 40.")
    assert broken(owned) == []
    assert broken(replace(late, deviation="tbd")) == ["PLAN-40"]


@pytest.mark.parametrize(
    "key",
    [
        "tags",
        "notify.to_file",
        "pools.train.gpus",
        "budget.ceiling_usd",
        "run.wall_h",
        "run.checkpoint_every",
        "run.curves.every",
        "base.reason",
        "value.first",
        "qc.owner",
        "generate.digits.unit_rows",
    ],
)
def test_how_a_run_is_carried_through_may_change_at_any_time(key: str) -> None:
    assert broken(replace(digits(), seen=Seen(update=400, changed={key: (1, 2)}))) == []


@pytest.mark.parametrize("outcome", ["worse", "equivalent", "invalid", "no-full-run"])
@pytest.mark.parametrize("same", ["setting", "hypothesis"])
def test_an_idea_that_came_to_nothing_is_met_again(outcome: str, same: str) -> None:
    """covers PLAN-38, LEDGER-10"""
    evidence = replace(digits(), negatives=(negative(outcome, "decision", same),))
    assert broken(evidence) == ["PLAN-38"]
    assert f"decision and {same}" in problem(evidence, "PLAN-38")
    assert "more width did nothing" in problem(evidence, "PLAN-38")
    assert broken(planned(evidence, value={"remains": "The data are 3 times as many now."})) == []
    assert broken(planned(evidence, value={"first": "Nothing shorter shows 0.05."})) == ["PLAN-38"]


@pytest.mark.parametrize(
    ("outcome", "same"),
    [("unresolved", "setting"), ("better", "setting"), ("worse", "decision")],
)
def test_what_is_no_negative_result_stops_nothing(outcome: str, same: str) -> None:
    """covers PLAN-65: another idea for the same decision stops nothing"""
    assert broken(replace(digits(), negatives=(negative(outcome, same),))) == []


DIAGNOSIS = {
    "hypotheses": {"mask": {"says": "the denominator is wrong"}, "rate": {"says": "the rate is too high"}},
    "tests": {
        "fixture": {
            "does": "unequal lengths against a reference",
            "cost_usd": 0.0,
            "covers": {"lengths": "1..64"},
            "predicts": {"mask": "the error scales with padding", "rate": "no error"},
            "next": {"mask": "repair the objective", "rate": "a short screen of rates"},
        }
    },
}


def test_a_failed_check_blocks_the_full_run() -> None:
    """covers PLAN-60, GOLD-09: what is allowed next is named, and a diagnosis may go on"""
    failed = replace(digits(), failed_gates=("first",))
    assert broken(failed) == ["PLAN-60"]
    (finding,) = review(failed).findings
    assert "no stronger evidence" in finding.problem
    for step in ("inputs", "loss terms", "gradients", "tiny batch", "first update"):
        assert step in finding.rule
    assert "--repair" in (finding.remedy or "")
    assert broken(planned(failed, diagnosis=DIAGNOSIS)) == []


def test_screening_does_not_read_the_holdout() -> None:
    """covers PLAN-61: neither by its role nor by the name of its source"""
    tests = {"fixture": {**DIAGNOSIS["tests"]["fixture"], "covers": {"rows": "256 of s3://corp/test@v1"}}}
    evidence = planned(refresh(), diagnosis={**DIAGNOSIS, "tests": tests})
    assert "PLAN-61" in broken(evidence) and "REVIEW-01" not in review(evidence).passed


def test_a_promotion_threshold_is_approved_first() -> None:
    """covers APPR-20"""
    evidence = planned(comparing(), comparison__promote={"ratio": "< 0.3", "nll": "< 2"})
    assert broken(evidence) == ["APPR-20", "APPR-20"]
    assert broken(replace(evidence, promote_approved=("ratio",))) == ["APPR-20"]
    assert broken(replace(evidence, promote_approved=("ratio", "nll"))) == []
    assert broken(replace(evidence, plan_approved=True)) == ["APPR-20", "APPR-20"], "a recommendation is none"


# --- figures ------------------------------------------------------------------------------------------------


def test_figures_as_people_read_them() -> None:
    """covers GOLD-18, PLAN-12"""
    assert words.of(2_953, 59_022) == "2,953 of 59,022 (5.0%)"
    assert words.percent(0, 0) == "0.0%" and words.percent(3, 0) == "100.0%"
    assert [words.money(n) for n in (0, 548_840_000, 900 * USD, 2_100, 1_449_550_000)] == [
        "$0",
        "$548.84",
        "$900",
        "$0.0021",
        "$1,449.55",
    ]
    assert words.money(12_500_000, "accelerator-hours") == "12.50 accelerator-hours"
    assert [words.hours(n) for n in (0, 38_000, 600_000, 31_320_000)] == ["0 h", "38 s", "10 min", "8.7 h"]


def test_names_are_whole_words() -> None:
    assert words.names(["lm1b-prod, unigram"], "lm1b-prod") and words.names(["lm1b-prod."], "lm1b-prod")
    assert not words.names(["lm1b-prod-2", "old-lm1b-prod", "lm1b-prod.v2"], "lm1b-prod")
