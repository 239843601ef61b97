"""What people decide about experiments, and what pauses them: the log of one experiment, and that of the fleet.

An act on one experiment is in its own log; an act on a wider scope is in the one log of the fleet.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from raykit.ids import Digest, Name
from raykit.records.base import Count, Record
from raykit.records.entry import Entry
from raykit.records.generation import CanaryPassed, Contracted, Generated, GivenUp
from raykit.records.judging import Concluded, Measured, Noted, Observed, RowsCounted
from raykit.records.qc import Pinned, Retried, Reviewed
from raykit.records.shared import Cause, Exactness, Words

Scope = Annotated[
    str,
    StringConstraints(
        pattern=r"^(all|experiment:[a-z0-9][a-z0-9._-]{0,127}|role:(train|qc|generate|search)|contract:[0-9a-f]{64})$"
    ),
]
"""Whom a pause concerns: `all`, `experiment:NAME`, `role:train`, `contract:DIGEST`."""


# --- one experiment -----------------------------------------------------------------------------------------


class Locked(Record):
    """A plan is frozen: its lock, the recipe's code, the environment and the split members."""

    closes = True

    event: Literal["locked"] = "locked"
    plan: Digest
    contract: Digest
    code: Digest
    environment: Digest
    data: Digest
    seen_update: Count | None = None
    """The newest update whose results were there when this was locked: what changed then is a deviation. None if
    nothing had been seen: what changed then is an amendment."""
    deviation: Words | None = None
    """What a person says of a change after results were seen."""


class Amended(Record):
    """A person allows runs of this experiment to go on less exactly than their plan needs."""

    closes = True

    event: Literal["amended"] = "amended"
    run: Name
    allows: Exactness
    reason: str
    differences: Digest
    """Digest of exactly the differences that were seen; others are not covered."""


class RestartApproved(Record):
    """A person lets this plan train from scratch though a trained checkpoint answers to the same decision."""

    closes = True

    event: Literal["approved"] = "approved"
    scope: Literal["restart"] = "restart"
    projection: Digest
    """Digest of the consequential part of the lock; another plan is not covered."""
    covers: Words
    reason: Words
    person: Words
    scripted: bool = False


class Harmless(Record):
    """A person says that state which no checkpoint holds does not matter: a cache, a log counter."""

    closes = True

    event: Literal["harmless"] = "harmless"
    names: tuple[Words, ...]
    """As a finding names them, such as `recipe.calls`."""
    reason: Words
    person: Words


class Repaired(Record):
    """A person says what was done about a necessary check that failed, or about a shared defect."""

    closes = True

    event: Literal["repair"] = "repair"
    what: Words
    attempt: Count
    """Covers what failed through this attempt; a later failure needs its own repair."""
    person: Words


CANCELLED = "cancelled by "
"""So begin the words of a cancel, also where they are kept as why an attempt or a row has ended."""


class Cancelled(Record):
    """The end for good. Nothing is deleted."""

    closes = True

    event: Literal["cancelled"] = "cancelled"
    reason: Words
    person: Words

    @property
    def words(self) -> str:
        """Who ended it, and why."""
        return f"{CANCELLED}{self.person}: {self.reason}"


# --- pause and resume, of any scope -------------------------------------------------------------------------


class Paused(Record):
    """Commit at the next boundary, release, and do not start again until this scope is resumed."""

    closes = True

    event: Literal["pause"] = "pause"
    scope: Scope
    cause: Cause
    reason: Words
    person: Words
    """Who asked; for a pause that raykit itself decided, the launch."""


class Resumed(Record):
    """The pause of this scope is over."""

    closes = True

    event: Literal["resume"] = "resume"
    scope: Scope
    cleared: Words
    """How the cause was cleared."""
    person: Words


ExperimentEvent = Annotated[
    Locked
    | Amended
    | RestartApproved
    | Harmless
    | Repaired
    | Cancelled
    | Paused
    | Resumed
    | Observed
    | Concluded
    | Noted
    | Measured
    | RowsCounted
    | Reviewed
    | Retried
    | Pinned
    | Contracted
    | CanaryPassed
    | GivenUp
    | Generated,
    Field(discriminator="event"),
]

FleetEvent = Annotated[Paused | Resumed, Field(discriminator="event")]


class ExperimentEntry(Entry):
    events: tuple[ExperimentEvent, ...]


class FleetEntry(Entry):
    events: tuple[FleetEvent, ...]
