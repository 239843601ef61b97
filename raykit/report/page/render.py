"""One experiment as one page of HTML that needs nothing else: no script, no request, light and dark, for print too.

Every word of it comes from a store that others wrote to. So nothing is ever put into the page as markup: everything is
escaped by the template, after control and direction characters were taken out of it, and the page's own policy lets
nothing run or load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from raykit.read.page import Page
from raykit.report.page import chart, evidence, grid, lines, searching, sets, summary, timeline
from raykit.report.page.images import Picture, picture_of
from raykit.report.page.tables import Links
from raykit.report.page.words import clean, many
from raykit.report.qc_series import (
    drawn_of,
    examined,
    field_series,
    fields_of,
    judged_of,
    metric_series,
)

HERE = Path(__file__).parent
MAX_SHEET_BYTES = 1_500_000
"""A larger contact sheet stays in the store, and the page says where."""
MAX_PAGE_CHARTS = 24
MARK_SIGNS = {"cross": "\u2715", "cross-else": "\u2715", "ring": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One line of what a person has to do, or the command for it."""

    text: str
    command: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the command line says of a run in words of its own: the page says the same."""

    state: str
    needed: tuple[Need, ...] = ()
    made: tuple[tuple[str, str], ...] = ()
    """What it is made of."""
    came: tuple[tuple[str, str], ...] = ()
    """What it came to."""


def needs(texts: Sequence[str]) -> tuple[Need, ...]:
    """Lines of the terminal: a command begins with an arrow."""
    stripped = [text.strip() for text in texts]
    return tuple(
        Need(text=text.removeprefix("->").strip(), command=text.startswith("->")) for text in stripped if text
    )


def render(
    page: Page,
    told: Told,
    *,
    sheet: bytes | None = None,
    samples: Mapping[str, bytes] | None = None,
    trials: Mapping[str, bytes] | None = None,
    linked: bool = True,
) -> str:
    """The page. `samples` are pictures of rows of its synthetic sets, by name; `trials` are the charts of its search,
    by file. `linked` says that it lies at its place
    in the store, from where its objects can be reached."""
    links = Links(experiment=page.experiment, linked=linked)
    embedded = sheet_of(sheet, page)
    charts, others = qc_charts(page)
    return _template().render(
        page=page,
        told=told,
        style=_style(),
        signs=MARK_SIGNS,
        many=many,
        version=metadata.version("raykit"),
        damaged=page.damaged,
        question=summary.question(page),
        health=summary.health(page),
        qc_state=summary.qc_state(page),
        class_state=summary.class_state(page),
        fallen=summary.fallen(page),
        chosen=list(summary.chosen(page)),
        figures=_figures(page),
        search=searching.search_of(page, links, trials or {}),
        purse=summary.purse(page),
        budget=summary.budget(page),
        heard=summary.heard(page),
        learning=lines.learning_chart(page.learning),
        grid=grid.grid_of(page, links),
        charts=charts,
        other_charts=others,
        sheet=embedded,
        sheet_note=None
        if sheet is None or embedded is not None
        else "The contact sheet is too large for a page.",
        no_qc=_no_qc(page),
        timeline=timeline.timeline_of(page),
        sets=sets.sets_of(page, links, samples or {}),
        waiting=sets.waiting(page),
        checkpoints=evidence.checkpoints(page, links),
        alternatives=evidence.alternatives(page),
        rows=evidence.row_changes(page),
        tables=[
            evidence.gates(page),
            evidence.attempts(page, links),
            evidence.approvals(page),
            evidence.reviews(page),
            evidence.candidates(page),
        ],
        digests=evidence.digests(page, links),
        unknown=_unknown(page),
    )


def _figures(page: Page) -> list[summary.Figure]:
    if page.search is None:
        return list(summary.now(page))
    return [*searching.figures_of(page.search), summary.cost(page.money)]


def qc_charts(page: Page) -> tuple[list[chart.Chart], list[chart.Chart]]:
    """One chart a metric, and two a field: of what the plan names, and of everything else."""
    if page.qc is None:
        return [], []
    suite, found = page.qc.suite, examined(page.standings)
    if not found.receipts:
        return [], []
    named = judged_of(suite)
    made: list[chart.Chart] = []
    others: list[chart.Chart] = []
    for metric in drawn_of(found, suite)[:MAX_PAGE_CHARTS]:
        one = lines.metric_chart(metric_series(found, suite, metric))
        if one is not None:
            (made if metric in named else others).append(one)
    for field in fields_of(found, suite)[:MAX_PAGE_CHARTS]:
        made += lines.field_charts(field_series(found, suite, field))
    return made, others


def sheet_of(data: bytes | None, page: Page) -> Picture | None:
    """The contact sheet, if it is a PNG that a page can hold."""
    shown = len(page.roster.shown) if page.roster is not None else 0
    alt = f"Panels of {shown} units of the roster at every examined checkpoint"
    return picture_of(data, alt, most_bytes=MAX_SHEET_BYTES)


def _no_qc(page: Page) -> str:
    if page.damaged:
        return "The examinations cannot be read: the top of this page says why."
    if page.search is not None:
        return f"Its trials are examined one by one: raykit qc status {page.experiment} has all of them."
    return "No checkpoint has to be examined yet." if "qc" in page.settings else "The plan has no [qc]."


def _unknown(page: Page) -> Sequence[str]:
    if page.dossier is None:
        return ("its whole ledger: it cannot be read",)
    return page.dossier.unknown


# --- the template -------------------------------------------------------------------------------------------


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_plain,
    )
    return environment.get_template("page.html")


def _plain(value: Any) -> Any:
    """What the template prints, before it is escaped. Markup is the template's own: macros, and the style."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return clean(value, most=len(value))


@cache
def _style() -> Markup:
    return Markup((HERE / "style.css").read_text("utf-8"))  # noqa: S704 - our own file, and nothing is put into it
