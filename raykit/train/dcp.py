"""A torch DCP folder (`.metadata` and `*.distcp`), read as weights.

The format is made of pickles: its `.metadata` is one, and so is the frame of every tensor in it. Both are read by
unpicklers that know a handful of names and call nothing else; `.metadata` by the one here, tensors by torch's own
(`weights_only`). That has been got round before, so a person still has to say that the source is trusted.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from raykit.data.weights import (
    READ_BYTES,
    Tensor,
    Weights,
    folder_names,
    in_order,
    make_header,
    open_plain,
    refused,
)
from raykit.errors import InvalidInput
from raykit.train.tensors import DTYPES

METADATA = ".metadata"
MAX_METADATA_BYTES = 256 * 1024 * 1024
MODEL = "model"
"""What people call the part of a state that the model is."""


def open_dcp(folder: Path) -> Weights:
    """The model in a DCP folder: what lies under `model`, or everything where nothing does.

    Raises:
        InvalidInput: it cannot be read, is not whole, names anything outside, or does not hold one model.
    """
    found = _read_metadata(folder)
    stored_bytes = _require_inside(folder, found)
    placed, left_out = _model(found)
    tensors = in_order(_tensor(name, found.state_dict_metadata[key]) for name, key in placed.items())
    if not tensors:
        raise refused(f"{folder} holds no tensors")
    if sum(tensor.size_bytes for tensor in tensors) > stored_bytes:
        raise refused(f"{folder / METADATA} describes more than the {stored_bytes:,} bytes that are there")
    reader = _Reader(folder, found)

    def read(tensor: Tensor) -> Iterator[bytes]:
        return _bytes(reader, placed[tensor.name], found)

    return Weights(
        what="a torch DCP folder",
        header=make_header(tensors),
        tensors=tensors,
        read=read,
        left_out=left_out,
    )


# --- .metadata ----------------------------------------------------------------------------------------------


def _path(*parts: object) -> str:
    """Stands for a path that a pickle holds: where the folder was once written."""
    return "/".join(map(str, parts))


_KNOWN: Mapping[tuple[str, str], Any] = {
    **{
        (metadata.__name__, name): getattr(metadata, name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    },
    (filesystem.__name__, "_StorageInfo"): filesystem._StorageInfo,
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    ("collections", "OrderedDict"): OrderedDict,
    **{(module, name): _path for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "Path")},
    **{("torch", str(dtype).removeprefix("torch.")): dtype for dtype in DTYPES},
}
"""All that a `.metadata` can name. None of it does anything but hold values."""


class _Unpickler(pickle.Unpickler):
    """Knows the names above and no others."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _KNOWN[module_name, global_name]
        except KeyError:
            raise refused(
                f"{METADATA} asks for {module_name}.{global_name}, which is no part of a checkpoint's description",
                rule="what torch.distributed.checkpoint.save writes",
            ) from None


def _read_metadata(folder: Path) -> metadata.Metadata:
    with open_plain(folder / METADATA) as file:
        found = _unpickled(file)
    if isinstance(found, metadata.Metadata):
        tables: tuple[object, ...] = (found.state_dict_metadata, found.storage_data)
        if all(isinstance(table, dict) for table in tables):
            return found
    raise refused(f"{folder / METADATA} does not describe a checkpoint")


def _unpickled(file: BinaryIO) -> Any:
    if len(file.read(MAX_METADATA_BYTES + 1)) > MAX_METADATA_BYTES:
        raise refused(f"{METADATA} is too long", rule=f"at most {MAX_METADATA_BYTES:,} bytes")
    file.seek(0)
    try:
        return _Unpickler(file).load()
    except InvalidInput:
        raise
    except Exception as error:  # whatever damaged bytes make of an unpickler, the answer is the same
        raise refused(f"{METADATA} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def _require_inside(folder: Path, found: metadata.Metadata) -> int:
    """Every part of every tensor lies in a plain file of this folder, whole; how long those are together.

    Raises:
        InvalidInput: one does not.
    """
    there = set(folder_names(folder))
    sizes: dict[str, int] = {}
    for info in found.storage_data.values():
        name = getattr(info, "relative_path", None)
        if not isinstance(name, str) or name not in there:
            raise refused(f"{METADATA} names {str(name)[:100]!r}, which is not in the folder")
        if getattr(info, "transform_descriptors", None):
            raise refused(f"{name} is stored in another form", rule="tensors as torch writes them by default")
        if name not in sizes:
            with open_plain(folder / name) as file:
                sizes[name] = file.seek(0, 2)
        offset, length = info.offset, info.length
        if not (type(offset) is type(length) is int and 0 <= offset <= offset + length <= sizes[name]):
            raise refused(f"{name} is shorter than {METADATA} says", remedy="copy the folder again, whole")
    return sum(sizes.values())


# --- which of it is the model -------------------------------------------------------------------------------


def _model(found: metadata.Metadata) -> tuple[dict[str, str], tuple[str, ...]]:
    """The model's tensors by name, with their keys; and what is left out, in words."""
    places: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    other: dict[str, int] = defaultdict(int)
    for key, entry in found.state_dict_metadata.items():
        container, name = _place(found, str(key))
        if isinstance(entry, metadata.TensorStorageMetadata):
            places[container][name] = str(key)
        else:
            other[".".join(container) or name] += 1
    chosen = _container(places)
    for container, tensors in places.items():
        if container != chosen:
            other[container[0]] += len(tensors)
    return places.get(chosen, {}), tuple(f"{what} ({count} entries)" for what, count in sorted(other.items()))


def _place(found: metadata.Metadata, key: str) -> tuple[tuple[str, ...], str]:
    """Where an entry was in the state that was saved: the dict that held it, and its name there.

    Under `model` everything is of the model; a bare state has names with dots and no dicts at all.
    """
    planned = found.planner_data.get(key) if isinstance(found.planner_data, Mapping) else None
    path = tuple(str(part) for part in planned) if isinstance(planned, tuple) and planned else (key,)
    if MODEL in path[:-1]:
        end = path.index(MODEL) + 1
        return path[:end], ".".join(path[end:])
    return path[:-1], path[-1]


def _container(places: Mapping[tuple[str, ...], Mapping[str, str]]) -> tuple[str, ...]:
    models = [container for container in places if container and container[-1] == MODEL]
    if len(models) > 1:
        raise refused(
            f"{len(models)} models are in it: {', '.join('.'.join(container) for container in models)}",
            rule="one model",
        )
    if models:
        return models[0]
    if () in places or not places:
        return ()
    if len(places) > 1:
        raise refused(
            f"none of what is in it is called {MODEL}: {', '.join(sorted({c[0] for c in places}))}",
            rule="a state with the model under `model`, or the model's own state",
        )
    return next(iter(places))


def _tensor(name: str, entry: object) -> Tensor:
    """What is said of a tensor, if its parts are all of it."""
    assert isinstance(entry, metadata.TensorStorageMetadata)
    dtype, size = entry.properties.dtype, tuple(entry.size)
    if dtype not in DTYPES:
        raise refused(
            f"{name} is of type {dtype}", rule=f"what a checkpoint can hold: {', '.join(DTYPES.values())}"
        )
    parts = sum(math.prod(chunk.sizes) for chunk in entry.chunks)
    if parts != math.prod(size) or any(length < 0 for length in size):
        raise refused(f"the parts of {name} are {parts:,} numbers, it has {math.prod(size):,}")
    return Tensor(name=name, dtype=DTYPES[dtype], shape=size)


# --- tensors ------------------------------------------------------------------------------------------------


class _Reader(FileSystemReader):
    """Reads tensors; the description was read before, with care."""

    def __init__(self, folder: Path, found: metadata.Metadata) -> None:
        super().__init__(folder)
        self._found = found

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        return self._found


def _bytes(reader: _Reader, key: str, found: metadata.Metadata) -> Iterator[bytes]:
    """The bytes of one tensor, put together from its parts. What no part fills is NaN, and is found by that."""
    entry = found.state_dict_metadata[key]
    assert isinstance(entry, metadata.TensorStorageMetadata)
    dtype = entry.properties.dtype
    try:
        tensor = torch.full(entry.size, math.nan if dtype.is_floating_point else 0, dtype=dtype)
        with warnings.catch_warnings():  # that there is one process is what is meant
            warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)
            load({key: tensor}, storage_reader=reader, no_dist=True)
    except (CheckpointException, ValueError, RuntimeError, AssertionError) as error:
        raise refused(f"{key} cannot be read: {str(error)[-300:]}") from error
    flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
    for start in range(0, flat.numel(), READ_BYTES):
        yield flat[start : start + READ_BYTES].numpy().tobytes()
