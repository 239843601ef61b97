"""The short statement before an expensive job: its scale first, then what it does, costs, stops at and leaves. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from raykit.plan import STARTS, Option
from raykit.review import strictness, words
from raykit.review.afterwards import amendments, deviations
from raykit.review.conduct import tie_rule
from raykit.review.evidence import Evidence
from raykit.review.items import Review
from raykit.review.limits import safeguards
from raykit.review.options import cheapest

Pairs = list[tuple[str, str]]


def statement(evidence: Evidence, review: Review) -> Pairs:
    """What a person reads before a job is paid for, label by label, in order."""
    chosen = next(option for option in review.options if option.chosen)
    return [
        ("scale", _scale(evidence)),
        ("decides", _decides(evidence)),
        ("trains", _trains(evidence)),
        ("reuses", chosen.preserves),
        ("discards", chosen.discards),
        ("changed", _changed(evidence)),
        ("why", _why(evidence)),
        ("rejected", _rejected(review)),
        ("cheapest", _cheapest(evidence, review)),
        *((("recommended", _recommended(review)),) if len(review.options) > 1 else ()),
        ("cost", _cost(evidence)),
        ("stops", "; ".join(_stops(evidence))),
        ("kept", "every attempt with its rows, cost and last checkpoint that verifies, whatever fails"),
        ("stage", f"{evidence.stage}: {evidence.stage_why}"),
        ("safeguards", safeguards(evidence)),
        *(("limit", text) for text in review.limitations),
        *_earlier(evidence),
        ("looked at", evidence.looked.words),
    ]


# --- what it is ---------------------------------------------------------------------------------------------


def _scale(evidence: Evidence) -> str:
    train = evidence.rows.get("train", 0)
    updates = f"{evidence.plan.run.updates:,} updates"
    if evidence.base is None:
        return f"{train:,} training rows, {updates}, all from the start; nothing to compare with"
    change = evidence.change
    if change is None:
        return f"how many rows differ from {evidence.base.locked.candidate} is not known; {updates}"
    unchanged = words.of(change.unchanged, change.before)
    return f"{words.rows(change)}; {unchanged} unchanged; {updates}"


def _decides(evidence: Evidence) -> str:
    claim, selection = evidence.plan.claim, evidence.plan.run.selection
    surface = (
        f"{selection.mode} development.{selection.metric}"
        if selection is not None
        else evidence.plan.search.metric
        if evidence.plan.search is not None
        else claim.metric
    )
    return (
        f"{evidence.plan.decision} By {surface}; {claim.worthwhile:g} {claim.metric} matters; "
        f"a tie goes to the {'incumbent' if tie_rule(evidence) == 'incumbent' else 'cheaper one'}"
    )


def _trains(evidence: Evidence) -> str:
    run, plan = evidence.plan.run, evidence.plan
    if evidence.chosen == "use":
        return f"nothing: {plan.base.candidate if plan.base else 'the base'} is used as it is"
    trials = "" if plan.search is None else f"{plan.search.trials} trials of "
    return (
        f"{plan.recipe}: {trials}{run.updates:,} updates of {run.batch:,} ({plan.category.replace('-', ' ')})"
    )


def _changed(evidence: Evidence) -> str:
    parts = list(evidence.settings)
    if early := amendments(evidence.seen):
        parts.append(f"amended before results: {', '.join(early)}")
    if late := deviations(evidence.seen):
        parts.append(
            f"deviates after results: {', '.join(late)} ({evidence.deviation or 'nobody has said why'})"
        )
    if parts:
        return "; ".join(parts)
    return (
        "nothing but the rows" if evidence.base is not None else "there is no previous run of this decision"
    )


# --- why it is worth it -------------------------------------------------------------------------------------


def _why(evidence: Evidence) -> str:
    text = _reason(evidence).rstrip(". ")
    if evidence.plan.base is not None and evidence.plan.base.speculative:
        text = f"speculative: {text}"
    if strictness.purity(evidence):
        text += "; its main reason is the purity of the protocol, not measured quality"
    if strictness.likely_small(evidence) and evidence.change is not None:
        share = words.of(evidence.change.changed, evidence.change.before)
        text += f"; the practical gain is likely small: {share} rows changed"
    return text


def _reason(evidence: Evidence) -> str:
    base, value, search = evidence.plan.base, evidence.plan.value, evidence.plan.search
    if base is not None and base.start == "fresh" and base.reason is not None:
        return base.reason
    if value is not None and value.justifies is not None:
        return value.justifies
    if search is not None:
        return search.hypothesis
    if evidence.pilot is not None:
        return f"a pilot came to {evidence.pilot.effect} at {evidence.pilot.updates:,} updates"
    if base is not None and (said := base.against_pilot or base.against_as_is) is not None:
        return said
    return "the plan gives no reason beyond its decision"


def _rejected(review: Review) -> str:
    chosen = next(option for option in review.options if option.chosen)
    found = [
        f"{option.what}: {(option.against or 'the plan says nothing against it').rstrip('. ')}"
        for option in review.options
        if not option.chosen and _cheaper(option, chosen)
    ]
    return "; ".join(found) or "no cheaper alternative is known"


def _cheaper(option: Option, chosen: Option) -> bool:
    """Whether it is, by what it costs or holds; where neither is known, by its place in the order."""
    for known, other in ((option.cost, chosen.cost), (option.accelerator_ms, chosen.accelerator_ms)):
        if known is not None and other is not None and known != other:
            return known < other
    if option.cost is not None and chosen.cost is not None:
        return False
    return STARTS.index(option.option) < STARTS.index(chosen.option)


def _cheapest(evidence: Evidence, review: Review) -> str:
    if len(review.options) == 1:
        return "this run: nothing cheaper is known"
    option = cheapest(review.options)
    cost = words.cost(option.cost, evidence.money.unit)
    return f"{option.what} ({option.time}, {cost}) is the cheapest run that can still resolve it"


def _recommended(review: Review) -> str:
    option = next(option for option in review.options if option.recommended)
    if option.chosen:
        return f"{option.what}, as the plan has it"
    return f"{option.what}: the plan repeats more than what changed warrants. It stays as it is: nothing is replaced"


# --- what it costs, what stops it, what was before ----------------------------------------------------------


def _cost(evidence: Evidence) -> str:
    money = evidence.money
    if not money.billed:
        return "not billed"
    guess = " (a guess)" if money.uncertain else ""
    return (
        f"at most {words.money(money.worst, money.unit)}, {words.money(money.expected, money.unit)} expected{guess}, "
        f"{words.hours(money.expected_ms or None)}; ceiling {words.money(money.ceiling, money.unit)}"
    )


def _stops(evidence: Evidence) -> Iterator[str]:
    plan, run = evidence.plan, evidence.plan.run
    if run.stopping is not None:
        yield f"{run.stopping.patience} evaluations without {run.stopping.min_delta:g} better {run.stopping.metric}"
    if plan.qc is not None and plan.qc.on_failure != "continue":
        limits = ", ".join(f"{metric} {limit}" for metric, limit in plan.qc.fail.items())
        yield f"a check that fails ({limits}): {plan.qc.on_failure}"
    if plan.diagnosis is not None:
        yield "the observation that leaves nothing to tell apart"
    if run.wall_h is not None:
        yield f"{run.wall_h:g} h"
    if evidence.money.billed:
        yield "the ceiling"
    yield f"update {run.updates:,}"
    yield f"if the answer is no: {plan.if_no or 'not said'}"


def _earlier(evidence: Evidence) -> Pairs:
    found = [
        ("negative", f"{each.experiment} came out {each.concluded.outcome}: {each.concluded.says}")
        for each in evidence.negatives
    ]
    kinds = {"incident": "incident", "selection": "selection"}
    found += [
        (kinds[each.noted.kind], f"{each.noted.says} (happened in {each.experiment}; no rule)")
        if each.noted.kind == "incident"
        else (kinds[each.noted.kind], f"{each.noted.says} ({each.experiment})")
        for each in evidence.incidents
        if each.noted.kind in kinds
    ]
    return found
