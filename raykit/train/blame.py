"""What an exception is about: rows and the recipe that meets them, or the machine; and which line it is from."""

from __future__ import annotations

import errno
import sysconfig
import traceback
from pathlib import Path

from raykit.errors import RaykitError

PACKAGE = Path(__file__).resolve().parents[1]
LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")
"""What libraries say that have no class of their own for it."""

OF_THE_MACHINE = frozenset(
    {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ESTALE, errno.ENOTCONN}
)
"""What goes wrong under a dataset or a recipe without any fault of the rows that were asked for."""

OF_DEVICES_AND_RANKS = ("cuda", "cublas", "cudnn", "nccl", "gloo", "connection")
"""What torch names where an accelerator or another rank has failed, and has no class of its own for."""

TORCH_DISTRIBUTED = "/torch/distributed/"


def is_memory(error: Exception) -> bool:
    """Whether there was too little memory."""
    if isinstance(error, MemoryError) or any(t.__name__ == "OutOfMemoryError" for t in type(error).__mro__):
        return True  # by its name: a library may have its own
    told = str(error).lower()
    return isinstance(error, RuntimeError | OSError) and any(phrase in told for phrase in OUT_OF_MEMORY)


def is_of_the_machine(error: Exception) -> bool:
    """Whether it may pass by itself: memory, a disk, a network."""
    if is_memory(error) or isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in OF_THE_MACHINE


def is_of_rows(error: Exception) -> bool:
    """Whether rows, or what a recipe does with them, raised it: asked again for the same rows, it comes again."""
    if isinstance(error, RaykitError | ModuleNotFoundError) or is_of_the_machine(error):
        return False  # code that is missing is told as that
    told = str(error).lower()
    if isinstance(error, RuntimeError) and any(name in told for name in OF_DEVICES_AND_RANKS):
        return False
    return not any(TORCH_DISTRIBUTED in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def words(error: Exception) -> str:
    """`IndexError: Target 10 is out of bounds (recipe.py, line 40)`."""
    told = f"{type(error).__name__}: {str(error)[:300].rstrip('. ')} ({place(error).partition(':')[0]})"
    return told.encode("utf-8", "backslashreplace").decode()


def place(error: Exception) -> str:
    """`recipe.py, line 40: return F.cross_entropy(scores, labels)`: the innermost line that is no library's."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not _is_of_library(frame.filename)] or list(frames[-1:])
    if not theirs:
        return "the recipe"
    return f"{Path(theirs[-1].filename).name}, line {theirs[-1].lineno}: {theirs[-1].line or ''}".strip()


def _is_of_library(filename: str) -> bool:
    if filename.startswith("<"):
        return True  # of the interpreter itself
    path = Path(filename).resolve()
    return any(path.is_relative_to(library) for library in (PACKAGE, *LIBRARIES))
