"""What bits depend on beside the plan, and what a difference leaves of exactness.

class         the resumed run has                                               left after a change of
exact         every later row bit-equal to the run never interrupted            nothing that matters
state-exact   everything restored bit-equal; later arithmetic may round other   versions, threads, CPU
order-exact   the same samples in the same updates                              world size, device kind
inexact       neither is promised                                               plan, code, members, dtypes
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import numpy as np
import torch

from raykit.data.randomness import HASH_SEED
from raykit.plan import Plan
from raykit.plan import differences as plan_differences
from raykit.records import CODE_OF, Difference, Exactness
from raykit.train.gang import Gang

FACT_ALLOWS: dict[str, Exactness] = {
    "world_size": "order-exact",
    "device": "order-exact",
    "device_model": "state-exact",
    "cpu_capability": "state-exact",
    "threads": "state-exact",
    "torch": "state-exact",
    "torch_build": "state-exact",
    "numpy": "state-exact",
    "python": "state-exact",
    "raykit": "state-exact",
    "hash_seed": "state-exact",
}

NOT_RECORDED = "not recorded"
"""Of an attempt that began before the fact was asked for: nothing says that it differed."""

PLAN_ALLOWS: dict[str, Exactness] = {
    "run.workers": "order-exact",
    "run.accumulate": "order-exact",
    "run.deterministic": "state-exact",
}
"""Plan fields that change less than everything; every other field of the contract leaves `inexact`."""


def here(gang: Gang, threads: int) -> dict[str, str]:
    """The facts of this process and its gang."""
    return {
        "world_size": str(gang.world),
        "device": gang.device.type,
        "device_model": _device_model(gang.device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(threads),
        "torch": torch.__version__,
        "torch_build": hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:16],
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "raykit": metadata.version("raykit"),
        "hash_seed": _hash_seed(),
    }


def _hash_seed() -> str:
    """What this process hashes text with, which is settled before it begins."""
    return os.environ.get("PYTHONHASHSEED", "random") if sys.flags.hash_randomization else HASH_SEED


def _device_model(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.machine()


def of_facts(was: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    """The facts that differ. One that was not recorded then is named, and leaves `exact`."""
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name, NOT_RECORDED), now.get(name, NOT_RECORDED)
        if name == "device_model" and name not in now:
            continue  # a launch does not know the accelerators of other machines; the worker compares its own
        if before != after:
            left = "exact" if before == NOT_RECORDED else _allows(name)
            yield Difference(what=name, was=before, now=after, allows=left)


def _allows(fact: str) -> Exactness:
    return "inexact" if fact.startswith(CODE_OF) else FACT_ALLOWS.get(fact, "state-exact")


def of_plans(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Difference]:
    """The fields of two contracts that differ."""
    for field, before, after in plan_differences(dict(was), dict(now)):
        yield Difference(
            what=f"plan field {field}",
            was=_short(before),
            now=_short(after),
            allows=PLAN_ALLOWS.get(field, "inexact"),
        )


def of_code(was: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[Difference]:
    """The files of two frozen recipe folders that differ.

    A change of comments alone leaves `exact`, and so does a new file that is no module: a module may be imported by
    what was there before, in place of an installed one.
    """
    for name in sorted(was.keys() | now.keys()):
        before, after = was.get(name), now.get(name)
        if before == after:
            continue
        note = ""
        if before is not None and after is not None and name.endswith(".py") and _same_program(before, after):
            note = " (comments and layout only)"
        elif before is None and not name.endswith(".py"):
            note = " (new)"
        yield Difference(
            what=f"code file {name}",
            was=_digest(before),
            now=_digest(after) + note,
            allows="exact" if note else "inexact",
        )


def _same_program(before: bytes, after: bytes) -> bool:
    try:
        return ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
    except (SyntaxError, ValueError):
        return False


def _digest(data: bytes | None) -> str:
    return "absent" if data is None else hashlib.sha256(data).hexdigest()[:12]


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 120 else text[:117] + "..."


def expected(plan: Plan, outside: Mapping[str, str], *, there: int) -> dict[str, str]:
    """The facts that a gang would have: what a launch compares before it starts one.

    `outside` are those of the code that its recipe imports from outside, `there` the accelerators that it could have.
    """
    device = torch.device(local_device(plan, there))
    known = device.type == "cpu" or accelerators_here() > 0
    gang = Gang(rank=0, world=plan.run.workers, device=device if known else torch.device("cpu"))
    found = {**here(gang, plan.run.threads), **outside, "hash_seed": HASH_SEED}
    if not known:
        found["device"] = device.type
        del found["device_model"]
    return found


def local_device(plan: Plan, there: int) -> str:
    """The kind of device that the plan's ranks are granted where `there` are so many accelerators.

    With "auto" they get one each, or CPUs if there are too few.
    """
    if plan.run.device == "auto":
        return "cuda" if there >= plan.run.workers else "cpu"
    return plan.run.device


def accelerators_here() -> int:
    """The accelerators that PyTorch has on this machine, as far as they are visible to this process."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
