"""`raykit search status` and every other command that meets a search: one line in a list, its trials by name, its end.

covers TUNE-02 TUNE-03 TUNE-04 TUNE-05 TUNE-06 TUNE-11 TUNE-13, RAY-12 RAY-13 RAY-14, I9 I11
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from called import Called, Raykit, calls
from makerun import ELSEWHERE, make_run
from makesearch import SearchMaker, make_going, make_search, run_row
from searchtoys import write_search

from raykit.cli.progress import display
from raykit.cli.watchsearch import SearchScreen
from raykit.fleet.follow import Glimpse
from raykit.fleet.search.outcome import Live, SearchGlimpse
from raykit.fleet.search.picking import register_pick
from raykit.read import open as open_root
from raykit.read.page import trial_spans
from raykit.records import Driven, RowEnded
from raykit.store import layout
from raykit.store.candidates import read_candidates
from raykit.store.local import LocalStore
from raykit.store.people import pause, read_acts
from raykit.store.place import this_place
from raykit.store.search import read_search

TINY = Path(__file__).parents[1] / "tiny"
DIGITS = Path(__file__).parents[2] / "jobs" / "digits"
BY = ("--by", "mira")
AGO_S = 7200.0


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return calls(capsys)


Made = Callable[[LocalStore], SearchMaker]


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Puts a search that is over into a store, its pick in the registry. It is made once, and copied."""
    template = tmp_path_factory.mktemp("over") / "store"
    maker = make_search(LocalStore(template), at=time.time() - AGO_S)
    named(maker)

    def put(store: LocalStore) -> SearchMaker:
        shutil.copytree(template, store.url, dirs_exist_ok=True)
        return maker

    return put


def named(maker: SearchMaker) -> str | None:
    """Give the pick of a search its name, as its driver does."""
    state = read_search(maker.store, maker.experiment)
    assert state is not None and state.picked is not None
    return register_pick(maker.store, state, state.picked, at=time.time())


def going(store: LocalStore, **how: object) -> SearchMaker:
    return make_going(store, at=time.time() - AGO_S / 4, **how)  # type: ignore[arg-type]


def row_of(found: Called, row: int) -> list[str]:
    """The cells of a row of the printed table."""
    line = next(line for line in found.out.split("\n") if re.match(rf" *{row}( = \d+)?  ", line))
    return re.split(r"\s{2,}", line.strip())


# --- search status ------------------------------------------------------------------------------------------


def test_status_of_one_search_says_everything(raykit: Raykit, store: LocalStore, over: Made) -> None:
    # covers TUNE-02 TUNE-03 TUNE-04 TUNE-05 TUNE-06 TUNE-13 RAY-14
    maker = over(store)
    found = raykit("search", "status", "lr-search")
    assert found.code == 0
    for text in (
        "lr-search · complete · 12/12 trials",
        "believes    The rate was tuned for a longer run",
        "predicts    If true, the ratio falls with lr above 0.001; if false it is flat.",
        "metric      development.ratio, the least is best; worthwhile from 0.01",
        "space       lr 0.0001 to 0.05 (log); width 16, 32 or 64",
        "draws       random, seed 7; asha stops trials from update 10, one in 3 goes on; 2 at once",
        "rows        12 rows: 7 completed, 1 failed, 2 stopped-by-scheduler, 2 never-started",
        "cost        $9.12 of at most $41.40, $3.45 a row",
        "picked    row 4: ratio 0.2008, the mean of 3 seeds, of 12 rows registered, 10 tried, 7 of them excluded",
        "observed, and nothing more",
        "against   0.008372 better than the incumbent (row 1: 0.2092, one seed)",
        "left out  rows 3, 7: the scheduler stopped it",
        "left out  row 5: it failed: the loss is not finite at update 4",
        "left out  row 8: development.ratio is not finite",
    ):
        assert text in found.out, text
    assert row_of(found, 1)[:6] == ["1", "0.001", "32", "3", "completed", "40"]
    assert row_of(found, 3)[6] == "(0.3773)", "reported, and cannot be picked"
    assert row_of(found, 5)[-1] == "the loss is not finite at update 4"
    assert row_of(found, 9)[0] == "9 = 4"
    plain = raykit("search", "status", "lr-search", "--json").json
    assert plain["state"] == "complete" and plain["counts"]["failed"] == 1
    assert plain["rows"][4]["cost"] == maker.cost(5) == 149_500
    assert [each["row"] for each in plain["picked"]["excluded"]] == [1, 2, 3, 5, 6, 7, 8, 11, 12]


def test_status_of_all_is_a_line_each_and_of_a_name_that_is_wrong_a_hint(
    raykit: Raykit, store: LocalStore
) -> None:
    assert raykit("search", "status").code == 2, "there is no store"
    make_run(store)
    assert "no plan here has [search]" in raykit("search", "status").out
    going(store, rows=())
    found = raykit("search", "status")
    assert found.out.startswith("SEARCH ") and "3/12 trials" in found.out
    assert "-> raykit resume lr-search" in found.out
    wrong = raykit("search", "status", "lr-serch")
    assert wrong.code == 2 and "did you mean lr-search?" in wrong.err
    assert raykit("search", "status", "digits").code == 2
    assert [each["experiment"] for each in raykit("search", "status", "--json").json] == ["lr-search"]


def test_rows_at_work_are_told_with_how_far_they_are(raykit: Raykit, store: LocalStore) -> None:
    going(store)
    found = raykit("search", "status", "lr-search")
    assert row_of(found, 4)[4:7] == ["running", "24", "(0.2255 @20)"]
    assert row_of(found, 9)[-1] == "repeats the best" and row_of(found, 11)[-1] == "repeats the 2nd best"
    assert "nothing is picked before every row has ended" in found.out
    assert "more is reserved for rows at work" in found.out


def test_a_long_table_shows_what_matters_first_and_all_of_it_if_asked(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = SearchMaker(store, trials=60, top=0, at=time.time() - AGO_S)
    maker.place = this_place()
    maker.register()
    run_row(maker, 50)
    run_row(maker, 51, "failed", updates=4, detail="the loss is not finite")
    maker.begin(60)
    found = raykit("search", "status", "lr-search", "--limit", "5")
    assert [row_of(found, row)[0] for row in (1, 2, 50, 51, 60)] == ["1", "2", "50", "51", "60"]
    assert "and 55 more rows: --all shows every one" in found.out
    assert "and 20 more rows" in raykit("search", "status", "lr-search").out
    everything = raykit("search", "status", "lr-search", "--all").out
    assert "more rows" not in everything and len(everything.split("\n")) > 70


@pytest.mark.parametrize("columns", [60, 100])
def test_the_table_fits(
    columns: int, raykit: Raykit, store: LocalStore, over: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(store)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = raykit("search", "status", "lr-search").out.split("\n")
    assert all(len(line) <= columns for line in lines if "raykit " not in line), max(lines, key=len)


def test_charts_are_drawn_when_they_are_asked_for(raykit: Raykit, store: LocalStore, over: Made) -> None:
    over(store)
    assert "chart " not in raykit("search", "status", "lr-search").out
    found = raykit("search", "status", "lr-search", "--charts")
    for file in ("trials.png", "cost.png", "parameters.png"):
        key = layout.search_picture("lr-search", "main", file)
        assert f"chart     {store.url}/{key}" in found.out
        assert store.get(key).startswith(b"\x89PNG")


def test_what_a_store_says_cannot_move_the_cursor(raykit: Raykit, store: LocalStore) -> None:
    maker = SearchMaker(store, at=time.time() - AGO_S)
    maker.register()
    run_row(maker, 1, "failed", updates=4, detail="it \x1b[31m raised")
    found = raykit("search", "status", "lr-search")
    assert "\x1b" not in found.out and "it \\x1b[31m raised" in found.out


# --- beside runs --------------------------------------------------------------------------------------------


def test_a_search_is_one_line_of_status_and_its_trials_are_asked_for(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    make_run(store)
    over(store)
    found = raykit("status").out
    assert "trial-0" not in found
    line = next(line for line in found.split("\n") if line.startswith("lr-search"))
    assert re.split(r"\s{2,}", line) == [
        "lr-search",
        "complete",
        "12/12 trials",
        "-",
        "-",
        "-",
        "ratio 0.198",
        "-",
        "$9.12/60",
        "ok",
    ]
    assert "1 run, 1 search, 0 live" in found
    every = raykit("status", "--all").out
    assert len(re.findall(r"^  trial-\d{3}  ", every, re.MULTILINE)) == 10, "those that began"
    plain = raykit("status", "--json").json
    assert [run["id"] for run in plain["runs"]] == ["digits/main"]
    assert plain["searches"][0]["rows_ended"] == 12 and "rows" not in plain["searches"][0]
    assert len(raykit("status", "--all", "--json").json["searches"][0]["rows"]) == 12


def test_status_says_who_is_waited_for(raykit: Raykit, store: LocalStore) -> None:
    maker = going(store)
    assert "lr-search is held: row 4 at 24, row 5 at 24" in raykit("status").out
    maker.say(Driven(driver="d1", place=this_place(), raykit="0.1.0"))
    place = this_place()
    assert f"lr-search is held by process {place.pid} on {place.host}" in raykit("status").out
    stopped = going(store, experiment="other", rows=())
    run_row(stopped, 4, "failed", updates=4, detail="the loss is not finite")
    found = raykit("status").out
    assert "other stopped: 8 rows are open, and nobody is at them\n  -> raykit resume other" in found
    assert "other row 4 failed: the loss is not finite\n  -> raykit logs other --trial 4" in found


def test_a_search_that_is_damaged_is_listed_and_hides_no_other(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    make_run(store)
    over(store)
    going(store, experiment="other", rows=())
    broken = Path(store.url) / layout.search_registration("lr-search", "main")
    broken.write_bytes(broken.read_bytes().replace(b'"min"', b'"max"'))
    found = raykit("status")
    assert found.code == 5
    assert "lr-search cannot be read" in found.out and "-> raykit check --read-data" in found.out
    assert re.search(r"^other +stopped", found.out, re.MULTILINE)
    assert re.search(r"^digits +completed", found.out, re.MULTILINE)
    assert list(raykit("status", "--json").json["broken_searches"]) == ["lr-search"]


def test_ls_puts_all_trials_together(raykit: Raykit, store: LocalStore, over: Made) -> None:
    over(store)
    found = raykit("ls").out
    assert found.count("lr-search  ") == 2 and "trials (search)" in found, "what is frozen, and the trials"
    assert "trial-004/checkpoints" in raykit("ls", "lr-search/trial-004").out


def test_show_of_a_search_has_its_table_and_its_ledger(raykit: Raykit, store: LocalStore, over: Made) -> None:
    # covers RAY-13
    over(store)
    found = raykit("show", "lr-search").out
    assert "12 rows: 7 completed" in found and "ledger of lr-search, source to comparison" in found
    for trial in ("trial-001", "trial-010"):
        assert f"lr-search-{trial}-launch-1-1" in found, "the lease of each attempt"
    assert "it has no budget here" not in found
    assert "active       nothing: no row is at work, and the search is complete" in found
    assert "none selected" not in found and " held " in found
    assert re.search(r"^lr-search-trial-010-launch-1 +trial-010 ", found, re.MULTILINE)
    assert re.search(r"^lr-search-trial-003-launch-1-1 +trial-003 +train ", found, re.MULTILINE)
    assert "paused" not in found, "a row that its scheduler has stopped is stopped"
    plain = raykit("show", "lr-search", "--json").json
    assert plain["rows_total"] == 12 and len(plain["ledger"]["jobs"]) == 10


def test_a_trial_is_shown_with_its_row_and_its_setting(raykit: Raykit, store: LocalStore, over: Made) -> None:
    over(store)
    found = raykit("show", "lr-search/trial-009").out
    assert "row 9 of 12 of the search lr-search: completed, ratio 0.2008, $1.20" in found
    assert "setting   lr = 0.003, width = 32; seed 4, the setting of row 4 again" in found
    assert "-> raykit search status lr-search" in found


def test_logs_and_history_of_a_trial_go_by_its_row_or_its_name(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    over(store)
    assert raykit("logs", "lr-search", "--trial", "4").out == raykit("logs", "lr-search/trial-004").out
    assert "attempt 1 starts" in raykit("logs", "lr-search", "--trial", "4").out
    assert "40" in raykit("history", "lr-search/trial-004", "--last", "1").out
    store.put_derived(layout.worker_log("lr-search", "trial-004", 1, 0), b"")
    silent = raykit("logs", "lr-search/trial-004")
    assert silent.out == "" and "trial-004: rank 0 has printed nothing in attempt 1" in silent.err
    never = raykit("logs", "lr-search", "--trial", "12")
    assert never.code == 2 and "has no trial trial-012 that has begun" in never.err
    beyond = raykit("logs", "lr-search", "--trial", "13")
    assert beyond.code == 2 and "1 to 12" in beyond.err and "raykit search status lr-search" in beyond.err
    whole = raykit("history", "lr-search")
    assert whole.code == 2 and "is a search, and its trials are its runs" in whole.err


def test_two_trials_differ_in_their_settings_and_in_what_they_came_to(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    over(store)
    make_run(store)
    found = raykit("diff", "lr-search/trial-003", "lr-search/trial-004").out
    cells = [re.split(r"\s{2,}", line.strip()) for line in found.split("\n")]
    assert cells[0] == ["FIELD", "lr-search/trial-003", "lr-search/trial-004"]
    assert sorted(cells[1:3]) == [["run.params.lr", "0.02", "0.003"], ["run.params.width", "16", "32"]]
    assert ["row", "3, stopped-by-scheduler", "4, completed"] in cells
    assert ["cost", "$0.2990", "$1.20"] in cells
    seeds = raykit("diff", "lr-search/trial-004", "lr-search/trial-009", "--json").json
    assert seeds["settings"] == [{"field": "run.seed", "run": 3, "other": 4}], "a repeat: only the seed"
    assert seeds["made_of"] == {} and seeds["came_to"]["row"]["other"] == "9, completed"
    other = raykit("diff", "lr-search/trial-004", "digits", "--json").json
    assert other["came_to"]["row"] == {"run": "4, completed", "other": None}
    assert raykit("diff", "digits", "digits").out.startswith(
        "  digits/main is held against itself: it is one and the same run"
    )


def test_a_trial_is_in_the_state_of_its_row_wherever_it_is_shown(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    over(store)
    shown = raykit("show", "lr-search/trial-003")
    assert "state        stopped-by-scheduler" in shown.out
    assert "row 3 of its search has ended: stopped-by-scheduler" in shown.out
    assert shown.out.count("stopped by the scheduler at 10") == 2, "in its attempts, and in the ledger"
    assert "let go: stopped by the scheduler" in shown.out and "paused" not in shown.out
    assert "paused" not in raykit("watch", "lr-search/trial-003", "--once").out
    assert "raykit resume" not in shown.out, "nothing of a row that has ended goes on"
    assert raykit("show", "lr-search/trial-003", "--json").json["state"] == "stopped-by-scheduler"
    failed = raykit("show", "lr-search/trial-005").out
    assert "-> raykit logs lr-search/trial-005" in failed and "raykit resume" not in failed
    held = raykit("diff", "lr-search/trial-003", "lr-search/trial-004", "--json").json
    assert held["came_to"]["state"] == {"run": "stopped-by-scheduler", "other": "completed"}


@pytest.mark.parametrize(
    "command", [("show",), ("logs",), ("history",), ("checkpoints", "list"), ("checkpoints", "verify")]
)
def test_every_reading_command_takes_a_trial_by_its_row(
    raykit: Raykit, store: LocalStore, over: Made, command: tuple[str, ...]
) -> None:
    over(store)
    by_row = raykit(*command, "lr-search", "--trial", "4")
    by_name = raykit(*command, "lr-search/trial-004")
    ago = r" ago .*"
    assert re.sub(ago, "", by_row.out) == re.sub(ago, "", by_name.out) and by_row.code == by_name.code
    twice = raykit(*command, "lr-search/trial-004", "--trial", "4")
    assert twice.code == 2 and "--trial with lr-search" in twice.err


def killed(store: LocalStore) -> SearchMaker:
    """A search whose process has ended without a word, with row 2 under way."""
    maker = SearchMaker(store, at=time.time() - AGO_S / 4)
    maker.place = this_place().model_copy(update={"started": 1})  # another process has its number now
    maker.register()
    run_row(maker, 1)
    maker.begin(2)
    maker.train(2, 24)
    return maker


def test_what_a_killed_search_has_left_open_is_settled_by_the_next_and_not_by_a_person(
    raykit: Raykit, store: LocalStore
) -> None:
    killed(store)
    said = raykit("status").out
    assert "lr-search: 1 lease of what is gone" in said and "raykit resume lr-search settles" in said
    assert "budget settle" not in said
    assert "unknown    1 outcome\n" in raykit("budget", "show", "lr-search").out
    assert "stays charged in full until whoever goes on settles it" in raykit("show", "lr-search").out


def test_leases_of_a_live_search_are_not_called_unknown(raykit: Raykit, store: LocalStore) -> None:
    going(store)
    assert "unknown    no outcome\n" in raykit("budget", "show", "lr-search").out
    assert "what became of lease" not in raykit("show", "lr-search").out


def test_the_time_of_a_row_is_what_its_attempts_held(raykit: Raykit, store: LocalStore, over: Made) -> None:
    maker = over(store)
    rows = open_root(store).search("lr-search").rows
    leases = list(maker.runs[4].ledger.book.leases.values())
    held = sum(each.held_ms or 0 for each in leases if each.reserved.run == "trial-004")
    assert rows[3].held_ms == held and rows[3].took_s == held / 1000
    assert rows[10].took_s is None, "it never started"
    spans = list(trial_spans(open_root(store).search("lr-search")))
    assert [each.held_s for each in spans] == [row.took_s for row in rows if row.attempts]


def test_a_trial_that_was_left_goes_on_with_its_search(raykit: Raykit, store: LocalStore) -> None:
    maker = make_going(store, at=time.time() - AGO_S / 4, rows=(4,))
    maker.runs[4].release("paused")
    pause(store, "experiment:lr-search", reason="tests", person="mira", cause="person", at=time.time())
    shown = raykit("show", "lr-search/trial-004").out
    assert "-> raykit resume lr-search" in shown and "resume lr-search/" not in shown


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (("resume",), ()),
        (("pause",), ("--reason", "tests", *BY)),
        (("cancel",), ("--reason", "tests", *BY)),
    ],
)
def test_an_act_on_one_trial_names_that_on_its_search(
    raykit: Raykit, store: LocalStore, over: Made, act: tuple[str, ...], says: tuple[str, ...]
) -> None:
    over(store)
    refused = raykit(*act, "lr-search/trial-003", *says)
    assert refused.code == 2 and "a run or a set of lr-search" in refused.err
    assert refused.err.split("pass", 1)[1].split("\n")[0].split() == ["raykit", *act, "lr-search"]


@pytest.mark.parametrize(("act", "typed"), [("search", "lr-search"), ("launch", "lr-search/trial-003")])
def test_a_name_where_a_plan_is_meant_is_told_how_to_go_on(
    raykit: Raykit, store: LocalStore, over: Made, act: str, typed: str
) -> None:
    over(store)
    refused = raykit(act, typed)
    assert refused.code == 2
    assert "raykit resume lr-search   or   raykit search status lr-search" in refused.err
    assert raykit("diff", "lr-search", "digits").code == 2


def test_watch_of_a_search_is_its_bands(raykit: Raykit, store: LocalStore) -> None:
    maker = going(store)
    found = raykit("watch", "--once").out
    assert found.startswith("lr-search · RUNNING · health ")
    for text in (
        "3/12 trials · development.ratio, the least is best",
        "TRIALS ",
        "12 rows: 2 completed, 1 stopped-by-scheduler, 2 running, 7 waiting",
        "24/40  ratio 0.2255 @20  lr = 0.003, width = 32",
        "BEST    row 1    ratio 0.2092  lr = 0.001, width = 32",
        "row 3 is to stop at update 10: below the top third at update 10",
        "row 5 begins",
    ):
        assert text in found, text
    screen = SearchScreen(open_root(store), "lr-search", "mira")
    screen.refresh(time.time())
    screen.press("l")
    screen.refresh(time.time())
    assert any("trial-004  attempt 1 starts" in line for line in screen.lines(100))
    store.put_derived(layout.worker_log("lr-search", "trial-004", 1, 0), b"")
    screen.refresh(time.time())
    assert any("trial-004  rank 0 has printed nothing in attempt 1" in line for line in screen.lines(100))
    for key in "plunch\r":
        screen.press(key)
    assert "experiment:lr-search" in read_acts(maker.store, "lr-search").pauses
    assert "pause requested by mira" in screen.foot()
    assert not screen.press("q")


def test_a_row_that_is_over_is_ending_until_its_driver_has_written_that(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = going(store)
    maker.say(Driven(driver="d1", place=this_place(), raykit="0.1.0"))
    maker.train(4, 16)
    for row, reason in ((4, "completed"), (5, "paused")):
        maker.runs[row].end(reason)
        maker.runs[row].release(reason)
    found = raykit("search", "status", "lr-search").out
    assert "1 ending, 1 stopped, 7 waiting" in found and "row 4 ending" in found
    maker.rule(5)
    found = raykit("search", "status", "lr-search").out
    assert "2 ending, 7 waiting" in found and "stopped: " not in found
    for row in (4, 5):
        update = maker.runs[row].update
        maker.say(RowEnded(row=row, end="failed", update=update, cost=0, attempts=1, detail="odd"))
    found = raykit("search", "status", "lr-search").out
    assert ": between two rows" in found and "no row is at work yet" not in found


def test_watch_of_a_search_that_is_over_has_the_pick(raykit: Raykit, store: LocalStore, over: Made) -> None:
    over(store)
    found = raykit("watch", "lr-search", "--once").out
    assert "PICKED  row 4: ratio 0.2008" in found and "better than the incumbent" in found
    assert raykit("watch", "lr-search/trial-004", "--once").out.startswith("lr-search/trial-004 · COMPLETED")


# --- pause, resume, cancel ----------------------------------------------------------------------------------


def test_a_pause_of_a_search_follows_its_rows_and_holds(raykit: Raykit, store: LocalStore) -> None:
    going(store)
    found = raykit("pause", "lr-search", "--reason", "lunch", "--no-wait")
    assert found.code == 0
    assert "lr-search/trial-004  1 of 1 workers at update 24, to commit at the next" in found.out
    assert "asked: lr-search/trial-004, lr-search/trial-005" in found.out
    assert "Continue: raykit resume lr-search" in found.out
    assert "lr-search is held: row 4 at 24, row 5 at 24" in raykit("status").out


def test_a_pause_of_searches_by_their_role_concerns_no_plain_run(raykit: Raykit, store: LocalStore) -> None:
    going(store)
    assert "trial-004" not in raykit("pause", "role:train", "--reason", "not these", "--no-wait").out
    assert "trial-004" in raykit("pause", "role:search", "--reason", "these", "--no-wait").out
    resumed = raykit("resume", "role:search").out
    assert "role:search goes on" in resumed


def test_cancel_ends_every_row_and_says_what_became_of_them(raykit: Raykit, store: LocalStore) -> None:
    # covers TUNE-06 RAY-12, I11
    maker = going(store, rows=())
    maker.place = ELSEWHERE
    maker.at -= 3600
    maker.begin(4)
    maker.train(4, 12)
    found = raykit("cancel", "lr-search", "--reason", "lr is flat", *BY)
    assert found.code == 0
    assert (
        "12 rows: 2 completed, 1 stopped-by-scheduler, 1 censored-by-budget, 8 never-started; "
        "$2.69 spent, all reserves but those of what is open are returned; not resumable"
    ) in found.out
    assert "ended by it: 1 under way (censored-by-budget), 8 never-started" in found.out
    assert "is open: up to 1.8837 USD stays charged until it ends" in found.out
    table = raykit("search", "status", "lr-search").out
    assert re.search(r"censored-by-budget .*cancelled by mira", table), table
    assert "\n  censored-by-budget: cut off, by money or by a cancel\n" in table
    assert "what was cancelled is not picked from" in table and "before every row" not in table
    refused = raykit("pause", "lr-search", "--reason", "lunch")
    assert refused.code == 3 and "lr-search was cancelled by mira: lr is flat" in refused.err
    state = read_search(store, "lr-search")
    assert state is not None and state.closed
    ended = state.row(4).ended
    assert ended is not None and ended.end == "censored-by-budget" and ended.cost == maker.cost(4)
    assert ended.detail == "cancelled by mira: lr is flat"
    again = raykit("cancel", "lr-search", "--reason", "once more", *BY, "--json").json
    assert not again["new"] and again["search"]["counts"]["never-started"] == 8
    assert raykit("status").out.count("cancelled") >= 1


def test_a_search_that_is_driven_ends_its_rows_itself(raykit: Raykit, store: LocalStore) -> None:
    maker = going(store)
    maker.say(Driven(driver="d1", place=this_place(), raykit="0.1.0"))
    found = raykit("cancel", "lr-search", "--reason", "lr is flat", *BY)
    assert "lr-search is driven by process" in found.out and "ends every row at its next update" in found.out
    state = read_search(store, "lr-search")
    assert state is not None and not state.closed


# --- launch, and the plan -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the digits recipe, its plan and its search."""
    for name in ("plan.toml", "search.toml", "recipe.py"):
        shutil.copy(DIGITS / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_search_is_not_launched_and_a_run_is_not_searched(raykit: Raykit, folder: Path) -> None:
    launched = raykit("launch", "search.toml")
    assert launched.code == 3
    assert "digits-lr is a search of 10 rows, and a launch is of one run" in launched.err
    assert "pass   raykit search search.toml" in launched.err
    searched = raykit("search", "plan.toml")
    assert searched.code == 3
    assert "digits-vae has no [search]" in searched.err and "raykit launch plan.toml" in searched.err
    assert not (folder / "store").exists(), "nothing was written"


def test_plan_check_says_what_is_registered_and_what_a_row_may_cost(raykit: Raykit, folder: Path) -> None:
    # covers TUNE-02 TUNE-03 TUNE-04 TUNE-05
    found = raykit("plan", "check", "search.toml")
    assert found.code == 0
    for text in (
        "SEARCH",
        "believes  In 400 updates the incumbent's rate is too low",
        "metric    development.ratio, the least is best; of a row, that of the checkpoint with the least ratio",
        "rows      10 rows, registered before the first begins; never one more: 8 trials, then 2 repeats of the best 2",
        "settings  row 1 as the plan says (lr = 0.001, width = 32); the others drawn when their turn comes",
        "at once   2 rows, 5 waves at least; asha stops trials from update 100, one in 2 goes on",
        "worst     not billed",
        "next: raykit search search.toml",
    ):
        assert text in found.out, text
    assert "raykit launch" not in found.out
    plain = raykit("plan", "check", "search.toml", "--json").json
    assert plain["search"]["rows"] == 10 and plain["not_yet"] == []
    assert "SEARCH" in raykit("plan", "show", "search.toml").out


def test_a_billed_search_says_what_one_row_and_all_of_them_may_cost(raykit: Raykit, tmp_path: Path) -> None:
    plan = write_search(tmp_path / "job", trials=3, rate=1.0, ceiling=4.0, wall_h="0.01", attempts="2")
    found = raykit("plan", "check", str(plan))
    assert "worst     $0.0933 a row, over all of its attempts; $0.2800 for 3 rows" in found.out
    assert "settings  all drawn now (random, seed 7)" in found.out
    plain = raykit("plan", "check", str(plan), "--json").json["search"]
    assert plain["total_worst"] == 3 * plain["row_worst"] == 280_002
    assert "$0.0100 is work, and $0.0833 set-up, lost work and drain of its attempts" in found.out


def test_a_search_over_its_ceiling_says_what_its_worst_is_made_of(raykit: Raykit, tmp_path: Path) -> None:
    plan = write_search(tmp_path / "job", trials=10, rate=30.0, ceiling=20.0, wall_h="0.02", attempts="3")
    found = raykit("plan", "check", str(plan))
    assert found.code == 3 and "worst $43.50, and it does not fit" in found.out
    assert "$4.35 a row, over all of its attempts; $43.50 for 10 rows; of a row $0.6000 is work" in found.out
    made = "43.50 for its 10 rows (each 0.60 of work and 3.75 for set-up, lost work and drain of 3 attempts)"
    assert made in found.err


def test_the_bundled_search_is_short(folder: Path) -> None:
    text = (DIGITS / "search.toml").read_text("utf-8")
    assert len(text.splitlines()) < 60


# --- the pick in the registry -------------------------------------------------------------------------------


def test_a_pick_is_registered_as_observed_once_with_what_was_tried(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    # covers TUNE-11 RAY-14
    maker = over(store)
    (said,) = read_candidates(store)
    assert (said.candidate, said.role, said.update) == ("lr-search-pick", "search-checkpoint", 40)
    assert said.cost == maker.cost(4) and said.manifest == maker.ends[4].checkpoint
    assert (
        said.source is not None
        and "observed best of 12 rows registered, 10 tried, by the search lr-search" in said.source
    )
    assert "7 of them excluded" in said.source
    assert named(maker) == "lr-search-pick" and len(read_candidates(store)) == 1, "weights have one name"
    found = raykit("candidates", "show", "lr-search-pick").out
    assert found.startswith("lr-search-pick: observed\n")
    assert "weights   lr-search/trial-004@40" in found and "found     observed best of 12 rows" in found


def test_no_search_and_no_number_takes_a_pick_into_production(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    # covers TUNE-11, I9
    over(store)
    why = ("--reason", "it was the best of twelve", *BY)
    refused = raykit("candidates", "approve", "lr-search-pick", "--use", "production", *why)
    assert refused.code == 3
    assert "its role does not permit production, whatever it scores" in refused.err
    assert raykit("candidates", "switch", "lr-search-pick", *why).code == 3
    recommended = raykit("candidates", "recommend", "lr-search-pick", "--surface", "development.ratio", *why)
    assert recommended.code == 3, "nobody has examined it: not even a person recommends it"
    scripted = raykit(
        "candidates", "approve", "lr-search-pick", "--use", "export", "--reason", "r", *BY, "--scripted"
    )
    assert scripted.code == 3
    assert raykit("candidates", "list", "--json").json["candidates"][0]["state"] == "observed"


def test_another_pick_after_rows_were_opened_again_has_a_name_of_its_own(store: LocalStore) -> None:
    maker = SearchMaker(store, trials=2, top=0, at=time.time() - AGO_S)
    maker.register()
    run_row(maker, 1)
    maker.never(2, "refused-by-budget")
    maker.pick()
    assert named(maker) == "lr-search-pick"
    maker.reopen()
    maker.settings[2] = maker.settings[1].model_copy(update={"params": {"lr": 0.003, "width": 64}})
    run_row(maker, 2)
    maker.pick()
    assert named(maker) == "lr-search-pick-2"
    assert [each.candidate for each in read_candidates(store)] == ["lr-search-pick", "lr-search-pick-2"]


def test_weights_that_people_have_named_keep_their_name(raykit: Raykit, store: LocalStore) -> None:
    maker = make_search(store, at=time.time() - AGO_S)
    done = raykit(
        "candidates", "register", "mine", "lr-search/trial-004@40", "--role", "diagnostic", "--by", "mira"
    )
    assert done.code == 0, done.err
    assert named(maker) == "mine"
    (said,) = read_candidates(store)
    assert said.role == "diagnostic"


# --- the page -----------------------------------------------------------------------------------------------


def test_the_page_of_a_search_has_its_table_its_pick_and_its_charts(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    over(store)
    assert raykit("report", "lr-search").code == 0
    page = store.get(layout.report("lr-search", "index.html")).decode()
    for text in (
        '<section id="search">',
        "12 of 12",
        "What was registered before the first trial",
        "The rate was tuned for a longer run",
        "row 4: ratio 0.2008, the mean of 3 seeds, of 12 rows registered, 10 tried, 7 of them excluded; observed",
        "Left out of the pick",
        "it failed: the loss is not finite at update 4",
        "the loss is not finite at update 4",
    ):
        assert text in page, text
    assert page.count("data:image/png;base64,") == 3
    assert '<section id="learning">' not in page and '<section id="checkpoints">' not in page
    assert 'href="../runs/trial-004/run.json"' in page


def test_inside_the_noise_is_said_on_the_page_as_an_alarm(raykit: Raykit, store: LocalStore) -> None:
    maker = SearchMaker(store, trials=4, top=1, seeds=(9,), at=time.time() - AGO_S)
    maker.register()
    for row in range(1, 5):
        run_row(maker, row)
    maker.draw(5, repeats=4)
    run_row(maker, 5)
    maker.pick()
    assert raykit("report", "lr-search").code == 0
    page = store.get(layout.report("lr-search", "index.html")).decode()
    assert "<strong>Inside the noise.</strong>" in page
    assert "INSIDE THE NOISE" in raykit("search", "status", "lr-search").out


def test_the_page_of_a_trial_lies_beside_that_of_its_search(
    raykit: Raykit, store: LocalStore, over: Made
) -> None:
    over(store)
    assert raykit("report", "lr-search").code == 0
    whole = store.get(layout.report("lr-search", "index.html"))
    assert raykit("report", "lr-search/trial-004").code == 0
    trial = store.get(layout.report("lr-search", "trial-004.html")).decode()
    assert '<section id="learning">' in trial and '<section id="search">' not in trial
    assert store.get(layout.report("lr-search", "index.html")) == whole


def test_a_pause_for_money_says_replan_before_resume(raykit: Raykit, store: LocalStore) -> None:
    maker = going(store, rows=())
    pause(
        store, "experiment:lr-search", reason="the line cannot pay", person="s", cause="ceiling", at=maker.at
    )
    for row in range(4, 13):
        maker.never(row, "refused-by-budget", detail="the line cannot pay")
    move = ("budget", "replan", "lr-search", "--reason", "as it was", *BY, "--move")
    short = raykit(*move, "train:recovery=37.00")
    assert short.code == 0 and "Continue" not in short.out, short
    found = raykit("status").out
    assert "lr-search out of budget: 9 refused-by-budget" in found
    assert (
        "  -> raykit budget replan lr-search --reason ... --by NAME      then      "
        "raykit resume lr-search --by NAME\n"
    ) in found
    paid = raykit(*move, "recovery:train=37.00")
    assert "Continue: raykit resume lr-search --by NAME\n" in paid.out
    assert "  -> raykit resume lr-search --by NAME\n" in raykit("status").out, "money is there"
    named = raykit("search", "lr-search")
    assert "raykit resume lr-search --by NAME   or   raykit search status lr-search" in named.err
    assert re.search(r"^lr-search +out of budget.*needs you$", found, re.MULTILINE)


# --- progress -----------------------------------------------------------------------------------------------


def test_a_trial_before_its_first_update_is_told_by_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    def glimpse(phase: str, update: int) -> Glimpse:
        return Glimpse(
            phase=phase,
            update=update,
            updates=400,
            updates_per_s=None,
            ratio=None,
            committed=None,
            attempt=1,
        )

    live = [
        Live(run="trial-001", glimpse=None, newest=None),
        Live(run="trial-002", glimpse=glimpse("gates", 0), newest=None),
        Live(run="trial-003", glimpse=glimpse("training", 0), newest=None),
        Live(run="trial-004", glimpse=glimpse("training", 25), newest=None),
    ]
    seen = SearchGlimpse(
        experiment="lr-search", rows=10, ended=3, metric="ratio", live=live, waiting=3, best=None
    )
    with display(quiet=False) as shown:
        shown.tell_search(seen)
    told = capsys.readouterr().err
    for far in ("trial-001 starting", "trial-002 gates", "trial-003 starting", "trial-004 25"):
        assert far in told
    with display(quiet=True) as shown:
        shown.tell_search(seen)
        shown.say("a line for people")
    assert capsys.readouterr() == ("", ""), "beside JSON only errors are said"
