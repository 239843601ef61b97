"""`check` and examinations: every seeded corruption is found, no false alarm, and a crash leaves at most orphans."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from makeqc import QcMaker, failed, make_trained
from qchooks import AT, Examine, Made, backlog, work, worker

from raykit.cli.checklook import report_lines
from raykit.errors import CorruptError
from raykit.ids import canonical, parse_json, sha256
from raykit.records import (
    Conflict,
    ExperimentEntry,
    Failure,
    Pinned,
    Receipt,
    Record,
    Request,
    Retried,
    Reviewed,
    Suite,
    Took,
)
from raykit.store import layout
from raykit.store.attempts import sealed
from raykit.store.base import Listed
from raykit.store.check import Finding, Report, check
from raykit.store.log import Log
from raykit.store.place import this_place
from raykit.store.qc import Examinations
from raykit.testing import MemoryStore
from raykit.testing.invariants import check_invariants


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """An examined run of everything: attempts that failed and were lost, a conflict, reviews, a retry and a pin."""
    store = MemoryStore()
    made = backlog(store)
    worker(made, "qc-1").turn()
    lose(made, 10, n=1, worker="gone")
    unlucky = worker(made, "qc-2", examine=Examine(made.suite, before=out_of_memory), clock=lambda: AT + 700)
    assert unlucky.turn().kind == "failed"
    overtaken = worker(made, "slow", examine=Examine(made.suite, salt="x", before=overtake(made)))
    assert overtaken.turn().kind == "conflict"
    say(made, *acts(made))
    return store.objects


def out_of_memory(request: Request) -> None:
    raise MemoryError


def overtake(made: Made) -> Callable[[Request], None]:
    """Someone else is faster at that request, because this one is late; and goes on to the end."""

    def before(request: Request) -> None:
        work(worker(made, "fast", tries=9, clock=lambda: AT + 2000))

    return before


def lose(made: Made, update: int, *, n: int, worker: str) -> None:
    """Claim, and say no more."""
    examinations = Examinations(made.store, made.experiment)
    request = request_of(made, update)
    examinations.ask(request)
    place = this_place().model_copy(update={"started": 1})
    assert examinations.claim(request.id, n, worker=worker, place=place, at=AT, deadline_s=60.0)


def request_of(made: Made, update: int) -> Request:
    maker = QcMaker(made.store)
    maker.suite = made.suite
    return maker.request(update)


def acts(made: Made) -> list[Record]:
    """What people say of it."""
    examinations = Examinations(made.store, made.experiment)
    receipts = [found.receipt for found in examinations.said().values() if found.receipt is not None]
    assert len(receipts) == 5
    request = request_of(made, 10)
    return [
        Reviewed(
            receipts=tuple(receipt.digest for receipt in receipts),
            verdict="passed",
            note="n",
            person="mira",
        ),
        Retried(request=request.id, after=1, reason="a larger machine", person="mira"),
        Pinned(run="main", update=10, manifest=request.checkpoint, reason="the paper's", person="mira"),
    ]


def say(made: Made, *events: Record) -> None:
    log = Log(made.store, layout.experiment_log(made.experiment), ExperimentEntry, by="mira")
    log.append(lambda entries: events, at=AT + 3000)


def kind_of(key: str) -> str | None:
    known = layout.known(key)
    assert known is not None
    return known.kind if known.kind.startswith("qc-") and known.kind not in layout.DERIVED else None


def by_kind(objects: dict[str, bytes]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in sorted(objects):
        kind = kind_of(key)
        if kind is not None:
            found.setdefault(kind, []).append(key)
    return found


def findings(objects: dict[str, bytes], *, read_data: bool = True) -> tuple[Finding, ...]:
    return check(MemoryStore(objects), read_data=read_data).findings


# --- no false alarm -------------------------------------------------------------------------------------------


def test_a_clean_root_has_no_findings(objects: dict[str, bytes]) -> None:
    # covers I12
    assert {kind: len(keys) for kind, keys in by_kind(objects).items()} == {
        "qc-artifact": 5,
        "qc-claim": 8,
        "qc-conflict": 1,
        "qc-failure": 3,
        "qc-receipt": 5,
        "qc-request": 5,
        "qc-roster": 1,
        "qc-suite": 1,
        "qc-took": 6,
    }
    for read_data in (False, True):
        report = check(MemoryStore(dict(objects)), read_data=read_data)
        assert (report.findings, report.orphans, report.unknown) == ((), (), ())
        assert (report.counts["requests"], report.counts["receipts"]) == (5, 5)


@pytest.mark.parametrize("seed", range(8))
def test_no_false_alarm_on_what_workers_and_people_do(seed: int) -> None:
    # covers I12
    rng = random.Random(seed)
    made = backlog(MemoryStore(), updates=10 * rng.randrange(1, 6))
    crew = [
        worker(made, f"w{n}", examine=Examine(made.suite, before=unlucky(rng)), clock=late(rng))
        for n in range(3)
    ]
    for _ in range(rng.randrange(40)):
        rng.choice(crew).turn()
        report = check(MemoryStore(dict(made.store.objects)), read_data=rng.random() < 0.5)  # type: ignore[attr-defined]
        assert report.findings == ()
        assert report.orphans == ()


def unlucky(rng: random.Random) -> Callable[[Request], None]:
    def before(request: Request) -> None:
        if rng.random() < 0.3:
            raise MemoryError

    return before


def late(rng: random.Random) -> Callable[[], float]:
    return lambda: AT + rng.random() * 3000


def test_receipts_that_failed_and_reviews_that_say_so_are_whole() -> None:
    maker = make_trained(QcMaker(MemoryStore()))
    maker.examine(0)
    maker.examine(10, ratio=0.41, findings=[failed()], pictures={"panels.png": b"PNG"})
    maker.review(0)
    maker.review(10, verdict="failed")
    check_invariants(maker.store)
    assert check(maker.store, read_data=True).orphans == ()


def test_a_request_that_nobody_has_answered_is_no_fault() -> None:
    # covers QC-19, QC-20
    maker = QcMaker(MemoryStore())
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.ask(0)
    maker.fail_attempt(0)
    maker.take(0)
    report = check(maker.store, read_data=True)
    assert (report.findings, report.orphans) == ((), ())


@pytest.mark.parametrize("left", ["qc-receipt", "qc-took"])
def test_what_a_killed_attempt_leaves_is_an_orphan(objects: dict[str, bytes], left: str) -> None:
    # covers F2, GOLD-29
    last = request_at(objects, 40)
    gone = [key for key in objects if last in key and kind_of(key) in {"qc-receipt", left}]
    before = {key: data for key, data in objects.items() if key not in gone and "/log" not in key[-30:]}
    keep = {key: data for key, data in objects.items() if key.startswith("experiments/digits/log/")}
    (first, *_) = sorted(keep)
    report = check(MemoryStore({**before, first: objects[first], **runs(objects)}), read_data=True)
    assert report.findings == ()
    orphans = {kind_of(listed.key) for listed in report.orphans}
    assert orphans == ({"qc-took", "qc-artifact"} if left == "qc-receipt" else {"qc-artifact"})


@pytest.mark.parametrize("fault", ["damaged", "gone", "gone beside a damaged one", "of no request"])
def test_what_belongs_to_a_damaged_examination_is_not_called_harmless(fault: str) -> None:
    # covers F24, I12
    maker = make_trained(QcMaker(MemoryStore()))
    for update in (0, 10):
        maker.examine(update, pictures={"panels.png": b"PNG %d" % update})
    maker.review(0, 10)
    objects = dict(maker.store.objects)  # type: ignore[attr-defined]
    key = layout.qc_receipt("digits", maker.request(10).id)
    if fault == "damaged":
        objects[key] = objects[key].replace(b"passed", b"passes")
    elif fault == "of no request":
        del objects[layout.qc_request("digits", maker.request(10).id)]
        del objects[key]
    else:
        del objects[key]
    if fault == "gone beside a damaged one":
        objects[layout.qc_receipt("digits", maker.request(0).id)] = b"{}"
    report = check(MemoryStore(objects), read_data=True)
    assert report.findings
    assert report.orphans == ()
    of_it = {each.key for each in report.stranded if maker.request(10).id in each.key}
    assert {kind_of(each) for each in of_it} == {"qc-artifact", "qc-took"}
    text = "\n".join(report_lines(report))
    assert "part of something that is damaged or gone" in text
    assert "harmless" not in text


def test_a_damaged_examination_says_what_helps(objects: dict[str, bytes]) -> None:
    last = request_at(objects, 40)
    for kind in ("qc-receipt", "qc-claim", "qc-suite", "qc-artifact"):
        (key, *_) = [each for each in by_kind(objects)[kind] if kind == "qc-suite" or last in each]
        kept = Examinations(MemoryStore({**objects, key: b"{}"}), "digits")
        receipt = Receipt.from_bytes(objects[layout.qc_receipt("digits", last)], "receipt")
        with pytest.raises(CorruptError) as caught:
            kept.suite(receipt.suite)
            kept.said()
            kept.artifact(receipt, receipt.artifacts[0])
        assert caught.value.remedy == "restore the store from a copy, then run `raykit check --read-data`", (
            kind
        )


def request_at(objects: dict[str, bytes], update: int) -> str:
    requests = (Request.from_bytes(objects[key], key) for key in by_kind(objects)["qc-request"])
    return next(request.id for request in requests if request.update == update)


def runs(objects: dict[str, bytes]) -> dict[str, bytes]:
    return {key: data for key, data in objects.items() if "/runs/" in key}


def test_a_frozen_suite_that_no_plan_has_locked_is_an_orphan(objects: dict[str, bytes]) -> None:
    key = next(iter(by_kind(objects)["qc-suite"]))
    other = Suite.from_bytes(objects[key], key).model_copy(update={"owner": "bea"})
    more = {layout.qc_suite("digits", other.digest): other.to_bytes()}
    report = check(MemoryStore({**objects, **more}), read_data=True)
    assert report.ok
    assert [listed.key for listed in report.orphans] == list(more)


def test_a_store_that_changes_meanwhile_is_no_fault() -> None:
    """Everything after the listing is newer than the listing."""

    class Moving(MemoryStore):
        moved = False

        def list(self, prefix: str) -> Iterator[Listed]:
            found = list(super().list(prefix))
            if prefix == "" and not self.moved:
                self.moved = True
                work(worker(made, "meanwhile"))
                say(made, *acts(made)[:1])
            return iter(found)

    store = Moving()
    made = backlog(store)
    worker(made).turn()
    report = check(store, read_data=True)
    assert store.moved
    assert (report.findings, report.orphans) == ((), ())


# --- every corruption -----------------------------------------------------------------------------------------

Corrupt = Callable[[dict[str, bytes], str], Iterator[dict[str, bytes]]]


def flip(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    data, rng = objects[key], random.Random(key)
    places = {0, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(12))}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.randrange(8)
        yield {**objects, key: bytes(changed)}


def truncate(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for length in {0, 1, len(objects[key]) // 2, len(objects[key]) - 1}:
        yield {**objects, key: objects[key][:length]}
    yield {**objects, key: objects[key] + b"\n"}


def swap(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for other in by_kind(objects)[kind_of(key) or ""]:
        if objects[other] != objects[key]:
            yield {**objects, key: objects[other], other: objects[key]}


def stale(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    for other in by_kind(objects)[kind_of(key) or ""]:
        if objects[other] != objects[key]:
            yield {**objects, key: objects[other]}


def delete(objects: dict[str, bytes], key: str) -> Iterator[dict[str, bytes]]:
    yield {other: data for other, data in objects.items() if other != key}


@pytest.mark.parametrize("corrupt", [flip, truncate, swap, stale, delete])
def test_every_corruption_is_found(objects: dict[str, bytes], corrupt: Corrupt) -> None:
    # covers F9, I12
    tried = 0
    for kind, keys in by_kind(objects).items():
        for key in keys:
            for changed in corrupt(objects, key):
                tried += 1
                found = findings(changed)
                assert found or (corrupt is delete and may_be_gone(kind, key, objects)), (
                    f"{corrupt.__name__} of {key}"
                )
    print(corrupt.__name__, tried)
    assert tried >= 20


def may_be_gone(kind: str, key: str, objects: dict[str, bytes]) -> bool:
    """The word on a request's last attempt at making the same bytes once more, which nothing follows."""
    if kind != "qc-conflict":
        return False
    took = key.replace("/conflicts/", "/took/")
    return took in objects  # it still says that the attempt made another receipt


def test_a_copy_beside_the_store_s_own_objects_is_named(objects: dict[str, bytes]) -> None:
    # covers F9
    for kind, keys in by_kind(objects).items():
        key = keys[0]
        folder, _, name = key.rpartition("/")
        copies = [f"{folder}/copy.of.{name}", key.replace("digits", "other")]
        if kind in ("qc-suite", "qc-roster", "qc-request", "qc-receipt"):
            copies.append(f"{folder}/{sha256(b'another')}.json")
        for copy in copies:
            report = check(MemoryStore({**objects, copy: objects[key]}), read_data=True)
            assert not report.ok or copy in named(report), copy


def named(report: Report) -> set[str]:
    found = {finding.key for finding in report.findings}
    return found | {listed.key for listed in (*report.orphans, *report.unknown)}


def test_one_fault_is_not_told_a_hundred_times(objects: dict[str, bytes]) -> None:
    for keys in by_kind(objects).values():
        for key in keys:
            for changed in itertools.chain(delete(objects, key), truncate(objects, key)):
                assert len(findings(changed)) <= 3, key


def test_pictures_are_read_only_with_read_data(objects: dict[str, bytes]) -> None:
    key = by_kind(objects)["qc-artifact"][0]
    changed = {**objects, key: objects[key][:-1] + b"?"}
    assert findings(changed, read_data=False) == ()
    (finding,) = findings(changed)
    assert (finding.key, finding.invariant) == (key, "I2")
    shorter = {**objects, key: objects[key][:-1]}
    (finding,) = findings(shorter, read_data=False)
    assert finding.rule == "a picture has the size that its receipt says"


# --- what a faulty writer would leave -----------------------------------------------------------------------------


@pytest.fixture
def made() -> Made:
    """A run of which update 0 and 10 are examined."""
    made = backlog(MemoryStore())
    at = worker(made)
    at.turn()
    at.turn()
    return made


def rule_of(made: Made) -> list[str]:
    return sorted({finding.rule for finding in check(made.store, read_data=True).findings})


def publish(made: Made, at: int, **change: Any) -> Receipt:
    """Publish as a faulty worker would, without a look at what it publishes."""
    examinations = Examinations(made.store, made.experiment)
    request = request_of(made, at)
    examinations.ask(request)
    first = examinations.receipt(request_of(made, 0).id)
    receipt = Examine(made.suite).receipt(request, first, {}).model_copy(update=change)
    assert examinations.claim(request.id, 1, worker="faulty", place=this_place(), at=AT, deadline_s=60.0)
    took = Took(
        request=request.id,
        n=1,
        worker="faulty",
        receipt=receipt.digest,
        took_ms=1,
        peak_bytes=1,
        at=AT,
    )
    assert examinations.publish(receipt, {}, took) == "written"
    return receipt


@pytest.mark.parametrize(
    "change",
    [
        {"checkpoint": sha256(b"x")},
        {"suite": sha256(b"x")},
        {"roster": sha256(b"x")},
        {"code": sha256(b"x")},
        {"config": sha256(b"x")},
        {"revision": 2},
        {"update": 30},
        {"run": "other"},
        {"experiment": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_receipt_of_another_question_is_found(made: Made, change: dict[str, Any]) -> None:
    # covers I3, I8, I12
    publish(made, 20, **change)
    assert "a receipt is bound to what was asked" in rule_of(made)


def test_a_receipt_that_is_held_against_the_wrong_one_is_found(made: Made) -> None:
    # covers I3, I12
    rule = "a receipt is held against the one at update 0"
    second = Examinations(made.store, made.experiment).receipt(request_of(made, 10).id)
    assert second is not None
    publish(made, 20, reference=second.digest)
    assert rule_of(made) == [rule]
    publish(made, 30, reference=None)
    publish(made, 40, reference=sha256(b"none"))
    found = [f for f in check(made.store, read_data=True).findings if f.rule == rule]
    assert len(found) == 3


def test_a_receipt_that_does_not_count_its_roster_is_found(made: Made) -> None:
    # covers I12
    whole = Examine(made.suite).receipt(request_of(made, 20), None, {})
    fewer = dict(list(whole.strata.items())[:2])
    publish(made, 20, strata=fewer)
    assert rule_of(made) == ["a receipt counts every unit of the roster"]


def test_a_pass_against_its_own_numbers_is_found(made: Made) -> None:
    # covers QC-24, I8, I12
    whole = Examine(made.suite).receipt(request_of(made, 20), None, {})
    ratio = whole.metrics["ratio"].model_copy(update={"value": 0.9})
    publish(made, 20, metrics={"ratio": ratio})
    (finding,) = check(made.store, read_data=True).findings
    assert finding.rule == "a failed check is never treated as passed"
    assert "ratio is 0.9" in finding.found


def test_a_pass_with_units_that_were_not_scored_is_found(made: Made) -> None:
    # covers QC-24, I12
    whole = Examine(made.suite).receipt(request_of(made, 20), None, {})
    strata = dict(whole.strata)
    strata["0"] = strata["0"].model_copy(update={"scored": 1, "failed": 1})
    units = whole.units.model_copy(update={"scored": 5, "failed": 1})
    publish(made, 20, strata=strata, units=units, failed_units=("0-1",))
    assert rule_of(made) == ["a failed check is never treated as passed"]


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        (
            Reviewed(receipts=(sha256(b"x"),), verdict="passed", note="n", person="mira"),
            "a review is of receipts that are there",
        ),
        (
            Retried(request=sha256(b"x"), after=1, reason="r", person="mira"),
            "what a person lets be tried again was tried",
        ),
        (
            Pinned(run="main", update=10, manifest=sha256(b"x"), reason="r", person="mira"),
            "what a person keeps is a checkpoint",
        ),
    ],
)
def test_what_people_name_is_there(made: Made, event: Record, rule: str) -> None:
    # covers I8, I12
    say(made, event)
    assert rule_of(made) == [rule]


def test_who_made_a_receipt_does_not_review_it(made: Made) -> None:
    # covers I8, QC-25, I12
    receipt = Examinations(made.store, made.experiment).receipt(request_of(made, 10).id)
    assert receipt is not None
    say(made, Reviewed(receipts=(receipt.digest,), verdict="passed", note="n", person="qc-1"))
    assert rule_of(made) == ["a reviewer is another than who made the receipt"]


def test_a_failed_receipt_is_never_reviewed_as_passed(made: Made) -> None:
    # covers QC-24, I8, I12
    receipt = publish(made, 20, verdict="failed", findings=(failed(),))
    say(made, Reviewed(receipts=(receipt.digest,), verdict="failed", note="n", person="mira"))
    assert rule_of(made) == []
    say(made, Reviewed(receipts=(receipt.digest,), verdict="passed", note="n", person="mira"))
    assert rule_of(made) == ["a failed check is never reviewed as passed"]


def attempt_key(made: Made, kind: str, update: int, n: int) -> str:
    return layout.qc_attempt(made.experiment, kind, request_of(made, update).id, n)


def failure(made: Made, update: int, n: int, worker: str) -> Failure:
    return Failure(
        request=request_of(made, update).id,
        n=n,
        kind="lost",
        signature=sha256(b"lost"),
        message="gone",
        worker=worker,
        said_by=worker,
        at=AT,
    )


def test_attempts_follow_each_other(made: Made) -> None:
    # covers I3, I12
    rule = "an attempt begins once the one before has failed"
    examinations = Examinations(made.store, made.experiment)
    lose(made, 20, n=1, worker="a")
    lose(made, 20, n=2, worker="b")
    assert rule_of(made) == [rule], "nobody has said that the first one failed"
    assert examinations.fail(failure(made, 20, 1, "a"))
    assert rule_of(made) == []
    lose(made, 20, n=4, worker="d")
    assert rule_of(made) == [rule]


def test_only_who_has_claimed_an_attempt_ends_it(made: Made) -> None:
    # covers I3, I12
    rule = "only who has claimed an attempt ends it"
    lose(made, 20, n=1, worker="a")
    examinations = Examinations(made.store, made.experiment)
    assert examinations.fail(failure(made, 20, 1, "b"))
    assert rule_of(made) == [rule]
    assert examinations.fail(failure(made, 20, 2, "a"))
    assert len(check(made.store, read_data=True).findings) == 2


def test_a_conflict_is_what_it_says(made: Made) -> None:
    # covers I3, I12
    other = Examine(made.suite, salt="x").receipt(request_of(made, 10), None, {})
    first = Examinations(made.store, made.experiment).receipt(request_of(made, 10).id)
    assert first is not None

    def kept(**change: Any) -> list[str]:
        base = {
            "request": first.request,
            "n": 1,
            "worker": "qc-1",
            "receipt": first.digest,
            "differs": ("artifacts", "metrics", "reference", "unjudged"),
            "other": other.plain(),
        }
        conflict = Conflict.model_validate(base | change)
        objects = dict(made.store.objects)  # type: ignore[attr-defined]
        objects[attempt_key(made, "conflicts", 10, 1)] = sealed(conflict)
        return sorted({finding.rule for finding in findings(objects)})

    assert kept(receipt=sha256(b"x")) == ["a conflict is with the receipt that decided"]
    assert kept(differs=("metrics",)) == ["a conflict is with the receipt that decided"]
    assert kept(other={"schema": 1}) == ["a conflict holds the other receipt whole"]
    assert kept(worker="qc-9", other=other.plain(), differs=("x",)) == [
        "a conflict is with the receipt that decided",
        "only who has claimed an attempt ends it",
    ]


def test_requests_are_about_checkpoints_of_their_runs(made: Made) -> None:
    # covers I3, I12, QC-15
    request = request_of(made, 20)
    for change in ({"run": "other"}, {"update": 21}, {"checkpoint": sha256(b"x")}):
        other = request.model_copy(update=change)
        objects = dict(made.store.objects)  # type: ignore[attr-defined]
        objects[layout.qc_request(made.experiment, other.id)] = other.to_bytes()
        (finding,) = findings(objects)
        assert finding.rule == "a request is about a checkpoint of its run"


def test_a_suite_of_another_experiment_is_found(made: Made) -> None:
    # covers I3, I12
    suite = made.suite.model_copy(update={"experiment": "other"})
    Examinations(made.store, made.experiment).freeze(suite, made.roster)
    asked = request_of(made, 20).model_copy(update={"suite": suite.digest})
    Examinations(made.store, made.experiment).ask(asked)
    assert rule_of(made) == ["a suite is of its experiment"]


def test_a_record_that_is_not_canonical_is_found(made: Made) -> None:
    # covers I12
    for key in (
        layout.qc_receipt(made.experiment, request_of(made, 10).id),
        layout.qc_request(made.experiment, request_of(made, 10).id),
    ):
        objects = dict(made.store.objects)  # type: ignore[attr-defined]
        objects[key] = objects[key].replace(b'":', b'": ', 1)
        assert parse_json(objects[key], key)
        assert key in {finding.key for finding in findings(objects)}
    claim = attempt_key(made, "claims", 10, 1)
    objects = dict(made.store.objects)  # type: ignore[attr-defined]
    body = parse_json(objects[claim], claim)
    body.pop("self_sha256")
    body["worker"] = "qc-2"
    objects[claim] = canonical(body)
    (finding,) = findings(objects)
    assert "has changed since it was written" in finding.found
