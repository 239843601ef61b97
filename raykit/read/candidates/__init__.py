"""The registry joined with the store: what candidates are, whether they are examined, and what depends on them.

registering  what is known of a checkpoint when it gets its name
gates        is it examined, is it approved: what every use of a candidate's weights asks first
evidence     what it scores, and what the incumbent scores on the same surface
inventory    the work that depends on it: what stays valid without it, and what falls
one          everything that is known of one candidate
"""

from __future__ import annotations

from raykit.read.candidates.evidence import Given, evidence_for, supports
from raykit.read.candidates.gates import (
    Examination,
    Let,
    examination_of,
    require_approved,
    require_examined,
    run_of_key,
)
from raykit.read.candidates.inventory import inventory_of, redo
from raykit.read.candidates.one import CandidateRead, Stages, read_candidate
from raykit.read.candidates.registering import registration

__all__ = [
    "CandidateRead",
    "Examination",
    "Given",
    "Let",
    "Stages",
    "evidence_for",
    "examination_of",
    "inventory_of",
    "read_candidate",
    "redo",
    "registration",
    "require_approved",
    "require_examined",
    "run_of_key",
    "supports",
]
