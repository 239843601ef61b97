"""Rows that a run cannot work with end it by their ids, at once; and rows that are others than they were are found.

FAULT-A21, FAULT-C09
"""

from __future__ import annotations

from pathlib import Path

from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit.train.inputs import Task

LABELS = """
class Variant(Tiny):
    def losses(self, model, batch):
        x, y = batch
        if model.training:
            torch.nn.functional.cross_entropy(model(x), torch.full((len(x),), 7))
        return super().losses(model, batch)
"""


def ends_of(task: Task) -> list[tuple[str, str | None]]:
    ends = state_of(task).ends.values()
    return [(end.reason, end.detail) for end in ends]


def test_a_label_out_of_range_ends_the_run_by_the_rows_of_its_batch(nursery: Nursery, tmp_path: Path) -> None:
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", variant=LABELS))
    ((code, said),) = Launches(nursery, task).run()
    assert code != 0, said
    ((reason, detail),) = ends_of(task)
    assert reason == "failed" and detail is not None
    assert detail.startswith(
        "gate: the recipe raised IndexError: Target 7 is out of bounds (recipe.py, line "
    ), detail
    assert state_of(task).commits == (), "it was the first gate"


REPLACED = """
class Swapped(Points):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + (os.environ.get("TINY_SWAPPED") == "yes"), y


class Variant(Tiny):
    def dataset(self, source, params):
        return Swapped()
"""


def test_rows_replaced_under_a_content_that_does_not_cover_them_are_found(
    nursery: Nursery, tmp_path: Path
) -> None:
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", variant=REPLACED))
    Launches(nursery, task).killed({"put": "update-00000005/1/manifest", "when": "after"})
    ((code, said),) = Launches(nursery, task, env={"TINY_SWAPPED": "yes"}).run()
    assert code != 0 and "sampled rows, whose content() is what it was" in said, said
    assert "32 of 32 differ leaves inexact" in said
    ((code, said),) = Launches(nursery, task).run()
    assert code == 0, said
