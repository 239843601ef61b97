"""The registry of the root: weights that can be chosen, what depends on them, and what people have decided of each.

Observed, recommended and approved are three things. Registering weights says that they are known; recommending them
says why somebody would choose them; only an approval of this very candidate, by a named person, approves it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raykit.ids import Digest, Name, digest_of
from raykit.records.base import Count, Record
from raykit.records.entry import Entry
from raykit.records.shared import Words

CandidateRole = Literal[
    "diagnostic", "search-checkpoint", "refit", "production-candidate", "release-model", "base"
]


class Surface(Record):
    """Something that the candidate is measured on, and whether that may select it for production."""

    name: Words
    """Such as `development.ratio` or `report_only.ratio`."""
    may_select: bool


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
    """Where an adopted one came from, such as `hf:org/name@3f2c…`; of the pick of a search, how it was found."""
    rows: Count | None = None
    """Rows that it was trained on, where that is known."""
    data: Digest | None = None
    """Digest of the members of the splits that it was trained on."""
    decision: Words | None = None
    """The decision that it was trained for."""
    surfaces: tuple[Surface, ...] = ()
    size_bytes: Count | None = None
    """Of its files together."""
    accelerator_ms: Count | None = None
    """Accelerator time invested, where that is known. What it costs to replace it; never a reason to choose it."""
    cost: Count | None = None
    """Micro-units of money that it cost, where that is known."""
    history: Literal["kept", "absent"] = "kept"
    """`absent`: nothing of how it was trained is known here."""
    corrects: bool = False
    """What had been said of the same weights under this name was wrong: this counts instead, and both stay."""
    person: Words


class Evidence(Record):
    """What a choice rests on: one surface, what the candidate and the incumbent score there, what would matter."""

    surface: Words
    better: Literal["less", "more"]
    value: float
    incumbent: float | None = None
    """Of the incumbent; None if there is none."""
    against: Digest | None = None
    """The incumbent, by the digest of its manifest; None if there is none."""
    worthwhile: float | None = None
    """The smallest difference that would change what is done."""
    how: Words
    """Where the values are from."""


class Recommended(Record):
    """Somebody says why this candidate should be chosen. It is not chosen by that."""

    closes = True

    event: Literal["recommended"] = "recommended"
    candidate: Name
    evidence: tuple[Evidence, ...]
    receipts: tuple[Digest, ...] = ()
    """Digests of the reviewed QC receipts that it rests on."""
    unexamined: Words | None = None
    """Why weights are recommended that nobody here could examine."""
    reason: Words
    person: Words
    scripted: bool = False


class CandidateApproved(Record):
    """A named person chooses this very candidate, for what it says."""

    closes = True

    event: Literal["approved"] = "approved"
    candidate: Name
    manifest: Digest
    use: Literal["generation", "export", "production"] = "production"
    """The widest use: production covers export, and export generation."""
    receipts: tuple[Digest, ...] = ()
    unexamined: Words | None = None
    """Why weights are approved that nobody here could examine: never for production."""
    reason: Words
    person: Words
    scripted: bool = False
    """Said by a script: never a reason to take it into production."""


class CandidateRejected(Record):
    """A named person decides against this candidate. Nothing of it is deleted."""

    closes = True

    event: Literal["rejected"] = "rejected"
    candidate: Name
    reason: Words
    person: Words
    scripted: bool = False


DependentKind = Literal[
    "decoding-study",
    "target-set",
    "probe",
    "cost-projection",
    "release-evidence",
    "export",
    "benchmark",
    "run",
]


class Dependent(Record):
    """Work that was made with a candidate, and falls or stays if another one takes its place."""

    closes = True

    event: Literal["dependent"] = "dependent"
    candidate: Name
    manifest: Digest
    kind: DependentKind
    name: Words
    falls: bool = True
    """Whether it has to be made again for other weights."""
    cost: Count | None = None
    """Micro-units that making it again costs, where that is known."""
    time_ms: Count | None = None
    person: Words


class Depends(Record):
    """One piece of dependent work in an inventory."""

    kind: DependentKind
    name: Words
    falls: bool
    why: Words
    """How it is known to depend, or who says so."""
    cost: Count | None = None
    """Micro-units that making it again costs, where that is known."""
    time_ms: Count | None = None


class Inventory(Record):
    """What depends on a candidate: what stays valid without it, and what would have to be made again."""

    candidate: Name
    manifest: Digest
    items: tuple[Depends, ...] = ()
    receipts: tuple[Digest, ...] = ()
    """QC receipts of these very weights: they stay, whatever is chosen."""
    unread: tuple[Name, ...] = ()
    """Experiments whose plans cannot be read, and which may depend on it, too."""

    @property
    def digest(self) -> Digest:
        """What a person names who has seen it."""
        return digest_of(self.plain())


class Switched(Record):
    """Another candidate takes the place of the production candidate. The one before stays as it is, and is kept."""

    closes = True

    event: Literal["switched"] = "switched"
    to: Name
    from_: Name | None = Field(None, alias="from")
    evidence: tuple[Evidence, ...] = ()
    inventory: Inventory | None = None
    """What stays valid and what falls, as it was shown; None if nothing was in its place."""
    reason: Words
    person: Words
    scripted: bool = False


class Preserved(Record):
    """A candidate is kept for good, or may go again. Choosing one never decides this of another."""

    closes = True

    event: Literal["preserved"] = "preserved"
    candidate: Name
    keep: bool = True
    reason: Words
    person: Words


CandidateEvent = Annotated[
    Registered | Recommended | CandidateApproved | CandidateRejected | Dependent | Switched | Preserved,
    Field(discriminator="event"),
]


class CandidatesEntry(Entry):
    events: tuple[CandidateEvent, ...]
