"""A root of its own with one search of the tiny recipe in it: what its table and its ledger say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchtoys import write_search

from raykit.budget.audit import audit
from raykit.search import SearchState
from raykit.store.accounts import open_ledger
from raykit.store.ledger import Ledger
from raykit.store.local import LocalStore
from raykit.store.search import read_search

NAME = "tiny"


@dataclass(slots=True)
class SearchRoot:
    """One search; whoever inherits says how it is driven."""

    folder: Path
    plan: Path = Path()

    def write(self, **table: Any) -> None:
        self.plan = write_search(self.folder / "job", **table)

    @property
    def root(self) -> Path:
        return self.folder / "store"

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root)

    @property
    def state(self) -> SearchState:
        found = read_search(self.store, NAME)
        assert found is not None
        return found

    @property
    def ledger(self) -> Ledger:
        """The ledger, held against its promises."""
        ledger = open_ledger(self.store, NAME, by="test")
        assert list(audit(ledger.entries)) == []
        return ledger
