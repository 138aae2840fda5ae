"""Deadlines and caps on real connections: each test waits for the event itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from app.server.connections import Reason
from app.server.malformed_requests import MalformedRequests
from tests.constants import BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, PER_CLIENT, WRITE_TIMEOUT
from tests.server.served import PATIENCE, finish, served
from tests.server.test_requests import GET, LAST, statuses

# Its servers use sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

SHORT = 0.2
LONG = 3_600.0
DEADLINES = (HEAD_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, IDLE_TIMEOUT)


def only(short: str) -> dict[str, Any]:
    """One short deadline and three long ones."""
    return {name: SHORT if name == short else LONG for name in DEADLINES}


@pytest.mark.parametrize(("sent", "answers"), [(b"", []), (b"GET / HTTP/1.1\r\n", [408])])
async def test_a_head_that_does_not_arrive_ends_its_connection(sent: bytes, answers: list[int]) -> None:
    async with served(**only(HEAD_TIMEOUT)) as server:
        assert statuses(await server.exchange(sent)) == answers
        await server.closed(Reason.HEAD_TIMEOUT)


async def test_a_second_head_that_does_not_arrive_ends_its_connection() -> None:
    async with served(**only(HEAD_TIMEOUT)) as server:
        assert statuses(await server.exchange(GET + b"GET")) == [302, 408]


async def test_a_body_without_progress_ends_its_connection() -> None:
    async with served(**only(BODY_TIMEOUT)) as server:
        head = b"POST /10.1000/182 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
        assert statuses(await server.exchange(head + b"a")) == [408]
        await server.closed(Reason.BODY_TIMEOUT)


async def test_an_idle_connection_is_closed_without_an_answer() -> None:
    async with served(**only(IDLE_TIMEOUT)) as server:
        assert statuses(await server.exchange(GET)) == [302]
        await server.closed(Reason.IDLE)


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    async with served(**only(WRITE_TIMEOUT)) as server:
        server.put("10.1000/BIG", size=8_000_000)
        _, writer = await server.connect()
        writer.write(GET.replace(b"/10.1000/182", b"/api/handles/10.1000/big"))
        await server.closed(Reason.WRITE_TIMEOUT)
        writer.transport.abort()


async def test_the_oldest_idle_connection_gives_way_at_the_cap(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with served(max_connections=8) as server:
        idle = [await server.connect() for _ in range(8)]
        for reader, writer in idle:
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n")
        assert statuses(await server.exchange(LAST)) == [302]
        await server.closed(Reason.CAP)
        assert b"HTTP/" not in await finish(*idle[0])
        for number in range(20):
            assert statuses(await server.exchange(LAST)) == [302], number
        for _, writer in idle:
            writer.close()
    lines = [record.message for record in caplog.records if record.name == "app.server.connections"]
    assert len([line for line in lines if "for which least has been done" in line]) == 1


async def test_a_client_network_has_a_cap_of_its_own_and_a_trusted_proxy_has_none() -> None:
    for trusted, expected in (("192.0.2.1", 1), ("127.0.0.1", 0)):
        async with served(**{PER_CLIENT: 2, "trusted_proxies": trusted}) as server:
            held = [await server.connect() for _ in range(3)]
            for reader, writer in held[1:]:
                writer.write(GET)
                await reader.readuntil(b"\r\n\r\n")
            assert server.connections.closed[Reason.CAP] == expected
            for _, writer in held:
                writer.close()


async def finish_reading(reader: asyncio.StreamReader) -> bytes:
    """What the server sends until it ends its side."""
    async with asyncio.timeout(PATIENCE):
        return await reader.read(-1)


async def test_a_body_that_drips_after_its_answer_is_not_waited_for() -> None:
    async with served(**only(WRITE_TIMEOUT)) as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nContent-Length: 1000000\r\n\r\n"))
        assert statuses(await finish_reading(reader)) == [302]
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while not server.connections.closed[Reason.FINISHED]:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(SHORT / 10)
        assert server.connections.closed[Reason.FINISHED] == 1
        writer.transport.abort()


async def test_a_body_that_drips_has_a_deadline_in_all() -> None:
    async with served(**only(BODY_TIMEOUT)) as server:
        reader, writer = await server.connect()
        writer.write(b"POST /10.1000/182 HTTP/1.1\r\nHost: x\r\nContent-Length: 65536\r\n\r\n")
        answer = asyncio.ensure_future(finish_reading(reader))
        with contextlib.suppress(ConnectionError):
            while not answer.done():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(SHORT / 10)
        assert statuses(await answer) == [408]
        writer.transport.abort()
        await server.closed(Reason.BODY_TIMEOUT)


async def test_a_dripping_body_of_the_admin_api_has_the_same_deadline_and_delays_no_other_client() -> None:
    token = "correct-horse-battery-staple"
    async with served(**only(BODY_TIMEOUT), admin_token=token) as server:
        reader, writer = await server.connect()
        head = "POST /admin/purge HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n"
        writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        answer = asyncio.ensure_future(finish_reading(reader))
        answered = 0
        with contextlib.suppress(ConnectionError):
            while not answer.done():
                writer.write(b" ")
                await writer.drain()
                assert statuses(await server.exchange(LAST)) == [302]
                answered += 1
                await asyncio.sleep(SHORT / 10)
        assert statuses(await answer) == [408]
        assert answered > 1
        writer.transport.abort()
        await server.closed(Reason.BODY_TIMEOUT)


async def test_a_client_that_does_not_read_gives_way_at_the_cap() -> None:
    async with served(**{"max_connections": 1, IDLE_TIMEOUT: SHORT}) as server:
        server.put("10.1000/BIG", size=8_000_000)
        _, writer = await server.connect()
        writer.write(GET.replace(b"/10.1000/182", b"/api/handles/10.1000/big"))
        async with asyncio.timeout(PATIENCE):
            while statuses(await server.exchange(LAST)) != [302]:  # noqa: ASYNC110 - each turn is a new client
                await asyncio.sleep(SHORT / 10)
        await server.closed(Reason.CAP)
        writer.transport.abort()


async def test_malformed_requests_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served(**{IDLE_TIMEOUT: SHORT}) as server:
        for _ in range(50):
            assert statuses(await server.exchange(b"\0\r\n\r\n")) == [400]
        # Closed as idle by a later sweep, so one sweep at least has reported.
        await server.exchange(GET)
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
