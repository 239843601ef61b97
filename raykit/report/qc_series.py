"""Receipts as lines over updates: what the charts and the page draw of a suite's examinations. Pure.

A checkpoint that is not examined has no value here, and is never left out: it is in `Waiting`, on the axis.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raykit.qc import verdict
from raykit.qc.backlog import Standing, Status
from raykit.records import FieldRule, FieldScore, FieldSpread, Receipt, Score, Suite

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MAX_CHARTS = 48
"""More metrics than that are not drawn, and are named instead."""
MAX_STRATA = 10
"""More strata than that are drawn as the band that they lie in, with the worst of them."""

_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_MARKED = re.compile(r"(.*-)?[0-9a-f]{8}")
"""Ends as the file of a name that is not safe would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A declared threshold: what fails a checkpoint."""

    value: float | None
    """None while what it is held against is not known: the receipt at update 0."""
    words: str
    """As the plan has it, such as `> base + 0.01`."""

    @property
    def fails_above(self) -> bool:
        return self.words.startswith(">")

    def failed_by(self, value: float | None) -> bool:
        """Whether a value is on the side that fails."""
        return value is not None and self.value is not None and verdict.fails(self.words, value, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A checkpoint that has to be examined, and has no receipt."""

    update: int
    status: Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The checkpoints of one suite, oldest first."""

    updates: Floats
    """Of those with a receipt."""
    receipts: tuple[Receipt, ...]
    failed: Flags
    waiting: tuple[Waiting, ...]

    @property
    def last_update(self) -> float:
        return float(max([1.0, *self.updates, *(each.update for each in self.waiting)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """One metric over updates. Undefined is NaN."""

    metric: str
    updates: Floats
    pooled: Floats
    strata: Mapping[str, Floats]
    no_skill: Floats
    better: Literal["less", "more"] | None
    limit: Limit | None
    failed: Flags
    """Checkpoints that fail by this metric."""
    failed_else: Flags
    """Checkpoints that fail, and not by this metric."""
    unjudged: Flags
    """Checkpoints that its threshold does not apply to."""
    waiting: tuple[Waiting, ...]
    last_update: float

    @property
    def worst(self) -> str | None:
        """The stratum that scores worst at the newest checkpoint where any does; None if no side is the bad one."""
        if self.better is None:
            return None
        sign = 1.0 if self.better == "less" else -1.0
        for at in reversed(range(len(self.updates))):
            scored = {name: sign * line[at] for name, line in self.strata.items() if not math.isnan(line[at])}
            if scored:
                return max(scored, key=lambda name: scored[name])
        return None

    @property
    def band(self) -> tuple[Floats, Floats]:
        """The least and the greatest of all strata at each checkpoint."""
        lines = np.array([*self.strata.values()]) if self.strata else np.full((1, len(self.updates)), np.nan)
        return np.fmin.reduce(lines), np.fmax.reduce(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSeries:
    """One field over updates, in its natural units; spreads in its own space."""

    field: str
    rule: FieldRule | None
    space: Literal["linear", "log"]
    updates: Floats
    low: Floats
    median: Floats
    high: Floats
    strata: Mapping[str, Floats]
    """Medians by stratum."""
    shares: Floats
    """Spread over the reference spread; the reference itself has 1."""
    strata_shares: Mapping[str, Floats]
    """By stratum, over its own first spread."""
    collapsed: Flags
    failed: Flags
    """Checkpoints that fail by this field."""
    failed_else: Flags
    dead: tuple[tuple[int, tuple[int, ...]], ...]
    """By update: the dimensions that are dead there."""
    at_ends: Floats
    """Share of values at an end of its range."""
    rise: Floats
    """How much the ratio rises when the field is permuted over units."""
    finite: Floats
    waiting: tuple[Waiting, ...]
    last_update: float


# --- all of it ----------------------------------------------------------------------------------------------


def examined(standings: Sequence[Standing]) -> Examined:
    """The receipts among the standings, and what waits for one."""
    done = [(each, each.receipt) for each in standings if each.receipt is not None]
    return Examined(
        updates=np.array([each.update for each, _ in done], dtype=np.float64),
        receipts=tuple(receipt for _, receipt in done),
        failed=np.array([each.red for each, _ in done], dtype=np.bool_),
        waiting=tuple(
            Waiting(update=each.update, status=each.status) for each in standings if each.receipt is None
        ),
    )


WORST = "worst."
"""A metric of this beginning is the worst stratum of another one, which has a line for each stratum."""


def judged_of(suite: Suite) -> list[str]:
    """The metrics that the plan names."""
    return list(dict.fromkeys([*suite.fail, *suite.metrics]))


def metrics_of(found: Examined, suite: Suite) -> list[str]:
    """Every metric of every receipt and of the suite: those that the plan names first."""
    recorded = [name for receipt in found.receipts for name in receipt.metrics]
    return list(dict.fromkeys([*judged_of(suite), *recorded]))


def drawn_of(found: Examined, suite: Suite) -> list[str]:
    """The metrics that need a picture: what the plan names or anything failed by, and what tells something new.

    The worst stratum of a metric is in the picture of that metric, and what is 0 everywhere shows nothing.
    """
    every = metrics_of(found, suite)
    blamed = {finding.what for receipt in found.receipts for finding in receipt.findings}
    certain = {*judged_of(suite), *blamed}

    def tells(metric: str) -> bool:
        if metric.startswith(WORST) and metric.removeprefix(WORST) in every:
            return False
        return any(value != 0.0 for receipt in found.receipts for value in _values(receipt, metric))

    return [metric for metric in every if metric in certain or tells(metric)]


def _values(receipt: Receipt, metric: str) -> list[float | None]:
    score = receipt.metrics.get(metric)
    return [] if score is None else [score.value, *score.strata.values()]


def fields_of(found: Examined, suite: Suite) -> list[str]:
    """Every field of every receipt and of the suite."""
    return list(dict.fromkeys([*suite.fields, *(name for each in found.receipts for name in each.fields)]))


def metric_series(found: Examined, suite: Suite, metric: str) -> MetricSeries:
    """One metric over all examined checkpoints."""
    scores = [receipt.metrics.get(metric) for receipt in found.receipts]
    known = [score for score in scores if score is not None]
    limit = limit_of(suite.fail.get(metric), found, metric)
    by_it = _failed_by(found, metric, fields=False)
    return MetricSeries(
        metric=metric,
        updates=found.updates,
        pooled=_floats(None if score is None else score.value for score in scores),
        strata={
            name: _floats(None if score is None else score.strata.get(name) for score in scores)
            for name in _names(score.strata for score in known)
        },
        no_skill=_floats(None if score is None else score.no_skill for score in scores),
        better=_better(known, limit),
        limit=limit,
        failed=by_it,
        failed_else=found.failed & ~by_it,
        unjudged=np.array([metric in receipt.unjudged for receipt in found.receipts], dtype=np.bool_),
        waiting=found.waiting,
        last_update=found.last_update,
    )


def _better(scores: Sequence[Score], limit: Limit | None) -> Literal["less", "more"] | None:
    said = next((score.better for score in reversed(scores) if score.better is not None), None)
    if said is None and limit is not None:
        return "less" if limit.fails_above else "more"
    return said


def limit_of(rule: str | None, found: Examined, metric: str) -> Limit | None:
    """A threshold of the plan with its number; `base` is what the receipt at update 0 has."""
    if rule is None:
        return None
    first = next((each for each in found.receipts if each.update == 0), None)
    score = None if first is None else first.metrics.get(metric)
    return Limit(value=verdict.limit_of(rule, None if score is None else score.value), words=rule)


def field_series(found: Examined, suite: Suite, field: str) -> FieldSeries:
    """One field over all examined checkpoints."""
    scores = [receipt.fields.get(field) for receipt in found.receipts]
    known = [score for score in scores if score is not None]
    space = known[-1].space if known else suite.fields[field].space if field in suite.fields else "linear"
    strata = _names(score.strata for score in known)

    def spreads(stratum: str | None, part: str) -> Floats:
        each = (_spread_of(score, stratum) for score in scores)
        return _floats(None if one is None else getattr(one, part) for one in each)

    def natural(stratum: str | None, part: str) -> Floats:
        values = spreads(stratum, part)
        return np.exp(np.clip(values, -300, 300)) if space == "log" else values

    pooled = spreads(None, "spread")
    by_it = _failed_by(found, field, fields=True)
    return FieldSeries(
        field=field,
        rule=suite.fields.get(field),
        space=space,
        updates=found.updates,
        low=natural(None, "low"),
        median=natural(None, "median"),
        high=natural(None, "high"),
        strata={name: natural(name, "median") for name in strata},
        shares=_shares(
            pooled, _floats(None if score is None else score.reference_spread for score in scores)
        ),
        strata_shares={name: _shares(spreads(name, "spread"), None) for name in strata},
        collapsed=_failed_by(found, field, fields=True, kind="collapsed"),
        failed=by_it,
        failed_else=found.failed & ~by_it,
        dead=tuple(
            (receipt.update, score.dead)
            for receipt, score in zip(found.receipts, scores, strict=True)
            if score is not None and score.dead
        ),
        at_ends=_floats(_at_ends(score) for score in scores),
        rise=_floats(None if score is None else score.rise_permuted for score in scores),
        finite=_floats(None if score is None else score.finite for score in scores),
        waiting=found.waiting,
        last_update=found.last_update,
    )


def _spread_of(score: FieldScore | None, stratum: str | None) -> FieldSpread | None:
    if score is None:
        return None
    return score.pooled if stratum is None else score.strata.get(stratum)


def _shares(spreads: Floats, reference: Floats | None) -> Floats:
    """Spreads over the reference that is recorded with them, or else over the first of them that is not zero."""
    if reference is not None and (~np.isnan(reference)).any():
        defined = np.where(reference > 0, reference, np.nan)
        first = defined[~np.isnan(defined)][:1]
        if first.size:
            return spreads / np.where(np.isnan(reference), first[0], defined)
        return np.full_like(spreads, np.nan)
    first = spreads[~np.isnan(spreads) & (spreads > 0)][:1]
    return spreads / first[0] if first.size else np.full_like(spreads, np.nan)


def _at_ends(score: FieldScore | None) -> float | None:
    if score is None or score.at_low is None or score.at_high is None:
        return None
    return max(score.at_low, score.at_high)


OF_FIELDS = frozenset({"dead-dimension", "at-bound", "unused", "range"})
OF_METRICS = frozenset({"threshold"})
"""Findings that are never of the other kind, should a metric and a field have one name."""


def _failed_by(found: Examined, what: str, *, fields: bool, kind: str | None = None) -> Flags:
    """The checkpoints with a finding about `what`."""
    never = OF_METRICS if fields else OF_FIELDS
    return np.array(
        [
            any(
                each.what == what and kind in (None, each.kind) and each.kind not in never
                for each in findings
            )
            for findings in (receipt.findings for receipt in found.receipts)
        ],
        dtype=np.bool_,
    )


def _names(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for each in mappings for name in each))


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


# --- names of files -----------------------------------------------------------------------------------------


def picture_file(kind: Literal["metric", "field"], name: str) -> str:
    """The file of a chart: `qc-ratio.png`, `qc-field-latent.png`.

    Names are a recipe's words. One that is no part of a safe file name, or that would be another chart's, keeps what
    it can and gets eight digits of its own digest: a name always has the same file, and no two have one.
    """
    prefix = "qc-field-" if kind == "field" else "qc-"
    taken = _MARKED.fullmatch(name) or (kind == "metric" and name.startswith("field-"))
    if _SAFE.fullmatch(name) and not taken:
        return f"{prefix}{name}.png"
    stem = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:40].rstrip("-._")
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{prefix}{stem}-{mark}.png" if stem else f"{prefix}{mark}.png"
