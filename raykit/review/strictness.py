"""What has to be said of a run that costs 5 USD or more, or that begins anew: only where the store cannot say it.

Every reason that is given, at whatever cost, is one: not a habit, not neatness, not that it was decided before.
"""

from __future__ import annotations

from collections.abc import Iterator

from raykit.review import words
from raykit.review.evidence import Evidence
from raykit.review.options import small_change
from raykit.review.rule import Flaw, Rule

# --- the five questions -------------------------------------------------------------------------------------


def remains(evidence: Evidence) -> Iterator[Flaw]:
    """What uncertainty remains after the completed run? Without one, all of it."""
    base = evidence.plan.base
    if _asked(evidence) and evidence.base is not None and (base is None or base.against_as_is is None):
        yield from _unsaid(evidence, "remains", "what stays uncertain after the run that is there")


def changes(evidence: Evidence) -> Iterator[Flaw]:
    """Could the run change the decision? A plan with `if_no` and a worthwhile effect says how."""
    if _asked(evidence) and evidence.plan.if_no is None:
        yield from _unsaid(evidence, "changes", "how the result could change the decision")


def matters(evidence: Evidence) -> Iterator[Flaw]:
    """Is the changed data large or different enough? Counted rows say so; rows and settings that are equal do not.

    Rows that nobody has counted are no matter of words: REVIEW-08 refuses them.
    """
    change = evidence.change
    equal = change is not None and not change.changed and not evidence.settings
    if _asked(evidence) and evidence.base is not None and equal:
        wanted = "no row and no setting differs: why it could matter all the same"
        yield from _unsaid(evidence, "matters", wanted)


def justifies(evidence: Evidence) -> Iterator[Flaw]:
    """Does the expected gain justify the compute and the delay? A pilot or a hypothesis says what is expected."""
    plan = evidence.plan
    said = plan.search is not None or (plan.base is not None and plan.base.against_pilot is not None)
    if _asked(evidence) and evidence.pilot is None and not said:
        worst = words.money(evidence.money.worst, evidence.money.unit)
        yield from _unsaid(
            evidence, "justifies", f"the gain that is expected, as an estimate, against {worst}"
        )


def first(evidence: Evidence) -> Iterator[Flaw]:
    """Can a subset, a shorter schedule or a paired continuation answer first? No pilot is demanded: a reason is."""
    plan = evidence.plan
    small = plan.search is not None or plan.diagnosis is not None or evidence.chosen == "pilot"
    said = plan.base is not None and plan.base.against_pilot is not None
    if _asked(evidence) and evidence.pilot is None and not small and not said:
        wanted = "why a subset, a shorter schedule or a continuation of what is there cannot answer first"
        yield from _unsaid(evidence, "first", wanted)


def _asked(evidence: Evidence) -> bool:
    return evidence.strict and evidence.chosen != "use"


def _unsaid(evidence: Evidence, key: str, wanted: str) -> Iterator[Flaw]:
    if getattr(evidence.plan.value, key, None) is None:
        yield Flaw(f"value.{key}", "missing", wanted, f'[value]: {key} = "..."', asks=True)


# --- a fresh start ------------------------------------------------------------------------------------------


def benefit(evidence: Evidence) -> Iterator[Flaw]:
    """A fresh start has a concrete expected benefit."""
    base = evidence.plan.base
    if _refit(evidence) and base is not None and base.reason is None:
        yield Flaw(
            "base.reason", "missing", "the benefit that is expected, and why it repays the compute", asks=True
        )


def which(evidence: Evidence) -> Iterator[Flaw]:
    """A fresh start names which admissible reason applies; what the store knows goes before what it names."""
    base, change = evidence.plan.base, evidence.change
    if not _refit(evidence) or base is None:
        return
    if base.because is None:
        wanted = "initialization | identical-arms | base-invalid | uniform-exposure"
        yield Flaw("base.because", "missing", wanted, asks=True)
    elif base.because == "uniform-exposure" and change is not None and not change.changed:
        yield Flaw(
            "base.because",
            f"is uniform-exposure, and {words.rows(change)}: the rows are those that the base has seen",
            "a materially changed data set, or another reason",
        )


def nothing_new(evidence: Evidence) -> Iterator[Flaw]:
    """What is paid for is not there already: nothing that differs, trained again, ends with the same weights."""
    base = evidence.base
    anew = base is not None and base.declared and evidence.chosen == "fresh"
    if base is not None and anew and evidence.money.billed and evidence.same_bits:
        yield Flaw(
            "base.start",
            "is fresh, and nothing differs: it would end with the weights that are there "
            f"({base.locked.candidate}: the same rows, settings, seed and code, repeated bit for bit)",
            f"{base.locked.candidate} as it is; or rows, a setting or a seed that is to be another",
            'start = "use"',
        )


def invalid_without(evidence: Evidence) -> Iterator[Flaw]:
    """A fresh start says what would be invalid without it."""
    base = evidence.plan.base
    if _refit(evidence) and base is not None and base.invalid_without is None:
        yield Flaw(
            "base.invalid_without", "missing", "what would be invalid without the fresh start", asks=True
        )


def _refit(evidence: Evidence) -> bool:
    """A paid fresh start beside weights that the plan itself names."""
    base = evidence.base
    return base is not None and base.declared and evidence.chosen == "fresh" and evidence.strict


def weighting(evidence: Evidence) -> Iterator[Flaw]:
    """Replay has an explicit schedule, so that added rows do not dominate."""
    data = evidence.plan.data
    if evidence.chosen != "replay" or evidence.base is None:
        return
    if data is None:
        yield Flaw(
            "base.start",
            "is replay, and the recipe brings its rows as one: nothing says which of them are old",
            "continue; or [data] with a mix: { old = 0.75, new = 0.25 }",
            'start = "continue"',
        )
    elif data.mix is None:
        yield Flaw(
            "data.mix", "missing", "the share of each training source: { old = 0.75, new = 0.25 }", asks=True
        )


# --- reasons that are none ----------------------------------------------------------------------------------


def reasons_hold(evidence: Evidence) -> Iterator[Flaw]:
    """No reason is only a habit, neatness, a plan that was frozen, or a blank."""
    for field, text in _reasons(evidence):
        found = words.weak(text)
        if found is not None:
            problem = (
                f"{found.words!r} is a blank that was not filled in"
                if found.rule == "PLAN-40"
                else f"says {found.words!r}, and neither a figure nor a consequence"
            )
            yield Flaw(field, problem, found.wanted, rule=found.rule)


def _reasons(evidence: Evidence) -> Iterator[tuple[str, str]]:
    plan = evidence.plan
    for table in ("base", "value"):
        for key, text in (getattr(plan, table).plain() if getattr(plan, table) else {}).items():
            if isinstance(text, str) and key not in ("candidate", "start", "because"):
                yield f"{table}.{key}", text
    if evidence.deviation is not None:
        yield "deviation", evidence.deviation


def purity(evidence: Evidence) -> bool:
    """Whether the main reason for this run is how neat the experiment is."""
    base, value = evidence.plan.base, evidence.plan.value
    if base is not None and base.start == "fresh":
        return base.because in ("identical-arms", "initialization") or (
            base.reason is not None and words.purity(base.reason)
        )
    return value is not None and value.justifies is not None and words.purity(value.justifies)


def likely_small(evidence: Evidence) -> bool:
    """Whether the gain is likely small: little has changed, by the plan's own measure or beside what is repeated."""
    base, change = evidence.plan.base, evidence.change
    if evidence.base is None or change is None:
        return False
    declared = base is not None and base.small_share is not None
    return (declared or evidence.chosen == "fresh") and small_change(evidence)


RULES: tuple[Rule, ...] = (
    Rule("PLAN-29", "what remains uncertain", remains),
    Rule("PLAN-30", "the result can change the decision", changes),
    Rule("PLAN-31", "what changed is enough to matter", matters),
    Rule("PLAN-32", "the gain justifies compute and delay", justifies),
    Rule("PLAN-33", "nothing shorter can answer first", first),
    Rule("PLAN-16", "a fresh start has a concrete benefit", benefit),
    Rule("PLAN-17", "a fresh start names its reason", which),
    Rule("PLAN-18", "what would be invalid without it", invalid_without),
    Rule("PLAN-37", "a result that is not there already", nothing_new),
    Rule("PLAN-15", "replay is weighted", weighting),
    Rule("PLAN-36", "a reason, not a phrase", reasons_hold),
)
