"""Attempts that came to nothing: why one is over that never said so itself, and how that is written down.

The same for a QC request and for a unit of a synthetic set, and for the workers on them and the pool around them.
"""

from __future__ import annotations

from raykit import defects
from raykit.records import Claim, Failure, FailureKind
from raykit.store.place import gone
from raykit.work.failing import Cause


def unended(kind: FailureKind, message: str) -> Cause:
    """Why an attempt is over that did not say so itself."""
    return Cause(kind=kind, signature=defects.signature(kind, kind), message=message)


def why_over(claim: Claim, *, now: float, by: str | None = None) -> Cause | None:
    """Why an attempt that nobody has ended is over; None if it may go on. `by` is the worker that asks."""
    if claim.worker == by:
        return unended("infrastructure", "the store did not take what came of it")
    if gone(claim.place):
        return unended("lost", f"process {claim.place.pid} on {claim.place.host} is gone")
    if now >= claim.at + claim.deadline_s:
        return unended("deadline", f"nothing came of it in {claim.deadline_s:g} s")
    return None


def failure_of(claim: Claim, cause: Cause, *, said_by: str, at: float) -> Failure:
    """What is written of an attempt that came to nothing."""
    return Failure(
        request=claim.request,
        n=claim.n,
        kind=cause.kind,
        signature=cause.signature,
        message=cause.message,
        worker=claim.worker,
        said_by=said_by,
        at=at,
    )
