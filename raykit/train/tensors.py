"""Trees of tensors as bytes: safetensors for the tensors, JSON for what holds them together.

`split` takes a tree (dicts, lists, tuples, numbers, strings, tensors) apart into plain JSON and named tensors,
`join` puts it together again, bit for bit. `HostCopy` copies tensors into host memory that it keeps between
saves, laid out as the safetensors file will be, so that the training thread pays one memory copy and a writer
thread can stream the file from there.

The file format is https://huggingface.co/docs/safetensors: an 8-byte little-endian header length, a JSON
header, then the tensors' bytes without holes.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors.torch
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from raykit.errors import CorruptError, GateError
from raykit.ids import canonical

MAX_HEADER_BYTES = 64 * 1024 * 1024

DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}

PAIRS = torch.complex128
"""Has no name in the file format: stored as pairs of float64, and the header says which tensors these are."""


# --- trees --------------------------------------------------------------------------------------------------


_MAPS: dict[str, type] = {"OrderedDict": OrderedDict, "Counter": Counter}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (bool, dict, float, int, list, str)}
"""What makes the missing items of a defaultdict that can be saved."""


def split(tree: Any, path: str = "", *, ordered: bool = True) -> tuple[Any, dict[str, torch.Tensor]]:
    """Take a tree apart: plain JSON with `{"$": "tensor", …}` marks, and the tensors by path.

    A dict comes back with the same items in the same order, an OrderedDict, Counter or defaultdict as what it is.
    With `ordered` false a dict comes back in the order of its keys, as the first format had it.

    Raises:
        GateError: a value that has no exact plain form (a function, an object, a NumPy array).
    """
    parts = _Parts(ordered)
    return parts.take(tree, path), parts.tensors


class _Parts:
    """What one tree is taken apart into."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self.tensors: dict[str, torch.Tensor] = {}

    def take(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return _text(value, path)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$": "float", "is": repr(float(value))}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, list):
            return [self.take(item, f"{path}.{i}") for i, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"$": "tuple", "is": [self.take(item, f"{path}.{i}") for i, item in enumerate(value)]}
        if isinstance(value, Mapping) and _is_kept(value, self._ordered):
            return self._map(value, path)
        raise _without_form(value, path)

    def _tensor(self, value: torch.Tensor, path: str) -> Any:
        while path in self.tensors:  # of {"a.b": ..., "a": {"b": ...}}, or of the keys 0 and "0"
            path += "'"
        self.tensors[path] = value.detach()
        return {"$": "tensor", "is": path}

    def _map(self, value: Mapping[Any, Any], path: str) -> Any:
        for key in value:
            if not isinstance(key, int | str) or isinstance(key, bool):
                raise _without_form(value, path)
        items = [(_text(key, path), self.take(item, f"{path}.{key}")) for key, item in value.items()]
        keys = [key for key, _ in items]
        named = all(isinstance(key, str) and key != "$" for key in keys)
        if named and (not self._ordered or (type(value) is dict and keys == sorted(keys))):
            return dict(items)
        kind = {"of": _kind(value)} if self._ordered and type(value) is not dict else {}
        return {"$": "map", "is": [list(item) for item in items], **kind}


def _is_kept(value: Mapping[Any, Any], ordered: bool) -> bool:
    """Whether a mapping comes back as what it is."""
    if not ordered or type(value) in (dict, OrderedDict, Counter):
        return True
    return type(value) is defaultdict and value.default_factory in (None, *_FACTORIES.values())


def _kind(value: Mapping[Any, Any]) -> str:
    if isinstance(value, defaultdict):
        return f"defaultdict {value.default_factory.__name__ if value.default_factory else ''}".strip()
    return type(value).__name__


def _text(value: Any, path: str) -> Any:
    """A text, or a number that is a key, as it is.

    Raises:
        GateError: the text has no bytes: half of a surrogate pair stands alone in it.
    """
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError as error:
        raise GateError(
            f"{path.strip('.') or 'the state'} has a text that is no Unicode: {ascii(value)[:80]}",
            rule="text that has UTF-8 bytes",
            remedy="keep it as a list of numbers, or decode it with errors='replace'",
        ) from error
    return value


def _without_form(value: Any, path: str) -> GateError:
    return GateError(
        f"{path.strip('.') or 'the state'} is a {type(value).__qualname__}, which cannot be saved exactly",
        rule="tensors, numbers, text, None, and lists, tuples and dicts of those with keys of text or whole numbers",
        remedy="give the recipe a state_dict() and load_state_dict() that use these: dict(...) of a mapping",
    )


def join(structure: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Put together what `split` took apart.

    Raises:
        CorruptError: a tensor is missing or a mark is unknown.
    """
    if isinstance(structure, list):
        return [join(item, tensors) for item in structure]
    if not isinstance(structure, dict):
        return structure
    mark = structure.get("$")
    if mark is None:
        return {key: join(item, tensors) for key, item in structure.items()}
    inner = structure.get("is")
    if mark == "float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    if mark == "tensor" and isinstance(inner, str) and inner in tensors:
        return tensors[inner]
    if mark == "tuple" and isinstance(inner, list):
        return tuple(join(item, tensors) for item in inner)
    if mark == "map" and isinstance(inner, list) and all(map(_is_pair, inner)):
        return _map_of(structure.get("of", "dict"), {key: join(item, tensors) for key, item in inner})
    raise CorruptError(f"a state holds an unknown mark or lacks a tensor: {mark} {inner!s:.80}")


def _map_of(kind: Any, items: dict[Any, Any]) -> Any:
    if kind == "dict":
        return items
    name, _, factory = str(kind).partition(" ")
    if name in _MAPS and not factory:
        made = _MAPS[name]()
        for key, item in items.items():
            made[key] = item
        return made
    if name == "defaultdict" and (not factory or factory in _FACTORIES):
        return defaultdict(_FACTORIES.get(factory), items)
    raise CorruptError(f"a state holds an unknown kind of map: {kind!s:.80}")


def _is_pair(item: Any) -> bool:
    return isinstance(item, list) and len(item) == 2 and isinstance(item[0], int | str)


def is_broken(values: torch.Tensor, *, buffer: bool) -> bool:
    """Whether a tensor holds NaN; or infinity, which only a buffer may, such as a mask."""
    if not values.numel():
        return False
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if not values.is_floating_point():
        return False
    low, high = torch.aminmax(values)  # one pass, without a copy; NaN comes through
    if buffer:
        return bool(low.isnan() | high.isnan())
    return not bool(low.isfinite() & high.isfinite())


# --- files --------------------------------------------------------------------------------------------------


class HostCopy:
    """A copy of some tensors in host memory, in file order; its memory is kept from one save to the next.

    `take` copies (the only part that training waits for); `stream` gives the file's bytes, as often as asked,
    until the next `take`.
    """

    def __init__(self, *, pin: bool = False) -> None:
        self._pin = pin
        self._layout: tuple[tuple[str, torch.dtype, torch.Size], ...] = ()
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._views: list[torch.Tensor] = []
        self._tensors_header: dict[str, Any] = {}
        self._header = b""

    @property
    def size_bytes(self) -> int:
        return len(self._header) + self._buffer.numel()

    def take(self, tensors: Mapping[str, torch.Tensor], structure: Any = None) -> None:
        """Copy `tensors` and, with them, the JSON `structure` of the tree they come from.

        Raises:
            GateError: a tensor is sparse, has no data, or is of a type that cannot be saved.
        """
        pairs = sorted(name for name, tensor in tensors.items() if tensor.dtype is PAIRS)
        plain = {name: _plain(name, tensor) for name, tensor in tensors.items()}
        ordered = sorted(plain.items(), key=lambda item: (-item[1].element_size(), item[0]))
        layout = tuple((name, tensor.dtype, tensor.shape) for name, tensor in ordered)
        if layout != self._layout:
            self._lay_out(layout)
        for view, (_, tensor) in zip(self._views, ordered, strict=True):
            view.copy_(tensor, non_blocking=self._pin)
        if self._pin:
            torch.cuda.synchronize()
        header = dict(self._tensors_header)
        metadata = {} if structure is None else {"tree": canonical(structure).decode()}
        if pairs:
            metadata["pairs"] = canonical(pairs).decode()
        if metadata:
            header["__metadata__"] = metadata
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        self._header = struct.pack("<Q", len(text)) + text

    def _lay_out(self, layout: tuple[tuple[str, torch.dtype, torch.Size], ...]) -> None:
        offsets: list[tuple[int, int]] = []
        end = 0
        self._tensors_header = {}
        for name, dtype, shape in layout:
            if dtype not in DTYPES:
                raise GateError(
                    f"{name} is of type {dtype}, which cannot be saved", rule=", ".join(DTYPES.values())
                )
            start, end = end, end + shape.numel() * dtype.itemsize
            offsets.append((start, end))
            self._tensors_header[name] = {
                "dtype": DTYPES[dtype],
                "shape": list(shape),
                "data_offsets": [start, end],
            }
        self._buffer = torch.zeros(end, dtype=torch.uint8, pin_memory=self._pin)
        self._views = [
            self._buffer[start:stop].view(dtype).view(shape)
            for (start, stop), (_, dtype, shape) in zip(offsets, layout, strict=True)
        ]
        self._layout = layout

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The copies by their names, until the next `take`."""
        return ((name, view) for (name, _, _), view in zip(self._layout, self._views, strict=True))

    def stream(self) -> Iterator[memoryview]:
        """The file's bytes: the header, then all tensors as one piece: a store writes and hashes it at two paces."""
        yield memoryview(self._header)
        yield memoryview(self._buffer.numpy())  # type: ignore[arg-type]


def _plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor whose elements are its bytes.

    Raises:
        GateError: it is sparse, has no data, or makes its values from other tensors.
    """
    composed: bool = is_traceable_wrapper_subclass(tensor)
    if composed or tensor.layout is not torch.strided or tensor.is_meta:
        what = type(tensor).__qualname__ if composed else tensor.layout
        raise GateError(f"{name} is a tensor without plain bytes ({what}), which cannot be saved")
    return torch.view_as_real(tensor.detach().resolve_conj()) if tensor.dtype is PAIRS else tensor


_NOT_A_FILE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RuntimeError,  # too deep; or torch's, of a tensor that is no pairs
    struct.error,
    safetensors.SafetensorError,
)


def read_tensors(data: bytes | bytearray, what: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """The structure (None if the file has none) and tensors of a safetensors file, already verified.

    Raises:
        CorruptError: the bytes are not such a file.
    """
    try:
        (length,) = struct.unpack_from("<Q", data)
        if length > min(MAX_HEADER_BYTES, len(data) - 8):
            raise CorruptError(f"{what}: the header is said to be {length} bytes long")
        header = json.loads(bytes(data[8 : 8 + length]))
        tensors = safetensors.torch.load(bytes(data))
        metadata = header.get("__metadata__", {})
        for name in json.loads(metadata.get("pairs", "[]")):
            tensors[name] = torch.view_as_complex(tensors[name])
        tree = metadata.get("tree")
        return (None if tree is None else json.loads(tree)), tensors
    except _NOT_A_FILE as error:
        raise CorruptError(f"{what} is not a safetensors file: {str(error)[:200]}") from error
