"""Who is paused, why, and what clears it. Covers I7."""

from __future__ import annotations

import random

import pytest

from raykit.errors import CancelledError, FleetPaused, InvalidInput, ReplanError
from raykit.ids import sha256
from raykit.pauses import (
    Acts,
    InForce,
    fold_acts,
    in_force,
    require_cleared,
    require_running,
    scope_of,
    scopes_of,
)
from raykit.records import (
    Amended,
    Cancelled,
    Cause,
    ExperimentEntry,
    ExperimentEvent,
    FleetEntry,
    Locked,
    Paused,
    Repaired,
    RestartApproved,
    Resumed,
)

D = sha256(b"contract")
OWN = "experiment:digits"
WORK = scopes_of("digits", "train", D)


def pause(
    scope: str = OWN, *, cause: Cause = "person", reason: str = "inference", person: str = "mira"
) -> Paused:
    return Paused(scope=scope, cause=cause, reason=reason, person=person)


def resume(scope: str = OWN) -> Resumed:
    return Resumed(scope=scope, cleared="c", person="mira")


def said(*events: ExperimentEvent, at: float = 10.0) -> list[ExperimentEntry]:
    """One entry for each event, a second apart."""
    return [
        ExperimentEntry(n=n, prev=None if n == 1 else D, at=at + n, by="t", nonce="n", events=(event,))
        for n, event in enumerate(events, start=1)
    ]


def acts(*events: ExperimentEvent) -> Acts:
    return fold_acts(said(*events))


def found(cause: Cause, scope: str = OWN) -> InForce:
    return InForce(pause=pause(scope, cause=cause, reason="why"), at=1.0)


# --- what the logs come to ----------------------------------------------------------------------------------


def test_nothing_said_is_nothing_in_force() -> None:
    assert fold_acts([]) == Acts()
    assert in_force(Acts(), WORK) is None
    require_running(Acts(), "digits", WORK)


def test_a_pause_holds_until_its_scope_is_resumed() -> None:
    # covers I7
    assert in_force(acts(pause()), WORK) == InForce(pause=pause(), at=11.0)
    assert in_force(acts(pause(), resume()), WORK) is None
    assert in_force(acts(pause(), resume(), pause()), WORK) == InForce(pause=pause(), at=13.0)


def test_a_resume_ends_the_pause_of_its_own_scope_only() -> None:
    both = acts(pause("all"), pause(), resume())
    held = in_force(both, WORK)
    assert held is not None
    assert held.pause.scope == "all"
    assert both.resumed_at == 13.0


def test_a_second_pause_of_a_scope_changes_nothing() -> None:
    once, twice = acts(pause()), acts(pause(), pause(reason="another", person="jo"))
    assert once.pauses == twice.pauses
    assert in_force(acts(pause(), pause(), resume()), WORK) is None


def test_a_second_resume_ends_nothing_more() -> None:
    assert acts(pause("all"), pause(), resume(), resume()).pauses.keys() == {"all"}


def test_the_first_cancellation_stands() -> None:
    first = Cancelled(reason="no use", person="mira")
    assert acts(first, Cancelled(reason="again", person="jo")).cancelled == first


def test_repairs_cover_through_the_newest_attempt_that_was_named() -> None:
    assert acts(*(Repaired(what="w", attempt=n, person="mira") for n in (2, 5, 3))).repaired == 5


def test_the_rest_is_kept_in_order() -> None:
    locked = [Locked(plan=sha256(bytes([n])), contract=D, code=D, environment=D, data=D) for n in range(3)]
    amended = [Amended(run="main", allows="order-exact", reason=str(n), differences=D) for n in range(2)]
    restart = RestartApproved(projection=D, covers="c", reason="r", person="mira")
    whole = acts(locked[0], amended[0], locked[1], restart, amended[1], locked[2])
    assert whole.locked == tuple(locked)
    assert whole.amended == tuple(amended)
    assert whole.restarts == (restart,)


def test_the_fleet_is_read_onto_the_experiment() -> None:
    fleet = [FleetEntry(n=1, prev=None, at=5.0, by="t", nonce="n", events=(pause("all"), pause("role:qc")))]
    own = said(pause(), resume())
    one, other = fold_acts(fleet, fold_acts(own)), fold_acts(own, fold_acts(fleet))
    assert one == other
    assert one.pauses.keys() == {"all", "role:qc"}
    assert one.resumed_at == 12.0


@pytest.mark.parametrize("seed", range(20))
def test_reading_on_is_reading_all(seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    scopes = ["all", OWN, "role:train", f"contract:{D}"]
    entries = said(
        *(
            rng.choice(
                [
                    pause(rng.choice(scopes)),
                    resume(rng.choice(scopes)),
                    Repaired(what="w", attempt=n, person="m"),
                ]
            )
            for n in range(30)
        )
    )
    whole = fold_acts(entries)
    cut = rng.randrange(30)
    first = fold_acts(entries[:cut])
    before = dict(first.pauses)
    assert fold_acts(entries[cut:], first) == whole
    assert dict(first.pauses) == before, "what was read stays as it was"


# --- scopes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("all", "all"),
        ("digits", OWN),
        (OWN, OWN),
        ("experiment:all", "experiment:all"),
        ("role:train", "role:train"),
        ("role:qc", "role:qc"),
        ("role:generate", "role:generate"),
        ("role:search", "role:search"),
        (f"contract:{D}", f"contract:{D}"),
    ],
)
def test_what_people_type_is_a_scope(text: str, scope: str) -> None:
    assert scope_of(text) == scope
    assert Paused(scope=scope_of(text), cause="person", reason="r", person="p").scope == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "All",
        "all ",
        "all\n",
        "all:",
        "Digits",
        "../digits",
        "a/b",
        "experiment:",
        "experiment:../x",
        "experiment:A",
        "role:",
        "role:everything",
        "role:train,qc",
        "contract:",
        "contract:abc",
        f"contract:{D.upper()}",
        f"contract:{D}0",
        "run:main",
        "role:train:x",
        "x" * 129,
    ],
)
def test_what_is_no_scope_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no scope") as refused:
        scope_of(text)
    assert refused.value.field == "SCOPE"
    assert refused.value.value == text
    assert "role:train" in str(refused.value.rule)


def test_work_belongs_to_its_scopes_the_narrowest_first() -> None:
    assert (OWN, f"contract:{D}", "role:train", "all") == WORK
    assert scopes_of("digits", "qc") == (OWN, "role:qc", "all")
    for scope in WORK:
        assert scope_of(scope) == scope


def test_the_narrowest_pause_is_the_one_that_is_told() -> None:
    held = dict.fromkeys(WORK)
    for scope in reversed(WORK):
        held.pop(scope)
        told = in_force(acts(*(pause(each) for each in WORK if each not in held)), WORK)
        assert told is not None
        assert told.pause.scope == scope


@pytest.mark.parametrize("scope", ["experiment:other", "role:qc", f"contract:{sha256(b'other')}"])
def test_other_scopes_do_not_concern_it(scope: str) -> None:
    require_running(acts(pause(scope)), "digits", WORK)


# --- what stands in the way ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", WORK)
def test_paused_work_does_not_start(scope: str) -> None:
    # covers I7
    with pytest.raises(FleetPaused, match=r"^digits is paused by mira: inference$") as refused:
        require_running(acts(pause(scope)), "digits", WORK)
    assert refused.value.exit_code == 4
    assert refused.value.value == scope
    assert refused.value.remedy == f"raykit resume {'digits' if scope == OWN else scope}"


def test_what_was_cancelled_never_starts_again() -> None:
    # covers I7
    over = acts(pause(), Cancelled(reason="no use", person="mira"), resume())
    with pytest.raises(CancelledError, match=r"^digits was cancelled by mira: no use$") as refused:
        require_running(over, "digits", WORK)
    assert refused.value.exit_code == 3


def test_a_person_who_paused_may_go_on() -> None:
    assert require_cleared(found("person"), repair=None, needs_replan="money is short") == (
        "a person asked for it, and a person goes on"
    )


def test_a_defect_is_repaired_first() -> None:
    with pytest.raises(FleetPaused, match="no repair is recorded") as refused:
        require_cleared(found("defect"), repair=None, needs_replan=None)
    assert refused.value.remedy == 'raykit resume digits --repair "what you changed" --by NAME'
    assert require_cleared(found("defect"), repair="new driver", needs_replan=None) == "repaired: new driver"


@pytest.mark.parametrize("cause", ["ceiling", "replan"])
def test_money_is_moved_first(cause: Cause) -> None:
    with pytest.raises(ReplanError, match=r"why; the ceiling is 5\.00") as refused:
        require_cleared(found(cause), repair="something", needs_replan="the ceiling is 5.00")
    assert refused.value.remedy == "raykit budget replan digits --reason ... --by NAME"
    assert require_cleared(found(cause), repair=None, needs_replan=None) == "the ledger allows it now"


def test_wider_scopes_are_named_as_they_are() -> None:
    with pytest.raises(FleetPaused) as refused:
        require_cleared(found("defect", f"contract:{D}"), repair=None, needs_replan=None)
    assert refused.value.remedy == f'raykit resume contract:{D} --repair "what you changed" --by NAME'
