"""The charts of the page: what a run has learned, and what its examinations found. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from raykit import history
from raykit.read.page import Learning
from raykit.report import drawing
from raykit.report.drawing import Flags, Floats
from raykit.report.page import chart as c
from raykit.report.page.words import clean, many, name, number
from raykit.report.qc_series import MAX_STRATA, FieldSeries, MetricSeries, Waiting

POINTS, BINS = 700, 350
COLOURS = 10


# --- learning -----------------------------------------------------------------------------------------------


def learning_chart(learning: Learning) -> c.Chart | None:
    """The ratio of every scaled term against no skill, with the development split; None if there is nothing."""
    at = np.array(learning.updates, dtype=np.float64)
    ratios = {term: drawing.floats(values) for term, values in learning.ratios.items()}
    scores = {term: _scores(learning, term, first=n == 0) for n, term in enumerate(ratios)}
    lines = [*ratios.values(), *scores.values()]
    if not lines or not any(np.isfinite(line).any() for line in lines):
        return None
    where = drawing.floats(float(row.update) for row in learning.development)
    x = c.update_scale(max([*at[-1:], *where[-1:], 1.0]))
    y = c.value_scale([*lines, np.array([1.0])])
    paths: list[c.Path] = []
    keys: list[c.Key] = []
    for n, (term, values) in enumerate(ratios.items()):
        colour = f"c{n % COLOURS}"
        paths += _term_paths(x, y, at, values, learning.decay, colour)
        paths.append(c.Path(d=c.dots(x, y, where, scores[term]), css=f"dots {colour}"))
        last, development = drawing.last(values), drawing.last(scores[term])
        keys.append(c.Key(css=f"line {colour}", text=f"{name(term)}: last {last}, development {development}"))
    if len(learning.development):
        keys.append(
            c.Key(css="dots c0", text=f"development: {many(learning.development[-1].rows, 'row')}", sign="●")
        )
    return c.Chart(
        name="ratio to predicting zero",
        says=f"Ratio of {', '.join(map(name, ratios))} over {int(x.high / 1.01):,} updates; 1.0 is no skill.",
        x_ticks=c.x_ticks(x),
        y_ticks=c.y_ticks(y),
        paths=tuple(paths),
        rules=(c.Rule(top=c.top(y, 1.0), text="no skill: 1.0", css="skill"),),
        uprights=tuple(_uprights(learning, x)),
        keys=tuple(keys),
        notes=tuple(_learning_notes(learning)),
    )


def _scores(learning: Learning, term: str, *, first: bool) -> Floats:
    """The development ratio of a term; `ratio` by itself is that of the main one, which is the first."""
    found = (
        row.metrics.get(f"ratio.{term}", row.metrics.get("ratio") if first else None)
        for row in learning.development
    )
    return drawing.floats(found)


def _term_paths(
    x: c.Scale, y: c.Scale, at: Floats, values: Floats, decay: float | None, colour: str
) -> Iterator[c.Path]:
    bins = drawing.thin(at, values, most=POINTS, bins=BINS)
    if bins.size > 1:
        yield c.Path(d=c.band(x, y, bins.at, bins.low, bins.high), css=f"band {colour}")
    yield c.Path(d=c.line(x, y, bins.at, bins.mean), css=f"line faint {colour}")
    if decay is not None:
        smooth = history.ema((None if math.isnan(v) else v for v in values.tolist()), decay)
        trend = np.where(np.isnan(values), np.nan, drawing.floats(smooth))
        bins = drawing.thin(at, trend, most=POINTS, bins=BINS)
        yield c.Path(d=c.line(x, y, bins.at, bins.mean), css=f"line bold {colour}")


def _uprights(learning: Learning, x: c.Scale) -> Iterator[c.Upright]:
    """Where attempts took over, at most as many as can be told apart."""
    for each in learning.resumed[-60:]:
        says = f"attempt {each.attempt} goes on from update {each.after:,}; before it: {each.why}"
        css = "pause" if each.paused else "attempt"
        sign = "\u2016" if each.paused else ""
        yield c.Upright(
            left=round(x.percent(each.after), 3), text=f"{sign}{each.attempt}", says=says, css=css
        )


def _learning_notes(learning: Learning) -> Iterator[str]:
    if learning.decay is not None:
        behind = many(history.ema_lag(learning.decay), "update")
        yield f"bold: trend, ema {learning.decay:g}, about {behind} behind"
    if learning.resumed:
        yield "uprights: attempts that took over, by their number; \u2016 after a pause"
    if learning.unscaled:
        yield f"without such a scale and not drawn: {', '.join(map(name, learning.unscaled))}"
    for term, values in learning.ratios.items():
        undefined = sum(value is None for value in values)
        if undefined:
            yield f"{name(term)} is undefined at {undefined:,} of {len(values):,} updates"


# --- one metric of the examinations -------------------------------------------------------------------------


def metric_chart(series: MetricSeries) -> c.Chart | None:
    """A metric by stratum and pooled; None if it is defined nowhere."""
    limit = series.limit
    lines = [series.pooled, series.no_skill, *series.strata.values()]
    if not any(np.isfinite(line).any() for line in lines):
        return None
    if limit is not None and limit.value is not None:
        lines.append(np.array([limit.value]))
    x, y = c.update_scale(series.last_update), c.value_scale(lines)
    paths, keys = _strata(series, x, y)
    paths += _bold(x, y, series.updates, series.pooled, "ink")
    keys.append(c.Key(css="line bold ink", text=f"all: last {drawing.last(series.pooled)}"))
    rules, shade = [], None
    known = series.no_skill[~np.isnan(series.no_skill)]
    if known.size:
        rules.append(c.Rule(top=c.top(y, known[-1]), text=f"no skill: {known[-1]:.3g}", css="skill"))
    if limit is not None and limit.value is not None:
        edge = c.top(y, limit.value)
        rules.append(c.Rule(top=edge, text=f"fails if {limit.words}", css="limit"))
        shade = (0.0, edge) if limit.fails_above else (edge, round(100 - edge, 3))
    marks = [*_failed(x, y, series.updates, series.pooled, series.failed, series.failed_else)]
    marks += _waiting(x, series.waiting)
    return c.Chart(
        name=name(series.metric),
        says=_says(series.metric, series.updates, series.pooled),
        x_ticks=c.x_ticks(x),
        y_ticks=c.y_ticks(y),
        paths=tuple(paths),
        rules=tuple(rules),
        shade=shade,
        marks=tuple(marks),
        keys=(*keys, *_mark_keys(marks)),
        notes=tuple(_metric_notes(series)),
    )


def _strata(series: MetricSeries, x: c.Scale, y: c.Scale) -> tuple[list[c.Path], list[c.Key]]:
    if len(series.strata) < 2:
        return [], []
    if len(series.strata) <= MAX_STRATA:
        pairs = [(f"c{n % COLOURS}", *each) for n, each in enumerate(series.strata.items())]
        paths = [
            c.Path(d=c.line(x, y, series.updates, values), css=f"line {colour}")
            for colour, _, values in pairs
        ]
        return paths, [c.Key(css=f"line {colour}", text=name(stratum)) for colour, stratum, _ in pairs]
    low, high = series.band
    paths = [c.Path(d=c.band(x, y, series.updates, low, high), css="band c0")]
    keys = [c.Key(css="band c0", text=f"least to greatest of {len(series.strata):,} strata")]
    if series.worst is not None:
        worst = series.strata[series.worst]
        paths.append(c.Path(d=c.line(x, y, series.updates, worst), css="line c1"))
        keys.append(c.Key(css="line c1", text=f"worst now, {name(series.worst)}: {drawing.last(worst)}"))
    return paths, keys


def _bold(x: c.Scale, y: c.Scale, at: Floats, values: Floats, colour: str) -> list[c.Path]:
    return [
        c.Path(d=c.line(x, y, at, values), css=f"line bold {colour}"),
        c.Path(d=c.dots(x, y, at, values), css=f"dots {colour}"),
    ]


def _failed(
    x: c.Scale, y: c.Scale, at: Floats, values: Floats, by_it: Flags, otherwise: Flags
) -> Iterator[c.Mark]:
    signs: Sequence[tuple[Flags, c.Sign, str]] = (
        (by_it, "cross", "failed"),
        (otherwise, "cross-else", "failed otherwise"),
    )
    for flags, sign, says in signs:
        for update, value in zip(at[flags].tolist(), values[flags].tolist(), strict=True):
            place = 100.0 if math.isnan(value) else c.top(y, value)
            left = round(x.percent(update), 3)
            yield c.Mark(left=left, top=place, sign=sign, says=f"{says} at update {update:,.0f}")


def _waiting(x: c.Scale, waiting: Sequence[Waiting]) -> Iterator[c.Mark]:
    for each in waiting:
        says = f"update {each.update:,}: {each.status}, no receipt"
        yield c.Mark(left=round(x.percent(each.update), 3), top=100.0, sign="ring", says=says)


def _mark_keys(marks: Sequence[c.Mark]) -> Iterator[c.Key]:
    words = {"cross": ("\u2715", "failed"), "cross-else": ("\u2715", "failed otherwise")}
    words["ring"] = ("\u25cb", "not examined")
    for sign, (shape, text) in words.items():
        count = sum(mark.sign == sign for mark in marks)
        if count:
            yield c.Key(css=sign, text=f"{text}: {count:,}", sign=shape)


def _says(what: str, at: Floats, values: Floats) -> str:
    known = ~np.isnan(values)
    if not known.any():
        return f"{clean(what)} is undefined."
    first, last = at[known][0], at[known][-1]
    return (
        f"{name(what)}: {number(float(values[known][0]))} at update {first:,.0f}, "
        f"{number(float(values[known][-1]))} at update {last:,.0f}."
    )


def _metric_notes(series: MetricSeries) -> Iterator[str]:
    undefined = int(np.isnan(series.pooled).sum())
    if undefined:
        yield f"undefined at {undefined:,} of {len(series.pooled):,} checkpoints"
    if series.limit is None:
        yield "no threshold is declared"
    elif series.limit.value is None:
        yield f"its threshold, {series.limit.words}, has no base yet: update 0 is not examined"
    if series.unjudged.any():
        yield "not judged at update 0: the model had learned nothing yet"


# --- one field of the examinations --------------------------------------------------------------------------


def field_charts(series: FieldSeries) -> list[c.Chart]:
    """Median and percentiles in the field's own space; its spread against update 0."""
    return [made for made in (_values_chart(series), _shares_chart(series)) if made is not None]


def _values_chart(series: FieldSeries) -> c.Chart | None:
    lines = [series.low, series.median, series.high]
    if not any(np.isfinite(line).any() for line in lines):
        return None
    x = c.update_scale(series.last_update)
    low, high = drawing.least(lines), drawing.greatest(lines)
    y = c.value_scale(lines)
    if series.space == "log" and low > 0:
        margin = max((high / low) ** 0.06, 1.01)
        y = c.Scale(low=low / margin, high=high * margin, log=True)
    rule = series.rule
    words = "low to high percentile" if rule is None else f"{rule.low:g}th to {rule.high:g}th percentile"
    return c.Chart(
        name=f"{name(series.field)}, {series.space} space",
        says=_says(series.field, series.updates, series.median),
        x_ticks=c.x_ticks(x),
        y_ticks=c.y_ticks(y),
        paths=(
            c.Path(d=c.band(x, y, series.updates, series.low, series.high), css="band c0"),
            *_bold(x, y, series.updates, series.median, "c0"),
        ),
        marks=(marks := tuple(_waiting(x, series.waiting))),
        keys=(
            c.Key(css="band c0", text=words),
            c.Key(css="line bold c0", text="median"),
            *_mark_keys(marks),
        ),
        notes=tuple(_field_notes(series)),
    )


def _shares_chart(series: FieldSeries) -> c.Chart | None:
    if not np.isfinite(series.shares).any():
        return None
    rule = series.rule
    x = c.update_scale(series.last_update)
    y = c.value_scale([series.shares, np.array([1.0, *([rule.collapse] if rule is not None else [])])])
    rules, shade = [], None
    if rule is not None:
        edge = c.top(y, rule.collapse)
        rules.append(c.Rule(top=edge, text=f"collapsed below {rule.collapse:g}", css="limit"))
        shade = (edge, round(100 - edge, 3))
    marks = [
        *_failed(x, y, series.updates, series.shares, series.failed, series.failed_else),
        *_waiting(x, series.waiting),
    ]
    return c.Chart(
        name=f"{name(series.field)}, spread / spread at update 0",
        says=_says(f"spread of {series.field}", series.updates, series.shares),
        x_ticks=c.x_ticks(x),
        y_ticks=c.y_ticks(y),
        paths=tuple(_bold(x, y, series.updates, series.shares, "ink")),
        rules=tuple(rules),
        shade=shade,
        marks=tuple(marks),
        keys=tuple(_mark_keys(marks)),
    )


def _field_notes(series: FieldSeries) -> Iterator[str]:
    if series.dead:
        update, dead = series.dead[-1]
        shown = ", ".join(str(each) for each in dead[:12]) + (", \u2026" if len(dead) > 12 else "")
        yield f"dead at update {update:,}: {'dimension' if len(dead) == 1 else 'dimensions'} {shown}"
    rise = series.rise[~np.isnan(series.rise)]
    if rise.size:
        wanted = ""
        if series.rule is not None and series.rule.used is not None:
            wanted = f" (at least {series.rule.used:g} wanted)"
        yield f"permuted over units, it raises the ratio by {rise[-1]:.3g}{wanted}"
    ends = series.at_ends[~np.isnan(series.at_ends)]
    if ends.size:
        yield f"{ends[-1]:.1%} of its values at one end of its range"
