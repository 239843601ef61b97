"""The user's side: what a recipe is, and how one is found.

A recipe is a plain class. Required: `model`, `optimizer`, `dataset`, `losses`. Optional: `scheduler`, `collate`, and
`state_dict` with `load_state_dict` for state of its own; for what is examined, `fields`, `evaluate`, `embed`,
`classify`, `text`, `losses_given` and `panels`; for synthetic rows, `generate`, `keep`, `quality`, `picture` and
`normalization`. `Params`, a dataclass, gives the plan's `params` their names, types and defaults.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import os
import sys
import traceback
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn

from raykit.errors import GateError, PlanError, RaykitError
from raykit.plan.tables import FieldBounds

MOST_SAID = 3
"""So many findings are said in one line."""
REQUIRED = ("model", "optimizer", "dataset", "losses")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LossTerm:
    """One term of the loss, and the scale that says what its value means.

    `value` is a scalar, the mean over `elements`. Exactly one of three says what no skill scores:
    `target` (any shape: its mean square is what predicting zero scores, for squared errors), `reference` (that
    number itself: ln C for a cross-entropy over C classes), or `no_reference` (why there is none).
    `elements` is the number of elements averaged over; it may be left out where `target` is given.

    Raises:
        PlanError: not exactly one scale, no number of elements, or something that is not one number.
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
        self._require_numbers()

    def _require_numbers(self) -> None:
        value: Any = self.value
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            raise PlanError(
                "the value of a loss term is not one number",
                field="LossTerm.value",
                value=tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__,
                rule="a tensor without dimensions: the mean over its elements",
            )
        numbers: dict[str, Any] = {
            "weight": self.weight,
            "reference": 0.0 if self.reference is None else self.reference,
        }
        for name, number in numbers.items():
            if not (isinstance(number, int | float) and math.isfinite(number)):
                raise PlanError(
                    f"the {name} of a loss term is not a finite number",
                    field=f"LossTerm.{name}",
                    value=str(number),
                    rule="a Python float",
                )
        elements: Any = self.elements
        if elements is not None and not (isinstance(elements, int) and elements >= 1):
            raise PlanError(
                "a loss term is a mean over a number of elements",
                field="LossTerm.elements",
                value=str(elements),
                rule="a Python int, at least 1",
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
            # The very sums of a squared error against zero, so that no skill is exactly 1; and a number at once where
            # that waits for nothing, since this is done at every update.
            square = self.target.detach().float().square().mean()
            return square.item() if square.is_cpu else square
        return float("nan") if self.reference is None else self.reference


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A latent or parameter field of one batch: the first axis counts examples. `space="log"` for positive ones."""

    value: torch.Tensor
    space: Literal["linear", "log"] = "linear"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One picture at its true aspect and full extent: [height, width] grey, or [height, width, 3].

    A leading axis of 1, for the one example of the batch, is let through. `low` is drawn black and `high` white.

    Raises:
        GateError: it has another shape, or no range.
    """

    value: torch.Tensor
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        value: Any = self.value
        _require(isinstance(value, torch.Tensor), "panels", "a picture that is no tensor", "a tensor")
        shape = self.pixels().shape
        fits = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
        _require(
            fits and 0 not in shape,
            "panels",
            f"a picture of shape {list(value.shape)}",
            "[height, width], or [height, width, 3] with the colours last, of one example",
        )
        _require(
            math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high,
            "panels",
            f"a picture from {self.low} to {self.high}",
            "low below high, both finite",
        )

    def pixels(self) -> torch.Tensor:
        """The picture without the axis of its batch."""
        value = self.value
        batched = value.dim() > 2 and value.shape[0] == 1 and (value.dim() == 4 or value.shape[2] != 3)
        return value[0] if batched else value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """The probability of each class, [examples, classes], and the class that each example has, [examples].

    Raises:
        GateError: they have other shapes, are no probabilities, or a label is no class.
    """

    probabilities: torch.Tensor
    label: torch.Tensor

    def __post_init__(self) -> None:
        given: Any = (self.probabilities, self.label)
        _require(
            all(isinstance(each, torch.Tensor) for each in given)
            and given[0].dim() == 2
            and given[0].shape[1] >= 2
            and given[1].shape == given[0].shape[:1],
            "classify",
            "probabilities and labels in another shape",
            "probabilities [examples, classes] and label [examples], as tensors",
        )
        label = self.label
        whole = not (label.is_floating_point() or label.is_complex() or label.dtype == torch.bool)
        _require(
            whole and bool(((label >= 0) & (label < self.probabilities.shape[1])).all()),
            "classify",
            "a label that is no class",
            f"whole numbers from 0 to {self.probabilities.shape[1] - 1}",
        )
        found = self.probabilities.detach().double()
        wrong = ((found < -ROUNDING) | ((found.sum(dim=1) - 1).abs() > ROUNDING)[:, None]) & found.isfinite()
        _require(
            not bool(wrong.any()),
            "classify",
            "numbers that are no probabilities",
            "at least 0, and 1 in sum over the classes: a softmax of the logits",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The negative log-likelihood in nats of each example's whole text, [examples], and the bytes of that text.

    Raises:
        GateError: they have other shapes or types.
    """

    nats: torch.Tensor
    content: Sequence[bytes]

    def __post_init__(self) -> None:
        nats: Any = self.nats
        _require(
            isinstance(nats, torch.Tensor) and nats.dim() == 1 and len(nats) == len(self.content),
            "text",
            "nats in another shape",
            "a tensor with one number per example, and as many texts",
        )
        _require(
            all(isinstance(each, bytes) for each in self.content),
            "text",
            "content that is no bytes",
            "the text of each example, encoded",
        )


ROUNDING = 0.01
"""How far the sum of probabilities may lie from 1: those of bfloat16 have two to three digits."""


def _require(holds: bool, method: str, what: str, rule: str) -> None:
    if not holds:
        raise GateError(f"the recipe's {method}() gives {what}", field=f"recipe.{method}", rule=rule)


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
    """Import `name`, looking in `folder` first; modules of another recipe's folder are never mistaken for its own.

    The folder stays last on the path, for what a recipe imports when it is called.
    """
    root = str(folder.resolve())
    _forget_others(name, root)
    _there_before.setdefault(root, frozenset(key.partition(".")[0] for key in sys.modules))
    sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        with asking(f"the recipe {name}", field="recipe", expected=(ImportError, SyntaxError)):
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
        if root not in sys.path:
            sys.path.append(root)
            _on_path.add(root)


_there_before: dict[str, frozenset[str]] = {}
"""By recipe folder: the packages and modules that this process had before a recipe came from there."""

_on_path: set[str] = set()
"""The recipe folders that are on `sys.path` because of a recipe."""


def _forget_others(name: str, root: str) -> None:
    for other in [folder for folder in _there_before if folder != root]:
        for key in _modules_below(other, _there_before.pop(other)):
            del sys.modules[key]
        if other in _on_path:
            _on_path.discard(other)
            sys.path[:] = [path for path in sys.path if path != other]
    # The package counts, too: one from elsewhere would bring its modules from there.
    top = name.partition(".")[0]
    if top in sys.modules and not _is_from(root, sys.modules[top]) and _has(Path(root), top):
        for key in [key for key in sys.modules if key == top or key.startswith(top + ".")]:
            del sys.modules[key]


def _is_from(root: str, module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    places = getattr(module, "__path__", ()) if file is None else (file,)
    return any(Path(root) in Path(place).resolve().parents for place in places)


def _has(folder: Path, top: str) -> bool:
    """Whether a module or package of this name is in a folder."""
    return os.path.exists(folder / f"{top}.py") or os.path.isdir(folder / top)  # noqa: PTH110, PTH112 - never raise


def _modules_below(root: str, before: frozenset[str]) -> list[str]:
    """The modules that a recipe has brought from below `root`; not what is installed there."""
    files = {key: getattr(module, "__file__", None) or "" for key, module in sys.modules.items()}
    return [
        key
        for key, file in files.items()
        if file.startswith(root + os.sep)
        and "site-packages" not in file
        and key.partition(".")[0] not in before
    ]


def modules_of(spec: str, folder: Path) -> list[str]:
    """The files, relative to `folder`, of the modules that importing a recipe brings from there.

    Raises:
        PlanError: it cannot be imported.
    """
    _import(spec.partition(":")[0], folder)
    root = str(folder.resolve())
    files = (sys.modules[key].__file__ for key in _modules_below(root, _there_before[root]))
    return sorted({Path(file).relative_to(root).as_posix() for file in files if file is not None})


def recipe_folder(spec: str, plan: Path) -> Path:
    """Where a recipe's module is looked for: beside the plan file, or else in the working directory."""
    top = spec.partition(":")[0].partition(".")[0]
    beside = plan.resolve().parent
    if _has(beside, top):
        return beside
    return Path.cwd()


@contextlib.contextmanager
def asking(
    what: str, *, field: str | None = None, expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Run a part of the recipe that is asked before anything starts; its own bug is then an answer.

    What is `expected` goes through as it is.

    Raises:
        PlanError: the recipe raised something; the message has its file and line.
    """
    try:
        yield
    except RaykitError:
        raise
    except expected:
        raise
    except (
        Exception
    ) as error:  # anything a recipe raises is about the recipe, and belongs to the plan's findings
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise PlanError(
            f"{what} raised {type(error).__name__}: {str(error)[:300]}",
            field=field or what,
            rule=f"see {Path(frame.filename).name}, line {frame.lineno}: {frame.line or ''}".strip(),
        ) from error


def check_fields(recipe: Recipe, declared: Mapping[str, FieldBounds]) -> None:
    """Refuse fields that the plan watches and the recipe has no way to give.

    Raises:
        PlanError: the plan declares fields and the recipe has no `fields`, or says how much one is used and the recipe
            has no `losses_given`.
    """
    used = [name for name, bounds in declared.items() if bounds.used is not None]
    if used and not callable(getattr(recipe, "losses_given", None)):
        raise PlanError(
            f"the plan says how much the field {used[0]} has to be used, and the recipe has no losses_given()",
            field=f"qc.fields.{used[0]}.used",
            remedy="give the recipe a losses_given(model, batch, fields), or take `used` out of the plan",
        )
    if declared and not callable(getattr(recipe, "fields", None)):
        name = next(iter(declared))
        raise PlanError(
            f"the plan watches the field {name}, and the recipe has no fields()",
            field=f"qc.fields.{name}",
            remedy="give the recipe a fields(model, batch), or take the field out of the plan",
        )


def check_params(recipe: Recipe, params: Mapping[str, Any]) -> Any:
    """The plan's `params` as the recipe's `Params`; a plain dict where the recipe declares none.

    Raises:
        PlanError: an unknown or missing name, or a value of another type, all of them in `findings`; or the recipe
            itself refuses the values.
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
        raise PlanError(
            f"{len(findings)} of the recipe's params do not fit: {named(findings)}", findings=tuple(findings)
        )
    try:
        return declared(**{name: _coerce(value, hints[name]) for name, value in params.items()})
    except ValueError as error:
        raise PlanError(
            f"the recipe refuses its params: {error}", field="run.params", value=dict(params)
        ) from error


def named(findings: Sequence[PlanError]) -> str:
    """The first findings in one line, for where only one is shown."""
    more = f"; and {len(findings) - MOST_SAID} more" if len(findings) > MOST_SAID else ""
    return "; ".join(finding.message for finding in findings[:MOST_SAID]) + more


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of TOML is one of this type: a list stands for a tuple, and a whole number for a float."""
    origin, arms = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arm) for arm in arms)
    if origin is Literal:
        return any(type(value) is type(arm) and value == arm for arm in arms)
    if hint is None or hint is type(None):
        return value is None
    if origin in (int, float):
        return isinstance(value, int | origin) and not isinstance(value, bool)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and _fit(value, _item_hints(origin, arms, len(value)))
    return isinstance(value, origin) if isinstance(origin, type) else True


def _fit(values: Sequence[Any], hints: Sequence[Any]) -> bool:
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _item_hints(origin: Any, arms: tuple[Any, ...], count: int) -> Sequence[Any]:
    """The type of each item: `tuple[int, str]` names them all, the others are of one type."""
    if origin is tuple and arms and arms[-1] is not Ellipsis:
        return arms
    return (arms[0] if arms else Any,) * count


def _coerce(value: Any, hint: Any) -> Any:
    origin, arms = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _coerce(value, next(arm for arm in arms if _fits(value, arm)))
    if origin is float:
        return float(value)
    if origin in (list, tuple, Sequence):
        items = map(_coerce, value, _item_hints(origin, arms, len(value)))
        return tuple(items) if origin is tuple else list(items)
    return value


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
