"""Lists over a socket: rows while the list arrives, clients that do not read, that drip, and that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

import pytest

from doi_proxy.server.connections import BODY_DEADLINES, BODY_RATE, BODY_TIMEOUT, Reason
from tests.constants import MAX_OPEN, WRITE_TIMEOUT
from tests.server.served import Served, finish

pytestmark = pytest.mark.anyio

HEAD: Final = (
    b"POST /api/resolve?only=cached&fields=doi,verdict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
)
CHUNKED: Final = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ROW: Final = b'{"doi":"10.5555/a","verdict":"resolved"}\n'
#: Few long rows fill buffers with less work than many short ones.
ECHOING: Final = HEAD.replace(b"doi,verdict", b"input,doi,verdict")
LONG_LINE: Final = b"10.5555/a" + b" " * 1_000 + b"\n"
ROW_END: Final = b'"doi":"10.5555/a","verdict":"resolved"}\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def batches_of(served: Served) -> set[str]:
    """The tasks of lists that are running."""
    coroutines = {str(task.get_coro()) for task in asyncio.all_tasks()}
    return {one for one in coroutines if "_Batch" in one or "RowsAnswer" in one or "BodyBuffer" in one}


async def ended(served: Served) -> None:
    """Wait until no list is being answered."""
    while batches_of(served):  # noqa: ASYNC110 - tasks of other parts have no event
        await asyncio.sleep(1)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with Served() as served:
        await served.put("10.5555/a")
        yield served


async def test_rows_arrive_before_the_list_is_complete(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    for _ in range(3):
        writer.write(chunk(b"10.5555/a\n"))
        await reader.readuntil(ROW)
    writer.write(b"0\r\n\r\n")
    rest = await finish(reader, writer)
    assert rest.endswith(b"0\r\n\r\n") and b"verdict" not in rest


async def test_a_connection_whose_list_was_read_in_one_piece_can_be_used_again(served: Served) -> None:
    body = b"10.5555/a\n" * 3
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer = await served.exchange(request + request.replace(b"Host", b"Connection: close\r\nHost"))
    assert answer.count(b"HTTP/1.1 200") in (1, 2)
    assert answer.count(ROW) == 3 * answer.count(b"HTTP/1.1 200")


async def test_a_client_that_sends_everything_before_it_reads_is_answered(served: Served) -> None:
    body = LONG_LINE * 1_000
    reader, writer = await served.connect()
    writer.write(ECHOING + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    # The answer is longer than the buffers of the system, so it waits for the client.
    while not served.blocked:  # noqa: ASYNC110 - a connection that waits has no event
        await asyncio.sleep(1)
    answer = await finish(reader, writer)
    assert answer.count(ROW_END) == 1_000


async def test_a_client_that_never_reads_is_bounded_and_closed() -> None:
    async with Served() as served:
        await served.put("10.5555/a")
        _, writer = await served.connect()
        writer.write(ECHOING + b"Transfer-Encoding: chunked\r\n\r\n")

        async def send() -> None:
            while True:
                writer.write(chunk(LONG_LINE * 100))
                await writer.drain()

        sending = asyncio.create_task(send())
        await served.closed(Reason.WRITE_TIMEOUT)
        assert served.unsent == 0
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await ended(served)
        writer.close()


async def test_a_list_that_gives_way_ends_at_once_though_its_client_does_not_read() -> None:
    async with Served(**{WRITE_TIMEOUT: 3_600, MAX_OPEN: 2}) as served:
        await served.put("10.5555/a")

        async def send(writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(chunk(b"10.5555/a\n" * 1_000))
                await writer.drain()

        writers = [(await served.connect())[1] for _ in range(2)]
        for writer in writers:
            writer.write(CHUNKED)
        sending = [asyncio.create_task(send(writer)) for writer in writers]
        while served.blocked < len(writers):  # noqa: ASYNC110 - a connection that waits has no event
            await asyncio.sleep(1)
        reader, newcomer = await served.connect(client="198.51.100.7")
        # A short list has a place of its own.
        newcomer.write(HEAD + b"Connection: close\r\nContent-Length: 10000\r\n\r\n" + b"10.5555/a\n" * 1_000)
        assert ROW in await finish(reader, newcomer)
        assert served.connections.closed[Reason.WRITE_TIMEOUT] == 1
        for task, writer in zip(sending, writers, strict=True):
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*sending, return_exceptions=True)
        await ended(served)


async def test_a_client_that_stops_in_the_middle_of_its_list_is_closed() -> None:
    async with Served() as served:
        await served.put("10.5555/a")
        reader, writer = await served.connect()
        writer.write(CHUNKED + chunk(b"10.5555/a\n"))
        await reader.readuntil(ROW)
        # The answer ends without its last chunk.
        assert await finish(reader, writer) == b"\r\n"
        await served.closed(Reason.BODY_TIMEOUT)
        await ended(served)


async def test_a_client_that_leaves_ends_the_work(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED + chunk(b"10.5555/a\n"))
    await reader.readuntil(ROW)
    writer.close()
    await ended(served)


async def test_a_list_that_drips_is_closed_although_its_rows_are_sent(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    rows = 0
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            writer.write(chunk(b"10.5555/a\n"))
            await reader.readuntil(ROW)
            rows += 1
            await asyncio.sleep(0.9 * BODY_TIMEOUT)
    assert rows == BODY_DEADLINES + 1
    await served.closed(Reason.BODY_TIMEOUT)


async def test_a_long_list_may_take_longer_than_a_body(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(CHUNKED)
    for _ in range(2 * BODY_DEADLINES):
        # Read meanwhile, the list fits between two sockets that hold less than it.
        writer.write(chunk(b" " * round(0.9 * BODY_TIMEOUT * BODY_RATE) + b"\n10.5555/a\n"))
        await reader.readuntil(ROW)
        await asyncio.sleep(0.9 * BODY_TIMEOUT)
    assert not served.connections.closed[Reason.BODY_TIMEOUT]
    writer.close()
    await ended(served)


async def test_a_line_that_is_not_json_has_its_row(served: Served) -> None:
    body = chunk(b"10.5555/a\n") + chunk(b"[") + b"0\r\n\r\n"
    head = CHUNKED.replace(b"text/plain", b"application/x-ndjson\r\nConnection: close")
    answer = await served.exchange(head + body)
    lines = [line for line in answer.split(b"\r\n") if line.startswith(b"{")]
    assert [json.loads(line)["verdict"] for line in b"".join(lines).splitlines()] == ["not_a_doi", "not_a_doi"]
