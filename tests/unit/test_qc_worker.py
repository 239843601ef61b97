"""What a worker takes, in which order, what it leaves alone, and when it stops everyone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from makerun import ELSEWHERE
from qchooks import AT, Examine, Made, backlog, update_of, work, worker

from raykit.errors import CorruptError, GateError, StoreUnavailableError, UnknownOutcomeError
from raykit.ids import sha256
from raykit.pauses import Acts
from raykit.qc.backlog import Said
from raykit.records import (
    Claim,
    Commit,
    Failure,
    FailureKind,
    Receipt,
    Request,
    Retried,
    Superseded,
    Tally,
)
from raykit.store import layout
from raykit.store.log import RunLog
from raykit.store.people import People, cancel, pause, read_acts, resume
from raykit.store.place import this_place
from raykit.store.qc import Examinations
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.work.examined import Examined
from raykit.work.puller import INSISTS_S, WAITS_S
from raykit.work.qc_worker import LOOK_AGAIN_S, Worker

UPDATES = [0, 10, 20, 30, 40]


@pytest.fixture(scope="module")
def trained() -> Made:
    """A trained run that nobody has examined yet."""
    return backlog(MemoryStore())


@pytest.fixture
def made(trained: Made) -> Made:
    return replace(trained, store=MemoryStore(dict(objects(trained))))


def said(made: Made, update: int) -> Said:
    return Examinations(made.store, made.experiment).said().get(request(made, update).id, Said())


def request(made: Made, update: int) -> Request:
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.refresh()
    commit = next(commit for commit in log.state.commits if commit.update == update)
    return Request(
        experiment=made.experiment,
        run=made.run,
        update=update,
        checkpoint=commit.sha256,
        suite=made.suite.digest,
    )


def objects(made: Made) -> dict[str, bytes]:
    assert isinstance(made.store, MemoryStore)
    return made.store.objects


def scope(made: Made) -> str:
    return f"contract:{made.suite.digest}"


def paused(made: Made) -> str | None:
    """Why the suite is paused."""
    held = read_acts(made.store, made.experiment).pauses.get(scope(made))
    return None if held is None else held.pause.reason


def claim(made: Made, update: int, *, n: int = 1, worker: str = "other", at: float = AT, **how: Any) -> Claim:
    """Another process takes a request, and says no more."""
    examinations = Examinations(made.store, made.experiment)
    examinations.ask(request(made, update))
    found = examinations.claim(
        request(made, update).id,
        n,
        worker=worker,
        place=how.get("place", ELSEWHERE),
        at=at,
        deadline_s=how.get("deadline_s", 600.0),
    )
    assert found is not None
    return found


def fails(error: Callable[[], Exception], *at: int) -> Callable[[Request], None]:
    """Raise at these updates; at all if none is named."""

    def before(request: Request) -> None:
        if not at or request.update in at:
            raise error()

    return before


def defect() -> Exception:
    return ZeroDivisionError("division by zero")


# --- in which order -------------------------------------------------------------------------------------------


def test_update_0_first_then_the_oldest_none_left_out(made: Made) -> None:
    # covers QC-03, QC-27
    examine = Examine(made.suite)
    turns = work(worker(made, examine=examine))
    assert examine.seen == UPDATES
    assert [turn.kind for turn in turns] == ["published"] * 5 + ["nothing"]
    assert [update_of(turn) for turn in turns] == [*UPDATES, None]
    first = said(made, 0).receipt
    assert first is not None
    assert first.reference is None
    later = [said(made, update).receipt for update in UPDATES[1:]]
    assert [receipt and receipt.reference for receipt in later] == [first.digest] * 4


def test_requests_claims_and_receipts_are_records_of_their_own(made: Made) -> None:
    # covers QC-19, QC-20
    work(worker(made))
    ask = request(made, 20)
    examinations = Examinations(made.store, made.experiment)
    assert examinations.request(ask.id) == ask
    found = said(made, 20)
    assert [(each.worker, each.n, each.place) for each in found.claims] == [("qc-1", 1, this_place())]
    assert [(took.receipt, took.peak_bytes) for took in found.took] == [
        (found.receipt and found.receipt.digest, 1000)
    ]
    receipt = found.receipt
    assert receipt is not None
    bound = (receipt.checkpoint, receipt.suite, receipt.roster, receipt.code, receipt.config)
    suite = made.suite
    assert bound == (ask.checkpoint, suite.digest, suite.roster, suite.code, suite.config)
    assert examinations.artifact(receipt, receipt.artifacts[0]).startswith(b"PNG of ")


def test_nothing_is_taken_before_update_0_is_examined(made: Made) -> None:
    claim(made, 0)
    turn = worker(made).turn()
    assert turn.kind == "waiting"
    assert turn.detail == "the checkpoint at update 0 comes first, and its QC is claimed"
    assert [said(made, update).claims for update in UPDATES[1:]] == [()] * 4


def test_a_parked_update_0_is_waited_for(made: Made) -> None:
    examine = Examine(made.suite, before=fails(lambda: StoreUnavailableError("no answer")))
    turns = work(worker(made, examine=examine, tries=2))
    assert [turn.kind for turn in turns] == ["failed", "failed", "waiting"]
    assert turns[-1].detail == "the checkpoint at update 0 comes first, and its QC is parked"
    assert examine.seen == [0, 0]


def test_checkpoints_that_a_resume_has_superseded_are_not_examined(made: Made) -> None:
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.append(
        lambda _: [Superseded.model_validate({"from": 21, "to": 40, "why": "attempt 2 resumes"})], at=AT
    )
    examine = Examine(made.suite)
    work(worker(made, examine=examine))
    assert examine.seen == [0, 10, 20]


def test_without_a_checkpoint_at_update_0_nothing_is_held_against_anything(made: Made) -> None:
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.append(
        lambda entries: [
            Superseded.model_validate({"from": 0, "to": 40, "why": "x"}),
            next(e for entry in entries for e in entry.events if isinstance(e, Commit) and e.update == 10),
        ],
        at=AT,
    )
    turn = worker(made).turn()
    assert (turn.kind, turn.detail) == (
        "waiting",
        "no checkpoint at update 0 counts, which the others are held against",
    )


def test_a_run_that_began_anew_is_held_against_its_own_update_0(made: Made) -> None:
    at = worker(made)
    at.turn()
    before = said(made, 0).receipt
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.refresh()
    again = [
        commit.model_copy(update={"sha256": sha256(f"again {commit.update}".encode())})
        for commit in log.state.commits
    ]
    log.append(
        lambda _: [Superseded.model_validate({"from": 0, "to": 40, "why": "another seed"}), *again], at=AT
    )
    held = claim(made, 0)
    assert at.turn().kind == "waiting", "what it was held against before counts no more"
    late = worker(made, "qc-2", clock=lambda: held.at + held.deadline_s)
    assert [update_of(turn) for turn in work(late)] == [*UPDATES, None]
    first, later = said(made, 0).receipt, said(made, 10).receipt
    assert before is not None
    assert first is not None
    assert later is not None
    assert first.digest != before.digest
    assert later.reference == first.digest


def test_an_empty_run_has_nothing_to_examine() -> None:
    full = backlog(MemoryStore())
    made = replace(full, run="other")
    assert worker(made).turn().kind == "nothing"


def test_a_checkpoint_that_comes_meanwhile_is_examined(made: Made) -> None:
    at = worker(made)
    work(at)
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.refresh()
    more = log.state.commits[-1].model_copy(update={"update": 50, "sha256": sha256(b"50")})
    log.append(lambda _: [more], at=AT)
    assert [update_of(turn) for turn in work(at)] == [50, None]


def test_what_a_person_asks_for_off_the_cadence_is_examined_in_its_place(made: Made) -> None:
    # covers QC-27
    sparse = replace(made, suite=made.suite.model_copy(update={"every": 20}))
    Examinations(made.store, made.experiment).ask(request(sparse, 30))
    examine = Examine(sparse.suite)
    work(worker(sparse, examine=examine))
    assert examine.seen == [0, 20, 30, 40]


# --- the same question costs nothing ----------------------------------------------------------------------------


def test_the_same_question_asked_twice_costs_nothing(made: Made) -> None:
    # covers QC-22, I3
    work(worker(made))
    before = dict(objects(made))
    examine = Examine(made.suite)
    steps = FaultStore(made.store)
    assert [turn.kind for turn in work(worker(made, "qc-2", store=steps, examine=examine))] == ["nothing"]
    assert examine.seen == []
    assert objects(made) == before, "no claim, no byte"
    assert not any(step.startswith(("put", "delete")) for step in steps.fault.operations)


@pytest.mark.parametrize("what", ["checkpoint", "roster", "code", "config", "revision", "params", "fail"])
def test_another_question_never_reuses_a_receipt(made: Made, what: str) -> None:
    # covers QC-02, QC-18, QC-19, I3
    work(worker(made))
    asked = made
    if what == "checkpoint":  # other weights come to lie under the same path
        log = RunLog(made.store, made.experiment, made.run, by="t")
        log.refresh()
        same_place = log.state.commits[-1].model_copy(update={"sha256": sha256(b"other weights")})
        log.append(lambda _: [same_place], at=AT)
    else:
        changes: dict[str, object] = {
            "roster": sha256(b"another roster"),
            "code": sha256(b"another recipe"),
            "config": sha256(b"another contract"),
            "revision": made.suite.revision + 1,
            "params": {"width": 9},
            "fail": {"ratio": "> 0.2"},
        }
        asked = replace(made, suite=made.suite.model_copy(update={what: changes[what]}))
    examine = Examine(asked.suite)
    work(worker(asked, "qc-2", examine=examine))
    assert examine.seen == ([40] if what == "checkpoint" else UPDATES)
    examinations = Examinations(made.store, made.experiment)
    receipts = [found.receipt for found in examinations.said().values()]
    assert len(receipts) == (6 if what == "checkpoint" else 10)
    assert None not in receipts


def test_two_runs_that_come_to_the_same_weights_ask_one_question(made: Made) -> None:
    # covers I3
    work(worker(made))
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.refresh()
    twin = RunLog(made.store, made.experiment, "twin", by="t")
    twin.append(lambda _: [event for entry in log.entries for event in entry.events], at=AT)
    examine = Examine(made.suite)
    turns = work(worker(replace(made, run="twin"), "qc-2", examine=examine))
    assert [turn.kind for turn in turns] == ["nothing"]
    assert examine.seen == []


def test_a_question_of_two_runs_has_the_name_of_the_first(made: Made) -> None:
    """Else its answer would depend on whose worker is faster."""
    # covers I3
    Examinations(made.store, made.experiment).ask(request(made, 0))
    log = RunLog(made.store, made.experiment, made.run, by="t")
    log.refresh()
    twin = RunLog(made.store, made.experiment, "twin", by="t")
    twin.append(lambda _: [event for entry in log.entries for event in entry.events], at=AT)
    assert worker(replace(made, run="twin")).turn().kind == "published"
    receipt = said(made, 0).receipt
    assert receipt is not None
    assert receipt.run == made.run


# --- who is at it -----------------------------------------------------------------------------------------------


def test_a_claim_that_is_alive_is_left_alone(made: Made) -> None:
    worker(made).turn()
    claim(made, 20, deadline_s=1000.0)
    examine = Examine(made.suite)
    turns = work(worker(made, examine=examine, clock=lambda: AT + 999.0))
    assert examine.seen == [10, 30, 40]
    assert turns[-1].kind == "nothing"
    assert said(made, 20).failures == ()


def test_a_claim_past_its_deadline_is_said_to_have_failed_and_then_taken(made: Made) -> None:
    # covers F16, F28
    worker(made).turn()
    claim(made, 20, deadline_s=60.0)
    late = worker(made, "qc-2", clock=lambda: AT + 60.0)
    assert [update_of(turn) for turn in work(late)] == [10, 20, 30, 40, None]
    found = said(made, 20)
    (failure,) = found.failures
    assert (failure.n, failure.kind, failure.worker, failure.said_by) == (1, "deadline", "other", "qc-2")
    assert "60 s" in failure.message
    assert [each.n for each in found.claims] == [1, 2]


def test_a_claim_whose_process_is_gone_is_taken_at_once(made: Made) -> None:
    # covers F14
    worker(made).turn()
    place = this_place().model_copy(update={"started": 1})
    claim(made, 10, place=place)
    assert update_of(worker(made, "qc-2").turn()) == 10
    (failure,) = said(made, 10).failures
    assert (failure.kind, failure.said_by) == ("lost", "qc-2")


def test_a_process_elsewhere_is_not_known_to_be_gone(made: Made) -> None:
    worker(made).turn()
    claim(made, 10, place=ELSEWHERE)
    assert update_of(worker(made, "qc-2").turn()) == 20


def test_a_race_for_a_claim_is_lost_quietly(made: Made) -> None:
    """Its list is older than the other one's claim."""
    at = worker(made)
    at.turn()
    at.turn()
    claim(made, 20)
    examine_30 = at.turn()
    assert (examine_30.kind, update_of(examine_30)) == ("published", 30)
    assert [each.worker for each in said(made, 20).claims] == ["other"]


def test_a_request_that_was_published_meanwhile_is_not_claimed_again(made: Made) -> None:
    # covers QC-22
    clock = [AT]
    worker(made).turn()
    claim(made, 10, worker="slow", at=AT, deadline_s=20.0)
    at = worker(made, "qc-2", clock=lambda: clock[0])
    assert update_of(at.turn()) == 20
    slow = worker(made, "slow", clock=lambda: AT + 20.0)
    assert update_of(slow.turn()) == 10  # it says of its own attempt that nothing came of it, and tries again
    clock[0] = AT + LOOK_AGAIN_S
    assert [update_of(turn) for turn in work(at)] == [30, 40, None]
    assert [each.n for each in said(made, 10).claims] == [1, 2]


def test_the_backlog_is_listed_again_after_a_while(made: Made) -> None:
    clock = [AT]
    steps = FaultStore(made.store)
    at = worker(made, store=steps, clock=lambda: clock[0])
    at.turn()
    at.turn()

    def listed() -> int:
        return sum("/qc/requests" in each for each in steps.fault.operations if each.startswith("list"))

    before = listed()
    at.turn()
    assert listed() == before
    clock[0] += LOOK_AGAIN_S + 1
    at.turn()
    assert listed() == before + 1


def test_what_is_at_hand_can_be_seen_and_is_let_go(made: Made) -> None:
    seen = []
    examine = Examine(made.suite, before=lambda request: seen.append(at.hand))
    at = worker(made, examine=examine)
    at.turn()
    (hand,) = seen
    assert hand is not None
    assert (hand.unit, hand.what, hand.n, hand.since) == (request(made, 0).id, "update 0", 1, AT)
    assert at.hand is None


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_is_no_failure_of_the_recipe(made: Made, end: type[BaseException]) -> None:
    def before(request: Request) -> None:
        raise end

    at = worker(made, examine=Examine(made.suite, before=before))
    with pytest.raises(end):
        at.turn()
    assert at.hand is None
    assert said(made, 0).failures == ()
    assert len(said(made, 0).claims) == 1


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_defect_is_confirmed_by_a_second_process_and_then_stops_everyone(made: Made) -> None:
    # covers F28
    worker(made).turn()
    examines = [Examine(made.suite, before=fails(defect)) for _ in range(3)]
    one, two, three = (worker(made, f"w{n}", examine=each) for n, each in enumerate(examines))
    failed = one.turn()
    assert (failed.kind, update_of(failed), failed.spent) == ("failed", 10, True)
    assert failed.detail == "ZeroDivisionError: division by zero; it is tried again"
    assert failed.failed == "recipe"
    waits = one.turn()
    assert waits.kind == "waiting"
    assert waits.detail == ("another process has to try update 10 first: ZeroDivisionError: division by zero")
    again = two.turn()
    assert (again.kind, update_of(again)) == ("failed", 10)
    assert again.detail is not None
    assert again.detail.endswith("everyone on this suite is paused")
    reason = paused(made)
    assert reason is not None
    assert reason.startswith("update 10 failed alike in 2 processes")
    assert said(made, 10).failures[0].signature[:12] in reason
    for at in (one, two, three):
        assert at.turn().kind == "paused"
    assert [each.seen for each in examines] == [[10], [10], []], "at most one unit for each process is wasted"


def confirm_a_defect(made: Made) -> list[list[int]]:
    """Update 10 fails alike in two processes; what each of them has looked at."""
    worker(made).turn()
    seen = []
    for n in range(2):
        examine = Examine(made.suite, before=fails(defect))
        turn = worker(made, f"w{n}", examine=examine).turn()
        assert turn.spent
        seen.append(examine.seen)
    return seen


def test_a_fresh_process_confirms_what_the_one_before_met(made: Made) -> None:
    """A pool of one: the process ends once it is spent, and another one follows it."""
    assert confirm_a_defect(made) == [[10], [10]]
    assert paused(made) is not None


def test_everyone_goes_on_once_a_person_has_cleared_it(made: Made) -> None:
    confirm_a_defect(made)
    at = worker(made, "w3", clock=lambda: AT + 5)
    assert at.turn().kind == "paused"
    resume(made.store, scope(made), cleared="repaired: the bins", person="mira", at=AT + 1)
    assert [update_of(turn) for turn in work(at)] == [10, 20, 30, 40, None]
    assert paused(made) is None
    assert len(said(made, 10).claims) == 3


def test_a_failure_of_one_process_alone_stops_nobody(made: Made) -> None:
    worker(made).turn()
    sick = worker(made, "sick", examine=Examine(made.suite, before=fails(defect)))
    assert sick.turn().kind == "failed"
    assert sick.turn().kind == "waiting"
    assert update_of(worker(made, "well").turn()) == 10
    assert paused(made) is None
    assert update_of(sick.turn()) == 20


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (lambda: MemoryError(), "memory"),
        (lambda: RuntimeError("CUDA out of memory"), "memory"),
        (lambda: StoreUnavailableError("no answer"), "infrastructure"),
    ],
)
def test_bad_luck_is_tried_again_and_then_parked(
    made: Made, error: Callable[[], Exception], kind: FailureKind
) -> None:
    # covers QC-21, F29
    worker(made).turn()
    examine = Examine(made.suite, before=fails(error, 20))
    turns = work(worker(made, "qc-2", examine=examine, tries=3))
    assert examine.seen == [10, 20, 20, 20, 30, 40]
    assert [turn.failed for turn in turns if turn.kind == "failed"] == [kind] * 3
    # but for a store that was away, a fresh process may fare better
    assert [turn.spent for turn in turns if turn.kind == "failed"] == [kind != "infrastructure"] * 3
    last = [turn.detail for turn in turns if turn.kind == "failed"][-1]
    assert last is not None
    assert last.endswith("parked until a person lets it be tried again")
    assert paused(made) is None
    assert turns[-1].kind == "nothing"


def test_a_parked_request_is_claimed_again_once_a_person_says_so(made: Made) -> None:
    # covers QC-22, GOLD-29
    worker(made).turn()
    work(worker(made, "qc-2", examine=Examine(made.suite, before=fails(MemoryError, 20))))
    assert said(made, 20).receipt is None
    ask = request(made, 20)
    event = Retried(request=ask.id, after=3, reason="a larger machine", person="mira")
    People(made.store, made.experiment).say(event, at=AT)
    turns = work(worker(made, "qc-3"))
    assert [update_of(turn) for turn in turns] == [20, None]
    found = said(made, 20)
    assert [each.n for each in found.claims] == [1, 2, 3, 4]
    assert len(found.failures) == 3
    assert found.receipt is not None


def test_a_corrupt_checkpoint_is_put_aside_by_two_and_the_rest_goes_on(made: Made) -> None:
    worker(made).turn()
    bad = fails(lambda: CorruptError("model.safetensors does not match its sha256"), 10)
    one = worker(made, "w1", examine=Examine(made.suite, before=bad))
    assert [update_of(turn) for turn in work(one)] == [10, 20, 30, 40, None]
    assert one.turn().kind == "nothing"
    two = worker(made, "w2", examine=Examine(made.suite, before=bad))
    assert [turn.kind for turn in work(two)] == ["failed", "nothing"]
    assert paused(made) is None
    third = Examine(made.suite)
    assert [turn.kind for turn in work(worker(made, "w3", examine=third))] == ["nothing"]
    assert third.seen == []


def test_other_data_are_a_defect_of_everyone(made: Made) -> None:
    before = fails(lambda: GateError("12 images are not those of the roster", field="dataset"))
    for n in range(2):
        turn = worker(made, f"w{n}", examine=Examine(made.suite, before=before)).turn()
        assert turn.failed == "data"
    assert paused(made) is not None


def test_a_kill_between_a_failure_and_its_pause_leaves_no_gap(made: Made) -> None:
    """Whoever looks next pauses what two processes have confirmed."""
    # covers F2
    worker(made).turn()
    examinations = Examinations(made.store, made.experiment)
    for n, name in ((1, "w1"), (2, "w2")):
        claim(made, 10, n=n, worker=name)
        failure = Failure(
            request=request(made, 10).id,
            n=n,
            kind="recipe",
            signature=sha256(b"same"),
            message="it raised",
            worker=name,
            said_by=name,
            at=AT,
        )
        assert examinations.fail(failure)
    examine = Examine(made.suite)
    turn = worker(made, "w3", examine=examine).turn()
    assert (turn.kind, update_of(turn)) == ("paused", 10)
    assert paused(made) is not None
    assert examine.seen == []


def test_what_others_have_said_of_a_late_attempt_stays(made: Made) -> None:
    """Its own word is not kept, so that nothing follows from it."""
    # covers F16

    def overtaken(request: Request) -> None:
        if worker(made, "qc-2", clock=lambda: AT + 61.0, examine=broken).turn().failed is not None:
            raise ZeroDivisionError

    worker(made).turn()
    broken = Examine(made.suite, before=fails(defect))
    slow = worker(made, "slow", examine=Examine(made.suite, before=overtaken), deadline_s=60.0)
    turn = slow.turn()
    assert turn.kind == "failed"
    assert (turn.detail or "").endswith("others said so before")
    assert [failure.kind for failure in said(made, 10).failures] == ["deadline", "recipe"]
    assert paused(made) is None


# --- one answer ---------------------------------------------------------------------------------------------------


def test_a_late_receipt_with_the_same_bytes_is_no_news(made: Made) -> None:
    # covers F16, I3
    def overtaken(request: Request) -> None:
        other = worker(made, "qc-2", clock=lambda: AT + 61.0)
        assert other.turn().kind == "published"

    slow = worker(made, examine=Examine(made.suite, before=overtaken), deadline_s=60.0)
    turn = slow.turn()
    assert (turn.kind, update_of(turn)) == ("already", 0)
    assert len(said(made, 0).took) == 2
    assert said(made, 0).conflicts == ()
    assert paused(made) is None


def make_a_conflict(made: Made) -> Examine:
    """A slow process and a fast one answer the question of update 10 differently; the examination of the slow one."""

    def overtaken(request: Request) -> None:
        if request.update == 10:
            assert update_of(worker(made, "qc-2", clock=lambda: AT + 61.0).turn()) == 10

    salted = Examine(made.suite, salt="another machine", before=overtaken)
    worker(made).turn()
    turn = worker(made, examine=salted, deadline_s=60.0).turn()
    assert (turn.kind, update_of(turn)) == ("conflict", 10)
    return salted


def test_a_late_receipt_with_other_bytes_is_kept_whole_and_stops_everyone(made: Made) -> None:
    # covers F16, I2, I3
    salted = make_a_conflict(made)
    found = said(made, 10)
    (conflict,) = found.conflicts
    assert found.receipt is not None
    assert (conflict.n, conflict.receipt, conflict.differs) == (1, found.receipt.digest, ("metrics",))
    reference = said(made, 0).receipt
    pictures = {found.receipt.artifacts[0].name: b"PNG of " + request(made, 10).checkpoint.encode() * 20}
    other = salted.receipt(request(made, 10), reference, pictures)
    assert Receipt.model_validate_json(other.to_bytes(), by_alias=True).plain() == conflict.other
    assert paused(made) == (
        f"request {request(made, 10).id[:12]} of update 10 has two answers, which differ in metrics"
    )
    assert worker(made, "qc-3").turn().kind == "paused"


def test_a_conflict_that_a_person_has_cleared_stops_nobody_again(made: Made) -> None:
    make_a_conflict(made)
    resume(made.store, scope(made), cleared="one model of machine only", person="mira", at=AT + 1)
    assert [update_of(turn) for turn in work(worker(made, "qc-4"))] == [20, 30, 40, None]


def test_two_answers_are_noticed_even_if_one_never_became_a_receipt(made: Made) -> None:
    """The first attempt was killed between what it took and its receipt; the second one finds other bytes."""

    # covers I3
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    worker(made).turn()
    receipt = layout.qc_receipt(made.experiment, request(made, 10).id)
    steps = FaultStore(MemoryStore(dict(objects(made))))
    worker(made, "dry", store=steps).turn()
    at_receipt = 1 + steps.fault.operations.index(f"put_new {receipt}")
    doomed = FaultStore(made.store, Fault(kill, at=at_receipt))
    with pytest.raises(Killed):
        worker(made, "qc-1", store=doomed, examine=Examine(made.suite, salt="x"), deadline_s=60.0).turn()
    second = worker(made, "qc-2", clock=lambda: AT + 61.0)
    assert [turn.kind for turn in work(second)] == ["published", "conflict", "paused"]
    found = said(made, 10)
    assert found.receipt is not None
    assert found.disputed == (1,)
    assert paused(made) is not None


# --- people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["all", "role:qc", "experiment:digits", "contract"])
def test_nothing_is_started_while_a_pause_holds(made: Made, which: str) -> None:
    # covers I7
    name = scope(made) if which == "contract" else which
    pause(made.store, name, reason="the racks move", person="mira", at=AT)
    examine = Examine(made.suite)
    at = worker(made, examine=examine)
    turn = at.turn()
    assert (turn.kind, turn.detail) == ("paused", "paused by mira: the racks move")
    resume(made.store, name, cleared="they have moved", person="mira", at=AT)
    assert update_of(at.turn()) == 0
    pause(made.store, name, reason="again", person="mira", at=AT)
    assert at.turn().kind == "paused", "asked before each unit"
    assert examine.seen == [0]


def test_a_pause_of_training_does_not_stop_qc(made: Made) -> None:
    pause(made.store, "role:train", reason="r", person="mira", at=AT)
    assert worker(made).turn().kind == "published"


def test_a_cancelled_experiment_is_not_examined(made: Made) -> None:
    cancel(made.store, made.experiment, reason="wrong data", person="mira", at=AT)
    turn = worker(made).turn()
    assert (turn.kind, turn.detail) == ("paused", "cancelled by mira: wrong data")


def test_what_people_have_said_may_be_read_by_others(made: Made) -> None:
    asked = []

    def acts() -> Acts:
        asked.append(1)
        return Acts()

    at = Worker(
        made.store,
        made.experiment,
        made.run,
        made.suite,
        worker(made)._rules,
        worker="qc-9",
        examine=Examine(made.suite),
        acts=acts,
    )
    work(at)
    assert len(asked) == 6


# --- what an examination may not give -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"request": sha256(b"x")},
        {"checkpoint": sha256(b"x")},
        {"suite": sha256(b"x")},
        {"roster": sha256(b"x")},
        {"code": sha256(b"x")},
        {"config": sha256(b"x")},
        {"revision": 99},
        {"update": 11},
        {"run": "other"},
        {"experiment": "other"},
        {"reference": sha256(b"x")},
        {"strata": {"0": Tally(requested=1, scored=1, failed=0, missing=0)}},
        {"pictures": {"panels.png": b"another picture"}},
        {"pictures": {}},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_receipt_that_answers_something_else_is_not_published(made: Made, change: dict[str, Any]) -> None:
    # covers QC-19, I3, I8
    class Wrong(Examine):
        def __call__(self, request: Request, key: str, reference: Receipt | None) -> Examined:
            found = super().__call__(request, key, reference)
            if "pictures" in change:
                return replace(found, pictures=change["pictures"])
            return replace(found, receipt=found.receipt.model_copy(update=change))

    turn = worker(made, examine=Wrong(made.suite)).turn()
    assert turn.kind == "failed"
    assert said(made, 0).receipt is None
    assert not any("/receipts/" in key or "/artifacts/" in key for key in objects(made))


# --- a store that does not answer -----------------------------------------------------------------------------------


def lost(error: type[Exception]) -> Callable[[], None]:
    def act() -> None:
        raise error("no answer")

    return act


def steps_of_a_unit(trained: Made) -> list[str]:
    """The operations of examining update 0, by name."""
    steps = FaultStore(MemoryStore(dict(objects(trained))))
    worker(trained, store=steps).turn()
    return steps.fault.operations


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [UnknownOutcomeError, StoreUnavailableError])
def test_a_lost_reply_at_any_write_changes_nothing(trained: Made, when: Any, error: type[Exception]) -> None:
    # covers F5, I13
    clean = MemoryStore(dict(objects(trained)))
    worker(trained, store=clean).turn()
    writes = [i for i, step in enumerate(steps_of_a_unit(trained), start=1) if step.startswith("put_new")]
    assert len(writes) == 5, "request, claim, picture, what it took, receipt"
    for at in writes:
        store = MemoryStore(dict(objects(trained)))
        fault = Fault(lost(error), at=at, when=when)
        turn = worker(trained, store=FaultStore(store, fault)).turn()
        assert fault.fired
        assert (turn.kind, update_of(turn)) in [("published", 0), ("already", 0)]
        same = {key: data for key, data in store.objects.items() if "/took/" not in key}
        assert same == {key: data for key, data in clean.objects.items() if "/took/" not in key}


def test_a_store_that_stays_away_is_reported_and_what_was_in_hand_is_tried_again(trained: Made) -> None:
    # covers I13, F6
    operations = steps_of_a_unit(trained)
    for at, step in enumerate(operations, start=1):
        store = MemoryStore(dict(objects(trained)))
        fault = Fault(lost(StoreUnavailableError), at=at, forever=True)
        failing = FaultStore(store, fault)
        process = worker(trained, store=failing)
        try:
            turn = process.turn()
        except StoreUnavailableError:
            assert not step.startswith("put_new") or "/requests/" in step or "/claims/" in step
        else:
            assert turn.kind == "failed"
            assert turn.failed == "infrastructure"
            assert "not written" in (turn.detail or "")
        failing.fault = Fault()
        assert [update_of(turn) for turn in work(process)] == [*UPDATES, None], step
        made = replace(trained, store=store)
        assert [said(made, update).receipt is not None for update in UPDATES] == [True] * 5
        assert all(failure.kind == "infrastructure" for failure in said(made, 0).failures)
        assert len(said(made, 0).claims) <= 2


def test_waiting_for_a_store_is_bounded() -> None:
    # covers F6
    assert len(WAITS_S) <= 6
    assert sum(WAITS_S) <= INSISTS_S <= 60.0


def test_a_damaged_record_is_not_worked_around(made: Made) -> None:
    work(worker(made), turns=100)
    ask = request(made, 10)
    objects(made)[layout.qc_receipt(made.experiment, ask.id)] = b"{}"
    with pytest.raises(CorruptError):
        worker(made, "qc-2").turn()
