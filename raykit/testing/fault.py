"""Things that go wrong at a chosen operation: of any store, or of the disk under a `LocalStore`.

    FaultStore(store, Fault(reply_lost, at=3, when="after"))       # the third verb is done, its reply lost
    LocalStore(root, disk=FaultDisk(Fault(kill, at=5)))            # SIGKILL before the fifth system call
    LocalStore(root, disk=FaultDisk(Fault(disk_error(errno.ENOSPC), at=2, forever=True)))

A loop over `at` = 1, 2, 3, ... until a run is over without `fault.fired` covers every operation; a test
counts only if the fault fired.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, NoReturn

from raykit.errors import StoreUnavailableError, UnknownOutcomeError
from raykit.store.base import Data, Listed, ObjectStore, Stored
from raykit.store.disk import Disk


class Fault:
    """Call `act` before or after operation number `at`, from 1; with `forever`, at every later one too.

    `at=0` never fires and only counts. `operations` names the operations seen so far, for a test to aim at.
    """

    def __init__(
        self,
        act: Callable[[], None] = lambda: None,
        *,
        at: int = 0,
        when: Literal["before", "after"] = "before",
        forever: bool = False,
    ) -> None:
        self.operations: list[str] = []
        self.fired = False
        self._act = act
        self._at = at
        self._when = when
        self._forever = forever

    @contextlib.contextmanager
    def around(self, operation: str) -> Iterator[None]:
        """Count one operation, done inside, and let it go wrong if it is the one."""
        self.operations.append(operation)
        count = len(self.operations)
        due = count == self._at or (self._forever and 0 < self._at < count)
        if due and self._when == "before":
            self._fire()
        yield
        if due and self._when == "after":
            self._fire()

    def _fire(self) -> None:
        self.fired = True
        self._act()


def kill() -> NoReturn:
    """End this process as `kill -9` does: nothing is flushed, no handler runs."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlived SIGKILL")


def delay(seconds: float) -> Callable[[], None]:
    """Let time pass."""
    return lambda: time.sleep(seconds)


def disk_error(number: int) -> Callable[[], None]:
    """Fail as the operating system does, with `errno.ENOSPC`, `errno.EIO`, ...: for a `FaultDisk`."""

    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


def unavailable(number: int = errno.EIO) -> Callable[[], None]:
    """Fail as a store does that did nothing: for a `FaultStore`, before an operation."""

    def act() -> None:
        raise StoreUnavailableError(f"the store failed: {os.strerror(number)}") from OSError(
            number, "injected"
        )

    return act


def reply_lost() -> None:
    """Fail as a store does that cannot say what happened: for a `FaultStore`, after an operation.

    Raises:
        UnknownOutcomeError: always.
    """
    raise UnknownOutcomeError("the reply was lost, and so was the read-back")


class FaultStore:
    """`inner`, with one fault. One verb is one operation, named "verb key"."""

    def __init__(self, inner: ObjectStore, fault: Fault | None = None) -> None:
        self.inner = inner
        self.fault = fault or Fault()

    @property
    def url(self) -> str:
        return self.inner.url

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        with self.fault.around(f"get {key}"):
            return self.inner.get(key, max_bytes=max_bytes)

    def open(self, key: str) -> BinaryIO:
        with self.fault.around(f"open {key}"):
            return self.inner.open(key)

    def put_new(self, key: str, data: Data) -> Stored:
        with self.fault.around(f"put_new {key}"):
            return self.inner.put_new(key, data)

    def list(self, prefix: str) -> Iterator[Listed]:
        with self.fault.around(f"list {prefix}"):
            return self.inner.list(prefix)

    def head(self, key: str) -> int | None:
        with self.fault.around(f"head {key}"):
            return self.inner.head(key)

    def put_derived(self, key: str, data: Data) -> None:
        with self.fault.around(f"put_derived {key}"):
            self.inner.put_derived(key, data)

    def delete(self, key: str) -> None:
        with self.fault.around(f"delete {key}"):
            self.inner.delete(key)


class FaultDisk(Disk):
    """`inner`, with one fault. Each call that changes the disk is one operation, named as its method."""

    def __init__(self, fault: Fault | None = None, inner: Disk | None = None) -> None:
        self.fault = fault or Fault()
        self._inner = inner or Disk()

    def make_folder(self, name: str, folder: int) -> None:
        with self.fault.around("make_folder"):
            self._inner.make_folder(name, folder)

    def create(self, name: str, folder: int) -> int:
        with self.fault.around("create"):
            return self._inner.create(name, folder)

    def write(self, file: int, data: memoryview) -> int:
        with self.fault.around("write"):
            return self._inner.write(file, data)

    def sync(self, file: int) -> None:
        with self.fault.around("sync"):
            self._inner.sync(file)

    def link(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        with self.fault.around("link"):
            self._inner.link(name, folder, new_name, new_folder)

    def replace(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        with self.fault.around("replace"):
            self._inner.replace(name, folder, new_name, new_folder)

    def remove(self, name: str, folder: int) -> None:
        with self.fault.around("remove"):
            self._inner.remove(name, folder)

    def sync_folder(self, folder: int) -> None:
        with self.fault.around("sync_folder"):
            self._inner.sync_folder(folder)
