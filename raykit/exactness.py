"""How much a run is the run that was never interrupted, and what that rests on.

    exact (replayed)    another process restored this checkpoint, or trained up to it again, to the same bits
    exact (declared)    nothing that was compared speaks against it, and nobody has trained it twice
    state-exact, ...    what was measured, found or allowed is less; the class says how much

A class falls and never rises: what the resume gate measured is its upper bound, and what was trained twice to other
bits, or changes without being saved, lowers it from that update on. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from raykit.reconcile import RunState
from raykit.records import EXACTNESS, AttemptStarted, Commit, Compared, Exactness, Undeclared

Basis = Literal["replayed", "declared"]

RESUME_GATE = "resume"
"""The gate that measures how exact a resume of the run is."""


@dataclass(frozen=True, slots=True)
class Class:
    """An exactness class, and what it rests on where it is the highest."""

    exactness: Exactness
    basis: Basis | None = None

    @property
    def words(self) -> str:
        """`exact (replayed)`, `state-exact`."""
        return f"{self.exactness} ({self.basis})" if self.basis else self.exactness


DECLARED = Class("exact", "declared")
"""Of what nothing is known that speaks against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """What lowered a run, from which update on."""

    update: int
    to: Exactness
    words: str


def falls(state: RunState, harmless: Set[str] = frozenset()) -> tuple[Fall, ...]:
    """All that has lowered a run since its gates, the first one first. What is `harmless` lowers nothing."""
    found = [*_of_comparisons(state.compared), *_of_undeclared(state.undeclared, harmless)]
    return tuple(sorted(found, key=lambda fall: fall.update))


def bound(state: RunState, harmless: Set[str] = frozenset()) -> Exactness:
    """The highest class that anything later in this run can have."""
    return least(measured(state), *(fall.to for fall in falls(state, harmless)))


def measured(state: RunState) -> Exactness:
    """What the run's own resume gate measured; `exact` where nobody wrote it down."""
    gate = state.gates.get(RESUME_GATE)
    return "exact" if gate is None or gate.exactness is None else gate.exactness


def name_of(path: str) -> str:
    """A path with its positions left open: `model.layers.3.calls` is `model.layers.*.calls`."""
    return re.sub(r"(?<=[.\[])\d+(?=[.\[\]]|$)", "*", path)


def covers(said: Collection[str], path: str) -> bool:
    """Whether one of the names that were `said` is that of a path, or of something that holds it."""
    name = name_of(path)
    return any(_covers(each, name) or _covers(each, path) for each in said)


def _covers(said: str, name: str) -> bool:
    if name == said or (name.startswith(said) and name[len(said)] in ".[("):
        return True
    return "*" in said and "[" not in said and fnmatchcase(name, said)


def least(*classes: Exactness) -> Exactness:
    """The lowest of some classes."""
    return max(classes, key=EXACTNESS.index, default="exact")


def of_commit(state: RunState, commit: Commit, harmless: Set[str] = frozenset()) -> Class:
    """The class of a checkpoint, as everything known today leaves it."""
    lowered = (fall.to for fall in falls(state, harmless) if fall.update <= commit.update)
    return _resting(least(commit.exactness, measured(state), *lowered), state, commit.update)


def of_attempt(state: RunState, attempt: AttemptStarted, harmless: Set[str] = frozenset()) -> Class:
    """The class of an attempt's start: of its resume, or of the run's beginning."""
    resume = attempt.resume
    if resume is None:
        return _resting(measured(state), state, 0)
    source = next(
        (c for c in state.commits if (c.update, c.attempt) == (resume.update, resume.attempt)), None
    )
    before = "exact" if source is None else source.exactness
    later = (event.lowers for event in state.compared if event.lowers and event.attempt <= attempt.attempt)
    return _resting(least(resume.exactness, before, measured(state), *later), state, resume.update)


def of_run(state: RunState, harmless: Set[str] = frozenset()) -> Class:
    """The class of a run as it stands: that of its newest attempt and checkpoint together."""
    classes = [bound(state, harmless)]
    if state.attempt is not None:
        classes.append(of_attempt(state, state.attempt, harmless).exactness)
    if state.commits:
        classes.append(of_commit(state, state.commits[-1], harmless).exactness)
    found = least(*classes)
    if found != "exact":
        return Class(found)
    return Class(found, "replayed" if any(map(_equal_replay, state.compared)) else "declared")


def words_of(event: Compared) -> str:
    """One comparison: what was equal, or the first thing that is not, and whether it had to be."""
    updates = f"updates {event.first:,} to {event.last:,}"
    what = "trained again" if event.how == "overlap" else "replayed in another process"
    if event.difference is not None:
        allowed = "" if event.lowers is not None else ", as its class allows"
        return f"{updates}, {what}: not equal{allowed}; first at {event.difference.words}"
    counts = ((event.rows, "row"), (event.evaluations, "evaluation"), (event.manifests, "checkpoint"))
    told = ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in counts if count)
    return f"{updates}, {what}: equal to the bit ({told})"


def _resting(exactness: Exactness, state: RunState, update: int) -> Class:
    if exactness != "exact":
        return Class(exactness)
    shown = any(_equal_replay(event) and event.first - 1 <= update <= event.last for event in state.compared)
    return Class(exactness, "replayed" if shown else "declared")


def _equal_replay(event: Compared) -> bool:
    return event.how == "replay" and event.difference is None


def _of_comparisons(compared: Iterable[Compared]) -> Iterator[Fall]:
    for event in compared:
        if event.lowers is None or event.difference is None:
            continue
        again = f"attempt {event.attempt}" if event.how == "overlap" else "a replay"
        update = event.difference.update if event.how == "overlap" else event.first - 1
        words = f"{again} trained what attempt {event.against} had recorded to other bits: {event.difference.words}"
        yield Fall(update=update, to=event.lowers, words=words)


def _of_undeclared(undeclared: Iterable[Undeclared], harmless: Set[str]) -> Iterator[Fall]:
    for event in undeclared:
        names = [name for name in event.names if not covers(harmless, name)]
        if names:
            words = f"at update {event.update:,} training had changed {', '.join(names)}, which no checkpoint holds"
            yield Fall(update=event.update, to=event.lowers, words=words)


__all__ = [
    "DECLARED",
    "RESUME_GATE",
    "Basis",
    "Class",
    "Fall",
    "bound",
    "covers",
    "falls",
    "least",
    "measured",
    "name_of",
    "of_attempt",
    "of_commit",
    "of_run",
    "words_of",
]
