"""This user's dev cluster: a private local Ray to submit to, held by a background process of its own.

    python -P -m raykit.fleet.dev --cpus 4

That process starts the Ray as a launch does, writes `dev.json` into the session's folder once it answers, and holds it
until SIGTERM. It is one per user: it holds a lock for as long as it lives. A killed one is a leftover as any other.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raykit.errors import DeadlineError, RaykitError
from raykit.fleet.session.folder import make_parent
from raykit.fleet.session.leftovers import Session, describe_sessions, end_leftovers
from raykit.fleet.session.local import LocalRay, start_local
from raykit.fleet.session.processes import Ended, ProcessId, alive, identify

RECORD: Final = "dev.json"
LOG: Final = "dev.log"
LOCK: Final = "dev.lock"
LEAST_CPUS: Final = 4
"""Two rows of a search at once, a check beside them, and one to spare: as a launch does that starts its own Ray."""

EXIT_TAKEN: Final = 75
"""Another process holds this user's dev cluster."""

UP_S: Final = 120.0
DOWN_S: Final = 60.0
POLL_S: Final = 0.1
LOG_TAIL_CHARS: Final = 2000


def find_dev(folder: Path | None = None) -> Session | None:
    """This user's dev cluster, if one is up.

    Raises:
        InsecureClusterError: the folder of sessions is not private.
    """
    return next((each for each in dev_sessions(folder) if each.state == "alive"), None)


def dev_sessions(folder: Path | None = None) -> list[Session]:
    """The sessions of dev clusters, up or left over.

    Raises:
        InsecureClusterError: the folder of sessions is not private.
    """
    return [each for each in describe_sessions(folder) if is_dev(each)]


def is_dev(session: Session) -> bool:
    """Whether a session is, or was, a dev cluster that answered."""
    return (session.folder / RECORD).is_file()


def cpus_of(session: Session) -> int | None:
    """The CPUs that a dev cluster was given; None if that cannot be read."""
    try:
        return int(json.loads((session.folder / RECORD).read_text())["cpus"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- up and down --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A dev cluster that answers."""

    session: Session
    already: bool
    """It was up before."""


def up(*, cpus: int | None = None) -> Up:
    """Start this user's dev cluster in a process of its own, unless it is up, and wait until it answers.

    Raises:
        InsecureClusterError: the folder of sessions is not private, or Ray would listen beyond loopback.
        DeadlineError: it did not come up in time; what was started is ended.
        RaykitError: it did not start; the message has the end of its log.
    """
    found = find_dev()
    if found is not None:
        return Up(session=found, already=True)
    parent = make_parent(None)
    handle, name = tempfile.mkstemp(prefix="dev-", suffix=".log", dir=parent)
    log = Path(name)
    with os.fdopen(handle, "wb") as file:
        process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [
                sys.executable,
                "-P",
                "-m",
                "raykit.fleet.dev",
                "--log",
                name,
                "--cpus",
                str(cpus or own_cpus()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        return Up(session=_answering(process, log), already=False)
    except BaseException:
        if process.poll() is None:
            process.terminate()
            process.wait(DOWN_S)
        raise
    finally:
        log.unlink(missing_ok=True)  # once it is up, its log is in the session's folder


def own_cpus() -> int:
    """As many CPUs as this machine has, and no fewer than a small search asks for: Ray only counts them."""
    return max(LEAST_CPUS, here_cpus())


def here_cpus() -> int:
    """The CPUs of this machine that this process may use."""
    return len(os.sched_getaffinity(0))


def _answering(process: subprocess.Popen[bytes], log: Path) -> Session:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        found = find_dev()
        if found is not None:
            return found
        code = process.poll()
        if code not in (None, EXIT_TAKEN):  # of two that start at once, the other one will be up
            raise RaykitError(f"the dev cluster did not start: {_tail(log)}", remedy="raykit doctor")
        time.sleep(POLL_S)
    raise DeadlineError(f"the dev cluster is not up after {UP_S:g} s: {_tail(log)}", remedy="raykit doctor")


def _tail(log: Path) -> str:
    try:
        return log.read_text(errors="replace").strip()[-LOG_TAIL_CHARS:] or "it said nothing"
    except OSError:
        return "its log is gone"


def down() -> tuple[list[Session], list[Ended]]:
    """End this user's dev cluster, and what killed ones have left; which were up, and what leftovers were ended.

    Raises:
        InsecureClusterError: the folder of sessions is not private.
        DeadlineError: a process of it still runs after SIGKILL.
    """
    there = [each for each in dev_sessions() if each.state == "alive" and each.launch is not None]
    for session in there:
        assert session.launch is not None
        _end(session.launch)
    ended = end_leftovers()
    left = [each for each in there if each.folder.exists()]
    if left:
        raise DeadlineError(f"session {left[0].session} is still there after SIGKILL", remedy="raykit doctor")
    return there, ended


def _end(holder: ProcessId) -> None:
    """SIGTERM, on which it ends its Ray itself; SIGKILL if it does not hear. What it leaves then is a leftover."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not alive(holder):
            return
        os.kill(holder.pid, number)
        deadline = time.monotonic() + DOWN_S
        while alive(holder) and time.monotonic() < deadline:
            time.sleep(POLL_S)


# --- the process that holds it ------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Hold a dev cluster until SIGTERM; the exit code."""
    parser = argparse.ArgumentParser(prog="raykit.fleet.dev")
    parser.add_argument("--cpus", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    asked = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal that it was started from may close
    with _only_one() as mine:
        if not mine:
            return EXIT_TAKEN
        # jobs run `python`: it has to be this one
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        with start_local(cpus=asked.cpus, resources={}, shown={"job_name": "raykit dev"}) as local:
            asked.log.replace(local.folder / LOG)
            _record(local, asked.cpus)
            return _hold(local, stop)


def _hold(local: LocalRay, stop: threading.Event) -> int:
    while not stop.wait(1.0):
        lost = local.lost()
        if lost is not None:
            print(lost.message, flush=True)
            return 1
    return 0


def _record(local: LocalRay, cpus: int) -> None:
    """Say durably that this session is a dev cluster which answers."""
    me = identify(os.getpid())
    data = json.dumps({"cpus": cpus, "pid": os.getpid(), "started": me.started if me else None}).encode()
    path = local.folder / f"{RECORD}.new"
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.replace(local.folder / RECORD)


@contextmanager
def _only_one() -> Iterator[bool]:
    """Whether this process is the one that holds the dev cluster; the kernel lets go of the lock with the process."""
    handle = os.open(make_parent(None) / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield _locked(handle)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
