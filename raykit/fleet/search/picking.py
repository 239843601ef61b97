"""The last act of a search: its pick gets a name in the registry, as observed and as nothing more."""

from __future__ import annotations

from raykit.read.candidates.picking import pick_registration
from raykit.records import Picked
from raykit.search import SearchState
from raykit.store import candidates
from raykit.store.base import ObjectStore


def register_pick(store: ObjectStore, state: SearchState, picked: Picked, *, at: float) -> str | None:
    """Register the checkpoint of a pick, and give the name that it has; None if its row has no checkpoint.

    Safe to repeat: weights have one name, and are registered under it once.

    Raises:
        CorruptError: the run of the row, its manifest or the registry is damaged.
        NotFoundError: its run is gone.
        InvalidInput: another process has taken the name meanwhile; the next attempt takes another one.
        UnknownOutcomeError: the reply was lost; say it again.
        StoreUnavailableError: the store did not answer.
    """
    event = pick_registration(store, state, picked)
    if event is None:
        return None
    candidates.register(store, event, at=at)
    return event.candidate
