"""A complete synthetic set as a folder that other tools open, with all that says how its rows were made.

    data/train-00000-of-00003.parquet    the rows, in their order; or .jsonl, one row a line
    manifest.json                        the manifest of the set, whose digest is its identity
    README.txt                           how the rows were made, how many there are, what they are not fit for
    SHA256SUMS                           of all of these: `sha256sum -c SHA256SUMS`

`datasets.load_dataset("parquet", data_dir=FOLDER)` reads it as its split `train`. Units are read one after the other,
each compared with its sha256. The folder appears whole or not at all.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from raykit.data.folder import new_folder, write
from raykit.data.sets import ClosedSet
from raykit.ids import sha256
from raykit.shards.bounded import against, bounded
from raykit.shards.bounds import words
from raykit.shards.closing import shortfall
from raykit.shards.population import population
from raykit.store.parquet import parquet_bytes

Form = Literal["parquet", "jsonl"]

FILE_BYTES = 64 * 1024 * 1024
"""Units are put together into files of about this size."""
BATCH_ROWS = 10_000
"""Rows that are turned into text at once."""
DATA, MANIFEST, README, SUMS = "data", "manifest.json", "README.txt", "SHA256SUMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of rows, as it was written."""

    name: str
    rows: int
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was taken out, and where it lies."""

    of: ClosedSet
    folder: Path
    form: Form
    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def plain(self) -> dict[str, Any]:
        """The export as JSON values."""
        manifest = self.of.manifest
        return {
            "set": self.of.name,
            "manifest": self.of.digest,
            "contract": manifest.contract,
            "scripted": manifest.scripted,
            "despite": self.of.despite,
            "folder": str(self.folder),
            "format": self.form,
            "rows": {**manifest.rows.plain(), "exported": self.rows},
            "files": [
                {"name": file.name, "rows": file.rows, "sha256": file.sha256, "size_bytes": file.size_bytes}
                for file in self.files
            ],
        }


def export_set(
    of: ClosedSet,
    folder: Path,
    *,
    form: Form = "parquet",
    file_bytes: int = FILE_BYTES,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Exported:
    """Write a set into a folder that is not there yet, or empty. `tell` hears how many of how many units are done.

    Raises:
        InvalidInput: something is in its place, or it cannot be written.
        CorruptError: a unit is missing or damaged: nothing is left.
        StoreUnavailableError: the store did not answer: nothing is left.
    """
    folder = folder.absolute()
    parts = _parts(of, file_bytes)
    with new_folder(folder) as beside:
        (beside / DATA).mkdir()
        files = []
        for n, part in enumerate(parts):
            name = f"{DATA}/train-{n:05d}-of-{len(parts):05d}.{form}"
            files.append(_written(of, part, beside, name, form))
            tell(part[-1] + 1, of.units)
        done = Exported(of=of, folder=folder, form=form, files=tuple(files))
        _write_beside(done, beside)
    return done


def _parts(of: ClosedSet, file_bytes: int) -> list[range]:
    """The units of each file: neighbours, until they are large enough; at least one file."""
    parts, first, size = [], 0, 0
    for unit, size_bytes in enumerate(of.manifest.units.size_bytes):
        if unit > first and size + size_bytes > file_bytes:
            parts.append(range(first, unit))
            first, size = unit, 0
        size += size_bytes
    return [*parts, range(first, of.units)]


def _written(of: ClosedSet, units: Sequence[int], folder: Path, name: str, form: Form) -> File:
    table = pa.concat_tables(of.table(unit) for unit in units)
    data = parquet_bytes(table) if form == "parquet" else b"".join(lines_of(table))
    write(folder / name, data)
    return File(name=name, rows=table.num_rows, sha256=sha256(data), size_bytes=len(data))


def _write_beside(done: Exported, folder: Path) -> None:
    """What says which rows these are."""
    readme = "".join(f"{_printable(line)}\n" for line in _readme(done))
    texts = {MANIFEST: done.of.manifest.to_bytes(), README: readme.encode()}
    for name, data in texts.items():
        write(folder / name, data)
    sums = [(file.sha256, file.name) for file in done.files]
    sums += [(sha256(data), name) for name, data in texts.items()]
    write(folder / SUMS, "".join(f"{digest}  {name}\n" for digest, name in sums).encode())


# --- rows as text -------------------------------------------------------------------------------------------


def lines_of(table: pa.Table) -> Iterator[bytes]:
    """The rows of a table, one JSON document a line."""
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        for row in batch.to_pylist():
            text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
            yield text.encode("utf-8", "backslashreplace") + b"\n"


def _plain(value: Any) -> str:
    """What JSON has no form for, as text."""
    match value:
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta():
            return f"{value.total_seconds()} s"
        case decimal.Decimal():
            return str(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


# --- README -------------------------------------------------------------------------------------------------


def _readme(done: Exported) -> Iterator[str]:
    manifest = done.of.manifest
    counts = bounded(done.of.contract.bounds, manifest.rows, manifest.failed, manifest.counts)
    yield f"{done.of.name}: synthetic rows, made by a model. They are no observations."
    yield ""
    yield from _table(
        ("manifest", done.of.digest),
        ("contract", manifest.contract),
        ("requested", f"{manifest.rows.requested:,} rows"),
        ("produced", f"{manifest.rows.produced:,} rows, all of them here; {shortfall(manifest.rows)}"),
        ("filtered", _counted(manifest.rows.filtered, manifest.filtered)),
        ("failed", _counted(manifest.rows.failed, manifest.failed)),
        *(("bad rows" if n == 0 else "", against(count)) for n, count in enumerate(counts)),
    )
    if manifest.scripted:
        yield "NOT FOR PRODUCTION: only a script has approved the checkpoint that made them."
    for finding in manifest.findings:
        yield f"NOT WITHIN ITS BOUNDS: {words(finding)}."
    if done.of.despite is not None and manifest.findings:
        yield f"Taken all the same: {done.of.despite}"
    yield ""
    yield "How they were made, which is part of what population they stand for:"
    yield ""
    yield from _table(*population(done.of.contract, done.of.said))
    yield ""
    yield "manifest.json lists every unit of the set; SHA256SUMS has the sha256 of every file here."
    if done.form == "jsonl":
        yield "Bytes are written in base 64, times as ISO 8601."


def _printable(line: str) -> str:
    """A recipe's words without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in line)


def _table(*facts: tuple[str, str]) -> Iterator[str]:
    width = max(len(name) for name, _ in facts)
    yield from (f"  {name:<{width}}  {text}" for name, text in facts)


def _counted(many: int, reasons: Any) -> str:
    listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(reasons.items()))
    return f"{many:,} row{'' if many == 1 else 's'}" + (f": {listed}" if listed else "")
