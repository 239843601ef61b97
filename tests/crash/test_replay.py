"""Another process restores a checkpoint in the middle of a run and trains through the next one: the same to the bit, or
the first difference is named and the class falls.

FAULT-A15
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from called import calls
from nursery import Nursery, Rank
from plainrun import Launches, final_digest, freeze_job, rows_bits, state_of, write_job

from raykit import exactness
from raykit.records import Compared
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

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

IN_THE_REPLAY = """
import sys


class Variant(Tiny):
    def model(self, params):
        spec = sys.modules["__main__"].__spec__
        if spec is not None and spec.name == "raykit.train.replay" and "VARIANT_FLAG" in os.environ:
            with open(os.environ["VARIANT_FLAG"], "w") as flag:
                print(os.getpid(), file=flag)
            if os.environ["VARIANT_THEN"] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if os.environ["VARIANT_THEN"] == "raise":
                raise ValueError("no such thing here")
            time.sleep(600)
        return super().model(params)
"""
"""Does something only in the process of a replay, once it has said which one that is."""


def of(
    nursery: Nursery, folder: Path, edits: Mapping[str, str] | None = None, *, variant: str | None = None
) -> Launches:
    plan = write_job(folder / "job", {"replay": '"end"', **(edits or {})}, variant=variant)
    return Launches(nursery, freeze_job(folder / "store", plan), int((edits or {}).get("workers", "1")))


def ran(launches: Launches, *, before: int = 0) -> Compared:
    """What a replay has found of a launch that nobody disturbs, where so many were missed before."""
    ends = launches.run()
    assert [code for code, _ in ends] == [0] * launches.world, ends
    check_invariants(LocalStore(launches.task.root))
    state = state_of(launches.task)
    assert state.completed and len(state.unreplayed) == before, ends
    (found,) = (event for event in state.compared if event.how == "replay")
    return found


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_clean_run_is_replayed_in_another_process_and_is_equal(
    workers: str, nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launches = of(nursery, tmp_path, {"workers": workers})
    found = ran(launches)
    assert (found.how, found.against, found.first, found.last) == ("replay", 1, 16, 20)
    assert (found.rows, found.evaluations, found.manifests) == (5, 1, 1)
    assert found.difference is None and found.lowers is None and found.took_s is not None
    assert exactness.of_run(state_of(launches.task)).words == "exact (replayed)"
    raykit = calls(capsys)
    assert "not replay" not in raykit("status", "--root", launches.task.root).out
    assert "exact (replayed)" in raykit("show", "tiny", "--root", launches.task.root).out


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(BY_TIME, id="time", marks=pytest.mark.long),
        pytest.param(BY_URANDOM, id="urandom"),
        pytest.param(BY_ENVIRON, id="environ", marks=pytest.mark.long),
    ],
)
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


@pytest.mark.parametrize(
    ("then", "why"),
    [pytest.param("die", "ended with -9", marks=pytest.mark.long), ("raise", "no such thing here")],
)
def test_a_replay_that_fails_is_recorded_and_fails_nothing(
    then: str, why: str, nursery: Nursery, tmp_path: Path
) -> None:
    made = of(nursery, tmp_path, {"workers": "2" if then == "raise" else "1"}, variant=IN_THE_REPLAY)
    launches = replace(made, env={"VARIANT_FLAG": str(tmp_path / "flag"), "VARIANT_THEN": then})
    ends = launches.run()
    assert [code for code, _ in ends] == [0] * launches.world, ends
    state = state_of(launches.task)
    (missed,) = state.unreplayed
    assert state.completed and not state.compared
    assert why in missed.why or missed.why == "the process of another rank ended"
    assert (missed.first, missed.last) == (16, 20)
    assert exactness.of_run(state).words == "exact (declared)"
    check_invariants(LocalStore(launches.task.root))


@pytest.mark.long
def test_a_replay_ends_with_its_time_and_status_says_so(
    nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {"patch": {"raykit.replays.SPARE_S": 0.1, "raykit.replays.SLOWER": 0}}
    launches = replace(of(nursery, tmp_path), hooks=short)
    assert [code for code, _ in launches.run()] == [0]
    state = state_of(launches.task)
    assert state.completed and state.unreplayed[0].why == "it took longer than its time"
    said = calls(capsys)("status", "--root", launches.task.root)
    assert "tiny: exact (declared), not replayed: it took longer than its time" in said.out


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_replay_ends_with_its_gang_and_is_made_at_the_next_occasion(
    number: signal.Signals, nursery: Nursery, tmp_path: Path
) -> None:
    launches, flag = of(nursery, tmp_path, variant=IN_THE_REPLAY), tmp_path / "flag"
    hanging = replace(launches, env={"VARIANT_FLAG": str(flag), "VARIANT_THEN": "hang"})
    (rank,) = hanging.start()
    until(lambda: flag.exists() and flag.read_text().endswith("\n"))
    child = Rank(nursery, int(flag.read_text()), flag)
    assert child.running()
    rank.signal(number)
    code, out = rank.wait()
    assert code == (4 if number == signal.SIGTERM else -number), out
    until(lambda: not child.running())
    stopped = state_of(launches.task)
    assert not stopped.completed and stopped.commits[-1].update == 20
    assert [missed.why for missed in stopped.unreplayed] == (["SIGTERM"] if number == signal.SIGTERM else [])
    found = ran(launches, before=len(stopped.unreplayed))
    assert (found.attempt, found.against, found.first, found.last) == (2, 1, 16, 20)
    assert state_of(launches.task).commits == stopped.commits, "nothing is trained on"


@pytest.mark.long
def test_a_replay_that_costs_little_is_made_early_and_once(nursery: Nursery, tmp_path: Path) -> None:
    """Training waits for it, and goes on to what it would have come to without."""
    edits = {"updates": "60", "workers": "2", "replay_share": "1.0"}
    slow = {"TINY_SLOW_S": "0.1"}  # an update has to take long beside the start of a process
    found = ran(replace(of(nursery, tmp_path / "early", edits), env=slow))
    assert (found.first, found.last, found.rows, found.manifests) == (6, 12, 7, 1)
    assert found.difference is None
    never = of(nursery, tmp_path / "never", {**edits, "replay": '"never"', "replay_share": "0.0"})
    assert [code for code, _ in never.run()] == [0, 0]
    early = freeze_job(tmp_path / "early" / "store", tmp_path / "early" / "job" / "plan.toml")
    assert final_digest(early) == final_digest(never.task)
    assert rows_bits(early) == rows_bits(never.task)


@pytest.mark.long
def test_what_a_resume_began_with_is_not_what_is_restored(nursery: Nursery, tmp_path: Path) -> None:
    """From there, what no checkpoint holds began anew once already: it would be equal, and show nothing."""
    launches = of(nursery, tmp_path)
    launches.killed({"put": '"event":"commit"', "when": "after", "nth": 4})
    found = ran(launches)  # went on from 15, and has only saved the last one
    assert (found.attempt, found.against, found.first, found.last) == (2, 1, 11, 17)
    assert (found.rows, found.manifests, found.difference) == (7, 1, None)


def test_a_run_that_is_only_state_exact_is_not_replayed(nursery: Nursery, tmp_path: Path) -> None:
    launches = of(nursery, tmp_path, {"resume": '"state-exact"'})
    assert [code for code, _ in launches.run()] == [0]
    state = state_of(launches.task)
    assert state.completed and not state.compared and not state.unreplayed


def test_without_being_asked_nobody_replays(nursery: Nursery, tmp_path: Path) -> None:
    launches = of(nursery, tmp_path, {"replay": '"never"'})
    assert [code for code, _ in launches.run()] == [0]
    state = state_of(launches.task)
    assert state.completed and not state.compared and not state.unreplayed


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
