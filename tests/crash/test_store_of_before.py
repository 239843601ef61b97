"""A store that an earlier revision wrote is read, resumed and finished, and nothing that it holds is rewritten.

covers I1 I4 I5 I14, FORMAT: what is stored can be read for good
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import genray
import pytest
import torch
from called import Raykit, calls
from nursery import Nursery
from plainrun import Launches, freeze_job, rows_bits, state_of
from storebefore import EXAMINED, STOPPED, Before, unpack

from raykit.fleet.claim import amend
from raykit.fleet.site import site_of
from raykit.reconcile import lowest
from raykit.records import AttemptStarted
from raykit.store.commit import read_file, read_manifest
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants
from raykit.train.inputs import Task
from raykit.train.tensors import read_tensors

TESTS = Path(__file__).parents[1]


@pytest.fixture
def before(tmp_path: Path) -> Before:
    return unpack(tmp_path)


@pytest.fixture
def raykit(before: Before, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(before.root))
    return calls(capsys)


def test_it_is_whole_and_reading_changes_nothing(before: Before, raykit: Raykit) -> None:
    was = before.bytes()
    checked = raykit("check", "--read-data")
    assert (checked.code, checked.err) == (0, ""), checked
    assert "whole: no promise is broken" in checked.out
    for command in (
        ("status",),
        ("show", STOPPED),
        ("show", EXAMINED),
        ("checkpoints", "list", STOPPED),
        ("history", STOPPED),
        ("qc", "status", EXAMINED),
        ("generate", "status", EXAMINED),
        ("candidates", "list"),
        ("ls",),
    ):
        shown = raykit(*command)
        assert (shown.code, shown.err) == (0, ""), (command, shown)
        assert raykit(*command, "--json").code == 0, command
    assert before.bytes() == was


def test_every_fact_that_it_holds_is_shown(before: Before, raykit: Raykit) -> None:
    runs = {run["id"]: run for run in raykit("status", "--json").json["runs"]}
    stopped, examined = runs[f"{STOPPED}/main"], runs[f"{EXAMINED}/main"]
    assert (stopped["state"], stopped["update"], stopped["updates"]) == ("stopped", 13, 20)
    assert [commit["update"] for commit in stopped["commits"]] == [0, 5, 10]
    assert (examined["state"], examined["update"]) == ("completed", 20)
    text = raykit("status").out
    assert "1 ok · 1 not judged" in text
    assert re.search(r"tiny/points: .*18 of 60 rows accounted for", text)
    assert genray.CANDIDATE in raykit("candidates", "list").out


def test_its_classes_are_said_to_be_declared(before: Before, raykit: Raykit) -> None:
    """Nothing was replayed there: what an older checkpoint calls exact rests on its gate."""
    for command in (("show", STOPPED), ("checkpoints", "list", STOPPED), ("show", EXAMINED)):
        assert "exact (declared)" in raykit(*command).out, command


# --- going on with it ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resumed(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Before, dict[str, bytes], Launches, Launches]:
    """The killed run gone on with to its end, what the store held before, and the same run of today, undisturbed."""
    folder = tmp_path_factory.mktemp("resumed")
    before = unpack(folder)
    job, was = before.job(folder / "job"), before.bytes()
    if (
        before.elsewhere()
    ):  # nobody pretends that this is the machine it is from: a person lets this one go on
        amend(site_of(job, str(before.root)), allows="inexact", reason="another machine", person="ada")
    run = Launches(nursery, before.task())
    ((code, out),) = run.run()
    assert code == 0, out
    today = Launches(nursery, freeze_job(folder / "today", job))
    ((code, out),) = today.run()
    assert code == 0, out
    return before, was, run, today


def second(run: Launches) -> AttemptStarted:
    (_, attempt) = state_of(run.task).attempts
    return attempt


def tensors(task: Task) -> dict[str, Any]:
    """Weights, moments and generators of the last checkpoint, by file and name."""
    store, commit = LocalStore(task.root), state_of(task).commits[-1]
    return {
        f"{file.name}: {name}": tensor
        for file in read_manifest(store, commit).files
        if file.name.endswith(".safetensors")
        for name, tensor in read_tensors(read_file(store, commit, file), file.name)[1].items()
    }


def test_what_was_stored_stays_byte_for_byte(resumed: tuple[Any, ...]) -> None:
    before, was, _, _ = resumed
    now = before.bytes()
    assert {key: now.get(key) for key in was} == was
    check_invariants(before.store)


def test_a_killed_run_ends_as_one_of_today(resumed: tuple[Any, ...]) -> None:
    """On a machine like the one that it is from, to the bit. On another one, the class says that it is not that."""
    before, _, run, today = resumed
    receipt = second(run).resume
    assert receipt is not None and receipt.update == 10
    ended, undisturbed = tensors(run.task), tensors(today.task)
    assert ended.keys() == undisturbed.keys()
    if before.elsewhere():
        assert receipt.exactness == lowest(receipt.differences) != "exact"
        assert receipt.amendment is not None
    else:
        assert [commit.exactness for commit in state_of(run.task).commits] == ["exact"] * 5
    if set(before.elsewhere()) - {"raykit"}:
        return  # other arithmetic
    assert [name for name, tensor in ended.items() if not same(tensor, undisturbed[name])] == []
    assert rows_bits(run.task) == rows_bits(today.task)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def test_no_update_is_missing_or_there_twice(resumed: tuple[Any, ...]) -> None:
    _, _, run, _ = resumed
    assert len(rows_bits(run.task)) == 20  # which looks at their numbers, too
    assert [commit.update for commit in state_of(run.task).commits] == [0, 5, 10, 15, 20]


def test_a_fact_that_it_did_not_record_lowers_nothing(resumed: tuple[Any, ...]) -> None:
    """What is recorded since then and was not there is named in the receipt, and leaves what there was."""
    before, _, run, _ = resumed
    was, now = state_of(run.task).attempts[0].facts, second(run).facts
    receipt = second(run).resume
    assert receipt is not None
    told = {difference.what: difference.allows for difference in receipt.differences}
    assert {name: told.get(name) for name in now.keys() - was.keys()} == dict.fromkeys(
        now.keys() - was.keys(), "exact"
    )
    assert set(told) == set(before.elsewhere()) | (now.keys() - was.keys())


def test_a_later_revision_records_more_than_it_did(resumed: tuple[Any, ...]) -> None:
    """Otherwise the test above shows nothing. To be lifted with the first fact that is new, such as the hash seed."""
    _, _, run, _ = resumed
    assert second(run).facts.keys() - state_of(run.task).attempts[0].facts.keys()


# --- the set that was half made -----------------------------------------------------------------------------


@pytest.mark.long
def test_a_set_under_way_is_finished_under_its_own_contract(before: Before) -> None:
    """What was published stays, the rest is made, and all of it is what the contract makes in one process."""
    was, published = before.bytes(), genray.published(before.root)
    assert len(published) == 9
    if before.elsewhere(EXAMINED):
        done = subprocess.run(
            [sys.executable, genray.__file__, "finish", str(before.root)], capture_output=True, text=True
        )
        assert done.returncode != 0 and "facts." in done.stderr, (
            "an exact set is made on machines like the first"
        )
        return
    subprocess.run([sys.executable, genray.__file__, "finish", str(before.root)], check=True)
    assert genray.published(before.root) == list(range(30))
    now = before.bytes()
    assert {key: now.get(key) for key in was} == was
    shards = genray.shards_of(before.root)
    closed = genray.close(shards.contract, shards.receipts(), scripted=False)
    assert closed.to_bytes() == genray.alone(before.root)
    check_invariants(before.store)
