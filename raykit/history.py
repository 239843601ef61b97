"""History rules: what a row says, which rows count, and when a field has collapsed.

Pure. The scale-free ratio is value / reference, where the reference is what predicting zero scores on the
same elements: the target's mean square for a squared error, ln C for a cross-entropy over C classes. 1.0 is
no skill, 0.0 is perfect, and a reference of zero leaves it undefined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raykit.errors import CorruptError
from raykit.ids import canonical
from raykit.records import Commit, FieldStats, Row, Segment, Series, Space, Superseded, TermRow

SAME_BUT = frozenset({"attempt", "elapsed_s"})
"""Fields of a row that may differ between a disturbed and an undisturbed run."""


def ratio(value: float, reference: float) -> float | None:
    """value / reference: 1.0 is what predicting zero scores. None where the reference is not above zero."""
    if not (math.isfinite(value) and math.isfinite(reference)) or reference <= 0.0:
        return None
    return value / reference


def finite(value: float) -> float | None:
    """The value, or None if it is NaN or infinite: JSON has neither."""
    return value if math.isfinite(value) else None


def term_row(
    *,
    value: float,
    weight: float,
    elements: int,
    target_ms: float | None = None,
    reference: float | None = None,
    no_reference: str | None = None,
) -> TermRow:
    """One term of a row, with its contribution and its ratio computed here and nowhere else."""
    scale = target_ms if target_ms is not None else reference
    if scale is not None and scale <= 0.0:
        no_reference = "what no skill scores is zero here"
    return TermRow(
        value=finite(value),
        weight=weight,
        contribution=finite(value * weight),
        elements=elements,
        target_ms=None if target_ms is None else finite(target_ms),
        reference=None if reference is None else finite(reference),
        ratio=None if scale is None else ratio(value, scale),
        no_reference=no_reference,
    )


def fits(term: TermRow, below: float) -> bool | None:
    """Does this term fit better than `below` times no skill? None where there is no scale to say it on.

    A loss in physical units is never an answer: only the ratio is read.
    """
    return None if term.ratio is None else term.ratio < below


# --- which rows count ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows `first` to `last` of `segment`; the segment may hold more, superseded, rows."""

    segment: Segment
    first: int
    last: int


def cut(spans: Iterable[Span], event: Superseded) -> list[Span]:
    """The spans without the superseded updates. Only a tail is ever superseded."""
    return [
        Span(segment=span.segment, first=span.first, last=min(span.last, event.from_ - 1))
        for span in spans
        if span.first < event.from_
    ]


def lineage(events: Iterable[object], series: Series) -> list[Span]:
    """The readable spans of one series, in update order, from the run log's events in their order.

    Raises:
        CorruptError: the spans of the training series leave a gap or overlap.
    """
    spans: list[Span] = []
    for event in events:
        last = spans[-1].last if spans else 0
        if isinstance(event, Superseded):
            _refuse(not_a_tail(last, event) if series == "train" else None)
            spans = cut(spans, event)
        elif isinstance(event, Segment) and event.series == series:
            _refuse(out_of_place(last, event) if series == "train" else None)
            spans.append(Span(segment=event, first=event.first, last=event.last))
    return spans


def out_of_place(last: int, segment: Segment) -> str | None:
    """What is wrong with training rows `segment` right after row `last`; None if they follow it."""
    if segment.first > last + 1:
        return f"history has a gap: updates {last + 1} to {segment.first - 1} are missing"
    if segment.first <= last:
        return f"history has update {segment.first} twice"
    return None


def not_a_tail(last: int, event: Superseded) -> str | None:
    """What is wrong with superseding these updates of training rows 1 to `last`; None if they end them."""
    if event.to < last:
        return f"updates {event.from_} to {event.to} are superseded, but the later ones to {last} are not"
    return None


def _refuse(wrong: str | None) -> None:
    if wrong is not None:
        raise CorruptError(wrong)


def surviving(commits: Iterable[Commit], event: Superseded) -> list[Commit]:
    """The commits that the superseded updates did not reach."""
    return [commit for commit in commits if commit.update < event.from_]


def check_rows(rows: Iterable[Row], *, after: int = 0) -> Iterator[Row]:
    """Pass rows on while each is the next update.

    Raises:
        CorruptError: a row is missing or there twice.
    """
    for row in rows:
        if row.update <= after:
            raise CorruptError(f"history has update {row.update} twice", field="update", value=row.update)
        if row.update > after + 1:
            raise CorruptError(
                f"history has a gap: update {after + 1} is missing", field="update", value=row.update
            )
        after = row.update
        yield row


def same_bits(row: Row) -> bytes:
    """What two runs of one plan must agree on in this row, to the bit: all but times and attempt."""
    return canonical({name: value for name, value in row.plain().items() if name not in SAME_BUT})


# --- collapse -----------------------------------------------------------------------------------------------


def field_stats(
    values: Sequence[float],
    *,
    space: Space,
    low: float,
    high: float,
    collapse: float,
    reference_spread: float | None,
) -> FieldStats:
    """Percentiles and spread of a field in its own space, and whether it has collapsed.

    `values` are already in that space (logarithms for `log`), in any order; `low` and `high` are percentiles.
    Collapsed: the spread fell below `collapse` times the first one, or a value is not finite.
    """
    ordered = sorted(value for value in values if math.isfinite(value))
    if len(ordered) < len(values) or not ordered:
        return FieldStats(
            space=space,
            median=None,
            low=None,
            high=None,
            spread=None,
            reference_spread=reference_spread,
            collapsed=True,
        )
    bottom, middle, top = (percentile(ordered, q) for q in (low, 50.0, high))
    spread = top - bottom
    reference = spread if reference_spread is None else reference_spread
    return FieldStats(
        space=space,
        median=middle,
        low=bottom,
        high=top,
        spread=spread,
        reference_spread=reference,
        collapsed=spread < collapse * reference or spread == 0.0,
    )


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-th percentile (0 to 100) of sorted values, by linear interpolation between the nearest two."""
    place = (len(ordered) - 1) * q / 100.0
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


# --- smoothing ----------------------------------------------------------------------------------------------


def ema(values: Iterable[float | None], decay: float) -> list[float | None]:
    """Exponential moving average with bias correction; undefined values are passed over, not filled."""
    smooth: list[float | None] = []
    total = weight = 0.0
    for value in values:
        if value is not None:
            total = decay * total + (1.0 - decay) * value
            weight = decay * weight + (1.0 - decay)
        smooth.append(total / weight if weight else None)
    return smooth


def ema_lag(decay: float) -> int:
    """How many values a smoothed line is behind what it smooths: the mean age of what it is a mean of.

    It lies above whatever falls faster than that.
    """
    return round(decay / (1.0 - decay))


# --- early stopping -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The counters of a declared stop rule. They are part of every checkpoint."""

    best: float | None = None
    best_update: int = 0
    waited: int = 0

    def after(self, value: float | None, update: int, *, min_delta: float, mode: str) -> Patience:
        """The counters after one more evaluation; an undefined value counts as no improvement."""
        if value is not None and (self.best is None or self._better(value, min_delta, mode)):
            return Patience(best=value, best_update=update, waited=0)
        return Patience(best=self.best, best_update=self.best_update, waited=self.waited + 1)

    def _better(self, value: float, min_delta: float, mode: str) -> bool:
        assert self.best is not None
        return value < self.best - min_delta if mode == "min" else value > self.best + min_delta

    def plain(self) -> Mapping[str, float | int | None]:
        return {"best": self.best, "best_update": self.best_update, "waited": self.waited}
