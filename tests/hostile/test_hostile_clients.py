"""A process with real sockets ends every connection, whatever its client does, and has room for other clients.

The kernel has buffers and a number of files that no network in memory has. What is not of the kernel is in
tests/server/test_listener_contract.py and tests/server/test_requests.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT
from tests.hostile.clients import connect, flood, head, read_to_end, send
from tests.hostile.conftest import started

pytestmark = pytest.mark.process

_NAME: Final = "/10.1000/182"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy whose deadlines for clients are one second."""
    one = started(
        tmp_path_factory.mktemp("impatient"),
        upstream_url,
        store_url="memory:",
        **dict.fromkeys((HEAD_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, IDLE_TIMEOUT), 1),
    )
    try:
        yield one
    finally:
        one.process.kill()


def _resolves(proxy: Proxy) -> bool:
    return asyncio.run(proxy.ask(_NAME)).status == 302


@pytest.mark.parametrize(
    "unfinished",
    [head(_NAME)[:-2], head(_NAME, "Content-Length: 10", method="POST") + b"half", head(_NAME)],
    ids=["half a head", "half a body", "an idle connection"],
)
def test_what_is_never_finished_is_ended(impatient: Proxy, unfinished: bytes) -> None:
    with connect(impatient.port) as connection:
        send(connection, unfinished)
        assert read_to_end(connection) is not None


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


def test_more_connections_than_descriptors_leave_other_clients_alone(
    tmp_path_factory: pytest.TempPathFactory, upstream_url: str
) -> None:
    one = started(tmp_path_factory.mktemp("few"), upstream_url, max_connections=50)
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                with contextlib.suppress(OSError):
                    stack.enter_context(connect(one.port))
            assert all(_resolves(one) for _ in range(5))
    finally:
        one.process.kill()


def test_connections_that_come_and_go_leave_other_clients_alone(
    tmp_path_factory: pytest.TempPathFactory, upstream_url: str
) -> None:
    one = started(tmp_path_factory.mktemp("churn"), upstream_url, max_connections=50)
    try:
        answers = []
        for _ in range(10):
            with contextlib.ExitStack() as stack:
                for _ in range(60):
                    with contextlib.suppress(OSError):
                        stack.enter_context(connect(one.port))
                answers += [_resolves(one) for _ in range(10)]
        assert answers == [True] * 100
    finally:
        one.process.kill()
