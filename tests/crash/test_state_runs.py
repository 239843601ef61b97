"""Whole runs of what a checkpoint's structure is about: ranks that differ, checkpoints of before, names in sets.

FAULT-A09 FAULT-A11 FAULT-A13 FAULT-A14 FAULT-A16 FAULT-B18
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit.records import Manifest
from raykit.store import open_store
from raykit.store.commit import folder_of
from raykit.train.inputs import Task


def manifest_at(task: Task, update: int) -> Manifest:
    commit = next(each for each in state_of(task).commits if each.update == update)
    return Manifest.from_bytes(open_store(task.root).get(commit.key), commit.key)


def state_json(task: Task, update: int, name: str = "state.json") -> dict:
    commit = next(each for each in state_of(task).commits if each.update == update)
    return json.loads(open_store(task.root).get(f"{folder_of(commit)}/{name}"))


OWN_STATE = """
class Variant(Tiny):
    def __init__(self):
        super().__init__()
        self.mean = 0.0

    def losses(self, model, batch):
        if model.training:
            self.mean = 0.9 * self.mean + float(batch[0].mean())
        terms = super().losses(model, batch)
        fit = terms["fit"]
        return {**terms, "fit": replace(fit, value=fit.value * (1 + 0.1 * self.mean))}

    def state_dict(self):
        return {"mean": self.mean, "seen": self.seen}

    def load_state_dict(self, state):
        self.seen, self.mean = state["seen"], state["mean"]
"""


def test_a_state_of_the_recipe_that_differs_by_rank_is_saved_by_rank(
    nursery: Nursery, tmp_path: Path
) -> None:
    """FAULT-A13: rank 0's was saved for both."""
    plan = write_job(tmp_path / "job", {"workers": "2"}, variant=OWN_STATE)
    whole, cut = (Launches(nursery, freeze_job(tmp_path / name, plan), 2) for name in ("whole", "cut"))
    assert [code for code, _ in whole.run()] == [0, 0]
    cut.killed({"put": "update-00000015/1/manifest.json", "when": "before"})
    assert [code for code, _ in cut.run()] == [0, 0]
    assert (final_digest(cut.task), rows_bits(cut.task)) == (final_digest(whole.task), rows_bits(whole.task))
    names = {file.name: file.rank for file in manifest_at(cut.task, 10).files}
    assert names["state-00001.json"] == 1
    means = [
        state_json(cut.task, 10, name)["tree"]["recipe"]["mean"]
        for name in ("state.json", "state-00001.json")
    ]
    assert means[0] != means[1]
    assert "state-00001.json" not in {file.name for file in manifest_at(cut.task, 0).files}, (
        "equal at update 0"
    )


PARTS = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen == 7 and torch.distributed.get_rank() == 1:
            model.module.scale.data.add_(1e-6)
        return terms
"""


def test_replicas_that_part_are_found_before_the_next_save(nursery: Nursery, tmp_path: Path) -> None:
    """FAULT-A14: nothing noticed."""
    run = Launches(
        nursery,
        freeze_job(tmp_path / "store", write_job(tmp_path / "job", {"workers": "2"}, variant=PARTS)),
        2,
    )
    ends = run.run()
    assert [code for code, _ in ends] == [3, 3], ends
    state = state_of(run.task)
    assert [commit.update for commit in state.commits] == [0, 5]
    assert state.ended is not None
    assert state.ended.detail is not None
    assert state.ended.detail.startswith("gate: the replicas have parted by update 10: ")
    assert "of rank 1 is not that of rank 0" in state.ended.detail


def test_a_checkpoint_of_before_is_gone_on_from_to_the_bit(nursery: Nursery, tmp_path: Path) -> None:
    """FAULT-A11: the first format numbers parameters; a run that began with it ends as one of today does."""
    plan = write_job(tmp_path / "job")
    whole, cut = (Launches(nursery, freeze_job(tmp_path / name, plan)) for name in ("whole", "cut"))
    assert [code for code, _ in whole.run()] == [0]
    before = Launches(nursery, cut.task, hooks={"older_version": None})
    before.killed({"put": "update-00000015/1/manifest.json", "when": "before"})
    assert state_json(cut.task, 10)["format"] == 1
    assert [code for code, _ in cut.run()] == [0]
    assert (final_digest(cut.task), rows_bits(cut.task)) == (final_digest(whole.task), rows_bits(whole.task))
    receipt = state_of(cut.task).attempts[-1].resume
    assert receipt is not None and receipt.exactness == "exact"
    assert [(each.what, each.was, each.now, each.allows) for each in receipt.differences] == [
        ("hash_seed", "not recorded", "0", "exact")
    ]


SET_GROUPS = """
class Variant(Tiny):
    def optimizer(self, model, params):
        named = dict(model.named_parameters())
        names = set(named)
        decayed = {name for name in names if named[name].dim() > 1}
        groups = [{"params": [named[n] for n in part], "weight_decay": decay}
                  for part, decay in {frozenset(decayed): 0.1, frozenset(names - decayed): 0.0}.items()]
        turn = int(os.environ.get("TURN", "0"))
        for group in groups:
            group["params"] = group["params"][turn:] + group["params"][:turn]
        return torch.optim.AdamW(groups[::-1] if turn else groups, lr=params.lr)

class Unfreezing(Variant):
    def model(self, params):
        model = super().model(params)
        model.body[0].requires_grad_(False)
        return model

    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if self.seen >= 8:
            model.body[0].requires_grad_(True)
        return terms
"""


@pytest.mark.parametrize("recipe", ["Variant", "Unfreezing"])
def test_groups_from_a_set_and_a_layer_that_is_unfrozen_are_exact(
    recipe: str, nursery: Nursery, tmp_path: Path
) -> None:
    """FAULT-A09, FAULT-A11: another order in the next process put the moments at other parameters."""
    plan = write_job(tmp_path / "job", {"recipe": f'"recipe:{recipe}"'}, variant=SET_GROUPS)
    whole, cut = (Launches(nursery, freeze_job(tmp_path / name, plan)) for name in ("whole", "cut"))
    assert [code for code, _ in whole.run()] == [0]
    cut.killed({"put": "update-00000015/1/manifest.json", "when": "before"})
    again = Launches(nursery, cut.task, env={"TURN": "1"})
    assert [code for code, _ in again.run()] == [0]
    assert (final_digest(cut.task), rows_bits(cut.task)) == (final_digest(whole.task), rows_bits(whole.task))
    started = state_of(cut.task).attempts[-1]
    assert started.resume is not None and started.resume.exactness == "exact"
    assert started.facts["hash_seed"] == "0"


FAULTS = {
    "a schedule for nine updates": (
        "    def scheduler(self, optimizer, params):\n"
        "        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=9)\n",
        "gate: the schedule raised ValueError after update 10",
    ),
    "a model that losses leave in evaluation mode": (
        "    def losses(self, model, batch):\n"
        "        terms = super().losses(model, batch)\n"
        "        model.eval()\n"
        "        return terms\n",
        "gate: update 1: after losses(), the model, body, body.0 and 4 more are in evaluation mode",
    ),
    "an optimizer that raises": (
        "    def optimizer(self, model, params):\n        return torch.optim.SGD([])\n",
        "plan: recipe.optimizer raised ValueError: optimizer got an empty parameter list",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_cannot_be_trained_is_refused_before_the_launch_and_not_tried_again(
    what: str, nursery: Nursery, tmp_path: Path
) -> None:
    """FAULT-A16, FAULT-B18: a refusal is one attempt; the gang was lost and started three times."""
    code, says = FAULTS[what]
    plan = write_job(tmp_path / "job", variant=f"class Variant(Tiny):\n{code}")
    run = Launches(nursery, freeze_job(tmp_path / "store", plan))
    ((exit_code, out),) = run.run()
    assert exit_code in (2, 3) and says in out and "Traceback" not in out
    state = state_of(run.task)
    assert not [*state.commits]
    assert len(state.attempts) == 1 and state.ended is not None and state.ended.reason == "failed"


def test_the_first_gate_says_how_far_a_schedule_goes_and_what_nothing_trains(
    nursery: Nursery, tmp_path: Path
) -> None:
    """FAULT-A01, FAULT-A16"""
    variant = (
        "class Variant(Tiny):\n"
        "    def optimizer(self, model, params):\n"
        "        return torch.optim.AdamW(model.body.parameters(), lr=params.lr)\n"
    )
    run = Launches(nursery, freeze_job(tmp_path / "store", write_job(tmp_path / "job", variant=variant)))
    assert [code for code, _ in run.run()] == [0]
    found = state_of(run.task).gates["first"].found
    assert "schedule stepped through all 20 of 20 updates" in found
    assert "no optimizer holds scale: trained by nothing" in found
