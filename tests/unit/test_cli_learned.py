"""`raykit observe`, `conclude`, `note`, `measured`, `counted`, `lessons`: what is kept, refused and found."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from called import Raykit, calls
from makebudget import PLAN, PaidByNode
from pydantic import ValidationError

from raykit.cli import concluding, learned, planview
from raykit.errors import UnknownOutcomeError
from raykit.ids import digest_of
from raykit.plan import contract, decision_digest, load_plan
from raykit.records import Concluded, Measured, Noted, Observed
from raykit.store import layout
from raykit.store.learned import (
    NEGATIVE,
    alike,
    incidents,
    learn,
    negatives,
    read_learned,
    read_lessons,
    selection_history,
)
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost

BY = ("--by", "mira")
SAYS = ("--says", "keep what there is")
EFFECT = ("--effect", "0.02 +/- 0.01")

DIAGNOSIS = """
[diagnosis.hypotheses]
mask     = { says = "The mask's denominator is wrong." }
rate     = { says = "The learning rate is too high." }
capacity = { says = "The model is too small.", stop_after = 2 }

[diagnosis.tests.useless]
does     = "another epoch at the same batch size"
cost_usd = 0.2
covers   = { rows = 48 }
predicts = { otherwise = "the loss falls as before" }
next     = { otherwise = "another one" }
override = "its curve is wanted for the report"

[diagnosis.tests.fixture]
does     = "a reference fixture with unequal valid lengths"
cost_usd = 0.5
covers   = { length = 64, rows = 128 }
predicts = { mask = "scales with the padding", otherwise = "is the reference's" }
next     = { mask = "repair the objective", otherwise = "vary the rate" }
note     = "a correct fixture leaves the other two"

[diagnosis.tests.rates]
does     = "a small range of rates on the correct fixture"
cost_usd = 1.25
covers   = { length = 64 }
predicts = { rate = "worse with the rate", capacity = "the same at each rate", mask = "worse with the rate" }
next     = { rate = "bound a screen", capacity = "a clean small task", mask = "bound a screen" }
"""


@pytest.fixture
def raykit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


class Diagnosed(PaidByNode):
    """A paid run whose plan may have more tables than the usual one."""

    more = ""

    def plan_file(self) -> bytes:
        return super().plan_file() + self.more.encode()


def launched(root: Path, name: str = "refresh", *, more: str = "", decision: str | None = None) -> Diagnosed:
    """A plan that was locked and approved; nothing of it is trained yet."""
    maker = Diagnosed(LocalStore(root / "store"), experiment=name, updates=20)
    maker.more = more
    maker.account = f"account-{name}"
    maker.freeze()
    maker.approve()
    maker.launch()
    return maker


def completed(root: Path, name: str = "refresh", *, more: str = "") -> Diagnosed:
    maker = launched(root, name, more=more)
    maker.begin()
    maker.rows(20)
    maker.look()
    maker.commit("final")
    maker.end("completed", hours=1.0)
    maker.release("completed")
    return maker


def failed(root: Path, name: str = "refresh", *, more: str = "") -> Diagnosed:
    """Its first update is not finite."""
    maker = launched(root, name, more=more)
    maker.begin()
    maker.rows(1, nonfinite=True)
    maker.end("failed", detail="the loss is not finite", hours=0.25)
    maker.release("failed")
    return maker


def plan_path(root: Path, name: str = "padded", *, more: str = DIAGNOSIS) -> str:
    path = root / f"{name}.toml"
    path.write_text(PLAN.format(name=name, updates=20, rate="2.99", account="corp", ceiling="900") + more)
    return str(path)


def team_plan(root: Path) -> str:
    """The team's continuation: a plan with sources and a base."""
    path = root / "team.toml"
    path.write_bytes((Path(__file__).parents[1] / "users" / "refresh.toml").read_bytes())
    return str(path)


def events(root: Path, name: str) -> list[Any]:
    return [each.event for each in read_learned(LocalStore(root / "store"), name)]


def raw(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted((root / "store").rglob("*")) if path.is_file()}


# --- observe ------------------------------------------------------------------------------------------------


# covers PLAN-45, PLAN-47, PLAN-49, PLAN-58
def test_a_plan_file_shows_its_tree_before_anything_is_there(raykit: Raykit, tmp_path: Path) -> None:
    called = raykit("observe", plan_path(tmp_path))
    assert called.code == 0
    tests = [line.split()[:3] for line in called.out.splitlines() if "$" in line and line[2:3].isdigit()]
    assert tests == [["1", "fixture", "$0.50"], ["2", "rates", "$1.25"], ["3", "useless", "$0.20"]]
    assert "low diagnostic value: the same under every hypothesis" in called.out
    assert "|- scales with the padding" in called.out
    assert "mask -> repair the objective" in called.out
    assert "rate, capacity -> vary the rate" in called.out
    assert "capacity  The model is too small. (failed 0 of 2)" in called.out
    assert "next     fixture, $0.50" in called.out
    assert not (tmp_path / "store").exists(), "to look writes nothing"

    found = raykit("observe", plan_path(tmp_path), "--json").json
    assert [(each["name"], each["cost_usd"]) for each in found["tests"]] == [
        ("fixture", 0.5),
        ("rates", 1.25),
        ("useless", 0.2),
    ]
    assert (found["left"], found["next_test"], found["ended"]) == (
        ["mask", "rate", "capacity"],
        "fixture",
        None,
    )
    assert [flaw["item"] for flaw in found["flaws"]] == ["PLAN-55"], "a note is missing, and it says so"


# covers PLAN-53, PLAN-54, PLAN-55, PLAN-56, PLAN-65
def test_a_diagnosis_is_walked_test_by_test_and_ends_without_a_full_run(
    raykit: Raykit, tmp_path: Path
) -> None:
    plan = plan_path(tmp_path)
    first = raykit("observe", plan, "fixture", "--as", "rate", "--saw", "the reference's error", *BY)
    assert first.code == 0
    assert "means    as rate, capacity predicted; hypotheses removed: mask (at length = 64, rows = 128)" in (
        first.out
    )
    assert "left     rate, capacity; nothing is proved" in first.out
    assert "branch   vary the rate" in first.out
    assert "next     rates, $1.25" in first.out

    bare = raykit("observe", plan, "rates", "--as", "rate", "--saw", "worse from 3e-3 on", *BY)
    assert (bare.code, "pass   --note" in bare.err) == (2, True), "two had predicted it"
    note = ("--note", "a wrong denominator would look the same")
    second = raykit("observe", plan, "rates", "--as", "rate", "--saw", "worse from 3e-3 on", *note, *BY)
    assert "no hypothesis removed (at length = 64); failed, and kept until more of it: capacity" in second.out
    assert "next     again: rates" in second.out
    third = raykit(
        "observe", plan, "rates", "--as", "rate", "--saw", "worse again", *note, *BY, "--json"
    ).json
    assert (third["removed"], third["left"], third["ended"]) == (["capacity"], ["rate"], "one left")
    assert third["next_test"] is None

    tree = raykit("observe", plan).out
    assert "x mask      The mask's denominator is wrong. (failed 1 of 1)" in tree
    assert "> `- is the reference's" in tree
    assert "(mask) -> repair the objective" in tree
    assert "a good end without any full run" in tree
    ended = raykit("conclude", plan, "--outcome", "no-full-run", *SAYS, "--hypothesis", "rate", *BY)
    assert ended.code == 0
    assert "tried    The learning rate is too high." in ended.out
    last = events(tmp_path, "padded")[-1]
    assert isinstance(last, Concluded)
    assert (last.outcome, last.update) == ("no-full-run", 0)


def test_to_say_it_twice_writes_it_once(raykit: Raykit, tmp_path: Path) -> None:
    act = ("observe", plan_path(tmp_path), "fixture", "--as", "rate", "--saw", "the reference's error")
    assert raykit(*act, *BY, "--json").json["new"] is True
    before = raw(tmp_path)
    again = raykit(*act, "--by", "ada")
    assert "observed already by mira" in again.out
    assert raw(tmp_path) == before
    other = raykit("observe", act[1], "fixture", "--as", "mask", "--saw", "scales after all", *BY, "--json")
    assert other.json["new"] is True, "another result of the same test is another observation"
    assert other.json["left"] == ["capacity"], "and what was removed before stays removed"


# covers PLAN-73
def test_predictions_are_not_rewritten_once_something_was_seen(raykit: Raykit, tmp_path: Path) -> None:
    plan = plan_path(tmp_path)
    raykit("observe", plan, "fixture", "--as", "rate", "--saw", "the reference's error", *BY)
    (kept,) = events(tmp_path, "padded")
    assert kept.predicts == {
        "mask": "scales with the padding",
        "rate": "is the reference's",
        "capacity": "is the reference's",
    }
    assert kept.next_by["capacity"] == "vary the rate"
    assert kept.hypotheses["mask"] == "The mask's denominator is wrong."

    swapped = DIAGNOSIS.replace(
        '{ mask = "scales with the padding", otherwise = "is the reference\'s" }',
        '{ mask = "is the reference\'s", otherwise = "scales with the padding" }',
    )
    assert swapped != DIAGNOSIS
    plan = plan_path(tmp_path, more=swapped)
    before = raw(tmp_path)
    refused = raykit("observe", plan, "useless", "--other", "--saw", "a slow fall", *BY)
    assert refused.code == 3
    assert "what was predicted predates what was seen" in refused.err
    assert "refused  diagnosis.tests.fixture.predicts.mask: changed from" in raykit("observe", plan).out
    assert raw(tmp_path) == before
    assert raykit("observe", plan_path(tmp_path), "useless", "--other", "--saw", "a slow fall", *BY).code == 0


# covers PLAN-73
def test_the_check_of_a_plan_refuses_predictions_that_were_rewritten(raykit: Raykit, tmp_path: Path) -> None:
    for name in ("plan.toml", "recipe.py"):
        shutil.copy(Path(__file__).parents[1] / "tiny" / name, tmp_path / name)
    path = tmp_path / "plan.toml"
    tests = DIAGNOSIS + 'note = "a wrong denominator looks like a rate that is too high"\n'
    tiny = path.read_text()
    path.write_text(tiny + tests)
    assert raykit("plan", "check", str(path)).code == 0
    raykit("observe", str(path), "fixture", "--as", "rate", "--saw", "the reference's error", *BY)
    assert raykit("plan", "check", str(path)).code == 0
    path.write_text(tiny + tests.replace('mask = "scales with the padding"', 'mask = "scales with the rows"'))
    refused = raykit("plan", "check", str(path))
    assert refused.code == 3
    assert "PLAN-73" in refused.err
    assert "what was predicted predates what was seen" in refused.err
    assert "diagnosis.tests.fixture.predicts.mask" in refused.err


# covers PLAN-56, GOLD-10
def test_what_nobody_predicted_asks_for_thought_and_a_claim_is_refused(
    raykit: Raykit, tmp_path: Path
) -> None:
    plan = plan_path(tmp_path)
    for claim in ("is stable", "stability proved", "this proves the mask right"):
        refused = raykit("observe", plan, "fixture", "--as", "rate", "--saw", claim, *BY)
        assert refused.code == 2
        assert "proves nothing else" in refused.err
        assert "what was seen, and on which inputs" in refused.err
    assert not (tmp_path / "store").exists()
    other = raykit("observe", plan, "fixture", "--other", "--saw", "the loss is 0 at once", *BY)
    assert "as nobody predicted; no hypothesis removed" in other.out
    assert "left     mask, rate, capacity" in other.out
    assert "design a test" in other.out


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        (["fixture", "--saw", "x", *BY], "--as", "whose prediction was it?"),
        (["fixture", "--as", "mask", "--other", "--saw", "x", *BY], "--as", "exclude each other"),
        (["fixture", "--as", "mask", *BY], "--saw", "an observation says what was seen"),
        (["fixture", "--as", "mask", "--saw", "x"], "--by", "a person has to say so"),
        (["fixture", "--as", "nobody", "--saw", "x", *BY], "--as", "no hypothesis nobody"),
        (["nothing", "--as", "mask", "--saw", "x", *BY], "TEST", "no test nothing"),
        (["--saw", "x", *BY], "TEST", "which test has shown it?"),
    ],
)
def test_an_observation_that_lacks_something_is_refused(
    raykit: Raykit, tmp_path: Path, words: list[str], field: str, says: str
) -> None:
    refused = raykit("observe", plan_path(tmp_path), *words, "--json")
    assert refused.code == 2
    assert refused.error["field"] == field
    assert says in refused.error["message"]
    assert not (tmp_path / "store").exists()


# covers PLAN-46, PLAN-48, PLAN-59, PLAN-61
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('override = "its curve is wanted for the report"\n', "", "low diagnostic value"),
        ("{ length = 64, rows = 128 }", '{ split = "sealed" }', "does not read the final holdout"),
        (
            '{ mask = "repair the objective", otherwise = "vary the rate" }',
            '{ otherwise = "go on" }',
            "a branch after each result",
        ),
    ],
)
def test_nothing_is_observed_by_a_test_that_decides_nothing(
    raykit: Raykit, tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in DIAGNOSIS
    plan = plan_path(tmp_path, more=DIAGNOSIS.replace(old, new))
    test = "useless" if "curve" in old else "fixture"
    refused = raykit("observe", plan, test, "--as", "mask", "--saw", "x", *BY)
    assert refused.code == 3
    assert says in refused.err
    assert "refused  diagnosis.tests." in raykit("observe", plan).out
    assert not (tmp_path / "store").exists()


def test_an_observation_belongs_to_the_lock_that_it_was_made_under(raykit: Raykit, tmp_path: Path) -> None:
    maker = launched(tmp_path, more=DIAGNOSIS)
    act = ("fixture", "--as", "rate", "--saw", "the reference's error", *BY, "--json")
    assert raykit("observe", "refresh", *act).json["plan"] == maker.locked.plan
    same = tmp_path / "same.toml"
    same.write_bytes(maker.plan_file())
    found = raykit("observe", str(same), "--json").json
    assert found["plan"] == maker.locked.plan, "the file of that plan is that plan"
    assert found["left"] == ["rate", "capacity"]


def test_a_name_that_was_never_locked_is_told_what_to_say_instead(raykit: Raykit, tmp_path: Path) -> None:
    for act in (
        ("observe", "nowhere"),
        ("conclude", "nowhere", "--outcome", "invalid", *SAYS, *BY),
        ("note", "nowhere", "--incident", "x", *BY),
        ("counted", "nowhere", "--source", "s", "--rows", "1", "--how", "wc -l, 2026-11-01", *BY),
    ):
        refused = raykit(*act, "--json")
        assert refused.code == 2, act
        assert refused.error["kind"] == "not-found"
        assert "only checked leaves nothing there" in refused.error["message"]
        assert "plan.toml" in refused.error["remedy"]
    assert not (tmp_path / "store").exists()


def test_a_plan_without_a_diagnosis_says_so(raykit: Raykit, tmp_path: Path) -> None:
    refused = raykit("observe", plan_path(tmp_path, more=""), "--json")
    assert (refused.code, refused.error["field"]) == (2, "diagnosis")


def test_a_store_with_a_diagnosis_and_no_run_is_whole_and_can_be_looked_at(
    raykit: Raykit, tmp_path: Path
) -> None:
    raykit("observe", plan_path(tmp_path), "fixture", "--as", "rate", "--saw", "the reference's error", *BY)
    checked = raykit("check", "--json")
    assert checked.code == 0
    assert "no runs" in raykit("status").out
    assert "padded" in raykit("ls").out
    assert raykit("show", "padded").err.count("unexpected") == 0


# --- conclude -----------------------------------------------------------------------------------------------


# covers BUD-35
@pytest.mark.parametrize("outcome", concluding.QUALITY)
def test_a_run_that_fails_at_once_compares_no_final_quality(
    raykit: Raykit, tmp_path: Path, outcome: str
) -> None:
    failed(tmp_path)
    before = raw(tmp_path)
    refused = raykit("conclude", "refresh", "--outcome", outcome, *SAYS, *BY)
    assert refused.code == 3
    assert "no run of refresh has completed (1 of 20 updates)" in refused.err
    assert "unresolved, invalid or no-full-run" in refused.err
    assert raw(tmp_path) == before
    assert raykit("conclude", "refresh", "--outcome", "invalid", *SAYS, *BY).code == 0


# covers PLAN-66, PLAN-65
def test_money_that_is_left_over_is_no_error(raykit: Raykit, tmp_path: Path) -> None:
    failed(tmp_path)
    called = raykit("conclude", "refresh", "--outcome", "no-full-run", *SAYS, *BY)
    assert called.code == 0
    assert "money    $5.98/900 used; what was not needed is no error" in called.out
    assert called.err == ""


SCREENING = "\n[protocol]\nupdates = 500\n"


# covers PLAN-50
@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--outcome", "better", *SAYS), "--outcome"),
        (("--outcome", "equivalent", *SAYS), "--outcome"),
        (("--outcome", "unresolved", "--says", "this confirms the smaller batch"), "--says"),
    ],
)
def test_a_screening_is_not_stored_as_a_confirmation(
    raykit: Raykit, tmp_path: Path, words: tuple[str, ...], field: str
) -> None:
    completed(tmp_path, more=SCREENING)
    refused = raykit("conclude", "refresh", *words, *BY, "--json")
    assert refused.code == 3
    assert refused.error["field"] == field
    assert "target protocol" in refused.error["message"]
    assert events(tmp_path, "refresh") == []


# covers PLAN-50, PLAN-51
def test_a_screening_may_drop_an_idea_and_says_its_effect(raykit: Raykit, tmp_path: Path) -> None:
    completed(tmp_path, more=SCREENING)
    said = raykit(
        "conclude", "refresh", "--outcome", "unresolved", "--effect", "-0.004 +/- 0.002", *SAYS, *BY
    )
    assert said.code == 0
    assert "stage    screening: it removes and ranks ideas, and confirms none" in said.out
    assert "effect   -0.004 +/- 0.002" in said.out
    assert raykit("conclude", "refresh", "--outcome", "worse", *SAYS, *EFFECT, *BY).code == 0


# covers PLAN-63, PLAN-62
def test_a_long_run_and_an_untouched_holdout_are_two_safeguards(raykit: Raykit, tmp_path: Path) -> None:
    completed(tmp_path)
    said = raykit("conclude", "refresh", "--outcome", "better", *SAYS, "--effect", "0.02 +/- 0.01", *BY)
    assert said.code == 0
    assert "long run done" in said.out
    assert "holdout  not done: the plan keeps no split untouched" in said.out
    found = raykit(
        "conclude", "refresh", "--outcome", "better", *SAYS, "--effect", "0.02 +/- 0.01", *BY, "--json"
    )
    assert found.json["safeguards"] == {
        "long_run": "done",
        "holdout": "not done: the plan keeps no split untouched",
    }
    completed(tmp_path, "short", more=SCREENING)
    short = raykit("conclude", "short", "--outcome", "worse", *SAYS, *EFFECT, *BY, "--json")
    assert short.json["safeguards"]["long_run"] == "not done"


# covers PLAN-52, PLAN-62
def test_how_it_was_selected_is_printed_with_the_final_comparison(raykit: Raykit, tmp_path: Path) -> None:
    completed(tmp_path)
    raykit("note", "refresh", "--selection", "width 16 dropped: 0.02 worse on development", *BY)
    raykit("note", "refresh", "--selection", "width 64 dropped: no memory", *BY)
    said = raykit("conclude", "refresh", "--outcome", "better", *SAYS, *EFFECT, *BY)
    lines = [line.strip() for line in said.out.splitlines()]
    at = lines.index("chosen   after:")
    assert [line.partition(": ")[2] for line in lines[at + 1 :]] == [
        "selection: width 16 dropped: 0.02 worse on development",
        "selection: width 64 dropped: no memory",
    ]
    assert "no selection on record" in _conclude_other(raykit, tmp_path)


def _conclude_other(raykit: Raykit, root: Path) -> str:
    completed(root, "unrelated")
    return raykit("conclude", "unrelated", "--outcome", "better", *SAYS, *EFFECT, *BY).out


# covers PLAN-52, PLAN-62
def test_the_history_of_a_selection_spans_the_experiments_of_its_decision(tmp_path: Path) -> None:
    maker = launched(tmp_path)
    store, decision = maker.store, decision_digest(maker.plan)
    for at, name in enumerate(("refresh", "elsewhere")):
        noted = Noted(kind="selection", says=f"dropped in {name}", person="ada")
        learn(store, name, lambda known, noted=noted: noted, opens=True, person="ada", at=5.0 + at)
    incident = Noted(kind="incident", says="a disk was full", person="ada")
    learn(store, "refresh", lambda known: incident, person="ada", at=7.0)
    assert [each.experiment for each in selection_history(store, decision)] == ["refresh"]
    shared = Concluded(
        outcome="worse",
        says="no gain",
        decision=decision,
        contract=digest_of({}),
        update=7,
        person="ada",
    )
    learn(store, "elsewhere", lambda known: shared, person="ada", at=9.0)
    both = selection_history(store, decision)
    assert [(each.experiment, each.event.event) for each in both] == [
        ("refresh", "noted"),
        ("elsewhere", "noted"),
        ("elsewhere", "concluded"),
    ]


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ((*SAYS, *BY), "--outcome"),
        (("--outcome", "invalid", *BY), "--says"),
        (("--outcome", "invalid", *SAYS), "--by"),
        (("--outcome", "invalid", "--says", "stability proved", *BY), "--says"),
        (("--outcome", "invalid", *SAYS, "--effect", "good", *BY), "--effect"),
        (("--outcome", "no-full-run", *SAYS, *BY), "--outcome"),
    ],
)
def test_a_conclusion_that_lacks_something_is_refused(
    raykit: Raykit, tmp_path: Path, words: tuple[str, ...], field: str
) -> None:
    completed(tmp_path)
    refused = raykit("conclude", "refresh", *words, "--json")
    assert (refused.code, refused.error["field"]) == (2, field)
    assert events(tmp_path, "refresh") == []


@pytest.mark.parametrize("outcome", concluding.QUALITY)
def test_a_comparison_says_by_how_much(raykit: Raykit, tmp_path: Path, outcome: str) -> None:
    completed(tmp_path)
    refused = raykit("conclude", "refresh", "--outcome", outcome, *SAYS, *BY, "--json")
    assert (refused.code, refused.error["field"]) == (2, "--effect")
    assert events(tmp_path, "refresh") == []
    assert raykit("conclude", "refresh", "--outcome", outcome, *SAYS, *EFFECT, *BY).code == 0


# covers LEDGER-10
def test_of_two_conclusions_the_newest_stands(raykit: Raykit, tmp_path: Path) -> None:
    completed(tmp_path)
    raykit("conclude", "refresh", "--outcome", "unresolved", "--says", "too short to tell", *BY)
    said = raykit("conclude", "refresh", "--outcome", "better", *SAYS, *EFFECT, *BY)
    (earlier,) = [line for line in said.out.splitlines() if "too short to tell" in line]
    assert earlier.endswith("superseded by this")
    idea = ("--hypothesis", "a lower rate")
    raykit("conclude", "refresh", "--outcome", "invalid", *SAYS, *idea, *BY)
    lines = [line for line in raykit("show", "refresh").out.splitlines() if "by mira" in line]
    assert ["superseded by a later conclusion" in line for line in lines if "; at update" in line] == [
        True,
        False,
        False,
    ], "another idea is another question"
    found = raykit("show", "refresh", "--json").json["ledger"]["learned"]["concluded"]
    assert [(each["event"]["outcome"], each["superseded"]) for each in found] == [
        ("unresolved", True),
        ("better", False),
        ("invalid", False),
    ]


def test_what_one_unit_is_and_what_a_source_needs_is_said(raykit: Raykit, tmp_path: Path) -> None:
    told = " ".join(raykit("measured", "--help").out.split())
    assert "One unit of update is one update, one of save is one save" in told
    assert "gates, setup, drain, qc, generate and compare is all of it once, for the whole pool" in told
    plan, how = plan_path(tmp_path), ("--what", "save", "--time-s", "2", *BY)
    refused = raykit("measured", plan, *how, "--how", "index.json")
    assert refused.code == 2
    assert "names nothing that can be looked up: no digit, as in a date or an id, and no path" in (
        refused.err
    )
    for source in ("index.json of 2026-11-01", "runs/index.json"):
        assert raykit("measured", plan, *how, "--how", source).code == 0


def test_failures_are_counted_in_words() -> None:
    text = PLAN.format(name="p", updates=20, rate="1", account="a", ceiling="9") + DIAGNOSIS
    diagnosis = load_plan(text.encode(), where="p.toml").diagnosis
    evidence = SimpleNamespace(seen=None, observed_tests=())
    case: Any = SimpleNamespace(
        site=SimpleNamespace(plan=SimpleNamespace(diagnosis=diagnosis)), evidence=evidence
    )
    lines = list(planview.hypotheses(case))
    assert "  rate: The learning rate is too high. (dropped after 1 failure)" in lines
    assert "  capacity: The model is too small. (dropped after 2 failures)" in lines


def test_an_edited_plan_is_not_what_was_run(raykit: Raykit, tmp_path: Path) -> None:
    maker = completed(tmp_path)
    other = tmp_path / "other.toml"
    other.write_bytes(maker.plan_file().replace(b"seed             = 3", b"seed             = 4"))
    refused = raykit("conclude", str(other), "--outcome", "better", *SAYS, *BY)
    assert (refused.code, "(0 updates)" in refused.err) == (3, True)


# --- note, measured, counted --------------------------------------------------------------------------------


# covers LEDGER-09
def test_an_incident_is_kept_as_one_and_never_as_a_rule(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    said = raykit("note", "refresh", "--incident", "a full disk ended attempt 2 on 2026-11-02", *BY)
    assert "incident: it happened once, and is no rule" in said.out
    assert "one incident, no rule: " in raykit("lessons").out
    with pytest.raises(ValidationError):
        Noted.model_validate({"kind": "rule", "says": "never use that disk", "person": "mira"})
    assert raykit("note", "refresh", "--rule", "never use that disk", *BY).code == 2
    for words in ((), ("--incident", "a", "--limitation", "b")):
        assert raykit("note", "refresh", *words, *BY, "--json").error["field"] == "--incident"


# covers DISP-11
def test_measured_evidence_names_its_source(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    act = ("measured", "refresh", "--what", "gates", "--pool", "train", "--time-s", "4320")
    for how in (("--how", "measured"), ("--how", "estimated, 2026"), ("--how", "run ..."), ()):
        refused = raykit(*act, *how, *BY, "--json")
        assert (refused.code, refused.error["field"]) == (2, "--how"), how
    assert events(tmp_path, "refresh") == []
    kept = raykit(*act, "--how", "gate log of lm1b-07, 2026-10-02", *BY, "--json")
    assert kept.json["new"] is True
    (event,) = events(tmp_path, "refresh")
    assert event == Measured(
        what="gates",
        pool="train",
        time_ms=4_320_000,
        how="gate log of lm1b-07, 2026-10-02",
        person="mira",
    )


def test_the_newest_measurement_counts_though_it_was_said_before(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    for time_s in ("2", "3", "2", "2"):
        act = ("--what", "update", "--time-s", time_s, "--how", "log of 2026-10-02")
        assert raykit("measured", "refresh", *act, *BY).code == 0
    assert [each.time_ms for each in events(tmp_path, "refresh")] == [2000, 3000, 2000]


@pytest.mark.parametrize("time_s", ["0", "-1", "nan", "inf", "1e12"])
def test_a_time_is_a_time(raykit: Raykit, tmp_path: Path, time_s: str) -> None:
    launched(tmp_path)
    act = ("--what", "save", f"--time-s={time_s}", "--how", "log of 2026-10-02")
    refused = raykit("measured", "refresh", *act, *BY, "--json")
    assert (refused.code, refused.error["field"]) == (2, "--time-s")


def test_memory_is_told_by_its_terms(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    how = ("--how", "profiler of run lm1b-07", *BY)
    terms = ("--memory", "model=4400000000", "--memory", "optimizer=8800000000")
    said = raykit("measured", "refresh", "--what", "memory", *terms, *how)
    assert "memory on train, 13.2 GB (model 4.4 GB, optimizer 8.8 GB)" in said.out
    assert events(tmp_path, "refresh")[0].memory_bytes == {"model": 4_400_000_000, "optimizer": 8_800_000_000}
    for words in (("memory",), ("update", "--time-s", "1", *terms), ("memory", "--memory", "model=many")):
        refused = raykit("measured", "refresh", "--what", *words, *how, "--json")
        assert (refused.code, refused.error["field"]) == (2, "--memory"), words


def test_rows_are_counted_for_a_plan_that_was_never_launched(raykit: Raykit, tmp_path: Path) -> None:
    plan = team_plan(tmp_path)
    docs, how = ("--source", "s3://corp/docs@v7"), ("--how", "wc -l of docs@v7, 2026-11-01", *BY)
    for rows in ("59022", "61975", "61975"):
        assert raykit("counted", plan, *docs, "--rows", rows, *how).code == 0
    assert [each.rows for each in events(tmp_path, "lm1b-refresh-2026-11")] == [59022, 61975]
    for words, field in (
        (("--rows", "1", *how), "--source"),
        ((*docs, *how), "--rows"),
        ((*docs, "--rows", "1", *BY), "--how"),
        ((*docs, "--rows", "1", "--digest", "abc", *how), "--digest"),
        ((*docs, "--rows", "9" * 26, *how), "--rows"),
        ((*docs, "--rows", str(10**15 + 1), *how), "--rows"),
    ):
        refused = raykit("counted", plan, *words, "--json")
        assert (refused.code, refused.error["field"]) == (2, field)


def test_what_is_counted_is_something_that_the_plan_names(raykit: Raykit, tmp_path: Path) -> None:
    """covers PLAN-11: a count under another name would be one that nothing ever reads"""
    plan, how = team_plan(tmp_path), ("--rows", "5", "--how", "wc -l, 2026-11-01", *BY)
    refused = raykit("counted", plan, "--source", "docs@v7", *how)
    assert refused.code == 2 and "has no source 'docs@v7'" in refused.err
    assert "s3://corp/docs@v7" in refused.err and "lm1b-prod" in refused.err
    assert raykit("counted", plan, "--source", "lm1b-prod", *how).code == 0
    launched(tmp_path)
    for target in ("refresh", plan_path(tmp_path)):
        refused = raykit("counted", target, "--source", "docs@v7", *how)
        assert refused.code == 2 and "its recipe counts its own rows" in refused.err
    assert len(events(tmp_path, "lm1b-refresh-2026-11")) == 1


def test_no_time_is_told_that_nothing_takes(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    how = ("--how", "the bill of 2026-11", *BY)
    for words, field in (
        (("--time-s", "1e-300", "--units", "999999999"), "--time-s"),
        (("--time-s", "0.0009"), "--time-s"),
        (("--time-s", "1.1e9"), "--time-s"),
        (("--time-s", "nan"), "--time-s"),
        (("--time-s", "0.001", "--units", "1001"), "--units"),
        (("--time-s", "1", "--units", "9" * 30), "--units"),
    ):
        refused = raykit("measured", "refresh", "--what", "update", *words, *how, "--json")
        assert (refused.code, refused.error["field"]) == (2, field), words
    assert events(tmp_path, "refresh") == []
    assert (
        raykit("measured", "refresh", "--what", "update", "--time-s", "1", "--units", "1000000", *how).code
        == 0
    )


def test_the_choices_of_the_command_line_are_those_of_the_records() -> None:
    assert get_args(learned.Part) == get_args(Measured.model_fields["what"].annotation)
    assert get_args(learned.PoolName) == get_args(Measured.model_fields["pool"].annotation)
    assert get_args(concluding.Outcome) == get_args(Concluded.model_fields["outcome"].annotation)
    assert set(NEGATIVE) < set(get_args(concluding.Outcome))


# --- lessons ------------------------------------------------------------------------------------------------


# covers LEDGER-10, PLAN-38
def test_negative_results_are_found_again_by_hypothesis_and_by_setting(
    raykit: Raykit, tmp_path: Path
) -> None:
    maker = completed(tmp_path)
    idea = ("--hypothesis", "A wider mask loses less.")
    raykit("conclude", "refresh", "--outcome", "worse", "--effect", "0.02 +/- 0.01", *SAYS, *idea, *BY)
    ((experiment, found),) = negatives(maker.store)
    assert (experiment, found.outcome, found.effect) == ("refresh", "worse", "0.02 +/- 0.01")
    assert found.contract == maker.locked.contract
    assert alike(found, contract=maker.locked.contract) == ("setting",)
    assert alike(found, hypotheses=["  a WIDER mask\nloses less. "]) == ("hypothesis",)
    assert alike(found, decision=decision_digest(maker.plan)) == ("decision",)
    assert alike(found, hypotheses=["Another idea."]) == ()

    twin = raykit("lessons", "--like", "refresh").out
    assert "refresh: worse   same decision, setting" in twin
    assert "tried    A wider mask loses less." in twin
    stranger = raykit("lessons", "--like", plan_path(tmp_path))
    assert "no negative result like" in stranger.out
    mine = plan_path(
        tmp_path, more=DIAGNOSIS.replace("The mask's denominator is wrong.", "a wider mask loses LESS.")
    )
    assert "refresh: worse   same hypothesis" in raykit("lessons", "--like", mine).out


# covers LEDGER-10
@pytest.mark.parametrize("outcome", get_args(concluding.Outcome))
def test_which_outcomes_are_negative(outcome: str) -> None:
    store = MemoryStore()
    event = Concluded.model_validate(
        {
            "outcome": outcome,
            "says": "so",
            "decision": digest_of(1),
            "contract": digest_of(2),
            "update": 3,
            "person": "ada",
        }
    )
    learn(store, "a", lambda known: event, opens=True, person="ada", at=1.0)
    assert bool(negatives(store)) == (outcome not in ("better", "unresolved"))
    later = event.model_copy(update={"outcome": "better"})
    learn(store, "a", lambda known: later, person="ada", at=2.0)
    assert negatives(store) == [], "what was concluded later counts"


# covers LEDGER-04, LEDGER-08, LEDGER-11
def test_lessons_look_at_every_run_however_it_ended_with_its_cost(raykit: Raykit, tmp_path: Path) -> None:
    completed(tmp_path, "good")
    failed(tmp_path, "bad")
    launched(tmp_path, "dropped")
    raykit("cancel", "dropped", "--reason", "no machines", *BY)
    raykit("note", "bad", "--incident", "the first batch held an empty row", *BY)
    raykit("conclude", "bad", "--outcome", "invalid", *SAYS, *BY)
    raykit("conclude", "dropped", "--outcome", "no-full-run", *SAYS, *BY)

    found = raykit("lessons", "--json").json
    runs = {each["id"]: each for each in found["scope"]["runs"]}
    assert {name: each["state"] for name, each in runs.items()} == {
        "good/main": "completed",
        "bad/main": "failed",
        "dropped/main": "cancelled",
    }
    assert runs["bad/main"]["cost"] == 5_980_000
    assert found["scope"]["experiments"] == ["bad", "dropped", "good"]
    assert {each["experiment"] for each in found["negatives"]} == {"bad", "dropped"}
    assert [each["says"] for each in found["incidents"]] == ["the first batch held an empty row"]

    text = raykit("lessons").out
    assert text.count("no rule") == 3
    assert "experiments: 3, runs: 3 (1 cancelled, 1 completed, 1 failed)" in text
    assert "nowhere else" in text


# covers LEDGER-11
def test_attempts_that_failed_or_were_superseded_stay_with_their_cost(tmp_path: Path) -> None:
    maker = failed(tmp_path)
    maker.launch()
    maker.begin()
    maker.rows(20)
    maker.commit("final")
    maker.end("completed", hours=1.0)
    maker.release("completed")
    log = RunLog(maker.store, "refresh", "main", by="reader")
    log.refresh()
    told = [event.event for entry in log.entries for event in entry.events]
    assert told.count("attempt_started") == 2
    assert told.count("attempt_ended") == 2
    maker.ledger.refresh()
    charged = [lease.charged for lease in maker.ledger.book.leases.values()]
    assert charged == [5_980_000, 23_920_000]
    assert maker.ledger.book.charged == sum(charged)


def test_nothing_found_is_not_said_to_be_nothing_there(raykit: Raykit, tmp_path: Path) -> None:
    launched(tmp_path)
    said = raykit("lessons").out
    assert "no negative result is on record here" in said
    assert "nowhere else" in said


def test_where_no_store_is_nothing_is_said_of_what_it_holds(raykit: Raykit, tmp_path: Path) -> None:
    plan, file = plan_path(tmp_path), tmp_path / "file"
    file.write_text("no store")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "experiments").write_text("no store, either")
    for place in ("nowhere", "folder"):
        refused = raykit("lessons", "--root", str(tmp_path / place), "--json")
        assert (refused.code, refused.error["kind"]) == (2, "not-found")
        assert refused.error == raykit("check", "--root", str(tmp_path / place), "--json").error
    assert not (tmp_path / "nowhere").exists()
    commands = (("lessons",), ("check",), ("observe", plan), ("plan", "check", plan), ("plan", "show", plan))
    for command in (*commands, ("plan", "diff", plan), ("status",), ("note", plan, "--incident", "x", *BY)):
        refused = raykit(*command, "--root", str(file), "--json")
        assert (refused.code, refused.error["message"]) == (2, f"{file} is a file"), command
    assert raykit("observe", plan, "--root", str(tmp_path / "nowhere")).code == 0, (
        "a first plan has no store yet"
    )


def test_a_store_that_an_act_begins_is_said_to_be_new(raykit: Raykit, tmp_path: Path) -> None:
    plan = plan_path(tmp_path)
    acts = (
        ("note", plan, "--incident", "a node was lost", *BY),
        ("measured", plan, "--what", "save", "--time-s", "2", "--how", "bill 4", *BY),
        ("observe", plan, "fixture", "--as", "mask", "--saw", "it scales", *BY),
        ("conclude", plan, "--outcome", "invalid", *SAYS, *BY),
    )
    for n, act in enumerate(acts):
        place = str(tmp_path / f"store{n}")
        assert f"  a new store: {place}" in raykit(*act, "--root", place).out.splitlines()
        again = raykit(*act, "--root", place)
        assert (again.code, "a new store" in again.out) == (0, False)
        first = raykit(*act, "--root", f"{place}-json", "--json").json
        assert first["new_store"] is True
        assert raykit(*act, "--root", f"{place}-json", "--json").json["new_store"] is False


def test_a_damaged_log_is_named_and_hides_no_other(raykit: Raykit, tmp_path: Path) -> None:
    for name in ("one", "two"):
        launched(tmp_path, name)
        raykit("note", name, "--incident", f"something with {name}", *BY)
    path = tmp_path / "store" / layout.log_entry(layout.experiment_log("one"), 2)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"something", b"nothing.."))
    found = read_lessons(LocalStore(tmp_path / "store"))
    assert (found.looked_at, found.unread) == (("two",), ("one",))
    assert [name for name, _ in incidents(LocalStore(tmp_path / "store"))] == ["two"]
    assert "could not be read: one" in raykit("lessons").out


# --- the store ----------------------------------------------------------------------------------------------


def test_a_lost_reply_is_found_when_it_is_said_again() -> None:
    store = MemoryStore()
    faulty = FaultStore(store)
    noted = Noted(kind="incident", says="a disk was full", person="ada")
    faulty.fault = Fault(reply_lost, at=1, when="after")
    for _ in range(3):
        with suppress(UnknownOutcomeError):
            learn(faulty, "a", lambda known: noted, opens=True, person="ada", at=1.0)
        faulty.fault = Fault()
    assert [each.event for each in read_learned(store, "a")] == [noted]


def test_what_is_learned_stands_in_one_order_with_what_was_decided_from_it() -> None:
    """Two writers: the second decides again, with what the first has removed."""
    store = MemoryStore()
    of = load_plan(
        (PLAN.format(name="a", updates=20, rate="2.99", account="c", ceiling="900") + DIAGNOSIS).encode(),
        where="a.toml",
    ).diagnosis
    assert of is not None
    from raykit.review.diagnosis import observe

    def decide(known: Any, saw: str) -> Observed:
        if saw == "second" and not known:  # another writer is faster
            learn(store, "a", lambda k: decide(k, "first"), opens=True, person="ada", at=1.0)
        earlier = [each for each in known if isinstance(each, Observed)]
        return observe(
            of,
            earlier,
            plan=digest_of(1),
            test="rates",
            hypothesis="rate",
            saw=saw,
            note="both may be",
            person="ada",
            scripted=False,
        )

    told = learn(store, "a", lambda known: decide(known, "second"), opens=True, person="ada", at=2.0)
    assert told.event.removed == ("capacity",), "its second failure"
    assert [each.event.failed for each in read_learned(store, "a")] == [("capacity",), ()]


def test_the_setting_of_a_plan_that_was_never_locked_is_its_contract(raykit: Raykit, tmp_path: Path) -> None:
    plan = plan_path(tmp_path)
    raykit("conclude", plan, "--outcome", "no-full-run", *SAYS, *BY)
    parsed = load_plan(Path(plan).read_bytes(), where=plan)
    (event,) = events(tmp_path, "padded")
    assert event.contract == digest_of(contract(parsed))
    assert event.decision == decision_digest(parsed)
