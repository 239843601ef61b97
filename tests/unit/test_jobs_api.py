"""One operation is one job, whatever becomes of the replies; and what the Jobs API says, or does not say.

covers RAY-15 RAY-16 RAY-17 DISP-03 DISP-04 DISP-07 DISP-08 DISP-09 FLEET-09, S1
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest
from jobsserver import Fault, JobsServer

from raykit.errors import (
    DeadlineError,
    InsecureClusterError,
    InvalidInput,
    RaykitError,
    UnknownOutcomeError,
)
from raykit.fleet.jobs import follow as following
from raykit.fleet.jobs import operation as operating
from raykit.fleet.jobs.address import Address, address_of, connect
from raykit.fleet.jobs.api import JobInfo, JobsApi, NewJob
from raykit.fleet.jobs.follow import Ended, ended_with, follow
from raykit.fleet.jobs.last import Last, last_of
from raykit.fleet.jobs.operation import Operation, choose, send
from raykit.fleet.jobs.standing import Standing
from raykit.fleet.session.probe import check_cluster

AGAIN = "raykit submit plan.toml --address auto"


@pytest.fixture
def server() -> Iterator[JobsServer]:
    with JobsServer() as made:
        yield made


@pytest.fixture
def api(server: JobsServer) -> JobsApi:
    assert server.token is not None
    return JobsApi(server.url, server.token, call_s=5)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for between looks is no property of the code."""
    monkeypatch.setattr(operating, "LOOKS_S", (0.0, 0.01, 0.01))
    monkeypatch.setattr(following, "POLL_S", 0.01)
    monkeypatch.setattr(following, "LOG_S", 0.2)
    monkeypatch.setattr(following, "AWAY_S", 0.3)


def job(name: str = "raykit-tiny-1") -> NewJob:
    return NewJob(submission_id=name, entrypoint="true", runtime_env={}, metadata={"launch": "1"})


def sent(api: JobsApi, name: str = "raykit-tiny-1") -> JobInfo:
    return send(api, job(name), say=lambda line: None, again=AGAIN)


def operation(**differs: object) -> Operation:
    known = {"kind": "launch", "root": "/r", "experiment": "tiny", "plan": "p" * 64}
    return Operation(**{**known, **differs})  # type: ignore[arg-type]


# --- sending ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, "lost", "dropped", "500"])
def test_a_job_is_there_once_whatever_becomes_of_the_reply(
    server: JobsServer, api: JobsApi, fault: Fault | None
) -> None:
    """covers RAY-15 DISP-03 DISP-04: done and not heard, or never done: looked for, and sent under the same id."""
    server.faults["POST /api/jobs/"] = [] if fault is None else [fault]
    assert sent(api).status == "PENDING"
    assert list(server.jobs) == ["raykit-tiny-1"]


@pytest.mark.parametrize("faults", list(itertools.product(["lost", "dropped", "500"], repeat=2)))
def test_two_faults_in_a_row_still_make_one_job(
    server: JobsServer, api: JobsApi, faults: tuple[Fault, Fault]
) -> None:
    server.faults["POST /api/jobs/"] = list(faults)
    assert sent(api).submission_id == "raykit-tiny-1"
    assert list(server.jobs) == ["raykit-tiny-1"]


def test_what_cannot_be_found_out_stays_unknown(server: JobsServer, api: JobsApi) -> None:
    """covers DISP-04 DISP-08 FLEET-09: exit 6, the command to ask again, and no other id was ever tried"""
    server.faults["POST /api/jobs/"] = ["lost"]
    server.faults["GET /api/jobs/raykit"] = ["dropped"] * 50
    with pytest.raises(UnknownOutcomeError) as raised:
        sent(api)
    assert raised.value.exit_code == 6 and raised.value.remedy == AGAIN
    assert list(server.jobs) == ["raykit-tiny-1"] and server.asked["POST /api/jobs/"] == 1


def test_asking_again_afterwards_finds_it(server: JobsServer, api: JobsApi) -> None:
    """covers DISP-04: the same operation, looked for before anything is sent"""
    asked = operation()
    first = choose(api, asked)
    server.faults["POST /api/jobs/"] = ["lost"]
    server.faults["GET /api/jobs/raykit"] = ["dropped"] * 3
    with pytest.raises(UnknownOutcomeError):
        sent(api, first.submission_id)
    again = choose(api, asked)
    assert again.there is not None and again.submission_id == first.submission_id


def test_a_cluster_that_takes_no_job_says_why(server: JobsServer, api: JobsApi) -> None:
    server.faults["POST /api/jobs/"] = ["500"] * 9
    with pytest.raises(RaykitError, match="on purpose") as raised:
        sent(api)
    assert not isinstance(raised.value, UnknownOutcomeError) and not server.jobs


def test_a_job_that_cannot_be_read_is_not_sent_again(server: JobsServer, api: JobsApi) -> None:
    server.faults["POST /api/jobs/"] = ["400"]
    with pytest.raises(InvalidInput, match="on purpose"):
        sent(api)
    assert server.asked["POST /api/jobs/"] == 1


def test_many_who_send_the_same_operation_make_one_job(server: JobsServer, api: JobsApi) -> None:
    """covers RAY-15: a duplicate is answered with 500, and reconciled"""
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(sent(api).submission_id)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["raykit-tiny-1"] * 6 and list(server.jobs) == ["raykit-tiny-1"]


# --- operations ---------------------------------------------------------------------------------------------


def test_an_operation_has_one_id_and_another_one_another() -> None:
    """covers DISP-03 RAY-15"""
    same, again = operation(), operation()
    assert same.submission_id(0) == again.submission_id(0) == f"raykit-tiny-{same.launch(0)}"
    others = [
        operation(plan="q" * 64),
        operation(root="/other"),
        operation(past=("abc",)),  # paused meanwhile: it goes on from elsewhere
        operation(kind="search"),
    ]
    ids = {each.submission_id(0) for each in [same, *others]} | {same.submission_id(1)}
    assert len(ids) == 6


def test_a_job_that_runs_is_the_one_and_one_that_is_over_is_followed_by_the_next(
    server: JobsServer, api: JobsApi
) -> None:
    asked = operation()
    server.add(asked.submission_id(0), "RUNNING")
    running = choose(api, asked)
    assert running.there is not None and running.n == 0
    server.add(asked.submission_id(0), "SUCCEEDED")  # refused, say: nothing has taken the run
    after = choose(api, asked)
    assert (after.n, after.there) == (1, None)
    assert after.before is not None and after.before.status == "SUCCEEDED"
    assert after.launch not in asked.submission_id(0)


def test_a_launch_that_another_cluster_ran_is_not_named_again(api: JobsApi) -> None:
    """covers DISP-15: its cluster is gone, its name is in the run's log, and stays that launch's"""
    held = operation().launch(0)
    chosen = choose(api, operation(held=held))
    assert chosen.n == 1 and chosen.launch != held


# --- what the API says --------------------------------------------------------------------------------------


def test_every_call_has_a_deadline(server: JobsServer) -> None:
    """covers DISP-07: no answer is no failure of the job"""
    server.faults["GET /api/jobs/"] = ["hangs"]
    began = time.monotonic()
    with pytest.raises(DeadlineError, match=r"did not answer within 0\.3 s"):
        JobsApi(server.url, "the-right-one", call_s=0.3).jobs()
    assert time.monotonic() - began < 30


def test_a_wrong_token_is_said_to_be_wrong(server: JobsServer) -> None:
    """covers RAY-17"""
    with pytest.raises(InvalidInput, match="403") as raised:
        JobsApi(server.url, "another").jobs()
    assert "another" not in str(raised.value) and "RAY_AUTH_TOKEN_PATH" in str(raised.value.remedy)


def test_nobody_at_the_address_is_said_before_anything_is_sent() -> None:
    with JobsServer() as gone:
        url = gone.url
    with pytest.raises(InvalidInput, match="no Ray dashboard answers"):
        JobsApi(url, "x").submit(job())


def test_the_token_is_in_nothing_that_is_shown(server: JobsServer, api: JobsApi) -> None:
    """covers S4"""
    sent(api)
    assert server.token is not None
    assert server.token not in repr(api) and not any(server.token.encode() in each for each in server.bodies)


def test_a_package_is_sent_once(server: JobsServer, api: JobsApi) -> None:
    assert api.upload("a.zip", b"bytes") == api.upload("a.zip", b"bytes") == "gcs://a.zip"
    assert server.asked["PUT /api/packages/gcs/a.zip"] == 1 and server.packages == {"a.zip": b"bytes"}


def test_a_cluster_that_serves_strangers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """covers RAY-17, S1: exit 7, with a token as well as without one, and the token is never sent"""
    monkeypatch.setenv("RAY_AUTH_TOKEN", "mine")
    with JobsServer(token=None) as open_to_all, pytest.raises(InsecureClusterError) as raised:
        connect(Address(url=open_to_all.url))
    assert raised.value.exit_code == 7


def test_a_cluster_is_judged_before_the_token_that_is_missing(
    server: JobsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """covers RAY-17"""
    with pytest.raises(InvalidInput, match="there is none here"):
        check_cluster(server.url, None)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-wrong-one")
    with pytest.raises(InvalidInput, match="answered 403 to this token"):
        connect(address_of(server.url))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the-right-one")
    assert connect(address_of(server.url)).ray_version() == "2.60.0"


@pytest.mark.parametrize("said", ["ftp://x:1", "http://user:secret@x:1", "http://x:no", "x", "", "http://x"])
def test_an_address_that_is_none_is_refused_and_never_repeated(said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        address_of(said)
    assert "secret" not in str(raised.value) and raised.value.field == "--address"


# --- how it ends --------------------------------------------------------------------------------------------


def followed(api: JobsApi, standing: Standing | None = None) -> tuple[Ended, list[str]]:
    shown: list[str] = []
    return follow(api, "j", show=shown.append, read=lambda: standing), shown


@pytest.mark.parametrize(
    ("code", "status"), [(0, "SUCCEEDED"), (4, "SUCCEEDED"), (3, "SUCCEEDED"), (5, "FAILED")]
)
def test_the_exit_code_is_the_runs_own(server: JobsServer, api: JobsApi, code: int, status: str) -> None:
    """A paused or refused run is a job that succeeded: nobody builds a cluster anew to be refused again."""
    server.add("j", metadata={"launch": "abc"}, driver_exit_code=0 if status == "SUCCEEDED" else code)
    server.ends["j"] = status
    server.logs["j"] = f"one\ntwo\n{Last(launch='abc', exit_code=code).line()}\n"
    ended, shown = followed(api)
    assert ended.exit_code == code and shown == ["one", "two"]
    assert ended.paused == (code == 4) and not ended.goes_on


def test_lines_are_shown_once_however_often_a_reply_is_lost(server: JobsServer, api: JobsApi) -> None:
    server.add("j", metadata={"launch": "abc"})
    server.logs["j"] = "one\ntwo\nthr"
    server.faults["GET /api/jobs/j/logs"] = ["lost", "dropped", "500"]

    def end() -> None:
        deadline = time.monotonic() + 30
        while server.asked["GET /api/jobs/j/logs"] < 6 and time.monotonic() < deadline:
            time.sleep(0.005)
        server.logs["j"] = f"one\ntwo\nthree\n{Last(launch='abc', exit_code=0).line()}\n"
        server.jobs["j"] |= {"status": "SUCCEEDED", "driver_exit_code": 0}

    threading.Thread(target=end, daemon=True).start()
    ended, shown = followed(api)
    assert shown == ["one", "two", "three"] and ended.exit_code == 0


@pytest.mark.parametrize("code", [0, 4, 5])
def test_the_store_says_how_it_ended_where_the_log_is_lost(
    server: JobsServer, api: JobsApi, code: int
) -> None:
    server.add("j", metadata={"launch": "abc"}, driver_exit_code=0)
    server.ends["j"] = "SUCCEEDED"
    server.faults["GET /api/jobs/j/logs"] = ["500"] * 99
    ended, _ = followed(api, Standing(launches=("abc",), ended={"abc": code}))
    assert ended.exit_code == code and "the store has" in ended.words


def test_a_job_that_was_stopped_is_said_to_be_killed_and_not_paused(server: JobsServer, api: JobsApi) -> None:
    """covers RAY-16: `stop_job` is a kill; the words say what was kept, and that it goes on"""
    server.add("j", metadata={"launch": "abc"})
    server.ends["j"] = "STOPPED"
    kept = "Recorded through update 7, committed through 5: no safe boundary was reached"
    ended, _ = followed(api, Standing(launches=("abc",), held="abc", kept=kept))
    assert ended.exit_code == 4 and ended.goes_on
    assert "that is a kill, and no pause" in ended.words and kept in ended.words


def test_a_cluster_that_is_gone_leaves_the_outcome_unknown(server: JobsServer, api: JobsApi) -> None:
    """covers DISP-07 DISP-08: the job's driver died with the head, or not; nobody can say"""
    server.add("j", metadata={"launch": "abc"})
    server.faults["GET /api/jobs/j"] = ["dropped"] * 100_000
    ended, _ = followed(api, Standing(kept="Recorded through update 7"))
    assert ended.exit_code == 6 and ended.info is None and ended.goes_on
    assert "is not known" in ended.words and "Recorded through update 7" in ended.words


def test_a_cluster_that_has_forgotten_the_job_leaves_it_unknown(api: JobsApi) -> None:
    ended, _ = followed(api)
    assert ended.exit_code == 6 and "does not know it any more" in ended.words


def test_a_job_that_never_began_says_why() -> None:
    """covers DISP-05: a supervisor that could not start is no run that failed"""
    info = JobInfo(
        submission_id="j", status="FAILED", message="runtime_env setup failed: disk full\nTraceback\n"
    )
    ended = ended_with(info, "", Standing())
    assert ended.exit_code == 1 and "runtime_env setup failed: disk full" in ended.words
    assert "begins anew" in ended.words


@pytest.mark.parametrize("log", ["", "raykit-job-end not json\n", 'raykit-job-end {"exit_code": 1}\n', "x\n"])
def test_what_is_no_last_line_says_nothing(log: str) -> None:
    assert last_of(log) is None
