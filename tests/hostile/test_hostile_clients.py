"""A process with real sockets has room for other clients, whatever a client does.

The kernel has buffers and a number of files that no network in memory has. What is not of the kernel is in
tests/server/test_listener_contract.py and tests/server/test_requests.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT
from tests.hostile.clients import connect, flood, head, read_to_end
from tests.hostile.conftest import started

pytestmark = pytest.mark.process


_NAME: Final = "/10.1000/182"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy whose deadlines for clients are one second."""
    deadlines = dict.fromkeys((HEAD_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, IDLE_TIMEOUT), 1)
    one = started(tmp_path_factory.mktemp("impatient"), upstream_url, store_url="memory:", **deadlines)
    try:
        yield one
    finally:
        one.process.kill()


def test_a_client_that_reads_nothing_is_disconnected(impatient: Proxy) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(impatient.port)) for _ in range(5)]
        flood(connections, head("/") * 2_000, 10.0)

        async def answers() -> bool:
            # A client that stands still for a second is disconnected too.
            try:
                return (await impatient.ask(_NAME)).status == 302
            except (OSError, EOFError):
                return False

        asyncio.run(until(answers, START_DEADLINE, "another client is answered"))
        for connection in connections:
            connection.setblocking(True)
            assert read_to_end(connection) is not None
