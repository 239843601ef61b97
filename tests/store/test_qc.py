"""Examinations on every store: asked once, claimed by one, answered once; lost replies and other people's bytes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
from makeqc import make_examined
from makerun import ELSEWHERE
from qchooks import AT, Examine, Made, backlog, work, worker

from raykit.errors import ConflictError, CorruptError, NotFoundError, UnknownOutcomeError
from raykit.ids import sha256
from raykit.pauses import Acts
from raykit.qc.backlog import Wanted
from raykit.records import Artifact, Claim, Failure, Receipt, Request, Roster, Suite, Took
from raykit.store import layout
from raykit.store.attempts import differing, read_attempt, sealed
from raykit.store.base import Data, ObjectStore, Stored
from raykit.store.local import LocalStore
from raykit.store.qc import Examinations, miscounted, read_backlog, unbound
from raykit.testing import Fault, FaultStore, MemoryStore
from raykit.testing.invariants import check_invariants

MakeStore = Callable[..., ObjectStore]


@pytest.fixture(scope="module")
def trained() -> Made:
    return backlog(MemoryStore())


@pytest.fixture(params=["memory", "local", "moto", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "local":
        return LocalStore(tmp_path)
    make = request.getfixturevalue("make_s3")
    return make(request.getfixturevalue(request.param).endpoint)  # type: ignore[no-any-return]


def copied(made: Made, store: ObjectStore) -> Made:
    """The same run in another store."""
    for listed in made.store.list(""):
        store.put_new(listed.key, made.store.get(listed.key))
    return Made(store, made.experiment, made.run, made.suite, made.roster)


def asked(made: Made, n: int = 0, *, suite: str | None = None) -> Request:
    return Request(
        experiment="digits",
        run="main",
        update=n,
        checkpoint=sha256(f"{n}".encode()),
        suite=suite or made.suite.digest,
    )


def claim(at: Examinations, request: Request, n: int, worker: str = "qc-1") -> Claim | None:
    return at.claim(request.id, n, worker=worker, place=ELSEWHERE, at=AT, deadline_s=60.0)


def failure(request: Request, n: int, said_by: str = "qc-1") -> Failure:
    return Failure(
        request=request.id,
        n=n,
        kind="lost",
        signature=sha256(b"lost"),
        message="gone",
        worker="qc-1",
        said_by=said_by,
        at=AT,
    )


def took(receipt: Receipt, n: int, worker: str = "qc-1") -> Took:
    return Took(
        request=receipt.request,
        n=n,
        worker=worker,
        receipt=receipt.digest,
        took_ms=1,
        peak_bytes=1,
        at=AT,
    )


def answer(made: Made, request: Request, *, salt: str = "") -> tuple[Receipt, dict[str, bytes]]:
    pictures = {"panels.png": b"PNG" + salt.encode()}
    return Examine(made.suite, salt=salt).receipt(request, None, pictures), pictures


# --- on every store -------------------------------------------------------------------------------------------


def test_what_is_frozen_comes_back(trained: Made, store: ObjectStore) -> None:
    # covers QC-02
    at = Examinations(store, "digits")
    for _ in range(2):
        at.freeze(trained.suite, trained.roster)
    assert at.suite(trained.suite.digest) == trained.suite
    assert at.roster(trained.suite.roster) == trained.roster
    with pytest.raises(CorruptError, match="is missing"):
        at.suite(sha256(b"none"))


def test_a_question_is_asked_once(trained: Made, store: ObjectStore) -> None:
    # covers QC-19, QC-22
    at, request = Examinations(store, "digits"), asked(trained)
    assert at.ask(request)
    assert not at.ask(request)
    twin = request.model_copy(update={"run": "twin"})
    assert twin.id == request.id
    assert not at.ask(twin)
    assert at.request(request.id) == request
    with pytest.raises(NotFoundError):
        at.request(asked(trained, 1).id)


def test_an_attempt_is_claimed_by_one(trained: Made, store: ObjectStore) -> None:
    # covers I3
    at, request = Examinations(store, "digits"), asked(trained)
    first = claim(at, request, 1)
    assert first is not None
    assert first.worker == "qc-1"
    assert claim(at, request, 1, "qc-2") is None
    assert claim(at, request, 1) == first, "its own claim, said again after a lost reply"
    assert claim(at, request, 2, "qc-2") is not None
    assert [each.worker for each in at.said()[request.id].claims] == ["qc-1", "qc-2"]


def test_the_first_word_on_an_attempt_counts(trained: Made, store: ObjectStore) -> None:
    at, request = Examinations(store, "digits"), asked(trained)
    claim(at, request, 1)
    assert at.fail(failure(request, 1))
    assert at.fail(failure(request, 1)), "said again"
    assert not at.fail(failure(request, 1, "qc-2"))
    assert at.said()[request.id].failures == (failure(request, 1),)


def test_one_receipt_decides(trained: Made, store: ObjectStore) -> None:
    # covers I2, I3, QC-20, FLEET-15
    at, request = Examinations(store, "digits"), asked(trained)
    at.ask(request)
    assert at.receipt(request.id) is None
    receipt, pictures = answer(trained, request)
    other, others = answer(trained, request, salt="x")
    assert at.publish(receipt, pictures, took(receipt, 1)) == "written"
    assert at.publish(receipt, pictures, took(receipt, 1)) == "already"
    assert at.publish(receipt, pictures, took(receipt, 2, "qc-2")) == "already"
    assert at.publish(other, others, took(other, 3, "qc-3")) == "conflict"
    assert at.publish(other, others, took(other, 3, "qc-3")) == "conflict"
    assert at.receipt(request.id) == receipt
    found = at.said()[request.id]
    assert [each.worker for each in found.took] == ["qc-1", "qc-2", "qc-3"]
    (conflict,) = found.conflicts
    assert (conflict.n, conflict.worker, conflict.receipt) == (3, "qc-3", receipt.digest)
    assert conflict.other == other.plain()
    assert conflict.differs == differing(receipt, other) == ("artifacts", "metrics")
    assert at.artifact(receipt, receipt.artifacts[0]) == b"PNG"


def test_a_backlog_is_worked_through(trained: Made, store: ObjectStore) -> None:
    # covers QC-22, I3
    made = copied(trained, store)
    assert [turn.kind for turn in work(worker(made))] == ["published"] * 5 + ["nothing"]
    assert [turn.kind for turn in work(worker(made, "qc-2"))] == ["nothing"]
    check_invariants(store)
    plain = copied(trained, MemoryStore())
    work(worker(plain))
    prefix = layout.qc(made.experiment)
    for kind in ("requests", "receipts", "artifacts", "suites", "rosters"):
        keys = [listed.key for listed in store.list(f"{prefix}/{kind}")]
        assert keys == [listed.key for listed in plain.store.list(f"{prefix}/{kind}")]
        assert [store.get(key) for key in keys] == [plain.store.get(key) for key in keys]


def test_of_many_who_race_for_one_attempt_one_wins(trained: Made, tmp_path: Path) -> None:
    # covers F8, I3
    request = asked(trained)
    for n in range(1, 21):
        won: list[str] = []
        start = threading.Barrier(8)

        def race(name: str, n: int = n, won: list[str] = won, start: threading.Barrier = start) -> None:
            at = Examinations(LocalStore(tmp_path), "digits")
            start.wait()
            if claim(at, request, n, name) is not None:
                won.append(name)

        threads = [threading.Thread(target=race, args=(f"qc-{i}",)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1, n


# --- the order of writes ----------------------------------------------------------------------------------------


def test_pictures_come_first_and_the_receipt_last(trained: Made) -> None:
    # covers I1
    steps = FaultStore(MemoryStore())
    at, request = Examinations(steps, "digits"), asked(trained)
    receipt, pictures = answer(trained, request)
    at.publish(receipt, pictures, took(receipt, 1))
    written = [step.split("/")[3] for step in steps.fault.operations if step.startswith("put_new")]
    assert written == ["artifacts", "took", "receipts"]


@pytest.mark.parametrize("picture", [b"another", b"", None])
def test_a_picture_that_is_not_the_receipt_s_is_not_published(trained: Made, picture: bytes | None) -> None:
    # covers I1
    store = MemoryStore()
    at, request = Examinations(store, "digits"), asked(trained)
    receipt, _ = answer(trained, request)
    pictures = {} if picture is None else {"panels.png": picture}
    with pytest.raises(CorruptError, match="not the picture that the receipt names"):
        at.publish(receipt, pictures, took(receipt, 1))
    assert store.objects == {}


def test_two_receipts_may_show_the_same_picture(trained: Made) -> None:
    at = Examinations(MemoryStore(), "digits")
    for n in (0, 10):
        receipt, pictures = answer(trained, asked(trained, n))
        assert at.publish(receipt, pictures, took(receipt, 1)) == "written"


def test_claims_are_listed_before_whatever_ends_them(trained: Made) -> None:
    """Else an attempt that ends between two listings would look as if nothing had come of it."""
    # covers I3

    class Meanwhile(MemoryStore):
        def list(self, prefix: str) -> Iterator[Any]:
            found = list(super().list(prefix))
            if prefix.endswith("/claims"):
                at.publish(receipt, pictures, took(receipt, 1))
            return iter(found)

    store = Meanwhile()
    at, request = Examinations(store, "digits"), asked(trained)
    receipt, pictures = answer(trained, request)
    at.ask(request)
    claim(at, request, 1)
    assert Examinations(store, "digits").said()[request.id].receipt == receipt


def test_what_was_read_of_an_attempt_is_not_read_again(trained: Made) -> None:
    made = copied(trained, MemoryStore())
    work(worker(made))
    steps = FaultStore(made.store)
    at = Examinations(steps, made.experiment)
    known = {id: found.receipt for id, found in at.said().items() if found.receipt is not None}
    steps.fault = Fault()
    assert {id: found.receipt for id, found in at.said(known=known).items()} == known
    assert not [step for step in steps.fault.operations if step.startswith("get")]


# --- lost replies and a store that is not well ------------------------------------------------------------------


def test_every_lost_reply_of_a_conditional_write_is_no_conflict(
    trained: Made, make_s3: MakeStore, proxy: servers.Proxy
) -> None:
    # covers F5, I3, I13
    made = copied(trained, make_s3(proxy.endpoint))
    proxy.script = lambda request: servers.Fault("cut") if request.is_conditional else None
    turns = work(worker(made))
    proxy.script = lambda request: None
    assert [turn.kind for turn in turns] == ["already"] * 5 + ["nothing"]
    assert proxy.fired["cut"] >= 5 * 5
    check_invariants(made.store)
    assert len(Examinations(made.store, made.experiment).said()) == 5


def test_a_lost_reply_that_cannot_be_read_back_either_is_unknown_and_then_said_again(
    trained: Made, make_s3: MakeStore, proxy: servers.Proxy
) -> None:
    # covers F5, I3, I13
    made = copied(trained, make_s3(proxy.endpoint, retry_s=0.5))
    at, request = Examinations(made.store, made.experiment), asked(made)
    receipt, pictures = answer(made, request)
    lost = [0]

    def cut(request: servers.Request) -> servers.Fault | None:
        if "/receipts/" not in request.path:
            return None
        lost[0] += 1
        return servers.Fault("cut")

    proxy.script = cut
    with pytest.raises(UnknownOutcomeError):
        at.publish(receipt, pictures, took(receipt, 1))
    proxy.script = lambda request: None
    assert lost[0] > 1
    assert at.publish(receipt, pictures, took(receipt, 1)) == "already"
    assert at.receipt(request.id) == receipt


class Unlucky:
    """A store of whose writes one in five is not answered, or not done."""

    def __init__(self, inner: ObjectStore, rng: random.Random) -> None:
        self._inner = inner
        self._rng = rng
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_new(self, key: str, data: Data) -> Stored:
        luck = self._rng.random()
        if luck < 0.1:
            self.lost += 1
            raise UnknownOutcomeError("it was not sent")
        stored = self._inner.put_new(key, data)
        if luck < 0.2:
            self.lost += 1
            raise UnknownOutcomeError("the reply was lost")
        return stored


@pytest.mark.parametrize("seed", range(5))
def test_one_receipt_each_though_one_in_five_replies_is_lost(trained: Made, seed: int) -> None:
    # covers F21, I3, I13
    print("seed", seed)
    whole = copied(trained, MemoryStore())
    work(worker(whole))
    made = copied(trained, MemoryStore())
    rng = random.Random(seed)
    unlucky = Unlucky(made.store, rng)
    crew = [worker(made, f"qc-{n}", store=unlucky, tries=99) for n in (1, 2)]  # type: ignore[arg-type]
    for _ in range(40):
        rng.choice(crew).turn()
    assert unlucky.lost >= 3
    prefix = layout.qc(made.experiment)
    for kind in ("receipts", "artifacts"):
        got = {listed.key: made.store.get(listed.key) for listed in made.store.list(f"{prefix}/{kind}")}
        assert got == {
            listed.key: whole.store.get(listed.key) for listed in whole.store.list(f"{prefix}/{kind}")
        }
    check_invariants(made.store)


# --- bytes that are not what they were ----------------------------------------------------------------------------


def objects_of(made: Made) -> dict[str, bytes]:
    assert isinstance(made.store, MemoryStore)
    return made.store.objects


@pytest.mark.parametrize("kind", ["claims", "failures", "took", "conflicts"])
def test_a_changed_word_on_an_attempt_is_not_believed(trained: Made, kind: str) -> None:
    # covers I2, F9
    made = copied(trained, MemoryStore())
    at, request = Examinations(made.store, made.experiment), asked(made)
    receipt, pictures = answer(made, request)
    other, others = answer(made, request, salt="x")
    claim(at, request, 1)
    at.fail(failure(request, 1))
    at.publish(receipt, pictures, took(receipt, 1))
    at.publish(other, others, took(other, 2))
    objects = objects_of(made)
    key = next(key for key in objects if f"/qc/{kind}/" in key)
    for place in range(0, len(objects[key]), 7):
        changed = bytearray(objects[key])
        changed[place] ^= 1
        with pytest.raises(CorruptError):
            Examinations(MemoryStore({**objects, key: bytes(changed)}), made.experiment).said()


def test_a_word_on_another_attempt_is_not_believed(trained: Made) -> None:
    # covers I3, F9
    request = asked(trained)
    found = failure(request, 1)
    assert read_attempt(sealed(found), Failure, "it", request=request.id, n=1) == found
    for other in ({"request": sha256(b"x"), "n": 1}, {"request": request.id, "n": 2}):
        with pytest.raises(CorruptError, match="another attempt"):
            read_attempt(sealed(found), Failure, "it", **other)  # type: ignore[arg-type]


def test_files_that_are_swapped_are_not_believed(trained: Made) -> None:
    # covers I2, I3, F9
    made = copied(trained, MemoryStore())
    work(worker(made))
    objects = objects_of(made)
    for kind in ("requests", "receipts", "suites", "rosters"):
        keys = sorted(key for key in objects if f"/qc/{kind}/" in key)
        other = objects[keys[-1]] if len(keys) > 1 else b"{}"
        at = Examinations(MemoryStore({**objects, keys[0]: other}), made.experiment)
        name = keys[0].rpartition("/")[2].removesuffix(".json")
        read: dict[str, Callable[[str], Request | Receipt | Suite | Roster | None]] = {
            "requests": at.request,
            "receipts": at.receipt,
            "suites": at.suite,
            "rosters": at.roster,
        }
        with pytest.raises(CorruptError):
            read[kind](name)


def test_a_picture_is_held_against_its_digest(trained: Made) -> None:
    # covers I2, F9
    made = copied(trained, MemoryStore())
    at, request = Examinations(made.store, made.experiment), asked(made)
    receipt, pictures = answer(made, request)
    at.publish(receipt, pictures, took(receipt, 1))
    (artifact,) = receipt.artifacts
    objects = objects_of(made)
    key = at.artifact_key(receipt, artifact)
    for data in (b"PNX", b"PN", b"PNGG"):
        objects[key] = data
        with pytest.raises(CorruptError):
            at.artifact(receipt, artifact)
    del objects[key]
    with pytest.raises(CorruptError, match="is missing"):
        at.artifact(receipt, artifact)
    objects[key] = b"other bytes came first"
    with pytest.raises(ConflictError):
        at.publish(receipt, pictures, took(receipt, 1))


def test_other_questions_under_a_request_s_name_are_refused(trained: Made) -> None:
    # covers I3
    store = MemoryStore()
    at, request = Examinations(store, "digits"), asked(trained)
    store.put_new(layout.qc_request("digits", request.id), asked(trained, 1).to_bytes())
    with pytest.raises(CorruptError, match="another question"):
        at.ask(request)


def test_other_peoples_files_are_not_read(trained: Made) -> None:
    made = copied(trained, MemoryStore())
    work(worker(made))
    prefix = layout.qc(made.experiment)
    for key in ("requests/notes.txt", "claims/0.json", f"claims/{sha256(b'')}/x.json", "took/a/b/c.json"):
        made.store.put_new(f"{prefix}/{key}", b"hello")
    assert len(Examinations(made.store, made.experiment).said()) == 5


# --- what a receipt is bound to -----------------------------------------------------------------------------------


def test_a_receipt_is_bound_to_everything_that_it_answers(trained: Made) -> None:
    # covers QC-19, I3, I8
    request = asked(trained, 10)
    receipt, _ = answer(trained, request)
    first = sha256(b"first")
    receipt = receipt.model_copy(update={"reference": first})
    assert unbound(receipt, request, trained.suite, first) == ()
    for name in (
        "request",
        "checkpoint",
        "suite",
        "roster",
        "code",
        "config",
        "reference",
        "run",
        "experiment",
    ):
        other = receipt.model_copy(update={name: sha256(b"other")})
        assert unbound(other, request, trained.suite, first) == (name,)
    assert unbound(receipt, request, trained.suite, None) == ("reference",)
    assert unbound(receipt.model_copy(update={"revision": 9}), request, trained.suite, first) == ("revision",)


def test_strata_add_up_to_all_units(trained: Made) -> None:
    receipt, _ = answer(trained, asked(trained))
    assert not miscounted(receipt)
    for change in (
        {"strata": {}},
        {"strata": dict(list(receipt.strata.items())[1:])},
        {"units": receipt.units.model_copy(update={"scored": 5, "failed": 1})},
    ):
        assert miscounted(receipt.model_copy(update=change))


def test_a_name_without_a_suffix_is_no_reason_to_lose_a_picture(trained: Made) -> None:
    made = copied(trained, MemoryStore())
    at, request = Examinations(made.store, made.experiment), asked(made)
    artifact = Artifact(name="panels", sha256=sha256(b"PNG"), size_bytes=3)
    receipt = answer(made, request)[0].model_copy(update={"artifacts": (artifact,)})
    at.publish(receipt, {"panels": b"PNG"}, took(receipt, 1))
    assert at.artifact(receipt, artifact) == b"PNG"
    assert layout.known(at.artifact_key(receipt, artifact)) is not None


# --- the backlog of a run ---------------------------------------------------------------------------------------


def test_a_backlog_is_read_with_what_people_have_said(trained: Made) -> None:
    # covers QC-21, QC-22, QC-27
    made = copied(trained, MemoryStore())
    at = Examinations(made.store, made.experiment)
    wanted = [
        Wanted(update=n, checkpoint=sha256(f"{n}".encode()), key="k", since=AT) for n in (0, 10, 20, 30)
    ]
    receipt, pictures = answer(made, asked(made, 0))
    at.ask(asked(made, 0))
    at.publish(receipt, pictures, took(receipt, 1))
    for n in (10, 20):
        at.ask(asked(made, n))
    for n in (1, 2, 3):
        claim(at, asked(made, 10), n)
        at.fail(failure(asked(made, 10), n))
    claim(at, asked(made, 20), 1)
    gone, others = answer(made, asked(made, 5))
    at.publish(gone, others, took(gone, 1))
    elsewhere, others = answer(made, asked(made, 7, suite=sha256(b"another suite")))
    at.publish(elsewhere.model_copy(update={"suite": sha256(b"another suite")}), others, took(elsewhere, 1))

    def read(acts: Acts, **how: Any) -> list[str]:
        found = read_backlog(
            Examinations(made.store, made.experiment),
            made.suite.digest,
            wanted,
            run=made.run,
            acts=acts,
            tries=3,
            now=how.pop("now", AT + 1),
            **how,
        )
        assert [each.update for each in found.others] == [5]
        return [each.status for each in found.standings]

    assert read(Acts()) == ["done", "parked", "claimed", "missing"]
    assert read(Acts(), now=AT + 60) == ["done", "parked", "pending", "missing"]
    assert read(Acts(retried={asked(made, 10).id: 3})) == ["done", "pending", "claimed", "missing"]
    cleared = {f"contract:{made.suite.digest}": AT + 0.5}
    assert read(Acts(cleared_at=cleared)) == ["done", "pending", "claimed", "missing"]


def test_a_made_run_that_is_examined_is_whole(tmp_path: Path) -> None:
    maker = make_examined(LocalStore(tmp_path))
    check_invariants(maker.store)
    assert all(found.disputed == () for found in maker.examinations.said().values())
