"""From recipe and plan to live objects: model, optimizer, scheduler, scaler, and the wrapper that syncs gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from raykit.data import randomness
from raykit.errors import GateError
from raykit.plan import Plan
from raykit.train import rng
from raykit.train.gang import Gang
from raykit.train.recipe import Recipe
from raykit.train.state import Live

DTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(slots=True, kw_only=True)
class Built:
    """Live objects and how to run them. `wrapped` is what recipes are given: the model, or DDP around it."""

    live: Live
    wrapped: nn.Module
    autocast: Callable[[], AbstractContextManager[Any]]


def set_up_process(plan: Plan, device: torch.device) -> None:
    """Threads and determinism of this process: both change bits, so the plan fixes them."""
    fix_bits(device, threads=plan.run.threads, deterministic=plan.run.deterministic)


def fix_bits(device: torch.device, *, threads: int, deterministic: bool) -> None:
    """Threads, determinism and device of this process."""
    torch.set_num_threads(threads)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.init()  # type: ignore[no-untyped-call]


def build(plan: Plan, recipe: Recipe, params: Any, gang: Gang) -> Built:
    """Make everything anew, from the plan's seed, the same on every rank.

    Raises:
        GateError: the recipe gives something that is not a module or an optimizer.
    """
    run = plan.run
    model = make_model(recipe, params, seed=run.seed, device=gang.device, dtype=run.dtype.params)
    optimizer = recipe.optimizer(model, params)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise GateError("the recipe's optimizer() did not return a torch optimizer", field="recipe")
    make_scheduler = getattr(recipe, "scheduler", None)
    scaler = torch.amp.GradScaler(gang.device.type) if run.dtype.autocast == "float16" else None
    live = Live(
        model=model,
        optimizer=optimizer,
        scheduler=None if make_scheduler is None else make_scheduler(optimizer, params),
        scaler=scaler,
        recipe=recipe,
    )
    wrapped: nn.Module = model
    if gang.world > 1:
        wrapped = DistributedDataParallel(
            model, device_ids=[gang.device] if gang.device.type == "cuda" else None
        )
    return Built(live=live, wrapped=wrapped, autocast=autocast_of(gang.device, run.dtype.autocast))


def make_model(recipe: Recipe, params: Any, *, seed: int, device: torch.device, dtype: str) -> nn.Module:
    """The recipe's model, made from the plan's seed.

    Raises:
        GateError: the recipe gives something that is not a module.
    """
    rng.seed(randomness.init(seed))
    model = recipe.model(params)
    if not isinstance(model, nn.Module):
        raise GateError("the recipe's model() did not return a torch module", field="recipe")
    return model.to(device=device, dtype=DTYPE[dtype])


def autocast_of(device: torch.device, dtype: str) -> Callable[[], AbstractContextManager[Any]]:
    """What runs arithmetic in `dtype`; with `none`, in that of the parameters."""
    if dtype == "none":
        return nullcontext
    return lambda: torch.autocast(device.type, dtype=DTYPE[dtype])


def check_dtypes(plan: Plan, live: Live) -> None:
    """Compare the dtypes that parameters and moments really have with those that the plan declares.

    Raises:
        GateError: they differ; mixed precision must not change what is stored.
    """
    declared = plan.run.dtype
    for name, parameter in live.model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != DTYPE[declared.params]:
            raise GateError(
                f"parameter {name} is {parameter.dtype}", field="run.dtype.params", value=declared.params
            )
    for state in live.optimizer.state.values():
        for name, value in state.items():
            moment = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 0
            if moment and value.dtype != DTYPE[declared.optimizer]:
                raise GateError(
                    f"the optimizer's {name} is {value.dtype}",
                    field="run.dtype.optimizer",
                    value=declared.optimizer,
                )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is put back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def left_alone(model: nn.Module) -> Iterator[None]:
    """After the block, the attributes and non-persistent buffers of every module are those of before."""
    kept = [(module, dict(vars(module)), _unsaved_buffers(module)) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes, buffers in kept:
            for name in vars(module).keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)
            module._buffers.update(buffers)


def _unsaved_buffers(module: nn.Module) -> dict[str, torch.Tensor | None]:
    names = module._non_persistent_buffers_set & module._buffers.keys()
    found = {name: module._buffers[name] for name in names}
    return {name: None if buffer is None else buffer.detach().clone() for name, buffer in found.items()}
