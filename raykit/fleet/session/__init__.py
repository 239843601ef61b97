"""The Ray that a launch works in: a private local one, or the cluster of its Ray job; what dead launches left behind;
does a cluster ask for its token."""

from raykit.fleet.session.here import (
    RayHere,
    cpus_here,
    gpus_of_cluster,
    in_ray_job,
    job_here,
    open_ray,
    require_room_here,
)
from raykit.fleet.session.labels import labels_of
from raykit.fleet.session.leftovers import Session, describe_sessions, end_leftovers
from raykit.fleet.session.local import LocalRay, start_local
from raykit.fleet.session.probe import check_cluster
from raykit.fleet.session.processes import Ended, ProcessId
from raykit.fleet.session.sockets import Listener

__all__ = [
    "Ended",
    "Listener",
    "LocalRay",
    "ProcessId",
    "RayHere",
    "Session",
    "check_cluster",
    "cpus_here",
    "describe_sessions",
    "end_leftovers",
    "gpus_of_cluster",
    "in_ray_job",
    "job_here",
    "labels_of",
    "open_ray",
    "require_room_here",
    "start_local",
]
