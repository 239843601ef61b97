"""History: one row per update, per evaluation, per look of the monitors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from raykit.records.base import Count, Positive, Record, Versioned

Series = Literal["train", "development", "monitor"]
"""One file family of the history: every update; evaluations of the development split; cheap monitors."""

Space = Literal["linear", "log"]
"""The space in which a field is measured and drawn."""


class TermRow(Record):
    """One loss term of one update, with its own scale beside it."""

    value: float | None
    weight: float
    contribution: float | None
    elements: Count
    target_ms: float | None = None
    """Mean square of the target over the same elements: what predicting zero scores."""
    reference: float | None = None
    """What no skill scores, where the term is not a squared error."""
    ratio: float | None = None
    """value / (target_ms or reference); absent when that is zero or not declared."""
    no_reference: str | None = None
    """Why this term has no such scale."""


class Row(Versioned):
    """One optimizer update. `update` counts from 1; `samples` is the half-open range of order positions."""

    attempt: Positive
    update: Positive
    epoch: Count
    samples: tuple[Count, Count]
    sources: Mapping[str, Count]
    loss: float | None
    ratio: float | None = None
    """The ratio of the main term: the first that the recipe declares with a scale."""
    terms: Mapping[str, TermRow]
    lr: tuple[float, ...]
    grad_norm: float | None
    clipped: bool
    elapsed_s: float
    scale: float | None = None
    """The loss scale of fp16 training."""
    skipped: bool | None = None
    """True if the scaler skipped this update's step."""
    nonfinite: tuple[str, ...] | None = None
    """What was not finite: `loss`, `grad_norm`, or a term's name. Their values are then null."""


class EvaluationRow(Versioned):
    """The development split scored after `update` updates: means over examples, and the ratios of terms."""

    attempt: Positive
    update: Count
    rows: Positive
    metrics: Mapping[str, float | None]
    elapsed_s: float
    best: bool
    """The best so far of what the stop rule watches, or of what selects where there is no such rule."""
    counts: Mapping[str, Count] | None = None
    """By metric that not every row gave a number for: how many did. None where all did."""


class FieldStats(Record):
    """One field in its own space over one batch or roster."""

    space: Space
    median: float | None
    low: float | None
    high: float | None
    spread: float | None
    """high - low, in the field's own space."""
    reference_spread: float | None = None
    collapsed: bool


class MonitorRow(Versioned):
    """The cheap in-process monitors after `update` updates."""

    attempt: Positive
    update: Count
    fields: Mapping[str, FieldStats]
    elapsed_s: float
