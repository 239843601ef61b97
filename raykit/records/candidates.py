"""The registry of the root: weights that can be chosen, and what people have said about each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raykit.ids import Digest, Name
from raykit.records.base import Count, Record
from raykit.records.entry import Entry
from raykit.records.shared import Words

CandidateRole = Literal[
    "diagnostic", "search-checkpoint", "refit", "production-candidate", "release-model", "base"
]


class Registered(Record):
    """Weights are known under a name. They are observed: nobody has recommended or approved them by this."""

    closes = True

    event: Literal["registered"] = "registered"
    candidate: Name
    role: CandidateRole
    origin: Literal["run", "adopted"]
    manifest: Digest
    """Digest of the manifest that lists its files."""
    key: str
    """The manifest's key in the store."""
    experiment: Name | None = None
    """The experiment that trained it; None for one that was adopted."""
    update: Count = 0
    """Of the checkpoint; for an adopted one, what its people say."""
    source: Words | None = None
    """Where an adopted one came from, such as `hf:org/name@3f2c…`."""
    rows: Count | None = None
    """Rows that it was trained on, where that is known."""
    accelerator_ms: Count | None = None
    """Accelerator time invested, where that is known."""
    cost: Count | None = None
    """Micro-units of money that it cost, where that is known."""
    history: Literal["kept", "absent"] = "kept"
    """`absent`: nothing of how it was trained is known here."""
    corrects: bool = False
    """What had been said of the same weights under this name was wrong: this counts instead, and both stay."""
    person: Words


CandidateEvent = Annotated[Registered, Field(discriminator="event")]


class CandidatesEntry(Entry):
    events: tuple[CandidateEvent, ...]
