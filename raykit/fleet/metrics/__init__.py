"""What raykit says to Ray's dashboard: facts come in, and are said through `ray.util.metrics` while they hold.

    board = Board(say)
    board.tell(lambda: run_of(...))        # at every turn of a loop; about every two seconds it is said
    board.publish(SearchFacts(...))        # now: what holds counts since the last time

A metric that is absent is unknown. Every name, label and meaning is in `catalog`.
"""

from raykit.fleet.metrics.board import EVERY_S, Board
from raykit.fleet.metrics.catalog import METRICS, Metric
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
)

__all__ = [
    "EVERY_S",
    "METRICS",
    "Board",
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
    "asked_of",
    "money_of",
    "run_of",
]
