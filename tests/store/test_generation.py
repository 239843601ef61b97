"""Units of synthetic sets on every store: claimed by one, decided once, whatever is lost, late, full or killed."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import servers
from makerun import ELSEWHERE

from raykit.errors import (
    ConflictError,
    CorruptError,
    InvalidInput,
    NotFoundError,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.ids import sha256
from raykit.records import (
    Claim,
    Column,
    Failure,
    GenerationContract,
    Reuse,
    Rows,
    SetManifest,
    UnitReceipt,
)
from raykit.shards.closing import close
from raykit.shards.units import unit_id, unit_of, units_of
from raykit.store import layout, s3
from raykit.store.attempts import differing, sealed
from raykit.store.base import ObjectStore
from raykit.store.generation import Published, Shards, read_contract
from raykit.store.local import LocalStore
from raykit.store.parquet import parquet_bytes, read_parquet, schema_of
from raykit.testing import Fault, FaultDisk, FaultStore, MemoryStore, disk_error, kill, reply_lost

MakeStore = Callable[..., ObjectStore]

D = sha256(b"any")
AT = 1_800_000_000.0
COLUMNS = (Column(name="row", type="int64"), Column(name="text", type="string"))

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["pytest", "raykit.store.generation", "raykit.testing"])


@pytest.fixture(params=["memory", "local", "moto", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return LocalStore(tmp_path)
    make = request.getfixturevalue("make_s3")
    return make(request.getfixturevalue(request.param).endpoint)  # type: ignore[no-any-return]


def contract(**traits: Any) -> GenerationContract:
    """30 rows in 8 units, of which the last one has 2."""
    terms: dict[str, Any] = {
        "experiment": "digits",
        "name": "twins",
        "teacher": D,
        "recipe": "recipe:Digits",
        "params": {},
        "code": D,
        "decode": {},
        "seed": 0,
        "revision": 1,
        "dtype": "float32",
        "autocast": "none",
        "deterministic": True,
        "threads": 1,
        "batch_rows": 4,
        "samples": 1,
        "rows": 30,
        "unit_rows": 4,
        "columns": COLUMNS,
        "bounds": {"failed": 0.5},
    }
    return GenerationContract(**{**terms, **traits})


def shards(store: ObjectStore, **traits: Any) -> Shards:
    """One object at a time, so that a fault has its place."""
    return Shards(store, contract(**traits), threads=1)


def made(at: Shards, unit: int, *, salt: str = "") -> tuple[UnitReceipt, bytes]:
    """What every honest attempt at a unit gives, without `salt`: its last row has failed."""
    there = unit_of(at.contract, unit)
    rows = list(range(there.first, there.first + there.rows - 1))
    table = pa.table(
        {"row": rows, "text": [f"{row}{salt}" for row in rows]}, schema=schema_of(at.contract.columns)
    )
    data = parquet_bytes(table)
    receipt = UnitReceipt(
        contract=at.digest,
        unit=unit,
        rows=Rows(requested=there.rows, produced=len(rows), filtered=0, failed=1),
        failed={"ValueError": 1},
        failed_rows=(there.first + there.rows - 1,),
        sha256=sha256(data),
        size_bytes=len(data),
    )
    return receipt, data


def claim(at: Shards, unit: int, n: int = 1, worker: str = "gen-1") -> Claim | None:
    return at.claim(unit, n, worker=worker, place=ELSEWHERE, at=AT, deadline_s=60.0)


def failure(at: Shards, unit: int, n: int = 1, said_by: str = "gen-1") -> Failure:
    return Failure(
        request=unit_id(at.digest, unit),
        n=n,
        kind="lost",
        signature=D,
        message="gone",
        worker="gen-1",
        said_by=said_by,
        at=AT,
    )


def publish(at: Shards, unit: int, *, n: int = 1, worker: str = "gen-1", salt: str = "") -> Published:
    return at.publish(*made(at, unit, salt=salt), n=n, worker=worker)


def make(at: Shards, *units: int) -> None:
    """Claim and publish, as one worker does; all units if none are named."""
    for unit in units or range(units_of(at.contract)):
        claim(at, unit)
        publish(at, unit)


def manifest_of(at: Shards) -> SetManifest:
    return close(at.contract, at.receipts(), scripted=False)


def finish(at: Shards) -> SetManifest:
    """All of it again, whatever is there: what a launch that was killed does at its next start."""
    at.freeze()
    make(at)
    manifest = manifest_of(at)
    at.close(manifest)
    return manifest


def objects_of(store: ObjectStore) -> dict[str, bytes]:
    return {listed.key: store.get(listed.key) for listed in store.list("")}


# --- on every store -------------------------------------------------------------------------------------------


def test_a_contract_comes_back_as_it_was_frozen(store: ObjectStore) -> None:
    # covers GEN-04, GEN-05, GEN-06, I14
    at = shards(store)
    for _ in range(2):
        at.freeze()
    assert read_contract(store, "digits", "twins", at.digest) == at.contract
    with pytest.raises(CorruptError, match="is missing"):
        read_contract(store, "digits", "twins", D)
    store.put_new(layout.generation_contract("digits", "others", at.digest), at.contract.to_bytes())
    with pytest.raises(CorruptError, match="of another set"):
        read_contract(store, "digits", "others", at.digest)


def test_an_attempt_is_claimed_by_one(store: ObjectStore) -> None:
    # covers I3
    at = shards(store)
    first = claim(at, 3)
    assert first is not None
    assert first.request == unit_id(at.digest, 3)
    assert claim(at, 3, worker="gen-2") is None
    assert claim(at, 3) == first, "its own claim, said again after a lost reply"
    assert claim(at, 3, 2, "gen-2") is not None
    listing = at.listing()
    assert listing.attempts == {3: 2}
    assert [each.worker for each in listing.claims[3]] == ["gen-1", "gen-2"]


def test_the_first_word_on_an_attempt_counts(store: ObjectStore) -> None:
    at = shards(store)
    claim(at, 3)
    assert at.fail(3, failure(at, 3))
    assert at.fail(3, failure(at, 3)), "said again"
    assert not at.fail(3, failure(at, 3, said_by="gen-2"))
    assert at.listing().failures == {3: (failure(at, 3),)}


def test_one_receipt_decides(store: ObjectStore) -> None:
    # covers GEN-10, FLEET-15, I2, I3
    at = shards(store)
    assert at.receipt(3) is None
    receipt, data = made(at, 3)
    other, others = made(at, 3, salt="x")
    assert publish(at, 3) == "written"
    assert publish(at, 3) == "already"
    assert publish(at, 3, n=2, worker="gen-2") == "already"
    for _ in range(2):
        assert publish(at, 3, n=3, worker="gen-3", salt="x") == "conflict"
    assert at.receipt(3) == receipt
    assert at.data(receipt) == data
    (conflict,) = at.listing().conflicts[3]
    assert (conflict.n, conflict.worker, conflict.receipt) == (3, "gen-3", receipt.digest)
    assert conflict.other == other.plain()
    assert conflict.differs == differing(receipt, other) == ("sha256", "size_bytes")
    assert at.data(other) == others, "kept for whoever looks into it"


def test_where_bits_may_differ_the_second_one_is_late(store: ObjectStore) -> None:
    # covers I3
    at = shards(store, exact=False)
    receipt, _ = made(at, 3)
    assert publish(at, 3) == "written"
    assert publish(at, 3, n=2, worker="gen-2", salt="x") == "late"
    assert at.receipt(3) == receipt
    assert [each.worker for each in at.listing().conflicts[3]] == ["gen-2"]


def test_a_set_is_made_and_closed(store: ObjectStore) -> None:
    # covers GEN-09, GEN-11, GEN-15, I11
    at = shards(store)
    manifest = finish(at)
    assert at.manifest() == manifest
    assert [receipt.unit for receipt in at.receipts()] == list(range(8))
    assert [receipt.unit for receipt in at.receipts([6, 2])] == [2, 6]
    assert manifest.rows == Rows(requested=30, produced=22, filtered=0, failed=8)
    there = objects_of(store)
    assert not at.close(manifest)
    assert finish(at) == manifest
    assert objects_of(store) == there, "a finished set made again writes nothing"
    with pytest.raises(ConflictError):
        at.close(manifest.model_copy(update={"scripted": True}))


def test_units_of_an_earlier_contract_are_copied(store: ObjectStore) -> None:
    # covers GEN-12, GEN-16
    old, new = shards(store), successor(store)
    make(old, 0, 1, 2, 5)
    assert new.reuse(old, [0, 1, 5]) == 3
    assert new.reuse(old, [0, 1, 5]) == 0
    assert new.published().tolist() == [0, 1, 5]
    receipt = new.receipt(5)
    before = old.receipt(5)
    assert receipt is not None and before is not None
    assert receipt.reused == old.digest
    assert receipt == before.model_copy(update={"contract": new.digest, "reused": old.digest})
    assert new.data(receipt) == old.data(before)
    assert new.data_key(receipt) != old.data_key(before)


def test_units_that_are_given_up_have_failed(store: ObjectStore) -> None:
    # covers GEN-13
    at = shards(store)
    make(at, 0)
    assert at.give_up([0, 2, 7], "the machine is gone") == 2
    assert at.give_up([0, 2, 7], "the machine is gone") == 0
    kept, receipt = at.receipt(0), at.receipt(7)
    assert kept is not None and receipt is not None
    assert kept.given_up is None, "what is published stays"
    assert receipt.given_up == "the machine is gone"
    assert receipt.rows == Rows(requested=2, produced=0, filtered=0, failed=2)
    assert receipt.failed == {"given up": 2}
    assert receipt.failed_rows == (28, 29)
    assert read_parquet(at.data(receipt), "it").num_rows == 0
    assert publish(at, 7) == "late", "whoever had it in hand comes too late, and it is no conflict"
    assert at.listing().conflicts == {}
    assert at.receipt(7) == receipt


def test_many_units_are_read_in_order(store: ObjectStore) -> None:
    at = Shards(store, contract(rows=80, unit_rows=2, batch_rows=2), threads=8)
    make(at)
    for unit in (3, 4):
        claim(at, unit, 2)
        at.fail(unit, failure(at, unit, 2))
    assert [receipt.unit for receipt in at.receipts()] == list(range(40))
    assert at.listing().published.tolist() == list(range(40))


# --- one wins ---------------------------------------------------------------------------------------------------


def race(racers: int, act: Callable[[int], object]) -> list[object]:
    """What came of it for each of so many threads that begin at once."""
    start, found = threading.Barrier(racers), [None] * racers

    def run(number: int) -> None:
        start.wait(timeout=30)
        found[number] = act(number)  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(racers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_many_who_race_for_one_attempt_one_wins(tmp_path: Path) -> None:
    # covers F8, I3
    for n in range(1, 11):
        won = race(8, lambda i, n=n: claim(shards(LocalStore(tmp_path)), 3, n, f"gen-{i}"))  # type: ignore[misc]
        assert sum(each is not None for each in won) == 1, n


def test_of_many_receipts_one_decides(tmp_path: Path) -> None:
    # covers F8, I3
    for unit in range(5):
        outcomes = race(
            6,
            lambda i, unit=unit: publish(shards(LocalStore(tmp_path)), unit, n=i + 1, salt="x" * (i % 2)),  # type: ignore[misc]
        )
        assert outcomes.count("written") == 1
        assert outcomes.count("already") == 2
        assert outcomes.count("conflict") == 3


def test_two_who_close_at_once_close_it_alike(tmp_path: Path) -> None:
    # covers I3, I11
    at = shards(LocalStore(tmp_path))
    make(at)

    def act(number: int) -> bool:
        own = shards(LocalStore(tmp_path))
        return own.close(manifest_of(own))

    assert sorted(map(bool, race(4, act))) == [False, False, False, True]


# --- the order of writes ----------------------------------------------------------------------------------------


def written(steps: FaultStore) -> list[str]:
    return [step.split("/")[5] for step in steps.fault.operations if step.startswith("put_new")]


def test_a_unit_is_three_writes_rows_first_and_the_receipt_last() -> None:
    # covers I1
    steps = FaultStore(MemoryStore())
    make(shards(steps), 3)
    assert written(steps) == ["claims", "units", "receipts"]
    assert len(steps.fault.operations) == 3


@pytest.mark.parametrize("data", [b"others", b""])
def test_rows_that_are_not_the_receipt_s_are_not_published(data: bytes) -> None:
    # covers I1
    store = MemoryStore()
    at = shards(store)
    with pytest.raises(CorruptError, match="not what its receipt says"):
        at.publish(made(at, 3)[0], data, n=1, worker="gen-1")
    assert store.objects == {}


def test_equal_attempts_write_one_file() -> None:
    # covers GEN-09
    store = MemoryStore()
    at = shards(store)
    for n in (1, 2, 3):
        publish(at, 3, n=n)
    assert len(store.objects) == 2


# --- listing ----------------------------------------------------------------------------------------------------


def test_no_file_of_a_published_unit_is_read() -> None:
    at = shards(MemoryStore())
    make(at)
    steps = FaultStore(at.store)
    listing = shards(steps).listing()
    assert listing.published.tolist() == list(range(8))
    assert listing.attempts == listing.claims == listing.failures == listing.conflicts == {}
    assert [step.split()[0] for step in steps.fault.operations] == ["list"] * 4


def test_what_was_read_of_an_attempt_is_not_read_again() -> None:
    steps = FaultStore(MemoryStore())
    at = shards(steps)
    claim(at, 1)
    at.fail(1, failure(at, 1))
    claim(at, 1, 2)
    first = at.listing()
    before = len(steps.fault.operations)
    assert first.attempts == {1: 2}
    assert at.listing().claims == first.claims
    assert [step.split()[0] for step in steps.fault.operations[before:]] == ["list"] * 4
    publish(at, 1, n=2)
    listing = at.listing()
    assert listing.attempts == listing.claims == {}
    assert listing.failures == {1: (failure(at, 1),)}, "it says what others may fail with"


def test_claims_are_listed_before_whatever_ends_them() -> None:
    """Else an attempt that ends between two listings would look as if nothing had come of it."""
    # covers I3

    class Meanwhile(MemoryStore):
        def list(self, prefix: str) -> Iterator[Any]:
            found = list(super().list(prefix))
            if prefix.endswith("/claims"):
                publish(at, 3)
            return iter(found)

    at = shards(Meanwhile())
    claim(at, 3)
    listing = at.listing()
    assert listing.published.tolist() == [3]
    assert listing.attempts == {}


def test_other_peoples_files_are_not_read() -> None:
    at = shards(MemoryStore())
    make(at, 1)
    claim(at, 2)
    prefix = layout.generation("digits", "twins", at.digest)
    for key in (
        "receipts/notes.txt",
        "receipts/12.json",
        "receipts/00000099.json",
        "receipts/00000003-1.json",
        "claims/00000002.json",
        "claims/00000002-0.json",
        "claims/00000002-x.json",
        "failures/00000002/1.json",
    ):
        at.store.put_new(f"{prefix}/{key}", b"hello")
    listing = at.listing()
    assert listing.published.tolist() == [1]
    assert listing.attempts == {2: 1}


# --- bytes that are not what they were ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["claims", "failures", "conflicts", "receipts"])
def test_a_changed_byte_is_not_believed(kind: str) -> None:
    # covers I2, F9
    store = MemoryStore()
    at = shards(store)
    make(at, 1)
    publish(at, 1, n=2, salt="x")
    claim(at, 2)
    at.fail(2, failure(at, 2))
    unit = 1 if kind in ("receipts", "conflicts") else 2
    (key,) = (each for each in store.objects if f"/{kind}/{unit:08d}" in each)
    for place in range(0, len(store.objects[key]), 7):
        changed = bytearray(store.objects[key])
        changed[place] ^= 1
        damaged = shards(MemoryStore({**store.objects, key: bytes(changed)}))
        with pytest.raises(CorruptError) as caught:
            damaged.listing()
            list(damaged.receipts())
        assert caught.value.remedy is not None


def test_files_that_are_swapped_are_not_believed() -> None:
    # covers I2, I3, F9
    store = MemoryStore()
    at, other = shards(store), shards(store, seed=1)
    for each in (at, other):
        make(each, 1, 2)
        claim(each, 3)
        claim(each, 3, 2)
        claim(each, 4)
    receipts = [at._receipt_key(1), at._receipt_key(2), other._receipt_key(1)]
    for key in receipts[1:]:
        swapped = shards(MemoryStore({**store.objects, receipts[0]: store.objects[key]}))
        with pytest.raises(CorruptError, match="of another unit"):
            swapped.receipt(1)
    claims = [
        at._attempt_key("claims", 3, 1),
        at._attempt_key("claims", 3, 2),
        at._attempt_key("claims", 4, 1),
    ]
    for key in [*claims[1:], other._attempt_key("claims", 3, 1)]:
        swapped = shards(MemoryStore({**store.objects, claims[0]: store.objects[key]}))
        with pytest.raises(CorruptError, match="of another attempt"):
            swapped.listing()


def test_rows_are_held_against_their_digest() -> None:
    # covers GEN-10, I1, I2, F9
    store = MemoryStore()
    at = shards(store)
    make(at, 1)
    receipt = at.receipt(1)
    assert receipt is not None
    key, data = at.data_key(receipt), at.data(receipt)
    for changed in (data[:-1] + b"!", data[:-1], data + b"!"):
        store.objects[key] = changed
        with pytest.raises(CorruptError):
            at.data(receipt)
    del store.objects[key]
    with pytest.raises(CorruptError, match="is missing"):
        at.data(receipt)


def test_a_manifest_is_of_its_contract() -> None:
    # covers I3
    store = MemoryStore()
    at, other = shards(store), shards(store, seed=1)
    assert at.manifest() is None
    finish(at)
    key = layout.generation_manifest("digits", "twins", other.digest)
    store.objects[key] = store.objects[layout.generation_manifest("digits", "twins", at.digest)]
    with pytest.raises(CorruptError, match="of another contract"):
        other.manifest()
    store.objects[key] = b"{}"
    with pytest.raises(CorruptError):
        other.manifest()


def test_a_unit_without_a_receipt_is_not_found() -> None:
    at = shards(MemoryStore())
    make(at, 1)
    with pytest.raises(NotFoundError):
        list(at.receipts([1, 2]))


# --- reuse ------------------------------------------------------------------------------------------------------


def successor(store: ObjectStore, **traits: Any) -> Shards:
    old = contract()
    reuses = Reuse(contract=old.digest, units=((0, 7),))
    return shards(store, **{"seed": 1, "follows": old.digest, "reuses": reuses, **traits})


def test_a_unit_that_was_reused_before_keeps_who_made_it() -> None:
    store = MemoryStore()
    old, new, newest = shards(store), successor(store), shards(store, seed=2)
    make(old, 3)
    new.reuse(old, [3])
    newest.reuse(new, [3])
    receipt = newest.receipt(3)
    assert receipt is not None
    assert receipt.reused == old.digest


@pytest.mark.parametrize(
    "traits",
    [
        {"unit_rows": 5},
        {"samples": 2},
        {"inputs": D},
        {"columns": (*COLUMNS, Column(name="more", type="int64"))},
    ],
)
def test_units_that_would_be_other_rows_are_not_reused(traits: dict[str, Any]) -> None:
    # covers GEN-16
    store = MemoryStore()
    old = shards(store)
    make(old, 0)
    new = successor(store, **traits)
    with pytest.raises(InvalidInput, match="other rows here"):
        new.reuse(old, [0])
    assert new.published().tolist() == []


def test_a_unit_of_another_length_or_without_a_receipt_is_not_reused() -> None:
    store = MemoryStore()
    old, new = shards(store), successor(store, rows=31)
    make(old, 7)
    for unit, why in ((7, "other rows here"), (2, "has not published")):
        with pytest.raises(InvalidInput, match=why):
            new.reuse(old, [unit])


def test_what_was_made_anew_meanwhile_stays() -> None:
    store = MemoryStore()
    old, new = shards(store), successor(store)
    make(old, 0)
    make(new, 0)
    assert new.reuse(old, [0]) == 0
    receipt = new.receipt(0)
    assert receipt is not None
    assert receipt.reused is None


# --- killed at any operation --------------------------------------------------------------------------------------


class Killed(BaseException):
    """Ends everything here, as SIGKILL does."""


def die() -> None:
    raise Killed


def story(at: Shards, old: Shards) -> SetManifest:
    """Everything that writes: a contract, claims, rows, receipts, copies, what is given up, the manifest."""
    at.freeze()
    at.reuse(old, [0, 1])
    make(at, 2, 3)
    at.give_up([4, 5, 6, 7], "no more")
    manifest = manifest_of(at)
    at.close(manifest)
    return manifest


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("act", [die, reply_lost])
def test_any_operation_may_be_the_last_one(when: Any, act: Callable[[], None]) -> None:
    # covers F2, F5, I1, I2, I10, I13
    base = MemoryStore()
    make(shards(base), 0, 1)
    whole = MemoryStore(dict(base.objects))
    steps = FaultStore(whole)
    expected = story(successor(steps), shards(steps))
    assert len(steps.fault.operations) > 30
    for at in range(1, len(steps.fault.operations) + 1):
        store = MemoryStore(dict(base.objects))
        faulty = FaultStore(store, Fault(act, at=at, when=when))
        with pytest.raises((Killed, UnknownOutcomeError)):
            story(successor(faulty), shards(faulty))
        assert faulty.fault.fired
        for receipt in successor(store).receipts():
            successor(store).data(receipt)  # what is published is whole
        assert story(successor(store), shards(store)) == expected, faulty.fault.operations[-1]
        assert store.objects == whole.objects, "not a byte more or less"


def in_a_child(target: Callable[..., None], *arguments: object) -> int | None:
    child = processes.Process(target=target, args=arguments)
    child.start()
    child.join(60)
    code = child.exitcode
    child.close()
    return code


def killed_at(root: str, at: int) -> None:
    store = LocalStore(root, disk=FaultDisk(Fault(kill, at=at)))
    finish(shards(store, rows=8))


def system_calls(root: Path) -> int:
    fault = Fault()
    finish(shards(LocalStore(root, disk=FaultDisk(fault)), rows=8))
    return len(fault.operations)


def kill_at(tmp_path: Path, places: Iterator[int] | range) -> None:
    total = system_calls(tmp_path / "whole")
    assert total > 40
    whole = objects_of(LocalStore(tmp_path / "whole"))
    for at in places:
        if at > total:
            break
        root = tmp_path / str(at)
        assert in_a_child(killed_at, str(root), at) == -9
        finish(shards(LocalStore(root), rows=8))
        assert objects_of(LocalStore(root)) == whole, at


def test_a_process_that_is_killed_at_a_system_call_loses_nothing(tmp_path: Path) -> None:
    # covers F1, F2, I1, I10
    kill_at(tmp_path, range(3, 1000, 9))


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_system_call_loses_nothing(tmp_path: Path) -> None:
    # covers F1, F2, I1, I10
    kill_at(tmp_path, itertools.count(1))


# --- disks and servers that fail ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_full_or_broken_disk_is_said_and_goes_on_once_it_works(tmp_path: Path, number: int) -> None:
    # covers F4, I1, I13
    total = system_calls(tmp_path / "whole")
    whole = objects_of(LocalStore(tmp_path / "whole"))
    for at in range(1, total + 1, 3):
        root = tmp_path / f"{at}"
        fault = Fault(disk_error(number), at=at, forever=True)
        try:
            finish(shards(LocalStore(root, disk=FaultDisk(fault)), rows=8))
        except (StoreUnavailableError, UnknownOutcomeError) as error:
            assert isinstance(error.__cause__, OSError)
        else:
            assert set(fault.operations[at - 1 :]) == {"remove"}, "only a temporary file was left"
        assert finish(shards(LocalStore(root), rows=8)).rows.produced == 6
        assert objects_of(LocalStore(root)) == whole


def limited(root: str) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    at = shards(LocalStore(root))
    receipt, data = made(at, 3)
    large = data + random.Random(0).randbytes(2_000_000)
    too_large = receipt.model_copy(update={"sha256": sha256(large), "size_bytes": len(large)})
    with pytest.raises(StoreUnavailableError):
        at.publish(too_large, large, n=1, worker="gen-1")
    assert at.published().tolist() == []
    assert at.publish(receipt, data, n=1, worker="gen-1") == "written"


def test_rows_that_a_real_disk_does_not_take_leave_no_receipt(tmp_path: Path) -> None:
    # covers F4, I1
    assert in_a_child(limited, str(tmp_path)) == 0


@pytest.fixture
def shaky(proxy: servers.Proxy, make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(s3, "_PAUSE_S", 0.01)
    return make_s3(proxy.endpoint)


def first_time(fault: servers.Fault, applies: Callable[[servers.Request], bool]) -> servers.Script:
    """The fault for the first request of each kind and path to which it applies, and none after."""
    seen: set[tuple[str, str]] = set()
    lock = threading.Lock()

    def script(request: servers.Request) -> servers.Fault | None:
        with lock:
            known = (request.method, request.path) in seen
            seen.add((request.method, request.path))
        return fault if applies(request) and not known else None

    return script


def test_every_reply_that_is_lost_on_the_way_is_found_to_be_a_success(
    proxy: servers.Proxy, shaky: ObjectStore
) -> None:
    # covers F5, I13
    proxy.script = first_time(servers.Fault("cut"), lambda request: request.is_conditional)
    at = shards(shaky)
    at.freeze()
    for unit in range(8):
        assert claim(at, unit) is not None
        assert publish(at, unit) in ("written", "already")
    assert not at.close(manifest_of(at)), "it is there, and it is its own"
    assert proxy.fired["cut"] == 1 + 3 * 8 + 1
    assert at.listing().conflicts == {}


def test_a_server_that_is_busy_at_every_first_request_makes_the_same_set(
    proxy: servers.Proxy, shaky: ObjectStore
) -> None:
    # covers F6
    proxy.script = first_time(servers.Fault("answer", 503), lambda request: True)
    manifest = finish(shards(shaky, rows=12))
    proxy.script = lambda request: None
    assert manifest == finish(shards(MemoryStore(), rows=12))
    assert objects_of(shaky) == whole_set(rows=12).objects


def whole_set(**traits: Any) -> MemoryStore:
    store = MemoryStore()
    finish(shards(store, **traits))
    return store


@pytest.mark.parametrize("seed", range(3))
def test_each_unit_once_though_one_in_five_replies_is_lost(seed: int) -> None:
    # covers F21, I3, I13
    print("seed", seed)
    rng = random.Random(seed)
    store = MemoryStore()

    class Unlucky(FaultStore):
        def put_new(self, key: str, data: Any) -> Any:
            stored = self.inner.put_new(key, data)
            if rng.random() < 0.2:
                reply_lost()
            return stored

    unlucky = Unlucky(store)

    def surely(act: Callable[[], object]) -> object:
        while True:
            try:
                return act()
            except UnknownOutcomeError:
                pass

    for unit in range(8):
        for n in (1, 2):  # a second body, as after a lost request
            at = shards(unlucky)
            surely(lambda at=at, unit=unit, n=n: claim(at, unit, n))  # type: ignore[misc]
            assert surely(lambda at=at, unit=unit, n=n: publish(at, unit, n=n)) in ("written", "already")  # type: ignore[misc]
    assert manifest_of(shards(store)) == manifest_of(shards(whole_set()))
    assert not any("/conflicts/" in key for key in store.objects)


def test_a_seal_is_the_file_s_and_a_digest_the_record_s() -> None:
    store = whole_set()
    at = shards(store)
    receipt = at.receipt(0)
    assert receipt is not None
    assert store.objects[at._receipt_key(0)] == sealed(receipt)
    manifest = at.manifest()
    assert manifest is not None
    assert manifest.units.receipts[0] == receipt.digest == sha256(receipt.to_bytes())
    assert sha256(store.objects[layout.generation_manifest("digits", "twins", at.digest)]) == manifest.digest
