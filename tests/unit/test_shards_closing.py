"""The accounts of a set: bad rows and their bounds, duplicates, the manifest, the canary and what it projects."""

from __future__ import annotations

import base64
import itertools
import random
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makecontract import bare_contract
from scipy.stats import binom

from raykit.errors import CorruptError, GateError
from raykit.records import (
    CanaryPassed,
    GenerationContract,
    Rows,
    SetFinding,
    SetManifest,
    UnitReceipt,
)
from raykit.shards import bounds
from raykit.shards.closing import Account, close, contents_of, duplicates, percent, shortfall
from raykit.shards.fan import CanaryFailed, canary_of, most_workers, projected
from raykit.shards.units import unit_of, units_of


def contract(rows: int = 100, unit_rows: int = 10, **other: Any) -> GenerationContract:
    return bare_contract(rows, unit_rows, **{"bounds": {"duplicates": 0.1, "failed": 0.1}, **other})


def contents(rows: Sequence[int]) -> str:
    return base64.b64encode(b"".join(struct.pack("<Q", row) for row in rows)).decode()


def receipt(of: GenerationContract, number: int, **other: Any) -> UnitReceipt:
    """Of a unit whose rows are all produced, and all different; `failed` and `filtered` rows are fewer of them."""
    unit = unit_of(of, number)
    failed: Mapping[str, int] = other.pop("failed", {})
    filtered: Mapping[str, int] = other.pop("filtered", {})
    produced = unit.rows - sum(failed.values()) - sum(filtered.values())
    return UnitReceipt(
        **{
            "contract": of.digest,
            "unit": number,
            "rows": Rows(
                requested=unit.rows,
                produced=produced,
                filtered=sum(filtered.values()),
                failed=sum(failed.values()),
            ),
            "failed": failed,
            "filtered": filtered,
            "contents": contents(range(unit.first, unit.first + produced)),
            "sha256": f"{number:064x}",
            "size_bytes": 1000 + number,
            **other,
        }
    )


def all_of(of: GenerationContract) -> list[UnitReceipt]:
    return [receipt(of, number) for number in range(units_of(of))]


# --- chance -------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.integers(1, 10**7), st.floats(1e-9, 1 - 1e-9), st.floats(-12, 12))
def test_the_tail_is_that_of_the_binomial(of: int, share: float, deviations: float) -> None:
    found = round(of * share + deviations * (of * share * (1 - share)) ** 0.5)
    found = min(max(found, 0), of)
    wanted = float(binom.sf(found - 1, of, share))
    assert bounds.tail(found, of, share) == pytest.approx(wanted, rel=1e-6, abs=1e-280)


@given(st.integers(0, 40), st.floats(0, 1))
def test_the_tail_falls_from_one(of: int, share: float) -> None:
    tails = [bounds.tail(found, of, share) for found in range(of + 1)]
    assert tails[0] == 1
    assert all(0 <= b <= a + 1e-12 for a, b in itertools.pairwise(tails))
    if of:
        assert tails[-1] == pytest.approx(share**of, rel=1e-9, abs=1e-300)


def test_very_small_tails_are_numbers() -> None:
    assert bounds.tail(600, 1000, 0.01) == 0 or bounds.tail(600, 1000, 0.01) < 1e-300
    assert bounds.tail(100, 1000, 0.01) == pytest.approx(float(binom.sf(99, 1000, 0.01)), rel=1e-9)
    assert bounds.tail(1, 10**9, 1e-9) == pytest.approx(1 - (1 - 1e-9) ** (10**9), rel=1e-6)
    for wrong in ((-1, 10, 0.5), (11, 10, 0.5), (1, 10, 1.5), (1, 10, float("nan"))):
        with pytest.raises(ValueError, match="of 10"):
            bounds.tail(*wrong)


def test_one_row_breaks_a_bound_of_nothing() -> None:
    assert bounds.broken(1, 10**6, 0.0, bounds.UNIT_LEVEL)
    assert not bounds.broken(0, 10**6, 0.0, bounds.UNIT_LEVEL)
    assert not bounds.broken(10, 10, 1.0, bounds.CANARY_LEVEL)
    assert not bounds.broken(0, 0, 0.0, bounds.UNIT_LEVEL)


def test_no_good_unit_fails_by_chance() -> None:
    seed = 20261130
    draw = np.random.default_rng(seed)
    print(f"seed {seed}")
    found = draw.binomial(100, 0.05, size=20_000)
    assert not any(bounds.broken(int(each), 100, 0.05, bounds.UNIT_LEVEL) for each in set(found.tolist()))
    bad = draw.binomial(100, 0.5, size=1000)
    assert all(bounds.broken(int(each), 100, 0.05, bounds.UNIT_LEVEL) for each in set(bad.tolist()))


# --- bounds -------------------------------------------------------------------------------------------------


def rows(produced: int, filtered: int = 0, failed: int = 0) -> Rows:
    return Rows(requested=produced + filtered + failed, produced=produced, filtered=filtered, failed=failed)


def test_each_kind_is_of_the_rows_that_it_can_be_of() -> None:
    of = rows(80, 15, 5)
    failed, counts = {"nonfinite": 3, "ValueError": 2}, {"truncated": 7, "failed": 99}
    found = {
        kind: bounds.found_in(kind, of, failed, counts)
        for kind in ("failed", "nonfinite", "filtered", "truncated", "empty")
    }
    assert found == {
        "failed": (5, 100),
        "nonfinite": (3, 100),
        "filtered": (15, 100),
        "truncated": (7, 80),
        "empty": (0, 80),
    }


def test_a_unit_breaks_a_bound_only_beyond_chance() -> None:
    kept = {"truncated": 0.05, "nonfinite": 0.0}
    bounds.require_unit(kept, rows(100), {}, {"truncated": 15})
    with pytest.raises(GateError) as caught:
        bounds.require_unit(kept, rows(100), {}, {"truncated": 25})
    assert (caught.value.field, caught.value.value) == ("bounds.truncated", 25)
    assert caught.value.message == "25 of 100 rows are truncated (25 %), and 5 % may be"
    with pytest.raises(GateError) as caught:
        bounds.require_unit(kept, rows(99, failed=1), {"nonfinite": 1}, {})
    assert caught.value.field == "bounds.nonfinite"
    bounds.require_unit(kept, rows(99, failed=1), {"ValueError": 1}, {})


def test_a_set_is_held_to_its_bounds_plainly() -> None:
    kept = {"truncated": 0.05, "failed": 0.1}
    assert bounds.findings_of(kept, rows(90, failed=10), {}, {"truncated": 4}) == ()
    found = bounds.findings_of(kept, rows(89, failed=11), {}, {"truncated": 5})
    assert found == (
        SetFinding(kind="failed", found=11, of=100, bound=0.1),
        SetFinding(kind="truncated", found=5, of=89, bound=0.05),
    )


# --- accounts -----------------------------------------------------------------------------------------------


def test_a_complete_set_is_closed() -> None:
    # covers GEN-10, GEN-11
    of = contract(rows=95)
    made = all_of(of)
    manifest = close(of, made, scripted=True)
    assert (manifest.rows.requested, manifest.rows.produced) == (95, 95)
    assert manifest.counts == {"duplicates": 0, "failed": 0}
    assert manifest.findings == ()
    assert manifest.scripted
    assert manifest.size_bytes == sum(1000 + number for number in range(10))
    assert manifest.units.receipts == tuple(each.digest for each in made)
    assert manifest.units.produced == (*[10] * 9, 5)
    shuffled = random.Random(7).sample(made, k=len(made))
    assert close(of, iter(shuffled), scripted=True).to_bytes() == manifest.to_bytes()
    assert SetManifest.from_bytes(manifest.to_bytes(), "it") == manifest


def test_a_set_with_rows_that_nobody_accounts_for_stays_open() -> None:
    # covers GEN-13, I3
    of = contract(rows=95)
    made = [each for each in all_of(of) if each.unit not in (2, 3, 9)]
    with pytest.raises(GateError) as caught:
        close(of, made, scripted=False)
    assert caught.value.message == ("25 of 95 rows of demo/digits are not accounted for: units 2-3, 9 of 10")
    assert caught.value.field == "units"


def test_a_unit_counts_once() -> None:
    # covers I3
    of = contract()
    made = all_of(of)
    with pytest.raises(GateError, match="is not the first one of that unit"):
        close(of, [*made, made[3]], scripted=False)


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"contract": "9" * 64}, "is of contract 999999999999, not"),
        ({"unit": 10}, "is of none of its 10 units"),
        ({"rows": rows(9), "contents": contents(range(9))}, "accounts for 9 rows, and the unit has 10"),
    ],
)
def test_a_receipt_of_something_else_is_refused(other: dict[str, Any], match: str) -> None:
    of = contract()
    with pytest.raises(GateError, match=match):
        Account(of).add(
            receipt(of, 3, **other) if "unit" not in other else receipt(of, 3).model_copy(update=other)
        )


@pytest.mark.parametrize("told", [contents(range(9)), "AAA=", "not base 64", "AAAAAAAAAAA"])
def test_contents_that_are_not_those_of_the_rows_are_corrupt(told: str) -> None:
    with pytest.raises(CorruptError):
        contents_of(receipt(contract(), 3, contents=told))


def test_duplicates_are_counted_over_the_whole_set() -> None:
    of = contract(rows=30, bounds={"failed": 0.1})
    made = [
        receipt(of, 0, contents=contents([1, 1, 2, 3, 4, 5, 6, 7, 8, 9])),
        receipt(of, 1, contents=contents([1, 20, 21, 22, 23, 24, 25, 26, 27, 28])),
        receipt(of, 2, failed={"ValueError": 9}, contents=contents([28])),
    ]
    manifest = close(of, made, scripted=False)
    assert manifest.counts == {"duplicates": 3, "failed": 9}, "though the plan has no bound for duplicates"
    assert manifest.findings == (SetFinding(kind="failed", found=9, of=30, bound=0.1),)
    untold = [*made[:2], made[2].model_copy(update={"contents": ""})]
    assert close(of, untold, scripted=False).counts == {"failed": 9}


@given(st.lists(st.lists(st.integers(0, 30), max_size=12), max_size=12))
def test_a_row_that_equals_an_earlier_one_counts_once(units: list[list[int]]) -> None:
    seen: set[int] = set()
    twice = 0
    for row in (row for unit in units for row in unit):
        twice += row in seen
        seen.add(row)
    assert duplicates(base64.b64decode(contents(unit)) for unit in units) == twice


@given(st.data())
def test_every_requested_row_is_accounted_for(data: st.DataObject) -> None:
    # covers I3
    total, unit_rows = data.draw(st.integers(1, 80)), data.draw(st.integers(1, 20))
    of = contract(rows=total, unit_rows=unit_rows)
    made = []
    for number in range(units_of(of)):
        left = unit_of(of, number).rows
        failed = data.draw(st.integers(0, left))
        filtered = data.draw(st.integers(0, left - failed))
        made.append(
            receipt(
                of,
                number,
                failed={"ValueError": failed} if failed else {},
                filtered={"short": filtered} if filtered else {},
            )
        )
    account = Account(of)
    for each in made:
        account.add(each)
    found = account.tally()
    account.require_all()
    assert account.missing.size == 0
    assert found.rows.requested == total == found.rows.produced + found.rows.filtered + found.rows.failed
    manifest = close(of, made, scripted=False)
    assert manifest.rows == found.rows
    assert sum(manifest.units.produced) == manifest.rows.produced
    assert sum(manifest.failed.values()) == manifest.rows.failed
    assert manifest.counts == found.counts


def test_a_unit_that_was_given_up_or_reused_is_counted_as_such() -> None:
    # covers GEN-12
    of = contract(rows=20)
    account = Account(of)
    account.add(receipt(of, 0, failed={"given up": 10}, given_up="poison", contents=""))
    account.add(receipt(of, 1, reused="8" * 64))
    found = account.tally()
    assert (found.units, found.given_up, found.reused) == (2, 1, 1)
    assert found.rows == rows(10, failed=10)
    assert found.counts == {"duplicates": 0, "failed": 10}


def test_ten_million_rows_are_told_as_they_are() -> None:
    """A set that fell short stays so: its accounts have no act that adds a row.

    covers GOLD-20
    """
    of = contract(rows=10_000_000, unit_rows=100_000)
    lacking = {7: 400, 42: 45}
    made = [
        receipt(of, number, failed={"refused": lacking[number]} if number in lacking else {}, contents="")
        for number in range(units_of(of))
    ]
    manifest = close(of, made, scripted=False)
    assert manifest.rows.produced == 9_999_555
    assert manifest.rows.requested == 10_000_000
    assert shortfall(manifest.rows) == "445 of 10,000,000 rows fell short (0.00445 %)"
    refill = receipt(of, 7)
    with pytest.raises(GateError, match="is not the first one of that unit"):
        close(of, [*made, refill], scripted=False)
    with pytest.raises(GateError, match="is of none of its 100 units"):
        close(of, [*made, refill.model_copy(update={"unit": 100})], scripted=False)


@pytest.mark.parametrize(
    ("part", "of", "text"),
    [
        (445, 10_000_000, "0.00445 %"),
        (9_999_555, 10_000_000, "99.99555 %"),
        (0, 10, "0 %"),
        (0, 0, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33.3 %"),
        (42, 1000, "4.2 %"),
        (1, 1000, "0.1 %"),
        (1, 2000, "0.05 %"),
        (999, 1000, "99.9 %"),
        (1, 3_000_000, "0.0000333 %"),
        (29_999_999, 30_000_000, "99.99999667 %"),
    ],
)
def test_a_share_is_never_rounded_to_nothing_or_all(part: int, of: int, text: str) -> None:
    assert percent(part, of) == text


def test_a_full_set_fell_short_of_nothing() -> None:
    assert shortfall(rows(10)) == "all 10 rows were produced"
    assert shortfall(rows(0, failed=1)) == "1 of 1 row fell short (100 %)"


def test_a_hundred_thousand_receipts_are_added_up_quickly() -> None:
    of = contract(rows=1_000_000, unit_rows=10)
    first = receipt(of, 0)
    made = [
        first.model_copy(update={"unit": number, "contents": contents(range(10 * number, 10 * number + 10))})
        for number in range(100_000)
    ]
    began_s = time.perf_counter()
    account = Account(of)
    for each in made:
        account.add(each)
    found = account.tally()
    took_s = time.perf_counter() - began_s
    print(f"100,000 receipts of 1,000,000 rows: {took_s:.2f} s")
    assert found.rows.produced == 1_000_000
    assert found.counts["duplicates"] == 0


# --- the canary ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "published", "slots", "most"),
    [
        (False, 0, 64, 1),
        (False, 2, 64, 1),
        (False, 0, 0, 0),
        (True, 2, 64, 8),
        (True, 9, 64, 8),
        (True, 10, 64, 64),
        (True, 2, 4, 4),
        (True, 1000, 4, 4),
    ],
)
def test_one_then_eight_then_all(passed: bool, published: int, slots: int, most: int) -> None:
    # covers FLEET-08, GEN-14
    assert most_workers(canary_passed=passed, canary_units=2, published=published, slots=slots) == most


def judged(of: GenerationContract, made: Sequence[UnitReceipt], took: Mapping[int, int], **other: Any) -> Any:
    terms = {"slots": 4, "rate": 1_790_000, "margin_permille": 1050, "setup_ms": 60_000, "canary_units": 2}
    return canary_of(of, made, took, 5_000_000, **{**terms, **other})


def test_a_canary_projects_time_and_cost_with_its_uncertainty() -> None:
    # covers GEN-08, GEN-07, GEN-14
    of = contract(rows=1000)
    found = judged(of, [receipt(of, 0), receipt(of, 1)], {0: 2000, 1: 3000})
    assert isinstance(found, CanaryPassed)
    assert (found.units, found.rows, found.took_ms, found.peak_bytes) == (2, rows(20), 5000, 5_000_000)
    assert (found.low_ms, found.whole_ms, found.high_ms) == (200_000, 250_000, 300_000)
    # four workers at the slowest pace; each sets up once (60 s) and makes its first unit twice (63 s): 792 s of 1.79
    # an hour, and the margin
    assert found.worst_cost == pytest.approx(792 / 3600 * 1.79e6 * 1.05, abs=1)
    assert judged(of, [receipt(of, 0)], {0: 2000}, rate=0).worst_cost == 0


def test_a_shorter_last_unit_is_measured_by_its_rows() -> None:
    of = contract(rows=15)
    found = projected(of, {0: 1000, 1: 500})
    assert (found.low_ms, found.whole_ms, found.high_ms) == (1500, 1500, 1500)
    with pytest.raises(ValueError, match="measured"):
        projected(of, {})


def test_a_canary_with_too_many_bad_rows_fails() -> None:
    # covers FLEET-08
    of = contract(rows=1000, unit_rows=100)
    made = [receipt(of, 0, failed={"ValueError": 20}), receipt(of, 1, failed={"ValueError": 20})]
    for each in made:
        bounds.require_unit(of.bounds, each.rows, each.failed, each.counts)
    found = judged(of, made, {0: 1000, 1: 1000})
    assert isinstance(found, CanaryFailed)
    assert found.words == "the canary of 2 units failed: 40 of 200 rows are failed (20 %), and 10 % may be"


def test_duplicates_between_canary_units_are_seen() -> None:
    of = contract(rows=1000)
    found = judged(of, [receipt(of, 0), receipt(of, 1, contents=receipt(of, 0).contents)], {0: 1, 1: 1})
    assert isinstance(found, CanaryFailed)
    assert [each.kind for each in found.findings] == ["duplicates"]


def test_a_canary_that_came_to_no_row_fails() -> None:
    of = contract(rows=1000, bounds={"duplicates": 0.1})
    made = [receipt(of, unit, filtered={"short": 10}) for unit in (0, 1)]
    found = judged(of, made, {0: 1, 1: 1})
    assert isinstance(found, CanaryFailed)
    assert found.words == "the canary of 2 units failed: none of 20 rows was produced"


def test_only_the_canary_is_judged() -> None:
    of = contract(rows=1000)
    made = [receipt(of, 0), receipt(of, 1, failed={"given up": 10}, given_up="poison"), receipt(of, 2)]
    found = judged(of, made, {0: 1000})
    assert isinstance(found, CanaryPassed)
    assert (found.units, found.rows) == (1, rows(10))
