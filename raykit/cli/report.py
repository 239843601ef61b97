"""`raykit report`: one experiment as a page of HTML, made from the store alone. No Ray needed, and no network after."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raykit.cli import look, output
from raykit.cli.options import DEFAULT_ROOT, Json, Root, at_root, open_root
from raykit.errors import InvalidInput, NotFoundError

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
    sheet = _sheet(found, pictures)
    told = _told(page, at_root(root))
    key = layout.report(page.experiment, PAGE)
    found.store.put_derived(key, render(page, told, sheet=sheet).encode())
    if file is not None:
        _write(file, render(page, told, sheet=sheet, linked=False))
    if as_json:
        output.print_json(_facts(page, told, key, pictures, file))
    else:
        output.print_lines(_lines(found, page, key, pictures, file, trouble))


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


def _sheet(found: ReadRoot, pictures: dict[str, str]) -> bytes | None:
    from raykit.report.qc_files import SHEET

    try:
        return found.store.get(pictures[SHEET]) if SHEET in pictures else None
    except NotFoundError:
        return None  # somebody has removed it since: it is a derived file


def _told(page: Page, at: str) -> Told:
    """What the terminal says of this run."""
    from raykit.cli.dossier_facts import came_to, made_of
    from raykit.report.page import Told, needs

    view, dossier = page.view, page.dossier
    return Told(
        state="not launched" if view is None else look.word(view),
        needed=needs([] if view is None else list(look.wants(view, page.made_at, at))),
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


def _facts(page: Page, told: Told, key: str, pictures: dict[str, str], file: Path | None) -> dict[str, Any]:
    return {
        **page.plain(),
        "state": told.state,
        "needed": [need.text for need in told.needed],
        "page": key,
        "pictures": pictures,
        "file": None if file is None else str(file),
    }


def _lines(
    found: ReadRoot, page: Page, key: str, pictures: dict[str, str], file: Path | None, trouble: list[str]
) -> Iterator[str]:
    yield f"{page.experiment}: {found.store.url}/{key}"
    if file is not None:
        yield f"  and in {file}, without links into the store"
    if pictures:
        yield f"  {look.many(len(pictures), 'QC picture')} drawn beside it"
    yield from (f"  {text}" for text in trouble)
    yield from (f"  damaged: {text}" for text in page.damaged)


__all__ = ["report"]
