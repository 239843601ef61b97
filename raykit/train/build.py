"""From recipe and plan to live objects: model, optimizer, scheduler, scaler, and the wrapper that syncs gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from raykit.data import randomness
from raykit.errors import GateError, some_of
from raykit.plan import Plan
from raykit.train import rng
from raykit.train.gang import Gang
from raykit.train.optimizer_state import require_in_model, unheld
from raykit.train.recipe import Recipe, asking
from raykit.train.state import Live

DTYPE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NAME = {dtype: name for name, dtype in DTYPE.items()}


@dataclass(slots=True, kw_only=True)
class Built:
    """Live objects and how to run them. `wrapped` is what recipes are given: the model, or DDP around it."""

    live: Live
    wrapped: nn.Module
    autocast: Callable[[], AbstractContextManager[Any]]
    modes: Mapping[str, bool] = field(default_factory=dict)
    """Whether each module trains, by name: what every update has to find and to leave."""
    said: tuple[str, ...] = ()
    """What a person should see of it before anything is trained."""


NAMED = 3
"""How many names a line says."""


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
        GateError: the recipe gives something that is not a module or an optimizer, or that cannot be saved.
        PlanError: the recipe raised something; the message has its file and line.
    """
    run = plan.run
    model, cast = _made(recipe, params, seed=run.seed, device=gang.device, dtype=run.dtype.params)
    flipped = _train_mode(model, run.evaluating or ())
    with asking("recipe.optimizer"):
        optimizer = recipe.optimizer(model, params)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise GateError("the recipe's optimizer() did not return a torch optimizer", field="recipe")
    require_in_model(model, optimizer)
    scaler = torch.amp.GradScaler(gang.device.type) if run.dtype.autocast == "float16" else None
    live = Live(
        model=model,
        optimizer=optimizer,
        scheduler=_scheduler(recipe, optimizer, params),
        scaler=scaler,
        recipe=recipe,
    )
    return Built(
        live=live,
        wrapped=wrap(model, gang),
        autocast=autocast_of(gang.device, run.dtype.autocast),
        modes={name: module.training for name, module in model.named_modules()},
        said=(*_said(cast, run.dtype.params), *_said_of_modes(flipped), *_said_of_unheld(live)),
    )


def _scheduler(recipe: Any, optimizer: torch.optim.Optimizer, params: Any) -> Any:
    make = getattr(recipe, "scheduler", None)
    if make is None:
        return None
    with asking("recipe.scheduler"):
        return make(optimizer, params)


def wrap(model: nn.Module, gang: Gang) -> nn.Module:
    """What recipes are given: with several ranks, the model in what sums their gradients."""
    if gang.world == 1:
        return model
    return DistributedDataParallel(model, device_ids=[gang.device] if gang.device.type == "cuda" else None)


def make_model(recipe: Recipe, params: Any, *, seed: int, device: torch.device, dtype: str) -> nn.Module:
    """The recipe's model, made from the plan's seed. Its real parameters take `dtype`, and nothing else does.

    Raises:
        GateError: the recipe gives something that is not a module, or has parameters without a shape.
        PlanError: the recipe raised something; the message has its file and line.
    """
    model, _ = _made(recipe, params, seed=seed, device=device, dtype=dtype)
    return model


def _made(
    recipe: Recipe, params: Any, *, seed: int, device: torch.device, dtype: str
) -> tuple[nn.Module, Mapping[str, torch.dtype]]:
    """The model, and what of its parameters was cast."""
    rng.seed(randomness.init(seed))
    with asking("recipe.model"):
        model = recipe.model(params)
    if not isinstance(model, nn.Module):
        raise GateError("the recipe's model() did not return a torch module", field="recipe")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise GateError(
                f"{name} has no shape until the model has seen a batch",
                field="recipe.model",
                rule="a model whose parameters are all there: an optimizer and a checkpoint need them",
                remedy="run one batch first, in model(): model(torch.zeros(...)), or give the sizes",
            )
    cast = _cast(model, DTYPE[dtype])
    return model.to(device=device), cast


def _cast(model: nn.Module, dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Give the parameters of a real floating type that a plan can ask for the one that it asks for.

    Buffers, complex, float64, whole and quantised tensors stay what the recipe made of them. Returns what the
    parameters were that are now another type, by name.
    """
    cast: dict[str, torch.dtype] = {}
    for name, parameter in model.named_parameters():
        if parameter.dtype in DTYPE.values() and parameter.dtype != dtype:
            cast[name] = parameter.dtype
            parameter.data = parameter.data.to(dtype)
    return cast


def _train_mode(model: nn.Module, evaluating: Sequence[str]) -> list[str]:
    """Set training mode, and evaluation mode where the plan says so; returns what the recipe had set otherwise.

    Raises:
        GateError: the plan names a module that the model has not.
    """
    before = {name: module.training for name, module in model.named_modules()}
    model.train()
    for name in evaluating:
        if name not in before:
            raise GateError(
                f"the model has no module {name}",
                field="run.evaluating",
                value=name,
                rule="names of modules: "
                + some_of((each for each in before if each and "." not in each), NAMED),
            )
        model.get_submodule(name).eval()
    return [name for name, module in model.named_modules() if module.training and not before[name]]


def _said(cast: Mapping[str, torch.dtype], dtype: str) -> Iterator[str]:
    if cast:
        types = ", ".join(sorted({str(each).removeprefix("torch.") for each in cast.values()}))
        yield f"cast from {types} to {dtype}, as run.dtype.params says: {some_of(cast, NAMED)}"


def _said_of_modes(flipped: Sequence[str]) -> Iterator[str]:
    if flipped:
        outermost = (name for name in flipped if name.rpartition(".")[0] not in flipped or not name)
        names = some_of((name or "the model" for name in outermost), NAMED)
        yield (
            f"model() left {names} in evaluation mode, and training mode is set; run.evaluating names what is to stay"
        )


def _said_of_unheld(live: Live) -> Iterator[str]:
    if names := unheld(live.model, live.optimizer):
        yield (
            f"no optimizer holds {some_of(names, NAMED)}: trained by nothing, though its gradient counts in the norm "
            "and the clip"
        )


def require_norms(model: nn.Module) -> None:
    """Let only batch norms pass whose statistics are of the type of their parameters: no CPU computes with others.

    Raises:
        GateError: one has other statistics; they stay as the recipe made them.
    """
    for name, module in model.named_modules():
        if not isinstance(module, _NormBase) or module.running_mean is None or module.weight is None:
            continue
        parameters, statistics = module.weight.dtype, module.running_mean.dtype
        if parameters != statistics and parameters in (torch.bfloat16, torch.float16):
            raise GateError(
                f"{name} has statistics of {statistics} and parameters of {parameters}",
                field="run.dtype.params",
                value=_NAME[parameters],
                rule="one type for both, on a CPU; buffers stay as the recipe makes them",
                remedy=f"model.to({parameters}) at the end of model(), or run.dtype.autocast in place of it",
            )


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
