"""Write `raykit.json`, the Grafana dashboard, beside this file:  python cluster/grafana/generate.py

Every panel says its unit and what its absence means. Series of several processes are put together by `max` where they
say the same, and by `sum` where each says its own part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parent / "raykit.json"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
OF: Final = 'experiment=~"$experiment"'
EACH: Final = "{{experiment}}"
RATE: Final = "$__rate_interval"
CHARGED: Final = ', state=~"settled|reserved"'

GREEN, ORANGE, RED, BLUE, GREY = "green", "orange", "red", "blue", "#8e8e8e"

Json = dict[str, Any]
Query = tuple[str, str]
"""What is asked, and what each series is called."""

NO_SORT: Final = {"mode": "single", "sort": "none"}
LAST: Final = {"calcs": ["lastNotNull"], "fields": "", "values": False}

OPTIONS: Final[Mapping[str, Json]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "state-timeline": {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.9,
        "showValue": "auto",
        "tooltip": NO_SORT,
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": LAST,
        "textMode": "value_and_name",
    },
    "bargauge": {
        "displayMode": "gradient",
        "minVizHeight": 16,
        "minVizWidth": 8,
        "orientation": "horizontal",
        "reduceOptions": LAST,
        "showUnfilled": True,
        "valueMode": "color",
    },
}


def panel(
    title: str,
    says: str,
    unit: str,
    *queries: Query,
    kind: str = "timeseries",
    width: int = 8,
    stacked: bool = False,
    negative: bool = False,
    line_at: float | None = None,
    steps: Sequence[tuple[float | None, str]] = ((None, GREEN),),
    words: Mapping[str, tuple[str, str]] | None = None,
    overrides: Sequence[Json] = (),
) -> Json:
    """One panel: `steps` are where the colour changes, `words` what a value is shown as, and its colour."""
    defaults: Json = {
        "color": {"mode": "palette-classic" if kind == "timeseries" else "thresholds"},
        "mappings": _mappings(words or {}),
        "thresholds": {"mode": "absolute", "steps": [{"color": c, "value": v} for v, c in steps]},
        "unit": unit,
    }
    if not negative:
        defaults["min"] = 0
    if kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if stacked else 0,
            "lineInterpolation": "stepAfter" if stacked else "linear",
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
            "thresholdsStyle": {"mode": "off" if line_at is None else "line"},
        }
    if kind == "state-timeline":
        defaults["custom"] = {"fillOpacity": 70, "lineWidth": 0}
    if line_at is not None:
        edges = [{"color": "transparent", "value": None}, {"color": RED, "value": line_at}]
        defaults["thresholds"]["steps"] = edges
    return {
        "type": kind,
        "title": title,
        "description": says,
        "datasource": SOURCE,
        "gridPos": {"h": 8, "w": width},
        "fieldConfig": {"defaults": defaults, "overrides": list(overrides)},
        "options": OPTIONS[kind],
        "targets": [_target(query, letter) for query, letter in zip(queries, "ABCD", strict=False)],
    }


def _target(query: Query, letter: str) -> Json:
    expr, legend = query
    return {
        "refId": letter,
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": expr,
        "legendFormat": legend,
        "range": True,
    }


def _mappings(words: Mapping[str, tuple[str, str]]) -> list[Json]:
    options = {
        value: {"color": color, "index": n, "text": text}
        for n, (value, (text, color)) in enumerate(words.items())
    }
    return [{"type": "value", "options": options}] if options else []


def of_query(letter: str, **properties: Any) -> Json:
    """What is different for the series of one query."""
    return _override("byFrameRefID", letter, properties)


def of_series(pattern: str, **properties: Any) -> Json:
    """What is different for the series whose name matches."""
    return _override("byRegexp", pattern, properties)


def _override(matcher: str, what: str, properties: Mapping[str, Any]) -> Json:
    listed = [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()]
    return {"matcher": {"id": matcher, "options": what}, "properties": listed}


def fixed(color: str) -> Json:
    """Always that colour."""
    return {"fixedColor": color, "mode": "fixed"}


# --- queries ------------------------------------------------------------------------------------------------


def newest(metric: str, *labels: str, where: str = "") -> str:
    """What several processes may say alike."""
    return f"max by ({', '.join(('experiment', *labels))}) (ray_raykit_{metric}{{{OF}{where}}})"


def total(metric: str, *labels: str, where: str = "") -> str:
    """What each process says its own part of."""
    return f"sum by ({', '.join(labels)}) (ray_raykit_{metric}{{{OF}{where}}})"


def pace(metric: str, *labels: str) -> str:
    """How fast a counter grows."""
    by = ", ".join(("experiment", *labels))
    return f"sum by ({by}) (rate(ray_raykit_{metric}{{{OF}}}[{RATE}]))"


def in_either_unit(
    name: str, legend: str, *labels: str, where: str = "", end: str = ""
) -> tuple[Query, Query]:
    """An account is kept in one of two units: the other query comes to nothing."""
    usd, hours = (
        newest(f"{name}_{unit}{end}", *labels, where=where) for unit in ("usd", "accelerator_hours")
    )
    return (usd, legend), (hours, legend)


# --- what there is ------------------------------------------------------------------------------------------


def share(unit: str) -> str:
    """How much of the ceiling is settled or reserved."""
    charged = newest(f"budget_{unit}", "line", "state", where=CHARGED)
    return f"sum by (experiment) ({charged}) / ({newest(f'ceiling_{unit}')} > 0)"


def money() -> list[Json]:
    """What the plans may cost, and what they have cost. An account is kept in one of two units, and said in that."""
    charged = in_either_unit("budget", f"{EACH} {{{{line}}}} {{{{state}}}}", "line", "state", where=CHARGED)
    ceiling = in_either_unit("ceiling", f"{EACH} ceiling")
    line: Json = {"custom__fillOpacity": 0, "custom__lineWidth": 2, "color": fixed(RED)}
    apart = {"custom__stacking": {"group": "A", "mode": "none"}, **line}
    hours = of_query("B", unit="h")
    return [
        panel(
            "Money by line against the ceiling",
            "What is settled and what is reserved at its worst case, by line, stacked; the red line is what the plan "
            "may cost at most. In dollars or in accelerator-hours, as the account is kept.",
            "currencyUSD",
            *((f"{query} > 0", legend) for query, legend in charged),
            *ceiling,
            width=12,
            stacked=True,
            overrides=[hours, of_query("C", **apart), of_query("D", unit="h", **apart)],
        ),
        panel(
            "Left, by line",
            "What each line can still pay: no more than its purpose has left. Lines of the kinds confirmation and "
            "recovery are reserves, which no other line may touch.",
            "currencyUSD",
            *in_either_unit(
                "budget", f"{EACH} {{{{line}}}} ({{{{kind}}}})", "line", "kind", where=', state="remaining"'
            ),
            kind="bargauge",
            width=12,
            steps=((None, RED), (0.000001, GREEN)),
            overrides=[hours],
        ),
        panel(
            "Share of the ceiling",
            "How much of what the plan may cost is settled or reserved at its worst case. Near 1 nothing further "
            "starts.",
            "percentunit",
            (share("usd"), EACH),
            (share("accelerator_hours"), EACH),
            line_at=1,
        ),
        panel(
            "Reserve left",
            "What confirmation and recovery have left once all else is paid as planned, or as it came. At 0 everything "
            "waits for a recorded replan.",
            "currencyUSD",
            *in_either_unit("reserve_left", EACH),
            overrides=[hours],
        ),
        panel(
            "Spend rate",
            "What is held now costs this much in an hour: training, workers, and machines that are billed though "
            "nobody works on them.",
            "suffix: $/h",
            *in_either_unit("spend", EACH, end="_per_hour"),
            overrides=[of_query("B", unit="suffix: h/h")],
        ),
    ]


def fleet() -> list[Json]:
    """Who works, who is paused, and what each run is at."""
    colors = {"pausing": ORANGE, "overdue": RED, "paused": GREY, "resuming": BLUE}
    return [
        panel(
            "Workers by role and state",
            "Asked for nothing: running. Asked to stop and not there yet: pausing; late: overdue. Paused are places "
            "that are given back. A role that is absent is unknown: nobody has said anything of it within 20 s.",
            "short",
            (f"{total('fleet_workers', 'role', 'state')} > 0", "{{role}} {{state}}"),
            stacked=True,
            overrides=[of_series(f"/ {state}$/", color=fixed(color)) for state, color in colors.items()],
        ),
        panel(
            "Pause in force",
            "By role; the cause of a pause is a row of its own. Who asked, and what ends it: raykit status.",
            "bool",
            (total("paused", "experiment", "role"), f"{EACH} {{{{role}}}}"),
            (f"{newest('paused', 'role', 'kind')} == 1", f"{EACH} {{{{role}}}}: {{{{kind}}}}"),
            kind="state-timeline",
            steps=((None, GREEN), (1, ORANGE)),
            words={"0": ("no pause", GREEN), "1": ("paused", ORANGE)},
        ),
        panel(
            "What each run is at",
            "Starting and gates are no training yet. A run that is absent is unknown, not failed: raykit status knows.",
            "bool",
            (f"{newest('run', 'state')} == 1", f"{EACH} {{{{state}}}}"),
            kind="state-timeline",
            steps=((None, BLUE),),
            words={"1": ("now", BLUE)},
        ),
    ]


def training() -> list[Json]:
    """How far a run is, and how well it fits."""
    return [
        panel(
            "Updates",
            "Planned, recorded in the durable history, and held by the newest checkpoint. After a resume the recorded "
            "ones go back to where it went on.",
            "short",
            (newest("updates", "state"), f"{EACH} {{{{state}}}}"),
        ),
        panel(
            "Updates per second",
            "Pace of the last few hundred updates of this attempt.",
            "suffix: /s",
            (newest("updates_per_second"), EACH),
        ),
        panel(
            "Ratio against no skill",
            "Error over that of predicting nothing, of the main term and of each term that has a scale. 1.0 is no "
            "skill; lower is better.",
            "none",
            (newest("ratio"), EACH),
            (newest("term_ratio", "term"), f"{EACH} {{{{term}}}}"),
            ("vector(1)", "no skill"),
            line_at=1,
            overrides=[
                of_query("C", color=fixed(RED), custom__lineStyle={"dash": [8, 8], "fill": "dash"}),
            ],
        ),
        panel(
            "Development metric",
            "The newest evaluation of the development split, by metric; nothing else selects.",
            "none",
            (newest("development", "term"), f"{EACH} {{{{term}}}}"),
            negative=True,
        ),
        panel(
            "Save time",
            "What the newest checkpoint took from the copy to its commit, and how long training waited for it.",
            "s",
            (newest("save_seconds"), f"{EACH} save"),
            (newest("save_blocked_seconds"), f"{EACH} waited"),
        ),
        panel(
            "Checkpoint size",
            "All files of the newest checkpoint together.",
            "bytes",
            (newest("checkpoint_bytes"), EACH),
            width=4,
        ),
        panel(
            "Attempts",
            "Attempts of the run so far, over all launches. More than one: it was paused, or something was lost; "
            "raykit show says which.",
            "short",
            (newest("attempts"), EACH),
            kind="stat",
            width=4,
            steps=((None, GREEN), (2, ORANGE)),
        ),
    ]


def checks() -> list[Json]:
    """How far QC is."""
    backlog = "missing|pending|claimed|retrying|parked"
    ratio = f"{pace('qc_unit_seconds_sum')} / {pace('qc_unit_seconds_count')}"
    slow = f"histogram_quantile(0.95, {pace('qc_unit_seconds_bucket', 'le')})"
    return [
        panel(
            "QC backlog by state",
            "Required checkpoints without a receipt. Pending is never passed; parked waits for a person.",
            "short",
            (newest("qc_requests", "state", where=f', state=~"{backlog}"'), f"{EACH} {{{{state}}}}"),
            stacked=True,
        ),
        panel(
            "QC failed, parked, unreviewed",
            "Checkpoints that failed their thresholds, that nobody can examine, and that have a receipt and no review. "
            "The first two need a person: raykit qc status.",
            "short",
            (newest("qc_requests", "state", where=', state=~"failed|parked"'), f"{EACH} {{{{state}}}}"),
            (newest("qc_requests", "state", where=', state="unreviewed"'), f"{EACH} {{{{state}}}}"),
            kind="stat",
            width=5,
            steps=((None, GREEN), (1, RED)),
            overrides=[
                of_query("B", thresholds={"mode": "absolute", "steps": [{"color": BLUE, "value": None}]}),
            ],
        ),
        panel(
            "Oldest open request",
            "How long the oldest checkpoint without a receipt has waited.",
            "s",
            (newest("qc_oldest_pending_seconds"), EACH),
            width=5,
        ),
        panel(
            "One check",
            "What an examination takes: the mean, and the slowest in twenty.",
            "s",
            (ratio, f"{EACH} mean"),
            (slow, f"{EACH} p95"),
            width=6,
        ),
    ]


def sets() -> list[Json]:
    """How far synthetic sets are."""
    name = f"{EACH}/{{{{set}}}}"
    return [
        panel(
            "Units by state",
            "Units of each set. It closes when none is left but published ones.",
            "short",
            (newest("generate_units", "set", "state"), f"{name} {{{{state}}}}"),
            width=12,
            stacked=True,
        ),
        panel(
            "Rows per second",
            "Rows that were published, by kind: produced, filtered, failed.",
            "suffix: rows/s",
            (pace("generate_rows_total", "set", "kind"), f"{name} {{{{kind}}}}"),
            width=6,
        ),
        panel(
            "One unit",
            "What one unit takes, on average.",
            "s",
            (f"{pace('generate_unit_seconds_total', 'set')} / {pace('generate_units_total', 'set')}", name),
            width=6,
        ),
    ]


def search() -> list[Json]:
    """How far searches are."""
    ended = total("trials", "experiment", "kind", "state", where=', state!~"waiting|running"')
    return [
        panel(
            "Rows of the table by state",
            "Every row that was registered, trials and repeats: waiting, running, or one of the six ends. They always "
            "sum to the registered number.",
            "short",
            (f"{total('trials', 'experiment', 'state')} > 0", f"{EACH} {{{{state}}}}"),
            stacked=True,
        ),
        panel(
            "Rows that have ended",
            "Trials and repeats, by end. Only completed rows can be picked.",
            "short",
            (f"{ended} > 0", f"{EACH} {{{{kind}}}} {{{{state}}}}"),
            kind="stat",
            width=6,
            steps=((None, BLUE),),
        ),
        panel(
            "Best so far",
            "The best value of a completed row. It is observed, and nothing is picked by it here: raykit search "
            "status.",
            "none",
            (newest("search_best"), EACH),
            width=5,
            negative=True,
        ),
        panel(
            "Reports per second",
            "Development evaluations that the scheduler has heard.",
            "suffix: /s",
            (pace("search_reports_total"), EACH),
            width=5,
        ),
    ]


# --- the whole ----------------------------------------------------------------------------------------------


def laid_out(rows: Mapping[str, Sequence[Json]]) -> list[Json]:
    """All panels under their titles, from left to right and from top to bottom."""
    placed: list[Json] = []
    y = 0
    for title, panels in rows.items():
        placed.append(
            {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": _at(0, y, 24, 1)}
        )
        x, y = 0, y + 1
        for each in panels:
            width = each["gridPos"]["w"]
            if x + width > 24:
                x, y = 0, y + 8
            placed.append({**each, "gridPos": _at(x, y, width, 8)})
            x += width
        y += 8
    return [{"id": n, **each} for n, each in enumerate(placed, start=1)]


def _at(x: int, y: int, width: int, height: int) -> Json:
    return {"h": height, "w": width, "x": x, "y": y}


def variables() -> list[Json]:
    """What is chosen at the top: the Prometheus, and the experiments."""
    values = 'label_values({__name__=~"ray_raykit_.+"}, experiment)'
    shared = {"hide": 0, "options": [], "regex": "", "skipUrlSync": False}
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "includeAll": False,
        "multi": False,
        "refresh": 1,
    }
    experiment = {
        "name": "experiment",
        "label": "Experiment",
        "type": "query",
        "datasource": SOURCE,
        "definition": values,
        "query": {"query": values, "refId": "experiment"},
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "sort": 1,
    }
    return [{**source, **shared}, {**experiment, **shared}]


def dashboard() -> Json:
    """All of it."""
    return {
        "uid": "raykit",
        "title": "raykit",
        "description": "Money, fleet, training, QC, synthetic sets and searches of what runs now. What is absent is "
        "unknown; the store knows the rest.",
        "tags": ["raykit", "ray"],
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": laid_out(
            {
                "Money": money(),
                "Fleet": fleet(),
                "Training": training(),
                "QC": checks(),
                "Synthetic sets": sets(),
                "Search": search(),
            }
        ),
    }


def text() -> str:
    """The file as it is written."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
