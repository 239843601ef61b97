"""A launch process for the tests of `raykit.fleet.session`: starts a local Ray, then does what stdin says.

Each line of stdin is a command; each answer is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from ray._raylet import get_authentication_mode

from raykit.errors import InsecureClusterError
from raykit.fleet.session import LocalRay, start_local


def say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def main(folder: Path) -> None:
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    # What this process serves is its own business, and shows that the network of the test works.
    control = socket.create_server(("0.0.0.0" if "--control" in sys.argv else "127.0.0.1", 0))
    local = start_local(cpus=1, resources={"qc": 1}, folder=folder)
    say(
        **described(local),
        control=control.getsockname()[1],
        keeps_sigterm=signal.getsignal(signal.SIGTERM) is handler,
    )
    for line in sys.stdin:
        if line == "listen beyond\n":
            say(refusal=listen_beyond(local))
        if line == "close\n":
            local.close()
            local.close()  # again is fine
            changed = {
                name
                for name in environment.keys() | os.environ
                if environment.get(name) != os.environ.get(name)
            }
            say(
                changed=sorted(changed),
                token_asked=bool(get_authentication_mode()),
                tmp=tempfile.gettempdir(),
                unasked=unasked(),
            )
        if line == "start again\n":
            local = start_local(cpus=1, resources={}, folder=folder)
            say(**described(local))


def unasked() -> list[str]:
    """What becomes of calls to Ray where there is none."""
    import ray

    @ray.remote
    def nothing() -> None:
        """Runs nowhere."""

    said = []
    for call in (nothing.remote, ray.remote(Nobody).remote, lambda: ray.put(1), ray.cluster_resources):
        try:
            call()
            said.append("answered")
        except Exception as error:  # whatever it is, the test is told
            said.append(type(error).__name__)
    return [*said, str(ray.is_initialized())]


class Nobody:
    """An actor that is never made."""


def described(local: LocalRay) -> dict[str, Any]:
    return {
        "session": local.session,
        "folder": str(local.folder),
        "token_path": str(local.token_path),
        "dashboard_url": local.dashboard_url,
        "ports": [local.ports.first, local.ports.count],
        "listeners": [[it.process.name, it.host, it.port] for it in local.check_loopback()],
    }


def listen_beyond(local: LocalRay) -> str:
    """Let a Ray worker listen on every address, and return how that is refused."""
    import ray

    @ray.remote(num_cpus=0)
    class Server:
        def listen(self) -> int:
            self.socket = socket.create_server(("0.0.0.0", 0))
            return int(self.socket.getsockname()[1])

    server = Server.remote()
    ray.get(server.listen.remote(), timeout=60)
    try:
        local.check_loopback()
    except InsecureClusterError as error:
        return str(error)
    finally:
        ray.kill(server)
    return "not refused"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
