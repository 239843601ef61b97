"""How a finding is called, and which names a plan or a person covers by one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

MANY = 3
"""More names than these below one attribute are told as that attribute."""


def name_of(path: str) -> str:
    """A path with its positions left open: `model.layers.3.calls` is `model.layers.*.calls`."""
    return re.sub(r"(?<=[.\[])\d+(?=[.\[\]]|$)", "*", path)


def collapsed(names: Iterable[str]) -> tuple[str, ...]:
    """Names in order, once each; many below one attribute as that attribute: `recipe.ema`."""
    found = list(dict.fromkeys(names))
    counts = Counter(map(_attribute, found))
    return tuple(dict.fromkeys(_attribute(n) if counts[_attribute(n)] > MANY else n for n in found))


def covers(said: Collection[str], path: str) -> bool:
    """Whether one of the names that were `said` is that of a path, or of something that holds it."""
    name = name_of(path)
    return any(_covers(each, name) or _covers(each, path) for each in said)


def _covers(said: str, name: str) -> bool:
    if name == said or (name.startswith(said) and name[len(said)] in ".[("):
        return True
    return "*" in said and "[" not in said and fnmatchcase(name, said)


def _attribute(name: str) -> str:
    """`recipe.ema` of `recipe.ema.fc.weight`; the global of a module's."""
    if name.startswith("module "):
        return name
    found = re.match(r"[^.\[]+\.[^.\[(]+", name)
    return found.group() if found is not None else name


__all__ = ["collapsed", "covers", "name_of"]
