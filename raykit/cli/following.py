"""Everyone whom a pause concerns, followed to their boundaries from the store alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raykit.cli import output
from raykit.errors import NotFoundError

if TYPE_CHECKING:
    from raykit.pauses import InForce
    from raykit.read import Root as ReadRoot
    from raykit.read import RunView
    from raykit.read.money import Ledgers
    from raykit.read.search import SearchRead
    from raykit.read.working import Working
    from raykit.store.log import RunLog

LOOK_EVERY_S = 0.25
SETTLE_S = 30.0
"""How long a launch that has let go is waited for until it has settled."""


@dataclass(slots=True)
class Stopping:
    """One run on its way to its boundary, followed in its log alone."""

    view: RunView
    log: RunLog
    said: int = 0
    """How many of the log's entries have been told of."""
    lost: int | None = None
    """Updates that were trained after the boundary, once it is reached."""
    released_at: float | None = None
    """When its launch let go, by this process's own clock; it then ends its Ray and settles."""
    after_s: float | None = None
    """How long after the request it had let go."""
    overdue: bool = False

    @property
    def state(self) -> str:
        """How far it is: `requested`, `draining`, `paused` with its boundary, or `overdue`."""
        if self.lost is not None:
            return "paused"
        stopping = self.log.state.stop is not None and self.log.state.released is None
        return "overdue" if self.overdue else "draining" if stopping else "requested"


@dataclass(slots=True)
class Beside:
    """Who has something in hand beside training, on the way to a boundary."""

    working: Working
    boundary: str | None = None
    """Which one it has reached; None until then."""
    after_s: float | None = None
    """How long after the request that was seen."""
    overdue: bool = False

    @property
    def state(self) -> str:
        """How far it is: `draining`, `paused` with its boundary, or `overdue`."""
        if self.boundary is not None:
            return "paused"
        return "overdue" if self.overdue else "draining"


@dataclass(slots=True)
class Following:
    """Everyone whom a pause concerns, until each is paused with its boundary."""

    found: ReadRoot
    scope: str
    quiet: bool
    holds: InForce | None = None
    names: list[str] = field(default_factory=list)
    """The experiments that are concerned, at work or not."""
    open: list[Stopping] = field(default_factory=list)
    done: list[Stopping] = field(default_factory=list)
    workers: list[Beside] = field(default_factory=list)
    """Who else is concerned and has something in hand: at QC, at synthetic sets, or driving a search."""
    ledgers: Ledgers = field(init=False)

    def __post_init__(self) -> None:
        from raykit.read.money import Ledgers

        self.ledgers = Ledgers(self.found.store)

    def say(self, at: float, name: str, text: str) -> None:
        if not self.quiet:
            output.print_lines([f"  {output.clock(at)}  {name}  {text}"])

    def look_around(self) -> None:
        """Which runs are concerned, and which of them are at work."""
        from raykit.store.log import RunLog

        runs, searches = self.found.runs(trials=False), self.found.searches()
        self._take_in(runs, searches)
        trials = [view for read in searches for view in _trials(self.found, read)]
        views = [view for view in (*runs, *trials) if _concerns(view, self.scope)]
        concerned = {read.experiment for read in searches if _concerns_search(read, self.scope)}
        self.names = sorted({view.experiment for view in views} | concerned)
        for view in views:
            if view.holder is not None:
                log = RunLog(self.found.store, view.experiment, view.run, by="reader")
                self.open.append(Stopping(view=view, log=log, said=len(log.refresh())))

    def _take_in(self, runs: Sequence[RunView], searches: Sequence[SearchRead]) -> list[Beside]:
        """Follow everyone else who has something in hand now, too; those that were not followed before."""
        from raykit.read.working import working

        known = {each.working.id for each in self.workers}
        at_work = working(self.found.store, runs, searches, self.scope)
        new = [Beside(working=each) for each in at_work if each.id not in known]
        self.workers += new
        return new

    def _late(self) -> bool:
        """Whether somebody took something in hand just before the pause could be heard; that is followed, too."""
        new = self._take_in(self.found.runs(trials=False), self.found.searches())
        self._tell_of(new)
        return bool(new)

    def _tell_of(self, workers: Sequence[Beside]) -> None:
        for each in workers:
            found = each.working
            self.say(time.time(), found.of, f"{found.who} {found.does}")

    def begin(self, holds: InForce, *, new: bool) -> None:
        """Who asked and when, and what is at work."""
        self.holds, pause = holds, holds.pause
        asked = "requested" if new else "was requested already"
        self.say(
            holds.at, self.scope.removeprefix("experiment:"), f"{asked} by {pause.person}: {pause.reason}"
        )
        for run in self.open:
            view = run.view
            workers = f"{view.workers} of {view.workers} workers" if view.workers else "its launch"
            update = output.count(view.update)
            self.say(time.time(), run_name(view), f"{workers} at update {update}, to commit at the next")
        self._tell_of(self.workers)

    @property
    def asked_at(self) -> float:
        """When the pause that holds was asked for."""
        assert self.holds is not None
        return self.holds.at

    def until(self, deadline: float) -> None:
        """Tell what happens until everyone is paused, or until `deadline`."""
        while self.waits() or self._late():
            for run in list(self.open):
                if (run.lost is not None or not self._look(run)) and self._settled(run):
                    self._end(run)
            for each in self.workers:
                if each.boundary is None:
                    self._look_beside(each)
            if not self.waits():
                continue
            if time.monotonic() >= deadline:
                for run in [run for run in self.open if run.lost is not None]:
                    self._end(run)
                return
            time.sleep(LOOK_EVERY_S)

    def waits(self) -> bool:
        """Whether somebody has not reached a boundary yet."""
        return bool(self.open) or any(each.boundary is None for each in self.workers)

    def _look_beside(self, each: Beside) -> None:
        """Tell what has become of what a worker had in hand."""
        from raykit.pauses import OVERDUE_S

        found, now = each.working, time.time()
        each.boundary = found.boundary(self.found.store)
        since = max(0.0, now - self.asked_at)
        if each.boundary is not None:
            each.after_s = since
            self.say(
                now, found.of, f"{found.who} is paused: {each.boundary}   after {output.duration(since)}"
            )
        elif not each.overdue and since > OVERDUE_S:
            each.overdue = True
            self.say(now, found.of, f"{found.who} is overdue: no boundary for {output.duration(since)}")

    def _end(self, run: Stopping) -> None:
        self.open.remove(run)
        self.done.append(run)

    def _settled(self, run: Stopping) -> bool:
        """Has a launch that let go said what it has cost? Of one that was killed nobody waits for that."""
        ledger = self.ledgers.of(run.view.experiment)
        if ledger is None or run.released_at is None:
            return True
        prefix = f"{run.view.launch}-"
        leases = [lease for name, lease in ledger.book.leases.items() if name.startswith(prefix)]
        if any(lease.open for lease in leases):
            return time.monotonic() - run.released_at > SETTLE_S
        if charged := sum(lease.charged for lease in leases):
            self.say(
                time.time(), run_name(run.view), f"settled at {output.amount(charged, ledger.book.unit)}"
            )
        return True

    def _look(self, run: Stopping) -> bool:
        """Tell what is new of one run; whether it is still at work."""
        from raykit.read.seen import patience_s, state_of
        from raykit.read.view import LIVE
        from raykit.store.place import alive

        now = time.time()
        run.log.refresh()
        state = run.log.state
        owner = state.launched if state.released is None else None
        live = state_of(state, now=now, alive=alive(owner.place) if owner else None) in LIVE
        for entry in run.log.entries[run.said :]:
            for event in entry.events:
                if text := _boundary(event):
                    self.say(entry.at, run_name(run.view), text)
        run.said = len(run.log.entries)
        if not live:
            committed = state.committed or 0
            run.lost = max(0, state.recorded() - committed)
            run.released_at = None if state.released is None else time.monotonic()
            gone = "its launch is gone" if state.released is None else "released"
            run.after_s = max(0.0, (state.heard_at if state.released is not None else now) - self.asked_at)
            lost = f"lost: {output.count(run.lost)} update{'' if run.lost == 1 else 's'}"
            after = f"after {output.duration(run.after_s)}"
            self.say(
                now, run_name(run.view), f"{gone}, at update {output.count(committed)}   {lost}   {after}"
            )
        elif not run.overdue and now - self.asked_at > patience_s(run.view):
            run.overdue = True
            self.say(
                now, run_name(run.view), f"overdue: no boundary for {output.duration(now - self.asked_at)}"
            )
        return live


def _trials(found: ReadRoot, read: SearchRead) -> Iterator[RunView]:
    """The rows of a search that are at work, as runs."""
    for row in read.at_work:
        try:
            yield found.run(f"{read.experiment}/{row.run}")
        except NotFoundError:
            pass  # it is begun, and has written nothing yet: its search lets go of it


def run_name(view: RunView) -> str:
    """`experiment` for its main run, `experiment/run` for others."""
    return view.experiment if view.run == "main" else view.id


def _concerns(view: RunView, scope: str) -> bool:
    from raykit.pauses import scopes_of

    if view.over:
        return False
    return scope in scopes_of(view.experiment, view.role, view.lock.contract if view.lock else None)


def _concerns_search(read: SearchRead, scope: str) -> bool:
    from raykit.pauses import scopes_of

    return scope in scopes_of(read.experiment, "search", read.registration.contract)


def _boundary(event: object) -> str | None:
    """What an event of a run that was asked to pause means to whoever waits for it."""
    from raykit.records import Commit, StopRequested

    match event:
        case StopRequested():
            return "draining: every worker stops at the same update"
        case Commit(reason="stop"):
            size, took = output.size(event.size_bytes), output.duration(event.save_s)
            return f"committed update {output.count(event.update)} ({size}, {took})"
    return None
