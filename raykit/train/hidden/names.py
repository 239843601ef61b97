"""How findings are called where there are many."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

MANY = 3
"""More names than these below one attribute are told as that attribute."""


def collapsed(names: Iterable[str]) -> tuple[str, ...]:
    """Names in order, once each; many below one attribute as that attribute: `recipe.ema`."""
    found = list(dict.fromkeys(names))
    counts = Counter(map(_attribute, found))
    return tuple(dict.fromkeys(_attribute(n) if counts[_attribute(n)] > MANY else n for n in found))


def _attribute(name: str) -> str:
    """`recipe.ema` of `recipe.ema.fc.weight`; the global of a module's."""
    if name.startswith("module "):
        return name
    found = re.match(r"[^.\[]+\.[^.\[(]+", name)
    return found.group() if found is not None else name


__all__ = ["collapsed"]
