"""Closing a set: its manifest from the receipts, then everyone who has to know of it. Each step may be repeated.

A kill anywhere leaves what the next start makes again, byte for byte, or finds to be there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from raykit.candidates.rules import let_depend
from raykit.errors import GateError
from raykit.records import (
    Contracted,
    Dependent,
    ExperimentEntry,
    Generated,
    GenerationContract,
    Record,
    SetManifest,
)
from raykit.shards.closing import close
from raykit.store.base import ObjectStore
from raykit.store.candidates import act
from raykit.store.generation import Shards
from raykit.store.people import People
from raykit.store.progress import read_progress, write_snapshot


def close_set(store: ObjectStore, contract: GenerationContract, said: Contracted, *, by: str) -> SetManifest:
    """Close a set whose units all have their receipts; one that is closed is only told of, where it was not yet.

    Raises:
        GateError: a unit has no receipt.
        CorruptError: a receipt or a log is damaged.
        ConflictError: another manifest is there.
        UnknownOutcomeError: a reply was lost and could not be read back; close again.
        StoreUnavailableError: the store did not answer.
    """
    shards = Shards(store, contract)
    manifest = shards.manifest()
    if manifest is None:
        manifest = close(contract, shards.receipts(), scripted=said.scripted)
        shards.close(manifest)
        write_snapshot(shards, read_progress(shards))
    _tell_experiment(store, manifest, by)
    _tell_registry(store, contract, said, by)
    return manifest


def _tell_experiment(store: ObjectStore, manifest: SetManifest, by: str) -> None:
    """Say that a set is closed, if nobody has."""
    people = People(store, manifest.experiment, by=by)
    event = Generated(
        name=manifest.name,
        contract=manifest.contract,
        manifest=manifest.digest,
        rows=manifest.rows,
        by=by,
    )

    def decide(entries: Sequence[ExperimentEntry]) -> list[Record]:
        return [] if manifest.contract in people.acts.generated else [event]

    people.log.append(decide, at=time.time())


def _tell_registry(store: ObjectStore, contract: GenerationContract, said: Contracted, by: str) -> None:
    """The set depends on its teacher: whoever would switch to another one sees that it falls."""
    event = Dependent(
        candidate=said.candidate,
        manifest=contract.teacher,
        kind="target-set",
        name=f"{contract.experiment}/{contract.name} ({contract.digest[:12]})",
        person=by,
    )
    try:
        act(store, lambda registry: let_depend(registry, event), by=by, at=time.time())
    except GateError:
        pass  # the name stands for other weights by now: nothing of theirs depends on it
