"""The Jobs API of a Ray cluster, over plain HTTP: every call has a deadline, and says whether its reply was lost.

Ray's own client waits for ever, follows redirects and proxies with the token, and imports all of Ray. Here the token
reaches the host of the address or nobody.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from raykit.errors import DeadlineError, InvalidInput, RaykitError, UnknownOutcomeError
from raykit.fleet.session.probe import nobody_answers

CALL_S: Final = 20.0
"""What one call may take. The head starts a job's supervisor before it answers a submission."""
UPLOAD_S: Final = 120.0
MAX_REPLY_BYTES: Final = 256 * 2**20
OVER: Final = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})

_CONNECTIONS: Final = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job as its cluster tells it."""

    submission_id: str
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    message: str = ""
    entrypoint: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    exit_code: int | None = None
    """Of its entrypoint, once that has ended by itself."""
    began_ms: int | None = None
    ended_ms: int | None = None

    @property
    def over(self) -> bool:
        """Whether it has come to its end."""
        return self.status in OVER

    @property
    def words(self) -> str:
        """Its status, for people."""
        return self.status.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """What is sent. It holds no secret: Ray shows all of it to whoever may see the dashboard."""

    submission_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")

    @property
    def why(self) -> str:
        """The last line of what the server says: where a traceback has its error."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"status {self.status}"


class JobsApi:
    """The Jobs API at one address, with that cluster's token."""

    def __init__(self, address: str, token: str, *, call_s: float = CALL_S) -> None:
        """`address` is that of the dashboard, as `check_cluster` has seen it; nothing is connected yet."""
        self.address = address.rstrip("/")
        self._server = urlsplit(self.address)
        self._token = token
        self._call_s = call_s

    def __repr__(self) -> str:
        return f"JobsApi({self.address})"  # never the token

    def ray_version(self) -> str:
        """The version of Ray that the cluster runs.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own.
        """
        return str(self._json("GET", "/api/version")["ray_version"])

    def resources(self) -> Counter[str]:
        """What the nodes have that are there now, by resource, and how many `nodes` that are.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own.
        """
        has: Counter[str] = Counter()
        for node in self._json("GET", "/api/v0/nodes?detail=1&limit=10000")["data"]["result"]["result"]:
            if node["state"] == "ALIVE":
                has["nodes"] += 1
                has.update(Counter(node.get("resources_total") or {}))
        return has

    def jobs(self) -> list[JobInfo]:
        """Every submitted job that the cluster knows of, the newest last.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own.
        """
        found = [_job_of(each) for each in self._json("GET", "/api/jobs/") if each.get("submission_id")]
        return sorted(found, key=lambda job: job.began_ms or 0)

    def job(self, submission_id: str) -> JobInfo | None:
        """One job; None if the cluster has none of that id.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own.
        """
        reply = self._ask("GET", f"/api/jobs/{quote(submission_id)}")
        return None if reply.status == 404 else _job_of(_parsed(self._good(reply)))

    def submit(self, job: NewJob) -> None:
        """Send a job. An id that the cluster knows already is refused by it: look first, and after.

        Raises:
            UnknownOutcomeError: the reply was lost: the job may be there, or not.
            InvalidInput: nobody answers there, the token is not the cluster's, or the job is not usable.
            RaykitError: the cluster answered with an error of its own, an id that it knows included.
        """
        body = {
            "submission_id": job.submission_id,
            "entrypoint": job.entrypoint,
            "runtime_env": dict(job.runtime_env),
            "metadata": dict(job.metadata),
        }
        try:
            reply = self._ask("POST", "/api/jobs/", json.dumps(body).encode())
        except DeadlineError as error:
            raise UnknownOutcomeError(f"{error.message}: whether it has the job is not known") from error
        self._good(reply)

    def stop(self, submission_id: str) -> None:
        """End a job at once: SIGTERM, and SIGKILL three seconds later. That is no pause.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own, or has no such job.
        """
        self._json("POST", f"/api/jobs/{quote(submission_id)}/stop", b"{}")

    def logs(self, submission_id: str) -> str:
        """All that a job has written so far, as far as its node still has it.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time.
            RaykitError: the cluster answered with an error of its own: the node that has them is gone.
        """
        return str(self._json("GET", f"/api/jobs/{quote(submission_id)}/logs")["logs"])

    def upload(self, name: str, data: bytes) -> str:
        """Let the cluster keep a package, unless it has it; its URI. The name says what is in it: see `package_name`.

        Raises:
            InvalidInput: nobody answers there, or the token is not the cluster's.
            DeadlineError: no answer in time; sending it again is safe.
            RaykitError: the cluster answered with an error of its own.
        """
        path = f"/api/packages/gcs/{quote(name)}"
        if self._ask("GET", path).status != 200:
            self._good(self._ask("PUT", path, data, timeout_s=UPLOAD_S))
        return f"gcs://{name}"

    # --- asking ---------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: bytes | None = None) -> Any:
        return _parsed(self._good(self._ask(method, path, body)))

    def _good(self, reply: _Reply) -> _Reply:
        if reply.status in (401, 403):
            raise InvalidInput(
                f"the cluster at {self.address} answered {reply.status} to this token",
                field="RAY_AUTH_TOKEN_PATH",
                remedy="set RAY_AUTH_TOKEN_PATH to the token file of that cluster",
            )
        if reply.status == 400:
            raise InvalidInput(f"the cluster at {self.address} cannot read what was sent: {reply.why}")
        if reply.status != 200:
            raise RaykitError(f"the cluster at {self.address} answered {reply.status}: {reply.why}")
        return reply

    def _ask(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float | None = None
    ) -> _Reply:
        timeout_s = timeout_s or self._call_s
        connection = _CONNECTIONS[self._server.scheme](
            self._server.hostname or "", self._server.port, timeout=timeout_s
        )
        try:
            _connect(connection, self.address)
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            try:
                connection.request(method, self._server.path.rstrip("/") + path, body, headers)
                reply = connection.getresponse()
                return _Reply(reply.status, reply.read(MAX_REPLY_BYTES))
            except (OSError, http.client.HTTPException) as error:  # it was sent, at least in part
                what = f"within {timeout_s:g} s" if isinstance(error, TimeoutError) else f"({_words(error)})"
                raise DeadlineError(f"the cluster at {self.address} did not answer {what}") from error
        finally:
            connection.close()


def _connect(connection: http.client.HTTPConnection, address: str) -> None:
    """Reach the server; until then nothing was sent, whatever goes wrong."""
    try:
        connection.connect()
    except OSError as error:
        raise nobody_answers(address, _words(error)) from error


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _parsed(reply: _Reply) -> Any:
    try:
        return json.loads(reply.body)
    except ValueError as error:
        raise RaykitError(f"what answered is no Ray dashboard: {reply.text[:100]!r}") from error


def _job_of(plain: Mapping[str, Any]) -> JobInfo:
    return JobInfo(
        submission_id=str(plain["submission_id"]),
        status=str(plain["status"]),
        message=str(plain.get("message") or ""),
        entrypoint=str(plain.get("entrypoint") or ""),
        metadata={str(k): str(v) for k, v in (plain.get("metadata") or {}).items()},
        exit_code=plain.get("driver_exit_code"),
        began_ms=plain.get("start_time"),
        ended_ms=plain.get("end_time"),
    )
