"""The charts and contact sheets of examinations, drawn while their runs go on. Derived: none ends a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from raykit.errors import RaykitError
from raykit.read.qc import QcRead
from raykit.read.qc_runs import RunsReader, Whose
from raykit.report.qc_files import put_pictures
from raykit.store.base import ObjectStore


def draw_of(
    store: ObjectStore, experiment: str, whose: Whose, *, say: Callable[[str], None]
) -> dict[str, str]:
    """Draw every picture of one run or of every trial anew; the keys by file."""
    return draw_lagging(store, RunsReader(store, experiment, whose), drawn={}, say=say)


def draw_lagging(
    store: ObjectStore,
    reader: RunsReader,
    *,
    drawn: dict[str, int],
    most: int | None = None,
    say: Callable[[str], None],
) -> dict[str, str]:
    """Draw the pictures of runs that have more receipts than their newest pictures show; the keys by file.

    `drawn` says by run how many those show, and is kept up to date; `most` is for how many runs, those that lag most.
    Each file of a trial has its run's name before its own. What cannot be drawn is said, and stops nothing.
    """
    keys: dict[str, str] = {}
    try:
        found = reader.look(now=time.time())
        if found is None:
            return keys
        lags = {read.run: _receipts(read) - drawn.get(read.run, 0) for read in found.reads}
        lagging = sorted(
            (read for read in found.reads if lags[read.run] > 0), key=lambda read: -lags[read.run]
        )
        for read in lagging[:most]:
            keys |= put_pictures(
                store,
                reader.experiment,
                suite=read.suite,
                roster=reader.roster(read.suite),
                standings=read.backlog.standings,
                title=f"{reader.experiment}/{read.run}" if found.trials else None,
                prefix=f"{read.run}-" if found.trials else "",
                say=say,
            )
            drawn[read.run] = _receipts(read)
    except RaykitError as error:
        say(f"the pictures of QC could not be drawn: {error}")
    return keys


def _receipts(read: QcRead) -> int:
    return sum(each.receipt is not None for each in read.backlog.standings)
