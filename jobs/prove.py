"""`make prove`: the bundled run killed at random moments is the run that nobody touched, to the bit.

    python -m jobs.prove --root demo/prove --kills 5 --seed 1

Launches the job once undisturbed and once with SIGKILL sent, each time at a random update, to a random one of the
launch, the train controller and the worker; goes on with `raykit launch` until it is complete; prints both final
digests. Equal manifests are equal weights, optimizer state, generators and counters, byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

PLAN = Path(__file__).parent / "digits" / "plan.toml"
NAME = "digits-vae"
DEADLINE_S = 600.0
UPDATES = 2000
LAST_UNTOUCHED = 150
"""No kill falls into the last updates, which are over before it could be sent."""
LAUNCH, CONTROLLER, WORKER = "the launch", "the train controller", "the worker"


def main() -> int:
    """Prove it; returns 0 if the digests are equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path("demo/prove"))
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed} (repeat these choices with --seed)")
    shutil.rmtree(options.root, ignore_errors=True)
    undisturbed, killed = options.root / "undisturbed", options.root / "killed"
    print("\nundisturbed")
    launch(undisturbed).wait()
    print(f"  complete: {rows(undisturbed)} rows\n\nkilled")
    kill_at_random(killed, options.kills, random.Random(options.seed))
    first, second = final_digest(undisturbed), final_digest(killed)
    print(f"\n  undisturbed  {first}\n  killed       {second}")
    same = first is not None and first == second and history(undisturbed) == history(killed)
    print("equal: the same run, to the bit, in its weights and in every row" if same else "NOT EQUAL")
    return 0 if same else 1


def kill_at_random(root: Path, kills: int, rng: random.Random) -> None:
    """Kill `kills` times, once at a random update of each equal part of the run, then let it end."""
    part = (UPDATES - LAST_UNTOUCHED) // kills
    process = launch(root)
    for number in range(1, kills + 1):
        moment = (number - 1) * part + rng.randrange(1, part)
        whom = rng.choice([LAUNCH, CONTROLLER, WORKER])
        while not wait_for(process, root, moment):
            process = launch(root)  # a launch starts its gang a few times only, and then says so
        victim = pid_of(process, whom, root)
        kill(victim)
        print(f"  kill {number} of {kills}: {whom} (process {victim}), past update {moment:,}", flush=True)
        if whom == LAUNCH:
            process.wait()
            process = launch(root)
    while process.wait() != 0:
        process = launch(root)
    print(f"  complete: {rows(root)} rows")


def kill(pid: int) -> None:
    """SIGKILL, to a process that may have ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def launch(root: Path) -> subprocess.Popen[bytes]:
    """`raykit launch` on this root."""
    program = Path(sys.executable).with_name("raykit")
    return subprocess.Popen(
        [str(program), "launch", str(PLAN), "--root", str(root)], stdout=subprocess.DEVNULL
    )


def wait_for(process: subprocess.Popen[bytes], root: Path, update: int) -> bool:
    """Wait until the run has a durable row past `update`; False if the launch ends first."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if recorded(root) >= update:
            return True
        time.sleep(0.05)
    return False


def pid_of(process: subprocess.Popen[bytes], whom: str, root: Path) -> int:
    """The process to kill; the launch itself if the other one is not there at this moment."""
    if whom == WORKER:
        return [int(event["place"]["pid"]) for event in events(root) if event["event"] == "attempt_started"][
            -1
        ]
    if whom == CONTROLLER:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                if any("TrainController" in part for part in child.cmdline()):
                    return child.pid
            except psutil.Error:
                continue
    return process.pid


def events(root: Path) -> Iterator[dict[str, Any]]:
    """The events of the run's log, read from the store by hand."""
    folder = root / "experiments" / NAME / "runs" / "main" / "log"
    for path in sorted(folder.glob("*.json")):
        yield from json.loads(path.read_text())["events"]


def recorded(root: Path) -> int:
    """The last update with a durable row."""
    last = 0
    for event in events(root):
        if event["event"] == "segment" and event["series"] == "train":
            last = event["last"]
        elif event["event"] == "superseded":
            last = min(last, max(event["from"] - 1, 0))
    return last


def final_digest(root: Path) -> str | None:
    """The digest of the last commit's manifest."""
    return next(
        (event["sha256"] for event in reversed(list(events(root))) if event["event"] == "commit"), None
    )


def history(root: Path) -> list[dict[str, object]]:
    """Every row but for times and attempts."""
    import raykit

    table = raykit.open(str(root)).history(NAME)
    return [
        {k: v for k, v in row.plain().items() if k not in ("attempt", "elapsed_s")} for row in table.rows()
    ]


def rows(root: Path) -> int:
    """How many rows the history has."""
    return len(history(root))


if __name__ == "__main__":
    sys.exit(main())
