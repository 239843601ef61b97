"""What dead processes have left open: leases of workers beside runs are settled by whoever starts next, and by nobody
that starts nothing.

covers I6 I13, BUD-12 FLEET-06 QC-19
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from makeledger import a_plan, identity, usd
from makerun import RunMaker

from raykit.budget.admit import Request, admit
from raykit.budget.book import Lease
from raykit.cli.main import main
from raykit.fleet.leftopen import KILLED, OVER, SLACK_S, ends_of_dead, settle_workers
from raykit.records import Line, Place, Terms
from raykit.store.accounts import join_account
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.place import this_place

HERE = this_place()
GONE = HERE.model_copy(update={"started": HERE.started + 1})
ELSEWHERE = HERE.model_copy(update={"host": "node-17"})
LEASED_S, AGO_S = 600, 100.0


class Held:
    """A ledger in which leases of workers are open since a while."""

    def __init__(self, root: Path) -> None:
        self.store = LocalStore(root)
        self.at = ("--root", str(root))
        self.log = RunLog(self.store, "digits", "main", by="test")
        self.maker = RunMaker(self.store, at=time.time() - 10_000.0)
        self.maker.freeze()
        self.now = time.time()
        plan = a_plan("digits")
        beside = [Line(line=line, purpose="overhead", planned=usd("10")) for line in ("qc", "generate")]
        lines = (*plan.lines, *beside)
        self.plan = plan.model_copy(update={"lines": lines, "ceiling": sum(each.planned for each in lines)})
        at = self.now - 10_000.0
        self.ledger = join_account(self.store, identity("digits"), None, unit="usd", by="test", at=at)
        self.ledger.decide(lambda book: self.plan, at=at)

    def train(self) -> None:
        """To the end; the launch has gone."""
        self.maker.launch()
        self.maker.begin()
        self.maker.rows(5)
        self.maker.commit("final")
        self.maker.end("completed")
        self.maker.release("completed")

    def lease(self, name: str, holder: Place | None, *, line: str = "qc", ago_s: float = AGO_S) -> None:
        terms = Terms(accelerators=1, rate=usd("3.60"), source="a test", time_ms=LEASED_S * 1000)
        request = Request(lease=name, experiment="digits", line=line, terms=terms, holder=holder)
        self.ledger.decide(lambda book: admit(book, request), at=self.now - ago_s)

    def ends(self) -> dict[str, tuple[int, str]]:
        self.log.refresh()
        found = ends_of_dead(self.ledger.book, "digits", self.log, self.now)
        assert len({event.lease for event in found}) == len(found), "nothing is settled twice"
        assert {event.reason for event in found} <= {"killed"}
        return {event.lease: (event.time_ms, event.how) for event in found}

    def read(self, name: str) -> Lease:
        ledger = Ledger(self.store, self.ledger.account, by="test")
        ledger.refresh()
        return ledger.book.leases[name]


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path / "store")


@pytest.mark.parametrize("line", ["qc", "generate"])
def test_a_worker_is_over_once_the_process_is_gone_that_would_have_ended_it(held: Held, line: str) -> None:
    held.lease("dead-1", GONE, line=line)
    held.lease("alive-1", HERE, line=line)
    held.lease("far-1", ELSEWHERE, line=line)
    held.lease("unnamed-1", None, line=line)
    assert held.ends() == {"dead-1": (int(AGO_S * 1000), KILLED)}


def test_one_that_cannot_be_seen_from_here_is_charged_in_full_once_its_time_is_over(held: Held) -> None:
    held.lease("far-1", ELSEWHERE, ago_s=LEASED_S + SLACK_S - 1)
    held.lease("alive-1", HERE, ago_s=LEASED_S + SLACK_S + 1)
    assert held.ends() == {}
    held.lease("far-2", ELSEWHERE, ago_s=LEASED_S + SLACK_S + 1)
    assert held.ends() == {"far-2": (LEASED_S * 1000, OVER)}


def test_where_no_launch_begins_dead_workers_are_settled_all_the_same(held: Held) -> None:
    held.lease("dead-1", GONE)
    held.lease("alive-1", HERE)
    settle_workers(held.store, "digits")
    assert not held.read("dead-1").open
    assert held.read("alive-1").open
    before = sorted(held.store.list(""))
    settle_workers(held.store, "digits")
    settle_workers(held.store, "nobody")
    assert sorted(held.store.list("")) == before, "nothing is written where nothing is left open"


@pytest.mark.parametrize(
    ("line", "complete", "command"),
    [
        ("qc", False, "raykit resume digits"),
        ("qc", True, "raykit qc run digits"),
        ("generate", True, "raykit generate PLAN"),
    ],
)
def test_people_are_told_what_settles_it(
    held: Held, capsys: pytest.CaptureFixture[str], line: str, complete: bool, command: str
) -> None:
    if complete:
        held.train()
    held.lease("dead-1", GONE, line=line)
    assert main(["budget", "show", "digits", *held.at]) == 0
    said = capsys.readouterr().out
    assert (
        f"digits: 1 lease of what is gone (dead-1), $0.6000 until the next {command} settles what was used"
        in said
    )
    assert "budget settle" not in said


def test_what_is_at_work_is_neither_unknown_nor_settled_by_hand(
    held: Held, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers BUD-03: who holds it knows better what it costs."""
    held.lease("alive-1", HERE, line="generate")
    assert main(["budget", "show", "digits", *held.at]) == 0
    said = capsys.readouterr().out
    assert "unknown    no outcome" in said and "settle" not in said
    by_hand = ["budget", "settle", "alive-1", "--cost", "0.01", "--how", "I say so", "--by", "ada", *held.at]
    assert main(by_hand) == 3
    assert f"alive-1 is worked under: process {HERE.pid}" in capsys.readouterr().err
    assert held.read("alive-1").open


def test_what_runs_somewhere_else_may_be_settled_by_who_knows(held: Held) -> None:
    held.lease("far-1", ELSEWHERE)
    by_hand = ["budget", "settle", "far-1", "--cost", "0.01", "--how", "its console", "--by", "ada", *held.at]
    assert main(by_hand) == 0
    assert held.read("far-1").charged == usd("0.01")
