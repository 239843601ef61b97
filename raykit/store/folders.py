"""What lies directly below a prefix, without listing everything in it: a set alone may have a million objects."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from raykit.store.base import ObjectStore


@runtime_checkable
class Browsable(Protocol):
    """A store that can do better than to list everything. Not one of the seven verbs: nothing rests on it."""

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The next part of every key that has at least two more after `prefix`, in order, each once.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        ...


def folders(store: ObjectStore, prefix: str) -> tuple[str, ...]:
    """The names of the folders directly below a prefix that hold an object, in order.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    if isinstance(store, Browsable):
        return store.folders(prefix)
    below = (listed.key.removeprefix(f"{prefix}/").partition("/") for listed in store.list(prefix))
    return tuple(sorted({name for name, slash, _ in below if slash}))
