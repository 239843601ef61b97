"""The Ray that there is: inside a job its cluster, elsewhere a private one; what is refused before either is used.

covers RAY-02 RAY-15 RAY-17 RAY-18 RAY-20 FLEET-12, S1 S4
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from called import calls

from raykit.cli.dev import _cpus
from raykit.cli.main import main
from raykit.errors import DeadlineError, GateError, InsecureClusterError, InvalidInput
from raykit.fleet import dev
from raykit.fleet.budget_actor import Seat
from raykit.fleet.session import describe_sessions, in_ray_job, job_here, joined, labels, nodes, open_ray
from raykit.fleet.session.folder import RECORD, create, make_parent
from raykit.fleet.session.here import JOB_CONFIG
from raykit.fleet.session.joined import JoinedRay, join_ray
from raykit.fleet.session.ports import Ports
from raykit.fleet.session.token import environment_token

# --- which Ray ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No job, no token, and a temporary folder of its own, short enough for Ray's sockets."""
    short = tempfile.mkdtemp(prefix="rk-", dir="/tmp")
    for name in (JOB_CONFIG, "RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", short)
    monkeypatch.setattr(tempfile, "tempdir", short)
    yield
    shutil.rmtree(short)


def test_an_address_alone_makes_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A RAY_ADDRESS that was left in the environment sends no launch into anybody's cluster."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert not in_ray_job() and job_here() is None
    monkeypatch.setenv(JOB_CONFIG, json.dumps({"metadata": {"job_submission_id": "raykit-tiny-1"}}))
    assert in_ray_job() and job_here() == "raykit-tiny-1"


@pytest.mark.parametrize("said", ["not json", "{}", '{"metadata": null}', "[]"])
def test_a_supervisor_that_does_not_say_which_job_it_is(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv(JOB_CONFIG, said)
    assert in_ray_job() and job_here() is None


@pytest.mark.parametrize("address", ["auto", "10.0.0.1", ":6379", "10.0.0.1:port"])
def test_a_head_without_an_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="address of the head"):
        join_ray(address)


def test_a_head_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    with pytest.raises(DeadlineError, match=r"does not answer at 127\.0\.0\.1:9"):
        join_ray("127.0.0.1:9")


def test_a_plan_for_nodes_with_labels_starts_no_private_ray() -> None:
    """Refused before a session is made; it says how to send it."""
    said: list[str] = []
    with pytest.raises(GateError) as raised:
        open_ray(cpus=1, labels={"train": {"zone": "a"}}, say=said.append)
    assert raised.value.field == "pools.train.nodes" and "raykit submit" in str(raised.value.remedy)
    assert not said and not describe_sessions()


# --- what a cluster has -------------------------------------------------------------------------------------


def cluster(monkeypatch: pytest.MonkeyPatch, *, grows: dict[str, int] | None = None, **has: float) -> None:
    state = SimpleNamespace(get_max_resources_from_cluster_config=lambda: grows)
    monkeypatch.setattr(joined, "ray_state", state)
    monkeypatch.setattr(joined.ray, "cluster_resources", lambda: has)


def test_what_could_never_come_is_refused_and_what_may_come_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """covers RAY-02: never a silent wait; a cluster that grows by itself is judged by what it may grow to"""
    cluster(monkeypatch, CPU=2.0)
    joined.require_room(cpus=2, gpus=0)
    with pytest.raises(GateError, match="needs 3 CPUs at once, and the cluster has 2") as raised:
        joined.require_room(cpus=3, gpus=0)
    assert raised.value.exit_code == 3
    with pytest.raises(GateError, match="needs 1 GPUs"):
        joined.require_room(cpus=2, gpus=1)
    cluster(monkeypatch, CPU=2.0, grows={"CPU": 64, "GPU": 8})
    joined.require_room(cpus=64, gpus=8)


def test_labels_that_no_node_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, CPU=2.0)
    there = [
        {"Alive": True, "Labels": {"ray.io/node-id": "1", "zone": "a"}},
        {"Alive": False, "Labels": {"zone": "b"}},
    ]
    monkeypatch.setattr(labels.ray, "nodes", lambda: there)
    labels.require_labels({"train": {"zone": "a"}, "qc": {}})
    labels.require_labels({"train": {"zone": "!b"}, "qc": {"zone": "in(a,b)"}})  # Ray's own operators
    with pytest.raises(GateError, match=r"zone = b.*would wait for ever") as raised:
        labels.require_labels({"qc": {"zone": "b"}})
    assert raised.value.field == "pools.qc.nodes" and "zone = a" in str(raised.value.remedy)
    cluster(monkeypatch, CPU=2.0, grows={"CPU": 64})
    labels.require_labels({"qc": {"zone": "b"}})


@pytest.mark.parametrize("found", ["f" * 64, "ModuleNotFoundError: No module named 'raykit'"])
def test_a_node_with_another_raykit_is_named(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    """covers FLEET-12: what the workers have counts, whatever this process has"""
    there = [{"Alive": True, "NodeID": "n1", "NodeManagerHostname": "gpu-7"}]
    monkeypatch.setattr(nodes, "ray", SimpleNamespace(nodes=lambda: there, get=lambda ref, timeout: found))
    monkeypatch.setattr(nodes, "_ask", lambda node: node)
    with pytest.raises(GateError, match="node gpu-7 have another raykit") as raised:
        nodes.require_same_raykit(lambda line: None)
    assert "raykit submit" in str(raised.value.remedy)
    monkeypatch.setattr(nodes, "package_digest", lambda: found)
    nodes.require_same_raykit(lambda line: None)


def test_a_head_that_is_only_replaced_is_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 1000.0
    monkeypatch.setattr(joined.time, "monotonic", lambda: now)
    there = JoinedRay("127.0.0.1:6379", "http://127.0.0.1:8265", tmp_path)
    monkeypatch.setattr(joined, "answers", lambda host, port: now < 1010 or now > 1040)
    now = 1005.0
    assert there.lost() is None
    now = 1035.0
    assert there.lost() is None
    now = 1041.0
    assert there.lost() is None  # it is back
    monkeypatch.setattr(joined, "answers", lambda host, port: False)
    now = 1100.0
    lost = there.lost()
    assert lost is not None and lost.exit_code == 6 and "59 s" in lost.message


def test_workers_ask_a_shared_cluster_for_nothing_that_only_a_private_one_has(tmp_path: Path) -> None:
    there = JoinedRay("127.0.0.1:6379", "http://127.0.0.1:8265", tmp_path)
    assert there.wants("qc") == {} and there.idle_s is not None
    there.labels = {"qc": {"zone": "a"}}
    assert there.wants("qc") == {"label_selector": {"zone": "a"}} and there.wants("generate") == {}


def test_stores_that_share_a_cluster_share_no_budget_actor() -> None:
    """Accounts of the same name in two stores are two accounts."""
    one, two = Seat(root="s3://a", account="x", idle_s=60.0), Seat(root="s3://b", account="x", idle_s=60.0)
    assert one.name != two.name and one.name.startswith("raykit-budget-x-")
    assert Seat(root="s3://a", account="x").name == "raykit-budget-x"  # a private Ray has one store


# --- tokens -------------------------------------------------------------------------------------------------


def test_a_token_is_looked_for_where_ray_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert environment_token() is None
    home = tmp_path / ".ray" / "auth_token"
    home.parent.mkdir(mode=0o700)
    home.write_text("at-home\n")
    assert environment_token() == "at-home"
    named = tmp_path / "named"
    named.write_text("named")
    named.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(named))
    assert environment_token() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "said")
    assert environment_token() == "said"


def test_a_token_that_others_read_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """covers S4: Ray itself writes it 0644; in a closed folder that is fine, and so it is on a node"""
    folder = tmp_path / "t"
    folder.mkdir(mode=0o755)
    path = folder / "token"
    path.write_text("x")
    path.chmod(0o644)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    with pytest.raises(InsecureClusterError, match="other users") as raised:
        environment_token()
    assert raised.value.exit_code == 7
    assert environment_token(private=False) == "x"
    folder.chmod(0o700)
    assert environment_token() == "x"


@pytest.mark.parametrize("data", [b"", b"  \n", b"\xff\xfe"])
def test_a_file_without_a_token_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "token"
    path.write_bytes(data)
    path.chmod(0o600)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    with pytest.raises(InvalidInput, match=str(path)):
        environment_token()
    path.unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        environment_token()


# --- dev clusters -------------------------------------------------------------------------------------------


def killed_dev() -> Path:
    """The folder of a dev cluster whose process is gone; none of its processes was left."""
    place = create(make_parent(None), Ports(20000, 256), ray_version="2.60.0")
    record = place.path / RECORD
    said: dict[str, Any] = json.loads(record.read_text())
    record.write_text(json.dumps({**said, "pid": 2**22 - 1, "started": 1}) + "\n")
    (place.path / dev.RECORD).write_text(json.dumps({"cpus": 3}))
    return place.path


def test_a_killed_dev_cluster_is_named_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    """covers RAY-20: doctor and status name what is left; down ends it, and twice is fine"""
    raykit = calls(capsys)
    assert raykit("dev", "status").out.startswith("no dev cluster is up")
    folder = killed_dev()
    assert raykit("dev", "status", "--json").json["left_over"] == [folder.name]
    looked = {line["check"]: line for line in raykit("doctor", "--json").json["checks"]}
    assert looked["dev cluster"]["state"] == "warn" and looked["dev cluster"]["remedy"] == "raykit dev down"
    assert folder.name in looked["dev cluster"]["found"] and "20000-20255" in looked["dev cluster"]["found"]
    assert raykit("dev", "down", "--json").json == {"ended": [], "leftovers": []}
    assert not folder.exists()
    assert "no dev cluster is up, and none has left anything." in raykit("dev", "down").out


def test_there_is_one_dev_cluster_for_each_user() -> None:
    """The lock goes with its process, however that ends."""
    with dev._only_one() as first, dev._only_one() as second:
        assert (first, second) == (True, False)
    with dev._only_one() as again:
        assert again


def test_a_dev_cluster_that_does_not_start_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "own_cpus", lambda: -1)
    monkeypatch.setattr(dev, "UP_S", 60.0)
    began = time.monotonic()
    code = main(["dev", "up"])
    assert code == 1 and "did not start" in capsys.readouterr().err
    assert time.monotonic() - began < 60 and not describe_sessions()
    assert sorted(path.name for path in make_parent(None).iterdir()) == ["dev.lock"]


@pytest.mark.parametrize(
    ("counted", "here", "said"),
    [(4, 4, "4"), (4, 2, "4 counted by Ray, on a machine with 2"), (None, 2, "not known")],
)
def test_cpus_that_are_not_there_are_not_claimed(counted: int | None, here: int, said: str) -> None:
    assert _cpus(counted, here) == said
