"""How accelerators divide between training and its checks, and what hides the rest of them from a worker.

covers DISP-12 QC-12
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plainrun import write_job
from ray._private.accelerators import get_all_accelerator_managers

import raykit
from raykit.errors import GateError
from raykit.fleet import accelerators as dividing
from raykit.fleet.accelerators import Division, divide, require_divisible
from raykit.fleet.pool.process import hold_at_most
from raykit.plan import Plan
from raykit.plan.load import load_plan
from raykit.train import facts, granted
from raykit.train.facts import expected, local_device, of_facts
from raykit.train.gang import Gang
from raykit.train.granted import Granted, keep_to_granted
from raykit.train.runner import _look

ROOT = Path(__file__).parents[2]
QC = """
[qc]
owner = "ada"
every = 5
roster = { stratum = "label", units = 3 }
fail = { ratio = "> 9" }
on_failure = "continue"
"""


def plan_of(folder: Path, qc: str = "", pools: str = "", **edits: str) -> Plan:
    path = write_job(folder, edits)
    text = path.read_text() + (QC + qc + "\n" if qc else "") + pools
    return load_plan(text.encode(), where="plan.toml")


PRICE = 'usd_per_hour = { rate = 0.0, source = "ours", billed = "node" }\n'
OWN = f"[pools.train]\ngpus = 1\n{PRICE}[pools.qc]\ngpus = 1\n{PRICE}"
SHARES = 'shares = "one card, small model"'
BOUND = f"{SHARES}\nmemory_gb = 4.0"


# --- the rule -----------------------------------------------------------------------------------------------

DIVIDED: dict[str, tuple[str, str, int, int, Division]] = {
    "no accelerator": ("drain_s = 1", "", 0, 1, Division(there=0, held=0, rank=0.0, check=0.0)),
    "one, for training": ("drain_s = 1", "", 1, 1, Division(there=1, held=1, rank=1.0, check=0.0)),
    "one for each": ("drain_s = 1", "", 2, 1, Division(there=2, held=1, rank=1.0, check=1.0)),
    "too few for all checks": ("drain_s = 1", "", 2, 2, Division(there=2, held=1, rank=1.0, check=0.0)),
    "a reason and no bound": (SHARES, "", 1, 1, Division(there=1, held=1, rank=1.0, check=0.0)),
    "shared": (BOUND, "", 1, 1, Division(there=1, held=1, rank=0.5, check=0.5)),
    "shared by two": (BOUND, "", 1, 2, Division(there=1, held=1, rank=0.5, check=0.25)),
    "a reason that is not needed": (BOUND, "", 2, 1, Division(there=2, held=1, rank=1.0, check=1.0)),
    "training on CPUs": (BOUND, "cpu", 1, 1, Division(there=1, held=0, rank=0.0, check=1.0)),
    "no checks": ("", "", 2, 0, Division(there=2, held=1, rank=1.0, check=0.0)),
}


@pytest.mark.parametrize("case", DIVIDED)
def test_what_each_gets(case: str, tmp_path: Path) -> None:
    qc, device, there, slots, division = DIVIDED[case]
    plan = plan_of(tmp_path, qc, **({"device": f'"{device}"'} if device else {}))
    assert divide(plan, slots=slots, there=there) == division


def test_ranks_get_one_each_or_cpus(tmp_path: Path) -> None:
    """`auto` is decided by what can be granted, and not by the machine that happens to ask."""
    plan = plan_of(tmp_path, workers="2")
    assert [local_device(plan, there) for there in (0, 1, 2, 3)] == ["cpu", "cpu", "cuda", "cuda"]
    assert divide(plan, slots=1, there=3) == Division(there=3, held=2, rank=1.0, check=1.0)
    assert divide(plan, slots=1, there=1) == Division(there=1, held=0, rank=0.0, check=1.0)


REFUSED = {
    "checks that want one of their own": (
        "drain_s = 1",
        OWN,
        1,
        "qc.shares",
        "training takes 1 of the 1 accelerators, and checks want 1 of their own",
    ),
    "sharing without a bound": (SHARES, OWN, 1, "qc.memory_gb", "nothing bounds what they hold there"),
    "training without one": ("", "", 0, "run.device", "training needs 1 accelerators, and 0 can be had here"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_plan_that_does_not_fit_is_refused(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    qc, pools, there, field, says = REFUSED[why]
    monkeypatch.setattr(dividing, "there_are", lambda: there)
    with pytest.raises(GateError, match=says) as refusal:
        require_divisible(plan_of(tmp_path, qc, pools, device='"cuda"'), slots=1)
    assert refusal.value.field == field
    assert refusal.value.rule and refusal.value.remedy


@pytest.mark.parametrize(
    ("qc", "pools", "there"), [("drain_s = 1", OWN, 2), (BOUND, OWN, 1), ("drain_s = 1", "", 1), ("", OWN, 1)]
)
def test_a_plan_that_fits_is_not(
    qc: str, pools: str, there: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing, "there_are", lambda: there)
    require_divisible(plan_of(tmp_path, qc, pools, device='"cuda"'), slots=1)


def test_on_a_machine_without_any_pools_may_say_what_they_like(tmp_path: Path) -> None:
    require_divisible(plan_of(tmp_path, "drain_s = 1", OWN), slots=1)


# --- what a launch expects ----------------------------------------------------------------------------------


def test_a_launch_does_not_know_the_accelerators_of_other_machines(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    there = expected(plan, {}, there=1)
    assert (there["device"], "device_model" in there) == ("cuda", False)
    was = {**there, "device_model": "NVIDIA H200"}
    assert list(of_facts(was, there)) == []
    here = expected(plan, {}, there=0)
    assert (here["device"], here["device_model"]) == ("cpu", facts._device_model(torch.device("cpu")))
    assert [each.what for each in of_facts(was, here)] == ["device", "device_model"]


# --- what hides the rest ------------------------------------------------------------------------------------


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Granted]:
    """What a worker keeps that was granted these, in an environment like this."""
    for manager in get_all_accelerator_managers():
        if (name := manager.get_visible_accelerator_ids_env_var()) is not None:
            monkeypatch.setenv(name, "0,1,2,3")

    def keep(given: Mapping[str, list[Any]] = {}, *, ranks_here: int = 1, **env: str) -> Granted:
        names = {manager.get_resource_name() for manager in get_all_accelerator_managers()}
        monkeypatch.setattr(granted, "_granted", lambda: {**{name: [] for name in names}, **given})
        monkeypatch.setattr(granted.ray, "is_initialized", lambda: True)
        monkeypatch.setattr(granted, "global_worker", SimpleNamespace(mode=granted.WORKER_MODE))
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return keep_to_granted(ranks_here=ranks_here)

    return keep


def test_with_none_granted_every_kind_that_ray_knows_is_hidden(in_worker: Callable[..., Granted]) -> None:
    kept = in_worker()
    assert kept.count == 0
    variables = {
        manager.get_visible_accelerator_ids_env_var() for manager in get_all_accelerator_managers()
    } - {None}
    assert kept.told.keys() == variables
    for name, value in kept.told.items():
        assert os.environ[name] == value == ("" if name == "CUDA_VISIBLE_DEVICES" else "-1")
    kept.require()


SEES = {
    "as Ray has said": ("2", 1, "2"),
    "where Ray says nothing": ("0,1,2,3", 1, "2"),
    "with those of its gang": ("2,3", 2, "2,3"),
    "a gang of more than there are ranks": ("0,1,2,3", 2, "2"),
    "another one": ("3", 1, "2"),
}


@pytest.mark.parametrize("case", SEES)
def test_a_worker_sees_its_own_and_those_of_its_gang(case: str, in_worker: Callable[..., Granted]) -> None:
    before, ranks, after = SEES[case]
    kept = in_worker({"GPU": [2]}, ranks_here=ranks, CUDA_VISIBLE_DEVICES=before)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == after
    assert kept.count == len(after.split(","))
    assert os.environ["TPU_VISIBLE_CHIPS"] == "-1", "other kinds are hidden"


def test_a_process_that_took_them_before_they_were_hidden_refuses(
    in_worker: Callable[..., Granted], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA reads the variable once: whatever asked it first has all of them, and nothing hides them any more."""
    kept = in_worker()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(GateError, match="it sees 2, and it was granted 0") as refusal:
        kept.require()
    assert refusal.value.field == "accelerators"
    in_worker({"GPU": [0, 1]}).require()


def test_a_rank_that_was_granted_what_pytorch_does_not_have_refuses() -> None:
    gang = Gang(rank=1, world=2, device=torch.device("cpu"))
    with pytest.raises(GateError, match="rank 1 was granted an accelerator, and PyTorch has none here"):
        _look(Granted(count=1, told={}), gang)
    _look(Granted(count=0, told={}), gang)


def test_outside_of_a_worker_nothing_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    kept = keep_to_granted()
    assert (kept.count, dict(kept.told), os.environ["CUDA_VISIBLE_DEVICES"]) == (sys.maxsize, {}, "0,1")
    kept.require()


STARTS = {
    "fleet/budget_actor.py": "BudgetActor",
    "fleet/generate/probe.py": "ProbeActor",
    "fleet/pool/actor.py": "UnitActor",
    "fleet/search/trial.py": "Trial",
    "train/runner.py": "_rank",
}
"""Whatever raykit has Ray start processes for, but for the look at which raykit a node has."""


def test_whatever_ray_starts_for_raykit_hides_first() -> None:
    """A worker of another kind has to be in this table, and to hide what it was not granted."""
    folder = Path(raykit.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if any(sign in path.read_text() for sign in ("ray.remote(", "(Trainable)", "DataParallelTrainer("))
    }
    assert found == STARTS.keys() | {"fleet/session/nodes.py"}
    for path, name in STARTS.items():
        tree = ast.parse((folder / path).read_text())
        (defined,) = (node for node in ast.walk(tree) if getattr(node, "name", None) == name)
        calls = [getattr(node.func, "id", None) for node in ast.walk(defined) if isinstance(node, ast.Call)]
        assert "keep_to_granted" in calls, path


# --- `make gpu` -------------------------------------------------------------------------------------------


def test_without_an_accelerator_everything_is_listed_as_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu_checks.py"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = importlib.util.spec_from_file_location("gpu_checks", ROOT / "scripts" / "gpu_checks.py")
    assert script is not None and script.loader is not None
    module = importlib.util.module_from_spec(script)
    monkeypatch.setitem(sys.modules, "gpu_checks", module)
    script.loader.exec_module(module)
    assert module.main() == 0
    out = capsys.readouterr().out.splitlines()
    assert len(module.CHECKS) == 8
    assert [line.split("skipped")[0].strip() for line in out[1:-1]] == list(module.CHECKS)
    assert (out[0].startswith("accelerator  none"), out[-1]) == (True, "nothing was measured")


# --- the bound ----------------------------------------------------------------------------------------------


def test_the_bound_of_a_worker_with_an_accelerator_is_on_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[tuple[float, int]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80_000_000_000)
    )
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: held.append((share, device))
    )
    monkeypatch.setattr("resource.setrlimit", lambda *given: pytest.fail("the machine's memory is bounded"))
    for gigabytes in (20, 800):
        hold_at_most(gigabytes * 10**9, gpus=0.5)
    assert held == [(0.25, 0), (1.0, 0)]
