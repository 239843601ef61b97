"""Plans, requests and an account in memory, for the tests of money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raykit.budget import acts
from raykit.budget.admit import Request, Standing, admit, settle
from raykit.budget.amounts import HOUR_MS, micros
from raykit.budget.audit import audit
from raykit.budget.book import Allocation, Book
from raykit.ids import sha256
from raykit.records import MICRO, AccountOpened, Line, Planned, Purpose, Record, Reserved, Terms, Unit
from raykit.store.base import ObjectStore
from raykit.store.ledger import Ask, Ledger
from raykit.testing import FakeClock, MemoryStore

ADA = "ada"


def amount(text: str | float) -> int:
    """Micro-units of `text` dollars or accelerator-hours."""
    return micros(text, field="test")


def digest(text: str) -> str:
    return sha256(text.encode())


def terms(cost: int, *, rate: int = MICRO, margin_permille: int = 1000) -> Terms:
    """Terms for one accelerator whose worst case is `cost` at the rate of one unit an hour."""
    time_ms, rest = divmod(cost * HOUR_MS, MICRO)
    assert not rest, "not a whole number of milliseconds"
    return Terms(accelerators=1, rate=rate, source="a test", margin_permille=margin_permille, time_ms=time_ms)


def line(name: str, purpose: Purpose, planned: str | float, **arms: str | float) -> Line:
    shares = {arm: amount(share) for arm, share in arms.items()} or None
    return Line(line=name, purpose=purpose, planned=amount(planned), arms=shares)


def planned(
    experiment: str,
    ceiling: str | float,
    lines: Sequence[Line],
    *,
    decision: str | None = None,
    rates: Mapping[str, int] | None = None,
    margin_permille: int = 1000,
) -> Planned:
    return Planned(
        experiment=experiment,
        plan=digest(experiment),
        decision=digest(decision or experiment),
        ceiling=amount(ceiling),
        lines=tuple(lines),
        rates=rates or {},
        margin_permille=margin_permille,
        expected=0,
    )


def projection_of(experiment: str) -> str:
    return digest(f"the consequential part of {experiment}")


class Account:
    """One account on a store: what tests ask of it goes through a real ledger, and is audited at the end."""

    def __init__(self, unit: Unit = "usd", *, store: ObjectStore | None = None, name: str = "acc") -> None:
        self.store = MemoryStore() if store is None else store
        self.clock = FakeClock()
        self.ledger = Ledger(self.store, name, by="test")
        opened = AccountOpened(account=name, unit=unit, why="a test")
        self.ask(lambda book: opened if book.opened is None else None)

    def ask(self, ask: Ask) -> tuple[Record, ...]:
        return self.ledger.decide(ask, at=self.clock())

    @property
    def book(self) -> Book:
        return self.ledger.book

    def allocation(self, experiment: str) -> Allocation:
        return self.book.allocations[experiment]

    def plan(self, plan: Planned, *, approve: bool = False) -> None:
        self.ask(lambda book: acts.plan(book, plan))
        if approve:
            self.approve(plan.experiment, plan.ceiling)

    def approve(self, experiment: str, covers: int) -> None:
        projection = projection_of(experiment)
        self.ask(
            lambda book: acts.approve_plan(book, experiment, covers=covers, projection=projection, person=ADA)
        )

    def reserve(
        self, lease: str, experiment: str, on: str, cost: str | float, *, standing: Standing | None = None
    ) -> Reserved | None:
        """The reservation that this request has led to; None if it was there before."""
        request = Request(
            lease=lease,
            experiment=experiment,
            line=on,
            terms=terms(amount(cost)),
            projection=projection_of(experiment),
        )
        made = self.ask(lambda book: admit(book, request, standing or Standing(), now=self.clock()))
        assert all(isinstance(event, Reserved) for event in made)
        return next((event for event in made if isinstance(event, Reserved)), None)

    def settle(self, lease: str, cost: str | float) -> None:
        """The lease ends, having held its one accelerator for as long as costs `cost`."""
        time_ms = terms(amount(cost)).time_ms
        self.ask(lambda book: settle(book, lease, time_ms=time_ms, reason="completed", how="measured"))

    def spend(self, lease: str, experiment: str, on: str, worst: str | float, cost: str | float) -> None:
        self.reserve(lease, experiment, on, worst)
        self.settle(lease, cost)

    def raw(self) -> dict[str, bytes]:
        """Everything in the store: the same before and after what is refused."""
        assert isinstance(self.store, MemoryStore)
        return dict(self.store.objects)

    def sound(self) -> bool:
        """Hold the whole ledger, as a new reader finds it, against every promise."""
        reader = Ledger(self.store, self.ledger.account, by="reader")
        reader.refresh()
        found = list(audit(reader.entries))
        assert not found, found
        return True
