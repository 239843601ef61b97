"""What one worker is paid from: reserved before it starts, renewed before it ends, settled when it is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from raykit.budget.admit import Request
from raykit.budget.book import Lease
from raykit.errors import RaykitError, Unknown
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

    def renew(self, lease: str, *, time_ms: int) -> Lease: ...

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
        """Why it is not renewed."""
        self._door = door
        self._experiment = experiment
        self._role = role
        self._contract = contract
        self._price = price
        self._at = 0.0
        self._until = 0.0
        self._again = 0.0

    @property
    def paid_until(self) -> float:
        """When its worker has to be ended."""
        return self._until - BACKSTOP_S

    def reserve(self, now: float) -> None:
        """Reserve what the worker may hold at first.

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
            holder=this_place(),
        )
        self._door.reserve(request, role=self._role, contract=self._contract)
        self._at, self._until = now, now + LEASE_S

    def keep(self, now: float) -> bool:
        """Renew it, once little of it is left; `refused` says why it will not go on. False if nobody answered."""
        if self.refused is not None or self._until - now > RENEW_S or now < self._again:
            return True
        time_ms = int((now - self._at + LEASE_S) * 1000)
        try:
            self._door.renew(self.name, time_ms=time_ms)
        except Unknown:
            self._again = now + AGAIN_S
            return False
        except RaykitError as error:
            self.refused = str(error)
        else:
            self._until = now + LEASE_S
        return True

    def settle(self, now: float, *, reason: EndReason) -> None:
        """Say how long it was held.

        Raises:
            Broken: the ledger is damaged.
            Unknown: nobody answered. Asking again is safe.
        """
        held_ms = max(0, int((now - self._at) * 1000))
        self._door.settle(self.name, time_ms=held_ms, reason=reason, how="measured by its pool")
