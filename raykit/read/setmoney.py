"""Whether another worker of a synthetic set would be paid for, as far as the ledger tells at a glance."""

from __future__ import annotations

from typing import Final, NamedTuple

from raykit.budget.amounts import shown, time_cost
from raykit.budget.book import Allocation, Book
from raykit.budget.room import given_back, least_ms, plan_bound, room_left, way_to_pay
from raykit.read.setview import Made

LINE: Final = "generate"
"""Of the budget: what pays for synthetic sets."""


class Shortage(NamedTuple):
    """What the money lacks, in words, and the command that helps."""

    words: str
    command: str


def shortage_of(book: Book, experiment: str, made: Made | None, now: float) -> Shortage | None:
    """What a launch would be refused for; None if it would be paid for, or nothing is billed.

    What is projected of the rest of a set has to fit, or at least a worker's first minute. What dead workers hold still
    is settled by that launch.
    """
    allocation = book.allocations.get(experiment)
    wanted = 0 if allocation is None or LINE not in allocation.lines else _wanted(book, allocation, made)
    if allocation is None or not wanted:
        return None
    leases = [each for each in book.leases.values() if each.reserved.experiment == experiment]
    back = given_back(book, experiment, LINE, now=now)
    projection = leases[-1].reserved.projection if leases else None
    room = back + room_left(book, allocation, LINE, projection, now=now)
    if wanted <= room:
        return None
    line = back + allocation.remaining(LINE)
    under = back + plan_bound(book, allocation, projection).left(allocation.charged)
    words = f"{shown(max(0, room), book.unit)} is left for it, and {shown(wanted, book.unit)} is needed"
    if wanted <= min(line, under):
        return Shortage(words, f"raykit budget show {experiment}")
    return Shortage(
        words, way_to_pay(allocation, LINE, wanted - max(0, line), under=max(0, wanted - max(0, under)))
    )


def _wanted(book: Book, allocation: Allocation, made: Made | None) -> int:
    rated = book.rates.get(LINE)
    rate = allocation.rates.get(LINE, 0) if rated is None else rated.rate
    least = time_cost(least_ms(), 1, rate, margin_permille=allocation.margin_permille)
    if made is None or made.canary is None:
        return least
    left = made.units_total - made.units["published"]
    return max(least, made.canary.worst_cost * (1000 * left // made.units_total) // 1000)
