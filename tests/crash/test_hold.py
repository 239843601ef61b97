"""Ranks of plain processes under a lease: held while nobody answers, stopped together, ended in time.

covers F7, I5 I6 I7 I9 I10, BUD-07, DESIGN section 6 "no answer"
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nursery import Nursery, Rank
from plainrun import Launches, final_digest, freeze_job, rows_bits, run_log, write_job

from raykit.budget.acts import settle_by_hand
from raykit.budget.audit import audit
from raykit.fleet.claim import Claimed, claim
from raykit.fleet.site import Site, site_of
from raykit.reconcile import RunState
from raykit.records import Released, StopRequested
from raykit.store import open_store
from raykit.store.accounts import open_ledger
from raykit.store.people import People
from raykit.testing.invariants import check_invariants

pytestmark = pytest.mark.timeout(120)

DEADLINE_S = 60.0
QUIET_S = 1.0
HOOKS = {"patch": {"raykit.train.directive.QUIET_S": QUIET_S, "raykit.train.directive.BEAT_S": 0.1}}
SLOW = {"TINY_SLOW_S": "0.1"}
EDITS = {"updates": "40", "flush_s": "0.1"}
WORLDS = [pytest.param(1, marks=pytest.mark.slow), 2]


def plan_of(folder: Path, world: int, **edits: str) -> Path:
    plan = write_job(folder / "job", {**EDITS, "workers": str(world), **edits})
    price = 'usd_per_hour = { rate = 1.0, source = "a test", billed = "resource" }'
    plan.write_text(
        plan.read_text().replace("ceiling_usd = 1.0", "ceiling_usd = 4.0")
        + f"\n[pools.train]\ngpus = 0\n{price}\n"
    )
    return plan


@dataclass(frozen=True)
class Same:
    """The undisturbed runs, by the number of ranks."""

    results: dict[int, tuple[str, list[bytes]]]


@pytest.fixture(scope="module")
def same(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Same:
    results = {}
    for world in (1, 2):
        folder = tmp_path_factory.mktemp(f"undisturbed-{world}")
        run = Launches(nursery, freeze_job(folder / "store", plan_of(folder, world)), world)
        assert {code for code, _ in run.run()} == {0}
        results[world] = (final_digest(run.task), rows_bits(run.task))
    return Same(results)


class Held:
    """A paid run whose ranks hear nothing of their store, or of their door, while a file is there."""

    def __init__(self, nursery: Nursery, folder: Path, world: int, **edits: str) -> None:
        self.nursery = nursery
        self.world = world
        self.flag = folder / "away"
        self.site: Site = site_of(plan_of(folder, world, **edits), str(folder / "store"))

    def claim(self) -> Claimed:
        return claim(self.site, self.site.run_log("test"), People(self.site.store, self.site.name))

    def start(
        self, claimed: Claimed, *, only_door: bool = False, hold_s: float | None = None, **sizing: Any
    ) -> list[Rank]:
        attempts = claimed.spending.attempts
        attempts = replace(attempts, sizing=replace(attempts.sizing, **sizing))
        task = claimed.task if hold_s is None else replace(claimed.task, hold_s=hold_s)
        door = {"account": claimed.spending.ledger.account, "attempts": asdict(attempts)}
        launches = Launches(
            self.nursery,
            task,
            self.world,
            env=SLOW,
            hooks=HOOKS,
            door={**door, "away": str(self.flag)} if only_door else door,
            away=None if only_door else str(self.flag),
        )
        return launches.ranks(task)

    def state(self) -> RunState:
        return self.site.run_log("test").state

    def wait(self, what: str, holds: Callable[[RunState], bool]) -> RunState:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            state = self.state()
            if holds(state):
                return state
            time.sleep(0.02)
        raise AssertionError(f"waited {DEADLINE_S:.0f} s for {what}: {self.state()}")

    def let_go(self, claimed: Claimed) -> None:
        released = Released(launch=claimed.task.launch, reason="failed")
        run_log(self.site.store, claimed.task).append(lambda entries: [released], at=time.time())

    def resumed(self) -> None:
        """One more launch, which nobody disturbs."""
        self.flag.unlink(missing_ok=True)
        ends = [rank.wait() for rank in self.start(self.claim())]
        assert {code for code, _ in ends} == {0}, ends

    def check(self, claimed: Claimed, same: Same) -> None:
        assert (final_digest(claimed.task), rows_bits(claimed.task)) == same.results[self.world]
        check_invariants(open_store(claimed.task.root))
        assert list(audit(open_ledger(self.site.store, "tiny", by="test").entries)) == []


@pytest.mark.parametrize(
    "only_door", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["store", "door"]
)
@pytest.mark.parametrize("world", WORLDS)
def test_held_and_gone_on(nursery: Nursery, tmp_path: Path, same: Same, world: int, only_door: bool) -> None:
    run = Held(nursery, tmp_path, world)
    claimed = run.claim()
    ranks = run.start(claimed, only_door=only_door)
    run.wait("rows", lambda state: state.rows >= 5)
    run.flag.touch()
    stood = stand_still(run)
    assert all(rank.running() for rank in ranks), [rank.wait() for rank in ranks]
    run.flag.unlink()
    ends = [rank.wait() for rank in ranks]
    assert {code for code, _ in ends} == {0}, ends
    if only_door:  # otherwise a save that cannot be written may hold it first
        assert "holding:" in ends[0][1] and "going on" in ends[0][1]
    assert stood < 40 and len(run.state().attempts) == 1
    run.check(claimed, same)


def stand_still(run: Held, *, still_s: float = 3.0) -> int:
    """Look past the fault at the store until nothing has come for so long; the last row."""
    deadline, rows, since = time.monotonic() + DEADLINE_S, -1, time.monotonic()
    while time.monotonic() < deadline:
        found = run.state().rows
        if found != rows:
            rows, since = found, time.monotonic()
        elif time.monotonic() - since >= still_s:
            return rows
        time.sleep(0.05)
    raise AssertionError("it does not hold")


@pytest.mark.parametrize("world", WORLDS)
def test_a_store_that_stays_away_loses_nothing_that_was_committed(
    nursery: Nursery, tmp_path: Path, same: Same, world: int
) -> None:
    run = Held(nursery, tmp_path, world)
    claimed = run.claim()
    ranks = run.start(claimed, hold_s=3.0)
    run.wait("a commit", lambda state: (state.committed or 0) >= 5)
    run.flag.touch()
    since = time.monotonic()
    ends = [rank.wait() for rank in ranks]
    took_s = time.monotonic() - since
    assert ends[0][0] == 6, ends
    assert all(code != 0 for code, _ in ends), ends
    assert took_s < 90.0, "held for three seconds, and ended"
    committed = run.state().committed
    run.let_go(claimed)
    run.resumed()
    second = run.state().attempts[1]
    assert second.resume is not None and second.resume.update == committed
    run.check(claimed, same)


@pytest.mark.slow  # a store that stays away is the same kind
@pytest.mark.parametrize("world", WORLDS)
def test_a_door_that_stays_silent_ends_it_with_everything_committed(
    nursery: Nursery, tmp_path: Path, same: Same, world: int
) -> None:
    run = Held(nursery, tmp_path, world)
    claimed = run.claim()
    ranks = run.start(claimed, only_door=True, hold_s=3.0)
    run.wait("rows", lambda state: state.rows >= 5)
    run.flag.touch()
    ends = [rank.wait() for rank in ranks]
    state = run.state()
    ended = state.ended
    assert ended is not None and ended.reason == "failed"
    assert (ended.detail or "").startswith("deadline: no answer about money for 3 s")
    assert state.committed == state.recorded() == state.rows, "the update in hand is saved, too"
    assert same_update(ends) == state.committed
    run.let_go(claimed)
    run.resumed()
    run.check(claimed, same)


def same_update(ends: list[tuple[int, str]]) -> int:
    """The update at which every rank says that it ended."""
    updates = {int(out.rpartition(" at update ")[2].partition(":")[0]) for _, out in ends}
    (update,) = updates
    return update


@pytest.mark.long
@pytest.mark.parametrize("nth", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_every_rank_stops_at_the_same_update(nursery: Nursery, tmp_path: Path, same: Same, nth: int) -> None:
    """covers I7: asked through the log, as a launch asks, at another moment each time"""
    run = Held(nursery, tmp_path, 2)
    claimed = run.claim()
    ranks = run.start(claimed)
    run.wait("rows", lambda state: state.rows >= 3 + 4 * nth)
    stop = StopRequested(launch=claimed.task.launch, why="paused by ada", cause="person")
    run_log(run.site.store, claimed.task).append(lambda entries: [stop], at=time.time())
    ends = [rank.wait() for rank in ranks]
    assert {code for code, _ in ends} == {4}, ends
    state = run.state()
    assert same_update(ends) == state.committed == state.rows
    assert state.ended is not None and (state.ended.reason, state.ended.cause) == ("paused", "person")
    run.let_go(claimed)
    run.resumed()
    run.check(claimed, same)


@pytest.mark.slow
def test_a_pause_ends_a_hold(nursery: Nursery, tmp_path: Path, same: Same) -> None:
    """The door is silent, the log is not: who asks for a pause meanwhile gets it."""
    run = Held(nursery, tmp_path, 2)
    claimed = run.claim()
    ranks = run.start(claimed, only_door=True)
    run.wait("rows", lambda state: state.rows >= 5)
    run.flag.touch()
    stand_still(run)
    stop = StopRequested(launch=claimed.task.launch, why="paused by ada", cause="person")
    run_log(run.site.store, claimed.task).append(lambda entries: [stop], at=time.time())
    ends = [rank.wait() for rank in ranks]
    assert {code for code, _ in ends} == {4}, ends
    state = run.state()
    assert same_update(ends) == state.committed == state.rows
    run.let_go(claimed)
    run.resumed()
    run.check(claimed, same)


def test_what_is_paid_for_ends_before_it_is_used_up(nursery: Nursery, tmp_path: Path, same: Same) -> None:
    """covers BUD-07: 16 s are paid, of which the drain has 10 before anything is measured."""
    run = Held(nursery, tmp_path, 2, wall_h="0.5", updates="400")
    claimed = run.claim()
    since = time.monotonic()
    ends = [
        rank.wait()
        for rank in run.start(
            claimed, wall_ms=6_000, setup_ms=0, window_ms=0, drain_ms=10_000, proven=True, capped=True
        )
    ]
    took_s = time.monotonic() - since
    assert {code for code, _ in ends} == {4}, ends
    state = run.state()
    assert state.ended is not None and state.ended.cause == "ceiling"
    assert same_update(ends) == state.committed == state.rows < 400
    assert took_s < 16.0
    book = open_ledger(run.site.store, "tiny", by="test").book
    (lease,) = book.open_leases()
    assert lease.time_ms == 16_000


@pytest.mark.slow
def test_a_lease_that_somebody_ends_is_heeded(nursery: Nursery, tmp_path: Path, same: Same) -> None:
    run = Held(nursery, tmp_path, 2)
    claimed = run.claim()
    ranks = run.start(claimed)
    run.wait("rows", lambda state: state.rows >= 5)
    ledger = open_ledger(run.site.store, "tiny", by="test")
    (lease,) = ledger.book.open_leases()
    ledger.decide(
        lambda book: settle_by_hand(book, lease.reserved.lease, cost=1, how="its console", person="ada"),
        at=time.time(),
    )
    ends = [rank.wait() for rank in ranks]
    # The other rank waits for rank 0 in the next update, so that rank 0 ends as a crash: a scheduler ends them all.
    assert not any(code in (0, 4) for code, _ in ends), ends
    state = run.state()
    assert state.ended is not None and (state.ended.detail or "").startswith("lease-lost:")
    assert state.rows < 40
    run.let_go(claimed)
    run.resumed()
    run.check(claimed, same)


@pytest.mark.long
def test_an_attempt_without_an_answer_does_not_begin(nursery: Nursery, tmp_path: Path, same: Same) -> None:
    run = Held(nursery, tmp_path, 2)
    claimed = run.claim()
    run.flag.touch()
    ends = [rank.wait() for rank in run.start(claimed, only_door=True, hold_s=1.0)]
    assert ends[0][0] == 6, ends
    assert run.state().attempts == () and run.state().commits == ()
    run.let_go(claimed)
    run.resumed()
    run.check(claimed, same)
