"""What ran for an experiment, however it ended: launches, attempts, leases, gates and checkpoints.

Failed, stopped, superseded and cancelled work stays, with its cost. Which of it is active is read from who holds the
run, not from how recently somebody spoke.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raykit import exactness
from raykit.budget.book import Lease
from raykit.exactness import Class
from raykit.read.dossier.frozen import read_manifest
from raykit.reconcile import RunState, fold
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Commit,
    End,
    FileRef,
    GateResult,
    Launched,
    Place,
    Released,
    RunEntry,
    Superseded,
    Terms,
)
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One gang of workers, and the physical process that led it."""

    attempt: int
    at: float
    place: Place
    world_size: int
    facts: Mapping[str, str]
    plan: str
    lease: str | None
    resumed_from: int | None
    exactness: Class
    """Of its start, as its run's log leaves it."""
    ended: AttemptEnded | None
    """None while it runs, or where nobody has said how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One launch, with the attempts that it has made."""

    run: str
    launch: str
    at: float
    place: Place
    lease_s: float
    raykit: str
    end: str | None
    """completed, paused, killed, failed or preempted, as it said itself; None if it did not."""
    taken_over_by: str | None
    """The launch that took the run from it, where it had not let go."""
    attempts: tuple[Attempt, ...]
    row_end: End | None = None
    """Of the last launch of a trial: how its search has ended the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One lease of the ledger. `cost` is None until it is known; until then `worst` is charged."""

    lease: str
    run: str | None
    """The run that it is for; None of what concerns no single one."""
    line: str
    at: float
    launch: str | None
    """The launch that had it, where one of them did."""
    attempt: int | None
    plan: str | None
    """The lock that the attempt was of: the setting that was tried."""
    worst: int
    cost: int | None
    charged: int
    held_ms: int | None
    terms: Terms
    state: str
    """open, settled, never started."""
    reason: str | None
    how: str | None
    row_end: End | None = None
    """Of the last one of a trial: how its search has ended the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One result of a necessary check; a later one does not remove it."""

    run: str
    at: float
    after_attempt: int
    """The newest attempt by then, 0 if there was none."""
    result: GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """Rows and checkpoints that no longer count, and stay as cost."""

    run: str
    at: float
    superseded: Superseded


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint by its manifest's digest."""

    run: str
    at: float
    commit: Commit
    counts: bool
    selected: bool
    exactness: Class
    files: tuple[FileRef, ...] | None
    """Of the selected one, or else of the newest; None if they were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """What of an experiment is at work now, as far as can be told from here."""

    answer: str
    """`nothing`, `at work`, or `unknown`."""
    launch: str | None
    place: Place | None
    why: str


# --- launches and attempts ----------------------------------------------------------------------------------


def jobs_of(run: str, entries: Sequence[RunEntry], row_end: End | None) -> Iterator[Job]:
    """Every launch of a run, oldest first; `row_end` is how the row of a trial has ended."""
    claims = [(entry.at, event) for entry in entries for event in entry.events if isinstance(event, Launched)]
    released = {
        event.launch: event.reason
        for entry in entries
        for event in entry.events
        if isinstance(event, Released)
    }
    attempts = list(_attempts(entries))
    for n, (at, claim) in enumerate(claims):
        end = released.get(claim.launch)
        following = claims[n + 1][1].launch if n + 1 < len(claims) else None
        yield Job(
            run=run,
            launch=claim.launch,
            at=at,
            place=claim.place,
            lease_s=claim.lease_s,
            raykit=claim.raykit,
            end=end,
            taken_over_by=following if end is None else None,
            attempts=tuple(attempt for launch, attempt in attempts if launch == claim.launch),
            row_end=row_end if following is None else None,
        )


def _attempts(entries: Sequence[RunEntry]) -> Iterator[tuple[str, Attempt]]:
    state = fold(entries)
    ends = state.ends
    for entry in entries:
        for event in entry.events:
            if isinstance(event, AttemptStarted):
                resume = event.resume
                yield (
                    event.launch,
                    Attempt(
                        attempt=event.attempt,
                        at=entry.at,
                        place=event.place,
                        world_size=event.world_size,
                        facts=event.facts,
                        plan=event.plan,
                        lease=event.lease,
                        resumed_from=resume.update if resume is not None else None,
                        exactness=exactness.of_attempt(state, event),
                        ended=ends.get(event.attempt),
                    ),
                )


def active_of(state: RunState, *, alive: bool | None, now: float) -> Active:
    """Which work is active: what the launch that holds the run is, and whether its process is there.

    `alive` says whether that process is, if it can be seen from here.
    """
    claim = state.launched
    if claim is None:
        return Active(answer="nothing", launch=None, place=None, why="nothing was launched from this store")
    if state.released is not None:
        return Active(
            answer="nothing",
            launch=claim.launch,
            place=None,
            why=f"launch {claim.launch} has let go of the run: {state.released}",
        )
    process = f"process {claim.place.pid} of launch {claim.launch} on {claim.place.host}"
    silent_s = now - state.heard_at
    heard = f"it was heard {max(0.0, silent_s):,.0f} s ago"
    if alive:
        answer, why = "at work", f"{process} is there; {heard}"
    elif alive is False:
        answer, why = "nothing", f"{process} is gone, and never said how it ended; {heard}"
    elif silent_s < claim.lease_s:
        answer, why = "at work", f"{process} cannot be seen from here; {heard}, within {claim.lease_s:g} s"
    else:
        answer = "unknown"
        why = f"{process} cannot be seen from here; {heard}, past its {claim.lease_s:g} s"
    return Active(answer=answer, launch=claim.launch, place=claim.place, why=why)


# --- gates, superseded work, checkpoints --------------------------------------------------------------------


def gates_of(run: str, entries: Iterable[RunEntry]) -> Iterator[Gate]:
    """Every result of a gate of a run, those that failed and were repaired too."""
    attempt = 0
    for entry in entries:
        for event in entry.events:
            if isinstance(event, AttemptStarted):
                attempt = event.attempt
            elif isinstance(event, GateResult):
                yield Gate(run=run, at=entry.at, after_attempt=attempt, result=event)


def superseded_of(run: str, entries: Iterable[RunEntry]) -> Iterator[Gone]:
    """Everything that a run has trained and no longer counts."""
    for entry in entries:
        yield from (
            Gone(run=run, at=entry.at, superseded=e) for e in entry.events if isinstance(e, Superseded)
        )


def checkpoints_of(
    store: ObjectStore, run: str, entries: Sequence[RunEntry], state: RunState, selected: Commit | None
) -> Iterator[Checkpoint]:
    """Every checkpoint of a run, superseded ones too; the files of the selected one, or else of the newest.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    counting = {id(commit) for commit in state.commits}
    shown = selected or (state.commits[-1] if state.commits else None)
    for entry in entries:
        for event in entry.events:
            if isinstance(event, Commit):
                manifest = read_manifest(store, event.key, event.sha256) if event == shown else None
                yield Checkpoint(
                    run=run,
                    at=entry.at,
                    commit=event,
                    counts=id(event) in counting,
                    selected=event == selected,
                    exactness=exactness.of_commit(state, event),
                    files=None if manifest is None else manifest.files,
                )


# --- money --------------------------------------------------------------------------------------------------


def charges_of(
    ledger: Ledger, experiment: str, jobs: Sequence[Job], row_ends: Mapping[str, End]
) -> Iterator[Charge]:
    """Every lease of an experiment, in the order in which it was granted; `row_ends` of its trials, by run."""
    leases = ledger.book.leases.values()
    last = {each.reserved.run: each for each in leases if each.reserved.experiment == experiment}
    by_lease = {
        attempt.lease: (job.launch, attempt)
        for job in jobs
        for attempt in job.attempts
        if attempt.lease is not None
    }
    for lease in leases:
        reserved = lease.reserved
        if reserved.experiment != experiment:
            continue
        launch, attempt = by_lease.get(reserved.lease, (_launch(reserved.lease, jobs), None))
        yield Charge(
            lease=reserved.lease,
            run=reserved.run,
            line=reserved.line,
            at=lease.at,
            launch=launch,
            attempt=attempt.attempt if attempt is not None else None,
            plan=attempt.plan if attempt is not None else None,
            worst=lease.worst,
            cost=lease.cost,
            charged=lease.charged,
            held_ms=lease.held_ms,
            terms=reserved.terms,
            state=_state(lease),
            reason=lease.reason,
            how=lease.how,
            row_end=row_ends.get(reserved.run or "") if lease is last[reserved.run] else None,
        )


def _launch(lease: str, jobs: Sequence[Job]) -> str | None:
    """A launch names its leases after itself; the longest name that fits is its own."""
    return max((job.launch for job in jobs if lease.startswith(f"{job.launch}-")), key=len, default=None)


def _state(lease: Lease) -> str:
    if lease.void:
        return "never started"
    return "open" if lease.open else "settled"


__all__ = [
    "Active",
    "Attempt",
    "Charge",
    "Checkpoint",
    "Gate",
    "Gone",
    "Job",
    "active_of",
    "charges_of",
    "checkpoints_of",
    "gates_of",
    "jobs_of",
    "superseded_of",
]
