"""What an exception means: of which class a failure is, and what it has in common with others of the same cause."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

from raykit import defects
from raykit.errors import Broken, GateError, NotFoundError, PlanError, Unknown
from raykit.records import FailureKind
from raykit.train.blame import LIBRARIES, PACKAGE, is_memory, is_of_the_machine

STORE = PACKAGE / "store"

MAX_WORDS = 2000
MAX_FRAMES = 32
"""Frames that a signature looks at, from the innermost: a recursion may be of any depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an attempt came to nothing."""

    kind: FailureKind
    signature: str
    message: str


def cause_of(error: Exception) -> Cause:
    """Class an exception of an examination.

    Its signature holds the type of the error and the lines of the recipe and of raykit that it passed through; no path,
    no line number, and nothing of the message, which differ between two processes that meet the same defect.
    """
    kind, name = kind_of(error), type(error).__qualname__
    return Cause(
        kind=kind,
        signature=defects.signature(kind, name, where(error)),
        message=words(f"{name}: {error}"),
    )


def kind_of(error: Exception) -> FailureKind:
    """The class that decides what is done about it."""
    if is_memory(error):
        return "memory"
    if isinstance(error, Unknown):
        return "infrastructure"
    if isinstance(error, Broken):
        return "corrupt"
    if isinstance(error, GateError | PlanError):
        field = error.field or ""
        if field.startswith("dataset"):
            return "data"
        if field.startswith("bounds"):
            return "bounds"
    if isinstance(error, NotFoundError | OSError) and _in_store(error):
        # What a log names is not there; or the disk, or the network, under the store.
        return "corrupt" if isinstance(error, NotFoundError) else "infrastructure"
    return "recipe"


def is_of_the_example(error: Exception) -> bool:
    """Whether it is the example that cannot be used, and not the machine or the store that does not work."""
    return kind_of(error) not in ("memory", "infrastructure", "corrupt") and not is_of_the_machine(error)


def where(error: Exception) -> tuple[str, ...]:
    """The lines that the error passed through, of all code that is not a library's; each once, the innermost last."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{Path(f.filename).name}:{f.name}: {f.line}" for f in frames if _is_ours(f.filename)]
    return tuple(dict.fromkeys(lines))[-MAX_FRAMES:]


def words(text: str) -> str:
    """`text` as a record can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_WORDS]


def _in_store(error: Exception) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).resolve().is_relative_to(STORE) for frame in frames)


def _is_ours(filename: str) -> bool:
    if filename.startswith("<"):
        return False  # of the interpreter itself
    path = Path(filename).resolve()
    return path.is_relative_to(PACKAGE) or not any(path.is_relative_to(library) for library in LIBRARIES)
