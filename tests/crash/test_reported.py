"""What training reports is what its checkpoints hold, and nothing that looking has changed goes on.

covers FAULT-A24 FAULT-B01 FAULT-B03
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit.fleet.follow import Followed
from raykit.records import EvaluationRow
from raykit.store import open_store
from raykit.train.build import build
from raykit.train.evaluate import evaluate
from raykit.train.gang import alone
from raykit.train.inputs import Task, read_inputs
from raykit.train.looking import looking
from raykit.train.state import restore_model
from raykit.work.subject import MODEL, read_weights


def of_the_checkpoint(task: Task, folder: Path) -> tuple[EvaluationRow, dict[str, float | None]]:
    """The last evaluation of a run, and the same worked out from what its last commit holds."""
    store, state = open_store(task.root), state_of(task)
    followed = Followed()
    followed.follow(store, state.events)
    commit = state.commits[-1]
    reported = followed.evaluations[-1]
    assert reported.update == commit.update
    folder.mkdir()
    inputs = read_inputs(store, task, folder)
    built = build(inputs.plan, inputs.recipe, inputs.params, alone())
    _, files = read_weights(store, commit.key, commit.sha256)
    restore_model(built.live.model, files[MODEL])
    with looking(inputs.recipe, built.live.model) as asked:
        found = evaluate(inputs.plan, asked, built, alone(), inputs.keyed("development"), commit.update)
    return reported, found.metrics


def test_two_ranks_with_batch_statistics_report_what_the_commit_holds(
    nursery: Nursery, tmp_path: Path
) -> None:
    plan = write_job(tmp_path / "job", {"updates": "10", "workers": "2"})
    task = freeze_job(tmp_path / "store", plan)
    assert [code for code, _ in Launches(nursery, task, 2).run()] == [0, 0]
    reported, found = of_the_checkpoint(task, tmp_path / "code")
    assert reported.metrics.keys() == found.keys()
    for name, value in reported.metrics.items():
        assert value == pytest.approx(found[name], rel=1e-5), name


VOID = """
class Variant(Tiny):
    def evaluate(self, model, batch):
        model.train()
        return super().evaluate(model, batch)
"""

EMA = """
import copy

class Variant(Tiny):
    def model(self, params):
        model = super().model(params)
        self.ema = copy.deepcopy(model)
        return model

    def evaluate(self, model, batch):
        return super().evaluate(self.ema, batch)
"""


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        (VOID, "the recipe's evaluate() sets the mode of"),
        (EMA, "is a network that no checkpoint holds"),
    ],
)
def test_training_does_not_begin_on_what_looking_would_change(
    variant: str, said: str, nursery: Nursery, tmp_path: Path
) -> None:
    task = freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"updates": "10"}, variant=variant))
    ((code, _),) = Launches(nursery, task).run()
    state = state_of(task)
    assert code != 0 and not state.commits
    (end,) = state.ends.values()
    assert end.reason == "failed" and end.update == 0 and said in (end.detail or "")
