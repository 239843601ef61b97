"""The log on a real disk: races, fences, tampering, snapshots, lost replies."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from raykit.errors import (
    ConflictError,
    CorruptError,
    DeadlineError,
    FencedError,
    InvalidInput,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from raykit.ids import sha256
from raykit.reconcile import fold, require_attempt
from raykit.records import (
    AttemptEnded,
    AttemptStarted,
    Beat,
    Launched,
    Place,
    Record,
    Released,
    RunEntry,
    Segment,
)
from raykit.store import layout, log
from raykit.store.base import Data, Stored
from raykit.store.local import LocalStore
from raykit.store.log import Log, RunLog, seal
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost, unavailable

D = sha256(b"")
HERE = Place(host="a", boot="b", pid=1, started=1)
PREFIX = layout.run_log("e", "r")


def beat(name: str = "l1") -> Beat:
    return Beat(launch=name)


def launched(name: str) -> Launched:
    return Launched(launch=name, place=HERE, lease_s=60.0, raykit="0.1.0")


def started(attempt: int, launch: str) -> AttemptStarted:
    return AttemptStarted(
        attempt=attempt, launch=launch, place=HERE, world_size=1, facts={}, plan=D, code=D, data=D
    )


def make(store: LocalStore | MemoryStore | FaultStore, count: int) -> RunLog:
    """A log of `count` entries."""
    made = RunLog(store, "e", "r", by="t")
    for n in range(1, count + 1):
        made.append(lambda _, n=n: [beat(f"l{n}")], at=float(n))  # type: ignore[misc]
    return made


def read(store: LocalStore | MemoryStore | FaultStore) -> list[RunEntry]:
    return Log(store, PREFIX, RunEntry, by="reader").refresh()


def path(root: Path, n: int) -> Path:
    return root / layout.log_entry(PREFIX, n)


# --- races --------------------------------------------------------------------------------------------------

APPENDER = """
import sys, time
from pathlib import Path
from raykit.records import Beat
from raykit.store.local import LocalStore
from raykit.store.log import RunLog

root, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = RunLog(LocalStore(root), "e", "r", by=name)
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    assert log.append(lambda entries: [Beat(launch=f"{name}-{i}")], at=float(i)) is not None
"""


def test_eight_writers_lose_nothing_and_never_fork(tmp_path: Path) -> None:
    # covers F8, I2
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(tmp_path), f"w{i}", "50"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(8)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        with writer:
            assert writer.wait(timeout=60) == 0
    entries = read(LocalStore(tmp_path))
    assert [entry.n for entry in entries] == list(range(1, 401))
    for i in range(8):
        mine = [e.events[0].launch for e in entries if e.by == f"w{i}" and isinstance(e.events[0], Beat)]
        assert mine == [f"w{i}-{k}" for k in range(50)], "each writer's entries are there once, in its order"


class RacingStore(MemoryStore):
    """Lets someone else act in the instant before each put."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act: Callable[[], object] | None = act

    def put_new(self, key: str, data: Data) -> Stored:
        act, self.act = self.act, None
        if act is not None:
            act()
            self.act = act if self.forever else None
        return super().put_new(key, data)

    forever = False


def test_who_loses_the_race_decides_again_and_sees_why() -> None:
    store = RacingStore(lambda: rival.append(lambda _: [beat("rival")], at=1.0))
    rival = RunLog(store, "e", "r", by="rival")
    mine = RunLog(store, "e", "r", by="mine")
    seen: list[int] = []

    def decide(entries: Sequence[RunEntry]) -> list[Record]:
        seen.append(len(entries))
        assert len(mine.state.events) == len(entries)
        return [beat(f"after-{len(entries)}")]

    entry = mine.append(decide, at=2.0)
    assert seen == [0, 1]
    assert entry is not None
    assert (entry.n, entry.events) == (2, (beat("after-1"),))
    assert [e.by for e in read(store)] == ["rival", "mine"]


def test_a_race_that_never_ends_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    # covers I9
    monkeypatch.setattr(log, "MAX_RACES", 5)
    store = RacingStore(lambda: RunLog(store, "e", "r", by="rival").append(lambda _: [beat()], at=1.0))
    store.forever = True
    with pytest.raises(DeadlineError, match="5 times in a row"):
        RunLog(store, "e", "r", by="mine").append(lambda _: [beat()], at=1.0)


def test_two_writers_never_make_the_same_entry() -> None:
    store = MemoryStore()
    RunLog(store, "e", "r", by="same").append(lambda _: [beat()], at=1.0)
    made = store.objects[layout.log_entry(PREFIX, 1)]
    store.objects.clear()
    twin = RunLog(store, "e", "r", by="same")
    twin.append(lambda _: [beat()], at=1.0)
    assert store.objects[layout.log_entry(PREFIX, 1)] != made


def test_a_zombie_is_fenced_and_writes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    zombie = RunLog(store, "e", "r", by="zombie")
    zombie.append(lambda _: [launched("l1"), started(1, "l1")], at=1.0)
    taker = RunLog(store, "e", "r", by="taker")
    killed = AttemptEnded(attempt=1, reason="killed", update=0)
    taker.append(lambda _: [killed, launched("l2"), started(2, "l2")], at=2.0)
    before = [item.key for item in store.list("")]

    def decide(_: Sequence[RunEntry]) -> list[Record]:
        require_attempt(zombie.state, "l1", 1)
        raise AssertionError("it went on")

    with pytest.raises(FencedError, match="l2 does"):
        zombie.append(decide, at=3.0)
    assert [item.key for item in store.list("")] == before


def test_nothing_to_say_is_nothing_written(tmp_path: Path) -> None:
    # covers I11
    made = make(LocalStore(tmp_path), 2)
    assert made.append(lambda _: [], at=3.0) is None
    assert len(read(LocalStore(tmp_path))) == 2


def test_an_entry_too_long_to_read_is_not_written(tmp_path: Path) -> None:
    made = make(LocalStore(tmp_path), 1)
    detail = "x" * log.MAX_ENTRY_BYTES
    with pytest.raises(InvalidInput, match="bytes long"):
        made.append(lambda _: [AttemptEnded(attempt=1, reason="failed", update=0, detail=detail)], at=2.0)
    assert len(read(LocalStore(tmp_path))) == 1


# --- lost replies -------------------------------------------------------------------------------------------


def test_after_an_unknown_outcome_decide_sees_what_landed() -> None:
    # covers I13
    inner = MemoryStore()
    made = RunLog(FaultStore(inner, fault := Fault(reply_lost, at=4, when="after")), "e", "r", by="t")

    def once(entries: Sequence[RunEntry]) -> list[Record]:
        return [] if any(beat("one") in entry.events for entry in entries) else [beat("one")]

    with pytest.raises(UnknownOutcomeError):
        made.append(once, at=1.0)
    assert fault.fired
    assert fault.operations[-1].startswith("put_new")
    assert made.append(once, at=2.0) is None
    assert [e.events for e in read(inner)] == [(beat("one"),)]


def test_a_store_that_does_not_answer_leaves_the_log_as_it_was() -> None:
    inner = MemoryStore()
    make(inner, 2)
    at = 0
    while True:
        at += 1
        store = FaultStore(inner, Fault(unavailable(), at=at))
        mine = RunLog(store, "e", "r", by="mine")
        try:
            mine.append(lambda _: [beat("mine")], at=3.0)
        except StoreUnavailableError:
            assert len(read(inner)) == 2
            continue
        break
    assert not store.fault.fired or "snapshot" in store.fault.operations[at - 1]
    assert [e.by for e in read(inner)] == ["t", "t", "mine"]


# --- tampering ----------------------------------------------------------------------------------------------


def edit(root: Path, n: int) -> str:
    file = path(root, n)
    file.write_bytes(file.read_bytes().replace(b'"launch":"l', b'"launch":"x'))
    return layout.log_entry(PREFIX, n)


def forge(root: Path, n: int) -> str:
    """An edit by someone who knows the format: the entry's own digest is made to fit."""
    file = path(root, n)
    body = log.unseal(file.read_bytes(), "it").replace(b'"launch":"l', b'"launch":"x')
    file.write_bytes(seal(body))
    return layout.log_entry(PREFIX, n + 1)


def drop(root: Path, n: int) -> str:
    path(root, n).unlink()
    return layout.log_entry(PREFIX, n)


def reorder(root: Path, n: int) -> str:
    one, two = path(root, n).read_bytes(), path(root, n + 1).read_bytes()
    path(root, n).write_bytes(two)
    path(root, n + 1).write_bytes(one)
    return layout.log_entry(PREFIX, n)


def fork(root: Path, n: int) -> str:
    """Someone wrote another entry `n` over the first, well chained to what is before it."""
    other = MemoryStore(
        {f"{PREFIX}/{file.name}": file.read_bytes() for file in path(root, 1).parent.iterdir()}
    )
    for later in range(n, 100):
        other.delete(layout.log_entry(PREFIX, later))
    other.delete(layout.log_snapshot(PREFIX))
    RunLog(other, "e", "r", by="forker").append(lambda _: [beat("fork")], at=99.0)
    path(root, n).write_bytes(other.objects[layout.log_entry(PREFIX, n)])
    return layout.log_entry(PREFIX, n + 1)


def stale(root: Path, n: int) -> str:
    path(root, n).write_bytes(path(root, n - 1).read_bytes())
    return layout.log_entry(PREFIX, n)


def truncate(root: Path, n: int) -> str:
    path(root, n).write_bytes(path(root, n).read_bytes()[:-1])
    return layout.log_entry(PREFIX, n)


@pytest.mark.parametrize("tamper", [edit, forge, drop, reorder, fork, stale, truncate])
@pytest.mark.parametrize("n", [2, 5, 8])
def test_tampering_is_refused_and_names_the_entry(
    tmp_path: Path, tamper: Callable[[Path, int], str], n: int
) -> None:
    # covers S15
    make(LocalStore(tmp_path), 9)
    named = tamper(tmp_path, n)
    with pytest.raises(CorruptError) as refused:
        read(LocalStore(tmp_path))
    assert refused.value.message.startswith(named)
    writer = RunLog(LocalStore(tmp_path), "e", "r", by="w")
    with pytest.raises(CorruptError):
        writer.append(lambda _: [beat()], at=10.0)
    assert len(list(path(tmp_path, 1).parent.iterdir())) == (8 if tamper is drop else 9), (
        "nothing was written"
    )


@pytest.mark.parametrize("tamper", [edit, truncate, stale])
def test_a_changed_newest_entry_is_refused_though_none_follows(
    tmp_path: Path, tamper: Callable[[Path, int], str]
) -> None:
    make(LocalStore(tmp_path), 3)
    named = tamper(tmp_path, 3)
    with pytest.raises(CorruptError) as refused:
        read(LocalStore(tmp_path))
    assert refused.value.message.startswith(named)


def test_every_flipped_bit_of_an_entry_is_refused(tmp_path: Path) -> None:
    make(LocalStore(tmp_path), 1)
    data = path(tmp_path, 1).read_bytes()
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            with pytest.raises(CorruptError):
                log.parse_entry(bytes(changed), RunEntry, "it", n=1)


def test_a_live_reader_finds_what_was_changed_before_it_read_on(tmp_path: Path) -> None:
    live = make(LocalStore(tmp_path), 3)
    other = RunLog(LocalStore(tmp_path), "e", "r", by="other")
    other.append(lambda _: [beat()], at=4.0)
    named = edit(tmp_path, 4)
    with pytest.raises(CorruptError, match=named):
        live.append(lambda _: [beat()], at=5.0)
    assert len(live.entries) == 3


def test_entries_of_another_log_do_not_fit(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    make(store, 3)
    twin = RunLog(store, "e", "twin", by="t")
    for n in range(1, 4):
        twin.append(lambda _: [beat()], at=float(n))
    path(tmp_path, 2).write_bytes((tmp_path / layout.log_entry(layout.run_log("e", "twin"), 2)).read_bytes())
    with pytest.raises(CorruptError, match=f"{layout.log_entry(PREFIX, 2)} does not follow"):
        read(store)


# --- snapshots ----------------------------------------------------------------------------------------------


def operations(store: MemoryStore) -> list[str]:
    counting = FaultStore(store)
    read(counting)
    return counting.fault.operations


def test_a_snapshot_makes_reading_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SNAPSHOT_EVERY", 16)
    store = MemoryStore()
    made = make(store, 37)
    # the snapshot, the entry it ends with, a listing, entries 33 to 37, and one that is not there
    assert len(operations(store)) == 1 + 1 + 1 + 5 + 1
    assert read(store) == made.entries
    made.snapshot()
    assert len(operations(store)) == 1 + 1 + 1 + 1


def test_the_first_snapshot_comes_at_its_number() -> None:
    store = MemoryStore()
    make(store, log.SNAPSHOT_EVERY - 1)
    assert store.head(layout.log_snapshot(PREFIX)) is None
    make(store, 1)
    assert store.objects[layout.log_snapshot(PREFIX)].count(b"\n") == log.SNAPSHOT_EVERY - 1


def test_a_log_that_comes_to_rest_has_a_snapshot() -> None:
    store = MemoryStore()
    make(store, 3).append(lambda _: [Released(launch="l1", reason="paused")], at=4.0)
    assert store.objects[layout.log_snapshot(PREFIX)].count(b"\n") == 3
    assert len(operations(store)) == 1 + 1 + 1 + 1


def edited(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b'"launch":"l', b'"launch":"x'), *lines[2:]]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: lines[1:],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [*lines[:-1], lines[-1][:-1]],
        lambda lines: [*lines, b""],
        lambda lines: [b""],
        lambda lines: [b"[" * 1000],
        edited,
        lambda lines: [*lines[:-1], seal(log.unseal(lines[-1], "it").replace(b'"at":', b'"at":1'))],
    ],
)
def test_a_snapshot_that_does_not_fit_is_not_believed(spoil: Callable[[list[bytes]], list[bytes]]) -> None:
    store = MemoryStore()
    made = make(store, 6)
    made.snapshot()
    key = layout.log_snapshot(PREFIX)
    lines = store.objects[key].split(b"\n")
    store.objects[key] = b"\n".join(spoil(lines))
    assert read(store) == made.entries


@pytest.mark.parametrize("gone", [[6], [3], [1, 2, 3, 4, 5, 6]], ids=["the last", "one between", "all"])
def test_a_snapshot_shows_what_is_no_longer_there(gone: list[int]) -> None:
    # covers I2, I12: a log that has lost an entry is refused, not gone on with
    store = MemoryStore()
    make(store, 6).snapshot()
    for n in gone:
        store.delete(layout.log_entry(PREFIX, n))
    with pytest.raises(CorruptError, match=rf"{gone[0]:012d}.json is missing, though there were 6 entries"):
        read(store)


def test_a_snapshot_that_cannot_be_written_does_not_hide_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SNAPSHOT_EVERY", 1)

    class NoDerived(MemoryStore):
        def put_derived(self, key: str, data: Data) -> None:
            raise ConflictError(f"{key} is a folder")

    store = NoDerived()
    entry = RunLog(store, "e", "r", by="t").append(lambda _: [beat()], at=1.0)
    assert entry is not None
    assert read(store) == [entry]


# --- speed --------------------------------------------------------------------------------------------------


def test_twenty_thousand_entries_do_not_slow_an_append() -> None:
    """A day of segments every five seconds. The state is kept, so no append folds the whole log again."""
    store = MemoryStore()
    prev = None
    for n in range(1, 20_001):
        event: Record = launched("l1") if n == 1 else started(1, "l1") if n == 2 else rows(n - 2)
        data = seal(RunEntry(n=n, prev=prev, at=float(n), by="t", nonce="n", events=(event,)).to_bytes())  # type: ignore[arg-type]
        store.objects[layout.log_entry(PREFIX, n)] = data
        prev = sha256(data)
    made = RunLog(store, "e", "r", by="t")
    made.refresh()
    assert made.state.recorded() == 19_998
    begun = time.perf_counter()
    folded = fold(made.entries)
    fold_s = time.perf_counter() - begun
    assert made.state == folded

    def decide(_: Sequence[RunEntry]) -> list[Record]:
        require_attempt(made.state, "l1", 1)
        return [rows(made.state.recorded() + 1)]

    took_s: list[float] = []
    for n in range(21):
        begun = time.perf_counter()
        made.append(decide, at=20_001.0 + n)
        took_s.append(time.perf_counter() - begun)
    median_s = sorted(took_s)[10]
    print(f"an append after 20,000 entries: {1e3 * median_s:.2f} ms; to fold them: {1e3 * fold_s:.2f} ms")
    assert median_s < fold_s / 2
    assert made.state.recorded() == 20_019


def test_reading_a_log_leaves_the_garbage_collector_as_it_was() -> None:
    store = MemoryStore()
    make(store, 3)
    make(store, 0).refresh()
    assert gc.isenabled()
    store.objects[layout.log_entry(PREFIX, 2)] = b"{}"
    with pytest.raises(CorruptError):
        RunLog(store, "e", "r", by="t").refresh()
    assert gc.isenabled()
    gc.disable()
    try:
        make(MemoryStore(), 3).refresh()
        assert not gc.isenabled()
    finally:
        gc.enable()


def rows(update: int) -> Segment:
    return Segment(series="train", attempt=1, first=update, last=update, key="k", sha256=D, size_bytes=1)
