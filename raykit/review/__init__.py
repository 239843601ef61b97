"""The review before a launch: evidence in, findings out. Pure.

evidence, finding, rule        what is judged, what is said about it, and by what
options, restart, statement    what a person is shown: alternatives, the request to begin anew, the short statement
items                          the twenty items as one table, and what a plan comes to under all rules
premise, conduct               what each item looks at: one to ten, eleven to twenty
strictness, category           what grows with cost and restarts; what a run of each category may do
afterwards                     what earlier results mean: deciding rules, negative results, failed checks
diagnosis, claims              hypotheses that compete; words that say more than any test can
stage, limits, words           screening or confirmation; what stays unknown; figures, and reasons that are none
"""

from __future__ import annotations

from raykit.review.evidence import (
    AUTONOMOUS,
    Base,
    Evidence,
    Incident,
    Measurement,
    Money,
    Negative,
    OptionCost,
    Pilot,
    Seen,
    Straddling,
)
from raykit.review.finding import Finding
from raykit.review.items import ITEMS, RULES, Review, judged, require_passed, restart_facts, review
from raykit.review.options import weigh
from raykit.review.stage import stage_of
from raykit.review.statement import statement

__all__ = [
    "AUTONOMOUS",
    "ITEMS",
    "RULES",
    "Base",
    "Evidence",
    "Finding",
    "Incident",
    "Measurement",
    "Money",
    "Negative",
    "OptionCost",
    "Pilot",
    "Review",
    "Seen",
    "Straddling",
    "judged",
    "require_passed",
    "restart_facts",
    "review",
    "stage_of",
    "statement",
    "weigh",
]
