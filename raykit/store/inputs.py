"""The inputs of synthetic sets in the store: copied once, in chunks, and read back a few chunks at a time.

inputs/<digest>/<sha256>.parquet    consecutive inputs
inputs/<digest>/manifest.json       which chunks, in which order: `<digest>` is its own
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from raykit.ids import MAX_JSON_BYTES, Digest, sha256
from raykit.records import InputsManifest
from raykit.store import layout
from raykit.store.attempts import damaged, read_exactly, read_frozen
from raykit.store.base import ObjectStore
from raykit.store.commit import MANIFEST
from raykit.store.parquet import columns_of, read_parquet

KEPT_CHUNKS = 2
"""Units are made in order, and one may lie in two chunks."""


def freeze_inputs(
    store: ObjectStore, experiment: str, manifest: InputsManifest, chunks: Sequence[bytes]
) -> None:
    """Keep inputs: the chunks first, then their manifest, which names them. Safe to repeat.

    Raises:
        ConflictError: a key holds other bytes.
        UnknownOutcomeError: a reply was lost and could not be read back; freeze again.
        StoreUnavailableError: the store did not take it.
    """
    assert [sha256(data) for data in chunks] == [chunk.sha256 for chunk in manifest.chunks]
    for chunk, data in zip(manifest.chunks, chunks, strict=True):
        store.put_new(chunk_key(experiment, manifest.digest, chunk.sha256), data)
    store.put_new(layout.generation_inputs(experiment, manifest.digest, MANIFEST), manifest.to_bytes())


def read_inputs_manifest(store: ObjectStore, experiment: str, digest: Digest) -> InputsManifest:
    """The manifest of inputs that were frozen.

    Raises:
        CorruptError: it is missing, or does not match its digest.
        StoreUnavailableError: the store did not answer.
    """
    key = layout.generation_inputs(experiment, digest, MANIFEST)
    return read_frozen(store, key, digest, InputsManifest, max_bytes=MAX_JSON_BYTES)


def chunk_key(experiment: str, inputs: Digest, chunk: Digest) -> str:
    """Where a chunk of inputs lies."""
    return layout.generation_inputs(experiment, inputs, f"{chunk}.parquet")


class InputsReader:
    """The inputs of a set, by their number from 0. Keeps the last two chunks that it has read."""

    def __init__(self, store: ObjectStore, experiment: str, manifest: InputsManifest) -> None:
        self.manifest = manifest
        self.too_large = frozenset(manifest.too_large)
        """Numbers of the inputs that are not there but for their id: rows of them fail."""
        self._store = store
        self._experiment = experiment
        self._ends = np.cumsum([chunk.rows for chunk in manifest.chunks])
        self._kept: OrderedDict[int, pa.Table] = OrderedDict()

    def rows(self, first: int, count: int) -> pa.Table:
        """So many inputs from `first` on. Reads only the chunks that hold them.

        Raises:
            IndexError: there are not so many.
            CorruptError: a chunk is missing, or is not what the manifest says.
            StoreUnavailableError: the store did not answer.
        """
        if first < 0 or count < 1 or first + count > self.manifest.rows:
            raise IndexError(f"inputs {first} to {first + count - 1} of {self.manifest.rows}")
        parts = []
        number = int(np.searchsorted(self._ends, first, side="right"))
        while count:
            chunk = self._chunk(number)
            part = chunk.slice(first - (int(self._ends[number]) - chunk.num_rows), count)
            parts.append(part)
            first, count, number = first + part.num_rows, count - part.num_rows, number + 1
        return pa.concat_tables(parts)

    def _chunk(self, number: int) -> pa.Table:
        if number not in self._kept:
            self._kept[number] = self._read(number)
        self._kept.move_to_end(number)
        while len(self._kept) > KEPT_CHUNKS:
            self._kept.popitem(last=False)
        return self._kept[number]

    def _read(self, number: int) -> pa.Table:
        chunk = self.manifest.chunks[number]
        key = chunk_key(self._experiment, self.manifest.digest, chunk.sha256)
        table = read_parquet(read_exactly(self._store, key, chunk.sha256, max_bytes=chunk.size_bytes), key)
        if table.num_rows != chunk.rows or columns_of(table.schema) != self.manifest.columns:
            raise damaged(key, "does not hold the inputs that the manifest counts", "I3")
        return table
