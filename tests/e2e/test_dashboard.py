"""What runs is on the dashboard: a real Prometheus, with the files that ship, scrapes real Rays while work is done.

One launch with QC, a pause of its QC and a checkpoint that fails; one pool that makes a synthetic set; and, in the Ray
of that pool, the facts of a search and of an account in accelerator-hours. Then every query of every panel of the
Grafana dashboard has to have had an answer.

covers RAY-08 RAY-19 DISP-05 DISP-07
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import genray
import pytest
from genray import behave, toys
from money import Account, line, planned
from plainrun import write_job
from promserver import CLUSTER, TARGETS, Prometheus, prometheus
from raylaunch import Launching, raykit

from raykit.fleet.metrics import METRICS, Dashboard, SearchFacts, Spenders
from raykit.fleet.session import Session, describe_sessions, start_local
from raykit.records import MICRO

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus on this machine"),
]

DEADLINE_S = 150.0
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
    alerts: dict[str, str] = field(default_factory=dict)
    """By alert: its state when all was over."""
    lines: list[str] = field(default_factory=list)
    """Why something could not be said, if that was so."""

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


def session_of(pid: int) -> Session | None:
    """The Ray of a launch, once it says what there is to scrape."""
    for session in describe_sessions():
        if session.launch and session.launch.pid == pid and (session.folder / "ray" / TARGETS).exists():
            return session
    return None


def names(server: Prometheus, experiment: str) -> set[str]:
    """The metrics that are said of an experiment now."""
    found = server.query(f'count by (__name__) ({{__name__=~"ray_raykit_.+", experiment="{experiment}"}})')
    return {each["metric"]["__name__"] for each in found}


def see_a_launch(seen: Seen, folder: Path) -> None:
    """A run of about a minute whose QC is paused for a while, until it has ended and fallen silent."""
    server, root = seen.prometheus, folder / "store"
    plan = write_job(folder / "job", {"updates": "90", "params": "{ width = 16, dropout = 0.3 }"})
    plan.write_text(plan.read_text().replace("ceiling_usd = 1.0", "ceiling_usd = 4.0") + PLAN)
    began = time.monotonic()
    launch = raykit("launch", str(plan), root=root, environment={"TINY_SLOW_S": "0.6"})
    session = until("its Ray", lambda: session_of(launch.process.pid), alive=launch)
    server.scrape(session.folder / "ray", "launch")

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
    code, out, err = launch.end()
    assert code == 0, (out, err)
    seen.alerts = server.alerts()
    until("silence", lambda: not names(server, "tiny"))


def see_a_set(seen: Seen, folder: Path) -> None:
    """Two workers make a synthetic set; beside it, in the same Ray, facts of what this test does not run."""
    server = seen.prometheus
    folder.mkdir()
    work = toys(folder, rows_asked=4000)
    behave(work.root, sleep_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(genray.__file__).parent))
        with start_local(cpus=3, resources={"generate": 2}) as local:
            server.scrape(local.folder / "ray", "set")
            working = threading.Thread(target=lambda: work.work(work.pool(slots=2)))
            working.start()
            try:
                tell = others(seen)
                until("rates of everything that is counted", lambda: tell() or rates(server))
            finally:
                work.stopped = "the test has seen enough"
                working.join(DEADLINE_S)


def others(seen: Seen) -> Callable[[], None]:
    """Says how a search goes, and the money of an account in hours."""
    dashboard, lines = (
        Dashboard(seen.lines.append),
        [line("train", "target", 7), line("recovery", "recovery", 3)],
    )
    account = Account("accelerator-hours")
    account.plan(planned("hours", 10, lines, rates={"train": MICRO}), approve=True)
    account.reserve("one", "hours", "train", 4)
    spenders = Spenders(Dashboard(seen.lines.append))

    def tell() -> None:
        dashboard.publish(
            SearchFacts(
                experiment="search",
                trials={"waiting": 3, "running": 2, "completed": 2, "stopped-by-scheduler": 1},
                repeats={"waiting": 2},
                best=0.21,
                reports=3,
            )
        )
        spenders.tell(account.book, {"one"})

    return tell


def rates(server: Prometheus) -> bool:
    counted = ("generate_rows_total", "generate_units_total", "search_reports_total")
    growing = [server.query(f"rate(ray_raykit_{name}[20s]) > 0") for name in counted]
    return all(growing) and bool(
        server.query('ray_raykit_fleet_workers{role="generate", state="running"} == 2')
    )


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("dashboard")
    with prometheus(folder) as server:
        seen = Seen(server, time.time())
        see_a_launch(seen, folder / "launch")
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
    assert most(idle) == 0
    assert seen.lines == [], "nothing was in the way of saying it"


def test_alerts_name_what_a_person_is_needed_for(seen: Seen) -> None:
    assert seen.alerts["RaykitQcFailed"] == "firing"
    assert not {"RaykitOverdue", "RaykitStalled", "RaykitReserveGone"} & seen.alerts.keys()


def test_a_launch_that_has_ended_is_absent_and_not_zero(seen: Seen) -> None:
    """DISP-07: nobody says anything of it any more, and nothing reads that as a failure."""
    assert names(seen.prometheus, "tiny") == set()
    for name, first_s in sorted(seen.first_s.items(), key=lambda each: each[1]):
        print(f"{first_s:5.1f} s after its launch began: {name}")
