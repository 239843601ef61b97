"""Parquet files of our own: the same bytes for the same rows, types that come back, what makes two rows equal."""

from __future__ import annotations

import random
import threading
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raykit.errors import CorruptError, InvalidInput
from raykit.records import Column
from raykit.store.contents import CONTENT_BYTES, contents_of, own_columns
from raykit.store.parquet import as_stored, columns_of, parquet_bytes, read_parquet, schema_of
from raykit.store.side_by_side import MAX_BATCH, side_by_side

TYPES = [
    pa.float64(),
    pa.float16(),
    pa.uint8(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(4),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("ms", "Europe/Paris"),
    pa.timestamp("ms", "+02:00"),
    pa.decimal128(10, 2),
    pa.decimal256(40, 3),
    pa.list_(pa.float32()),
    pa.list_(pa.float32(), 4),
    pa.large_list(pa.int8()),
    pa.list_(pa.list_(pa.string())),
    pa.list_(pa.field("item", pa.int8(), nullable=False)),
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.int8())])))]),
    pa.struct([("a", pa.decimal128(10, 2)), ("b", pa.timestamp("us", "UTC"))]),
    pa.dictionary(pa.int8(), pa.string()),
    pa.null(),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_types_come_back_from_files_and_from_records(type_: pa.DataType) -> None:
    stored = as_stored(pa.schema([("x", type_)]))
    assert as_stored(stored) == stored, "what was stored once stays as it is"
    read = read_parquet(parquet_bytes(pa.table({"x": pa.array([None], type_)})), "it")
    if not pa.types.is_list(type_) or type_.value_field.nullable:
        assert read.schema == stored
    parsed = as_stored(schema_of(columns_of(stored)))
    assert [str(field.type).replace(" not null", "") for field in parsed] == [
        str(field.type).replace(" not null", "") for field in stored
    ]


@pytest.mark.parametrize(
    "type_", ["", "nonsense", "list<item: nonsense>", "struct<a: >", "map<string, int8>"]
)
def test_types_that_nobody_knows_are_refused(type_: str) -> None:
    with pytest.raises(InvalidInput):
        schema_of([Column(name="x", type=type_)])


@pytest.mark.parametrize("type_", [pa.decimal128(9, -2), pa.month_day_nano_interval()], ids=str)
def test_types_that_parquet_does_not_have_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match="cannot be written"):
        as_stored(pa.schema([("x", type_)]))


def test_the_same_rows_are_the_same_bytes() -> None:
    # covers GEN-09
    table = pa.table({"row": list(range(100)), "text": [str(n % 7) for n in range(100)]})
    pieces = pa.concat_tables([table.slice(0, 3), table.slice(3)]).replace_schema_metadata({"a": "b"})
    assert parquet_bytes(pieces) == parquet_bytes(table)
    assert parquet_bytes(table, row_group_rows=10) != parquet_bytes(table)
    groups = pq.ParquetFile(pa.BufferReader(parquet_bytes(table, row_group_rows=10))).num_row_groups
    assert groups == 10
    assert read_parquet(parquet_bytes(pieces), "it") == table


def test_only_the_columns_that_are_asked_for_are_read() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert read_parquet(parquet_bytes(table), "it", columns=["b"]).to_pylist() == [{"b": 2}]


def test_a_file_with_an_arrow_schema_of_its_own_is_not_opened() -> None:
    # covers S9
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    with pytest.raises(CorruptError, match="an Arrow schema of its own"):
        read_parquet(bytes(sink.getvalue()), "it")


def test_a_file_with_changed_bytes_is_read_or_refused() -> None:
    rng = random.Random(3)
    good = parquet_bytes(pa.table({"row": [1, 2], "x": ["a", "b"], "y": [[1.5], []]}))
    for data in (b"", b"PAR1", good[:-1], good[:40], good + good[:9]):
        with pytest.raises(CorruptError):
            read_parquet(data, "it")
    for _ in range(500):
        changed = bytearray(good)
        changed[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        try:
            read_parquet(bytes(changed), "it")
        except CorruptError:
            pass


# --- what makes two rows equal ----------------------------------------------------------------------------------


def hashes(values: list[Any], type_: pa.DataType) -> list[bytes]:
    found = contents_of(pa.table({"x": pa.array(values, type_)}))
    return [found[at : at + CONTENT_BYTES] for at in range(0, len(found), CONTENT_BYTES)]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int32(), [1, 2, 0, None]),
        (pa.float64(), [1.5, 0.0, 2.0, None]),
        (pa.float16(), [1.5, 0.0, None]),
        (pa.bool_(), [True, False, None]),
        (pa.string(), ["a", "ab", "", None]),
        (pa.binary(), [b"a", b"", None]),
        (pa.date32(), [1, 2, None]),
        (
            pa.list_(pa.float32()),
            [[1, 2], [1], [], None, [2, 1], [1, None], [None, 1], [1, 0], [0, 1], [None]],
        ),
        (pa.list_(pa.bool_()), [[True], [False], [], None, [None]]),
        (pa.list_(pa.string()), [["a", "b"], ["ab"], [], None, [None], ["a", None]]),
        (pa.struct([("a", pa.int8()), ("b", pa.int8())]), [{"a": 1, "b": 2}, {"a": 2, "b": 1}, None]),
        (pa.decimal128(5, 1), [1, 2, None]),
    ],
    ids=str,
)
def test_a_value_has_its_content_whatever_stands_beside_it(type_: pa.DataType, values: list[Any]) -> None:
    together = hashes(values, type_)
    assert len(set(together)) == len(values)
    assert together == [hashes([value], type_)[0] for value in values]
    assert together[::-1] == hashes(values[::-1], type_)


def test_columns_do_not_run_into_each_other() -> None:
    one = contents_of(pa.table({"a": ["ab"], "b": ["c"]}))
    assert one != contents_of(pa.table({"a": ["a"], "b": ["bc"]}))


def test_a_zero_has_no_sign() -> None:
    assert hashes([0.0], pa.float32()) == hashes([-0.0], pa.float32())


def test_raykit_s_own_columns_make_no_row_another_one() -> None:
    table = pa.table({"row": [1, 2], "id": ["a", "b"], "sample": [0, 0], "text": ["x", "x"]})
    assert own_columns(table).column_names == ["text"]
    first, second = (contents_of(own_columns(table.slice(at, 1))) for at in (0, 1))
    assert first == second


# --- many at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 5000])
def test_many_are_done_in_their_order(threads: int, items: int) -> None:
    assert list(side_by_side(lambda n: n * n, range(items), threads=threads)) == [n * n for n in range(items)]


def test_what_is_done_ahead_is_bounded() -> None:
    begun: set[int] = set()
    lock = threading.Lock()

    def do(n: int) -> int:
        with lock:
            begun.add(n)
        return n

    found = side_by_side(do, range(100_000), threads=4)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    assert len(begun) <= (2 * 4 + 1) * MAX_BATCH


def test_an_error_comes_at_its_place() -> None:
    def do(n: int) -> int:
        if n == 30:
            raise KeyError(n)
        return n

    found = side_by_side(do, range(60), threads=4)
    got = []
    with pytest.raises(KeyError):
        for each in found:
            got.append(each)
    assert got == list(range(len(got)))
    assert len(got) <= 30
