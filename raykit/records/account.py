"""The ledger of one account: every event that moves money, or says who may move it.

All amounts are whole micro-units of the account's one unit, US dollars or accelerator-hours: 1.25 is 1250000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from raykit.ids import Digest, Name
from raykit.records.base import Count, Record, Versioned
from raykit.records.entry import Entry
from raykit.records.shared import EndReason, Place, Words

MICRO = 1_000_000
AUTONOMOUS = 5 * MICRO
"""Micro-USD that an account has to stay below for work that nobody approves, over its whole life."""
LARGEST = 10**15
"""A billion units: more than that is a mistake of somebody's."""

Unit = Literal["usd", "accelerator-hours"]
Micros = Annotated[int, Field(ge=0, le=LARGEST)]
LONGEST_MS = 10**12
"""Thirty years: no record holds a longer time."""
Milliseconds = Annotated[int, Field(ge=0, le=LONGEST_MS)]
Permille = Annotated[int, Field(ge=1000, le=100_000)]
"""A factor from 1 to 100, in thousandths."""

Lease = Name

Purpose = Literal["screening", "target", "comparison", "overhead", "confirmation", "recovery", "scratch"]
"""What a line is for. Lines of one purpose pay for each other's overruns; no purpose pays for another's."""


class Line(Record):
    """What a plan sets aside for one thing."""

    line: Name
    purpose: Purpose
    planned: Micros
    arms: Mapping[Name, Micros] | None = None
    """Of a comparison at equal budget: the same for each arm."""

    @model_validator(mode="after")
    def _arms_are_the_line(self) -> Self:
        if self.arms is not None and sum(self.arms.values()) != self.planned:
            raise ValueError("the arms do not sum to the line")
        return self


class Terms(Record):
    """What a reservation was worked out from."""

    accelerators: Count
    rate: Micros
    """Micro-units for one accelerator-hour."""
    source: str
    """Where the rate comes from."""
    margin_permille: Permille = 1000
    """How far the rate may rise before the reservation no longer covers it."""
    time_ms: Milliseconds
    """The time that is paid for, from set-up to the end of the drain."""
    wall_ms: Milliseconds | None = None
    """The most of it that may be productive: what is left of the plan's wall cap."""
    drain_ms: Milliseconds = 0
    """The part of it in which work ends and is made durable."""
    fixed: Micros = 0
    uncertain: bool = False
    """No run of this contract has been measured yet: the times are guesses."""


# --- events -------------------------------------------------------------------------------------------------


class AccountOpened(Record):
    """The account begins."""

    closes = True

    event: Literal["account"] = "account"
    account: Name
    unit: Unit
    why: Words


class Parted(Record):
    """A person lets an experiment have another account, though its work is related to this one's."""

    closes = True

    event: Literal["parted"] = "parted"
    experiment: Name
    account: Name
    reason: Words
    person: Words
    scripted: bool = False


class Planned(Record):
    """What an experiment may cost at most, and the lines that sum to exactly that."""

    closes = True

    event: Literal["planned"] = "planned"
    experiment: Name
    plan: Digest
    decision: Digest
    """Plans for one decision are alternatives: they share, they never add."""
    ceiling: Micros
    lines: tuple[Line, ...]
    rates: Mapping[Name, Micros] = Field(default_factory=dict)
    """By line: the rate of its accelerators that the plan was worked out with."""
    margin_permille: Permille = 1000
    expected: Micros
    """The cost that is expected, without any reserve."""
    expected_ms: Milliseconds = 0
    uncertain: bool = False


class Approved(Record):
    """A person lets an account, or one plan of it, come to `covers`."""

    closes = True

    event: Literal["approved"] = "approved"
    scope: Literal["plan", "account"]
    covers: Micros
    experiment: Name | None = None
    projection: Digest | None = None
    """Digest of the consequential part of the plan's lock; another plan is not covered."""
    reason: Words | None = None
    person: Words
    scripted: bool = False

    @model_validator(mode="after")
    def _names_its_plan(self) -> Self:
        of_plan = self.scope == "plan"
        if (self.experiment is not None, self.projection is not None) != (of_plan, of_plan):
            raise ValueError("an approval of a plan, and no other, names the experiment and the projection")
        return self


class Rated(Record):
    """What an accelerator of one pool costs from now on."""

    closes = True

    event: Literal["rated"] = "rated"
    pool: Name
    rate: Micros
    source: Words
    on: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    """The date of the source."""
    person: Words


class Reserved(Record):
    """A worker lease: `worst` is charged until it is settled or voided."""

    event: Literal["reserved"] = "reserved"
    lease: Lease
    experiment: Name
    line: Name
    worst: Micros
    terms: Terms
    charged: Micros
    """Settled and reserved of the whole account before this, as the admission saw it."""
    below: Micros
    """The bound that it was held against."""
    projection: Digest | None = None
    """Digest of the consequential part of the plan that wants it: what an approval has to name."""
    run: Name | None = None
    """The trial that it pays for; None outside of searches."""
    holder: Place | None = None
    """The process that started the worker and outlives it by little; None for attempts of a run, whose log names it."""


class Accrued(Record):
    """A lease goes on: what it has cost so far, and what it may come to now."""

    event: Literal["accrued"] = "accrued"
    lease: Lease
    cost: Micros
    worst: Micros
    time_ms: Milliseconds


class Settled(Record):
    """The end of a lease is known, and so is what it cost."""

    event: Literal["settled"] = "settled"
    lease: Lease
    cost: Micros
    time_ms: Milliseconds
    """How long the accelerators were held."""
    wall_ms: Milliseconds | None = None
    """The productive part of it, where that is known."""
    reason: EndReason
    how: str
    """How the cost is known."""
    person: Words | None = None
    """Who says so, where raykit could not know."""


class Voided(Record):
    """The work of a lease never started."""

    event: Literal["voided"] = "voided"
    lease: Lease
    proof: Words


class Corrected(Record):
    """What a lease really cost, learned later: an invoice, say."""

    closes = True

    event: Literal["corrected"] = "corrected"
    lease: Lease
    cost: Micros
    reason: Words
    person: Words


class Replanned(Record):
    """A person moves an experiment's ceiling, or money between its lines."""

    closes = True

    event: Literal["replanned"] = "replanned"
    experiment: Name
    ceiling: Micros
    lines: tuple[Line, ...]
    rates: Mapping[Name, Micros] = Field(default_factory=dict)
    reason: Words
    person: Words
    scripted: bool = False


class Held(Record):
    """Nobody works, and the machines of a pool are still billed: they are rented by the node."""

    closes = True

    event: Literal["held"] = "held"
    experiment: Name
    pool: Name
    accelerators: Count
    rate: Micros


class Freed(Record):
    """The machines of a pool are given back, or work again."""

    closes = True

    event: Literal["freed"] = "freed"
    experiment: Name
    pool: Name
    cost: Micros
    """What they cost while nobody worked."""
    how: Words


class Closed(Record):
    """An experiment is cancelled: what it had set aside is free again, what it has spent stays spent."""

    closes = True

    event: Literal["closed"] = "closed"
    experiment: Name
    reason: Words
    person: Words


AccountEvent = Annotated[
    AccountOpened
    | Parted
    | Planned
    | Approved
    | Rated
    | Reserved
    | Accrued
    | Settled
    | Voided
    | Corrected
    | Replanned
    | Held
    | Freed
    | Closed,
    Field(discriminator="event"),
]


class AccountEntry(Entry):
    events: tuple[AccountEvent, ...]


class AccountOf(Versioned):
    """Which account work with this identity belongs to. Created once, by whoever came first."""

    account: Name
    experiment: Name
    """The experiment that came first."""
