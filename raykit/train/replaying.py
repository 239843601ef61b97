"""The replay that a gang makes itself before it lets go of what it holds: each rank starts a process and waits for it.

The processes are a gang of their own, on the devices of this one, which has nothing on them any more. The lease of the
attempt pays. A replay that is stopped, takes too long or dies is recorded as not made, with why, and fails nothing.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from raykit.data.randomness import HASH_SEED
from raykit.errors import FencedError, LeaseLostError, RaykitError
from raykit.exactness import words_of
from raykit.reconcile import require_attempt
from raykit.records import Compared, Record, RunEntry, Unreplayed
from raykit.replays import Span, deadline_s, is_replayed, span_of, why_none, within_share
from raykit.store.base import ObjectStore
from raykit.store.log import RunLog
from raykit.store.people import harmless_of
from raykit.store.scratch import scratch
from raykit.train.directive import Directive
from raykit.train.gang import Gang
from raykit.train.hold import patiently
from raykit.train.inputs import Inputs, Task
from raykit.train.loop import Ending
from raykit.train.replay import Order, recorded
from raykit.train.rows import Rows, Stamp

POLL_S = 0.1
SAID_CHARS = 8_000
"""So much of what a process that failed has printed is kept."""
NO_PAIR = "it has no two checkpoints that one attempt made after its start, as the newest one trains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a process of this kind begins with, before a recipe has changed anything of it."""

    environ: Mapping[str, str]
    path: Sequence[str]

    @staticmethod
    def here() -> Surroundings:
        return Surroundings(environ=dict(os.environ), path=tuple(sys.path))

    def of_a_child(self) -> dict[str, str]:
        """The environment of a process that begins as this one did, and imports from where it does."""
        path = os.pathsep.join(path for path in self.path if path)
        return {**self.environ, "PYTHONPATH": path, "PYTHONHASHSEED": HASH_SEED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """One rank's part in a replay of its own run."""

    task: Task
    gang: Gang
    directive: Directive
    store: ObjectStore
    log: RunLog
    inputs: Inputs
    stamp: Stamp
    rows: Rows | None
    """On rank 0."""
    surroundings: Surroundings
    set_up_s: float
    """What the attempt took to begin."""

    def early(self) -> None:
        """Replay the newest part now, if that costs at most the plan's share of the run; training waits for it.

        Raises:
            FencedError: a newer attempt owns the run.
            LeaseLostError: the lease that this attempt works under has ended.
        """
        _, event = self._make(self.gang.leader_does(lambda: self._choose(early=True)))
        if event is not None:
            self._note(event)

    def at_the_end(self, ending: Ending) -> tuple[Ending, Compared | Unreplayed | None]:
        """Replay the newest part of a run that is complete, where its plan asks for that; what ends it early is said.

        Gives how the attempt ends, and on rank 0 what came of it: both are one entry of the log, since a run that has
        ended is not paused for what it was found to be.

        Raises:
            FencedError: a newer attempt owns the run.
            LeaseLostError: the lease that this attempt works under has ended.
        """
        run = self.inputs.plan.run
        asked = run.replay == "end" or run.checkpoint_every <= run.replay_share * run.updates
        if ending.reason != "completed" or self.inputs.setting is not None or not asked:
            return ending, None
        began, event = self._make(self.gang.leader_does(lambda: self._choose(early=False)))
        why = self.directive.why
        if not began or why is None:
            return ending, event
        paused = replace(
            ending,
            reason=self.directive.reason,
            detail=f"{why}; it was trained to its end, and being replayed",
            cause=self.directive.cause,
        )
        return paused, event

    # --- choosing, on rank 0 ------------------------------------------------------------------------------------

    def _choose(self, *, early: bool) -> dict[str, Any] | None:
        """What is replayed; None if nothing is. Where the plan asks for one and none can be made, it is said why."""
        try:
            if early and self.rows is not None:
                self.rows.through(self.rows.ticket(), timeout_s=self.task.hold_s)
            self.log.refresh()
            state = self.log.state
            plan = self.inputs.plan
            harmless = harmless_of(self.store, self.task.experiment, plan)
            if is_replayed(state) or why_none(plan.run.needed, state, harmless) is not None:
                return None
            due, span = plan.run.replay == "end" and not early, span_of(state)
            if span is None:
                return {"none": NO_PAIR} if due else None
            train_s = self._train_s(state.events, span)
            if not due and not self._within_share(span, train_s):
                return None
            return {
                "span": asdict(span),
                "meeting": self.gang.meet() if self.gang.world > 1 else None,
                "deadline_s": deadline_s(train_s=train_s, set_up_s=self.set_up_s),
            }
        except (FencedError, LeaseLostError):
            raise
        except RaykitError as error:
            print(f"not replayed: {error.kind}: {error}", flush=True)
            return None

    def _within_share(self, span: Span, train_s: float) -> bool:
        run = self.inputs.plan.run
        return within_share(
            span.updates,
            set_up_s=self.set_up_s,
            update_s=train_s / span.updates,
            of=run.updates,
            share=run.replay_share,
        )

    def _train_s(self, events: Sequence[object], span: Span) -> float:
        """How long the run took for these updates, as far as one attempt has trained them."""
        rows = list(recorded(self.store, events, "train", span))
        own = [row.elapsed_s for row in rows if row.attempt == span.attempt]
        return (own[-1] - own[0]) * span.updates / (len(own) - 1) if len(own) > 1 else 0.0

    # --- making it ----------------------------------------------------------------------------------------------

    def _make(self, chosen: Mapping[str, Any] | None) -> tuple[bool, Compared | Unreplayed | None]:
        """Make what rank 0 has chosen: whether that was begun, and on rank 0 what came of it."""
        if chosen is None or "none" in chosen:
            said = None if chosen is None or not self.gang.leads else self._missed(None, chosen["none"], None)
            return False, said
        span, meeting, allowed_s = Span(**chosen["span"]), chosen["meeting"], chosen["deadline_s"]
        if self.gang.leads:
            print(f"replaying {span.after:,} to {span.last:,} in another process", flush=True)
        _release(self.gang.device)
        start = time.monotonic()
        with scratch("replay") as folder:
            order = Order(
                task=self.task.plain(),
                span=asdict(span),
                attempt=self.stamp.attempt,
                rank=self.gang.rank,
                world=self.gang.world,
                device=str(self.gang.device),
                meeting=meeting,
                timeout_s=allowed_s,
                answer=str(folder / "answer.json"),
            )
            with Child(order, folder, self.surroundings) as child:
                why = self._wait(child, f"replay-{span.after}-{span.last}", start + allowed_s)
            if not self.gang.leads:
                return True, None
            took_s = round(time.monotonic() - start, 3)
            found = child.answer() if why is None else None
        if meeting is not None and meeting.startswith("file://"):
            shutil.rmtree(Path(meeting.removeprefix("file://")).parent, ignore_errors=True)
        if found is not None:
            found = found.model_copy(update={"took_s": took_s})
            print(f"{words_of(found)} ({took_s:.1f} s)", flush=True)
        return True, found or self._missed(span, why or "its process left no answer", took_s)

    def _wait(self, child: Child, name: str, until: float) -> str | None:
        """Until the process of this rank has ended; why it was ended, or failed, if it was."""
        while child.runs():
            why = self.directive.heard()
            if why is None and time.monotonic() > until:
                why = "it took longer than its time"
            if why is not None:
                self.gang.call_off(name)
                return why
            if self.gang.called_off(name):
                return "the process of another rank ended"
            time.sleep(POLL_S)
        if child.why is not None:
            self.gang.call_off(name)
            print(child.said(), flush=True)
        return child.why

    # --- saying it ----------------------------------------------------------------------------------------------

    def _missed(self, span: Span | None, why: str, took_s: float | None) -> Unreplayed:
        print(f"not replayed: {why}", flush=True)
        return Unreplayed(
            attempt=self.stamp.attempt,
            first=None if span is None else span.after + 1,
            last=None if span is None else span.last,
            why=why[:2000],
            took_s=took_s,
        )

    def _note(self, event: Compared | Unreplayed) -> None:
        """Put it into the log, once; a store that stays away costs the replay, and nothing else."""

        def decide(entries: Sequence[RunEntry]) -> list[Record]:
            state = self.log.state
            require_attempt(state, self.stamp.launch, self.stamp.attempt)
            return [] if event in (*state.compared, *state.unreplayed) else [event]

        try:
            patiently(lambda: self.log.append(decide, at=time.time()), hold_s=self.task.hold_s)
        except FencedError:
            raise
        except RaykitError as error:
            print(f"what came of the replay could not be written: {error.kind}: {error}", flush=True)


def _release(device: torch.device) -> None:
    """Let go of what training has left on the device: another process needs as much."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Child:
    """The process of one rank. It ends with the block, and with this process: what it reads from closes then."""

    def __init__(self, order: Order, folder: Path, surroundings: Surroundings) -> None:
        self._answer = Path(order.answer)
        self._said = folder / "said.txt"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "raykit.train.replay"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=surroundings.of_a_child(),
                start_new_session=True,  # a Ctrl-C is for the launch, which ends this one
            )
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order.line()}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended already: what it said tells why

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass

    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def why(self) -> str | None:
        """Why it failed; None if it did not."""
        code = self._process.poll()
        if not code:
            return None
        lines = [line.strip() for line in self.said().split("\n") if line.strip()]
        last = lines[-1] if lines else "it said nothing"
        return f"its process ended with {code}: {last}"

    def said(self) -> str:
        """The last that it printed."""
        return self._said.read_text("utf-8", "replace")[-SAID_CHARS:]

    def answer(self) -> Compared | None:
        """What rank 0 has left; None if there is nothing."""
        try:
            return Compared.from_bytes(self._answer.read_bytes(), "the answer of a replay")
        except (FileNotFoundError, RaykitError):
            return None
