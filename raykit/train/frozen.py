"""Frozen code and the environment record: what a run was made of, kept in the store.

The recipe's folder becomes one deterministic tar, named by its sha256. Workers import that copy; editing the
checkout cannot touch a live run. A clean git tree is never demanded: the revision and the difference are kept.
"""

from __future__ import annotations

import errno
import io
import os
import platform
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.ids import canonical, sha256
from raykit.records import Versioned
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.train.revision import Git

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_CODE_BYTES = 64 * 1024 * 1024
MAX_NAME_CHARS = 1000
SKIPPED_FOLDERS = frozenset({"__pycache__", "store", "node_modules", "build", "dist"})
CODE_SUFFIXES = frozenset({".py", ".toml", ".json", ".txt", ".cfg", ".yaml", ".yml", ".csv"})


class Environment(Versioned):
    """What ran: versions, hardware and revision. Compared by people; the exactness facts are elsewhere."""

    python: str
    platform: str
    packages: Mapping[str, str]
    cpu_count: int
    cpu_model: str
    memory_bytes: int
    image: str | None
    git_revision: str | None
    git_dirty: bool | None
    git_diff: str | None


def folder_files(folder: Path) -> dict[str, bytes]:
    """The code files of a recipe's folder by relative name. Plans, hidden files, caches and large data are not code.

    What is no file (a pipe, a socket, a link that leads nowhere) is no code either, and links to folders are not
    followed.

    Raises:
        PlanError: something that may be code cannot be had: a folder or file that cannot be read, a link out of the
            folder, a name that is too odd, a module that is too large, more code than raykit keeps.
    """
    files: dict[str, bytes] = {}
    total = 0
    for name in _code_names(folder):
        data = read_file(folder, name)
        if data is None or (name.endswith(".toml") and _is_plan(data)):
            continue
        files[name] = data
        total += len(data)
        if total > MAX_CODE_BYTES:
            raise too_much(folder)
    return files


def too_much(folder: Path) -> PlanError:
    """The refusal of more code than raykit keeps."""
    return PlanError(
        f"{shown(folder)} holds more than {MAX_CODE_BYTES // 2**20} MiB of code",
        field="recipe",
        rule=f"files of these kinds count, in folders that are not hidden: {' '.join(sorted(CODE_SUFFIXES))}",
        remedy="put the recipe in a folder of its own",
    )


def _code_names(folder: Path) -> Iterator[str]:
    """The relative names of what may be code, in folders however deep."""
    waiting = [folder]
    while waiting:
        parent = waiting.pop()
        try:
            with os.scandir(parent) as entries:
                found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            raise _unreadable(parent, error) from error
        for name, is_folder in found:
            path = parent / name
            if is_folder:
                if not _is_skipped(path):
                    waiting.append(path)
            elif not name.startswith(".") and path.suffix in CODE_SUFFIXES:
                yield path.relative_to(folder).as_posix()


def read_file(folder: Path, name: str) -> bytes | None:
    """One file of code below `folder`; None for what is no file, and for data that is too large to be code.

    Raises:
        PlanError: it cannot be read, leads out of the folder, has a name that is too odd, or is a module that is
            too large.
    """
    path = folder / name
    try:
        # a pipe is not waited for; a file that grows is not read for ever
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise _unreadable(path, error) from error
    if not _is_below(folder, path):
        raise PlanError(
            f"{shown(path)} is a link out of the recipe's folder",
            field="recipe",
            rule="a file, or a link to one in the folder",
            remedy="put a copy of the file there, or take the link away",
        )
    if not name.isprintable() or len(name) > MAX_NAME_CHARS:
        raise PlanError(
            f"{shown(path)} has a name that cannot be printed, or is too long",
            field="recipe",
            rule=f"names in UTF-8, without control characters, of up to {MAX_NAME_CHARS} characters with their folders",
            remedy="rename it, or take it away",
        )
    if len(data) <= MAX_FILE_BYTES:
        return data
    if path.suffix != ".py":
        return None
    raise PlanError(
        f"{shown(path)} is a module of more than {MAX_FILE_BYTES // 2**20} MiB",
        field="recipe",
        rule=f"modules of up to {MAX_FILE_BYTES // 2**20} MiB",
        remedy="keep data in files of another kind, outside of the recipe's folder",
    )


_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})
"""What opening says of links that lead nowhere or in a circle, of sockets, of devices and of folders."""


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _is_below(folder: Path, path: Path) -> bool:
    return Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents


def _unreadable(path: Path, error: OSError) -> PlanError:
    return PlanError(
        f"{shown(path)} cannot be read: {error.strerror}",
        field="recipe",
        rule="the recipe's code is kept, so all of it has to be readable",
        remedy="let it be read, or move it out of the recipe's folder",
    )


def shown(path: Path) -> str:
    """A path for a message, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_plan(data: bytes) -> bool:
    """Whether a TOML file names a recipe, before its first table. Plans are frozen by themselves: they are not code."""
    first = re.search(rb"^\s*\[", data, re.MULTILINE)
    keys = data if first is None else data[: first.start()]
    return re.search(rb"""^recipe\s*=\s*["'][\w.]+:\w+["']""", keys, re.MULTILINE) is not None


def _is_skipped(folder: Path) -> bool:
    """Caches, hidden folders, and stores of raykit under whatever name: what a run writes is never its code."""
    hidden = folder.name in SKIPPED_FOLDERS or folder.name.startswith(".")
    return hidden or os.path.isdir(folder / "experiments")  # noqa: PTH112 - which never raises


def pack(files: Mapping[str, bytes]) -> bytes:
    """A tar of `files` whose bytes depend on names and contents alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), 0o644, 0
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read_code(store: ObjectStore, experiment: str, digest: str) -> dict[str, bytes]:
    """The files of frozen code, verified before they are unpacked.

    Raises:
        CorruptError: missing, changed, or holding anything but plain files below it.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.code(experiment, digest)
    try:
        data = store.get(key, max_bytes=2 * MAX_CODE_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing") from error
    if sha256(data) != digest:
        raise CorruptError(f"{key} does not match its sha256")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for info in tar:
            path = Path(info.name)
            reader = tar.extractfile(info) if info.isreg() else None
            if reader is None or path.is_absolute() or ".." in path.parts:
                raise CorruptError(f"{key} holds {info.name!r}, which is not a plain file below it")
            files[info.name] = reader.read()
    return files


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write frozen files below `folder`, which is private to this process."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def environment(git: Git) -> Environment:
    """The record of this process and this machine, and of the revision that the code is from."""
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        packages=_packages(),
        cpu_count=os.cpu_count() or 1,
        cpu_model=_cpu_model(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        image=os.environ.get("RAYKIT_IMAGE"),
        git_revision=git.revision,
        git_dirty=git.dirty,
        git_diff=git.diff,
    )


@cache
def _packages() -> Mapping[str, str]:
    """The version of every installed package; a process does not see what is installed while it lives."""
    return {d.name: d.version for d in sorted(metadata.distributions(), key=lambda d: d.name) if d.name}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def write_code(store: ObjectStore, experiment: str, tar: bytes) -> str:
    """Keep frozen code; returns its digest. Raises what `put_new` raises."""
    digest = sha256(tar)
    store.put_new(layout.code(experiment, digest), tar)
    return digest


def write_environment(store: ObjectStore, experiment: str, record: Environment) -> str:
    """Keep the environment record; returns its digest. Raises what `put_new` raises."""
    data = canonical(record.plain())
    digest = sha256(data)
    store.put_new(layout.environment(experiment, digest), data)
    return digest


def read_environment(store: ObjectStore, experiment: str, digest: str) -> Environment:
    """An environment record, as it was stored.

    Raises:
        CorruptError: it is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.environment(experiment, digest)
    try:
        data = store.get(key)
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing") from error
    if sha256(data) != digest:
        raise CorruptError(f"{key} does not match its sha256")
    return Environment.from_bytes(data, key)
