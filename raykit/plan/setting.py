"""The plan of one trial: the plan of its search, with the setting of its row laid over it."""

from __future__ import annotations

from raykit.plan.model import Plan
from raykit.records import Setting


def plan_with(plan: Plan, setting: Setting | None) -> Plan:
    """What a run with this setting trains; the same plan where it has none.

    A trial has no search of its own. Where its plan does not say when it stops, it goes through all of its updates.
    """
    if setting is None:
        return plan
    run = plan.run.model_copy(
        update={
            "params": {**plan.run.params, **setting.params},
            "seed": setting.seed,
            "stop": plan.run.stop or "never",
        }
    )
    return plan.model_copy(update={"run": run, "search": None})
