"""The user's side: what a recipe is, and how one is found.

A recipe is a plain class. Required: `model`, `optimizer`, `dataset`, `losses`. Optional: `scheduler`,
`collate`, `fields`, `evaluate`, `panels`, `generate`, and `state_dict` with `load_state_dict` for state of its
own. `Params`, a dataclass, gives the plan's `params` their names, types and defaults.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from raykit.errors import PlanError

REQUIRED = ("model", "optimizer", "dataset", "losses")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LossTerm:
    """One term of the loss, and the scale that says what its value means.

    `value` is a scalar, the mean over `elements`. Exactly one of three says what no skill scores:
    `target` (any shape: its mean square is what predicting zero scores, for squared errors), `reference` (that
    number itself: ln C for a cross-entropy over C classes), or `no_reference` (why there is none).
    `elements` is the number of elements averaged over; it may be left out where `target` is given.

    Raises:
        PlanError: not exactly one scale, or no number of elements.
    """

    value: torch.Tensor
    weight: float = 1.0
    target: torch.Tensor | None = None
    reference: float | None = None
    no_reference: str | None = None
    elements: int | None = None

    def __post_init__(self) -> None:
        scales = (self.target is not None) + (self.reference is not None) + bool(self.no_reference)
        if scales != 1:
            raise PlanError(
                "a loss term says how its value is scaled in exactly one way",
                field="LossTerm",
                rule="one of target=, reference= (what no skill scores) or no_reference= (why there is none)",
            )
        if self.target is None and self.elements is None:
            raise PlanError(
                "a loss term without a target needs its number of elements", field="LossTerm.elements"
            )

    def count(self) -> int:
        """The number of elements that the value is a mean over."""
        if self.elements is not None:
            return self.elements
        assert self.target is not None
        return self.target.numel()

    def scale(self) -> torch.Tensor | float:
        """The target's mean square, the reference, or NaN where there is none."""
        if self.target is not None:
            return self.target.detach().float().square().mean()
        return float("nan") if self.reference is None else self.reference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A latent or parameter field of one batch: the first axis counts examples. `space="log"` for positive ones."""

    value: torch.Tensor
    space: Literal["linear", "log"] = "linear"


@runtime_checkable
class Recipe(Protocol):
    """What raykit asks of a recipe. `model` passed to `losses` is to be called, not taken apart."""

    def model(self, params: Any) -> nn.Module: ...

    def optimizer(self, model: nn.Module, params: Any) -> torch.optim.Optimizer: ...

    def dataset(self, source: Any, params: Any) -> Any: ...

    def losses(self, model: nn.Module, batch: Any) -> Mapping[str, LossTerm]: ...


def load_recipe(spec: str, folder: Path) -> Recipe:
    """Import `module:Class` from `folder` and make one.

    Raises:
        PlanError: no such module or class, it cannot be made without arguments, or it lacks a required method.
    """
    module_name, _, class_name = spec.partition(":")
    if not module_name or not class_name:
        raise PlanError(f"{spec!r} does not name a recipe", field="recipe", value=spec, rule="module:Class")
    module = _import(module_name, folder)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = sorted(name for name, value in vars(module).items() if isinstance(value, type))
        raise PlanError(
            f"{module_name} has no class {class_name}",
            field="recipe",
            value=spec,
            rule=f"one of {', '.join(classes) or 'none found'}",
        )
    try:
        recipe = found()
    except TypeError as error:
        raise PlanError(
            f"{class_name} cannot be made without arguments: {error}", field="recipe", value=spec
        ) from error
    missing = [name for name in REQUIRED if not callable(getattr(recipe, name, None))]
    if missing:
        raise PlanError(
            f"{class_name} lacks {', '.join(missing)}",
            field="recipe",
            value=spec,
            rule="a recipe has " + ", ".join(REQUIRED),
        )
    return typing.cast(Recipe, recipe)


def _import(name: str, folder: Path) -> Any:
    """Import `name`, looking in `folder` first; a copy from another folder is never mistaken for it."""
    root = str(folder.resolve())
    loaded = sys.modules.get(name)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        if file is None or Path(root) not in Path(file).resolve().parents:
            for stale in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
                del sys.modules[stale]
    sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise PlanError(
                f"there is no module {name} in {folder}", field="recipe", value=name, rule="beside the plan"
            ) from error
        raise PlanError(
            f"the recipe {name} cannot be imported: {error}", field="recipe", value=name
        ) from error
    except (ImportError, SyntaxError) as error:
        raise PlanError(
            f"the recipe {name} cannot be imported: {error}", field="recipe", value=name
        ) from error
    finally:
        sys.path.remove(root)


def recipe_folder(spec: str, plan: Path) -> Path:
    """Where a recipe's module is looked for: beside the plan file, or else in the working directory."""
    top = spec.partition(":")[0].partition(".")[0]
    beside = plan.resolve().parent
    if (beside / f"{top}.py").exists() or (beside / top).is_dir():
        return beside
    return Path.cwd()


def check_params(recipe: Recipe, params: Mapping[str, Any]) -> Any:
    """The plan's `params` as the recipe's `Params`; a plain dict where the recipe declares none.

    Raises:
        PlanError: an unknown or missing name, or a value of another type; all of them in `findings`.
    """
    declared = getattr(recipe, "Params", None)
    if declared is None:
        return dict(params)
    if not (isinstance(declared, type) and dataclasses.is_dataclass(declared)):
        raise PlanError("Params of the recipe is not a dataclass", field="recipe")
    hints = typing.get_type_hints(declared)
    fields = {field.name: field for field in dataclasses.fields(declared) if field.init}
    findings = [
        PlanError(
            f"the recipe has no parameter {name}",
            field=f"run.params.{name}",
            value=value,
            rule=f"one of {', '.join(fields)}",
        )
        for name, value in params.items()
        if name not in fields
    ]
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if name not in params:
            if required:
                findings.append(PlanError(f"the recipe needs {name}", field=f"run.params.{name}"))
        elif not _fits(params[name], hints[name]):
            findings.append(
                PlanError(
                    f"{name} is of another type",
                    field=f"run.params.{name}",
                    value=params[name],
                    rule=_type_name(hints[name]),
                )
            )
    if findings:
        raise PlanError(f"{len(findings)} of the recipe's params do not fit", findings=tuple(findings))
    return declared(**{name: _coerce(value, hints[name]) for name, value in params.items()})


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arm) for arm in typing.get_args(hint))
    if origin is Literal:
        return value in typing.get_args(hint)
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple)
    if origin is dict:
        return isinstance(value, dict)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _coerce(value: Any, hint: Any) -> Any:
    if hint is float and isinstance(value, int):
        return float(value)
    if (hint is tuple or typing.get_origin(hint) is tuple) and isinstance(value, list):
        return tuple(value)
    return value


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
