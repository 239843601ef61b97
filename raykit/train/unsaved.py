"""What a state_dict forgets: attributes that training changes and no checkpoint holds.

It decides nothing. The resume gate measures what a resume loses; this gives the loss a name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from raykit.data.content import content_digest
from raykit.errors import PlanError
from raykit.train.state import Live

MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))
"""What every module has: parameters, buffers and children, which are looked at by themselves, and hooks."""

MAX_ELEMENTS = 1_000_000


def unsaved(live: Live) -> dict[str, str]:
    """The digests of small attributes of modules and recipe that are in no state_dict, by name."""
    told = {name: content_or_none(_value(attribute)) for name, attribute in _attributes(live)}
    return {name: digest for name, digest in told.items() if digest is not None}


def content_or_none(value: Any) -> str | None:
    """The digest of what `value` holds; None if it has no stable bytes."""
    try:
        return content_digest(value)
    except PlanError:
        return None


def _attributes(live: Live) -> Iterator[tuple[str, Any]]:
    for path, module in live.model.named_modules():
        where = f"model.{path}." if path else "model."
        for name, value in vars(module).items():
            if name not in MODULE_ATTRIBUTES:
                yield where + name, value
        for name in module._non_persistent_buffers_set:
            yield where + name, module._buffers[name]
    saved = live.recipe.state_dict() if hasattr(live.recipe, "state_dict") else {}
    for name, value in getattr(live.recipe, "__dict__", {}).items():
        if name not in saved:
            yield f"recipe.{name}", value


def _value(attribute: Any) -> Any:
    """What can be compared of an attribute: a number, a text, a small array, the state of a generator."""
    match attribute:
        case None | bool() | int() | float() | str():
            return attribute
        case torch.Tensor() if attribute.numel() <= MAX_ELEMENTS:
            return attribute
        case np.ndarray() if attribute.size <= MAX_ELEMENTS:
            return attribute
        case np.random.Generator():
            return attribute.bit_generator.state
        case np.random.RandomState():
            return attribute.get_state(legacy=False)
        case random.Random():
            return attribute.getstate()
        case torch.Generator():
            return attribute.get_state()
    return _NOTHING


_NOTHING = object()  # has no stable bytes
