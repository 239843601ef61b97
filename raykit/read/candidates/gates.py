"""Is it examined, and is it approved? What every use of a candidate's weights asks first, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raykit.candidates.registry import Candidate, Registry, Use
from raykit.candidates.rules import PRODUCTION_ROLES, usable_for
from raykit.errors import ApprovalError, GateError
from raykit.ids import Digest
from raykit.qc.backlog import Standing, name_of, require_usable
from raykit.read.qc import read_qc
from raykit.records import CandidateApproved, Registered
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidate_registry

# --- examined -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """How far the examination of a candidate's weights is."""

    what: str
    """The weights, as people call them."""
    experiment: str | None
    """None for weights that were made elsewhere."""
    possible: bool
    """Somebody here could examine them: their experiment has `[qc]`."""
    standing: Standing | None = None
    """None if nobody has to examine them: their update is not on the cadence."""

    @property
    def usable(self) -> bool:
        """A decision may rest on them."""
        return self.standing is not None and self.standing.usable

    @property
    def why_not(self) -> str | None:
        """Why no decision may; None if one may."""
        if self.experiment is None:
            return "it was made elsewhere, and nobody here has examined it"
        if not self.possible:
            return f"{self.experiment} has no [qc]: nobody has examined it"
        if self.standing is None:
            return "its update is not on the QC cadence: nobody has examined it"
        return self.standing.why_not

    @property
    def scripted(self) -> bool:
        """Only a script has said that it passed."""
        review = None if self.standing is None else self.standing.review
        return review is not None and review.event.scripted

    @property
    def words(self) -> str:
        """`passed, reviewed by mira`, or why no decision may rest on it."""
        if self.why_not is not None:
            return self.why_not
        assert self.standing is not None and self.standing.review is not None
        by = "a script" if self.scripted else self.standing.review.event.person
        return f"passed, reviewed by {by}: {self.standing.review.event.note}"

    @property
    def receipts(self) -> tuple[Digest, ...]:
        """The receipt that a decision rests on, by its digest."""
        receipt = None if self.standing is None else self.standing.receipt
        return () if receipt is None else (receipt.digest,)

    def plain(self) -> dict[str, Any]:
        """The examination as JSON values."""
        standing = self.standing
        receipt = None if standing is None else standing.receipt
        review = None if standing is None else standing.review
        return {
            "possible": self.possible,
            "status": None if standing is None else standing.status,
            "verdict": None if receipt is None else receipt.verdict,
            "receipt": None if receipt is None else receipt.digest,
            "review": review and {**review.event.plain(), "at": review.at},
            "usable": self.usable,
            "why_not": self.why_not,
        }


def examination_of(store: ObjectStore, said: Registered, *, now: float) -> Examination:
    """How far the examination of registered weights is, under the suite that their experiment has now.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    if said.origin == "adopted" or said.experiment is None:
        return Examination(what=said.candidate, experiment=None, possible=False)
    found = read_qc(store, said.experiment, run_of(said), now=now)
    return Examination(
        what=f"{said.candidate} ({said.experiment}@{said.update})",
        experiment=said.experiment,
        possible=found is not None,
        standing=None if found is None else found.backlog.of(said.manifest),
    )


def run_of(said: Registered) -> str:
    """The run whose checkpoint it is."""
    return run_of_key(said.key)


def run_of_key(key: str) -> str:
    """The run that the manifest of a checkpoint lies in."""
    known = layout.known(key)
    return "main" if known is None else known.parts.get("run", "main")


def require_examined(
    found: Examination, said: Registered, use: Use | None, unexamined: str | None
) -> tuple[Digest, ...]:
    """Let only weights pass that a decision may rest on; the receipts that it rests on, by their digests.

    `unexamined` is why a person goes on without: only where nobody here could examine them, only for a base, and never
    for production. `use` is None for a recommendation.

    Raises:
        GateError: nobody has examined them, they failed, or a person has not reviewed what was found.
    """
    if not found.possible:
        _require_base(found, said, use, unexamined)
        return ()
    assert found.experiment is not None
    require_usable(found.standing, found.what, experiment=found.experiment)
    if use == "production" and found.scripted:
        assert found.standing is not None
        name = name_of(found.standing, found.experiment)
        raise GateError(
            f"no decision for production may rest on {found.what}: a script has reviewed its QC",
            field="qc",
            rule="a receipt that a named person has looked at",
            remedy=f"raykit qc review {name} --update {said.update} --verdict passed --note ... --by NAME",
        )
    return found.receipts


def _require_base(found: Examination, said: Registered, use: Use | None, unexamined: str | None) -> None:
    if said.role == "base" and use != "production" and unexamined is not None:
        return
    only = "" if said.role == "base" else f"; it is registered as {said.role}"
    if use == "production":
        rule = "a receipt that passed, reviewed as passed: what nobody examined never goes into production"
        remedy = "train from it, with [qc] in the plan, and choose a checkpoint of that run"
    else:
        rule = f"a receipt that passed; or, for a base, a reason to go on without{only}"
        remedy = (
            '--unexamined "why it may be used all the same"'
            if said.role == "base"
            else "choose a checkpoint of an experiment whose plan has [qc]"
        )
    raise GateError(
        f"no decision may rest on {found.what}: {found.why_not}", field="qc", rule=rule, remedy=remedy
    )


# --- approved -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Let:
    """Weights that may be used, and what lets them."""

    candidate: Candidate
    approval: CandidateApproved
    examination: Examination


def require_approved(store: ObjectStore, manifest: str, use: Use, *, what: str, now: float) -> Let:
    """Let only weights be used that a person, or a script that says so, has chosen for it, and that are still sound.

    `what` is how the caller calls them. An approval counts for nothing once a rejection follows, or once their QC is
    reviewed as failed.

    Raises:
        ApprovalError: nobody has registered or approved these very bytes for this use; nothing may begin.
        GateError: they are approved, and no decision may rest on them any more.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    registry = read_candidate_registry(store)
    candidate = registry.of(manifest)
    if candidate is None:
        raise ApprovalError(
            f"{what} is no candidate: nobody can have approved it for {use}",
            field="NAME",
            value=what,
            rule="a registered candidate, approved by name",
            remedy=f"raykit candidates register NAME {what} --role ROLE --by NAME",
        )
    approval = usable_for(candidate, use)
    if approval is None:
        raise _unapproved(registry, candidate, use)
    found = examination_of(store, candidate.said, now=now)
    require_examined(found, candidate.said, use, approval.unexamined)
    return Let(candidate=candidate, approval=approval, examination=found)


def _unapproved(registry: Registry, candidate: Candidate, use: Use) -> ApprovalError:
    name = candidate.name
    return ApprovalError(
        f"{name} is {candidate.state}, and not approved for {use}",
        facts=tuple(_seen(registry, candidate)),
        field="NAME",
        value=name,
        rule="a named person's approval of this very candidate; no plan, rule or recommendation is one",
        remedy=_way_to(candidate, use),
    )


def _way_to(candidate: Candidate, use: Use) -> str:
    """The next act that nothing in the registry stands against."""
    name, said = candidate.name, candidate.said
    if use == "production" and said.role not in PRODUCTION_ROLES:
        return f"choose a {' or a '.join(sorted(PRODUCTION_ROLES))}: raykit candidates list"
    if candidate.rejected is not None:
        return f"raykit candidates show {name}"
    return f"raykit candidates approve {name} --use {use} --reason ... --by NAME"


def _seen(registry: Registry, candidate: Candidate) -> Iterator[tuple[str, str]]:
    """What a person sees who is asked."""
    yield "weights", f"{candidate.said.role}, sha256 {candidate.manifest[:8]}"
    for _, event in candidate.approvals:
        yield "approved", f"for {event.use}, by {'a script' if event.scripted else event.person}"
    for _, recommended in candidate.recommendations:
        yield "recommended", f"by {recommended.person}: {recommended.reason}"
    if candidate.rejected is not None:
        rejected = candidate.rejected[1]
        yield "rejected", f"by {rejected.person}: {rejected.reason}"
    if registry.production is not None and registry.production.name != candidate.name:
        yield "in production", registry.production.name
