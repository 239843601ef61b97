"""What a run of this plan cannot show, whatever comes out of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.review.category import holdouts
from raykit.review.evidence import Evidence
from raykit.review.options import weigh


def limitations(evidence: Evidence) -> Iterator[str]:
    """Everything that limits what the result will mean, in words that go into the lock and every report."""
    if evidence.stage == "screening":
        yield f"a screen ({evidence.stage_why}): it removes ideas, and makes no quality claim"
    if not holdouts(evidence):
        yield "no split chooses nothing: the result is on rows that selected"
    yield from _labels(evidence)
    yield from _unknown(evidence)
    declared = evidence.plan.base
    if declared is not None and declared.speculative:
        yield "speculative: no estimate stands behind the expected benefit"
    for incident in evidence.incidents:
        if incident.noted.kind == "limitation":
            yield f"{incident.noted.says} (seen in {incident.experiment})"


def safeguards(evidence: Evidence) -> str:
    """Two separate things: a run at the target protocol, and rows that chose nothing. Neither stands for the other."""
    long_run = "yes" if evidence.stage == "confirmation" else "no"
    return (
        f"run at the target protocol: {long_run}; independent rows: {', '.join(holdouts(evidence)) or 'none'}"
    )


def _labels(evidence: Evidence) -> Iterator[str]:
    claim = evidence.plan.claim
    if claim.label is None:
        yield "claim.label does not say what kind of label is predicted, if any, nor how good the labels are"
    elif claim.label != "none" and claim.label_quality is None:
        kind = "recorded by a workflow" if claim.label == "recorded" else "taken for the right decisions"
        yield f"the labels are {kind}, and their quality is unknown"


def _unknown(evidence: Evidence) -> Iterator[str]:
    base = evidence.base
    if evidence.money.uncertain:
        yield "times are guesses: nothing like it has been measured here"
    if base is not None and base.locked.origin == "adopted":
        yield f"how {base.locked.candidate} was trained is not known here"
    dear = [option.option for option in weigh(evidence) if option.possible and option.cost is None]
    if dear and evidence.money.billed:
        yield f"what these options cost is not known: {', '.join(dear)}"
    if evidence.looked.unread:
        yield f"these experiments could not be read: {', '.join(evidence.looked.unread)}"
