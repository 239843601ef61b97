"""A checkpoint that is not what was committed is passed over, by name, and the run ends as if nothing had happened.

covers CKPT-02 CKPT-03 CKPT-07, I1 I12, F9
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, claim_job, final_digest, freeze_job, rows_bits, state_of, take, write_job

from raykit.errors import CorruptError
from raykit.fleet import claim as claims
from raykit.records import Superseded
from raykit.store.check import check
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants
from raykit.train.inputs import Task

PLAN = {"updates": "12"}
FILES = (
    "model.safetensors",
    "optimizer.safetensors",
    "rng-00000.safetensors",
    "state.json",
    "rank-00000.json",
    "manifest.json",
)

# --- what happens to a file: `damage(path, other)`, where `other` is the same file of the checkpoint before --


def flip(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_last(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x80
    path.write_bytes(data)


def truncate(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path, other: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def remove(path: Path, other: Path) -> None:
    path.unlink()


def stale(path: Path, other: Path) -> None:
    shutil.copy(other, path)


def swap(path: Path, other: Path) -> None:
    """With its neighbour in the same folder."""
    beside = path.parent / FILES[FILES.index(path.name) - 1]
    path.rename(path.parent / "held")
    beside.rename(path)
    (path.parent / "held").rename(beside)


def link(path: Path, other: Path) -> None:
    """The right bytes, by way of a symbolic link: they may be others at the next look."""
    path.rename(path.parent.parent / "moved")
    path.symlink_to(path.parent.parent / "moved")


Damage = Callable[[Path, Path], None]
DAMAGE: tuple[Damage, ...] = (flip, truncate, lengthen, remove, stale, swap)
RARE: tuple[Damage, ...] = (flip_last, empty, link)


def extra(folder: Path) -> None:
    (folder / "extra.safetensors").write_bytes(b"x")


def a_rank_more(folder: Path) -> None:
    shutil.copy(folder / "rng-00000.safetensors", folder / "rng-00001.safetensors")


def gone(folder: Path) -> None:
    shutil.rmtree(folder)


def another(folder: Path) -> None:
    """The whole folder of the checkpoint before: good in itself, and not what was committed here."""
    shutil.rmtree(folder)
    shutil.copytree(folder_at(folder, 5), folder)


WHOLE: tuple[Callable[[Path], None], ...] = (extra, a_rank_more, gone, another)


def folder_at(folder: Path, update: int) -> Path:
    return folder.parent.parent / f"update-{update:08d}" / "1"


# --- the run ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job", PLAN)))
    assert run.run()[0][0] == 0
    return run.task


@pytest.fixture(scope="module")
def killed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Task:
    """Commits of updates 0, 5 and 10, and rows beyond."""
    folder = tmp_path_factory.mktemp("killed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job", PLAN)))
    run.killed({"put": "update-00000012/1/model", "when": "before"})
    assert [commit.update for commit in state_of(run.task).commits] == [0, 5, 10]
    return run.task


@pytest.fixture
def run(
    killed: Task, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launches]:
    """A copy of the killed run, for one test to damage."""
    shutil.copytree(killed.root, tmp_path / "store")
    monkeypatch.setattr(claims, "alive", lambda place: False)
    return Launches(nursery, replace(killed, root=str(tmp_path / "store")))


def checkpoint(run: Launches, update: int) -> Path:
    folder = f"experiments/tiny/runs/main/checkpoints/update-{update:08d}/1"
    return Path(run.task.root) / folder


def falls_back(run: Launches, undisturbed: Task, *, to: int, over: tuple[int, ...]) -> None:
    """The resume passes over, says so, recomputes what is superseded, and ends as the run that nobody disturbed."""
    ends = run.run()
    assert [code for code, _ in ends] == [0] * run.world, ends
    state = state_of(run.task)
    receipt = state.attempts[-1].resume
    assert receipt is not None
    assert (receipt.update, receipt.exactness) == (to, "exact")
    assert [passed.update for passed in receipt.passed_over] == list(over)
    assert all(f"update-{passed.update:08d}/1" in passed.why for passed in receipt.passed_over), receipt
    (superseded,) = [event for event in state.events if isinstance(event, Superseded)]
    assert superseded.from_ == to + 1
    assert superseded.to >= over[0]
    lineage = [(commit.update, commit.attempt) for commit in state.commits]
    assert lineage == [(update, 1 if update <= to else 2) for update in (0, 5, 10, 12)]
    assert final_digest(run.task) == final_digest(undisturbed)
    assert rows_bits(run.task) == rows_bits(undisturbed)


def reported(run: Launches, *updates: int) -> None:
    """`raykit check` finds the damage, and nothing else: to pass over is no repair."""
    findings = check(LocalStore(run.task.root), read_data=True).findings
    for update in updates:
        assert any(f"update-{update:08d}/1" in finding.key for finding in findings), findings
    for finding in findings:
        assert any(f"update-{update:08d}/1" in finding.key for update in updates), finding


# --- what must hold -----------------------------------------------------------------------------------------


CASES = [(damage, file) for damage in DAMAGE for file in FILES] + [
    (damage, file) for damage in RARE for file in ("model.safetensors", "manifest.json")
]


@pytest.mark.parametrize(
    ("damage", "file"), CASES, ids=[f"{damage.__name__}-{file}" for damage, file in CASES]
)
def test_a_damaged_file_is_passed_over(damage: Damage, file: str, run: Launches, undisturbed: Task) -> None:
    damage(checkpoint(run, 10) / file, checkpoint(run, 5) / file)
    falls_back(run, undisturbed, to=5, over=(10,))
    reported(run, 10)


@pytest.mark.parametrize("damage", WHOLE, ids=lambda damage: damage.__name__)
def test_a_damaged_folder_is_passed_over(
    damage: Callable[[Path], None], run: Launches, undisturbed: Task
) -> None:
    damage(checkpoint(run, 10))
    falls_back(run, undisturbed, to=5, over=(10,))
    reported(run, 10)


def test_every_damaged_checkpoint_is_passed_over_down_to_a_good_one(run: Launches, undisturbed: Task) -> None:
    flip(checkpoint(run, 10) / "model.safetensors", Path())
    remove(checkpoint(run, 5) / "manifest.json", Path())
    falls_back(run, undisturbed, to=0, over=(10, 5))
    reported(run, 10, 5)


def test_a_damaged_file_of_another_rank_is_passed_over(nursery: Nursery, tmp_path: Path) -> None:
    """Rank 0 reads nothing of rank 1's to train, and still decides on the whole checkpoint."""
    plan = PLAN | {"workers": "2"}
    undisturbed, run = (
        Launches(nursery, freeze_job(tmp_path / name / "store", write_job(tmp_path / name / "job", plan)), 2)
        for name in ("undisturbed", "killed")
    )
    assert [code for code, _ in undisturbed.run()] == [0, 0]
    run.killed({"put": "update-00000012/1/model", "when": "before"})
    flip(checkpoint(run, 10) / "rng-00001.safetensors", Path())
    falls_back(run, undisturbed.task, to=5, over=(10,))
    reported(run, 10)


def test_without_a_good_checkpoint_nothing_starts_and_nothing_is_written(
    run: Launches, tmp_path: Path
) -> None:
    """Starting anew would throw the run away: that is for a person to say."""
    for update in (0, 5, 10):
        flip(checkpoint(run, update) / "model.safetensors", Path())
    before = contents(run)
    with pytest.raises(CorruptError, match="none of the 3 checkpoints verifies; the newest: ") as refusal:
        claim_job(Path(run.task.root), write_job(tmp_path / "job", PLAN))
    assert refusal.value.exit_code == 5
    assert "raykit check --read-data" in (refusal.value.remedy or "")
    assert contents(run) == before

    task = take(run.task)  # nor does a rank that is started all the same
    before = contents(run)
    ((code, out),) = [rank.wait() for rank in run.ranks(task)]
    assert code == 5
    assert out.startswith("corrupt: none of the 3 checkpoints verifies; the newest: ")
    assert "update-00000010/1/model.safetensors does not match its sha256" in out
    assert contents(run) == before


def test_a_file_that_is_damaged_after_it_was_verified_is_not_loaded(
    run: Launches, undisturbed: Task, tmp_path: Path
) -> None:
    """What is parsed is what was hashed, not what was there a moment before. The next launch passes it over."""
    file = checkpoint(run, 10) / "model.safetensors"
    late = replace(run, hooks={"damage_after_verifying": str(file)})
    ((code, out),) = late.run()
    assert code == 5
    assert out == f"corrupt: {file.relative_to(run.task.root)} does not match its sha256\n"
    ended = state_of(run.task).ended
    assert ended is not None
    assert (ended.reason, f"{ended.detail}\n") == ("failed", out)

    assert [code for code, _ in run.run()] == [0]
    receipt = state_of(run.task).attempts[-1].resume
    assert receipt is not None
    assert [passed.update for passed in receipt.passed_over] == [10]
    assert final_digest(run.task) == final_digest(undisturbed)
    assert rows_bits(run.task) == rows_bits(undisturbed)
    reported(run, 10)


def test_an_undamaged_store_has_no_findings(run: Launches, undisturbed: Task) -> None:
    check_invariants(LocalStore(run.task.root))
    check_invariants(LocalStore(undisturbed.root))


def contents(run: Launches) -> dict[str, bytes]:
    root = Path(run.task.root)
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}
