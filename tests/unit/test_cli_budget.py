"""`raykit budget`: what people see of money, and how they move it."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from called import Raykit, calls
from makebudget import PaidByNode, usd
from makerun import RunMaker

from raykit.records import Held, Settled, Terms
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.place import this_place


@pytest.fixture
def raykit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


@pytest.fixture
def maker(tmp_path: Path) -> PaidByNode:
    """A run that worked for an hour and was stopped."""
    found = PaidByNode(LocalStore(tmp_path), experiment="refresh", updates=1430, at=time.time() - 7200)
    found.freeze()
    found.approve()
    found.launch()
    found.begin()
    found.rows(20)
    found.look()
    found.commit("stop")
    found.end("paused", hours=1.0)
    found.release("paused")
    return found


def entries(maker: PaidByNode) -> int:
    ledger = Ledger(maker.store, "corp-lm", by="test")
    return len(ledger.refresh())


def book(maker: PaidByNode) -> Any:
    maker.ledger.refresh()
    return maker.ledger.book


def planned(maker: PaidByNode) -> dict[str, int]:
    return {name: line.planned for name, line in book(maker).allocations["refresh"].lines.items()}


# --- show ---------------------------------------------------------------------------------------------------


def test_show_has_every_line_and_what_it_comes_to(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-16, BUD-23, BUD-36
    text = raykit("budget", "show", "refresh").out
    lines = {line.split()[0]: re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip()}
    assert text.startswith("refresh \u00b7 account corp-lm \u00b7 ceiling below 900.00 USD\n")
    assert lines["train"] == ["train", "307.67", "23.92", "-", "283.75", "20 of 1,430 updates"]
    assert lines["confirmation"][4:] == ["307.67", "kept: one run to confirm"]
    assert lines["total"] == ["total", "900.00", "23.92", "-", "876.08"]
    assert lines["projected"][1].endswith("at the end (planned 354.00)")
    assert lines["time"][1] == "1h00 of 8h42 planned, 1 attempt, 8 accelerator-hours"
    assert lines["idle"][1] == "0.00, no work done"
    assert "without 0.001 better in development.ratio" in lines["stops"][1]
    assert lines["rate"][1] == "pool train: 2.99 an accelerator-hour (invoice 2026-10)"
    assert lines["approved"][1] == "900.00 for refresh by mira (entry 3)"
    assert lines["unknown"][1] == "no outcome"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_show_fits(columns: int, raykit: Raykit, maker: PaidByNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for text in (raykit("budget", "show", "refresh").out, raykit("budget", "show").out):
        assert max(map(len, text.splitlines())) <= columns
        assert "283.75" in text or "876.08" in text or columns == 40


def test_show_of_an_account_and_of_all(raykit: Raykit, maker: PaidByNode) -> None:
    text = raykit("budget", "show", "corp-lm").out
    assert text.startswith("account corp-lm \u00b7 below 900.00 USD \u00b7 $23.92 charged\n")
    assert re.search(r"^ +refresh +900.00 +23.92 +- +876.08$", text, re.MULTILINE)
    assert raykit("budget", "show").out == text
    plain = raykit("budget", "show", "--json").json
    assert [account["account"] for account in plain["accounts"]] == ["corp-lm"]
    assert raykit("budget", "show", "refresh", "--json").json["totals"]["actual"] == usd("23.92")


def test_show_names_what_is_unknown_with_its_command(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-36
    maker.launch()
    maker.begin(hours=2)
    text = raykit("budget", "show", "refresh").out
    assert "  unknown    1 outcome\n" in text
    assert "  refresh-launch-2-1 of refresh: its end is not known; $50.23 stays charged" in text
    assert '  -> raykit budget settle refresh-launch-2-1 --cost AMOUNT --how "..." --by NAME\n' in text


def test_show_of_held_machines(raykit: Raykit, maker: PaidByNode) -> None:
    # covers RAY-09
    maker.at = time.time() - 3600.0
    maker.hold()
    text = raykit("budget", "show", "refresh").out
    assert "! refresh: 8 accelerators of train still yours and still billed, $23.92/h, $23.9" in text
    assert "  -> lambda-stop i-0a1b\n" in text
    assert '  -> raykit budget free refresh --how "..."' in text
    assert re.search(r"^  idle +23.9\d, no work done$", text, re.MULTILINE)


def test_show_of_nothing(raykit: Raykit) -> None:
    assert raykit("budget", "show").out.startswith("no account in ")
    called = raykit("budget", "show", "nobody", "--json")
    assert (called.code, called.error["kind"]) == (2, "not-found")
    assert raykit("budget", "show", "../x").code == 2


def test_small_amounts_are_not_rounded_away(raykit: Raykit, tmp_path: Path) -> None:
    small = PaidByNode(LocalStore(tmp_path), experiment="refresh", updates=1430)
    small.rate, small.ceiling, small.confirmation, small.expected = "0.01", "0.05", "0.01", "0.01"
    small.lines = (("train", "target", "0.02"),)
    small.freeze()
    small.launch()
    small.begin(hours=0.1)
    small.end("paused", hours=0.05)
    text = raykit("budget", "show", "refresh").out
    assert re.search(r"^  train +0.020000 +0.004000 +- +0.016000 ", text, re.MULTILINE)


# --- replan -------------------------------------------------------------------------------------------------

BY = ("--by", "mira")
WHY = ("--reason", "as measured")


def test_replan_as_the_rest_of_the_run_needs(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-27
    before = planned(maker)
    called = raykit("budget", "replan", "refresh", *BY, *WHY)
    assert called.code == 0
    after = planned(maker)
    assert sum(after.values()) == sum(before.values()) == usd("900")
    assert after["storage"] == before["storage"]
    assert after["recovery"] > before["recovery"], "what was measured is less than the plan's own guesses"
    assert re.search(r"^  train +307.67 +\d+\.\d\d +-\d+\.\d\d$", called.out, re.MULTILINE)
    assert "  Continue: raykit resume refresh\n" in called.out
    last = maker.ledger.entries[-1].events[0]
    assert (last.person, last.reason, last.scripted) == ("mira", "as measured", True)  # type: ignore[union-attr]
    again = raykit("budget", "replan", "refresh", *BY, *WHY)
    assert "so already; nothing was written" in again.out
    assert maker.ledger.refresh() == []


def test_replan_with_moves(raykit: Raykit, maker: PaidByNode) -> None:
    called = raykit(
        "budget",
        "replan",
        "refresh",
        *BY,
        *WHY,
        "--move",
        "recovery:train=22.31",
        "--move",
        "recovery:storage=1",
    )
    assert called.code == 0
    assert planned(maker)["train"] == usd("329.98")
    assert re.search(r"^  recovery +274.66 +251.35 +-23.31$", called.out, re.MULTILINE)


def test_a_higher_ceiling_ends_the_approval_and_says_so(raykit: Raykit, maker: PaidByNode) -> None:
    # covers APPR-16
    called = raykit("budget", "replan", "refresh", *BY, *WHY, "--ceiling", "1000")
    assert called.code == 0
    assert "that approval does not cover this plan any more" in called.out
    assert "  -> raykit approve plan refresh 1000 --by NAME\n" in called.out
    assert sum(planned(maker).values()) == usd("1000")


def test_a_rise_of_the_rate_is_seen_by_who_replans(raykit: Raykit, maker: PaidByNode) -> None:
    raykit("budget", "rate", "train", "3.29", "refresh", "--source", "invoice 2026-11", *BY)
    called = raykit("budget", "replan", "refresh", *BY, *WHY)
    assert "  rate  train 2.99 -> 3.29 an accelerator-hour (invoice 2026-11" in called.out
    assert book(maker).allocations["refresh"].rates["train"] == usd("3.29")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--move", "recovery:trin=1"], 2, "there is no line trin"),
        (["--move", "recovery-train-1"], 2, "is no move"),
        (["--move", "recovery:train=-1"], 2, "is not an amount"),
        (["--move", "recovery:train=nan"], 2, "nan is not an amount"),
        (["--move", "recovery:train=1000"], 2, "recovery would fall below 0"),
        (["--ceiling", "inf"], 2, "not an amount"),
        (["--ceiling", "1e12"], 2, "is not an amount"),
        (["--ceiling", "20"], 3, "the ceiling is 20.00"),
        (["--move", "train:recovery=300"], 3, "uncovered that is spent"),
    ],
)
def test_replan_refuses_and_writes_nothing(
    arguments: list[str], code: int, says: str, raykit: Raykit, maker: PaidByNode
) -> None:
    # covers BUD-28
    before = entries(maker)
    called = raykit("budget", "replan", "refresh", *BY, *WHY, *arguments)
    assert (called.code, called.out) == (code, "")
    assert says in called.err
    assert entries(maker) == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["budget", "replan", "refresh", *WHY], "--by"),
        (["budget", "replan", "refresh", *BY], "--reason"),
        (["budget", "replan", "refresh", *BY, "--reason", "  "], "--reason"),
        (["budget", "replan", "refresh", *BY, "--reason", "x" * 2001], "--reason"),
        (["budget", "settle", "x", *BY, "--how", "y"], "--cost"),
        (["budget", "settle", "x", *BY, "--cost", "1"], "--how"),
        (["budget", "settle", "x", "--cost", "1", "--how", "y"], "--by"),
        (["budget", "charge", "refresh", "storage", "1", *BY], "--how"),
        (["budget", "rate", "train", "3", "refresh", *BY], "--source"),
        (["budget", "rate", "train", "3", *BY, "--source", "x"], "NAME, --account"),
        (["budget", "part", "new", "--from", "corp-lm", "--to", "mine", *BY], "--reason"),
        (["budget", "free", "refresh", *BY], "--how"),
    ],
)
def test_what_is_missing_is_named(
    arguments: list[str], field: str, raykit: Raykit, maker: PaidByNode
) -> None:
    before = entries(maker)
    called = raykit(*arguments, "--json")
    assert (called.code, called.out, called.error["field"]) == (2, "", field)
    assert called.error["rule"]
    assert entries(maker) == before


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("22.31\n", 0), ("22\n", 2)])
def test_a_person_at_a_terminal_types_the_amount(
    typed: str, code: int, raykit: Raykit, maker: PaidByNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    before = planned(maker)
    called = raykit("budget", "replan", "refresh", *BY, *WHY, "--move", "recovery:train=22.31")
    assert called.code == code
    assert "Type the amount that moves to approve (22.31)" in called.err
    assert (planned(maker) == before) == bool(code)
    if not code:
        assert not maker.ledger.entries[-1].events[0].scripted  # type: ignore[union-attr]


# --- settle, charge -----------------------------------------------------------------------------------------


def test_settle_what_nobody_knows(raykit: Raykit, maker: PaidByNode) -> None:
    maker.launch()
    maker.begin(hours=2)
    lease = "refresh-launch-2-1"
    called = raykit("budget", "settle", lease, "--cost", "12", "--how", "the console", *BY)
    assert (called.code, called.out) == (0, f"  settled: {lease} cost 12.00 on train of refresh\n")
    last = book(maker).leases[lease]
    assert (last.open, last.cost) == (False, usd("12"))
    again = raykit("budget", "settle", lease, "--cost", "12", "--how", "the console", *BY)
    assert again.out.startswith("  settled already: ")
    invoice = raykit("budget", "settle", lease, "--cost", "13.5", "--how", "invoice", *BY, "--json")
    assert invoice.json["new"]
    assert book(maker).leases[lease].cost == usd("13.5")


def test_an_unknown_lease_is_told_which_are_open(raykit: Raykit, maker: PaidByNode) -> None:
    maker.launch()
    maker.begin(hours=2)
    called = raykit("budget", "settle", "lunch-2-1", "--cost", "12", "--how", "x", *BY)
    assert called.code == 2
    assert "there is no lease lunch-2-1" in called.err
    assert "open: refresh-launch-2-1" in called.err
    other = raykit("budget", "settle", "x", "--account", "corp", "--cost", "1", "--how", "x", *BY)
    assert other.code == 2
    assert "there is no account corp " in other.err
    assert "corp-lm" in other.err


def test_an_overrun_is_told(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-27
    maker.launch()
    maker.begin(hours=2)
    called = raykit("budget", "settle", "refresh-launch-2-1", "--cost", "400", "--how", "invoice", *BY)
    assert "refresh has overrun by $116.25: nothing more starts before a replan" in called.out
    assert '  -> raykit budget replan refresh --reason "..."' in called.out


def test_a_fixed_cost_is_charged_once(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-19
    charge = ("budget", "charge", "refresh", "storage", "3.5", "--how", "storage, October", *BY)
    assert raykit(*charge).out == "  charged 3.50 to storage of refresh; 6.50 left on it\n"
    before = entries(maker)
    assert raykit(*charge).out.startswith("  charged already")
    assert entries(maker) == before
    reserved, settled = maker.ledger.refresh() and maker.ledger.entries[-1].events
    assert isinstance(settled, Settled)
    assert (settled.cost, settled.person) == (usd("3.5"), "mira")
    assert reserved.terms == Terms(  # type: ignore[union-attr]
        accelerators=0, rate=0, source="storage, October", time_ms=0, fixed=usd("3.5")
    )


def test_a_fixed_cost_is_no_attempt(raykit: Raykit, maker: PaidByNode) -> None:
    before = raykit("budget", "show", "refresh", "--json").json
    sized = book(maker).allocations["refresh"].ended("train")
    assert raykit("budget", "charge", "refresh", "train", "1", "--how", "a disk", *BY).code == 0
    after = raykit("budget", "show", "refresh", "--json").json
    assert after["attempts"] == before["attempts"] and after["totals"]["actual"] > before["totals"]["actual"]
    assert list(book(maker).allocations["refresh"].ended("train")) == list(sized)


@pytest.mark.parametrize(
    ("line", "amount", "code", "says"),
    [
        ("storage", "10.01", 4, "the line has 10.00 left"),
        ("stroage", "1", 2, "no line stroage"),
        ("storage", "0.0000001", 2, "is not an amount"),
        ("storage", "x", 2, "x is not an amount"),
    ],
)
def test_a_charge_that_cannot_be(
    line: str, amount: str, code: int, says: str, raykit: Raykit, maker: PaidByNode
) -> None:
    before = entries(maker)
    called = raykit("budget", "charge", "refresh", line, amount, "--how", "x", *BY)
    assert (called.code, called.out) == (code, "")
    assert says in called.err
    assert entries(maker) == before


# --- rate, part, free ---------------------------------------------------------------------------------------


def test_a_rate_beyond_the_margin_needs_a_replan(raykit: Raykit, maker: PaidByNode) -> None:
    # covers APPR-16
    rate = ("budget", "rate", "train", "3.29", "--account", "corp-lm", "--source", "invoice", *BY)
    called = raykit(*rate, "--on", "2026-11-02")
    assert "  rate  train of corp-lm: 3.29 an accelerator-hour (invoice, 2026-11-02)\n" in called.out
    assert (
        "refresh was planned with 2.99 and a margin of 5 %: nothing more starts before a replan" in called.out
    )
    before = entries(maker)
    assert "as recorded already" in raykit(*rate, "--on", "2026-11-02").out
    assert entries(maker) == before
    assert raykit(*rate, "--on", "2026-11-03", "--json").json["replan"] == ["refresh"]
    within = raykit("budget", "rate", "train", "3.1", "refresh", "--source", "invoice", *BY)
    assert "replan" not in within.out
    assert "3.29 -> 3.10" in within.out


@pytest.mark.parametrize(
    ("pool", "rate", "extra", "says"),
    [
        ("gpu", "1", [], "there is no pool gpu"),
        ("train", "-1", [], "No such option"),
        ("train", "nan", [], "not an amount"),
        ("train", "1", ["--on", "yesterday"], "yesterday is no date"),
        ("train", "1", ["--on", "2999-01-01"], "has not come yet"),
        ("train", "1", ["--account", "corp-lm"], "both named"),
    ],
)
def test_a_rate_that_cannot_be(
    pool: str, rate: str, extra: list[str], says: str, raykit: Raykit, maker: PaidByNode
) -> None:
    before = entries(maker)
    called = raykit("budget", "rate", pool, rate, "refresh", "--source", "x", *BY, *extra)
    assert called.code == 2
    assert says in called.err
    assert entries(maker) == before


def test_part_is_a_recorded_decision(raykit: Raykit, maker: PaidByNode) -> None:
    # covers BUD-09
    part = ("budget", "part", "new", "--from", "corp-lm", "--to", "mine", "--reason", "another team", *BY)
    assert raykit(*part).out == "  new may have account mine, parted from corp-lm by mira\n"
    assert ("new", "mine") in book(maker).parted
    before = entries(maker)
    assert raykit(*part).out.endswith(" already\n")
    assert entries(maker) == before
    for wrong, says in (
        (("new", "--from", "corp", "--to", "mine"), "there is no account corp "),
        (("new", "--from", "corp-lm", "--to", "corp-lm"), "one account"),
        (("refresh", "--from", "corp-lm", "--to", "mine"), "stays with it"),
        (("new", "--from", "corp-lm", "--to", "../x"), "not a safe name"),
    ):
        called = raykit("budget", "part", *wrong, "--reason", "x", *BY)
        assert called.code == 2
        assert says in called.err
    assert entries(maker) == before


def test_free_ends_the_bill_of_held_machines(raykit: Raykit, maker: PaidByNode) -> None:
    # covers RAY-09
    maker.at = time.time() - 3600.0
    maker.hold()
    called = raykit("budget", "free", "refresh", "--how", "terminated", *BY, "--json")
    (freed,) = called.json["freed"]
    assert freed["pool"] == "train"
    assert usd("23.9") < freed["cost"] < usd("24.1")
    assert book(maker).held == {}
    assert not any(isinstance(event, Held) for event in maker.ledger.entries[-1].events)
    before = entries(maker)
    again = raykit("budget", "free", "refresh", "--how", "terminated", *BY)
    assert again.out.startswith("  nothing of refresh is held\n")
    assert entries(maker) == before


def test_an_experiment_that_was_never_launched_has_nothing_to_move(raykit: Raykit, maker: PaidByNode) -> None:
    RunMaker(maker.store, experiment="free").freeze()
    for command in (
        ("budget", "show", "free"),
        ("budget", "replan", "free", *WHY, *BY),
        ("budget", "charge", "free", "storage", "1", "--how", "x", *BY),
        ("budget", "free", "free", "--how", "x", *BY),
    ):
        called = raykit(*command)
        assert called.code == 2, command
        assert "free has no budget" in called.err
        assert "refresh" in called.err, "it says what has one"


def test_a_lease_that_is_worked_under_is_not_settled_by_hand(raykit: Raykit, tmp_path: Path) -> None:
    """covers BUD-03: its launch is alive, and knows better what it costs."""
    working = PaidByNode(
        LocalStore(tmp_path), experiment="refresh", updates=1430, at=time.time() - 60, place=this_place()
    )
    working.freeze()
    working.approve()
    working.launch()
    working.begin()
    before = book(working).charged
    (lease,) = book(working).leases
    called = raykit("budget", "settle", lease, "--cost", "0.01", "--how", "I say so", *BY)
    assert called.code == 3
    assert "is worked under" in called.err
    assert book(working).charged == before


def test_a_replan_that_pays_for_no_work_does_not_say_go_on(raykit: Raykit, maker: PaidByNode) -> None:
    called = raykit(
        "budget", "replan", "refresh", "--move", "train:recovery=250", "--reason", "less", *BY, "--yes"
    )
    assert called.code == 0
    assert "not enough" in called.out
    assert "Continue" not in called.out


class PaidWithSet(PaidByNode):
    """Its plan makes a synthetic set once it is trained."""

    def plan_file(self) -> bytes:
        return (
            super().plan_file()
            + b"""
[generate.digits]
rows      = 40
unit_rows = 4
decode    = { temperature = 1.0 }
bounds    = { duplicates = 0.01, nonfinite = 0.0 }
"""
        )


def test_of_a_run_that_is_trained_its_sets_go_on(raykit: Raykit, tmp_path: Path) -> None:
    # to resume it would make nothing
    maker = PaidWithSet(LocalStore(tmp_path), experiment="refresh", updates=20, at=time.time() - 7200)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(20)
    maker.look()
    maker.commit("final")
    maker.end("completed", hours=1.0)
    maker.release("completed")
    move = ("--move", "recovery:storage=10", *BY, *WHY)
    for called in (
        raykit("budget", "replan", "refresh", *move),
        raykit("approve", "plan", "refresh", "900", *BY),
    ):
        assert called.code == 0
        assert "raykit resume" not in called.out
        assert "refresh/digits: waits for an approved checkpoint" in called.out
        assert "-> raykit candidates register refresh-teacher refresh" in called.out
