"""What an examination stands on: a process as the suite asks with it, the roster in the data, what it is bound to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raykit.data.members import names_of
from raykit.errors import GateError, PlanError, some_of
from raykit.records import Receipt, Request, Roster, RosterUnit, Suite
from raykit.store.base import ObjectStore
from raykit.train.inputs import content_of
from raykit.work.failing import is_of_the_example
from raykit.work.subject import Room, enter

MAX_NAMED = 8
"""How many units a refusal names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A unit of the roster, and where it is in the data."""

    unit: RosterUnit
    index: int | None
    """None if it is not there any more."""
    readable: bool = True


def room_of(store: ObjectStore, experiment: str, suite: Suite, folder: Path) -> Room:
    """The process as a suite asks with it. `folder` is private and empty: the frozen code is unpacked there.

    Raises:
        CorruptError: the code does not match its digest.
        PlanError: the recipe or its params cannot be opened.
        StoreUnavailableError: the store did not answer.
    """
    return enter(
        store,
        experiment,
        code=suite.code,
        recipe=suite.recipe,
        params=suite.params,
        threads=suite.threads,
        deterministic=suite.deterministic,
        folder=folder,
    )


def places_of(roster: Roster, dataset: Any, only: Collection[str] | None) -> list[Place]:
    """Where each unit of the roster is in the data, each with the content that it had when it was drawn.

    Raises:
        GateError: some have another content.
    """
    index = {name: place for place, name in enumerate(names_of(len(dataset), getattr(dataset, "ids", None)))}
    places, changed = [], []
    for unit in roster.units:
        if only is not None and unit.id not in only:
            continue
        place = Place(unit=unit, index=index.get(unit.id))
        if place.index is not None:
            content = _content(dataset, place.index)
            if content is None:
                place = Place(unit=unit, index=place.index, readable=False)
            elif content != unit.sha256:
                changed.append(unit.id)
        places.append(place)
    if changed:
        raise GateError(
            f"{len(changed)} of {len(places)} units of the roster have another content than when it was drawn: "
            + some_of(changed, MAX_NAMED),
            field="dataset.content",
            rule="the same ids, with the same content",
            remedy="put the data back, or give the new data an experiment of their own",
        )
    return places


def _content(dataset: Any, index: int) -> str | None:
    """The digest of an item; empty if it has none any more, and None if the item cannot be read."""
    try:
        return content_of(dataset, index)
    except PlanError:
        return ""
    except Exception as error:  # as when it is scored: the example fails, and is counted
        if not is_of_the_example(error):
            raise
        return None


def require_bound(what: str, found: str, wanted: str) -> None:
    """Let only what was asked for be examined.

    Raises:
        GateError: it is another one.
    """
    if found != wanted:
        raise GateError(f"this is another {what}", field=f"qc.{what}", value=found, rule=wanted)


def require_reference(request: Request, reference: Receipt | None) -> None:
    """Update 0 is examined first: nothing is judged without what it is held against.

    Raises:
        GateError: the receipt at update 0 is not there, or is another one.
    """
    if (request.update == 0) != (reference is None):
        raise GateError(
            f"update {request.update} is examined {'without' if reference is None else 'with'} a receipt at update 0",
            field="qc.reference",
            rule="the receipt at update 0, for every checkpoint but that",
        )
    if reference is not None and (reference.suite != request.suite or reference.update != 0):
        raise GateError(
            "the reference is not the receipt at update 0 of this suite",
            field="qc.reference",
            value=reference.digest,
            rule=f"update 0 under {request.suite}",
        )
