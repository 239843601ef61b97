"""`raykit doctor`: is this machine, and this store, fit to run on? Nothing stays changed."""

from __future__ import annotations

import difflib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from raykit.cli import output
from raykit.cli.options import DEFAULT_ROOT, Json, Root
from raykit.errors import InvalidInput, RaykitError

State = Literal["ok", "warn", "bad"]

OLDEST = {"ray": (2, 56), "torch": (2, 6)}
"""ray before 2.56 runs code from data that it reads; torch before 2.6 from checkpoints."""
TESTED_RAY = (2, 60)

SPACE_WARN_BYTES = 5_000_000_000
SPACE_BAD_BYTES = 200_000_000
MEMORY_WARN_BYTES = 2_000_000_000
LEAST_CPUS = 2
"""Of a cluster: training, and a check beside it."""
MOST_LEFTOVERS = 5
"""So many temporary folders are named one by one."""
CLOCK_START = 1_735_689_600  # 2025-01-01: before it, no machine that runs this has a right clock

SETTINGS = (
    "RAYKIT_ROOT",
    "RAYKIT_DEBUG",
    "RAYKIT_PERSON",
    "RAYKIT_IMAGE",
    "RAYKIT_SESSION",
    "RAYKIT_LAUNCH",
    "RAYKIT_TYPED",
    "RAYKIT_GIT",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was looked at."""

    check: str
    state: State
    found: str
    remedy: str | None = None
    exit_code: int = 0
    """What a bad line makes the command end with."""


def doctor(
    root: Root = DEFAULT_ROOT,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="URL", help="A cluster's dashboard, or auto: is it fit, too?"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at versions, processors, memory, space, the store, settings, and what dead launches left behind.

    With --address also at that cluster: whether it answers, asks for its token, and what it has; 7 if it does not ask.
    Each line is ok, warn or bad, and says what to do if it is not ok. The exit code is 0 unless one is bad.
    """
    looks = _checks(root)
    if address is not None:
        looks.append(lambda: cluster(address))
    lines = [line for look in looks for line in _careful(look)]
    worst = max((line.exit_code for line in lines if line.state == "bad"), default=0)
    if as_json:
        checks = [{key: value for key, value in asdict(line).items() if value is not None} for line in lines]
        output.print_json({"exit_code": worst, "checks": checks})
    else:
        print("\n".join(_text(lines)))
    if worst:
        raise typer.Exit(worst)


def _checks(root: str) -> list[Callable[[], Iterator[Line]]]:
    return [
        versions,
        processors,
        memory,
        clock,
        temporary_files,
        lambda: space(root),
        lambda: store(root),
        lambda: permissions(root),
        ray_address,
        settings,
        sessions,
        temporary_leftovers,
    ]


def _careful(check: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """The lines of a check; what raykit raises in it is a bad line."""
    try:
        yield from check()
    except RaykitError as error:
        yield _bad(error.field or error.kind, error.message, error.remedy or error.rule, error.exit_code)


def _text(lines: list[Line]) -> Iterator[str]:
    width = max(len(line.check) for line in lines)
    for line in lines:
        yield f"  {line.state:<4}  {line.check:<{width}}  {line.found}"
        if line.remedy and line.state != "ok":
            yield f"        {'':<{width}}  pass   {line.remedy}"
    bad = sum(line.state == "bad" for line in lines)
    warnings = sum(line.state == "warn" for line in lines)
    yield f"  {len(lines)} checks: {bad} bad, {warnings} to look at"


def _ok(check: str, found: str) -> Line:
    return Line(check=check, state="ok", found=found)


def _warn(check: str, found: str, remedy: str | None) -> Line:
    return Line(check=check, state="warn", found=found, remedy=remedy)


def _bad(check: str, found: str, remedy: str | None, exit_code: int = InvalidInput.exit_code) -> Line:
    return Line(check=check, state="bad", found=found, remedy=remedy, exit_code=exit_code)


# --- the machine --------------------------------------------------------------------------------------------


def versions() -> Iterator[Line]:
    """raykit, Python, ray and torch, without importing the last two."""
    yield _ok("raykit", f"{metadata.version('raykit')} on Python {platform.python_version()}")
    for package, oldest in OLDEST.items():
        needed = ".".join(map(str, oldest))
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield _bad(package, "not installed", f"install {package} {needed} or newer")
            continue
        number = _release(version)
        if number < oldest:
            yield _bad(
                package, version, f"install {needed} or newer: older ones run code from what they read"
            )
        elif package == "ray" and number != TESTED_RAY:
            tested = ".".join(map(str, TESTED_RAY))
            yield _warn(package, f"{version}; raykit is tested with {tested}", f"install ray {tested}")
        else:
            yield _ok(package, version)


def _release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13)."""
    parts = version.split("+")[0].split(".")[:2]
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts)


def processors() -> Iterator[Line]:
    """The cores that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        yield _warn("cores", "1: training and Ray share it", "a machine with 2 cores or more")
    else:
        yield _ok("cores", str(cores))


def memory() -> Iterator[Line]:
    """Free memory, within the limit of the container if there is one."""
    import psutil

    machine = psutil.virtual_memory()
    free, total = int(machine.available), int(machine.total)
    limit = _number_in(Path("/sys/fs/cgroup/memory.max"))
    used = _number_in(Path("/sys/fs/cgroup/memory.current"))
    if limit is not None and used is not None and limit < total:
        free, total = min(free, limit - used), limit
    found = f"{output.size(max(free, 0))} free of {output.size(total)}"
    if free < MEMORY_WARN_BYTES:
        yield _warn("memory", found, "end what else runs here: Ray alone takes about 1 GB")
    else:
        yield _ok("memory", found)


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such limit here
        return None


def clock() -> Iterator[Line]:
    """Is the clock set?"""
    now = time.time()
    found = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    yield _ok("clock", found) if now > CLOCK_START else _bad("clock", found, "set the clock")


def temporary_files() -> Iterator[Line]:
    """Can temporary files be made?"""
    asked = os.environ.get("TMPDIR")
    try:
        found = tempfile.gettempdir()
    except OSError:
        yield _bad("temporary files", "no folder for them can be written", "set TMPDIR to one that can")
        return
    if asked and Path(asked).resolve() != Path(found).resolve():
        yield _warn(
            "temporary files", f"in {found}: TMPDIR names no usable folder", "set TMPDIR to one that exists"
        )
    else:
        yield _ok("temporary files", f"in {found}")


# --- the store ----------------------------------------------------------------------------------------------


def _local(root: str) -> Path | None:
    return None if "://" in root else Path(root).expanduser()


def _nearest(path: Path) -> Path:
    """The path, or the first folder above it that exists."""
    absolute = path.absolute()
    return next(folder for folder in (absolute, *absolute.parents) if folder.exists())


def space(root: str) -> Iterator[Line]:
    """Free space where the store is or will be."""
    path = _local(root)
    if path is None:
        return
    free = shutil.disk_usage(_nearest(path)).free
    found = f"{output.size(free)} free at the root"
    if free < SPACE_BAD_BYTES:
        yield _bad("space", found, "free some, or name another root")
    elif free < SPACE_WARN_BYTES:
        yield _warn("space", found, "free some: every checkpoint is kept")
    else:
        yield _ok("space", found)


def store(root: str) -> Iterator[Line]:
    """Prove that the root keeps its promises. A local root that is not there yet is proved beside, not made.

    Raises:
        UnusableRootError: it cannot be written or trusted.
        StoreUnavailableError: it did not answer.
        UnknownOutcomeError: a reply was lost.
    """
    from raykit.store import open_store
    from raykit.store.probe import probe

    opened = open_store(root)
    path = _local(root)
    if path is None or path.exists():
        probe(opened)
        yield _ok("root", f"{opened.url}: creates, reads back, never replaces")
        return
    try:
        with tempfile.TemporaryDirectory(dir=_nearest(path), prefix=".raykit-doctor-") as folder:
            probe(open_store(folder))
    except OSError as error:
        yield _bad(
            "root", f"{opened.url} cannot be made: {error.strerror}", "name a root that can: --root PATH"
        )
        return
    yield _ok("root", f"{opened.url}: not there yet, and can be made")


def permissions(root: str) -> Iterator[Line]:
    """Who else can write here."""
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o022 != 0o022:
        yield _warn("umask", f"{mask:03o}: others can write what is made here", "umask 077, or at least 022")
    else:
        yield _ok("umask", f"{mask:03o}")
    path = _local(root)
    if path is not None and path.exists() and path.stat().st_mode & 0o002:
        yield _warn("root's mode", "everybody can write to the root", f"chmod o-w {path}")


# --- settings, and what is left over ------------------------------------------------------------------------


def ray_address() -> Iterator[Line]:
    """Does the environment name another cluster?"""
    if "RAY_ADDRESS" in os.environ:
        found = "is set: raykit submit means it where no dev cluster is up; a launch starts its own Ray"
        yield _warn("RAY_ADDRESS", found, "unset RAY_ADDRESS, or give --address each time")
    else:
        yield _ok("RAY_ADDRESS", "not set")


def settings() -> Iterator[Line]:
    """The environment's RAYKIT_ variables; a misspelt one is not silently ignored."""
    from raykit.plan.credentials import looks_secret

    names = sorted(name for name in os.environ if name.startswith("RAYKIT_"))
    for name in names:
        if name not in SETTINGS:
            alike = difflib.get_close_matches(name, SETTINGS, n=1)
            yield _warn(
                name, "is set, and means nothing", f"did you mean {alike[0]}?" if alike else f"unset {name}"
            )
        else:
            value = os.environ[name]
            yield _ok(name, "(not shown)" if looks_secret(value) or not value.isprintable() else value)
    if not names:
        yield _ok("settings", "no RAYKIT_ variable is set")


def sessions() -> Iterator[Line]:
    """The private Ray sessions of this user, and those that a dead launch has left.

    Raises:
        InsecureClusterError: the folder of the sessions is not private.
    """
    from raykit.fleet.dev import is_dev
    from raykit.fleet.session import describe_sessions

    found = describe_sessions()
    for session in found:
        processes = f"{len(session.processes)} processes"
        if session.ports is not None:
            processes += f", ports {session.ports.first}-{session.ports.first + session.ports.count - 1}"
        if session.state == "alive" and is_dev(session):
            where = f"dashboard {session.dashboard_url}, token {session.token_path}"
            yield _ok("dev cluster", f"{session.session}: up, {processes}, {where}")
        elif session.state == "left over" and is_dev(session):
            yield _warn("dev cluster", f"{session.session}: killed, {processes}", "raykit dev down")
        elif session.state == "alive":
            yield _ok("session", f"{session.session}: in use, {processes}")
        elif session.state == "elsewhere":
            yield _ok("session", f"{session.session}: of another container, not judged here")
        else:
            remedy = "the next launch ends exactly these processes and removes the folder"
            yield _warn("session", f"{session.session}: {session.state}, {processes}", remedy)
    if not found:
        yield _ok("sessions", "none in use, none left over")


def temporary_leftovers() -> Iterator[Line]:
    """The temporary folders of raykit whose process was killed."""
    from raykit.store.scratch import dead_scratch

    found = dead_scratch()
    for each in found[:MOST_LEFTOVERS]:
        what = f"{each.path}: {output.size(each.size_bytes)}, {output.duration(each.age_s)} old"
        yield _warn("leftover folder", what, "the next launch, search or job here removes it")
    more = found[MOST_LEFTOVERS:]
    if more:
        what = f"{output.count(len(more))} more, {output.size(sum(each.size_bytes for each in more))}"
        yield _warn("leftover folder", what, "the next launch, search or job here removes them")


# --- a cluster ----------------------------------------------------------------------------------------------


def cluster(said: str) -> Iterator[Line]:
    """Does a cluster answer, ask for its token, run a Ray and a raykit that fit, and what has it?

    Raises:
        InsecureClusterError: it answers without a token, or to a wrong one.
        InvalidInput: nobody answers there, there is no token, or the cluster does not accept it.
        DeadlineError: no answer in time.
        RaykitError: it answered with an error of its own.
    """
    from raykit.fleet.jobs.address import address_of, connect

    address = address_of(said)
    api = connect(address)
    yield _ok("cluster", f"{address.url}: 401 without a token, 403 to a wrong one, 200 to its own")
    there, here = api.ray_version(), metadata.version("ray")
    if _release(there) == _release(here):
        yield _ok("cluster's ray", there)
    else:
        yield _warn("cluster's ray", f"{there}, and {here} here", f"install ray {there} here")
    has = api.resources()
    on = f"{has['nodes']} node{'' if has['nodes'] == 1 else 's'}"
    found = f"{has['CPU']:g} CPUs, {has['GPU']:g} GPUs on {on}"
    if has["CPU"] < LEAST_CPUS:
        yield _warn("cluster has", found, "2 CPUs or more: one for training, one for its checks")
    else:
        yield _ok("cluster has", found)
    sent = sorted({job.metadata["raykit"] for job in api.jobs() if not job.over and "raykit" in job.metadata})
    yield _ok("cluster's raykit", f"travels with each job; running now: {', '.join(sent) or 'none'}")
