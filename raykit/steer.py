"""What a pool of workers does next: who starts, who works, who is replaced. Pure: the pool does it.

Any number of workers take units from one backlog. Once a unit is measured, its time and memory say how long one may
take and how many workers fit. A worker is a process that is never repaired: one that failed a unit, died, or let its
time pass is ended, and a fresh one goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raykit.records import FailureKind

FIRST_S = 600.0
"""What a unit may take as long as none was measured."""
LEAST_S = 60.0
"""What any unit may take, unless the plan says less."""
TIMES = 10
"""So much longer than measured may a unit take."""
START_S = 180.0
"""What a worker may take to come up: a process, its imports, the data."""
IDLE_S = 60.0
"""A worker beside the first that had nothing to do for so long is let go."""
STARTS = 3
"""So many workers in a row may come to an end without a unit."""
HEADROOM_PERMILLE = 1250
"""The memory that one more worker needs, beside what a unit was measured at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What holds for the whole life of a pool."""

    deadline_s: float | None = None
    """What one unit may take, as the plan says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One unit as it was measured."""

    took_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hired:
    """One worker, as its pool knows it. Times are those of the pool's own clock."""

    name: str
    ready: bool = False
    """It has set itself up."""
    working: bool = False
    """It has been told to work, and has not come back."""
    held: str | None = None
    """What it has in hand, in words."""
    at: float = 0.0
    """Since when it has been at what it is at: coming up, a unit, looking for one, or nothing."""
    heard: float = 0.0
    """When it answered last."""
    gone: str | None = None
    """Why it is of no use any more: its process is gone, or something was raised that is no unit's."""
    spent: str | None = None
    """Why it takes no further unit: its last one failed."""
    paid_until: float | None = None
    """When what is paid for ends; None where nothing ends it."""
    leaving: str | None = None
    """Why it gets no further work, though it may finish what it has."""

    @property
    def idle(self) -> bool:
        """It is there, and has nothing to do."""
        return self.ready and not self.working and self.held is None and self.leaving is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Everyone comes to an end."""

    why: str
    by: float
    """Until then what is in hand may be finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a pool knows before it acts."""

    workers: Sequence[Hired] = ()
    takable: int = 0
    """Units that somebody could take now."""
    most: int = 1
    """How many workers there may be at once, as things stand."""
    unit: Unit | None = None
    free_bytes: int | None = None
    """Memory that is free now; None where it bounds nothing."""
    stop: Stop | None = None
    refused: bool = False
    """Nothing may be started now: it would not be paid for, or what came of one before is not known yet."""
    failed_starts: Sequence[str] = ()
    """Why workers in a row came to an end without a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start one more worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Let an idle worker work off what there is."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End a worker. What it had in hand has failed, as `kind`."""

    name: str
    why: str
    kind: FailureKind
    expected: bool = False
    """Nothing went wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """No further worker would fare better."""

    why: str


Action = Start | Work | End | GiveUp


def steer(policy: Policy, seen: Seen, now: float) -> tuple[Action, ...]:
    """What is done now."""
    limit_s = unit_deadline_s(policy, seen.unit)
    ends = [end for worker in seen.workers if (end := _end(worker, seen, limit_s, now)) is not None]
    if seen.stop is not None:
        return tuple(ends)
    if len(seen.failed_starts) >= STARTS:
        in_a_row = f"{len(seen.failed_starts)} workers in a row came to an end before they came to anything"
        return (*ends, GiveUp(why=f"{in_a_row}; the last one: {seen.failed_starts[-1]}"))
    # whoever follows one that was lost starts later, when it is known whether that one had come to anything
    ended = {end.name for end in ends}
    stay = [worker for worker in seen.workers if worker.name not in ended]
    idle = [worker for worker in stay if worker.idle]
    works = [Work(name=worker.name) for worker in idle[: seen.takable]]
    spare = [
        End(name=worker.name, why="nothing is left for it to do", kind="infrastructure", expected=True)
        for worker in idle[len(works) :]
        if now - worker.at > IDLE_S and worker is not stay[0]
    ]
    starts = [] if any(not end.expected for end in ends) else _starts(seen, stay)
    return (*ends, *works, *spare, *starts)


def unit_deadline_s(policy: Policy, unit: Unit | None) -> float:
    """How long one unit may take."""
    if policy.deadline_s is not None:
        return policy.deadline_s
    return FIRST_S if unit is None else max(LEAST_S, TIMES * unit.took_s)


def _starts(seen: Seen, stay: Sequence[Hired]) -> list[Start]:
    """Those that are started now: as many as there is work, memory and room for."""
    if seen.refused:
        return []
    # whoever is coming up, idle or between two units takes one of them
    wanted = seen.takable - sum(worker.held is None and worker.leaving is None for worker in stay)
    room = seen.most - len(stay)
    if seen.unit is not None and seen.free_bytes is not None and seen.unit.peak_bytes:
        fits = seen.free_bytes * 1000 // (seen.unit.peak_bytes * HEADROOM_PERMILLE)
        room = min(room, fits if stay else max(1, fits))
    return [Start()] * max(0, min(wanted, room))


def _end(worker: Hired, seen: Seen, limit_s: float, now: float) -> End | None:
    """Why a worker is ended now; None if it stays."""

    def end(why: str, kind: FailureKind, *, expected: bool = False) -> End:
        return End(name=worker.name, why=why, kind=kind, expected=expected)

    if worker.gone is not None:
        return end(worker.gone, "lost")
    if worker.spent is not None:
        return end(worker.spent, "infrastructure", expected=True)
    if worker.paid_until is not None and now >= worker.paid_until:
        return end("what is paid for has ended", "infrastructure")
    late = _late(worker, limit_s, now)
    if late is not None:
        return late
    why = worker.leaving if seen.stop is None else seen.stop.why
    if why is None:
        return None
    if not worker.working:
        return end(why, "infrastructure", expected=True)
    if seen.stop is not None and now >= seen.stop.by:
        return end(f"dropped: {why}", "infrastructure")
    return None


def _late(worker: Hired, limit_s: float, now: float) -> End | None:
    """A worker whose time is over: whether it loops, hangs, or was stopped, nobody waits for it."""
    for_s, silent_s = now - worker.at, now - worker.heard
    if not worker.ready:
        late, why = for_s > START_S, f"not up after {for_s:.0f} s"
    elif worker.held is not None:
        late = for_s > limit_s
        why = f"{worker.held} was in hand for {for_s:.0f} s; it may take {limit_s:.0f} s"
    elif worker.working:
        late, why = for_s > limit_s, f"looking for work for {for_s:.0f} s"
    else:
        late, why = silent_s > limit_s, f"no answer for {silent_s:.0f} s"
    return End(name=worker.name, why=why, kind="deadline") if late else None
