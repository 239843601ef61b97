"""What people have said of an experiment: approvals, what was observed, concluded, noted, measured and counted.

Whatever a script has said is labelled so. Nothing here is ever called proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raykit.plan import Lock
from raykit.read.money import Money
from raykit.records import (
    AccountEntry,
    Amended,
    Cancelled,
    Concluded,
    ExperimentEntry,
    Measured,
    Noted,
    Observed,
    Parted,
    Rated,
    Record,
    Registered,
    Repaired,
    Replanned,
    RestartApproved,
    RowsCounted,
)
from raykit.store.learned import about


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that a named person allowed, ended or repaired."""

    at: float
    kind: str
    """money, account, restart, less exactly, replan, rate, account of its own, repair, cancelled."""
    person: str
    scripted: bool
    what: str
    covers: int | None = None
    """Of an approval of money, in micro-units."""
    current: bool | None = None
    """Whether an approval covers the plan as it is locked now; None if that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One event of a log, and when it was said."""

    at: float
    event: Record
    superseded: bool = False
    """Something else was said of the same later, and counts instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One test of a diagnosis, and how often it was run."""

    test: str
    does: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The small tree of a diagnostic plan: what is left of it, and the branches that were taken."""

    hypotheses: Mapping[str, str]
    """By name: what it says, in the plan or, where none is locked, as it was kept with what was observed."""
    removed: Mapping[str, str]
    """By hypothesis: the test that removed it."""
    left: tuple[str, ...]
    """Hypotheses that nothing has removed. That shows none of them to be true."""
    tests: tuple[Tested, ...]
    branches: tuple[Said, ...]
    """What was observed, and what was done next, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a later review reads."""

    concluded: tuple[Said, ...] = ()
    noted: tuple[Said, ...] = ()
    measured: tuple[Said, ...] = ()
    counted: tuple[Said, ...] = ()


# --- people -------------------------------------------------------------------------------------------------


def acts_of(
    entries: Iterable[ExperimentEntry], account: Iterable[AccountEntry], money: Money | None, experiment: str
) -> tuple[Act, ...]:
    """What people have allowed, ended and repaired: of the experiment, and of the account that it spends from."""
    found = [*_own(entries), *_approvals(money), *_of_account(account, experiment)]
    return tuple(sorted(found, key=lambda act: act.at))


def _own(entries: Iterable[ExperimentEntry]) -> Iterator[Act]:
    for entry in entries:
        for event in entry.events:
            match event:
                case RestartApproved():
                    yield Act(
                        at=entry.at,
                        kind="restart",
                        person=event.person,
                        scripted=event.scripted,
                        what=f"{event.covers}: {event.reason}",
                    )
                case Amended():
                    yield Act(
                        at=entry.at,
                        kind="less exactly",
                        person=entry.by,
                        scripted=False,
                        what=f"{event.run} may go on {event.allows}: {event.reason}",
                    )
                case Repaired():
                    what = f"through attempt {event.attempt}: {event.what}"
                    yield _act(entry.at, "repair", event.person, what)
                case Cancelled():
                    yield _act(entry.at, "cancelled", event.person, event.reason)


def _act(at: float, kind: str, person: str, what: str, *, scripted: bool = False) -> Act:
    return Act(at=at, kind=kind, person=person, scripted=scripted, what=what)


def _approvals(money: Money | None) -> Iterator[Act]:
    for approval in money.approvals if money is not None else ():
        whole = "the whole account" if approval.scope == "account" else "this plan"
        yield Act(
            at=approval.at,
            kind="account" if approval.scope == "account" else "money",
            person=approval.person,
            scripted=approval.scripted,
            what=f"approval {approval.number:04d}: {whole}",
            covers=approval.covers,
            current=approval.current,
        )


def _of_account(entries: Iterable[AccountEntry], experiment: str) -> Iterator[Act]:
    for entry in entries:
        for event in entry.events:
            match event:
                case Replanned(experiment=name) if name == experiment:
                    yield _act(entry.at, "replan", event.person, event.reason, scripted=event.scripted)
                case Parted(experiment=name) if name == experiment:
                    what = f"account {event.account}: {event.reason}"
                    yield _act(entry.at, "account of its own", event.person, what, scripted=event.scripted)
                case Rated():
                    what = f"{event.pool} costs another rate ({event.source}, {event.on})"
                    yield _act(entry.at, "rate", event.person, what)


# --- what was learned ---------------------------------------------------------------------------------------


def learned_of(entries: Iterable[ExperimentEntry]) -> Learned:
    """What people concluded, noted, measured and counted."""
    learned = [
        (entry.at, event)
        for entry in entries
        for event in entry.events
        if isinstance(event, Concluded | Noted | Measured | RowsCounted)
    ]
    last = {about(event): n for n, (_, event) in enumerate(learned)}
    said = [
        Said(at=at, event=event, superseded=last[about(event)] != n) for n, (at, event) in enumerate(learned)
    ]

    def of(kind: type[Record]) -> tuple[Said, ...]:
        return tuple(each for each in said if isinstance(each.event, kind))

    return Learned(concluded=of(Concluded), noted=of(Noted), measured=of(Measured), counted=of(RowsCounted))


def diagnosed_of(entries: Iterable[ExperimentEntry], lock: Lock | None) -> Diagnosed | None:
    """The tree of a diagnostic plan and how far it was gone through; None if there is no diagnosis."""
    table = lock.settings.get("diagnosis") if lock is not None else None
    planned: Mapping[str, Any] = table if isinstance(table, Mapping) else {}
    branches = tuple(
        Said(at=entry.at, event=event)
        for entry in entries
        for event in entry.events
        if isinstance(event, Observed)
    )
    if not planned and not branches:
        return None
    observed = [said.event for said in branches if isinstance(said.event, Observed)]
    removed = {name: event.test for event in reversed(observed) for name in event.removed}
    hypotheses = {name: text for event in reversed(observed) for name, text in event.hypotheses.items()}
    if planned:
        hypotheses = {name: _text(given, "says") for name, given in _tables(planned, "hypotheses")}
    named = (*hypotheses, *(name for event in observed for name in event.supports))
    return Diagnosed(
        hypotheses=hypotheses,
        removed=removed,
        left=tuple(name for name in dict.fromkeys(named) if name not in removed),
        tests=tuple(
            Tested(test=name, does=_text(given, "does"), runs=sum(event.test == name for event in observed))
            for name, given in _tables(planned, "tests")
        ),
        branches=branches,
    )


def registered_of(entries: Iterable[Any], experiment: str, manifest: str | None) -> tuple[Said, ...]:
    """Candidates that this experiment made, and the one whose weights it starts from."""
    said = [
        (entry.at, event)
        for entry in entries
        for event in entry.events
        if isinstance(event, Registered) and (event.experiment == experiment or event.manifest == manifest)
    ]
    last = {event.candidate: n for n, (_, event) in enumerate(said)}
    return tuple(
        Said(at=at, event=event, superseded=last[event.candidate] != n) for n, (at, event) in enumerate(said)
    )


def _tables(planned: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = planned.get(name)
    if isinstance(found, Mapping):
        yield from ((key, given) for key, given in found.items() if isinstance(given, Mapping))


def _text(given: Mapping[str, Any], name: str) -> str:
    return str(given.get(name, ""))


__all__ = [
    "Act",
    "Diagnosed",
    "Learned",
    "Said",
    "Tested",
    "acts_of",
    "diagnosed_of",
    "learned_of",
    "registered_of",
]
