"""`raykit resume` of a search: what ends its pause, who may open rows again, and what is refused before any Ray starts.

The search itself is not run here: what would run it is replaced, and everything before that is real.

covers RAY-11 RAY-12, F24, I6
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from called import Raykit, calls
from money import line, planned, terms
from searchtoys import write_search

from raykit.budget.acts import plan as set_aside
from raykit.budget.admit import Request, admit, void
from raykit.budget.amounts import micros
from raykit.budget.book import Book
from raykit.errors import FleetPaused
from raykit.fleet.search import driver
from raykit.fleet.search.going import refusal_of
from raykit.fleet.search.opening import Opened, look, open_search
from raykit.fleet.search.outcome import SearchOutcome, outcome_of
from raykit.fleet.site import site_of, stored_site
from raykit.records import Driven, LetGo, Place, Reopened, RowEnded
from raykit.store.accounts import Identity, join_account
from raykit.store.people import People, cancel, pause, read_acts
from raykit.store.place import this_place

NAME = "tiny"
SCOPE = f"experiment:{NAME}"
BY = ("--by", "mira")


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """A search that is registered, frozen and paid for, and that nobody drives."""
    path = write_search(
        tmp_path / "job", trials=3, concurrent=1, rate=1.0, ceiling=4.0, wall_h="0.01", attempts="2"
    )
    site = site_of(path, str(tmp_path / "store"))
    people = People(site.store, site.name)
    looked = look(site, people, approved=None, deviation=None, say=lambda text: None)
    made = open_search(looked, people, approved=None, deviation=None)
    made.log.append(lambda entries: [LetGo(driver=made.driver)], at=time.time())
    return made


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


@pytest.fixture
def driven(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The searches that were driven on."""
    seen: list[str] = []

    def search(site: Any, **how: Any) -> SearchOutcome:
        seen.append(site.name)
        opened.log.refresh()
        short = [row.n for row in opened.log.state.rows if row.status == "refused-by-budget"]
        again = [Reopened(rows=tuple(short), reason="money is there", person="mira")] if short else []
        opened.log.append(lambda entries: again, at=time.time())
        return outcome_of(opened.log.state)

    monkeypatch.setattr(driver, "search", search)
    return seen


def taken(opened: Opened) -> str:
    """Work of another experiment leaves the account a cent."""
    ledger = opened.spending.ledger
    lines = [
        line("train", "target", 4.96),
        line("confirmation", "confirmation", 0.02),
        line("r", "recovery", 0.02),
    ]
    other = planned("other", 5.0, lines)
    who = Identity(experiment="other", decision=other.decision)
    join_account(opened.site.store, who, ledger.account, unit="usd", by="test", at=time.time())
    ledger.decide(lambda book: set_aside(book, other), at=time.time())

    def ask(book: Book) -> Any:
        request = Request(
            lease="other-1", experiment="other", line="train", terms=terms(micros("4.96", field="x"))
        )
        return admit(book, request, now=time.time())

    ledger.decide(ask, at=time.time())
    return "other-1"


def out_of_money(opened: Opened) -> None:
    """As a driver leaves a search that cannot pay for its rows: paused first, then every row ended."""
    why = "the account cannot pay"
    store, name = opened.site.store, opened.site.name
    pause(store, SCOPE, cause="ceiling", reason=why, person="search d1", at=time.time())
    ends = [
        RowEnded(row=n, end="refused-by-budget", update=0, cost=0, attempts=0, detail=why) for n in (1, 2, 3)
    ]
    opened.log.append(lambda entries: ends, at=time.time())
    assert name == NAME


def test_a_search_that_stopped_goes_on_by_its_name(raykit: Raykit, opened: Opened, driven: list[str]) -> None:
    found = raykit("resume", NAME)
    assert found.code == 0, found.err
    assert driven == [NAME]
    assert "tiny · registered, and no row has begun · 0/3 trials" in found.out


def test_a_pause_by_a_person_ends_with_resume_and_a_wider_one_does_not(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    store = opened.site.store
    pause(store, SCOPE, reason="lunch", person="ada", at=time.time())
    found = raykit("resume", NAME)
    assert found.code == 0 and "the pause is over (paused by ada: lunch)" in found.err
    assert driven == [NAME] and SCOPE not in read_acts(store, NAME).pauses
    pause(store, SCOPE, reason="lunch", person="ada", at=time.time())
    pause(store, "role:search", reason="the GPUs are promised", person="ada", at=time.time())
    refused = raykit("resume", NAME)
    assert refused.code == 4 and "raykit resume role:search" in refused.err
    assert SCOPE in read_acts(store, NAME).pauses and driven == [NAME]
    raykit("resume", "role:search")
    pause(store, "role:train", reason="not these", person="ada", at=time.time())
    assert raykit("resume", NAME).code == 0, "a pause of training is none of a search"


def test_a_pause_because_rows_failed_alike_ends_by_what_was_changed(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    store = opened.site.store
    pause(store, SCOPE, cause="defect", reason="2 rows failed alike", person="search d1", at=time.time())
    refused = raykit("resume", NAME)
    assert refused.code == 4 and "no repair is recorded" in refused.err and driven == []
    assert f'raykit resume {NAME} --repair "what you changed" --by NAME' in refused.err
    assert raykit("resume", NAME, "--repair", "the disk is mounted").code in (2, 3), "nobody says so"
    found = raykit("resume", NAME, "--repair", "the disk is mounted", *BY)
    assert found.code == 0 and driven == [NAME], found.err
    assert "repaired: the disk is mounted" in found.err and SCOPE not in read_acts(store, NAME).pauses


def test_rows_that_a_budget_ended_are_opened_by_a_person_once_money_is_there(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    # covers RAY-11, I6
    lease = taken(opened)
    out_of_money(opened)
    nobody = raykit("resume", NAME)
    assert nobody.code == 2 and "3 rows of tiny were ended by a budget" in nobody.err
    assert "raykit resume tiny --by NAME" in nobody.err
    with pytest.raises(FleetPaused) as held:
        again = site_of(opened.site.plan_path or Path(), opened.site.root)
        look(again, opened.people, approved=None, deviation=None, say=lambda text: None)
    assert held.value.remedy == "raykit resume tiny --by NAME", "as the same plan is refused"
    short = raykit("resume", NAME, *BY)
    assert short.code in (3, 4) and driven == [], short.err
    assert SCOPE in read_acts(opened.site.store, NAME).pauses, "the cause stands, and so does the pause"
    ledger = opened.spending.ledger
    ledger.decide(lambda book: void(book, lease, proof="it never started"), at=time.time())
    found = raykit("resume", NAME, *BY)
    assert found.code == 0, found.err
    assert driven == [NAME] and SCOPE not in read_acts(opened.site.store, NAME).pauses


def test_a_search_that_is_over_needs_no_money_to_be_looked_at_again(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    ends = [RowEnded(row=n, end="never-started", update=0, cost=0, attempts=0) for n in (1, 2, 3)]
    opened.log.append(lambda entries: ends, at=time.time())
    with stored_site(NAME, opened.site.root) as site:
        assert refusal_of(site, read_acts(site.store, NAME), None) is None
    found = raykit("resume", NAME)
    assert found.code == 3 and "nothing can be picked of 3 rows (3 never-started): trial-001" in found.out


def test_a_refusal_says_what_the_next_row_would_be_refused_for(opened: Opened) -> None:
    with stored_site(NAME, opened.site.root) as site:
        acts = read_acts(site.store, NAME)
        assert refusal_of(site, acts, None) is None
        entries = len(opened.spending.ledger.refresh()) + len(opened.spending.ledger.entries)
        taken(opened)
        refusal = refusal_of(site, acts, None)
    assert refusal is not None and refusal.exit_code in (3, 4)
    opened.spending.ledger.refresh()
    asked = [e for entry in opened.spending.ledger.entries[entries:] for e in entry.events]
    assert not any(getattr(event, "experiment", None) == NAME for event in asked), "nothing was written"


def test_in_the_background_the_same_is_refused_before_a_process_starts(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    taken(opened)
    refused = raykit("resume", NAME, "--detach")
    assert refused.code in (3, 4) and driven == []


def no_process(*arguments: object, **named: object) -> None:
    raise AssertionError("a process was started")


def test_in_the_background_nothing_starts_beside_a_driver_that_is_alive(
    raykit: Raykit, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_process)
    elsewhere = Place(host="n7", boot="boot/1", pid=4711, started=1)
    opened.log.append(
        lambda entries: [Driven(driver="other", place=elsewhere, raykit="0.1.0")], at=time.time()
    )
    refused = raykit("resume", NAME, "--detach")
    assert refused.code == 3 and "is under way: process 4711 on n7" in refused.err
    assert "goes on in process" not in refused.out


@pytest.mark.parametrize("how", [(), ("--detach",)])
def test_a_search_that_is_over_and_was_a_job_is_over(
    raykit: Raykit, opened: Opened, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_process)
    job = Driven(driver="other", place=this_place(), raykit="0.1.0", job="raykit-tiny-1")
    ends = [RowEnded(row=n, end="never-started", update=0, cost=0, attempts=0) for n in (1, 2, 3)]
    opened.log.append(lambda entries: [job, *ends, LetGo(driver="other")], at=time.time())
    found = raykit("resume", NAME, *how)
    assert "is over already; nothing was written" in found.out and "can go on" not in found.out


def test_a_search_that_was_a_job_elsewhere_says_how_it_goes_on(
    raykit: Raykit, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raykit.cli.submit._knows", lambda job: False)
    job = Driven(driver="other", place=this_place(), raykit="0.1.0", job="raykit-tiny-1")
    opened.log.append(lambda entries: [job, LetGo(driver="other")], at=time.time())
    found = raykit("resume", NAME)
    assert found.code == 0 and "or here  raykit search PLAN" in found.out


def test_what_was_cancelled_says_so_before_anything_else(
    raykit: Raykit, opened: Opened, driven: list[str]
) -> None:
    out_of_money(opened)
    cancel(opened.site.store, NAME, reason="lr is flat", person="mira", at=time.time())
    for how in ((), ("--detach",), BY, ("--repair", "the disk is mounted", *BY)):
        refused = raykit("resume", NAME, *how)
        assert refused.code == 3 and "tiny was cancelled by mira: lr is flat" in refused.err
        assert "raykit resume" not in refused.err and driven == []


def test_an_amendment_is_said_by_a_person(raykit: Raykit, opened: Opened) -> None:
    words = ("--as", "state-exact", "--reason", "a newer torch")
    nobody = raykit("resume", NAME, *words)
    assert nobody.code == 2 and "a person has to say so" in nobody.err
    assert raykit("resume", NAME, *words[:2], *BY).code == 2, "and with a reason"
