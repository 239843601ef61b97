"""The grid of examinations: a row for each metric and stratum, a column for each checkpoint. Pure.

Each cell has a sign beside its colour. A checkpoint without a receipt says how far it is, in every row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from raykit.qc.backlog import Standing, Status, reason, told
from raykit.read.page import Page
from raykit.records import QcFinding, Receipt, Suite
from raykit.report.page.tables import Cell, Links
from raykit.report.page.words import clean, evenly, name
from raykit.report.qc_series import (
    Examined,
    FieldSeries,
    MetricSeries,
    examined,
    field_series,
    fields_of,
    judged_of,
    metric_series,
    metrics_of,
)
from raykit.store import layout

MAX_COLUMNS, MAX_METRICS, MAX_STRATA, MAX_OTHERS = 60, 24, 20, 80

SIGNS: dict[str, tuple[str, str]] = {
    "ok": ("\u2713", "passed"),
    "bad": ("\u2715", "failed"),
    "over": ("\u25b2", "a stratum beyond the threshold, which is of all together"),
    "value": ("", "not judged: a value"),
    "none": ("?", "undefined"),
    "claimed": ("\u25d0", "being examined"),
    "pending": ("\u25cb", "pending"),
    "missing": ("\u00b7", "not asked yet"),
    "retrying": ("\u21bb", "an attempt came to nothing; tried again"),
    "parked": ("\u2016", "parked: a person is needed"),
}
"""By class of a cell: its sign and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of cells."""

    label: str
    cells: tuple[Cell, ...]
    css: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The whole grid."""

    headers: tuple[Cell, ...]
    groups: tuple[tuple[str, tuple[Row, ...]], ...]
    """By metric or field that something judges: its threshold in words, and its rows."""
    others: tuple[Row, ...]
    """Metrics that nothing judges, over all units."""
    keys: tuple[tuple[str, str, str], ...]
    """Classes that are there: class, sign, meaning."""
    findings: tuple[Cell, ...]
    """What failed, and why."""
    notes: tuple[str, ...]


def grid_of(page: Page, links: Links) -> Grid | None:
    """The grid; None where there is nothing that has to be examined."""
    qc = page.qc
    if qc is None or not qc.backlog.standings:
        return None
    return _Maker(qc.suite, qc.backlog.standings, links).make()


class _Maker:
    def __init__(self, suite: Suite, standings: Sequence[Standing], links: Links) -> None:
        bad = [n for n, each in enumerate(standings) if each.red or each.status == "parked"]
        self.all = standings
        self.shown = [standings[n] for n in evenly(len(standings), MAX_COLUMNS, bad)]
        self.suite = suite
        self.links = links
        self.found: Examined = examined(standings)
        self.at = {int(update): n for n, update in enumerate(self.found.updates.tolist())}

    def make(self) -> Grid:
        metrics, fields = metrics_of(self.found, self.suite), fields_of(self.found, self.suite)
        named = judged_of(self.suite)
        others = [each for each in metrics if each not in named]
        groups = [
            ("", tuple(self._whole())),
            *(self._metric(metric_series(self.found, self.suite, each)) for each in named[:MAX_METRICS]),
            *(self._field(field_series(self.found, self.suite, each)) for each in fields[:MAX_METRICS]),
        ]
        rows = [row for _, rows in groups for row in rows]
        rows += (other := [self._other(each) for each in others[:MAX_OTHERS]])
        used = {cell.css for row in rows for cell in row.cells}
        return Grid(
            headers=tuple(self._header(each) for each in self.shown),
            groups=tuple(groups),
            others=tuple(other),
            keys=tuple((css, *SIGNS[css]) for css in SIGNS if css in used),
            findings=tuple(self._findings()),
            notes=tuple(self._notes(len(named), len(others), len(fields))),
        )

    def _header(self, standing: Standing) -> Cell:
        receipt = standing.receipt
        text = f"{standing.update:,}"
        if receipt is None:
            return Cell(text=text, title=f"request {standing.request.id}: {standing.status}")
        key = layout.qc_receipt(receipt.experiment, receipt.request)
        return Cell(text=text, href=self.links.to(key), title=f"receipt {receipt.digest}\n{key}")

    # --- the checkpoint as a whole --------------------------------------------------------------------------

    def _whole(self) -> Iterator[Row]:
        yield Row(label="verdict", css="whole", cells=tuple(map(self._verdict, self.shown)))
        yield Row(label="units scored", cells=tuple(map(self._units, self.shown)))
        yield Row(label="reviewed", css="said", cells=tuple(map(self._review, self.shown)))

    def _verdict(self, standing: Standing) -> Cell:
        receipt = standing.receipt
        if receipt is None:
            return _waits(standing.status)
        if standing.said.disputed:
            return _cell("bad", "two answers", "two attempts at this question had different answers")
        if standing.turned_down:
            return _cell("bad", "", standing.why_not)
        css = "ok" if receipt.verdict == "passed" else "bad"
        return _cell(css, "", None if css == "ok" else told(standing))

    def _units(self, standing: Standing) -> Cell:
        receipt = standing.receipt
        if receipt is None:
            return _waits(standing.status)
        units = receipt.units
        says = f"{units.requested} requested, {units.scored} scored, {units.failed} failed, {units.missing} missing"
        whole = units.scored == units.requested
        return _cell(
            "value" if whole else "over",
            f"{units.scored:,}" if whole else f"{units.scored:,}/{units.requested:,}",
            says,
        )

    def _review(self, standing: Standing) -> Cell:
        review = standing.review
        if standing.receipt is None:
            return _waits(standing.status)
        if review is None:
            return Cell(
                text=f"{SIGNS['pending'][0]} not yet", css="pending", title="no person has looked at it"
            )
        event = review.event
        scripted = " (scripted)" if event.scripted else ""
        css = "ok" if event.verdict == "passed" else "bad"
        return _cell(css, f"{name(event.person)}{scripted}", f"{event.verdict}: {clean(event.note, 300)}")

    # --- metrics --------------------------------------------------------------------------------------------

    def _metric(self, series: MetricSeries) -> tuple[str, tuple[Row, ...]]:
        words = "" if series.limit is None else f", fails if {series.limit.words}"
        rows = [Row(label="all", css="whole", cells=tuple(self._scores(series, None)))]
        for stratum in _strata(series) if len(series.strata) > 1 else ():
            rows.append(Row(label=name(stratum), cells=tuple(self._scores(series, stratum))))
        return f"{name(series.metric)}{words}", tuple(rows)

    def _other(self, metric: str) -> Row:
        series = metric_series(self.found, self.suite, metric)
        return Row(label=name(metric), cells=tuple(self._scores(series, None)))

    def _scores(self, series: MetricSeries, stratum: str | None) -> Iterator[Cell]:
        values = series.pooled if stratum is None else series.strata[stratum]
        for standing in self.shown:
            at = self.at.get(standing.update)
            if at is None:
                yield _waits(standing.status)
                continue
            value = None if np.isnan(values[at]) else float(values[at])
            yield _cell(self._score_css(series, stratum, at, value), _brief(value))

    def _score_css(self, series: MetricSeries, stratum: str | None, at: int, value: float | None) -> str:
        of = self.found.receipts[at].findings
        if any(each.what == series.metric and each.stratum == stratum for each in of):
            return "bad"
        if value is None:
            return "none"
        if series.limit is None or series.unjudged[at]:
            return "value"
        if stratum is None:
            return "ok"
        return "over" if series.limit.failed_by(value) else "value"

    # --- fields ---------------------------------------------------------------------------------------------

    def _field(self, series: FieldSeries) -> tuple[str, tuple[Row, ...]]:
        rule = series.rule
        words = "" if rule is None else f", fails below {rule.collapse:g} of its spread at update 0"
        row = Row(label="spread", css="whole", cells=tuple(self._spreads(series)))
        return f"{name(series.field)}{words}", (row,)

    def _spreads(self, series: FieldSeries) -> Iterator[Cell]:
        for standing in self.shown:
            at = self.at.get(standing.update)
            if at is None:
                yield _waits(standing.status)
                continue
            share = None if np.isnan(series.shares[at]) else float(series.shares[at])
            css = "bad" if series.failed[at] else "none" if share is None else "ok"
            if css == "ok" and (series.rule is None or standing.update == 0):
                css = "value"
            yield _cell(css, _brief(share), _about(self.found.receipts[at], series.field))

    # --- words ----------------------------------------------------------------------------------------------

    def _findings(self) -> Iterator[Cell]:
        for standing in self.all:
            if (receipt := standing.receipt) is not None:
                href = self.links.to(layout.qc_receipt(self.suite.experiment, standing.request.id))
                for finding in (*receipt.findings, *standing.notes):
                    text = f"update {standing.update:,}: {_finding(finding)}"
                    yield Cell(text=text, href=href, title=receipt.digest)
            if standing.status == "parked":
                last = standing.said.failures[-1] if standing.said.failures else None
                why = "" if last is None else f": {last.kind}, {clean(last.message, 300)}"
                yield Cell(text=f"update {standing.update:,}: parked, a person is needed{why}")

    def _notes(self, named: int, others: int, fields: int) -> Iterator[str]:
        if len(self.shown) < len(self.all):
            yield f"{len(self.shown):,} of {len(self.all):,} checkpoints are shown: those that failed and others evenly"
        counts = ((named, MAX_METRICS, "metrics"), (others, MAX_OTHERS, "metrics that nothing judges"))
        for count, most, what in (*counts, (fields, MAX_METRICS, "fields")):
            if count > most:
                yield f"{most} of {count:,} {what} are shown"
        scores = [
            each.metrics.get(metric) for each in self.found.receipts for metric in judged_of(self.suite)
        ]
        if any(score is not None and len(score.strata) > MAX_STRATA for score in scores):
            yield f"of more than {MAX_STRATA} strata, those that score worst at the newest checkpoint are shown"


def _strata(series: MetricSeries) -> list[str]:
    """All strata, or the worst of many at the newest checkpoint."""
    names = list(series.strata)
    if len(names) <= MAX_STRATA:
        return names
    sign = -1.0 if series.better == "less" else 1.0

    def badness(stratum: str) -> float:
        values = series.strata[stratum]
        known = values[~np.isnan(values)]
        return sign * float(known[-1]) if known.size else float("-inf")

    return sorted(names, key=badness)[:MAX_STRATA]


def _cell(css: str, text: str, title: str | None = None) -> Cell:
    sign, meaning = SIGNS[css]
    return Cell(text=f"{sign} {text}".strip(), css=css, title=title or meaning)


def _waits(status: Status) -> Cell:
    css = status if status in SIGNS else "pending"
    return Cell(text=SIGNS[css][0], css=css, title=SIGNS[css][1])


def _brief(value: float | None) -> str:
    """Three decimals where they tell something, so that a row can be read along its points."""
    if value is None:
        return ""
    size = abs(value)
    if value == round(value) and size < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3f}" if 0.01 <= size < 1000 else f"{value:.3g}"


def _about(receipt: Receipt, what: str) -> str | None:
    return "; ".join(_finding(each) for each in receipt.findings if each.what == what) or None


def _finding(finding: QcFinding) -> str:
    """A finding in the words of the command line, each of its parts as long as anybody reads."""
    short = finding.model_copy(
        update={
            "what": name(finding.what),
            "stratum": finding.stratum and name(finding.stratum),
            "found": clean(finding.found, 300),
            "rule": clean(finding.rule, 200),
        }
    )
    if finding.kind == "stratum-lost":
        return f"stratum {short.stratum}: {short.found}, wanted {short.rule}"
    return reason(short)
