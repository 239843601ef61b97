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
from raykit.qc.scores import SHARES, Numbers, Term
from raykit.qc.strata import Array
from raykit.records import FieldRule
from raykit.train.recipe import Classes, Field, Image, LossTerm, Text
from raykit.work.panels import Picture
from raykit.work.subject import Subject

OWN = frozenset({"loss", "ratio", "ratio_median", "no_skill_share", *SHARES})
OWN_PREFIXES = ("ratio.", "worst.", "recall.", "support.")
OWN_OF = {
    "classify": frozenset({"accuracy", "calibration_error", "brier", "brier_skill"}),
    "text": frozenset({"bits_per_byte"}),
    "embed": frozenset({"effective_rank", "embedding_spread"}),
}
"""The names of metrics that raykit works out itself; some of them only where a recipe has that method."""


def numbers_of(subject: Subject, batch: Any, key: int) -> Numbers:
    """All numbers of one example but its fields.

    Raises:
        GateError: the recipe gives something of another shape.
    """
    classes = _classes(subject.ask("classify", key, batch)) if subject.has("classify") else None
    text = _text(subject.ask("text", key, batch)) if subject.has("text") else None
    return Numbers(
        terms=terms_of(subject.ask("losses", key, batch), "losses"),
        metrics=_metrics(subject, subject.ask("evaluate", key, batch)) if subject.has("evaluate") else {},
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
            raise _wrong("fields", f"{name} in another shape", "a Field whose first axis counts examples")
        found[name] = value.detach().cpu()
    return found


def pictures_of(subject: Subject, batch: Any, key: int) -> dict[str, Picture]:
    """The panels of one example.

    Raises:
        GateError: the recipe gives something else than pictures.
    """
    given = _mapping(subject.ask("panels", key, batch), "panels")
    for name, image in given.items():
        if not isinstance(image, Image):
            raise _wrong("panels", f"{name}, which is no picture", "an Image for each name")
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
    for name, term in _mapping(given, method).items():
        if not isinstance(term, LossTerm):
            raise _wrong(method, f"{name}, which is no loss term", "a LossTerm for each name")
        found[name] = Term(
            value=float(term.value),
            weight=float(term.weight),
            elements=term.count(),
            scale=None if term.no_reference else float(term.scale()),
        )
    return found


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor's values in double precision, with its shape."""
    return np.asarray(tensor.detach().to("cpu", torch.float64).numpy())


def require_same(first: Numbers, other: Numbers) -> None:
    """Let only an example pass of which the recipe says the same things as of the first one.

    Raises:
        GateError: other names, or another number of classes or dimensions.
    """
    for method, was, now in (
        ("losses", _scales(first), _scales(other)),
        ("evaluate", list(first.metrics), list(other.metrics)),
        ("embed", _size(first.embedding), _size(other.embedding)),
        ("classify", _size(first.probabilities), _size(other.probabilities)),
    ):
        if was != now:
            raise _wrong(method, f"{now} for one example and {was} for another", "the same for every example")


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


def _metrics(subject: Subject, given: Any) -> dict[str, float]:
    taken = OWN.union(*(names for method, names in OWN_OF.items() if subject.has(method)))
    found = {}
    for name, values in _mapping(given, "evaluate").items():
        if name in taken or name.startswith(OWN_PREFIXES):
            raise _wrong("evaluate", f"{name}, which raykit works out itself", "any other name")
        if not isinstance(values, torch.Tensor) or values.shape != (1,):
            raise _wrong(
                "evaluate", f"{name} in another shape", "a tensor with one number per example, here of one"
            )
        found[name] = float(values.double()[0])
    return found


def _embedding(given: Any) -> Array:
    if not isinstance(given, torch.Tensor) or given.dim() != 2 or len(given) != 1 or not given.numel():
        raise _wrong("embed", "another shape", "a tensor [examples, dimensions], here of one example")
    return to_array(given[0])


def _classes(given: Any) -> Classes:
    if not isinstance(given, Classes) or len(given.label) != 1:
        raise _wrong("classify", "something else", "Classes with one row per example, here of one")
    return given


def _text(given: Any) -> Text:
    if not isinstance(given, Text) or len(given.nats) != 1:
        raise _wrong("text", "something else", "Text with one number per example, here of one")
    return given


def _mapping(given: Any, method: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise _wrong(method, "something else", "a dict by name")
    return given


def _wrong(method: str, what: str, rule: str) -> GateError:
    return GateError(f"the recipe's {method}() gives {what}", field=f"recipe.{method}", rule=rule)
