"""Alternatives in their order, the request to begin anew, and the statement before an expensive job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from makereview import (
    PROD,
    USD,
    H,
    based,
    comparing,
    digits,
    fresh,
    fresh_with_reasons,
    negative,
    noted,
    paid,
    planned,
    refresh,
    search,
)
from pydantic import ValidationError

from raykit.errors import ApprovalError
from raykit.plan import Looked, Option, RowChange, RunSeen
from raykit.review import Evidence, OptionCost, Pilot, require_passed, review, statement, weigh
from raykit.review.options import cheapest
from raykit.review.restart import approval, facts, pending, reasons

ORDER = ("use", "continue", "replay", "pilot", "fresh")
RELABELLED = RowChange(before=59_022, after=59_022, added=0, removed=0, relabelled=2_953)


def options(evidence: Evidence) -> dict[str, Option]:
    return {option.option: option for option in weigh(evidence)}


def said(evidence: Evidence) -> dict[str, str]:
    return dict(statement(evidence, review(evidence)))


def limits(evidence: Evidence) -> str:
    return "\n".join(review(evidence).limitations)


# --- the table ----------------------------------------------------------------------------------------------


def test_the_order_is_fixed_and_every_cell_is_real() -> None:
    """covers PLAN-14, PLAN-39, PLAN-40, GOLD-21"""
    for evidence in (refresh(), fresh(), based(refresh(), verifies=False), replace(refresh(), options={})):
        table = weigh(evidence)
        assert tuple(option.option for option in table) == ORDER
        for option in table:
            cells = (
                option.what,
                option.preserves,
                option.discards,
                option.repeats,
                option.time,
                option.value,
                option.risk,
            )
            assert all(len(cell.strip(" -?.")) > 2 and "tbd" not in cell.lower() for cell in cells)


def test_an_empty_cell_cannot_be_written_down() -> None:
    """covers PLAN-40, GOLD-21: placeholder values are refused"""
    (option,) = weigh(digits())
    for blank in ("", " "):
        with pytest.raises(ValidationError):
            Option.model_validate({**option.model_dump(), "risk": blank})
    evidence = planned(refresh(), base__against_as_is="TBD")
    assert {finding.item for finding in review(evidence).findings} == {"PLAN-40"}


def test_the_columns_of_the_golden_table() -> None:
    """covers GOLD-21, PLAN-39: preserves weights, repeated compute, scientific value, practical risk"""
    table = options(fresh())
    use, replay, refit = table["use"], table["replay"], table["fresh"]
    assert use.preserves.startswith("all of lm1b-prod") and use.repeats == "nothing"
    assert "has not seen what changed: 2,953,118 of 59,022,310 (5.0%) rows added" in use.risk
    assert replay.preserves.startswith("weights") and replay.repeats == "nothing"
    assert "75% docs@v7, 25% docs-new@2026-11" in replay.risk
    assert refit.preserves.startswith("nothing") and refit.repeats == "95,000 of 99,750 updates"
    assert refit.repeats_updates == 95_000 and "is not measured" in refit.risk
    assert "95,000 updates of lm1b-prod, 461.60 accelerator-hours, $1,380" in refit.discards


def test_figures_are_those_of_the_store() -> None:
    """covers PLAN-08, PLAN-09"""
    table = options(refresh())
    assert [(each.time, each.cost) for each in table.values()] == [
        ("0 h", 0),
        ("8.7 h", 208_100_000),
        ("8.7 h", 208_100_000),
        ("0.6 h", 14_550_000),
        ("60.6 h", 1_449_000_000),
    ]
    assert table["continue"].accelerator_ms == 8 * int(8.7 * H)
    assert table["continue"].preserves == "weights and optimizer state of lm1b-prod"
    unknown = replace(
        refresh(),
        options={"continue": OptionCost(updates=14_300, time_ms=None, accelerator_ms=None, cost=None)},
    )
    assert options(unknown)["continue"].time == "not known: nothing like it has been measured"
    assert "what these options cost is not known: continue, replay, pilot, fresh" in limits(unknown)


@pytest.mark.parametrize("start", ORDER)
def test_exactly_one_is_chosen_and_one_recommended(start: str) -> None:
    """covers PLAN-41, GOLD-21"""
    table = weigh(planned(refresh(), base__start=start))
    assert [each.option for each in table if each.chosen] == [start]
    assert sum(each.recommended for each in table) == 1
    assert all(each.value and each.risk for each in table), "the trade-offs of the others stay visible"


def test_without_weights_there_is_one_option() -> None:
    (only,) = weigh(digits())
    assert (only.option, only.chosen, only.recommended) == ("fresh", True, True)
    assert only.what == "train from the start; nothing is there to reuse"


def test_what_the_store_says_goes_before_prose() -> None:
    """covers PLAN-14, PLAN-41: a pilot that is on record, a sum above the ceiling, files that do not match"""
    table = options(refresh())
    assert table["pilot"].against == "done: -0.004 +/- 0.002 bits per byte at 1,000 updates (lm1b-pilot)"
    assert table["fresh"].against == "costs $1,449, above the ceiling of $900"
    assert table["use"].against == refresh().plan.base.against_as_is  # type: ignore[union-attr]
    damaged = options(based(refresh(), verifies=False))
    assert damaged["use"].against == "the files of lm1b-prod do not match its manifest"
    assert not damaged["continue"].possible and damaged["fresh"].possible
    unfit = options(replace(fresh(), model_settings=("layers.0: 64 -> 128",)))
    assert unfit["use"].possible and not unfit["replay"].possible
    assert unfit["replay"].against == "its weights do not fit: layers.0: 64 -> 128"
    diagnostic = options(based(refresh(), role="diagnostic"))
    assert "no production model" in (diagnostic["use"].against or "")


def test_a_pilot_need_not_argue_against_what_costs_more() -> None:
    """covers PLAN-14: the store's figures answer for it"""
    evidence = replace(planned(refresh(), base__start="pilot"), pilot=None)
    table = options(evidence)
    assert table["continue"].against == "costs $208.10, and the pilot that can answer first $14.55"
    assert review(evidence).findings == ()


# --- what is recommended ------------------------------------------------------------------------------------


def test_the_cheaper_option_is_recommended_where_little_changed() -> None:
    """covers PLAN-34, PLAN-23: the plan still does what it says"""
    table = options(fresh())
    assert table["continue"].recommended and table["fresh"].chosen
    evidence = fresh_with_reasons()
    assert options(evidence)["continue"].recommended, "no words make a small change large"
    assert "repeats more than what changed warrants" in said(evidence)["recommended"]
    assert "nothing is replaced" in said(evidence)["recommended"]


def test_where_nothing_changed_the_base_is_recommended() -> None:
    """covers PLAN-34, PLAN-25"""
    same = RowChange(before=100, after=100, added=0, removed=0, relabelled=0)
    table = options(replace(fresh(), change=same, settings=()))
    assert table["use"].recommended


@pytest.mark.parametrize(
    ("changes", "row_change", "recommended"),
    [
        ({"base.small_share": 0.04}, None, "fresh"),
        ({"base.small_share": 0.06}, None, "continue"),
        ({"base.little_share": 0.96}, None, "fresh"),
        ({"base.little_share": 0.9}, None, "continue"),
        ({}, RowChange(before=100, after=300, added=200, removed=0, relabelled=0), "fresh"),
        (
            {"base.because": "base-invalid", "base.invalid_without": "The base has seen the test rows."},
            None,
            "fresh",
        ),
        ({"base.because": "base-invalid"}, None, "continue"),
        ({"base.because": "initialization"}, None, "continue"),
        ({"base.because": "initialization", "category": "causal-comparison"}, None, "fresh"),
    ],
)
def test_what_warrants_a_fresh_start(
    changes: Mapping[str, Any], row_change: RowChange | None, recommended: str
) -> None:
    """covers PLAN-34: by the shares that the plan declares; undeclared, by the shares themselves"""
    evidence = planned(fresh(), changes)
    if row_change is not None:
        evidence = replace(evidence, change=row_change)
    assert options(evidence)[recommended].recommended


def test_weights_that_cannot_be_used_are_not_recommended() -> None:
    for evidence, wanted in (
        (based(refresh(), verifies=False), "fresh"),
        (replace(refresh(), model_settings=("width: 64 -> 128",)), "use"),
    ):
        (found,) = [each for each in weigh(evidence) if each.recommended]
        assert found.option == wanted and found.possible


def test_production_reuses_what_is_there() -> None:
    """covers PLAN-23, PLAN-44: weights that the plan does not name are named for it"""
    unnamed = based(planned(refresh(), base=None), declared=False)
    table = options(unnamed)
    assert table["fresh"].chosen and table["continue"].recommended
    with pytest.raises(Exception, match="REVIEW-09"):
        require_passed(unnamed, review(unnamed))
    (finding,) = [each for each in review(unnamed).findings if each.item == "REVIEW-09"]
    assert "95,000 trained updates" in finding.problem
    assert finding.remedy == "raykit plan new --from lm1b-07 -o lm1b-07-next.toml"
    assert "95,000 updates of lm1b-prod" in said(unnamed)["discards"]


def test_the_cheapest_run_that_can_resolve_it() -> None:
    """covers PLAN-10"""
    assert cheapest(weigh(refresh())).option == "continue", "its pilot is done and did not settle it"
    assert cheapest(weigh(replace(refresh(), pilot=None))).option == "continue", (
        "the plan argues against a pilot"
    )
    open_ = planned(replace(refresh(), pilot=None), {"base.against_pilot": None})
    assert cheapest(weigh(open_)).option == "pilot"
    assert said(digits())["cheapest"] == "this run: nothing cheaper is known"
    assert said(open_)["cheapest"].startswith("pilot, 1,000 updates (0.6 h, $14.55)")


# --- the request to begin anew ------------------------------------------------------------------------------


def test_the_request_has_its_six_items_and_their_figures() -> None:
    """covers APPR-08, APPR-09, APPR-10, APPR-11, APPR-12, APPR-13"""
    with pytest.raises(ApprovalError) as refused:
        require_passed(fresh(), review(fresh()))
    request = dict(refused.value.facts)
    assert tuple(request) == ("discards", "changed", "repeats", "costs", "instead", "your why")
    assert "lm1b-prod is kept on disk, but its 95,000 updates are not used" in request["discards"]
    assert PROD.manifest[:8] in request["discards"] and "461.60 accelerator-hours" in request["discards"]
    assert request["changed"].startswith(
        "2,953,118 of 59,022,310 (5.0%) rows added, 0 of 59,022,310 (0.0%) removed, "
        "0 of 59,022,310 (0.0%) relabelled; run.updates: 95000 -> 14300"
    )
    assert request["repeats"] == "95,000 of 99,750 updates (95.2%), 60.6 h x 8 H100"
    assert (
        "60.6 h, $1,449 expected: above the ceiling of account corp-lm ($900, of which $548.84 is neither spent "
        "nor reserved)"
    ) in request["costs"]
    for cheaper in ("8.7 h, $208.10", "continue with replay", "0.6 h, $14.55; done:"):
        assert cheaper in request["instead"]
    assert request["your why"].startswith("base.reason is empty")
    assert "base.because, base.invalid_without" in request["your why"]
    assert refused.value.exit_code == 3 and "raykit approve restart" in (refused.value.remedy or "")
    assert "own approval" in refused.value.message


def test_the_request_says_the_reason_and_its_kind() -> None:
    """covers APPR-13, PLAN-35"""
    evidence = replace(fresh_with_reasons(), restart_approved=False)
    assert dict(facts(evidence, weigh(evidence)))["your why"].startswith("0.02 bits per byte, measured")
    hope = planned(evidence, base__speculative=True)
    assert dict(facts(hope, weigh(hope)))["your why"].startswith("speculative: 0.02")


def test_costs_below_the_ceiling_are_only_stated() -> None:
    """covers APPR-11"""
    roomy = paid(fresh(), account_ceiling=5_000 * USD)
    assert "ceiling" not in dict(facts(roomy, weigh(roomy)))["costs"]
    full = paid(fresh(), account_ceiling=1_500 * USD)
    assert "more than is left under the ceiling" in dict(facts(full, weigh(full)))["costs"]
    hours = paid(fresh(), unit="accelerator-hours")
    assert "1,449 accelerator-hours expected" in dict(facts(hours, weigh(hours)))["costs"]


def test_every_trigger_is_listed() -> None:
    """covers APPR-01, APPR-02, APPR-03, APPR-04, APPR-05, APPR-06: what is not declared counts as triggered"""
    listed = list(reasons(fresh(), weigh(fresh())))
    assert listed == [
        "a valid checkpoint exists",
        "all training is discarded",
        "the change is 5.0% (what is small is not declared)",
        "no measured quality is its reason",
        "95.2% of its updates are repeated (what is little is not declared)",
        "a continuation answers the same question",
    ]
    assert all(each in approval(fresh(), weigh(fresh())).message for each in listed)


TRIGGERS: list[tuple[str, Callable[[], Evidence], str]] = [
    ("APPR-01", lambda: based(fresh(), verifies=False), "a valid checkpoint exists"),
    ("APPR-03", lambda: planned(fresh(), base__small_share=0.04), "the change is"),
    ("APPR-04", lambda: planned(fresh(), base__reason="0.02 better at 100M."), "measured quality"),
    ("APPR-05", lambda: planned(fresh(), base__little_share=0.96), "are repeated"),
    (
        "APPR-06",
        lambda: planned(fresh(), base__against_continue="1 % off.", base__against_replay="1 % off."),
        "answers the same question",
    ),
]


@pytest.mark.parametrize(("name", "evidence", "says"), TRIGGERS, ids=[t[0] for t in TRIGGERS])
def test_a_trigger_ends_with_its_cause(name: str, evidence: Callable[[], Evidence], says: str) -> None:
    """covers APPR-01, APPR-03, APPR-04, APPR-05, APPR-06; and what is left still asks (APPR-02)"""
    listed = list(reasons(evidence(), weigh(evidence())))
    assert not any(says in each for each in listed), name
    assert "all training is discarded" in listed and pending(evidence())


def test_purity_is_a_trigger_of_its_own() -> None:
    """covers APPR-04"""
    pure = planned(fresh(), base__reason="A clean protocol, because the arms would differ.")
    assert "its reason is purity, not measured quality" in list(reasons(pure, weigh(pure)))


@pytest.mark.parametrize(
    ("charged", "worst", "verifies", "asked"),
    [
        (3_750_000, 1_240_000, True, False),
        (3_750_000, 1_250_000, True, True),
        (3_750_000, 1_240_000, False, True),
        (0, 4_999_999, True, False),
    ],
)
def test_only_both_together_exempt(charged: int, worst: int, verifies: bool, asked: bool) -> None:
    """covers APPR-07: below $5 over the life of the account, and the weights verified"""
    evidence = based(paid(fresh(), charged=charged, worst=worst), verifies=verifies)
    assert pending(evidence) is asked
    assert ("REVIEW-10" in {finding.item for finding in review(evidence).findings}) is asked


def test_hours_are_never_below_the_limit() -> None:
    """covers APPR-07: nothing says what they cost"""
    assert pending(paid(fresh(), unit="accelerator-hours", charged=0, worst=1))


@pytest.mark.parametrize("named", ["plan_approved", "recommended", "frozen"])
def test_no_other_word_approves_a_restart(named: str) -> None:
    """covers APPR-15, APPR-19, APPR-18: nor a plan's approval, nor a recommendation, nor that it was frozen"""
    evidence = replace(fresh_with_reasons(), restart_approved=False, plan_approved=True)
    if named == "recommended":
        evidence = planned(evidence, base__small_share=0.01)
        assert options(evidence)["fresh"].recommended
    if named == "frozen":
        evidence = planned(evidence, base__reason="The plan was frozen last week.")
        assert {"REVIEW-10", "APPR-15"} == {finding.item for finding in review(evidence).findings}
        return
    with pytest.raises(ApprovalError):
        require_passed(evidence, review(evidence))
    approved = replace(evidence, restart_approved=True)
    require_passed(approved, review(approved))


def test_work_that_nobody_pays_for_repeats_nothing_that_was_paid() -> None:
    evidence = paid(fresh(), billed=False, worst=0)
    assert not pending(evidence) and review(evidence).findings == ()


# --- the statement ------------------------------------------------------------------------------------------


def test_the_scale_of_the_change_comes_first() -> None:
    """covers PLAN-13, PLAN-12, PLAN-07, GOLD-18"""
    evidence = replace(refresh(), change=RELABELLED)
    first, *_ = statement(evidence, review(evidence))
    assert first[0] == "scale"
    assert (
        "2,953 of 59,022 (5.0%) relabelled" in first[1] and "56,069 of 59,022 (95.0%) unchanged" in first[1]
    )
    assert first[1].startswith("0 of 59,022 (0.0%) rows added, 0 of 59,022 (0.0%) removed")
    assert statement(digits(), review(digits()))[0][1].startswith("1,258 training rows, 2,000 updates")
    assert "not known" in said(replace(refresh(), change=None))["scale"]


def test_it_says_what_is_trained_reused_discarded_changed_and_why() -> None:
    """covers PLAN-42, PLAN-03, PLAN-04, PLAN-05, PLAN-06"""
    text = said(refresh())
    assert "14,300 updates of 512" in text["trains"] and text["reuses"].startswith("weights and optimizer")
    assert text["discards"] == "nothing" and "run.params.lr: 0.0003 -> 6e-05" in text["changed"]
    assert "a pilot came to -0.004 +/- 0.002" in text["why"]
    assert "use lm1b-prod as it is: It has seen none" in text["rejected"] and "done:" in text["rejected"]
    assert "replay" not in text["rejected"], "it costs the same"
    assert "min development.bits_per_byte; 0.004 bits_per_byte matters" in text["decides"]


def test_it_names_what_is_thrown_away() -> None:
    """covers PLAN-42, PLAN-44"""
    assert "95,000 updates of lm1b-prod" in said(fresh())["discards"]


def test_it_says_what_is_the_case() -> None:
    """covers PLAN-43, PLAN-35: purity, a small gain, and a hope are called by their names"""
    evidence = planned(fresh_with_reasons(), base__reason="A clean start, because arms would differ.")
    text = said(evidence)["why"]
    assert "purity of the protocol" in text and "likely small: 2,953,118 of 59,022,310 (5.0%)" in text
    assert "purity" not in said(fresh_with_reasons())["why"]
    hope = planned(fresh_with_reasons(), base__speculative=True)
    assert said(hope)["why"].startswith("speculative: ") and "speculative" in limits(hope)
    assert "speculative" in options(hope)["fresh"].value
    assert "small" not in said(refresh())["why"] and "speculative" not in limits(refresh())
    declared = planned(refresh(), base__small_share=0.1)
    assert "likely small" in said(declared)["why"]
    pure = planned(search(), value={"justifies": "The protocol asks for it."})
    assert "purity of the protocol" in said(pure)["why"]


def test_it_says_the_most_it_costs_what_stops_it_and_what_stays() -> None:
    """covers PLAN-64"""
    text = said(refresh())
    assert text["cost"].startswith("at most $516.30, $354 expected, 8.7 h; ceiling $900")
    for stop in (
        "4 evaluations without 0.001 better",
        "nonfinite > 0): pause",
        "10 h",
        "the ceiling",
        "Keep lm1b-prod",
    ):
        assert stop in text["stops"]
    assert "whatever fails" in text["kept"]
    assert said(digits())["cost"] == "not billed"
    assert "(a guess)" in said(paid(refresh(), uncertain=True))["cost"]


def test_it_tells_the_two_safeguards_apart() -> None:
    """covers PLAN-63: neither is marked done by the other"""
    assert (
        said(refresh())["safeguards"]
        == "run at the target protocol: yes; independent rows: report_only, sealed"
    )
    alone = replace(refresh(), rows={"train": 10, "development": 5})
    assert said(alone)["safeguards"] == "run at the target protocol: yes; independent rows: none"
    pilot = planned(refresh(), base__start="pilot")
    assert said(pilot)["safeguards"].startswith(
        "run at the target protocol: no; independent rows: report_only"
    )


def test_limitations_are_listed() -> None:
    """covers PLAN-69, PLAN-68: unknown label quality, even of a target that is called gold"""
    gold = planned(refresh(), claim__target="the gold decision of the panel", claim__label="true")
    assert "their quality is unknown" in limits(gold) and "right decisions" in limits(gold)
    recorded = planned(refresh(), claim__label="recorded")
    assert "recorded by a workflow, and their quality is unknown" in limits(recorded)
    known = planned(recorded, claim__label_quality="kappa 0.81 on 400 of them, 2026-10")
    assert "label" not in limits(known)
    assert "claim.label does not say" in limits(refresh())
    assert "label" not in limits(planned(digits(), claim__label="none"))


def test_other_limits_are_said_too() -> None:
    """covers PLAN-62, PLAN-51: a screen makes no quality claim; rows that selected are no independent rows"""
    assert "makes no quality claim" in limits(search()) and "rows that selected" in limits(search())
    assert "makes no quality claim" not in limits(refresh())
    adopted = PROD.model_copy(update={"origin": "adopted"})
    assert "how lm1b-prod was trained is not known here" in limits(based(refresh(), locked=adopted))
    unread = replace(refresh(), looked=Looked(store="s3", unread=("lm1b-03",)))
    assert "could not be read: lm1b-03" in limits(unread)
    assert "times are guesses" in limits(paid(refresh(), uncertain=True))


def test_the_scope_of_the_look_back_is_said() -> None:
    """covers LEDGER-05, LEDGER-06: nothing that is not in a listing is said not to exist"""
    assert said(digits())["looked at"] == "store shows no related run; runs elsewhere were not looked at"
    runs = (RunSeen(experiment="a", state="failed", update=1, updates=9),)
    assert said(replace(digits(), looked=Looked(store="store", runs=runs)))["looked at"].startswith(
        "1 related"
    )


def test_what_was_learned_is_shown_for_what_it_is() -> None:
    """covers LEDGER-08, LEDGER-09, LEDGER-10, PLAN-38, PLAN-52"""
    evidence = replace(
        refresh(),
        negatives=(negative("worse", "decision"),),
        incidents=(
            noted("incident", "a node lost its disk"),
            noted("selection", "three warm-ups were screened, two dropped: loss rose"),
            noted("limitation", "code is under-represented"),
        ),
    )
    text = said(evidence)
    assert text["negative"] == "digits-wide came out worse: more width did nothing"
    assert text["incident"] == "a node lost its disk (happened in lm1b-06; no rule)"
    assert "two dropped: loss rose" in text["selection"]
    assert "code is under-represented (seen in lm1b-06)" in limits(evidence)


def test_a_use_trains_nothing() -> None:
    """covers PLAN-25: an existing checkpoint is a valid result"""
    evidence = planned(refresh(), base__start="use", category="model-selection")
    assert review(evidence).findings == ()
    assert said(evidence)["trains"] == "nothing: lm1b-prod is used as it is"


def test_a_comparison_has_its_tie_rule() -> None:
    assert "a tie goes to the cheaper one" in said(comparing())["decides"]
    assert "a tie goes to the incumbent" in said(refresh())["decides"]


def test_a_pilot_on_record_that_settled_nothing_is_shown() -> None:
    pilot = Pilot(experiment="p", updates=10, effect="unresolved, +/- 0.1", decided=False)
    assert "unresolved, +/- 0.1 at 10 updates (p)" in (
        options(replace(refresh(), pilot=pilot))["pilot"].against or ""
    )
