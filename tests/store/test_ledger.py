"""The ledger of an account: races, batches, refusals, lost replies, on every kind of store. Covers I6, I13."""

from __future__ import annotations

import collections
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from makeledger import (
    AT,
    a_plan,
    ask,
    ask_plan,
    ask_settle,
    ask_void,
    events,
    granted,
    identity,
    kinds,
    usd,
)

from raykit.budget.book import read_book
from raykit.errors import (
    ApprovalError,
    ConflictError,
    CorruptError,
    InvalidInput,
    LeaseLostError,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.records import Reserved, Settled
from raykit.store import LocalStore, layout, ledger, s3
from raykit.store.accounts import join_account
from raykit.store.base import Data, ObjectStore, Stored
from raykit.store.ledger import Answer, Ledger
from raykit.store.log import MAX_ENTRY_BYTES, SNAPSHOT_EVERY
from raykit.store.s3 import S3Store
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost, unavailable
from raykit.testing.invariants import check_invariants

TESTS = Path(__file__).parents[1]
PREFIX = layout.account_log("digits")
MakeStore = Callable[..., S3Store]


def opened(store: ObjectStore) -> Ledger:
    """The ledger of `digits`, with its plan: two entries."""
    made = join_account(store, identity(), None, unit="usd", by="t", at=AT)
    made.decide(ask_plan(a_plan()), at=AT)
    return made


def another(store: ObjectStore, by: str = "another") -> Ledger:
    return Ledger(store, "digits", by=by)


def leases(store: ObjectStore) -> list[str]:
    return [event.lease for event in events(another(store)) if isinstance(event, Reserved)]


@pytest.fixture(params=["memory", "disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "disk":
        return LocalStore(tmp_path / "root")
    server: servers.Server = request.getfixturevalue("seaweedfs")
    make: MakeStore = request.getfixturevalue("make_s3")
    return make(server.endpoint)


# --- one writer ---------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_what_was_asked(store: ObjectStore) -> None:
    # covers GOLD-17: each is decided on what those before it have led to
    made = opened(store)
    answers = made.decide_all([ask(f"l{n}") for n in range(60)], at=AT)
    assert [granted(answer) for answer in answers] == [True] * 49 + [False] * 11
    assert {type(answer) for answer in answers[49:]} == {ApprovalError}
    assert [answer[0].lease for answer in answers[:49]] == [f"l{n}" for n in range(49)]  # type: ignore
    assert made.book.charged == usd("4.90")
    assert len(made.entries) == 3, "one entry, and one sync, for all of them"
    check_invariants(store)


def test_a_refusal_stops_nobody_else_and_writes_nothing(store: ObjectStore) -> None:
    made = opened(store)
    answers = made.decide_all(
        [ask("a", "2.00"), ask("b", "9.00"), ask("c", "1.00"), ask("x", experiment="none"), ask("d", "1.00")],
        at=AT,
    )
    assert [granted(answer) for answer in answers] == [True, False, True, False, True]
    assert isinstance(answers[3], NotFoundError)
    assert leases(store) == ["a", "c", "d"]
    before = {listed: store.get(listed.key) for listed in store.list("")}
    with pytest.raises(ApprovalError):
        made.decide(ask("e", "1.00"), at=AT)
    assert [type(a) for a in made.decide_all([ask("e", "1.00"), ask("f", "2.00")], at=AT)] == [
        ApprovalError
    ] * 2
    assert {listed: store.get(listed.key) for listed in store.list("")} == before


def test_nothing_asked_is_nothing_written() -> None:
    store = MemoryStore()
    made = opened(store)
    before = dict(store.objects)
    assert made.decide_all([], at=AT) == []
    assert made.decide_all([lambda book: None, lambda book: []], at=AT) == [(), ()]
    assert store.objects == before


def test_a_decision_may_have_several_events_and_sees_its_own_batch() -> None:
    store = MemoryStore()
    made = opened(store)
    answers = made.decide_all(
        [ask("a", "4.90"), ask("b", "4.90"), ask_void("a"), ask("b", "4.90"), ask_settle("b")], at=AT
    )
    assert [granted(answer) for answer in answers] == [True, False, True, True, True]
    assert kinds(made)[2:] == ["reserved", "voided", "reserved", "settled"]
    check_invariants(store)


def test_what_was_granted_is_granted_again_and_what_has_ended_is_not() -> None:
    store = MemoryStore()
    made = opened(store)
    made.decide(ask("a"), at=AT)
    before = dict(store.objects)
    assert made.decide(ask("a"), at=AT) == ()
    assert another(store).decide(ask("a"), at=AT) == ()
    assert store.objects == before
    made.decide(ask_settle("a"), at=AT)
    with pytest.raises(LeaseLostError, match="lease a has ended: completed"):
        made.decide(ask("a"), at=AT)
    made.decide(ask("b"), at=AT)
    with pytest.raises(ConflictError):
        made.decide(ask("b", experiment="another"), at=AT)


def test_a_mistake_in_a_decision_is_no_answer_and_writes_nothing() -> None:
    store = MemoryStore()
    made = opened(store)
    before = dict(store.objects)
    with pytest.raises(ZeroDivisionError):
        made.decide_all([ask("a"), lambda book: 1 / 0], at=AT)  # type: ignore[arg-type, return-value]
    assert store.objects == before
    assert made.decide(ask("a"), at=AT)


def test_the_book_is_that_of_all_entries() -> None:
    store = MemoryStore()
    made = opened(store)
    reader = another(store)
    for n in range(30):
        made.decide_all([ask(f"l{n}"), ask_settle(f"l{n - 1}"), ask_void(f"l{n - 2}")], at=AT + n)
        if n % 7 == 0:
            reader.refresh()
            assert reader.book.charged == made.book.charged
    whole = read_book(another(store).refresh())
    assert (whole.charged, whole.reserved) == (made.book.charged, made.book.reserved)
    assert dict(whole.leases) == dict(made.book.leases)


# --- large batches ------------------------------------------------------------------------------------------


def test_five_thousand_decisions_at_once() -> None:
    store = MemoryStore()
    made = opened(store)
    asks = [ask(f"{n:0>120}", "0", source="x" * 400) for n in range(5000)]
    answers = made.decide_all(asks, at=AT)
    assert all(map(granted, answers))
    assert [answer[0].lease for answer in answers] == [f"{n:0>120}" for n in range(5000)]  # type: ignore
    sizes = [len(data) for key, data in store.objects.items() if key.startswith(f"{PREFIX}/")]
    assert len(sizes) > 3
    assert max(sizes) < MAX_ENTRY_BYTES
    assert len(leases(store)) == 5000
    before = dict(store.objects)
    assert made.decide_all(asks, at=AT) == [()] * 5000
    assert store.objects == before
    check_invariants(store)


def test_a_batch_that_is_cut_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    # covers GOLD-17: whatever the size of an entry, exactly as many are granted
    for batch_bytes in (1, 500, 1500, 10**6):
        monkeypatch.setattr(ledger, "BATCH_BYTES", batch_bytes)
        store = MemoryStore()
        made = opened(store)
        answers = made.decide_all([ask(f"l{n}") for n in range(60)], at=AT)
        assert [granted(answer) for answer in answers] == [True] * 49 + [False] * 11
        assert leases(store) == [f"l{n}" for n in range(49)]
        if batch_bytes == 1:
            assert len(made.entries) == 2 + 49
        check_invariants(store)


def test_one_decision_that_is_too_long_is_refused() -> None:
    store = MemoryStore()
    made = opened(store)
    before = dict(store.objects)
    with pytest.raises(InvalidInput, match="bytes long"):
        made.decide(ask("a", source="x" * MAX_ENTRY_BYTES), at=AT)
    assert store.objects == before


def test_after_a_reply_was_lost_in_the_middle_of_a_large_batch_the_same_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # covers I13
    monkeypatch.setattr(ledger, "BATCH_BYTES", 1500)
    inner = MemoryStore()
    opened(inner)
    asks = [ask(f"l{n}") for n in range(60)]
    lost = 0
    for at in itertools.count(1):
        store = MemoryStore(dict(inner.objects))
        fault = Fault(reply_lost, at=at, when="after")
        made = another(FaultStore(store, fault))
        try:
            answers = made.decide_all(asks, at=AT)
        except UnknownOutcomeError:
            lost += 1
            answers = made.decide_all(asks, at=AT)
        assert [granted(answer) for answer in answers] == [True] * 49 + [False] * 11
        assert leases(store) == [f"l{n}" for n in range(49)]
        if at >= len(fault.operations):
            break
    assert lost > 10


# --- two writers --------------------------------------------------------------------------------------------


def test_who_loses_the_race_decides_again_on_what_the_other_wrote() -> None:
    # covers I6
    class Racing(MemoryStore):
        act: Callable[[], object] | None = None

        def put_new(self, key: str, data: Data) -> Stored:
            act, self.act = self.act, None
            if act is not None:
                act()
            return super().put_new(key, data)

    store = Racing()
    mine, rival = opened(store), another(store)
    store.act = lambda: rival.decide_all([ask("theirs", "2.00")], at=AT)
    answers = mine.decide_all([ask("mine-1", "2.00"), ask("mine-2", "2.00"), ask("mine-3", "0.50")], at=AT)
    assert [granted(answer) for answer in answers] == [True, False, True]
    assert leases(store) == ["theirs", "mine-1", "mine-3"]
    check_invariants(store)


def compete(ledgers: list[Ledger], each: int) -> list[Answer]:
    """Every ledger in a thread of its own; what they were answered."""
    gate = threading.Barrier(len(ledgers))
    answers: list[Answer] = []

    def spend(number: int, mine: Ledger) -> None:
        gate.wait(30)
        for n in range(0, each, 5):
            answers.extend(mine.decide_all([ask(f"w{number}-{n + i}") for i in range(5)], at=AT))

    threads = [threading.Thread(target=spend, args=pair) for pair in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def test_threads_that_compete_are_granted_exactly_what_fits(store: ObjectStore) -> None:
    # covers GOLD-17, F8, I2, I6
    made = opened(store)
    answers = compete([another(store, f"w{n}") for n in range(3)] + [made], each=20)
    assert len(answers) == 80
    assert sum(map(granted, answers)) == 49
    assert len(set(leases(store))) == len(leases(store)) == 49
    check_invariants(store)


def test_threads_that_share_a_ledger_do_too() -> None:
    store = MemoryStore()
    made = opened(store)
    answers = compete([made] * 4, each=40)
    assert sum(map(granted, answers)) == 49
    assert made.book.charged == usd("4.90")
    check_invariants(store)


SPENDER = """
import sys
sys.path.insert(0, sys.argv[1])
from makeledger import AT, ask, granted
from raykit.store import LocalStore
from raykit.store.ledger import Ledger

mine = Ledger(LocalStore(sys.argv[2]), "digits", by=sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for n in range(0, 40, 2):
    answers = mine.decide_all([ask(f"{sys.argv[3]}-{n + i}") for i in range(2)], at=AT)
    print(sum(map(granted, answers)), flush=True)
"""


def test_processes_that_compete_are_granted_exactly_what_fits(tmp_path: Path) -> None:
    # covers GOLD-17, F8, I2, I6
    store = LocalStore(tmp_path)
    opened(store)
    spenders = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(TESTS), str(tmp_path), f"w{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(3)
    ]
    for spender in spenders:
        assert spender.stdout is not None
        assert spender.stdout.readline() == "ready\n"
    counts: collections.Counter[str] = collections.Counter()
    for spender in spenders:
        assert spender.stdin is not None
        spender.stdin.write("go\n")
        spender.stdin.flush()
    for n, spender in enumerate(spenders):
        with spender:
            assert spender.stdout is not None
            counts[f"w{n}"] = sum(map(int, spender.stdout.read().split()))
            assert spender.wait(timeout=60) == 0
    assert sum(counts.values()) == 49, counts
    assert collections.Counter(lease.partition("-")[0] for lease in leases(store)) == +counts
    check_invariants(store)


# --- faults -------------------------------------------------------------------------------------------------


def asked_until_known(made: Ledger, lease: str) -> None:
    """Ask again after every reply that was lost, as whoever starts work does."""
    for _ in range(20):
        try:
            made.decide(ask(lease), at=AT)
        except UnknownOutcomeError:
            continue
        return
    raise AssertionError("no answer after twenty")


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_lost_reply_the_same_lease_is_there_once(when: str) -> None:
    # covers I13
    for at in itertools.count(1):
        store = MemoryStore()
        opened(store)
        fault = Fault(reply_lost, at=at, when=when)  # type: ignore[arg-type]
        made = another(FaultStore(store, fault))
        asked_until_known(made, "a")
        assert leases(store) == ["a"]
        assert made.book.charged == usd("0.10")
        check_invariants(store)
        if at >= len(fault.operations):
            break


def test_replies_that_a_server_loses_are_read_back(
    proxy: servers.Proxy, make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers F5, I13: every second create is done, and its reply cut
    monkeypatch.setattr(s3, "_PAUSE_S", 0.01)
    store = make_s3(proxy.endpoint)
    made = opened(store)
    turn = itertools.count()
    proxy.script = lambda request: (
        servers.Fault("cut") if request.is_conditional and next(turn) % 2 == 0 else None
    )
    for n in range(12):
        asked_until_known(made, f"l{n}")
    assert proxy.fired["cut"] >= 6
    proxy.script = lambda request: None
    assert leases(store) == [f"l{n}" for n in range(12)]
    check_invariants(store)


def test_a_store_that_is_away_is_said_to_be() -> None:
    inner = MemoryStore()
    opened(inner)
    seen = []
    for at in range(2, 6):
        store = MemoryStore(dict(inner.objects))
        fault = Fault(unavailable(), at=at)
        made = another(FaultStore(store, fault))
        with pytest.raises(StoreUnavailableError):
            made.decide(ask("a"), at=AT)
        seen.append(fault.operations[-1].partition(" ")[0])
        assert leases(store) == []
        assert made.decide(ask("a"), at=AT)
        assert leases(store) == ["a"]
    assert seen == ["get", "list", "get", "put_new"], "all that a decision does but reading the snapshot"


def test_a_ledger_with_a_lost_entry_moves_no_money() -> None:
    # covers I2, I6
    store = MemoryStore()
    made = opened(store)
    for n in range(4):
        made.decide(ask(f"l{n}"), at=AT)
    for n in range(1, 6):
        changed = {key: data for key, data in store.objects.items() if key != layout.log_entry(PREFIX, n)}
        before = dict(changed)
        with pytest.raises(CorruptError, match=r"00000000000\d.json is missing"):
            another(MemoryStore(changed)).decide(ask("more"), at=AT)
        assert changed == before


def test_a_ledger_that_lost_its_end_after_a_snapshot_moves_no_money() -> None:
    # covers I10
    store = MemoryStore()
    made = opened(store)
    made.decide(ask("a"), at=AT)
    made.snapshot()
    del store.objects[layout.log_entry(PREFIX, 3)]
    with pytest.raises(CorruptError, match="is missing, though there were 3 entries"):
        another(store).decide(ask("b"), at=AT)


def test_an_event_of_what_never_began_is_refused_each_time() -> None:
    store = MemoryStore()
    made = opened(store)
    wrong = Settled(lease="b", cost=1, time_ms=1, reason="killed", how="?")
    made.append(lambda _: [wrong], at=AT)
    for reader in (made, another(store)):
        for _ in range(2):
            with pytest.raises(CorruptError, match="speaks of 'b' before it begins"):
                reader.decide(ask("c"), at=AT)


# --- snapshots ----------------------------------------------------------------------------------------------


def test_a_new_reader_starts_from_the_snapshot() -> None:
    store = MemoryStore()
    made = opened(store)
    for n in range(SNAPSHOT_EVERY):
        made.decide(ask(f"l{n}", "0"), at=AT)
    counting = FaultStore(store)
    reader = another(counting)
    reader.refresh()
    assert reader.book.leases.keys() == made.book.leases.keys()
    assert len(counting.fault.operations) < 10
    assert reader.decide(ask("more", "0"), at=AT)


def test_people_leave_a_snapshot_and_leases_do_not() -> None:
    store = MemoryStore()
    made = opened(store)
    seen = store.objects[layout.log_snapshot(PREFIX)]
    made.decide(ask("a"), at=AT)
    made.decide(ask_settle("a"), at=AT)
    assert store.objects[layout.log_snapshot(PREFIX)] == seen
    made.snapshot()
    assert store.objects[layout.log_snapshot(PREFIX)].count(b"\n") == 3


def test_an_answer_that_refuses_is_what_a_single_decision_raises() -> None:
    store = MemoryStore()
    made = opened(store)
    (answer,) = made.decide_all([ask("a", "9.00")], at=AT)
    assert isinstance(answer, RaykitError)
    with pytest.raises(type(answer), match=r"a person has to approve this very plan"):
        made.decide(ask("a", "9.00"), at=AT)
