"""What draws the dashboard where there is no Grafana: every panel of the file, from what a Prometheus answers."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from loopback import LoopbackServer
from promserver import CLUSTER

START, END = 1000.0, 1060.0
LABELS = {name: f"a-{name}" for name in ("experiment", "line", "kind", "state", "role", "term", "set")}


@pytest.fixture(scope="module")
def standin() -> ModuleType:
    path = CLUSTER.parent / "scripts" / "grafana_standin.py"
    spec = importlib.util.spec_from_file_location("grafana_standin", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Prometheus:
    """Answers every query with the same series, and keeps what was asked."""

    def __init__(self, values: list[tuple[float, str]]) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(parse_qs(urlsplit(self.path).query)["query"][0])
                result = [{"metric": LABELS, "values": values}] if values else []
                body = json.dumps({"status": "success", "data": {"result": result}}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = LoopbackServer(("127.0.0.1", 0), Handler)


def page_of(standin: ModuleType, values: list[tuple[float, str]]) -> tuple[str, list[str]]:
    """The whole dashboard, where everything has those values; and what was asked."""
    prometheus = Prometheus(values)
    with serving(prometheus.server) as url:
        boards = standin.Boards([CLUSTER / "grafana"], url)
        board = boards.board("raykit")
        page: str = boards.page(board, standin.Span(START, END), panel_id=None, kiosk=False)
    return page, prometheus.asked


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CLUSTER / "grafana" / "raykit.json").read_text())
    return found


def test_every_panel_is_drawn_from_what_is_answered(standin: ModuleType) -> None:
    page, asked = page_of(standin, [(START + n, "1") for n in range(60)])
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels if f"<h2>{panel['title']}</h2>" not in page] == []
    assert "No data" not in page and "Error" not in page
    assert len(asked) == sum(len(panel["targets"]) for panel in panels)
    assert not [each for each in asked if "$" in each], "no variable is left in a query"
    assert "stand-in for Grafana" in page


def test_what_is_absent_is_shown_as_absent(standin: ModuleType) -> None:
    page, _ = page_of(standin, [])
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert page.count("No data") == len(panels)
    not_numbers, _ = page_of(standin, [(START, "NaN"), (START + 1, "+Inf")])
    assert not_numbers.count("No data") == len(panels)


def test_a_gap_is_not_drawn_over(standin: ModuleType) -> None:
    points = [(0.0, 0.0, 1.0), (1.0, 0.0, 1.0), (9.0, 0.0, 1.0)]
    assert [len(run) for run in standin._unbroken(points, 1.0)] == [2, 1]
    series = standin.Series("a", "A", ((0.0, 1.0), (1.0, 1.0), (2.0, 0.0), (9.0, 0.0)))
    assert list(standin._stretches(series, 1.0)) == [(0.0, 2.0, 1.0), (2.0, 3.0, 0.0), (9.0, 10.0, 0.0)]


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (4.0, "currencyUSD", "$4.00"),
        (0.45, "percentunit", "45 %"),
        (2048.0, "bytes", "2 KiB"),
        (0.25, "s", "0.25 s"),
        (6.0, "suffix: $/h", "6 $/h"),
        (40000.0, "short", "40,000"),
    ],
)
def test_values_are_shown_with_their_units(standin: ModuleType, value: float, unit: str, words: str) -> None:
    assert standin.shown(value, unit) == words


def test_it_answers_what_the_metrics_tab_asks(standin: ModuleType, tmp_path: Path) -> None:
    prometheus = Prometheus([(START, "1")])
    with serving(prometheus.server) as source:
        boards = standin.Boards([tmp_path, CLUSTER / "grafana"], source)
        with serving(standin.serve(boards, 0)) as url:
            with urlopen(f"{url}/api/health", timeout=10) as answer:
                assert json.load(answer)["database"] == "ok"
            with urlopen(f"{url}/d-solo/raykit/any?panelId=3&from=now-5m&to=now", timeout=10) as answer:
                assert answer.read().decode().count('class="panel"') == 1
            with pytest.raises(HTTPError):
                urlopen(f"{url}/d/nobody", timeout=10)


def test_the_time_that_is_asked_for(standin: ModuleType) -> None:
    span = standin.span_of({"from": ["1000"], "to": ["61000"]})
    assert (span.start, span.end) == (1.0, 61.0)
    assert math.isclose(
        standin.span_of({"from": ["now-2m"]}).end - standin.span_of({"from": ["now-2m"]}).start,
        120,
        abs_tol=1,
    )
