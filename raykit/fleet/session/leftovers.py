"""The sessions on this machine: which are in use, and what a dead launch has left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from raykit.errors import CorruptError
from raykit.fleet.session.environment import LOOPBACK
from raykit.fleet.session.folder import (
    Launch,
    SessionFolder,
    locked,
    make_parent,
    parent_of,
    require_private,
    sessions,
)
from raykit.fleet.session.ports import Ports
from raykit.fleet.session.processes import Ended, ProcessId, alive, end_all, of_session
from raykit.store.scratch import remove_dead_scratch

State = Literal["alive", "left over", "elsewhere", "unreadable"]
"""In use; its launch is dead; made where pids mean something else, so not judged here; no usable record."""

_GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session on this machine."""

    session: str
    state: State
    folder: Path
    launch: ProcessId | None
    processes: tuple[ProcessId, ...]
    """Those that run now."""
    ports: Ports | None
    ray_version: str | None

    @property
    def token_path(self) -> Path:
        """The file with the token of its dashboard and Jobs API."""
        return SessionFolder(self.folder).token_path

    @property
    def targets_path(self) -> Path:
        """The file in which Ray keeps what a Prometheus is to scrape, while it is in use."""
        return self.folder / "ray" / "prom_metrics_service_discovery.json"

    @property
    def dashboard_url(self) -> str | None:
        """Where its dashboard and Jobs API answer while it is in use."""
        return f"http://{LOOPBACK}:{self.ports.of('dashboard')}" if self.ports else None


def describe_sessions(folder: Path | None = None) -> list[Session]:
    """The sessions of this user, in use or left over; nothing is changed.

    Raises:
        InvalidInput: the path of `folder` is too long.
        InsecureClusterError: the folder of the sessions is not private.
    """
    parent = parent_of(folder)
    if not parent.exists():
        return []
    require_private(parent)
    return [_describe(place) for place in sessions(parent)]


def end_leftovers(folder: Path | None = None) -> list[Ended]:
    """End every process of a session whose launch is dead, remove its folder, and say what was ended.

    Temporary folders of dead processes go as well.

    A session in use, and one started in another container, is never touched. The folder of a session with a
    process that even SIGKILL did not end stays, so that `describe_sessions` can still name it.

    Raises:
        InvalidInput: the folder of the sessions cannot be made.
        InsecureClusterError: the folder of the sessions is not private.
        DeadlineError: another raykit holds the folder.
    """
    parent = make_parent(folder)
    remove_dead_scratch()
    with locked(parent):
        return [ended for place in sessions(parent) for ended in _end_leftover(place)]


def _end_leftover(place: SessionFolder) -> list[Ended]:
    state, _, recorded = _judge(place)
    if state in ("alive", "elsewhere"):
        return []
    if state == "unreadable":
        # Under the lock no session is half made: its maker died before it started anything.
        if not _processes(place, []):
            place.remove()
        return []
    ended = end_all(place.session, lambda: _processes(place, recorded), grace_s=_GRACE_S)
    if all(process.how != "still running" for process in ended):
        place.remove()
    return ended


def _describe(place: SessionFolder) -> Session:
    state, launch, recorded = _judge(place)
    found = _processes(place, recorded) if state != "elsewhere" else set()
    return Session(
        session=place.session,
        state=state,
        folder=place.path,
        launch=launch.process if launch else None,
        processes=tuple(sorted(found, key=lambda process: process.pid)),
        ports=launch.ports if launch else None,
        ray_version=launch.ray if launch else None,
    )


def _judge(place: SessionFolder) -> tuple[State, Launch | None, list[ProcessId]]:
    try:
        launch, recorded = place.read()
    except CorruptError:
        return "unreadable", None, []
    if not launch.is_of_this_boot:
        return "left over", launch, []  # the recorded pids are those of another boot
    if not launch.is_of_this_namespace:
        return "elsewhere", launch, []
    return ("alive" if alive(launch.process) else "left over"), launch, recorded


def _processes(place: SessionFolder, recorded: list[ProcessId]) -> set[ProcessId]:
    return of_session(place.session, place.path, recorded)
