"""The one brain: a table of what a launch does next, fencing, and two launches that fight for one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raykit.errors import CorruptError, FencedError, HeldError
from raykit.ids import sha256
from raykit.reconcile import (
    Action,
    AlreadyComplete,
    DrawCurves,
    Leave,
    Policy,
    RefuseHeld,
    RequestStop,
    RunState,
    Seen,
    SendBeat,
    StartTraining,
    TakeRun,
    falls_short,
    fold,
    lowest,
    reconcile,
    require_attempt,
    require_launch,
)
from raykit.records import (
    EXACTNESS,
    AttemptEnded,
    AttemptStarted,
    Beat,
    Commit,
    Difference,
    EndReason,
    GateResult,
    Launched,
    Place,
    Record,
    Released,
    RunEntry,
    Segment,
    StopRequested,
    Superseded,
)
from raykit.store.base import Data, Stored
from raykit.store.log import RunLog
from raykit.testing import MemoryStore

D = sha256(b"")
HERE = Place(host="a", boot="b", pid=1, started=1)
POLICY = Policy(curves_every=100, attempts=1, beat_s=20.0, lease_s=60.0)


def launched(launch: str = "l1") -> Launched:
    return Launched(launch=launch, place=HERE, lease_s=60.0, raykit="0.1.0")


def started(attempt: int = 1, launch: str = "l1") -> AttemptStarted:
    return AttemptStarted(
        attempt=attempt, launch=launch, place=HERE, world_size=1, facts={}, plan=D, code=D, data=D
    )


def ended(reason: EndReason, attempt: int = 1, update: int = 0) -> AttemptEnded:
    return AttemptEnded(attempt=attempt, reason=reason, update=update)


def segment(first: int, last: int, attempt: int = 1) -> Segment:
    return Segment(series="train", attempt=attempt, first=first, last=last, key="k", sha256=D, size_bytes=1)


def commit(update: int, attempt: int = 1) -> Commit:
    return Commit(
        update=update,
        attempt=attempt,
        key="k",
        sha256=D,
        size_bytes=1,
        exactness="exact",
        reason="cadence",
        save_s=0.0,
        blocked_s=0.0,
    )


def entries(*batches: tuple[float, Sequence[Record]]) -> list[RunEntry]:
    return [
        RunEntry(n=n, prev=None if n == 1 else D, at=at, by="t", nonce="n", events=tuple(events))  # type: ignore[arg-type]
        for n, (at, events) in enumerate(batches, start=1)
    ]


def state(*events: Record, at: float = 100.0) -> RunState:
    return fold(entries((at, events))) if events else RunState()


def seen(
    launch: str = "l1",
    *,
    training: str = "not-started",
    alive: bool | None = None,
    signal: str | None = None,
    pause: str | None = None,
    refused: bool = False,
    curves_update: int = 0,
) -> Seen:
    return Seen(
        launch=launch,
        place=HERE,
        holder_alive=alive,
        training=training,
        signal=signal,
        pause=pause,
        cause="person" if pause else None,
        refused=refused,
        curves_update=curves_update,
    )


RUNNING = (launched(), started())

CASES: dict[str, tuple[RunState, Seen, float, tuple[Action, ...]]] = {
    "nothing there: take it": (state(), seen(), 0.0, (TakeRun(()),)),
    "completed: nothing to do": (  # covers I11
        state(*RUNNING, ended("completed"), Released(launch="l1", reason="completed")),
        seen("l2"),
        200.0,
        (AlreadyComplete(),),
    ),
    "completed, but its launch died before it let go": (  # covers I11
        state(*RUNNING, ended("completed")),
        seen("l2", alive=False),
        200.0,
        (AlreadyComplete(),),
    ),
    "held by a live process here": (
        state(*RUNNING),
        seen("l2", alive=True),
        1e9,
        (RefuseHeld(launched(), 100.0),),
    ),
    "its process is gone": (state(*RUNNING), seen("l2", alive=False), 100.1, (TakeRun((1,)),)),
    "elsewhere, heard within the lease": (
        state(*RUNNING),
        seen("l2"),
        159.9,
        (RefuseHeld(launched(), 100.0),),
    ),
    "elsewhere, silent for the lease": (state(*RUNNING), seen("l2"), 160.0, (TakeRun((1,)),)),
    "released when paused: take it": (
        state(*RUNNING, ended("paused"), Released(launch="l1", reason="paused")),
        seen("l2", alive=True),
        101.0,
        (TakeRun(()),),
    ),
    "a second unended attempt": (
        state(*RUNNING, ended("failed"), started(2)),
        seen("l2", alive=False),
        101.0,
        (TakeRun((2,)),),
    ),
    "mine: start": (state(launched()), seen(), 101.0, (StartTraining(),)),
    "mine, but asked to stop before it began": (
        state(launched()),
        seen(signal="SIGTERM"),
        101.0,
        (Leave(),),
    ),
    "mine and resuming: curves first": (
        state(launched(), started(), segment(1, 150)),
        seen(),
        101.0,
        (DrawCurves(150), StartTraining()),
    ),
    "running and quiet": (state(*RUNNING), seen(training="running"), 119.9, ()),
    "running and nothing said for a beat": (
        state(*RUNNING),
        seen(training="running"),
        120.0,
        (SendBeat(),),
    ),
    "running, curves due": (
        state(*RUNNING, segment(1, 250)),
        seen(training="running", curves_update=100),
        101.0,
        (DrawCurves(200),),
    ),
    "running, curves drawn": (
        state(*RUNNING, segment(1, 250)),
        seen(training="running", curves_update=200),
        101.0,
        (),
    ),
    "a signal becomes one stop request": (
        state(*RUNNING),
        seen(training="running", signal="SIGTERM"),
        101.0,
        (RequestStop("SIGTERM"),),
    ),
    "a pause becomes one stop request, with its cause": (  # covers I7, RAY-07
        state(*RUNNING),
        seen(training="running", pause="paused by ada: lunch"),
        101.0,
        (RequestStop("paused by ada: lunch", "person"),),
    ),
    "a signal is louder than a pause": (
        state(*RUNNING),
        seen(training="running", pause="paused by ada: lunch", signal="SIGTERM"),
        101.0,
        (RequestStop("SIGTERM"),),
    ),
    "paused before it began: it does not start": (  # covers I7
        state(launched()),
        seen(pause="paused by ada: lunch"),
        101.0,
        (Leave(),),
    ),
    "paused, and training came back without an end: it is not started again": (
        state(*RUNNING),
        seen(training="returned", pause="paused by ada: lunch"),
        101.0,
        (Leave(),),
    ),
    "and only one": (
        state(*RUNNING, StopRequested(launch="l1", why="SIGTERM")),
        seen(training="running", signal="SIGTERM"),
        101.0,
        (),
    ),
    "returned: the last curves, then leave": (
        state(*RUNNING, segment(1, 250), ended("completed", update=250)),
        seen(training="returned", curves_update=200),
        101.0,
        (DrawCurves(250), Leave()),
    ),
    "returned with curves drawn": (
        state(*RUNNING, segment(1, 250), ended("completed", update=250)),
        seen(training="returned", curves_update=250),
        101.0,
        (Leave(),),
    ),
    "returned without an end, no attempts left": (
        state(*RUNNING, segment(1, 50)),
        seen(training="returned", curves_update=50),
        101.0,
        (Leave(),),
    ),
    "a name used again after it let go: take it again": (
        state(*RUNNING, ended("paused"), Released(launch="l1", reason="paused")),
        seen(),
        101.0,
        (TakeRun(()),),
    ),
    "a name used again after completion": (  # covers I11
        state(*RUNNING, ended("completed"), Released(launch="l1", reason="completed")),
        seen(),
        101.0,
        (AlreadyComplete(),),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_launch_does_next(case: str) -> None:
    found, around, now, actions = CASES[case]
    assert reconcile(POLICY, found, around, now) == actions
    assert reconcile(POLICY, found, around, now) == actions


@pytest.mark.parametrize(
    ("events", "signal", "action"),
    [
        (RUNNING, None, StartTraining()),
        (RUNNING, "SIGTERM", Leave()),
        ((*RUNNING, ended("failed")), None, Leave()),
        ((*RUNNING, ended("completed")), None, Leave()),
        ((*RUNNING, ended("killed"), started(2)), None, Leave()),
        ((launched(),), None, Leave()),
        ((*RUNNING, ended("killed"), launched("l1")), None, Leave()),
    ],
)
def test_training_that_returned_without_an_end_is_started_again_as_often_as_planned(
    events: tuple[Record, ...], signal: str | None, action: Action
) -> None:
    twice = Policy(curves_every=100, attempts=2)
    assert reconcile(twice, state(*events), seen(training="returned", signal=signal), 101.0) == (action,)


@pytest.mark.parametrize("training", ["running", "returned"])
def test_a_launch_that_lost_the_run_is_fenced(training: str) -> None:
    taken = state(*RUNNING, ended("killed"), launched("l2"))
    with pytest.raises(FencedError, match="l2 does"):
        reconcile(POLICY, taken, seen(training=training), 101.0)
    let_go = state(*RUNNING, Released(launch="l1", reason="killed"))
    with pytest.raises(FencedError, match="let go"):
        reconcile(POLICY, let_go, seen(training=training), 101.0)


def test_a_gap_stops_the_launch() -> None:
    # covers HIST-15
    with pytest.raises(CorruptError, match="gap"):
        reconcile(POLICY, state(*RUNNING, segment(2, 5)), seen(training="running"), 101.0)


# --- fencing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "launch", "attempt", "why"),
    [
        ((), "l1", 1, "nobody does"),
        ((launched("l2"),), "l1", 1, "l2 does"),
        ((launched(),), "l1", 1, "attempt none"),
        ((*RUNNING, started(2)), "l1", 1, "attempt 2"),
        ((*RUNNING, ended("failed")), "l1", 1, "already ended"),
        ((*RUNNING, launched("l2")), "l1", 1, "l2 does"),
        ((*RUNNING, launched("l2")), "l2", 2, "attempt 1"),
        ((*RUNNING, Released(launch="l1", reason="killed")), "l1", 1, "let go"),
    ],
)
def test_only_the_newest_attempt_of_the_owner_may_write(
    events: tuple[Record, ...], launch: str, attempt: int, why: str
) -> None:
    with pytest.raises(FencedError, match=why):
        require_attempt(state(*events), launch, attempt)


def test_the_owner_may_write() -> None:
    require_launch(state(launched()), "l1")
    require_attempt(state(*RUNNING), "l1", 1)
    require_attempt(state(*RUNNING, ended("failed"), started(2)), "l1", 2)
    require_launch(state(*RUNNING, Released(launch="l1", reason="paused"), launched("l2")), "l2")


def test_nobody_lets_go_of_another_launchs_run() -> None:
    found = state(*RUNNING, launched("l2"), Released(launch="l1", reason="killed"))
    assert found.released is None
    require_launch(found, "l2")


# --- fold ---------------------------------------------------------------------------------------------------


def test_fold_reads_a_whole_run() -> None:
    first = GateResult(gate="first", key=D, passed=False, scope="s", found="f", took_s=0.1)
    again = first.model_copy(update={"passed": True})
    log = entries(
        (1.0, [launched()]),
        (2.0, [first]),
        (3.0, [again, started(), commit(0)]),
        (4.0, [segment(1, 10), commit(10)]),
        (5.0, [segment(11, 14), StopRequested(launch="l1", why="SIGTERM")]),
        (6.0, [ended("killed", update=14), Released(launch="l1", reason="killed")]),
        (7.0, [launched("l2")]),
        (8.0, [Superseded.model_validate({"from": 11, "to": 14, "why": "resume"}), started(2, "l2")]),
        (9.0, [Beat(launch="l2")]),
    )
    found = fold(log)
    assert found.launched == launched("l2")
    assert (found.launched_at, found.heard_at, found.released, found.stop) == (7.0, 9.0, None, None)
    assert [a.attempt for a in found.attempts] == [1, 2]
    assert found.ends == {1: ended("killed", update=14)}
    assert found.ended is None
    assert not found.completed
    assert found.gates == {"first": again}
    assert found.recorded() == 10
    assert found.committed == 10
    assert fold(log[:5]).stop == StopRequested(launch="l1", why="SIGTERM")
    assert fold(log[:6]).released == "killed"
    for split in range(len(log) + 1):
        before = fold(log[:split])
        kept = fold(log[:split])
        assert fold(log[split:], before) == found
        assert before == kept, "the earlier state is not touched"


def test_exactness_only_falls() -> None:
    def difference(allows: str) -> Difference:
        return Difference.model_validate({"what": "w", "was": "a", "now": "b", "allows": allows})

    assert lowest([]) == "exact"
    assert lowest([difference("order-exact"), difference("state-exact")]) == "order-exact"
    for i, needed in enumerate(EXACTNESS):
        assert [falls_short(got, needed) for got in EXACTNESS] == [j > i for j in range(4)]


# --- two launches, one run ----------------------------------------------------------------------------------


class RacingStore(MemoryStore):
    """Lets another process act in the instant before a put."""

    def __init__(self) -> None:
        super().__init__()
        self.before_put: Callable[[], None] | None = None

    def put_new(self, key: str, data: Data) -> Stored:
        act, self.before_put = self.before_put, None
        if act is not None:
            act()
        return super().put_new(key, data)


PLANNED = 12
TWICE = Policy(curves_every=100, attempts=2)


class Gang:
    """The workers of one attempt. They outlive their launch, and write on until the log fences them."""

    def __init__(self, log: RunLog, launch: str, attempt: int) -> None:
        self.log = log
        self.launch = launch
        self.attempt = attempt
        self.returned = False
        self.fenced = False

    def work(self, now: float, *, save: bool) -> None:
        def decide(_: Sequence[RunEntry]) -> list[Record]:
            found = self.log.state
            require_attempt(found, self.launch, self.attempt)
            update = found.recorded() + 1
            done = update >= PLANNED
            events: list[Record] = [segment(update, update, self.attempt)]
            if save or done or found.stop:
                events.append(commit(update, self.attempt))
            if done or found.stop:
                events.append(ended("completed" if done else "paused", self.attempt, update))
            return events

        try:
            self.log.append(decide, at=now)
        except FencedError:
            self.fenced = True
        self.returned = self.returned or self.fenced or self.log.state.ended is not None


class Process:
    """A launch as the fleet runs it: observe, reconcile, act."""

    def __init__(self, store: MemoryStore, name: str, host: str) -> None:
        self.log = RunLog(store, "e", "r", by=name)
        self.name = name
        self.host = host
        self.alive = True
        self.gangs: list[Gang] = []
        self.signal: str | None = None
        self.fenced = False
        self.said: tuple[Action, ...] = ()

    @property
    def training(self) -> str:
        if not self.gangs:
            return "not-started"
        return "returned" if self.gangs[-1].returned else "running"

    def step(self, now: float, alive: Callable[[str, str], bool | None]) -> None:
        """One turn of the loop. A refusal or a fence ends the process, as it would the command."""

        def actions() -> tuple[Action, ...]:
            holder = self.log.state.launched
            around = Seen(
                launch=self.name,
                place=HERE,
                holder_alive=None if holder is None else alive(self.host, holder.launch),
                training=self.training,
                signal=self.signal,
                curves_update=PLANNED,
            )
            return reconcile(TWICE, self.log.state, around, now)

        self.log.refresh()
        try:
            self.said = actions()
            for action in self.said:
                self.act(action, now, actions)
        except HeldError:
            self.alive = False
        except FencedError:
            self.fenced = True
            self.alive = False

    def act(self, action: Action, now: float, actions: Callable[[], tuple[Action, ...]]) -> None:
        match action:
            case AlreadyComplete():
                self.alive = False
            case RefuseHeld():
                raise HeldError("held")
            case TakeRun():
                self.log.append(lambda _: self.take(actions()), at=now)
            case StartTraining():
                self.start(now)
            case RequestStop(why):
                self.append([StopRequested(launch=self.name, why=why)], now)
            case SendBeat():
                self.append([Beat(launch=self.name)], now)
            case DrawCurves():
                raise AssertionError("curves are drawn")
            case Leave():
                reason = self.log.state.ended.reason if self.log.state.ended else "paused"
                self.append([Released(launch=self.name, reason=reason)], now)
                self.alive = False

    def take(self, actions: tuple[Action, ...]) -> list[Record]:
        match actions:
            case (TakeRun(unended),):
                ends: list[Record] = [ended("killed", attempt) for attempt in unended]
                return [*ends, launched(self.name)]
            case (RefuseHeld(),):
                raise HeldError("held")
        self.alive = False
        return []

    def start(self, now: float) -> None:
        """A new gang, be it the first or one that replaces a gang thought dead."""

        def decide(_: Sequence[RunEntry]) -> list[Record]:
            found = self.log.state
            require_launch(found, self.name)
            if found.completed:
                return []
            update, rows = found.committed or 0, found.recorded()
            events: list[Record] = []
            if self.gangs and found.ended is None:
                events.append(ended("failed", self.gangs[-1].attempt, rows))
            if rows > update:
                events.append(Superseded.model_validate({"from": update + 1, "to": rows, "why": "resume"}))
            return [*events, started(len(found.attempts) + 1, self.name)]

        if self.log.append(decide, at=now) is not None:
            self.gangs.append(Gang(self.log, self.name, len(self.log.state.attempts)))

    def append(self, events: list[Record], now: float) -> None:
        def decide(_: Sequence[RunEntry]) -> list[Record]:
            require_launch(self.log.state, self.name)
            return events

        self.log.append(decide, at=now)


class TwoLaunches(RuleBasedStateMachine):
    """Any number of launches, two at a time, on two hosts, killed and stalled at will, on one run's log."""

    @initialize()
    def begin(self) -> None:
        self.store = RacingStore()
        self.now = 0.0
        self.processes: list[Process] = []
        self.watch = RunLog(self.store, "e", "r", by="watch")

    def looks_alive(self, host: str, launch: str) -> bool | None:
        process = next(p for p in self.processes if p.name == launch)
        return process.alive if process.host == host else None

    def living(self) -> list[Process]:
        return [p for p in self.processes if p.alive]

    @precondition(lambda self: len(self.living()) < 2)
    @rule(host=st.sampled_from("ab"))
    def launch(self, host: str) -> None:
        self.processes.append(Process(self.store, f"l{len(self.processes)}", host))

    @precondition(lambda self: self.living())
    @rule(data=st.data(), race=st.booleans())
    def step(self, data: st.DataObject, race: bool) -> None:
        process = data.draw(st.sampled_from(self.living()))
        rivals = [p for p in self.living() if p is not process]
        if race and rivals:
            self.store.before_put = lambda: rivals[0].step(self.now, self.looks_alive)
        process.step(self.now, self.looks_alive)
        self.store.before_put = None

    def gangs(self) -> list[Gang]:
        return [gang for process in self.processes for gang in process.gangs if not gang.fenced]

    @precondition(lambda self: self.gangs())
    @rule(data=st.data(), save=st.booleans(), count=st.integers(1, 6))
    def work(self, data: st.DataObject, save: bool, count: int) -> None:
        gang = data.draw(st.sampled_from(self.gangs()))
        for _ in range(count):
            if not gang.fenced:
                gang.work(self.now, save=save)

    @precondition(lambda self: any(p.training == "running" for p in self.living()))
    @rule(data=st.data())
    def replace_the_gang(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([p for p in self.living() if p.training == "running"]))
        try:
            process.start(self.now)
        except FencedError:
            process.fenced = True
            process.alive = False

    @precondition(lambda self: any(p.training == "running" for p in self.living()))
    @rule(data=st.data())
    def lose_sight_of_the_gang(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([p for p in self.living() if p.training == "running"]))
        process.gangs[-1].returned = True

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.living())).alive = False

    @precondition(lambda self: self.living())
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.living())).signal = "SIGTERM"

    @rule(seconds=st.sampled_from([0.5, 19.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def the_log_has_one_owner_at_each_time(self) -> None:
        # covers I4, I11
        for entry in self.watch.refresh():
            before = fold(self.watch.entries[: entry.n - 1])
            assert not before.completed or all(isinstance(e, Released | Beat) for e in entry.events), entry
            if any(isinstance(event, Launched) for event in entry.events):
                self.check_taking(before, entry)
                continue
            assert before.launched is not None
            assert before.launched.launch == entry.by
            assert before.released is None
            for event in entry.events:
                if isinstance(event, Segment | Commit):
                    assert before.attempts[-1].attempt == event.attempt
                    assert event.attempt not in before.ends
        self.watch.state.recorded()

    def check_taking(self, before: RunState, entry: RunEntry) -> None:
        holder = before.launched
        if holder is None or before.released is not None:
            return
        taker = next(p for p in self.processes if p.name == entry.by)
        alive = self.looks_alive(taker.host, holder.launch)
        assert alive is False or (alive is None and entry.at - before.heard_at >= holder.lease_s)
        assert [e.attempt for e in entry.events if isinstance(e, AttemptEnded)] == [
            a.attempt for a in before.attempts if a.attempt not in before.ends
        ]

    @invariant()
    def who_is_fenced_writes_no_more(self) -> None:
        for process in self.processes:
            if process.fenced:
                owner = self.watch.state.launched
                assert owner is not None
                assert owner.launch != process.name


TwoLaunches.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestTwoLaunches = TwoLaunches.TestCase
