"""One deliberate start has one identity, from the launch to the worker; what is not known is not made up.

What a launch writes (`launched`), what it reserves (a lease), and what really works (an attempt, on a place) are three
things, and none of them stands for another. covers DISP-02..08, DISP-10, DISP-12..15
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from called import calls
from makebudget import PaidByNode, usd
from makeledger import AT, events
from makerun import ELSEWHERE, RunMaker, make_run
from nursery import Nursery
from plainrun import Launches, claim_job, freeze_job, run_log, state_of, take, write_job
from test_door import a_door, an_account

from raykit.data.randomness import HASH_SEED
from raykit.errors import (
    ConflictError,
    HeldError,
    LeaseLostError,
    StoreUnavailableError,
    UnknownOutcomeError,
    by_kind,
)
from raykit.fleet import claim as claiming
from raykit.fleet.jobs.standing import of_run
from raykit.fleet.outcome import Outcome
from raykit.fleet.site import make_ready, site_of, stored_site, task_of
from raykit.read.money import money_of
from raykit.read.root import Root
from raykit.reconcile import fold
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Beat,
    Launched,
    Place,
    Record,
    Reserved,
    RunEntry,
    Voided,
)
from raykit.store import layout, open_store
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.place import this_place
from raykit.store.plans import read_lock
from raykit.testing import FakeClock, Fault, FaultStore, MemoryStore, reply_lost
from raykit.train import facts, frozen
from raykit.train.gang import alone
from raykit.train.revision import git_of


def launched_events(log: RunLog) -> list[Launched]:
    log.refresh()
    return [event for entry in log.entries for event in entry.events if isinstance(event, Launched)]


# --- the same inputs ----------------------------------------------------------------------------------------


def test_a_launch_goes_on_with_what_was_prepared(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-02 DISP-13 FLEET-14: plan and code are edited after they were locked; neither reaches the run."""
    plan = write_job(tmp_path / "job", {"params": "{ width = 16, lr = 0.03 }"})
    task = freeze_job(tmp_path / "store", plan)
    lock = read_lock(open_store(task.root), "tiny", task.plan)
    write_job(tmp_path / "job", {"params": "{ width = 8, lr = 0.5 }", "updates": "99"})
    (tmp_path / "job" / "recipe.py").write_text("raise SystemExit('the checkout')\n")
    run = Launches(nursery, task)
    assert run.run()[0][0] == 0
    state = state_of(task)
    assert state.attempt is not None
    assert (state.attempt.plan, state.attempt.code, state.attempt.data) == (task.plan, lock.code, lock.data)
    assert state.rows == lock.updates == 20
    rows = list(Root(open_store(task.root), lambda: AT).history("tiny"))
    assert rows[0].lr == (0.03,)


def test_a_resume_from_the_store_makes_no_second_setup(tmp_path: Path) -> None:
    """covers DISP-02: the stored plan and code give the same lock, whatever has become of the checkout."""
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job"))
    (tmp_path / "job" / "recipe.py").unlink()
    with stored_site("tiny", task.root) as site:
        ready = make_ready(site)
        again = task_of(site, ready)
    assert replace(again, launch=task.launch) == task


def test_launch_inputs_never_change(tmp_path: Path) -> None:
    """covers DISP-13: each lies under its digest, and a key takes no second content."""
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job"))
    store = open_store(task.root)
    for key in (
        layout.plan("tiny", task.plan, "plan.toml"),
        layout.plan("tiny", task.plan, "plan.lock"),
        layout.code("tiny", task.code),
        layout.membership("tiny", task.data, "manifest.json"),
        layout.run_record("tiny", "main"),
    ):
        before = store.get(key)
        with pytest.raises(ConflictError):
            store.put_new(key, before + b" ")
        assert store.get(key) == before


def test_revisions_and_checksums_are_kept(tmp_path: Path) -> None:
    """covers DISP-14: lock, checkpoint and environment name code, data and every file by digest."""
    store = LocalStore(tmp_path / "store")
    maker = make_run(store)
    view = Root(store, lambda: AT).run("digits")
    assert view.lock is not None
    assert (view.lock.code, view.lock.data) == (maker.locked.code, maker.locked.data)
    for item in view.commits:
        assert len(item.commit.sha256) == 64
        manifest = store.get(item.commit.key)
        for digest in (maker.locked.contract, maker.locked.code, maker.locked.data):
            assert digest.encode() in manifest
    folder = tmp_path / "job"
    write_job(folder)
    assert "torch" in frozen.environment(git_of(folder)).packages


# --- one identity -------------------------------------------------------------------------------------------


def test_taking_a_run_twice_is_taking_it_once(tmp_path: Path) -> None:
    """covers DISP-03"""
    site = site_of(write_job(tmp_path / "job"), str(tmp_path / "store"))
    ready = make_ready(site)
    log = site.run_log("launch")
    claiming.lock(site, ready, log)
    task = task_of(site, ready)
    for _ in range(3):
        claiming._take(log, task)
    assert [event.launch for event in launched_events(log)] == [task.launch]


def test_a_reservation_is_named_by_its_launch_and_attempt(tmp_path: Path) -> None:
    """covers DISP-03: asking again finds the same lease; another number is another lease."""
    store = MemoryStore()
    ledger, door = an_account(store), a_door(store, FakeClock(AT + 100))
    leases = [door.begin("3f9a", 1).lease, door.begin("3f9a", 1).lease, door.begin("3f9a", 2).lease]
    assert leases == ["3f9a-1", "3f9a-1", "3f9a-2"]
    reserved = [event.lease for event in events(ledger) if isinstance(event, Reserved)]
    assert reserved == ["3f9a-1", "3f9a-2"]
    with pytest.raises(LeaseLostError):
        door.begin("3f9a", 1)  # a worker of the first attempt that wakes up late


def test_an_attempt_names_the_launch_and_the_lease_that_it_is_of(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-03 DISP-08: a row in the run's log leads to the reservation, and back."""
    store = MemoryStore()
    maker = PaidByNode(store, experiment="lm1b")
    maker.freeze()
    maker.launch()
    maker.begin(lease=f"{maker.name}-1")
    attempt = maker.log.state.attempt
    assert attempt is not None
    assert (attempt.launch, attempt.lease) == (maker.name, f"{maker.name}-1")
    assert attempt.lease in maker.ledger.book.leases


# --- an uncertain reply -------------------------------------------------------------------------------------


@pytest.fixture
def site_log(tmp_path: Path) -> Iterator[tuple[claiming.Site, RunLog]]:
    site = site_of(write_job(tmp_path / "job"), str(tmp_path / "store"))
    yield site, site.run_log("launch")


def test_a_lost_reply_is_looked_up_and_not_sent_again(
    site_log: tuple[claiming.Site, RunLog],
) -> None:
    """covers DISP-04: the launch was written and nobody heard; the same launch finds that it was."""
    site, log = site_log
    ready = make_ready(site)
    claiming.lock(site, ready, log)
    task = task_of(site, ready)
    counting = Fault()
    RunLog(FaultStore(site.store, counting), "tiny", "main", by="count").refresh()
    puts = len(counting.operations) + 2  # reading, reading on, and then the entry
    for at in range(1, puts + 3):
        fault = Fault(reply_lost, at=at, when="after")
        lossy = RunLog(FaultStore(site.store, fault), "tiny", "main", by="launch")
        try:
            claiming._take(lossy, task)
        except UnknownOutcomeError as error:
            assert error.exit_code == 6
            claiming._take(lossy, task)  # the same key again: looked up first
    assert [event.launch for event in launched_events(log)] == [task.launch]


def test_a_new_launch_key_for_it_is_refused(tmp_path: Path) -> None:
    """covers DISP-04: whoever is not sure whether a launch runs is told to look, not let in with another key."""
    plan = write_job(tmp_path / "job")
    task, _ = claim_job(tmp_path / "store", plan)
    with pytest.raises(HeldError, match=f"launch {task.launch}, process") as caught:
        claim_job(tmp_path / "store", plan)
    assert (caught.value.remedy or "").startswith("raykit status")
    log = RunLog(open_store(task.root), "tiny", "main", by="reader")
    assert [event.launch for event in launched_events(log)] == [task.launch]


def test_in_the_background_nothing_starts_beside_a_launch_that_is_alive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*arguments: object, **named: object) -> None:
        raise AssertionError("a process was started")

    task, _ = claim_job(tmp_path / "store", write_job(tmp_path / "job"))
    monkeypatch.setattr(subprocess, "Popen", no_process)
    refused = calls(capsys)("resume", "tiny", "--detach", "--root", str(tmp_path / "store"))
    assert refused.code == 3 and f"tiny is running: launch {task.launch}, process" in refused.err


@pytest.mark.parametrize(("why", "code"), [("cancelled by ada: flat", 3), ("paused by ada: lunch", 4)])
def test_the_store_tells_how_a_job_ended_that_a_person_has_stopped(why: str, code: int) -> None:
    maker = RunMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(10)
    maker.commit("stop")
    maker.end("paused", detail=why)
    maker.release("paused")
    assert list(of_run(maker.log.state).ended.values()) == [code]


def test_a_lost_reservation_is_found_again(tmp_path: Path) -> None:
    """covers DISP-04 DISP-08"""
    store = MemoryStore()
    ledger = an_account(store)
    counting = Fault()
    a_door(FaultStore(MemoryStore(dict(store.objects)), counting), FakeClock(AT + 100)).begin("3f9a", 1)
    at = next(n for n, name in enumerate(counting.operations, 1) if name.startswith("put_new accounts/"))
    fault = Fault(reply_lost, at=at, when="after")
    lossy = a_door(FaultStore(store, fault), FakeClock(AT + 100))
    with pytest.raises(UnknownOutcomeError):
        lossy.begin("3f9a", 1)
    assert fault.fired
    assert lossy.begin("3f9a", 1).lease == "3f9a-1"
    assert [event.lease for event in events(ledger) if isinstance(event, Reserved)] == ["3f9a-1"]


# --- what stands for what -----------------------------------------------------------------------------------


def test_a_launch_row_is_no_work(tmp_path: Path) -> None:
    """covers DISP-05: the run is taken, machines may be coming up; no attempt, no update, no accelerator time."""
    store = LocalStore(tmp_path)
    maker = PaidByNode(store, experiment="lm1b")
    maker.freeze()
    maker.launch()
    view = Root(store, lambda: maker.at + 1).run("lm1b")
    assert (view.state, view.update, tuple(view.attempts), tuple(view.commits)) == ("starting", 0, (), ())
    assert view.money is not None
    assert (view.money.attempts, view.money.accelerator_ms, view.money.actual) == (0, 0, 0)
    assert not {Launched, Reserved} & {AttemptStarted, *AttemptStarted.__mro__}


def test_a_reservation_is_no_work_either(tmp_path: Path) -> None:
    """covers DISP-05: it is charged at its worst case, and no attempt is made of it."""
    store = LocalStore(tmp_path)
    maker = PaidByNode(store, experiment="lm1b")
    maker.freeze()
    maker.launch()
    a_lease = Reserved.model_validate(
        {
            "lease": f"{maker.name}-1",
            "experiment": "lm1b",
            "line": "train",
            "worst": usd("10"),
            "terms": {
                "accelerators": 8,
                "rate": 0,
                "source": "a test",
                "margin_permille": 1000,
                "time_ms": 1000,
                "fixed": usd("10"),
            },
            "charged": 0,
            "below": usd("900"),
        }
    )
    maker.decide(lambda book: a_lease)
    view = Root(store, lambda: maker.at + 1).run("lm1b")
    assert (len(view.attempts), view.update, view.state) == (0, 0, "starting")
    assert view.money is not None
    assert view.money.reserved + view.money.actual == usd("10")  # charged, as long as nobody knows better
    maker.decide(lambda book: Voided(lease=f"{maker.name}-1", proof="the gang never came up"))
    money = money_of(store, "lm1b", maker.at + 2)
    assert money is not None
    assert (money.reserved, money.actual) == (0, 0)


def test_a_heartbeat_is_no_update() -> None:
    """covers DISP-06"""
    store = MemoryStore()
    maker = RunMaker(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(5)
    before = fold(maker.log.entries)
    for _ in range(50):
        maker.beat()
    after = fold(maker.log.entries)
    assert (after.rows, after.commits, after.attempts) == (before.rows, before.commits, before.attempts)
    assert after.heard_at > before.heard_at
    assert Root(store, lambda: maker.at + 1).run("digits").update == 5
    assert not set(Beat.model_fields) & {"update", "first", "last", "samples"}


def test_a_beat_of_a_lease_earns_nothing() -> None:
    """covers DISP-06: it says that work goes on, and writes no row, no time and no cost."""
    store = MemoryStore()
    ledger, door = an_account(store), a_door(store, FakeClock(AT + 100))
    door.begin("3f9a", 1)
    before = events(ledger)
    door.beat("3f9a-1")
    assert events(ledger) == before


def test_looking_before_the_first_update_is_no_stall() -> None:
    """covers DISP-10: an evaluation at update 0 may take as long as it likes; silence after updates is silence."""
    store = MemoryStore()
    maker = RunMaker(store)
    maker.freeze()
    maker.launch()
    maker.begin()  # which evaluates, and commits update 0
    maker.at += 3600
    maker.beat()
    view = Root(store, lambda: maker.at + 1).run("digits")
    assert (view.state, view.update, view.health) == ("running", 0, "unknown")
    maker.rows(10)
    maker.at += 3600
    maker.beat()
    view = Root(store, lambda: maker.at + 1).run("digits")
    assert (view.update, view.health) == (10, "silent")


# --- what is not known --------------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_says_nothing_of_the_run(tmp_path: Path) -> None:
    """covers DISP-07: who collects cannot reach it, and that is all that is known: exit 6, and nothing is written."""
    inner = MemoryStore()
    make_run(inner)
    before = dict(inner.objects)

    def away() -> None:
        raise StoreUnavailableError("no route to the store")

    store = FaultStore(inner, Fault(away, at=1, forever=True))
    with pytest.raises(StoreUnavailableError) as caught:
        Root(store, lambda: AT).run("digits")
    assert caught.value.exit_code == 6
    assert inner.objects == before


@pytest.mark.parametrize("kind", ["store-unavailable", "unknown-outcome", "deadline"])
def test_not_knowing_has_an_exit_code_of_its_own(kind: str) -> None:
    """covers DISP-07 DISP-08: unknown, and neither failed nor completed."""
    outcome = Outcome(experiment="e", run="main", reason="failed", update=3, detail=f"{kind}: no answer")
    assert outcome.exit_code == by_kind(kind).exit_code == 6


def test_a_launch_that_was_not_heard_of_has_not_failed() -> None:
    """covers DISP-07 DISP-08: nobody has seen its end, so none is made up; what it holds stays charged in full."""
    store = MemoryStore()
    maker = PaidByNode(store, experiment="lm1b")
    maker.freeze()
    maker.launch()
    maker.begin(hours=2.0)
    view = Root(store, lambda: maker.at + 7200).run("lm1b")
    assert view.state == "stopped"
    assert view.attempts[-1].ended is None
    assert view.money is not None
    (lease,) = view.money.unknown
    assert (lease.lease, lease.worst) == (maker.lease, view.money.reserved)
    assert view.money.reserved > 0
    ended = [
        event for entry in maker.log.entries for event in entry.events if isinstance(event, AttemptEnded)
    ]
    assert ended == []


# --- where it really ran ------------------------------------------------------------------------------------


def test_every_attempt_keeps_the_process_that_it_was(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-08 DISP-15: host, boot and process of each, also of those that were killed."""
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    (first,) = run.start({"put": '"event":"commit"', "when": "after", "nth": 2})
    assert first.wait()[0] == -9
    (second,) = run.start()
    assert second.wait()[0] == 0
    attempts = state_of(run.task).attempts
    assert [attempt.place.pid for attempt in attempts] == [first.pid, second.pid]
    here = this_place()
    assert {(attempt.place.host, attempt.place.boot) for attempt in attempts} == {(here.host, here.boot)}
    assert len({attempt.place for attempt in attempts}) == 2
    view = Root(open_store(run.task.root), lambda: AT).run("tiny")
    assert [item.place for item in view.attempts] == [attempt.place for attempt in attempts]


def test_a_place_is_told_from_another_that_has_its_number() -> None:
    """covers DISP-15: a process id alone names nobody after a reboot."""
    same = Place(host=ELSEWHERE.host, boot="boot/2", pid=ELSEWHERE.pid, started=ELSEWHERE.started)
    assert same != ELSEWHERE


def test_what_a_rank_has_is_read_from_the_rank(nursery: Nursery, tmp_path: Path) -> None:
    """covers DISP-12: the plan says `auto`, and the log says what that really was."""
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job")))
    run = replace(run, task=take(run.task), hooks={"facts": {"device_model": "H200"}})
    (rank,) = run.ranks(run.task)
    assert rank.wait()[0] == 0
    entries: list[RunEntry] = run_log(open_store(run.task.root), run.task).refresh()
    recorded: list[Record] = [event for entry in entries for event in entry.events]
    (attempt,) = [event for event in recorded if isinstance(event, AttemptStarted)]
    here = {**facts.here(alone(), 1), "hash_seed": HASH_SEED}  # which each worker is started with
    assert attempt.facts == {**here, "device_model": "H200"}
