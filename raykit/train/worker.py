"""One rank of one attempt, from its inputs to its end. The same under Ray Train and in plain processes.

Rank 0 is the only one that writes to the run's log; the others hear its decisions. What a rank refuses on purpose
is recorded as the attempt's end, so that no scheduler mistakes it for bad luck and tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader

from raykit.data.members import compare
from raykit.data.order import Order
from raykit.errors import FencedError, FleetPaused, GateError, RaykitError
from raykit.reconcile import require_attempt, require_launch
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Difference,
    Record,
    RunEntry,
    Superseded,
)
from raykit.store import open_store
from raykit.store.base import ObjectStore
from raykit.store.commit import Good, read_file
from raykit.store.log import RunLog
from raykit.store.people import read_acts
from raykit.store.place import this_place
from raykit.store.scratch import scratch
from raykit.train import facts
from raykit.train.base import load_base, read_base, require_one_start
from raykit.train.build import Built, build, left_alone, set_up_process
from raykit.train.directive import Directive
from raykit.train.door import Door, Grant
from raykit.train.find_recipe import apart, own_modules
from raykit.train.gang import Gang, RankAloneError
from raykit.train.gating import Gates
from raykit.train.hidden import surroundings
from raykit.train.hidden.walk import Roots
from raykit.train.inputs import Inputs, Task, read_inputs
from raykit.train.loader import Keyed, train_loader
from raykit.train.loop import Ending, Loop, row_maker
from raykit.train.probes import World
from raykit.train.ranklog import RankLog
from raykit.train.resume import Start, decide_start
from raykit.train.rows import Rows, Stamp
from raykit.train.saver import Bound, Invested, Saver
from raykit.train.state import hold, needed_files, restore, unequal
from raykit.train.step import Stepper
from raykit.train.watching import Watching

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
) -> Ending:
    """Train this rank's share of one attempt, under a lease from the `door` if there is one.

    Raises:
        FencedError: another launch or attempt owns the run.
        GateError: a gate failed, or training met something that is not finite.
        ExactnessError: the resume would be less exact than the plan needs.
        CorruptError: stored bytes do not match their digests, or no checkpoint verifies.
        StoreUnavailableError: the store stayed away longer than the task holds.
        Stopped: the budget does not allow another attempt, or a pause is in force.
        RuntimeError: one of these, as a `RankAloneError`, on a rank whose fellows do not end with it.
    """
    found = store or open_store(task.root)
    with RankLog(found, gang.rank) as log, scratch("code") as folder:
        inputs = read_inputs(found, task, folder)
        return _Attempt(task, gang, directive, found, inputs, log, door).run(notice)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What rank 0 decided, as every rank knows it."""

    attempt: int
    good: Good | None
    exactness: Any
    gates_passed: frozenset[str]


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
    ) -> None:
        self._began = time.perf_counter()
        self._rank_log = rank_log
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
        self._order = Order(inputs.membership.rows("train"), self._plan.run.seed)
        self._keyed = inputs.keyed("train")
        self._harmless = frozenset(self._plan.run.harmless)
        """State outside of checkpoints that does not matter, as the plan says, and then people as well."""
        self._facts = facts.here(gang, self._plan.run.threads)
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
        rows = self._rows(stamp) if self._gang.leads else None
        try:
            ending = self._train(decision, stamp, rows)
        except RaykitError as error:
            alone = not self._gang.leave(wait_s=LEAVE_S)
            if (self._gang.leads or alone) and not isinstance(error, FencedError):
                self._end(stamp, rows, Ending(reason="failed", update=0, detail=f"{error.kind}: {error}"))
            if alone:
                raise RankAloneError(f"rank {self._gang.rank} ends alone: {error}") from error
            raise
        finally:
            self._directive.close()
        if self._gang.leads:
            self._end(stamp, rows, ending)
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
                "gates": self._gates.passed(),
                "harmless": sorted(read_acts(self._store, self._task.experiment).harmless),
            }

        told = self._gang.leader_does(lead)
        self._harmless = self._harmless.union(told["harmless"])
        return _Decision(told["attempt"], _good(told), told["exactness"], frozenset(told["gates"]))

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
            )
        )
        return events

    # --- training -------------------------------------------------------------------------------------------

    def _train(self, decision: _Decision, stamp: Stamp, rows: Rows | None) -> Ending:
        bound = Bound(
            contract=self._task.contract,
            code=self._task.code,
            data=self._task.data,
            exactness=decision.exactness,
            invested=self._invested(),
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
        )
        built = self._build(self._inputs)
        if decision.good is None:
            self._load_base(built)
        after = 0 if decision.good is None else decision.good.commit.update
        updates = self._plan.run.updates - after
        self._gates.hold_to_plan(decision.attempt, built, self._loader(after), updates)
        if decision.good is None:
            self._begin_fresh(decision, built)
        else:
            with self._warming() as warm_up:
                warm_up(built)
            self._restore(built, decision.good, saver, decision.exactness)
        loop = Loop(
            plan=self._plan,
            recipe=self._inputs.recipe,
            gang=self._gang,
            built=built,
            attempt=decision.attempt,
            begins=decision.good is None,
            saver=saver,
            rows=rows,
            watch=self._watch(built, stamp),
            directive=self._directive,
            micro_batches=self._micro_batches(built.live.progress.update),
            development=self._development(),
            first_batch=lambda: next(self._micro_batches(0, last=1, loader_workers=0)),
        )
        return loop.run()

    def _invested(self) -> Invested | None:
        if self._granted is None:
            return None
        grant, at = self._granted
        return Invested(before_ms=grant.invested_ms, accelerators=grant.accelerators, since=at)

    def _build(self, inputs: Inputs) -> Built:
        return build(self._plan, inputs.recipe, inputs.params, self._gang)

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
        with self._warming() as warm_up:
            warm_up(built)
            restore(built.live, initial, rank=self._gang.rank)
            self._gates.measure(
                decision.attempt,
                built,
                initial,
                lambda: self._apart(warm_up),
                passed=decision.gates_passed,
                harmless=self._harmless,
            )

    @contextmanager
    def _warming(self) -> Iterator[Callable[[Built], None]]:
        """Gives what does two throwaway forwards and backwards of live objects, before state is restored.

        DDP rebuilds its buckets after the first backward; without this, three and more ranks would sum gradients
        in another order after a resume than in the run that was never interrupted. The losses are asked of a recipe
        that is there for nothing else, so that nothing is left on that of the run.
        """
        if self._gang.world == 1:
            yield lambda built: None
            return
        alone = replace(self._gang, rank=0, world=1)
        with apart(self._inputs.folder), surroundings.put_back():
            inputs = self._inputs.made_again()
            build(self._plan, inputs.recipe, inputs.params, alone)

        def warm_up(built: Built) -> None:
            with surroundings.put_back(), left_alone(built.live.model):
                stepper = Stepper(self._plan, inputs.recipe, built, self._gang)
                for _ in range(2):  # the rebuilt buckets come into use with the second
                    batches = self._loader(0, last=1, loader_workers=0, inputs=inputs)
                    stepper.accumulate(1, iter(batches))
            built.live.optimizer.zero_grad(set_to_none=True)

        yield warm_up

    @contextmanager
    def _apart(self, warm_up: Callable[[Built], None]) -> Iterator[World]:
        """A world for one run of a gate: everything of the recipe's own anew, and afterwards gone."""
        with apart(self._inputs.folder), surroundings.put_back():
            inputs = self._inputs.made_again()
            built = self._build(inputs)
            warm_up(built)
            few = self._plan.run.micro_batch * self._gang.world
            yield World(
                built=built,
                micro_batches=lambda after, last: iter(
                    self._loader(after, last=last, loader_workers=0, inputs=inputs)
                ),
                few=inputs.keyed("development", few) if "development" in inputs.roles() else None,
                roots=self._roots(built, inputs),
            )

    def _roots(self, built: Built, inputs: Inputs) -> Roots:
        live = built.live
        return Roots(
            recipe=live.recipe,
            model=live.model,
            optimizer=live.optimizer,
            scheduler=live.scheduler,
            dataset=inputs.dataset,
            modules=own_modules(inputs.folder),
        )

    def _watch(self, built: Built, stamp: Stamp) -> Watching | None:
        """What looks for undeclared state at saves; None on other ranks, and where no gate has looked before."""
        gate = self._log.state.gates.get("resume")
        if not self._gang.leads or gate is None or gate.cleared is None:
            return None
        return Watching(
            self._log,
            stamp,
            built.live,
            lambda: self._roots(built, self._inputs),
            cleared=gate.cleared,
            harmless=self._harmless,
            since=self._began,
        )

    def _restore(self, built: Built, good: Good, saver: Saver, exactness: Any) -> None:
        """Put the checkpoint back and prove that what is live now is what was stored.

        Raises:
            GateError: it is not, though nothing that was compared explains it.
        """
        files = {
            file.name: read_file(self._store, good.commit, file)
            for file in needed_files(good.manifest, self._gang.rank)
        }
        restore(built.live, files, rank=self._gang.rank)
        saver.capture.take(built.live)
        wrong = unequal(saver.capture, good.manifest)
        if exactness in ("exact", "state-exact") and self._gang.any(bool(wrong)):
            raise GateError(
                f"after the restore, {', '.join(wrong) or 'a file of another rank'} is not what was saved",
                rule="restored state is equal to the bit",
                remedy="give the recipe a state_dict() and load_state_dict() for state of its own",
            )

    def _micro_batches(
        self, after: int, *, last: int | None = None, loader_workers: int | None = None
    ) -> Iterator[Any]:
        return iter(self._loader(after, last=last, loader_workers=loader_workers))

    def _loader(
        self,
        after: int,
        *,
        last: int | None = None,
        loader_workers: int | None = None,
        inputs: Inputs | None = None,
    ) -> DataLoader[Any]:
        run = self._plan.run
        return train_loader(
            self._keyed if inputs is None else inputs.keyed("train"),
            self._order,
            batch=run.batch,
            world=self._gang.world,
            rank=self._gang.rank,
            accumulate=run.accumulate,
            after=after,
            last=run.updates if last is None else last,
            loader_workers=run.loader_workers if loader_workers is None else loader_workers,
            collate=getattr((inputs or self._inputs).recipe, "collate", None),
            pin=self._gang.device.type == "cuda",
        )

    def _development(self) -> Keyed | None:
        return self._inputs.keyed("development") if "development" in self._inputs.roles() else None

    def _rows(self, stamp: Stamp) -> Rows:
        members = self._inputs.members("train")
        column = getattr(self._inputs.dataset, "sources", None)
        sources = None if column is None else [int(column[int(index)]) for index in members]
        return Rows(
            self._store,
            self._log,
            stamp,
            row_maker(self._plan, self._order, sources, stamp.attempt),
            flush_s=self._plan.run.flush_s,
            hold_s=self._task.hold_s,
        )

    # --- the end --------------------------------------------------------------------------------------------

    def _end(self, stamp: Stamp, rows: Rows | None, ending: Ending) -> None:
        """Write what is left of the history, and how the attempt ended."""
        if rows is not None:
            rows.close(timeout_s=CLOSE_S)

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            require_attempt(state, stamp.launch, stamp.attempt)
            update = ending.update if ending.reason != "failed" else state.recorded()
            return [
                AttemptEnded(
                    attempt=stamp.attempt,
                    reason=ending.reason,
                    update=update,
                    detail=ending.detail,
                    cause=ending.cause,
                )
            ]

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
