"""The other ten items of the review: how the run is carried out, and how its result is read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raykit.plan import TRAINS_FROM, Comparison
from raykit.review import words
from raykit.review.evidence import Evidence
from raykit.review.rule import Flaw

KEPT_BACK = frozenset({"report_only", "benchmark", "sealed"})
"""Roles that never decide how anything is trained."""


def arms(evidence: Evidence) -> Iterator[Flaw]:
    """11: the arms differ in the one setting that the comparison is about."""
    comparison = evidence.plan.comparison
    if comparison is None:
        return
    for name, arm in comparison.arms.items():
        others = sorted(key for key in arm if _bare(key) != _bare(comparison.varies))
        if others:
            yield Flaw(
                f"comparison.arms.{name}",
                f"differs in {', '.join(others)} as well, and the comparison is about {comparison.varies}",
                f"nothing but {comparison.varies}",
            )
    twins = _twins(comparison)
    if twins is not None:
        yield Flaw(
            f"comparison.arms.{twins[1]}",
            f"is the same as {twins[0]}",
            f"another value of {comparison.varies} in each arm",
        )


def _bare(key: str) -> str:
    return key.removeprefix("run.")


def _twins(comparison: Comparison) -> tuple[str, str] | None:
    seen: list[tuple[str, Mapping[str, Any]]] = []
    for name, arm in comparison.arms.items():
        settings = {_bare(key): value for key, value in arm.items()}
        for first, other in seen:
            if other == settings:
                return first, name
        seen.append((name, settings))
    return None


def substitution(evidence: Evidence) -> Iterator[Flaw]:
    """12: nothing is silently replaced: weights go into the model that they are of."""
    if evidence.model_settings and evidence.chosen in TRAINS_FROM:
        assert evidence.base is not None
        yield Flaw(
            "base.start",
            f"the weights of {evidence.base.locked.candidate} are of another model: "
            f"{'; '.join(evidence.model_settings)}",
            f'{_as_trained(evidence)}, or start = "fresh"',
        )
    base = evidence.plan.base
    if (
        evidence.base is not None
        and base is not None
        and "optimizer" in base.keep
        and not evidence.base.has_optimizer
    ):
        yield Flaw(
            "base.keep",
            f"{base.candidate} has no optimizer state to keep",
            'keep = ["weights"]: what was adopted has weights only',
        )


def _as_trained(evidence: Evidence) -> str:
    """The model of the base, by the params that differ from those that it was trained with."""
    params = [setting for setting in evidence.settings if setting.startswith("run.params.")]
    return f"the model of the base (since then {'; '.join(params)})" if params else "the model of the base"


def stated(evidence: Evidence) -> Iterator[Flaw]:
    """13: compute, time, cost, and what stops it."""
    plan, money = evidence.plan, evidence.money
    if money.refusal is not None:
        yield Flaw(
            "budget",
            money.refusal,
            money.refusal_rule or "lines that fit under the ceiling",
            money.refusal_remedy,
        )
    elif money.lines and (total := sum(line.planned for line in money.lines)) != money.ceiling:
        yield Flaw(
            "budget",
            f"the lines sum to {words.money(total, money.unit)}, and the ceiling is "
            f"{words.money(money.ceiling, money.unit)}",
            "lines that sum to the ceiling exactly",
        )
    if money.billed and not money.ceiling:
        yield Flaw("budget.ceiling_usd", "missing, and the work is paid for", "an amount that it stays below")
    if money.billed and not money.rates:
        yield Flaw("pools", "nothing says what an accelerator-hour costs", "a rate, with its source and date")
    if plan.run.stop is None and plan.search is None:
        yield Flaw("run.stop", "missing", '"never", or a rule with its patience', asks=True)


def recovery(evidence: Evidence) -> Iterator[Flaw]:
    """14: after a crash, what was paid for goes on."""
    run = evidence.plan.run
    if not evidence.money.billed or evidence.chosen == "use":
        return
    if run.checkpoint_every >= run.updates:
        yield Flaw(
            "run.checkpoint_every",
            f"is {run.checkpoint_every:,}, and the run ends at {run.updates:,}: a crash loses all of it",
            f"less than run.updates ({run.updates:,})",
        )
    if "resume" not in evidence.gates:
        yield Flaw(
            "run.resume", "no gate checks that a resume continues", "the resume gate before the long run"
        )


def durable(evidence: Evidence) -> Iterator[Flaw]:
    """15: a generated set is published in several units, so that what is done is never done again."""
    for name, target in evidence.plan.generate.items():
        if target.rows is not None and 1 < target.rows <= target.unit_rows:
            yield Flaw(
                f"generate.{name}.unit_rows",
                f"is {target.unit_rows:,}, and the set has {target.rows:,} rows: nothing is durable before its end",
                f"several units: less than {target.rows:,}",
            )


def decoding(evidence: Evidence) -> Iterator[Flaw]:
    """16: the cost of a whole generation is known, or capped, before anybody compares its quality."""
    if "generate" not in evidence.money.priced:
        return
    measured = {each.what for each in evidence.measured}
    for name, target in evidence.plan.generate.items():
        if target.wall_h is None and not measured & {f"generate.{name}", "generate"}:
            yield Flaw(
                f"generate.{name}.wall_h",
                "missing, and its speed was never measured: what the whole set costs cannot be said",
                "hours at most, or a measured speed",
            )


def effect(evidence: Evidence) -> Iterator[Flaw]:
    """17: a winner clears an effect that matters, and that this run can see."""
    claim, base, comparison = evidence.plan.claim, evidence.base, evidence.plan.comparison
    if base is not None and base.noise is not None and claim.worthwhile < base.noise:
        yield Flaw(
            "claim.worthwhile",
            f"is {claim.worthwhile:g}, and {base.locked.candidate} differs from seed to seed by {base.noise:g}",
            f"at least {base.noise:g} {claim.metric}",
        )
    if comparison is None:
        return
    if comparison.detectable is None:
        if evidence.strict:
            yield Flaw(
                "comparison.detectable",
                "missing",
                f"the smallest effect that it can tell from none, at most {claim.worthwhile:g} {claim.metric}",
                asks=True,
            )
    elif comparison.detectable > claim.worthwhile:
        yield Flaw(
            "comparison.detectable",
            f"is {comparison.detectable:g}, and {claim.worthwhile:g} would matter: it cannot decide",
            f"at most claim.worthwhile ({claim.worthwhile:g}): more units, more seeds, or a larger effect",
        )


def tie(evidence: Evidence) -> Iterator[Flaw]:
    """18: a tie goes to the incumbent, and where there is none, to what costs less."""
    comparison = evidence.plan.comparison
    if comparison is None or comparison.tie is None or comparison.tie == tie_rule(evidence):
        return
    held = evidence.incumbent
    problem = (
        f"{held} is in production, and a tie would displace it"
        if held
        else "nothing is in production to keep"
    )
    yield Flaw("comparison.tie", f"is {comparison.tie}: {problem}", f'"{tie_rule(evidence)}"')


def tie_rule(evidence: Evidence) -> str:
    """Who a tie goes to."""
    return "cheaper" if evidence.incumbent is None else "incumbent"


def shared_defects(evidence: Evidence) -> Iterator[Flaw]:
    """19: a defect that every worker shares stops every worker."""
    qc = evidence.plan.qc
    if qc is not None and qc.on_failure == "continue" and evidence.money.billed and _several(evidence):
        yield Flaw(
            "qc.on_failure",
            "is continue, and several paid workers would go on with the same defect",
            "pause, or stop",
        )


def _several(evidence: Evidence) -> bool:
    plan = evidence.plan
    searched = plan.search is not None and plan.search.concurrent > 1
    return plan.run.workers > 1 or searched or any(pool.gpus > 1 for pool in plan.pools.values())


def influence(evidence: Evidence) -> Iterator[Flaw]:
    """20: rows that only report, or open once, change nothing that is trained."""
    plan, qc, comparison = evidence.plan, evidence.plan.qc, evidence.plan.comparison
    wanted = "the development split, or rows of their own"
    if qc is not None and qc.roster.from_ in KEPT_BACK and qc.on_failure != "continue":
        yield Flaw(
            "qc.roster.from",
            f"reads the {qc.roster.from_} split, and a failure would {qc.on_failure} the training",
            wanted,
        )
    kept_back = {
        source: role
        for role, sources in ({} if plan.data is None else plan.data.sources()).items()
        if role in KEPT_BACK
        for source in sources
    }
    for name, target in plan.generate.items():
        if target.inputs is not None and (target.inputs in kept_back or target.inputs in KEPT_BACK):
            role = kept_back.get(target.inputs, target.inputs)
            yield Flaw(
                f"generate.{name}.inputs", f"reads the {role} split into a set that is trained on", wanted
            )
    if comparison is not None and comparison.inputs == "sealed" and plan.category != "final-audit":
        yield Flaw(
            "comparison.inputs",
            "opens the sealed split, and this is no final audit",
            "development; the sealed split opens once, after all choices are frozen",
        )
