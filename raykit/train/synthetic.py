"""What of a recipe makes synthetic rows, checked before anything is paid for.

generate(model, inputs, rng, **decode)    a pyarrow table: one row for each of `inputs`
keep(table)                               for each row None, or why it is filtered
quality(table, real)                      numbers by name: how good rows are, held against real examples
picture(table)                            an Image for each row
normalization                             a dict, or a method of `params` that gives one: the scale of the rows
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Mapping
from typing import Any

from raykit.errors import GateError, PlanError
from raykit.ids import canonical
from raykit.train.recipe import Recipe, asking


def check_generate(recipe: Recipe, decode: Mapping[str, Any], *, at: str) -> None:
    """Refuse a recipe that cannot generate, and names in a `decode` table that its `generate` does not take.

    `at` is where that table stands in the plan.

    Raises:
        PlanError: the recipe has no `generate`, or it does not take what it would be given; all of it in `findings`.
    """
    generate = getattr(recipe, "generate", None)
    if not callable(generate):
        raise PlanError(
            "the plan generates rows, and the recipe has no generate()",
            field="recipe",
            rule="generate(model, inputs, rng, **decode), which gives a pyarrow table",
        )
    parameters = list(inspect.signature(generate).parameters.values())
    first, named = parameters[:3], {each.name: each for each in parameters[3:]}
    if len(first) < 3 or any(each.kind in (each.KEYWORD_ONLY, each.VAR_KEYWORD) for each in first):
        raise PlanError(
            f"the recipe's generate() takes {', '.join(each.name for each in parameters) or 'nothing'}",
            field="recipe.generate",
            rule="model, inputs and rng, and then the names of decode",
        )
    anything = any(each.kind is each.VAR_KEYWORD for each in named.values())
    takes = [
        name for name, each in named.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    findings = [
        PlanError(
            f"the recipe's generate() takes no {name}",
            field=f"{at}.{name}",
            value=value,
            rule=f"one of {', '.join(takes)}" if takes else "nothing: it takes no name of its own",
        )
        for name, value in decode.items()
        if name not in takes and not anything
    ]
    findings += [
        PlanError(f"the recipe's generate() needs {name}", field=f"{at}.{name}")
        for name in takes
        if named[name].default is inspect.Parameter.empty and name not in decode
    ]
    if len(findings) == 1:
        raise findings[0]
    if findings:
        raise PlanError(
            f"{len(findings)} names of {at} do not fit: " + "; ".join(each.message for each in findings),
            field=findings[0].field,
            findings=tuple(findings),
        )


def normalization_of(recipe: Recipe, params: Any) -> dict[str, Any]:
    """What the recipe says of the scale of its rows: a mapping, or a method of `params` that gives one.

    Raises:
        PlanError: the method raised.
        GateError: it is no mapping that JSON can hold.
    """
    found = getattr(recipe, "normalization", None)
    if found is None:
        return {}
    if callable(found):
        with asking("the recipe's normalization", field="recipe.normalization"):
            found = found(params)
    try:
        return typing.cast(dict[str, Any], json.loads(canonical(dict(found))))
    except (TypeError, ValueError) as error:
        raise GateError(
            f"the recipe's normalization is something else: {error}",
            field="recipe.normalization",
            rule="a dict of numbers, text and lists, by name",
        ) from error
