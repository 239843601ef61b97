"""What a pool of workers does next: sized by one unit, bounded by deadlines, and never endless.

covers QC-14 QC-16 FLEET-07 FLEET-09, I8 I9, F14 F16
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from raykit.steer import (
    FIRST_S,
    IDLE_S,
    LEAST_S,
    START_S,
    STARTS,
    Action,
    End,
    GiveUp,
    Hired,
    Policy,
    Seen,
    Start,
    Stop,
    Unit,
    Work,
    steer,
    unit_deadline_s,
)

GB = 10**9
UNIT = Unit(took_s=2.0, peak_bytes=2 * GB)
POLICY = Policy()


def there(name: str = "qc-1", **facts: object) -> Hired:
    """A worker that is up."""
    return replace(Hired(name=name, ready=True), **facts)


def does(*actions: Action) -> list[str]:
    """Actions in short."""
    return [f"{type(a).__name__} {getattr(a, 'name', '')}".strip() for a in actions]


# --- how many there are -------------------------------------------------------------------------------------


def test_no_more_workers_than_there_may_be_now() -> None:
    assert does(*steer(POLICY, Seen(takable=9, free_bytes=99 * GB), 0.0)) == ["Start"]
    for worker in (Hired(name="qc-1"), there(working=True, held="unit 0")):
        assert does(*steer(POLICY, Seen(workers=[worker], takable=9, free_bytes=99 * GB), 0.0)) == []


@pytest.mark.parametrize(
    ("slots", "free_bytes", "open_", "there_", "starts"),
    [
        (4, 99 * GB, 9, 1, 3),  # as many as there is room for
        (4, 99 * GB, 2, 1, 2),  # as many as there is work for
        (4, 6 * GB, 9, 1, 2),  # as many as there is memory for: 2.5 GB each
        (4, 2 * GB, 9, 1, 0),
        (4, 2 * GB, 9, 0, 1),  # one, always
        (4, None, 9, 0, 4),  # memory of the machine bounds nothing
        (1, 99 * GB, 9, 1, 0),
    ],
)
def test_sized_by_room_work_and_memory(
    slots: int, free_bytes: int | None, open_: int, there_: int, starts: int
) -> None:
    workers = [there(f"qc-{n}", working=True, held="unit 10") for n in range(there_)]
    seen = Seen(workers=workers, takable=open_, most=slots, unit=UNIT, free_bytes=free_bytes)
    assert does(*steer(POLICY, seen, 0.0)) == ["Start"] * starts


def test_whoever_is_coming_up_takes_one() -> None:
    coming = [Hired(name="qc-2"), there("qc-3", working=True)]
    seen = Seen(workers=[there(working=True, held="unit 10"), *coming], takable=2, most=4, unit=UNIT)
    assert does(*steer(POLICY, seen, 1.0)) == []
    assert does(*steer(POLICY, replace(seen, takable=3), 1.0)) == ["Start"]


def test_the_idle_work_and_those_that_stay_idle_are_let_go_but_one() -> None:
    idle = [there(f"qc-{n}", heard=IDLE_S) for n in (1, 2, 3)]
    seen = Seen(workers=idle, takable=1, most=4, unit=UNIT)
    assert does(*steer(POLICY, seen, IDLE_S)) == ["Work qc-1"]
    assert does(*steer(POLICY, seen, IDLE_S + 1)) == ["Work qc-1", "End qc-2", "End qc-3"]
    assert does(*steer(POLICY, replace(seen, takable=0), IDLE_S + 1)) == ["End qc-2", "End qc-3"]


def test_nothing_starts_that_would_not_be_paid_for() -> None:
    assert steer(POLICY, Seen(takable=3, unit=UNIT, refused=True), 0.0) == ()


# --- who is ended -------------------------------------------------------------------------------------------


def test_how_long_a_unit_may_take() -> None:
    assert unit_deadline_s(POLICY, None) == FIRST_S
    assert unit_deadline_s(POLICY, UNIT) == LEAST_S
    assert unit_deadline_s(POLICY, Unit(took_s=30.0, peak_bytes=1)) == 300.0
    assert unit_deadline_s(Policy(deadline_s=5.0), UNIT) == 5.0


@pytest.mark.parametrize(
    ("worker", "limit_s"),
    [
        (Hired(name="qc-1", at=100.0, heard=100.0), START_S),  # it does not come up
        (there(working=True, held="unit 20", at=100.0, heard=900.0), LEAST_S),  # its unit does not end
        (there(working=True, at=100.0, heard=900.0), LEAST_S),  # it hangs between two units
        (there(at=0.0, heard=100.0), LEAST_S),  # it does not answer
    ],
)
def test_past_its_time_it_is_ended(worker: Hired, limit_s: float) -> None:
    seen = Seen(workers=[worker], unit=UNIT)
    assert steer(POLICY, seen, 100.0 + limit_s) == ()
    (end,) = steer(POLICY, seen, 100.5 + limit_s)
    assert isinstance(end, End)
    assert (end.name, end.kind, end.expected) == ("qc-1", "deadline", False)


def test_a_fresh_process_goes_on_where_one_failed_a_unit() -> None:
    (end, start) = steer(POLICY, Seen(workers=[there(spent="it raised")], takable=1), 0.0)
    assert isinstance(end, End)
    assert (end.expected, end.why) == (True, "it raised")
    assert isinstance(start, Start)


def test_what_a_lost_worker_had_in_hand_has_failed() -> None:
    lost = Seen(workers=[there(held="unit 20", working=True, gone="killed")], takable=1)
    (end,) = steer(POLICY, lost, 0.0)
    assert isinstance(end, End)
    assert (end.kind, end.expected) == ("lost", False)
    assert does(*steer(POLICY, replace(lost, workers=[]), 0.5)) == ["Start"]


def test_nobody_works_beyond_what_is_paid_for() -> None:
    worker = there(working=True, held="unit 20", at=95.0, heard=99.0, paid_until=100.0)
    assert steer(POLICY, Seen(workers=[worker]), 99.9) == ()
    (end,) = steer(POLICY, Seen(workers=[worker]), 100.0)
    assert isinstance(end, End)
    assert end.kind == "infrastructure"


def test_one_whose_lease_is_not_renewed_finishes_what_it_has_and_gets_no_more() -> None:
    worker = there(working=True, held="unit 20", leaving="the line is used up")
    assert steer(POLICY, Seen(workers=[worker], takable=1, refused=True), 1.0) == ()
    (end,) = steer(
        POLICY, Seen(workers=[replace(worker, working=False, held=None)], takable=1, refused=True), 2.0
    )
    assert isinstance(end, End)
    assert end.expected


# --- stopping -----------------------------------------------------------------------------------------------


def test_a_pause_lets_a_unit_be_finished_and_starts_nothing() -> None:
    """A planned pause loses no unit: the idle go at once, the busy when they are done, or when they are overdue."""
    idle, busy = there("qc-1"), there("qc-2", working=True, held="unit 20")
    seen = Seen(workers=[idle, busy], takable=5, most=4, unit=UNIT, stop=Stop(why="paused by mira", by=30.0))
    (end,) = steer(POLICY, seen, 1.0)
    assert isinstance(end, End)
    assert (end.name, end.expected) == ("qc-1", True)
    (end,) = steer(POLICY, replace(seen, workers=[busy]), 30.0)
    assert isinstance(end, End)
    assert (end.name, end.expected, end.kind) == ("qc-2", False, "infrastructure")


def test_it_gives_up_after_three_starts_in_a_row_without_a_unit() -> None:
    why = ["killed", "killed", "no such data"]
    assert does(*steer(POLICY, Seen(takable=1, failed_starts=why[:2]), 0.0)) == ["Start"]
    (last,) = steer(POLICY, Seen(takable=1, failed_starts=why), 0.0)
    assert isinstance(last, GiveUp)
    assert "3 workers in a row" in last.why
    assert "no such data" in last.why


# --- all together, over time --------------------------------------------------------------------------------


@dataclass
class Sim:
    """Workers that do whatever chance says, beside a backlog, steered twice a second."""

    chance: random.Random
    slots: int
    units: int
    tries: int = 3
    now: float = 0.0
    unit: Unit | None = None
    gave_up: str | None = None
    most: int = 0
    ordinal: int = 0
    failed_starts: list[str] = field(default_factory=list)
    workers: dict[str, Hired] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    claims: dict[int, str] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    finishes: dict[str, Callable[[], None]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)

    def free(self) -> list[int]:
        left = [
            n
            for n in range(self.units)
            if n not in self.done and n not in self.claims and self.failures.get(n, 0) < self.tries
        ]
        first = 0 not in self.done
        return ([0] if 0 in left else []) if first else left

    def step(self) -> None:
        self.now += 0.5
        for name in list(self.workers):
            self.live(name)
        seen = Seen(
            workers=tuple(self.workers.values()),
            takable=len(self.free()),
            most=1 if self.unit is None else self.slots,
            unit=self.unit,
            free_bytes=99 * GB,
            failed_starts=tuple(self.failed_starts),
        )
        for action in steer(POLICY, seen, self.now):
            self.act(action)
        self.most = max(self.most, len(self.workers))
        assert self.unit is not None or len(self.workers) <= 1, "more than one before one was measured"

    def act(self, action: Action) -> None:
        match action:
            case Start():
                self.ordinal += 1
                name = f"qc-{self.ordinal}"
                self.workers[name] = Hired(name=name, at=self.now, heard=self.now)
            case Work(name=name):
                self.workers[name] = replace(self.workers[name], working=True, at=self.now)
            case End(name=name, expected=expected):
                worker = self.workers.pop(name)
                if not expected and not self.turns.get(name) and worker.held is None:
                    self.failed_starts.append(action.why)
                for update in [u for u, worker in self.claims.items() if worker == name]:
                    del self.claims[update]
                    self.failures[update] = self.failures.get(update, 0) + 1
            case GiveUp(why=why):
                self.gave_up = why

    def live(self, name: str) -> None:
        """Half a second of one worker: it comes up, takes a unit, ends it, dies, or hangs for ever."""
        worker, luck = self.workers[name], self.chance.random()
        hangs = worker.heard < self.now - 1.0
        if hangs or worker.gone is not None or worker.spent is not None:
            return
        if luck < 0.02:
            self.workers[name] = replace(worker, gone="killed")
        elif luck < 0.03:
            return  # from now on it says nothing
        elif not worker.ready:
            self.workers[name] = replace(worker, ready=luck > 0.5, heard=self.now)
        elif worker.held is not None and luck > 0.5:
            unit = int(worker.held)
            self.claims.pop(unit)
            self.turns[name] = self.turns.get(name, 0) + 1
            self.failed_starts.clear()
            if luck > 0.6:
                self.done.add(unit)
                self.unit = self.unit or Unit(took_s=1.0, peak_bytes=GB)
                self.workers[name] = replace(worker, held=None, at=self.now, heard=self.now)
            else:
                self.failures[unit] = self.failures.get(unit, 0) + 1
                self.workers[name] = replace(worker, held=None, working=False, spent="it failed")
        elif worker.working and worker.held is None:
            free = self.free()
            if free:
                self.claims[free[0]] = name
            self.workers[name] = replace(
                worker, held=str(free[0]) if free else None, working=bool(free), at=self.now, heard=self.now
            )
        else:
            self.workers[name] = replace(worker, heard=self.now)


@pytest.mark.parametrize("seed", range(60))
def test_it_comes_to_an_end_whatever_happens(seed: int) -> None:
    """Workers die and hang at random: every unit is examined or tried as often as it may, by never too many."""
    sim = Sim(random.Random(seed), slots=3, units=25)
    for _ in range(40_000):
        sim.step()
        if not sim.free() and not sim.claims:
            break
        if sim.gave_up:
            break
    assert sim.most <= 3
    assert all(count <= sim.tries for count in sim.failures.values())
    parked = {n for n, count in sim.failures.items() if count >= sim.tries and n not in sim.done}
    if sim.gave_up:
        assert len(sim.failed_starts) >= STARTS
    elif 0 in parked:
        assert sim.done == set()
    else:
        assert sim.done | parked == set(range(25)), f"seed {seed}"
