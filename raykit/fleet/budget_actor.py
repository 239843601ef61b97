"""The budget actor, one for each account, and those who ask it.

The actor is speed, not truth: it is rebuilt from the ledger, and safe when two of them exist. On a private cluster it
ends with the launch that made it; on a shared one it is detached, says so, and ends itself when nobody has asked for a
while. `Teller` is the side of those who ask: every call has a deadline, decisions are repeated under the same lease
until they are answered, and a beat is tried for a few seconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import RayError

from raykit import __version__
from raykit.budget.admit import Request, accrue, settle, settle_at_most, void
from raykit.budget.amounts import measured
from raykit.budget.book import Book, Lease
from raykit.errors import (
    ConflictError,
    DeadlineError,
    InvalidInput,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.fleet.desk import Desk, DeskState, Wanted
from raykit.fleet.door import HOLD_S, Attempts, begin, elapsed_ms, grant_of, lease_of, require_open, reserve
from raykit.fleet.metrics import Dashboard, Spenders
from raykit.ids import Digest, digest_of
from raykit.pauses import Acts, Role
from raykit.records import EndReason
from raykit.store import open_store
from raykit.store.ledger import Ask
from raykit.train.door import Door, Grant
from raykit.train.granted import keep_to_granted

T = TypeVar("T")

NAMESPACE: Final = "raykit"
TRY_S: Final = 10.0
"""How long one try of a decision waits for its answer."""
BEAT_TIMEOUT_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
MANY_CALLS: Final = 10_000
"""Calls that may be under way at once. Most of them wait for the append that they share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What a budget actor serves. Whoever finds it by name compares: Ray ignores what the losers of a race want."""

    root: str
    account: str
    idle_s: float | None = None
    """On a shared cluster: it is detached, and ends itself when nobody has asked for so long."""

    @property
    def name(self) -> str:
        """What it is called in Ray. On a shared cluster other stores may have accounts of the same name."""
        own = f"raykit-budget-{self.account}"
        return own if self.idle_s is None else f"{own}-{digest_of({'root': self.root})[:8]}"

    @property
    def digest(self) -> Digest:
        """What two processes have to agree on to share one actor."""
        return digest_of({"root": self.root, "account": self.account, "raykit": __version__})

    def __str__(self) -> str:
        detached = "" if self.idle_s is None else f", detached, ends after {self.idle_s:g} s without a call"
        return f"budget of {self.account} in {self.root}{detached}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Which process serves what."""

    seat: Seat
    digest: Digest
    pid: int


class BudgetActor:
    """One account's ledger, served. Each call returns its answer or the refusal; none raises one."""

    def __init__(self, seat: Seat) -> None:
        keep_to_granted()
        self._seat = seat
        by = f"budget-actor-{os.getpid()}"
        self._desk = Desk(open_store(seat.root), seat.account, by=by, tell=Spenders(Dashboard()).tell)
        self._called = time.monotonic()
        self._watch: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return str(self._seat)

    async def whoami(self) -> Who:
        """What is served, and by which process."""
        self._wake()
        return Who(seat=self._seat, digest=self._seat.digest, pid=os.getpid())

    async def state(self) -> DeskState:
        """What is known here, for people. Does not count as a call that keeps a detached actor alive."""
        self._desk.start()
        return self._desk.state()

    async def beat(self, lease: str) -> RaykitError | None:
        """Whether a lease goes on, from memory; None if it does, else why not."""
        self._wake()
        return await self._desk.beat(lease)

    async def begin(self, attempts: Attempts, launch: str, ordinal: int) -> Grant | RaykitError:
        """Reserve an attempt of a training run, unless it is reserved, and end those before it."""

        def ask(acts: Acts, now: float) -> Ask:
            return begin(attempts, launch, ordinal, acts=acts, now=now)

        def read(book: Book, now: float) -> Grant:
            return grant_of(book, lease_of(launch, ordinal), now=now)

        return await self._decide(Wanted(ask=ask, read=read, experiment=attempts.experiment))

    async def reserve(self, request: Request, role: Role, contract: str | None) -> Lease | RaykitError:
        """Reserve a worker lease, unless it is reserved."""

        def ask(acts: Acts, now: float) -> Ask:
            return lambda book: reserve(book, request, role=role, acts=acts, contract=contract, now=now)

        def read(book: Book, now: float) -> Lease:
            return require_open(book, request.lease)

        return await self._decide(Wanted(ask=ask, read=read, experiment=request.experiment))

    async def renew(self, lease: str, time_ms: int, least_ms: int | None) -> Lease | RaykitError:
        """Let a lease go on until `time_ms` after its start, unless it may already."""

        def ask(acts: Acts, now: float) -> Ask:
            def decide(book: Book) -> Any:
                held = require_open(book, lease)
                so_far_ms = min(elapsed_ms(held, now), held.time_ms)
                cost = measured(held.reserved.terms, so_far_ms)
                return accrue(book, lease, cost=cost, time_ms=time_ms, least_ms=least_ms, now=now)

            return decide

        return await self._decide(Wanted(ask=ask, read=lambda book, now: require_open(book, lease)))

    async def settle(
        self, lease: str, time_ms: int, reason: EndReason, how: str, at_most: bool
    ) -> Lease | RaykitError:
        """End a lease, unless it has ended."""
        decide = settle_at_most if at_most else settle

        def ask(acts: Acts, now: float) -> Ask:
            return lambda book: decide(book, lease, time_ms=time_ms, reason=reason, how=how)

        return await self._decide(Wanted(ask=ask, read=lambda book, now: book.leases[lease]))

    async def void(self, lease: str, proof: str) -> Lease | RaykitError:
        """Take back a lease whose work never started, unless it is taken back."""

        def ask(acts: Acts, now: float) -> Ask:
            return lambda book: void(book, lease, proof=proof)

        return await self._decide(Wanted(ask=ask, read=lambda book, now: book.leases[lease]))

    async def _decide(self, wanted: Wanted[T]) -> T | RaykitError:
        self._wake()
        return await self._desk.decide(wanted)

    def _wake(self) -> None:
        """Note a call. The first one starts what needs the event loop, which a constructor does not have."""
        self._called = time.monotonic()
        self._desk.start()
        if self._watch is None and self._seat.idle_s is not None:
            self._watch = asyncio.get_running_loop().create_task(self._end_when_idle(self._seat.idle_s))

    async def _end_when_idle(self, idle_s: float) -> None:
        while (left_s := self._called + idle_s - time.monotonic()) > 0:
            await asyncio.sleep(left_s)
        # Whoever asks at this moment is told that the actor has died, and makes a new one.
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


# --- those who ask ------------------------------------------------------------------------------------------


class Teller:
    """One account, asked through its actor, which is made if there is none. Travels to other processes as it is.

    An actor that is not detached lives as long as the `Teller` that made it: the launch asks first, with `whoami`, and
    keeps its own.
    """

    def __init__(self, seat: Seat, *, hold_s: float = HOLD_S) -> None:
        self.seat = seat
        self.hold_s = hold_s
        self._actor: Any = None

    def __reduce__(self) -> tuple[object, ...]:
        return _teller, (self.seat, self.hold_s)

    def whoami(self) -> Who:
        """Which process serves this account.

        Raises:
            ConflictError: an actor of that name serves something else.
            DeadlineError: nobody answered.
        """
        answer: Who = self._ask("whoami", hold_s=self.hold_s)
        return answer

    def state(self) -> DeskState:
        """What the actor knows, for people.

        Raises:
            ConflictError: an actor of that name serves something else.
            DeadlineError: nobody answered.
        """
        answer: DeskState = self._ask("state", hold_s=BEAT_TIMEOUT_S)
        return answer

    def beat(self, lease: str) -> None:
        """Learn whether a lease goes on.

        Raises:
            LeaseLostError: there is no such lease, or it has ended.
            CorruptError: the ledger is damaged.
            ConflictError: an actor of that name serves something else.
            StoreUnavailableError: the actor has not reached the store for a while.
            DeadlineError: the actor did not answer.
        """
        self._ask("beat", lease, hold_s=BEAT_TIMEOUT_S, again=())

    def begin(self, attempts: Attempts, launch: str, ordinal: int) -> Grant:
        """Reserve an attempt of a training run, unless it is reserved.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            LeaseLostError: this attempt has ended, or a later one has begun.
            NotFoundError: the experiment has no budget in this account.
            Broken: the ledger is damaged, or an actor of that name serves something else.
            StoreUnavailableError: the store stayed away.
            UnknownOutcomeError: the same, and what was written last is not known.
            DeadlineError: the actor did not answer.
        """
        answer: Grant = self._ask("begin", attempts, launch, ordinal, hold_s=self.hold_s)
        return answer

    def reserve(self, request: Request, *, role: Role, contract: str | None = None) -> Lease:
        """Reserve a worker lease, unless it is reserved.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            NotFoundError: the experiment has no such line, or no budget in this account.
            Broken: the lease has ended or is of something else, or the ledger is damaged.
            Unknown: nobody answered, or not for certain. Asking again is safe.
        """
        answer: Lease = self._ask("reserve", request, role, contract, hold_s=self.hold_s)
        return answer

    def renew(self, lease: str, *, time_ms: int, least_ms: int | None = None) -> Lease:
        """Let a lease go on until `time_ms` after its start, unless it may already.

        With `least_ms` it may be less, down to that, where the money is short; the answer has what it is.

        Raises:
            Refused: money has to be moved first.
            BudgetError: its line cannot pay for that.
            Broken: the lease has ended, or the ledger is damaged.
            Unknown: nobody answered, or not for certain. Asking again is safe.
        """
        answer: Lease = self._ask("renew", lease, time_ms, least_ms, hold_s=self.hold_s)
        return answer

    def settle(
        self, lease: str, *, time_ms: int, reason: EndReason, how: str, at_most: bool = False
    ) -> Lease:
        """End a lease that was held for `time_ms`, unless it has ended.

        With `at_most` only that is known: it had ended by then, and never cost more than its worst case.

        Raises:
            Broken: there is no such lease, or the ledger is damaged.
            Unknown: nobody answered, or not for certain. Asking again is safe.
        """
        answer: Lease = self._ask("settle", lease, time_ms, reason, how, at_most, hold_s=self.hold_s)
        return answer

    def void(self, lease: str, *, proof: str) -> Lease:
        """Take back a lease whose work never started, unless it is taken back.

        Raises:
            Broken: there is no such lease, or it has ended otherwise, or the ledger is damaged.
            Unknown: nobody answered, or not for certain. Asking again is safe.
        """
        answer: Lease = self._ask("void", lease, proof, hold_s=self.hold_s)
        return answer

    # --- asking ---------------------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        *arguments: object,
        hold_s: float,
        again: tuple[type[RaykitError], ...] = (StoreUnavailableError, UnknownOutcomeError),
    ) -> Any:
        """The actor's answer, however often it takes within `hold_s`. Every call may be repeated."""
        end, pause_s = time.monotonic() + hold_s, FIRST_PAUSE_S
        while True:
            left_s = end - time.monotonic()
            try:
                answer = self._once(method, arguments, min(TRY_S, max(left_s, FIRST_PAUSE_S)))
            except RayError as error:
                answer = DeadlineError(
                    f"the {self.seat} did not answer within {hold_s:g} s: {_first_line(error)}",
                    remedy="raykit status",
                )
            if not isinstance(answer, (DeadlineError, *again)):
                break
            if time.monotonic() + pause_s >= end:
                break
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if isinstance(answer, RaykitError):
            raise answer
        return answer

    def _once(self, method: str, arguments: tuple[object, ...], timeout_s: float) -> Any:
        end = time.monotonic() + timeout_s
        actor = self._actor  # another thread may find that it has died
        if actor is None:
            actor = self._find(timeout_s)
            if isinstance(actor, RaykitError):
                return actor
            self._actor = actor
        try:
            return ray.get(
                getattr(actor, method).remote(*arguments), timeout=max(0.0, end - time.monotonic())
            )
        except ray.exceptions.ActorDiedError:
            self._actor = None  # for good: another one has to be made
            raise

    def _find(self, timeout_s: float) -> Any:
        try:
            actor = open_seat(self.seat)
        except ValueError as error:  # the name was taken, and free again a moment later
            return DeadlineError(f"the {self.seat} is only just ending: {error}")
        who = ray.get(actor.whoami.remote(), timeout=timeout_s)
        if who.digest != self.seat.digest:
            return ConflictError(
                f"the actor {self.seat.name} serves the {who.seat}",
                field="account",
                value=self.seat.account,
                rule=str(self.seat),
                remedy="end what runs with another root or another version of raykit on this cluster",
            )
        return actor


def open_seat(seat: Seat, *, name: str | None = None) -> Any:
    """The actor that serves a seat, made if there is none. Does not wait for it.

    Raises:
        InvalidInput: this process is not connected to a Ray.
    """
    if not ray.is_initialized():
        raise InvalidInput("the budget actor needs a Ray", rule="ray.init() before")
    options = {
        "name": name or seat.name,
        "namespace": NAMESPACE,
        "lifetime": None if seat.idle_s is None else "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": MANY_CALLS,
    }
    return ray.remote(BudgetActor).options(**options).remote(seat)


def _teller(seat: Seat, hold_s: float) -> Teller:
    return Teller(seat, hold_s=hold_s)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class ActorDoor(Door):
    """The door of one training run, through the budget actor. Made by the launch, used by its workers."""

    def __init__(self, teller: Teller, attempts: Attempts) -> None:
        self._teller = teller
        self._attempts = attempts

    def begin(self, launch: str, ordinal: int) -> Grant:
        """Reserve attempt `ordinal` (from 1) of this launch, unless it is reserved.

        Raises:
            Refused: a person has to act first: approve, replan, repair.
            Stopped: a pause is in force, or the budget does not allow it.
            LeaseLostError: this attempt has ended, or a later one has begun.
            NotFoundError: the experiment has no budget in this account.
            Broken: the ledger is damaged, or an actor of that name serves something else.
            StoreUnavailableError: the store stayed away.
            UnknownOutcomeError: the same, and what was written last is not known.
            DeadlineError: the actor did not answer.
        """
        return self._teller.begin(self._attempts, launch, ordinal)

    def beat(self, lease: str) -> None:
        """Learn whether the lease goes on.

        Raises:
            LeaseLostError: there is no such lease, or it has ended.
            CorruptError: the ledger is damaged.
            ConflictError: an actor of that name serves something else.
            StoreUnavailableError: the actor has not reached the store for a while.
            DeadlineError: the actor did not answer.
        """
        self._teller.beat(lease)


__all__ = ["ActorDoor", "BudgetActor", "Seat", "Teller", "Who", "open_seat"]
