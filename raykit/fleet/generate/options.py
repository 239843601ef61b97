"""What the real producer was measured at, as it is recorded: each way of decoding, its pace, and what it would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raykit.budget.amounts import time_cost
from raykit.fleet.generate.sets import Wanted
from raykit.fleet.pool.lease import Price
from raykit.plan.tables import selection_of
from raykit.records import Option
from raykit.shards.options import Rule, require_measured, require_undominated

if TYPE_CHECKING:
    from raykit.work.gen_probe import Measured, Probe


def options_of(wanted: Wanted, probe: Probe, price: Price) -> tuple[Option, ...]:
    """Every way of decoding that was measured, the plan's own first.

    Raises:
        GateError: the recipe's quality lacks the metric, or another way is no worse, takes clearly less, and the plan
            gives no reason.
    """
    found = tuple(_option(wanted, each, price) for each in probe.measured)
    rule = rule_of(wanted)
    if rule is not None:
        at = f"generate.{wanted.name}"
        require_measured(found, rule, at=at)
        require_undominated(found, rule, wanted.target.why, at=at)
    return found


def rule_of(wanted: Wanted) -> Rule | None:
    """What the plan compares its ways of decoding on."""
    if wanted.target.quality is None:
        return None
    chosen = selection_of(wanted.target.quality)
    return Rule(mode=chosen.mode, metric=chosen.metric)


def _option(wanted: Wanted, measured: Measured, price: Price) -> Option:
    rows = measured.rows
    whole_ms = -(-measured.took_ms * wanted.draft.rows // rows.requested)
    return Option(
        name=measured.name,
        decode=dict(measured.decode),
        rows=rows.requested,
        produced=rows.produced,
        took_ms=measured.took_ms,
        quality=dict(measured.quality),
        whole_ms=whole_ms,
        idle=measured.idle or None,
        whole_cost=time_cost(whole_ms, 1, price.rate, margin_permille=price.margin_permille),
    )
