"""What people decide, kept: pause, resume, cancel, repair. Each is safe to say twice, from wherever the store is seen.

An act on one experiment is an entry of its own log; a wider scope is in the log of the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raykit.errors import NotFoundError
from raykit.pauses import Acts, InForce, fold_acts
from raykit.plan import Plan
from raykit.records import (
    Cancelled,
    Cause,
    ExperimentEntry,
    FleetEntry,
    Harmless,
    Paused,
    Record,
    Repaired,
    RestartApproved,
    Resumed,
)
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.log import Log

Decide = Callable[[Acts], Sequence[Record]]

OWN = "experiment:"
"""How the scope of one experiment begins."""


class People:
    """What people have said about one experiment and the fleet around it, kept up to date by `refresh`."""

    def __init__(self, store: ObjectStore, experiment: str, *, by: str = "reader") -> None:
        self.log = Log(store, layout.experiment_log(experiment), ExperimentEntry, by=by)
        self._fleet = Log(store, layout.fleet_log(), FleetEntry, by=by)
        self._folded = (0, 0)
        self._acts = Acts()

    def refresh(self) -> Acts:
        """Read on, and return all of it.

        Raises:
            CorruptError: a log is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self.log.refresh()
        self._fleet.refresh()
        return self.acts

    @property
    def acts(self) -> Acts:
        """What has been read so far. Inside a decision on `log` it is as new as that log."""
        own, fleet = self._folded
        self._acts = fold_acts([*self.log.entries[own:], *self._fleet.entries[fleet:]], self._acts)
        self._folded = (len(self.log.entries), len(self._fleet.entries))
        return self._acts

    def say(self, event: Record, *, at: float) -> None:
        """Append one event to the experiment's log.

        Raises:
            CorruptError: the log is damaged.
            UnknownOutcomeError: the reply was lost; say it again.
            StoreUnavailableError: the store did not answer.
        """
        self.log.append(lambda entries: [event], at=at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an act led to: `new` if it was written now, and what holds."""

    new: bool
    holds: InForce | None = None


def pause(
    store: ObjectStore, scope: str, *, reason: str, person: str, cause: Cause = "person", at: float
) -> Said:
    """Pause a scope; one that is paused already stays as it is.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    event = Paused(scope=scope, cause=cause, reason=reason, person=person)
    written = _append(store, scope, person, lambda acts: [] if scope in acts.pauses else [event], at)
    return Said(new=written, holds=read_scope(store, scope).pauses.get(scope))


def resume(store: ObjectStore, scope: str, *, cleared: str, person: str, at: float) -> Said:
    """End the pause of a scope; one that is not paused stays as it is. Whether the cause is gone is for the caller.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    event = Resumed(scope=scope, cleared=cleared, person=person)
    return Said(new=_append(store, scope, person, lambda acts: [event] if scope in acts.pauses else [], at))


def cancel(store: ObjectStore, experiment: str, *, reason: str, person: str, at: float) -> Said:
    """End an experiment for good; one that is cancelled already stays as it is.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    event = Cancelled(reason=reason, person=person)
    return Said(
        new=_append(store, OWN + experiment, person, lambda acts: [] if acts.cancelled else [event], at)
    )


def repair(store: ObjectStore, experiment: str, *, what: str, attempt: int, person: str, at: float) -> Said:
    """Say what was done about checks that failed through `attempt`.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    event = Repaired(what=what, attempt=attempt, person=person)
    new = _append(
        store, OWN + experiment, person, lambda acts: [] if acts.repaired >= attempt else [event], at
    )
    return Said(new=new)


def say(store: ObjectStore, experiment: str, event: Record, *, person: str, at: float) -> None:
    """Append what a person says to the log of an experiment that is there.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    _append(store, OWN + experiment, person, lambda acts: [event], at)


def say_harmless(store: ObjectStore, experiment: str, event: Harmless, *, at: float) -> Said:
    """Say that some state does not matter; what was said of all of it already stays as it is.

    Raises:
        NotFoundError: there is no such experiment.
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """

    def decide(acts: Acts) -> list[Record]:
        return [] if acts.harmless.issuperset(event.names) else [event]

    return Said(new=_append(store, OWN + experiment, event.person, decide, at))


def approve_restart(store: ObjectStore, experiment: str, event: RestartApproved, *, at: float) -> Said:
    """Let one plan train from scratch; one that may already stays as it is. The plan need not be launched yet.

    Raises:
        CorruptError: a log is damaged.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    people = People(store, experiment, by=event.person)

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        known = {restart.projection for restart in people.acts.restarts}
        return [] if event.projection in known else [event]

    return Said(new=people.log.append(decide, at=at) is not None)


def read_acts(store: ObjectStore, experiment: str) -> Acts:
    """What people have said about an experiment and the fleet.

    Raises:
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return People(store, experiment).refresh()


def harmless_of(store: ObjectStore, experiment: str, plan: Plan) -> frozenset[str]:
    """State outside of checkpoints that does not matter, as the plan or a person says.

    Raises:
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return read_acts(store, experiment).harmless | frozenset(plan.run.harmless)


def read_scope(store: ObjectStore, scope: str) -> Acts:
    """What people have said in the log that a scope's pauses are in.

    Raises:
        CorruptError: the log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    log = _log_of(store, scope, by="reader")
    log.refresh()
    return fold_acts(log.entries)


def _log_of(store: ObjectStore, scope: str, *, by: str) -> Log[ExperimentEntry] | Log[FleetEntry]:
    if scope.startswith(OWN):
        return Log(store, layout.experiment_log(scope.removeprefix(OWN)), ExperimentEntry, by=by)
    return Log(store, layout.fleet_log(), FleetEntry, by=by)


def _append(store: ObjectStore, scope: str, person: str, decide: Decide, at: float) -> bool:
    log = _log_of(store, scope, by=person)
    if scope.startswith(OWN) and not log.refresh():
        name = scope.removeprefix(OWN)
        raise NotFoundError(f"there is no experiment {name} in {store.url}", field="SCOPE", value=name)
    return log.append(lambda entries: decide(fold_acts(entries)), at=at) is not None
