"""What was asked for against what a rank really has: compared before anything is trained, and a difference blocks.

covers DISP-01 DISP-02 DISP-12
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, take, write_job

from raykit.data import randomness
from raykit.data.order import Order
from raykit.records import GateResult
from raykit.store import open_store
from raykit.train import rng
from raykit.train.build import build, set_up_process
from raykit.train.gang import Gang, alone
from raykit.train.inputs import read_inputs
from raykit.train.loader import train_loader
from raykit.train.settings import DISPATCH, Live, differing, dispatch_gate, settings
from raykit.train.state import hold


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """Threads and determinism are this process's own: they are put back."""
    import torch._inductor.config

    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


Make = Callable[..., Live]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """What a rank has before its first update, made as a worker makes it."""

    def made(edits: Mapping[str, str] | None = None, *, variant: str | None = None, after: int = 0) -> Live:
        task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", edits, variant=variant))
        inputs = read_inputs(open_store(task.root), task, tmp_path / "code")
        gang, run = alone(), inputs.plan.run
        set_up_process(inputs.plan, gang.device)
        built = build(inputs.plan, inputs.recipe, inputs.params, gang)
        loader = train_loader(
            inputs.keyed("train"),
            Order(inputs.membership.rows("train"), run.seed),
            batch=run.batch,
            world=1,
            rank=0,
            accumulate=run.accumulate,
            after=after,
            last=run.updates,
            loader_workers=run.loader_workers,
        )
        return Live(
            lock=inputs.lock,
            plan=inputs.plan,
            params=inputs.params,
            built=built,
            loader=loader,
            updates=run.updates - after,
            gang=gang,
        )

    yield made
    sys.modules.pop("recipe", None)


def only(live: Live) -> tuple[str, str, str]:
    (found,) = differing(live)
    return found.name, found.requested, found.effective


# --- as requested -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edits",
    [
        {},
        {"accumulate": "3", "clip": "0.5"},
        {"dtype": '{ autocast = "bfloat16" }'},
        {"dtype": '{ params = "bfloat16", optimizer = "bfloat16" }'},
        {"dtype": '{ autocast = "float16" }'},
        {"loader_workers": "2", "threads": "2"},
        {"deterministic": "false"},
        {"params": "{ width = 16, lr = 1, dropout = 0 }"},  # whole numbers for floats
        {"stop": '{ metric = "development.ratio", patience = 3, min_delta = 0.2 }'},
        {"seed": "9", "device": '"cpu"'},
    ],
    ids=lambda edits: ",".join(edits) or "plain",
)
def test_what_is_there_is_what_was_asked_for(edits: dict[str, str], make: Make) -> None:
    live = make(edits)
    if edits.get("deterministic") == "false":
        torch.use_deterministic_algorithms(False)
    assert differing(live) == ()
    result = dispatch_gate(live, "0" * 64)
    assert (result.gate, result.passed, result.found) == (DISPATCH, True, "every setting is as requested")


def test_every_setting_of_a_run_is_compared(make: Make) -> None:
    """covers DISP-01: each that the plan's table has, and each that live objects can tell."""
    names = {setting.name for setting in settings(make({"clip": "0.5"}))}
    asked = {f"run.{name}" for name in make().lock.settings["run"]}
    assert asked <= names
    assert {
        "the dtype of the parameters",
        "autocast",
        "a loss scaler",
        "the device",
        "threads",
        "deterministic kernels",
        "ranks",
        "updates in the loader",
        "examples of a micro-batch",
        "examples of an update",
        "loader workers",
        "run.params.width in the recipe",
    } <= names


def test_looking_changes_nothing(make: Make) -> None:
    """Neither weights nor generators: a run with the gate is the run without it, to the bit."""
    live = make({"dtype": '{ autocast = "bfloat16" }'})
    rng.seed(randomness.key("here"))
    before = hold(live.built.live, rank=0)
    dispatch_gate(live, "0" * 64)
    assert hold(live.built.live, rank=0) == before


@pytest.mark.parametrize("after", [0, 7, 20])
def test_a_resume_has_the_updates_that_are_left(after: int, make: Make) -> None:
    assert differing(make(after=after)) == ()


# --- what is not --------------------------------------------------------------------------------------------


def threads(live: Live) -> Live:
    torch.set_num_threads(3)
    return live


def nondeterministic(live: Live) -> Live:
    torch.use_deterministic_algorithms(False)
    return live


def no_autocast(live: Live) -> Live:
    live.built.autocast = nullcontext
    return live


def no_scaler(live: Live) -> Live:
    live.built.live.scaler = None
    return live


def moments_of_another_dtype(live: Live) -> Live:
    optimizer = live.built.live.optimizer
    (parameter, *_) = optimizer.param_groups[0]["params"]
    optimizer.state[parameter]["exp_avg"] = torch.zeros(parameter.shape, dtype=torch.bfloat16)
    return live


def two_ranks(live: Live) -> Live:
    return replace(live, gang=Gang(rank=0, world=2, device=torch.device("cpu")))


def on_another_device(live: Live) -> Live:
    live.built.live.model.to("meta")
    return live


def locked_otherwise(**changes: Any) -> Callable[[Live], Live]:
    """The lock was made by a version with another default."""

    def change(live: Live) -> Live:
        run = {name: value for name, value in live.lock.settings["run"].items() if name not in changes}
        run.update({name: value for name, value in changes.items() if value is not None})
        return replace(
            live, lock=live.lock.model_copy(update={"settings": {**live.lock.settings, "run": run}})
        )

    return change


def params_that_are_other(live: Live) -> Live:
    live.params.width = 17
    return live


Change = Callable[[Live], Live]

DIFFERENT: dict[str, tuple[dict[str, str], Change, tuple[str, str, str]]] = {
    "threads": ({}, threads, ("threads", "1", "3")),
    "determinism": ({}, nondeterministic, ("deterministic kernels", "yes", "no")),
    "autocast": ({"dtype": '{ autocast = "bfloat16" }'}, no_autocast, ("autocast", "bfloat16", "none")),
    "autocast that this device does not have": (
        {"dtype": '{ autocast = "float32" }'},
        lambda live: live,
        ("autocast", "float32", "none"),
    ),
    "scaler": ({"dtype": '{ autocast = "float16" }'}, no_scaler, ("a loss scaler", "yes", "no")),
    "moments": (
        {},
        moments_of_another_dtype,
        ("the dtype of the optimizer's state", "float32", "bfloat16 (exp_avg)"),
    ),
    "device": ({"device": '"cpu"'}, on_another_device, ("the device", "cpu", "cpu, meta")),
    "a default of another version": ({}, locked_otherwise(clip=1.0), ("run.clip", "1.0", "null")),
    "a seed": ({}, locked_otherwise(seed=4), ("run.seed", "4", "3")),
    "params": ({}, params_that_are_other, ("run.params.width in the recipe", "16", "17")),
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.filterwarnings("ignore:In CPU autocast:UserWarning")
def test_a_difference_is_named_with_both_values(what: str, make: Make) -> None:
    edits, change, expected = DIFFERENT[what]
    live = change(make(edits))
    assert only(live) == expected
    result = dispatch_gate(live, "0" * 64)
    name, requested, effective = expected
    assert not result.passed
    assert result.found == f"rank 0: {name}: requested {requested}, effective {effective}"


def test_a_gang_of_another_size_makes_other_updates(make: Make) -> None:
    found = {setting.name: (setting.requested, setting.effective) for setting in differing(two_ranks(make()))}
    assert found == {"ranks": ("1", "2"), "examples of an update": ("12", "24")}


def test_a_loader_of_other_batches_is_seen(make: Make) -> None:
    live, other = make(), make({"batch": "6", "loader_workers": "1"})
    names = [setting.name for setting in differing(replace(live, loader=other.loader))]
    assert names == ["examples of a micro-batch", "examples of an update", "loader workers"]
    assert only(replace(live, updates=19))[0] == "updates in the loader"


def test_a_recipe_that_changes_its_params_is_seen(make: Make) -> None:
    """covers DISP-02"""
    variant = """
class Variant(Tiny):
    @dataclass
    class Params(Tiny.Params):
        def __post_init__(self):
            self.width = min(self.width, 8)
"""
    assert only(make(variant=variant)) == ("run.params.width in the recipe", "16", "8")


def test_a_precision_that_a_recipe_changes_is_named_with_its_tensor(make: Make) -> None:
    variant = """
class Variant(Tiny):
    def optimizer(self, model, params):
        model.scale.data = model.scale.data.to(torch.float16)
        return super().optimizer(model, params)
"""
    assert only(make(variant=variant)) == ("the dtype of the parameters", "float32", "float16 (scale)")


def test_many_differences_are_told_and_counted(make: Make) -> None:
    changes = {f"x{i:02d}": i for i in range(15)}
    result = dispatch_gate(locked_otherwise(**changes)(make()), "0" * 64)
    assert result.found.count("requested") == 12
    assert result.found.endswith("; and 3 more")


# --- in a run -----------------------------------------------------------------------------------------------


def gates(run: Launches) -> list[tuple[str, bool]]:
    return [(e.gate, e.passed) for e in state_of(run.task).events if isinstance(e, GateResult)]


def test_every_attempt_is_compared_before_its_other_gates(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-01"""
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    assert gates(run) == [("dispatch", True), ("first", True), ("resume", True)]
    assert run.run()[0][0] == 0
    assert gates(run)[3:] == [("dispatch", True)]


def test_a_difference_on_one_rank_blocks_all_before_anything_is_trained(
    nursery: Nursery, tmp_path: Path
) -> None:
    """covers DISP-01: the values are in the run's log, whichever rank has them."""
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"workers": "2"}))
    run = Launches(nursery, take(task), 2)
    rendezvous = f"file://{tmp_path}/rendezvous"
    ranks = [
        nursery.rank(
            run.task.plain(), rank=rank, world=2, rendezvous=rendezvous, hooks={"threads": 3} if rank else {}
        )
        for rank in range(2)
    ]
    wanted = "the dispatch gate failed: rank 1: threads: requested 1, effective 3"
    assert [rank.wait() for rank in ranks] == [(3, f"gate: {wanted}\n")] * 2
    state = state_of(run.task)
    assert (state.commits, state.rows) == ((), 0)
    assert state.failed == {"dispatch": 1}
    assert not state.gates["dispatch"].passed
    assert state.ended is not None and state.ended.detail == f"gate: {wanted}"
    assert [name for name, _ in gates(run)] == ["dispatch"]
    run = replace(run, task=task)
    assert [code for code, _ in run.run()] == [0, 0]  # as asked for, it trains
    assert state_of(task).failed == {}


def test_a_resume_that_differs_trains_nothing_either(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-01"""
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    before = state_of(run.task)
    ((code, out),) = replace(run, hooks={"threads": 2}).run()
    assert (code, "threads: requested 1, effective 2" in out) == (3, True)
    after = state_of(run.task)
    assert (after.commits, after.committed) == (before.commits, before.committed)


def test_a_plan_for_an_accelerator_is_not_run_on_a_cpu(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-12: what a plan asks for proves nothing about what is there; a rank says what it has."""
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"device": '"cuda"'})))
    ((code, out),) = run.run()
    assert (code, "the device: requested cuda, effective cpu" in out) == (3, True), out
    attempt = state_of(run.task).attempt
    assert attempt is not None
    assert attempt.facts["device"] == "cpu"
