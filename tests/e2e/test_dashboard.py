"""What runs is on the dashboard: a real Prometheus, with the files that ship, scrapes real Rays while work is done.

One launch with QC, a pause of its QC and checkpoints that fail; a search whose rows train nothing; a pool that makes a
synthetic set; and, in the Ray of that pool, the money of an account that is kept in accelerator-hours. Then every query
of every panel of the Grafana dashboard has to have had an answer.

covers RAY-08 RAY-19 DISP-05 DISP-07
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from genray import behave, toys
from money import Account, line, planned
from plainrun import write_job
from promserver import CLUSTER, Prometheus, prometheus
from raylaunch import Launching, raykit
from searchtoys import ASHA, ONE_REPEAT, write_search

from raykit.fleet.metrics import METRICS, Dashboard, Spenders
from raykit.fleet.session import Session, describe_sessions, start_local
from raykit.records import MICRO

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on this machine"),
]

DEADLINE_S = 150.0
TESTS = Path(__file__).parent.parent
PLAN = """
[qc]
owner      = "ada"
every      = 10
roster     = { stratum = "third", units = 2 }
fail       = { ratio = "> 0.0001" }
on_failure = "continue"
shares     = "this test has no other machine"

[pools.train]
gpus = 0
usd_per_hour = { rate = 6.0, source = "a test", billed = "resource" }
"""


@dataclass
class Seen:
    """What a Prometheus has heard of everything that ran."""

    prometheus: Prometheus
    since: float
    first_s: dict[str, float] = field(default_factory=dict)
    """By metric: how long after its launch began it was seen first."""
    lines: list[str] = field(default_factory=list)
    """Why something could not be said, if that was so."""
    job: dict[str, str] = field(default_factory=dict)
    """What Ray's own dashboard showed of the launch."""
    actors: dict[str, str] = field(default_factory=dict)
    """By name: what each actor said that it is."""

    def over(self, expression: str) -> list[dict[str, Any]]:
        """What a query of the dashboard came to, over all the time."""
        asked = expression.replace("$experiment", ".*").replace("$__rate_interval", "20s")
        return self.prometheus.over(asked, self.since)


def until(what: str, holds: Callable[[], Any], *, alive: Launching | None = None) -> Any:
    """Wait until something holds, and return it."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if found := holds():
            return found
        assert alive is None or alive.process.poll() is None, (what, alive and alive.end())
        time.sleep(0.2)
    raise AssertionError(what)


@contextmanager
def ending(running: Launching) -> Iterator[Launching]:
    """Whatever happens, it ends with the block."""
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.end()


def session_of(pid: int) -> Session | None:
    """The Ray of a launch, once it says what there is to scrape."""
    for session in describe_sessions():
        if session.launch and session.launch.pid == pid and session.targets_path.exists():
            return session
    return None


def asked(session: Session, path: str) -> Any:
    """What a Ray's dashboard answers."""
    token = {"Authorization": f"Bearer {session.token_path.read_text()}"}
    with urlopen(Request(f"{session.dashboard_url}{path}", headers=token), timeout=30) as answer:
        return json.load(answer)


def names(server: Prometheus, experiment: str) -> set[str]:
    """The metrics that are said of an experiment now."""
    found = server.query(f'count by (__name__) ({{__name__=~"ray_raykit_.+", experiment="{experiment}"}})')
    return {each["metric"]["__name__"] for each in found}


def see_a_launch(seen: Seen, folder: Path) -> None:
    """A run of a minute and a half whose QC is paused for a while, until it has ended and fallen silent."""
    server, root = seen.prometheus, folder / "store"
    plan = write_job(folder / "job", {"updates": "90", "params": "{ width = 16, dropout = 0.3 }"})
    plan.write_text(plan.read_text().replace("ceiling_usd = 1.0", "ceiling_usd = 4.0") + PLAN)
    began = time.monotonic()
    with ending(raykit("launch", str(plan), root=root, environment={"TINY_SLOW_S": "1.0"})) as launch:
        session = until("its Ray", lambda: session_of(launch.process.pid), alive=launch)
        server.scrape(session.targets_path, "launch")

        def scraped(wanted: Callable[[], Any]) -> Callable[[], Any]:
            def look() -> Any:
                for name in names(server, "tiny") - seen.first_s.keys():
                    seen.first_s[name] = time.monotonic() - began
                return wanted()

            return look

        checked = 'ray_raykit_qc_requests{experiment="tiny", state="failed"} > 1'
        until("two checks", scraped(lambda: server.query(checked)), alive=launch)
        assert raykit("pause", "role:qc", "--reason", "a test", "--by", "ada", root=root).end()[0] == 0
        paused = 'ray_raykit_paused{role="qc", kind="person"} == 1'
        until("a pause of QC", scraped(lambda: server.query(paused)), alive=launch)
        given_back = 'ray_raykit_fleet_workers{role="qc", state="paused"} == 1'
        until("what it gave back", scraped(lambda: server.query(given_back)), alive=launch)
        assert raykit("resume", "role:qc", "--by", "ada", root=root).end()[0] == 0
        (job,) = asked(session, "/api/jobs/")
        seen.job = job["metadata"]
        actors = asked(session, "/api/v0/actors?detail=1&limit=100")["data"]["result"]["result"]
        seen.actors = {
            each["name"]: each["repr_name"] for each in actors if each["name"].startswith("raykit")
        }
        code, out, err = launch.end()
        assert code == 0, (out, err)
    until("silence", lambda: not names(server, "tiny"))


def see_a_search(seen: Seen, folder: Path) -> None:
    """Six trials and a repeat, two at a time, at a price; each reports four times."""
    server = seen.prometheus
    money = {"rate": 6.0, "ceiling": 4.0, "wall_h": "0.01", "attempts": "1"}
    plan = write_search(folder / "job", trials=6, repeats=ONE_REPEAT, scheduler=ASHA, **money)
    plan.write_text(plan.read_text().replace('name     = "tiny"', 'name     = "search"'))
    drive = [sys.executable, str(TESTS / "searchdrive.py"), str(plan), str(folder / "store")]
    toy = json.dumps({"pause_s": 2.5})
    started = subprocess.Popen([*drive, toy], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ending(Launching(started)) as driver:
        session = until("its Ray", lambda: session_of(driver.process.pid), alive=driver)
        server.scrape(session.targets_path, "search")
        code, out, err = driver.end()
        assert code == 0, (out, err)


def see_a_set(seen: Seen, folder: Path) -> None:
    """Two workers make a synthetic set; beside it, in the same Ray, the money of an account in hours."""
    server = seen.prometheus
    folder.mkdir()
    work = toys(folder, rows_asked=4000)
    behave(work.root, sleep_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with start_local(cpus=3, resources={"generate": 2}):
            own = until("its own Ray", lambda: session_of(os.getpid()))
            server.scrape(own.targets_path, "set")
            working = threading.Thread(target=lambda: work.work(work.pool(slots=2)))
            working.start()
            try:
                tell = hours(seen)
                until("rates of what is counted", lambda: tell() or rates(server))
            finally:
                work.stopped = "the test has seen enough"
                working.join(DEADLINE_S)


def hours(seen: Seen) -> Callable[[], None]:
    """Says the money of an account in hours, as its budget actor would."""
    lines = [line("train", "target", 7), line("recovery", "recovery", 3)]
    account = Account("accelerator-hours")
    account.plan(planned("hours", 10, lines, rates={"train": MICRO}), approve=True)
    account.reserve("one", "hours", "train", 4)
    spenders = Spenders(Dashboard(seen.lines.append))
    return lambda: spenders.tell(account.book, {"one"})


def rates(server: Prometheus) -> bool:
    counted = ("generate_rows_total", "generate_units_total", "generate_unit_seconds_total")
    growing = [server.query(f"rate(ray_raykit_{name}[20s]) > 0") for name in counted]
    working = server.query('ray_raykit_fleet_workers{role="generate", state="running"} == 2')
    return all(growing) and bool(working) and bool(server.query("ray_raykit_ceiling_accelerator_hours"))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("dashboard")
    with prometheus(folder) as server:
        seen = Seen(server, time.time())
        see_a_launch(seen, folder / "launch")
        see_a_search(seen, folder / "search")
        see_a_set(seen, folder / "set")
        yield seen


# --- what was seen --------------------------------------------------------------------------------------------


def queries() -> list[tuple[str, str, str]]:
    """(panel, query letter, expression) of the whole dashboard."""
    dashboard = json.loads((CLUSTER / "grafana" / "raykit.json").read_text())
    return [
        (panel["title"], target["refId"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def test_every_query_of_every_panel_has_had_an_answer(seen: Seen) -> None:
    """RAY-19: numbers, and not only series that are empty."""
    silent = []
    for panel, letter, expression in queries():
        values = [float(value) for series in seen.over(expression) for _, value in series["values"]]
        if not any(math.isfinite(value) for value in values):
            silent.append(f"{panel} {letter}: {expression}")
    assert silent == []


def test_everything_in_the_catalogue_was_exported(seen: Seen) -> None:
    found = seen.over('count by (__name__) ({__name__=~"ray_raykit_.+"})')
    assert {each["metric"]["__name__"] for each in found} == {
        name for metric in METRICS for name in metric.exported
    }


def test_what_was_seen_is_what_was_done(seen: Seen) -> None:
    """RAY-08 DISP-05: a pause of QC is one of QC; training went on; a launch that sets up has no workers yet."""

    def most(expression: str) -> float:
        values = [float(value) for series in seen.over(expression) for _, value in series["values"]]
        return max(values, default=math.nan)

    assert most('ray_raykit_updates{experiment="tiny", state="planned"}') == 90
    assert most('ray_raykit_updates{experiment="tiny", state="recorded"}') >= 60
    assert most('ray_raykit_ceiling_usd{experiment="tiny"}') == 4
    assert most('sum by (experiment) (ray_raykit_budget_usd{experiment="tiny", state="planned"})') == 4
    assert most('ray_raykit_spend_usd_per_hour{experiment="tiny"}') == 6
    assert most('ray_raykit_paused{experiment="tiny", role="train"}') == 0
    assert most('ray_raykit_paused{experiment="tiny", role="qc", kind="person"}') == 1
    assert most('ray_raykit_fleet_workers{experiment="tiny", state="overdue"}') == 0
    setting_up = 'ray_raykit_run{experiment="tiny", state="starting"} == 1'
    idle = f"sum by (experiment) (ray_raykit_fleet_workers{{role='train'}}) and on (experiment) {setting_up}"
    assert not most(idle) > 0, "of the scrapes that fell into it, where any did"
    assert seen.lines == [], "nothing was in the way of saying it"


def test_a_search_is_seen_by_its_rows(seen: Seen) -> None:
    """RAY-19: trial outcomes; at every time the rows sum to the registered table, of which none is left waiting."""
    rows = seen.over('sum by (experiment) (ray_raykit_trials{experiment="search"})')
    assert {float(value) for series in rows for _, value in series["values"]} == {7.0}
    kinds = seen.over('sum by (kind) (ray_raykit_trials{experiment="search"})')
    assert {each["metric"]["kind"]: float(each["values"][-1][1]) for each in kinds} == {
        "trial": 6.0,
        "repeat": 1.0,
    }
    assert seen.over('ray_raykit_trials{experiment="search", state="running"} == 2')
    assert seen.over('ray_raykit_fleet_workers{experiment="search", role="search", state="running"} >= 1')
    assert seen.over('ray_raykit_spend_usd_per_hour{experiment="search"} >= 6')


def test_jobs_and_actors_say_what_they_are(seen: Seen) -> None:
    """RAY-15 in spirit, of a launch that was not submitted: plan and contract by their digests."""
    assert seen.job["job_name"] == "raykit launch tiny"
    assert {len(seen.job[name]) for name in ("plan", "contract")} == {64}
    assert (seen.job["experiment"], seen.job["operation"]) == ("tiny", "launch")
    budget = [said for name, said in seen.actors.items() if name.startswith("raykit-budget-tiny")]
    checks = [said for name, said in seen.actors.items() if name.startswith("raykit-qc-tiny-")]
    assert len(budget) == 1 and budget[0].startswith("budget of tiny in ")
    assert checks and all(said.startswith("qc-") and said.endswith(" of tiny") for said in checks if said)


def test_alerts_name_what_a_person_is_needed_for(seen: Seen) -> None:
    fired = {
        each["metric"]["alertname"] for each in seen.over('ALERTS{experiment="tiny", alertstate="firing"}')
    }
    assert {"RaykitQcFailed", "RaykitPaused"} <= fired
    assert not {"RaykitOverdue", "RaykitStalled", "RaykitReserveGone", "RaykitCeilingNear"} & fired


def test_a_launch_that_has_ended_is_absent_and_not_zero(seen: Seen) -> None:
    """DISP-07: nobody says anything of it any more, and nothing reads that as a failure."""
    assert names(seen.prometheus, "tiny") == set()
    for name, first_s in sorted(seen.first_s.items(), key=lambda each: each[1]):
        print(f"{first_s:5.1f} s after its launch began: {name}")
