"""What a pool asks of whoever knows its backlog: the store side, which differs from one kind of work to the next."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from raykit.fleet.metrics import Dashboard
from raykit.fleet.pool.actor import Task
from raykit.records import Cause, Claim, FailureKind
from raykit.steer import Unit
from raykit.work import failing
from raykit.work.ending import unended, why_over

LATE_S: Final = 5.0
"""So long after its deadline an attempt of another pool is said to be over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A worker that came to its end: what it had in hand has failed."""

    kind: FailureKind
    why: str
    at: float
    """When, on the wall."""
    turns: int = 0
    """How many of its turns are known to have come to something."""


def cause_of(claim: Claim, lost: Mapping[str, Lost]) -> failing.Cause | None:
    """Why an attempt that nobody has ended is over: its worker is in `lost`, or is no process any more, or is late."""
    found = lost.get(claim.worker)
    return why_over(claim, now=time.time() - LATE_S) if found is None else unended(found.kind, found.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How far a backlog is, as of one look."""

    contract: str
    """Digest of what everyone works under."""
    looked_at: float
    """When it was read, on the wall."""
    takable: int
    """Units that somebody could take now."""
    open: int
    """Those, and the ones that somebody is at: as long as there are some, there is something to wait for."""
    most: int | None = None
    """How many workers there may be at once, as things stand; None for as many as the plan says."""
    unit: Unit | None = None
    """One unit as it was measured."""
    stop: str | None = None
    """Why nobody may go on: a pause, or the end of the experiment."""
    cause: Cause | None = None
    """The cause of that pause."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By state, for people."""
    oldest_s: float | None = None
    """How long the oldest open unit has waited."""
    failed: tuple[int, ...] = ()
    """Numbers of the units that came to an answer that somebody has to look at."""


class Desk(Protocol):
    """What one pool reads and writes. Used by one thread.

    Whatever it calls for, a store that does not answer raises `StoreUnavailableError` or `UnknownOutcomeError`: the
    pool says so once and tries again. Any other error ends the pool.
    """

    @property
    def found(self) -> Found | None:
        """As of the newest look; None before the first one, and where there is nothing to work at."""
        ...

    def look(self) -> None:
        """Read how far everything is, and ask for what nobody has asked for yet."""
        ...

    def follow(self) -> bool:
        """Between two looks, and cheap: whether there is something new to look at."""
        ...

    def bury(self, lost: Mapping[str, Lost], working: Collection[str]) -> tuple[str, ...]:
        """Say of every attempt that came to nothing that it has: of the workers in `lost`, of processes that are gone,
        and of those that are past their time. `working` are this pool's own. What was said, in words."""
        ...

    def claimants(self) -> Collection[str]:
        """Workers that have ever had something in hand, as of the newest look."""
        ...

    def write(self) -> Iterator[str]:
        """Write what has to be said of the newest look: pauses for defects, records of what was measured. Gives a line
        for people after each; the pool looks again soon after one."""
        ...

    def task(self, *, limit_s: float, lease: str) -> Task:
        """What a new worker does: a unit may take it `limit_s`, and `lease` pays for it."""
        ...

    def publish(self, dashboard: Dashboard, gained: Mapping[str, float], *, fresh: bool) -> None:
        """Tell the dashboard by what the tallies of workers have grown since the last time, and, if the store has just
        answered (`fresh`), how far the backlog is."""
        ...
