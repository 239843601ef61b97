"""Whole sets in simulation: workers of one contract that meet flaky, poisonous and broken producers.

A simulated worker does what a real one does: it looks at the board, claims what it may take, comes to a receipt or to a
failure, and is replaced after a failure. Time is made up; nothing sleeps.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from makecontract import bare_contract

from raykit.defects import CHANCE, by_chance, signature
from raykit.records import Claim, Failure, FailureKind, GenerationContract, Place
from raykit.shards.fan import most_workers
from raykit.shards.standing import Board, Defect, Heard, Said, start_of

BROKEN = signature("recipe", "ValueError", ["recipe.py:generate: raise ValueError"])
PLACE = Place(host="h", boot="b", pid=1, started=1)
CANARY = 2


def contract(units: int, **other: object) -> GenerationContract:
    return bare_contract(10 * units, **other)


@dataclass
class Slot:
    """A place for one worker, and the process that is in it."""

    number: int
    process: str
    board: Board | None = None
    passed_at: float = 0.0
    busy: bool = True


@dataclass
class Ended:
    """What came of a simulated set."""

    published: set[int]
    failed: set[int]
    """Units with a failure and without a receipt."""
    defect: Defect | None
    parked: tuple[int, ...]
    attempts: int
    started_after_pause: int
    tries: dict[int, int] = field(default_factory=dict)


Fails = Callable[[int, int, random.Random], bool]
"""Whether an attempt at a unit fails, with so many published."""


class Fleet:
    """One contract, and the workers on it."""

    def __init__(
        self, units: int, workers: int, fails: Fails, *, seed: int, tries: int = 3, in_order: bool = False
    ) -> None:
        self.contract = contract(units)
        self.workers, self.fails, self.tries, self.in_order = workers, fails, tries, in_order
        self.random = random.Random(seed)
        self.published: set[int] = set()
        self.claims: dict[int, list[Claim]] = {}
        self.failures: dict[int, list[Failure]] = {}
        self.canary_passed = False
        self.names = itertools.count()
        self.order = itertools.count()
        self.paused_at: float | None = None
        self.attempts = 0

    def board(self, now: float, slot: Slot | None = None) -> Board:
        said = {
            unit: Said(claims=claims, failures=self.failures.get(unit, ()))
            for unit, claims in self.claims.items()
            if unit not in self.published or unit in self.failures
        }
        return Board(
            self.contract,
            self.published,
            said,
            tries=self.tries,
            canary_units=CANARY,
            heard=Heard(canary_passed=self.canary_passed),
            before=None if slot is None else slot.board,
            passed_at=0.0 if slot is None else slot.passed_at,
            now=now,
        )

    def run(self) -> Ended:
        slots = [Slot(number=n, process=self.name()) for n in range(self.workers)]
        events: list[tuple[float, int, Slot, int | None]] = [
            (0.0, next(self.order), slot, None) for slot in slots
        ]
        now, started_late = 0.0, 0
        while events:
            now, _, slot, unit = heapq.heappop(events)
            if unit is not None:
                self.end(now, slot, unit)
                waiting = [each for each in slots if not each.busy and each is not slot]
                events += [(now, next(self.order), each, None) for each in waiting]
                for each in waiting:
                    each.busy = True
                up_at = (
                    now if slot.board is not None else now + self.random.choice([0.0, self.random.random()])
                )
                heapq.heappush(events, (up_at, next(self.order), slot, None))
                heapq.heapify(events)
                continue
            taken = self.take(now, slot)
            slot.busy = taken is not None
            if taken is not None:
                started_late += self.paused_at is not None
                heapq.heappush(events, (now + self.takes(), next(self.order), slot, taken))
        board = self.board(now)
        return Ended(
            published=self.published,
            failed={unit for unit in self.failures if unit not in self.published},
            defect=board.defect,
            parked=board.parked,
            attempts=self.attempts,
            started_after_pause=started_late,
            tries={unit: len(claims) for unit, claims in self.claims.items()},
        )

    def name(self) -> str:
        return f"gen-{next(self.names)}"

    def takes(self) -> float:
        return self.random.choice([0.02, 1.0]) * (0.5 + self.random.random())

    def take(self, now: float, slot: Slot) -> int | None:
        board = self.board(now, slot)
        slot.board = board
        if board.canary_made and board.defect is None:
            self.canary_passed = True
            board = slot.board = self.board(now, slot)
        if board.defect is not None:
            self.paused_at = now
        most = most_workers(
            canary_passed=self.canary_passed,
            canary_units=CANARY,
            published=len(self.published),
            slots=self.workers,
        )
        if slot.number >= most:
            return None
        start = 0 if self.in_order else start_of(slot.process, 0, board.units)
        unit = next(board.takable(start, name=slot.process), None)
        if unit is None:
            return None
        self.attempts += 1
        claims = self.claims.setdefault(unit, [])
        assert len(claims) < self.tries, "no unit is tried for ever"
        claims.append(
            Claim(
                request="0" * 64,
                n=len(claims) + 1,
                worker=slot.process,
                place=PLACE,
                at=now,
                deadline_s=1000.0,
            )
        )
        return unit

    def end(self, now: float, slot: Slot, unit: int) -> None:
        claim = self.claims[unit][-1]
        if not self.fails(unit, len(self.published), self.random):
            self.published.add(unit)
            slot.passed_at = max(slot.passed_at, claim.at)
            return
        self.failures.setdefault(unit, []).append(failure(claim, now))
        slot.process, slot.board, slot.passed_at = self.name(), None, 0.0


def failure(claim: Claim, at: float, kind: FailureKind = "recipe", cause: str = BROKEN) -> Failure:
    return Failure(
        request=claim.request,
        n=claim.n,
        kind=kind,
        signature=cause,
        message="ValueError: broken",
        worker=claim.worker,
        said_by=claim.worker,
        at=at,
    )


def flaky(share: float) -> Fails:
    return lambda unit, published, draw: draw.random() < share


def after(published_before: int) -> Fails:
    """From so many published units on, every attempt fails."""
    return lambda unit, published, draw: published >= published_before


def from_unit(first: int) -> Fails:
    return lambda unit, published, draw: unit >= first


def poison(*units: int) -> Fails:
    return lambda unit, published, draw: unit in units


def whole_or_paused(ended: Ended, units: int) -> None:
    """A set that nobody has paused has come to its end: every unit is published or parked."""
    if ended.defect is None:
        assert len(ended.published) + len(ended.parked) == units
        assert set(ended.parked) == ended.failed
    assert max(ended.tries.values()) <= 3


def flaky_runs(seeds: range, share: float) -> list[Ended]:
    found = []
    for seed in seeds:
        ended = Fleet(200, (1, 2, 4, 8)[seed % 4], flaky(share), seed=seed).run()
        whole_or_paused(ended, 200)
        found.append(ended)
    return found


def require_never_shared(found: list[Ended], share: float) -> None:
    why = [ended.defect.why for ended in found if ended.defect is not None]
    canary = why.count("canary") / len(found)
    parked = sum(len(ended.parked) for ended in found if ended.defect is None)
    print(f"p = {share}, {len(found)} runs: shared {why.count('shared')}, parked {why.count('parked')}, "
          f"canary {canary:.3f}; {parked / (200 * len(found)):.4f} of all units parked")  # fmt: skip
    assert "shared" not in why, "bad luck is never a defect"
    assert canary <= 1 - (1 - share**3) ** CANARY + 0.04, "a canary unit came to nothing in three tries"


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_a_flaky_defect_is_tried_again_then_parked_and_pauses_nobody(share: float) -> None:
    # covers F26
    found = flaky_runs(range(40), share)
    require_never_shared(found, share)
    assert all(ended.defect is None or ended.defect.why == "canary" for ended in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.3])
def test_a_thousand_flaky_runs(share: float) -> None:
    # covers F26
    found = flaky_runs(range(1000), share)
    require_never_shared(found, share)
    assert sum(ended.defect is not None and ended.defect.why == "parked" for ended in found) <= 2


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("k", [1, 2, 3, 10, 20, 50])
@pytest.mark.parametrize("by", ["number", "time"])
def test_a_real_defect_stops_everyone(by: str, k: int, workers: int) -> None:
    """With four workers or more it wastes one unit of each at most; with fewer, four: one alone may be chance.

    covers F25, FLEET-01, FLEET-02
    """
    fails = from_unit(k) if by == "number" else after(k)
    for seed in range(5):
        ended = Fleet(200, workers, fails, seed=seed, in_order=by == "number").run()
        assert ended.defect is not None, f"seed {seed}"
        assert ended.defect.why == ("canary" if k < CANARY else "shared")
        assert ended.defect.signature == BROKEN
        assert len(ended.failed) <= (1 if k < CANARY else max(4, workers)), f"seed {seed}"
        assert ended.started_after_pause == 0, f"seed {seed}"
        assert "ValueError: broken" in ended.defect.words


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_a_poison_unit_is_parked_and_the_others_go_on(workers: int) -> None:
    # covers F25, I3
    for seed in range(10):
        ended = Fleet(100, workers, poison(30), seed=seed).run()
        whole_or_paused(ended, 100)
        assert ended.defect is None
        assert ended.parked == (30,)
        assert len(ended.published) == 99
        assert ended.tries[30] == 2, "two processes are enough"


def test_a_poison_unit_among_flaky_ones_is_told_from_them() -> None:
    paused = 0
    for seed in range(20):
        fails: Fails = lambda unit, published, draw: unit == 30 or draw.random() < 0.2  # noqa: E731
        ended = Fleet(100, 4, fails, seed=seed).run()
        whole_or_paused(ended, 100)
        paused += ended.defect is not None
        assert ended.defect is not None or 30 in ended.parked
    assert paused <= 3


def test_with_one_try_too_many_parked_units_stop_everyone() -> None:
    ended = Fleet(200, 4, after(20), seed=1, tries=1).run()
    assert ended.defect is not None
    assert ended.defect.why == "parked"
    assert len(ended.failed) <= 8 + 3


@pytest.mark.parametrize("published", [2, 10, 50, 1000, 10**6])
def test_what_more_failures_say_is_never_less(published: int) -> None:
    for again in itertools.product(range(3), repeat=4):
        here = by_chance(again, published=published)
        assert by_chance([*again, 0], published=published) <= here
        assert by_chance([again[0] + 1, *again[1:]], published=published) <= here
        assert by_chance(again, published=published + 1) <= here
    assert by_chance([2, 2, 2, 2], published=published) <= CHANCE
    assert by_chance([1, 0], published=published) > CHANCE or published >= 10**6
