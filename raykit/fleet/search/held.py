"""Who drives a search: one process at a time, as the search's own log says.

Its rows are fenced by the logs of their runs all the same: two drivers that never heard of each other could not both
train one row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Final

from raykit.errors import FencedError, HeldError
from raykit.fleet.session import job_here
from raykit.records import Driven, LetGo, Record, SearchEntry
from raykit.store.place import alive, this_place
from raykit.store.search import SearchLog

HEARD_S: Final = 60.0
"""So long after its last word, a driver that cannot be seen from here still counts as alive."""


def drivers_of(entries: Sequence[SearchEntry]) -> list[Driven]:
    """Every process that has ever had the search."""
    return [event for entry in entries for event in entry.events if isinstance(event, Driven)]


def require_free(log: SearchLog) -> None:
    """Let only a search be driven that no process has which is alive.

    Raises:
        HeldError: one has.
        CorruptError: the search's log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    log.refresh()
    _free(log)


def _free(log: SearchLog) -> None:
    holder, name = log.state.driver, log.registration.experiment
    if holder is None or holder.place == this_place():
        return
    heard_s = time.time() - log.entries[-1].at
    at_work = alive(holder.place)
    if at_work is False or (at_work is None and heard_s > HEARD_S):
        return
    place = holder.place
    raise HeldError(
        f"the search of {name} is under way: process {place.pid} on {place.host}, last heard {heard_s:.0f} s ago",
        remedy=f"raykit search status {name}; or end that process: kill -TERM {place.pid}",
    )


def take(log: SearchLog, driver: str) -> None:
    """Take the search for this process.

    Raises:
        HeldError: another process was faster, or has it.
        CorruptError: the search's log is damaged.
        UnknownOutcomeError: the reply was lost; take it again.
        StoreUnavailableError: the store did not answer.
    """

    def decide(entries: Sequence[SearchEntry]) -> list[Record]:
        _free(log)
        known = log.state.driver
        if known is not None and known.driver == driver:
            return []
        version = metadata.version("raykit")
        return [Driven(driver=driver, place=this_place(), raykit=version, job=job_here())]

    log.append(decide, at=time.time())


def write(log: SearchLog, driver: str, decide: Callable[[], Sequence[Record]]) -> None:
    """Append what `decide` makes of the log's state, if this driver still has the search.

    Raises:
        FencedError: another process has taken it meanwhile.
        CorruptError: the search's log is damaged.
        UnknownOutcomeError: the reply was lost; decide again.
        StoreUnavailableError: the store did not answer.
    """

    def decided(entries: Sequence[SearchEntry]) -> Sequence[Record]:
        holder = log.state.driver
        if holder is None or holder.driver != driver:
            other = "nobody" if holder is None else f"process {holder.place.pid} on {holder.place.host}"
            raise FencedError(f"this process no longer has the search; {other} has")
        return decide()

    log.append(decided, at=time.time())


def let_go(log: SearchLog, driver: str) -> None:
    """Let go of the search; twice is fine.

    Raises:
        CorruptError: the search's log is damaged.
        UnknownOutcomeError: the reply was lost; that this process is gone says as much.
        StoreUnavailableError: the store did not answer; the same.
    """

    def decide(entries: Sequence[SearchEntry]) -> list[Record]:
        holder = log.state.driver
        return [LetGo(driver=driver)] if holder is not None and holder.driver == driver else []

    log.append(decide, at=time.time())
