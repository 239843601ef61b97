"""The identity of one dataset item: a sha256 over what it holds.

Equal items have equal digests on every machine and in every process: numbers are hashed with their type,
shape and little-endian bytes, text and bytes with their length, mappings without regard to key order. Lists
and tuples count as the same thing, and so do a tensor and an array of the same values. What has no such
stable bytes is refused by its path in the item, never hashed by its repr.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from raykit.errors import PlanError

STABLE_KINDS = frozenset("biufcmMSU")
"""Kinds of NumPy dtypes whose bytes are their value: not objects, not records."""


def content_digest(item: object) -> str:
    """The sha256 of an item: numbers, text, arrays and tensors, in any nesting of tuples, lists and dicts.

    Raises:
        PlanError: a part of the item has no stable bytes; the error names its path.
    """
    digest = hashlib.sha256()
    for chunk in _encoded(item, "item"):
        digest.update(chunk)
    return digest.hexdigest()


def _encoded(value: Any, path: str) -> Iterator[bytes]:
    """Tag, length and bytes of `value`: no two different values give the same stream."""
    match value:
        case None:
            yield b"n"
        case np.ma.MaskedArray():
            raise _refusal(path, "a masked array")
        case np.ndarray() | np.generic():  # before the plain types: np.float64 is a float as well
            yield from _array(np.asarray(value), path)
        case bool():
            yield b"b1" if value else b"b0"
        case int():
            yield from _framed(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        case float():
            yield b"f" + struct.pack("<d", value)
        case str():
            yield from _framed(b"s", value.encode(errors="surrogatepass"))
        case bytes() | bytearray() | memoryview():
            yield from _framed(b"y", bytes(value))
        case list() | tuple():
            yield b"l" + _length(len(value))
            for position, part in enumerate(value):
                yield from _encoded(part, f"{path}[{position}]")
        case Mapping():
            yield from _mapping(value, path)
        case _ if hasattr(value, "detach"):
            yield from _tensor(value, path)
        case _:
            raise _refusal(path, _type_name(value))


def _length(size: int) -> bytes:
    return size.to_bytes(8, "little")


def _framed(tag: bytes, data: bytes) -> Iterator[bytes]:
    yield tag + _length(len(data))
    yield data


def _mapping(mapping: Mapping[Any, Any], path: str) -> Iterator[bytes]:
    names = {b"".join(_encoded(name, f"{path}, key {name!r},")): name for name in mapping}
    yield b"m" + _length(len(names))
    for encoded, name in sorted(names.items(), key=lambda entry: entry[0]):
        yield encoded
        yield from _encoded(mapping[name], f"{path}[{name!r}]")


def _array(array: np.ndarray[Any, Any], path: str) -> Iterator[bytes]:
    if array.dtype.kind not in STABLE_KINDS:
        raise _refusal(path, f"an array of dtype {array.dtype}")
    dtype = array.dtype.newbyteorder("<")
    yield from _framed(b"a", dtype.str.encode())
    yield _length(array.ndim) + b"".join(_length(size) for size in array.shape)
    yield np.ascontiguousarray(array, dtype=dtype).tobytes()


def _tensor(tensor: Any, path: str) -> Iterator[bytes]:
    """A torch tensor, known by its methods so that this layer does not import torch."""
    try:
        host = tensor.detach().cpu()
        if str(host.dtype) == "torch.bfloat16":  # NumPy has no such type: hash its 16 bits, and say so
            yield b"h"
            host = host.view(host.short().dtype)
        array = np.asarray(host.numpy())
    except (AttributeError, TypeError, RuntimeError) as error:
        raise _refusal(path, _type_name(tensor)) from error
    yield from _array(array, path)


def _type_name(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _refusal(path: str, what: str) -> PlanError:
    return PlanError(
        f"{path} is {what}, which has no stable bytes to identify it by",
        field="dataset",
        value=path,
        rule="numbers, text, bytes, NumPy arrays and tensors, in tuples, lists and dicts",
        remedy="give the dataset a content(index) method that returns such values, "
        "or convert its items to arrays or tensors",
    )
