"""Which act is allowed: by the registry, the role, the authority of a surface, and whether a difference matters. Pure.

Each `let_...` takes the registry as it is and the event that somebody wants to append, and gives it back; None if
nothing would change. What the registry cannot know (whether weights are examined, what they score) is asked of the
store before.
"""

from __future__ import annotations

from raykit.candidates.evidence import SELECTS, metric_of, require_better, selects, why_tied
from raykit.candidates.registry import Candidate, Registry, Use, covers
from raykit.errors import GateError, NotFoundError
from raykit.records import (
    CandidateApproved,
    CandidateRejected,
    CandidateRole,
    Dependent,
    Evidence,
    Inventory,
    Preserved,
    Recommended,
    Switched,
)
from raykit.review import words

PRODUCTION_ROLES: frozenset[CandidateRole] = frozenset({"production-candidate", "release-model"})
"""What may go into production. No number makes another role one of these; a person corrects a registration."""

UNRECOMMENDED: frozenset[CandidateRole] = frozenset({"diagnostic"})

INSPECTED: frozenset[CandidateRole] = frozenset({"diagnostic", "search-checkpoint"})
"""Made on the way to something else. They leave the store only so that somebody can look at them: a person lets them,
since whoever gets an exported folder sees weights and not why they were made."""

MIN_DIGEST = 8
"""So much of a digest names an inventory."""


# --- what people may say ------------------------------------------------------------------------------------


def let_recommend(registry: Registry, event: Recommended, *, supports: bool) -> Recommended | None:
    """A recommendation; None if this very one stands. `supports`: the plan lets report-only metrics support one.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: its role, its surfaces or the difference do not carry a recommendation: it stays observed.
    """
    candidate = known(registry, event.candidate)
    for evidence in event.evidence:
        require_recommendable(candidate, evidence.surface, supports=supports)
    incumbent = registry.incumbent
    if incumbent is not None and incumbent.name != candidate.name:
        selecting = [each for each in event.evidence if selects(candidate, each)]
        reasons = [_against(each, incumbent) for each in selecting or event.evidence]
        if not reasons or all(reasons):
            raise GateError(
                f"{candidate.name} stays {candidate.state}, and {incumbent.name} where it is: "
                f"{reasons[0] if reasons else 'nothing compares them'}",
                field="--surface",
                value=event.evidence[0].surface if event.evidence else None,
                rule="a difference that is worthwhile, as the plan has declared it before",
                remedy=f"keep {incumbent.name}: raykit candidates show {incumbent.name}",
            )
    standing = [said for _, said in candidate.recommendations]
    return None if event in standing else event


def require_recommendable(candidate: Candidate, surface: str, *, supports: bool) -> None:
    """Let only a candidate pass that may be recommended for what it scores on this surface.

    Raises:
        GateError: its role is never recommended, or the surface is none of its own or supports nothing.
    """
    if candidate.said.role in UNRECOMMENDED:
        raise GateError(
            f"{candidate.name} is a {candidate.said.role} checkpoint: no number recommends it",
            field="role",
            value=candidate.said.role,
            rule="any other role; a diagnostic checkpoint was made to explain something, not to be chosen",
            remedy="raykit candidates list",
        )
    registered = candidate.surface(surface)
    if registered is None:
        raise _no_surface(candidate, surface)
    if not registered.may_select and not supports:
        raise GateError(
            f"{surface} reports, and its plan does not let it support a recommendation",
            field="claim.report_only",
            rule='report_only = "supports" under [claim], said before the result was seen',
            remedy=f"recommend it for a surface that selects: --surface {SELECTS}.METRIC",
        )


def _no_surface(candidate: Candidate, surface: str) -> GateError:
    names = [each.name for each in candidate.said.surfaces]
    if not metric_of(surface) and names:
        remedy = f"--surface {names[0]}"
    else:
        wanted = surface if metric_of(surface) else f"{SELECTS}.METRIC"
        remedy = (
            f"raykit candidates register {candidate.name} {candidate.where} --role {candidate.said.role} "
            f"--surface {wanted}=reports --correct --by NAME"
        )
    return GateError(
        f"{surface} is not a surface of {candidate.name}",
        field="--surface",
        value=surface,
        rule=f"one of {', '.join(names)}" if names else "a surface that it was registered with: SPLIT.METRIC",
        remedy=remedy,
    )


def _against(evidence: Evidence, incumbent: Candidate) -> str | None:
    if evidence.against != incumbent.manifest:
        return f"{evidence.surface} is not compared with {incumbent.name}"
    return why_tied(evidence)


def let_approve(registry: Registry, event: CandidateApproved) -> CandidateApproved | None:
    """An approval; None if one stands that covers as much.

    A script approves nothing for production, and no diagnostic or search checkpoint for export either.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: its role, its bytes, a rejection, a script or a tie with the incumbent stand in the way.
    """
    candidate = known(registry, event.candidate)
    require_bytes(candidate, event.manifest)
    require_role(candidate, event.use)
    _require_not_rejected(candidate)
    if event.use == "export" and event.scripted and candidate.said.role in INSPECTED:
        raise _scripted(f"letting a {candidate.said.role} checkpoint out for inspection")
    if event.use == "production":
        if event.scripted:
            raise _scripted("an approval for production")
        require_better(candidate, registry.incumbent)
    stands = candidate.approved_for(event.use)
    if stands is not None and (event.scripted or not stands[1].scripted):
        return None
    return event


def require_bytes(candidate: Candidate, manifest: str) -> None:
    """An approval of other weights is none of these.

    Raises:
        GateError: `manifest` is not that of the candidate.
    """
    if candidate.manifest != manifest:
        raise GateError(
            f"{candidate.name} stands for manifest {candidate.manifest[:12]}, not {manifest[:12]}",
            field="NAME",
            value=candidate.name,
            rule="the very weights that are approved",
        )


def require_role(candidate: Candidate, use: Use) -> None:
    """Let only a role pass that may be used so.

    Raises:
        GateError: it may not go into production, whatever it scores.
    """
    role = candidate.said.role
    if use == "production" and role not in PRODUCTION_ROLES:
        raise GateError(
            f"{candidate.name} is a {role}: its role does not permit production, whatever it scores",
            field="role",
            value=role,
            rule=" or ".join(sorted(PRODUCTION_ROLES)),
            remedy=_way_to_production(candidate),
        )


def _way_to_production(candidate: Candidate) -> str:
    """What can be done instead. A trial was the best of many that were tried: a name does not make it a run that was
    planned, reviewed and confirmed by itself."""
    if candidate.said.role == "search-checkpoint":
        return (
            f"raykit show {candidate.where.partition('@')[0]}   has its setting: launch that as a run of its own, by a "
            "plan without [search], and register its checkpoint"
        )
    return (
        f"if the role was wrong: raykit candidates register {candidate.name} {candidate.where} --role "
        "production-candidate --correct --by NAME"
    )


def _require_not_rejected(candidate: Candidate) -> None:
    if candidate.rejected is not None:
        event = candidate.rejected[1]
        raise GateError(
            f"{event.person} has rejected {candidate.name}: {event.reason}",
            field="NAME",
            value=candidate.name,
            rule="a recommendation after the rejection, with its evidence",
            remedy=_taken_up_again(candidate),
        )


def _taken_up_again(candidate: Candidate) -> str:
    if candidate.said.role in UNRECOMMENDED:
        return f"a {candidate.said.role} checkpoint is never recommended: raykit candidates list"
    return f"raykit candidates recommend {candidate.name} --surface {SELECTS}.METRIC --reason ... --by NAME"


def _scripted(what: str) -> GateError:
    return GateError(
        f"{what} is a person's act, and this one is a script's",
        field="--scripted",
        rule="a named person at a terminal",
        remedy="run the same command in a terminal, without --scripted",
    )


def let_reject(
    registry: Registry, event: CandidateRejected, *, unusable: str | None
) -> CandidateRejected | None:
    """A rejection; None if it is rejected already. `unusable` says why no decision may rest on it, if none may.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: the reason is that something else would be neater, or it is in production and sound.
    """
    candidate = known(registry, event.candidate)
    require_reason(event.reason, f"{candidate.name} is not discarded")
    if candidate.rejected is not None:
        return None
    incumbent = registry.incumbent
    sound = unusable is None and candidate.said.role in PRODUCTION_ROLES
    if incumbent is not None and incumbent.name == candidate.name and sound:
        raise GateError(
            f"{candidate.name} is the incumbent, and nothing is wrong with it that was measured here",
            field="NAME",
            value=candidate.name,
            rule="a QC verdict of failed, or another candidate that takes its place first",
            remedy=f"raykit candidates switch OTHER; or, if a person has found what is wrong with it: "
            f"raykit qc review {candidate.said.experiment} --update {candidate.said.update} --verdict failed",
        )
    return event


def require_reason(text: str, what: str) -> None:
    """Let no weights go because others would be neater: a fresh refit is no reason against a checkpoint.

    A check of words, not of sense (`raykit.review.words`): it refuses what leans on habit or neatness and says nothing
    that follows from it.

    Raises:
        GateError: the reason is none.
    """
    weak = words.weak(text)
    if weak is not None:
        raise GateError(
            f"{what} for {weak.words!r}",
            field="--reason",
            value=text,
            rule=weak.wanted,
            remedy='--reason "what is wrong with it, measured"',
        )


def let_preserve(registry: Registry, event: Preserved) -> Preserved | None:
    """Keeping a candidate for good, or letting go of it; None if it is so already.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: it is let go of because others would be neater.
    """
    candidate = known(registry, event.candidate)
    if not event.keep:
        require_reason(event.reason, f"{candidate.name} is not let go")
    return None if (candidate.preserved is not None) == event.keep else event


def let_depend(registry: Registry, event: Dependent) -> Dependent | None:
    """Work that depends on a candidate; None if exactly this was said of it last.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: it was made with other weights.
    """
    candidate = known(registry, event.candidate)
    require_bytes(candidate, event.manifest)
    said = {(each.kind, each.name): each for _, each in candidate.dependents}.get((event.kind, event.name))
    same = said is not None and said.model_copy(update={"person": event.person}) == event
    return None if same else event


def let_switch(registry: Registry, event: Switched, *, seen: str | None) -> Switched | None:
    """Taking the place of the production candidate; None if it has it already. `seen` is the inventory that a person
    has seen, by the first digits of its digest.

    Raises:
        NotFoundError: there is no such candidate.
        GateError: it is not approved for production by a person, or is not better by what is worthwhile; a script
            asks; the incumbent is another one by now; or nobody has seen what falls.
    """
    candidate = known(registry, event.to)
    if registry.production is not None and registry.production.name == candidate.name:
        return None
    if event.scripted:
        raise _scripted("a switch")
    require_reason(event.reason, f"{candidate.name} is not switched to")
    require_role(candidate, "production")
    _require_not_rejected(candidate)
    if candidate.approved_for("production") is None:
        raise GateError(
            f"{candidate.name} is {candidate.state}, not approved for production",
            field="NAME",
            value=candidate.name,
            rule="an approval of this very candidate for production, by a named person",
            remedy=f"raykit candidates approve {candidate.name} --use production --reason ... --by NAME",
        )
    evidence = require_better(candidate, registry.incumbent)
    incumbent = registry.incumbent
    replaced = incumbent.name if incumbent is not None and incumbent.name != candidate.name else None
    if event.from_ != replaced:
        raise GateError(
            f"the incumbent is {replaced or 'nobody'} by now, not {event.from_ or 'nobody'}",
            field="NAME",
            value=candidate.name,
            rule="a switch from the candidate that is in place",
            remedy=f"raykit candidates dependents {replaced}" if replaced else None,
        )
    _require_seen(event.inventory, seen, candidate.name)
    return event.model_copy(update={"evidence": evidence})


def _require_seen(inventory: Inventory | None, seen: str | None, name: str) -> None:
    """A switch that makes work fall needs somebody who has seen which."""
    if inventory is None or not any(item.falls for item in inventory.items):
        return
    digest = inventory.digest
    if seen is None or len(seen) < MIN_DIGEST or not digest.startswith(seen):
        fall = sum(item.falls for item in inventory.items)
        raise GateError(
            f"{fall} of {len(inventory.items)} dependents of {inventory.candidate} would fall"
            + ("" if seen is None else f": the inventory is {digest[:MIN_DIGEST]}, not {seen}"),
            field="--seen",
            value=seen,
            rule="the inventory that a person has seen, by its digest",
            remedy=f"raykit candidates switch {name} --seen {digest[:MIN_DIGEST]} --reason ... --by NAME",
        )


def known(registry: Registry, name: str) -> Candidate:
    """The candidate of this name.

    Raises:
        NotFoundError: nobody has registered one.
    """
    found = registry.candidates.get(name)
    if found is None:
        there = ", ".join(list(registry.candidates)[:8])
        raise NotFoundError(
            f"there is no candidate {name}",
            field="NAME",
            value=name,
            rule=f"one of {there}" if there else "a registered candidate: there is none yet",
            remedy="raykit candidates list"
            if there
            else "raykit candidates register NAME EXPERIMENT@UPDATE --role ROLE --by NAME",
        )
    return found


def usable_for(candidate: Candidate, use: Use) -> CandidateApproved | None:
    """The approval that lets these weights be used so; none after a rejection, or once the role is corrected."""
    found, role = candidate.approved_for(use), candidate.said.role
    if found is None or (use == "production" and role not in PRODUCTION_ROLES):
        return None
    if use == "export" and role in INSPECTED and found[1].scripted:
        return None
    assert covers(found[1].use, use)
    return found[1]
