"""A real Prometheus on loopback, with the files of `cluster/prometheus` as they are, and what its answers come to."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

CLUSTER = Path(__file__).parent.parent / "cluster"
DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One server."""

    url: str
    folder: Path

    def scrape(self, targets: Path, name: str) -> None:
        """Scrape a Ray too, which keeps in that file what there is to scrape."""
        (self.folder / "targets" / f"{name}.json").symlink_to(targets)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What it comes to now."""
        return self._ask("query", query=expression)

    def over(self, expression: str, since: float, *, step_s: float = 2.0) -> list[dict[str, Any]]:
        """What it came to at every step since then."""
        return self._ask("query_range", query=expression, start=since, end=time.time(), step=step_s)

    def _ask(self, what: str, **arguments: Any) -> list[dict[str, Any]]:
        with urlopen(f"{self.url}/api/v1/{what}?{urlencode(arguments)}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        assert found["status"] == "success", found
        result: list[dict[str, Any]] = found["data"]["result"]
        return result


@contextmanager
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """Start one; it keeps what it has in `folder`, and ends with the block."""
    shutil.copytree(CLUSTER / "prometheus", folder / "config")
    (folder / "config" / "targets").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        "prometheus",
        f"--config.file={folder}/config/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _wait_until_ready(url, process)
        yield Prometheus(url, folder / "config")
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert process.poll() is None, "Prometheus has ended"
        try:
            urlopen(f"{url}/-/ready", timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "Prometheus is not ready"
            time.sleep(0.05)
