"""How far a set is: the derived table saves reading receipts, and is never believed over them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from makerun import ELSEWHERE
from test_generation import contract, failure, made, make, shards

from raykit.errors import CorruptError
from raykit.records import Rows
from raykit.store import layout
from raykit.store.generation import Shards
from raykit.store.progress import Progress, extended, read_progress, write_snapshot
from raykit.testing import FaultStore, MemoryStore


def key_of(at: Shards) -> str:
    return layout.generation_snapshot("digits", "twins", at.digest)


def figures(progress: Progress) -> tuple[list[int], Rows, int]:
    return progress.units.tolist(), progress.rows, progress.size_bytes


def truth(at: Shards) -> tuple[list[int], Rows, int]:
    """The same from the receipts alone."""
    receipts = list(at.receipts())
    produced = sum(receipt.rows.produced for receipt in receipts)
    failed = sum(receipt.rows.failed for receipt in receipts)
    rows = Rows(requested=produced + failed, produced=produced, filtered=0, failed=failed)
    return [receipt.unit for receipt in receipts], rows, sum(receipt.size_bytes for receipt in receipts)


def reads(steps: FaultStore) -> int:
    return sum(step.startswith("get") and "/receipts/" in step for step in steps.fault.operations)


def test_nothing_is_published_at_first() -> None:
    progress = read_progress(shards(MemoryStore()))
    assert figures(progress) == ([], Rows(requested=0, produced=0, filtered=0, failed=0), 0)
    write_snapshot(shards(progress_store := MemoryStore()), progress)
    assert figures(read_progress(shards(progress_store))) == figures(progress)


def test_only_rows_that_are_persisted_count() -> None:
    # covers GEN-13
    store = MemoryStore()
    at = shards(store)
    make(at, 0, 5)
    at.claim(1, 1, worker="gen-1", place=ELSEWHERE, at=1.0, deadline_s=60.0)
    at.fail(1, failure(at, 1))
    receipt, data = made(at, 2)
    store.put_new(at.data_key(receipt), data)  # of an attempt that was killed before its receipt
    progress = read_progress(at)
    assert figures(progress) == truth(at)
    assert progress.units.tolist() == [0, 5]
    assert progress.rows == Rows(requested=8, produced=6, filtered=0, failed=2)


def test_a_table_saves_reading_what_is_in_it() -> None:
    store = MemoryStore()
    at = shards(store)
    make(at, 0, 5, 2)
    write_snapshot(at, read_progress(at))
    make(at, 1, 7)
    steps = FaultStore(store)
    progress = read_progress(shards(steps))
    assert figures(progress) == truth(at)
    assert progress.units.tolist() == [0, 1, 2, 5, 7], "in order"
    assert reads(steps) == 2
    make(at, 3)
    assert figures(extended(shards(steps), progress)) == truth(at)
    assert reads(steps) == 3


def test_a_unit_counts_only_if_its_receipt_is_there() -> None:
    # covers GEN-13
    store = MemoryStore()
    at = shards(store)
    make(at, 0, 1, 2)
    write_snapshot(at, read_progress(at))
    store.delete(layout.generation_receipt("digits", "twins", at.digest, 1))
    assert read_progress(at).units.tolist() == [0, 2]
    assert figures(read_progress(at)) == truth(at)


def test_a_table_of_another_contract_or_with_a_changed_byte_is_as_good_as_none() -> None:
    # covers F9
    store = MemoryStore()
    at, other = shards(store), shards(store, seed=1)
    make(at, 0, 1, 2)
    make(other, 0, 1)
    whole = read_progress(at)
    lying = whole.accounts.copy()
    lying[0, 1] += 100
    write_snapshot(other, Progress(accounts=lying))
    foreign = store.get(key_of(other))
    write_snapshot(at, whole)
    good = store.get(key_of(at))
    rng = random.Random(7)
    candidates = [foreign, b"", b"hello", good[:-1], good + b"!", good[: len(good) // 2]]
    for _ in range(200):
        changed = bytearray(good)
        changed[rng.randrange(len(good))] ^= 1 << rng.randrange(8)
        candidates.append(bytes(changed))
    for data in candidates:
        store.put_derived(key_of(at), data)
        assert figures(read_progress(at)) == truth(at)


def test_a_damaged_receipt_is_not_guessed_at() -> None:
    # covers I2
    store = MemoryStore()
    at = shards(store)
    make(at, 0)
    store.objects[layout.generation_receipt("digits", "twins", at.digest, 0)] = b"{}"
    with pytest.raises(CorruptError):
        read_progress(at)


@pytest.mark.parametrize("seed", range(4))
def test_whenever_the_table_was_written_the_progress_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    at = Shards(MemoryStore(), contract())
    order = rng.sample(range(8), 8)
    for unit in order:
        make(at, unit)
        if rng.random() < 0.4:
            write_snapshot(at, read_progress(at))
        progress = read_progress(at)
        assert figures(progress) == truth(at)
        assert (np.diff(progress.units) > 0).all()
