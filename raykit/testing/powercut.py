"""What a power cut can leave of what a `LocalStore` did.

`RecordingDisk` does every operation and notes it. `PowerCut.states` then plays the power cut at every moment:
what was synced is there, and of the rest any choice of up to `max_lost` operations never reached the disk, or
all of them, in whatever order they were issued (a later one may survive an earlier one). A write can also be
cut in half. This is stricter than a journaling file system, as ALICE and CrashMonkey are.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from raykit.ids import NAME
from raykit.store.disk import Disk

KEPT, TORN, LOST = "kept", "torn", "lost"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change. `target` is what a sync of the same name makes durable: a file's number, or a folder."""

    verb: str
    target: int | str
    name: str = ""
    file: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        return f"{self.verb} {self.target}{f'/{self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True)
class State:
    """A disk after a power cut."""

    objects: Mapping[str, bytes]
    """Every visible key with its bytes."""
    acknowledged: Mapping[str, bytes]
    """The keys that `put_new` had answered for, with the bytes it was given."""
    story: str
    """When the power went, and what never reached the disk."""


class RecordingDisk(Disk):
    """A real disk that notes what is done to it. Call `acknowledge` when `put_new` has returned."""

    def __init__(self) -> None:
        self.trace: list[Operation] = []
        self._files = 0
        self._open: dict[int, int] = {}
        self._named: dict[str, int] = {}

    def acknowledge(self, key: str, data: bytes) -> None:
        """Note that `key` has been promised to hold `data`."""
        self.trace.append(Operation("acknowledge", "", key, data=data))

    def make_folder(self, name: str, folder: int) -> None:
        super().make_folder(name, folder)
        self.trace.append(Operation("make_folder", _path(folder), name))

    def create(self, name: str, folder: int) -> int:
        file = super().create(name, folder)
        self._files += 1
        self._open[file] = self._files
        self._name(_path(folder), name, self._files)
        return file

    def write(self, file: int, data: memoryview) -> int:
        written = super().write(file, data)
        self.trace.append(Operation("write", self._open[file], data=bytes(data[:written])))
        return written

    def sync(self, file: int) -> None:
        super().sync(file)
        self.trace.append(Operation("sync", self._open[file]))

    def link(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        super().link(name, folder, new_name, new_folder)
        self._name(_path(new_folder), new_name, self._named[f"{_path(folder)}/{name}"])

    def replace(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        super().replace(name, folder, new_name, new_folder)
        self._name(_path(new_folder), new_name, self._named[f"{_path(folder)}/{name}"])

    def remove(self, name: str, folder: int) -> None:
        super().remove(name, folder)
        self.trace.append(Operation("remove", _path(folder), name))

    def sync_folder(self, folder: int) -> None:
        super().sync_folder(folder)
        self.trace.append(Operation("sync", _path(folder)))

    def _name(self, folder: str, name: str, file: int) -> None:
        self._named[f"{folder}/{name}"] = file
        self.trace.append(Operation("name", folder, name, file))


@dataclass
class PowerCut:
    """The states that a power cut can leave of `trace`, recorded over a store at `root` that began empty."""

    root: Path
    trace: list[Operation]
    _safe_from: list[int] = field(init=False)

    def __post_init__(self) -> None:
        # The point in the trace from which each operation is durable; never, if nothing syncs it.
        synced: dict[int | str, int] = {}
        self._safe_from = [len(self.trace) + 1] * len(self.trace)
        for i in range(len(self.trace) - 1, -1, -1):
            operation = self.trace[i]
            if operation.verb == "sync":
                synced[operation.target] = i
            else:
                self._safe_from[i] = synced.get(operation.target, self._safe_from[i])

    def states(self, max_lost: int = 3, recent: int = 8) -> Iterator[State]:
        """Every moment, with every choice of up to `max_lost` of the last `recent` un-synced operations."""
        for cut in range(len(self.trace) + 1):
            loose = [
                i for i in range(cut) if self._safe_from[i] >= cut and self.trace[i].verb not in _NO_CHANGE
            ]
            yield self._state(cut, dict.fromkeys(loose, LOST))
            for count in range(max_lost + 1):
                for chosen in itertools.combinations(loose[-recent:], count):
                    for fates in itertools.product(*(self._fates(i) for i in chosen)):
                        yield self._state(cut, dict(zip(chosen, fates, strict=True)))

    def _fates(self, i: int) -> Collection[str]:
        return (LOST, TORN) if self.trace[i].verb == "write" else (LOST,)

    def _state(self, cut: int, fates: Mapping[int, str]) -> State:
        folders: set[str] = set()
        names: dict[str, int] = {}
        content: dict[int, bytes] = {}
        acknowledged: dict[str, bytes] = {}
        for i, operation in enumerate(self.trace[:cut]):
            fate = fates.get(i, KEPT)
            path = f"{operation.target}/{operation.name}"
            if operation.verb == "acknowledge":
                acknowledged[operation.name] = operation.data
            elif fate == LOST:
                continue
            elif operation.verb == "make_folder":
                folders.add(path)
            elif operation.verb == "name":
                names[path] = operation.file
            elif operation.verb == "remove":
                names.pop(path, None)
            elif operation.verb == "write":
                data = operation.data if fate == KEPT else operation.data[: len(operation.data) // 2]
                file = int(operation.target)
                content[file] = content.get(file, b"") + data
        return State(self._objects(folders, names, content), acknowledged, self._story(cut, fates))

    def _objects(
        self, folders: set[str], names: Mapping[str, int], content: Mapping[int, bytes]
    ) -> Mapping[str, bytes]:
        """What can be reached from the root by safe names."""
        root = f"{self.root}/"
        found = {}
        for path, file in names.items():
            *parents, name = path.removeprefix(root).split("/")
            reached = all(root + "/".join(parents[:depth]) in folders for depth in range(1, len(parents) + 1))
            if reached and root[:-1] in folders and all(map(NAME.fullmatch, (*parents, name))):
                found["/".join((*parents, name))] = content.get(file, b"")
        return found

    def _story(self, cut: int, fates: Mapping[int, str]) -> str:
        last = str(self.trace[cut - 1]) if cut else "the start"
        return f"power cut after {last}; " + ", ".join(
            f"{fate}: {self.trace[i]}" for i, fate in fates.items()
        )


_NO_CHANGE = ("sync", "acknowledge")


def _path(folder: int) -> str:
    return str(Path(f"/proc/self/fd/{folder}").readlink())
