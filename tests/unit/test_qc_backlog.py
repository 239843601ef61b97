"""Which checkpoints have to be examined, how far each is, and that nothing but a reviewed pass is a pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from raykit.errors import GateError
from raykit.ids import sha256
from raykit.pauses import Review
from raykit.qc.backlog import (
    OPEN,
    Backlog,
    Said,
    Standing,
    Status,
    Wanted,
    alive,
    backlog,
    blocks_completion,
    require_complete,
    require_usable,
    required,
    stand,
    takable,
    way_on,
    workable,
)
from raykit.records import (
    Claim,
    Commit,
    Conflict,
    Failure,
    FailureKind,
    Place,
    QcFinding,
    Receipt,
    Request,
    Reviewed,
    Tally,
    Took,
)

NOW = 1_800_000_000.0
PLACE = Place(host="n7", boot="boot/1", pid=4711, started=1000)
SUITE = sha256(b"suite")


# --- what is required ---------------------------------------------------------------------------------------


def commit(update: int, attempt: int = 1) -> Commit:
    return Commit(
        update=update,
        attempt=attempt,
        key=f"update-{update}/{attempt}",
        sha256=sha256(f"{update}".encode()),
        size_bytes=1,
        exactness="exact",
        reason="cadence",
        save_s=0.1,
        blocked_s=0.1,
    )


def updates(commits: Sequence[int], *, every: int, complete: bool = False) -> list[int]:
    found = required([(commit(update), NOW) for update in commits], every=every, complete=complete)
    return [each.update for each in found]


def test_the_cadence_begins_at_update_0() -> None:
    # covers QC-03
    assert updates([0, 10, 20, 30], every=10) == [0, 10, 20, 30]
    assert updates([0, 10, 20, 30], every=20) == [0, 20]
    assert updates([0], every=1000) == [0]
    assert updates([], every=10) == []


def test_the_last_checkpoint_of_a_complete_run_is_required_wherever_it_is() -> None:
    # covers QC-03
    assert updates([0, 10, 20, 25], every=20) == [0, 20]
    assert updates([0, 10, 20, 25], every=20, complete=True) == [0, 20, 25]
    assert updates([0, 10, 20], every=20, complete=True) == [0, 20]


def test_none_is_left_out_however_many_there_are() -> None:
    # covers QC-27
    rng = random.Random(5)
    for _ in range(50):
        every = rng.randrange(1, 40)
        committed = sorted({0, *(rng.randrange(4000) for _ in range(200))})
        wanted = updates(committed, every=every, complete=True)
        assert wanted == [u for u in committed if u % every == 0 or u == committed[-1]]


def test_the_newest_commit_of_an_update_is_the_one_that_is_examined() -> None:
    found = required([(commit(10), NOW), (commit(10, attempt=2), NOW + 9)], every=10, complete=False)
    assert [(each.key, each.since) for each in found] == [("update-10/2", NOW + 9)]


# --- how far one is -----------------------------------------------------------------------------------------


def request(update: int = 10) -> Request:
    checkpoint = sha256(f"{update}".encode())
    return Request(experiment="digits", run="main", update=update, checkpoint=checkpoint, suite=SUITE)


def claim(n: int, *, worker: str = "qc-1", at: float = NOW) -> Claim:
    return Claim(request=request().id, n=n, worker=worker, place=PLACE, at=at, deadline_s=600.0)


def failure(
    n: int, *, kind: FailureKind = "lost", cause: str = "x", worker: str = "qc-1", at: float = NOW + 1
) -> Failure:
    return Failure(
        request=request().id,
        n=n,
        kind=kind,
        signature=sha256(cause.encode()),
        message="it is gone",
        worker=worker,
        said_by=worker,
        at=at,
    )


def receipt(*, findings: Sequence[QcFinding] = (), facts: str = "2.13") -> Receipt:
    tally = Tally(requested=2, scored=2, failed=0, missing=0)
    return Receipt(
        request=request().id,
        experiment="digits",
        run="main",
        update=10,
        checkpoint=request().checkpoint,
        suite=SUITE,
        roster=sha256(b"roster"),
        code=sha256(b"code"),
        config=sha256(b"config"),
        revision=1,
        facts={"torch": facts},
        units=tally,
        strata={"0": tally},
        metrics={},
        findings=tuple(findings),
        verdict="failed" if findings else "passed",
    )


FAILED = receipt(findings=[QcFinding(kind="threshold", what="ratio", found="0.41", rule="> 0.35")])


def took(n: int, made: Receipt) -> Took:
    return Took(
        request=request().id, n=n, worker="qc-1", receipt=made.digest, took_ms=9, peak_bytes=9, at=NOW
    )


def conflict(n: int, first: Receipt, other: Receipt) -> Conflict:
    return Conflict(
        request=request().id,
        n=n,
        worker="qc-2",
        receipt=first.digest,
        differs=("facts",),
        other=other.plain(),
    )


def reviewed(made: Receipt, verdict: str = "passed") -> dict[str, Review]:
    event = Reviewed.model_validate(
        {"receipts": (made.digest,), "verdict": verdict, "note": "it is blurred", "person": "mira"}
    )
    return {made.digest: Review(event=event, at=NOW)}


def standing(said: Said | None = None, **how: Any) -> Standing:
    settings = {"reviews": {}, "tries": 3, "now": NOW + 10} | how
    wanted = Wanted(update=10, checkpoint=request().checkpoint, key="k", since=NOW)
    return stand(wanted, request(), said or Said(), **settings)


ASKED = Said(asked=True)
CLAIMED = Said(asked=True, claims=(claim(1),))
LOST = Said(asked=True, claims=(claim(1),), failures=(failure(1),))
AGAIN = Said(asked=True, claims=(claim(1), claim(2)), failures=(failure(1),))
PARKED = Said(
    asked=True,
    claims=tuple(claim(n) for n in (1, 2, 3)),
    failures=tuple(failure(n) for n in (1, 2, 3)),
)
DEFECT = Said(
    asked=True,
    claims=(claim(1), claim(2, worker="qc-2")),
    failures=(failure(1, kind="recipe"), failure(2, kind="recipe", worker="qc-2")),
)
DONE = Said(asked=True, claims=(claim(1),), took=(took(1, receipt()),), receipt=receipt())
RED = Said(asked=True, claims=(claim(1),), took=(took(1, FAILED),), receipt=FAILED)


@pytest.mark.parametrize(
    ("said", "status", "next_"),
    [
        (Said(), "missing", "retry"),
        (ASKED, "pending", "retry"),
        (CLAIMED, "claimed", "retry"),
        (LOST, "retrying", "retry"),
        (AGAIN, "claimed", "retry"),
        (PARKED, "parked", "park"),
        (DEFECT, "parked", "pause"),
        (DONE, "done", "retry"),
        (RED, "done", "retry"),
    ],
)
def test_how_far_a_request_is(said: Said, status: str, next_: str) -> None:
    # covers QC-19, QC-21
    found = standing(said)
    assert (found.status, found.next) == (status, next_)
    assert found.open == (status != "done")
    assert found.open == (status in OPEN)


def test_a_claim_holds_until_its_deadline() -> None:
    assert alive(CLAIMED, NOW + 599.9) == claim(1)
    assert alive(CLAIMED, NOW + 600.0) is None
    assert alive(LOST, NOW) is None
    assert alive(AGAIN, NOW + 1) == claim(2)
    assert alive(Said(), NOW) is None
    assert standing(CLAIMED, now=NOW + 600.0).status == "pending"
    assert standing(AGAIN, now=NOW + 600.0).status == "retrying"


def test_a_receipt_decides_whatever_the_attempts_came_to() -> None:
    # covers QC-22
    late = Said(asked=True, claims=PARKED.claims, failures=PARKED.failures, receipt=receipt())
    assert standing(late).status == "done"


def test_a_person_may_let_a_parked_request_be_tried_again() -> None:
    # covers QC-22
    assert standing(PARKED, forgiven=2).status == "retrying"
    assert standing(PARKED, forgiven=2).counted == (failure(3),)
    again = standing(PARKED, forgiven=3)
    assert (again.status, again.counted) == ("pending", ())
    assert standing(PARKED, forgiven_before=NOW + 1).status == "parked", "a failure from then on counts"
    assert standing(PARKED, forgiven_before=NOW + 2).status == "pending"
    assert standing(DEFECT, forgiven_before=NOW + 2).next == "retry"


# --- nothing but a reviewed pass is a pass --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said(), "its QC is missing"),
        (ASKED, "its QC is pending"),
        (CLAIMED, "its QC is claimed"),
        (LOST, "its QC is retrying"),
        (PARKED, "its QC is parked"),
        (DONE, "its QC receipt is not reviewed"),
        (RED, "it failed its QC: ratio 0.41, wanted > 0.35"),
    ],
)
def test_pending_failed_and_unreviewed_are_never_passed(said: Said, why: str) -> None:
    # covers QC-23, QC-24, QC-25, QC-26, GOLD-29, I8
    found = standing(said)
    assert not found.usable
    assert found.why_not == why
    with pytest.raises(GateError, match=r"no decision may rest on update 10: ") as refused:
        require_usable(found, "update 10", experiment="digits")
    assert refused.value.remedy is not None
    assert "digits" in refused.value.remedy


def test_a_review_makes_a_pass_usable_and_nothing_else() -> None:
    # covers QC-24, QC-25, QC-26, I8
    usable = standing(DONE, reviews=reviewed(receipt()))
    assert usable.usable
    assert usable.why_not is None
    assert require_usable(usable, "it", experiment="digits") is usable
    assert not standing(RED, reviews=reviewed(FAILED)).usable, "a failed one is never reviewed into a pass"
    other = standing(DONE, reviews=reviewed(receipt(facts="2.14")))
    assert other.why_not == "its QC receipt is not reviewed", "a review is of one receipt's bytes"
    blurred = standing(DONE, reviews=reviewed(receipt(), "failed"))
    assert blurred.why_not == "mira has reviewed it as failed: it is blurred"


def test_two_answers_are_red_recorded_or_not() -> None:
    """A worker may be killed between learning that its receipt came too late and writing down the other one."""
    # covers I3
    other = receipt(facts="2.14")
    both = (took(1, receipt()), took(2, other))
    recorded = Said(asked=True, receipt=receipt(), took=both, conflicts=(conflict(2, receipt(), other),))
    torn = Said(asked=True, receipt=receipt(), took=both)
    reviews = reviewed(receipt())
    for said in (recorded, torn):
        assert said.disputed == (2,)
        found = standing(said, reviews=reviews)
        assert found.red
        assert not found.usable
        assert found.why_not == "its QC had two different answers"
    agreed = Said(asked=True, receipt=receipt(), took=(took(1, receipt()), took(2, receipt())))
    assert agreed.disputed == ()
    assert standing(agreed, reviews=reviews).usable
    assert Said(took=both).disputed == (), "nothing has decided yet"


def test_who_was_never_examined_is_refused_by_name() -> None:
    # covers QC-23, I8
    with pytest.raises(GateError, match="nobody has examined it") as refused:
        require_usable(None, "digits update 15", experiment="digits")
    assert refused.value.remedy == "choose a checkpoint on the cadence: raykit qc status digits"


# --- all of them --------------------------------------------------------------------------------------------


def whole(*said: Said, reviews: dict[str, Review] | None = None) -> Backlog:
    return backlog(SUITE, [standing(each, reviews=reviews or {}) for each in said])


def test_everything_open_or_unreviewed_blocks_completion() -> None:
    # covers QC-23, QC-25, QC-27
    for said in (Said(), ASKED, CLAIMED, LOST, PARKED, DONE, RED):
        found = whole(said)
        assert not found.complete
        with pytest.raises(GateError, match="is not complete") as refused:
            require_complete(found, "digits")
        assert refused.value.remedy == way_on(found, "digits")
        assert way_on(found, "digits") is not None
    reviewed_both = whole(DONE, RED, reviews=reviewed(receipt()) | reviewed(FAILED, "failed"))
    assert reviewed_both.complete, "a failed one that a person has looked at is examined, too"
    assert blocks_completion(reviewed_both) == ()
    assert way_on(reviewed_both, "digits") is None
    require_complete(reviewed_both, "digits")
    assert not whole().complete, "nothing examined is not everything examined"


def test_a_backlog_is_counted_and_told_in_words() -> None:
    # covers QC-21
    found = whole(Said(), ASKED, CLAIMED, LOST, PARKED, DONE, RED)
    assert found.counts == dict.fromkeys(["missing", "pending", "claimed", "retrying", "parked"], 1) | {
        "done": 2
    }
    assert [len(found.open), len(found.failed), len(found.unreviewed)] == [5, 1, 2]
    assert blocks_completion(found) == (
        "1 missing (update 10)",
        "1 pending (update 10)",
        "1 claimed (update 10)",
        "1 retrying (update 10)",
        "1 parked (update 10)",
        "2 not reviewed (update 10, 10)",
    )
    assert way_on(found, "digits") == "raykit qc retry digits --reason ... --by NAME"


# --- what can be taken --------------------------------------------------------------------------------------


def statuses(**found_as: Status) -> list[Standing]:
    """By update, `u0="done"`."""
    found = []
    for name, status in found_as.items():
        update = int(name[1:])
        checkpoint = sha256(name.encode())
        found.append(
            Standing(
                wanted=Wanted(update=update, checkpoint=checkpoint, key="k", since=0.0),
                request=Request(
                    experiment="digits", run="main", update=update, checkpoint=checkpoint, suite=sha256(b"s")
                ),
                said=Said(),
                status=status,
            )
        )
    return found


@pytest.mark.parametrize(
    ("found", "updates"),
    [
        (statuses(u0="missing", u10="pending", u20="pending"), [0]),
        (statuses(u0="claimed", u10="pending", u20="pending"), []),
        (statuses(u0="parked", u10="pending", u20="pending"), []),
        (statuses(u0="done", u10="pending", u20="claimed", u30="retrying", u40="parked"), [10, 30]),
        (statuses(u10="pending", u20="done"), [10]),
    ],
)
def test_update_0_goes_before_all_others(found: list[Standing], updates: list[int]) -> None:
    claimed = sum(each.status == "claimed" for each in found)
    assert [each.update for each in takable(backlog("s", found))] == updates
    assert workable(backlog("s", found)) == len(updates) + claimed
