"""What a failed unit of work means: try it again, put it aside, or stop everyone who works on the same contract. Pure.

A unit is one QC request or one shard. Its failures come from separate processes, so that two equal failures of one unit
by two workers say something about the unit or about what all units share, and not about a worker.

    infrastructure, memory, deadline, lost      bad luck until it has happened `tries` times: then the unit is parked
    recipe, data                                the same signature from a second worker is a shared defect
    corrupt                                     the unit's own bytes: parked once a second worker says the same
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from raykit.ids import digest_of
from raykit.records import FailureKind

Next = Literal["retry", "park", "pause"]

SHARED: frozenset[FailureKind] = frozenset({"recipe", "data"})
"""Kinds that another unit of the same contract would meet, too."""

CERTAIN: frozenset[FailureKind] = SHARED | {"corrupt"}
"""Kinds that come again whoever tries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One failed attempt at a unit, as far as it matters here."""

    kind: FailureKind
    signature: str
    worker: str


def signature(kind: FailureKind, error: str, where: Iterable[str] = ()) -> str:
    """What two failures with one cause have in common: the kind, the type of error, and the lines that raised it.

    Messages are left out: they hold numbers and addresses that differ from attempt to attempt.
    """
    return digest_of({"kind": kind, "error": error, "where": list(where)})


def next_after(failures: Sequence[Failed], *, tries: int) -> Next:
    """What is done about a unit that has failed so often and has no receipt."""
    if confirmed(failures) is not None:
        return "pause" if failures[-1].kind in SHARED else "park"
    return "retry" if len(failures) < tries else "park"


def confirmed(failures: Sequence[Failed]) -> Failed | None:
    """The newest failure, if it is certain to come again: another worker has met the very same."""
    if not failures or failures[-1].kind not in CERTAIN:
        return None
    newest = failures[-1]
    same = {failed.worker for failed in failures if failed.signature == newest.signature}
    return newest if len(same) > 1 else None
