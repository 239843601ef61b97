"""Which process on which machine, and whether it is still there."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

from raykit.records import Place

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"

ENDED = frozenset("ZXx")
"""States of a process that has ended and is only still listed."""
NOT_WORKING = ENDED | frozenset("Tt")
"""Kernel states of a process that will not go on by itself: a zombie, dead, stopped, traced."""


class _Stat(NamedTuple):
    state: str
    started: int


def this_place() -> Place:
    """This process, as a record that outlives it."""
    pid = os.getpid()
    stat = _stat(pid)
    return Place(host=socket.gethostname(), boot=_boot(), pid=pid, started=stat.started if stat else 0)


def alive(place: Place) -> bool | None:
    """Whether that process is at work. None if it cannot be seen from here: another machine, or namespace.

    A process that has ended, that another one with the same number has followed, or that is stopped or a
    zombie is not at work.
    """
    if (place.host, place.boot) != (socket.gethostname(), _boot()):
        return None
    if not place.started:
        return _may_be_there(place.pid)
    stat = _stat(place.pid)
    return stat is not None and stat.started == place.started and stat.state not in NOT_WORKING


def gone(place: Place) -> bool | None:
    """Whether that process has ended for good; one that is stopped may go on. None if it cannot be seen from here."""
    at_work = alive(place)
    if at_work is None or at_work:
        return None if at_work is None else False
    stat = _stat(place.pid) if place.started else None
    return stat is None or stat.started != place.started or stat.state in ENDED


def _boot() -> str:
    """The same exactly where process ids mean the same; without /proc, the machine's name has to do."""
    try:
        return f"{BOOT_ID.read_text().strip()}/{(PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return socket.gethostname()


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return _Stat(state=fields[0], started=int(fields[19])) if len(fields) > 19 else None


def _may_be_there(pid: int) -> bool | None:
    """Without /proc: gone is sure; there is not, since the number may be another process's by now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return None
