"""What a failed check means for the run whose checkpoint it is.

The plan says it. `continue` says it once and goes on; `pause` pauses the experiment, as a person would; `stop` ends the
run as failed, and no full run starts again before a repair is recorded. A failed checkpoint that a person has reviewed,
or gone on in spite of, is answered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from raykit.errors import GateError
from raykit.fleet.pool.pool import Glance
from raykit.fleet.site import RUN
from raykit.qc.backlog import Standing, told, unheeded
from raykit.read.qc import QcRead, read_qc
from raykit.read.qc_runs import MAIN
from raykit.store.base import ObjectStore
from raykit.store.people import pause

QC_GATE = "qc"
"""What a failed check fails where the plan says that it ends the run."""


def unheeded_failures(read: QcRead) -> tuple[Standing, ...]:
    """Failed checkpoints without an answer, where the plan does not simply continue."""
    if read.on_failure == "continue":
        return ()
    return unheeded(read.backlog, read.acts.qc_seen_at)


def heed(store: ObjectStore, read: QcRead, *, launch: str) -> str | None:
    """Do what the plan says about failures without an answer; why the run has to end as failed, where it says so.

    Raises:
        CorruptError: the experiment's log is damaged.
        UnknownOutcomeError: the reply was lost; heed it again.
        StoreUnavailableError: the store did not answer.
    """
    unanswered = unheeded_failures(read)
    if not unanswered:
        return None
    why = told(unanswered[0]) if read.run == MAIN else f"{read.run}: {told(unanswered[0])}"
    if read.on_failure == "stop":
        return f"gate: {why}"
    scope, person = f"experiment:{read.experiment}", f"launch {launch}"
    pause(store, scope, cause="qc", reason=why, person=person, at=time.time())
    return None


def require_answered(store: ObjectStore, experiment: str, *, ended: bool) -> None:
    """Let only a run go on whose failed checkpoints somebody has answered, where its plan does not simply continue.

    `ended`: a failed check has ended the run, so that the answer is a repair.

    Raises:
        GateError: a checkpoint failed, and nobody has said what is done about it.
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    read = read_qc(store, experiment, RUN, now=time.time())
    found = () if read is None else unheeded_failures(read)
    if found:
        raise GateError(
            f"{told(found[0])}, and nobody has said what is done about it",
            field="qc.on_failure",
            value=None if read is None else read.on_failure,
            rule="a failed check goes to a person before more is spent",
            remedy=f'raykit resume {experiment} --repair "what you changed" --by NAME'
            if ended
            else f"raykit qc review {experiment} --update {found[0].update} --verdict failed --note ... --by NAME",
        )


def words(glance: Glance) -> str | None:
    """`5 of 11`, `5 of 11, 1 failed`; None before anything is known."""
    return counted(glance.counts) if glance.counts else None


def counted(counts: Mapping[str, int]) -> str:
    """`5 of 11`, `5 of 11, 1 failed`."""
    failed, required = counts.get("failed", 0), counts.get("required", 0)
    done = counts.get("passed", 0) + failed
    return f"{done} of {required}" + (f", {failed} failed" if failed else "")
