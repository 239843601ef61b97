"""The environment variables of a session: what Ray's processes and the launch process run with."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import psutil

from raykit.data.randomness import HASH_SEED
from raykit.fleet.session.folder import SessionFolder
from raykit.fleet.session.ports import Ports
from raykit.fleet.session.processes import MARK

LOOPBACK: Final = "127.0.0.1"

_NOT_OURS: Final = (
    "RAY_ADDRESS",  # another cluster
    "RAY_AUTH_TOKEN",  # would win over our token file
    "RAY_REDIS_ADDRESS",  # would move the state of this cluster out of this machine
    "RAY_NAMESPACE",
    "RAY_LOG_TO_STDERR",  # would send every log to the terminal
    "RAY_OVERRIDE_DASHBOARD_URL",
)


def launch_environment(place: SessionFolder) -> dict[str, str | None]:
    """What holds in the launch process for as long as the session does; None means not set."""
    settings: dict[str, str | None] = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(place.token_path),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's mode for desktops: a node keeps 127.0.0.1 as its address. Jobs need it as well as we do, or
        # their drivers look for the cluster on the address of a network card.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_ENABLE_AUTO_CONNECT": "0",  # whoever wants a Ray says which
        "RAY_TMPDIR": str(place.tmp),  # else Ray's libraries write to /tmp/ray, which it makes for all users
    }
    return settings | dict.fromkeys(_NOT_OURS)


def ray_environment(place: SessionFolder, ports: Ports) -> dict[str, str | None]:
    """What holds, beside `launch_environment`, in the processes that Ray starts and in theirs."""
    loopback = _loopback_interface()
    return {
        MARK: place.session,
        "PYTHONHASHSEED": HASH_SEED,  # a set of names has one order in every worker
        # Parts of Ray look for "the" cluster of the machine, and fail where there are two: Ray Train's cleaner of
        # placement groups does, and then a killed controller's resources are never free again.
        "RAY_ADDRESS": f"{LOOPBACK}:{ports.of('gcs')}",
        "TMPDIR": str(place.tmp),
        # Workers that were granted no accelerator see none, from before their first line.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
        "AUTOSCALER_METRIC_PORT": str(ports.of("autoscaler_metrics")),
        "DASHBOARD_METRIC_PORT": str(ports.of("dashboard_metrics")),
        # Process groups of torch take the address of a network card unless they are told otherwise.
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
    }


@contextmanager
def changed(settings: Mapping[str, str | None]) -> Iterator[None]:
    """Run the body with these environment variables, then put back what was there."""
    before = {name: os.environ.get(name) for name in settings}
    _apply(settings)
    try:
        yield
    finally:
        _apply(before)


def _apply(settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _loopback_interface() -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(it.family == socket.AF_INET and it.address == LOOPBACK for it in addresses):
            return str(name)
    return "lo"
