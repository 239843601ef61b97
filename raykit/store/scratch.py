"""Temporary folders that name the process which made them, so that those of a dead one can be told and removed.

    <temporary folder>/raykit-<kind>-<place>-<pid>-<started>-<random>/

`place` is a digest of the machine, its boot and its namespace of process ids: a folder from anywhere else, in a
temporary folder that is shared, is not judged here. SIGKILL leaves such a folder; the next start removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from raykit.ids import digest_of
from raykit.records import Place
from raykit.store.place import gone, this_place

Kind = Literal["code", "resume", "gang", "job", "replay"]
"""The frozen code of an attempt; that of a resume; where the ranks of a gang meet; what a job keeps on its node; what
the process of a replay leaves."""

_PLACE_CHARS: Final = 8
_NAME: Final = re.compile(
    r"raykit-(?:code|resume|gang|job|replay)-(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-(?P<started>\d+)-\w+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A temporary folder whose process is gone."""

    path: Path
    size_bytes: int
    age_s: float


def make_scratch(kind: Kind) -> Path:
    """A new private folder of this process. Whoever makes it removes it, or `scratch` does."""
    me = this_place()
    return Path(tempfile.mkdtemp(prefix=f"raykit-{kind}-{_place(me)}-{me.pid}-{me.started}-"))


@contextmanager
def scratch(kind: Kind) -> Iterator[Path]:
    """A new private folder for the time of the block."""
    folder = make_scratch(kind)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def dead_scratch(folder: Path | None = None) -> list[Scratch]:
    """The temporary folders of this user whose process on this machine is gone, the oldest first."""
    now = time.time()
    found = []
    for path, made_at in _dead(folder or Path(tempfile.gettempdir())):
        found.append(Scratch(path=path, size_bytes=_size_bytes(path), age_s=max(now - made_at, 0.0)))
    return sorted(found, key=lambda each: -each.age_s)


def remove_dead_scratch(folder: Path | None = None) -> int:
    """Remove the temporary folders of this user whose process on this machine is gone; how many that were."""
    dead = [path for path, _ in _dead(folder or Path(tempfile.gettempdir()))]
    for path in dead:
        shutil.rmtree(path, ignore_errors=True)
    return len(dead)


def _dead(parent: Path) -> Iterator[tuple[Path, float]]:
    me = this_place()
    with os.scandir(parent) as entries:
        for entry in entries:
            named = _NAME.fullmatch(entry.name)
            if named is None or named["place"] != _place(me):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # its process has removed it meanwhile
                continue
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            maker = Place(host=me.host, boot=me.boot, pid=int(named["pid"]), started=int(named["started"]))
            if ours and gone(maker):
                yield Path(entry.path), status.st_mtime


def _place(place: Place) -> str:
    return digest_of({"host": place.host, "boot": place.boot})[:_PLACE_CHARS]


def _size_bytes(folder: Path) -> int:
    sizes = 0
    for path in folder.rglob("*"):
        try:
            sizes += path.lstat().st_size if not path.is_dir() else 0
        except FileNotFoundError:  # somebody else is removing it
            continue
    return sizes
