"""Weights that were made elsewhere, read as streams and without running anything: safetensors files alone.

    NAME.safetensors     taken byte for byte
    a folder             of Hugging Face: one such file, or the shards that `model.safetensors.index.json` lists, which
                         become one file; `config.json` comes with them

Everything is looked at before anything is believed: headers without holes, overlaps or doubles, sizes, and that no
number is NaN. Nothing is followed out of what was named: no symbolic link, no path inside an index.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from raykit.errors import CorruptError, InvalidInput
from raykit.ids import parse_json, sha256
from raykit.records import Adopted, AdoptedFile

MODEL = "model.safetensors"
CONFIG = "config.json"
INDEX = "model.safetensors.index.json"

MAX_BYTES = 2**40
MAX_HEADER_BYTES = 64 * 1024 * 1024
MAX_CONFIG_BYTES = 4 * 1024 * 1024
MAX_TENSORS = 1_000_000
READ_BYTES = 4 * 1024 * 1024

SIZES: Mapping[str, int] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
    "C64": 8,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
}
"""Bytes of one number, by the name that the file format has for its type: those that a checkpoint here can hold."""

PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
NAMED = 4
"""How many of what is wrong a refusal names."""

Tell = Callable[[int, int], None]
"""Told how many bytes of how many have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: what the header of its file says."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * SIZES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A model that can be read as often as asked, as the one safetensors file that it is or becomes."""

    what: str
    """In words, such as `a folder of 2 shards`."""
    header: bytes
    """The beginning of that file, the tensors' bytes follow in order."""
    tensors: Sequence[Tensor]
    read: Callable[[Tensor], Iterator[bytes]]
    """The bytes of one tensor."""
    config: bytes | None = None
    left_out: Sequence[str] = field(default_factory=tuple)
    """What is there beside the weights and is not taken."""

    @property
    def size_bytes(self) -> int:
        """Of the whole file."""
        return len(self.header) + sum(tensor.size_bytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        """Numbers in all tensors together."""
        return sum(tensor.elements for tensor in self.tensors)

    def contents(self, name: str) -> Iterator[bytes]:
        """The bytes of one of its files.

        Raises:
            InvalidInput: the source cannot be read, or holds a NaN.
        """
        if name == CONFIG:
            assert self.config is not None
            yield self.config
            return
        yield self.header
        for tensor in self.tensors:
            yield from _finite(tensor, _whole(tensor, self.read(tensor)))


def survey(weights: Weights, tell: Tell = lambda done, total: None) -> Adopted:
    """Read everything once, and say what there is by its digests. Writes nothing.

    Raises:
        InvalidInput: the source cannot be read, is longer or shorter than it says, or holds a NaN.
    """
    digest, total, done = hashlib.sha256(), weights.size_bytes, 0
    for chunk in weights.contents(MODEL):
        digest.update(chunk)
        done += len(chunk)
        tell(done, total)
    files = [AdoptedFile(name=MODEL, sha256=digest.hexdigest(), size_bytes=total, holds="model")]
    if weights.config is not None:
        config = weights.config
        files.append(AdoptedFile(name=CONFIG, sha256=sha256(config), size_bytes=len(config), holds="config"))
    return Adopted(files=tuple(files), tensors=len(weights.tensors), elements=weights.elements)


def _whole(tensor: Tensor, chunks: Iterable[bytes]) -> Iterator[bytes]:
    left = tensor.size_bytes
    for chunk in chunks:
        left -= len(chunk)
        yield chunk
    if left:
        raise refused(
            f"{tensor.name} has ended {left} bytes too early", rule="a source that nobody writes to"
        )


_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "C64": "<f4"}
_BF16_INFINITY = 0x7F80


def _finite(tensor: Tensor, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, unless a number in them is NaN. Every chunk holds whole numbers."""
    kind = _NUMPY.get(tensor.dtype)
    for chunk in chunks:
        if kind is not None and _has_nan(np.frombuffer(chunk, kind), tensor.dtype):
            raise refused(
                f"{tensor.name} holds a NaN", rule="weights that are numbers: nothing trains on from a NaN"
            )
        yield chunk


def _has_nan(numbers: np.ndarray[Any, Any], dtype: str) -> bool:
    if dtype == "BF16":
        return bool(((numbers & 0x7FFF) > _BF16_INFINITY).any())
    return bool(np.isnan(numbers).any())


def refused(message: str, *, rule: str | None = None, remedy: str | None = None) -> InvalidInput:
    """Why a source cannot be adopted."""
    return InvalidInput(message, field="SOURCE", rule=rule, remedy=remedy)


# --- what a source is ---------------------------------------------------------------------------------------


def open_safetensors(path: Path) -> Weights:
    """A safetensors file, as it is.

    Raises:
        InvalidInput: it cannot be read, or is not such a file.
    """
    shard = _read_shard(path)
    return Weights(
        what="a safetensors file",
        header=shard.header,
        tensors=tuple(shard.tensors),
        read=shard.read,
    )


def open_folder(folder: Path) -> Weights:
    """A folder of Hugging Face: its one safetensors file, or the shards of its index as one.

    Raises:
        InvalidInput: it cannot be read, or does not hold one model in safetensors.
    """
    names = folder_names(folder)
    files = [name for name in names if name.endswith(".safetensors")]
    if INDEX in names:
        weights = _open_shards(folder, files)
    elif len(files) == 1:
        weights = open_safetensors(folder / files[0])
    else:
        raise _no_one_model(folder, names, files)
    config = _config(folder) if CONFIG in names else None
    taken = {INDEX, CONFIG, *(files if INDEX not in names else ()), *_index_shards(folder, names)}
    return Weights(
        what=weights.what.replace("a safetensors file", "a folder with one safetensors file"),
        header=weights.header,
        tensors=weights.tensors,
        read=weights.read,
        config=config,
        left_out=tuple(name for name in names if name not in taken),
    )


def folder_names(folder: Path) -> list[str]:
    """The names of what is in a folder, sorted.

    Raises:
        InvalidInput: it cannot be read.
    """
    with reading(folder):
        return sorted(path.name for path in folder.iterdir())


def _no_one_model(folder: Path, names: Sequence[str], files: Sequence[str]) -> InvalidInput:
    if files:
        return refused(
            f"{folder} holds {len(files)} safetensors files and no {INDEX}: {', '.join(files[:NAMED])}",
            rule="one file, or an index that says which of them are the model",
            remedy="name the file",
        )
    pickles = [name for name in names if Path(name).suffix in PICKLES]
    if pickles:
        return is_pickle(folder / pickles[0])
    return refused(
        f"{folder} holds no weights", rule="a safetensors file, or a torch DCP folder with .metadata"
    )


def is_pickle(path: Path) -> InvalidInput:
    """The refusal of a file that would run code."""
    return refused(
        f"{path.name} is a pickle: to read it is to run whatever code is in it",
        rule="safetensors, which hold numbers alone",
        remedy="write it as safetensors where it was made: safetensors.torch.save_file(state_dict, ...)",
    )


# --- one file -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """A safetensors file whose header holds."""

    path: Path
    header: bytes
    tensors: Sequence[Tensor]
    """In the order of their bytes."""
    starts: Mapping[str, int]
    """By name: where a tensor begins in the file."""

    def read(self, tensor: Tensor) -> Iterator[bytes]:
        with open_plain(self.path) as file:
            file.seek(self.starts[tensor.name])
            left = tensor.size_bytes
            while left and (chunk := file.read(min(left, READ_BYTES))):
                left -= len(chunk)
                yield chunk


def _read_shard(path: Path) -> _Shard:
    with open_plain(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > MAX_BYTES:
            raise refused(f"{path.name} is {size_bytes:,} bytes long", rule=f"at most {MAX_BYTES:,}")
        head = file.read(8)
        if head[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
            raise is_pickle(path)
        if len(head) < 8:
            raise _no_file(path, f"it is {len(head)} bytes long")
        (length,) = struct.unpack("<Q", head)
        if not 2 <= length <= min(MAX_HEADER_BYTES, size_bytes - 8):
            raise _no_file(path, f"its header would be {length:,} bytes long, the file is {size_bytes:,}")
        header = head + file.read(length)
    tensors, offsets = _parse_header(header[8:], path)
    end = offsets[-1][1] if offsets else 0
    if 8 + length + end != size_bytes:
        raise _no_file(
            path,
            f"its tensors would end at byte {8 + length + end:,}, the file is {size_bytes:,} bytes long",
            remedy="it was cut, or not copied whole: copy it again",
        )
    starts = {tensor.name: 8 + length + start for tensor, (start, _) in zip(tensors, offsets, strict=True)}
    return _Shard(path=path, header=header, tensors=tensors, starts=starts)


def _parse_header(data: bytes, path: Path) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """The tensors in the order of their bytes, and where those are."""
    try:
        header = parse_json(data, f"the header of {path.name}")
    except CorruptError as error:
        raise _no_file(path, error.message) from error
    if not isinstance(header, dict):
        raise _no_file(path, "its header is no table")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _no_file(path, "its metadata is not a table of texts")
    if not 1 <= len(header) <= MAX_TENSORS:
        raise _no_file(path, f"it holds {len(header):,} tensors")
    found = sorted((_entry(name, entry, path) for name, entry in header.items()), key=lambda item: item[1])
    end = 0
    for tensor, (start, stop) in found:
        if start != end or stop - start != tensor.size_bytes:
            raise _no_file(path, f"the bytes of {tensor.name} are not where they have to be")
        end = stop
    return [tensor for tensor, _ in found], [span for _, span in found]


def _entry(name: str, entry: Any, path: Path) -> tuple[Tensor, tuple[int, int]]:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _no_file(path, f"{name} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise refused(
            f"{name} in {path.name} is of type {dtype}",
            rule=f"what a checkpoint can hold: {', '.join(SIZES)}",
        )
    if not (_counts(shape) and _counts(offsets) and len(offsets) == 2):
        raise _no_file(path, f"the shape or the place of {name} is not made of whole numbers")
    return Tensor(name=name, dtype=dtype, shape=tuple(shape)), (offsets[0], offsets[1])


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**48 for item in value)


def _no_file(path: Path, why: str, *, remedy: str | None = None) -> InvalidInput:
    return refused(f"{path.name} is not a whole safetensors file: {why}", remedy=remedy)


# --- several files ------------------------------------------------------------------------------------------


def _open_shards(folder: Path, files: Sequence[str]) -> Weights:
    placed = _weight_map(folder)
    shards = {name: _read_shard(folder / name) for name in sorted(set(placed.values()))}
    there = {tensor.name: name for name, shard in shards.items() for tensor in shard.tensors}
    doubles = sum(len(shard.tensors) for shard in shards.values()) - len(there)
    wrong = [
        f"{name} is not in {shard}" for name, shard in sorted(placed.items()) if there.get(name) != shard
    ]
    wrong += [f"{name} is not in the index" for name in sorted(there.keys() - placed.keys())]
    if wrong or doubles:
        more = f"; and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise refused(
            f"{INDEX} and its {len(shards)} shards differ: "
            f"{'; '.join(wrong[:NAMED]) or f'{doubles} tensors are in two of them'}{more}",
            rule="every tensor in exactly the shard that the index names",
            remedy="copy the folder again, whole",
        )
    tensors = in_order(tensor for shard in shards.values() for tensor in shard.tensors)
    count = f"{len(shards)} shard{'s' if len(shards) > 1 else ''}"
    return Weights(
        what=f"a folder of {count}",
        header=make_header(tensors),
        tensors=tensors,
        read=lambda tensor: shards[placed[tensor.name]].read(tensor),
    )


def _weight_map(folder: Path) -> dict[str, str]:
    """By tensor, the file that it is in."""
    try:
        index = parse_json(_short(folder / INDEX, MAX_HEADER_BYTES), INDEX)
    except CorruptError as error:
        raise refused(error.message) from error
    placed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(placed, dict) or not placed:
        raise refused(f"{INDEX} has no weight_map", rule="which tensor is in which file")
    for name, shard in placed.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise refused(
                f"{INDEX} puts {name} into {str(shard)[:100]!r}", rule="a safetensors file beside the index"
            )
    return placed


def _index_shards(folder: Path, names: Sequence[str]) -> set[str]:
    return set(_weight_map(folder).values()) if INDEX in names else set()


def in_order(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Tensors as a checkpoint here orders them: wide types first, so that each lies where its type can be read."""
    return tuple(sorted(tensors, key=lambda tensor: (-SIZES[tensor.dtype], tensor.name)))


def make_header(tensors: Sequence[Tensor]) -> bytes:
    """The beginning of the safetensors file of these tensors, the same as a checkpoint's here."""
    header: dict[str, Any] = {}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.size_bytes
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


# --- files as they lie on a disk ----------------------------------------------------------------------------


def _config(folder: Path) -> bytes:
    """The configuration as it is. Nothing here reads it, so it may hold what strict JSON has no word for."""
    data = _short(folder / CONFIG, MAX_CONFIG_BYTES)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise refused(f"{CONFIG} is not JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise refused(f"{CONFIG} is no table")
    return data


def _short(path: Path, max_bytes: int) -> bytes:
    with open_plain(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise refused(f"{path.name} is too long", rule=f"at most {max_bytes:,} bytes")
    return data


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """A plain file, opened for reading; no link is followed, and nothing waits for a pipe's writer.

    Raises:
        InvalidInput: it is a link, is not a plain file, or cannot be read.
    """
    with reading(path):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise refused(f"{path} is not a plain file")
            yield file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say of what the system refuses which file it was.

    Raises:
        InvalidInput: it is a link, is not there, or cannot be read.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refused(
                f"{path} is a symbolic link", rule="the files themselves", remedy="cp -rL SOURCE COPY"
            ) from error
        raise refused(f"{path} cannot be read: {error.strerror or error}") from error
