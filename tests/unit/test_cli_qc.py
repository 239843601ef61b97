"""`raykit qc` on made runs: what it shows, what people may say, and what nothing may rest on.

covers QC-21 QC-22 QC-23 QC-24 QC-25 QC-26 QC-27, I3 I8
"""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Raykit, calls
from makeqc import QcMaker, failed, make_trained

from raykit.cli.launched import _text
from raykit.cli.options import LAUNCH
from raykit.fleet.outcome import Outcome
from raykit.fleet.site import site_of
from raykit.ids import digest_of
from raykit.plan import contract, load_plan
from raykit.read.qc import read_qc
from raykit.store.local import LocalStore
from raykit.store.people import pause, read_acts, resume

DIGITS = Path(__file__).parents[2] / "jobs" / "digits"

BY = ("--by", "mira")
SAW = ("--note", "looked at the sheet", *BY)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    return calls(capsys)


class RealPlan(QcMaker):
    """Its plan is one that loads: that of the digits, a short one."""

    def plan_file(self) -> bytes:
        text = (DIGITS / "plan.toml").read_text()
        for old, new in (("digits-vae", "digits"), ("= 2000", "= 40"), ("= 200", "= 10"), ("= 100", "= 10")):
            text = text.replace(old, new)
        return text.encode()

    @property
    def contract(self) -> str:  # type: ignore[override]
        return digest_of(contract(load_plan(self.plan_file(), where="plan.toml")))


def half(store: LocalStore, **traits: object) -> QcMaker:
    """A trained run: 0 and 10 passed, 20 failed, 30 is parked, 40 was never asked for."""
    maker = RealPlan(store)
    for name, value in traits.items():
        setattr(maker, name, value)
    make_trained(maker)
    maker.examine(0)
    maker.examine(10)
    maker.examine(20, findings=[failed()])
    for worker in ("qc-a-1", "qc-a-2", "qc-a-3"):
        maker.fail_attempt(30, kind="memory", worker=worker, message="more than it may hold")
    return maker


# --- what is shown ------------------------------------------------------------------------------------------


def test_status_counts_every_checkpoint_and_says_what_failed_and_why(
    raykit: Raykit, store: LocalStore
) -> None:
    half(store)
    found = raykit("qc", "status", "digits")
    assert found.code == 0
    assert (
        "5 required: 1 passed, 1 failed, 1 not judged, 1 missing, 1 parked" in found.out
        and "3 not reviewed" in found.out
    )
    assert "update 20 failed its QC: ratio 0.41" in found.out
    assert "3 attempts came to nothing: 3 memory" in found.out and "more than it may hold" in found.out
    assert "-> raykit qc retry digits --reason ... --by NAME" in found.out
    counts = raykit("qc", "status", "digits", "--json").json["counts"]
    assert (counts["required"], counts["passed"], counts["failed"], counts["parked"]) == (5, 2, 1, 1)
    listed = raykit("status")
    assert "trained" in listed.out and "1 ok · 1 fail · 1 not judged · 2 open" in listed.out
    assert raykit("qc", "status").out.startswith("NAME")


def test_a_run_is_complete_only_once_all_is_examined_and_reviewed(raykit: Raykit, store: LocalStore) -> None:
    maker = make_trained(QcMaker(store))
    words = []
    for update in (0, 10, 20, 30, 40):
        maker.examine(update)
        words.append(raykit("status", "--json").json["runs"][0]["complete"])
    assert words == [False] * 5
    assert raykit("qc", "review", "digits", *SAW).code == 0
    assert raykit("status", "--json").json["runs"][0]["complete"] is True
    assert "completed" in raykit("status").out


@pytest.mark.parametrize(
    "command",
    [
        ("qc", "status", "nobody"),
        ("qc", "run", "nobody"),
        ("qc", "retry", "nobody", "--reason", "x", *BY),
        ("qc", "review", "nobody", *SAW),
        ("qc", "review", "digits", "--update", "15", *SAW),
        ("qc", "retry", "digits", "--update", "15", "--reason", "x", *BY),
        ("qc", "run", "digits", "--update", "15"),
    ],
)
def test_what_is_not_there_is_said_and_changes_nothing(
    raykit: Raykit, store: LocalStore, command: tuple[str, ...]
) -> None:
    half(store)
    before = sorted(store.list(""))
    assert raykit(*command).code == 2
    assert sorted(store.list("")) == before


# --- what people say ----------------------------------------------------------------------------------------


def test_one_act_covers_all_that_passed_and_what_failed_is_named_by_itself(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = half(store)
    assert "2 receipts reviewed as passed by mira" in raykit("qc", "review", "digits", *SAW).out
    again = raykit("qc", "review", "digits", *SAW)
    assert again.code == 3 and "--update 20 --verdict failed" in again.err
    assert raykit("qc", "review", "digits", "--update", "20", *SAW).code == 3, "never passed"
    assert raykit("qc", "review", "digits", "--update", "20", "--verdict", "failed", *SAW).code == 0
    assert raykit("qc", "review", "digits", "--update", "40", *SAW).code == 3, "there is nothing to look at"
    reviews = read_acts(store, "digits").reviews
    assert {review.event.verdict for review in reviews.values()} == {"passed", "failed"}
    assert len(reviews) == 3
    assert maker.examinations.receipt(maker.request(20).id).verdict == "failed"


@pytest.mark.parametrize("name", ["qc-1", "QC-1", "qc worker qc-1"])
def test_a_worker_does_not_review(raykit: Raykit, store: LocalStore, name: str) -> None:
    half(store)
    found = raykit("qc", "review", "digits", "--note", "fine", "--by", name)
    assert found.code == 3 and "a worker that examined" in found.err


@pytest.mark.parametrize(
    "words", [("--by", "mira"), ("--note", " ", *BY), ("--note", "a\x1b[31m", *BY), ("--note", "fine")]
)
def test_a_review_says_who_and_what_they_saw(
    raykit: Raykit, store: LocalStore, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    half(store)
    found = raykit("qc", "review", "digits", *words)
    assert found.code == 2 and "\x1b" not in found.err


def test_a_checkpoint_that_a_person_turns_down_counts_as_failed_everywhere(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = make_trained(RealPlan(store))
    updates = range(0, maker.updates + 1, maker.every)
    for update in updates:
        maker.examine(update)
    maker.review(*updates)
    last = maker.updates
    down = ("--verdict", "failed", "--note", "smeared", *BY)
    assert raykit("qc", "review", "digits", "--update", str(last), *down).code == 0
    assert "3 passed, 1 failed, 1 not judged" in raykit("qc", "status", "digits").out
    assert "3 ok · 1 fail · 1 not judged" in raykit("status").out
    said = ("--says", "lower by 0.02 on development", "--effect", "0.02 +/- 0.01", *BY)
    found = raykit("conclude", "digits", "--outcome", "better", *said)
    assert found.code == 3 and "smeared" in found.err


def test_a_person_looks_again_at_what_only_a_script_has_reviewed(
    raykit: Raykit, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    half(store)
    assert raykit("qc", "review", "digits", "--scripted", "--note", "a demo", "--by", "demo").code == 0
    assert raykit("qc", "review", "digits", "--update", "10", "--upto", "10", *SAW).code == 2
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert "2 receipts reviewed as passed by mira." in raykit("qc", "review", "digits", *SAW).out
    assert {review.event.person for review in read_acts(store, "digits").reviews.values()} == {"mira"}


def test_a_conclusion_waits_for_everything_that_is_open(raykit: Raykit, store: LocalStore) -> None:
    half(store)
    said = ("--says", "lower by 0.02 on development", "--effect", "0.02 +/- 0.01", *BY)
    for outcome in ("better", "worse", "equivalent"):
        found = raykit("conclude", "digits", "--outcome", outcome, *said)
        assert found.code == 3 and "1 missing" in found.err and "1 parked" in found.err


def test_a_retry_lets_only_what_is_parked_be_tried_again(raykit: Raykit, store: LocalStore) -> None:
    maker = half(store)
    done = raykit("qc", "retry", "digits", "--update", "10", "--reason", "again", *BY)
    assert done.code == 0 and "has its receipt; nothing was written" in done.out
    found = raykit("qc", "retry", "digits", "--reason", "twice the memory", *BY)
    assert found.code == 0 and "update 30 may be tried again" in found.out
    assert "1 pending" in raykit("qc", "status", "digits").out
    assert "nothing is parked" in raykit("qc", "retry", "digits", "--reason", "again", *BY).out
    assert read_acts(store, "digits").retried == {maker.request(30).id: 3}


# --- pauses -------------------------------------------------------------------------------------------------


def test_what_a_failed_check_has_paused_goes_on_being_examined(raykit: Raykit, store: LocalStore) -> None:
    """People need the rest of it to decide; any other pause holds for QC as well."""
    half(store, on_failure="pause")
    pause(store, "experiment:digits", reason="update 20", person="launch a", cause="qc", at=1.0)
    assert raykit("qc", "status", "digits", "--json").json["paused"] is None
    pause(store, "role:qc", reason="the GPUs are promised", person="mira", at=2.0)
    assert "-> raykit resume role:qc" in raykit("qc", "status", "digits").out


def paused_run(store: LocalStore) -> QcMaker:
    """A run that a person has paused at update 20, with checkpoints that nobody has examined."""
    maker = RealPlan(store)
    maker.freeze()
    maker.launch()
    maker.begin()
    maker.rows(20)
    maker.commit("stop")
    maker.end("paused", detail="paused by mira: lunch")
    maker.release("paused")
    pause(store, "experiment:digits", reason="lunch", person="mira", at=1.0)
    return maker


def test_a_pause_of_the_run_is_not_answered_with_what_it_refuses(raykit: Raykit, store: LocalStore) -> None:
    paused_run(store)
    text = raykit("status").out
    assert "-> raykit resume digits\n" in text and "raykit qc run" not in text
    resume(store, "experiment:digits", cleared="lunch is over", person="mira", at=2.0)
    assert "-> raykit qc run digits\n" in raykit("status").out


@pytest.mark.parametrize("in_job", [True, False])
def test_what_goes_on_is_said_once_and_of_a_job_by_its_client(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_job: bool
) -> None:
    maker = paused_run(store)
    (tmp_path / "plan.toml").write_bytes(maker.plan_file())
    (tmp_path / "recipe.py").write_bytes((DIGITS / "recipe.py").read_bytes())
    monkeypatch.setenv(LAUNCH, "launch-1") if in_job else monkeypatch.delenv(LAUNCH, raising=False)
    said = Outcome(
        experiment="digits", run="main", reason="paused", update=20, qc=read_qc(store, "digits", now=3.0)
    )
    text = _text(said, site_of(tmp_path / "plan.toml", store.url))
    assert "raykit qc run" not in text and text.count("raykit resume digits") == (0 if in_job else 1)


def test_the_pause_of_a_suite_is_said_once_with_the_command_that_ends_it(
    raykit: Raykit, store: LocalStore
) -> None:
    maker = half(store)
    scope = f"contract:{maker.suite.digest}"
    pause(store, scope, reason="the same error twice\x1b[31m", person="qc worker a", cause="defect", at=1.0)
    text = raykit("status").out
    assert text.count(f"raykit resume {scope}") == 1 and "--repair" in text and "\x1b" not in text
    assert f"raykit resume {scope} --repair" in raykit("qc", "status", "digits").out
    short = f"contract:{maker.suite.digest[:8]}"
    ended = raykit("resume", short, "--repair", "a seed", "--by", "mira")
    assert ended.code == 0 and f"{scope} goes on" in ended.out, "its first characters name it"
