"""The log of one run: who has it, its attempts, what is durable, how it ended; and the record of what it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from raykit.ids import Digest, Name
from raykit.records.base import Count, Positive, Record, Versioned
from raykit.records.entry import Entry
from raykit.records.history import Series
from raykit.records.search import Setting
from raykit.records.shared import Cause, EndReason, Exactness, Place, ResumeReceipt, Words


class Launched(Record):
    """A launch takes the run: from here on, attempts of every other launch are fenced."""

    event: Literal["launched"] = "launched"
    launch: Name
    place: Place
    lease_s: float
    raykit: str
    job: str | None = None
    """The Ray job that it runs as, by its submission id."""


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
    cause: Cause | None = None
    """Of a pause; None if the launch itself was told to end."""
    reason: EndReason = "paused"
    """How the attempt ends by it: `failed` where the plan says that a failure of its QC ends the run."""


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
    sample: Mapping[str, str] | None = None
    """Of a dataset that says itself what its content is: by id, the beginning of the digest of what it gave for some
    rows."""


class GateResult(Record):
    """One launch gate, with its own scope and cost. `key` is the digest of all that the result depends on."""

    event: Literal["gate"] = "gate"
    gate: Name
    key: Digest
    passed: bool
    scope: str
    found: str
    took_s: float
    exactness: Exactness | None = None
    """Of the resume gate: what it measured, the upper bound of every later class of the run."""
    cleared: tuple[str, ...] | None = None
    """Of the resume gate: what training changes outside of checkpoints, and what nobody has to save."""


class FirstDifference(Record):
    """The first thing that is not equal, where it had to be: update, what of it, and both values."""

    update: Count
    what: str
    """Such as `terms.fit.value`, `development ratio` or `model.safetensors`."""
    was: str
    now: str

    @property
    def words(self) -> str:
        """`update 12, terms.fit.value: 0.25 -> 0.5`."""
        return f"update {self.update:,}, {self.what}: {self.was} -> {self.now}"


class Compared(Record):
    """Updates that were trained twice, held against each other to the bit.

    `overlap`: `attempt` trained again what `against` had recorded. `replay`: another process restored the checkpoint at
    `first - 1`, trained by `against`, and went on through `last`.
    """

    event: Literal["compared"] = "compared"
    how: Literal["overlap", "replay"]
    attempt: Positive
    against: Positive
    first: Positive
    last: Positive
    rows: Count = 0
    evaluations: Count = 0
    manifests: Count = 0
    """How many of each were compared, the differing one included."""
    difference: FirstDifference | None = None
    """None if all of them are equal."""
    lowers: Exactness | None = None
    """The class that the run falls to, where this was to be exact and is not."""
    took_s: float | None = None
    """Of a replay."""


class Replaying(Record):
    """A worker beside the run takes its early replay: nobody else begins one."""

    event: Literal["replaying"] = "replaying"
    attempt: Positive
    first: Positive
    last: Positive
    worker: Words
    place: Place
    lease: str | None = None
    """What pays for it; None where nothing is billed."""


class Unreplayed(Record):
    """A replay was begun, or was due, and was not made; the run is as good as it was declared to be."""

    event: Literal["unreplayed"] = "unreplayed"
    attempt: Positive
    first: Positive | None = None
    last: Positive | None = None
    """The updates that were to be trained again; None if no part of the run could be chosen."""
    why: Words
    took_s: float | None = None


class Undeclared(Record):
    """State that training changes and that no checkpoint holds, found at a save."""

    event: Literal["undeclared"] = "undeclared"
    attempt: Positive
    update: Count
    names: tuple[str, ...]
    lowers: Exactness


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
    accelerator_s: float | None = None
    """Accelerator-seconds that the run had held when this save began, over all attempts and failures."""
    nonfinite: tuple[str, ...] | None = None
    """Tensors of the model that hold NaN, or parameters that hold infinity: the first few. None if there is none."""


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
    cause: Cause | None = None
    """Why it was paused, where it was a pause and not a signal."""
    remedy: str | None = None
    """What would pass, where something was refused."""


RunEvent = Annotated[
    Launched
    | Beat
    | Released
    | StopRequested
    | AttemptStarted
    | GateResult
    | Compared
    | Replaying
    | Unreplayed
    | Undeclared
    | Segment
    | Commit
    | Superseded
    | AttemptEnded,
    Field(discriminator="event"),
]


class RunEntry(Entry):
    events: tuple[RunEvent, ...]


class RunRecord(Versioned):
    """`run.json`: what this run is of."""

    experiment: Name
    run: Name
    plan: Digest
    contract: Digest
    code: Digest
    environment: Digest
    data: Digest
    setting: Setting | None = None
    """Of a trial of a search: what it has instead of what its plan says."""
