"""Settings that a sampler learns: Optuna's tree of Parzen estimators, asked once for every row.

Each time a study is made anew from what the ended rows came to, in the order of the table, and asked once under a seed
of the row's own: an answer depends on nothing else, least of all on which row ended first. Nothing of Optuna is kept,
since the table and its log are what a killed search goes on from.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from raykit.ids import canonical, sha256
from raykit.plan.tables import Range
from raykit.search import RowState, SearchState, Space, distinct, space_of
from raykit.search.space import rounded

STARTUP = 10
"""At most so many trials are drawn at random before anything is learned from them; of a short table, a third."""


def draw(state: SearchState, row: int) -> dict[str, Any]:
    """The setting of a trial that has none yet, from what the trials that have ended by now came to."""
    space = space_of(state.registration)
    taken = {canonical(each.params) for each in state.trials if each.params is not None}
    return distinct(partial(_ask, state, space, row), space, taken)


def _ask(state: SearchState, space: Space, row: int, again: int) -> dict[str, Any]:
    distributions = {name: _distribution(space[name]) for name in sorted(space)}
    with _silent():
        study = _study(state, _seed(state, row, again))
        for each in state.trials:
            if (told := _told(each, space, distributions)) is not None:
                study.add_trial(told)
        asked = study.ask(distributions).params
    return {name: _value(space[name], asked[name]) for name in distributions}


def _study(state: SearchState, seed: int) -> optuna.Study:
    startup = min(STARTUP, math.ceil(len(state.trials) / 3))
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
    direction = StudyDirection.MINIMIZE if state.registration.mode == "min" else StudyDirection.MAXIMIZE
    return optuna.create_study(sampler=sampler, direction=direction)


def _seed(state: SearchState, row: int, again: int) -> int:
    """32 bits of its own for every row, and for every time that it is asked."""
    return int(sha256(canonical([state.registration.sampler["seed"], row, again]))[:8], 16)


def _told(row: RowState, space: Space, distributions: Mapping[str, BaseDistribution]) -> FrozenTrial | None:
    """What an ended row tells; None if it says nothing about its setting."""
    if row.ended is None or row.params is None:
        return None
    params = {name: _index(space[name], row.params[name]) for name in distributions}
    made = partial(create_trial, params=params, distributions=dict(distributions))
    value = row.ended.value
    match row.ended.end:
        case "completed" if value is not None:
            return made(value=value)
        case "completed" | "failed":
            return made(state=TrialState.FAIL)
        case "stopped-by-scheduler" | "censored-by-budget" if value is not None:
            at = row.ended.update if row.ended.at is None else row.ended.at
            return made(state=TrialState.PRUNED, intermediate_values={at: value})
    return None


# --- a space, as Optuna has it ----------------------------------------------------------------------------------


def _distribution(span: Range) -> BaseDistribution:
    """Of a choice, the places of its values: Optuna takes only plain ones."""
    if span.choice is not None:
        return CategoricalDistribution(tuple(range(len(span.choice))))
    if span.integer is not None:
        return IntDistribution(*span.integer)
    if span.loguniform is not None:
        return FloatDistribution(*span.loguniform, log=True)
    assert span.uniform is not None
    return FloatDistribution(*span.uniform)


def _index(span: Range, value: Any) -> Any:
    return value if span.choice is None else span.index(value)


def _value(span: Range, asked: Any) -> Any:
    if span.choice is not None:
        return span.value(asked)
    if span.integer is not None:
        return int(asked)
    ends = span.loguniform or span.uniform
    assert ends is not None
    return rounded(float(asked), *ends)


@contextmanager
def _silent() -> Iterator[None]:
    """Optuna tells of every study that it makes."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
