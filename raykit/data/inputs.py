"""The inputs of a synthetic set: read from where a plan says, checked, and cut into files that are always the same.

Parquet, JSON Lines or CSV, by suffix. Each input has an `id` of its own; whatever else it has is the recipe's. Text of
a file stays text, unless the plan says which type a column has.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from raykit.errors import CorruptError, InvalidInput, PlanError, UnsafeNameError
from raykit.ids import parse_json, sha256
from raykit.records import InputChunk, InputsManifest
from raykit.store import open_store
from raykit.store.parquet import as_stored, columns_of, parquet_bytes

CHUNK_BYTES = 32 * 1024 * 1024
"""So much of inputs, before they are compressed, is one file."""

RESERVED = ("row", "sample")
"""Columns that raykit gives the recipe beside those of the inputs."""

NAMED = 3
"""So many of the ids that are wrong are named."""

Sizes = NDArray[np.int64]


class CutInputs(NamedTuple):
    """Inputs as they are kept."""

    manifest: InputsManifest
    chunks: list[bytes]
    """The Parquet files that it names, in order."""


# --- reading ------------------------------------------------------------------------------------------------


def fetch_source(source: str, folder: Path, *, at: str) -> bytes:
    """The bytes at a path, which may be relative to the plan's folder, or at an s3:// URL.

    `at` is the plan's field that says so, such as `generate.synthetic.inputs`.

    Raises:
        PlanError: there is no such file, or it cannot be read.
        StoreUnavailableError: the store did not answer.
    """
    if source.startswith("s3://"):
        return _fetch_object(source, at)
    path = folder / Path(source).expanduser()
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanError(
            f"{source} cannot be read: {error.strerror}",
            field=at,
            value=str(path),
            rule="a file, by its path from the plan's folder, or s3://bucket/prefix/file",
        ) from error


def _fetch_object(source: str, at: str) -> bytes:
    root, _, name = source.rpartition("/")
    try:
        return open_store(root).get(name)
    except UnsafeNameError as error:
        rule = "the last part of a URL in lower-case letters, digits, '.', '_' and '-'"
        raise PlanError("the inputs cannot be read", field=at, value=name, rule=rule) from error
    except InvalidInput as error:  # the URL may hold a secret: the store says what may be repeated of it
        raise PlanError(
            f"the inputs cannot be read: {error.message}",
            field=at,
            value=error.value,
            rule=error.rule,
            remedy=error.remedy,
        ) from error


def read_inputs(
    data: bytes, source: str, *, at: str, types: Mapping[str, str] | None = None, guess: bool = False
) -> pa.Table:
    """The inputs in a file, with `id` as text. `source` is its name: the suffix says what it is.

    `types` are those that the plan says, by column. With `guess`, what looks like a number in a CSV file is one: so it
    was under the first rules, and a set that was begun then goes on with the very same inputs.

    Raises:
        PlanError: it is no such file; it has no inputs, no ids, one twice, or a column of raykit's own; or a value is
            not of the type that the plan says.
    """
    readers: dict[str, Callable[[bytes, Typed], pa.Table]] = {
        ".parquet": _parquet,
        ".jsonl": _json_lines,
        ".ndjson": _json_lines,
        ".csv": _guessed_csv if guess else _csv,
    }
    suffix = Path(source).suffix.lower()
    if suffix not in readers:
        raise PlanError(
            f"{source} is of no kind that raykit reads", field=at, value=suffix, rule=" ".join(readers)
        )
    typed = Typed(types or {}, source, f"{at.removesuffix('.inputs')}.types")
    try:
        table = readers[suffix](data, typed)
    except PlanError:
        raise
    except (
        CorruptError,
        ValueError,
        OverflowError,
        TypeError,
        OSError,
        csv.Error,
        pa.ArrowException,
    ) as error:
        kind = suffix.removeprefix(".")
        raise PlanError(f"{source} is no {kind} file: {str(error)[:300]}", field=at, value=source) from error
    typed.require_all_there(table.column_names)
    return _checked(table, source, at)


def _parquet(data: bytes, typed: Typed) -> pa.Table:
    """What a Parquet file holds, with the types that Parquet itself tells.

    An Arrow schema in it could name extension types, whose code runs when the file is opened (CVE-2026-41486): it is
    there under one name, which is changed so that nothing finds it.
    """
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    footer = data[-footer_bytes:].replace(b"ARROW:schema", b"ARROW_schema")
    table = pq.ParquetFile(pa.BufferReader(data[:-footer_bytes] + footer)).read()
    for name in typed.named(table.column_names):
        column = table.column(name).combine_chunks()
        if str(column.type) != typed.types[name]:
            column = typed.column(name, column.to_pylist(), lambda row: f"row {row:,}")
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _json_lines(data: bytes, typed: Typed) -> pa.Table:
    """One object a line. Columns are in the order in which they first come up; what a line lacks is null."""
    found = list(_objects(data.removeprefix(codecs.BOM_UTF8)))
    names = dict.fromkeys(name for _, line in found for name in line)

    def where(row: int) -> str:
        return f"line {found[row][0]:,}"

    def column(name: str) -> pa.Array:
        values = [line.get(name) for _, line in found]
        return typed.column(name, values, where) if name in typed.types else _column(name, values, where)

    return pa.table({name: column(name) for name in names})


def _objects(data: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, text in enumerate(data.splitlines(), 1):
        if not text.strip():
            continue
        line = parse_json(text, f"line {number}")
        if not isinstance(line, dict):
            raise ValueError(f"line {number} is no object")
        yield number, line


def _column(name: str, values: list[Any], where: Where) -> pa.Array:
    if name == "id":  # one may be 7 and the next one "b7"
        values = [_plain_text(value) if _is_whole(value) else value for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        row = _odd_one(values, pa.array)
        why = str(error)
        if _is_whole(values[row]) and not -(2**63) <= values[row] < 2**63:
            why = f'more than an int64 holds; types = {{ {name} = "text" }} keeps it'
        raise ValueError(f"{where(row)}: column {name} has {_shown(values[row])}: {why}") from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _odd_one(values: Sequence[Any], make: Callable[[Any], Any]) -> int:
    """The first value, from 0, that does not go into one column with those before it."""
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            make(values[:middle])
            good = middle
        except (pa.ArrowException, ValueError, OverflowError):
            bad = middle
    return bad - 1


def _csv(data: bytes, typed: Typed) -> pa.Table:
    """Every value is the text that stands in the file, but in columns that have a type: 007, 1e3 and NA are texts."""
    text = _text_of(data)
    names = next((names for names in csv.reader(io.StringIO(text, newline="")) if names), [])
    table = _read_csv(data, dict.fromkeys(names, pa.string()))
    for name in typed.named(names):
        if typed.types[name] == "text":
            continue
        values = [value or None for value in table.column(name).to_pylist()]  # nothing between two commas
        column = typed.column(name, values, lambda row: _line_of(text, row))
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _guessed_csv(data: bytes, typed: Typed) -> pa.Table:
    """Types are those that all lines agree on; an id is text, so that 007 stays what it is."""
    _text_of(data)
    if typed.types:
        return _csv(data, typed)
    return _read_csv(data, {"id": pa.string()})


_CSV = pyarrow.csv.ParseOptions(newlines_in_values=True)


def _read_csv(data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        # All of it at once: else the first lines alone would say which types there are.
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=min(len(data) + 1, 2**31 - 1)),
        parse_options=_CSV,
        convert_options=pyarrow.csv.ConvertOptions(column_types=types),
    )


def _text_of(data: bytes) -> str:
    if not data.strip():
        raise ValueError("it is empty")
    return data.decode("utf-8-sig")  # else a column with a letter of another encoding would be read as bytes


def _line_of(text: str, row: int) -> str:
    """The line, from 1, that a row of a CSV file begins on: a text in quotation marks may have several."""
    reader = csv.reader(io.StringIO(text, newline=""))
    line, at = 1, -1  # the names are no row
    try:
        for values in reader:
            if values and at == row:
                return f"line {line:,}"
            at += bool(values)
            line = reader.line_num + 1
    except csv.Error:  # a value before it is larger than this reader takes
        pass
    return f"row {row:,}"


# --- types that the plan says -------------------------------------------------------------------------------

TYPES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
}
"""As a plan names them."""

Where = Callable[[int], str]
"""Where a row stands in its file: `line 17`."""


@dataclass(frozen=True, slots=True)
class Typed:
    """The types that a plan says of the columns of a file."""

    types: Mapping[str, str]
    source: str
    at: str
    """The plan's field that says so."""

    def named(self, names: Sequence[str]) -> list[str]:
        """Those of these columns that have a type."""
        return [name for name in names if name in self.types]

    def column(self, name: str, values: Sequence[Any], where: Where) -> pa.Array:
        """These values in the type that the plan says; what is not there stays so.

        Raises:
            PlanError: one is nothing of that type; the error has its line and itself.
        """
        texts = [_plain_text(value) for value in values]
        known = [text is not None or value is None for text, value in zip(texts, values, strict=True)]
        row = known.index(False) if not all(known) else None
        if row is None:
            try:
                return self._cast(name, texts)
            except (pa.ArrowException, ValueError):
                row = _odd_one(texts, lambda some: self._cast(name, some))
        raise PlanError(
            f"{self.source}, {where(row)}: column {name} has {_shown(values[row])}, and its type is {self.types[name]}",
            field=f"{self.at}.{name}",
            value=_shown(values[row]),
            rule=f"values that can be read as {self.types[name]}, or nothing at all",
            remedy=f'mend the value, or say types = {{ {name} = "text" }}'
            if self.types[name] != "text"
            else None,
        )

    def _cast(self, name: str, texts: Sequence[str | None]) -> pa.Array:
        return pa.array(texts, pa.string()).cast(TYPES[self.types[name]])

    def require_all_there(self, names: Sequence[str]) -> None:
        """Let only types of columns pass that the file has.

        Raises:
            PlanError: it has no such column, or it is the id.
        """
        for name, type_ in self.types.items():
            if name == "id" and type_ != "text":
                raise PlanError("an id is text", field=f"{self.at}.id", value=type_, rule="text")
            if name not in names:
                raise PlanError(
                    f"{self.source} has no column {name}",
                    field=f"{self.at}.{name}",
                    value=name,
                    rule=f"one of {', '.join(names[:8])}",
                )


def _plain_text(value: Any) -> str | None:
    """A plain value as a file would spell it; None for what is nothing, or is no plain value."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return repr(value)
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- what may be in it --------------------------------------------------------------------------------------


def _checked(table: pa.Table, source: str, at: str) -> pa.Table:
    if not table.num_rows:
        raise PlanError(f"there are no inputs in {source}", field=at, value=source, rule="at least one")
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    taken = [name for name in RESERVED if name in names]
    if twice or taken:
        raise PlanError(
            f"the inputs in {source} have a column {(twice or taken)[0]!r} {'twice' if twice else 'of their own'}",
            field=at,
            value=(twice or taken)[0],
            rule=f"every column once; {' and '.join(RESERVED)} are raykit's",
            remedy="rename it",
        )
    if "id" not in names:
        found = ", ".join(names[:8]) or "none"
        raise PlanError(
            f"the inputs in {source} have no column id, but {found}",
            field=at,
            value=source,
            rule="each input has an id",
        )
    ids = _texts(table.column("id"), source, at)
    _refuse_twice(ids, source, at)
    # Without what the file says of its columns, such as that one is never null: an input may be put aside.
    return pa.table({name: ids if name == "id" else table.column(name) for name in names})


def _texts(ids: pa.ChunkedArray, source: str, at: str) -> pa.Array:
    ids = ids.combine_chunks()
    if pa.types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    is_text = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
    if not is_text and not pa.types.is_integer(ids.type) and not pa.types.is_null(ids.type):
        raise PlanError(
            f"the ids in {source} are {ids.type}", field=at, value=source, rule="text, or whole numbers"
        )
    texts = ids.cast(pa.string())
    nameless = np.flatnonzero(pc.fill_null(pc.equal(pc.binary_length(texts), 0), True).to_numpy(False))
    if nameless.size:
        raise PlanError(
            f"{nameless.size:,} input{'s' if nameless.size > 1 else ''} in {source} "
            f"ha{'ve' if nameless.size > 1 else 's'} no id: {_rows(nameless)}",
            field=at,
            value=source,
            rule="each input has an id",
        )
    return texts


def _refuse_twice(ids: pa.Array, source: str, at: str) -> None:
    encoded = ids.dictionary_encode()
    indices = encoded.indices.to_numpy()
    twice = np.flatnonzero(np.bincount(indices) > 1)
    if not twice.size:
        return
    where = (
        f"{encoded.dictionary[int(name)].as_py()!r} in {_rows(np.flatnonzero(indices == name))}"
        for name in twice[:NAMED]
    )
    more = f" and {twice.size - NAMED:,} more" if twice.size > NAMED else ""
    raise PlanError(
        f"{twice.size:,} id{'s are' if twice.size > 1 else ' is'} in {source} more than once: "
        f"{'; '.join(where)}{more}",
        field=at,
        value=source,
        rule="each input has an id of its own",
        remedy="give each its own id; several rows from one input are what samples says",
    )


def _rows(numbers: Sequence[int] | Sizes) -> str:
    """`rows 3 and 17`, counted from 0."""
    shown = [f"{int(number):,}" for number in numbers[:NAMED]]
    if len(numbers) == 1:
        return f"row {shown[0]}"
    if len(numbers) > NAMED:
        return f"rows {', '.join(shown)} and {len(numbers) - NAMED:,} more"
    return f"rows {', '.join(shown[:-1])} and {shown[-1]}"


# --- sizes --------------------------------------------------------------------------------------------------


def too_large(table: pa.Table, input_bytes: int) -> set[int]:
    """The rows that are larger than `input_bytes`."""
    return set(np.flatnonzero(row_bytes(table) > input_bytes).tolist())


def row_bytes(table: pa.Table) -> Sizes:
    """How many bytes the values of each row have."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        if column.num_chunks:
            total += np.concatenate([_value_bytes(chunk) for chunk in column.chunks])
    return total


def _value_bytes(array: pa.Array) -> Sizes:
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return _value_bytes(array.dictionary_decode())
    if pa.types.is_map(type_):
        array = array.cast(pa.list_(pa.struct([("key", type_.key_type), ("value", type_.item_type)])))
        type_ = array.type
    if pa.types.is_struct(type_):
        fields = [_value_bytes(field) for field in array.flatten()]
        return np.sum(fields, axis=0, dtype=np.int64) if fields else np.zeros(len(array), dtype=np.int64)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return _list_bytes(array)
    try:
        lengths = pc.fill_null(pc.binary_length(array), 0)
    except pa.ArrowNotImplementedError:  # of one width, as all that is no text, bytes or nesting
        width = 0 if pa.types.is_null(type_) else -(-type_.bit_width // 8)
        return np.full(len(array), width, dtype=np.int64)
    return np.asarray(lengths, dtype=np.int64)


def _list_bytes(array: pa.Array) -> Sizes:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0), dtype=np.int64)
    ends = np.cumsum(lengths)
    sums: Sizes = np.concatenate(([0], np.cumsum(_value_bytes(array.flatten()))))
    within: Sizes = sums[ends] - sums[ends - lengths]
    return within


# --- cutting ------------------------------------------------------------------------------------------------


def cut_inputs(
    table: pa.Table, source: str, *, input_bytes: int, at: str, chunk_bytes: int = CHUNK_BYTES
) -> CutInputs:
    """Inputs as files, each of about `chunk_bytes` before compression: the same for the same inputs.

    Of an input that is larger than `input_bytes` only the id is kept, and that it was too large: its rows will have
    failed before anything is asked of a recipe.

    Raises:
        PlanError: a column is of a type that Parquet does not have.
    """
    large = too_large(table, input_bytes)
    kept = _without(table, large) if large else table
    try:
        stored = as_stored(kept.schema)
        pieces = [kept.slice(first, rows) for first, rows in _cuts(row_bytes(kept), chunk_bytes)]
        chunks = [parquet_bytes(piece) for piece in pieces]
    except InvalidInput as error:
        raise PlanError(error.message, field=at, value=source, rule=error.rule) from error
    manifest = InputsManifest(
        source=source,
        rows=table.num_rows,
        columns=columns_of(stored),
        chunks=tuple(
            InputChunk(rows=piece.num_rows, sha256=sha256(data), size_bytes=len(data))
            for piece, data in zip(pieces, chunks, strict=True)
        ),
        too_large=tuple(sorted(large)),
    )
    return CutInputs(manifest, chunks)


def _without(table: pa.Table, rows: set[int]) -> pa.Table:
    """The same table with nothing but the id in these rows."""
    kept = np.ones(table.num_rows, dtype=bool)
    kept[sorted(rows)] = False
    places = pa.array(np.arange(table.num_rows), mask=~kept)  # to take a null place gives a null
    ids = table.column("id")
    emptied = table.take(places)
    return emptied.set_column(table.column_names.index("id"), "id", ids)


def _cuts(sizes: Sizes, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each chunk: as many as are no more than `chunk_bytes`, and at least one."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + chunk_bytes, side="right")))
        yield first, end - first
        first = end
