"""The leases of one launch: reserved before Ray starts, settled when everything that it held is given back."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable

from raykit.budget.admit import settle
from raykit.budget.amounts import shown
from raykit.budget.book import Book, Lease
from raykit.fleet.budget_actor import ActorDoor, Seat, Teller, open_seat
from raykit.fleet.door import StoreDoor, elapsed_ms, grant_of, lease_of
from raykit.fleet.site import Site
from raykit.fleet.spending import Spending
from raykit.records import EndReason, Held, Record
from raykit.train.door import Door
from raykit.train.inputs import Task

RELEASE_TIMEOUT_S = 300.0


class Purse:
    """What one launch may spend, from its first reservation to its last settlement."""

    def __init__(self, site: Site, task: Task, spending: Spending) -> None:
        self._site = site
        self._task = task
        self._spending = spending
        self._opened = time.monotonic()
        self._until = self._opened
        self._granted = 1

    def reserve(self) -> None:
        """Reserve the first attempt, set-up included, in the ledger itself: there is no cluster yet to ask in.

        Raises:
            Refused: a person has to act first.
            Stopped: a pause is in force, or the budget does not allow it.
            Unknown: the store did not answer for longer than the task holds.
        """
        self._opened = time.monotonic()
        ledger, attempts = self._spending.ledger, self._spending.attempts
        door = StoreDoor(
            self._site.store,
            ledger.account,
            attempts,
            by=f"launch {self._task.launch}",
            hold_s=self._task.hold_s,
        )
        self._until = self._opened + door.begin(self._task.launch, 1).left_ms / 1000

    def left_s(self, attempts: int) -> float:
        """How long what the newest of this launch's `attempts` leases pays for still lasts.

        Raises:
            CorruptError: the ledger is damaged.
            StoreUnavailableError: the store did not answer.
        """
        if attempts > self._granted:
            ledger = self._spending.ledger
            ledger.refresh()
            lease = lease_of(self._task.launch, attempts)
            grant = grant_of(ledger.book, lease, now=time.time())
            self._until, self._granted = time.monotonic() + grant.left_ms / 1000, attempts
        return self._until - time.monotonic()

    def door(self) -> Door:
        """The door for the workers of a Ray that this process is connected to; its actor belongs to this process."""
        seat = Seat(root=self._task.root, account=self._spending.ledger.account)
        self._actor = open_seat(seat)
        return ActorDoor(Teller(seat, hold_s=self._task.hold_s), self._spending.attempts)

    def settle(self, *, reason: EndReason, attempts: int, wall_ms: int | None) -> int:
        """Settle what is open of this launch, now that nothing is held; what it has cost, in micro-units.

        `wall_ms` is the productive time of the newest attempt, where it is known.

        Raises:
            CorruptError: the ledger is damaged.
            UnknownOutcomeError: the reply was lost; the next launch finds out.
            StoreUnavailableError: the store did not answer; the next launch settles.
        """
        now = time.time()
        newest = lease_of(self._task.launch, max(attempts, 1))
        ledger = self._spending.ledger

        def ends(book: Book) -> list[Record]:
            made = []
            for lease in self._open(book):
                name = lease.reserved.lease
                last = name == newest
                made.append(
                    settle(
                        book,
                        name,
                        time_ms=self._held_ms(lease, now),
                        wall_ms=wall_ms if last else None,
                        reason=reason if last else "killed",
                        how="measured by its launch",
                    )
                )
            return [event for event in made if event is not None]

        ledger.decide(ends, at=now)
        ledger.snapshot()
        prefix = f"{self._task.launch}-"
        return sum(lease.charged for name, lease in ledger.book.leases.items() if name.startswith(prefix))

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
            f"! {sizing.accelerators} accelerators are still yours and still billed: ${per_hour}/h. They stop when "
            f"you stop them; then: raykit budget free {self._site.name} --how ..."
        )
        held = Held(
            experiment=self._site.name, pool="train", accelerators=sizing.accelerators, rate=sizing.rate
        )
        self._spending.ledger.decide(
            lambda book: [] if (self._site.name, "train") in book.held else [held], at=time.time()
        )

    def _open(self, book: Book) -> list[Lease]:
        prefix = f"{self._task.launch}-"
        return [
            lease for lease in book.open_leases(self._site.name) if lease.reserved.lease.startswith(prefix)
        ]

    def _held_ms(self, lease: Lease, now: float) -> int:
        """How long a lease was held: by this process's own clock, where it was there all the time."""
        if lease.reserved.lease == lease_of(self._task.launch, 1):
            return int((time.monotonic() - self._opened) * 1000)
        return elapsed_ms(lease, now)


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
