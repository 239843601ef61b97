"""`raykit generate` on made sets: what it shows, what people may say, what is taken out, and what is refused.

covers GEN-11 GEN-13 GEN-16 GEN-17, FLEET-06, I3 I11
"""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from called import Raykit, calls
from makerun import make_run
from makeset import SetMaker, make_set

from raykit.errors import GateError
from raykit.fleet.generate import run as fleet
from raykit.fleet.generate.run import Making, Outcome, SetOutcome
from raykit.store.local import LocalStore
from raykit.store.people import pause, read_acts, read_scope
from raykit.store.place import this_place

BY = ("--by", "mira")
WHY = ("--reason", "more memory", *BY)
NAME = "digits/digits"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


def parked(store: LocalStore) -> SetMaker:
    """Unit 4 came to nothing three times; all others are published, one row of them filtered and one failed."""
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    maker.park(4, message="it\x1b[31m raised")
    maker.publish(2, filtered=1, failed=1)
    maker.publish(3, *range(5, 10))
    return maker


# --- what is shown ------------------------------------------------------------------------------------------


def test_status_of_one_set_says_everything(raykit: Raykit, store: LocalStore) -> None:
    maker = parked(store)
    found = raykit("generate", "status", NAME)
    assert found.code == 0 and "\x1b" not in found.out
    for text in (
        "digits/digits · parked: a person is needed · contract " + maker.shards.digest[:8],
        "rows      36 of 40 rows accounted for: 34 produced, 1 filtered, 1 failed",
        "filtered  1 blank",
        "failed    1 ValueError",
        "bad rows  duplicates 0 of 34 (0 %), at most 1 %\n            nonfinite 0 of 36 (0 %), none may be",
        "units     10: 9 published, 1 parked",
        "canary    2 units, 8 rows: 10 rows/s, peak 300.0 MB",
        "projected 4.0 s (3.6 s to 4.6 s) on one accelerator, at most $2.50",
        "options   on development; the first one was taken",
        "tries     3 attempts came to nothing: 3 memory",
        "unit 4, try 3: memory",
        "parked    unit 4",
        "teacher   digits-teacher, update 40",
        'decode    {"temperature": 1.0}',
        "-> raykit generate retry digits/digits --reason ... --by NAME",
        "-> raykit generate give-up digits/digits --unit 4 --reason ... --by NAME",
    ):
        assert text in found.out, text
    assert raykit("generate", "status", "digits").out == found.out, "its only set"
    plain = raykit("generate", "status", NAME, "--json").json
    assert plain["made"]["parked"] == [4] and plain["made"]["units"]["published"] == 9


def test_status_of_all_sets_is_a_line_each(raykit: Raykit, store: LocalStore) -> None:
    assert raykit("generate", "status").code == 2, "there is no store"
    make_set(store, contract=False)
    found = raykit("generate", "status")
    assert found.out.startswith("SET ") and "waiting" in found.out
    assert (
        "-> raykit candidates register digits-teacher digits --role production-candidate --by NAME"
        in found.out
    )
    assert raykit("generate", "status", "--json").json[0]["state"] == "waiting"


def test_an_approval_for_generation_ends_with_the_command_that_generates(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = make_set(store, contract=False)
    for update in range(0, maker.updates + 1, maker.every):
        maker.examine(update)
    maker.review(maker.updates)
    role = ("--role", "production-candidate", *BY)
    assert raykit("candidates", "register", "best", f"digits@{maker.updates}", *role).code == 0
    approved = raykit("candidates", "approve", "best", "--use", "generation", "--reason", "as good", *BY)
    assert approved.code == 0, approved.err
    on = '  -> raykit generate PLAN\n     PLAN is the plan file with name = "digits"\n'
    assert approved.out.endswith(on) and raykit("candidates", "show", "best").out.endswith(on)
    maker.contract_now()
    maker.finish()
    assert "raykit generate PLAN" not in raykit("candidates", "show", "best").out, (
        "there is nothing left to make"
    )


def test_where_nothing_is_generated_that_is_said(raykit: Raykit, store: LocalStore) -> None:
    make_run(store)
    assert "no plan here has [generate]" in raykit("generate", "status").out
    assert raykit("generate", "status", "digits").code == 2


def test_status_ls_show_and_watch_have_the_sets(
    raykit: Raykit, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = parked(store)
    monkeypatch.setenv("COLUMNS", "160")
    listed = raykit("status").out
    assert "digits/digits: parked: a person is needed, 36 of 40 rows accounted for" in listed
    assert listed.count("raykit generate retry") == 1
    assert "digits (set)" in raykit("ls").out
    assert "set          digits/digits: parked" in raykit("show", "digits").out
    assert (
        "digits: parked: a person is needed · 36/40 rows, 1 filtered, 1 failed"
        in raykit("watch", "--once").out
    )
    maker.shards.give_up([4], "never")
    manifest = maker.close()
    listed = raykit("status").out
    assert (
        f"complete, 40 requested, 34 produced, 1 filtered, 5 failed, manifest {manifest.digest[:8]}" in listed
    )
    assert "raykit generate" not in listed, "nobody is needed"
    assert raykit("status", "--json").json["runs"][0]["sets"][0]["manifest"] == manifest.digest


def test_a_paused_contract_is_said_once_with_its_command(raykit: Raykit, store: LocalStore) -> None:
    maker = parked(store)
    scope = f"contract:{maker.shards.digest}"
    pause(store, scope, reason="the same error twice", person="desk", cause="defect", at=1.0)
    text = raykit("status").out
    assert text.count(f"raykit resume {scope}") == 1 and "--repair" in text
    assert f"raykit resume {scope} --repair" in raykit("generate", "status").out


@pytest.mark.parametrize(
    "command",
    [
        ("status", "nobody"),
        ("status", "digits/other"),
        ("export", "nobody", "out"),
        ("export", "digits/other", "out"),
        ("export", "digits/digits", "out", "--manifest", "x"),
        ("retry", "digits/other", *WHY),
        ("retry", NAME, "--unit", "10", *WHY),
        ("retry", NAME, "--reason", "more memory"),
        ("retry", NAME, *BY),
        ("give-up", NAME, *WHY),
        ("give-up", NAME, "--unit", "4", *BY),
    ],
)
def test_what_is_not_there_is_said_and_changes_nothing(
    raykit: Raykit,
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    parked(store)
    before = sorted(store.list(""))
    found = raykit("generate", *command)
    assert found.code == 2, found
    assert sorted(store.list("")) == before and not (tmp_path / "out").exists()


# --- what people say ----------------------------------------------------------------------------------------


def test_a_retry_lets_only_what_is_parked_be_tried_again(raykit: Raykit, store: LocalStore) -> None:
    maker = parked(store)
    done = raykit("generate", "retry", NAME, "--unit", "3", *WHY)
    assert done.code == 0 and "unit 3 is not parked; nothing was written" in done.out
    found = raykit("generate", "retry", NAME, *WHY)
    assert "unit 4 may be tried again" in found.out and "-> raykit generate PLAN" in found.out
    listed = raykit("generate", "status", NAME).out
    assert "1 open" in listed
    assert '-> raykit generate PLAN\n     PLAN is the plan file with name = "digits"' in listed
    plain = raykit("generate", "status", NAME, "--json").json
    assert plain["command_needs"] == {"PLAN": 'the plan file with name = "digits"'}
    assert "nothing is parked" in raykit("generate", "retry", "digits", *WHY).out
    assert list(read_acts(store, "digits").retried.values()) == [3]
    maker.park(4)
    assert raykit("generate", "retry", NAME, "--unit", "4", *WHY, "--json").json["retried"] == [4]
    assert list(read_acts(store, "digits").retried.values()) == [6]


def test_many_units_are_retried_in_one_act(raykit: Raykit, store: LocalStore) -> None:
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    for unit in (3, 5, 7):
        maker.park(unit)
    before = len(list(store.list("experiments/digits/log")))
    assert (
        "units 3, 5 may be tried again"
        in raykit("generate", "retry", NAME, "--unit", "3", "--unit", "5", *WHY).out
    )
    assert len(list(store.list("experiments/digits/log"))) == before + 1


def test_only_a_unit_that_came_to_nothing_is_given_up(raykit: Raykit, store: LocalStore) -> None:
    maker = parked(store)
    found = raykit("generate", "give-up", NAME, "--unit", "3", "--unit", "4", *WHY)
    assert found.code == 3 and "unit 3 of digits/digits is not parked" in found.err
    assert read_acts(store, "digits").given_up == {}
    found = raykit("generate", "give-up", NAME, "--unit", "4", "--reason", "its inputs are broken", *BY)
    assert found.code == 0 and "unit 4 given up: 4 rows count as failed" in found.out
    (event,) = read_acts(store, "digits").given_up[maker.shards.digest].values()
    assert (event.units, event.reason, event.person) == ((4,), "its inputs are broken", "mira")
    again = raykit("generate", "give-up", NAME, "--unit", "4", *WHY)
    assert again.code == 0 and "nothing was written" in again.out
    assert "given-up" in raykit("generate", "status", NAME).out


@pytest.mark.parametrize("command", ["retry", "give-up"])
def test_a_set_without_a_contract_has_no_units(raykit: Raykit, store: LocalStore, command: str) -> None:
    make_set(store, contract=False)
    found = raykit("generate", command, NAME, "--unit", "1", *WHY)
    assert found.code == 3 and "waits for an approved checkpoint" in found.err


# --- pauses ---------------------------------------------------------------------------------------------------


def at_work(store: LocalStore) -> SetMaker:
    """Two workers have a unit in hand; so has one that examines a checkpoint."""
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    for unit in (2, 3):
        claim = maker.shards.claim(
            unit, 1, worker="gen-1", place=this_place(), at=time.time(), deadline_s=600
        )
        assert claim is not None
    return maker


def drop(maker: SetMaker, unit: int) -> None:
    """What was in hand of the first attempt at a unit is dropped."""
    failure = maker.fail_unit(unit)  # the second attempt, for its words
    assert maker.shards.fail(unit, failure.model_copy(update={"n": 1}))


@pytest.mark.parametrize("scope", ["all", "digits", "role:generate", "contract"])
def test_a_pause_says_who_is_at_the_sets_and_how_they_end(
    raykit: Raykit, store: LocalStore, scope: str
) -> None:
    """covers FLEET-06: training is over, and still somebody is at work."""
    maker = at_work(store)
    if scope == "contract":
        scope = f"contract:{maker.shards.digest[:12]}"
    found = raykit("pause", scope, *WHY, "--timeout-s", "0.1")
    assert found.code == 6 and "nothing of it is running" not in found.out
    for unit in (2, 3):
        says = f"gen-1 has unit {unit} in hand: it finishes or drops that, and takes no more"
        assert f"digits/digits  {says}" in found.out
    assert "overdue: digits/digits: gen-1 has reached no boundary" in found.out
    assert "still waiting: digits/digits.  See: raykit status" in found.out
    again = raykit("pause", scope, *WHY, "--json", "--no-wait").json
    assert (again["new"], again["paused"]) == (False, False), "the pause holds, and they are still at it"
    assert [(each["worker"], each["state"]) for each in again["workers"]] == [("gen-1", "draining")] * 2
    maker.publish(2)
    drop(maker, 3)
    ended = raykit("pause", scope, *WHY)
    assert ended.code == 0 and "gen-1 has" not in ended.out, "nobody has anything in hand any more"


def test_a_pause_follows_each_worker_to_its_boundary(raykit: Raykit, store: LocalStore) -> None:
    # covers RAY-07, RAY-08
    maker = at_work(store)
    maker.take(20)  # and one that examines a checkpoint; elsewhere

    def finish() -> None:
        while not read_scope(store, "all").pauses:
            threading.Event().wait(0.01)
        maker.publish(2)
        drop(maker, 3)
        maker.examine(20)

    thread = threading.Thread(target=finish)
    thread.start()
    found = raykit("pause", "all", *WHY, "--timeout-s", "30")
    thread.join(30)
    assert found.code == 0, found
    assert re.search(r"gen-1 is paused: unit 2 is published   after \d", found.out), found.out
    assert re.search(r"gen-1 is paused: unit 3 was dropped, and is taken again later   after \d", found.out)
    assert re.search(r"digits  qc-1 is paused: update 20 is published   after \d", found.out)
    assert "paused. Continue: raykit resume all" in found.out


def test_a_pause_of_a_contract_ends_by_the_digest_that_began_it(raykit: Raykit, store: LocalStore) -> None:
    maker = make_set(store)
    short = f"contract:{maker.shards.digest[:8]}"
    scope = f"contract:{maker.shards.digest}"
    for typed in (short, scope):
        assert raykit("pause", short, *WHY).code == 0
        found = raykit("resume", typed)
        assert found.code == 0 and f"{scope} goes on" in found.out
        assert not read_scope(store, scope).pauses
    unknown = raykit("resume", "contract:0badc0de")
    assert unknown.code == 2 and "at least its first 8 characters" in unknown.err
    assert raykit("resume", f"contract:{'0' * 64}").code == 0, "a whole digest needs nobody to know it"


@pytest.mark.parametrize("scope", ["digits", "contract"])
def test_a_pause_of_a_set_ends_with_what_makes_it(raykit: Raykit, store: LocalStore, scope: str) -> None:
    """To resume a run that is trained makes no row of its sets."""
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    scope = f"contract:{maker.shards.digest}" if scope == "contract" else scope
    found = raykit("pause", scope, *WHY)
    assert f"paused. Continue: raykit resume {scope}   then   raykit generate PLAN\n" in found.out
    listed = raykit("generate", "status").out
    assert f"-> raykit resume {scope}\n  -> raykit generate PLAN\n     PLAN is the plan file" in listed
    found = raykit("pause", "all", *WHY)
    assert "paused. Continue: raykit resume all\n" in found.out, "what goes on then is said when it is over"


def test_a_pause_of_other_work_does_not_speak_of_the_sets(raykit: Raykit, store: LocalStore) -> None:
    maker = at_work(store)
    found = raykit("pause", "role:search", *WHY)
    assert "in hand" not in found.out and "nothing of it is running; nothing of it starts." in found.out
    assert "in hand" not in raykit("pause", "role:qc", *WHY).out
    maker.take(20)
    assert "digits  qc-1 has update 20 in hand" in raykit("pause", "role:qc", *WHY, "--no-wait").out


def test_a_resume_of_a_scope_says_which_sets_go_on(raykit: Raykit, store: LocalStore) -> None:
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    raykit("pause", "role:generate", *WHY)
    found = raykit("resume", "role:generate")
    assert found.code == 0 and "role:generate goes on" in found.out
    assert '-> raykit generate PLAN\n     PLAN is the plan file with name = "digits"' in found.out
    maker.finish()
    assert raykit("resume", "role:generate", "--json").json["sets"] == []


# --- taking it out ------------------------------------------------------------------------------------------


def test_an_export_prints_exact_counts_and_where_it_is(
    raykit: Raykit, store: LocalStore, tmp_path: Path
) -> None:
    maker = parked(store)
    out = tmp_path / "out"
    early = raykit("generate", "export", NAME, str(out))
    assert early.code == 3 and "9 of 10 units are published" in early.err and not out.exists()
    maker.shards.give_up([4], "never")
    manifest = maker.close()
    found = raykit("generate", "export", NAME, str(out))
    assert found.code == 0 and "digits/digits: 34 rows in 1 file" in found.out
    assert f"40 requested, 1 filtered, 5 failed; manifest {manifest.digest[:8]}" in found.out
    assert f'datasets.load_dataset("parquet", data_dir="{out}")' in found.out
    assert raykit("generate", "export", NAME, str(out)).code == 2, "it is there"
    lines = raykit("generate", "export", NAME, str(tmp_path / "lines"), "--format", "jsonl", "--json").json
    assert lines["rows"]["exported"] == 34 and lines["manifest"] == manifest.digest
    rows = (tmp_path / "lines" / lines["files"][0]["name"]).read_text().splitlines()
    assert len(rows) == 34 and json.loads(rows[0])["row"] == 0


def test_an_export_of_a_set_with_findings_says_despite_what(
    raykit: Raykit, store: LocalStore, tmp_path: Path
) -> None:
    maker = make_set(store, bounds={"failed": 0.001}, scripted=True)
    maker.publish(2, failed=1)
    maker.finish()
    assert "complete, not within its bounds" in raykit("status").out
    refused = raykit("generate", "export", NAME, str(tmp_path / "out"))
    assert refused.code == 3 and "1 of 40 rows are failed" in refused.err and "despite" in refused.err
    found = raykit("generate", "export", NAME, str(tmp_path / "out"), "--despite", "one in forty is fine")
    assert found.code == 0 and "one in forty is fine" in found.out and "not for production" in found.out
    assert "Taken all the same: one in forty is fine" in (tmp_path / "out" / "README.txt").read_text()


# --- making -------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the fleet was asked for; it answers with `outcome`."""
    said: dict[str, Any] = {"outcome": Outcome(experiment="digits")}

    def generate(plan: Path, root: str, **how: Any) -> Outcome:
        said.update(how, plan=plan, root=root)
        how["say"]("asks the producer")
        how["tell"](
            Making(
                name="digits",
                published=2,
                units=10,
                rows=8,
                rows_requested=40,
                rows_per_s=9.5,
                workers=1,
                canary=True,
                eta_s=4.0,
            )
        )
        outcome = said["outcome"]
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, Outcome)
        return outcome

    monkeypatch.setattr(fleet, "generate", generate)
    return said


def closed(maker: SetMaker, *, new: bool = True) -> Outcome:
    manifest = maker.finish()
    return Outcome(
        experiment="digits",
        sets={"digits": SetOutcome(manifest=manifest.digest, rows=manifest.rows, new=new)},
    )


def test_a_launch_says_how_far_it_is_and_what_came_of_it(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    asked["outcome"] = closed(make_set(store))
    found = raykit("generate", "plan.toml")
    assert found.code == 0
    assert (
        "asks the producer" in found.err
        and "8/40 rows  canary · 9.5 rows/s · 1 worker · 4.0 s left" in found.err
    )
    digest = asked["outcome"].sets["digits"].manifest
    assert f"complete, 40 requested, 40 produced, 0 filtered, 0 failed, manifest {digest[:8]}" in found.out
    assert "-> raykit generate export digits/digits DIR" in found.out
    assert "samples   " in found.out and store.head(
        "experiments/digits/generation/digits/pictures/samples.png"
    )
    assert (asked["only"], asked["workers"], asked["changed"]) == (None, None, None)


def test_a_launch_that_meets_a_pause_says_so_once_and_what_goes_on(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    make_set(store)
    pause(store, "experiment:digits", reason="promised to inference", person="mira", at=1.0)
    why = "digits is paused by mira: promised to inference"
    asked["outcome"] = Outcome(experiment="digits", sets={"digits": SetOutcome(why=why, exit_code=4)})
    found = raykit("generate", "plan.toml")
    assert found.code == 4 and found.out.count("promised to inference") == 1
    assert "-> raykit resume digits\n  -> raykit generate plan.toml\n" in found.out
    assert found.out.count("-> raykit resume digits") == 1 and "PLAN is" not in found.out
    told = raykit("generate", "status", "--json").json[0]
    assert (told["command"], told["then"]) == ("raykit resume digits", "raykit generate PLAN")
    assert told["command_needs"] == {"PLAN": 'the plan file with name = "digits"'}


def test_a_launch_that_ends_early_names_its_own_plan(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    make_set(store)
    asked["outcome"] = Outcome(
        experiment="digits", sets={"digits": SetOutcome(why="ended by SIGTERM", exit_code=4)}
    )
    found = raykit("generate", "my plan.toml")
    assert "stopped   ended by SIGTERM" in found.out and "-> raykit generate 'my plan.toml'" in found.out
    assert "PLAN is" not in found.out


def test_a_finished_plan_again_writes_nothing(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    """covers I11"""
    asked["outcome"] = closed(make_set(store), new=False)
    before = sorted(store.list(""))
    found = raykit("generate", "plan.toml", "--json")
    assert found.code == 0 and found.json["new"] == [] and found.json["sets"]["digits"]["state"] == "complete"
    assert sorted(store.list("")) == before


def test_a_launch_that_is_stopped_ends_with_its_code(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    parked(store)
    asked["outcome"] = Outcome(
        experiment="digits", sets={"digits": SetOutcome(why="unit 4 is parked", exit_code=3)}
    )
    found = raykit("generate", "plan.toml", "--set", "digits", "--workers", "2")
    assert found.code == 3 and "stopped   unit 4 is parked" in found.out
    assert "-> raykit generate retry digits/digits" in found.out
    assert (asked["only"], asked["workers"]) == ("digits", 2)


def test_a_deliberate_change_says_why_who_and_what_is_reused(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any]
) -> None:
    """covers GEN-16"""
    make_set(store)
    assert raykit("generate", "plan.toml", "--reuse", "all", *BY).code == 2
    assert raykit("generate", "plan.toml", "--changed", "cooler").code == 2, "nobody says so"
    assert raykit("generate", "plan.toml", "--changed", " ", *BY).code == 2
    assert "changed" not in asked
    assert raykit("generate", "plan.toml", "--changed", "cooler", "--reuse", "0-3", *BY).code == 0
    said = asked["changed"]
    assert (said.why, said.person, said.scripted, said.reuse) == ("cooler", "mira", True, "0-3")


def test_a_refusal_names_the_plan_and_the_store(
    raykit: Raykit, store: LocalStore, asked: dict[str, Any], tmp_path: Path
) -> None:
    make_set(store)
    asked["outcome"] = GateError(
        "digits/digits was frozen otherwise: generate.digits.decode.temperature was 1.0, is 0.8",
        field="generate.digits.decode.temperature",
        rule="one contract from the first unit to the last",
        remedy='raykit generate PLAN --changed "why" --by NAME',
    )
    other = str(tmp_path / "store" / ".." / "store")
    found = raykit("generate", "jobs/plan.toml", "--root", other)
    assert found.code == 3 and "temperature was 1.0, is 0.8" in found.err
    assert f'pass   raykit generate --root {other} jobs/plan.toml --changed "why"' in found.err


@pytest.mark.parametrize("typed", ["digits", NAME])
def test_a_name_where_the_plan_file_is_meant_is_told_so(
    raykit: Raykit, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    make_set(store)
    monkeypatch.chdir(tmp_path)
    found = raykit("generate", typed)
    assert found.code == 2 and 'the plan file with name = "digits"' in found.err
    assert "pass   raykit generate PLAN   or   raykit generate status digits" in found.err
    assert "raykit resume" not in found.err, "that makes no sets"
