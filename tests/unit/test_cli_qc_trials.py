"""`raykit qc` of a search: all of its trials at once, or one of them by its number.

covers QC-21 QC-22 QC-23 QC-24 QC-25 QC-26, I3
"""

from __future__ import annotations

from pathlib import Path

import pytest
from called import Raykit, calls
from makeqc import failed
from maketrials import TrialsMaker

from raykit.records import Picked, RowEnded
from raykit.store.local import LocalStore
from raykit.store.people import read_acts

NAME = "digits-lr"
BY = ("--by", "mira")
SAW = ("--note", "looked at the sheets", *BY)


@pytest.fixture
def raykit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    return calls(capsys)


@pytest.fixture
def search(tmp_path: Path) -> TrialsMaker:
    """Trial 1 is examined; of trial 2 update 10 failed and 20 is parked; trial 3 was never asked about."""
    maker = TrialsMaker(LocalStore(tmp_path / "store"))
    one, two = maker.trained(1), maker.trained(2)
    maker.begin(3)
    for update in (0, 10, 20, 30, 40):
        one.examine(update)
    two.examine(0)
    two.examine(10, findings=[failed()])
    for worker in ("qc-a-1", "qc-a-2", "qc-a-3"):
        two.fail_attempt(20, kind="memory", worker=worker, message="more than it may hold")
    return maker


def test_status_has_a_line_for_each_trial_and_the_counts_of_all(raykit: Raykit, search: TrialsMaker) -> None:
    found = raykit("qc", "status", NAME)
    assert found.code == 0
    lines = [line.split() for line in found.out.splitlines()]
    assert ["trial-001", "40", "4", "ok", "·", "1", "not", "judged", "-", "5"] in lines, found.out
    assert any(
        line[:1] == ["trial-002"] and "0 ok · 1 fail · 1 not judged · 3 open" in " ".join(line)
        for line in lines
    )
    assert any(line[:1] == ["trial-003"] for line in lines)
    assert not any(line[:1] == ["trial-004"] for line in lines), "it has not begun"
    assert "11 required: 4 passed, 1 failed, 2 not judged, 3 missing, 1 parked" in found.out
    assert "trial-002: update 10 failed its QC: ratio 0.41" in found.out
    assert "trial-002: update 20, try 3: memory: more than it may hold" in found.out
    assert f"-> raykit qc retry {NAME} --reason ... --by NAME" in found.out
    said = raykit("qc", "status", NAME, "--json").json
    assert said["counts"]["required"] == 11
    assert [run["run"] for run in said["runs"]] == ["trial-001", "trial-002", "trial-003"]
    assert NAME in raykit("qc", "status").out


def test_one_trial_is_named_by_its_number_or_by_its_run(raykit: Raykit, search: TrialsMaker) -> None:
    by_number = raykit("qc", "status", NAME, "--trial", "2")
    assert by_number.out == raykit("qc", "status", f"{NAME}/trial-002").out
    assert f"{NAME}/trial-002 · QC by ada" in by_number.out
    assert "5 required: 1 failed, 1 not judged, 2 missing, 1 parked" in by_number.out
    assert f"-> raykit qc retry {NAME}/trial-002 --reason ... --by NAME" in by_number.out
    assert raykit("qc", "status", NAME, "--trial", "2", "--json").json["run"] == "trial-002"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("status", NAME, "--trial", "4"), "trial-004"),
        (("status", NAME, "--trial", "99"), "trial-099"),
        (("status", f"{NAME}/trial-002", "--trial", "2"), "is no search"),
        (("status", "--trial", "2"), "a trial of which search?"),
        (("retry", NAME, "--update", "20", "--reason", "x", *BY), "of which trial?"),
        (("review", NAME, "--update", "10", "--verdict", "failed", *SAW), "of which trial?"),
        (("run", NAME, "--update", "10"), "of which trial?"),
        (("run", "nothing", "--trial", "1"), "is no search"),
    ],
)
def test_what_is_not_meant_is_said(
    raykit: Raykit, search: TrialsMaker, arguments: tuple[str, ...], says: str
) -> None:
    found = raykit("qc", *arguments)
    assert found.code == 2, found
    assert says in found.err


def test_one_act_reviews_what_passed_in_every_trial_and_a_failed_one_is_named(
    raykit: Raykit, search: TrialsMaker
) -> None:
    found = raykit("qc", "review", NAME, *SAW)
    assert found.code == 0, found
    assert "6 receipts reviewed as passed by mira" in found.out
    assert len(read_acts(search.store, NAME).reviews) == 6
    again = raykit("qc", "review", NAME, *SAW)
    assert again.code == 3
    assert "update 10 of trial-002" in again.err
    assert f"raykit qc review {NAME}/trial-002 --update 10 --verdict failed" in again.err
    one = raykit("qc", "review", NAME, "--trial", "2", "--update", "10", "--verdict", "failed", *SAW)
    assert one.code == 0, one
    said = raykit("qc", "review", NAME, *SAW, "--json").json
    assert (said["new"], said["unreviewed"]) == (False, [])


def test_retry_lets_what_is_parked_in_any_trial_be_tried_again(raykit: Raykit, search: TrialsMaker) -> None:
    found = raykit("qc", "retry", NAME, "--reason", "more memory now", *BY)
    assert found.code == 0, found
    assert f"{NAME}: update 20 of trial-002 may be tried again." in found.out
    assert f"-> raykit qc run {NAME}" in found.out
    assert raykit("qc", "retry", NAME, "--reason", "x", *BY, "--json").json["retried"] == []
    assert raykit("qc", "status", NAME, "--json").json["counts"]["parked"] == 0


def test_a_complete_search_waits_for_the_review_of_its_pick_and_of_no_other_row(
    raykit: Raykit, tmp_path: Path
) -> None:
    maker = TrialsMaker(LocalStore(tmp_path / "store"), trials=2)
    for row in (1, 2):
        run = maker.trained(row)
        for update in (0, 10, 20, 30, 40):
            run.examine(update)
        end = RowEnded(row=row, end="completed", update=40, value=0.2 * row, at=40, cost=0, attempts=1)
        maker.say(end)
    maker.say(Picked(row=1, value=0.2, values=(0.2,), tried=2, ranked=(1, 2), excluded=()))
    due = "the QC of its pick, trial-001, has 5 to review; the 5 of other rows may be reviewed too"
    for said in (raykit("status").out, raykit("search", "status", NAME).out):
        assert due in said and f"-> raykit qc review {NAME}/trial-001 --note ... --by NAME" in said
    assert raykit("search", "status", NAME, "--json").json["waits_for"] == "a person"
    assert raykit("qc", "review", f"{NAME}/trial-001", *SAW).code == 0
    assert "raykit qc review" not in raykit("status").out
    assert raykit("search", "status", NAME, "--json").json["waits_for"] is None
