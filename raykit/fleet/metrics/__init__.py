"""What raykit says to Ray's dashboard: facts come in, and are said through `ray.util.metrics` while they hold.

    dashboard = Dashboard(say)
    dashboard.tell(lambda: [run_of(...), FleetFacts(...)])   # at every turn of a loop; said about every two seconds
    dashboard.publish(SetFacts(...))                         # now: what holds counts since the last time

A metric that is absent is unknown. Every name, label and meaning is in `catalog`.
"""

from raykit.fleet.metrics.catalog import METRICS, Metric
from raykit.fleet.metrics.dashboard import EVERY_S, Dashboard
from raykit.fleet.metrics.facts import (
    Facts,
    FleetFacts,
    LineFacts,
    MoneyFacts,
    QcFacts,
    RunFacts,
    Sample,
    SearchFacts,
    SetFacts,
    asked_of,
    money_of,
    run_of,
    trainers_of,
)
from raykit.fleet.metrics.spenders import Spenders

__all__ = [
    "EVERY_S",
    "METRICS",
    "Dashboard",
    "Facts",
    "FleetFacts",
    "LineFacts",
    "Metric",
    "MoneyFacts",
    "QcFacts",
    "RunFacts",
    "Sample",
    "SearchFacts",
    "SetFacts",
    "Spenders",
    "asked_of",
    "money_of",
    "run_of",
    "trainers_of",
]
