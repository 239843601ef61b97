"""The money of everyone who spends from one account, said by the process that serves it: it alone knows all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from raykit.budget.book import Book, Lease
from raykit.fleet.metrics.dashboard import Dashboard
from raykit.fleet.metrics.facts import MoneyFacts, money_of


class Spenders:
    """Those who have held a lease since this process began to serve. Used by one thread."""

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._known: set[str] = set()

    def tell(self, book: Book, leases: Collection[str]) -> None:
        """Say what each of them has, if it is time to; `leases` are those of the book that are open."""
        self._dashboard.tell(lambda: self._facts(book, leases))

    def _facts(self, book: Book, leases: Collection[str]) -> list[MoneyFacts | None]:
        open_: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in (book.leases[name] for name in leases):
            open_[lease.reserved.experiment].append(lease)
        self._known |= open_.keys()
        return [money_of(book, name, open_[name]) for name in sorted(self._known)]
