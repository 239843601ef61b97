"""How a plan's recipe is found: its module is imported from one folder, and never mistaken for another folder's."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raykit.errors import PlanError
from raykit.train.recipe import Recipe, asking
from raykit.train.surroundings import place_of_recipe

REQUIRED = ("model", "optimizer", "dataset", "losses")


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

    The folder stays on the path, for what a recipe imports when it is called: last, but in a worker before everything
    that is not installed.
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
            sys.path.insert(place_of_recipe(), root)
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


def own_modules(folder: Path) -> dict[str, types.ModuleType]:
    """The modules that a recipe has brought from a folder so far, by name."""
    root = str(folder.resolve())
    count, found = _own.get(root, (0, {}))
    if count != len(sys.modules) or any(sys.modules.get(key) is not module for key, module in found.items()):
        found = {key: sys.modules[key] for key in _modules_below(root, _there_before.get(root, frozenset()))}
        _own[root] = len(sys.modules), found
    return found


_own: dict[str, tuple[int, dict[str, types.ModuleType]]] = {}
"""By recipe folder: how many modules the process had when the recipe's were looked for, and those."""


@contextlib.contextmanager
def apart(folder: Path) -> Iterator[None]:
    """In the block, the modules of a recipe's folder are imported anew; after it, those of before are there again.

    What is made in the block shares no module, class or global of the recipe's own with what was made outside of it.
    """
    kept = _taken_out(folder)
    try:
        yield
    finally:
        _taken_out(folder)
        sys.modules.update(kept)


def _taken_out(folder: Path) -> dict[str, types.ModuleType]:
    root = str(folder.resolve())
    before = _there_before.get(root, frozenset())
    names = {*_modules_below(root, before), *_namespaces_below(root, before)}
    _own.pop(root, None)
    return {name: sys.modules.pop(name) for name in names}


def _namespaces_below(root: str, before: frozenset[str]) -> Iterator[str]:
    """The packages of a folder that are no file: they hold their modules as attributes."""
    for key, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) is None and key.partition(".")[0] not in before:
            places = [str(place) for place in getattr(module, "__path__", ())]
            if places and all(place.startswith(root + os.sep) for place in places):
                yield key


def modules_of(spec: str, folder: Path) -> list[str]:
    """The files, relative to `folder`, of the modules that importing a recipe brings from there.

    Raises:
        PlanError: it cannot be imported.
    """
    _import(spec.partition(":")[0], folder)
    root = str(folder.resolve())
    files = (sys.modules[key].__file__ for key in _modules_below(root, _there_before[root]))
    return sorted({Path(file).relative_to(root).as_posix() for file in files if file is not None})


def loaded_for(folder: Path) -> list[str]:
    """The modules that this process has got since a recipe came from a folder, wherever they are from."""
    before = _there_before.get(str(folder.resolve()))
    return [] if before is None else [name for name in sys.modules if name.partition(".")[0] not in before]


def recipe_folder(spec: str, plan: Path) -> Path:
    """Where a recipe's module is looked for: beside the plan file, or else in the working directory."""
    top = spec.partition(":")[0].partition(".")[0]
    beside = plan.resolve().parent
    if _has(beside, top):
        return beside
    return Path.cwd()
