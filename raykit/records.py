"""Every record that raykit persists: frozen, strict, versioned, unknown fields refused.

A record is written once as canonical JSON and read for ever; `schema` is raised when its meaning changes, and
a reader for every older version stays. What differs between honest retries (times, hosts, attempts) lies
beside what is compared, never inside it.

The rooms of this module, in order: the pieces that records share; checkpoints; history; the events of the run
log; the events of the experiment log; log entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from raykit.errors import CorruptError
from raykit.ids import Digest, Name, canonical, parse_json

Exactness = Literal["exact", "state-exact", "order-exact", "inexact"]
"""How much a resumed run is the run that was interrupted, from most to least."""

EXACTNESS: tuple[Exactness, ...] = ("exact", "state-exact", "order-exact", "inexact")

Series = Literal["train", "development", "monitor"]
"""One file family of the history: every update; evaluations of the development split; cheap monitors."""

Space = Literal["linear", "log"]
"""The space in which a field is measured and drawn."""

EndReason = Literal["completed", "paused", "killed", "failed", "preempted"]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """Base of everything persisted."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )

    closes: ClassVar[bool] = False
    """An event after which its log may rest for long: the writer leaves a snapshot then."""

    _left_out: ClassVar[frozenset[str]] = frozenset()
    """The fields whose default is None, by their JSON names."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        fields = cls.model_fields.items()
        cls._left_out = frozenset(
            field.alias or name for name, field in fields if field.default is None and not field.is_required()
        )

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A null that means something (`prev` of the first entry, a loss that was not finite) stays.
        left_out = self._left_out
        return {
            name: value for name, value in handler(self).items() if value is not None or name not in left_out
        }

    def plain(self) -> dict[str, Any]:
        """The record as JSON values; fields that hold their default None are left out."""
        return self.model_dump(mode="json", by_alias=True)

    def to_bytes(self) -> bytes:
        """The record as canonical JSON."""
        return canonical(self.plain())

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Self:
        """Read a record strictly; `what` names the bytes in errors.

        Raises:
            CorruptError: not JSON, an unknown or missing field, a wrong type, or a newer schema.
        """
        parse_json(data, what)  # refuses duplicate keys and NaN, which the next line would let through
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            raise CorruptError(
                f"{what} is not a {cls.__name__} record: {field}: {first['msg']}", field=field
            ) from error


class Versioned(Record):
    """A record that stands alone in a file."""

    schema_: Annotated[int, Field(ge=1, le=1)] = Field(default=1, alias="schema")

    @model_validator(mode="after")
    def _says_its_schema(self, info: ValidationInfo) -> Self:
        if info.mode == "json" and "schema_" not in self.model_fields_set:
            raise ValueError("`schema` is missing")
        return self


# --- shared pieces ------------------------------------------------------------------------------------------


class Place(Record):
    """One process on one machine: enough to tell whether it is still the same process."""

    host: str
    boot: str
    """The kernel's boot id and the process-id namespace: the same exactly when process ids are comparable."""
    pid: Positive
    started: Count
    """Start time of the process in clock ticks since boot, as the kernel tells it."""


class Difference(Record):
    """One thing that is not as it was, and the highest exactness class that it leaves."""

    what: str
    was: str
    now: str
    allows: Exactness


class PassedOver(Record):
    """A checkpoint that was not resumed from, and why."""

    update: Count
    attempt: Positive
    why: str


class ResumeReceipt(Record):
    """What a resume compared, and what it therefore is."""

    update: Count
    attempt: Positive
    manifest_sha256: Digest
    needed: Exactness
    exactness: Exactness
    differences: tuple[Difference, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    amendment: int | None = None
    """Number of the experiment log's entry that allowed less than the plan needs."""


# --- checkpoints --------------------------------------------------------------------------------------------


class FileRef(Record):
    """One file of a checkpoint."""

    name: Name
    sha256: Digest
    size_bytes: Count
    holds: Literal["model", "optimizer", "rng", "state"]
    rank: Count
    shard: Count = 0
    shards: Positive = 1
    """This file is shard `shard` of `shards` of what it holds."""


class RankFiles(Versioned):
    """What one rank has written for one checkpoint: the note by which rank 0 learns of it."""

    rank: Count
    files: tuple[FileRef, ...]


class Manifest(Versioned):
    """The closed list of one checkpoint's files. Equal training states have equal manifests."""

    update: Count
    samples: Count
    world_size: Positive
    files: tuple[FileRef, ...]
    history_update: Count
    """History is durable through this update."""
    contract: Digest
    """Digest of the part of the plan that shapes the trained weights."""
    data: Digest
    """Digest of the members of the splits."""
    code: Digest
    """Digest of the frozen recipe folder."""


# --- history ------------------------------------------------------------------------------------------------


class TermRow(Record):
    """One loss term of one update, with its own scale beside it."""

    value: float | None
    weight: float
    contribution: float | None
    elements: Count
    target_ms: float | None = None
    """Mean square of the target over the same elements: what predicting zero scores."""
    reference: float | None = None
    """What no skill scores, where the term is not a squared error."""
    ratio: float | None = None
    """value / (target_ms or reference); absent when that is zero or not declared."""
    no_reference: str | None = None
    """Why this term has no such scale."""


class Row(Versioned):
    """One optimizer update. `update` counts from 1; `samples` is the half-open range of order positions."""

    attempt: Positive
    update: Positive
    epoch: Count
    samples: tuple[Count, Count]
    sources: Mapping[str, Count]
    loss: float | None
    ratio: float | None = None
    """The ratio of the main term: the first that the recipe declares with a scale."""
    terms: Mapping[str, TermRow]
    lr: tuple[float, ...]
    grad_norm: float | None
    clipped: bool
    elapsed_s: float
    scale: float | None = None
    """The loss scale of fp16 training."""
    skipped: bool | None = None
    """True if the scaler skipped this update's step."""
    nonfinite: tuple[str, ...] | None = None
    """What was not finite: `loss`, `grad_norm`, or a term's name. Their values are then null."""


class EvaluationRow(Versioned):
    """The development split scored after `update` updates: means over examples, and the ratios of terms."""

    attempt: Positive
    update: Count
    rows: Positive
    metrics: Mapping[str, float | None]
    elapsed_s: float
    best: bool


class FieldStats(Record):
    """One field in its own space over one batch or roster."""

    space: Space
    median: float | None
    low: float | None
    high: float | None
    spread: float | None
    """high - low, in the field's own space."""
    reference_spread: float | None = None
    collapsed: bool


class MonitorRow(Versioned):
    """The cheap in-process monitors after `update` updates."""

    attempt: Positive
    update: Count
    fields: Mapping[str, FieldStats]
    elapsed_s: float


# --- events of the run log ----------------------------------------------------------------------------------


class Launched(Record):
    """A launch takes the run: from here on, attempts of every other launch are fenced."""

    event: Literal["launched"] = "launched"
    launch: Name
    place: Place
    lease_s: float
    raykit: str


class Beat(Record):
    """The launch is alive though it has had nothing else to say for a while."""

    event: Literal["beat"] = "beat"
    launch: Name


class Released(Record):
    """The launch has let go of the run."""

    closes = True

    event: Literal["released"] = "released"
    launch: Name
    reason: EndReason


class StopRequested(Record):
    """Commit at the next boundary, release, and end."""

    event: Literal["stop_requested"] = "stop_requested"
    launch: Name
    why: str


class AttemptStarted(Record):
    """A gang of workers starts; its number fences all smaller ones."""

    event: Literal["attempt_started"] = "attempt_started"
    attempt: Positive
    launch: Name
    place: Place
    world_size: Positive
    facts: Mapping[str, str]
    """What bits depend on beside the plan: versions, device kind and model, threads, CPU capability."""
    plan: Digest
    code: Digest
    data: Digest
    lease: str | None = None
    resume: ResumeReceipt | None = None


class GateResult(Record):
    """One launch gate, with its own scope and cost. `key` is the digest of all that the result depends on."""

    event: Literal["gate"] = "gate"
    gate: Name
    key: Digest
    passed: bool
    scope: str
    found: str
    took_s: float


class Segment(Record):
    """Rows `first` to `last` of one series are durable."""

    event: Literal["segment"] = "segment"
    series: Series
    attempt: Positive
    first: Count
    last: Count
    key: str
    sha256: Digest
    size_bytes: Count

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.last < self.first:
            raise ValueError("`last` is before `first`")
        return self


class Commit(Record):
    """A checkpoint exists."""

    event: Literal["commit"] = "commit"
    update: Count
    attempt: Positive
    key: str
    sha256: Digest
    """Digest of the manifest."""
    size_bytes: Count
    exactness: Exactness
    reason: Literal["start", "cadence", "loss-window", "stop", "final"]
    save_s: float
    blocked_s: float


class Superseded(Record):
    """Rows and commits of updates `from` to `to` are no longer part of the run; they stay as cost."""

    event: Literal["superseded"] = "superseded"
    from_: Count = Field(alias="from")
    to: Count
    why: str


class AttemptEnded(Record):
    """The attempt is over, at `update`."""

    event: Literal["attempt_ended"] = "attempt_ended"
    attempt: Positive
    reason: EndReason
    update: Count
    detail: str | None = None


RunEvent = Annotated[
    Launched
    | Beat
    | Released
    | StopRequested
    | AttemptStarted
    | GateResult
    | Segment
    | Commit
    | Superseded
    | AttemptEnded,
    Field(discriminator="event"),
]


# --- events of the experiment log ---------------------------------------------------------------------------


class Locked(Record):
    """A plan is frozen: its lock, the recipe's code, the environment and the split members."""

    closes = True

    event: Literal["locked"] = "locked"
    plan: Digest
    contract: Digest
    code: Digest
    environment: Digest
    data: Digest


class Amended(Record):
    """A person allows runs of this experiment to go on less exactly than their plan needs."""

    closes = True

    event: Literal["amended"] = "amended"
    run: Name
    allows: Exactness
    reason: str
    differences: Digest
    """Digest of exactly the differences that were seen; others are not covered."""


ExperimentEvent = Annotated[Locked | Amended, Field(discriminator="event")]


# --- log entries --------------------------------------------------------------------------------------------


class Entry(Versioned):
    """One file of a log: a batch of events, chained to the file before it."""

    n: Positive
    prev: Digest | None
    at: float
    by: str
    nonce: str
    """Random per writer: no two writers ever produce the same entry."""
    events: tuple[Any, ...]

    @model_validator(mode="after")
    def _chained(self) -> Self:
        if (self.prev is None) != (self.n == 1):
            raise ValueError("only the first entry has no `prev`")
        return self


class RunEntry(Entry):
    events: tuple[RunEvent, ...]


class ExperimentEntry(Entry):
    events: tuple[ExperimentEvent, ...]


# --- one run's own record -----------------------------------------------------------------------------------


class RunRecord(Versioned):
    """`run.json`: what this run is of."""

    experiment: Name
    run: Name
    plan: Digest
    contract: Digest
    code: Digest
    environment: Digest
    data: Digest
