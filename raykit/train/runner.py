"""The gang under Ray Train V2: what Ray starts and restarts, and nothing that a resume depends on.

Ray Train gives the gang, the process group, devices and restarts. Every limit is set, since its defaults are
endless. History, checkpoints and the decision where to resume are raykit's own; nothing is reported to Ray, so
nothing that Ray keeps or loses can change a run.
"""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray.train
import ray.train.collective
import ray.train.torch
import ray.util
import torch
import torch.distributed as dist
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raykit.errors import GateError, RaykitError, by_kind
from raykit.plan import Plan
from raykit.train.directive import Directive
from raykit.train.door import Door
from raykit.train.gang import Gang, meet_on_this_node
from raykit.train.granted import Granted, keep_to_granted
from raykit.train.inputs import Task
from raykit.train.surroundings import stay_inside
from raykit.train.worker import work

GANG_TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for the others in one collective call, beside what they may hold."""

LOCAL_MODE = 0
"""So many workers are, to Ray Train, one: the calling process itself, without a controller."""


def fit(
    task: Task,
    plan: Plan,
    *,
    storage: Path,
    name: str,
    restarts: int,
    door: Door,
    gpus: float,
    here: bool = False,
) -> None:
    """Run the gang to its end, restarts included. Blocks; how the run ended is in the run's log.

    `storage` is a private folder for Ray Train's own notes, `name` new for every call; workers are started again
    at most `restarts` times, each time only after the `door`, which travels to them, has reserved that attempt. Each
    asks Ray for `gpus`, and works on what it was granted.
    With `here` the only worker is this very process, Ray Train's local mode: whoever started it starts it again.

    Raises:
        RaykitError: what a rank refused before its attempt had a number; later refusals are in the run's log.
        ray.train.TrainingFailedError: workers or the controller failed more often than the plan allows.
    """
    storage.mkdir(mode=0o700, exist_ok=True)
    os.environ.setdefault(
        "RAY_TRAIN_ENABLE_PRINT_PATCH", "0"
    )  # it would put every print into a rank's log twice
    refusal = storage / f"{name}.refused"
    trainer = DataParallelTrainer(
        _rank,
        train_loop_config={"task": task.plain(), "refusal": str(refusal), "door": door, "alone": here},
        scaling_config=ScalingConfig(
            num_workers=LOCAL_MODE if here else plan.run.workers,
            use_gpu=gpus > 0,
            resources_per_worker={"CPU": 1, **({"GPU": gpus} if gpus else {})},
            label_selector=_labels(plan),
        ),
        run_config=RunConfig(
            name=name,
            storage_path=str(storage),
            failure_config=FailureConfig(
                max_failures=restarts,
                max_preemption_failures=restarts,
                controller_failure_limit=restarts,
            ),
        ),
    )
    trainer.fit()
    if refusal.exists():
        kind, _, message = refusal.read_text().partition(": ")
        raise by_kind(kind)(message)


def _labels(plan: Plan) -> dict[str, str] | None:
    """What a node has to have to train on; None where the plan says nothing."""
    pool = plan.pools.get("train")
    return dict(pool.nodes) if pool is not None and pool.nodes else None


def _rank(config: dict[str, Any]) -> None:
    """One rank. A deliberate refusal is in the run's log already; raised here, Ray would only try it again."""
    granted = keep_to_granted(ranks_here=ray.train.get_context().get_local_world_size())
    stay_inside()
    task = Task.of(config["task"])
    gang = _join(task, granted)
    try:
        door = config["door"] if gang.leads else None
        # nobody tells a process that Ray Train has not started
        notice = None if config["alone"] else _preemption
        work(task, gang, Directive(), notice=notice, door=door, look=lambda: _look(granted, gang))
    except RaykitError as error:
        print(f"{error.kind}: {error}")
        if gang.leads:
            Path(config["refusal"]).write_text(f"{error.kind}: {error}")


def _look(granted: Granted, gang: Gang) -> None:
    """Refuse a rank that is not on what it was granted, and on no more.

    Raises:
        GateError: it is not.
    """
    granted.require()
    if granted.count and gang.device.type == "cpu":
        raise GateError(
            f"rank {gang.rank} was granted an accelerator, and PyTorch has none here",
            field="run.device",
            value="cpu",
            rule="the device that was granted",
            remedy='a PyTorch for that accelerator on every node, or run.device = "cpu"',
        )


def _join(task: Task, granted: Granted) -> Gang:
    """This rank's gang, on the accelerator that it was granted or on CPUs.

    Ranks of one node meet in a private file: a meeting point of TCP listens on every address.
    While rank 0 holds, the others wait for it in the all-reduce of the next update: that must outlast a hold.
    """
    context = ray.train.get_context()
    usable = granted.count and torch.cuda.is_available()
    one_node = context.get_local_world_size() == context.get_world_size()
    gang = Gang(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        device=ray.train.torch.get_device() if usable else torch.device("cpu"),
        meet=meet_on_this_node if one_node else _meet,
    )
    if gang.world > 1:
        made = gang.meet() if gang.leads else None
        meeting = ray.train.collective.broadcast_from_rank_zero(made)
        dist.init_process_group(
            "nccl" if gang.device.type == "cuda" else "gloo",
            init_method=meeting,
            rank=gang.rank,
            world_size=gang.world,
            timeout=GANG_TIMEOUT + timedelta(seconds=task.hold_s),
        )
    return gang


def _meet() -> str:
    """Where the ranks of several nodes meet."""
    host = ray.util.get_node_ip_address()
    with socket.socket() as free:
        free.bind((host, 0))
        return f"tcp://{host}:{free.getsockname()[1]}"


def _preemption() -> str | None:
    """Why this gang is about to lose a node, if it is.

    The public `ray.train.get_preemption_info` is a barrier of all ranks, which a poll cannot be; this reads what
    the worker was told. The flag reaches the other ranks with the next update.
    """
    from ray.train.v2._internal.execution.context import get_train_context

    info = get_train_context().preemption_context.preemption_info
    if info is None:
        return None
    return f"preemption notice for {len(info.preempted_node_to_ranks)} nodes"
