"""The faults, the clock and the servers that tests rely on."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import servers

import raykit.testing
from raykit.errors import StoreUnavailableError, UnknownOutcomeError
from raykit.store import LocalStore, Put
from raykit.testing import FakeClock, Fault, FaultStore, MemoryStore, delay, kill, reply_lost, unavailable

processes = multiprocessing.get_context("forkserver")


def test_a_fault_before_an_operation_keeps_it_from_happening() -> None:
    inner = MemoryStore()
    store = FaultStore(inner, Fault(unavailable(errno.ENOSPC), at=2))
    store.put_new("a", b"x")
    with pytest.raises(StoreUnavailableError) as caught:
        store.put_new("b", b"x")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert store.fault.fired
    assert inner.objects.keys() == {"a"}
    assert store.put_new("b", b"x").outcome is Put.WRITTEN, "a fault comes once"


def test_a_lost_reply_comes_after_the_operation() -> None:
    inner = MemoryStore()
    store = FaultStore(inner, Fault(reply_lost, at=1, when="after"))
    with pytest.raises(UnknownOutcomeError):
        store.put_new("a", b"x")
    assert inner.objects == {"a": b"x"}
    assert store.put_new("a", b"x").outcome is Put.ALREADY_MINE


def test_a_lasting_fault_stays_and_a_fault_that_is_not_reached_says_so() -> None:
    lasting = Fault(unavailable(), at=2, forever=True)
    store = FaultStore(MemoryStore(), lasting)
    store.head("a")
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            store.get("a")
    unreached = Fault(unavailable(), at=4)
    store = FaultStore(MemoryStore(), unreached)
    store.put_new("a", b"x")
    store.put_derived("b", b"x")
    store.delete("b")
    assert not unreached.fired
    assert unreached.operations == ["put_new a", "put_derived b", "delete b"]


def test_a_delay_lets_time_pass() -> None:
    store = FaultStore(MemoryStore(), Fault(delay(0.05), at=1))
    start_s = time.monotonic()
    store.head("a")
    assert time.monotonic() - start_s >= 0.05


def put_twice_and_die(root: str, at: int) -> None:
    store = FaultStore(LocalStore(root), Fault(kill, at=at, when="after"))
    for key in ("a", "b", "c"):
        store.put_new(key, b"x")


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_kill_is_a_real_one(tmp_path: Path, at: int) -> None:
    child = processes.Process(target=put_twice_and_die, args=(str(tmp_path / "root"), at))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    child.close()
    assert [key for key, _ in LocalStore(tmp_path / "root").list("")] == ["a", "b", "c"][:at]


def test_a_memory_store_can_be_forked() -> None:
    store = MemoryStore()
    store.put_new("a", b"x")
    other = MemoryStore(dict(store.objects))
    other.put_new("b", b"x")
    assert store.head("b") is None


def test_the_clock_moves_only_when_it_is_told_to() -> None:
    clock = FakeClock(100.0)
    assert (clock(), clock()) == (100.0, 100.0)
    clock.sleep(2.5)
    clock.advance(-3600)
    assert clock() == 100.0 + 2.5 - 3600
    assert clock.slept == [2.5]


def test_the_package_exports_what_it_names() -> None:
    for name in raykit.testing.__all__:
        assert getattr(raykit.testing, name).__module__.startswith("raykit.testing")
    with pytest.raises(AttributeError):
        raykit.testing.nothing  # noqa: B018


START = """
import sys
from pathlib import Path
import servers
with servers.moto(Path(sys.argv[1])) as server:
    print(server.process.pid, flush=True)
    sys.stdin.read()
"""


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(servers.__file__).parent)},
    )
    with starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        os.kill(starter.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < end:
        threading.Event().wait(0.01)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_servers_listen_on_loopback_only(seaweedfs: servers.Server, moto: servers.Server) -> None:
    for server in (seaweedfs, moto):
        listening = listeners(server.process.pid)
        assert listening
        assert {address for address, _ in listening} == {"0100007F"}
        assert not any(10002 <= port <= 19999 for _, port in listening)


def listeners(pid: int) -> set[tuple[str, int]]:
    """Addresses, as the kernel writes them, and ports on which a process listens."""
    sockets = {os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found
