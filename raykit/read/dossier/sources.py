"""Where the rows of an experiment are from: as its plan says, with the checksum that the store has of them.

What a source is called is in the plan and in the experiment's log, never here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raykit.read.dossier.frozen import Frozen, in_order
from raykit.read.dossier.judgement import Learned
from raykit.records import RowsCounted


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """One source of rows, and what is known of it."""

    role: str
    """`all` where one source is divided among the roles."""
    source: str
    rows: int | None
    digest: str | None
    how: str
    """How rows and digest are known, or that they are not."""


def sources_of(frozen: Frozen, learned: Learned) -> Iterator[SourceRows]:
    """The sources of the newest plan.

    Data that the recipe opens itself are identified by their rows: the members' manifest has the content digest of
    each. A source that the plan names is known as far as somebody has counted it.
    """
    lock = frozen.lock
    if lock is None:
        return
    data = lock.settings.get("data")
    if not isinstance(data, Mapping):
        yield SourceRows(
            role="all",
            source=f"what {lock.settings.get('recipe', 'the recipe')} opens",
            rows=sum(lock.rows.values()),
            digest=lock.data,
            how="the content of every row is in the manifest of the split",
        )
        return
    for role, names in in_order(data).items():
        if role not in ("mix", "group"):
            yield from (_named(role, str(name), learned) for name in _all(names))


def _named(role: str, source: str, learned: Learned) -> SourceRows:
    counted = [
        said.event
        for said in learned.counted
        if isinstance(said.event, RowsCounted) and said.event.source == source
    ]
    if not counted:
        return SourceRows(role=role, source=source, rows=None, digest=None, how="not known: nobody counted")
    newest = counted[-1]
    return SourceRows(role=role, source=source, rows=newest.rows, digest=newest.digest, how=newest.how)


def _all(names: Any) -> Sequence[Any]:
    return names if isinstance(names, list | tuple) else (names,)


__all__ = ["SourceRows", "sources_of"]
