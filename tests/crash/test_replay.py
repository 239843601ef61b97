"""Another process restores a checkpoint in the middle of a run and trains through the next one: the same to the bit, or
the first difference is named and the class falls.

FAULT-A15
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from nursery import Nursery, Rank
from plainrun import Launches, final_digest, freeze_job, state_of, take, write_job

from raykit import exactness
from raykit.records import Compared
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

END = {"replay": '"end"', "dtype": '{ autocast = "none" }'}

BY_TIME = """
import time


class Variant(Tiny):
    def losses(self, model, batch):
        if model.training and self.seen >= 4:
            for group in self.optimizer_.param_groups:
                group["lr"] = 0.02 + 1e-9 * (time.monotonic() - STARTED)
        return super().losses(model, batch)

    def optimizer(self, model, params):
        self.optimizer_ = super().optimizer(model, params)
        return self.optimizer_

    def scheduler(self, optimizer, params):
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)


STARTED = time.monotonic()
"""

BY_URANDOM = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen > 4:
            noise = 1.0 + 1e-3 * int.from_bytes(os.urandom(2), "big") / 65536
            terms["fit"] = replace(terms["fit"], weight=noise)
        return terms
"""

BY_ENVIRON = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen > 4:
            calls = int(os.environ.get("VARIANT_CALLS", "0")) + 1
            os.environ["VARIANT_CALLS"] = str(calls)
            terms["fit"] = replace(terms["fit"], weight=1.0 + 1e-3 * calls)
        return terms
"""


def of(
    nursery: Nursery, folder: Path, edits: Mapping[str, str] | None = None, *, variant: str | None = None
) -> Launches:
    plan = write_job(folder / "job", {"replay": '"end"', **(edits or {})}, variant=variant)
    return Launches(nursery, freeze_job(folder / "store", plan), int((edits or {}).get("workers", "1")))


def ran(launches: Launches) -> Compared:
    """What a replay has found of an undisturbed run."""
    ends = launches.run()
    assert [code for code, _ in ends] == [0] * launches.world, ends
    check_invariants(LocalStore(launches.task.root))
    state = state_of(launches.task)
    assert state.completed and not state.unreplayed, ends
    (found,) = state.compared
    return found


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_clean_run_is_replayed_in_another_process_and_is_equal(
    workers: str, nursery: Nursery, tmp_path: Path
) -> None:
    launches = of(nursery, tmp_path, {"workers": workers})
    found = ran(launches)
    assert (found.how, found.against, found.first, found.last) == ("replay", 1, 16, 20)
    assert (found.rows, found.evaluations, found.manifests) == (5, 1, 1)
    assert found.difference is None and found.lowers is None and found.took_s is not None
    assert exactness.of_run(state_of(launches.task)).words == "exact (replayed)"


@pytest.mark.parametrize("variant", [BY_TIME, BY_URANDOM, BY_ENVIRON], ids=["time", "urandom", "environ"])
def test_what_only_the_process_knows_is_found_and_the_class_falls(
    variant: str, nursery: Nursery, tmp_path: Path
) -> None:
    launches = of(nursery, tmp_path, variant=variant)
    found = ran(launches)
    state = state_of(launches.task)
    assert state.gates["resume"].exactness in (None, "exact"), "the gate has not seen it"
    assert found.difference is not None and found.lowers == "inexact"
    assert found.difference.update in (16, 17), "the update of the first difference"
    assert found.difference.what in ("terms.fit.weight", "terms.fit.contribution", "lr", "terms.fit.value")
    assert found.difference.was != found.difference.now
    assert exactness.of_run(state).words == "inexact"
