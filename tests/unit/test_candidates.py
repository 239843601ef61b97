"""The registry alone: what its events come to, and which act it allows. No store, no clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from raykit.candidates import Act, Registry, fold
from raykit.candidates.evidence import gain, planned_surfaces, surface_of, why_tied
from raykit.candidates.registry import covers
from raykit.candidates.rules import (
    let_approve,
    let_depend,
    let_preserve,
    let_recommend,
    let_reject,
    let_switch,
    usable_for,
)
from raykit.errors import GateError, InvalidInput, NotFoundError, RaykitError
from raykit.ids import sha256
from raykit.records import (
    CandidateApproved,
    CandidateEvent,
    CandidateRejected,
    Dependent,
    Depends,
    Evidence,
    Inventory,
    Preserved,
    Recommended,
    Registered,
    Surface,
    Switched,
)
from raykit.store.check.candidates import RegistryRules

RECEIPT = sha256(b"receipt")


def digest(name: str) -> str:
    return sha256(name.encode())


def registered(name: str, role: str = "production-candidate", **said: Any) -> Registered:
    return Registered.model_validate(
        {
            "candidate": name,
            "role": role,
            "origin": "run",
            "manifest": digest(name),
            "key": f"experiments/{name}/runs/main/checkpoints/update-00000040/1/manifest.json",
            "experiment": name,
            "update": 40,
            "surfaces": (
                Surface(name="development.ratio", may_select=True),
                Surface(name="report_only.ratio", may_select=False),
            ),
            "person": "mira",
            **said,
        }
    )


def evidence(
    value: float, incumbent: float | None = None, against: str | None = None, **said: Any
) -> Evidence:
    return Evidence.model_validate(
        {
            "surface": "development.ratio",
            "better": "less",
            "value": value,
            "incumbent": incumbent,
            "against": None if against is None else digest(against),
            "worthwhile": 0.01,
            "how": "measured",
            **said,
        }
    )


def recommended(name: str, *found: Evidence, **said: Any) -> Recommended:
    return Recommended(
        candidate=name,
        evidence=found or (evidence(0.3),),
        receipts=(RECEIPT,),
        reason="r",
        person="mira",
        **said,
    )


def approved(name: str, use: str = "production", **said: Any) -> CandidateApproved:
    return CandidateApproved.model_validate(
        {
            "candidate": name,
            "manifest": digest(name),
            "use": use,
            "receipts": (RECEIPT,),
            "reason": "r",
            "person": "mira",
            **said,
        }
    )


def rejected(name: str) -> CandidateRejected:
    return CandidateRejected(candidate=name, reason="12 of 20 panels are blurred", person="ada")


def switched(to: str, from_: str | None = None, *items: Depends, **said: Any) -> Switched:
    inventory = None if from_ is None else Inventory(candidate=from_, manifest=digest(from_), items=items)
    return Switched.model_validate(
        {"to": to, "from_": from_, "inventory": inventory, "reason": "1 % better", "person": "mira", **said}
    )


def made(name: str, *, falls: bool = True) -> Depends:
    return Depends(kind="target-set", name=name, falls=falls, why="mira says so")


def registry(*events: CandidateEvent) -> Registry:
    return fold(Act(n=n, at=float(n), event=event) for n, event in enumerate(events, start=1))


PRODUCTION = (registered("prod"), recommended("prod"), approved("prod"), switched("prod"))
"""One candidate, in production."""
CHALLENGER = (*PRODUCTION, registered("next"))
BETTER = evidence(0.28, 0.31, "prod")
TIE = evidence(0.305, 0.31, "prod")


# --- what events come to ------------------------------------------------------------------------------------


def test_each_act_changes_what_it_is_about_and_nothing_else() -> None:
    # covers CAND-08, CAND-15, CAND-28, CAND-29
    acts: list[CandidateEvent] = [registered("best"), registered("other")]
    assert registry(*acts).candidates["best"].state == "observed"
    acts.append(recommended("best"))
    assert registry(*acts).candidates["best"].state == "recommended"
    acts.append(approved("best", "export"))
    found = registry(*acts)
    assert (found.candidates["best"].state, found.candidates["other"].state) == ("approved", "observed")
    assert found.production is None
    acts.append(Preserved(candidate="other", reason="r", person="ada"))
    acts.append(rejected("best"))
    found = registry(*acts)
    best, other = found.candidates["best"], found.candidates["other"]
    assert (best.state, best.approvals, best.recommendations) == ("observed", (), ())
    assert best.rejected is not None and best.rejected[1].person == "ada"
    assert other.preserved is not None
    assert [act.event.event for act in best.acts] == ["registered", "recommended", "approved", "rejected"]


def test_a_rejection_holds_until_somebody_recommends_it_anew() -> None:
    # covers CAND-29
    acts = [registered("best"), approved("best"), rejected("best")]
    with pytest.raises(GateError, match="ada has rejected best: 12 of 20 panels are blurred"):
        let_approve(registry(*acts), approved("best"))
    found = registry(*acts, recommended("best")).candidates["best"]
    assert (found.rejected, found.approvals, found.state) == (None, (), "recommended")


def test_a_correction_keeps_what_was_decided() -> None:
    # covers CAND-29
    found = registry(*PRODUCTION, registered("prod", "release-model", corrects=True))
    assert found.production is not None
    assert (found.production.said.role, found.production.state) == ("release-model", "approved")
    assert len(found.production.statements) == 2
    demoted = registry(*PRODUCTION, registered("prod", "diagnostic", corrects=True)).candidates["prod"]
    assert usable_for(demoted, "production") is None
    assert usable_for(demoted, "export") is not None


def test_an_approval_of_other_bytes_counts_for_nothing() -> None:
    # covers CAND-16
    found = registry(registered("best"), approved("best", manifest=digest("other"))).candidates["best"]
    assert found.state == "observed"
    with pytest.raises(GateError, match="stands for manifest"):
        let_approve(registry(registered("best")), approved("best", manifest=digest("other")))


def test_uses_cover_one_another_in_one_direction() -> None:
    assert [covers("export", use) for use in ("generation", "export", "production")] == [True, True, False]
    found = registry(registered("best"), approved("best", scripted=True)).candidates["best"]
    assert found.approved_for("production") is None, "a script's is none"
    assert found.approved_for("export") is not None


def test_whoever_is_in_place_is_the_incumbent() -> None:
    # covers CAND-23
    assert registry().incumbent is None
    found = registry(
        registered("b"), registered("a"), approved("a"), approved("b", scripted=True), approved("b")
    )
    assert found.incumbent is not None and found.incumbent.name == "a", "the first that a person approved"
    found = registry(registered("b"), registered("a"), approved("a"), approved("b"), switched("b", "a"))
    assert found.incumbent is not None and found.incumbent.name == "b"
    assert registry(*PRODUCTION, rejected("prod")).incumbent is None


def test_what_is_said_of_nobody_counts_for_nothing() -> None:
    found = registry(approved("ghost"), switched("ghost"), registered("best"))
    assert (list(found.candidates), found.production) == (["best"], None)


# --- differences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "tied"),
    [
        (evidence(0.28, 0.31, "prod"), False),
        (evidence(0.30, 0.31, "prod"), False),
        (evidence(0.3000001, 0.31, "prod"), True),
        (evidence(0.34, 0.31, "prod"), True),
        (evidence(0.34, 0.31, "prod", better="more"), False),
        (evidence(0.28, 0.31, "prod", worthwhile=None), True),
        (evidence(0.28), True),
        (evidence(0.35, 0.36, "prod"), False),
    ],
)
def test_a_difference_below_what_is_worthwhile_or_unknown_is_a_tie(found: Evidence, tied: bool) -> None:
    # covers CAND-11, CAND-21 to CAND-24, GOLD-23
    assert (why_tied(found) is not None) == tied


def test_differences_are_decimal() -> None:
    assert 0.35 - 0.34 < 0.01, "in binary fractions it is less"
    assert str(gain(evidence(0.34, 0.35, "prod"))) == "0.01"


# --- surfaces -----------------------------------------------------------------------------------------------


def test_only_development_selects() -> None:
    # covers CAND-05, CAND-12
    splits = {"group": "content", "train": 0.6, "development": 0.2, "report_only": 0.1, "sealed": 0.1}
    found = planned_surfaces({"splits": splits}, ["ratio"])
    assert [(each.name, each.may_select) for each in found] == [
        ("development.ratio", True),
        ("report_only.ratio", False),
        ("sealed.ratio", False),
    ]
    for split in ("report_only", "benchmark", "sealed", "calibration", "train"):
        with pytest.raises(GateError):
            surface_of(f"{split}.ratio=selects")
        assert surface_of(f"{split}.ratio=reports").may_select is False
    for text in ("development", "development.=selects", "development.ratio", "development.ratio=decides"):
        with pytest.raises(InvalidInput):
            surface_of(text)


# --- which act is allowed -----------------------------------------------------------------------------------


def test_a_selecting_tie_is_not_outweighed_by_a_report() -> None:
    # covers CAND-14, CAND-21
    report = evidence(0.1, 0.4, "prod", surface="report_only.ratio")
    with pytest.raises(GateError, match="next stays observed"):
        let_recommend(registry(*CHALLENGER), recommended("next", TIE, report), supports=True)
    assert let_recommend(registry(*CHALLENGER), recommended("next", report), supports=True) is not None
    after = registry(*CHALLENGER, recommended("next", report))
    with pytest.raises(GateError, match=r"prod stays: report_only\.ratio reports and never selects"):
        let_approve(after, approved("next"))
    assert let_approve(after, approved("next", "generation")) is not None


def test_a_tie_approves_and_switches_nothing() -> None:
    # covers CAND-11, CAND-21, CAND-23
    tied = registry(*CHALLENGER, recommended("next", TIE))
    with pytest.raises(GateError, match="prod stays"):
        let_approve(tied, approved("next"))
    forced = registry(*CHALLENGER, recommended("next", TIE), approved("next"))
    with pytest.raises(GateError, match="prod stays"):
        let_switch(forced, switched("next", "prod"), seen=None)


def test_a_switch_needs_an_approval_eyes_and_the_right_incumbent() -> None:
    # covers CAND-16, CAND-18
    ready = registry(*CHALLENGER, recommended("next", BETTER), approved("next"))
    with pytest.raises(GateError, match="is recommended, not approved for production"):
        let_switch(registry(*CHALLENGER, recommended("next", BETTER)), switched("next", "prod"), seen=None)
    event = let_switch(ready, switched("next", "prod", made("v1", falls=False)), seen=None)
    assert event is not None and event.evidence == (BETTER,)
    falls = switched("next", "prod", made("v1"))
    assert falls.inventory is not None
    for seen in (None, "", falls.inventory.digest[:7], "0" * 64):
        with pytest.raises(GateError, match="1 of 1 dependents of prod would fall"):
            let_switch(ready, falls, seen=seen)
    assert let_switch(ready, falls, seen=falls.inventory.digest) is not None
    with pytest.raises(GateError, match="the incumbent is prod by now, not nobody"):
        let_switch(ready, switched("next"), seen=None)
    with pytest.raises(GateError, match="a script's"):
        let_switch(ready, switched("next", "prod", scripted=True), seen=None)
    assert let_switch(ready, switched("prod"), seen=None) is None, "it is there already"


def test_the_incumbent_goes_only_if_something_is_wrong_with_it() -> None:
    # covers CAND-23, CAND-30
    found = registry(*PRODUCTION)
    with pytest.raises(GateError, match="prod is the incumbent"):
        let_reject(found, rejected("prod"), unusable=None)
    assert let_reject(found, rejected("prod"), unusable="it failed its QC") is not None
    assert let_reject(registry(*PRODUCTION, rejected("prod")), rejected("prod"), unusable="x") is None
    demoted = registry(*PRODUCTION, registered("prod", "diagnostic", corrects=True))
    assert let_reject(demoted, rejected("prod"), unusable=None) is not None


def test_what_changes_nothing_is_not_said_twice() -> None:
    found = registry(*PRODUCTION, Preserved(candidate="prod", reason="r", person="mira"))
    assert let_preserve(found, Preserved(candidate="prod", reason="other", person="ada")) is None
    assert let_recommend(found, recommended("prod"), supports=False) is None
    assert let_approve(found, approved("prod", "export", person="ada")) is None
    scripted = registry(registered("best"), approved("best", "export", scripted=True))
    assert let_approve(scripted, approved("best", "export", scripted=True)) is None
    assert let_approve(scripted, approved("best", "export")) is not None, "a person's says more"


def test_work_depends_on_very_bytes() -> None:
    # covers CAND-06
    event = Dependent(candidate="prod", manifest=digest("next"), kind="probe", name="p", person="mira")
    with pytest.raises(GateError, match="stands for manifest"):
        let_depend(registry(*PRODUCTION), event)
    with pytest.raises(NotFoundError):
        let_depend(registry(), event)


# --- any sequence of acts -----------------------------------------------------------------------------------

NAMES = ("a", "b", "a", "b", "e", "c", "d")
ROLES = {
    "a": "production-candidate",
    "b": "release-model",
    "c": "search-checkpoint",
    "d": "diagnostic",
    "e": "release-model",
}


def some_act(pick: random.Random, now: Registry) -> Callable[[], CandidateEvent | None]:
    """One thing that somebody may try, allowed or not."""
    name, scripted = pick.choice(NAMES), pick.random() < 0.2
    incumbent = now.incumbent
    rival = None if incumbent is None or incumbent.name == name else incumbent.name
    score = evidence(
        round(pick.uniform(0.2, 0.4), 3),
        None if rival is None else 0.3,
        pick.choice([rival, rival, rival, pick.choice(NAMES)]) if rival else None,
        surface=pick.choice(["development.ratio", "development.ratio", "report_only.ratio"]),
    )
    use = pick.choice(["generation", "export", "production", "production"])
    match pick.choices(range(7), weights=(4, 10, 10, 10, 1, 1, 1))[0]:
        case 0 if name not in now.candidates:
            return lambda: registered(name, ROLES[name])
        case 1:
            return lambda: let_recommend(
                now, recommended(name, score, scripted=scripted), supports=pick.random() < 0.5
            )
        case 2:
            return lambda: let_approve(now, approved(name, use, scripted=scripted))
        case 3:
            return lambda: let_switch(now, switched(name, rival, scripted=scripted), seen=None)
        case 4:
            return lambda: let_reject(now, rejected(name), unusable=pick.choice([None, "it failed its QC"]))
        case 5:
            return lambda: let_preserve(
                now, Preserved(candidate=name, keep=scripted, reason="1 of 2", person="ada")
            )
        case _:
            return lambda: let_depend(
                now, Dependent(candidate=name, manifest=digest(name), kind="probe", name="p", person="ada")
            )


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_whatever_people_try_production_is_always_a_persons_choice(first: int) -> None:
    """And the check, which tells the rules once more from the events alone, finds nothing wrong with any of it."""
    # covers I8, CAND-10, CAND-16, CAND-27
    walks = [walk(seed) for seed in range(first, first + 5)]
    assert sum(refused for refused, _ in walks) > 100
    assert sum(switches for _, switches in walks) > 5, "nothing was ever put into production"


def walk(seed: int) -> tuple[int, int]:
    """Many things that people try: how many were refused, and how often production has changed."""
    pick, acts, rules = random.Random(seed), list[CandidateEvent](), RegistryRules()
    refused = switches = 0
    for _ in range(300):
        before = registry(*acts)
        try:
            event = some_act(pick, before)()
        except RaykitError:
            refused += 1
            continue
        if event is None:
            continue
        assert list(rules.take(event)) == [], (seed, event)
        acts.append(event)
        after = registry(*acts)
        if isinstance(event, Switched):
            switches += 1
            assert after.production is not None
            approval = after.production.approved_for("production")
            assert approval is not None and not approval[1].scripted, seed
            assert after.production.said.role in ("production-candidate", "release-model"), seed
        for name, known in before.candidates.items():
            assert after.candidates[name].acts[: len(known.acts)] == known.acts, "nothing that was said goes"
    return refused, switches
