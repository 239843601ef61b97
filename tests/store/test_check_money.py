"""`check` and money: no start without a reservation, one account for related work, ledgers that hold. Covers I6."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from makeledger import (
    AT,
    PaidRun,
    a_plan,
    ask,
    ask_plan,
    ask_settle,
    digest,
    identity,
    usd,
)
from makerun import make_run

from raykit.budget import acts
from raykit.errors import CorruptError
from raykit.ids import digest_of, sha256
from raykit.records import (
    AccountEntry,
    AccountOf,
    AccountOpened,
    AttemptStarted,
    ExperimentEntry,
    Parted,
    Record,
    Reserved,
    Settled,
)
from raykit.store import layout
from raykit.store.accounts import data_identity, join_account
from raykit.store.base import Listed
from raykit.store.check import check
from raykit.store.ledger import Ledger
from raykit.store.log import Log, seal, unseal
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.testing.invariants import check_invariants

LOG = layout.account_log("paid")


def paid_run(store: MemoryStore | FaultStore, experiment: str = "paid") -> PaidRun:
    """Killed once, paused once, then completed: three attempts, three reservations."""
    made = PaidRun(store, experiment=experiment)
    made.freeze()
    made.launch()
    made.begin()
    made.rows(5)
    made.commit()
    made.launch()
    made.begin()
    made.rows(5)
    made.commit("stop")
    made.end("paused")
    made.release("paused")
    made.launch()
    made.begin()
    made.rows(5)
    made.commit("final")
    made.end("completed")
    made.release("completed")
    return made


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    store = MemoryStore()
    paid_run(store)
    return store.objects


def found(store: MemoryStore) -> list[tuple[str, str, str]]:
    return [(f.invariant, f.rule, f.found) for f in check(store, read_data=True).findings]


def test_runs_that_were_paid_for_are_whole() -> None:
    # covers I6, I12
    store = MemoryStore()
    paid_run(store)
    paid_run(store, "related")  # the same data and the same contract
    other = PaidRun(store, experiment="other")
    other.contract = sha256(b"another contract")
    other.freeze()
    report = check_invariants(store)
    assert (report.findings, report.orphans, report.unknown) == ((), (), ())
    assert report.counts["accounts"] == 2
    assert {Ledger(store, name, by="t").account for name in ("paid", "other")} == {"paid", "other"}


# --- the ledger as bytes ------------------------------------------------------------------------------------


def entries(objects: dict[str, bytes]) -> list[str]:
    return sorted(key for key in objects if key.startswith(f"{LOG}/"))


def without_snapshot(objects: dict[str, bytes]) -> dict[str, bytes]:
    return {key: data for key, data in objects.items() if key != layout.log_snapshot(LOG)}


def test_every_edited_entry_is_found(objects: dict[str, bytes]) -> None:
    # covers I6, S15: with its seal made anew, by somebody who knows the format
    changed = without_snapshot(objects)
    for key, following in itertools.pairwise(entries(objects)):
        body = unseal(objects[key], key).replace(b'"by":"maker"', b'"by":"nobody"')
        report = check(MemoryStore({**changed, key: seal(body)}), read_data=False)
        assert [(f.key, f.invariant) for f in report.findings] == [(following, "I2")]
    newest = entries(objects)[-1]
    body = unseal(objects[newest], newest).replace(b'"by":"maker"', b'"by":"nobody"')
    report = check(MemoryStore({**objects, newest: seal(body)}), read_data=False)
    assert [f.found for f in report.findings] == [f"{newest} was written anew"]


def test_every_dropped_entry_is_found(objects: dict[str, bytes]) -> None:
    for key in entries(objects):
        report = check(MemoryStore({k: d for k, d in objects.items() if k != key}), read_data=False)
        assert [f.found for f in report.findings] == [f"{key} is missing"]


def test_two_entries_in_each_others_place_are_found(objects: dict[str, bytes]) -> None:
    keys = entries(objects)
    for a, b in itertools.pairwise(keys):
        report = check(MemoryStore({**objects, a: objects[b], b: objects[a]}), read_data=False)
        assert {a, b} <= {finding.key for finding in report.findings}


def test_a_fork_is_found(objects: dict[str, bytes]) -> None:
    """The tail of another history of the same account: each entry is whole, and follows another one."""
    other = MemoryStore()
    paid_run(other)
    keys = entries(objects)
    assert keys == entries(other.objects)
    for at in range(1, len(keys)):
        forked = without_snapshot(objects) | {key: other.objects[key] for key in keys[at:]}
        report = check(MemoryStore(forked), read_data=False)
        assert [f.found for f in report.findings] == [f"{keys[at]} does not follow the entry before it"]


def test_reservations_that_were_cut_off_are_found_by_what_they_started(objects: dict[str, bytes]) -> None:
    # covers I6: no snapshot, and the ledger is whole as far as it goes
    keys = entries(objects)
    for keep in range(1, len(keys)):
        cut = {key: data for key, data in without_snapshot(objects).items() if key not in keys[keep:]}
        gone = {
            event.lease
            for key in keys[keep:]
            for event in AccountEntry.from_bytes(unseal(objects[key], key), key).events
            if isinstance(event, Reserved)
        }
        wrong = found(MemoryStore(cut))
        assert len(wrong) == len(gone)
        for invariant, rule, text in wrong:
            assert (invariant, rule) == ("I6", "nothing starts without a durable reservation")
            assert any(f"lease {lease} is not reserved in paid" in text for lease in gone)


# --- the ledger as sums -------------------------------------------------------------------------------------


def ledger_with(*events: Record) -> MemoryStore:
    """A ledger as a faulty writer would have it: with no decision before the append."""
    store = MemoryStore()
    ledger = join_account(store, identity("digits"), None, unit="usd", by="t", at=AT)
    ledger.decide(ask_plan(a_plan()), at=AT)
    for event in events:
        Ledger(store, "digits", by="t").append(lambda _, event=event: [event], at=AT)  # type: ignore[misc]
    return store


def a_reservation(lease: str, cost: str, *, charged: str = "0") -> Reserved:
    store = ledger_with()
    (made,) = Ledger(store, "digits", by="t").decide(ask(lease, "1.00"), at=AT)
    assert isinstance(made, Reserved)
    terms = made.terms.model_copy(update={"fixed": usd(cost)})
    return made.model_copy(update={"worst": usd(cost), "terms": terms, "charged": usd(charged)})


def test_a_ledger_that_passes_its_bound_is_found_at_its_entry() -> None:
    # covers I6, BUD-01
    store = ledger_with(a_reservation("a", "3.00"), a_reservation("b", "2.00", charged="3.00"))
    report = check(store, read_data=False)
    assert [(f.invariant, f.rule, f.key) for f in report.findings] == [
        (
            "I6",
            "settled + reserved stays within the ceiling",
            layout.log_entry(layout.account_log("digits"), 4),
        )
    ]
    assert "b takes the account to 5000000, and 5000000 is the bound" in report.findings[0].found
    assert found(ledger_with(a_reservation("a", "3.00"), a_reservation("b", "1.99", charged="3.00"))) == []


def test_a_settlement_of_nothing_is_found() -> None:
    nothing = Settled(lease="x", cost=1, time_ms=1, reason="killed", how="?")
    store = ledger_with(nothing)
    assert [(i, f) for i, _, f in found(store)] == [("I6", "x is settled, and is not open")]
    with pytest.raises(CorruptError, match="the ledger of account digits speaks of 'x' before it begins"):
        ledger = Ledger(store, "digits", by="t")
        ledger.refresh()
        _ = ledger.book


def test_a_ledger_of_another_account_is_found() -> None:
    store = MemoryStore()
    event = AccountOpened(account="b", unit="usd", why="w")
    Ledger(store, "a", by="t").append(lambda _: [event], at=AT)
    assert found(store) == [("I2", "a ledger is its own", "it is of account b")]


# --- who belongs where --------------------------------------------------------------------------------------


def record_keys(objects: dict[str, bytes]) -> list[str]:
    return sorted(key for key in objects if key.startswith("accounts/by/"))


def test_every_record_of_an_identity_counts(objects: dict[str, bytes]) -> None:
    # covers I6, BUD-09
    assert [key.split("/")[2] for key in record_keys(objects)] == ["data", "decision", "experiment"]
    for key in record_keys(objects):
        wrong = found(MemoryStore({k: d for k, d in objects.items() if k != key}))
        assert wrong, key
        assert {(i, f) for i, _, f in wrong} == {("I6", f"{key} is missing")}
        for data in (
            AccountOf(account="elsewhere", experiment="paid").to_bytes(),
            objects[key].replace(b"paid", b"Paid"),
            objects[key] + b"\n",
            b"",
        ):
            changed = MemoryStore({**objects, key: data})
            other = Ledger(changed, "elsewhere", by="t")
            opened = AccountOpened(account="elsewhere", unit="usd", why="w")
            other.append(lambda _: [opened], at=AT)  # noqa: B023
            assert found(changed), (key, data)


def test_an_experiments_record_is_its_own(objects: dict[str, bytes]) -> None:
    (key,) = (key for key in record_keys(objects) if "/experiment/" in key)
    changed = {**objects, key: AccountOf(account="paid", experiment="other").to_bytes()}
    assert ("I2", "an experiment's record is its own", "it is of other") in found(MemoryStore(changed))


def test_an_experiment_that_spends_from_two_accounts_is_found() -> None:
    # covers I6, BUD-09
    store = ledger_with()
    other = Ledger(store, "other", by="t")
    other.append(lambda _: [AccountOpened(account="other", unit="usd", why="w"), a_plan()], at=AT)
    wrong = found(store)
    assert {rule for _, rule, _ in wrong} == {"what spends from an account belongs to it"}
    assert {text for _, _, text in wrong} == {
        "digits spends from other, and its experiment belongs to digits",
        "digits spends from other, and its decision belongs to digits",
    }


def test_parting_lets_a_decision_have_two_accounts() -> None:
    store = ledger_with()
    other = join_account(store, identity("b"), None, unit="usd", by="t", at=AT)
    other.append(lambda _: [a_plan("b", decision="digits")], at=AT)
    decision = layout.account_of("decision", digest("decision digits"))
    assert [f.key for f in check(store, read_data=False).findings] == [decision]
    parted = Parted(experiment="b", account="b", reason="its own grant", person="mira")
    Ledger(store, "digits", by="mira").append(lambda _: [parted], at=AT)
    assert check(store, read_data=False).ok


def test_what_nobody_spends_by_is_an_orphan(objects: dict[str, bytes]) -> None:
    strays = [layout.account_of(kind, digest(kind)) for kind in ("decision", "lineage", "data")]
    record = AccountOf(account="nobody", experiment="nobody").to_bytes()
    report = check(MemoryStore({**objects, **dict.fromkeys(strays, record)}), read_data=True)
    assert report.ok
    assert sorted(report.orphans) == sorted(Listed(key, len(record)) for key in strays)


def test_the_weights_that_paid_work_starts_from_are_no_orphan(objects: dict[str, bytes]) -> None:
    key = layout.account_of("lineage", digest("weights"))
    record = AccountOf(account="paid", experiment="paid").to_bytes()
    report = check(MemoryStore({**objects, key: record}), read_data=True)
    assert (report.findings, report.orphans) == ((), ())


def test_a_plan_that_is_locked_later_has_its_identities() -> None:
    store = MemoryStore()
    made = paid_run(store)
    later = made.locked.model_copy(update={"contract": sha256(b"later")})
    key = layout.account_of("data", data_identity(later.data, later.contract))
    store.put_new(key, AccountOf(account="paid", experiment="paid").to_bytes())
    assert [listed.key for listed in check_invariants(store).orphans] == [key]
    log = layout.experiment_log("paid")
    Log(store, log, ExperimentEntry, by="t").append(lambda _: [later], at=AT)
    assert check_invariants(store).orphans == ()


# --- starts and reservations --------------------------------------------------------------------------------


def started(store: MemoryStore, lease: str | None) -> list[tuple[str, str, str]]:
    """What is found of one more attempt, with this lease, that nobody asked the ledger for."""
    made = PaidRun(store, experiment="paid")
    made.freeze()
    made.launch()
    made.begin()
    made.rows(5)
    made.end("killed")
    event = next(e for e in made.log.state.attempts if isinstance(e, AttemptStarted))
    made.say([event.model_copy(update={"attempt": 2, "lease": lease})])
    return found(store)


RULE = "nothing starts without a durable reservation"


def test_a_start_without_a_reservation_is_found() -> None:
    # covers I6
    assert started(MemoryStore(), "paid-launch-9-1") == [
        ("I6", RULE, "attempt 2 of paid: lease paid-launch-9-1 is not reserved in paid")
    ]


def test_a_start_that_names_no_lease_is_found() -> None:
    # covers I6
    assert started(MemoryStore(), None) == [("I6", RULE, "attempt 2 names no lease, as those before it do")]


def test_a_retry_on_the_lease_of_the_attempt_before_is_found() -> None:
    # covers I6: each retry has a reservation of its own
    assert started(MemoryStore(), "paid-launch-1-1") == [
        ("I6", RULE, "attempt 2 of paid has lease paid-launch-1-1, and is not the first")
    ]


def test_a_start_on_another_experiments_lease_is_found() -> None:
    # covers I6
    store = MemoryStore()
    join_account(store, identity("digits"), "paid", unit="usd", by="t", at=AT).decide_all(
        [ask_plan(a_plan()), ask("theirs"), ask_settle("theirs")], at=AT
    )
    paid = PaidRun(store, experiment="paid")
    paid.account = "paid"
    assert started(store, "theirs") == [
        ("I6", RULE, "attempt 2 of paid: lease theirs is reserved for digits in paid")
    ]


def test_a_start_of_an_experiment_without_an_account_is_found() -> None:
    # covers I6
    store = MemoryStore()
    made = PaidRun(store, experiment="paid")
    made.freeze()
    made.launch()
    super(PaidRun, made).begin(lease="x")
    key = layout.account_of("experiment", digest_of("paid"))
    store.delete(key)
    assert ("I6", "what spends from an account belongs to it", f"{key} is missing") in found(store)


def test_a_run_of_before_there_were_ledgers_is_whole() -> None:
    store = MemoryStore()
    make_run(store)
    assert check_invariants(store).counts.get("accounts", 0) == 0


# --- no false alarm -----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_crash_at_any_step_no_promise_is_broken(when: str) -> None:
    # covers I6, F1
    steps = FaultStore(MemoryStore())
    paid_run(steps)
    total = len(steps.fault.operations)
    for at in range(1, total + 1, 3):
        store = MemoryStore()
        fault = Fault(crash, at=at, when=when)  # type: ignore[arg-type]
        with contextlib.suppress(Crash):
            paid_run(FaultStore(store, fault))
        check_invariants(store)
    print(total, "operations")


@pytest.mark.parametrize("seed", range(20))
def test_whatever_people_and_runs_do_there_is_no_false_alarm(seed: int) -> None:
    # covers I6, I12
    rng = random.Random(seed)
    print("seed", seed)
    store = MemoryStore()
    made = PaidRun(store, experiment="paid")
    made.freeze()
    for _ in range(rng.randint(1, 6)):
        rng.choice([_killed, _paused, _replanned, _approved])(made, rng)
    report = check_invariants(store)
    assert not report.unknown
    assert check(store, read_data=False).ok


def _killed(made: PaidRun, rng: random.Random) -> None:
    made.launch()
    made.begin()
    made.rows(rng.randint(1, 5))


def _paused(made: PaidRun, rng: random.Random) -> None:
    _killed(made, rng)
    made.commit("stop")
    made.end("paused")
    if rng.random() < 0.7:
        made.release("paused")


def _replanned(made: PaidRun, rng: random.Random) -> None:
    def ask_replan(book):  # type: ignore[no-untyped-def]
        lines = acts.moved(book.allocations["paid"], [("recovery", "confirmation", usd("0.01"))])
        ceiling = book.allocations["paid"].ceiling
        return acts.replan(book, "paid", lines, ceiling=ceiling, reason="r", person="mira")

    made.ledger.decide(ask_replan, at=made._tick())


def _approved(made: PaidRun, rng: random.Random) -> None:
    covers = rng.randint(usd("20"), usd("70"))
    made.ledger.decide(
        lambda book: acts.approve_plan(book, "paid", covers=covers, projection=digest("p"), person="mira"),
        at=made._tick(),
    )


def test_a_ledger_that_goes_on_beneath_the_check_is_no_fault() -> None:
    # covers I12
    store = MemoryStore()
    made = PaidRun(store, experiment="paid")
    made.freeze()
    made.launch()
    made.begin()

    class Moving(MemoryStore):
        """Launches go on, and an experiment joins, between the listing and the reading, and between readings."""

        def list(self, prefix: str) -> Iterator[Listed]:
            listed = list(super().list(prefix))
            if prefix == "":
                go_on()
            return iter(listed)

        def open(self, key: str):  # type: ignore[no-untyped-def]
            if key.startswith("experiments/paid/runs/main/log/") and key.endswith("2.json"):
                go_on()
            return super().open(key)

    later: list[Callable[[], object]] = [
        lambda: _killed(made, random.Random(1)),
        lambda: _paused(made, random.Random(2)),
        lambda: paid_run(MemoryStore(store.objects), "second"),
    ]

    def go_on() -> None:
        if later:
            later.pop(0)()

    report = check(Moving(store.objects), read_data=True)
    assert report.findings == ()
    assert len(later) <= 1
