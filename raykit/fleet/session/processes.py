"""Which processes belong to a session, and how they are ended.

A process is told apart by its pid and its start time, never by the pid alone: pids are used again. A process
belongs to a session if the session recorded it, if it carries the session's mark in its environment, if it
writes a file inside the session's folder, or if it descends from one that does. The last two find what Ray's
agents hide: they overwrite their command line and environment, and outlive their parent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

MARK = "RAYKIT_SESSION"
"""The environment variable that Ray's processes inherit; its value is the id of their session."""

_POLL_S = 0.05
_KILL_S = 5.0
_MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """One process: no other has, or will have, the same pid and start time on this boot."""

    pid: int
    started: int
    """Clock ticks from boot to its start (Linux), else milliseconds since 1970; no clock change moves it."""
    name: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """One process that raykit ended, or could not end."""

    session: str
    pid: int
    name: str
    how: Literal["SIGTERM", "SIGKILL", "still running"]


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now, or None if there is none or it only waits to be reaped."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessId(pid=pid, started=_started(process), name=_name(process))
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def descendants(roots: Iterable[ProcessId]) -> set[ProcessId]:
    """The children of `roots`, their children, and so on."""
    found: set[ProcessId] = set()
    for root in roots:
        try:
            children = psutil.Process(root.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            continue
        found |= _identify_all(child.pid for child in children)
    return found


def started_here(session: str) -> set[ProcessId]:
    """What this process has started for `session` and what that has started in turn."""
    roots = _identify_all(child.pid for child in psutil.Process().children() if _is_marked(child, session))
    return roots | descendants(roots)


def of_session(session: str, folder: Path, recorded: Collection[ProcessId]) -> set[ProcessId]:
    """Every running process of the session, but never this one, its ancestors, or its unmarked children."""
    me = psutil.Process()
    my_line = {me.pid, *(ancestor.pid for ancestor in me.parents())}
    # A fork of this process inherits its open files, the driver's log among them, and is still not Ray's.
    my_children = {child.pid for child in me.children(recursive=True)}
    roots = set(recorded) & _identify_all(process.pid for process in recorded)
    for process in psutil.process_iter():
        if process.pid in my_line:
            continue
        writes = process.pid not in my_children and _writes_under(process, folder)
        if writes or _is_marked(process, session):
            roots |= _identify_all([process.pid])
    return {process for process in roots | descendants(roots) if process.pid not in my_line}


def end_all(session: str, find: Callable[[], set[ProcessId]], *, grace_s: float) -> list[Ended]:
    """End what `find` finds, then look again until it finds nothing: the dying may have started others."""
    ended: list[Ended] = []
    for _ in range(_MAX_ROUNDS):
        targets = find()
        if not targets:
            return ended
        ended += _end(session, targets, grace_s=grace_s)
    return ended + [_ended(session, process, "still running") for process in find()]


def _end(session: str, targets: set[ProcessId], *, grace_s: float) -> list[Ended]:
    _send(targets, signal.SIGTERM)
    stubborn = _wait(targets, grace_s)
    _send(stubborn, signal.SIGKILL)
    survivors = _wait(stubborn, _KILL_S)
    ended = [_ended(session, process, "SIGTERM") for process in targets - stubborn]
    return ended + [_ended(session, process, "SIGKILL") for process in stubborn - survivors]


def _ended(session: str, process: ProcessId, how: Literal["SIGTERM", "SIGKILL", "still running"]) -> Ended:
    return Ended(session=session, pid=process.pid, name=process.name, how=how)


def _send(targets: set[ProcessId], number: signal.Signals) -> None:
    for process in targets:
        if alive(process):
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                pass


def _wait(targets: set[ProcessId], timeout_s: float) -> set[ProcessId]:
    deadline = time.monotonic() + timeout_s
    left = {process for process in targets if alive(process)}
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = {process for process in left if alive(process)}
    return left


def _identify_all(pids: Iterable[int]) -> set[ProcessId]:
    return {process for process in map(identify, pids) if process is not None}


def _name(process: psutil.Process) -> str:
    name = str(process.name())
    if not name.startswith("python"):
        return name
    return next((Path(word).name for word in process.cmdline()[1:] if word.endswith(".py")), name)


def _started(process: psutil.Process) -> int:
    stat = Path(f"/proc/{process.pid}/stat")
    if not Path("/proc/self/stat").exists():
        return int(process.create_time() * 1000)
    # Field 22; the name, field 2, may itself hold spaces and parentheses.
    return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])


def _is_marked(process: psutil.Process, session: str) -> bool:
    try:
        return bool(process.environ().get(MARK) == session)
    except (psutil.Error, OSError):
        return False  # gone, or another user's: not of this session


def _writes_under(process: psutil.Process, folder: Path) -> bool:
    try:
        files = process.open_files()
    except (psutil.Error, OSError):
        return False
    # Whoever only reads a log there, `tail -f` say, is not part of the session.
    return any(getattr(file, "mode", "w") != "r" and Path(file.path).is_relative_to(folder) for file in files)
