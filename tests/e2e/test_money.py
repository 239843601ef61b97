"""Money and pauses on a real local Ray, as people see them: through commands, exit codes, and the store.

covers I6 I7 I13, BUD-02 BUD-04 BUD-05 BUD-07 BUD-17 BUD-27, RAY-03 RAY-05 RAY-07 RAY-10 RAY-11, FLEET-05 FLEET-06
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import psutil
import pytest
from plainrun import final_digest, rows_bits, write_job
from raylaunch import Launching, Store, kill, raykit

from raykit.budget.audit import audit
from raykit.store.accounts import open_ledger
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.people import read_acts
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SLOW = {"TINY_SLOW_S": "0.1"}
VERY_SLOW = {"TINY_SLOW_S": "1.0"}
EDITS = {"updates": "80", "params": "{ width = 16, dropout = 0.3 }"}
BY = ("--by", "ada", "--reason", "a test")


def priced(folder: Path, *, rate: float, ceiling: float, **edits: str) -> Path:
    """The undisturbed run's plan, with a price on this machine."""
    plan = write_job(folder / "job", {**EDITS, **edits})
    text = plan.read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}")
    price = f'usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}'
    plan.write_text(f"{text}\n[pools.train]\ngpus = 0\n{price}\n")
    return plan


def ledger_of(store: Store) -> Ledger:
    """The ledger, held against its promises."""
    ledger = open_ledger(LocalStore(store.root), "tiny", by="test")
    assert list(audit(ledger.entries)) == []
    return ledger


def the_same_run(store: Store, undisturbed) -> None:
    assert store.state().completed
    assert final_digest(store.task) == undisturbed.digest
    assert rows_bits(store.task) == undisturbed.rows
    check_invariants(LocalStore(store.root))


def refused(code: int, command: Launching, *words: str) -> None:
    """The command ended with this code, said these words, and showed no traceback."""
    found, out, err = command.end()
    assert found == code, (out, err)
    assert "Traceback" not in err
    assert all(word in err for word in words), err


@pytest.mark.long
def test_a_ceiling_pauses_a_run_and_a_replan_finishes_it(tmp_path: Path, undisturbed) -> None:
    store, plan = Store(tmp_path / "store"), priced(tmp_path, rate=18.0, ceiling=0.60)
    code, out, err = raykit("launch", str(plan), root=store.root, environment=VERY_SLOW).end()
    assert code == 4, (out, err)
    assert "paused" in out and "raykit budget show tiny" in out and "raykit resume tiny" in out
    state, book = store.state(), ledger_of(store).book
    assert state.recorded() < 80
    assert book.charged < 600_000 and book.reserved == 0, "everything is settled, and below the ceiling"
    assert book.allocations["tiny"].remaining("train") >= 0, "the drain fitted, too"
    (force,) = read_acts(LocalStore(store.root), "tiny").pauses.values()
    assert force.pause.cause == "ceiling"

    entries = len(ledger_of(store).entries)
    refused(3, raykit("resume", "tiny", root=store.root), "raykit budget replan tiny")
    refused(4, raykit("launch", str(plan), root=store.root), "raykit resume tiny")
    assert len(ledger_of(store).entries) == entries, "a refusal writes nothing"

    code, out, err = raykit("budget", "show", "tiny", "--json", root=store.root).end()
    assert code == 0, (out, err)
    assert json.loads(out)["account"] == book.opened.account
    code, out, err = raykit("budget", "replan", "tiny", "--ceiling", "4", *BY, root=store.root).end()
    assert code == 0, (out, err)
    code, out, err = raykit("resume", "tiny", root=store.root).end()
    assert code == 0, (out, err)
    the_same_run(store, undisturbed)
    after = ledger_of(store).book
    assert after.reserved == 0 and 0 < book.charged < after.charged < 4_000_000
    assert all(attempt.lease in after.leases for attempt in store.state().attempts)
    invested = [commit.accelerator_s for commit in store.state().commits]
    assert invested == sorted(invested) and invested[0] > 0, "accelerator time only grows"


@pytest.mark.long
def test_pauses_from_elsewhere_lose_nothing(tmp_path: Path, undisturbed) -> None:
    store, plan = Store(tmp_path / "store"), str(undisturbed.plan)
    first = raykit("launch", plan, root=store.root, environment=SLOW)
    store.wait("the first rows", lambda s: s.rows >= 10, first.process)
    code, out, err = raykit("pause", "tiny", *BY, root=store.root).end()
    assert code == 0, (out, err)
    code, out, err = first.end()
    assert code == 4 and "raykit resume tiny" in out, (out, err)
    boundary(store)
    again = raykit("pause", "tiny", *BY, root=store.root)
    assert again.end()[0] == 0
    refused(4, raykit("launch", plan, root=store.root), "paused by ada", "raykit resume tiny")

    second = raykit("resume", "tiny", root=store.root, environment=SLOW)
    store.wait("more rows", lambda s: len(s.attempts) == 2 and s.rows >= 40, second.process)
    assert raykit("pause", "all", *BY, root=store.root).end()[0] == 0
    assert second.end()[0] == 4
    boundary(store)
    refused(4, raykit("resume", "tiny", root=store.root), "raykit resume all")
    assert raykit("resume", "all", "--by", "ada", root=store.root).end()[0] == 0
    code, out, err = raykit("resume", "tiny", root=store.root).end()
    assert code == 0, (out, err)
    the_same_run(store, undisturbed)
    assert ledger_of(store).book.charged == 0, "this machine's own processors cost nothing"


def boundary(store: Store) -> None:
    """A paused run stands at a commit, with not an update lost."""
    state = store.state()
    assert state.ended.reason == "paused" and state.ended.cause == "person"
    assert state.ended.update == state.committed == state.recorded()


@pytest.mark.slow  # its parts are in test_budget_actor.py and tests/crash/test_hold.py
def test_the_budget_actor_dies_stops_and_comes_back(tmp_path: Path, undisturbed) -> None:
    """Killed: a lost worker still gets its reservation. Stopped: training holds, and goes on when it is back."""
    store, plan = Store(tmp_path / "store"), priced(tmp_path, rate=1.0, ceiling=4.0)
    launch = raykit("launch", str(plan), root=store.root, environment={"TINY_SLOW_S": "0.3"})
    state = store.wait("the first rows", lambda s: s.rows >= 8, launch.process)
    kill(launch.descendant("BudgetActor"))
    kill(state.attempt.place.pid)
    store.wait("a second attempt", lambda s: len(s.attempts) == 2 and s.rows >= 14, launch.process)
    actor = launch.descendant("BudgetActor")
    os.kill(actor, signal.SIGSTOP)
    try:
        held = store.wait_until_quiet(launch.process)
    finally:
        os.kill(actor, signal.SIGCONT)
    code, out, err = launch.end()
    assert code == 0, (out, err)
    assert held < 80
    the_same_run(store, undisturbed)
    book = ledger_of(store).book
    leases = [attempt.lease for attempt in store.state().attempts]
    assert len(set(leases)) == 2 and set(leases) == set(book.leases)
    assert [book.leases[lease].reason for lease in leases] == ["killed", "completed"]
    assert book.reserved == 0 and 0 < book.charged < 4_000_000


@pytest.mark.slow
def test_a_budget_that_stays_away_ends_the_run(tmp_path: Path) -> None:
    store, plan = Store(tmp_path / "store"), priced(tmp_path, rate=1.0, ceiling=4.0, hold_s="3.0")
    launch = raykit("launch", str(plan), root=store.root, environment=VERY_SLOW)
    store.wait("the first rows", lambda s: s.rows >= 1, launch.process)
    actor = psutil.Process(launch.descendant("BudgetActor"))
    actor.suspend()
    code, out, err = launch.end()
    assert code == 6, (out, err)
    assert "no answer" in out and "Traceback" not in err
    state = store.state()
    assert state.ended.update == state.committed, "what was done is committed"
    assert ledger_of(store).book.reserved == 0
    check_invariants(LocalStore(store.root))


@pytest.mark.slow
def test_ten_pauses_at_random_moments(tmp_path: Path, undisturbed) -> None:
    seed = int(os.environ.get("RAYKIT_SEED", "7"))
    print(f"seed {seed}")
    chance, store = random.Random(seed), Store(tmp_path / "store")
    command = ("launch", str(undisturbed.plan))
    for n in range(10):
        launch = raykit(*command, root=store.root, environment=SLOW)
        target = (store.state().rows or 0) + chance.randint(1, 6)
        store.wait("a moment", lambda s, t=target: s.rows >= t, launch.process)
        assert raykit("pause", "tiny", *BY, root=store.root).end()[0] == 0
        assert launch.end()[0] == 4, n
        boundary(store)
        command = ("resume", "tiny")
    assert raykit("resume", "tiny", root=store.root).end()[0] == 0
    the_same_run(store, undisturbed)


@pytest.mark.slow
def test_cancel_is_the_end_for_good(tmp_path: Path, undisturbed) -> None:
    store, plan = Store(tmp_path / "store"), str(undisturbed.plan)
    launch = raykit("launch", plan, root=store.root, environment=SLOW)
    store.wait("the first rows", lambda s: s.rows >= 10, launch.process)
    assert raykit("cancel", "tiny", *BY, root=store.root).end()[0] == 0
    code, out, err = launch.end()
    assert code == 4, (out, err)
    refused(3, raykit("launch", plan, root=store.root), "cancelled by ada")
    refused(3, raykit("resume", "tiny", root=store.root), "cancelled by ada")
    assert store.state().commits, "nothing is deleted"
    check_invariants(LocalStore(store.root))
