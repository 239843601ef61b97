"""Looking changes nothing: what stands around every method of a recipe that scores, shows or draws.

    with looking(recipe, model) as asked:
        terms = asked.losses(model, batch)

After each call the model, what this process computes with, and the recipe's own generators have to be as they were
before it; at the end of the pass every byte of the parameters and persistent buffers is compared as well, so that
what was written past the version counters is found. What can be put back is put back, and the answer is void: a
`VoidError` names the method and what it changed. What a recipe may do: draw from the global generators, which are
keyed and put back elsewhere, and keep caches, also in buffers that are not persistent.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import numpy as np
import torch
from torch import nn

from raykit.data.content import content_digest
from raykit.errors import GateError, some_of
from raykit.train.build import evaluating
from raykit.train.hanging import hanging, of_model

METHODS = frozenset(
    {
        "losses",
        "losses_given",
        "fields",
        "evaluate",
        "classify",
        "text",
        "embed",
        "panels",
        "generate",
        "keep",
        "quality",
        "picture",
    }
)
"""The methods that look, draw, or judge what was drawn."""

MOST_NAMED = 4
"""So many changes are named."""

FEW_BYTES = 2**16

CHUNK = 2**18
"""Numbers of eight bytes that are summed at a time: what fits a processor's cache."""

RULE = "modes, gradients, parameters, persistent buffers and generators of the recipe's own are as before"
REMEDY = (
    "work on a copy (copy.deepcopy(model)), or put back in a `finally` what is changed; what depends on the data alone "
    "belongs in a buffer with persistent=False, and random numbers come from torch, numpy or random"
)


class VoidError(GateError):
    """What a recipe gave is void: asked, it has changed what it was asked about."""


class Asked:
    """A recipe, each of whose methods is guarded as it is called. Everything else of it is its own."""

    def __init__(self, recipe: Any, watch: Watch) -> None:
        self._recipe = recipe
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._recipe, name)
        if name not in METHODS or not callable(found):
            return found

        @wraps(found)
        def guarded(*arguments: Any, **named: Any) -> Any:
            with self._watch.during(name):
                return found(*arguments, **named)

        return guarded


@contextmanager
def looking(recipe: Any, model: nn.Module) -> Iterator[Any]:
    """One pass: `model` in evaluation mode without gradients, and the recipe to be asked about it.

    Raises:
        VoidError: a method changed something; the field names it.
    """
    with evaluating(model):
        watch = Watch(recipe, model)
        yield Asked(recipe, watch)
        watch.close()


# --- what is watched ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Held:
    """A parameter or persistent buffer, where it hangs, and how it was."""

    name: str
    owner: dict[str, Any]
    key: str
    tensor: torch.Tensor
    version: int
    place: int
    trains: bool
    grad: torch.Tensor | None
    grad_version: int


class Watch:
    """What a recipe has to leave as it is, as it stood when the watch began."""

    def __init__(self, recipe: Any, model: nn.Module) -> None:
        self._model = model
        self._modes = [(name, module, module.training) for name, module in model.named_modules()]
        self._held = _held(model)
        self._generators = [
            (name, each, _state(each)) for name, each in _own_generators(recipe, model).items()
        ]
        self._bits = self._digests()
        self._asked: dict[str, None] = {}

    @contextmanager
    def during(self, method: str) -> Iterator[None]:
        """Around one call of a method of the recipe.

        Raises:
            VoidError: it changed something. Where the method itself raises, what it says goes first, unless something
                is changed that cannot be put back.
        """
        self._asked[method] = None
        process = _process()
        try:
            yield
        except Exception as error:
            found, lost = self._changes(process)
            if lost:
                raise _void(method, found) from error
            raise
        found, _ = self._changes(process)
        if found:
            raise _void(method, found)

    def close(self) -> None:
        """Compare every byte of what checkpoints hold.

        Raises:
            VoidError: some are others than when the watch began.
        """
        now = {held.name for held in _held(self._model)}
        was = {held.name for held in self._held}
        found = [f"adds {name}" for name in sorted(now - was)]
        found += [
            f"writes to {held.name} past its version counter"
            for held, bits, before in zip(self._held, self._digests(), self._bits, strict=True)
            if bits != before
        ]
        if found:
            raise _void("(), ".join(self._asked), found)

    def _digests(self) -> list[tuple[int, ...]]:
        return fingerprints([held.tensor for held in self._held])

    def _changes(self, process: tuple[Any, ...]) -> tuple[list[str], bool]:
        """What is not as it was, and whether some of it could not be put back."""
        found = [*_process_changes(process), *self._mode_changes(), *self._generator_changes()]
        lost = False
        for held in self._held:
            for what, back in _tensor_changes(held):
                found.append(what)
                lost |= not back
        return found, lost

    def _mode_changes(self) -> Iterator[str]:
        changed = [name for name, module, mode in self._modes if module.training != mode]
        if not changed:
            return
        for _, module, mode in self._modes:
            module.training = mode
        yield f"sets the mode of {some_of((name or 'the model' for name in changed), MOST_NAMED)}"

    def _generator_changes(self) -> Iterator[str]:
        for name, generator, state in self._generators:
            if content_digest(_state(generator)) != content_digest(state):
                _set_state(generator, state)
                yield f"draws from {name}"


def _held(model: nn.Module) -> list[_Held]:
    found = []
    for path, module in model.named_modules():
        unsaved = module._non_persistent_buffers_set
        buffers = {key: value for key, value in module._buffers.items() if key not in unsaved}
        for owner, tensors in ((module._parameters, module._parameters), (module._buffers, buffers)):
            for key, tensor in tensors.items():
                if tensor is not None:
                    found.append(_hold(f"{path}.{key}" if path else key, owner, key, tensor))
    return found


def _hold(name: str, owner: dict[str, Any], key: str, tensor: torch.Tensor) -> _Held:
    grad = tensor.grad if tensor.is_leaf else None
    return _Held(
        name=name,
        owner=owner,
        key=key,
        tensor=tensor,
        version=_version(tensor),
        place=_place(tensor),
        trains=tensor.requires_grad,
        grad=grad,
        grad_version=-1 if grad is None else _version(grad),
    )


def _tensor_changes(held: _Held) -> Iterator[tuple[str, bool]]:
    """What is not as it was of one tensor, and whether that is put back."""
    tensor, name = held.tensor, held.name
    if held.owner.get(held.key) is not tensor:
        held.owner[held.key] = tensor
        yield f"replaces {name}", True
    if _version(tensor) != held.version or _place(tensor) != held.place:
        yield f"writes to {name}", False
    if tensor.requires_grad != held.trains:
        tensor.requires_grad_(held.trains)
        yield f"{'freezes' if held.trains else 'unfreezes'} {name}", True
    grad = tensor.grad if tensor.is_leaf else None
    if grad is not None and (grad is not held.grad or _version(grad) != held.grad_version):
        if grad is not held.grad:
            tensor.grad = held.grad
        yield f"leaves a gradient at {name}", grad is not held.grad


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _place(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # a tensor without one storage
        return 0


# --- the process --------------------------------------------------------------------------------------------


def _autocast(device: str) -> tuple[str, Callable[[], Any], Callable[[Any], None]]:
    return (
        f"autocast on {device}",
        lambda: torch.is_autocast_enabled(device),
        lambda on: torch.set_autocast_enabled(device, on),
    )


_PROCESS: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("whether gradients are recorded", torch.is_grad_enabled, torch.set_grad_enabled),
    ("inference mode", torch.is_inference_mode_enabled, lambda on: None),
    ("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("the default device", torch.get_default_device, torch.set_default_device),
    _autocast("cpu"),
    _autocast("cuda"),
    (
        "deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    ("the number of threads", torch.get_num_threads, torch.set_num_threads),
)
"""What a process computes with: in words, how it is read, and how it is put back."""


def _process() -> tuple[Any, ...]:
    return tuple(read() for _, read, _ in _PROCESS)


def _process_changes(before: tuple[Any, ...]) -> list[str]:
    now, found = _process(), []
    for (what, _, put_back), was, is_ in zip(_PROCESS, before, now, strict=True):
        if is_ != was:
            put_back(was)
            found.append(f"sets {what}")
    return found


# --- generators ---------------------------------------------------------------------------------------------

_Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random


def _own_generators(recipe: Any, model: nn.Module) -> dict[str, _Generator]:
    """Generators that hang on a recipe or on modules of its model; the global ones are keyed elsewhere."""
    everyones = {
        id(each) for each in (torch.default_generator, np.random.mtrand._rand, getattr(random, "_inst", None))
    }
    found: dict[int, tuple[str, _Generator]] = {}
    for name, value in (*hanging(recipe, "recipe"), *of_model(model)):
        if isinstance(value, _Generator) and id(value) not in everyones:
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _state(generator: Any) -> Any:
    match generator:
        case torch.Generator():
            return generator.get_state().numpy().tobytes()
        case np.random.Generator():
            return copy.deepcopy(generator.bit_generator.state)
        case np.random.RandomState():
            return copy.deepcopy(generator.get_state(legacy=False))
    return generator.getstate()


def _set_state(generator: Any, state: Any) -> None:
    match generator:
        case torch.Generator():
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        case np.random.Generator():
            generator.bit_generator.state = state
        case np.random.RandomState():
            generator.set_state(state)
        case _:
            generator.setstate(state)


# --- every byte ---------------------------------------------------------------------------------------------


@torch.no_grad()
def fingerprints(tensors: list[torch.Tensor]) -> list[tuple[int, ...]]:
    """A fingerprint of the bytes of each tensor, made where it lies. It is for telling whether something has changed in
    one process, and for nothing that is kept."""
    found = [_sums_or_none(tensor) for tensor in tensors]
    sums = [each for parts in found for each in parts if isinstance(each, torch.Tensor)]
    told = iter(torch.stack([each.to(sums[0].device) for each in sums]).tolist() if sums else ())
    return [
        tuple(next(told) if isinstance(each, torch.Tensor) else each for each in parts) for parts in found
    ]


def _sums_or_none(tensor: torch.Tensor) -> list[torch.Tensor | int]:
    """Of a tensor of somebody else's kind, which does not give its bytes, nothing is known."""
    try:
        return _sums(tensor)
    except (RuntimeError, TypeError):
        return []


def _sums(tensor: torch.Tensor) -> list[torch.Tensor | int]:
    """Of few bytes their hash; else sums of the bytes, eight at a time, each times an odd number of its place. They
    wrap around, and any one number that differs shows for certain."""
    if tensor.is_meta or tensor.layout != torch.strided or not tensor.numel():
        return []
    flat = (tensor.int_repr() if tensor.is_quantized else tensor.detach()).resolve_conj().reshape(-1)
    data = flat.contiguous().view(torch.uint8)
    if data.is_cpu and data.numel() <= FEW_BYTES:
        return [hash(data.numpy().tobytes())]
    if data.storage_offset() % 8:
        data = data.clone()
    whole = data.numel() // 8 * 8
    words, keys = data[:whole].view(torch.int64), _keys(str(data.device))
    chunks = [words[at : at + CHUNK] for at in range(0, words.numel(), CHUNK)]
    found: list[torch.Tensor | int] = [_dot(chunk, keys[: chunk.numel()]) for chunk in chunks]
    if whole < data.numel():
        rest = data[whole:].to(torch.int64)
        found.append((rest * keys[: rest.numel()]).sum())
    return found


def _dot(words: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.dot(words, keys) if words.is_cpu else (words * keys).sum()


@cache
def _keys(device: str) -> torch.Tensor:
    """Odd numbers: times one of them, no difference vanishes."""
    generator = torch.Generator().manual_seed(16)
    keys = torch.randint(-(2**62), 2**62, (CHUNK,), dtype=torch.int64, generator=generator, device="cpu")
    return (keys | 1).to(device)


# --- what is said -------------------------------------------------------------------------------------------


def _void(method: str, found: list[str]) -> VoidError:
    return VoidError(
        f"asked, the recipe's {method}() {some_of(found, MOST_NAMED)}: what it gave is void",
        field=f"recipe.{method.partition('(')[0]}",
        rule=RULE,
        remedy=REMEDY,
    )
