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
from raykit.fleet.claim import code_since_checked, reviewed
from raykit.fleet.site import make_ready, site_of

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
        "unsaid nulls none, failed at most 1 %, empty at most 1 %, where rows can be so",
        "columns not known yet: questions.csv cannot be read: No such file or directory",
        "exact yes: two attempts at a unit come to the same bytes",
        "canary 2 units by one worker, judged before others join",
    ):
        assert text in said, said


@pytest.mark.parametrize(
    ("types", "shown"),
    [
        ("", "columns id text, prompt text, length text, of 2 inputs; others by types = { COLUMN = TYPE }"),
        ('types = { length = "int64" }', "columns id text, prompt text, length int64, of 2 inputs"),
        ('types = { prompt = "bool" }', "not known yet: questions.csv, line 2: column prompt has 'why?'"),
    ],
)
def test_what_a_reader_takes_the_columns_of_inputs_for_is_shown(types: str, shown: str, raykit: Run) -> None:
    """FAULT-C06"""
    Path("questions.csv").write_text("id,prompt,length\n1,why?,007\n2,how?,8\n")
    Path("plan.toml").write_text(Path("plan.toml").read_text() + SET + types + "\n")
    assert shown in " ".join(raykit("plan", "check", "plan.toml")[1].split())


def test_types_of_columns_need_inputs(raykit: Run) -> None:
    with Path("plan.toml").open("a") as plan:
        plan.write(SET.replace('inputs    = "questions.csv"\nsamples   = 4', 'types = { x = "text" }'))
    code, said = raykit("plan", "check", "plan.toml")
    assert code == 2 and "types is there, and there are no inputs" in " ".join(said.split())


# --- the rows -----------------------------------------------------------------------------------------------

GROUPED = """
class Variant(Tiny):
    def dataset(self, source, params):
        points = Points()
        points.groups = [i // 6 for i in range(60)]
        points.content = lambda index: index % 6
        return points
"""


def variant(code: str) -> None:
    with Path("recipe.py").open("a") as recipe:
        recipe.write(code)
    edit('"recipe:Tiny"', '"recipe:Variant"')


def test_groups_and_contents_in_two_splits_are_said_with_their_counts(raykit: Run) -> None:
    """FAULT-C08"""
    variant(GROUPED)
    code, said = raykit("plan", "check", "plan.toml")
    told = " ".join(said.split())
    assert code == 0, said
    assert "of 10 groups of the data are in more than one split" in told
    assert "12 of 12 rows of development equal one of train; and no reason is given (splits.why)" in told
    edit('group       = "none"', 'group = "none"\nwhy = "points stand for themselves"')
    was = Path("plan.lock").read_text()
    told = " ".join(raykit("plan", "check", "plan.toml")[1].split())
    assert "because: points stand for themselves" in told
    old, new = json.loads(was), json.loads(Path("plan.lock").read_text())
    assert old["contract"] == new["contract"] and old["data"] == new["data"], "a reason trains nothing else"
    edit('group = "none"', 'group = "group"')
    told = " ".join(raykit("plan", "check", "plan.toml")[1].split())
    assert "groups of the data are" not in told and "equal one of train" in told
    edit('group = "group"', 'group = "content"')
    edit("points.content = lambda index: index % 6", "points.content = lambda index: index", "recipe.py")
    told = " ".join(raykit("plan", "check", "plan.toml")[1].split())
    assert "groups of the data are" in told and "equal one of train" not in told


def test_work_that_is_paid_for_says_why_its_splits_share_rows(raykit: Run) -> None:
    """FAULT-C08"""
    variant(GROUPED)
    with Path("plan.toml").open("a") as plan:
        plan.write(
            '\n[pools.train]\ngpus = 1\nusd_per_hour = { rate = 0.01, source = "me", billed = "node" }\n'
        )
    code, said = raykit("plan", "check", "plan.toml")
    assert code == 2 and "splits.why" in said and "REVIEW-02" in said, said
    edit('group       = "none"', 'group = "none"\nwhy = "points stand for themselves"')
    assert raykit("plan", "check", "plan.toml")[0] == 0


def test_nothing_is_said_of_rows_of_which_nothing_is_to_be_said(raykit: Run) -> None:
    said = raykit("plan", "check", "plan.toml")[1]
    assert "parted" not in said and "not numbers" not in said and "come twice" not in said


ODD = """
class Variant(Tiny):
    def dataset(self, source, params):
        return Odd()


class Odd(Points):
    def __getitem__(self, index):
        x, y = torch.arange(4.0), torch.ones(2)
        if index in (7, 9):
            BODY
        return x + index, y
"""


@pytest.mark.parametrize(
    ("body", "code", "shown"),
    [
        (
            "x = x[:3]",
            2,
            "rows 'p000' ((float32 [4], float32 [2])) and 'p007' ((float32 [3], float32 [2])) cannot be",
        ),
        (
            "y = None",
            2,
            "rows 'p000' ((float32 [4], float32 [2])) and 'p007' ((float32 [4], NoneType)) cannot be",
        ),
        (
            "raise ValueError('a damaged file')",
            2,
            "row 7 ('p007') cannot be read: ValueError: a damaged file",
        ),
        ("y = object()", 2, "row 7 ('p007'): item[1] is a builtins.object, which has no stable bytes"),
        ("x = x * float('nan')", 0, "not numbers 2 rows with a value that is not finite: 'p007', 'p009'"),
        ("x = x.double()", 0, ""),
    ],
)
def test_a_row_that_cannot_be_used_is_named_before_the_launch(
    body: str, code: int, shown: str, raykit: Run
) -> None:
    """FAULT-C09"""
    variant(ODD.replace("BODY", body))
    with Path("recipe.py").open("a") as recipe:
        recipe.write("\n\ndel Points.content\n")
    found, said = raykit("plan", "check", "plan.toml")
    assert found == code and shown in " ".join(said.split()), said


def test_rows_of_any_shape_may_meet_in_a_collate_of_the_recipe_s_own(raykit: Run) -> None:
    own = "    def collate(self, items):\n        return items\n\n    def dataset"
    variant(ODD.replace("    def dataset", own).replace("BODY", "x = x[:3]"))
    with Path("recipe.py").open("a") as recipe:
        recipe.write("\n\ndel Points.content\n")
    assert raykit("plan", "check", "plan.toml")[0] == 0


def test_a_batch_that_is_larger_than_its_split_is_said(raykit: Run) -> None:
    """FAULT-C09"""
    edit("batch            = 12", "batch = 60")
    said = " ".join(raykit("plan", "check", "plan.toml")[1].split())
    assert "60 examples of an update, of 48 training rows: some come twice in each" in said


def test_a_recipe_that_is_edited_after_its_plan_was_checked_is_locked_anew_with_a_word(raykit: Run) -> None:
    """FAULT-A22"""
    assert raykit("plan", "check", "plan.toml")[0] == 0
    said: list[str] = []
    site = site_of(Path("plan.toml"), "store")
    assert not list(code_since_checked(site, make_ready(site)))
    with Path("recipe.py").open("a") as recipe:
        recipe.write("\n# another thought\n")
    ready = make_ready(site)
    reviewed(site, ready, site.run_log("launch"), None, None, said.append)
    (line,) = said
    assert "code was changed since `raykit plan check`" in line and ready.code_sha256[:12] in line
    assert raykit("plan", "check", "plan.toml")[0] == 0
    assert not list(code_since_checked(site, ready))
    Path("plan.lock").write_text("{}")
    assert not list(code_since_checked(site, ready)), "a lock that is no lock says nothing"


def test_a_plan_without_sets_has_no_block(raykit: Run) -> None:
    assert "  SET " not in raykit("plan", "check", "plan.toml")[1]
