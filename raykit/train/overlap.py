"""What an attempt trains again, held against what an earlier attempt had recorded of it: to the bit, and for nothing.

A resume starts at a checkpoint, and what was recorded after that is trained a second time. Rows, evaluations and
manifests of equal updates have to be equal then, but for attempt and time. The first difference is named; whether it
lowers the run depends on what the resume had promised.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from raykit.errors import CorruptError, NotFoundError
from raykit.exactness import least, measured
from raykit.history import SAME_BUT
from raykit.ids import canonical, sha256
from raykit.reconcile import RunState
from raykit.records import (
    AttemptStarted,
    Commit,
    Compared,
    EvaluationRow,
    Exactness,
    FirstDifference,
    Manifest,
    MonitorRow,
    Row,
    Segment,
    Series,
)
from raykit.replays import alike, start_of
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.commit import MANIFEST, MAX_MANIFEST_BYTES
from raykit.store.segments import AnyRow, read_segment
from raykit.train.hold import patiently

SHOWN_CHARS = 60
"""So much of a value is shown."""


class Overlap:
    """The updates that attempt `mine` trains again. Shared between the threads that write rows and checkpoints."""

    def __init__(
        self,
        store: ObjectStore,
        state: RunState,
        mine: AttemptStarted,
        *,
        run: tuple[str, str],
        hold_s: float,
    ) -> None:
        """`state` is what the log says right after `mine` was written, `run` names experiment and run."""
        self._store = store
        self._mine = mine
        self._run = run
        self._hold_s = hold_s
        self._measured = measured(state)
        self._after = start_of(mine)
        segments = (event for event in state.events if isinstance(event, Segment))
        self._segments = [segment for segment in segments if segment.last > self._after]
        self._committed = {event.key: event.sha256 for event in state.events if isinstance(event, Commit)}
        self._attempts = {attempt.attempt: attempt for attempt in state.attempts}
        self._last = max((s.last for s in self._segments if s.series == "train"), default=self._after)
        self._read: dict[Series, tuple[Segment, Mapping[int, AnyRow]]] = {}
        self._counts = {"rows": 0, "evaluations": 0, "manifests": 0}
        self._against: int | None = None
        self._over = self._last <= self._after
        self._lock = threading.Lock()

    def rows(self, row: AnyRow) -> list[Compared]:
        """Compare one new row; the first difference, if it is that."""
        with self._lock:
            if self._over or row.update > self._last:
                return []
            earlier = patiently(partial(self._earlier, _series(row), row.update), hold_s=self._hold_s)
            return [] if earlier is None else self._hold(earlier, row)

    def manifest(self, manifest: Manifest) -> list[Compared]:
        """Compare one new checkpoint, whose rows are durable, with what earlier attempts have written of its update.

        The first one at the end of what was recorded, or beyond it, says what was compared.
        """
        with self._lock:
            if self._over:
                return []
            found = self._same_update(manifest) if self._after < manifest.update <= self._last else []
            return found or (self._all_equal() if manifest.update >= self._last else [])

    def close(self) -> list[Compared]:
        """What was compared without a difference by an attempt that ends before it is beyond all of it."""
        with self._lock:
            return [] if self._over else self._all_equal()

    # --- what was recorded ----------------------------------------------------------------------------------

    def _earlier(self, series: Series, update: int) -> AnyRow | None:
        """The row of the newest earlier attempt that has recorded this update."""
        held = self._read.get(series)
        fits = [s for s in self._segments if s.series == series and s.first <= update <= s.last]
        newest = max(fits, key=lambda segment: segment.attempt, default=None)
        if newest is None:
            return None
        if held is None or held[0] is not newest:
            # What is damaged there is for `raykit check`: it was superseded, and training does not end for it.
            held = self._read[series] = (newest, _by_update(self._store, newest))
        return held[1].get(update)

    def _same_update(self, manifest: Manifest) -> list[Compared]:
        for attempt in sorted(self._attempts.keys() - {self._mine.attempt}, reverse=True):
            key = layout.checkpoint(*self._run, manifest.update, attempt, MANIFEST)
            earlier = patiently(partial(self._bytes, key), hold_s=self._hold_s)
            if earlier is not None:
                found = _of_manifests(key, earlier, manifest, committed=key in self._committed)
                return self._held("manifests", attempt, _difference(manifest.update, found))
        return []

    def _bytes(self, key: str) -> bytes | None:
        """An earlier manifest; None if it was never written, or was damaged after its commit."""
        try:
            data = self._store.get(key, max_bytes=MAX_MANIFEST_BYTES)
        except (NotFoundError, CorruptError):
            return None
        return data if self._committed.get(key, sha256(data)) == sha256(data) else None

    # --- what is said ---------------------------------------------------------------------------------------

    def _hold(self, earlier: AnyRow, row: AnyRow) -> list[Compared]:
        kind = "rows" if isinstance(row, Row) else "evaluations"
        return self._held(kind, earlier.attempt, difference_of(earlier, row))

    def _held(self, kind: str, against: int, difference: FirstDifference | None) -> list[Compared]:
        """One more of a kind was compared; what is said of it, if it differs."""
        self._counts[kind] += 1
        self._against = against if self._against is None else max(against, self._against)
        return [] if difference is None else [self._said(against, difference)]

    def _all_equal(self) -> list[Compared]:
        self._over = True
        return [] if self._against is None else [self._said(self._against, None)]

    def _said(self, against: int, difference: FirstDifference | None) -> Compared:
        self._over = True
        return Compared(
            how="overlap",
            attempt=self._mine.attempt,
            against=against,
            first=self._after + 1,
            last=max(self._after + 1, self._last if difference is None else difference.update),
            difference=difference,
            lowers=None if difference is None else self._lowers(self._attempts[against]),
            rows=self._counts["rows"],
            evaluations=self._counts["evaluations"],
            manifests=self._counts["manifests"],
        )

    def _lowers(self, against: AttemptStarted) -> Exactness | None:
        """What a difference leaves, where both were to be equal; None where the resume had promised less."""
        source = None if self._mine.resume is None else self._mine.resume.attempt
        resumes = [self._mine.resume, None if against.attempt == source else against.resume]
        promised = least(self._measured, *(each.exactness for each in resumes if each is not None))
        same = against.attempt == source or alike(self._mine, against)
        return "inexact" if promised == "exact" and same else None


def difference_of(was: AnyRow, now: AnyRow) -> FirstDifference | None:
    """The first field in which two rows of one update differ, besides attempt and time; None if they are equal."""
    return _difference(now.update, next(_unequal(_bits(was), _bits(now), _prefix(now)), None))


def _difference(update: int, found: tuple[str, Any, Any] | None) -> FirstDifference | None:
    if found is None:
        return None
    what, was, now = found
    return FirstDifference(update=update, what=what, was=_shown(was), now=_shown(now))


def _by_update(store: ObjectStore, segment: Segment) -> Mapping[int, AnyRow]:
    """The rows of a segment; none of one that is damaged."""
    try:
        return {row.update: row for row in read_segment(store, segment)}
    except CorruptError:
        return {}


def _series(row: AnyRow) -> Series:
    return "train" if isinstance(row, Row) else "development" if isinstance(row, EvaluationRow) else "monitor"


def _prefix(row: AnyRow) -> str:
    return "" if isinstance(row, Row) else "development " if isinstance(row, EvaluationRow) else "monitor "


def _bits(row: Row | EvaluationRow | MonitorRow) -> dict[str, Any]:
    return {name: value for name, value in row.plain().items() if name not in SAME_BUT}


_LAST = ("contribution", "ratio", "loss", "best")
"""What follows from other fields: where they differ too, they say more."""


def _unequal(was: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, as `("terms.fit.value", 0.25, 0.5)`, those that follow from others last."""
    for name in sorted(
        was.keys() | now.keys(), key=lambda name: (name in _LAST, name not in ("terms", "metrics"), name)
    ):
        before, after = was.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = path if name == "metrics" else f"{path}{name}."
            yield from _unequal(before, after, inner)
        elif canonical(before) != canonical(after):
            yield f"{path}{name}", before, after


def _of_manifests(key: str, was: bytes, now: Manifest, *, committed: bool) -> tuple[str, Any, Any] | None:
    """The first difference of two checkpoints of one update. One that nobody committed is not parsed."""
    if was == now.to_bytes():
        return None
    if not committed:
        return MANIFEST, sha256(was)[:12], sha256(now.to_bytes())[:12]
    return _of_files(Manifest.from_bytes(was, key), now)


def _of_files(was: Manifest, now: Manifest) -> tuple[str, Any, Any] | None:
    """The first file of two checkpoints whose bytes differ; None if all are equal."""
    files = [{file.name: file.sha256 for file in manifest.files} for manifest in (was, now)]
    for name in sorted(files[0].keys() | files[1].keys(), key=lambda name: (name.startswith("rank-"), name)):
        before, after = (each.get(name, "absent") for each in files)
        if before != after:
            return name, before[:12], after[:12]
    return None


def _shown(value: Any) -> str:
    text = "absent" if value is None else value if isinstance(value, str) else canonical(value).decode()
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
