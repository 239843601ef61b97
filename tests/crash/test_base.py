"""Training that starts from weights that are there: what is taken over, to the bit, and what is refused.

covers PLAN-04, CKPT-01, I1, I5
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, run_log, state_of, take, write_job

from raykit.cli.main import main
from raykit.errors import CorruptError
from raykit.read.bases import resolve_base
from raykit.read.root import Root
from raykit.records import Commit, Manifest
from raykit.store import layout, open_store
from raykit.store.commit import folder_of
from raykit.store.local import LocalStore
from raykit.store.plans import read_lock, read_plan
from raykit.testing.invariants import check_invariants
from raykit.train.base import base_of
from raykit.train.inputs import Task
from raykit.train.tensors import join, read_tensors

BOTH = '["weights", "optimizer"]'
WEIGHTS = '["weights"]'
CANARY = "canary-3f9a1c"


@pytest.fixture(scope="module")
def trained(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the completed run that the others start from. Copied, never written to."""
    folder = tmp_path_factory.mktemp("base")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job")))
    assert [code for code, _ in run.run()] == [0]
    return folder / "store"


def goes_on(
    trained: Path,
    folder: Path,
    nursery: Nursery,
    *,
    candidate: str = "tiny",
    start: str = "continue",
    keep: str = WEIGHTS,
    edits: Mapping[str, str] | None = None,
    variant: str | None = None,
) -> Launches:
    """A run of twelve updates in a copy of that store, whose plan starts from its weights."""
    store = folder / "store"
    if not store.exists():
        shutil.copytree(trained, store)
    plan = write_job(folder / "job", {"name": '"on"', "updates": "12", **(edits or {})}, variant=variant)
    kept = "" if start == "fresh" else f"keep = {keep}\n"
    table = f'\n[base]\ncandidate = "{candidate}"\nstart = "{start}"\n{kept}'
    plan.write_text(plan.read_text() + table)
    task = freeze_job(store, plan)
    return Launches(nursery, task, int((edits or {}).get("workers", "1")))


def commit_at(task: Task, update: int) -> Commit:
    return next(commit for commit in state_of(task).commits if commit.update == update)


def file_of(task: Task, commit: Commit, name: str) -> bytes:
    return open_store(task.root).get(f"{folder_of(commit)}/{name}")


def base_file(task: Task, name: str) -> bytes:
    """A file of the weights that the run's lock names."""
    store = open_store(task.root)
    base = read_lock(store, task.experiment, task.plan).base
    assert base is not None
    return store.get(base.key.replace("manifest.json", name))


def ends_well(run: Launches) -> None:
    ends = run.run()
    assert [code for code, _ in ends] == [0] * run.world, ends


# --- what is taken over -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["continue", "replay", "pilot"])
def test_update_0_is_the_model_of_the_base(
    start: str, trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    run = goes_on(trained, tmp_path, nursery, start=start)
    ends_well(run)
    begin = commit_at(run.task, 0)
    assert file_of(run.task, begin, "model.safetensors") == base_file(run.task, "model.safetensors")
    manifest = Manifest.from_bytes(open_store(run.task.root).get(begin.key), begin.key)
    assert (manifest.update, manifest.samples, manifest.contract) == (0, 0, run.task.contract)
    check_invariants(LocalStore(run.task.root))


def test_counters_and_schedule_begin_at_0_and_the_recipes_settings_hold(
    trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """The base has ended with a learning rate that its schedule had brought down; this run has its own."""
    run = goes_on(trained, tmp_path, nursery, keep=BOTH, edits={"params": "{ width = 16, lr = 0.005 }"})
    ends_well(run)
    counters = json.loads(file_of(run.task, commit_at(run.task, 0), "state.json"))["tree"]
    assert (counters["update"], counters["samples"], counters["scheduler"]["last_epoch"]) == (0, 0, 0)
    assert counters["recipe"] == {"seen": 0}
    rows = list(Root(open_store(run.task.root), time.time).history("on"))
    assert rows[0].lr == (0.005,)
    assert (rows[0].update, rows[0].samples, rows[-1].update) == (1, (0, 12), 12)


def test_the_optimizers_state_is_kept_where_the_plan_says_so(
    trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    kept, bare = (
        goes_on(trained, tmp_path / keep[2:5] / str(len(keep)), nursery, keep=keep)
        for keep in (BOTH, WEIGHTS)
    )
    for run in (kept, bare):
        ends_well(run)
    was = moments(base_file(kept.task, "optimizer.safetensors"))
    begin = moments(file_of(kept.task, commit_at(kept.task, 0), "optimizer.safetensors"))
    assert was["state"].keys() == begin["state"].keys()
    for index, state in was["state"].items():
        for name, value in state.items():
            assert begin["state"][index][name].equal(value), (index, name)
    assert moments(file_of(bare.task, commit_at(bare.task, 0), "optimizer.safetensors"))["state"] == {}
    assert final_digest(kept.task) != final_digest(bare.task)


def moments(data: bytes) -> dict:
    structure, tensors = read_tensors(data, "the optimizer")
    return join(structure, tensors)


def test_fresh_weighs_the_base_and_does_not_start_from_it(
    trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    run = goes_on(trained, tmp_path, nursery, start="fresh")
    ends_well(run)
    begin = file_of(run.task, commit_at(run.task, 0), "model.safetensors")
    assert begin != base_file(run.task, "model.safetensors")
    first = next(c for c in state_of(replace(run.task, experiment="tiny")).commits if c.update == 0)
    assert begin == file_of(run.task, first, "model.safetensors")  # the recipe's own, from the same seed


def test_adopted_weights_are_a_base_like_any_other(
    trained: Path, nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers CAND-02"""
    elsewhere = tmp_path / "elsewhere.safetensors"
    source = open_store(str(trained))
    elsewhere.write_bytes(
        source.get(resolve_base(source, "tiny").key.replace("manifest.json", "model.safetensors"))
    )
    store = tmp_path / "store"
    shutil.copytree(trained, store)
    said = ["--as", "prod", "--by", "mira", "--root", str(store)]
    assert main(["adopt", str(elsewhere), *said]) == 0
    run = goes_on(trained, tmp_path, nursery, candidate="prod")
    ends_well(run)
    assert file_of(run.task, commit_at(run.task, 0), "model.safetensors") == elsewhere.read_bytes()
    of_run = goes_on(trained, tmp_path / "2", nursery, candidate="tiny")
    ends_well(of_run)
    assert rows_bits(run.task) == rows_bits(of_run.task)  # the same weights, wherever they came from


# --- killed and resumed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "edits"),
    [
        (WEIGHTS, {}),
        (BOTH, {}),
        (BOTH, {"workers": "2", "accumulate": "2"}),
        (BOTH, {"dtype": '{ autocast = "float16" }'}),
    ],
    ids=["weights", "optimizer", "two-ranks", "fp16-scaler"],
)
def test_killed_at_a_random_update_and_resumed_it_is_equal_to_the_bit(
    keep: str, edits: dict[str, str], trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    whole = goes_on(trained, tmp_path / "whole", nursery, keep=keep, edits=edits)
    ends_well(whole)
    seed = f"base-{keep}-{sorted(edits)}"
    print(f"seed {seed}")
    rng = random.Random(seed)
    run = goes_on(trained, tmp_path / "killed", nursery, keep=keep, edits=edits)
    for _ in range(2):
        if not state_of(run.task).completed:
            kill_at(run, rng.randrange(12))
    if not state_of(run.task).completed:  # a kill can come too late
        ends_well(run)
    assert final_digest(run.task) == final_digest(whole.task)
    assert rows_bits(run.task) == rows_bits(whole.task)
    check_invariants(LocalStore(run.task.root))


def kill_at(run: Launches, update: int) -> None:
    """Kill every rank once the row of `update` is durable."""
    ranks = run.start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = state_of(run.task)
        ours = state.attempt is not None and state.attempt.launch == state.launched.launch
        if state.completed or (ours and state.commits and state.rows >= update):
            break
        time.sleep(0.01)
    for rank in ranks:
        rank.signal(9)
    for rank in ranks:
        rank.wait()


@pytest.mark.parametrize(
    "die",
    [
        {"put": '"event":"gate"', "when": "after", "nth": 1},
        {"put": "update-00000000/1/model", "when": "after"},
        {"put": '"event":"commit"', "when": "before", "nth": 1},
    ],
    ids=["in the gates", "in the first save", "before the first commit"],
)
def test_killed_before_update_0_it_begins_with_the_base_again(
    die: dict[str, object], trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    run = goes_on(trained, tmp_path, nursery, keep=BOTH)
    run.killed(die)
    assert not state_of(run.task).commits
    ends_well(run)
    begin = commit_at(run.task, 0)
    assert begin.attempt == 2
    assert file_of(run.task, begin, "model.safetensors") == base_file(run.task, "model.safetensors")


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "optimizer.safetensors"])
def test_other_bytes_under_the_bases_key_are_refused_before_they_are_parsed(
    name: str, trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """covers CKPT-03, I2"""
    run = goes_on(trained, tmp_path, nursery, keep=BOTH)
    base = read_lock(open_store(run.task.root), "on", run.task.plan).base
    assert base is not None
    path = Path(run.task.root) / base.key.replace("manifest.json", name)
    data = bytearray(path.read_bytes())
    data[-len(CANARY) - 8 : -8] = CANARY.encode()
    os.chmod(path, 0o600)
    path.write_bytes(data)
    notes = tmp_path / "notes"
    watched = replace(run, hooks={"parsers": {"notes": str(notes), "canary": CANARY}})
    ((code, out),) = watched.run()
    assert code == 5, out
    assert "corrupt: " in out and path.name in out
    given = set(notes.read_text().splitlines())
    assert "record clean" in given
    assert not [note for note in given if note.endswith("canary")]
    assert state_of(run.task).commits == ()
    assert state_of(run.task).rows == 0


@pytest.mark.parametrize(
    ("edits", "variant", "named"),
    [
        ({"params": "{ width = 24 }"}, None, "body.0.bias is float32 [16] in the base and float32 [24] here"),
        ({"dtype": '{ params = "bfloat16" }'}, None, "is float32 [16] in the base and bfloat16 [16] here"),
        (
            {},
            """
class Other(Net):
    def __init__(self, width, dropout):
        super().__init__(width, dropout)
        self.extra = nn.Linear(2, 2)

class Variant(Tiny):
    def model(self, params):
        self.params = params
        return Other(params.width, params.dropout)
""",
            "extra.bias is not in the base; extra.weight is not in the base",
        ),
    ],
    ids=["shape", "dtype", "name"],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    edits: dict[str, str], variant: str | None, named: str, trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    run = goes_on(trained, tmp_path, nursery, edits=edits, variant=variant)
    ((code, out),) = run.run()
    assert code == 3, out
    assert named in out
    assert " more\n" in out or named.startswith("extra")
    assert state_of(run.task).commits == ()


@pytest.mark.parametrize(
    ("optimizer", "named"),
    [
        (
            "torch.optim.SGD(model.parameters(), lr=params.lr, momentum=0.9)",
            "momentum_buffer is not in the base",
        ),
        ("torch.optim.SGD(model.parameters(), lr=params.lr)", "exp_avg is only in the base"),
        (
            "torch.optim.AdamW(model.parameters(), lr=params.lr, amsgrad=True)",
            "max_exp_avg_sq is not in the base",
        ),
        (
            "torch.optim.AdamW([{'params': [model.scale]}, {'params': model.body.parameters()}], lr=params.lr)",
            "its groups have [7] parameters, here they have [1, 6]",
        ),
    ],
    ids=["another", "none", "amsgrad", "groups"],
)
def test_the_state_of_another_optimizer_is_refused(
    optimizer: str, named: str, trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    variant = f"""
class Variant(Tiny):
    def optimizer(self, model, params):
        return {optimizer}
"""
    run = goes_on(trained, tmp_path, nursery, keep=BOTH, variant=variant)
    ((code, out),) = run.run()
    assert code == 3, out
    assert "is not that of the recipe's optimizer" in out and named in out
    bare = goes_on(trained, tmp_path / "bare", nursery, keep=WEIGHTS, variant=variant)
    ends_well(bare)  # as the refusal has said


def test_a_base_that_has_no_optimizer_state_has_none_to_keep(
    trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    run = goes_on(trained, tmp_path, nursery, candidate="tiny@0", keep=BOTH)
    ((code, out),) = run.run()
    assert (code, "there is nothing to keep" in out) == (3, True), out


def test_adopted_weights_have_no_optimizer_to_keep(
    trained: Path, nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(trained, store)
    key = resolve_base(open_store(str(store)), "tiny").key.replace("manifest.json", "model.safetensors")
    assert main(["adopt", str(store / key), "--as", "prod", "--by", "mira", "--root", str(store)]) == 0
    run = goes_on(trained, tmp_path, nursery, candidate="prod", keep=BOTH)
    ((code, out),) = run.run()
    assert (code, "has no optimizer state to keep" in out) == (3, True), out


def test_a_run_has_one_base(trained: Path, nursery: Nursery, tmp_path: Path) -> None:
    """The name has come to mean other weights, and somebody has locked that: the run does not go on from both."""
    run = goes_on(trained, tmp_path, nursery)
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    store = open_store(run.task.root)
    lock = read_lock(store, "on", run.task.plan)
    other = lock.model_copy(update={"base": resolve_base(store, "tiny@10")})
    store.put_new(layout.plan("on", other.digest, "plan.lock"), other.to_bytes())
    plan = store.get(layout.plan("on", lock.digest, "plan.toml"))
    store.put_new(layout.plan("on", other.digest, "plan.toml"), plan)
    changed = replace(run, task=replace(run.task, plan=other.digest))
    ((code, out),) = changed.run()
    assert code == 3, out
    assert "this run started from tiny (" in out and "its plan now starts from tiny@10 (" in out


def test_a_lock_that_names_no_weights_trains_nothing(trained: Path, nursery: Nursery, tmp_path: Path) -> None:
    run = goes_on(trained, tmp_path, nursery)
    store = open_store(run.task.root)
    lock = read_lock(store, "on", run.task.plan)
    with pytest.raises(CorruptError, match="does not say which weights those are"):
        base_of(read_plan(store, "on", run.task.plan), lock.model_copy(update={"base": None}))


def test_the_log_says_which_weights_a_run_started_from(
    trained: Path, nursery: Nursery, tmp_path: Path
) -> None:
    """covers DISP-14: the lock that an attempt names has the base by its digest."""
    run = goes_on(trained, tmp_path, nursery)
    task = take(run.task)
    for rank in run.ranks(task):
        assert rank.wait()[0] == 0
    attempt = state_of(task).attempt
    assert attempt is not None
    store = open_store(task.root)
    base = read_lock(store, "on", attempt.plan).base
    assert base == resolve_base(store, "tiny")
    assert run_log(store, task).refresh()
