"""Where the work of a plan stands as its store tells it, whichever cluster it was done on: a run, or a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from raykit.errors import CancelledError, by_kind
from raykit.fleet.claim import require_free as require_run_free
from raykit.fleet.search import held as search_held
from raykit.fleet.search.outcome import outcome_of
from raykit.fleet.site import Site, task_of
from raykit.reconcile import RunState
from raykit.records import CANCELLED, Launched, LetGo, Released
from raykit.search import SearchState
from raykit.store.search import SearchLog, read_registration
from raykit.train.prepare import Prepared

EXIT_STOPPED: Final = 4
NOTHING: Final = "Nothing is committed yet: it begins anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where it stands. A launch is what has taken the run, or drives the search."""

    launches: tuple[str, ...] = ()
    """Every one that has ever had it, in order."""
    held: str | None = None
    """The one that has it, unless it has let go of it."""
    job: str | None = None
    """The Ray job that the newest one ran as, if it was a job."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """By launch that has let go of it: the exit code of what that came to."""
    kept: str = NOTHING
    """Where it goes on, for people, whatever becomes of a process."""

    @property
    def past(self) -> tuple[str, ...]:
        """Those that are over."""
        return self.launches if self.held is None else self.launches[:-1]


def standing_of(site: Site) -> Standing:
    """Read where the work of a plan stands.

    Raises:
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    if site.plan.search is None:
        return of_run(site.run_log("reader").state)
    log = _search_log(site)
    return Standing() if log is None else of_search(log)


def require_free(site: Site, ready: Prepared, launch: str) -> None:
    """Let only work be taken that no launch has which may be alive.

    Raises:
        HeldError: one has.
        CorruptError: its log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    if site.plan.search is None:
        require_run_free(site.run_log("reader").state, task_of(site, ready, launch))
    elif (log := _search_log(site)) is not None:
        search_held.require_free(log)


def _search_log(site: Site) -> SearchLog | None:
    registration = read_registration(site.store, site.name)
    if registration is None:
        return None
    log = SearchLog(site.store, registration, by="reader")
    log.refresh()
    return log


# --- a run --------------------------------------------------------------------------------------------------


def of_run(state: RunState) -> Standing:
    """Where a run stands."""
    launched = [event for event in state.events if isinstance(event, Launched)]
    released = [event.launch for event in state.events if isinstance(event, Released)]
    return Standing(
        launches=tuple(event.launch for event in launched),
        held=launched[-1].launch if launched and state.released is None else None,
        job=launched[-1].job if launched else None,
        ended={launch: _code(state, launch) for launch in released},
        kept=_kept(state),
    )


def _code(state: RunState, launch: str) -> int:
    reason = next(e.reason for e in state.events if isinstance(e, Released) and e.launch == launch)
    if reason == "completed":
        return 0
    mine = [attempt.attempt for attempt in state.attempts if attempt.launch == launch]
    ended = state.ends.get(mine[-1]) if mine else None
    why = (ended and ended.detail) or ""
    if reason in ("paused", "preempted"):
        return CancelledError.exit_code if why.startswith(CANCELLED) else EXIT_STOPPED
    return by_kind(why.partition(":")[0]).exit_code


def _kept(state: RunState) -> str:
    if state.completed:
        return "The run is complete"
    if state.committed is None:
        return NOTHING
    ended = state.ended
    safe = ended is not None and ended.reason in ("paused", "preempted")
    reached = "a safe boundary was reached" if safe else "no safe boundary was reached"
    return (
        f"Recorded through update {state.rows:,}, committed through {state.committed:,}: {reached}, "
        "and nothing committed is lost"
    )


# --- a search -----------------------------------------------------------------------------------------------


def of_search(log: SearchLog) -> Standing:
    """Where a search stands."""
    drivers = search_held.drivers_of(log.entries)
    holder = log.state.driver
    let_go = [e.driver for entry in log.entries for e in entry.events if isinstance(e, LetGo)]
    state = log.state
    return Standing(
        launches=tuple(each.driver for each in drivers),
        held=None if holder is None else holder.driver,
        job=drivers[-1].job if drivers else None,
        ended={driver: _search_code(state) for driver in let_go},
        kept=_search_kept(state),
    )


def _search_code(state: SearchState) -> int:
    cancelled = any(
        (row.ended.detail or "").startswith(CANCELLED) for row in state.rows if row.ended is not None
    )
    return outcome_of(state, cancelled=cancelled).exit_code if state.closed else EXIT_STOPPED


def _search_kept(state: SearchState) -> str:
    ended = sum(row.ended is not None for row in state.rows)
    return f"{ended:,} of {len(state.rows):,} rows have their end, and none of those runs again"
