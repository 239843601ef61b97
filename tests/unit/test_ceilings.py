"""What `raykit plan check` says of a billed plan that does not fit under its ceiling, and of what is not billed.

covers BUD-01, REVIEW-13, REVIEW-16
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from called import Called, Raykit, calls
from plainrun import write_job

SET = """
[generate.digits]
rows      = 1000
unit_rows = 100
decode    = {{ temperature = 1.0 }}
bounds    = {{ nonfinite = 0.0 }}
wall_h    = {wall_h}
"""

POOL = """
[pools.{pool}]
gpus         = 0
usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}
"""

Check = Callable[[float], Called]


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str]) -> Raykit:
    return calls(capsys)


def checked(raykit: Raykit, folder: Path, tables: str, *, money: str = "", **edits: str) -> Check:
    """`plan check` of the tiny plan with more `tables`, under any ceiling."""
    plan = write_job(folder, edits)
    text = plan.read_text() + tables
    assert "ceiling_usd = 1.0" in text

    def check(ceiling: float) -> Called:
        plan.write_text(text.replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}\n{money}"))
        return raykit("plan", "check", str(plan), "--root", str(folder / "store"))

    return check


def at_least(refused: Called) -> float:
    """The ceiling that a refusal names."""
    found = re.search(r"at least ([0-9,.]*[0-9])", " ".join(refused.err.split()))
    assert found is not None, refused.err
    return float(found[1].replace(",", ""))


def amount(called: Called, word: str) -> float:
    found = re.search(rf"{word} \$([0-9,.]*[0-9])", " ".join(called.out.split()))
    assert found is not None, called.out
    return float(found[1].replace(",", ""))


TRAIN = POOL.format(pool="train", rate=36.0)
MORE = TRAIN + POOL.format(pool="generate", rate=36.0) + SET.format(wall_h=0.01)

PLANS: dict[str, tuple[str, str, dict[str, str], float]] = {
    "set-up alone": (TRAIN, "", {}, 0.1),
    "a dear machine": (POOL.format(pool="train", rate=90.0), "", {}, 0.3),
    "a set": (MORE, "", {}, 2.0),
    "a set and a margin": (MORE, "margin = 1.15", {}, 0.7),
    "fixed costs": (TRAIN, "fixed_usd = { storage = 0.5 }\nscratch_usd = 0.1", {}, 0.3),
    "a cap": (TRAIN, "", {"wall_h": "0.01", "attempts": "1"}, 0.5),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_ceiling_that_a_refusal_names_is_let_through(name: str, raykit: Raykit, tmp_path: Path) -> None:
    tables, money, edits, ceiling = PLANS[name]
    check = checked(raykit, tmp_path, tables, money=money, **edits)
    refused = check(ceiling)
    least = at_least(refused)
    assert refused.code == 3 and "does not fit" in refused.out
    assert amount(refused, "worst") <= least, "not what a ceiling without bounds would pay for"
    assert at_least(check(round((ceiling + least) / 2, 2))) == least, "it is the same from wherever one asks"
    passed = check(least)
    assert passed.code == 0, passed.err
    assert amount(passed, "worst") == amount(refused, "worst")


@pytest.mark.parametrize("name", PLANS)
def test_more_than_the_worst_is_never_expected(name: str, raykit: Raykit, tmp_path: Path) -> None:
    tables, money, edits, _ = PLANS[name]
    called = checked(raykit, tmp_path, tables, money=money, **edits)(9.0)
    assert called.code == 0, called.err
    assert amount(called, "expected") <= amount(called, "worst")


def test_a_set_that_nobody_is_billed_for_needs_no_cap(raykit: Raykit, tmp_path: Path) -> None:
    """One without [pools.generate] runs on this machine's own CPUs, whatever the training costs."""
    uncapped = re.sub("wall_h.*", "", SET.format(wall_h=1.0))
    called = checked(raykit, tmp_path, TRAIN + uncapped)(2.0)
    assert called.code == 0, called.err
    assert "sets not billed (priced by [pools.generate])" in " ".join(called.out.split())


@pytest.mark.parametrize("train", ["", TRAIN])
def test_a_billed_set_needs_one_whether_or_not_training_costs(
    train: str, raykit: Raykit, tmp_path: Path
) -> None:
    uncapped = re.sub("wall_h.*", "", SET.format(wall_h=1.0))
    called = checked(raykit, tmp_path, train + POOL.format(pool="generate", rate=36.0) + uncapped)(2.0)
    assert called.code == 3 and "generate.digits.wall_h" in called.err and "REVIEW-16" in called.err
    assert ("training not billed (priced by [pools.train])" in " ".join(called.out.split())) == (not train)


def test_where_no_ceiling_would_do_that_is_said(raykit: Raykit, tmp_path: Path) -> None:
    dear = POOL.format(pool="generate", rate=90_000_000.0) + SET.format(wall_h=1_000.0)
    called = checked(raykit, tmp_path, TRAIN + dear)(0.1)
    assert called.code == 2 and "at most 1,000,000,000.00 in all" in called.err
