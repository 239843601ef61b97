"""Stands in for Grafana where there is none: it shows that queries have answers, and how they look. It is no Grafana.

    python scripts/grafana_standin.py --prometheus http://127.0.0.1:9090 --port 3000 cluster/grafana

It answers what Ray's Metrics tab asks (`/api/health`, `/d/UID`, `/d-solo/UID?panelId=N`) from the dashboard files in
the given folders: every panel's queries go to the Prometheus, and come back as one plain drawing. Variables are "all".
What only Grafana does (transformations, links, alerts, editing) is not here, and is not shown to work by it.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

COLORS: Final = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#ff7383", "#8ab8ff", "#ffb357", "#96d98d", "#ca95e5",
)  # fmt: skip
NAMED: Final = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2"}
GREY: Final = "#8e8e8e"
POINTS: Final = 240
TIMEOUT_S: Final = 10.0
CELL_W, CELL_H = 60, 34
"""Of the grid that panels are laid out on, in pixels."""
RATE_S: Final = 30

NOTE: Final = "drawn by a stand-in for Grafana"

STYLE: Final = """
body { margin: 0; background: #111217; color: #ccccdc; font: 12px Inter, "DejaVu Sans", sans-serif; }
header { padding: 10px 14px; font-size: 15px; } header small { color: #8e8e8e; margin-left: 12px; }
.board { position: relative; }
.panel { position: absolute; box-sizing: border-box; padding: 3px; }
.card { height: 100%; background: #181b1f; border: 1px solid #25272e; border-radius: 2px; overflow: hidden; }
.card h2 { font-size: 12px; font-weight: 500; margin: 6px 8px 2px; }
.row { position: absolute; font-size: 14px; padding: 8px 8px 0; }
.legend { font-size: 10px; padding: 0 8px; line-height: 14px; }
.legend span { margin-right: 10px; white-space: nowrap; }
.legend i { display: inline-block; width: 9px; height: 3px; margin-right: 4px; vertical-align: middle; }
.stats { display: flex; flex-wrap: wrap; gap: 6px 18px; padding: 6px 10px; }
.stats b { display: block; font-size: 24px; font-weight: 500; } .stats em { font-style: normal; color: #9d9fa7; }
.note { position: fixed; right: 6px; bottom: 4px; font-size: 10px; color: #8e8e8e; }
.none { color: #6e6e6e; padding: 40px 0; text-align: center; }
.bars { padding: 2px 10px; } .bars div { display: flex; align-items: center; gap: 8px; margin: 3px 0; font-size: 10px; }
.bars label { width: 45%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars u { flex: 1; background: #22252b; text-decoration: none; } .bars s { display: block; height: 12px; }
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel."""

    name: str
    letter: str
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is shown."""

    start: float
    end: float

    @property
    def step_s(self) -> float:
        return max(1.0, (self.end - self.start) / POINTS)


# --- asking Prometheus --------------------------------------------------------------------------------------


def series_of(panel: dict[str, Any], prometheus: str, span: Span) -> list[Series]:
    """Every line of a panel."""
    found = []
    for target in panel.get("targets", ()):
        expression = plain(target["expr"])
        asked = urlencode({"query": expression, "start": span.start, "end": span.end, "step": span.step_s})
        with urlopen(f"{prometheus}/api/v1/query_range?{asked}", timeout=TIMEOUT_S) as answer:
            result = json.load(answer)["data"]["result"]
        for each in result:
            points = tuple((at, float(value)) for at, value in each["values"] if math.isfinite(float(value)))
            if points:
                name = legend(target.get("legendFormat", ""), each["metric"])
                found.append(Series(name, target["refId"], points))
    return found


def plain(expression: str) -> str:
    """An expression without variables: each is everything."""
    expression = expression.replace("$__rate_interval", f"{RATE_S}s").replace("$__interval", f"{RATE_S}s")
    expression = re.sub(r",?\s*\{global_filters\}", "", expression)
    return re.sub(r"\$\{?\w+\}?", ".*", expression)


def legend(form: str, labels: dict[str, str]) -> str:
    """What a series is called."""
    if not form or form == "__auto":
        return ", ".join(f"{name}={value}" for name, value in labels.items())
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), form)


# --- drawing ------------------------------------------------------------------------------------------------


def _changed(panel: dict[str, Any], series: Series, name: str) -> Any:
    """What an override says of a series; None if none does."""
    for override in panel["fieldConfig"].get("overrides", ()):
        matcher = override["matcher"]
        by_name = matcher["id"] == "byRegexp" and re.search(matcher["options"].strip("/"), series.name)
        if by_name or (matcher["id"] == "byFrameRefID" and matcher["options"] == series.letter):
            for each in override["properties"]:
                if each["id"] == name:
                    return each["value"]
    return None


def color_of(panel: dict[str, Any], series: Series, n: int) -> str:
    """As an override says, or the next one."""
    said = _changed(panel, series, "color")
    color: str = COLORS[n % len(COLORS)] if said is None else said.get("fixedColor", GREY)
    return NAMED.get(color, color)


def is_stacked(panel: dict[str, Any], series: Series) -> bool:
    """Whether it is drawn upon the others."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    said = _changed(panel, series, "custom.stacking") or custom.get("stacking", {})
    stacked: bool = said.get("mode", "none") != "none"
    return stacked


def shown(value: float, unit: str) -> str:
    """A value as people read it."""
    if unit == "bytes":
        for name in ("B", "KiB", "MiB", "GiB"):
            if abs(value) < 1024 or name == "GiB":
                return f"{value:.3g} {name}"
            value /= 1024
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if unit == "currencyUSD":
        return f"${value:,.2f}"
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    return (
        f"{number} {unit.removeprefix('suffix: ')}"
        if unit.startswith("suffix: ") or unit in ("s", "h")
        else number
    )


def drawn(panel: dict[str, Any], lines: Sequence[Series], width: int, height: int, span: Span) -> str:
    """One panel's inside."""
    if not lines:
        return '<div class="none">No data</div>'
    match panel["type"]:
        case "stat":
            return stats(panel, lines)
        case "bargauge":
            return bars(panel, lines)
        case "state-timeline":
            return timeline(panel, lines, width, height, span)
        case _:
            return chart(panel, lines, width, height, span)


def chart(panel: dict[str, Any], lines: Sequence[Series], width: int, height: int, span: Span) -> str:
    """Lines and areas over time."""
    names = {line.name: color_of(panel, line, n) for n, line in enumerate(lines)}
    legend_rows = -(-sum(len(name) + 5 for name in list(names)[:MOST]) * 6 // max(1, width - 20))
    left, bottom, inner_h = 58, 18, height - 40 - 14 * min(3, legend_rows) - 18
    tops: dict[float, float] = {}
    areas: list[tuple[Series, list[tuple[float, float, float]]]] = []
    for line in lines:
        stacked = is_stacked(panel, line)
        points = []
        for at, value in line.points:
            base = tops.get(at, 0.0) if stacked else 0.0
            points.append((at, base, base + value))
            if stacked:
                tops[at] = base + value
        areas.append((line, points))
    values = [top for _, points in areas for _, _, top in points]
    floor = panel["fieldConfig"]["defaults"].get("min")
    low = min(values) if floor is None else float(floor)
    high = max(values)
    if high <= low:
        high = low + (abs(low) or 1.0)
    high += 0.06 * (high - low)

    def x(at: float) -> float:
        return left + (at - span.start) / (span.end - span.start) * (width - left - 12)

    def y(value: float) -> float:
        return 6 + (high - value) / (high - low) * inner_h

    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    edge = edge_of(panel)
    if edge is not None:
        high = max(high, 1.06 * edge)
    parts = [*_grid(span, left, width, inner_h, bottom, x), *_levels(low, high, unit, left, width, y)]
    if edge is not None:
        parts.append(
            f'<line x1="{left}" x2="{width - 12}" y1="{y(edge):.1f}" y2="{y(edge):.1f}" stroke="{NAMED["red"]}" '
            'stroke-dasharray="6 4"/>'
        )
    for n, (line, points) in enumerate(areas):
        color = color_of(panel, line, n)
        for run in _unbroken(points, span.step_s):
            track = [(x(at), y(top)) for at, _, top in run]
            if is_stacked(panel, line):
                ring = _points([*track, *((x(at), y(base)) for at, base, _ in reversed(run))])
                parts.append(f'<polygon points="{ring}" fill="{color}" fill-opacity="0.35"/>')
            parts.append(
                f'<polyline points="{_points(track)}" fill="none" stroke="{color}" stroke-width="1.6"/>'
            )
    svg = f'<svg width="{width - 8}" height="{inner_h + bottom + 8}">{"".join(parts)}</svg>'
    return svg + _legend(names)


MOST: Final = 12


def edge_of(panel: dict[str, Any]) -> float | None:
    """Where a panel draws a line across."""
    defaults = panel["fieldConfig"]["defaults"]
    if defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode") != "line":
        return None
    return next(
        (step["value"] for step in defaults["thresholds"]["steps"] if step["value"] is not None), None
    )


def _legend(names: dict[str, str]) -> str:
    shown_names = list(names.items())[:MOST]
    spans = "".join(
        f'<span><i style="background:{color}"></i>{html.escape(name)}</span>' for name, color in shown_names
    )
    more = f"<span>and {len(names) - MOST} more</span>" if len(names) > MOST else ""
    return f'<div class="legend">{spans}{more}</div>'


def _unbroken(
    points: Sequence[tuple[float, float, float]], step_s: float
) -> Iterable[list[tuple[float, float, float]]]:
    """Runs without a gap: what is not known is not drawn."""
    run: list[tuple[float, float, float]] = []
    for point in points:
        if run and point[0] - run[-1][0] > 1.5 * step_s:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def _points(track: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in track)


def _grid(span: Span, left: int, width: int, inner_h: float, bottom: int, x: Any) -> Iterable[str]:
    ticks = max(2, width // 110)
    for n in range(ticks):
        at = span.start + (span.end - span.start) * (n + 0.5) / ticks
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        yield f'<line x1="{x(at):.0f}" x2="{x(at):.0f}" y1="6" y2="{inner_h + 6:.0f}" stroke="#25272e"/>'
        yield (
            f'<text x="{x(at):.0f}" y="{inner_h + bottom:.0f}" fill="#8e8e8e" font-size="10" '
            f'text-anchor="middle">{clock}</text>'
        )


def _levels(low: float, high: float, unit: str, left: int, width: int, y: Any) -> Iterable[str]:
    for n in range(4):
        value = low + (high - low) * n / 3.2
        yield f'<line x1="{left}" x2="{width - 12}" y1="{y(value):.0f}" y2="{y(value):.0f}" stroke="#25272e"/>'
        yield (
            f'<text x="{left - 5}" y="{y(value) + 3:.0f}" fill="#8e8e8e" font-size="10" text-anchor="end">'
            f"{html.escape(shown(value, unit))}</text>"
        )


def timeline(panel: dict[str, Any], lines: Sequence[Series], width: int, height: int, span: Span) -> str:
    """One row for each series, coloured by its value."""
    mappings = panel["fieldConfig"]["defaults"].get("mappings", ())
    words = {value: each for mapping in mappings for value, each in mapping["options"].items()}
    left, rows = 150, len(lines)
    row_h = max(10, min(30, (height - 66) // rows))
    parts = []
    for n, line in enumerate(lines):
        y = 4 + n * (row_h + 3)
        parts.append(
            f'<text x="{left - 6}" y="{y + row_h / 2 + 4:.0f}" fill="#ccccdc" font-size="10" text-anchor="end">'
            f"{html.escape(line.name)}</text>"
        )
        for since, until, value in _stretches(line, span.step_s):
            said = words.get(f"{value:g}", {"color": GREY})
            x = left + (since - span.start) / (span.end - span.start) * (width - left - 12)
            w = (until - since) / (span.end - span.start) * (width - left - 12)
            color = NAMED.get(said["color"], said["color"])
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{row_h}" fill="{color}" opacity="0.75"/>'
            )
    svg = f'<svg width="{width - 8}" height="{rows * (row_h + 3) + 8}">{"".join(parts)}</svg>'
    return svg + _legend({each["text"]: NAMED.get(each["color"], each["color"]) for each in words.values()})


def _stretches(line: Series, step_s: float) -> Iterable[tuple[float, float, float]]:
    """Times at which one value holds without a gap."""
    since, value = line.points[0]
    before = since
    for at, now in line.points[1:]:
        if now != value or at - before > 1.5 * step_s:
            yield since, before + step_s, value
            since, value = at, now
        before = at
    yield since, before + step_s, value


def stats(panel: dict[str, Any], lines: Sequence[Series]) -> str:
    """The newest values, large."""
    defaults = panel["fieldConfig"]["defaults"]
    parts = []
    for line in lines:
        color = NAMED["green"]
        thresholds = _changed(panel, line, "thresholds") or defaults["thresholds"]
        for step in thresholds["steps"]:
            if step["value"] is None or line.last >= step["value"]:
                color = NAMED.get(step["color"], step["color"])
        value = html.escape(shown(line.last, defaults.get("unit", "")))
        parts.append(f'<span><b style="color:{color}">{value}</b><em>{html.escape(line.name)}</em></span>')
    return f'<div class="stats">{"".join(parts)}</div>'


def bars(panel: dict[str, Any], lines: Sequence[Series]) -> str:
    """The newest values, as lengths."""
    unit = panel["fieldConfig"]["defaults"].get("unit", "")
    most = max(1e-12, *(line.last for line in lines))
    parts = []
    for line in sorted(lines, key=lambda line: -line.last):
        share = max(0.0, 100 * line.last / most)
        color = NAMED["green"] if line.last > 0 else NAMED["red"]
        parts.append(
            f"<div><label>{html.escape(line.name)}</label><u><s style='width:{share:.1f}%;background:{color}'></s></u>"
            f"{html.escape(shown(line.last, unit))}</div>"
        )
    return f'<div class="bars">{"".join(parts)}</div>'


# --- pages --------------------------------------------------------------------------------------------------


class Boards:
    """The dashboards of some folders, as pages."""

    def __init__(self, folders: Sequence[Path], prometheus: str) -> None:
        self._folders = folders
        self._prometheus = prometheus

    def board(self, uid: str) -> dict[str, Any] | None:
        """The dashboard with that uid; files are read again each time."""
        for folder in self._folders:
            for file in sorted(folder.glob("*.json")):
                board: dict[str, Any] = json.loads(file.read_text())
                if board.get("uid") == uid:
                    return board
        return None

    def page(self, board: dict[str, Any], span: Span, *, panel_id: int | None, kiosk: bool) -> str:
        """All panels, or one of them."""
        panels = [panel for panel in board["panels"] if panel_id is None or panel["id"] == panel_id]
        if panel_id is not None:
            panels = [{**panel, "gridPos": {"x": 0, "y": 0, "w": 10, "h": 8}} for panel in panels]
        body = "".join(self._panel(panel, span) for panel in panels)
        bottom = max((panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels), default=0)
        title = html.escape(board["title"])
        head = f"<header>{title}<small>{NOTE}</small></header>"
        note = f'<div class="note">{NOTE}</div>'
        return (
            f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"
            f"{'' if kiosk else head}"
            f'<div class="board" style="height:{bottom * CELL_H}px">{body}</div>{note if kiosk else ""}'
        )

    def _panel(self, panel: dict[str, Any], span: Span) -> str:
        at = panel["gridPos"]
        width, height = at["w"] * CELL_W, at["h"] * CELL_H
        place = f"left:{at['x'] * CELL_W}px;top:{at['y'] * CELL_H}px;width:{width}px;height:{height}px"
        title = html.escape(panel.get("title", ""))
        if panel["type"] == "row":
            return f'<div class="row" style="{place}">{title}</div>'
        try:
            inside = drawn(panel, series_of(panel, self._prometheus, span), width, height, span)
        except (OSError, KeyError, ValueError) as error:
            inside = f'<div class="none">{html.escape(f"{type(error).__name__}: {error}")}</div>'
        return f'<div class="panel" style="{place}"><div class="card"><h2>{title}</h2>{inside}</div></div>'


def span_of(asked: dict[str, list[str]]) -> Span:
    """The time that a page asks for: `from=now-15m`, or milliseconds."""
    now = time.time()

    def at(text: str, default: float) -> float:
        found = re.fullmatch(r"now(?:-(\d+)([smhd]))?", text)
        if found:
            seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
            return now - (int(found[1]) * seconds[found[2]] if found[1] else 0)
        return float(text) / 1000 if text.isdigit() else default

    return Span(at(asked.get("from", [""])[0], now - 900), at(asked.get("to", [""])[0], now))


def serve(boards: Boards, port: int) -> ThreadingHTTPServer:
    """A server on loopback; the caller lets it serve."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            asked = parse_qs(url.query)
            parts = url.path.strip("/").split("/")
            if url.path == "/api/health":
                self._answer(json.dumps({"database": "ok", "stand-in": True}), "application/json")
            elif parts[0] in ("d", "d-solo") and len(parts) > 1 and (board := boards.board(parts[1])):
                panel = int(asked["panelId"][0]) if "panelId" in asked else None
                kiosk = parts[0] == "d-solo" or "kiosk" in url.query
                self._answer(boards.page(board, span_of(asked), panel_id=panel, kiosk=kiosk), "text/html")
            else:
                self.send_error(404)

        def _answer(self, text: str, kind: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            # A browser that goes to another page hangs up on what it had asked for.
            if not isinstance(sys.exception(), OSError):
                super().handle_error(request, client_address)

    return Server(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for Grafana.")
    parser.add_argument("folders", nargs="+", type=Path, help="where dashboard files lie")
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--port", type=int, default=3000)
    asked = parser.parse_args()
    serve(Boards(asked.folders, asked.prometheus), asked.port).serve_forever()


if __name__ == "__main__":
    main()
