"""The registry through the command line: who may say what of which weights, and what no number decides."""

from __future__ import annotations

import io
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from called import Called, Raykit, calls
from makeqc import QcMaker, failed, make_examined, make_trained, moved
from makerun import RunMaker, make_run
from test_bases import adopted, relock

from raykit.errors import ApprovalError, GateError
from raykit.plan import LockedBase
from raykit.read.bases import resolve_base
from raykit.read.candidates import require_approved
from raykit.records import CandidatesEntry, Dependent
from raykit.store import LocalStore, layout
from raykit.store.candidates import read_candidate_registry
from raykit.store.check import check
from raykit.store.log import Log
from raykit.store.plans import newest_stored_lock

BY = ("--by", "mira")
WHY = ("--reason", "the ratio is 0.308, and 0.35 was asked for")
DEV = ("--surface", "development.ratio")
NOW = 1_900_000_000.0


class Terminal(io.StringIO):
    """Somebody sits there."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def raykit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Raykit:
    """The command line of a person at a terminal."""
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "stdin", Terminal())
    return calls(capsys)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def ok(called: Called) -> Called:
    assert called.code == 0, called.out + called.err
    return called


def register(raykit: Raykit, name: str, weights: str, role: str = "production-candidate") -> Called:
    return ok(raykit("candidates", "register", name, weights, "--role", role, *BY))


def recommend(raykit: Raykit, name: str, *options: str) -> Called:
    return raykit("candidates", "recommend", name, *(options or DEV), *WHY, *BY)


def approve(raykit: Raykit, name: str, use: str, *options: str) -> Called:
    return raykit("candidates", "approve", name, "--use", use, *WHY, *BY, *options)


def in_production(raykit: Raykit, name: str, *options: str) -> Called:
    """Recommend, approve and switch to a candidate."""
    ok(recommend(raykit, name))
    ok(approve(raykit, name, "production"))
    return raykit("candidates", "switch", name, *WHY, *BY, *options)


def shown(raykit: Raykit, name: str) -> Any:
    return ok(raykit("candidates", "show", name, "--json")).json


def events(store: LocalStore) -> list[str]:
    log = Log(store, layout.candidates_log(), CandidatesEntry, by="reader")
    return [event.event for entry in log.refresh() for event in entry.events]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> QcMaker:
    return make_examined(LocalStore(tmp_path_factory.mktemp("made") / "store"))


@pytest.fixture
def digits(made: QcMaker, store: LocalStore) -> QcMaker:
    """Five checkpoints, examined and reviewed; at 40 its ratio is 0.308, at 30 it is 0.379."""
    shutil.copytree(made.store.url, store.url)
    return moved(made, store)


def continued(store: LocalStore, base: LockedBase) -> None:
    """An experiment that trains on from these weights."""
    relock(store, "continued", base, "continue")
    lock = newest_stored_lock(store, "continued")
    assert lock is not None
    plan = RunMaker(store, experiment="continued").plan_file()
    store.put_new(layout.plan("continued", lock.digest, "plan.toml"), plan)


# --- registering --------------------------------------------------------------------------------------------


def test_a_checkpoint_is_registered_with_all_that_is_known_of_it(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-01 to CAND-05, CAND-07, CAND-08
    digits = make_examined(store, accelerator_s=7200.0)
    said = register(raykit, "best", "digits@40").out
    assert "best is registered: observed; a name chooses nothing" in said
    assert "-> raykit candidates recommend best --surface development.ratio" in said
    found = shown(raykit, "best")
    assert found["key"] == "experiments/digits/runs/main/checkpoints/update-00000040/1/manifest.json"
    assert found["manifest"] == resolve_base(store, "digits@40").manifest
    assert (found["role"], found["state"], found["decision"]) == (
        "production-candidate",
        "observed",
        "Is digits good?",
    )
    assert (found["update"], found["rows"], len(found["data"])) == (40, 1258, 64)
    assert found["surfaces"] == [
        {"name": "development.ratio", "may_select": True},
        {"name": "report_only.ratio", "may_select": False},
    ]
    assert found["size_bytes"] == digits.commit_at(40).size_bytes
    assert found["replacement"]["accelerator_ms"] == 7_200_000
    text = ok(raykit("candidates", "show", "best")).out
    assert "trained   40 updates on 1,258 rows" in text
    assert "kept      as a registered candidate" in text
    assert (
        "2 accelerator-hours, cost to retrain not known (replacement cost, not evidence of quality)" in text
    )


def test_the_selected_checkpoint_is_taken_where_no_update_is_named(raykit: Raykit, digits: QcMaker) -> None:
    register(raykit, "best", "digits")
    assert shown(raykit, "best")["update"] == 40


def test_whoever_registers_a_second_one_sees_the_first(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-01
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    said = register(raykit, "next", "digits@40").out
    assert "beside it: prod (production-candidate, approved)" in said
    assert "in production: prod" in said
    listed = ok(raykit("candidates", "list")).out
    assert [line.split()[:3] for line in listed.splitlines()[1:3]] == [
        ["prod", "production-candidate", "approved"],
        ["next", "production-candidate", "observed"],
    ]
    assert "in production" in listed.splitlines()[1]


def test_the_same_weights_have_one_name(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    """Nobody promotes a diagnostic checkpoint by registering it once more as something else."""
    # covers CAND-01, CAND-09, CAND-29
    register(raykit, "probe", "digits@40", "diagnostic")
    again = raykit(
        "candidates", "register", "prod", "digits@40", "--role", "production-candidate", *BY, "--json"
    )
    assert (again.code, again.error["message"]) == (2, "these weights are registered already, as probe")
    assert raykit("candidates", "register", "digits", "digits@40", "--role", "refit", *BY).code == 2
    assert events(store) == ["registered"]


def test_a_role_is_not_changed_silently(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-03, CAND-29
    register(raykit, "best", "digits@40", "search-checkpoint")
    assert "already" in register(raykit, "best", "digits@40", "search-checkpoint").out
    other = ("candidates", "register", "best", "digits@40", "--role", "release-model", *BY)
    refused = raykit(*other, "--json")
    assert "was registered by mira with role search-checkpoint, not release-model" in refused.error["message"]
    assert "raykit candidates register best digits@40" in refused.error["remedy"]
    ok(approve(raykit, "best", "generation"))
    assert "what was said of it is corrected" in ok(raykit(*other, "--correct")).out
    found = shown(raykit, "best")
    assert (found["role"], found["state"]) == ("release-model", "approved"), "what was decided stays"
    assert [(act["event"], act["person"]) for act in found["acts"]] == [
        ("registered", "mira"),
        ("approved", "mira"),
        ("registered", "mira"),
    ]


def test_only_development_may_select(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-05, CAND-12
    command = ("candidates", "register", "best", "digits@40", "--role", "refit", *BY, "--surface")
    refused = raykit(*command, "report_only.ratio=selects", "--json")
    assert (refused.code, refused.error["remedy"]) == (3, "--surface report_only.ratio=reports")
    assert raykit(*command, "ratio").code == 2
    assert events(store) == []
    ok(raykit(*command, "report_only.ratio=reports", "--surface", "development.recon=selects"))
    assert [each["name"] for each in shown(raykit, "best")["surfaces"]] == [
        "report_only.ratio",
        "development.recon",
    ]


def test_what_is_broken_or_not_there_gets_no_name(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-02
    assert raykit("candidates", "register", "best", "digits@41", "--role", "refit", *BY).code == 2
    assert raykit("candidates", "register", "best", "nobody@1", "--role", "refit", *BY).code == 2
    model = Path(store.url) / digits.commit_at(40).key.replace("manifest.json", "model.safetensors")
    model.chmod(0o600)
    model.write_bytes(b"x" + model.read_bytes()[1:])
    assert raykit("candidates", "register", "best", "digits@40", "--role", "refit", *BY).code == 5
    assert events(store) == []


def test_nobody_acts_without_a_name(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-29
    register(raykit, "best", "digits@40")
    for command in (
        ("register", "two", "digits@30", "--role", "refit"),
        ("recommend", "best", *DEV, *WHY),
        ("approve", "best", "--use", "export", *WHY),
        ("reject", "best", *WHY),
        ("preserve", "best", *WHY),
        ("switch", "best", *WHY),
        ("dependents", "best", "--add", "probe", "--name", "p"),
    ):
        called = raykit("candidates", *command, "--json")
        assert (called.code, called.error["field"]) == (2, "--by"), command
    for command in ("recommend best --surface development.ratio", "approve best --use export", "reject best"):
        called = raykit("candidates", *command.split(), *BY, "--json")
        assert (called.code, called.error["field"]) == (2, "--reason"), command


# --- recommending -------------------------------------------------------------------------------------------


def test_a_recommendation_is_no_approval(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-08, CAND-15, CAND-16
    register(raykit, "best", "digits@40")
    assert "best is recommended, not approved" in ok(recommend(raykit, "best")).out
    assert "best is recommended already" in ok(recommend(raykit, "best")).out
    found = shown(raykit, "best")
    assert (found["state"], len(found["recommended"]), found["approved"]) == ("recommended", 1, [])
    (evidence,) = found["recommended"][0]["evidence"]
    assert evidence == {
        "surface": "development.ratio",
        "better": "less",
        "value": 0.308268,
        "worthwhile": 0.01,
        "how": "the development history of digits/main at update 40",
    }
    receipt = digits.examinations.receipt(digits.request(40).id)
    assert receipt is not None and found["recommended"][0]["receipts"] == [receipt.digest]
    assert events(store) == ["registered", "recommended"]


def test_a_challenger_that_wins_by_too_little_stays_observed(raykit: Raykit, store: LocalStore) -> None:
    # covers GOLD-23, CAND-11, CAND-21, CAND-22, CAND-23
    make_examined(store, ratios={30: 0.31, 40: 0.301})
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    before = shown(raykit, "prod")
    register(raykit, "winner", "digits@40")
    refused = recommend(raykit, "winner")
    assert refused.code == 3
    assert "winner stays observed, and prod where it is" in refused.err
    assert "0.301 against 0.31 is better by 0.009, and 0.01 would be worthwhile" in refused.err
    assert shown(raykit, "winner")["state"] == "observed"
    for command in (("approve", "winner", "--use", "production"), ("switch", "winner")):
        assert raykit("candidates", *command, *WHY, *BY).code == 3, command
    after = shown(raykit, "prod")
    assert after == before, "the incumbent is exactly as it was"
    assert (after["production"], after["verifies"]) == (True, True)


@pytest.mark.parametrize(("score", "code"), [(0.30, 0), (0.300001, 3)])
def test_exactly_what_is_worthwhile_is_enough(
    score: float, code: int, raykit: Raykit, store: LocalStore
) -> None:
    """In decimal numbers: 0.31 - 0.30 is 0.01, whatever binary fractions make of it."""
    # covers CAND-24
    make_examined(store, ratios={30: 0.31, 40: score})
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    register(raykit, "next", "digits@40")
    assert recommend(raykit, "next").code == code


def test_the_larger_of_two_thresholds_counts(raykit: Raykit, store: LocalStore) -> None:
    """A challenger's own plan cannot lower what the incumbent's plan has called worthwhile."""
    # covers CAND-24
    make_examined(store, worthwhile=0.05)
    make_examined(store, experiment="later", ratios={40: 0.29}, worthwhile=0.001)
    register(raykit, "prod", "digits@40")
    ok(in_production(raykit, "prod"))
    register(raykit, "next", "later@40")
    refused = recommend(raykit, "next")
    assert (refused.code, "0.05 would be worthwhile" in refused.err) == (3, True)


def test_what_was_measured_on_other_members_is_not_compared(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-23
    make_examined(store)
    make_examined(store, experiment="later", ratios={40: 0.1}, data="of 2026")
    register(raykit, "prod", "digits@40")
    ok(in_production(raykit, "prod"))
    register(raykit, "next", "later@40")
    refused = recommend(raykit, "next")
    assert (refused.code, "what the incumbent scores on development.ratio is not known" in refused.err) == (
        3,
        True,
    )
    said = ("--incumbent-value", "0.3", "--how", "prod on the 2026 set")
    ok(recommend(raykit, "next", *DEV, *said))
    (evidence,) = shown(raykit, "next")["recommended"][0]["evidence"]
    assert (evidence["value"], evidence["incumbent"]) == (0.1, 0.3)
    assert evidence["how"] == (
        "the development history of later/main at update 40; the incumbent's as mira says: prod on the 2026 set"
    )
    assert "as mira says: prod on the 2026 set" in ok(raykit("candidates", "show", "next")).out


def test_a_typed_score_never_stands_beside_a_measured_one(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-10, CAND-12
    register(raykit, "best", "digits@40")
    measured = 0.308268
    refused = recommend(raykit, "best", *DEV, "--value", "0.001", "--how", "x")
    assert refused.code == 3
    assert f"the store has {measured!r} for best on development.ratio, not 0.001" in refused.err
    assert "leave --value out" in refused.err
    assert events(store) == ["registered"]
    ok(recommend(raykit, "best", *DEV, "--value", repr(measured)))
    (evidence,) = shown(raykit, "best")["recommended"][0]["evidence"]
    assert evidence["how"] == "the development history of digits/main at update 40"


def test_the_incumbents_measured_score_is_not_typed_over(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-21
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    register(raykit, "best", "digits@40")
    refused = recommend(raykit, "best", *DEV, "--incumbent-value", "0.9", "--how", "x")
    assert (refused.code, "leave --incumbent-value out" in refused.err) == (3, True)


def test_wherever_a_typed_score_is_shown_it_says_whose_it_is(raykit: Raykit, store: LocalStore) -> None:
    make_examined(store, report_only_supports=True)
    register(raykit, "best", "digits@40")
    typed = ("--surface", "report_only.ratio", "--value", "0.2", "--how", "the report of May")
    wanted = "report_only.ratio 0.2, compared with nothing, as mira says: the report of May"
    assert wanted in ok(recommend(raykit, "best", *typed)).out
    assert wanted in ok(raykit("candidates", "show", "best")).out
    assert wanted in ok(approve(raykit, "best", "generation")).out


def test_a_report_only_metric_supports_only_where_the_plan_allows_it(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-13
    register(raykit, "best", "digits@40")
    said = ("--surface", "report_only.ratio", "--value", "0.2", "--how", "the report")
    refused = raykit("candidates", "recommend", "best", *said, *WHY, *BY, "--json")
    assert (refused.code, refused.error["field"]) == (3, "claim.report_only")
    assert shown(raykit, "best")["state"] == "observed"


def test_a_report_only_metric_recommends_and_never_approves(raykit: Raykit, store: LocalStore) -> None:
    # covers GOLD-24, CAND-13, CAND-14, CAND-16, CAND-17
    make_examined(store, report_only_supports=True)
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    register(raykit, "best", "digits@40")
    said = (
        "--surface",
        "report_only.ratio",
        "--value",
        "0.2",
        "--incumbent-value",
        "0.4",
        "--how",
        "a report",
    )
    ok(recommend(raykit, "best", *said))
    found = shown(raykit, "best")
    assert (found["state"], found["approved"]) == ("recommended", [])
    with pytest.raises(ApprovalError, match="best is recommended, and not approved for generation") as caught:
        require_approved(store, found["manifest"], "generation", what="best", now=NOW)
    assert caught.value.remedy == "raykit candidates approve best --use generation --reason ... --by NAME"
    refused = approve(raykit, "best", "production")
    assert (refused.code, "report_only.ratio reports and never selects" in refused.err) == (3, True)
    assert shown(raykit, "best")["state"] == "recommended"


def test_a_diagnostic_checkpoint_is_recommended_by_no_number(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-09
    register(raykit, "probe", "digits@40", "diagnostic")
    refused = recommend(raykit, "probe", *DEV, "--value", "0.0001")
    assert (refused.code, "no number recommends it" in refused.err) == (3, True)
    assert events(store) == ["registered"]


def test_only_registered_surfaces_and_finite_values_count(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-05
    register(raykit, "best", "digits@40")
    called = recommend(raykit, "best", "--surface", "development.recon", "--better", "less")
    assert (called.code, "not a surface of best" in called.err) == (3, True)
    assert "raykit candidates register best digits@40 --role production-candidate" in called.err
    assert recommend(raykit, "best", *DEV, "--value", "nan").code == 2
    called = recommend(raykit, "best", "--surface", "moon")
    assert (called.code, "moon is not a surface of best" in called.err) == (3, True)
    assert "pass   --surface development.ratio" in called.err
    assert recommend(raykit, "best", "--surface", "report_only.ratio").code == 3, "nobody has measured it"


def test_which_is_better_is_asked_where_nobody_knows(raykit: Raykit, digits: QcMaker) -> None:
    ok(raykit("candidates", "register", "best", "digits@40", "--role", "refit", *BY,
              "--surface", "development.recon=selects"))  # fmt: skip
    called = raykit("candidates", "recommend", "best", "--surface", "development.recon", *WHY, *BY, "--json")
    assert (called.code, called.error["field"]) == (3, "--better")
    ok(recommend(raykit, "best", "--surface", "development.recon", "--better", "less"))


# --- examined -----------------------------------------------------------------------------------------------


def unexamined(maker: QcMaker) -> QcMaker:
    make_trained(maker)
    maker.examine(0)
    return maker


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda maker: None, "its QC is missing"),
        (lambda maker: maker.ask(40), "its QC is pending"),
        (lambda maker: maker.examine(40), "its QC receipt is not reviewed"),
        (lambda maker: maker.examine(40, findings=[failed()]), "it failed its QC: ratio 0.41, wanted > 0.35"),
        (
            lambda maker: (maker.examine(40), maker.review(40, verdict="failed", note="blurred")),
            "mira has reviewed it as failed: blurred",
        ),
        (
            lambda maker: (maker.examine(40, findings=[failed()]), maker.review(40)),
            "it failed its QC",
        ),
    ],
    ids=["missing", "pending", "unreviewed", "failed", "reviewed as failed", "failed whatever a review says"],
)
def test_no_decision_rests_on_what_is_not_examined(
    prepare: Callable[[QcMaker], Any], why: str, raykit: Raykit, store: LocalStore
) -> None:
    # covers CAND-10, CAND-17, CAND-32
    prepare(unexamined(QcMaker(store)))
    register(raykit, "best", "digits@40")
    for called in (recommend(raykit, "best"), approve(raykit, "best", "generation")):
        assert (called.code, why in called.err) == (3, True), called.err
        assert "raykit qc" in called.err
    assert shown(raykit, "best")["state"] == "observed"


def test_a_checkpoint_off_the_cadence_is_examined_by_nobody(raykit: Raykit, store: LocalStore) -> None:
    maker = QcMaker(store)
    maker.every = 20
    make_trained(maker)
    register(raykit, "best", "digits@30")
    called = approve(raykit, "best", "generation")
    assert (called.code, "nobody has examined it" in called.err) == (3, True)


def test_a_plan_without_qc_makes_nothing_that_can_be_chosen(raykit: Raykit, store: LocalStore) -> None:
    make_run(store)
    register(raykit, "best", "digits@40")
    for called in (recommend(raykit, "best"), approve(raykit, "best", "export", "--unexamined", "I like it")):
        assert (called.code, "digits has no [qc]" in called.err) == (3, True)


def test_a_base_from_elsewhere_is_used_only_for_a_stated_reason(raykit: Raykit, store: LocalStore) -> None:
    said = adopted(store)
    assert approve(raykit, "prod", "generation").code == 3
    why = ("--unexamined", "its people have published 12 benchmarks of it")
    assert approve(raykit, "prod", "production", *why).code == 3
    ok(approve(raykit, "prod", "generation", *why))
    let = require_approved(store, said.manifest, "generation", what="prod", now=NOW)
    assert (let.approval.unexamined, let.approval.receipts) == (why[1], ())
    ok(raykit("candidates", "register", "prod", "prod", "--role", "diagnostic", "--correct", *BY))
    with pytest.raises(GateError, match="nobody here has examined it"):
        require_approved(store, said.manifest, "generation", what="prod", now=NOW)


def test_what_can_be_examined_is_never_let_through_unexamined(raykit: Raykit, store: LocalStore) -> None:
    unexamined(QcMaker(store))
    register(raykit, "best", "digits@40", "base")
    assert approve(raykit, "best", "generation", "--unexamined", "because it would take 2 h").code == 3


@pytest.mark.parametrize("act", ["recommend", "approve"])
def test_what_is_examined_is_not_called_unexamined(
    act: str, raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    register(raykit, "best", "digits@40", "base")
    options = DEV if act == "recommend" else ("--use", "export")
    called = raykit("candidates", act, "best", *options, "--unexamined", "no time", *WHY, *BY)
    assert (called.code, "leave --unexamined out" in called.err) == (2, True)
    assert events(store) == ["registered"]


# --- approving ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["diagnostic", "search-checkpoint", "refit", "base"])
def test_the_role_permits_production_or_nothing_does(
    role: str, raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-09, CAND-10
    register(raykit, "best", "digits@40", role)
    refused = approve(raykit, "best", "production")
    assert (refused.code, "its role does not permit production, whatever it scores" in refused.err) == (
        3,
        True,
    )
    assert "production-candidate" in refused.err
    relabel = "--correct" in refused.err
    assert relabel == (role != "search-checkpoint"), "another name makes no run of its own of a trial"
    assert relabel or "a run of its own" in refused.err
    assert events(store) == ["registered"]


def test_an_approval_is_of_this_very_candidate(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    """Not of its plan, not of an account, not of another candidate, however alike."""
    # covers CAND-16, CAND-17
    register(raykit, "best", "digits@40")
    register(raykit, "other", "digits@30")
    raykit("approve", "account", "digits", "5", *WHY, *BY)
    ok(approve(raykit, "other", "export"))
    found = shown(raykit, "best")
    assert (found["state"], found["approved"]) == ("observed", [])
    with pytest.raises(ApprovalError):
        require_approved(store, found["manifest"], "generation", what="best", now=NOW)
    with pytest.raises(ApprovalError, match="digits@20 is no candidate") as caught:
        require_approved(
            store, resolve_base(store, "digits@20").manifest, "export", what="digits@20", now=NOW
        )
    assert "raykit candidates register NAME digits@20" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("use", "let"),
    [
        ("generation", {"generation"}),
        ("export", {"generation", "export"}),
        ("production", {"generation", "export", "production"}),
    ],
)
def test_a_wider_use_covers_the_narrower(
    use: str, let: set[str], raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-17
    register(raykit, "best", "digits@40")
    ok(approve(raykit, "best", use))
    manifest = shown(raykit, "best")["manifest"]
    for wanted in ("generation", "export", "production"):
        if wanted in let:
            require_approved(store, manifest, wanted, what="best", now=NOW)
        else:
            with pytest.raises(ApprovalError, match=f"not approved for {wanted}"):
                require_approved(store, manifest, wanted, what="best", now=NOW)


def test_an_approval_names_bytes_and_receipts(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-16, CAND-17
    register(raykit, "best", "digits@40")
    text = ok(approve(raykit, "best", "export")).out
    assert "best is approved for export by mira" in text
    assert "invested" in text and "not evidence of quality" in text
    (approval,) = shown(raykit, "best")["approved"]
    assert approval["manifest"] == digits.commit_at(40).sha256
    receipt = digits.examinations.receipt(digits.request(40).id)
    assert receipt is not None and approval["receipts"] == [receipt.digest]
    assert "already" in ok(approve(raykit, "best", "export")).out
    assert "already" in ok(approve(raykit, "best", "generation")).out
    assert events(store) == ["registered", "approved"]


def test_a_script_chooses_nothing_for_production(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-12
    register(raykit, "best", "digits@40")
    refused = approve(raykit, "best", "production", "--scripted")
    assert (refused.code, "this one is a script's" in refused.err) == (3, True)
    said = ok(approve(raykit, "best", "generation", "--scripted")).out
    assert "scripted: never enough for production" in said
    receipt = digits.examinations.receipt(digits.request(40).id)
    assert receipt is not None
    assert f"rests on  QC receipt {receipt.digest[:8]} of these weights" in said
    assert "mira, scripted" in ok(raykit("candidates", "show", "best")).out
    assert shown(raykit, "best")["approved"][0]["scripted"] is True
    ok(approve(raykit, "best", "generation"))
    assert [each["scripted"] for each in shown(raykit, "best")["approved"]] == [True, False]


@pytest.mark.parametrize("role", ["diagnostic", "search-checkpoint"])
def test_only_a_person_lets_out_what_was_made_on_the_way(
    role: str, raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-12
    register(raykit, "probe", "digits@40", role)
    refused = approve(raykit, "probe", "export", "--scripted")
    assert (refused.code, f"letting a {role} checkpoint out for inspection" in refused.err) == (3, True)
    ok(approve(raykit, "probe", "export"))
    require_approved(store, digits.commit_at(40).sha256, "export", what="probe", now=NOW)


def test_a_scripts_approval_lets_nothing_out_once_the_role_is_corrected(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    register(raykit, "best", "digits@40", "refit")
    ok(approve(raykit, "best", "export", "--scripted"))
    ok(raykit("candidates", "register", "best", "digits@40", "--role", "diagnostic", "--correct", *BY))
    with pytest.raises(ApprovalError, match="not approved for export"):
        require_approved(store, digits.commit_at(40).sha256, "export", what="best", now=NOW)


def suggested(called: Called) -> list[str]:
    """The command that comes next, with its blanks filled in."""
    (line,) = [each for each in ok(called).out.splitlines() if each.strip().startswith("->")]
    command = line.strip().removeprefix("-> raykit ")
    return shlex.split(command.replace("--by NAME", "--by mira").replace("...", "'it was asked for'"))


@pytest.mark.parametrize(
    "role", ["diagnostic", "search-checkpoint", "refit", "production-candidate", "release-model", "base"]
)
def test_every_command_that_is_suggested_passes(role: str, raykit: Raykit, digits: QcMaker) -> None:
    called = register(raykit, "best", "digits@40", role)
    for _ in range(5):
        command = suggested(called)
        called = ok(raykit(*command))
        if command == ["candidates", "list"]:
            break
    ok(approve(raykit, "best", "export"))
    command = suggested(raykit("candidates", "show", "best"))
    ok(raykit(*command))
    ok(raykit("candidates", "reject", "best", "--reason", "sevens are drawn as ones in 31 of 40", *BY))
    ok(raykit(*suggested(raykit("candidates", "show", "best"))))


def test_a_base_from_elsewhere_is_shown_the_way_that_is_open(raykit: Raykit, store: LocalStore) -> None:
    adopted(store)
    command = suggested(raykit("candidates", "show", "prod"))
    assert command[:5] == ["candidates", "approve", "prod", "--use", "generation"]
    assert "nothing that was examined: it was asked for" in ok(raykit(*command)).out


def test_without_a_terminal_it_is_a_script(
    raykit: Raykit, digits: QcMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers CAND-12
    register(raykit, "best", "digits@40")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert approve(raykit, "best", "production").code == 3
    ok(approve(raykit, "best", "export"))
    assert shown(raykit, "best")["approved"][0]["scripted"] is True


def test_a_scripted_review_makes_nothing_fit_for_production(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-12, CAND-32
    maker = make_examined(store, scripted=True)
    register(raykit, "best", "digits@40")
    ok(approve(raykit, "best", "export"))
    refused = approve(raykit, "best", "production")
    assert (refused.code, "a script has reviewed its QC" in refused.err) == (3, True)
    maker.review(40)
    ok(approve(raykit, "best", "production"))


def test_a_later_verdict_ends_what_was_approved(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    # covers CAND-17
    register(raykit, "best", "digits@40")
    ok(approve(raykit, "best", "export"))
    digits.review(40, verdict="failed", by="ada", note="the sevens are gone")
    with pytest.raises(GateError, match="ada has reviewed it as failed: the sevens are gone"):
        require_approved(store, digits.commit_at(40).sha256, "generation", what="best", now=NOW)


# --- rejecting, preserving ----------------------------------------------------------------------------------


def test_a_rejection_ends_decisions_and_deletes_nothing(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-27, CAND-29
    register(raykit, "best", "digits@40")
    ok(recommend(raykit, "best"))
    ok(approve(raykit, "best", "export"))
    before = {item.key for item in store.list("experiments")}
    reject = ("candidates", "reject", "best", *BY, "--reason", "it cannot draw a 7, seen in 12 of 20 panels")
    assert "nothing of it is deleted" in ok(raykit(*reject)).out
    assert "already" in ok(raykit(*reject)).out
    assert {item.key for item in store.list("experiments")} == before
    found = shown(raykit, "best")
    assert (found["state"], found["approved"], found["rejected"]["person"]) == ("observed", [], "mira")
    assert [act["event"] for act in found["acts"]] == ["registered", "recommended", "approved", "rejected"]
    with pytest.raises(ApprovalError) as caught:
        require_approved(store, found["manifest"], "export", what="best", now=NOW)
    assert ("rejected", "by mira: it cannot draw a 7, seen in 12 of 20 panels") in caught.value.facts
    refused = approve(raykit, "best", "export")
    assert (refused.code, "mira has rejected best" in refused.err) == (3, True)
    ok(recommend(raykit, "best"))
    assert shown(raykit, "best")["state"] == "recommended", "what was approved before stays ended"
    ok(approve(raykit, "best", "export"))


@pytest.mark.parametrize(
    "reason",
    [
        "a fresh refit is conventional",
        "a fresh refit is cleaner",
        "a fresh refit is easier to describe",
        "standard practice",
        "tbd",
    ],
)
def test_a_checkpoint_is_not_discarded_because_a_refit_would_be_neater(
    reason: str, raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-30
    register(raykit, "best", "digits@40")
    for command in (("reject", "best"), ("preserve", "best", "--let-go")):
        refused = raykit("candidates", *command, "--reason", reason, *BY)
        assert refused.code == 3, command
    refused = raykit("checkpoints", "pin", "digits@20", "--let-go", "--reason", reason, *BY)
    assert refused.code == 3
    assert events(store) == ["registered"]


def test_the_incumbent_is_not_rejected_to_make_room(raykit: Raykit, store: LocalStore) -> None:
    """Otherwise a tie could be won by rejecting the other side first."""
    # covers CAND-21, CAND-23, CAND-30
    maker = make_examined(store, ratios={30: 0.31, 40: 0.305})
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    reject = ("candidates", "reject", "prod", *BY, "--reason", "next is better by 0.005")
    refused = raykit(*reject)
    assert (refused.code, "prod is the incumbent, and nothing is wrong with it" in refused.err) == (3, True)
    assert "raykit qc review digits --update 30 --verdict failed" in refused.err
    maker.review(30, verdict="failed", note="it has seen 40 of the test rows")
    ok(raykit(*reject))
    found = ok(raykit("candidates", "list", "--json")).json
    assert (found["production"], found["incumbent"]) == (None, None)
    register(raykit, "next", "digits@40")
    ok(in_production(raykit, "next"))


def test_a_model_stays_preserved_while_another_is_chosen(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-07, CAND-27, CAND-28
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    keep = ("candidates", "preserve", "prod", *BY, "--reason", "figure 3 was made with it")
    assert "prod is kept for good" in ok(raykit(*keep)).out
    assert "already" in ok(raykit(*keep)).out
    register(raykit, "next", "digits@40")
    ok(in_production(raykit, "next"))
    found = shown(raykit, "prod")
    assert (found["production"], found["preserved"]["person"], found["state"]) == (False, "mira", "approved")
    assert found["verifies"] is True
    ok(raykit("candidates", "preserve", "prod", "--let-go", *BY, "--reason", "figure 3 was withdrawn"))
    assert shown(raykit, "prod")["preserved"] is None


# --- switching ----------------------------------------------------------------------------------------------


def test_the_first_one_needs_no_difference(raykit: Raykit, digits: QcMaker) -> None:
    register(raykit, "prod", "digits@40")
    refused = raykit("candidates", "switch", "prod", *WHY, *BY)
    assert (refused.code, "prod is observed, not approved for production" in refused.err) == (3, True)
    ok(approve(raykit, "prod", "export"))
    assert raykit("candidates", "switch", "prod", *WHY, *BY).code == 3, "export is not production"
    ok(approve(raykit, "prod", "production"))
    assert shown(raykit, "prod")["production"] is False, "an approval puts nothing into production"
    said = ok(raykit("candidates", "switch", "prod", *WHY, *BY)).out
    assert "nothing is in its place" in said
    assert "prod is in production" in said
    assert "prod is in production already" in ok(raykit("candidates", "switch", "prod", *WHY, *BY)).out


def test_a_switch_shows_what_stays_and_what_falls_before(
    raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    # covers CAND-06, CAND-18, CAND-19, CAND-20, CAND-25
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    continued(store, resolve_base(store, "prod"))
    add = ("candidates", "dependents", "prod", *BY, "--add")
    for kind in ("decoding-study", "target-set", "probe", "release-evidence", "benchmark"):
        ok(raykit(*add, kind, "--name", f"the {kind}", "--cost", "12.50", "--hours", "3"))
    ok(raykit(*add, "cost-projection", "--name", "the cost-projection", "--stays"))
    ok(raykit(*add, "export", "--name", "to the lab"))
    register(raykit, "next", "digits@40")
    ok(recommend(raykit, "next"))
    ok(approve(raykit, "next", "production"))
    refused = raykit("candidates", "switch", "next", *WHY, *BY)
    assert refused.code == 3
    assert "6 of 8 dependents of prod would fall" in refused.err
    inventory = shown(raykit, "prod")["dependents"]
    assert f"raykit candidates switch next --seen {inventory['digest'][:8]}" in refused.err
    lines = {tuple(line.split()[:4]) for line in refused.out.splitlines()}
    assert ("decoding-study", "the", "decoding-study", "falls") in lines
    assert ("cost-projection", "the", "cost-projection", "stays") in lines
    assert ("run", "continued", "stays", "not") in lines
    assert "making that again costs 62.50, and of 1 of them nobody has said it" in refused.out
    assert "one after the other, 15h00, and of 1 of them nobody has said it" in refused.out
    assert (
        "prod itself stays: accelerator time not known, cost to retrain not known (replacement" in refused.out
    )
    assert shown(raykit, "prod")["production"] is True
    wrong = raykit("candidates", "switch", "next", "--seen", "0" * 8, *WHY, *BY)
    assert (wrong.code, "not 00000000" in wrong.err) == (3, True)
    said = ok(raykit("candidates", "switch", "next", "--seen", inventory["digest"][:8], *WHY, *BY)).out
    assert "next is in production; prod stays approved, and all its files stay" in said
    switched = shown(raykit, "next")["acts"][-1]
    assert (switched["from"], switched["to"]) == ("prod", "next")
    assert switched["inventory"]["items"] == inventory["items"]
    assert switched["evidence"][0]["incumbent"] == 0.378504
    assert check(store, read_data=True).findings == ()


def test_an_inventory_that_has_grown_is_shown_again(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-18
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    add = ("candidates", "dependents", "prod", *BY, "--add", "target-set", "--name")
    ok(raykit(*add, "v1"))
    seen = shown(raykit, "prod")["dependents"]["digest"][:8]
    ok(raykit(*add, "v2"))
    register(raykit, "next", "digits@40")
    refused = in_production(raykit, "next", "--seen", seen)
    assert (refused.code, f"not {seen}" in refused.err) == (3, True)


def test_the_first_that_was_approved_counts_as_incumbent(raykit: Raykit, store: LocalStore) -> None:
    """Nobody passes by a registered production candidate that was approved and not yet put in place."""
    # covers CAND-22, CAND-23
    make_examined(store, ratios={30: 0.31, 40: 0.305})
    register(raykit, "first", "digits@30")
    ok(approve(raykit, "first", "production"))
    register(raykit, "second", "digits@40")
    refused = approve(raykit, "second", "production")
    assert (refused.code, "first stays" in refused.err) == (3, True)
    ok(raykit("candidates", "switch", "first", *WHY, *BY))


def test_evidence_against_another_incumbent_is_none(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-23
    make_examined(store, ratios={20: 0.5, 30: 0.3, 40: 0.295})
    register(raykit, "old", "digits@20")
    ok(in_production(raykit, "old"))
    register(raykit, "late", "digits@40")
    ok(recommend(raykit, "late"))
    register(raykit, "new", "digits@30")
    ok(in_production(raykit, "new"))
    refused = approve(raykit, "late", "production")
    assert (refused.code, "was compared with other weights than new" in refused.err) == (3, True)


def test_a_script_switches_nothing(raykit: Raykit, digits: QcMaker) -> None:
    # covers CAND-12
    register(raykit, "prod", "digits@40")
    ok(approve(raykit, "prod", "production"))
    refused = raykit("candidates", "switch", "prod", *WHY, *BY, "--scripted")
    assert (refused.code, "a switch is a person's act" in refused.err) == (3, True)
    assert shown(raykit, "prod")["production"] is False


def test_what_failed_since_is_not_put_into_production(raykit: Raykit, digits: QcMaker) -> None:
    register(raykit, "prod", "digits@40")
    ok(approve(raykit, "prod", "production"))
    digits.review(40, verdict="failed", note="blurred")
    assert raykit("candidates", "switch", "prod", *WHY, *BY).code == 3


# --- what is shown ------------------------------------------------------------------------------------------


def test_the_stages_are_told_apart(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-31, CAND-32
    maker = QcMaker(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.gate("dispatch")
    maker.rows(10)
    maker.look()
    maker.commit()
    register(raykit, "early", "digits@10")
    stages = shown(raykit, "early")["stages"]
    assert stages == {
        "preparation": "2 of 2 gates passed; in every attempt: dispatch passed",
        "optimization": "running, 10 of 40 updates",
        "verification": "its files are there as listed; QC: its QC is missing",
        "comparison": "none",
        "serving": "not approved for anything",
    }
    assert shown(raykit, "early")["apart"] == {
        "valid_file": True,
        "completed_job": False,
        "lower_loss": None,
        "useful": None,
        "useful_on": None,
    }


def test_reaching_one_state_sets_no_other(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-26, CAND-32
    maker = make_examined(store, accelerator_s=3_600_000.0)
    register(raykit, "prod", "digits@30")
    ok(in_production(raykit, "prod"))
    register(raykit, "next", "digits@40")
    whole = {"valid_file": True, "completed_job": True}
    unknown = {"useful": None, "useful_on": None}
    assert shown(raykit, "next")["apart"] == {**whole, "lower_loss": None, **unknown}
    assert shown(raykit, "prod")["apart"] == {**whole, "lower_loss": None, **unknown}, (
        "production says nothing"
    )
    assert "useful model not known" in ok(raykit("candidates", "show", "prod")).out
    ok(recommend(raykit, "next"))
    assert shown(raykit, "next")["apart"] == {**whole, "lower_loss": True, **unknown}
    ok(approve(raykit, "next", "generation"))
    on = shown(raykit, "next")["apart"]["useful_on"]
    assert on.startswith("development.ratio 0.308268 against 0.378504, better by 0.070236")
    assert shown(raykit, "next")["apart"] == {**whole, "lower_loss": True, "useful": True, "useful_on": on}
    assert f"useful model yes (approved by a person, on {on})" in ok(raykit("candidates", "show", "next")).out
    found = shown(raykit, "next")
    assert found["replacement"]["is"] == "replacement cost, not evidence of quality"
    assert (found["replacement"]["accelerator_ms"], found["production"]) == (3_600_000_000, False)
    model = Path(store.url) / maker.commit_at(40).key.replace("manifest.json", "optimizer.safetensors")
    model.unlink()
    assert shown(raykit, "next")["apart"] == {
        "valid_file": False,
        "completed_job": True,
        "lower_loss": True,
        "useful": True,
        "useful_on": on,
    }


def test_a_list_of_nothing_says_how_to_begin(raykit: Raykit) -> None:
    called = ok(raykit("candidates", "list"))
    assert "no candidates in" in called.out
    assert "-> raykit candidates register NAME EXPERIMENT@UPDATE --role ROLE" in called.out
    assert raykit("candidates", "show", "nobody").code == 2


def test_every_refusal_names_the_command_that_helps(raykit: Raykit, tmp_path: Path) -> None:
    elsewhere = ("--root", str(tmp_path / "other"))
    called = raykit("candidates", "approve", "best", "--use", "export", *WHY, *BY, *elsewhere)
    assert called.code == 2
    assert (
        f"pass   raykit candidates register --root {tmp_path / 'other'} NAME EXPERIMENT@UPDATE" in called.err
    )


def test_dependents_need_a_kind_and_a_name(raykit: Raykit, store: LocalStore, digits: QcMaker) -> None:
    register(raykit, "best", "digits@40")
    assert "nothing is known to depend on best" in ok(raykit("candidates", "dependents", "best")).out
    assert raykit("candidates", "dependents", "best", "--name", "v1", *BY).code == 2
    assert raykit("candidates", "dependents", "best", "--add", "probe", *BY).code == 2
    assert (
        raykit("candidates", "dependents", "best", "--add", "probe", "--name", "p", "--cost", "-1", *BY).code
        == 2
    )
    ok(raykit("candidates", "dependents", "best", "--add", "probe", "--name", "p", *BY))
    assert (
        "already" in ok(raykit("candidates", "dependents", "best", "--add", "probe", "--name", "p", *BY)).out
    )
    dearer = ("--cost", "3", "--stays")
    found = ok(
        raykit("candidates", "dependents", "best", "--add", "probe", "--name", "p", *dearer, *BY, "--json")
    )
    assert [(item["falls"], item["cost"]) for item in found.json["items"]] == [(False, 3_000_000)]
    assert len(read_candidate_registry(store).candidates["best"].dependents) == 1


@pytest.mark.parametrize("words", ["a\x1b[2Jb", "a\u202eb", "a\n  approved by mira"])
def test_words_that_a_terminal_would_obey_are_refused_and_never_shown(
    words: str, raykit: Raykit, store: LocalStore, digits: QcMaker
) -> None:
    register(raykit, "best", "digits@40")
    for command in (
        ("recommend", "best", *DEV, "--reason", words, *BY),
        ("recommend", "best", *DEV, "--value", "0.1", "--how", words, *WHY, *BY),
        ("approve", "best", "--use", "export", "--reason", words, *BY),
        ("approve", "best", "--use", "export", *WHY, "--by", words),
        ("approve", "best", "--use", "export", "--unexamined", words, *WHY, *BY),
        ("reject", "best", "--reason", words, *BY),
        ("preserve", "best", "--reason", words, *BY),
        ("switch", "best", "--reason", words, *BY),
        ("dependents", "best", "--add", "probe", "--name", words, *BY),
    ):
        assert raykit("candidates", *command).code == 2, command
    assert raykit("checkpoints", "pin", "digits@20", "--reason", words, *BY).code == 2
    assert raykit("checkpoints", "export", "best", words, *BY).code == 2
    assert events(store) == ["registered"]
    log = Log(store, layout.candidates_log(), CandidatesEntry, by="another writer")
    event = Dependent(
        candidate="best", manifest=digits.commit_at(40).sha256, kind="probe", name=words, person=words
    )
    log.append(lambda entries: [event], at=NOW)
    for command in (("show", "best"), ("list",), ("dependents", "best")):
        for options in ((), ("--json",)):
            shown_ = ok(raykit("candidates", *command, *options)).out
            assert shown_.replace("\n", "").isprintable(), command
            assert "\n  approved by mira" not in shown_
