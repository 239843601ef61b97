"""What a checkpoint takes for granted: which tensors a model has, and which of them its optimizer holds.

A resume builds what the recipe's methods build, and puts the saved values into it. What has another structure by then
has no place there, and no later start would find out why. So each update compares by identity, in microseconds, and
looks closer only where something is not the object that it was; before each save everything is looked at. What can be
saved and put back is let through: `requires_grad`, and groups that are added to the optimizer. Anything else is refused
at the update where it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import is_, itemgetter
from typing import Any

import torch
from torch import nn

from raykit.errors import GateError, some_of
from raykit.train.optimizer_state import named_groups, require_in_model

NAMED = 3
"""How many names a refusal gives."""
FINAL = "make it at its final size in model(), or keep it in the recipe's state_dict()"

_training = itemgetter("training")

Kind = tuple[torch.Size, torch.dtype] | None
"""Shape and dtype; None of what is registered without a value."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The structure by names, for the closer look."""

    modules: Mapping[str, type]
    parameters: Mapping[str, Kind]
    buffers: Mapping[str, Kind]
    frozen: frozenset[str]
    groups: tuple[frozenset[str], ...]


class Structure:
    """Of one model and its optimizer, as they were when this was made."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, modes: Mapping[str, bool], *, world: int
    ) -> None:
        """`modes` says by name which modules train; those that it does not name stay as they are now."""
        self._model = model
        self._optimizer = optimizer
        self._modes = dict(modes)
        self._world = world
        self._known = self._look()
        self._remember()

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that train, in the model's order."""
        return self._trained

    @property
    def unheld(self) -> list[nn.Parameter]:
        """The parameters whose gradients the optimizer does not clear: those that it does not hold."""
        return self._unheld

    def require_mode(self, update: int) -> None:
        """Before a forward pass, of the model as a whole: of its parts `require_modes` tells after it.

        Raises:
            GateError: it trains and should not, or the other way round.
        """
        if self._model.training is not self._training[0]:
            self.require_modes(update, "before the forward pass")

    def require_modes(self, update: int, when: str) -> None:
        """Let a model pass only in the mode that it was built in.

        Raises:
            GateError: a module trains that should not, or the other way round.
        """
        if [*map(_training, self._attributes)] == self._training:
            return
        changed = [
            name or "the model"
            for name, module, mode in zip(self._names, self._modules, self._training, strict=True)
            if module.training is not mode
        ]
        module = self._model if changed[0] == "the model" else self._model.get_submodule(changed[0])
        raise GateError(
            f"update {update}: {when}, {some_of(changed, NAMED)} {_are(changed)} in "
            f"{'training' if module.training else 'evaluation'} mode, and {_are(changed)} built in the other",
            field="recipe.losses",
            rule="each module trains in the mode that it was built in",
            remedy="take model.eval() and model.train() out of losses(); run.evaluating names what is to stay in "
            "evaluation mode",
        )

    def require(self, update: int) -> None:
        """Let only a structure pass that a resume can build.

        Raises:
            GateError: it has changed into one that no resume builds; what has, and at which update.
        """
        if not self._is_as_remembered():
            self.require_closely(update)

    def require_groups(self, update: int) -> None:
        """The same after a step, where that has changed how much the optimizer holds. Raises what `require` raises."""
        if self._sizes_now() != self._sizes:
            self.require_closely(update)

    def require_closely(self, update: int) -> None:
        """The same by every name, shape and type.

        Raises:
            GateError: it has changed into one that no resume builds; what has, and at which update.
        """
        now = self._look()
        for why, remedy in _changes(self._known, now, self._world):
            raise GateError(
                f"update {update}: {why}",
                field="recipe.model",
                rule="what model() and optimizer() make stays as it is: a resume makes it so, and puts the values back",
                remedy=remedy,
            )
        try:
            require_in_model(self._model, self._optimizer)
        except GateError as error:
            raise GateError(
                f"update {update}: {error}", field=error.field, rule=error.rule, remedy=FINAL
            ) from error
        self._known = now
        self._remember()

    # --- the quick look -------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Hold on to what the quick look compares. It goes by dicts, since those are nearer than attributes."""
        named = {n: m for n, m in self._model.named_modules() if not n or "training" in vars(m)}
        self._names, self._modules = [*named], [*named.values()]
        self._attributes = [
            vars(m) if "training" in vars(m) else {"training": m.training} for m in self._modules
        ]
        self._training = [self._modes.get(name, module.training) for name, module in named.items()]
        modules = [*self._model.modules()]
        whole = [m for m in modules if m._modules or m._parameters]  # not an activation: nobody adds to one
        tables: list[dict[str, Any]] = [table for m in whole for table in (m._modules, m._parameters)]
        self._tables = [*tables, *(m._buffers for m in modules)]
        self._entries = sum(map(len, self._tables))
        self._views = [table.values() for table in tables if table]
        self._objects = [*chain.from_iterable(self._views)]
        self._buffers = [(m._buffers, m._non_persistent_buffers_set) for m in modules if m._buffers]
        self._kinds = self._kinds_now()
        self._held, self._sizes = self._held_now(), self._sizes_now()
        held = {id(parameter) for parameter in self._held}
        self._parameters = [*self._model.parameters()]
        self._flags = [p.requires_grad for p in self._parameters]
        self._trained = [p for p in self._parameters if p.requires_grad]
        clears = type(self._optimizer).zero_grad is torch.optim.Optimizer.zero_grad
        self._unheld = [p for p in self._parameters if not clears or id(p) not in held]

    def _is_as_remembered(self) -> bool:
        return (
            sum(map(len, self._tables)) == self._entries
            and _are_same([*chain.from_iterable(self._views)], self._objects)
            and [p.requires_grad for p in self._parameters] == self._flags
            and self._kinds_now() == self._kinds
            and self._sizes_now() == self._sizes
            and _are_same(self._held_now(), self._held)
        )

    def _kinds_now(self) -> list[Any]:
        return [
            buffer if buffer is None else (buffer.shape, buffer.dtype)
            for buffers, passing in self._buffers
            for name, buffer in buffers.items()
            if name not in passing
        ]

    def _held_now(self) -> list[Any]:
        return [each for group in self._optimizer.param_groups for each in group["params"]]

    def _sizes_now(self) -> list[int]:
        return [len(group["params"]) for group in self._optimizer.param_groups]

    # --- the closer look ------------------------------------------------------------------------------------

    def _look(self) -> _Known:
        model = self._model
        return _Known(
            modules={name: type(module) for name, module in model.named_modules()},
            parameters=dict(_parameters(model)),
            buffers=dict(_buffers(model)),
            frozen=frozenset(name for name, p in model.named_parameters() if not p.requires_grad),
            groups=self._groups(),
        )

    def _groups(self) -> tuple[frozenset[str], ...]:
        try:
            return tuple(frozenset(names) for names in named_groups(self._model, self._optimizer))
        except KeyError:  # a parameter that is not the model's, which is told by itself
            return ()


def _are_same(objects: list[Any], others: list[Any]) -> bool:
    return len(objects) == len(others) and all(map(is_, objects, others))


def _parameters(model: nn.Module) -> Iterator[tuple[str, Kind]]:
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():
            yield _join(path, name), _kind(parameter)


def _buffers(model: nn.Module) -> Iterator[tuple[str, Kind]]:
    """Those that are saved: any other may come, grow and go."""
    for path, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if name not in module._non_persistent_buffers_set:
                yield _join(path, name), _kind(buffer)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _kind(tensor: torch.Tensor | None) -> Kind:
    return None if tensor is None else (tensor.shape, tensor.dtype)


def _changes(was: _Known, now: _Known, world: int) -> Iterator[tuple[str, str]]:
    """What has become another structure, each with what to do instead."""
    for what, before, after in (
        ("parameter", was.parameters, now.parameters),
        ("buffer", was.buffers, now.buffers),
    ):
        for name in [*before, *(each for each in after if each not in before)]:
            if (change := _change(before, after, name)) is not None:
                yield f"the {what} {name} {change}", FINAL
    for name in was.modules.keys() & now.modules.keys():
        if was.modules[name] is not now.modules[name]:
            yield (
                f"the module {name} was a {was.modules[name].__name__} and is a {now.modules[name].__name__}",
                "make both in model(), and let a flag in the recipe's state_dict() say which is used",
            )
    if now.groups:
        for names in was.groups:
            if names not in now.groups:
                yield (
                    f"the optimizer's group of {some_of(sorted(names), NAMED)} is gone, or of other parameters",
                    "keep the groups, and set the learning rate of what is not to train to 0; adding one is fine",
                )
    if world > 1 and was.frozen != now.frozen:
        yield (
            f"requires_grad of {some_of(sorted(was.frozen ^ now.frozen), NAMED)} is another one, and "
            f"gradients are summed over {world} ranks by what it was",
            "train with run.workers = 1, or let it train from the start with a learning rate of 0",
        )


def _change(before: Mapping[str, Kind], after: Mapping[str, Kind], name: str) -> str | None:
    if name not in before:
        return "is new"
    if name not in after:
        return "is gone"
    if before[name] == after[name]:
        return None
    return f"was {_words(before[name])} and is {_words(after[name])}"


def _words(kind: Kind) -> str:
    return "None" if kind is None else f"{str(kind[1]).removeprefix('torch.')} {list(kind[0])}"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
