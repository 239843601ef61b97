"""A store in a folder: temporary file, fsync, `os.link`, fsync of the folder.

`os.link` never replaces, so of any number of writers exactly one creates a key, and a reader sees all of its
bytes or nothing. An answer about a key (written, already mine, conflict) is given only once the key would
survive a power cut. Every path is walked from the root by file descriptor and no symbolic link is followed.

    <root>/.tmp/<pid>-<random>     bytes on their way in; `leftovers` names those that a dead writer left
    <root>/<key>                   the objects, files 0600 in folders 0700
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from raykit.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.ids import NAME, safe_key
from raykit.store.base import Data, Listed, Put, Stored, chunks

TMP = ".tmp"

_WRITE_BYTES = 8 * 1024 * 1024
_HASH_BESIDE_BYTES = 256 * 1024
_MAX_KEY = 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The root is the operator's own path: it may be, or lie behind, a symbolic link.
_ROOT = _FOLDER & ~os.O_NOFOLLOW
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


class _Temporary(NamedTuple):
    name: str
    folder: int
    sha256: str
    size_bytes: int


class LocalStore:
    """An `ObjectStore` in the folder `path`, made at the first write."""

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk | None = None) -> None:
        self._root = Path(path).absolute()
        self._disk = disk or Disk()
        # Folders that are known to survive a power cut, so that each is synced once and not at every write.
        # It may be another process that made one a moment ago, hence "known", not "made here".
        self._durable: set[tuple[str, ...]] = set()

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    @property
    def url(self) -> str:
        """The absolute path of the root."""
        return str(self._root)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """All bytes of `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
            CorruptError: it is longer than `max_bytes`, or it is no regular file.
            StoreUnavailableError: the disk did not answer.
        """
        with self.open(key) as file, _answering(f"read {key}"):
            size_bytes = os.fstat(file.fileno()).st_size
            if max_bytes is not None and size_bytes > max_bytes:
                raise CorruptError(
                    f"{key} is {size_bytes} bytes long",
                    field=key,
                    value=size_bytes,
                    rule=f"at most {max_bytes}",
                )
            return file.read()

    def open(self, key: str) -> BinaryIO:
        """A streaming reader over `key`; close it.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
            CorruptError: a symbolic link, or something that is no regular file, is in its place.
            StoreUnavailableError: the disk did not answer.
        """
        *parts, name = safe_key(key).split("/")
        with _answering(f"open {key}"), self._folders(parts) as folders:
            try:
                if folders:
                    return os.fdopen(_open_object(name, folders[-1], key), "rb")
            except (FileNotFoundError, IsADirectoryError):
                pass
        raise NotFoundError(f"there is no {key} in {self.url}", field=key)

    def head(self, key: str) -> int | None:
        """The size of `key` in bytes, or None if there is no such object.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            CorruptError: a symbolic link, or something that is no regular file, is in its place.
            StoreUnavailableError: the disk did not answer.
        """
        *parts, name = safe_key(key).split("/")
        with _answering(f"look at {key}"), self._folders(parts) as folders:
            if not folders:
                return None
            try:
                found = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
            except FileNotFoundError:
                return None
            return found.st_size if _is_object(found, key) else None

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key is `prefix` + "/" + ..., in key order; `""` lists the root.

        One folder is read at a time, and no file stays open between two results.

        Raises:
            UnsafeNameError: `prefix` is not `/`-joined safe names.
            CorruptError: a symbolic link, or something that is no regular file, is there.
            StoreUnavailableError: the disk did not answer.
        """
        return self._walk(safe_key(prefix).split("/") if prefix else [])

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The folders directly below `prefix` that hold an object.

        Raises:
            UnsafeNameError: `prefix` is not `/`-joined safe names.
            CorruptError: a symbolic link, or something that is no regular file, is there.
            StoreUnavailableError: the disk did not answer.
        """
        parts = safe_key(prefix).split("/")
        with _answering(f"list {prefix}"), self._folders(parts) as folders:
            found = sorted(_entries(folders[-1], prefix)) if folders else []
        names = [name[:-1] for name, _ in found if name.endswith("/")]
        return tuple(name for name in names if next(self._walk([*parts, name]), None) is not None)

    def put_new(self, key: str, data: Data) -> Stored:
        """Create `key`, durably, unless it exists. A repeated put of the same bytes writes nothing.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            ConflictError: the key holds other bytes, or is a folder of other keys. Final.
            CorruptError: a symbolic link, or something that is no regular file, is in its place.
            UnknownOutcomeError: it was linked, but the folder could not be synced.
            StoreUnavailableError: nothing was written (no space, no permission, no hard links).
        """
        *parts, name = safe_key(key).split("/")
        if self.head(key) is not None:
            sha256, size_bytes = _digest(data)
            self._settle(key, sha256, size_bytes)
            return Stored(Put.ALREADY_MINE, sha256, size_bytes)
        with self._temporary(data, key, sync=True) as new:
            with _answering(f"create {key}"), self._folders(parts, make=True) as folders:
                if self._link(new, name, folders[-1], key):
                    self._sync_folders(key, parts, folders)
                    return Stored(Put.WRITTEN, new.sha256, new.size_bytes)
            self._settle(key, new.sha256, new.size_bytes)
        return Stored(Put.ALREADY_MINE, new.sha256, new.size_bytes)

    def put_derived(self, key: str, data: Data) -> None:
        """Create or replace `key`. Not synced: it can be drawn again.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            ConflictError: a part of the key is another object, or the key is a folder of other keys.
            CorruptError: a part of the path is a symbolic link.
            StoreUnavailableError: nothing was written (no space, no permission).
        """
        *parts, name = safe_key(key).split("/")
        with (
            self._temporary(data, key, sync=False) as new,
            _answering(f"write {key}"),
            self._folders(parts, make=True) as folders,
        ):
            try:
                self._disk.replace(new.name, new.folder, name, folders[-1])
            except IsADirectoryError as error:
                raise ConflictError(f"{key} is a folder of other keys", field=key) from error

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there. Its folder stays.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            CorruptError: a part of the path is a symbolic link.
            StoreUnavailableError: the disk did not answer, or does not permit it.
        """
        *parts, name = safe_key(key).split("/")
        with _answering(f"delete {key}"), self._folders(parts) as folders:
            if folders:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    self._disk.remove(name, folders[-1])

    def leftovers(self) -> Sequence[str]:
        """The temporary files that are there now: of a writer at work, or of one that died.

        Raises:
            CorruptError: `.tmp` is a symbolic link.
            StoreUnavailableError: the disk did not answer.
        """
        with _answering("list temporary files"), self._folders([TMP]) as folders:
            if not folders:
                return []
            with os.scandir(folders[-1]) as entries:
                return sorted(f"{TMP}/{entry.name}" for entry in entries)

    @contextlib.contextmanager
    def _folders(self, parts: Sequence[str], *, make: bool = False) -> Iterator[Sequence[int]]:
        """The open folders from the root down to `parts`; none if one is missing and not to be made."""
        opened: list[int] = []
        try:
            try:
                opened.append(self._open_root(make))
                for depth in range(1, len(parts) + 1):
                    opened.append(self._enter(tuple(parts[:depth]), opened[-1], make))
            except (FileNotFoundError, NotADirectoryError):
                if make:
                    raise
                yield []
            else:
                yield opened
        finally:
            for folder in opened:
                os.close(folder)

    def _open_root(self, make: bool) -> int:
        try:
            return os.open(self._root, _ROOT)
        except FileNotFoundError:
            if not make:
                raise
        missing = [p for p in (self._root, *self._root.parents) if not p.exists()]
        for path in reversed(missing):
            with _closing(os.open(path.parent, _ROOT), "make the root") as parent:
                with contextlib.suppress(FileExistsError):
                    self._disk.make_folder(path.name, parent)
                self._disk.sync_folder(parent)
        return os.open(self._root, _ROOT)

    def _enter(self, parts: tuple[str, ...], parent: int, make: bool) -> int:
        path = "/".join(parts)
        try:
            return _open_folder(parts[-1], parent, path)
        except FileNotFoundError:
            if not make:
                raise
        except NotADirectoryError as error:
            if make:
                raise ConflictError(f"{path} is an object, so no key can lie under it", field=path) from error
            raise
        self._durable.discard(parts)
        with contextlib.suppress(FileExistsError):
            self._disk.make_folder(parts[-1], parent)
        return _open_folder(parts[-1], parent, path)

    @contextlib.contextmanager
    def _temporary(self, data: Data, key: str, *, sync: bool) -> Iterator[_Temporary]:
        """`data` in a temporary file, which is gone afterwards."""
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        doing = f"write {key}"
        with contextlib.ExitStack() as stack:
            with _answering(doing):
                folder = stack.enter_context(self._folders([TMP], make=True))[-1]
                file = self._disk.create(name, folder)
            stack.callback(self._forget, name, folder)
            with _closing(file, doing):
                sha256, size_bytes = self._write_all(file, data, doing)
                if sync:
                    with _answering(doing):
                        self._disk.sync(file)
            yield _Temporary(name, folder, sha256, size_bytes)

    def _forget(self, name: str, folder: int) -> None:
        # The outcome does not depend on it: what stays behind is named by `leftovers`.
        with contextlib.suppress(OSError):
            self._disk.remove(name, folder)

    def _write_all(self, file: int, data: Data, doing: str) -> tuple[str, int]:
        """Write `data` and hash it, large pieces at the same time in a second thread."""
        digest = hashlib.sha256()
        size_bytes = 0
        with contextlib.ExitStack() as stack:
            beside: ThreadPoolExecutor | None = None
            for view in chunks(data):
                if len(view) < _HASH_BESIDE_BYTES:
                    digest.update(view)
                    self._write(file, view, size_bytes, doing)
                else:
                    beside = beside or stack.enter_context(ThreadPoolExecutor(1))
                    hashed = beside.submit(digest.update, view)
                    self._write(file, view, size_bytes, doing)
                    # Before the next piece is asked for: it may be made in the same buffer.
                    hashed.result()
                size_bytes += len(view)
        return digest.hexdigest(), size_bytes

    def _write(self, file: int, view: memoryview, offset: int, doing: str) -> None:
        with _answering(doing):
            while view:
                written = self._disk.write(file, view[:_WRITE_BYTES])
                if written >= _HASH_BESIDE_BYTES:
                    _start_writeback(file, offset, written)
                view = view[written:]
                offset += written

    def _link(self, new: _Temporary, name: str, folder: int, key: str) -> bool:
        """Whether `name` is now the new file; no if it was there already."""
        with _answering(f"create {key}", _LINK_CURES):
            try:
                self._disk.link(new.name, new.folder, name, folder)
            except FileExistsError:
                return False
            except OSError:
                # A network file system can make the link and lose the reply.
                if not _is_same_file(new, name, folder):
                    raise
        return True

    def _settle(self, key: str, sha256: str, size_bytes: int) -> None:
        """Return if the key that exists holds these bytes, for good."""
        *parts, name = key.split("/")
        with _answering(f"compare {key}"), self._folders(parts, make=True) as folders:
            if stat.S_ISDIR(os.stat(name, dir_fd=folders[-1], follow_symlinks=False).st_mode):
                raise ConflictError(f"{key} is a folder of other keys", field=key)
            with os.fdopen(_open_object(name, folders[-1], key), "rb") as held:
                same = (
                    os.fstat(held.fileno()).st_size == size_bytes
                    and hashlib.file_digest(held, "sha256").hexdigest() == sha256
                )
            # Its writer may have died between the link and the sync.
            self._sync_folders(key, parts, folders)
        if not same:
            raise ConflictError(f"{key} already holds other bytes", field=key)

    def _sync_folders(self, key: str, parts: Sequence[str], folders: Sequence[int]) -> None:
        try:
            self._disk.sync_folder(folders[-1])
            for depth in range(len(parts), 0, -1):
                path = tuple(parts[:depth])
                if path in self._durable:
                    break
                self._disk.sync_folder(folders[depth - 1])
            else:
                self._sync_root()
            self._durable.update(tuple(parts[:depth]) for depth in range(len(parts) + 1))
        except OSError as error:
            raise UnknownOutcomeError(
                f"{key} is in its place, but its folder could not be synced: {_reason(error)}",
                field=key,
                rule=_CURES.get(error.errno or 0, (None, None))[0],
                remedy="put the same bytes again",
            ) from error

    def _sync_root(self) -> None:
        if () in self._durable:
            return
        try:
            parent = os.open(self._root.parent, _ROOT)
        except PermissionError:
            # Who may not read the folder that holds the root has not made the root either.
            return
        with _closing(parent, "sync the root"):
            self._disk.sync_folder(parent)

    def _walk(self, parts: Sequence[str]) -> Iterator[Listed]:
        path = "/".join(parts)
        with _answering(f"list {path or self.url}"), self._folders(parts) as folders:
            found = sorted(_entries(folders[-1], path)) if folders else []
        for order, size_bytes in found:
            if order.endswith("/"):
                yield from self._walk([*parts, order[:-1]])
            else:
                yield Listed(f"{path}/{order}" if path else order, size_bytes)


def _entries(folder: int, path: str) -> Iterator[tuple[str, int]]:
    """Safe names in `folder` with sizes; a folder's name ends in "/", which is where its keys sort."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not NAME.fullmatch(entry.name) or len(path) + len(entry.name) >= _MAX_KEY:
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if _is_object(found, f"{path}/{entry.name}" if path else entry.name):
                yield entry.name, found.st_size
            else:
                yield f"{entry.name}/", 0


def _is_object(found: os.stat_result, path: str) -> bool:
    """Whether it is an object rather than a folder.

    Raises:
        CorruptError: it is neither.
    """
    if stat.S_ISREG(found.st_mode):
        return True
    if stat.S_ISDIR(found.st_mode):
        return False
    raise _foreign(path)


def _foreign(path: str) -> CorruptError:
    return CorruptError(
        f"{path} is not a regular file or folder",
        field=path,
        rule="no symbolic links, devices or pipes in a store",
        remedy="find out who put it there; raykit never follows or removes it",
    )


def _open_folder(part: str, parent: int, path: str) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=parent)
    except OSError as error:
        # For a link the kernel says ELOOP or ENOTDIR, for an object ENOTDIR. A folder was a link just now.
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        if not _is_object(os.stat(part, dir_fd=parent, follow_symlinks=False), path):
            raise _foreign(path) from error
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def _open_object(name: str, folder: int, key: str) -> int:
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        # What the kernel says of a symbolic link and of a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _foreign(key) from error
        raise
    try:
        if not _is_object(os.fstat(file), key):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except BaseException:
        os.close(file)
        raise
    return file


@contextlib.contextmanager
def _closing(file: int, doing: str) -> Iterator[int]:
    try:
        yield file
    finally:
        # A network file system may say only here that there is no space.
        with _answering(doing):
            os.close(file)


def _is_same_file(new: _Temporary, name: str, folder: int) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return os.path.samestat(found, os.stat(new.name, dir_fd=new.folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _digest(data: Data) -> tuple[str, int]:
    digest = hashlib.sha256()
    size_bytes = 0
    for view in chunks(data):
        digest.update(view)
        size_bytes += len(view)
    return digest.hexdigest(), size_bytes


def _start_writeback(file: int, offset: int, size_bytes: int) -> None:
    # Linux answers this advice by starting to write the dirty pages, which nothing else in the standard
    # library can ask for: the fsync at the end then has little left to wait for.
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(file, offset, size_bytes, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def _answering(doing: str, cures: Mapping[int, _Cure] | None = None) -> Iterator[None]:
    """Turn what the operating system refuses into StoreUnavailableError."""
    try:
        yield
    except RaykitError:
        raise
    except OSError as error:
        rule, remedy = (cures or _CURES).get(error.errno or 0, (None, None))
        raise StoreUnavailableError(
            f"cannot {doing}: {_reason(error)}", value=_reason(error), rule=rule, remedy=remedy
        ) from error


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else type(error).__name__


_Cure = tuple[str | None, str | None]
_WRITABLE: _Cure = ("a folder that this user can write", "change its permissions, or choose another root")
_LINKS: _Cure = ("hard links within one file system", "choose a root on a file system such as ext4 or xfs")
_SYNCED: _Cure = ("a file system on which folders can be synced", "choose a root on ext4, xfs or NFS")
_SPACE: _Cure = (None, "free space, then run the same command again")
_CURES: Mapping[int, _Cure] = {
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.EROFS: _WRITABLE,
    errno.ENOTDIR: ("a folder", "choose another root"),
    errno.EINVAL: _SYNCED,
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EMFILE: (None, "raise `ulimit -n`, then run the same command again"),
}
_LINK_CURES: Mapping[int, _Cure] = {
    **_CURES,
    **dict.fromkeys((errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV), _LINKS),
}
