"""Pieces that several records share."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import StringConstraints

from raykit.ids import Digest
from raykit.records.base import Count, Positive, Record

Exactness = Literal["exact", "state-exact", "order-exact", "inexact"]
"""How much a resumed run is the run that was interrupted, from most to least."""

EXACTNESS: tuple[Exactness, ...] = ("exact", "state-exact", "order-exact", "inexact")

CODE_OF: Final = "code of "
"""What a fact begins with that binds code from outside of the frozen copy: `code of mylib`."""

EndReason = Literal["completed", "paused", "killed", "failed", "preempted"]

Words = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"\S")]
"""What a person wrote: a reason, a name, what was repaired."""

Cause = Literal["person", "ceiling", "replan", "defect", "premise", "qc", "exactness"]
"""Why work is paused: a person asked; the money is at its end; a replan is due; a shared defect; what the plan was
approved on is not so; a checkpoint failed its QC; a resume turned out not to be the same run."""


class Place(Record):
    """One process on one machine: enough to tell whether it is still the same process."""

    host: str
    boot: str
    """The kernel's boot id and the process-id namespace: the same exactly when process ids are comparable."""
    pid: Positive
    started: Count
    """Start time of the process in clock ticks since boot, as the kernel tells it."""


class Difference(Record):
    """One thing that is not as it was, and the highest exactness class that it leaves."""

    what: str
    was: str
    now: str
    allows: Exactness


class PassedOver(Record):
    """A checkpoint that was not resumed from, and why."""

    update: Count
    attempt: Positive
    why: str


class ResumeReceipt(Record):
    """What a resume compared, and what it therefore is."""

    update: Count
    attempt: Positive
    manifest_sha256: Digest
    needed: Exactness
    exactness: Exactness
    differences: tuple[Difference, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    amendment: int | None = None
    """Number of the experiment log's entry that allowed less than the plan needs."""
