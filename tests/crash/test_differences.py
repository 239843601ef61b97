"""One thing is not as it was: the resume is refused by name, and nothing is written, until a person allows just that.

covers FAULT-A23, CKPT-06 CKPT-09 CONTRACT-13, I14, F30
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nursery import Nursery
from plainrun import Launches, claim_job, final_digest, freeze_job, state_of, take, write_job

from raykit.errors import ExactnessError, GateError, ReviewError
from raykit.fleet import claim as claims
from raykit.fleet.claim import amend
from raykit.fleet.follow import Followed
from raykit.fleet.site import site_of
from raykit.records import Amended, Exactness, ExperimentEntry, ResumeReceipt, Row
from raykit.store import layout
from raykit.store.commit import read_manifest
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.testing.invariants import check_invariants
from raykit.train import facts
from raykit.train.inputs import Task

BASE = {"updates": "12", "params": "{ width = 16, lr = 0.02, dropout = 0.0 }"}
"""The plan of the run that is interrupted at update 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is not as it was, how the refusal puts it, and what it leaves."""

    says: str
    rank_says: str | None = None
    """How a rank puts it that has found it by itself, if in other words."""
    all_the_same: str | None = None
    """Why a rank does not go on though a person has allowed it."""
    leaves: Exactness = "inexact"
    plan: Mapping[str, str] = field(default_factory=dict)
    code: tuple[str, str] = ("", "")
    """A text of the recipe, and what is there now."""
    extra: str | None = None
    """The content of a second code file."""
    env: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def fact(leaves: Exactness, **now: str) -> Change:
    """The machine or a library is another."""
    return Change(says=f"{next(iter(now))}: ", leaves=leaves, facts=now)


MACHINE = {
    "torch": fact("state-exact", torch="9.9.9"),
    "torch's build": fact("state-exact", torch_build="0123456789abcdef"),
    "NumPy": fact("state-exact", numpy="9.9.9"),
    "Python": fact("state-exact", python="3.99"),
    "CPU capability": fact("state-exact", cpu_capability="ABACUS"),
    "device model": fact("state-exact", device_model="abacus"),
    "device kind": fact("order-exact", device="cuda", device_model="NVIDIA H200"),
}
MEMBERS = {
    "a member's content": Change(
        says="1 with other content; first: 'p007' has content", env={"TINY_MEMBERS": "changed"}
    ),
    "a member more": Change(says="1 added; first: 'p060' is added", env={"TINY_MEMBERS": "added"}),
    "a member less": Change(
        says="1 missing; first: 'p059' is missing",
        rank_says="1 of 48 members of train are not in the data: 'p059'",
        env={"TINY_MEMBERS": "removed"},
    ),
}
PLAN = {
    "threads": Change(says="threads: 1 -> 2", leaves="state-exact", plan={"threads": "2"}),
    "determinism": Change(
        says="plan field run.deterministic: True -> False",
        leaves="state-exact",
        plan={"deterministic": "false"},
    ),
    "world size": Change(says="world_size: 1 -> 2", leaves="order-exact", plan={"workers": "2"}),
    "accumulation": Change(
        says="plan field run.accumulate: 1 -> 2", leaves="order-exact", plan={"accumulate": "2"}
    ),
    "dtype": Change(
        says="plan field run.dtype.autocast: none -> bfloat16", plan={"dtype": '{ autocast = "bfloat16" }'}
    ),
    "learning rate": Change(
        says="plan field run.params.lr: 0.02 -> 0.01",
        plan={"params": "{ width = 16, lr = 0.01, dropout = 0.0 }"},
        all_the_same="the checkpoint would take back what the plan changes: group 0 of the optimizer: initial_lr: "
        "0.02 -> 0.01; group 0 of the optimizer: lr: 0.02 -> 0.01; the scheduler: _last_lr: [0.02] -> [0.01]; "
        "the scheduler: base_lrs: [0.02] -> [0.01]",
    ),
    "batch": Change(says="plan field run.batch: 12 -> 24", plan={"batch": "24"}),
    "seed": Change(says="plan field run.seed: 3 -> 4", plan={"seed": "4"}),
    "clip": Change(says="plan field run.clip: absent -> 0.5", plan={"clip": "0.5"}),
    "length": Change(says="plan field run.updates: 12 -> 13", plan={"updates": "13"}),
    "split shares": Change(
        says="plan field splits.train: 0.8 -> 0.7", plan={"train": "0.7", "development": "0.3"}
    ),
}
CODE = {
    "code": Change(says="code file recipe.py: ", code=("nn.Tanh()", "nn.ReLU()")),
    "a code file more": Change(says="code file extra.py: absent -> ", extra="LAYERS = 3\n"),
}
CHANGES = MACHINE | MEMBERS | PLAN | CODE


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A run that was killed right after its commit of update 10, in a store of its own."""

    nursery: Nursery
    folder: Path
    task: Task

    @property
    def root(self) -> Path:
        return Path(self.task.root)

    def job(self, *changes: Change) -> Path:
        """The plan as it is after the changes, in a folder of its own."""
        edits = dict(BASE)
        for change in changes:
            edits |= change.plan
        plan = write_job(self.folder / "-".join(["job", *(str(id(change)) for change in changes)]), edits)
        recipe = plan.parent / "recipe.py"
        for change in changes:
            recipe.write_text(recipe.read_text().replace(*change.code))
            if change.extra is not None:
                (plan.parent / "extra.py").write_text(change.extra)
        return plan

    def launches(self, task: Task, *changes: Change) -> Launches:
        """Ranks that find themselves where the changes say."""
        env = {name: value for change in changes for name, value in change.env.items()}
        other = {name: value for change in changes for name, value in change.facts.items()}
        world = max((int(change.plan.get("workers", "1")) for change in changes), default=1)
        return Launches(self.nursery, task, world, env=env, hooks={"facts": other})

    def finish(self, task: Task, *changes: Change) -> ResumeReceipt:
        """Train to the end in a launch that has taken the run; the receipt that it has left."""
        run = self.launches(task, *changes)
        ends = [rank.wait() for rank in run.ranks(task)]
        assert [code for code, _ in ends] == [0] * run.world, ends
        check_invariants(LocalStore(self.root))
        started = state_of(task).attempts[-1]
        assert started.attempt == 2
        assert started.resume is not None
        assert started.resume.update == 10
        return started.resume

    def amendments(self) -> dict[int, tuple[str, Amended]]:
        """Who has allowed what, by the number of the log's entry."""
        log = Log(LocalStore(self.root), layout.experiment_log("tiny"), ExperimentEntry, by="test")
        return {
            entry.n: (entry.by, event)
            for entry in log.refresh()
            for event in entry.events
            if isinstance(event, Amended)
        }


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A run of the base plan that nobody interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job", BASE)))
    assert run.run()[0][0] == 0
    return run.task


@pytest.fixture(scope="module")
def killed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Task:
    """The run that every test takes a copy of."""
    folder = tmp_path_factory.mktemp("killed")
    run = Launches(nursery, freeze_job(folder / "store", write_job(folder / "job", BASE)))
    run.killed({"put": '"event":"commit"', "when": "after", "nth": 3})
    assert state_of(run.task).committed == 10
    return run.task


@pytest.fixture
def run(
    killed: Task, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Interrupted]:
    """A copy of the interrupted run. The launch that held it is dead, although its process is the tests' own."""
    shutil.copytree(killed.root, tmp_path / "store")
    monkeypatch.setattr(claims, "alive", lambda place: False)
    return Interrupted(nursery, tmp_path, replace(killed, root=str(tmp_path / "store")))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch):
    """Makes the launching process find itself where changes say."""
    true = facts.here

    def go(*changes: Change) -> None:
        other = {name: value for change in changes for name, value in change.facts.items()}
        monkeypatch.setattr(facts, "here", lambda gang, threads: {**true(gang, threads), **other})
        for change in changes:
            for name, value in change.env.items():
                monkeypatch.setenv(name, value)

    return go


def everything(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of the store with its bytes and its time of change."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def refused(run: Interrupted, plan: Path, change: Change) -> None:
    """The launch refuses by name, says what would let it pass, and writes nothing."""
    before = everything(run.root)
    with pytest.raises(ExactnessError) as refusal:
        claim_job(run.root, plan)
    error = refusal.value
    assert f"this resume would be {change.leaves}, the plan needs exact" in error.message
    assert change.says in error.message
    assert error.exit_code == 3
    target = "PLAN" if change.plan or change.code[0] or change.extra else "tiny"
    assert error.remedy == f'raykit resume {target} --as {change.leaves} --reason "..." --by NAME'
    assert everything(run.root) == before


@pytest.mark.parametrize("name", CHANGES)
def test_a_launch_refuses_what_differs(name: str, run: Interrupted, here) -> None:
    change = CHANGES[name]
    here(change)
    refused(run, run.job(change), change)


def test_a_refusal_names_old_and_new(run: Interrupted, here) -> None:
    here(MACHINE["torch"], MACHINE["NumPy"])
    with pytest.raises(ExactnessError) as refusal:
        claim_job(run.root, run.job(PLAN["seed"]))
    assert f"numpy: {np.__version__} -> 9.9.9 leaves state-exact" in refusal.value.message
    assert f"torch: {torch.__version__} -> 9.9.9 leaves state-exact" in refusal.value.message
    assert "plan field run.seed: 3 -> 4 leaves inexact" in refusal.value.message


@pytest.mark.parametrize(
    "name", [*MACHINE, *MEMBERS, "threads", "world size", "dtype", "split shares", "code"]
)
def test_a_rank_refuses_what_the_launch_did_not_see(name: str, run: Interrupted) -> None:
    """Ranks compare for themselves: their machine and their data may be others than the launch's."""
    change = CHANGES[name]
    task = take(freeze_job(run.root, run.job(change)))
    before = everything(run.root)
    ends = [rank.wait() for rank in run.launches(task, change).ranks(task)]
    assert [code for code, _ in ends] == [3] * len(ends), ends
    assert (change.rank_says or change.says) in ends[0][1]
    assert everything(run.root) == before
    assert len(state_of(task).attempts) == 1


@pytest.mark.parametrize("name", CHANGES)
def test_an_amendment_lets_exactly_these_differences_through(name: str, run: Interrupted, here) -> None:
    change = CHANGES[name]
    other = PLAN["clip"] if name != "clip" else PLAN["seed"]
    here(change)
    plan = run.job(change)
    allowed = amend(
        site_of(plan, str(run.root)), allows=change.leaves, reason="it is only a test", person="ada"
    )
    assert any(change.says in f"{d.what}: {d.was} -> {d.now}" for d in allowed)
    ((number, (by, amended)),) = run.amendments().items()
    assert (by, amended.reason, amended.allows, amended.run) == (
        "ada",
        "it is only a test",
        change.leaves,
        "main",
    )

    for not_allowed in ((other,), (change, other)):
        with pytest.raises(ExactnessError, match=other.says.replace("(", r"\(")):
            claim_job(run.root, run.job(*not_allowed))

    task, start = claim_job(run.root, plan)
    assert start.receipt is not None
    assert start.receipt.exactness == change.leaves
    refused = change.all_the_same or change.rank_says  # such as a row that is not there to be trained on
    if refused is not None:
        (end,) = [rank.wait() for rank in run.launches(task, change).ranks(task)]
        assert end == (3, f"gate: {refused}\n"), end
        return
    receipt = run.finish(task, change)
    assert receipt.exactness == change.leaves
    assert receipt.needed == "exact"
    assert receipt.amendment == number
    assert receipt.differences == tuple(allowed)
    assert [commit.exactness for commit in state_of(task).commits] == ["exact"] * 3 + [change.leaves]


def test_an_amendment_allows_no_less_than_it_says(run: Interrupted) -> None:
    plan = run.job(PLAN["seed"])
    before = everything(run.root)
    with pytest.raises(
        GateError, match="what differs leaves inexact, which is less than order-exact"
    ) as refusal:
        amend(site_of(plan, str(run.root)), allows="order-exact", reason="please", person="ada")
    assert "--as inexact" in (refusal.value.remedy or "")
    assert everything(run.root) == before


def test_there_is_nothing_to_amend_where_nothing_differs(run: Interrupted) -> None:
    before = everything(run.root)
    with pytest.raises(GateError, match="nothing has to be allowed"):
        amend(site_of(run.job(), str(run.root)), allows="inexact", reason="to be sure", person="ada")
    assert everything(run.root) == before


SAME = {
    "nothing": Change(says=""),
    "a comment": Change(says="comments and layout only", code=("class Tiny:", "class Tiny:  # it is small")),
    "layout": Change(says="comments and layout only", code=("(ROWS + {", "(\n            ROWS + {")),
    "curves": Change(says="", plan={"curves": '{ every = 6, smooth = "ema 0.8" }'}),
    "checkpoint cadence": Change(says="", plan={"checkpoint_every": "4", "evaluate_every": "5"}),
    "speed": Change(says="", plan={"loader_workers": "2", "flush_s": "1.0"}),
    "a lower need": Change(says="", plan={"resume": '"state-exact"'}),
}


RULES = {
    "stop rule": {"stop": '{ metric = "development.ratio", patience = 99, min_delta = 0.0 }'},
    "worthwhile": {"worthwhile": "0.02"},
    "selection": {"select": '"max development.ratio"'},
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_decides_stays_as_it_was(name: str, run: Interrupted) -> None:
    """covers PLAN-73: results were seen, and neither an amendment nor a word on it makes another rule of it"""
    change = Change(says="", plan={**RULES[name], "resume": '"order-exact"'})
    with pytest.raises((ReviewError, ExactnessError)) as refused:
        claim_job(run.root, run.job(change), deviation="it looks better so (ada)")
    if name != "stop rule":  # which is part of what shapes the weights, and refused for that first
        assert "PLAN-73" in refused.value.message


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_bit_needs_nobody(name: str, run: Interrupted, undisturbed: Task) -> None:
    change = SAME[name]
    task, _ = claim_job(run.root, run.job(change))
    receipt = run.finish(task)
    assert receipt.exactness == "exact"
    assert receipt.amendment is None
    assert [d.allows for d in receipt.differences] == ["exact"] * bool(change.says)
    assert all(change.says in d.now for d in receipt.differences)
    assert digests(task) == digests(undisturbed)
    assert (final_digest(task) == final_digest(undisturbed)) == (not change.code[0])  # it names the code


def digests(task: Task) -> dict[str, str]:
    """The digests of the final model, optimizer and so on."""
    commit = state_of(task).commits[-1]
    return {file.name: file.sha256 for file in read_manifest(LocalStore(task.root), commit).files}


def rows_of(task: Task) -> list[Row]:
    followed = Followed()
    followed.follow(LocalStore(task.root), state_of(task).events)
    return followed.rows


def test_at_another_world_size_the_same_samples_are_in_the_same_updates(
    run: Interrupted, undisturbed: Task
) -> None:
    """A plan that needs no more than order-exact says so itself; nobody has to amend anything."""
    declared = replace(PLAN["world size"], plan={"workers": "2", "resume": '"order-exact"'})
    task, _ = claim_job(run.root, run.job(declared), deviation="two ranks are free now (ada)")
    receipt = run.finish(task, declared)
    assert (receipt.needed, receipt.exactness, receipt.amendment) == ("order-exact", "order-exact", None)
    assert [commit.exactness for commit in state_of(task).commits] == ["exact"] * 3 + ["order-exact"]
    assert [entry.world_size for entry in state_of(task).attempts] == [1, 2]
    for one, two in zip(rows_of(undisturbed), rows_of(task), strict=True):
        assert (one.update, one.epoch, one.samples, one.sources) == (
            two.update,
            two.epoch,
            two.samples,
            two.sources,
        )
        assert math.isclose(one.loss, two.loss, rel_tol=0.0 if one.update <= 10 else 0.2), (one, two)
