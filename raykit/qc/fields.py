"""Latent and parameter fields over the roster, each in its own space: natural logarithms for a log field. Pure.

median, low, high   percentiles of all values of all scored units, pooled and per stratum; spread = high - low
between, within     variance of the units' means, and the mean of the units' own variances
at_low, at_high     share of values in the outer hundredth of the declared range, or beyond it, at each end
outside             share of values beyond the declared range
finite              share of values that are finite; the logarithm of what is not above zero is not
dimension_spreads   the spread of each dimension over units. A latent whose dimensions differ from each other can be
                    the same for every unit: pooled it looks alive, and each of its dimensions is dead (posterior
                    collapse; active units in Burda et al. 2016)
dead                dimensions whose spread fell below `collapse` times that of update 0
rise_permuted       how much the ratio rises when each unit is given the field of another one, against its own
rise_median         how much it rises when each unit is given the median field of the roster
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raykit.history import percentile
from raykit.ids import digest_of
from raykit.qc.strata import Array
from raykit.records import FieldRule, FieldScore, FieldSpread, Space

END_SHARE = 0.01
"""The share of its range, in the field's own space, that counts as one end."""

ROUNDING = 1e-6
"""The share of its range that a value may lie beyond it: clamping in float32 does not leave the range."""

MAX_DIMENSIONS = 4096
"""Fields of more values than this are not told of dimension by dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rises:
    """How much the ratio rises when a field is replaced; None where the recipe cannot be asked."""

    permuted: float | None = None
    median: float | None = None


def in_space(values: Array, space: Space) -> Array:
    """A field's values in its own space, one row; what has no logarithm is not finite there."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    if space == "linear":
        return flat
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(flat))


def all_finite(values: Mapping[str, Array], rules: Mapping[str, FieldRule]) -> bool:
    """Whether every value of one unit's declared fields is finite in its own space."""
    return all(bool(np.isfinite(in_space(values[name], rule.space)).all()) for name, rule in rules.items())


def finite_share(values: Iterable[Array], space: Space) -> float:
    """The share of a field's values that are finite, over all units that have given it; 0 without any."""
    finite = [np.isfinite(in_space(each, space)) for each in values]
    there = np.concatenate(finite) if finite else np.zeros(0)
    return float(there.mean()) if len(there) else 0.0


def field_score(
    units: Sequence[tuple[str, Array]],
    rule: FieldRule,
    names: Iterable[str],
    *,
    reference: FieldScore | None,
    finite: float,
    rises: Rises = Rises(),
) -> FieldScore:
    """A field over the scored units, (stratum, values) each; `reference` is that field at update 0."""
    own = [(stratum, in_space(values, rule.space)) for stratum, values in units]
    values = [each for _, each in own]
    by_stratum: dict[str, list[Array]] = {name: [] for name in sorted(names)}
    for stratum, each in own:
        by_stratum[stratum].append(each)
    spreads = _dimension_spreads(values, rule)
    sizes = sorted({len(each) for each in values})
    at_low, at_high, outside = _ends(values, rule)
    return FieldScore(
        space=rule.space,
        pooled=_spread(values, rule),
        strata={name: _spread(each, rule) for name, each in by_stratum.items()},
        reference_spread=None if reference is None else reference.pooled.spread,
        between=float(np.var([each.mean() for each in values])) if values else None,
        within=float(np.mean([each.var() for each in values])) if values else None,
        at_low=at_low,
        at_high=at_high,
        outside=outside,
        finite=finite,
        dimensions=sizes[0] if len(sizes) == 1 else 0,
        dimension_spreads=spreads,
        dead=_dead(spreads, reference, rule),
        rise_permuted=rises.permuted,
        rise_median=rises.median,
    )


def _spread(values: Sequence[Array], rule: FieldRule) -> FieldSpread:
    """Percentiles of all values together; one value alone has no spread."""
    ordered = np.sort(np.concatenate(values)) if values else np.zeros(0)
    if not len(ordered):
        return FieldSpread(median=None, low=None, high=None, spread=None)
    low, median, high = (float(percentile(ordered, q)) for q in (rule.low, 50.0, rule.high))  # type: ignore[arg-type]
    return FieldSpread(
        median=median, low=low, high=high, spread=_width(low, high) if len(ordered) > 1 else None
    )


def _width(low: float, high: float) -> float:
    return max(0.0, high - low)


def _ends(values: Sequence[Array], rule: FieldRule) -> tuple[float | None, float | None, float | None]:
    """The shares of values at the low end, at the high end, and beyond either."""
    if rule.bounds is None or not values or not sum(map(len, values)):
        return None, None, None
    low, high = (float(each) for each in in_space(np.array(rule.bounds), rule.space))
    there, margin, slack = np.concatenate(values), END_SHARE * (high - low), ROUNDING * (high - low)
    outside = (there < low - slack) | (there > high + slack)
    return (
        float((there <= low + margin).mean()),
        float((there >= high - margin).mean()),
        float(outside.mean()),
    )


# --- dimensions ---------------------------------------------------------------------------------------------


def _dimension_spreads(values: Sequence[Array], rule: FieldRule) -> tuple[float, ...]:
    """The spread of each dimension over units; empty where they are not comparable, or too many."""
    sizes = {len(each) for each in values}
    if len(values) < 2 or len(sizes) != 1 or not 1 <= max(sizes) <= MAX_DIMENSIONS:
        return ()
    low, high = np.percentile(np.stack(values), [rule.low, rule.high], axis=0)
    return tuple(_width(float(a), float(b)) for a, b in zip(low, high, strict=True))


def _dead(spreads: Sequence[float], reference: FieldScore | None, rule: FieldRule) -> tuple[int, ...]:
    if reference is None or len(spreads) != len(reference.dimension_spreads):
        return ()
    pairs = zip(spreads, reference.dimension_spreads, strict=True)
    return tuple(number for number, (now, was) in enumerate(pairs) if now < rule.collapse * was)


# --- is it used? --------------------------------------------------------------------------------------------


def partners(units: Sequence[tuple[str, Hashable]], revision: int) -> dict[str, str]:
    """By unit, (id, shape) each: another unit of the same shape, whose field it is given.

    One circle through all units of a shape, in an order that is fixed by their ids: nobody meets themselves, and
    whoever is the only one of a shape has no partner.
    """
    by_shape: dict[Hashable, list[str]] = defaultdict(list)
    for id, shape in units:
        by_shape[shape].append(id)
    found: dict[str, str] = {}
    for ids in by_shape.values():
        circle = sorted(ids, key=lambda id: digest_of(["permute", revision, id]))
        if len(circle) > 1:
            found |= dict(zip(circle, [*circle[1:], circle[0]], strict=True))
    return found


def median_field(values: Sequence[Array], space: Space) -> Array | None:
    """The median over units of each value, in natural units; None where the units differ in shape."""
    shapes = {each.shape for each in values}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    middle = np.median(np.stack([in_space(each, space) for each in values]), axis=0)
    return np.asarray((np.exp(middle) if space == "log" else middle).reshape(shape))
