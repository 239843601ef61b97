"""Training runs on Ray that resume bit for bit, on a store that cannot lie.

What is here is imported when it is first used, so that `import raykit` costs nothing and reading a store needs
neither ray nor torch.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raykit.read import Root, open
    from raykit.train.recipe import Field, LossTerm, Recipe

__all__ = ["Field", "LossTerm", "Recipe", "Root", "__version__", "open"]

_HOMES = {
    "Field": "raykit.train.recipe",
    "LossTerm": "raykit.train.recipe",
    "Recipe": "raykit.train.recipe",
    "Root": "raykit.read",
    "open": "raykit.read",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("raykit")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raykit' has no attribute {name!r}")
