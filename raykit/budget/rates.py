"""At which rate work is paid: the newest that a person has recorded for its pool.

Who asks may have looked at the rate long ago: a search, a launch or a pool of workers goes on for days. So the door
looks it up in the book itself, and whoever asks with an older one is granted this one, or refused for it.
"""

from __future__ import annotations

from typing import NamedTuple

from raykit.budget.book import Allocation, Book
from raykit.budget.worst import left_margin


class Quote(NamedTuple):
    """What an accelerator-hour costs, who says so, and what is reserved above it."""

    rate: int
    source: str
    margin_permille: int


def newest(book: Book, allocation: Allocation, line: str, asked: Quote) -> Quote:
    """What work on a line is paid at now; a line is called as the pool that it pays for. `asked`: what who asks knows.

    A rise within the margin that a person has seen is taken from it. Machines that nobody bills stay free, whatever
    the pool of that name costs another plan of the account.
    """
    rated, seen = book.rates.get(line), allocation.rates.get(line)
    if rated is None or rated.rate == asked.rate or not (asked.rate or seen):
        return asked
    margin = asked.margin_permille
    if seen is not None:
        margin = left_margin(rated.rate, seen=seen, margin_permille=allocation.margin_permille)
    return Quote(rated.rate, f"{rated.source}, {rated.on}", margin)
