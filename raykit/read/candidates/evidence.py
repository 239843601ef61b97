"""What a candidate scores on a surface, and what the incumbent scores there: from the store, or a person's word."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from raykit.candidates.evidence import SELECTS, metric_of, split_of
from raykit.candidates.registry import Candidate
from raykit.errors import CorruptError, GateError, NotFoundError
from raykit.ids import parse_json, sha256
from raykit.plan import Lock
from raykit.read.candidates.gates import examination_of, run_of
from raykit.read.root import Root
from raykit.read.seen import selection
from raykit.read.view import RunView
from raykit.records import Evidence, Registered
from raykit.store import layout
from raykit.store.base import ObjectStore

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a person says where the store does not know it."""

    value: float | None = None
    incumbent: float | None = None
    better: Better | None = None
    how: str | None = None
    """How the values were measured."""


def evidence_for(
    store: ObjectStore,
    candidate: Candidate,
    incumbent: Candidate | None,
    surface: str,
    given: Given,
    *,
    person: str,
) -> Evidence:
    """What a choice of `candidate` would rest on. What is worthwhile is the larger of what both plans have declared.

    What the store has measured counts; what a person says fills in only what it has not.

    Raises:
        GateError: the store does not know the value, or which of two is better, and nobody has said it; or it knows
            another value than was said.
        NotFoundError: the run is gone.
        CorruptError: the history or a log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    rival = None if incumbent is None or incumbent.name == candidate.name else incumbent
    own, other = _view(store, candidate.said), None if rival is None else _view(store, rival.said)
    measured = _measured(store, candidate.said, own, surface)
    value = _agreed(measured, given.value, candidate, surface, "--value")
    if value is None:
        raise _no_value(surface, candidate)
    comparable = rival is not None and _comparable(store, own, other, surface)
    theirs = _measured(store, rival.said, other, surface) if rival is not None and comparable else None
    against = None if rival is None else _agreed(theirs, given.incumbent, rival, surface, "--incumbent-value")
    return Evidence(
        surface=surface,
        better=given.better or _better(store, candidate.said, own, surface),
        value=value,
        incumbent=against,
        against=None if rival is None else rival.manifest,
        worthwhile=_worthwhile([own, other], surface),
        how="; ".join(
            _how(
                candidate.said,
                surface,
                person,
                given,
                value=measured is not None,
                rival=None if against is None else theirs is not None,
            )
        ),
    )


def supports(store: ObjectStore, said: Registered) -> bool:
    """Whether the plan of a candidate lets report-only metrics support a recommendation.

    Raises:
        CorruptError: a log is damaged.
        StoreUnavailableError: the store did not answer.
    """
    return _claim(_view(store, said)).get("report_only") == "supports"


def _view(store: ObjectStore, said: Registered) -> RunView | None:
    """The run that made it; None for what was made elsewhere."""
    if said.origin == "adopted" or said.experiment is None:
        return None
    return Root(store, time.time).run(f"{said.experiment}/{run_of(said)}")


def _measured(store: ObjectStore, said: Registered, view: RunView | None, surface: str) -> float | None:
    """Its score on the development split, where its run has measured it."""
    if view is None or split_of(surface) != SELECTS:
        return None
    if not any(item.counts and item.commit.sha256 == said.manifest for item in view.commits):
        return None  # its rows are no longer part of the run
    rows = Root(store, time.time).history(view, "development").rows()
    found = [row.metrics.get(metric_of(surface)) for row in rows if row.update == said.update]
    return found[-1] if found else None


def _agreed(
    measured: float | None, said: float | None, candidate: Candidate, surface: str, field: str
) -> float | None:
    """What was measured; what a person says only where nothing was."""
    if measured is not None and said is not None and said != measured:
        raise GateError(
            f"the store has {measured!r} for {candidate.name} on {surface}, not {said!r}",
            field=field,
            value=said,
            rule="what was measured; a value that somebody gives stands only where the store has none",
            remedy=f"leave {field} out",
        )
    return said if measured is None else measured


def _no_value(surface: str, candidate: Candidate) -> GateError:
    return GateError(
        f"what {candidate.name} scores on {surface} is not in the store",
        field="--value",
        rule="a value that its run has measured on development; or one that you give, with how it was measured",
        remedy="--value V --how ...",
    )


def _comparable(store: ObjectStore, own: RunView | None, other: RunView | None, surface: str) -> bool:
    """Both were measured on the same members."""
    locks = [view.lock for view in (own, other) if view is not None]
    if len(locks) < 2 or own is None or other is None:
        return False
    mine, theirs = (_members(store, view.experiment, view.lock, split_of(surface)) for view in (own, other))
    return mine is not None and mine == theirs


def _members(store: ObjectStore, experiment: str, lock: Lock | None, role: str) -> str | None:
    """The identity of the members of a split; None if they cannot be read."""
    if lock is None:
        return None
    key = layout.membership(experiment, lock.data, "manifest.json")
    try:
        data = store.get(key)
        found = parse_json(data, key)
    except (NotFoundError, CorruptError):
        return None
    roles = found.get("roles") if isinstance(found, Mapping) and sha256(data) == lock.data else None
    record = roles.get(role) if isinstance(roles, Mapping) else None
    digest = record.get("members", record.get("sha256")) if isinstance(record, Mapping) else None
    return digest if isinstance(digest, str) else None


def _better(store: ObjectStore, said: Registered, view: RunView | None, surface: str) -> Better:
    """Which of two values is better: as the plan selects, or as a receipt says of its metric."""
    chosen = selection(view.lock) if view is not None else None
    if chosen is not None and chosen[1] == metric_of(surface):
        return "less" if chosen[0] == "min" else "more"
    standing = examination_of(store, said, now=time.time()).standing
    receipt = None if standing is None else standing.receipt
    score = None if receipt is None else receipt.metrics.get(metric_of(surface))
    if score is not None and score.better is not None:
        return score.better
    raise GateError(
        f"whether less or more of {metric_of(surface)} is better is not known",
        field="--better",
        rule="less or more",
        remedy="--better less",
    )


def _claim(view: RunView | None) -> Mapping[str, Any]:
    claim = None if view is None or view.lock is None else view.lock.settings.get("claim")
    return claim if isinstance(claim, Mapping) else {}


def _worthwhile(views: list[RunView | None], surface: str) -> float | None:
    """The smallest difference in this metric that would change what is done: the larger of two declarations."""
    declared = [
        claim["worthwhile"]
        for claim in map(_claim, views)
        if claim.get("metric") == metric_of(surface) and isinstance(claim.get("worthwhile"), int | float)
    ]
    return max(map(float, declared), default=None)


def _how(
    said: Registered, surface: str, person: str, given: Given, *, value: bool, rival: bool | None
) -> Iterator[str]:
    """Where the values are from: `value` and `rival` say which the store has; None where no incumbent has one."""
    words = f"as {person} says: {given.how or 'how it was measured is not said'}"
    if value:
        yield f"the {split_of(surface)} history of {said.experiment}/{run_of(said)} at update {said.update}"
        if rival is False:
            yield f"the incumbent's {words}"
    elif rival:
        yield f"{words}; the incumbent's from its {split_of(surface)} history"
    else:
        yield words
