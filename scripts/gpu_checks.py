"""`make gpu`: what is measured of raykit on one accelerator, in under six minutes, and what was skipped and why.

    python scripts/gpu_checks.py [--seconds 340] [--rehearse]

Without an accelerator every check is listed as skipped, and that is no failure. `--rehearse` runs those that can on
CPUs instead: it shows that this script works, and measures nothing of an accelerator.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from plainrun import final_digest, freeze_job, rows_bits, state_of, take, write_job  # noqa: E402

from raykit.errors import RaykitError  # noqa: E402
from raykit.train.inputs import Task  # noqa: E402
from raykit.train.tensors import HostCopy  # noqa: E402

NEEDS_S: Final = 30.0
"""What a check may need: with less left it is skipped."""
KILLED_AT: Final = (2, 4, 6)
"""After so many commits of a run."""
EDITS: Final = {"updates": "400", "checkpoint_every": "40", "params": "{ width = 64, dropout = 0.3 }"}


class Skipped(Exception):
    """Why a check was not made."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the checks are made."""

    folder: Path
    device: str
    until: float

    def left_s(self) -> float:
        return max(0.0, self.until - time.monotonic())

    def new(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True)
        return path

    def require_accelerator(self) -> None:
        if self.device != "cuda":
            raise Skipped("needs an accelerator")


def main() -> int:
    """Make every check; 1 if one failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=340.0)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    there = torch.cuda.is_available()
    print(
        f"accelerator  {torch.cuda.get_device_name(0) if there else 'none that PyTorch ' + torch.__version__ + ' sees'}"
    )
    if not there and not options.rehearse:
        for name in CHECKS:
            print(f"  {name:<34} skipped: no accelerator here")
        print("nothing was measured")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="raykit-gpu-") as folder:
        bench = Bench(Path(folder), "cuda" if there else "cpu", time.monotonic() + options.seconds)
        for name, check in CHECKS.items():
            how, said = outcome(bench, check)
            failed += how == "FAILED"
            print(f"  {name:<34} {how}: {said}", flush=True)
    return 1 if failed else 0


def outcome(bench: Bench, check: Callable[[Bench], str]) -> tuple[str, str]:
    """`ok`, `skipped` or `FAILED`, and what there is to say."""
    if bench.left_s() < NEEDS_S:
        return "skipped", f"{bench.left_s():.0f} s are left"
    began = time.monotonic()
    try:
        said = check(bench)
    except Skipped as why:
        return "skipped", str(why)
    except (AssertionError, RaykitError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        return "FAILED", f"{type(error).__name__}: {str(error).strip()[-600:]}"
    return "ok", f"{said} ({time.monotonic() - began:.0f} s)"


# --- exact resume -------------------------------------------------------------------------------------------


def resume_fp32(bench: Bench) -> str:
    """A run that is killed three times is the run that nobody touched, to the bit."""
    return resume(bench, "fp32", {})


def resume_bf16(bench: Bench) -> str:
    """The same with arithmetic in bfloat16."""
    return resume(bench, "bf16", {"dtype": '{ autocast = "bfloat16" }'})


def resume(bench: Bench, name: str, edits: dict[str, str]) -> str:
    """Rows and final manifests of both runs are compared, and every attempt has to say that it is exact."""
    folder = bench.new(name)
    plan = write_job(folder / "job", {**EDITS, "device": f'"{bench.device}"', **edits})
    whole = freeze_job(folder / "whole", plan)
    train(bench, whole)
    killed = freeze_job(folder / "killed", plan)
    for commits in KILLED_AT:
        train(bench, killed, until=commits)
    train(bench, killed)
    state = state_of(killed)
    classes = {attempt.resume.exactness for attempt in state.attempts if attempt.resume is not None}
    devices = {attempt.facts["device_model"] for attempt in state.attempts}
    assert final_digest(whole) == final_digest(killed), "the final manifests differ"
    assert rows_bits(whole) == rows_bits(killed), "rows differ"
    assert classes == {"exact"}, f"resumes were {classes}"
    return f"{len(state.attempts) - 1} kills, equal to the bit, on {', '.join(devices)}"


def train(bench: Bench, task: Task, *, until: int | None = None) -> None:
    """One launch in a plain process, killed once there are so many commits."""
    task = take(task)
    path = Path(f"{task.root}.{task.launch}.json")
    path.write_text(json.dumps(task.plain()))
    command = [sys.executable, "-m", "raykit.train.plain", str(path), "--device", bench.device]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with ended(process):
        while until is not None and process.poll() is None and bench.left_s():
            if len({commit.update for commit in state_of(task).commits}) >= until:
                process.send_signal(signal.SIGKILL)
                process.wait()
                return
            time.sleep(0.01)
        said, _ = process.communicate(timeout=bench.left_s())
        assert process.returncode == 0, said
        assert until is None, f"it was over before {until} commits"


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


# --- copies and memory --------------------------------------------------------------------------------------


def pinned(bench: Bench) -> str:
    """What a save copies from the accelerator is what is there, and in pinned memory."""
    bench.require_accelerator()
    tensors = {f"t{n}": torch.randn(2**22, device="cuda") for n in range(16)}
    tensors |= {"half": torch.randn(1001, device="cuda").bfloat16(), "count": torch.arange(7, device="cuda")}
    plain = HostCopy()
    plain.take({name: tensor.cpu() for name, tensor in tensors.items()})
    took = {}
    for pin in (False, True):
        copy = HostCopy(pin=pin)
        copy.take(tensors)
        began = time.perf_counter()
        copy.take(tensors)
        took[pin] = time.perf_counter() - began
        assert b"".join(copy.stream()) == b"".join(plain.stream()), f"another copy with pin={pin}"
    gigabytes = sum(tensor.nbytes for tensor in tensors.values()) / 1e9
    return f"{gigabytes / took[True]:.1f} GB/s pinned, {gigabytes / took[False]:.1f} GB/s not"


def peak(bench: Bench) -> str:
    """What a process holds at most, of which its bound is a part."""
    bench.require_accelerator()
    torch.cuda.reset_peak_memory_stats()
    held = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    seen = torch.cuda.max_memory_allocated()
    assert seen >= held.nbytes, f"{seen} bytes are the peak, {held.nbytes} are held"
    return f"{seen / 1e6:.0f} MB seen of {held.nbytes / 1e6:.0f} MB held"


BOUNDED: Final = """
import torch
from raykit.fleet.pool.process import hold_at_most
hold_at_most(10**9, gpus=0.5)
torch.empty(2**28, dtype=torch.uint8, device="cuda")
try:
    torch.empty(2**31, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print("refused")
"""


def bound(bench: Bench) -> str:
    """A worker that may hold a gigabyte of an accelerator is refused the third."""
    bench.require_accelerator()
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "refused", done.stderr
    return "2 GB were refused of 1 GB that it may hold"


# --- work beside training -----------------------------------------------------------------------------------


def beside(bench: Bench) -> str:
    """A launch whose checks have no accelerator of their own: they see none."""
    devices = launch(bench, "beside", "")
    count = torch.cuda.device_count() if bench.device == "cuda" else 0
    assert devices["train"] == {bench.device}, devices
    assert devices["qc"] == {"cuda" if count > 1 else "cpu"}, devices
    return f"training on {bench.device}, checks on {devices['qc'].pop()}"


def shared(bench: Bench) -> str:
    """A launch whose checks share the accelerator of training, with a reason and a bound."""
    bench.require_accelerator()
    if torch.cuda.device_count() > 1:
        raise Skipped("checks get one of their own here")
    devices = launch(bench, "shared", 'shares = "this machine has one accelerator"\nmemory_gb = 2.0\n')
    assert devices == {"train": {"cuda"}, "qc": {"cuda"}}, devices
    return "training and checks on one accelerator"


def generation(bench: Bench) -> str:
    """A set of what that launch trained."""
    job, root = bench.folder / "beside" / "job", bench.folder / "beside" / "store"
    if not root.exists():
        raise Skipped("nothing was trained")
    at, by, name = ("--root", str(root)), ("--by", "gpu-checks"), "digits-vae"
    raykit(
        bench, "qc", "review", name, "--update", "60", "--verdict", "passed", "--note", "a check", *by, *at
    )
    raykit(
        bench, "candidates", "register", "teacher", f"{name}@60", "--role", "production-candidate", *by, *at
    )
    raykit(bench, "candidates", "approve", "teacher", "--use", "generation", "--reason", "a check", *by, *at)
    raykit(bench, "generate", str(job / "plan.toml"), *at)
    found = {facts["device"] for kind, facts in all_facts(root) if kind == "generate"}
    assert found == {bench.device}, found
    return f"made on {bench.device}"


def launch(bench: Bench, name: str, qc: str) -> dict[str, set[str]]:
    """Launch a short run of the bundled job; the devices that its records name."""
    folder = bench.new(name)
    shutil.copytree(ROOT / "jobs" / "digits", folder / "job")
    path = folder / "job" / "plan.toml"
    text = path.read_text()
    edits = {"updates": "60", "checkpoint_every": "20", "rows": "200", "fail": '{ ratio = "> 9" }'}
    for key, value in edits.items():
        text = re.sub(rf"(?m)^{key}( *)= .*$", rf"{key}\1= {value}", text, count=1)
    text = re.sub(r"(?m)^every( *)= .*$", rf"every\1= 20\n{qc}", text, count=1)
    path.write_text(text.replace("every = 100", "every = 30"))
    raykit(bench, "launch", str(path), "--root", str(folder / "store"))
    found: dict[str, set[str]] = {}
    for kind, facts in all_facts(folder / "store"):
        found.setdefault(kind, set()).add(facts["device"])
    return found


def raykit(bench: Bench, *arguments: str) -> None:
    command = [sys.executable, "-m", "raykit", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=bench.left_s(), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def all_facts(root: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The facts in a store's records, each with what it is of: `train`, `qc` or `generate`."""
    for path in sorted(root.rglob("*.json")):
        kind = "qc" if "qc" in path.parts else "train" if "runs" in path.parts else "generate"
        for facts in _facts(json.loads(path.read_bytes())):
            yield kind, facts


def _facts(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        if "device" in value.get("facts", ()):
            yield value["facts"]
        for each in value.values():
            yield from _facts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _facts(each)


CHECKS: Final[dict[str, Callable[[Bench], str]]] = {
    "exact resume by SIGKILL, fp32": resume_fp32,
    "exact resume by SIGKILL, bf16": resume_bf16,
    "pinned copies": pinned,
    "peak memory": peak,
    "memory bound of a worker": bound,
    "QC beside training": beside,
    "generation": generation,
    "QC on the accelerator of training": shared,
}

if __name__ == "__main__":
    sys.exit(main())
