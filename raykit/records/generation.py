"""What making a synthetic set leaves behind: inputs, the contract, one receipt for each unit, and the manifest.

A *contract* freezes everything that the bytes of a set depend on. The set is divided into *units*: runs of consecutive
rows, each made and published alone. A unit is claimed, and may fail, as a QC request is: with `Claim`, `Failure` and
`Conflict`, whose `request` is the unit's identity. What decides is its *receipt*, which holds nothing that two honest
attempts could say differently. The *manifest* closes the set once every requested row is accounted for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from raykit.ids import Digest, Name, digest_of
from raykit.records.account import Micros, Milliseconds
from raykit.records.base import Count, Positive, Record, Versioned
from raykit.records.shared import Words

# --- what is asked ------------------------------------------------------------------------------------------


class Column(Record):
    """One column of a table: its name, and its type as Arrow writes it."""

    name: str
    type: str


class InputChunk(Record):
    """A run of consecutive inputs, as one Parquet file."""

    rows: Positive
    sha256: Digest
    size_bytes: Positive


class InputsManifest(Versioned):
    """The inputs of a set, copied when its contract was frozen: what lies at their source later does not matter."""

    source: str
    """Where they were read from, as the plan has it."""
    rows: Positive
    columns: tuple[Column, ...]
    """`id` among them: text, and no id twice."""
    chunks: Annotated[tuple[InputChunk, ...], Field(min_length=1)]
    too_large: tuple[Count, ...] = ()
    """Numbers, from 0, of the inputs that are larger than the plan lets them be. Of these only the id was copied: their
    rows have failed before anything is asked of a recipe."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.rows != sum(chunk.rows for chunk in self.chunks):
            raise ValueError("rows is not the sum of the chunks")
        return self

    @property
    def digest(self) -> Digest:
        """The identity of the inputs."""
        return digest_of(self.plain())


class Reuse(Record):
    """Units of an earlier contract of the same set that count for this one as they are."""

    contract: Digest
    units: Annotated[tuple[tuple[int, int], ...], Field(min_length=1)]
    """Spans of unit numbers, first and last included, in order and apart."""


class GenerationContract(Versioned):
    """Everything that the bytes of a synthetic set depend on. Frozen before the first unit, and never changed."""

    experiment: Name
    name: Name
    """The set's, as the plan has it."""
    teacher: Digest
    """Digest of the manifest of the checkpoint that makes the rows."""
    recipe: str
    params: Mapping[str, Any]
    code: Digest
    """Digest of the frozen code of the recipe."""
    decode: Mapping[str, Any]
    seed: Count
    revision: Positive
    """Of raykit's own arithmetic: raised when the same contract would come to other bytes."""
    rules: Positive | None = None
    """Version of what counts as a bad row, and of which bounds hold unsaid; None for the first."""
    dtype: str
    """Of the parameters."""
    autocast: str
    """Of the arithmetic; `none` if it is that of the parameters."""
    deterministic: bool
    threads: Positive
    batch_rows: Positive
    """Rows that the recipe is asked for at once; fewer at the end of a unit."""
    normalization: Mapping[str, Any] = Field(default_factory=dict)
    """What the recipe says of the scale of its rows."""
    inputs: Digest | None = None
    """Digest of the inputs' manifest; None where rows are made from nothing."""
    samples: Positive
    """Rows for each input."""
    rows: Positive
    """Rows requested in all."""
    unit_rows: Positive
    columns: tuple[Column, ...]
    """Of the set, raykit's own first."""
    bounds: Mapping[str, float]
    """The greatest share of each kind of bad row: those that the plan says, and those that hold unsaid."""
    exact: bool = True
    """Two attempts at a unit come to the same bytes; if not, a late one is recorded and dropped."""
    facts: Mapping[str, str] = Field(default_factory=dict)
    """What bits depend on beside all that: versions, device model, CPU capability. Empty where `exact` is False."""
    follows: Digest | None = None
    """The contract before this one, if a person has changed it deliberately."""
    reuses: Reuse | None = None

    @property
    def digest(self) -> Digest:
        """The contract's identity."""
        return digest_of(self.plain())

    @property
    def production(self) -> Digest:
        """The identity of what makes a row: the seed of every row is keyed by it.

        How many rows there are, how they are divided, what is allowed of them and what came before change no seed.
        """
        of_work = {"rows", "unit_rows", "batch_rows", "exact", "facts"}
        aside = of_work | {"bounds", "rules", "follows", "reuses", "schema"}
        return digest_of({name: value for name, value in self.plain().items() if name not in aside})


# --- what came of a unit ------------------------------------------------------------------------------------


class Rows(Record):
    """How many rows there were. A filtered or failed row is never left out, and never counted as produced."""

    requested: Count
    produced: Count
    """In the Parquet file."""
    filtered: Count
    """Made, and put aside by the recipe's own filter."""
    failed: Count
    """Not made: the recipe raised, gave nothing, or gave something that is not finite."""

    @model_validator(mode="after")
    def _accounts_for_all(self) -> Self:
        if self.requested != self.produced + self.filtered + self.failed:
            raise ValueError("requested is not produced + filtered + failed")
        return self


class UnitReceipt(Versioned):
    """What one unit came to."""

    contract: Digest
    unit: Count
    """Its number, from 0."""
    rows: Rows
    filtered: Mapping[str, Positive] = Field(default_factory=dict)
    """By reason: how many rows."""
    failed: Mapping[str, Positive] = Field(default_factory=dict)
    failed_rows: tuple[int, ...] = ()
    """Numbers of the rows that failed: the first hundred."""
    counts: Mapping[str, Count] = Field(default_factory=dict)
    """By kind of bad row that the contract bounds, and that a unit shows: how many among its rows."""
    contents: str = ""
    """Eight bytes of the sha256 of each produced row's content, one after the other, in base 64: a row that is there
    twice in the set is found without reading the set."""
    sha256: Digest
    """Of its Parquet file, which holds the produced rows."""
    size_bytes: Positive
    reused: Digest | None = None
    """The earlier contract that it was made under."""
    given_up: Words | None = None
    """Why a person has let all of its rows count as failed."""

    @model_validator(mode="after")
    def _reasons_add_up(self) -> Self:
        if self.rows.filtered != sum(self.filtered.values()) or self.rows.failed != sum(self.failed.values()):
            raise ValueError("the reasons do not add up to the rows that were filtered and failed")
        return self

    @property
    def digest(self) -> Digest:
        """The receipt's identity."""
        return digest_of(self.plain())


class SetFinding(Record):
    """One bound that the whole set does not keep."""

    kind: str
    found: Count
    """Rows of that kind."""
    of: Count
    """Rows that could be."""
    bound: float


class SetUnits(Record):
    """All units of a set, in their order: one column for each thing that is known of them."""

    receipts: tuple[Digest, ...]
    sha256: tuple[Digest, ...]
    size_bytes: tuple[Positive, ...]
    produced: tuple[Count, ...]

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len({len(self.receipts), len(self.sha256), len(self.size_bytes), len(self.produced)}) != 1:
            raise ValueError("the columns differ in length")
        return self


class SetManifest(Versioned):
    """A synthetic set that is complete: every requested row is accounted for."""

    max_bytes = 1024**3
    """About 150 bytes for each unit: several million of them."""

    experiment: Name
    name: Name
    contract: Digest
    teacher: Digest
    rows: Rows
    filtered: Mapping[str, Positive] = Field(default_factory=dict)
    failed: Mapping[str, Positive] = Field(default_factory=dict)
    counts: Mapping[str, Count] = Field(default_factory=dict)
    """By kind that the contract bounds: how many rows of the whole set."""
    findings: tuple[SetFinding, ...] = ()
    """Bounds that the set does not keep: whoever reads it has to say that it may be used all the same."""
    columns: tuple[Column, ...]
    scripted: bool = False
    """A script has approved the teacher: the set never goes into production."""
    size_bytes: Count
    units: SetUnits

    @property
    def digest(self) -> Digest:
        """The identity of the set."""
        return digest_of(self.plain())


# --- what is said of it: events of the experiment's log -------------------------------------------------------


class Option(Record):
    """One way of decoding, as it was measured."""

    name: str
    """`decode` for the plan's own."""
    decode: Mapping[str, Any]
    rows: Count
    produced: Count
    took_ms: Milliseconds
    """For all of `rows`, on one accelerator."""
    quality: Mapping[str, float | None] = Field(default_factory=dict)
    """By metric of the recipe, on the surface that the plan names."""
    whole_ms: Milliseconds
    """What the whole set would take with it, on one accelerator."""
    whole_cost: Micros
    idle: tuple[str, ...] | None = None
    """Names of `decode` that change no byte of its first rows: of the plan's own, held against leaving them out; of
    another way, against the plan's own."""


class Contracted(Record):
    """A contract is frozen for a set: from now on it counts, and none before it."""

    closes = True

    event: Literal["contracted"] = "contracted"
    name: Name
    contract: Digest
    candidate: Name
    """The teacher's name in the registry."""
    update: Count
    """The teacher's, of its run."""
    key: str
    """The teacher's manifest in the store."""
    scripted: bool
    """A script approved the teacher for generation."""
    options: tuple[Option, ...] = ()
    """What was measured on the real producer before it was frozen: the plan's own decoding first."""
    surface: str | None = None
    """What the quality of the options was measured on."""
    why: Words | None = None
    """What a person said: why another contract follows, or why an option is taken that another one dominates."""
    person: Words


class CanaryPassed(Record):
    """The first units of a contract, made by the real producer, are within its bounds."""

    closes = True

    event: Literal["canary"] = "canary"
    name: Name
    contract: Digest
    units: Positive
    rows: Rows
    counts: Mapping[str, Count]
    took_ms: Milliseconds
    """For those units, one after the other."""
    peak_bytes: Count
    """The most memory that a worker has held; on an accelerator, of that."""
    whole_ms: Milliseconds
    """What all units would take on one accelerator, at that pace."""
    low_ms: Milliseconds
    """The same at the pace of the fastest and the slowest of them."""
    high_ms: Milliseconds
    worst_cost: Micros
    """At `high_ms`, with set-up, at the pool's rate and margin."""


class GivenUp(Record):
    """A person lets the rows of parked units count as failed, so that the set can be closed without them."""

    closes = True

    event: Literal["given-up"] = "given-up"
    name: Name
    contract: Digest
    units: Annotated[tuple[int, ...], Field(min_length=1)]
    reason: Words
    person: Words


class Generated(Record):
    """A set is closed."""

    closes = True

    event: Literal["generated"] = "generated"
    name: Name
    contract: Digest
    manifest: Digest
    rows: Rows
    by: Words
    """The launch that closed it."""
