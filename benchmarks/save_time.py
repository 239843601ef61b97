"""What a save costs training, and how long it takes to be durable, for a 400 MB state: model and Adam moments.

    python -m benchmarks.save_time

Blocked is how long the call keeps training; it is held against one memory copy of the same bytes into memory that
is already there. Durable is the wall time from the call to the commit event in the run's log, sha256 of every file
included; it is held against writing as many bytes to one file and fsync. Nothing is deleted before the end (10 GB):
blocks that were just freed can be six times as fast as new ones, for whoever gets them.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from benchmarks.bytelm.recipe import Transformer
from benchmarks.figures import Figure, main
from benchmarks.store import DIGEST, opened_attempt
from raykit.store.local import LocalStore
from raykit.train.gang import alone
from raykit.train.rows import Rows
from raykit.train.saver import Bound, Saver
from raykit.train.state import Live

ROUNDS = 5
CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Seconds that the call took, and seconds until what it began was done."""

    blocked_s: float
    whole_s: float


def measure() -> Sequence[Figure]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="raykit-bench-") as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> Sequence[Figure]:
    live = _live()
    size_bytes = sum(tensor.nbytes for tensor in _tensors(live))
    number = itertools.count()
    copy, write = _copier(size_bytes), _writer(size_bytes)
    store = LocalStore(folder / "store")
    log, stamp = opened_attempt(store, "save-time", "main")
    rows = Rows(store, log, stamp, _no_row, flush_s=5.0, hold_s=60.0)
    bound = Bound(contract=DIGEST, code=DIGEST, data=DIGEST, exactness="exact")
    saver = Saver(store, log, stamp, alone(), bound, rows, hold_s=60.0)
    contenders: dict[str, Callable[[], Took]] = {
        "raykit": lambda: _raykit(live, saver),
        "DCP async_save": lambda: _dcp_async(live, folder / f"dcp-{next(number)}"),
        "torch.save": lambda: _torch_save(live, folder / f"torch-{next(number)}.pt"),
    }
    first = contenders["raykit"]()
    rounds = []
    for _ in range(ROUNDS):
        held = {"copy": copy(), "write": write(folder / f"write-{next(number)}")}
        rounds.append(held | {name: take() for name, take in contenders.items()})
    rows.close(timeout_s=60.0)
    rows.check()

    def against(name: str, part: str, what: str) -> list[float]:
        return [getattr(taken[name], part) / taken[what].whole_s for taken in rounds]

    return [
        Figure(what=f"memory copy of {size_bytes / 1e6:.0f} MB", unit="s", values=_whole(rounds, "copy")),
        Figure(
            what="blocked: raykit / copy",
            unit="x",
            values=against("raykit", "blocked_s", "copy"),
            at_most=1.5,
        ),
        Figure(
            what="blocked: raykit's first save, which makes its memory / copy",
            unit="x",
            values=[first.blocked_s / taken["copy"].whole_s for taken in rounds],
        ),
        Figure(
            what="blocked: DCP async_save / copy",
            unit="x",
            values=against("DCP async_save", "blocked_s", "copy"),
        ),
        Figure(
            what="blocked: torch.save / copy", unit="x", values=against("torch.save", "blocked_s", "copy")
        ),
        Figure(what="write + fsync of the same bytes", unit="s", values=_whole(rounds, "write")),
        Figure(
            what="durable: raykit, with sha256 / write",
            unit="x",
            values=against("raykit", "whole_s", "write"),
            at_most=1.3,
        ),
        Figure(
            what="DCP async_save, no sha256 / write",
            unit="x",
            values=against("DCP async_save", "whole_s", "write"),
        ),
        Figure(
            what="torch.save, no sha256, no fsync / write",
            unit="x",
            values=against("torch.save", "whole_s", "write"),
        ),
    ]


def _whole(rounds: Sequence[dict[str, Took]], name: str) -> list[float]:
    return [taken[name].whole_s for taken in rounds]


def _no_row(figures: object) -> Any:
    raise AssertionError("no update was handed over")


def _live() -> Live:
    """A model after one step of AdamW: every moment is there."""
    model = Transformer(width=832, layers=4, heads=8, context=128)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return Live(model=model, optimizer=optimizer)


def _state(live: Live) -> dict[str, Any]:
    return {"model": live.model.state_dict(), "optimizer": live.optimizer.state_dict()}


def _tensors(live: Live) -> list[torch.Tensor]:
    moments = [value for state in live.optimizer.state.values() for value in state.values()]
    return [*live.model.state_dict().values(), *moments]


def _copier(size_bytes: int) -> Callable[[], Took]:
    source, target = (torch.ones(size_bytes, dtype=torch.uint8) for _ in range(2))
    return lambda: _timed(lambda: target.copy_(source))


def _writer(size_bytes: int) -> Callable[[Path], Took]:
    body = memoryview(torch.randint(256, (size_bytes,), dtype=torch.uint8).numpy())

    def write(path: Path) -> None:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        for start in range(0, size_bytes, CHUNK_BYTES):
            piece = body[start : start + CHUNK_BYTES]
            assert os.write(file, piece) == len(piece)
        os.fsync(file)
        os.close(file)

    return lambda path: _timed(lambda: write(path))


def _raykit(live: Live, saver: Saver) -> Took:
    live.progress.update += 1
    took = _timed(lambda: saver.save(live, "cadence"), saver.drain)
    assert saver.committed == live.progress.update
    return took


def _dcp_async(live: Live, folder: Path) -> Took:
    begun = []

    def begin() -> None:
        begun.append(dcp.async_save(_state(live), checkpoint_id=folder, no_dist=True))

    with warnings.catch_warnings(action="ignore"):
        return _timed(begin, lambda: begun[0].result())


def _torch_save(live: Live, path: Path) -> Took:
    return _timed(lambda: torch.save(_state(live), path))


def _timed(begin: Callable[[], object], end: Callable[[], object] = lambda: None) -> Took:
    os.sync()  # what others have left to write is not part of it
    start = time.perf_counter()
    begin()
    blocked_s = time.perf_counter() - start
    end()
    return Took(blocked_s=blocked_s, whole_s=time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main(measure))
