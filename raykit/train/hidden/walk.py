"""The object graph that hangs on a run, as named leaves: everything that training can change and a resume can lose.

    recipe.calls                      an attribute of the recipe
    recipe.ema.fc.weight              a tensor of a network that hangs on it
    optimizer.slow[3]                 what an optimizer keeps beside its state_dict
    optimizer.hooks[0].slow.(seen)    what a hook's closure holds
    recipe.ema.fc.weight.requires_grad    a flag of a parameter that is not the model's
    dataset.reads, scheduler.calls
    module recipe: STATS['mean']      a global of the recipe's own modules
    module recipe: Tiny.passes        an attribute of a class of theirs

Looked into are containers, functions and classes of the recipe's own code, and what torch and its like give recipes to
build on: modules, optimizers, schedulers, datasets. Of any other library's object only the tensors, arrays and
generators that it holds count: the counters of a progress bar, a lock, an open file are its own.
"""

from __future__ import annotations

import collections
import enum
import itertools
import random
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

MAX_ITEMS = 4096
"""Of a longer container, so many items are looked at: evenly spread, the first and the last among them."""

MAX_DEPTH = 24


@dataclass(frozen=True, slots=True)
class Owner:
    """The innermost thing of the recipe's own code that holds a leaf: an attribute or a global, by which code reads it.

    `name` is None where a library's object holds it, whose code is not the recipe's to read.
    """

    path: str
    name: str | None = None
    classes: tuple[str, ...] = ()
    """The classes of the object that it is an attribute of; none for a global, and for an attribute of a class."""
    key: str | int | None = None
    """The constant key below it, where it is a container of many."""
    called: bool = False
    """Whether what it holds can be called: then a call is a read as well."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value that can be compared."""

    path: str
    owner: Owner
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the graph hangs, and the modules that are the recipe's own code, by name."""

    recipe: Any
    model: Any = None
    optimizer: Any = None
    scheduler: Any = None
    dataset: Any = None
    modules: Mapping[str, types.ModuleType]

    @property
    def saved(self) -> frozenset[int]:
        """The tensors that the checkpoint's own files hold, by identity: nobody has to look for those."""
        found: set[int] = set()
        if isinstance(self.model, nn.Module):
            found.update(id(value) for value in self.model.state_dict(keep_vars=True).values())
        return frozenset(found)


def leaves(roots: Roots) -> Iterator[Leaf]:
    """Every leaf once, under the first name that it is found by."""
    walk = _Walk(roots.modules, roots.saved)
    for name in ("recipe", "model", "optimizer", "scheduler", "dataset"):
        value = getattr(roots, name)
        if value is not None:
            yield from walk.value(value, name, Owner(name), 0)
    for name, module in sorted(roots.modules.items()):
        yield from walk.module(module, name)


def leaves_of(tree: Any, name: str) -> Iterator[Leaf]:
    """The leaves of one tree of containers and tensors."""
    yield from _Walk({}, ()).value(tree, name, Owner(name), 0)


GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, enum.Enum, np.generic, torch.dtype)
_BASES = (nn.Module, torch.optim.Optimizer, LRScheduler, Dataset)
"""What recipes build on: their objects are looked into, whoever wrote the class."""

_HOOKS = frozenset(name for name in vars(nn.Module()) if name.endswith("_hooks"))
_OF_MODULES = frozenset(vars(nn.Module())) | {"_compiled_call_impl", "dynamo_ctx"}
_OF_OPTIMIZERS = frozenset({"state", "param_groups", "defaults", "step", "profile_hook_step"})
"""What an optimizer's state_dict holds, and what torch wraps around its step."""

_ITERATORS: tuple[type, ...] = (
    itertools.count,
    itertools.cycle,
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
)


class _Walk:
    """One pass. Objects are kept until it ends, so that no identity comes twice."""

    def __init__(self, modules: Mapping[str, types.ModuleType], saved: Collection[int]) -> None:
        self._own = frozenset(modules)
        self._saved = saved
        self._seen: dict[int, Any] = {id(module): module for module in modules.values()}

    def value(self, value: Any, path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        """The leaves of one value."""
        if isinstance(value, _PLAIN):
            yield Leaf(path, owner, value)
            return
        if id(value) in self._seen or depth > MAX_DEPTH:
            return
        self._seen[id(value)] = value
        inside = self._inside(value, path, owner, depth + 1)
        if inside is not None:
            yield from inside

    def _inside(self, value: Any, path: str, owner: Owner, depth: int) -> Iterator[Leaf] | None:
        match value:
            case torch.Tensor():
                return self._tensor(value, path, owner, depth)
            case np.ndarray():
                return iter(()) if value.dtype.hasobject else iter((Leaf(path, owner, value),))
            case _ if isinstance(value, GENERATORS + _ITERATORS):
                return iter((Leaf(path, owner, value),))
            case nn.Module():
                return self._network(value, path, owner, depth)
            case torch.optim.Optimizer():
                return self._optimizer(value, path, depth)
            case Mapping():
                return self._mapping(value, path, owner, depth)
            case set() | frozenset():
                return iter((Leaf(path, owner, frozenset(e for e in value if isinstance(e, _PLAIN))),))
            case list() | tuple() | collections.deque():
                return self._sequence(value, path, owner, depth)
            case types.FunctionType() | types.MethodType() | partial():
                return self._function(value, path, depth)
            case types.GeneratorType() if self._is_own(value.gi_frame):
                return self._paused(value, path, depth)
            case type():
                return self._class(value, path, depth) if value.__module__ in self._own else None
            case types.ModuleType():
                return None
        if type(value).__module__ in self._own or isinstance(value, _BASES):
            return self._attributes(value, path, depth)
        return self._library(value, path, depth)

    # --- kinds ----------------------------------------------------------------------------------------------

    def _tensor(self, tensor: torch.Tensor, path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        if id(tensor) not in self._saved:
            yield Leaf(path, owner, tensor)
            if isinstance(tensor, nn.Parameter):
                flag = f"{path}.requires_grad"
                yield Leaf(flag, Owner(flag), tensor.requires_grad)
        for name, value in vars(tensor).items():
            at = f"{path}.{name}"
            yield from self.value(value, at, Owner(at, name), depth)
        hooks = tensor._backward_hooks
        yield from self._hooks(() if hooks is None else hooks.values(), path, depth)

    def _network(self, module: nn.Module, path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        inner = module.__dict__
        for held in ("_parameters", "_buffers", "_modules"):
            for name, value in inner.get(held, {}).items():
                # of a library's layer, the recipe's code reads what holds the layer
                own = type(module).__module__ in self._own
                mine = self._owner(module, path, name, value) if own else owner
                yield from self.value(value, f"{path}.{name}", mine, depth)
        yield Leaf(f"{path}.training", Owner(f"{path}.training"), inner.get("training"))
        hooks = [hook for name in sorted(_HOOKS) for hook in (inner.get(name) or {}).values()]
        yield from self._hooks(hooks, path, depth)
        yield from self._attributes(module, path, depth, but=_OF_MODULES)

    def _optimizer(self, optimizer: torch.optim.Optimizer, path: str, depth: int) -> Iterator[Leaf]:
        for i, group in enumerate(optimizer.param_groups):
            for name, value in group.items():
                if name != "params":
                    at = f"{path}.param_groups[{i}][{name!r}]"
                    yield from self.value(value, at, Owner(at), depth)
        inner = vars(optimizer)
        hooks = [hook for name in sorted(inner) if name.endswith("_hooks") for hook in inner[name].values()]
        yield from self._hooks(hooks, path, depth)
        but = _OF_OPTIMIZERS | {name for name in inner if name.endswith("_hooks")}
        yield from self._attributes(optimizer, path, depth, but=but)

    def _hooks(self, hooks: Iterable[Any], path: str, depth: int) -> Iterator[Leaf]:
        """By position: the numbers that torch gives them are those of this process."""
        for i, hook in enumerate(hooks):
            name = f".{hook.__name__}" if isinstance(hook, types.FunctionType) else ""
            at = f"{path}.hooks[{i}]{name}"
            yield from self.value(hook, at, Owner(at), depth)

    def _mapping(self, mapping: Mapping[Any, Any], path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        for key, value in _some(list(mapping.items())):
            if isinstance(key, _PLAIN):
                shown = key if isinstance(key, str | int) else None
                inner = owner if owner.key is not None else _with_key(owner, shown)
                yield from self.value(value, f"{path}[{key!r}]", inner, depth)

    def _sequence(self, sequence: Any, path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        for i, value in _some(list(enumerate(sequence))):
            yield from self.value(value, f"{path}[{i}]", owner, depth)

    def _function(self, function: Any, path: str, depth: int) -> Iterator[Leaf]:
        if isinstance(function, partial):
            for i, value in enumerate((*function.args, *function.keywords.values())):
                yield from self.value(value, f"{path}.bound[{i}]", Owner(f"{path}.bound[{i}]"), depth)
            yield from self.value(function.func, path, Owner(path), depth)
            return
        if isinstance(function, types.MethodType):
            yield from self.value(function.__self__, f"{path}.self", Owner(f"{path}.self"), depth)
            function = function.__func__
            if not isinstance(function, types.FunctionType):
                return
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            yield from self.value(wrapped, path, Owner(path), depth)
        if function.__module__ not in self._own and function.__globals__.get("__name__") not in self._own:
            return
        held = [*zip(function.__code__.co_freevars, map(_cell, function.__closure__ or ()), strict=True)]
        for name, value in held:
            at = f"{path}.({name})"
            yield from self.value(value, at, Owner(at, name, called=callable(value)), depth)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        for i, value in enumerate(defaults):
            at = f"{path}.defaults[{i}]"
            yield from self.value(value, at, Owner(at), depth)
        for name, value in vars(function).items():
            at = f"{path}.{name}"
            yield from self.value(value, at, Owner(at, name, called=callable(value)), depth)

    def _paused(self, generator: Any, path: str, depth: int) -> Iterator[Leaf]:
        """A generator of the recipe's own code, where it stands."""
        frame = generator.gi_frame
        yield Leaf(f"{path}.at", Owner(path), frame.f_lasti)
        for name, value in list(frame.f_locals.items()):
            yield from self.value(value, f"{path}.({name})", Owner(path), depth)

    def _class(self, owner: type, path: str, depth: int) -> Iterator[Leaf]:
        for name, value in list(vars(owner).items()):
            if not name.startswith("__"):
                value = getattr(value, "__func__", value)  # of a static or class method
                value = value.fget if isinstance(value, property) else value
                at = f"{path}.{name}"
                yield from self.value(value, at, Owner(at, name, called=callable(value)), depth)

    def _attributes(
        self, value: Any, path: str, depth: int, *, but: Collection[str] = frozenset()
    ) -> Iterator[Leaf]:
        for name, inner in _attributes(value):
            if name not in but:
                at = f"{path}.{name}"
                yield from self.value(inner, at, self._owner(value, path, name, inner), depth)

    def _library(self, value: Any, path: str, depth: int) -> Iterator[Leaf]:
        """The arrays that some library's object holds, in containers too."""
        for name, inner in _attributes(value):
            at = f"{path}.{name}"
            yield from self._arrays(inner, at, Owner(at), depth)

    def _arrays(self, value: Any, path: str, owner: Owner, depth: int) -> Iterator[Leaf]:
        if isinstance(value, (torch.Tensor, np.ndarray, nn.Module, *GENERATORS)):
            yield from self.value(value, path, owner, depth)
        elif isinstance(value, list | tuple) and len(value) <= MAX_ITEMS:
            for i, inner in enumerate(value):
                yield from self._arrays(inner, f"{path}[{i}]", owner, depth)
        elif isinstance(value, dict) and len(value) <= MAX_ITEMS:
            for key, inner in value.items():
                yield from self._arrays(inner, f"{path}[{key!r}]", owner, depth)

    def module(self, module: types.ModuleType, name: str) -> Iterator[Leaf]:
        """What the globals of one of the recipe's own modules hold."""
        for key, value in sorted(vars(module).items()):
            if key.startswith("__"):
                continue
            at = f"module {name}: {key}"
            if isinstance(value, type | types.FunctionType) and value.__module__ != name:
                continue  # imported: it is looked at where it is made, or is not the recipe's own
            yield from self.value(value, at, Owner(at, key, called=callable(value)), 0)

    # --- whose ----------------------------------------------------------------------------------------------

    def _owner(self, holder: Any, path: str, name: str, value: Any) -> Owner:
        kind = type(holder)
        if kind.__module__ not in self._own:
            return Owner(f"{path}.{name}")
        classes = tuple(cls.__name__ for cls in kind.__mro__ if cls.__module__ in self._own)
        return Owner(f"{path}.{name}", name, classes, called=callable(value))

    def _is_own(self, frame: Any) -> bool:
        return frame is not None and frame.f_globals.get("__name__") in self._own


def _with_key(owner: Owner, key: str | int | None) -> Owner:
    return replace(owner, key=key)


def _attributes(value: Any) -> list[tuple[str, Any]]:
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and name not in found:
                try:
                    found[name] = object.__getattribute__(value, name)
                except (
                    AttributeError
                ):  # a slot that nothing was put into, or a name that Python has made longer
                    continue
    return [(name, inner) for name, inner in found.items() if isinstance(name, str)]


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing in it yet
        return None


def _some(items: list[Any]) -> list[Any]:
    """All of a short list; of a long one evenly spread ones, the first and the last among them."""
    if len(items) <= MAX_ITEMS:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, MAX_ITEMS).astype(int).tolist()]


__all__ = ["GENERATORS", "Leaf", "Owner", "Roots", "leaves", "leaves_of"]
