"""The entry of a worker process, which a supervisor starts with nothing imported."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from app.assembly.settings import Settings


def start_worker(settings: Settings, sockets: Sequence[socket.socket], pipe: Connection) -> None:
    """Import the service and serve until the supervisor ends it. See app.cli.serve.work."""
    skip_httpx_command_line()
    with collect_nothing():
        from app.cli.serve import work

    work(settings, sockets, pipe)


@contextmanager
def collect_nothing() -> Iterator[None]:
    """Keep the garbage collector away from what is imported: now, which takes 6 % of an import, and later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def skip_httpx_command_line() -> None:
    """Keep httpx from importing its command-line program, and with it rich and pygments.

    httpx is prepared for their absence. They would take a seventh of the time to start. Call this before app.upstream
    is imported.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
