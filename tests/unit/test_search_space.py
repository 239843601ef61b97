"""The settings of a search: what a space holds, a grid, draws at random, and the rows that are registered of them.

# covers TUNE-03, TUNE-05, TUNE-14
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from maketable import RUN_SEED, SPACE, a_search, registered

from raykit.ids import canonical
from raykit.plan.tables import Range, as_value
from raykit.search import distinct, grid, row_of, rows_of, run_of, space_of
from raykit.search.space import drawn

FINITE = {"size": {"choice": [8, 16]}, "depth": {"integer": [1, 3]}}


def a_range(**form: Any) -> Range:
    return Range.model_validate_json(json.dumps(form))


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "inside", "outside"),
    [
        ({"uniform": [0, 1]}, [0, 0.5, 1], [-0.1, 1.1, True, "0.5", None]),
        ({"loguniform": [1e-5, 1e-1]}, [1e-5, 0.01], [0, -1.0, 0.2, math.inf]),
        ({"integer": [2, 4]}, [2, 3, 4], [1, 5, 2.0, 2.5, True]),
        ({"choice": [1, "a", False, [2, 3]]}, [1, 1.0, "a", False, [2, 3]], [True, 0, "b", [3, 2], None]),
    ],
)
def test_a_range_holds_its_own_values(form: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    span = a_range(**form)
    assert [value for value in inside if not span.holds(value)] == []
    assert [value for value in outside if span.holds(value)] == []
    assert all(as_value(span.cast(value)) == as_value(value) for value in inside)


def test_what_is_named_first_is_written_as_it_would_be_drawn() -> None:
    first = [{"lr": 1e-3, "size": 16.0, "depth": 3, "tilt": 0}]
    row = rows_of(a_search(first=first), RUN_SEED)[0]
    assert canonical(row.params) == b'{"depth":3,"lr":0.001,"size":16,"tilt":0.0}'


# --- a grid -------------------------------------------------------------------------------------------------


def test_a_grid_has_every_setting_once_and_those_named_first_come_first() -> None:
    first = [{"size": 16, "depth": 2}]
    rows = rows_of(a_search(sampler="grid", trials=6, space=FINITE, first=first), RUN_SEED)
    settings_ = [canonical(row.params) for row in rows]
    assert len(set(settings_)) == len(rows) == 6
    assert rows[0].params == first[0]
    assert {canonical(params) for params in grid(space_of(registered(a_search(space=FINITE))))} == set(
        settings_
    )
    assert [row.row for row in rows] == [1, 2, 3, 4, 5, 6]
    assert {row.seed for row in rows} == {RUN_SEED}


# --- at random ----------------------------------------------------------------------------------------------


def test_a_draw_depends_on_the_seed_the_row_and_the_name_alone() -> None:
    space = a_search().space
    reversed_ = dict(reversed(space.items()))
    assert drawn(space, 7, 3) == drawn(reversed_, 7, 3)
    fewer = {name: span for name, span in space.items() if name != "lr"}
    assert {**drawn(fewer, 7, 3), "lr": drawn(space, 7, 3)["lr"]} == drawn(space, 7, 3)
    others = [drawn(space, 8, 3), drawn(space, 7, 4), drawn(space, 7, 3, 1)]
    assert all(other["lr"] != drawn(space, 7, 3)["lr"] for other in others)


def test_a_table_is_the_same_in_another_process() -> None:
    program = (
        "from maketable import a_search, RUN_SEED; from raykit.search import rows_of\n"
        "from raykit.ids import canonical\n"
        "rows = rows_of(a_search(trials=20, repeats=(2, (2, 3))), RUN_SEED)\n"
        "print(canonical([row.plain() for row in rows]).decode())"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=__file__.rpartition("/unit/")[0], check=True, capture_output=True
    )
    rows = rows_of(a_search(trials=20, repeats=(2, (2, 3))), RUN_SEED)
    assert found.stdout.decode().strip() == canonical([row.plain() for row in rows]).decode()


NUMBERS = st.floats(-1e300, 1e300, allow_nan=False)
SPANS = st.one_of(
    st.tuples(NUMBERS, NUMBERS).filter(lambda p: p[0] < p[1]).map(lambda p: {"uniform": list(p)}),
    st.tuples(st.floats(1e-300, 1e300), st.floats(1e-300, 1e300))
    .filter(lambda p: p[0] < p[1])
    .map(lambda p: {"loguniform": list(p)}),
    st.tuples(st.integers(-(2**53), 2**53), st.integers(-(2**53), 2**53))
    .filter(lambda p: p[0] < p[1])
    .map(lambda p: {"integer": list(p)}),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.booleans()), min_size=1, max_size=5).map(
        lambda values: {"choice": values}
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), SPANS, min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_whatever_is_drawn_is_inside_the_space_and_comes_back_from_the_store(
    form: dict[str, dict[str, Any]], row: int
) -> None:
    space = {name: a_range(**span) for name, span in form.items()}
    params = drawn(space, 3, row)
    assert params.keys() == space.keys()
    assert all(space[name].holds(value) for name, value in params.items())
    assert all(math.isfinite(value) for value in params.values() if isinstance(value, float))
    assert json.loads(canonical(params)) == params


def test_draws_go_over_the_whole_space_and_evenly() -> None:
    space = a_search().space
    made = [drawn(space, 7, row) for row in range(1, 2001)]
    assert set(Counter(params["depth"] for params in made)) == set(range(1, 10))
    below = sum(params["lr"] < 1e-3 for params in made) / len(made)  # the middle of [1e-5, 1e-1] in decades
    sizes = Counter(str(params["size"]) for params in made)
    print(f"seed 7: {below:.3f} of 2,000 below the middle of the decades; sizes {dict(sizes)}")
    assert abs(below - 0.5) < 0.05
    assert min(sizes.values()) > 2000 / 3 * 0.85


def test_no_two_rows_have_one_setting_while_there_are_others() -> None:
    """The same setting with the same seed is the same run, to the bit, for twice the money."""
    for sampler_seed in range(20):
        rows = rows_of(a_search(trials=6, seed=sampler_seed, space=FINITE), RUN_SEED)
        assert len({canonical(row.params) for row in rows}) == 6
    space = a_search(space=FINITE).space
    every = [canonical(params) for params in grid(space)]
    left = distinct(lambda again: {"depth": 1, "size": 8}, space, every[1:-1])
    assert canonical(left) == every[0]
    assert distinct(lambda again: {"depth": 1, "size": 8}, space, every) == {"depth": 1, "size": 8}


# --- the rows -----------------------------------------------------------------------------------------------


def test_repeats_come_after_the_trials_by_rank_then_seed() -> None:
    # covers TUNE-07
    search = a_search(trials=3, repeats=(2, (5, 4)))
    rows = rows_of(search, RUN_SEED)
    assert len(rows) == search.rows == 7
    assert [(row.row, row.kind, row.rank, row.seed) for row in rows[3:]] == [
        (4, "repeat", 1, 5),
        (5, "repeat", 1, 4),
        (6, "repeat", 2, 5),
        (7, "repeat", 2, 4),
    ]
    assert all(row.params is None for row in rows[3:])


def test_a_sampler_that_learns_has_no_settings_yet_but_those_named_first() -> None:
    first = [{"lr": 1e-3, "size": 8, "depth": 3, "tilt": 0.5}]
    rows = rows_of(a_search(sampler="optuna.tpe", trials=4, first=first), RUN_SEED)
    assert [row.params for row in rows] == [first[0], None, None, None]


@pytest.mark.parametrize(("row", "run"), [(1, "trial-001"), (12, "trial-012"), (1000, "trial-1000")])
def test_a_row_is_a_run_and_back(row: int, run: str) -> None:
    assert run_of(row) == run
    assert row_of(run) == row


@pytest.mark.parametrize(
    "run", ["main", "trial-", "trial-1", "trial-000", "trial-0001", "trial-00a", "xtrial-001"]
)
def test_other_runs_are_no_rows(run: str) -> None:
    assert row_of(run) is None


def test_a_space_comes_back_from_its_registration() -> None:
    assert space_of(registered(a_search())) == a_search(space=SPACE).space
