"""What is written around units of work: frozen questions, and what is said of attempts. Shared by QC and generation.

Everything is created once and never replaced. What is said of an attempt is sealed as a log's entries are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from raykit.errors import ConflictError, CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.records import Claim, Conflict, Failure, Took, Versioned
from raykit.store.base import ObjectStore
from raykit.store.log import seal, unseal

RESTORE = "restore the store from a copy, then run `raykit check --read-data`"

MAX_RECORD_BYTES = 16 * 1024 * 1024

R = TypeVar("R", bound=Versioned)
Attempt = TypeVar("Attempt", Claim, Failure, Took, Conflict)


def say_once(store: ObjectStore, key: str, record: Claim | Failure | Took | Conflict) -> bool:
    """Write what is said of an attempt; False if something else was said there before.

    Raises:
        UnknownOutcomeError: the reply was lost and could not be read back; say it again.
        StoreUnavailableError: the store did not take it.
    """
    try:
        store.put_new(key, sealed(record))
    except ConflictError:
        return False
    return True


def sealed(record: Versioned) -> bytes:
    """The bytes of the file of what is said of an attempt."""
    return seal(record.to_bytes())


def read_attempt(data: bytes, record: type[Attempt], what: str, *, request: str, n: int) -> Attempt:
    """What is said of attempt `n` at a request, from the bytes of its file.

    Raises:
        CorruptError: they have changed, or are of another attempt.
    """
    read = read_sealed(data, record, what)
    if (read.request, read.n) != (request, n):
        raise damaged(what, "is of another attempt", "I3")
    return read


def read_sealed(data: bytes, record: type[R], what: str) -> R:
    """A sealed record, from the bytes of its file.

    Raises:
        CorruptError: they have changed, or are of something else.
    """
    with restorable():
        return record.from_bytes(unseal(data, what), what)


def read_frozen(
    store: ObjectStore, key: str, digest: str, record: type[R], *, max_bytes: int = MAX_RECORD_BYTES
) -> R:
    """A record that is exactly what its digest says.

    Raises:
        CorruptError: it is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    return parsed(record, read_exactly(store, key, digest, max_bytes=max_bytes), key)


def read_exactly(store: ObjectStore, key: str, digest: str, *, max_bytes: int) -> bytes:
    """Bytes that have this digest.

    Raises:
        CorruptError: they are missing, or do not match it.
        StoreUnavailableError: the store did not answer.
    """
    try:
        data = store.get(key, max_bytes=max_bytes)
    except NotFoundError as error:
        raise damaged(key, "is missing", "I1") from error
    if sha256(data) != digest:
        raise damaged(key, "does not match its sha256", "I2")
    return data


def parsed(record: type[R], data: bytes, key: str) -> R:
    """A record, from the bytes at `key`.

    Raises:
        CorruptError: they are no such record.
    """
    with restorable():
        return record.from_bytes(data, key)


def damaged(key: str, found: str, invariant: str) -> CorruptError:
    """What is wrong at `key`, by which invariant, and what helps."""
    return CorruptError(f"{key} {found}", field=key, rule=invariant, remedy=RESTORE)


@contextmanager
def restorable() -> Iterator[None]:
    """What is damaged here says what helps.

    Raises:
        CorruptError: whatever was raised inside, with a remedy.
    """
    try:
        yield
    except CorruptError as error:
        error.remedy = error.remedy or RESTORE
        raise


def differing(one: Versioned, other: Versioned) -> tuple[str, ...]:
    """The fields in which two records differ."""
    a, b = one.plain(), other.plain()
    return tuple(sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name)))
