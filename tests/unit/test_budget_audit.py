"""The audit finds each breach of a ledger's promises, says where, and is silent about a ledger that keeps them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from money import ADA, amount, digest, line, planned, terms

from raykit.budget.audit import audit
from raykit.records import (
    MICRO,
    AccountEntry,
    AccountEvent,
    AccountOpened,
    Accrued,
    Approved,
    Closed,
    Corrected,
    Freed,
    Held,
    Line,
    Planned,
    Replanned,
    Reserved,
    Settled,
    Unit,
    Voided,
)

LINES = [
    line("train", "target", 5),
    line("audit", "screening", 0.5),
    line("screen", "screening", 0.5),
    line("confirmation", "confirmation", 4),
]


def opened(unit: Unit = "usd") -> AccountOpened:
    return AccountOpened(account="acc", unit=unit, why="a test")


def plan(name: str = "a", ceiling: float = 10, lines: Sequence[Line] = LINES, decision: str = "d") -> Planned:
    return planned(name, ceiling, lines, decision=decision)


def approved(name: str = "a", covers: float = 10) -> Approved:
    return Approved(scope="plan", covers=amount(covers), experiment=name, projection=digest("p"), person=ADA)


def figure(covers: float) -> Approved:
    return Approved(scope="account", covers=amount(covers), person=ADA)


def reserved(
    lease: str,
    cost: float,
    charged: float = 0,
    *,
    on: str = "train",
    experiment: str = "a",
    projection: str | None = "p",
    worst: float | None = None,
) -> Reserved:
    return Reserved(
        lease=lease,
        experiment=experiment,
        line=on,
        worst=amount(cost if worst is None else worst),
        terms=terms(amount(cost)),
        charged=amount(charged),
        below=amount(10),
        projection=None if projection is None else digest(projection),
    )


def settled(lease: str, cost: float) -> Settled:
    return Settled(
        lease=lease,
        cost=amount(cost),
        time_ms=terms(amount(cost)).time_ms,
        reason="completed",
        how="measured",
    )


def accrued(lease: str, worst: float, hours: float | None = None) -> Accrued:
    time_ms = terms(amount(worst if hours is None else hours)).time_ms
    return Accrued(lease=lease, cost=0, worst=amount(worst), time_ms=time_ms)


def corrected(lease: str, cost: float) -> Corrected:
    return Corrected(lease=lease, cost=amount(cost), reason="the invoice", person=ADA)


def replanned(lines: Sequence[Line], ceiling: float = 10, name: str = "a") -> Replanned:
    return Replanned(
        experiment=name, ceiling=amount(ceiling), lines=tuple(lines), reason="dearer", person=ADA
    )


def held() -> Held:
    return Held(experiment="a", pool="train", accelerators=1, rate=MICRO)


def freed(cost: float) -> Freed:
    return Freed(experiment="a", pool="train", cost=amount(cost), how="given back")


def closed() -> Closed:
    return Closed(experiment="a", reason="given up", person=ADA)


BEGUN: list[AccountEvent] = [opened(), plan(), approved()]


def entries(events: Sequence[AccountEvent]) -> list[AccountEntry]:
    """A ledger with each event in an entry of its own."""
    return [
        AccountEntry(
            n=n, prev=None if n == 1 else digest("prev"), at=float(n), by="t", nonce="n", events=(event,)
        )
        for n, event in enumerate(events, start=1)
    ]


def found(events: Sequence[AccountEvent]) -> list[str]:
    return [finding.rule for finding in audit(entries(events))]


GOOD: list[tuple[str, list[AccountEvent]]] = [
    ("nothing", []),
    ("a life", [*BEGUN, reserved("1", 3), accrued("1", 4), settled("1", 3.5), corrected("1", 3)]),
    ("facts pass the bound", [*BEGUN, reserved("1", 3), settled("1", 9), reserved("2", 0, 9)]),
    ("a replan after facts", [*BEGUN, reserved("1", 3), settled("1", 6), replanned([
        line("train", "target", 7), line("confirmation", "confirmation", 3)]), reserved("2", 1, 6)]),
    ("one purpose pays for itself", [*BEGUN, reserved("1", 0.5, on="audit"), settled("1", 0.75),
        reserved("2", 0.25, 0.75, on="screen")]),
    ("void", [*BEGUN, reserved("1", 5), Voided(lease="1", proof="x"), reserved("2", 5)]),
    ("idle is seen, and paid by recovery", [opened(), plan(lines=[*LINES[:1], line("over", "recovery", 1), *LINES[3:]]),
        approved(), held(), reserved("1", 1, 0.25), freed(1), reserved("2", 1, 2)]),
    ("without a person, below 5", [opened(), plan(), reserved("1", 4.99, projection=None)]),
    ("hours, to the last", [opened("accelerator-hours"), plan(), approved(covers=5), reserved("1", 5)]),
    ("closed", [*BEGUN, reserved("1", 1), closed(), settled("1", 1)]),
]  # fmt: skip


@pytest.mark.parametrize("events", [events for _, events in GOOD], ids=[name for name, _ in GOOD])
def test_a_ledger_that_keeps_its_promises(events: list[AccountEvent]) -> None:
    assert found(events) == []


WITHIN = "settled + reserved stays within the ceiling"
BAD: list[tuple[str, list[AccountEvent]]] = [
    (WITHIN, [opened(), plan(), reserved("1", 5, projection=None)]),
    (WITHIN, [*BEGUN, reserved("1", 5, projection="another plan")]),
    (WITHIN, [opened(), plan(), approved(covers=5), reserved("1", 5)]),
    (WITHIN, [*BEGUN, figure(4), reserved("1", 4)]),
    (WITHIN, [opened(), plan(), approved(covers=4), approved(covers=10), approved(covers=4), reserved("1", 4)]),
    (WITHIN, [opened("accelerator-hours"), plan(), reserved("1", 0.1)]),
    (WITHIN, [opened("accelerator-hours"), plan(), approved(covers=4), reserved("1", 4.1)]),
    (WITHIN, [opened(), plan(), plan("b"), approved(), approved("b"), figure(20), reserved("1", 5),
        reserved("2", 5, 5, experiment="b")]),
    (WITHIN, [opened(), plan(), plan("b", decision="e"), approved(), approved("b"), reserved("1", 5),
        reserved("2", 5, 5, experiment="b")]),
    (WITHIN, [opened(), plan(), reserved("1", 4, projection=None), accrued("1", 5)]),
    ("a line pays for what is reserved on it", [*BEGUN, reserved("1", 0.6, on="audit")]),
    ("a line pays for what is reserved on it", [*BEGUN, reserved("1", 5), accrued("1", 5.5)]),
    ("no purpose takes from another", [*BEGUN, reserved("1", 0.5, on="audit"), settled("1", 0.75),
        reserved("2", 0.5, 0.75, on="screen")]),
    ("nothing is reserved while a replan is due", [*BEGUN, reserved("1", 1), settled("1", 5.5), reserved("2", 1, 5.5)]),
    ("nothing is reserved while a replan is due", [*BEGUN, reserved("1", 1), settled("1", 1), corrected("1", 5.5),
        reserved("2", 1, 5.5, on="confirmation")]),
    ("nothing is reserved while a replan is due", [*BEGUN, held(), freed(0.5), reserved("2", 1, 0.5)]),
    ("nothing is reserved while a replan is due", [*BEGUN, reserved("1", 1, on="confirmation"), reserved("2", 1, 1),
        settled("2", 5.5), accrued("1", 2)]),
    ("an admission sees all that is charged", [*BEGUN, reserved("1", 1), reserved("2", 1, 0)]),
    ("an admission sees all that is charged", [*BEGUN, reserved("1", 1), reserved("2", 1, 2)]),
    ("a reservation is the worst case of its terms", [*BEGUN, reserved("1", 2, worst=1)]),
    ("a lease is renewed for longer, at its own terms", [*BEGUN, reserved("1", 2), accrued("1", 2, hours=4)]),
    ("a lease is renewed for longer, at its own terms", [*BEGUN, reserved("1", 2), accrued("1", 1)]),
    ("a lease is reserved once", [*BEGUN, reserved("1", 1), reserved("1", 1, 1)]),
    ("a lease is reserved once", [*BEGUN, reserved("1", 1), settled("1", 1), reserved("1", 1, 1)]),
    ("a lease that was reserved ends once", [*BEGUN, reserved("1", 1), settled("1", 1), settled("1", 1)]),
    ("a lease that was reserved ends once", [*BEGUN, reserved("1", 1), settled("1", 1), Voided(lease="1", proof="x")]),
    ("a lease that was reserved ends once", [*BEGUN, settled("1", 1)]),
    ("only an open lease is renewed", [*BEGUN, reserved("1", 1), settled("1", 1), accrued("1", 2)]),
    ("only a lease that has ended is corrected", [*BEGUN, reserved("1", 1), corrected("1", 2)]),
    ("work is reserved on a line of an open plan", [*BEGUN, reserved("1", 0, on="qc")]),
    ("work is reserved on a line of an open plan", [*BEGUN, reserved("1", 0, experiment="b")]),
    ("work is reserved on a line of an open plan", [*BEGUN, closed(), reserved("1", 0)]),
    ("the lines of a plan sum to its ceiling", [opened(), plan(ceiling=11)]),
    ("the lines of a plan sum to its ceiling", [*BEGUN, replanned(LINES, ceiling=12)]),
    ("the lines of a plan sum to its ceiling", [opened(), plan(ceiling=14, lines=[*LINES, LINES[-1]])]),
    ("something is kept to reproduce the final result", [opened(), plan(ceiling=5, lines=LINES[:1])]),
    ("arms that are compared at equal budget are equal", [opened(), plan(ceiling=10, lines=[
        line("x", "comparison", 6, one=2, two=4), LINES[-1]])]),
    ("a replan covers what is settled and reserved already", [*BEGUN, reserved("1", 5), replanned([
        line("train", "target", 4), line("confirmation", "confirmation", 6)])]),
    ("an approval covers at most the plan's ceiling", [opened(), plan(), approved(covers=11)]),
    ("an approval covers at most the plan's ceiling", [opened(), approved()]),
    ("only a plan can be replanned", [opened(), replanned(LINES)]),
    ("a plan's lines are set aside once", [opened(), plan(), plan()]),
    ("a plan is closed once", [*BEGUN, closed(), closed()]),
    ("machines are held once, then freed", [*BEGUN, held(), held()]),
    ("only machines that are held are freed", [*BEGUN, freed(0)]),
    ("an account is opened once", [*BEGUN, opened()]),
    ("an account is opened before anything else", [plan()]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "events"), BAD, ids=[f"{n}: {rule}" for n, (rule, _) in enumerate(BAD)])
def test_a_broken_promise_is_found_where_it_is(rule: str, events: list[AccountEvent]) -> None:
    """Nothing before the last event is wrong, and of the last only what is."""
    assert found(events[:-1]) == []
    findings = list(audit(entries(events)))
    assert rule in {finding.rule for finding in findings}
    assert len({finding.rule for finding in findings}) <= 2
    assert {(finding.invariant, finding.n) for finding in findings} == {("I6", len(events))}
    assert all(finding.found for finding in findings)
