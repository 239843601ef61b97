"""Terms that relate the rows of a batch, examined: in batches of the roster that are the same for every checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from raykit.errors import CorruptError
from raykit.plan import plan_with
from raykit.qc.scores import Outcome, Term
from raykit.store.base import ObjectStore
from raykit.store.plans import read_lock, read_locks, read_plan, read_setting

T = TypeVar("T")


def batches(units: Sequence[T], size: int) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
    """Units in their order as batches of one size, each with those whose score it is.

    The last one is filled up from the start: with fewer rows to compare, a term is easier.
    """
    for first in range(0, len(units), size):
        own = units[first : first + size]
        yield own, [*own, *units[: max(0, min(size, len(units)) - len(own))]]


def shared(outcome: Outcome, terms: Mapping[str, Term], relating: Collection[str], rows: int) -> Outcome:
    """What came of one of the units of a batch, with its share of the batch's terms."""
    assert outcome.numbers is not None
    whole = {name: replace(terms[name], elements=terms[name].elements / rows) for name in relating}
    numbers = replace(outcome.numbers, terms={**outcome.numbers.terms, **whole})
    if not numbers.finite():
        return replace(outcome, end="nonfinite", numbers=None)
    return replace(outcome, numbers=numbers)


def micro_batch(store: ObjectStore, experiment: str, suite: str, run: str) -> int:
    """How many rows meet in a micro-batch of the run, by the newest lock of that suite.

    Raises:
        CorruptError: no lock of the experiment has that suite, or one is damaged.
        StoreUnavailableError: the store did not answer.
    """
    for locked in reversed(read_locks(store, experiment)):
        if read_lock(store, experiment, locked.plan).suite == suite:
            setting = read_setting(store, experiment, run)
            chosen = plan_with(read_plan(store, experiment, locked.plan), setting).run
            return chosen.batch // (chosen.workers * chosen.accumulate)
    raise CorruptError(f"no lock of {experiment} has the suite {suite}", rule="I3")
