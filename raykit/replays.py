"""Replays: which part of a run another process trains again, what that may cost, and why none was made.

A replay restores a checkpoint that was made in the middle of an attempt, trains through the next one and a little
beyond it where rows are, and has to come to the same rows, evaluations and files. A checkpoint that an attempt began
with proves nothing: what no checkpoint holds began anew there too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from raykit import exactness
from raykit.plan import Plan
from raykit.reconcile import RunState
from raykit.records import AttemptStarted, Commit

BEYOND: Final = 2
"""So many updates after the second checkpoint are compared too, where they are recorded."""
SLOWER: Final = 5
"""A replay that takes so many times as long as the run took has to end."""
SPARE_S: Final = 60.0
"""What a new process may take beside that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The updates `after` + 1 to `last`, from the checkpoint at `after` that `attempt` made."""

    attempt: int
    after: int
    last: int

    @property
    def updates(self) -> int:
        return self.last - self.after


# --- which part -----------------------------------------------------------------------------------------------


def span_of(state: RunState) -> Span | None:
    """The newest part of a run that can be replayed as its newest attempt trains; None if there is none."""
    found = next(_pairs(state), None)
    if found is None:
        return None
    one, other = found
    return Span(
        attempt=one.attempt, after=one.update, last=max(other.update, min(other.update + BEYOND, state.rows))
    )


def _pairs(state: RunState) -> Iterator[tuple[Commit, Commit]]:
    """Two checkpoints that follow each other, both made by one attempt after its start."""
    by_number = {attempt.attempt: attempt for attempt in state.attempts}
    for one, other in reversed(list(pairwise(state.commits))):
        made_by = by_number.get(one.attempt)
        if made_by is None or one.attempt != other.attempt or one.update <= start_of(made_by):
            continue
        newest = state.attempt
        if newest is not None and alike(made_by, newest) and made_by.facts.keys() == newest.facts.keys():
            yield one, other  # an older raykit, which recorded less, is another one


def start_of(attempt: AttemptStarted) -> int:
    """The update that an attempt began at."""
    return 0 if attempt.resume is None else attempt.resume.update


def alike(one: AttemptStarted, other: AttemptStarted) -> bool:
    """Whether two attempts train the same in the same surroundings, as far as both recorded them."""
    what = ("plan", "code", "data", "world_size")
    same = all(getattr(one, name) == getattr(other, name) for name in what)
    return same and same_facts(one.facts, other.facts)


def same_facts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether facts are equal, as far as both are recorded."""
    return all(one[name] == other[name] for name in one.keys() & other.keys())


# --- what it may cost -----------------------------------------------------------------------------------------


def early_at(plan: Plan, after: int) -> int | None:
    """Behind which update of an attempt that began at `after` an early replay may be made: behind its second checkpoint
    on the cadence. None where its updates alone cost too much, or it comes too late to be early."""
    run = plan.run
    at = (after // run.checkpoint_every + 2) * run.checkpoint_every + BEYOND
    costs = run.checkpoint_every + BEYOND
    return at if at < run.updates and costs <= run.replay_share * run.updates else None


def within_share(updates: int, *, set_up_s: float, update_s: float, of: int, share: float) -> bool:
    """Whether training so many updates again in a process that takes `set_up_s` to begin costs at most `share` of a
    run `of` so many updates, at the rate that was measured."""
    return update_s > 0.0 and updates + set_up_s / update_s <= share * of


def due_beside(
    plan: Plan, state: RunState, span: Span, *, set_up_s: float, update_s: float, harmless: Set[str]
) -> bool:
    """Whether a worker beside the run may take a replay of this part: an early one that costs little, or one that the
    plan asks for and nobody has made; each run has one try of that kind."""
    if state.replaying or is_replayed(state) or why_none(plan.run.needed, state, harmless) is not None:
        return False
    if state.completed:
        return plan.run.replay == "end"
    of, share = plan.run.updates, plan.run.replay_share
    return within_share(span.updates, set_up_s=set_up_s, update_s=update_s, of=of, share=share)


def deadline_s(*, train_s: float, set_up_s: float) -> float:
    """So long a replay may take of what took `train_s`, in a process like one that took `set_up_s` to begin."""
    return SLOWER * (train_s + set_up_s) + SPARE_S


# --- what is said ---------------------------------------------------------------------------------------------


def is_replayed(state: RunState) -> bool:
    """Whether a part of the run was replayed, as its newest attempt trains."""
    by_number = {attempt.attempt: attempt for attempt in state.attempts}
    made_by = (by_number.get(event.against) for event in state.compared if event.how == "replay")
    return any(one is not None and state.attempt is not None and alike(one, state.attempt) for one in made_by)


def why_none(needed: str, state: RunState, harmless: Set[str] = frozenset()) -> str | None:
    """Why a replay of this run is out of the question, where a resume has to be `needed`; None if one may be made."""
    if needed != "exact":
        return f"not replayed: the plan needs only {needed}"
    bound = exactness.bound(state, harmless)
    return None if bound == "exact" else f"not replayed: the run is only {bound}"


def why_not_replayed(
    state: RunState, *, asked: str, needed: str, harmless: Set[str] = frozenset()
) -> str | None:
    """Why nobody has replayed a run, in a few words; None if somebody has. `asked` is `run.replay`, `needed` is
    `run.resume`."""
    if any(event.how == "replay" for event in state.compared):
        return None
    none = why_none(needed, state, harmless)
    if none is not None or state.attempt is None:
        return none
    if state.unreplayed:
        return f"not replayed: {state.unreplayed[-1].why}"
    if asked == "never":
        return "no replay at the end was asked for (run.replay)"
    if not state.completed:
        return "replayed at the end (run.replay)"
    return (
        "not replayed: nothing to replay"
        if span_of(state) is None
        else f"not replayable here: {needs(state.attempt)}"
    )


def needs(attempt: AttemptStarted) -> str:
    """What a replay of an attempt has to run on: `needs 8 x H100`."""
    facts = attempt.facts
    model = facts.get("device_model", "the same machine")
    kind = model if facts.get("device") != "cpu" else f"{model} ({facts.get('cpu_capability', 'CPU')})"
    return f"needs {attempt.world_size} x {kind.removeprefix('NVIDIA ')}"


__all__ = [
    "BEYOND",
    "Span",
    "alike",
    "deadline_s",
    "due_beside",
    "early_at",
    "is_replayed",
    "needs",
    "same_facts",
    "span_of",
    "start_of",
    "why_none",
    "why_not_replayed",
    "within_share",
]
