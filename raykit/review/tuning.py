"""Settings belong together: another batch size or scale wants them tuned anew, or a word on why not.

A learning rate holds only with the recipe that it was tuned in. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from raykit.plan import Plan
from raykit.review.evidence import Evidence
from raykit.review.rule import Flaw, Rule

_BATCH = "run.batch: "
_COPIED = re.compile(
    r"\b(copied|borrowed|taken|lifted|as in|same as|as for|from the|from a|defaults?)\b.*?"
    r"\b(paper|repo(sitory)?|blog|model card|release|report|library|defaults?|config(uration)?|reference"
    r"|another|others?)\b",
    re.I | re.S,
)
_WITH_BATCH = re.compile(r"\bbatch(es)?\b", re.I)
_WITH_SCHEDULE = re.compile(r"\b(schedule|warm-?up|decay|cosine|linear|constant|updates|steps)\b", re.I)


def retuned(evidence: Evidence) -> Iterator[Flaw]:
    """Where the batch size or the scale is another one, what goes with it is tuned anew, or a reason is on record."""
    plan = evidence.plan
    if plan.search is not None:
        differs = _from_target(plan)
        if differs and plan.search.transfer is None:
            yield Flaw(
                "search.transfer",
                f"missing, and the search is made at other settings than the target has: {differs}",
                "what carries its result over: which settings scale how, or are tuned once more at the target",
                'search.transfer = "..."',
                asks=True,
            )
        return
    changed = [each for each in evidence.settings if each.startswith(_BATCH)]
    changed += (
        evidence.model_settings if evidence.chosen == "fresh" else ()
    )  # else its weights do not fit: REVIEW-12
    declared = evidence.base is not None and evidence.base.declared
    if not (declared and evidence.strict and changed and evidence.chosen != "use"):
        return
    if plan.value is None or plan.value.tuned is None:
        yield Flaw(
            "value.tuned",
            f"missing, and the settings were tuned at another batch size or scale: {'; '.join(changed)}",
            "how the learning rate and what goes with it were tuned anew, or why they hold as they are",
            '[value]: tuned = "..."; or a [search] first',
            asks=True,
        )


def _from_target(plan: Plan) -> str:
    """In what a search differs from the runs that its result is for, where the plan says what those are."""
    target, run = plan.protocol, plan.run
    if target is None or plan.search is None:
        return ""
    found = [] if target.batch in (None, run.batch) else [f"batch {run.batch} instead of {target.batch}"]
    found += [
        f"{name} {run.params.get(name)} instead of {value}"
        for name, value in target.params.items()
        if name not in plan.search.space and run.params.get(name) != value
    ]
    return "; ".join(found)


def with_its_recipe(evidence: Evidence) -> Iterator[Flaw]:
    """A setting that was copied from elsewhere is none that was justified, unless its batch and schedule came along."""
    plan = evidence.plan
    said = {
        "search.transfer": None if plan.search is None else plan.search.transfer,
        "value.tuned": None if plan.value is None else plan.value.tuned,
    }
    for field, text in said.items():
        found = None if text is None else _COPIED.search(text)
        if text is None or found is None:
            continue
        if not (_WITH_BATCH.search(text) and _WITH_SCHEDULE.search(text)):
            yield Flaw(
                field,
                f"says {' '.join(found.group().split())[:80]!r}: a learning rate holds only with its recipe",
                "the batch size and the schedule that it was tuned with, beside those of this plan",
            )


RULES: tuple[Rule, ...] = (
    Rule("TUNE-08", "settings are tuned for their batch and scale", retuned),
    Rule("TUNE-09", "a learning rate comes with its recipe", with_its_recipe),
)
