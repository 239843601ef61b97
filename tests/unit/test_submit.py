"""`raykit submit` against a Jobs API that is really there: what is sent, what is refused before, what is said after.

covers RAY-15 RAY-17 DISP-01 DISP-03 DISP-04 DISP-05 DISP-09 DISP-11 DISP-13 DISP-15
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from called import Raykit, calls
from jobsserver import JobsServer

from raykit.cli import submit as cli
from raykit.fleet.jobs.address import Address
from raykit.fleet.jobs.api import JobsApi, NewJob
from raykit.fleet.jobs.last import Last
from raykit.ids import digest_of
from raykit.plan import contract
from raykit.read.planfile import read_plan_file
from raykit.records import ExperimentEntry, Launched, Locked, Place
from raykit.store import layout, open_store
from raykit.store.log import Log, RunLog
from raykit.store.people import pause
from raykit.store.place import this_place

TINY = Path(__file__).parent.parent / "tiny"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobsServer]:
    with JobsServer() as made:
        assert made.token is not None
        monkeypatch.setenv("RAY_AUTH_TOKEN", made.token)
        yield made


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TINY, tmp_path / "job")) / "plan.toml"


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    return calls(capsys)


def submitted(server: JobsServer, raykit: Raykit, plan: Path, *more: str) -> Any:
    done = raykit("submit", str(plan), "--address", server.url, "--detach", "--json", *more)
    assert done.code == 0, done.err
    return done.json


def launched(root: Path, launch: str, place: Place, job: str | None = None) -> None:
    """A launch has taken the run, and not let go of it."""
    log = RunLog(open_store(str(root)), "tiny", "main", by="test")
    event = Launched(launch=launch, place=place, lease_s=60.0, raykit="0.1.0", job=job)
    log.append(lambda entries: [event], at=time.time())


# --- what is sent -------------------------------------------------------------------------------------------


def test_a_job_says_what_it_is_and_holds_no_secret(
    server: JobsServer, raykit: Raykit, plan: Path, tmp_path: Path
) -> None:
    """covers RAY-15 DISP-15: plan, contract and reservation by digest; the lease by the name that it will have"""
    said = submitted(server, raykit, plan, "--by", "ada")
    (sent,) = server.jobs.values()
    assert sent["submission_id"] == said["submission_id"] == f"raykit-tiny-{said['launch']}"
    shown = sent["metadata"]
    assert shown["contract"] == digest_of(contract(read_plan_file(plan)[1]))
    assert shown["lease"] == f"{said['launch']}-1" and len(shown["reservation"]) == 64
    assert len(shown["plan"]) == 64 and shown["experiment"] == "tiny" and shown["person"] == "ada"
    assert shown["root"] == str(tmp_path / "store")
    words = sent["entrypoint"].split()
    assert (
        words[:3] == ["python", "-m", "raykit.cli.entry"]
        and f"--launch {said['launch']}" in sent["entrypoint"]
    )
    assert set(sent["runtime_env"]) == {"working_dir", "py_modules", "env_vars"}
    assert sent["runtime_env"]["env_vars"] == {"PYTHONHASHSEED": "0"}  # no other: Ray shows them to everybody
    names = {
        uri.removeprefix("gcs://")
        for uri in [sent["runtime_env"]["working_dir"], *sent["runtime_env"]["py_modules"]]
    }
    assert names == set(server.packages)
    assert sorted(said["sent"]) == ["git.json", "job/plan.toml", "job/recipe.py"]
    everything = json.dumps(server.jobs).encode() + b"".join(server.bodies)
    assert os.environ["RAY_AUTH_TOKEN"].encode() not in everything


def test_the_same_command_twice_is_one_job(server: JobsServer, raykit: Raykit, plan: Path) -> None:
    """covers RAY-15 DISP-03"""
    first, again = submitted(server, raykit, plan), submitted(server, raykit, plan)
    assert (first["new"], again["new"]) == (True, False)
    assert first["submission_id"] == again["submission_id"] and len(server.jobs) == 1
    done = raykit("submit", str(plan), "--address", server.url, "--detach")
    assert "is there already, pending; nothing was sent" in done.err


def test_a_reply_that_is_lost_is_looked_up(server: JobsServer, raykit: Raykit, plan: Path) -> None:
    """covers DISP-04 DISP-09: what was sent is seen to be there before anything is said of it"""
    server.faults["POST /api/jobs/"] = ["lost"]
    said = submitted(server, raykit, plan)
    assert list(server.jobs) == [said["submission_id"]]


def test_a_job_that_was_killed_is_followed_by_another_operation(
    server: JobsServer, raykit: Raykit, plan: Path, tmp_path: Path
) -> None:
    first = submitted(server, raykit, plan)
    dead = Place(host=this_place().host, boot=this_place().boot, pid=2**22 - 1, started=1)
    launched(tmp_path / "store", first["launch"], dead, first["submission_id"])
    server.jobs[first["submission_id"]]["status"] = "STOPPED"
    again = submitted(server, raykit, plan)
    assert again["new"] and again["submission_id"] != first["submission_id"]


# --- what is refused before ---------------------------------------------------------------------------------


def nothing_sent(server: JobsServer) -> bool:
    return not server.jobs and not server.packages


def test_a_paused_plan_is_not_sent(server: JobsServer, raykit: Raykit, plan: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    pause(store, "all", cause="person", reason="later", person="ada", at=time.time())
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 4 and "paused by ada: later" in done.err and nothing_sent(server)


def test_a_run_that_is_under_way_elsewhere_is_not_sent(
    server: JobsServer, raykit: Raykit, plan: Path, tmp_path: Path
) -> None:
    """covers DISP-04: whoever has the run is named"""
    launched(tmp_path / "store", "somebody-else", this_place())
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 3 and "somebody-else" in done.err and nothing_sent(server)


def test_a_plan_that_is_wrong_is_refused_before_anybody_is_asked(
    server: JobsServer, raykit: Raykit, plan: Path
) -> None:
    """covers DISP-01"""
    plan.write_text(plan.read_text().replace("updates          = 20", "updates          = 0"))
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 2 and "run.updates" in done.err and not server.asked


def test_a_trial_is_not_sent_without_its_search(server: JobsServer, raykit: Raykit) -> None:
    done = raykit("submit", "lr-search/trial-007", "--address", server.url)
    assert done.code == 2 and "raykit submit lr-search" in done.err and not server.asked


def test_a_credential_in_a_plan_goes_nowhere(server: JobsServer, raykit: Raykit, plan: Path) -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    plan.write_text(plan.read_text().replace("Does the test pass?", f"Does {secret} pass?"))
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 2 and secret not in done.err and not server.asked


def test_a_root_that_nodes_do_not_see_is_refused(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is a folder of this machine, unless somebody says that it is the same on every node."""
    monkeypatch.setattr(Address, "here", property(lambda self: False))
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 2 and "do not see" in done.err and "--root" in done.err and nothing_sent(server)
    unpriced = raykit("submit", str(plan), "--address", server.url, "--shared", "--detach")
    assert unpriced.code == 2 and "pools.train.usd_per_hour" in unpriced.err and nothing_sent(server)
    price = '[pools.train]\ngpus = 0\nusd_per_hour = { rate = 0.0, source = "ours", billed = "node" }\n'
    plan.write_text(f"{plan.read_text()}\n{price}")
    assert submitted(server, raykit, plan, "--shared")["new"]


def test_an_address_where_nobody_answers_is_said(raykit: Raykit, plan: Path) -> None:
    with JobsServer() as gone:
        url = gone.url
    done = raykit("submit", str(plan), "--address", url)
    assert done.code == 2 and "no Ray dashboard answers" in done.err
    assert "--address" in done.err and "pass   raykit dev up" in done.err


@pytest.mark.parametrize(
    ("name", "said"), [("digits vae/ue", "'digits vae' is not a safe name"), ("/x/ue", "'/x/ue' is not")]
)
def test_a_run_of_what_cannot_be_an_experiment_is_told_so(raykit: Raykit, name: str, said: str) -> None:
    for command in ("submit", "resume"):
        done = raykit(command, name)
        assert done.code == 2 and said in done.err and "is a run or a set of" not in done.err


def test_a_missing_and_a_wrong_token_are_said(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """covers RAY-17"""
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    missing = raykit("submit", str(plan), "--address", server.url)
    assert missing.code == 2 and "there is none here" in missing.err
    monkeypatch.setenv("RAY_AUTH_TOKEN", "guessed")
    wrong = raykit("submit", str(plan), "--address", server.url)
    assert wrong.code == 2 and "answered 403" in wrong.err and "guessed" not in wrong.err
    assert nothing_sent(server)


def test_a_token_that_is_named_is_never_replaced_by_that_of_the_dev_cluster(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """covers RAY-17: only `auto`, or nothing said of a token, means the dev cluster's own"""
    own, wrong = tmp_path / "own", tmp_path / "wrong"
    for path, token in ((own, server.token), (wrong, "guessed")):
        path.write_text(str(token))
        path.chmod(0o600)
    dev = SimpleNamespace(dashboard_url=server.url, token_path=own)
    monkeypatch.setattr("raykit.fleet.jobs.address.find_dev", lambda: dev)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(wrong))
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 2 and "answered 403" in done.err and nothing_sent(server)
    assert raykit("submit", str(plan), "--address", "auto", "--detach").code == 0
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    assert (
        raykit("submit", str(plan), "--address", server.url, "--detach").code == 0 and len(server.jobs) == 1
    )


def test_a_token_that_others_can_read_is_not_used(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """covers RAY-17, S4"""
    path = tmp_path / "open" / "token"
    path.parent.mkdir(mode=0o755)
    path.write_text("the-right-one")
    path.chmod(0o644)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 7 and f"chmod 600 {path}" in done.err and nothing_sent(server)
    path.chmod(0o600)
    assert submitted(server, raykit, plan)["new"]


def test_a_cluster_that_serves_strangers_gets_no_job(raykit: Raykit, plan: Path) -> None:
    """covers RAY-17, S1"""
    with JobsServer(token=None) as open_to_all:
        done = raykit("submit", str(plan), "--address", open_to_all.url)
    assert done.code == 7 and "without a token" in done.err and not open_to_all.jobs


def test_auto_means_a_dev_cluster_or_ray_address(
    raykit: Raykit, plan: Path, server: JobsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raykit.fleet.jobs.address.find_dev", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    done = raykit("submit", str(plan))
    assert done.code == 2 and "raykit dev up" in done.err
    monkeypatch.setenv("RAY_ADDRESS", server.url)
    assert raykit("submit", str(plan), "--detach").code == 0 and len(server.jobs) == 1


# --- what is said after -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3, 4, 5])
def test_the_command_ends_as_its_run_did(server: JobsServer, raykit: Raykit, plan: Path, code: int) -> None:
    said = submitted(server, raykit, plan)
    name = said["submission_id"]
    server.logs[name] = f"training  5/20\n{Last(launch=said['launch'], exit_code=code).line()}\n"
    server.jobs[name] |= {"status": "RUNNING", "driver_exit_code": 0}
    server.ends[name] = "FAILED" if code == 5 else "SUCCEEDED"
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == code and "training  5/20" in done.err and "raykit-job-end" not in done.err
    assert "continue raykit submit" not in done.out  # a pause may hold: then only a resume goes on
    assert ("continue raykit resume tiny" in done.out) == (code == 4)
    assert ("the run is paused" in done.out) == (code == 4) and ("succeeded" in done.out) == (code == 0)


@pytest.mark.parametrize(
    ("scope", "cause", "ways"),
    [
        ("experiment:tiny", "person", ["raykit resume tiny"]),
        ("role:train", "person", ["raykit resume role:train", "raykit resume tiny"]),
        (
            "experiment:tiny",
            "ceiling",
            ["raykit budget replan tiny --reason ... --by NAME", "raykit resume tiny"],
        ),
    ],
)
def test_a_paused_run_has_one_way_on(
    server: JobsServer, raykit: Raykit, plan: Path, tmp_path: Path, scope: str, cause: Any, ways: list[str]
) -> None:
    said = submitted(server, raykit, plan)
    name = said["submission_id"]
    server.logs[name] = Last(launch=said["launch"], exit_code=4).line()
    server.ends[name] = "SUCCEEDED"
    server.jobs[name] |= {"status": "RUNNING", "driver_exit_code": 0}
    store = open_store(str(tmp_path / "store"))
    digest = digest_of("any")
    locked = Locked(plan=digest, contract=digest, code=digest, environment=digest, data=digest)
    log = Log(store, layout.experiment_log("tiny"), ExperimentEntry, by="test")
    following = cli._followed

    def paused_meanwhile(*arguments: Any) -> Any:
        log.append(lambda entries: [locked], at=time.time())
        pause(store, scope, cause=cause, reason="later", person="ada", at=time.time())
        return following(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cli, "_followed", paused_meanwhile)
        done = raykit("submit", str(plan), "--address", server.url)
    on = [line.split("continue ")[1] for line in done.out.splitlines() if "continue" in line]
    assert done.code == 4 and on == ways, done.out


def test_ctrl_c_detaches_and_says_so(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("raykit.fleet.jobs.follow.follow", interrupted)
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == cli.EXIT_INTERRUPTED and "runs as job raykit-tiny-" in done.out
    (job,) = server.jobs.values()
    assert job["status"] == "PENDING"


def test_ctrl_c_before_sending_sends_nothing(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    for place in ("raykit.fleet.site.site_of", "raykit.fleet.site.make_ready"):
        with monkeypatch.context() as patched:
            patched.setattr(place, interrupted)
            done = raykit("submit", str(plan), "--address", server.url)
        assert done.code == cli.EXIT_INTERRUPTED and "nothing was sent" in done.err and nothing_sent(server)


def test_ctrl_c_while_sending_is_an_unknown_outcome(
    server: JobsServer, raykit: Raykit, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """covers DISP-04: the same command finds out"""
    sending = JobsApi.submit

    def interrupted(api: JobsApi, job: NewJob) -> None:
        sending(api, job)
        raise KeyboardInterrupt

    monkeypatch.setattr(JobsApi, "submit", interrupted)
    done = raykit("submit", str(plan), "--address", server.url)
    assert done.code == 6 and "is not known" in done.err and f"raykit submit {plan}" in done.err
    monkeypatch.undo()
    assert len(server.jobs) == 1


def test_what_it_does_is_said_before_it_is_done(server: JobsServer, raykit: Raykit, plan: Path) -> None:
    done = raykit("submit", str(plan), "--address", server.url, "--detach")
    said = [line.strip() for line in done.err.splitlines()]
    assert said[:3] == [
        f"reading {plan}",
        f"looking at the cluster at {server.url}",
        "reading the plan's code and data",
    ]
    assert "raykit status shows it once it has begun" in done.out
    assert raykit("submit", str(plan), "--address", server.url, "--detach", "--json").err == ""


def test_json_is_all_that_is_printed(server: JobsServer, raykit: Raykit, plan: Path) -> None:
    said = submitted(server, raykit, plan)
    name = said["submission_id"]
    server.logs[name] = f"training  5/20\n{Last(launch=said['launch'], exit_code=4).line()}\n"
    server.ends[name] = "SUCCEEDED"
    server.jobs[name] |= {"status": "RUNNING", "driver_exit_code": 0}
    done = raykit("submit", str(plan), "--address", server.url, "--json")
    assert done.code == 4 and done.err == "" and done.json["exit_code"] == 4
    assert done.json["continue"] == ["raykit resume tiny"]
