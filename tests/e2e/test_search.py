"""Searches on a real local Ray, driven by a process that is killed, paused and refused. Rows train nothing here, so
that a search takes seconds; that a row which trains goes on exactly is in `test_search_training`.

covers TUNE-03 TUNE-04 TUNE-05 TUNE-06 TUNE-07 TUNE-11 TUNE-13 RAY-03 RAY-07 RAY-12 RAY-13 RAY-14, F17 F23 F24, I6 I7 I9
I11
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from searchroot import NAME, SearchRoot
from searchtoys import ASHA, ONE_REPEAT, Toy, value_of

from raykit.records import AccountOpened, EvaluationRow, Released, Reserved, Setting
from raykit.search import SearchState, run_of
from raykit.store.accounts import Identity, join_account
from raykit.store.ledger import Ledger
from raykit.store.log import RunLog
from raykit.store.people import pause, resume
from raykit.store.search import read_search
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

DEADLINE_S = 240.0
SCOPE = f"experiment:{NAME}"
TESTS = Path(__file__).parent.parent


@dataclass(slots=True)
class Searching(SearchRoot):
    """A root with one search in it, and the processes that drive it."""

    toy: dict[str, Any] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[str]:
        toy = json.dumps({"calls": str(self.folder / "calls"), **self.toy})
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "searchdrive.py"), str(self.plan), str(self.root), toy],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what a failed test has left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def drive(self, *, code: int = 0) -> dict[str, Any]:
        """One process to its end, which it comes to with this exit code; its last words."""
        return self.end(self.start(), code=code)

    def end(self, process: subprocess.Popen[str], *, code: int) -> dict[str, Any]:
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == code, (out, err)
        assert "Traceback" not in err, err
        said: dict[str, Any] = json.loads(out.splitlines()[-1])
        return said

    @property
    def calls(self) -> list[tuple[str, ...]]:
        """Every report that was made: rate, seed, update. One whose process died as it was made is not among them."""
        path = self.folder / "calls"
        return [tuple(line.split()[1:]) for line in path.read_text().splitlines()] if path.exists() else []

    def wait(self, what: str, holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        """Look until it holds; fails after a deadline, or when the process has ended without it."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}"
            if process.poll() is not None and not holds():
                raise AssertionError(f"the search ended before {what}: {process.communicate()}")
            time.sleep(0.02)

    def under_way(self, *, reports: int = 1) -> subprocess.Popen[str]:
        """A new process that has the search, and has had so many reports."""
        process = self.start()
        self.wait("a driver", lambda: self.driver == process.pid, process)
        seen = len(self.calls)
        self.wait(f"{reports} reports", lambda: len(self.calls) >= seen + reports, process)
        return process

    @property
    def driver(self) -> int | None:
        """The pid of the process that has the search."""
        found = read_search(self.store, NAME)
        return None if found is None or found.driver is None else found.driver.place.pid

    def log(self, run: str) -> RunLog:
        log = RunLog(self.store, NAME, run, by="test")
        log.refresh()
        return log

    def values(self, run: str) -> dict[int, float | None]:
        """By update: every evaluation of a row; each update was evaluated once, and in order."""
        from raykit.read.rows import RowTable

        rows = list(RowTable(self.store, self.log(run).state.events, "development", EvaluationRow))
        assert [row.update for row in rows] == sorted({row.update for row in rows})
        return {row.update: row.metrics["ratio"] for row in rows}


@pytest.fixture
def searching(tmp_path: Path) -> Iterator[Searching]:
    made = Searching(tmp_path)
    yield made
    made.close()


def the_books_are_right(searching: Searching, *, every: int = 5, updates: int = 20) -> None:
    """Every row has one end, what the rows cost is what the ledger has, and no report was lost or repeated."""
    state, ledger = searching.state, searching.ledger
    assert all(row.ended is not None for row in state.rows)
    leases = [lease for lease in ledger.book.leases.values() if lease.reserved.experiment == NAME]
    assert not any(lease.open for lease in leases)
    by_row = {row.run: row.ended.cost for row in state.rows if row.ended is not None}
    assert sum(by_row.values()) == sum(lease.charged for lease in leases)
    for row in state.rows:
        assert row.ended is not None
        run = searching.log(row.run).state
        own = [lease for lease in leases if lease.reserved.run == row.run]
        assert by_row[row.run] == sum(lease.charged for lease in own)
        assert row.ended.attempts == len(run.attempts) <= len(own)
        if not row.launches:
            continue
        assert row.setting is not None
        values = searching.values(row.run)
        assert list(values) == list(range(every, row.ended.update + 1, every))
        for update, value in values.items():
            assert value is None or value == value_of(row.setting, update, updates)
        if row.ended.end == "completed":
            assert row.ended.update == updates and run.completed
            assert sum(isinstance(event, Released) for event in run.events) <= len(row.launches)
    if searching.root.exists():
        check_invariants(searching.store)


def only_the_finite_is_picked(state: SearchState) -> None:
    """The pick is the best by the mean over its seeds, and says of everyone else why it is left out."""
    picked = state.picked
    assert picked is not None and picked.tried == len(state.rows)
    considered = {picked.row, *picked.ranked}
    assert all(state.row(n).value is not None for n in considered)
    left = {each.row for each in picked.excluded}
    bad = {row.n for row in state.rows if row.value is None}
    assert bad <= left and not bad & considered


# --- a table from its first row to its pick -----------------------------------------------------------------


@pytest.mark.long
def test_a_search_goes_through_its_table(searching: Searching) -> None:
    """One that is not finite, one that fails at every attempt, and a repeat of the best."""
    rates = sorted(
        row.params["lr"] for row in trial_rows(searching, trials=5, repeats=ONE_REPEAT, concurrent=3)
    )
    searching.toy = {"nan_below": rates[0] * 1.01, "raise_above": rates[-1] * 0.99}
    said = searching.drive()
    assert said == {"counts": {"completed": 5, "failed": 1}, "already": False, "stopped": None}
    the_books_are_right(searching)
    state = searching.state
    only_the_finite_is_picked(state)
    by_rate = {row.params["lr"]: row for row in state.trials if row.params is not None}
    nan, failed = by_rate[rates[0]].ended, by_rate[rates[-1]].ended
    assert nan is not None and nan.end == "completed" and nan.value is None
    assert failed is not None and failed.end == "failed" and failed.attempts == 3
    assert failed.detail is not None and "no rate as high as" in failed.detail
    (repeat,) = state.repeats
    assert repeat.repeats == state.picked.row and repeat.setting is not None and repeat.setting.seed == 4
    assert state.picked.candidate is None  # an objective leaves no weights
    before = {key: searching.store.head(key) for key, _ in listed(searching)}
    again = searching.drive()
    assert again["already"] and {key: searching.store.head(key) for key, _ in listed(searching)} == before


def trial_rows(searching: Searching, **table: Any) -> list[Any]:
    """The rows that a plan is going to have: they are known before anything starts."""
    from raykit.plan import load_plan
    from raykit.search import rows_of

    searching.write(**table)
    plan = load_plan(searching.plan.read_bytes(), where="plan.toml")
    assert plan.search is not None
    return [row for row in rows_of(plan.search, plan.run.seed) if row.kind == "trial"]


def listed(searching: Searching) -> list[tuple[str, int]]:
    return sorted(
        (str(path.relative_to(searching.root)), path.stat().st_size)
        for path in searching.root.rglob("*.json")
    )


@pytest.mark.long
def test_a_trial_whose_process_is_killed_goes_on(searching: Searching) -> None:
    """Every row loses its process once, after a report; Tune hears of it, and it starts again under a new lease."""
    (searching.folder / "died").mkdir()
    searching.toy = {"die_in": str(searching.folder / "died")}
    searching.write(trials=2, concurrent=2)
    searching.drive()
    the_books_are_right(searching)
    for row in searching.state.rows:
        state = searching.log(row.run).state
        assert [state.ends[each.attempt].reason for each in state.attempts] == ["killed", "completed"]
        assert len(row.launches) == 1
        assert {each.lease for each in state.attempts} == {f"{row.launches[0].launch}-{n}" for n in (1, 2)}
    assert len(searching.calls) == len(set(searching.calls))  # no report was made twice


@pytest.mark.long
def test_a_second_driver_and_another_table_are_refused(searching: Searching) -> None:
    searching.toy = {"pause_s": 1.5, "every": 1}
    searching.write(trials=2, concurrent=2)
    first = searching.under_way()
    said = searching.drive(code=3)
    assert said["kind"] == "held" and f"process {first.pid}" in said["message"]
    first.send_signal(signal.SIGTERM)
    assert searching.end(first, code=4)["stopped"] == "SIGTERM"
    searching.write(trials=3, concurrent=2)
    said = searching.drive(code=3)
    assert said["kind"] == "gate" and "search.trials: 2 -> 3" in said["message"]
    searching.write(trials=2, concurrent=2)
    searching.toy = {"every": 1}
    searching.drive()
    the_books_are_right(searching, every=1)
    assert len(searching.calls) == len(set(searching.calls))


# --- kills, a pause, a ceiling ------------------------------------------------------------------------------


def dice() -> random.Random:
    seed = int(os.environ.get("RAYKIT_SEED", "7"))
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.long
@pytest.mark.parametrize(
    "paused_s", [2.0, pytest.param(20.0, marks=pytest.mark.slow)], ids=["short", "as-promised"]
)
def test_kills_a_pause_and_a_ceiling_lose_nothing(searching: Searching, paused_s: float) -> None:
    """Three SIGKILLs of the driver, one pause, one ceiling, four at once; F23: a pause is heeded at the next report."""
    random_ = dice()
    rates = sorted(
        row.params["lr"]
        for row in trial_rows(
            searching,
            trials=8,
            concurrent=4,
            repeats=ONE_REPEAT,
            scheduler=ASHA,
            rate=1.0,
            ceiling=4.0,
            wall_h="0.01",
            attempts="2",
        )
    )
    searching.toy = {
        "pause_s": 1.0,
        "nan_below": rates[0] * 1.01,
        "raise_above": rates[-1] * 0.99,
    }
    for _ in range(3):
        process = searching.under_way(reports=random_.randint(1, 4))
        process.kill()  # its Ray is left behind, for the next one to end
        process.communicate()
    paused(searching, paused_s)
    refused_for_money(searching)
    searching.drive()
    the_books_are_right(searching)
    state = searching.state
    only_the_finite_is_picked(state)
    starts = sum(row.ended.attempts for row in state.rows if row.ended is not None)
    launches = sum(len(row.launches) for row in state.rows)
    failures = sum(row.status == "failed" for row in state.rows)
    print(f"{starts} starts of {len(state.rows)} rows under {launches} launches; {dict(state.counts)}")
    assert starts <= launches + failures
    assert len(searching.calls) == len(set(searching.calls)), "a report was made twice"


def paused(searching: Searching, paused_s: float) -> None:
    """A pause while rows are at work, from a process that sees only the store."""
    process = searching.under_way()
    asked_at = time.monotonic()
    pause(searching.store, SCOPE, reason="the machine is promised", person="ada", at=time.time())
    said = searching.end(process, code=4)
    print(f"paused and left {time.monotonic() - asked_at:.1f} s after it was asked")
    assert "paused by ada" in said.get("stopped", ""), said
    ended = dict(searching.state.counts)
    end = time.monotonic() + paused_s
    while time.monotonic() < end:
        assert searching.drive(code=4)["kind"] == "paused"
    assert dict(searching.state.counts) == ended
    resume(searching.store, SCOPE, cleared="it is free", person="ada", at=time.time())


def refused_for_money(searching: Searching) -> None:
    """Somebody else's work takes the rest of the account; rows are refused, and opened again once it is free."""
    ledger = searching.ledger
    opened = ledger.book.opened
    assert isinstance(opened, AccountOpened)
    left = [row for row in searching.state.rows if row.ended is None]
    assert left, "nothing is left to be refused"
    lease = foreign(searching, ledger)
    said = searching.drive(code=4)
    counts = said["counts"]
    assert counts.get("refused-by-budget", 0) + counts.get("censored-by-budget", 0) == len(left)
    the_books_are_right_but_for(searching, lease)
    assert searching.drive(code=4)["kind"] == "paused"  # the money is short: a person has to act
    from raykit.budget.admit import void

    ledger.decide(lambda book: void(book, lease, proof="it never started"), at=time.time())
    resume(searching.store, SCOPE, cleared="the other work is over", person="mira", at=time.time())


def foreign(searching: Searching, ledger: Ledger) -> str:
    """A lease of another experiment that leaves the account a cent."""
    from money import line, planned, terms

    from raykit.budget.acts import plan
    from raykit.budget.admit import Request, admit
    from raykit.budget.amounts import micros

    amount = micros("4.99", field="test") - ledger.book.charged
    lines = [
        line("train", "target", 4.96),
        line("confirmation", "confirmation", 0.02),
        line("recovery", "recovery", 0.02),
    ]
    other = planned("other", 5.0, lines)
    who = Identity(experiment="other", decision=other.decision)
    join_account(searching.store, who, ledger.account, unit="usd", by="test", at=time.time())
    ledger.decide(lambda book: plan(book, other), at=time.time())
    cost = min(amount, micros("4.96", field="test")) // 1000 * 1000

    def ask(book: Any) -> Any:
        request = Request(lease="other-1", experiment="other", line="train", terms=terms(cost))
        return admit(book, request, now=time.time())

    (reserved,) = ledger.decide(ask, at=time.time())
    assert isinstance(reserved, Reserved)
    return reserved.lease


def the_books_are_right_but_for(searching: Searching, lease: str) -> None:
    assert [each.reserved.lease for each in searching.ledger.book.leases.values() if each.open] == [lease]
    refused = [row for row in searching.state.rows if row.status == "refused-by-budget"]
    assert all(row.ended is not None and row.ended.cost == 0 for row in refused)


def test_the_toys_are_what_they_say() -> None:
    """The best rate of the toys is 0.02, at every seed."""
    settings = [Setting(params={"lr": lr}, seed=3) for lr in (0.002, 0.02, 0.09)]
    values = [value_of(setting, 20, 20) for setting in settings]
    assert min(values) == values[1] and Toy().updates == 20 and run_of(7) == "trial-007"
