"""`raykit launch` as a user runs it: a process, a root, exit codes, and faults from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from plainrun import RUN, state_of

from raykit.reconcile import RunState
from raykit.train.inputs import Task

DEADLINE_S = 200.0


@dataclass(slots=True)
class Store:
    """A root with one experiment in it."""

    root: Path
    experiment: str = "tiny"

    @property
    def task(self) -> Task:
        return Task(
            root=str(self.root),
            experiment=self.experiment,
            run=RUN,
            launch="",
            plan="",
            contract="",
            code="",
            data="",
        )

    def state(self) -> RunState:
        return state_of(self.task)

    def wait(
        self, what: str, holds: Callable[[RunState], bool], process: subprocess.Popen[str] | None = None
    ) -> RunState:
        """Look at the run until `holds`; fails after a deadline, or when the process has ended without it."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            state = self.state()
            if holds(state):
                return state
            if process is not None and process.poll() is not None:
                raise AssertionError(f"the launch ended before {what}: {process.communicate()}")
            time.sleep(0.02)
        raise AssertionError(f"waited {DEADLINE_S:.0f} s for {what}: {self.state()}")

    def wait_until_quiet(self, process: subprocess.Popen[str], *, quiet_s: float = 4.0) -> int:
        """Look at the run until no row has come for so long; the last row. Fails after a deadline."""
        deadline, rows, since = time.monotonic() + DEADLINE_S, -1, time.monotonic()
        while time.monotonic() < deadline:
            assert process.poll() is None, process.communicate()
            found = self.state().rows
            if found != rows:
                rows, since = found, time.monotonic()
            elif time.monotonic() - since >= quiet_s:
                return rows
            time.sleep(0.1)
        raise AssertionError(f"waited {DEADLINE_S:.0f} s for a run that holds: {rows}")


@dataclass(slots=True)
class Launching:
    """One `raykit` process."""

    process: subprocess.Popen[str]
    output: tuple[str, str] | None = field(default=None)

    def end(self, timeout_s: float = DEADLINE_S) -> tuple[int, str, str]:
        """(exit code, stdout, stderr), once it has ended."""
        if self.output is None:
            self.output = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, *self.output

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """As a service manager does, or `timeout`: to the launch and all that is in its process group."""
        os.killpg(self.process.pid, number)

    def descendant(self, name: str) -> int:
        """The pid of the process below this one whose command line names `name`."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    if any(name in part for part in process.cmdline()):
                        return process.pid
                except psutil.Error:
                    continue
            time.sleep(0.05)
        raise AssertionError(f"no process named {name}")


def raykit(
    *arguments: str, root: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Launching:
    """Start a `raykit` command."""
    return Launching(
        subprocess.Popen(
            [str(Path(sys.executable).parent / "raykit"), *arguments],
            env={**os.environ, "RAYKIT_ROOT": str(root), **(environment or {})},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
