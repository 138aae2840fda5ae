"""The entry of a worker process, which a supervisor starts with nothing imported."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection

from app.settings import Settings


def start_worker(settings: Settings, sockets: Sequence[socket.socket], pipe: Connection) -> None:
    """Import the service and serve until the supervisor ends it. See app.cli.serve.work."""
    skip_httpx_command_line()
    from app.cli.serve import work

    work(settings, sockets, pipe)


def skip_httpx_command_line() -> None:
    """Keep httpx from importing its command-line program, and with it rich and pygments.

    httpx is prepared for their absence. They would take a seventh of the time to start. Call this before app.upstream
    is imported.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
