"""The charts and the contact sheet of a run's examinations, drawn while it goes on. Derived: none ends a run."""

from __future__ import annotations

import time
from collections.abc import Callable

from raykit.errors import RaykitError
from raykit.read.qc import QcReader
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
