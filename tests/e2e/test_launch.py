"""`raykit launch` on a real local Ray: one kill of each kind, and what people do to it from outside.

covers RAY-01 RAY-06 RAY-20, I4 I5 I9 I10 I11, F12 F23 F24, CKPT-05 CKPT-07
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from plainrun import final_digest, rows_bits, write_job
from raylaunch import Store, kill, raykit

from raykit import exactness
from raykit.store.local import LocalStore
from raykit.testing.invariants import check_invariants

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SLOW = {"TINY_SLOW_S": "0.1"}
VERY_SLOW = {"TINY_SLOW_S": "1.0"}


def same_run(store: Store, undisturbed) -> None:
    """Complete, equal to the undisturbed run to the bit, and in order."""
    assert store.state().completed
    assert final_digest(store.task) == undisturbed.digest
    assert rows_bits(store.task) == undisturbed.rows
    check_invariants(LocalStore(store.root))


def listing(root: Path) -> dict[str, tuple[int, int]]:
    """Every file of a store with its size and time of change."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_a_killed_worker_and_a_killed_controller_of_two_ranks(tmp_path: Path, two_ranks_undisturbed) -> None:
    store = Store(tmp_path / "store")
    launch = raykit("launch", str(two_ranks_undisturbed.plan), root=store.root, environment=SLOW)
    state = store.wait("the first rows", lambda s: s.rows >= 12, launch.process)
    kill(state.attempt.place.pid)
    store.wait("a second attempt", lambda s: len(s.attempts) == 2 and s.rows >= 30, launch.process)
    kill(launch.descendant("TrainController"))
    code, out, err = launch.end()
    assert code == 0, (out, err)
    assert [attempt.attempt for attempt in store.state().attempts] == [1, 2, 3]
    assert [end.reason for end in store.state().ends.values()] == ["killed", "killed", "completed"]
    assert all(a.resume.exactness == "exact" for a in store.state().attempts[1:])
    assert {a.facts["hash_seed"] for a in store.state().attempts} == {"0"}, "a set of names has one order"
    same_run(store, two_ranks_undisturbed)
    (replayed,) = [event for event in store.state().compared if event.how == "replay"]
    assert (replayed.attempt, replayed.last, replayed.difference) == (3, 80, None)
    assert "updates 76 to 80, replayed in another process: equal to the bit" in err


@pytest.mark.long  # its parts are in tests/crash, without Ray
def test_a_day_in_the_life_of_a_run(tmp_path: Path, undisturbed) -> None:
    """Held while it runs, killed, gone on with, told to stop, gone on with by name, and then left alone."""
    store = Store(tmp_path / "store")
    plan = str(undisturbed.plan)
    first = raykit("launch", plan, root=store.root, environment=VERY_SLOW)
    store.wait("the first rows", lambda s: s.rows >= 1, first.process)

    code, out, err = raykit("launch", plan, root=store.root).end()
    assert (code, out) == (3, "")
    assert f"process {first.process.pid}" in err and "Traceback" not in err

    first.signal(signal.SIGKILL)
    first.end()
    second = raykit("launch", plan, root=store.root, environment=SLOW)
    store.wait("a second attempt", lambda s: len(s.attempts) == 2 and s.rows >= 40, second.process)
    second.signal_group(signal.SIGTERM)
    code, out, err = second.end()
    assert code == 4, (out, err)
    assert "resume from update" in err
    ended = store.state().ended
    assert ended.reason == "paused" and ended.update == store.state().committed == store.state().rows

    code, out, err = raykit("resume", "tiny", root=store.root).end()
    assert code == 0, (out, err)
    same_run(store, undisturbed)
    assert not [
        p
        for p in psutil.process_iter(["environ"])
        if "RAYKIT_ROOT" in (p.info["environ"] or {}) and p.info["environ"]["RAYKIT_ROOT"] == str(store.root)
    ], "a process was left behind"

    before = listing(store.root)
    code, out, err = raykit("launch", plan, root=store.root).end()
    assert code == 0 and "already complete" in out
    assert listing(store.root) == before


OF_THE_PROCESS = """
class Variant(Tiny):
    def losses(self, model, batch):
        terms = super().losses(model, batch)
        if model.training and self.seen > 8:
            terms["fit"] = replace(terms["fit"], value=terms["fit"].value * (1 + os.getpid() / 2**22))
        return terms
"""


@pytest.mark.slow  # its parts are in tests/crash/test_overlap.py and tests/unit/test_fallen.py
def test_a_run_that_is_not_what_it_was_pauses_and_goes_on_by_a_persons_word(tmp_path: Path) -> None:
    """covers FAULT-A15"""
    store = Store(tmp_path / "store")
    edits = {"updates": "60", "checkpoint_every": "10"}
    plan = str(write_job(tmp_path / "job", edits, variant=OF_THE_PROCESS))
    launch = raykit("launch", plan, root=store.root, environment=SLOW)
    state = store.wait("rows beyond a checkpoint", lambda s: s.rows >= 17, launch.process)
    kill(state.attempt.place.pid)
    code, out, err = launch.end()
    assert code == 4, (out, err)
    assert "no longer exact: attempt 2 trained what attempt 1 had recorded to other bits" in err
    way_on = 'raykit resume tiny --as inexact --reason "why that is good enough" --by NAME'
    assert way_on in out
    _, out, _ = raykit("status", root=store.root).end()
    assert "terms.fit.value" in out and way_on in out
    code, _, err = raykit("resume", "tiny", root=store.root).end()
    assert code == 4 and "nobody has said what is done about it" in err
    go_on = ("resume", "tiny", "--as", "inexact", "--reason", "it will do", "--by", "mira")
    code, out, err = raykit(*go_on, root=store.root).end()
    assert code == 0, (out, err)
    assert exactness.of_run(store.state()).words == "inexact"


@pytest.mark.slow  # tests/crash/test_signals.py wakes up a gang late, without Ray
def test_a_launch_that_wakes_up_late_changes_nothing(tmp_path: Path, undisturbed) -> None:
    store = Store(tmp_path / "store")
    old = raykit("launch", str(undisturbed.plan), root=store.root, environment=SLOW)
    store.wait("the first rows", lambda s: s.rows >= 12, old.process)
    asleep = [psutil.Process(old.process.pid), *psutil.Process(old.process.pid).children(recursive=True)]
    for process in asleep:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        code, out, err = raykit("launch", str(undisturbed.plan), root=store.root).end()
        assert code == 0, (out, err)
        named = {event.key for event in store.state().events if hasattr(event, "key") and "/" in event.key}
        before = {key: LocalStore(store.root).get(key) for key in named}
    finally:
        for process in asleep:
            os.kill(process.pid, signal.SIGCONT)
    code, out, err = old.end()
    assert code == 5, (out, err)
    assert "Traceback" not in err
    assert {key: LocalStore(store.root).get(key) for key in named} == before
    same_run(store, undisturbed)
