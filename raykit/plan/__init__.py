"""The plan: what is to be decided, and what is frozen before money is spent.

`load_plan` reads one strictly and finds everything that is wrong at once; `contract` is the part of it that
shapes the trained weights; `make_lock` computes the rest, so that the plan itself holds judgement only. Pure:
no clock, no store, no recipe.
"""

from __future__ import annotations

from raykit.plan.deciding import OTHERWISE, STARTS, TRAINS_FROM, Comparison, Diagnosis, DiagnosticTest, Start
from raykit.plan.judged import Judged, LockedBase, Looked, Option, RowChange, RunSeen, Stage
from raykit.plan.load import MAX_BYTES, load_plan, located
from raykit.plan.lock import (
    GATES,
    Lock,
    consequential,
    contract,
    decision_digest,
    differences,
    ends_approval,
    make_lock,
    not_yet,
    projection,
    recorded,
    require_supported,
)
from raykit.plan.model import Plan, Run, Shared, Stopping
from raykit.plan.setting import plan_with
from raykit.plan.shared import ReadShared
from raykit.plan.tables import Pool, Selection

__all__ = [
    "GATES",
    "MAX_BYTES",
    "OTHERWISE",
    "STARTS",
    "TRAINS_FROM",
    "Comparison",
    "Diagnosis",
    "DiagnosticTest",
    "Judged",
    "Lock",
    "LockedBase",
    "Looked",
    "Option",
    "Plan",
    "Pool",
    "ReadShared",
    "RowChange",
    "Run",
    "RunSeen",
    "Selection",
    "Shared",
    "Stage",
    "Start",
    "Stopping",
    "consequential",
    "contract",
    "decision_digest",
    "differences",
    "ends_approval",
    "load_plan",
    "located",
    "make_lock",
    "not_yet",
    "plan_with",
    "projection",
    "recorded",
    "require_supported",
]
