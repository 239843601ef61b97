"""The pick of a search as a candidate: observed, a `search-checkpoint`, and with what was tried to find it."""

from __future__ import annotations

import itertools

from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.plan import LockedBase
from raykit.read.bases import locked_commit
from raykit.read.candidates.registering import registration
from raykit.records import Commit, Picked, Registered
from raykit.search import RowState, SearchState
from raykit.store import layout
from raykit.store.attempts import sealed
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_candidates
from raykit.store.folders import folders
from raykit.store.log import RunLog

PERSON = "raykit search"
"""Who registers a pick: nobody has looked at it yet."""


def pick_registration(store: ObjectStore, state: SearchState, picked: Picked) -> Registered | None:
    """What is registered of the checkpoint that a search has observed to be the best; None if it has none.

    Weights that have a name keep it: what is registered of them already is given back as it is.

    Raises:
        CorruptError: the row has no commit with these bytes, or its run, manifest or the registry is damaged.
        NotFoundError: its run is gone.
        InvalidInput: its run cannot be told apart from others.
        StoreUnavailableError: the store did not answer.
    """
    row = state.row(picked.row)
    if row.ended is None or row.ended.checkpoint is None:
        return None
    known = read_candidates(store)
    named = next((each for each in known if each.manifest == row.ended.checkpoint), None)
    if named is not None:
        return named
    name = _free_name(store, state.registration.experiment, {each.candidate for each in known})
    said = registration(
        store,
        _weights(store, state, row, name),
        name=name,
        role="search-checkpoint",
        surfaces=(),
        person=PERSON,
        corrects=False,
    )
    return said.model_copy(update={"source": evidence(state, picked), "cost": row.ended.cost})


def evidence(state: SearchState, picked: Picked) -> str:
    """What a pick rests on, in one line that is kept with the weights."""
    said = state.registration
    metric = said.metric.removeprefix("development.")
    over = f" over {len(picked.values)} seeds" if len(picked.values) > 1 else ""
    tried = {row.n for row in state.rows if row.launches}
    out = len(tried.intersection(each.row for each in picked.excluded))
    return (
        f"observed best of {picked.tried} rows registered, {len(tried)} tried, by the search {said.experiment} "
        f"(registration {sha256(sealed(said))[:12]}): row {picked.row}, development {metric} "
        f"{picked.value:.6g}{over}; {out} of them excluded"
    )


def _weights(store: ObjectStore, state: SearchState, row: RowState, name: str) -> LockedBase:
    assert row.ended is not None
    experiment = state.registration.experiment
    log = RunLog(store, experiment, row.run, by="reader")
    log.refresh()
    for event in log.state.events:
        if isinstance(event, Commit) and event.sha256 == row.ended.checkpoint:
            return locked_commit(name, experiment, event)
    raise CorruptError(
        f"{experiment}/{row.run} has no commit with the checkpoint that its row ended with", rule="I1"
    )


def _free_name(store: ObjectStore, experiment: str, taken: set[str]) -> str:
    """`<experiment>-pick`, or with a number where an earlier pick of the same search has that."""
    others = taken | set(folders(store, layout.experiments()))
    names = (f"{experiment[:110]}-pick{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
    return next(name for name in names if name not in others)
