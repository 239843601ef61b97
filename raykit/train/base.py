"""Training that starts from weights that are there, instead of from the recipe's own.

What is carried over is the model and, where the plan keeps it, the optimizer's state: its moments and their step,
never its settings. Counters, sample order, generators, loss scaler and schedule begin at 0, as in any new run. Update
0 of such a run is therefore the base's model under the new contract, and from there on it is a run like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from raykit.errors import CorruptError, GateError, NotFoundError, some_of
from raykit.ids import sha256
from raykit.plan import TRAINS_FROM, Lock, LockedBase, Plan
from raykit.records import Manifest
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_adopted
from raykit.store.commit import MAX_MANIFEST_BYTES, File, read_verified
from raykit.store.plans import read_lock, read_plan
from raykit.train.names import with_tied
from raykit.train.optimizer_state import is_by_name, named_state
from raykit.train.state import Live, hold, restore, restore_optimizer
from raykit.train.tensors import join, read_tensors

NAMED = 4
"""How many of what does not fit a refusal names."""

Expected = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
"""Tensors by name: shape and dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The weights that a run starts from, and how much of their training state it takes."""

    locked: LockedBase
    optimizer: bool

    @property
    def words(self) -> str:
        """As people call it."""
        return f"{self.locked.candidate} ({self.locked.manifest[:12]})"


def base_of(plan: Plan, lock: Lock) -> Base | None:
    """What a run of this lock starts from; None if it starts from the recipe's own weights.

    Raises:
        CorruptError: the plan trains on from a base, and its lock names no weights.
    """
    if plan.base is None or plan.base.start not in TRAINS_FROM:
        return None
    if lock.base is None:
        raise CorruptError(
            f"{plan.name} trains on from {plan.base.candidate}, and its lock does not say which weights those are",
            field="base.candidate",
            value=plan.base.candidate,
            rule="a lock that names its base by digest",
        )
    return Base(locked=lock.base, optimizer="optimizer" in plan.base.keep)


def require_one_start(store: ObjectStore, experiment: str, plan: str, base: Base | None) -> None:
    """A run goes on under another plan than that of its checkpoint only if both start from the same weights.

    Raises:
        GateError: they do not.
        CorruptError: the plan of the checkpoint does not match its digests.
        StoreUnavailableError: the store did not answer.
    """
    was = base_of(read_plan(store, experiment, plan), read_lock(store, experiment, plan))
    if _manifest(was) != _manifest(base):
        raise GateError(
            f"this run started from {_start(was)}, and its plan now starts from {_start(base)}",
            field="base.candidate",
            rule="one run, one start",
            remedy="give the new plan a name of its own",
        )


def _manifest(base: Base | None) -> str | None:
    return None if base is None else base.locked.manifest


def _start(base: Base | None) -> str:
    return "the recipe's own weights" if base is None else base.words


# --- its files ----------------------------------------------------------------------------------------------


def read_base(store: ObjectStore, base: Base) -> dict[str, bytearray]:
    """The bytes of what is taken over, each held against its digest: `model`, and `optimizer` if that is kept.

    Raises:
        CorruptError: the base is gone, or is not the bytes that the lock names.
        GateError: the plan keeps the optimizer's state, and the base has none.
        StoreUnavailableError: the store did not answer.
    """
    files = _files(store, base.locked)
    wanted = ["model", *(["optimizer"] if base.optimizer else [])]
    if base.optimizer and "optimizer" not in files:
        raise GateError(
            f"{base.words} has no optimizer state to keep",
            field="base.keep",
            value=["weights", "optimizer"],
            rule="a checkpoint of a run here has one; what was adopted has weights only",
            remedy='keep = ["weights"]',
        )
    folder = base.locked.key.rpartition("/")[0]
    return {what: read_verified(store, f"{folder}/{files[what].name}", files[what]) for what in wanted}


def model_file(store: ObjectStore, locked: LockedBase) -> str:
    """The key of a base's model.

    Raises:
        CorruptError: the base is gone, or is not the bytes that the lock names.
        StoreUnavailableError: the store did not answer.
    """
    return f"{locked.key.rpartition('/')[0]}/{_files(store, locked)['model'].name}"


def _files(store: ObjectStore, locked: LockedBase) -> Mapping[str, File]:
    """The files of a base by what they hold."""
    if locked.origin == "adopted":
        return {file.holds: file for file in read_adopted(store, locked.manifest).files}
    try:
        data = store.get(locked.key, max_bytes=MAX_MANIFEST_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{locked.key} is missing: the base is gone", rule="I1") from error
    if sha256(data) != locked.manifest:
        raise CorruptError(
            f"{locked.key} is not the base that the plan was locked with",
            rule="I1",
            remedy="restore the store from a copy, then run `raykit check --read-data`",
        )
    files = Manifest.from_bytes(data, locked.key).files
    return {file.holds: file for file in files if file.holds in ("model", "optimizer")}


# --- into live objects --------------------------------------------------------------------------------------


def load_base(live: Live, base: Base, files: Mapping[str, bytearray], *, rank: int) -> None:
    """Put a base's verified files into objects that were just built. Generators stay as they are.

    Raises:
        CorruptError: a file does not parse.
        GateError: its tensors are not the model's, or its optimizer state is not that of the recipe's optimizer.
    """
    structure, tensors = read_tensors(files["model"], f"the model of {base.words}")
    tensors = with_tied(live.model, tensors, base.words)
    model = live.model.state_dict()
    _require_same(
        {name: _kind(value) for name, value in model.items() if isinstance(value, torch.Tensor)},
        {name: _kind(value) for name, value in tensors.items()},
        what=f"the weights of {base.words} do not fit the model",
    )
    kept = None
    if base.optimizer:
        structure, moments = read_tensors(files["optimizer"], f"the optimizer of {base.words}")
        kept = _fitting(live, base, join(structure, moments), rank=rank)
    live.model.load_state_dict(tensors)
    if kept is not None:
        restore_optimizer(live, kept)


def _fitting(live: Live, base: Base, saved: Any, *, rank: int) -> dict[str, Any]:
    """The base's moments under the settings of the live optimizer, if they are what that one keeps."""
    what = f"the optimizer state of {base.words} is not that of the recipe's optimizer"
    expected = _state_of_a_step(live, rank=rank)
    if expected and not saved["state"]:
        raise GateError(
            f"{base.words} was saved before its optimizer had any state: there is nothing to keep",
            field="base.keep",
            rule="a checkpoint after the first update",
            remedy='keep = ["weights"]',
        )
    own = named_state(live.model, live.optimizer)
    state = _by_name(own["param_groups"], saved, what=what)
    found = {
        f"{name}.{key}": _kind(value)
        for name, moments in state.items()
        for key, value in moments.items()
        if isinstance(value, torch.Tensor)
    }
    stepped = {f"{name}." for name in state}  # a parameter without gradients has no moments
    _require_same(
        {name: kind for name, kind in expected.items() if name.rpartition(".")[0] + "." in stepped},
        found,
        what=what,
    )
    return {**own, "state": state}


def _by_name(own: list[dict[str, Any]], saved: Any, *, what: str) -> dict[str, Any]:
    """The base's moments by the names of parameters; those of the first format are numbered as the groups are here.

    Raises:
        GateError: its groups are not of the same parameters.
    """
    here = [group["params"] for group in own]
    there = [group["params"] for group in saved["param_groups"]]
    if is_by_name(saved):
        if sorted(map(sorted, here)) != sorted(map(sorted, there)):
            raise _other_groups(here, there, what=what)
        state: dict[str, Any] = saved["state"]
        return state
    if [len(group) for group in here] != [len(group) for group in there]:
        raise _other_groups(here, there, what=what)
    names = {
        number: name
        for group, numbers in zip(here, there, strict=True)
        for name, number in zip(group, numbers, strict=True)
    }
    return {names[number]: moments for number, moments in saved["state"].items()}


def _state_of_a_step(live: Live, *, rank: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What the optimizer keeps once it has stepped, found by a step with gradients of zero that is taken back."""
    before = hold(live, rank=rank)
    for parameter in _parameters(live):
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    live.optimizer.step()
    kinds = {
        f"{name}.{key}": _kind(value)
        for name, moments in named_state(live.model, live.optimizer)["state"].items()
        for key, value in moments.items()
        if isinstance(value, torch.Tensor)
    }
    live.optimizer.zero_grad(set_to_none=True)
    restore(live, before, rank=rank)
    return kinds


def _parameters(live: Live) -> Iterator[torch.nn.Parameter]:
    for group in live.optimizer.param_groups:
        yield from group["params"]


def _other_groups(here: list[list[str]], there: list[list[Any]], *, what: str) -> GateError:
    sizes, found = ([len(group) for group in groups] for groups in (here, there))
    return GateError(
        f"{what}: its groups have {found} parameters, here they have {sizes}"
        + (", and not the same ones" if sizes == found else ""),
        field="base.keep",
        rule="the same parameters in the same groups",
        remedy='keep = ["weights"]',
    )


def _kind(tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    return tuple(tensor.shape), tensor.dtype


def _require_same(expected: Expected, found: Expected, *, what: str) -> None:
    """Let only tensors pass that are the expected ones, all of them, as they are.

    Raises:
        GateError: they are not; the first few that differ are named.
    """
    wrong = [f"{name} is not in the base" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is only in the base" for name in sorted(found.keys() - expected.keys())]
    wrong += [
        f"{name} is {_words(found[name])} in the base and {_words(expected[name])} here"
        for name in sorted(expected.keys() & found.keys())
        if expected[name] != found[name]
    ]
    if wrong:
        raise GateError(
            f"{what}: {some_of(wrong, NAMED, between='; ')}",
            field="base.candidate",
            rule="the same tensors by name, shape and dtype; nothing is left out, cut or converted",
            remedy="build the model that the base was trained as: run.params and run.dtype are how",
        )


def _words(kind: tuple[tuple[int, ...], torch.dtype]) -> str:
    shape, dtype = kind
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
