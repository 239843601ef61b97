"""A search as it is read from its store: rows, states, who is waited for, costs, the pick and what it is worth.

covers TUNE-02 TUNE-03 TUNE-04 TUNE-05 TUNE-06 TUNE-07 TUNE-13, RAY-12 RAY-13 RAY-14, I6
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from makerun import ELSEWHERE, make_run
from makesearch import SearchMaker, make_going, make_search, run_row

import raykit
from raykit.errors import InvalidInput, NotFoundError
from raykit.read.search import ENDS, RowRead, SearchRead, read_search, verdict_of
from raykit.records import Driven, LetGo, Picked, Place
from raykit.store.people import cancel, pause
from raykit.store.place import this_place
from raykit.testing.memory import MemoryStore

LATER_S = 5.0


def read(maker: SearchMaker, *, after_s: float = LATER_S) -> SearchRead:
    """The search as it is read a little later than everything that was written of it."""
    found = read_search(maker.store, maker.experiment, now=maker.at + after_s)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def over() -> SearchRead:
    """A search that is over."""
    return read(make_search(MemoryStore()))


def test_what_was_registered_is_all_there_before_a_row_begins() -> None:
    # covers TUNE-02 TUNE-03 TUNE-04 TUNE-05
    maker = SearchMaker(MemoryStore())
    maker.register()
    found = read(maker)
    assert found.state == "registered" and found.progress == "0/12 trials"
    assert found.summary == "12 rows: 12 waiting"
    said = found.registration
    assert said.hypothesis.startswith("The rate was tuned") and said.predicts.startswith("If true")
    assert said.space == {"lr": {"loguniform": [1e-4, 5e-2]}, "width": {"choice": [16, 32, 64]}}
    assert (said.metric, said.mode, len(said.rows)) == ("development.ratio", "min", 12)
    assert (found.incumbent, found.worthwhile) == (1, 0.01)
    assert found.rows[0].params == {"lr": 0.001, "width": 32}
    assert [row.params for row in found.rows[8:]] == [None] * 4, "repeats take theirs later"
    assert found.waits_for == "a launch" and found.commands == ("raykit resume lr-search",)
    assert found.cost == 0 and found.best is None and found.picked is None


def test_every_row_of_a_search_that_is_over_has_one_end_its_cost_and_its_attempts(over: SearchRead) -> None:
    # covers TUNE-06 TUNE-13 RAY-12 RAY-13
    found = over
    assert found.state == "complete" and found.complete and found.waits_for is None
    assert all(row.status in ENDS for row in found.rows)
    assert found.summary == "12 rows: 7 completed, 1 failed, 2 stopped-by-scheduler, 2 never-started"
    assert sum(found.counts.values()) == len(found.rows) == found.done
    failed = found.row(5)
    assert failed.params == {"lr": 0.05, "width": 64} and failed.cost > 0 and failed.attempts == 1
    assert failed.detail == "the loss is not finite at update 4" and failed.value is None
    stopped = found.row(3)
    assert stopped.value is not None and not stopped.counts, "it reported, and cannot be picked"
    assert found.row(8).value is None and not found.row(8).counts
    assert found.money is not None and found.cost == found.money.actual, "all rows are what the ledger has"


def test_the_cost_of_a_row_is_that_of_all_its_attempts() -> None:
    # covers RAY-13, I6
    maker = SearchMaker(MemoryStore())
    maker.register()
    maker.begin(1)
    maker.train(1, 20)
    maker.pause(1, hours=0.2)
    assert read(maker).row(1).cost == maker.cost(1) > 0
    maker.begin(1)
    maker.train(1, 20)
    maker.finish(1, hours=0.2)
    found = read(maker).row(1)
    assert (found.status, found.attempts, found.update) == ("completed", 2, 40)
    assert found.cost == maker.cost(1) == 2 * 598_000
    assert found.accelerator_ms == 2 * 720_000


def test_rows_at_work_are_read_from_their_own_runs() -> None:
    maker = make_going(MemoryStore())
    found = read(maker)
    assert found.state == "running" and found.live and found.driven and found.waits_for is None
    row = found.row(4)
    assert (row.status, row.update, row.at) == ("running", 24, 20)
    assert row.value == maker.runs[4].reported(20) and not row.counts
    assert row.cost == maker.cost(4), "its worst case, until it is settled"
    through = [each.spent for each in found.rows if each.status in ("completed", "stopped-by-scheduler")]
    left = sum(max(0, sum(through) // len(through) - each.spent) for each in found.rows if not each.ended)
    assert found.money is not None and found.money.projected == found.money.actual + left > 0
    assert 0 < row.spent < row.cost and row.plain()["so_far"] == row.spent
    assert found.row(1).spent == found.row(1).cost and 0 < found.spent < found.cost
    maker.rule(5)
    assert read(maker).row(5).status == "stopping"
    assert "the scheduler stops it" in (read(maker).row(5).detail or "")


def test_a_search_whose_process_is_gone_is_stopped_and_says_how_it_goes_on() -> None:
    maker = make_going(MemoryStore(), rows=())
    maker.place = ELSEWHERE
    maker.begin(4)
    maker.train(4, 12)
    found = read(maker, after_s=1000.0)
    assert found.state == "stopped" and found.row(4).status == "stopped" and not found.driven
    assert found.words == "stopped: 9 rows are open, and nobody is at them"
    assert found.commands == ("raykit resume lr-search",)


def test_a_driver_is_told_apart_from_its_rows() -> None:
    maker = SearchMaker(MemoryStore())
    maker.register()
    maker.say(Driven(driver="d1", place=this_place(), raykit="0.1.0"))
    found = read(maker)
    assert found.state == "running" and found.place == this_place() and not found.at_work
    assert found.launches == ("d1",), "what it spends is its own"
    maker.say(LetGo(driver="d1"))
    assert read(maker).state == "registered"
    dead = Place(host=this_place().host, boot=this_place().boot, pid=2**22 + 1, started=1)
    maker.say(Driven(driver="d2", place=dead, raykit="0.1.0"))
    assert read(maker).place is None, "killed: nobody drives it"


def test_pauses_of_searches_hold_it_and_those_of_training_do_not() -> None:
    maker = make_going(MemoryStore(), rows=())
    store, at = maker.store, maker.at
    pause(store, "role:train", reason="not these", person="mira", at=at)
    assert read(maker).state == "stopped"
    pause(store, "role:search", reason="the GPUs are promised", person="mira", at=at)
    found = read(maker)
    assert found.state == "paused" and found.words == "paused: mira: the GPUs are promised"
    assert found.waits_for == "a person" and found.health == "needs you"
    assert found.commands == ("raykit resume role:search", "raykit resume lr-search")


def test_a_pause_is_not_reached_while_rows_are_at_work() -> None:
    maker = make_going(MemoryStore())
    pause(maker.store, "experiment:lr-search", reason="lunch", person="mira", at=maker.at)
    found = read(maker)
    assert found.state == "pausing" and found.live and found.waits_for is None


def test_a_search_out_of_budget_waits_for_a_person_and_says_both_commands() -> None:
    maker = make_going(MemoryStore(), rows=())
    for row in range(4, 13):
        maker.never(row, "refused-by-budget", detail="the line cannot pay")
    found = read(maker)
    assert found.state == "out of budget" and found.words == "out of budget: 9 refused-by-budget"
    assert found.health == "needs you" and not found.complete
    assert found.paid and found.commands == ("raykit resume lr-search --by NAME",), "the line has 38 USD"
    assert found.money is not None
    for changed in ({"lines": ()}, {"overrun": 1}, {"figure": 1}):
        short = replace(found, money=replace(found.money, **changed))
        assert short.commands == (
            "raykit budget replan lr-search --reason ... --by NAME",
            "raykit resume lr-search --by NAME",
        )
    maker.reopen()
    assert read(maker).state == "stopped" and read(maker).counts["waiting"] == 9


def test_a_cancelled_search_says_who_and_why() -> None:
    maker = make_going(MemoryStore(), rows=())
    cancel(maker.store, "lr-search", reason="lr is flat", person="mira", at=maker.at)
    found = read(maker)
    assert found.state == "cancelled" and found.words == "cancelled by mira: lr is flat"
    assert found.commands == () and found.waits_for is None


def test_a_search_that_only_waits_for_its_pick_says_so() -> None:
    maker = SearchMaker(MemoryStore(), trials=2, top=0)
    maker.register()
    run_row(maker, 1)
    run_row(maker, 2)
    found = read(maker)
    assert found.state == "stopped" and "the pick is not made yet" in found.words
    maker.pick()
    assert read(maker).complete


def test_a_search_of_which_nothing_can_be_picked_is_complete() -> None:
    # covers RAY-14
    maker = SearchMaker(MemoryStore(), trials=2, top=0)
    maker.register()
    run_row(maker, 1, "failed", updates=4)
    run_row(maker, 2, finite=False)
    found = read(maker)
    assert found.complete and found.picked is None and found.words == "complete: no row can be picked"


# --- the pick -----------------------------------------------------------------------------------------------


def test_the_pick_says_how_many_were_tried_and_names_every_row_that_it_left_out(over: SearchRead) -> None:
    # covers TUNE-07 RAY-14
    found = over
    picked = found.picked
    assert picked is not None and picked.row == 4 and len(picked.values) == 3
    assert found.pick_words == (
        "row 4: ratio 0.2008, the mean of 3 seeds, of 12 rows registered, 10 tried, 7 of them excluded"
    )
    assert {each.row for each in found.excluded} == {1, 2, 3, 5, 6, 7, 8, 11, 12}
    assert found.left_out["the scheduler stopped it"] == "rows 3, 7"
    assert found.left_out["it failed: the loss is not finite at update 4"] == "row 5"
    assert found.left_out["development.ratio is not finite"] == "row 8"


def test_the_pick_is_held_against_the_incumbent_what_matters_and_the_noise(over: SearchRead) -> None:
    found = over
    verdict = found.verdict
    assert verdict is not None and verdict.incumbent == 1 and verdict.incumbent_seeds == 1
    assert verdict.gain == pytest.approx(0.20919 - 0.200818, abs=1e-5)
    assert verdict.noise == pytest.approx(0.006, abs=1e-4)
    assert verdict.inside_noise is False and not verdict.worth_it, "less than worthwhile"
    assert "less than what is worthwhile, 0.01" in verdict.words


def rows_of(*values: tuple[float | None, int | None]) -> list[RowRead]:
    """Completed rows: their values, and which row each repeats."""
    return [
        RowRead(
            row=n,
            run=f"trial-{n:03d}",
            kind="trial" if repeats is None else "repeat",
            seed=n,
            params={},
            repeats=repeats,
            status="completed",
            value=value,
        )
        for n, (value, repeats) in enumerate(values, start=1)
    ]


def picked_of(row: int, *values: float) -> Picked:
    return Picked(
        row=row, value=sum(values) / len(values), values=values, tried=4, ranked=(row,), excluded=()
    )


def verdict(rows: list[RowRead], picked: Picked, **how: Any) -> Any:
    return verdict_of(rows, picked, **{"mode": "min", "incumbent": 1, "worthwhile": 0.01, **how})


def test_a_difference_no_larger_than_that_of_seeds_is_inside_the_noise_and_says_so() -> None:
    rows = rows_of((0.21, None), (0.20, None), (0.23, 2))
    found = verdict(rows, picked_of(2, 0.20, 0.23))
    assert found.inside_noise is True and not found.worth_it
    assert "INSIDE THE NOISE: seeds of one setting differ by up to 0.03" in found.words


def test_a_difference_that_matters_and_is_above_the_noise_is_worth_it() -> None:
    rows = rows_of((0.25, None), (0.20, None), (0.201, 2))
    found = verdict(rows, picked_of(2, 0.20, 0.201))
    assert found.worth_it and found.words.endswith("worthwhile from 0.01")
    more = verdict(rows, picked_of(1, 0.25), mode="max", incumbent=2)
    assert more.gain == pytest.approx(0.25 - 0.2005), "with `max`, more is better"


def test_without_repeats_nobody_knows_the_noise() -> None:
    found = verdict(rows_of((0.25, None), (0.20, None)), picked_of(2, 0.20))
    assert found.noise is None and found.inside_noise is None and not found.worth_it
    assert "how far seeds alone differ is not known: nothing was repeated" in found.words


def test_an_incumbent_that_is_picked_or_has_no_value_is_said_to_be() -> None:
    same = verdict(rows_of((0.2, None)), picked_of(1, 0.2))
    assert same.inside_noise is None, "there is no difference"
    assert same.same and same.words == "the incumbent, row 1, is the best that was observed"
    lost = verdict(rows_of((None, None), (0.2, None)), picked_of(2, 0.2))
    assert lost.gain is None and "has no value: nothing says that the pick is better" in lost.words
    unsaid = verdict(rows_of((0.3, None), (0.2, None)), picked_of(2, 0.2), worthwhile=None)
    assert not unsaid.worth_it and "of no difference in this metric that it matters" in unsaid.words


def test_without_an_incumbent_or_a_pick_there_is_no_verdict() -> None:
    rows = rows_of((0.2, None))
    assert verdict(rows, picked_of(1, 0.2), incumbent=None) is None
    assert verdict_of(rows, None, mode="min", incumbent=1, worthwhile=None) is None


# --- from Python --------------------------------------------------------------------------------------------


def test_a_root_has_its_searches_and_keeps_their_trials_apart() -> None:
    store = MemoryStore()
    make_run(store)
    make_search(store)
    root = raykit.open(store)
    assert [each.experiment for each in root.searches()] == ["lr-search"]
    assert [view.id for view in root.runs(trials=False)] == ["digits/main"]
    assert len(root.runs()) == 1 + 10, "every trial that began is a run"
    trial = root.run("lr-search/trial-004")
    assert (trial.row, trial.role, trial.state) == (4, "search", "completed")
    assert trial.money is not None and trial.money.actual == root.search("lr-search").cost
    main = root.run("digits")
    assert (main.row, main.role) == (None, "train")


def test_a_search_is_no_run_and_a_row_that_has_not_begun_has_none() -> None:
    store = MemoryStore()
    make_going(store)
    root = raykit.open(store)
    with pytest.raises(InvalidInput, match="is a search, and its trials are its runs") as refused:
        root.run("lr-search")
    assert refused.value.remedy == "raykit search status lr-search"
    with pytest.raises(NotFoundError, match="has no trial trial-009 that has begun"):
        root.run("lr-search/trial-009")
    with pytest.raises(NotFoundError, match="there is no search lr-serch") as unknown:
        root.search("lr-serch")
    assert unknown.value.rule == "did you mean lr-search?"
    with pytest.raises(InvalidInput, match="has no row 13"):
        root.search("lr-search").row(13)


def test_the_trials_are_an_arrow_table_and_a_frame(over: SearchRead) -> None:
    table = over.to_arrow()
    assert table.num_rows == 12
    assert table.column("params.lr").to_pylist()[:2] == [0.001, 0.0003]
    assert table.column("params.width").to_pylist()[-1] is None, "never drawn"
    assert table.column("status").to_pylist()[4] == "failed"
    frame = over.to_pandas()
    assert frame.loc[3, "value"] == pytest.approx(0.197822)


def test_a_parameter_of_several_types_is_still_a_column(over: SearchRead) -> None:
    mixed = [replace(over.rows[0], params={"kind": 1}), replace(over.rows[1], params={"kind": "a"})]
    table = replace(over, rows=tuple(mixed)).to_arrow()
    assert table.column("params.kind").to_pylist() == ["1", '"a"']


@pytest.mark.parametrize("make", [make_search, make_going])
def test_all_of_it_is_json(make: Any) -> None:
    found = read(make(MemoryStore()))
    plain = json.loads(json.dumps(found.plain(), allow_nan=False))
    assert plain["rows_total"] == 12 and len(plain["rows"]) == 12
    assert plain["registration"]["digest"] == found.digest
    assert "rows" not in plain["registration"]


def test_ten_thousand_registered_rows_are_listed_without_reading_runs_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """benchmarks/search.py says how fast; this says why: of all rows only those at work have their logs read."""
    store = MemoryStore()
    maker = SearchMaker(store, trials=10_000, top=0)
    maker.register()
    for row in (1, 2):
        run_row(maker, row)
    maker.place = this_place()
    maker.begin(3)
    maker.train(3, 10)
    seen: list[str] = []
    original = store.get

    def counted(key: str, **how: Any) -> bytes:
        seen.append(key)
        return original(key, **how)

    monkeypatch.setattr(store, "get", counted)
    found = read(maker)
    assert len(found.rows) == 10_000 and found.done == 2
    runs = {key.split("/")[3] for key in seen if "/runs/" in key}
    assert runs == {"trial-003"}
