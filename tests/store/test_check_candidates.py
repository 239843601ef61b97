"""`check` and the registry: what people may decide, told once more from the events; weights and receipts are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from makeqc import QcMaker, failed, make_examined, make_trained

from raykit.candidates import Act, fold
from raykit.records import (
    CandidateApproved,
    CandidateEvent,
    CandidateRejected,
    CandidatesEntry,
    Dependent,
    Depends,
    Evidence,
    Inventory,
    Recommended,
    Registered,
    Surface,
    Switched,
)
from raykit.store import layout
from raykit.store.candidates import register
from raykit.store.check import check
from raykit.store.check.candidates import RegistryRules
from raykit.store.log import Log
from raykit.testing import MemoryStore

AT = 1_900_000_000.0
SURFACES = (
    Surface(name="development.ratio", may_select=True),
    Surface(name="report_only.ratio", may_select=False),
)


def whole() -> tuple[MemoryStore, list[CandidateEvent]]:
    """A store in which one production candidate has followed another, and the acts that led there."""
    store = MemoryStore()
    maker = make_examined(store)
    receipts = {update: maker.examinations.receipt(maker.request(update).id) for update in (30, 40)}
    found = {update: maker.commit_at(update) for update in (30, 40)}

    def registered(name: str, update: int) -> Registered:
        commit = found[update]
        return Registered(
            candidate=name, role="production-candidate", origin="run", manifest=commit.sha256, key=commit.key,
            experiment="digits", update=update, surfaces=SURFACES, person="mira",
        )  # fmt: skip

    def recommended(name: str, update: int, *evidence: Evidence) -> Recommended:
        receipt = receipts[update]
        assert receipt is not None
        return Recommended(
            candidate=name, evidence=evidence, receipts=(receipt.digest,), reason="r", person="mira"
        )

    def approved(name: str, update: int) -> CandidateApproved:
        receipt = receipts[update]
        assert receipt is not None
        return CandidateApproved(
            candidate=name,
            manifest=found[update].sha256,
            receipts=(receipt.digest,),
            reason="r",
            person="mira",
        )

    prod = found[30].sha256
    score: dict[str, Any] = {"surface": "development.ratio", "better": "less", "how": "measured"}
    better = Evidence(**score, value=0.308, incumbent=0.379, against=prod, worthwhile=0.01)
    work = Depends(kind="target-set", name="v1", falls=True, why="mira says so")
    acts: list[CandidateEvent] = [
        registered("prod", 30),
        recommended("prod", 30, Evidence(**score, value=0.379)),
        approved("prod", 30),
        Switched(to="prod", reason="the first", person="mira"),
        Dependent(candidate="prod", manifest=prod, kind="target-set", name="v1", person="mira"),
        registered("next", 40),
        recommended("next", 40, better),
        approved("next", 40),
        Switched(
            to="next",
            from_="prod",
            evidence=(better,),
            inventory=Inventory(candidate="prod", manifest=prod, items=(work,)),
            reason="better by 0.071",
            person="mira",
        ),
    ]
    return store, acts


STORE, ACTS = whole()


def written(acts: Sequence[CandidateEvent]) -> MemoryStore:
    """The store with a registry that says exactly this, whatever may be said."""
    store = MemoryStore(dict(STORE.objects))
    log = Log(store, layout.candidates_log(), CandidatesEntry, by="a faulty writer")
    for act in acts:
        log.append(lambda entries, act=act: [act], at=AT)  # type: ignore[misc]
    return store


def found(acts: Sequence[CandidateEvent]) -> set[str]:
    return {finding.rule for finding in check(written(acts), read_data=True).findings}


def changed(n: int, **said: Any) -> list[CandidateEvent]:
    """The acts, one of them otherwise."""
    return [act.model_copy(update=said) if at == n else act for at, act in enumerate(ACTS)]


def test_what_people_did_in_good_order_is_whole() -> None:
    # covers I12
    assert found(ACTS) == set()
    assert fold(Act(n=n, at=0, event=act) for n, act in enumerate(ACTS)).production is not None


BETTER = ACTS[6].evidence[0]  # type: ignore[union-attr]


def evidence(**said: Any) -> tuple[Evidence, ...]:
    return (BETTER.model_copy(update=said),)


@pytest.mark.parametrize(
    ("n", "said", "rule"),
    [
        (0, {"role": "diagnostic"}, "a diagnostic checkpoint is not recommended"),
        (0, {"role": "search-checkpoint"}, "a role permits production"),
        (0, {"candidate": "other"}, "people decide of what is registered"),
        (1, {"candidate": "ghost"}, "people decide of what is registered"),
        (1, {"receipts": ()}, "a decision rests on examined weights"),
        (1, {"receipts": ("0" * 64,)}, "a decision rests on examined weights"),
        (2, {"receipts": ()}, "a decision rests on examined weights"),
        (2, {"receipts": (), "unexamined": "because"}, "a decision rests on examined weights"),
        (2, {"receipts": ACTS[7].receipts}, "a decision rests on examined weights"),  # type: ignore[union-attr]
        (2, {"manifest": "0" * 64}, "an act names the very weights"),
        (2, {"use": "export"}, "only what is approved for production goes there"),
        (2, {"scripted": True}, "production is a person's choice"),
        (3, {"to": "ghost"}, "people decide of what is registered"),
        (3, {"from_": "prod"}, "a switch says what it replaces"),
        (4, {"manifest": "0" * 64}, "an act names the very weights"),
        (4, {"candidate": "ghost"}, "people decide of what is registered"),
        (5, {"surfaces": ()}, "a recommendation names a surface of its candidate"),
        (5, {"surfaces": (Surface(name="development.ratio", may_select=False),)},
         "only a difference that matters displaces the incumbent"),
        (6, {"evidence": evidence(value=0.37)}, "only a difference that matters displaces the incumbent"),
        (6, {"evidence": evidence(against="0" * 64)}, "only a difference that matters displaces the incumbent"),
        (6, {"evidence": evidence(worthwhile=None)}, "only a difference that matters displaces the incumbent"),
        (6, {"evidence": ()}, "only a difference that matters displaces the incumbent"),
        (7, {"candidate": "prod"}, "an act names the very weights"),
        (8, {"scripted": True}, "production is a person's choice"),
        (8, {"from_": None}, "a switch says what it replaces"),
        (8, {"inventory": None}, "a switch shows what falls"),
        (8, {"inventory": Inventory(candidate="prod", manifest="0" * 64)}, "a switch shows what falls"),
    ],
)  # fmt: skip
def test_each_act_that_was_not_allowed_is_found(n: int, said: dict[str, Any], rule: str) -> None:
    # covers I8, I12, CAND-09, CAND-10, CAND-11, CAND-12, CAND-16, CAND-18, CAND-21, CAND-29
    assert rule in found(changed(n, **said))


@pytest.mark.parametrize("n", [0, 2, 5, 6, 7])
def test_each_act_that_is_left_out_is_missed(n: int) -> None:
    # covers I8, CAND-16, CAND-29
    assert found([act for at, act in enumerate(ACTS) if at != n])


def test_what_is_rejected_is_not_approved() -> None:
    # covers I8
    no = CandidateRejected(candidate="next", reason="r", person="ada")
    assert "what is rejected is not approved" in found([*ACTS[:7], no, *ACTS[7:]])
    assert found([*ACTS[:7], no, ACTS[6], *ACTS[7:]]) == set(), "it was recommended anew"


def test_a_receipt_that_has_failed_carries_nothing() -> None:
    # covers I8
    store = MemoryStore()
    maker = make_trained(QcMaker(store))
    for update in range(0, 41, 10):
        maker.examine(update, findings=[failed()] if update == 40 else ())
    maker.review(0, 10, 20, 30)
    commit = maker.commit_at(40)
    receipt = maker.examinations.receipt(maker.request(40).id)
    assert receipt is not None
    register(store, ACTS[5].model_copy(update={"manifest": commit.sha256, "key": commit.key}), at=AT)
    event = CandidateApproved(
        candidate="next", manifest=commit.sha256, receipts=(receipt.digest,), reason="r", person="mira"
    )
    log = Log(store, layout.candidates_log(), CandidatesEntry, by="a faulty writer")
    log.append(lambda entries: [event], at=AT)
    (finding,) = check(store, read_data=True).findings
    assert (finding.rule, "has failed" in finding.found) == ("a decision rests on examined weights", True)


def test_a_receipt_that_is_gone_is_missed() -> None:
    # covers I8
    store = written(ACTS)
    for key in [key for key in store.objects if "/qc/receipts/" in key]:
        del store.objects[key]
    rules = [finding.rule for finding in check(store, read_data=True).findings]
    assert "a decision rests on examined weights" in rules


def test_the_same_bytes_under_two_names_are_found() -> None:
    # covers I2, CAND-01
    twice = ACTS[0].model_copy(update={"candidate": "again"})
    assert "a name stands for one set of weights" in found([*ACTS, twice])
    rules = RegistryRules()
    assert [list(rules.take(act)) for act in ACTS] == [[] for _ in ACTS]
