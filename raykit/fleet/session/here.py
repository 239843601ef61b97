"""The Ray that this process works in: one of its own, or, inside a Ray job, the cluster that runs the job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from ray._private import worker as ray_worker

from raykit.errors import Unknown
from raykit.fleet.session.joined import JoinedRay, cluster_most, join_ray, require_room
from raykit.fleet.session.labels import Labels, require_labels, require_no_labels
from raykit.fleet.session.leftovers import end_leftovers
from raykit.fleet.session.local import start_local
from raykit.fleet.session.nodes import require_same_raykit

JOB_CONFIG: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's own variable, which its job supervisor sets for the entrypoint of a job, and for nothing else."""


class RayHere(Protocol):
    """A Ray that this process is connected to. Close it, and nothing of this process is left in it."""

    @property
    def session(self) -> str:
        """Which Ray this is, in one word."""
        ...

    @property
    def folder(self) -> Path:
        """A private folder on this machine; gone after `close`."""
        ...

    @property
    def dashboard_url(self) -> str:
        """Where the dashboard and the Jobs API answer."""
        ...

    @property
    def idle_s(self) -> float | None:
        """How long an actor that outlives its launch may be idle; None where it ends with this process."""
        ...

    def wants(self, role: str) -> Mapping[str, Any]:
        """What a worker of a pool asks Ray for, beside CPUs and GPUs: what training never holds."""
        ...

    def lost(self) -> Unknown | None:
        """What has become of this Ray, if it has died: whoever asks it anything then waits for ever. Cheap."""
        ...

    def close(self) -> None:
        """Leave it. Twice is fine."""
        ...


def in_ray_job() -> bool:
    """Whether a job supervisor has started this process: `ray job submit`, the Jobs API, or KubeRay's RayJob.

    A `RAY_ADDRESS` alone is not enough: anything may have left it in the environment.
    """
    return bool(os.environ.get(JOB_CONFIG)) and bool(os.environ.get("RAY_ADDRESS"))


def job_here() -> str | None:
    """The submission id of the Ray job that this process is the driver of; None outside of a job."""
    if not in_ray_job():
        return None
    try:
        said = json.loads(os.environ[JOB_CONFIG])["metadata"]["job_submission_id"]
    except (ValueError, KeyError, TypeError):  # a supervisor that does not say it
        return None
    return str(said)


def open_ray(
    *,
    cpus: int,
    gpus: int = 0,
    spare: int = 0,
    resources: Mapping[str, float] | None = None,
    labels: Labels | None = None,
    shown: Mapping[str, str] | None = None,
    say: Callable[[str], None],
) -> RayHere:
    """The Ray to work in: the cluster that runs this Ray job; outside of a job a private one on this machine.

    The work needs `cpus` and `gpus` at once, and nodes with the `labels` of each pool. A private Ray has `spare` CPUs
    more, these `resources`, and what is `shown` on its dashboard; before it starts, what killed launches have left is
    ended. Call it from the main thread.

    Raises:
        GateError: the cluster that runs this job can never give so much; or there is none, and labels are asked for.
        InvalidInput: this process already uses another Ray, this is not the main thread, or the folder of sessions
            cannot be used.
        InsecureClusterError: the Ray would listen beyond loopback, or serve without a token.
        DeadlineError: Ray did not answer in time.
        RaykitError: Ray did not start, or could not be joined.
    """
    here: RayHere
    require_room_here(cpus=cpus, gpus=gpus, labels=labels)
    if in_ray_job():
        here = joined = _the_cluster()
        joined.labels = labels or {}
        require_same_raykit(say)
        say(f"joined the Ray cluster of this job, {here.session}")
    else:
        for ended in end_leftovers():
            say(f"ended a leftover of a killed launch: {ended.name}, process {ended.pid}")
        say("starting a private Ray on this machine")
        here = start_local(cpus=cpus + spare, resources=resources or {}, shown=shown)
    # Ray prints what happens to its workers on this process's stdout, where the result belongs.
    ray_worker._worker_logs_enabled = False
    say(f"dashboard {here.dashboard_url}")
    return here


def cpus_here() -> int:
    """The CPUs that work started by this process may use: of its cluster inside a Ray job, else of this machine.

    Raises:
        RaykitError: the cluster could not be joined; see `open_ray`.
    """
    if not in_ray_job():
        return len(os.sched_getaffinity(0))
    _the_cluster()
    return int(cluster_most()["CPU"])


def gpus_of_cluster() -> int | None:
    """The accelerators that the cluster of this Ray job has; None outside of a job.

    Raises:
        RaykitError: the cluster could not be joined; see `open_ray`.
    """
    if not in_ray_job():
        return None
    _the_cluster()
    return int(cluster_most()["GPU"])


def require_room_here(*, cpus: int, gpus: int = 0, labels: Labels | None = None) -> None:
    """See, before anything is reserved, that work could ever have so much at once. A private Ray is as large as asked.

    Raises:
        GateError: the cluster that runs this job can never give so much; or there is none, and labels are asked for.
        RaykitError: the cluster could not be joined; see `open_ray`.
    """
    if not in_ray_job():
        require_no_labels(labels or {})
        return
    _the_cluster()
    require_room(cpus=cpus, gpus=gpus)
    require_labels(labels or {})


_joined: list[JoinedRay] = []
"""The one cluster that this process has joined. A job belongs to its cluster, so it is joined once, and kept."""


def _the_cluster() -> JoinedRay:
    if not _joined or _joined[0].closed:
        _joined[:] = [join_ray(os.environ["RAY_ADDRESS"])]
    return _joined[0]
