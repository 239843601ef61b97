"""What a review judges: a plan, and what the store says around it. Gathered elsewhere, judged here.

Amounts are micro-units of `unit`; times are milliseconds of one accelerator group; every digest names bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from raykit.ids import Digest
from raykit.plan import LockedBase, Looked, Plan, RowChange, Stage, Start
from raykit.records import AUTONOMOUS, CandidateRole, Concluded, Line, Noted, Observed, Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The weights that the plan weighs, or that answer to its decision though the plan does not name them."""

    locked: LockedBase
    role: CandidateRole
    production: bool
    """It is the registered production candidate."""
    approved_by: str | None
    """The person who approved it by name; None if nobody did."""
    scripted: bool = False
    """That approval was given by a script."""
    verifies: bool = True
    """Its files were read, or at least found, and match its manifest."""
    updates: int = 0
    """Updates that were trained into it."""
    accelerator_ms: int | None = None
    """Accelerator time invested; None if nobody knows."""
    cost: int | None = None
    """What that cost, in micro-units; None if nobody knows."""
    accelerators: int = 1
    rows: int | None = None
    """Rows that it was trained on; None if nobody knows."""
    dependents: tuple[str, ...] = ()
    """What was made from it: runs, generated sets, exports."""
    declared: bool = True
    """The plan names it in [base]; otherwise the store found it."""
    has_optimizer: bool = True
    """The state of its optimizer is there, too."""
    noise: float | None = None
    """Its own spread from seed to seed, in the metric's units; None if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A short run that was made for this decision before."""

    experiment: str
    updates: int
    effect: str
    """As people concluded it, with its uncertainty."""
    decided: bool
    """Whether it settled the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCost:
    """What one option would take, as far as it can be known."""

    updates: int
    """Updates that it would train."""
    time_ms: int | None
    accelerator_ms: int | None
    cost: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What the plan may cost, as the budget works it out."""

    unit: Unit
    ceiling: int
    lines: tuple[Line, ...]
    worst: int
    """All that may be spent without any reserve."""
    expected: int
    expected_ms: int
    uncertain: bool
    charged: int
    """What the account has come to already: settled and reserved."""
    account: str
    account_ceiling: int | None
    """The largest figure that the account may come to; None if nothing bounds it but approvals."""
    rates: Mapping[str, str]
    """By pool: rate, source and how it is billed, as text."""
    billed: bool
    """Anything at all is paid for."""
    priced: frozenset[str]
    """The pools whose work is paid for. What has no pool of its own runs on this machine's own CPUs, for nothing."""
    run_worst: int | None = None
    """What the run, or each row of a search, may cost over all of its attempts; None where that is not known."""
    starts_worst: int = 0
    """What of it is set-up, lost work and drain."""
    refusal: str | None = None
    """Why the lines cannot be made to fit, if they cannot."""
    refusal_rule: str | None = None
    refusal_remedy: str | None = None

    @property
    def below_autonomous(self) -> bool:
        """Whether the account stays below what needs no approval, whatever happens."""
        return self.unit == "usd" and self.charged + self.worst < AUTONOMOUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The plan was locked before, and what has been seen since then."""

    update: int | None
    """The newest update with results; None if nothing was seen."""
    changed: Mapping[str, tuple[object, object]]
    """Every setting of the plan that differs from the newest lock: before, and now."""
    removed: tuple[str, ...] = ()
    """Hypotheses that observations have removed."""
    unreported: frozenset[str] = frozenset()
    """Metrics with a threshold before that no receipt reports, though there are receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative:
    """An idea that was tried before and came to nothing, and how close this plan is to it."""

    experiment: str
    concluded: Concluded
    same: tuple[str, ...]
    """What is the same: decision, setting, hypothesis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that happened once, somewhere."""

    experiment: str
    noted: Noted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A generation or a check whose speed is known: rows or units in a time of its pool."""

    what: str
    """`qc`, `compare`, or `generate.NAME`."""
    time_ms: int
    units: int
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Straddling:
    """What lies in more than one split, though the data say that it belongs together."""

    groups: int = 0
    """Groups of the data."""
    parted: int = 0
    """Those of them with rows in more than one split."""
    contents: tuple[tuple[str, int, int, str], ...] = ()
    """Of a split, how many of how many rows have the very content of a row of another split."""

    @property
    def words(self) -> str:
        """`12 of 40 groups of the data are in more than one split; 27 of 30 rows of development equal one of train`."""
        found = [
            f"{same:,} of {rows:,} rows of {role} equal one of {other}"
            for role, same, rows, other in self.contents
        ]
        if self.parted:
            found.insert(
                0, f"{self.parted:,} of {self.groups:,} groups of the data are in more than one split"
            )
        return "; ".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that one review looks at."""

    plan: Plan
    stage: Stage
    stage_why: str
    rows: Mapping[str, int]
    """Rows of each role, today."""
    gates: tuple[str, ...]
    money: Money
    looked: Looked
    straddling: Straddling | None = None
    """What lies in more than one split; None if nothing does, or nothing is known of the rows."""
    base: Base | None = None
    base_problem: str | None = None
    """Why the base that the plan names cannot be used, if it cannot."""
    change: RowChange | None = None
    settings: tuple[str, ...] = ()
    """What else of the training contract differs from the base, as `run.params.lr: 0.001 -> 0.0001`."""
    model_settings: tuple[str, ...] = ()
    """Those of them that make another model of it, so that the base's weights do not fit."""
    same_bits: bool = False
    """From the start, with deterministic kernels: rows, settings, seed and code are those of the base's whole run."""
    options: Mapping[Start, OptionCost] = field(default_factory=dict)
    pilot: Pilot | None = None
    incumbent: str | None = None
    """The registered production candidate of this decision."""
    plan_approved: bool = False
    restart_approved: bool = False
    deviation: str | None = None
    """What a named person says about settings that changed after results were seen."""
    promote_approved: tuple[str, ...] = ()
    """The metrics whose promotion thresholds a person approved."""
    seen: Seen | None = None
    negatives: tuple[Negative, ...] = ()
    incidents: tuple[Incident, ...] = ()
    measured: tuple[Measurement, ...] = ()
    failed_gates: tuple[str, ...] = ()
    """Necessary checks that have failed and are not repaired."""
    observed: tuple[Observed, ...] = ()
    """What they showed, each with what had been predicted of it, in order."""

    @property
    def observed_tests(self) -> tuple[str, ...]:
        """Diagnostic tests of the plan that have been run."""
        return tuple(event.test for event in self.observed)

    @property
    def restarts(self) -> bool:
        """It begins anew beside weights that answer to the same decision."""
        return self.base is not None and (
            not self.base.declared or self.plan.base is None or self._start == "fresh"
        )

    @property
    def chosen(self) -> Start:
        """What the plan does with weights that are there; without any, or without a word about them, it begins anew."""
        if self.base is None or not self.base.declared:
            return "fresh"
        return self._start or "fresh"

    @property
    def exempt(self) -> bool:
        """Beginning anew needs no approval: the account stays below what needs none, and the weights are kept."""
        return self.base is not None and self.base.verifies and self.money.below_autonomous

    @property
    def passed_over(self) -> bool:
        """Weights for this decision are there, and work that nobody pays for does not name them: shown, not judged."""
        return self.base is not None and not self.base.declared and not self.money.billed

    @property
    def _start(self) -> Start | None:
        return None if self.plan.base is None else self.plan.base.start

    @property
    def strict(self) -> bool:
        """Whether what the run is worth has to be said: it costs 5 USD or more, or begins anew.

        In accelerator-hours no sum says what they cost: anything that is billed counts as more.
        """
        if not self.money.billed:
            return False
        over = self.money.unit != "usd" or self.money.worst >= AUTONOMOUS or self.money.ceiling >= AUTONOMOUS
        return over or self.restarts


__all__ = [
    "AUTONOMOUS",
    "Base",
    "Digest",
    "Evidence",
    "Incident",
    "Measurement",
    "Money",
    "Negative",
    "OptionCost",
    "Pilot",
    "Seen",
    "Straddling",
]
