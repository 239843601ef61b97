"""Asynchronous saves: training waits for one memory copy, everything else happens beside it.

One save is in flight at a time; the next one waits for it (back-pressure). A save is true only when its commit
event is in the log: files first, then each rank's note, then the manifest, then, after the history through that
update is durable, the event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from raykit.exactness import least, measured
from raykit.reconcile import require_attempt
from raykit.records import Commit, Compared, Exactness, FileRef, Manifest, Record, RunEntry
from raykit.store.base import ObjectStore
from raykit.store.commit import Slot, gather, write_file, write_manifest, write_note
from raykit.store.log import RunLog
from raykit.train.gang import Gang
from raykit.train.hold import patiently
from raykit.train.overlap import Overlap
from raykit.train.replicas import require_one_replica
from raykit.train.rows import Rows, Stamp
from raykit.train.state import Capture, Live

Reason = Literal["start", "cadence", "loss-window", "stop", "final"]

GATHER_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Digests that every checkpoint of this attempt is bound to, and how exact it is."""

    contract: str
    code: str
    data: str
    exactness: Exactness
    invested: Invested | None = None
    unbound: Callable[[], Sequence[str]] = tuple
    """Names what was imported since the start and that nothing binds: over that no resume is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invested:
    """The accelerator time of a run: what ended attempts have held, and this one since it was granted."""

    before_ms: int
    accelerators: int
    since: float
    """On the monotonic clock of this process."""

    def now_s(self) -> float:
        """Accelerator-seconds so far."""
        return self.before_ms / 1000 + (time.monotonic() - self.since) * self.accelerators


class _Spent(NamedTuple):
    """What a save had cost when it began: how long training waited for it, and all accelerator time so far."""

    blocked_s: float
    accelerator_s: float | None


class Saver:
    """Saves one attempt's checkpoints. On every rank; `rows` and the log's events only on rank 0.

    `took` is told how many seconds each commit took until it was durable; `overlap` holds each checkpoint against what
    an earlier attempt had written of the same update.
    """

    def __init__(
        self,
        store: ObjectStore,
        log: RunLog,
        stamp: Stamp,
        gang: Gang,
        bound: Bound,
        rows: Rows | None,
        *,
        hold_s: float,
        took: Callable[[float], None] = lambda seconds: None,
        overlap: Overlap | None = None,
        timeout_s: float = 1800.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._log = log
        self._stamp = stamp
        self._gang = gang
        self._bound = bound
        self._rows = rows
        self._hold_s = hold_s
        self._took = took
        self._overlap = overlap
        self._timeout_s = timeout_s
        self._clock = clock
        self._capture = Capture(rank=gang.rank, pin=gang.device.type == "cuda")
        self._exactness = bound.exactness
        """Of the newest save."""
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self.committed: int | None = None
        """The update of the newest commit of this attempt, on rank 0."""
        self.blocked_s = 0.0
        """How long training waited for the newest save: back-pressure and the copy."""

    @property
    def capture(self) -> Capture:
        """The host copies, so that a restore can be compared without memory of its own. Only between saves."""
        return self._capture

    def save(self, live: Live, reason: Reason) -> None:
        """Copy the live state and write it beside training.

        Raises:
            GateError: the replicas of the ranks have parted.
            RaykitError: whatever stopped the save before this one.
        """
        start = time.perf_counter()
        self.drain()
        if self._gang.world > 1:
            self._capture.parted = require_one_replica(live, self._gang)
        self._capture.take(live)
        self._exactness = self._left()
        self.blocked_s = time.perf_counter() - start
        invested = self._bound.invested
        spent = _Spent(self.blocked_s, None if invested is None else round(invested.now_s(), 1))
        ticket = self._rows.ticket() if self._rows is not None else 0
        slot = Slot(
            experiment=self._stamp.experiment,
            run=self._stamp.run,
            update=live.progress.update,
            attempt=self._stamp.attempt,
        )
        self._thread = threading.Thread(
            target=self._work,
            args=(slot, live.progress.samples, reason, ticket, spent),
            name="raykit-save",
            daemon=True,
        )
        self._thread.start()

    def drain(self) -> None:
        """Wait until nothing is in flight.

        Raises:
            RaykitError: whatever stopped the save that was.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def check(self) -> None:
        """Raise what stopped a save, if something did."""
        if self._failed is not None:
            raise self._failed

    def _work(self, slot: Slot, samples: int, reason: Reason, ticket: int, spent: _Spent) -> None:
        """Write and decide; all of it again while the store does not answer, for its own bytes are success."""
        start = time.perf_counter()

        def save() -> None:
            rank = self._gang.rank
            files = [
                write_file(self._store, slot, name, data, holds=holds, rank=rank)
                for name, holds, data in self._capture.files()
            ]
            write_note(self._store, slot, rank, files)
            if self._gang.leads:
                self._decide(slot, samples, reason, ticket, spent, start)

        try:
            patiently(save, hold_s=self._hold_s)
        except BaseException as error:  # noqa: BLE001 - it belongs to the training thread, which raises it
            self._failed = error

    def _decide(
        self, slot: Slot, samples: int, reason: Reason, ticket: int, spent: _Spent, start: float
    ) -> None:
        assert self._rows is not None
        files = gather(self._store, slot, self._gang.world, wait=self._waiting(start))
        manifest = Manifest(
            update=slot.update,
            samples=samples,
            world_size=self._gang.world,
            files=files,
            history_update=slot.update,
            contract=self._bound.contract,
            data=self._bound.data,
            code=self._bound.code,
        )
        key, digest = write_manifest(self._store, slot, manifest)
        self._rows.through(ticket, timeout_s=self._timeout_s)
        compared = [] if self._overlap is None else self._overlap.manifest(manifest)
        commit = Commit(
            update=slot.update,
            attempt=slot.attempt,
            key=key,
            sha256=digest,
            size_bytes=_size_bytes(files),
            exactness=self._class(compared),
            reason=reason,
            save_s=round(time.perf_counter() - start, 3),
            blocked_s=round(spent.blocked_s, 6),
            accelerator_s=spent.accelerator_s,
            nonfinite=self._capture.broken() or None,
        )
        self._log.append(lambda entries: self._once(entries, compared, commit), at=self._clock())
        self.committed = slot.update
        self._took(commit.save_s)

    def _left(self) -> Exactness:
        """What a resume of what is live now may be called, by what this process has imported until now."""
        late = self._bound.unbound()
        if not late:
            return self._bound.exactness
        print(
            f"! {', '.join(late)}: imported while it trained, and neither frozen nor installed, so this checkpoint is "
            "inexact; import it where the recipe is imported: then a resume compares it"
        )
        return "inexact"

    def _waiting(self, start: float) -> Callable[[], bool]:
        def wait() -> bool:
            time.sleep(GATHER_PAUSE_S)
            return time.perf_counter() - start < self._timeout_s

        return wait

    def _class(self, compared: Sequence[Compared]) -> Exactness:
        """What the resume promised, as far as gates and comparisons have left it."""
        state = self._log.state
        lowered = [event.lowers for event in (*state.compared, *compared) if event.lowers is not None]
        return least(self._exactness, measured(state), *lowered)

    def _once(
        self, entries: Sequence[RunEntry], compared: Sequence[Compared], commit: Commit
    ) -> list[Record]:
        state = self._log.state
        require_attempt(state, self._stamp.launch, self._stamp.attempt)
        known = any(known.key == commit.key for known in state.commits)
        return [] if known else [*compared, commit]


def _size_bytes(files: Sequence[FileRef]) -> int:
    return sum(file.size_bytes for file in files)
