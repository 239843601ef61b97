"""What a class rests on, what lowers it, and that it never rises.

covers CKPT-05 CONTRACT-07; FAULT-A02
"""

from __future__ import annotations

from raykit import exactness
from raykit.ids import sha256
from raykit.reconcile import RunState, fold
from raykit.records import (
    AttemptStarted,
    Commit,
    Compared,
    Exactness,
    FirstDifference,
    GateResult,
    Place,
    Record,
    ResumeReceipt,
    RunEntry,
    Undeclared,
)

D = sha256(b"")
HERE = Place(host="a", boot="b", pid=1, started=1)


def state(*events: Record) -> RunState:
    return fold([RunEntry(n=1, prev=None, at=0.0, by="test", nonce="0" * 16, events=events)])


def started(attempt: int = 1, resume: ResumeReceipt | None = None) -> AttemptStarted:
    return AttemptStarted(
        attempt=attempt,
        launch="l",
        place=HERE,
        world_size=1,
        facts={},
        plan=D,
        code=D,
        data=D,
        resume=resume,
    )


def receipt(update: int, found: Exactness = "exact") -> ResumeReceipt:
    return ResumeReceipt(update=update, attempt=1, manifest_sha256=D, needed="exact", exactness=found)


def commit(update: int, attempt: int = 1, found: Exactness = "exact") -> Commit:
    return Commit(
        update=update,
        attempt=attempt,
        key=f"{update}/{attempt}",
        sha256=D,
        size_bytes=1,
        exactness=found,
        reason="cadence",
        save_s=0.0,
        blocked_s=0.0,
    )


def gate(found: Exactness | None) -> GateResult:
    return GateResult(gate="resume", key=D, passed=True, scope="s", found="f", took_s=0.0, exactness=found)


def compared(how: str, first: int, last: int, at: int | None = None) -> Compared:
    difference = None if at is None else FirstDifference(update=at, what="loss", was="1", now="2")
    return Compared.model_validate(
        {
            "how": how,
            "attempt": 2,
            "against": 1,
            "first": first,
            "last": last,
            "difference": difference,
            "lowers": None if at is None else "inexact",
        }
    )


def words(found: RunState) -> list[str]:
    return [exactness.of_commit(found, each).words for each in found.commits]


def test_what_nobody_has_trained_twice_is_declared() -> None:
    found = state(started(), gate("exact"), commit(0), commit(5))
    assert exactness.of_run(found).words == "exact (declared)"
    assert words(found) == ["exact (declared)"] * 2
    assert exactness.of_attempt(found, found.attempts[0]).words == "exact (declared)"


def test_a_store_of_before_wrote_nothing_of_its_gates_and_loses_nothing_by_that() -> None:
    assert exactness.of_run(state(started(), gate(None), commit(5))).words == "exact (declared)"


def test_what_the_gate_measured_bounds_every_class() -> None:
    found = state(started(), gate("state-exact"), commit(0), started(2, receipt(0)), commit(5, 2))
    assert exactness.bound(found) == "state-exact"
    assert words(found) == ["state-exact"] * 2
    assert [exactness.of_attempt(found, each).words for each in found.attempts] == ["state-exact"] * 2
    assert exactness.of_run(found).words == "state-exact"


def test_an_equal_replay_shows_the_checkpoints_that_it_touched() -> None:
    found = state(started(), commit(0), commit(5), commit(10), commit(15), compared("replay", 6, 11))
    assert words(found) == [
        "exact (declared)",
        "exact (replayed)",
        "exact (replayed)",
        "exact (declared)",
    ]
    assert exactness.of_run(found).words == "exact (replayed)"


def test_an_overlap_lowers_from_its_first_difference_on_and_the_run_stays_fallen() -> None:
    found = state(
        started(),
        commit(5),
        commit(10),
        started(2, receipt(10)),
        compared("overlap", 11, 14, at=14),
        commit(15, 2),
        started(3, receipt(15)),
        compared("replay", 11, 16),
    )
    assert words(found) == ["exact (declared)", "exact (replayed)", "inexact"]
    assert [exactness.of_attempt(found, each).words for each in found.attempts] == [
        "exact (declared)",
        "inexact",
        "inexact",
    ]
    assert exactness.of_run(found).words == "inexact"
    (fall,) = exactness.falls(found)
    assert (fall.update, fall.to) == (14, "inexact") and "update 14, loss: 1 -> 2" in fall.words


def test_a_replay_that_differs_speaks_of_the_checkpoint_that_it_restored() -> None:
    found = state(started(), commit(5), commit(10), compared("replay", 11, 13, at=13))
    assert words(found) == ["exact (declared)", "inexact"]
    assert exactness.of_run(found).words == "inexact"


def test_undeclared_state_lowers_until_somebody_says_that_it_is_harmless() -> None:
    changed = Undeclared(attempt=1, update=10, names=("recipe.calls", "recipe.seen"), lowers="inexact")
    found = state(started(), commit(5), commit(10), changed)
    assert words(found) == ["exact (declared)", "inexact"]
    assert exactness.bound(found, {"recipe.calls"}) == "inexact"
    harmless = {"recipe.calls", "recipe.seen"}
    assert exactness.bound(found, harmless) == "exact"
    assert exactness.of_commit(found, found.commits[1], harmless).words == "exact (declared)"


def test_a_resume_of_a_lower_class_keeps_it() -> None:
    found = state(started(), commit(5), started(2, receipt(5, "order-exact")), commit(10, 2, "order-exact"))
    assert words(found) == ["exact (declared)", "order-exact"]
    assert exactness.of_run(found).words == "order-exact"
