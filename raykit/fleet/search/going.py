"""Whether a search that has stopped could go on: what money says to the next row, before anything is opened again."""

from __future__ import annotations

import time
from dataclasses import replace

from raykit.errors import RaykitError, Refused, Stopped
from raykit.fleet.door import begin
from raykit.fleet.site import Site, make_ready
from raykit.fleet.spending import PREVIEW, Approving, approval_of, attempts_of, draft_of, require_same_ceiling
from raykit.pauses import Acts
from raykit.records import BY_BUDGET
from raykit.search import RowState, SearchState
from raykit.store.search import read_search


def refusal_of(site: Site, acts: Acts, approved: Approving | None) -> RaykitError | None:
    """What the door would say to the next row, if it is no: also to one that a budget has ended. Writes nothing.

    Raises:
        PlanError: the recipe, its params, data or splits are not usable.
        CorruptError: the search, a log or the ledger is damaged.
        StoreUnavailableError: the store did not answer.
    """
    state = read_search(site.store, site.name)
    row = None if state is None else next_row(state)
    if row is None:
        return None
    log, now = replace(site, run=row.run).run_log("reader"), time.time()
    try:
        draft = draft_of(site, make_ready(site).lock, log)
        require_same_ceiling(site, draft)
        approval = None if approved is None else approval_of(site, draft, approved)
        if approval is not None:
            draft.apply(approval, now)
        asked = replace(attempts_of(site, log, acts, draft), trial=row.run)
        begin(asked, PREVIEW, 1, acts=acts, now=now)(draft)
    except (Refused, Stopped) as refusal:
        return refusal
    return None


def next_row(state: SearchState) -> RowState | None:
    """A row that is to go on: one that was begun before one that was not."""
    rows = [row for row in state.rows if row.ended is None or row.ended.end in BY_BUDGET]
    return min(rows, key=lambda row: (not row.launches, row.n), default=None)
