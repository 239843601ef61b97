"""Launches as Ray jobs, on a dev cluster that is really there: sent, found again, paused, killed, and gone on with.

covers RAY-15 RAY-16 RAY-17 RAY-18 RAY-20 DISP-03 DISP-09 DISP-15 FLEET-05 FLEET-06 FLEET-12, I4 I5 I10, F20, S1
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from devcluster import BIN, DevCluster
from plainrun import final_digest, rows_bits
from raylaunch import Store

from raykit.fleet.session import describe_sessions
from raykit.fleet.session.ports import claim_ports
from raykit.records import Launched
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(400)]

SLOW_S = "0.15"
"""Of each update of every job here: a run of 80 takes 12 s, and can be paused and killed in."""


@pytest.fixture(scope="module")
def dev() -> Iterator[DevCluster]:
    made = DevCluster(TINY_SLOW_S=SLOW_S)
    made.up("--cpus", "2")
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def submit(dev: DevCluster, store: Store, plan: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return dev.raykit("submit", str(plan), "--root", str(store.root), *more)


def detached(dev: DevCluster, store: Store, plan: Path) -> dict[str, object]:
    done = submit(dev, store, plan, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    return said


def jobs_of(store: Store) -> list[str | None]:
    return [event.job for event in store.state().events if isinstance(event, Launched)]


def same_run(store: Store, undisturbed) -> None:
    """Complete, equal to the undisturbed run to the bit, and in order, with every resume exact."""
    assert store.state().completed
    assert final_digest(store.task) == undisturbed.digest
    assert rows_bits(store.task) == undisturbed.rows
    assert all(each.resume.exactness == "exact" for each in store.state().attempts[1:])
    check_invariants(LocalStore(store.root))


def test_a_job_is_found_again_paused_from_outside_and_resumed_to_the_bit(
    dev: DevCluster, store: Store, undisturbed
) -> None:
    """covers RAY-15 DISP-03 DISP-09 DISP-15 FLEET-12: seen to run by the store, whatever the client was told."""
    first, again = detached(dev, store, undisturbed.plan), detached(dev, store, undisturbed.plan)
    assert (first["new"], again["new"]) == (True, False)
    assert first["submission_id"] == again["submission_id"]
    store.wait("the first rows", lambda s: s.rows >= 10)

    paused = dev.raykit("pause", "tiny", "--root", str(store.root), "--reason", "a look", "--by", "ada")
    assert paused.returncode == 0, paused.stderr
    job = dev.job(str(first["submission_id"]), lambda job: job.over)
    state = store.state()
    assert job.status == "SUCCEEDED" and state.ended.reason == "paused"  # a pause is no failed job
    assert state.committed == state.rows == state.ended.update < 80
    assert state.launched.launch == first["launch"] == job.metadata["launch"]

    refused = submit(dev, store, undisturbed.plan)
    assert refused.returncode == 4 and "paused by ada: a look" in refused.stderr

    resumed = dev.raykit("resume", "tiny", "--root", str(store.root))
    assert resumed.returncode == 0, resumed.stderr
    assert "as it was sent" in resumed.stderr and f"resume from update {state.committed}" in resumed.stderr
    same_run(store, undisturbed)
    one, two = jobs_of(store)
    assert one == first["submission_id"] and two not in (None, one)

    done = submit(dev, store, undisturbed.plan)
    assert done.returncode == 0 and "already trained" in done.stdout and len(jobs_of(store)) == 2


def test_a_job_that_is_stopped_from_the_dashboard_is_killed_and_goes_on(
    dev: DevCluster, store: Store, undisturbed
) -> None:
    """covers RAY-16: the client says what that was and where it goes on; the record has how far it came"""
    watching = dev.begin("submit", str(undisturbed.plan), "--root", str(store.root))
    store.wait("a checkpoint", lambda s: (s.committed or 0) >= 10, watching)
    (name,) = jobs_of(store)
    dev.api.stop(name)
    out, err = watching.communicate(timeout=200)
    assert "was stopped from outside: that is a kill, and no pause" in out, (out, err)
    assert watching.returncode == 4 and "safe boundary was reached" in out and "continue raykit submit" in out
    done = submit(dev, store, undisturbed.plan)
    assert done.returncode == 0, done.stderr
    assert store.state().ends[1].reason in ("killed", "paused")
    same_run(store, undisturbed)


def test_a_plain_ray_job_of_the_folder_works_as_well(dev: DevCluster, store: Store, undisturbed) -> None:
    command = [str(BIN / "ray"), "job", "submit", "--address", dev.record["address"], "--working-dir", "."]
    launch = ["--", "raykit", "launch", undisturbed.plan.name, "--root", str(store.root)]
    done = subprocess.run(
        [*command, *launch],
        cwd=undisturbed.plan.parent,
        env={**dev.environment, **dev.as_ray_needs},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    same_run(store, undisturbed)
    (name,) = jobs_of(store)
    assert name is not None and name.startswith("raysubmit_")


def test_a_cluster_that_is_too_small_is_said_before_anything_starts(
    dev: DevCluster, store: Store, undisturbed, tmp_path: Path
) -> None:
    """covers RAY-02: what could never come is refused, and nothing is reserved."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        re.sub(r"^updates .*$", "updates = 80\nworkers = 8", undisturbed.plan.read_text(), flags=re.M)
    )
    (tmp_path / "recipe.py").write_bytes((undisturbed.plan.parent / "recipe.py").read_bytes())
    plan.write_text(plan.read_text().replace("batch            = 12", "batch            = 16"))
    done = submit(dev, store, plan)
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "needs 8 CPUs at once, and the cluster has 2" in done.stderr
    assert not store.state().events and not list(store.root.glob("accounts/*/log/*"))
    (job,) = [job for job in dev.api.jobs() if job.metadata.get("root") == str(store.root)]
    assert job.status == "SUCCEEDED"  # refused, and not retried by whoever retries what failed


def test_strangers_get_nothing(dev: DevCluster, store: Store, undisturbed) -> None:
    """covers RAY-17, S1: without a token, with a wrong one, and where nobody answers"""
    url = dev.record["address"]
    guessed = dev.raykit("doctor", "--address", url.replace("http", "ftp"))
    assert guessed.returncode == 2 and "not usable" in guessed.stdout
    wrong = dev.base / "wrong"
    wrong.write_text("a" * 64)
    wrong.chmod(0o600)
    other = DevCluster()  # somebody else's home and folders
    try:
        missing = other.raykit("submit", str(undisturbed.plan), "--root", str(store.root), "--address", url)
        assert missing.returncode == 2 and "there is none here" in missing.stderr
        arguments = ("submit", str(undisturbed.plan), "--root", str(store.root), "--address", url)
        refused = other.raykit(*arguments, RAY_AUTH_TOKEN_PATH=str(wrong))
        assert refused.returncode == 2 and "answered 403" in refused.stderr
        nobody = other.raykit(*arguments[:-1], "http://127.0.0.1:9")
        assert nobody.returncode == 2 and "no Ray dashboard answers" in nobody.stderr
    finally:
        other.close()
    assert not store.state().events


def test_a_dev_cluster_is_one_and_says_so(dev: DevCluster) -> None:
    """covers RAY-18 RAY-20"""
    again = dev.raykit("dev", "up", "--json")
    assert json.loads(again.stdout) == {**dev.record, "already": True}
    looked = dev.raykit("doctor", "--address", "auto", "--root", str(dev.base / "none"))
    assert looked.returncode == 0, looked.stdout
    assert "dev cluster" in looked.stdout and "401 without a token" in looked.stdout
    (session,) = describe_sessions(dev.base)
    for each in session.processes:
        environment = psutil.Process(each.pid).environ()
        # agents of Ray overwrite their environment with their title
        assert environment.get("RAY_USAGE_STATS_ENABLED", "0") == "0"


def test_the_same_plan_and_store_go_on_in_another_cluster(dev: DevCluster, store: Store, undisturbed) -> None:
    """covers FLEET-05 FLEET-06, I10, F20: every process of the first is killed at once, its head included"""
    gone = DevCluster(TINY_SLOW_S=SLOW_S)
    try:
        gone.up("--cpus", "2")
        watching = gone.begin("submit", str(undisturbed.plan), "--root", str(store.root))
        store.wait("a checkpoint", lambda s: (s.committed or 0) >= 10, watching)
        session = gone.record["session"]
        gone.kill()
        left = gone.raykit("doctor", "--root", str(store.root))
        assert f"{session}: killed" in left.stdout, left.stdout
        watching.send_signal(signal.SIGINT)  # it would wait a minute for the head to come back
        watching.communicate(timeout=100)
    finally:
        gone.close()

    done = submit(dev, store, undisturbed.plan)
    assert done.returncode == 0, done.stderr
    same_run(store, undisturbed)
    one, two = jobs_of(store)
    assert one != two and store.state().ends[1].reason == "killed"


def test_a_cluster_without_a_token_is_refused(undisturbed, store: Store) -> None:
    """covers RAY-17 RAY-20, S1: bare `ray start`, on loopback; exit 7; ended by process id"""
    made = DevCluster()
    claim = claim_ports(cpus=1)
    try:
        with Bare(made, claim.ports.first + 1) as bare:
            done = made.raykit(
                "submit", str(undisturbed.plan), "--root", str(store.root), "--address", bare.url
            )
            assert done.returncode == 7 and "without a token" in done.stderr, done.stderr
            looked = made.raykit("doctor", "--address", bare.url, "--root", str(store.root))
            assert looked.returncode == 7 and "answered 200 without a token" in looked.stdout
    finally:
        claim.release()
        made.close()
    assert not store.state().events


def test_down_ends_what_up_started_and_nothing_else(undisturbed, store: Store) -> None:
    """covers RAY-20: a job that runs there is named first; afterwards folder, processes and ports are free"""
    made = DevCluster(TINY_SLOW_S=SLOW_S)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        made.up()
        said = detached(made, store, undisturbed.plan)
        made.job(str(said["submission_id"]), lambda job: job.status == "RUNNING")
        (session,) = describe_sessions(made.base)
        assert session.ports is not None
        refused = made.raykit("dev", "down")
        assert refused.returncode == 3 and str(said["submission_id"]) in refused.stderr
        done = made.raykit("dev", "down", "--now")
        assert done.returncode == 0, done.stderr
        assert not describe_sessions(made.base) and not session.folder.exists()
        gone = [each.pid for each in session.processes if psutil.pid_exists(each.pid)]
        assert not [pid for pid in gone if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
        listening = {c.laddr.port for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        assert not listening & set(range(session.ports.first, session.ports.first + session.ports.count))
        assert bystander.poll() is None
        assert made.raykit("dev", "down").returncode == 0  # twice is fine
    finally:
        bystander.kill()
        bystander.wait()
        made.close()


class Bare:
    """`ray start --head` without a token, on loopback, with ports of its own. Never `ray stop`: ended by its pids."""

    def __init__(self, dev: DevCluster, first: int) -> None:
        names = (
            "port",
            "node-manager-port",
            "object-manager-port",
            "dashboard-port",
            "dashboard-agent-listen-port",
            "dashboard-agent-grpc-port",
            "metrics-export-port",
            "runtime-env-agent-port",
            "min-worker-port",
        )
        ports = {name: first + n for n, name in enumerate(names)}
        self.url = f"http://127.0.0.1:{ports['dashboard-port']}"
        options = [f"--{name}={port}" for name, port in ports.items()]
        self._process = subprocess.Popen(
            [
                str(BIN / "ray"),
                "start",
                "--head",
                "--block",
                "--node-ip-address=127.0.0.1",
                "--dashboard-host=127.0.0.1",
                f"--temp-dir={dev.base}/bare",
                "--num-cpus=1",
                f"--max-worker-port={first + 100}",
                *options,
            ],
            env={
                **dev.environment,
                "RAY_AUTH_MODE": "disabled",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._dev = dev

    def __enter__(self) -> Bare:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            looked = self._dev.raykit("doctor", "--address", self.url)
            if "no Ray dashboard answers" not in looked.stdout and "did not answer" not in looked.stdout:
                return self
            assert self._process.poll() is None, "ray start has ended"
            time.sleep(0.5)
        raise AssertionError("the bare cluster does not answer")

    def __exit__(self, *_: object) -> None:
        found = psutil.Process(self._process.pid)
        for process in [found, *found.children(recursive=True)]:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()
