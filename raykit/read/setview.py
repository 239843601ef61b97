"""A synthetic set as people look at it: what it is made of, how far it is, who is waited for; the same as JSON values.

Nothing is read here: `raykit.read.generation` fills these in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from raykit.pauses import InForce
from raykit.records import (
    CanaryPassed,
    Contracted,
    Failure,
    GenerationContract,
    Rows,
    SetFinding,
    SetManifest,
)
from raykit.shards.population import Facts, population
from raykit.shards.standing import Defect, Status
from raykit.shards.units import units_of

SetState = Literal[
    "waiting",
    "not started",
    "canary",
    "running",
    "stopped",
    "paused",
    "parked",
    "out of budget",
    "complete",
    "cancelled",
]
"""`waiting`: no checkpoint is approved for it. `stopped`: there is more to do, and nobody is at it. `out of
budget`: and no worker would be paid for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why rows were filtered and failed, by reason: how many."""

    filtered: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    receipts: int = 0
    """So many receipts tell them."""
    of: int = 0
    """So many could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The bounds of a set, each with its count."""

    counts: tuple[SetFinding, ...] = ()
    receipts: int = 0
    """So many receipts tell them: all that there are, or the newest ones."""
    of: int = 0

    def plain(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "counts": [count.plain() for count in self.counts],
            "receipts": self.receipts,
            "of": self.of,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Attempts at units that came to nothing, and answers that differed."""

    failed: Mapping[str, int] = field(default_factory=dict)
    """By kind of failure: how many attempts."""
    newest: tuple[tuple[int, Failure], ...] = ()
    """With their units, the newest first."""
    disputed: tuple[int, ...] = ()
    """Units that had two different answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What was made under the contract that counts."""

    contract: GenerationContract
    digest: str
    said: Contracted
    """What froze it."""
    canary: CanaryPassed | None
    manifest: SetManifest | None
    """None as long as it is not closed."""
    manifest_digest: str | None
    rows: Rows
    """Of the units that are published."""
    size_bytes: int
    units: Mapping[Status, int]
    parked: Mapping[int, int] = field(default_factory=dict)
    """By parked unit: its newest attempt."""
    given_up: frozenset[int] = frozenset()
    """Units whose rows a person lets count as failed."""
    defect: Defect | None = None
    """Why everyone on the contract has to stop."""
    reasons: Reasons = Reasons()
    bounded: Bounded = Bounded()
    attempts: Attempts = Attempts()

    @property
    def units_total(self) -> int:
        return units_of(self.contract)

    @property
    def findings(self) -> tuple[SetFinding, ...]:
        """Bounds that the complete set does not keep."""
        return () if self.manifest is None else self.manifest.findings

    @property
    def scripted(self) -> bool:
        """Only a script has approved the teacher."""
        return self.said.scripted if self.manifest is None else self.manifest.scripted

    @property
    def population(self) -> Facts:
        """How its rows are made: which population they stand for."""
        return population(self.contract, self.said)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRead:
    """One synthetic set at one moment."""

    experiment: str
    name: str
    state: SetState
    detail: str | None = None
    """More of why it is in that state."""
    command: str | None = None
    """What goes on with it; None where nothing has to be done."""
    teacher: str = "selected"
    """As the plan has it."""
    rows: int | None = None
    """Rows that are requested; None where nobody can say before its inputs are read."""
    made: Made | None = None
    """None before a contract is frozen."""
    contracts: int = 0
    """How many were frozen so far."""
    pause: InForce | None = None
    plan: str = "PLAN"
    """The file of its plan, as it is typed: the store does not know it, whoever launches it does."""

    @property
    def id(self) -> str:
        """`EXPERIMENT/SET`."""
        return f"{self.experiment}/{self.name}"

    @property
    def complete(self) -> bool:
        """Every requested row is accounted for."""
        return self.state == "complete"

    @property
    def words(self) -> str:
        """Its state, as people read it."""
        match self.state:
            case "waiting":
                return "waits for an approved checkpoint"
            case "paused":
                return "paused" if self.pause is None else self.pause.words
            case "parked":
                return "parked: a person is needed"
            case "complete" if self.made is not None and self.made.findings:
                return "complete, not within its bounds"
            case "stopped" | "running" | "out of budget" if self.detail is not None:
                return f"{self.state}: {self.detail}"
            case _:
                return self.state

    @property
    def left_ms(self) -> int | None:
        """What is left of it takes so long on one accelerator, at the pace of its canary; None if none has passed."""
        made = self.made
        if self.state in ("complete", "cancelled"):
            return 0
        if made is None or made.canary is None:
            return None
        return made.canary.whole_ms * (made.contract.rows - made.rows.requested) // made.contract.rows

    @property
    def then(self) -> str | None:
        """What goes on with it after its command: the end of its pause starts nothing. None if that is not known."""
        goes_on = self.state == "out of budget" or (self.state == "paused" and self.made is not None)
        return f"raykit generate {self.plan}" if goes_on else None

    @property
    def needs(self) -> dict[str, str]:
        """What only stands for something in its commands, since the store does not know it."""
        if all(each is None or "PLAN" not in each.split() for each in (self.command, self.then)):
            return {}
        return {"PLAN": f'the plan file with name = "{self.experiment}"'}

    @property
    def waits_for(self) -> str | None:
        """Who has to do something; None if nobody has."""
        if self.state in ("complete", "cancelled", "running", "canary"):
            return None
        people = self.state in ("waiting", "paused", "parked", "out of budget")
        return "a person" if people else "a launch of its plan"

    def brief(self) -> dict[str, Any]:
        """How far it is, as JSON values."""
        made = self.made
        return {
            "set": self.name,
            "state": self.state,
            "words": self.words,
            "waits_for": self.waits_for,
            "command": self.command,
            "then": self.then,
            "command_needs": self.needs,
            "rows": {"requested": self.rows} if made is None else _plain_rows(made),
            "contract": made and made.digest,
            "manifest": made and made.manifest_digest,
        }

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "experiment": self.experiment,
            "set": self.name,
            "state": self.state,
            "words": self.words,
            "detail": self.detail,
            "complete": self.complete,
            "waits_for": self.waits_for,
            "command": self.command,
            "then": self.then,
            "command_needs": self.needs,
            "teacher": self.teacher,
            "contracts": self.contracts,
            "paused": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "rows": {"requested": self.rows} if self.made is None else _plain_rows(self.made),
            "made": self.made and _plain_made(self.made),
        }


def _plain_rows(made: Made) -> dict[str, Any]:
    """All rows of a set: those that are requested, and what became of them."""
    rows = made.rows.plain()
    open_ = made.contract.rows - made.rows.requested
    return {**rows, "requested": made.contract.rows, "accounted": made.rows.requested, "open": open_}


def _plain_made(made: Made) -> dict[str, Any]:
    return {
        "contract": {**made.contract.plain(), "digest": made.digest},
        "population": dict(made.population),
        "frozen": made.said.plain(),
        "scripted": made.scripted,
        "canary": made.canary and made.canary.plain(),
        "manifest": made.manifest_digest,
        "findings": [finding.plain() for finding in made.findings],
        "bounded": made.bounded.plain(),
        "size_bytes": made.size_bytes,
        "units": {"total": made.units_total, **made.units},
        "parked": sorted(made.parked),
        "given_up": sorted(made.given_up),
        "defect": made.defect and made.defect.words,
        "filtered": dict(made.reasons.filtered),
        "failed": dict(made.reasons.failed),
        "reasons_from": {"receipts": made.reasons.receipts, "of": made.reasons.of},
        "attempts": {
            "failed": dict(made.attempts.failed),
            "newest": [{"unit": unit, **failure.plain()} for unit, failure in made.attempts.newest],
            "disputed": list(made.attempts.disputed),
        },
    }
