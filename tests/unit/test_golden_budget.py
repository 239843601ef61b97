"""The sources' own numbers on money, word for word, through the real ledger."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from money import ADA, Account, amount, digest, line, planned, terms

from raykit.budget import acts
from raykit.budget.admit import Request, Standing, admit
from raykit.budget.amounts import HOUR_MS, shown
from raykit.budget.book import Book
from raykit.budget.worst import Sizing, worst_case
from raykit.errors import (
    ApprovalError,
    BudgetError,
    GateError,
    InvalidInput,
    RaykitError,
    ReplanError,
    Unknown,
)
from raykit.pauses import fold_acts
from raykit.records import MICRO, ExperimentEntry, Line, Planned, Repaired, Reserved
from raykit.store.accounts import Identity, join_account
from raykit.store.ledger import Ledger
from raykit.testing import Fault, FaultStore, MemoryStore, reply_lost, unavailable

TEACHING = "teaching"


def twenty_hours() -> Planned:
    """20 GPU-hours, one full run is 6: mask check, learning-rate screen, matched comparison, confirmation."""
    return planned(
        TEACHING,
        20,
        [
            line("mask-check", "screening", 1),
            line("lr-screen", "screening", 1),
            line("comparison", "comparison", 12, baseline=6, candidate=6),
            line("confirmation", "confirmation", 6),
        ],
    )


def other_twenty_hours(name: str = TEACHING) -> Planned:
    return planned(
        name,
        20,
        [
            line("audit", "screening", 2),
            line("stability", "screening", 2),
            line("comparison", "comparison", 12, baseline=6, candidate=6),
            line("confirmation", "confirmation", 4),
        ],
        decision="is the candidate better?",
    )


def screened(stability: float) -> Account:
    """The second plan once its screening is over: 1.5 hours for the audit, and `stability` for the short screen."""
    account = Account("accelerator-hours")
    account.plan(other_twenty_hours(), approve=True)
    account.spend("audit-1", TEACHING, "audit", 2, 1.5)
    account.spend("stability-1", TEACHING, "stability", 2, stability)
    return account


def replan(account: Account, lines: Iterable[Line]) -> None:
    account.ask(
        lambda book: acts.replan(
            book, TEACHING, list(lines), ceiling=amount(20), reason="screening took longer", person=ADA
        )
    )


# covers GOLD-01, BUD-19, BUD-20, BUD-21, BUD-22, BUD-32
def test_gold_01_twenty_hours_are_accepted_and_sum() -> None:
    account = Account("accelerator-hours")
    account.plan(twenty_hours())
    lines = account.allocation(TEACHING).lines
    assert sum(each.planned for each in lines.values()) == amount(20)
    full_run = worst_case(
        Sizing(
            accelerators=1,
            rate=MICRO,
            source="measured",
            wall_ms=6 * HOUR_MS,
            attempts=1,
            setup_ms=0,
            window_ms=0,
            drain_ms=0,
        )
    )
    assert lines["comparison"].planned == 2 * full_run
    assert lines["comparison"].arms == {"baseline": full_run, "candidate": full_run}
    assert lines["confirmation"].planned == full_run

    without_reserve = planned("greedy", 20, [line("comparison", "comparison", 20)])
    with pytest.raises(ReplanError, match="nothing is kept to reproduce"):
        account.plan(without_reserve)
    with pytest.raises(InvalidInput, match=r"sum to 19\.00 h, and the allocation is 20\.00 h"):
        account.plan(
            planned("short", 20, [line("all", "target", 13), line("confirmation", "confirmation", 6)])
        )
    assert list(account.book.allocations) == [TEACHING]
    assert account.sound()


# covers GOLD-02, BUD-24, BUD-25, BUD-26
def test_gold_02_a_failed_check_keeps_the_comparison_waiting_until_it_is_repaired_and_passes() -> None:
    account = Account("accelerator-hours")
    account.plan(twenty_hours(), approve=True)
    results: list[tuple[int, bool]] = []  # of the mask check: the attempt, and whether it passed
    people: list[ExperimentEntry] = []

    def standing() -> Standing:
        """A check stands as failed until a repair covers its last failure and it has passed since."""
        repaired = fold_acts(people).repaired
        failures = [attempt for attempt, passed in results if not passed]
        stands = bool(failures) and (not results[-1][1] or failures[-1] > repaired)
        return Standing(failed=("mask-check",) if stands else ())

    def compare(arm: str) -> Reserved | None:
        return account.reserve(f"compare-{arm}", TEACHING, "comparison", 6, standing=standing())

    account.spend("mask-check-1", TEACHING, "mask-check", 1, 1)
    results.append((1, False))
    with pytest.raises(GateError, match="mask-check"):
        compare("baseline")
    allocation = account.allocation(TEACHING)
    assert allocation.remaining("comparison") == amount(12)
    assert allocation.remaining("confirmation") == amount(6)
    assert allocation.actual == account.book.charged == amount(1)

    results.append((2, True))  # passes again, and nobody says what was done about it
    with pytest.raises(GateError):
        compare("baseline")
    results[-1] = (2, False)
    repair = Repaired(what="the mask's denominator", attempt=2, person=ADA)
    people.append(ExperimentEntry(n=1, prev=None, at=1.0, by="t", nonce="n", events=(repair,)))
    with pytest.raises(GateError):  # repaired, and not yet shown to pass
        compare("baseline")
    assert account.reserve("screen", TEACHING, "lr-screen", 1, standing=standing()) is not None  # no full run

    results.append((3, True))
    assert compare("baseline") is not None
    assert compare("candidate") is not None
    assert account.book.charged == amount(1 + 1 + 12)
    assert account.sound()


# covers GOLD-03, BUD-23, BUD-36
def test_gold_03_one_screen_pays_for_the_overrun_of_the_other() -> None:
    account = screened(2.5)
    allocation = account.allocation(TEACHING)
    assert [allocation.spent[name] for name in ("audit", "stability")] == [amount(1.5), amount(2.5)]
    assert allocation.actual == amount(4)
    assert allocation.remaining("comparison") == amount(12)
    assert allocation.reserve_left() == amount(4)
    assert (
        amount(20) - allocation.actual - allocation.remaining("comparison") - allocation.reserve_left() == 0
    )
    assert allocation.remaining("audit") == 0, "what it has left has gone to the other screen"
    assert allocation.remaining("stability") == -amount(0.5)
    assert not allocation.needs_replan
    assert account.reserve("compare-baseline", TEACHING, "comparison", 6) is not None
    assert account.sound()


# covers GOLD-04, BUD-27
def test_gold_04_an_overrun_into_the_reserve_stops_everything_until_a_replan() -> None:
    account = screened(4.5)
    allocation = account.allocation(TEACHING)
    assert allocation.actual == amount(6)
    assert allocation.reserve_left() == amount(20 - 6 - 12) == amount(2)
    assert allocation.needs_replan
    before = account.raw()
    for on in allocation.lines:
        with pytest.raises(ReplanError, match=r"overrun by 2\.00 h: 2\.00 h of its reserves is left"):
            account.reserve(f"more-{on}", TEACHING, on, 1)
    assert account.raw() == before

    replan(
        account,
        [
            line("audit", "screening", 1.5),
            line("stability", "screening", 4.5),
            line("comparison", "comparison", 12, baseline=6, candidate=6),
            line("confirmation", "confirmation", 2),
        ],
    )
    assert account.allocation(TEACHING).replans == 1
    assert account.reserve("compare-baseline", TEACHING, "comparison", 6) is not None
    assert account.sound()


# covers GOLD-05, BUD-28
def test_gold_05_the_old_reserve_cannot_be_kept() -> None:
    account = screened(4.5)
    before = account.raw()
    with pytest.raises(InvalidInput, match=r"sum to 22\.00 h, and the allocation is 20\.00 h"):
        replan(
            account,
            [
                line("audit", "screening", 1.5),
                line("stability", "screening", 4.5),
                line("comparison", "comparison", 12, baseline=6, candidate=6),
                line("confirmation", "confirmation", 4),
            ],
        )
    assert account.raw() == before
    assert account.allocation(TEACHING).needs_replan


# covers GOLD-06, BUD-29, BUD-03
def test_gold_06_attempts_that_failed_count() -> None:
    account = Account("accelerator-hours")
    account.plan(other_twenty_hours(), approve=True)
    account.spend("audit-1", TEACHING, "audit", 2, 1.5)
    account.reserve("stability-1", TEACHING, "stability", 1)
    account.settle("stability-1", 2.5)  # the attempt that succeeded
    account.reserve("stability-2", TEACHING, "audit", 0)
    account.settle("stability-2", 2)  # the one that failed
    assert account.allocation(TEACHING).actual == amount(6)
    before = account.raw()
    only_successful = [
        line("audit", "screening", 1.5),
        line("stability", "screening", 2.5),
        line("comparison", "comparison", 12, baseline=6, candidate=6),
        line("confirmation", "confirmation", 4),
    ]
    with pytest.raises(ReplanError, match=r"leave 2\.00 h uncovered") as refused:
        replan(account, only_successful)
    assert refused.value.rule is not None
    assert "every attempt counts" in refused.value.rule
    assert account.raw() == before


# covers GOLD-07, BUD-30
def test_gold_07_one_arm_cannot_be_shortened_alone() -> None:
    account = screened(4.5)
    before = account.raw()
    with pytest.raises(InvalidInput, match=r"arms differ: baseline 4\.00 h, candidate 6\.00 h"):
        replan(
            account,
            [
                line("audit", "screening", 1.5),
                line("stability", "screening", 4.5),
                line("comparison", "comparison", 10, baseline=4, candidate=6),
                line("confirmation", "confirmation", 4),
            ],
        )
    assert account.raw() == before
    shorter = acts.moved(
        account.allocation(TEACHING),
        [("comparison", "stability", amount(2.5)), ("audit", "comparison", amount(0.5))],
    )
    assert shorter[2].arms == {"baseline": amount(5), "candidate": amount(5)}, "both arms are shortened alike"


# covers GOLD-08, BUD-31
def test_gold_08_two_plans_for_one_decision_are_alternatives() -> None:
    account = Account("accelerator-hours")
    account.plan(other_twenty_hours("first"))
    account.plan(other_twenty_hours("second"))
    assert acts.most_planned(account.book) == amount(20)
    before = account.raw()
    with pytest.raises(ApprovalError, match=r"alternatives, and all decisions together come to 20\.00 h"):
        account.ask(lambda book: acts.approve_account(book, covers=amount(40), person=ADA))
    assert account.raw() == before
    account.ask(lambda book: acts.approve_account(book, covers=amount(20), person=ADA))

    account.approve("first", amount(20))
    account.approve("second", amount(20))
    for lease in ("baseline", "candidate"):
        account.reserve(f"first-{lease}", "first", "comparison", 6)
    with pytest.raises(BudgetError, match="together they stay at most 20"):
        account.reserve("second-baseline", "second", "comparison", 9)
    assert account.reserve("second-baseline", "second", "comparison", 8) is not None
    assert account.sound()


def roomy(account: Account, experiment: str, *, decision: str | None = None) -> None:
    """A plan with room on its line, so that only the ceiling of the account can refuse."""
    lines = [line("train", "target", 19), line("recovery", "recovery", 1)]
    account.plan(planned(experiment, 20, lines, decision=decision))


# covers GOLD-14, BUD-01, BUD-08
def test_gold_14_the_ceiling_is_exclusive() -> None:
    account = Account()
    roomy(account, "a")
    account.spend("a-1", "a", "train", 3.75, 3.75)
    with pytest.raises(ApprovalError, match=r"would come to 5\.00; from 5\.00 on"):
        account.reserve("a-2", "a", "train", 1.25)
    made = account.reserve("a-2", "a", "train", 1.24)
    assert made is not None
    assert account.book.charged == amount(4.99)
    assert account.sound()


# covers GOLD-14, BUD-01
def test_gold_14_the_ceiling_of_an_approved_plan_is_exclusive_too() -> None:
    account = Account()
    lines = [
        line("train", "target", "4.99"),
        line("train-2", "target", "0.005"),
        line("kept", "recovery", "0.005"),
    ]
    account.plan(planned("a", 5, lines), approve=True)
    account.spend("a-1", "a", "train", 3.75, 3.75)
    with pytest.raises(BudgetError, match=r"that is 5\.00, and this plan stays below 5\.00"):
        account.reserve("a-2", "a", "train", 1.25)
    assert account.reserve("a-2", "a", "train", 1.24) is not None
    assert account.sound()


# covers GOLD-15, BUD-02, BUD-03, BUD-04, BUD-05, BUD-06
@pytest.mark.parametrize(("cost", "admitted"), [("1.79", True), ("1.80", False)])
def test_gold_15_setup_failures_retries_and_recovery_all_count(cost: str, admitted: bool) -> None:
    account = Account()
    lines = [
        line("setup", "overhead", 1),
        line("train", "target", 15),
        line("confirmation", "confirmation", 3),
        line("recovery", "recovery", 1),
    ]
    account.plan(planned("a", 20, lines))
    account.spend("setup", "a", "setup", "0.40", "0.40")
    account.spend("failed", "a", "train", "1.10", "1.10")
    account.spend("retry", "a", "train", "1.10", "1.10")
    account.spend("recover", "a", "recovery", "0.60", "0.60")
    assert account.book.charged == amount("3.20")
    if admitted:
        made = account.reserve("next", "a", "train", cost)
        assert made is not None
        # The confirmation is stored: what was charged, the worst case, and the bound it was held against.
        assert (made.charged, made.worst, made.below) == (amount("3.20"), amount(cost), amount(5))
    else:
        with pytest.raises(ApprovalError):
            account.reserve("next", "a", "train", cost)
    assert account.sound()


# covers GOLD-16, BUD-09
def test_gold_16_a_new_name_does_not_buy_a_new_ceiling() -> None:
    store = MemoryStore()
    question = "which model goes to production?"
    decision = digest(question)
    one = Identity(experiment="a", decision=decision)
    two = Identity(experiment="b", decision=decision)
    first = join_account(store, one, None, unit="usd", by="t", at=1.0)
    second = join_account(store, two, None, unit="usd", by="t", at=2.0)
    assert first.account == second.account

    account = Account(store=store, name=first.account)
    roomy(account, "a", decision=question)
    roomy(account, "b", decision=question)
    account.spend("a-1", "a", "train", 3, 3)
    with pytest.raises(ApprovalError, match=r"with 3\.00 settled and reserved account a would come to 5\.00"):
        account.reserve("b-1", "b", "train", 2)
    renamed = Identity(experiment="c", decision=decision)
    with pytest.raises(ApprovalError, match="the decision of c belongs to account a"):
        join_account(store, renamed, "fresh", unit="usd", by="t", at=3.0)
    assert account.sound()


# covers GOLD-17, BUD-01, I6
@pytest.mark.parametrize("seed", range(20))
def test_gold_17_a_thousand_requests_of_ten_cents(seed: int) -> None:
    """Many ledgers on one store, in any order; some lose the answer, some their process, and ask again."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    store = MemoryStore()
    account = Account(store=store)
    roomy(account, "a")

    def start() -> tuple[FaultStore, Ledger]:
        faulty = FaultStore(store)
        return faulty, Ledger(faulty, "acc", by="worker")

    workers = [start() for _ in range(rng.randint(2, 6))]
    cents = terms(amount("0.10"))
    answers: dict[str, bool] = {}
    waiting = [f"request-{n}" for n in range(1000)]
    rng.shuffle(waiting)
    while waiting:
        batch = [waiting.pop() for _ in range(min(len(waiting), rng.choice([1, 1, 2, 7, 30])))]
        if rng.random() < 0.1:  # a duplicate of what was asked before
            batch.append(rng.choice(batch))
        which = rng.randrange(len(workers))
        faulty, ledger = workers[which]
        faulty.fault = rng.choice(
            [
                Fault(),
                Fault(reply_lost, at=rng.randint(1, 4), when="after"),
                Fault(unavailable(), at=rng.randint(1, 4)),
            ]
        )

        def ask(lease: str, book: Book) -> Reserved | None:
            request = Request(lease=lease, experiment="a", line="train", terms=cents)
            return admit(book, request, now=1.0)

        try:
            made = ledger.decide_all([lambda book, lease=lease: ask(lease, book) for lease in batch], at=1.0)
        except Unknown:
            waiting[rng.randrange(len(waiting) + 1) : 0] = batch  # nobody knows: they ask again, some day
            if rng.random() < 0.5:
                workers[which] = start()
        else:
            for lease, answer in zip(batch, made, strict=True):
                granted = not isinstance(answer, RaykitError)
                assert granted or isinstance(answer, ApprovalError), answer
                assert answers.setdefault(lease, granted) == granted, "one question, one answer"

    account.ledger.refresh()
    assert len(answers) == 1000
    assert sum(answers.values()) == len(account.book.leases) == 49
    assert {lease for lease, granted in answers.items() if granted} == set(account.book.leases)
    assert shown(account.book.charged) == "4.90"
    assert account.sound()
