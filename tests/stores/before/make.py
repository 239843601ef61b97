"""How the store of before was made, at revision f0b40b8: a run that was killed, and an examined one with half a set.

    unshare --uts sh -c 'hostname n7; python tests/stores/before/make.py'

It is kept as `store.tar.xz` and never made again: a later revision makes a later store. Everything in it was really
trained, examined, generated and killed, by processes of a machine called n7:

    experiment  what is there
    stopped     20 updates, a checkpoint every 5, killed by SIGKILL in update 14; its rows reach beyond update 10
    tiny        the same 20 updates to their end; the checkpoint of update 20 examined, reviewed, registered, approved;
                a set of 60 rows in 30 units, of which some are published and at most two were in hand when all died
"""

from __future__ import annotations

import contextlib
import io
import lzma
import socket
import sys
import tarfile
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import genray
import psutil
from nursery import Nursery
from plainrun import Launches, freeze_job, state_of, write_job

from raykit.train import frozen

KILLED_IN = 14
GATE_PASSES = 1 + 3 + 3 + 2
"""Forward passes of training before the first update."""
SLOW_S = 0.3
"""An update of the killed run: rows are written every 0.2 s."""
ENOUGH_UNITS = 9


def killed(folder: Path, root: Path, nursery: Nursery) -> None:
    """A run whose rows are durable beyond its newest checkpoint."""
    task = freeze_job(root, write_job(folder / "stopped", {"name": '"stopped"'}))
    run = Launches(nursery, task, env={"TINY_SLOW_S": str(SLOW_S)})
    run.killed({"loss": GATE_PASSES + KILLED_IN})
    state = state_of(task)
    assert state.commits[-1].update == 10 < state.rows < KILLED_IN, (state.commits[-1], state.rows)


def half_a_set(root: Path) -> None:
    """Some units of a set, published by real workers that are killed together with their launch."""
    genray.behave(root, sleep_s=0.2)
    running = genray.launch(root, "--workers", "2")
    end = time.monotonic() + 120
    while len(genray.published(root)) < ENOUGH_UNITS:
        assert time.monotonic() < end and running.process.poll() is None, running.end()
        time.sleep(0.05)
    family = [running.process, *psutil.Process(running.process.pid).children(recursive=True)]
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(family[1:], 10)
    assert running.end()[0] < 0


def pack(root: Path, path: Path) -> None:
    """A tar whose bytes depend on names and contents alone."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for each in sorted(root.rglob("*")):
            if each.is_file():
                info = tarfile.TarInfo(str(each.relative_to(root)))
                info.size = each.stat().st_size
                tar.addfile(info, io.BytesIO(each.read_bytes()))
    path.write_bytes(lzma.compress(out.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def plain_environment(git: object) -> frozen.Environment:
    """The record without what it says of the machine at hand."""
    made = real(git)  # type: ignore[arg-type]
    packages = {name: made.packages[name] for name in ("numpy", "raykit", "torch")}
    told = {"platform": "Linux", "cpu_model": "a processor", "packages": packages}
    return made.model_copy(update=told)


if __name__ == "__main__":
    assert socket.gethostname() == "n7", "see above: places are written down with the name of the machine"
    real, frozen.environment = frozen.environment, plain_environment
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nursery = Nursery(folder / "nursery")
        root = genray.trained(folder, nursery)
        killed(folder, root, nursery)
        nursery.close()
        half_a_set(root)
        pack(root, HERE / "store.tar.xz")
        print(
            (HERE / "store.tar.xz").stat().st_size, "bytes;", len(genray.published(root)), "units published"
        )
