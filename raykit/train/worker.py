"""One rank of one attempt, from its inputs to its end. The same under Ray Train and in plain processes.

Rank 0 is the only one that writes to the run's log; the others hear its decisions. What a rank refuses on purpose
is recorded as the attempt's end, so that no scheduler mistakes it for bad luck and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from raykit.data.members import compare
from raykit.errors import FencedError, FleetPaused, GateError, RaykitError
from raykit.exactness import RESUME_GATE
from raykit.reconcile import RunState, require_attempt, require_launch
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Difference,
    Record,
    RunEntry,
    Superseded,
)
from raykit.replays import early_at
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.commit import Good
from raykit.store.log import RunLog
from raykit.store.people import harmless_of
from raykit.store.place import this_place
from raykit.store.plans import read_run_plan
from raykit.store.scratch import scratch
from raykit.train import facts
from raykit.train.base import load_base, read_base, require_one_start
from raykit.train.build import Built, set_up_process
from raykit.train.directive import Directive
from raykit.train.door import Door, Grant
from raykit.train.gang import Gang, RankAloneError
from raykit.train.gating import Gates
from raykit.train.hanging import ids_on
from raykit.train.inputs import Inputs, Task, changed_rows, read_inputs, sample_of
from raykit.train.loop import Ending, Loop
from raykit.train.overlap import Overlap
from raykit.train.parts import Parts
from raykit.train.ranklog import RankLog
from raykit.train.replaying import Replays, Surroundings
from raykit.train.resume import Start, decide_start
from raykit.train.rows import Rows, Stamp
from raykit.train.saver import Bound, Invested, Saver
from raykit.train.state import hold, restore
from raykit.train.surroundings import naming_what_is_missing
from raykit.train.watching import Watching
from raykit.train.worlds import Worlds, roots_of

CLOSE_S = 60.0
LEAVE_S = 10.0
"""How long a rank that ends with an error waits for the others to do the same."""


def work(
    task: Task,
    gang: Gang,
    directive: Directive,
    *,
    notice: Callable[[], str | None] | None = None,
    store: ObjectStore | None = None,
    door: Door | None = None,
    look: Callable[[], None] = lambda: None,
) -> Ending:
    """Train this rank's share of one attempt, under a lease from the `door` if there is one.

    `look` is called once everything is imported, and refuses a process that is not what it should be.

    Raises:
        FencedError: another launch or attempt owns the run.
        GateError: a gate failed, or training met something that is not finite.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests, or no checkpoint verifies.
        StoreUnavailableError: the store stayed away longer than the task holds.
        Stopped: the budget does not allow another attempt, or a pause is in force.
        RuntimeError: one of these, as a `RankAloneError`, on a rank whose fellows do not end with it.
    """
    surroundings = Surroundings.here()
    found = store or open_store(task.root)
    with RankLog(found, gang.rank) as log, scratch("code") as folder:
        with naming_what_is_missing():
            inputs = read_inputs(found, task, folder)
        gang.all_agree(look)
        return _Attempt(task, gang, directive, found, inputs, log, door, surroundings).run(notice)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What rank 0 decided, as every rank knows it."""

    attempt: int
    good: Good | None
    made_under: str | None
    """The lock of the attempt that made that checkpoint."""
    exactness: Any
    gates_passed: frozenset[str]
    harmless: frozenset[str]
    """State outside of checkpoints that does not matter, as the plan and people say."""


class _Attempt:
    """The sequence of one attempt on one rank."""

    def __init__(
        self,
        task: Task,
        gang: Gang,
        directive: Directive,
        store: ObjectStore,
        inputs: Inputs,
        rank_log: RankLog,
        door: Door | None,
        surroundings: Surroundings,
    ) -> None:
        self._began = time.perf_counter()
        self._rank_log = rank_log
        self._surroundings = surroundings
        self._since = time.monotonic()
        self._set_up_s = 0.0
        self._door = door
        self._granted: tuple[Grant, float] | None = None
        """What rank 0 was granted, and when on its monotonic clock."""
        self._task = task
        self._gang = gang
        self._directive = directive
        self._store = store
        self._inputs = inputs
        self._plan = inputs.plan
        self._log = RunLog(store, task.experiment, task.run, by=f"{task.launch}/rank-{gang.rank}")
        self._sample = sample_of(inputs.dataset, inputs.source) if gang.leads else None
        self._parts = Parts.of(store, inputs, gang)
        self._worlds = Worlds(self._parts)
        self._facts = {**facts.here(gang, self._plan.run.threads), **inputs.outside}
        self._gates = Gates(task=task, gang=gang, log=self._log, inputs=inputs, facts=self._facts)

    def run(self, notice: Callable[[], str | None] | None) -> Ending:
        set_up_process(self._plan, self._gang.device)
        decision = self._decide()
        stamp = Stamp(
            experiment=self._task.experiment,
            run=self._task.run,
            launch=self._task.launch,
            attempt=decision.attempt,
        )
        self._rank_log.bind(stamp)
        window = self._plan.run.loss_window_min
        self._directive.loss_window_s = None if window is None else window * 60.0
        if self._gang.leads:
            self._directive.listen(self._log, stamp, notice)
            if self._door is not None and self._granted is not None:
                grant, at = self._granted
                self._directive.keep(self._door, grant, granted_at=at, hold_s=self._task.hold_s)
        overlap = self._overlap(stamp) if self._gang.leads else None
        rows = self._rows(stamp, overlap) if self._gang.leads else None
        try:
            with naming_what_is_missing():
                ending = self._train(decision, stamp, rows, overlap)
            ending, replayed = self._replays(stamp, rows).at_the_end(ending)
        except RaykitError as error:
            alone = not self._gang.leave(wait_s=LEAVE_S)
            if (self._gang.leads or alone) and not isinstance(error, FencedError):
                why = f"{error.kind}: {error}"
                self._end(stamp, rows, Ending(reason="failed", update=0, detail=why, remedy=error.remedy))
            if alone:
                raise RankAloneError(f"rank {self._gang.rank} ends alone: {error}") from error
            raise
        finally:
            self._directive.close()
        if self._gang.leads:
            self._end(stamp, rows, ending, replayed)
        return ending

    # --- the start ------------------------------------------------------------------------------------------

    def _decide(self) -> _Decision:
        """Rank 0 decides and records how this attempt starts; every rank has compared its members first."""
        changed = self._changed_members()
        start: list[Start] = []

        def lead() -> dict[str, Any]:
            self._ask_the_door()
            entry = self._log.append(lambda entries: self._begin(changed, start), at=time.time())
            assert entry is not None
            chosen = start[-1]
            return {
                "attempt": chosen.attempt,
                "exactness": chosen.exactness,
                "commit": None if chosen.good is None else chosen.good.commit.plain(),
                "manifest": None if chosen.good is None else chosen.good.manifest.plain(),
                "plan": None if chosen.good is None else self._plan_of(chosen.good),
                "gates": self._gates.passed(),
                "harmless": sorted(harmless_of(self._store, self._task.experiment, self._plan)),
            }

        told = self._gang.leader_does(lead)
        gates, harmless = frozenset(told["gates"]), frozenset(told["harmless"])
        return _Decision(told["attempt"], _good(told), told["plan"], told["exactness"], gates, harmless)

    def _plan_of(self, good: Good) -> str:
        """The lock that a checkpoint was made under, on rank 0."""
        return next(a.plan for a in self._log.state.attempts if a.attempt == good.commit.attempt)

    def _ask_the_door(self) -> None:
        """Have this attempt reserved before anything says that it begins.

        Raises:
            Refused: a person has to act first.
            Stopped: the budget does not allow it, or a pause is in force.
        """
        self._log.refresh()
        state, launch = self._log.state, self._task.launch
        require_launch(state, launch)
        if state.stop is not None and state.stop.launch == launch:
            raise FleetPaused(state.stop.why)  # asked to stop before it began: it does not begin
        if self._door is None:
            return
        ordinal = 1 + sum(attempt.launch == launch for attempt in state.attempts)
        at = time.monotonic()
        self._granted = (self._door.begin(launch, ordinal), at)

    def _changed_members(self) -> Difference | None:
        """How the data differ from the stored members; the same on every rank.

        Raises:
            GateError: the ranks do not all see the same data.
        """
        found: list[str | None] = []

        def look() -> None:
            difference = compare(self._inputs.membership, self._inputs.source)
            found.append(None if difference is None else str(difference))

        self._gang.all_agree(look)
        (mine,) = found
        leaders = self._gang.share(mine)

        def require_the_same() -> None:
            if mine != leaders:
                raise GateError(
                    f"rank {self._gang.rank} sees other data than rank 0: {mine or 'the stored members'}",
                    rule="the same members on every rank",
                )

        self._gang.all_agree(require_the_same)
        if mine is None:
            return None
        return Difference(what="split members", was="as stored", now=mine, allows="inexact")

    def _begin(self, changed: Difference | None, out: list[Start]) -> list[Record]:
        """The events that start this attempt: how the one before ended, what falls away, and its receipt."""
        state = self._log.state
        require_launch(state, self._task.launch)
        changed = changed or self._changed_rows(state)
        start = decide_start(self._store, self._task, self._plan, state, self._facts, changed)
        if start.good is not None:
            made_by = next(a for a in state.attempts if a.attempt == start.good.commit.attempt)
            if made_by.plan != self._task.plan:
                require_one_start(self._store, self._task.experiment, made_by.plan, self._inputs.base)
        out.append(start)
        events: list[Record] = []
        base = start.good.commit.update if start.good is not None else None
        before = state.attempt
        if before is not None and before.launch == self._task.launch and before.attempt in state.ends:
            raise FencedError(f"attempt {before.attempt} of this launch has ended; another launch may go on")
        if before is not None and before.attempt not in state.ends:
            events.append(AttemptEnded(attempt=before.attempt, reason="killed", update=start.recorded))
        newest = max([start.recorded, *(commit.update for commit in state.commits)])
        first = 0 if base is None else base + 1
        if state.attempts and newest >= first:
            events.append(
                Superseded(
                    from_=first, to=newest, why=f"attempt {start.attempt} starts from update {base or 0}"
                )
            )
        events.append(
            AttemptStarted(
                attempt=start.attempt,
                launch=self._task.launch,
                place=this_place(),
                world_size=self._gang.world,
                facts=self._facts,
                plan=self._task.plan,
                code=self._task.code,
                data=self._task.data,
                lease=None if self._granted is None else self._granted[0].lease,
                resume=start.receipt,
                sample=self._sample,
            )
        )
        return events

    def _changed_rows(self, state: RunState) -> Difference | None:
        """How rows differ from what the attempt before has read here, though the members are the same."""
        before = state.attempt
        if before is None or before.facts != self._facts:  # another machine may round what it reads otherwise
            return None
        return changed_rows(before.sample, self._sample)

    # --- training -------------------------------------------------------------------------------------------

    def _train(self, decision: _Decision, stamp: Stamp, rows: Rows | None, overlap: Overlap | None) -> Ending:
        bound = Bound(
            contract=self._task.contract,
            code=self._task.code,
            data=self._task.data,
            exactness=decision.exactness,
            invested=self._invested(),
            unbound=self._inputs.unbound,
        )
        saver = Saver(
            self._store,
            self._log,
            stamp,
            self._gang,
            bound,
            rows,
            hold_s=self._task.hold_s,
            took=self._directive.save_took,
            overlap=overlap,
        )
        before = ids_on(self._inputs.recipe)
        built = self._parts.build(self._inputs.recipe)
        if decision.good is None:
            self._worlds.require_all_saved(built, before)
            self._load_base(built)
        after = 0 if decision.good is None else decision.good.commit.update
        updates = self._plan.run.updates - after
        self._gates.hold_to_plan(decision.attempt, built, self._parts.loader(after), updates)
        if decision.good is None:
            self._begin_fresh(decision, built)
        else:
            self._require_effect(built, decision)
            with self._worlds.warming() as warm_up:
                warm_up(built)
            self._parts.restore(built, decision.good, saver.capture, decision.exactness)
        loop = Loop(
            plan=self._plan,
            recipe=self._inputs.recipe,
            gang=self._gang,
            built=built,
            attempt=decision.attempt,
            begins=decision.good is None,
            saver=saver,
            rows=rows,
            watch=self._watch(decision, built, stamp),
            directive=self._directive,
            micro_batches=self._parts.micro_batches(built.live.progress.update),
            development=self._parts.development(),
            first_batch=self._parts.first_batch,
            replay_at=early_at(self._plan, after) if self._replays_early() else None,
            replay=lambda: self._replays(stamp, rows).early(),
        )
        self._set_up_s = time.monotonic() - self._since
        return loop.run()

    def _replays_early(self) -> bool:
        """Whether training itself waits for an early replay. QC workers can make one beside it, of a single rank."""
        beside = self._plan.qc is not None and self._gang.world == 1
        return self._inputs.setting is None and not beside

    def _replays(self, stamp: Stamp, rows: Rows | None) -> Replays:
        return Replays(
            task=self._task,
            gang=self._gang,
            directive=self._directive,
            store=self._store,
            log=self._log,
            inputs=self._inputs,
            stamp=stamp,
            rows=rows,
            surroundings=self._surroundings,
            set_up_s=self._set_up_s,
        )

    def _invested(self) -> Invested | None:
        if self._granted is None:
            return None
        grant, at = self._granted
        return Invested(before_ms=grant.invested_ms, accelerators=grant.accelerators, since=at)

    def _load_base(self, built: Built) -> None:
        """Put the weights that the plan starts from into what was just built.

        Raises:
            GateError: they do not fit.
            CorruptError: they are not the bytes that the lock names.
        """
        base = self._inputs.base
        if base is not None:
            load_base(built.live, base, read_base(self._store, base), rank=self._gang.rank)

    def _begin_fresh(self, decision: _Decision, built: Built) -> None:
        """Warm up and pass the gates; afterwards the live objects are as they were before, to the bit."""
        initial = hold(built.live, rank=self._gang.rank)
        with self._worlds.warming() as warm_up:
            warm_up(built)
            restore(built.live, initial, rank=self._gang.rank)
            self._gates.measure(
                decision.attempt,
                built,
                initial,
                lambda: self._worlds.world(warm_up),
                passed=decision.gates_passed,
                harmless=decision.harmless,
            )

    def _watch(self, decision: _Decision, built: Built, stamp: Stamp) -> Watching | None:
        """What looks for undeclared state at saves; None on other ranks, and where no gate has looked before."""
        gate = self._log.state.gates.get(RESUME_GATE)
        if not self._gang.leads or gate is None or gate.cleared is None:
            return None
        return Watching(
            self._log,
            stamp,
            built.live,
            lambda: roots_of(built, self._inputs),
            cleared=gate.cleared,
            harmless=decision.harmless,
            since=self._began,
        )

    def _require_effect(self, built: Built, decision: _Decision) -> None:
        """Let no changed param be one that the checkpoint takes back.

        Raises:
            GateError: one is.
        """
        made_under = decision.made_under
        if made_under is not None and made_under != self._task.plan:
            was = read_run_plan(self._store, self._task.experiment, self._task.run, made_under)
            self._worlds.require_effect(built, was)

    def _overlap(self, stamp: Stamp) -> Overlap | None:
        """What this attempt trains again; None if it is the first one."""
        state = self._log.state
        mine = state.attempt
        if mine is None or mine.attempt != stamp.attempt or len(state.attempts) == 1:
            return None
        run = (self._task.experiment, self._task.run)
        return Overlap(self._store, state, mine, run=run, hold_s=self._task.hold_s)

    def _rows(self, stamp: Stamp, overlap: Overlap | None) -> Rows:
        return Rows(
            self._store,
            self._log,
            stamp,
            self._parts.row_maker(stamp.attempt),
            flush_s=self._plan.run.flush_s,
            hold_s=self._task.hold_s,
            overlap=overlap,
        )

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self, stamp: Stamp, rows: Rows | None, ending: Ending, replayed: Record | None = None) -> None:
        """Write what is left of the history, what came of the replay at the end, and how the attempt ended."""
        if rows is not None:
            rows.close(timeout_s=CLOSE_S)

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            require_attempt(state, stamp.launch, stamp.attempt)
            update = ending.update if ending.reason != "failed" else state.recorded()
            ended = AttemptEnded(
                attempt=stamp.attempt,
                reason=ending.reason,
                update=update,
                detail=ending.detail,
                cause=ending.cause,
                remedy=ending.remedy,
            )
            return [ended] if replayed is None else [replayed, ended]

        try:
            self._log.append(decide, at=time.time())
        except FencedError:
            if ending.reason == "completed":
                raise


def _good(told: dict[str, Any]) -> Good | None:
    from raykit.ids import canonical
    from raykit.records import Commit, Manifest

    if told["commit"] is None:
        return None
    return Good(
        commit=Commit.from_bytes(canonical(told["commit"]), "commit"),
        manifest=Manifest.from_bytes(canonical(told["manifest"]), "manifest"),
        passed_over=(),
    )
