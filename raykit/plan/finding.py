"""One thing that is wrong with a plan."""

from __future__ import annotations

from typing import NamedTuple

Loc = tuple[str | int, ...]


class Finding(NamedTuple):
    """One thing that is wrong: where, what, what would pass, and what to do."""

    loc: Loc
    problem: str
    rule: str | None = None
    remedy: str | None = None
    line: int | None = None
    """Where the finding is about a line and not about a key."""
