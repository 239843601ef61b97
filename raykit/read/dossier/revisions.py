"""The plans of an experiment as they were locked one after another, and what changed between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from raykit.plan import Lock, differences
from raykit.records import Locked

Kind = Literal["first", "amendment", "deviation", "same plan", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One setting, or one digest, that differs from the lock before."""

    field: str
    was: Any
    now: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A plan as it was locked once, and what had changed in it by then."""

    entry: int
    """The number of its entry in the experiment's log."""
    at: float
    by: str
    locked: Locked
    lock: Lock | None
    """None if the store does not have it as it was."""
    kind: Kind
    """Set apart by what had been seen: nothing (an amendment), or results (a deviation)."""
    changes: tuple[Change, ...]


def changes_since(before: Revision | None, locked: Locked, lock: Lock | None) -> tuple[Change, ...]:
    """What differs from the lock before, in its digests and its settings."""
    if before is None:
        return ()
    found = [
        Change(field=name, was=getattr(before.locked, name), now=getattr(locked, name))
        for name in ("code", "data", "environment")
        if getattr(before.locked, name) != getattr(locked, name)
    ]
    if before.lock is not None and lock is not None:
        settings = differences(before.lock.settings, lock.settings)
        found += [Change(field=name, was=was, now=now) for name, was, now in settings]
        if before.lock.shared != lock.shared:
            found.append(Change(field="shared", was=before.lock.shared, now=lock.shared))
        if _weights(before.lock) != _weights(lock):
            found.append(Change(field="base.manifest", was=_weights(before.lock), now=_weights(lock)))
    return tuple(found)


def kind_of(before: Revision | None, locked: Locked, lock: Lock | None, changes: Sequence[Change]) -> Kind:
    """What locking this plan was, by what had been seen."""
    if before is None:
        return "first"
    if before.lock is None or lock is None:
        return "unknown"
    if all(change.field == "environment" for change in changes):
        return "same plan"
    if locked.seen_update is not None:
        return "deviation"
    # Versions without a review did not say what had been seen when a plan was locked.
    return "unknown" if lock.judged is None else "amendment"


def _weights(lock: Lock) -> str | None:
    return lock.base.manifest if lock.base is not None else None


__all__ = ["Change", "Kind", "Revision", "changes_since", "kind_of"]
