"""What a recipe says of one example: asked under one key, checked, and as plain numbers on the CPU."""

from __future__ import annotations

import dataclasses as dc
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from raykit.errors import GateError
from raykit.qc.scores import Numbers, Term
from raykit.qc.strata import Array
from raykit.records import FieldRule
from raykit.train import asked
from raykit.train.recipe import Classes, Field, Image, Text
from raykit.work.panels import Picture
from raykit.work.subject import Subject


def numbers_of(subject: Subject, batch: Any, key: int) -> Numbers:
    """All numbers of one example but its fields.

    Raises:
        GateError: the recipe gives something of another shape.
    """
    classes = _classes(subject.ask("classify", key, batch)) if subject.has("classify") else None
    text = _text(subject.ask("text", key, batch)) if subject.has("text") else None
    return Numbers(
        terms=terms_of(subject.ask("losses", key, batch), "losses"),
        metrics=_metrics(subject.recipe, subject.ask("evaluate", key, batch))
        if subject.has("evaluate")
        else {},
        embedding=_embedding(subject.ask("embed", key, batch)) if subject.has("embed") else None,
        probabilities=None if classes is None else to_array(classes.probabilities[0]),
        label=None if classes is None else int(classes.label[0]),
        nats=None if text is None else float(text.nats[0]),
        content=None if text is None else text.content[0],
    )


def fields_of(
    subject: Subject, batch: Any, key: int, declared: Mapping[str, FieldRule]
) -> dict[str, torch.Tensor]:
    """The declared fields of one example, on the CPU.

    Raises:
        GateError: a declared field is not there, or is of another shape.
    """
    if not declared:
        return {}
    given = subject.ask("fields", key, batch) if subject.has("fields") else {}
    found = {}
    for name in declared:
        if name not in given:
            raise GateError(
                f"the recipe gives no field {name}",
                field=f"qc.fields.{name}",
                rule=", ".join(given) or "none",
            )
        value = given[name].value if isinstance(given[name], Field) else None
        if not isinstance(value, torch.Tensor) or value.dim() < 1 or len(value) != 1 or not value.numel():
            raise asked.wrong(
                "fields", f"{name} in another shape", "a Field whose first axis counts examples"
            )
        if value.is_complex():
            raise asked.wrong("fields", f"{name} with an imaginary part", "real numbers")
        found[name] = value.detach().cpu()
    return found


def pictures_of(subject: Subject, batch: Any, key: int) -> dict[str, Picture]:
    """The panels of one example.

    Raises:
        GateError: the recipe gives something else than pictures.
    """
    given = asked.named(subject.ask("panels", key, batch), "panels")
    for name, image in given.items():
        if not isinstance(image, Image):
            raise asked.wrong("panels", f"{name}, which is no picture", "an Image for each name")
    return {
        name: Picture(values=to_array(image.pixels()), low=float(image.low), high=float(image.high))
        for name, image in given.items()
    }


def terms_of(given: Any, method: str) -> dict[str, Term]:
    """Loss terms as numbers.

    Raises:
        GateError: they are not a dict of `LossTerm`.
    """
    found = {}
    for name, term in asked.terms_of(given, method).items():
        value, elements, scale = term.numbers(name)
        found[name] = Term(
            value=value,
            weight=float(term.weight),
            elements=elements,
            scale=None if term.no_reference else scale,
            relates_rows=term.relates_rows,
        )
    return found


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor's values in double precision, with its shape."""
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


def require_same(first: Numbers, other: Numbers) -> None:
    """Let only an example pass of which the recipe says the same things as of the first one.

    Raises:
        GateError: other terms, or another number of classes or dimensions.
    """
    for method, was, now in (
        ("losses", _scales(first), _scales(other)),
        ("embed", _size(first.embedding), _size(other.embedding)),
        ("classify", _size(first.probabilities), _size(other.probabilities)),
    ):
        if was != now:
            raise asked.wrong(
                method, f"{now} for one example and {was} for another", "the same for every example"
            )


def _scales(numbers: Numbers) -> list[str]:
    return [name + (" without a scale" if term.scale is None else "") for name, term in numbers.terms.items()]


def _size(values: Array | None) -> int:
    return 0 if values is None else len(values)


# --- the same answer twice ----------------------------------------------------------------------------------

OF_METHOD = {
    "terms": "losses",
    "metrics": "evaluate",
    "embedding": "embed",
    "probabilities": "classify",
    "label": "classify",
    "nats": "text",
    "content": "text",
    "fields": "fields",
}
"""By what a unit's numbers are called: the method that they are from."""

MOST_KEPT = 64
"""So many values of a large answer are compared one by one, and the sums of all."""

NOISE = 0.01
"""How far two answers may lie apart, relative to their size, where the arithmetic itself is not reproducible."""


def flat(numbers: Numbers | None, fields: Mapping[str, torch.Tensor]) -> dict[str, list[float]]:
    """All that was said of one unit, by name, as plain numbers."""
    given = {} if numbers is None else {each.name: getattr(numbers, each.name) for each in dc.fields(numbers)}
    arrays = {name: to_array(value) for name, value in fields.items()}
    return dict(_flat("", {**given, "fields": arrays}))


def _flat(name: str, value: Any) -> Iterator[tuple[str, list[float]]]:
    if dc.is_dataclass(value) and not isinstance(value, type):
        value = {each.name: getattr(value, each.name) for each in dc.fields(value)}
    match value:
        case None:
            return
        case Mapping():
            for key, each in value.items():
                yield from _flat(f"{name}.{key}" if name else str(key), each)
        case bytes():
            yield name, [float(int.from_bytes(hashlib.sha256(value).digest()[:6]))]
        case str():
            yield from _flat(name, value.encode())
        case _:
            yield name, _kept(np.asarray(value, dtype=np.float64).ravel())


def _kept(values: Array) -> list[float]:
    if values.size <= MOST_KEPT:
        return [float(each) for each in values]
    some = values[:: -(-values.size // MOST_KEPT)]
    with np.errstate(all="ignore"):
        return [*map(float, some), float(values.sum()), float(np.abs(values).sum())]


def require_the_same(
    unit: str,
    was: Mapping[str, Sequence[float]],
    now: Mapping[str, Sequence[float]],
    how: str,
    *,
    exact: bool,
) -> None:
    """Let only a unit pass of which the same was said when it was asked again; `how` says by whom and when.

    Raises:
        GateError: something else was said: it depends on what came before, or on the process.
    """
    for name in (*was, *(name for name in now if name not in was)):
        first, second = was.get(name, ()), now.get(name, ())
        alike = len(first) == len(second) and all(map(partial(_alike, exact=exact), first, second))
        if alike:
            continue
        method = OF_METHOD.get(name.partition(".")[0], "losses")
        raise GateError(
            f"unit {unit}, asked again {how}: {name.partition('.')[2] or name} of {method}() is {_shown(second)} and "
            f"was {_shown(first)}",
            field=f"recipe.{method}",
            rule="what is said of a unit depends on the weights and on the unit alone",
            remedy="keep nothing between calls that depends on weights, draw from torch, numpy or random, and take no "
            "hash() of a text",
        )


def _alike(one: float, other: float, *, exact: bool) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other if exact else math.isclose(one, other, rel_tol=NOISE, abs_tol=NOISE**2)


def _shown(values: Sequence[float]) -> str:
    return "nothing" if not values else f"{values[0]!r}" + (" ..." if len(values) > 1 else "")


# --- the shapes of answers ----------------------------------------------------------------------------------


def _metrics(recipe: Any, given: Any) -> dict[str, float | None]:
    """The metrics of one example; None where it has no number."""
    found = asked.metrics_of(recipe, given, 1)
    return {name: float(values.double()[0]) if len(values) else None for name, values in found.items()}


def _embedding(given: Any) -> Array:
    if not isinstance(given, torch.Tensor) or given.dim() != 2 or len(given) != 1 or not given.numel():
        raise asked.wrong("embed", "another shape", "a tensor [examples, dimensions], here of one example")
    if given.is_complex():
        raise asked.wrong("embed", "numbers with an imaginary part", "real numbers")
    return to_array(given[0])


def _classes(given: Any) -> Classes:
    if not isinstance(given, Classes) or len(given.label) != 1:
        raise asked.wrong("classify", "something else", "Classes with one row per example, here of one")
    return given


def _text(given: Any) -> Text:
    if not isinstance(given, Text) or len(given.nats) != 1:
        raise asked.wrong("text", "something else", "Text with one number per example, here of one")
    return given
