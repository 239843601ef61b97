"""What is picked: of what was completed with a finite value, by the mean over seeds where settings were repeated.

# covers TUNE-06, TUNE-07, TUNE-11, TUNE-13, RAY-14, I8
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from maketable import a_search, begun, drawn, ended, play, ruled

from raykit.fleet.search.outcome import unpicked
from raykit.plan.tables import Selection
from raykit.records import Commit, EvaluationRow, Excluded, Picked, Record
from raykit.search import SearchState, Worth, excluded, pick, rank, worth_of

SEARCH = a_search(trials=4)


def reasons(state: SearchState) -> dict[int, str]:
    return {each.row: each.why for each in excluded(state)}


def all_ended(*events: Record) -> tuple[Record, ...]:
    """The same, and the rows that nothing is said of were never started."""
    said = {event.row for event in events if event.event == "row_ended"}  # type: ignore[attr-defined]
    return (*events, *(ended(n, end="never-started") for n in range(1, 5) if n not in said))


def test_the_best_that_was_completed_is_picked() -> None:
    events = all_ended(begun(1), ended(1, 0.5), begun(2), ended(2, 0.4), begun(3), ended(3, 0.6))
    assert pick(play(SEARCH, *events)) == Picked(
        row=2,
        value=0.4,
        values=(0.4,),
        tried=4,
        ranked=(2, 1, 3),
        excluded=(Excluded(row=4, why="it was never started"),),
    )
    most = pick(play(a_search(trials=4, mode="max"), *events), candidate="lr-pick")
    assert most is not None
    assert (most.row, most.ranked, most.candidate) == (3, (3, 1, 2), "lr-pick")


def test_errored_censored_and_nan_rows_are_never_picked_and_are_named() -> None:
    # covers RAY-14: each of them has the best figure of all, as far as it came
    search = a_search(trials=7)
    events = (
        *(begun(1), ended(1, 0.01, "failed", detail="out of memory")),
        *(begun(2), ended(2, 0.01, "censored-by-budget")),
        *(begun(3), ended(3, None)),
        *(begun(4), ruled(4), ended(4, 0.01, "stopped-by-scheduler")),
        ended(5, end="refused-by-budget"),
        ended(6, end="never-started", detail="cancelled by mira"),
        *(begun(7), ended(7, 0.9)),
    )
    state = play(search, *events)
    assert rank(state) == (7,)
    found = pick(state)
    assert found is not None
    assert (found.row, found.value, found.tried) == (7, 0.9, 7)
    assert {each.row: each.why for each in found.excluded} == {
        1: "it failed: out of memory",
        2: "its budget ended it",
        3: "development.ratio is not finite",
        4: "the scheduler stopped it",
        5: "its worst case was not admitted",
        6: "it was never started: cancelled by mira",
    }


def test_of_equal_rows_the_first_in_the_table_comes_first() -> None:
    for order in itertools.permutations((1, 2, 3)):
        events = [event for n in order for event in (begun(n), ended(n, 0.5))]
        assert rank(play(SEARCH, *events)) == (1, 2, 3)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (begun(1), ended(1, 0.5)),
        all_ended(begun(1), ended(1, end="failed")),
        all_ended(begun(1), ended(1, None)),
    ],
)
def test_nothing_is_picked_from_an_open_table_nor_where_nothing_was_completed(
    events: tuple[Record, ...],
) -> None:
    assert pick(play(SEARCH, *events)) is None


# --- repeats ------------------------------------------------------------------------------------------------

REPEATED = a_search(trials=3, repeats=(2, (2, 3)))
"""Rows 4 and 5 repeat the best trial, 6 and 7 the one after it."""
TRIALS = (begun(1), ended(1, 0.5), begun(2), ended(2, 0.4), begun(3), ended(3, 0.6))


def again(row: int, of: int, value: float | None, end: str = "completed") -> list[Record]:
    params = play(REPEATED).rows[of - 1].params or {}
    return [drawn(row, params, repeats=of), begun(row), ended(row, value, end)]  # type: ignore[arg-type]


def test_what_was_repeated_is_compared_by_its_mean() -> None:
    # covers TUNE-07
    repeats = (*again(4, 2, 0.6), *again(5, 2, 0.8), *again(6, 1, 0.5), *again(7, 1, 0.53))
    found = pick(play(REPEATED, *TRIALS, *repeats))
    assert found is not None
    assert (found.row, found.values, found.ranked) == (1, (0.5, 0.5, 0.53), (1, 2))
    assert found.value == pytest.approx(0.51)
    assert found.excluded == (Excluded(row=3, why="it is not among the best, which were repeated"),)


def test_a_repeat_without_a_value_leaves_its_whole_setting_out() -> None:
    # covers RAY-14: a mean without the seed that failed would be of fewer seeds, and the luckier ones
    for end, value, said in (
        ("failed", None, "trial-005 is failed"),
        ("completed", None, "development.ratio of trial-005 is not finite"),
        ("censored-by-budget", 0.1, "trial-005 is censored-by-budget"),
    ):
        repeats = (*again(4, 2, 0.3), *again(5, 2, value, end), *again(6, 1, 0.5), *again(7, 1, 0.5))
        found = pick(play(REPEATED, *TRIALS, *repeats))
        assert found is not None
        assert (found.row, found.ranked) == (1, (1,))
        why = {each.row: each.why for each in found.excluded}
        assert why[2] == why[4] == f"its setting is incomplete: {said}"
        assert set(why) == {2, 3, 4, 5}


def test_a_repeat_that_was_never_drawn_leaves_its_setting_out_too() -> None:
    repeats = (*again(4, 2, 0.3), ended(5, end="refused-by-budget"), *again(6, 1, 0.5), *again(7, 1, 0.5))
    found = pick(play(REPEATED, *TRIALS, *repeats))
    assert found is not None
    assert found.ranked == (1,)
    assert (
        reasons(play(REPEATED, *TRIALS, *repeats))[2]
        == "its setting is incomplete: trial-005 is refused-by-budget"
    )


def test_only_what_was_repeated_can_be_picked() -> None:
    never = (ended(n, end="never-started") for n in (4, 5, 6, 7))
    found = play(REPEATED, *TRIALS, *never)
    assert pick(found) is None
    counts = "3 completed, 4 never-started"
    why = "it is among the best, and was not repeated"
    assert unpicked(found) == f"nothing can be picked of 7 rows ({counts}): trial-002: {why}", "of the best"


def test_rows_that_wait_for_money_are_why_nothing_is_picked() -> None:
    short = (ended(n, end="refused-by-budget") for n in (4, 5, 6, 7))
    found = unpicked(play(REPEATED, *TRIALS, *short))
    counts = "3 completed, 4 refused-by-budget"
    assert found == f"nothing is picked of 7 rows ({counts}) while rows wait for money"


VALUES = st.one_of(st.none(), st.floats(-1e308, 1e308))


@example(values=[5e-324] * 3, mode="min")
@example(values=[1e308] * 3, mode="max")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(VALUES, min_size=3, max_size=3),
    st.sampled_from(["min", "max"]),
)
def test_a_mean_is_finite_and_between_its_seeds(values: list[float | None], mode: str) -> None:
    search = a_search(trials=1, repeats=(1, (2, 3)), mode=mode)
    one = play(search).rows[0].params or {}
    first, *rest = values
    events: list[Record] = [begun(1), ended(1, first)]
    for n, value in enumerate(rest, start=2):
        if first is None:
            events.append(ended(n, end="never-started"))
        else:
            events += [drawn(n, one, repeats=1), begun(n), ended(n, value)]
    found = pick(play(search, *events))
    finite = [value for value in values if value is not None]
    assert (found is not None) == (len(finite) == 3)
    if found is not None:
        assert min(finite) <= found.value <= max(finite)
        assert Picked.from_bytes(found.to_bytes(), "it") == found


def test_a_long_reason_does_not_keep_a_long_table_from_being_picked_from() -> None:
    """An entry of a log has at most 4 MiB."""
    events = (begun(1), ended(1, 0.5), begun(2), ended(2, end="failed", detail="x" * 2000))
    found = pick(play(a_search(trials=2), *events))
    assert found is not None
    assert len(found.excluded[0].to_bytes()) < 4 * 2**20 / 10_000


# --- what a row is worth --------------------------------------------------------------------------------------

SELECT = Selection(mode="min", metric="recon")


def looked(update: int, ratio: float | None, recon: float | None = 0.5) -> EvaluationRow:
    metrics = {"ratio": ratio, "recon": recon}
    return EvaluationRow(attempt=1, update=update, rows=9, metrics=metrics, elapsed_s=0.1, best=False)


def commit(update: int) -> Commit:
    return Commit(
        update=update,
        attempt=1,
        key=f"u{update}/manifest.json",
        sha256=f"{update:064x}",
        size_bytes=1,
        exactness="exact",
        reason="cadence",
        save_s=0.1,
        blocked_s=0.0,
    )


EVALUATIONS = [looked(0, 1.0, 0.9), looked(10, 0.3, 0.4), looked(15, 0.1, 0.1), looked(20, 0.4, 0.4)]
COMMITS = [commit(0), commit(10), commit(20)]


@pytest.mark.parametrize(
    ("selection", "evaluations", "commits", "worth"),
    [
        (None, EVALUATIONS, COMMITS, Worth(0.4, 20, f"{20:064x}")),
        (None, EVALUATIONS, COMMITS[:2], Worth(0.4, 20, None)),
        (
            SELECT,
            EVALUATIONS,
            COMMITS,
            Worth(0.3, 10, f"{10:064x}"),
        ),  # 15 has no checkpoint; of 10 and 20 the first
        (Selection(mode="max", metric="recon"), EVALUATIONS, COMMITS, Worth(1.0, 0, f"{0:064x}")),
        (SELECT, EVALUATIONS, [], Worth()),
        (SELECT, [], COMMITS, Worth()),
        (None, [], [], Worth()),
        (SELECT, [looked(10, None, 0.1), looked(20, 0.4)], COMMITS, Worth()),
        (SELECT, [*EVALUATIONS, looked(30, None)], COMMITS, Worth()),  # it has diverged since
        (None, [*EVALUATIONS, looked(30, None)], COMMITS, Worth()),
        (SELECT, [looked(20, 0.4, None)], COMMITS, Worth()),
    ],
)
def test_a_row_is_worth_its_metric_at_the_checkpoint_that_is_taken(
    selection: Selection | None, evaluations: list[EvaluationRow], commits: list[Commit], worth: Worth
) -> None:
    assert worth_of(selection, "development.ratio", evaluations, commits) == worth
