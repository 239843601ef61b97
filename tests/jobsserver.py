"""A Jobs API on loopback that loses replies on purpose, as a real server with real sockets.

with JobsServer() as server:
    server.faults["POST /api/jobs/"] = ["lost"]      # done, and the reply never comes
    api = JobsApi(server.url, server.token)
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Literal, Self

from loopback import LoopbackServer

Fault = Literal["lost", "dropped", "hangs", "500", "400"]
"""Done and not answered; not done and not answered; never answered; refused with an error of its own."""


class JobsServer:
    """Keeps jobs, logs and packages in memory. What it was asked is in `asked`."""

    def __init__(self, *, token: str | None = "the-right-one") -> None:
        self.token = token
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.packages: dict[str, bytes] = {}
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        """By method and path, as far as both are given: what becomes of the next requests."""
        self.asked: Counter[str] = Counter()
        self.bodies: list[bytes] = []
        self.ends: dict[str, str] = {}
        """By job: the status that it has from its second look on."""
        self._lock = threading.Lock()
        self._server = LoopbackServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, submission_id: str, status: str = "RUNNING", **more: Any) -> None:
        """A job that is there already."""
        self.jobs[submission_id] = {"submission_id": submission_id, "status": status, **more}

    # --- serving --------------------------------------------------------------------------------------------

    def _fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for key, faults in self.faults.items():
                known, _, where = key.partition(" ")
                if method == known and path.startswith(where) and faults:
                    return faults.pop(0)
        return None

    def _answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        with self._lock:
            if path == "/api/version":
                return 200, {"ray_version": "2.60.0"}
            if path == "/api/jobs/" and method == "POST":
                return self._submit(json.loads(body))
            if path == "/api/jobs/":
                return 200, list(self.jobs.values())
            if path.startswith("/api/packages/gcs/"):
                name = path.rpartition("/")[2]
                if method == "PUT":
                    self.packages[name] = body
                return (200, {}) if name in self.packages else (404, "no such package")
            if path.startswith("/api/jobs/"):
                return self._job(*path.removeprefix("/api/jobs/").split("/"))
        return 404, "no such path"

    def _submit(self, said: dict[str, Any]) -> tuple[int, Any]:
        name = said["submission_id"]
        if name in self.jobs:
            return 500, f"Traceback ...\nValueError: Job with submission_id {name} already exists."
        self.jobs[name] = {**said, "status": "PENDING"}
        return 200, {"submission_id": name, "job_id": name}

    def _job(self, name: str, what: str | None = None) -> tuple[int, Any]:
        if name not in self.jobs:
            return 404, f"Job {name} does not exist"
        if what == "logs":
            return 200, {"logs": self.logs.get(name, "")}
        if what == "stop":
            self.jobs[name]["status"] = "STOPPED"
            return 200, {"stopped": True}
        found = dict(self.jobs[name])
        if name in self.ends:
            self.jobs[name]["status"] = self.ends[name]
        return 200, found

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0]
                server.asked[f"{self.command} {path}"] += 1
                server.bodies.append(body)
                if server.token is not None:
                    said = self.headers.get("Authorization")
                    if said is None:
                        return self.reply(401, "Unauthorized")
                    if said != f"Bearer {server.token}":
                        return self.reply(403, "Forbidden")
                fault = server._fault(self.command, path)
                if fault in ("500", "400"):
                    return self.reply(int(fault), "Traceback ...\nRuntimeError: on purpose")
                status, answer = (
                    (0, None) if fault in ("dropped", "hangs") else server._answer(self.command, path, body)
                )
                if fault == "hangs":
                    time.sleep(60)
                if fault is not None:
                    self.close_connection = True
                    return None
                return self.reply(status, answer)

            def reply(self, status: int, answer: Any) -> None:
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = serve

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        return Handler
