"""Everything that is known of one candidate: what it is, what it took, how far it is, and what depends on it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from raykit.candidates.evidence import decisive, gain, selects, why_tied
from raykit.candidates.registry import USES, Candidate, Registry
from raykit.candidates.rules import known, usable_for
from raykit.errors import CorruptError, NotFoundError
from raykit.exactness import Class
from raykit.read.bases import BaseFacts, Known, known_candidate
from raykit.read.candidates.gates import Examination, examination_of, run_of
from raykit.read.candidates.inventory import inventory_of, redo
from raykit.read.root import Root
from raykit.read.view import RunView
from raykit.records import Evidence, Inventory
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidate_registry

NOT_COST = "replacement cost, not evidence of quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """How far a candidate is, in words: five things that are each so or not, whatever the others are."""

    preparation: str
    optimization: str
    verification: str
    comparison: str
    serving: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Four things that are often taken for one another. None means that nobody knows."""

    valid_file: bool
    completed_job: bool | None
    lower_loss: bool | None
    """Better than the incumbent by what is worthwhile, on a surface that may select."""
    useful: bool | None
    """A person has approved it for something, and that rests on a comparison. Nothing else that is so says it."""
    useful_on: str | None
    """That comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRead:
    """One candidate at one moment."""

    candidate: Candidate
    known: Known
    examination: Examination
    view: RunView | None
    """The run that made it; None for weights from elsewhere, and where it cannot be read."""
    inventory: Inventory
    production: bool
    incumbent: bool
    """Whom another one would have to be better than."""
    decisive: bool | None
    """Whether a recommendation shows that it is better than the incumbent; None where there is nothing to compare."""

    @property
    def facts(self) -> BaseFacts:
        return self.known.facts

    @property
    def exactness(self) -> Class | None:
        """How much its run is the one that was never interrupted, at these weights; None if no log here has them."""
        commits = () if self.view is None else self.view.commits
        manifest = self.candidate.said.manifest
        return next((each.exactness for each in commits if each.commit.sha256 == manifest), None)

    @property
    def stages(self) -> Stages:
        """How far it is."""
        return Stages(
            preparation=_preparation(self.view),
            optimization=_optimization(self.view),
            verification=f"{self._files}; QC: {self.examination.words}",
            comparison=self._comparison,
            serving=self._serving,
        )

    @property
    def apart(self) -> Apart:
        """What is so, each for itself."""
        on = next(iter(self.shown_better), None)
        chosen = any(not event.scripted for _, event in self.candidate.approvals)
        useful = on is not None and chosen
        return Apart(
            valid_file=self.facts.verifies,
            completed_job=None if self.view is None else self.view.state == "completed",
            lower_loss=self.decisive,
            useful=True if useful else None,
            useful_on=compared(on) if on is not None and useful else None,
        )

    @property
    def _files(self) -> str:
        return "its files are there as listed" if self.facts.verifies else f"BROKEN: {self.facts.broken}"

    @property
    def _comparison(self) -> str:
        evidence = self.evidence
        return "none" if not evidence else "; ".join(compared(each) for each in evidence)

    @property
    def _serving(self) -> str:
        if self.production:
            return "in production"
        for use in reversed(USES):
            if (found := usable_for(self.candidate, use)) is not None:
                return f"approved for {use} by {'a script' if found.scripted else found.person}, not in production"
        return "not approved for anything"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What its standing recommendations rest on."""
        return tuple(each for _, event in self.candidate.recommendations for each in event.evidence)

    @property
    def shown_better(self) -> tuple[Evidence, ...]:
        """What shows that it is better than whoever was the incumbent then, by what is worthwhile."""
        return tuple(
            each for each in self.evidence if selects(self.candidate, each) and why_tied(each) is None
        )

    def plain(self) -> dict[str, Any]:
        """The candidate as JSON values."""
        facts, candidate = self.facts, self.candidate
        return {
            **candidate.said.plain(),
            "state": candidate.state,
            "recommended": [{**e.plain(), "at": a.at} for a, e in candidate.recommendations],
            "approved": [{**e.plain(), "at": a.at} for a, e in candidate.approvals],
            "rejected": candidate.rejected and _plain(candidate.rejected),
            "preserved": candidate.preserved and _plain(candidate.preserved),
            "production": self.production,
            "incumbent": self.incumbent,
            "verifies": facts.verifies,
            "broken": facts.broken,
            "updates": facts.updates,
            "rows": facts.rows,
            "size_bytes": facts.size_bytes,
            "class": self.exactness and self.exactness.words,
            "replacement": {
                "is": NOT_COST,
                "accelerator_ms": facts.accelerator_ms,
                "cost": facts.cost,
                "unit": facts.unit,
            },
            "qc": self.examination.plain(),
            "stages": asdict(self.stages),
            "apart": asdict(self.apart),
            "dependents": {**self.inventory.plain(), "digest": self.inventory.digest},
            "redo": asdict(redo(self.inventory)),
            "acts": [{**act.event.plain(), "at": act.at, "n": act.n} for act in candidate.acts],
        }


def read_candidate(store: ObjectStore, name: str, *, now: float) -> CandidateRead:
    """All that is known of the candidate of this name.

    Raises:
        NotFoundError: there is no such candidate.
        CorruptError: the registry, a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    registry = read_candidate_registry(store)
    candidate = known(registry, name)
    facts = known_candidate(store, name)
    assert facts is not None  # the registry has it
    return CandidateRead(
        candidate=candidate,
        known=facts,
        examination=examination_of(store, candidate.said, now=now),
        view=_view(store, candidate),
        inventory=inventory_of(store, candidate, now=now),
        production=registry.production is not None and registry.production.name == name,
        incumbent=registry.incumbent is not None and registry.incumbent.name == name,
        decisive=_decisive(registry, candidate),
    )


def compared(evidence: Evidence) -> str:
    """`development.ratio 0.28 against 0.31, better by 0.03 (0.01 is worthwhile), from ...`: also who says so."""
    text = f"{evidence.surface} {evidence.value:g}"
    difference = gain(evidence)
    if difference is None:
        return f"{text}, compared with nothing, {_source(evidence)}"
    by = f"better by {difference.normalize():f}" if difference > 0 else "not better"
    matters = (
        "what is worthwhile is not known"
        if evidence.worthwhile is None
        else f"{evidence.worthwhile:g} is worthwhile"
    )
    return f"{text} against {evidence.incumbent:g}, {by} ({matters}), {_source(evidence)}"


def _source(evidence: Evidence) -> str:
    """`from the development history of ...`, or `as mira says: ...`."""
    return evidence.how if evidence.how.startswith("as ") else f"from {evidence.how}"


def _decisive(registry: Registry, candidate: Candidate) -> bool | None:
    incumbent = registry.incumbent
    if incumbent is None or incumbent.name == candidate.name or not candidate.recommendations:
        return None
    return bool(decisive(candidate, incumbent))


def _view(store: ObjectStore, candidate: Candidate) -> RunView | None:
    said = candidate.said
    if said.origin == "adopted" or said.experiment is None:
        return None
    try:
        return Root(store, time.time).run(f"{said.experiment}/{run_of(said)}")
    except (CorruptError, NotFoundError):  # what is known of the candidate itself is still shown
        return None


def _preparation(view: RunView | None) -> str:
    if view is None:
        return "not known here"
    newest = {each.gate: each.passed for each in view.gates}
    planned = tuple(newest) if view.lock is None else view.lock.gates
    told = f"{sum(newest.get(gate, False) for gate in planned)} of {len(planned)} gates passed"
    others = [
        f"{gate} {'passed' if passed else 'failed'}" for gate, passed in newest.items() if gate not in planned
    ]
    return f"{told}; in every attempt: {', '.join(others)}" if others else told


def _optimization(view: RunView | None) -> str:
    if view is None:
        return "not known here"
    of = "" if view.updates is None else f" of {view.updates:,}"
    return f"{view.state}, {view.update:,}{of} updates"


def _plain(said: tuple[Any, Any]) -> dict[str, Any]:
    act, event = said
    return {**event.plain(), "at": act.at}
