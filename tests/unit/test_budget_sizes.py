"""What a run may cost at most, and how a ceiling is set aside."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from money import amount, line, planned

from raykit.budget.amounts import (
    HOUR_MS,
    affordable_ms,
    measured,
    micros,
    plain,
    shown,
    time_cost,
    worst_of,
)
from raykit.budget.book import Allocation, Book
from raykit.budget.lines import (
    RECOVERY,
    TRAIN,
    expected_cost,
    guessed_wall_ms,
    next_attempt,
    plan_lines,
    proposal,
    resized,
)
from raykit.budget.worst import Past, Sizing, at_rate, attempt_terms, worst_case, worst_ms
from raykit.errors import BudgetError, InvalidInput, ReplanError
from raykit.records import LARGEST

H100 = Sizing(
    accelerators=8,
    rate=amount("2.99"),
    source="invoice 2026-10",
    margin_permille=1050,
    wall_ms=10 * HOUR_MS,
    attempts=3,
    setup_ms=int(0.4 * HOUR_MS),
    window_ms=HOUR_MS // 4,
    drain_ms=HOUR_MS // 10,
)
"""The 1B refresh of the users' guide: 10 h on 8 H100s, in at most 3 attempts."""

FIXED = {
    "gates": amount("30.1392"),
    "qc": amount("22.26"),
    "generation": amount("140.5866"),
    "storage": amount("15.64"),
}


def cents(micro: int) -> str:
    return f"{Decimal(micro).scaleb(-6):.2f}"


# --- amounts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "micro"),
    [
        ("1.25", 1_250_000),
        (1.25, 1_250_000),
        (5, 5_000_000),
        (" 2.5 ", 2_500_000),
        ("0.000001", 1),
        (1e-06, 1),
        (0, 0),
        (Decimal("0.10"), 100_000),
        ("1000000000", LARGEST),
    ],
)
def test_an_amount_is_read_exactly(text: str | float, micro: int) -> None:
    assert micros(text, field="ceiling") == micro


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-1",
            "nan",
            "inf",
            "-inf",
            "1e5",
            "1_000",
            "1,000",
            "five",
            "0x10",
            "\u0663",
            "1.",
            "--1",
            "sNaN",
        ),
        *(-1, -0.01, float("nan"), float("inf"), True, 10**5000, 1e300, "9" * 5000),
        *("1000000000.000001", "0.0000001", 1e-07, "1.00000000000000000000000000000000001"),
        *(Decimal("1e999999999"), Decimal("1e-999999999"), Decimal("NaN"), Decimal("sNaN")),
    ],
    ids=lambda text: str(text)[:12] if not isinstance(text, int) else "int",
)
def test_what_is_no_amount_is_refused(text: str | float) -> None:
    with pytest.raises(InvalidInput, match="is not an amount") as refused:
        micros(text, field="ceiling")
    assert refused.value.field == "ceiling"
    assert refused.value.rule == "a plain number from 0 to 1,000,000,000 with at most six decimals"
    assert len(str(refused.value)) < 100


@given(st.integers(0, LARGEST))
def test_an_amount_that_is_typed_is_the_amount_that_was_shown(micro: int) -> None:
    assert micros(plain(micro), field="x") == micro
    assert shown(micro).replace(",", "") == plain(micro)


def test_amounts_are_shown_as_people_write_them() -> None:
    assert shown(1_250_000) == "1.25"
    assert shown(1_234_500_001) == "1,234.500001"
    assert shown(-500_000) == "-0.50"
    assert shown(6_000_000, "accelerator-hours") == "6.00 h"


@given(st.integers(0, 10**9), st.integers(0, 512), st.integers(0, 10**8), st.integers(1000, 3000))
def test_the_time_that_is_affordable_is_the_longest(cost: int, gpus: int, rate: int, margin: int) -> None:
    time_ms = affordable_ms(cost, gpus, rate, margin_permille=margin)
    if time_ms is None:
        assert gpus * rate == 0
        return
    assert time_cost(time_ms, gpus, rate, margin_permille=margin) <= cost
    assert time_cost(time_ms + 1, gpus, rate, margin_permille=margin) > cost


# --- the worst case: section 2 of the users' guide ----------------------------------------------------------


def test_the_worst_case_is_capped_by_work() -> None:
    assert worst_ms(H100) == 12.25 * HOUR_MS
    assert cents(worst_case(H100)) == "307.67"
    unproven = replace(H100, proven=False)
    assert worst_ms(unproven) == 3 * 10.5 * HOUR_MS
    assert cents(worst_case(unproven)) == "791.15"


def test_a_replay_at_the_end_is_in_the_worst_case_of_every_attempt() -> None:
    sizing = replace(H100, replay_ms=HOUR_MS // 4)
    assert worst_ms(sizing) == 13 * HOUR_MS
    assert attempt_terms(sizing, []).time_ms == attempt_terms(H100, []).time_ms + HOUR_MS // 4
    assert expected_cost(sizing, HOUR_MS) == expected_cost(H100, HOUR_MS + HOUR_MS // 4)


def test_the_lines_of_the_refresh_sum_to_its_ceiling() -> None:
    lines = plan_lines(ceiling=amount(900), train=H100, fixed=FIXED, scratch=0)
    by_name = {each.line: each.planned for each in lines}
    kept = by_name["confirmation"] + by_name["recovery"]
    assert sum(by_name.values()) == amount(900)
    assert cents(amount(900) - kept) == "516.30"
    assert cents(by_name["train"]) == cents(by_name["confirmation"]) == "307.67"
    assert cents(by_name["recovery"]) == "76.03"


def test_a_run_that_starts_over_after_each_failure_does_not_fit() -> None:
    unproven = replace(H100, proven=False)
    with pytest.raises(BudgetError, match=r"this plan may cost 999\.\d+ before anything is kept") as refused:
        plan_lines(ceiling=amount(900), train=unproven, fixed=FIXED, scratch=0)
    assert refused.value.field == "budget"


@given(
    proven=st.booleans(),
    rate=st.integers(1, 10**7),
    margin=st.sampled_from([1000, 1050, 1337]),
    wall_ms=st.integers(0, 10**8),
    overheads=st.tuples(*[st.integers(0, 10**6)] * 4),
    held=st.lists(st.integers(0, 1000), min_size=5, max_size=5),
)
@settings(deadline=None)
def test_attempts_never_come_to_more_than_the_worst_case_of_the_run(
    proven: bool, rate: int, margin: int, wall_ms: int, overheads: tuple[int, ...], held: list[int]
) -> None:
    """However long each attempt lasts within its own lease, the next one still fits; the bound is never passed."""
    setup_ms, window_ms, drain_ms, replay_ms = overheads
    sizing = Sizing(
        accelerators=7,
        rate=rate,
        source="a test",
        margin_permille=margin,
        wall_ms=wall_ms,
        attempts=len(held),
        setup_ms=setup_ms,
        window_ms=window_ms,
        drain_ms=drain_ms,
        replay_ms=replay_ms,
        fixed=17,
        proven=proven,
    )
    past: list[Past] = []
    spent = 0
    for share in held:
        terms = attempt_terms(sizing, past)
        assert spent + worst_of(terms) <= worst_case(sizing)
        time_ms = terms.time_ms * share // 1000
        spent += measured(terms, time_ms)
        past.append(Past(held_ms=time_ms))
    assert spent <= worst_case(sizing)


def test_the_fixed_cost_is_paid_once_and_a_guess_is_labelled() -> None:
    sizing = replace(H100, fixed=amount(10), uncertain=True)
    first = attempt_terms(sizing, [])
    assert (first.fixed, first.uncertain, first.wall_ms) == (amount(10), True, 10 * HOUR_MS)
    second = attempt_terms(sizing, [Past(held_ms=5 * HOUR_MS, wall_ms=4 * HOUR_MS)])
    assert (second.fixed, second.wall_ms) == (0, 6 * HOUR_MS)
    assert second.time_ms == 6 * HOUR_MS + sizing.overhead_ms


def test_a_rise_within_the_margin_costs_what_was_planned() -> None:
    risen = at_rate(H100, amount("3.10"), "invoice 2026-11")
    assert risen.source == "invoice 2026-11"
    assert worst_case(H100) * 0.999 < worst_case(risen) <= worst_case(H100)
    fallen = at_rate(H100, amount("2.00"), "invoice 2026-12")
    assert fallen.margin_permille == 1050
    assert worst_case(fallen) < worst_case(H100)
    assert at_rate(H100, amount("4.00"), "x").margin_permille == 1000


# --- lines --------------------------------------------------------------------------------------------------


@given(
    ceiling=st.integers(0, 10**9),
    rate=st.integers(0, 10**7),
    wall_ms=st.integers(0, 10**8),
    fixed=st.dictionaries(st.sampled_from(["storage", "egress"]), st.integers(0, 10**8)),
    scratch=st.integers(0, 10**8),
)
def test_lines_sum_exactly_or_are_refused(
    ceiling: int, rate: int, wall_ms: int, fixed: dict[str, int], scratch: int
) -> None:
    train = replace(H100, rate=rate, wall_ms=wall_ms)
    needs = 2 * worst_case(train) + sum(fixed.values()) + scratch
    if needs > ceiling:
        with pytest.raises(BudgetError):
            plan_lines(ceiling=ceiling, train=train, fixed=fixed, scratch=scratch)
        return
    lines = plan_lines(ceiling=ceiling, train=train, fixed=fixed, scratch=scratch)
    assert sum(each.planned for each in lines) == ceiling
    assert {each.purpose for each in lines} >= {"target", "confirmation", "recovery"}
    assert any(each.purpose == "scratch" for each in lines) == bool(scratch)


def test_where_nothing_is_known_the_ceiling_says_how_long() -> None:
    guess = replace(H100, uncertain=True, capped=False, margin_permille=1000)
    wall_ms = guessed_wall_ms(ceiling=amount(900), train=guess, set_aside=amount(100))
    sized = replace(guess, wall_ms=wall_ms)
    lines = {
        each.line: each
        for each in plan_lines(ceiling=amount(900), train=sized, fixed={}, scratch=amount(100))
    }
    assert sum(each.planned for each in lines.values()) == amount(900)
    assert lines["train"].planned == lines["confirmation"].planned
    assert lines["recovery"].planned >= amount(80), "a tenth of what is free is kept back"
    with pytest.raises(BudgetError, match="set-up and drain alone"):
        guessed_wall_ms(ceiling=amount(1), train=guess, set_aside=0)


def test_what_is_expected_has_no_reserve_in_it() -> None:
    hours = expected_cost(H100, 8 * HOUR_MS)
    assert hours == time_cost(int(8.4 * HOUR_MS), 8, amount("2.99"))
    assert hours < worst_case(H100)


def test_a_line_keeps_its_claim_of_equal_budgets() -> None:
    compared = line("compare", "comparison", 12, one=6, two=6)
    assert resized(compared, amount(10)).arms == {"one": amount(5), "two": amount(5)}
    assert resized(compared, compared.planned) is compared
    with pytest.raises(InvalidInput, match="does not divide"):
        resized(compared, amount(10) + 1)


def spent_so_far(cost: int, *, ceiling: int = 900) -> Allocation:
    """The refresh, with one attempt that has held its accelerators for as long as `cost` pays for."""
    lines = plan_lines(ceiling=amount(ceiling), train=H100, fixed=FIXED, scratch=0)
    book = Book()
    book.apply(planned("refresh", ceiling, lines), 0.0)
    allocation = book.allocations["refresh"]
    time_ms = affordable_ms(cost, H100.accelerators, H100.rate)
    assert time_ms is not None
    allocation.spent[TRAIN] = cost
    allocation.past[TRAIN] = [Past(held_ms=time_ms)]
    return allocation


def test_a_proposal_pays_for_the_rest_of_the_run() -> None:
    allocation = spent_so_far(amount(200))
    lines = proposal(allocation, H100, ceiling=amount(900))
    by_name = {each.line: each.planned for each in lines}
    assert sum(by_name.values()) == amount(900)
    terms = attempt_terms(H100, allocation.past[TRAIN])
    assert by_name[TRAIN] >= amount(200) + worst_of(terms)
    assert by_name["confirmation"] == worst_case(H100)
    with pytest.raises(ReplanError, match="the rest of refresh may cost") as refused:
        proposal(allocation, H100, ceiling=amount(700))
    assert refused.value.field == "ceiling"
    assert refused.value.remedy is not None
    assert " h" not in refused.value.remedy


def test_a_proposal_for_a_run_that_nobody_has_measured_names_the_ceiling_that_would_do() -> None:
    guess = replace(H100, uncertain=True, capped=False)
    allocation = spent_so_far(amount(200))
    with pytest.raises(ReplanError, match="set-up and drain alone may cost") as refused:
        proposal(allocation, guess, ceiling=amount(231))
    assert refused.value.rule is not None
    above = re.match(r"above ([0-9.]+):", refused.value.rule)
    assert above is not None
    with pytest.raises(ReplanError, match="set-up and drain alone may cost"):
        proposal(allocation, guess, ceiling=amount(above[1]))
    lines = proposal(allocation, guess, ceiling=amount(above[1]) + 10)
    assert sum(each.planned for each in lines) == amount(above[1]) + 10


def test_a_proposal_takes_idle_machines_into_account() -> None:
    allocation = spent_so_far(amount(200))
    allocation.spent["idle"] = amount(7)
    lines = {each.line: each for each in proposal(allocation, H100, ceiling=amount(900))}
    assert "idle" not in lines
    assert lines[RECOVERY].planned - amount(7) >= 0, (
        "recovery pays for them, and still covers what it has paid"
    )
    assert sum(each.planned for each in lines.values()) == amount(900)
    assert lines[RECOVERY].planned > 0


def test_the_next_attempt_of_a_run_that_has_used_its_cap_is_refused() -> None:
    allocation = spent_so_far(amount(200))
    allocation.past[TRAIN] = [Past(held_ms=11 * HOUR_MS, wall_ms=10 * HOUR_MS)]
    with pytest.raises(BudgetError, match="has used its 10 h of productive time") as refused:
        next_attempt(allocation, H100)
    assert refused.value.field == "run.wall_h"
