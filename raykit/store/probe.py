"""Prove, before a root is trusted, that it keeps the promises that everything else rests on."""

from __future__ import annotations

import contextlib
import secrets
from typing import Protocol, runtime_checkable

from raykit.errors import ConflictError, StoreUnavailableError, UnknownOutcomeError, UnusableRootError
from raykit.store import layout
from raykit.store.base import Listed, ObjectStore, Put


@runtime_checkable
class ChecksConditions(Protocol):
    """A store with more than one way to create an object proves the others over `key`, which exists."""

    def check_conditions(self, key: str) -> None: ...


def probe(store: ObjectStore) -> None:
    """Return if `store` can be written, reads back what was written, and never replaces a decided key.

    A canary is put twice with different bytes, read, listed and removed; it stays where the policy of the
    store forbids to delete.

    Raises:
        UnusableRootError: it cannot be written, or it does not do what it answers.
        StoreUnavailableError: it did not answer, which says nothing about what it would do.
        UnknownOutcomeError: a reply was lost and the canary could not be read back.
    """
    key = layout.probe(secrets.token_hex(16))
    first, second = secrets.token_bytes(32), secrets.token_bytes(32)
    try:
        _probe(store, key, first, second)
    except (StoreUnavailableError, UnknownOutcomeError) as error:
        # A store that knows what would pass has not failed to answer: it has refused.
        if error.rule is None:
            raise
        raise UnusableRootError(
            f"{store.url} cannot be used: {error}",
            field="root",
            value=store.url,
            rule=error.rule,
            remedy=error.remedy,
        ) from error


def _probe(store: ObjectStore, key: str, first: bytes, second: bytes) -> None:
    if store.put_new(key, first).outcome is not Put.WRITTEN:
        raise _refused(store, "says that a random new key already existed", "a new key is created")
    try:
        with contextlib.suppress(ConflictError):
            store.put_new(key, second)
            raise _refused(
                store, "replaces objects that exist", "conditional creates (If-None-Match) are honoured"
            )
        if isinstance(store, ChecksConditions):
            store.check_conditions(key)
        if store.get(key) != first or store.head(key) != len(first):
            raise _refused(store, "reads back other bytes than were written", "reads return what was written")
        if Listed(key, len(first)) not in list(store.list(key.rpartition("/")[0])):
            raise _refused(
                store, "does not list what was written", "a listing shows every object written before"
            )
    finally:
        # A policy that forbids to delete is a good one; the canary then stays.
        with contextlib.suppress(StoreUnavailableError):
            store.delete(key)


def _refused(store: ObjectStore, message: str, rule: str) -> UnusableRootError:
    return UnusableRootError(
        f"{store.url} {message}",
        field="root",
        value=store.url,
        rule=rule,
        remedy="use AWS S3, SeaweedFS or another store that honours conditional creates, or a local path",
    )
