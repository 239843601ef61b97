"""Identity: digests, safe names, canonical JSON, and a fingerprint that refuses unstable values.

Nothing here does I/O. Identity is bytes: two values are the same exactly when `canonical` gives the same
bytes for both.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, NewType

from pydantic import StringConstraints

from raykit.errors import CorruptError, UnsafeNameError

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
DIGEST = re.compile(r"[0-9a-f]{64}")

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", strict=True)]
"""A sha256 as 64 lower-case hexadecimal digits."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", strict=True)]
"""One safe part of a key."""

RunId = NewType("RunId", str)
"""`<experiment>/<run>`, both safe names."""

UnitId = NewType("UnitId", str)
"""The digest that identifies one unit of work: a QC request or a shard."""

MAX_JSON_BYTES = 64 * 1024 * 1024


def safe_name(name: str) -> str:
    """Return `name` if it is one safe part of a key.

    Raises:
        UnsafeNameError: it is not `[a-z0-9][a-z0-9._-]{0,127}`.
    """
    if not NAME.fullmatch(name):
        raise UnsafeNameError(
            f"{name!r} is not a safe name",
            value=name,
            rule="lower-case letters, digits, '.', '_' and '-', starting with a letter or digit, at most 128",
        )
    return name


def safe_key(key: str) -> str:
    """Return `key` if every `/`-separated part of it is a safe name.

    Raises:
        UnsafeNameError: a part is empty, `.`, `..`, too long, or holds another character.
    """
    if len(key) > 1024:
        raise UnsafeNameError(f"the key is {len(key)} characters long", rule="at most 1024 characters")
    for part in key.split("/"):
        safe_name(part)
    return key


def run_id(experiment: str, run: str) -> RunId:
    """The id of one run, `<experiment>/<run>`.

    Raises:
        UnsafeNameError: either part is not a safe name.
    """
    return RunId(f"{safe_name(experiment)}/{safe_name(run)}")


def sha256(data: bytes | bytearray | memoryview) -> str:
    """The sha256 of `data` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def canonical(value: Any) -> bytes:
    """`value` as canonical JSON: sorted keys, no spaces, UTF-8, shortest floats, no NaN or infinity.

    Raises:
        ValueError: a float is not finite.
        TypeError: a value has no JSON form, or a mapping has a key that is not a string.
    """
    _only_string_keys(value)
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _only_string_keys(value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a JSON key must be a string, not {key!r}")
            _only_string_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _only_string_keys(item)


def parse_json(data: bytes, what: str, *, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Strict JSON: UTF-8, no NaN, no duplicate keys, bounded size and depth.

    Raises:
        CorruptError: the bytes are not such JSON; `what` names them in the message.
    """
    if len(data) > max_bytes:
        raise CorruptError(f"{what} is {len(data)} bytes long", rule=f"at most {max_bytes} bytes")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{what} is not valid JSON: {str(error)[:200]}") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def digest_of(value: Any) -> str:
    """The sha256 of `canonical(value)`."""
    return sha256(canonical(value))


def fingerprint(value: Any) -> str:
    """The digest of a Python value that has one stable meaning: JSON values, bytes, enums, dataclasses, sets.

    Raises:
        TypeError: a value has no stable identity (a function, an object with a default repr, a NaN), so that
            a digest of it would change from process to process.
    """
    return digest_of(_stable(value, "value"))


def _stable(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__qualname__, "name": value.name}
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{path} is {value}, which has no stable identity")
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, list | tuple):
        return [_stable(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return {"set": sorted(canonical(_stable(item, path)).decode() for item in value)}
    if isinstance(value, Mapping):
        return {
            "map": sorted([str(k), type(k).__name__, _stable(v, f"{path}.{k}")] for k, v in value.items())
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _stable(getattr(value, f.name), f"{path}.{f.name}") for f in dataclasses.fields(value)
        }
        return {"dataclass": type(value).__qualname__, "fields": fields}
    raise TypeError(f"{path} is a {type(value).__qualname__}, which has no stable identity")
