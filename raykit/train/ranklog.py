"""One rank's log, kept in the store: what it prints, warns and dies of, per attempt.

Written as a derived file every few seconds and at the end; the newest `MAX_BYTES` are kept, and what was let go is
said. A log decides nothing: if the store does not take it, training goes on.
"""

from __future__ import annotations

import io
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from raykit.errors import RaykitError
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.train.rows import Stamp

MAX_BYTES = 8 * 1024 * 1024
EVERY_S = 5.0


class RankLog:
    """Copies this process's stdout and stderr into the store while the block runs."""

    def __init__(self, store: ObjectStore, rank: int) -> None:
        self._store = store
        self._rank = rank
        self._stamp: Stamp | None = None
        self._lock = threading.Lock()
        self._text: list[str] = []
        self._size = 0
        self._dropped = 0
        self._written = -1
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="raykit-log", daemon=True)
        self._before: tuple[TextIO, TextIO] | None = None

    def bind(self, stamp: Stamp) -> None:
        """Say whose log this is, as soon as the attempt has its number. What came before is kept."""
        self._stamp = stamp

    def __enter__(self) -> Self:
        self._before = (sys.stdout, sys.stderr)
        sys.stdout = _Tee(sys.stdout, self._add)
        sys.stderr = _Tee(sys.stderr, self._add)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._before is not None
        sys.stdout, sys.stderr = self._before
        if isinstance(error, RaykitError):
            self._add(f"{error.kind}: {error}\n")
        elif error is not None:
            self._add("".join(traceback.format_exception(kind, error, trace)))
        self._ended.set()
        self._thread.join()
        self._write()

    def _add(self, text: str) -> None:
        with self._lock:
            self._text.append(text)
            self._size += len(text)
            while self._size > MAX_BYTES and len(self._text) > 1:
                gone = self._text.pop(0)
                self._size -= len(gone)
                self._dropped += len(gone)

    def _work(self) -> None:
        while not self._ended.wait(EVERY_S):
            self._write()

    def _write(self) -> None:
        with self._lock:
            total = self._size + self._dropped
            if self._stamp is None or total == self._written:
                return
            head = f"[{self._dropped} earlier characters are not kept]\n" if self._dropped else ""
            data = (head + "".join(self._text)).encode("utf-8", "replace")
        stamp = self._stamp
        try:
            self._store.put_derived(
                layout.worker_log(stamp.experiment, stamp.run, stamp.attempt, self._rank), data
            )
            self._written = total
        except RaykitError:
            return


class _Tee(io.TextIOBase):
    """Writes to the stream that was there, and to the log."""

    def __init__(self, stream: TextIO, add: Callable[[str], None]) -> None:
        self._stream = stream
        self._add = add

    def write(self, text: str) -> int:
        self._add(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding
