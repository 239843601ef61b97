"""Rows that fail one like the other before anything works pause a search; a metric that nobody reports ends a row.

# covers TUNE-13, FLEET-09
"""

from __future__ import annotations

import pytest
from maketable import a_search, begun, ended, play, ruled

from raykit.records import EvaluationRow, Record
from raykit.search import shared_failure, unreported
from raykit.search.failing import SEALED, signature

SEARCH = a_search(trials=4)
BUG = "recipe: KeyError: 'lrr' at 0x7f33aa01, step 12"
SAME = "recipe: KeyError: 'lrr' at 0x7f33bb99, step 7"
OTHER = "recipe: ValueError: width 7"


def failed(row: int, detail: str = BUG) -> tuple[Record, ...]:
    return begun(row), ended(row, end="failed", detail=detail)


def test_two_that_failed_alike_are_a_defect() -> None:
    said = shared_failure(play(SEARCH, *failed(1), begun(2), *failed(3, SAME)), since=0.0)
    assert said == f"2 rows failed alike, and none has come through (trial-001, trial-003): {BUG}; {SEALED}"


def test_one_without_the_metric_says_what_becomes_of_all() -> None:
    lacks = unreported("development.foo", [evaluated(ratio=0.5)])
    assert lacks is not None
    said = shared_failure(play(SEARCH, *failed(1, lacks), begun(2)), since=0.0)
    assert said == f"one row failed as all would, and none has come through (trial-001): {lacks}; {SEALED}"
    assert shared_failure(play(SEARCH, begun(2), ended(2, 0.5), *failed(1, lacks)), since=0.0) is None


@pytest.mark.parametrize(
    "events",
    [
        (),
        failed(1),
        (*failed(1), *failed(2, OTHER)),
        (*failed(1), begun(2), ended(2, 0.5), *failed(3)),
        (*failed(1), *failed(2), begun(3), ended(3)),  # completed, though its value is not finite
        (*failed(1), *failed(2), begun(3), ruled(3), ended(3, end="stopped-by-scheduler")),
        (*failed(1), *failed(2), *failed(3), *failed(4)),  # no trial is left that could meet it
        (begun(1), ended(1, end="censored-by-budget", detail=BUG), begun(2), *failed(3)),
    ],
)
def test_there_is_no_reason_to_stop(events: tuple[Record, ...]) -> None:
    assert shared_failure(play(SEARCH, *events), since=0.0) is None


def test_what_a_person_has_seen_does_not_count_again() -> None:
    """Entries are a second apart."""
    events = (*failed(1), *failed(2))
    seen_at = play(SEARCH, *events).row(2).ended_at
    assert seen_at is not None
    assert shared_failure(play(SEARCH, *events), since=seen_at) is None
    again = play(SEARCH, *events, *failed(3), begun(4))
    assert shared_failure(again, since=seen_at) is None, "one is none"
    assert shared_failure(play(SEARCH, *events, *failed(3), begun(4)), since=0.0) is not None


def test_repeats_are_no_trials_that_are_left() -> None:
    repeated = a_search(trials=2, repeats=(1, [3]))
    assert shared_failure(play(repeated, *failed(1), *failed(2)), since=0.0) is None


def test_a_signature_has_no_numbers() -> None:
    assert signature(BUG) == signature(SAME) == "recipe: KeyError: 'lrr' at #, step #"
    assert signature("loss 1.5e-07 at 1,000") == "loss # at #"
    assert signature(BUG) != signature(OTHER)
    assert signature(None) == ""


def evaluated(**metrics: float | None) -> EvaluationRow:
    return EvaluationRow(attempt=1, update=10, rows=4, metrics=metrics, elapsed_s=1.0, best=False)


def test_a_metric_that_nobody_reports_is_told_with_those_that_there_are() -> None:
    assert unreported("development.ratio", []) is None
    assert unreported("development.ratio", [evaluated(ratio=None, loss=1.0)]) is None, (
        "it diverged, and is there"
    )
    said = unreported("development.foo", [evaluated(ratio=0.5, loss=1.0), evaluated(foo=1.0)])
    assert said is not None
    assert "development.foo, which nobody reports: an evaluation of this recipe has loss, ratio" in said
