"""A new name does not buy a new ceiling: who shares an account with whom, whatever dies on the way."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from makeledger import (
    AT,
    a_plan,
    ask,
    ask_plan,
    ask_settle,
    digest,
    identity,
    kinds,
    usd,
)

from raykit.errors import ApprovalError, CorruptError, InvalidInput, NotFoundError, UnknownOutcomeError
from raykit.ids import digest_of
from raykit.records import AccountOf, Parted
from raykit.store import LocalStore, layout
from raykit.store.accounts import (
    Identity,
    account_of,
    accounts,
    choose_account,
    data_identity,
    join_account,
    open_ledger,
    related,
)
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost
from raykit.testing.invariants import check_invariants


def join(store: ObjectStore, who: Identity, named: str | None = None) -> Ledger:
    return join_account(store, who, named, unit="usd", by="launch", at=AT)


def part(store: ObjectStore, experiment: str, *, source: str, target: str) -> None:
    """A person lets an experiment have another account than that of related work."""
    event = Parted(experiment=experiment, account=target, reason="its own grant pays", person="mira")
    Ledger(store, source, by="mira").decide(lambda book: event, at=AT)


# --- who shares with whom -----------------------------------------------------------------------------------


def test_unrelated_work_has_accounts_of_its_own() -> None:
    store = MemoryStore()
    assert join(store, identity("a")).account == "a"
    assert join(store, identity("b")).account == "b"
    assert accounts(store) == ["a", "b"]
    assert account_of(store, "a") == "a"
    assert account_of(store, "c") is None
    check_invariants(store)


@pytest.mark.parametrize(
    "renamed",
    [
        identity("b", decision="a"),
        identity("b", data="a"),
        identity("b", decision="a", data="a"),
        Identity(experiment="b", decision=digest("x"), lineage=digest("lineage a")),
    ],
    ids=["the same decision", "the same data and contract", "both", "the same weights to start from"],
)
def test_related_work_is_one_account(renamed: Identity) -> None:
    # covers BUD-09
    store = MemoryStore()
    first = Identity(
        experiment="a",
        decision=digest("decision a"),
        lineage=digest("lineage a"),
        data=digest("data a"),
    )
    join(store, first)
    assert choose_account(store, renamed, None) == "a"
    assert join(store, renamed).account == "a"
    assert account_of(store, "b") == "a"
    assert accounts(store) == ["a"]


def test_work_that_names_an_account_shares_it() -> None:
    store = MemoryStore()
    join(store, identity("a"), "team")
    assert join(store, identity("b"), "team").account == "team"
    assert join(store, identity("c", decision="b")).account == "team"
    assert accounts(store) == ["team"]


def test_an_experiment_keeps_its_account() -> None:
    store = MemoryStore()
    join(store, identity("a"), "team")
    assert join(store, identity("a")).account == "team"
    before = dict(store.objects)
    with pytest.raises(ApprovalError, match="a has spent from account team, and stays with it") as refused:
        join(store, identity("a"), "fresh")
    assert refused.value.remedy == "leave budget.account as it was"
    assert store.objects == before


def test_a_renamed_experiment_spends_what_is_left() -> None:
    # covers GOLD-16, BUD-09
    store = MemoryStore()
    join(store, identity("a")).decide_all(
        [ask_plan(a_plan("a")), ask("a-1", "3.00", experiment="a"), ask_settle("a-1")], at=AT
    )
    renamed = join(store, identity("b", decision="a"))
    renamed.decide(ask_plan(a_plan("b", decision="a")), at=AT)
    with pytest.raises(ApprovalError, match=r"account a would come to 5\.00"):
        renamed.decide(ask("b-1", "2.00", experiment="b"), at=AT)
    assert renamed.decide(ask("b-1", "1.99", experiment="b"), at=AT)
    assert renamed.book.charged == usd("4.99")


def test_a_related_plan_cannot_name_another_account() -> None:
    # covers BUD-09
    store = MemoryStore()
    join(store, identity("a"))
    before = dict(store.objects)
    with pytest.raises(ApprovalError) as refused:
        join(store, identity("b", decision="a"), "fresh")
    assert str(refused.value) == (
        "the decision of b belongs to account a, where a came first; account fresh cannot pay for it"
    )
    assert refused.value.field == "budget.account"
    assert refused.value.remedy == (
        'budget.account = "a", or, as a person: raykit budget part b --from a --to fresh --reason ...'
    )
    assert store.objects == before


def test_work_that_is_related_to_two_accounts_waits_for_a_person() -> None:
    store = MemoryStore()
    join(store, identity("a"))
    join(store, identity("b"))
    both = identity("c", decision="a", data="b")
    for named in (None, "a", "b", "c"):
        with pytest.raises(ApprovalError, match="cannot pay for it"):
            join(store, both, named)
    part(store, "c", source="b", target="a")
    assert join(store, both).account == "a"
    with pytest.raises(ApprovalError, match="stays with it"):
        join(store, both, "b")


def test_an_edited_plan_does_not_slip_into_another_account() -> None:
    """A cheap start under its own account, then the decision of a plan that is out of money."""
    store = MemoryStore()
    join(store, identity("dear"))
    join(store, identity("cheap"))
    with pytest.raises(ApprovalError, match="the decision of cheap belongs to account dear"):
        join(store, identity("cheap", decision="dear"))
    # A decision that is new to everybody is claimed for the account that the experiment has.
    join(store, identity("cheap", decision="new"))
    assert join(store, identity("third", decision="new")).account == "cheap"


def test_a_person_may_part_related_work() -> None:
    store = MemoryStore()
    join(store, identity("a"))
    part(store, "b", source="a", target="other")
    with pytest.raises(ApprovalError):
        join(store, identity("b", decision="a"), "fresh")
    assert join(store, identity("b", decision="a"), "other").account == "other"
    with pytest.raises(ApprovalError):
        join(store, identity("c", decision="a"), "other")
    for who, account in (("a", "a"), ("b", "other")):
        open_ledger(store, who, by="t").decide(ask_plan(a_plan(who, decision="a")), at=AT)
        assert open_ledger(store, who, by="t").account == account
    check_invariants(store)


def test_without_a_name_parted_work_still_goes_where_it_is_related() -> None:
    store = MemoryStore()
    join(store, identity("a"))
    part(store, "b", source="a", target="b")
    assert choose_account(store, identity("b", decision="a"), None) == "a"
    assert choose_account(store, identity("b", decision="a"), "b") == "b"


def test_one_account_has_one_unit() -> None:
    store = MemoryStore()
    join(store, identity("a"), "team")
    before = dict(store.objects)
    with pytest.raises(InvalidInput, match="account team is kept in usd, and the plan in accelerator-hours"):
        join_account(store, identity("b"), "team", unit="accelerator-hours", by="launch", at=AT)
    assert store.objects == before, "a refusal writes nothing"


def test_an_experiment_that_was_never_launched_has_no_ledger() -> None:
    with pytest.raises(NotFoundError, match="never launched"):
        open_ledger(MemoryStore(), "a", by="t")


def test_joining_again_writes_nothing() -> None:
    # covers I11
    store = MemoryStore()
    join(store, identity("a"))
    before = dict(store.objects)
    assert kinds(join(store, identity("a"))) == ["account"]
    assert store.objects == before


def test_a_record_that_was_changed_is_refused() -> None:
    store = MemoryStore()
    join(store, identity("a"))
    key = layout.account_of("experiment", digest_of("a"))
    store.objects[key] = store.objects[key].replace(b'"account":"a"', b'"acount":"b"')
    with pytest.raises(CorruptError, match=key):
        account_of(store, "a")


def test_the_identity_of_data_is_that_of_both() -> None:
    one, two = digest("1"), digest("2")
    assert len({data_identity(a, b) for a, b in itertools.product((one, two), repeat=2)}) == 4


# --- crashes and lost replies -------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


MOMENTS = ("before", "after")


def interrupted(at: int, when: str, who: Identity) -> Iterator[MemoryStore]:
    """A store in which `who` was joining when the process died; nothing once it was through before."""
    store = MemoryStore()
    fault = Fault(crash, at=at, when=when)  # type: ignore[arg-type]
    try:
        join(FaultStore(store, fault), who)
    except Crash:
        yield store
    else:
        if fault.fired:  # a snapshot is derived: nothing that is raised there gets out
            yield store


def operations(who: Identity) -> int:
    steps = FaultStore(MemoryStore())
    join(steps, who)
    return len(steps.fault.operations)


@pytest.mark.parametrize("when", MOMENTS)
def test_after_a_crash_anywhere_the_same_call_goes_on(when: str) -> None:
    # covers F1, I1, BUD-09
    tried = 0
    for at in range(1, operations(identity("a")) + 1):
        for store in interrupted(at, when, identity("a")):
            tried += 1
            check_invariants(store)
            assert join(store, identity("a")).account == "a"
            assert not check_invariants(store).findings
            assert set(related(store, identity("a"))) == {"experiment", "decision", "data"}
            assert kinds(open_ledger(store, "a", by="t")) == ["account"]
    # Six operations end with an answer; a get of what is not there has no "after".
    assert tried == (operations(identity("a")) if when == "before" else 6)


@pytest.mark.parametrize("when", MOMENTS)
def test_no_crash_lets_one_decision_have_two_accounts(when: str) -> None:
    # covers BUD-09
    for at in range(1, operations(identity("a")) + 1):
        for store in interrupted(at, when, identity("a")):
            second = join(store, identity("b", decision="a")).account
            assert join(store, identity("a")).account == second
            assert account_of(store, "a") == account_of(store, "b") == second
            assert accounts(store) == [second]


def test_after_every_lost_reply_the_same_call_goes_on() -> None:
    # covers I13
    for at in range(1, operations(identity("a")) + 1):
        store = MemoryStore()
        fault = Fault(reply_lost, at=at, when="after")
        faulty = FaultStore(store, fault)
        try:
            ledger = join(faulty, identity("a"))
        except UnknownOutcomeError:
            ledger = join(faulty, identity("a"))
        assert kinds(ledger) == ["account"]
        check_invariants(store)


# --- races --------------------------------------------------------------------------------------------------


class Rival(MemoryStore):
    """Somebody else does `act` just before the put number `at`."""

    def __init__(self, at: int, who: Identity) -> None:
        super().__init__()
        self.at, self.who = at, who
        self.puts = 0
        self.met: str | None = None

    def put_new(self, key: str, data):  # type: ignore[no-untyped-def]
        self.puts += 1
        if self.puts == self.at:
            self.met = join(MemoryStore(self.objects), self.who).account
        return super().put_new(key, data)


@pytest.mark.parametrize(
    "rival",
    [identity("b", decision="a"), identity("b", decision="a", data="a"), identity("a"), identity("c")],
    ids=["one decision", "one decision, data and contract", "the same experiment", "unrelated"],
)
def test_whoever_comes_in_between_the_account_is_one(rival: Identity) -> None:
    # covers BUD-09
    met = 0
    for at in range(1, 6):
        store = Rival(at, rival)
        account = join(store, identity("a")).account
        if store.met is None:
            break
        met += 1
        shared = {account, store.met}
        assert len(shared) == (2 if rival.experiment == "c" else 1), at
        assert accounts(store) == sorted(shared)
        check_invariants(store)
    assert met >= 4


def test_two_that_claim_half_of_each_other_wait_for_a_person() -> None:
    """Decisions differ, data are one, and both came at once: nobody can tell whose money it is."""
    store = Rival(2, identity("b", data="a"))  # `a` has claimed its decision, `b` claims the data
    with pytest.raises(
        ApprovalError, match="the data of a belongs to account b, where b came first"
    ) as refused:
        join(store, identity("a"))
    assert "raykit budget part a --from b --to a" in str(refused.value.remedy)
    assert account_of(store, "a") is None, "it has no account yet, so it spends nothing"
    check_invariants(store)
    part(store, "a", source="b", target="a")
    assert join(store, identity("a")).account == "a"
    check_invariants(store)


@pytest.mark.parametrize("where", ["memory", "disk"])
@pytest.mark.parametrize("shared", ["decision", "data", "both"])
def test_many_launches_at_once_share_one_account(where: str, shared: str, tmp_path: Path) -> None:
    # covers BUD-09, F14
    for number in range(8):
        store: ObjectStore = MemoryStore() if where == "memory" else LocalStore(tmp_path / str(number))
        found = launch_at_once(store, shared)
        spent = [account for account in found.values() if account is not None]
        if shared != "data":
            assert None not in found.values(), "whoever claims a decision second has claimed nothing yet"
        assert len(set(spent)) == 1
        assert accounts(store) == [*set(spent)]
        assert {account_of(store, name) for name in found} == set(found.values())
        check_invariants(store)


def launch_at_once(store: ObjectStore, shared: str) -> dict[str, str | None]:
    """By experiment of eight: the account that it has joined, None if a person has to decide."""
    found: dict[str, str | None] = {}
    gate = threading.Barrier(8)

    def launch(name: str) -> None:
        who = identity(
            name,
            decision="one" if shared in ("decision", "both") else None,
            data="one" if shared in ("data", "both") else None,
        )
        gate.wait(10)
        try:
            found[name] = join(store, who).account
        except ApprovalError:
            found[name] = None

    threads = [threading.Thread(target=launch, args=(f"e{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    return found


def test_an_account_of_record_is_canonical() -> None:
    store = MemoryStore()
    join(store, identity("a"))
    for key, data in store.objects.items():
        if key.startswith("accounts/by/"):
            assert data == AccountOf(account="a", experiment="a").to_bytes()


def test_an_experiment_that_became_related_later_may_be_parted() -> None:
    store = MemoryStore()
    join(store, identity("dear"))
    join(store, identity("own"))
    with pytest.raises(ApprovalError) as refused:
        join(store, identity("own", decision="dear"))
    assert "raykit budget part own --from dear --to own" in str(refused.value.remedy)
    part(store, "own", source="dear", target="own")
    assert join(store, identity("own", decision="dear")).account == "own"
