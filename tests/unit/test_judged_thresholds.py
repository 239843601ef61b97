"""Thresholds are read as they will act, and `plan check` says what each of them does.

covers FAULT-B13 FAULT-B14
"""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Raykit, calls
from plainrun import write_job
from test_qc_plan import QC, job

from raykit.plan.tables import Qc
from raykit.plan.template import plan_text
from raykit.qc.known import KNOWN, is_taken
from raykit.qc.thresholds import doubts, read

ALL = ("evaluate", "classify", "text", "embed")


def qc(fail: dict[str, str], metrics: tuple[str, ...] = (), **roster: object) -> Qc:
    return Qc.model_validate(
        {
            "owner": "ada",
            "every": 5,
            "roster": {"stratum": "label", "units": 2, **roster},
            "metrics": metrics,
            "fail": fail,
            "on_failure": "continue",
        }
    )


WRONG = {
    "ratio, the good ones": ("ratio", "< 0.5", "fails what is good"),
    "accuracy, the good ones": ("accuracy", "> 0.5", "fails what is good"),
    "the worst accuracy": ("worst.accuracy", ">= 0.5", "fails what is good"),
    "bits": ("bits_per_byte", "< 2", "fails what is good"),
    "against a base": ("ratio", "< base - 0.01", "fails what is good"),
    "a check that is switched off": ("nonfinite", "> 1", "switches off a check that raykit makes by itself"),
    "missing ones, all of them": ("missing", "> 2", "switches off"),
    "a share above one": ("no_skill_share", "> 1.5", "never fails anything"),
    "an accuracy above one": ("accuracy", "< 90", "fails everything"),
    "an accuracy below zero": ("accuracy", "< 0", "never fails anything"),
    "a ratio below zero": ("ratio", "> -1", "fails everything"),
    "a limit beyond any number": ("ratio", "> 1e400", "beyond any number"),
    "the same of a recipe's own": ("mse", "> 1e400", "beyond any number"),
    "the worst of what has no strata": ("worst.effective_rank", "< 2", "nothing reports it"),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_threshold_that_can_never_be_right_says_why(why: str) -> None:
    name, rule, says = WRONG[why]
    (found,) = read(qc({name: rule}), ALL)
    assert found.wrong is not None and says in found.wrong and found.right


RIGHT = {
    "ratio": "> 0.35",
    "worst.ratio": "> 0.9",
    "ratio.recon": ">= 0.5",
    "accuracy": "< 0.5",
    "worst.accuracy": "< base - 0.02",
    "recall.3": "<= 0.2",
    "nonfinite": "> 0",
    "failed": "> 0.1",
    "brier_skill": "< -0.5",
    "support.2": "< 3",
    "loss": "> 2",
    "mse": "< 0.1",
}


def test_a_threshold_that_acts_is_never_accused() -> None:
    found = read(qc(RIGHT), ALL)
    assert [each.wrong for each in found] == [None] * len(RIGHT)
    assert [each.doubt for each in found] == [None] * len(RIGHT)


def test_a_metric_that_nothing_reports_is_known_from_the_recipes_methods() -> None:
    found = {each.name: each for each in read(qc({"ratoi": "> 1", "accuracy": "< 0.5"}, ("mse",)), ())}
    assert "the recipe has no evaluate()" in (found["ratoi"].wrong or "")
    assert found["ratoi"].right == "did you mean ratio?"
    assert "the recipe has no classify()" in (found["accuracy"].wrong or "")
    assert "no evaluate()" in (found["mse"].wrong or "")
    told = {each.name: each for each in read(qc({"ratoi": "> 1", "mse": "> 1"}), ("evaluate",))}
    assert told["ratoi"].wrong is None and "did you mean ratio?" in (told["ratoi"].doubt or "")
    assert told["mse"].doubt is None and told["mse"].comes == "evaluate(), at update 0"


def test_a_roster_of_training_rows_and_one_without_strata_are_said() -> None:
    asked = qc({"worst.ratio": "> 1"}, **{"from": "train"})
    said = list(doubts(asked, read(asked, ALL), ("all",)))
    assert len(said) == 3 and "trained on" in said[0] and "one stratum" in said[1] and "worst.*" in said[2]
    clean = qc({"ratio": "> 1"})
    assert list(doubts(clean, read(clean, ALL), ("a", "b"))) == []


def test_names_are_raykits_own_by_one_rule() -> None:
    assert all(is_taken(each.name.rstrip(".") + ".x" * each.name.endswith("."), ALL) for each in KNOWN)
    assert is_taken("worst.mse", ()) and is_taken("ratio_median", ()) and is_taken("recall.1", ())
    assert not is_taken("accuracy", ()) and not is_taken("mse", ALL) and not is_taken("ratios", ALL)


# --- through the command line -------------------------------------------------------------------------------


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str]) -> Raykit:
    return calls(capsys)


def test_plan_check_refuses_what_can_never_be_right(raykit: Raykit, tmp_path: Path) -> None:
    wrong = 'fail       = { ratio = "< 0.35", nonfinite = "> 1" }'
    plan = job(tmp_path, ('fail       = { ratio = "> 0.35" }', wrong))
    found = raykit("plan", "check", str(plan), "--root", str(tmp_path / "store"))
    assert found.code == 2
    assert "fails what is good" in found.err and "switches off a check" in found.err
    assert "qc.fail.ratio" in found.err and "qc.fail.nonfinite" in found.err


def test_plan_check_has_a_table_of_the_checks(raykit: Raykit, tmp_path: Path) -> None:
    more = 'fail       = { ratio = "> 0.35", "worst.ratio" = "> 0.9", rati = "> 3" }\nmetrics    = ["error"]'
    plan = job(
        tmp_path, ('fail       = { ratio = "> 0.35" }', more), ("units = 2", 'units = 2, from = "train"')
    )
    found = raykit("plan", "check", str(plan), "--root", str(tmp_path / "store"))
    assert found.code == 0, found.err
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert "METRIC FAILS IF MEANS FROM" in lines
    assert any(line.startswith("ratio > 0.35 loss over that of no skill") for line in lines)
    assert any(line.startswith("error not there the recipe's own evaluate(), at update 0") for line in lines)
    assert "trained on" in found.out and "did you mean ratio?" in found.out
    said = raykit("plan", "check", str(plan), "--root", str(tmp_path / "store"), "--json").json["qc"]
    assert [each["metric"] for each in said["metrics"]] == ["ratio", "worst.ratio", "rati", "error"]
    assert len(said["doubts"]) == 2


def test_a_metric_that_selects_and_that_nothing_reports_is_found_before_a_launch(
    raykit: Raykit, tmp_path: Path
) -> None:
    bare = "class Variant(Tiny):\n    evaluate = None\n"
    plan = write_job(tmp_path / "job", {"select": '"min development.eror"'}, variant=bare)
    found = raykit("plan", "check", str(plan), "--root", str(tmp_path / "store"))
    assert found.code == 2 and "nothing reports the metric eror" in found.err


def test_a_new_plan_writes_the_worst_stratum(tmp_path: Path) -> None:
    text = plan_text(name="new", recipe="recipe:X", params=(), proposes={"qc": {}}, has_fields=False)
    assert '"worst.ratio" = "> 0.35"' in text and QC.count("ratio") == 1
