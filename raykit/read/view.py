"""One run as people look at it: a state, a health that is told apart from it, and figures.

Nothing is read here: `raykit.read.seen` fills these in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from raykit.exactness import DECLARED, Class, Fall
from raykit.pauses import FleetState, InForce, Role
from raykit.plan import Lock
from raykit.read.money import Money
from raykit.read.qc import QcRead
from raykit.records import (
    AttemptEnded,
    Cancelled,
    Commit,
    Compared,
    End,
    GateResult,
    Harmless,
    Paused,
    Place,
    Resumed,
    ResumeReceipt,
)

if TYPE_CHECKING:
    from raykit.read.setview import SetRead

State = (
    Literal["not started", "starting", "running", "stopping", "stopped", "paused", "failed", "completed"]
    | Literal["corrupt"]
    | End
)
"""What the log says of a run. `stopped`: its launch ended, or was last heard too long ago, without a word. A trial's
is that of its row: once it has an end, that."""

Health = Literal["ok", "nonfinite", "undefined", "collapsed", "silent", "corrupt", "unknown"]
"""What its rows and checkpoints say, whatever the state: a completed run is healthy only if they are. `undefined`: the
metric that selects has no value."""

OVER: frozenset[State] = frozenset(
    {"completed", "corrupt", *(end for end in get_args(End) if end != "failed")}
)
"""Of runs that nobody can go on with. One that failed may be repaired, unless it is a trial."""

LIVE: frozenset[State] = frozenset({"starting", "running", "stopping"})
MAIN = "main"
"""The run of a plan that is not a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    """One gang of workers, from its start to its end."""

    attempt: int
    launch: str
    place: Place
    started_at: float
    ended: AttemptEnded | None
    resume: ResumeReceipt | None
    exactness: Class = DECLARED
    """Of its start, as everything known today leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """One checkpoint; `counts` is False once a resume has started before it."""

    commit: Commit
    at: float
    counts: bool
    exactness: Class = DECLARED
    """As everything known today leaves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Development:
    """The newest evaluation: the metric that selects, or else the first one."""

    metric: str
    value: float | None
    update: int
    best: bool
    """No evaluation so far was better by the rule that selects."""
    count: tuple[int, int] | None = None
    """How many rows gave a number for it, of how many; None where all did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the newest rows say."""

    ratio: float | None = None
    update_s: float | None = None
    """Seconds per update, of late."""
    development: Development | None = None
    health: Health = "unknown"
    health_detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseView:
    """One pause that concerned a run, from the request to its end."""

    pause: Paused
    at: float
    resumed: Resumed | None = None
    resumed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """What people want of a run, and whether it is that far."""

    state: FleetState | None = None
    """None if nothing runs, and nothing keeps it from running."""
    pause: InForce | None = None
    """The pause in force, the narrowest first."""
    cancelled: Cancelled | None = None
    pauses: Sequence[PauseView] = ()
    """All pauses so far, oldest first."""
    harmless: Sequence[Harmless] = ()
    """State outside of checkpoints that does not matter, as people say."""

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        return {
            "state": self.state,
            "pause": self.pause and {**self.pause.pause.plain(), "at": self.pause.at},
            "cancelled": self.cancelled and self.cancelled.plain(),
            "pauses": [
                {
                    **past.pause.plain(),
                    "at": past.at,
                    "resumed_at": past.resumed_at,
                    "resumed_by": past.resumed and past.resumed.person,
                    "cleared": past.resumed and past.resumed.cleared,
                }
                for past in self.pauses
            ],
            "harmless": [said.plain() for said in self.harmless],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run at one moment."""

    experiment: str
    run: str
    state: State
    detail: str | None = None
    """Why it is in that state, where somebody has said so."""
    holder: Place | None = None
    """The process that has the run, while one has it."""
    launch: str | None = None
    """The newest launch, whether or not it still has the run."""
    workers: int = 0
    """The ranks of the newest attempt."""
    update: int = 0
    """The last update whose row is durable."""
    updates: int | None = None
    """The updates that the plan asks for."""
    figures: Figures = field(default_factory=Figures)
    heard_at: float | None = None
    """When something was last written to its log."""
    attempts: Sequence[AttemptView] = ()
    commits: Sequence[CommitView] = ()
    gates: Sequence[GateResult] = ()
    exactness: Class | None = None
    """How much it is the run that was never interrupted; None before its first attempt."""
    falls: Sequence[Fall] = ()
    """What has lowered that."""
    compared: Sequence[Compared] = ()
    """What was trained twice, and held against each other."""
    not_replayed: str | None = None
    """Why no other process has trained a part of it again; None if one has, or nothing was trained."""
    superseded: int = 0
    """Updates that were recorded and later superseded."""
    lock: Lock | None = None
    """The lock of the plan that it runs, or is to run."""
    fleet: FleetView = field(default_factory=FleetView)
    money: Money | None = None
    """None if it has no budget yet."""
    qc: QcRead | None = None
    """How far its examinations are; None if its plan has no `[qc]`."""
    sets: Sequence[SetRead] = ()
    """The synthetic sets of its plan, and all that have a contract."""

    @property
    def id(self) -> str:
        """`experiment/run`."""
        return f"{self.experiment}/{self.run}"

    @property
    def row(self) -> int | None:
        """The row of its search's table, of a trial."""
        return trial_row(self.run)

    @property
    def role(self) -> Role:
        """By which pauses reach it."""
        return "train" if self.row is None else "search"

    @property
    def over(self) -> bool:
        """Nobody can go on with it: it has trained to its end, cannot be read, or is a trial whose row has ended."""
        return self.state in OVER or (self.state == "failed" and self.row is not None)

    @property
    def row_end(self) -> End | None:
        """How its search has ended its row, of a trial."""
        return row_end_of(self.state) if self.row is not None else None

    def end_word(self, ended: AttemptEnded) -> str:
        """How an attempt ended, in words: the last one of a trial that was stopped, by what its row says."""
        last = bool(self.attempts) and ended.attempt == self.attempts[-1].attempt
        return ended_word(ended.reason, self.row_end, last=last)

    @property
    def complete(self) -> bool:
        """It has trained to its end, and all that had to be examined was examined and reviewed by a person."""
        return self.state == "completed" and (self.qc is None or self.qc.backlog.complete)

    @property
    def health(self) -> Health:
        return self.figures.health

    @property
    def ratio(self) -> float | None:
        """The ratio of the main term at `update`: 1.0 is no skill."""
        return self.figures.ratio

    @property
    def committed(self) -> Commit | None:
        """The newest checkpoint that counts."""
        return next((view.commit for view in reversed(self.commits) if view.counts), None)

    def plain(self) -> dict[str, Any]:
        """The view as JSON values."""
        figures, development = self.figures, self.figures.development
        return {
            "id": self.id,
            "experiment": self.experiment,
            "run": self.run,
            "state": self.state,
            "complete": self.complete,
            "detail": self.detail,
            "health": figures.health,
            "health_detail": figures.health_detail,
            "holder": self.holder and self.holder.plain(),
            "update": self.update,
            "updates": self.updates,
            "update_s": figures.update_s,
            "ratio": figures.ratio,
            "development": development
            and {
                "metric": development.metric,
                "value": development.value,
                "update": development.update,
                "best": development.best,
                **({} if development.count is None else {"count": list(development.count)}),
            },
            "heard_at": self.heard_at,
            "attempts": [_plain_attempt(attempt) for attempt in self.attempts],
            "commits": [_plain_commit(view) for view in self.commits],
            "gates": [gate.plain() for gate in self.gates],
            "exactness": self.exactness and _plain_class(self.exactness),
            "falls": [{"update": fall.update, "to": fall.to, "words": fall.words} for fall in self.falls],
            "compared": [event.plain() for event in self.compared],
            "not_replayed": self.not_replayed,
            "superseded": self.superseded,
            "plan": self.lock and self.lock.digest,
            "fleet": self.fleet.plain(),
            "money": self.money and self.money.plain(),
            "qc": self.qc
            and {**self.qc.counts(), "oldest_s": self.qc.oldest_s, "complete": self.qc.backlog.complete},
            "sets": [each.brief() for each in self.sets],
        }


def trial_row(run: str) -> int | None:
    """The row that a run is of its search's table; None if it is no trial."""
    if run == MAIN:
        return None
    # Here, because it needs numpy: who searches nothing does without.
    from raykit.search.table import row_of

    return row_of(run)


def row_end_of(status: str) -> End | None:
    """The end that a row's status is; None of a row that has none."""
    return next((end for end in get_args(End) if end == status), None)


def ended_word(reason: str, row_end: End | None, *, last: bool) -> str:
    """How a launch or an attempt ended, whose log says `reason`: `paused` is all that the log of a stopped trial knows.

    `last` says that none of its run came after it, and `row_end` how the row of that run has ended.
    """
    if reason != "paused" or not last or row_end is None:
        return reason
    return "stopped by the scheduler" if row_end == "stopped-by-scheduler" else "stopped"


def _plain_attempt(view: AttemptView) -> dict[str, Any]:
    return {
        "attempt": view.attempt,
        "launch": view.launch,
        "place": view.place.plain(),
        "started_at": view.started_at,
        "ended": view.ended and view.ended.plain(),
        "resume": view.resume and view.resume.plain(),
        "class": _plain_class(view.exactness),
    }


def _plain_commit(view: CommitView) -> dict[str, Any]:
    own = {"at": view.at, "counts": view.counts, "class": _plain_class(view.exactness)}
    return {**view.commit.plain(), **own}


def _plain_class(found: Class) -> dict[str, Any]:
    return {"exactness": found.exactness, "rests_on": found.basis, "words": found.words}
