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
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from raykit.errors import CorruptError, InvalidInput, NotFoundError
from raykit.ids import sha256
from raykit.read.candidates import Let
from raykit.records import AdoptedFile, FileRef, Manifest
from raykit.store import layout
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


def require_new(folder: Path) -> None:
    """Let only a folder pass that is not there, or is empty, and lies in no store.

    Raises:
        InvalidInput: something is there, or it would lie among the objects of a store; nothing of it is touched.
    """
    _require_outside(folder)
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise _taken(folder, "is not a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise _taken(folder, "is not empty")


def _require_outside(folder: Path) -> None:
    """A store holds its own objects alone: what else lies in it is `unknown` to every check, and in a writer's way."""
    place = folder.resolve()
    root = next((each for each in (place, *place.parents) if _holds_store(each)), None)
    if root is not None:
        raise InvalidInput(
            f"{folder} lies in the store at {root}",
            field="DIR",
            value=str(folder),
            rule="a folder outside of every store: an export is for others, and no part of one",
            remedy="give another DIR",
        )


def _holds_store(folder: Path) -> bool:
    """Whether a folder is the root of a store: it has entries of an experiment's log, or of the root's own."""
    logs = (f"{layout.experiments()}/*/log", layout.candidates_log(), layout.fleet_log())
    found = (entry for log in logs for entry in folder.glob(f"{log}/*.json"))
    return any(layout.known(entry.relative_to(folder).as_posix()) is not None for entry in found)


def _taken(folder: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{folder} {what}",
        field="DIR",
        value=str(folder),
        rule="a folder that is not there yet, or an empty one: an export never replaces anything",
        remedy="give another DIR",
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
    require_new(folder)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")
    _make(beside)
    try:
        prefix = let.candidate.said.key.rpartition("/")[0]
        for file in weights.files:
            _copy(store, f"{prefix}/{file.name}", file, beside / file.name)
        _write(beside / MANIFEST, weights.manifest)
        _write(beside / PROVENANCE, json.dumps(told, indent=2, sort_keys=True).encode() + b"\n")
        _sync(beside)
        before()
        _appear(beside, folder)
    except BaseException:  # whatever ends it, an interrupt too: nothing half-written is left
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _make(beside: Path) -> None:
    try:
        beside.mkdir(parents=True)
    except OSError as error:
        raise InvalidInput(
            f"{beside.parent} cannot be written: {error.strerror}", field="DIR", value=str(beside.parent)
        ) from error


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


def _write(target: Path, data: bytes) -> None:
    with target.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def _appear(beside: Path, folder: Path) -> None:
    try:
        beside.rename(folder)  # onto nothing, or onto an empty folder
    except OSError as error:
        require_new(folder)
        raise InvalidInput(
            f"{folder} cannot be written: {error.strerror}", field="DIR", value=str(folder)
        ) from error
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
