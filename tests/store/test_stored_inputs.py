"""Inputs in the store: copied once, read chunk by chunk, each held against its digest."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from raykit.data.inputs import CutInputs, cut_inputs
from raykit.errors import CorruptError, UnknownOutcomeError
from raykit.ids import sha256
from raykit.records import InputChunk
from raykit.store.base import ObjectStore
from raykit.store.inputs import KEPT_CHUNKS, InputsReader, chunk_key, freeze_inputs, read_inputs_manifest
from raykit.store.local import LocalStore
from raykit.store.parquet import parquet_bytes
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost


@pytest.fixture(params=["memory", "local", "moto", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return LocalStore(tmp_path)
    make = request.getfixturevalue("make_s3")
    return make(request.getfixturevalue(request.param).endpoint)  # type: ignore[no-any-return]


def table(rows: int = 40) -> pa.Table:
    return pa.table({"id": [f"i{n}" for n in range(rows)], "x": list(range(rows))})


def cut(**how: Any) -> CutInputs:
    return cut_inputs(
        table(), "i.csv", **{"input_bytes": 1000, "at": "generate.s.inputs", "chunk_bytes": 75, **how}
    )


def frozen(store: ObjectStore, **how: Any) -> InputsReader:
    found = cut(**how)
    freeze_inputs(store, "digits", *found)
    return InputsReader(store, "digits", found.manifest)


def test_inputs_come_back_as_they_were_frozen(store: ObjectStore) -> None:
    # covers GEN-06
    reader = frozen(store)
    frozen(store)  # again
    assert len(reader.manifest.chunks) > 4
    assert read_inputs_manifest(store, "digits", reader.manifest.digest) == reader.manifest
    assert reader.rows(0, 40).to_pylist() == table().to_pylist()
    assert reader.rows(17, 3).to_pylist() == table().slice(17, 3).to_pylist()


@pytest.mark.parametrize("seed", range(3))
def test_any_span_is_read(seed: int) -> None:
    rng = random.Random(seed)
    reader = frozen(MemoryStore(), chunk_bytes=rng.choice([1, 40, 90, 200, 10_000]))
    for _ in range(60):
        first = rng.randrange(40)
        count = rng.randrange(1, 41 - first)
        assert reader.rows(first, count).to_pylist() == table().slice(first, count).to_pylist()


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 0), (0, 41), (40, 1), (39, 2)])
def test_a_span_that_is_not_there_is_refused(first: int, count: int) -> None:
    with pytest.raises(IndexError):
        frozen(MemoryStore()).rows(first, count)


def test_only_the_chunks_that_are_needed_are_read_and_two_are_kept() -> None:
    base = MemoryStore()
    manifest = frozen(base).manifest
    steps = FaultStore(base)
    reader = InputsReader(steps, "digits", manifest)
    for first in range(40):
        reader.rows(first, 1)
    assert len(steps.fault.operations) == len(manifest.chunks), "in order, each is read once"
    reader.rows(39, 1)
    reader.rows(30, 10)
    before = len(steps.fault.operations)
    reader.rows(38, 2)
    assert len(steps.fault.operations) == before
    assert len(reader._kept) <= KEPT_CHUNKS


def test_chunks_come_first_and_a_freeze_that_was_interrupted_goes_on() -> None:
    # covers F2, I1
    whole = MemoryStore()
    steps = FaultStore(whole)
    found = cut()
    freeze_inputs(steps, "digits", *found)
    assert steps.fault.operations[-1].endswith("manifest.json")
    for at in range(1, len(steps.fault.operations) + 1):
        store = MemoryStore()
        with pytest.raises(UnknownOutcomeError):
            freeze_inputs(FaultStore(store, Fault(reply_lost, at=at, when="after")), "digits", *found)
        freeze_inputs(store, "digits", *found)
        assert store.objects == whole.objects


def test_inputs_are_held_against_their_digests() -> None:
    # covers I1, I2, F9
    store = MemoryStore()
    reader = frozen(store)
    manifest = reader.manifest
    key = chunk_key("digits", manifest.digest, manifest.chunks[1].sha256)
    good = store.objects[key]
    other = store.objects[chunk_key("digits", manifest.digest, manifest.chunks[0].sha256)]
    for data in (good[:-1], good[:-1] + b"!", good + b"!", other):
        store.objects[key] = data
        with pytest.raises(CorruptError):
            InputsReader(store, "digits", manifest).rows(0, 40)
    del store.objects[key]
    with pytest.raises(CorruptError, match="is missing"):
        InputsReader(store, "digits", manifest).rows(0, 40)
    with pytest.raises(CorruptError, match="is missing"):
        read_inputs_manifest(store, "digits", sha256(b"none"))


@pytest.mark.parametrize("wrong", [table(3), table(2).rename_columns(["id", "y"])])
def test_a_chunk_with_other_rows_than_the_manifest_counts_is_refused(wrong: pa.Table) -> None:
    store, found = MemoryStore(), cut(chunk_bytes=10_000)
    data = parquet_bytes(wrong)
    chunk = InputChunk(rows=40, sha256=sha256(data), size_bytes=len(data))
    manifest = found.manifest.model_copy(update={"chunks": (chunk,)})
    freeze_inputs(store, "digits", manifest, [data])
    with pytest.raises(CorruptError, match="the manifest counts"):
        InputsReader(store, "digits", manifest).rows(0, 1)


def test_inputs_that_were_too_large_are_told() -> None:
    reader = frozen(MemoryStore(), input_bytes=10)
    assert reader.too_large == set(range(10, 40))
    assert reader.rows(9, 2).to_pylist() == [{"id": "i9", "x": 9}, {"id": "i10", "x": None}]
