"""The review as one table: twenty items, the rules around them, and what a plan comes to under all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from raykit.errors import PlanError, ReviewError
from raykit.plan import Judged, Option
from raykit.review import afterwards, category, conduct, premise, strictness, tuning
from raykit.review.conduct import KEPT_BACK
from raykit.review.diagnosis import flaws
from raykit.review.evidence import Evidence
from raykit.review.finding import Finding
from raykit.review.limits import limitations
from raykit.review.options import weigh
from raykit.review.restart import approval
from raykit.review.rule import Rule

DECISION, RESTART = "REVIEW-01", "REVIEW-10"

ITEMS: tuple[Rule, ...] = (
    Rule(DECISION, "the result can change a decision", premise.decision, 'if_no = "..."'),
    Rule("REVIEW-02", "each split has one role", premise.surfaces),
    Rule("REVIEW-03", "the base is one exact artifact", premise.artifact, "raykit ls"),
    Rule("REVIEW-04", "observed, recommended, approved", premise.states),
    Rule("REVIEW-05", "a switch counts what depends on it", premise.switch),
    Rule("REVIEW-06", "the incumbent is compared with", premise.incumbent),
    Rule("REVIEW-07", "weights are kept, whatever is selected", premise.preservation),
    Rule("REVIEW-08", "row differences are numbers", premise.deltas),
    Rule("REVIEW-09", "reuse was considered first", premise.reuse),
    Rule(
        RESTART,
        "a restart is approved by itself",
        premise.restart,
        'raykit approve restart PLAN --reason "why it is still right" --by NAME',
    ),
    Rule("REVIEW-11", "arms differ only where intended", conduct.arms),
    Rule("REVIEW-12", "nothing is silently replaced", conduct.substitution),
    Rule("REVIEW-13", "compute, time, cost and stop are stated", conduct.stated),
    Rule("REVIEW-14", "recovery goes on from useful state", conduct.recovery),
    Rule("REVIEW-15", "a generated set is durable as it grows", conduct.durable),
    Rule("REVIEW-16", "decoding with its speed and cost", conduct.decoding),
    Rule("REVIEW-17", "a winner clears an effect that matters", conduct.effect),
    Rule("REVIEW-18", "a tie goes to the incumbent, or to what costs less", conduct.tie),
    Rule("REVIEW-19", "a shared defect stops everyone", conduct.shared_defects),
    Rule("REVIEW-20", "rows that report change nothing", conduct.influence),
)
"""The twenty items of a review, in their order."""

RULES: tuple[Rule, ...] = (*strictness.RULES, *tuning.RULES, *category.RULES, *afterwards.RULES)
"""What is judged beside them: reasons, categories, and what earlier results mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a plan comes to: what is wrong, what could be done instead, what holds, and what stays unknown."""

    findings: tuple[Finding, ...]
    options: tuple[Option, ...]
    passed: tuple[str, ...]
    """The review items that hold."""
    limitations: tuple[str, ...]


def review(evidence: Evidence) -> Review:
    """Judge a plan by everything that is known around it. The plan itself is changed by nothing here."""
    tests = tuple(_diagnosis(evidence))
    found = {item.id: tuple(item.findings(evidence)) for item in ITEMS}
    around = [finding for rule in RULES for finding in rule.findings(evidence)]
    failing = {item for item, findings in found.items() if findings} | ({DECISION} if tests else set())
    return Review(
        findings=(*(finding for findings in found.values() for finding in findings), *tests, *around),
        options=weigh(evidence),
        passed=tuple(item.id for item in ITEMS if item.id not in failing),
        limitations=tuple(limitations(evidence)),
    )


def _diagnosis(evidence: Evidence) -> Iterator[Finding]:
    plan = evidence.plan
    if plan.diagnosis is None:
        return
    sources = {} if plan.data is None else plan.data.sources()
    kept_back = [source for role, named in sources.items() if role in KEPT_BACK for source in named]
    yield from flaws(plan.diagnosis, holdouts=kept_back)


def require_passed(evidence: Evidence, review: Review) -> None:
    """Let only a plan go on of which nothing is refused and nothing left to be said.

    A restart that nobody has approved is asked for by itself, once nothing else is refused.

    Raises:
        ReviewError: it needs revision; `findings` are all that is wrong with it, and the message names them.
        ApprovalError: it begins anew, and that needs an approval of its own; `facts` is the request.
        PlanError: something has to be said first; `findings` are what.
    """
    refused = [finding for finding in review.findings if not finding.asks]
    asked = [finding for finding in review.findings if finding.asks]
    if any(finding.item != RESTART for finding in refused):
        items = ", ".join(dict.fromkeys(finding.item for finding in review.findings))
        raise ReviewError(
            f"{evidence.plan.name} needs revision: {items}",
            findings=tuple(map(_as_error, review.findings)),
            rule="a plan whose review has no finding",
        )
    if refused:
        raise approval(evidence, review.options, asked)
    if asked:
        noun = "finding" if len(asked) == 1 else "findings"
        raise PlanError(f"{len(asked)} {noun}", findings=tuple(map(_as_error, asked)))


def restart_facts(evidence: Evidence, review: Review) -> tuple[tuple[str, str], ...]:
    """What a person has to see before letting this plan begin anew, in order."""
    return approval(evidence, review.options, [finding for finding in review.findings if finding.asks]).facts


def _as_error(finding: Finding) -> PlanError:
    return PlanError(
        f"{finding.problem} ({finding.item}: {finding.title})",
        field=finding.field,
        rule=finding.rule,
        remedy=finding.remedy,
    )


def judged(evidence: Evidence, review: Review) -> Judged:
    """What the lock keeps of a review."""
    money = evidence.money
    return Judged(
        stage=evidence.stage,
        stage_why=evidence.stage_why,
        base=None if evidence.base is None else evidence.base.locked,
        rows=evidence.change,
        settings=evidence.settings,
        options=review.options,
        unit=money.unit,
        ceiling=money.ceiling,
        lines=money.lines,
        worst=money.worst,
        expected=money.expected,
        expected_ms=money.expected_ms,
        uncertain=money.uncertain,
        rates=money.rates,
        passed=review.passed,
        limitations=review.limitations,
        looked=evidence.looked,
    )
