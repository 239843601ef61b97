"""The parts of the private local Ray that need no Ray: folders, records, processes, ports, the probe."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from loopback import LoopbackServer

from raykit.errors import CorruptError, DeadlineError, InsecureClusterError, InvalidInput
from raykit.fleet.session import check_cluster, describe_sessions, end_leftovers, local, probe, start_local
from raykit.fleet.session.environment import changed
from raykit.fleet.session.folder import Launch, SessionFolder, create, locked, make_parent
from raykit.fleet.session.ports import SERVICES, Ports, claim_ports
from raykit.fleet.session.processes import ProcessId, alive, identify
from raykit.fleet.session.sockets import Listener, require_loopback

TOKEN = "f" * 64
is_root = os.geteuid() == 0


@pytest.fixture
def base() -> Iterator[Path]:
    """A short folder: the paths of pytest's own are too long for Ray's sockets."""
    made = Path(tempfile.mkdtemp(prefix="rk-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **options: Any) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen(command, **options))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def known(process: subprocess.Popen[bytes]) -> ProcessId:
    found = identify(process.pid)
    assert found
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def left_over(base: Path, launch: ProcessId, **differences: Any) -> SessionFolder:
    """A session folder whose record says that `launch` made it."""
    parent = make_parent(base)
    with locked(parent):
        folder = create(parent, Ports(20000, 256), ray_version="2.60.0")
    made, _ = folder.read()
    fields = {"pid": launch.pid, "started": launch.started, "name": launch.name, **differences}
    (folder.path / "started.jsonl").write_bytes(made.model_copy(update=fields).to_bytes() + b"\n")
    return folder


@pytest.fixture
def dead(spawn: Callable[..., subprocess.Popen[bytes]]) -> ProcessId:
    process = spawn("sleep", "600")
    identity = known(process)
    process.kill()
    process.wait()
    return identity


ORPHAN = """
import os, signal, sys
if os.fork():
    os._exit(0)  # its parent is gone, as a raylet's agents see it
os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
log = open(sys.argv[1], "w")
print(os.getpid(), file=log, flush=True)
signal.pause()
"""


@pytest.fixture
def orphan(spawn: Callable[..., subprocess.Popen[bytes]]) -> Iterator[Callable[[Path], ProcessId]]:
    """Starts a process that has no parent, ignores SIGTERM and writes the file it is given."""
    made: list[ProcessId] = []

    def start(log: Path) -> ProcessId:
        assert spawn(sys.executable, "-c", ORPHAN, str(log)).wait(timeout=20) == 0
        wait_until(lambda: log.exists() and log.read_text().endswith("\n"), "the orphan runs")
        found = identify(int(log.read_text()))
        assert found
        made.append(found)
        return found

    yield start
    for process in made:
        if alive(process):
            os.kill(process.pid, signal.SIGKILL)


# --- the private folder -------------------------------------------------------------------------------------


def test_a_parent_that_is_a_link_is_refused(base: Path) -> None:
    # covers S5
    (base / "elsewhere").mkdir(mode=0o700)
    (base / f"raykit-{os.geteuid()}").symlink_to(base / "elsewhere")
    with pytest.raises(InsecureClusterError, match="is a link"):
        make_parent(base)
    assert list((base / "elsewhere").iterdir()) == []


def test_a_parent_that_is_a_dangling_link_is_refused(base: Path) -> None:
    (base / f"raykit-{os.geteuid()}").symlink_to(base / "nowhere")
    with pytest.raises(InsecureClusterError, match="is a link"):
        make_parent(base)


@pytest.mark.skipif(not is_root, reason="giving a folder away needs root")
def test_a_parent_of_another_user_is_refused(base: Path) -> None:
    # covers S4
    parent = base / f"raykit-{os.geteuid()}"
    parent.mkdir(mode=0o700)
    os.chown(parent, 65534, 65534)
    with pytest.raises(InsecureClusterError, match="belongs to user id 65534"):
        make_parent(base)


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777, 0o710])
def test_a_parent_that_others_can_enter_is_refused(base: Path, mode: int) -> None:
    # covers S5
    parent = base / f"raykit-{os.geteuid()}"
    parent.mkdir()
    parent.chmod(mode)
    with pytest.raises(InsecureClusterError, match="open to other users") as refused:
        make_parent(base)
    assert refused.value.remedy == f"chmod 700 {parent}"


def test_folders_are_private_whatever_the_umask(base: Path) -> None:
    # covers S4
    before = os.umask(0)
    try:
        parent = make_parent(base)
        with locked(parent):
            folder = create(parent, Ports(20000, 256), ray_version="2.60.0")
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in [parent, folder.path, *folder.path.rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_a_path_too_long_for_sockets_is_refused_before_anything_is_made(base: Path) -> None:
    folder = base / ("x" * 60)
    with pytest.raises(InvalidInput, match="too long a path") as refused:
        make_parent(folder)
    assert refused.value.field == "folder"
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_refused(base: Path) -> None:
    (base / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be made"):
        make_parent(base / "file")


# --- records and what is left over --------------------------------------------------------------------------


def test_a_record_keeps_what_was_finished(base: Path, dead: ProcessId) -> None:
    folder = left_over(base, dead)
    folder.append(dead)
    with (folder.path / "started.jsonl").open("ab") as record:
        record.write(b'{"name":"raylet","pi')  # as a power cut leaves it
    launch, processes = folder.read()
    assert isinstance(launch, Launch)
    assert processes == [dead]


def test_a_folder_without_a_record_is_removed(base: Path, dead: ProcessId) -> None:
    folder = left_over(base, dead)
    (folder.path / "started.jsonl").write_bytes(b"")
    with pytest.raises(CorruptError):
        folder.read()
    assert [it.state for it in describe_sessions(base)] == ["unreadable"]
    assert end_leftovers(base) == []
    assert describe_sessions(base) == []


def test_a_folder_without_a_record_stays_while_someone_writes_in_it(
    base: Path, dead: ProcessId, orphan: Callable[[Path], ProcessId]
) -> None:
    folder = left_over(base, dead)
    (folder.path / "started.jsonl").write_bytes(b"{}\n")
    writer = orphan(folder.tmp / "log")
    assert end_leftovers(base) == []
    assert alive(writer)
    assert [it.processes for it in describe_sessions(base)] == [(writer,)]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_session_in_use_is_not_touched(
    base: Path, spawn: Callable[..., subprocess.Popen[bytes]], stopped: bool
) -> None:
    launch = spawn("sleep", "600")
    folder = left_over(base, known(launch))
    worker = spawn("sleep", "600")
    folder.append(known(worker))
    if stopped:  # Ctrl-Z is not death
        launch.send_signal(signal.SIGSTOP)
    assert end_leftovers(base) == []
    assert worker.poll() is None
    assert [(it.state, it.processes) for it in describe_sessions(base)] == [("alive", (known(worker),))]


def test_a_launch_whose_number_was_taken_by_another_process_is_dead(
    base: Path, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    other = spawn("sleep", "600")
    left_over(base, known(other), started=known(other).started - 1)
    assert end_leftovers(base) == []
    assert other.poll() is None
    assert describe_sessions(base) == []


def test_after_a_reboot_recorded_numbers_mean_nothing(
    base: Path, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    innocent = spawn("sleep", "600")
    folder = left_over(base, known(innocent), boot="another-boot/4026531836")
    folder.append(known(innocent))
    assert end_leftovers(base) == []
    assert innocent.poll() is None
    assert describe_sessions(base) == []


def test_a_session_of_another_container_is_left_alone(base: Path, dead: ProcessId) -> None:
    folder = left_over(base, dead)
    launch, _ = folder.read()
    boot = launch.boot.partition("/")[0] + "/1"
    (folder.path / "started.jsonl").write_bytes(launch.model_copy(update={"boot": boot}).to_bytes() + b"\n")
    assert end_leftovers(base) == []
    assert [it.state for it in describe_sessions(base)] == ["elsewhere"]


def test_a_recorded_process_is_ended_with_its_children(
    base: Path, dead: ProcessId, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    folder = left_over(base, dead)
    recorded = spawn("sh", "-c", "sleep 600 & echo $!; wait", stdout=subprocess.PIPE)
    assert recorded.stdout
    child = identify(int(recorded.stdout.readline()))
    assert child
    folder.append(known(recorded))
    ended = end_leftovers(base)
    assert {(it.session, it.pid, it.how) for it in ended} == {
        (folder.session, recorded.pid, "SIGTERM"),
        (folder.session, child.pid, "SIGTERM"),
    }
    assert not alive(child)
    assert not folder.path.exists()


def test_an_unrecorded_orphan_that_ignores_sigterm_is_ended(
    base: Path, dead: ProcessId, orphan: Callable[[Path], ProcessId]
) -> None:
    folder = left_over(base, dead)
    agent = orphan(folder.ray / "agent.log")
    assert [(it.pid, it.how) for it in end_leftovers(base)] == [(agent.pid, "SIGKILL")]
    assert not alive(agent)
    assert not folder.path.exists()


def test_who_reads_a_log_of_a_dead_session_is_not_ended(
    base: Path, dead: ProcessId, spawn: Callable[..., subprocess.Popen[bytes]]
) -> None:
    folder = left_over(base, dead)
    (folder.ray / "raylet.out").write_text("all is well\n")
    reader = spawn("tail", "-f", str(folder.ray / "raylet.out"), stdout=subprocess.PIPE)
    assert reader.stdout
    assert reader.stdout.readline() == b"all is well\n"
    assert end_leftovers(base) == []
    assert reader.poll() is None
    assert not folder.path.exists()


def test_asking_what_is_there_makes_nothing(base: Path) -> None:
    assert describe_sessions(base) == []
    assert list(base.iterdir()) == []


# --- ports and sockets --------------------------------------------------------------------------------------


def test_claims_share_no_port_and_lie_outside_what_others_use() -> None:
    claims = [claim_ports(cpus=2) for _ in range(8)]
    try:
        ports = [port for it in claims for port in range(it.ports.first, it.ports.first + it.ports.count)]
        assert len(ports) == len(set(ports)) == 8 * 256
        assert min(ports) >= 20000
        assert max(ports) < 32768
        for claim in claims:
            assert {claim.ports.of(name) for name in SERVICES}.isdisjoint(claim.ports.workers)
            assert claim.ports.first not in claim.ports.workers
    finally:
        for claim in claims:
            claim.release()


def test_many_cpus_get_many_worker_ports() -> None:
    claim = claim_ports(cpus=256)
    claim.release()
    assert len(claim.ports.workers) > 4 * 256


def test_a_block_with_one_busy_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_claim = claim_ports(cpus=1)
    probe_claim.release()
    first = probe_claim.ports.first
    monkeypatch.setattr("raykit.fleet.session.ports.FIRST_PORT", first)
    monkeypatch.setattr("raykit.fleet.session.ports.END_PORT", first + 256)
    with (
        socket.create_server(("127.0.0.1", first + 200)),
        pytest.raises(InvalidInput, match="no 256 consecutive ports are free"),
    ):
        claim_ports(cpus=1)
    claim = claim_ports(cpus=1)
    with pytest.raises(InvalidInput):
        claim_ports(cpus=1)
    claim.release()
    claim_ports(cpus=1).release()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.2", "::ffff:192.0.2.2", "fe80::1", "::ffff:0.0.0.0"]
)
def test_a_listener_that_others_can_reach_is_refused(host: str) -> None:
    # covers S2
    process = ProcessId(pid=4711, started=1, name="raylet")
    with pytest.raises(InsecureClusterError) as refused:
        require_loopback([Listener(process=process, host=host, port=20001)])
    assert str(refused.value) == f"raylet (pid 4711) listens on {host} port 20001, beyond this machine"
    assert refused.value.exit_code == 7


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"])
def test_a_listener_on_loopback_is_not(host: str) -> None:
    process = ProcessId(pid=4711, started=1, name="raylet")
    require_loopback([Listener(process=process, host=host, port=20001)])


# --- the probe ----------------------------------------------------------------------------------------------


class Dashboard(http.server.BaseHTTPRequestHandler):
    """Answers 401, 403 and 200 as told, and remembers what it was sent."""

    answers: ClassVar[tuple[int, int, int]]
    seen: ClassVar[list[str | None]]

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization")
        self.seen.append(sent)
        kind = 0 if sent is None else 2 if sent == f"Bearer {TOKEN}" else 1
        self.send_response(self.answers[kind])
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def dashboard(*answers: int) -> Iterator[tuple[str, list[str | None]]]:
    handler = type("Told", (Dashboard,), {"answers": answers, "seen": []})
    with LoopbackServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler.seen  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()


def test_a_cluster_that_asks_for_its_token_passes() -> None:
    # covers S1
    with dashboard(401, 403, 200) as (url, seen):
        check_cluster(url, TOKEN)
    assert seen[0] is None
    assert seen[2] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "answers", [(200, 200, 200), (302, 403, 200), (404, 403, 200), (401, 200, 200), (401, 302, 200)]
)
def test_a_cluster_that_does_not_is_refused_and_never_sees_the_token(answers: tuple[int, int, int]) -> None:
    # covers S1
    with (
        dashboard(*answers) as (url, seen),
        pytest.raises(InsecureClusterError, match="anyone who reaches it"),
    ):
        check_cluster(url, TOKEN)
    assert f"Bearer {TOKEN}" not in seen


def test_a_token_of_another_cluster_is_refused() -> None:
    with (
        dashboard(401, 403, 403) as (url, _),
        pytest.raises(InvalidInput, match="answered 403 to this token") as it,
    ):
        check_cluster(url, TOKEN)
    assert TOKEN not in str(it.value)


def test_nobody_there_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(InvalidInput, match="no Ray dashboard answers"):
        check_cluster(f"http://127.0.0.1:{port}", TOKEN)


def test_a_cluster_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # covers I9
    monkeypatch.setattr(probe, "_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(DeadlineError):
        check_cluster(f"http://127.0.0.1:{server.getsockname()[1]}", TOKEN)


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:8265", "ray://host:10001", "file:///etc/passwd", "http://", "http://host:x"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="not usable"):
        check_cluster(address, TOKEN)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    # covers S21
    with pytest.raises(InvalidInput) as refused:
        check_cluster("http://user:hunter2@host:8265", TOKEN)
    assert "hunter2" not in str(refused.value)
    assert refused.value.value is None


# --- starting -----------------------------------------------------------------------------------------------


def test_a_ray_that_would_leave_loopback_is_refused_before_it_starts(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # covers S2
    monkeypatch.setattr(local.services, "resolve_ip_for_localhost", lambda host: "192.0.2.2")
    monkeypatch.setattr(local.ray, "init", lambda **_: pytest.fail("ray.init was called"))
    params, environment = local.parameter.RayParams, dict(os.environ)
    with pytest.raises(InsecureClusterError, match="would listen beyond this machine"):
        start_local(cpus=1, resources={}, folder=base)
    assert local.parameter.RayParams is params
    assert local.ray_constants.ENABLE_RAY_CLUSTER
    assert dict(os.environ) == environment
    assert describe_sessions(base) == []


def test_what_ray_says_when_it_does_not_start_is_passed_on(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("The current node timed out during startup.")

    monkeypatch.setattr(local.ray, "init", refuse)
    environment = dict(os.environ)
    with pytest.raises(local.RaykitError, match="Ray did not start: The current node timed out") as failed:
        start_local(cpus=1, resources={}, folder=base)
    assert isinstance(failed.value.__cause__, RuntimeError)
    assert dict(os.environ) == environment
    assert describe_sessions(base) == []


def test_another_thread_cannot_start_one(base: Path) -> None:
    refused: list[InvalidInput] = []

    def start() -> None:
        try:
            start_local(cpus=1, resources={}, folder=base)
        except InvalidInput as error:
            refused.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(refused[0])
    assert list(base.iterdir()) == []


def test_the_environment_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYKIT_TEST_CHANGED", "before")
    monkeypatch.delenv("RAYKIT_TEST_ADDED", raising=False)
    monkeypatch.setenv("RAYKIT_TEST_REMOVED", "here")
    settings = {"RAYKIT_TEST_CHANGED": "within", "RAYKIT_TEST_ADDED": "within", "RAYKIT_TEST_REMOVED": None}
    with pytest.raises(ZeroDivisionError), changed(settings):
        assert os.environ["RAYKIT_TEST_CHANGED"] == os.environ["RAYKIT_TEST_ADDED"] == "within"
        assert "RAYKIT_TEST_REMOVED" not in os.environ
        _ = 1 / 0
    assert os.environ["RAYKIT_TEST_CHANGED"] == "before"
    assert "RAYKIT_TEST_ADDED" not in os.environ
    assert os.environ["RAYKIT_TEST_REMOVED"] == "here"
