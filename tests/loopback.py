"""An HTTP server on loopback that says nothing about clients that hang up.

The standard one prints a traceback for each of them, from a thread of its own, into whatever test runs by then.
"""

from __future__ import annotations

import socketserver
import sys
from http.server import ThreadingHTTPServer
from typing import Any


class HangUpsAreQuiet(socketserver.BaseServer):
    """Mixed into a server. Tests that break connections look at what was asked and counted, not at what was printed."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class LoopbackServer(HangUpsAreQuiet, ThreadingHTTPServer):
    """At a free port of 127.0.0.1."""

    daemon_threads = True
