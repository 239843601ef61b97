"""One worker as its pool holds it: what was asked of it, what it answered, and how it is ended.

Nothing here waits: answers are collected when they are there. A worker that is stopped or hangs does not hear that it
is to end, so its process is killed as well, if it is on this machine and still the same.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from raykit.errors import Broken, InvalidInput, RaykitError, Refused, Unknown
from raykit.fleet.pool.actor import ActorState, CameBack, Orders, hire, place_in
from raykit.fleet.pool.lease import WorkerLease
from raykit.fleet.session.driver import NAMESPACE
from raykit.records import Place
from raykit.steer import Hired
from raykit.store.place import gone
from raykit.work.puller import Hand

ASK_AGAIN_S: Final = 5.0
"""A question that was not answered for so long is asked again: it may have been lost."""
LOST_S: Final = 2.0
"""A call that it does not know of so long afterwards has not reached it."""
REST_S: Final = 5.0
"""Between two tries where the store did not answer."""


class HiredWorker:
    """A worker, from its start to its end. Times are those of the pool's own clock."""

    def __init__(self, orders: Orders, options: Mapping[str, Any], *, lease: WorkerLease, now: float) -> None:
        """`options` are what Ray is asked for: see `options_of`."""
        self.orders = orders
        self.lease = lease
        self.state: ActorState | None = None
        self.broken: RaykitError | None = None
        """What it has met that no worker could work with."""
        self.turns = 0
        """How many of its turns have come to something so far."""
        self.tally: Mapping[str, float] = {}
        """What they have come to."""
        self._at = now
        self._heard = now
        self._asked = now
        self._rests_until = now
        self._ready = False
        self._adrift = False
        """It works although nobody waits for what comes of that: the answer was lost."""
        self._hand: Hand | None = None
        self._gone: str | None = None
        self._spent: str | None = None
        self._leaving: str | None = None
        self._actor: Any = hire(orders, options)
        self._call: Any = self._actor.set_up.remote()
        """What it has been told to do: to set itself up, or to work."""
        self._called = now
        self._calls_back = 0
        """How many of its calls to work are known to have ended."""
        self._state: Any = self._actor.state.remote()

    @property
    def name(self) -> str:
        return self.orders.worker

    @property
    def folder(self) -> Path:
        """Its own folder."""
        return Path(self.orders.folder)

    @property
    def place(self) -> Place | None:
        """Which process it is, as soon as that is known."""
        return place_in(self.folder) if self.state is None else self.state.place

    @property
    def busy(self) -> bool:
        """Whether it has a unit in hand."""
        return self._hand is not None

    def view(self, now: float) -> Hired:
        """What the pool's next step is worked out from."""
        return Hired(
            name=self.name,
            ready=self._ready,
            working=self._call is not None or self._adrift or now < self._rests_until,
            held=None if self._hand is None else self._hand.what,
            at=self._at,
            heard=self._heard,
            gone=self._gone,
            spent=self._spent,
            paid_until=self.lease.paid_until,
            leaving=self._leaving or self.lease.refused,
        )

    # --- what is asked --------------------------------------------------------------------------------------

    def work(self, now: float) -> None:
        """Let it work off what there is."""
        self._call, self._called, self._at = self._actor.work.remote(), now, now

    def leave(self, why: str) -> None:
        """Let it take nothing further."""
        if self._leaving is None:
            self._leaving = why
            self._actor.leave.remote()

    def hear(self, now: float) -> None:
        """Collect what it has answered, and ask how it is."""
        asked = [ref for ref in (self._call, self._state) if ref is not None]
        for ref in ray.wait(asked, num_returns=len(asked), timeout=0)[0] if asked else ():
            self._take(ref, now)
        if self._gone is not None or self._spent is not None:
            return
        if not self._ready and self._call is None and now >= self._rests_until:
            self._call, self._called = self._actor.set_up.remote(), now
        if self._state is None or now - self._asked > ASK_AGAIN_S:
            self._state, self._asked = self._actor.state.remote(), now

    def _take(self, ref: Any, now: float) -> None:
        """One answer."""
        called = ref is self._call
        if called:
            self._call = None
        else:
            self._state = None
        try:
            answer = ray.get(ref)
        except ActorUnavailableError:
            return  # the answer is lost; asking again is safe
        except RayTaskError as error:
            self._gone = f"{'it' if self._ready else 'its start'} failed: {_cause(error)}"
            return
        except RayError as error:
            self._gone = _words(error)
            return
        self._heard = now
        match answer:
            case ActorState():
                self._note(answer, now)
            case CameBack():
                self._came_back(answer, now)
            case RaykitError():
                self._refused(answer, now)
            case _:
                self._ready, self._at = True, now

    def _note(self, state: ActorState, now: float) -> None:
        ready = self._ready or state.ready
        if (state.hand, state.turns, ready) != (self._hand, self.turns, self._ready):
            self._at = now
        self.state, self.turns, self._hand, self._ready = state, state.turns, state.hand, ready
        self.tally = state.tally
        if state.came is not None:
            self._came_back(state.came, now)
        if self._call is not None and not state.busy and self._asked - self._called > LOST_S:
            self._call, self._at = None, now  # it never heard of it
        self._adrift = state.busy and self._call is None

    def _came_back(self, back: CameBack, now: float) -> None:
        """What a call to work has come to, whichever answer says so first."""
        if back.n <= self._calls_back:
            return
        self._calls_back = back.n
        self._call, self._at, self._hand, self._adrift = None, now, None, False
        self.turns, self.tally = back.turns, back.tally
        if back.error is not None:
            self._met(back.error, now)
        elif back.turn is not None and back.turn.spent:
            self._spent = back.detail or f"its last unit came to {back.how}"
        elif back.turn is not None and back.turn.failed == "infrastructure":
            self._rests_until = now + REST_S

    def _refused(self, error: RaykitError, now: float) -> None:
        self._met(error, now)
        if self._gone is not None:
            self._gone = f"its start failed: {error}"

    def _met(self, error: RaykitError, now: float) -> None:
        """What kept it from going on: the store for a while, or something that stays."""
        if isinstance(error, Unknown):
            self._rests_until = now + REST_S
            return
        self._gone = str(error)
        if isinstance(error, Broken | InvalidInput | Refused):
            self.broken = error

    # --- its end --------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Let Ray end its process. One that is stopped does not hear that: see `force`."""
        try:
            ray.kill(self._actor, no_restart=True)
        except (RayError, ValueError):
            pass  # it is gone

    @property
    def is_gone(self) -> bool:
        """Whether its process is seen to be gone, or cannot be seen from here."""
        place = self.place
        return place is None or gone(place) is not False

    def force(self) -> None:
        """Kill its process, if it is on this machine and still the same."""
        place = self.place
        if place is not None and gone(place) is False:
            try:
                os.kill(place.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def options_of(actor: str, *, gpus: float, wants: Mapping[str, Any]) -> dict[str, Any]:
    """What Ray is asked for. Nothing is restarted or repeated by Ray: the pool does both, and counts."""
    return {
        **wants,
        "name": actor,
        "namespace": NAMESPACE,
        "num_cpus": 1,
        "num_gpus": gpus,
        "max_restarts": 0,
        "max_task_retries": 0,
    }


def _words(error: Exception) -> str:
    """What Ray says of an actor's end, in one line."""
    text = str(error)
    for line in text.splitlines():
        if "Error" in line and "raised in its creation" not in line and line[:1].isalpha():
            return f"its process ended: {line.strip()[:300]}"
    return "its process is gone"


def _cause(error: RayTaskError) -> str:
    cause = error.cause
    return f"{type(cause).__name__}: {str(cause).strip()[:300]}"
