"""Real object servers on loopback for tests, and a proxy that makes their replies go wrong.

Every server listens on 127.0.0.1 only, at a free port below the ephemeral range and outside the range that
Ray gives to its workers, and dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loopback import HangUpsAreQuiet

ACCESS_KEY = "raykit"
SECRET_KEY = "raykitsecret"
BUCKET = "raykit"

# For each port seaweedfs opens the one 10,000 above it too: both lie outside 10002-19999 and below 32768.
_PORTS = range(20000, 22700)

# Asks the kernel for SIGKILL at the death of its parent, then becomes the server; 1 is PR_SET_PDEATHSIG.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True)
class Server:
    """A running server: where it listens, and its process."""

    endpoint: str
    process: subprocess.Popen[bytes]
    bucket: str = BUCKET


def credentials() -> dict[str, str]:
    """The environment with which any of these servers can be used."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses, nor the one 10,000 above; spread by process id so that two runs rarely meet."""
    found: list[int] = []
    start = os.getpid() * 17 % len(_PORTS)
    for i in range(len(_PORTS)):
        port = _PORTS[(start + i) % len(_PORTS)]
        if _is_free(port) and _is_free(port + 10000):
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports in {_PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Server]:
    """A SeaweedFS server with its data in `folder`: checks credentials, honours conditional writes."""
    master, volume, filer, s3 = free_ports(4)
    (folder / "data").mkdir()
    (folder / "s3.json").write_text(json.dumps(_seaweedfs_identities()))
    command = [
        _tool("weed"),
        "mini",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        f"-s3.port={s3}",
        f"-s3.config={folder / 's3.json'}",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
        f"-bucket={BUCKET}",
    ]
    with _started(command, folder, s3, GOMEMLIMIT="300MiB") as server:
        _wait_until(lambda: _bucket_exists(server), server, "its bucket")
        yield server


def _seaweedfs_identities() -> dict[str, object]:
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "raykit", "credentials": [keys], "actions": actions}]}


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """A moto server, in memory; any credentials pass."""
    (port,) = free_ports(1)
    with _started([_tool("moto_server"), "-H", "127.0.0.1", "-p", str(port)], folder, port) as server:
        status, _ = request(server, "PUT", f"/{BUCKET}")
        assert status == 200, status
        yield server


@contextlib.contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """rclone's S3 server, which ignores `If-None-Match` and overwrites."""
    (port,) = free_ports(1)
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [
        _tool("rclone"),
        "serve",
        "s3",
        str(folder / "data"),
        f"--addr=127.0.0.1:{port}",
        f"--auth-key={ACCESS_KEY},{SECRET_KEY}",
        "--config=",
    ]
    with _started(command, folder, port) as server:
        yield server


def _tool(name: str) -> str:
    # The wheels put their programs beside the interpreter that runs the tests.
    return str(Path(sys.executable).parent / name)


@contextlib.contextmanager
def _started(command: list[str], folder: Path, port: int, **environment: str) -> Iterator[Server]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        _wait_until(lambda: _answers(port), server, f"port {port}")
        yield server
    finally:
        # Its data is thrown away, so nothing is gained by letting it close down in order.
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _bucket_exists(server: Server) -> bool:
    # Signed: to the unsigned it answers 403 whether the bucket is there or not.
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    try:
        client.list_objects_v2(Bucket=BUCKET, MaxKeys=1)
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True


def request(server: Server, method: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def _wait_until(ready: Callable[[], bool], server: Server, what: str, limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    pause = threading.Event()
    while not ready():
        if server.process.poll() is not None:
            raise RuntimeError(f"{server.process.args!r} ended with {server.process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"{server.process.args!r}: {what} did not come up in {limit_s} s")
        pause.wait(0.02)


@dataclass(frozen=True)
class Request:
    """What the proxy's script sees of a request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def is_conditional(self) -> bool:
        return self.headers.get("if-none-match") == "*"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    `kind`: "answer" replies `status` without asking the server, and "lie" after asking it; "cut" closes the
    connection after asking, instead of passing the reply on, and "reset" before; "tear" passes on only half
    of the reply's body; "delay" waits `delay_s` before it asks; "redirect" replies 307 with `location`;
    "unconditional" asks without the condition, as a server does that does not know it.
    """

    kind: str
    status: int = 0
    delay_s: float = 0.0
    location: str = ""


Script = Callable[[Request], Fault | None]


@dataclass
class Proxy:
    """An HTTP proxy before an object server: `script` decides about each request, `fired` counts faults."""

    upstream: str
    script: Script = lambda request: None
    requests: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    endpoint: str = ""

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(_ProxyHandler):
            owner = proxy

        (port,) = free_ports(1)
        self._server = _LoopbackServer(("127.0.0.1", port), Handler)
        self.endpoint = f"http://127.0.0.1:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _LoopbackServer(HangUpsAreQuiet, socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


class _ProxyHandler(BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = "HTTP/1.1"
    # Headers and body go out in two writes: without this each reply waits 40 ms for the client's ACK.
    disable_nagle_algorithm = True
    # A reader that goes away must not keep its thread for ever.
    timeout = 60

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        request = Request(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body
        )
        self.owner.requests[request.method] += 1
        fault = self.owner.script(request)
        if fault:
            self.owner.fired[fault.kind] += 1
        self._go_wrong(request, fault) if fault else self._reply(*self._ask(request))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve

    def _go_wrong(self, request: Request, fault: Fault) -> None:
        if fault.kind in ("answer", "lie"):
            if fault.kind == "lie":
                self._ask(request)
            self._reply(fault.status, {"content-type": "application/xml"}, _error_xml(fault.status))
        elif fault.kind == "redirect":
            self._reply(307, {"location": fault.location}, b"")
        elif fault.kind == "unconditional":
            headers = {name: value for name, value in request.headers.items() if name != "if-none-match"}
            self._reply(*self._ask(replace(request, headers=headers)))
        elif fault.kind == "delay":
            threading.Event().wait(fault.delay_s)
            self._reply(*self._ask(request))
        elif fault.kind == "tear":
            status, headers, body = self._ask(request)
            self._reply(status, headers, body[: len(body) // 2], length=len(body))
            self.close_connection = True
        else:
            if fault.kind == "cut":
                self._ask(request)
            self.close_connection = True

    def _ask(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        upstream = http.client.HTTPConnection(self.owner.upstream.removeprefix("http://"), timeout=60)
        try:
            upstream.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name not in ("connection", "expect"):
                    upstream.putheader(name, value)
            upstream.endheaders(request.body)
            reply = upstream.getresponse()
            headers = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, headers, reply.read()
        finally:
            upstream.close()

    def _reply(self, status: int, headers: dict[str, str], body: bytes, length: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        if self.command == "HEAD":
            self.send_header("content-length", headers.get("content-length", "0"))
            body = b""
        elif status != 204:
            self.send_header("content-length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


_CODES = {
    403: "AccessDenied",
    409: "ConditionalRequestConflict",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}


def _error_xml(status: int) -> bytes:
    code = _CODES[status]
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
