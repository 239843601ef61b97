"""Plans, requests and decisions for ledgers in tests, and runs that are paid for.

Amounts are dollars, as people write them.
"""

from __future__ import annotations

from makerun import RunMaker

from raykit.budget.acts import plan
from raykit.budget.admit import Request, admit, settle, void
from raykit.budget.amounts import micros
from raykit.budget.book import Book
from raykit.ids import sha256
from raykit.plan.lock import digest_of_decision
from raykit.records import EndReason, Line, Locked, Planned, Record, Terms
from raykit.store.accounts import Identity, data_identity, join_account
from raykit.store.ledger import Answer, Ask, Ledger

AT = 1_800_000_000.0


def usd(amount: str) -> int:
    return micros(amount, field="amount")


def digest(word: str) -> str:
    return sha256(word.encode())


def identity(experiment: str = "digits", *, decision: str | None = None, data: str | None = None) -> Identity:
    """Work that shares nothing with other work, unless it is told what."""
    return Identity(
        experiment=experiment,
        decision=digest(f"decision {decision or experiment}"),
        data=digest(f"data {data or experiment}"),
    )


def a_plan(experiment: str = "digits", *, decision: str | None = None, train: str = "60") -> Planned:
    """A plan with `train` for its run, 10 to confirm it, and 5 for recovery."""
    lines = (
        Line(line="train", purpose="target", planned=usd(train)),
        Line(line="confirmation", purpose="confirmation", planned=usd("10")),
        Line(line="recovery", purpose="recovery", planned=usd("5")),
    )
    return Planned(
        experiment=experiment,
        plan=digest(f"plan of {experiment}"),
        decision=digest(f"decision {decision or experiment}"),
        ceiling=sum(line.planned for line in lines),
        lines=lines,
        expected=usd("1"),
    )


def ask_plan(planned: Planned) -> Ask:
    return lambda book: plan(book, planned)


def ask(lease: str, cost: str = "0.10", *, experiment: str = "digits", source: str = "a test") -> Ask:
    """Whether work that costs exactly `cost` may start."""
    terms = Terms(accelerators=1, rate=0, source=source, time_ms=1000, fixed=usd(cost))
    request = Request(lease=lease, experiment=experiment, line="train", terms=terms)

    def decide(book: Book) -> Record | None:
        return admit(book, request)

    return decide


def ask_settle(lease: str) -> Ask:
    return lambda book: settle(book, lease, time_ms=500, reason="completed", how="measured")


def ask_void(lease: str) -> Ask:
    return lambda book: void(book, lease, proof="it never began")


def events(ledger: Ledger) -> list[Record]:
    """Every event of the ledger, in order."""
    ledger.refresh()
    return [event for entry in ledger.entries for event in entry.events]


def kinds(ledger: Ledger) -> list[str]:
    return [event.event for event in events(ledger)]  # type: ignore[attr-defined]


def granted(answer: Answer) -> bool:
    """Granted now or before; a refusal is an error."""
    return isinstance(answer, tuple)


class PaidRun(RunMaker):
    """A run whose attempts go through the door, each with a reservation of its own."""

    account: str | None = None
    """The account that the plan names."""

    def freeze(self) -> Locked:
        locked = super().freeze()
        decision = digest_of_decision(f"Is {self.experiment} good?")
        who = Identity(
            experiment=self.experiment,
            decision=decision,
            data=data_identity(locked.data, locked.contract),
        )
        self.ledger = join_account(self.store, who, self.account, unit="usd", by="maker", at=self._tick())
        planned = a_plan(self.experiment).model_copy(update={"decision": decision})
        self.ledger.decide(ask_plan(planned), at=self._tick())
        return locked

    def begin(self, *, lease: str | None = None) -> int:
        self.lease = lease or f"{self.experiment}-{self.name}-1"
        ended = [held.reserved.lease for held in self.ledger.book.open_leases(self.experiment)]
        self.ledger.decide_all(
            [*map(ask_settle, ended), ask(self.lease, experiment=self.experiment)], at=self._tick()
        )
        return super().begin(lease=self.lease)

    def end(self, reason: EndReason, *, detail: str | None = None) -> None:
        super().end(reason, detail=detail)
        self.ledger.decide(ask_settle(self.lease), at=self._tick())

    def release(self, reason: EndReason) -> None:
        super().release(reason)
        self.ledger.snapshot()
