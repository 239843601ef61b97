"""A store in a folder: temporary file, fsync, `os.link`, fsync of the folder.

`os.link` never replaces, so of any number of writers exactly one creates a key, and a reader sees all of its
bytes or nothing. An answer about a key (written, already mine, conflict) is given only once the key would
survive a power cut. Every path is walked from the root by file descriptor and no symbolic link is followed.

    <root>/.tmp/<pid>-<random>     bytes on their way in; `leftovers` names those that a dead writer left
    <root>/<key>                   the objects, files 0600 in folders 0700
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from raykit.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    UnknownOutcomeError,
)
from raykit.ids import NAME, safe_key
from raykit.store.base import Data, Listed, Put, Stored, chunks
from raykit.store.disk import (
    CURES,
    LINK_CURES,
    ROOT,
    Disk,
    answering,
    closing,
    is_object,
    open_folder,
    open_object,
    reason,
    start_writeback,
)

TMP = ".tmp"

_WRITE_BYTES = 8 * 1024 * 1024
_HASH_BESIDE_BYTES = 256 * 1024
_MAX_KEY = 1024


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
        with self.open(key) as file, answering(f"read {key}"):
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
        with answering(f"open {key}"), self._folders(parts) as folders:
            try:
                if folders:
                    return os.fdopen(open_object(name, folders[-1], key), "rb")
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
        with answering(f"look at {key}"), self._folders(parts) as folders:
            if not folders:
                return None
            try:
                found = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
            except FileNotFoundError:
                return None
            return found.st_size if is_object(found, key) else None

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
        with answering(f"list {prefix}"), self._folders(parts) as folders:
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
            with answering(f"create {key}"), self._folders(parts, make=True) as folders:
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
            answering(f"write {key}"),
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
        with answering(f"delete {key}"), self._folders(parts) as folders:
            if folders:
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    self._disk.remove(name, folders[-1])

    def leftovers(self) -> Sequence[str]:
        """The temporary files that are there now: of a writer at work, or of one that died.

        Raises:
            CorruptError: `.tmp` is a symbolic link.
            StoreUnavailableError: the disk did not answer.
        """
        with answering("list temporary files"), self._folders([TMP]) as folders:
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
            return os.open(self._root, ROOT)
        except FileNotFoundError:
            if not make:
                raise
        missing = [p for p in (self._root, *self._root.parents) if not p.exists()]
        for path in reversed(missing):
            with closing(os.open(path.parent, ROOT), "make the root") as parent:
                with contextlib.suppress(FileExistsError):
                    self._disk.make_folder(path.name, parent)
                self._disk.sync_folder(parent)
        return os.open(self._root, ROOT)

    def _enter(self, parts: tuple[str, ...], parent: int, make: bool) -> int:
        path = "/".join(parts)
        try:
            return open_folder(parts[-1], parent, path)
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
        return open_folder(parts[-1], parent, path)

    @contextlib.contextmanager
    def _temporary(self, data: Data, key: str, *, sync: bool) -> Iterator[_Temporary]:
        """`data` in a temporary file, which is gone afterwards."""
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        doing = f"write {key}"
        with contextlib.ExitStack() as stack:
            with answering(doing):
                folder = stack.enter_context(self._folders([TMP], make=True))[-1]
                file = self._disk.create(name, folder)
            stack.callback(self._forget, name, folder)
            with closing(file, doing):
                sha256, size_bytes = self._write_all(file, data, doing)
                if sync:
                    with answering(doing):
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
        with answering(doing):
            while view:
                written = self._disk.write(file, view[:_WRITE_BYTES])
                if written >= _HASH_BESIDE_BYTES:
                    start_writeback(file, offset, written)
                view = view[written:]
                offset += written

    def _link(self, new: _Temporary, name: str, folder: int, key: str) -> bool:
        """Whether `name` is now the new file; no if it was there already."""
        with answering(f"create {key}", LINK_CURES):
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
        with answering(f"compare {key}"), self._folders(parts, make=True) as folders:
            if stat.S_ISDIR(os.stat(name, dir_fd=folders[-1], follow_symlinks=False).st_mode):
                raise ConflictError(f"{key} is a folder of other keys", field=key)
            with os.fdopen(open_object(name, folders[-1], key), "rb") as held:
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
                f"{key} is in its place, but its folder could not be synced: {reason(error)}",
                field=key,
                rule=CURES.get(error.errno or 0, (None, None))[0],
                remedy="put the same bytes again",
            ) from error

    def _sync_root(self) -> None:
        if () in self._durable:
            return
        try:
            parent = os.open(self._root.parent, ROOT)
        except PermissionError:
            # Who may not read the folder that holds the root has not made the root either.
            return
        with closing(parent, "sync the root"):
            self._disk.sync_folder(parent)

    def _walk(self, parts: Sequence[str]) -> Iterator[Listed]:
        path = "/".join(parts)
        with answering(f"list {path or self.url}"), self._folders(parts) as folders:
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
            if is_object(found, f"{path}/{entry.name}" if path else entry.name):
                yield entry.name, found.st_size
            else:
                yield f"{entry.name}/", 0


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
