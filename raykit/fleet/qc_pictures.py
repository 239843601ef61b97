"""The charts and the contact sheet of a run's examinations, drawn while it goes on. Derived: none ends a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from raykit.errors import RaykitError
from raykit.read.qc import QcRead, QcReader
from raykit.read.qc_runs import RunsReader, Whose
from raykit.report.qc_files import put_pictures
from raykit.store.base import ObjectStore


def draw_qc(store: ObjectStore, reader: QcReader, *, say: Callable[[str], None]) -> dict[str, str]:
    """Draw every picture anew; the keys by file. What cannot be drawn is said, and stops nothing."""
    try:
        read = reader.look(now=time.time())
        if read is None:
            return {}
        return put_pictures(
            store,
            reader.experiment,
            suite=read.suite,
            roster=reader.roster(read.suite),
            standings=read.backlog.standings,
            say=say,
        )
    except RaykitError as error:
        say(f"the pictures of QC could not be drawn: {error}")
        return {}


def draw_of(
    store: ObjectStore, experiment: str, whose: Whose, *, say: Callable[[str], None]
) -> dict[str, str]:
    """Draw every picture of one run or of every trial anew; the keys by file."""
    if isinstance(whose, str):
        return draw_qc(store, QcReader(store, experiment, whose), say=say)
    return draw_runs(store, RunsReader(store, experiment, whose), drawn={}, say=say)


def draw_runs(
    store: ObjectStore,
    reader: RunsReader,
    *,
    drawn: dict[str, int],
    most: int | None = None,
    say: Callable[[str], None],
) -> dict[str, str]:
    """Draw the pictures of trials that have more receipts than their newest pictures show; the keys by file.

    `drawn` says by run how many those show, and is kept up to date; `most` is for how many trials, those that lag most.
    Each file has its run's name before its own.
    """
    keys: dict[str, str] = {}
    try:
        found = reader.look(now=time.time())
        done = {} if found is None else {read.run: _receipts(read) for read in found.reads}
        lagging = sorted(done, key=lambda run: drawn.get(run, 0) - done[run])
        for run in [run for run in lagging if done[run] > drawn.get(run, 0)][:most]:
            assert found is not None
            read = found.of(run)
            assert read is not None
            keys |= put_pictures(
                store,
                reader.experiment,
                suite=read.suite,
                roster=reader.roster(read.suite),
                standings=read.backlog.standings,
                title=f"{reader.experiment}/{read.run}",
                prefix=f"{read.run}-",
                say=say,
            )
            drawn[run] = done[run]
    except RaykitError as error:
        say(f"the pictures of QC could not be drawn: {error}")
    return keys


def _receipts(read: QcRead) -> int:
    return sum(each.receipt is not None for each in read.backlog.standings)
