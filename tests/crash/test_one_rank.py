"""One rank of a gang is not like the others: it alone refuses, or sees other data.

covers CONTRACT-13, I9 I14
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nursery import Nursery, Rank
from plainrun import Launches, freeze_job, state_of, take, write_job

from raykit.train.inputs import Task

UNEVEN = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        self.calls = getattr(self, "calls", 0) + model.training
        short = self.calls == 16 and torch.distributed.get_rank() == 1
        return {**terms, "fit": replace(terms["fit"], elements=6 - short)}
"""
"""Two forward passes for each update: the sixteenth is in update 8. Gates and warming up have recipes of their own."""


def gang(nursery: Nursery, task: Task, *ranks: Mapping[str, Any]) -> list[Rank]:
    """Start a gang whose ranks are told different things."""
    rendezvous = f"file://{task.root}-{secrets.token_hex(4)}.rendezvous"
    return [
        nursery.rank(task.plain(), rank=rank, world=len(ranks), rendezvous=rendezvous, **told)
        for rank, told in enumerate(ranks)
    ]


def uneven(folder: Path) -> Task:
    edits = {"workers": "2", "accumulate": "2", "harmless": '["recipe.calls"]'}
    plan = write_job(folder / "job", edits, variant=UNEVEN)
    return freeze_job(folder / "store", plan)


def test_a_rank_that_refuses_alone_says_why_and_does_not_hold_up_the_others(
    nursery: Nursery, tmp_path: Path
) -> None:
    """The others wait for it in a sum. It ends as a crash does, so that whoever runs the gang ends them too."""
    task = take(uneven(tmp_path))
    told = {"hooks": {"patch": {"raykit.train.worker.LEAVE_S": 0.2}}}
    first, second = gang(nursery, task, told, told)
    code, out = second.wait()
    assert code == 70
    why = "term fit has different numbers of elements in the micro-batches of one update"
    assert f"RankAloneError: rank 1 ends alone: {why}" in out
    assert first.wait()[0] == 70

    ended = state_of(task).ended
    assert ended is not None
    assert (ended.reason, ended.detail) == ("failed", f"gate: {why}")

    again = [rank.wait() for rank in gang(nursery, task, {}, {})]  # as a scheduler that restarts what crashed
    assert again[0] == (5, "fenced: attempt 1 of this launch has ended; another launch may go on\n")
    assert again[1] == (
        3,
        "gate: rank 0 stopped: attempt 1 of this launch has ended; another launch may go on\n",
    )
    assert len(state_of(task).attempts) == 1


def test_ranks_that_see_other_data_do_not_train_together(nursery: Nursery, tmp_path: Path) -> None:
    task = take(freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"workers": "2"})))
    ends = [rank.wait() for rank in gang(nursery, task, {}, {"env": {"TINY_MEMBERS": "changed"}})]
    assert ends[0] == (3, "gate: another rank stopped; its log says why\n")
    assert ends[1][0] == 3
    assert ends[1][1].startswith("gate: rank 1 sees other data than rank 0: 60 members stored, 60 rows now: ")
    assert "'p007' has content" in ends[1][1]
    assert not state_of(task).attempts


def test_ranks_refuse_together_without_waiting_for_each_other(nursery: Nursery, tmp_path: Path) -> None:
    """What all ranks see, such as a loss that is not finite, rank 0 says once and for all of them."""
    plan = write_job(tmp_path / "job", {"workers": "2", "params": "{ width = 16, poison_at = 14 }"})
    run = Launches(nursery, freeze_job(tmp_path / "store", plan), 2)
    ends = run.run()
    assert [code for code, _ in ends] == [3, 3]
    assert ends[0][1] == ends[1][1]
    ended = state_of(run.task).ended
    assert ended is not None
    assert f"{ended.detail}\n" == ends[0][1]
