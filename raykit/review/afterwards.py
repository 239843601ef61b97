"""What earlier results mean for this plan: rules that predate them, ideas that came to nothing, failed checks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from raykit.review.diagnosis import PREDATES, rewritten
from raykit.review.evidence import Evidence, Seen
from raykit.review.rule import Flaw, Rule

DECIDING = re.compile(
    r"(claim\.(success|worthwhile|metric|compare)|run\.(select|stop)|qc\.fail|comparison|search\.(metric|mode))(\.|$)"
)
"""The settings that say go or no-go, and who wins: they predate what they judge."""

RUNNING = re.compile(
    r"(tags|notify|pools|budget|value|base\.(against_\w+|reason|invalid_without|speculative|\w+_share)|qc\.(owner|drain_s)"
    r"|generate\.[^.]+\.(unit_rows|batch_rows|wall_h|canary_units|deadline_s|tries|memory_gb|why)"
    r"|run\.(checkpoint_every|evaluate_every|curves|device|loader_workers|threads"
    r"|resume|attempts|flush_s|hold_s|keep_checkpoints|loss_window_min|wall_h))(\.|$)"
)
"""The settings that say how a run is carried through, what it may cost, and why: they may change at any time."""

FAIL = "qc.fail."
"""Before the metric of a threshold."""

NEXT_STEPS = (
    "inspect inputs, loss terms and gradients for finite values on a tiny batch, then the first update"
)

_CAME_TO_NOTHING = frozenset({"worse", "equivalent", "invalid", "no-full-run"})
"""Outcomes that are not repeated without a difference. `unresolved` is no answer, and not a no."""


def amendments(seen: Seen | None) -> tuple[str, ...]:
    """The settings that changed before anything was seen."""
    return () if seen is None or seen.update is not None else tuple(seen.changed)


def deviations(seen: Seen | None) -> tuple[str, ...]:
    """The settings of the experiment that changed after results were seen, but for the rules that decide."""
    if seen is None or seen.update is None:
        return ()
    moved = moved_thresholds(seen)
    return tuple(
        key for key in seen.changed if key in moved or not (DECIDING.match(key) or RUNNING.match(key))
    )


def moved_thresholds(seen: Seen) -> frozenset[str]:
    """Thresholds that were written for a metric that nothing reports, and for what they were meant now.

    Such a threshold has decided nothing, and never will. It may be moved to another name as it is: with another
    number it is a new rule, as it is where it is left out.
    """
    void, there = {}, {}
    for key, (before, now) in seen.changed.items():
        metric = key.removeprefix(FAIL)
        if not key.startswith(FAIL):
            continue
        if now is None and metric in seen.unreported:
            void[key] = before
        elif before is None:
            there[key] = now
    moved: set[str] = set()
    for key, rule in void.items():
        meant = next((new for new, same in there.items() if same == rule and new not in moved), None)
        if meant is not None:
            moved |= {key, meant}
    return frozenset(moved)


def rules_predate(evidence: Evidence) -> Iterator[Flaw]:
    """A rule that decides was there before the results that it judges."""
    seen = evidence.seen
    if seen is None or seen.update is None:
        return
    moved = moved_thresholds(seen)
    for key, (before, now) in seen.changed.items():
        if DECIDING.match(key) and key not in moved:
            yield Flaw(
                key,
                f"changed from {before} to {now} after results were seen (update {seen.update:,})",
                f"{before}, as it was; another rule is another plan, under a name of its own",
            )


def deviations_are_owned(evidence: Evidence) -> Iterator[Flaw]:
    """What else changed after results were seen is a deviation, and a person says why."""
    changed = deviations(evidence.seen)
    if changed and evidence.deviation is None:
        assert evidence.seen is not None
        yield Flaw(
            changed[0],
            f"changed after results were seen (update {evidence.seen.update or 0:,}): {', '.join(changed)}",
            "what a person says about it: it is kept as a deviation, with what had been seen",
            '--deviation "why" --by NAME',
            asks=True,
        )


def predictions_predate(evidence: Evidence) -> Iterator[Flaw]:
    """What was predicted of a test is in the plan as it was when the test was observed."""
    diagnosis = evidence.plan.diagnosis
    for change in () if diagnosis is None else rewritten(diagnosis, evidence.observed):
        yield Flaw(change.field, change.problem, change.rule)


def negatives(evidence: Evidence) -> Iterator[Flaw]:
    """An idea that came to nothing is not tried again without a word about what is different."""
    base, value = evidence.plan.base, evidence.plan.value
    said = (value is not None and value.remains is not None) or (base is not None and base.reason is not None)
    for found in evidence.negatives:
        concluded = found.concluded
        if concluded.outcome in _CAME_TO_NOTHING and {"setting", "hypothesis"} & set(found.same) and not said:
            yield Flaw(
                "value.remains",
                f"{found.experiment} had the same {' and '.join(found.same)} and came out {concluded.outcome}: "
                f"{concluded.says}",
                "what is different this time",
                '[value]: remains = "..."',
            )


def prerequisites(evidence: Evidence) -> Iterator[Flaw]:
    """No full run while a necessary check has failed; a diagnosis may go on."""
    if evidence.failed_gates and evidence.plan.diagnosis is None:
        yield Flaw(
            "run",
            f"{', '.join(evidence.failed_gates)} failed, and no repair is recorded: a full run is no stronger evidence",
            f"first: {NEXT_STEPS}",
            f'raykit resume {evidence.plan.name} --repair "what you changed" --by NAME',
        )


def promotion(evidence: Evidence) -> Iterator[Flaw]:
    """A threshold that promotes is approved before it is used."""
    comparison = evidence.plan.comparison
    if comparison is None:
        return
    for metric in comparison.promote:
        if metric not in evidence.promote_approved:
            yield Flaw(
                f"comparison.promote.{metric}",
                f"{comparison.promote[metric]!r} promotes, and nobody has approved that threshold",
                "a person's approval of this plan, which names its thresholds",
                f"raykit approve plan PLAN {evidence.money.ceiling / 1_000_000:g} --by NAME",
            )


RULES: tuple[Rule, ...] = (
    Rule("PLAN-73", "rules that decide predate what they judge", rules_predate),
    Rule("PLAN-73", PREDATES, predictions_predate),
    Rule("PLAN-73", "a deviation is owned by a person", deviations_are_owned),
    Rule("PLAN-38", "an idea that came to nothing", negatives),
    Rule("PLAN-60", "necessary checks come first", prerequisites),
    Rule("APPR-20", "promotion thresholds are approved", promotion),
)
