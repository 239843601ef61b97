"""How far a set is: of each unit, of all, what may be taken next, and by whom."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makecontract import bare_contract

from raykit.defects import signature
from raykit.records import Claim, Conflict, Failure, FailureKind, GenerationContract, Place, Reuse
from raykit.shards.standing import STATUSES, Board, Heard, Said, start_of
from raykit.shards.units import canary_of, unit_id

BROKEN = signature("recipe", "ValueError")
NOW = 1000.0


def contract(units: int = 10, **other: Any) -> GenerationContract:
    return bare_contract(10 * units, **other)


def claim(n: int = 1, *, worker: str = "a", at: float = NOW - 10, deadline_s: float = 60) -> Claim:
    place = Place(host="h", boot="b", pid=1, started=1)
    return Claim(request="0" * 64, n=n, worker=worker, place=place, at=at, deadline_s=deadline_s)


def failure(
    n: int = 1,
    *,
    worker: str = "a",
    at: float = NOW - 5,
    kind: FailureKind = "recipe",
    cause: str = BROKEN,
    message: str = "ValueError: broken",
) -> Failure:
    return Failure(
        request="0" * 64,
        n=n,
        kind=kind,
        signature=cause,
        message=message,
        worker=worker,
        said_by=worker,
        at=at,
    )


def failed(*workers: str, **other: Any) -> Said:
    """A unit at which each of these workers has failed, one after the other."""
    return Said(
        claims=tuple(claim(n, worker=worker) for n, worker in enumerate(workers, start=1)),
        failures=tuple(failure(n, worker=worker, **other) for n, worker in enumerate(workers, start=1)),
    )


HEARD = {"canary_passed", "retried", "given_up", "cleared_at"}


def board(
    published: Any = (), said: Mapping[int, Said] | None = None, *, units: int = 10, **other: Any
) -> Board:
    found = other.pop("of", None) or contract(units)
    heard = {"canary_passed": True, **{name: other.pop(name) for name in HEARD & other.keys()}}
    rules = {"tries": 3, "canary_units": 2, "now": NOW, **other}
    return Board(found, published, said or {}, heard=Heard(**heard), **rules)


def lost(*workers: str) -> Said:
    return failed(*workers, kind="lost", cause=signature("lost", "lost"))


# --- of each unit -------------------------------------------------------------------------------------------


def test_every_unit_has_one_status_and_all_of_them_add_up() -> None:
    said = {
        1: Said(claims=(claim(),)),
        2: lost("a"),
        3: lost("a", "b", "c"),
        4: Said(claims=(claim(at=NOW - 100),)),
        5: lost("a"),
        6: lost("a"),
    }
    found = board([0, 6], said, given_up=[5])
    assert [found.status(unit) for unit in range(10)] == [
        "published",
        "claimed",
        "retrying",
        "parked",
        "retrying",
        "given-up",
        "published",
        *["open"] * 3,
    ]
    assert dict(found.counts) == {
        "open": 3,
        "claimed": 1,
        "retrying": 2,
        "parked": 1,
        "published": 2,
        "given-up": 1,
    }
    assert list(found.counts) == list(STATUSES)
    assert found.open_count == 6
    assert (found.parked, found.given_up) == ((3,), (5,))
    assert not found.complete
    assert board(range(10)).complete


def test_an_attempt_is_under_way_until_its_time_is_over_or_its_process_gone() -> None:
    # covers F28, F16
    said = {1: Said(claims=(claim(at=NOW - 59.5),))}
    assert board(said=said).status(1) == "claimed"
    assert board(said=said, now=NOW + 1).status(1) == "retrying"
    assert board(said=said, over=[(1, 1)]).status(1) == "retrying"
    assert board(said=said, over=[(1, 2), (2, 1)]).status(1) == "claimed"
    late = board(said=said, now=NOW + 1).standing(1)
    assert late.unended == said[1].claims[0]
    assert late.next_n == 2


def test_a_unit_says_what_follows() -> None:
    found = board(said={1: lost("a", "b")}).standing(1)
    assert (found.status, found.next_n, found.unended, found.suspected) == ("retrying", 3, None, False)
    assert found.claim is not None
    assert found.claim.n == 2
    assert [each.n for each in found.counted] == [1, 2]
    fresh = board().standing(4)
    assert (fresh.status, fresh.next_n, fresh.claim) == ("open", 1, None)


def test_what_a_person_has_let_be_tried_again_counts_no_more() -> None:
    made = contract()
    said = {1: lost("a", "b", "c"), 2: lost("a", "b", "c")}
    found = board(said=said, of=made, retried={unit_id(made.digest, 1): 3})
    assert (found.status(1), found.status(2)) == ("open", "parked")
    partly = board(said=said, of=made, retried={unit_id(made.digest, 1): 2})
    assert partly.status(1) == "retrying"
    assert partly.standing(1).next_n == 4


def test_what_was_before_a_repair_counts_no_more() -> None:
    # covers FLEET-04
    said = {unit: failed("a", "b", "c") for unit in range(3, 7)}
    broken = board(range(3), said, units=100)
    assert broken.defect is not None
    repaired = board(range(3), said, units=100, cleared_at=NOW)
    assert repaired.defect is None
    assert repaired.suspected == ()
    assert repaired.counts["open"] == 97


# --- what may be taken --------------------------------------------------------------------------------------


def test_units_are_taken_one_after_the_other_round_the_whole_set() -> None:
    said = {4: Said(claims=(claim(),)), 8: lost("a", "b", "c"), 1: lost("a")}
    found = board([0, 6], said, given_up=[9])
    assert list(found.takable(5)) == [5, 7, 1, 2, 3]
    assert list(found.takable(0)) == [1, 2, 3, 5, 7]
    assert found.takable_count() == 5


def test_only_the_canary_is_taken_before_it_has_passed() -> None:
    # covers FLEET-08
    found = board(canary_passed=False)
    assert list(found.takable(7)) == [0, 1]
    assert found.takable_count() == 2
    assert not found.canary_made
    made = board([0, 1], canary_passed=False)
    assert made.canary_made
    assert list(made.takable(7)) == []
    assert not board([0, 1]).canary_made
    assert list(board(units=1, canary_passed=False).takable(0)) == [0]


def test_the_canary_is_of_units_that_nobody_has_made_before() -> None:
    # covers FLEET-08, FLEET-12
    def reusing(*spans: tuple[int, int]) -> GenerationContract:
        return contract(reuses=Reuse(contract="3" * 64, units=spans))

    assert canary_of(reusing((0, 3), (5, 6)), 3) == (4, 7, 8)
    assert canary_of(reusing((2, 3)), 3) == (0, 1, 4)
    assert canary_of(reusing((1, 9)), 3) == (0,)
    assert canary_of(reusing((0, 9)), 3) == ()
    assert canary_of(contract(), 3) == (0, 1, 2)
    found = board(range(4), of=reusing((0, 3)), canary_passed=False)
    assert list(found.takable(0)) == [4, 5]
    assert (found.made_count, found.published_count) == (0, 4)


def test_nothing_new_is_started_while_a_unit_is_suspected() -> None:
    # covers FLEET-02
    found = board([0], {3: failed("a")}, units=100)
    assert found.suspected == (3,)
    assert list(found.takable(50, name="b")) == [3]
    assert list(found.takable(50, name="a")) == [], "another process has to try"
    assert found.takable_count() == 1
    held = board([0], {3: Said(claims=(claim(), claim(2, worker="b")), failures=(failure(),))}, units=100)
    assert list(held.takable(50, name="c")) == []
    assert held.takable_count() == 0
    assert held.status(3) == "claimed"


def test_bad_luck_suspects_nothing() -> None:
    found = board([0], {3: lost("a")}, units=5)
    assert found.suspected == ()
    assert list(found.takable(0, name="a")) == [1, 2, 3, 4]


def test_a_failure_that_one_unit_has_got_over_holds_nobody() -> None:
    # covers F26
    found = board([0, 7], {3: failed("a", "b"), 7: failed("c")}, units=9)
    assert found.intermittent == {BROKEN}
    assert found.suspected == ()
    assert found.status(3) == "retrying"
    assert list(found.takable(3, name="b")) == [3, 4, 5, 6, 8, 1, 2], (
        "also by who failed at it: nobody takes its place"
    )
    assert board([0, 7], {3: failed("a", "b", "c"), 7: failed("c")}).status(3) == "parked"


def test_a_unit_that_was_given_up_has_got_over_nothing() -> None:
    found = board([0, 7], {3: failed("a"), 7: failed("c")}, given_up=[7])
    assert found.intermittent == frozenset()
    assert found.suspected == (3,)
    assert found.made_count == 1


def test_after_a_parked_unit_one_other_is_tried_first() -> None:
    # covers F25
    said = {3: failed("a", "b")}
    found = board([0], said, units=6)
    assert found.parked == (3,)
    assert found.suspected == ()
    assert list(found.takable(1)) == [4], "one for all workers: the next one"
    assert found.takable_count() == 1
    trying = {**said, 4: Said(claims=(claim(worker="c", at=NOW - 2),))}
    waits = board([0], trying, units=6)
    assert list(waits.takable(1)) == []
    assert waits.takable_count() == 0
    passed = board([0, 4], said, units=6, before=waits)
    assert passed.passed_at == NOW - 2
    assert list(passed.takable(1)) == [1, 2, 5]
    assert list(board([0, 4], said, units=6, passed_at=NOW - 2).takable(1)) == [1, 2, 5]
    assert list(board([0, 4], said, units=6, passed_at=NOW - 6).takable(1)) == [5], "it began before"


def test_two_units_alike_are_tried_further() -> None:
    found = board([0], {3: failed("a", "b"), 4: failed("c")}, units=9)
    assert found.parked == ()
    assert found.suspected == (3, 4)
    assert list(found.takable(0, name="d")) == [3, 4]


@given(st.integers(1, 300), st.integers(0, 10**6), st.sets(st.integers(0, 299)))
def test_takable_goes_round_once(units: int, start: int, published: set[int]) -> None:
    there = [unit for unit in published if unit < units]
    start %= units
    found = board(there, units=units)
    free = list(found.takable(start))
    assert sorted(free) == sorted(set(range(units)) - set(there))
    assert free == sorted(free, key=lambda unit: (unit < start, unit))
    assert found.takable_count() == len(free)


def test_workers_start_apart() -> None:
    starts = [start_of(f"gen-{n}", 1, 10_000) for n in range(64)]
    assert starts == [start_of(f"gen-{n}", 1, 10_000) for n in range(64)]
    assert all(0 <= start < 10_000 for start in starts)
    filled = np.histogram(starts, bins=8, range=(0, 10_000))[0]
    assert filled.min() > 0
    assert start_of("gen-1", 1, 10_000) != start_of("gen-1", 2, 10_000)
    assert start_of("gen-1", 1, 1) == 0


# --- what everyone has to stop for --------------------------------------------------------------------------


def test_a_shared_defect_is_named_with_its_units_and_what_they_said() -> None:
    # covers F25, FLEET-01
    said = {unit: failed("a", "b", "c", message="RuntimeError: NaN in the decoder") for unit in range(3, 7)}
    found = board(range(3), said, units=1000)
    assert found.defect is not None
    assert found.defect.units == (3, 4, 5, 6)
    assert found.defect.words == (
        f"units 3-6 failed alike, 12 times in 3 processes (recipe, signature {BROKEN[:12]}): "
        "RuntimeError: NaN in the decoder"
    )
    assert list(found.takable(0)) == []
    assert found.takable_count() == 0


def test_a_canary_unit_that_comes_to_nothing_stops_everyone() -> None:
    # covers FLEET-08
    assert board(said={0: failed("a", "b")}, canary_passed=False).defect is None
    for said in (failed("a", "b", "c"), lost("a", "b", "c")):
        found = board(said={0: said}, canary_passed=False)
        assert found.defect is not None
        assert found.defect.words.startswith("unit 0 of the canary came to nothing in 3 tries")
        assert list(found.takable(0)) == []
    over = board([1], {0: failed("a", "b", "c"), 1: failed("d")}, canary_passed=False)
    assert over.defect is None, "unit 1 has got over the same"
    assert over.canary_made


def test_many_parked_units_stop_everyone() -> None:
    said = {unit: lost("a", "b", "c") for unit in range(8)}
    found = board(range(8, 79), said, units=1000)
    assert found.defect is not None
    assert found.defect.words.startswith("8 units are parked (lost, signature ")
    assert board(range(8, 80), said, units=1000).defect is None, "a tenth of them is not more than a tenth"
    few = {unit: said[unit] for unit in range(7)}
    assert board((), few, units=1000).defect is None
    mixed = {**few, 7: lost("a", "b", "c"), 8: failed("a", "b", cause=signature("recipe", "KeyError"))}
    other = board((), mixed, units=1000).defect
    assert other is not None
    assert other.signature is None


def test_a_long_message_is_cut() -> None:
    said = {0: failed("a", "b", "c", message="x" * 2000)}
    defect = board(said=said, canary_passed=False).defect
    assert defect is not None
    assert len(defect.message) == 2000
    assert len(defect.words) < 500


def test_two_answers_under_an_exact_contract_stop_everyone() -> None:
    # covers I3
    conflict = Conflict(request="0" * 64, n=1, worker="a", receipt="4" * 64, differs=("sha256",), other={})
    said = {4: Said(claims=(claim(at=NOW - 10),), conflicts=(conflict,))}
    found = board([4], said)
    assert found.disputed == (4,)
    assert found.defect is not None
    assert found.defect.words == "unit 4 had two different answers, under a contract that says it is exact"
    assert board([4], said, of=contract(exact=False)).defect is None
    assert board([4], said, cleared_at=NOW - 1).defect is None, "a person has gone on since"
    unknown = {4: Said(conflicts=(conflict,))}
    assert board([4], unknown, cleared_at=NOW - 1).defect is not None


# --- large sets ---------------------------------------------------------------------------------------------


def test_a_million_units_are_no_matter() -> None:
    of = contract(1_000_000)
    said = {unit: Said(claims=(claim(),)) for unit in range(1, 201, 2)} | {
        unit: lost("a") for unit in range(1001, 1401, 2)
    }
    published = np.arange(0, 1_000_000, 2)
    tracemalloc.start()
    began_s = time.perf_counter()
    found = board(published, said, of=of)
    counts, first = found.counts, list(itertools.islice(found.takable(start_of("gen-1", 1, 1_000_000)), 1000))
    took_s = time.perf_counter() - began_s
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"a board of 1,000,000 units: {1000 * took_s:.1f} ms, {peak_bytes / 1e6:.1f} MB")
    assert (counts["published"], counts["claimed"], counts["retrying"]) == (500_000, 100, 200)
    assert len(set(first)) == 1000
    assert peak_bytes < 64e6


@pytest.mark.parametrize("form", [list, set, tuple, iter, np.array])
def test_published_units_may_be_given_in_any_form(form: Any) -> None:
    assert board(form([3, 4])).published_count == 2
