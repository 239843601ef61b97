"""A private Ray on this machine, for one launch: token, own folder, own ports, loopback only.

Ray is started in this process, so that its trainers and jobs run beside the launch loop. What Ray 2.60 does
otherwise by default, and how it is kept on loopback, is in docs/adr/0007-loopback-override.md.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import ray
from ray._private import parameter, ray_constants, services
from ray._private import utils as ray_utils
from ray.job_config import JobConfig

from raykit.errors import DeadlineError, InsecureClusterError, InvalidInput, RaykitError, Unknown
from raykit.fleet.session.driver import (
    NAMESPACE,
    answers,
    never_connect_unasked,
    read_token_again,
    replaced,
    shut_down_ray,
    sigterm_kept,
)
from raykit.fleet.session.environment import LOOPBACK, changed, launch_environment, ray_environment
from raykit.fleet.session.folder import SessionFolder, create, locked, make_parent
from raykit.fleet.session.leftovers import end_leftovers
from raykit.fleet.session.ports import SERVICES, PortClaim, Ports, claim_ports
from raykit.fleet.session.probe import check_cluster
from raykit.fleet.session.processes import ProcessId, alive, end_all, identify, of_session, started_here
from raykit.fleet.session.sockets import Listener, listeners, require_loopback

TESTED_RAY: Final = "2.60"

_OBJECT_STORE_BYTES: Final = 150 * 2**20
_LISTEN_TIMEOUT_S: Final = 30.0
_METRICS_TIMEOUT_S: Final = 5.0
_SHUTDOWN_TIMEOUT_S: Final = 6.0
_DEAD_TIMEOUT_S: Final = 1.0
"""What a Ray may take to shut down that has nobody to tell."""
_GRACE_S: Final = 3.0
_RECORD_EVERY_S: Final = 0.5
_POLL_S: Final = 0.1

_VITAL: Final = frozenset({"gcs_server", "raylet"})
"""Without one of these Ray answers nobody, and never says so."""

_METRICS: Final = ("autoscaler_metrics", "dashboard_metrics")
"""Services that come last, and never without prometheus_client."""


class LocalRay:
    """A running local Ray. `start_local` makes one; close it, or use it as a context manager."""

    def __init__(self, place: SessionFolder, claim: PortClaim) -> None:
        self._place = place
        self._claim = claim
        self._recorded: set[ProcessId] = set()
        self._vital: tuple[ProcessId, ...] = ()
        self._environment = ExitStack()
        self._closed = False

    @property
    def session(self) -> str:
        """The id of this session."""
        return self._place.session

    @property
    def folder(self) -> Path:
        """Its private folder; gone after `close`."""
        return self._place.path

    @property
    def token_path(self) -> Path:
        """The file with the token, which the dashboard asks for too."""
        return self._place.token_path

    @property
    def ports(self) -> Ports:
        """The ports that it claimed."""
        return self._claim.ports

    @property
    def address(self) -> str:
        """What `ray.init(address=...)` takes in another process of this session."""
        return f"{LOOPBACK}:{self.ports.of('gcs')}"

    @property
    def dashboard_url(self) -> str:
        """Where the dashboard and the Jobs API answer."""
        return f"http://{LOOPBACK}:{self.ports.of('dashboard')}"

    @property
    def idle_s(self) -> None:
        """Nothing in it outlives this process."""
        return None

    def wants(self, role: str) -> dict[str, Any]:
        """What a worker of a pool asks for, beside CPUs and GPUs: one of the resource that is called as its role is."""
        return {"resources": {role: 1}}

    def processes(self) -> set[ProcessId]:
        """What this session has started and still runs."""
        return started_here(self.session)

    def lost(self) -> Unknown | None:
        """What has become of this Ray, if it has died: whoever asks it anything then waits for ever. Cheap."""
        gone = sorted(process.name for process in self._vital if not alive(process))
        if not gone:
            return None
        return Unknown(
            f"the local Ray has died: {' and '.join(gone)} of it is gone. Nothing that is published is lost",
            remedy="the same command goes on",
        )

    def check_loopback(self) -> list[Listener]:
        """Every socket that the session listens on, once all are seen to be on loopback.

        Raises:
            InsecureClusterError: one can be reached from another machine.
        """
        found = self._listeners()
        require_loopback(found)
        return found

    def close(self) -> None:
        """End all that the session started, put the environment back, and remove the folder. Twice is fine.

        After it no call of this process reaches a Ray, or starts one: each raises.

        Raises:
            DeadlineError: a process still runs after SIGKILL; the message names it, and the folder stays.
        """
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        try:
            self._recorded |= self.processes()
            shut_down_ray(_SHUTDOWN_TIMEOUT_S if self.lost() is None else _DEAD_TIMEOUT_S)
            ended = end_all(self.session, self._remaining, grace_s=_GRACE_S)
        finally:
            self._environment.close()
            self._claim.release()
        left = [f"{process.name} (pid {process.pid})" for process in ended if process.how == "still running"]
        if left:
            raise DeadlineError(f"still running after SIGKILL: {', '.join(left)}", remedy="raykit doctor")
        self._place.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, *, cpus: int, resources: Mapping[str, float], shown: Mapping[str, str]) -> None:
        atexit.register(self.close)
        self._environment.callback(read_token_again)  # called last, with the environment as it was
        self._environment.enter_context(changed(launch_environment(self._place)))
        read_token_again()
        tempfile.gettempdir()  # decides for this process before TMPDIR changes for the others
        with (
            self._recording(),
            changed(ray_environment(self._place, self.ports)),
            sigterm_kept(),
            _private_ray(self._place, self.ports),
        ):
            ray.init(
                address="local",
                num_cpus=cpus,
                resources=dict(resources),
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=True,
                dashboard_host=LOOPBACK,
                dashboard_port=self.ports.of("dashboard"),
                namespace=NAMESPACE,
                job_config=JobConfig(metadata=dict(shown)),
                log_to_driver=False,
                logging_level=logging.ERROR,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(self._place.ray),
                _metrics_export_port=self.ports.of("metrics_export"),
            )
        # Where several Rays are on a machine, the supervisors of its jobs look here for the one that is theirs; without
        # it they hand their drivers the address of any.
        ray_utils.write_ray_address(self.address, str(self._place.ray))
        self._wait_for_services()
        self._vital = tuple(process for process in self.processes() if process.name in _VITAL)
        self.check_loopback()
        check_cluster(self.dashboard_url, self.token_path.read_text())

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Record each process as it appears: a launch that dies within the body leaves no unknown one."""
        done = threading.Event()

        def record_until_done() -> None:
            while not done.wait(_RECORD_EVERY_S):
                self._record()

        thread = threading.Thread(target=record_until_done, name="raykit-session-record", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._record()

    def _record(self) -> None:
        for process in self.processes() - self._recorded:
            self._place.append(process)
            self._recorded.add(process)

    def _remaining(self) -> set[ProcessId]:
        return of_session(self.session, self._place.path, self._recorded)

    def _listeners(self) -> list[Listener]:
        me = identify(os.getpid())
        mine = listeners([me]) if me else []
        ports = range(self.ports.first, self.ports.first + self.ports.count)
        # This process may serve other things, which are not Ray's.
        return listeners(self.processes()) + [it for it in mine if it.port in ports]

    def _wait_for_services(self) -> None:
        needed = [service for service in SERVICES if service not in _METRICS]
        missing = self._wait_for(needed, _LISTEN_TIMEOUT_S)
        if missing:
            raise DeadlineError(f"Ray does not serve {', '.join(missing)} after {_LISTEN_TIMEOUT_S:g} s")
        self._wait_for(list(_METRICS), _METRICS_TIMEOUT_S)

    def _wait_for(self, services: list[str], timeout_s: float) -> list[str]:
        """Those of `services` that nobody serves when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            missing = [service for service in services if not answers(LOOPBACK, self.ports.of(service))]
            if not missing or time.monotonic() >= deadline:
                return missing
            time.sleep(_POLL_S)


def start_local(
    *,
    cpus: int,
    resources: Mapping[str, float],
    shown: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> LocalRay:
    """Start a private Ray in this process, after ending what dead launches have left on this machine.

    From then on Ray never connects by itself in this process: see `LocalRay.close`.

    `shown` is what its dashboard shows of this process's work. `folder` is where its private folder goes, by default
    the temporary folder. Call it from the main thread: the kernel ends Ray's processes together with the thread that
    started them.

    Raises:
        InvalidInput: this process already uses a Ray, this is not the main thread, the folder cannot be used,
            or no ports are free.
        InsecureClusterError: the folder is not private, or Ray listens beyond loopback or without a token.
        DeadlineError: a service of Ray did not come up in time, or another raykit holds the folder.
        RaykitError: Ray did not start.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InvalidInput("a local Ray has to be started from the main thread")
    if ray.is_initialized():
        raise InvalidInput("this process already uses a Ray", remedy="ray.shutdown()")
    never_connect_unasked()
    end_leftovers(folder)
    parent = make_parent(folder)
    claim = claim_ports(cpus=cpus)
    try:
        with locked(parent):
            place = create(parent, claim.ports, ray_version=ray.__version__)
    except BaseException:
        claim.release()
        raise
    local = LocalRay(place, claim)
    try:
        local._start(cpus=cpus, resources=resources, shown=shown or {})
    except RaykitError:
        local.close()
        raise
    except Exception as error:  # Ray raises anything here, Exception itself included
        local.close()
        raise RaykitError(f"Ray did not start: {str(error).strip()[-2000:]}") from error
    except BaseException:
        local.close()
        raise
    return local


@contextmanager
def _private_ray(place: SessionFolder, ports: Ports) -> Iterator[None]:
    """Let `ray.init` keep 127.0.0.1, take our ports, and start each process in a group of its own.

    It has arguments for none of that. A signal to the launch's process group (a service manager's, or `timeout`'s) asks
    for a commit and an end; it must not end Ray under the run that is committing.

    Raises:
        InsecureClusterError: this Ray would bind other addresses; refused before it opens a socket.
    """
    params = functools.partial(
        parameter.RayParams,
        gcs_server_port=ports.of("gcs"),
        node_manager_port=ports.of("node_manager"),
        object_manager_port=ports.of("object_manager"),
        metrics_agent_port=ports.of("agent_grpc"),
        dashboard_agent_listen_port=ports.of("agent_http"),
        runtime_env_agent_port=ports.of("runtime_env_agent"),
        min_worker_port=ports.workers.start,
        max_worker_port=ports.workers.stop - 1,
        # Short and without a time: the paths of Ray's sockets have to fit into 107 bytes.
        session_name=f"session_{place.session}",
    )
    own_group = functools.partial(services.ConsolePopen, process_group=0)
    # `launch_environment` does the first for Ray's processes; this one may have imported ray before.
    with (
        replaced(ray_constants, "ENABLE_RAY_CLUSTER", False),
        replaced(parameter, "RayParams", params),
        replaced(services, "ConsolePopen", own_group),
    ):
        if services.resolve_ip_for_localhost(LOOPBACK) != LOOPBACK:
            raise InsecureClusterError(
                f"Ray {ray.__version__} would listen beyond this machine",
                rule=f"tested with Ray {TESTED_RAY}",
            )
        yield
