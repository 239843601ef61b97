"""What the numbers of a checkpoint mean: reasons why it fails, or none. Pure.

Always judged, whatever the plan says and from update 0 on:

    nonfinite, failed, missing   a unit that could not be scored, unless a threshold of the plan says how many may be
    stratum-lost                 a stratum of the roster without a single scored unit
    collapsed                    a field that is exactly constant
    range, at-bound              values beyond a field's declared range, or more of them at one end than is allowed
    undefined                    nothing reports a metric that the plan names: it is mistyped, or the recipe lacks it
    untrained                    the weights are those of update 0, to the bit
    same-scores                  every loss of every unit is that of update 0, to the bit, and the weights are others
    seen-answer                  perfect scores at update 0 of a model that starts from scratch

Judged against update 0, from the next checkpoint on:

    collapsed                    a field's spread fell below the declared share of its first one; embeddings that span
                                 a tenth of what they spanned
    dead-dimension               the same of single dimensions of a field

Judged of a model that has learned something, which is any but update 0 of one that starts from scratch; there their
names go to `unjudged`:

    threshold                    the plan's thresholds of quality
    unused                       permuting a field over units changes the ratio by less than was declared
    undefined                    a metric that the plan names has no value

Noted beside the verdict, for whoever reviews it:

    worst-stratum                a stratum beyond a threshold that all strata together keep
    below-chance                 far better than no skill at update 0 of a model that starts from scratch
    empty                        units that have nothing to score
    partial                      a metric that not every unit has

A threshold on what could not be scored (`nonfinite`, `failed`, `missing`, and the worst stratum of each) is no
threshold of quality: it always applies. One against `base` reads the receipt at update 0, and is not judged there.

That a model has no skill fails it through thresholds alone. How many updates a model needs until it beats knowing
nothing is a judgement, and an early checkpoint of a healthy run may well score above 1.0. But every plan has a
threshold, and a model whose outputs are those of other units has the accuracy of chance and about twice the ratio of
the mean prediction: any threshold that the mean prediction would not meet fails it at the first checkpoint after 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from raykit.errors import some_of
from raykit.qc.scores import SHARES
from raykit.records import FieldRule, FieldScore, QcFinding, Receipt, Score, Suite, Tally

RANK_KEPT = 0.1
"""The share of its effective rank at update 0 below which an embedding has collapsed, counted from 1, which is what a
single direction scores. A healthy embedding gains and loses directions within a factor of a few while it learns, and
one that collapses ends at one or two of them, so that a tenth lies clear of both."""

MAX_NAMED = 8
"""How many units or dimensions a finding names."""

FAR_BELOW = {"bits_per_byte": 0.5, "ratio": 0.1}
"""The share of what no skill scores below which a model that has learned nothing is suspicious."""

BY_CHANCE = 1e-6
"""Perfect accuracy that chance would come to less often than this is none of chance."""

_RULE = re.compile(r"(?P<op>>=|<=|>|<) ?(?:base ?(?P<sign>[+-]) ?)?(?P<number>-?[0-9.]+(?:e-?[0-9]+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The parts of a receipt that are judged."""

    update: int
    units: Tally
    strata: Mapping[str, Tally]
    metrics: Mapping[str, Score]
    fields: Mapping[str, FieldScore] = field(default_factory=dict)
    nonfinite: Sequence[str] = ()
    """Ids of the units of which a number was not finite."""
    raised: Sequence[str] = ()
    """Ids of the units that could not be read."""
    missing: Sequence[str] = ()
    """Ids of the units that are not in the data any more."""
    empty: Sequence[str] = ()
    """Ids of the units that have nothing to score."""
    weights: str | None = None
    """Digest of the model's file."""
    scores: str | None = None
    """Digest of every loss of every unit."""


class Judged(NamedTuple):
    """What a checkpoint's numbers mean."""

    unjudged: tuple[str, ...]
    findings: tuple[QcFinding, ...]
    verdict: Literal["passed", "failed"]
    notes: tuple[QcFinding, ...] = ()


def judge(suite: Suite, found: Found, reference: Receipt | None) -> Judged:
    """The verdict on a checkpoint; `reference` is the receipt at update 0, None at update 0."""
    learned = found.update > 0 or suite.from_base
    findings = [
        *_unscored(suite, found),
        *_lost_strata(found),
        *(finding for name, score in found.fields.items() for finding in _field(name, score, suite)),
        *_embedding(found, reference),
        *_learned_nothing(found, reference),
        *_seen_answer(suite, found),
    ]
    unjudged = []
    for name in _named(suite):
        rule = suite.fail.get(name)
        waits = not (learned or _always(name)) or _waits(rule, found.update)
        if waits and name in found.metrics:
            unjudged.append(name)
        else:
            findings += _threshold(name, rule, found.metrics, reference)
    for name, bounds in suite.fields.items():
        if bounds.used is None:
            continue
        if learned:
            findings += _used(name, bounds.used, found.fields.get(name))
        else:
            unjudged.append(f"{name}.used")
    notes = [
        *_far_below(suite, found),
        *(
            note
            for name in suite.fail
            if name not in unjudged
            for note in _worst(name, suite, found, reference)
        ),
        *_not_all(found),
    ]
    return Judged(tuple(unjudged), tuple(findings), "failed" if findings else "passed", tuple(notes))


# --- what could not be scored -------------------------------------------------------------------------------


def _unscored(suite: Suite, found: Found) -> Iterator[QcFinding]:
    """Units that could not be scored, where the plan does not say how many may be."""
    for what, ids, says, covered in (
        ("nonfinite", found.nonfinite, "not finite", {"nonfinite", "failed"}),
        ("failed", found.raised, "not readable", {"failed"}),
        ("missing", found.missing, "not in the data any more", {"missing"}),
    ):
        judged = {name for name, rule in suite.fail.items() if not _waits(rule, found.update)}
        if ids and not covered & judged:
            yield QcFinding(
                kind="missing" if what == "missing" else "nonfinite",
                what=what,
                found=f"{len(ids)} of {found.units.requested} units {says}: {some_of(ids, MAX_NAMED)}",
                rule=f"none, or a threshold on {what} in qc.fail",
            )


def _lost_strata(found: Found) -> Iterator[QcFinding]:
    for name, units in found.strata.items():
        if not units.scored:
            yield QcFinding(
                kind="stratum-lost",
                what="scored",
                stratum=name,
                found=f"0 of {units.requested} units scored: {units.failed} failed, {units.missing} missing"
                + (f", {units.empty} with nothing to score" if units.empty else ""),
                rule="at least one scored unit of every stratum",
            )


# --- scores that do not come of training ----------------------------------------------------------------------


def _learned_nothing(found: Found, reference: Receipt | None) -> Iterator[QcFinding]:
    """Weights, or scores of other weights, that are still those of update 0."""
    if reference is None or reference.weights is None or found.weights is None:
        return
    if found.weights == reference.weights:
        yield QcFinding(
            kind="untrained",
            what="weights",
            found="those of update 0, to the bit: nothing was trained",
            rule="weights that training has changed",
        )
    elif found.units.scored and found.scores is not None and found.scores == reference.scores:
        yield QcFinding(
            kind="same-scores",
            what="losses",
            found=f"those of update 0 for all {found.units.scored} units, to the bit, though the weights are others",
            rule="losses of the weights that are examined: none that are kept, or of another network",
        )


def _seen_answer(suite: Suite, found: Found) -> Iterator[QcFinding]:
    """Perfect scores of weights that have learned nothing. Receipts of earlier versions passed with them."""
    if found.update > 0 or suite.from_base or found.weights is None:
        return
    ratio, accuracy = found.metrics.get("ratio"), found.metrics.get("accuracy")
    perfect = {}
    if ratio is not None and ratio.value == 0.0:
        perfect["ratio"] = ratio.value
    by_chance = 1.0 if accuracy is None else (accuracy.no_skill or 0.0) ** found.units.scored
    if accuracy is not None and accuracy.value == 1.0 and by_chance < BY_CHANCE:
        perfect["accuracy"] = accuracy.value
    for name, value in perfect.items():
        yield QcFinding(
            kind="seen-answer",
            what=name,
            found=f"{shown(value)} at update 0, before anything was trained",
            rule="a score of weights that do not know the answer: does the scoring see it?",
        )


def _far_below(suite: Suite, found: Found) -> Iterator[QcFinding]:
    """Scores far better than no skill, of weights that have learned nothing."""
    if found.update > 0 or suite.from_base:
        return
    for name, share in FAR_BELOW.items():
        score = found.metrics.get(name)
        if score is None or not score.value or not score.no_skill or score.value >= share * score.no_skill:
            continue
        yield QcFinding(
            kind="below-chance",
            what=name,
            found=f"{shown(score.value)} at update 0, and no skill scores {shown(score.no_skill)}",
            rule=f"about what no skill scores: is it a sum, over all of the unit? ({share:g} of it and less is noted)",
        )


def _worst(name: str, suite: Suite, found: Found, reference: Receipt | None) -> Iterator[QcFinding]:
    """Strata that a threshold would fail by themselves, where all of them together pass it."""
    rule, score = suite.fail[name], found.metrics.get(name)
    if score is None or score.value is None or f"worst.{name}" in suite.fail or name.startswith("worst."):
        return
    limit = limit_of(rule, _base(name, reference))
    if limit is None or fails(rule, score.value, limit):
        return
    beyond = {
        stratum: value
        for stratum, value in score.strata.items()
        if value is not None and fails(rule, value, limit)
    }
    if beyond:
        worst = (max if rule.startswith(">") else min)(beyond, key=lambda stratum: beyond[stratum])
        yield QcFinding(
            kind="worst-stratum",
            what=name,
            stratum=worst,
            found=f"{shown(beyond[worst])} there, {shown(score.value)} over all; "
            f"{len(beyond)} of {len(score.strata)} strata would fail: {some_of(beyond, MAX_NAMED)}",
            rule=f"fails if {rule}, of all together; worst.{name} holds each stratum to it",
        )


def _not_all(found: Found) -> Iterator[QcFinding]:
    """Units that have nothing to score, and metrics that not every unit has."""
    if found.empty:
        yield QcFinding(
            kind="empty",
            what="units",
            found=f"{len(found.empty)} of {found.units.requested} have nothing to score: "
            f"{some_of(found.empty, MAX_NAMED)}",
            rule="something to score in every unit",
        )
    for name, score in found.metrics.items():
        if score.count is not None:
            yield QcFinding(
                kind="partial",
                what=name,
                found=f"{score.count} of {found.units.scored} units gave a number",
                rule="one number for every unit",
            )


# --- thresholds ---------------------------------------------------------------------------------------------


def _named(suite: Suite) -> list[str]:
    """The metrics that the plan names, each once, those with a threshold first."""
    return list(dict.fromkeys([*suite.fail, *suite.metrics]))


def _always(name: str) -> bool:
    return name.removeprefix("worst.") in SHARES


def _waits(rule: str | None, update: int) -> bool:
    """Whether a threshold is held against update 0, and that is this one."""
    return rule is not None and "base" in rule and update == 0


def _threshold(
    name: str, rule: str | None, metrics: Mapping[str, Score], reference: Receipt | None
) -> Iterator[QcFinding]:
    says = f"fails if {rule}" if rule is not None else "a value: the plan names it in qc.metrics"
    value = metrics[name].value if name in metrics else None
    if value is None:
        why = "nothing reports it" if name not in metrics else "no value: it is undefined for these units"
        yield QcFinding(kind="undefined", what=name, found=why, rule=says)
        return
    if rule is None:
        return
    base = _base(name, reference)
    limit = limit_of(rule, base)
    if limit is None:
        yield QcFinding(
            kind="undefined", what=name, found="no value at update 0 to hold it against", rule=says
        )
    elif fails(rule, value, limit):
        held = f" (base {shown(base)})" if "base" in rule and base is not None else ""
        yield QcFinding(kind="threshold", what=name, found=shown(value), rule=says + held)


def _base(name: str, reference: Receipt | None) -> float | None:
    score = None if reference is None else reference.metrics.get(name)
    return None if score is None else score.value


def limit_of(rule: str, base: float | None) -> float | None:
    """The number in a threshold such as `> 0.35` or `>= base + 0.01`; None without the base that it needs."""
    found = _RULE.fullmatch(rule)
    assert found is not None, "the plan's own pattern lets nothing else in"
    number = float(found["number"])
    if found["sign"] is None:
        return number
    if base is None:
        return None
    return base + number if found["sign"] == "+" else base - number


def fails(rule: str, value: float, limit: float) -> bool:
    """Whether a value is on the side of its limit that the threshold names: what FAILS."""
    if rule.startswith(">="):
        return value >= limit
    if rule.startswith("<="):
        return value <= limit
    return value > limit if rule.startswith(">") else value < limit


# --- fields -------------------------------------------------------------------------------------------------


def _field(name: str, score: FieldScore, suite: Suite) -> Iterator[QcFinding]:
    rule = suite.fields[name]
    yield from _collapse(name, score, rule)
    if score.dead:
        yield QcFinding(
            kind="dead-dimension",
            what=name,
            found=f"{len(score.dead)} of {score.dimensions} dimensions: {some_of(score.dead, MAX_NAMED)}",
            rule=f"each at least {rule.collapse:g} of its spread at update 0",
        )
    if rule.bounds is None:
        return
    low, high = rule.bounds
    if score.outside:
        yield QcFinding(
            kind="range",
            what=name,
            found=f"{_percent(score.outside)} of values beyond {low:g} to {high:g}",
            rule="none",
        )
    for end, share in ((low, score.at_low), (high, score.at_high)):
        if rule.occupancy is not None and share is not None and share > rule.occupancy:
            yield QcFinding(
                kind="at-bound",
                what=name,
                found=f"{_percent(share)} of values at {end:g}, an end of its range",
                rule=f"at most {_percent(rule.occupancy)}",
            )


def _collapse(name: str, score: FieldScore, rule: FieldRule) -> Iterator[QcFinding]:
    spread, reference = score.pooled.spread, score.reference_spread
    if spread is None:
        if score.pooled.median is not None:
            says = "one value has no spread"
            yield QcFinding(kind="undefined", what=name, found=says, rule="two values at least")
    elif spread == 0.0:
        yield QcFinding(
            kind="collapsed",
            what=name,
            found=f"constant: every value between its percentiles is {shown(score.pooled.median or 0.0)}",
            rule="a spread above 0",
        )
    elif reference is not None and spread < rule.collapse * reference:
        yield QcFinding(
            kind="collapsed",
            what=name,
            found=f"spread {shown(spread)}, {shown(spread / reference)} of the {shown(reference)} at update 0",
            rule=f"at least {rule.collapse:g} of it",
        )


def _used(name: str, least: float, score: FieldScore | None) -> Iterator[QcFinding]:
    rise = None if score is None else score.rise_permuted
    rule = f"a rise of the ratio by at least {least:g} when it is permuted over units"
    if rise is None:
        says = "no rise: the recipe's losses_given does not answer for it"
        yield QcFinding(kind="undefined", what=name, found=says, rule=rule)
    elif rise < least:
        yield QcFinding(kind="unused", what=name, found=f"a rise of {shown(rise)}", rule=rule)


# --- embeddings ---------------------------------------------------------------------------------------------


def _embedding(found: Found, reference: Receipt | None) -> Iterator[QcFinding]:
    """The roster and the recipe fix both sizes of what the rank is of; units that are lost only lower it."""
    if reference is None or "effective_rank" not in found.metrics:
        return
    rank, was = found.metrics["effective_rank"].value, _base("effective_rank", reference)
    spread = found.metrics["embedding_spread"].value
    rule = f"at least {RANK_KEPT:g} of it, counted from 1"
    if rank is None or spread == 0.0:
        yield QcFinding(
            kind="collapsed",
            what="effective_rank",
            found="embeddings are the same for every unit",
            rule="embeddings that differ",
        )
    elif was is not None and rank - 1.0 < RANK_KEPT * (was - 1.0):
        yield QcFinding(
            kind="collapsed",
            what="effective_rank",
            found=f"{shown(rank)}, and {shown(was)} at update 0",
            rule=rule,
        )


# --- words --------------------------------------------------------------------------------------------------


def shown(value: float) -> str:
    """A number in a finding."""
    return f"{value:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
