"""What this process does about Ray in it: no handler is taken, nothing connects unasked, an end is bounded."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray
from ray._private import auto_init_hook
from ray._private import utils as ray_utils
from ray._raylet import AuthenticationTokenLoader, Config

NAMESPACE: Final = "raykit"
"""The Ray namespace of everything that raykit names."""


def never_connect_unasked() -> None:
    """Let a call to Ray raise where there is none.

    Else it would be a bare `ray.init()`, without a token: into whatever cluster that finds, or into one that listens to
    everyone. A thread that outlives its session must not do that, so this is never put back.
    """
    auto_init_hook.enable_auto_connect = False  # read from the environment once, when ray was imported


@contextmanager
def replaced(module: Any, name: str, value: object) -> Iterator[None]:
    """Run the body with another value of a module's name."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Put the SIGTERM handler back that `ray.init` replaces by one that aborts the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        # A SIGTERM while Ray comes up has to find the launch's own handler too.
        with replaced(ray_utils, "set_sigterm_handler", lambda handler: None):
            yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def read_token_again() -> None:
    """Let Ray take mode and token from the environment as it is now."""
    # Ray reads mode and token once per process. Mode first: a thread of an earlier session that still drains
    # would otherwise abort the process when its token file is gone.
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def shut_down_ray(timeout_s: float) -> None:
    """`ray.shutdown`, which waits for a head that may be dead or stopped, within a bound."""
    thread = threading.Thread(target=ray.shutdown, name="raykit-session-shutdown", daemon=True)
    thread.start()
    thread.join(timeout_s)


def answers(host: str, port: int, *, timeout_s: float = 1.0) -> bool:
    """Whether anybody accepts a connection there."""
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except OSError:
        return False
    return True
