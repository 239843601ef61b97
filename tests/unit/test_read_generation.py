"""Synthetic sets as people look at them: every state, exact counts, who is waited for, and how quickly.

covers GEN-11 GEN-13 GEN-15 GEN-17, GOLD-20, FLEET-06, I3
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from makegen import AT, approve
from makeledger import a_plan, identity, usd
from makeqc import make_examined
from makeset import SetMaker, make_set

import raykit
from raykit.budget.admit import Request, admit, settle
from raykit.cli import generatelook, setlines
from raykit.errors import CorruptError
from raykit.ids import sha256
from raykit.read.generation import GenerationReader, read_sets
from raykit.read.setview import Made, SetRead
from raykit.records import (
    Cancelled,
    GivenUp,
    Line,
    Place,
    Registered,
    Retried,
    Rows,
    Surface,
    Terms,
    UnitReceipt,
)
from raykit.shards.bounded import against
from raykit.shards.closing import shortfall
from raykit.shards.units import unit_id
from raykit.store.accounts import join_account, open_ledger
from raykit.store.base import ObjectStore
from raykit.store.candidates import register
from raykit.store.ledger import Ledger
from raykit.store.people import People, cancel, pause, resume
from raykit.store.place import this_place
from raykit.testing.memory import MemoryStore

SOON = 1_800_000_200.0
"""Within the deadline of what a maker has claimed."""


GONE = this_place().model_copy(update={"pid": 2**22 + 1, "started": 1})


def look(store: ObjectStore, *, now: float = SOON, whole: bool = True) -> SetRead:
    (read,) = read_sets(store, "digits", now=now, whole=whole)
    return read


def made(read: SetRead) -> Made:
    assert read.made is not None
    return read.made


# --- before a contract --------------------------------------------------------------------------------------


def test_a_set_of_the_plan_waits_for_an_approved_checkpoint() -> None:
    store = MemoryStore()
    make_set(store, contract=False)
    read = look(store)
    assert (read.state, read.words) == ("waiting", "waits for an approved checkpoint")
    assert (
        read.command
        == "raykit candidates register digits-teacher digits --role production-candidate --by NAME"
    )
    assert (read.waits_for, read.made, read.rows) == ("a person", None, 40)


def candidate(maker: SetMaker, name: str) -> Registered:
    """The last checkpoint under a name."""
    commit = maker.commit_at(maker.updates)
    said = Registered(
        candidate=name,
        role="production-candidate",
        origin="run",
        manifest=commit.sha256,
        key=commit.key,
        experiment="digits",
        update=commit.update,
        surfaces=(Surface(name="development.ratio", may_select=True),),
        person="mira",
    )
    register(maker.store, said, at=AT)
    return said


def test_a_checkpoint_is_named_before_it_is_approved_and_approved_before_it_makes_anything() -> None:
    store = MemoryStore()
    said = candidate(make_set(store, contract=False), "digits-best")
    read = look(store)
    assert read.state == "waiting"
    assert read.command == "raykit candidates approve digits-best --use generation --reason ... --by NAME"
    approve(store, said, receipts=())
    read = look(store)
    assert (read.state, read.command, read.waits_for) == (
        "not started",
        "raykit generate PLAN",
        "a launch of its plan",
    )


def test_only_the_candidate_that_the_plan_names_may_make_it() -> None:
    store = MemoryStore()
    approve(store, candidate(make_set(store, contract=False, teacher="other"), "digits-best"), receipts=())
    read = look(store)
    assert read.state == "waiting" and read.command is not None
    assert read.command.startswith("raykit candidates register other digits --role")


def test_a_plan_without_sets_has_none() -> None:
    store = MemoryStore()
    make_examined(store)
    assert read_sets(store, "digits", now=SOON) == ()
    assert raykit.open(store).run("digits").sets == ()


# --- on its way ---------------------------------------------------------------------------------------------


def test_every_state_on_the_way_to_a_complete_set() -> None:
    """covers GEN-15: what is published counts at once."""
    store = MemoryStore()
    maker = make_set(store)
    states: list[tuple[str, int]] = []

    def note() -> None:
        read = look(store)
        states.append((read.state, made(read).rows.requested))

    note()
    maker.take_unit(0)
    note()
    receipt, data = maker.unit_receipt(0)
    maker.shards.publish(receipt, data, n=1, worker="gen-1")
    note()
    maker.publish(1)
    maker.canary()
    maker.take_unit(2)
    note()
    receipt, data = maker.unit_receipt(2)
    maker.shards.publish(receipt, data, n=1, worker="gen-1")
    maker.publish(*range(3, 10))
    note()
    maker.close()
    note()
    assert states == [
        ("not started", 0),
        ("canary", 0),
        ("stopped", 4),
        ("running", 8),
        ("stopped", 40),
        ("complete", 40),
    ]


def test_what_a_worker_has_in_hand_is_no_progress() -> None:
    """covers GEN-13"""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0)
    for unit in range(1, 6):
        maker.take_unit(unit)
    read = look(store)
    assert made(read).rows == Rows(requested=4, produced=4, filtered=0, failed=0)
    assert made(read).units["claimed"] == 5
    assert "4 of 40 rows accounted for" in setlines.line(read)


def test_a_worker_whose_time_is_over_or_whose_process_is_gone_is_at_nothing() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.take_unit(0, deadline_s=10.0)
    late = look(store, now=maker.at + 11)
    assert (late.state, made(late).units["claimed"], made(late).units["retrying"]) == ("not started", 0, 1)
    assert made(look(store, now=maker.at + 1)).units["claimed"] == 1
    maker.place = this_place().model_copy(update={"pid": 2**22 + 1})  # no process has that number
    maker.take_unit(1)
    assert made(look(store, now=maker.at + 1)).units["claimed"] == 1, "the other one's process is not there"


def test_reasons_of_filtered_and_failed_rows_are_counted_by_their_receipts() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, filtered=2)
    maker.publish(1, filtered=1, failed=1)
    reasons = made(look(store)).reasons
    assert (reasons.filtered, reasons.failed) == ({"blank": 3}, {"ValueError": 1})
    assert (reasons.receipts, reasons.of) == (2, 2)
    assert made(look(store, whole=False)).reasons.filtered == {}, "a glance reads no receipt twice"


def test_of_many_receipts_the_newest_tell_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raykit.read.generation.MOST_RECEIPTS", 2)
    store = MemoryStore()
    maker = make_set(store)
    for unit in range(5):
        maker.publish(unit, filtered=1)
    found = made(look(store))
    assert found.rows.filtered == 5, "counts are exact all the same"
    assert (found.reasons.filtered, found.reasons.receipts, found.reasons.of) == ({"blank": 2}, 2, 5)


def test_failures_are_told_newest_first_with_their_kinds() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    maker.fail_unit(3, kind="deadline", message="too slow")
    maker.fail_unit(5, message="too large")
    maker.publish(3)
    tries = made(look(store)).attempts
    assert tries.failed == {"deadline": 1, "memory": 1}
    assert [(unit, failure.message) for unit, failure in tries.newest] == [(5, "too large"), (3, "too slow")]
    maker.finish()
    assert made(look(store)).attempts.failed == {"deadline": 1, "memory": 1}, (
        "a complete set still tells them"
    )


def test_two_different_answers_are_told(tmp_path: Path) -> None:
    """covers I3: the first one counts."""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0)
    other, data = maker.unit_receipt(0, failed=1)
    assert maker.shards.publish(other, data, n=2, worker="gen-2") == "conflict"
    found = made(look(store))
    assert found.attempts.disputed == (0,) and found.rows.failed == 0
    assert found.defect is not None and found.defect.why == "conflict"


# --- people -------------------------------------------------------------------------------------------------


def test_only_parked_units_left_need_a_person() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    maker.park(4)
    assert look(store).state == "stopped", "there is more that anybody could make"
    maker.publish(2, 3, *range(5, 10))
    read = look(store)
    assert (read.words, read.waits_for) == ("parked: a person is needed", "a person")
    assert read.command == "raykit generate retry digits/digits --reason ... --by NAME"
    assert made(read).parked == {4: 3}
    maker.tell(Retried(request=unit_id(made(read).digest, 4), after=3, reason="more memory", person="mira"))
    read = look(store)
    assert (read.state, made(read).units["open"]) == ("stopped", 1)


def test_a_unit_that_is_given_up_is_on_its_way() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    maker.park(4)
    digest = made(look(store)).digest
    maker.tell(GivenUp(name="digits", contract=digest, units=(4,), reason="never", person="mira"))
    found = made(look(store))
    assert (found.units["given-up"], found.units["parked"], found.given_up) == (1, 0, frozenset({4}))
    maker.shards.give_up([4], "never")
    maker.finish()
    found = made(look(store))
    assert found.rows == Rows(requested=40, produced=36, filtered=0, failed=4)
    assert found.reasons.failed == {"given up": 4}


@pytest.mark.parametrize("scope", ["contract", "experiment:digits", "role:generate", "all"])
def test_a_pause_is_told_with_what_ends_it(scope: str) -> None:
    store = MemoryStore()
    make_set(store).take_unit(0)
    scope = f"contract:{made(look(store)).digest}" if scope == "contract" else scope
    pause(store, scope, reason="look at the canary first", person="mira", at=5.0)
    read = look(store)
    assert read.words == "paused by mira: look at the canary first"
    assert read.command == f"raykit resume {scope.removeprefix('experiment:')}"
    resume(store, scope, cleared="looked", person="mira", at=6.0)
    assert look(store).state == "canary"


@pytest.mark.parametrize("contract", [True, False])
def test_what_is_cancelled_waits_for_nobody(contract: bool) -> None:
    store = MemoryStore()
    make_set(store, contract=contract)
    cancel(store, "digits", reason="no longer needed", person="mira", at=5.0)
    read = look(store)
    assert (read.state, read.command, read.waits_for) == ("cancelled", None, None)
    assert isinstance(People(store, "digits").refresh().cancelled, Cancelled)


def test_a_pause_stops_nothing_that_is_complete() -> None:
    store = MemoryStore()
    make_set(store).finish()
    pause(store, "all", reason="move", person="mira", at=5.0)
    assert (look(store).state, look(store).pause) == ("complete", None)


# --- complete -----------------------------------------------------------------------------------------------


def test_a_complete_set_has_its_manifest_findings_and_population() -> None:
    """covers GEN-11 GEN-17"""
    store = MemoryStore()
    maker = make_set(store, bounds={"failed": 0.01}, scripted=True)
    maker.publish(3, failed=1)
    manifest = maker.finish()
    read = look(store)
    found = made(read)
    assert read.complete and read.words == "complete, not within its bounds" and found.scripted
    assert found.manifest_digest == manifest.digest and found.findings == manifest.findings != ()
    assert dict(found.population)["teacher"].startswith("digits-teacher, update 40")
    plain = json.loads(json.dumps(read.plain()))
    assert plain["made"]["manifest"] == manifest.digest and plain["rows"]["open"] == 0
    assert plain["made"]["failed"] == {"ValueError": 1} and plain["made"]["scripted"] is True


def test_a_set_that_is_closed_and_not_told_of_is_complete() -> None:
    """A launch that was killed between the manifest and its log: what decides is there."""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(*range(10))
    maker.close(told=False)
    assert look(store).state == "complete"


def test_the_newest_contract_counts() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.finish()
    maker.contract_now(why="cooler", decode={"temperature": 0.5})
    read = look(store)
    assert (read.state, read.contracts) == ("not started", 2)
    assert made(read).said.why == "cooler"


def test_counts_are_exact_and_never_round() -> None:
    """covers GOLD-20: 9,999,555 of ten million are reported as 9,999,555, and short by 445."""
    store = MemoryStore()
    maker = make_set(store, rows_asked=10_000_000, unit_rows=1_000_000)
    for unit in range(10):
        receipt, data = huge(maker, unit, failed=445 if unit == 3 else 0)
        maker.shards.publish(receipt, data, n=1, worker="gen-1")
    maker.close()
    read = look(store)
    assert made(read).rows.produced == 9_999_555
    assert shortfall(made(read).rows) == "445 of 10,000,000 rows fell short (0.00445 %)"
    text = setlines.line(read)
    assert "10,000,000 requested, 9,999,555 produced, 0 filtered, 445 failed" in text
    assert "445 of 10,000,000 rows fell short (0.00445 %)" in "\n".join(
        generatelook.whole(read, None, "usd", "")
    )


def huge(maker: SetMaker, unit: int, *, failed: int) -> tuple[UnitReceipt, bytes]:
    """A receipt of a million rows, which nobody has made."""
    data, rows = b"unit %d" % unit, 1_000_000
    receipt = UnitReceipt(
        contract=maker.shards.digest,
        unit=unit,
        rows=Rows(requested=rows, produced=rows - failed, filtered=0, failed=failed),
        failed={"ValueError": failed} if failed else {},
        counts={"duplicates": 0},
        sha256=sha256(data),
        size_bytes=len(data),
    )
    return receipt, data


# --- with its run, and again --------------------------------------------------------------------------------


def test_a_run_is_seen_with_its_sets() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0)
    view = raykit.open(store).run("digits")
    assert [each.id for each in view.sets] == ["digits/digits"]
    plain = view.plain()["sets"][0]
    assert plain["rows"] == {
        "requested": 40,
        "produced": 4,
        "filtered": 0,
        "failed": 0,
        "accounted": 4,
        "open": 36,
    }


def test_a_damaged_set_hides_nothing_of_its_run() -> None:
    store = MemoryStore()
    make_set(store)
    (key,) = (key for key in store.objects if key.endswith("/contract.json"))
    store.objects[key] = b"{}"
    with pytest.raises(CorruptError):
        look(store)
    view = raykit.open(store).run("digits")
    assert (view.state, view.health, view.sets) == ("completed", "corrupt", ())
    assert view.qc is not None and view.figures.health_detail is not None
    assert "contract.json" in view.figures.health_detail


def test_a_reader_reads_each_receipt_once(tmp_path: Path) -> None:
    class Counting(MemoryStore):
        reads = 0

        def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
            self.reads += "/receipts/" in key
            return super().get(key, max_bytes=max_bytes)

    store = Counting()
    maker = make_set(store)
    maker.publish(0, 1, 2)
    reader = GenerationReader(store, "digits")
    reader.look(now=SOON)
    before = store.reads
    reader.look(now=SOON)
    assert store.reads == before
    maker.publish(3)
    assert made(reader.look(now=SOON)[0]).rows.requested == 16
    assert store.reads == before + 1


# --- a launch that has nothing in hand ------------------------------------------------------------------------


def lease(store: ObjectStore, *, at: float, holder: Place | None = None) -> None:
    """An hour of a worker, reserved on the line of synthetic sets; this process holds it, if no other does."""
    ledger = pay(store, "5", at=at)
    terms = Terms(accelerators=1, rate=0, source="a test", time_ms=3_600_000, fixed=0)
    request = Request(
        lease="a1-generate-1",
        experiment="digits",
        line="generate",
        terms=terms,
        holder=holder or this_place(),
    )
    ledger.decide(lambda book: admit(book, request), at=at)


def pay(store: ObjectStore, amount: str, *, at: float = SOON - 1000, **more: Any) -> Ledger:
    """A budget with a line for synthetic sets."""
    ledger = join_account(store, identity(), None, unit="usd", by="maker", at=at)
    planned = a_plan()
    line = Line(line="generate", purpose="target", planned=usd(amount))
    lines, ceiling = (*planned.lines, line), planned.ceiling + line.planned
    ledger.decide(lambda book: planned.model_copy(update={"lines": lines, "ceiling": ceiling, **more}), at=at)
    return ledger


def test_a_worker_that_is_set_up_is_a_launch_at_work() -> None:
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    assert look(store).words == "stopped: nobody is at it"
    lease(store, at=SOON - 30)
    read = look(store)
    assert read.words == "running: a launch of its plan is at it, with no unit of the set in hand just now"
    assert (read.command, read.waits_for, read.needs) == (None, None, {})
    assert "in hand, about" not in setlines.line(read)
    assert look(store, now=SOON + 3600).state == "stopped", "nothing is paid for"


@pytest.mark.parametrize(
    ("holder", "state"),
    [(this_place(), "running"), (GONE, "stopped"), (GONE.model_copy(update={"host": "node-17"}), "running")],
)
def test_a_lease_whose_launch_is_gone_is_no_launch(holder: Place, state: str) -> None:
    """covers FLEET-06: at once, also where a launch was killed while its worker was set up; of one on another machine,
    what is paid for says that it lives."""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    lease(store, at=SOON - 30, holder=holder)
    assert look(store).state == state


@pytest.mark.parametrize(
    ("holder", "ago_s", "state"),
    [("another", 59, "running"), ("another", 61, "stopped"), ("gone", 1, "stopped"), ("this", 1, "stopped")],
)
def test_a_worker_that_has_just_ended_is_replaced_by_a_launch_that_lives(
    holder: str, ago_s: float, state: str
) -> None:
    """Who asks while it leaves, replaces nobody; and one that was killed does not, whatever had failed before."""
    store = MemoryStore()
    maker = make_set(store)
    maker.publish(0, 1)
    maker.canary()
    maker.fail_unit(2)
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    another = this_place().model_copy(update={"pid": os.getppid(), "started": int(fields[19])})
    places = {"another": another, "gone": GONE, "this": this_place()}
    lease(store, at=SOON - 100 - ago_s, holder=places[holder])
    ledger = open_ledger(store, "digits", by="test")
    end = settle(ledger.book, "a1-generate-1", time_ms=100_000, reason="completed", how="measured")
    ledger.decide(lambda book: end, at=SOON)
    assert look(store).state == state


@pytest.mark.parametrize(
    ("planned", "rate", "state"),
    [("0.10", "9", "out of budget"), ("0.20", "9", "not started"), ("0", "0", "not started")],
)
def test_a_set_that_nobody_would_be_paid_for_says_so(planned: str, rate: str, state: str) -> None:
    """covers BUD-12: a minute of a worker costs 0.15 at 9 an hour."""
    store = MemoryStore()
    approve(store, candidate(make_set(store, contract=False), "digits-best"), receipts=())
    pay(store, planned, rates={"generate": usd(rate)})
    read = look(store)
    assert read.state == state
    if state == "out of budget":
        assert read.words == "out of budget: 0.10 is left for it, and 0.15 is needed"
        assert (
            read.command == "raykit budget replan digits --move recovery:generate=0.05 --reason ... --by NAME"
        )
        assert (read.then, read.waits_for) == ("raykit generate PLAN", "a person")
    else:
        assert read.command == "raykit generate PLAN"


def test_a_first_unit_that_is_asked_for_before_the_contract_is_a_launch_at_work() -> None:
    store = MemoryStore()
    approve(store, candidate(make_set(store, contract=False), "digits-best"), receipts=())
    assert look(store).needs == {"PLAN": 'the plan file with name = "digits"'}
    lease(store, at=SOON - 30)
    assert (look(store).state, look(store).command) == ("running", None)


# --- bounds ---------------------------------------------------------------------------------------------------


def test_every_bound_has_its_count_on_the_way_and_at_the_end() -> None:
    store = MemoryStore()
    maker = make_set(store, bounds={"duplicates": 0.5, "failed": 0.25, "nonfinite": 0.0})
    assert made(look(store)).bounded.counts == (), "nothing is made yet"
    maker.publish(0, counts={"duplicates": 2})
    maker.publish(1, failed=1)
    told = made(look(store)).bounded
    assert [against(count) for count in told.counts] == [
        "duplicates 2 of 7 (28.6 %), at most 50 %",
        "failed 1 of 8 (12.5 %), at most 25 %",
        "nonfinite 0 of 8 (0 %), none may be",
    ]
    assert (told.receipts, told.of) == (2, 2)
    maker.canary()
    maker.finish()
    told = made(look(store)).bounded
    assert [against(count) for count in told.counts][1] == "failed 1 of 40 (2.5 %), at most 25 %"
