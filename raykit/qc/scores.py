"""Numbers of single units -> the metrics of a receipt, each pooled and per stratum, beside what no skill scores. Pure.

ratio            sum of value x elements over sum of scale x elements, of the main loss term (the first with a scale):
                 1.0 is what knowing nothing scores, and a long unit counts for more than a short one
ratio.<term>     the same of each term with a scale
ratio_median     the median of the units' own ratios
no_skill_share   the share of units whose own ratio is 1 or more
loss             the weighted sum of all terms, each a mean over its elements
<name>           a metric of the recipe's `evaluate`: the mean over the units that have it, and how many these are
nonfinite        the share of requested units of which a number was not finite
failed           the share that was not scored: it raised when it was read, or was not finite
missing          the share that is not in the data any more
worst.<metric>   the value of the worst stratum, of every metric that has a better direction and strata

Classifiers, language models and embeddings add those of `classes`, `text` and `embedding`. A unit that failed or is
missing counts in the three shares and in nothing else: it is neither a zero nor left out of sight. One that has nothing
to score counts nowhere, and is named.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from raykit.qc.classes import class_scores
from raykit.qc.embedding import embedding_scores
from raykit.qc.strata import Array, Better, Strata, Value
from raykit.qc.text import text_scores
from raykit.records import RosterUnit, Score, Tally

SHARES = ("nonfinite", "failed", "missing")
"""The metrics of what could not be scored: they mean the same for every model, trained or not."""

End = Literal["scored", "raised", "nonfinite", "missing", "empty"]
"""What became of a unit. `empty`: it has nothing to score, such as a text without a supervised token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One loss term of one unit."""

    value: float
    weight: float
    elements: float
    """What the value is a mean over; 0 where the unit has nothing to score. Of a term that relates the rows of a batch,
    the unit's share of those of its batch."""
    scale: float | None
    """What no skill scores; None where there is no such number."""
    relates_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What a model makes of one unit."""

    terms: Mapping[str, Term]
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """None where the unit has no number."""
    embedding: Array | None = None
    probabilities: Array | None = None
    """Of each class."""
    label: int | None = None
    nats: float | None = None
    """Negative log-likelihood of the whole text."""
    content: bytes | None = None
    """The text that `nats` is of."""

    def finite(self) -> bool:
        """Whether every number is one."""
        numbers = [0.0 if number is None else number for number in (*self.metrics.values(), self.nats)]
        for term in self.terms.values():
            numbers += [term.value, term.weight, 0.0 if term.scale is None else term.scale]
        arrays = [each for each in (self.embedding, self.probabilities) if each is not None]
        return all(map(math.isfinite, numbers)) and all(bool(np.isfinite(each).all()) for each in arrays)

    def empty(self) -> bool:
        """Whether no term has an element to score."""
        return bool(self.terms) and not any(term.elements for term in self.terms.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one unit of the roster; there are `numbers` exactly if it was scored."""

    unit: RosterUnit
    end: End
    numbers: Numbers | None = None

    def plain(self) -> list[Any]:
        """The unit and its losses as JSON values."""
        terms = {} if self.numbers is None else self.numbers.terms
        return [self.unit.id, {name: [term.value, term.elements] for name, term in terms.items()}]


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """How many units there were, and what became of them."""
    ends = [outcome.end for outcome in outcomes]
    return Tally(
        requested=len(ends),
        scored=ends.count("scored"),
        failed=ends.count("raised") + ends.count("nonfinite"),
        missing=ends.count("missing"),
        empty=ends.count("empty") or None,
    )


def tallies(outcomes: Iterable[Outcome], names: Collection[str]) -> dict[str, Tally]:
    """The same for each stratum of the roster."""
    found: dict[str, list[Outcome]] = {name: [] for name in sorted(names)}
    for outcome in outcomes:
        found[outcome.unit.stratum].append(outcome)
    return {name: tally(members) for name, members in found.items()}


def scores(
    outcomes: Sequence[Outcome], names: Collection[str], fail: Mapping[str, str] | None = None
) -> dict[str, Score]:
    """Every metric over the roster; `names` are its strata.

    `fail` are the suite's thresholds: what fails above a number is better when it is less, which nothing else says of
    a metric that the recipe defines.
    """
    scored = [outcome for outcome in outcomes if outcome.numbers is not None]
    numbers = [outcome.numbers for outcome in scored if outcome.numbers is not None]
    strata = Strata.of([outcome.unit.stratum for outcome in scored], sorted(names))
    found = _shares(outcomes, names)
    if numbers:
        found |= _of_terms([each.terms for each in numbers], strata)
        found |= _of_evaluate([each.metrics for each in numbers], strata, directions(fail or {}))
        found |= _of_kind(numbers, strata)
    return found | _worst(found)


def directions(fail: Mapping[str, str]) -> dict[str, Better]:
    """By metric: what its threshold says is better."""
    return {
        name.removeprefix("worst."): "less" if rule.startswith(">") else "more" for name, rule in fail.items()
    }


# --- what could not be scored -------------------------------------------------------------------------------


def _shares(outcomes: Sequence[Outcome], names: Collection[str]) -> dict[str, Score]:
    strata = Strata.of([outcome.unit.stratum for outcome in outcomes], sorted(names))
    ends: dict[str, tuple[End, ...]] = {
        "nonfinite": ("nonfinite",),
        "failed": ("raised", "nonfinite"),
        "missing": ("missing",),
    }
    found = {}
    for name in SHARES:
        hit = np.array([outcome.end in ends[name] for outcome in outcomes])
        found[name] = strata.score(_mean(hit), better="less")
    return found


def _mean(values: Array) -> Value:
    return lambda places: math.fsum(values[places]) / len(places)


# --- loss terms ---------------------------------------------------------------------------------------------


def _of_terms(units: Sequence[Mapping[str, Term]], strata: Strata) -> dict[str, Score]:
    scaled = [name for name, term in units[0].items() if term.scale is not None]
    found = {f"ratio.{name}": _ratio([unit[name] for unit in units], strata) for name in scaled}
    if scaled:
        main = [unit[scaled[0]] for unit in units]
        found["ratio"] = found[f"ratio.{scaled[0]}"]
        own = np.array([_over(term.value, term.scale or 0.0) for term in main], dtype=float)
        found["ratio_median"] = strata.score(_median(own), better="less", no_skill=1.0)
        found["no_skill_share"] = strata.score(_share_without_skill(own), better="less", no_skill=1.0)
    found["loss"] = _loss(units, strata)
    return found


def _over(value: float, scale: float) -> float:
    """The ratio of a unit; NaN where what no skill scores is zero."""
    return value / scale if scale > 0.0 else math.nan


def _ratio(terms: Sequence[Term], strata: Strata) -> Score:
    return strata.score(lambda places: pooled_ratio([terms[i] for i in places]), better="less", no_skill=1.0)


def pooled_ratio(terms: Sequence[Term]) -> float | None:
    """The ratio of all elements of one term together; None where what no skill scores is zero, or unknown."""
    scale = math.fsum((term.scale or 0.0) * term.elements for term in terms)
    return math.fsum(term.value * term.elements for term in terms) / scale if scale > 0.0 else None


def _median(ratios: Array) -> Value:
    def median(places: Array) -> float | None:
        there = ratios[places][~np.isnan(ratios[places])]
        return float(np.median(there)) if len(there) else None

    return median


def _share_without_skill(ratios: Array) -> Value:
    def share(places: Array) -> float | None:
        there = ratios[places][~np.isnan(ratios[places])]
        return float((there >= 1.0).mean()) if len(there) else None

    return share


def _loss(units: Sequence[Mapping[str, Term]], strata: Strata) -> Score:
    def loss(places: Array) -> float:
        found = 0.0
        for name in units[0]:
            terms = [units[i][name] for i in places]
            elements = sum(term.elements for term in terms)
            if elements:
                found += math.fsum(term.weight * term.value * term.elements for term in terms) / elements
        return found

    return strata.score(loss, better="less")


# --- what a recipe offers -----------------------------------------------------------------------------------


def _of_evaluate(
    units: Sequence[Mapping[str, float | None]], strata: Strata, better: Mapping[str, Better]
) -> dict[str, Score]:
    """The mean of each metric over the units that have it, and how many these are where not all have it."""
    found = {}
    for name in dict.fromkeys(name for unit in units for name in unit):
        given = [unit.get(name) for unit in units]
        count = sum(number is not None for number in given)
        values = np.array([math.nan if number is None else number for number in given])
        score = strata.score(_mean_of_given(values), better=better.get(name))
        found[name] = score if count == len(units) else score.model_copy(update={"count": count})
    return found


def _mean_of_given(values: Array) -> Value:
    def mean(places: Array) -> float | None:
        there = values[places][~np.isnan(values[places])]
        return math.fsum(there) / len(there) if len(there) else None

    return mean


def _of_kind(units: Sequence[Numbers], strata: Strata) -> dict[str, Score]:
    """What a classifier, a language model and a recipe with embeddings add."""
    found: dict[str, Score] = {}
    probabilities = [unit.probabilities for unit in units if unit.probabilities is not None]
    if probabilities:
        labels = np.array([unit.label for unit in units])
        found |= class_scores(np.stack(probabilities), labels, strata)
    contents = [unit.content for unit in units if unit.content is not None]
    if contents:
        found |= text_scores(np.array([unit.nats for unit in units]), contents, strata)
    embeddings = [unit.embedding for unit in units if unit.embedding is not None]
    if embeddings:
        found |= embedding_scores(np.stack(embeddings), strata)
    return found


def _worst(found: Mapping[str, Score]) -> dict[str, Score]:
    """By metric with a direction: the stratum that does worst, of those where it is defined."""
    worst = {}
    for name, score in found.items():
        if score.better is None or not score.strata:
            continue
        choose = max if score.better == "less" else min
        there = {stratum: value for stratum, value in score.strata.items() if value is not None}
        value = choose(there.values()) if there else None
        worst[f"worst.{name}"] = Score(
            value=value,
            strata={stratum: each for stratum, each in there.items() if each == value},
            no_skill=score.no_skill,
            better=score.better,
        )
    return worst
