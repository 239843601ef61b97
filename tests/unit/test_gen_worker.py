"""What a worker on a synthetic set takes, what it leaves alone, what it says of failures, and when it holds."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from makegen import AT, ToyMake, drive, make_teacher, manifest_of, toy_set, work, worker
from makerun import ELSEWHERE
from makeset import SetMaker

from raykit.errors import StoreUnavailableError
from raykit.records import Claim, Failure, GivenUp, Place, Retried
from raykit.shards.units import Unit, unit_id, units_of
from raykit.store import layout
from raykit.store.candidates import read_candidate_registry
from raykit.store.generation import Shards
from raykit.store.people import cancel, pause, read_acts, resume
from raykit.store.place import this_place
from raykit.testing import MemoryStore
from raykit.work import gen_worker
from raykit.work.generated import Made
from raykit.work.puller import Hand, Turn


@pytest.fixture(autouse=True)
def _listens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of a test there is no time."""
    for name in ("LISTEN_S", "HEED_S"):
        monkeypatch.setattr(gen_worker, name, 0.0)
    monkeypatch.setattr(gen_worker, "SHARE", float("inf"))


@pytest.fixture
def maker() -> SetMaker:
    """Ten units of four rows, none of them made."""
    return toy_set(MemoryStore())


def kinds(turns: list[Turn]) -> list[str]:
    return [turn.kind for turn in turns]


def units(turns: list[Turn]) -> list[int]:
    return [int(turn.what.removeprefix("unit ")) for turn in turns if turn.what is not None]


def objects(maker: SetMaker) -> dict[str, bytes]:
    assert isinstance(maker.store, MemoryStore)
    return dict(maker.store.objects)


def failures(maker: SetMaker) -> dict[int, tuple[Failure, ...]]:
    return dict(maker.shards.listing().failures)


def told(maker: SetMaker) -> dict[int, list[tuple[str, str, str]]]:
    """By unit: kind, worker and who said so of every failure."""
    return {
        unit: [(each.kind, each.worker, each.said_by) for each in found]
        for unit, found in failures(maker).items()
    }


def published(maker: SetMaker) -> list[int]:
    return [int(unit) for unit in maker.shards.published()]


def dead_place() -> Place:
    """A process of this machine that has ended."""
    here = this_place()
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait(timeout=30)
    return Place(host=here.host, boot=here.boot, pid=process.pid, started=here.started + 1)


def claim(maker: SetMaker, unit: int, *, at: float = AT, place: Place = ELSEWHERE, **how: Any) -> Claim:
    found = maker.shards.claim(
        unit, how.get("n", 1), worker="other", place=place, at=at, deadline_s=how.get("deadline_s", 600.0)
    )
    assert found is not None
    return found


# --- all of it, once ----------------------------------------------------------------------------------------


def test_every_unit_is_made_once(maker: SetMaker) -> None:
    # covers GEN-11, GEN-15, I3
    make = ToyMake(maker.generation_contract)
    turns = work(worker(maker, make=make))
    assert kinds(turns) == ["published"] * 10 + ["nothing"]
    assert sorted(make.seen) == list(range(10)) and sorted(units(turns)) == list(range(10))
    manifest = manifest_of(maker.store, maker.generation_contract)
    assert manifest.rows.plain() == {"requested": 40, "produced": 40, "filtered": 0, "failed": 0}


def test_a_complete_set_is_left_alone(maker: SetMaker) -> None:
    # covers I11, GEN-12
    work(worker(maker))
    before = objects(maker)
    again = ToyMake(maker.generation_contract)
    assert kinds(work(worker(maker, "gen-2", make=again))) == ["nothing"]
    assert again.seen == [] and objects(maker) == before


def test_workers_share_a_set(maker: SetMaker) -> None:
    made = drive(maker, 3)
    assert sorted(unit for turns in made for unit in units(turns)) == list(range(10))
    assert all(len(units(turns)) >= 2 for turns in made)


def test_a_worker_goes_on_where_others_have_stopped(maker: SetMaker) -> None:
    # covers FLEET-05, FLEET-06, GEN-12
    for _ in range(3):
        worker(maker, "first").turn()
    done = published(maker)
    make = ToyMake(maker.generation_contract)
    work(worker(maker, "second", make=make))
    assert sorted([*done, *make.seen]) == list(range(10))


def test_only_the_canary_is_made_before_it_has_passed() -> None:
    # covers FLEET-08, GEN-14
    maker = toy_set(MemoryStore(), canary=False)
    one = worker(maker)
    turns = work(one)
    assert sorted(units(turns)) == [0, 1]
    assert (turns[-1].kind, turns[-1].detail) == (
        "waiting",
        "the canary is made, and nobody has judged it yet",
    )
    maker.canary()
    assert sorted(units(work(one))) == list(range(2, 10))


def test_what_it_has_come_to_is_told(maker: SetMaker) -> None:
    # covers GEN-13, DISP-09
    contract = maker.generation_contract
    make = ToyMake(contract, poison_rows=(5,), filtered_rows=(9, 10))
    one = worker(maker, make=make)
    seen: list[Hand | None] = []
    make.before = lambda unit: seen.append(one.hand)
    tallies = []
    for _ in range(10):
        one.turn()
        tallies.append(dict(one.tally))
    last = tallies[-1]
    assert {name: last[name] for name in ("units", "produced", "filtered", "failed", "peak_bytes")} == {
        "units": 10,
        "produced": 37,
        "filtered": 2,
        "failed": 1,
        "peak_bytes": 1000,
    }
    assert 0 <= last["made_s"] <= last["all_s"]
    assert {name for name in last if name.startswith("unit:")} == {"unit:0", "unit:1"}
    for before, after in itertools.pairwise(tallies):
        assert all(after[name] >= value for name, value in before.items()), "each only grows"
    assert one.hand is None
    assert [(hand.what, hand.n, hand.unit) for hand in seen if hand is not None] == [
        (f"unit {unit}", 1, unit_id(contract.digest, unit)) for unit in make.seen
    ]


def test_a_picture_of_the_first_rows_is_kept(maker: SetMaker) -> None:
    class Draws(ToyMake):
        def __call__(self, unit: Unit) -> Made:
            made = super().__call__(unit)
            return Made(receipt=made.receipt, data=made.data, picture=b"PNG" if unit.number == 0 else None)

    work(worker(maker, make=Draws(maker.generation_contract)))
    assert maker.store.get(layout.generation_picture("digits", "digits", "samples.png")) == b"PNG"


# --- pauses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["contract", "role:generate", "experiment:digits", "all"])
def test_a_pause_holds_before_the_next_unit(scope: str, maker: SetMaker) -> None:
    # covers FLEET-02
    one = worker(maker)
    one.turn()
    scope = f"contract:{maker.shards.digest}" if scope == "contract" else scope
    pause(maker.store, scope, reason="H100s promised to inference", person="mira", at=AT)
    turn = one.turn()
    assert (turn.kind, turn.detail) == ("paused", "paused by mira: H100s promised to inference")
    assert len(published(maker)) == 1
    resume(maker.store, scope, cleared="they are back", person="mira", at=AT)
    assert one.turn().kind == "published"


@pytest.mark.parametrize("scope", ["role:qc", "role:train", f"contract:{'0' * 64}"])
def test_what_is_paused_elsewhere_holds_nobody(scope: str, maker: SetMaker) -> None:
    # covers FLEET-03
    pause(maker.store, scope, reason="r", person="mira", at=AT)
    assert worker(maker).turn().kind == "published"


def test_what_is_called_the_same_elsewhere_is_another_thing(maker: SetMaker) -> None:
    """covers FLEET-10: two experiments have a set of one name; whoever ends one of them has not meant the other."""
    other = toy_set(maker.store, experiment="digits-again")
    assert other.generation_contract.name == maker.generation_contract.name
    cancel(maker.store, "digits-again", reason="the question is answered", person="mira", at=AT)
    assert worker(maker).turn().kind == "published"
    assert worker(other).turn().kind == "paused"


def test_a_cancelled_experiment_makes_nothing(maker: SetMaker) -> None:
    cancel(maker.store, "digits", reason="the question is answered", person="mira", at=AT)
    assert worker(maker).turn().detail == "cancelled by mira: the question is answered"


# --- what others have in hand -------------------------------------------------------------------------------


def test_what_another_process_is_at_is_left_to_it(maker: SetMaker) -> None:
    claim(maker, 4)
    turns = work(worker(maker))
    assert sorted(units(turns)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert (turns[-1].kind, turns[-1].detail) == ("nothing", "units in other hands: 1; parked: 0")
    assert failures(maker) == {}


def test_an_attempt_whose_process_is_gone_is_over(maker: SetMaker) -> None:
    # covers F15, I10
    claim(maker, 4, place=dead_place())
    assert sorted(units(work(worker(maker)))) == list(range(10))
    assert told(maker) == {4: [("lost", "other", "gen-1")]}


def test_an_attempt_past_its_deadline_is_over(maker: SetMaker) -> None:
    # covers F16, F28
    claim(maker, 4, at=AT - 601.0)
    assert sorted(units(work(worker(maker)))) == list(range(10))
    assert told(maker) == {4: [("deadline", "other", "gen-1")]}
    assert failures(maker)[4][0].message == "nothing came of it in 600 s"


def test_a_unit_that_was_lost_too_often_is_parked(maker: SetMaker) -> None:
    for n in (1, 2, 3):
        maker.fail_unit(4, kind="lost", worker=f"gone-{n}")
    turns = work(worker(maker))
    assert sorted(units(turns)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert turns[-1].detail == "units in other hands: 0; parked: 1"
    maker.tell(Retried(request=unit_id(maker.shards.digest, 4), after=3, reason="more memory", person="mira"))
    assert units(work(worker(maker, "next"))) == [4]


def test_others_that_are_faster_are_found_out_by_their_claims(maker: SetMaker) -> None:
    # covers I3
    contract = maker.generation_contract
    slow = worker(maker, "slow", make=ToyMake(contract))
    slow.turn()
    work(worker(maker, "fast"))
    turns = work(slow)
    assert kinds(turns) == ["nothing"]
    assert all(len(found) == 1 for found in maker.shards.listing().claims.values())


def test_the_board_is_listed_seldom(maker: SetMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    listing = maker.shards.listing
    monkeypatch.setattr(type(maker.shards), "listing", lambda self: looked.append(1) or listing())
    work(worker(maker))
    assert len(looked) == 2, "at first, and once nothing is left"


def test_units_that_a_person_gave_up_are_not_made(maker: SetMaker) -> None:
    maker.park(4)
    maker.tell(
        GivenUp(
            name="digits",
            contract=maker.shards.digest,
            units=(4,),
            reason="its input is damaged",
            person="mira",
        )
    )
    assert sorted(units(work(worker(maker)))) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


# --- failures -----------------------------------------------------------------------------------------------


def test_what_fails_for_certain_is_tried_by_others_before_anything_new(maker: SetMaker) -> None:
    # covers FLEET-01, FLEET-02
    make = ToyMake(maker.generation_contract, fail_at=(4,))
    one = worker(maker, "one", make=make)
    turns = [one.turn()]
    while turns[-1].kind == "published":
        turns.append(one.turn())
    failed = turns[-1]
    assert (failed.what, failed.failed, failed.spent) == ("unit 4", "recipe", True)
    assert failed.detail == "Defect: unit 4 cannot be made; another process tries it next"
    held = one.turn()
    assert (held.kind, held.detail) == (
        "waiting",
        "another process has to try unit 4 first: Defect: unit 4 cannot be made",
    )
    two = worker(maker, "two", make=make)
    second = two.turn()
    assert (second.what, second.detail) == (
        "unit 4",
        "Defect: unit 4 cannot be made; parked until a person lets it be tried again",
    )
    rest = work(worker(maker, "three", make=make))
    assert sorted(published(maker)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert kinds(rest)[-1] == "nothing" and told(maker)[4][0] == ("recipe", "one", "one")


def test_a_defect_that_all_share_wastes_a_unit_for_each_worker_and_stops_everyone() -> None:
    # covers F25, FLEET-01, FLEET-02
    maker = toy_set(MemoryStore(), rows_asked=400)
    contract = maker.generation_contract
    crew = {n: worker(maker, f"w{n}", make=ToyMake(contract, nonfinite_from=60)) for n in range(4)}
    hired, ends = 4, {}
    while not ends:
        for n, each in list(crew.items()):
            turn = each.turn()
            if turn.spent:
                crew[n] = worker(maker, f"w{hired}", make=ToyMake(contract, nonfinite_from=60))
                hired += 1
            if turn.kind == "waiting" and "failed alike" in (turn.detail or ""):
                ends[n] = turn.detail
        assert hired < 40, "endless"
    print(sorted(failures(maker)), ends)
    assert len(failures(maker)) <= 4, "units that were wasted"
    (why,) = set(ends.values())
    assert why is not None and "bounds" in why and "nonfinite" in why
    assert kinds(work(worker(maker, "later"))) == ["waiting"]


def test_what_fails_now_and_then_is_tried_again_and_pauses_nobody() -> None:
    # covers F26
    for seed in range(5):
        print("seed", seed)
        maker = toy_set(MemoryStore(), rows_asked=240)
        contract = maker.generation_contract
        crew = [
            worker(maker, f"w{n}", make=ToyMake(contract, flaky=0.3, seed=10 * seed + n)) for n in range(3)
        ]
        hired, idle = 3, 0
        while idle < 3:
            idle = 0
            for n, each in enumerate(crew):
                turn = each.turn()
                idle += turn.kind == "nothing"
                if turn.spent:
                    crew[n] = worker(
                        maker, f"w{hired}", make=ToyMake(contract, flaky=0.3, seed=1000 * seed + hired)
                    )
                    hired += 1
            assert hired < 100, "endless"
        found = failures(maker)
        assert max(len(each) for each in found.values()) <= 3
        parked = {unit for unit, each in found.items() if len(each) == 3}
        assert sorted([*published(maker), *parked]) == list(range(60))
        assert read_acts(maker.store, "digits").pauses == {}


def test_a_poison_row_is_its_own_affair(maker: SetMaker) -> None:
    make = ToyMake(maker.generation_contract, poison_rows=(17,))
    assert kinds(work(worker(maker, make=make))) == ["published"] * 10 + ["nothing"]
    manifest = manifest_of(maker.store, maker.generation_contract)
    assert (manifest.rows.produced, manifest.failed) == (39, {"ValueError": 1})


def test_a_receipt_of_another_unit_is_refused(maker: SetMaker) -> None:
    class Mixed(ToyMake):
        def __call__(self, unit: Unit) -> Made:
            other = (unit.number + 1) % units_of(self.contract)
            return super().__call__(Unit(number=other, first=4 * other, rows=4))

    turn = worker(maker, make=Mixed(maker.generation_contract)).turn()
    assert (turn.kind, turn.failed) == ("failed", "recipe")
    assert "the receipt is of unit" in (turn.detail or "") and published(maker) == []


class Away(MemoryStore):
    """A store that is away for writes of some key, for so many of them."""

    def __init__(self, there: dict[str, bytes], part: str, times: int) -> None:
        super().__init__(there)
        self.part, self.times = part, times

    def put_new(self, key: str, data: Any) -> Any:
        if self.part in key and self.times:
            self.times -= 1
            raise StoreUnavailableError("no answer", remedy="wait")
        return super().put_new(key, data)


def test_a_store_that_is_away_for_a_moment_loses_nothing(maker: SetMaker) -> None:
    maker.store = Away(objects(maker), "receipts", 4)
    turn = worker(maker, store=maker.store).turn()
    assert turn.kind == "published"


def test_a_store_that_stays_away_fails_the_attempt_and_the_unit_is_made_later(maker: SetMaker) -> None:
    # covers I13
    store = Away(objects(maker), "/units/", 1000)
    maker.store = store
    maker.shards = Shards(store, maker.generation_contract, threads=1)
    one = worker(maker)
    turn = one.turn()
    assert (turn.kind, turn.failed, turn.spent) == ("failed", "infrastructure", False)
    store.times = 0
    assert len(units(work(one))) == 10
    assert [kind for each in told(maker).values() for kind, _, _ in each] == ["infrastructure"]


def test_a_failure_that_the_store_did_not_take_is_said_once_it_is_back(maker: SetMaker) -> None:
    # covers I13
    store = Away(objects(maker), "/generation/digits/", 0)
    maker.store = store
    maker.shards = Shards(store, maker.generation_contract, threads=1)
    make = ToyMake(maker.generation_contract, before=lambda unit: setattr(store, "times", 1000))
    one = worker(maker, make=make)
    turn = one.turn()
    assert turn.kind == "failed" and "not written" in (turn.detail or "")
    make.before = lambda unit: None
    store.times = 0
    assert len(units(work(one))) == 10
    assert [each for found in told(maker).values() for each in found] == [
        ("infrastructure", "gen-1", "gen-1")
    ]


# --- two answers --------------------------------------------------------------------------------------------


def late(maker: SetMaker, salt: str) -> Turn:
    """A process wakes up after another one has made the unit that it has in hand; what comes of it."""

    def overtake(unit: Unit) -> None:
        fast = worker(maker, "fast", clock=lambda: AT + 601.0)
        work(fast)

    make = ToyMake(maker.generation_contract, salt=salt, before=overtake)
    return worker(maker, "slow", make=make).turn()


def test_a_late_answer_with_the_same_bytes_changes_nothing(maker: SetMaker) -> None:
    # covers F16, I2, I3
    assert late(maker, "").kind == "already"
    assert read_acts(maker.store, "digits").pauses == {}


def test_a_late_answer_with_other_bytes_stops_everyone(maker: SetMaker) -> None:
    # covers F16, I2, I3
    turn = late(maker, "another machine")
    assert turn.kind == "conflict" and "has two answers, which differ in contents, sha256" in (
        turn.detail or ""
    )
    held = read_acts(maker.store, "digits").pauses[f"contract:{maker.shards.digest}"].pause
    assert (held.cause, held.person, held.reason) == ("defect", "generation worker slow", turn.detail)
    assert worker(maker, "later").turn().kind == "paused"
    clean = toy_set(MemoryStore())
    work(worker(clean))
    assert (
        manifest_of(maker.store, maker.generation_contract).digest
        == manifest_of(clean.store, clean.generation_contract).digest
    )


def test_where_a_producer_is_not_exact_a_late_answer_is_recorded_and_dropped() -> None:
    maker = toy_set(MemoryStore(), exact=False)
    assert late(maker, "another machine").kind == "already"
    assert read_acts(maker.store, "digits").pauses == {}
    assert len(maker.shards.listing().conflicts) == 1


# --- the teacher of tests -----------------------------------------------------------------------------------


def test_the_made_teacher_is_approved_for_generation() -> None:
    maker = make_teacher(MemoryStore())
    candidate = read_candidate_registry(maker.store).candidates["digits-best"]
    assert candidate.approved_for("generation") is not None
