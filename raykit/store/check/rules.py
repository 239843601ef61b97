"""What a run's log may say, in which order. Pure.

The writers keep these rules by deciding against the log before each append (`raykit.reconcile`). Here they
are told once more, from the events alone, so that a mistake there shows here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from raykit import history
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Beat,
    Commit,
    GateResult,
    Launched,
    Record,
    Released,
    Segment,
    Series,
    StopRequested,
    Superseded,
)


class Broken(NamedTuple):
    """A rule that an event breaks."""

    invariant: str
    rule: str
    found: str


class RunRules:
    """Takes the events of one run's log in their order and tells what each of them breaks."""

    def __init__(self) -> None:
        self.attempts: list[AttemptStarted] = []
        self._owner: str | None = None
        self._ended: set[int] = set()
        self._completed = False
        self._spans: dict[Series, list[history.Span]] = {"train": [], "development": [], "monitor": []}
        self._commits: dict[tuple[int, int], str] = {}

    @property
    def rows(self) -> int:
        """The last durable training row of the lineage so far."""
        return self._last("train")

    def take(self, event: Record) -> Iterator[Broken]:
        """What `event` breaks, given all that were taken before it."""
        match event:
            case Launched():
                yield from self._after_completion("a launch")
                self._owner = event.launch
            case Beat() | StopRequested() | Released():
                yield from self._of_owner(event.launch, event.event)
                if isinstance(event, Released):
                    self._owner = None
            case AttemptStarted():
                yield from self._start(event)
            case GateResult():
                if not self.attempts or self.attempts[-1].attempt in self._ended:
                    yield Broken("I4", "a gate result is of a running attempt", f"gate {event.gate} of none")
            case Segment():
                yield from self._of_attempt(event.attempt, "rows")
                yield from self._rows(event)
            case Commit():
                yield from self._of_attempt(event.attempt, "a checkpoint")
                yield from self._commit(event)
            case Superseded():
                yield from self._supersede(event)
            case AttemptEnded():
                if event.attempt not in {a.attempt for a in self.attempts} - self._ended:
                    yield Broken(
                        "I4", "an attempt ends once, after it began", f"end of attempt {event.attempt}"
                    )
                self._ended.add(event.attempt)
                self._completed |= event.reason == "completed"

    def _last(self, series: Series) -> int:
        spans = self._spans[series]
        return spans[-1].last if spans else 0

    def _after_completion(self, what: str) -> Iterator[Broken]:
        if self._completed:
            yield Broken("I11", "a completed run is left alone", f"{what} after its completion")

    def _of_owner(self, launch: str, what: str) -> Iterator[Broken]:
        if launch != self._owner:
            yield Broken(
                "I4", "only the launch that owns the run writes", f"{what} of {launch}, not {self._owner}"
            )

    def _of_attempt(self, attempt: int, what: str) -> Iterator[Broken]:
        newest = self.attempts[-1] if self.attempts else None
        if newest is None or newest.attempt != attempt or attempt in self._ended:
            yield Broken("I4", "only the newest, unended attempt writes", f"{what} of attempt {attempt}")
        else:
            yield from self._of_owner(newest.launch, what)

    def _start(self, event: AttemptStarted) -> Iterator[Broken]:
        yield from self._after_completion("an attempt")
        yield from self._of_owner(event.launch, f"attempt {event.attempt}")
        if event.attempt != len(self.attempts) + 1:
            yield Broken(
                "I4", "attempts are numbered without holes", f"attempt {event.attempt} is out of place"
            )
        if len(self._ended) < len(self.attempts):
            yield Broken("I4", "an attempt ends before the next begins", f"attempt {event.attempt} begins")
        if event.lease is None and any(attempt.lease is not None for attempt in self.attempts):
            found = f"attempt {event.attempt} names no lease, as those before it do"
            yield Broken("I6", "nothing starts without a durable reservation", found)
        receipt = event.resume
        if receipt is not None:
            made = self._commits.get((receipt.update, receipt.attempt))
            if made != receipt.manifest_sha256:
                found = f"attempt {event.attempt} resumes from update {receipt.update} of {receipt.attempt}"
                yield Broken("I1", "a resume starts from a commit of this log", found)
        self.attempts.append(event)

    def _rows(self, event: Segment) -> Iterator[Broken]:
        last = self._last(event.series)
        if event.series == "train":
            wrong = history.out_of_place(last, event)
            if wrong is not None:
                yield Broken("I4", "history rows are exactly 1 to N", wrong)
        elif self._spans[event.series] and event.first <= last:
            found = f"{event.series} has update {event.first} twice"
            yield Broken("I4", "an update is evaluated once", found)
        self._spans[event.series].append(history.Span(segment=event, first=event.first, last=event.last))

    def _commit(self, event: Commit) -> Iterator[Broken]:
        if event.update > self.rows:
            found = f"update {event.update} is committed, the history ends at {self.rows}"
            yield Broken("I4", "history is durable through a commit", found)
        newest = max((update for update, _ in self._commits), default=-1)
        if event.update <= newest:
            found = f"update {event.update} is committed after update {newest}"
            yield Broken("I1", "commits go forward", found)
        self._commits[event.update, event.attempt] = event.sha256

    def _supersede(self, event: Superseded) -> Iterator[Broken]:
        wrong = history.not_a_tail(self.rows, event)
        if wrong is not None:
            yield Broken("I4", "only a tail is superseded", wrong)
        self._spans = {series: history.cut(spans, event) for series, spans in self._spans.items()}
        self._commits = _before(self._commits, event.from_)


def _before(commits: Mapping[tuple[int, int], str], update: int) -> dict[tuple[int, int], str]:
    return {key: digest for key, digest in commits.items() if key[0] < update}
