"""A private local Ray for one launch, what dead launches left behind, does a cluster ask for its token."""

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
    "Session",
    "check_cluster",
    "describe_sessions",
    "end_leftovers",
    "start_local",
]
