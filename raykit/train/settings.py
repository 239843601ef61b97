"""What a plan asks for, against what the live objects of a rank really are: told apart before anything is trained.

Every plan is read twice: when it is locked, and by each worker from the store. Whatever a version, a machine, a recipe
or an environment makes of it in between shows here, with both values, on every rank.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from raykit.errors import some_of
from raykit.ids import canonical
from raykit.plan import Lock, Plan
from raykit.records import GateResult
from raykit.records import Setting as RowSetting
from raykit.train.build import DTYPE, Built
from raykit.train.gang import Gang

DISPATCH = "dispatch"
"""The name of this gate in a run's log."""

MAX_TOLD = 12
"""How many differences a gate's result names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: as the lock has it, and as it is."""

    name: str
    requested: str
    effective: str

    @property
    def differs(self) -> bool:
        return self.requested != self.effective

    @property
    def words(self) -> str:
        """`run.threads: requested 2, effective 1`."""
        return f"{self.name}: requested {self.requested}, effective {self.effective}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a rank is about to train with."""

    lock: Lock
    """What was requested, with every default of that time."""
    setting: RowSetting | None = None
    """Of a trial: what was requested of it instead."""
    plan: Plan
    """The same plan as this process reads it."""
    params: Any
    """The recipe's Params, defaults and all."""
    built: Built
    loader: DataLoader[Any]
    """This rank's micro-batches of the updates that are left."""
    updates: int
    """How many those are."""
    gang: Gang


def settings(live: Live) -> tuple[Setting, ...]:
    """Every setting that can be read from live objects, with what was requested of it."""
    return (*_as_read(live), *_params(live), *_arithmetic(live), *_process(live), *_batches(live))


def differing(live: Live) -> tuple[Setting, ...]:
    """The settings that are not as requested."""
    return tuple(setting for setting in settings(live) if setting.differs)


def dispatch_gate(live: Live, key: str) -> GateResult:
    """Compare on every rank; the same result on each. Nothing is trained, and no generator is drawn from."""
    start = time.perf_counter()
    compared = settings(live)
    mine = [setting.words for setting in compared if setting.differs]
    everyone = [live.gang.share(mine, by=rank) for rank in range(live.gang.world)]
    wrong = [f"rank {rank}: {words}" for rank, told in enumerate(everyone) for words in told]
    return GateResult(
        gate=DISPATCH,
        key=key,
        passed=not wrong,
        scope=f"{len(compared)} settings on {live.gang.world} ranks",
        found=some_of(wrong, MAX_TOLD, between="; ") if wrong else "every setting is as requested",
        took_s=round(time.perf_counter() - start, 3),
    )


# --- what is compared ---------------------------------------------------------------------------------------


_OPTIONAL = ("clip", "stop", "evaluating")
"""What shapes the weights and has no place in a lock where a plan does not set it."""


def _as_read(live: Live) -> Iterator[Setting]:
    """The run's table as it was locked, and as this process reads it: no default makes a second setup."""
    locked, read = _requested(live), live.plan.run.plain()
    if live.plan.run.stopping is not None:
        read["stop"]["mode"] = live.plan.run.stopping.mode  # which the lock fills in, too
    for name in sorted({*locked, *_OPTIONAL}):
        yield _setting(f"run.{name}", locked.get(name), read.get(name))


def _requested(live: Live) -> Mapping[str, Any]:
    """The run's table as it was locked, with what a trial has instead of it."""
    locked, setting = live.lock.settings["run"], live.setting
    if setting is None:
        return dict(locked)
    own = {"params": {**locked.get("params", {}), **setting.params}, "seed": setting.seed}
    return {**locked, **own, "stop": locked.get("stop") or "never"}


def _params(live: Live) -> Iterator[Setting]:
    """The plan's params, and what the recipe's own class has made of them."""
    effective = _param_values(live.params)
    for name, requested in sorted(live.plan.run.params.items()):
        found = effective.get(name)
        yield _setting(f"run.params.{name} in the recipe", _like(requested, found), found)


def _like(requested: Any, found: Any) -> Any:
    """What was requested, with whole numbers as floats where the recipe declares floats."""
    if type(requested) is int and isinstance(found, float):
        return float(requested)
    if (
        isinstance(requested, list | tuple)
        and isinstance(found, list | tuple)
        and len(requested) == len(found)
    ):
        return [_like(*pair) for pair in zip(requested, found, strict=True)]
    return requested


def _param_values(params: Any) -> Mapping[str, Any]:
    if dataclasses.is_dataclass(params) and not isinstance(params, type):
        return {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    return params if isinstance(params, Mapping) else {}


def _arithmetic(live: Live) -> Iterator[Setting]:
    run, built, device = live.plan.run, live.built, live.gang.device.type
    parameters = _dtypes(run.dtype.params, _parameters(built.live.model))
    yield _setting("the dtype of the parameters", run.dtype.params, parameters)
    moments = _dtypes(run.dtype.optimizer, _moments(built.live.optimizer))
    if moments:  # there are none before the first update, unless they are a base's
        yield _setting("the dtype of the optimizer's state", run.dtype.optimizer, moments)
    yield _setting("autocast", run.dtype.autocast, _autocast(built, device))
    scaled = built.live.scaler is not None and built.live.scaler.is_enabled()
    yield _setting("a loss scaler", run.dtype.autocast == "float16", scaled)
    where = sorted({tensor.device.type for tensor in _tensors(built.live.model)} | {device})
    yield _setting("the device", device if run.device == "auto" else run.device, ", ".join(where))


def _process(live: Live) -> Iterator[Setting]:
    run = live.plan.run
    yield _setting("threads", run.threads, torch.get_num_threads())
    yield _setting("deterministic kernels", run.deterministic, torch.are_deterministic_algorithms_enabled())
    yield _setting("ranks", run.workers, _ranks(live.gang))


def _batches(live: Live) -> Iterator[Setting]:
    """The loader that this rank is about to train from."""
    run, sampler = live.plan.run, live.loader.batch_sampler
    assert sampler is not None
    micro_batches = len(sampler)  # type: ignore[arg-type]
    micro_batch = len(next(iter(sampler), []))
    yield _setting("updates in the loader", live.updates * run.accumulate, micro_batches)
    if live.updates:
        yield _setting("examples of a micro-batch", run.micro_batch, micro_batch)
        examples = micro_batch * (micro_batches // live.updates) * _ranks(live.gang)
        yield _setting("examples of an update", live.lock.effective_batch, examples)
    yield _setting("loader workers", run.loader_workers, live.loader.num_workers)


# --- read from live objects ---------------------------------------------------------------------------------

_NAMES = {dtype: name for name, dtype in DTYPE.items()}


def _parameters(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, tensor) for name, tensor in model.named_parameters() if tensor.is_floating_point())


def _tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _moments(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 0:
                yield name, value


def _dtypes(requested: str, tensors: Iterator[tuple[str, torch.Tensor]]) -> str:
    """The dtypes of tensors as a plan calls them; one that was not requested with the first tensor that has it."""
    first: dict[str, str] = {}
    for name, tensor in tensors:
        first.setdefault(_NAMES.get(tensor.dtype, str(tensor.dtype)), name)
    odd = [f"{dtype} ({name})" for dtype, name in sorted(first.items()) if dtype != requested]
    return ", ".join(odd or first)


def _autocast(built: Built, device: str) -> str:
    with built.autocast():
        if not torch.is_autocast_enabled(device):
            return "none"
        dtype = torch.get_autocast_dtype(device)
    return _NAMES.get(dtype, str(dtype))


def _ranks(gang: Gang) -> int:
    """How many ranks there are, as the process group has it where there is one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return gang.world


def _setting(name: str, requested: Any, effective: Any) -> Setting:
    return Setting(name=name, requested=_told(requested), effective=_told(effective))


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    try:
        return canonical(value).decode()
    except (TypeError, ValueError):  # what a recipe makes of a param can be anything
        return repr(value)
