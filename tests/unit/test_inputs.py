"""The inputs of a synthetic set: what may be in them, and files that are always the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raykit.data.inputs import (
    CutInputs,
    cut_inputs,
    fetch_source,
    read_inputs,
    row_bytes,
    too_large,
)
from raykit.errors import PlanError
from raykit.ids import sha256
from raykit.store.parquet import columns_of, read_parquet

AT = "generate.twins.inputs"
LIMIT = 1_000_000


def parquet(table: pa.Table, **options: Any) -> bytes:
    """A file as other programs write it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def read(data: bytes, source: str = "inputs.jsonl") -> pa.Table:
    return read_inputs(data, source, at=AT)


def refused(data: bytes, source: str = "inputs.jsonl") -> PlanError:
    with pytest.raises(PlanError) as caught:
        read(data, source)
    assert caught.value.field == AT
    return caught.value


def cut(table: pa.Table, **how: Any) -> CutInputs:
    return cut_inputs(table, "inputs.jsonl", **{"input_bytes": LIMIT, "at": AT, **how})


# --- three kinds of files -------------------------------------------------------------------------------------


def test_json_lines_are_read() -> None:
    table = read(lines({"id": 7, "text": "a"}) + b"\n\n" + lines({"id": "b7", "weights": [1, 2]}) + b"\r\n")
    assert table.to_pylist() == [
        {"id": "7", "text": "a", "weights": None},
        {"id": "b7", "text": None, "weights": [1, 2]},
    ]
    assert table.column_names == ["id", "text", "weights"]


def test_text_that_looks_like_a_date_stays_text() -> None:
    table = read(lines({"id": "2026-11-30", "day": "2026-11-30T10:00:00Z"}))
    assert table.to_pylist() == [{"id": "2026-11-30", "day": "2026-11-30T10:00:00Z"}]


def test_csv_is_read_and_everything_in_it_stays_what_it_is() -> None:
    table = read(b'id,x,text\n007,1,"a\nb"\n8,2.5,c\n', "inputs.CSV")
    assert table.to_pylist() == [
        {"id": "007", "x": "1", "text": "a\nb"},
        {"id": "8", "x": "2.5", "text": "c"},
    ]


TEXTS = ["01234", "0012", "1e3", "true", "2026-11-30", "NA", "12345678901234567890", "", "null", " x ", "1,5"]


def test_text_of_a_csv_file_stays_text() -> None:
    """FAULT-C06"""
    written = "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS))
    table = read(f"id,x\n{written}".encode(), "inputs.csv")
    assert table.column("x").to_pylist() == TEXTS
    bare = read(f"id,x\n{written}".replace('"', "").replace("1,5", "1.5").encode(), "inputs.csv")
    assert bare.column("x").to_pylist() == [*TEXTS[:-1], "1.5"]


def test_a_file_is_read_as_before_for_a_set_that_was_begun_before() -> None:
    """FAULT-C06: what looks like a number was one, and the inputs of a contract are named by their digest."""
    data = b"id,x,day,flag\n007,0012,2026-11-30,true\n8,1e3,2026-12-01,false\n9,NA,,true\n"
    table = read_inputs(data, "inputs.csv", at=AT, guess=True)
    assert [str(field.type) for field in table.schema] == ["string", "double", "date32[day]", "bool"]
    assert cut_inputs(table, "inputs.csv", input_bytes=LIMIT, at=AT).manifest.digest == (
        "2fd09ca1c25bcaa865c55b950a67a4ebdc20aaf2da6b7c8deacd2a9a39596606"
    )


@pytest.mark.parametrize(
    ("type_", "texts", "values"),
    [
        ("int64", ["0012", "-3", ""], [12, -3, None]),
        ("float64", ["1e3", "-.5", ""], [1000.0, -0.5, None]),
        ("bool", ["true", "False", ""], [True, False, None]),
        ("text", ["true", "1e3", ""], ["true", "1e3", None]),
    ],
)
def test_a_column_has_the_type_that_the_plan_says(type_: str, texts: list[str], values: list[Any]) -> None:
    """FAULT-C06"""
    data = "id,x\n" + "".join(f"{n},{text}\n" for n, text in enumerate(texts))
    table = read_inputs(data.encode(), "inputs.csv", at=AT, types={"x": type_})
    assert table.column("x").to_pylist() == (texts if type_ == "text" else values)
    rows = [{"id": n, "x": text or None} for n, text in enumerate(texts)]
    assert (
        read_inputs(lines(*rows), "inputs.jsonl", at=AT, types={"x": type_}).column("x").to_pylist() == values
    )
    given = pa.table({"id": ["0", "1", "2"], "x": [text or None for text in texts]})
    found = read_inputs(parquet(given), "inputs.parquet", at=AT, types={"x": type_})
    assert found.column("x").to_pylist() == values


@pytest.mark.parametrize(
    ("data", "source", "types", "message"),
    [
        (
            b'id,t,x\n1,"a\nb",1\n\n2,c,1e3\n',
            "a.csv",
            {"x": "int64"},
            "line 5: column x has '1e3', and its type",
        ),
        (b"id,x\n1,NA\n", "a.csv", {"x": "float64"}, "line 2: column x has 'NA'"),
        (b"id,x\n1,yes\n", "a.csv", {"x": "bool"}, "line 2: column x has 'yes'"),
        (b'{"id": 1}\n\n{"id": 2, "x": 1.5}', "a.jsonl", {"x": "int64"}, "line 3: column x has 1.5"),
        (b'{"id": 1, "x": [1]}', "a.jsonl", {"x": "text"}, "line 1: column x has [1]"),
        (b"id,x\n1,2\n", "a.csv", {"y": "int64"}, "has no column y"),
        (b"id,x\n1,2\n", "a.csv", {"id": "int64"}, "an id is text"),
    ],
)
def test_a_value_of_another_type_is_named(
    data: bytes, source: str, types: dict[str, str], message: str
) -> None:
    """FAULT-C06"""
    with pytest.raises(PlanError) as caught:
        read_inputs(data, source, at=AT, types=types)
    assert message in caught.value.message
    (column,) = types
    assert caught.value.field == f"generate.twins.types.{column}"


def test_a_value_of_parquet_that_is_of_another_type_is_named() -> None:
    data = parquet(pa.table({"id": ["a", "b"], "x": ["1", "x1"]}))
    with pytest.raises(PlanError, match=r"row 1: column x has 'x1'"):
        read_inputs(data, "inputs.parquet", at=AT, types={"x": "int64"})


def test_a_whole_number_that_is_too_large_is_named_and_not_rounded() -> None:
    """FAULT-C06"""
    data = b'{"id": 1, "x": 5}\n{"id": 2, "x": 12345678901234567890}'
    error = refused(data)
    assert (
        'line 2: column x has 12345678901234567890: more than an int64 holds; types = { x = "text" }'
        in error.message
    )
    table = read_inputs(data, "inputs.jsonl", at=AT, types={"x": "text"})
    assert table.column("x").to_pylist() == ["5", "12345678901234567890"]


def test_a_mark_of_byte_order_is_no_part_of_the_first_line() -> None:
    """FAULT-C07"""
    mark = b"\xef\xbb\xbf"
    assert read(mark + lines({"id": "a"}, {"id": "b"})).to_pylist() == [{"id": "a"}, {"id": "b"}]
    assert read(mark + b"id,x\na,1\n", "inputs.csv").to_pylist() == [{"id": "a", "x": "1"}]


def test_one_input_may_be_larger_than_a_reader_s_block() -> None:
    text = "a" * 3_000_000
    assert read(f'id,x\n1,"{text}"\n2,b\n'.encode(), "inputs.csv").column("x").to_pylist() == [text, "b"]


def test_types_that_were_guessed_of_csv_are_those_of_all_its_lines() -> None:
    rows = [f"{n},{n}" for n in range(300_000)] + ["300000,late"]  # far behind what a first block would hold
    data = ("id,x\n" + "\n".join(rows)).encode()
    assert read_inputs(data, "inputs.csv", at=AT, guess=True).column("x")[0].as_py() == "0"


def test_parquet_of_other_programs_is_read_with_the_types_of_parquet() -> None:
    given = pa.table(
        {
            "id": pa.array([3, 4]),
            "kind": pa.array(["x", "y"]).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "sure": pa.array([1, 2], pa.int8()),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64()),
                pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
                pa.field("vector", pa.list_(pa.float32(), 2)),
                pa.field("sure", pa.int8(), nullable=False),
            ],
            metadata={"pandas": "{}"},
        ),
    )
    table = read(parquet(given), "inputs.parquet")
    assert [str(field.type) for field in table.schema] == ["string", "string", "list<element: float>", "int8"]
    assert table.column("id").to_pylist() == ["3", "4"]
    assert all(field.nullable for field in table.schema)
    assert not table.schema.metadata


def test_no_code_of_an_extension_type_is_run() -> None:
    ran: list[bytes] = []

    class Planted(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.int64(), "test.planted")

        def __arrow_ext_serialize__(self) -> bytes:
            return b"payload"

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Planted:
            ran.append(serialized)
            return cls()

    pa.register_extension_type(Planted())
    try:
        column = pa.ExtensionArray.from_storage(Planted(), pa.array([1]))
        data = parquet(pa.table({"id": ["a"], "x": column}))
        ran.clear()
        assert read(data, "inputs.parquet").to_pylist() == [{"id": "a", "x": 1}]
        assert ran == []
        pq.read_table(pa.BufferReader(data))
        assert ran, "it would have been run"
    finally:
        pa.unregister_extension_type("test.planted")


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "source", "message"),
    [
        (b"", "inputs.jsonl", "there are no inputs"),
        (b"\n\n", "inputs.jsonl", "there are no inputs"),
        (b"id,x\n", "inputs.csv", "there are no inputs"),
        (b"", "inputs.csv", "is no csv file"),
        (b"", "inputs.parquet", "is no parquet file"),
        (b"PAR1 and more PAR1", "inputs.parquet", "is no parquet file"),
        (b"{}", "inputs.txt", "no kind that raykit reads"),
        (b'{"x": 1}', "inputs.jsonl", "no column id, but x"),
        (b'{"id": "a"', "inputs.jsonl", "line 1 is not valid JSON"),
        (b'{"id": "a"}\n[1]', "inputs.jsonl", "line 2 is no object"),
        (b'{"id": "a", "id": "b"}', "inputs.jsonl", "there twice"),
        (b'{"id": "a", "x": NaN}', "inputs.jsonl", "not allowed"),
        (b'{"id": "a", "x": 1}\n{"id": "b", "x": "c"}', "inputs.jsonl", "line 2: column x has 'c'"),
        (b'{"id": "a", "x": 10000000000000000000000}', "inputs.jsonl", "column x"),
        (b'{"id": "a", "x": "\\ud800"}', "inputs.jsonl", "column x"),
        (b'{"id": "\xff"}', "inputs.jsonl", "line 1 is not valid JSON"),
        (b'{"id": 1.5}', "inputs.jsonl", "the ids in inputs.jsonl are double"),
        (b'{"id": true}', "inputs.jsonl", "the ids in inputs.jsonl are bool"),
        (b'{"id": "a", "row": 1}', "inputs.jsonl", "'row' of their own"),
        (b"id,sample\na,1\n", "inputs.csv", "'sample' of their own"),
        (b"id,x,x\na,1,2\n", "inputs.csv", "'x' twice"),
        (b"id,x\na,1\nb\n", "inputs.csv", "is no csv file"),
        (b"id,x\na,\xe9\n", "inputs.csv", "is no csv file"),
    ],
)
def test_what_is_no_input_is_refused(data: bytes, source: str, message: str) -> None:
    assert message in refused(data, source).message


def test_inputs_without_an_id_are_counted_and_named() -> None:
    rows = [{"id": "a"}, {"x": 1}, {"id": ""}, {"id": None}, {"x": 2}]
    error = refused(lines(*rows))
    assert error.message == "4 inputs in inputs.jsonl have no id: rows 1, 2, 3 and 1 more"
    assert error.value == "inputs.jsonl"
    assert "1 input in inputs.jsonl has no id: row 1" in refused(lines({"id": "a"}, {"id": None})).message


def test_ids_that_are_there_twice_are_named_with_their_rows() -> None:
    assert (
        refused(lines({"id": "7"}, {"id": "a"}, {"id": 7})).message
        == "1 id is in inputs.jsonl more than once: '7' in rows 0 and 2"
    )
    error = refused(lines(*({"id": name} for name in "aaaabbccddx")))
    assert error.message == (
        "4 ids are in inputs.jsonl more than once: 'a' in rows 0, 1, 2 and 1 more; 'b' in rows 4 and 5; "
        "'c' in rows 6 and 7 and 1 more"
    )
    assert error.remedy is not None


@given(st.binary(max_size=60), st.sampled_from(["jsonl", "csv", "parquet"]))
def test_whatever_is_in_a_file_it_is_read_or_refused(data: bytes, suffix: str) -> None:
    try:
        table = read(data, f"inputs.{suffix}")
    except PlanError:
        return
    assert table.num_rows


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_parquet_file_with_changed_bytes_is_read_or_refused(seed: int, changes: int) -> None:
    rng = np.random.default_rng(seed)
    data = bytearray(parquet(pa.table({"id": ["a", "b"], "x": [1, 2]})))
    for _ in range(changes):
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    try:
        read(bytes(data), "inputs.parquet")
    except PlanError:
        pass


# --- where they are -------------------------------------------------------------------------------------------


def test_a_source_is_found_from_the_plan_s_folder(tmp_path: Path) -> None:
    (tmp_path / "Data").mkdir()
    (tmp_path / "Data/In puts.jsonl").write_bytes(b"here")
    assert fetch_source("Data/In puts.jsonl", tmp_path, at=AT) == b"here"
    assert fetch_source(str(tmp_path / "Data/In puts.jsonl"), Path("/nowhere"), at=AT) == b"here"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gone.jsonl", "No such file"),
        (".", "Is a directory"),
        ("s3://bucket/a/UPPER.jsonl", "cannot be read"),
        ("s3://user:secret@bucket/a.jsonl", "cannot be read"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        fetch_source(source, tmp_path, at=AT)
    assert caught.value.field == AT
    assert "secret" not in f"{caught.value} {caught.value.value}"


# --- sizes ----------------------------------------------------------------------------------------------------

VALUES: list[tuple[pa.DataType, list[Any], list[int]]] = [
    (pa.int64(), [1, None], [8, 8]),
    (pa.bool_(), [True, False], [1, 1]),
    (pa.float16(), [1.0, 2.0], [2, 2]),
    (pa.null(), [None, None], [0, 0]),
    (pa.string(), ["abc", None], [3, 0]),
    (pa.large_string(), ["\u00e9", ""], [2, 0]),
    (pa.binary(), [b"12345", b""], [5, 0]),
    (pa.binary(3), [b"123", None], [3, 0]),
    (pa.list_(pa.float32()), [[1.0, 2.0], None], [8, 0]),
    (pa.list_(pa.string()), [["ab", "c", None], []], [3, 0]),
    (pa.list_(pa.list_(pa.int8())), [[[1], [2, 3]], [None]], [3, 0]),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "xyz"}, {"a": 1, "b": None}], [4, 1]),
    (pa.map_(pa.string(), pa.int8()), [[("key", 1)], []], [4, 0]),
    (pa.dictionary(pa.int8(), pa.string()), ["abcd", "x"], [4, 1]),
    (pa.timestamp("us"), [1, 2], [8, 8]),
    (pa.decimal128(10, 2), [None, None], [16, 16]),
]


@pytest.mark.parametrize(("type_", "values", "sizes"), VALUES, ids=lambda value: str(value)[:20])
def test_the_bytes_of_each_row_are_counted(type_: pa.DataType, values: list[Any], sizes: list[int]) -> None:
    array = pa.array(values, type_)
    assert row_bytes(pa.table({"x": array})).tolist() == sizes
    padded = pa.chunked_array([pa.array([values[1]], type_), array]).slice(1)
    assert row_bytes(pa.table({"x": padded, "y": padded})).tolist() == [2 * size for size in sizes]


def test_rows_that_are_too_large_are_told() -> None:
    table = pa.table({"id": ["a", "b", "c"], "text": ["x" * 99, "x" * 100, "x"]})
    assert too_large(table, 100) == {1}
    assert too_large(table, 1) == {0, 1, 2}
    assert too_large(table, 101) == set()


# --- cutting --------------------------------------------------------------------------------------------------


def inputs(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    texts = [rng.bytes(int(rng.integers(0, 60))).hex() for _ in range(rows)]
    return pa.table({"id": [str(n) for n in range(rows)], "text": texts})


def whole(found: CutInputs) -> pa.Table:
    return pa.concat_tables(read_parquet(data, "a chunk") for data in found.chunks)


@given(st.integers(1, 60), st.integers(1, 2000), st.integers(0, 100))
def test_chunks_hold_all_inputs_in_their_order(rows: int, chunk_bytes: int, seed: int) -> None:
    table = inputs(rows, seed)
    found = cut(table, chunk_bytes=chunk_bytes)
    assert whole(found).to_pylist() == table.to_pylist()
    assert [chunk.sha256 for chunk in found.manifest.chunks] == [sha256(data) for data in found.chunks]
    assert found.manifest.columns == columns_of(whole(found).schema)
    for data in found.chunks:
        piece = read_parquet(data, "a chunk")
        assert piece.num_rows == 1 or row_bytes(piece).sum() <= chunk_bytes


def test_the_same_inputs_are_the_same_bytes_however_they_came() -> None:
    # covers GEN-06
    table = inputs(50)
    pieces = pa.concat_tables([table.slice(0, 7), table.slice(7, 20), table.slice(27)])
    noted = table.replace_schema_metadata({"made": "today"})
    first = cut(table, chunk_bytes=700)
    assert len(first.chunks) > 2
    for other in (pieces, noted, read(parquet(table), "inputs.parquet"), read(lines(*table.to_pylist()))):
        assert cut(other, chunk_bytes=700) == first


def test_of_an_input_that_is_too_large_only_the_id_is_kept() -> None:
    table = pa.table({"id": ["a", "b", "c"], "text": ["x", "y" * 500, "z"], "n": [1, 2, 3]})
    found = cut(table, input_bytes=400)
    assert found.manifest.too_large == (1,)
    assert found.manifest.rows == 3
    assert whole(found).to_pylist() == [
        {"id": "a", "text": "x", "n": 1},
        {"id": "b", "text": None, "n": None},
        {"id": "c", "text": "z", "n": 3},
    ]
    assert cut(table).manifest.digest != found.manifest.digest, "it is part of what the set is made from"


def test_a_required_column_may_lose_a_value_that_is_too_large() -> None:
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), pa.field("x", pa.string(), nullable=False)]
    )
    table = read(parquet(pa.table({"id": ["a", "b"], "x": ["1", "2" * 99]}, schema=schema)), "inputs.parquet")
    assert whole(cut(table, input_bytes=50)).column("x").to_pylist() == ["1", None]


def test_what_parquet_cannot_hold_is_refused() -> None:
    table = pa.table({"id": ["a"], "x": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(PlanError) as caught:
        cut(table)
    assert caught.value.field == AT
    assert caught.value.rule is not None
