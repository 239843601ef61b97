"""The store's one protocol: seven verbs over immutable objects.

    verb         atomic                     durable when it returns     may be repeated
    put_new      yes, create-only           yes                         yes: its own bytes are success
    get, head    yes, after put_new         -                           yes
    open         yes (one object's bytes)   -                           yes
    list         no, but never misses a key created before it began     yes
    put_derived  yes, last writer wins      no promise                  yes; read by no decision
    delete       yes                        no promise                  yes; retention only

A key is `/`-joined safe names (`raykit.ids.safe_key`). `put_new` never replaces: it answers `WRITTEN`, or
`ALREADY_MINE` when the key already holds exactly these bytes, or raises. A lost reply is read back before
anyone calls it a conflict; if that fails too it is `UnknownOutcomeError`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple, Protocol, runtime_checkable

Chunk = bytes | bytearray | memoryview
Data = Chunk | Iterable[Chunk]
"""What can be written: one buffer, or a stream of buffers that is consumed once."""


class Put(enum.Enum):
    """How `put_new` succeeded."""

    WRITTEN = "written"
    ALREADY_MINE = "already-mine"


class Stored(NamedTuple):
    """What `put_new` left behind: computed while writing, never by a second read."""

    outcome: Put
    sha256: str
    size_bytes: int


class Listed(NamedTuple):
    """One listed object."""

    key: str
    size_bytes: int


@runtime_checkable
class ObjectStore(Protocol):
    """Seven verbs. `url` names the root for people, without credentials."""

    @property
    def url(self) -> str: ...

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        """All bytes of `key`.

        Raises:
            NotFoundError: there is no such object.
            CorruptError: it is longer than `max_bytes`.
            StoreUnavailableError: the store did not answer.
        """
        ...

    def open(self, key: str) -> BinaryIO:
        """A streaming reader over `key`; close it.

        Raises:
            NotFoundError: there is no such object.
            StoreUnavailableError: the store did not answer.
        """
        ...

    def put_new(self, key: str, data: Data) -> Stored:
        """Create `key`, durably, unless it exists.

        Raises:
            ConflictError: the key holds other bytes. Final.
            UnknownOutcomeError: the reply was lost and the key could not be read back.
            StoreUnavailableError: nothing was written (no space, no permission, no answer).
        """
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key is `prefix` + "/" + …, in key order; `""` lists the root.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        ...

    def head(self, key: str) -> int | None:
        """The size of `key` in bytes, or None if there is no such object.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        ...

    def put_derived(self, key: str, data: Data) -> None:
        """Create or replace `key`. For files that can be drawn again (curves, pages, log snapshots).

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove `key`, if it is there. Retention only.

        Raises:
            StoreUnavailableError: the store did not answer, or its policy forbids it.
        """
        ...


def chunks(data: Data) -> Iterator[memoryview]:
    """`data` as a stream of byte views."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield memoryview(data).cast("B")
        return
    for chunk in data:
        yield memoryview(chunk).cast("B")
