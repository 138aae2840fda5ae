"""Deadlines and caps of HTTP alone. Those of every listener are in test_listener_contract.py."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest

from doi_proxy.server.connections import WRITE_TIMEOUT, Reason
from doi_proxy.server.plain_head import MalformedRequests
from doi_proxy.server.protocol import ServerProtocol
from tests.clock import Clock
from tests.constants import PER_CLIENT
from tests.server.served import served, statuses
from tests.server.test_requests import GET, LAST
from tests.server.ways import Server, Wire
from tests.table import table
from tests.world.service import CLIENT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("trusted", "ended"), [("198.51.100.1", 1), (CLIENT, 0)])
async def test_a_client_has_a_cap_of_its_own_and_a_trusted_proxy_has_none(trusted: str, ended: int) -> None:
    async with served(**{PER_CLIENT: 2, "trusted_proxies": trusted}) as server:
        held = [await server.connect() for _ in range(3)]
        for reader, writer in held[1:]:
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
        assert server.connections.closed[Reason.CAP] == ended


async def test_a_body_that_drips_after_its_answer_is_not_waited_for() -> None:
    async with served() as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n"))
        assert statuses(await reader.read()) == [302]
        with suppress(ConnectionError):
            for _ in range(int(2 * WRITE_TIMEOUT)):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(1)
        assert server.connections.closed[Reason.FINISHED] == 1


async def test_a_connection_is_idle_from_the_time_when_its_client_has_read_the_answer() -> None:
    async with served() as server:
        await server.put("10.1000/BIG", size=200_000)
        reader, writer = await server.connect()
        writer.write(GET.replace(b"/10.1000/182", b"/api/handles/10.1000/big"))
        await asyncio.sleep(20)
        assert server.unsent > 0
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.findall(rb"content-length: ([0-9]+)", head)[0]))
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await reader.read() == b""
        assert 75 < loop.time() - began < 78


@table(("reason", "is_aborted"), [(Reason.IDLE, False), (Reason.BODY_TIMEOUT, False), (Reason.CAP, True)])
async def test_only_a_connection_over_tls_that_gives_way_is_closed_without_its_close_notify(
    reason: Reason, is_aborted: bool
) -> None:
    server, wire = Server(Clock(), ServerProtocol), Wire()
    protocol = ServerProtocol(server._config, server.state, {})
    protocol.connection_made(wire)
    protocol.scheme = "https"
    protocol.expire(reason)
    assert (wire.closed, wire.aborted) == (True, is_aborted)
    await server.close()


async def test_a_client_that_does_not_read_gives_way_at_the_cap() -> None:
    async with served(max_connections=1) as server:
        await server.put("10.1000/BIG", size=200_000)
        _, writer = await server.connect()
        writer.write(GET.replace(b"/10.1000/182", b"/api/handles/10.1000/big"))
        await asyncio.sleep(5)
        assert statuses(await server.exchange(LAST, client="198.51.100.7")) == [302]
        assert server.connections.closed[Reason.CAP] == 1


async def test_a_request_without_its_body_that_gives_way_gets_503_and_is_closed_at_once() -> None:
    async with served(max_connections=1) as server:
        reader, writer = await server.connect()
        kind = b"Content-Type: application/x-www-form-urlencoded"
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\n" + kind + b"\r\nContent-Length: 9\r\n\r\n")
        await asyncio.sleep(5)
        assert statuses(await server.exchange(LAST, client="198.51.100.7")) == [302]
        # Its client has not ended its side.
        await asyncio.sleep(0.01)
        assert server.connections.closed[Reason.CAP] == 1
        assert statuses(await reader.read()) == [503]


async def test_malformed_requests_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        for _ in range(50):
            assert statuses(await server.exchange(b"\0\r\n\r\n")) == [400]
        await asyncio.sleep(2)
    assert len([record for record in caplog.records if "malformed and refused" in record.getMessage()]) == 1


def test_malformed_requests_are_reported_once_a_minute_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    requests = MalformedRequests()
    requests.report(1_000.0)
    for now in (1_000.0, 1_030.0, 1_059.0, 1_060.0):
        requests.count_malformed()
        requests.count_upgrade()
        requests.report(now)
    numbers = [record.args for record in caplog.records]
    assert numbers == [(1, 1), (3, 3)]
