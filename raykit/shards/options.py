"""Ways of decoding, compared on quality and on cost. raykit never switches by itself: a dearer choice needs a reason.

One option *dominates* another if it is no worse in the plan's metric and takes clearly less time. A small gain in
quality by itself never pays for a large loss of pace: what counts as a gain is `worthwhile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from raykit.budget.amounts import shown
from raykit.errors import GateError, PlanError
from raykit.plan.tables import METRIC
from raykit.records import Option
from raykit.shards.closing import percent
from raykit.shards.units import rate

OWN = "decode"
"""The name of the plan's own way."""

CHEAPER_PERMILLE = 50
"""An option that takes less than by so much is no cheaper: two measurements of the same one differ by as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What options are compared on: the least, or the greatest, of one metric."""

    mode: Literal["min", "max"]
    metric: str

    def no_worse(self, value: float | None, than: float | None, worthwhile: float = 0.0) -> bool:
        """Whether `value` is at most `worthwhile` worse. What is not defined is worse than anything that is."""
        if value is None or than is None:
            return than is None
        return value <= than + worthwhile if self.mode == "min" else value >= than - worthwhile


def rule_of(text: str, *, field: str) -> Rule:
    """Read `min distance` or `max coverage`; `field` is where it stands in the plan.

    Raises:
        PlanError: it is neither.
    """
    mode, _, metric = text.partition(" ")
    if mode not in ("min", "max") or not METRIC.fullmatch(metric):
        raise PlanError(
            f"{text!r} says no metric that is to be least or greatest",
            field=field,
            value=text,
            rule='"min METRIC" or "max METRIC" of the recipe\'s quality',
        )
    return Rule(mode=cast(Literal["min", "max"], mode), metric=metric)


def require_measured(options: Sequence[Option], rule: Rule, *, at: str) -> None:
    """Let only options be compared of which at least one has the metric.

    `at` is where the set stands in the plan.

    Raises:
        GateError: the recipe's quality does not have it.
    """
    if not any(rule.metric in option.quality for option in options):
        known = sorted({name for option in options for name in option.quality})
        raise GateError(
            f"the recipe's quality has no metric {rule.metric}",
            field=f"{at}.quality",
            value=rule.metric,
            rule=f"one of {', '.join(known)}" if known else "a metric that the recipe's quality gives",
        )


def dominating(options: Sequence[Option], rule: Rule, worthwhile: float = 0.0) -> Option | None:
    """The option that takes least of those that dominate the plan's own, which comes first; None if none does."""
    own, *others = options
    better = [
        option
        for option in others
        if rule.no_worse(option.quality.get(rule.metric), own.quality.get(rule.metric), worthwhile)
        and option.whole_ms * 1000 <= own.whole_ms * (1000 - CHEAPER_PERMILLE)
        and option.whole_ms < own.whole_ms
    ]
    return min(better, key=lambda option: (option.whole_ms, option.name), default=None)


def require_undominated(
    options: Sequence[Option], rule: Rule, why: str | None, *, at: str, worthwhile: float = 0.0
) -> None:
    """Let only a way of decoding pass that no other one dominates, or that the plan gives a reason for.

    `at` is where the set stands in the plan, such as `generate.digits`.

    Raises:
        GateError: another option is no worse and takes less; the message has both, and nothing is switched.
    """
    found = None if why else dominating(options, rule, worthwhile)
    if found is None:
        return
    own = options[0]
    saved = percent(own.whole_ms - found.whole_ms, own.whole_ms)
    raise GateError(
        f"options.{found.name} is no worse than decode and takes {saved} less: "
        + "; ".join(words(option, rule) for option in options),
        field=f"{at}.decode",
        value=dict(own.decode),
        rule=f"no option that is no worse in {rule.metric} and takes at least {CHEAPER_PERMILLE / 10:g} % less",
        remedy=f"take options.{found.name} as decode in the plan, or say there why not: why = ...",
    )


def idle_words(options: Sequence[Option]) -> list[str]:
    """A line for each way of decoding of which a name changes nothing: a typo that the recipe swallows, say."""
    return [
        f"{each.name}: {', '.join(each.idle)} change{'s' if len(each.idle) == 1 else ''} no byte of the first rows"
        for each in options
        if each.idle
    ]


def words(option: Option, rule: Rule) -> str:
    """`decode: distance 0.0312, 96.4 rows/s, 5.76 h for the whole set, 10.31`."""
    value = option.quality.get(rule.metric)
    pace = 1000 * option.rows / option.took_ms if option.took_ms else 0.0
    return (
        f"{option.name}: {rule.metric} {'undefined' if value is None else f'{value:.4g}'}, {rate(pace)} rows/s, "
        f"{option.whole_ms / 3_600_000:.3g} h for the whole set, {shown(option.whole_cost)}"
    )


def facts(options: Sequence[Option], rule: Rule) -> tuple[tuple[str, ...], ...]:
    """The options as rows of a table: name, metric, rows a second, hours and cost of the whole set."""
    return tuple(
        (
            option.name,
            "undefined" if (value := option.quality.get(rule.metric)) is None else f"{value:.4g}",
            f"{1000 * option.rows / option.took_ms:.3g}" if option.took_ms else "unknown",
            f"{option.whole_ms / 3_600_000:.3g}",
            shown(option.whole_cost),
        )
        for option in options
    )
