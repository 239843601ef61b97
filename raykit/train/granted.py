"""A worker sees the accelerators that it was granted, and no others.

Ray tells a worker which are its own only where it was granted some: one that asked for none sees all of the machine,
and would take the one that training holds. So every worker hides the rest itself, first of all, for each kind that Ray
knows, and looks afterwards whether that has come to anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import ray
from ray._private import accelerators
from ray._private.worker import WORKER_MODE, global_worker

from raykit.errors import GateError

NONE: Final = "-1"
"""Names no accelerator."""
_EMPTY_HIDES: Final = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Here an empty text is Ray's own way to say none; for other kinds it may mean that nothing was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What this process was granted, and what it was told that it sees."""

    count: int
    """How many accelerators are visible to it: its own, and those of its gang on this machine."""
    told: Mapping[str, str]
    """By environment variable."""

    def require(self) -> None:
        """See that this process has no more than that. Cheap, and for after everything is imported.

        Raises:
            GateError: it has.
        """
        for name, value in self.told.items():
            if os.environ.get(name) != value:
                raise _refusal(f"{name} is {os.environ.get(name)!r} here, and was {value!r}", self.count)
        seen = _seen()
        if seen > self.count:
            raise _refusal(f"it sees {seen}", self.count)


def keep_to_granted(*, ranks_here: int = 1) -> Granted:
    """Hide every accelerator that this worker was not granted. Outside of Ray's workers nothing is hidden.

    Ray Train shows each rank those of all ranks on its machine, so that they can reach each other: of `ranks_here`.
    """
    if not ray.is_initialized() or global_worker.mode != WORKER_MODE:
        return Granted(count=sys.maxsize, told={})
    granted = {name: [str(each) for each in ids] for name, ids in _granted().items()}
    told: dict[str, str] = {}
    count = 0
    for name, ids in granted.items():
        own = accelerators.get_accelerator_manager_for_resource(name)
        for manager in accelerators.get_all_accelerator_managers():
            variable = manager.get_visible_accelerator_ids_env_var()
            if manager.get_resource_name() != name or variable is None or (ids and manager is not own):
                continue
            told[variable] = _told(variable, ids, ranks_here) if ids else _none(variable)
            os.environ[variable] = told[variable]
            count += len(told[variable].split(",")) if ids else 0
    return Granted(count=count, told=told)


def _granted() -> Mapping[str, Iterable[str]]:
    found: Mapping[str, Iterable[str]] = ray.get_runtime_context().get_accelerator_ids()
    return found


def _none(variable: str) -> str:
    return "" if variable in _EMPTY_HIDES else NONE


def _told(variable: str, ids: list[str], ranks_here: int) -> str:
    """What is visible already, if that is this worker's own and its gang's; else its own."""
    there = [each for each in os.environ.get(variable, "").split(",") if each]
    if set(ids) <= set(there) and len(there) <= len(ids) * ranks_here:
        return ",".join(there)
    return ",".join(ids)


def _seen() -> int:
    """How many accelerators PyTorch has here; 0 where nobody has imported it yet."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    return max(int(kind.device_count()) for kind in (torch.cuda, torch.xpu))


def _refusal(what: str, count: int) -> GateError:
    return GateError(
        f"this worker sees accelerators that it was not granted: {what}, and it was granted {count}",
        field="accelerators",
        value=count,
        rule="a worker sees what Ray has granted it",
        remedy="let no module set that variable, or ask for an accelerator, while it is imported",
    )
