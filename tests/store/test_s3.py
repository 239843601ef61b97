"""The store in a bucket: what it refuses, what it says, and what it leaves behind."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import servers

from raykit.errors import (
    ConflictError,
    CorruptError,
    NotFoundError,
    RaykitError,
    StoreUnavailableError,
    UnknownOutcomeError,
    UnusableRootError,
)
from raykit.store import Listed, Put, s3, s3_connection
from raykit.store.base import ObjectStore
from raykit.store.probe import probe
from raykit.store.s3 import S3Store

MakeStore = Callable[..., S3Store]

VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a"),
    "open": lambda store: store.open("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list("")),
    "put_new": lambda store: store.put_new("a", b"x"),
    "put_new in parts": lambda store: store.put_new("a", itertools.repeat(b"x" * 5_000_000, 4)),
    "put_derived": lambda store: store.put_derived("a", b"x"),
    "delete": lambda store: store.delete("a"),
}


@pytest.fixture
def store(seaweedfs: servers.Server, make_s3: MakeStore) -> S3Store:
    return make_s3(seaweedfs.endpoint)


def said(error: RaykitError) -> str:
    """Everything of an error that a command prints or a record keeps."""
    return f"{error!s} {error!r} {vars(error)}"


# --- names and addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bucket", ["", "a", "Bucket", "a_b", "a/b", "-a-", "..", "a" * 64, "user:pw@bucket"])
def test_a_bucket_that_cannot_be_one_is_refused(bucket: str) -> None:
    with pytest.raises(UnusableRootError):
        S3Store(bucket)


@pytest.mark.parametrize(
    "prefix", ["..", "a/../b", "a//b", "/a", "a/", ".", "a b", "a?b", "a#b", "a\n", "a%2e"]
)
def test_a_prefix_that_could_lead_elsewhere_is_refused(prefix: str) -> None:
    with pytest.raises(UnusableRootError):
        S3Store("bucket", prefix)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://user:hunter2@127.0.0.1:1",
        "http://127.0.0.1:1/?key=hunter2",
        "http://127.0.0.1:1/#hunter2",
        "file:///hunter2",
        "ftp://hunter2",
        "hunter2",
    ],
)
@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_with_a_secret_in_it_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, variable: str
) -> None:  # covers S21
    monkeypatch.setenv(variable, endpoint)
    for make in (lambda: S3Store("bucket"), lambda: S3Store("bucket", endpoint_url=endpoint)):
        with pytest.raises(UnusableRootError) as caught:
            make()
        assert "hunter2" not in said(caught.value)


def test_the_endpoint_comes_from_the_environment(
    seaweedfs: servers.Server, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs.endpoint)
    store = S3Store(servers.BUCKET, "from-the-environment")
    store.put_new("a", b"x")
    assert store.get("a") == b"x"
    store.close()


def test_two_prefixes_are_two_stores(seaweedfs: servers.Server, make_s3: MakeStore) -> None:
    one, other = make_s3(seaweedfs.endpoint), make_s3(seaweedfs.endpoint)
    assert one.url.startswith(f"s3://{servers.BUCKET}/test-")
    one.put_new("a", b"one")
    assert other.head("a") is None
    assert list(other.list("")) == []
    assert other.put_new("a", b"other").outcome is Put.WRITTEN


def test_a_listing_ignores_what_raykit_did_not_name(moto: servers.Server, make_s3: MakeStore) -> None:
    store = make_s3(moto.endpoint)
    store.put_new("a/b", b"x")
    prefix = store.url.removeprefix(f"s3://{servers.BUCKET}/")
    for name in ("README", "a/", "a//b", "a/B", f"{'x' * 200}"):
        assert servers.request(moto, "PUT", f"/{servers.BUCKET}/{prefix}/{name}")[0] == 200
    assert list(store.list("")) == [Listed("a/b", 1)]


def test_a_store_can_be_sent_to_another_process_and_used_after_it_was_closed(store: S3Store) -> None:
    store.put_new("a", b"x")
    copy: S3Store = pickle.loads(pickle.dumps(store))
    assert copy.url == store.url
    assert copy.get("a") == b"x"
    copy.close()
    copy.close()
    assert copy.get("a") == b"x"
    copy.close()


# --- reading ----------------------------------------------------------------------------------------------


def test_a_reader_can_seek(store: S3Store) -> None:
    body = bytes(range(256)) * 100
    store.put_new("a", body)
    with store.open("a") as file:
        assert file.seekable()
        assert file.seek(-5, io.SEEK_END) == len(body) - 5
        assert file.read() == body[-5:]
        assert file.read() == b""
        file.seek(1000)
        assert file.read(10) == body[1000:1010]
        file.seek(5, io.SEEK_CUR)
        assert file.read(10) == body[1015:1025]
        file.seek(len(body) + 10)
        assert file.read() == b""
        with pytest.raises((ValueError, OSError)):
            file.seek(-1)


def test_a_derived_file_that_is_replaced_is_not_read_as_a_mixture(store: S3Store) -> None:
    store.put_derived("a", b"1" * 10_000_000)
    with store.open("a") as file:
        assert file.read(10) == b"1" * 10
        store.put_derived("a", b"2" * 10_000_000)
        with pytest.raises(StoreUnavailableError):
            while file.read(1_000_000):
                pass


# --- large objects ----------------------------------------------------------------------------------------


def test_parts_are_whole_and_grow_so_that_ten_thousand_are_enough() -> None:
    body = bytes(range(250)) * 100
    parts = list(s3._parts(iter([body[:7], body[7:11_003], b"", body[11_003:]]), 10))
    assert b"".join(parts) == body
    sizes = [len(part) for part in parts]
    assert set(sizes[:1000]) == {10}
    assert set(sizes[1000:-1]) == {20}
    assert sum(s3._PART_BYTES * (1 + i // 1000) for i in range(10_000)) > 800 * 2**30
    assert list(s3._parts(b"x" * 20, 10)) == [b"x" * 10] * 2
    assert list(s3._parts(b"", 10)) == []


def test_a_long_stream_is_never_whole_in_memory(moto: servers.Server, make_s3: MakeStore) -> None:
    store = make_s3(moto.endpoint, part_bytes=5 * 2**20)
    store.put_new("first", b"connects")
    block = b"x" * 2**20
    tracemalloc.start()
    try:
        store.put_new("a", itertools.repeat(block, 100))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.head("a") == 100 * 2**20
    assert peak_bytes < 60 * 2**20


def test_an_upload_that_cannot_end_is_aborted(store: S3Store) -> None:
    def pieces() -> Iterator[bytes]:
        yield from itertools.repeat(b"x" * 2**20, 40)
        assert store.leftovers() != []
        raise RuntimeError("the producer failed")

    with pytest.raises(RuntimeError):
        store.put_new("a/b", pieces())
    assert store.head("a/b") is None
    assert store.leftovers() == []


def test_an_upload_over_other_bytes_is_aborted(store: S3Store) -> None:
    store.put_new("a/b", b"decided")
    with pytest.raises(ConflictError):
        store.put_new("a/b", itertools.repeat(b"x" * 2**20, 20))
    assert store.get("a/b") == b"decided"
    assert store.leftovers() == []


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_wrong_credentials_are_a_typed_refusal_that_names_no_secret(
    seaweedfs: servers.Server, make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    store = make_s3(seaweedfs.endpoint)
    with pytest.raises(StoreUnavailableError) as caught:
        VERBS[verb](store)
    assert "AWS_SECRET_ACCESS_KEY" in str(caught.value.remedy)
    assert "hunter2" not in said(caught.value)


def test_the_probe_refuses_wrong_and_missing_credentials(
    seaweedfs: servers.Server, make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(UnusableRootError) as caught:
        probe(make_s3(seaweedfs.endpoint))
    assert caught.value.field == "root"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UnusableRootError, match="NoCredentialsError") as caught:
        probe(make_s3(seaweedfs.endpoint))
    assert "AWS_ACCESS_KEY_ID" in str(caught.value.remedy)


def test_the_probe_refuses_a_bucket_that_does_not_exist(moto: servers.Server, s3_environment: None) -> None:
    store = S3Store("no-such-bucket", endpoint_url=moto.endpoint)
    with pytest.raises(UnusableRootError, match="NoSuchBucket") as caught:
        probe(store)
    assert (caught.value.field, caught.value.value) == ("root", "s3://no-such-bucket")
    assert caught.value.rule == "a bucket that exists"
    store.close()


def test_the_probe_refuses_a_server_that_overwrites(tmp_path: Path, make_s3: MakeStore) -> None:
    with servers.rclone(tmp_path) as server:
        store = make_s3(server.endpoint)
        with pytest.raises(UnusableRootError, match="replaces objects") as caught:
            probe(store)
        assert caught.value.field == "root"
        assert "If-None-Match" in str(caught.value.rule)
        assert caught.value.remedy


def test_the_probe_refuses_a_server_that_overwrites_when_an_upload_is_completed(
    proxy: servers.Proxy, make_s3: MakeStore
) -> None:
    proxy.script = lambda request: (
        servers.Fault("unconditional") if request.method == "POST" and request.is_conditional else None
    )
    with pytest.raises(UnusableRootError, match="upload in parts"):
        probe(make_s3(proxy.endpoint))
    assert proxy.fired["unconditional"] == 1


def test_the_probe_refuses_a_server_that_does_not_know_conditions(
    proxy: servers.Proxy, make_s3: MakeStore
) -> None:
    proxy.script = lambda request: servers.Fault("answer", 501) if request.is_conditional else None
    with pytest.raises(UnusableRootError, match="HTTP 501") as caught:
        probe(make_s3(proxy.endpoint))
    assert "If-None-Match" in str(caught.value.rule)
    assert proxy.fired["answer"] == 1, "a refusal is not sent again"


def test_a_policy_without_delete_and_unconditional_puts_is_enough(
    proxy: servers.Proxy, make_s3: MakeStore
) -> None:  # covers S16
    def policy(request: servers.Request) -> servers.Fault | None:
        whole = request.method == "PUT" and "partNumber" not in request.path
        aborts = request.method == "DELETE" and "uploadId" in request.path
        if (whole and not request.is_conditional) or (request.method == "DELETE" and not aborts):
            return servers.Fault("answer", 403)
        return None

    proxy.script = policy
    store = make_s3(proxy.endpoint)
    probe(store)
    assert proxy.fired["answer"] == 1, "the canary could not be removed"
    assert store.put_new("a", b"x").outcome is Put.WRITTEN
    assert store.put_new("b", itertools.repeat(b"x" * 2**20, 20)).outcome is Put.WRITTEN
    with pytest.raises(StoreUnavailableError):
        store.delete("a")
    assert store.get("a") == b"x"


@pytest.mark.parametrize("verb", VERBS)
def test_a_redirect_is_not_followed(
    proxy: servers.Proxy, moto: servers.Server, make_s3: MakeStore, verb: str
) -> None:  # covers S12
    with servers.Proxy(moto.endpoint) as elsewhere:
        proxy.script = lambda request: servers.Fault(
            "redirect", location=f"{elsewhere.endpoint}{request.path}"
        )
        with pytest.raises(StoreUnavailableError):
            VERBS[verb](make_s3(proxy.endpoint))
        assert proxy.fired["redirect"] >= 1
        assert elsewhere.requests.total() == 0


# --- no answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["head", "put_new"])
def test_a_dead_endpoint_is_said_soon(make_s3: MakeStore, verb: str) -> None:
    (port,) = servers.free_ports(1)
    start_s = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="no connection") as caught:
        VERBS[verb](make_s3(f"http://127.0.0.1:{port}"))
    assert time.monotonic() - start_s < 60
    assert caught.value.rule is None
    assert str(port) not in said(caught.value)


def test_an_endpoint_that_takes_no_connection_is_said_soon(
    make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert s3._UNREACHED_S + s3_connection.CONNECT_TIMEOUT_S < 12
    monkeypatch.setattr(s3, "_UNREACHED_S", 0.8)
    monkeypatch.setattr(s3_connection, "CONNECT_TIMEOUT_S", 0.4)
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):  # fill the queue, so that the kernel drops whoever comes next
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
        start_s = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="ConnectTimeoutError"):
            make_s3(f"http://127.0.0.1:{address[1]}").put_new("a", b"x")
        assert time.monotonic() - start_s < 30


def test_a_server_that_never_answers_leaves_the_outcome_unknown(
    make_s3: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_connection, "_READ_TIMEOUT_S", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        store = make_s3(f"http://127.0.0.1:{listener.getsockname()[1]}", retry_s=1.0)
        start_s = time.monotonic()
        with pytest.raises(UnknownOutcomeError):
            store.put_new("a", b"x")
        with pytest.raises(StoreUnavailableError, match="no reply"):
            store.get("a")
        assert time.monotonic() - start_s < 30


# --- imports and exit -------------------------------------------------------------------------------------


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_local_root_needs_no_s3_library(tmp_path: Path) -> None:
    done = run_python(
        "import sys\n"
        "from raykit.store import open_store\n"
        "from raykit.store.probe import probe\n"
        "probe(open_store(sys.argv[1]))\n"
        "print([m for m in ('s3fs', 'fsspec', 'botocore', 'aiohttp', 'ray', 'torch') if m in sys.modules])\n",
        str(tmp_path / "root"),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_the_testing_package_needs_no_pytest() -> None:
    done = run_python(
        "import sys\n"
        "from raykit.testing import FaultStore, MemoryStore\n"
        "FaultStore(MemoryStore()).put_new('a', b'x')\n"
        "print([m for m in ('pytest', 's3fs', 'fsspec') if m in sys.modules])\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_a_process_that_never_closes_its_store_ends_in_silence(seaweedfs: servers.Server) -> None:
    done = run_python(
        "from raykit.store import open_store\n"
        "store = open_store('s3://raykit/silent')\n"
        "store.put_new('a', b'x' * 20_000_000)\n"
        "file = store.open('a')\n"
        "print(len(file.read(10)))\n",
        **servers.credentials(),
        AWS_ENDPOINT_URL=seaweedfs.endpoint,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")


def test_a_missing_object_is_not_found_and_a_long_one_is_corrupt(store: S3Store) -> None:
    store.put_new("a", b"x" * 100)
    with pytest.raises(NotFoundError) as caught:
        store.get("b")
    assert caught.value.field == "b"
    with pytest.raises(CorruptError):
        store.get("a", max_bytes=99)
    assert store.get("a", max_bytes=100) == b"x" * 100, "the connection is still good"
