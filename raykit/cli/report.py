"""`raykit report`: one experiment as a page of HTML, made from the store alone. No Ray needed, and no network after."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import look, output, searchlook
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_root, open_root
from raykit.errors import InvalidInput, NotFoundError, StoreUnavailableError

if TYPE_CHECKING:
    from raykit.read import Root as ReadRoot
    from raykit.read.page import Page
    from raykit.report.page import Told

PAGE = "index.html"


def report(
    name: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="experiment, or experiment/run.")],
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the page here as well.")
    ] = None,
    root: Root = DEFAULT_ROOT,
    as_json: Json = False,
) -> None:
    """One page: the decision, how it stands, money, curves, QC, timeline, checkpoints, and what all of it rests on.

    Self-contained HTML: it needs no network and no server. It lies in the store, at report/index.html of the
    experiment, with links to the objects that its numbers are from. What is damaged is named on it.

    Raises:
        UnsafeNameError: it cannot be a name.
        NotFoundError: there is no such experiment.
        InvalidInput: the experiment has several runs, or FILE cannot be written.
        StoreUnavailableError: the store did not answer.
    """
    from raykit.read.page import page_of
    from raykit.report.page import render
    from raykit.store import layout

    found = open_root(root)
    page = page_of(found, name)
    pictures, trouble = _pictures(found, page)
    sheet = _sheet(found, page, pictures)
    samples = _samples(found, page, trouble)
    trials = _trials(found, page, trouble)
    told = _told(page, at_root(root))
    place = layout.report(page.experiment, _file(page))
    key: str | None = place
    try:
        found.store.put_derived(
            place, render(page, told, sheet=sheet, samples=samples, trials=trials).encode()
        )
    except StoreUnavailableError as error:
        if file is None:
            raise
        key = None  # a store that one may only read
        trouble.append(f"the page could not be kept in the store: {error.message}")
    if file is not None:
        _write(file, render(page, told, sheet=sheet, samples=samples, trials=trials, linked=False))
    made = _Made(
        page=page, told=told, url=found.store.url, key=key, pictures=pictures, file=file, trouble=trouble
    )
    if as_json:
        output.print_json(_facts(made))
    else:
        output.print_lines(_lines(made))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What the command has done."""

    page: Page
    told: Told
    url: str
    key: str | None
    """Of the page in the store; None if it did not take it."""
    pictures: Mapping[str, str]
    file: Path | None
    trouble: Sequence[str]
    """What could not be drawn or kept."""


def _pictures(found: ReadRoot, page: Page) -> tuple[dict[str, str], list[str]]:
    """The charts and the contact sheet, drawn anew; and what could not be drawn."""
    from raykit.report.qc_files import put_pictures

    trouble: list[str] = []
    if page.qc is None or page.roster is None:
        return {}, trouble
    drawn = put_pictures(
        found.store,
        page.experiment,
        suite=page.qc.suite,
        roster=page.roster,
        standings=page.standings,
        title=_title(page),
        say=trouble.append,
    )
    return drawn, trouble


def _title(page: Page) -> str:
    decision = page.settings.get("decision")
    return f"{page.experiment}: {decision}" if decision else page.experiment


def _sheet(found: ReadRoot, page: Page, pictures: dict[str, str]) -> bytes | None:
    """The contact sheet; drawn again for the page alone where the store did not take it."""
    from raykit.report.qc_files import SHEET, sheet_png

    if page.roster is None:
        return None
    try:
        if SHEET in pictures:
            return found.store.get(pictures[SHEET])
    except NotFoundError:
        pass  # somebody has removed it since: it is a derived file
    return sheet_png(found.store, page.experiment, page.roster, page.standings, title=_title(page))


def _samples(found: ReadRoot, page: Page, trouble: list[str]) -> dict[str, bytes]:
    """Pictures of rows of its synthetic sets, drawn anew and kept in the store; by name."""
    from raykit.report.sets import put_samples

    return put_samples(found.store, page.sets, say=trouble.append) if page.sets else {}


def _trials(found: ReadRoot, page: Page, trouble: list[str]) -> dict[str, bytes]:
    """The charts of its search, drawn anew and kept in the store; by file."""
    from raykit.report.search_charts import put_search_pictures

    if page.search is None:
        return {}
    drawn = put_search_pictures(found.store, page.search, say=trouble.append)
    return {key.rpartition("/")[2]: picture for key, picture in drawn.items()}


def _file(page: Page) -> str:
    """The page's file: a trial of a search has one beside that of its search."""
    trial = page.view is not None and page.view.row is not None
    return f"{page.run}.html" if trial else PAGE


def _told(page: Page, at: str) -> Told:
    """What the terminal says of this run."""
    from raykit.cli.dossier_facts import came_to, made_of
    from raykit.report.page import Told, needs

    view, dossier = page.view, page.dossier
    state, wanted = "not launched", []
    if page.search is not None:
        state, wanted = page.search.state, list(searchlook.wants(page.search, page.made_at, at))
    elif view is not None:
        state, wanted = look.word(view), list(look.wants(view, page.made_at, at))
    return Told(
        state=state,
        needed=needs(wanted),
        made=() if dossier is None else tuple(_said(made_of(dossier))),
        came=() if dossier is None else tuple(_said(came_to(dossier))),
    )


def _said(facts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A name that comes again is not repeated."""
    before = ""
    for name, text in facts:
        yield "" if name == before else name, text
        before = name


def _write(file: Path, html: str) -> None:
    """A whole page or none: what lies there is replaced only by a page that is complete."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_text(html, "utf-8")
        partial.replace(file)
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written: {error.strerror}", field="--output", value=str(file)
        ) from error
    finally:
        partial.unlink(missing_ok=True)


# --- what is printed ----------------------------------------------------------------------------------------


def _facts(made: _Made) -> dict[str, Any]:
    return {
        **made.page.plain(),
        "state": made.told.state,
        "needed": [need.text for need in made.told.needed],
        "page": made.key,
        "pictures": dict(made.pictures),
        "file": None if made.file is None else str(made.file),
        "trouble": list(made.trouble),
    }


def _lines(made: _Made) -> Iterator[str]:
    if made.key is not None:
        yield f"{made.page.experiment}: {made.url}/{made.key}"
    if made.file is not None:
        yield f"{made.page.experiment}: {made.file}, without links into the store"
    if made.pictures:
        yield f"  {look.many(len(made.pictures), 'QC picture')} drawn beside it"
    yield from (f"  {text}" for text in made.trouble)
    yield from (f"  damaged: {text}" for text in made.page.damaged)
