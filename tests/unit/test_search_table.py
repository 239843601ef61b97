"""What the log of a search folds into, and what contradicts it.

# covers TUNE-05, TUNE-06, TUNE-13, RAY-12, I11
"""

from __future__ import annotations

import pytest
from makerun import ELSEWHERE
from maketable import UPDATES, a_search, begun, drawn, ended, entry, play, registered, ruled

from raykit.errors import CorruptError
from raykit.records import Begun, Driven, End, LetGo, Picked, Record, Reopened, Setting
from raykit.search import fold, pick

REPEATED = a_search(trials=2, repeats=(1, (2, 3)))
LEARNS = a_search(trials=3, sampler="optuna.tpe")
PARAMS = {"lr": 0.01, "size": 8, "depth": 3, "tilt": 0.5}
DONE: tuple[Record, ...] = (begun(1), ended(1, 0.5), begun(2), ended(2, 0.4))


def reopened(*rows: int) -> Reopened:
    return Reopened(rows=rows, reason="the ceiling was raised", person="mira")


def test_a_table_waits_until_something_is_said_of_it() -> None:
    state = play(REPEATED)
    assert [row.status for row in state.rows] == ["waiting"] * 4
    assert [row.n for row in state.trials] == [1, 2]
    assert [row.n for row in state.repeats] == [3, 4]
    assert (state.closed, state.cost, state.picked, state.driver) == (False, 0, None, None)
    assert state.row(1).setting == Setting(params=state.rows[0].params or {}, seed=1)
    assert state.row(3).setting is None


def test_a_row_is_what_was_said_of_it_last() -> None:
    state = play(
        REPEATED, begun(1, "a"), begun(1, "b"), ruled(1), ended(1, 0.9, "stopped-by-scheduler", update=11)
    )
    row = state.row(1)
    assert [launch.launch for launch in row.launches] == ["a", "b"]
    assert (row.status, row.begun_at, row.ended_at) == ("stopped-by-scheduler", 1.0, 4.0)
    assert row.ruled == ruled(1)
    assert row.value is None, "only what was completed has a value to be compared"
    assert state.counts == {"waiting": 3, "stopped-by-scheduler": 1}
    assert (state.cost, state.entries, state.heard_at) == (100, 4, 4.0)


@pytest.mark.parametrize(
    "end",
    [
        "completed",
        "failed",
        "stopped-by-scheduler",
        "censored-by-budget",
        "refused-by-budget",
        "never-started",
    ],
)
def test_each_of_the_six_ends_is_an_end(end: End) -> None:
    # covers RAY-12
    before = () if end in ("refused-by-budget", "never-started") else (begun(1), ruled(1))
    state = play(REPEATED, *before, ended(1, end=end))
    assert state.row(1).status == end
    for again in (ended(1, end=end), begun(1, "z"), ruled(1), drawn(1, state.row(1).params or {})):
        with pytest.raises(CorruptError, match=rf"row 1 is .* after its end \({end}\)"):
            play(REPEATED, *before, ended(1, end=end), again)


def test_a_fold_goes_on_from_where_it_was() -> None:
    events = (
        *DONE,
        drawn(3, play(REPEATED).rows[1].params or {}, repeats=2),
        begun(3),
        ended(3, 0.41),
        begun(4, "x"),
    )
    registration = registered(REPEATED)
    entries = [entry(n, event) for n, event in enumerate(events[:-1], start=1)]
    whole = fold(registration, entries)
    for cut in range(len(entries) + 1):
        before = fold(registration, entries[:cut])
        kept = (before.rows, before.entries)
        assert fold(registration, entries[cut:], before) == whole
        assert (before.rows, before.entries) == kept, "a state does not change under those who hold it"
    batch = fold(registration, [entry(1, *events[:3]), entry(2, *events[3:-1])])
    assert [row.status for row in batch.rows] == [row.status for row in whole.rows]
    assert whole.row(3).repeats == 2


def test_what_a_budget_ended_can_be_opened_again() -> None:
    before = (begun(1), ended(1, 0.6, "censored-by-budget"), ended(2, end="refused-by-budget"))
    rest = (ended(3, end="refused-by-budget"), ended(4, end="never-started"))
    state = play(REPEATED, *before, *rest, reopened(1, 2, 3))
    assert [row.status for row in state.rows] == ["begun", "waiting", "waiting", "never-started"]
    assert (state.row(1).begun_at, state.row(1).ended_at) == (1.0, None)
    assert state.reopened == (reopened(1, 2, 3),)
    again = play(REPEATED, *before, *rest, reopened(1, 2, 3), begun(1, "b"), ended(1, 0.5))
    assert again.row(1).status == "completed"


def test_a_pick_falls_when_rows_are_opened_again() -> None:
    search = a_search(trials=2)
    events = (begun(1), ended(1, 0.5), ended(2, end="refused-by-budget"))
    picked = pick(play(search, *events))
    assert picked is not None
    assert play(search, *events, picked).picked == picked
    assert play(search, *events, picked, reopened(2)).picked is None


def test_who_drives_it_is_said_by_the_log() -> None:
    one, other = (Driven(driver=name, place=ELSEWHERE, raykit="1") for name in ("one", "other"))
    assert play(REPEATED, one).driver == one
    assert play(REPEATED, one, LetGo(driver="one")).driver is None
    assert play(REPEATED, one, other, LetGo(driver="one")).driver == other


PICKED = Picked(row=1, value=0.5, values=(0.5,), tried=4, ranked=(1,), excluded=())


@pytest.mark.parametrize(
    ("search", "events", "says"),
    [
        (REPEATED, [begun(5)], "there is no row 5: the table has 4"),
        (REPEATED, [ended(9, 0.1)], "there is no row 9"),
        (REPEATED, [begun(3)], "row 3 is begun without a setting"),
        (LEARNS, [begun(1)], "row 1 is begun without a setting"),
        (REPEATED, [begun(1, "a"), begun(1, "a")], "row 1 is begun twice by launch a"),
        (LEARNS, [drawn(1, PARAMS), drawn(1, {**PARAMS, "lr": 0.02})], "row 1 is drawn a second time"),
        (REPEATED, [drawn(1, PARAMS)], "row 1 is drawn a second time"),
        (REPEATED, [*DONE, drawn(3, PARAMS)], "row 3 is a repeat"),
        (
            LEARNS,
            [drawn(1, PARAMS), begun(1), ended(1, 0.5), drawn(2, PARAMS, repeats=1)],
            "row 2 is a trial",
        ),
        (REPEATED, [*DONE, drawn(3, PARAMS, repeats=2)], "repeats row 2 with another setting"),
        (REPEATED, [*DONE, drawn(3, PARAMS, repeats=4)], "row 4 is repeated"),
        (REPEATED, [begun(1), ended(1), drawn(3, PARAMS, repeats=1)], "row 1 is repeated, which is no trial"),
        (REPEATED, [ruled(1)], "before it is begun"),
        (REPEATED, [begun(1), ruled(1), ruled(1, 20)], "stopped by the scheduler twice"),
        (REPEATED, [begun(1), ended(1, 0.9, "stopped-by-scheduler")], "which has not ruled so"),
        (REPEATED, [ended(1, 0.5)], "row 1 is completed, and was never begun"),
        (REPEATED, [ended(1, end="failed", cost=1)], "row 1 is failed, and was never begun"),
        (REPEATED, [begun(1), ended(1, end="never-started")], "row 1 is never-started, and was begun"),
        (
            REPEATED,
            [begun(1), ended(1, end="refused-by-budget")],
            "row 1 is refused-by-budget, and was begun",
        ),
        (
            REPEATED,
            [begun(1), ended(1, 0.5, update=UPDATES + 1)],
            f"ends at update {UPDATES + 1} of {UPDATES}",
        ),
        (REPEATED, [reopened(1)], r"no budget has ended \(waiting\)"),
        (REPEATED, [begun(1), ended(1, 0.5), reopened(1)], r"no budget has ended \(completed\)"),
        (REPEATED, [PICKED], "before every row has its end"),
        (a_search(trials=1), [begun(1), ended(1, 0.5), PICKED, PICKED], "picked from twice"),
    ],
)
def test_what_contradicts_the_table_is_corrupt(search: object, events: list[Record], says: str) -> None:
    # covers TUNE-05, I11
    with pytest.raises(CorruptError, match=says) as refused:
        play(search, *events)  # type: ignore[arg-type]
    assert refused.value.message.startswith(f"entry {len(events)} of the search: ")
    assert refused.value.value == len(events)


def test_the_same_setting_drawn_again_says_nothing_new() -> None:
    assert play(LEARNS, drawn(1, PARAMS), drawn(1, PARAMS)).row(1).params == PARAMS


def test_a_row_that_is_not_there_cannot_be_asked_for() -> None:
    for n in (0, 5):
        with pytest.raises(CorruptError, match=f"names row {n}"):
            play(REPEATED).row(n)


def test_ten_thousand_rows_fold() -> None:
    """As many as a table may well have; how long it takes is measured in the benchmarks."""
    search = a_search(trials=10_000, sampler="optuna.tpe")
    registration = registered(search)
    events = [
        (drawn(n, {**PARAMS, "depth": 1}), Begun(row=n, launch=f"l{n}", place=ELSEWHERE), ended(n, 1 / n))
        for n in range(1, 10_001)
    ]
    state = fold(registration, [entry(n, *three) for n, three in enumerate(events, start=1)])
    found = pick(state)
    assert state.closed and found is not None
    assert (found.row, found.tried, len(found.ranked)) == (10_000, 10_000, 10_000)
