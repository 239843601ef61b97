"""The process that drives a search, without a Ray: what refuses it, what is short, and what a killed one has left.

covers TUNE-01 TUNE-02 TUNE-03 TUNE-05 TUNE-06 TUNE-08 TUNE-13 DISP-03 FLEET-09 RAY-03 RAY-12 RAY-13, I6 I7 I9 I11
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from money import line, planned, terms
from searchroot import NAME, SearchRoot
from searchtoys import ASHA, ONE_REPEAT, Threads, value_of

from raykit.budget.acts import plan as set_aside
from raykit.budget.admit import Request, admit, void
from raykit.budget.amounts import micros
from raykit.budget.book import Book
from raykit.cli.main import main
from raykit.errors import (
    ApprovalError,
    CancelledError,
    FencedError,
    FleetPaused,
    GateError,
    HeldError,
    PlanError,
    RaykitError,
    ReviewError,
    StoreUnavailableError,
    Unknown,
)
from raykit.fleet.search import driver, held, objective
from raykit.fleet.search.driver import search
from raykit.fleet.search.outcome import SearchOutcome
from raykit.fleet.site import site_of
from raykit.records import Driven, Paused, Place, Rated
from raykit.search import SearchState
from raykit.store.accounts import Identity, join_account
from raykit.store.log import RunLog
from raykit.store.people import cancel, pause, read_acts, resume
from raykit.store.search import SearchLog, read_registration
from raykit.testing.fault import Fault, FaultStore, reply_lost
from raykit.testing.invariants import check_invariants

SCOPE = "experiment:tiny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Reports at 10 and at 20. `at` is called before each report, with the rate and the update."""

    at: Callable[[float, int], None] = lambda lr, update: None

    def __call__(self, setting: Any, after: int, report: Any) -> None:
        for update in range(after + 10, 21, 10):
            self.at(setting.params["lr"], update)
            report(update, value_of(setting, update, 20))


@dataclass(slots=True)
class Bench(SearchRoot):
    """One search in a root of its own."""

    said: list[str] = field(default_factory=list)
    hear: Callable[[str], None] = lambda line: None
    """Called with every line that is said, in the driver's own thread."""
    machines: Threads | None = None

    def drive(
        self, objective: Any = None, *, most: int = 2, fault: Fault | None = None, **how: Any
    ) -> SearchOutcome:
        self.machines = Threads(self.folder / "threads", most=most)
        site = site_of(self.plan, str(self.root))
        return search(
            site if fault is None else replace(site, store=FaultStore(site.store, fault)),
            tell=lambda glimpse: None,
            say=self.say,
            objective=objective or Steps(),
            machines=self.machines,
            **how,
        )

    def say(self, line: str) -> None:
        self.said.append(line)
        self.hear(line)

    def files(self) -> list[tuple[str, int]]:
        """Everything in the store."""
        if not self.root.exists():
            return []
        found = [path for path in self.root.rglob("*") if path.is_file()]
        return sorted((str(path.relative_to(self.root)), path.stat().st_size) for path in found)

    def refused(self, kind: type[RaykitError], words: str, **how: Any) -> RaykitError:
        """The search is refused, and nothing is written."""
        before = self.files()
        with pytest.raises(kind, match=words) as caught:
            self.drive(**how)
        assert self.files() == before
        return caught.value


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(driver, "LOOP_S", 0.02)
    return Bench(tmp_path)


def whole(bench: Bench) -> None:
    """Every row has its end, nothing is open in the ledger, and what rows cost is what it has."""
    state, book = bench.state, bench.ledger.book
    assert all(row.ended is not None for row in state.rows)
    assert not [lease for lease in book.leases.values() if lease.open]
    cost = sum(row.ended.cost for row in state.rows if row.ended is not None)
    assert cost == sum(lease.charged for lease in book.leases.values() if lease.reserved.run is not None)
    check_invariants(bench.store)


# --- to its end ---------------------------------------------------------------------------------------------


def test_a_search_that_is_over_is_left_alone(bench: Bench) -> None:
    bench.write(trials=3, repeats=ONE_REPEAT, scheduler=ASHA)
    outcome = bench.drive()
    assert outcome.exit_code == 0 and not outcome.already and outcome.stopped is None
    whole(bench)
    state = bench.state
    assert state.picked is not None and state.picked.tried == 4 and state.driver is None
    before = bench.files()
    again = bench.drive()
    assert again.already and again.exit_code == 0 and again.picked == state.picked
    assert bench.files() == before and bench.machines is not None and bench.machines.starts == []


def test_no_more_rows_are_live_than_the_table_says(bench: Bench) -> None:
    bench.write(trials=5, concurrent=3)
    live: list[int] = []
    most = [0]

    def at(lr: float, update: int) -> None:
        if update == 10:
            live.append(1)
        most[0] = max(most[0], len(live))
        if update == 20:
            live.pop()

    bench.drive(Steps(at=at), most=9)
    assert most[0] <= 3 and len(bench.machines.starts) == 5  # type: ignore[union-attr]


def test_a_lost_start_is_made_up_for_as_often_as_the_plan_says(bench: Bench) -> None:
    """The first row loses its process once, the second every time: no start without a lease of its own."""
    bench.write(trials=2, attempts="3", rate=1.0, ceiling=4.0, wall_h="0.01")
    rates: list[float] = []
    died: list[float] = []

    def at(lr: float, update: int) -> None:
        if lr not in rates:
            rates.append(lr)
        if update == 10 and (lr == rates[0] or lr not in died):
            died.append(lr)
            raise ConnectionResetError

    outcome = bench.drive(Steps(at=at), most=1)
    assert outcome.counts == {"failed": 1, "completed": 1}
    first, second = bench.state.rows
    assert first.ended is not None and first.ended.attempts == 3
    assert second.ended is not None and second.ended.attempts == 2
    whole(bench)
    assert bench.state.picked is not None and bench.state.picked.row == second.n


# --- what comes to nothing ----------------------------------------------------------------------------------


def broken(lr: float, update: int) -> None:
    raise KeyError(f"no rate {lr} at {update}")


def until_stopped(bench: Bench, run: str) -> None:
    """Wait until a run is told to stop."""
    log, deadline = RunLog(bench.store, NAME, run, by="test"), time.monotonic() + 60.0
    while log.state.stop is None:
        assert time.monotonic() < deadline, f"{run} was not told to stop"
        threading.Event().wait(0.02)
        log.refresh()


def test_a_search_of_which_nothing_can_be_picked_says_so(bench: Bench) -> None:
    bench.write(trials=2, attempts="1")
    for already in (False, True):
        outcome = bench.drive(Steps(at=broken), most=1)
        assert (outcome.exit_code, outcome.already, outcome.picked) == (3, already, None)
        assert outcome.unpicked is not None
        assert outcome.unpicked.startswith(
            "nothing can be picked of 2 rows (2 failed): trial-001: it failed: "
        )
        assert "KeyError" in outcome.unpicked
    whole(bench)


def test_two_rows_that_fail_alike_pause_it_until_a_person_says_what_was_changed(bench: Bench) -> None:
    # covers FLEET-09: one bug is not met by every gang
    bench.write(trials=6, concurrent=2, attempts="1", repeats=ONE_REPEAT)
    outcome = bench.drive(Steps(at=broken))
    assert outcome.exit_code == 4 and outcome.stopped is not None
    found = read_acts(bench.store, NAME).pauses[SCOPE].pause
    assert found.cause == "defect" and "2 rows failed alike" in found.reason
    assert bench.machines is not None and len(bench.machines.starts) <= 3
    assert bench.state.counts["failed"] >= 2 and bench.state.open
    failed = [row.n for row in bench.state.rows if row.status == "failed"]
    with pytest.raises(FleetPaused, match="failed alike") as refused:
        bench.drive()
    assert refused.value.remedy == f'raykit resume {NAME} --repair "what you changed" --by NAME'
    resume(bench.store, SCOPE, cleared="repaired: the rates", person="mira", at=time.time())
    outcome = bench.drive()
    assert outcome.exit_code == 0 and outcome.picked is not None
    assert [row.n for row in bench.state.rows if row.status == "failed"] == failed, "they stay failed"
    whole(bench)


def test_rows_under_way_leave_at_their_next_update_and_go_on_later(bench: Bench) -> None:
    bench.write(trials=5, concurrent=3, attempts="1")
    first: list[float] = []

    def at(lr: float, update: int) -> None:
        """The first row to report is under way until it is told to stop; the others fail."""
        first[:] = first or [lr]
        if lr != first[0]:
            broken(lr, update)
        if update == 20:
            (run,) = (
                row.run for row in bench.state.rows if row.params is not None and row.params["lr"] == lr
            )
            until_stopped(bench, run)

    assert bench.drive(Steps(at=at), most=3).exit_code == 4
    (row,) = (row for row in bench.state.rows if row.status == "begun")
    log = RunLog(bench.store, NAME, row.run, by="test")
    log.refresh()
    assert log.state.ended is not None and log.state.ended.reason == "paused" and log.state.recorded() == 20
    resume(bench.store, SCOPE, cleared="repaired: it", person="mira", at=time.time())
    outcome = bench.drive(most=3)
    assert outcome.exit_code == 0 and bench.state.row(row.n).status == "completed"
    assert 2 <= outcome.counts["failed"] <= 3, "another may have begun between two failures"
    whole(bench)


def test_a_killed_driver_does_not_forget_that_rows_have_failed_alike(bench: Bench) -> None:
    """It dies after the second end and before the pause: the next one pauses before it starts anything."""
    bench.write(trials=4, concurrent=1, attempts="1")

    def cut(*_: Any, **how: Any) -> None:
        raise StoreUnavailableError("cut")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "pause", cut)
        patch.setattr(driver._Driver, "_patient_turn", driver._Driver._turn)
        with pytest.raises(StoreUnavailableError):
            bench.drive(Steps(at=broken), most=1)
    assert bench.state.counts["failed"] == 2
    outcome = bench.drive()
    assert outcome.exit_code == 4 and bench.machines is not None and bench.machines.starts == []
    assert read_acts(bench.store, NAME).pauses[SCOPE].pause.cause == "defect"


def test_a_row_without_the_metric_fails_at_its_first_evaluation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers TUNE-13
    evaluation = objective._Attempt._evaluation

    def another(self: Any, update: int, value: float, elapsed_s: float) -> Any:
        return evaluation(self, update, value, elapsed_s).model_copy(update={"metrics": {"loss": value}})

    monkeypatch.setattr(objective._Attempt, "_evaluation", another)
    bench.write(trials=3, concurrent=1)

    def at(lr: float, update: int) -> None:
        """The second report waits until the row was told to stop at the first."""
        if update == 20:
            until_stopped(bench, [row.run for row in bench.state.rows if row.launches][-1])

    outcome = bench.drive(Steps(at=at), most=1)
    ends = [row.ended for row in bench.state.rows if row.ended is not None]
    assert [end.end for end in ends] == ["failed"], "one row says what becomes of all"
    assert all("an evaluation of this recipe has loss" in (end.detail or "") for end in ends)
    assert all("development.ratio, which nobody reports" in (end.detail or "") for end in ends)
    assert outcome.exit_code == 4, "and it is a defect of all rows"
    runs = [RunLog(bench.store, NAME, row.run, by="test") for row in bench.state.rows if row.launches]
    for log in runs:
        log.refresh()
        assert log.state.ended is not None
        assert (log.state.ended.reason, log.state.ended.cause) == ("failed", None)


def test_one_that_is_through_before_anyone_hears_of_it_is_failed_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = objective._Attempt._evaluation

    def another(self: Any, update: int, value: float, elapsed_s: float) -> Any:
        return evaluation(self, update, value, elapsed_s).model_copy(update={"metrics": {"loss": value}})

    monkeypatch.setattr(objective._Attempt, "_evaluation", another)
    bench.write(trials=2, concurrent=2)
    outcome = bench.drive()
    assert outcome.counts["failed"] == 2 and outcome.exit_code == 3


# --- what refuses it ----------------------------------------------------------------------------------------


def test_a_plan_without_a_table_is_no_search(bench: Bench) -> None:
    bench.write(select=True)
    head, _, rest = bench.plan.read_text().partition("[search]")
    bench.plan.write_text(head + "[budget]" + rest.partition("[budget]")[2])
    bench.refused(PlanError, r"has no \[search\]")


def test_a_pause_or_a_cancellation_refuses_it(bench: Bench) -> None:
    bench.write(trials=2)
    bench.drive()
    bench.write(trials=2)
    pause(bench.store, SCOPE, reason="promised", person="ada", at=time.time())
    bench.refused(FleetPaused, "paused by ada")
    resume(bench.store, SCOPE, cleared="free", person="ada", at=time.time())
    pause(bench.store, "role:search", reason="promised", person="ada", at=time.time())
    bench.refused(FleetPaused, "paused by ada")
    cancel(bench.store, NAME, reason="flat", person="ada", at=time.time())
    bench.refused(CancelledError, "cancelled by ada")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"trials": 4}, "search.trials: 3 -> 4"),
        ({"sampler": "optuna.tpe"}, "search.sampler.name"),
        ({"updates": "30"}, "run.updates: 20 -> 30"),
    ],
)
def test_another_table_is_refused_field_by_field(bench: Bench, changed: dict[str, Any], words: str) -> None:
    bench.write(trials=3)
    bench.drive()
    bench.write(**{"trials": 3, **changed})
    error = bench.refused(GateError, words)
    assert "a name of its own" in (error.remedy or "")
    assert re.search("[0-9a-f]{9}", str(error)) is None, "the plan's fields, and no digests of it"


def test_a_pause_does_not_hide_that_the_table_is_another_one(bench: Bench) -> None:
    bench.write(trials=3)
    bench.drive()
    pause(bench.store, SCOPE, reason="a defect", person="mira", at=time.time())
    bench.refused(FleetPaused, "a defect")
    bench.write(trials=4)
    bench.refused(GateError, "search.trials: 3 -> 4")


@pytest.mark.parametrize(
    ("changed", "moves"),
    [
        ({"ceiling": 6.0}, ["raykit budget replan tiny --ceiling 6.0 --reason ... --by NAME"]),
        ({"rate": 3.5}, ["raykit budget rate train 3.5 tiny --source ... --by NAME"]),
        ({"ceiling": 6.0, "rate": 3.5}, ["replan tiny --ceiling 6.0", "rate train 3.5 tiny"]),
    ],
)
def test_other_money_is_moved_in_the_ledger_and_not_in_the_plan(
    bench: Bench, changed: dict[str, Any], moves: list[str]
) -> None:
    table: dict[str, Any] = {"trials": 2, "rate": 3.0, "ceiling": 4.0, "wall_h": "0.01", "attempts": "1"}
    bench.write(**table)
    bench.drive()
    bench.write(**{**table, **changed})
    remedy = bench.refused(GateError, "has registered another search").remedy or ""
    assert all(move in remedy for move in moves) and "a name of its own" not in remedy
    bench.write(**{**table, **changed, "trials": 3})
    assert "a name of its own" in (bench.refused(GateError, "search.trials: 2 -> 3").remedy or "")


def test_another_recipe_is_refused(bench: Bench) -> None:
    bench.write(trials=2)
    bench.drive()
    recipe = bench.plan.parent / "recipe.py"
    recipe.write_text(recipe.read_text().replace("0.01 * torch.randn(4)", "0.02 * torch.randn(4)"))
    refused = bench.refused(GateError, "code: ")
    assert "changed code is another search" in (refused.remedy or "")
    assert f"raykit resume {NAME}" in (refused.remedy or "")


def test_a_table_that_the_ceiling_cannot_pay_for_is_refused(bench: Bench) -> None:
    bench.write(trials=9, rate=10.0, ceiling=1.0, wall_h="0.05")
    bench.refused(ReviewError, "needs revision: REVIEW-13")


def test_what_needs_an_approval_waits_for_one(bench: Bench) -> None:
    """The whole table is asked for at once: no search stops in the middle for want of a word."""
    from raykit.fleet.spending import Approving

    table = {"trials": 4, "rate": 20.0, "ceiling": 30.0, "wall_h": "0.05", "attempts": "1"}
    bench.write(**table)
    bench.refused(ApprovalError, "a person has to approve")
    approved = Approving(amount=micros("30", field="test"), person="ada", scripted=False)
    assert bench.drive(approved=approved).exit_code == 0
    whole(bench)


def test_a_driver_that_is_alive_is_not_replaced(bench: Bench) -> None:
    bench.write(trials=2)
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        seen: list[Place] = []

        def at(lr: float, update: int) -> None:
            if not seen:  # the log now says that another process drives it
                seen.append(_taken_by(bench, alive.pid))

        with pytest.raises(FencedError, match="no longer has the search"):
            bench.drive(Steps(at=at))
        bench.refused(HeldError, f"process {alive.pid}")
    finally:
        alive.communicate(b"\n")
    bench.drive()
    whole(bench)


def _taken_by(bench: Bench, pid: int) -> Place:
    from raykit.store.place import _boot, _stat

    stat = _stat(pid)
    assert stat is not None
    place = Place(host=os.uname().nodename, boot=_boot(), pid=pid, started=stat.started)
    registration = read_registration(bench.store, NAME)
    assert registration is not None
    log = SearchLog(bench.store, registration, by="test")
    event = Driven(driver="other", place=place, raykit="0")
    log.append(lambda entries: [event], at=time.time())
    return place


# --- what is short ------------------------------------------------------------------------------------------


def test_rows_are_refused_when_money_is_short_and_go_on_after_a_word(bench: Bench) -> None:
    """While one row is at work another waits; when none is, those that are left end, until a person has acted."""
    bench.write(trials=4, concurrent=2, rate=1.0, ceiling=4.0, wall_h="0.01", attempts="1")
    leases: list[str] = []

    def hear(line: str) -> None:
        if line.startswith("trial-001 completed"):  # its lease is settled, and no other is asked for yet
            leases.append(_somebody_else(bench))

    bench.hear = hear
    outcome = bench.drive(most=1)
    assert outcome.counts == {"completed": 1, "refused-by-budget": 3}
    assert outcome.exit_code == 4 and outcome.short
    assert not [line for line in bench.said if "commits at its next update" in line], "no row is at work"
    assert outcome.picked is not None and outcome.picked.row == 1
    found = read_acts(bench.store, NAME).pauses[SCOPE].pause
    assert isinstance(found, Paused) and found.cause == "ceiling"
    bench.refused(FleetPaused, "paused by search")

    bench.ledger.decide(lambda book: void(book, leases[0], proof="never started"), at=time.time())
    resume(bench.store, SCOPE, cleared="money was moved", person="mira", at=time.time())
    outcome = bench.drive()
    assert outcome.counts == {"completed": 4} and outcome.exit_code == 0
    (reopened,) = bench.state.reopened
    assert (reopened.rows, reopened.person, reopened.reason) == ((2, 3, 4), "mira", "money was moved")
    other = bench.ledger
    assert all(
        lease.reserved.run or lease.reserved.experiment == "other" for lease in other.book.leases.values()
    )


def _somebody_else(bench: Bench) -> str:
    """Work of another plan takes what is left of the account, but for less than a row."""
    ledger = bench.ledger
    lines = [
        line("train", "target", 4.96),
        line("confirmation", "confirmation", 0.02),
        line("recovery", "recovery", 0.02),
    ]
    other = planned("other", 5.0, lines)
    who = Identity(experiment="other", decision=other.decision)
    join_account(bench.store, who, ledger.account, unit="usd", by="test", at=time.time())
    ledger.decide(lambda book: set_aside(book, other), at=time.time())

    def ask(book: Book) -> Any:
        cost = min(4_960_000, 4_990_000 - book.charged) // 1000 * 1000
        return admit(
            book,
            Request(lease="other-1", experiment="other", line="train", terms=terms(cost)),
            now=time.time(),
        )

    ledger.decide(ask, at=time.time())
    return "other-1"


def test_a_rate_that_rises_beyond_the_margin_stops_a_search_until_a_person_replans(bench: Bench) -> None:
    """Rows at work go on at the rate that they were reserved at; none begins at it any more."""
    bench.write(trials=4, concurrent=2, rate=3.0, ceiling=4.0, wall_h="0.01", attempts="1")

    def hear(line: str) -> None:
        if line.startswith("trial-001 completed"):
            _rated(bench, "3.5")

    bench.hear = hear
    outcome = bench.drive(most=1)
    assert outcome.counts == {"completed": 1, "refused-by-budget": 3}
    assert outcome.exit_code == 4 and outcome.short
    found = read_acts(bench.store, NAME).pauses[SCOPE].pause
    assert isinstance(found, Paused) and found.cause == "replan"
    assert "costs 3.50 now (a new invoice, 2026-12-01), not 3.00" in found.reason
    assert [lease.reserved.terms.rate for lease in bench.ledger.book.leases.values()] == [3_000_000]

    argv = ["budget", "replan", NAME, "--reason", "a new invoice", "--by", "ada", "--root", str(bench.root)]
    assert main(argv) == 0
    resume(bench.store, SCOPE, cleared="replanned", person="ada", at=time.time())
    assert bench.drive().counts == {"completed": 4}
    rates = [lease.reserved.terms.rate for lease in bench.ledger.book.leases.values()]
    assert rates == [3_000_000, *[3_500_000] * 3]
    whole(bench)


def test_a_row_goes_on_at_a_rate_within_the_margin_or_a_lower_one(bench: Bench) -> None:
    bench.write(trials=3, concurrent=1, rate=3.0, ceiling=4.0, wall_h="0.01", attempts="1")

    def hear(line: str) -> None:
        if line.startswith("trial-001 completed"):
            _rated(bench, "2.5")

    bench.hear = hear
    assert bench.drive(most=1).counts == {"completed": 3}
    rates = [lease.reserved.terms.rate for lease in bench.ledger.book.leases.values()]
    assert rates == [3_000_000, 2_500_000, 2_500_000]
    whole(bench)


def test_a_row_whose_restart_the_rate_refuses_has_not_failed(bench: Bench) -> None:
    """It waits as rows do that nobody has begun, and goes on from its last commit after a replan."""
    bench.write(trials=2, concurrent=1, rate=3.0, ceiling=4.0, wall_h="0.01", attempts="3")
    died: list[float] = []

    def at(lr: float, update: int) -> None:
        if update == 10 and not died:
            died.append(lr)
            _rated(bench, "3.5")
            raise ConnectionResetError

    outcome = bench.drive(Steps(at=at), most=1)
    assert outcome.counts == {"censored-by-budget": 1, "refused-by-budget": 1}
    assert read_acts(bench.store, NAME).pauses[SCOPE].pause.cause == "replan"
    argv = ["budget", "replan", NAME, "--reason", "a new invoice", "--by", "ada", "--root", str(bench.root)]
    assert main(argv) == 0
    resume(bench.store, SCOPE, cleared="replanned", person="ada", at=time.time())
    assert bench.drive().counts == {"completed": 2}
    whole(bench)


def _rated(bench: Bench, rate: str) -> None:
    event = Rated(
        pool="train", rate=micros(rate, field="test"), source="a new invoice", on="2026-12-01", person="ada"
    )
    bench.ledger.decide(lambda book: event, at=time.time())


# --- people -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [SCOPE, "all", "role:search", "contract"])
def test_every_live_row_heeds_a_pause(bench: Bench, scope: str) -> None:
    bench.write(trials=3, concurrent=2)
    once: list[str] = []

    def at(lr: float, update: int) -> None:
        if update == 20 and not once:
            registration = read_registration(bench.store, NAME)
            assert registration is not None
            once.append(scope if scope != "contract" else f"contract:{registration.contract}")
            pause(bench.store, once[0], reason="promised", person="ada", at=time.time())

    outcome = bench.drive(Steps(at=at))
    assert outcome.exit_code == 4 and "paused by ada" in (outcome.stopped or "")
    assert outcome.picked is None and bench.state.driver is None
    assert not [lease for lease in bench.ledger.book.leases.values() if lease.open]
    resume(bench.store, once[0], cleared="free", person="ada", at=time.time())
    assert bench.drive().counts == {"completed": 3}
    whole(bench)


def test_a_cancelled_search_ends_every_row(bench: Bench) -> None:
    bench.write(trials=4, concurrent=2)
    once: list[int] = []

    def at(lr: float, update: int) -> None:
        if not once:
            once.append(update)
            cancel(bench.store, NAME, reason="flat", person="ada", at=time.time())

    def slowly(lr: float, update: int) -> None:
        at(lr, update)
        if update == 20:  # until every run has heard of it
            deadline = time.monotonic() + 30
            while not any("committing" in line for line in bench.said) and time.monotonic() < deadline:
                time.sleep(0.01)

    outcome = bench.drive(Steps(at=slowly))
    assert outcome.exit_code == 3 and outcome.stopped == "cancelled by ada: flat"
    assert outcome.picked is None and outcome.unpicked is None
    counts = outcome.counts
    assert counts["never-started"] >= 2 and sum(counts.values()) == 4
    assert set(counts) <= {"never-started", "censored-by-budget", "completed"}
    whole(bench)


# --- a store that fails -------------------------------------------------------------------------------------


def test_a_store_that_goes_away_for_a_while_holds_the_search(bench: Bench) -> None:
    """The driver sees no store for two seconds; rows go on, and nothing of the search is lost."""
    bench.write(trials=3, concurrent=2)
    since: list[float] = []

    def away() -> None:
        if bench.machines is None or len(bench.machines.starts) < 2:
            return
        since.append(time.monotonic())
        if time.monotonic() - since[0] < 2.0:
            raise StoreUnavailableError("nobody is there")

    outcome = bench.drive(fault=Fault(away, at=1, forever=True))
    assert outcome.counts == {"completed": 3} and time.monotonic() - since[0] >= 2.0
    assert sum("does not answer" in line for line in bench.said) >= 1
    whole(bench)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_reply_that_is_lost_is_found_out_by_the_same_command(tmp_path: Path) -> None:
    """At any operation of the driver: it goes on by itself, or ends with `Unknown` and goes on when it is told to."""
    seed = int(os.environ.get("RAYKIT_SEED", "3"))
    print(f"seed {seed}")
    first = Bench(tmp_path / "first")
    first.write(trials=2, concurrent=2, scheduler=ASHA)
    counted = Fault()
    first.drive(fault=counted)
    fired = again = 0
    for n, at in enumerate(sorted(random.Random(seed).sample(range(1, len(counted.operations)), 12))):
        bench = Bench(tmp_path / str(n))
        bench.write(trials=2, concurrent=2, scheduler=ASHA)
        fault = Fault(reply_lost, at=at, when="after")
        try:
            bench.drive(fault=fault)
        except (Unknown, HeldError) as error:
            print(f"operation {at}, {fault.operations[at - 1]}: {error}")
            again += 1
            bench.drive()
        fired += fault.fired  # how many operations there are depends on how fast the machine is
        whole(bench)
    print(f"{again} of {fired} had to be started again")
    assert fired >= 4


# --- what a killed one has left -----------------------------------------------------------------------------


class Killed(BaseException):
    """The driver dies here: nothing of it is tidied up."""


def test_a_row_whose_run_is_over_is_only_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the end of a run and the end of its row: the row is not started again."""
    from raykit.fleet.search.hand import Hand

    bench.write(trials=2, concurrent=1)
    with monkeypatch.context() as patched:

        def dies(self: Hand, row: Any, came: Any) -> None:
            raise Killed

        patched.setattr(Hand, "end", dies)
        with pytest.raises(Killed):
            bench.drive()
    assert bench.state.row(1).status == "begun"
    bench.drive()
    assert bench.machines is not None and bench.machines.starts == ["trial-002"]
    whole(bench)


def test_a_row_that_the_scheduler_has_stopped_is_only_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the ruling: what was ruled holds, and the row's report is not made again."""
    from raykit.fleet.search.hand import Hand

    scheduler = 'scheduler = { name = "asha", grace_updates = 10, reduction = 2 }'
    bench.write(trials=3, concurrent=1, scheduler=scheduler)
    with monkeypatch.context() as patched:

        def dies(self: Hand, n: int, why: str) -> None:
            raise Killed

        patched.setattr(Hand, "rule", dies)
        with pytest.raises(Killed):
            bench.drive()
    (ruled,) = [row for row in bench.state.rows if row.ruled is not None]
    assert ruled.status == "begun"
    bench.drive()
    again = bench.state.row(ruled.n)
    assert again.ended is not None and again.ended.end in ("stopped-by-scheduler", "completed")
    assert bench.machines is not None and ruled.run not in bench.machines.starts
    whole(bench)


def test_a_setting_that_was_drawn_is_not_drawn_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from raykit.fleet.search import driver as module
    from raykit.fleet.search.hand import Hand

    bench.write(trials=4, concurrent=1, sampler="optuna.tpe")
    drawn: list[int] = []

    def counted(state: SearchState, row: int, *, of: Any = module.draw) -> dict[str, Any]:
        drawn.append(row)
        found: dict[str, Any] = of(state, row)
        return found

    def dies(self: Hand, row: Any, *, of: Any = Hand.begin) -> None:
        if len(drawn) == 2:
            raise Killed
        of(self, row)

    monkeypatch.setattr(module, "draw", counted)
    monkeypatch.setattr(Hand, "begin", dies)
    with pytest.raises(Killed):
        bench.drive()
    first = {row.n: row.params for row in bench.state.rows if row.params is not None}
    monkeypatch.undo()
    monkeypatch.setattr(module, "draw", counted)
    bench.drive()
    assert drawn == [1, 2, 3, 4]
    assert {n: bench.state.row(n).params for n in first} == first
    whole(bench)


def test_who_has_let_go_may_not_write(bench: Bench) -> None:
    bench.write(trials=2)
    bench.drive()
    registration = read_registration(bench.store, NAME)
    assert registration is not None
    log = SearchLog(bench.store, registration, by="test")
    log.refresh()
    with pytest.raises(FencedError, match="nobody has"):
        held.write(log, "somebody", list)
    held.take(log, "mine")
    held.take(log, "mine")  # said twice, written once
    assert log.state.driver is not None and log.state.driver.driver == "mine"
    held.let_go(log, "another")
    assert log.state.driver is not None
    held.let_go(log, "mine")
    assert log.state.driver is None
