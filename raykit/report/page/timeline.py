"""What took time, as bars from the first act to the last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raykit.read.page import Page, Span
from raykit.report.page.words import clean, duration, evenly, moment, percent

LANES = ("gates", "train", "trials", "pause", "qc", "generate")
MAX_BARS = 300
LEAST_PERCENT = 0.35
"""What was too short to be seen is drawn as wide as this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    left: float
    width: float
    css: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Lanes of bars over one axis of time."""

    start: str
    end: str
    length: str
    lanes: tuple[tuple[str, tuple[Bar, ...], str], ...]
    """By lane: its bars, and in words how many there are and how long they took together."""


def timeline_of(page: Page) -> Timeline | None:
    """The bars of a run; None if nothing has taken any time yet."""
    if not page.spans:
        return None
    start, ends = min(span.start for span in page.spans), _ends(page)
    end = max([start + 1.0, *ends.values()])
    lanes = []
    for lane in LANES:
        spans = [span for span in page.spans if span.lane == lane]
        if spans:
            shown = [spans[n] for n in evenly(len(spans), MAX_BARS)]
            bars = tuple(_bar(span, ends[span], start, end) for span in shown)
            lanes.append((lane, bars, _words(spans, ends)))
    return Timeline(start=moment(start), end=moment(end), length=duration(end - start), lanes=tuple(lanes))


def _ends(page: Page) -> dict[Span, float]:
    """When each was over. What nobody has ended is drawn until the run was last heard, or until now if it goes on."""
    view = page.view
    live = (view is not None and view.holder is not None) or (page.search is not None and page.search.live)
    heard = page.made_at if live or view is None or view.heard_at is None else view.heard_at

    def end(span: Span) -> float:
        if span.end is not None:
            return span.end
        return page.made_at if span.lane == "pause" else heard

    return {span: max(span.start, end(span)) for span in page.spans}


def _bar(span: Span, span_end: float, start: float, end: float) -> Bar:
    left = min(percent(span.start - start, end - start), 100 - LEAST_PERCENT)
    width = percent(span_end - span.start, end - start)
    until = "no end is known" if span.end is None else duration(_took(span, span.end))
    return Bar(
        left=round(left, 3),
        width=round(min(max(width, LEAST_PERCENT), 100 - left), 3),
        css=f"{span.lane} {span.outcome}",
        says=f"{clean(span.what, 300)}; from {moment(span.start)}, {until}",
    )


def _took(span: Span, end: float) -> float:
    """For how long somebody was at it: of what was left and gone on with, without the gap."""
    return end - span.start if span.held_s is None else span.held_s


def _words(spans: Sequence[Span], ends: Mapping[Span, float]) -> str:
    took = duration(sum(_took(span, ends[span]) for span in spans))
    failed = sum(span.outcome == "failed" for span in spans)
    open_ = sum(span.outcome == "open" for span in spans)
    parts = [f"{len(spans):,}, {took}"]
    if failed:
        parts.append(f"{failed:,} failed")
    if open_:
        parts.append(f"{open_:,} without an end")
    return ", ".join(parts)
