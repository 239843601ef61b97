"""Who has something in hand beside the training of a run: checks, units of synthetic sets, and whoever drives a search.

A pause is obeyed at a boundary: a worker finishes or drops the unit that it has, and takes no more; a search lets go
once each of its rows has. That a boundary is reached shows in the store, wherever it is looked at from.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raykit.pauses import Role, scopes_of
from raykit.qc.backlog import Standing
from raykit.read.qc_runs import BegunTrials, read_qc_of
from raykit.read.search import SearchRead
from raykit.read.view import RunView
from raykit.records import Claim
from raykit.store import layout
from raykit.store.base import ObjectStore
from raykit.store.place import gone
from raykit.store.search import SearchLog

if TYPE_CHECKING:
    from raykit.read.setview import SetRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A worker with a unit in hand."""

    role: Role
    of: str
    """Whose unit it is, as people call it: `digits`, `digits-lr/trial-003`, `digits/digits`."""
    what: str
    """`update 20`, `unit 7`."""
    claim: Claim
    receipt: str
    """The key that decides the unit."""
    failure: str
    """The key that says that this attempt came to nothing."""

    @property
    def id(self) -> str:
        """Tells attempts apart."""
        return f"{self.receipt} {self.claim.n}"

    @property
    def who(self) -> str:
        return self.claim.worker

    @property
    def does(self) -> str:
        """What it is at, and how it comes to its end."""
        return f"has {self.what} in hand: it finishes or drops that, and takes no more"

    def boundary(self, store: ObjectStore) -> str | None:
        """What has become of what it had in hand; None as long as it has it.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        if store.head(self.receipt) is not None:
            return f"{self.what} is published"
        if store.head(self.failure) is not None:
            return f"{self.what} was dropped, and is taken again later"
        if gone(self.claim.place):
            return f"its process is gone; {self.what} is taken again later"
        over = time.time() > self.claim.at + self.claim.deadline_s
        return f"the time for {self.what} is over; it is taken again later" if over else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Driving:
    """The process of a search."""

    read: SearchRead
    log: SearchLog
    role: Role = "search"

    @property
    def of(self) -> str:
        return self.read.experiment

    @property
    def id(self) -> str:
        """Tells searches apart."""
        return self.read.experiment

    @property
    def who(self) -> str:
        return "its search"

    @property
    def does(self) -> str:
        """What it is at, and how it comes to its end."""
        left = sum(not row.ended and row.begun_at is None for row in self.read.rows)
        rows = f"{len(self.read.at_work):,} of {len(self.read.rows):,} rows at work"
        return f"has {rows}, and begins none of the {left:,} that are left"

    def boundary(self, store: ObjectStore) -> str | None:
        """That it has let go; None as long as it drives the search.

        Raises:
            CorruptError: its log is damaged.
            StoreUnavailableError: the store did not answer.
        """
        self.log.refresh()
        driver = self.log.state.driver
        if driver is None:
            return "it has let go of the search"
        return "its process is gone" if gone(driver.place) else None


Working = Busy | Driving


def working(
    store: ObjectStore, views: Iterable[RunView], searches: Iterable[SearchRead], scope: str
) -> Iterator[Working]:
    """Everyone whom a pause of `scope` concerns, and who is at something now.

    Raises:
        CorruptError: a log or a record is damaged.
        StoreUnavailableError: the store did not answer.
    """
    for view in views:
        for found in view.sets:
            yield from _sets(store, found, scope)
        if view.qc is not None and scope in scopes_of(view.experiment, "qc", view.qc.suite.digest):
            yield from _checks(view.experiment, view.qc.backlog.standings)
    for read in searches:
        yield from _of_search(store, read, scope)


def _of_search(store: ObjectStore, read: SearchRead, scope: str) -> Iterator[Working]:
    if read.place is not None and scope in scopes_of(read.experiment, "search", read.registration.contract):
        yield Driving(read=read, log=SearchLog(store, read.registration, by="reader"))
    qc = read_qc_of(store, read.experiment, BegunTrials, now=time.time())
    if qc is not None and scope in scopes_of(read.experiment, "qc", qc.suite.digest):
        yield from _checks(read.experiment, qc.standings)


def _checks(experiment: str, standings: Iterable[Standing]) -> Iterator[Busy]:
    for each in standings:
        claim = each.claim
        if each.status != "claimed" or claim is None or gone(claim.place):
            continue
        run, id = each.request.run, each.request.id
        yield Busy(
            role="qc",
            of=experiment if run == "main" else f"{experiment}/{run}",
            what=f"update {each.update:,}",
            claim=claim,
            receipt=layout.qc_receipt(experiment, id),
            failure=layout.qc_attempt(experiment, "failures", id, claim.n),
        )


def _sets(store: ObjectStore, read: SetRead, scope: str) -> Iterator[Busy]:
    made = read.made
    if made is None or not made.units["claimed"]:
        return
    if scope not in scopes_of(read.experiment, "generate", made.digest):
        return
    from raykit.store.generation import Shards  # here, because it needs numpy: most have no sets

    where = (read.experiment, read.name, made.digest)
    for unit, said in sorted(Shards(store, made.contract).listing().said().items()):
        claim = said.claims[-1] if said.claims else None
        if claim is None or any(failure.n == claim.n for failure in said.failures) or gone(claim.place):
            continue
        yield Busy(
            role="generate",
            of=read.id,
            what=f"unit {unit:,}",
            claim=claim,
            receipt=layout.generation_receipt(*where, unit),
            failure=layout.generation_attempt(*where, "failures", unit, claim.n),
        )
