"""Training runs on Ray that resume bit for bit, on a store that cannot lie.

What is here is imported when it is first used, so that `import raykit` costs nothing and reading a store needs
neither ray nor torch.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raykit.data.generated import GeneratedSet, generated
    from raykit.read import Root, open
    from raykit.train.recipe import Classes, Field, Image, LossTerm, Recipe, Text
    from raykit.work.draws import Draws

__all__ = [
    "Classes",
    "Draws",
    "Field",
    "GeneratedSet",
    "Image",
    "LossTerm",
    "Recipe",
    "Root",
    "Text",
    "__version__",
    "generated",
    "open",
]

_HOMES = {
    "Classes": "raykit.train.recipe",
    "Draws": "raykit.work.draws",
    "Field": "raykit.train.recipe",
    "GeneratedSet": "raykit.data.generated",
    "Image": "raykit.train.recipe",
    "LossTerm": "raykit.train.recipe",
    "Recipe": "raykit.train.recipe",
    "Root": "raykit.read",
    "Text": "raykit.train.recipe",
    "generated": "raykit.data.generated",
    "open": "raykit.read",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("raykit")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'raykit' has no attribute {name!r}")
