"""Plans, requests and decisions for ledgers in tests. Amounts are dollars, as people write them."""

from __future__ import annotations

from raykit.budget.acts import plan
from raykit.budget.admit import Request, admit, settle, void
from raykit.budget.amounts import micros
from raykit.budget.book import Book
from raykit.ids import sha256
from raykit.records import Line, Planned, Record, Terms
from raykit.store.accounts import Identity
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
