"""What money does not buy, what it is kept for, and what it may not be called.

covers APPR-17, APPR-18, BUD-01..05, BUD-08, BUD-10..15, BUD-18, BUD-21, BUD-22, BUD-25, BUD-30, BUD-32, BUD-34,
BUD-35, BUD-37, BUD-38, BUD-40, LEDGER-08..10
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from makebudget import PaidByNode
from makereview import (
    ROOT,
    USD,
    based,
    comparing,
    digits,
    fresh,
    fresh_with_reasons,
    negative,
    noted,
    paid,
    planned,
    refresh,
)
from makereview import lines as lines_at
from makerun import RunMaker
from money import ADA, Account, amount, digest, line, projection_of, terms
from money import planned as plan_of

import raykit
from raykit.budget import acts
from raykit.budget.admit import Request, Standing, admit
from raykit.budget.lines import plan_lines
from raykit.budget.worst import Sizing, worst_case
from raykit.cli.main import main
from raykit.errors import (
    ApprovalError,
    BudgetError,
    CancelledError,
    FleetPaused,
    GateError,
    InvalidInput,
    NotFoundError,
    RaykitError,
    ReplanError,
    ReviewError,
)
from raykit.plan import Plan, contract, load_plan, make_lock
from raykit.read.sizing import Known, Times, expected_wall_ms, sized
from raykit.records import (
    MICRO,
    AccountEvent,
    Concluded,
    ExperimentEntry,
    FleetEntry,
    Line,
    Measured,
    Noted,
    Purpose,
)
from raykit.review import ITEMS, Evidence, require_passed, review
from raykit.review.statement import statement
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.store.people import read_scope
from raykit.testing import MemoryStore
from raykit.train.directive import Directive
from raykit.train.door import Grant

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


def roomy(account: Account, name: str = "a", *, approve: bool = False) -> None:
    """A plan with room on every line, so that only what a test is about can refuse."""
    lines = [
        line("train", "target", 12),
        line("screen", "screening", 6),
        line("comparison", "comparison", 6, base=3, candidate=3),
        line("debug", "scratch", 2),
        line("confirmation", "confirmation", 12),
        line("recovery", "recovery", 2),
    ]
    account.plan(plan_of(name, 40, lines), approve=approve)


# --- the ceiling, to the last micro-unit --------------------------------------------------------------------


@pytest.mark.parametrize(("cost", "admitted"), [("1.999999", True), ("2", False), ("2.000001", False)])
def test_the_ceiling_is_exclusive_to_a_micro_unit(cost: str, admitted: bool) -> None:
    """covers BUD-01 BUD-08"""
    account = Account()
    roomy(account)
    account.spend("earlier", "a", "train", 3, 3)
    if admitted:
        account.ask(lambda book: admit(book, asked(cost), now=0.0))
        assert account.book.charged == 5 * MICRO - 1
    else:
        with pytest.raises(ApprovalError):
            account.ask(lambda book: admit(book, asked(cost), now=0.0))
        assert account.book.charged == 3 * MICRO
    assert account.sound()


def asked(cost: str, on: str = "train", name: str = "a") -> Request:
    """At the rate of a micro-unit a millisecond, any amount is a whole number of them."""
    rate = 3_600_000
    given = terms(amount(1), rate=rate).model_copy(update={"time_ms": amount(cost), "rate": rate})
    return Request(lease="next", experiment=name, line=on, terms=given, projection=projection_of(name))


@pytest.mark.parametrize("seed", range(10))
def test_set_up_failures_retries_and_recovery_come_to_one_sum(seed: int) -> None:
    """covers BUD-02 BUD-03 BUD-04 BUD-05: whatever the work was, what it cost is the same money"""
    print(f"seed {seed}")
    rng = random.Random(seed)
    account = Account()
    roomy(account)
    spent = 0
    for n in range(40):
        on = rng.choice(["train", "screen", "debug", "recovery"])
        cents = rng.randint(1, 60)
        try:
            account.reserve(f"{n}", "a", on, cents / 100)
        except ApprovalError:
            assert spent + cents * 10_000 >= 5 * MICRO, "only the sum refuses"
            continue
        except BudgetError:
            assert on in ("debug", "recovery"), "no line takes from another"
            continue
        assert spent + cents * 10_000 < 5 * MICRO
        spent += cents * 10_000
        if rng.random() < 0.8:
            account.settle(f"{n}", cents / 100)
        assert account.book.charged == spent, "an end that nobody knows is charged, too"
    assert spent > 4 * MICRO
    assert account.sound()


# --- what a grant below the ceiling does not allow ----------------------------------------------------------


def test_no_grant_lets_anything_be_deleted() -> None:
    """covers BUD-10: nothing in raykit removes an object, but the probe its own canary"""
    found = []
    for path in sorted(Path(raykit.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            deletes = isinstance(node, ast.Attribute) and node.attr == "delete"
            if deletes and "testing" not in path.parts:
                found.append(path.name)
    assert found == ["probe.py"]


def test_money_is_all_that_an_account_can_be_told() -> None:
    """covers BUD-11 BUD-12 BUD-13: no event of a ledger deletes, promotes, opens or releases"""
    kinds = {event.model_fields["event"].default for event in get_args(get_args(AccountEvent)[0])}
    assert kinds == {
        *("account", "parted", "planned", "approved", "rated", "reserved", "accrued", "settled"),
        *("voided", "corrected", "replanned", "held", "freed", "closed"),
    }
    account = Account()
    roomy(account)
    before = {key for key in account.raw() if not key.startswith("accounts/")}
    account.spend("cheap", "a", "train", "0.01", "0.01")
    assert {key for key in account.raw() if not key.startswith("accounts/")} == before


def items_that_fail(evidence: Evidence) -> set[str]:
    return {finding.item for finding in review(evidence).findings}


def test_cheap_work_promotes_nothing() -> None:
    """covers BUD-11: a threshold that promotes waits for a person, at a cost of 0.01 too"""
    cheap = paid(
        planned(comparing(), {"comparison.promote": {"ratio": "at most 0.3"}}), worst=10_000, billed=True
    )
    assert cheap.money.below_autonomous
    assert "APPR-20" in items_that_fail(cheap)
    assert "APPR-20" not in items_that_fail(replace(cheap, promote_approved=("ratio",)))


@pytest.mark.parametrize("reference", ["min sealed.ratio", "min report_only.ratio", "min benchmark.ratio"])
def test_cheap_work_opens_no_kept_back_split(reference: str) -> None:
    """covers BUD-12: no sum of money is small enough to select on rows that are kept back"""
    text = (ROOT / "jobs/digits/plan.toml").read_text()
    spoilt = text.replace("min development.ratio", reference)
    with pytest.raises(InvalidInput, match="1 finding"):
        load_plan(spoilt.encode(), where="plan.toml")


def test_a_restart_is_not_bought_by_its_price() -> None:
    """covers BUD-13: what cannot be undone is asked of a person, whoever has approved the money"""
    approved = planned(fresh(), {"base.reason": "0.02 bits per byte, measured at 100M from both starts."})
    assert approved.plan_approved
    with pytest.raises(RaykitError):
        require_passed(approved, review(approved))
    account = Account()
    roomy(account, approve=True)
    (approval,) = account.book.approvals.values()
    assert approval.scope == "plan"
    assert set(type(approval).model_fields) == {
        *("event", "scope", "covers", "experiment", "projection", "reason", "person", "scripted"),
    }, "money for one plan is all that it can say"


# --- validity does not depend on the price ------------------------------------------------------------------

DEFECTS: dict[str, Callable[[], Evidence]] = {
    "a base that does not verify": lambda: based(refresh(), verifies=False),
    "arms that differ in two settings": lambda: planned(
        comparing(),
        {"comparison.arms": {"base": {}, "wide": {"params.width": 64, "params.lr": 0.1}}},
    ),
    "an effect that cannot be told from none": lambda: planned(comparing(), {"comparison.detectable": 0.5}),
    "nobody says what follows from a no": lambda: planned(digits(), if_no=None),
    "nothing wrong": refresh,
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_review_items_judge_cheap_and_dear_work_alike(defect: str) -> None:
    """covers BUD-14"""
    evidence = DEFECTS[defect]()
    said = [
        {
            (item.id, found.field, found.problem)
            for item in ITEMS
            for found in item.findings(at_price(evidence, usd))
        }
        for usd in (2, 2_000, 2_000_000)
    ]
    assert said[0] == said[1] == said[2]
    assert bool(said[0]) == (defect != "nothing wrong")


def at_price(evidence: Evidence, usd: int) -> Evidence:
    """The same plan, with lines that sum to another ceiling."""
    return paid(
        evidence,
        ceiling=usd * USD,
        lines=lines_at(usd, train=usd / 4, confirmation=usd / 4),
        worst=usd * USD // 4,
        expected=usd * USD // 5,
        billed=True,
    )


def test_the_launch_gates_do_not_depend_on_the_ceiling() -> None:
    """covers BUD-14"""

    def gates(ceiling: str) -> tuple[str, ...]:
        maker = PaidByNode(MemoryStore(), experiment="lm")
        maker.ceiling = ceiling
        return make_lock(maker.plan, code=digest("code"), data=digest("data"), rows={"train": 5}).gates

    assert gates("900") == gates("4.99") == ("first", "resume")


@pytest.mark.parametrize("cost", ["0.01", "4.99", "12"])
@pytest.mark.parametrize("purpose", ["train", "comparison", "confirmation"])
def test_no_price_is_low_enough_for_a_check_that_failed(cost: str, purpose: str) -> None:
    """covers BUD-14 BUD-25 BUD-34: the first batch was not finite, and no full run starts"""
    account = Account()
    roomy(account, approve=True)
    if purpose == "comparison":
        cost = str(min(float(cost), 6))
    before = account.raw()
    with pytest.raises(GateError, match="the first gate has failed, and no repair is recorded"):
        account.reserve("full", "a", purpose, cost, standing=Standing(failed=("first",)))
    assert account.raw() == before
    assert account.reserve("tiny", "a", "screen", "0.01", standing=Standing(failed=("first",))) is not None
    assert account.allocation("a").remaining("comparison") == amount(6)
    assert account.allocation("a").remaining("confirmation") == amount(12)


# --- the gate of paid work is another one than the review ---------------------------------------------------


def test_a_plan_that_passes_its_review_is_not_thereby_admitted() -> None:
    """covers BUD-15: spending, approval, pauses and rates are asked at the door, each time"""
    good = refresh()
    require_passed(good, review(good))  # raises nothing
    account = Account()
    unplanned = asked("6")
    with pytest.raises(NotFoundError, match="has no budget here"):
        account.ask(lambda book: admit(book, unplanned, now=0.0))
    roomy(account)
    with pytest.raises(ApprovalError, match="a person has to approve this very plan"):
        account.ask(lambda book: admit(book, asked("6"), now=0.0))
    account.approve("a", amount(40))
    before = account.raw()
    with pytest.raises(FleetPaused):
        account.ask(lambda book: admit(book, asked("6"), Standing(paused="paused by mira"), now=0.0))
    other = replace(asked("6"), projection=digest("the plan as it was reviewed, changed since"))
    with pytest.raises(ApprovalError):
        account.ask(lambda book: admit(book, other, now=0.0))
    assert account.raw() == before
    account.ask(lambda book: admit(book, asked("6"), now=0.0))
    account.ask(lambda book: acts.close(book, "a", reason="flat", person=ADA))
    with pytest.raises(CancelledError):
        account.ask(lambda book: admit(book, replace(asked("1"), lease="more"), now=0.0))


def test_a_rate_that_nobody_saw_stops_what_a_review_has_passed() -> None:
    """covers BUD-15"""
    account = Account()
    lines = [line("train", "target", 12), line("confirmation", "confirmation", 12)]
    account.plan(plan_of("a", 24, lines, rates={"train": MICRO}, margin_permille=1050), approve=True)
    dearer = Request(
        lease="one",
        experiment="a",
        line="train",
        terms=terms(amount("1.1"), rate=MICRO).model_copy(update={"rate": 1_100_000}),
        projection=projection_of("a"),
    )
    with pytest.raises(ReplanError, match=r"costs 1\.10 now"):
        account.ask(lambda book: admit(book, dearer, now=0.0))


@pytest.mark.parametrize("what", ["the masked rows were counted twice", "twice the cost for half the effect"])
def test_a_premise_that_does_not_hold_goes_to_a_person_before_more_is_spent(
    what: str, failed: PaidByNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers APPR-17 APPR-18: nothing is spent until a named person has decided anew, in words"""
    pause = ["pause", "role:train", "--premise", "--reason", what, "--by", "ada", "--no-wait"]
    assert main(pause) == 0
    held = read_scope(failed.store, "role:train").pauses["role:train"]
    assert (held.pause.cause, held.pause.reason) == ("premise", what)
    account = Account()
    roomy(account, approve=True)
    with pytest.raises(FleetPaused, match=what):
        account.ask(lambda book: admit(book, asked("0.01"), Standing(paused=held.words), now=0.0))
    capsys.readouterr()
    assert main(["resume", "role:train", "--by", "ada"]) == FleetPaused.exit_code
    refusal = capsys.readouterr().err
    assert "nobody has decided anew" in refusal
    assert '--repair "what was decided, and why" --by NAME' in refusal
    assert "role:train" in read_scope(failed.store, "role:train").pauses
    decided = ["resume", "role:train", "--repair", "half the rows, same ceiling", "--by", "mira"]
    assert main(decided) == 0
    assert read_scope(failed.store, "role:train").pauses == {}
    fleet = Log(failed.store, layout.fleet_log(), FleetEntry, by="reader").refresh()
    (over,) = fleet[-1].events
    assert (over.person, over.cleared) == ("mira", "decided anew: half the rows, same ceiling")


# --- operational limits are no horizon ----------------------------------------------------------------------


def plan_with(**changes: Any) -> Plan:
    text = PaidByNode(MemoryStore(), experiment="lm").plan_file().decode()
    for key, value in changes.items():
        old = next((row for row in text.splitlines() if row.startswith(f"{key} ")), None)
        new = f"{key} = {value}"
        text = text.replace(old, new) if old else text.replace("[run]\n", f"[run]\n{new}\n")
    return load_plan(text.encode(), where="plan.toml")


def test_a_time_limit_is_kept_apart_from_the_length_of_the_run() -> None:
    """covers BUD-18"""
    short, long = plan_with(wall_h=1), plan_with(wall_h=10)
    assert contract(short) == contract(long), "a time limit shapes no weights"
    assert contract(plan_with(updates=20)) != contract(plan_with(updates=40))
    locks = [
        make_lock(plan, code=digest("c"), data=digest("d"), rows={"train": 60}) for plan in (short, long)
    ]
    assert [lock.updates for lock in locks] == [40, 40]
    assert [lock.settings["run"]["wall_h"] for lock in locks] == [1, 10]
    terms_of = [sized(plan, Known(), None) for plan in (short, long)]
    assert [each.wall_ms for each in terms_of] == [3_600_000, 36_000_000]


def test_a_run_that_its_time_limit_ends_has_not_reached_its_length() -> None:
    """covers BUD-18: the directive says paused, at the ceiling; only the last update, or its own rule, completes"""
    directive = Directive()
    grant = Grant(lease="one", left_ms=3_600_000, drain_ms=0, wall_ms=0, accelerators=1, invested_ms=0)
    directive.keep(Silent(), grant, granted_at=0.0, hold_s=1.0)
    try:
        directive.working()
        directive._lease_end = float("inf")
        assert directive.ask().stop
    finally:
        directive.close()
    assert (directive.reason, directive.cause) == ("paused", "ceiling")
    assert directive.why == "the plan's cap on productive time is reached"

    maker = RunMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(14)
    maker.commit("stop")
    maker.end(directive.reason, detail=directive.why)
    maker.release("paused")
    view = raykit.open(maker.store, clock=lambda: maker.at).run("digits")
    assert (view.state, view.update, view.updates) == ("paused", 14, 40)
    assert not maker.log.state.completed


class Silent:
    """A door that nobody has to ask."""

    def begin(self, launch: str, ordinal: int) -> Grant:
        raise AssertionError("nothing begins here")

    def beat(self, lease: str) -> None:
        return


# --- what is kept to confirm --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_ceiling_one_run_is_kept_to_confirm(seed: int) -> None:
    """covers BUD-21 BUD-22 BUD-32: the reserve is a line of its own, and all lines sum to the ceiling"""
    print(f"seed {seed}")
    rng = random.Random(seed)
    train = Sizing(
        accelerators=rng.randint(1, 64),
        rate=rng.randint(1, 5 * MICRO),
        source="a test",
        margin_permille=rng.randint(1000, 1500),
        wall_ms=rng.randint(60_000, 40_000_000),
        attempts=rng.randint(1, 5),
        setup_ms=rng.randint(0, 2_000_000),
        window_ms=rng.randint(0, 900_000),
        drain_ms=rng.randint(0, 360_000),
    )
    fixed, scratch = {"storage": rng.randint(0, 10 * MICRO)}, rng.randint(0, 40 * MICRO)
    run, aside = worst_case(train), sum(fixed.values()) + scratch
    least = aside + 2 * run
    for ceiling in (least, least + 1, least + rng.randint(1, 1000 * MICRO)):
        lines = {
            each.line: each for each in plan_lines(ceiling=ceiling, train=train, fixed=fixed, scratch=scratch)
        }
        assert sum(each.planned for each in lines.values()) == ceiling
        assert lines["confirmation"].planned == lines["train"].planned == run
        assert lines["recovery"].planned == ceiling - least
        assert {lines["confirmation"].purpose, lines["recovery"].purpose} == {"confirmation", "recovery"}
    with pytest.raises(BudgetError, match="confirm"):
        plan_lines(ceiling=least - 1, train=train, fixed=fixed, scratch=scratch)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_no_purpose_but_a_reserve_can_take_the_whole_ceiling(purpose: Purpose) -> None:
    """covers BUD-22"""
    account = Account()
    everything = plan_of("a", 20, [Line(line="all", purpose=purpose, planned=amount(20))])
    if purpose in ("confirmation", "recovery"):
        account.plan(everything)
        return
    with pytest.raises(ReplanError, match="nothing is kept to reproduce the final result"):
        account.plan(everything)


@pytest.mark.parametrize("short", [1, 10_000, 3 * MICRO])
def test_arms_are_shortened_together_or_not_at_all(short: int) -> None:
    """covers BUD-30: by a micro-unit, too"""
    account = Account()
    roomy(account)
    lines = [
        each
        if each.line != "comparison"
        else Line(
            line="comparison",
            purpose="comparison",
            planned=each.planned - short,
            arms={"base": amount(3) - short, "candidate": amount(3)},
        )
        for each in account.allocation("a").lines.values()
    ]
    with pytest.raises(InvalidInput, match="its arms differ"):
        account.ask(
            lambda book: acts.replan(
                book, "a", lines, ceiling=amount(40) - short, reason="shorter", person=ADA
            )
        )


# --- what a run that failed at once may be called -----------------------------------------------------------


@pytest.fixture
def failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaidByNode:
    """A full run whose first update was not finite."""
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    maker = PaidByNode(LocalStore(tmp_path / "store"), experiment="lm")
    maker.freeze()
    maker.launch()
    maker.begin(hours=3.0)
    maker.rows(1, nonfinite=True)
    maker.end("failed", detail="update 1: loss is not finite", hours=0.1)
    maker.release("failed")
    return maker


def concluded(maker: RunMaker) -> list[Concluded]:
    log = Log(maker.store, layout.experiment_log(maker.experiment), ExperimentEntry, by="reader")
    return [event for entry in log.refresh() for event in entry.events if isinstance(event, Concluded)]


SAYS = ["--says", "the loss was not finite at update 1", "--by", "ada"]


@pytest.mark.parametrize("outcome", ["better", "worse", "equivalent"])
def test_a_run_that_failed_at_once_compares_no_final_quality(
    outcome: str, failed: PaidByNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers BUD-35"""
    assert main(["conclude", "lm", "--outcome", outcome, *SAYS]) == ReviewError.exit_code
    assert "no run of lm has completed (1 of 40 updates)" in capsys.readouterr().err
    assert concluded(failed) == []


def test_what_it_was_can_be_said(failed: PaidByNode, capsys: pytest.CaptureFixture[str]) -> None:
    """covers BUD-35: that it is invalid, with what had been trained, and at its cost"""
    assert main(["conclude", "lm", "--outcome", "invalid", *SAYS]) == 0
    capsys.readouterr()
    (event,) = concluded(failed)
    assert (event.outcome, event.update) == ("invalid", 1)
    assert failed.ledger.refresh() == []
    assert failed.ledger.book.settled == amount("2.392")


# --- estimates ----------------------------------------------------------------------------------------------


def test_what_nobody_measured_is_called_uncertain_and_what_was_is_preferred() -> None:
    """covers BUD-37"""
    plan = plan_with()
    assert sized(plan, Known(), None).uncertain
    run = Times(setup_ms=20_000, update_ms=100.0, save_ms=500, update=30)
    assert not sized(plan, Known(run=run), None).uncertain
    told = Measured(what="update", pool="train", time_ms=2_190, how="gate memory of lm-07, 2026-11-28")
    assert not sized(plan, Known(told={"update": told}), None).uncertain
    assert expected_wall_ms(plan, Known(run=run, told={"update": told})) == 40 * 2_190
    assert expected_wall_ms(plan, Known()) is None, "no number where there is none"


def test_a_check_that_sharpens_an_estimate_is_bounded_and_paid_for_like_any_work() -> None:
    """covers BUD-38: on its own line, for its own time, by nobody's leave but a person's at 5 USD"""
    account = Account()
    roomy(account)
    with pytest.raises(ApprovalError, match="a person has to approve this very plan"):
        account.reserve("measure", "a", "screen", 5)
    made = account.reserve("measure", "a", "screen", "0.50")
    assert made is not None
    assert (made.worst, made.terms.time_ms) == (amount("0.50"), 1_800_000), "bounded before it starts"
    account.approve("a", amount(40))
    with pytest.raises(BudgetError, match=r"the line has 5\.50 left"):
        account.reserve("measure-2", "a", "screen", 6)
    assert account.allocation("a").remaining("train") == amount(12), "the run pays for none of it"


def test_no_pilot_is_demanded_where_a_reason_is_given() -> None:
    """covers BUD-38: a check for its own sake is nothing that the review asks for"""
    plain = replace(refresh(), pilot=None)
    without = planned(plain, {"base.against_pilot": None})
    wanted = [found for found in review(without).findings if found.field == "value.first"]
    assert [found.asks for found in wanted] == [True]
    said = planned(
        without, {"value.first": "The pilot's effect was at the edge: only the whole run decides."}
    )
    assert not [found for found in review(said).findings if found.field == "value.first"]


def test_accumulation_is_promised_to_make_nothing_faster() -> None:
    """covers BUD-40: it trades memory; the same measured update stays as long, and no record can say otherwise"""
    one, four = plan_with(accumulate=1), plan_with(accumulate=4)
    known = Known(run=Times(setup_ms=20_000, update_ms=100.0, save_ms=500, update=30))
    assert expected_wall_ms(one, known) == expected_wall_ms(four, known) == 4_000
    assert sized(one, known, None) == sized(four, known, None)
    lock = [make_lock(p, code=digest("c"), data=digest("d"), rows={"train": 60}) for p in (one, four)]
    assert [each.micro_batch for each in lock] == [64, 16]
    assert lock[0].samples == lock[1].samples, "the examples of an update are the same"
    measures = set(get_args(Measured.model_fields["what"].annotation))
    assert measures == {
        *("gates", "setup", "update", "save", "drain", "qc", "qc-unit", "generate", "compare", "memory"),
    }, "times that were measured; a speed-up is none of them"
    assert {"speedup", "throughput"}.isdisjoint(Measured.model_fields)


# --- what was learned before comes first --------------------------------------------------------------------


def test_a_restart_is_held_against_what_came_to_nothing_before() -> None:
    """covers LEDGER-08 LEDGER-10: by hypothesis and setting, until somebody says what is different"""
    assert "PLAN-38" not in items_that_fail(fresh())
    again = replace(fresh(), negatives=(negative("equivalent", "setting"),))
    found = [each for each in review(again).findings if each.item == "PLAN-38"]
    assert len(found) == 1
    assert (
        "digits-wide had the same setting and came out equivalent: more width did nothing" in found[0].problem
    )
    said = planned(again, {"value.remains": "Whether width helps once the rows are 5 % more."})
    assert "PLAN-38" not in items_that_fail(said)


def test_an_incident_is_shown_before_a_restart_and_refuses_nothing() -> None:
    """covers LEDGER-08 LEDGER-09: it happened once"""
    good = replace(fresh_with_reasons(), incidents=(noted("incident", "three nodes were lost at 02:10"),))
    assert review(good).findings == review(fresh_with_reasons()).findings
    shown = " ".join(map(str, statement(good, review(good))))
    assert "three nodes were lost at 02:10 (happened in lm1b-06; no rule)" in shown


def test_lessons_of_all_experiments_are_read_with_one_command(
    failed: PaidByNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """covers LEDGER-08 LEDGER-09 LEDGER-10: found again by the setting, each one result and no rule"""
    log = Log(failed.store, layout.experiment_log("lm"), ExperimentEntry, by="ada")
    log.append(
        lambda entries: [Noted(kind="incident", says="three nodes were lost", person="ada")], at=failed.at
    )
    assert main(["conclude", "lm", "--outcome", "invalid", "--hypothesis", "a lower peak", *SAYS]) == 0
    capsys.readouterr()
    assert main(["lessons", "--like", "lm"]) == 0
    text = capsys.readouterr().out
    assert "one result, no rule:" in text
    assert "tried    a lower peak" in text
    assert f"setting  contract {concluded(failed)[0].contract[:8]}" in text
    assert "one incident, no rule:" in text
    assert "; nowhere else" in text
