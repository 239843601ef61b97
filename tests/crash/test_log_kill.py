"""SIGKILL at every disk operation of an append: the log holds the old entries, or the old and the new."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from raykit.records import Beat, RunEntry
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.log import Log, RunLog

PREFIX = layout.run_log("e", "r")

# One interpreter forks a child per k, so that trying all k costs one start.
ALL_K = """
import itertools, json, os, signal, sys
from raykit.records import Beat
from raykit.store import log
from raykit.store.local import LocalStore
from raykit.testing import Fault, FaultDisk, kill

root, before = sys.argv[1], int(sys.argv[2])
log.SNAPSHOT_EVERY = 3


def append(k):
    disk = FaultDisk(Fault(kill, at=k))
    victim = log.RunLog(LocalStore(f"{root}/{k}", disk=disk), "e", "r", by="victim")
    victim.append(lambda _: [Beat(launch="new")], at=9.0)


for k in itertools.count(1):
    made = log.RunLog(LocalStore(f"{root}/{k}"), "e", "r", by="t")
    for n in range(before):
        made.append(lambda _: [Beat(launch=f"old-{n}")], at=float(n))
    child = os.fork()
    if child == 0:
        append(k)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([k, status]), flush=True)
    if status == 0:
        break
"""


def kill_at_all_k(root: Path, before: int) -> int:
    """Try every k over a log of `before` entries; the number of operations an append has."""
    done = subprocess.run(
        [sys.executable, "-c", ALL_K, str(root), str(before)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    tried = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for _, status in tried] == [-9] * (len(tried) - 1) + [0], "every fault but the last fired"
    return len(tried) - 1


def check(root: Path, before: int) -> bool:
    """The root is as before the append or as after it, and can be written on; whether it is as after."""
    store = LocalStore(root)
    entries = Log(store, PREFIX, RunEntry, by="reader").refresh()
    events = [event for entry in entries for event in entry.events]
    old: list[object] = [Beat(launch=f"old-{n}") for n in range(before)]
    assert events in (old, [*old, Beat(launch="new")])
    assert len(store.leftovers()) <= 1
    RunLog(store, "e", "r", by="next").append(lambda _: [Beat(launch="next")], at=10.0)
    again = Log(LocalStore(root), PREFIX, RunEntry, by="reader").refresh()
    assert [event for entry in again for event in entry.events] == [*events, Beat(launch="next")]
    return len(events) > before


def test_a_kill_at_any_step_of_the_first_append(tmp_path: Path) -> None:
    # covers F1, F2, I1, I2, I10, CKPT-01
    operations = kill_at_all_k(tmp_path, 0)
    landed = [check(tmp_path / str(k), 0) for k in range(1, operations + 2)]
    assert landed == sorted(landed), "once it is there, it stays"
    assert not landed[0]
    assert landed[-1]


def test_a_kill_at_any_step_of_an_append_with_a_snapshot(tmp_path: Path) -> None:
    # covers F1, F2, I1, I2, I10, CKPT-01
    operations = kill_at_all_k(tmp_path, 2)
    landed = [check(tmp_path / str(k), 2) for k in range(1, operations + 2)]
    assert landed == sorted(landed)
    assert landed.count(True) > 5, "the kills inside the snapshot come after the entry"
    snapshots = [(tmp_path / str(k) / layout.log_snapshot(PREFIX)).exists() for k in range(1, operations + 2)]
    assert snapshots == sorted(snapshots)
    assert snapshots[-1]
