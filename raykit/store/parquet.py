"""Tables as Parquet files: the same bytes for the same rows, and nothing in a file that could run code.

A file holds no time, no host and no Arrow schema: types come back as Parquet itself tells them (a fixed-size list as a
list, a dictionary as its values), which is what `as_stored` gives before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from raykit.errors import CorruptError, InvalidInput
from raykit.records import Column

ROW_GROUP_ROWS = 65_536

_LIST = re.compile(r"(?:large_list|list|list_view|fixed_size_list)<(?P<item>.*?: .*)>(?:\[\d+\])?")
_TIMESTAMP = re.compile(r"timestamp\[(?P<unit>s|ms|us|ns), tz=(?P<zone>[\w/+:-]+)\]")
_DECIMAL = re.compile(r"decimal(?P<bits>128|256)\((?P<precision>\d+), (?P<scale>-?\d+)\)")
_BYTES = re.compile(r"fixed_size_binary\[(?P<size>\d+)\]")
_STRUCT = re.compile(r"struct<(?P<fields>.*)>")


def parquet_bytes(table: pa.Table, *, row_group_rows: int = ROW_GROUP_ROWS) -> bytes:
    """A table as one Parquet file.

    Raises:
        InvalidInput: a column is of a type that Parquet does not have.
    """
    sink = pa.BufferOutputStream()
    plain = table.replace_schema_metadata(None).combine_chunks()  # how rows came together must not show
    try:
        pq.write_table(
            plain,
            sink,
            row_group_size=row_group_rows,
            compression="zstd",
            version="2.6",
            store_schema=False,
            write_statistics=False,
        )
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(
            f"the table cannot be written as Parquet: {str(error)[:200]}",
            rule="columns of numbers, text, bytes, times, and lists and structs of these",
        ) from error
    return bytes(sink.getvalue())


def read_parquet(data: bytes, what: str, *, columns: list[str] | None = None) -> pa.Table:
    """The table in a Parquet file that raykit wrote; `what` names it in errors.

    Raises:
        CorruptError: it is no such file.
    """
    refuse_arrow_schema(data, what)
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(columns=columns, use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name in it is no text
        raise CorruptError(f"{what} is not a Parquet file: {str(error)[:200]}", field=what) from error
    return table


def refuse_arrow_schema(data: bytes, what: str) -> None:
    """Let only a Parquet file without an Arrow schema pass.

    Such a schema can name extension types, and opening the file runs their code (CVE-2026-41486). raykit never writes
    one, so its mere name in the footer refuses the file before pyarrow opens it.

    Raises:
        CorruptError: it carries one, or is no plain Parquet file.
    """
    if data[-4:] != b"PAR1":
        raise CorruptError(f"{what} is not a plain Parquet file", field=what)
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    if b"ARROW:" in data[-footer_bytes:]:
        raise CorruptError(
            f"{what} carries an Arrow schema of its own",
            field=what,
            rule="plain columns, no extension types",
        )


# --- columns ------------------------------------------------------------------------------------------------


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns of a table as records hold them."""
    return tuple(Column(name=field.name, type=str(field.type)) for field in schema)


def as_stored(schema: pa.Schema) -> pa.Schema:
    """What a table of this schema has once it was written and read again.

    Raises:
        InvalidInput: a column is of a type that Parquet does not have.
    """
    return read_parquet(parquet_bytes(schema.empty_table()), "an empty table").schema


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """The schema that records tell of.

    Raises:
        InvalidInput: one of its types is not known.
    """
    return pa.schema([pa.field(column.name, _type_of(column.type)) for column in columns])


def _type_of(text: str) -> pa.DataType:
    if found := _LIST.fullmatch(text):
        return pa.list_(_type_of(found["item"].partition(": ")[2].removesuffix(" not null")))
    if found := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(found["unit"], found["zone"])
    if found := _DECIMAL.fullmatch(text):
        make = pa.decimal128 if found["bits"] == "128" else pa.decimal256
        return make(int(found["precision"]), int(found["scale"]))
    if found := _BYTES.fullmatch(text):
        return pa.binary(int(found["size"]))
    if found := _STRUCT.fullmatch(text):
        fields = (field.partition(": ") for field in _split(found["fields"]))
        return pa.struct([(name, _type_of(type_.removesuffix(" not null"))) for name, _, type_ in fields])
    try:
        return pa.type_for_alias(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:80]} is no type that raykit can write", value=text[:80]) from error


def _split(fields: str) -> Iterator[str]:
    """The fields of a struct: commas inside of brackets are part of a field's type."""
    depth = start = 0
    for at, sign in enumerate(fields):
        depth += (sign in "<[(") - (sign in ">])")
        if not depth and fields.startswith(", ", at):
            yield fields[start:at]
            start = at + 2
    yield fields[start:]
