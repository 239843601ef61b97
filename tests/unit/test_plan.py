"""The plan: what it means, what of it shapes the weights, and what is computed from it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raykit.errors import PlanError
from raykit.plan import (
    Lock,
    Plan,
    Selection,
    Stopping,
    contract,
    differences,
    load_plan,
    located,
    make_lock,
    not_yet,
    recorded,
    require_supported,
)
from raykit.plan.credentials import looks_secret
from raykit.plan.lines import index_lines, line_of
from raykit.plan.template import MARK, Param, continuation_text, open_judgements, plan_text, toml_value

GOOD = (Path(__file__).parents[1] / "corpus" / "good_plan.toml").read_text("utf-8")
CODE, DATA = "c" * 64, "d" * 64
ROWS = {"train": 1258, "development": 270, "report_only": 269}


def plan(*changes: tuple[str, str]) -> Plan:
    return load_plan(edited(*changes), where="plan.toml")


def edited(*changes: tuple[str, str]) -> bytes:
    text = GOOD
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


def run_with(*settings: str) -> Plan:
    """The good plan with more settings in [run]."""
    return plan(("seed             = 1", "\n".join(["seed = 1", *settings])))


def findings(data: bytes) -> list[tuple[int | None, str | None, str]]:
    with pytest.raises(PlanError) as caught:
        load_plan(data, where="plan.toml")
    return [(error.line, error.field, error.message) for error in caught.value.findings]


def lock_of(made: Plan) -> Lock:
    return make_lock(made, code=CODE, data=DATA, rows=ROWS)


# --- what it means ------------------------------------------------------------------------------------------


def test_what_is_left_unsaid_has_a_default_that_can_be_seen() -> None:
    run = plan().run
    assert run.evaluate_every == run.checkpoint_every == 200
    assert (run.workers, run.accumulate, run.loader_workers, run.threads) == (1, 1, 0, 1)
    assert (run.shard, run.device, run.resume, run.attempts, run.flush_s) == ("ddp", "auto", "exact", 3, 5.0)
    # covers CONTRACT-05: three precisions, each its own field
    assert run.dtype.plain() == {"params": "float32", "optimizer": "float32", "autocast": "none"}
    assert run.deterministic is True
    assert run.clip is None
    assert run.params == {"width": 32, "latent": 8, "lr": 0.001}


def test_rules_about_checkpoints_are_read_once() -> None:
    # covers CONTRACT-28
    assert plan().run.selection == Selection(mode="min", metric="ratio")
    assert plan().run.stopping is None
    rule = '{ metric = "development.ratio", patience = 4, min_delta = 0.001 }'
    assert plan(('"never"', rule)).run.stopping == Stopping(
        mode="min", metric="ratio", patience=4, min_delta=0.001
    )
    other = '{ metric = "development.error", patience = 4, min_delta = 0, mode = "max" }'
    assert plan(('"never"', other)).run.stopping == Stopping(
        mode="max", metric="error", patience=4, min_delta=0
    )


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        plan().run.seed = 2  # type: ignore[misc]


def test_identity_is_the_bytes_of_the_file() -> None:
    assert plan().sha256 != plan(("# (p)\non", "# (P)\non")).sha256
    assert plan() == plan()


FULL = (
    GOOD[: GOOD.index("[splits]")].replace('population = "the', 'from = "raykit.toml"\npopulation = "the')
    + """
[base]
candidate     = "lm1b-prod"
start         = "continue"
keep          = ["weights", "optimizer"]
against_as_is = "It has seen none of the new sources."

[data]
train       = ["s3://corp/docs@v7", "s3://corp/docs-new@2026-11"]
mix         = { "docs@v7" = 0.75, "docs-new@2026-11" = 0.25 }
group       = "doc_group"
development = "s3://corp/dev@v3"
sealed      = "s3://corp/test@v1"

[run]
updates          = 14300
batch            = 512
params           = { context = 2048, decay = "cosine" }
dtype            = { params = "float32", optimizer = "float32", autocast = "bfloat16" }
seed             = 1
workers          = 8
shard            = "fsdp2"
resume           = "state-exact"
checkpoint_every = 500
loss_window_min  = 15
wall_h           = 10
keep_checkpoints = { last = 3, every = 2000 }
curves           = { every = 100, smooth = "ema 0.98" }

[search]
hypothesis = "A lower peak loses less of the base."
predicts   = "If true it falls with lr; if false it is flat."
sampler    = { name = "optuna.tpe", seed = 7 }
trials     = 8
repeats    = { top = 2, seeds = [2, 3] }
concurrent = 4
scheduler  = { name = "asha", grace_updates = 400, reduction = 3 }
metric     = "development.bits_per_byte"
mode       = "min"
[search.space]
lr         = { loguniform = [1e-5, 3e-4] }
warmup     = { choice = [100, 200, 800] }

[qc]
owner      = "mira"
every      = 1000
roster     = { stratum = "source", units = 256, from = "development" }
metrics    = ["bits_per_byte", "lm-eval:arc_easy,hellaswag"]
fail       = { bits_per_byte = "> base + 0.01", nonfinite = "> 0" }
on_failure = "pause"

[generate.targets]
teacher   = "selected"
inputs    = "s3://corp/prompts@v2"
unit_rows = 512
bounds    = { empty = 0.001 }

[pools.train]
nodes        = { "ray.io/accelerator-type" = "H100" }
gpus         = 8
usd_per_hour = { rate = 2.99, source = "invoice 2026-10", billed = "node" }

[budget]
account     = "corp-lm"
ceiling_usd = 900
margin      = 1.05
confirm     = "one-run"
fixed_usd   = { storage = 10 }

[notify]
on      = ["approval-needed", "paused"]
to_file = "~/.config/raykit/apprise.yml"
"""
)


TEAM = b'[claim]\nunit = "a"\ntarget = "b"\npopulation = "c"\nsuccess = "d"\n'


def test_what_this_version_cannot_do_is_read_and_named_and_refused() -> None:
    asked = load_plan(FULL.encode(), where="plan.toml", shared=lambda name: TEAM)
    refused = not_yet(asked)
    for field in ("[data]", "[pools]", "run.shard"):
        assert any(text.startswith(field) for text in refused), field
    assert recorded(asked) == ["notify", "run.keep_checkpoints"]
    with pytest.raises(PlanError, match="does not do"):
        require_supported(asked)
    assert lock_of(asked).not_yet == tuple(refused)


def test_what_acts_later_is_recorded_and_stops_nothing() -> None:
    assert not_yet(plan()) == []
    assert lock_of(plan()).acts_later == ()
    asked = load_plan(
        data=edited(('stop             = "never"', 'stop = "never"\nkeep_checkpoints = { last = 3 }')),
        where="plan.toml",
    )
    assert lock_of(asked).acts_later == ("run.keep_checkpoints",)


# --- findings -----------------------------------------------------------------------------------------------


def test_everything_wrong_is_found_at_once_in_the_order_of_the_file() -> None:
    data = edited(
        ("worthwhile = 0.01 ", 'worthwhile = "" '),
        ("report_only = 0.15", "validation = 0.15"),
        ("updates          = 2000", "updates = 0"),
        ('"min development.ratio"', '"min sealed.ratio"'),
        ('on_failure = "continue" ', 'onfailure = "continue" '),
        ("lr = 1e-3", "lr = nan"),
    )
    lines = {text.split(" ")[0]: n for n, text in enumerate(data.decode().split("\n"), 1) if text}
    assert findings(data) == [
        (lines["worthwhile"], "claim.worthwhile", "empty"),
        (
            lines["validation"],
            "splits.validation",
            'not a role here: elsewhere "validation" both selects and reports, and those must be two sets',
        ),
        (lines["updates"], "run.updates", "is 0"),
        (lines["params"], "run.params.lr", "is nan"),
        (lines["select"], "run.select", "reads the sealed split, which may not decide this"),
        (lines["[qc]"], "qc.on_failure", "missing"),
        (lines["onfailure"], "qc.onfailure", "unknown key"),
    ]


def test_the_error_itself_names_the_file_and_what_was_found() -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(edited(("seed  ", "sede  ")), where="jobs/x/plan.toml")
    error = caught.value
    assert str(error) == "jobs/x/plan.toml: 2 findings"
    assert error.__notes__ == ["line 23, run.seed: missing", "line 26, run.sede: unknown key"]
    assert error.findings[1].remedy == "did you mean seed?"


def test_an_error_survives_a_process_boundary() -> None:
    with pytest.raises(PlanError) as caught:
        load_plan(b"schema = 2", where="plan.toml")
    back = pickle.loads(pickle.dumps(caught.value))
    assert [(f.field, f.line, f.rule) for f in back.findings] == [
        (f.field, f.line, f.rule) for f in caught.value.findings
    ]


def test_a_finding_of_the_recipe_gets_its_line() -> None:
    error = PlanError(
        "2 do not fit",
        findings=(
            PlanError("no", field="run.params.width"),
            PlanError("no"),
        ),
    )
    told = located(error, GOOD.encode(), where="plan.toml")
    assert told.message == "plan.toml: 2 do not fit"
    assert [finding.line for finding in told.findings] == [27, None]


# --- the contract -------------------------------------------------------------------------------------------

RULE = 'stop = {metric = "development.ratio", patience = 2, min_delta = 0}'

SHAPES = [
    (("updates          = 2000", "updates = 2001"), ["run.updates"]),
    (("batch            = 64", "batch = 32"), ["run.batch"]),
    (("seed             = 1", "seed = 2"), ["run.seed"]),
    (("seed             = 1", "seed = 1\naccumulate = 2"), ["run.accumulate"]),
    (("seed             = 1", "seed = 1\nworkers = 2"), ["run.workers"]),
    (("seed             = 1", "seed = 1\nclip = 1.0"), ["run.clip"]),
    (("seed             = 1", 'seed = 1\ndtype = {autocast = "bfloat16"}'), ["run.dtype.autocast"]),
    (("seed             = 1", "seed = 1\ndeterministic = false"), ["run.deterministic"]),
    (("lr = 1e-3", "lr = 2e-3"), ["run.params.lr"]),
    (("lr = 1e-3", "lr = 1e-3, beta = 1.0"), ["run.params.beta"]),
    (("width = 32", "width = 32.0"), ["run.params.width"]),
    (('"recipe:DigitsVae"', '"recipe:Other"'), ["recipe"]),
    (('"content"', '"source"'), ["splits.group"]),
    (('stop             = "never"', RULE), ["run.stop"]),
]

SHAPES_NOT = [
    ("checkpoint_every = 200", "checkpoint_every = 100"),
    ("seed             = 1", "seed = 1\nevaluate_every = 50"),
    ("seed             = 1", "seed = 1\nattempts = 9"),
    ("seed             = 1", "seed = 1\nthreads = 2"),
    ("seed             = 1", "seed = 1\nloader_workers = 2"),
    ("seed             = 1", 'seed = 1\nresume = "order-exact"'),
    ("seed             = 1", 'seed = 1\ndevice = "cpu"'),
    ("seed             = 1", "seed = 1\nflush_s = 1"),
    ("seed             = 1", "seed = 1\nloss_window_min = 5"),
    ("seed             = 1", "seed = 1\nkeep_checkpoints = {last = 3}"),
    ('"min development.ratio"', '"max development.ratio"'),
    ("every = 100, ", "every = 50, "),
    ('name     = "digits-vae"', 'name = "other"'),
    ('"ada"', '"mira"'),
    ("ceiling_usd = 1.0", "ceiling_usd = 2.0"),
]


@pytest.mark.parametrize(("change", "fields"), SHAPES, ids=lambda value: str(value)[:40])
def test_what_shapes_the_weights_is_in_the_contract(change: tuple[str, str], fields: list[str]) -> None:
    # covers CONTRACT-06, CONTRACT-17, CONTRACT-18, I14
    found = [field for field, _, _ in differences(contract(plan()), contract(plan(change)))]
    assert {field if not field.startswith("run.stop") else "run.stop" for field in found} == set(fields)


@pytest.mark.parametrize("change", SHAPES_NOT, ids=lambda value: str(value[1])[-40:])
def test_what_does_not_shape_the_weights_is_not_in_the_contract(change: tuple[str, str]) -> None:
    assert contract(plan(change)) == contract(plan())


def test_when_evaluations_can_end_a_run_their_cadence_shapes_it() -> None:
    stop = ('stop             = "never"', RULE)
    often = ("seed             = 1", "seed = 1\nevaluate_every = 50")
    assert differences(contract(plan(stop)), contract(plan(stop, often))) == [
        ("run.stop.evaluate_every", 200, 50)
    ]


def test_differences_name_both_values_and_tell_a_number_from_its_like() -> None:
    old = {"run": {"params": {"lr": 1e-3, "n": 1, "on": True}, "clip": None}, "splits": {"train": 0.7}}
    new = {"run": {"params": {"lr": 2e-3, "n": 1.0, "on": 1}, "clip": None}, "splits": None}
    assert differences(old, new) == [
        ("run.params.lr", 1e-3, 2e-3),
        ("run.params.n", 1, 1.0),
        ("run.params.on", True, 1),
        ("splits.train", 0.7, None),
    ]
    assert differences(old, old) == []


def test_the_contract_of_the_bundled_run_does_not_drift() -> None:
    """A change of this digest makes every stored run of every user another run: raise a schema instead."""
    assert lock_of(plan()).contract == "c5f46fa9486e3e4bcb3c65845685ca99b91eae62666e455777dbfcb156b917f7"


# --- the lock -----------------------------------------------------------------------------------------------


def test_effective_batch_is_micro_times_accumulation_times_replicas() -> None:
    # covers GOLD-30, CONTRACT-30
    lock = lock_of(run_with("accumulate = 4", "workers = 2"))
    assert (lock.micro_batch, lock.effective_batch) == (8, 64)
    assert lock.samples == 2000 * 64
    assert lock.epochs == 128_000 / 1258


@pytest.mark.parametrize(("updates", "every"), [(2000, 200), (2000, 300), (7, 7), (7, 8), (1, 1), (10, 3)])
def test_counts_are_what_a_run_would_do(updates: int, every: int) -> None:
    changes = [
        ("updates          = 2000", f"updates = {updates}"),
        ("checkpoint_every = 200", f"checkpoint_every = {every}\nevaluate_every = {every}"),
        ("every = 100, ", "every = 1, "),
        ("every      = 200", f"every = {every}"),
    ]
    lock = lock_of(plan(*changes))
    boundaries = {0, updates} | {u for u in range(1, updates + 1) if u % every == 0}
    assert lock.checkpoints == lock.evaluations == len(boundaries)
    assert lock.curves == updates


def test_a_lock_makes_every_default_visible() -> None:
    rule = ('stop             = "never"', RULE)
    run = lock_of(plan(rule)).settings["run"]
    assert run["stop"] == {"metric": "development.ratio", "mode": "min", "patience": 2, "min_delta": 0.0}
    assert run["evaluate_every"] == 200
    assert run["dtype"] == {"params": "float32", "optimizer": "float32", "autocast": "none"}
    assert {
        "workers",
        "accumulate",
        "threads",
        "deterministic",
        "attempts",
        "flush_s",
        "resume",
    } <= run.keys()


def test_a_lock_is_its_bytes_however_it_is_laid_out() -> None:
    lock = lock_of(plan())
    again = Lock.from_bytes(lock.to_text().encode(), "plan.lock")
    assert again == lock
    assert again.digest == lock.digest == Lock.from_bytes(lock.to_bytes(), "plan.lock").digest
    assert json.loads(lock.to_text()) == json.loads(lock.to_bytes())


def test_a_lock_is_the_same_in_every_process() -> None:
    script = (
        "import sys; from raykit.plan import *;"
        "p = load_plan(open(sys.argv[1], 'rb').read(), where='p');"
        "rows = {'development': 270, 'report_only': 269, 'train': 1258};"
        "print(make_lock(p, code='c' * 64, data='d' * 64, rows=rows).digest)"
    )
    path = Path(__file__).parents[1] / "corpus" / "good_plan.toml"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script, str(path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {lock_of(plan()).digest}


def test_a_lock_needs_training_rows() -> None:
    with pytest.raises(ValueError, match="training rows"):
        make_lock(plan(), code=CODE, data=DATA, rows={"development": 3})


# --- a new plan ---------------------------------------------------------------------------------------------


PROPOSES = {
    "splits": {"group": "label", "train": 0.8, "development": 0.1, "report_only": 0.1},
    "run": {"batch": 64, "checkpoint_every": 50},
    "qc": {
        "every": 50,
        "roster": {"stratum": "label", "units": 20},
        "fields": {"latent": {"space": "log", "low": 5, "high": 95, "collapse": 0.2}},
    },
}


@pytest.mark.parametrize("has_fields", [True, False])
@pytest.mark.parametrize("proposes", [{}, PROPOSES], ids=["bare", "proposing"])
def test_a_new_plan_asks_for_exactly_the_marked_lines(proposes: dict[str, Any], has_fields: bool) -> None:
    """covers PLAN-74: no ratio, no threshold, no model and no pilot of raykit's own."""
    params = [Param("width", 32), Param("lr", 1e-3), Param("decay", None), Param("name", 'a"# \t\\')]
    text = plan_text(name="new", recipe="recipe:X", params=params, proposes=proposes, has_fields=has_fields)
    marked = [n for n, line in enumerate(text.split("\n"), 1) if MARK in line]
    asked = {line for line, _, _ in findings(text.encode())}
    param_line = next(n for n, line in enumerate(text.split("\n"), 1) if line.startswith("params"))
    assert asked | {param_line} == set(marked)
    assert open_judgements(text) == len(marked) <= 16  # the params of this recipe are one more
    assert ("fields " in text) == has_fields
    assert "0.35" not in text.replace('{ "worst.ratio" = "> 0.35" }', "")  # no threshold is proposed
    assert tomllib.loads(text)["run"]["params"]["name"] == 'a"# \t\\'


def test_a_first_plan_has_at_most_fifteen_lines_of_judgement() -> None:
    for proposes in ({}, PROPOSES):
        text = plan_text(name="new", recipe="r:X", params=[], proposes=proposes, has_fields=True)
        assert open_judgements(text) <= 15


def test_a_new_plan_proposes_visibly_what_must_be_predeclared() -> None:
    text = plan_text(name="new", recipe="recipe:X", params=[], proposes={}, has_fields=True)
    proposed = [line for line in text.split("\n") if "# (p)" in line]
    for word in ("curves", "seed", "stop", "collapse", "low = 5, high = 95", "confirm", "checkpoint_every"):
        assert any(word in line for line in proposed), word
    own = plan_text(name="new", recipe="recipe:X", params=[], proposes=PROPOSES, has_fields=True)
    assert [line.split()[0] for line in own.split("\n") if line.endswith("# (r)")] == [
        "group", "train", "development", "report_only", "batch", "params", "checkpoint_every",
        "every", "roster", "fields",
    ]  # fmt: skip


def test_a_continuation_says_what_its_base_said() -> None:
    settings = lock_of(plan()).settings
    text = continuation_text(
        name="digits-next", candidate="digits-vae", settings=settings, trained=2000, asks_why=False
    )
    raw = tomllib.loads(text)
    assert raw["base"] == {"candidate": "digits-vae", "start": "continue", "keep": ["weights", "optimizer"]}
    assert raw["category"] == "production-improvement" and raw["splits"] == settings["splits"]
    assert raw["claim"]["compare"][0] == "digits-vae"
    assert raw["run"]["batch"] == 64 and raw["run"]["updates"] == ""
    marked = [line.split()[0] for line in text.split("\n") if MARK in line]
    assert marked == ["decision", "if_no", "success", "updates", "ceiling_usd"]


# --- for any text -------------------------------------------------------------------------------------------

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=6)
LEAVES = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@settings(derandomize=True, max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, LEAVES, max_size=3))
def test_every_key_has_its_line(top: dict[str, Any], table: dict[str, Any]) -> None:
    top.pop("zz", None)
    lines = [f"{_key(key)} = {toml_value(value)} # x = 'y" for key, value in top.items()]
    lines += ["", '[ "zz" . a ]', *(f"{_key(key)} = {toml_value(value)}" for key, value in table.items())]
    text = "\n".join(lines)
    assert tomllib.loads(text) == {**top, "zz": {"a": table}}
    found = index_lines(text)
    for number, key in enumerate(top, 1):
        assert line_of(found, (key,)) == number
        for path in _paths((key,), top[key]):
            assert found[path] == number
    for number, key in enumerate(table, len(top) + 3):
        assert line_of(found, ("zz", "a", key, "below", 3)) == number


def _key(key: str) -> str:
    return toml_value({key: 1})[2:].rpartition(" = ")[0]


def _paths(path: tuple[str, ...], value: Any) -> list[tuple[str, ...]]:
    if isinstance(value, dict):
        return [path, *(p for key, item in value.items() for p in _paths((*path, key), item))]
    if isinstance(value, list):
        return [p for item in value if isinstance(item, dict) for p in _paths(path, item)]
    return [path]


def test_lines_after_strings_of_many_lines() -> None:
    text = (
        'a = """\n[x]\nb = 1 \\"""\n"""\n'
        "c = '''\n\"\"\"\n'''''\n"
        "d = [ # [\n  1, # ]\n  {e = 2},\n]\n"
        "[t.u]\r\nf.g = 1\n"
    )
    assert tomllib.loads(text)["t"]["u"]["f"]["g"] == 1
    assert index_lines(text) == {
        ("a",): 1,
        ("c",): 5,
        ("d",): 8,
        ("d", "e"): 10,
        ("t",): 12,
        ("t", "u"): 12,
        ("t", "u", "f"): 13,
        ("t", "u", "f", "g"): 13,
    }


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_or_a_plan_error(data: bytes) -> None:
    try:
        load_plan(data, where="plan.toml")
    except PlanError as error:
        assert error.findings


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.data())
def test_a_damaged_plan_is_a_plan_or_a_plan_error(data: st.DataObject) -> None:
    good = GOOD.encode()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(start + 40, len(good))))
    junk = data.draw(
        st.sampled_from(
            [b"", b"=", b'"', b"[", b"]", b"{", b"\n", b"0", b"-", b"true", b'""', b"[[a]]\n", b"\x00"]
        )
    )
    try:
        made = load_plan(good[:start] + junk + good[end:], where="plan.toml")
    except PlanError as error:
        assert error.findings
        assert all(finding.line is None or 1 <= finding.line <= 60 for finding in error.findings)
    else:
        lock_of(made)


@pytest.mark.parametrize(
    "text",
    [
        "s3://Corp2/LongPathName/AndMore123/CheckpointFolder2026",
        "ghcr.io/corp/train@sha256:" + "0d4e" * 16,
        "/home/Ada/Projects2026/DigitsVae/runs/Experiment-01-with-long-name",
        "hf:org/MyModel-7B-Instruct-v0.2-GPTQ-Calibrated@" + "9b" * 20,
        "Meta-Llama-3_1-8B-Instruct-AWQ-INT4-W4A16-G128-v2-2026",
        "The mean over 1,797 digits, as in https://scikit-learn.org/stable/datasets:8x8 by ada@example.org",
    ],
)
def test_names_paths_and_digests_are_no_credentials(text: str) -> None:
    assert not looks_secret(text)
