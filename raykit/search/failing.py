"""Rows that fail one like the other before anything works: a bug is met twice, and not once by every gang.

It is no judgement of a setting: once one row has come to an end as planned, the code works, and settings may fail.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from raykit.search.table import RowState, SearchState
from raykit.search.worth import is_unreported

ALIKE = 2
"""So many rows that failed alike are a defect of what they share."""
MAX_DETAIL = 300
SEALED = (
    "a search keeps its plan and code: if they are at fault, cancel it, and give what is mended another name"
)

_WORKS = frozenset({"completed", "stopped-by-scheduler"})
_NUMBER = re.compile(r"0x[0-9a-f]+|\d[\d.,_]*(?:e[+-]?\d+)?", re.IGNORECASE)


def shared_failure(state: SearchState, *, since: float) -> str | None:
    """Why no other trial should meet what the failed ones have met; None as long as there is no reason to stop.

    Only failures after `since` count: what was there before, a person has seen.
    """
    ends = {row.ended.end for row in state.rows if row.ended is not None}
    if ends & _WORKS or all(row.ended is not None for row in state.trials):
        return None
    alike: dict[str, list[RowState]] = defaultdict(list)
    for row in state.rows:
        if row.ended is not None and row.ended.end == "failed" and (row.ended_at or 0.0) > since:
            alike[signature(row.ended.detail)].append(row)
    most = max(alike.values(), key=len, default=[])
    return _words(most) if len(most) >= ALIKE or any(map(_hopeless, most)) else None


def _hopeless(row: RowState) -> bool:
    """One such row says what becomes of all."""
    return row.ended is not None and is_unreported(row.ended.detail)


def signature(detail: str | None) -> str:
    """What two failures of one cause have in common: their kind and words, without the numbers."""
    return _NUMBER.sub("#", detail or "")


def _words(rows: Sequence[RowState]) -> str:
    ended = rows[0].ended
    why = "" if ended is None or ended.detail is None else f": {ended.detail[:MAX_DETAIL]}"
    runs = ", ".join(row.run for row in rows[:ALIKE])
    failed = "one row failed as all would" if len(rows) == 1 else f"{len(rows)} rows failed alike"
    return f"{failed}, and none has come through ({runs}){why}; {SEALED}"
