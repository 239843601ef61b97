"""Replies that are lost, late, torn or untrue, by a proxy before a real server. F5, F6; covers I2, I13."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import servers
from servers import Fault, Request

from raykit.errors import ConflictError, StoreUnavailableError, UnknownOutcomeError
from raykit.store import Put, s3
from raykit.store.s3 import S3Store
from raykit.store.s3_replies import Kind
from raykit.testing import FakeClock

MakeStore = Callable[..., S3Store]

SEED = 20262
MB = 2**20
SMALL, PARTS = 5, 6 * MB

# One attempt and five retries, each of which aiohttp may have sent twice.
BOUNDED = range(6, 13)


@pytest.fixture
def store(proxy: servers.Proxy, make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(s3, "_PAUSE_S", 0.01)
    return make_s3(proxy.endpoint, part_bytes=5 * MB)


def first_time(applies: Callable[[Request], bool], fault: Fault, times: int = 1) -> servers.Script:
    """The fault for the first request of each path to which it applies, and none after."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def script(request: Request) -> Fault | None:
        if not applies(request):
            return None
        with lock:
            seen[request.path] += 1
            return fault if seen[request.path] <= times else None

    return script


def is_create(request: Request) -> bool:
    return request.is_conditional


# --- one create, one thing that goes wrong ----------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_two_hundred_lost_replies_are_two_hundred_successes(
    proxy: servers.Proxy, store: S3Store, times: int
) -> None:
    proxy.script = first_time(is_create, Fault("cut"), times)  # covers F5
    keys = [f"log/{i:03d}" for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda key: store.put_new(key, key.encode()), keys))
    assert {one.outcome for one in stored} == {Put.ALREADY_MINE}
    assert 200 <= proxy.fired["cut"] <= 200 * times
    assert [key for key, _ in store.list("log")] == keys


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault("answer", 409), Put.WRITTEN),
        (Fault("answer", 500), Put.WRITTEN),
        (Fault("answer", 503), Put.WRITTEN),
        (Fault("reset"), Put.WRITTEN),
        (Fault("delay", delay_s=0.3), Put.WRITTEN),
        (Fault("cut"), Put.ALREADY_MINE),
        (Fault("lie", 500), Put.ALREADY_MINE),
        (Fault("lie", 503), Put.ALREADY_MINE),
        (Fault("lie", 409), Put.ALREADY_MINE),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Fault) else value.value,
)
@pytest.mark.parametrize("size_bytes", [SMALL, PARTS], ids=["small", "parts"])
def test_one_fault_of_a_create_is_survived(
    proxy: servers.Proxy, store: S3Store, fault: Fault, outcome: Put, size_bytes: int
) -> None:
    proxy.script = first_time(is_create, fault)
    body = b"x" * size_bytes
    assert store.put_new("a", body).outcome is outcome
    assert proxy.fired == {fault.kind: 1}
    assert store.head("a") == size_bytes
    assert store.put_new("a", body).outcome is Put.ALREADY_MINE
    assert store.leftovers() == []


@pytest.mark.parametrize("fault", [Fault("cut"), Fault("lie", 500), Fault("answer", 503), Fault("reset")])
def test_a_conflict_is_found_behind_any_fault(proxy: servers.Proxy, store: S3Store, fault: Fault) -> None:
    store.put_new("a", b"decided")
    proxy.script = first_time(is_create, fault)
    with pytest.raises(ConflictError):
        store.put_new("a", b"another")
    assert proxy.fired[fault.kind] == 1
    assert store.get("a") == b"decided"


def test_a_second_writer_that_came_between_is_a_conflict(proxy: servers.Proxy, store: S3Store) -> None:
    """The first attempt is lost on its way there, and before the second another writer decides the key."""

    def script(request: Request) -> Fault | None:
        if not request.is_conditional:
            return None
        other, proxy.script = proxy.script, lambda request: None
        assert other is script
        rival.put_new("a", b"the rival's")
        return Fault("reset")

    rival = S3Store(*store.url.removeprefix("s3://").split("/"), endpoint_url=proxy.upstream)
    proxy.script = script
    with pytest.raises(ConflictError):
        store.put_new("a", b"ours")
    assert proxy.fired == {"reset": 1}
    assert store.get("a") == b"the rival's"
    rival.close()


# --- nothing gets through ---------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [SMALL, PARTS], ids=["small", "parts"])
def test_a_lost_reply_and_a_lost_read_back_leave_the_outcome_unknown(
    proxy: servers.Proxy, store: S3Store, size_bytes: int
) -> None:  # covers I13
    def script(request: Request) -> Fault | None:
        if request.is_conditional:
            return Fault("cut")
        return Fault("reset") if request.method in ("GET", "HEAD") else None

    body = b"x" * size_bytes
    proxy.script = script
    with pytest.raises(UnknownOutcomeError):
        store.put_new("a", body)
    assert 1 <= proxy.fired["cut"] <= 2
    assert proxy.fired["reset"] in BOUNDED
    assert proxy.requests["DELETE"] == 0, "nothing is cleaned up under doubt"
    proxy.script = lambda request: None
    assert store.put_new("a", body).outcome is Put.ALREADY_MINE


def test_an_unknown_upload_stays_and_is_named(proxy: servers.Proxy, store: S3Store) -> None:
    def script(request: Request) -> Fault | None:
        return Fault("reset") if request.is_conditional or request.method in ("GET", "HEAD") else None

    proxy.script = script
    with pytest.raises(UnknownOutcomeError):
        store.put_new("a/b", b"x" * PARTS)
    proxy.script = lambda request: None
    (left,) = store.leftovers()
    assert left.startswith("a/b (upload ")


def test_what_was_sent_and_never_answered_may_still_appear(proxy: servers.Proxy, store: S3Store) -> None:
    proxy.script = lambda request: Fault("reset") if request.is_conditional else None
    with pytest.raises(UnknownOutcomeError, match="may still appear"):
        store.put_new("a", b"x")
    assert proxy.fired["reset"] in BOUNDED


@pytest.mark.parametrize("status", [409, 500, 503])
def test_a_store_that_always_refuses_for_now_has_written_nothing(
    proxy: servers.Proxy, store: S3Store, status: int
) -> None:
    proxy.script = lambda request: Fault("answer", status) if request.is_conditional else None
    with pytest.raises(StoreUnavailableError, match=f"HTTP {status}"):
        store.put_new("a", b"x")
    assert proxy.fired["answer"] == 6, "one attempt and five retries"
    assert store.head("a") is None


@pytest.mark.parametrize("fault", [Fault("reset"), Fault("answer", 503)], ids=["reset", "503"])
def test_every_reading_verb_gives_up_after_a_bounded_number_of_requests(
    proxy: servers.Proxy, store: S3Store, fault: Fault
) -> None:
    store.put_new("a", b"x")
    proxy.script = lambda request: fault
    verbs: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.head("a"),
        lambda: list(store.list("")),
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailableError):
            verb()
    assert proxy.fired[fault.kind] in range(6 * len(verbs), 12 * len(verbs) + 1)


# --- reads and parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tear", "cut", "reset"])
def test_a_torn_read_is_read_again(proxy: servers.Proxy, store: S3Store, kind: str) -> None:
    body = random.Random(SEED).randbytes(300_000)
    store.put_new("a/b", body)
    is_read = lambda request: request.method == "GET"  # noqa: E731
    proxy.script = first_time(is_read, Fault(kind))
    assert store.get("a/b") == body
    proxy.script = first_time(is_read, Fault(kind))
    with store.open("a/b") as file:
        assert file.read() == body
    proxy.script = first_time(is_read, Fault(kind))
    assert [key for key, _ in store.list("a")] == ["a/b"]
    assert proxy.fired == {kind: 3}


@pytest.mark.parametrize("fault", [Fault("answer", 503), Fault("cut"), Fault("reset")])
def test_a_part_whose_reply_is_lost_is_sent_again(proxy: servers.Proxy, store: S3Store, fault: Fault) -> None:
    proxy.script = first_time(lambda request: "partNumber" in request.path, fault)
    body = random.Random(SEED).randbytes(11 * MB)
    assert store.put_new("a", iter([body[:7_000_000], body[7_000_000:]])).outcome is Put.WRITTEN
    assert proxy.fired == {fault.kind: 3}
    assert store.get("a") == body


def test_a_refused_part_ends_the_upload_and_aborts_it(proxy: servers.Proxy, store: S3Store) -> None:
    proxy.script = lambda request: Fault("answer", 403) if "partNumber=2" in request.path else None
    with pytest.raises(StoreUnavailableError, match="HTTP 403"):
        store.put_new("a", itertools.repeat(b"x" * MB, 20))
    proxy.script = lambda request: None
    assert store.head("a") is None
    assert store.leftovers() == []


# --- bounds -------------------------------------------------------------------------------------------


def test_the_pauses_of_all_retries_fit_into_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(s3, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
    retry = s3._Retry(60.0)
    while retry.again(Kind.TRANSIENT):
        pass
    assert len(clock.slept) == 5
    assert sum(clock.slept) < 5
    retry = s3._Retry(60.0)
    assert retry.again(Kind.NO_REPLY)
    clock.advance(60)
    assert not retry.again(Kind.NO_REPLY)


# --- a bad day ----------------------------------------------------------------------------------------


def test_a_bad_day_is_survived_without_one_wrong_answer(proxy: servers.Proxy, store: S3Store) -> None:
    """One request in five goes wrong, each key is put three times over, and every fourth has a rival."""
    faults = (
        Fault("answer", 503),
        Fault("answer", 500),
        Fault("answer", 409),
        Fault("reset"),
        Fault("cut"),
        Fault("lie", 500),
        Fault("delay", delay_s=0.2),
    )
    asked: Counter[str] = Counter()
    lock = threading.Lock()

    def script(request: Request) -> Fault | None:
        # By path and count and not by time, so that a seed replays the same faults whatever the threads do.
        with lock:
            asked[f"{request.method} {request.path}"] += 1
            number = asked[f"{request.method} {request.path}"]
        rng = random.Random(f"{SEED} {request.method} {request.path} {number}")
        return rng.choice(faults) if rng.random() < 0.2 else None

    proxy.script = script  # covers F6

    def put(i: int) -> list[str]:
        body = f"body {i}".encode() * 100
        said = []
        for data in (body, body, b"the rival's" if i % 4 == 0 else body):
            try:
                said.append(store.put_new(f"keys/{i}", data).outcome.value)
            except ConflictError:
                said.append("conflict")
            except UnknownOutcomeError:
                said.append("unknown")
        return said

    start_s = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(put, range(120)))
    took_s = time.monotonic() - start_s
    proxy.script = lambda request: None
    for i, said in enumerate(answers):
        assert said[0] in ("written", "already-mine", "unknown")
        assert said[1] in ("written", "already-mine", "unknown")
        assert said[2] in (("conflict", "unknown") if i % 4 == 0 else ("already-mine", "unknown"))
        assert store.get(f"keys/{i}") == f"body {i}".encode() * 100
    unknown = sum(said.count("unknown") for said in answers)
    print(
        f"seed {SEED}: {dict(proxy.fired)} in {proxy.requests.total()} requests, {took_s:.1f} s, {unknown} unknown"
    )
    assert proxy.fired.total() > 80
    assert len(proxy.fired) == 5
    assert unknown <= 2
    assert took_s < 60
