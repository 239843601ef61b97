"""Bad searches are refused by name: every rule of [search], its field, what it says, and what would pass.

# covers TUNE-01, TUNE-02, TUNE-03, TUNE-04, TUNE-05, TUNE-07, TUNE-10, TUNE-14
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from raykit.cli.main import main
from raykit.errors import PlanError
from raykit.plan import load_plan

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "jobs" / "digits" / "search.toml"
GOOD = """\
schema   = 1
name     = "lr"
recipe   = "recipe:DigitsVae"
decision = "Which rate does the next run use?"
category = "model-selection"
if_no    = "Keep lr = 1e-3."

[claim]
unit       = "one image"
target     = "the image itself"
population = "the digits"
metric     = "ratio"
worthwhile = 0.01
success    = "better by 0.01"
compare    = ["lr = 1e-3"]

[search]
hypothesis = "The rate is too low."
predicts   = "If true, the ratio falls with lr; if false it is flat."
sampler    = { name = "random", seed = 7 }
trials     = 4
repeats    = { top = 2, seeds = [2, 3] }
concurrent = 2
scheduler  = { name = "asha", grace_updates = 100, reduction = 2 }
metric     = "development.ratio"
mode       = "min"
first      = [{ lr = 1e-3, size = "s", depth = 2 }]
[search.space]
lr    = { loguniform = [1e-4, 1e-1] }
size  = { choice = ["s", "m", "l"] }
depth = { integer = [1, 4] }

[splits]
group       = "content"
train       = 0.8
development = 0.2

[run]
updates          = 400
batch            = 64
seed             = 1
params           = { lr = 1e-3, latent = 8 }
checkpoint_every = 100
select           = "min development.ratio"
curves           = { every = 100, smooth = "ema 0.9" }

[budget]
ceiling_usd = 1.0
confirm     = "one-run"
"""
TRIALS = "trials     = 4"
SPACE = 'lr    = { loguniform = [1e-4, 1e-1] }\nsize  = { choice = ["s", "m", "l"] }\ndepth = { integer = [1, 4] }'
FIRST = 'first      = [{ lr = 1e-3, size = "s", depth = 2 }]'
FINITE = 'size  = { choice = ["s", "m", "l"] }\ndepth = { integer = [1, 4] }'
SCHEDULER = '{ name = "asha", grace_updates = 100, reduction = 2 }'
NO_FIRST = (FIRST, "first      = []")
AGAIN = '{ depth = 2, size = "s", lr = 0.001 }'
METRIC = '"development.ratio"\nmode'
PREDICTS = '"If true, the ratio falls with lr; if false it is flat."'
GRACE = "search.scheduler.grace_updates"
STOP = 'stop = { metric = "development.ratio", mode = "min", patience = 4, min_delta = 0.1 }'
GRANTED = ("[budget]\nceiling_usd = 1.0", "[pools.train]\ngpus = 1\n\n[budget]\naccelerator_hours = 9")
BILLED = (
    "[budget]\n",
    '[pools.train]\ngpus = 1\nusd_per_hour = { rate = 2.99, source = "invoice", billed = "node" }\n\n[budget]\n',
)


def findings(*changes: tuple[str, str]) -> list[PlanError]:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    try:
        load_plan(text.encode(), where="plan.toml")
    except PlanError as error:
        return list(error.findings)
    return []


def test_the_plan_that_they_are_made_from_is_good() -> None:
    assert findings() == []
    assert findings(BILLED, ("curves  ", "wall_h = 0.1\ncurves  ")) == []


@pytest.mark.parametrize(
    ("changes", "field", "says", "passes"),
    [
        # --- the space
        ([(SPACE, "")], "search.space", "empty", "at least one"),
        ([("{ loguniform = [1e-4, 1e-1] }", "{}")], "search.space.lr", "has 0 forms", "exactly one"),
        ([("loguniform = [1e-4, 1e-1]", "uniform = [0, 1], integer = [1, 2]")], "search.space.lr", "2 forms", "one of"),
        ([("loguniform = [1e-4, 1e-1]", "normal = [0, 1]")], "search.space.lr.normal", "unknown key", "uniform"),
        ([("[1e-4, 1e-1]", "[1e-4, inf]")], "search.space.lr.loguniform[1]", "is inf", "finite"),
        ([("[1e-4, 1e-1]", "[nan, 1e-1]")], "search.space.lr.loguniform[0]", "is nan", "finite"),
        ([("[1e-4, 1e-1]", "[1e-4]")], "search.space.lr.loguniform[1]", "missing", "[low, high]"),
        ([("[1e-4, 1e-1]", "[0.0, 1e-1]")], "search.space.lr.loguniform", "starts at 0.0", "above 0"),
        ([("[1e-4, 1e-1]", "[1e-1, 1e-4]")], "search.space.lr.loguniform", "goes from 0.1 to 0.0001", "low below"),
        ([("[1, 4]", "[4, 4]")], "search.space.depth.integer", "goes from 4 to 4", "low below high"),
        ([("[1, 4]", "[1, 4.5]")], "search.space.depth.integer[1]", "not a whole number", "[low, high]"),
        ([("[1, 4]", "[1, 9223372036854775807]")], "search.space.depth.integer", "goes from 1", "up to 90071992"),
        ([('["s", "m", "l"]', "[]")], "search.space.size.choice", "empty", "a list of values"),
        ([('["s", "m", "l"]', '["s"]')], "search.space.size.choice", "nothing is searched", "run.params"),
        ([('["s", "m", "l"]', '["s", "m", "s"]')], "search.space.size.choice[2]", "there twice", "once"),
        ([('["s", "m", "l"]', '["s", 1, 1.0]')], "search.space.size.choice[2]", "there twice", "once"),
        # --- how many
        ([(TRIALS, "trials     = 0")], "search.trials", "is 0", "at least 2"),
        ([(TRIALS, "trials     = 1")], "search.trials", "is 1: one setting", "at least 2"),
        ([(TRIALS, "")], "search.trials", "missing", "at least 2"),
        ([(TRIALS, "trials = 100_000")], "search.trials", "has 100,004 rows", "at most 100,000 rows"),
        ([(TRIALS, "trials = 100_000_000")], "search.trials", "100,000,004 rows", "at most 100,000 rows"),
        ([("concurrent = 2", "concurrent = 0")], "search.concurrent", "is 0", "at least 1"),
        ([("concurrent = 2", "concurrent = 9")], "search.concurrent", "more than the 8 rows", "at most 8"),
        ([("top = 2", "top = 5")], "search.repeats.top", "more than the 4 trials", "at most 4"),
        ([("top = 2", "top = 0")], "search.repeats.top", "is 0", "at least 1"),
        ([("seeds = [2, 3]", "seeds = []")], "search.repeats.seeds", "empty", "at least one"),
        ([("seeds = [2, 3]", "seeds = [2, 1]")], "search.repeats.seeds[1]", "is run.seed", "another seed"),
        ([("seeds = [2, 3]", "seeds = [2, 2]")], "search.repeats.seeds[1]", "there twice", "each seed once"),
        # --- the sampler
        ([('"random"', '"bayes"')], "search.sampler.name", 'is "bayes"', "optuna.tpe | random | grid"),
        ([('"random"', '"grid"')], "search.space.lr", "has no grid", "another sampler"),
        ([('"random"', '"grid"'), (SPACE, FINITE), NO_FIRST], "search.trials", "the grid has 12 settings", "12: every"),
        ([(SPACE, FINITE), (TRIALS, "trials = 13"), NO_FIRST], "search.trials", "space has 12 settings", "at most 12"),
        # --- what comes first
        ([(FIRST, f"first = [{', '.join(['{lr = 1e-3}'] * 5)}]")], "search.first", "has 5 settings", "at most 4"),
        ([("lr = 1e-3, size", "lr = 1.0, size")], "search.first[0].lr", "outside its space", "[0.0001,0.1]"),
        ([('size = "s", depth', 'size = "xl", depth')], "search.first[0].size", "outside its space", '["s","m","l"]'),
        ([("depth = 2", "depth = 2.0")], "search.first[0].depth", "outside its space", "integer = [1,4]"),
        ([("depth = 2", "depth = 2, latent = 8")], "search.first[0].latent", "is not searched", "lr, size, depth"),
        ([(', size = "s", depth = 2', "")], "search.first[0]", "leaves out size, depth", "each of lr, size, depth"),
        ([("depth = 2 }]", f"depth = 2 }}, {AGAIN}]")], "search.first[1]", "same as search.first[0]", "once"),
        # --- what decides
        ([(METRIC, '"report_only.ratio"\nmode')], "search.metric", "may not decide", "only the"),
        ([(METRIC, '"sealed.ratio"\nmode')], "search.metric", "may not decide", "development"),
        ([(METRIC, '"benchmark.ratio"\nmode')], "search.metric", "may not decide", "development"),
        ([(METRIC, '"validation.ratio"\nmode')], "search.metric", "reads validation", "development ="),
        ([(METRIC, '"ratio"\nmode')], "search.metric", "not a metric of a split", "development."),
        ([('mode       = "min"', 'mode       = "least"')], "search.mode", 'is "least"', "min | max"),
        ([('mode       = "min"', 'mode       = "max"')], "search.mode", "run.select takes", "or run.select ="),
        (
            [('mode       = "min"', 'mode = "max"'), ('"min development.ratio"', '"min development.loss"'),
             ("curves  ", f"{STOP}\ncurves  ")],
            "search.mode", "run.stop has", "run.stop.mode =",
        ),
        ([('hypothesis = "The rate is too low."', 'hypothesis = ""')], "search.hypothesis", "empty", "believes"),
        ([(PREDICTS, '" "')], "search.predicts", "empty", "seen"),
        # --- the scheduler
        ([(SCHEDULER, '{ name = "hyperband", grace_updates = 1 }')], "search.scheduler.name", "hyperband", "median"),
        ([(", reduction = 2", "")], "search.scheduler.reduction", "missing", "at least 2"),
        ([("reduction = 2", "reduction = 1")], "search.scheduler.reduction", "is 1", "at least 2"),
        ([('"asha"', '"median"')], "search.scheduler.reduction", "is of asha", "leave it out"),
        ([("reduction = 2", "reduction = 2, least = 3")], "search.scheduler.least", "is of median", "leave it out"),
        ([("grace_updates = 100", "grace_updates = 0")], GRACE, "is 0", "at least 1"),
        ([("grace_updates = 100", "grace_updates = 400")], GRACE, "none is ever", "below"),
        ([("grace_updates = 100", "grace_updates = 301")], GRACE, "no evaluation", "is 100"),
        ([("curves  ", "evaluate_every = 400\ncurves  ")], GRACE, "no evaluation", "is 400"),
        # --- money
        ([BILLED], "run.wall_h", "missing", "hours that one row may train"),
        ([GRANTED], "run.wall_h", "missing", "hours that one row may train"),
    ],
)  # fmt: skip
def test_a_bad_search_is_refused_by_name(
    changes: list[tuple[str, str]], field: str, says: str, passes: str
) -> None:
    found = {each.field: each for each in findings(*changes)}
    assert field in found, {name: each.message for name, each in found.items()}
    assert says in found[field].message
    assert passes in f"{found[field].rule} {found[field].remedy}"
    assert all(each.rule or each.remedy for each in found.values()), "each says what would pass"
    if says != "missing":
        assert found[field].line is not None


@pytest.mark.parametrize(
    "changes",
    [
        [("[1e-4, 1e-1]", "[1, 2]"), ("lr = 1e-3, size", "lr = 1, size")],  # whole numbers are numbers
        [("reduction = 2", "reduction = 2"), ('"asha"', '"asha"')],
        [(SCHEDULER, '{ name = "median", grace_updates = 200, least = 2 }')],
        [(SCHEDULER, '{ name = "median", grace_updates = 300 }')],
        [('"random"', '"grid"'), (SPACE, FINITE), (TRIALS, "trials = 12"), ("lr = 1e-3, size", "size")],
        [(SPACE, FINITE), (TRIALS, "trials = 12"), NO_FIRST],
        [('"random"', '"optuna.tpe"')],
        [(TRIALS, "trials = 99_996")],
        [('mode       = "min"', 'mode = "max"'), ('"min development.ratio"', '"min development.loss"')],
        [("concurrent = 2", "concurrent = 8")],
        [("top = 2", "top = 4")],
        [('["s", "m", "l"]', '["s", true, 1, [1, 2]]')],
    ],
)
def test_a_search_that_can_be_run_is_let_pass(changes: list[tuple[str, str]]) -> None:
    assert findings(*changes) == []


def test_run_params_may_hold_the_incumbent_and_what_is_fixed() -> None:
    """`lr` is searched, and stands in run.params all the same: that is what is in use today."""
    plan = load_plan(GOOD.encode(), where="plan.toml")
    assert plan.search is not None
    assert {"lr", "latent"} == set(plan.run.params)
    assert "lr" in plan.search.space


# --- through the command line ---------------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundled search, in a folder of its own."""
    folder = tmp_path / "digits"
    shutil.copytree(PLAN.parent, folder, ignore=shutil.ignore_patterns("__pycache__", "*.lock"))
    monkeypatch.chdir(folder)
    return folder / "search.toml"


def checked(capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["plan", "check", "search.toml", "--root", "store", "--json"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_worst_case_above_the_ceiling_is_refused(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # covers TUNE-01: every row at its worst is set aside before the first
    text = digits.read_text().replace("curves   ", "wall_h           = 0.5\ncurves   ")
    price = 'usd_per_hour = { rate = 2.0, source = "invoice 2026-10", billed = "resource" }'
    digits.write_text(f"{text}\n[pools.train]\ngpus = 0\n{price}\n")
    code, _, err = checked(capsys)
    assert code == 3, err
    assert "search less (search.trials" in err
    assert "budget" in err


def test_the_bundled_search_passes(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = checked(capsys)
    assert code == 0, err
    assert json.loads(out)["sha256"]
    assert not list(digits.parent.glob("store/*"))


def test_what_is_refused_is_told_with_its_line_and_what_would_pass(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits.write_text(digits.read_text().replace("top = 2", "top = 9"))
    capsys.readouterr()
    assert main(["plan", "check", "search.toml", "--root", "store"]) == 2
    said = capsys.readouterr().err
    assert "search.repeats.top  is 9, more than the 8 trials" in said
    assert "at most 8: search.trials" in said
