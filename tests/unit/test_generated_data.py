"""A closed synthetic set as training data: which one, its rows, its ids, and what is refused; and taken out whole.

covers GEN-09 GEN-10 GEN-11 GEN-17, DATA-10 DATA-13, I1 I2
"""

from __future__ import annotations

import datetime
import hashlib
import json
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from makeset import SIDE, SetMaker, make_set

import raykit
from raykit.data.exported import export_set, lines_of
from raykit.data.generated import values_of
from raykit.data.sets import closed_set
from raykit.errors import CorruptError, GateError, InvalidInput, NotFoundError, UnsafeNameError
from raykit.store.local import LocalStore
from raykit.testing.memory import MemoryStore

NAME = "digits/digits"


def complete(store: MemoryStore | LocalStore, **traits: object) -> tuple[SetMaker, str]:
    """A closed set of 40 rows, of which one was filtered and one failed; and the digest of its manifest."""
    maker = make_set(store, **traits)
    maker.publish(2, filtered=1, failed=1)
    return maker, maker.finish().digest


# --- rows ---------------------------------------------------------------------------------------------------


def test_rows_are_mappings_of_columns_in_the_order_of_the_set() -> None:
    store = MemoryStore()
    _, digest = complete(store)
    rows = raykit.generated(store, NAME, manifest=digest)
    assert len(rows) == 38 and rows.deterministic is True
    numbers = [int(rows[n]["row"]) for n in range(len(rows))]
    assert numbers == [*range(10), *range(12, 40)], "the two that were not produced are not there"
    assert rows.ids[9:11] == ["row-00000009", "row-00000012"]
    image = rows[5]["image"]
    assert image.dtype == np.float32 and image.tolist() == [float((5 + n) % 17) for n in range(SIDE * SIDE)]
    assert rows[-1]["row"] == 39 and rows.groups is None
    for outside in (38, -39):
        with pytest.raises(IndexError):
            rows[outside]


def test_what_is_handed_out_is_the_callers() -> None:
    store = MemoryStore()
    rows = raykit.generated(store, NAME, manifest=complete(store)[1])
    rows[3]["image"][:] = -1
    assert rows[3]["image"].min() >= 0


def test_the_whole_set_is_a_table() -> None:
    store = MemoryStore()
    rows = raykit.generated(store, NAME, manifest=complete(store)[1])
    assert rows.table.num_rows == 38
    assert rows.table.column_names == ["row", "image", "label"]
    assert rows.table["row"].to_pylist() == [int(rows[n]["row"]) for n in range(38)]


def test_a_set_of_which_no_row_was_produced_is_empty() -> None:
    store = MemoryStore()
    maker = make_set(store, rows_asked=8)
    digest = maker.finish(failed=4).digest
    rows = raykit.generated(store, NAME, manifest=digest)
    assert (len(rows), rows.ids, rows.table.num_rows) == (0, [], 0)
    assert rows.table.column_names == ["row", "image", "label"]


def test_rows_of_one_input_are_told_apart_and_belong_together() -> None:
    """covers DATA-13: the id of a row, what it holds, and which rows stay together are three things."""
    store = MemoryStore()
    _, digest = complete(store, inputs="prompt", samples=2)
    rows = raykit.generated(store, NAME, manifest=digest)
    assert rows.ids[:4] == ["prompt-0#0", "prompt-0#1", "prompt-1#0", "prompt-1#1"]
    assert rows.groups is not None and rows.groups[:3] == ["prompt-0", "prompt-0", "prompt-1"]
    assert set(rows.content(0)) == {"image", "label"}, "who a row is does not make it another content"
    one = MemoryStore()
    _, digest = complete(one, inputs="prompt")
    assert raykit.generated(one, NAME, manifest=digest).ids[:2] == ["prompt-0", "prompt-1"]


def test_it_travels_to_other_processes_and_reads_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    rows = raykit.generated(str(tmp_path / "store"), NAME, manifest=complete(store)[1])
    there = pickle.loads(pickle.dumps(rows))
    assert there[7]["label"] == rows[7]["label"] and there.manifest == rows.manifest


def test_little_memory_reads_units_again_and_gives_the_same_rows() -> None:
    store = MemoryStore()
    _, digest = complete(store)
    small = raykit.generated(store, NAME, manifest=digest, memory_mb=1e-6)
    assert [int(small[n]["row"]) for n in (0, 37, 0, 20)] == [0, 39, 0, 22]


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([1, None], pa.int32(), [np.int32(1), None]),
        ([True, None], pa.bool_(), [np.True_, None]),
        (["a", None], pa.string(), ["a", None]),
        ([b"a", b""], pa.binary(), [b"a", b""]),
        ([[1.0], None, []], pa.list_(pa.float32()), [[1.0], None, []]),
        ([[1.0, 2.0]], pa.list_(pa.float32(), 2), [[1.0, 2.0]]),
        ([["a", None]], pa.list_(pa.string()), [["a", None]]),
        (
            [[[1, 2], [3, 4]], [[5], [6, 7]]],
            pa.list_(pa.list_(pa.int64())),
            [[[1, 2], [3, 4]], [[5], [6, 7]]],
        ),
        ([{"a": 1}], pa.struct({"a": pa.int64()}), [{"a": 1}]),
    ],
)
def test_values_of_any_column(values: list[object], type_: pa.DataType, expected: list[object]) -> None:
    found = values_of(pa.array(values, type_))
    for n, want in enumerate(expected):
        got = found[n]
        if isinstance(got, np.ndarray):
            got = got.tolist()
        elif isinstance(got, list):
            got = [each.tolist() if isinstance(each, np.ndarray) else each for each in got]
        assert got == want


def test_lists_of_lists_of_one_shape_are_one_array() -> None:
    found = values_of(pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8()))))
    assert found[0].shape == (2, 2) and found[0].dtype == np.int8


def test_it_says_which_population_its_rows_are_from() -> None:
    """covers GEN-17 DATA-10"""
    store = MemoryStore()
    _, digest = complete(store, scripted=True)
    rows = raykit.generated(store, NAME, manifest=digest)
    told = dict(rows.population)
    for part in ("teacher", "decode", "seed", "precision", "batch", "normalization", "inputs", "recipe"):
        assert told[part]
    assert "digits-teacher, update 40" in told["teacher"] and "approved by a script" in told["teacher"]
    assert rows.scripted and "scripted" in repr(rows) and digest[:12] in repr(rows)


# --- which set ----------------------------------------------------------------------------------------------


def test_a_set_is_opened_by_its_manifest_also_when_another_one_has_followed() -> None:
    """Whoever trains on it says which rows; what has that name tomorrow does not matter."""
    store = MemoryStore()
    maker, first = complete(store)
    maker.contract_now(why="another temperature", decode={"temperature": 0.5})
    assert raykit.generated(store, NAME, manifest=first[:8]).manifest == first
    with pytest.raises(GateError, match="not complete: 0 of 10 units") as found:
        raykit.generated(store, NAME)
    assert found.value.remedy == "raykit generate PLAN"
    second = maker.finish().digest
    assert raykit.generated(store, "digits").manifest == second != first


@pytest.mark.parametrize(
    ("name", "manifest", "error", "says"),
    [
        (NAME, "0" * 64, GateError, "has a manifest 000000000000"),
        (NAME, "abc", InvalidInput, "not the digest"),
        (NAME, "A" * 64, InvalidInput, "not the digest"),
        ("digits/other", None, NotFoundError, "no synthetic set digits/other"),
        ("nobody", None, NotFoundError, "no synthetic set nobody"),
        ("../x", None, UnsafeNameError, "not a safe name"),
    ],
)
def test_another_set_than_the_one_that_is_meant_is_refused(
    name: str, manifest: str | None, error: type[Exception], says: str
) -> None:
    store = MemoryStore()
    complete(store)
    with pytest.raises(error, match=says):
        raykit.generated(store, name, manifest=manifest)


def test_a_set_that_is_not_complete_says_how_far_it_is() -> None:
    """covers GEN-13: what is not persisted is no row."""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1, 2)
    maker.take_unit(3)
    for manifest in (None, "0" * 64):
        with pytest.raises(GateError, match="3 of 10 units are published"):
            raykit.generated(store, NAME, manifest=manifest)
    with pytest.raises(GateError):
        closed_set(store, NAME)


def test_a_set_with_findings_needs_a_reason() -> None:
    store = MemoryStore()
    _, digest = complete(store, bounds={"failed": 0.001})
    for despite in (None, " "):
        with pytest.raises(GateError, match="1 of 40 rows are failed") as found:
            raykit.generated(store, NAME, manifest=digest, despite=despite)
    assert found.value.field == "despite"
    rows = raykit.generated(store, NAME, manifest=digest, despite="one row in forty does not matter here")
    assert len(rows) == 38 and rows.set.despite is not None


def test_a_manifest_that_is_not_the_one_of_the_log_is_never_read() -> None:
    """covers I2"""
    store = MemoryStore()
    complete(store)
    (key,) = (key for key in store.objects if key.endswith("/manifest.json") and "/generation/" in key)
    store.objects[key] = store.objects[key].replace(b'"scripted":false', b'"scripted":true')
    with pytest.raises(CorruptError, match="another manifest than the log says"):
        raykit.generated(store, NAME)


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_damaged_unit_is_never_handed_out(how: str) -> None:
    """covers I1"""
    store = MemoryStore()
    _, digest = complete(store)
    (key,) = (key for key in store.objects if "/units/00000004-" in key)
    data = store.objects.pop(key)
    if how != "gone":
        store.objects[key] = data[:-1] if how == "cut" else data[:9] + bytes([data[9] ^ 1]) + data[10:]
    rows = raykit.generated(store, NAME, manifest=digest)
    assert rows[0]["row"] == 0
    with pytest.raises(CorruptError):
        rows[14]


# --- taken out ----------------------------------------------------------------------------------------------


def test_an_export_is_the_rows_and_all_that_says_how_they_were_made(tmp_path: Path) -> None:
    """covers GEN-10 GEN-11 GEN-17"""
    store = MemoryStore()
    _, digest = complete(store, scripted=True)
    done = export_set(closed_set(store, NAME), tmp_path / "out")
    assert {each.relative_to(tmp_path / "out").as_posix() for each in (tmp_path / "out").rglob("*.*")} == {
        "data/train-00000-of-00001.parquet",
        "manifest.json",
        "README.txt",
    }
    table = pq.read_table(tmp_path / "out" / "data")
    assert table["row"].to_pylist() == [*range(10), *range(12, 40)] and done.rows == 38
    assert hashlib.sha256((tmp_path / "out" / "manifest.json").read_bytes()).hexdigest() == digest
    sums = (tmp_path / "out" / "SHA256SUMS").read_text().splitlines()
    for found, name in (line.split("  ") for line in sums):
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == found
    assert len(sums) == 3
    text = (tmp_path / "out" / "README.txt").read_text()
    assert digest in text and "40 rows" in text and "38 rows, all of them here" in text
    assert "NOT FOR PRODUCTION" in text and "1 row: 1 ValueError" in text and "temperature" in text
    assert "bad rows   duplicates 0 of 38 (0 %), at most 1 %" in text


def test_many_units_are_put_together_into_files_of_a_size(tmp_path: Path) -> None:
    store = MemoryStore()
    complete(store)
    of = closed_set(store, NAME)
    done = export_set(of, tmp_path / "out", file_bytes=sum(of.manifest.units.size_bytes[:3]))
    assert [file.name for file in done.files] == [
        f"data/train-{n:05d}-of-{len(done.files):05d}.parquet" for n in range(len(done.files))
    ]
    assert len(done.files) < 10 and done.files[0].rows == 10, (
        "three units, of one of which two rows are missing"
    )
    tables = [pq.read_table(tmp_path / "out" / file.name) for file in done.files]
    assert pa.concat_tables(tables)["row"].to_pylist() == [*range(10), *range(12, 40)]
    assert done.rows == sum(file.rows for file in done.files) == 38


def test_an_export_as_json_lines(tmp_path: Path) -> None:
    store = MemoryStore()
    complete(store)
    export_set(closed_set(store, NAME), tmp_path / "out", form="jsonl")
    lines = (tmp_path / "out" / "data" / "train-00000-of-00001.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["row"] for row in rows] == [*range(10), *range(12, 40)]
    assert rows[5]["image"] == [float((5 + n) % 17) for n in range(SIDE * SIDE)]


def test_what_json_has_no_form_for_is_text() -> None:
    table = pa.table(
        {
            "bytes": [b"\x00\xff"],
            "at": [datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)],
            "price": [Decimal("1.10")],
            "took": [datetime.timedelta(seconds=2)],
            "text": ["line\nfeed \u2028"],
        }
    )
    (line,) = lines_of(table)
    assert line.count(b"\n") == 1
    row = json.loads(line)
    assert row["bytes"] == "AP8=" and row["price"] == "1.10" and row["took"] == "2.0 s"
    assert row["at"].startswith("2026-11-30T00:00:00") and row["text"] == "line\nfeed \u2028"


@pytest.mark.parametrize("taken", ["file", "folder", "store", "link"])
def test_an_export_never_replaces_anything(tmp_path: Path, taken: str) -> None:
    store = LocalStore(tmp_path / "store")
    complete(store)
    out = tmp_path / "out"
    match taken:
        case "file":
            out.write_text("mine")
        case "folder":
            out.mkdir()
            (out / "mine").write_text("mine")
        case "link":
            out.symlink_to(tmp_path / "elsewhere")
        case "store":
            out = tmp_path / "store" / "out"
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput):
        export_set(closed_set(store, NAME), out)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_that_cannot_be_whole_is_not_there(tmp_path: Path) -> None:
    store = MemoryStore()
    complete(store)
    (key,) = (key for key in store.objects if "/units/00000007-" in key)
    del store.objects[key]
    heard: list[tuple[int, int]] = []
    of = closed_set(store, NAME)
    with pytest.raises(CorruptError, match="is missing"):
        export_set(of, tmp_path / "out", file_bytes=1, tell=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (7, 10) and list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_a_place_to_write_to(tmp_path: Path) -> None:
    store = MemoryStore()
    complete(store)
    (tmp_path / "out").mkdir()
    assert export_set(closed_set(store, NAME), tmp_path / "out").rows == 38
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out"]
