"""The worst case of work that may be interrupted and started again.

Where a resume is proved to continue from the last commit, work is done once, and each attempt adds only its
set-up, the work that a crash may lose, the replay that it may be in when it is killed, and the drain:

    [wall + attempts x (set-up + loss window + replay + drain)] x accelerators x rate x margin + fixed

It is a true bound because the wall cap is counted over all attempts and the loss window is kept at run time.
Where a resume is not proved, every attempt may do everything again:

    attempts x (set-up + wall + drain) x accelerators x rate x margin + fixed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from raykit.budget.amounts import PERMILLE, time_cost
from raykit.records import Micros, Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What the cost of a run is worked out from. Times are those of one accelerator group, in milliseconds."""

    accelerators: int
    rate: int
    """Micro-units for one accelerator-hour."""
    source: str
    margin_permille: int = 1000
    wall_ms: int
    """Productive time over all attempts together."""
    attempts: int
    setup_ms: int
    window_ms: int
    """The most work that a crash may cost."""
    drain_ms: int
    replay_ms: int = 0
    """What the gang trains again at the end to show that it can; 0 where the plan asks for none."""
    fixed: int = 0
    proven: bool = True
    """A resume continues from the last commit."""
    capped: bool = True
    """The plan caps its wall time. Without a cap of its own, a run may use what its line has, and is paused there."""
    uncertain: bool = False
    """The times are guesses: no run of this contract has been measured."""
    rows: int = 1
    """How many such runs the plan's table has: of a search, one for each row."""

    @property
    def overhead_ms(self) -> int:
        """What each attempt adds to the work; one that starts over has all of it before it, and loses none twice."""
        lost_ms = self.window_ms if self.proven else 0
        return self.setup_ms + lost_ms + self.replay_ms + self.drain_ms

    @property
    def open_ended(self) -> bool:
        """Neither capped nor measured: only the money itself says how long it may go on."""
        return self.uncertain and not self.capped


def worst_ms(sizing: Sizing) -> int:
    """The longest time that the accelerators may be held, over all attempts."""
    if sizing.open_ended:
        return sizing.wall_ms  # all of it: nothing but the money bounds how it is used
    walls = 1 if sizing.proven else sizing.attempts
    return walls * sizing.wall_ms + sizing.attempts * sizing.overhead_ms


def worst_of_rows(sizing: Sizing) -> Micros:
    """What all rows cost at most, each with all of its attempts."""
    return sizing.rows * worst_case(sizing)


def worst_of_starts(sizing: Sizing) -> Micros:
    """What of the worst case of one run is no work but what every attempt adds to it; 0 if not bounded."""
    if sizing.open_ended:
        return 0
    overhead_ms = sizing.attempts * sizing.overhead_ms
    return time_cost(overhead_ms, sizing.accelerators, sizing.rate, margin_permille=sizing.margin_permille)


def worst_case(sizing: Sizing) -> Micros:
    """What one run costs at most, over all attempts."""
    held = time_cost(
        worst_ms(sizing), sizing.accelerators, sizing.rate, margin_permille=sizing.margin_permille
    )
    return held + sizing.fixed


class Past(NamedTuple):
    """One attempt that has ended: how long it held its accelerators, and its productive time where that is known."""

    held_ms: int
    wall_ms: int | None = None


def wall_used_ms(sizing: Sizing, past: Sequence[Past]) -> int:
    """How much of the wall cap earlier attempts have used.

    Of one that was killed only the time that it held its accelerators is known; set-up, loss and drain of it are
    paid by its own overhead, so that the bound above holds.
    """
    if not sizing.proven:
        return 0
    return sum(
        max(0, each.held_ms - sizing.overhead_ms) if each.wall_ms is None else each.wall_ms for each in past
    )


def attempt_terms(sizing: Sizing, past: Sequence[Past]) -> Terms:
    """The terms of the next attempt: what is left of the wall cap, and one overhead."""
    left_ms = max(0, sizing.wall_ms - wall_used_ms(sizing, past))
    return Terms(
        accelerators=sizing.accelerators,
        rate=sizing.rate,
        source=sizing.source,
        margin_permille=sizing.margin_permille,
        time_ms=left_ms + sizing.overhead_ms,
        wall_ms=left_ms if sizing.capped else None,
        drain_ms=sizing.drain_ms,
        fixed=0 if past else sizing.fixed,
        uncertain=sizing.uncertain,
    )


def at_rate(sizing: Sizing, rate: int, source: str) -> Sizing:
    """The same work at the rate of today.

    A rise within the margin is what the margin is for, so it is taken from it: the worst case stays as it was.
    A rise beyond it leaves none, and the door asks for a replan.
    """
    margin = left_margin(rate, seen=sizing.rate, margin_permille=sizing.margin_permille)
    return replace(sizing, rate=rate, source=source, margin_permille=margin)


def left_margin(rate: int, *, seen: int, margin_permille: int) -> int:
    """What is left of a margin at a `rate`, where a person has `seen` another: a rise is taken from it."""
    return margin_permille if rate <= seen else max(PERMILLE, seen * margin_permille // rate)
