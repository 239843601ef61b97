"""`raykit plan diff` and `plan new`: what a change does to a plan and its approval, and names that are free.

covers PLAN-73, BUD-14
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from plainrun import claim_job, write_job

from raykit.cli.main import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def raykit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in a folder with the tiny job and an empty store."""
    write_job(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([*arguments, "--root", "store"])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def edit(old: str, new: str, path: str = "plan.toml") -> None:
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new))


def test_without_any_lock_there_is_nothing_to_compare_with(raykit: Run) -> None:
    code, said = raykit("plan", "diff", "plan.toml")
    assert code == 2 and "was never locked" in said and "raykit plan check" in said


@pytest.mark.parametrize(
    ("old", "new", "field", "ends"),
    [
        ("seed             = 3", "seed = 4", "run.seed", True),
        ("worthwhile = 0.01", "worthwhile = 0.02", "claim.worthwhile", True),
        ("ceiling_usd = 1.0", "ceiling_usd = 2.0", "budget.ceiling_usd", True),
        ('curves           = { every = 10', 'curves = { every = 5', "run.curves.every", False),
        ('if_no    = "Look at the code."', 'if_no = "Look twice."', "if_no", False),
    ],
)  # fmt: skip
def test_what_a_change_does_to_an_approval(old: str, new: str, field: str, ends: bool, raykit: Run) -> None:
    """Against the lock that `plan check` left beside the file: nothing had been launched, nothing seen."""
    assert raykit("plan", "check", "plan.toml")[0] == 0
    assert raykit("plan", "diff", "plan.toml") == (0, "  tiny: its lock -> plan.toml: nothing differs\n")
    edit(old, new)
    code, said = raykit("plan", "diff", "plan.toml")
    assert code == 0 and field in said and "amendment: nothing had been seen" in said
    assert ("ends an approval" in said) == ends
    assert ("an approval would still cover it" in said) == (not ends)
    record = json.loads(raykit("plan", "diff", "plan.toml", "--json")[1])
    assert [each["field"] for each in record["changed"]] == [field]
    assert bool(record["ends_approval"]) == ends and record["kind"] == "amendment"


def test_against_the_store_it_says_who_had_approved(raykit: Run) -> None:
    assert raykit("approve", "plan", "plan.toml", "1", "--by", "ada")[0] == 0
    claim_job(Path("store"), Path("plan.toml"))
    edit("curves           = { every = 10", "curves = { every = 5")
    code, said = raykit("plan", "diff", "plan.toml")
    assert code == 0 and "still covered by what ada approved" in said
    edit("seed             = 3", "seed = 4")
    assert "not covered: run.seed" in raykit("plan", "diff", "plan.toml")[1]


def test_two_files_are_compared_without_a_store(raykit: Run) -> None:
    Path("other.toml").write_text(Path("plan.toml").read_text().replace("batch            = 12", "batch = 6"))
    code, said = raykit("plan", "diff", "plan.toml", "other.toml")
    assert code == 0 and "run.batch" in said and "12" in said and "amendment" not in said
    assert not Path("store").exists()


def test_a_new_plan_has_a_name_that_is_free(raykit: Run) -> None:
    claim_job(Path("store"), Path("plan.toml"))
    assert raykit("plan", "new", "--recipe", "recipe:Tiny", "-o", "a.toml")[0] == 0
    assert 'name     = "tiny-2"' in Path("a.toml").read_text()


def test_a_new_plan_is_for_a_recipe_or_from_weights(raykit: Run) -> None:
    code, said = raykit("plan", "new", "-o", "a.toml")
    assert code == 2 and "--recipe MODULE:CLASS" in said and not Path("a.toml").exists()
    code, said = raykit("plan", "new", "--from", "nobody", "-o", "a.toml")
    assert code == 2 and "there is no candidate or experiment 'nobody'" in said


@pytest.mark.parametrize("proposes", ["3", '{"run": object()}', '["run"]'])
def test_what_a_recipe_proposes_has_to_be_a_table(proposes: str, raykit: Run) -> None:
    with Path("recipe.py").open("a") as recipe:
        recipe.write(f"\n\nclass Odd(Tiny):\n    proposes = {proposes}\n")
    code, said = raykit("plan", "new", "--recipe", "recipe:Odd", "-o", "a.toml")
    assert code == 2 and "what recipe:Odd proposes cannot be written" in said and not Path("a.toml").exists()


def test_commands_in_a_refusal_name_the_file(raykit: Run) -> None:
    edit('if_no    = "Look at the code."\n', "")
    edit("[budget]", '[base]\ncandidate = "x"\nstart = "use"\n\n[budget]')
    code, said = raykit("plan", "check", "plan.toml")
    assert code == 2 and "(line " in said and "there is no candidate or experiment 'x'" in said


SET = """
[generate.answers]
inputs    = "questions.csv"
samples   = 4
rows      = 1000
unit_rows = 200
decode    = { temperature = 0.8 }
options   = { cool = { temperature = 0.4 } }
quality   = "min development.distance"
bounds    = { truncated = 0.05, nonfinite = 0.0 }
"""


@pytest.mark.parametrize("command", ["check", "show"])
def test_each_synthetic_set_of_a_plan_is_a_block(command: str, raykit: Run) -> None:
    """covers GEN-01: what is asked for is seen before anything is made."""
    Path("plan.toml").write_text(Path("plan.toml").read_text() + SET)
    said = " ".join(raykit("plan", command, "plan.toml")[1].split())
    for text in (
        "SET answers rows questions.csv, 4 rows for each input, the first 1,000 at most",
        "units 5 of 200 rows at most; loss window: the one unit that each worker has in hand",
        "teacher whichever checkpoint of this experiment is approved for generation",
        "decode temperature = 0.8; seed 0",
        "options cool: temperature = 0.4; compared on min development.distance, before anything is made",
        "bounds truncated at most 5 %, nonfinite none",
        "exact yes: two attempts at a unit come to the same bytes",
        "canary 2 units by one worker, judged before others join",
    ):
        assert text in said, said


def test_a_plan_without_sets_has_no_block(raykit: Run) -> None:
    assert "  SET " not in raykit("plan", "check", "plan.toml")[1]
