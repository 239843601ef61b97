"""The dashboard file and the rules: every name in them is one that is exported, and every panel says what it is.

covers RAY-19 DISP-07 DISP-10
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from promserver import CLUSTER

from raykit.fleet.metrics import METRICS

GRAFANA = CLUSTER / "grafana"
NAME = re.compile(r"\bray(?:_\w+|kit:[\w:]+)")
LABELS = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")

EXPORTED = {name: metric for metric in METRICS for name in metric.exported}
OF_HISTOGRAMS = {"le"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "raykit.json").read_text())
    return found


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield target["expr"]


def wrong_in(expression: str) -> list[str]:
    """Names and labels of an expression that nobody exports."""
    names = set(NAME.findall(expression)) - {"raykit:charged:ratio"}
    wrong = [f"no metric {name}" for name in sorted(names - EXPORTED.keys())]
    known = {label for name in names & EXPORTED.keys() for label in EXPORTED[name].labels} | OF_HISTOGRAMS
    asked = {label.strip() for group in BY.findall(expression) for label in group.split(",")}
    asked |= set(LABELS.findall(expression))
    return wrong + [f"no label {label}" for label in sorted(asked - known) if names & EXPORTED.keys()]


def test_the_file_is_what_its_generator_writes() -> None:
    spec = importlib.util.spec_from_file_location("generate_dashboard", GRAFANA / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (GRAFANA / "raykit.json").read_text() == module.text()


def test_every_query_asks_for_what_is_exported(dashboard: dict[str, Any]) -> None:
    assert [wrong for each in expressions(dashboard) for wrong in wrong_in(each)] == []


def test_a_name_that_nobody_exports_is_found() -> None:
    assert wrong_in('max by (experiment, run) (ray_raykit_updates{state="planned"})') == ["no label run"]
    assert wrong_in("ray_raykit_updates_total") == ["no metric ray_raykit_updates_total"]
    assert wrong_in('ray_raykit_ratio{term="a"}') == ["no label term"]
    assert wrong_in("rate(ray_raykit_qc_unit_seconds[1m])") == ["no metric ray_raykit_qc_unit_seconds"]


def test_every_panel_says_what_it_is(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        title = panel["title"]
        assert title and len(panel["description"]) > 20, title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        assert panel["targets"], title
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"], title
            assert target["legendFormat"], title
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(titles) == len(set(titles))


def test_nothing_overlaps_and_ids_are_unique(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_it_is_chosen_by_data_source_and_experiment(dashboard: dict[str, Any]) -> None:
    assert dashboard["uid"] == "raykit"
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "experiment"]
    for expression in expressions(dashboard):
        assert '{experiment=~"$experiment"' in expression or expression == "vector(1)"


def test_everything_that_is_exported_is_on_a_panel(dashboard: dict[str, Any]) -> None:
    shown = {name for expression in expressions(dashboard) for name in NAME.findall(expression)}
    unseen = {metric.name for metric in METRICS if not shown & set(metric.exported)}
    # how many checks there were is the `_count` of what they took
    assert unseen == {"raykit_qc_units_total"}


def test_every_metric_and_every_alert_is_explained() -> None:
    page = (CLUSTER.parent / "docs" / "OPERATIONS.md").read_text()
    assert [metric.name for metric in METRICS if f"`{metric.name}`" not in page] == []
    alerts = re.findall(r"alert: (\w+)", (CLUSTER / "prometheus" / "rules.yml").read_text())
    assert alerts and [alert for alert in alerts if f"`{alert}`" not in page] == []


# --- Prometheus' own files ------------------------------------------------------------------------------------


def test_the_rules_ask_for_what_is_exported() -> None:
    lines = (CLUSTER / "prometheus" / "rules.yml").read_text().split("\n")
    names = {name for line in lines for name in NAME.findall(line)}
    assert names - EXPORTED.keys() == {"raykit:charged:ratio"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on this machine")
def test_the_rules_wake_people_for_what_they_should(tmp_path: Path) -> None:
    """A pause that is not reached, a stall, money near its end; not a long first evaluation, and not absence."""
    folder = tmp_path / "prometheus"
    shutil.copytree(CLUSTER / "prometheus", folder)
    (folder / "targets").mkdir()
    (folder / "targets" / "none.json").write_text("[]")
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
