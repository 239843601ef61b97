"""The review before a launch: evidence in, findings out. Pure.

evidence   what is judged, gathered by others
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
)
from raykit.review.finding import Finding
from raykit.review.stage import stage_of

__all__ = [
    "AUTONOMOUS",
    "Base",
    "Evidence",
    "Finding",
    "Incident",
    "Measurement",
    "Money",
    "Negative",
    "OptionCost",
    "Pilot",
    "Seen",
    "stage_of",
]
