"""A worker that makes the replay of a run between its other units, where its process is like those that train.

    worker = Beside(inner, store, "digits", "main", root=root, name="qc-1", lease=lease, surroundings=surroundings)

It is taken by an entry in the run's log, so that nobody else begins one, and what came of it is another. A worker that
dies in it leaves it to the gang, which makes it before it lets go.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from raykit.data.randomness import HASH_SEED
from raykit.errors import RaykitError
from raykit.ids import digest_of
from raykit.plan import Plan, contract
from raykit.read.sizing import Times, measure
from raykit.reconcile import RunState
from raykit.records import CODE_OF, AttemptStarted, Compared, Record, Replaying, RunEntry, Unreplayed
from raykit.replays import Span, deadline_s, due_beside, is_replayed, span_of
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import harmless_of
from raykit.store.place import this_place
from raykit.store.plans import read_run_plan
from raykit.store.scratch import scratch
from raykit.train import facts
from raykit.train.gang import alone
from raykit.train.inputs import Task
from raykit.train.replay import Order
from raykit.train.replaying import Child, Surroundings
from raykit.work.puller import ENDS, Hand, Puller, Turn, surely

POLL_S: Final = 0.2
SIGN_S: Final = 5.0
"""So often it shows its pool that it goes on: a replay has a time of its own, which is not that of a check."""


class Beside:
    """A `Puller`: another one, and the replay of one run once that has nothing to do."""

    def __init__(
        self,
        inner: Puller,
        store: ObjectStore,
        experiment: str,
        run: str,
        *,
        root: str,
        name: str,
        lease: str | None,
        surroundings: Surroundings,
    ) -> None:
        self._inner = inner
        self._store = store
        self._experiment = experiment
        self._run = run
        self._root = root
        self._name = name
        self._lease = lease
        self._surroundings = surroundings
        self._log = RunLog(store, experiment, run, by=name)
        self._hand: Hand | None = None
        self._fits: dict[int, bool] = {}
        """By attempt: whether this process has the facts that it had."""

    @property
    def hand(self) -> Hand | None:
        return self._hand or self._inner.hand

    @property
    def tally(self) -> Mapping[str, float]:
        return self._inner.tally

    def turn(self) -> Turn:
        """One unit, or where there is none the replay, if it is due.

        Raises:
            CorruptError: a log or a record is damaged.
            UnknownOutcomeError: a write was not answered, and nothing is in hand: take another turn.
            StoreUnavailableError: the store did not answer, and nothing is in hand.
        """
        turn = self._inner.turn()
        if turn.kind not in ENDS or turn.kind == "paused":
            return turn
        found = self._due()
        return turn if found is None else self._replay(*found)

    # --- whether it is due --------------------------------------------------------------------------------------

    def _due(self) -> tuple[AttemptStarted, Span, Times] | None:
        self._log.refresh()
        state = self._log.state
        attempt, span = state.attempt, span_of(state)
        if attempt is None or span is None or (state.ended is not None and not state.completed):
            return None
        if state.replaying or is_replayed(state) or state.stop is not None:
            return None
        plan = read_run_plan(self._store, self._experiment, self._run, attempt.plan)
        times = measure(self._store, self._experiment, self._run)
        if times is None or not self._is_due(plan, state, span, times) or not self._fit(plan, attempt):
            return None
        return attempt, span, times

    def _is_due(self, plan: Plan, state: RunState, span: Span, times: Times) -> bool:
        return due_beside(
            plan,
            state,
            span,
            set_up_s=times.setup_ms / 1000,
            update_s=times.update_ms / 1000,
            harmless=harmless_of(self._store, self._experiment, plan),
        )

    def _fit(self, plan: Plan, attempt: AttemptStarted) -> bool:
        """Whether a process of this machine, with what this one was granted, is like the one that trains."""
        if attempt.attempt not in self._fits:
            here = facts.here(alone(facts.local_device(plan, facts.accelerators_here())), plan.run.threads)
            here["hash_seed"] = HASH_SEED  # that of the process that replays it
            # what code from outside it imports, the process that replays it finds out
            was = {name: fact for name, fact in attempt.facts.items() if not name.startswith(CODE_OF)}
            self._fits[attempt.attempt] = attempt.world_size == 1 and was == here
        return self._fits[attempt.attempt]

    # --- making it ----------------------------------------------------------------------------------------------

    def _replay(self, attempt: AttemptStarted, span: Span, times: Times) -> Turn:
        taken = Replaying(
            attempt=attempt.attempt,
            first=span.after + 1,
            last=span.last,
            worker=self._name,
            place=this_place(),
            lease=self._lease,
        )
        if not self._say(taken):
            return Turn(kind="nothing")
        what, start = f"the replay of {span.after:,} to {span.last:,}", time.monotonic()
        allowed_s = deadline_s(train_s=span.updates * times.update_ms / 1000, set_up_s=times.setup_ms / 1000)
        try:
            found = self._made(attempt, span, what, allowed_s)
        finally:
            self._hand = None
        took_s = round(time.monotonic() - start, 3)
        if isinstance(found, str):
            first, last = span.after + 1, span.last
            self._say(
                Unreplayed(attempt=attempt.attempt, first=first, last=last, why=found[:2000], took_s=took_s)
            )
        else:
            self._say(found.model_copy(update={"took_s": took_s}))
        return Turn(kind="already", what=what, took_ms=int(1000 * took_s))

    def _made(self, attempt: AttemptStarted, span: Span, what: str, allowed_s: float) -> Compared | str:
        """What it found, or why it found nothing."""
        plan = read_run_plan(self._store, self._experiment, self._run, attempt.plan)
        task = Task(
            root=self._root,
            experiment=self._experiment,
            run=self._run,
            launch=attempt.launch,
            plan=attempt.plan,
            contract=digest_of(contract(plan)),
            code=attempt.code,
            data=attempt.data,
        )
        since, until = time.time(), time.monotonic() + allowed_s
        with scratch("replay") as folder:
            order = Order(
                task=task.plain(),
                span=asdict(span),
                attempt=attempt.attempt,
                rank=0,
                world=1,
                device=facts.local_device(plan, facts.accelerators_here()),
                meeting=None,
                timeout_s=allowed_s,
                answer=str(folder / "answer.json"),
            )
            with Child(order, folder, self._surroundings) as child:
                while child.runs():
                    if time.monotonic() > until:
                        return "it took longer than its time"
                    signs = int((time.time() - since) / SIGN_S)
                    self._hand = Hand(unit="replay", what=what, n=1, since=since + signs * SIGN_S)
                    time.sleep(POLL_S)
                why = child.why
            return why or child.answer() or "its process left no answer"

    def _say(self, event: Replaying | Compared | Unreplayed) -> bool:
        """Put it into the run's log; False if somebody else has taken it, or made it, before."""

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self._log.state
            over = is_replayed(state) or (isinstance(event, Replaying) and bool(state.replaying))
            return [] if over or event in state.events else [event]

        try:
            return surely(lambda: self._log.append(decide, at=time.time())) is not None
        except RaykitError:
            if isinstance(event, Replaying):
                raise
            return False  # what came of it is lost: it counts as not made


__all__ = ["Beside"]
