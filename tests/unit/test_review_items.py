"""The twenty items of the review: each fails alone, and all hold together.

covers GOLD-22
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from makereview import (
    USD,
    based,
    comparing,
    digits,
    fresh,
    fresh_with_reasons,
    lines,
    paid,
    planned,
    refresh,
    search,
)

from raykit.errors import ApprovalError, PlanError, ReviewError
from raykit.review import ITEMS, RULES, Evidence, judged, require_passed, review

ALL = tuple(f"REVIEW-{number:02}" for number in range(1, 21))


def broken(evidence: Evidence) -> set[str]:
    return {finding.item for finding in review(evidence).findings}


# --- all of them hold ---------------------------------------------------------------------------------------


def test_the_table_has_the_twenty_items_in_order() -> None:
    """covers REVIEW-01 to REVIEW-20"""
    assert tuple(item.id for item in ITEMS) == ALL
    assert len({item.title for item in ITEMS}) == 20 and all(item.judge.__doc__ for item in ITEMS)
    assert [int(item.judge.__doc__.partition(":")[0]) for item in ITEMS if item.judge.__doc__] == list(
        range(1, 21)
    )


@pytest.mark.parametrize("evidence", [digits, refresh, search, fresh_with_reasons, comparing])
def test_all_hold_together(evidence: Callable[[], Evidence]) -> None:
    """covers GOLD-22: all pass, and nothing else is refused or asked"""
    found = review(evidence())
    assert found.findings == () and found.passed == ALL
    require_passed(evidence(), found)
    assert judged(evidence(), found).passed == ALL


def test_what_was_judged_is_kept() -> None:
    """covers PLAN-03, PLAN-05, PLAN-06, PLAN-07, PLAN-08, PLAN-09: with the lock, for years"""
    evidence = refresh()
    kept = judged(evidence, review(evidence))
    assert kept.base == evidence.base.locked and kept.rows == evidence.change  # type: ignore[union-attr]
    assert kept.settings == evidence.settings and kept.looked == evidence.looked
    assert (kept.worst, kept.expected, kept.ceiling) == (516_300_000, 354 * USD, 900 * USD)
    assert [each.option for each in kept.options if each.chosen] == ["continue"]
    assert all(each.accelerator_ms is not None and each.cost is not None for each in kept.options)


# --- each of them fails alone -------------------------------------------------------------------------------

BREAKS: dict[str, Callable[[], Evidence]] = {
    "REVIEW-01": lambda: planned(digits(), if_no=None),
    "REVIEW-02": lambda: replace(digits(), rows={**digits().rows, "development": 0}),
    "REVIEW-03": lambda: replace(refresh(), base_problem="there is no lm1b-prod in this store"),
    "REVIEW-04": lambda: based(refresh(), scripted=True),
    "REVIEW-05": lambda: replace(
        planned(refresh(), claim__compare=["lm1b-prod", "lm2-prod"]), incumbent="lm2-prod"
    ),
    "REVIEW-06": lambda: planned(refresh(), claim__compare=["unigram"]),
    "REVIEW-07": lambda: based(refresh(), verifies=False),
    "REVIEW-08": lambda: replace(refresh(), change=None),
    "REVIEW-09": lambda: planned(refresh(), base__start="replay"),
    "REVIEW-10": lambda: replace(fresh_with_reasons(), restart_approved=False),
    "REVIEW-11": lambda: planned(
        comparing(), comparison__arms={"base": {}, "wide": {"params.width": 64, "run.seed": 2}}
    ),
    "REVIEW-12": lambda: replace(refresh(), model_settings=("layers.0.weight: [512, 64] -> [512, 128]",)),
    "REVIEW-13": lambda: paid(refresh(), lines=lines(899.0, train=307.67, confirmation=307.67)),
    "REVIEW-14": lambda: planned(refresh(), run__checkpoint_every=14_300),
    "REVIEW-15": lambda: planned(digits(), generate__digits__unit_rows=2000),
    "REVIEW-16": lambda: replace(planned(refresh(), generate__targets__wall_h=None), measured=()),
    "REVIEW-17": lambda: planned(refresh(), claim__worthwhile=0.001),
    "REVIEW-18": lambda: planned(comparing(), comparison__tie="incumbent"),
    "REVIEW-19": lambda: planned(refresh(), qc__on_failure="continue"),
    "REVIEW-20": lambda: planned(refresh(), {"qc.roster.from": "report_only"}),
}
"""One thing broken in evidence that passes otherwise."""

ASKS = {"REVIEW-01", "REVIEW-09"}
"""Where something only has to be said."""


@pytest.mark.parametrize("item", ALL)
def test_each_item_fails_alone(item: str) -> None:
    """covers GOLD-22, REVIEW-01 to REVIEW-20, REVIEW-21"""
    evidence = BREAKS[item]()
    found = review(evidence)
    assert {finding.item for finding in found.findings} == {item}
    assert found.passed == tuple(other for other in ALL if other != item)
    expected: type[Exception] = PlanError if item in ASKS else ReviewError
    if item == "REVIEW-10":
        expected = ApprovalError
    with pytest.raises(expected) as refused:
        require_passed(evidence, found)
    if item != "REVIEW-10":
        (first, *_) = refused.value.findings  # type: ignore[attr-defined]
        assert item in first.message and first.field and first.rule
    if expected is ReviewError:
        assert "needs revision" in str(refused.value) and item in str(refused.value)


def test_every_finding_says_what_would_pass() -> None:
    """covers REVIEW-21: each names its field, what is there, and what would pass"""
    for make in BREAKS.values():
        for finding in review(make()).findings:
            assert finding.field and finding.problem and finding.rule and finding.title


# --- what else breaks them ----------------------------------------------------------------------------------

MORE: list[tuple[str, Callable[[], Evidence], str]] = [
    ("REVIEW-01", lambda: planned(digits(), if_no="Either way we make the set."), "both outcomes"),
    (
        "REVIEW-01",
        lambda: planned(digits(), if_no=digits().plan.decision.upper()),
        "the same as the decision",
    ),
    ("REVIEW-01", lambda: planned(digits(), if_no="tbd"), "blank"),
    ("REVIEW-02", lambda: planned(digits(), claim__success="validation ratio below 0.3"), "validation"),
    ("REVIEW-02", lambda: planned(search(), run__select="max development.arc"), "selects by arc"),
    ("REVIEW-04", lambda: based(refresh(), approved_by=" "), "by nobody"),
    (
        "REVIEW-05",
        lambda: replace(based(refresh(), cost=None, accelerator_ms=None), options={}),
        "targets-v3, export-2026-09",
    ),
    ("REVIEW-09", lambda: based(planned(refresh(), base=None), declared=False), "does not name it"),
    ("REVIEW-11", lambda: planned(comparing(), comparison__arms={"a": {}, "b": {}}), "the same as a"),
    ("REVIEW-13", lambda: paid(refresh(), refusal="does not fit", refusal_remedy="shorten"), "does not fit"),
    ("REVIEW-13", lambda: paid(refresh(), rates={}), "costs"),
    ("REVIEW-13", lambda: paid(refresh(), ceiling=0, lines=()), "missing"),
    ("REVIEW-13", lambda: planned(digits(), run__stop=None), "missing"),
    ("REVIEW-14", lambda: replace(refresh(), gates=("first",)), "no gate"),
    ("REVIEW-17", lambda: planned(comparing(), comparison__detectable=0.02), "cannot decide"),
    (
        "REVIEW-17",
        lambda: paid(planned(comparing(), comparison__detectable=None), billed=True, worst=6 * USD),
        "missing",
    ),
    (
        "REVIEW-18",
        lambda: replace(planned(comparing(), claim__compare=["digits-prod"]), incumbent="digits-prod"),
        "would displace it",
    ),
    ("REVIEW-20", lambda: planned(refresh(), generate__targets__inputs="s3://corp/val@v3"), "report_only"),
    ("REVIEW-20", lambda: planned(refresh(), generate__targets__inputs="sealed"), "sealed"),
    ("REVIEW-20", lambda: planned(comparing(), comparison__inputs="sealed"), "no final audit"),
]


@pytest.mark.parametrize(("item", "evidence", "says"), MORE, ids=[f"{m[0]}-{m[2]}" for m in MORE])
def test_other_ways_to_break_an_item(item: str, evidence: Callable[[], Evidence], says: str) -> None:
    """covers PLAN-37: among them, a run whose result cannot change what is done"""
    found = [finding for finding in review(evidence()).findings if finding.item == item]
    assert any(says in finding.problem for finding in found), found


FINE: list[Callable[[], Evidence]] = [
    lambda: planned(comparing(), comparison__tie=None),
    lambda: planned(comparing(), comparison__detectable=None),
    lambda: planned(comparing(), comparison__arms={"base": {}, "wide": {"run.params.width": 64}}),
    lambda: planned(digits(), {"qc.roster.from": "report_only"}),
    lambda: planned(digits(), run__workers=4, qc__on_failure="continue"),
    lambda: planned(digits(), run__checkpoint_every=2000),
    lambda: planned(refresh(), generate__targets__wall_h=None),
    lambda: based(refresh(), noise=0.004),
    lambda: planned(digits(), if_no="Report it, and look at the data next."),
    lambda: planned(search(), claim__success="the cross-validation estimate improves by 0.01"),
    lambda: based(replace(refresh(), incumbent="lm1b-07"), approved_by="mira"),
]
"""What is not to be refused: work that nobody pays for, shares at their limits, other words."""


@pytest.mark.parametrize("number", range(len(FINE)))
def test_what_is_fine_is_not_refused(number: int) -> None:
    evidence = FINE[number]()
    if evidence.incumbent == "lm1b-07":
        evidence = planned(evidence, claim__compare=["lm1b-07"])
    assert review(evidence).findings == ()


# --- how a review ends --------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_named_at_once() -> None:
    """covers REVIEW-21"""
    evidence = planned(refresh(), {"qc.on_failure": "continue", "claim.worthwhile": 0.001, "if_no": None})
    with pytest.raises(ReviewError, match="needs revision: REVIEW-01, REVIEW-17, REVIEW-19") as refused:
        require_passed(evidence, review(evidence))
    assert refused.value.exit_code == 3
    assert [finding.field for finding in refused.value.findings][:3] == [
        "if_no",
        "claim.worthwhile",
        "qc.on_failure",
    ]


def test_what_only_has_to_be_said_is_asked_for() -> None:
    """covers PLAN-11: what is missing blocks the launch, and each is a finding with its field"""
    evidence = planned(refresh(), {"base.against_as_is": None})
    with pytest.raises(PlanError, match="2 findings") as asked:
        require_passed(evidence, review(evidence))
    assert asked.value.exit_code == 2
    assert [finding.field for finding in asked.value.findings] == ["base.against_as_is", "value.remains"]


def test_a_restart_is_asked_for_only_when_nothing_else_is_refused() -> None:
    """covers APPR-14, REVIEW-10"""
    with pytest.raises(ApprovalError):
        require_passed(fresh(), review(fresh()))
    worse = planned(fresh(), qc__on_failure="continue")
    with pytest.raises(ReviewError) as refused:
        require_passed(worse, review(worse))
    assert {"REVIEW-10", "REVIEW-19"} <= broken(worse) and "REVIEW-10" in str(refused.value)


def test_a_flaw_of_the_diagnosis_fails_the_first_item() -> None:
    """covers REVIEW-01: tests that decide nothing"""
    test = {
        "does": "train another epoch",
        "cost_usd": 0.0,
        "covers": {"rows": 8},
        "predicts": {"otherwise": "the loss stays"},
        "next": {"otherwise": "look again"},
    }
    diagnosis = {
        "hypotheses": {"mean": {"says": "sum"}, "twice": {"says": "added"}},
        "tests": {"epoch": test},
    }
    found = review(planned(digits(), diagnosis=diagnosis))
    assert "REVIEW-01" not in found.passed and "PLAN-46" in {finding.item for finding in found.findings}


def test_a_plan_without_its_decision_or_its_claim_is_none() -> None:
    """covers PLAN-01, PLAN-67: what the claim has to hold is asked before anything else is judged"""
    for key in (
        "decision",
        *(f"claim.{key}" for key in ("unit", "target", "population", "metric", "success", "compare")),
    ):
        with pytest.raises(ValueError, match=key.rpartition(".")[2]):
            planned(digits(), {key: None})


def test_no_check_stands_in_for_another() -> None:
    """covers PLAN-72: a measured speed or a resume that holds is no pilot, and a pilot is no resume gate"""
    bare = planned(refresh(), {"base.against_pilot": None})
    assert bare.measured and "resume" in bare.gates
    assert "PLAN-33" in broken(replace(bare, pilot=None))
    assert broken(bare) == set() and bare.pilot is not None
    assert broken(replace(bare, gates=("first",))) == {"REVIEW-14"}


def test_rules_beside_the_items_have_ids_of_their_own() -> None:
    assert not {rule.id for rule in RULES} & set(ALL)
