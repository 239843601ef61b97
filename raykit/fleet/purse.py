"""The leases of one launch: reserved before Ray starts, settled when everything that it held is given back."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable

from raykit.budget.admit import settle, settle_at_most
from raykit.budget.amounts import shown
from raykit.budget.book import Book, Lease
from raykit.budget.lines import TRAIN
from raykit.fleet.budget_actor import ActorDoor, Seat, Teller, open_seat
from raykit.fleet.door import StoreDoor, elapsed_ms, grant_of, launch_of, lease_of
from raykit.fleet.site import Site
from raykit.fleet.spending import Spending
from raykit.records import EndReason, Held, Record, Settled
from raykit.train.door import Door
from raykit.train.inputs import Task

RELEASE_TIMEOUT_S = 300.0


class Purse:
    """What one launch may spend, from its first reservation to its last settlement."""

    def __init__(self, site: Site, task: Task, spending: Spending) -> None:
        self._site = site
        self._task = task
        self._spending = spending
        self.idle_s: float | None = None
        """Of the budget actor: how long it may be idle, where it outlives this process."""
        self._granted = 1
        """The newest attempt of this launch whose lease is known here."""
        self._since = self._until = time.monotonic()
        """When that lease began, and when what it pays for ends, by this process's own clock."""

    def reserve(self) -> None:
        """Reserve the first attempt, set-up included, in the ledger itself: there is no cluster yet to ask in.

        Raises:
            Refused: a person has to act first.
            Stopped: a pause is in force, or the budget does not allow it.
            Unknown: the store did not answer for longer than the task holds.
        """
        self._since = time.monotonic()
        ledger, attempts = self._spending.ledger, self._spending.attempts
        door = StoreDoor(
            self._site.store,
            ledger.account,
            attempts,
            by=f"launch {self._task.launch}",
            hold_s=self._task.hold_s,
        )
        self._until = self._since + door.begin(self._task.launch, 1).left_ms / 1000

    def left_s(self, attempts: int) -> float:
        """How long what the newest of this launch's `attempts` leases pays for still lasts.

        Raises:
            LeaseLostError: the newest attempt has no lease.
            CorruptError: the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self._follow(attempts)
        return self.known_left_s

    @property
    def known_left_s(self) -> float:
        """The same as far as it is known already: nobody is asked."""
        return self._until - time.monotonic()

    def _follow(self, attempts: int) -> None:
        """Learn of the lease of the newest attempt, which its worker has asked for."""
        if attempts <= self._granted:
            return
        ledger = self._spending.ledger
        ledger.refresh()
        name = lease_of(self._task.launch, attempts)
        left_ms = grant_of(ledger.book, name, now=time.time()).left_ms
        self._until = time.monotonic() + left_ms / 1000
        self._since = self._until - ledger.book.leases[name].time_ms / 1000
        self._granted = attempts

    def door(self) -> Door:
        """The door for the workers of a Ray that this process is connected to; its actor belongs to this process."""
        self._actor = open_seat(self.seat)
        return ActorDoor(Teller(self.seat, hold_s=self._task.hold_s), self._spending.attempts)

    @property
    def seat(self) -> Seat:
        """What the budget actor of this launch serves."""
        return Seat(root=self._task.root, account=self._spending.ledger.account, idle_s=self.idle_s)

    @property
    def spending(self) -> Spending:
        """What this launch spends from."""
        return self._spending

    def settle(self, *, reason: EndReason, attempts: int, wall_ms: int | None) -> int:
        """Settle what is open of this launch, now that nothing is held; what it has cost, in micro-units.

        `wall_ms` is the productive time of the newest attempt, where it is known.

        Raises:
            LeaseLostError: the newest attempt has no lease.
            CorruptError: the ledger is damaged.
            UnknownOutcomeError: the reply was lost; the next launch finds out.
            StoreUnavailableError: the store did not answer; the next launch settles.
        """
        now, ledger = time.time(), self._spending.ledger
        self._follow(attempts)
        newest = lease_of(self._task.launch, self._granted)
        held_ms = int((time.monotonic() - self._since) * 1000)

        def end(book: Book, lease: Lease) -> Settled | None:
            name = lease.reserved.lease
            if name == newest:
                how = "measured by its launch"
                return settle(book, name, time_ms=held_ms, wall_ms=wall_ms, reason=reason, how=how)
            # Only the clock on the wall has seen its start, and that clock may have been moved.
            passed_ms, how = elapsed_ms(lease, now), "its gang was lost; its launch has ended"
            return settle_at_most(book, name, time_ms=passed_ms, reason="killed", how=how)

        def ends(book: Book) -> list[Record]:
            ended = [end(book, lease) for lease in self._open(book)]
            return [event for event in ended if event is not None]

        ledger.decide(ends, at=now)
        ledger.snapshot()
        return self.cost()

    def cost(self) -> int:
        """What this launch has cost, with the workers beside it, as far as that is known here."""
        leases = self._spending.ledger.book.leases.items()
        return sum(lease.charged for name, lease in leases if launch_of(name) == self._task.launch)

    def let_go(self, say: Callable[[str], None]) -> None:
        """See to machines that are billed by the node, whether or not anyone works on them.

        Raises:
            CorruptError: the ledger is damaged.
            UnknownOutcomeError: the reply was lost.
            StoreUnavailableError: the store did not answer.
        """
        pool = self._site.plan.pools.get("train")
        price = None if pool is None else pool.usd_per_hour
        sizing = self._spending.sizing
        if pool is None or price is None or price.billed != "node" or sizing.rate == 0:
            return
        if pool.release is not None and _released(pool.release, say):
            return
        per_hour = shown(sizing.rate * sizing.accelerators)
        say(
            f"! still yours and still billed, ${per_hour}/h: {sizing.accelerators} x {sizing.source}. They stop when "
            f"you stop them; then: raykit budget free {self._site.name} --how ... --by NAME"
        )
        held = Held(
            experiment=self._site.name, pool="train", accelerators=sizing.accelerators, rate=sizing.rate
        )
        self._spending.ledger.decide(
            lambda book: [] if (self._site.name, "train") in book.held else [held], at=time.time()
        )

    def _open(self, book: Book) -> list[Lease]:
        """Of its attempts; the workers beside them are settled by whoever has them."""
        return [
            lease
            for lease in book.open_leases(self._site.name)
            if lease.reserved.line == TRAIN and launch_of(lease.reserved.lease) == self._task.launch
        ]


def _released(command: str, say: Callable[[str], None]) -> bool:
    """Run the plan's release command; whether it ended well."""
    say(f"release: {command}")
    try:
        done = subprocess.run(shlex.split(command), timeout=RELEASE_TIMEOUT_S, capture_output=True, text=True)  # noqa: S603 - the plan's own command, printed before
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        say(f"the release command did not work: {error}")
        return False
    if done.returncode:
        say(f"the release command ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return done.returncode == 0
