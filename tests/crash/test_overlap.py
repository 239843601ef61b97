"""What a resume trains again is held against what was recorded before: to the bit, and the first difference is named.

covers I5 I14 CKPT-05 CONTRACT-07; FAULT-A02 FAULT-A15
"""

from __future__ import annotations

from pathlib import Path

import pytest
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit import exactness
from raykit.errors import GateError
from raykit.fleet.claim import amend
from raykit.fleet.site import site_of

KILL = {"put": '"event":"commit"', "when": "before", "nth": 4}
"""In the save of update 15: rows through 15 are durable, the newest checkpoint is that of update 10."""

OF_THE_PROCESS = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen > 13:
            terms["fit"] = replace(terms["fit"], value=terms["fit"].value * (1 + os.getpid() / 2**22))
        return terms
"""
"""From the 13th forward pass on, the process itself is in the loss: the gates' three updates do not meet it."""


def killed(nursery: Nursery, folder: Path, variant: str | None = None) -> Launches:
    task = freeze_job(folder / "store", write_job(folder / "job", variant=variant))
    run = Launches(nursery, task)
    run.killed(KILL)
    return run


def test_a_clean_resume_is_compared_and_equal(nursery: Nursery, tmp_path: Path) -> None:
    run = killed(nursery, tmp_path)
    recorded = state_of(run.task).recorded()
    assert [code for code, _ in run.run()] == [0]
    state = state_of(run.task)
    (event,) = state.compared
    assert event.difference is None and event.lowers is None
    assert (event.how, event.attempt, event.against) == ("overlap", 2, 1)
    assert (event.first, event.last, event.rows) == (11, recorded, recorded - 10)
    assert (event.evaluations, event.manifests) == (recorded // 5 - 2, 1)
    assert exactness.of_run(state).words == "exact (declared)"
    assert {exactness.of_commit(state, commit).words for commit in state.commits} == {"exact (declared)"}


def test_the_first_difference_is_named_and_the_class_falls_and_stays(
    nursery: Nursery, tmp_path: Path
) -> None:
    run = killed(nursery, tmp_path, OF_THE_PROCESS)
    run.killed({"put": '"event":"commit"', "when": "before", "nth": 2})  # that of update 20: after that of 15
    state = state_of(run.task)
    (event,) = state.compared
    assert event.difference is not None and event.lowers == "inexact"
    assert event.difference.update >= 11 and event.difference.what == "terms.fit.value"
    assert event.difference.was != event.difference.now
    assert exactness.of_run(state).words == "inexact"
    by_update = {commit.update: exactness.of_commit(state, commit).words for commit in state.commits}
    declared = dict.fromkeys((0, 5, 10), "exact (declared)")
    assert by_update == {**declared, 15: "inexact"}
    assert [commit.exactness for commit in state.commits] == ["exact"] * 3 + ["inexact"]

    # nobody goes on with it as an exact run, unless a person says that it may
    ((code, said),) = run.run()
    assert code != 0 and "this resume would be inexact, the plan needs exact" in said
    site = site_of(tmp_path / "job" / "plan.toml", str(tmp_path / "store"))
    with pytest.raises(GateError, match="leaves inexact, which is less than state-exact"):
        amend(site, allows="state-exact", reason="r", person="mira")
    (allowed,) = amend(site, allows="inexact", reason="good enough", person="mira")
    assert event.difference.words in allowed.now
    assert [code for code, _ in run.run()] == [0]
    last = state_of(run.task)
    assert exactness.of_run(last).words == exactness.of_commit(last, last.commits[-1]).words == "inexact"
    assert last.attempts[-1].resume is not None and last.attempts[-1].resume.exactness == "inexact"
    assert last.compared[-1].lowers is None  # it had promised nothing more
