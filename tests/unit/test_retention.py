"""Retention: what could go under the plan's rule, why each other checkpoint stays, and what people keep for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from called import Called, Raykit, calls
from makeqc import QcMaker, failed, make_examined, make_trained
from makerun import make_run
from test_bases import commits, of_run, relock

from raykit.candidates.retention import KeepRule, Point, Retention, retention
from raykit.ids import sha256
from raykit.read.bases import resolve_base
from raykit.records import Superseded
from raykit.store import LocalStore, layout
from raykit.store.check import check

BY = ("--by", "mira", "--reason", "figure 3 was made with it")
RULE = KeepRule(last=2, every=40)


# --- the rule, alone ----------------------------------------------------------------------------------------


def point(update: int, *, attempt: int = 1, counts: bool = True, verifies: bool = True) -> Point:
    return Point(
        update=update,
        attempt=attempt,
        manifest=sha256(f"{update} {attempt}".encode()),
        key=f"{update}/{attempt}",
        size_bytes=100,
        counts=counts,
        verifies=verifies,
    )


def why(found: Retention) -> dict[int, tuple[str, ...]]:
    return {each.point.update: each.why for each in found.stays}


def test_the_last_k_each_n_the_first_and_the_newest_stay() -> None:
    points = [point(update) for update in range(0, 100, 10)]
    found = retention(points, RULE, needed={})
    assert [each.update for each in found.goes] == [10, 20, 30, 50, 60, 70]
    assert why(found) == {
        0: ("update 0: what later ones are compared with",),
        40: ("a multiple of 40",),
        80: ("one of the last 2 that verify", "a multiple of 40"),
        90: ("the newest", "one of the last 2 that verify"),
    }
    assert found.size_bytes == 600


def test_what_does_not_verify_is_none_of_the_last_k_and_stays() -> None:
    points = [point(0), point(10), point(20), point(30, verifies=False)]
    found = retention(points, KeepRule(last=1), needed={})
    assert [each.update for each in found.goes] == [10]
    assert why(found)[20] == ("one of the last 1 that verify",)
    assert why(found)[30] == ("the newest", "it does not verify: a person looks at it first")


def test_superseded_ones_count_for_no_rule() -> None:
    points = [point(0), point(40, counts=False), point(20, attempt=2), point(30, attempt=2)]
    found = retention(points, RULE, needed={})
    assert [(each.update, each.attempt) for each in found.goes] == [(40, 1)]


def test_without_a_rule_or_under_doubt_nothing_goes() -> None:
    points = [point(update) for update in range(0, 100, 10)]
    assert retention(points, None, needed={}).goes == ()
    found = retention(points, RULE, needed={}, doubts=["a plan cannot be read"])
    assert found.goes == ()
    assert why(found)[10] == ("a plan cannot be read",)


def test_every_reason_is_told() -> None:
    needed = {point(10).manifest: ["pinned by mira: figure 3", "candidate best"]}
    found = retention([point(0), point(10), point(20)], KeepRule(last=1), needed=needed)
    assert why(found)[10] == ("pinned by mira: figure 3", "candidate best")


# --- with a store -------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


def ok(called: Called) -> Called:
    assert called.code == 0, called.out + called.err
    return called


def gc(raykit: Raykit, name: str = "digits") -> tuple[list[int], dict[int, list[str]]]:
    """The updates that could go, and why the others stay."""
    found: Any = ok(raykit("gc", name, "--json")).json
    assert found["deleted"] == 0
    return (
        [each["update"] for each in found["goes"]],
        {each["update"]: each["why"] for each in found["stays"]},
    )


def keeping(store: LocalStore, **keep: int) -> QcMaker:
    return make_examined(store, keep=keep or {"last": 1})


def test_gc_says_what_could_go_and_deletes_nothing(raykit: Raykit, store: LocalStore) -> None:
    keeping(store)
    before = list(store.list(""))
    goes, stays = gc(raykit)
    assert goes == [10, 20, 30]
    assert stays[40] == ["the newest", "one of the last 1 that verify", "the plan selects it"]
    text = ok(raykit("gc", "digits")).out
    assert "digits/main: the last 1: 3 of 5 checkpoints could go" in text
    assert "nothing was deleted" in text
    assert list(store.list("")) == before


def test_a_plan_without_the_rule_lets_nothing_go(raykit: Raykit, store: LocalStore) -> None:
    make_run(store)
    goes, stays = gc(raykit)
    assert (goes, set(stays)) == ([], {0, 10, 20, 30, 40})
    assert "has no run.keep_checkpoints" in ok(raykit("gc", "digits")).out


@pytest.mark.parametrize("state", ["missing", "pending", "claimed", "retrying", "unreviewed"])
def test_what_is_still_to_be_examined_or_reviewed_stays(
    state: str, raykit: Raykit, store: LocalStore
) -> None:
    """A checkpoint with an open QC request is never let go of."""
    maker = QcMaker(store)
    maker.keep = {"last": 1}
    make_trained(maker)
    for update in (0, 20, 30, 40):
        maker.examine(update)
    maker.review(0, 20, 30, 40)
    match state:
        case "pending":
            maker.ask(10)
        case "claimed":
            maker.take(10)
        case "retrying":
            maker.fail_attempt(10, kind="infrastructure")
        case "unreviewed":
            maker.examine(10)
    goes, stays = gc(raykit)
    assert goes == [20, 30]
    assert "QC" in stays[10][0]


class Inexact(QcMaker):
    """Each attempt makes other bytes."""

    def _bytes(self, what: str, size: int) -> bytes:
        return super()._bytes(f"attempt {self.attempt} {what}", size)


def test_an_open_request_keeps_a_checkpoint_that_was_superseded(raykit: Raykit, store: LocalStore) -> None:
    maker = Inexact(store)
    maker.keep = {"last": 1}
    maker.freeze()
    maker.launch()
    maker.begin()
    for _ in range(3):
        maker.rows(10)
        maker.look()
        maker.commit()
    maker.ask(20)
    asked, other = maker.commit_at(20).key, maker.commit_at(30).key
    maker.launch()
    maker.say([Superseded.model_validate({"from": 11, "to": 30, "why": "it resumes from update 10"})])
    maker.begin()
    for _ in range(3):
        maker.rows(10)
        maker.look()
        maker.commit()
    found: Any = ok(raykit("gc", "digits", "--json")).json
    kept = {each["key"]: each["why"] for each in found["stays"]}
    assert kept[asked] == ["its QC request is open"]
    assert other in [each["key"] for each in found["goes"]]


def test_what_people_keep_stays(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-07, CAND-27, CAND-28
    keeping(store)
    ok(raykit("checkpoints", "pin", "digits@10", *BY))
    of_run(store, "best", "digits", commits(store)[20])
    ok(raykit("candidates", "preserve", "best", *BY))
    goes, stays = gc(raykit)
    assert goes == [30]
    assert stays[10] == ["pinned by mira: figure 3 was made with it"]
    assert stays[20] == ["candidate best, preserved by mira"]


def test_what_a_plan_starts_from_stays(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-06
    keeping(store)
    relock(store, "continued", resolve_base(store, "digits@20"), "continue")
    goes, stays = gc(raykit)
    assert (goes, stays[20]) == ([10, 30], ["the base of continued"])
    key = next(item.key for item in store.list("experiments/continued/plans") if item.key.endswith(".lock"))
    (Path(store.url) / key).unlink()
    goes, stays = gc(raykit)
    assert goes == []
    assert stays[10] == ["the plans of continued cannot be read: one may start from it"]


def test_a_failed_checkpoint_may_go_once_a_person_has_seen_it(raykit: Raykit, store: LocalStore) -> None:
    maker = QcMaker(store)
    maker.keep = {"last": 1}
    make_trained(maker)
    for update in (0, 10, 20, 30, 40):
        maker.examine(update, findings=[failed()] if update == 10 else ())
    maker.review(0, 20, 30, 40)
    assert gc(raykit)[0] == [20, 30]
    maker.review(10, verdict="failed")
    assert gc(raykit)[0] == [10, 20, 30]


# --- pins ---------------------------------------------------------------------------------------------------


def test_a_pin_is_said_once_shown_and_let_go(raykit: Raykit, store: LocalStore) -> None:
    # covers CAND-29
    keeping(store)
    said = ok(raykit("checkpoints", "pin", "digits@20", *BY)).out
    assert "digits@20 is kept for good: sha256" in said
    assert "already" in ok(raykit("checkpoints", "pin", "digits@20", *BY)).out
    assert "pinned by mira" in ok(raykit("checkpoints", "list", "digits")).out
    rows: Any = ok(raykit("checkpoints", "list", "digits", "--json")).json
    assert [row["kept"] for row in rows] == [[], [], ["pinned by mira"], [], []]
    entries = len(list(store.list(layout.experiment_log("digits"))))
    ok(raykit("checkpoints", "pin", "digits@20", "--let-go", "--by", "ada", "--reason", "the figure was cut"))
    assert len(list(store.list(layout.experiment_log("digits")))) == entries + 1
    assert "pinned" not in ok(raykit("checkpoints", "list", "digits")).out
    assert check(store, read_data=True).findings == ()


def test_a_pin_names_a_checkpoint_a_person_and_a_reason(raykit: Raykit, store: LocalStore) -> None:
    keeping(store)
    assert raykit("checkpoints", "pin", "digits@21", *BY).code == 2
    assert raykit("checkpoints", "pin", "digits@20", "--reason", "figure 3").code == 2
    assert raykit("checkpoints", "pin", "digits@20", "--by", "mira").code == 2
    from test_bases import adopted

    adopted(store)
    refused = raykit("checkpoints", "pin", "prod", *BY)
    assert (refused.code, "raykit candidates preserve prod" in refused.err) == (2, True)
