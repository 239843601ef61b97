"""SIGKILL at every disk operation of joining an account, planning, reserving and settling; then the power goes.

At each step the store breaks no promise, and who does the same again reaches the same end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from makeledger import AT, a_plan, ask, ask_plan, ask_settle, events, identity, kinds, usd

from raykit.errors import LeaseLostError
from raykit.records import Record
from raykit.store import layout
from raykit.store.accounts import accounts, join_account, open_ledger, related
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.testing import MemoryStore, PowerCut, RecordingDisk
from raykit.testing.invariants import check_invariants

TESTS = Path(__file__).parents[1]


def spend(store: ObjectStore) -> Ledger:
    """What a launch does to its ledger, from nothing to the end of its first attempt."""
    ledger = join_account(store, identity(), None, unit="usd", by="launch", at=AT)
    ledger.decide(ask_plan(a_plan()), at=AT)
    try:
        ledger.decide(ask("digits-1", "1.00"), at=AT)
    except LeaseLostError:  # it was settled before: what a launch takes for the end of that attempt
        return ledger
    ledger.decide(ask_settle("digits-1"), at=AT)
    return ledger


# One interpreter forks a child per k, so that trying all k costs one start.
ALL_K = """
import itertools, json, os, sys
sys.path[:0] = [sys.argv[2], sys.argv[2] + "/crash"]
from test_ledger_kill import spend
from raykit.store.local import LocalStore
from raykit.testing import Fault, FaultDisk, kill

for k in itertools.count(1):
    child = os.fork()
    if child == 0:
        spend(LocalStore(f"{sys.argv[1]}/{k}", disk=FaultDisk(Fault(kill, at=k))))
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([k, status]), flush=True)
    if status == 0:
        break
"""


def kill_at_all_k(root: Path) -> int:
    """Try every k; the number of disk operations that spending has."""
    done = subprocess.run(
        [sys.executable, "-c", ALL_K, str(root), str(TESTS)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    tried = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for _, status in tried] == [-9] * (len(tried) - 1) + [0], "every fault but the last fired"
    return len(tried) - 1


WHOLE = ["account", "planned", "reserved", "settled"]


def progress(store: ObjectStore) -> int:
    """How much of it has been done: identities that are claimed, and events that are written."""
    return len(related(store, identity())) + sum(
        len(events(Ledger(store, a, by="t"))) for a in accounts(store)
    )


def charged_enough(store: ObjectStore) -> bool:
    """Whatever may have started is charged: a reservation that was written counts in full until its end is known."""
    if "digits" not in accounts(store):
        return True
    ledger = Ledger(store, "digits", by="t")
    ledger.refresh()
    lease = ledger.book.leases.get("digits-1")
    return lease is None or ledger.book.charged == usd("1.00")


def test_a_kill_at_any_disk_operation_of_spending(tmp_path: Path) -> None:
    # covers F1, F2, I1, I2, I6, I10, BUD-09
    operations = kill_at_all_k(tmp_path)
    done = []
    for k in range(1, operations + 2):
        store = LocalStore(tmp_path / str(k))
        check_invariants(store)
        assert charged_enough(store), k
        assert len(store.leftovers()) <= 1
        done.append(progress(store))
        again = spend(store)
        assert kinds(again) == WHOLE, k
        assert set(related(store, identity())) == {"experiment", "decision", "data"}
        assert accounts(store) == ["digits"]
        assert again.book.charged == usd("1.00")
        assert not check_invariants(store).findings
        before = {listed.key: store.get(listed.key) for listed in store.list("")}
        spend(store)
        assert {listed.key: store.get(listed.key) for listed in store.list("")} == before
    print(operations, "operations;", done)
    assert done == sorted(done), "what is written stays"
    assert set(done) == set(range(8)), "each of its seven writes was cut off before and after"


def test_no_power_cut_forgets_what_was_answered(tmp_path: Path) -> None:
    # covers F3, I6, I10
    disk = RecordingDisk()
    root = tmp_path / "root"
    store = Acknowledging(root, disk)
    spend(store)
    states: dict[frozenset[str], dict[str, bytes]] = {}
    count = 0
    for state in PowerCut(root, disk.trace).states():
        count += 1
        lost = [key for key, data in state.acknowledged.items() if state.objects.get(key) != data]
        assert not lost, state.story
        states.setdefault(frozenset(state.objects.items()), dict(state.objects))  # type: ignore[arg-type]
    for objects in states.values():
        after = MemoryStore(objects)
        check_invariants(after)
        assert kinds(spend(after)) == WHOLE
        check_invariants(after)
    print(count, "states,", len(states), "of them different")
    assert count > 3000
    assert len(states) > 14


class Acknowledging(LocalStore):
    """Notes what it has answered for."""

    def __init__(self, root: Path, disk: RecordingDisk) -> None:
        super().__init__(root, disk=disk)
        self.recorded = disk

    def put_new(self, key, data):  # type: ignore[no-untyped-def]
        stored = super().put_new(key, data)
        self.recorded.acknowledge(key, bytes(data))
        return stored


def test_what_was_reserved_is_found_by_who_comes_after(tmp_path: Path) -> None:
    """A launch that was killed in the middle of its work has its worst case in the ledger, for everyone to see."""
    store = LocalStore(tmp_path)
    ledger = join_account(store, identity(), None, unit="usd", by="launch", at=AT)
    ledger.decide_all([ask_plan(a_plan()), ask("digits-1", "4.00")], at=AT)
    other: list[Record] = [*open_ledger(LocalStore(tmp_path), "digits", by="next").entries[-1].events]
    assert [type(event).__name__ for event in other] == ["Planned", "Reserved"]
    (refused,) = open_ledger(LocalStore(tmp_path), "digits", by="next").decide_all(
        [ask("digits-2", "1.00")], at=AT
    )
    assert "5.00" in str(refused)
    assert store.head(layout.log_entry(layout.account_log("digits"), 3)) is None
