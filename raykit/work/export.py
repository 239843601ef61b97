"""A chosen candidate as a folder that others can open: the weights, what they are, and who has chosen them.

    model.safetensors   the bytes of the checkpoint, as they were verified
    manifest.json       the checkpoint's closed list, whose digest is the candidate's identity
    provenance.json     where it is from, who has approved it for what, and the QC receipt that this rests on

The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from raykit.data.folder import new_folder, write
from raykit.errors import CorruptError, NotFoundError
from raykit.ids import sha256
from raykit.read.candidates import Let
from raykit.records import AdoptedFile, FileRef, Manifest
from raykit.store.base import ObjectStore
from raykit.store.candidates import read_adopted
from raykit.store.commit import MANIFEST, MAX_MANIFEST_BYTES, READ_BYTES

PROVENANCE = "provenance.json"

Exported = FileRef | AdoptedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What is to be exported, read and held against its digest."""

    manifest: bytes
    files: tuple[Exported, ...]
    record: Manifest | None
    """None for weights that were made elsewhere."""


def weights_of(store: ObjectStore, let: Let) -> Weights:
    """The files of a candidate that others need: its model, and the configuration that was adopted with it.

    Raises:
        CorruptError: the manifest is missing or changed.
        StoreUnavailableError: the store did not answer.
    """
    said = let.candidate.said
    try:
        data = store.get(said.key, max_bytes=MAX_MANIFEST_BYTES)
    except NotFoundError as error:
        raise CorruptError(f"{said.key} is missing", rule="I1") from error
    if sha256(data) != said.manifest:
        raise CorruptError(f"{said.key} is not the manifest that was approved", rule="I2")
    if said.origin == "adopted":
        return Weights(manifest=data, files=read_adopted(store, said.manifest).files, record=None)
    record = Manifest.from_bytes(data, said.key)
    return Weights(
        manifest=data, files=tuple(each for each in record.files if each.holds == "model"), record=record
    )


def provenance(
    let: Let, weights: Weights, *, folder: Path, root: str, person: str, at: float
) -> dict[str, Any]:
    """Where an export is from and what it rests on, as JSON values. `folder` is where it was written, from the root
    of the file system on."""
    said, record = let.candidate.said, weights.record
    review = None if let.examination.standing is None else let.examination.standing.review
    return {
        "schema": 1,
        "candidate": said.candidate,
        "role": said.role,
        "origin": said.origin,
        "experiment": said.experiment,
        "global_step": said.update,
        "decision": said.decision,
        "source": said.source,
        "manifest": said.manifest,
        "files": {each.name: each.sha256 for each in weights.files},
        "contract": record and record.contract,
        "data": record and record.data,
        "code": record and record.code,
        "approved": let.approval.plain(),
        "scripted": let.approval.scripted,
        "qc": {
            "receipts": list(let.examination.receipts),
            "reviewed_by": review and review.event.person,
            "scripted": let.examination.scripted,
            "unexamined": let.approval.unexamined,
        },
        "root": root,
        "exported_to": str(folder),
        "exported_by": person,
        "exported_at": at,
        "raykit": metadata.version("raykit"),
    }


def export(
    store: ObjectStore,
    let: Let,
    weights: Weights,
    folder: Path,
    told: dict[str, Any],
    *,
    before: Callable[[], None],
) -> None:
    """Write an export. `before` is called once everything is verified, right before the folder appears.

    Raises:
        InvalidInput: something is in its place; nothing of it is touched.
        CorruptError: a file is missing or changed: nothing is left.
        StoreUnavailableError: the store did not answer: nothing is left.
    """
    with new_folder(folder) as beside:
        prefix = let.candidate.said.key.rpartition("/")[0]
        for file in weights.files:
            _copy(store, f"{prefix}/{file.name}", file, beside / file.name)
        write(beside / MANIFEST, weights.manifest)
        write(beside / PROVENANCE, json.dumps(told, indent=2, sort_keys=True).encode() + b"\n")
        before()


def _copy(store: ObjectStore, key: str, file: Exported, target: Path) -> None:
    found, size_bytes = hashlib.sha256(), 0
    try:
        with store.open(key) as source, target.open("xb") as out:
            while chunk := source.read(READ_BYTES):
                found.update(chunk)
                size_bytes += len(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except NotFoundError as error:
        raise CorruptError(f"{key} is missing", rule="I1") from error
    if size_bytes != file.size_bytes or found.hexdigest() != file.sha256:
        raise CorruptError(f"{key} does not match its sha256: nothing was exported", rule="I1")
