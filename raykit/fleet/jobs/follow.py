"""A job followed to its end: its log as it comes, and how its run ended, from the log or else from the store.

What Ray says of a job is how its process ended. How the run ended is for the job's last line and the store to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raykit.errors import DeadlineError, InvalidInput, RaykitError
from raykit.fleet.jobs.api import JobInfo, JobsApi
from raykit.fleet.jobs.last import MARK, last_of
from raykit.fleet.jobs.standing import EXIT_STOPPED, Standing

POLL_S: Final = 0.5
LONGEST_POLL_S: Final = 10.0
LOG_SHARE: Final = 20
"""Between two looks at a log: so many times what the last one took. Ray gives it whole, however long it is."""
AWAY_S: Final = 60.0
"""A cluster that nobody reaches for so long is taken for gone."""
LOG_S: Final = 10.0
"""How long the last line of a job may take to be readable once the job is over."""

EXIT_REFUSED: Final = 3
EXIT_UNKNOWN: Final = 6
_OF_RUN: Final = {
    EXIT_REFUSED: "has ended; the run was refused or cancelled",
    EXIT_STOPPED: "has ended; the run is paused",
}
"""Ends of a run with which its job ends well, so that Ray calls it succeeded."""
RAYS_OWN: Final = ("Running entrypoint for job ", "Runtime env is setting up.")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a job ended, as far as anybody knows."""

    exit_code: int
    """The run's own."""
    words: str
    """What happened."""
    info: JobInfo | None
    """None if the cluster is gone."""
    goes_on: bool = False
    """Something is left to do, and the same command goes on with it."""
    paused: bool = False
    """It ended as a run that can go on does, and is to be resumed; the same command may be refused."""


@dataclass(slots=True)
class _Log:
    """What was shown of a job's log."""

    text: str = ""
    shown: int = 0
    next_look: float = 0.0

    def look(self, api: JobsApi, submission_id: str, show: Say, *, last: bool = False) -> None:
        """Show whole lines that are new; at the end what is left as well."""
        began = time.monotonic()
        if began < self.next_look and not last:
            return
        try:
            self.text = api.logs(submission_id)
        except DeadlineError:
            pass  # it is asked again
        except InvalidInput:
            raise
        except RaykitError:
            pass  # the node that has it is gone, or has not begun
        self.next_look = time.monotonic() + LOG_SHARE * (time.monotonic() - began)
        end = len(self.text) if last else self.text.rfind("\n") + 1
        for line in self.text[self.shown : end].splitlines():
            if line.strip() and not line.startswith(MARK) and not any(own in line for own in RAYS_OWN):
                show(line)
        self.shown = max(self.shown, end)


def follow(api: JobsApi, submission_id: str, *, show: Say, read: Callable[[], Standing | None]) -> Ended:
    """Show a job's log until it is over. `read` tells where its work stands in the store; None if it cannot be read.

    Raises:
        KeyboardInterrupt: the person has seen enough; the job goes on.
        InvalidInput: the token is not the cluster's any more.
    """
    log = _Log()
    info: JobInfo | None = None
    heard, pause_s = time.monotonic(), POLL_S
    while True:
        try:
            found = api.job(submission_id)
            heard, pause_s = time.monotonic(), POLL_S
            if found is None:
                return _gone(submission_id, "the cluster does not know it any more", read())
            info = found
            if info.over:
                break
            log.look(api, submission_id, show)
        except (DeadlineError, InvalidInput, RaykitError) as error:
            if time.monotonic() - heard > AWAY_S:
                return _gone(submission_id, f"the cluster is gone ({error})", read())
            pause_s = min(2 * pause_s, LONGEST_POLL_S)
        time.sleep(pause_s)
    return _ended(api, info, log, show, read)


def _ended(api: JobsApi, info: JobInfo, log: _Log, show: Say, read: Callable[[], Standing | None]) -> Ended:
    """The rest of the log, which may come a little after the end, and what it and the store say."""
    deadline = time.monotonic() + (LOG_S if info.exit_code is not None else 0.0)
    while True:
        try:
            log.look(api, info.submission_id, show, last=True)
        except RaykitError:
            break  # the store says the rest
        if last_of(log.text) is not None or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    return ended_with(info, log.text, read())


def ended_with(info: JobInfo, log: str, standing: Standing | None) -> Ended:
    """How a job that is over ended: as its last line says, or as the store does, or as Ray does."""
    name = f"job {info.submission_id}"
    said = last_of(log)
    launch = info.metadata.get("launch")
    stored = None if standing is None or launch is None else standing.ended.get(launch)
    code = stored if said is None else said.exit_code
    if info.status == "STOPPED":
        words = f"{name} was stopped from outside: that is a kill, and no pause. {_kept(standing)}"
        return Ended(
            exit_code=EXIT_STOPPED if code is None else code, words=words, info=info, goes_on=code != 0
        )
    if code is None:
        words = f"{name} {info.words}: {_first_words(info)}. {_kept(standing)}"
        return Ended(exit_code=max(info.exit_code or 0, 0) or 1, words=words, info=info, goes_on=True)
    lost = "" if said is not None else "; its last words are lost, and the store has how it ended"
    how = _OF_RUN.get(code, info.words)
    return Ended(exit_code=code, words=f"{name} {how}{lost}", info=info, paused=code == EXIT_STOPPED)


def _gone(submission_id: str, why: str, standing: Standing | None) -> Ended:
    words = f"what became of job {submission_id} is not known: {why}. {_kept(standing)}"
    return Ended(exit_code=EXIT_UNKNOWN, words=words, info=None, goes_on=True)


def _kept(standing: Standing | None) -> str:
    return "What the store has cannot be read now" if standing is None else standing.kept


def _first_words(info: JobInfo) -> str:
    lines = [line.strip() for line in info.message.splitlines() if line.strip()]
    return lines[0].rstrip(":.")[:300] if lines else "it does not say why"
