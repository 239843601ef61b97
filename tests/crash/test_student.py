"""A student trains on a synthetic set, is killed, and goes on to the same bits; the rows are members by their ids.

covers GEN-11 GEN-17, I4 I5 I14, F12
"""

from __future__ import annotations

from pathlib import Path

import pytest
from makeset import make_set
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, write_job

from raykit.data.members import load
from raykit.errors import GateError
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

pytestmark = pytest.mark.long

STUDENT = """
import raykit

class Variant(Tiny):
    def dataset(self, source, params):
        return raykit.generated({root!r}, "digits/digits", manifest={manifest!r})

    def losses(self, model, batch):
        image = batch["image"] / 16
        return super().losses(model, (image[:, :4], image[:, 4:6]))

    def evaluate(self, model, batch):
        image = batch["image"] / 16
        return super().evaluate(model, (image[:, :4], image[:, 4:6]))

    def fields(self, model, batch):
        return super().fields(model, (batch["image"][:, :4] / 16,))
"""

EDITS = {"group": '"group"', "updates": "10"}


def student(nursery: Nursery, folder: Path, root: Path, manifest: str) -> Launches:
    variant = STUDENT.format(root=str(root), manifest=manifest)
    task = freeze_job(folder / "store", write_job(folder / "job", EDITS, variant=variant))
    return Launches(nursery, task)


def test_a_student_of_a_synthetic_set_resumes_to_the_bit(nursery: Nursery, tmp_path: Path) -> None:
    teacher = LocalStore(tmp_path / "teacher")
    maker = make_set(teacher, rows_asked=60, unit_rows=8, inputs="prompt", samples=2)
    maker.publish(2, filtered=1, failed=1)
    digest = maker.finish().digest
    undisturbed = student(nursery, tmp_path / "a", tmp_path / "teacher", digest)
    assert [code for code, _ in undisturbed.run()] == [0]
    killed = student(nursery, tmp_path / "b", tmp_path / "teacher", digest)
    killed.killed({"put": "update-00000005/1/manifest", "when": "after"})
    assert [code for code, _ in killed.run()] == [0]
    assert final_digest(killed.task) == final_digest(undisturbed.task)
    assert rows_bits(killed.task) == rows_bits(undisturbed.task)
    store = LocalStore(killed.task.root)
    check_invariants(store)
    members = load(store, killed.task.experiment, killed.task.data)
    ids = {role: set(table["id"].to_pylist()) for role, table in members.tables.items()}
    assert sum(map(len, ids.values())) == 58 and "prompt-0#1" in set().union(*ids.values())
    inputs = [{id.partition("#")[0] for id in each} for each in ids.values()]
    assert not set.intersection(*inputs), "rows of one input are on one side"


def test_a_student_of_another_manifest_is_never_begun(nursery: Nursery, tmp_path: Path) -> None:
    teacher = LocalStore(tmp_path / "teacher")
    make_set(teacher).finish()
    with pytest.raises(GateError, match="has a manifest"):
        student(nursery, tmp_path / "a", tmp_path / "teacher", "0" * 64)
