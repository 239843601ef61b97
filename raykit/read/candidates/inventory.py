"""The work that depends on a candidate: what stays valid without it, what would have to be made again, at what cost."""

from __future__ import annotations

from dataclasses import dataclass

from raykit.candidates.registry import Candidate
from raykit.read.bases import dependents_of
from raykit.read.candidates.gates import examination_of
from raykit.records import Depends, Inventory
from raykit.store.base import ObjectStore


def inventory_of(store: ObjectStore, candidate: Candidate, *, now: float) -> Inventory:
    """What depends on a candidate, found by the digest of its manifest or said by people.

    An experiment that trains on from it stays: its own weights are what they are, unless somebody has said otherwise.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    said = [
        Depends(
            kind=event.kind,
            name=event.name,
            falls=event.falls,
            why=f"exported by {event.person}" if event.kind == "export" else f"{event.person} says so",
            cost=event.cost,
            time_ms=event.time_ms,
        )
        for _, event in candidate.dependents
    ]
    known = {item.name for item in said if item.kind == "run"}
    trained, unread = dependents_of(store, candidate.manifest)
    found = [
        Depends(kind="run", name=name, falls=False, why="its plan trains on from these weights")
        for name in trained
        if name not in known
    ]
    items = sorted([*said, *found], key=lambda item: (not item.falls, item.kind, item.name))
    return Inventory(
        candidate=candidate.name,
        manifest=candidate.manifest,
        items=tuple(items),
        receipts=examination_of(store, candidate.said, now=now).receipts,
        unread=unread,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redo:
    """What making again comes to, as far as it is known."""

    count: int
    cost: int
    """Micro-units, of those whose cost is known."""
    time_ms: int
    """The delay if one is made after the other, of those whose time is known."""
    unpriced: int
    """How many of them nobody has put a cost on."""
    untimed: int


def redo(inventory: Inventory) -> Redo:
    """What a switch away from a candidate would make necessary."""
    fall = [item for item in inventory.items if item.falls]
    return Redo(
        count=len(fall),
        cost=sum(item.cost or 0 for item in fall),
        time_ms=sum(item.time_ms or 0 for item in fall),
        unpriced=sum(item.cost is None for item in fall),
        untimed=sum(item.time_ms is None for item in fall),
    )
