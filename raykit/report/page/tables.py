"""Tables of the page: cells that know what they link to, and the lists that are made of them. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from raykit.report.page.words import short
from raykit.store import layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: what it says, how it looks, where it leads, and more on it."""

    text: str
    css: str = ""
    href: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A caption, headers and rows; `note` says what is left out."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str | None = None


def cell(text: object, css: str = "") -> Cell:
    """A plain cell."""
    return Cell(text=str(text), css=css)


def right(text: object) -> Cell:
    """A number."""
    return Cell(text=str(text), css="n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """From the page's place in the store to its objects; nowhere for a page that lies somewhere else."""

    experiment: str
    linked: bool

    def to(self, key: str | None) -> str | None:
        """A link that holds wherever the store is moved to."""
        if key is None or not self.linked:
            return None
        return posixpath.relpath(key, posixpath.dirname(layout.report(self.experiment, "index.html")))

    def digest(self, digest: str, key: str | None) -> Cell:
        """The beginning of a digest, whole in its title, with a link to the object."""
        where = f"{digest}\n{key}" if key is not None else digest
        return Cell(text=short(digest), css="d", href=self.to(key), title=where)


def newest(rows: Sequence[tuple[Cell, ...]], most: int) -> tuple[tuple[tuple[Cell, ...], ...], str | None]:
    """The last `most` rows, and a note of how many are before them."""
    left_out = len(rows) - most
    if left_out <= 0:
        return tuple(rows), None
    return tuple(rows[-most:]), f"and {left_out:,} before them: raykit show has all"
