"""No parser sees a byte of the store before its digest holds: canaries in every object, watched parsers.

covers CKPT-03, S7 S8, F9
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, claim_job, freeze_job, state_of, write_job

from raykit.errors import Broken
from raykit.fleet import claim as claims
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.train.inputs import Task

PLAN = {"updates": "10"}
CANARY = "tweet-5b1f0c"

WATCHED = ("safetensors", "json", "record", "toml", "tar", "parquet")


class Trap:
    """What unpickling it does: it makes a file."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.sprung),)


# --- bytes that a parser would choke on, or obey ------------------------------------------------------------


def plain_canary(data: bytes, sprung: Path) -> bytes:
    """As many bytes as before."""
    return (CANARY.encode() * (len(data) // len(CANARY) + 1))[: len(data)]


def well_formed(data: bytes, sprung: Path) -> bytes:
    """What the parser of such a file would accept: the file itself, with one text in it put in place of another."""
    if b'"data_offsets"' in data:  # safetensors: a name in the header
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        header.setdefault("__metadata__", {})["canary"] = CANARY
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + length :]
    if data.startswith(b"{"):
        return data[:-1] + f',"canary":"{CANARY}"}}'.encode()
    return data + f"\n# {CANARY}\n".encode()


def pickled(data: bytes, sprung: Path) -> bytes:
    return pickle.dumps((Trap(sprung), CANARY))


def endless_header(data: bytes, sprung: Path) -> bytes:
    """A header that is said to be as long as memory, or brackets that never close."""
    return (2**63 - 1).to_bytes(8, "little") + b"[" * 100_000 + CANARY.encode()


Canary = Callable[[bytes, Path], bytes]
CANARIES: tuple[Canary, ...] = (plain_canary, well_formed, pickled, endless_header)


# --- a run with a commit that everything else is needed for -------------------------------------------------


@pytest.fixture(scope="module")
def killed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("killed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job", PLAN)))
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 2})
    assert [commit.update for commit in state_of(run.task).commits] == [0, 5]
    return run.task


@pytest.fixture
def run(killed: Task, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launches:
    """A copy, whose ranks note what their parsers are given."""
    shutil.copytree(killed.root, tmp_path / "store")
    monkeypatch.setattr(claims, "alive", lambda place: False)
    watch = {"notes": str(tmp_path / "notes"), "canary": CANARY}
    return Launches(nursery, replace(killed, root=str(tmp_path / "store")), hooks={"parsers": watch})


def notes(run: Launches) -> Counter[str]:
    """How often each parser was given what."""
    path = Path(run.hooks["parsers"]["notes"])
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def put(run: Launches, key: str, canary: Canary, sprung: Path) -> None:
    path = Path(run.task.root) / key
    data = path.read_bytes()
    path.write_bytes(canary(data, sprung))
    assert path.read_bytes() != data


def test_the_watch_works(run: Launches) -> None:
    """Every parser is noted, and a canary in what is good data would be seen."""
    assert run.run()[0][0] == 0
    assert {name for name in WATCHED if notes(run)[f"{name} clean"]} == set(WATCHED)
    seen = replace(run, hooks={"parsers": {**run.hooks["parsers"], "canary": "sixty points"}})
    assert seen.run()[0][0] == 0
    assert notes(run)["toml canary"] > 0


CHECKPOINT = "experiments/tiny/runs/main/checkpoints/update-00000005/1"
FILES = ("model.safetensors", "optimizer.safetensors", "rng-00000.safetensors", "state.json", "manifest.json")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.__name__)
def test_a_canary_in_a_checkpoint_is_passed_over_unparsed(
    canary: Canary, file: str, run: Launches, tmp_path: Path
) -> None:
    put(run, f"{CHECKPOINT}/{file}", canary, tmp_path / "sprung")
    ((code, out),) = run.run()
    assert code == 0, out
    receipt = state_of(run.task).attempts[-1].resume
    assert receipt is not None
    assert receipt.update == 0
    unseen(run, tmp_path)


FROZEN = {
    "plan.toml": lambda task: layout.plan(task.experiment, task.plan, "plan.toml"),
    "plan.lock": lambda task: layout.plan(task.experiment, task.plan, "plan.lock"),
    "code": lambda task: layout.code(task.experiment, task.code),
    "split manifest": lambda task: layout.membership(task.experiment, task.data, "manifest.json"),
    "split members": lambda task: layout.membership(task.experiment, task.data, "train.parquet"),
    "log entry": lambda task: layout.log_entry(layout.run_log(task.experiment, task.run), 3),
    "last log entry": lambda task: last_entry(task),
}


def last_entry(task: Task) -> str:
    log = layout.run_log(task.experiment, task.run)
    return max(listed.key for listed in LocalStore(task.root).list(log))


@pytest.mark.parametrize("what", FROZEN)
@pytest.mark.parametrize("canary", [well_formed, pickled], ids=lambda canary: canary.__name__)
def test_a_canary_in_what_is_frozen_ends_the_start_unparsed(
    canary: Canary, what: str, run: Launches, tmp_path: Path
) -> None:
    put(run, FROZEN[what](run.task), canary, tmp_path / "sprung")
    before = sorted(Path(run.task.root).rglob("*"))
    ((code, out),) = [rank.wait() for rank in run.ranks(replace(run.task, launch="another"))]
    assert code == 5, out
    assert out.startswith("corrupt: "), out
    assert sorted(Path(run.task.root).rglob("*")) == before
    unseen(run, tmp_path)


def test_a_canary_in_a_snapshot_is_not_even_evidence(run: Launches, tmp_path: Path) -> None:
    """A snapshot of a log is derived. A false one is not read, and says nothing against the log."""
    for log in (layout.experiment_log("tiny"), layout.run_log("tiny", "main")):
        key = layout.log_snapshot(log)
        (Path(run.task.root) / key).write_bytes(well_formed(b'{"n":1}', tmp_path))
    assert run.run()[0][0] == 0
    unseen(run, tmp_path)


def unseen(run: Launches, tmp_path: Path) -> None:
    """No parser was given the canary, and none of its traps went off."""
    given = notes(run)
    assert not [note for note in given if note.endswith("canary")], given
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("what", ["plan.lock", "split members", "log entry"])
def test_a_launch_refuses_a_canary_too(what: str, run: Launches, tmp_path: Path) -> None:
    put(run, FROZEN[what](run.task), well_formed, tmp_path)
    with pytest.raises(Broken):
        claim_job(Path(run.task.root), write_job(tmp_path / "job", PLAN))
