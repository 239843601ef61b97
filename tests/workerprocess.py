"""A worker in a process of its own: one line for each of its turns, and a kill as `kill -9` does it.

with start("makegen", root, "w1", sleep_s=0.1) as started:      # `python -m makegen ROOT w1 --sleep-s=0.1`
    started.kill()
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Started:
    """A worker in a process of its own; it prints what came of each turn."""

    process: subprocess.Popen[str]

    def line(self) -> str:
        """What it says next; empty once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def rest(self) -> list[str]:
        """What it still says until it ends by itself."""
        assert self.process.stdout is not None
        told = self.process.stdout.read().splitlines()  # a hung one is ended by the test's own time limit
        assert self.process.wait(timeout=30) == 0, f"it ended with {self.process.returncode}"
        return told

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self.process.wait(timeout=30)


@contextlib.contextmanager
def start(module: str, root: Path, name: str, **options: object) -> Iterator[Started]:
    """Start a worker on a store; it is ready once it has said so. Whatever becomes of it, it is gone at the end."""
    words = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, "-m", module, str(root), name, *words],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    started = Started(process)
    try:
        assert started.line() == "ready"
        yield started
    finally:
        if process.poll() is None:
            started.kill()
        assert process.stdout is not None
        process.stdout.close()
