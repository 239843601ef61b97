"""A replay: another process restores a checkpoint, trains through the next one, and holds itself against the record.

    python -m raykit.train.replay      what it is to do comes as one line of JSON on its standard input. That stays
                                       open: once it closes, whoever asked is gone, and this process ends

Everything is made as a resume would make it. Nothing is written to the run: rank 0 leaves what it found in a file, and
whoever asked puts it into the run's log.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from raykit import history
from raykit.data.members import compare
from raykit.errors import ExactnessError, GateError, RaykitError
from raykit.ids import canonical
from raykit.records import (
    AttemptStarted,
    Cause,
    Commit,
    Compared,
    EndReason,
    EvaluationRow,
    FirstDifference,
    Manifest,
    MonitorRow,
    Series,
)
from raykit.replays import Span
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.commit import Good, read_file, verify
from raykit.store.log import RunLog
from raykit.store.scratch import scratch
from raykit.store.segments import AnyRow, read_segment
from raykit.train import facts
from raykit.train.build import set_up_process
from raykit.train.gang import Gang
from raykit.train.inputs import Inputs, Task, read_inputs
from raykit.train.loop import Loop
from raykit.train.overlap import difference_of
from raykit.train.parts import Parts
from raykit.train.replicas import require_one_replica
from raykit.train.rows import Figures
from raykit.train.saver import Reason
from raykit.train.state import STATE, Capture, Live, format_of
from raykit.train.step import Asked
from raykit.train.surroundings import stay_inside
from raykit.train.worlds import Worlds


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one rank of a replay is told. JSON all through."""

    task: dict[str, Any]
    span: dict[str, int]
    attempt: int
    """Which the run had reached."""
    rank: int
    world: int
    device: str
    meeting: str | None
    """Where the ranks meet; None if there is one."""
    timeout_s: float
    answer: str
    """The file that rank 0 leaves."""

    def line(self) -> str:
        return json.dumps(asdict(self))


def replay(
    store: ObjectStore, task: Task, span: Span, gang: Gang, inputs: Inputs, *, attempt: int
) -> Compared:
    """Train a part of a run again and compare it; the same answer on every rank.

    Raises:
        ExactnessError: this process is not like those that trained it.
        GateError: what is restored is not what was saved, or training cannot go on.
        CorruptError: stored bytes do not match their digests.
        StoreUnavailableError: the store did not answer.
    """
    set_up_process(inputs.plan, gang.device)
    log = RunLog(store, task.experiment, task.run, by="replay")
    log.refresh()
    state = log.state
    gang.all_agree(lambda: _require_alike(_made_by(state.attempts, span), gang, inputs))
    commits = [commit for commit in state.commits if span.after <= commit.update <= span.last]
    manifests = {commit.update: verify(store, commit) for commit in commits}
    now = _train(store, span, gang, inputs, commits, manifests)
    found = _Found(span)
    for series in ("train", "development", "monitor"):
        found.hold(series, list(recorded(store, state.events, series, span)), now.rows.get(series, {}))
    for rank in range(gang.world):  # each has files of its own
        found.files(gang.share(now.unequal, by=rank))
    first = gang.share(None if (one := found.first()) is None else one.plain())
    if now.failed is not None and first is None:
        raise now.failed
    return Compared(
        how="replay",
        attempt=attempt,
        against=span.attempt,
        first=span.after + 1,
        last=span.last,
        rows=found.rows,
        evaluations=found.evaluations,
        manifests=now.manifests,
        difference=None if first is None else FirstDifference.from_bytes(canonical(first), "difference"),
        lowers=None if first is None else "inexact",
    )


def _made_by(attempts: Sequence[AttemptStarted], span: Span) -> AttemptStarted:
    return next(attempt for attempt in attempts if attempt.attempt == span.attempt)


def _require_alike(made_by: AttemptStarted, gang: Gang, inputs: Inputs) -> None:
    """Let only a process go on that has all that the run's own had.

    Raises:
        ExactnessError: it has not.
    """
    here = {**facts.here(gang, inputs.plan.run.threads), **inputs.outside}
    if dict(made_by.facts) != here:  # one that was not recorded, too: an older raykit trained it
        differing = ", ".join(each.what for each in facts.of_facts(made_by.facts, here))
        raise ExactnessError(
            f"it would not be trained as it was: {differing}", rule="the facts of the attempt"
        )
    other = compare(inputs.membership, inputs.source)
    if other is not None:
        raise ExactnessError(f"the data are others: {other}", rule="the stored members")


def recorded(store: ObjectStore, events: Sequence[object], series: Series, span: Span) -> Iterator[AnyRow]:
    """The rows of a part of a run that count.

    Raises:
        CorruptError: one of their segments is missing or changed.
        StoreUnavailableError: the store did not answer.
    """
    for each in history.lineage(events, series):
        first, last = max(each.first, span.after + 1), min(each.last, span.last)
        if first <= last:
            yield from (row for row in read_segment(store, each.segment) if first <= row.update <= last)


# --- training it again ----------------------------------------------------------------------------------------


def _train(
    store: ObjectStore,
    span: Span,
    gang: Gang,
    inputs: Inputs,
    commits: Sequence[Commit],
    manifests: Mapping[int, Manifest],
) -> _Now:
    parts = Parts.of(store, inputs, gang)
    built = parts.build(inputs.recipe)
    with Worlds(parts).warming() as warm_up:
        warm_up(built)
    now = _Now(gang, manifests, _format(store, commits[0], manifests[span.after]))
    good = Good(commit=commits[0], manifest=manifests[span.after], passed_over=())
    try:
        parts.restore(built, good, now.capture, "exact")
    except (
        GateError
    ) as error:  # not what was saved, in this process: that is a difference, and is named as one
        now.failed = error
        now.compare(span.after)
        return now
    rows = _Kept(now.rows, parts.row_maker(span.attempt)) if gang.leads else None
    loop = Loop(
        plan=inputs.plan,
        recipe=inputs.recipe,
        gang=gang,
        built=built,
        attempt=span.attempt,
        begins=False,
        saver=now,
        rows=rows,
        watch=None,
        directive=_AsThen(span, frozenset(manifests)),
        micro_batches=parts.micro_batches(span.after),
        development=parts.development(),
        first_batch=parts.first_batch,
    )
    try:
        loop.run()
    except GateError as error:
        now.failed = error  # what is not finite now and was then is a difference, and is named as one
    return now


def _format(store: ObjectStore, commit: Commit, manifest: Manifest) -> int:
    files = (file for file in manifest.files if file.name == STATE)
    return format_of({file.name: read_file(store, commit, file) for file in files})


class _Now:
    """What came of training it again: what a run hands to its saver is compared, and kept nowhere."""

    def __init__(self, gang: Gang, manifests: Mapping[int, Manifest], format: int) -> None:
        """`format` is that of the checkpoints: one that was made by an older raykit is compared as it was made."""
        self.capture = Capture(rank=gang.rank, pin=False)
        self._gang = gang
        self._format = format
        self.rows: dict[Series, dict[int, AnyRow]] = {}
        self.unequal: list[list[Any]] = []
        """`[update, file, its digest in the checkpoint, its digest now]` of each file of this rank that differs."""
        self.manifests = 0
        self.failed: GateError | None = None
        self._manifests = manifests

    def save(self, live: Live, reason: Reason) -> None:
        """Compare what a checkpoint would hold with the one that was made here."""
        if self._gang.world > 1:
            self.capture.parted = require_one_replica(live, self._gang)
        self.capture.take(live, format=self._format)
        if live.progress.update in self._manifests:
            self.compare(live.progress.update)
            self.manifests += 1

    def compare(self, update: int) -> None:
        """Compare what was captured with the checkpoint at `update`."""
        manifest = self._manifests[update]
        was = {file.name: file.sha256 for file in manifest.files}
        for name, digest in sorted(self.capture.digests().items()):
            if was.get(name) != digest:
                self.unequal.append([update, name, was.get(name, "absent")[:12], digest[:12]])

    def drain(self) -> None:
        """Nothing is ever in flight."""

    def check(self) -> None:
        """Nothing can have failed."""


@dataclass(slots=True)
class _Kept:
    """Keeps rows in memory."""

    rows: dict[Series, dict[int, AnyRow]]
    make_row: Any

    def add(self, figures: Figures) -> None:
        self.rows.setdefault("train", {})[figures.update] = self.make_row(figures)

    def add_row(self, row: EvaluationRow | MonitorRow) -> None:
        series: Series = "development" if isinstance(row, EvaluationRow) else "monitor"
        self.rows.setdefault(series, {})[row.update] = row

    def check(self) -> None:
        """Nothing can have failed."""


@dataclass(slots=True)
class _AsThen:
    """Saves where the run has saved, and stops behind the last update."""

    span: Span
    saved_at: frozenset[int]
    why: str | None = "replayed"
    reason: EndReason = "paused"
    cause: Cause | None = None
    update: int = field(init=False)

    def __post_init__(self) -> None:
        self.update = self.span.after

    def ask(self) -> Asked:
        self.update += 1
        return Asked(stop=self.update >= self.span.last, save=self.update in self.saved_at)

    def working(self) -> None:
        """Nobody counts the time."""

    def saved(self) -> None:
        """Nothing was saved."""


# --- comparing ------------------------------------------------------------------------------------------------


class _Found:
    """The differences of a replay, the first one first."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._all: list[tuple[int, int, FirstDifference]] = []
        self.rows = 0
        self.evaluations = 0

    def hold(self, series: Series, was: Sequence[AnyRow], now: Mapping[int, AnyRow]) -> None:
        """Compare the rows of one series, as far as both are there."""
        both = [(row, now[row.update]) for row in was if row.update in now]
        if series == "train":
            self.rows += len(both)
        else:
            self.evaluations += len(both)
        rank = ("train", "development", "monitor").index(series)
        for one, other in both:
            if (unequal := difference_of(one, other)) is not None:
                self._all.append((one.update, rank, unequal))

    def files(self, unequal: Sequence[Sequence[Any]]) -> None:
        """Take what differs in the files of one rank."""
        for update, name, was, now in unequal:
            self._all.append((update, 3, FirstDifference(update=update, what=name, was=was, now=now)))

    def first(self) -> FirstDifference | None:
        return min(self._all, key=lambda each: each[:2])[2] if self._all else None


# --- the process ----------------------------------------------------------------------------------------------


def main() -> int:
    """Do what standard input says; returns the exit code."""
    order = Order(**json.loads(sys.stdin.readline()))
    stay_inside()
    threading.Thread(target=_end_with_the_asker, name="raykit-asker", daemon=True).start()
    try:
        found = _run(order)
    except RaykitError as error:
        print(f"{error.kind}: {error}", flush=True)
        return error.exit_code
    if order.rank == 0:
        Path(order.answer).write_bytes(found.to_bytes())
    return 0


def _run(order: Order) -> Compared:
    gang, task = _join(order), Task.of(order.task)
    store = open_store(task.root)
    with scratch("code") as folder:
        inputs = read_inputs(store, task, folder)
        return replay(store, task, Span(**order.span), gang, inputs, attempt=order.attempt)


def _join(order: Order) -> Gang:
    device = torch.device(order.device)
    if order.world > 1:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=order.meeting,
            rank=order.rank,
            world_size=order.world,
            timeout=timedelta(seconds=order.timeout_s),
        )
    return Gang(rank=order.rank, world=order.world, device=device)


def _end_with_the_asker() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
