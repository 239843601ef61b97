"""Frozen code and the environment record: what a run was made of, kept in the store.

The recipe's folder becomes one deterministic tar, named by its sha256. Workers import that copy; editing the
checkout cannot touch a live run. A clean git tree is never demanded: the revision and the difference are kept.
"""

from __future__ import annotations

import io
import os
import platform
import re
import subprocess
import tarfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from raykit.errors import CorruptError, NotFoundError, PlanError
from raykit.ids import canonical, sha256
from raykit.records import Versioned
from raykit.store import layout
from raykit.store.base import ObjectStore

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_CODE_BYTES = 64 * 1024 * 1024
MAX_DIFF_BYTES = 4 * 1024 * 1024
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

    Raises:
        PlanError: the folder holds more code than raykit keeps, or a symbolic link that leaves it.
    """
    files: dict[str, bytes] = {}
    total = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_skipped(Path(parent) / name))
        for name in sorted(names):
            path = Path(parent) / name
            if name.startswith(".") or path.suffix not in CODE_SUFFIXES or name.endswith(".lock"):
                continue
            if path.is_symlink() and folder.resolve() not in path.resolve().parents:
                raise PlanError(f"{path} is a link out of the recipe's folder", field="recipe")
            if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                continue
            data = path.read_bytes()
            if path.suffix == ".toml" and _is_plan(data):
                continue
            total += len(data)
            if total > MAX_CODE_BYTES:
                raise PlanError(
                    f"{folder} holds more than {MAX_CODE_BYTES // 2**20} MiB of code",
                    field="recipe",
                    remedy="put the recipe in a folder of its own",
                )
            files[path.relative_to(folder).as_posix()] = data
    return files


def _is_plan(data: bytes) -> bool:
    """Whether a TOML file names a recipe, before its first table. Plans are frozen by themselves: they are not code."""
    first = re.search(rb"^\s*\[", data, re.MULTILINE)
    keys = data if first is None else data[: first.start()]
    return re.search(rb"""^recipe\s*=\s*["'][\w.]+:\w+["']""", keys, re.MULTILINE) is not None


def _is_skipped(folder: Path) -> bool:
    """Caches, hidden folders, and stores of raykit under whatever name: what a run writes is never its code."""
    return folder.name in SKIPPED_FOLDERS or folder.name.startswith(".") or (folder / "experiments").is_dir()


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


def environment(folder: Path) -> Environment:
    """The record of this process, this machine and the revision of `folder`."""
    revision = _git(folder, "rev-parse", "HEAD")
    diff = None if revision is None else _git(folder, "diff", "HEAD", "--", ".")
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        packages={
            d.name: d.version for d in sorted(metadata.distributions(), key=lambda d: d.name) if d.name
        },
        cpu_count=os.cpu_count() or 1,
        cpu_model=_cpu_model(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        image=os.environ.get("RAYKIT_IMAGE"),
        git_revision=None if revision is None else revision.strip(),
        git_dirty=None if diff is None else bool(diff.strip()),
        git_diff=None if not diff else diff[:MAX_DIFF_BYTES],
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - git from PATH, or none
            capture_output=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


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
