"""The store as it should be: a dictionary."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO

from raykit.errors import ConflictError, CorruptError, NotFoundError
from raykit.ids import safe_key, sha256
from raykit.store.base import Data, Listed, Put, Stored, chunks


class MemoryStore:
    """An `ObjectStore` in memory, for tests and simulations. `objects` is all there is: copy it to fork."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "memory"

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """All bytes of `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
            CorruptError: it is longer than `max_bytes`.
        """
        data = self.objects.get(safe_key(key))
        if data is None:
            raise NotFoundError(f"there is no {key} in {self.url}", field=key)
        if max_bytes is not None and len(data) > max_bytes:
            raise CorruptError(
                f"{key} is {len(data)} bytes long", field=key, value=len(data), rule=f"at most {max_bytes}"
            )
        return data

    def open(self, key: str) -> BinaryIO:
        """A reader over `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            NotFoundError: there is no such object.
        """
        return io.BytesIO(self.get(key))

    def head(self, key: str) -> int | None:
        """The size of `key` in bytes, or None if there is no such object.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
        """
        data = self.objects.get(safe_key(key))
        return None if data is None else len(data)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key is `prefix` + "/" + ..., in key order; `""` lists the root.

        Raises:
            UnsafeNameError: `prefix` is not `/`-joined safe names.
        """
        start = f"{safe_key(prefix)}/" if prefix else ""
        with self._lock:
            found = sorted((key, data) for key, data in self.objects.items() if key.startswith(start))
        return iter([Listed(key, len(data)) for key, data in found])

    def put_new(self, key: str, data: Data) -> Stored:
        """Create `key` unless it exists.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
            ConflictError: the key holds other bytes. Final.
        """
        safe_key(key)
        body = b"".join(bytes(view) for view in chunks(data))
        with self._lock:
            held = self.objects.get(key)
            if held is None:
                self.objects[key] = body
        if held not in (None, body):
            raise ConflictError(f"{key} already holds other bytes", field=key)
        return Stored(Put.WRITTEN if held is None else Put.ALREADY_MINE, sha256(body), len(body))

    def put_derived(self, key: str, data: Data) -> None:
        """Create or replace `key`.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
        """
        safe_key(key)
        body = b"".join(bytes(view) for view in chunks(data))
        with self._lock:
            self.objects[key] = body

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there.

        Raises:
            UnsafeNameError: `key` is not `/`-joined safe names.
        """
        with self._lock:
            self.objects.pop(safe_key(key), None)
