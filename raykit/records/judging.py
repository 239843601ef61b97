"""What is learned about an experiment, beside its rows: events of its log that a later review reads.

Tests that removed hypotheses, what people concluded, incidents, and times that were measured. Nothing here can say
that something was proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from raykit.ids import Digest, Name
from raykit.records.account import Milliseconds
from raykit.records.base import Count, Record
from raykit.records.shared import Words

ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"\S")]


class Observed(Record):
    """A diagnostic test was run: what was seen, which hypotheses that removes, and which branch is taken.

    A test that nothing failed removes hypotheses at the inputs that it covered, and proves nothing else.
    """

    closes = True

    event: Literal["observed"] = "observed"
    plan: Digest
    """The lock whose diagnosis it belongs to."""
    test: Name
    saw: Words
    supports: tuple[Name, ...]
    """The hypotheses that had predicted it."""
    removed: tuple[Name, ...]
    """The hypotheses that had predicted something else."""
    failed: tuple[Name, ...] = ()
    """Those of them whose count of failures has not reached their stop rule: dropped only after more of them."""
    next: Words
    """What the plan says is done now."""
    covers: Mapping[str, str]
    """The inputs that the test exercised."""
    note: Words | None = None
    """How one observation that several hypotheses predict is read."""
    hypotheses: Mapping[Name, Words] = Field(default_factory=dict)
    """By name, what each says is the case, as the plan had it then. Empty where an earlier raykit kept none of this."""
    predicts: Mapping[Name, Words] = Field(default_factory=dict)
    """By hypothesis, what it had predicted of this test."""
    next_by: Mapping[Name, Words] = Field(default_factory=dict)
    """By hypothesis, what was to be done if its prediction came."""
    person: Words
    scripted: bool = False

    @model_validator(mode="after")
    def _several_are_interpreted(self) -> Self:
        if len(self.supports) > 1 and self.note is None:
            raise ValueError("an observation that several hypotheses predict needs a note")
        return self


Outcome = Literal["better", "worse", "equivalent", "unresolved", "invalid", "no-full-run"]
"""How an experiment ended for its decision. `no-full-run` is an answer like any other."""


class Concluded(Record):
    """What a person concludes from an experiment. Negative results are kept so that nobody runs them again."""

    closes = True

    event: Literal["concluded"] = "concluded"
    outcome: Outcome
    says: Words
    hypothesis: Words | None = None
    """The idea that was tried, where the plan names one."""
    effect: Words | None = None
    """With its uncertainty and the metric's units."""
    decision: Digest
    contract: Digest
    """Of the setting that was tried."""
    update: Count
    """Updates that had been trained."""
    person: Words
    scripted: bool = False


class Noted(Record):
    """An incident, as it happened once. It is never a rule."""

    closes = True

    event: Literal["noted"] = "noted"
    kind: Literal["incident", "limitation", "selection"]
    """`selection`: an idea that was screened or dropped, and why."""
    says: Words
    person: Words


MOST_ROWS = 10**15
"""More rows than anybody has."""

MOST_UNITS = 10**15


class Measured(Record):
    """How long a part of the work holds its accelerators, as it was measured, and where.

    A time that nobody measured is no evidence: `how` names the run, the gate or the bill that it is from.
    """

    closes = True

    event: Literal["measured"] = "measured"
    what: Literal[
        "gates", "setup", "update", "save", "drain", "qc", "qc-unit", "generate", "compare", "memory"
    ]
    pool: Literal["train", "qc", "generate", "search"]
    time_ms: Milliseconds
    """Of the whole accelerator group of the pool: for `gates`, `qc`, `generate` and `compare` all of it; for `qc-unit`
    one check of one checkpoint, on one accelerator."""
    units: Annotated[int, Field(ge=1, le=MOST_UNITS)] = 1
    """What the time was measured over: updates, saves, or rows; a microsecond each at least."""
    memory_bytes: Mapping[ShortText, Count] = Field(default_factory=dict)
    """By term: model, optimizer, activations and their like, at the longest representative input."""
    how: Words
    person: Words | None = None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.what != "memory" and self.time_ms * 1000 < self.units:
            raise ValueError("less than a microsecond for each unit")
        return self


class RowsCounted(Record):
    """How many rows a source held when somebody counted them."""

    closes = True

    event: Literal["counted"] = "counted"
    source: Words
    rows: Annotated[int, Field(ge=0, le=MOST_ROWS)]
    digest: Digest | None = None
    how: Words
    person: Words | None = None
