"""The ports of a local Ray: one block of free ones, held by a claim, so that two clusters never share any.

Blocks lie above what Ray's own workers take by default (10002-19999) and below what the kernel hands out for
outgoing connections (32768 and up on Linux).
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from typing import Final

from raykit.errors import InvalidInput

FIRST_PORT: Final = 20000
END_PORT: Final = 32768

SERVICES: Final = (
    "gcs",
    "node_manager",
    "object_manager",
    "agent_grpc",
    "agent_http",
    "runtime_env_agent",
    "metrics_export",
    "dashboard",
    "autoscaler_metrics",
    "dashboard_metrics",
)
_FIRST_WORKER: Final = 16


@dataclass(frozen=True, slots=True)
class Ports:
    """A block of consecutive ports: the claim, then one per service, then those of the workers."""

    first: int
    count: int

    def of(self, service: str) -> int:
        """The port of one of `SERVICES`."""
        return self.first + 1 + SERVICES.index(service)

    @property
    def workers(self) -> range:
        """The ports that Ray's workers and drivers may take, one each."""
        return range(self.first + _FIRST_WORKER, self.first + self.count)


@dataclass(frozen=True, slots=True)
class PortClaim:
    """A block and the bound socket that holds it; whoever dies lets go of it."""

    ports: Ports
    holder: socket.socket

    def release(self) -> None:
        """Let others have the block."""
        self.holder.close()


def claim_ports(*, cpus: int) -> PortClaim:
    """Take a block whose ports are all free, large enough for the workers of `cpus` CPUs.

    Raises:
        InvalidInput: no block is free.
    """
    count = 256 * (1 + cpus // 64)
    firsts = list(range(FIRST_PORT, END_PORT - count + 1, count))
    random.SystemRandom().shuffle(firsts)
    for first in firsts:
        holder = _bound(first)
        if holder is None:
            continue
        if all(_is_free(port) for port in range(first + 1, first + count)):
            return PortClaim(Ports(first, count), holder)
        holder.close()
    raise InvalidInput(
        f"no {count} consecutive ports are free between {FIRST_PORT} and {END_PORT - 1}",
        remedy="`raykit doctor` names the sessions that hold ports",
    )


def _bound(port: int) -> socket.socket | None:
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Bound on every address, so that a listener on any of them is noticed; never listening.
        holder.bind(("", port))
    except OSError:
        holder.close()
        return None
    return holder


def _is_free(port: int) -> bool:
    holder = _bound(port)
    if holder is None:
        return False
    holder.close()
    return True
