"""What one worker is paid from: reserved before it starts, renewed before it ends, settled when it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from raykit.budget.admit import Request
from raykit.budget.book import Lease
from raykit.budget.room import UNIT_S, least_ms
from raykit.errors import ApprovalError, BudgetError, RaykitError, ReplanError, Unknown
from raykit.pauses import Role
from raykit.records import EndReason, Terms
from raykit.store.place import this_place

LEASE_S: Final = 600.0
"""What is reserved at a time."""
RENEW_S: Final = 300.0
"""A lease is renewed once so little of it is left."""
AGAIN_S: Final = 20.0
"""Between two tries at what was not answered."""
BACKSTOP_S: Final = 5.0
"""So long before the end of what is paid for, a worker is ended."""


class PoolDoor(Protocol):
    """Where a worker's lease is asked for. `raykit.fleet.budget_actor.Teller` is one."""

    def reserve(self, request: Request, *, role: Role, contract: str | None = None) -> Lease: ...

    def renew(self, lease: str, *, time_ms: int, least_ms: int | None = None) -> Lease: ...

    def settle(
        self, lease: str, *, time_ms: int, reason: EndReason, how: str, at_most: bool = False
    ) -> Lease: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What an hour of one worker costs."""

    rate: int = 0
    """Micro-units for an accelerator-hour; 0 where nothing is billed."""
    source: str = "this machine's own CPUs: not billed"
    margin_permille: int = 1000
    projection: str | None = None
    """What an approval of the plan names."""


def lease_terms(price: Price) -> Terms:
    """What is reserved for one worker at first."""
    return Terms(
        accelerators=1,
        rate=price.rate,
        source=price.source,
        margin_permille=price.margin_permille,
        time_ms=int(LEASE_S * 1000),
    )


class WorkerLease:
    """The lease of one worker. Times are those of the pool's own clock."""

    def __init__(
        self, door: PoolDoor, name: str, *, experiment: str, role: Role, contract: str, price: Price
    ) -> None:
        """`role` is also the line that pays; a pause of the `contract` refuses it."""
        self.name = name
        self.refused: str | None = None
        """Why it is not renewed, once too little is left of it for another unit."""
        self._door = door
        self._experiment = experiment
        self._role = role
        self._contract = contract
        self._price = price
        self._at = 0.0
        self._until = 0.0
        self._again = 0.0
        self._short: str | None = None
        """Why nobody pays for more of it now."""

    @property
    def paid_until(self) -> float:
        """When its worker has to be ended."""
        return self._until - BACKSTOP_S

    def reserve(self, now: float, *, unit_s: float = UNIT_S, share: int = 1) -> None:
        """Reserve what the worker may hold at first: less than usual where the money is short, but enough for a unit,
        which takes `unit_s`. It is one of `share` that are to start.

        Raises:
            Refused: a person has to act first.
            Stopped: a pause is in force, or the budget does not allow it.
            Broken: the ledger is damaged.
            Unknown: nobody answered. Asking again is safe.
        """
        request = Request(
            lease=self.name,
            experiment=self._experiment,
            line=self._role,
            terms=lease_terms(self._price),
            projection=self._price.projection,
            least_ms=least_ms(unit_s),
            share=share,
            holder=this_place(),
        )
        granted = self._door.reserve(request, role=self._role, contract=self._contract)
        self._at, self._until = now, now + granted.time_ms / 1000

    def keep(self, now: float, *, unit_s: float = UNIT_S) -> bool:
        """Renew it, once little of it is left. False if nobody answered.

        Where nobody pays for more, what is paid for is used: `refused` says so once it is not enough for another unit.
        """
        left_s = self._until - now
        if self._short is not None and left_s <= unit_s + BACKSTOP_S:
            self.refused = self._short
        if self.refused is not None or left_s > RENEW_S or now < self._again:
            return True
        self._again = now + AGAIN_S
        time_ms, least_s = int((now - self._at + LEASE_S) * 1000), self._until - self._at + AGAIN_S
        try:
            granted = self._door.renew(self.name, time_ms=time_ms, least_ms=int(least_s * 1000))
        except Unknown:
            return False
        except (ApprovalError, BudgetError, ReplanError) as error:
            self._short = str(error)
        except RaykitError as error:
            self.refused = str(error)
        else:
            self._short, self._until = None, self._at + granted.time_ms / 1000
        return True

    def settle(self, now: float, *, reason: EndReason) -> None:
        """Say how long it was held.

        Raises:
            Broken: the ledger is damaged.
            Unknown: nobody answered. Asking again is safe.
        """
        held_ms = max(0, int((now - self._at) * 1000))
        self._door.settle(self.name, time_ms=held_ms, reason=reason, how="measured by its pool")
