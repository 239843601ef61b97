"""A bounded search: the table of trials that is registered before the first one runs, and the log of what became of it.

A *trial* is one row of the table, and one run of its experiment: row 7 is the run `trial-007`. A *repeat* is a row too:
one of the best settings once more, with another seed. What a row came to is one of six *ends*; a person who has set
aside more money may open again what a budget ended. Every attempt of a row is in the ledger under the name of its run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from raykit.ids import Digest, Name
from raykit.records.account import Micros, Unit
from raykit.records.base import Count, Positive, Record, Versioned
from raykit.records.entry import Entry
from raykit.records.shared import Place, Words

End = Literal[
    "completed", "failed", "stopped-by-scheduler", "censored-by-budget", "refused-by-budget", "never-started"
]
"""What a row came to. Censored: it was begun, and ended because spending did (a ceiling, or a person who cancelled it).
Refused: it was not begun, because its worst case was not admitted. Never started: nobody needed it any more."""

BY_BUDGET: frozenset[End] = frozenset({"censored-by-budget", "refused-by-budget"})


class Setting(Record):
    """What one row has instead of what its plan says."""

    params: Mapping[str, Any]
    """Laid over the plan's `run.params`."""
    seed: Count
    """Instead of `run.seed`."""


class TableRow(Record):
    """One row of the table as it was registered."""

    row: Positive
    kind: Literal["trial", "repeat"] = "trial"
    seed: Count
    params: Mapping[str, Any] | None = None
    """None where they are drawn when its turn comes: by a sampler that learns, or those of the trial it repeats."""
    rank: Positive | None = None
    """Of a repeat: which of the best trials it repeats, from 1."""

    @model_validator(mode="after")
    def _ranked(self) -> Self:
        if (self.kind == "repeat") != (self.rank is not None):
            raise ValueError("a repeat, and nothing else, has a rank")
        return self


class SearchRegistration(Versioned):
    """What a search is: written once, before the first trial."""

    max_bytes = 64 * 2**20

    experiment: Name
    search: Name
    plan: Digest
    """Digest of the plan's lock."""
    contract: Digest
    """Of what every row trains, but for its setting."""
    code: Digest
    data: Digest
    hypothesis: Words
    predicts: Words
    metric: str
    """`development.<metric>`."""
    mode: Literal["min", "max"]
    sampler: Mapping[str, Any]
    scheduler: Mapping[str, Any] | None = None
    space: Mapping[str, Mapping[str, Any]]
    concurrent: Positive
    updates: Positive
    attempts: Positive
    """How often one row may start."""
    unit: Unit
    row_worst: Micros
    """What one row may cost, over all of its attempts."""
    total_worst: Micros
    rows: Annotated[tuple[TableRow, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if [each.row for each in self.rows] != list(range(1, len(self.rows) + 1)):
            raise ValueError("the rows are not numbered from 1")
        return self


# --- the log of a search --------------------------------------------------------------------------------------


class Driven(Record):
    """A process has taken the search: from here on it alone writes to this log, until it lets go of it or is gone."""

    event: Literal["driven"] = "driven"
    driver: Name
    place: Place
    raykit: str
    job: str | None = None
    """The Ray job that it runs as, by its submission id."""


class LetGo(Record):
    """The process that had the search has let go of it."""

    closes = True

    event: Literal["let_go"] = "let_go"
    driver: Name


class Drawn(Record):
    """The setting of a row that had none when it was registered."""

    event: Literal["drawn"] = "drawn"
    row: Positive
    params: Mapping[str, Any]
    by: Words
    """The sampler, or the rank that a repeat has taken."""
    repeats: Positive | None = None
    """Of a repeat: the trial that it repeats."""


class Begun(Record):
    """A launch of this search begins a row, or goes on with it: its worst case is reserved under this launch."""

    event: Literal["begun"] = "begun"
    row: Positive
    launch: Name
    place: Place
    """Of the search's own process."""


class Ruled(Record):
    """The scheduler stops a row: said here first, then to the trial, which stops at its next update."""

    event: Literal["ruled"] = "ruled"
    row: Positive
    update: Count
    """Of the report that it rests on."""
    value: float
    why: Words


class RowEnded(Record):
    """A row has come to its end."""

    event: Literal["row_ended"] = "row_ended"
    row: Positive
    end: End
    update: Count
    """The last update whose history is durable; 0 if there is none."""
    value: float | None = None
    """The metric: at the checkpoint that `run.select` takes, or else at the last evaluation. None if there is none that
    is finite."""
    at: Count | None = None
    """The update that the value is from."""
    checkpoint: Digest | None = None
    """Digest of the manifest of that update's checkpoint, where there is one."""
    cost: Micros
    """Of all attempts, as the ledger had it when the row ended."""
    attempts: Count
    detail: Words | None = None


class Reopened(Record):
    """A person goes on with rows that a budget had ended."""

    event: Literal["reopened"] = "reopened"
    rows: Annotated[tuple[Positive, ...], Field(min_length=1)]
    reason: Words
    person: Words


class Excluded(Record):
    """A row that the pick did not consider, and why."""

    row: Positive
    why: Words


class Picked(Record):
    """The best setting that was observed; nothing is recommended or approved by it."""

    closes = True

    event: Literal["picked"] = "picked"
    row: Positive
    value: float
    """Over all rows of the setting: the mean."""
    values: tuple[float, ...]
    """Of each of those rows, the trial's first."""
    tried: Positive
    """How many rows the table has."""
    ranked: tuple[Positive, ...]
    """The trials that were considered, best first."""
    excluded: tuple[Excluded, ...]
    candidate: Name | None = None
    """The name under which its checkpoint is registered, where it has one."""


SearchEvent = Annotated[
    Driven | LetGo | Drawn | Begun | Ruled | RowEnded | Reopened | Picked, Field(discriminator="event")
]


class SearchEntry(Entry):
    events: tuple[SearchEvent, ...]
