"""A ledger under everything at once: two writers, crashes, lost replies, duplicates, late batches, people, clocks.

After every step the whole ledger is held against I6 prefix by prefix (`raykit.budget.audit`), and the books of all
who read it against sums that are made from scratch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from money import ADA, amount, digest, line, planned

from raykit.budget import acts
from raykit.budget.admit import Request, Standing, accrue, admit, settle, settle_at_most, void
from raykit.budget.amounts import HOUR_MS, PERMILLE
from raykit.budget.audit import audit
from raykit.budget.book import IDLE, Book
from raykit.errors import RaykitError, Unknown
from raykit.records import (
    MICRO,
    AccountEntry,
    AccountOpened,
    Accrued,
    Approved,
    Corrected,
    Freed,
    Planned,
    Rated,
    Record,
    Reserved,
    Settled,
    Terms,
    Unit,
    Voided,
)
from raykit.store.ledger import Ask, Ledger
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost, unavailable

Decide = Callable[[Book], Record | None]

PLANS = {
    # decision, and what its lines have: train, screen, audit, confirmation, recovery
    "a": ("one", ("4", "0.1", "0.9", "1", "2")),
    "b": ("one", ("3", "0.1", "0.9", "0.5", "1.5")),  # an alternative to a
    "c": ("two", ("1.5", "0.5", "0.5", "0.3", "0.2")),
}
COSTS = [amount(each) for each in ("0", "0.1", "0.5", "1", "1.24", "1.25", "2", "3.75", "4")]
SHARES = [0, 400, 1000, 1000, 1001, 3000]
"""Of what was reserved, in thousandths: what a lease turns out to have cost."""
RATES = [MICRO, MICRO, MICRO * 105 // 100, MICRO * 105 // 100 + 1, 2 * MICRO]
MARGIN = 1050
BEGAN = 1_700_000_000.0
BOUNDS = ["line", "line", "plan", "decision", "account"]

which = st.integers(0, 1)
experiments = st.sampled_from(["a", "a", "b", "c"])
lines = st.sampled_from(["train", "screen", "audit", "train", "screen", "audit", "confirmation", "recovery"])
costs = st.sampled_from(COSTS)
shares = st.sampled_from(SHARES)
any_of = st.integers(0, 1000)


def plan_of(name: str) -> Planned:
    decision, (train, screen, audit, kept, recovery) = PLANS[name]
    half = float(train) / 2
    made = [
        line("train", "comparison", train, one=half, two=half),
        line("screen", "screening", screen),
        line("audit", "screening", audit),
        line("confirmation", "confirmation", kept),
        line("recovery", "recovery", recovery),
    ]
    ceiling = sum(each.planned for each in made) / MICRO
    return planned(name, ceiling, made, decision=decision, rates={"train": MICRO}, margin_permille=MARGIN)


@cache
def begun(unit: Unit, approved: bool) -> dict[str, bytes]:
    """A store with an account in which the three plans are set aside; with `approved`, a person has let them start."""
    store = MemoryStore()
    ledger = Ledger(store, "acc", by="people")
    plans = [plan_of(name) for name in PLANS]
    asks: list[Decide] = [lambda book: AccountOpened(account="acc", unit=unit, why="a test")]
    asks += [lambda book, made=made: acts.plan(book, made) for made in plans]
    if approved:
        asks += [lambda book, made=made: approve(book, made.experiment, made.ceiling) for made in plans]
        asks += [lambda book: acts.approve_account(book, covers=amount(11), person=ADA)]
    for ask in asks:
        ledger.decide(ask, at=BEGAN)
    return store.objects


def approve(book: Book, name: str, covers: int) -> Approved | None:
    return acts.approve_plan(book, name, covers=covers, projection=digest(name), person=ADA)


class LedgerMachine(RuleBasedStateMachine):
    """Two processes with a ledger each, on one store, and the people around them."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.faults = [FaultStore(self.store), FaultStore(self.store)]
        self.ledgers = [self.start(0), self.start(1)]
        self.reader = Ledger(self.store, "acc", by="reader")
        self.now = BEGAN
        self.asked: list[Request] = []
        """Every request that was ever made, granted or not."""
        self.granted: set[str] = set()
        """What somebody was told that they have: it is there for ever."""
        self.late: list[Decide] = []
        self.paused: set[str] = set()

    def start(self, n: int) -> Ledger:
        return Ledger(self.faults[n], "acc", by=f"writer-{n}")

    def ask(self, n: int, decide: Decide) -> tuple[Record, ...] | None:
        """The events that a decision has led to; None if it was refused, or if nobody knows."""
        before = len(self.store.objects)
        try:
            return self.ledgers[n].decide(decide, at=self.now)
        except Unknown:
            return None
        except RaykitError:
            assert len(self.store.objects) == before, "a refusal writes nothing"
            return None

    # --- what is asked --------------------------------------------------------------------------------------

    @initialize(
        unit=st.sampled_from(["usd", "usd", "accelerator-hours"]),
        approved=st.sampled_from([True, True, True, False]),
        first=st.lists(st.tuples(experiments, lines, costs), min_size=1, max_size=5),
    )
    def begin(self, unit: Unit, approved: bool, first: list[tuple[str, str, int]]) -> None:
        self.store.objects.update(begun(unit, approved))
        for name, on, cost in first:
            self.admit(1, name, on, cost, MICRO)

    def admit(
        self,
        n: int,
        name: str,
        on: str,
        cost: int,
        rate: int,
        *,
        late: bool = False,
        fixed: int = 0,
        least: int | None = None,
    ) -> None:
        time_ms = cost * HOUR_MS // MICRO
        request = Request(
            lease=f"lease-{len(self.asked)}",
            experiment=name,
            line=on,
            terms=Terms(accelerators=1, rate=rate, source="a test", time_ms=time_ms, fixed=fixed),
            projection=digest(name),
            least_ms=None if least is None else min(time_ms, time_ms * least // 1000),
        )
        self.asked.append(request)
        if late and len(self.late) < 4:
            self.late.append(self.reserving(request))
        else:
            self.reserve(n, request)

    @rule(n=which, name=experiments, on=lines, cost=costs, late=st.booleans())
    def admit_work(self, n: int, name: str, on: str, cost: int, late: bool) -> None:
        self.admit(n, name, on, cost, MICRO, late=late)

    @rule(n=which, name=experiments, on=lines, cost=st.sampled_from(COSTS[:4]))
    def admit_little(self, n: int, name: str, on: str, cost: int) -> None:
        self.admit(n, name, on, cost, MICRO)

    @rule(n=which, name=experiments, on=lines, cost=costs, least=shares)
    def admit_at_least(self, n: int, name: str, on: str, cost: int, least: int) -> None:
        self.admit(n, name, on, cost, MICRO, least=least)

    @rule(n=which, name=experiments, cost=st.sampled_from(COSTS[:4]), rate=st.sampled_from(RATES))
    def admit_at_todays_rate(self, n: int, name: str, cost: int, rate: int) -> None:
        self.admit(n, name, "train", cost, rate)

    @rule(n=which, rate=st.sampled_from(RATES))
    def a_new_invoice(self, n: int, rate: int) -> None:
        if self.reader.book.unit == "usd":
            event = Rated(pool="train", rate=rate, source="an invoice", on="2026-12-01", person=ADA)
            self.ask(n, lambda book: event)

    @rule(n=which, name=experiments, on=lines, what=st.sampled_from(BOUNDS), more=st.integers(-1, 1))
    def admit_what_is_left(self, n: int, name: str, on: str, what: str, more: int) -> None:
        """Exactly what a bound has left, as the newest book has it, or a millionth more or less."""
        book = self.reader.book
        mine = book.allocations[name]
        alike = [each for each in book.allocations.values() if each.planned.decision == mine.planned.decision]
        left = {
            "line": mine.lines[on].planned - mine.used(on),
            "plan": mine.ceiling - mine.charged,
            "decision": max(each.ceiling for each in alike) - sum(each.charged for each in alike),
            "account": (book.figure or amount(5)) - book.charged,
        }
        self.admit(n, name, on, 0, MICRO, fixed=max(0, left[what] + more))

    def pick(self, at: int) -> Request:
        """One of what was asked: mostly of what is there and goes on, sometimes of what has ended or never was."""
        going_on = [each for each in self.asked if self.is_open(each.lease)]
        among = going_on if going_on and at % 8 else self.asked
        return among[at % len(among)]

    def is_open(self, lease: str) -> bool:
        held = self.reader.book.leases.get(lease)
        return held is not None and held.open

    @rule(n=which, at=any_of, more=st.sampled_from([0, 0, 1]))
    def ask_again(self, n: int, at: int, more: int) -> None:
        """After a lost reply, or for no reason. Who asks for more than was granted gets nothing."""
        request = self.pick(at)
        held = self.reader.book.leases.get(request.lease)
        if more and held is not None:
            terms = request.terms.model_copy(update={"time_ms": held.time_ms + more})
            assert self.ask(n, self.reserving(replace(request, terms=terms, least_ms=None))) is None
            return
        made = self.reserve(n, request)
        assert not (held is not None and made), "a lease is reserved once"

    def reserving(self, request: Request) -> Decide:
        def decide(book: Book) -> Reserved | None:
            paused = "paused by ada" if request.experiment in self.paused else None
            made = admit(book, request, Standing(paused=paused), now=self.now)
            if made is not None:
                allocation = book.allocations[request.experiment]
                seen = allocation.rates.get(request.line)
                assert paused is None
                assert not allocation.closed
                if made.worst:
                    assert allocation.remaining(request.line) >= made.worst
                    assert not allocation.needs_replan
                    assert seen is None or made.terms.rate * PERMILLE <= seen * MARGIN
                newest = book.rates.get(request.line)
                assert newest is None or made.terms.rate == newest.rate, "whatever who asks has known"
            return made

        return decide

    def reserve(self, n: int, request: Request) -> tuple[Record, ...] | None:
        made = self.ask(n, self.reserving(request))
        if made is not None:
            self.granted.add(request.lease)
        return made

    @precondition(lambda self: self.late)
    @rule(n=which, order=st.integers(0, 23))
    def decide_late(self, n: int, order: int) -> None:
        """What was asked some time ago is decided now, in another order, as one batch."""
        batch: list[Ask] = []
        while self.late:
            order, at = divmod(order, len(self.late))
            batch.append(self.late.pop(at))
        try:
            self.ledgers[n].decide_all(batch, at=self.now)
        except Unknown:
            pass

    # --- how leases go on and end ---------------------------------------------------------------------------

    @rule(n=which, at=any_of, longer=st.sampled_from([0, 1, 100, 400]), short=st.booleans())
    def accrue(self, n: int, at: int, longer: int, short: bool) -> None:
        lease = self.pick(at)
        time_ms = lease.terms.time_ms * (1000 + longer) // 1000
        least_ms = lease.terms.time_ms if short else None

        def decide(book: Book) -> Record | None:
            held = book.leases.get(lease.lease)
            paid_ms = 0 if held is None else held.time_ms
            made = accrue(book, lease.lease, cost=0, time_ms=time_ms, least_ms=least_ms, now=self.now)
            assert made is None or paid_ms < made.time_ms <= time_ms, "a renewal takes nothing back"
            return made

        self.ask(n, decide)

    @rule(n=which, at=any_of, share=shares, at_most=st.booleans())
    def settle(self, n: int, at: int, share: int, at_most: bool) -> None:
        lease = self.pick(at)
        time_ms = lease.terms.time_ms * share // 1000
        end = settle_at_most if at_most else settle
        self.ask(n, lambda book: end(book, lease.lease, time_ms=time_ms, reason="completed", how="measured"))

    @rule(n=which, at=any_of)
    def void(self, n: int, at: int) -> None:
        lease = self.pick(at).lease
        self.ask(n, lambda book: void(book, lease, proof="its process never began"))

    @rule(n=which, at=any_of, cost=costs)
    def settle_by_hand(self, n: int, at: int, cost: int) -> None:
        lease = self.pick(at).lease
        self.ask(n, lambda book: acts.settle_by_hand(book, lease, cost=cost, how="the invoice", person=ADA))

    # --- people ---------------------------------------------------------------------------------------------

    @rule(n=which, name=experiments, covers=costs)
    def approve_plan(self, n: int, name: str, covers: int) -> None:
        self.ask(n, lambda book: approve(book, name, covers))

    @rule(n=which, covers=st.sampled_from([amount(each) for each in (1, 4, 8, 11, 14)]))
    def approve_account(self, n: int, covers: int) -> None:
        self.ask(n, lambda book: acts.approve_account(book, covers=covers, person=ADA))

    @rule(
        n=which,
        name=experiments,
        come=lines,
        go=lines,
        cost=costs,
        raised=st.integers(-2, 4),
        off=st.sampled_from([0, 0, 0, 1]),
    )
    def replan(self, n: int, name: str, come: str, go: str, cost: int, raised: int, off: int) -> None:
        def decide(book: Book) -> Record | None:
            allocation = acts.allocation_of(book, name)
            ceiling = allocation.ceiling + raised * MICRO
            moved = acts.moved(allocation, [(come, go, cost)], ceiling=ceiling)
            rates = {"train": 2 * MICRO} if raised > 2 else None
            return acts.replan(
                book, name, moved, ceiling=ceiling + off, rates=rates, reason="as it is now", person=ADA
            )

        self.ask(n, decide)

    @rule(name=experiments)
    def pause_or_resume(self, name: str) -> None:
        self.paused ^= {name}

    @rule(n=which, name=experiments, free=st.booleans())
    def hold_or_free(self, n: int, name: str, free: bool) -> None:
        if free:
            self.ask(n, lambda book: acts.free(book, name, "train", how="given back", now=self.now))
        else:
            self.ask(n, lambda book: acts.hold(book, name, "train", accelerators=1, rate=MICRO // 5))

    @rule(n=which, name=experiments, sure=st.integers(0, 7))
    def close(self, n: int, name: str, sure: int) -> None:
        if sure == 7:
            self.ask(n, lambda book: acts.close(book, name, reason="given up", person=ADA))

    # --- the world ------------------------------------------------------------------------------------------

    @rule(n=which)
    def crash(self, n: int) -> None:
        self.faults[n].fault = Fault()
        self.ledgers[n] = self.start(n)

    @rule(n=which, at=st.integers(1, 3), lost=st.booleans())
    def store_fails(self, n: int, at: int, lost: bool) -> None:
        """The next operation of this writer, or one soon after it: its reply is lost, or it is not done at all."""
        self.faults[n].fault = Fault(reply_lost, at=at, when="after") if lost else Fault(unavailable(), at=at)

    @rule(hours=st.sampled_from([-1, 1]))
    def clock_jumps(self, hours: int) -> None:
        self.now += hours * 3600.0

    # --- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def the_ledger_keeps_its_promises(self) -> None:
        new = self.reader.refresh()
        if new:
            assert not list(audit(self.reader.entries))
            check_sums(self.reader.book, self.reader.entries)
        assert self.granted <= set(self.reader.book.leases), "what was granted is durable"

    def teardown(self) -> None:
        fresh = Ledger(self.store, "acc", by="check")
        fresh.refresh()
        assert fresh.entries == self.reader.entries
        for n in (0, 1):  # whatever became of a writer: it reads on, and finds the one ledger that there is
            self.faults[n].fault = Fault()
            self.ledgers[n].refresh()
            assert self.ledgers[n].entries == fresh.entries
            check_sums(self.ledgers[n].book, fresh.entries)


def check_sums(book: Book, entries: Sequence[AccountEntry]) -> None:
    """The totals of a book are those that its ledger's events come to, added up from nothing."""
    at: dict[str, tuple[str, str]] = {}
    charged: dict[str, int] = {}
    opened: set[str] = set()
    spent: Counter[tuple[str, str]] = Counter()
    for event in (event for entry in entries for event in entry.events):
        match event:
            case Reserved():
                at[event.lease] = event.experiment, event.line
                charged[event.lease] = event.worst
                opened.add(event.lease)
            case Accrued():
                charged[event.lease] = event.worst
            case Settled() | Voided():
                charged[event.lease] = event.cost if isinstance(event, Settled) else 0
                opened.remove(event.lease)
            case Corrected():
                charged[event.lease] = event.cost
            case Freed():
                spent[event.experiment, IDLE] += event.cost
    reserved: Counter[tuple[str, str]] = Counter()
    for lease, cost in charged.items():
        (reserved if lease in opened else spent)[at[lease]] += cost
    assert book.reserved == sum(reserved.values())
    assert book.settled == sum(spent.values())
    for name, allocation in book.allocations.items():
        for totals, summed in ((allocation.spent, spent), (allocation.reserved, reserved)):
            mine = {on: cost for (experiment, on), cost in summed.items() if experiment == name and cost}
            assert {on: cost for on, cost in totals.items() if cost} == mine


# covers I6, I13, BUD-01..06, BUD-24, BUD-27, F10, F11
EACH_PUSH = settings(
    max_examples=1000, stateful_step_count=25, deadline=None, derandomize=True, print_blob=True
)
AT_NIGHT = settings(EACH_PUSH, max_examples=50_000, derandomize=False, database=None)


@pytest.mark.timeout(300)
class TestLedgerMachine(LedgerMachine.TestCase):
    """The same examples each time."""

    settings = EACH_PUSH


@pytest.mark.slow
@pytest.mark.timeout(7200)
class TestLedgerMachineAtNight(LedgerMachine.TestCase):
    """Other examples each time; what fails is printed with the line that repeats it."""

    settings = AT_NIGHT
