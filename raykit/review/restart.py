"""Training from scratch though a trained checkpoint answers to the same decision: what a person is asked first.

Such a restart is a request of its own, never a clause of a plan. It is exempt only if the account stays below the
amount that needs no approval and the weights that are there are kept, and both were verified. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raykit.errors import ApprovalError
from raykit.plan import Option
from raykit.review import words
from raykit.review.evidence import Evidence
from raykit.review.finding import Finding
from raykit.review.options import invested, much_repeated, repeats, small_change
from raykit.review.strictness import purity

Facts = tuple[tuple[str, str], ...]


def pending(evidence: Evidence) -> bool:
    """Whether a person still has to let it begin anew: it is paid for, not approved, and not exempt."""
    return (
        evidence.restarts and evidence.money.billed and not evidence.restart_approved and not evidence.exempt
    )


def reasons(evidence: Evidence, options: Sequence[Option]) -> Iterator[str]:
    """Why this restart needs an approval of its own. What a plan does not declare counts as triggered."""
    if evidence.base is not None and evidence.base.verifies:
        yield "a valid checkpoint exists"
    yield "all training is discarded"
    if small_change(evidence):
        yield _small(evidence)
    yield from _no_quality(evidence)
    if much_repeated(evidence):
        yield _much(evidence)
    yield from _answers(options)


def _small(evidence: Evidence) -> str:
    declared, change = evidence.plan.base, evidence.change
    if change is None:
        return "how much has changed is not known"
    share = f"the change is {words.percent(change.changed, change.before)}"
    known = declared is not None and declared.small_share is not None
    return share if known else f"{share} (what is small is not declared)"


def _no_quality(evidence: Evidence) -> Iterator[str]:
    declared = evidence.plan.base
    why = None if declared is None else declared.reason
    if why is None:
        yield "no measured quality is its reason"
    elif purity(evidence):
        yield "its reason is purity, not measured quality"


def _much(evidence: Evidence) -> str:
    declared = evidence.plan.base
    share = f"{words.percent(*repeats(evidence))} of its updates are repeated"
    known = declared is not None and declared.little_share is not None
    return share if known else f"{share} (what is little is not declared)"


def _answers(options: Sequence[Option]) -> Iterator[str]:
    """The first cheaper option that trains and that nothing speaks against."""
    open_ = [each.option for each in options if each.possible and each.against is None]
    if "continue" in open_ or "replay" in open_:
        yield "a continuation answers the same question"
    elif "pilot" in open_:
        yield "a pilot can answer first"


def facts(evidence: Evidence, options: Sequence[Option], unsaid: Sequence[Finding] = ()) -> Facts:
    """What a person has to see before saying yes, in order."""
    base, plan = evidence.base, evidence.plan
    assert base is not None
    name = base.locked.candidate
    settings = "; ".join(evidence.settings) or "no setting that shapes the weights"
    changed = "how the rows differ is not known" if evidence.change is None else words.rows(evidence.change)
    return (
        (
            "discards",
            f"{name} is kept on disk, but its {base.updates:,} updates are not used "
            f"(update {base.locked.update:,}, sha256 {base.locked.manifest[:8]}{invested(evidence)})",
        ),
        ("changed", f"{changed}; {settings}"),
        ("repeats", _repeats(evidence)),
        ("costs", _costs(evidence)),
        ("instead", "; ".join(_instead(evidence, option) for option in options if option.option != "fresh")),
        ("your why", _why(plan.base.reason if plan.base is not None else None, evidence, unsaid)),
    )


def approval(evidence: Evidence, options: Sequence[Option], unsaid: Sequence[Finding] = ()) -> ApprovalError:
    """The request as a refusal: a person has to approve this restart, by itself."""
    return ApprovalError(
        f"{evidence.plan.name}: a fresh start needs its own approval "
        f"(triggers: {', '.join(reasons(evidence, options))})",
        facts=facts(evidence, options, unsaid),
        rule="an approval of the restart by itself; no plan and no approval of money implies it",
        remedy='raykit approve restart PLAN --reason "why it is still right" --by NAME',
    )


def _repeats(evidence: Evidence) -> str:
    again, updates = repeats(evidence)
    known = evidence.options.get("fresh")
    held = ""
    if known is not None and known.time_ms and known.accelerator_ms:
        held = f", {words.hours(known.time_ms)} x {known.accelerator_ms // known.time_ms} {_device(evidence)}"
    return f"{again:,} of {updates:,} updates ({words.percent(again, updates)}){held}"


def _device(evidence: Evidence) -> str:
    pool = evidence.plan.pools.get("train")
    return "accelerators" if pool is None else pool.nodes.get("ray.io/accelerator-type", "accelerators")


def _costs(evidence: Evidence) -> str:
    money, known = evidence.money, evidence.options.get("fresh")
    expected = money.expected if known is None or known.cost is None else known.cost
    time_ms = (money.expected_ms or None) if known is None else known.time_ms
    text = f"{words.hours(time_ms)}, {words.money(expected, money.unit)} expected"
    worst = f"the plan itself: {words.money(money.worst, money.unit)} at worst"
    ceiling = money.ceiling if money.account_ceiling is None else money.account_ceiling
    free = max(0, ceiling - money.charged)
    if max(expected, money.worst) < free:
        return f"{text}; {worst}"
    where = (
        "above the ceiling"
        if max(expected, money.worst) >= ceiling
        else "more than is left under the ceiling"
    )
    return (
        f"{text}: {where} of account {money.account} ({words.money(ceiling, money.unit)}, of which "
        f"{words.money(free, money.unit)} is neither spent nor reserved); {worst}"
    )


def _instead(evidence: Evidence, option: Option) -> str:
    if not option.possible:
        return f"{option.what}: not possible, {option.against}"
    price = words.cost(option.cost, evidence.money.unit)
    figures = (
        words.NOT_MEASURED if option.time_ms is None and option.cost is None else f"{option.time}, {price}"
    )
    against = f"; {option.against}" if option.against else ""
    return f"{option.what} ({figures}{against})"


def _why(reason: str | None, evidence: Evidence, unsaid: Sequence[Finding]) -> str:
    declared = evidence.plan.base
    hope = "speculative: " if declared is not None and declared.speculative else ""
    text = f"{hope}{reason}" if reason is not None else "base.reason is empty"
    missing = [finding.field for finding in unsaid if finding.field != "base.reason"]
    return f"{text}; still to be said: {', '.join(dict.fromkeys(missing))}" if missing else text
