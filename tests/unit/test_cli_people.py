"""`raykit pause`, `cancel`, `approve`, and what `status` and `show` say of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from called import Raykit, calls
from makebudget import PaidByNode, usd
from makerun import RunMaker, make_run

from raykit import open as open_root
from raykit.cli import pausing
from raykit.fleet.outcome import Outcome
from raykit.pauses import OVERDUE_S
from raykit.plan import load_plan, projection
from raykit.store import layout, people
from raykit.store.local import LocalStore
from raykit.store.people import read_acts, read_scope
from raykit.store.place import this_place

TIMEOUT_S = 60.0
TINY = Path(__file__).parents[1] / "tiny"
BY = ("--by", "mira")
WHY = ("--reason", "promised to inference")


@pytest.fixture
def raykit(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    monkeypatch.setattr(pausing, "LOOK_EVERY_S", 0.01)
    return calls(capsys)


def going(root: Path, experiment: str = "refresh", **options: Any) -> RunMaker:
    """A run that goes on in this process."""
    maker = RunMaker(
        LocalStore(root),
        experiment=experiment,
        updates=1430,
        place=this_place(),
        at=time.time() - 600,
        **options,
    )
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(20)
    maker.look()
    maker.commit()
    return maker


def paid(root: Path, *, hours: float = 2.0) -> PaidByNode:
    """A run that goes on in this process and is paid for."""
    maker = PaidByNode(
        LocalStore(root), experiment="refresh", updates=1430, place=this_place(), at=time.time() - 600
    )
    maker.freeze()
    maker.approve()
    maker.launch()
    maker.begin(hours=hours)
    maker.rows(20)
    maker.look()
    maker.commit()
    return maker


@contextmanager
def obeying(maker: RunMaker, *, updates: int = 3, after: Callable[[], None] = lambda: None) -> Iterator[None]:
    """A launch that looks for a pause, commits at a boundary, lets go, and then does what comes `after`."""
    acts = people.People(maker.store, maker.experiment)

    def obey() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not acts.refresh().pauses:
            if time.monotonic() > deadline:
                return
            threading.Event().wait(0.01)
        maker.at = time.time()
        maker.ask_to_stop("pause")
        maker.rows(updates)
        maker.commit("stop")
        maker.end("paused", detail="pause")
        maker.release("paused")
        after()

    thread = threading.Thread(target=obey)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


# --- pause --------------------------------------------------------------------------------------------------


def test_help_says_first_what_a_pause_is(raykit: Raykit) -> None:
    lines = " ".join(raykit("pause", "--help").out.split())
    assert (
        "Commit at the next update, release the machines and end, to go on later (others call it suspend)"
        in lines
    )


def test_a_pause_is_followed_to_its_boundary(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-07, RAY-08
    maker = going(tmp_path)
    with obeying(maker):
        called = raykit("pause", "refresh", *WHY, *BY)
    assert called.code == 0
    lines = [re.sub(r"^  \d\d:\d\d:\d\d  refresh  ", "", line) for line in called.out.splitlines()]
    assert lines[:2] == [
        "requested by mira: promised to inference",
        "1 of 1 workers at update 20, to commit at the next",
    ]
    assert lines[2] == "draining: every worker stops at the same update"
    assert re.fullmatch(r"committed update 23 \(9\.\d kB, 0\.2 s\)", lines[3])
    assert re.fullmatch(r"released, at update 23   lost: 0 updates   after \d[\d.ms ]*", lines[4]), lines
    assert lines[5:] == ["  paused. Continue: raykit resume refresh"]


def test_a_pause_waits_until_the_launch_has_said_what_it_cost_and_what_stays_billed(
    raykit: Raykit, tmp_path: Path
) -> None:
    # covers RAY-09
    maker = paid(tmp_path)
    unknown: list[str] = []

    def after() -> None:
        unknown.append(unknown_in(tmp_path))
        maker.hold()
        maker.pay(0.25)

    with obeying(maker, after=after):
        called = raykit("pause", "refresh", *WHY, *BY)
    assert called.code == 0
    lines = called.out.splitlines()
    assert "  released, at update 23   lost: 0 updates" in lines[4]
    assert lines[5].endswith("  refresh  settled at $5.98")
    assert "  ! refresh: 8 accelerators of train still yours and still billed, $23.92/h" in called.out
    assert unknown == [""], "between letting go and settling, nobody is asked to settle"


def unknown_in(root: Path) -> str:
    """What `status` says of leases that nobody knows the end of."""
    money = open_root(str(root)).money("refresh")
    return ", ".join(lease.lease for lease in money.unknown)


def test_a_pause_twice_is_one(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-10
    maker = going(tmp_path)
    with obeying(maker):
        raykit("pause", "refresh", *WHY, *BY)
    before = sum(1 for _ in maker.store.list(layout.experiment_log("refresh")))
    called = raykit("pause", "refresh", "--reason", "again", "--by", "ada")
    assert called.code == 0
    assert "was requested already by mira: promised to inference" in called.out
    assert "nothing of it is running; nothing of it starts." in called.out
    assert sum(1 for _ in maker.store.list(layout.experiment_log("refresh"))) == before


def test_a_pause_holds_for_another_process_that_only_sees_the_store(tmp_path: Path) -> None:
    # covers RAY-10
    maker = going(tmp_path)
    maker.end("paused")
    maker.release("paused")
    command = [sys.executable, "-m", "raykit"]
    environment = {**os.environ, "RAYKIT_ROOT": str(tmp_path), "RAYKIT_PERSON": "mira"}
    done = subprocess.run(
        [*command, "pause", "--reason", "power"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "Continue: raykit resume all" in done.stdout
    held = read_scope(maker.store, "all").pauses["all"]
    assert (held.pause.person, held.pause.cause) == ("mira", "person")


def test_one_that_misses_its_boundary_is_overdue(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-08
    maker = going(tmp_path)
    called = raykit("pause", "refresh", *WHY, *BY, "--timeout-s", "0.05")
    assert called.code == 6
    assert "  overdue: refresh has not reached its boundary" in called.out
    assert "  -> raykit logs refresh" in called.out
    assert "  paused" not in called.out
    plain = raykit("pause", "refresh", *WHY, *BY, "--timeout-s", "0", "--json").json
    assert (plain["new"], plain["paused"]) == (False, False)
    assert [run["id"] for run in plain["runs"]] == ["refresh/main"]
    maker.end("paused")
    maker.release("paused")
    assert raykit("pause", "refresh", *WHY, *BY).code == 0


def test_a_launch_that_is_killed_meanwhile_is_told(raykit: Raykit, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        place = this_place().model_copy(update={"pid": child.pid, "started": _started(child.pid)})
        maker = RunMaker(LocalStore(tmp_path), experiment="refresh", place=place, at=time.time() - 60)
        maker.freeze()
        maker.launch()
        maker.begin()
        maker.rows(5)
        maker.commit()
        maker.rows(2)
        maker.flush()
        acts = people.People(maker.store, "refresh")

        def kill() -> None:
            while not acts.refresh().pauses:
                threading.Event().wait(0.01)
            child.kill()
            child.wait()

        thread = threading.Thread(target=kill)
        thread.start()
        called = raykit("pause", "refresh", *WHY, *BY)
        thread.join(TIMEOUT_S)
    finally:
        child.kill()
        child.communicate()
    assert called.code == 0
    assert "its launch is gone, at update 5   lost: 2 updates" in called.out


def _started(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


def test_without_waiting(raykit: Raykit, tmp_path: Path) -> None:
    going(tmp_path)
    called = raykit("pause", *WHY, *BY, "--no-wait")
    assert called.code == 0
    assert "asked: refresh.  See: raykit status" in called.out


def test_a_pause_without_a_name_is_said_by_somebody_and_never_by_a_login_name(
    raykit: Raykit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going(tmp_path)
    monkeypatch.setenv("LOGNAME", "zoe")
    assert "requested by somebody: " in raykit("pause", *WHY, "--no-wait").out
    monkeypatch.setenv("RAYKIT_PERSON", "mira")
    assert "requested by mira: " in raykit("pause", "refresh", *WHY, "--no-wait").out


def test_a_pause_says_what_is_still_billed(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-09
    maker = paid(tmp_path)
    maker.commit("stop")
    maker.end("paused", hours=0.1)
    maker.release("paused")
    maker.hold()
    called = raykit("pause", "refresh", *WHY, *BY)
    assert called.code == 0
    assert "! refresh: 8 accelerators of train still yours and still billed, $23.92/h" in called.out
    assert "  -> lambda-stop i-0a1b\n" in called.out
    assert raykit("pause", "refresh", *WHY, *BY, "--json").json["held"] == [
        {"experiment": "refresh", "pool": "train", "an_hour": usd("23.92")}
    ]


def test_only_runs_of_the_scope_are_concerned(raykit: Raykit, tmp_path: Path) -> None:
    one, two = going(tmp_path, "one"), going(tmp_path, "two")
    one.end("paused")
    one.release("paused")
    assert raykit("pause", "one", *WHY, *BY).code == 0
    qc = raykit("pause", "role:qc", *WHY, *BY)
    assert "nothing of it is running" in qc.out
    by_contract = raykit(
        "pause", f"contract:{two.locked.contract[:10]}", *WHY, *BY, "--no-wait", "--json"
    ).json
    assert by_contract["scope"] == f"contract:{two.locked.contract}"
    assert [run["id"] for run in by_contract["runs"]] == ["two/main"]


@pytest.mark.parametrize(
    ("arguments", "field", "says"),
    [
        (["refresh"], "--reason", "a pause needs a reason"),
        (["refresh", "--reason", " "], "--reason", "a pause needs a reason"),
        (["refesh", *WHY], "SCOPE", "there is no experiment refesh"),
        (["experiment:none", *WHY], "SCOPE", "there is no experiment none"),
        (["role:trainer", *WHY], "SCOPE", "no scope"),
        (["team:a", *WHY], "SCOPE", "no scope"),
        (["contract:abc", *WHY], "SCOPE", "abc is not the digest of one contract"),
    ],
)
def test_a_pause_that_means_nothing(
    arguments: list[str], field: str, says: str, raykit: Raykit, tmp_path: Path
) -> None:
    maker = going(tmp_path)
    called = raykit("pause", *arguments, *BY, "--json")
    assert (called.code, called.out, called.error["field"]) == (2, "", field)
    assert says in called.error["message"]
    assert called.error["rule"], "what would pass"
    assert read_acts(maker.store, "refresh").pauses == {}


# --- cancel -------------------------------------------------------------------------------------------------


def test_cancel_is_the_end_and_says_what_was_spent(raykit: Raykit, tmp_path: Path) -> None:
    maker = paid(tmp_path)
    maker.commit("stop")
    maker.end("paused", hours=1.0)
    maker.release("paused")
    objects = {item.key for item in maker.store.list("experiments")}
    called = raykit("cancel", "refresh", "--reason", "lr flat", *BY)
    assert called.code == 0
    assert called.out == (
        "  refresh is cancelled by mira: lr flat\n"
        "  23.92 USD spent, 876.08 USD returned; nothing was deleted, nothing can be resumed\n"
    )
    assert objects <= {item.key for item in maker.store.list("experiments")}
    maker.ledger.refresh()
    assert maker.ledger.book.allocations["refresh"].closed
    entries = len(maker.ledger.entries)
    again = raykit("cancel", "refresh", "--reason", "other words", *BY)
    assert again.out.startswith("  refresh is cancelled already by mira: lr flat\n")
    maker.ledger.refresh()
    assert len(maker.ledger.entries) == entries
    assert "refresh was cancelled by mira: lr flat" in raykit("status").out


def test_cancel_finishes_what_a_crash_left_half_done(raykit: Raykit, tmp_path: Path) -> None:
    maker = paid(tmp_path)
    people.cancel(maker.store, "refresh", reason="lr flat", person="mira", at=time.time())
    called = raykit("cancel", "refresh", "--reason", "again", "--by", "ada")
    assert "cancelled already by mira: lr flat (what was left half-done is done)" in called.out
    maker.ledger.refresh()
    event = maker.ledger.entries[-1].events[-1]
    assert (event.event, event.person, event.reason) == ("closed", "mira", "lr flat")  # type: ignore[union-attr]


def test_cancel_of_a_run_at_work_keeps_its_lease_charged(raykit: Raykit, tmp_path: Path) -> None:
    paid(tmp_path)
    called = raykit("cancel", "refresh", "--reason", "lr flat", *BY)
    assert "refresh-launch-1-1 is open: up to 50.232 USD stays charged until it ends" in called.out
    assert "refresh is at work and ends at its next update.  See: raykit status" in called.out


def test_what_was_cancelled_is_not_paused(raykit: Raykit, tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path))
    raykit("cancel", "digits", "--reason", "lr flat", *BY)
    refused = raykit("pause", "digits", *WHY, *BY)
    assert refused.code == 3 and "digits was cancelled by mira: lr flat" in refused.err
    assert not people.read_acts(LocalStore(tmp_path), "digits").pauses


@pytest.mark.parametrize(("cancelled", "code"), [(True, 3), (False, 4)])
def test_a_launch_that_was_cancelled_is_refused_and_one_that_paused_goes_on(
    cancelled: bool, code: int
) -> None:
    outcome = Outcome(
        experiment="digits",
        run="main",
        reason="paused",
        update=12,
        detail="by mira: flat",
        cancelled=cancelled,
    )
    assert outcome.exit_code == code


def test_cancel_of_what_has_no_money(raykit: Raykit, tmp_path: Path) -> None:
    make_run(LocalStore(tmp_path))
    called = raykit("cancel", "digits", "--reason", "done", *BY)
    assert called.out.endswith("  nothing was deleted, nothing can be resumed\n")
    for arguments in (["nobody", *BY, *WHY], ["digits", *WHY], ["digits", *BY], ["all", *BY, *WHY]):
        assert raykit("cancel", *arguments).code == 2


# --- approve ------------------------------------------------------------------------------------------------


def approvals(maker: PaidByNode) -> list[Any]:
    maker.ledger.refresh()
    return [e for entry in maker.ledger.entries for e in entry.events if e.event == "approved"]


@pytest.fixture
def locked(tmp_path: Path) -> PaidByNode:
    """A plan of 900 dollars that nobody has approved."""
    maker = PaidByNode(LocalStore(tmp_path), experiment="refresh", updates=1430)
    maker.freeze()
    return maker


def test_an_approval_names_the_plan_as_it_is_and_nothing_else(raykit: Raykit, locked: PaidByNode) -> None:
    # covers APPR-15, APPR-21, BUD-10, BUD-11, BUD-12, BUD-13
    assert approvals(locked) == [], "a plan that is frozen is none"
    called = raykit("approve", "plan", "refresh", "900", *BY, "--reason", "support asks weekly")
    assert called.code == 0
    assert called.out.startswith("  approved by mira (scripted) for account corp-lm\n")
    assert "covers   refresh up to 900.00 USD: its decision, base and start, data" in called.out
    for not_covered in ("restart from scratch", "sealed set", "promotion", "release", "deletion"):
        assert not_covered in " ".join(called.out.split())
    (approval,) = approvals(locked)
    assert approval.projection == projection(locked.plan, ceiling=usd("900"))
    assert (approval.covers, approval.person, approval.reason, approval.scripted) == (
        usd("900"),
        "mira",
        "support asks weekly",
        True,
    )
    again = raykit("approve", "plan", "refresh", "900", *BY)
    assert again.out.startswith("  approved already by mira")
    assert len(approvals(locked)) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["plan", "refresh", "901"], 3, "refresh asks for 900.00, not 901.00"),
        (["plan", "refresh", "0"], 2, "nothing would be approved"),
        (["plan", "refresh", "NaN"], 2, "is not an amount"),
        (["plan", "refresh", "inf"], 2, "amount"),
        (["plan", "refresh", "1e15"], 2, "amount"),
        (["plan", "refesh", "10"], 2, "there is no experiment refesh"),
        (["plan", "gone.toml", "10"], 2, "gone.toml cannot be read"),
        (["account", "corp", "10"], 2, "there is no account corp "),
        (["account", "corp-lm", "901"], 3, "nothing that is planned comes to 901.00"),
        (["restart", "refresh"], 2, "say why that is right"),
        (["restart", "refesh", *WHY], 2, "there is no experiment refesh"),
        (["restart", "gone.toml", *WHY], 2, "gone.toml cannot be read"),
    ],
)
def test_an_approval_that_cannot_be(
    arguments: list[str], code: int, says: str, raykit: Raykit, locked: PaidByNode
) -> None:
    called = raykit("approve", *arguments, *BY)
    assert (called.code, called.out) == (code, "")
    assert says in called.err
    assert approvals(locked) == []
    assert read_acts(locked.store, "refresh").restarts == ()
    assert raykit("approve", *arguments).code == 2, "and never without a person"


def test_state_that_is_harmless_is_said_once_and_shown(raykit: Raykit, locked: PaidByNode) -> None:
    # covers FAULT-A05
    said = ["approve", "harmless", "refresh", "recipe.calls", "module recipe: STATS", *BY]
    assert raykit(*said).code == 2, "why it does not matter has to be said"
    assert raykit("approve", "harmless", "refesh", "recipe.calls", *WHY, *BY).code == 2
    called = raykit(*said, "--reason", "only printed")
    assert called.out == (
        "  harmless for refresh: recipe.calls, module recipe: STATS\n"
        "  because  only printed (mira)\n"
        "  not      anything else that a resume loses; a difference in what is trained counts as before\n"
        f"  continue raykit resume refresh{called.out.partition('resume refresh')[2]}"
    )
    assert raykit(*said, "--reason", "once more").out.startswith("  harmless already for refresh: ")
    assert read_acts(locked.store, "refresh").harmless == {"recipe.calls", "module recipe: STATS"}
    shown = raykit("show", "refresh").out
    assert "harmless  recipe.calls, module recipe: STATS (mira: only printed)" in shown


def test_an_approval_of_an_account_is_none_of_a_plan(raykit: Raykit, locked: PaidByNode) -> None:
    # covers APPR-19
    called = raykit("approve", "account", "corp-lm", "500", *BY)
    assert called.out == (
        "  approved by mira (scripted)\n"
        "  covers   account corp-lm up to 500.00 USD, over all its experiments\n"
        "  not      any plan of it: each needs its own approval\n"
    )
    assert locked.ledger.refresh()
    assert (locked.ledger.book.figure, locked.ledger.book.approvals) == (usd("500"), {})
    assert "refresh waits for an approval" in raykit("status").out


def test_a_plan_file_that_was_never_launched_gets_its_account_and_its_approval(
    raykit: Raykit, tmp_path: Path
) -> None:
    for name in ("plan.toml", "recipe.py"):
        shutil.copy(TINY / name, tmp_path / name)
    file = str(tmp_path / "plan.toml")
    called = raykit("approve", "plan", file, "1", *BY, "--json")
    assert called.code == 0, called.err
    assert called.json["experiment"] == called.json["account"] == "tiny"
    assert called.json["new_store"] is True
    other = str(tmp_path / "elsewhere")
    assert f"  a new store: {other}" in raykit("approve", "plan", file, "1", *BY, "--root", other).out
    plan = load_plan(Path(file).read_bytes(), where=file)
    assert called.json["projection"] == projection(plan, ceiling=usd("1"))
    assert raykit("approve", "plan", file, "1", *BY).out.startswith("  approved already by mira")
    assert raykit("budget", "show", "tiny", "--json").json["ceiling"] == usd("1")


# --- status and show ----------------------------------------------------------------------------------------


def test_status_says_who_has_paused_and_what_goes_on(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-08
    maker = going(tmp_path)
    raykit("pause", "all", *WHY, *BY, "--no-wait")
    text = raykit("status").out
    assert re.search(r"^refresh +pausing ", text, re.MULTILINE)
    assert re.search(
        r"^  refresh is pausing, asked .* ago by mira \(all\): promised to inference$", text, re.M
    )
    maker.end("paused")
    maker.release("paused")
    text = raykit("status").out
    assert re.search(r"^refresh +paused ", text, re.MULTILINE)
    assert "by mira (all): promised to inference\n  -> raykit resume all\n" in text
    people.resume(maker.store, "all", cleared="18:00", person="ada", at=time.time())
    assert "  -> raykit resume refresh\n" in raykit("status").out
    text = raykit("show", "refresh").out
    assert re.search(r"^PAUSED +UNTIL +FOR +SCOPE +WHY +CLEARED$", text, re.MULTILINE)
    assert re.search(r"Z  +\S+( s)?  all +mira: promised to inference  ada: 18:00$", text, re.MULTILINE)
    plain = raykit("status", "--json").json["runs"][0]["fleet"]
    assert (plain["state"], plain["pauses"][0]["resumed_by"]) == (None, "ada")


def test_status_says_overdue(raykit: Raykit, tmp_path: Path) -> None:
    # covers RAY-08
    maker = going(tmp_path)
    people.pause(maker.store, "experiment:refresh", reason="x", person="mira", at=time.time() - OVERDUE_S - 5)
    text = raykit("status").out
    assert re.search(r"^refresh +overdue ", text, re.MULTILINE)
    assert "  refresh is overdue: asked to pause 1m0" in text
    assert "  -> raykit logs refresh\n" in text


@pytest.mark.parametrize(
    ("cause", "command"),
    [
        ("person", "raykit resume refresh"),
        (
            "ceiling",
            "raykit budget replan refresh --reason ... --by NAME      then      raykit resume refresh",
        ),
        ("defect", 'raykit resume refresh --repair "what you changed" --by NAME'),
    ],
)
def test_what_ends_a_pause_depends_on_its_cause(
    cause: Any, command: str, raykit: Raykit, tmp_path: Path
) -> None:
    # covers RAY-11
    maker = going(tmp_path)
    maker.end("paused")
    maker.release("paused")
    people.pause(maker.store, "experiment:refresh", reason="x", person="launch", cause=cause, at=time.time())
    assert f"  -> {command}\n" in raykit("status").out


def test_once_money_was_moved_a_pause_for_money_names_only_what_goes_on(
    raykit: Raykit, tmp_path: Path
) -> None:
    # covers RAY-11
    maker = paid(tmp_path)
    maker.end("paused")
    maker.release("paused")
    at = time.time()
    people.pause(maker.store, "experiment:refresh", reason="x", person="launch", cause="ceiling", at=at - 60)
    replan = "  -> raykit budget replan refresh --reason ... --by NAME      then      raykit resume refresh\n"
    assert replan in raykit("status").out
    moved = raykit(
        "budget", "replan", "refresh", "--ceiling", "1000", "--reason", "more", "--by", "mira", "--yes"
    )
    assert moved.code == 0, moved.err
    said = raykit("status").out
    assert "budget replan" not in said and "  -> raykit resume refresh\n" in said


def test_status_shows_money(raykit: Raykit, tmp_path: Path) -> None:
    maker = paid(tmp_path)
    make_run(maker.store)
    free = PaidByNode(maker.store, experiment="laptop")
    free.account, free.rate = "laptop", "0"
    free.freeze()
    text = raykit("status").out
    rows = {line.split()[0]: re.split(r" {2,}", line) for line in text.splitlines() if line[0] != " "}
    assert rows["NAME"][-2] == "SPENT"
    assert re.fullmatch(r"\$[34]\.\d\d/900", rows["refresh"][-2]), "ten minutes of 23.92 an hour"
    assert rows["laptop"][-2] == "not billed"
    assert rows["digits"][-2] == "-"
    assert "1 live, 8 accelerators held ($23.92/h)." in text
    shown = raykit("show", "refresh").out
    assert re.search(r"^  confirmation +307.67 +- +- +307.67 +kept: one run to confirm$", shown, re.MULTILINE)


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_status_fits(columns: int, raykit: Raykit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paid(tmp_path)
    make_run(LocalStore(tmp_path), experiment="lm1b-refresh-2026-11")
    raykit("pause", "refresh", *WHY, *BY, "--no-wait")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = raykit("status").out.splitlines()
    too_long = [line for line in lines if len(line) > columns and str(tmp_path) not in line]
    assert [line for line in too_long if not line.startswith("  -> ")] == [], "only commands stay whole"
    text = " ".join("\n".join(lines).split())
    for part in ("lm1b-refresh-2026-11", "pausing", "completed", "/900", "promised to inference"):
        assert part in text


def test_the_root_is_part_of_what_is_to_be_typed(raykit: Raykit, tmp_path: Path) -> None:
    other = tmp_path / "my store"
    make_run(LocalStore(other))
    maker = RunMaker(LocalStore(other), experiment="waiting")
    maker.freeze()
    text = raykit("status", "--root", str(other)).out
    assert f"  -> raykit resume waiting --root '{other}'\n" in text
    text = raykit("pause", "waiting", *WHY, *BY, "--root", str(other)).out
    assert f"Continue: raykit resume waiting --root '{other}'" in text


def test_a_repair_is_asked_for_where_a_gate_has_failed(raykit: Raykit, tmp_path: Path) -> None:
    # covers BUD-26
    maker = going(tmp_path)
    maker.gate("first", passed=False)
    maker.end("failed", detail="gate first: not finite")
    maker.release("failed")
    assert 'raykit resume refresh --repair "what you changed"' in raykit("status").out


# --- what is loaded -----------------------------------------------------------------------------------------


def test_none_of_it_loads_ray_or_torch(tmp_path: Path) -> None:
    paid(tmp_path)
    calls = [
        ["status"],
        ["show", "refresh"],
        ["pause", "refresh", *WHY, *BY, "--no-wait"],
        ["budget", "show"],
        ["budget", "show", "refresh"],
        ["approve", "plan", "refresh", "900", *BY],
        ["budget", "replan", "refresh", *WHY, *BY],
        ["cancel", "refresh", *WHY, *BY],
        ["watch", "refresh", "--once"],
    ]
    program = (
        "import sys; from raykit.cli.main import main;"
        f"codes = [main(call) for call in {calls!r}];"
        "heavy = {'ray', 'torch', 'numpy', 'pyarrow', 'pandas', 's3fs', 'fsspec', 'matplotlib', 'rich'};"
        "print('LOADED', codes, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RAYKIT_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.endswith(f"LOADED {[0] * len(calls)} []\n"), done.stdout[-500:] + done.stderr
