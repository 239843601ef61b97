"""The store of before: what an earlier revision really wrote, unpacked, with the jobs that its plans came from.

See `stores/before/make.py` for what is in it and how it was made.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import platform
import tarfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from plainrun import RUN

from raykit.reconcile import fold
from raykit.records import RunEntry, RunRecord
from raykit.store import layout
from raykit.store.local import LocalStore
from raykit.store.log import Log
from raykit.train import frozen
from raykit.train.inputs import Task

PACKED = Path(__file__).parent / "stores" / "before" / "store.tar.xz"
STOPPED, EXAMINED, SET = "stopped", "tiny", "points"


def unpack(folder: Path) -> Before:
    """The store in a folder of its own."""
    root = folder / "store"
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(PACKED.read_bytes()))) as tar:
        tar.extractall(root, filter="data")
    return Before(root)


@dataclass(frozen=True, slots=True)
class Before:
    """The unpacked store."""

    root: Path

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.root)

    def record(self, experiment: str = STOPPED) -> RunRecord:
        key = layout.run_record(experiment, RUN)
        return RunRecord.from_bytes(self.store.get(key), key)

    def task(self, experiment: str = STOPPED) -> Task:
        """What a launch would train, but for its launch id."""
        record = self.record(experiment)
        return Task(
            root=str(self.root),
            experiment=experiment,
            run=RUN,
            launch="",
            plan=record.plan,
            contract=record.contract,
            code=record.code,
            data=record.data,
        )

    def job(self, folder: Path, experiment: str = STOPPED) -> Path:
        """The plan and the recipe as they were launched, in a folder; returns the plan's path."""
        record = self.record(experiment)
        frozen.unpack(frozen.read_code(self.store, experiment, record.code), folder)
        path = folder / "plan.toml"
        path.write_bytes(self.store.get(layout.plan(experiment, record.plan, "plan.toml")))
        return path

    def elsewhere(self, experiment: str = STOPPED) -> list[str]:
        """The facts that its first attempt recorded and that are others here."""
        log = Log(self.store, layout.run_log(experiment, RUN), RunEntry, by="test")
        was, now = fold(log.refresh()).attempts[0].facts, _here()
        return sorted(name for name, value in now.items() if was[name] != value)

    def bytes(self) -> dict[str, bytes]:
        """Every object, but for snapshots, which are replaced at any time and believed by nobody."""
        keys = (each.key for each in self.store.list(""))
        return {key: self.store.get(key) for key in keys if not key.endswith("snapshot.jsonl")}


def _here() -> dict[str, str]:
    """What its facts of a machine are on this one. The others are the plan's."""
    return {
        "device_model": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "torch_build": hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:16],
        "numpy": np.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "raykit": metadata.version("raykit"),
    }
