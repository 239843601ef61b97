"""The QC of a search: one backlog over all of its trials, under one suite, and what a failed check means for a trial.

covers QC-03 QC-14 QC-16 QC-22 QC-27 TUNE-06 FLEET-02 FLEET-03 FLEET-06 FLEET-10, F14 F25, I3 I8
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from makeqc import failed
from maketrials import TrialsMaker
from qchooks import AT, Examine, work

from raykit.errors import StoreUnavailableError
from raykit.fleet.pool.pool import Glance
from raykit.fleet.qc import beside as qc_beside
from raykit.fleet.qc.beside import QcBeside
from raykit.fleet.qc.desk import QcDesk
from raykit.read.qc import read_qc
from raykit.read.qc_runs import BegunTrials, RunsRead, read_qc_of
from raykit.records import Request
from raykit.store.base import ObjectStore
from raykit.store.people import pause, read_acts, resume
from raykit.testing import MemoryStore
from raykit.testing.invariants import check_invariants
from raykit.work.puller import Turn
from raykit.work.qc_worker import Rules, Worker


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def read(maker: TrialsMaker) -> RunsRead:
    found = read_qc_of(maker.store, maker.experiment, BegunTrials, now=AT)
    assert found is not None
    return found


class Asked(Examine):
    """Remembers of which trial it was asked, too."""

    def __call__(self, request: Request, *rest: Any) -> Any:
        self.order.append((request.run, request.update))
        return super().__call__(request, *rest)


def asked(maker: TrialsMaker, **how: Any) -> Asked:
    examine = Asked(maker.runs[1].suite, **how)
    examine.order = []
    return examine


def worker(maker: TrialsMaker, name: str = "qc-1", *, examine: Examine | None = None) -> Worker:
    return Worker(
        maker.store,
        maker.experiment,
        BegunTrials,
        maker.runs[1].suite,
        Rules(tries=3, deadline_s=600.0),
        worker=name,
        examine=examine or asked(maker),
        clock=lambda: AT,
        sleep=lambda wait_s: None,
    )


def raising(error: Callable[[], Exception], *at: tuple[str, int]) -> Callable[[Request], None]:
    def before(request: Request) -> None:
        if (request.run, request.update) in at:
            raise error()

    return before


def defect() -> Exception:
    return ZeroDivisionError("division by zero")


def kinds(turns: list[Turn]) -> list[str]:
    return [turn.kind for turn in turns]


# --- one backlog --------------------------------------------------------------------------------------------


def test_the_oldest_check_of_all_trials_comes_first_and_each_is_held_against_its_own_update_0(
    store: MemoryStore,
) -> None:
    maker = TrialsMaker(store)
    maker.begin(1)
    maker.begin(2)
    for row in (2, 1, 2):
        maker.commit(row)
    examine = asked(maker)
    turns = work(worker(maker, examine=examine))
    assert kinds(turns) == ["published"] * 5 + ["nothing"]
    # update 0 of a trial before anything else of it; and of what is left, the oldest
    assert examine.order == [
        ("trial-001", 0),
        ("trial-002", 0),
        ("trial-002", 10),
        ("trial-001", 10),
        ("trial-002", 20),
    ]
    assert [turn.what for turn in turns[:2]] == ["trial-001, update 0", "trial-002, update 0"]
    found = read(maker)
    for row in found.reads:
        first = row.backlog.at(0)
        assert first is not None and first.receipt is not None
        later = [each.receipt for each in row.backlog.standings if each.update]
        assert {receipt and receipt.reference for receipt in later} == {first.receipt.digest}
        assert {each.receipt and each.receipt.run for each in row.backlog.standings} == {row.run}
    assert found.counts() == {**dict.fromkeys(found.counts(), 0), "required": 5, "passed": 5, "unreviewed": 5}
    check_invariants(store)


def test_one_suite_serves_every_trial_and_a_trial_that_begins_later_is_seen(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    maker.trained(1)
    at = worker(maker)
    assert kinds(work(at)) == ["published"] * 5 + ["nothing"]
    maker.trained(2)
    assert kinds(work(at)) == ["published"] * 5 + ["nothing"]
    found = read(maker)
    assert {receipt.suite for each in found.standings if (receipt := each.receipt)} == {maker.suite}
    assert len([key for key in store.objects if "/qc/suites/" in key]) == 1
    # a trial by itself is what it is among all of them
    alone = read_qc(store, maker.experiment, "trial-002", now=AT)
    assert alone is not None and alone.plain() == found.plain()["runs"][1]


def test_a_search_of_which_nothing_has_begun_has_nothing_to_examine(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    assert kinds(work(worker(maker))) == ["nothing"]
    assert (read(maker).reads, read(maker).oldest_s, read(maker).complete) == ((), None, False)
    assert BegunTrials(MemoryStore(), "nothing-here")() == ()


def test_workers_of_two_processes_share_the_backlog_of_all_trials(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    for row in (1, 2, 3):
        maker.trained(row)
    one, other = worker(maker, "qc-1"), worker(maker, "qc-2")
    turns = [at.turn().kind for _ in range(12) for at in (one, other)]
    assert turns.count("published") == 15
    assert [len(each.said.claims) for each in read(maker).standings] == [1] * 15


def test_a_lost_attempt_at_a_trial_is_ended_and_tried_again(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    maker.trained(1)
    maker.trained(2)
    maker.runs[2].take(0, deadline_s=1.0, worker="qc-gone")
    turns = work(worker(maker))
    assert kinds(turns).count("published") == 10
    first = next(each for each in read(maker).reads[1].backlog.standings if each.update == 0)
    assert [failure.kind for failure in first.said.failures] == ["deadline"]
    assert len(first.said.claims) == 2


# --- a setting may itself be what fails -----------------------------------------------------------------------


def test_a_trial_whose_setting_cannot_be_examined_is_parked_and_the_others_go_on(store: MemoryStore) -> None:
    # covers FLEET-03
    maker = TrialsMaker(store)
    maker.trained(1)
    maker.trained(2)
    fails = raising(defect, ("trial-001", 10))
    for name in ("qc-1", "qc-2"):  # a worker that failed is replaced
        examine = asked(maker, before=fails)
        turns = work(worker(maker, name, examine=examine), turns=12)
        assert "failed" in kinds(turns)
        assert ("trial-001", 10) in examine.order
    work(worker(maker, "qc-3", examine=asked(maker, before=fails)))
    found = read(maker)
    assert found.pause is None, "one trial says nothing of the others"
    assert found.counts()["parked"] == 1
    assert found.counts()["passed"] == 9
    assert found.of("trial-002") is not None and found.of("trial-002").counts()["passed"] == 5  # type: ignore[union-attr]


def test_what_two_trials_meet_alike_pauses_everyone_on_the_suite(store: MemoryStore) -> None:
    # covers F25, FLEET-01, FLEET-02
    maker = TrialsMaker(store)
    maker.trained(1)
    maker.trained(2)
    fails = raising(defect, ("trial-001", 0), ("trial-002", 0))
    seen = []
    for n in range(1, 5):
        examine = asked(maker, before=fails)
        turns = work(worker(maker, f"qc-{n}", examine=examine), turns=3)
        seen += examine.order
        if turns[-1].kind == "paused":
            break
    assert seen == [("trial-001", 0), ("trial-001", 0), ("trial-002", 0)], "one unit each of three workers"
    held = read(maker).pause
    assert held is not None
    assert (held.pause.scope, held.pause.cause) == (f"contract:{maker.suite}", "defect")
    assert "trial-00" in held.pause.reason


def test_a_suspect_of_one_trial_holds_the_others_until_it_is_settled(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    maker.trained(1)
    maker.trained(2)
    work(worker(maker, examine=asked(maker, before=raising(defect, ("trial-001", 20)))), turns=9)
    before = read(maker).counts()["passed"]
    held = worker(maker, "qc-1").turn()  # the one that failed there may not confirm itself
    assert (held.kind, held.detail) == (
        "waiting",
        "another process has to try trial-001, update 20 first: ZeroDivisionError: division by zero",
    )
    assert read(maker).counts()["passed"] == before
    assert worker(maker, "qc-2").turn().what == "trial-001, update 20"


def test_two_trials_of_one_setting_are_one_question_and_no_confirmation_of_each_other() -> None:
    from raykit.qc.backlog import shared_defect

    maker = TrialsMaker(MemoryStore())
    one = maker.begin(1)
    for name in ("qc-1", "qc-2"):
        one.fail_attempt(0, worker=name)
    (standing,) = read(maker).reads[0].backlog.open
    twin = type(standing)(
        wanted=standing.wanted,
        request=standing.request.model_copy(update={"run": "trial-002"}),
        said=standing.said,
        status=standing.status,
        next=standing.next,
        counted=standing.counted,
    )
    assert shared_defect([standing, twin], trials=True) is None
    assert shared_defect([standing], trials=False) == standing


# --- the desk -------------------------------------------------------------------------------------------------


def desk_of(maker: TrialsMaker) -> QcDesk:
    desk = QcDesk(maker.store, maker.experiment, BegunTrials, "f00d")
    desk.look()
    return desk


def test_the_desk_asks_for_every_trial_and_follows_those_that_begin(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    maker.begin(1)
    desk = desk_of(maker)
    assert desk.found is not None
    assert (desk.found.takable, desk.found.open, desk.found.most) == (1, 1, 1)
    maker.commit(1)
    assert desk.follow()
    assert not desk.follow()
    maker.begin(2)
    assert desk.follow(), "a trial has begun"
    desk.look()
    requests = {
        (each.run, each.update)
        for key in store.objects
        if "/qc/requests/" in key
        for each in [Request.from_bytes(store.objects[key], key)]
    }
    assert requests == {("trial-001", 0), ("trial-001", 10), ("trial-002", 0)}
    task = desk.task(limit_s=9.0, lease="l")
    assert (task.whose, task.contract) == (BegunTrials, maker.suite)


def test_what_one_check_takes_is_the_most_that_a_trial_took(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    for row in (1, 2):
        maker.trained(row)
        maker.runs[row].examine(0)
    desk = desk_of(maker)
    assert desk.unit is not None
    assert (desk.unit.took_s, desk.unit.peak_bytes) == (1.2, 300_000_000)
    assert list(desk.write()) == ["QC: one check takes 1.2 s and 300 MB"]
    assert list(desk.write()) == []


def test_the_desk_pauses_only_for_what_two_trials_have_met(store: MemoryStore) -> None:
    maker = TrialsMaker(store)
    for row in (1, 2):
        maker.trained(row)
    for name in ("qc-1", "qc-2"):
        maker.runs[1].fail_attempt(0, worker=name)
    desk = desk_of(maker)
    assert desk.pause_for_defect() is None
    maker.runs[2].fail_attempt(0, worker="qc-3")
    desk.look()
    assert desk.pause_for_defect() == "trial-001, update 0: it raised"
    assert f"contract:{maker.suite}" in read_acts(store, maker.experiment).pauses


def test_a_reader_of_a_store_that_does_not_answer_says_so() -> None:
    class Away(MemoryStore):
        def get(self, key: str, **how: Any) -> bytes:
            raise StoreUnavailableError("no answer")

    def look(store: ObjectStore) -> Any:
        return BegunTrials(store, "digits-lr")()

    with pytest.raises(StoreUnavailableError):
        look(Away())


# --- what a failed check means for a trial ----------------------------------------------------------------------


def test_a_failed_check_ends_its_own_trial_only(store: MemoryStore) -> None:
    from raykit.fleet.qc.heed import heed

    maker = TrialsMaker(store, on_failure="stop")
    for row in (1, 2):
        maker.trained(row)
        maker.runs[row].examine(0)
    maker.runs[2].examine(10, findings=[failed()])
    found = read(maker)
    whys = {each.run: heed(store, each, launch="f00d") for each in found.reads}
    assert whys["trial-001"] is None
    assert whys["trial-002"] is not None
    assert whys["trial-002"].startswith("gate: trial-002: update 10 failed its QC: ratio 0.41")
    assert found.pause is None and not read_acts(store, maker.experiment).pauses


def test_a_failed_check_pauses_the_experiment_where_the_plan_says_so(store: MemoryStore) -> None:
    from raykit.fleet.qc.heed import heed

    maker = TrialsMaker(store, on_failure="pause")
    maker.trained(1)
    maker.runs[1].examine(0)
    maker.runs[1].examine(10, findings=[failed()])
    for each in read(maker).reads:
        assert heed(store, each, launch="f00d") is None
    (held,) = read_acts(store, maker.experiment).pauses.values()
    assert (held.pause.scope, held.pause.cause) == (f"experiment:{maker.experiment}", "qc")
    assert held.pause.reason.startswith("trial-001: update 10 failed its QC")
    assert read(maker).pause is None, "what is paused for a check goes on being examined"


# --- beside a search --------------------------------------------------------------------------------------------


class Pool:
    """Stands for a pool: its glances are what the store has."""

    def __init__(self, maker: TrialsMaker) -> None:
        self._maker = maker
        self.read: RunsRead | None = None

    def turn(self) -> Glance:
        self.read = read(self._maker)
        failed = tuple(each.update for one in self.read.reads for each in one.backlog.failed)
        return Glance(looked_at=AT, counts=self.read.counts(), open=self.read.workable, failed=failed)

    def drain(self, until_s: float, stop: Any, tell: Callable[[Glance], None]) -> Glance:
        tell(glance := self.turn())
        return glance

    def close(self, *, grace_s: float) -> Glance:
        return self.turn()


def beside(maker: TrialsMaker, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> QcBeside:
    """The QC of a search, but for its workers."""
    monkeypatch.setattr(qc_beside, "pool_beside", lambda *_, **__: Pool(maker))
    site: Any = SimpleNamespace(store=maker.store, name=maker.experiment, plan=SimpleNamespace(search=True))
    qc: Any = SimpleNamespace(drain_s=1.0)
    none: Any = None
    return QcBeside(site, qc, "f00d", none, none, folder=Path(), gpus=0.0, say=lines.append)


def test_a_failed_check_is_said_once_and_ends_its_row_where_the_plan_says_so(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, lines = TrialsMaker(store, on_failure="stop"), []
    for row in (1, 2):
        maker.trained(row)
        maker.runs[row].examine(0)
    qc = beside(maker, monkeypatch, lines)
    qc.turn()
    assert (qc.ends("trial-001"), qc.ends("trial-002"), lines) == (None, None, [])
    maker.runs[2].examine(10, findings=[failed()])
    for _ in range(2):
        qc.turn()
    assert lines == ["! trial-002: update 10 failed its QC: ratio 0.41, wanted > 0.35"]
    assert qc.ends("trial-001") is None
    why = qc.ends("trial-002")
    assert why is not None and why.startswith("gate: trial-002: update 10 failed its QC")
    assert qc.suite == maker.suite
    # the same update of another trial is another failure; and a process that begins anew finds both
    maker.runs[1].examine(10, findings=[failed()])
    qc.turn()
    assert qc.ends("trial-001") is not None
    after = beside(maker, monkeypatch, lines)
    after.turn()
    assert (after.ends("trial-001"), after.ends("trial-002")) == (
        qc.ends("trial-001"),
        qc.ends("trial-002"),
    )


def test_a_failed_check_is_only_said_where_the_plan_goes_on(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker, lines = TrialsMaker(store), []
    maker.trained(1)
    maker.runs[1].examine(0)
    maker.runs[1].examine(10, findings=[failed()])
    qc = beside(maker, monkeypatch, lines)
    qc.drain(lambda: None, lambda glance: None)
    assert len(lines) == 1
    assert qc.ends("trial-001") is None
    assert read_acts(store, maker.experiment).pauses == {}
    qc.close(grace_s=0.0)
    pictures = [key.rpartition("/")[2] for key in store.objects if "/qc/pictures/" in key]
    assert pictures and all(name.startswith("trial-001-") for name in pictures)
    assert set(qc.pictures) == set(pictures)


def test_how_far_a_trial_is_and_how_much_of_it_is_open(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = TrialsMaker(store)
    maker.trained(1)
    qc = beside(maker, monkeypatch, [])
    assert qc.words("trial-001") is None
    qc.turn()
    assert qc.words("trial-001") == "0 of 5"
    assert qc.words("trial-002") is None
    maker.runs[1].examine(0)
    assert qc.open_of("trial-001") == 4
    for worker in ("qc-1", "qc-2", "qc-3"):
        maker.runs[1].fail_attempt(10, kind="memory", worker=worker)
    assert qc.open_of("trial-001") == 3, "one that is parked waits for a person"
    found = qc.read()
    assert found is not None and found.counts()["parked"] == 1


def test_a_pause_is_heard_between_two_looks_and_its_end_too(store: MemoryStore) -> None:
    # covers RAY-07, RAY-10
    maker = TrialsMaker(store)
    maker.trained(1)
    desk = desk_of(maker)
    assert not desk.follow()
    for scope in ("all", "role:qc", f"experiment:{maker.experiment}", f"contract:{maker.suite}"):
        pause(store, scope, reason="machines", person="mira", at=AT)
        assert desk.follow(), scope
        desk.look()
        assert desk.found is not None and desk.found.stop == "paused by mira: machines"
        assert not desk.follow()
        resume(store, scope, cleared="back", person="mira", at=AT)
        assert desk.follow(), scope
        desk.look()
        assert desk.found is not None and desk.found.stop is None
    for scope in ("role:search", "role:train", "role:generate"):
        pause(store, scope, reason="machines", person="mira", at=AT)
        assert not desk.follow(), scope
