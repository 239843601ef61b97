"""What `LocalStore` asks of the operating system: calls that change a disk, files opened without following links, and
what a refusal means for people.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping

from raykit.errors import CorruptError, RaykitError, StoreUnavailableError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The root is the operator's own path: it may be, or lie behind, a symbolic link.
ROOT = _FOLDER & ~os.O_NOFOLLOW
# O_NONBLOCK: opening a planted FIFO must not wait for its writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Disk:
    """The system calls by which `LocalStore` changes a disk, and nothing else.

    Fault tests put a subclass in its place (`raykit.testing.FaultDisk`, `raykit.testing.RecordingDisk`).
    """

    def make_folder(self, name: str, folder: int) -> None:
        os.mkdir(name, 0o700, dir_fd=folder)

    def create(self, name: str, folder: int) -> int:
        return os.open(name, _CREATE, 0o600, dir_fd=folder)

    def write(self, file: int, data: memoryview) -> int:
        return os.write(file, data)

    def sync(self, file: int) -> None:
        os.fsync(file)

    def link(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def replace(self, name: str, folder: int, new_name: str, new_folder: int) -> None:
        os.replace(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def remove(self, name: str, folder: int) -> None:
        os.unlink(name, dir_fd=folder)

    def sync_folder(self, folder: int) -> None:
        os.fsync(folder)


# --- opening ------------------------------------------------------------------------------------------------


def is_object(found: os.stat_result, path: str) -> bool:
    """Whether it is an object rather than a folder.

    Raises:
        CorruptError: it is neither.
    """
    if stat.S_ISREG(found.st_mode):
        return True
    if stat.S_ISDIR(found.st_mode):
        return False
    raise foreign(path)


def foreign(path: str) -> CorruptError:
    """What is said of a link, a device or a pipe in a store."""
    return CorruptError(
        f"{path} is not a regular file or folder",
        field=path,
        rule="no symbolic links, devices or pipes in a store",
        remedy="find out who put it there; raykit never follows or removes it",
    )


def open_folder(part: str, parent: int, path: str) -> int:
    """Open the folder `part` of another; `path` is what people are told.

    Raises:
        CorruptError: it is a link, a device or a pipe.
        NotADirectoryError: it is an object.
        OSError: what else the disk refuses.
    """
    try:
        return os.open(part, _FOLDER, dir_fd=parent)
    except OSError as error:
        # For a link the kernel says ELOOP or ENOTDIR, for an object ENOTDIR. A folder was a link just now.
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not is_object(os.stat(part, dir_fd=parent, follow_symlinks=False), path):
            raise foreign(path) from error
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def open_object(name: str, folder: int, key: str) -> int:
    """Open an object for reading.

    Raises:
        CorruptError: it is a link, a device or a pipe.
        IsADirectoryError: it is a folder.
        OSError: what else the disk refuses.
    """
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        # What the kernel says of a symbolic link and of a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise foreign(key) from error
        raise
    try:
        if not is_object(os.fstat(file), key):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except BaseException:
        os.close(file)
        raise
    return file


def start_writeback(file: int, offset: int, size_bytes: int) -> None:
    """Let the system begin to write what it holds of a file; nothing depends on it."""
    # Linux answers this advice by starting to write the dirty pages, which nothing else in the standard
    # library can ask for: the fsync at the end then has little left to wait for.
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file, offset, size_bytes, os.POSIX_FADV_DONTNEED)


# --- what a refusal means -----------------------------------------------------------------------------------


Cure = tuple[str | None, str | None]
_WRITABLE: Cure = ("a folder that this user can write", "change its permissions, or choose another root")
_LINKS: Cure = ("hard links within one file system", "choose a root on a file system such as ext4 or xfs")
_SYNCED: Cure = ("a file system on which folders can be synced", "choose a root on ext4, xfs or NFS")
_SPACE: Cure = (None, "free space, then run the same command again")
CURES: Mapping[int, Cure] = {
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.EROFS: _WRITABLE,
    errno.ENOTDIR: ("a folder", "choose another root"),
    errno.EINVAL: _SYNCED,
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EMFILE: (None, "raise `ulimit -n`, then run the same command again"),
}
LINK_CURES: Mapping[int, Cure] = {
    **CURES,
    **dict.fromkeys((errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV), _LINKS),
}


@contextlib.contextmanager
def closing(file: int, doing: str) -> Iterator[int]:
    """Close a file in the end.

    Raises:
        StoreUnavailableError: closing it failed.
    """
    try:
        yield file
    finally:
        # A network file system may say only here that there is no space.
        with answering(doing):
            os.close(file)


@contextlib.contextmanager
def answering(doing: str, cures: Mapping[int, Cure] | None = None) -> Iterator[None]:
    """Turn what the operating system refuses into what people can act on.

    Raises:
        StoreUnavailableError: it refused; with the rule and the remedy of `cures`, where they have its number.
    """
    try:
        yield
    except RaykitError:
        raise
    except OSError as error:
        rule, remedy = (cures or CURES).get(error.errno or 0, (None, None))
        raise StoreUnavailableError(
            f"cannot {doing}: {reason(error)}", value=reason(error), rule=rule, remedy=remedy
        ) from error


def reason(error: OSError) -> str:
    """The system's own words for a refusal."""
    return os.strerror(error.errno) if error.errno else type(error).__name__
