"""A worker sees the accelerators that it was granted, on a Ray that is told of two that are not there.

covers DISP-12
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grantray
import pytest
import ray
from grantray import SEEN, Look
from plainrun import freeze_job, state_of, take, write_job

from raykit.errors import GateError
from raykit.fleet.budget_actor import Seat, open_seat
from raykit.fleet.pool.actor import Orders, hire
from raykit.fleet.pool.hired import options_of
from raykit.fleet.session import LocalRay, start_local
from raykit.store import open_store
from raykit.store.plans import read_plan
from raykit.train.runner import fit

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

IDS = ("4", "7")
NO_OTHERS = {"HIP_VISIBLE_DEVICES": "-1", "NEURON_RT_VISIBLE_CORES": "-1", "TPU_VISIBLE_CHIPS": "-1"}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalRay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{Path(grantray.__file__).parent}")
        patch.setenv("CUDA_VISIBLE_DEVICES", ",".join(IDS))
        patch.setattr(ray, "init", functools.partial(ray.init, num_gpus=len(IDS)))
        with start_local(cpus=3, resources={}) as found:
            yield found


def asked(folder: Path, look: Look, *, gpus: float, **wants: Any) -> tuple[Any, dict[str, str | None]]:
    """What a pool's worker answers to being set up, and what it has seen by then."""
    name = f"look-{gpus}-{len(list(folder.iterdir()))}"
    orders = Orders(
        root=str(folder / "store"),
        experiment="tiny",
        run="main",
        worker=name,
        folder=str(folder / name),
        task=look,
        gpus=gpus,
    )
    actor = hire(orders, options_of(name, gpus=gpus, wants=wants))
    try:
        answer = ray.get(actor.set_up.remote(), timeout=120)
    finally:
        ray.kill(actor)
    return answer, json.loads((folder / name / SEEN).read_text())


def test_a_worker_sees_what_it_was_granted(local: LocalRay, tmp_path: Path) -> None:
    answer, seen = asked(tmp_path, Look(), gpus=0)
    assert (answer, seen) == (None, {"CUDA_VISIBLE_DEVICES": "", **NO_OTHERS})
    for gpus in (1, 0.25):
        answer, seen = asked(tmp_path, Look(), gpus=gpus)
        assert answer is None
        assert seen.pop("CUDA_VISIBLE_DEVICES") in IDS
        assert seen == {**NO_OTHERS, "HIP_VISIBLE_DEVICES": None}, (
            "another name for what was granted is left alone"
        )


def test_ray_alone_hides_nothing_from_whoever_asked_for_none(local: LocalRay, tmp_path: Path) -> None:
    """As on a cluster that somebody else has started: there the workers' own hiding is all there is."""
    bare = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}

    @ray.remote(num_cpus=0, num_gpus=0, runtime_env=bare)
    def seen_by_ray() -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    assert ray.get(seen_by_ray.remote(), timeout=120) == ",".join(IDS)
    _, seen = asked(tmp_path, Look(), gpus=0, runtime_env=bare)
    assert seen["CUDA_VISIBLE_DEVICES"] == ""


def test_a_worker_that_sees_more_refuses_by_name(local: LocalRay, tmp_path: Path) -> None:
    """Here its recipe has set the variable; nothing is examined or made."""
    answer, _ = asked(tmp_path, Look(sets=",".join(IDS)), gpus=0)
    assert isinstance(answer, GateError)
    assert answer.field == "accelerators"
    assert "CUDA_VISIBLE_DEVICES is '4,7' here, and was ''" in answer.message


def test_the_budget_actor_starts_without_any(local: LocalRay, tmp_path: Path) -> None:
    served = open_seat(Seat(root=str(tmp_path / "store"), account="a", idle_s=None))
    assert ray.get(served.whoami.remote(), timeout=120).pid != os.getpid()
    ray.kill(served)


LOOKS = """
import os, pathlib

class Variant(Tiny):
    def optimizer(self, model, params):
        pathlib.Path(os.environ["TMPDIR"], "rank-sees").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
        return super().optimizer(model, params)
"""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray, when its trainer is imported
def test_a_rank_trains_on_what_it_was_granted(local: LocalRay, tmp_path: Path) -> None:
    """Which is none, on a machine that has two: so it trains on CPUs."""
    task = take(freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"updates": "10"}, variant=LOOKS)))
    plan = read_plan(open_store(task.root), task.experiment, task.plan)
    fit(task, plan, storage=tmp_path / "none", name="none", restarts=0, door=None, gpus=0.0)  # type: ignore[arg-type]
    assert state_of(task).completed
    assert (local.folder / "tmp" / "rank-sees").read_text() == ""
