"""Searches: the table of trials, what has become of each row, what comes next, and what is picked in the end. Pure.

space  the settings that a search may try: all of a grid, or those drawn at random
table  the rows as they are registered, and the state that a search's log folds into
turn   what the process that runs a search does next
failing  rows that fail one like the other
pick   the trials by what they came to, and the best setting that was observed
"""

from __future__ import annotations

from raykit.search.failing import shared_failure
from raykit.search.pick import excluded, pick, rank
from raykit.search.space import Space, distinct, grid, space_of
from raykit.search.table import (
    SEARCH,
    RowState,
    SearchState,
    Status,
    fold,
    row_of,
    rows_of,
    run_of,
    spared_rows,
)
from raykit.search.turn import Done, Draw, EndRow, Start, Turn, Wait, next_turn
from raykit.search.worth import Worth, unreported, worth_of

__all__ = [
    "SEARCH",
    "Done",
    "Draw",
    "EndRow",
    "RowState",
    "SearchState",
    "Space",
    "Start",
    "Status",
    "Turn",
    "Wait",
    "Worth",
    "distinct",
    "excluded",
    "fold",
    "grid",
    "next_turn",
    "pick",
    "rank",
    "row_of",
    "rows_of",
    "run_of",
    "shared_failure",
    "space_of",
    "spared_rows",
    "unreported",
    "worth_of",
]
