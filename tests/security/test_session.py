"""The private local Ray: token, loopback, private folder, own ports, and nothing left behind.

Launches run in processes of their own (session_child.py), so that they can be killed.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from raykit.errors import InsecureClusterError, InvalidInput
from raykit.fleet.session import check_cluster, describe_sessions
from raykit.fleet.session.folder import SessionFolder
from raykit.fleet.session.ports import Ports, claim_ports
from raykit.fleet.session.processes import MARK, ProcessId, alive, end_all, identify, of_session

pytestmark = pytest.mark.ray

CHILD = Path(__file__).parent / "session_child.py"
START_S = 100.0
NOBODY = 65534

is_root = os.geteuid() == 0
has_namespaces = is_root and all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip"))


@dataclass
class Launch:
    """One launch process and what it said about its session."""

    process: subprocess.Popen[str]
    log: Path
    said: dict[str, Any]

    @property
    def folder(self) -> Path:
        return Path(self.said["folder"])

    @property
    def token(self) -> str:
        return Path(self.said["token_path"]).read_text()

    @property
    def ports(self) -> Ports:
        return Ports(*self.said["ports"])

    def listen(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the launch ended:\n{self.log.read_text()[-3000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.listen()

    def processes(self) -> set[ProcessId]:
        """Everything that runs for the session, as the kernel has it."""
        return of_session(self.said["session"], self.folder, [])


class Launches:
    """Starts launches in one folder, and ends whatever is left of them."""

    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="rk-"))
        self.made: list[Launch] = []

    def begin(self, *arguments: str, within: tuple[str, ...] = ()) -> Launch:
        log = self.base / f"launch-{len(self.made)}.log"
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [*within, sys.executable, str(CHILD), str(self.base), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        launch = Launch(process, log, {})
        self.made.append(launch)
        return launch

    def start(self, *arguments: str, within: tuple[str, ...] = ()) -> Launch:
        launch = self.begin(*arguments, within=within)
        launch.said = launch.listen()
        return launch

    def close(self) -> None:
        for launch in self.made:
            launch.process.kill()
            launch.process.communicate()
            if launch.said:
                end_all("test", launch.processes, grace_s=1)
        shutil.rmtree(self.base)


@pytest.fixture(scope="module")
def launches() -> Iterator[Launches]:
    made = Launches()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pair(launches: Launches) -> tuple[Launch, Launch]:
    """Two launches, started at the same time."""
    first, second = launches.begin(), launches.begin()
    first.said, second.said = first.listen(), second.listen()
    return first, second


@pytest.fixture(scope="module")
def one(pair: tuple[Launch, Launch]) -> Launch:
    return pair[0]


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


def status_of(url: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", "/api/jobs/", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def test_two_launches_at_once_do_not_collide(pair: tuple[Launch, Launch], launches: Launches) -> None:
    first, second = pair
    assert not set(range(first.ports.first, first.ports.first + first.ports.count)) & set(
        range(second.ports.first, second.ports.first + second.ports.count)
    )
    for launch in pair:
        ports = {port for _, _, port in launch.said["listeners"]}
        assert ports <= set(range(launch.ports.first, launch.ports.first + launch.ports.count))
        assert ports.isdisjoint(range(10002, 20000))
        assert launch.said["keeps_sigterm"]
    described = {it.session: it for it in describe_sessions(launches.base)}
    assert set(described) == {first.said["session"], second.said["session"]}
    for launch in pair:
        found = described[launch.said["session"]]
        assert found.state == "alive"
        assert found.launch == identify(launch.process.pid)
        assert set(found.processes) == launch.processes()
        assert found.dashboard_url == launch.said["dashboard_url"]
        assert str(found.token_path) == launch.said["token_path"]


def test_the_jobs_api_asks_for_the_token(one: Launch) -> None:
    # covers S1
    url = one.said["dashboard_url"]
    assert status_of(url, {}) == 401
    assert status_of(url, {"Authorization": f"Bearer {secrets.token_hex(32)}"}) == 403
    assert status_of(url, {"Authorization": f"Bearer {one.token}"}) == 200
    check_cluster(url, one.token)
    with pytest.raises(InvalidInput, match="403 to this token"):
        check_cluster(url, secrets.token_hex(32))


def test_a_cluster_without_a_token_is_refused(launches: Launches) -> None:
    # covers S1
    claim = claim_ports(cpus=1)
    ports, folder = claim.ports, launches.base / "bare"
    folder.mkdir()
    flags = {
        "port": ports.of("gcs"),
        "node-manager-port": ports.of("node_manager"),
        "object-manager-port": ports.of("object_manager"),
        "dashboard-port": ports.of("dashboard"),
        "dashboard-agent-grpc-port": ports.of("agent_grpc"),
        "dashboard-agent-listen-port": ports.of("agent_http"),
        "runtime-env-agent-port": ports.of("runtime_env_agent"),
        "metrics-export-port": ports.of("metrics_export"),
        "min-worker-port": ports.workers.start,
        "max-worker-port": ports.workers.stop - 1,
        "num-cpus": 1,
        "object-store-memory": 100 * 2**20,
        "node-ip-address": "127.0.0.1",
        "temp-dir": str(folder),
    }
    environment = os.environ | {
        MARK: "bare",
        "TMPDIR": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "AUTOSCALER_METRIC_PORT": str(ports.of("autoscaler_metrics")),
        "DASHBOARD_METRIC_PORT": str(ports.of("dashboard_metrics")),
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    with (launches.base / "bare.log").open("w") as log:
        bare = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        port = ports.of("dashboard")
        wait_until(lambda: accepts("127.0.0.1", port), 60, "a bare Ray answers")
        with pytest.raises(InsecureClusterError, match="answered 200 without a token") as refused:
            check_cluster(f"http://127.0.0.1:{port}", secrets.token_hex(32))
        assert refused.value.exit_code == 7
    finally:
        bare.kill()  # SIGTERM would let it drain for half a minute
        bare.wait()
        end_all("bare", lambda: of_session("bare", folder, []), grace_s=1)
        claim.release()


def test_everything_listens_on_loopback_only(one: Launch) -> None:
    # covers S2
    names = {name for name, _, _ in one.said["listeners"]}
    assert {"gcs_server", "raylet", "dashboard.py"} <= names
    found = [
        connection.laddr
        for process in one.processes()
        for connection in psutil.Process(process.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.ip.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}
    others = {
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    }
    for host in others:
        assert not [port for port in {it.port for it in found} if accepts(host, port)]


def test_usage_statistics_are_off_in_every_process(one: Launch) -> None:
    # covers RAY-18
    values = []
    for process in one.processes():
        environment = psutil.Process(process.pid).environ()
        if (
            MARK in environment
        ):  # Ray overwrites it in processes that rename themselves, all children of these
            values.append(environment.get("RAY_USAGE_STATS_ENABLED"))
    assert len(values) >= 6
    assert set(values) == {"0"}


def test_the_token_is_private_and_in_no_command_line_or_log(one: Launch) -> None:
    # covers S4
    path = Path(one.said["token_path"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert folder.stat().st_uid == os.geteuid()
    token = one.token.encode()
    assert len(token) == 64
    lines = [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if token in read_if_there(entry)]
    assert lines == []
    files = [file for file in one.folder.rglob("*") if file.is_file() and token in file.read_bytes()]
    assert files == [path]
    assert token not in one.log.read_bytes()
    assert token.decode() not in json.dumps(one.said)
    assert (
        not Path("~/.ray/auth_token").expanduser().exists()
        or token not in Path("~/.ray/auth_token").expanduser().read_bytes()
    )


def read_if_there(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended since it was listed
        return b""


@pytest.mark.skipif(not is_root, reason="becoming another user needs root")
def test_another_user_reaches_neither_folder_nor_sockets(one: Launch, launches: Launches) -> None:
    # covers S5
    launches.base.chmod(0o755)  # so that what follows is refused by raykit's own folder, not by the test's
    socket_path = next(one.folder.rglob("sockets/raylet"))
    script = f"""
import os, socket
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
def refused(act, *arguments):
    try:
        act(*arguments)
    except PermissionError:
        return True
    return False
print(all([
    refused(os.listdir, {str(one.folder.parent)!r}),
    refused(os.listdir, {str(one.folder)!r}),
    refused(os.listdir, {str(one.folder / "ray")!r}),
    refused(open, {one.said["token_path"]!r}),
    refused(socket.socket(socket.AF_UNIX).connect, {str(socket_path)!r}),
]))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert found.stdout == "True\n", found.stderr


def test_the_next_start_ends_exactly_what_a_killed_launch_left(
    pair: tuple[Launch, Launch], launches: Launches, next_launch: Callable[[], Launch]
) -> None:
    # covers I9, FLEET-11
    one, killed = pair
    in_use = one.processes()
    started = killed.processes()
    log = next(killed.folder.rglob("raylet.out"))
    reader = subprocess.Popen(["tail", "-f", str(log)], stdout=subprocess.DEVNULL)
    decoy = subprocess.Popen(["sleep", "600"])
    try:
        wait_until(lambda: "tail" in (identify(reader.pid) or decoy_id(decoy)).name, 10, "tail runs")
        recycled = decoy_id(decoy)
        # As if a recorded process had ended, and its number had gone to another one.
        SessionFolder(killed.folder).append(
            ProcessId(pid=recycled.pid, started=recycled.started - 1, name="raylet")
        )
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(timeout=10)
        assert [process for process in started if alive(process)], "a dead launch leaves something to end"

        following = next_launch()

        assert [process for process in started if alive(process)] == []
        assert not killed.folder.exists()
        assert reader.poll() is None
        assert decoy.poll() is None
        assert [process for process in in_use if not alive(process)] == []
        states = {it.session: it.state for it in describe_sessions(launches.base)}
        assert states == {one.said["session"]: "alive", following.said["session"]: "alive"}
    finally:
        for process in (reader, decoy):
            process.kill()
            process.wait()


def decoy_id(process: subprocess.Popen[bytes]) -> ProcessId:
    found = identify(process.pid)
    assert found
    return found


@pytest.fixture(scope="module")
def next_launch(launches: Launches) -> Iterator[Callable[[], Launch]]:
    """The third launch; with root, in a network namespace of its own that has an address others can reach."""
    made: list[Launch] = []
    within: tuple[str, ...] = ()
    peer = None
    if has_namespaces:
        peer = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        script = f"""set -e
ip link set lo up
ip link add rk0 type veth peer name rk1
ip addr add 10.77.0.1/24 dev rk0
ip link set rk0 up
ip link set rk1 netns {peer.pid}
nsenter -t {peer.pid} -n ip addr add 10.77.0.2/24 dev rk1
nsenter -t {peer.pid} -n ip link set rk1 up
exec "$@"
"""
        within = ("unshare", "-n", "sh", "-c", script, "sh")
        mine = os.stat("/proc/self/ns/net").st_ino
        wait_until(lambda: os.stat(f"/proc/{peer.pid}/ns/net").st_ino != mine, 10, "a second namespace")

    def start() -> Launch:
        if not made:
            made.append(launches.start("--control", within=within))
            made[0].said["peer"] = peer.pid if peer else None
        return made[0]

    yield start
    if peer:
        peer.kill()
        peer.wait()


@pytest.mark.skipif(not has_namespaces, reason="network namespaces need root, iproute2 and util-linux")
def test_no_other_machine_can_connect(next_launch: Callable[[], Launch]) -> None:
    # covers S2
    launch = next_launch()
    ports = [port for _, _, port in launch.said["listeners"]]
    assert len(ports) >= 11
    script = f"""
import socket
def accepts(port):
    try:
        socket.create_connection(("10.77.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
print([port for port in {[*ports, launch.said["control"]]} if accepts(port)])
"""
    command = ["nsenter", "-t", str(launch.said["peer"]), "-n", sys.executable, "-c", script]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # The launch process serves one port to all on purpose: the network is there, and Ray is not on it.
    assert json.loads(found.stdout) == [launch.said["control"]], found.stderr


def test_a_worker_that_listens_beyond_loopback_is_named(next_launch: Callable[[], Launch]) -> None:
    # covers S2
    refusal = next_launch().ask("listen beyond")["refusal"]
    assert refusal.startswith("ray::Server")
    assert "listens on 0.0.0.0 port" in refusal


def test_close_leaves_nothing(one: Launch, launches: Launches) -> None:
    # covers I9
    started = one.processes()
    begun = time.monotonic()
    answer = one.ask("close")
    # What Ray itself sets in the process that uses it, and leaves.
    assert set(answer["changed"]) <= {"PYTHONBREAKPOINT", "RAY_CLIENT_MODE"}
    assert not answer["token_asked"]
    assert answer["tmp"] == tempfile.gettempdir()
    # A call that comes after it finds no Ray, and makes none: a bare one would ask nobody for a token.
    *unasked, connected = answer["unasked"]
    assert connected == "False"
    assert "answered" not in unasked
    assert len(unasked) == 4
    assert time.monotonic() - begun < 30
    assert [process for process in started if alive(process)] == []
    assert one.processes() == set()
    assert not one.folder.exists()
    for port in range(one.ports.first, one.ports.first + one.ports.count):
        assert not accepts("127.0.0.1", port)
    assert one.process.poll() is None

    # The same process can have another session, with another token.
    one.said = one.ask("start again")
    check_cluster(one.said["dashboard_url"], one.token)
