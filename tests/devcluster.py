"""A dev cluster as a user has one, in a folder of its own, and what is done to it from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from raykit.fleet.jobs.api import JobInfo, JobsApi
from raykit.fleet.session import describe_sessions
from raykit.fleet.session.processes import end_all

DEADLINE_S = 200.0
BIN = Path(sys.executable).parent


class DevCluster:
    """`raykit` with a temporary folder and a home of its own, so that no other Ray of this machine is meant."""

    def __init__(self, **environment: str) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="rk-"))  # short: Ray's sockets lie in it
        (self.base / "home").mkdir()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RAYKIT_"))}
        self.environment = {**own, "TMPDIR": str(self.base), "HOME": str(self.base / "home"), **environment}
        self.record: dict[str, Any] = {}

    def raykit(
        self, *arguments: str, timeout_s: float = DEADLINE_S, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [str(BIN / "raykit"), *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """One command, under way."""
        return subprocess.Popen(
            [str(BIN / "raykit"), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def up(self, *arguments: str) -> dict[str, Any]:
        done = self.raykit("dev", "up", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        self.record = json.loads(done.stdout)
        return self.record

    @property
    def api(self) -> JobsApi:
        return JobsApi(self.record["address"], Path(self.record["token_path"]).read_text())

    @property
    def as_ray_needs(self) -> Mapping[str, str]:
        """The variables with which Ray's own commands reach it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.record["token_path"])}

    def job(self, submission_id: str, holds: Callable[[JobInfo], bool]) -> JobInfo:
        """Look at a job until `holds`."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            found = self.api.job(submission_id)
            if found is not None and holds(found):
                return found
            time.sleep(0.1)
        raise AssertionError(f"waited {DEADLINE_S:.0f} s for job {submission_id}: {found}")

    def kill(self) -> None:
        """SIGKILL to every process of it at once, the one that holds it first; none of it says goodbye."""
        (session,) = describe_sessions(self.base)
        assert session.launch is not None
        for pid in [session.launch.pid, *(each.pid for each in session.processes)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self) -> None:
        """End whatever is left."""
        self.raykit("dev", "down", "--now")
        for session in describe_sessions(self.base):
            end_all(session.session, partial(set, session.processes), grace_s=1)
        shutil.rmtree(self.base, ignore_errors=True)
