"""The three plans that the product is drawn from, through the command line, with what they assume told as evidence.

covers PLAN-07 PLAN-08 PLAN-12 PLAN-64, BUD-19 BUD-21 BUD-22 BUD-32 BUD-37, APPR-08 to APPR-14, GOLD-18
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from maketeam import make_production
from safetensors.torch import save_file

from raykit.cli.main import main
from raykit.plan import Lock

HERE = Path(__file__).parents[1] / "users"
JOBS = Path(__file__).parents[2] / "jobs"
MIRA = ("--by", "mira")
ROWS = {
    "s3://corp/docs@v7": 59_022_310,
    "s3://corp/docs-new@2026-11": 2_953_118,
    "s3://corp/dev@v3": 20_000,
    "s3://corp/val@v3": 20_000,
    "s3://corp/test@v1": 20_000,
}
HOURS = {
    ("gates", "train"): 1.2,
    ("setup", "train"): 0.4,
    ("drain", "train"): 0.1,
    ("qc", "qc"): 13.25,
    ("generate", "generate"): 18.7,
    ("compare", "generate"): 0.75,
}


class Team:
    """A folder with the team's plans, a store, and the command line in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys

    def raykit(self, *words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = main([*words, "--root", "store"])
        said = self._capsys.readouterr()
        return code, said.out + said.err

    def done(self, *words: str) -> str:
        code, said = self.raykit(*words)
        assert code == 0, said
        return said

    def count(self, plan: str) -> None:
        text = (self.folder / plan).read_text()
        for source, rows in ROWS.items():
            if source not in text:
                continue
            self.done(
                "counted",
                plan,
                "--source",
                source,
                "--rows",
                str(rows),
                "--how",
                "index.json of 2026-11-20",
                *MIRA,
            )

    def measure(self, plan: str) -> None:
        for (what, pool), hours in HOURS.items():
            time_s = str(hours * 3600)
            how = "the bill of lm1b-07, 2026-08"
            self.done(
                "measured", plan, "--what", what, "--pool", pool, "--time-s", time_s, "--how", how, *MIRA
            )
        update = ("--what", "update", "--pool", "train", "--time-s", "2.19")
        self.done("measured", plan, *update, "--how", "history of lm1b-07", *MIRA)

    def train(self) -> None:
        make_production(self.folder / "store")

    def adopt(self) -> None:
        save_file({"weight": torch.zeros(8, 8)}, "prod.safetensors")
        self.done(
            "adopt", "prod.safetensors", "--as", "lm1b-prod", "--role", "production-candidate", "--updates", "95000",
            "--rows", "59022310", "--accelerator-hours", "461.6", "--source-note", "lm1b-07 step 95,000", *MIRA,
        )  # fmt: skip

    def variant(self, name: str, *edits: tuple[str, str]) -> str:
        text = (self.folder / "refresh.toml").read_text()
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / name).write_text(text)
        return name

    def lock(self, plan: str) -> Lock:
        path = self.folder / plan.replace(".toml", ".lock")
        return Lock.from_bytes(path.read_bytes(), path.name)


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Team:
    shutil.copytree(HERE, tmp_path / "team")
    monkeypatch.chdir(tmp_path / "team")
    for name in [name for name in sys.modules if name == "jobs" or name.startswith("jobs.")]:
        monkeypatch.delitem(sys.modules, name)  # the team's own `jobs`, and not the one beside this suite
    return Team(tmp_path / "team", capsys)


@pytest.fixture
def ready(team: Team) -> Team:
    """The base is in the store, the rows are counted, and what the plan assumes was measured."""
    team.train()
    team.count("refresh.toml")
    team.measure("refresh.toml")
    return team


def usd(line: str, lock: Lock) -> float:
    assert lock.judged is not None
    return {each.line: each.planned / 1e6 for each in lock.judged.lines}[line]


# --- (a) ----------------------------------------------------------------------------------------------------


def test_a_the_digits_plan_locks_with_all_twenty_items(team: Team) -> None:
    """covers GOLD-22 PLAN-25 PLAN-71"""
    shutil.copytree(JOBS / "digits", team.folder / "digits")
    said = team.done("plan", "check", "digits/plan.toml")
    assert "review  20 of 20 items hold" in said and "not billed" in said
    lock = team.lock("digits/plan.toml")
    assert lock.judged is not None and lock.judged.passed == tuple(f"REVIEW-{n:02d}" for n in range(1, 21))
    assert lock.judged.stage == "confirmation" and lock.not_yet is None


# --- (b) ----------------------------------------------------------------------------------------------------


def test_b_its_worst_case_and_its_lines_are_the_computed_ones(ready: Team) -> None:
    said = ready.done("plan", "check", "refresh.toml")
    assert (
        "worst $516.30" in said
        and "confirmation $307.67, recovery $76.03 ($40.00 of it for debugging)" in said
    )
    assert "ceiling below $900.00" in said
    lock = ready.lock("refresh.toml")
    assert lock.judged is not None
    amounts = {name: round(usd(name, lock), 2) for name in
               ("gates", "train", "qc", "generate", "compare", "storage", "confirmation", "scratch")}  # fmt: skip
    assert amounts == {
        "gates": 30.14, "train": 307.67, "qc": 22.26, "generate": 140.59, "compare": 5.64, "storage": 10.0,
        "confirmation": 307.67, "scratch": 40.0,
    }  # fmt: skip
    assert round(usd("recovery", lock) + usd("scratch", lock), 2) == 76.03
    assert sum(line.planned for line in lock.judged.lines) == 900_000_000
    assert round(lock.judged.worst / 1e6, 2) == 516.30


def test_b_the_change_and_the_alternatives_have_the_stores_figures(ready: Team) -> None:
    """covers PLAN-09 PLAN-14 PLAN-39 PLAN-41"""
    said = ready.done("plan", "show", "refresh.toml")
    assert "2,953,118 of 59,022,310 (5.0%) rows added, 0 of 59,022,310 (0.0%) removed" in said
    ready.done("plan", "check", "refresh.toml")
    judged = ready.lock("refresh.toml").judged
    assert judged is not None
    options = {option.option: option for option in judged.options}
    assert list(options) == ["use", "continue", "replay", "pilot", "fresh"]
    assert [option.option for option in judged.options if option.recommended] == ["continue"]
    assert options["use"].cost == 0 and round((options["continue"].cost or 0) / 1e6) == 208
    assert options["fresh"].repeats.startswith("95,000 of 99,753 updates")
    assert round((options["fresh"].time_ms or 0) / 3.6e6, 1) == 60.7


def test_b_is_refused_where_no_room_is_left_to_confirm_it(ready: Team) -> None:
    plan = ready.variant("tight.toml", ("ceiling_usd = 900", "ceiling_usd = 824"))
    code, said = ready.raykit("plan", "check", plan)
    assert code == 3 and "no room for the confirmation run" in said, said
    assert "863.9663" in said and not (ready.folder / "tight.lock").exists()
    enough = ready.variant("enough.toml", ("ceiling_usd = 900", "ceiling_usd = 863.97"))
    ready.done("plan", "check", enough)


def test_b_a_fresh_start_is_a_request_of_its_own(ready: Team) -> None:
    plan = ready.variant(
        "fresh.toml", ('start          = "continue"', 'start = "fresh"'), ("keep ", "# keep ")
    )
    code, said = ready.raykit("plan", "check", plan)
    assert code == 3
    assert "a fresh start needs its own approval" in said
    for words in (
        "a valid checkpoint exists",
        "all training is discarded",
        "the change is 5.0%",
        "a continuation answers the same question",
        "lm1b-prod is kept on disk, but its 95,000 updates are not used",
        "461.60 accelerator-hours",
        "2,953,118 of 59,022,310 (5.0%) rows added, 0 of 59,022,310 (0.0%) removed, 0 of 59,022,310 (0.0%) relabelled",
        "95,000 of 99,753 updates",
        "8 H100",
        "above the ceiling",
        "$900",
        "8.7 h, $208",
        "base.reason is empty",
        "raykit approve restart",
    ):
        assert words in said, words
    assert not (ready.folder / "fresh.lock").exists()


def test_b_nothing_that_is_not_counted_is_guessed(team: Team) -> None:
    """covers PLAN-11 DISP-11"""
    team.train()
    code, said = team.raykit("plan", "check", "refresh.toml")
    assert (
        code == 2
        and "nobody has counted the rows of" in said
        and "raykit counted --root store refresh.toml" in said
    )
    team.count("refresh.toml")
    code, said = team.raykit("plan", "check", "refresh.toml")
    assert "a guess" in said or "not measured" in said or "nothing like it" in said, said


def test_b_another_base_under_the_same_name_is_another_plan(ready: Team) -> None:
    ready.done("plan", "check", "refresh.toml")
    lock = ready.lock("refresh.toml")
    assert lock.base is not None and (lock.base.origin, lock.base.update) == ("run", 95_000)
    assert (lock.base.candidate, lock.base.experiment) == ("lm1b-prod", "lm1b-07")
    assert lock.judged is not None and lock.judged.base == lock.base


def test_b_weights_from_elsewhere_have_no_optimizer_to_keep(team: Team) -> None:
    """covers REVIEW-12: what was adopted has weights only, also under a plan that cannot be launched yet"""
    team.adopt()
    team.count("refresh.toml")
    team.measure("refresh.toml")
    code, said = team.raykit("plan", "check", "refresh.toml")
    assert code == 3 and "base.keep  lm1b-prod has no optimizer state to keep" in said, said
    assert not (team.folder / "refresh.lock").exists()
    team.done("plan", "check", team.variant("weights.toml", ('["weights", "optimizer"]', '["weights"]')))


HUGE = {
    "a wall cap": ("run.wall_h", ("wall_h           = 10 ", "wall_h           = 1e9 ")),
    "attempts": ("run.attempts", ("attempts         = 3", f"attempts         = {2**40}")),
    "a rate": ("pools.train.usd_per_hour", ("rate = 2.99", "rate = 900000000")),
    "a rate beside it": ("pools.qc.usd_per_hour", ("rate = 0.80", "rate = 900000000")),
    "a rate that is none": ("pools.generate.usd_per_hour", ("rate = 1.79", "rate = 1e300")),
    "a ceiling": ("budget.ceiling_usd", ("ceiling_usd = 900", "ceiling_usd = 1e300")),
    "updates": ("run.updates", ("updates          = 14300", f"updates          = {2**60}")),
}


@pytest.mark.parametrize("what", sorted(HUGE))
def test_b_figures_that_no_record_holds_are_refused_where_they_stand(ready: Team, what: str) -> None:
    field, edit = HUGE[what]
    plan = ready.variant("huge.toml", edit, *([("wall_h           = 10 ", "# ")] * (what == "updates")))
    for command in ("check", "show"):
        code, said = ready.raykit("plan", command, plan)
        assert code == 2 and field in said and "(line " in said and "rule " in said, said
    assert not (ready.folder / "huge.lock").exists()


def test_b_a_pace_that_nobody_lives_to_see_is_refused(ready: Team) -> None:
    told = ("--what", "update", "--time-s", "1000000000", "--how", "the bill of 2026-11", *MIRA)
    ready.done("measured", "refresh.toml", *told)
    code, said = ready.raykit("plan", "check", "refresh.toml")
    assert code == 2 and "run.updates" in said and "years at 1,000,000,000 s for each" in said, said
    assert "raykit measured --root store refresh.toml --what update" in said


def test_b_a_count_that_makes_a_fresh_start_endless_is_refused(ready: Team) -> None:
    most = ("--rows", str(10**15), "--how", "index.json of 2026-11-20", *MIRA)
    ready.done("counted", "refresh.toml", "--source", "s3://corp/docs@v7", *most)
    code, said = ready.raykit("plan", "check", "refresh.toml")
    assert code == 2 and "1,000,000,002,953,118 rows, after 59,022,310 before" in said, said
    assert "raykit counted" in said


def test_b_launching_it_says_what_this_version_lacks(ready: Team) -> None:
    code, said = ready.raykit("launch", "refresh.toml")
    assert code == 2 and "needs what this version does not do" in said and "[data]" in said


# --- (c) ----------------------------------------------------------------------------------------------------


def test_c_the_search_locks_as_screening_with_the_teams_claim(team: Team) -> None:
    """covers PLAN-50"""
    team.count("search.toml")
    said = team.done("plan", "check", "search.toml")
    lock = team.lock("search.toml")
    assert lock.judged is not None and lock.judged.stage == "screening"
    assert "a search ranks settings" in said
    assert lock.settings["claim"]["unit"] == "one document" and lock.shared is not None
    assert not any(text.startswith("[search]") for text in lock.not_yet)
    assert any(text.startswith("[data]") for text in lock.not_yet)


def test_c_it_may_cost_twelve_rows_and_one_to_confirm(team: Team) -> None:
    """covers BUD-19: each row on its share of the pool; what is left can never buy a thirteenth"""
    team.count("search.toml")
    for what, time_s in (("setup", "360"), ("drain", "180"), ("update", "1.19"), ("save", "3")):
        team.done("measured", "search.toml", "--what", what, "--time-s", time_s, "--how", "lm100m-06", *MIRA)
    said = team.done("plan", "check", "search.toml")
    assert "worst $41.44" in said and "confirmation $3.45, recovery $15.11" in said, said
    assert "12 rows" in said
    lock = team.lock("search.toml")
    assert {name: round(usd(name, lock), 2) for name in ("train", "confirmation", "recovery")} == {
        "train": 41.44, "confirmation": 3.45, "recovery": 15.11,
    }  # fmt: skip
    assert lock.judged is not None
    each = 0.1 + 1500 * 1.19 / 3600
    assert round(lock.judged.expected / 1e6, 2) == round(12 * each * 2.99, 2)
    assert lock.judged.expected_ms == 3 * 1_785_000, "four rows at once"
    assert [option.time_ms for option in lock.judged.options] == [lock.judged.expected_ms]


def test_c_is_refused_without_room_for_its_rows(team: Team) -> None:
    team.count("search.toml")
    text = (team.folder / "search.toml").read_text()
    (team.folder / "tight.toml").write_text(text.replace("ceiling_usd = 60", "ceiling_usd = 27"))
    code, said = team.raykit("plan", "check", "tight.toml")
    assert code == 3 and "search less (search.trials" in said, said


def test_the_same_evidence_gives_the_same_lock(ready: Team) -> None:
    ready.done("plan", "check", "refresh.toml")
    first = ready.lock("refresh.toml")
    record: dict[str, Any] = json.loads(ready.done("plan", "check", "refresh.toml", "--json"))
    assert record["changed"] is False and record["sha256"] == first.digest
