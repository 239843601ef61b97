"""The promises of `raykit.store.base` as tests, for any store.

class TestMyStore(StoreTests):
    @pytest.fixture
    def store(self):
        return MyStore(...)                 # empty, and its own for every test
"""

from __future__ import annotations

import array
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from raykit.errors import ConflictError, CorruptError, NotFoundError, UnsafeNameError
from raykit.store.base import Chunk, Listed, ObjectStore, Put
from raykit.store.folders import folders
from raykit.store.probe import probe

BAD_KEYS = (
    "",
    "/",
    "/abs",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../b",
    "a/./b",
    ".hidden",
    ".tmp/a",
    "a/.tmp",
    "-a",
    "_a",
    "a b",
    "a ",
    " a",
    "a\n",
    "a\x00b",
    "a\\b",
    "A",
    "CON",
    "a:b",
    "c:/a",
    "a#b",
    "a?b",
    "a;b",
    "a%2e%2e",
    "%2e%2e/a",
    "~root",
    "simplecache::a",
    "file://a",
    "s3://other/a",
    "caf\u00e9",
    "cafe\u0301",
    "\u0430",
    "a\u202eb",
    "a" * 129,
    "/".join(["a" * 100] * 11),
)
"""Keys that every verb of every store refuses."""


class StoreTests:
    """Subclass it and give it a `store` fixture."""

    large_bytes = 20 * 1024 * 1024
    """The size of a large object: above the size from which the store streams or splits."""

    many = 1100
    """The number of keys in a long listing: above the size of a page."""

    # --- put_new ------------------------------------------------------------------------------------------

    def test_a_new_key_holds_its_bytes(self, store: ObjectStore) -> None:
        stored = store.put_new("a/b/c.json", b"bytes")
        assert stored == (Put.WRITTEN, hashlib.sha256(b"bytes").hexdigest(), 5)
        assert store.get("a/b/c.json") == b"bytes"
        assert store.head("a/b/c.json") == 5

    def test_the_same_bytes_again_are_success(self, store: ObjectStore) -> None:
        first = store.put_new("key", b"bytes")
        again = store.put_new("key", b"bytes")
        assert again == (Put.ALREADY_MINE, first.sha256, first.size_bytes)

    @pytest.mark.parametrize("other", [b"BYTES", b"byte", b"bytes!", b""])
    def test_other_bytes_are_a_conflict_and_change_nothing(self, store: ObjectStore, other: bytes) -> None:
        store.put_new("key", b"bytes")
        for _ in range(2):
            with pytest.raises(ConflictError):
                store.put_new("key", other)
        assert store.get("key") == b"bytes"
        assert store.put_new("key", b"bytes").outcome is Put.ALREADY_MINE

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        assert store.put_new("empty", b"").outcome is Put.WRITTEN
        assert store.put_new("empty", iter([])).outcome is Put.ALREADY_MINE
        assert store.get("empty") == b""
        assert store.head("empty") == 0
        assert list(store.list("")) == [Listed("empty", 0)]
        with store.open("empty") as file:
            assert file.read() == b""

    def test_any_buffer_and_any_stream_of_buffers_can_be_put(self, store: ObjectStore) -> None:
        numbers = array.array("d", [1.5, 2.5])
        pieces: list[Chunk] = [b"one", bytearray(b"two"), memoryview(numbers), b""]
        expected = b"onetwo" + numbers.tobytes()
        assert store.put_new("stream", iter(pieces)).size_bytes == len(expected)
        assert store.get("stream") == expected
        for i, piece in enumerate(pieces):
            store.put_new(f"piece-{i}", piece)
            assert store.get(f"piece-{i}") == bytes(piece)

    def test_a_producer_may_reuse_its_buffer(self, store: ObjectStore) -> None:
        buffer = bytearray(1024 * 1024)

        def pieces() -> Iterator[memoryview]:
            for i in range(4):
                buffer[:] = bytes([i]) * len(buffer)
                yield memoryview(buffer)

        expected = b"".join(bytes([i]) * len(buffer) for i in range(4))
        stored = store.put_new("reused", pieces())
        assert stored.sha256 == hashlib.sha256(expected).hexdigest()
        assert store.get("reused") == expected

    def test_a_producer_that_fails_leaves_nothing(self, store: ObjectStore) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"half"
            raise RuntimeError("the producer failed")

        for put in (store.put_new, store.put_derived):
            with pytest.raises(RuntimeError, match="the producer failed"):
                put("half", pieces())
        assert store.head("half") is None
        assert list(store.list("")) == []

    def test_a_large_stream_is_one_object(self, store: ObjectStore) -> None:
        block = hashlib.sha256(b"block").digest() * (1024 * 1024 // 32)
        count = self.large_bytes // len(block)
        digest = hashlib.sha256(block * count).hexdigest()
        assert store.put_new("large", itertools.repeat(block, count)) == (
            Put.WRITTEN,
            digest,
            self.large_bytes,
        )
        assert store.head("large") == self.large_bytes
        with store.open("large") as file:
            read = hashlib.sha256()
            while piece := file.read(300_001):
                read.update(piece)
        assert read.hexdigest() == digest
        assert store.put_new("large", block * count).outcome is Put.ALREADY_MINE
        with pytest.raises(ConflictError):
            store.put_new("large", itertools.chain(itertools.repeat(block, count - 1), [block[:-1], b"!"]))
        assert hashlib.sha256(store.get("large")).hexdigest() == digest

    # --- races --------------------------------------------------------------------------------------------

    def test_of_many_writers_exactly_one_wins(self, store: ObjectStore) -> None:
        bodies = [b"writer %d" % n for n in range(4)]
        for i in range(3):
            outcomes = _race(store, f"key-{i}", bodies)
            winners = [body for body, outcome in zip(bodies, outcomes, strict=True) if outcome is Put.WRITTEN]
            assert len(winners) == 1
            assert outcomes.count(ConflictError) == 3
            assert store.get(f"key-{i}") == winners[0]

    def test_of_many_equal_writers_all_succeed(self, store: ObjectStore) -> None:
        for i in range(2):
            outcomes = _race(store, f"key-{i}", [b"the same"] * 4)
            assert outcomes.count(Put.WRITTEN) == 1
            assert outcomes.count(Put.ALREADY_MINE) == 3

    # --- reading ------------------------------------------------------------------------------------------

    def test_what_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        store.put_new("a/b", b"")
        for key in ("missing", "a", "a/b/c", "a/c"):
            assert store.head(key) is None
            with pytest.raises(NotFoundError):
                store.get(key)
            with pytest.raises(KeyError):
                store.open(key)

    def test_a_reader_may_bound_what_it_takes(self, store: ObjectStore) -> None:
        store.put_new("key", b"12345")
        assert store.get("key", max_bytes=5) == b"12345"
        with pytest.raises(CorruptError):
            store.get("key", max_bytes=4)

    def test_a_stream_can_be_read_in_pieces_and_left(self, store: ObjectStore) -> None:
        store.put_new("key", b"0123456789")
        with store.open("key") as file:
            assert [file.read(4), file.read(4), file.read(4), file.read(4)] == [b"0123", b"4567", b"89", b""]
        file = store.open("key")
        assert file.read(1) == b"0"
        file.close()
        assert file.closed

    # --- list ---------------------------------------------------------------------------------------------

    def test_a_listing_is_in_key_order_and_stays_under_its_prefix(self, store: ObjectStore) -> None:
        keys = ["a-b", "a.json", "a/b-c/d", "a/b.x", "a/b/c", "a/b/c.d", "a/b0", "a0/b", "a_b", "ab", "b/a"]
        for key in reversed(keys):
            store.put_new(key, key.encode())
        assert list(store.list("")) == [Listed(key, len(key)) for key in keys]
        assert [key for key, _ in store.list("a")] == [key for key in keys if key.startswith("a/")]
        assert [key for key, _ in store.list("a/b")] == ["a/b/c", "a/b/c.d"]
        assert list(store.list("ab")) == []
        assert list(store.list("nothing/here")) == []

    def test_folders_are_told_without_what_lies_in_them(self, store: ObjectStore) -> None:
        for key in ("a", "b/c", "b/d/e", "b/d/f", "b/g/h/i", "c/x"):
            store.put_new(key, b"x")
        assert folders(store, "b") == ("d", "g")
        assert folders(store, "c") == folders(store, "nothing/here") == ()

    def test_a_long_listing_is_whole(self, store: ObjectStore) -> None:
        keys = [f"log/{i:012d}.json" for i in range(self.many)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put_new(key, b"x"), keys))
        assert [key for key, _ in store.list("log")] == keys

    def test_a_listing_never_misses_what_was_there_before(self, store: ObjectStore) -> None:
        stop = threading.Event()

        def write() -> int:
            for i in range(500):
                store.put_new(f"log/new-{i}", b"x")
                if stop.is_set():
                    return i
            return 500

        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write)
            try:
                for i in range(30):
                    store.put_new(f"log/old-{i}", b"x")
                    found = {key for key, _ in store.list("log")}
                    assert {f"log/old-{j}" for j in range(i + 1)} <= found
            finally:
                stop.set()
            assert written.result() > 0

    # --- put_derived and delete ---------------------------------------------------------------------------

    def test_a_derived_file_is_replaced(self, store: ObjectStore) -> None:
        for body in (b"first", b"", b"the second, longer"):
            store.put_derived("curves/loss.png", iter([body]))
            assert store.get("curves/loss.png") == body
            assert list(store.list("curves")) == [Listed("curves/loss.png", len(body))]

    def test_a_derived_file_is_never_read_half(self, store: ObjectStore) -> None:
        bodies = [b"a" * 100_000, b"b" * 70_000]
        store.put_derived("page.html", bodies[0])
        stop = threading.Event()

        def write() -> None:
            for body in itertools.cycle(bodies):
                store.put_derived("page.html", body)
                if stop.is_set():
                    return

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for _ in range(30):
                    assert store.get("page.html") in bodies
            finally:
                stop.set()
            writing.result()

    def test_a_deleted_key_is_gone_and_free(self, store: ObjectStore) -> None:
        store.put_new("a/old", b"old")
        store.put_new("a/kept", b"kept")
        for _ in range(2):
            store.delete("a/old")
        assert store.head("a/old") is None
        assert [key for key, _ in store.list("")] == ["a/kept"]
        assert store.put_new("a/old", b"new").outcome is Put.WRITTEN

    # --- names --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
    def test_an_unsafe_key_is_refused_by_every_verb(self, store: ObjectStore, key: str) -> None:
        verbs: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.open(key),
            lambda: store.head(key),
            lambda: store.put_new(key, b"x"),
            lambda: store.put_derived(key, b"x"),
            lambda: store.delete(key),
        ]
        if key:
            verbs.append(lambda: list(store.list(key)))
        for verb in verbs:
            with pytest.raises(UnsafeNameError):
                verb()

    # --- the whole ----------------------------------------------------------------------------------------

    def test_it_is_a_store_that_can_be_trusted(self, store: ObjectStore) -> None:
        assert isinstance(store, ObjectStore)
        assert store.url
        assert "@" not in store.url
        probe(store)
        assert list(store.list("")) == []


def _race(store: ObjectStore, key: str, bodies: Sequence[bytes]) -> list[object]:
    """What each of several threads got that put one of `bodies` at once: an outcome, or ConflictError."""
    barrier = threading.Barrier(len(bodies))

    def put(body: bytes) -> object:
        barrier.wait(timeout=30)
        try:
            return store.put_new(key, body).outcome
        except ConflictError:
            return ConflictError

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(put, bodies))
