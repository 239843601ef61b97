"""One run: its record, its log, and everything that the log names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from raykit.errors import CorruptError, NotFoundError
from raykit.reconcile import RunState, fold
from raykit.records import AttemptStarted, Commit, Launched, Locked, Record, RunEntry, RunRecord, Segment
from raykit.search.table import row_of
from raykit.store import layout
from raykit.store.check.logs import ReadLog, read_log
from raykit.store.check.rules import RunRules
from raykit.store.check.view import View
from raykit.store.commit import MANIFEST, folder_of, verify
from raykit.store.segments import read_segment


class Started(NamedTuple):
    """An attempt, and the key of the log entry that started it."""

    experiment: str
    key: str
    attempt: AttemptStarted


class Looked(NamedTuple):
    """What the log of a run names."""

    started: list[Started]
    commits: list[Commit] | None
    """Superseded or not; None if the log is not whole."""
    trial: TrialRun | None
    """Of the run of a search's row."""


class TrialRun(NamedTuple):
    """The run of a row: what it is of, and what its log leads to."""

    record: RunRecord | None
    state: RunState | None
    """None if the log is not whole."""
    launches: tuple[tuple[str, str], ...]
    """Every launch that took it, with the key of the entry that says so."""


def check_run(view: View, experiment: str, run: str, locked: Sequence[Locked] | None) -> Looked:
    """Look at one run, and tell what it names. `locked` is None where the experiment's log is not whole."""
    return _Run(view, experiment, run, locked).check()


class _Run:
    def __init__(self, view: View, experiment: str, run: str, locked: Sequence[Locked] | None) -> None:
        self._view = view
        self._experiment = experiment
        self._run = run
        self._locked = locked

    def check(self) -> Looked:
        view = self._view
        view.counts["runs"] += 1
        log = read_log(view, layout.run_log(self._experiment, self._run), RunEntry)
        record = self._record(started=bool(log.entries))
        rules = RunRules()
        for key, event in log.events():
            if log.whole:
                for broken in rules.take(event):
                    view.find(key, broken.rule, broken.found, broken.invariant)
            self._event(key, event)
        if log.whole:
            view.counts["rows"] += rules.rows
            self._strangers({attempt.attempt for attempt in rules.attempts})
        events = list(log.events())
        return Looked(
            [
                Started(self._experiment, key, event)
                for key, event in events
                if isinstance(event, AttemptStarted)
            ],
            [event for _, event in events if isinstance(event, Commit)] if log.whole else None,
            None if row_of(self._run) is None else _trial(record, log),
        )

    def _record(self, *, started: bool) -> RunRecord | None:
        view, key = self._view, layout.run_record(self._experiment, self._run)
        if key not in view.sizes:
            if started:
                view.missing(key, "a run says what it is of", "I1")
            return None
        view.name([key])
        data = view.get(key)
        try:
            record = RunRecord.from_bytes(data, key)
            if record.to_bytes() != data:
                raise CorruptError(f"{key} is not written as raykit writes it")
        except CorruptError as error:
            view.find(key, "a run's record", error.message, "I2")
            return None
        if (record.experiment, record.run) != (self._experiment, self._run):
            view.find(key, "a run's record is its own", f"it is of {record.experiment}/{record.run}", "I2")
        own = (
            set() if record.setting is None else {"contract"}
        )  # a trial's contract is that of its own setting
        bound = record.model_dump(exclude={"schema_", "experiment", "run", "setting", *own})
        if self._locked is not None and bound not in [
            event.model_dump(exclude={"event", *own}) for event in self._locked
        ]:
            found = "the experiment's log locks no such plan"
            view.find(key, "a run is of a plan that was locked", found, "I14")
        return record

    def _event(self, key: str, event: Record) -> None:
        match event:
            case AttemptStarted():
                if self._locked is not None and event.plan not in [lock.plan for lock in self._locked]:
                    found = f"attempt {event.attempt} is of plan {event.plan[:12]}"
                    self._view.find(key, "an attempt is of a plan that was locked", found, "I14")
            case Segment():
                place = layout.segment(
                    self._experiment, self._run, event.attempt, event.series, event.first, event.last
                )
                if self._in_place(key, event.key, place):
                    self._segment(event)
            case Commit():
                place = layout.checkpoint(self._experiment, self._run, event.update, event.attempt, MANIFEST)
                if self._in_place(key, event.key, place):
                    self._commit(event)

    def _in_place(self, key: str, named: str, place: str) -> bool:
        if named == place:
            return True
        self._view.find(key, "an event names its own objects", f"it names {named}, not {place}", "I1")
        return False

    def _segment(self, event: Segment) -> None:
        view = self._view
        view.counts["segments"] += 1
        if view.missing(event.key, "a segment that the log names is there", "I10"):
            return
        if not view.read_data:
            if view.size(event.key) != event.size_bytes:
                found = f"{event.key} is {view.size(event.key)} bytes long, not {event.size_bytes}"
                view.find(event.key, "a segment has the size that the log says", found, "I4")
            return
        try:
            read_segment(view.store, event)
        except CorruptError as error:
            view.find(event.key, "a segment is what the log says", error.message, "I4")
        view.progress(event.size_bytes)

    def _commit(self, event: Commit) -> None:
        view = self._view
        view.counts["commits"] += 1
        files = view.folders[folder_of(event)]
        view.name(files)
        try:
            verify(view.store, event, read_data=view.read_data)
        except (CorruptError, NotFoundError) as error:
            view.find(event.key, "a checkpoint is exactly the files of its manifest", error.message, "I1")
        view.progress(sum(view.sizes[key] for key in files))

    def _strangers(self, attempts: Iterable[int]) -> None:
        """Objects of an attempt that the log does not know: the log has lost its end."""
        log = layout.run_log(self._experiment, self._run)
        known = set(attempts)
        for attempt, count in sorted(self._view.attempts[self._experiment, self._run].items()):
            if attempt not in known:
                found = f"{count} objects of attempt {attempt}, which is not in the log"
                self._view.find(log, "an attempt is in the log before it writes", found, "I10")


def _trial(record: RunRecord | None, log: ReadLog[RunEntry]) -> TrialRun:
    state = fold(entry for _, entry in log.entries) if log.whole else None
    launches = tuple((key, event.launch) for key, event in log.events() if isinstance(event, Launched))
    return TrialRun(record, state, launches)
