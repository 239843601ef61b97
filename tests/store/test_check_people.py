"""`check` and what people say: the fleet's log, and the order of acts in the log of one experiment. Covers I7."""

from __future__ import annotations

import random

import pytest
from makerun import RunMaker, make_run

from raykit.ids import sha256
from raykit.records import Cancelled, ExperimentEntry, FleetEntry, Paused, Record, Resumed
from raykit.store import layout, people
from raykit.store.check import check
from raykit.store.check.people import ActRules
from raykit.store.log import Log
from raykit.testing import MemoryStore
from raykit.testing.invariants import check_invariants

AT = 1_800_000_000.0
LOCKED = RunMaker(MemoryStore()).freeze()


def paused(scope: str) -> Paused:
    return Paused(scope=scope, cause="person", reason="r", person="mira")


def resumed(scope: str) -> Resumed:
    return Resumed(scope=scope, cleared="c", person="mira")


CANCELLED = Cancelled(reason="r", person="mira")


def broken(own: str | None, *events: Record) -> list[tuple[str, str]]:
    rules = ActRules(own)
    return [(b.rule, b.found) for event in events for b in rules.take(event)]


def test_pauses_and_resumes_alternate_in_each_scope() -> None:
    # covers I7
    assert broken(None, paused("all"), paused("role:train"), resumed("all"), paused("all")) == []
    assert broken(None, paused("all"), resumed("role:train"), resumed("all")) == [
        ("only a scope that is paused is resumed", "role:train is not")
    ]
    own = "experiment:digits"
    assert broken(own, paused(own), resumed(own), paused(own)) == []
    assert broken(own, paused(own), paused(own)) == [
        ("a scope is paused once, until it is resumed", "experiment:digits again")
    ]
    assert broken(own, paused(own), resumed(own), resumed(own)) == [
        ("only a scope that is paused is resumed", "experiment:digits is not")
    ]


@pytest.mark.parametrize(
    ("own", "scope", "where"),
    [
        (None, "experiment:digits", "the fleet"),
        ("experiment:digits", "all", "experiment:digits"),
        ("experiment:digits", "role:train", "experiment:digits"),
        ("experiment:digits", f"contract:{sha256(b'')}", "experiment:digits"),
        ("experiment:digits", "experiment:other", "experiment:digits"),
    ],
)
def test_a_scope_has_one_log(own: str | None, scope: str, where: str) -> None:
    assert broken(own, paused(scope)) == [("a scope has one log", f"{scope} in the log of {where}")]


def test_nothing_starts_once_an_experiment_is_cancelled() -> None:
    # covers I7
    own = "experiment:digits"
    assert broken(own, LOCKED, paused(own), CANCELLED, resumed(own)) == []
    assert broken(own, CANCELLED, LOCKED) == [
        (
            "nothing starts once an experiment is cancelled",
            f"plan {LOCKED.plan[:12]} is locked after that",
        )
    ]
    assert broken(own, CANCELLED, CANCELLED) == [
        ("an experiment is cancelled once", "experiment:digits again")
    ]


def test_each_is_found_at_its_entry() -> None:
    store = MemoryStore()
    make_run(store)
    fleet = Log(store, layout.fleet_log(), FleetEntry, by="t")
    fleet.append(lambda _: [paused("all"), paused("all")], at=AT)
    own = Log(store, layout.experiment_log("digits"), ExperimentEntry, by="t")
    own.append(lambda _: [resumed("experiment:digits")], at=AT)
    found = {(f.key, f.invariant, f.found) for f in check(store, read_data=False).findings}
    assert found == {
        (layout.log_entry(layout.fleet_log(), 1), "I7", "all again"),
        (layout.log_entry(layout.experiment_log("digits"), 2), "I7", "experiment:digits is not"),
    }


def test_a_damaged_log_is_not_held_against_its_order_as_well() -> None:
    store = MemoryStore()
    fleet = Log(store, layout.fleet_log(), FleetEntry, by="t")
    for event in (paused("all"), resumed("all"), paused("all")):
        fleet.append(lambda _, event=event: [event], at=AT)  # type: ignore[misc]
    del store.objects[layout.log_entry(layout.fleet_log(), 2)]
    assert [f.invariant for f in check(store, read_data=False).findings] == ["I2"]


@pytest.mark.parametrize("cut", ["edit", "drop", "swap"])
def test_a_fleet_log_that_was_tampered_with_is_found(cut: str) -> None:
    # covers I2, S15
    store = MemoryStore()
    for _ in range(3):
        people.pause(store, "all", reason="r", person="mira", at=AT)
        people.resume(store, "all", cleared="c", person="mira", at=AT)
    keys = [layout.log_entry(layout.fleet_log(), n) for n in range(1, 7)]
    for here, there in zip(keys, keys[1:] + keys[:1], strict=True):
        changed = dict(store.objects)
        match cut:
            case "edit":
                changed[here] = changed[here].replace(b"mira", b"mara")
            case "drop":
                del changed[here]
            case "swap":
                changed[here], changed[there] = changed[there], changed[here]
        assert not check(MemoryStore(changed), read_data=False).ok, here


@pytest.mark.parametrize("seed", range(20))
def test_whatever_people_say_there_is_no_false_alarm(seed: int) -> None:
    # covers I7, I12
    rng = random.Random(seed)
    print("seed", seed)
    store = MemoryStore()
    make_run(store)
    scopes = ["all", "role:train", "experiment:digits", f"contract:{sha256(b'c')}"]
    for _ in range(rng.randint(1, 25)):
        scope = rng.choice(scopes)
        match rng.randrange(8):
            case 0 | 1 | 2:
                people.pause(store, scope, reason="r", person="mira", at=AT)
            case 3 | 4 | 5:
                people.resume(store, scope, cleared="c", person="mira", at=AT)
            case 6:
                people.repair(store, "digits", what="w", attempt=rng.randint(0, 3), person="mira", at=AT)
            case 7:
                people.cancel(store, "digits", reason="r", person="mira", at=AT)
    check_invariants(store)
