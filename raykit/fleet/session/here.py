"""The Ray that this process works in: one of its own, or, inside a Ray job, the cluster that runs the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from raykit.errors import Unknown
from raykit.fleet.session.joined import join_ray
from raykit.fleet.session.leftovers import end_leftovers
from raykit.fleet.session.local import start_local
from raykit.fleet.session.processes import Ended

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

    A `RAY_ADDRESS` alone is not enough: it may have been left in the environment by anything.
    """
    return bool(os.environ.get(JOB_CONFIG)) and bool(os.environ.get("RAY_ADDRESS"))


def open_ray(
    *, cpus: int, gpus: int = 0, resources: Mapping[str, float] | None = None, folder: Path | None = None
) -> tuple[RayHere, list[Ended]]:
    """The Ray to work in, and the leftovers of killed launches that were ended before.

    Inside a Ray job that is the cluster which runs the job; anywhere else a private one on this machine, with these
    `resources`. `cpus` and `gpus` are what the work needs to be there at once. Call it from the main thread.

    Raises:
        GateError: the cluster that runs this job can never give so much.
        InvalidInput: this process already uses a Ray, this is not the main thread, or the folder cannot be used.
        InsecureClusterError: the Ray would listen beyond loopback, or serve without a token.
        DeadlineError: Ray did not answer in time.
        RaykitError: Ray did not start, or could not be joined.
    """
    if in_ray_job():
        return join_ray(os.environ["RAY_ADDRESS"], cpus=cpus, gpus=gpus, folder=folder), []
    ended = end_leftovers(folder)
    return start_local(cpus=cpus, resources=resources or {}, folder=folder), ended
