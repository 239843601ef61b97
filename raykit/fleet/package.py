"""The files of the raykit that runs here, and their digest: which code a process has, whatever its version says."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import raykit

_SKIPPED: Final = frozenset({"__pycache__"})


def package_folder() -> Path:
    """Where this process has raykit from."""
    return Path(raykit.__file__).parent


def package_files() -> dict[str, bytes]:
    """Every file of this package by its name below the folder that holds it, such as `raykit/ids.py`, sorted."""
    folder = package_folder()
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _SKIPPED.intersection(path.parts) and path.suffix != ".pyc":
            found[f"raykit/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return found


def digest_of_files(files: dict[str, bytes]) -> str:
    """One sha256 for all of them, names included."""
    found = hashlib.sha256()
    for name, data in sorted(files.items()):
        found.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return found.hexdigest()


@cache
def package_digest() -> str:
    """What the package of this process comes to, as it was when it was first asked."""
    return digest_of_files(package_files())
