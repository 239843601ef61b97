"""A checkpoint of a run as it is registered: everything that the store knows of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from raykit.candidates.evidence import planned_surfaces
from raykit.errors import CorruptError, InvalidInput
from raykit.plan import Lock, LockedBase
from raykit.read.bases import base_facts
from raykit.read.candidates.gates import run_of_key
from raykit.read.dossier.frozen import read_manifest
from raykit.read.root import Root
from raykit.read.seen import selection
from raykit.records import CandidateRole, Registered, Surface
from raykit.store.base import ObjectStore
from raykit.store.candidates import find_candidate


def registration(
    store: ObjectStore,
    locked: LockedBase,
    *,
    name: str,
    role: CandidateRole,
    surfaces: Sequence[Surface],
    person: str,
    corrects: bool,
) -> Registered:
    """What is registered of a checkpoint; the surfaces are those of its plan where none are given.

    Weights from elsewhere have their name from the start: their role and surfaces can be corrected under it.

    Raises:
        InvalidInput: weights from elsewhere were to get another name.
        CorruptError: its manifest or the registry is damaged.
        NotFoundError: its run is gone.
        StoreUnavailableError: the store did not answer.
    """
    if locked.origin == "adopted":
        return _adopted(store, locked, name, role, surfaces, person, corrects=corrects)
    manifest = read_manifest(store, locked.key, locked.manifest)
    if manifest is None:
        raise CorruptError(f"{locked.key} is missing, or is not the manifest that was committed", rule="I1")
    facts = base_facts(store, locked)
    lock = _lock(store, locked)
    return Registered(
        candidate=name,
        role=role,
        origin="run",
        manifest=locked.manifest,
        key=locked.key,
        experiment=locked.experiment,
        update=locked.update,
        rows=facts.rows,
        data=manifest.data,
        decision=None if lock is None else lock.settings.get("decision"),
        surfaces=tuple(surfaces) or _planned(lock),
        size_bytes=facts.size_bytes,
        accelerator_ms=facts.accelerator_ms,
        cost=facts.cost,
        corrects=corrects,
        person=person,
    )


def _adopted(
    store: ObjectStore,
    locked: LockedBase,
    name: str,
    role: CandidateRole,
    surfaces: Sequence[Surface],
    person: str,
    *,
    corrects: bool,
) -> Registered:
    said = find_candidate(store, locked.candidate)
    assert said is not None  # it was found under this name
    if name != said.candidate:
        raise InvalidInput(
            f"{said.candidate} was made elsewhere, and has its name already",
            field="NAME",
            value=name,
            rule="the same weights have one name",
            remedy=f"raykit candidates show {said.candidate}",
        )
    changed = {"role": role, "surfaces": tuple(surfaces) or said.surfaces, "person": person}
    return said.model_copy(update={**changed, "corrects": corrects})


def _lock(store: ObjectStore, locked: LockedBase) -> Lock | None:
    return Root(store, time.time).run(f"{locked.experiment}/{run_of_key(locked.key)}").lock


def _planned(lock: Lock | None) -> tuple[Surface, ...]:
    if lock is None:
        return ()
    chosen, claim = selection(lock), lock.settings.get("claim") or {}
    metrics = [each for each in (claim.get("metric"), chosen and chosen[1]) if each]
    return planned_surfaces(lock.settings, tuple(dict.fromkeys(metrics)))
