"""The money of one launch on a local store, without Ray: what refuses it, and what it writes.

covers I6 I13, BUD-01 BUD-03 BUD-08 BUD-09 BUD-25 BUD-26 BUD-34, APPR-15 APPR-16, RAY-05, GOLD-16
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plainrun import state_of, write_job

from raykit.budget import acts as money
from raykit.budget.acts import settle_by_hand
from raykit.budget.amounts import micros, plain, worst_of
from raykit.budget.audit import audit
from raykit.budget.book import Book
from raykit.budget.lines import next_attempt
from raykit.cli.main import main
from raykit.errors import (
    ApprovalError,
    BudgetError,
    CancelledError,
    FleetPaused,
    GateError,
    RaykitError,
    ReplanError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.fleet import door as door_module
from raykit.fleet import purse as purse_module
from raykit.fleet import spending as spending_module
from raykit.fleet.claim import Claimed, claim
from raykit.fleet.door import StoreDoor
from raykit.fleet.purse import Purse
from raykit.fleet.run_loop import BACKSTOP_S
from raykit.fleet.site import Site, make_ready, site_of
from raykit.fleet.spending import Approving, draft_of, require_spendable
from raykit.fleet.supervisor import _Launch
from raykit.records import AttemptStarted, GateResult, Launched, Place, Rated, Record, Released
from raykit.store import people
from raykit.store.accounts import open_ledger
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.log import RunLog
from raykit.store.people import People, read_acts
from raykit.store.place import this_place

ADA = "ada"
MONOTONIC = time.monotonic
GONE = subprocess.Popen([sys.executable, "-c", ""])
GONE.wait()


def usd(text: str | float) -> int:
    return micros(text, field="test")


class Desk:
    """A root, and plans in it that cost money."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "store"

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root)

    def site(
        self,
        *,
        rate: float = 2.0,
        ceiling: float = 4.0,
        job: str = "job",
        replaced: tuple[tuple[str, str], ...] = (),
        **edits: str,
    ) -> Site:
        """A plan with a price: a quarter of an hour of work, three attempts. `replaced` are words of it."""
        plan = write_job(self.folder / job, {"wall_h": "0.25", **edits})
        text = plan.read_text().replace("ceiling_usd = 1.0", f"ceiling_usd = {ceiling}\nmargin = 1.1")
        for old, new in replaced:
            assert old in text, old
            text = text.replace(old, new)
        price = f'usd_per_hour = {{ rate = {rate}, source = "a test", billed = "resource" }}'
        plan.write_text(f"{text}\n[pools.train]\ngpus = 0\n{price}\n")
        return site_of(plan, str(self.root))

    def ledger(self, name: str = "tiny") -> Ledger:
        ledger = open_ledger(self.store, name, by="test")
        assert list(audit(ledger.entries)) == []
        return ledger

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def log_of(site: Site) -> RunLog:
    return site.run_log("test")


def check(site: Site, approved: Approving | None = None) -> None:
    require_spendable(site, make_ready(site).lock, log_of(site), read_acts(site.store, site.name), approved)


def take(site: Site, approved: Approving | None = None) -> Claimed:
    return claim(site, log_of(site), People(site.store, site.name), approved)


def purse_of(site: Site, claimed: Claimed) -> Purse:
    purse = Purse(site, claimed.task, claimed.spending)
    purse.reserve()
    return purse


def door_of(site: Site, claimed: Claimed) -> StoreDoor:
    """The door as a worker of this launch asks at it."""
    spending = claimed.spending
    return StoreDoor(
        site.store,
        spending.ledger.account,
        spending.attempts,
        by="a worker",
        hold_s=1.0,
        clock=lambda: door_module.time.time(),
    )


def says(site: Site, *events: Record, at: float | None = None) -> None:
    log_of(site).append(lambda entries: list(events), at=time.time() if at is None else at)


def let_go(site: Site, claimed: Claimed, *, at: float | None = None) -> None:
    says(site, Released(launch=claimed.task.launch, reason="paused"), at=at)


def ada(amount: float) -> Approving:
    return Approving(amount=usd(amount), person=ADA, scripted=False)


# --- looking writes nothing ---------------------------------------------------------------------------------


def test_a_draft_writes_nothing(desk: Desk) -> None:
    site = desk.site()
    book = draft_of(site, make_ready(site).lock, log_of(site))
    check(site)
    assert sum(line.planned for line in book.allocations["tiny"].lines.values()) == usd(4)
    assert not desk.root.exists() or desk.files() == set()


def test_a_refusal_writes_nothing(desk: Desk) -> None:
    site = desk.site(ceiling=100.0, wall_h="10")
    with pytest.raises(ApprovalError):
        take(site)
    assert not desk.root.exists() or desk.files() == set()


def test_a_draft_of_a_ledger_that_is_there_leaves_it_as_it_is(desk: Desk) -> None:
    site = desk.site()
    claimed = take(site)
    purse_of(site, claimed)
    says(site, Released(launch=claimed.task.launch, reason="killed"))
    before = desk.files()
    check(site)
    book = draft_of(site, make_ready(site).lock, log_of(site))
    assert desk.files() == before
    assert desk.ledger().book.reserved >= book.reserved


# --- approvals ----------------------------------------------------------------------------------------------


def worst_of_one(site: Site) -> int:
    """What one attempt of this plan reserves."""
    book = draft_of(site, make_ready(site).lock, log_of(site))
    return book.allocations[site.name].lines["train"].planned


# One attempt of 0.5 h + 150 s at a margin of 1.1: 5.00 is 8.3916... an hour.
@pytest.mark.parametrize(("rate", "free"), [(8.39, True), (8.392, False)])
def test_five_dollars_need_an_approval_and_less_does_not(desk: Desk, rate: float, free: bool) -> None:
    """covers BUD-01 BUD-08"""
    site = desk.site(rate=rate, ceiling=20.0, wall_h="0.5", attempts="1")
    worst = worst_of_one(site)
    assert (worst < usd(5)) is free
    if free:
        check(site)
        return
    with pytest.raises(ApprovalError, match=r"from 5\.00 on"):
        check(site)


def test_it_is_the_sum_over_the_life_of_the_account_that_counts(desk: Desk) -> None:
    """covers BUD-03 GOLD-15: what a failed attempt has cost is in it."""
    site = desk.site(rate=4.0, ceiling=20.0, wall_h="0.5")
    let_go(site, claimed := take(site))
    worst = worst_of(next_attempt(desk.ledger().book.allocations["tiny"], claimed.spending.sizing))
    charge = ["budget", "charge", "tiny", "recovery", "--by", ADA, "--root", str(desk.root)]
    assert main([*charge, plain(usd(5) - worst - 1), "--how", "a failed attempt"]) == 0
    check(site)
    assert main([*charge, "0.000001", "--how", "its last minute"]) == 0
    with pytest.raises(ApprovalError):
        check(site)


def test_approve_lets_it_start_and_is_recorded_once(desk: Desk) -> None:
    site = desk.site(rate=36.0, ceiling=60.0)
    with pytest.raises(ApprovalError) as refused:
        check(site)
    assert "raykit approve plan tiny 60.00" in (refused.value.remedy or "")
    check(site, ada(60))
    assert not desk.root.exists() or desk.files() == set()
    claimed = take(site, ada(60))
    purse_of(site, claimed)
    (approved,) = desk.ledger().book.approvals.values()
    assert (approved.covers, approved.person, approved.scripted) == (usd(60), ADA, False)
    let_go(site, claimed)
    entries = len(desk.ledger().entries)
    check(site)
    take(site, ada(60))
    events = [event for entry in desk.ledger().entries[entries:] for event in entry.events]
    assert not any(event.event == "approved" for event in events)


@pytest.mark.parametrize(("amount", "error"), [(60.01, ApprovalError), (11.0, BudgetError)])
def test_an_approval_of_the_wrong_amount(desk: Desk, amount: float, error: type[RaykitError]) -> None:
    site = desk.site(rate=36.0, ceiling=60.0)
    with pytest.raises(error):
        take(site, ada(amount))
    assert not desk.root.exists() or desk.files() == set(), "refused, and not recorded either"


CONSEQUENTIAL = {
    "decision": {"replaced": (("Does the test pass?", "Does it?"),)},
    "params": {"params": "{ width = 17 }"},
    "worthwhile": {"replaced": (("worthwhile = 0.01", "worthwhile = 0.02"),)},
    "success": {"replaced": (("it runs", "it runs well"),)},
    "select": {"select": '"max development.ratio"'},
    "updates": {"updates": "21"},
}


@pytest.mark.parametrize("what", sorted(CONSEQUENTIAL))
def test_an_approval_does_not_cover_a_changed_plan(desk: Desk, what: str) -> None:
    """covers APPR-15: nor does calling it by the same name"""
    site = desk.site(rate=36.0, ceiling=60.0)
    let_go(site, take(site, ada(60)))
    check(site)
    changed = desk.site(rate=36.0, ceiling=60.0, **CONSEQUENTIAL[what])  # type: ignore[arg-type]
    with pytest.raises(ApprovalError):
        check(changed)


COSMETIC = {
    "tags": {"replaced": (('name     = "tiny"', 'name     = "tiny"\ntags = ["night"]'),)},
    "curves": {"curves": '{ every = 7, smooth = "ema 0.9" }'},
    "checkpoints": {"checkpoint_every": "4"},
    "a wish": {"replaced": (("Look at the code.", "Look at the data."),)},
}


@pytest.mark.parametrize("what", sorted(COSMETIC))
def test_an_approval_covers_what_changes_nothing(desk: Desk, what: str) -> None:
    site = desk.site(rate=36.0, ceiling=60.0)
    let_go(site, take(site, ada(60)))
    check(desk.site(rate=36.0, ceiling=60.0, **COSMETIC[what]))  # type: ignore[arg-type]


def replan(desk: Desk, ceiling: float, **rates: int) -> None:
    def decide(book: Book) -> Record | None:
        known = book.allocations["tiny"]
        lines = money.moved(known, [], ceiling=usd(ceiling))
        return money.replan(
            book, "tiny", lines, ceiling=usd(ceiling), rates=rates, reason="a test", person=ADA
        )

    desk.ledger().decide(decide, at=time.time())


def test_a_replanned_ceiling_needs_its_own_approval(desk: Desk) -> None:
    site = desk.site(rate=36.0, ceiling=60.0)
    let_go(site, take(site, ada(60)))
    replan(desk, 80)
    with pytest.raises(ApprovalError):
        check(site)
    check(site, ada(80))


@pytest.mark.parametrize("ceiling", [59.0, 61.0])
def test_an_edited_ceiling_moves_no_money(desk: Desk, ceiling: float) -> None:
    let_go(*(site := desk.site(), take(site)))
    before = desk.files()
    with pytest.raises(ReplanError) as refused:
        check(desk.site(ceiling=ceiling))
    assert f"raykit budget replan tiny --ceiling {ceiling:.2f}" in (refused.value.remedy or "")
    with pytest.raises(ReplanError):
        take(desk.site(ceiling=ceiling))
    assert desk.files() == before


def test_after_a_replan_the_plan_may_say_either_ceiling(desk: Desk) -> None:
    let_go(*(site := desk.site(), take(site)))
    replan(desk, 4.5)
    check(desk.site(ceiling=4.0))
    check(desk.site(ceiling=4.5))
    with pytest.raises(ReplanError):
        check(desk.site(ceiling=4.4))


# --- rates --------------------------------------------------------------------------------------------------


def rate(desk: Desk, amount: float) -> None:
    event = Rated(pool="train", rate=usd(amount), source="invoice", on="2026-11-01", person=ADA)
    desk.ledger().decide(lambda book: event, at=time.time())


def test_a_rise_within_the_margin_is_paid_by_the_margin(desk: Desk) -> None:
    site = desk.site(rate=2.0)
    let_go(site, take(site))
    rate(desk, 2.2)
    check(site)
    purse_of(site, claimed := take(site))
    (lease,) = desk.ledger().book.open_leases()
    assert lease.reserved.lease == f"{claimed.task.launch}-1"
    assert lease.reserved.terms.rate == usd(2.2) and "invoice, 2026-11-01" in lease.reserved.terms.source
    assert lease.worst <= desk.ledger().book.allocations["tiny"].lines["train"].planned


def test_a_fall_makes_it_cheaper(desk: Desk) -> None:
    site = desk.site(rate=2.0)
    let_go(site, take(site))
    rate(desk, 1.0)
    purse_of(site, take(site))
    (lease,) = desk.ledger().book.open_leases()
    assert lease.reserved.terms.rate == usd(1) and lease.reserved.terms.margin_permille == 1100


def test_a_rise_beyond_the_margin_needs_a_replan(desk: Desk) -> None:
    """covers APPR-16"""
    site = desk.site(rate=2.0)
    let_go(site, take(site))
    rate(desk, 2.21)
    with pytest.raises(ReplanError) as refused:
        check(site)
    assert refused.value.remedy == "raykit budget replan tiny --reason ... --by NAME"
    assert (
        main(["budget", "replan", "tiny", "--by", ADA, "--reason", "dearer", "--root", str(desk.root)]) == 0
    )
    check(site)


# --- what dead launches have left ---------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def place_of(pid: int) -> Place:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return this_place().model_copy(update={"pid": pid, "started": int(fields[19])})


def dead_place() -> Place:
    return this_place().model_copy(update={"pid": GONE.pid, "started": 1})


def move(desk: Desk, source: str, target: str, amount: float) -> None:
    command = ["budget", "replan", "tiny", "--move", f"{source}:{target}={amount}", "--by", ADA]
    assert main([*command, "--reason", "a test", "--root", str(desk.root)]) == 0


def begun(desk: Desk, place: Place, *, ago_s: float = 60.0, spare: float = 1.0) -> tuple[Site, str]:
    """A launch that holds the run from `place` and has reserved its first attempt `ago_s` ago; its lease."""
    site = desk.site()
    claimed = take(site)
    launch = claimed.task.launch
    began = time.time() - ago_s
    says(site, Released(launch=launch, reason="paused"))
    if spare:
        move(desk, "recovery", "train", spare)
    other = replace(claimed.task, launch="0123456789ab")
    says(site, Launched(launch=other.launch, place=place, lease_s=60.0, raykit="0"), at=began)
    spending = claimed.spending
    door = StoreDoor(
        site.store, spending.ledger.account, spending.attempts, by="test", hold_s=1.0, clock=lambda: began
    )
    return site, door.begin(other.launch, 1).lease


def test_a_killed_launch_is_charged_until_that_was_seen(desk: Desk) -> None:
    site, lease = begun(desk, dead_place())
    assert desk.ledger().book.leases[lease].open
    take(site)
    held = desk.ledger().book.leases[lease]
    assert held.reason == "killed" and 59_000 < (held.held_ms or 0) < 120_000
    assert 0 < held.charged < held.worst


def test_long_after_its_end_it_is_charged_its_worst_case_and_no_more(desk: Desk) -> None:
    site, lease = begun(desk, dead_place(), ago_s=30 * 24 * 3600.0)
    held = draft_of(site, make_ready(site).lock, log_of(site)).leases[lease]
    assert held.reason == "killed" and held.charged == held.worst


def test_one_that_had_let_go_is_charged_until_then(desk: Desk) -> None:
    site, lease = begun(desk, dead_place(), ago_s=600.0)
    says(site, Released(launch="0123456789ab", reason="paused"), at=time.time() - 570.0)
    take(site)
    held = desk.ledger().book.leases[lease]
    assert held.held_ms == pytest.approx(30_000, abs=1000)


def test_one_that_has_let_go_and_is_still_there_settles_itself(
    desk: Desk, sleeper: subprocess.Popen[bytes]
) -> None:
    """It gives back what it holds after it has let go of the run: until then its time is its own to measure."""
    site, lease = begun(desk, place_of(sleeper.pid))
    says(site, Released(launch="0123456789ab", reason="paused"))
    take(site)
    assert desk.ledger().book.leases[lease].open


ELSEWHERE = {"host": {"host": "node-17"}, "boot": {"boot": "another boot of this machine"}}


@pytest.mark.parametrize("how", sorted(ELSEWHERE))
def test_one_on_another_machine_stays_charged_in_full_until_a_person_knows(desk: Desk, how: str) -> None:
    """covers I13 RAY-05"""
    place = this_place().model_copy(update=ELSEWHERE[how])
    site, lease = begun(desk, place, ago_s=3600.0)
    take(site)  # its lease of the run is over: it may be taken, and what it costs is still not known
    ledger = desk.ledger()
    held = ledger.book.leases[lease]
    assert held.open and held.charged == held.worst
    command = ["budget", "settle", lease, "--cost", "0.10", "--how", "its console", "--by", ADA]
    assert main([*command, "--root", str(desk.root)]) == 0
    held = desk.ledger().book.leases[lease]
    assert not held.open and held.charged == usd("0.10")


def test_a_stopped_process_has_not_ended(desk: Desk, sleeper: subprocess.Popen[bytes]) -> None:
    place = place_of(sleeper.pid)
    site, lease = begun(desk, place)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    check(site)  # it is not at work, so that the run may be taken from it; it may go on, and costs
    take(site)
    assert desk.ledger().book.leases[lease].open
    says(site, Released(launch=state_launch(site), reason="killed"))
    sleeper.kill()
    sleeper.wait()
    take(site)
    assert desk.ledger().book.leases[lease].reason == "killed"


def state_launch(site: Site) -> str:
    launched = log_of(site).state.launched
    assert launched is not None
    return launched.launch


def test_leases_that_are_open_leave_less_for_the_next(desk: Desk) -> None:
    """covers RAY-05: an outcome that nobody knows is charged in full, and the next launch has what is left."""
    place = this_place().model_copy(update={"host": "node-17"})
    site, lease = begun(desk, place, ago_s=3600.0, spare=0.0)
    with pytest.raises(BudgetError):
        check(site)
    desk.ledger().decide(
        lambda book: settle_by_hand(book, lease, cost=usd("0.05"), how="its console", person=ADA),
        at=time.time(),
    )
    check(site)


# --- a clock that is moved ----------------------------------------------------------------------------------


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock on the wall, as the fleet sees it."""
    moved = [0.0]
    true = time.time
    for module in (purse_module, door_module, spending_module):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(time=lambda: true() + moved[0], monotonic=MONOTONIC)
        )

    def move_clock(seconds: float) -> None:
        moved[0] += seconds

    return move_clock


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_launch_measures_its_time_by_a_clock_that_nobody_moves(
    desk: Desk, jump: Callable[[float], None], seconds: float
) -> None:
    site = desk.site()
    claimed = take(site)
    purse = purse_of(site, claimed)
    left_s = purse.left_s(1)
    jump(seconds)
    assert purse.left_s(1) == pytest.approx(left_s, abs=10)
    cost = purse.settle(reason="paused", attempts=1, wall_ms=0)
    assert cost < usd("0.01"), "a few seconds, not an hour"
    desk.ledger()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_so_it_does_for_an_attempt_that_a_worker_has_asked_for(
    desk: Desk, jump: Callable[[float], None], seconds: float
) -> None:
    site = desk.site()
    claimed = take(site)
    purse, door = purse_of(site, claimed), door_of(site, claimed)
    second = door.begin(claimed.task.launch, 2)
    assert purse.left_s(2) == pytest.approx(second.left_ms / 1000, abs=10)
    jump(seconds)
    purse.settle(reason="paused", attempts=2, wall_ms=0)
    held = desk.ledger().book.leases[second.lease]
    assert (held.held_ms or 0) < 30_000 and held.charged < usd("0.02")


def test_a_lost_gang_never_costs_more_than_its_worst_case(desk: Desk, jump: Callable[[float], None]) -> None:
    site = desk.site(rate=0.5, wall_h="2")
    claimed = take(site)
    purse, door = purse_of(site, claimed), door_of(site, claimed)
    jump(3600.0)
    door.begin(claimed.task.launch, 2)
    first, second = (desk.ledger().book.leases[f"{claimed.task.launch}-{n}"] for n in (1, 2))
    assert first.held_ms == pytest.approx(3_600_000, abs=60_000) and first.charged < first.worst
    assert second.open
    jump(-3600.0)
    purse.settle(reason="killed", attempts=1, wall_ms=None)  # nobody has seen the second begin
    held = desk.ledger().book.leases[second.reserved.lease]
    assert held.held_ms == held.time_ms and held.charged <= held.worst


def test_a_lost_gang_whose_start_lies_in_the_future_has_had_all_of_its_time(
    desk: Desk, jump: Callable[[float], None]
) -> None:
    site = desk.site(rate=0.5, wall_h="2")
    claimed = take(site)
    purse, door = purse_of(site, claimed), door_of(site, claimed)
    entries = len(desk.ledger().entries)
    jump(-3600.0)
    with pytest.raises(BudgetError, match="productive time"):
        door.begin(claimed.task.launch, 2)
    assert len(desk.ledger().entries) == entries
    assert purse.settle(reason="paused", attempts=1, wall_ms=0) < usd("0.01")
    check(site)


def test_a_clock_that_is_set_back_gives_nobody_more_time(desk: Desk, jump: Callable[[float], None]) -> None:
    site = desk.site()
    claimed = take(site)
    door = door_of(site, claimed)
    left_ms = door.begin(claimed.task.launch, 1).left_ms
    jump(-3600.0)
    assert door.begin(claimed.task.launch, 1).left_ms <= left_ms + 10_000
    jump(2 * 3600.0)
    assert door.begin(claimed.task.launch, 1).left_ms == 0


def test_a_dead_launch_from_the_future_is_charged_all_of_its_time(desk: Desk) -> None:
    site, lease = begun(desk, dead_place(), ago_s=-3600.0)
    held = draft_of(site, make_ready(site).lock, log_of(site)).leases[lease]
    assert held.reason == "killed" and held.held_ms == held.time_ms


# --- last words that are lost -------------------------------------------------------------------------------


class Lossy:
    """A store that loses replies: the write whose bytes hold `word` is there, and nobody is told."""

    def __init__(self, inner: LocalStore, word: bytes) -> None:
        self._inner = inner
        self._word = word
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_new(self, key: str, data: Any) -> Any:
        stored = self._inner.put_new(key, data)
        if not self.lost and isinstance(data, bytes) and self._word in data:
            self.lost += 1
            raise UnknownOutcomeError("the reply was lost")
        return stored


def launching(site: Site, monkeypatch: pytest.MonkeyPatch) -> _Launch:
    """A launch that owns its run, with no Ray behind it."""
    monkeypatch.setattr(_Launch, "_start_ray", lambda self: None)
    log, persons = log_of(site), People(site.store, site.name)
    return _Launch(site, claim(site, log, persons), log, persons, lambda glimpse: None, lambda line: None)


def test_a_launch_whose_last_word_is_there_though_nobody_said_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = desk.site()
    site = replace(site, store=Lossy(desk.store, b'"released"'))  # type: ignore[arg-type]
    launch = launching(site, monkeypatch)
    launch._signals.come = "SIGTERM"
    outcome = launch.run()
    assert site.store.lost == 1  # type: ignore[attr-defined]
    assert (outcome.reason, outcome.exit_code) == ("paused", 4)
    assert desk.ledger().book.reserved == 0
    check(site)


def test_a_lost_reply_to_the_last_settlement_is_settled_by_the_next_launch(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = desk.site()
    site = replace(site, store=Lossy(desk.store, b'"settled"'))  # type: ignore[arg-type]
    launch = launching(site, monkeypatch)
    launch._signals.come = "SIGTERM"
    outcome = launch.run()
    assert outcome.cost is None and outcome.exit_code == 4
    let_go(desk.site(), take(desk.site()))
    settled = [event for entry in desk.ledger().entries for event in entry.events if event.event == "settled"]
    assert len(settled) == 1 and desk.ledger().book.reserved == 0


def test_a_store_that_is_away_is_waited_for_no_longer_than_is_paid(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """covers I6 I9: nobody can be told that the money is at its end, and it is at its end all the same."""
    launch = launching(desk.site(), monkeypatch)

    def away(*_: object) -> None:
        raise StoreUnavailableError("no route to the store")

    began = time.monotonic()
    purse = launch._loop.purse
    purse.reserve()
    purse._until = time.monotonic() + BACKSTOP_S + 1.0
    monkeypatch.setattr(purse, "reserve", lambda: None)
    monkeypatch.setattr(launch._log, "refresh", away)
    with pytest.raises(StoreUnavailableError, match="no route"):
        launch.run()
    assert 0.5 < time.monotonic() - began < 30.0, "not the five minutes that it holds otherwise"


# --- failed checks ------------------------------------------------------------------------------------------


def fails(site: Site, gate: str, attempt: int, *, passed: bool = False) -> None:
    task = take(site).task
    started = AttemptStarted(
        attempt=attempt,
        launch=task.launch,
        place=this_place(),
        world_size=1,
        facts={},
        plan=task.plan,
        code=task.code,
        data=task.data,
    )
    result = GateResult(
        gate=gate, passed=passed, found="the loss is not finite", key="0" * 64, scope="a test", took_s=0.1
    )
    says(site, started, result, Released(launch=task.launch, reason="failed"))


@pytest.mark.parametrize("gate", ["first", "resume"])
def test_a_failed_check_blocks_until_a_repair_is_recorded(desk: Desk, gate: str) -> None:
    """covers BUD-25 BUD-26 BUD-34"""
    site = desk.site()
    fails(site, gate, 1)
    before = desk.files()
    with pytest.raises(GateError, match=gate) as refused:
        take(site)
    assert "--repair" in (refused.value.remedy or "")
    assert desk.files() == before, "and its money stays reserved for what it was reserved for"
    people.repair(site.store, "tiny", what="divided by the count", attempt=1, person=ADA, at=time.time())
    check(site)


def test_a_later_failure_needs_a_repair_of_its_own(desk: Desk) -> None:
    site = desk.site()
    fails(site, "first", 1)
    people.repair(site.store, "tiny", what="one thing", attempt=1, person=ADA, at=time.time())
    fails(site, "first", 2)
    with pytest.raises(GateError):
        check(site)
    people.repair(site.store, "tiny", what="one thing", attempt=1, person=ADA, at=time.time())
    with pytest.raises(GateError):
        check(site)
    people.repair(site.store, "tiny", what="another", attempt=2, person=ADA, at=time.time())
    check(site)


def test_a_check_that_passes_again_is_passed(desk: Desk) -> None:
    site = desk.site()
    fails(site, "first", 1)
    people.repair(site.store, "tiny", what="one thing", attempt=1, person=ADA, at=time.time())
    fails(site, "first", 2, passed=True)
    check(site)


def test_repair_without_a_failure_or_a_person(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    site = desk.site()
    let_go(site, take(site))
    plan = str(desk.folder / "job" / "plan.toml")
    root = ["--root", str(desk.root)]
    before = desk.files()
    assert main(["launch", plan, "--repair", "x", "--by", ADA, *root]) == 3
    assert "no check of tiny has failed" in capsys.readouterr().err
    assert main(["launch", plan, "--repair", "x", *root]) in (2, 3)
    assert desk.files() == before


# --- people -------------------------------------------------------------------------------------------------


def test_a_pause_and_a_cancel_refuse_before_anything_is_written(desk: Desk) -> None:
    site = desk.site()
    let_go(site, take(site))
    people.pause(site.store, "all", reason="maintenance", person=ADA, at=time.time())
    before = desk.files()
    with pytest.raises(FleetPaused, match="maintenance"):
        take(site)
    with pytest.raises(FleetPaused):
        check(site)
    assert desk.files() == before
    people.cancel(site.store, "tiny", reason="no use", person=ADA, at=time.time())
    with pytest.raises(CancelledError, match="no use"):
        take(site)


# --- related work -------------------------------------------------------------------------------------------


def other(desk: Desk, **options: Any) -> Site:
    return desk.site(job="other", replaced=(('name     = "tiny"', 'name     = "other"'),), **options)


def spend(desk: Desk, site: Site, cost: float) -> None:
    purse_of(site, claimed := take(site))
    lease = f"{claimed.task.launch}-1"
    desk.ledger().decide(
        lambda book: settle_by_hand(book, lease, cost=usd(cost), how="a test", person=ADA), at=time.time()
    )
    let_go(site, claimed)


def test_a_new_name_does_not_buy_a_new_ceiling(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """covers GOLD-16 BUD-09: "a" has spent 3.00, and "b", which is related, asks for 2.00."""
    spend(desk, desk.site(rate=10.0, ceiling=9.0), 3.0)
    # 2.00 = 612.xx s at 10.00 an hour with a margin of 1.1: 0.139 h and 150 s of overhead.
    second = other(desk, rate=10.0, ceiling=9.0, wall_h="0.1404", attempts="1")
    assert worst_of_one(second) == pytest.approx(usd(2), abs=usd("0.01"))
    assert worst_of_one(second) >= usd(2)
    before = desk.files()
    with pytest.raises((ApprovalError, BudgetError)) as refused:
        check(second)
    assert "5.0" in str(refused.value)
    code = main(["launch", str(desk.folder / "other" / "plan.toml"), "--root", str(desk.root)])
    assert code == refused.value.exit_code
    assert "5.0" in capsys.readouterr().err
    assert desk.files() == before
    check(other(desk, rate=10.0, ceiling=9.0, wall_h="0.1"))


def test_it_is_one_account_by_its_decision_or_by_its_data(desk: Desk) -> None:
    let_go(*(site := desk.site(), take(site)))
    by_decision = other(desk, params="{ width = 17 }")
    take(by_decision)
    assert desk.ledger("other").account == "tiny"
    third = desk.site(
        job="third",
        replaced=(('name     = "tiny"', 'name     = "third"'), ("Does the test pass?", "Another one?")),
    )
    take(third)
    assert desk.ledger("third").account == "tiny"
    fourth = desk.site(
        job="fourth",
        params="{ width = 18 }",
        replaced=(('name     = "tiny"', 'name     = "fourth"'), ("Does the test pass?", "Quite another?")),
    )
    take(fourth)
    assert desk.ledger("fourth").account == "fourth"


def test_an_account_that_is_named_does_not_part_related_work(desk: Desk) -> None:
    let_go(*(site := desk.site(), take(site)))
    named = desk.site(
        job="other",
        replaced=(
            ('name     = "tiny"', 'name     = "other"'),
            ("ceiling_usd", 'account = "fresh"\nceiling_usd'),
        ),
    )
    before = desk.files()
    with pytest.raises(ApprovalError, match="belongs to account tiny"):
        take(named)
    assert desk.files() == before


# --- accelerator-hours --------------------------------------------------------------------------------------


def hours(desk: Desk, granted: str, **edits: str) -> Site:
    plan = write_job(desk.folder / "hours", {"wall_h": "1.0", "attempts": "1", **edits})
    text = plan.read_text().replace("ceiling_usd = 1.0", f"accelerator_hours = {granted}")
    plan.write_text(f"{text}\n[pools.train]\ngpus = 0\n")
    return site_of(plan, str(desk.root))


def test_accelerator_hours_are_counted_in_hours(desk: Desk) -> None:
    site = hours(desk, "4")
    with pytest.raises(ApprovalError):
        check(site)
    purse_of(site, take(site, ada(4)))
    book = desk.ledger().book
    (lease,) = book.open_leases()
    assert book.unit == "accelerator-hours" and lease.reserved.terms.rate == usd(1)
    assert usd(1) < lease.worst < usd("1.1")


def test_hours_and_dollars_are_not_one_account(desk: Desk) -> None:
    site = hours(desk, "4")
    let_go(site, take(site, ada(4)))
    with pytest.raises(RaykitError) as refused:
        take(desk.site(replaced=(('name     = "tiny"', 'name     = "other"'),)))
    assert refused.value.exit_code in (2, 3)


# --- this machine's own processors --------------------------------------------------------------------------


def test_work_that_costs_nothing_is_reserved_too(tmp_path: Path) -> None:
    plan = write_job(tmp_path / "job")
    site = site_of(plan, str(tmp_path / "store"))
    claimed = take(site)
    purse = purse_of(site, claimed)
    desk = Desk(tmp_path)
    assert [lease.worst for lease in desk.ledger().book.open_leases()] == [0]
    let_go(site, claimed)
    assert purse.settle(reason="paused", attempts=1, wall_ms=0) == 0
    assert desk.ledger().book.reserved == 0 and not state_of(claimed.task).completed
