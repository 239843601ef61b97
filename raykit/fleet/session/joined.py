"""The cluster that runs this Ray job: joined, never changed. What it gives is other people's too."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ray
from ray._private import ray_constants
from ray._private import worker as ray_worker
from ray._private.state import state as ray_state
from ray._raylet import GcsClient

from raykit.errors import DeadlineError, GateError, InvalidInput, RaykitError, Unknown
from raykit.fleet.session.driver import (
    NAMESPACE,
    answers,
    never_connect_unasked,
    read_token_again,
    shut_down_ray,
    sigterm_kept,
)
from raykit.fleet.session.probe import check_cluster
from raykit.fleet.session.token import environment_token
from raykit.store.scratch import make_scratch, remove_dead_scratch

IDLE_S: Final = 120.0
"""An actor that outlives its launch ends itself after so long without a call."""

_WEB: Final = b"webui:url"
_ASK_S: Final = 10.0
_LOOK_EVERY_S: Final = 2.0
_LOST_S: Final = 45.0
"""A head that nobody reaches for so long is taken for gone: one that is only replaced is back sooner."""
_SHUTDOWN_TIMEOUT_S: Final = 6.0


class JoinedRay:
    """The cluster that runs this job. `join_ray` makes one; close it at the end."""

    def __init__(self, address: str, dashboard_url: str, folder: Path) -> None:
        self.labels: Mapping[str, Mapping[str, str]] = {}
        """By pool: what a node has to have for its workers."""
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._url = dashboard_url
        self._folder = folder
        self._looked = self._heard = time.monotonic()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether this process has left it."""
        return self._closed

    @property
    def session(self) -> str:
        """Ray's own name of the cluster's session."""
        return str(ray_worker.global_worker.node.session_name)

    @property
    def folder(self) -> Path:
        """A private folder on this machine; gone after `close`."""
        return self._folder

    @property
    def dashboard_url(self) -> str:
        """Where the dashboard and the Jobs API answer."""
        return self._url

    @property
    def idle_s(self) -> float:
        """How long an actor that outlives its launch may be idle: the next launch here may need it."""
        return IDLE_S

    def wants(self, role: str) -> dict[str, Any]:
        """A node with the labels of its pool; nobody has made a resource of that name here."""
        labels = self.labels.get(role)
        return {"label_selector": dict(labels)} if labels else {}

    def lost(self) -> Unknown | None:
        """What has become of the cluster, if nobody has reached its head for a while."""
        now = time.monotonic()
        if now - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            if answers(self._host, self._port):
                self._heard = time.monotonic()
        away_s = self._looked - self._heard
        if away_s < _LOST_S:
            return None
        return Unknown(
            f"the head of the cluster has not answered for {away_s:.0f} s. Nothing that is published is lost",
            remedy="submit it again, to this cluster or to another one",
        )

    def close(self) -> None:
        """Leave the cluster, and remove the private folder. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        shut_down_ray(_SHUTDOWN_TIMEOUT_S)
        shutil.rmtree(self._folder, ignore_errors=True)


def join_ray(address: str) -> JoinedRay:
    """Connect to the cluster at `address`, the `host:port` of its head, once it is seen to ask for its token.

    Raises:
        InvalidInput: this process already uses a Ray, or the address or the token is not usable.
        InsecureClusterError: the cluster serves without a token.
        DeadlineError: the cluster did not answer in time.
        RaykitError: it could not be joined.
    """
    if ray.is_initialized():
        raise InvalidInput("this process already uses a Ray", remedy="ray.shutdown()")
    never_connect_unasked()
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    token = environment_token(private=False)
    if token is not None:
        os.environ["RAY_AUTH_MODE"] = "token"
        read_token_again()  # ray may have been imported before
    url = _dashboard_of(address)
    check_cluster(url, token)
    try:
        with sigterm_kept():
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises anything here, Exception itself included
        raise RaykitError(
            f"the cluster at {address} could not be joined: {str(error).strip()[-1000:]}"
        ) from error
    remove_dead_scratch()  # what killed jobs have left on this node
    joined = JoinedRay(address, url, make_scratch("job"))
    atexit.register(joined.close)
    return joined


def require_room(*, cpus: int, gpus: int) -> None:
    """See that the cluster which this process is connected to could ever give so much at once.

    Raises:
        GateError: it could not, however long anybody waits.
    """
    most = cluster_most()
    for what, wanted in (("CPU", cpus), ("GPU", gpus)):
        if most[what] < wanted:
            raise GateError(
                f"this needs {wanted} {what}s at once, and the cluster has {most[what]:g}: it would wait for ever",
                field="cluster",
                value=dict(sorted(most.items())),
                rule=f"a cluster with {wanted} {what}s or more, for training and the workers beside it",
                remedy="fewer run.workers, search.concurrent or pools.qc.gpus, or a larger cluster",
            )


def may_grow() -> bool:
    """Whether the cluster starts nodes by itself, so that what it has now says little."""
    return bool(ray_state.get_max_resources_from_cluster_config())


def cluster_most() -> dict[str, float]:
    """The CPUs and GPUs that the cluster has, or may come to have if it grows by itself."""
    there = ray.cluster_resources()
    grown = ray_state.get_max_resources_from_cluster_config() or {}
    return {what: max(float(there.get(what, 0.0)), float(grown.get(what, 0.0))) for what in ("CPU", "GPU")}


def _dashboard_of(address: str) -> str:
    """Where the dashboard of a cluster answers, asked of its head before anything connects.

    Raises:
        InvalidInput: the address is not usable, or nobody answers there.
        DeadlineError: nobody answered in time.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidInput(
            "the address of the head is not usable", field="RAY_ADDRESS", rule="HOST:PORT of the head"
        )
    if not answers(host, int(port), timeout_s=_ASK_S):
        raise DeadlineError(f"the head of the cluster does not answer at {address}")
    try:
        found = GcsClient(address=address).internal_kv_get(
            _WEB, ray_constants.KV_NAMESPACE_DASHBOARD, timeout=_ASK_S
        )
    except Exception as error:
        # Ray's own kinds differ by what is wrong; what is known is that it did not say.
        raise InvalidInput(
            f"the head of the cluster at {address} does not answer this process: {str(error).strip()[:300]}",
            field="RAY_ADDRESS",
            remedy="set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the token file of that cluster",
        ) from error
    if not found:
        raise InvalidInput(
            f"the cluster at {address} has no dashboard: whether it asks for a token cannot be seen",
            field="RAY_ADDRESS",
            rule="a cluster with its dashboard and Jobs API, which KubeRay and `ray start --head` start",
        )
    url = found.decode()
    return url if "://" in url else f"http://{url}"
