"""Where the processes of a session listen, read from the kernel and not from what Ray was told."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from raykit.errors import InsecureClusterError
from raykit.fleet.session.processes import ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listening TCP socket."""

    process: ProcessId
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        address = ipaddress.ip_address(self.host)
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback


def listeners(processes: Iterable[ProcessId]) -> list[Listener]:
    """Every TCP socket that one of `processes` listens on."""
    found: list[Listener] = []
    for process in processes:
        try:
            connections = psutil.Process(process.pid).net_connections("tcp")
        except psutil.NoSuchProcess:
            continue
        found += [
            Listener(process=process, host=connection.laddr.ip, port=connection.laddr.port)
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        ]
    return found


def require_loopback(found: Iterable[Listener]) -> None:
    """Refuse a listener that another machine could reach.

    Raises:
        InsecureClusterError: one listens beyond loopback; the message names its process and address.
    """
    for listener in found:
        if not listener.is_loopback:
            raise InsecureClusterError(
                f"{listener.process.name} (pid {listener.process.pid}) listens on "
                f"{listener.host} port {listener.port}, beyond this machine",
                value=f"{listener.host}:{listener.port}",
                rule="every socket of a local Ray is on loopback",
            )
