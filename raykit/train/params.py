"""Whether a plan fits its recipe: the params by name and type, and the fields that it watches."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from raykit.errors import PlanError, some_of
from raykit.plan import Plan
from raykit.plan.tables import FieldBounds, Qc
from raykit.qc import thresholds
from raykit.train.recipe import Recipe

MOST_SAID = 3
"""So many findings are said in one line."""


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


def check_thresholds(recipe: Recipe, plan: Plan) -> None:
    """Refuse thresholds that can never be right, and metrics that nothing reports.

    Raises:
        PlanError: there is one; `findings` has them all.
    """
    methods = [name for name in SCORES if callable(getattr(recipe, name, None))]
    findings = [] if plan.qc is None else list(_unfit(plan.qc, methods))
    chosen = plan.run.selection
    if chosen is not None and "evaluate" not in methods and not _of_training(chosen.metric):
        findings.append(
            PlanError(
                f"nothing reports the metric {chosen.metric}: the recipe has no evaluate()",
                field="run.select",
                value=plan.run.select,
                rule="development.ratio, development.ratio.<term> or development.loss",
            )
        )
    if findings:
        raise PlanError(
            f"{len(findings)} metrics of the plan will not do: {named(findings)}", findings=tuple(findings)
        )


SCORES = ("evaluate", "classify", "text", "embed")
"""The methods of a recipe that metrics come from, beside `losses`."""


def _of_training(metric: str) -> bool:
    return metric in ("loss", "ratio") or metric.startswith("ratio.")


def _unfit(qc: Qc, methods: Sequence[str]) -> Iterator[PlanError]:
    for each in thresholds.read(qc, methods):
        if each.wrong is not None:
            at = f"qc.fail.{each.name}" if each.rule is not None else "qc.metrics"
            value = each.name if each.rule is None else each.rule
            yield PlanError(f"{each.name}: {each.wrong}", field=at, value=value, rule=each.right)


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
    return some_of((finding.message for finding in findings), MOST_SAID, between="; ")


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
