"""What hangs on a recipe beside its model, and what of that no checkpoint holds.

A network or a tensor that a recipe keeps for itself is in no checkpoint, unless its `state_dict` gives it. Where such
a thing is another one in each model that is built, or a copy of the model as it was built, whoever scores or draws
with it scores or draws with something else than the checkpoint: it is refused by name. What is the same in each
process stays where it is: class weights, caches of positions, a pretrained network of fixed bytes.
"""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn

from raykit.errors import GateError

MOST_OBJECTS = 20_000
"""So many objects are looked at: a recipe may hold a whole dataset."""

MOST_ITEMS = 1_000
"""And so many of one container."""

MOST_DEEP = 8

OF_A_MODULE = frozenset(vars(nn.Module()))
"""What every module has: parameters, buffers and children, which are looked at by themselves, and hooks."""

IN = "\0"
"""Between the path of a network and the name that a tensor has in it."""

Found = dict[str, torch.Tensor]


def hanging(thing: Any, name: str, *, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Whatever is reachable from `thing` by attributes, containers, closures and bound arguments, by its path.

    Networks are given as one thing: what is in them is theirs.
    """
    seen = set() if seen is None else seen
    waiting: deque[tuple[str, Any, int]] = deque([(name, thing, 0)])
    while waiting and len(seen) < MOST_OBJECTS:
        path, value, deep = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if deep:
            yield path, value
        if deep < MOST_DEEP and not (deep and isinstance(value, nn.Module)):
            parts = ((step, each) for step, each in _parts(value) if not _is_plain(each))
            waiting += [(f"{path}{step}", each, deep + 1) for step, each in islice(parts, MOST_ITEMS)]


def of_model(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """What hangs on the modules of a model beside parameters, buffers and children."""
    seen = {id(module) for module in model.modules()}
    for path, module in model.named_modules():
        for key, value in list(vars(module).items()):
            if key not in OF_A_MODULE and not isinstance(value, nn.Module) and not _is_plain(value):
                where = f"model.{path}.{key}" if path else f"model.{key}"
                yield where, value
                yield from hanging(value, where, seen=seen)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(
        value, bool | int | float | complex | str | bytes | bytearray | type | types.ModuleType | torch.dtype
    )


def _parts(value: Any) -> Iterable[tuple[str, Any]]:
    match value:
        case torch.Tensor() | torch.Generator():
            return ()
        case dict():
            return ((f"[{key!r}]", each) for key, each in list(value.items()))
        case list() | tuple() | set() | frozenset() | deque():
            return ((f"[{place}]", each) for place, each in enumerate(list(value)))
        case partial():
            return [("()", each) for each in (value.func, *value.args, *value.keywords.values())]
        case types.FunctionType():
            return [("()", each) for each in _cells(value)]
        case types.MethodType():
            return [("()", value.__self__), ("()", value.__func__)]
    return [(f".{key}", each) for key, each in _attributes(value)]


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        yield from list(own.items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            if isinstance(kind.__dict__.get(key), types.MemberDescriptorType):
                try:
                    yield key, kind.__dict__[key].__get__(value, type(value))
                except AttributeError:
                    continue


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue


def apart(recipe: Any) -> Any:
    """Another recipe like this one: what either keeps in its attributes, dicts and lists is nothing to the other."""
    other = copy.copy(recipe)
    for name, value in list(getattr(other, "__dict__", {}).items()):
        if isinstance(value, dict | list | set | deque):
            setattr(other, name, copy.copy(value))
    return other


# --- what no checkpoint holds -------------------------------------------------------------------------------


def tensors_beside(recipe: Any, model: nn.Module, named: Collection[str] = ()) -> Found:
    """Tensors that hang on a recipe or on modules of its model, and that neither its checkpoint nor its recipe's
    `state_dict` holds, by their path. `named` are names that a saved state has."""
    saved = _Saved(recipe, model, named)
    found: Found = {}
    for path, value in (*hanging(recipe, "recipe"), *of_model(model)):
        if _holder(path) in saved.names:
            continue
        tensors = _tensors(path, value, model)
        found |= {name: tensor for name, tensor in tensors if not saved.has(tensor)}
    unsaved = {name: buffer for name, buffer in model.named_buffers() if name not in saved.of_model}
    return found | {f"model.{name}": buffer for name, buffer in unsaved.items()}


def require_all_saved(
    recipe: Any,
    model: nn.Module,
    before: set[int],
    remake: Callable[[], tuple[Any, nn.Module]],
    *,
    trained: Iterable[torch.Tensor] = (),
    named: Collection[str] = (),
) -> None:
    """Refuse what was made with the model and could score or draw in the place of a checkpoint.

    `model` is as it was built, without the weights of a checkpoint; `before` are the tensors that hung on the recipe
    before, by `ids_on`; `remake` makes another recipe and its model, from another seed. `trained` are the tensors that
    an optimizer holds, `named` names that the recipe's saved state has.

    Raises:
        GateError: a network or tensor is in no checkpoint, and is not the same in each process; the field names it.
    """
    beside = {
        name: each for name, each in tensors_beside(recipe, model, named).items() if id(each) not in before
    }
    stepped = {id(tensor) for tensor in trained}
    for name, tensor in beside.items():
        if id(tensor) in stepped:
            raise _refused(name, "an optimizer trains it")
    wanted = {name: each for name, each in beside.items() if not _is_copy_of(name, each, beside, model)}
    for name in beside.keys() - wanted.keys():
        raise _refused(
            name, "it is a copy of the model, and whoever resumes or examines begins with a new one"
        )
    if not wanted:
        return
    other = tensors_beside(*remake(), named)
    for name, tensor in wanted.items():
        if name not in other or not _equal(tensor, other[name]):
            raise _refused(name, "it is another one in each model that is built")


def ids_on(recipe: Any) -> set[int]:
    """The tensors that hang on a recipe, by identity; of its networks, all of theirs."""
    found: set[int] = set()
    for path, value in hanging(recipe, "recipe"):
        found |= {id(tensor) for _, tensor in _tensors(path, value, None)}
    return found


class _Saved:
    """What checkpoints hold: of the model, and of the recipe by name, by storage and by value."""

    def __init__(self, recipe: Any, model: nn.Module, named: Collection[str]) -> None:
        state = _state_of(recipe)
        self.names = frozenset([*named, *(map(str, state) if isinstance(state, Mapping) else ())])
        self.of_model = frozenset(model.state_dict())
        own = [*model.parameters(), *model.buffers()]
        kept = [each for _, each in hanging(state, "state") if isinstance(each, torch.Tensor)]
        self._ids = {id(tensor) for tensor in own}
        self._places = {_storage(tensor) for tensor in (*own, *kept)} - {0}
        self._kept = kept

    def has(self, tensor: torch.Tensor) -> bool:
        return (
            id(tensor) in self._ids
            or _storage(tensor) in self._places
            or any(_equal(tensor, each) for each in self._kept)
        )


def _state_of(recipe: Any) -> Any:
    """What a recipe would save now; nothing where it has not come so far that it could."""
    try:
        return recipe.state_dict()
    except Exception:  # noqa: BLE001  it may have no such method, or need its optimizer
        return {}


def _holder(path: str) -> str:
    """`ema` of `recipe.ema['body.0.weight']`."""
    if not path.startswith("recipe."):
        return ""
    name = path.removeprefix("recipe.")
    return name.partition(".")[0].partition("[")[0].partition("(")[0]


def _tensors(path: str, value: Any, model: nn.Module | None) -> list[tuple[str, torch.Tensor]]:
    """The tensors of one thing that hangs somewhere: itself, or those of a network. What is worked out of parameters
    at each call, as the weight of a weight norm is, is nobody's state."""
    if isinstance(value, nn.Module):
        if value is model:
            return []
        named = (*value.named_parameters(), *value.named_buffers())
        return [(f"{path}{IN}{name}", tensor) for name, tensor in named]
    if not isinstance(value, torch.Tensor) or value.grad_fn is not None or _is_derived(path, model):
        return []
    return [(path, value)]


def _is_derived(path: str, model: nn.Module | None) -> bool:
    """Whether it is `weight` beside a parameter `weight_orig` or `weight_v` of the same module."""
    if model is None or not path.startswith("model."):
        return False
    name = path.removeprefix("model.")
    there = dict(model.named_parameters())
    return f"{name}_orig" in there or f"{name}_v" in there


def _is_copy_of(name: str, tensor: torch.Tensor, beside: Found, model: nn.Module) -> bool:
    """Whether a tensor belongs to a network that equals the whole model as it was built."""
    for key in ("{}" + IN + "{}", "{}[{!r}]"):
        for own, _ in model.named_parameters():
            root = name.removesuffix(key.format("", own))
            if root == name:
                continue
            return all(
                (twin := beside.get(key.format(root, each))) is not None and _equal(there, twin)
                for each, there in model.named_parameters()
            )
    return False


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without one storage
        return 0


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.layout != other.layout:
        return False
    left, right = one.detach().cpu(), other.detach().to("cpu", one.dtype)
    if left.is_floating_point():
        left, right = left.nan_to_num(), right.nan_to_num()
    return torch.equal(left, right)


def _refused(name: str, why: str) -> GateError:
    thing, network, _ = name.partition(IN)
    what = thing if network else thing.partition("[")[0]
    held = what.removeprefix("model.")
    if held != what:
        return GateError(
            f"the buffer {held} is another one in each model, and is in no checkpoint",
            field="recipe.model",
            rule="register_buffer(..., persistent=True), or values that do not depend on a seed",
        )
    return GateError(
        f"{what} is a {'network' if network else 'tensor'} that no checkpoint holds: {why}",
        field=what,
        rule="everything that scores or draws comes from the checkpoint",
        remedy="make it a part of the model (a submodule, or a persistent buffer), or give the recipe state_dict() "
        "and load_state_dict() that hold it",
    )
