"""The workers of one backlog: started, watched, replaced and ended, beside training and never in its way.

    pool = Pool(hiring, open_desk)
    glance = pool.turn()                  # every half second, from the launch loop
    glance = pool.drain(until_s)          # at the end of the run
    pool.close()                          # before Ray ends

`turn` hands a round to the pool's own thread and comes back at once with what the newest round has seen. A round lets
the desk read the store and write what has to be said there, hears its workers, lets `steer` decide, and does that.
Whatever goes wrong in it, the pool says so and stops: training does not notice.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from raykit.errors import RaykitError, StoreUnavailableError, UnknownOutcomeError
from raykit.fleet.metrics import Dashboard, FleetFacts
from raykit.fleet.pool.crew import Crew, free_bytes
from raykit.fleet.pool.desk import Desk, Found
from raykit.fleet.pool.settings import Hiring
from raykit.pauses import FleetState
from raykit.steer import (
    Action,
    End,
    GiveUp,
    Policy,
    Seen,
    Start,
    Stop,
    Work,
    steer,
    unit_deadline_s,
)
from raykit.store import open_store
from raykit.store.base import ObjectStore

LONGEST_REST_S: Final = 10.0
PAUSED_S: Final = 60.0
"""What a worker may take to finish its unit once a pause is in force."""
TIMES_A_UNIT: Final = 2.0
"""What one more unit may take, for whoever is paid for only so much: times what they took so far."""
CLAIM_SLACK_S: Final = 15.0
"""A claim holds so much longer than its pool lets a worker take: the pool says first what became of it."""
GAP_S: Final = 10.0
"""After so long without a round nobody is judged by when they were heard."""
POLL_S: Final = 0.1
END_S: Final = 10.0
"""What the last words of a pool may take beyond the units in hand."""
SETTLE_S: Final = 5.0
"""What it may take to write what they have cost, once nobody is there; the next start settles what is left."""
JOIN_S: Final = 3.0
"""What a round that waits for an answer may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How far everything is, as of the newest round."""

    looked_at: float = 0.0
    """When the backlog was read; 0.0 before that."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Units by state; empty before the first look."""
    open: int = 0
    """How many somebody could take now, or is at. What waits for one that is parked is not among them."""
    oldest_s: float | None = None
    workers: int = 0
    busy: int = 0
    waits: str | None = None
    """Why nobody works, though something is open: a pause, a refusal, or that this pool has stopped."""
    refusal: RaykitError | None = None
    """What keeps workers from being started; None if nothing does."""
    away: str | None = None
    """What the store answers instead; None while it answers."""
    failed: tuple[int, ...] = ()
    """Numbers of the units that came to an answer that somebody has to look at."""
    tally: Mapping[str, float] = field(default_factory=dict)
    """What all workers of this pool have come to, by name."""
    ended: str | None = None
    """Why this pool has stopped for good."""


class Pool:
    """The workers of one backlog, as one process has them."""

    def __init__(self, hiring: Hiring, open_desk: Callable[[ObjectStore], Desk]) -> None:
        self._lines: deque[str] = deque()
        self._say = hiring.say
        self._hiring = replace(hiring, say=self._lines.append)  # people are told by whoever turns the pool
        self._open_desk = open_desk
        self._word = hiring.kind.word
        self._policy = Policy(deadline_s=hiring.settings.deadline_s)
        self._crew = Crew(self._hiring)
        self._glance = Glance()
        self._wanted = threading.Event()
        self._resting = threading.Event()
        self._closed = threading.Event()
        """The pool's own thread does nothing further."""
        self._deserted = False
        """Ray has died."""
        self._ending: Stop | None = None
        """Set by whoever closes the pool."""
        self._thread: threading.Thread | None = None
        # what follows belongs to the pool's own thread
        self._desk: Desk | None = None
        self._dashboard = Dashboard(self._lines.append)
        self._told: Mapping[str, float] = {}
        """What the dashboard was told that workers have come to."""
        self._look_at = 0.0
        self._last = -math.inf
        """When the last round was."""
        self._stop: Stop | None = None
        """Why everyone comes to an end, as the store has it: a pause."""
        self._broken: RaykitError | None = None
        self._away: str | None = None

    # --- what the launch loop calls -------------------------------------------------------------------------

    def turn(self) -> Glance:
        """Let a round begin, unless one is under way; what the newest one has seen. Waits for nothing.

        Where Ray has died, the pool has `broken`: no round could end, so this kills its processes and asks Ray nothing.
        """
        lost = None if self._closed.is_set() else self._hiring.ray_lost()
        if lost is not None:
            self._desert(lost)
        if self._thread is None and not self._closed.is_set():
            self._resting.set()
            self._thread = threading.Thread(
                target=self._rounds, name=f"raykit-{self._hiring.kind.role}", daemon=True
            )
            self._thread.start()
        if self._resting.is_set():
            self._resting.clear()
            self._wanted.set()
        self._tell()
        return self._glance

    def drain(
        self,
        until_s: float,
        stop: Callable[[], str | None] = lambda: None,
        tell: Callable[[Glance], None] = lambda glance: None,
    ) -> Glance:
        """Go on until nothing is open that somebody could take; at most `until_s`, or until `stop` says why not.

        Comes back early, too, where nobody works: `waits` of what it returns says why. `tell` hears of every turn.
        """
        began, end = time.time(), time.monotonic() + until_s
        while True:
            glance = self.turn()
            tell(glance)
            fresh = glance.looked_at >= began
            if fresh and not glance.busy and (not glance.open or glance.waits is not None):
                return glance
            if glance.ended is not None or time.monotonic() >= end or stop() is not None:
                return glance
            time.sleep(POLL_S)

    def close(self, *, grace_s: float = 10.0) -> Glance:
        """End every worker and settle what paid for them; what is in hand may be finished for so long.

        To be called before Ray ends. Twice is fine.
        """
        if not self._closed.is_set() and self._thread is not None:
            self._ending = Stop(why="its launch ends", by=time.monotonic() + grace_s)
            self._wait_for_end(self._thread, self._ending)
        if self._deserted:
            return self._glance
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        if self._thread is not None and self._thread.is_alive():
            self._crew.desert()  # it waits for somebody who does not answer
        else:
            self._guarded(lambda: self._crew.end_all("its launch ends"))
        self._tell()
        return self._glance

    def _wait_for_end(self, thread: threading.Thread, stop: Stop) -> None:
        """Turn until everyone is gone and accounted for, for as long as that may take."""
        end = stop.by + END_S
        while time.monotonic() < end and thread.is_alive() and not self._over and not self._deserted:
            if self._crew.empty:
                end = min(end, time.monotonic() + (END_S if self._crew.lost else SETTLE_S))
            self.turn()
            time.sleep(POLL_S)

    def _desert(self, error: RaykitError) -> None:
        """Ray has died: leave the pool's own thread, which may wait for ever, and kill whoever is still there."""
        self._deserted = True
        self._closed.set()
        self._wanted.set()
        self._crew.desert()
        self._give_up(error)
        self._glance = replace(self._glance, workers=0, busy=0)

    @property
    def broken(self) -> RaykitError | None:
        """What this pool has stopped for, if it has."""
        return self._broken

    @property
    def _over(self) -> bool:
        return self._crew.settled and not self._crew.lost

    def _tell(self) -> None:
        while self._lines:
            self._say(self._lines.popleft())

    # --- rounds ---------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        """The pool's own thread: a round whenever one is wanted."""
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closed.is_set():
                return
            if not self._guarded(self._round):
                self._guarded(lambda: self._crew.end_all("the pool has stopped"))
                self._glance = replace(self._glance, workers=0, busy=0)
                return
            self._resting.set()

    def _guarded(self, act: Callable[[], None]) -> bool:
        """Do something; whether it went well."""
        try:
            act()
        except RaykitError as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the pool ends and training goes on
            self._give_up(RaykitError(f"{type(error).__name__}: {error}"))
        else:
            return True
        return False

    def _round(self) -> None:
        self._observe()
        if self._closed.is_set():
            return
        now = time.monotonic()
        self._crew.hear(now)
        self._crew.reap(now)
        if self._closed.is_set():
            return
        if (broken := self._crew.broken) is not None:
            self._give_up(broken)
        # after a gap what was heard is old: an answer first, then a judgement
        if now - self._last < GAP_S:
            self._steer(now)
        self._last = now
        self._publish()
        self._glance = self._glimpse()

    def _steer(self, now: float) -> None:
        desk, found = self._desk, self._found
        if desk is None or found is None:
            return
        seen = self._seen(found, now)
        if seen.unit is not None:
            self._crew.unit_s = TIMES_A_UNIT * seen.unit.took_s
        if seen.stop is not None:
            self._crew.leave(seen.stop.why)
        self._crew.leave("its plan was locked anew", but=found.contract)
        for action in steer(self._policy, seen, now):
            if self._closed.is_set():
                return
            self._act(action, desk, found, now)

    def _observe(self) -> None:
        """Read the store, and write what has to be said there; one that does not answer is tried again."""
        try:
            if self._desk is None:
                self._desk = self._open_desk(open_store(self._hiring.root))
            if self._desk.follow() or self._crew.lost or time.monotonic() >= self._look_at:
                self._look(self._desk)
            self._write(self._desk)
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            if self._away is None:
                self._lines.append(f"{self._word}: the store does not answer ({error}); trying again")
            self._away = str(error)
        else:
            self._away = None

    def _look(self, desk: Desk) -> None:
        began, began_at = time.monotonic(), time.time()
        desk.look()
        took_s = time.monotonic() - began
        self._look_at = time.monotonic() + min(LONGEST_REST_S, self._hiring.settings.look_share * took_s)
        for line in desk.bury(self._crew.lost, self._crew.names):
            self._look_at = 0.0
            self._lines.append(f"{self._word} of {line}")
        self._crew.account_for(began_at, desk.claimants())
        self._heed(desk)

    def _heed(self, desk: Desk) -> None:
        """People's pauses, as of this look."""
        why = None if desk.found is None else desk.found.stop
        if why is None:
            self._stop = None
        elif self._stop is None or self._stop.why != why:
            self._lines.append(f"{self._word} is {why}")
            self._stop = Stop(why=why, by=time.monotonic() + PAUSED_S)

    def _write(self, desk: Desk) -> None:
        for line in desk.write():
            self._look_at = 0.0
            self._lines.append(line)

    def _seen(self, found: Found, now: float) -> Seen:
        stop, slots = self._ending or self._stop, self._hiring.settings.slots
        if self._broken is not None:
            stop = Stop(why=str(self._broken), by=now)
        return Seen(
            workers=self._crew.view(now),
            takable=found.takable,
            most=slots if found.most is None else min(found.most, slots),
            unit=found.unit,
            free_bytes=None if self._hiring.settings.gpus else free_bytes(),
            stop=stop,
            refused=not self._crew.may_start(now),
            failed_starts=self._crew.failed_starts,
        )

    def _act(self, action: Action, desk: Desk, found: Found, now: float) -> None:
        match action:
            case Start():
                limit_s = unit_deadline_s(self._policy, found.unit) + CLAIM_SLACK_S
                self._crew.start(found.contract, lambda lease: desk.task(limit_s=limit_s, lease=lease), now)
            case Work(name=name):
                self._crew.work(name, now)
            case End():
                if not action.expected:
                    self._lines.append(f"{self._word} worker {action.name} is ended: {action.why}")
                    self._bury_first(action, desk)
                self._crew.end(action, now)
                self._look_at = 0.0
            case GiveUp():
                self._give_up(RaykitError(action.why, remedy="raykit logs"))

    def _bury_first(self, end: End, desk: Desk) -> None:
        """Say why what a worker has in hand fails before it is killed: whoever saw it gone first would call it lost."""
        if end.kind == "lost":
            return  # it may be gone by itself, and is seen to be before anything is said
        try:
            desk.look()
            for line in desk.bury({end.name: self._crew.lost_of(end)}, self._crew.names - {end.name}):
                self._lines.append(f"{self._word} of {line}")
        except (StoreUnavailableError, UnknownOutcomeError):
            pass  # it is said once it is gone

    def _give_up(self, error: RaykitError) -> None:
        if self._broken is None:
            self._broken = error
            self._lines.append(f"{self._word} stops here: {error}")
        self._glance = replace(self._glance, waits=str(self._broken), ended=str(self._broken))

    # --- what is told ---------------------------------------------------------------------------------------

    def _publish(self) -> None:
        if self._desk is None:
            return
        tally = self._crew.tally
        gained = {name: count - self._told.get(name, 0.0) for name, count in tally.items()}
        self._desk.publish(self._dashboard, gained, fresh=self._away is None)
        self._told = tally
        self._dashboard.tell(lambda: [self._fleet()])

    def _fleet(self) -> FleetFacts | None:
        """Who works, and what is asked of them; None while people's pauses cannot be read."""
        workers, found, stop = len(self._crew.workers), self._found, self._stop
        if found is None or self._away is not None:
            return None
        asked: FleetState = "running" if stop is None else "pausing"
        if stop is not None and time.monotonic() > stop.by:
            asked = "overdue"
        paused = 0 if stop is None else max(0, self._hiring.settings.slots - workers)
        return FleetFacts(
            experiment=self._hiring.experiment,
            role=self._hiring.kind.role,
            workers={asked: workers, "paused": paused},
            pause=found.cause,
        )

    def _glimpse(self) -> Glance:
        found = self._found
        workers = list(self._crew.workers.values())
        glance = Glance(
            workers=len(workers),
            busy=sum(worker.busy for worker in workers),
            waits=self._waits(),
            refusal=self._crew.refusal,
            away=self._away,
            tally=self._crew.tally,
            ended=None if self._broken is None else str(self._broken),
        )
        if found is None:
            return glance
        return replace(
            glance,
            looked_at=found.looked_at,
            counts=found.counts,
            open=found.open,
            oldest_s=found.oldest_s,
            failed=found.failed,
        )

    @property
    def _found(self) -> Found | None:
        return None if self._desk is None else self._desk.found

    def _waits(self) -> str | None:
        stop = self._ending or self._stop
        refused = self._crew.refusal
        if self._broken is not None or stop is not None:
            return str(self._broken) if stop is None else stop.why
        return None if refused is None or not self._crew.empty else str(refused)  # who is there goes on
