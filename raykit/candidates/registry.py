"""The log of the registry as it stands: every candidate with all its acts, and the one that is in production."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from raykit.records import (
    CandidateApproved,
    CandidateEvent,
    CandidateRejected,
    CandidatesEntry,
    Dependent,
    Preserved,
    Recommended,
    Record,
    Registered,
    Surface,
    Switched,
)

State = Literal["observed", "recommended", "approved"]

Use = Literal["generation", "export", "production"]

USES: tuple[Use, ...] = ("generation", "export", "production")
"""From the narrowest to the widest: each covers those before it."""

E = TypeVar("E", bound=Record)

_RUN = re.compile(r"/runs/([^/]+)/")
"""The run of a checkpoint, in the key of its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One event of the registry."""

    n: int
    """Its place among all events of the registry."""
    at: float
    event: CandidateEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Weights under one name, and every act on them. Nothing that was said is ever left out."""

    acts: tuple[Act, ...]

    @property
    def said(self) -> Registered:
        """What it is: the newest statement counts."""
        return self.statements[-1][1]

    @property
    def name(self) -> str:
        return self.said.candidate

    @property
    def manifest(self) -> str:
        """The identity of its weights."""
        return self.said.manifest

    @property
    def where(self) -> str:
        """The weights as a command line names them: `digits@40`, `digits-lr/trial-004@40`; those from elsewhere by
        their name."""
        said = self.said
        if said.origin == "adopted":
            return said.candidate
        run = _RUN.search(said.key)
        trial = "" if run is None or run[1] == "main" else f"/{run[1]}"
        return f"{said.experiment}{trial}@{said.update}"

    @property
    def statements(self) -> tuple[tuple[Act, Registered], ...]:
        """All that was ever said of what it is."""
        return self._of(Registered)

    @property
    def rejected(self) -> tuple[Act, CandidateRejected] | None:
        """The rejection that holds. Only a later recommendation takes it up again."""
        rejections, recommended = self._of(CandidateRejected), self._of(Recommended)
        if not rejections or (recommended and recommended[-1][0].n > rejections[-1][0].n):
            return None
        return rejections[-1]

    @property
    def recommendations(self) -> tuple[tuple[Act, Recommended], ...]:
        """Those that no later rejection has ended."""
        return tuple(each for each in self._of(Recommended) if each[0].n > self._ended)

    @property
    def approvals(self) -> tuple[tuple[Act, CandidateApproved], ...]:
        """Those of these very bytes that no later rejection has ended."""
        return tuple(
            (act, event)
            for act, event in self._of(CandidateApproved)
            if event.manifest == self.manifest and act.n > self._ended
        )

    @property
    def dependents(self) -> tuple[tuple[Act, Dependent], ...]:
        """The work that was said to depend on it: of each kind and name what was said last."""
        found = {(event.kind, event.name): (act, event) for act, event in self._of(Dependent)}
        return tuple(found.values())

    @property
    def preserved(self) -> tuple[Act, Preserved] | None:
        """Who keeps it for good; None if nobody does."""
        said = self._of(Preserved)
        return said[-1] if said and said[-1][1].keep else None

    @property
    def state(self) -> State:
        """What people have decided of it. A rejection takes it back to observed."""
        if self.approvals:
            return "approved"
        return "recommended" if self.recommendations else "observed"

    def approved_for(self, use: Use) -> tuple[Act, CandidateApproved] | None:
        """The approval that covers `use`, a person's before a script's. A script approves nothing for production."""
        covering = [each for each in self.approvals if covers(each[1].use, use)]
        people = [each for each in covering if not each[1].scripted]
        if people or use == "production":
            return people[-1] if people else None
        return covering[-1] if covering else None

    def surface(self, name: str) -> Surface | None:
        """The surface of this name, if it is registered for it."""
        return next((each for each in self.said.surfaces if each.name == name), None)

    @property
    def _ended(self) -> int:
        """The newest rejection: what was said before it no longer counts."""
        rejections = self._of(CandidateRejected)
        return rejections[-1][0].n if rejections else 0

    def _of(self, kind: type[E]) -> tuple[tuple[Act, E], ...]:
        return tuple((act, act.event) for act in self.acts if isinstance(act.event, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Every candidate of a root, in the order in which they were registered."""

    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    production: Candidate | None = None
    """The one that is in production."""

    @property
    def incumbent(self) -> Candidate | None:
        """Whom another one would displace: the production candidate; before there is one, the first that a person
        has approved for production."""
        if self.production is not None:
            return self.production
        approved = [
            (found[0].n, each)
            for each in self.candidates.values()
            if (found := each.approved_for("production")) is not None
        ]
        return min(approved, key=lambda each: each[0])[1] if approved else None

    def of(self, manifest: str) -> Candidate | None:
        """The candidate that stands for these weights."""
        return next((each for each in self.candidates.values() if each.manifest == manifest), None)


def covers(given: Use, wanted: Use) -> bool:
    """Whether an approval for one use is one for another."""
    return USES.index(given) >= USES.index(wanted)


def read_registry(entries: Iterable[CandidatesEntry]) -> Registry:
    """Read the log of the registry into its state."""
    return fold(all_acts(entries))


def fold(acts: Iterable[Act]) -> Registry:
    """What acts come to, in their order. What is said of a name that nobody has registered counts for nothing."""
    about: dict[str, list[Act]] = defaultdict(list)
    names: list[str] = []
    production: str | None = None
    for act in acts:
        event = act.event
        if isinstance(event, Registered) and event.candidate not in names:
            names.append(event.candidate)
        for name in _about(event):
            about[name].append(act)
        if isinstance(event, Switched):
            production = event.to
        elif isinstance(event, CandidateRejected) and event.candidate == production:
            production = None
    found = {name: Candidate(acts=tuple(about[name])) for name in names}
    return Registry(candidates=found, production=found.get(production or ""))


def all_acts(entries: Iterable[CandidatesEntry]) -> list[Act]:
    """Every event with its place and time."""
    events = [(entry.at, event) for entry in entries for event in entry.events]
    return [Act(n=n, at=at, event=event) for n, (at, event) in enumerate(events, start=1)]


def _about(event: CandidateEvent) -> tuple[str, ...]:
    """The candidates that an event is about."""
    if isinstance(event, Switched):
        return (event.to,) if event.from_ is None else (event.to, event.from_)
    return (event.candidate,)
