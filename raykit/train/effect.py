"""What a changed plan would change, and a restored checkpoint takes back: settings of optimizer and schedule.

A resume builds optimizer and scheduler anew from the params of today, and restores what the checkpoint holds of them,
learning rate included. A changed setting among those has no effect; nobody is told that it was allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raykit.errors import GateError
from raykit.train.state import Live

NAMED = 4


def require_effect(was: Live, now: Live) -> None:
    """Let a resume go on only if no setting that its plan changes is one that the checkpoint brings back.

    `was` is what the plan of the checkpoint builds, `now` what the plan of the resume does; neither has been restored.

    Raises:
        GateError: some are; the first few are named with both values.
    """
    lost = list(taken_back(was, now))
    if lost:
        told = "; ".join(f"{name}: {before} -> {after}" for name, before, after in lost[:NAMED])
        raise GateError(
            f"the checkpoint would take back what the plan changes: {told}",
            field="run.params",
            rule="a resume goes on with the optimizer and the schedule that its checkpoint holds",
            remedy="put the params back; or train on from these weights in a plan of its own: plan new --from NAME",
        )


def taken_back(was: Live, now: Live) -> Iterator[tuple[str, Any, Any]]:
    """The settings that differ between two builds, and that a checkpoint holds."""
    groups = [[_settings(group) for group in live.optimizer.param_groups] for live in (was, now)]
    for index, (before, after) in enumerate(zip(*groups, strict=False)):
        yield from _unequal(f"group {index} of the optimizer: ", before, after)
    schedules = [{} if live.scheduler is None else live.scheduler.state_dict() for live in (was, now)]
    yield from _unequal("the scheduler: ", *schedules)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _unequal(where: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(was.keys() & now.keys()):
        if repr(was[name]) != repr(now[name]):
            yield f"{where}{name}", was[name], now[name]
