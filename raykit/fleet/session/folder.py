"""The private folder of each session, and the record in it of what the session started.

    <temporary folder>/raykit-<uid>/        0700, ours, not a link
      <session>/
        started.jsonl                       who started it; then one line per process, as they appear
        token                               0600
        ray/                                Ray's own folders, which it makes 0777
        tmp/                                TMPDIR of everything that Ray starts

The temporary folder and not XDG_RUNTIME_DIR: the latter is small, and goes away when its user logs out.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raykit.errors import CorruptError, DeadlineError, InsecureClusterError, InvalidInput
from raykit.fleet.session.ports import Ports
from raykit.fleet.session.processes import ProcessId, identify
from raykit.records import Record, Versioned
from raykit.store.place import this_place

RECORD: Final = "started.jsonl"
TOKEN: Final = "token"  # noqa: S105 - the name of the file, not what is in it

_MAX_SOCKET_BYTES: Final = 103
"""What a unix socket's path may take everywhere: 107 bytes on Linux, 103 on macOS."""

_LONGEST: Final = "/01234567/ray/session_01234567/sockets/dash_MetricsHead"
_LOCK_TIMEOUT_S: Final = 60.0
_LOCK_POLL_S: Final = 0.05


class Launch(Versioned):
    """The first line of a record: who started the session, where that pid means something, and its ports."""

    session: str
    pid: int
    started: int
    name: str
    boot: str
    """The boot id and the namespace of process ids, as `this_place` has them."""
    ray: str
    first_port: int
    port_count: int
    at: float

    @property
    def process(self) -> ProcessId:
        """The launch process."""
        return ProcessId(pid=self.pid, started=self.started, name=self.name)

    @property
    def ports(self) -> Ports:
        """The block of ports that the session claimed."""
        return Ports(self.first_port, self.port_count)

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started again since."""
        return self.boot.partition("/")[0] == this_place().boot.partition("/")[0]

    @property
    def is_of_this_namespace(self) -> bool:
        """Whether its pids mean the same here; a container that shares the folder has other ones."""
        return self.boot == this_place().boot


class Started(Record):
    """One further line of a record: a process that the session started."""

    pid: int
    started: int
    name: str


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The folder of one session."""

    path: Path

    @property
    def session(self) -> str:
        """The id of the session."""
        return self.path.name

    @property
    def token_path(self) -> Path:
        """The file that holds the session's token."""
        return self.path / TOKEN

    @property
    def ray(self) -> Path:
        """Ray's temporary folder."""
        return self.path / "ray"

    @property
    def tmp(self) -> Path:
        """TMPDIR of Ray's processes."""
        return self.path / "tmp"

    def append(self, process: ProcessId) -> None:
        """Record a process durably."""
        line = Started(pid=process.pid, started=process.started, name=process.name)
        _append(self.path / RECORD, line.to_bytes() + b"\n")

    def read(self) -> tuple[Launch, list[ProcessId]]:
        """Who started the session, and what it recorded.

        Raises:
            CorruptError: the first line is missing or is not such a record.
        """
        try:
            first, *rest = (self.path / RECORD).read_bytes().split(b"\n")
        except OSError as error:
            raise CorruptError(f"{self.path} holds no readable {RECORD}") from error
        launch = Launch.from_bytes(first, f"{RECORD} of session {self.session}")
        processes = []
        for line in rest[:-1]:  # what follows the last newline was never finished
            process = Started.from_bytes(line, f"{RECORD} of session {self.session}")
            processes.append(ProcessId(pid=process.pid, started=process.started, name=process.name))
        return launch, processes

    def remove(self) -> None:
        """Remove the folder and all that is in it; another process may be removing it too."""
        shutil.rmtree(self.path, ignore_errors=True)


def parent_of(folder: Path | None) -> Path:
    """Where the sessions of this user lie: in `folder`, by default the temporary folder.

    Raises:
        InvalidInput: its path is too long for Ray's sockets.
    """
    name = f"raykit-{os.geteuid()}"
    parent = Path(tempfile.gettempdir() if folder is None else folder).absolute() / name
    if _is_short(parent):
        return parent
    if folder is None:
        return Path("/tmp") / name  # noqa: S108 - require_private() checks it
    raise InvalidInput(
        f"{folder} is too long a path for Ray's sockets",
        field="folder",
        rule=f"at most {_MAX_SOCKET_BYTES - len(_LONGEST) - len(name) - 1} bytes",
    )


def make_parent(folder: Path | None) -> Path:
    """`parent_of(folder)`, made if it is not there, and private.

    Raises:
        InvalidInput: its path is too long for Ray's sockets, or it cannot be made.
        InsecureClusterError: it is a link, someone else's, or open to others.
    """
    parent = parent_of(folder)
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        pass  # a file or a link that leads nowhere, which the next line refuses
    except OSError as error:
        raise InvalidInput(f"{parent} cannot be made: {error.strerror}", field="folder") from error
    require_private(parent)
    return parent


def require_private(parent: Path) -> None:
    """Refuse a folder that another user could read, write or have put there.

    Raises:
        InsecureClusterError: it is a link or a file, someone else's, or open to others.
    """
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise InsecureClusterError(f"{parent} is a link or a file", rule="a folder of your own, mode 0700")
    if status.st_uid != os.geteuid():
        raise InsecureClusterError(
            f"{parent} belongs to user id {status.st_uid}",
            rule="a folder of your own, mode 0700",
            remedy="set TMPDIR to a folder of your own",
        )
    if status.st_mode & 0o077:
        raise InsecureClusterError(
            f"{parent} is open to other users", rule="mode 0700", remedy=f"chmod 700 {parent}"
        )


@contextmanager
def locked(parent: Path) -> Iterator[None]:
    """Keep out whoever makes or removes a session folder in `parent`.

    Raises:
        DeadlineError: someone held the lock for a minute.
    """
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _lock(handle, parent)
        yield
    finally:
        os.close(handle)


def create(parent: Path, ports: Ports, *, ray_version: str) -> SessionFolder:
    """Make the folder of a new session, its token and the first line of its record. Hold the lock.

    Raises:
        InvalidInput: the folder cannot be written.
    """
    folder = SessionFolder(parent / secrets.token_hex(4))
    me = identify(os.getpid())
    assert me is not None
    launch = Launch(
        session=folder.session,
        pid=me.pid,
        started=me.started,
        name=me.name,
        boot=this_place().boot,
        ray=ray_version,
        first_port=ports.first,
        port_count=ports.count,
        at=time.time(),
    )
    try:
        for path in (folder.path, folder.ray, folder.tmp):
            path.mkdir(mode=0o700)
        _append(folder.path / RECORD, launch.to_bytes() + b"\n")
        _append(folder.token_path, secrets.token_hex(32).encode())
    except OSError as error:
        folder.remove()
        raise InvalidInput(f"{folder.path} cannot be written: {error.strerror}", field="folder") from error
    return folder


def sessions(parent: Path) -> list[SessionFolder]:
    """The session folders in `parent`, by id."""
    return [SessionFolder(path) for path in sorted(parent.iterdir()) if path.is_dir()]


def _is_short(parent: Path) -> bool:
    return len(os.fsencode(parent)) + len(_LONGEST) <= _MAX_SOCKET_BYTES


def _lock(handle: int, parent: Path) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise DeadlineError(f"another raykit has held {parent} for {_LOCK_TIMEOUT_S:g} s") from error
        time.sleep(_LOCK_POLL_S)


def _append(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o600)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)
