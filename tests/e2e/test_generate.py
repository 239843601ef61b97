"""`raykit generate`: real workers on a local Ray, killed, hung, paused, refused; and what the set is worth afterwards.

covers GEN-01 GEN-04 GEN-05 GEN-06 GEN-07 GEN-12 GEN-13 GEN-14 GEN-15 GEN-16 FLEET-01 FLEET-02 FLEET-03 FLEET-04
FLEET-06 FLEET-07 FLEET-08 DISP-03 DISP-13 DISP-14 DISP-15, F15 F16 F21 F25 F26 F27 F28, I3 I6 I10 I11 I13 I14
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import genray
import psutil
import pytest
from genray import HOUR_USD, USD, behave, edit, toys, undisturbed
from makegen import start
from nursery import Nursery
from raylaunch import Launching, kill, raykit

from raykit.cli.main import main
from raykit.errors import ApprovalError, BudgetError, FleetPaused, GateError, PlanError
from raykit.fleet.budget_actor import Seat, Teller, open_seat
from raykit.fleet.generate.run import SetOutcome, generate
from raykit.fleet.pool.lease import Price
from raykit.fleet.session import LocalRay, start_local
from raykit.records import CandidateRejected, Claim, Rows
from raykit.shards.units import unit_id
from raykit.store import layout, open_store
from raykit.store.candidates import act, read_candidate_registry
from raykit.store.people import cancel, pause, read_acts, resume
from raykit.store.place import gone
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def approved(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run whose checkpoint is approved for generation."""
    return genray.trained(tmp_path_factory.mktemp("approved"), nursery)


@pytest.fixture
def root(approved: Path, tmp_path: Path) -> Path:
    """A copy of it, with its plan."""
    shutil.copytree(approved.parent, tmp_path / "run")
    return tmp_path / "run" / "store"


def never(line: str) -> None:
    raise AssertionError(line)


def until(what: str, holds: Callable[[], Any], running: Launching | None = None) -> Any:
    """Wait until something holds, and return it."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if found := holds():
            return found
        assert running is None or running.process.poll() is None, running and running.end()
        time.sleep(0.05)
    raise AssertionError(what)


# --- a whole launch -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(approved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a set that was made although two workers and then the launch itself were killed."""
    folder = tmp_path_factory.mktemp("made") / "run"
    shutil.copytree(approved.parent, folder)
    root = folder / "store"
    behave(root, sleep_s=0.2)
    running = genray.launch(root, "--workers", "2")
    for at in (3, 7):
        until("units", lambda at=at: len(genray.published(root)) >= at, running)
        kill(until("a unit in hand", lambda: living(genray.in_hand(root)), running)[0].place.pid)
    until("more units", lambda: len(genray.published(root)) >= 10, running)
    kill(running.process.pid)
    running.end()
    behave(root)
    (folder / "published.json").write_text(json.dumps(genray.published(root)))
    (folder / "before.json").write_text(json.dumps(genray.listing(root)))
    code, out, err = genray.launch(root, "--workers", "2").end()
    assert code == 0, err
    assert "60 requested, 60 produced, 0 filtered, 0 failed" in out
    return root


def living(claims: list[Claim]) -> list[Claim]:
    return [claim for claim in claims if gone(claim.place) is False]


def test_killed_workers_and_a_killed_launch_change_no_byte_of_the_set(made: Path) -> None:
    """F15 GEN-12 GEN-15 FLEET-06 I3 I10: what was published stays, what was in hand is made again, and the manifest is
    the undisturbed one."""
    store, shards = open_store(str(made)), genray.shards_of(made)
    assert genray.manifest_bytes(made) == genray.alone(made)
    failed = [failure for each in genray.failures(made).values() for failure in each]
    assert {failure.kind for failure in failed} == {"lost"}
    assert 2 <= len(failed) <= 4  # two workers, and whatever the two had in hand when the launch went
    claims = [claim.request for claim in shards.claims()]
    kept = json.loads((made.parent / "published.json").read_text())
    assert all(
        claims.count(unit_id(shards.digest, unit)) == 1 + len(genray.failures(made).get(unit, ()))
        for unit in kept
    )
    before, after = json.loads((made.parent / "before.json").read_text()), genray.listing(made)
    assert [key for key, size in before.items() if after.get(key) != size and not is_derived(key)] == []
    reserved, settled = genray.leases(made)
    assert reserved == set(settled)  # also of a worker that was killed before it had claimed anything
    acts = read_acts(store, "tiny")
    assert [event.manifest for event in acts.generated.values()] == [shards.manifest().digest]
    assert len(acts.contracted["points"]) == len(acts.canaries) == 1
    (candidate,) = read_candidate_registry(store).candidates.values()
    assert [event.kind for _, event in candidate.dependents] == ["target-set"]
    check_invariants(store)


def is_derived(key: str) -> bool:
    """A snapshot: replaced at any time, and believed by nobody."""
    return key.endswith(("log-snapshot.jsonl", "published.parquet"))


def test_a_complete_set_is_left_alone(made: Path) -> None:
    """DISP-03 I11: nothing is written, and no Ray is started."""
    before = genray.listing(made)
    outcome = generate(genray.plan_of(made), str(made), say=never)
    assert (outcome.exit_code, outcome.why) == (0, None)
    assert outcome.sets["points"] == SetOutcome(
        manifest=genray.shards_of(made).manifest().digest,
        rows=Rows(requested=60, produced=60, filtered=0, failed=0),
    )
    assert genray.listing(made) == before


def test_a_set_is_closed_by_the_next_launch_if_one_was_killed_before_it_had_told(
    made: Path, tmp_path: Path
) -> None:
    """The manifest is there, and nobody was told: no unit is made, and everyone hears of it."""
    root = Path(shutil.copytree(made.parent, tmp_path / "run")) / "store"
    log = root / "experiments" / "tiny" / "log"
    newest = sorted(log.iterdir())[-1]
    assert b'"generated"' in newest.read_bytes()
    newest.unlink()
    log.with_name("log-snapshot.jsonl").unlink()
    outcome = generate(genray.plan_of(root), str(root), say=never)
    assert (outcome.exit_code, outcome.sets["points"].new) == (0, False)
    assert len(read_acts(open_store(str(root)), "tiny").generated) == 1
    check_invariants(open_store(str(root)))


def test_another_contract_is_refused_with_what_differs(made: Path, tmp_path: Path) -> None:
    """GEN-16 I14: a plan, a recipe or a bound that is not as it was frozen."""
    root = Path(shutil.copytree(made.parent, tmp_path / "run")) / "store"
    before = genray.listing(root)
    edit(root, decode="{ temperature = 0.7 }", rows="70")
    with pytest.raises(GateError) as found:
        generate(genray.plan_of(root), str(root), say=never)
    assert found.value.field == "generate.points.rows, generate.points.decode.temperature"
    assert "was 0.5, is 0.7" in str(found.value)
    edit(root, decode="{ temperature = 0.5 }", rows="60")
    recipe = genray.plan_of(root).parent / "recipe.py"
    recipe.write_text(recipe.read_text() + "\n# another thought\n")
    with pytest.raises(GateError, match=r"code was .*\(recipe.py changed\)"):
        generate(genray.plan_of(root), str(root), say=never)
    assert genray.listing(root) == before


# --- what refuses before anything is written ------------------------------------------------------------------------


def refused(root: Path, kind: type[Exception], match: str, **how: Any) -> Any:
    before = genray.listing(root)
    with pytest.raises(kind, match=match) as found:
        generate(genray.plan_of(root), str(root), say=never, **how)
    assert genray.listing(root) == before
    return found.value


def test_a_plan_that_asks_for_what_there_is_not(root: Path) -> None:
    refused(root, PlanError, "has no set others", only="others")
    edit(root, decode="{ temperatur = 0.5 }")
    assert "takes no temperatur" in str(refused(root, PlanError, "temperatur"))
    edit(root, decode="{ temperature = 0.5 }", inputs='"nowhere.jsonl"')
    refused(root, PlanError, "nowhere.jsonl cannot be read")
    (genray.plan_of(root).parent / "twice.jsonl").write_text('{"id": "a"}\n{"id": "a"}\n')
    edit(root, inputs='"twice.jsonl"')
    refused(root, PlanError, "more than once")
    plan = genray.plan_of(root)
    plan.write_text(plan.read_text().replace("{ width = 16 }", "{ width = 8 }"))
    refused(root, GateError, "was trained under another plan: run.params.width: 16 -> 8")


def test_nothing_is_made_with_a_checkpoint_that_nobody_has_approved(root: Path) -> None:
    store, plan = open_store(str(root)), genray.plan_of(root)
    (candidate,) = read_candidate_registry(store).candidates.values()
    act(
        store,
        lambda registry: CandidateRejected(
            candidate=candidate.name, reason="its rows are dull", person="mira"
        ),
        by="mira",
        at=time.time(),
    )
    found = refused(root, ApprovalError, "tiny/points waits for an approved checkpoint")
    assert found.remedy.startswith("raykit candidates register tiny-teacher tiny@20"), "its QC is reviewed"
    edit(root, teacher=f'"{candidate.name}"')
    refused(root, ApprovalError, "not approved for generation")
    edit(root, teacher='"nobody"')
    refused(root, ApprovalError, "there is no candidate nobody")
    shutil.rmtree(root)
    with pytest.raises(GateError, match="nothing of tiny was trained yet"):
        generate(plan, str(root), say=never)
    assert not root.exists()


def test_a_resume_of_a_trained_experiment_ends_its_pause_and_says_which_sets_are_open(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(root))
    pause(store, "experiment:tiny", reason="promised to inference", person="mira", at=time.time())
    assert main(["resume", "tiny", "--root", str(root)]) == 0
    said = capsys.readouterr()
    assert "the pause is over (paused by mira: promised to inference)" in said.err
    assert "its pause is over, and nothing else was written." in said.out
    assert f"-> raykit generate PLAN --root {root}" in said.out
    assert read_acts(store, "tiny").pauses == {}
    assert main(["resume", "tiny", "--root", str(root)]) == 0
    assert "; nothing was written." in capsys.readouterr().out


def test_a_pause_keeps_a_launch_from_starting(root: Path) -> None:
    """Whichever scope it is of."""
    store = open_store(str(root))
    for scope in ("role:generate", "experiment:tiny", "all"):
        pause(store, scope, reason="promised to inference", person="mira", at=time.time())
        refused(root, FleetPaused, "promised")
        resume(store, scope, cleared="done", person="mira", at=time.time())


# --- pools of real workers, with toy producers ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local() -> Iterator[LocalRay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(genray.__file__).parent))
        with start_local(cpus=6, resources={"generate": 4}) as local:
            yield local


def test_a_defect_from_a_unit_on_stops_everyone_on_the_contract_and_nobody_else(
    local: LocalRay, tmp_path: Path
) -> None:
    """F25 FLEET-01 to FLEET-04: at most one unit for each worker is wasted, the cause is named, and another contract
    goes on. Once it is repaired, only what is open is made."""
    work = toys(tmp_path, rows_asked=480)
    behave(work.root, sleep_s=0.02, fail_from=100)
    end = work.work(work.pool(slots=4))
    wasted = set(work.shards.listing().failures)
    assert 2 <= len(wasted) <= 4
    assert min(wasted) >= 100
    assert end.waits is not None
    assert "failed alike" in end.waits
    assert "cannot be made" in end.waits
    (held,) = read_acts(work.shards.store, "digits").pauses.values()
    assert (held.pause.scope, held.pause.cause) == (f"contract:{work.shards.digest}", "defect")
    assert set(work.published) == {unit for unit in work.published if unit < 100}
    behave(work.root)
    other = genray.beside(work, "others")
    assert other.work(other.pool("beef", slots=1)).waits is None
    assert other.closed() == undisturbed(other)
    kept = set(work.published)
    resume(
        work.shards.store, held.pause.scope, cleared="repaired: the decoder", person="mira", at=time.time()
    )
    work.work(work.pool("f00e", slots=1))
    assert work.closed() == undisturbed(work)
    made = {
        unit for unit, claims in genray.claims_of(work).items() if any("f00e" in c.worker for c in claims)
    }
    assert made.isdisjoint(kept)
    check_invariants(work.shards.store)


@pytest.mark.long
def test_a_unit_that_hangs_is_killed_at_its_deadline_and_parked(local: LocalRay, tmp_path: Path) -> None:
    """F28: everything else is made."""
    work = toys(tmp_path)
    behave(work.root, hang_at=5)
    began = time.monotonic()
    end = work.work(work.pool(slots=2, tries=2, deadline_s=1.5))
    assert time.monotonic() - began < 40
    assert [(each.kind, each.n) for each in work.shards.listing().failures[5]] == [
        ("deadline", 1),
        ("deadline", 2),
    ]
    told = [line for line in work.lines if "unit 5, attempt" in line]
    assert [line.partition("attempt ")[2][0] for line in told] == ["1", "2"], work.lines
    assert work.published == [unit for unit in range(10) if unit != 5]
    assert end.desk is not None and end.desk.board is not None
    assert end.desk.board.parked == (5,)
    assert work.alive() == []


def test_a_canary_then_others_and_a_pause_loses_nothing(local: LocalRay, tmp_path: Path) -> None:
    """GEN-14 FLEET-07 FLEET-08 I10: one worker until the first units are judged, then more. A planned pause
    lets the units in hand be finished; another pool goes on."""
    work = toys(tmp_path, canary=False, rows_asked=200)
    behave(work.root, sleep_s=0.1)
    store, ends = work.shards.store, list[Any]()
    pool = work.pool(slots=2)
    working = threading.Thread(target=lambda: ends.append(work.work(pool)))
    working.start()
    until("two workers", lambda: any(each.workers == 2 and each.published > 4 for each in work.made[-1:]))
    pause(store, "experiment:digits", reason="promised to others", person="mira", at=time.time())
    working.join(DEADLINE_S)
    assert ends[0].waits == "paused by mira: promised to others"
    assert work.shards.listing().failures == {}
    assert 4 < len(work.published) < 50
    assert {reason for _, reason in work.door.settled.values()} == {"completed"}
    (passed,) = read_acts(store, "digits").canaries.values()
    assert (passed.units, passed.rows.produced, passed.peak_bytes) == (2, 8, 1000)
    assert 200 <= passed.took_ms <= 2000
    assert passed.low_ms <= passed.whole_ms <= passed.high_ms
    assert max(each.workers for each in work.made if each.canary) == 1
    assert any("canary passed: 2 units, 8 of 8 rows produced, " in line for line in work.lines), "as measured"
    resume(store, "experiment:digits", cleared="done", person="mira", at=time.time())
    behave(work.root)
    told, kept = len(work.made), len(work.published)
    assert work.work(work.pool("beef", slots=1)).waits is None
    # nothing is told before the first look, and all that is published counts from then on
    first = work.made[told]
    assert (first.canary, first.published >= kept, first.rows >= 4 * kept) == (False, True, True)
    assert work.closed() == undisturbed(work)
    assert all(len(claims) == 1 for claims in genray.claims_of(work).values())
    assert all(each.published <= len(work.published) for each in work.made)
    assert sorted(work.door.settled) == sorted(work.door.reserved)
    check_invariants(store)


@pytest.mark.long
def test_money_that_ends_in_the_middle_stops_at_unit_boundaries_and_is_exact(
    local: LocalRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F27 I6: no lease is renewed beyond the line; what was held is what it cost; once money was moved, it goes on."""
    for name, value in (("LEASE_S", 6.0), ("RENEW_S", 5.0), ("AGAIN_S", 0.5), ("BACKSTOP_S", 2.0)):
        monkeypatch.setattr(f"raykit.fleet.pool.lease.{name}", value)
    work = toys(tmp_path, rows_asked=160)
    behave(work.root, sleep_s=0.3)
    price = Price(rate=HOUR_USD, source="a test", margin_permille=1000)
    ledger = genray.open_line(work, 10 * USD // 1000)  # ten seconds of one worker at 3.6 dollars an hour
    seat = Seat(root=str(work.root), account=ledger.account)
    served, door = open_seat(seat), Teller(seat, hold_s=10.0)
    end = work.work(work.pool(slots=1, price=price, door=door))
    assert isinstance(end.refused, BudgetError)
    assert work.shards.listing().failures == {}
    assert 0 < len(work.published) < 40
    ledger.refresh()
    spent = ledger.book.allocations["digits"].used("generate")
    assert not ledger.book.open_leases()
    assert 0 < spent <= 10 * USD // 1000
    genray.move(ledger, 100 * USD // 1000)
    behave(work.root)
    assert work.work(work.pool("beef", slots=1, price=price, door=door)).refused is None
    assert work.closed() == undisturbed(work)
    ledger.refresh()
    assert not ledger.book.open_leases()
    del served
    check_invariants(work.shards.store)


# --- a Ray that dies, and nobody who answers for the money -----------------------------------------------------------


def begun(root: Path) -> Launching:
    """A launch that has published some of its units, and whose two workers each have one in hand."""
    behave(root, sleep_s=0.5)
    running = genray.launch(root, "--workers", "2")
    until("units", lambda: len(genray.published(root)) >= 3, running)
    until("two at work", lambda: len(workers_of(root)) == 2, running)
    return running


def workers_of(root: Path) -> set[str]:
    """Every worker that ever had a unit in hand."""
    return {claim.worker for claim in genray.shards_of(root).claims()}


@pytest.mark.long
@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_a_launch_whose_ray_has_died_says_so_and_leaves(root: Path, victim: str) -> None:
    """F20: at once, whatever it waits for; nothing published is lost, and the same command goes on."""
    running = begun(root)
    kill(running.descendant(f"/{victim}"))
    killed = time.monotonic()
    code, _, err = running.end(timeout_s=90)
    took_s = time.monotonic() - killed
    print(f"{victim}: exit code {code} after {took_s:.1f} s")
    assert code == 6, err
    assert f"the local Ray has died: {victim} of it is gone" in err
    assert "Nothing that is published is lost" in err
    assert "the same command goes on" in err
    assert living(genray.in_hand(root)) == []
    kept = genray.published(root)
    behave(root)
    code, _, err = genray.launch(root, "--workers", "2").end()
    assert code == 0, err
    assert set(kept) <= set(genray.published(root))
    assert genray.manifest_bytes(root) == genray.alone(root)
    reserved, settled = genray.leases(root)
    assert reserved == set(settled)
    check_invariants(open_store(str(root)))


@pytest.mark.long
def test_a_cancel_ends_it_for_good(root: Path) -> None:
    """What is in hand is finished and paid for, what is published stays, and nothing goes on."""
    running = begun(root)
    cancel(open_store(str(root)), "tiny", reason="the teacher was wrong", person="mira", at=time.time())
    code, out, err = running.end()
    assert code == 3, err
    assert "cancelled by mira" in out + err
    assert living(genray.in_hand(root)) == []
    reserved, settled = genray.leases(root)
    assert reserved == set(settled)
    before = genray.listing(root)
    code, _, err = genray.launch(root).end()
    assert code == 3 and "cancelled by mira: the teacher was wrong" in err
    assert genray.listing(root) == before
    check_invariants(open_store(str(root)))


@pytest.mark.long
def test_a_signal_is_heeded_though_nobody_answers_for_the_money(root: Path) -> None:
    """The units in hand are finished; what they have cost is settled by the next launch."""
    running = begun(root)
    actor = running.descendant("BudgetActor")
    os.kill(actor, signal.SIGSTOP)
    running.signal(signal.SIGTERM)
    sent = time.monotonic()
    code, _, err = running.end(timeout_s=90)
    took_s = time.monotonic() - sent
    print(f"exit code {code} after {took_s:.1f} s")
    assert code == 4, err
    assert living(genray.in_hand(root)) == []
    behave(root)
    code, _, err = genray.launch(root, "--workers", "2").end()
    assert code == 0, err
    reserved, settled = genray.leases(root)
    assert reserved == set(settled)


# --- many kills, and calls that get lost ------------------------------------------------------------------------------


KILLS = 50
MEAN_GAP_S = 3.0


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_fifty_kills_of_workers_launches_and_budget_actors(root: Path) -> None:
    """F15 GEN-12 I3 I6 I10: at random moments, over 200 units with four samples of each input; no row is lost, none is
    there twice, and the manifest is the undisturbed one, byte for byte."""
    seed = int(os.environ.get("RAYKIT_SEED", "11"))
    chance, began, killed = random.Random(seed), time.monotonic(), dict[str, int]()
    inputs = "".join(json.dumps({"id": f"i{n:03}", "at": n / 100}) + "\n" for n in range(100))
    (genray.plan_of(root).parent / "inputs.jsonl").write_text(inputs)
    edit(root, inputs='"inputs.jsonl"', samples="4", rows="400", tries="10")
    behave(root, sleep_s=2.0)
    running = genray.launch(root, "--workers", "2")
    while sum(killed.values()) < KILLS:
        time.sleep(chance.expovariate(1 / MEAN_GAP_S))
        what = chance.choices(("worker", "launch", "budget"), weights=(8, 1, 1))[0]
        assert running.process.poll() is None, running.end()
        pid = victim(root, running, what)
        if pid is None:
            continue
        kill(pid)
        killed[what] = killed.get(what, 0) + 1
        if what == "launch":
            running.end()
            running = genray.launch(root, "--workers", "2")
        if sum(killed.values()) == KILLS - 5:
            behave(root, sleep_s=0.5)
    behave(root)
    code, _, err = running.end()
    while code == 6:  # nobody answered for the money for a while: the same command goes on
        code, _, err = genray.launch(root, "--workers", "2").end()
    assert code == 0, err
    took_s = time.monotonic() - began
    listing = genray.shards_of(root).listing()
    rows = genray.rows_of(root)
    digest = genray.shards_of(root).manifest().digest
    print(
        f"seed {seed}: {killed} in {took_s:.0f} s, {sum(map(len, listing.failures.values()))} lost, {digest}"
    )
    assert listing.conflicts == {}
    assert [row["row"] for row in rows] == list(range(400))
    assert [(row["id"], row["sample"]) for row in rows] == [(f"i{n // 4:03}", n % 4) for n in range(400)]
    assert genray.manifest_bytes(root) == genray.alone(root)
    check_invariants(open_store(str(root)))


def victim(root: Path, running: Launching, what: str) -> int | None:
    """The process that is to be killed, if there is one just now."""
    if what == "launch":
        return running.process.pid
    if what == "worker":
        there = living(genray.in_hand(root))
        return there[0].place.pid if there else None
    for process in psutil.Process(running.process.pid).children(recursive=True):
        try:
            if any("BudgetActor" in part for part in process.cmdline()):
                return process.pid
        except psutil.Error:
            continue
    return None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_that_was_stopped_past_its_deadline_changes_nothing_when_it_goes_on(
    local: LocalRay, tmp_path: Path
) -> None:
    """F16: ten times, at a unit in hand. Others make it; the zombie finds its own bytes to be there."""
    for n in range(10):
        once = toys(tmp_path / str(n))
        with start(once.root, f"zombie-{n}", sleep_s=1.0, deadline_s=2.0) as zombie:
            claim = until("a unit in hand", lambda once=once: once.alive())[0]
            os.kill(claim.place.pid, signal.SIGSTOP)
            stopped = time.monotonic()
            end = once.work(once.pool(slots=2, launch=f"f00{n}"))
            assert end.waits is None
            assert time.monotonic() - stopped < 2.0 + 5.0 + 15.0  # with what the pool takes to start
            before = genray.bytes_of(once.root)
            os.kill(claim.place.pid, signal.SIGCONT)
            told = zombie.rest()
        assert told[0].split()[0] == "already", told
        assert genray.bytes_of(once.root) == before
        assert once.closed() == undisturbed(once)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_calls_that_are_lost_change_nothing(tmp_path: Path) -> None:
    """F21: every fifth call to a worker, or its answer, gets lost: bodies may run twice, receipts may not."""
    work = toys(tmp_path, rows_asked=1600)
    behave(work.root, sleep_s=0.01)
    lost = {"num_failures": 100_000, "req_failure_prob": 20, "resp_failure_prob": 20}
    done = subprocess.run(
        [sys.executable, str(Path(genray.__file__)), "work", str(work.root)],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(genray.__file__).parent),
            "RAY_testing_rpc_failure": json.dumps({"CoreWorkerService.grpc_client.PushTask": lost}),
            "RAY_testing_rpc_failure_avoid_intra_node_failures": "0",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["waits"], said["published"]) == (None, 400), said
    assert work.shards.listing().conflicts == {}
    assert work.closed() == undisturbed(work)
    check_invariants(work.shards.store)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flaky_recipe_is_tried_again_and_then_parked_and_pauses_nobody(
    local: LocalRay, tmp_path: Path
) -> None:
    """F26: three times in ten, and never the same one."""
    work = toys(tmp_path, rows_asked=400)
    behave(work.root, flaky=0.3)
    began = time.monotonic()
    end = work.work(work.pool(slots=2))
    listing = work.shards.listing()
    failed = sum(map(len, listing.failures.values()))
    print(f"{failed} failures, {100 - len(work.published)} parked, {time.monotonic() - began:.0f} s")
    assert end.waits is None
    assert read_acts(work.shards.store, "digits").pauses == {}
    assert max(map(len, listing.failures.values())) <= 3
    assert end.desk is not None and end.desk.board is not None
    assert set(end.desk.board.parked) == set(range(100)) - set(work.published)
    assert all(len(listing.failures[unit]) == 3 for unit in end.desk.board.parked)
    assert 10 <= failed <= 80


@pytest.mark.long
def test_a_person_lets_a_set_go_on_under_another_contract_and_units_count_as_they_are(
    made: Path, tmp_path: Path
) -> None:
    """GEN-16 I14: deliberately, with a reason; the units that are named are copied, and the others are made."""
    root = Path(shutil.copytree(made.parent, tmp_path / "run")) / "store"
    old = genray.shards_of(root)
    edit(root, decode="{ temperature = 0.7 }")
    said = ("--changed", "livelier points", "--reuse", "0-9,20", "--by", "mira")
    code, _, err = genray.launch(root, "--workers", "1", *said).end()
    assert code == 0, err
    new = genray.shards_of(root)
    assert (new.contract.follows, new.contract.decode) == (old.digest, {"temperature": 0.7})
    assert new.contract.reuses is not None
    assert new.contract.reuses.units == ((0, 9), (20, 20))
    receipts = {receipt.unit: receipt for receipt in new.receipts()}
    assert {unit for unit, each in receipts.items() if each.reused == old.digest} == {*range(10), 20}
    assert {each.sha256 for each in old.receipts() if each.unit in (*range(10), 20)} <= {
        each.sha256 for each in receipts.values()
    }
    canary = read_acts(open_store(str(root)), "tiny").canaries[new.digest]
    assert (canary.units, canary.peak_bytes > 10_000_000) == (2, True)
    event = read_acts(open_store(str(root)), "tiny").contracted["points"][-1]
    assert (event.why, event.person) == ("livelier points", "mira")
    check_invariants(open_store(str(root)))
    # said again, nothing has changed, and it is complete
    before = genray.listing(root)
    code, _, err = genray.launch(root, *said).end()
    assert (code, genray.listing(root)) == (0, before), err


@pytest.mark.long
def test_a_signal_lets_units_in_hand_be_finished_and_a_poison_unit_is_given_up_by_a_person(
    root: Path,
) -> None:
    """Exit codes and the next commands, as a person meets them."""
    edit(root, tries="2")
    behave(root, sleep_s=0.2, fail_at=[40])
    running = genray.launch(root, "--workers", "2")
    until("units", lambda: len(genray.published(root)) >= 4, running)
    running.signal(signal.SIGTERM)
    code, out, err = running.end()
    assert code == 4, err
    assert "SIGTERM: finishing what is in hand, then leaving" in err
    assert "ended by SIGTERM" in out
    assert {each.kind for found in genray.failures(root).values() for each in found} <= {"bounds"}
    reserved, settled = genray.leases(root)
    assert reserved == set(settled)
    assert living(genray.in_hand(root)) == []
    behave(root, fail_at=[40])
    code, out, err = genray.launch(root, "--workers", "2").end()
    assert code == 3, err
    assert "unit 20 of tiny/points came to nothing: a person is needed" in err
    assert len(genray.published(root)) == 29
    command = (
        "generate",
        "give-up",
        "tiny/points",
        "--unit",
        "20",
        "--reason",
        "a broken scan",
        "--by",
        "mira",
    )
    assert raykit(*command, root=root).end()[0] == 0
    code, out, err = genray.launch(root).end()
    assert code == 0, err
    assert "60 requested, 58 produced, 0 filtered, 2 failed" in out
    assert genray.shards_of(root).manifest().failed == {"given up": 2}
    check_invariants(open_store(str(root)))


@pytest.mark.slow
def test_what_it_does_is_on_the_dashboard(local: LocalRay, tmp_path: Path) -> None:
    work = toys(tmp_path, rows_asked=400)
    behave(work.root, sleep_s=0.4)
    url = f"http://127.0.0.1:{local.ports.of('metrics_export')}/metrics"
    seen = dict[str, float]()

    def scrape() -> bool:
        with urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            if line.startswith("ray_raykit_") and 'experiment="digits"' in line:
                name, _, value = line.rpartition(" ")
                tag = "".join(name.partition(f'{key}="')[2].partition('"')[0] for key in ("state", "kind"))
                seen[f"{name.partition('{')[0].removeprefix('ray_raykit_')}{tag and '.' + tag}"] = float(
                    value
                )
        produced = seen.get("generate_rows_total.produced", 0)
        return produced > 8 and seen.get("fleet_workers.running") == 2

    working = threading.Thread(target=lambda: work.work(work.pool(slots=2)))
    working.start()
    try:
        until("all metrics", scrape)
    finally:
        work.stopped = "the test has seen enough"
        working.join(DEADLINE_S)
    units = {name.rpartition(".")[2]: count for name, count in seen.items() if "generate_units." in name}
    assert units["published"] + units["open"] + units["claimed"] == 100
    assert seen["generate_units_total"] >= 2
    assert seen["generate_unit_seconds_total"] >= 0.8
    assert units["parked"] == 0


@pytest.mark.long
def test_a_teacher_that_has_changed_on_disk_makes_nothing(made: Path, root: Path, tmp_path: Path) -> None:
    """DISP-14 I1: found before a contract is frozen, and by every worker; exit 5, and nothing is published."""
    spoil(root)
    before = genray.bytes_of(root)
    code, _, err = genray.launch(root).end()
    assert (code, "does not match" in err) == (5, True), err
    kept = {key for key in genray.bytes_of(root) if "/generation/" in key}
    assert kept == {key for key in before if "/generation/" in key} == set()
    open_ = Path(shutil.copytree(made.parent, tmp_path / "begun")) / "store"
    shards = genray.shards_of(open_)
    folder = open_ / layout.generation("tiny", "points", shards.digest)
    for receipt in (folder / "receipts").iterdir():
        if int(receipt.stem) >= 10:
            receipt.unlink()
    (folder / "manifest.json").unlink()
    spoil(open_)
    code, _, err = genray.launch(open_).end()
    assert (code, "does not match" in err) == (5, True), err
    assert genray.published(open_) == list(range(10))


def spoil(root: Path) -> None:
    """Change one byte of the teacher's weights."""
    (candidate,) = read_candidate_registry(open_store(str(root))).candidates.values()
    weights = (root / candidate.said.key).with_name("model.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(data)
