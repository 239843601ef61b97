"""What examining a checkpoint leaves behind: the suite and its roster, requests, claims, failures, receipts.

A *suite* says what is asked, a *request* of which checkpoint; the request's id is the digest of both, so that the same
question is one question and other weights never are. A *claim* is one attempt at it. What decides is the *receipt*: it
holds nothing that two honest attempts could say differently. Times, places and attempts lie beside it, in `Took`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from raykit.ids import Digest, Name, digest_of
from raykit.records.base import Count, Positive, Record, Versioned
from raykit.records.history import Space
from raykit.records.shared import Place, Words

# --- what is asked ------------------------------------------------------------------------------------------


class RosterUnit(Record):
    """One example of the roster: a member of a split, by its id and content."""

    id: str
    stratum: str
    sha256: Digest
    """Digest of its content, as the split's members have it."""


class Roster(Versioned):
    """The fixed examples that every checkpoint is scored on, in the order in which they are scored."""

    role: Name
    """The split that they come from."""
    data: Digest
    """Digest of the members of the splits."""
    stratum: str
    """What the plan calls the column whose values are kept apart."""
    quotas: Mapping[str, Positive]
    """By stratum: how many units."""
    left_out: tuple[str, ...] = ()
    """Strata of that split that the plan has no quota for."""
    units: tuple[RosterUnit, ...]
    """By stratum and then id."""
    shown: tuple[str, ...]
    """Ids of the units whose panels are drawn: the first of each stratum."""

    @property
    def digest(self) -> Digest:
        """The roster's identity."""
        return digest_of(self.plain())


class FieldRule(Record):
    """How one field is summarized, and when it has failed."""

    space: Space
    low: float
    """The low percentile, 0 to 100."""
    high: float
    collapse: float
    """The share of the reference spread below which it has collapsed."""
    bounds: tuple[float, float] | None = None
    """The ends of its range, in the field's natural units."""
    occupancy: float | None = None
    """The greatest share of values that may lie at one end of the range."""
    used: float | None = None
    """The least rise of the ratio when the field is permuted over units: below it, the model ignores the field."""


class Suite(Versioned):
    """What every checkpoint of an experiment is asked. Frozen before the first result, and never changed."""

    experiment: Name
    owner: Words
    """The person who answers for it."""
    every: Positive
    """Updates between two examined checkpoints; the one before the first update counts."""
    root: str
    """The prefix of the store that results go to."""
    roster: Digest
    code: Digest
    """Digest of the frozen code of the recipe."""
    config: Digest
    """Digest of the contract: of the part of the plan that shapes the weights."""
    revision: Positive
    """Of raykit's own arithmetic: raised when a score changes its meaning or its bits."""
    recipe: str
    params: Mapping[str, Any]
    source: Mapping[str, tuple[str, ...]] | None = None
    """What the recipe's `dataset` is given; None if it has its own data."""
    from_base: bool = False
    """Training starts from weights that were there: the checkpoint at update 0 is judged like any other."""
    seed: Count
    threads: Positive
    deterministic: bool
    dtype: str
    """Of the parameters."""
    autocast: str
    """Of the arithmetic; `none` if it is that of the parameters."""
    metrics: tuple[Words, ...] = ()
    """The metrics that have to be there, beside those that a threshold names."""
    fail: Mapping[str, str]
    """By metric: what fails a checkpoint, such as `> 0.35` or `> base + 0.01`."""
    fields: Mapping[str, FieldRule] = Field(default_factory=dict)

    @property
    def digest(self) -> Digest:
        """The suite's identity."""
        return digest_of(self.plain())


class Request(Versioned):
    """One checkpoint is to be examined."""

    experiment: Name
    run: Name
    update: Count
    checkpoint: Digest
    """Digest of the checkpoint's manifest: equal training states have equal ones."""
    suite: Digest

    @property
    def id(self) -> Digest:
        """The question's identity: these weights, this suite."""
        return digest_of({"checkpoint": self.checkpoint, "suite": self.suite})


# --- who is at it -------------------------------------------------------------------------------------------


class Claim(Versioned):
    """Attempt `n` at a request, or at a unit of a synthetic set. It saves work; it decides nothing."""

    request: Digest
    """The identity of the unit of work."""
    n: Positive
    worker: Name
    """One process, and no other one ever."""
    place: Place
    at: float
    deadline_s: Annotated[float, Field(gt=0)]
    """So long after `at` the attempt counts as lost, and others may claim."""
    lease: str | None = None
    """The lease that pays for it; None where nothing is billed."""


FailureKind = Literal["infrastructure", "memory", "deadline", "lost", "recipe", "data", "corrupt", "bounds"]
"""Why an attempt came to no receipt. `infrastructure`: the store or the machine; `memory`: more than the worker may
have; `deadline`: it took too long; `lost`: its process is gone; `recipe`: the recipe's code raised; `data`: its data
are not what the roster was drawn from; `corrupt`: stored bytes do not match their digests; `bounds`: more of its rows
are bad than the contract allows."""


class Failure(Versioned):
    """Attempt `n` came to no receipt. The first word on an attempt counts."""

    request: Digest
    n: Positive
    kind: FailureKind
    signature: Digest
    """Equal for failures with one cause: of the kind, the error and where it was raised, without numbers."""
    message: Words
    worker: Name
    said_by: Words
    """The worker itself, or whoever found it gone or late."""
    at: float


class Took(Versioned):
    """What attempt `n` took, and what it came to: beside the receipt, because it differs between attempts."""

    request: Digest
    n: Positive
    worker: Name
    receipt: Digest
    """Digest of the receipt that it made, whether or not another one was there first."""
    took_ms: Count
    peak_bytes: Count
    """The most memory that its process has held; on an accelerator, of that."""
    at: float


class Conflict(Versioned):
    """An attempt made another receipt than the one that decided: the same question had two answers."""

    request: Digest
    n: Positive
    worker: Name
    receipt: Digest
    """Digest of the receipt that decided."""
    differs: tuple[str, ...]
    """The fields in which they differ."""
    other: Mapping[str, Any]
    """The other receipt, whole."""


# --- what was found -----------------------------------------------------------------------------------------


class Tally(Record):
    """How many units there were. A failed one is never a zero, and never left out."""

    requested: Count
    scored: Count
    failed: Count
    """The example or what the model made of it was not usable: it raised, or was not finite."""
    missing: Count
    """Not in the data any more."""
    empty: Positive | None = None
    """Had nothing to score."""

    @model_validator(mode="after")
    def _accounts_for_all(self) -> Self:
        if self.requested != self.scored + self.failed + self.missing + (self.empty or 0):
            raise ValueError("requested is not scored + failed + missing + empty")
        return self


class Score(Record):
    """One metric over the roster. Undefined or not finite is None."""

    value: float | None
    """Pooled over all scored units."""
    strata: Mapping[str, float | None]
    no_skill: float | None = None
    """What knowing nothing scores; None where there is no such value."""
    better: Literal["less", "more"] | None = None
    count: Count | None = None
    """How many units gave a number; None where all that were scored did."""


class FieldSpread(Record):
    """A field in its own space: natural logarithms for a log field."""

    median: float | None
    low: float | None
    high: float | None
    spread: float | None


class FieldScore(Record):
    """One field over the roster, in its own space."""

    space: Space
    pooled: FieldSpread
    strata: Mapping[str, FieldSpread]
    reference_spread: float | None
    """The spread at update 0; None there, and where it was not defined."""
    between: float | None
    """Variance of the units' means."""
    within: float | None
    """Mean of the units' own variances."""
    at_low: float | None = None
    """Share of values at the low end of its range; None without bounds."""
    at_high: float | None = None
    outside: float | None = None
    """Share of values beyond its range; None without bounds."""
    finite: float
    """Share of its values that are finite."""
    dimensions: Count
    """The values that one unit has; 0 if that differs between units."""
    dimension_spreads: tuple[float, ...] = ()
    """The spread of each dimension over units, where there are few enough to tell of."""
    dead: tuple[int, ...] = ()
    """Dimensions, from 0, whose spread fell below the declared share of their reference."""
    rise_permuted: float | None = None
    """How much the ratio rises when the field is permuted over units; None if the recipe cannot be asked."""
    rise_median: float | None = None
    """How much it rises when the field is its roster median for every unit."""


FindingKind = Literal[
    "threshold",
    "nonfinite",
    "missing",
    "stratum-lost",
    "collapsed",
    "dead-dimension",
    "at-bound",
    "unused",
    "undefined",
    "range",
    "untrained",
    "same-scores",
    "seen-answer",
    "worst-stratum",
    "below-chance",
    "empty",
    "partial",
]


class QcFinding(Record):
    """One reason why a checkpoint fails, or, among the notes of a receipt, why a person has to look."""

    kind: FindingKind
    what: str
    """The metric or field."""
    stratum: str | None = None
    found: str
    rule: str


class Artifact(Record):
    """One picture that belongs to a receipt."""

    name: Name
    sha256: Digest
    size_bytes: Positive


class Receipt(Versioned):
    """What one checkpoint scored. It holds everything that it is bound to by digest."""

    request: Digest
    experiment: Name
    run: Name
    update: Count
    checkpoint: Digest
    suite: Digest
    roster: Digest
    code: Digest
    config: Digest
    revision: Positive
    reference: Digest | None = None
    """Digest of the receipt at update 0, which spreads and `base` are held against; None at update 0."""
    facts: Mapping[str, str]
    """What bits depend on beside the suite: versions, device model, threads, CPU capability."""
    units: Tally
    strata: Mapping[str, Tally]
    failed_units: tuple[str, ...] = ()
    """Ids of the units that failed or are missing: the first hundred."""
    metrics: Mapping[str, Score]
    fields: Mapping[str, FieldScore] = Field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()
    unjudged: tuple[str, ...] = ()
    """Metrics whose threshold does not apply here: at update 0 of a model that has learned nothing yet."""
    findings: tuple[QcFinding, ...] = ()
    notes: Annotated[tuple[QcFinding, ...], Field(min_length=1)] | None = None
    """What fails nothing by itself, and what whoever reviews this has to look at; None where there is nothing."""
    weights: Digest | None = None
    """Digest of the model's file. None in receipts of earlier versions, as `scores` is."""
    scores: Digest | None = None
    """Digest of every loss of every unit: equal for other weights only if it does not depend on them."""
    verdict: Literal["passed", "failed"]

    @model_validator(mode="after")
    def _fails_for_a_reason(self) -> Self:
        if (self.verdict == "failed") != bool(self.findings):
            raise ValueError("a receipt fails exactly if it has findings")
        return self

    @property
    def digest(self) -> Digest:
        """The receipt's identity: what a review names."""
        return digest_of(self.plain())


# --- what people say of it: events of the experiment's log ----------------------------------------------------


class Reviewed(Record):
    """A named person has looked at receipts. A failed one is never reviewed as passed."""

    closes = True

    event: Literal["reviewed"] = "reviewed"
    receipts: Annotated[tuple[Digest, ...], Field(min_length=1)]
    verdict: Literal["passed", "failed"]
    note: Words
    person: Words
    scripted: bool = False


class Retried(Record):
    """A person lets a parked request be tried again: its failures through attempt `after` no longer count."""

    closes = True

    event: Literal["retried"] = "retried"
    request: Digest
    after: Positive
    reason: Words
    person: Words


class Pinned(Record):
    """A person keeps one checkpoint for good, or lets go of it again."""

    closes = True

    event: Literal["pinned"] = "pinned"
    run: Name
    update: Count
    manifest: Digest
    keep: bool = True
    reason: Words
    person: Words
