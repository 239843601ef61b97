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
from raykit.read.view import selection
from raykit.records import CandidateRole, Registered, Surface
from raykit.store.base import ObjectStore


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

    Raises:
        InvalidInput: these are weights from elsewhere.
        CorruptError: its manifest or the registry is damaged.
        NotFoundError: its run is gone.
        StoreUnavailableError: the store did not answer.
    """
    if locked.origin == "adopted":
        raise InvalidInput(
            f"{locked.candidate} was made elsewhere, and has its name already",
            field="EXPERIMENT",
            value=locked.candidate,
            rule="a checkpoint of a run: EXPERIMENT@UPDATE",
            remedy=f"raykit candidates show {locked.candidate}",
        )
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


def _lock(store: ObjectStore, locked: LockedBase) -> Lock | None:
    return Root(store, time.time).run(f"{locked.experiment}/{run_of_key(locked.key)}").lock


def _planned(lock: Lock | None) -> tuple[Surface, ...]:
    if lock is None:
        return ()
    chosen, claim = selection(lock), lock.settings.get("claim") or {}
    metrics = [each for each in (claim.get("metric"), chosen and chosen[1]) if each]
    return planned_surfaces(lock.settings, tuple(dict.fromkeys(metrics)))
