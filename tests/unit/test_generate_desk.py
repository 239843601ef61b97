"""The desk of a pool that makes synthetic rows, without Ray: canary, defects, money, units given up, lost attempts.

covers GEN-13 GEN-14 FLEET-01 FLEET-03 FLEET-08, I3 I6
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from makegen import ToyMake, toy_set
from makeset import SetMaker

from raykit.budget.book import Book
from raykit.errors import BudgetError
from raykit.fleet.generate.desk import HEARS_S, GenerateDesk, Means
from raykit.fleet.generate.launch import spread
from raykit.fleet.generate.money import require_affordable
from raykit.fleet.generate.task import Terms
from raykit.fleet.pool.desk import Lost
from raykit.fleet.pool.lease import Price
from raykit.records import AccountOpened, CanaryPassed, GivenUp, Line, Planned, Reserved, Rows, Settled
from raykit.records import Terms as Terms_
from raykit.shards.units import unit_of
from raykit.store import open_store
from raykit.store.people import pause, read_acts, resume
from raykit.store.place import this_place
from raykit.store.progress import read_progress

SLOTS = 4
OWN = "generate-f00d-1"
"""A worker of the pool that the desk is of."""


@dataclass
class Set:
    """A set and one desk on it."""

    maker: SetMaker
    refuses: BudgetError | None = None
    asked: list[tuple[CanaryPassed, int]] = field(default_factory=list)
    make: ToyMake = field(init=False)

    def __post_init__(self) -> None:
        self.make = ToyMake(self.maker.generation_contract)
        self.desk = self.another()

    def another(self, launch: str = "f00d") -> GenerateDesk:
        terms = Terms(contract=self.maker.generation_contract, teacher="", tries=3, canary_units=2)
        means = Means(slots=SLOTS, price=Price(rate=3_600_000), setup_ms=1000, guess_ms=700)
        return GenerateDesk(self.maker.store, terms, means, launch, afford=self._afford)

    def _afford(self, canary: CanaryPassed, left_permille: int) -> None:
        self.asked.append((canary, left_permille))
        if self.refuses is not None:
            raise self.refuses

    def publish(self, *units: int, worker: str = "generate-dead-1") -> None:
        """As a worker would, with receipts of the toy producer: one of this very pool, or of another launch."""
        for unit in units:
            claim = self.maker.take_unit(unit, worker=worker)
            made = self.make(unit_of(self.maker.generation_contract, unit))
            self.maker.shards.publish(made.receipt, made.data, n=claim.n, worker=claim.worker)

    def round(self, **gained: float) -> list[str]:
        """What a pool does in one round; the lines that are said."""
        self.desk.look()
        lines = [*self.desk.bury({}, ()), *self.desk.write()]
        self.desk._note(gained)
        return lines


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Set]:
    yield Set(toy_set(open_store(str(tmp_path / "store")), canary=False))


def test_the_canary_is_judged_once_its_worker_has_said_what_it_took(work: Set) -> None:
    assert work.round() == []
    assert work.desk.found is not None
    assert (work.desk.found.most, work.desk.found.takable, work.desk.found.open) == (1, 2, 10)
    work.publish(0, 1, worker=OWN)
    assert [line for _ in range(50) for line in work.round()] == []
    assert work.round(**{"units": 2, "unit:0": 400.0, "unit:1": 600.0, "peak_bytes": 5e8}) == []
    (line,) = work.round()
    assert line == (
        "digits/digits: canary passed: 2 units, 8 of 8 rows produced, 8 rows/s, 500 MB; "
        "the whole set takes 4 s to 6 s on one worker, on 4 about 1.25 s"
    )
    (passed,) = read_acts(work.maker.store, "digits").canaries.values()
    assert (passed.took_ms, passed.low_ms, passed.whole_ms, passed.high_ms) == (1000, 4000, 5000, 6000)
    # six seconds; for each of four workers a second of set-up; and once more, with a unit of 0.6 s, elsewhere
    assert passed.worst_cost == 6_000 + 4 * (1_000 + 1_000 + 600)
    assert work.asked == [(passed, 800)]
    assert work.round() == []
    found = work.desk.found
    assert (found.most, found.takable) == (4, 8)
    assert found.unit is not None
    assert (found.unit.took_s, found.unit.peak_bytes) == (0.5, 500_000_000)


def test_a_canary_that_a_killed_launch_has_made_is_judged_by_what_the_producer_took_when_it_was_asked(
    work: Set,
) -> None:
    work.publish(0, 1)
    (line,) = [line for _ in range(3) for line in work.round()]
    assert line == (
        "digits/digits: canary passed: 2 units, 8 of 8 rows produced; not measured: no worker of this launch has told "
        "of them; as the producer was when it was asked, the whole set takes 7 s on one worker, on 4 about 1.75 s"
    )
    (passed,) = read_acts(work.maker.store, "digits").canaries.values()
    assert (passed.took_ms, passed.peak_bytes) == (1400, 0)
    assert work.another("beef").passed is False  # before its first look
    again = work.another("beef")
    again.look()
    assert again.passed


def test_a_worker_that_was_lost_before_it_could_tell_is_not_waited_for(
    work: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.publish(0)
    work.publish(1, worker=OWN)
    assert work.round() == []
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + HEARS_S)
    (line,) = work.round()
    assert "; not measured: " in line


def test_a_canary_out_of_its_bounds_pauses_its_contract(tmp_path: Path) -> None:
    """FLEET-08: which bound, what was found, and what may be."""
    maker = toy_set(open_store(str(tmp_path / "store")), canary=False, bounds={"failed": 0.01})
    work = Set(maker)
    contract = maker.generation_contract
    work.make = ToyMake(contract, poison_rows=(0, 5))
    work.publish(0, 1)
    lines = [line for _ in range(3) for line in work.round()]
    (line,) = lines
    assert line.startswith(
        "digits/digits pauses: the canary of 2 units failed: 2 of 8 rows are failed (25 %), and 1 % may be; "
    )
    assert "another one has wider bounds, or a mended recipe (raykit generate PLAN --changed WHY" in line
    acts = read_acts(maker.store, "digits")
    assert acts.canaries == {}
    (held,) = acts.pauses.values()
    assert (held.pause.scope, held.pause.cause) == (f"contract:{maker.shards.digest}", "defect")
    work.desk.look()
    assert work.desk.found is not None
    assert work.desk.found.stop is not None
    assert work.desk.canary_failed is not None
    assert work.asked == []


def test_a_projection_that_does_not_fit_stops_everyone_before_the_fan_out(work: Set) -> None:
    work.refuses = BudgetError("the rest is projected at 9.00 at worst, and its line has 1.00 left")
    work.publish(0, 1)
    work.round(**{"units": 2, "unit:0": 400.0, "unit:1": 600.0})
    work.round()
    work.round()
    assert work.desk.refused is work.refuses
    assert work.desk.found is not None
    assert work.desk.found.stop == str(work.refuses)


def test_a_defect_pauses_the_contract_and_only_that(work: Set) -> None:
    for n in (1, 2, 3):
        work.maker.fail_unit(0, kind="recipe", worker=f"gen-{n}", message="no such layer")
    (line,) = work.round()
    assert line.startswith(
        "digits/digits pauses: unit 0 of the canary came to nothing in 3 tries (recipe, signature "
    )
    assert line.endswith("no such layer")
    assert work.round() == []
    (held,) = read_acts(work.maker.store, "digits").pauses.values()
    assert held.pause.scope == f"contract:{work.maker.shards.digest}"
    assert work.desk.found is not None
    assert work.desk.found.stop == held.words
    resume(work.maker.store, held.pause.scope, cleared="repaired", person="mira", at=time.time() + 1e9)
    assert work.round() == []
    assert work.desk.found.stop is None


def test_a_pause_of_people_stops_everyone_and_nothing_is_judged(work: Set) -> None:
    work.publish(0, 1)
    pause(work.maker.store, "role:generate", reason="promised", person="mira", at=time.time())
    assert [line for _ in range(3) for line in work.round()] == []
    assert work.desk.found is not None
    assert work.desk.found.stop == "paused by mira: promised"


def test_what_a_person_gave_up_gets_its_receipt(tmp_path: Path) -> None:
    work = Set(toy_set(open_store(str(tmp_path / "store"))))
    work.publish(*(unit for unit in range(10) if unit not in (4, 7)))
    for unit in (4, 7):
        work.maker.park(unit)
    digest = work.maker.shards.digest
    work.maker.tell(
        GivenUp(name="digits", contract=digest, units=(4, 7), reason="a broken scan", person="mira")
    )
    assert work.round() == ["digits/digits: units 4, 7 given up: a broken scan"]
    work.desk.look()
    assert work.desk.board is not None
    assert work.desk.board.complete
    receipt = work.maker.shards.receipt(4)
    assert receipt is not None
    assert (receipt.given_up, receipt.rows) == (
        "a broken scan",
        Rows(requested=4, produced=0, filtered=0, failed=4),
    )
    assert work.round() == []


def test_attempts_of_workers_that_are_gone_are_said_to_be_lost_once(tmp_path: Path) -> None:
    work = Set(toy_set(open_store(str(tmp_path / "store"))))
    maker = work.maker
    maker.place = this_place()  # a process that is there
    for unit, worker in ((2, "gen-1"), (3, "gen-2"), (4, "gen-3")):
        maker.take_unit(unit, worker=worker, deadline_s=1e9)
    work.desk.look()
    assert work.desk.claimants() == {"gen-1", "gen-2", "gen-3"}
    lost = {
        "gen-1": Lost(kind="memory", why="it held 9 GB", at=time.time()),
        "gen-2": Lost(kind="lost", why="x", at=0),
    }
    assert work.desk.bury(lost, ["gen-2"]) == ("digits/digits unit 2, attempt 1: it held 9 GB",)
    work.desk.look()
    assert work.desk.bury(lost, ["gen-2"]) == ()
    listing = maker.shards.listing()
    assert {unit: [each.kind for each in found] for unit, found in listing.failures.items()} == {
        2: ["memory"]
    }


def test_what_is_published_is_never_told_before_it_is(tmp_path: Path) -> None:
    work = Set(toy_set(open_store(str(tmp_path / "store"))))
    assert work.desk.published == 0
    work.publish(0, 1, 2)
    work.round()
    assert work.desk.published == 3
    assert read_progress(work.maker.shards).rows.produced == 12
    work.publish(3, 4)
    work.round(units=2)  # the look has seen both already
    assert work.desk.published == 5
    work.desk._note({"units": 1})
    assert work.desk.published == 6
    assert not work.desk.follow()
    work.desk._note({"units": 4})
    assert work.desk.follow()  # that may have been the last one


# --- money ----------------------------------------------------------------------------------------------------------


def passed(worst_cost: int) -> CanaryPassed:
    return CanaryPassed(
        name="digits",
        contract="0" * 64,
        units=2,
        rows=Rows(requested=8, produced=8, filtered=0, failed=0),
        counts={},
        took_ms=1000,
        peak_bytes=0,
        whole_ms=5000,
        low_ms=4000,
        high_ms=6000,
        worst_cost=worst_cost,
    )


@pytest.mark.parametrize(
    ("worst", "left", "match", "remedy"),
    [
        (2.0, 1000, None, None),
        (4.0, 500, None, None),
        (4.0, 1000, "its line has 2.00 left", "--move recovery:generate=2.00 --reason"),
        (9.5, 1000, "its line has 2.00 left", "--move recovery:generate=7.50 --ceiling 10.50 --reason"),
    ],
)
def test_what_is_projected_has_to_fit_the_line_and_the_ceiling(
    worst: float, left: int, match: str | None, remedy: str | None
) -> None:
    book = money_of(ceiling=9.0, generate=2.0, spent=1.0)
    canary = passed(int(worst * 1e6))
    if match is None:
        require_affordable(book, "a", None, canary, left_permille=left)
        return
    with pytest.raises(BudgetError, match=match) as found:
        require_affordable(book, "a", None, canary, left_permille=left)
    assert remedy is not None
    assert remedy in str(found.value.remedy)


def money_of(*, ceiling: float, generate: float, spent: float) -> Book:
    """A book in which so much of the plan's money is spent on training."""
    book, micro = Book(), 1_000_000
    lines = {"train": ("target", spent), "generate": ("target", generate)}
    rest = ceiling - spent - generate
    planned = Planned(
        experiment="a",
        plan="0" * 64,
        decision="0" * 64,
        ceiling=int(ceiling * micro),
        lines=(
            *(Line(line=n, purpose=why, planned=int(much * micro)) for n, (why, much) in lines.items()),  # type: ignore[arg-type]
            Line(line="recovery", purpose="recovery", planned=int(rest * micro)),
        ),
        margin_permille=1000,
        expected=0,
        expected_ms=0,
    )
    terms = Terms_(
        accelerators=1, rate=int(spent * micro), source="a test", margin_permille=1000, time_ms=3_600_000
    )
    reserved = Reserved(
        lease="one", experiment="a", line="train", worst=int(spent * micro), terms=terms, charged=0, below=0
    )
    settled = Settled(
        lease="one", cost=int(spent * micro), time_ms=3_600_000, reason="completed", how="measured"
    )
    for event in (AccountOpened(account="a", unit="usd", why="test"), planned, reserved, settled):
        book.apply(event, 0.0)
    return book


@pytest.mark.parametrize(
    ("slots", "gpus", "asked", "found"),
    [
        (3, 0, False, (3, 0.0)),
        (15, 1, False, (1, 1.0)),
        (15, 8, False, (8, 1.0)),
        (4, 8, True, (4, 1.0)),
        (3, 1, True, (3, 0.333)),
    ],
)
def test_each_worker_has_an_accelerator_of_its_own_unless_somebody_says_otherwise(
    slots: int, gpus: int, asked: bool, found: tuple[int, float]
) -> None:
    assert spread(slots, gpus, asked=asked) == found
