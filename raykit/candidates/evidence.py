"""What a choice may rest on: surfaces with their authority, and differences that matter. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from raykit.candidates.registry import Candidate
from raykit.errors import GateError, InvalidInput
from raykit.records import Evidence, Surface

SELECTS = "development"
"""The only split whose numbers may choose; every other one reports."""


# --- surfaces -----------------------------------------------------------------------------------------------


def split_of(surface: str) -> str:
    """The split that `development.ratio` is measured on."""
    return surface.partition(".")[0]


def metric_of(surface: str) -> str:
    """What `development.ratio` measures."""
    return surface.partition(".")[2]


def planned_surfaces(settings: Mapping[str, Any], metrics: Sequence[str]) -> tuple[Surface, ...]:
    """The splits of a plan that can say something of its checkpoints, and which of them may select."""
    told = settings.get("data") or settings.get("splits") or {}
    roles = [SELECTS, *(each for each in ("report_only", "benchmark", "sealed") if each in told)]
    return tuple(
        Surface(name=f"{role}.{metric}", may_select=role == SELECTS) for role in roles for metric in metrics
    )


def surface_of(text: str) -> Surface:
    """Read `development.ratio=selects` or `report_only.ratio=reports`.

    Raises:
        InvalidInput: it is neither.
        GateError: it would let a split select that only reports.
    """
    name, equals, authority = text.partition("=")
    if not metric_of(name) or not equals or authority not in ("selects", "reports"):
        raise InvalidInput(
            f"{text!r} is no surface",
            field="--surface",
            value=text,
            rule="SPLIT.METRIC=selects or SPLIT.METRIC=reports",
            remedy="--surface development.ratio=selects",
        )
    if authority == "selects" and split_of(name) != SELECTS:
        raise GateError(
            f"{name} is measured on {split_of(name)}, which reports and never selects",
            field="--surface",
            value=text,
            rule=f"only {SELECTS} may select: what is looked at to report would be used up by choosing",
            remedy=f"--surface {name}=reports",
        )
    return Surface(name=name, may_select=authority == "selects")


# --- differences --------------------------------------------------------------------------------------------


def gain(evidence: Evidence) -> Decimal | None:
    """By how much the candidate is better than the incumbent, as decimal numbers; None without an incumbent's value."""
    if evidence.incumbent is None:
        return None
    value, incumbent = Decimal(repr(evidence.value)), Decimal(repr(evidence.incumbent))
    return incumbent - value if evidence.better == "less" else value - incumbent


def why_tied(evidence: Evidence) -> str | None:
    """Why this difference displaces nobody; None if it could."""
    difference = gain(evidence)
    if difference is None:
        return f"what the incumbent scores on {evidence.surface} is not known"
    if evidence.worthwhile is None:
        return f"what difference in {evidence.surface} would be worthwhile is not known"
    if difference < Decimal(repr(evidence.worthwhile)):
        by = f"better by {difference.normalize():f}" if difference > 0 else "not better"
        return (
            f"{evidence.surface} {evidence.value:g} against {evidence.incumbent:g} is {by}, "
            f"and {evidence.worthwhile:g} would be worthwhile"
        )
    return None


def decisive(candidate: Candidate, incumbent: Candidate) -> tuple[Evidence, ...]:
    """What was recommended with: on a surface that may select, against these very weights, by enough to matter."""
    return tuple(
        evidence
        for _, event in candidate.recommendations
        for evidence in event.evidence
        if selects(candidate, evidence) and evidence.against == incumbent.manifest and not why_tied(evidence)
    )


def selects(candidate: Candidate, evidence: Evidence) -> bool:
    """Whether this evidence may choose: its surface is registered as one that may select."""
    known = candidate.surface(evidence.surface)
    return known is not None and known.may_select


def require_better(candidate: Candidate, incumbent: Candidate | None) -> tuple[Evidence, ...]:
    """Let only a candidate pass that was shown to be better than the incumbent by what is worthwhile.

    Raises:
        GateError: it was not, or nobody knows: the incumbent stays.
    """
    if incumbent is None or incumbent.name == candidate.name:
        return tuple(each for _, event in candidate.recommendations for each in event.evidence)
    found = decisive(candidate, incumbent)
    if found:
        return found
    raise GateError(
        f"{incumbent.name} stays: {'; '.join(_undecided(candidate, incumbent))}",
        field="NAME",
        value=candidate.name,
        rule="a recommendation on a surface that may select, better than the incumbent by what is worthwhile",
        remedy=f"raykit candidates recommend {candidate.name} --surface {SELECTS}.METRIC --reason ... --by NAME",
    )


def _undecided(candidate: Candidate, incumbent: Candidate) -> Iterator[str]:
    """Why what was recommended with does not displace the incumbent."""
    evidence = [each for _, event in candidate.recommendations for each in event.evidence]
    if not evidence:
        yield f"nothing says yet that {candidate.name} is better"
    for each in evidence:
        if not selects(candidate, each):
            yield f"{each.surface} reports and never selects"
        elif each.against != incumbent.manifest:
            yield f"{each.surface} was compared with other weights than {incumbent.name}"
        elif (why := why_tied(each)) is not None:
            yield why
