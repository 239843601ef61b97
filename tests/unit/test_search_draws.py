"""Settings that a sampler learns: a pure function of the table and of what ended rows came to.

# covers TUNE-03, TUNE-05, RAY-12
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import subprocess
import sys
from typing import Any

import optuna
import pytest
from maketable import a_search, begun, drawn, ended, play, registered, ruled

from raykit.fleet.search.draws import draw
from raykit.records import Record
from raykit.search import SearchState, space_of

LEARNS = a_search(trials=20, sampler="optuna.tpe")
ROW = 12


def one_row(n: int, end: str = "completed") -> list[Record]:
    """Row `n` from its setting to its end; it is the better the nearer its rate is to 0.003."""
    lr = 10 ** (-5 + 4 * ((n * 7) % 11) / 10)
    params = {"lr": lr, "size": (8, 16, "large")[n % 3], "depth": n % 9 + 1, "tilt": n / 50}
    events: list[Record] = [drawn(n, params), begun(n)]
    value = None if end == "failed" else abs(math.log10(lr / 0.003))
    if end == "stopped-by-scheduler":
        events.append(ruled(n))
    return [*events, ended(n, value, end)]  # type: ignore[arg-type]


def learned(*rows: int) -> SearchState:
    return play(LEARNS, *itertools.chain.from_iterable(one_row(n) for n in rows))


def test_a_setting_is_one_of_the_space_and_none_that_was_tried() -> None:
    space = space_of(registered(LEARNS))
    state = play(LEARNS)
    seen: list[dict[str, Any]] = []
    for n in range(1, 21):
        params = draw(state, n)
        assert params.keys() == space.keys()
        assert all(space[name].holds(value) for name, value in params.items())
        assert json.loads(json.dumps(params)) == params
        assert params not in seen
        seen.append(params)
        events = [drawn(n, params), begun(n), ended(n, params["tilt"])]
        state = play(LEARNS, *(e for k, p in enumerate(seen[:-1], 1) for e in _done(k, p)), *events)


def _done(n: int, params: dict[str, Any]) -> list[Record]:
    return [drawn(n, params), begun(n), ended(n, params["tilt"])]


def test_the_order_in_which_rows_ended_does_not_matter() -> None:
    first = draw(learned(*range(1, 12)), ROW)
    assert draw(learned(*reversed(range(1, 12))), ROW) == first
    assert draw(learned(5, 1, 11, 3, 9, 7, 2, 4, 10, 8, 6), ROW) == first


def test_what_ended_rows_came_to_matters_and_so_do_the_row_and_the_seed() -> None:
    first = draw(learned(*range(1, 12)), ROW)
    assert draw(learned(*range(1, 11)), ROW) != first
    assert draw(learned(*range(1, 12)), ROW + 1) != first
    other = a_search(trials=20, sampler="optuna.tpe", seed=8)
    events = itertools.chain.from_iterable(one_row(n) for n in range(1, 12))
    assert draw(play(other, *events), ROW) != first


def test_rows_that_run_are_not_learned_from() -> None:
    """A killed process that comes back when more rows are under way draws the same."""
    before = learned(*range(1, 11))
    events = [*itertools.chain.from_iterable(one_row(n) for n in range(1, 11)), *one_row(11)[:2]]
    assert draw(play(LEARNS, *events), ROW) == draw(before, ROW)


@pytest.mark.parametrize("end", ["failed", "stopped-by-scheduler", "censored-by-budget"])
def test_rows_that_were_not_completed_are_no_hindrance(end: str) -> None:
    events = [*itertools.chain.from_iterable(one_row(n) for n in range(1, 11)), *one_row(11, end)]
    space = space_of(registered(LEARNS))
    params = draw(play(LEARNS, *events, ended(20, end="never-started")), ROW)
    assert all(space[name].holds(value) for name, value in params.items())


def test_another_process_draws_the_same() -> None:
    # covers I11: nothing is drawn anew after a kill
    program = (
        "import json; from test_search_draws import learned, ROW; from raykit.fleet.search.draws import draw\n"
        "print(json.dumps(draw(learned(*range(1, 12)), ROW), sort_keys=True))"
    )
    folder = __file__.rpartition("/")[0]
    environment = {"PYTHONPATH": f"{folder}:{folder.rpartition('/')[0]}", "PYTHONHASHSEED": "77"}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert json.loads(found.stdout) == draw(learned(*range(1, 12)), ROW)
    assert found.stderr == ""


def test_it_learns() -> None:
    """After eleven rows, draws are nearer to the best rate than at random: so it does for thirty rows each."""
    table = a_search(trials=60, sampler="optuna.tpe")
    events = list(itertools.chain.from_iterable(one_row(n) for n in range(1, 24)))
    taught, fresh = play(table, *events), play(table)

    def off(state: SearchState) -> float:
        return sum(abs(math.log10(draw(state, n)["lr"] / 0.003)) for n in range(24, 54)) / 30

    print(f"seed 7: mean distance in decades {off(taught):.2f}, at random {off(fresh):.2f}")
    assert off(taught) < 0.75 * off(fresh)


def test_a_small_space_is_used_up_before_anything_is_tried_twice() -> None:
    space = {"size": {"choice": [8, [1, 2], None]}, "depth": {"integer": [1, 2]}}
    table = a_search(trials=6, sampler="optuna.tpe", space=space)
    events: list[Record] = []
    for n in range(1, 7):
        params = draw(play(table, *events), n)
        events += [drawn(n, params), begun(n), ended(n, float(n))]
    assert len({json.dumps(event.params) for event in events if event.event == "drawn"}) == 6  # type: ignore[attr-defined]


def test_optuna_is_silent_and_stays_as_loud_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    optuna.logging.enable_propagation()
    before = optuna.logging.get_verbosity()
    try:
        optuna.logging.set_verbosity(logging.DEBUG)
        with caplog.at_level(logging.DEBUG, "optuna"):
            draw(learned(1, 2, 3), 4)
        assert optuna.logging.get_verbosity() == logging.DEBUG
        assert caplog.records == []
    finally:
        optuna.logging.set_verbosity(before)
        optuna.logging.disable_propagation()
