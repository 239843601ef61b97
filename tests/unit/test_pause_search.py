"""`raykit pause` and `raykit resume` where a search is at work beside a run: who is meant, who is followed, what holds.

covers RAY-07 RAY-08 RAY-10 RAY-11 FLEET-10, F17
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from called import Raykit, calls
from makerun import RunMaker
from makesearch import SearchMaker, make_going

from raykit.ids import sha256
from raykit.pauses import pause_of
from raykit.records import Driven, LetGo
from raykit.store.local import LocalStore
from raykit.store.people import pause, read_acts, read_scope
from raykit.store.place import this_place

WHY = ("--reason", "machines promised elsewhere", "--by", "mira")
NAME = "lr-search"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


def driven(store: LocalStore) -> SearchMaker:
    """A search that this process drives: rows 4 and 5 are at work."""
    maker = make_going(store, at=time.time() - 7200)
    maker.say(Driven(driver="d1", place=this_place(), raykit="0.1.0"))
    return maker


def going(store: LocalStore, name: str = "refresh") -> RunMaker:
    """A run that trains in this process."""
    maker = RunMaker(store, experiment=name, place=this_place(), at=time.time() - 60)
    maker.contract = sha256(name.encode())
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(10)
    maker.commit()
    return maker


@contextmanager
def obeying(maker: SearchMaker, scope: str, *rows: int, lets_go: bool = True) -> Iterator[None]:
    """The process of a search that hears of a pause: its rows commit and are released, then it lets go."""

    def obey() -> None:
        deadline = time.monotonic() + 60
        while not read_scope(maker.store, scope).pauses and time.monotonic() < deadline:
            threading.Event().wait(0.01)
        for row in rows:
            run = maker.runs[row]
            run.at = maker.at = max(maker.at, time.time())
            run.ask_to_stop("pause")
            run.rows(1)
            run.commit("stop")
            maker.pause(row)
        if lets_go:
            maker.say(LetGo(driver="d1"))

    thread = threading.Thread(target=obey)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()


def test_a_pause_of_searches_follows_rows_and_driver_to_their_boundaries_and_leaves_the_run_alone(
    raykit: Raykit, store: LocalStore
) -> None:
    maker, run = driven(store), going(store)
    before = run.log.state.events
    with obeying(maker, "role:search", 4, 5):
        found = raykit("pause", "role:search", *WHY, "--timeout-s", "60")
    assert found.code == 0, found
    for row in ("trial-004", "trial-005"):
        assert re.search(rf"{NAME}/{row}  1 of 1 workers at update 24, to commit at the next", found.out)
        assert re.search(rf"{NAME}/{row}  committed update 25", found.out)
        assert re.search(rf"{NAME}/{row}  released, at update 25   lost: 0 updates   after ", found.out)
    assert re.search(rf"{NAME}  its search has 2 of 12 rows at work, and begins none of the 7 ", found.out)
    assert re.search(rf"{NAME}  its search is paused: it has let go of the search   after ", found.out)
    assert "refresh" not in found.out
    assert "paused. Continue: raykit resume role:search" in found.out
    run.log.refresh()
    assert run.log.state.events == before, "training of another role is not spoken to"
    assert pause_of(read_acts(store, "refresh"), "refresh", "train") is None
    held = pause_of(read_acts(store, NAME), NAME, "search")
    assert held is not None and held.pause.person == "mira"


def test_rows_and_driver_that_go_on_are_draining_and_then_overdue(raykit: Raykit, store: LocalStore) -> None:
    maker = driven(store)
    said = raykit("pause", NAME, *WHY, "--no-wait", "--json").json
    assert (said["paused"], said["new"]) == (False, True)
    assert [(run["id"], run["role"], run["state"]) for run in said["runs"]] == [
        (f"{NAME}/trial-004", "search", "requested"),
        (f"{NAME}/trial-005", "search", "requested"),
    ]
    assert [(each["worker"], each["state"]) for each in said["workers"]] == [("its search", "draining")]
    maker.runs[4].ask_to_stop("pause")
    late = raykit("pause", NAME, *WHY, "--timeout-s", "0.1", "--json")
    assert late.code == 6
    states = {run["id"].partition("/")[2]: run["state"] for run in late.json["runs"]}
    assert states == {"trial-004": "draining", "trial-005": "requested"}
    assert late.json["new"] is False
    text = raykit("pause", NAME, *WHY, "--timeout-s", "0.1")
    assert f"overdue: {NAME}/trial-005 has not reached its boundary" in text.out
    assert f"overdue: {NAME}: its search has reached no boundary" in text.out


def test_a_pause_of_everything_is_a_pause_of_searches_too_and_one_that_has_let_go_is_done(
    raykit: Raykit, store: LocalStore
) -> None:
    maker, run = driven(store), going(store)
    with obeying(maker, "all", 4, 5):
        found = raykit("pause", "all", *WHY, "--timeout-s", "4", "--json")
    assert found.code == 6, "the run does not obey here"
    states = {each["id"]: each["state"] for each in found.json["runs"]}
    assert states == {
        f"{NAME}/trial-004": "paused",
        f"{NAME}/trial-005": "paused",
        "refresh/main": "requested",
    }
    assert [each["boundary"] for each in found.json["workers"]] == ["it has let go of the search"]
    assert all(each["after_s"] >= 0 for each in found.json["workers"])
    run.end("paused")
    run.release("paused")
    again = raykit("pause", "all", *WHY, "--json")
    assert (again.code, again.json["new"], again.json["paused"]) == (0, False, True)


def test_a_contract_of_a_search_is_that_of_all_of_its_rows(raykit: Raykit, store: LocalStore) -> None:
    maker = driven(store)
    digest = maker.registration.contract
    found = raykit("pause", f"contract:{digest[:12]}", *WHY, "--no-wait", "--json").json
    assert found["scope"] == f"contract:{digest}"
    assert [run["id"] for run in found["runs"]] == [f"{NAME}/trial-004", f"{NAME}/trial-005"]


@pytest.mark.parametrize("scope", ["role:train", "role:qc", "role:generate", "refresh"])
def test_a_pause_of_other_work_leaves_a_search_alone(raykit: Raykit, store: LocalStore, scope: str) -> None:
    driven(store)
    run = going(store)
    run.end("paused")
    run.release("paused")
    found = raykit("pause", scope, *WHY, "--timeout-s", "5")
    assert found.code == 0, found
    assert NAME not in found.out
    assert pause_of(read_acts(store, NAME), NAME, "search") is None


def test_a_resume_of_searches_is_refused_while_its_cause_stands_and_said_once(
    raykit: Raykit, store: LocalStore
) -> None:
    # covers RAY-11
    driven(store)
    pause(
        store, "role:search", cause="defect", reason="rows are not finite", person="a search", at=time.time()
    )
    refused = raykit("resume", "role:search")
    assert refused.code == 4 and "no repair is recorded" in refused.err
    assert read_scope(store, "role:search").pauses
    assert raykit("resume", "role:search", "--repair", "clipped", "--by", "mira").code == 0
    assert not read_scope(store, "role:search").pauses
    again = raykit("resume", "role:search")
    assert again.code == 0 and "is not paused; nothing was written" in again.out
