"""What a process imports beside the recipe's own code, and from where.

A worker looks in what is installed, then in its frozen copy, then where its interpreter was told to look (PYTHONPATH,
an editable install): never in the folder that it, or its launch, was started in. Code that comes from neither the copy
nor an installed package is code outside: it is named, and bound by its digest, so that a resume over other code is not
exact.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from raykit.errors import GateError, PlanError
from raykit.records import CODE_OF
from raykit.train import frozen
from raykit.train.imports import imports_of

_MODULES: Final = frozenset({".py", ".so", ".pyd"})
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_NOT_ASKED: Final = sys.stdlib_module_names | {"", "raykit", "__main__", "__mp_main__"}

_stays: list[bool] = []
"""Not empty in a worker."""


def stay_inside() -> None:
    """Let this process, a worker's, import nothing from where it or its launch was started. Twice is fine."""
    sys.path[:] = worker_path()
    sys.path_importer_cache.clear()
    _stays[:] = [True]


@contextmanager
def naming_what_is_missing() -> Iterator[None]:
    """Refuse a recipe that imports, when it is called, what a worker does not have: trying again would not help.

    Raises:
        GateError: it does.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        what = error.name or str(error).strip().splitlines()[-1][:200]
        raise GateError(
            f"the recipe imports {what} when it is called, which is neither in its frozen copy nor installed",
            field="recipe",
            value=what,
            rule="code beside the recipe, which is frozen, or an installed package",
            remedy="spell its name out in an import statement, so that it is frozen; or install it: pip install -e",
        ) from error


def worker_path() -> list[str]:
    """What a worker keeps of this process's `sys.path`: what is installed, then what it was told to look in.

    Not the empty name, nor the working folder unless an installed package says that its code is there, nor what Ray
    adds of its driver: the folder of its script, and the one that it was started in.
    """
    working = os.path.realpath(os.curdir)
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    told = {os.path.abspath(path) for path in named if os.path.realpath(path) != working} | _linked()  # noqa: PTH100
    there = [path for path in dict.fromkeys(sys.path) if path]
    installed = [path for path in there if _is_installed(path)]
    rest = (path for path in there if path not in installed)
    return [*installed, *(path for path in rest if os.path.abspath(path) in told)]  # noqa: PTH100


def place_of_recipe() -> int:
    """Where on `sys.path` a recipe's folder stays for what it imports when it is called.

    In a worker before everything that is not installed: what the copy has is never taken from elsewhere.
    """
    if not _stays:
        return len(sys.path)
    return max((at + 1 for at, path in enumerate(sys.path) if _is_installed(path)), default=0)


def code_outside(folder: Path, files: Mapping[str, bytes], loaded: Iterable[str]) -> dict[str, str]:
    """The digests of the code outside that a recipe imports, now or when it is called, by the name of their fact.

    `files` are its own code in `folder`; `loaded` are the modules that this process has because of it.

    Raises:
        PlanError: some of it lies where no worker looks.
    """
    names = {each for name, data in files.items() if name.endswith(".py") for each in _imports(name, data)}
    own = {name.partition("/")[0].removesuffix(".py") for name in files}
    wanted = {name.partition(".")[0] for name in {*names, *loaded}} - own - _NOT_ASKED
    places = {top: _places(top, folder) for top in sorted(wanted)}
    return {f"{CODE_OF}{top}": _digest(found) for top, found in places.items() if found}


def unbound(folder: Path, loaded: Iterable[str], facts: Mapping[str, str]) -> list[str]:
    """Of the modules that this process has loaded: those of code outside that no fact binds."""
    tops = {name.partition(".")[0] for name in loaded} - _NOT_ASKED
    return [top for top in sorted(tops) if f"{CODE_OF}{top}" not in facts and _loaded_from(top, folder)]


def _imports(name: str, data: bytes) -> list[str]:
    """What a module of the recipe imports; what it imports by a relative name begins with a dot."""
    return list(imports_of(data, ("", *PurePosixPath(name).parent.parts)))


def _places(top: str, folder: Path) -> list[Path]:
    """Where a worker has the code outside of a package or module from; nothing if it is installed, or not there.

    Raises:
        PlanError: this process has it from where no worker looks.
    """
    spec = _found(top)
    if spec is not None:
        return _outside(_of_spec(spec), folder)
    here = _loaded_from(top, folder)
    started = {os.path.realpath(os.curdir), os.path.dirname(os.path.realpath(sys.argv[0]))}  # noqa: PTH120
    for place in here:
        if os.path.realpath(place.parent) in started:
            raise PlanError(
                f"the recipe imports {top} from {frozen.shown(place)}, where no worker looks",
                field="recipe",
                rule="code beside the recipe, which is frozen, or an installed package",
                remedy=f"put {top} beside the recipe, or install it: pip install -e",
            )
    return here


def _found(top: str) -> importlib.machinery.ModuleSpec | None:
    """As a worker would find it."""
    spec = importlib.machinery.PathFinder.find_spec(top, worker_path())
    if spec is not None and spec.origin is not None:
        return spec
    ours = (
        importlib.machinery.PathFinder,
        importlib.machinery.BuiltinImporter,
        importlib.machinery.FrozenImporter,
    )
    for finder in sys.meta_path:
        if finder in ours or not hasattr(finder, "find_spec"):
            continue
        other = finder.find_spec(top, None)  # such as that of an editable install
        if other is not None:
            return other
    return spec


def _of_spec(spec: importlib.machinery.ModuleSpec) -> list[Path]:
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _loaded_from(top: str, folder: Path) -> list[Path]:
    """Where this process has the code outside of that name from."""
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None)
    places = [*getattr(module, "__path__", ())] or ([file] if isinstance(file, str) else [])
    return _outside([Path(place) for place in places], folder)


def _outside(places: Iterable[Path], folder: Path) -> list[Path]:
    own = os.path.realpath(folder)
    return [
        place
        for place in places
        if not _is_installed(str(place)) and not f"{os.path.realpath(place)}{os.sep}".startswith(own + os.sep)
    ]


def _digest(places: Iterable[Path]) -> str:
    """One digest of every module in these files and folders; of what is too much, names and sizes."""
    found, read = hashlib.sha256(), 0
    for place in places:
        for name, path in _modules(place):
            try:
                size = path.stat().st_size
                read += size
                data = path.read_bytes() if read <= frozen.MAX_CODE_BYTES else str(size).encode()
            except OSError:
                continue  # it is gone, or nobody may read it: it is not imported either
            found.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()[:16]


def _modules(place: Path) -> Iterator[tuple[str, Path]]:
    """The modules in a folder by their names below it, sorted; of a file itself."""
    if not place.is_dir():
        yield place.name, place
        return
    for folder, below, names in os.walk(place):
        below[:] = sorted(name for name in below if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in _MODULES:
                yield path.relative_to(place).as_posix(), path


@cache
def _is_installed(path: str) -> bool:
    """Whether a file or folder belongs to Python or to what was installed into it."""
    found = Path(os.path.realpath(path))
    if _INSTALLED & {*found.parts}:
        return True
    return any(place == found or place in found.parents for place in _places_of_python())


@cache
def _places_of_python() -> frozenset[Path]:
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    version = f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    zipped = [str(Path(place).parent / version) for place in named if place]
    return frozenset(Path(os.path.realpath(place)) for place in [*named, *zipped] if place)


@cache
def _linked() -> frozenset[str]:
    """The folders that installed packages say their code is in."""
    found = set()
    for place in [*site.getsitepackages(), site.getusersitepackages()]:
        for link in Path(place).glob("*.pth") if Path(place).is_dir() else ():
            lines = link.read_text(errors="replace").splitlines()
            named = (line.strip() for line in lines if not line.startswith(("import ", "import\t", "#")))
            found |= {os.path.abspath(Path(place, name)) for name in named if name}  # noqa: PTH100
    return frozenset(found)
