"""What a run of each category may and may not do: causal comparison, model selection, production, final audit."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.review import words
from raykit.review.conduct import KEPT_BACK
from raykit.review.evidence import Evidence
from raykit.review.rule import Flaw, Rule

_NAMES = {
    "causal-comparison": "a causal comparison",
    "model-selection": "a model selection",
    "production-improvement": "a production improvement",
    "final-audit": "a final audit",
}


def clean_room(evidence: Evidence) -> Iterator[Flaw]:
    """Production work has no controls of a clean room, unless the plan asks for research."""
    plan, base = evidence.plan, evidence.plan.base
    if plan.category != "production-improvement" or plan.research:
        return
    wanted = (
        "reuse of the weights that are there; or research = true, which says that the controls are wanted"
    )
    if base is not None and base.start == "fresh" and base.because == "initialization":
        yield Flaw("base.because", "studies initialization, and this is production work", wanted)
    anew = evidence.base is not None and evidence.chosen == "fresh" and not evidence.passed_over
    if plan.comparison is not None and anew:
        yield Flaw("comparison.arms", "trains every arm from scratch, and this is production work", wanted)


def borrowed_reason(evidence: Evidence) -> Iterator[Flaw]:
    """The need of a comparison for identical starts is no reason for another category to begin anew."""
    plan, base = evidence.plan, evidence.plan.base
    if base is None or base.start != "fresh" or base.because != "identical-arms":
        return
    if plan.category == "production-improvement":
        yield Flaw(
            "base.because",
            "is identical-arms: that arms of a comparison start alike is no reason for the production model to",
            "base-invalid or uniform-exposure, or a start that reuses the base",
            rule="PLAN-26",
        )
    elif plan.category != "causal-comparison" and base.invalid_without is None:
        yield Flaw(
            "base.because",
            f"is identical-arms, a rule of causal comparisons, and this is {_NAMES[plan.category]}",
            "base.invalid_without: why that rule holds here",
        )


def same_start(evidence: Evidence) -> Iterator[Flaw]:
    """Arms of a causal comparison start alike, and none inherits what another one has learned."""
    plan = evidence.plan
    if plan.category != "causal-comparison":
        return
    if plan.comparison is None:
        if evidence.strict:
            yield Flaw(
                "comparison",
                "missing",
                "a table of arms, and the one setting that varies between them",
                asks=True,
            )
        return
    varies = plan.comparison.varies
    if varies.startswith("data") and evidence.chosen in ("continue", "replay"):
        yield Flaw(
            "base.start",
            f"is {evidence.chosen}, and the arms differ in {varies}: one would inherit from rows that it is to be "
            "compared without",
            'start = "fresh" for every arm',
        )
    if varies.removeprefix("run.").startswith("base"):
        yield Flaw(
            "comparison.varies", f"is {varies}: the arms would start differently", "one setting, same start"
        )


def audit(evidence: Evidence) -> Iterator[Flaw]:
    """A final audit measures weights as they are; it changes no choice of training."""
    plan = evidence.plan
    if plan.category != "final-audit":
        return
    if plan.search is not None:
        yield Flaw("search", "chooses settings, and a final audit changes none", "no [search]")
    if evidence.chosen != "use":
        start = "no base" if plan.base is None else f"base.start = {plan.base.start}"
        yield Flaw("base.start", f"trains ({start}), and a final audit changes no weights", 'start = "use"')
    elif evidence.settings:
        yield Flaw(
            "run",
            f"differs from what trained the base: {'; '.join(evidence.settings)}",
            "the settings of the base as they were",
        )


def bound_comparison(evidence: Evidence) -> Iterator[Flaw]:
    """The final comparison is bound before the run: the unchanged base, the candidate, the same held-out inputs."""
    plan, base = evidence.plan, evidence.base
    if plan.category == "production-improvement" and base is not None and base.declared:
        known = {base.locked.candidate, base.locked.experiment}
        production = evidence.incumbent in known  # then REVIEW-06 asks for it
        if not production and not any(words.names(plan.claim.compare, name) for name in known):
            yield Flaw(
                "claim.compare",
                f"does not name {base.locked.candidate}, the unchanged base",
                f'"{base.locked.candidate}" among the comparators',
                asks=True,
            )
    comparison = plan.comparison
    if comparison is not None and comparison.inputs == "train":
        yield Flaw(
            "comparison.inputs", "reads rows that the arms are trained on", "held-out rows: development"
        )
    if comparison is not None and words.placeholder(comparison.inference) and comparison.inference != "none":
        yield Flaw(
            "comparison.inference",
            f"{comparison.inference!r} is a blank that was not filled in",
            'how inference differs between the arms, or "none"',
            asks=True,
        )


def untouched(evidence: Evidence) -> Iterator[Flaw]:
    """What was chosen on development is measured on rows that chose nothing, before it goes into production."""
    base = evidence.base
    searched = base is not None and base.declared and base.role == "search-checkpoint"
    if evidence.plan.category == "production-improvement" and searched and not holdouts(evidence):
        yield Flaw(
            "splits.report_only" if evidence.plan.data is None else "data.report_only",
            "missing: the base was chosen on the development split, and no split of this plan chose nothing",
            "a report_only or a sealed split, of rows that the base has not seen; until there is one: category = "
            '"model-selection"',
        )


def no_claim(evidence: Evidence) -> Iterator[Flaw]:
    """A screen promotes nothing: what survives it is tested at the target protocol first."""
    comparison = evidence.plan.comparison
    if comparison is not None and comparison.promote and evidence.stage == "screening":
        yield Flaw(
            "comparison.promote",
            f"promotes, and this is a screen: {evidence.stage_why}",
            "a confirmation at the target protocol, with matched controls",
        )


def holdouts(evidence: Evidence) -> tuple[str, ...]:
    """The splits of the plan that choose nothing."""
    return tuple(sorted(role for role in evidence.rows if role in KEPT_BACK))


RULES: tuple[Rule, ...] = (
    Rule("PLAN-02", "production work without clean-room controls", clean_room),
    Rule("PLAN-22", "each category has its own rules", borrowed_reason),
    Rule("PLAN-24", "arms that start alike", same_start),
    Rule("PLAN-27", "an audit changes no choice", audit),
    Rule("PLAN-75", "the final comparison is bound before the run", bound_comparison),
    Rule("PLAN-62", "measured on rows that chose nothing", untouched),
    Rule("PLAN-51", "a screen makes no quality claim", no_claim),
)
