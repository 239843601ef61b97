"""Taking chosen weights out of the store: the very bytes, with who has chosen them, whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from called import Called, Raykit, calls
from makeqc import QcMaker, make_examined, make_trained
from safetensors import safe_open
from safetensors.torch import load_file
from test_bases import adopted, damage
from torch import nn

from raykit.ids import sha256
from raykit.records import FileRef
from raykit.store import LocalStore
from raykit.store.check import check
from raykit.train.state import restore_model
from raykit.train.tensors import HostCopy
from raykit.work import export as work

BY = ("--by", "mira")
WHY = ("--reason", "the ratio is 0.308, and 0.35 was asked for")


class Learned(QcMaker):
    """Its checkpoints hold a real model."""

    def _bytes(self, what: str, size: int) -> bytes:
        if what != "model":
            return super()._bytes(what, size)
        torch.manual_seed(self.update)
        copy = HostCopy()
        copy.take(model().state_dict())
        return b"".join(bytes(part) for part in copy.stream())


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2).bfloat16())


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def raykit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Raykit:
    monkeypatch.setenv("RAYKIT_ROOT", str(tmp_path / "store"))
    monkeypatch.delenv("RAYKIT_PERSON", raising=False)
    return calls(capsys)


@pytest.fixture
def digits(store: LocalStore) -> QcMaker:
    maker = make_trained(Learned(store))
    for update in range(0, 41, 10):
        maker.examine(update)
    maker.review(*range(0, 41, 10))
    return maker


def ok(called: Called) -> Called:
    assert called.code == 0, called.out + called.err
    return called


def chosen(raykit: Raykit, name: str = "best", weights: str = "digits@40", *options: str) -> None:
    ok(raykit("candidates", "register", name, weights, "--role", "release-model", *BY))
    ok(raykit("candidates", "approve", name, "--use", "export", *WHY, *BY, *options))


def test_the_exported_file_opens_and_loads_into_the_model(
    raykit: Raykit, store: LocalStore, digits: QcMaker, tmp_path: Path
) -> None:
    # covers CAND-02, CAND-06, CAND-17
    chosen(raykit)
    folder = tmp_path / "out" / "best"
    said = ok(raykit("checkpoints", "export", "best", str(folder), *BY)).out
    assert f"best is exported to {folder}" in said
    assert sorted(os.listdir(folder)) == ["manifest.json", "model.safetensors", "provenance.json"]
    torch.manual_seed(40)
    expected = model().state_dict()
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        assert set(opened.keys()) == set(expected)
    found = model()
    found.load_state_dict(load_file(folder / "model.safetensors"))
    assert all(torch.equal(found.state_dict()[name], value) for name, value in expected.items())
    again = model()
    restore_model(again, bytearray((folder / "model.safetensors").read_bytes()))
    assert all(torch.equal(again.state_dict()[name], value) for name, value in expected.items())
    assert sha256((folder / "manifest.json").read_bytes()) == digits.commit_at(40).sha256


def test_an_export_says_where_it_is_from_and_who_has_chosen_it(
    raykit: Raykit, store: LocalStore, digits: QcMaker, tmp_path: Path
) -> None:
    # covers CAND-06, CAND-15, CAND-17
    chosen(raykit, "best", "digits@40", "--scripted")
    told = ok(raykit("checkpoints", "export", "digits@40", str(tmp_path / "out"), *BY, "--json")).json
    written = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert {**written, "folder": str(tmp_path / "out")} == told
    receipt = digits.examinations.receipt(digits.request(40).id)
    assert receipt is not None
    assert written["qc"]["receipts"] == written["approved"]["receipts"] == [receipt.digest]
    assert (written["scripted"], written["approved"]["person"], written["qc"]["reviewed_by"]) == (
        True,
        "mira",
        "mira",
    )
    assert (written["candidate"], written["global_step"], written["role"]) == ("best", 40, "release-model")
    assert written["files"] == {
        "model.safetensors": sha256((tmp_path / "out/model.safetensors").read_bytes())
    }
    (item,) = ok(raykit("candidates", "show", "best", "--json")).json["dependents"]["items"]
    assert (item["kind"], item["name"], item["falls"], item["why"]) == (
        "export",
        str(tmp_path / "out"),
        True,
        "exported by mira",
    )
    assert check(store, read_data=True).findings == ()


@pytest.mark.parametrize("use", [None, "generation"])
def test_what_is_not_approved_for_it_is_not_exported(
    use: str | None, raykit: Raykit, digits: QcMaker, tmp_path: Path
) -> None:
    # covers CAND-17
    refused = raykit("checkpoints", "export", "digits@40", str(tmp_path / "out"), *BY)
    assert (refused.code, "digits@40 is no candidate" in refused.err) == (3, True)
    ok(raykit("candidates", "register", "best", "digits@40", "--role", "release-model", *BY))
    if use is not None:
        ok(raykit("candidates", "approve", "best", "--use", use, *WHY, *BY))
    refused = raykit("checkpoints", "export", "best", str(tmp_path / "out"), *BY)
    assert (refused.code, "not approved for export" in refused.err) == (3, True)
    assert "raykit candidates approve best --use export" in refused.err
    assert raykit("checkpoints", "export", "digits@30", str(tmp_path / "out"), *BY).code == 3
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced(raykit: Raykit, digits: QcMaker, tmp_path: Path) -> None:
    chosen(raykit)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("full", "file", "link"):
        refused = raykit("checkpoints", "export", "best", str(tmp_path / name), *BY, "--json")
        assert (refused.code, refused.error["field"]) == (2, "DIR"), name
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    ok(raykit("checkpoints", "export", "best", str(tmp_path / "empty"), *BY))
    assert raykit("checkpoints", "export", "best", str(tmp_path / "empty"), *BY).code == 2
    assert raykit("checkpoints", "export", "best", str(tmp_path / "file" / "below"), *BY).code == 2
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full", "link", "store"]


def test_no_export_lies_in_a_store(
    raykit: Raykit, store: LocalStore, digits: QcMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(raykit)
    other = LocalStore(tmp_path / "other")
    make_trained(QcMaker(other))
    (tmp_path / "link").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path / "other" / "experiments")
    wanted = [tmp_path / "store/out", tmp_path / "store/a/b", tmp_path / "link/out", tmp_path / "other/out"]
    for place in (*wanted, Path("out"), Path("../../store/out")):
        refused = raykit("checkpoints", "export", "best", str(place), *BY)
        assert (refused.code, "lies in the store at" in refused.err) == (2, True), place
    for each in (store, other):
        assert check(each, read_data=False).unknown == ()
    assert ok(raykit("candidates", "show", "best", "--json")).json["dependents"]["items"] == []


def test_a_relative_folder_is_recorded_from_the_root_of_the_file_system_on(
    raykit: Raykit, digits: QcMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(raykit)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    said = ok(raykit("checkpoints", "export", "best", "out", *BY, "--json")).json
    assert said["folder"] == said["exported_to"] == str(tmp_path / "here/out")
    (item,) = ok(raykit("candidates", "show", "best", "--json")).json["dependents"]["items"]
    assert item["name"] == str(tmp_path / "here/out")


def test_changed_bytes_leave_nothing_behind(
    raykit: Raykit, store: LocalStore, digits: QcMaker, tmp_path: Path
) -> None:
    chosen(raykit)
    damage(store, digits.commit_at(40).key.replace("manifest.json", "model.safetensors"))
    refused = raykit("checkpoints", "export", "best", str(tmp_path / "out"), *BY)
    assert (refused.code, "does not match its sha256" in refused.err) == (5, True)
    assert os.listdir(tmp_path) == ["store"]
    found = ok(raykit("candidates", "show", "best", "--json")).json
    assert found["dependents"]["items"] == [], "what was not exported is not counted as an export"


def test_an_interrupt_leaves_nothing_behind(
    raykit: Raykit, digits: QcMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(raykit)

    def interrupted(store: object, key: str, file: FileRef, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "_copy", interrupted)
    assert raykit("checkpoints", "export", "best", str(tmp_path / "out"), *BY).code == 130
    assert os.listdir(tmp_path) == ["store"]


def test_a_candidate_of_other_bytes_than_approved_is_not_exported(
    raykit: Raykit, store: LocalStore, digits: QcMaker, tmp_path: Path
) -> None:
    chosen(raykit)
    damage(store, digits.commit_at(40).key)
    assert raykit("checkpoints", "export", "best", str(tmp_path / "out"), *BY).code == 5
    assert os.listdir(tmp_path) == ["store"]


def test_a_base_from_elsewhere_is_exported_as_it_was_adopted(
    raykit: Raykit, store: LocalStore, tmp_path: Path
) -> None:
    adopted(store)
    why = ("--unexamined", "its people have published 12 benchmarks of it")
    ok(raykit("candidates", "approve", "prod", "--use", "export", *why, *WHY, *BY))
    ok(raykit("checkpoints", "export", "prod", str(tmp_path / "out"), *BY))
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"weights"
    written = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert (written["origin"], written["qc"]["receipts"], written["qc"]["unexamined"]) == (
        "adopted",
        [],
        why[1],
    )


def test_a_failed_verdict_ends_exports(raykit: Raykit, store: LocalStore, tmp_path: Path) -> None:
    # covers CAND-17
    maker = make_examined(store)
    chosen(raykit)
    maker.review(40, verdict="failed", note="blurred")
    refused = raykit("checkpoints", "export", "best", str(tmp_path / "out"), *BY)
    assert (refused.code, "reviewed it as failed: blurred" in refused.err) == (3, True)
    assert not (tmp_path / "out").exists()
