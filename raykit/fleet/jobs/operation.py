"""One deliberate operation: to run what this plan and code are, from where the run stands now. It has one id.

The id is worked out, never drawn: asking again finds the same job, and a lost reply is looked up and not sent anew. A
run that has gone on since (it was paused, or killed) is another place to start from, and so another operation. So is
one more try of what has come to an end without a launch, because it was refused.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from raykit.errors import DeadlineError, InvalidInput, RaykitError, UnknownOutcomeError
from raykit.fleet.jobs.api import JobInfo, JobsApi, NewJob
from raykit.ids import Digest, digest_of

Kind = Literal["launch", "search"]

LAUNCH_CHARS: Final = 12
LOOKS_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Before each look for a job whose reply was lost."""
SENDS: Final = 3
"""So often a job is sent under one id: a cluster that has it already refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is asked for."""

    kind: Kind
    root: str
    experiment: str
    plan: Digest
    """Of the lock, as yet unjudged: plan, code and data."""
    past: tuple[str, ...] = ()
    """The launches that the work has seen, and that are over as far as its log says."""
    held: str | None = None
    """The launch that has it, as far as its log says."""

    def launch(self, n: int) -> str:
        """The name of the launch that its n-th job makes, counted from 0."""
        said = {
            "kind": self.kind,
            "root": self.root,
            "experiment": self.experiment,
            "plan": self.plan,
            "past": list(self.past),
            "n": n,
        }
        return digest_of(said)[:LAUNCH_CHARS]

    def submission_id(self, n: int) -> str:
        """The id of its n-th job."""
        return f"raykit-{self.experiment}-{self.launch(n)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The job of an operation: the one that the cluster has and that is not over, or the next one to send."""

    n: int
    launch: str
    submission_id: str
    there: JobInfo | None = None
    """It is there already, and not over."""
    before: JobInfo | None = None
    """The newest one of the same operation that has come to its end."""


def choose(api: JobsApi, operation: Operation) -> Chosen:
    """Ask the cluster which jobs of an operation it knows.

    Raises:
        InvalidInput: nobody answers there, or the token is not the cluster's.
        DeadlineError: no answer in time.
        RaykitError: the cluster answered with an error of its own.
    """
    before = None
    for n in itertools.count():
        launch, name = operation.launch(n), operation.submission_id(n)
        info = api.job(name)
        if info is not None and info.over:
            before = info
        elif info is not None or launch != operation.held:
            return Chosen(n=n, launch=launch, submission_id=name, there=info, before=before)
        # a job that another cluster ran, which is gone: its launch has had the run, and never let go of it
    raise AssertionError("unreachable")


def send(api: JobsApi, job: NewJob, *, say: Callable[[str], None], again: str) -> JobInfo:
    """Send a job once, whatever becomes of the replies; the job as the cluster has it. `again` is the same command.

    Raises:
        UnknownOutcomeError: whether the cluster has it could not be found out, or Ctrl-C came before it was. It is
            never sent under another id.
        InvalidInput: nobody answers there, the token is not the cluster's, or the job is not usable.
        RaykitError: the cluster does not take it.
    """
    try:
        return _send(api, job, say, again)
    except KeyboardInterrupt:
        raise UnknownOutcomeError(
            f"Ctrl-C came while {job.submission_id} was being sent: whether the cluster has it is not known",
            rule="the same command looks again, and sends nothing twice",
            remedy=again,
        ) from None


def _send(api: JobsApi, job: NewJob, say: Callable[[str], None], again: str) -> JobInfo:
    refusal: RaykitError | None = None
    unsure = False
    for _ in range(SENDS):
        try:
            api.submit(job)
        except UnknownOutcomeError as error:
            unsure = True
            say(f"{error.message}; looking for {job.submission_id}")
        except InvalidInput:
            if not unsure:
                raise
        except RaykitError as error:  # an id that it has already, or an error of its own: looking tells
            refusal = error
        found = _look(api, job.submission_id, again)
        if found is not None:
            return found
    if refusal is not None:
        raise RaykitError(f"the cluster does not take the job: {refusal.message}")
    raise UnknownOutcomeError(
        f"the cluster was sent {job.submission_id} and does not have it",
        rule="never sent twice",
        remedy=again,
    )


def _look(api: JobsApi, submission_id: str, again: str) -> JobInfo | None:
    """The job, if the cluster says that it has it; None if it says that it has not.

    Raises:
        UnknownOutcomeError: it does not say.
    """
    last: RaykitError | None = None
    for wait_s in LOOKS_S:
        time.sleep(wait_s)
        try:
            return api.job(submission_id)
        except (DeadlineError, InvalidInput, RaykitError) as error:
            last = error
    raise UnknownOutcomeError(
        f"whether the cluster has {submission_id} is not known: {last}",
        rule="the same command looks again, and sends nothing twice",
        remedy=again,
    ) from last
