"""What of a folder is a recipe's own code.

A module beside the plan stands for its folder. A module with dots is in a package, whose root is often a whole
checkout: its own code is the top package. In both cases what they import of the root is theirs too, in whatever folder
it lies: one that is passed over otherwise, such as `build` or a store, is not where it is imported from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from raykit.errors import PlanError
from raykit.records import Difference
from raykit.train import facts, frozen
from raykit.train.find_recipe import modules_of
from raykit.train.imports import imports_of

_AT_RUN_TIME = frozenset({"importlib", "pkgutil", "runpy"})
"""What imports modules by names that are worked out when it runs."""


def own_files(spec: str, folder: Path) -> dict[str, bytes]:
    """The recipe's own code, by its name relative to `folder`. Imports the recipe.

    Raises:
        PlanError: the recipe cannot be imported, or something that may be its code cannot be had.
    """

    def read(name: str) -> bytes | None:
        return frozen.read_file(folder, name)

    files = _whole(spec, folder)
    begins = [_module(spec)] if _top_package(spec) is not None else [_module(spec), *_modules_in(files)]
    files |= _reached(begins, read)[0]
    for name in modules_of(spec, folder):
        if Path(name).suffix in frozen.CODE_SUFFIXES and (data := read(name)) is not None:
            files[name] = data
    if sum(map(len, files.values())) > frozen.MAX_CODE_BYTES:
        raise frozen.too_much(folder)
    return files


def _whole(spec: str, folder: Path) -> dict[str, bytes]:
    """What is taken whole: the folder of a module beside the plan, or the top package."""
    package = _top_package(spec)
    if package is None:
        return frozen.folder_files(folder)
    if not (folder / package).is_dir():
        return {}  # it is installed, and nobody's to freeze
    inside = frozen.folder_files(_below(folder, package))
    return {f"{package}/{name}": data for name, data in inside.items()}


def scope_of(spec: str, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Where the recipe's own code lies: the folder, or the packages and modules of a root that it is made of."""
    if _top_package(spec) is None or not files:
        return (".",)
    return tuple(sorted({name.partition("/")[0] for name in files}))


def code_differences(spec: str, was: Mapping[str, bytes], now: Mapping[str, bytes]) -> Iterator[Difference]:
    """The differences of two frozen copies, as far as they are the recipe's own code.

    An earlier version froze the whole root of a package. What is not frozen any more and was not imported makes no
    difference; where the recipe imports by names that nobody can read, all of it may have been.
    """
    own = _own_names(spec, was)
    yield from facts.of_code({name: data for name, data in was.items() if name in own or name in now}, now)


def _own_names(spec: str, files: Mapping[str, bytes]) -> frozenset[str]:
    package = _top_package(spec)
    if package is None:
        return frozenset(files)
    reached, unclear = _reached([_module(spec)], files.get)
    if unclear:
        return frozenset(files)
    return frozenset(name for name in files if name in reached or name.startswith(f"{package}/"))


def _module(spec: str) -> str:
    return spec.partition(":")[0]


def _top_package(spec: str) -> str | None:
    """The package that the recipe's module is in; None for a module that is in none."""
    top, dot, _ = _module(spec).partition(".")
    return top if dot else None


def _below(folder: Path, package: str) -> Path:
    if (folder / package).resolve().parent == folder.resolve():
        return folder / package
    raise PlanError(
        f"{frozen.shown(folder / package)} is a link to a folder elsewhere",
        field="recipe",
        rule="a package that lies where it is imported from",
        remedy="put the plan where the package is, or the package beside the plan",
    )


# --- imports ------------------------------------------------------------------------------------------------


def _modules_in(files: Mapping[str, bytes]) -> list[str]:
    """The modules that these files are, by the names that a program in their root imports them by."""
    names = (PurePosixPath(name).with_suffix("") for name in files if name.endswith(".py"))
    return [".".join(name.parts).removesuffix(".__init__") for name in names]


def _reached(modules: Iterable[str], read: Callable[[str], bytes | None]) -> tuple[dict[str, bytes], bool]:
    """The files of modules, and of all that they import, now or when called; and whether some are not clear.

    By their text alone, so that it is the same on every machine, and of a frozen copy as of a checkout. What is not
    in the root, such as an installed package, is not there to read. Workers have a raykit of their own.
    """
    found: dict[str, bytes] = {}
    unclear = False
    waiting = list(modules)
    asked = set(waiting)
    while waiting:
        for name in _files_of(waiting.pop()):
            data = None if name in found else read(name)
            if data is None:
                continue
            found[name] = data
            for imported in imports_of(data, PurePosixPath(name).parent.parts):
                top = imported.partition(".")[0]
                unclear = unclear or top in _AT_RUN_TIME
                if imported not in asked and top != "raykit":
                    asked.add(imported)
                    waiting.append(imported)
    return found, unclear


def _files_of(module: str) -> Iterator[str]:
    """Where a module's file may be, and those of the packages that it is in."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        path = "/".join(parts[:count])
        yield f"{path}/__init__.py"
        yield f"{path}.py"


__all__ = ["code_differences", "own_files", "scope_of"]
