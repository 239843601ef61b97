"""A folder for others, outside of every store: it appears whole, with everything in it, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raykit.errors import InvalidInput, RaykitError
from raykit.store import layout


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside it to write into, which takes its place once everything is written.

    Raises:
        InvalidInput: something is in its place, or it cannot be written; nothing that is there is touched.
    """
    require_new(folder)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    try:
        beside.mkdir(parents=True)
        yield beside
        _sync(beside)
        _appear(beside, folder)
    except BaseException as error:  # whatever ends it, an interrupt too: nothing half-written is left
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, OSError) and not isinstance(error, RaykitError):
            raise _unwritable(folder, error) from error
        raise


def write(target: Path, data: bytes) -> None:
    """Write a file that is not there yet, for good.

    Raises:
        OSError: the disk did not take it.
    """
    with target.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def require_new(folder: Path) -> None:
    """Let only a folder pass that is not there, or is empty, and lies in no store.

    Raises:
        InvalidInput: something is there, or it would lie among the objects of a store; nothing of it is touched.
    """
    _require_outside(folder)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise _taken(folder, "is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise _taken(folder, "is not empty")


def _require_outside(folder: Path) -> None:
    """A store holds its own objects alone: what else lies in it is `unknown` to every check, and in a writer's way."""
    place = folder.resolve()
    root = next((each for each in (place, *place.parents) if _holds_store(each)), None)
    if root is not None:
        raise InvalidInput(
            f"{folder} lies in the store at {root}",
            field="DIR",
            value=str(folder),
            rule="a folder outside of every store: an export is for others, and no part of one",
            remedy="give another DIR",
        )


def _holds_store(folder: Path) -> bool:
    """Whether a folder is the root of a store: it has entries of an experiment's log, or of the root's own."""
    logs = (f"{layout.experiments()}/*/log", layout.candidates_log(), layout.fleet_log())
    found = (entry for log in logs for entry in folder.glob(f"{log}/*.json"))
    return any(layout.known(entry.relative_to(folder).as_posix()) is not None for entry in found)


def _taken(folder: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{folder} {what}",
        field="DIR",
        value=str(folder),
        rule="a folder that is not there yet, or an empty one: an export never replaces anything",
        remedy="give another DIR",
    )


def _unwritable(folder: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"{folder} cannot be written: {error.strerror}", field="DIR", value=str(folder))


def _appear(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)  # onto nothing, or onto an empty folder
    except OSError:
        require_new(folder)
        raise
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
