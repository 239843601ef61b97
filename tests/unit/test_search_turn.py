"""Whose turn it is in a search: examples, and a driver that is killed at any moment, over and over.

# covers TUNE-05, TUNE-06, TUNE-07, RAY-12, I11
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from maketable import UPDATES, a_search, begun, drawn, ended, entry, play, registered, ruled

from raykit.plan.tables import Search
from raykit.records import BY_BUDGET, End, Record, Reopened, SearchEntry
from raykit.search import Done, Draw, EndRow, SearchState, Start, Wait, fold, next_turn, pick, space_of
from raykit.search.space import drawn as at_random
from raykit.store.check.search import SearchRules

PARAMS = {"lr": 0.01, "size": 8, "depth": 3, "tilt": 0.5}
REPEATED = a_search(trials=2, repeats=(2, (2, 3)))
DONE: tuple[Record, ...] = (begun(1), ended(1, 0.5), begun(2), ended(2, 0.4))


def turns(state: SearchState, *live: int) -> object:
    return next_turn(state, set(live))


def test_trials_come_in_their_order_and_only_so_many_at_once() -> None:
    search = a_search(trials=4, concurrent=2)
    assert turns(play(search)) == Start(1)
    assert turns(play(search, begun(1)), 1) == Start(2)
    assert turns(play(search, begun(1), begun(2)), 1, 2) == Wait()
    assert turns(play(search, begun(1), begun(2), ended(1, 0.5)), 2) == Start(3)


def test_what_was_begun_goes_on_before_anything_is_begun() -> None:
    search = a_search(trials=4, concurrent=2)
    assert turns(play(search, begun(1), begun(2), ended(1, 0.5), begun(3))) == Start(2)
    assert turns(play(search, begun(1), begun(2), ended(1, 0.5), begun(3)), 2) == Start(3)


def test_a_sampler_that_learns_draws_while_others_run() -> None:
    search = a_search(trials=3, sampler="optuna.tpe", concurrent=2)
    assert turns(play(search)) == Draw(1)
    assert turns(play(search, drawn(1, PARAMS), begun(1)), 1) == Draw(2)
    assert turns(play(search, drawn(1, PARAMS)), 1) == Draw(2), "the row in hand has not said so yet"
    assert turns(play(search, drawn(1, PARAMS))) == Start(1), "what was drawn is not drawn again"


def test_repeats_wait_for_every_trial_and_take_the_best_by_value() -> None:
    # covers TUNE-07
    assert turns(play(REPEATED, *DONE[:3]), 2) == Wait()
    best, other = (play(REPEATED).rows[n].params or {} for n in (1, 0))
    assert turns(play(REPEATED, *DONE)) == Draw(3, repeats=2)
    third = (*DONE, drawn(3, best, repeats=2), begun(3))
    assert turns(play(REPEATED, *third), 3) == Draw(4, repeats=2)
    both = (*third, drawn(4, best, repeats=2), begun(4), ended(3, 0.4), ended(4, 0.4))
    assert turns(play(REPEATED, *both)) == Draw(5, repeats=1)
    rest = (*both, drawn(5, other, repeats=1), begun(5), ended(5, 0.5), drawn(6, other, repeats=1), begun(6))
    assert turns(play(REPEATED, *rest), 6) == Wait()
    assert turns(play(REPEATED, *rest, ended(6, 0.5))) == Done()


def test_a_repeat_of_a_rank_that_no_trial_reached_is_never_started() -> None:
    # covers TUNE-06
    state = play(REPEATED, begun(1), ended(1, 0.5), begun(2), ended(2, end="failed"))
    assert turns(state) == Draw(3, repeats=1)
    one = state.rows[0].params or {}
    events = (drawn(3, one, 1), begun(3), ended(3, 0.5), drawn(4, one, 1), begun(4), ended(4, 0.5))
    again = play(REPEATED, begun(1), ended(1, 0.5), begun(2), ended(2, end="failed"), *events)
    assert turns(again) == EndRow(5, "no trial has come to rank 2: 1 were completed with a value")


def test_two_ranks_never_repeat_one_trial_though_the_order_changes() -> None:
    """A trial that a budget had ended is opened again, and is the best in the end."""
    search = a_search(trials=3, repeats=(2, (2,)))
    params = [row.params or {} for row in play(search).rows]
    before = (begun(1), ended(1, 0.5), begun(2), ended(2, 0.4), begun(3), ended(3, end="censored-by-budget"))
    drawn_ = (*before, drawn(4, params[1], 2), begun(4), ended(4, 0.4))
    opened = (*drawn_, Reopened(rows=(3,), reason="r", person="mira"), begun(3, "again"), ended(3, 0.1))
    assert turns(play(search, *opened)) == Draw(5, repeats=3)


# --- a driver that is killed, and a person with a budget --------------------------------------------------------


class Driving(RuleBasedStateMachine):
    """A search from its registration to its end: the log is what stays, all else is gone with every kill."""

    @initialize(
        trials=st.integers(1, 5),
        top=st.integers(0, 2),
        seeds=st.integers(1, 2),
        concurrent=st.integers(1, 4),
        sampler=st.sampled_from(["random", "optuna.tpe"]),
        seed=st.integers(0, 10**6),
    )
    def register(self, trials: int, top: int, seeds: int, concurrent: int, sampler: str, seed: int) -> None:
        repeats = (min(top, trials), tuple(range(2, 2 + seeds))) if top else None
        search: Search = a_search(trials=trials, repeats=repeats, concurrent=concurrent, sampler=sampler)
        self.registration = registered(search)
        self.space = space_of(self.registration)
        self.rules = SearchRules(self.registration, self.space)
        self.entries: list[SearchEntry] = []
        self.state = fold(self.registration, ())
        self.live: set[int] = set()
        self.completed: dict[int, Any] = {}
        self.begun: set[int] = set()
        self.broke = False
        self.chance = random.Random(seed)

    def say(self, *events: Record) -> None:
        """One entry of the log; the fold refuses what contradicts it, and so does the check."""
        new = entry(len(self.entries) + 1, *events)
        for event in events:
            assert list(self.rules.take(event)) == []
        self.state = fold(self.registration, [new], self.state)
        self.entries.append(new)

    # --- what the driver does -------------------------------------------------------------------------------

    @precondition(lambda self: not self.broke)
    @rule()
    def take_a_turn(self) -> None:
        self.turn()

    def turn(self) -> object:
        found = next_turn(self.state, self.live)
        match found:
            case Start(n):
                launch = f"launch-{len(self.entries)}"
                self.say(begun(n, launch))
                self.live.add(n)
                self.begun.add(n)
            case Draw(n, repeats=None):
                self.say(drawn(n, at_random(self.space, 7, n)))
            case Draw(n, repeats=int(trial)):
                self.say(drawn(n, self.state.row(trial).params or {}, repeats=trial))
            case EndRow(n, _):
                self.say(ended(n, end="never-started"))
            case Wait():
                assert self.live, "nobody would ever go on"
        return found

    @precondition(lambda self: self.live)
    @rule(
        end=st.sampled_from(
            ["completed", "completed", "failed", "stopped-by-scheduler", "censored-by-budget"]
        )
    )
    def a_row_ends(self, end: End) -> None:
        n = min(self.live)
        events: list[Record] = (
            [ruled(n)] if end == "stopped-by-scheduler" and self.state.row(n).ruled is None else []
        )
        value = None if end == "failed" or self.chance.random() < 0.2 else self.chance.choice((0.1, 0.2, 0.3))
        self.say(*events, ended(n, value, end, update=self.chance.randint(0, UPDATES)))
        self.live.discard(n)
        if end == "completed":
            self.completed[n] = self.state.row(n)

    @rule()
    def a_kill(self) -> None:
        """Between any two entries; what was in hand is in nobody's."""
        self.live.clear()
        assert fold(self.registration, self.entries) == self.state

    # --- what people and money do ---------------------------------------------------------------------------

    @precondition(lambda self: not self.live and not self.state.closed)
    @rule()
    def the_budget_ends(self) -> None:
        ends = [
            ended(row.n, None, "censored-by-budget")
            if row.launches
            else ended(row.n, end="refused-by-budget")
            for row in self.state.open
        ]
        self.say(*ends)
        self.broke = True

    @precondition(lambda self: self.broke)
    @rule()
    def a_person_sets_more_aside(self) -> None:
        rows = tuple(row.n for row in self.state.rows if row.status in BY_BUDGET)
        if rows:
            self.say(Reopened(rows=rows, reason="the ceiling was raised", person="mira"))
        self.broke = False

    @precondition(lambda self: self.state.closed and self.state.picked is None)
    @rule()
    def it_is_picked_from(self) -> None:
        found = pick(self.state)
        if found is not None:
            self.say(found)
            assert found.row in self.completed

    # --- what holds always ----------------------------------------------------------------------------------

    @invariant()
    def never_more_rows_than_registered_nor_more_at_once(self) -> None:
        if hasattr(self, "state"):
            assert self.begun <= {row.row for row in self.registration.rows}
            assert len(self.live) <= self.registration.concurrent

    @invariant()
    def what_was_completed_stays_as_it_was(self) -> None:
        for n, row in getattr(self, "completed", {}).items():
            assert self.state.row(n) == row

    def teardown(self) -> None:
        """Left alone, it comes to its end: every row has one, and only one."""
        if not hasattr(self, "state"):
            return
        self.a_person_sets_more_aside() if self.broke else None
        for _ in range(10 * len(self.registration.rows)):
            if isinstance(self.turn(), Done):
                break
            if len(self.live) == self.registration.concurrent or isinstance(
                next_turn(self.state, self.live), Wait
            ):
                self.a_row_ends("completed")
        assert self.state.closed
        _only_one_end(self.entries, len(self.registration.rows))


def _only_one_end(entries: Sequence[SearchEntry], rows: int) -> None:
    """Every row ends, and once more only if a person has opened it since."""
    ends = [0] * (rows + 1)
    for each in entries:
        for event in each.events:
            if isinstance(event, Reopened):
                for n in event.rows:
                    ends[n] -= 1
            elif event.event == "row_ended":
                ends[event.row] += 1
    assert ends[1:] == [1] * rows


TestDriving = Driving.TestCase
TestDriving.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@pytest.mark.slow
def test_driving_very_often() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Driving, settings=settings(max_examples=5_000, stateful_step_count=60, deadline=None)
    )
