"""A service and streams of bytes to its listeners, in memory and in virtual time: what a test waits for costs nothing.

async with served() as server:
    assert statuses(await server.exchange(b"GET /10.1000/182 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")) == [302]
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from doi_proxy.server.connections import Connections, Reason
from tests.web.proxy import Proxy
from tests.world.loop import network_of
from tests.world.network import RESET
from tests.world.service import CLIENT

TARGET: Final = "http://www.doi.org/hb.html"
NAME: Final = "10.1000/182"
#: Virtual seconds. No exchange takes longer.
_MAX_WAIT: Final = 3_600.0
#: Bytes that a client reads ahead.
_READ_AHEAD: Final = 1_024


class Served(Proxy):
    """A proxy with clients that send and read bytes as they like."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connections(self) -> Connections:
        """The open connections, and how those before were closed."""
        return cast(Connections, self.app.connections)

    async def put(self, name: str, size: int = 0) -> None:
        """Register a name, with a description of `size` bytes, and have it in the cache."""
        kinds = (("URL", TARGET), ("DESC", "x" * size))
        values = [
            {"index": index, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86_400}
            for index, (kind, text) in enumerate(kinds, 1)
        ]
        self.upstream.put(name, values)
        reply = await self.get(f"/api/handles/{name}")
        assert reply.status == 200, reply.text[:500]
        # A test counts the connections of its own clients.
        await self.closed(Reason.CLIENT)
        self.connections.closed[Reason.CLIENT] = 0

    @property
    def unsent(self) -> int:
        """The bytes of answers that the system has not accepted, as clients do not read."""
        return sum(connection.transport.get_write_buffer_size() for connection in self._open())

    @property
    def blocked(self) -> int:
        """The connections whose answer waits for a client that does not read."""
        return sum(connection.flow.write_paused for connection in self._open())

    def _open(self) -> Any:
        connections: Any = self.connections._holder
        return connections

    async def connect(
        self, to: str = "http", client: str | None = CLIENT
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of a client, which reads only a few kilobytes ahead. See Network.connect."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_READ_AHEAD, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        wire = network_of(loop).connect(protocol, self.address(listener=to), client)
        writer = asyncio.StreamWriter(wire, protocol, reader, loop)
        self._writers.append(writer)
        return reader, writer

    async def exchange(self, *pieces: bytes, end: bool = False, to: str = "http", client: str = CLIENT) -> bytes:
        """Send pieces, and with `end` the end of sending; all that the server sends until it closes."""
        reader, writer = await self.connect(to, client)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if end:
            writer.write_eof()
        return await finish(reader, writer)

    async def aclose(self) -> None:
        """End the clients and the service."""
        for writer in self._writers:
            writer.close()
        await super().aclose()

    async def drain(self) -> None:
        """End the service: the ports close, and what runs may finish."""
        await self.instances.pop().drain()

    async def closed(self, reason: Reason, number: int = 1) -> None:
        """Wait until `number` connections were closed for a reason."""
        async with asyncio.timeout(_MAX_WAIT):
            while self.connections.closed[reason] < number:  # noqa: ASYNC110 - the counter has no event
                await asyncio.sleep(1)


async def finish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read what the server sends until it closes."""
    try:
        async with asyncio.timeout(_MAX_WAIT):
            return await reader.read()
    finally:
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a program does that is killed: what it was sent meets a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def statuses(answers: bytes) -> list[int]:
    """The statuses of answers of HTTP."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)]


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    """Start a service with these settings and constants. It has NAME in its cache."""
    async with Served(**settings) as service:
        await service.put(NAME)
        yield service
