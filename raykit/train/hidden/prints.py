"""What a leaf of the graph comes to: a short digest that is equal where values are, and words for a person.

Of a large array, blocks are read: the first, the last, and some between. What no digest can be had of, such as an
object of another library, is not compared.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import random
from typing import Any

import numpy as np
import torch

WHOLE = 1 << 16
"""An array of so many elements is read whole."""

BLOCKS = 32
BLOCK = 1 << 10
"""Of a larger one, so many blocks of so many elements are read."""

TOLD = 40
"""A value longer than so many letters is told by its beginning."""


def fingerprint(value: Any) -> str:
    """The digest of one leaf's value."""
    digest = hashlib.blake2b(digest_size=12)
    for part in _parts(value):
        digest.update(part)
    return digest.hexdigest()


def told(value: Any) -> str:
    """A value, shortly."""
    match value:
        case torch.Tensor():
            first = value.detach().flatten()[:1].tolist()
            return f"a tensor {list(value.shape)} beginning with {_short(first[0]) if first else 'nothing'}"
        case np.ndarray():
            first = value.flat[:1].tolist()
            return f"an array {list(value.shape)} beginning with {_short(first[0]) if first else 'nothing'}"
        case frozenset():
            return f"a set of {len(value)}"
        case None | bool() | int() | float() | complex() | str() | bytes() | np.generic() | enum.Enum():
            return _short(value)
    return f"the state of a {type(value).__name__}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= TOLD else f"{text[:TOLD]}..."


def _parts(value: Any) -> list[bytes]:
    match value:
        case torch.Tensor():
            head = f"{value.dtype} {tuple(value.shape)} {value.layout}".encode()
            return [head, *(_bytes(block) for block in _blocks(_flat(value)))]
        case np.ndarray():
            head = f"{value.dtype} {value.shape}".encode()
            return [head, *(np.ascontiguousarray(block).tobytes() for block in _blocks(_flat_array(value)))]
        case np.random.Generator():
            return _parts(value.bit_generator.state)
        case np.random.RandomState():
            return _parts(value.get_state(legacy=False))
        case random.Random():
            return _parts(value.getstate())
        case torch.Generator():
            return [_bytes(value.get_state())]
        case frozenset():
            return sorted(b"".join(_parts(element)) for element in value)
        case dict():
            return [b for key, inner in value.items() for b in (repr(key).encode(), *_parts(inner))]
        case tuple() | list():
            return [b for inner in value for b in _parts(inner)]
        case itertools.count() | itertools.cycle():
            return [repr(value).encode() if isinstance(value, itertools.count) else b"cycle"]
        case _ if hasattr(value, "__length_hint__"):
            return [f"{type(value).__name__} {value.__length_hint__()}".encode()]
        case enum.Enum():
            return [repr((type(value).__qualname__, value.name)).encode()]
        case bytearray():
            return [bytes(value)]
        case np.generic():
            return [f"{value.dtype} ".encode(), value.tobytes()]
    return [f"{type(value).__name__} {value!r}".encode()]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_quantized:
        tensor = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    return tensor.reshape(-1) if tensor.is_contiguous() else _first_axes(tensor)


def _first_axes(tensor: torch.Tensor) -> torch.Tensor:
    """Flat without a copy of everything where that would be large: its rows, some of them."""
    if tensor.numel() <= WHOLE or tensor.dim() == 0:
        return tensor.reshape(-1)
    rows = torch.linspace(0, tensor.shape[0] - 1, min(tensor.shape[0], BLOCKS)).long()
    return tensor[rows].reshape(-1)


def _flat_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.flags.c_contiguous or array.size <= WHOLE or array.ndim == 0:
        return array.reshape(-1)
    rows = np.linspace(0, array.shape[0] - 1, min(array.shape[0], BLOCKS)).astype(int)
    picked: np.ndarray[Any, Any] = array[rows]
    return picked.reshape(-1)


def _blocks(flat: Any) -> list[Any]:
    size = len(flat)
    if size <= WHOLE:
        return [flat]
    starts = np.linspace(0, size - BLOCK, BLOCKS).astype(int).tolist()
    return [flat[start : start + BLOCK] for start in starts]


def _bytes(tensor: torch.Tensor) -> bytes:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    tensor = tensor.cpu().contiguous().resolve_neg()
    return tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


__all__ = ["fingerprint", "told"]
