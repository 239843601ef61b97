"""The same work in plain processes, without Ray: what tests kill by the thousand and benchmarks measure.

    python -m raykit.train.plain TASK.json --rank 0 --world 2 --rendezvous FILE [--device cuda]

SIGTERM commits at the next update and ends with exit code 4.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

from raykit.data.randomness import HASH_SEED
from raykit.errors import RaykitError
from raykit.train.directive import Directive
from raykit.train.gang import Gang
from raykit.train.inputs import Task
from raykit.train.surroundings import stay_inside
from raykit.train.worker import work


def main(arguments: list[str] | None = None) -> int:
    """Run one rank; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--rendezvous", type=Path, default=None)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    stay_inside()
    directive = Directive()

    def on_term(number: int, frame: FrameType | None) -> None:
        directive.stop("SIGTERM")

    signal.signal(signal.SIGTERM, on_term)
    if options.world > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{options.rendezvous}",
            rank=options.rank,
            world_size=options.world,
        )
    gang = Gang(rank=options.rank, world=options.world, device=torch.device(options.device))
    task = Task.of(json.loads(options.task.read_text()))
    try:
        ending = work(task, gang, directive)
    except RaykitError as error:
        print(f"{error.kind}: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps({"reason": ending.reason, "update": ending.update, "detail": ending.detail}))
    return 0 if ending.reason == "completed" else 4


def _hash_as_workers_do() -> None:
    """Begin this process anew where it hashes text by another seed: that is settled before it begins."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program


if __name__ == "__main__":
    _hash_as_workers_do()
    sys.exit(main())
