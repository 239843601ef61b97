"""The inputs of synthetic sets: each manifest is what its key says, and its files are there."""

from __future__ import annotations

from collections.abc import Collection

from raykit.errors import CorruptError
from raykit.records import InputChunk, InputsManifest
from raykit.store import layout
from raykit.store.check.view import View
from raykit.store.commit import MANIFEST
from raykit.store.inputs import chunk_key


def check_inputs(view: View, experiment: str, named: Collection[str]) -> dict[str, InputsManifest]:
    """Look at all inputs of an experiment, and at those that a contract names; by digest those that can be believed."""
    there = {
        known.parts["digest"]
        for known in view.known.values()
        if known.kind == "inputs" and known.parts["experiment"] == experiment
    }
    found = {}
    for digest in sorted(there | set(named)):
        manifest = _manifest(view, experiment, digest, named=digest in named)
        if manifest is not None:
            found[digest] = manifest
            for chunk in manifest.chunks:
                _chunk(view, experiment, digest, manifest, chunk, named=digest in named)
    return found


def _manifest(view: View, experiment: str, digest: str, *, named: bool) -> InputsManifest | None:
    key = layout.generation_inputs(experiment, digest, MANIFEST)
    if named and view.missing(key, "the inputs of a contract are kept", "I1"):
        return None
    if view.size(key) is None:
        return None
    view.counts["inputs"] += 1
    data = view.get(key)
    if not view.matches(key, digest, data):
        return None
    try:
        return InputsManifest.from_bytes(data, key)
    except CorruptError as error:
        view.find(key, "the manifest of inputs", error.message, "I2")
        return None


def _chunk(
    view: View, experiment: str, digest: str, manifest: InputsManifest, chunk: InputChunk, *, named: bool
) -> None:
    key = chunk_key(experiment, digest, chunk.sha256)
    if named:
        view.name([key])
    if view.size(key) is None:
        view.find(key, "a manifest's files are there", f"{key} is missing", "I1")
    elif view.size(key) != chunk.size_bytes:
        found = f"{key} is {view.size(key)} bytes long, not {chunk.size_bytes}"
        view.find(key, "a manifest's files have its sizes", found, "I1")
    elif view.read_data and key in view.sizes:
        data = view.get(key, chunk.size_bytes)
        if view.matches(key, chunk.sha256, data):
            _rows(view, key, data, manifest, chunk)


def _rows(view: View, key: str, data: bytes, manifest: InputsManifest, chunk: InputChunk) -> None:
    # Here, because a store without inputs has no need of pyarrow.
    from raykit.store.parquet import columns_of, read_parquet

    try:
        table = read_parquet(data, key)
    except CorruptError as error:
        view.find(key, "a manifest's files hold its rows", error.message, "I1")
        return
    if (table.num_rows, columns_of(table.schema)) != (chunk.rows, manifest.columns):
        found = f"{table.num_rows:,} rows with {', '.join(table.column_names)}"
        view.find(key, "a manifest's files hold its rows", found, "I1")
